//! The word of a company for its person: what they proved there once, nobody has to agree to again.

use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use metamcp_core::config::Company;
use metamcp_core::oauth;
use metamcp_core::web::Address;

use super::{Login, LoginError, chain};
use crate::secrets;
use crate::web::{Plan, Reach, Web};

impl Login {
    /// Asks the company for its word, good for this authorization server and this resource.
    pub(super) async fn voucher(
        &self,
        company: &Company,
        issuer: &str,
        resource: &str,
    ) -> Result<String, LoginError> {
        let refused = |why: String| LoginError::Company { why };
        let place = Address::parse(&company.token_url).map_err(|why| refused(why.to_string()))?;
        self.confidential(&place)?;
        let token = secrets::one("idToken", &company.id_token).await;
        let token = token.map_err(|error| refused(chain(&error)))?;
        let form = oauth::voucher_form(company, token.expose(), issuer, resource);
        let mut headers = HeaderMap::new();
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, kind);
        // The operator wrote this address; a server's word has no part in it.
        let web = Web::new(Plan { reach: Reach::Anywhere, ..self.plan.clone() })?;
        let (status, document) = Self::post_by(&web, &place, headers, form.body.into()).await?;
        oauth::voucher(status, &document).map_err(refused)
    }
}
