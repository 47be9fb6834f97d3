//! Whatever a server says about logins and addresses: nothing panics, and what is taken leads nowhere unencrypted.
#![no_main]

use metamcp_core::oauth::{self, AuthServer, Challenge, Resource};
use metamcp_core::web::Address;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let home = Address::parse("https://mcp.example.com/mcp").expect("an address");
    let server = AuthServer::at_root(&home);
    let _tokens = oauth::tokens(200, data);
    let _client = oauth::registered(data);
    if let Ok(resource) = Resource::read(data, &home) {
        let named = Address::parse(&resource.resource).expect("it was taken for an address");
        assert!(named.is_same_origin(&home));
    }
    if let Ok(found) = AuthServer::read(data, "https://issuer.example.com") {
        assert!(found.token.is_confidential());
        assert!(found.authorize.iter().chain(&found.register).all(Address::is_confidential));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let challenge = Challenge::read([text, text]);
    oauth::resource_places(&home, challenge.resource_metadata.as_deref());
    if let oauth::Callback::Code(code) = oauth::callback(text, "the state", &server) {
        assert!(!code.is_empty());
    }
    if let Ok(address) = Address::parse(text) {
        assert_eq!(Address::parse(&address.to_string()).as_ref(), Ok(&address));
    }
    if let Ok(joined) = home.join(text) {
        assert_eq!(Address::parse(&joined.to_string()).as_ref(), Ok(&joined));
    }
});
