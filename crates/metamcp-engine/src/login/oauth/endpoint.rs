//! Addresses of an authorization server are untrusted, and the SDK accepts them as they are.

use super::OAuthError;
use metamcp_types::web::Address;

/// Parses the endpoint under this name; it must be encrypted or local.
pub fn endpoint(name: &str, text: &str) -> Result<Address, OAuthError> {
    const WHAT: &str = "authorization server metadata";
    let address = Address::parse(text)
        .map_err(|error| OAuthError::document(WHAT, format!("its {name} {error}")))?;
    if !address.is_confidential() {
        return Err(OAuthError::document(WHAT, format!("its {name} is not encrypted")));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_that_a_person_opens_can_be_a_command() {
        let refused = [
            "javascript:alert(1)",
            "JavaScript:alert(1)",
            " javascript:alert(1)",
            "java\tscript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "file://host/share",
            "\\\\host\\share",
            "//host/share",
            "vbscript:x",
            "ms-msdt:/id",
            "search-ms:query=x",
            "smb://host/x",
            "ftp://host/x",
            "http://host/authorize",
            "http://127.0.0.1.evil.example/",
            "http://localhost.evil.example/",
            "--help",
            "-e",
            "/bin/sh",
            "calc.exe",
            "C:/Windows/System32/calc.exe",
            "$(id)",
            "`id`",
            "; id",
            "| id",
            "& calc",
            "",
            " ",
            "https://",
            "https:///x",
            "https://user:word@host/",
            "https://host/a b",
            "https://host/\nx",
            "https://host/\0",
            "https://host/\u{1b}[2J",
            "https://ho st/",
            "https://host:99999/",
            "https://[::1/",
            "https://host\\@evil/",
        ];
        assert_eq!(refused.len(), 40);
        for text in refused {
            assert!(endpoint("authorization_endpoint", text).is_err(), "{text:?}");
        }
        // What looks like a shell command in an address is one argument of one program; no shell is involved.
        let quoted = endpoint("authorization_endpoint", "https://i/$(id)").unwrap();
        assert!(quoted.to_string().starts_with("https://i/"));
        assert!(endpoint("token_endpoint", "http://127.0.0.1:1/t").is_ok());
    }

    #[test]
    fn errors_name_the_endpoint() {
        let told = |text| endpoint("token_endpoint", text).unwrap_err().to_string();
        assert!(told("http://i/t").contains("its token_endpoint is not encrypted"));
        assert!(told("ftp://i/t").contains("its token_endpoint is not an address"));
    }
}
