//! Names of tools and of their arguments: characters that every client takes, unique, the same every time.
//! Owns: what becomes of a name that is not usable.      Never: depends on which operations are wanted.
//! In: operation ids, methods and paths, names of parameters.  Out: names.
//! Tests: below.

use std::collections::HashSet;

/// Longest name of a tool: clients put the server's in front, and some models take 64 for both.
const MAX_TOOL: usize = 52;
/// Longest name of an argument; some models take no longer one.
const MAX_KEY: usize = 64;

/// Names given so far.
#[derive(Debug, Default)]
pub(crate) struct Names(HashSet<String>);

impl Names {
    /// The name of an operation's tool.
    pub(crate) fn tool(&mut self, id: Option<&str>, method: &str, path: &str) -> String {
        let said = id.map(plain).filter(|name| !name.is_empty());
        let name = said.unwrap_or_else(|| of_place(method, path));
        let name = if name.len() > MAX_TOOL { shortened(&name, MAX_TOOL) } else { name };
        self.free(&name)
    }

    /// The name of an argument.
    pub(crate) fn key(&mut self, written: &str, otherwise: &str) -> String {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        let name =
            if !written.is_empty() && written.len() <= MAX_KEY && written.chars().all(allowed) {
                written.to_owned()
            } else {
                let name = plain(written);
                if name.len() > MAX_KEY { shortened(&name, MAX_KEY) } else { name }
            };
        let name = if name.is_empty() { otherwise.to_owned() } else { name };
        if self.0.contains(&name) {
            return self.free(&format!("{name}_{otherwise}"));
        }
        self.free(&name)
    }

    fn free(&mut self, name: &str) -> String {
        let mut free = name.to_owned();
        let mut count = 2;
        while !self.0.insert(free.clone()) {
            free = format!("{name}_{count}");
            count += 1;
        }
        free
    }
}

/// Letters, digits, `_` and `-`; whatever else there is becomes one `_`.
fn plain(written: &str) -> String {
    let mut name = String::with_capacity(written.len());
    for c in written.chars() {
        if c.is_ascii_alphanumeric() || c == '-' || c == '_' {
            name.push(c);
        } else if !name.ends_with('_') && !name.is_empty() {
            name.push('_');
        }
    }
    name.trim_matches(['_', '-']).to_owned()
}

/// `GET /users/{id}/posts` as `get_users_by_id_posts`.
fn of_place(method: &str, path: &str) -> String {
    let mut name = method.to_ascii_lowercase();
    for part in path.split('/') {
        let is_variable = part.starts_with('{') && part.ends_with('}');
        let part = plain(part);
        if !part.is_empty() {
            name.push_str(if is_variable { "_by_" } else { "_" });
            name.push_str(&part);
        }
    }
    name
}

/// Its beginning, and something that tells it from others that begin the same.
fn shortened(name: &str, most: usize) -> String {
    // FNV-1a: the same on every machine and in every version.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{}_{:06x}", name[..most - 7].trim_end_matches(['_', '-']), hash & 0xff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_named_after_their_operation_or_place() {
        let mut names = Names::default();
        for (id, method, path, expected) in [
            (Some("listPets"), "get", "/pets", "listPets"),
            (Some("listPets"), "get", "/cats", "listPets_2"),
            (Some("repos/list-for-org"), "get", "/x", "repos_list-for-org"),
            (Some("Users: create (v2)"), "post", "/x", "Users_create_v2"),
            (None, "get", "/users/{id}/posts", "get_users_by_id_posts"),
            (None, "get", "/", "get"),
            (Some("日本"), "put", "/a", "put_a"),
            (Some("  "), "put", "/a", "put_a_2"),
        ] {
            assert_eq!(names.tool(id, method, path), expected);
        }
        let long = names.tool(Some(&"very_long_".repeat(20)), "get", "/");
        let other = names.tool(Some(&format!("{}x", "very_long_".repeat(20))), "get", "/");
        assert!(
            long.len() <= MAX_TOOL && other.len() <= MAX_TOOL && long != other,
            "{long} {other}"
        );
    }

    #[test]
    fn arguments_are_named_so_that_every_model_takes_them() {
        let mut names = Names::default();
        for (written, otherwise, expected) in [
            ("id", "path", "id"),
            ("id", "query", "id_query"),
            ("id", "header", "id_header"),
            ("filter[status]", "query", "filter_status"),
            ("$top", "query", "top"),
            ("X-Request-Id", "header", "X-Request-Id"),
            ("", "query", "query"),
            ("ids[]", "query", "ids"),
            ("a.b", "query", "a.b"),
        ] {
            assert_eq!(names.key(written, otherwise), expected);
        }
        assert!(names.key(&"k".repeat(300), "query").len() <= MAX_KEY);
    }
}
