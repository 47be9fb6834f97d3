//! Search strategies: the one list of how tools can be ranked, for settings, search and evaluation alike.
//! Owns: their names and meanings, and what stands in where vectors are missing.      Never: ranks anything.
//! In: a name.  Out: a `Strategy`.
//! Tests: below.

use std::fmt;
use std::str::FromStr;

/// How tools are ranked for a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Strategy {
    /// The whole query, case-insensitively: equal to the name 10, contained in the name 5, contained in
    /// the description 2, added up, divided by 10 and capped at 1. A query of several words matches only
    /// where these words stand exactly so.
    Keyword,
    /// The same points for each word of the query on its own.
    Lexical,
    /// BM25 over words: names count most, then title, description, server and parameters. A misspelt word of a
    /// name is forgiven.
    Bm25,
    /// BM25 and meaning together, then a close look at the best.
    Hybrid,
    /// `Hybrid`, with how near a transformer on this machine finds each tool.
    Transformer,
    /// `Keyword` blended with vectors of Voyage's API.
    HybridVoyage,
    /// `Hybrid` blended with vectors of any API.
    Embedding,
    /// The best that this machine has without asking anybody: `Transformer` where its model is, else `Hybrid`.
    #[default]
    Auto,
}

impl Strategy {
    /// All of them: the default, then the simplest first.
    pub const ALL: [Strategy; 8] = [
        Strategy::Auto,
        Strategy::Keyword,
        Strategy::Lexical,
        Strategy::Bm25,
        Strategy::Hybrid,
        Strategy::Transformer,
        Strategy::HybridVoyage,
        Strategy::Embedding,
    ];

    /// The name in configuration and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Strategy::Keyword => "keyword",
            Strategy::Lexical => "lexical",
            Strategy::Bm25 => "bm25",
            Strategy::Hybrid => "hybrid",
            Strategy::Transformer => "transformer",
            Strategy::HybridVoyage => "hybrid-voyage",
            Strategy::Embedding => "embedding",
            Strategy::Auto => "auto",
        }
    }

    /// What it does, in one line for help, docs and schema.
    pub const fn meaning(self) -> &'static str {
        match self {
            Strategy::Keyword => {
                "Points for the query in name and description: exact name 10, name contains 5, description contains 2."
            }
            Strategy::Lexical => "The same points for each word of the query on its own.",
            Strategy::Bm25 => {
                "BM25 over names, descriptions, parameters and servers, with identifiers split into words; typos in names are tolerated."
            }
            Strategy::Hybrid => {
                "BM25 and word vectors that are part of the binary, then re-ranking of the best hits. Offline."
            }
            Strategy::Transformer => {
                "`hybrid` with more re-ranking features, from a small local transformer. Offline; `metamcp model add` installs it, and until then it falls back to `hybrid`."
            }
            Strategy::HybridVoyage => {
                "0.6 of the similarity by Voyage's `voyage-3-lite` and 0.4 of `keyword`, over the 50 best of `hybrid` and the 50 nearest by vector. Needs VOYAGE_API_KEY; falls back to `keyword`."
            }
            Strategy::Embedding => {
                "The same with the vectors of `embeddingUrl` and with `hybrid` in place of `keyword`; falls back to `hybrid`."
            }
            Strategy::Auto => {
                "`transformer` where its model is installed and tools are embedded, `hybrid` otherwise. Offline."
            }
        }
    }

    /// What ranks by the index alone: itself, or what stands beside its vectors and in for them.
    pub const fn without_vectors(self) -> Strategy {
        match self {
            Strategy::Keyword | Strategy::Lexical | Strategy::Bm25 | Strategy::Hybrid => self,
            Strategy::Auto | Strategy::Transformer | Strategy::Embedding => Strategy::Hybrid,
            Strategy::HybridVoyage => Strategy::Keyword,
        }
    }

    /// Whether the index alone is not enough for it.
    pub fn needs_vectors(self) -> bool {
        self.without_vectors() != self
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Strategy::ALL.into_iter().find(|strategy| strategy.name() == name);
        known.ok_or_else(|| UnknownStrategy { name: name.to_owned() })
    }
}

/// Not the name of a strategy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown search strategy `{name}`; known are {}", Strategy::ALL.map(Strategy::name).join(", "))]
pub struct UnknownStrategy {
    /// What was asked for.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_and_what_stands_in_needs_nothing() {
        for strategy in Strategy::ALL {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
            assert!(!strategy.without_vectors().needs_vectors());
        }
        let said = "semantic".parse::<Strategy>().unwrap_err().to_string();
        assert!(said.contains("`semantic`") && said.contains("keyword, lexical"), "{said}");
    }
}
