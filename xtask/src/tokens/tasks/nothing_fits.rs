//! Tasks that no tool here does: the model should learn so quickly, and be sent to `mcp_provision`.

use anyhow::{Result, ensure};
use serde_json::json;

use super::Task;
use crate::tokens::conversation::{Model, start_of};

const KIND: &str = "nothing fits";

pub(super) const THE_WEATHER: Task = Task {
    name: "the weather",
    kind: KIND,
    prepare: |_, _| Ok(()),
    talk: |model, _| {
        let queries = ["weather forecast for tomorrow", "current temperature in a city"];
        ask_for(model, &queries, &["weather", "forecast"])
    },
};

pub(super) const MUSIC: Task = Task {
    name: "music",
    kind: KIND,
    prepare: |_, _| Ok(()),
    talk: |model, _| {
        let queries = ["play a song on Spotify", "control music playback"];
        ask_for(model, &queries, &["spotify", "music", "song"])
    },
};

/// Searches, in other words where the answer does not say that there is nothing, and then asks for a server.
fn ask_for(model: &mut Model<'_>, queries: &[&str], words: &[&str]) -> Result<()> {
    for query in queries {
        model.discover(query, &[])?;
        let answer = model.turns.last().map(|turn| turn.answer.as_str()).unwrap_or_default();
        if answer.contains("mcp_provision") {
            break;
        }
    }
    // An answer that offers a tool which has nothing to do with it is contradicted once, as it says.
    let mut arguments = json!({});
    for intent in queries {
        arguments["intent"] = json!(intent);
        let answer = model.ask("mcp_provision", arguments.clone())?.to_lowercase();
        if answer.contains("\"force\"") {
            arguments["force"] = json!(true);
        }
        let says_so = ["nothing was found", "no server", "no tool here", "could be installed"]
            .iter()
            .any(|words| answer.contains(words));
        let claims = answer.contains("nothing needs to be installed")
            && !words.iter().any(|word| answer.contains(word));
        if says_so && !claims {
            return Ok(());
        }
    }
    let answer = model.turns.last().map(|turn| turn.answer.as_str()).unwrap_or_default();
    ensure!(false, "it ended with: {}", start_of(answer));
    Ok(())
}
