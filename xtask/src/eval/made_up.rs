//! Synthetic catalogs, the same on every run: any number of tools, worded about as real ones are.
//!
//! Lengths follow a union of 22,000 real tools: names of two or three words, a sentence or two about each, a handful of
//! parameters with a phrase each. Everyday words are few and frequent, others are many and rare, because an index is as
//! large as its vocabulary and as slow as its most common word.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value, json};

/// Tools per server, about as many as real ones have.
const TOOLS_A_SERVER: usize = 20;

/// Queries per catalog.
const QUERIES: usize = 200;

/// Tools per rare word: the vocabulary grows with the catalog, as in real ones.
const RARE_IN: usize = 12;

const VERBS: &str = "get list create delete update search find send read write add remove move copy upload \
    download start stop check compare convert count export import merge publish rename resolve \
    schedule share summarize sync translate validate watch archive assign cancel close restore";

const THINGS: &str = "account alert album article backup board booking branch budget calendar campaign card \
    channel chart cluster comment commit contact container contract customer dashboard \
    database dataset deployment device diagram document domain email employee event expense \
    experiment feed file flight folder forecast form function game group hotel image incident \
    index instance invoice issue job key label lead ledger lesson license location log map \
    meeting member message metric milestone model network note notebook order organization \
    page payment permission pipeline playlist podcast policy price product profile project \
    query queue recipe record release report repository review role route rule schema \
    screenshot secret session shipment snapshot song spreadsheet stock subscription table task \
    team template thread ticket token transaction translation user vehicle video volume wallet \
    weather webhook website workflow workspace";

const KINDS: &str = "active archived available billing cached completed current daily default deleted detailed \
    draft encrypted expired external failed favorite filtered global hidden historical \
    internal latest linked local monthly nearby nested open overdue pending popular private \
    public recent recurring related remote scheduled shared similar temporary trending unread \
    upcoming verified weekly";

const PARAMETERS: &[(&str, &str, &str)] = &[
    ("id", "string", "The unique identifier of the"),
    ("name", "string", "Name of the"),
    ("limit", "integer", "Maximum number of results to return for each"),
    ("offset", "integer", "How many results to skip before the first"),
    ("query", "string", "Text to look for in every"),
    ("start_date", "string", "Only what happened after this date, by"),
    ("end_date", "string", "Only what happened before this date, by"),
    ("format", "string", "Output format of the"),
    ("include_details", "boolean", "Whether to add all fields of the"),
    ("path", "string", "Where to put the"),
    ("tags", "array", "Labels attached to the"),
    ("sort_by", "string", "The field that orders the"),
    ("timeout_seconds", "number", "How long to wait for the"),
    ("owner", "string", "Who is responsible for the"),
    ("parent", "string", "What contains the"),
    ("url", "string", "Address of the"),
    ("language", "string", "Language code used for the"),
    ("dry_run", "boolean", "Only say what would happen to the"),
];

const SENTENCES: &[&str] = &[
    "Returns the result as JSON with one entry for each {thing}.",
    "Use this when the user asks about a {kind} {thing} in {rare}.",
    "Requires permission to see the {other} of the workspace.",
    "Results are paged; pass the cursor of the last page to go on.",
    "Fails if the {thing} does not exist or the {other} is locked.",
    "Works with {rare} and {rare} as well.",
];

const SYLLABLES: &[&str] = &[
    "ba", "cor", "del", "fin", "gra", "hel", "io", "jun", "kel", "lum", "mer", "nov", "or", "pex",
    "qui", "ras", "sol", "tor", "ul", "ver", "wex", "yan", "zet", "bri", "clo", "dra", "ex", "flo",
];

/// The lists above, split into words.
struct Lists {
    verbs: Vec<&'static str>,
    things: Vec<&'static str>,
    kinds: Vec<&'static str>,
}

impl Lists {
    fn new() -> Lists {
        let [verbs, things, kinds] =
            [VERBS, THINGS, KINDS].map(|text| text.split_whitespace().collect());
        Lists { verbs, things, kinds }
    }
}

/// Pseudo-random numbers that are the same everywhere.
struct SeededRng(u64);

impl SeededRng {
    /// The generator for one tool; neighbours must not start alike, so the number is spread over all bits.
    fn of(number: usize) -> SeededRng {
        SeededRng((number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn below(&mut self, bound: usize) -> usize {
        // xorshift64*: short, and good enough to choose words.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(mixed).expect("31 bits fit") % bound.max(1)
    }

    /// A word from a list, the first ones far more often than the last, as in real use.
    fn common<'a>(&mut self, words: &[&'a str]) -> &'a str {
        let far = self.below(words.len()) * self.below(words.len()) / words.len();
        words[far]
    }

    /// A word that few tools use; low numbers are more frequent.
    fn rare(&mut self, tokenizer: usize) -> String {
        let mut number = self.below(tokenizer) * self.below(tokenizer) / tokenizer.max(1);
        let mut word = String::new();
        for _ in 0..3 {
            word.push_str(SYLLABLES[number % SYLLABLES.len()]);
            number /= SYLLABLES.len();
        }
        word
    }
}

/// Writes `tools.jsonl` and `queries.jsonl` of a catalog of `count` tools.
pub(super) fn write(folder: &Path, count: usize) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mut tools = BufWriter::new(File::create(folder.join("tools.jsonl"))?);
    let mut queries = BufWriter::new(File::create(folder.join("queries.jsonl"))?);
    let tokenizer = (count / RARE_IN).clamp(200, SYLLABLES.len().pow(3));
    let every = (count / QUERIES).max(1);
    let lists = Lists::new();
    let mut server = Value::Null;
    for number in 0..count {
        // Each tool has its own generator, so that a larger catalog begins with the smaller one.
        let mut rng = SeededRng::of(number);
        if number % TOOLS_A_SERVER == 0 {
            server = server_of(&lists, &mut rng, number / TOOLS_A_SERVER, tokenizer);
        }
        let words = Words::choose(&lists, &mut rng, tokenizer);
        writeln!(tools, "{}", words.tool(&mut rng, number, &server, tokenizer))?;
        if number % every == 0 && number / every < QUERIES {
            writeln!(queries, "{}", words.query(&mut rng, number, &server))?;
        }
    }
    tools.flush()?;
    queries.flush()?;
    Ok(())
}

fn server_of(lists: &Lists, rng: &mut SeededRng, number: usize, tokenizer: usize) -> Value {
    let (rare, thing) = (rng.rare(tokenizer), rng.common(&lists.things));
    let other = rng.common(&lists.things);
    let about = format!(
        "A Model Context Protocol server for {rare}, giving access to every {thing} and {other} of an account, \
         so that an assistant can {} and {} them without leaving the conversation.",
        rng.common(&lists.verbs),
        rng.common(&lists.verbs)
    );
    json!({ "name": format!("{rare}-{thing}-{number}"), "word": rare, "about": about })
}

/// The words of one tool.
struct Words {
    verb: &'static str,
    thing: &'static str,
    other: &'static str,
    kind: &'static str,
    rare: String,
}

impl Words {
    fn choose(lists: &Lists, rng: &mut SeededRng, tokenizer: usize) -> Words {
        Words {
            verb: rng.common(&lists.verbs),
            thing: rng.common(&lists.things),
            other: lists.things[rng.below(lists.things.len())],
            kind: lists.kinds[rng.below(lists.kinds.len())],
            rare: rng.rare(tokenizer),
        }
    }

    fn tool(&self, rng: &mut SeededRng, number: usize, server: &Value, tokenizer: usize) -> Value {
        let Words { verb, thing, other, kind, rare } = self;
        let mut about = format!("{verb} the {kind} {thing} of a {other} with {rare}.");
        about[..1].make_ascii_uppercase();
        for _ in 0..rng.below(3) {
            let sentence = SENTENCES[rng.below(SENTENCES.len())];
            let sentence = sentence.replace("{thing}", thing).replace("{other}", other);
            let sentence = sentence.replace("{kind}", kind);
            about.push(' ');
            about.push_str(&sentence.replace("{rare}", &rng.rare(tokenizer)));
        }
        let mut properties = Map::new();
        for _ in 0..rng.below(6) {
            let (name, kind, words) = PARAMETERS[rng.below(PARAMETERS.len())];
            let name = if rng.below(3) == 0 { format!("{thing}_{name}") } else { name.to_owned() };
            properties
                .insert(name, json!({ "type": kind, "description": format!("{words} {thing}.") }));
        }
        // Tool names are unique within a server; the index among its tools tells them apart.
        let workspace = number % TOOLS_A_SERVER;
        json!({
            "id": number.to_string(),
            "server": server["name"],
            "name": format!("{verb}_{kind}_{thing}_{workspace}"),
            "description": about,
            "server_description": server["about"],
            "input_schema": { "type": "object", "properties": properties },
        })
    }

    fn query(&self, rng: &mut SeededRng, number: usize, server: &Value) -> Value {
        let Words { verb, thing, other, kind, rare } = self;
        let service = server["word"].as_str().unwrap_or_default();
        let query = match rng.below(3) {
            0 => format!(
                "I need to {verb} the {kind} {thing} of our {other} in {service}, using {rare} please"
            ),
            1 => format!("{verb} {kind} {thing} {rare}"),
            _ => format!(
                "Can you {verb} a {thing} for the {other} with {rare} and tell me which are {kind}?"
            ),
        };
        json!({ "id": format!("q{number}"), "query": query, "gold": [number.to_string()] })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn lines(folder: &Path, file: &str) -> Vec<Value> {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_catalog_has_its_size_its_questions_and_no_name_twice() {
        let workspace = tempfile::tempdir().unwrap();
        write(workspace.path(), 1_000).unwrap();
        let tools = lines(workspace.path(), "tools.jsonl");
        let names: HashSet<String> =
            tools.iter().map(|tool| format!("{}:{}", tool["server"], tool["name"])).collect();
        assert_eq!((tools.len(), names.len()), (1_000, 1_000));
        let ids: HashSet<&Value> = tools.iter().map(|tool| &tool["id"]).collect();
        let queries = lines(workspace.path(), "queries.jsonl");
        assert_eq!(queries.len(), QUERIES);
        assert!(queries.iter().all(|query| ids.contains(&query["gold"][0])));
        let about: usize =
            tools.iter().filter_map(|tool| Some(tool["description"].as_str()?.len())).sum();
        assert!((80..160).contains(&(about / tools.len())), "{}", about / tools.len());
    }

    #[test]
    fn a_catalog_is_the_same_every_time() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(one.path(), 100).unwrap();
        write(two.path(), 100).unwrap();
        for file in ["tools.jsonl", "queries.jsonl"] {
            assert_eq!(lines(one.path(), file), lines(two.path(), file));
        }
    }
}
