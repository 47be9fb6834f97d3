//! The whole module against a real listener and real files.

mod api;

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use metamcp_types::secret::Secret;

use super::*;
use api::{Api, Reply, honest, honest_body, vector};

/// Short timeouts, for tests with a server that hangs.
fn brief(purpose: Purpose) -> Bounds {
    Bounds { time: Duration::from_millis(300), ..client::bounds(purpose) }
}

/// Long timeouts, so that a busy machine does not make a good server look dead.
fn patient(purpose: Purpose) -> Bounds {
    Bounds { time: Duration::from_mins(1), ..client::bounds(purpose) }
}

fn vectors_at(url: &str, home: &TempDir) -> Vectors {
    let endpoint = Endpoint::at(url, "m", Some(Secret::new("EMBED_KEY", "canary-key"))).unwrap();
    let vectors = Vectors::new(endpoint, home.path(), Clock::start());
    Vectors { bounds: patient, ..vectors }
}

fn document(tool: &str, text: &str) -> Document {
    Document {
        server: "s".to_owned(),
        tool: tool.to_owned(),
        digest: Sha256::digest(text.as_bytes()).into(),
        text: text.to_owned(),
    }
}

fn documents(count: usize) -> Vec<Document> {
    (0..count).map(|n| document(&format!("tool{n}"), &format!("text {n}"))).collect()
}

fn expected(text: &str) -> Arc<[f32]> {
    answer::unit(vector(text).to_vec()).unwrap()
}

fn assert_right(wanted: &[Document], found: &[Arc<[f32]>]) {
    assert_eq!(wanted.len(), found.len());
    for (document, vector) in wanted.iter().zip(found) {
        assert_eq!(*vector, expected(&document.text), "{}", document.tool);
    }
}

#[tokio::test]
async fn documents_are_requested_once_then_cached_in_memory_and_on_disk() {
    let (api, home) = (Api::start(honest).await, TempDir::new().unwrap());
    let wanted = documents(150);
    let vectors = vectors_at(&api.url("/v1"), &home);
    assert_eq!(vectors.missing(&wanted), 150);
    assert_right(&wanted, &vectors.documents(&wanted).await.unwrap());
    let sizes: Vec<usize> = api.seen().iter().map(|seen| seen.texts().len()).collect();
    assert_eq!(sizes, [64, 64, 22]);
    assert_eq!(vectors.missing(&wanted), 0);
    assert_right(&wanted, &vectors.documents(&wanted).await.unwrap());
    let other = vectors_at(&api.url("/v1"), &home);
    assert_right(&wanted, &other.documents(&wanted).await.unwrap());
    assert_eq!((api.seen().len(), other.missing(&wanted)), (3, 0));
    // Only a changed text is requested again.
    let mut changed = wanted.clone();
    changed[7] = document("tool7", "another text");
    assert_right(&changed, &other.documents(&changed).await.unwrap());
    assert_eq!(api.seen()[3].texts(), ["another text"]);
    assert_eq!(other.store_note(), None);
    // A model of the same name at another API shares nothing.
    let stranger = Api::start(honest).await;
    let other = vectors_at(&stranger.url("/v1"), &home);
    assert_right(&wanted[..1], &other.documents(&wanted[..1]).await.unwrap());
    assert_eq!(stranger.seen().len(), 1);
}

#[tokio::test]
async fn the_request_matches_the_api() {
    let (api, home) = (Api::start(honest).await, TempDir::new().unwrap());
    let vectors = vectors_at(&api.url(""), &home);
    assert_eq!(vectors.query("  find files ").await.unwrap(), expected("find files"));
    assert_eq!(vectors.query("find files").await.unwrap(), expected("find files"));
    let seen = api.seen();
    assert_eq!(seen.len(), 1, "the second time it is remembered");
    assert!(seen[0].head.starts_with("POST /v1/embeddings HTTP/1.1\r\n"), "{}", seen[0].head);
    assert!(seen[0].head.contains("authorization: Bearer canary-key"), "{}", seen[0].head);
    assert_eq!(seen[0].body, serde_json::json!({"model": "m", "input": ["find files"]}));
    assert_eq!(vectors.query(" \n").await.unwrap_err().failure, Failure::EmptyQuery);
    assert_eq!(vectors.refusal(), None);
}

#[tokio::test]
async fn ollama_is_supported_and_gets_no_key_of_others() {
    let ollama = |seen: &api::Seen| {
        let all: Vec<[f32; 4]> = seen.texts().into_iter().map(vector).collect();
        Reply::Whole(200, "", serde_json::json!({"model": "m", "embeddings": all}).to_string())
    };
    let (api, home) = (Api::start(ollama).await, TempDir::new().unwrap());
    let endpoint = Endpoint::at(&api.url("/api/embeddings"), "m", None).unwrap();
    let vectors = Vectors::new(endpoint, home.path(), Clock::start());
    let wanted = documents(3);
    assert_right(&wanted, &vectors.documents(&wanted).await.unwrap());
    let head = &api.seen()[0].head;
    assert!(head.starts_with("POST /api/embed HTTP/1.1\r\n"), "{head}");
    assert!(!head.to_lowercase().contains("authorization"), "{head}");
}

/// Each kind of bad response, and the resulting error.
fn bad_replies() -> Vec<(Reply, Failure)> {
    let whole = |body: &str| Reply::Whole(200, "", body.to_owned());
    let says = |status| Reply::Whole(status, "", "the key canary-key is not known".to_owned());
    let model = || "m".to_owned();
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"data\":";
    vec![
        (Reply::Endless, Failure::TooLarge { cap: 512 * 1024 }),
        (Reply::Hang, Failure::TimedOut { limit: Duration::from_millis(300) }),
        (Reply::Bytes(Vec::new()), Failure::Closed),
        (Reply::Bytes(cut.to_vec()), Failure::Closed),
        (Reply::Bytes(b"SSH-2.0-x\r\n".to_vec()), Failure::Closed),
        (whole("<html>"), Failure::Malformed),
        (whole(r#"{"data":[{"index":0,"embedding":[NaN]}]}"#), Failure::Malformed),
        (whole(r#"{"data":[{"index":0,"embedding":[1e39]}]}"#), Failure::NotAVector),
        (whole(r#"{"data":[]}"#), Failure::WrongCount { asked: 1, answered: 0 }),
        (says(401), Failure::Unauthorised { status: 401, key: Some("EMBED_KEY".to_owned()) }),
        (says(404), Failure::NotFound { model: model() }),
        (says(400), Failure::Refused { status: 400, model: model() }),
        (says(500), Failure::Status { status: 500 }),
        (says(204), Failure::Status { status: 204 }),
    ]
}

#[tokio::test]
async fn a_bad_response_is_reported_and_the_api_is_given_a_backoff() {
    for (reply, failure) in bad_replies() {
        let hangs = matches!(reply, Reply::Hang);
        let reply = Mutex::new(Some(reply));
        let answer = move |_: &api::Seen| reply.lock().take().expect("asked only once");
        let (api, home) = (Api::start(answer).await, TempDir::new().unwrap());
        let mut vectors = vectors_at(&api.url("/v1"), &home);
        if hangs {
            vectors.bounds = brief;
        }
        let error = vectors.query("find").await.unwrap_err();
        assert_eq!(error.failure, failure);
        assert_eq!(error.host, api.address.to_string());
        assert_eq!(error.retry_in, pause::FIRST_BACKOFF);
        let again = vectors.query("other").await.unwrap_err();
        let documents = vectors.documents(&documents(1)).await.unwrap_err();
        assert_eq!((&again.failure, &documents.failure), (&failure, &failure));
        assert!(again.retry_in <= pause::FIRST_BACKOFF && !again.retry_in.is_zero());
        assert_eq!(api.seen().len(), 1, "{failure:?}");
        let printed = format!("{error} {error:?} {vectors:?}");
        assert!(!printed.contains("canary"), "{printed}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_carries_no_key() {
    let (elsewhere, home) = (Api::start(honest).await, TempDir::new().unwrap());
    let header: &'static str = format!("Location: {}\r\n", elsewhere.url("/v1/embeddings")).leak();
    for status in [301, 302, 303, 307, 308] {
        let api = Api::start(move |_| Reply::Whole(status, header, String::new())).await;
        let vectors = vectors_at(&api.url("/v1"), &home);
        let error = vectors.query("find").await.unwrap_err();
        assert_eq!(error.failure, Failure::Redirected { status });
        assert!(elsewhere.seen().is_empty());
    }
}

#[tokio::test]
async fn retry_after_is_honoured() {
    let reply = |_: &api::Seen| Reply::Whole(429, "Retry-After: 120\r\n", String::new());
    let (api, home) = (Api::start(reply).await, TempDir::new().unwrap());
    let vectors = vectors_at(&api.url("/v1"), &home);
    let error = vectors.query("find").await.unwrap_err();
    assert_eq!((error.failure.clone(), error.retry_in.as_secs()), (Failure::TooMany, 120));
    assert_eq!(
        error.to_string(),
        format!(
            "no embeddings from {}: too many requests (status 429); next attempt in 120.0 s",
            api.address
        )
    );
}

#[tokio::test]
async fn an_unreachable_api_fails_at_once() {
    let home = TempDir::new().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = vectors_at(&format!("http://{address}"), &home).query("x").await.unwrap_err();
    assert_eq!(error.failure, Failure::Unreachable { reason: "connection refused" });
    // TLS to a server that does not speak it.
    let reply = |_: &api::Seen| Reply::Bytes(b"HTTP/1.1 400 Bad\r\n\r\n".to_vec());
    let api = Api::start(reply).await;
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = plain.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = plain.accept().await {
            use tokio::io::AsyncWriteExt;
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.ok();
        }
    });
    let error = vectors_at(&format!("https://{address}"), &home).query("x").await.unwrap_err();
    assert!(matches!(error.failure, Failure::Insecure { .. }), "{error}");
    assert!(api.seen().is_empty());
}

#[tokio::test]
async fn vectors_received_before_a_failure_are_cached() {
    let (api, home) = (Api::start(honest).await, TempDir::new().unwrap());
    api.answer_with(|seen| {
        let first = seen.texts().contains(&"text 0");
        if first { honest(seen) } else { Reply::Whole(503, "", String::new()) }
    });
    let wanted = documents(100);
    let vectors = vectors_at(&api.url("/v1"), &home);
    let error = vectors.documents(&wanted).await.unwrap_err();
    assert_eq!(error.failure, Failure::Status { status: 503 });
    assert_eq!(vectors.missing(&wanted), 36);
    api.answer_with(honest);
    let later = vectors_at(&api.url("/v1"), &home);
    assert_right(&wanted, &later.documents(&wanted).await.unwrap());
    assert_eq!(api.seen().last().unwrap().texts().len(), 36);
}

#[tokio::test]
async fn one_refused_text_does_not_cost_the_others() {
    let (api, home) = (Api::start(honest).await, TempDir::new().unwrap());
    api.answer_with(|seen| {
        let bad = seen.texts().iter().any(|text| text.contains("poison") || text.len() > 5000);
        if bad { Reply::Whole(400, "", String::new()) } else { honest(seen) }
    });
    let mut wanted = documents(40);
    wanted[11] = document("eleven", "poison");
    wanted[30] = document("thirty", &"long ".repeat(1200));
    wanted[31] = document("empty", " ");
    let vectors = vectors_at(&api.url("/v1"), &home);
    let found = vectors.documents(&wanted).await.unwrap();
    assert_right(&wanted[..11], &found[..11]);
    assert_right(&wanted[32..], &found[32..]);
    assert_eq!(found[11], expected("eleven"), "by its name alone");
    assert_eq!(found[31], expected("empty"));
    assert_eq!(found[30].len(), 4);
    assert_eq!(vectors.refusal(), None);
    // If nothing at all is accepted, it gives up soon.
    let refusing = Api::start(|_| Reply::Whole(400, "", String::new())).await;
    let vectors = vectors_at(&refusing.url("/v1"), &home);
    let error = vectors.documents(&documents(64)).await.unwrap_err();
    assert!(matches!(error.failure, Failure::Refused { status: 400, .. }), "{error}");
    assert_eq!((refusing.seen().len(), error.retry_in), (9, pause::FIRST_BACKOFF));
}

#[tokio::test]
async fn batches_are_bounded_in_characters_and_shrink_when_too_slow() {
    let (api, home) = (Api::start(honest).await, TempDir::new().unwrap());
    let long: Vec<Document> = (0..30)
        .map(|n| document(&format!("t{n}"), &format!("{n} {}", "é".repeat(20_000))))
        .collect();
    let vectors = vectors_at(&api.url("/v1"), &home);
    vectors.documents(&long).await.unwrap();
    let chars =
        |seen: &api::Seen| seen.texts().iter().map(|text| text.chars().count()).sum::<usize>();
    assert!(api.seen().iter().all(|seen| chars(seen) <= batch::MAX_BATCH_CHARS));
    assert_eq!(api.seen().iter().map(|seen| seen.texts().len()).sum::<usize>(), 30);
    let slow = Api::start(|_| Reply::Hang).await;
    let mut vectors = vectors_at(&slow.url("/v1"), &home);
    vectors.bounds = brief;
    let error = vectors.documents(&documents(64)).await.unwrap_err();
    assert!(matches!(error.failure, Failure::TimedOut { .. }));
    assert_eq!(vectors.batch.load(Ordering::Relaxed), 32);
}

#[tokio::test]
async fn a_search_does_not_wait_for_documents_and_concurrency_is_limited() {
    let slow = |seen: &api::Seen| Reply::Late(Duration::from_millis(20), honest_body(seen));
    let (api, home) = (Api::start(slow).await, TempDir::new().unwrap());
    let vectors = Arc::new(vectors_at(&api.url("/v1"), &home));
    let mut tasks = Vec::new();
    for n in 0..24 {
        let vectors = vectors.clone();
        tasks.push(tokio::spawn(async move {
            if n % 2 == 0 {
                let wanted: Vec<Document> = documents(40).into_iter().skip(n).collect();
                assert_right(&wanted, &vectors.documents(&wanted).await.unwrap());
            } else {
                let text = format!("query {n}");
                assert_eq!(vectors.query(&text).await.unwrap(), expected(&text));
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(api.most_at_once(), 2);
    // While documents hang, a search is answered.
    let api =
        Api::start(|seen| if seen.texts() == ["find"] { honest(seen) } else { Reply::Hang }).await;
    let vectors = Arc::new(vectors_at(&api.url("/v1"), &home));
    let other = vectors.clone();
    let hanging = tokio::spawn(async move { other.documents(&documents(3)).await });
    let asked = async {
        while api.seen().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), asked).await.expect("the documents are asked for");
    assert_eq!(vectors.query("find").await.unwrap(), expected("find"));
    // A cancelled request is not a failure.
    hanging.abort();
    assert!(hanging.await.unwrap_err().is_cancelled());
    assert_eq!(vectors.refusal(), None);
    assert_eq!(vectors.query("find").await.unwrap(), expected("find"));
}

#[tokio::test]
async fn vectors_of_a_changed_model_are_fetched_again_but_inconsistent_ones_are_refused() {
    let (api, home) = (Api::start(honest).await, TempDir::new().unwrap());
    let wanted = documents(5);
    let url = api.url("/v1");
    vectors_at(&url, &home).documents(&wanted).await.unwrap();
    let longer = |seen: &api::Seen| {
        let data: Vec<_> = seen
            .texts()
            .iter()
            .map(|_| serde_json::json!({"embedding": [3, 4, 0, 0, 0, 0]}))
            .collect();
        Reply::Whole(200, "", serde_json::json!({ "data": data }).to_string())
    };
    api.answer_with(longer);
    let vectors = vectors_at(&url, &home);
    let mut more = wanted.clone();
    more.push(document("new", "new"));
    let found = vectors.documents(&more).await.unwrap();
    assert!(found.iter().all(|vector| **vector == [0.6, 0.8, 0.0, 0.0, 0.0, 0.0]));
    assert_eq!(vectors.query("x").await.unwrap().len(), 6);
    api.answer_with(honest);
    let error = vectors.query("y").await.unwrap_err();
    assert_eq!(error.failure, Failure::WrongDimensions { expected: 6, found: 4 });
    // The new ones are on disk now.
    let later = vectors_at(&url, &home);
    let before = api.seen().len();
    assert_eq!(later.documents(&more).await.unwrap()[0].len(), 6);
    assert_eq!(api.seen().len(), before);
}

#[tokio::test]
async fn vectors_work_without_a_usable_home() {
    let (api, home) = (Api::start(honest).await, TempDir::new().unwrap());
    let in_the_way = home.path().join("file");
    std::fs::write(&in_the_way, "x").unwrap();
    let endpoint = Endpoint::at(&api.url("/v1"), "m", None).unwrap();
    let vectors = Vectors::new(endpoint, &in_the_way, Clock::start());
    let wanted = documents(3);
    assert_right(&wanted, &vectors.documents(&wanted).await.unwrap());
    assert_right(&wanted, &vectors.documents(&wanted).await.unwrap());
    assert_eq!(api.seen().len(), 1);
    let note = vectors.store_note().unwrap();
    assert!(note.contains("memory only") && note.contains("is not a directory"), "{note}");
}

#[tokio::test]
async fn no_key_is_written_to_the_home() {
    let (api, home) = (Api::start(honest).await, TempDir::new().unwrap());
    let vectors = vectors_at(&api.url("/v1?token=canary-query"), &home);
    vectors.documents(&documents(3)).await.unwrap();
    let files: Vec<_> =
        std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap()).collect();
    assert!(files.len() >= 2);
    for file in files {
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(!bytes.windows(6).any(|six| six == b"canary"), "{:?}", file.path());
    }
}
