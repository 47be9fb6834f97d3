//! Fixture homes in a temporary directory, laid out as npm and uv leave them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::npx::{Package, Version, cache_key, package};
use super::{Layout, Surroundings, npx, resolve_in, uvx};
use crate::spec::Spec;

struct Home {
    root: tempfile::TempDir,
    around: Surroundings,
}

impl Home {
    fn new() -> Home {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().canonicalize().unwrap().join(path);
        let around = Surroundings {
            layout: Layout::Unix,
            cwd: at("project/sub"),
            path: vec![at("no-node"), at("prefix/bin")],
            npm_cache: at(".npm"),
            npm_prefix: None,
            uv_cache: at(".cache/uv"),
            uv_tools: at("tools"),
            now: crate::clock::wall(),
        };
        fs::create_dir_all(&around.cwd).unwrap();
        Home { root, around }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(path)
    }

    fn file(&self, path: &str, text: &str) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn package(&self, modules: &str, name: &str, version: &str, bin: &str) -> PathBuf {
        let manifest = format!(r#"{{"name":"{name}","version":"{version}","bin":{bin}}}"#);
        self.file(&format!("{modules}/{name}/package.json"), &manifest);
        self.file(&format!("{modules}/{name}/dist/index.js"), "#!/usr/bin/env node\n")
    }

    /// An install as npx leaves it for these words.
    fn npx_install(&self, spec: &str, name: &str, version: &str) -> PathBuf {
        let directory = format!(".npm/_npx/{}", cache_key(&[spec]));
        self.file(&format!("{directory}/package.json"), "{}");
        let lock = format!(r#"{{"packages":{{"node_modules/{name}":{{"version":"{version}"}}}}}}"#);
        self.file(&format!("{directory}/node_modules/.package-lock.json"), &lock);
        self.package(&format!("{directory}/node_modules"), name, version, r#""./dist/index.js""#)
    }

    fn python_environment(
        &self,
        at: &str,
        distributions: &[(&str, &str, &str)],
        bin: &str,
    ) -> PathBuf {
        self.file(&format!("{at}/bin/python"), "");
        for (name, version, requires) in distributions {
            let metadata =
                format!("{at}/lib/python3.12/site-packages/{name}-{version}.dist-info/METADATA");
            self.file(
                &metadata,
                &format!("Name: {name}\n{requires}\n\nRequires-Dist: not-a-header\n"),
            );
        }
        self.file(
            &format!("{at}/bin/{bin}"),
            "#!/bin/sh\n'''exec' \"$(dirname)\"/'python' \"$0\"\n",
        )
    }

    fn resolved(&self, words: &[&str]) -> Option<Vec<String>> {
        let spec = Spec {
            program: words[0].into(),
            args: words[1..].iter().map(Into::into).collect(),
            ..Spec::default()
        };
        let resolved = resolve_in(&spec, &self.around)?;
        let words = [resolved.program].into_iter().chain(resolved.args);
        Some(words.map(|word| word.into_string().unwrap()).collect())
    }
}

#[expect(clippy::unnecessary_wraps, reason = "compared with what may not resolve")]
fn words(program: impl AsRef<Path>, rest: &[&str]) -> Option<Vec<String>> {
    let program = program.as_ref().to_str().unwrap();
    Some([program].iter().chain(rest).map(ToString::to_string).collect())
}

#[test]
fn the_key_is_the_one_npx_uses() {
    // Taken from a directory that npx 11 made.
    assert_eq!(cache_key(&["cowsay@1.6.0"]), "e3e1d528ee105f80");
    assert_eq!(cache_key(&["semver"]), "a9bef924e4cb6cdb");
    assert_eq!(cache_key(&["b", "a"]), cache_key(&["a", "b"]));
}

#[test]
fn package_names_are_read_and_everything_else_is_refused() {
    let exact = |name, version| Some(Package { name, version: Version::Exact(version) });
    assert_eq!(package("cowsay@1.6.0"), exact("cowsay", "1.6.0"));
    assert_eq!(package("@a/b@1.2.3-rc.1"), exact("@a/b", "1.2.3-rc.1"));
    assert_eq!(package("@a/b"), Some(Package { name: "@a/b", version: Version::Any }));
    for floating in ["x@latest", "x@^1.2.3", "x@1", "x@1.2", "x@>=1.0.0", "x@1.x"] {
        assert_eq!(package(floating).unwrap().version, Version::Floating, "{floating}");
    }
    for other in [
        "./x",
        "/x",
        "../x",
        "@a",
        "@a/",
        "x@npm:y@1",
        "git+ssh://x",
        "user/repo",
        "x@",
        "",
        "x y",
        ".bin",
        "x;y",
    ] {
        assert_eq!(package(other), None, "{other}");
    }
}

#[test]
fn unknown_npx_flags_are_left_to_npx() {
    let read = |args: &'static [&'static str]| npx::request(args);
    let plain = read(&["-y", "server", "--flag", "-p"]).unwrap();
    assert_eq!(
        (plain.packages, plain.bin, plain.rest),
        (vec!["server"], None, &["--flag", "-p"][..])
    );
    let named = read(&["-y", "-p", "a", "--package=b", "tool", "x"]).unwrap();
    assert_eq!((named.packages, named.bin, named.rest), (vec!["a", "b"], Some("tool"), &["x"][..]));
    assert_eq!(read(&["--", "server", "--"]).unwrap().rest, ["--"]);
    for unknown in
        [&["-c", "x"][..], &["--call=x"], &["--node-options=--x", "y"], &["-y"], &["-p", "a"], &[]]
    {
        assert_eq!(npx::request(unknown), None, "{unknown:?}");
    }
}

#[cfg(unix)] // the texts of paths are compared
#[test]
fn npx_finds_its_own_install() {
    let home = Home::new();
    let entry = home.npx_install("@scope/server@1.2.3", "@scope/server", "1.2.3");
    let expected = words("node", &[entry.to_str().unwrap(), "--root", "/tmp"]);
    assert_eq!(home.resolved(&["npx", "-y", "@scope/server@1.2.3", "--root", "/tmp"]), expected);
    assert_eq!(
        home.resolved(&["/nowhere/bin/npx", "@scope/server@1.2.3", "--root", "/tmp"]),
        expected
    );
    assert_eq!(
        home.resolved(&["npm", "exec", "-y", "@scope/server@1.2.3", "--", "--root", "/tmp"]),
        expected
    );
    for other in ["@scope/server", "@scope/server@1.2.4", "@scope/server@latest", "server"] {
        assert_eq!(home.resolved(&["npx", "-y", other]), None, "{other}");
    }
    assert_eq!(home.resolved(&["npm", "exec", "@scope/server@1.2.3", "--root"]), None);
    assert_eq!(home.resolved(&["bunx", "@scope/server@1.2.3"]), None);
}

#[test]
fn the_newest_version_is_looked_up_again_after_a_while() {
    let mut home = Home::new();
    home.npx_install("server@latest", "server", "2.0.0");
    home.npx_install("pinned@1.0.0", "pinned", "1.0.0");
    assert!(home.resolved(&["npx", "server@latest"]).is_some());
    home.around.now += Duration::from_hours(8 * 24);
    assert_eq!(home.resolved(&["npx", "server@latest"]), None);
    assert!(home.resolved(&["npx", "pinned@1.0.0"]).is_some());
}

#[test]
fn an_unfinished_or_torn_install_is_not_used() {
    let home = Home::new();
    home.npx_install("server@1.0.0", "server", "1.0.0");
    let directory = format!(".npm/_npx/{}", cache_key(&["server@1.0.0"]));
    let lock = home.at(&format!("{directory}/concurrency.lock"));
    fs::create_dir(&lock).unwrap();
    assert_eq!(home.resolved(&["npx", "server@1.0.0"]), None);
    fs::remove_dir(lock).unwrap();
    assert!(home.resolved(&["npx", "server@1.0.0"]).is_some());
    home.file(&format!("{directory}/node_modules/server/package.json"), r#"{"version":"0.9.0"}"#);
    assert_eq!(home.resolved(&["npx", "server@1.0.0"]), None);
    fs::remove_file(home.at(&format!("{directory}/node_modules/.package-lock.json"))).unwrap();
    assert_eq!(home.resolved(&["npx", "server@1.0.0"]), None);
}

#[cfg(unix)] // the texts of paths are compared
#[test]
fn the_project_comes_before_the_global_install_and_that_before_the_cache() {
    let home = Home::new();
    let cached = home.npx_install("server", "server", "3.0.0");
    assert_eq!(home.resolved(&["npx", "server"]), words("node", &[cached.to_str().unwrap()]));
    home.file("prefix/bin/node", "");
    let global =
        home.package("prefix/lib/node_modules", "server", "2.0.0", r#"{"server":"dist/index.js"}"#);
    assert_eq!(home.resolved(&["npx", "server"]), words("node", &[global.to_str().unwrap()]));
    let local = home.package(
        "project/node_modules",
        "server",
        "1.0.0",
        r#"{"a":"dist/index.js","b":"dist/index.js"}"#,
    );
    assert_eq!(home.resolved(&["npx", "server"]), words("node", &[local.to_str().unwrap()]));
    assert_eq!(home.resolved(&["npx", "server@2.0.0"]), words("node", &[global.to_str().unwrap()]));
    assert_eq!(home.resolved(&["npx", "server@9.0.0"]), None);
    // The package under development runs from its sources.
    home.file("project/package.json", r#"{"name":"x","bin":{"server":"cli.js"}}"#);
    assert_eq!(home.resolved(&["npx", "server"]), None);
}

#[cfg(unix)]
#[test]
fn a_named_command_is_found_through_its_link() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let home = Home::new();
    let entry = home.npx_install("many@1.0.0", "many", "1.0.0");
    let bin = home.at(&format!(".npm/_npx/{}/node_modules/.bin", cache_key(&["many@1.0.0"])));
    fs::create_dir(&bin).unwrap();
    symlink("../many/dist/index.js", bin.join("tool")).unwrap();
    assert_eq!(
        home.resolved(&["npx", "-p", "many@1.0.0", "tool", "a"]),
        words("node", &[entry.to_str().unwrap(), "a"])
    );
    assert_eq!(home.resolved(&["npx", "-p", "many@1.0.0", "../../x"]), None);
    assert_eq!(home.resolved(&["npx", "-p", "many@1.0.0", "other"]), None);
    // Not JavaScript: executed as it is, if it can be.
    fs::write(&entry, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&entry, fs::Permissions::from_mode(0o644)).unwrap();
    let plain = home.resolved(&["npx", "-p", "many@1.0.0", "tool"]);
    assert_eq!(plain, None, "a shell script without the right to run");
    fs::set_permissions(&entry, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(home.resolved(&["npx", "-p", "many@1.0.0", "tool"]), words(entry, &[]));
}

#[test]
fn a_manifest_cannot_point_outside_its_package() {
    let home = Home::new();
    home.file("project/evil.js", "");
    for bin in [r#""../../evil.js""#, r#""/etc/passwd""#, "7", r#"{"a":"x","b":"y"}"#] {
        home.package("project/node_modules", "server", "1.0.0", bin);
        assert_eq!(home.resolved(&["npx", "server"]), None, "{bin}");
    }
}

#[test]
fn unknown_uvx_flags_are_left_to_uvx() {
    let read = |args: &'static [&'static str]| uvx::request(args);
    let plain = read(&["-q", "mcp-server-time", "--zone"]).unwrap();
    assert_eq!(
        (plain.package.as_str(), plain.version, plain.bin),
        ("mcp-server-time", None, "mcp-server-time")
    );
    assert_eq!(plain.rest, ["--zone"]);
    let from = read(&["--from", "My_Tool==1.2", "cmd"]).unwrap();
    assert_eq!((from.package.as_str(), from.version, from.bin), ("my-tool", Some("1.2"), "cmd"));
    assert_eq!(read(&["tool@1.0.1"]).unwrap().version, Some("1.0.1"));
    for other in [
        &["tool@latest"][..],
        &["--from", "tool>=1", "x"],
        &["--from", "tool[cli]", "x"],
        &["--from", "git+https://h/r", "x"],
        &["--with", "a", "b"],
        &["--python", "3.12", "b"],
        &["--refresh", "b"],
        &[],
    ] {
        assert_eq!(uvx::request(other), None, "{other:?}");
    }
}

#[test]
fn uvx_prefers_the_installed_tool() {
    let home = Home::new();
    let script = home.python_environment("tools/my-tool", &[("my_tool", "1.2", "")], "my-tool");
    assert_eq!(home.resolved(&["uvx", "my-tool"]), None, "no receipt yet");
    home.file("tools/my-tool/uv-receipt.toml", "");
    let python = home.at("tools/my-tool/bin/python");
    let expected = words(&python, &[script.to_str().unwrap(), "x"]);
    assert_eq!(home.resolved(&["uvx", "my-tool", "x"]), expected);
    assert_eq!(home.resolved(&["uv", "tool", "run", "my_tool@1.2", "x"]), None, "no such command");
    assert_eq!(home.resolved(&["uvx", "my-tool@1.2", "x"]), expected);
    assert_eq!(home.resolved(&["uvx", "my-tool@1.3"]), None);
}

#[cfg(unix)] // the texts of paths are compared
#[test]
fn uvx_takes_a_cached_environment_made_for_the_tool_only() {
    let home = Home::new();
    let cache = ".cache/uv/environments-v2/python";
    let both = [("mcp_server_time", "2.0", "Requires-Dist: mcp>=1.0"), ("mcp", "1.5", "")];
    let script = home.python_environment(&format!("{cache}/a"), &both, "mcp-server-time");
    home.file(&format!("{cache}/a/bin/mcp"), "#!/x/python\n");
    let python = home.at(&format!("{cache}/a/bin/python"));
    let expected = words(&python, &[script.to_str().unwrap()]);
    assert_eq!(home.resolved(&["uvx", "mcp-server-time"]), expected);
    assert_eq!(home.resolved(&["uvx", "mcp-server-time@1.9"]), None);
    assert_eq!(home.resolved(&["uvx", "mcp"]), None, "there for another's sake");
    let with = [("mcp_server_git", "1.0", ""), ("extra", "1.0", "")];
    home.python_environment(&format!("{cache}/b"), &with, "mcp-server-git");
    assert_eq!(home.resolved(&["uvx", "mcp-server-git"]), None, "made with something else");
}

#[cfg(unix)]
#[test]
fn on_windows_the_same_is_found_in_other_places() {
    use std::os::unix::fs::PermissionsExt;
    let mut home = Home::new();
    home.around.layout = Layout::Windows;
    home.around.npm_prefix = Some(home.at("roaming/npm"));
    home.around.path.push(home.at("nodejs"));
    home.file("nodejs/node.exe", "");
    let cached = home.npx_install("one@1.0.0", "one", "1.0.0");
    for npx in ["npx", "npx.cmd", "NPX.CMD"] {
        let expected = words("node.exe", &[cached.to_str().unwrap(), "x"]);
        assert_eq!(home.resolved(&[npx, "-y", "one@1.0.0", "x"]), expected, "{npx}");
    }
    let own = home.at("nodejs/npx.cmd");
    let node = home.at("nodejs/node.exe");
    let expected = words(node, &[cached.to_str().unwrap()]);
    assert_eq!(home.resolved(&[own.to_str().unwrap(), "one@1.0.0"]), expected);
    let modules = "roaming/npm/node_modules";
    let global = home.package(modules, "two", "1.0.0", r#"{"two":"dist/index.js"}"#);
    let expected = words("node.exe", &[global.to_str().unwrap()]);
    assert_eq!(home.resolved(&["npx", "two"]), expected);

    home.file("tools/tool/uv-receipt.toml", "");
    home.file("tools/tool/Lib/site-packages/tool-1.2.dist-info/METADATA", "Name: tool\n\n");
    home.file("tools/tool/Scripts/python.exe", "MZ");
    let script = home.file("tools/tool/Scripts/tool.exe", "MZ");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(home.resolved(&["uvx.exe", "tool@1.2", "x"]), words(&script, &["x"]));
    assert_eq!(home.resolved(&["uvx", "tool@1.3"]), None);
}
