//! Lines as a table, for programs that want one.
//! Owns: the columns, quoting.      Never: lets a cell be taken for a formula.
//! In: a line.  Out: a row of comma-separated values.
//! Tests: below.

use serde_json::Value;

use crate::line::Line;

/// The columns.
pub const HEADER: &str = "seq,time,kind,principal,pid,session,client,server,tool,verdict,ms,arguments_bytes,arguments_sha256,result_bytes,result_sha256,what,hash";

/// The row of a line, without a line break.
pub fn row(line: &Line) -> String {
    let Line(all) = line;
    let (who, what) = (&all["who"], &all["what"]);
    let cells = [
        &all["seq"],
        &all["time"],
        &all["kind"],
        &who["principal"],
        &who["pid"],
        &who["session"],
        &who["client"],
        &what["server"],
        &what["tool"],
        &all["verdict"],
        &what["ms"],
        &all["arguments"]["bytes"],
        &all["arguments"]["sha256"],
        &all["result"]["bytes"],
        &all["result"]["sha256"],
        what,
        &all["hash"],
    ];
    let cells: Vec<String> = cells.into_iter().map(cell).collect();
    cells.join(",")
}

fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) => return number.to_string(),
        other => other.to_string(),
    };
    // A table program takes such a cell for a formula, and its text comes from servers and clients.
    let guard = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_has_every_column_and_no_formula() {
        let line = Line(json!({
            "v": 1, "seq": 7, "time": "t", "kind": "call", "who": { "principal": "owner", "pid": 3 },
            "what": { "server": "=cmd()", "tool": "a\"b,c", "ms": 12 }, "verdict": "ok", "hash": "00",
        }));
        let row = row(&line);
        assert_eq!(
            row,
            r#"7,"t","call","owner",3,,,"'=cmd()","a""b,c","ok",12,,,,,"{""server"":""=cmd()"",""tool"":""a\""b,c"",""ms"":12}","00""#
        );
        assert_eq!(HEADER.split(',').count(), 17);
    }
}
