//! Over HTTP the client may be a program: it can approve an installation only if the owner configured it as an
//! approver.

use serde_json::{Value, json};

use crate::http::Serving;
use crate::plan::{Client, Plan};
use crate::provision::Place;
use crate::world::World;

/// The result for a client that approves everything, and how often it was asked.
fn asks_for_a_server(
    world: &World,
    place: &Place,
    client: Client,
    flags: &[&str],
) -> (Value, usize) {
    let flags = [&["--transport", "http", "--port", "0"], flags].concat();
    let serving = Serving::of(place.command(&flags), place.folder.path());
    let wish = json!({ "intent": "remember facts in a knowledge graph", "autoProvision": true });
    let plan = Plan::new()
        .answering(
            "elicitation/create",
            json!({ "action": "accept", "content": { "install": true } }),
        )
        .call("wish", "mcp_provision", &wish);
    let newest = matches!(client, Client::TypescriptV2);
    let plan = if newest { plan.asking_the_era() } else { plan };
    let report = plan.run_at(world, client, &serving.remote);
    let asked = report.asked().as_array().map_or(0, Vec::len);
    (report.step("wish").value().clone(), asked)
}

#[test]
fn over_http_only_those_approve_whom_the_owner_named_as_people() {
    let world = World::new();
    // The era with server requests on a stream, and the one with input-required results.
    for client in [Client::TypescriptV1, Client::TypescriptV2] {
        let place = Place::new();
        for flags in [&[][..], &["--approvers", "sub:generated,client:generated"]] {
            let (answer, asked) = asks_for_a_server(&world, &place, client, flags);
            let told = &answer["_meta"]["metamcp/provision"];
            assert_eq!((&told["status"], asked), (&json!("needs_approval"), 0), "{answer:#}");
            let (id, text) = (told["id"].as_str().unwrap(), answer["content"].to_string());
            assert!(text.contains(&format!("metamcp approve {id}")), "{text}");
            assert!(text.contains("serve.approvers"), "{text}");
            let installed = place.run(&["provisioned", "list", "--json"]);
            assert!(!installed.contains("server-memory"), "{installed}");
        }
        let named = ["--approvers", "token:generated"];
        let (answer, asked) = asks_for_a_server(&world, &place, client, &named);
        let status = &answer["_meta"]["metamcp/provision"]["status"];
        assert_eq!((status, asked), (&json!("installed"), 1), "{answer:#}");
        let installed = place.run(&["provisioned", "list", "--json"]);
        assert!(installed.contains("server-memory"), "{installed}");
    }
}
