use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metamcp_audit::{FileName, Finding, Line, Report, Verifier};
use metamcp_types::moment::Moment;
use serde_json::{Value, json};

use super::*;
use crate::observe::{Action, Identity, LoginChange, Origin, Payload, Verdict};

const SMALL: AuditSettings = AuditSettings {
    is_on: true,
    is_required: false,
    has_values: false,
    file_bytes: 4_000,
    files: 3,
};

fn settings(home: &Path, audit: AuditSettings) -> Settings {
    Settings { home: home.to_owned(), audit, ..Settings::default() }
}

fn lines(home: &Path) -> Vec<Value> {
    let mut lines = Vec::new();
    if let Some(reading) = Reading::of(home).unwrap() {
        reading
            .lines(Position::default(), |raw| {
                lines.extend(Line::read(raw.bytes).map(|line| line.0));
                true
            })
            .unwrap();
    }
    lines
}

fn verified(home: &Path) -> Report {
    let reading = Reading::of(home).unwrap().unwrap();
    let mut verifier = Verifier::new(None);
    let mut current = FileName(0);
    reading
        .lines(Position::default(), |raw| {
            if current != raw.file {
                verifier.file(raw.file);
                current = raw.file;
            }
            verifier.line(raw.bytes, raw.ended);
            true
        })
        .unwrap();
    verifier.finish(reading.note)
}

fn record(tool: &str) -> CallRecord {
    let names = (Arc::from("files"), Arc::from(tool));
    let identity = Arc::new(Identity::owner());
    let mut record =
        CallRecord::arriving(identity, Origin::McpCall, names, "tools/call", None, Moment::START);
    record.verdict = Verdict::Ok;
    record.ended = Moment::millis(12);
    record
}

fn call(audit: &Audit, tool: &str, arguments: &Bytes, result: &Bytes) {
    let payload =
        Payload { arguments: Some(arguments), body: Some(arguments), result: Some(result) };
    audit.on_event(&Event::Call(&record(tool), payload));
}

fn item(number: u64) -> OtherItem {
    OtherItem::new(Kind::Config, "changed", vec![("number", OwnedFact::Number(number))])
}

#[test]
fn a_call_leaves_its_digests_and_its_values_only_if_asked_for() {
    for has_values in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let own = AuditSettings { has_values, file_bytes: 1 << 20, ..SMALL };
        let audit =
            Audit::start(&settings(home.path(), own), |text| text.replace("hunter2", "[secret]"));
        let audit = audit.unwrap();
        let (arguments, result) = (
            Bytes::from_static(b"{\"path\":\"hunter2\"}"),
            Bytes::from_static(b"{\"content\":[]}"),
        );
        call(&audit, "read", &arguments, &result);
        audit.queue.flush(Duration::from_secs(20));
        let line = lines(home.path()).into_iter().find(|line| line["kind"] == "call").unwrap();
        assert_eq!(line["verdict"], "ok");
        assert_eq!(line["what"]["ms"], json!(12.0));
        assert_eq!(line["arguments"]["sha256"], metamcp_audit::digest(&arguments).to_string());
        assert_eq!(line["result"]["sha256"], metamcp_audit::digest(&result).to_string());
        assert!(!line.to_string().contains("hunter2"));
        let value = has_values.then_some("{\"path\":\"[secret]\"}");
        assert_eq!(line["arguments"]["value"].as_str(), value);
    }
}

#[test]
fn long_values_are_cut_and_secrets_at_the_cut_are_redacted_first() {
    let home = tempfile::tempdir().unwrap();
    let own = AuditSettings { has_values: true, file_bytes: 1 << 20, ..SMALL };
    let audit = Audit::start(&settings(home.path(), own), |text| text.replace("hunter2", "[S]"));
    let audit = audit.unwrap();
    let long = format!("{}hunter2{}", "x".repeat(16 * 1024 - 3), "y".repeat(100_000));
    call(&audit, "read", &Bytes::from_static(b"{}"), &Bytes::from(long));
    audit.queue.flush(Duration::from_secs(20));
    let line = lines(home.path()).into_iter().find(|line| line["kind"] == "call").unwrap();
    let value = line["result"]["value"].as_str().unwrap();
    assert_eq!((value.len(), &line["result"]["cut"]), (16 * 1024, &json!(true)));
    assert!(value.ends_with("x[S]") && !value.contains("hun"));
}

#[test]
fn files_are_bounded_and_what_is_left_is_whole() {
    let home = tempfile::tempdir().unwrap();
    let mut folder = AuditFolder::new(home.path(), &SMALL);
    for batch in 0..40 {
        folder.append(|put| (0..5).try_for_each(|one| item(batch * 5 + one).put(put))).unwrap();
    }
    let report = verified(home.path());
    assert!(report.is_good() && report.rotated, "{report:?}");
    assert_eq!(report.files, 3);
    let sizes = std::fs::read_dir(home.path().join("audit")).unwrap();
    let sizes: Vec<u64> = sizes.map(|file| file.unwrap().metadata().unwrap().len()).collect();
    assert!(sizes.iter().all(|size| *size < 5_000), "{sizes:?}");
    let last = lines(home.path()).pop().unwrap();
    assert_eq!(last["what"]["number"].as_u64().unwrap_or(199), 199);
}

#[test]
fn several_writers_make_one_chain() {
    let home = tempfile::tempdir().unwrap();
    let settings = AuditSettings { file_bytes: 20_000, files: 1000, ..SMALL };
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let home = home.path();
            scope.spawn(move || {
                let mut folder = AuditFolder::new(home, &settings);
                for batch in 0..50 {
                    folder.append(|put| item(writer * 1000 + batch).put(put)).unwrap();
                }
            });
        }
    });
    let report = verified(home.path());
    assert!(report.is_good(), "{report:?}");
    let written = lines(home.path());
    assert_eq!(written.iter().filter(|line| line["kind"] == "config").count(), 200);
}

#[test]
fn what_a_dead_writer_left_is_continued() {
    let home = tempfile::tempdir().unwrap();
    let append = |number| {
        AuditFolder::new(home.path(), &SMALL).append(|put| item(number).put(put)).unwrap();
    };
    append(1);
    let file = home.path().join("audit/000001.jsonl");
    let whole = std::fs::read(&file).unwrap();
    // In the middle of a line, behind what the note knows.
    std::fs::write(&file, [&whole[..], b"{\"v\":1,\"seq\":3,\"ti"].concat()).unwrap();
    append(2);
    let report = verified(home.path());
    assert!(report.is_good() && report.cuts.len() == 1, "{report:?}");
    // Lines that were there are gone: what comes next does not hide it.
    std::fs::write(&file, &whole).unwrap();
    append(3);
    let is_missing = |found: &Finding| matches!(found, Finding::Missing { .. });
    assert!(verified(home.path()).findings.iter().any(is_missing));
    // The newest file is gone.
    std::fs::remove_file(&file).unwrap();
    append(4);
    assert!(!verified(home.path()).is_good());
    assert!(home.path().join("audit/000002.jsonl").exists());
}

#[cfg(unix)]
#[test]
fn files_are_private_and_no_link_is_followed() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let append = || AuditFolder::new(home.path(), &SMALL).append(|put| item(1).put(put));
    append().unwrap();
    let mode = |path: &str| {
        let path = home.path().join(path);
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(
        (mode("audit"), mode("audit/head"), mode("audit/000001.jsonl")),
        (0o700, 0o600, 0o600)
    );
    let file = home.path().join("audit/000001.jsonl");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    assert!(append().unwrap_err().1.told().contains("open to others"));
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(
        elsewhere.path().join("target"),
        home.path().join("audit/000002.jsonl"),
    )
    .unwrap();
    assert!(append().unwrap_err().1.told().contains("symbolic link"));
    std::fs::remove_dir_all(home.path().join("audit")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), home.path().join("audit")).unwrap();
    assert!(append().unwrap_err().1.told().contains("symbolic link"));
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[cfg(unix)]
#[test]
fn what_cannot_be_written_is_written_later_and_who_waits_is_told() {
    let home = tempfile::tempdir().unwrap();
    let trap = home.path().join("audit");
    std::os::unix::fs::symlink("/", &trap).unwrap();
    let own = AuditSettings { is_required: true, file_bytes: 1 << 20, ..SMALL };
    let audit = Audit::start(&settings(home.path(), own), str::to_owned).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let told = || {
        let within = Duration::from_secs(20);
        runtime.block_on(async { tokio::time::timeout(within, audit.outcomes()).await }).unwrap()
    };
    call(&audit, "ended", &Bytes::from_static(b"{}"), &Bytes::from_static(b"{}"));
    audit.begin(&record("wanted"), None, 7);
    let outcomes = told();
    assert!(
        matches!(&outcomes[..], [(7, Err(why))] if why.contains("symbolic link")),
        "{outcomes:?}"
    );
    assert!(audit.health().failing.is_some());
    std::fs::remove_file(&trap).unwrap();
    audit.begin(&record("again"), None, 8);
    assert_eq!(told(), [(8, Ok(()))]);
    let written = lines(home.path());
    let words: Vec<String> = written
        .iter()
        .map(|line| format!("{} {}", line["kind"], line["what"]["tool"]).replace('"', ""))
        .collect();
    // What had happened is not forgotten; what was refused was never begun.
    assert_eq!(words, ["file null", "gateway null", "call ended", "begun again"]);
    assert!(verified(home.path()).is_good());
    assert_eq!(audit.health().failing, None);
}

#[test]
fn what_a_command_does_is_written_at_once() {
    let home = tempfile::tempdir().unwrap();
    let (observer, audit) = CommandAudit::observer(&settings(home.path(), SMALL));
    let (server, package, plan) = ("memory", "server-memory 1.0", "00ff");
    let names = ["memory".to_owned()];
    let actions = [
        Action::new(Subject::Approval { server, package, plan }, "approved"),
        Action::new(Subject::Installation { server, package, plan }, "installed"),
        Action::new(Subject::Trust { file: "/p/.mcp.json", sha256: "aa" }, "approved"),
        Action::new(
            Subject::Config {
                file: Some("/h/mcp.json"),
                added: &names,
                changed: &[],
                removed: &[],
                settings: false,
            },
            "changed",
        ),
    ];
    for action in actions {
        observer.publish(&Event::Action(action));
    }
    let (server, change) = ("https://a.example", LoginChange::Granted);
    observer.publish(&Event::Login { server, change });
    assert!(audit.unwrap().error().is_none());
    let told: Vec<(Value, Value)> = lines(home.path())
        .into_iter()
        .skip(1)
        .map(|mut line| (line["kind"].take(), line["verdict"].take()))
        .collect();
    assert_eq!(
        json!(told),
        json!([
            ["approval", "approved"],
            ["installation", "installed"],
            ["trust", "approved"],
            ["config", "changed"],
            ["login", "granted"],
        ])
    );
    let line = &lines(home.path())[4];
    assert_eq!(line["what"], json!({ "file": "/h/mcp.json", "added": ["memory"] }));
    assert!(verified(home.path()).is_good());
}

#[test]
fn knocking_does_not_push_older_lines_out() {
    let home = tempfile::tempdir().unwrap();
    let own = AuditSettings { file_bytes: 1 << 20, ..SMALL };
    let audit = Audit::start(&settings(home.path(), own), str::to_owned).unwrap();
    for _ in 0..1000 {
        let subject = Subject::Refusal { at: "http", reason: "no token" };
        audit.on_event(&Event::Action(Action::new(subject, "refused")));
    }
    audit.queue.flush(Duration::from_secs(20));
    let refusals: Vec<Value> =
        lines(home.path()).into_iter().filter(|line| line["kind"] == "refusal").collect();
    assert_eq!(refusals.len(), 61);
    assert_eq!(refusals[60]["what"], json!({ "more": 940 }));
}
