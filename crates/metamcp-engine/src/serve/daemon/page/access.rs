//! Who may see the page. A link opens it once; what the link is exchanged for has two halves: a cookie, which other ports
//! of this machine are sent too, and a key, which only pages of this very origin have. A request needs both. Pure.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use metamcp_types::moment::Moment;
use sha2::{Digest as _, Sha256};

use super::super::admin::contextual::Opener;

/// How long a link may be used.
pub(super) const LINK_LIFETIME: Duration = Duration::from_mins(1);
/// A browser that was not seen for so long has to be let in anew.
const IDLE: Duration = Duration::from_hours(12);
/// A page that asked for something this recently is being looked at.
const WATCHED: Duration = Duration::from_mins(1);
/// Links and browsers at once: far more than a person has.
const MAX: usize = 32;
/// Wrong links in a window before they get no answer at all. A right one always does: 256 bits are not guessed, and
/// nobody may lock the owner out.
const MAX_WRONG: u32 = 20;
const WRONG_WINDOW: Duration = Duration::from_mins(1);

/// 256 random bits.
pub(super) struct Token([u8; 32]);

impl Token {
    pub(super) fn random() -> Result<Token, ()> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(drop)?;
        Ok(Token(bytes))
    }

    pub(super) fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    fn digest(&self) -> [u8; 32] {
        digest(&self.text())
    }
}

/// What is kept of a token, so that comparing it says nothing about it.
fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// A link that was not used yet.
struct Link {
    digest: [u8; 32],
    until: Moment,
    opener: Arc<Opener>,
}

/// A browser that was let in.
struct Browser {
    cookie: [u8; 32],
    key: [u8; 32],
    seen: Moment,
    opener: Arc<Opener>,
}

/// Why a link lets nobody in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It was used, is too old, or never was one.
    Link,
    /// The same, and there were too many of them.
    TooMany,
}

/// See the module.
#[derive(Default)]
pub(super) struct Access {
    links: Vec<Link>,
    browsers: Vec<Browser>,
    /// Wrong links since when.
    wrong: Option<(Moment, u32)>,
}

impl Access {
    /// A link that lets in one browser.
    pub(super) fn link(&mut self, token: &Token, opener: Arc<Opener>, now: Moment) {
        self.links.retain(|link| now < link.until);
        if self.links.len() >= MAX {
            self.links.remove(0);
        }
        self.links.push(Link { digest: token.digest(), until: now + LINK_LIFETIME, opener });
    }

    /// Exchanges a link for the two halves of a session. It is used up, whatever becomes of them.
    pub(super) fn enter(
        &mut self,
        link: &str,
        (cookie, key): (&Token, &Token),
        now: Moment,
    ) -> Result<(), Wrong> {
        let link = digest(link);
        let Some(at) = self.links.iter().position(|known| known.digest == link) else {
            return Err(self.wrong(now));
        };
        let link = self.links.remove(at);
        if now >= link.until {
            return Err(self.wrong(now));
        }
        self.browsers.retain(|browser| now.since(browser.seen) < IDLE);
        if self.browsers.len() >= MAX {
            // The one that was not seen for the longest time.
            let oldest = self.browsers.iter().enumerate().min_by_key(|(_, one)| one.seen);
            if let Some((at, _)) = oldest {
                self.browsers.remove(at);
            }
        }
        let (cookie, key) = (cookie.digest(), key.digest());
        self.browsers.push(Browser { cookie, key, seen: now, opener: link.opener });
        Ok(())
    }

    fn wrong(&mut self, now: Moment) -> Wrong {
        let (since, count) = match self.wrong {
            Some((since, count)) if now.since(since) < WRONG_WINDOW => (since, count + 1),
            _ => (now, 1),
        };
        self.wrong = Some((since, count));
        if count > MAX_WRONG { Wrong::TooMany } else { Wrong::Link }
    }

    /// Whether a browser with this cookie was let in: it may have the page, which holds no data.
    pub(super) fn knows(&self, cookie: &str, now: Moment) -> bool {
        let cookie = digest(cookie);
        self.browsers.iter().any(|one| one.cookie == cookie && now.since(one.seen) < IDLE)
    }

    /// On whose behalf a request with both halves is made.
    pub(super) fn opener(&mut self, cookie: &str, key: &str, now: Moment) -> Option<Arc<Opener>> {
        let (cookie, key) = (digest(cookie), digest(key));
        let is_it = |one: &&mut Browser| {
            one.cookie == cookie && one.key == key && now.since(one.seen) < IDLE
        };
        let browser = self.browsers.iter_mut().find(is_it)?;
        browser.seen = now;
        Some(Arc::clone(&browser.opener))
    }

    /// Forgets a browser.
    pub(super) fn leave(&mut self, cookie: &str) {
        let cookie = digest(cookie);
        self.browsers.retain(|one| one.cookie != cookie);
    }

    pub(super) fn is_watched(&self, now: Moment) -> bool {
        self.browsers.iter().any(|one| now.since(one.seen) < WATCHED)
    }
}

#[cfg(test)]
mod tests {
    use metamcp_wire::local::{Hello, Kind};

    use super::super::super::ClientContext;
    use super::*;
    use crate::env::Variables;

    fn at(seconds: u64) -> Moment {
        Moment::START + Duration::from_secs(seconds)
    }

    fn opener() -> Arc<Opener> {
        let client = ClientContext {
            folder: "/".into(),
            flags: Vec::new(),
            variables: Variables::of(std::collections::BTreeMap::new()),
        };
        Arc::new(Opener { hello: Hello::plain("1", Kind::Status, 1), client, is_person: true })
    }

    fn tokens() -> (Token, Token, Token) {
        let one = || Token::random().unwrap();
        (one(), one(), one())
    }

    #[test]
    fn a_link_lets_in_once_and_not_for_long() {
        let mut access = Access::default();
        let (link, cookie, key) = tokens();
        access.link(&link, opener(), at(0));
        assert_eq!(access.enter("x", (&cookie, &key), at(1)), Err(Wrong::Link));
        assert_eq!(access.enter(&link.text(), (&cookie, &key), at(59)), Ok(()));
        assert_eq!(access.enter(&link.text(), (&cookie, &key), at(59)), Err(Wrong::Link));
        access.link(&link, opener(), at(100));
        assert_eq!(access.enter(&link.text(), (&cookie, &key), at(160)), Err(Wrong::Link));
        // Used up by the late attempt.
        assert_eq!(access.enter(&link.text(), (&cookie, &key), at(101)), Err(Wrong::Link));
    }

    #[test]
    fn a_request_needs_both_halves_of_one_browser() {
        let mut access = Access::default();
        let (link, cookie, key) = tokens();
        let (other_link, other_cookie, other_key) = tokens();
        access.link(&link, opener(), at(0));
        access.link(&other_link, opener(), at(0));
        access.enter(&link.text(), (&cookie, &key), at(1)).unwrap();
        access.enter(&other_link.text(), (&other_cookie, &other_key), at(1)).unwrap();
        for (cookie, key, is_in) in [
            (cookie.text(), key.text(), true),
            (other_cookie.text(), other_key.text(), true),
            (cookie.text(), other_key.text(), false),
            (cookie.text(), String::new(), false),
            (String::new(), key.text(), false),
            (key.text(), cookie.text(), false),
        ] {
            assert_eq!(access.opener(&cookie, &key, at(2)).is_some(), is_in);
        }
        assert!(access.knows(&cookie.text(), at(2)) && !access.knows(&key.text(), at(2)));
        access.leave(&cookie.text());
        assert!(access.opener(&cookie.text(), &key.text(), at(2)).is_none());
        assert!(access.opener(&other_cookie.text(), &other_key.text(), at(2)).is_some());
    }

    #[test]
    fn who_does_not_look_is_forgotten() {
        let mut access = Access::default();
        let (link, cookie, key) = tokens();
        access.link(&link, opener(), at(0));
        access.enter(&link.text(), (&cookie, &key), at(0)).unwrap();
        assert!(access.is_watched(at(59)) && !access.is_watched(at(61)));
        let hours = 60 * 60;
        assert!(access.opener(&cookie.text(), &key.text(), at(11 * hours)).is_some());
        assert!(access.opener(&cookie.text(), &key.text(), at(22 * hours)).is_some());
        assert!(!access.knows(&cookie.text(), at(34 * hours)));
        assert!(access.opener(&cookie.text(), &key.text(), at(34 * hours)).is_none());
    }

    #[test]
    fn wrong_links_are_counted_and_keep_nobody_out() {
        let mut access = Access::default();
        let (link, cookie, key) = tokens();
        access.link(&link, opener(), at(0));
        for _ in 0..MAX_WRONG {
            assert_eq!(access.enter("guess", (&cookie, &key), at(1)), Err(Wrong::Link));
        }
        assert_eq!(access.enter("guess", (&cookie, &key), at(2)), Err(Wrong::TooMany));
        assert_eq!(access.enter(&link.text(), (&cookie, &key), at(2)), Ok(()));
        assert_eq!(access.enter("guess", (&cookie, &key), at(70)), Err(Wrong::Link));
    }

    #[test]
    fn links_and_browsers_are_bounded() {
        let mut access = Access::default();
        let mut first = None;
        for second in 0..(MAX as u64 + 5) {
            let (link, cookie, key) = tokens();
            access.link(&link, opener(), at(second));
            access.enter(&link.text(), (&cookie, &key), at(second)).unwrap();
            first.get_or_insert(cookie);
        }
        assert_eq!(access.browsers.len(), MAX);
        assert!(!access.knows(&first.unwrap().text(), at(50)));
        for _ in 0..(MAX + 5) {
            access.link(&tokens().0, opener(), at(50));
        }
        assert_eq!(access.links.len(), MAX);
    }
}
