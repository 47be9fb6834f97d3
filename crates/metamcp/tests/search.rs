//! Search as a person uses it: explanations of a hit, embeddings from an API and without it, and evaluation.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;

use metamcp_testkit::{Workspace, echo_server};
use serde_json::{Value, json};

fn workspace() -> Workspace {
    let mut workspace = Workspace::new().expect("it runs");
    workspace.server("box", echo_server());
    workspace.setting("timeouts", json!({ "discoverBudgetMs": 60_000 }));
    workspace
}

fn run(workspace: &Workspace, arguments: &[&str]) -> String {
    let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).expect("it runs");
    let output = command.args(arguments).env_remove("VOYAGE_API_KEY").output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("it runs")
}

fn read(workspace: &Workspace, arguments: &[&str]) -> Value {
    serde_json::from_str(&run(workspace, arguments)).expect("it runs")
}

#[test]
fn a_hit_can_be_explained() {
    let workspace = workspace();
    let why = read(&workspace, &["search", "echo a text", "--why", "--json"]);
    let plain = read(&workspace, &["search", "echo a text", "--json"]);
    let keys =
        |told: &Value| told.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&why), keys(&plain), "the same shape outside");
    assert_eq!(why["tools"][0]["id"], "box:echo", "{why:#}");
    let first = &why["tools"][0]["why"];
    let confidence = first["confidence"].as_f64().expect("it runs");
    assert!((0.0..=1.0).contains(&confidence));
    let words: Vec<&str> = first["words"]
        .as_array()
        .expect("it runs")
        .iter()
        .filter_map(|word| word["word"].as_str())
        .collect();
    assert!(words.contains(&"echo"), "{words:?}");
    assert!(first["close_look"]["words"]["adds"].is_f64());
    let text = run(&workspace, &["search", "echo a text", "--why"]);
    assert!(text.contains("words in common") && text.contains("name pieces"), "{text}");
}

#[test]
fn without_its_api_a_strategy_falls_back_and_says_so() {
    let workspace = workspace();
    // A port that was free a moment ago and that nobody listens on.
    let port =
        TcpListener::bind("127.0.0.1:0").expect("it runs").local_addr().expect("it runs").port();
    let url = format!("http://127.0.0.1:{port}/v1/embeddings");
    let dead = ["--search", "embedding", "--embedding-url", &url, "--embedding-model", "m"];
    let found = read(&workspace, &[&dead[..], &["search", "echo", "--json"]].concat());
    assert_eq!(found["tools"][0]["id"], "box:echo");
    let note = found["note"].as_str().expect("it runs");
    assert!(note.starts_with("ranked by hybrid instead: "), "{note}");
    let text = run(&workspace, &["--search", "hybrid-voyage", "search", "echo"]);
    assert!(text.contains("note: ranked by keyword: VOYAGE_API_KEY is not set"), "{text}");
    let text = run(&workspace, &["--search", "embedding", "search", "echo"]);
    assert!(text.contains("note: ranked by hybrid: search.embeddingUrl is not set"), "{text}");
}

#[test]
fn without_a_model_auto_ranks_by_hybrid_and_only_json_says_so() {
    let workspace = workspace();
    let found = read(&workspace, &["search", "echo", "--json"]);
    assert_eq!(found["strategy"], "hybrid", "{found:#}");
    assert!(found["note"].is_null(), "nobody asked for the transformer: {found:#}");
    let text = run(&workspace, &["search", "echo"]);
    assert!(!text.contains("hybrid") && !text.contains("note:"), "{text}");
    let asked = read(&workspace, &["--search", "transformer", "search", "echo", "--json"]);
    assert_eq!(asked["strategy"], "hybrid", "{asked:#}");
    assert!(asked["note"].as_str().is_some_and(|note| note.contains("model add")), "{asked:#}");
    assert_eq!(
        read(&workspace, &["--search", "bm25", "search", "echo", "--json"])["strategy"],
        "bm25"
    );
}

#[test]
fn vectors_of_an_api_decide_and_are_remembered() {
    let workspace = workspace();
    let listener = TcpListener::bind("127.0.0.1:0").expect("it runs");
    let url = format!("http://{}/v1/embeddings", listener.local_addr().expect("it runs"));
    let asked = std::thread::spawn(move || serve(&listener));
    let arguments =
        ["--search", "embedding", "--embedding-url", &url, "--embedding-model", "tiny", "search"];
    // The API ranks `blob` nearest to everything, so it comes first although the keywords differ.
    let found = read(&workspace, &[&arguments[..], &["bytes or text", "--json"]].concat());
    assert_eq!(found["tools"][0]["tool"], "blob", "{found:#}");
    assert_eq!(found["note"], Value::Null);
    let again = read(&workspace, &[&arguments[..], &["another bytes or text", "--json"]].concat());
    assert_eq!(again["tools"][0]["tool"], "blob");
    read(&workspace, &[&arguments[..], &["stop text", "--json"]].concat());
    let texts = asked.join().expect("it runs");
    let mut documents: Vec<_> = texts.iter().filter(|text| text.contains(": ")).collect();
    let count = documents.len();
    documents.sort();
    documents.dedup();
    assert!(count >= 2, "{texts:?}");
    assert_eq!(documents.len(), count, "each tool was embedded once, in three runs: {texts:?}");
    assert!(workspace.home().join(".metamcp/catalog.db").exists());
}

/// Keywords that no tool has: the embeddings match anyway, with the strategy for any API as with a stand-in for
/// Voyage's format.
#[test]
fn a_query_whose_words_match_nothing_is_answered_by_the_nearest() {
    let workspace = workspace();
    let listener = TcpListener::bind("127.0.0.1:0").expect("it runs");
    let url = format!("http://{}/v1/embeddings", listener.local_addr().expect("it runs"));
    let asked = std::thread::spawn(move || serve(&listener));
    let arguments =
        ["--search", "embedding", "--embedding-url", &url, "--embedding-model", "tiny", "search"];
    let plain = read(&workspace, &["search", "xqzv wvut", "--json"]);
    assert_eq!(plain["tools"], json!([]), "{plain:#}");
    let found = read(&workspace, &[&arguments[..], &["xqzv wvut", "--json"]].concat());
    let names: Vec<&str> = found["tools"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|tool| tool["tool"].as_str())
        .collect();
    assert_eq!(names, ["blob"], "{found:#}");
    assert_eq!(found["note"], Value::Null);
    read(&workspace, &[&arguments[..], &["stop text", "--json"]].concat());
    asked.join().expect("it runs");
}

/// Responds until a text says stop; returns all texts.
fn serve(listener: &TcpListener) -> Vec<String> {
    let mut seen = Vec::new();
    while !seen.iter().any(|text: &String| text.starts_with("stop")) {
        let (stream, _) = listener.accept().expect("it runs");
        let mut reader = BufReader::new(stream);
        while let Some(body) = request(&mut reader) {
            let texts: Vec<String> =
                serde_json::from_value(body["input"].clone()).expect("it runs");
            let vector = |text: &String| {
                let near = text.starts_with("blob") || !text.contains(": ");
                if near { json!([1.0, 0.0]) } else { json!([0.0, 1.0]) }
            };
            let data: Vec<Value> =
                texts.iter().map(|text| json!({"embedding": vector(text)})).collect();
            let answer = json!({ "data": data }).to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
            reader.get_mut().write_all((head + &answer).as_bytes()).expect("it runs");
            seen.extend(texts);
        }
    }
    seen
}

fn request(reader: &mut impl BufRead) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim().to_ascii_lowercase();
        if let Some(number) = line.strip_prefix("content-length:") {
            length = number.trim().parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

#[test]
fn a_ranking_is_measured_on_anybodys_tools() {
    let workspace = workspace();
    let folder = workspace.home();
    let tools = concat!(
        r#"{"id": "a", "server": "mail", "name": "send_mail", "description": "Send a message by mail."}"#,
        "\n",
        r#"{"id": "b", "server": "files", "name": "read_file", "description": "Read a file."}"#,
        "\n"
    );
    let queries = r#"{"query": "send a message", "gold": ["a"]}"#;
    std::fs::write(folder.join("tools.jsonl"), tools).expect("it runs");
    std::fs::write(folder.join("queries.jsonl"), queries).expect("it runs");
    let path = |name: &str| folder.join(name).display().to_string();
    let (tools, queries) = (path("tools.jsonl"), path("queries.jsonl"));
    let measured = read(&workspace, &["eval", "--tools", &tools, "--queries", &queries, "--json"]);
    assert_eq!((&measured["tools"], &measured["questions"]), (&json!(2), &json!(1)));
    for row in measured["strategies"].as_array().expect("it runs") {
        let name = row["strategy"].as_str().expect("it runs");
        assert_eq!(row["ndcg_at_10"], 1.0, "{name}");
    }
    let text = run(
        &workspace,
        &["eval", "--tools", &tools, "--queries", &queries, "--strategy", "hybrid"],
    );
    assert!(
        text.contains("hit@1") && text.contains("hybrid") && !text.contains("keyword"),
        "{text}"
    );
    let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).expect("it runs");
    let output = command
        .args(["eval", "--tools", &queries, "--queries", &queries])
        .output()
        .expect("it runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("line 1: missing field `id`"), "{told}");
}
