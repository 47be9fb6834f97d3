use std::path::Path;
use std::time::{Duration, Instant};

use metamcp_search::transformer::Shape;
use metamcp_tools::tool::Listing;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(30);

/// As wide as the real one and otherwise minimal: a text points where its tokens do.
const TINY: Shape =
    Shape { layers: 1, heads: 1, width: 384, inner: 1, vocabulary: 7, positions: 16 };

/// The file of a made-up model, with every matrix zero but the token embeddings.
fn tiny() -> Vec<u8> {
    let list = "[UNK]\n[CLS]\n[SEP]\nread\nfile\nsend\nmail";
    let Shape { layers, heads, width, inner, vocabulary, positions } = TINY;
    let mut body = Vec::new();
    for number in [layers, heads, width, inner, vocabulary, positions, list.len()] {
        body.extend(u32::try_from(number).unwrap().to_le_bytes());
    }
    body.extend(list.as_bytes());
    let numbers = |body: &mut Vec<u8>, count: usize, number: f32| {
        (0..count).for_each(|_| body.extend(number.to_le_bytes()));
    };
    numbers(&mut body, vocabulary, 1.0);
    let hot = |at: usize| u8::from(at % width == (at / width) * 50);
    body.extend((0..vocabulary * width).map(hot));
    numbers(&mut body, positions * width, 0.0);
    let norm = |body: &mut Vec<u8>| {
        numbers(body, width, 1.0);
        numbers(body, width, 0.0);
    };
    norm(&mut body);
    for (into, from, then_norm) in [
        (3 * width, width, false),
        (width, width, true),
        (inner, width, false),
        (width, inner, true),
    ] {
        numbers(&mut body, into, 0.0);
        body.extend(vec![0u8; into * from]);
        numbers(&mut body, into, 0.0);
        if then_norm {
            norm(&mut body);
        }
    }
    let mut all = b"METAXFM2".to_vec();
    all.extend_from_slice(&Sha256::digest(&body));
    all.append(&mut body);
    all
}

fn put_model(home: &Path) {
    let path = ModelFile::new(home).path();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, tiny()).unwrap();
}

fn index() -> Index {
    let tool = |name: &str| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
    let mut listing = Listing::at_most(10);
    let tools = [tool("read_file"), tool("send_mail")].join(",");
    listing.page(format!(r#"{{"tools":[{tools}]}}"#).as_bytes()).unwrap();
    let tools = Arc::new(listing.finish(None, None));
    Index::new(vec![Arc::new(ServerIndex::build("box", None, &tools))])
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TIMEOUT, "it does not come about");
        std::thread::yield_now();
    }
}

#[test]
fn vectors_are_computed_in_the_background_and_cached() {
    let home = tempfile::tempdir().unwrap();
    put_model(home.path());
    let index = index();
    let local = Local::new(home.path());
    assert_eq!(local.missing(&index), 2);
    local.offer(&index);
    wait_until(|| local.missing(&index) == 0);
    let asked = local.query("read file").unwrap();
    let nearness = metamcp_search::search::Nearness::new(&local.tables(&index), &asked).unwrap();
    let found = index.page_by(&nearness, "read file", (0, 2), None, None);
    assert_eq!(&*found.hits[0].tool().name, "read_file", "{found:?}");
    drop(local);

    let again = Local::new(home.path());
    again.offer(&index);
    wait_until(|| again.missing(&index) == 0);
    let state = lock(&again.shared.model);
    assert!(matches!(*state, State::Untried), "from the disk, without the model: {state:?}");
}

#[test]
fn the_thread_ends_with_its_owner() {
    let home = tempfile::tempdir().unwrap();
    put_model(home.path());
    let local = Local::new(home.path());
    local.offer(&index());
    let shared = Arc::downgrade(&local.shared);
    drop(local);
    wait_until(|| shared.upgrade().is_none());
}

#[test]
fn a_model_installed_later_is_found() {
    let home = tempfile::tempdir().unwrap();
    let local = Local::new(home.path());
    let index = index();
    let why = local.refusal().unwrap();
    assert!(why.contains("run `metamcp model add` to install it"), "{why}");
    assert_eq!(local.query("read").unwrap_err(), why);
    local.offer(&index);
    assert!(!lock(&local.shared.wanted).is_running, "there is nothing to do");
    put_model(home.path());
    assert!(local.refusal().is_none());
    assert_eq!(local.query("read").unwrap().len(), 1);
    std::fs::write(ModelFile::new(home.path()).path(), b"broken").unwrap();
    let other = Local::new(home.path());
    assert!(other.refusal().is_none(), "nobody has looked");
    assert!(other.query("read").unwrap_err().contains("install it again"));
    assert!(other.refusal().is_some());
}
