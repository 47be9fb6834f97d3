//! Reading the arguments of one tool: each wrong type and each unknown name is an error that names the tool.

use std::borrow::Cow;

use metamcp_wire::object;

use metamcp_types::nearest::nearest;
use metamcp_types::text::shown;

/// The arguments of a tool are malformed: an error of the protocol, not of the tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadArguments {
    /// Not an object, or an ambiguous one.
    #[error("the arguments of {tool} cannot be used: {why}")]
    Unusable { tool: &'static str, why: String },
    /// One argument has the wrong form.
    #[error("`{name}` of {tool} must be {expected}")]
    Malformed {
        tool: &'static str,
        /// Which argument, with its place where it is inside another.
        name: String,
        /// What it should be.
        expected: Cow<'static, str>,
    },
    /// One argument is missing.
    #[error("{tool} needs `{name}`: {what}")]
    Missing { tool: &'static str, name: String, what: &'static str },
    /// One argument is unknown. To leave it out silently could run something else than was meant.
    #[error("{tool} does not know `{name}`{hint}")]
    Unknown {
        tool: &'static str,
        name: String,
        /// The nearest known name, as the end of a sentence.
        hint: String,
    },
}

/// The members of an object of arguments, raw.
#[derive(Debug)]
pub(super) struct Arguments<'a> {
    tool: &'static str,
    /// Where the object stands, as `steps[2].`; empty at the top.
    place: String,
    found: Vec<(&'static str, &'a [u8])>,
}

impl<'a> Arguments<'a> {
    /// Reads an object; nothing counts as an empty one.
    pub(super) fn read(
        tool: &'static str,
        raw: Option<&'a [u8]>,
        known: &[&'static str],
    ) -> Result<Self, BadArguments> {
        let raw = raw.filter(|raw| *raw != b"null").unwrap_or(b"{}");
        Self::inside(tool, String::new(), raw, known)
    }

    /// Reads an object that stands inside another.
    pub(super) fn inside(
        tool: &'static str,
        place: String,
        raw: &'a [u8],
        known: &[&'static str],
    ) -> Result<Self, BadArguments> {
        if !raw.starts_with(b"{") {
            let why = match place.strip_suffix('.') {
                Some(place) => format!("`{place}` is not an object"),
                None => "they are not an object".to_owned(),
            };
            return Err(BadArguments::Unusable { tool, why });
        }
        let mut found: Vec<(&'static str, &'a [u8])> = Vec::new();
        for (name, value) in object::members(raw) {
            let Some(known_name) = known.iter().find(|known| **known == name) else {
                let near = nearest(&name, known.iter().copied(), 1);
                let hint = match near.first() {
                    Some(near) => format!("; did you mean `{near}`?"),
                    None => format!("; it takes {}", known.join(", ")),
                };
                return Err(BadArguments::Unknown {
                    tool,
                    name: format!("{place}{}", shown(&name)),
                    hint,
                });
            };
            if found.iter().any(|(given, _)| given == known_name) {
                let why = format!("`{place}{known_name}` is given twice");
                return Err(BadArguments::Unusable { tool, why });
            }
            found.push((known_name, value));
        }
        Ok(Self { tool, place, found })
    }

    /// The raw value; `null` is as good as absent.
    pub(super) fn raw(&self, name: &str) -> Option<&'a [u8]> {
        let found = self.found.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| *value).filter(|value| *value != b"null")
    }

    /// A text; a blank one is as good as absent.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, BadArguments> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let text = object::text(raw).ok_or_else(|| self.malformed(name, "a string"))?;
        Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
    }

    /// A text that has to be there.
    pub(super) fn needed(&self, name: &str, what: &'static str) -> Result<String, BadArguments> {
        self.text(name)?.ok_or_else(|| BadArguments::Missing {
            tool: self.tool,
            name: format!("{}{name}", self.place),
            what,
        })
    }

    /// A whole number, clamped to its range.
    pub(super) fn whole(
        &self,
        name: &str,
        (least, most): (u64, u64),
    ) -> Result<Option<u64>, BadArguments> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let number = std::str::from_utf8(raw).ok().and_then(|text| text.parse::<f64>().ok());
        let whole = number.filter(|number| number.fract() == 0.0);
        let whole = whole.ok_or_else(|| self.malformed(name, "a whole number"))?;
        Ok(Some((whole.max(0.0) as u64).clamp(least, most)))
    }

    /// A whole number that is refused below its range: less than nothing of it cannot have been meant.
    pub(super) fn at_least(
        &self,
        name: &str,
        (least, most): (u64, u64),
    ) -> Result<Option<u64>, BadArguments> {
        let number = |raw| std::str::from_utf8(raw).ok()?.parse::<f64>().ok();
        if self.raw(name).and_then(number).is_some_and(|number| number < least as f64) {
            return Err(self.malformed(name, format!("a whole number, {least} or more")));
        }
        self.whole(name, (least, most))
    }

    /// True or false.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, BadArguments> {
        match self.raw(name) {
            None => Ok(None),
            Some(b"true") => Ok(Some(true)),
            Some(b"false") => Ok(Some(false)),
            Some(_) => Err(self.malformed(name, "true or false")),
        }
    }

    /// An object, raw.
    pub(super) fn object(&self, name: &str) -> Result<Option<&'a [u8]>, BadArguments> {
        match self.raw(name) {
            None => Ok(None),
            Some(raw) if raw.starts_with(b"{") => Ok(Some(raw)),
            Some(_) => Err(self.malformed(name, "an object")),
        }
    }

    pub(super) fn malformed(
        &self,
        name: &str,
        expected: impl Into<Cow<'static, str>>,
    ) -> BadArguments {
        BadArguments::Malformed {
            tool: self.tool,
            name: format!("{}{name}", self.place),
            expected: expected.into(),
        }
    }
}
