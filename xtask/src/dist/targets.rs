//! The systems that packages are made for, and what each ecosystem calls them.

use anyhow::{Context, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    /// Rust's name.
    pub(crate) triple: &'static str,
    /// In names of files, as `std::env::consts` has them.
    pub(crate) system: &'static str,
    pub(crate) processor: &'static str,
    /// npm's names, which are also that of the package: `@metamcp/linux-x64`.
    pub(crate) npm: (&'static str, &'static str),
    /// The platform tags of the wheel. A static binary runs with either C library.
    pub(crate) wheel: &'static [&'static str],
    /// Debian's name of the processor.
    pub(crate) deb: Option<&'static str>,
    /// A build for this machine alone, where no static one is there: never published.
    pub(crate) is_makeshift: bool,
}

pub(crate) const TARGETS: &[Target] = &[
    Target {
        triple: "x86_64-unknown-linux-musl",
        system: "linux",
        processor: "x86_64",
        npm: ("linux", "x64"),
        wheel: &["manylinux_2_17_x86_64", "manylinux2014_x86_64", "musllinux_1_1_x86_64"],
        deb: Some("amd64"),
        is_makeshift: false,
    },
    Target {
        triple: "aarch64-unknown-linux-musl",
        system: "linux",
        processor: "aarch64",
        npm: ("linux", "arm64"),
        wheel: &["manylinux_2_17_aarch64", "manylinux2014_aarch64", "musllinux_1_1_aarch64"],
        deb: Some("arm64"),
        is_makeshift: false,
    },
    Target {
        triple: "x86_64-apple-darwin",
        system: "macos",
        processor: "x86_64",
        npm: ("darwin", "x64"),
        wheel: &["macosx_10_12_x86_64"],
        deb: None,
        is_makeshift: false,
    },
    Target {
        triple: "aarch64-apple-darwin",
        system: "macos",
        processor: "aarch64",
        npm: ("darwin", "arm64"),
        wheel: &["macosx_11_0_arm64"],
        deb: None,
        is_makeshift: false,
    },
    Target {
        triple: "x86_64-pc-windows-gnu",
        system: "windows",
        processor: "x86_64",
        npm: ("win32", "x64"),
        wheel: &["win_amd64"],
        deb: None,
        is_makeshift: false,
    },
    Target {
        triple: "x86_64-unknown-linux-gnu",
        system: "linux",
        processor: "x86_64",
        npm: ("linux", "x64"),
        wheel: &["linux_x86_64"],
        deb: Some("amd64"),
        is_makeshift: true,
    },
];

impl Target {
    pub(crate) fn named(triple: &str) -> Result<&'static Target> {
        TARGETS.iter().find(|target| target.triple == triple).with_context(|| {
            let known: Vec<&str> = TARGETS.iter().map(|target| target.triple).collect();
            format!("no package is made for {triple}; the targets are {}", known.join(", "))
        })
    }

    pub(crate) fn program(&self) -> &'static str {
        if self.system == "windows" { "metamcp.exe" } else { "metamcp" }
    }

    /// `linux-x86_64`, in names of archives.
    pub(crate) fn label(&self) -> String {
        format!("{}-{}", self.system, self.processor)
    }

    pub(crate) fn npm_package(&self) -> String {
        format!("@metamcp/{}-{}", self.npm.0, self.npm.1)
    }

    pub(crate) fn runs_here(&self) -> bool {
        self.system == std::env::consts::OS && self.processor == std::env::consts::ARCH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_published_packages_differ() {
        let published: Vec<&Target> =
            TARGETS.iter().filter(|target| !target.is_makeshift).collect();
        for (at, one) in published.iter().enumerate() {
            for other in &published[at + 1..] {
                assert_ne!(one.label(), other.label());
                assert_ne!(one.npm_package(), other.npm_package());
            }
        }
        assert!(Target::named("x86_64-unknown-linux-musl").is_ok());
        let error = Target::named("z80-none").unwrap_err().to_string();
        assert!(error.contains("z80-none") && error.contains("aarch64-apple-darwin"), "{error}");
    }
}
