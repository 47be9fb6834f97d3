//! Whatever a server says about logins and addresses: nothing panics, and what is taken leads nowhere unencrypted.
#![no_main]

use metamcp_engine::login::oauth;
use metamcp_types::web::Address;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let home = Address::parse("https://mcp.example.com/mcp").expect("an address");
    if let Ok(tokens) = oauth::tokens(200, data) {
        assert!(oauth::tokens(200, tokens.document().to_string().as_bytes()).is_ok());
    }
    let _client = oauth::registered(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(found) = oauth::endpoint("token_endpoint", text) {
        assert!(found.is_confidential());
    }
    oauth::amended(text, Some("https://r"), Some("a.b.c"));
    if let oauth::Callback::Code { code, .. } = oauth::callback(text, "the state") {
        assert!(!code.is_empty());
    }
    if let Ok(address) = Address::parse(text) {
        assert_eq!(Address::parse(&address.to_string()).as_ref(), Ok(&address));
    }
    if let Ok(joined) = home.join(text) {
        assert_eq!(Address::parse(&joined.to_string()).as_ref(), Ok(&joined));
    }
});
