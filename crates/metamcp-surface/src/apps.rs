//! MCP Apps: tools with a user interface of their own, for hosts that show such pages.
//! Owns: which tools have one, the names and addresses they have here.      Never: reads a page, calls a tool.
//! In: definitions of tools, as their servers wrote them.  Out: definitions for the host, addresses both ways.
//! Tests: below.
//!
//! A host knows one server, this gateway; a page knows its own, and calls that server's tools by their own names. So a tool
//! with a page is listed twice: for the model under a name with its server, and for pages under its own.

use metamcp_tools::tool::Tool;
use serde_json::{Value, json};

/// The extension, by its name in capabilities.
pub const EXTENSION: &str = "io.modelcontextprotocol/ui";
/// What pages are.
pub const MIME_TYPE: &str = "text/html;profile=mcp-app";
const SCHEME: &str = "ui://";
/// Longest address of a page.
const MAX_ADDRESS: usize = 2048;
/// Characters of a definition that make a token, on the safe side for JSON.
const CHARS_PER_TOKEN: usize = 3;

/// Whether a client shows pages.
pub fn shown_by(capabilities: &Value) -> bool {
    capabilities["extensions"][EXTENSION].is_object()
}

/// For whom a listed name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    Model,
    Page,
}

/// What a tool says about pages.
#[derive(Debug, Clone, PartialEq)]
pub struct AppTool {
    definition: Value,
    /// The address of its page at its server.
    pub page: Option<String>,
    pub is_for_model: bool,
    pub is_for_pages: bool,
}

impl AppTool {
    /// Nothing for a tool that has nothing to do with pages.
    pub fn of(tool: &Tool) -> Option<AppTool> {
        // Few tools have anything to do with them.
        if !tool.raw().contains("\"ui") {
            return None;
        }
        let definition: Value = serde_json::from_str(tool.raw()).ok()?;
        let meta = &definition["_meta"];
        let page = meta["ui"]["resourceUri"].as_str().or(meta["ui/resourceUri"].as_str());
        let fits = |page: &&str| page.starts_with(SCHEME) && page.len() <= MAX_ADDRESS;
        let page = page.filter(fits).map(str::to_owned);
        let visible = meta["ui"]["visibility"].as_array();
        let is_for = |whom: &str| visible.is_none_or(|to| to.iter().any(|one| one == whom));
        if page.is_none() && visible.is_none() {
            return None;
        }
        let (is_for_model, is_for_pages) = (is_for("model"), is_for("app"));
        Some(AppTool { definition, page, is_for_model, is_for_pages })
    }

    /// Its definition under another name, for one audience, with its page's address as it is here.
    pub fn definition(&self, name: &str, server: &str, audience: Audience) -> Value {
        let mut definition = self.definition.clone();
        definition["name"] = name.into();
        let whom = match audience {
            Audience::Model => "model",
            Audience::Page => "app",
        };
        if !definition["_meta"]["ui"].is_object() {
            definition["_meta"]["ui"] = json!({});
        }
        let ui = &mut definition["_meta"]["ui"];
        ui["visibility"] = json!([whom]);
        if let Some(page) = &self.page {
            ui["resourceUri"] = address(server, page).into();
        }
        if let Some(meta) = definition["_meta"].as_object_mut() {
            meta.remove("ui/resourceUri");
        }
        if audience == Audience::Model
            && let Some(description) = definition["description"].as_str()
        {
            definition["description"] = format!("{description} (server {server:?})").into();
        }
        definition
    }
}

/// About how many tokens a definition costs a model.
pub fn tokens(definition: &Value) -> usize {
    definition.to_string().chars().count().div_ceil(CHARS_PER_TOKEN)
}

/// The address here of a page of a server.
pub fn address(server: &str, page: &str) -> String {
    let rest = page.strip_prefix(SCHEME).unwrap_or(page);
    let mut address = String::from(SCHEME);
    for byte in server.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => address.push(byte.into()),
            _ => address.push_str(&format!("%{byte:02X}")),
        }
    }
    address.push('/');
    address.push_str(rest);
    address
}

/// The page that an address here means, by the names of the servers there are, and its server.
pub fn meant<'a>(
    address_here: &str,
    servers: impl IntoIterator<Item = &'a str>,
) -> Option<(&'a str, String)> {
    servers.into_iter().find_map(|server| {
        let start = address(server, "");
        let rest = address_here.strip_prefix(&start)?;
        Some((server, format!("{SCHEME}{rest}")))
    })
}

#[cfg(test)]
mod tests {
    use metamcp_tools::tool::Listing;

    use super::*;

    fn tool(meta: &Value) -> Option<AppTool> {
        let raw = json!({"tools": [{
            "name": "map", "description": "Shows a map.", "inputSchema": {"type": "object"}, "_meta": meta,
        }]});
        let mut listing = Listing::new();
        listing.page(raw.to_string().as_bytes()).unwrap();
        let tools = listing.finish(None, None);
        AppTool::of(tools.all().next().unwrap())
    }

    #[test]
    fn a_tool_with_a_page_is_for_both_unless_it_says_otherwise() {
        let both = tool(&json!({"ui": {"resourceUri": "ui://map/app.html"}})).unwrap();
        assert_eq!((both.is_for_model, both.is_for_pages), (true, true));
        assert_eq!(both.page.as_deref(), Some("ui://map/app.html"));
        let older = tool(&json!({"ui/resourceUri": "ui://map/app.html"})).unwrap();
        assert_eq!(older.page, both.page);
        let page_only = tool(&json!({"ui": {"visibility": ["app"]}})).unwrap();
        assert_eq!((page_only.is_for_model, page_only.is_for_pages), (false, true));
        for none in [json!({}), json!({"ui": {}}), json!({"ui": {"resourceUri": "https://x"}})] {
            assert_eq!(tool(&none), None, "{none}");
        }
    }

    #[test]
    fn a_definition_names_its_server_its_audience_and_the_address_here() {
        let both = tool(&json!({"ui/resourceUri": "ui://map/a.html", "own": 1})).unwrap();
        let listed = both.definition("maps__map", "maps", Audience::Model);
        assert_eq!(listed["name"], "maps__map");
        assert_eq!(listed["description"], "Shows a map. (server \"maps\")");
        assert_eq!(
            listed["_meta"],
            json!({"own": 1, "ui": {"visibility": ["model"], "resourceUri": "ui://maps/map/a.html"}})
        );
        let of_page = both.definition("map", "maps", Audience::Page);
        assert_eq!(of_page["_meta"]["ui"]["visibility"], json!(["app"]));
        assert_eq!(of_page["description"], "Shows a map.");
    }

    #[test]
    fn an_address_leads_back_to_its_page_and_to_no_other_server() {
        for server in ["maps", "my server", "a/b", "ü"] {
            let here = address(server, "ui://map/a.html?x=1#y");
            let (found, page) =
                meant(&here, ["other", "my", "maps", "my server", "a/b", "a", "ü"]).unwrap();
            assert_eq!((found, page.as_str()), (server, "ui://map/a.html?x=1#y"));
        }
        assert_eq!(meant("ui://map/a.html", ["maps"]), None);
        assert_eq!(meant("file:///etc/passwd", ["maps"]), None);
    }
}
