//! The dashboard in a real browser, in front of the real binary.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod browser;
mod traffic;

#[path = "../serve/process.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod process;

use std::path::PathBuf;

use serde_json::{Value, json};

use browser::{Browser, Scheme};
use process::Serving;
use traffic::{demo, with_token};

/// The views, and a text that each has once its data is there.
const VIEWS: [(&str, &str); 9] = [
    ("now", "Answers per second"),
    ("limits", "user · per_minute"),
    ("callers", "user=\"ada\""),
    ("findings", "Most findings need"),
    ("gateway", "Routes"),
    ("switches", "concurrency"),
    ("changes", "“a test of switches”"),
    ("tail", "✕ refused"),
    ("try", "Request line"),
];

/// How often refusals are made until the tail shows one.
const REFUSALS_MAX: usize = 500;

/// Opens a view and waits for its data.
async fn open(browser: &Browser, serving: &mut Serving, view: &str, text: &str) {
    let address = serving.address("debug");
    browser.open(&format!("http://{address}/ui/#/{view}")).await;
    if view == "tail" {
        // A stream that was open before shows no verdicts: refusals come until the new one has seen some.
        let shown = "return document.querySelector('main').textContent.includes('✕ refused')";
        for _ in 0..REFUSALS_MAX {
            if browser.run(shown).await == json!(true) {
                break;
            }
            traffic::refuse(serving);
        }
    }
    browser.wait_for_text(text).await;
}

#[tokio::test]
async fn every_view_is_sound_in_both_colour_schemes() {
    let (_folder, mut serving) = demo();
    let screenshots = screenshots();
    if screenshots.is_some() {
        traffic::run_for_a_minute(&mut serving);
    }
    let browser = Browser::start().await;
    for scheme in [Scheme::Light, Scheme::Dark] {
        browser.prefer(scheme).await;
        for (view, text) in VIEWS {
            open(&browser, &mut serving, view, text).await;
            assert_eq!(browser.theme().await, scheme.as_str(), "{view}");
            browser.assert_accessible(&format!("{view}, {}", scheme.as_str())).await;
            if let Some(folder) = screenshots.as_ref().filter(|_| view != "findings") {
                let file = folder.join(format!("dashboard-{view}-{}.png", scheme.as_str()));
                browser.screenshot(&file).await;
            }
        }
    }
    open_limit(&browser, &mut serving).await;
    if let Some(folder) = &screenshots {
        browser.screenshot(&folder.join("dashboard-limit-dark.png")).await;
    }
    browser.assert_accessible("one limit").await;
    assert_eq!(browser.problems().await, json!([]));
    browser.end().await;
}

async fn open_limit(browser: &Browser, serving: &mut Serving) {
    let address = serving.address("debug");
    browser.open(&format!("http://{address}/ui/#/now")).await;
    browser.click("nav a[data-view=limits]").await;
    browser.wait_for_text("user · per_minute").await;
    browser.click("tbody a").await;
    browser.wait_for_text("user=\"ada\"").await;
}

#[tokio::test]
async fn who_was_refused_by_what_in_the_last_hour_takes_two_clicks() {
    let (_folder, mut serving) = demo();
    let browser = Browser::start().await;
    let address = serving.address("debug");
    browser.open(&format!("http://{address}/ui/")).await;
    browser.wait_for_text("Answers per second").await;
    browser.run("window.clicks = 0; addEventListener('click', () => { clicks += 1; }, true)").await;
    browser.click("nav a[data-view=limits]").await;
    browser.wait_for_text("user · per_minute").await;
    browser.click("tbody a").await;
    // The limit with its hour, and its callers with how often it refused them.
    for text in ["last hour", "user=\"ada\"", "user=\"bob\"", "Hits in ten seconds"] {
        browser.wait_for_text(text).await;
    }
    assert_eq!(browser.run("return window.clicks").await, json!(2));
    browser.end().await;
}

/// The callers' names are known after one reading of the history, the chart after two.
#[tokio::test]
async fn the_first_chart_is_there_at_once() {
    let (_folder, mut serving) = demo();
    let address = serving.address("debug");
    serving.until(|serving| {
        let page = serving.get("debug", "/api/series?names=admitted").json();
        page["times"].as_array().filter(|times| times.len() > 1).map(drop)
    });
    let browser = Browser::start().await;
    browser.open(&format!("http://{address}/ui/")).await;
    browser.wait_for("return document.querySelector('.chart canvas') !== null").await;
    let millis = browser
        .run(
            "const painted = performance.getEntriesByName('first-chart')[0];
             return painted ? painted.startTime : -1;",
        )
        .await;
    // A real clock is no condition; the figure is printed for the documentation.
    println!("first chart after {millis} ms");
    assert!(millis.as_f64().is_some_and(|millis| millis > 0.0), "{millis}");
    browser.end().await;
}

#[tokio::test]
async fn an_open_page_shows_the_end_of_a_switch_and_a_limit_that_is_gone() {
    let (folder, mut serving) = demo();
    let browser = Browser::start().await;
    let address = serving.address("debug");
    browser.open(&format!("http://{address}/ui/#/switches")).await;
    browser.wait_for_text("Limiters").await;
    for limiter in ["rate", "concurrency"] {
        let body = json!({"limiter": limiter, "mode": "shadow", "for_seconds": 1}).to_string();
        assert_eq!(serving.ask("debug", "PUT", "/switches/limiter", &[], &body).status, 200);
    }
    browser.open(&format!("http://{address}/ui/#/changes")).await;
    browser
        .wait_for_text("limiter rate is as configured again: the time of its switch was over")
        .await;
    browser.wait_for_text("limiter concurrency is as configured again").await;
    open_limit(&browser, &mut serving).await;
    folder.write("rules.yaml", "domain: gateway\ndescriptors: [{key: other}]\n");
    browser.wait_for_text("there is no limit with this id; the rules may have changed").await;
    assert_eq!(
        browser.run("return window.problems.filter((text) => !text.includes('404'))").await,
        json!([])
    );
    browser.end().await;
}

#[tokio::test]
async fn a_page_lists_the_nodes_of_its_fleet() {
    let redis = tidegate_test_servers::server::Server::redis();
    let (_folders, mut nodes) = traffic::fleet(&redis.url(), &["blue", "green"]);
    let browser = Browser::start().await;
    let address = nodes[0].address("debug");
    browser.open(&format!("http://{address}/ui/")).await;
    for text in ["Nodes of the fleet", "blue", "green", "all 2"] {
        browser.wait_for_text(text).await;
    }
    if let Some(folder) = screenshots() {
        browser.run("document.querySelector('.wide-card:not([hidden])').scrollIntoView()").await;
        browser.screenshot(&folder.join("dashboard-fleet-light.png")).await;
    }
    browser.assert_accessible("a fleet").await;
    browser.end().await;
}

#[tokio::test]
async fn a_finding_is_shown_with_its_suggestion() {
    let (_folder, mut serving) = traffic::with_a_week_of_history();
    let browser = Browser::start().await;
    let address = serving.address("debug");
    browser.open(&format!("http://{address}/ui/#/findings")).await;
    for text in ["never matched", "no request met this limit", "-  - {algorithm: leaky_bucket"] {
        browser.wait_for_text(text).await;
    }
    if let Some(folder) = screenshots() {
        browser.screenshot(&folder.join("dashboard-findings-light.png")).await;
    }
    browser.assert_accessible("a finding").await;
    browser.end().await;
}

/// The folder for pictures, if they are wanted.
fn screenshots() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "a test has no argument parser")]
    std::env::var_os("TIDEGATE_SCREENSHOTS").map(PathBuf::from)
}

#[tokio::test]
async fn a_limiter_is_switched_and_restored_by_keyboard_alone() {
    let (_folder, mut serving) = demo();
    let browser = Browser::start().await;
    let address = serving.address("debug");
    browser.open(&format!("http://{address}/ui/")).await;
    browser.wait_for_text("Answers per second").await;
    browser.press("6").await;
    browser.wait_for_text("Limiters").await;
    browser.tab_to("Switch rate").await;
    browser.press("\u{e007}").await;
    browser.wait_for("return document.querySelector('dialog').open").await;
    // The mode: shadow, by its first letter; then the reason.
    browser.press("s").await;
    browser.press("\u{e004}").await;
    browser.press("\u{e004}").await;
    browser.press("by keyboard").await;
    browser.press("\u{e007}").await;
    browser.wait_for("return !document.querySelector('dialog').open").await;
    serving.until(|serving| {
        let page = serving.get("debug", "/switches").json();
        (page["limiters"]["rate"] == "shadow").then_some(())
    });
    let change = serving.get("debug", "/api/changes").json()["changes"][0].clone();
    assert_eq!((&change["reason"], &change["after"]), (&json!("by keyboard"), &json!("shadow")));
    assert!(change["until_ms"].is_u64(), "{change}");
    browser.press("7").await;
    browser.wait_for_text("“by keyboard”").await;
    assert_eq!(browser.problems().await, json!([]));
    browser.end().await;
}

#[tokio::test]
async fn no_view_is_wider_than_a_phone() {
    let (_folder, mut serving) = demo();
    let browser = Browser::start().await;
    browser.resize(390, 844).await;
    for (view, text) in VIEWS {
        open(&browser, &mut serving, view, text).await;
        let width = browser.run("return document.documentElement.scrollWidth").await;
        assert!(width.as_u64().unwrap() <= 390, "{view} is {width} wide");
        if let Some(folder) = screenshots() {
            browser.screenshot(&folder.join(format!("dashboard-{view}-phone.png"))).await;
        }
    }
    assert_eq!(browser.problems().await, json!([]));
    browser.end().await;
}

#[tokio::test]
async fn values_of_callers_are_text_and_a_request_can_be_tried() {
    let (_folder, mut serving) = demo();
    let hostile = "<img src=x onerror=alert(1)>";
    for _ in 0..9 {
        traffic::get(&mut serving, hostile);
    }
    let browser = Browser::start().await;
    let address = serving.address("debug");
    browser.open(&format!("http://{address}/ui/#/callers")).await;
    browser.wait_for_text(hostile).await;
    assert_eq!(browser.run("return document.querySelectorAll('main img').length").await, json!(0));
    browser.open(&format!("http://{address}/ui/#/try")).await;
    browser.wait_for_text("Request line").await;
    browser.fill("#line", "GET /orders").await;
    browser.fill("#headers", "X-User: ada").await;
    browser.click("button[type=submit]").await;
    browser.wait_for_text("Would be refused").await;
    browser.wait_for_text("user · per_minute").await;
    assert_eq!(browser.problems().await, json!([]));
    browser.end().await;
}

#[tokio::test]
async fn with_tokens_the_page_asks_for_one_and_keeps_it_for_the_tab() {
    let (_folder, mut serving, token) = with_token();
    let browser = Browser::start().await;
    let address = serving.address("debug");
    browser.open(&format!("http://{address}/ui/")).await;
    browser.wait_for_text("needs an access token").await;
    browser.click("main .error button").await;
    browser.fill("#f-token", &token).await;
    browser.press("\u{e007}").await;
    browser.wait_for_text("Limiters").await;
    browser.wait_for("return document.querySelector('#link').textContent === 'live'").await;
    assert_eq!(browser.run("return document.cookie").await, json!(""));
    // A link passes the token once, and it does not stay in the address.
    let other = Browser::start().await;
    other.open(&format!("http://{address}/ui/#token={token}")).await;
    other.wait_for_text("Limiters").await;
    let shown = other.run("return location.href").await;
    assert!(!shown.as_str().unwrap().contains(&token), "{shown}");
    let stored: Value = other.run("return localStorage.length + document.cookie.length").await;
    assert_eq!(stored, json!(0));
    other.end().await;
    browser.end().await;
}
