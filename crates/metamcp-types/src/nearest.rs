//! The names closest to one that does not exist, for errors that say what to do next.
//! Owns: the distance between two names.      Never: decides what happens to the wrong name.
//! In: a name and the candidates.  Out: up to `limit` candidates, best first.
//! Tests: below.

/// Longest name that is compared; beyond it a typo is not what went wrong, and the cost is quadratic.
const MAX_COMPARED: usize = 96;

/// The candidates close enough to `name` to be what was meant, best first.
pub fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    limit: usize,
) -> Vec<&'a str> {
    let wanted = folded(name);
    if wanted.is_empty() || wanted.len() > MAX_COMPARED {
        return Vec::new();
    }
    let mut scored: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter_map(|candidate| Some((score(&wanted, &folded(candidate))?, candidate)))
        .collect();
    scored.sort_unstable();
    scored.truncate(limit);
    scored.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Whether a name is most likely this one, mistyped: another spelling of it, or a slip in a few of its letters. Stricter
/// than being near: a name that only holds the other, or shares much with it, is a name of its own.
pub fn is_slip(name: &str, meant: &str) -> bool {
    let (name, meant) = (folded(name), folded(meant));
    let longest = name.len().max(meant.len());
    longest <= MAX_COMPARED && distance(&name, &meant) * 5 <= longest
}

/// What is wrong with an argument that a tool does not have; `None` where it is like none of those it has, so that nobody
/// can have meant one of them by it.
pub fn mistaken_argument(tool: &str, name: &str, known: &[&str]) -> Option<String> {
    let near = nearest(name, known.iter().copied(), 1);
    let near = near.first()?;
    Some(format!("{tool} has no argument `{}`; did you mean `{near}`?", crate::text::shown(name)))
}

/// Case and separators are what people get wrong most; they cost nothing.
fn folded(name: &str) -> Vec<char> {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Distance where close enough, `None` where not. A name contained in the other counts as a near miss.
fn score(wanted: &[char], candidate: &[char]) -> Option<usize> {
    if candidate.is_empty() || candidate.len() > MAX_COMPARED {
        return None;
    }
    let distance = distance(wanted, candidate);
    let longest = wanted.len().max(candidate.len());
    if distance * 5 <= longest * 2 {
        return Some(distance);
    }
    let (short, long) =
        if wanted.len() < candidate.len() { (wanted, candidate) } else { (candidate, wanted) };
    let contained = short.len() >= 3 && long.windows(short.len()).any(|window| window == short);
    contained.then_some(longest)
}

/// Edits between two names, a swap of neighbours counting as one.
pub fn distance(a: &[char], b: &[char]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, &from) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, &to) in b.iter().enumerate() {
            let mut best =
                (above[j + 1] + 1).min(row[j] + 1).min(above[j] + usize::from(from != to));
            if i > 0 && j > 0 && from == b[j - 1] && a[i - 1] == to {
                best = best.min(before[j - 1] + 1);
            }
            row[j + 1] = best;
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::{is_slip, mistaken_argument, nearest};

    #[test]
    fn an_argument_like_none_is_not_taken_for_one() {
        let known = ["query", "server", "limit"];
        let wrong = mistaken_argument("mcp_discover", "limt", &known).unwrap();
        assert_eq!(wrong, "mcp_discover has no argument `limt`; did you mean `limit`?");
        assert!(mistaken_argument("mcp_discover", "server_name", &known).is_some());
        assert_eq!(mistaken_argument("mcp_discover", "explanation", &known), None);
    }

    #[test]
    fn finds_what_was_meant() {
        let names = ["read_file", "write_file", "list_directory", "search_files"];
        assert_eq!(nearest("readFile", names, 3)[0], "read_file");
        assert_eq!(nearest("raed_file", names, 1), ["read_file"]);
        assert_eq!(nearest("directory", names, 3), ["list_directory"]);
        assert!(nearest("zzz", names, 3).is_empty());
        assert!(nearest("", names, 3).is_empty());
    }

    #[test]
    fn a_slip_is_nearer_than_near() {
        for (name, meant) in [
            ("excludeTool", "excludeTools"),
            ("enabeld", "enabled"),
            ("denied_tools", "deniedTools"),
        ] {
            assert!(is_slip(name, meant), "{name}");
        }
        for (name, other) in
            [("cacheToolsList", "tools"), ("tools", "toolset"), ("timeout", "tools"), ("x", "env")]
        {
            assert!(!is_slip(name, other), "{name}");
        }
    }
}
