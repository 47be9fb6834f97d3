//! Forms for tokens as they go out: what the SDK filled in, with what it does not know.

use super::escaped;

/// The form with the resource written exactly as its server writes it, and with a signed proof in place of name and secret.
/// An empty secret is none.
pub fn amended(form: &str, resource: Option<&str>, proof: Option<&str>) -> String {
    let kept = |pair: &&str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "client_secret" => proof.is_none() && !value.is_empty(),
            "client_id" => proof.is_none(),
            "resource" => resource.is_none(),
            _ => true,
        }
    };
    let mut pairs: Vec<String> = form.split('&').filter(kept).map(str::to_owned).collect();
    if let Some(resource) = resource {
        pairs.push(format!("resource={}", escaped(resource)));
    }
    if let Some(proof) = proof {
        let kind = escaped("urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
        pairs.push(format!("client_assertion_type={kind}"));
        pairs.push(format!("client_assertion={}", escaped(proof)));
    }
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_says_what_it_said_and_what_was_missing() {
        let form =
            "grant_type=refresh_token&client_id=c&client_secret=&resource=https%3A%2F%2Fr%2F";
        assert_eq!(
            amended(form, None, None),
            "grant_type=refresh_token&client_id=c&resource=https%3A%2F%2Fr%2F"
        );
        assert_eq!(
            amended(form, Some("https://r"), None),
            "grant_type=refresh_token&client_id=c&resource=https%3A%2F%2Fr"
        );
        let signed = amended(form, None, Some("a.b.c"));
        assert!(!signed.contains("client_id") && signed.ends_with("&client_assertion=a.b.c"));
        assert!(amended("client_secret=s", None, None).contains("client_secret=s"));
    }
}
