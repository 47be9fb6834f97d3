//! Matching of URIs against URI templates.

/// How well `uri` fits `template`: the number of characters that the template fixes, more for the better one. `None` if it
/// does not fit. An expression in braces stands for any text; what exactly it may hold is the server's own business.
pub fn fits(template: &str, uri: &str) -> Option<usize> {
    let mut fixed = 0;
    let mut rest = uri;
    let mut parts = Literals { rest: Some(template) };
    let first = parts.next()?;
    rest = rest.strip_prefix(first)?;
    fixed += first.len();
    let mut last = None;
    for part in parts {
        // The one before was not the last, and may stand anywhere.
        if let Some(part) = last.replace(part) {
            let at = rest.find(part)?;
            rest = &rest[at + part.len()..];
            fixed += part.len();
        }
    }
    match last {
        Some(part) => rest.strip_suffix(part).map(|_| fixed + part.len()),
        None => rest.is_empty().then_some(fixed),
    }
}

/// The texts of a template around its expressions.
struct Literals<'a> {
    rest: Option<&'a str>,
}

impl<'a> Iterator for Literals<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.rest?;
        let expression =
            rest.find('{').and_then(|open| Some((open, open + rest[open..].find('}')?)));
        match expression {
            Some((open, close)) => {
                self.rest = Some(&rest[close + 1..]);
                Some(&rest[..open])
            }
            None => self.rest.take(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn addresses_fit_the_templates_they_are_made_from() {
        assert_eq!(fits("memo://one/{id}", "memo://one/7"), Some(11));
        assert_eq!(fits("memo://one/{id}", "memo://two/7"), None);
        assert_eq!(fits("file:///{+path}", "file:///a/b/c"), Some(8));
        assert_eq!(fits("a://{x}/mid/{y}.txt", "a://1/mid/2.txt"), Some(13));
        assert_eq!(fits("a://{x}/mid/{y}.txt", "a://1/mid/2.md"), None);
        assert_eq!(fits("a://{x}/mid/{y}.txt", "a://mid.txt"), None);
        assert_eq!(fits("a://b", "a://b"), Some(5));
        assert_eq!(fits("a://b", "a://bc"), None);
        assert_eq!(fits("{x}", "anything"), Some(0));
        assert_eq!(fits("a{x", "a{x"), Some(3));
        assert_eq!(fits("é{x}é", "é-é"), Some(4));
    }
}
