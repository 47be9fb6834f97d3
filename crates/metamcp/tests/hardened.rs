//! The profiles `hardened` and `wasm`, in builds that have them: the same scripts and limits with another engine.
#![expect(
    clippy::unwrap_used,
    reason = "the whole binary is a test, which clippy cannot see outside test functions"
)]

use std::path::Path;
use std::time::Duration;

use metamcp_testkit::{Answer, Client, Workspace, chaos_server};
use serde_json::json;

/// A longer wait means a hang.
const HUNG: Duration = Duration::from_mins(2);

fn run(client: &Client, code: &str) -> Answer {
    let id = client.call_tool("mcp_execute", &json!({ "code": code })).unwrap();
    client.wait(id, HUNG).unwrap()
}

#[test]
fn scripts_run_and_end_as_they_do_in_the_native_engine() {
    scripts_run_and_end_as_ever_in("hardened");
}

#[test]
fn without_the_lockdown_they_do_as_well() {
    scripts_run_and_end_as_ever_in("wasm");
}

fn scripts_run_and_end_as_ever_in(profile: &str) {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    workspace.setting("code", json!({"profile": profile, "cpuMs": 500, "maxCalls": 5}));
    let command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
    let client = Client::start(command).unwrap();
    client.initialize(&json!({}), HUNG).unwrap();
    let honest = [
        ("return [1, 'two', { three: 3.5 }]", json!([1, "two", {"three": 3.5}])),
        ("return (await a.echo({ text: 'hi' }))", json!("hi")),
        ("await parallel([1, 2, 3], n => a.echo({ text: `${n}` }), 2)", json!([1, 2, 3])),
        ("try { await a.fail({}) } catch (e) { return e.code }", json!("tool_error")),
        (
            "await sleep(5); return new URL('https://a.example/b?c=d').searchParams.get('c')",
            json!("d"),
        ),
        (
            "const got = []; try { for (;;) got.push(await a.echo({ text: 'x' })) } catch (e) { return [got.length, e.name, e.limit, e.value] }",
            json!([5, "LimitError", "calls", 5]),
        ),
        (
            "try { await parallel([1, 2, 3], n => { if (n === 3) throw new Error('no'); return n }, 1) } catch (e) { return (await results.get(e.partial)).map(r => r.status) }",
            json!(["fulfilled", "fulfilled", "rejected"]),
        ),
    ];
    for (code, expected) in honest {
        let answer = run(&client, code);
        assert_eq!(answer.returned(), Some(expected), "{code}\n{:#}", answer.value);
    }
    let attacks = [
        ("for (;;) {}", "cpu_limit"),
        ("while (1) new Promise(() => { for (;;) {} })", "cpu_limit"),
        ("'x'.repeat(1e6).match(/(x+x+)+y/)", "cpu_limit"),
        ("[...Array(1e5).keys()].sort(() => { for (;;) {} })", "cpu_limit"),
        ("const all = []; for (;;) all.push(new Array(1e6).fill(7))", "memory_limit"),
        ("for (let i = 0; i < 9; i++) await a.echo({ text: 'x' })", "call_limit"),
        ("await new Promise(() => {})", "deadlock"),
        ("null.x", "error"),
    ];
    for (code, status) in attacks {
        let answer = run(&client, &format!("console.log('kept');\n{code}"));
        let told = &answer.value["result"]["structuredContent"];
        assert_eq!(told["details"]["status"], status, "{code}\n{told:#}");
        assert_eq!(told["details"]["logs"], json!(["kept"]), "{code}");
    }
    let thrown = run(&client, "const x = 1;\nx.y.z();");
    let told = &thrown.value["result"]["structuredContent"];
    assert_eq!(told["details"]["line"], 2, "{told:#}");
}
