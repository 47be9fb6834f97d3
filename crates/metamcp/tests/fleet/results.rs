//! Long results that a fleet has in common, with a real nats-server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metamcp_engine::results::{Owner, Results, SharedResults};
use metamcp_engine::shared::FleetResults;
use metamcp_testkit::nats::Nats;

use crate::PATIENCE;
use crate::messages::{bus, run};

fn owner(lasting: u8, toolset: Option<&str>) -> Owner {
    Owner {
        lasting: Some([lasting; 32]),
        toolset: toolset.map(Arc::from),
        // A number of one process; elsewhere the same principal has another.
        principal: u64::from(lasting) + 7,
        session: 1,
    }
}

#[test]
fn a_long_result_is_read_at_any_gateway_by_its_owner() {
    let nats = Nats::alone().unwrap();
    let homes: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    run(async {
        let mut both = Vec::new();
        for (name, home) in ["one", "two"].iter().zip(&homes) {
            let results = Results::new(home.path());
            let shared = FleetResults::open(&bus(&nats, name).await).await.unwrap();
            results.share(Arc::new(shared));
            both.push(results);
        }
        // Longer than one message of the bus.
        let long = Bytes::from(format!("[{}\"canary\"]", "1234567,".repeat(300_000)));
        let handle = both[0].put(&owner(1, Some("docs")), long.clone());
        let elsewhere = Owner { principal: 99, ..owner(1, Some("docs")) };
        let read = async {
            loop {
                if let Some(stored) = both[1].read(&handle, &elsewhere).await {
                    return stored;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let stored = tokio::time::timeout(PATIENCE, read).await.expect("it arrives");
        assert_eq!(stored.value, long);
        for other in [owner(2, None), owner(1, Some("mail")), Owner::default()] {
            let other = Owner { principal: 99, ..other };
            assert!(both[1].read(&handle, &other).await.is_none(), "{other:?}");
        }
        assert!(both[1].read("r00000000000000000000000000000000", &elsewhere).await.is_none());
        // Nothing of it is readable without the key.
        let stranger = async_nats::connect(nats.url()).await.unwrap();
        let jetstream = async_nats::jetstream::new(stranger);
        let store = jetstream.get_object_store("metamcp_results").await.unwrap();
        let mut object = store.get(&handle).await.unwrap();
        let mut sealed = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut object, &mut sealed).await.unwrap();
        assert!(sealed.len() > long.len());
        assert!(!sealed.windows(6).any(|part| part == b"canary"));
        // What somebody else put there is not read.
        let mut forged = &b"whatever"[..];
        store.put("r11111111111111111111111111111111", &mut forged).await.unwrap();
        let forged = both[1].read("r11111111111111111111111111111111", &elsewhere).await;
        assert!(forged.is_none());
        let shared = FleetResults::open(&bus(&nats, "three").await).await.unwrap();
        assert!(shared.get("r11111111111111111111111111111111").await.is_err());
    });
}
