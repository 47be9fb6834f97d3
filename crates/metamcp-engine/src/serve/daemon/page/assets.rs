//! The files of the page, as they are in `assets/`.
//! Owns: their list, and who may have which.      Never: builds them, fetches anything from elsewhere, makes markup of text.
//! In: nothing.  Out: names, types and contents.
//! Tests: below, `metamcp/tests/real/page.rs`.

/// A file of the page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asset {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) body: &'static str,
    /// Whether it is needed before anybody was let in; it holds nothing but the way in.
    pub(super) is_open: bool,
}

macro_rules! asset {
    ($name:literal, $kind:literal, $is_open:literal) => {
        Asset {
            name: $name,
            kind: $kind,
            body: include_str!(concat!("assets/", $name)),
            is_open: $is_open,
        }
    };
}

/// The page itself.
pub(super) const INDEX: &str = include_str!("assets/index.html");
/// Exchanges a link for the cookie.
pub(super) const ENTER: &str = include_str!("assets/enter.html");
/// For who has no cookie.
pub(super) const CLOSED: &str = include_str!("assets/closed.html");

pub(super) const ASSETS: &[Asset] = &[
    asset!("style.css", "text/css; charset=utf-8", true),
    asset!("theme.js", "text/javascript; charset=utf-8", true),
    asset!("enter.js", "text/javascript; charset=utf-8", true),
    asset!("icon.svg", "image/svg+xml", true),
    asset!("app.js", "text/javascript; charset=utf-8", false),
    asset!("dom.js", "text/javascript; charset=utf-8", false),
    asset!("api.js", "text/javascript; charset=utf-8", false),
    asset!("charts.js", "text/javascript; charset=utf-8", false),
    asset!("form.js", "text/javascript; charset=utf-8", false),
    asset!("overview.js", "text/javascript; charset=utf-8", false),
    asset!("servers.js", "text/javascript; charset=utf-8", false),
    asset!("tools.js", "text/javascript; charset=utf-8", false),
    asset!("calls.js", "text/javascript; charset=utf-8", false),
    asset!("scripts.js", "text/javascript; charset=utf-8", false),
    asset!("approvals.js", "text/javascript; charset=utf-8", false),
    asset!("gallery.js", "text/javascript; charset=utf-8", false),
    asset!("sessions.js", "text/javascript; charset=utf-8", false),
    asset!("fleet.js", "text/javascript; charset=utf-8", false),
    asset!("settings.js", "text/javascript; charset=utf-8", false),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// What makes markup or code out of text. The page builds every element by itself.
    const SINKS: [&str; 16] = [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "srcdoc",
        "createContextualFragment",
        "DOMParser",
        "setHTMLUnsafe",
        "javascript:",
        "setAttribute(\"on",
        "setAttribute('on",
        "setTimeout(\"",
        "import(",
        ".cssText",
    ];

    #[test]
    fn no_script_makes_markup_or_code_out_of_text() {
        for asset in ASSETS.iter().filter(|asset| asset.kind.starts_with("text/javascript")) {
            for sink in SINKS {
                assert!(!asset.body.contains(sink), "{} has {sink}", asset.name);
            }
        }
    }

    #[test]
    fn no_document_has_a_script_a_style_or_an_address_of_its_own() {
        for page in [INDEX, ENTER, CLOSED] {
            for found in page.match_indices("<script").map(|(at, _)| &page[at..]) {
                let tag = &found[..found.find('>').unwrap()];
                assert!(tag.contains(" src=\"/assets/"), "{tag}");
            }
            for bad in ["<style", " style=", " on", "http:", "https:", "//"] {
                let is_there = match bad {
                    " on" => {
                        [" onload", " onclick", " onerror"].iter().any(|one| page.contains(one))
                    }
                    _ => page.contains(bad),
                };
                assert!(!is_there, "{bad}");
            }
        }
        for asset in ASSETS {
            let body = asset.body.replace("http://www.w3.org/2000/svg", "");
            for bad in ["https://", "http://", "url(//", "@import"] {
                assert!(!body.contains(bad), "{} names {bad}", asset.name);
            }
        }
    }

    #[test]
    fn the_page_stays_small() {
        let all: usize = ASSETS.iter().map(|asset| asset.body.len()).sum();
        let all = all + INDEX.len() + ENTER.len() + CLOSED.len();
        assert!(all < 300 * 1024, "{all} bytes");
    }
}
