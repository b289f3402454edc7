//! Invalid settings: every problem with its location.

use std::sync::Arc;

use tidegate_engine::ManualClock;
use tidegate_gateway::{
    AnswerSettings, ApiKeySettings, CategoryRule, DescriptorSettings, EntrySettings, Gateway,
    GatewayParts, GatewaySettings, JwtKey, JwtSettings, PathMatch, PathRewrite, RouteSettings,
    UpstreamSettings, ValueFrom,
};
use tidegate_overload::Category;

use crate::harness::{START, engine, to};

fn problems(settings: GatewaySettings) -> Vec<String> {
    let engine = engine("- key: none", ManualClock::at(START));
    let made = Gateway::new(Arc::clone(&engine), settings, GatewayParts::default());
    made.unwrap_err().problems.iter().map(ToString::to_string).collect()
}

#[test]
fn every_problem_is_reported_with_its_location() {
    let mut settings = to(&["ftp://x".into()]);
    settings.upstreams.push(UpstreamSettings::new("api", Vec::<String>::new()));
    settings.upstreams.push(UpstreamSettings::new("tls", ["https://127.0.0.1"]));
    settings.upstreams[2].tls.authority = Some("/nowhere/ca.pem".into());
    let mut route = RouteSettings::new("other", "elsewhere");
    route.path = PathMatch::Template("/{".into());
    route.rewrite = PathRewrite::StripPrefix;
    route.templates = vec!["no-slash".into()];
    route.descriptors = vec![
        DescriptorSettings::default(),
        DescriptorSettings::new([
            EntrySettings::new("a", ValueFrom::PathParameter("id".into())),
            EntrySettings::new("b", ValueFrom::Address { v4_bits: 33, v6_bits: 64 }),
            EntrySettings::new("c", ValueFrom::PathTemplate),
        ]),
    ];
    route.answers = AnswerSettings { json: Some("{code}".into()), ..AnswerSettings::default() };
    settings.routes.push(route);
    settings.routes.push(RouteSettings::new("other", "tls"));
    settings.routes[0].path = PathMatch::Prefix("api".into());
    settings.provenance.via = Some("two words".into());
    settings.jwt = Some(JwtSettings::new(JwtKey::KeySet("/nowhere/keys.json".into())));
    settings.api_keys = Some(ApiKeySettings {
        keys: vec![("abc".into(), "me".into(), "free".into())],
        ..ApiKeySettings::default()
    });
    settings.categories.rules =
        vec![CategoryRule { routes: vec!["unknown".into()], ..CategoryRule::new(Category::Test) }];
    let found = problems(settings);
    let expected = [
        "upstreams[0].hosts[0]: `ftp://x` does not have the form",
        "upstreams[1].name: `api` is defined twice",
        "upstreams[1].hosts: a group needs a host",
        "upstreams[2].tls: cannot read /nowhere/ca.pem",
        "routes[0].path: `api` does not begin with a slash",
        "routes[1].upstreams: there are no upstreams `elsewhere`",
        "routes[1].path: `/{` has a brace",
        "routes[1].rewrite: a route with a template has no prefix",
        "routes[1].templates[0]: `no-slash` does not begin",
        "routes[1].descriptors[0]: a descriptor needs an entry",
        "routes[1].descriptors[1].entries[0]: no template of the route names `id`",
        "routes[1].descriptors[1].entries[1]: an address has 32 bits",
        "routes[1].descriptors[1].entries[2]: the route has no templates",
        "routes[1].answers: the JSON template does not make valid JSON",
        "routes[2].name: `other` is defined twice",
        "provenance.via: `two words` is not a host name",
        "jwt: /nowhere/keys.json",
        "api_keys: expected the SHA-256 of a key",
        "categories.rules[0].routes: there is no route `unknown`",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found} is not {expected}");
    }
}

#[test]
fn secrets_are_not_shown() {
    let settings = JwtSettings::new(JwtKey::Secret(b"hush".to_vec()));
    assert!(format!("{settings:?}").contains("***"));
    assert!(!format!("{settings:?}").contains("104"));
}

#[test]
fn a_gateway_without_routes_is_rejected() {
    assert_eq!(problems(GatewaySettings::default()), ["routes: a gateway needs a route"]);
}
