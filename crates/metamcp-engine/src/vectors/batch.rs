//! Splits documents into requests, and into smaller ones when an API refuses them.

use std::borrow::Cow;

use metamcp_types::text;

use super::Document;

/// Characters in one request: the token limit of the strictest API, assuming a token each.
pub(super) const MAX_BATCH_CHARS: usize = 100_000;
/// Characters of one text. Models read a few thousand tokens and some refuse more.
const MAX_TEXT_CHARS: usize = 8_000;
/// The length of a text after it was refused alone.
const SHORT_TEXT_CHARS: usize = 1_000;

/// Documents for one request.
pub(super) struct Batch<'a> {
    pub(super) documents: Vec<&'a Document>,
    cut: Cut,
}

impl<'a> Batch<'a> {
    /// The text sent for a document.
    pub(super) fn text<'d>(&self, document: &'d Document) -> Cow<'d, str> {
        self.cut.apply(document)
    }

    /// What to try when the API refuses this: halves, then shorter text, then nothing more.
    pub(super) fn smaller(&self) -> Vec<Batch<'a>> {
        if let (1, cut) = (self.documents.len(), self.cut) {
            let cut = match cut {
                Cut::Long => Cut::Short,
                Cut::Short => Cut::Name,
                Cut::Name => return Vec::new(),
            };
            return vec![Batch { documents: self.documents.clone(), cut }];
        }
        let (left, right) = self.documents.split_at(self.documents.len() / 2);
        [left, right].map(|half| Batch { documents: half.to_vec(), cut: self.cut }).into()
    }
}

/// Batches of at most `most` documents, none with more characters than an API accepts.
pub(super) fn batches<'a>(absent: &[&'a Document], most: usize) -> Vec<Batch<'a>> {
    let mut batches: Vec<Batch<'a>> = Vec::new();
    let mut chars = 0;
    for document in absent {
        let more = document.text.chars().take(MAX_TEXT_CHARS).count();
        match batches.last_mut() {
            Some(last) if last.documents.len() < most && chars + more <= MAX_BATCH_CHARS => {
                last.documents.push(document);
                chars += more;
            }
            _ => {
                batches.push(Batch { documents: vec![document], cut: Cut::Long });
                chars = more;
            }
        }
    }
    batches
}

#[derive(Clone, Copy)]
enum Cut {
    Long,
    Short,
    /// The tool's name alone is better than no vector.
    Name,
}

impl Cut {
    fn apply(self, document: &Document) -> Cow<'_, str> {
        let text = match self {
            Cut::Long => text::cut(&document.text, MAX_TEXT_CHARS),
            Cut::Short => text::cut(&document.text, SHORT_TEXT_CHARS),
            Cut::Name => text::cut(&document.tool, SHORT_TEXT_CHARS),
        };
        // APIs refuse empty texts.
        match (text.trim().is_empty(), document.tool.trim().is_empty()) {
            (false, _) => text,
            (true, false) => text::cut(&document.tool, SHORT_TEXT_CHARS),
            (true, true) => Cow::Borrowed("tool"),
        }
    }
}
