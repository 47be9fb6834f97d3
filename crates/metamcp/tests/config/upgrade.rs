//! `metamcp upgrade` of an installation as the script leaves it, from a release on loopback.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// An installation in a folder of its own.
struct Installation {
    folder: TempDir,
}

impl Installation {
    fn new(by: &str) -> Installation {
        let folder = tempfile::tempdir().unwrap();
        let own = Installation { folder };
        for part in ["bin", "share/metamcp", "home"] {
            std::fs::create_dir_all(own.path(part)).unwrap();
        }
        let built = Path::new(env!("CARGO_BIN_EXE_metamcp"));
        if std::fs::hard_link(built, own.program()).is_err() {
            std::fs::copy(built, own.program()).unwrap();
        }
        std::fs::write(own.path("share/metamcp/installed-by"), format!("{by}\n")).unwrap();
        own
    }

    fn path(&self, part: &str) -> PathBuf {
        self.folder.path().join(part)
    }

    fn program(&self) -> PathBuf {
        self.path("bin/metamcp")
    }

    fn upgrade(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.program());
        command.arg("upgrade").args(arguments).env_clear().env("HOME", self.path("home"));
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.upgrade(&[arguments, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    /// What the installed program says it is.
    fn version(&self) -> String {
        let output = Command::new(self.program()).arg("version").env_clear().output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

/// Files by name, served until the test ends; a name that begins with `->` in its content is a redirect.
fn served(files: BTreeMap<String, Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let request = lines.next().unwrap().unwrap();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let name = request.split(' ').nth(1).unwrap().trim_start_matches('/').to_owned();
            let answer = match files.get(&name) {
                Some(body) if body.starts_with(b"->") => {
                    let to = String::from_utf8_lossy(&body[2..]).into_owned();
                    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                        .into_bytes()
                }
                Some(body) => {
                    let length = body.len();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
                    );
                    [head.as_bytes(), body].concat()
                }
                None => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    .to_vec(),
            };
            drop(stream.write_all(&answer));
        }
    });
    address
}

fn archive_name(version: &str) -> String {
    format!("metamcp-{version}-{}-{}.tar.gz", std::env::consts::OS, std::env::consts::ARCH)
}

/// The archive of a version whose program says `said`.
fn archive(version: &str, said: &str) -> Vec<u8> {
    let name = archive_name(version);
    let folder = name.trim_end_matches(".tar.gz");
    let program = format!("#!/bin/sh\necho \"metamcp {said}\"\n");
    let files = [
        ("bin/metamcp", program.as_str()),
        ("share/man/man1/metamcp.1", "page"),
        ("share/metamcp/all-minilm-l6-v2-int8.bin", "model"),
    ];
    let mut tar = Vec::new();
    for (path, text) in files {
        let mut head = [0_u8; 512];
        let path = format!("{folder}/{path}");
        head[..path.len()].copy_from_slice(path.as_bytes());
        head[124..135].copy_from_slice(format!("{:011o}", text.len()).as_bytes());
        head[156] = b'0';
        tar.extend(head);
        tar.extend(text.as_bytes());
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&tar).unwrap();
    packed.finish().unwrap()
}

fn list(file: &str, bytes: &[u8]) -> Vec<u8> {
    let sum: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{sum}  {file}\n").into_bytes()
}

/// A release of that version, with the changes that a test makes to its files.
fn release(version: &str, change: impl FnOnce(&mut BTreeMap<String, Vec<u8>>)) -> String {
    let (name, bytes) = (archive_name(version), archive(version, version));
    let sums = list(&name, &bytes);
    let mut files = BTreeMap::from([("SHA256SUMS".to_owned(), sums), (name, bytes)]);
    change(&mut files);
    served(files)
}

#[test]
fn a_newer_version_takes_the_place_and_undo_goes_back() {
    let own = Installation::new("script");
    let before = own.version();
    let base = release("99.0.0", |_| {});
    let told = own.json(&["--check", "--base-url", &base]);
    assert_eq!((&told["status"], &told["version"]), (&"available".into(), &"99.0.0".into()));
    assert_eq!(own.version(), before, "--check changes nothing");
    let output = own.upgrade(&["--base-url", &base]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("to 99.0.0"), "{output:?}");
    assert_eq!(own.version(), "metamcp 99.0.0");
    assert_eq!(std::fs::read(own.path("share/man/man1/metamcp.1")).unwrap(), b"page");
    let previous = own.path("share/metamcp/previous/metamcp");
    assert!(previous.is_file());
    let left: Vec<_> = std::fs::read_dir(own.path("bin")).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing is left beside the program: {left:?}");
    // The stand-in has no `--undo`; the previous program has, in the place it is started from.
    std::fs::remove_file(own.program()).unwrap();
    std::fs::rename(&previous, own.program()).unwrap();
    let base = release("99.0.1", |_| {});
    assert_eq!(own.json(&["--base-url", &base])["status"], "upgraded");
    let old = own.path("bin/old");
    std::fs::hard_link(own.path("share/metamcp/previous/metamcp"), &old).unwrap();
    let missing = Command::new(&old).args(["upgrade", "--undo"]).env_clear().output().unwrap();
    let words = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(words.contains("no version to go back to"), "{words}");
}

#[test]
fn what_is_not_the_release_is_refused_and_nothing_changes() {
    let own = Installation::new("script");
    let before = own.version();
    let name = archive_name("99.0.0");
    let other = archive("99.0.0", "98.0.0");
    type Change = Box<dyn FnOnce(&mut BTreeMap<String, Vec<u8>>)>;
    let cases: Vec<(&str, Change)> = vec![
        ("is not what SHA256SUMS says", {
            let name = name.clone();
            Box::new(move |files| drop(files.insert(name, b"something else".to_vec())))
        }),
        ("says that it is 98.0.0", {
            let name = name.clone();
            Box::new(move |files| {
                files.insert("SHA256SUMS".into(), list(&name, &other));
                files.insert(name, other);
            })
        }),
        ("cannot be used", {
            let name = name.clone();
            Box::new(move |files| {
                files.insert("SHA256SUMS".into(), list(&name, b"no archive"));
                files.insert(name, b"no archive".to_vec());
            })
        }),
        ("has no file for", Box::new(|files| drop(files.insert("SHA256SUMS".into(), Vec::new())))),
        ("status 404", Box::new(|files| drop(files.remove("SHA256SUMS")))),
        ("redirects to http://example.com/", {
            Box::new(|files| {
                files.insert("SHA256SUMS".into(), b"->http://example.com/sums".to_vec());
            })
        }),
    ];
    for (words, change) in cases {
        let output = own.upgrade(&["--base-url", &release("99.0.0", change)]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(words), "{words}: {output:?}");
        assert_eq!(own.version(), before, "{words}");
        let left = std::fs::read_dir(own.path("bin")).unwrap().count();
        assert_eq!(left, 1, "{words}: nothing is left beside the program");
    }
    let plain = own.upgrade(&["--base-url", "http://example.com/releases"]);
    assert_eq!(plain.status.code(), Some(2), "{plain:?}");
}

#[test]
fn an_older_version_is_installed_only_by_its_number() {
    let own = Installation::new("script");
    let base = release("0.0.1", |_| {});
    assert_eq!(own.json(&["--base-url", &base])["status"], "current");
    let wrong = own.upgrade(&["--base-url", &base, "--to", "0.0.2"]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("instead of 0.0.2"), "{wrong:?}");
    assert_eq!(own.json(&["--base-url", &base, "--to", "v0.0.1"])["status"], "upgraded");
    assert_eq!(own.version(), "metamcp 0.0.1");
}

#[test]
fn what_a_package_manager_installed_is_left_to_it() {
    let own = Installation::new("pip");
    let told = own.json(&[]);
    assert_eq!((&told["status"], &told["installedBy"]), (&"elsewhere".into(), &"pip".into()));
    assert_eq!(told["command"], "python -m pip install --upgrade metamcp");
    let output = Command::new(own.program()).args(["--version", "--json"]).output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["installedBy"], "pip");
}
