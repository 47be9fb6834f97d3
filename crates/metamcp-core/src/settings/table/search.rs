//! Settings of what clients see, and of the search for tools.

use std::borrow::Cow;

use super::Setting;
use crate::settings::value::{Kind, Value};
use crate::settings::words::{SearchStrategy, Vocabulary};

pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        key: Some("surface"),
        aliases: &[],
        flag: "surface",
        env: "METAMCP_SURFACE",
        kind: Kind::Word(Vocabulary::WORDS),
        default: Some(Value::Word("compact")),
        help: "Which tools a client is shown",
        doc: "",
        store: |settings, value| {
            settings.surface = Vocabulary::from_word(&value.text()).unwrap_or(settings.surface);
        },
    },
    Setting {
        key: Some("search.strategy"),
        aliases: &[],
        flag: "search",
        env: "METAMCP_SEARCH",
        kind: Kind::Word(SearchStrategy::WORDS),
        default: Some(Value::Word("hybrid")),
        help: "How tools are ranked for a query",
        doc: "",
        store: |settings, value| {
            settings.search = SearchStrategy::from_word(&value.text()).unwrap_or(settings.search);
        },
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
        help: "The model to ask that address for",
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
        doc: "Remembered are hashes of a query's words, the tool called next and whether it worked; never arguments, never results. \
              It stays in `habits.json` in the home of metamcp, fades within months, and `metamcp forget` removes it. \
              It lifts tools that match well anyway, for the strategies `bm25` and `hybrid`, and never above a tool that was asked for by its name.",
        store: |settings, value| settings.learn = value.is_on(),
    },
];
