"""Which pieces get a row: the teacher's, without those that say nothing, and whole words it lacks.

The teacher's vocabulary is of 2018 and of encyclopedias: "delete", "json" and "github" are three
pieces each, whose sum means little. A row of their own is worth more than one for "1748".
"""

import pieces

# Products people name when they ask for a tool; names only, from common knowledge.
PRODUCTS = """
airbnb airtable algolia amazon android anthropic arxiv asana atlassian auth0 azure bigquery bitbucket blender
bluesky brave calendly canva chatgpt chromadb clickhouse clickup cloudflare codepen coinbase coingecko confluence
crunchbase databricks datadog deepl deepseek dialogflow discord docusign dropbox duckdb duckduckgo ebay elasticsearch
elevenlabs ethereum etsy eventbrite evernote exa expedia facebook figma firebase firecrawl firestore foursquare
freshdesk garmin ghost gitea github gitlab gmail godaddy grafana graphql hackernews heroku hubspot huggingface imdb
instagram intercom ipfs javascript jenkins jira jupyter kafka kaggle kibana klaviyo langchain linkedin localhost mailchimp
mailgun mapbox mastodon mcp miro mixpanel mongodb mysql neo4j netflix netlify newrelic nextcloud nginx notion npm
obsidian okta openai openapi openstreetmap openweathermap outlook pagerduty paypal perplexity pinecone pinterest
playwright postgres postgresql posthog postman prometheus puppeteer pypi quickbooks rabbitmq raycast reddit redis
rss salesforce sendgrid sentry servicenow sharepoint shopify skyscanner slack snowflake solana soundcloud spotify
sqlite stackoverflow steam strava stripe substack supabase tableau tavily telegram terraform tiktok todoist trello
tripadvisor twilio twitch twitter typeform typescript uber unity unsplash vercel vimeo vscode wechat weaviate whatsapp wikidata
wikipedia wolfram wordpress xero yelp youtube zapier zendesk zillow zoom
""".split()


def choose(teacher_names, spread, texts, rows):
    """`rows` names: the useful pieces of the teacher, then the most widely used whole words."""
    kept = [n for n in teacher_names if pieces.useful(n)]
    seen = used(kept, texts)
    kept = [n for n in kept if n in seen or not (n.startswith("##") or any(c.isdigit() for c in n)) or len(n.strip("#")) == 1]
    have = set(kept)
    by_spread = sorted((w for w in spread if w not in have), key=lambda w: (-spread[w], w))
    wanted = [w for w in dict.fromkeys(PRODUCTS + by_spread) if w not in have]
    return kept + wanted[: max(0, rows - len(kept))]


def used(names, texts):
    """The names that cutting the texts by these names makes use of."""
    cutter = pieces.Pieces(names)
    return {names[i] for text in texts for i in cutter.of(text)}
