//! Addresses, protocols, and which key goes where.

use super::*;

fn at(url: &str) -> Endpoint {
    Endpoint::at(url, "m", None).unwrap()
}

#[test]
fn the_protocol_is_inferred_from_the_path() {
    for (url, form, uri) in [
        ("http://localhost:11434/api/embed", Form::Ollama, "http://localhost:11434/api/embed"),
        (
            "http://localhost:11434/api/embeddings/",
            Form::Ollama,
            "http://localhost:11434/api/embed",
        ),
        ("https://h/x/api/embed", Form::Ollama, "https://h/x/api/embed"),
        ("https://api.openai.com", Form::OpenAi, "https://api.openai.com/v1/embeddings"),
        ("https://api.openai.com/", Form::OpenAi, "https://api.openai.com/v1/embeddings"),
        ("https://h:8443/team/v1/", Form::OpenAi, "https://h:8443/team/v1/embeddings"),
        ("https://h/custom?api-version=3", Form::OpenAi, "https://h/custom?api-version=3"),
        ("https://h?a=b", Form::OpenAi, "https://h/v1/embeddings?a=b"),
        ("https://api.voyageai.com", Form::Voyage, "https://api.voyageai.com/v1/embeddings"),
    ] {
        let endpoint = at(url);
        assert_eq!((endpoint.form(), endpoint.uri().to_string().as_str()), (form, uri), "{url}");
    }
}

#[test]
fn plain_text_stays_on_this_machine_unless_configured() {
    for (url, uri, in_clear) in [
        ("localhost:11434/api/embed", "http://localhost:11434/api/embed", false),
        ("127.0.0.1:80", "http://127.0.0.1:80/v1/embeddings", false),
        ("[::1]:8080/v1", "http://[::1]:8080/v1/embeddings", false),
        ("embed.example.com", "https://embed.example.com/v1/embeddings", false),
        ("10.0.0.1:8080", "https://10.0.0.1:8080/v1/embeddings", false),
        ("http://10.0.0.1:8080", "http://10.0.0.1:8080/v1/embeddings", true),
        ("HTTP://localhost.example.com", "http://localhost.example.com/v1/embeddings", true),
    ] {
        let endpoint = at(url);
        assert_eq!(endpoint.uri().to_string(), uri);
        assert_eq!(endpoint.is_in_clear(), in_clear, "{url}");
    }
}

#[test]
fn an_invalid_address_is_refused_without_repeating_it() {
    for url in [
        "",
        "ftp://h",
        "file:///etc",
        "http://",
        "https://a b",
        "https://h:x",
        "h\nx",
        "https://:80",
    ] {
        assert_eq!(Endpoint::at(url, "m", None).unwrap_err(), EndpointError::BadUrl, "{url:?}");
    }
    let error = Endpoint::at("https://me:hunter2@h/v1", "m", None).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    for model in ["", "  ", "a\u{1b}b", &"x".repeat(201)] {
        assert!(Endpoint::at("https://h", model, None).is_err(), "{model:?}");
    }
}

#[test]
fn a_key_goes_only_to_its_own_company() {
    let key = |name: &str, value: &str| Secret::new(name, value);
    for (url, name, value) in [
        ("https://api.voyageai.com", "ANTHROPIC_API_KEY", "abc"),
        ("https://api.voyageai.com", "VOYAGE_API_KEY", "sk-ant-abc"),
        ("https://embed.example.com", "OPENAI_API_KEY", "abc"),
        ("https://embed.example.com", "MY_KEY", "sk-proj-abc"),
        ("https://evilopenai.com", "OPENAI_API_KEY", "abc"),
        ("https://api.openai.com.example.com", "OPENAI_API_KEY", "abc"),
        ("http://localhost:1", "VOYAGE_API_KEY", "abc"),
    ] {
        let error = Endpoint::at(url, "m", Some(key(name, value))).unwrap_err();
        assert!(matches!(error, EndpointError::ForeignKey { .. }), "{url} {name}");
        assert!(!format!("{error:?}").contains("abc"));
    }
    for (url, name) in [
        ("https://api.openai.com/v1", "OPENAI_API_KEY"),
        ("https://embed.example.com", "EMBED_KEY"),
        ("https://api.voyageai.com/v1/embeddings", "VOYAGE_API_KEY"),
    ] {
        assert!(Endpoint::at(url, "m", Some(key(name, "pa-123"))).is_ok(), "{url} {name}");
    }
    assert!(Endpoint::voyage(key("VOYAGE_API_KEY", "pa-123")).is_ok());
    assert!(Endpoint::voyage(key("ANTHROPIC_API_KEY", "pa-123")).is_err());
    assert!(Endpoint::voyage(key("OTHER", "pa-123")).is_err());
    for value in ["", " ", "a b", "a\nHost: b", "é"] {
        let error = Endpoint::voyage(key("VOYAGE_API_KEY", value)).unwrap_err();
        assert!(matches!(error, EndpointError::BadKey { .. }), "{value:?}");
    }
}

#[test]
fn nothing_prints_the_key() {
    let endpoint = Endpoint::at(
        "https://h.example.com/v1?token=canary-query",
        "m",
        Some(Secret::new("EMBED_KEY", "canary-value")),
    )
    .unwrap();
    let printed = format!("{endpoint:?} {:?}", endpoint.authorization());
    assert!(!printed.contains("canary"), "{printed}");
    assert!(printed.contains("EMBED_KEY"), "{printed}");
}

#[test]
fn only_voyage_gets_an_input_type() {
    let voyage = Endpoint::voyage(Secret::new(VOYAGE_KEY, "pa-1")).unwrap();
    assert_eq!(
        voyage.body(&["a\"b"], Purpose::Query),
        br#"{"model":"voyage-3-lite","input":["a\"b"],"input_type":"query"}"#
    );
    assert_eq!(
        at("https://h").body(&["a", "b"], Purpose::Document),
        br#"{"model":"m","input":["a","b"]}"#
    );
}
