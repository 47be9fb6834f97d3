//! Python wheels: the program as a script of the package, one wheel for each system; the model as a package of its own, which
//! the program's depends on. There is no Python in them: what `pip` puts on the path is the program itself.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::contents::{Contents, MODEL_VERSION};
use super::npm::Made;
use super::pack::{self, Entry};
use super::targets::Target;

pub(super) fn program(
    contents: &Contents,
    target: &Target,
    program: &[u8],
    sbom: &[u8],
) -> Result<Made> {
    let wheel = Wheel {
        name: "metamcp",
        file_name: "metamcp",
        version: &contents.version,
        about: "One MCP server in front of all your MCP servers.",
        readme: &contents.readme,
        needs: Some(format!("metamcp-model>={MODEL_VERSION},<2")),
        tags: target.wheel,
    };
    let scripts = Entry::program(target.program(), program).below("metamcp-VERSION.data/scripts");
    let marker = Contents::marker("pip").below("metamcp-VERSION.data/data");
    let sbom = Entry::file("metamcp-VERSION.dist-info/sboms/metamcp.cdx.json", sbom);
    wheel.packed(contents, vec![scripts, marker, sbom])
}

pub(super) fn model(contents: &Contents) -> Result<Made> {
    let wheel = Wheel {
        name: "metamcp-model",
        file_name: "metamcp_model",
        version: MODEL_VERSION,
        about: "The local search model of metamcp, all-MiniLM-L6-v2 with eight bits per weight.",
        readme: &contents.model_readme,
        needs: None,
        tags: &["any"],
    };
    let model = contents.model_entry().below("metamcp_model-VERSION.data/data");
    wheel.packed(contents, vec![model])
}

struct Wheel<'a> {
    name: &'a str,
    /// With underscores.
    file_name: &'a str,
    version: &'a str,
    about: &'a str,
    readme: &'a str,
    needs: Option<String>,
    tags: &'a [&'a str],
}

impl Wheel<'_> {
    fn packed(&self, contents: &Contents, mut entries: Vec<Entry>) -> Result<Made> {
        let base = format!("{}-{}", self.file_name, self.version);
        let info = format!("{base}.dist-info");
        for entry in &mut entries {
            entry.path = entry.path.replace("VERSION", self.version);
        }
        entries.push(Entry::file(format!("{info}/METADATA"), self.metadata(contents)));
        entries.push(Entry::file(format!("{info}/WHEEL"), self.tags()));
        entries.push(Entry::file(format!("{info}/licenses/LICENSE"), &*contents.license));
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let mut record = String::new();
        for entry in &entries {
            let sum = URL_SAFE_NO_PAD.encode(Sha256::digest(&entry.bytes));
            record.push_str(&format!("{},sha256={sum},{}\n", entry.path, entry.bytes.len()));
        }
        record.push_str(&format!("{info}/RECORD,,\n"));
        entries.push(Entry::file(format!("{info}/RECORD"), record));
        let file = format!("{base}-py3-none-{}.whl", self.tags.join("."));
        Ok((file, pack::zip(&entries, contents.epoch)?))
    }

    fn tags(&self) -> String {
        let is_pure = self.tags == ["any"];
        let mut text = format!(
            "Wheel-Version: 1.0\nGenerator: metamcp xtask dist\nRoot-Is-Purelib: {is_pure}\n"
        );
        for tag in self.tags {
            text.push_str(&format!("Tag: py3-none-{tag}\n"));
        }
        text
    }

    fn metadata(&self, contents: &Contents) -> String {
        let repository = &contents.repository;
        let needs = self.needs.iter().map(|needs| format!("Requires-Dist: {needs}\n"));
        format!(
            "Metadata-Version: 2.4\nName: {}\nVersion: {}\nSummary: {}\nLicense-Expression: Apache-2.0\n\
             License-File: LICENSE\nProject-URL: Homepage, {repository}\n\
             Project-URL: Changelog, {repository}/blob/main/CHANGELOG.md\n\
             Project-URL: Issues, {repository}/issues\nKeywords: mcp,gateway,model-context-protocol\n\
             Requires-Python: >=3.8\n{}Description-Content-Type: text/markdown\n\n{}",
            self.name,
            self.version,
            self.about,
            needs.collect::<String>(),
            self.readme,
        )
    }
}
