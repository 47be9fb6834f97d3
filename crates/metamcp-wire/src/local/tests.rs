use proptest::prelude::*;

use super::*;

fn hello(kind: Kind) -> Hello {
    Hello {
        version: "0.1.0".into(),
        kind,
        pid: 123,
        folder: "/people/anna/a \"b\"".into(),
        flags: vec!["--surface".into(), "full".into()],
        env: vec![("PATH".into(), "/bin".into()), ("EMPTY".into(), String::new())],
    }
}

#[test]
fn a_hello_reads_as_it_was_written() {
    let command = CommandLine {
        args: vec!["call".into(), "git:status".into()],
        stdin: Some(b"\0\xff".to_vec()),
        files: vec![("a \"b\".md".into(), b"\xfe".to_vec()), ("/dev/fd/63".into(), Vec::new())],
        terminal: Terminal { stdout: true, stderr: false, width: 80 },
    };
    let kinds = [
        Kind::Session,
        Kind::Listen,
        Kind::Command(command),
        Kind::Command(CommandLine::default()),
        Kind::Status,
        Kind::Stop,
        Kind::Drain,
        Kind::Listeners,
        Kind::Admin,
    ];
    for kind in kinds {
        let said = hello(kind);
        let line = said.to_line();
        assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
        assert_eq!(Hello::parse(line.trim_ascii_end()), Ok(said));
    }
    let plain = Hello::plain("0.1.0", Kind::Stop, 1);
    assert_eq!(Hello::parse(&plain.to_line()), Ok(plain));
}

#[test]
fn the_hello_of_the_contract_is_read_and_more_members_are_ignored() {
    let line = br#"{"metamcp":1,"version":"0.1.0","kind":"session","pid":123,"folder":"/abs","flags":["--surface","full"],"env":{"NAME":"value"},"later":{"x":[1]}}"#;
    let read = Hello::parse(line).expect("a hello");
    assert_eq!((read.kind, read.pid, read.folder.as_str()), (Kind::Session, 123, "/abs"));
    assert_eq!(read.env, [("NAME".to_owned(), "value".to_owned())]);
}

#[test]
fn what_is_no_hello_is_refused_with_the_reason() {
    let cases: [(&str, &str); 14] = [
        ("", "not a line of JSON"),
        ("GET / HTTP/1.1", "not a line of JSON"),
        ("[]", "not a line of JSON"),
        (r#"{"jsonrpc":"2.0"}"#, "`metamcp` is missing"),
        (
            r#"{"metamcp":2,"version":"9"}"#,
            "version 2 of the local protocol, and this program version 1",
        ),
        (r#"{"metamcp":"1"}"#, "`metamcp`"),
        (r#"{"metamcp":1,"metamcp":2}"#, "not a line of JSON"),
        (r#"{"metamcp":1,"version":"1","kind":"dance","pid":1}"#, "no kind \"dance\""),
        (r#"{"metamcp":1,"version":"1","kind":"stop","pid":-1}"#, "`pid`"),
        (r#"{"metamcp":1,"version":"1","kind":"stop","pid":1,"flags":"x"}"#, "`flags`"),
        (r#"{"metamcp":1,"version":"1","kind":"stop","pid":1,"flags":[1]}"#, "`flags`"),
        (r#"{"metamcp":1,"version":"1","kind":"stop","pid":1,"env":{"A=B":"x"}}"#, "`env`"),
        (r#"{"metamcp":1,"version":"1","kind":"stop","pid":1,"env":{"A":"\u0000"}}"#, "`env`"),
        (r#"{"metamcp":1,"version":"1","kind":"command","pid":1,"stdin":"?"}"#, "`stdin`"),
    ];
    for (line, reason) in cases {
        let error = Hello::parse(line.as_bytes()).expect_err(line);
        assert!(error.to_string().contains(reason), "{line}: {error}");
        let refusal = Hello::refused(&error, "0.1.0");
        let is_protocol = matches!(error, LocalError::Protocol { .. });
        assert_eq!(refusal.code == Code::Protocol, is_protocol, "{line}");
        assert_eq!(
            Reply::parse(&Reply::Refused(refusal.clone()).to_line()),
            Ok(Reply::Refused(refusal))
        );
    }
    let many = format!(
        r#"{{"metamcp":1,"version":"1","kind":"stop","pid":1,"flags":[{}""]}}"#,
        r#""","#.repeat(MAX_WORDS)
    );
    assert_eq!(Hello::parse(many.as_bytes()), Err(LocalError::TooLong("flags")));
}

#[test]
fn a_reply_reads_as_it_was_written() {
    let bare = Accepted { version: "0.1.0".into(), pid: 77, ..Accepted::default() };
    let full = Accepted {
        remarks: vec!["one".into(), "two\nlines".into()],
        address: Some("http://127.0.0.1:1/mcp".into()),
        status: Some(r#"{"sessions":[]}"#.into()),
        follow: 2,
        ..bare.clone()
    };
    let refusal = Refusal {
        hint: Some("mend it".into()),
        exit: Some(3),
        remarks: vec!["x".into()],
        ..Refusal::new("0.1.0", Code::Config, "no such file")
    };
    for reply in [Reply::Accepted(bare), Reply::Accepted(full), Reply::Refused(refusal)] {
        assert_eq!(Reply::parse(&reply.to_line()), Ok(reply));
    }
}

#[test]
fn a_refusal_is_read_whatever_its_number_and_code() {
    let newer = br#"{"metamcp":7,"version":"9.0.0","ok":false,"code":"protocol","error":"both"}"#;
    let Ok(Reply::Refused(refusal)) = Reply::parse(newer) else { panic!("a refusal") };
    assert_eq!((refusal.code, refusal.version.as_str()), (Code::Protocol, "9.0.0"));
    let unknown = br#"{"metamcp":1,"ok":false,"code":"moon","error":"full"}"#;
    let Ok(Reply::Refused(refusal)) = Reply::parse(unknown) else { panic!("a refusal") };
    assert_eq!((refusal.code, refusal.error.as_str()), (Code::Internal, "full"));
    let newer = br#"{"metamcp":7,"version":"9.0.0","ok":true,"pid":1}"#;
    assert_eq!(Reply::parse(newer), Err(LocalError::Protocol { theirs: 7 }));
    assert_eq!(Reply::parse(b"{}"), Err(LocalError::Stranger));
    assert_eq!(Reply::parse(br#"{"metamcp":1}"#), Err(LocalError::Member("ok")));
}

#[test]
fn frames_of_a_command_read_as_they_were_written() {
    for frame in [Frame::Out("a\n".into()), Frame::Err("\u{1b}".into()), Frame::Exit(4)] {
        assert_eq!(Frame::parse(&frame.to_line()), Ok(frame));
    }
    for line in ["{}", r#"{"out":"x","err":"y"}"#, r#"{"exit":300}"#, r#"{"out":1}"#] {
        assert!(Frame::parse(line.as_bytes()).is_err(), "{line}");
    }
}

#[test]
fn only_a_newer_version_replaces() {
    let newer =
        [("0.2.0", "0.1.9"), ("1.0.0", "0.99.0"), ("0.10.0", "0.9.0"), ("1.0.0", "1.0.0-rc.1")];
    for (ours, theirs) in newer {
        assert!(is_newer(ours, theirs) && !is_newer(theirs, ours), "{ours} {theirs}");
    }
    for (ours, theirs) in
        [("0.1.0", "0.1.0"), ("x", "0.1.0"), ("0.1.0", ""), ("1.0.0+a", "1.0.0+b")]
    {
        assert!(!is_newer(ours, theirs), "{ours} {theirs}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(line in "\\PC{0,200}", bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = (Hello::parse(line.as_bytes()).is_ok(), Reply::parse(&bytes).is_ok(), Frame::parse(&bytes).is_ok());
        is_newer(&line, "0.1.0");
    }

    #[test]
    fn any_environment_arrives(env in proptest::collection::btree_map("[A-Z_]{1,8}", "[^\0]{0,40}", 0..8), folder in "\\PC{0,40}") {
        let said = Hello { env: env.into_iter().collect(), folder, ..hello(Kind::Session) };
        prop_assert_eq!(Hello::parse(&said.to_line()), Ok(said));
    }
}
