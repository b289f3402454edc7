//! A queue is no open proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_delivery::{
    AttemptOutcome, DestinationPolicy, HttpProcessor, HttpSettings, Processor, Resolver,
    ResolverFuture, URL_FIELD,
};
use tidegate_queue::Payload;

use crate::harness::{TestServer, attempt, local_settings, ok, send};

/// Returns a list of answers, one after the other, and then the last again.
#[derive(Debug)]
struct ChangingResolver {
    answers: Vec<Vec<SocketAddr>>,
    asked: AtomicUsize,
}

impl ChangingResolver {
    fn new(answers: &[&[SocketAddr]]) -> Arc<Self> {
        let answers = answers.iter().map(|answer| answer.to_vec()).collect();
        Arc::new(ChangingResolver { answers, asked: AtomicUsize::new(0) })
    }
}

impl Resolver for ChangingResolver {
    fn resolve<'a>(&'a self, _host: &'a str, _port: u16) -> ResolverFuture<'a> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst).min(self.answers.len() - 1);
        Box::pin(async move { Ok(self.answers[asked].clone()) })
    }
}

fn rejected(outcome: &AttemptOutcome) -> &str {
    match outcome {
        AttemptOutcome::Rejected { detail } => detail,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_record_cannot_name_another_host() {
    let server = TestServer::start(|_| ok("")).await;
    let other = TestServer::start(|_| ok("")).await;
    for url in [
        format!("http://{}/", other.address),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        format!("http://localhost:{}/", other.address.port()),
        format!("http://u@{}/", server.address),
        "file:///etc/passwd".to_owned(),
    ] {
        let payload = Payload::default().with_header(URL_FIELD, url.clone());
        let outcome = send(local_settings(server.url("/")), payload).await.outcome;
        rejected(&outcome);
    }
    assert!(server.seen().is_empty() && other.seen().is_empty());
}

#[tokio::test]
async fn loopback_is_rejected_unless_it_is_allowed() {
    let server = TestServer::start(|_| ok("")).await;
    let closed = HttpSettings::post(server.url("/"));
    let error = HttpProcessor::new(closed).unwrap_err().to_string();
    assert!(error.contains("127.0.0.1 is not public"), "{error}");
}

#[tokio::test]
async fn a_name_that_resolves_to_an_inner_address_is_rejected_at_the_connect() {
    let server = TestServer::start(|_| ok("")).await;
    let mapped: SocketAddr =
        format!("[::ffff:127.0.0.1]:{}", server.address.port()).parse().unwrap();
    let metadata: SocketAddr = "169.254.169.254:80".parse().unwrap();
    for answer in [server.address, mapped, metadata] {
        let mut settings = HttpSettings::post("http://api.test/".parse().unwrap());
        settings.destinations.plain_text = true;
        let resolver = ChangingResolver::new(&[&[answer]]);
        let processor = HttpProcessor::with_resolver(settings, resolver).unwrap();
        let outcome = processor.process(&[attempt(1, Payload::default())]).await.remove(0).outcome;
        assert!(rejected(&outcome).contains("not public"), "{outcome:?}");
    }
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn a_dns_answer_that_changes_after_the_check_does_not_matter() {
    // Two servers: one in the allowed network, one beside it on the same port.
    let allowed = TestServer::start(|_| ok("allowed")).await;
    let port = allowed.address.port();
    let other: SocketAddr = format!("127.0.0.2:{port}").parse().unwrap();
    let destinations = DestinationPolicy {
        hosts: vec!["rebind.test".parse().unwrap()],
        networks: vec!["127.0.0.1/32".parse().unwrap()],
        plain_text: true,
    };
    let mut settings = HttpSettings::post(format!("http://rebind.test:{port}/").parse().unwrap());
    settings.destinations = destinations;
    // The first answer is allowed, each later one is not: the connection goes to the address that was checked, and the
    // name is resolved once for it.
    let resolver = ChangingResolver::new(&[&[allowed.address], &[other]]);
    let processor =
        HttpProcessor::with_resolver(settings.clone(), Arc::clone(&resolver) as _).unwrap();
    let outcome = processor.process(&[attempt(1, Payload::default())]).await.remove(0).outcome;
    assert_eq!(outcome, AttemptOutcome::Delivered);
    assert_eq!(resolver.asked.load(Ordering::SeqCst), 1);
    // A new connection is checked again.
    let resolver = ChangingResolver::new(&[&[other]]);
    let processor = HttpProcessor::with_resolver(settings.clone(), resolver).unwrap();
    let outcome = processor.process(&[attempt(1, Payload::default())]).await.remove(0).outcome;
    assert!(rejected(&outcome).contains("127.0.0.2"), "{outcome:?}");
    // Of several addresses only the allowed ones are tried.
    let resolver = ChangingResolver::new(&[&[other, allowed.address]]);
    let processor = HttpProcessor::with_resolver(settings, resolver).unwrap();
    let outcome = processor.process(&[attempt(1, Payload::default())]).await.remove(0).outcome;
    assert_eq!(outcome, AttemptOutcome::Delivered);
    assert_eq!(allowed.seen().len(), 2);
}
