//! Requests to servers, encoded ahead of time.
//!
//! Each question is about one user, or about several in one request. All questions
//! of a kind have the same length and lie end to end, so sending one costs the
//! generator a copy.

use anyhow::{Context, ensure};
use prost::Message;
use tidegate_overload::Category;

use crate::keys::{Draw, KEY_BYTES, write_key};
use crate::peer::messages::{
    Descriptor, Entry, RateLimitRequest, RateLimitResponse, ThrottleRequest, ThrottleResponse,
};
use crate::rule_text::{DOMAIN, USER};

/// The path of requests to HTTP servers.
pub(crate) const HTTP_PATH: &str = "/v1/check";

/// The distance between the users of one request, so that none is in it twice.
const STRIDE: u64 = 997;

/// The message of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Envoy's, with this many descriptors of one entry.
    Rls { descriptors: u64 },
    /// Throttlecrab's own: a key and its limit.
    Throttlecrab,
    /// A check as JSON, one descriptor.
    Json,
    /// A whole request for a page.
    Page,
    /// The same with the headers of a proxy in front of ours: the category and the client's address.
    Call(Category),
}

impl Wire {
    /// The path of this request.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Wire::Rls { .. } => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            Wire::Throttlecrab => "/throttlecrab.RateLimiter/Throttle",
            Wire::Json => HTTP_PATH,
            Wire::Page | Wire::Call(_) => "/page",
        }
    }

    /// Whether an answer admits the request.
    ///
    /// # Errors
    /// When it is no answer of this kind.
    pub(crate) fn admits(self, answer: &[u8]) -> anyhow::Result<bool> {
        Ok(match self {
            Wire::Rls { .. } => {
                RateLimitResponse::decode(answer)?.overall_code == RateLimitResponse::OK
            }
            Wire::Throttlecrab => ThrottleResponse::decode(answer)?.allowed,
            Wire::Json | Wire::Page | Wire::Call(_) => true,
        })
    }

    /// A whole request with these fields and the usual ones.
    fn head(self, fields: &str) -> String {
        format!(
            "GET {} HTTP/1.1\r\nhost: localhost\r\nuser-agent: tidegate-bench\r\n\
             accept: */*\r\n{fields}\r\n",
            self.path()
        )
    }

    fn encode(self, user: u64, users: u64, out: &mut Vec<u8>) {
        match self {
            Wire::Rls { descriptors } => {
                let users = (0..descriptors).map(|place| (user + place * STRIDE) % users.max(1));
                let descriptors = users.map(descriptor).collect();
                let domain = DOMAIN.to_owned();
                prefixed(&RateLimitRequest { domain, descriptors, hits_addend: 0 }, out);
            }
            Wire::Throttlecrab => prefixed(&ThrottleRequest::endless(name(user)), out),
            Wire::Json => {
                let entries = serde_json::json!([{"key": USER, "value": name(user)}]);
                let check = serde_json::json!({
                    "domain": DOMAIN, "descriptors": [{"entries": entries}],
                });
                out.extend_from_slice(check.to_string().as_bytes());
            }
            Wire::Page => out.extend_from_slice(self.head("").as_bytes()),
            Wire::Call(category) => {
                // Numbers of three digits, so that all have the same length.
                let (high, low) = (100 + user / 100 % 100, 100 + user % 100);
                let said = format!(
                    "x-tidegate-category: {}\r\nx-forwarded-for: 10.100.{high}.{low}\r\n",
                    category.as_str()
                );
                out.extend_from_slice(self.head(&said).as_bytes());
            }
        }
    }
}

fn name(user: u64) -> String {
    let mut name = String::with_capacity(KEY_BYTES);
    write_key(user, KEY_BYTES, &mut name);
    name
}

fn descriptor(user: u64) -> Descriptor {
    Descriptor { entries: vec![Entry { key: USER.to_owned(), value: name(user) }] }
}

/// A message as gRPC frames it: not compressed, its length, itself.
fn prefixed(message: &impl Message, out: &mut Vec<u8>) {
    let length = u32::try_from(message.encoded_len()).unwrap_or(u32::MAX);
    out.push(0);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&message.encode_to_vec());
}

/// Questions in the order of sending, repeated without end.
#[derive(Clone, Debug)]
pub(crate) struct Questions {
    wire: Wire,
    encoded: Vec<u8>,
    bytes: usize,
    /// Indexes into `encoded`, which has each question once.
    order: Vec<usize>,
    next: usize,
}

impl Questions {
    /// Questions about this many users by a Zipf distribution, drawn from a fixed seed.
    pub(crate) fn zipf(wire: Wire, users: u64, drawn: usize) -> anyhow::Result<Self> {
        let order = Draw::zipf(users).take(drawn).map(usize::try_from).collect::<Result<_, _>>();
        Questions::new(wire, users, order.context("that many users have no room")?)
    }

    /// Questions about each user in turn.
    pub(crate) fn each(wire: Wire, users: u64) -> anyhow::Result<Self> {
        let last = usize::try_from(users).context("that many users have no room")?;
        Questions::new(wire, users, (0..last).collect())
    }

    fn new(wire: Wire, users: u64, order: Vec<usize>) -> anyhow::Result<Self> {
        ensure!(users > 0 && !order.is_empty(), "nothing to ask");
        let mut encoded = Vec::new();
        wire.encode(0, users, &mut encoded);
        let bytes = encoded.len();
        for user in 1..users {
            wire.encode(user, users, &mut encoded);
        }
        ensure!(encoded.len() as u64 == bytes as u64 * users, "questions differ in length");
        Ok(Questions { wire, encoded, bytes, order, next: 0 })
    }

    pub(crate) const fn wire(&self) -> Wire {
        self.wire
    }

    /// The length of every question.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The next question.
    pub(crate) fn ask(&mut self) -> &[u8] {
        let place = self.order.get(self.next).copied().unwrap_or(0);
        self.next = (self.next + 1) % self.order.len();
        let start = place * self.bytes;
        self.encoded.get(start..start + self.bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rls(question: &[u8]) -> RateLimitRequest {
        RateLimitRequest::decode(&question[5..]).unwrap()
    }

    #[test]
    fn each_user_is_asked_about_once_before_the_first_comes_again() {
        let mut questions = Questions::each(Wire::Rls { descriptors: 1 }, 3).unwrap();
        let users: Vec<String> =
            (0..4).map(|_| rls(questions.ask()).descriptors[0].entries[0].value.clone()).collect();
        assert_eq!(users[0], users[3]);
        assert!(users[0] != users[1] && users[1] != users[2] && users[0] != users[2]);
    }

    #[test]
    fn one_question_names_no_user_twice() {
        let mut questions = Questions::each(Wire::Rls { descriptors: 10 }, 10_000).unwrap();
        let mut users: Vec<String> = rls(questions.ask())
            .descriptors
            .iter()
            .map(|descriptor| descriptor.entries[0].value.clone())
            .collect();
        users.sort();
        users.dedup();
        assert_eq!(users.len(), 10);
    }

    #[test]
    fn a_grpc_question_says_its_length() {
        let mut questions = Questions::zipf(Wire::Throttlecrab, 10, 10).unwrap();
        let question = questions.ask().to_vec();
        assert_eq!(usize::from(question[4]), question.len() - 5);
        assert_eq!(question.len(), questions.bytes());
    }

    #[test]
    fn a_call_names_its_category_and_another_client_each_time() {
        let mut questions = Questions::each(Wire::Call(Category::Test), 200).unwrap();
        let asked: Vec<Vec<u8>> = (0..201).map(|_| questions.ask().to_vec()).collect();
        assert_eq!(asked[0], asked[200]);
        assert!(asked[..200].windows(2).all(|pair| pair[0] != pair[1]));
        let text = String::from_utf8(asked[199].clone()).unwrap();
        assert!(text.starts_with("GET /page HTTP/1.1\r\nhost: "), "{text}");
        let end = "x-tidegate-category: test\r\nx-forwarded-for: 10.100.101.199\r\n\r\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn an_answer_over_the_limit_does_not_admit() {
        let wire = Wire::Rls { descriptors: 1 };
        assert!(wire.admits(&[8, 1]).unwrap());
        assert!(!wire.admits(&[8, 2]).unwrap());
        assert!(!wire.admits(&[]).unwrap());
        assert!(wire.admits(&[8]).is_err());
    }
}
