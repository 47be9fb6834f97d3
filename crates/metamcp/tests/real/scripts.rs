//! Code mode over real servers, as a model would write it, and its token savings compared with single calls.

use std::fs;
use std::path::Path;

use metamcp_testkit::returned;
use serde_json::{Value, json};

use crate::installed::text;
use crate::peer::Peer;
use crate::world::World;

/// Log files of the tasks below.
const LOGS: usize = 60;
/// Lines of each.
const LINES: usize = 120;

fn execute(gateway: &mut Peer, code: &str) -> (Value, Value) {
    let result: Value =
        serde_json::from_str(&gateway.call("mcp_execute", &json!({ "code": code }))).unwrap();
    let value = returned(&result).unwrap_or_else(|| panic!("{code}\n{result:#}"));
    (value, result)
}

fn with_logs() -> World {
    let world = World::new();
    fs::create_dir(world.files().join("logs")).unwrap();
    for file in 0..LOGS {
        let lines: Vec<String> = (0..LINES)
            .map(|line| {
                let level = if line % 40 == file % 40 { "ERROR" } else { "INFO" };
                format!(
                    "2026-01-02T03:{:02}:{:02}Z {level} worker-{file} handled request {line}",
                    line / 60,
                    line % 60
                )
            })
            .collect();
        fs::write(world.files().join(format!("logs/{file:02}.log")), lines.join("\n")).unwrap();
    }
    world
}

#[test]
fn a_large_listing_is_filtered_where_it_is() {
    let world = with_logs();
    let mut gateway = Peer::connect(&world, &world.gateway());
    let folder = text(&world.files().join("logs"));
    let (value, result) = execute(
        &mut gateway,
        &format!(
            "const listing: string = (await filesystem.listDirectory({{ path: {folder:?} }})).content ?? '';\n\
             const names = listing.split('\\n').map(line => line.replace('[FILE] ', '').trim()).filter(Boolean);\n\
             return names.filter(name => name.startsWith('1'));"
        ),
    );
    let names: Vec<String> = (10..20).map(|n| format!("{n}.log")).collect();
    assert_eq!(value, json!(names), "{result:#}");
}

/// The README's example has to work.
#[test]
fn the_script_of_the_readme_works() {
    let world = with_logs();
    let mut gateway = Peer::connect(&world, &world.gateway());
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let script = readme.split("```ts\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = text(&world.files().join("logs"));
    let (value, result) = execute(&mut gateway, &script.replace("/var/log/app", &folder));
    assert_eq!(value["files"], LOGS, "{result:#}");
    assert_eq!(value["errors"], LOGS * LINES / 40, "{result:#}");
}

#[test]
fn two_servers_are_joined() {
    let world = World::new();
    let mut gateway = Peer::connect(&world, &world.gateway());
    let repository = text(&world.repository());
    let (value, _) = execute(
        &mut gateway,
        &format!(
            "await memory.createEntities({{ entities: [{{ name: 'new.txt', entityType: 'file', observations: ['written by Ada'] }}] }});\n\
             const status = String(await git.gitStatus({{ repo_path: {repository:?} }}));\n\
             const graph = await memory.readGraph({{}});\n\
             return graph.entities.filter(entity => status.includes(entity.name)).map(entity => entity.observations[0]);"
        ),
    );
    assert_eq!(value, json!(["written by Ada"]));
}

#[test]
fn a_loop_tries_again_until_it_works() {
    let world = World::new();
    let mut gateway = Peer::connect(&world, &world.gateway());
    let file = text(&world.files().join("later.txt"));
    let (value, result) = execute(
        &mut gateway,
        &format!(
            "let tries = 0;\n\
             for (;;) {{\n\
               tries++;\n\
               try {{ await filesystem.readTextFile({{ path: {file:?} }}); return tries; }}\n\
               catch (error) {{\n\
                 if (!(error instanceof ToolError) || tries > 4) throw error;\n\
                 if (tries === 3) await filesystem.writeFile({{ path: {file:?}, content: 'here now' }});\n\
                 await sleep(1);\n\
               }}\n\
             }}"
        ),
    );
    assert_eq!(value, 4, "{result:#}");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("; 3 failed"), "{text}");
}

#[test]
fn one_failing_server_does_not_spoil_the_others() {
    let world = World::new();
    let mut config: Value = serde_json::from_slice(&fs::read(world.config()).unwrap()).unwrap();
    config["mcpServers"]["broken"] = json!({ "command": "/nonexistent/server" });
    fs::write(world.config(), config.to_string()).unwrap();
    let mut gateway = Peer::connect(&world, &world.gateway());
    let (value, _) = execute(
        &mut gateway,
        "const asked: [string, () => Promise<any>][] = [\n\
           ['time', () => time.getCurrentTime({ timezone: 'UTC' })],\n\
           ['everything', () => everything.echo({ message: 'hi' })],\n\
           ['broken', () => broken.anything({})],\n\
         ];\n\
         return await parallel(asked, async ([name, ask]) => {\n\
           try { await ask(); return `${name}: ok`; }\n\
           catch (error) { return `${name}: ${error.code}`; }\n\
         });",
    );
    assert_eq!(value, json!(["time: ok", "everything: ok", "broken: server_unavailable"]));
}

/// Three tasks, each done both ways; measures what passes through the model's context.
#[test]
fn data_heavy_tasks_cost_a_fraction_of_the_tokens() {
    let world = with_logs();
    let mut gateway = Peer::connect(&world, &world.gateway());
    let counter = tiktoken_rs::cl100k_base().unwrap();
    let tokens = |text: &str| counter.encode_ordinary(text).len();
    let said = |result: &str| {
        let result: Value = serde_json::from_str(result).unwrap();
        let parts = result["content"].as_array().unwrap().iter();
        parts.filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
    };
    let folder = text(&world.files().join("logs"));
    let (list, read) = ("filesystem:list_directory", "filesystem:read_text_file");
    let paths: Vec<String> = (0..LOGS).map(|n| format!("{folder}/{n:02}.log")).collect();
    let tasks = [
        (
            "count the errors of 60 log files",
            paths.iter().map(|path| (read, json!({ "path": path }))).collect::<Vec<_>>(),
            format!(
                "const names = [...Array({LOGS}).keys()].map(n => String(n).padStart(2, '0'));\n\
                 const texts = await parallel(names, n => filesystem.readTextFile.raw({{ path: `{folder}/${{n}}.log` }}), 8);\n\
                 return texts.flatMap(t => t.content[0].text.split('\\n')).filter(line => line.includes(' ERROR ')).length;"
            ),
            "180",
        ),
        (
            "find the worker with an error in second 7",
            std::iter::once((list, json!({ "path": folder })))
                .chain(paths.iter().map(|path| (read, json!({ "path": path }))))
                .collect(),
            format!(
                "const names = [...Array({LOGS}).keys()].map(n => String(n).padStart(2, '0'));\n\
                 for (const n of names) {{\n\
                   const t = (await filesystem.readTextFile.raw({{ path: `{folder}/${{n}}.log` }})).content[0].text;\n\
                   const line = t.split('\\n').find(line => line.includes(':07Z ERROR'));\n\
                   if (line) return line;\n\
                 }}"
            ),
            "worker-",
        ),
        (
            "the longest line of 30 files",
            paths.iter().take(30).map(|path| (read, json!({ "path": path }))).collect(),
            format!(
                "let longest = '';\n\
                 for (let n = 0; n < 30; n++) {{\n\
                   const result = await filesystem.readTextFile.raw({{ path: `{folder}/${{String(n).padStart(2, '0')}}.log` }});\n\
                   for (const line of result.content[0].text.split('\\n')) if (line.length > longest.length) longest = line;\n\
                 }}\n\
                 return longest;"
            ),
            "handled request",
        ),
    ];
    let mut table = String::new();
    for (name, calls, code, expected) in tasks {
        let mut one_by_one = 0;
        for (tool, args) in &calls {
            let arguments = json!({ "tool": tool, "args": args });
            one_by_one += tokens(&arguments.to_string());
            one_by_one += tokens(&said(&gateway.call("mcp_call", &arguments)));
        }
        let arguments = json!({ "code": code });
        let answer = said(&gateway.call("mcp_execute", &arguments));
        assert!(answer.contains(expected), "{answer}");
        let by_script = tokens(&arguments.to_string()) + tokens(&answer);
        let saved = 100.0 * (1.0 - by_script as f64 / one_by_one as f64);
        assert!(saved >= 98.0, "{name}: {by_script} of {one_by_one} tokens");
        table.push_str(&format!(
            "| {name}: {} calls | {one_by_one} | {by_script} | {saved:.1} % |\n",
            calls.len()
        ));
    }
    // `cargo xtask bench` includes it in its page.
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("code-tokens.md"), table).unwrap();
}
