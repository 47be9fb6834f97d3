//! Corrections to the SDK's token request forms.

use super::escaped;

/// The form with the resource exactly as its server spells it, and a client assertion in place of id and secret. An empty
/// secret is dropped.
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
    fn a_form_is_corrected_and_otherwise_unchanged() {
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
