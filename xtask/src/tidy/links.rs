//! Relative links in Markdown: the file must exist, and so must the heading that an anchor names.

use std::collections::{HashMap, HashSet};

use super::{Finding, Tree, is};

pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let pages: HashMap<&str, HashSet<String>> = tree
        .files
        .iter()
        .filter(|file| is(file, "md"))
        .map(|file| (file.path.as_str(), anchors(&file.text)))
        .collect();
    let paths: HashSet<&str> = tree.files.iter().map(|file| file.path.as_str()).collect();
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| is(file, "md")) {
        for (number, line) in prose(&file.text) {
            for target in targets(line) {
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let Some(path) = resolved(&file.path, path) else {
                    let message = format!("the link {target} leads out of the tree");
                    findings.push(Finding::new(&file.path, number, message));
                    continue;
                };
                let is_folder = || paths.iter().any(|known| known.starts_with(&format!("{path}/")));
                if !paths.contains(path.as_str()) && !is_folder() {
                    let message = format!("the link {target} leads to no file");
                    findings.push(Finding::new(&file.path, number, message));
                } else if !anchor.is_empty()
                    && pages.get(path.as_str()).is_some_and(|known| !known.contains(anchor))
                {
                    let message = format!("the link {target} leads to no heading");
                    findings.push(Finding::new(&file.path, number, message));
                }
            }
        }
    }
    findings
}

/// Lines outside of fenced code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((index + 1, line))
    })
}

/// The relative targets of `[text](target)` and `![text](target)` in a line; code spans hold none.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, mark)| {
        let in_code = line[..at].matches('`').count() % 2 == 1
            && line[at..].split_once(')').is_some_and(|(_, rest)| rest.contains('`'));
        let target = line[at + mark.len()..].split(')').next().unwrap_or_default();
        (!in_code && !target.contains(':') && !target.contains(' ')).then_some(target)
    })
}

/// The headings of a page as GitHub turns them into anchors.
fn anchors(text: &str) -> HashSet<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let headings = prose(text).filter_map(|(_, line)| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len()).then_some(heading.strip_prefix(' ')?)
    });
    headings
        .map(|heading| {
            let slug: String = without_targets(heading)
                .trim()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .flat_map(char::to_lowercase)
                .collect();
            let before = seen.entry(slug.clone()).or_default();
            *before += 1;
            if *before == 1 { slug } else { format!("{slug}-{}", *before - 1) }
        })
        .collect()
}

/// A heading with its links replaced by their text.
fn without_targets(heading: &str) -> String {
    let mut text = heading.to_owned();
    while let Some(at) = text.find("](") {
        let end = text[at..].find(')').map_or(text.len(), |end| at + end + 1);
        text.replace_range(at..end, "");
    }
    text
}

/// A link of a page as a path from the root, `None` where it leads above it.
fn resolved(page: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(page.to_owned());
    }
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let other = "# Other\n\n## A `--flag`, and [more](a.md)\n\n## Twice\n\n## Twice\n";
        let tree = Tree::of(&[
            ("docs/a.md", text),
            ("docs/b.md", other),
            ("docs/pictures/x.svg", ""),
            ("README.md", "# Top\n"),
        ]);
        links(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn what_leads_somewhere_passes() {
        let good = [
            "[b](b.md) and [top](../README.md#top), ![x](pictures/x.svg), [folder](pictures/)",
            "[flag](b.md#a---flag-and-more), [second](b.md#twice-1), [site](https://example.com/#x)",
            "# Here\n\n[here](#here)",
            "`[not](a link)` and\n\n```\n[nor](this.md)\n```",
        ];
        for text in good {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn dead_links_and_anchors_are_found() {
        assert_eq!(found("[gone](gone.md)"), ["the link gone.md leads to no file"]);
        assert_eq!(found("[b](b.md#thrice)"), ["the link b.md#thrice leads to no heading"]);
        assert_eq!(found("[up](../../x.md)"), ["the link ../../x.md leads out of the tree"]);
        assert_eq!(found("[here](#nowhere)"), ["the link #nowhere leads to no heading"]);
    }
}
