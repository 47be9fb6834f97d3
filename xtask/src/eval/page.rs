//! The page docs/search.md: words around tables of what was measured.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{ColdStart, EvalRun};

/// The set that is not in the mean: it asks the questions of another one again, among many more tools.
const NOT_IN_THE_MEAN: &str = "mcp20k";

/// The measures in percent, as `metamcp eval` names them.
const MEASURES: [&str; 5] = ["hit_at_1", "recall_at_5", "recall_at_10", "mrr", "ndcg_at_10"];

/// The whole page; `{sets}` and the like are where the tables go.
const TEMPLATE: &str = "\
# How tools are found

Made by `cargo xtask eval`; the words stand in `xtask/src/eval/page.rs`.

The model asks `mcp_discover` in its own words, and the right tool should come first.
The default needs no key, no network and no set-up: everything it uses is inside the binary.

## Which strategy

Choose with `--search NAME`, `METAMCP_SEARCH` or `search.strategy` in the configuration; all settings are in [reference/settings.md](reference/settings.md).

| strategy | what it does | choose it when |
|---|---|---|
| `hybrid` | words and meaning together, then a close look at the best; the meaning of words comes from a table inside the binary | always, unless you have a reason; it is the default |
| `transformer` | `hybrid` with two numbers more: how near a small transformer on this machine, all-MiniLM-L6-v2 taught by our own questions, finds each tool to each sentence of the query, and how far behind the nearest | people ask in their own words and you can spare 60 MB of memory and 15 to 25 milliseconds a search (33 for fifty words on one core); `metamcp model add` brings the model once |
| `bm25` | words only: names count most, then descriptions, servers and parameters; identifiers are split, word endings and slips of the finger forgiven | your tools are described in a language other than English, or every microsecond counts |
| `lexical` | points for each word of the query found in a name or a description | you want a rank you can work out on paper |
| `keyword` | the same points for the query as a whole, word for word | you search for names, or need the order of older gateways |
| `hybrid-voyage` | vectors of Voyage's API and `keyword`, over the best of `hybrid` and the nearest by vector | you have a key for it and may send queries and descriptions there |
| `embedding` | the same with any OpenAI-compatible address or Ollama, and with `hybrid` in place of `keyword` | you run a model of your own, or your tools are not in English |

The last two ask an API, so they are not in the tables below; when it cannot be reached, the search falls back at once and says so.
`transformer` reads every tool once, in the background and on a thread that steps aside, at 10 to 20 milliseconds a tool, and keeps what it made of it in `catalog.db`; a tool it has not read yet is ranked by what `hybrid` knows of it, and the answer says how many those are.
Until half of the tools are read, and without the model or with a damaged one, the search is answered by `hybrid` and says so.
What you call after a search lifts that tool a little the next time, on this machine only; `search.learn` turns it off and `metamcp forget` removes it.
The numbers below are without it.

## Measure on your own tools

Two files, one JSON object a line.

```
tools.jsonl     {\"id\": \"1\", \"server\": \"files\", \"name\": \"read_file\", \"description\": \"Read a file.\", \"input_schema\": {...}}
queries.jsonl   {\"query\": \"show me what is in the readme\", \"gold\": [\"1\"]}
```

```sh
metamcp eval --tools tools.jsonl --queries queries.jsonl
```

Thirty questions that your people really asked say more about your tools than all that follows.

## Measured

Public sets of tools and questions, as far as they are meant for development.
hit@1 is how often the first answer is right; recall counts how many of the right tools are among the first 5 or 10; MRR and nDCG reward standing higher up.
All in percent; p50 is the time of half of the searches or less, on one core of a small shared machine.

{results}
The mean is over all sets but mcp20k, which asks mcpzero's questions again among eight times as many tools.

| set | tools | questions | read and indexed in |
|---|---|---|---|
{sets}
## Fair numbers

The weights of `hybrid` that ship were trained on all of these sets, so its rows above flatter it; in the table below each set was left out of the training that it is scored on.
They are fairer, not blind: which eight numbers are looked at, where a request is cut into parts, how strong the pull is, the fields' weights and what goes into a tool's vector were chosen by looking at these very rows, over some 180 variants. Expect less on tools nobody has seen.
Compare them with each other and not with the table above: they come from a sample, and no server's share of the first hits is limited in them, as it is in every search.
The sample is at most 700 questions of a set, scattered over it.
mcpzero and mcp20k share questions and are left out together.
*Before the close look* is the order of words and meaning, half and half, without trained weights.

{left_out}
Where the model is at hand when this page is made, rows of `transformer` stand here too, fitted and left out in the same way with two numbers more to look at ([design/0009](design/0009-a-transformer-on-this-machine.md) has 72.1 hit@1 and 76.0 nDCG@10 for their mean); which text it reads of a tool, where a query is cut into sentences, the second number and how much of what it learnt is kept were chosen by looking at these sets, over some 65 variants, so they are no more blind than the others.

## At scale

Catalogs made up from word lists, 20 tools a server, worded about as real ones; 200 questions.
Memory is what the process holds beyond the pages of its own binary after all questions, the questions and what reading left behind included; resident counts those pages too.

{scale}
A start with {cold_tools} tools in the cache on disk has read them and answered a first search after {kept} ms: the middle of several starts, each a new process, on two cores.
The index lies in that cache too; where it is missing or not what it was, as after an update, it is made in the same start, and that one takes {made} ms.
";

/// The page.
pub(super) fn whole(
    sets: &[EvalRun],
    scale: &[EvalRun],
    cold: &ColdStart,
    left_out: &[(Option<&str>, String)],
) -> Result<String> {
    let mut about = String::new();
    for set in sets {
        let (tools, questions) = (set.number("tools"), set.number("questions"));
        let indexing = set.number("indexing_ms");
        writeln!(about, "| {} | {tools} | {questions} | {indexing} ms |", set.name)?;
    }
    let left_out = left_out_table(left_out).context("the trainer's table cannot be read")?;
    let page = TEMPLATE.replace("{results}", &results(sets)).replace("{sets}", &about);
    let page = page.replace("{left_out}", &left_out).replace("{scale}", &self::scale(scale));
    let page = page.replace("{cold_tools}", &cold.tools.to_string());
    let page = page.replace("{kept}", &format!("{:.0}", cold.kept));
    Ok(page.replace("{made}", &format!("{:.0}", cold.made)))
}

/// A row for each set and strategy, and the means.
pub(super) fn results(sets: &[EvalRun]) -> String {
    let mut table = String::from(
        "| set | strategy | hit@1 | recall@5 | recall@10 | MRR | nDCG@10 | p50 |\n|---|---|---|---|---|---|---|---|\n",
    );
    let mut means: Vec<(&str, Vec<Vec<f64>>)> = Vec::new();
    for set in sets {
        for row in set.rows() {
            let name = row["strategy"].as_str().unwrap_or_default();
            let numbers: Vec<f64> = MEASURES.iter().map(|measure| percent(row, measure)).collect();
            let p50 = format!("{:.2} ms", of(row, "p50_us") / 1000.0);
            table.push_str(&line(&set.name, name, &numbers, &p50));
            if set.name != NOT_IN_THE_MEAN {
                match means.iter_mut().find(|(strategy, _)| *strategy == name) {
                    Some((_, rows)) => rows.push(numbers),
                    None => means.push((name, vec![numbers])),
                }
            }
        }
    }
    for (strategy, rows) in means {
        let mean = |at: usize| rows.iter().map(|row| row[at]).sum::<f64>() / rows.len() as f64;
        let numbers: Vec<f64> = (0..MEASURES.len()).map(mean).collect();
        table.push_str(&line("**mean**", strategy, &numbers, ""));
    }
    table
}

/// A row for each catalog and strategy; times are compared with those of `bm25` on the same catalog.
pub(super) fn scale(runs: &[EvalRun]) -> String {
    let mut table = String::from(
        "| tools | strategy | read and indexed in | p50 | p99 | p50 / that of bm25 | memory | resident |\n|---|---|---|---|---|---|---|---|\n",
    );
    let p50 = |run: &EvalRun| run.rows().next().map_or(f64::NAN, |row| of(row, "p50_us"));
    for run in runs {
        let p99 = run.rows().next().map_or(f64::NAN, |row| of(row, "p99_us"));
        let plain = runs
            .iter()
            .find(|other| other.name == "bm25" && other.value["tools"] == run.value["tools"]);
        table.push_str(&format!(
            "| {} | {} | {:.2} s | {:.2} ms | {:.2} ms | {:.1} | {:.0} MB | {:.0} MB |\n",
            run.number("tools"),
            run.name,
            run.number("indexing_ms") / 1000.0,
            p50(run) / 1000.0,
            p99 / 1000.0,
            p50(run) / plain.map_or(f64::NAN, p50),
            run.number("private_kib") / 1024.0,
            run.number("resident_kib") / 1024.0,
        ));
    }
    table
}

/// The trainer's table: a name, five numbers before and five after, and perhaps one more.
fn left_out_table(all: &[(Option<&str>, String)]) -> Option<String> {
    let mut table = String::from(
        "| left out | | hit@1 | recall@5 | recall@10 | MRR | nDCG@10 |\n|---|---|---|---|---|---|---|\n",
    );
    let mut found = false;
    let lines = all.iter().flat_map(|(which, said)| said.lines().map(move |line| (which, line)));
    for (which, text) in lines {
        let mut words = text.split_whitespace();
        let Some(name) = words.next() else { continue };
        let Ok(numbers) = words.map(str::parse).collect::<Result<Vec<f64>, _>>() else { continue };
        let (Some(before), Some(after)) = (numbers.get(..5), numbers.get(5..10)) else { continue };
        let name = if name == "mean" { "**mean**" } else { name };
        let short =
            |what: &str, numbers: &[f64]| line(name, what, numbers, "").replace(" |  |\n", " |\n");
        match which {
            None => {
                table.push_str(&short("before the close look", before));
                table.push_str(&short("trained on the others", after));
            }
            Some(which) => table.push_str(&short(&format!("`{which}`, likewise"), after)),
        }
        found = true;
    }
    found.then_some(table)
}

fn line(set: &str, what: &str, numbers: &[f64], last: &str) -> String {
    let numbers: Vec<String> = numbers.iter().map(|number| format!("{number:.1}")).collect();
    format!("| {set} | {what} | {} | {last} |\n", numbers.join(" | "))
}

fn percent(row: &Value, name: &str) -> f64 {
    of(row, name) * 100.0
}

fn of(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const COLD: ColdStart = ColdStart { tools: 3_000, kept: 41.6, made: 60.4 };

    fn run(name: &str, hit: f64) -> EvalRun {
        let row = json!({
            "strategy": "bm25", "hit_at_1": hit, "recall_at_5": 0.5, "recall_at_10": 0.5, "mrr": 0.5, "ndcg_at_10": 0.5,
            "p50_us": 250, "p99_us": 900
        });
        let value = json!({
            "tools": 7, "questions": 3, "indexing_ms": 12, "resident_kib": 2048, "private_kib": 1024, "strategies": [row]
        });
        EvalRun { name: name.to_owned(), value }
    }

    const SAID: &str = "left out   first sorting   trained on the others\na  1 2 3 4 5  6 7 8 9 10\nmean  1 2 3 4 5  6 7 8 9 10 11\n  words  1.5\n";

    #[test]
    fn the_mean_leaves_out_the_set_that_repeats_questions() {
        let table = results(&[run("a", 0.2), run("b", 0.4), run(NOT_IN_THE_MEAN, 1.0)]);
        assert!(table.contains("| mcp20k | bm25 | 100.0 | 50.0 |"), "{table}");
        assert!(table.contains("| **mean** | bm25 | 30.0 | 50.0 |"), "{table}");
    }

    #[test]
    fn every_table_of_the_page_has_as_many_cells_in_each_line() {
        let said = [(None, SAID.to_owned()), (Some("transformer"), SAID.to_owned())];
        let page = whole(&[run("a", 0.2)], &[run("bm25", 0.2)], &COLD, &said).unwrap();
        assert!(page.contains("| a | `transformer`, likewise | 6.0 |"), "{page}");
        assert!(!page.contains("{results}") && !page.contains("NaN"), "{page}");
        assert!(page.contains("| a | trained on the others | 6.0 |"), "{page}");
        assert!(page.contains("| **mean** | before the close look | 1.0 |"), "{page}");
        let mut cells = 0;
        for line in page.lines() {
            let here = if line.starts_with('|') { line.matches('|').count() } else { 0 };
            assert!(cells == 0 || here == 0 || here == cells, "{line}");
            cells = here;
        }
    }

    #[test]
    fn a_trainer_that_says_nothing_is_an_error() {
        let said = [(None, "words\n".to_owned())];
        assert!(whole(&[run("a", 0.2)], &[], &COLD, &said).is_err());
    }
}
