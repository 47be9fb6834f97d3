//! Tasks in which much data must not pass through the model.

use anyhow::{Result, bail, ensure};
use serde_json::json;

use super::Task;
use super::single::contains;
use crate::tokens::conversation::{Model, Turn, failed, start_of};

const KIND: &str = "data-heavy";
const READ: &str = "filesystem:read_text_file";
const READ_QUERIES: [&str; 2] = ["read a text file", "show the contents of a file"];

/// Lines of the long log, some 40,000 characters.
const LINES: usize = 600;
/// Files of the task with many.
const FILES: usize = 300;
/// Files of sales, and lines in each.
const MONTHS: usize = 12;
const SALES: usize = 200;
/// Files whose sizes are wanted, of which one is not there.
const SIZES: usize = 40;
const MISSING: usize = 17;

pub(super) const AN_ERROR_IN_A_LONG_LOG: Task = Task {
    name: "an error in a long log",
    kind: KIND,
    prepare: |place, _| {
        let line = |number: usize| {
            let what = if number == 371 {
                "ERROR disk full on node-7".to_owned()
            } else {
                format!("INFO request {number} handled in {} ms", number % 90)
            };
            format!(
                "2026-01-02T03:{:02}:{:02}Z worker-{} {what}",
                number / 60,
                number % 60,
                number % 8
            )
        };
        place.write("app.log", &(0..LINES).map(line).collect::<Vec<_>>().join("\n"))
    },
    talk: |model, place| {
        let args = json!({ "path": place.file("app.log") });
        let answer = model.use_tool(READ, &READ_QUERIES, &args)?;
        contains(&model.line_with(&answer, "ERROR")?, "node-7")
    },
};

/// More calls than some gateways allow a script, which is learnt only by trying.
pub(super) const ERRORS_IN_MANY_FILES: Task = Task {
    name: "errors in many files",
    kind: KIND,
    prepare: |place, _| {
        (0..FILES).try_for_each(|number| {
            let level = if number % 7 == 0 { "ERROR" } else { "INFO" };
            place.write(
                &format!("logs/{number:03}.log"),
                &format!("start\n{level} of job {number}\nend\n"),
            )
        })
    },
    talk: |model, place| {
        model.find(READ, &READ_QUERIES)?;
        let folder = place.file("logs");
        let script = |from: usize, to: usize, text: &str| {
            format!(
                "const numbers = Array.from({{ length: {} }}, (_, i) => String(i + {from}).padStart(3, '0'));\n\
                 const texts = await parallel(numbers, n => filesystem.readTextFile({{ path: `{folder}/${{n}}.log` }}), 8);\n\
                 return texts.filter(t => {text}.includes('ERROR')).length;",
                to - from
            )
        };
        let expected = FILES.div_ceil(7);
        let answer = with_text(model, |text| script(0, FILES, text))?;
        if !failed(&answer) {
            return counted(&answer, expected);
        }
        ensure!(is_limit(&answer), "the script failed: {}", start_of(&answer));
        let mut found = 0;
        for (from, to) in [(0, FILES / 2), (FILES / 2, FILES)] {
            let answer = with_text(model, |text| script(from, to, text))?;
            found += number(&answer)?;
        }
        ensure!(found == expected, "{found} instead of {expected}");
        Ok(())
    },
};

pub(super) const SALES_BY_REGION: Task = Task {
    name: "sales by region",
    kind: KIND,
    prepare: |place, _| {
        (1..=MONTHS).try_for_each(|month| {
            let mut csv = String::from("date,region,amount\n");
            for sale in 0..SALES {
                let region = ["north", "south", "east", "west"][(sale + month) % 4];
                csv.push_str(&format!(
                    "2026-{month:02}-{:02},{region},{}\n",
                    sale % 28 + 1,
                    sale * month % 97
                ));
            }
            place.write(&format!("sales/{month:02}.csv"), &csv)
        })
    },
    talk: |model, place| {
        let queries = ["list the files of a folder", "show a directory listing"];
        let args = json!({ "path": place.file("sales") });
        let list = model.use_tool("filesystem:list_directory", &queries, &args)?;
        contains(&list, "12.csv")?;
        model.find(READ, &READ_QUERIES)?;
        let folder = place.file("sales");
        let answer = with_text(model, |text| {
            format!(
                "const totals: Record<string, number> = {{}};\n\
                 for (let month = 1; month <= {MONTHS}; month++) {{\n\
                 \x20 const t = await filesystem.readTextFile({{ path: `{folder}/${{String(month).padStart(2, '0')}}.csv` }});\n\
                 \x20 for (const line of {text}.trim().split('\\n').slice(1)) {{\n\
                 \x20   const [, region, amount] = line.split(',');\n\
                 \x20   totals[region] = (totals[region] ?? 0) + Number(amount);\n\
                 \x20 }}\n\
                 }}\n\
                 return totals;"
            )
        })?;
        let mut north = 0;
        for month in 1..=MONTHS {
            north += (0..SALES)
                .filter(|sale| (sale + month) % 4 == 0)
                .map(|sale| sale * month % 97)
                .sum::<usize>();
        }
        contains(&answer, &north.to_string())
    },
};

/// `parallel` ends with the first failure; what was read until then should not be lost.
pub(super) const ONE_FILE_IS_MISSING: Task = Task {
    name: "one file is missing",
    kind: KIND,
    prepare: |place, _| {
        (0..SIZES).filter(|number| *number != MISSING).try_for_each(|number| {
            place.write(&format!("parts/{number:02}.dat"), &"x".repeat(100 + number))
        })
    },
    talk: |model, place| {
        let tool = "filesystem:get_file_info";
        model.find(tool, &["size of a file", "file metadata"])?;
        let folder = place.file("parts");
        let numbers = format!(
            "const numbers = Array.from({{ length: {SIZES} }}, (_, i) => String(i).padStart(2, '0'));\n"
        );
        let ask = format!("n => filesystem.getFileInfo({{ path: `{folder}/${{n}}.dat` }})");
        let plain =
            format!("{numbers}const all = await parallel(numbers, {ask}, 8);\nreturn all.length;");
        let settled = format!(
            "{numbers}const all = await parallel.settled(numbers, {ask}, 8);\n\
             return {{ there: all.filter(one => one.status === 'fulfilled').length, missing: numbers.filter((_, i) => all[i].status === 'rejected') }};"
        );
        // Caught by hand where nobody said that there is a better way.
        let caught = format!(
            "{numbers}const missing: string[] = [];\n\
             const all = await parallel(numbers, async n => {{ try {{ return await ({ask})(n); }} catch {{ missing.push(n); }} }}, 8);\n\
             return {{ there: all.length - missing.length, missing }};"
        );
        let answer = if model.was_told("settled") {
            model.execute(&settled)?
        } else {
            let answer = model.execute(&plain)?;
            ensure!(failed(&answer), "a missing file went unnoticed: {}", start_of(&answer));
            let script = if answer.contains("settled") { &settled } else { &caught };
            model.execute(script)?
        };
        contains(&answer, "39")?;
        contains(&answer, "17")
    },
};

/// Runs a script over texts of files. Nothing says in `mcp_call` that code gets an object: without a return type in
/// the signature, the text is taken for a string first, as the answer of `mcp_call` is.
fn with_text(model: &mut Model<'_>, script: impl Fn(&str) -> String) -> Result<String> {
    let is_known = model.knows_it_returns(READ, "content") || has_learnt(model);
    let answer = model.execute(&script(if is_known { "t.content" } else { "t" }))?;
    if is_known || !(failed(&answer) && answer.contains("TypeError")) {
        return Ok(answer);
    }
    if !["content", "is an object"].iter().any(|words| answer.contains(words)) {
        // The error does not tell what it was, so the model looks.
        model.execute(
            "return (await tools.types('filesystem')).split('\\n').filter(line => line.includes('readTextFile')).join('\\n');",
        )?;
    }
    model.execute(&script("t.content"))
}

/// Whether an earlier script already had it right.
fn has_learnt(model: &Model<'_>) -> bool {
    let code =
        |turn: &Turn| turn.arguments["code"].as_str().is_some_and(|it| it.contains("t.content"));
    model.turns.iter().any(code)
}

fn is_limit(answer: &str) -> bool {
    let answer = answer.to_lowercase();
    answer.contains("limit") || answer.contains("at most") || answer.contains("too many")
}

fn counted(answer: &str, expected: usize) -> Result<()> {
    let found = number(answer)?;
    ensure!(found == expected, "{found} instead of {expected}");
    Ok(())
}

/// The number that an answer begins with.
fn number(answer: &str) -> Result<usize> {
    let digits: String = answer.trim_start().chars().take_while(char::is_ascii_digit).collect();
    match digits.parse() {
        Ok(number) => Ok(number),
        Err(_) => bail!("no number: {}", start_of(answer)),
    }
}
