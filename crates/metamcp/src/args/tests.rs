use insta::assert_snapshot;
use metamcp_config::settings::SETTINGS;

use super::*;

fn parsed(line: &[&str]) -> Result<Args, clap::Error> {
    let words = std::iter::once("metamcp").chain(line.iter().copied());
    parse(words.map(Into::into))
}

#[test]
fn the_command_line_is_sound() {
    command().debug_assert();
}

#[test]
fn the_help_of_every_command() {
    for (path, help) in crate::reference::helps() {
        assert_snapshot!(path.replace(' ', "_"), help);
    }
    let short = command().term_width(100).render_help().to_string();
    assert_snapshot!("metamcp_short", short);
}

#[test]
fn every_command_is_in_exactly_one_group_of_the_help() {
    let command = command();
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut commands: Vec<&str> = visible.map(clap::Command::get_name).collect();
    // clap generates this one.
    commands.retain(|name| *name != "help");
    commands.push("help");
    let mut grouped: Vec<&str> =
        groups::GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    commands.sort_unstable();
    grouped.sort_unstable();
    assert_eq!(grouped, commands);
}

/// Lines broken by hand are broken again on a narrower terminal, and look ragged.
#[test]
fn help_is_wrapped_once() {
    fn look(command: &clap::Command) {
        const NARROW: usize = 80;
        let helps = [command.get_after_help(), command.get_after_long_help()];
        for text in helps.into_iter().flatten().map(ToString::to_string) {
            let lines: Vec<&str> = text.lines().collect();
            for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.len() > NARROW) {
                let is_open = |at: Option<usize>| {
                    at.and_then(|at| lines.get(at)).is_none_or(|line| line.is_empty())
                };
                let is_paragraph = is_open(at.checked_sub(1))
                    && is_open(at.checked_add(1))
                    && !line.starts_with(' ');
                assert!(is_paragraph, "{}: {line:?}", command.get_name());
            }
        }
        command.get_subcommands().for_each(look);
    }
    look(&command());
}

#[test]
fn every_setting_is_a_flag_and_every_flag_of_that_heading_a_setting() {
    let command = command();
    let mut flags: Vec<&str> = command
        .get_arguments()
        .filter(|argument| argument.get_help_heading() == Some("Settings"))
        .map(|argument| argument.get_long().unwrap())
        .collect();
    let mut settings: Vec<&str> = SETTINGS.iter().map(|setting| setting.flag).collect();
    flags.sort_unstable();
    settings.sort_unstable();
    assert_eq!(flags, settings);
}

#[test]
fn settings_are_understood_before_and_after_the_subcommand() {
    for line in [
        &["--max-connections", "7", "config", "check"][..],
        &["config", "--max-connections", "7", "check"],
        &["config", "check", "--max-connections", "7"],
        &["list", "--max-connections=7"],
        &["--max-connections", "7"],
        &["serve", "--max-connections", "7"],
    ] {
        let given = parsed(line).unwrap().settings.given;
        let told: Vec<String> = given
            .iter()
            .map(|given| format!("{} {} {}", given.setting.flag, given.value.text(), given.origin))
            .collect();
        assert_eq!(told, ["max-connections 7 flag --max-connections"], "{line:?}");
    }
}

#[test]
fn every_setting_takes_its_default_as_a_flag() {
    for setting in SETTINGS.iter().filter(|setting| setting.default.is_some()) {
        let flag = format!("--{}={}", setting.flag, setting.default_text());
        let given = parsed(&[&flag]).unwrap().settings.given;
        assert_eq!(Some(&given[0].value), setting.default.as_ref(), "{flag}");
    }
}

#[test]
fn mistakes_are_explained() {
    let told = |line: &[&str]| parsed(line).expect_err("a mistake").to_string();
    let all = [
        told(&["--max-connections", "0"]),
        told(&["--idle-timeout", "soon"]),
        told(&["--replay", "always"]),
        told(&["--max-conections", "5"]),
        told(&["serch", "x"]),
        told(&["call"]),
        told(&["search", "x", "--limit", "0"]),
    ];
    assert_snapshot!("mistakes", all.join("----\n"));
}

#[test]
fn no_subcommand_is_serving() {
    assert!(parsed(&[]).unwrap().command.is_none());
    assert!(matches!(
        parsed(&["call", "a:b", "--args", "-1"]).unwrap().command,
        Some(Command::Call(_))
    ));
}

/// Both parsers agree on a line, or only clap parses it.
#[test]
fn a_line_read_quickly_is_read_as_by_clap() {
    let words =
        |line: &[&str]| -> Vec<std::ffi::OsString> { line.iter().map(Into::into).collect() };
    let both = |line: &[&str]| {
        let whole: Vec<&str> = [&["metamcp"], line].concat();
        let told = |args: Args| {
            assert!(matches!(args.command, None | Some(Command::Serve)), "{line:?}");
            format!("{:?}", args.settings.given)
        };
        let slow = thorough(&words(&whole)).ok().map(told);
        (quick::serving(&words(line)).map(|given| format!("{given:?}")), slow)
    };
    let mut understood: Vec<Vec<String>> = vec![
        vec![],
        vec!["serve".into()],
        vec!["--max-connections".into(), "7".into(), "--config=x".into()],
        vec!["serve".into(), "--log-level".into(), "debug".into()],
    ];
    for setting in SETTINGS.iter().filter(|setting| setting.default.is_some()) {
        let (flag, value) = (format!("--{}", setting.flag), setting.default_text());
        understood.push(vec![format!("{flag}={value}")]);
        if flags::is_bare(setting) {
            understood.push(vec![flag]);
        } else {
            understood.push(vec![flag, value.into_owned()]);
        }
    }
    for line in &understood {
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let (quick, slow) = both(&line);
        assert!(quick.is_some() && quick == slow, "{line:?}: {quick:?} {slow:?}");
    }
    for line in [
        &["--help"][..],
        &["-V"],
        &["list"],
        &["serve", "serve"],
        &["--config"],
        &["--config", "-x"],
        &["--config", "a", "--config", "b"],
        &["--max-connections", "many"],
        &["--", "serve"],
        &["--stateless", "true"],
    ] {
        assert!(quick::serving(&words(line)).is_none(), "{line:?}");
    }
}

#[test]
fn an_address_is_never_taken_for_a_program() {
    let added = |line: &[&str]| match parsed(line).unwrap().command {
        Some(Command::Add(args)) => args,
        other => panic!("{line:?}: {other:?}"),
    };
    for line in [
        &["add", "h", "https://example.com/mcp", "--header", "A: b", "--dry-run"][..],
        &["add", "--header", "A: b", "h", "https://example.com/mcp", "--dry-run"],
        &["add", "h", "--dry-run", "--header", "A: b", "--url", "https://example.com/mcp"],
    ] {
        let args = added(line);
        assert_eq!(args.url.as_deref(), Some("https://example.com/mcp"), "{line:?}");
        assert!(args.command.is_empty() && args.write.dry_run, "{line:?}");
        assert_eq!(args.header, ["A: b"], "{line:?}");
    }
    let args = added(&["add", "h", "--", "curl", "https://example.com", "--json"]);
    assert_eq!(args.command, ["curl", "https://example.com", "--json"]);
    let told = parsed(&["add", "h", "npx", "-y", "foo", "--dry-run"]).unwrap_err().to_string();
    assert!(told.contains("metamcp add h [OPTIONS] -- npx -y foo"), "{told}");
}
