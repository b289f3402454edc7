//! Access tokens: who may read, check and change, and until when.
//!
//! A client sends a token as `Authorization: Bearer`. Only its SHA-256 is stored, so a leaked configuration reveals no
//! token; one round is enough because tokens are long and random. The hash of a request is compared with every stored
//! hash in constant time, so response times reveal nothing. Tokens are too long to be guessed, so there is no lock-out,
//! which others could provoke.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, ORIGIN};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use subtle::ConstantTimeEq;
use tidegate_algorithms::Timestamp;
use tidegate_words::words;

use crate::secret::{Sha256Hash, bearer_token, parse_sha256, sha256};

/// The shortest token: a shorter one could be guessed.
pub const TOKEN_BYTES_MIN: usize = 16;
/// The longest token: servers limit the length of header fields.
pub const TOKEN_BYTES_MAX: usize = 1024;
/// `WWW-Authenticate` of an answer with the status 401.
pub const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"tidegate\"");
/// The most characters of a token's name.
const NAME_CHARS_MAX: usize = 64;

words! {
    /// What a token allows. Roles are independent: a token that may change cannot check unless it has that role too.
    #[derive(PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum Role {
        /// Look at rules, counters and callers.
        Read = "read",
        /// Check requests against their limits, and release what they hold.
        Check = "check",
        /// Change counters, switches and settings.
        Change = "change",
        /// Approve drafts of others, in the control plane.
        Approve = "approve",
        /// Set switches, restore versions and overrule guards, in the control plane.
        Operate = "operate",
        /// Add and revoke tokens, and start epochs, in the control plane.
        Admin = "admin",
        /// Read snapshots and report, as a node of a control plane.
        Node = "node",
    }
}

/// A token: its name, the hash of its text, its roles and its expiry. Written as `HASH NAME ROLES [EXPIRES]`.
///
/// ```
/// use tidegate_access::AccessToken;
///
/// // The SHA-256 of the token's text.
/// let hash = "1c8bfe8f801d79745c4631d09fff36c82aa37fc4cce4fc946683d7b336b63032";
/// let token: AccessToken = format!("{hash} deploy check+change 2030-01-31").parse()?;
/// assert_eq!(token.name(), "deploy");
/// # Ok::<(), tidegate_access::TokenError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken {
    name: String,
    hash: Sha256Hash,
    roles: Vec<Role>,
    /// The day on which it is no longer valid, and the instant at which that day begins.
    expires: Option<(String, Timestamp)>,
}

/// A text that is no token. No message repeats the text: a token may stand in place of its hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Too short or too long.
    #[error("a token has {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} characters, not {bytes}")]
    Length {
        /// The length in bytes.
        bytes: usize,
    },
    /// Cannot be sent in a header field.
    #[error("a token has only letters, digits and punctuation of ASCII, and no spaces")]
    Letters,
    /// Not the words of a token.
    #[error("a token is written as `HASH NAME ROLES [EXPIRES]`")]
    Words,
    /// Not a hash.
    #[error("expected the SHA-256 of a token in 64 hexadecimal digits")]
    Hash,
    /// A long name.
    #[error("the name of a token has up to {NAME_CHARS_MAX} characters")]
    Name,
    /// An unknown role.
    #[error("the third word has the roles of a token, joined by `+`: {}", Role::WORDS.join(", "))]
    Role,
    /// Not a day.
    #[error("the fourth word is the day on which a token expires: YYYY-MM-DD")]
    Expires,
}

/// Why a request has no access.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// No token, several, or one that is not known.
    #[error("this route needs a token: send `Authorization: Bearer …`")]
    NoToken,
    /// The token is no longer valid.
    #[error("the token `{name}` has expired")]
    Expired {
        /// The name of the token.
        name: String,
    },
    /// The token lacks the role.
    #[error("the token `{name}` does not have the role `{}`", .role.as_str())]
    NoRole {
        /// The name of the token.
        name: String,
        /// The role that the route needs.
        role: Role,
    },
    /// There are no tokens, and the port can be reached from other machines.
    #[error("changes need a token: other machines can reach this port, and no token is configured")]
    ChangesOff,
    /// There are no tokens, and the request comes from a page in a browser.
    #[error("changes from a browser need a token, and none is configured")]
    Browser,
}

impl AccessError {
    /// The status of the answer: 401 if another token would help, or else 403.
    pub const fn status(&self) -> StatusCode {
        match self {
            AccessError::NoToken | AccessError::Expired { .. } => StatusCode::UNAUTHORIZED,
            AccessError::NoRole { .. } | AccessError::ChangesOff | AccessError::Browser => {
                StatusCode::FORBIDDEN
            }
        }
    }
}

impl AccessToken {
    /// A token of this text, which has all roles and does not expire.
    ///
    /// # Errors
    /// When the text is too short, too long, or cannot be sent in a header field.
    pub fn of_secret(name: &str, text: &str) -> Result<Self, TokenError> {
        let bytes = text.len();
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&bytes) {
            return Err(TokenError::Length { bytes });
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Letters);
        }
        let (hash, roles) = (sha256(text.as_bytes()), Role::ALL.to_vec());
        Ok(AccessToken { name: name.to_owned(), hash, roles, expires: None })
    }

    /// Its name, for logs and answers.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn authorize(&self, role: Role, now: Timestamp) -> Result<(), AccessError> {
        let name = || self.name.clone();
        if self.expires.as_ref().is_some_and(|(_, at)| now >= *at) {
            return Err(AccessError::Expired { name: name() });
        }
        if !self.roles.contains(&role) {
            return Err(AccessError::NoRole { name: name(), role });
        }
        Ok(())
    }
}

impl FromStr for AccessToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let mut words = text.split_ascii_whitespace();
        let (Some(hash), Some(name), Some(roles)) = (words.next(), words.next(), words.next())
        else {
            return Err(TokenError::Words);
        };
        let expires = words.next().map(parse_day).transpose()?;
        if words.next().is_some() {
            return Err(TokenError::Words);
        }
        if name.chars().count() > NAME_CHARS_MAX {
            return Err(TokenError::Name);
        }
        let role = |word: &str| Role::from_word(word).ok_or(TokenError::Role);
        let roles = roles.split('+').map(role).collect::<Result<_, _>>()?;
        let hash = parse_sha256(hash).ok_or(TokenError::Hash)?;
        Ok(AccessToken { name: name.to_owned(), hash, roles, expires })
    }
}

/// As it is written, but without the hash.
impl fmt::Display for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles: Vec<&str> = self.roles.iter().map(|role| role.as_str()).collect();
        write!(f, "*** {} {}", self.name, roles.join("+"))?;
        match &self.expires {
            Some((day, _)) => write!(f, " {day}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccessToken({self})")
    }
}

/// The tokens of a door. Clones share the list, so that it can be replaced while the door is open.
#[derive(Clone, Debug, Default)]
pub struct AccessTokens(Arc<ArcSwap<Vec<AccessToken>>>);

impl AccessTokens {
    /// These tokens.
    pub fn new(tokens: impl IntoIterator<Item = AccessToken>) -> Self {
        AccessTokens(Arc::new(ArcSwap::from_pointee(tokens.into_iter().collect())))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.load().is_empty()
    }

    /// Replaces the list, in every clone. Returns whether it is another one.
    pub fn replace(&self, tokens: &AccessTokens) -> bool {
        let differs = self != tokens;
        if differs {
            self.0.store(tokens.0.load_full());
        }
        differs
    }

    /// The name of the request's token, if that has this role now.
    ///
    /// # Errors
    /// When the request has no known token, or one that has expired or lacks the role.
    pub fn authorize(
        &self,
        headers: &HeaderMap,
        role: Role,
        now: Timestamp,
    ) -> Result<String, AccessError> {
        let tokens = self.0.load();
        let token = find(&tokens, headers).ok_or(AccessError::NoToken)?;
        token.authorize(role, now)?;
        Ok(token.name.clone())
    }
}

impl PartialEq for AccessTokens {
    fn eq(&self, other: &Self) -> bool {
        *self.0.load() == *other.0.load()
    }
}

impl Eq for AccessTokens {}

/// The token that a request sends, in exactly one field.
fn find<'t>(tokens: &'t [AccessToken], headers: &HeaderMap) -> Option<&'t AccessToken> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    let hash = sha256(bearer_token(field.as_bytes())?);
    // All are compared, so that the time does not depend on which one it is.
    let matches = |token: &&AccessToken| bool::from(token.hash.ct_eq(&hash));
    tokens.iter().fold(None, |found, token| found.or(Some(token).filter(matches)))
}

/// Who has access to a door.
///
/// With tokens, every route that has a role needs one. Without tokens everything is open but changes, which need
/// `changes_without_token`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessPolicy {
    /// The tokens. Default: none.
    pub tokens: AccessTokens,
    /// Whether changes are allowed if there are no tokens. Only for ports that other machines cannot reach. Default: no.
    pub changes_without_token: bool,
}

impl AccessPolicy {
    /// Allows everything without a token: for ports that other machines cannot reach.
    pub fn local() -> Self {
        AccessPolicy { changes_without_token: true, ..AccessPolicy::default() }
    }

    /// Decides whether a request has access to a route with this role. `now` is called only if there are tokens.
    ///
    /// # Errors
    /// When it has not.
    pub fn authorize(
        &self,
        headers: &HeaderMap,
        role: Role,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<(), AccessError> {
        if !self.tokens.is_empty() {
            return self.tokens.authorize(headers, role, now()).map(|_| ());
        }
        match role {
            Role::Read | Role::Check => Ok(()),
            _ if !self.changes_without_token => Err(AccessError::ChangesOff),
            // Without a token only the loopback address protects the port, and any page in a browser on this machine
            // reaches that.
            _ if headers.contains_key(ORIGIN) => Err(AccessError::Browser),
            _ => Ok(()),
        }
    }
}

/// A day, and the instant at which it begins in UTC.
fn parse_day(text: &str) -> Result<(String, Timestamp), TokenError> {
    let mut numbers = text.split('-').map(|part| {
        let digits = part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<i16>().ok().filter(|_| digits)
    });
    let (Some(Some(year)), Some(Some(month)), Some(Some(day)), None) =
        (numbers.next(), numbers.next(), numbers.next(), numbers.next())
    else {
        return Err(TokenError::Expires);
    };
    let date = i8::try_from(month).ok().zip(i8::try_from(day).ok());
    let date = date.and_then(|(month, day)| Date::new(year, month, day).ok());
    let date = date.filter(|_| (1970..=2500).contains(&year)).ok_or(TokenError::Expires)?;
    let start = TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0)).map_err(|_| TokenError::Expires)?;
    let seconds = u64::try_from(start.as_second()).map_err(|_| TokenError::Expires)?;
    Ok((text.to_owned(), Timestamp::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const SECRET: &str = "correct-horse-battery";
    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn headers(fields: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(AUTHORIZATION, HeaderValue::from_str(field).unwrap());
        }
        headers
    }

    fn accepts(fields: &[&str]) -> bool {
        let other = AccessToken::of_secret("other", "some-other-token-here").unwrap();
        let tokens = [other, AccessToken::of_secret("own", SECRET).unwrap()];
        AccessTokens::new(tokens).authorize(&headers(fields), Role::Change, NOW).is_ok()
    }

    /// The token as it would be written.
    fn written(roles_and_expiry: &str) -> String {
        let hash: String = sha256(SECRET.as_bytes()).iter().map(|b| format!("{b:02x}")).collect();
        format!("{hash} ci {roles_and_expiry}")
    }

    fn authorize(token: &str, role: Role, now: Timestamp) -> Result<String, AccessError> {
        let tokens = AccessTokens::new([token.parse().unwrap()]);
        let sent = headers(&["Bearer correct-horse-battery"]);
        tokens.authorize(&sent, role, now)
    }

    #[test]
    fn only_the_whole_token_is_accepted() {
        assert!(accepts(&["Bearer correct-horse-battery"]));
        assert!(accepts(&["bearer  correct-horse-battery"]));
        assert!(accepts(&["Bearer some-other-token-here"]));
        for wrong in [
            "Bearer correct-horse-batter",
            "Bearer correct-horse-batteryy",
            "Bearer Correct-horse-battery",
            "Bearer ",
            "Bearer",
            "Basic correct-horse-battery",
            "correct-horse-battery",
            "",
        ] {
            assert!(!accepts(&[wrong]), "{wrong}");
        }
        assert!(!accepts(&[]));
    }

    #[test]
    fn two_fields_are_refused_even_when_one_is_right() {
        assert!(!accepts(&["Bearer correct-horse-battery", "Bearer something-else-here"]));
        assert!(!accepts(&["Bearer correct-horse-battery", "Bearer correct-horse-battery"]));
    }

    #[test]
    fn a_secret_is_neither_short_nor_unsendable() {
        let of = |text: &str| AccessToken::of_secret("t", text).unwrap_err();
        assert_eq!(of("short"), TokenError::Length { bytes: 5 });
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        assert_eq!(of(&long), TokenError::Length { bytes: long.len() });
        for text in ["with spaces in the text", "with\nlines-in-the-text", "mit-Umläuten-im-Text"]
        {
            assert_eq!(of(text), TokenError::Letters);
        }
    }

    #[test]
    fn a_token_has_exactly_the_roles_that_are_written() {
        assert_eq!(authorize(&written("read+check"), Role::Check, NOW), Ok("ci".to_owned()));
        let error = authorize(&written("read+check"), Role::Change, NOW).unwrap_err();
        assert_eq!(error.to_string(), "the token `ci` does not have the role `change`");
    }

    #[test]
    fn a_token_expires_when_its_day_begins() {
        let token = written("check 2027-01-15");
        // 2027-01-15 begins at this second.
        let day = Timestamp::from_secs(1_799_971_200);
        let before = Timestamp::from_secs(1_799_971_199);
        assert!(authorize(&token, Role::Check, before).is_ok());
        let expired = Err(AccessError::Expired { name: "ci".to_owned() });
        assert_eq!(authorize(&token, Role::Check, day), expired);
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        let seconds = |text: &str| parse_day(text).map(|(_, at)| at.as_nanos() / 1_000_000_000);
        assert_eq!(seconds("1970-01-01"), Ok(0));
        assert_eq!(seconds("2000-02-29"), Ok(951_782_400));
        assert_eq!(seconds("2024-12-31"), Ok(1_735_603_200));
        for wrong in
            ["2023-02-29", "2100-02-29", "2024-13-01", "2024-00-01", "2024-01-00", "1969-12-31"]
        {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        for wrong in
            ["", "2024", "2024-01-01-01", "+2024-01-01", "tomorrow", "99999999999999999999-01-01"]
        {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_malformed_token_is_an_error_that_says_what_is_wrong() {
        let error = |text: &str| text.parse::<AccessToken>().unwrap_err();
        assert_eq!(error("abc"), TokenError::Words);
        assert_eq!(error(&written("check 2027-01-15 more")), TokenError::Words);
        assert_eq!(error(&written("check+write")), TokenError::Role);
        assert_eq!(error(&written("")), TokenError::Words);
        assert_eq!(error(&written("check soon")), TokenError::Expires);
        assert_eq!(error("correct-horse-battery ci check"), TokenError::Hash);
        let long = written("check").replace(" ci ", &format!(" {} ", "x".repeat(65)));
        assert_eq!(error(&long), TokenError::Name);
    }

    #[test]
    fn without_tokens_only_changes_are_closed() {
        let (nothing, browser) = (HeaderMap::new(), {
            let mut headers = HeaderMap::new();
            headers.insert(ORIGIN, HeaderValue::from_static("https://evil.example"));
            headers
        });
        let remote = AccessPolicy::default();
        assert_eq!(remote.authorize(&nothing, Role::Read, || NOW), Ok(()));
        assert_eq!(remote.authorize(&nothing, Role::Check, || NOW), Ok(()));
        let off = remote.authorize(&nothing, Role::Change, || NOW);
        assert_eq!(off, Err(AccessError::ChangesOff));
        let local = AccessPolicy::local();
        assert_eq!(local.authorize(&nothing, Role::Change, || NOW), Ok(()));
        assert_eq!(local.authorize(&browser, Role::Change, || NOW), Err(AccessError::Browser));
        assert_eq!(local.authorize(&browser, Role::Check, || NOW), Ok(()));
    }

    #[test]
    fn with_tokens_every_role_needs_one() {
        let tokens = AccessTokens::new([written("read").parse().unwrap()]);
        let policy = AccessPolicy { tokens, changes_without_token: true };
        let sent = headers(&["Bearer correct-horse-battery"]);
        assert_eq!(policy.authorize(&sent, Role::Read, || NOW), Ok(()));
        for role in Role::ALL {
            let error = policy.authorize(&HeaderMap::new(), role, || NOW).unwrap_err();
            assert_eq!((&error, error.status()), (&AccessError::NoToken, StatusCode::UNAUTHORIZED));
        }
        let error = policy.authorize(&sent, Role::Change, || NOW).unwrap_err();
        assert_eq!(error.status(), StatusCode::FORBIDDEN);
    }

    #[test]
    fn a_replaced_list_counts_at_once_in_every_clone() {
        let tokens = AccessTokens::default();
        let policy = AccessPolicy { tokens: tokens.clone(), ..AccessPolicy::default() };
        assert_eq!(policy.authorize(&HeaderMap::new(), Role::Check, || NOW), Ok(()));
        let listed = AccessTokens::new([written("check").parse().unwrap()]);
        assert!(tokens.replace(&listed));
        assert!(!tokens.replace(&listed), "the same list");
        let refused = policy.authorize(&HeaderMap::new(), Role::Check, || NOW);
        assert_eq!(refused, Err(AccessError::NoToken));
        let sent = headers(&["Bearer correct-horse-battery"]);
        assert_eq!(policy.authorize(&sent, Role::Check, || NOW), Ok(()));
        // A later change of the copied list is another list.
        listed.replace(&AccessTokens::default());
        assert_eq!(policy.authorize(&sent, Role::Check, || NOW), Ok(()));
    }

    #[test]
    fn neither_a_token_nor_its_hash_is_printed() {
        let token: AccessToken = written("check 2027-01-15").parse().unwrap();
        assert_eq!(format!("{token:?}"), "AccessToken(*** ci check 2027-01-15)");
    }
}
