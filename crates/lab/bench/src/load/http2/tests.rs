use super::*;
use crate::questions::Wire;

const NOW: Duration = Duration::from_millis(5);

fn questions() -> Questions {
    Questions::each(Wire::Rls { descriptors: 1 }, 1).unwrap()
}

/// A connection on which one call has been made.
fn asked() -> Http2 {
    let mut http2 = Http2::new(&questions(), 2).unwrap();
    http2.ask(questions().ask(), NOW, &mut Vec::new());
    http2
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame { kind, flags, stream, payload }.write(&mut bytes);
    bytes
}

/// What a connection makes of these bytes: what it says and the replies.
fn hear(http2: &mut Http2, input: &[u8]) -> anyhow::Result<(Vec<u8>, Vec<Reply>)> {
    let (mut said, mut replies) = (Vec::new(), Vec::new());
    let done = http2.hear(input, &mut said, &mut replies)?;
    assert_eq!(done, input.len());
    Ok((said, replies))
}

#[test]
fn a_message_and_trailers_are_a_reply() {
    let mut http2 = asked();
    let message = frame(kind::DATA, flag::NONE, 1, &[0, 0, 0, 0, 2, 8, 1]);
    assert_eq!(hear(&mut http2, &message).unwrap().1, []);
    let trailers = frame(kind::HEADERS, flag::END_STREAM | flag::END_HEADERS, 1, &[]);
    let reply = Reply { asked: NOW, admitted: true };
    assert_eq!(hear(&mut http2, &trailers).unwrap().1, [reply]);
    assert_eq!(http2.in_flight(), 0);
}

#[test]
fn a_refusal_is_a_reply_too() {
    let mut http2 = asked();
    let message = frame(kind::DATA, flag::END_STREAM, 1, &[0, 0, 0, 0, 2, 8, 2]);
    assert!(!hear(&mut http2, &message).unwrap().1[0].admitted);
}

#[test]
fn trailers_without_a_message_are_an_error() {
    let trailers = frame(kind::HEADERS, flag::END_STREAM | flag::END_HEADERS, 1, &[]);
    let error = hear(&mut asked(), &trailers).unwrap_err();
    assert_eq!(error.to_string(), "a call ended without an answer");
}

#[test]
fn a_call_that_the_server_gives_up_is_an_error() {
    let reset = frame(kind::RST_STREAM, flag::NONE, 1, &[0, 0, 0, 7]);
    let error = hear(&mut asked(), &reset).unwrap_err();
    assert_eq!(error.to_string(), "the server gave up a call with error 7");
    let goaway = frame(kind::GOAWAY, flag::NONE, 0, &[0, 0, 0, 1, 0, 0, 0, 11]);
    let error = hear(&mut asked(), &goaway).unwrap_err();
    assert_eq!(error.to_string(), "the server ends the connection with error 11");
}

#[test]
fn settings_and_pings_are_acknowledged() {
    let settings = frame(kind::SETTINGS, flag::NONE, 0, &[]);
    let said = hear(&mut asked(), &settings).unwrap().0;
    assert_eq!(said, frame(kind::SETTINGS, flag::ACK, 0, &[]));
    let said = hear(&mut asked(), &said).unwrap().0;
    assert!(said.is_empty());
    let ping = frame(kind::PING, flag::NONE, 0, b"12345678");
    let said = hear(&mut asked(), &ping).unwrap().0;
    assert_eq!(said, frame(kind::PING, flag::ACK, 0, b"12345678"));
}

#[test]
fn the_server_may_allow_fewer_calls_than_wished_for() {
    let mut http2 = asked();
    assert!(http2.has_room());
    let settings = frame(kind::SETTINGS, flag::NONE, 0, &[0, 3, 0, 0, 0, 1]);
    hear(&mut http2, &settings).unwrap();
    assert!(!http2.has_room());
}

#[test]
fn no_more_is_sent_than_the_server_is_ready_to_take() {
    let mut http2 = Http2::new(&questions(), usize::MAX).unwrap();
    let mut sent = 0;
    while http2.has_room() {
        http2.ask(questions().ask(), NOW, &mut Vec::new());
        sent += questions().bytes();
    }
    assert!(sent <= WINDOW as usize && sent + questions().bytes() > WINDOW as usize);
    let more = frame(kind::WINDOW_UPDATE, flag::NONE, 0, &[0, 0, 1, 0]);
    hear(&mut http2, &more).unwrap();
    assert!(http2.has_room());
}

#[test]
fn the_server_hears_that_answers_were_read() {
    let mut http2 = asked();
    http2.heard = MORE_WINDOW / 2 - 1;
    let message = frame(kind::DATA, flag::NONE, 1, &[0, 0, 0, 0, 2, 8, 1]);
    let said = hear(&mut http2, &message).unwrap().0;
    let heard = (MORE_WINDOW / 2 + 6).to_be_bytes();
    assert_eq!(said, frame(kind::WINDOW_UPDATE, flag::NONE, 0, &heard));
    assert_eq!(http2.heard, 0);
}
