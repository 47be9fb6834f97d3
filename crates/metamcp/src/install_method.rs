//! How this program was installed, and therefore what makes it newer.
//! Owns: what a path and a package's marker tell.      Never: asks a package manager, changes anything.
//! In: where the program is, what the marker says.  Out: an `InstallMethod`, its name, its command.
//! Tests: below, for every package manager and system.

use std::path::{Path, PathBuf};

use metamcp_engine::env;

/// The file that a package without a place of its own puts beside its other files: who brought the program.
pub(crate) const MARKER: &str = "installed-by";

/// The page of the releases' downloads.
pub(crate) const RELEASES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/releases");

/// Longest marker that is read.
const MAX_MARKER: u64 = 64;

/// Who brought this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstallMethod {
    /// `install.sh` or `install.ps1`.
    Script,
    /// In npm's global folder.
    NpmGlobal,
    /// In the `node_modules` of a project.
    NpmLocal,
    /// In the cache of `npx`.
    Npx,
    Pnpm,
    Pip,
    Pipx,
    /// `uv tool install`.
    UvTool,
    /// In the cache of `uvx`.
    Uvx,
    Deb,
    Homebrew,
    Scoop,
    Winget,
    Nix,
    Docker,
    /// `cargo install`.
    Cargo,
    /// A build folder of a checkout.
    Build,
    /// An unpacked archive, or anything else.
    Unknown,
}

impl InstallMethod {
    /// That of this program.
    pub(crate) fn here() -> InstallMethod {
        let Some(program) = env::own_program() else { return InstallMethod::Unknown };
        InstallMethod::of(&program.to_string_lossy(), marker(&program).as_deref())
    }

    /// A path of any system. What a package manager's folder says goes before the marker, which the folder may contain too.
    fn of(program: &str, marker: Option<&str>) -> InstallMethod {
        let parts: Vec<&str> = program.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
        let has = |row: &[&str]| {
            parts.windows(row.len()).any(|parts| {
                parts.iter().zip(row).all(|(part, wanted)| part.eq_ignore_ascii_case(wanted))
            })
        };
        let is_global = || {
            has(&["lib", "node_modules"])
                || has(&["npm", "node_modules"])
                || has(&["nodejs", "node_modules"])
        };
        if has(&["node_modules"]) {
            return match () {
                () if has(&["_npx"]) => InstallMethod::Npx,
                () if has(&[".pnpm"]) => InstallMethod::Pnpm,
                () if is_global() => InstallMethod::NpmGlobal,
                () => InstallMethod::NpmLocal,
            };
        }
        let by_place = [
            (&["nix", "store"][..], InstallMethod::Nix),
            (&["Cellar", "metamcp"], InstallMethod::Homebrew),
            (&["scoop", "apps"], InstallMethod::Scoop),
            (&["WinGet", "Packages"], InstallMethod::Winget),
            (&["uv", "tools"], InstallMethod::UvTool),
            (&[".cache", "uv"], InstallMethod::Uvx),
            (&["uv", "cache"], InstallMethod::Uvx),
            (&["archive-v0"], InstallMethod::Uvx),
            (&["pipx", "venvs"], InstallMethod::Pipx),
            (&[".cargo", "bin"], InstallMethod::Cargo),
        ];
        if let Some((_, method)) = by_place.iter().find(|(row, _)| has(row)) {
            return *method;
        }
        match marker.map(str::trim) {
            Some("script") => InstallMethod::Script,
            Some("pip") => InstallMethod::Pip,
            Some("deb") => InstallMethod::Deb,
            Some("docker") => InstallMethod::Docker,
            Some("nix") => InstallMethod::Nix,
            _ if has(&["target", "debug"])
                || has(&["target", "release"])
                || has(&["target", "dist"]) =>
            {
                InstallMethod::Build
            }
            _ => InstallMethod::Unknown,
        }
    }

    /// Its name in JSON. Stable: scripts depend on it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            InstallMethod::Script => "script",
            InstallMethod::NpmGlobal | InstallMethod::NpmLocal => "npm",
            InstallMethod::Npx => "npx",
            InstallMethod::Pnpm => "pnpm",
            InstallMethod::Pip => "pip",
            InstallMethod::Pipx => "pipx",
            InstallMethod::UvTool => "uv",
            InstallMethod::Uvx => "uvx",
            InstallMethod::Deb => "deb",
            InstallMethod::Homebrew => "homebrew",
            InstallMethod::Scoop => "scoop",
            InstallMethod::Winget => "winget",
            InstallMethod::Nix => "nix",
            InstallMethod::Docker => "docker",
            InstallMethod::Cargo => "cargo",
            InstallMethod::Build => "build",
            InstallMethod::Unknown => "unknown",
        }
    }

    /// What a person types to get a newer version; `None` where `metamcp upgrade` does it itself.
    pub(crate) fn command(self) -> Option<String> {
        let command = match self {
            InstallMethod::Script => return None,
            InstallMethod::NpmGlobal => "npm install -g metamcp@latest",
            InstallMethod::NpmLocal => "npm install metamcp@latest",
            InstallMethod::Npx => "npx metamcp@latest",
            InstallMethod::Pnpm => "pnpm add -g metamcp@latest",
            InstallMethod::Pip => "python -m pip install --upgrade metamcp",
            InstallMethod::Pipx => "pipx upgrade metamcp",
            InstallMethod::UvTool => "uv tool upgrade metamcp",
            InstallMethod::Uvx => "uvx metamcp@latest",
            InstallMethod::Deb => {
                return Some(format!(
                    "sudo apt install ./metamcp_VERSION_ARCH.deb # from {RELEASES}/latest"
                ));
            }
            InstallMethod::Homebrew => "brew upgrade metamcp",
            InstallMethod::Scoop => "scoop update metamcp",
            InstallMethod::Winget => "winget upgrade metamcp",
            InstallMethod::Nix => "nix profile upgrade metamcp",
            InstallMethod::Docker => {
                "docker pull the image of the new version, and start the container from it"
            }
            InstallMethod::Cargo => {
                "git pull && cargo install --path crates/metamcp --locked # in your checkout"
            }
            InstallMethod::Build => "git pull && cargo build --release # in your checkout",
            InstallMethod::Unknown => {
                return Some(format!(
                    "download the new version from {RELEASES}/latest, and replace this one"
                ));
            }
        };
        Some(command.to_owned())
    }

    /// Who answers for the program, in a sentence.
    pub(crate) fn words(self) -> &'static str {
        match self {
            InstallMethod::Script => "the install script",
            InstallMethod::NpmGlobal | InstallMethod::NpmLocal => "npm",
            InstallMethod::Npx => "npx",
            InstallMethod::Pnpm => "pnpm",
            InstallMethod::Pip => "pip",
            InstallMethod::Pipx => "pipx",
            InstallMethod::UvTool => "uv",
            InstallMethod::Uvx => "uvx",
            InstallMethod::Deb => "a Debian package",
            InstallMethod::Homebrew => "Homebrew",
            InstallMethod::Scoop => "Scoop",
            InstallMethod::Winget => "winget",
            InstallMethod::Nix => "Nix",
            InstallMethod::Docker => "a container image",
            InstallMethod::Cargo => "cargo install",
            InstallMethod::Build => "a build of a checkout",
            InstallMethod::Unknown => "an archive, or by hand",
        }
    }
}

/// The prefix of a program, such as `/usr` of `/usr/bin/metamcp`.
pub(crate) fn prefix(program: &Path) -> Option<PathBuf> {
    Some(program.parent()?.parent()?.to_owned())
}

/// The folder of a package's other files.
pub(crate) fn shared(prefix: &Path) -> PathBuf {
    prefix.join("share").join("metamcp")
}

/// What the marker beside the program says.
fn marker(program: &Path) -> Option<String> {
    use std::io::Read;

    let file = std::fs::File::open(shared(&prefix(program)?).join(MARKER)).ok()?;
    let mut text = String::new();
    file.take(MAX_MARKER).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_a_marker_tell_who_installed_it() {
        use InstallMethod::*;
        let cases = [
            ("/home/me/.local/bin/metamcp", Some("script\n"), Script),
            ("C:\\Users\\me\\AppData\\Local\\metamcp\\bin\\metamcp.exe", Some("script"), Script),
            (
                "/usr/lib/node_modules/metamcp/node_modules/@metamcp/linux-x64/bin/metamcp",
                None,
                NpmGlobal,
            ),
            ("/usr/lib/node_modules/@metamcp/linux-x64/bin/metamcp", None, NpmGlobal),
            (
                "C:\\Users\\me\\AppData\\Roaming\\npm\\node_modules\\@metamcp\\win32-x64\\bin\\metamcp.exe",
                None,
                NpmGlobal,
            ),
            ("/home/me/site/node_modules/@metamcp/linux-x64/bin/metamcp", None, NpmLocal),
            ("/home/me/.npm/_npx/1f/node_modules/@metamcp/darwin-arm64/bin/metamcp", None, Npx),
            (
                "/home/me/p/node_modules/.pnpm/@metamcp+linux-x64@0.2.0/node_modules/@metamcp/linux-x64/bin/metamcp",
                None,
                Pnpm,
            ),
            ("/home/me/venv/bin/metamcp", Some("pip"), Pip),
            ("C:\\Users\\me\\venv\\Scripts\\metamcp.exe", Some("pip"), Pip),
            ("/home/me/.local/bin/metamcp", Some("pip"), Pip),
            ("/home/me/.local/share/pipx/venvs/metamcp/bin/metamcp", Some("pip"), Pipx),
            ("/home/me/.local/share/uv/tools/metamcp/bin/metamcp", Some("pip"), UvTool),
            ("/home/me/.cache/uv/archive-v0/x1/bin/metamcp", Some("pip"), Uvx),
            (
                "C:\\Users\\me\\AppData\\Local\\uv\\cache\\archive-v0\\x1\\Scripts\\metamcp.exe",
                Some("pip"),
                Uvx,
            ),
            ("/usr/bin/metamcp", Some("deb"), Deb),
            ("/opt/homebrew/Cellar/metamcp/0.2.0/bin/metamcp", None, Homebrew),
            ("/home/me/.linuxbrew/Cellar/metamcp/0.2.0/bin/metamcp", None, Homebrew),
            ("C:\\Users\\me\\scoop\\apps\\metamcp\\current\\bin\\metamcp.exe", None, Scoop),
            (
                "C:\\Users\\me\\AppData\\Local\\Microsoft\\WinGet\\Packages\\metamcp_x\\bin\\metamcp.exe",
                None,
                Winget,
            ),
            ("/nix/store/abc-metamcp-0.2.0/bin/metamcp", None, Nix),
            ("/usr/local/bin/metamcp", Some("docker"), Docker),
            ("/home/me/.cargo/bin/metamcp", None, Cargo),
            ("/home/me/metamcp/target/release/metamcp", None, Build),
            ("/home/me/metamcp-0.2.0-linux-x86_64/bin/metamcp", None, Unknown),
            ("/usr/local/bin/metamcp", None, Unknown),
            ("/usr/local/bin/metamcp", Some("something else"), Unknown),
        ];
        for (program, marker, expected) in cases {
            assert_eq!(InstallMethod::of(program, marker), expected, "{program} {marker:?}");
            assert_eq!(expected.command().is_none(), expected == Script);
            assert!(!expected.name().is_empty() && !expected.words().is_empty());
        }
    }

    #[test]
    fn a_marker_is_read_beside_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("bin/metamcp");
        assert_eq!(marker(&program), None);
        let shared = shared(&prefix(&program).unwrap());
        std::fs::create_dir_all(&shared).unwrap();
        std::fs::write(shared.join(MARKER), "script\n").unwrap();
        assert_eq!(marker(&program).as_deref(), Some("script\n"));
    }
}
