//! Authentication by bearer token.
//! Owns: static tokens, the generated one, signed tokens and the keys they are checked with.      Never: compares a token byte by byte (digests are), passes one on.
//! In: the `Authorization` header.  Out: a `Visitor`, or why not.
//! Tests: below `access/`; `metamcp/tests/http`.

mod generated;
mod jwt;
mod keys;
mod source;
mod tokens;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metamcp_types::text;
use parking_lot::{Mutex, RwLock};
use sha2::{Digest, Sha256};

pub use generated::{Generated, GeneratedError, Purpose};
pub use jwt::{Expected, JwtError};
pub use keys::{KeyError, KeySet};
pub use source::{KeySource, SourceError};
pub use tokens::{LineError, Role, Token, tokens_of};

/// Maximum length of a token: far more than any issuer makes.
const MAX_TOKEN: usize = 16 * 1024;
/// Names of subjects that are remembered for records, and the longest of them.
const MAX_NAMES: usize = 10_000;
const MAX_NAME: usize = 200;
/// What the owner calls the generated token, as `token:NAME`.
const GENERATED: &str = "generated";

/// A static token, or the subject of signed ones. Sessions belong to a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Principal(pub u64);

impl Principal {
    /// Everybody, where no token is needed.
    pub const ANYBODY: Principal = Principal(0);
}

/// An authenticated client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visitor {
    /// By its token.
    pub principal: Principal,
    /// The one toolset it may use; none for everything.
    pub toolset: Option<Arc<str>>,
    /// Who it is for every process with the same tokens, while `principal` is a number of this one.
    pub lasting: [u8; 32],
    /// Whether it reads metrics, too or only.
    pub role: Role,
    /// The result holds for the same header while [`Access::generation`] is this. `None` for signed tokens, which expire.
    pub good_for: Option<u64>,
}

/// Why a client is not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No token.
    #[error(
        "this gateway asks for a bearer token; send it as \"Authorization: Bearer …\" (on its machine `metamcp token` prints the generated one)"
    )]
    Missing,
    /// An unknown token.
    #[error("the bearer token is not valid here")]
    Invalid,
    /// A signed token that is not valid.
    #[error("the bearer token is not valid here: {0}")]
    Signed(JwtError),
}

/// Why a name in `approvers` is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApproverError {
    /// Not the form of a principal.
    #[error(
        "approvers names {0:?}; a principal is written token:NAME, sub:NAME, client:NAME or azp:NAME"
    )]
    Form(String),
    /// No token has that name.
    #[error(
        "approvers names token:{0}, and no token has that name; in a token file it stands behind the token as name={0}"
    )]
    Token(String),
}

/// The configured tokens.
pub struct Access {
    tokens: Vec<Known>,
    generated: Option<Watched>,
    /// The generated token that reads metrics.
    metrics: Option<Watched>,
    signed: Option<Signed>,
    /// Hashes subjects of signed tokens into principals. Keyed at random, so that collisions cannot be chosen.
    subjects: RandomState,
    /// Principals that are people: their responses to elicitations count as approvals.
    approvers: HashSet<Principal>,
    /// Names of principals that showed a signed token, for records.
    signed_names: Mutex<SignedNames>,
}

/// The name that a principal showed, and its digest.
type SignedNames = HashMap<Principal, (Arc<str>, [u8; 32])>;

struct Known {
    digest: [u8; 32],
    name: Option<String>,
    toolset: Option<Arc<str>>,
    role: Role,
}

/// A generated token, which may be rotated while we serve.
struct Watched {
    home: PathBuf,
    purpose: Purpose,
    /// `None` while there is none.
    digest: RwLock<Option<[u8; 32]>>,
    generation: AtomicU64,
    /// The second in which an unknown token last caused the file to be read.
    looked: AtomicU64,
}

/// The verification of signed tokens.
pub struct Signed {
    /// The current keys.
    pub keys: RwLock<KeySet>,
    /// Required issuer and audience.
    pub expected: Expected,
    /// Notified when a token was signed by an unknown key.
    pub unknown: tokio::sync::Notify,
}

impl Access {
    /// Without authentication.
    pub fn open() -> Access {
        Access::new([], None)
    }

    /// With these tokens and signed ones. With neither, everybody is admitted.
    pub fn new(tokens: impl IntoIterator<Item = Token>, signed: Option<Signed>) -> Access {
        let known = |token: Token| Known {
            digest: digest(token.text.as_bytes()),
            name: token.name,
            toolset: token.toolset.map(Arc::from),
            role: token.role,
        };
        Access {
            tokens: tokens.into_iter().map(known).collect(),
            generated: None,
            metrics: None,
            signed,
            subjects: RandomState::new(),
            approvers: HashSet::new(),
            signed_names: Mutex::default(),
        }
    }

    /// With the generated token of this home.
    pub fn generated(home: PathBuf, token: &Generated) -> Access {
        let known = Some(digest(token.expose().as_bytes()));
        let generated = Watched::new(home, Purpose::Clients, known);
        Access { generated: Some(generated), ..Access::open() }
    }

    /// The same with the token for metrics of this home, once there is one.
    #[must_use]
    pub fn with_metrics(mut self, home: PathBuf) -> Access {
        self.metrics = Some(Watched::new(home, Purpose::Metrics, None));
        self
    }

    /// Sets the principals that may approve.
    pub fn with_approvers<'a>(
        mut self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Access, ApproverError> {
        for name in names {
            let approver = self.named(name)?;
            self.approvers.insert(approver);
        }
        Ok(self)
    }

    /// Whether no token is needed.
    pub fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.signed.is_none() && self.generated.is_none()
    }

    /// Whether a principal may approve.
    pub fn approves(&self, principal: Principal) -> bool {
        self.approvers.contains(&principal)
    }

    /// The toolsets that static tokens are bound to.
    pub fn toolsets(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().filter_map(|token| token.toolset.as_deref())
    }

    /// The verification of signed tokens, if configured.
    pub fn signed(&self) -> Option<&Signed> {
        self.signed.as_ref()
    }

    /// How often tokens were rotated.
    pub fn generation(&self) -> u64 {
        let watched = self.generated.iter().chain(&self.metrics);
        watched.map(|watched| watched.generation.load(Ordering::Acquire)).sum()
    }

    /// Checks whether the generated token was rotated.
    pub fn refresh(&self) {
        self.generated.iter().chain(&self.metrics).for_each(Watched::refresh);
    }

    /// Authenticates an `Authorization` header; `unix` is the current time in seconds.
    pub fn visitor(&self, authorization: Option<&str>, unix: u64) -> Result<Visitor, Denied> {
        let good_for = Some(self.generation());
        if self.is_open() {
            let (principal, role) = (Principal::ANYBODY, Role::Owner);
            return Ok(Visitor { principal, toolset: None, lasting: [0; 32], role, good_for });
        }
        let token = authorization.and_then(bearer).ok_or(Denied::Missing)?;
        if token.is_empty() || token.len() > MAX_TOKEN {
            return Err(Denied::Invalid);
        }
        let shown = digest(token.as_bytes());
        let mut found = None;
        // All are compared, so that timing does not tell which one matches.
        for (at, known) in self.tokens.iter().enumerate() {
            if is_same(&known.digest, &shown) {
                let toolset = known.toolset.clone();
                let (principal, role) = (numbered(at), known.role);
                found = Some(Visitor { principal, toolset, lasting: shown, role, good_for });
            }
        }
        if let Some(found) = found {
            return Ok(found);
        }
        if let Some(watched) = &self.generated
            && (watched.is(&shown) || (watched.may_look(unix) && watched.is(&shown)))
        {
            let (principal, good_for) = (self.of_generated(), Some(self.generation()));
            let (lasting, role) = (shown, Role::Owner);
            return Ok(Visitor { principal, toolset: None, lasting, role, good_for });
        }
        if let Some(watched) = &self.metrics
            && (watched.is(&shown) || (watched.may_look(unix) && watched.is(&shown)))
        {
            // It begins no session, so nothing ever belongs to it.
            let (principal, good_for) = (self.of_generated(), Some(self.generation()));
            let (lasting, role) = (shown, Role::Metrics);
            return Ok(Visitor { principal, toolset: None, lasting, role, good_for });
        }
        let Some(signed) = &self.signed else { return Err(Denied::Invalid) };
        let keys = signed.keys.read();
        let bearer = jwt::verify(token, &keys, &signed.expected, unix).map_err(|error| {
            if error == JwtError::Signature {
                signed.unknown.notify_one();
            }
            Denied::Signed(error)
        })?;
        let principal = self.of_signed(bearer.kind, &bearer.name);
        self.remember_name(principal, bearer.kind, &bearer.name);
        let lasting = jwt::lasting(bearer.kind, &bearer.name);
        let toolset = bearer.toolset.map(Arc::from);
        Ok(Visitor { principal, toolset, lasting, role: Role::Tools, good_for: None })
    }

    /// The principal of a name in `approvers`.
    fn named(&self, word: &str) -> Result<Principal, ApproverError> {
        let form = || ApproverError::Form(word.to_owned());
        let (kind, name) = word.split_once(':').ok_or_else(form)?;
        if name.is_empty() {
            return Err(form());
        }
        if let Some((_, kind)) = jwt::Kind::ALL.iter().find(|(word, _)| *word == kind) {
            return Ok(self.of_signed(*kind, name));
        }
        if kind != "token" {
            return Err(form());
        }
        let own = (self.generated.is_some() && name == GENERATED).then(|| self.of_generated());
        let is_so = |known: &Known| known.name.as_deref() == Some(name);
        let found = own.or_else(|| self.tokens.iter().position(is_so).map(numbered));
        found.ok_or_else(|| ApproverError::Token(name.to_owned()))
    }

    /// What the owner would call this principal: `token:NAME`, `sub:NAME`.
    pub fn name_of(&self, principal: Principal) -> Arc<str> {
        if principal == Principal::ANYBODY {
            return Arc::from("anybody");
        }
        let signed = self.signed_names.lock();
        if let Some((name, _)) = signed.get(&principal) {
            return Arc::clone(name);
        }
        let at = usize::try_from(principal.0.saturating_sub(1)).unwrap_or(usize::MAX);
        match self.tokens.get(at).map(|known| known.name.as_deref()) {
            Some(Some(name)) => format!("token:{name}").into(),
            Some(None) => format!("token:{}", principal.0).into(),
            None if principal == self.of_generated() => format!("token:{GENERATED}").into(),
            None => "?".into(),
        }
    }

    /// Who a principal is for every gateway with the same tokens, as far as that is known.
    pub fn lasting_of(&self, principal: Principal) -> Option<[u8; 32]> {
        if let Some((_, lasting)) = self.signed_names.lock().get(&principal) {
            return Some(*lasting);
        }
        let at = usize::try_from(principal.0.checked_sub(1)?).ok()?;
        self.tokens.get(at).map(|known| known.digest)
    }

    fn remember_name(&self, principal: Principal, kind: jwt::Kind, name: &str) {
        let mut names = self.signed_names.lock();
        if !names.contains_key(&principal) {
            if names.len() >= MAX_NAMES {
                names.clear();
            }
            let lasting = jwt::lasting(kind, name);
            let kind = jwt::Kind::ALL.iter().find(|(_, known)| *known == kind);
            let kind = kind.map_or("?", |(word, _)| word);
            let name = text::clean_line(name, MAX_NAME);
            names.insert(principal, (format!("{kind}:{name}").into(), lasting));
        }
    }

    fn of_generated(&self) -> Principal {
        numbered(self.tokens.len())
    }

    /// The kind is part of it: a client with the name of a person is another principal.
    fn of_signed(&self, kind: jwt::Kind, name: &str) -> Principal {
        // Never the number of a static token.
        Principal(self.subjects.hash_one((kind, name)) | 1 << 63)
    }
}

impl Watched {
    fn new(home: PathBuf, purpose: Purpose, known: Option<[u8; 32]>) -> Watched {
        let (generation, looked) = (AtomicU64::new(0), AtomicU64::new(0));
        Watched { home, purpose, digest: RwLock::new(known), generation, looked }
    }

    fn is(&self, shown: &[u8; 32]) -> bool {
        self.digest.read().is_some_and(|digest| is_same(&digest, shown))
    }

    /// Reads the file again for an unknown token, at most once a second: it may have been rotated.
    fn may_look(&self, unix: u64) -> bool {
        let is_due = self.looked.swap(unix, Ordering::AcqRel) != unix;
        if is_due {
            self.refresh();
        }
        is_due
    }

    fn refresh(&self) {
        match Generated::found(&self.home, self.purpose) {
            Ok(Some(token)) => {
                let fresh = Some(digest(token.expose().as_bytes()));
                let mut digest = self.digest.write();
                if *digest != fresh {
                    *digest = fresh;
                    self.generation.fetch_add(1, Ordering::AcqRel);
                }
            }
            // A deleted file revokes nothing; the token stays valid until it is rotated.
            Ok(None) => {}
            Err(error) => {
                let told = format!("the generated token stays as it was: {error}");
                tracing::warn!("{told}");
            }
        }
    }
}

/// The principal of the static token at that index.
fn numbered(at: usize) -> Principal {
    Principal(at as u64 + 1)
}

fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// Comparison in constant time.
fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let different = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(different) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> [Token; 2] {
        let bound = Token { toolset: Some("docs".to_owned()), ..Token::named("bob", "second") };
        [Token::named("ada", "first"), bound]
    }

    fn who(access: &Access, header: Option<&str>) -> Result<Principal, Denied> {
        access.visitor(header, 0).map(|visitor| visitor.principal)
    }

    #[test]
    fn a_token_is_a_principal_and_nothing_else_is() {
        let access = Access::new(tokens(), None);
        let principal = |header: Option<&str>| who(&access, header);
        assert_eq!(principal(Some("Bearer first")), Ok(Principal(1)));
        assert_eq!(principal(Some("bearer  second")), Ok(Principal(2)));
        assert_eq!(principal(None), Err(Denied::Missing));
        assert_eq!(principal(Some("first")), Err(Denied::Missing));
        assert_eq!(principal(Some("Basic first")), Err(Denied::Missing));
        for wrong in ["Bearer ", "Bearer firs", "Bearer firstx", "Bearer FIRST", "Bearer a.b.c"] {
            assert_eq!(principal(Some(wrong)), Err(Denied::Invalid), "{wrong}");
        }
        let long = format!("Bearer {}", "x".repeat(MAX_TOKEN + 1));
        assert_eq!(principal(Some(&long)), Err(Denied::Invalid));
        let toolset = |token: &str| access.visitor(Some(token), 0).unwrap().toolset;
        assert_eq!(toolset("Bearer first"), None);
        assert_eq!(toolset("Bearer second").as_deref(), Some("docs"));
    }

    #[test]
    fn principals_have_names_for_records() {
        let unnamed = Token { name: None, ..Token::named("x", "third") };
        let [ada, bob] = tokens();
        let access = Access::new([ada, bob, unnamed], None);
        let name = |token: &str| access.name_of(who(&access, Some(token)).unwrap());
        assert_eq!(&*name("Bearer first"), "token:ada");
        assert_eq!(&*name("Bearer second"), "token:bob");
        assert_eq!(&*name("Bearer third"), "token:3");
        access.remember_name(Principal(1 << 63), jwt::Kind::Subject, "eve\x1b[0m");
        assert_eq!(&*access.name_of(Principal(1 << 63)), "sub:eve");
        assert_eq!(&*Access::open().name_of(Principal::ANYBODY), "anybody");
    }

    #[test]
    fn without_tokens_everybody_is_the_same() {
        let access = Access::open();
        assert_eq!(who(&access, Some("Bearer whatever")), Ok(Principal::ANYBODY));
    }

    #[test]
    fn only_those_the_owner_named_approve() {
        let named = ["token:ada", "sub:grace"];
        let access = Access::new(tokens(), None).with_approvers(named).unwrap();
        assert!(access.approves(Principal(1)) && !access.approves(Principal(2)));
        assert!(!access.approves(Principal::ANYBODY));
        let signed = |kind, name| access.approves(access.of_signed(kind, name));
        assert!(signed(jwt::Kind::Subject, "grace"));
        for (kind, name) in [
            (jwt::Kind::Client, "grace"),
            (jwt::Kind::Party, "grace"),
            (jwt::Kind::Subject, "ada"),
            (jwt::Kind::Subject, "sub:grace"),
        ] {
            assert!(!signed(kind, name), "{kind:?} {name}");
        }
        for wrong in ["ada", "token:", "user:ada", "", ":"] {
            let error = Access::new(tokens(), None).with_approvers([wrong]).err().unwrap();
            assert_eq!(error, ApproverError::Form(wrong.to_owned()));
        }
        for nobody in ["carl", GENERATED] {
            let word = format!("token:{nobody}");
            let error = Access::new(tokens(), None).with_approvers([&*word]).err().unwrap();
            assert_eq!(error, ApproverError::Token(nobody.to_owned()));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_generated_token_that_was_replaced_lets_nobody_in() {
        let home = tempfile::tempdir().unwrap();
        let old = Generated::of(home.path(), Purpose::Clients).unwrap();
        let access = Access::generated(home.path().to_owned(), &old);
        let bearer = |token: &Generated| format!("Bearer {}", token.expose());
        let at = |token: &Generated, second| access.visitor(Some(&bearer(token)), second);
        let before = at(&old, 1).unwrap();
        assert!(!access.approves(before.principal));
        let new = Generated::rotated(home.path(), Purpose::Clients).unwrap();
        // Once it was seen, the old one is over, for connections that were let in by it too.
        let after = at(&new, 2).unwrap();
        assert_eq!(after.principal, before.principal);
        assert_ne!(after.good_for, before.good_for);
        assert_eq!(at(&old, 3), Err(Denied::Invalid));
        let newest = Generated::rotated(home.path(), Purpose::Clients).unwrap();
        access.refresh();
        assert_eq!(at(&new, 4), Err(Denied::Invalid));
        assert!(at(&newest, 4).is_ok());
        std::fs::remove_file(&newest.path).unwrap();
        access.refresh();
        assert!(at(&newest, 5).is_ok(), "one that is merely gone is not somebody's wish");
    }
}
