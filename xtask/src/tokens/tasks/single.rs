//! Tasks that one tool does.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Task, site};
use crate::tokens::conversation::{Model, start_of};
use crate::tokens::place::Place;

const KIND: &str = "single";

pub(super) const A_LINE_IN_A_NOTE: Task = Task {
    name: "a line in a note",
    kind: KIND,
    prepare: |place, _| {
        place.write("home.txt", "router: in the hall\nwifi password: sunflower-42\nbins: Tuesday\n")
    },
    talk: |model, place| {
        let args = json!({ "path": place.file("home.txt") });
        let queries = ["read a text file", "show the contents of a file"];
        let answer = model.use_tool("filesystem:read_text_file", &queries, &args)?;
        contains(&answer, "sunflower-42")
    },
};

pub(super) const THE_LAST_COMMITS: Task = Task {
    name: "the last commits",
    kind: KIND,
    prepare: |place, _| commits(place),
    talk: |model, place| {
        let args = json!({ "repo_path": place.repository(), "max_count": 3 });
        let queries = ["list commits", "show the commit log of a repository"];
        let answer = model.use_tool("git:git_log", &queries, &args)?;
        contains(&answer, "Fix the login of guests")
    },
};

pub(super) const A_TIME_ELSEWHERE: Task = Task {
    name: "a time elsewhere",
    kind: KIND,
    prepare: |_, _| Ok(()),
    talk: |model, _| {
        let args = json!({
            "source_timezone": "America/Sao_Paulo", "time": "15:30", "target_timezone": "Asia/Tokyo",
        });
        let queries =
            ["what time is a meeting in another city", "convert a time between time zones"];
        let answer = model.use_tool("time:convert_time", &queries, &args)?;
        // Neither place has a summer time.
        contains(&answer, "03:30")
    },
};

pub(super) const A_FACT_TO_REMEMBER: Task = Task {
    name: "a fact to remember",
    kind: KIND,
    prepare: |_, _| Ok(()),
    talk: |model, place| {
        let entity = json!({
            "name": "Maria", "entityType": "person", "observations": ["allergic to peanuts"],
        });
        let args = json!({ "entities": [entity] });
        let queries = ["remember a fact about a person", "store an entity in the knowledge graph"];
        model.use_tool("memory:create_entities", &queries, &args)?;
        contains(&std::fs::read_to_string(place.memory())?, "allergic to peanuts")
    },
};

pub(super) const A_WEB_PAGE: Task = Task {
    name: "a web page",
    kind: KIND,
    prepare: |_, _| Ok(()),
    talk: |model, _| {
        let page = site::serve(
            "<html><body><h1>City library</h1><p>Opening hours: 9 to 18, Sundays closed.</p></body></html>",
        )?;
        let queries = ["read a web page", "fetch the content of a URL as markdown"];
        let answer = model.use_tool("fetch:fetch", &queries, &json!({ "url": page }))?;
        contains(&answer, "Sundays closed")
    },
};

/// Three commits, the second of which is about the login.
pub(super) fn commits(place: &Place) -> Result<()> {
    place.commit("README", "a shop\n", "Begin the shop")?;
    place.commit("login", "guests: no\n", "Fix the login of guests")?;
    place.commit("basket", "empty\n", "Add a basket")
}

pub(super) fn contains(answer: &str, expected: &str) -> Result<()> {
    ensure!(answer.contains(expected), "{expected:?} is not in: {}", start_of(answer));
    Ok(())
}

/// A call whose answer is not needed, only that it worked.
pub(super) fn succeeded(model: &Model<'_>) -> Result<()> {
    let answer = model.turns.last().map(|turn| turn.answer.as_str()).unwrap_or_default();
    ensure!(!crate::tokens::conversation::failed(answer), "it failed: {}", start_of(answer));
    Ok(())
}
