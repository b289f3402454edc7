//! The Rust examples of the README, word for word: they compile, run, and are the same as there.
#![cfg(all(feature = "layer", feature = "pacer"))]

use std::error::Error;
use std::path::Path;

fn read_from_root(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).expect("the file is there")
}

fn without_spaces(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn every_rust_example_of_the_readme_is_in_this_file() {
    let readme = read_from_root("README.md");
    let here = without_spaces(include_str!("readme.rs"));
    let examples: Vec<_> = readme.split("```rust\n").skip(1).collect();
    assert!(examples.len() >= 4, "the README has examples");
    for example in examples {
        let example = example.split("```").next().unwrap_or_default();
        assert!(here.contains(&without_spaces(example)), "this one is another here:\n{example}");
    }
}

#[test]
fn one_limit_over_many_keys() -> Result<(), Box<dyn Error>> {
    use tidegate::{KeyedLimiter, Limit, Period, Retry, TokenBucket};

    // A hundred a second for each user, two hundred at once.
    let limiter = KeyedLimiter::new(Limit::new(TokenBucket::new(100, Period::SECOND, 200)))?;
    match limiter.check("user-42").retry {
        Retry::Now => println!("go on"),
        Retry::After(wait) => println!("come back in {wait}"),
        Retry::Never => println!("this never fits"),
    }
    assert!(limiter.check("user-42").is_admitted());
    Ok(())
}

#[test]
fn rules_and_an_engine() -> Result<(), Box<dyn Error>> {
    std::env::set_current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))?;

    use tidegate::{Descriptor, Engine, Entry, MemoryConfig, MemoryStore, Request};
    use tidegate::{Options, Source, SystemClock, compile};

    let text = std::fs::read_to_string("examples/rules/quickstart.yaml")?;
    let rules = compile(&[Source::new("quickstart.yaml", text)], &Options::default())?;
    let store = MemoryStore::new(MemoryConfig::default())?;
    let engine = Engine::new(store, SystemClock::new()).with_rules(rules);

    let entries = [Entry { key: "user", value: "ada" }];
    let verdict = engine.check_now(&Request::new("shop", &[Descriptor::new(&entries)]));
    if let Some(refusal) = verdict.refusal() {
        println!("refused by {}", refusal.path);
    }
    assert!(verdict.is_admitted());
    Ok(())
}

#[tokio::test]
async fn a_layer() -> Result<(), Box<dyn Error>> {
    use axum::{Router, http::request::Parts, routing::get};
    use tidegate::layer::RateLimitLayer;

    let limit = "algorithm: token_bucket, unit: second, requests_per_unit: 10, burst: 20";
    let layer = RateLimitLayer::by_key(limit, |request: &Parts| {
        Some(request.headers.get("x-api-key")?.to_str().ok()?.to_owned()) // `None`: not limited
    })?;
    let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);

    let request =
        http::Request::get("/").header("x-api-key", "ada").body(axum::body::Body::empty())?;
    let answer = tower::ServiceExt::oneshot(app, request).await?;
    assert_eq!(answer.status(), 200);
    Ok(())
}

#[tokio::test]
async fn a_paced_worker() -> Result<(), Box<dyn Error>> {
    use tidegate::pacer::{LeakyBucket, Pacer, Period, Turn};

    // Five mails a second leave; nine may wait.
    let pacer = Pacer::new(LeakyBucket::new(5, Period::SECOND, 9))?;
    match pacer.turn("mail service").await {
        Turn::Yours => println!("send it"),
        Turn::Full { retry_after } => println!("ask again after {retry_after:?}"),
        Turn::Never => println!("it can never be sent"),
    }
    assert_eq!(pacer.turn("another service").await, Turn::Yours);
    Ok(())
}
