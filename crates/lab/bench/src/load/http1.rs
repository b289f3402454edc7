//! Requests over HTTP/1.1, one at a time on one connection.

use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::{Protocol, Reply};
use crate::questions::Questions;

/// Where a head ends.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// The longest head of a response.
const HEAD_MAX: usize = 16_384;

/// One connection's state.
#[derive(Debug)]
pub(crate) struct Http1 {
    head: Vec<u8>,
    asked: Option<Duration>,
}

impl Http1 {
    /// For questions that are whole requests.
    pub(crate) const fn plain() -> Self {
        Http1 { head: Vec::new(), asked: None }
    }

    /// For questions that are bodies of a POST.
    pub(crate) fn new(questions: &Questions) -> Self {
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\nuser-agent: tidegate-bench\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            questions.wire().path(),
            questions.bytes(),
        );
        Http1 { head: head.into_bytes(), asked: None }
    }
}

impl Protocol for Http1 {
    fn open(&mut self, _out: &mut Vec<u8>) {}

    fn has_room(&self) -> bool {
        self.asked.is_none()
    }

    fn ask(&mut self, question: &[u8], asked: Duration, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        out.extend_from_slice(question);
        self.asked = Some(asked);
    }

    fn hear(
        &mut self,
        input: &[u8],
        _out: &mut Vec<u8>,
        replies: &mut Vec<Reply>,
    ) -> anyhow::Result<usize> {
        let Some(end) = input.windows(HEAD_END.len()).position(|bytes| bytes == HEAD_END) else {
            ensure!(input.len() <= HEAD_MAX, "an answer's head does not end");
            return Ok(0);
        };
        let head = input.get(..end).unwrap_or_default();
        let head = str::from_utf8(head).context("an answer's head is not text")?;
        let body = content_length(head).context("an answer does not say its length")?;
        let whole = end.saturating_add(HEAD_END.len()).saturating_add(body);
        if input.len() < whole {
            return Ok(0);
        }
        let asked = self.asked.take().context("an answer to no question of ours")?;
        replies.push(Reply { asked, admitted: admits(head)? });
        Ok(whole)
    }

    fn in_flight(&self) -> usize {
        usize::from(self.asked.is_some())
    }
}

/// Whether the status is a success.
fn admits(head: &str) -> anyhow::Result<bool> {
    let status = head.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(true),
        Some("429" | "503") => Ok(false),
        _ => bail!("the server answered {status:?}"),
    }
}

fn content_length(head: &str) -> Option<usize> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let mut lengths = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths.next()?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::questions::Wire;

    const NOW: Duration = Duration::from_millis(5);
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

    fn asked() -> Http1 {
        let mut questions = Questions::each(Wire::Json, 1).unwrap();
        let mut http1 = Http1::new(&questions);
        http1.ask(questions.ask(), NOW, &mut Vec::new());
        http1
    }

    fn hear(http1: &mut Http1, input: &[u8]) -> anyhow::Result<(usize, Vec<Reply>)> {
        let mut replies = Vec::new();
        let done = http1.hear(input, &mut Vec::new(), &mut replies)?;
        Ok((done, replies))
    }

    #[test]
    fn an_answer_counts_once_it_is_whole() {
        let mut http1 = asked();
        for length in 0..ANSWER.len() {
            assert_eq!(hear(&mut http1, &ANSWER[..length]).unwrap(), (0, Vec::new()));
        }
        assert!(!http1.has_room());
        let reply = Reply { asked: NOW, admitted: true };
        assert_eq!(hear(&mut http1, ANSWER).unwrap(), (ANSWER.len(), vec![reply]));
        assert!(http1.has_room());
    }

    #[test]
    fn too_many_requests_and_no_service_are_refusals_and_other_statuses_are_errors() {
        let refusal = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";
        assert!(!hear(&mut asked(), refusal).unwrap().1[0].admitted);
        let shed = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
        assert!(!hear(&mut asked(), shed).unwrap().1[0].admitted);
        let failure = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        let error = hear(&mut asked(), failure).unwrap_err();
        assert_eq!(error.to_string(), "the server answered \"HTTP/1.1 404 Not Found\"");
    }

    #[test]
    fn an_answer_to_nothing_is_an_error() {
        let mut http1 = asked();
        hear(&mut http1, ANSWER).unwrap();
        assert!(hear(&mut http1, ANSWER).is_err());
    }
}
