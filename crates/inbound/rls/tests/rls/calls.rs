//! Calls that are no calls, broken ones, late ones; health and reflection.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Version};
use http_body::{Body, Frame};
use http_body_util::Full;
use hyper::service::Service;
use prost::Message;
use tidegate_access::{AccessToken, AccessTokens};
use tidegate_engine::Engine;
use tidegate_rls::RlsSettings;
use tidegate_rls::proto::{RateLimitRequest, RateLimitResponse};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_stream::{StreamExt, iter};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::{
    Answer, METHOD, Silent, call_of, call_with, descriptor, door, door_of, door_to, door_with,
    framed, memory, request, rules, user,
};

const RULES: &str = "- {key: user, rate_limit: {unit: minute, requests_per_unit: 3}}";

fn with(name: &'static str, value: &'static str) -> Request<Full<Bytes>> {
    let mut request = call_of(&request([user()]));
    request.headers_mut().insert(name, HeaderValue::from_static(value));
    request
}

#[tokio::test]
async fn a_call_is_answered_with_one_message_and_its_status() {
    let answer = door(RULES).call(call_of(&request([user()]))).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers.len(), 1);
    assert_eq!(answer.headers["content-type"], "application/grpc");
    let trailers = answer.trailers.as_ref().unwrap();
    assert_eq!((trailers.len(), &trailers["grpc-status"]), (1, &HeaderValue::from_static("0")));
    // overall OK; OK 3 per minute, 2 left, 60 s.
    let golden = [
        0, 0, 0, 0, 18, 0x08, 1, 0x12, 14, 0x08, 1, 0x12, 4, 0x08, 3, 0x10, 2, 0x18, 2, 0x22, 2,
        0x08, 60,
    ];
    assert_eq!(answer.body, &golden[..]);
    let read = RateLimitResponse::decode(&answer.body[5..]).unwrap();
    assert_eq!(read.encode_to_vec(), &answer.body[5..]);
}

#[tokio::test]
async fn other_content_types_are_refused_with_415() {
    for content_type in [
        "application/json",
        "application/grpcx",
        "application/grpc-web",
        "application/grpc+json",
        "",
    ] {
        let answer = door(RULES).call(with("content-type", content_type)).await;
        assert_eq!(answer.status, 415, "{content_type}");
        assert!(answer.headers.get("grpc-status").is_none());
    }
    let mut request = call_of(&request([user()]));
    request.headers_mut().remove("content-type");
    assert_eq!(door(RULES).call(request).await.status, 415);
    for content_type in
        ["application/grpc+proto", "Application/gRPC", "application/grpc; charset=utf-8"]
    {
        let answer = door(RULES).call(with("content-type", content_type)).await;
        assert_eq!(answer.grpc_status().0, "0", "{content_type}");
    }
}

#[tokio::test]
async fn calls_need_post_and_http_2() {
    let mut get = call_of(&request([user()]));
    *get.method_mut() = http::Method::GET;
    assert_eq!(door(RULES).call(get).await.status, 405);
    let mut old = call_of(&request([user()]));
    *old.version_mut() = Version::HTTP_11;
    assert_eq!(door(RULES).call(old).await.status, 505);
}

#[tokio::test]
async fn a_browser_gets_an_answer_that_it_understands() {
    let address = door(RULES).listen().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 415 Unsupported Media Type\r\n"), "{answer}");
    assert!(answer.contains("this is a gRPC service"), "{answer}");
}

#[tokio::test]
async fn broken_frames_have_their_statuses() {
    let message = request([user()]).encode_to_vec();
    let whole = framed(&message);
    let two = [whole.clone(), whole.clone()].concat();
    let mut compressed = whole.clone();
    compressed[0] = 1;
    let mut flagged = whole.clone();
    flagged[0] = 7;
    let cases: [(&[u8], &str); 7] = [
        (&[], "12"),
        (&two, "12"),
        (&compressed, "12"),
        (&whole[..3], "13"),
        (&whole[..whole.len() - 1], "13"),
        (&flagged, "13"),
        (&framed(&[0x0A, 0xFF]), "13"),
    ];
    let door = door(RULES);
    for (body, status) in cases {
        let answer = door.call(call_with(body.to_vec())).await;
        assert_eq!((answer.status, answer.grpc_status().0.as_str()), (200, status), "{body:?}");
        assert!(!answer.grpc_status().1.is_empty());
    }
    assert_eq!(door.meter.read().answers, [0, 0, 0, 0, 7, 0]);
}

#[tokio::test]
async fn a_message_that_says_compressed_by_nothing_is_read() {
    let mut frame = framed(&request([user()]).encode_to_vec());
    frame[0] = 1;
    let mut call = call_with(frame);
    call.headers_mut().insert("grpc-encoding", HeaderValue::from_static("identity"));
    assert_eq!(door(RULES).call(call).await.grpc_status().0, "0");
}

#[tokio::test]
async fn a_message_of_three_mebibytes_with_two_thousand_descriptors_is_answered() {
    let settings = RlsSettings {
        message_bytes_max: 4 << 20,
        descriptors_max: 100_000,
        ..RlsSettings::default()
    };
    let engine = |clock| {
        let engine = Engine::new(memory(), clock).with_rules(rules(RULES));
        engine.with_descriptors_max(settings.descriptors_max)
    };
    let door = door_of(engine, settings.clone());
    let value = "x".repeat(1_600);
    let asked = request(vec![descriptor(&[("user", &value)]); 2_000]);
    assert!(asked.encoded_len() > 3 << 20);
    assert_eq!(door.answer(asked).await.statuses.len(), 2_000);
}

#[tokio::test]
async fn messages_that_are_too_long_are_refused() {
    let settings = RlsSettings { message_bytes_max: 100, ..RlsSettings::default() };
    let door = door_with(rules(RULES), settings);
    let exact = |length: usize| {
        let mut asked = request([user()]);
        asked.domain = "x".repeat(length + 3 - asked.encoded_len());
        assert_eq!(asked.encoded_len(), length);
        asked
    };
    assert_eq!(door.call(call_of(&exact(100))).await.grpc_status().0, "0");
    let answer = door.call(call_of(&exact(101))).await;
    assert_eq!(
        answer.grpc_status(),
        ("8".to_owned(), "the message is longer than 100 bytes".to_owned())
    );
    let promise = door.call(call_with(vec![0, 255, 255, 255, 255])).await;
    assert_eq!(promise.grpc_status().0, "8");
}

/// A body that comes in pieces, and then either ends or is never heard of again.
struct Pieces {
    pieces: Vec<Bytes>,
    ends: bool,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.pieces.pop() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

fn in_pieces(asked: &RateLimitRequest, ends: bool) -> Request<Pieces> {
    let frame = framed(&asked.encode_to_vec());
    let pieces = frame.chunks(3).rev().map(Bytes::copy_from_slice).collect();
    call_with(Bytes::new()).map(|_| Pieces { pieces, ends })
}

#[tokio::test]
async fn a_message_in_many_pieces_is_read() {
    let door = door(RULES);
    let Ok(response) = door.rls.call(in_pieces(&request([user()]), true)).await;
    assert_eq!(Answer::read(response).await.grpc_status().0, "0");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_call_whose_body_does_not_come() {
    let door = door(RULES);
    let mut call = in_pieces(&request([user()]), false);
    call.headers_mut().insert("grpc-timeout", HeaderValue::from_static("20m"));
    let begun = tokio::time::Instant::now();
    let Ok(response) = door.rls.call(call).await;
    let answer = Answer::read(response).await;
    assert_eq!(answer.grpc_status(), ("4".to_owned(), "the deadline has passed".to_owned()));
    assert!((20..25).contains(&begun.elapsed().as_millis()));
    assert_eq!(door.meter.read().answers, [0, 0, 0, 0, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_call_whose_store_does_not_answer() {
    let door = door_to(Silent, rules(RULES), RlsSettings::default());
    let call = door.call(with("grpc-timeout", "3S"));
    let answer = tokio::time::timeout(Duration::from_secs(10), call).await.unwrap();
    assert_eq!(answer.grpc_status().0, "4");
}

#[tokio::test]
async fn a_call_without_time_is_not_charged() {
    let door = door(RULES);
    assert_eq!(door.call(with("grpc-timeout", "0n")).await.grpc_status().0, "4");
    let answer = door.call(with("grpc-timeout", "1H")).await;
    let read = RateLimitResponse::decode(&answer.body[5..]).unwrap();
    assert_eq!(read.statuses[0].limit_remaining, 2);
    assert_eq!(door.call(with("grpc-timeout", "soon")).await.grpc_status().0, "13");
}

#[tokio::test]
async fn unknown_methods_are_unimplemented() {
    for path in ["/", "/envoy.service.ratelimit.v3.RateLimitService/Other", "/a.B/C"] {
        let mut call = call_with(framed(&[]));
        *call.uri_mut() = path.parse().unwrap();
        assert_eq!(door(RULES).call(call).await.grpc_status().0, "12", "{path}");
    }
    assert!(METHOD.starts_with("/envoy"));
}

async fn health(client: &mut HealthClient<tonic::transport::Channel>, service: &str) -> i32 {
    let asked = HealthCheckRequest { service: service.to_owned() };
    match client.check(asked).await {
        Ok(answer) => answer.into_inner().status,
        Err(status) => -i32::from(status.code()),
    }
}

#[tokio::test]
async fn health_follows_its_handle_until_the_process_drains() {
    const SERVING: i32 = 1;
    const NOT_SERVING: i32 = 2;
    const FULL_NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";
    let door = door(RULES);
    let mut client = HealthClient::new(door.connect().await);
    assert_eq!(health(&mut client, "").await, SERVING);
    assert_eq!(health(&mut client, "ratelimit").await, NOT_SERVING);
    assert_eq!(health(&mut client, "other").await, -i32::from(tonic::Code::NotFound));
    let asked = HealthCheckRequest { service: "ratelimit".to_owned() };
    let mut watch = client.watch(asked).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, NOT_SERVING);
    door.health.set_serving(true);
    assert!(door.health.is_serving());
    assert_eq!(watch.message().await.unwrap().unwrap().status, SERVING);
    for name in ["ratelimit", FULL_NAME] {
        assert_eq!(health(&mut client, name).await, SERVING);
    }
    door.health.drain();
    door.health.set_serving(true);
    for name in ["", "ratelimit", FULL_NAME] {
        assert_eq!(health(&mut client, name).await, NOT_SERVING);
    }
    assert_eq!(watch.message().await.unwrap().unwrap().status, NOT_SERVING);
    assert!(watch.message().await.unwrap().is_none(), "a drained process keeps no stream open");
}

#[tokio::test]
async fn an_unknown_service_is_watched_as_unknown() {
    let mut client = HealthClient::new(door(RULES).connect().await);
    let asked = HealthCheckRequest { service: "other".to_owned() };
    let mut watch = client.watch(asked).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 3);
}

#[tokio::test]
async fn reflection_lists_the_services_in_both_versions() {
    let channel = door(RULES).connect().await;
    let expected = ["envoy.service.ratelimit.v3.RateLimitService", "grpc.health.v1.Health"];
    {
        use tonic_reflection::pb::v1::ServerReflectionRequest;
        use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
        let ask = |message_request| ServerReflectionRequest {
            message_request: Some(message_request),
            ..ServerReflectionRequest::default()
        };
        let list = ask(MessageRequest::ListServices(String::new()));
        let symbol = "envoy.service.ratelimit.v3.RateLimitRequest".to_owned();
        let file = ask(MessageRequest::FileContainingSymbol(symbol));
        let mut client = ServerReflectionClient::new(channel.clone());
        let answers = client.server_reflection_info(iter([list, file])).await.unwrap();
        let answers: Vec<_> = answers.into_inner().collect().await;
        let answers: Vec<_> =
            answers.into_iter().map(|answer| answer.unwrap().message_response.unwrap()).collect();
        let MessageResponse::ListServicesResponse(list) = &answers[0] else {
            panic!("{answers:?}")
        };
        for name in expected {
            assert!(list.service.iter().any(|service| service.name == name), "{list:?}");
        }
        assert!(matches!(answers[1], MessageResponse::FileDescriptorResponse(_)), "{answers:?}");
    }
    {
        use tonic_reflection::pb::v1alpha::ServerReflectionRequest;
        use tonic_reflection::pb::v1alpha::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::v1alpha::server_reflection_request::MessageRequest;
        let list = ServerReflectionRequest {
            message_request: Some(MessageRequest::ListServices(String::new())),
            ..ServerReflectionRequest::default()
        };
        let mut client = ServerReflectionClient::new(channel);
        let answers = client.server_reflection_info(iter([list])).await.unwrap();
        let answers: Vec<_> = answers.into_inner().collect().await;
        let shown = format!("{answers:?}");
        assert!(expected.iter().all(|name| shown.contains(name)), "{shown}");
    }
}

#[tokio::test]
async fn reflection_can_be_switched_off() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    let settings = RlsSettings { reflection: false, ..RlsSettings::default() };
    let channel = door_with(rules(RULES), settings).connect().await;
    let asked = iter([ServerReflectionRequest::default()]);
    let error = ServerReflectionClient::new(channel).server_reflection_info(asked).await;
    assert_eq!(error.unwrap_err().code(), tonic::Code::Unimplemented);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_arrive_is_given_up_without_a_timeout_of_the_client() {
    let Ok(response) = door(RULES).rls.call(in_pieces(&request([user()]), false)).await;
    assert_eq!(Answer::read(response).await.grpc_status().0, "4");
}

#[tokio::test]
async fn with_tokens_a_call_needs_one_that_may_check() {
    // The SHA-256 of `letmein`.
    let hash = "1c8bfe8f801d79745c4631d09fff36c82aa37fc4cce4fc946683d7b336b63032";
    let token = |roles: &str| format!("{hash} envoy {roles}").parse::<AccessToken>().unwrap();
    let tokens = AccessTokens::new([token("check")]);
    let settings = RlsSettings { tokens: tokens.clone(), ..RlsSettings::default() };
    let door = door_with(rules(RULES), settings);
    let authorized = || with("authorization", "Bearer letmein");
    assert_eq!(door.call(authorized()).await.trailers.unwrap()["grpc-status"], "0");
    for request in [call_of(&request([user()])), with("authorization", "Bearer other")] {
        let answer = door.call(request).await;
        assert_eq!((answer.status, &answer.headers["grpc-status"]), (200, &"16".parse().unwrap()));
    }
    let health = HealthClient::new(door.connect().await).check(HealthCheckRequest::default()).await;
    assert!(health.is_ok(), "health checks need no token");
    // PERMISSION_DENIED.
    tokens.replace(&AccessTokens::new([token("read")]));
    assert_eq!(door.call(authorized()).await.headers["grpc-status"], "7");
    tokens.replace(&AccessTokens::new([token("check 2020-01-01")]));
    assert_eq!(door.call(authorized()).await.headers["grpc-status"], "16");
    tokens.replace(&AccessTokens::default());
    assert_eq!(door.call(call_of(&request([user()]))).await.trailers.unwrap()["grpc-status"], "0");
}
