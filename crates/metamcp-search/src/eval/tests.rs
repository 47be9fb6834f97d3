//! The measures computed by hand, and errors for invalid data.

use super::*;
use crate::search::Strategy;

fn measured(found: &[Option<usize>], expected: usize) -> [f64; 5] {
    Measures::of(found.iter().copied(), expected).numbers()
}

#[test]
fn the_numbers_are_those_of_the_books() {
    assert_eq!(measured(&[Some(0)], 1), [1.0; 5]);
    assert_eq!(measured(&[None], 1), [0.0; 5]);
    let second = 1.0 / 3f64.log2();
    assert_eq!(measured(&[None, Some(0)], 1), [0.0, 1.0, 1.0, 0.5, second]);
    let late = [None, None, None, None, None, Some(1)];
    let gain = (1.0 / 7f64.log2()) / (1.0 + second);
    assert_eq!(measured(&late, 2), [0.0, 0.0, 0.5, 1.0 / 6.0, gain]);
    assert_eq!(measured(&[Some(0), Some(0)], 2)[2], 0.5, "one tool twice is one tool");
    assert_eq!(measured(&[None; 11], 1), [0.0; 5]);
    let mut beyond = vec![None; 10];
    beyond.push(Some(0));
    assert_eq!(measured(&beyond, 1), [0.0; 5], "the eleventh place counts for nothing");
}

#[test]
fn a_question_is_measured_on_a_corpus() {
    let corpus = Corpus::read(concat!(
        r#"{"id": "1", "server": "files", "name": "read_file", "description": "Read a file."}"#,
        "\n\n",
        r#"{"id": "2", "server": "mail", "name": "send", "description": "Send mail.", "input_schema": {"type": "object", "properties": {"to": {}}}}"#,
        "\n",
        r#"{"id": "3", "name": "alone"}"#,
    ))
    .unwrap();
    assert_eq!(corpus.index.tool_count(), 3);
    let text = r#"{"query": "read a file", "gold": ["2"], "alt": {"2": ["1"]}, "type": "task"}"#;
    let questions = corpus.questions(text).unwrap();
    let hits = corpus.index.search(&questions[0].query, Strategy::Bm25, DEPTH, None);
    assert_eq!(questions[0].measure(&hits).hit_at_1, 1.0, "an exact duplicate counts");
    assert_eq!(questions[0].id, "1");
}

#[test]
fn bad_data_is_told_with_its_line() {
    let told = |text: &str| Corpus::read(text).unwrap_err().to_string();
    assert_eq!(told("\n{\"id\": \"1\"}"), "line 2: missing field `name` at line 1 column 11");
    let twice = "{\"id\": \"a\", \"name\": \"x\"}\n{\"id\": \"a\", \"name\": \"y\"}";
    assert_eq!(told(twice), "line 2: the id \"a\" is given twice");
    let corpus = Corpus::read("{\"id\": \"a\", \"name\": \"x\"}").unwrap();
    let unknown = corpus.questions("{\"id\": \"q\", \"query\": \"x\", \"gold\": [\"b\"]}");
    assert_eq!(
        unknown.unwrap_err().to_string(),
        "line 1: the query \"q\" expects the tool \"b\", which is not among the tools"
    );
}
