//! Requests about the configuration: each value in force, with where it comes from.

use serde_json::{Value, json};

use super::AdminError;
use super::contextual::Asking;

/// The same as `metamcp config check --json`, with the folder it is of.
pub(super) async fn all(asking: &Asking) -> Result<Value, AdminError> {
    let mut told = asking.command_json(&["config", "check", "--json"]).await?;
    told["folder"] = json!(asking.opener.client.folder);
    told["home"] = json!(asking.settings().home);
    Ok(told)
}
