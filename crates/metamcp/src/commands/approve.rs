//! `metamcp approve`: what waits for a person. Installations of servers, and calls that need an approval.
//! Owns: which of the two an id names, how calls are shown and answered, stored approvals.      Never: takes a pipe for a person.
//! In: an id and a terminal.  Out: an answer in the store of approvals.
//! Tests: `tests/surface/approvals.rs`.

use std::io::Write;

use anyhow::Context;
use metamcp_engine::approvals::{ApprovalStore, AskedCall, Span, StoredAnswer};
use metamcp_engine::clock::unix_millis;
use metamcp_engine::config::Loaded;
use metamcp_engine::observe::Subject;
use metamcp_engine::provision::Store;
use serde_json::{Value, json};

use super::audited::Audited;
use super::provisioned;
use crate::args::ApproveArgs;
use crate::exit::{Exit, OrMisuse, misuse};
use crate::{local_time, prompt, render};

/// A year: longer is always.
const MAX_SPAN_MS: u64 = 366 * 24 * 60 * 60 * 1000;

pub(crate) fn run(
    loaded: &Loaded,
    args: &ApproveArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let store = ApprovalStore::new(&loaded.config.settings.home);
    if args.granted {
        return granted(&store, args.json, out);
    }
    if let Some(id) = &args.revoke {
        return revoke(loaded, &store, id, args.json, out);
    }
    let calls = store.asked();
    match args.id.as_deref() {
        None if args.json => {
            let mut all = provisioned::waiting_json(loaded, None);
            all.extend(calls.iter().map(call_json));
            writeln!(out, "{:#}", Value::from(all))?;
            Ok(Exit::Success)
        }
        None => list(loaded, &calls, out),
        Some(id) => {
            let plans = Store::new(&loaded.config.settings.home).pending();
            match calls.iter().find(|call| call.id() == id) {
                Some(call) if !plans.iter().any(|(known, _)| known == id) => {
                    if args.json {
                        writeln!(out, "{:#}", Value::from(vec![call_json(call)]))?;
                        return Ok(Exit::Success);
                    }
                    answer(loaded, &store, call, args, out)
                }
                _ => provisioned::approve(loaded, args, out),
            }
        }
    }
}

fn list(loaded: &Loaded, calls: &[AskedCall], out: &mut dyn Write) -> anyhow::Result<Exit> {
    let has_plans = provisioned::list_waiting(loaded, out)?;
    for call in calls {
        writeln!(out, "{}  a call", render::styled(render::BOLD, &call.id()))?;
        writeln!(out, "{}", render::visible(&call.told()))?;
    }
    if !has_plans && calls.is_empty() {
        writeln!(out, "No plan is pending, and no call waits.")?;
    }
    Ok(Exit::Success)
}

/// Shows a call and asks for approval, which only a person at a terminal can give.
fn answer(
    loaded: &Loaded,
    store: &ApprovalStore,
    call: &AskedCall,
    args: &ApproveArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let span = match (&args.span, args.always) {
        (None, false) => Span::Once,
        (None, true) => Span::Always,
        (Some(span), false) => Span::Millis(millis(span).or_misuse()?),
        (Some(_), true) => return Err(misuse("give --for or --always, not both")),
    };
    if args.any_arguments && span == Span::Once {
        return Err(misuse("--any-arguments needs --for or --always: one call has its arguments"));
    }
    writeln!(out, "{}", render::visible(&call.told()))?;
    let audited = Audited::new(&loaded.config.settings);
    let digest = if args.any_arguments { "*" } else { &call.digest };
    let subject = Subject::Call { server: &call.server, tool: &call.tool, arguments: digest };
    if args.decline {
        audited.record(subject, "declined")?;
        store.answer(call, false, Span::Once, false)?;
        writeln!(out, "Declined; the same call is refused for some minutes without asking again.")?;
        return Ok(Exit::Success);
    }
    // What a program can type, a model can make a program type; so there is no flag for this approval.
    anyhow::ensure!(
        prompt::is_there(),
        "approval needs a person at a terminal; nothing was approved"
    );
    let what = match (args.any_arguments, span) {
        (_, Span::Once) => "this call once".to_owned(),
        (false, Span::Always) => "this call, with these arguments, always".to_owned(),
        (true, Span::Always) => {
            "every call of this tool, whatever its arguments, always".to_owned()
        }
        (false, Span::Millis(_)) => {
            format!("this call, with these arguments, for {}", for_how_long(args))
        }
        (true, Span::Millis(_)) => {
            format!("every call of this tool, whatever its arguments, for {}", for_how_long(args))
        }
    };
    if prompt::line(out, &format!("Allow {what}? Type yes: "))? != "yes" {
        writeln!(out, "Nothing was approved.")?;
        return Ok(Exit::Failure);
    }
    audited.record(subject, "approved")?;
    let answer = store.answer(call, true, span, args.any_arguments)?;
    writeln!(out, "Approved. A call that waits is sent now; else the model has to make it again.")?;
    if span != Span::Once {
        writeln!(out, "`metamcp approve --revoke {}` takes it back.", answer.id())?;
    }
    Ok(Exit::Success)
}

fn for_how_long(args: &ApproveArgs) -> &str {
    args.span.as_deref().unwrap_or_default()
}

/// `30m`, `2h`, `7d`.
fn millis(span: &str) -> anyhow::Result<u64> {
    let wrong = || format!("{span:?} is no time: write 30m, 2h or 7d");
    let at = span.find(|c: char| !c.is_ascii_digit()).with_context(wrong)?;
    let (number, unit) = span.split_at(at);
    let unit = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => anyhow::bail!(wrong()),
    };
    let millis = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let millis = millis.filter(|millis| (1..=MAX_SPAN_MS).contains(millis));
    millis.with_context(|| format!("{span:?} is not between 1s and 366d; --always has no end"))
}

fn granted(store: &ApprovalStore, as_json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let answers = store.answers()?;
    if as_json {
        let all: Vec<Value> = answers.iter().map(answer_json).collect();
        writeln!(out, "{:#}", Value::from(all))?;
        return Ok(Exit::Success);
    }
    if answers.is_empty() {
        writeln!(out, "No approval of a call is stored.")?;
    }
    let now = unix_millis();
    for answer in &answers {
        let until = match (answer.until, answer.once) {
            (Some(until), true) => format!("once, until {}", local_time::moment(until, now)),
            (Some(until), false) => format!("until {}", local_time::moment(until, now)),
            (None, _) => "always".to_owned(),
        };
        let what = match &answer.digest {
            Some(_) => answer.about.as_str(),
            None => "with any arguments",
        };
        let verdict = if answer.approved { "allowed" } else { "refused" };
        let line = format!("{}:{}  {verdict} {until}  {what}", answer.server, answer.tool);
        let id = render::styled(render::BOLD, &answer.id());
        writeln!(out, "{id}  {}", render::visible(&line))?;
    }
    Ok(Exit::Success)
}

fn revoke(
    loaded: &Loaded,
    store: &ApprovalStore,
    id: &str,
    as_json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let all = id == "all";
    let audited = Audited::new(&loaded.config.settings);
    let known = store.answers()?;
    if !all && !known.iter().any(|answer| answer.id() == id) {
        let id = render::visible(id);
        return Err(misuse(format!("no approval {id} is stored; --granted lists them")));
    }
    let revoked = store.revoke(Some(id).filter(|_| !all))?;
    for answer in &revoked {
        let arguments = answer.digest.as_deref().unwrap_or("*");
        let subject = Subject::Call { server: &answer.server, tool: &answer.tool, arguments };
        audited.record(subject, "revoked")?;
    }
    if as_json {
        let revoked: Vec<Value> = revoked.iter().map(answer_json).collect();
        writeln!(out, "{:#}", json!({ "revoked": revoked }))?;
    } else {
        writeln!(out, "Revoked {}.", revoked.len())?;
    }
    Ok(Exit::Success)
}

fn call_json(call: &AskedCall) -> Value {
    json!({
        "id": call.id(),
        "call": {
            "server": call.server,
            "tool": call.tool,
            "shownAs": call.shown_as,
            "arguments": call.arguments,
            "sha256": call.digest,
            "client": call.client,
            "since": call.since,
        },
    })
}

fn answer_json(answer: &StoredAnswer) -> Value {
    json!({
        "id": answer.id(),
        "server": answer.server,
        "tool": answer.tool,
        "sha256": answer.digest,
        "approved": answer.approved,
        "once": answer.once,
        "until": answer.until,
        "at": answer.at,
        "about": answer.about,
    })
}

#[cfg(test)]
mod tests {
    use super::millis;

    #[test]
    fn times_are_read_and_bounded() {
        for (text, expect) in
            [("90s", 90_000), ("30m", 1_800_000), ("2h", 7_200_000), ("7d", 604_800_000)]
        {
            assert_eq!(millis(text).unwrap(), expect);
        }
        for wrong in ["", "1", "h", "0m", "1y", "-1h", "9999999999999999d", "400d", "1.5h"] {
            assert!(millis(wrong).is_err(), "{wrong}");
        }
    }
}
