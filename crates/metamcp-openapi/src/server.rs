//! Where an API is: the servers of a description, with their variables.
//! Owns: which of them is taken, what a relative one is relative to.      Never: decides whether it may be visited.
//! In: `servers` as written, the address of the description.  Out: an `Address`, or why there is none.
//! Tests: `tests/descriptions.rs`.

use metamcp_types::web::Address;
use serde_json::Value;

use crate::document::{DescriptionError, quoted};

/// Servers that are looked at.
const MAX_SERVERS: usize = 20;

/// The first server that can be used.
pub(crate) fn base(
    servers: Option<&Value>,
    home: Option<&Address>,
) -> Result<Address, DescriptionError> {
    let all: Vec<String> = listed(servers);
    let mut why = None;
    for written in &all {
        match address(written, home) {
            Ok(address) => return Ok(address),
            Err(error) => drop(why.get_or_insert(error)),
        }
    }
    if all.is_empty()
        && let Some(home) = home
    {
        return address("/", Some(home));
    }
    Err(why.unwrap_or_else(|| {
        DescriptionError::new("#/servers", "it does not say where its API is").hint(BASE_URL)
    }))
}

const BASE_URL: &str = "set `baseUrl` in the server's entry";

/// The addresses of servers, with the defaults of their variables.
pub(crate) fn listed(servers: Option<&Value>) -> Vec<String> {
    let all = servers.and_then(Value::as_array).into_iter().flatten().take(MAX_SERVERS);
    all.filter_map(|server| {
        let mut written = server.get("url")?.as_str()?.trim().to_owned();
        for (name, variable) in
            server.get("variables").and_then(Value::as_object).into_iter().flatten()
        {
            let first = || variable.get("enum")?.as_array()?.first();
            let value = match variable.get("default").or_else(first) {
                Some(Value::String(text)) => text.clone(),
                Some(other @ (Value::Number(_) | Value::Bool(_))) => other.to_string(),
                _ => continue,
            };
            written = written.replace(&format!("{{{name}}}"), &value);
        }
        Some(written)
    })
    .collect()
}

/// One server, absolute or relative to the description.
pub(crate) fn address(written: &str, home: Option<&Address>) -> Result<Address, DescriptionError> {
    let fail = |message: String| DescriptionError::new("#/servers", message).hint(BASE_URL);
    if written.contains('{') {
        let message = format!("the server {} has a variable without a default", quoted(written));
        return Err(fail(message));
    }
    let found = match home {
        Some(home) => home.join(written),
        None if !written.contains("://") => {
            let message = format!("the server {} is no whole address", quoted(written));
            return Err(fail(message));
        }
        None => Address::parse(written),
    };
    let found = found.map_err(|error| fail(format!("the server {} {error}", quoted(written))))?;
    Ok(found.without_query())
}
