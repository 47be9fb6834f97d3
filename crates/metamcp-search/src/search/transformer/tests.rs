use std::sync::Arc;

use super::*;
use crate::search::{Index, ServerIndex, Strategy};
use metamcp_tools::tool::Listing;

/// Three tools: two that say something, one that says nothing of what is asked.
fn index() -> Index {
    let listed = |tools: &str| {
        let mut listing = Listing::at_most(10);
        listing.page(format!(r#"{{"tools":[{tools}]}}"#).as_bytes()).unwrap();
        Arc::new(listing.finish(None, None))
    };
    let tool = |name: &str, about: &str| {
        format!(r#"{{"name":"{name}","description":"{about}","inputSchema":{{"type":"object"}}}}"#)
    };
    let first = listed(&[tool("send_mail", "Send a letter"), tool("zap", "Qqq zzz")].join(","));
    let second = listed(&tool("readFile", "Read what is in a file"));
    Index::new(vec![
        Arc::new(ServerIndex::build("a", None, &first)),
        Arc::new(ServerIndex::build("b", None, &second)),
    ])
}

fn tables(rows: &[Option<[f32; 2]>; 3]) -> Vec<Arc<Table>> {
    let (mut first, mut second) = (Table::new(2, 2), Table::new(1, 2));
    for (tool, row) in rows.iter().enumerate() {
        let Some(row) = row else { continue };
        if tool < 2 { first.set(tool, row) } else { second.set(0, row) }
    }
    vec![Arc::new(first), Arc::new(second)]
}

fn ranked(index: &Index, nearness: &Nearness, query: &str) -> Vec<String> {
    let found = index.page_by(nearness, query, (0, 9), None, None);
    found.hits.iter().map(|hit| hit.tool().name.to_string()).collect()
}

#[test]
fn what_is_read_of_a_tool_is_in_words() {
    let index = index();
    let tool = &index.servers()[1].tools().tools[0];
    assert_eq!(document("my-files.io", tool), "my files io read File: Read what is in a file");
}

#[test]
fn a_tool_that_only_the_transformer_finds_near_is_found() {
    let index = index();
    let near = [Some([0.0, 1.0]), Some([1.0, 0.0]), Some([0.0, 1.0])];
    let nearness = Nearness::new(&tables(&near), &[vec![1.0, 0.0]]).unwrap();
    assert_eq!(nearness.missing, 0);
    let plain = index.search("mail", Strategy::Hybrid, 9, None);
    assert!(plain.iter().all(|hit| &*hit.tool().name != "zap"), "{plain:?}");
    assert!(ranked(&index, &nearness, "mail").contains(&"zap".to_owned()));
    let one_server = index.page_by(&nearness, "mail", (0, 9), Some("b"), None);
    assert!(one_server.hits.iter().all(|hit| &*hit.server == "b"), "{one_server:?}");
}

/// Words that no tool has, and no tool that is near: the nearest are told all the same, and what points away is not.
#[test]
fn where_nothing_matches_the_nearest_are_candidates() {
    let index = index();
    let near = [Some([0.15, 0.989]), Some([0.1, 0.995]), Some([-1.0, 0.0])];
    let nearness = Nearness::new(&tables(&near), &[vec![1.0, 0.0]]).unwrap();
    assert!(index.search("?!", Strategy::Hybrid, 9, None).is_empty());
    let mut found = ranked(&index, &nearness, "?!");
    found.sort();
    assert_eq!(found, ["send_mail", "zap"]);
    let elsewhere = index.page_by(&nearness, "?!", (0, 9), Some("b"), None);
    assert_eq!(elsewhere.total, 0);
}

#[test]
fn every_sentence_finds_its_own() {
    let index = index();
    let near = [Some([0.0, 1.0]), Some([1.0, 0.0]), Some([0.6, 0.8])];
    let both = [vec![1.0, 0.0], vec![0.0, 1.0]];
    let nearness = Nearness::new(&tables(&near), &both).unwrap();
    let most: Vec<f32> = nearness.deviations.iter().map(|own| own.unwrap()).collect();
    assert!(most[0] > 0.8 && most[1] > 0.8, "{most:?}");
    assert!(most[2] < most[0], "{most:?}");
    assert!(!ranked(&index, &nearness, "mail").is_empty());
}

#[test]
fn a_tool_is_measured_by_the_nearest_too() {
    let near = [Some([0.0, 1.0]), Some([1.0, 0.0]), Some([0.8, 0.6])];
    let nearness = Nearness::new(&tables(&near), &[vec![1.0, 0.0]]).unwrap();
    let index = index();
    let to_rerank = index.candidates_near("mail zap file", None, &nearness);
    let of = |name: &str| {
        to_rerank
            .iter()
            .find(|seen| &*seen.hit.tool().name == name)
            .and_then(|seen| seen.near)
            .unwrap()
    };
    assert_eq!(of("zap")[1], 0.0, "nothing is nearer");
    assert!((of("readFile")[1] - (of("readFile")[0] - of("zap")[0])).abs() < 1e-6);
    assert_eq!(of("send_mail")[1], -BEHIND, "far behind is far enough");
}

#[test]
fn words_count_by_how_far_the_nearest_has_them() {
    let index = index();
    let agreed = |nearest: usize| {
        let mut vectors = [Some([0.0, 1.0]); 3];
        vectors[nearest] = Some([1.0, 0.0]);
        let nearness = Nearness::new(&tables(&vectors), &[vec![1.0, 0.0]]).unwrap();
        let seen = index.candidates_near("send mail", None, &nearness);
        let mail = seen.iter().find(|seen| &*seen.hit.tool().name == "send_mail").unwrap();
        mail.near.unwrap()[2]
    };
    let [mail, zap, file] = [0, 1, 2];
    assert!(agreed(mail) > 0.0, "the nearest is the one that the words speak for");
    assert!(agreed(zap) < 0.0 && agreed(file) < 0.0, "they speak for another one");
}

#[test]
fn without_vectors_for_half_of_the_tools_there_is_no_telling() {
    let one = [Some([1.0, 0.0]), None, None];
    assert!(Nearness::new(&tables(&one), &[vec![1.0, 0.0]]).is_none());
    let two = [Some([1.0, 0.0]), None, Some([0.0, 1.0])];
    let nearness = Nearness::new(&tables(&two), &[vec![1.0, 0.0]]).unwrap();
    assert_eq!(nearness.missing, 1);
    let index = index();
    let to_rerank = index.candidates_near("zap", None, &nearness);
    let zap = to_rerank.iter().find(|seen| &*seen.hit.tool().name == "zap").unwrap();
    assert_eq!(zap.near.unwrap()[0], zap.features[1], "the table of words stands in");
    assert!(Nearness::new(&tables(&two), &[]).is_none());
}

#[test]
fn vectors_of_another_length_are_left_out() {
    let mut table = Table::new(2, 2);
    table.set(0, &[1.0; 3]);
    table.set(7, &[1.0; 2]);
    assert_eq!(table.missing().collect::<Vec<_>>(), [0, 1]);
    table.set(1, &[1.0, 0.0]);
    let nearness = Nearness::new(&[Arc::new(table)], &[vec![1.0; 3]]).unwrap();
    assert_eq!(nearness.deviations, [None, None]);
}
