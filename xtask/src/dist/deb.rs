//! Debian packages: the program with manual pages, completions and a unit of the user's systemd; the model apart, which the
//! program recommends, so that apt brings it unless told otherwise.

use std::fs;

use anyhow::{Context, Result};

use super::contents::{Contents, MODEL_VERSION};
use super::npm::Made;
use super::pack::{self, Entry};
use super::targets::Target;

/// Who answers for the packages.
const MAINTAINER: &str = "metamcp contributors <metamcp@users.noreply.github.com>";

pub(super) fn program(
    contents: &Contents,
    target: &Target,
    processor: &str,
    program: &[u8],
) -> Result<Made> {
    let unit = template(contents, "metamcp.service")?;
    let mut files = vec![
        Entry::program("usr/bin/metamcp", program),
        Entry::file("usr/share/bash-completion/completions/metamcp", &*contents.bash),
        Entry::file("usr/share/zsh/vendor-completions/_metamcp", &*contents.zsh),
        Entry::file("usr/share/fish/vendor_completions.d/metamcp.fish", &*contents.fish),
        Entry::file("usr/lib/systemd/user/metamcp.service", unit),
        Contents::marker("deb").below("usr"),
    ];
    if !target.is_makeshift {
        let overrides = "metamcp: statically-linked-binary [usr/bin/metamcp]\n";
        files.push(Entry::file("usr/share/lintian/overrides/metamcp", overrides));
    }
    for (name, page) in &contents.manual {
        files.push(Entry::file(format!("usr/share/man/man1/{name}.gz"), pack::gzip(page)?));
    }
    let depends = if target.is_makeshift { "Depends: libc6 (>= 2.36), libgcc-s1\n" } else { "" };
    let control = format!(
        "{depends}Recommends: metamcp-model (>= {MODEL_VERSION})\n\
         Description: MCP gateway, one MCP server in front of all your MCP servers\n \
         A client of the Model Context Protocol sees four small tools instead of\n \
         hundreds of schemas. metamcp finds the right tool, starts its server when it\n \
         is first called, and leaves no process behind.\n",
    );
    let package = Package { name: "metamcp", version: &contents.version, processor, control };
    package.packed(contents, files)
}

pub(super) fn model(contents: &Contents) -> Result<Made> {
    let control = "Enhances: metamcp\n\
         Description: local search model of metamcp\n \
         With it metamcp finds tools that are asked for in other words than their\n \
         own: all-MiniLM-L6-v2 with eight bits per weight, fine-tuned on queries for\n \
         tools. It runs on this machine.\n"
        .to_owned();
    let package =
        Package { name: "metamcp-model", version: MODEL_VERSION, processor: "all", control };
    package.packed(contents, vec![contents.model_entry().below("usr")])
}

struct Package<'a> {
    name: &'a str,
    version: &'a str,
    processor: &'a str,
    /// The fields of its own.
    control: String,
}

impl Package<'_> {
    fn packed(&self, contents: &Contents, mut files: Vec<Entry>) -> Result<Made> {
        let Package { name, version, processor, control } = self;
        let docs = format!("usr/share/doc/{name}");
        files.push(Entry::file(format!("{docs}/copyright"), template(contents, "copyright")?));
        let changelog = pack::gzip(changelog(contents, name, version).as_bytes())?;
        files.push(Entry::file(format!("{docs}/changelog.gz"), changelog));
        // In KiB, each file in whole ones, as dpkg counts.
        let size: usize = files.iter().map(|file| file.bytes.len().div_ceil(1024)).sum();
        let control = format!(
            "Package: {name}\nVersion: {version}\nArchitecture: {processor}\nMaintainer: {MAINTAINER}\n\
             Installed-Size: {size}\nSection: utils\nPriority: optional\nHomepage: {}\n{control}",
            contents.repository
        );
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let sums: String = files
            .iter()
            .map(|file| format!("{:x}  {}\n", md5::compute(&file.bytes), file.path))
            .collect();
        let about = [Entry::file("control", control), Entry::file("md5sums", sums)];
        let about = pack::tar_gz(&about, contents.epoch, true)?;
        let data = pack::tar_gz(&files, contents.epoch, true)?;
        let parts: [(&str, &[u8]); 3] =
            [("debian-binary", b"2.0\n"), ("control.tar.gz", &about), ("data.tar.gz", &data)];
        Ok((format!("{name}_{version}_{processor}.deb"), pack::ar(&parts, contents.epoch)))
    }
}

fn template(contents: &Contents, name: &str) -> Result<String> {
    let text = fs::read_to_string(contents.templates.join("deb").join(name));
    let text = text.with_context(|| format!("packages/deb/{name}"))?;
    Ok(text.replace("{{repository}}", &contents.repository))
}

fn changelog(contents: &Contents, name: &str, version: &str) -> String {
    let (year, month, day) = pack::date(contents.epoch);
    // The first of January 1970 was a Thursday.
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
        [usize::try_from(contents.epoch / 86_400 % 7).unwrap_or_default()];
    let month =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
            [usize::try_from(month - 1).unwrap_or_default()];
    format!(
        "{name} ({version}) unstable; urgency=medium\n\n  * See {}/blob/main/CHANGELOG.md.\n\n \
         -- {MAINTAINER}  {weekday}, {day:02} {month} {year} 00:00:00 +0000\n",
        contents.repository
    )
}
