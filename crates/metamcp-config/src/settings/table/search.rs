//! Settings of the tool surface and of search.

use std::borrow::Cow;

use metamcp_types::strategy::Strategy;

use super::Setting;
use crate::settings::value::{Kind, Value};
use crate::settings::words::{STRATEGIES, ToolSurface};

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: Some("surface"),
        aliases: &[],
        flag: "surface",
        env: "METAMCP_SURFACE",
        kind: Kind::Word(ToolSurface::WORDS),
        default: Some(Value::Word("compact")),
        help: "Which tools a client is shown",
        doc: "",
        store: |settings, value| {
            settings.surface = ToolSurface::from_word(&value.text()).unwrap_or(settings.surface);
        },
    },
    Setting {
        key: Some("search.strategy"),
        aliases: &[],
        flag: "search",
        env: "METAMCP_SEARCH",
        kind: Kind::Word(&STRATEGIES),
        default: Some(Value::Word(Strategy::Auto.name())),
        help: "How tools are ranked for a query",
        doc: "",
        store: |settings, value| {
            settings.search = value.text().parse().unwrap_or(settings.search);
        },
    },
    Setting {
        key: Some("search.bm25NameBoost"),
        aliases: &[],
        flag: "bm25-name-boost",
        env: "METAMCP_BM25_NAME_BOOST",
        kind: Kind::Count { min: 0, max: 100 },
        default: Some(Value::Number(2)),
        help: "What a word in a tool's name counts, with the strategy `bm25`",
        doc: "A word in a description counts 1.",
        store: |settings, value| settings.bm25.name_boost = value.count(),
    },
    Setting {
        key: Some("search.bm25NamespaceBoost"),
        aliases: &[],
        flag: "bm25-namespace-boost",
        env: "METAMCP_BM25_NAMESPACE_BOOST",
        kind: Kind::Count { min: 0, max: 100 },
        default: Some(Value::Number(1)),
        help: "What a word in a server's name counts, with the strategy `bm25`",
        doc: "",
        store: |settings, value| settings.bm25.namespace_boost = value.count(),
    },
    Setting {
        key: Some("search.bm25TagsBoost"),
        aliases: &[],
        flag: "bm25-tags-boost",
        env: "METAMCP_BM25_TAGS_BOOST",
        kind: Kind::Count { min: 0, max: 100 },
        default: Some(Value::Number(1)),
        help: "What a word in a title or a tag counts, with the strategy `bm25`",
        doc: "",
        store: |settings, value| settings.bm25.tags_boost = value.count(),
    },
    Setting {
        key: Some("search.bm25MaxTools"),
        aliases: &[],
        flag: "bm25-max-tools",
        env: "METAMCP_BM25_MAX_TOOLS",
        kind: Kind::Count { min: 0, max: 1_000_000 },
        default: Some(Value::Number(0)),
        help: "Most tools the strategy `bm25` looks at",
        doc: "0 looks at all of them.",
        store: |settings, value| settings.bm25.max_tools = value.size(),
    },
    Setting {
        key: Some("search.bm25MaxText"),
        aliases: &[],
        flag: "bm25-max-text",
        env: "METAMCP_BM25_MAX_TEXT",
        kind: Kind::Count { min: 0, max: 1_000_000 },
        default: Some(Value::Number(0)),
        help: "Characters of a description the strategy `bm25` looks at",
        doc: "0 stands for 512, and more than that is 512 too: a longer text is no better description.",
        store: |settings, value| settings.bm25.max_text = value.size(),
    },
    Setting {
        key: Some("search.embeddingUrl"),
        aliases: &[],
        flag: "embedding-url",
        env: "METAMCP_EMBEDDING_URL",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "Where the strategy `embedding` gets its vectors",
        doc: "Any OpenAI-compatible address, such as `https://api.openai.com/v1/embeddings`, or one of Ollama, such as `http://localhost:11434/api/embed`.",
        store: |settings, value| settings.embedding.url = value.text().into_owned(),
    },
    Setting {
        key: Some("search.embeddingModel"),
        aliases: &[],
        flag: "embedding-model",
        env: "METAMCP_EMBEDDING_MODEL",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "The model to request from that address",
        doc: "Such as `text-embedding-3-small` or `nomic-embed-text`.",
        store: |settings, value| settings.embedding.model = value.text().into_owned(),
    },
    Setting {
        key: Some("search.embeddingKeyEnv"),
        aliases: &[],
        flag: "embedding-key-env",
        env: "METAMCP_EMBEDDING_KEY_ENV",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "The environment variable that holds the key for that address",
        doc: "The name of the variable, never the key itself. A key that belongs to one company is sent to no other.",
        store: |settings, value| settings.embedding.key_env = value.text().into_owned(),
    },
    Setting {
        key: Some("search.learn"),
        aliases: &[],
        flag: "learn",
        env: "METAMCP_LEARN",
        kind: Kind::Switch,
        default: Some(Value::Switch(true)),
        help: "Whether tools that worked after a search rank higher next time",
        doc: "The usage history holds hashes of a query's words, the tool called next and whether it worked; never arguments, never results. \
              It is in `habits.json` in the home of metamcp, fades within months, and `metamcp forget` deletes it. \
              It raises tools that match well anyway, with the strategies `bm25`, `hybrid` and `transformer`, and never above a tool that the query names.",
        store: |settings, value| settings.learn = value.is_on(),
    },
];
