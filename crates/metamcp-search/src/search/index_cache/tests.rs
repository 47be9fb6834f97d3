//! Round trips are exact; corrupted bytes are rejected or harmless.

use proptest::prelude::*;
use serde_json::json;

use super::super::tests::{each_ranker, part, same, server_tools, tools, word};
use super::super::{CachedTokenizer, Index};
use super::*;

fn again(part: &ServerIndex, bytes: &[u8]) -> Option<Arc<ServerIndex>> {
    ServerIndex::from_bytes(part.cache_key(), part.server(), part.tools(), bytes).map(Arc::new)
}

proptest! {
    #[test]
    fn a_kept_part_is_the_part(
        lists in prop::collection::vec(server_tools(), 1..4),
        query in prop::collection::vec(word(), 1..4),
    ) {
        let parts: Vec<Arc<ServerIndex>> =
            lists.iter().enumerate().map(|(n, list)| part(&format!("server{n}"), list)).collect();
        let kept: Option<Vec<_>> = parts.iter().map(|part| again(part, &part.to_bytes())).collect();
        let kept = kept.expect("what was written is read");
        for (part, kept) in parts.iter().zip(&kept) {
            prop_assert_eq!(part.to_bytes(), kept.to_bytes());
        }
        same(&Index::new(parts), &Index::new(kept), &query.join(" "))?;
    }

    #[test]
    fn changed_bytes_are_refused_or_searched(
        list in server_tools(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        query in prop::collection::vec(word(), 1..4),
    ) {
        let part = part("server", &list);
        let mut bytes = part.to_bytes();
        prop_assert!(again(&part, &bytes[..cut.index(bytes.len())]).is_none(), "cut short");
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(changed) = again(&part, &bytes) {
            let index = Index::new(vec![changed]);
            each_ranker(&index, &query.join(" "), |ranker| {
                index.page_by(ranker, "read file", (0, 100), None, None);
                Ok(())
            })?;
        }
        bytes.push(0);
        prop_assert!(again(&part, &bytes).is_none(), "more than there is");
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..2_000), tools in 0usize..3) {
        let list: Vec<_> = (0..tools).map(|n| json!({"name": format!("tool{n}")})).collect();
        if let Some(part) = again(&part("server", &list), &bytes) {
            Index::new(vec![part]);
        }
    }
}

#[test]
fn whatever_goes_into_a_part_is_in_its_recipe() {
    let tags = ["tag".to_owned()];
    let about = About { description: Some("About."), tags: &tags };
    let named =
        |names: &[&str]| tools(&names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>());
    let tuning = Tuning::default();
    let all = [
        IndexCacheKey::new("a", about, &named(&["x", "y"]), &tuning),
        IndexCacheKey::new("b", about, &named(&["x", "y"]), &tuning),
        IndexCacheKey::new("a", About { description: None, ..about }, &named(&["x", "y"]), &tuning),
        IndexCacheKey::new("a", About { tags: &[], ..about }, &named(&["x", "y"]), &tuning),
        IndexCacheKey::new("a", about, &named(&["y", "x"]), &tuning),
        IndexCacheKey::new("a", about, &named(&["x"]), &tuning),
        IndexCacheKey::new("a", about, &named(&["x", "y"]), &Tuning { chars: 9, ..tuning }),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(!all[..at].contains(one), "{at}");
    }
    let heavier = Tuning { name: 3.0, ..tuning };
    assert_eq!(
        all[0],
        IndexCacheKey::new("a", about, &named(&["x", "y"]), &heavier),
        "weighed later"
    );
}

/// Moved together with `FORM`, and only so.
#[test]
fn the_form_moves_when_the_bytes_do() {
    let list = tools(&[
        json!({"name": "readFile", "title": "Read", "description": "Reads the files of a folder, 2 at a time."}),
        json!({"name": "send_mail", "description": "Übergröße 搜索", "inputSchema": {"properties": {"to": {"description": "who receives it"}}}}),
    ]);
    let tags = ["office".to_owned()];
    let about = About { description: Some("Mail and files."), tags: &tags };
    let mut words = CachedTokenizer::default();
    let part = ServerIndex::build_tuned(&mut words, "desk", about, &list, &Tuning::default());
    let digest = Sha256::digest(part.to_bytes());
    let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        (FORM, digest.as_str()),
        (3, "b241319c9dae1582"),
        "a part has other bytes than before: move FORM, or those kept on disk are used on"
    );
}
