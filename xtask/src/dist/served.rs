//! What is in `dist/`, served on loopback as npm, PyPI and a page of releases would: package clients then do what they do
//! for everybody. One thread for each connection, no keep-alive.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha512};
use std::io::Read;

use super::lint;

/// A package of npm: its manifest and its file.
struct Package {
    manifest: Value,
    file: PathBuf,
    integrity: String,
}

/// A running server; it ends with the process.
pub(super) struct Served {
    pub(super) address: String,
}

struct Shelf {
    address: String,
    dist: PathBuf,
    npm: Vec<Package>,
    wheels: Vec<PathBuf>,
}

impl Served {
    pub(super) fn start(dist: &Path) -> Result<Served> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
        let address = format!("http://127.0.0.1:{}", listener.local_addr()?.port());
        let npm = lint::files(&dist.join("npm"), "tgz")?
            .into_iter()
            .map(Package::read)
            .collect::<Result<_>>()?;
        let wheels = lint::files(&dist.join("pypi"), "whl")?;
        let shelf =
            Arc::new(Shelf { address: address.clone(), dist: dist.to_owned(), npm, wheels });
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shelf = Arc::clone(&shelf);
                // A client that goes away is none of our concern.
                thread::spawn(move || drop(shelf.answer(stream)));
            }
        });
        Ok(Served { address })
    }

    pub(super) fn npm(&self) -> String {
        format!("{}/npm/", self.address)
    }

    pub(super) fn pypi(&self) -> String {
        format!("{}/simple/", self.address)
    }

    pub(super) fn release(&self) -> String {
        format!("{}/release", self.address)
    }
}

impl Package {
    fn read(file: PathBuf) -> Result<Package> {
        let bytes = fs::read(&file)?;
        let mut tar = Vec::new();
        GzDecoder::new(&*bytes).read_to_end(&mut tar)?;
        // The manifest follows its header; ours are plain tars.
        let at = tar
            .chunks(512)
            .position(|block| block.starts_with(b"package/package.json\0"))
            .context("a package without a manifest")?;
        let rest = &tar[(at + 1) * 512..];
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        let integrity = format!("sha512-{}", STANDARD.encode(Sha512::digest(&bytes)));
        Ok(Package { manifest: serde_json::from_slice(&rest[..end])?, file, integrity })
    }

    /// What a registry says of it.
    fn described(&self, address: &str) -> Value {
        let version = &self.manifest["version"];
        let mut manifest = self.manifest.clone();
        let file = self.file.file_name().unwrap_or_default().to_string_lossy();
        manifest["dist"] = json!({ "tarball": format!("{address}/npm-files/{file}"), "integrity": self.integrity });
        json!({
            "name": self.manifest["name"],
            "dist-tags": { "latest": version },
            "versions": { (version.as_str().unwrap_or_default()): manifest },
        })
    }
}

impl Shelf {
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let request = lines.next().transpose()?.unwrap_or_default();
        while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
        let path = request.split(' ').nth(1).unwrap_or_default();
        let (status, kind, body) = match self.find(path) {
            Some((kind, body)) => ("200 OK", kind, body),
            None => ("404 Not Found", "text/plain", Vec::new()),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        if !request.starts_with("HEAD ") {
            stream.write_all(&body)?;
        }
        stream.flush()
    }

    fn find(&self, path: &str) -> Option<(&'static str, Vec<u8>)> {
        let path =
            path.split('?').next()?.replace("%2f", "/").replace("%2F", "/").replace("%40", "@");
        let file = |folder: &str, name: &str| {
            let plain = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
            let bytes = plain.then(|| fs::read(self.dist.join(folder).join(name)).ok())??;
            Some(("application/octet-stream", bytes))
        };
        if let Some(name) = path.strip_prefix("/npm/") {
            let package = self.npm.iter().find(|package| package.manifest["name"] == name)?;
            let described = package.described(&self.address).to_string();
            return Some(("application/json", described.into_bytes()));
        }
        if let Some(name) = path.strip_prefix("/npm-files/") {
            return file("npm", name);
        }
        if let Some(name) = path.strip_prefix("/simple/") {
            let wanted = name.trim_end_matches('/').replace('-', "_");
            let mut page = "<!DOCTYPE html><html><body>\n".to_owned();
            for wheel in &self.wheels {
                let name = wheel.file_name()?.to_string_lossy();
                if name.split('-').next() == Some(&*wanted) {
                    page.push_str(&format!(
                        "<a href=\"{}/wheels/{name}\">{name}</a>\n",
                        self.address
                    ));
                }
            }
            return Some(("text/html", page.into_bytes()));
        }
        if let Some(name) = path.strip_prefix("/wheels/") {
            return file("pypi", name);
        }
        file("", path.strip_prefix("/release/")?)
    }
}
