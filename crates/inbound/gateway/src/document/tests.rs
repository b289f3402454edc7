use std::fmt::Write as _;

use proptest::prelude::*;

use tidegate_document::{MappingType, Presence, Shape};

use super::table::{HealthKeys, JwtKeys, RouteKeys, UpstreamKeys};
use super::*;
use crate::{HeaderEdit, JwtKey, PathMatch, PathRewrite, PresentedIn, ValueFrom, WhenMissing};

const SMALL: &str = "
routes:
- {name: all, upstreams: api}
upstreams:
- {name: api, hosts: http://127.0.0.1:9000}
";

fn read(text: &str) -> GatewayDocument {
    GatewayDocument::read(Source::new("gateway.yaml", text)).unwrap_or_else(|report| {
        panic!("{report}");
    })
}

/// Everything that is wrong.
fn wrong(text: &str) -> String {
    GatewayDocument::read(Source::new("gateway.yaml", text)).unwrap_err().to_string()
}

/// A document with this beside a route and an upstream.
fn with(text: &str) -> String {
    format!("{SMALL}{text}")
}

/// A document whose route has this too.
fn route(text: &str) -> String {
    SMALL.replace("upstreams: api}", &format!("upstreams: api, {text}}}"))
}

#[test]
fn a_route_and_an_upstream_are_enough_and_the_rest_is_as_the_settings_say() {
    let document = read(SMALL);
    let settings = document.settings();
    assert_eq!(settings.domain, "gateway");
    assert_eq!(settings.routes[0].path, PathMatch::Prefix("/".to_owned()));
    assert_eq!(settings.upstreams[0].hosts, ["http://127.0.0.1:9000"]);
    let bare = GatewaySettings {
        routes: settings.routes.clone(),
        upstreams: settings.upstreams.clone(),
        ..GatewaySettings::default()
    };
    assert_eq!(format!("{settings:?}"), format!("{bare:?}"));
}

/// A mapping with every default written out.
fn defaults(mapping: &MappingType, indent: &str) -> String {
    let mut text = String::new();
    for key in mapping.keys {
        if let Presence::Default(default) = key.presence {
            writeln!(text, "{indent}{}: {default}", key.name).unwrap();
        }
        if let Shape::Mapping(inner) = key.shape() {
            let below = defaults(inner, &format!("{indent}  "));
            let needs = inner.keys.iter().any(|key| key.presence == Presence::Required);
            if !below.is_empty() && !needs && !matches!(inner.name, "jwt" | "health") {
                writeln!(text, "{indent}{}:\n{below}", key.name).unwrap();
            }
        }
    }
    text
}

#[test]
fn a_route_chooses_the_status_of_its_refusals() {
    for (written, status) in [("503", "ServiceUnavailable"), ("'429'", "TooManyRequests")] {
        let document = read(&route(&format!("answers: {{refusal_status: {written}}}")));
        let chosen = document.settings().routes[0].answers.refusal_status;
        assert_eq!(format!("{chosen:?}"), format!("Some({status})"));
    }
}

#[test]
fn the_defaults_of_the_vocabulary_are_those_of_the_settings() {
    let routes =
        format!("routes:\n- name: all\n  upstreams: api\n{}", defaults(RouteKeys::mapping(), "  "));
    let upstreams = format!(
        "upstreams:\n- name: api\n  hosts: [\"http://127.0.0.1:9000\"]\n{}",
        defaults(UpstreamKeys::mapping(), "  ")
    );
    let written = format!("{routes}{upstreams}{}", defaults(DocumentKeys::mapping(), ""));
    let plain = "
routes: [{name: all, upstreams: api, timeouts: {}}]
upstreams: [{name: api, hosts: ['http://127.0.0.1:9000']}]
api_keys: {}
";
    assert!(written.contains("body_idle: 30s") && written.contains("idle_max: 128"), "{written}");
    let (written, plain) = (read(&written), read(plain));
    assert_eq!(format!("{:?}", written.settings()), format!("{:?}", plain.settings()));
}

#[test]
fn defaults_of_what_needs_more_are_those_of_the_settings_too() {
    let entry = "descriptors: [{entries: [{key: a, from: address";
    let written = read(&route(&format!("{entry}, v4_bits: 32, v6_bits: 64}}]}}]")));
    let plain = read(&route(&format!("{entry}}}]}}]")));
    assert_eq!(format!("{:?}", written.settings()), format!("{:?}", plain.settings()));
    let health = defaults(HealthKeys::mapping(), "      ");
    let health = format!(
        "routes: [{{name: all, upstreams: api}}]\nupstreams:\n- name: api\n  hosts: h\n  health:\n{health}"
    );
    let health = read(&health).settings().upstreams[0].health.clone();
    assert_eq!(health, Some(crate::HealthCheck::default()));
    let jwt =
        format!("jwt:\n  key_set_url: http://id.test/\n{}", defaults(JwtKeys::mapping(), "  "));
    let jwt = read(&with(&jwt)).settings().jwt.clone();
    let usual =
        crate::JwtSettings::new(JwtKey::KeySetUrl(crate::KeySetUrl::new("http://id.test/")));
    assert_eq!(jwt, Some(usual));
}

#[test]
fn a_route_says_what_it_takes_and_how_it_is_limited() {
    let document = read(&route(
        "hosts: [api.test, '*.test'], template: '/users/{id}', methods: [GET, PURGE], \
         host_header: upstream, exempt: true, cost: {from: reported, name: X-Cost, max: 50}, \
         request_headers: [{set: X-A, value: b}, {remove: X-B}], \
         descriptors: [{cost: 3, entries: [{key: user, from: header, name: X-User, default: nobody}, \
         {key: kind, value: read}, {key: plan, from: plan, when_missing: skip_entry}]}], \
         timeouts: {total: 5s}",
    ));
    let route = &document.settings().routes[0];
    assert_eq!(route.path, PathMatch::Template("/users/{id}".to_owned()));
    assert_eq!(route.methods.len(), 2);
    assert!(route.exempt);
    assert!(matches!(route.request_headers[..], [HeaderEdit::Set(..), HeaderEdit::Remove(_)]));
    let [user, kind, plan] = &route.descriptors[0].entries[..] else { panic!("{route:?}") };
    assert_eq!(user.when_missing, Some(WhenMissing::Use("nobody".to_owned())));
    assert_eq!(kind.value, ValueFrom::Fixed("read".to_owned()));
    assert_eq!(
        (&plan.value, &plan.when_missing),
        (&ValueFrom::Plan, &Some(WhenMissing::SkipEntry))
    );
    assert_eq!(route.timeouts.unwrap().total, Some(std::time::Duration::from_secs(5)));
}

#[test]
fn a_route_names_networks_that_it_allows_and_denies() {
    let document = read(&route("allow: [10.0.0.0/8, '::1'], deny: 10.1.0.0/16"));
    let route = &document.settings().routes[0];
    let texts =
        |networks: &[ipnet::IpNet]| networks.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(&route.allow), ["10.0.0.0/8", "::1/128"]);
    assert_eq!(texts(&route.deny), ["10.1.0.0/16"]);
    let said = wrong(&self::route("allow: [everybody]"));
    assert!(said.contains("everybody"), "{said}");
}

#[test]
fn a_key_set_can_be_at_a_url() {
    let document = read(&with(
        "jwt: {key_set_url: 'https://id.test/keys', key_set_cache: 1h, key_set_authority: ca.pem}\n",
    ));
    let jwt = document.settings().jwt.clone().unwrap();
    let set = crate::KeySetUrl {
        url: "https://id.test/keys".to_owned(),
        cache: std::time::Duration::from_secs(3_600),
        authority: Some("ca.pem".into()),
    };
    assert_eq!(jwt.key, JwtKey::KeySetUrl(set));
    assert_eq!(document.settings().files(), [std::path::PathBuf::from("ca.pem")]);
    let said = wrong(&with("jwt: {key_set: keys.json, key_set_url: 'https://id.test/keys'}\n"));
    assert!(said.contains("exclude each other"), "{said}");
    let said = wrong(&with("jwt: {key_set: keys.json, key_set_cache: 1h}\n"));
    assert!(said.contains("`key_set_cache` needs `key_set_url`"), "{said}");
}

#[test]
fn an_entry_says_what_happens_without_a_value() {
    let entry = |keys: &str| {
        format!("descriptors: [{{entries: [{{key: a, from: header, name: X-A{keys}}}]}}]")
    };
    for (keys, expected) in [
        ("", None),
        (", when_missing: skip", Some(WhenMissing::SkipDescriptor)),
        (", when_missing: skip_descriptor", Some(WhenMissing::SkipDescriptor)),
        (", when_missing: skip_entry", Some(WhenMissing::SkipEntry)),
        (", when_missing: reject", Some(WhenMissing::Reject)),
        (", default: x", Some(WhenMissing::Use("x".to_owned()))),
        (", when_missing: default, default: x", Some(WhenMissing::Use("x".to_owned()))),
    ] {
        let document = read(&route(&entry(keys)));
        assert_eq!(document.settings().routes[0].descriptors[0].entries[0].when_missing, expected);
    }
    let said = wrong(&route(&entry(", when_missing: default")));
    assert!(said.contains("`when_missing: default` needs `default`"), "{said}");
    let said = wrong(&route(&entry(", when_missing: reject, default: x")));
    assert!(said.contains("exclude each other"), "{said}");
}

#[test]
fn timeouts_of_a_route_that_are_not_said_are_those_of_its_upstreams() {
    let document = read(
        "routes: [{name: all, upstreams: api, timeouts: {idle: 1s}}]
upstreams: [{name: api, hosts: h, timeouts: {connect: 9s, total: 8s}}]",
    );
    let timeouts = document.settings().routes[0].timeouts.unwrap();
    let seconds = [timeouts.connect, timeouts.idle, timeouts.total.unwrap()].map(|t| t.as_secs());
    assert_eq!(seconds, [9, 1, 8]);
}

#[test]
fn callers_and_categories_are_read() {
    let document = read(&with(
        "trusted_hops: [10.0.0.0/8, '::1']
jwt: {secret_file: key, from: cookie, name: session, leeway: 2m}
api_keys: {name: X-Key, keys: [{hash: aa, name: ada, plan: gold}]}
rate_limit_fields: [x_reset_epoch]
rate_limit_fields_on: refusal
provenance: {via: off}
categories:
  field: off
  timeout_field: X-Timeout
  caller: {from: api_key_name}
  rules:
  - {category: critical, routes: [all], header: {name: X-Tier, value: gold}}
  - {category: test, plans: [free], methods: POST}
",
    ));
    let settings = document.settings();
    assert_eq!(settings.trusted_hops.len(), 2);
    let jwt = settings.jwt.as_ref().unwrap();
    assert_eq!((&jwt.presented_in, jwt.leeway_secs), (&PresentedIn::Cookie("session".into()), 120));
    let keys = settings.api_keys.as_ref().unwrap();
    assert_eq!(keys.presented_in, PresentedIn::Header("x-key".parse().unwrap()));
    assert_eq!(settings.provenance.via, None);
    assert_eq!(settings.headers_on, HeadersOn::Refusal);
    let categories = &settings.categories;
    assert_eq!((categories.field.as_ref(), &categories.caller), (None, &ValueFrom::ApiKeyName));
    assert!(categories.rules[0].header.is_some() && categories.rules[1].methods.len() == 1);
}

#[test]
fn every_problem_is_told_at_once_with_its_place_and_a_hint() {
    let said = wrong(
        "routes:
- name: one
  upstream: api
  cost: {from: header}
  descriptors: [{entries: [{key: a, from: heder}, {key: b, from: cookie}]}]
  methods: [get, 'A B']
  request_headers: [{set: X-A}, {value: x}, {remove: 'a b'}]
  template: /x
  path: /y
upstreams:
- {name: api, hosts: [], timeouts: {idle: soon}, health: 5}
trusted_hops: [everybody]
head: {target_bytes_max: lots, segments_max: 0}
provenance: {forwarded: maybe}
jwt: {issuer: me}
3: 4
",
    );
    for part in [
        "gateway.yaml:3:3",
        "unknown key `upstream` in a route",
        "did you mean `upstreams`?",
        "`from: header` needs `name`",
        "unknown value `heder`",
        "did you mean `header`?",
        "`from: cookie` needs `name`",
        "write `GET`",
        "`A B` is not a method",
        "`set` needs a `value`",
        "this changes no header field",
        "is not the name of a header field",
        "`path` and `template` exclude each other",
        "`soon` is not a duration",
        "`health`: expected a mapping, found a number",
        "`everybody` is not a network",
        "`lots` is not a size",
        "0 is not between 1 and",
        "`forwarded`: expected `true` or `false`, found text",
        "there is no key to verify tokens with",
        "a key must be text, not a number",
        "a route needs `upstreams`",
    ] {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
}

#[test]
fn what_only_the_gateway_knows_is_told_at_its_place() {
    let document = read(
        "routes:
- name: all
  upstreams: apo
- {name: other, upstreams: api, template: /a}
upstreams:
- name: api
  hosts: [ftp://x]
categories:
  rules: [{category: test, routes: [al]}]
",
    );
    let problem = |setting: &str, problem: &str| SettingProblem {
        setting: setting.to_owned(),
        problem: problem.to_owned(),
    };
    let error = GatewayError {
        problems: vec![
            problem("routes[0].upstreams", "there are no upstreams `apo`"),
            problem("upstreams[0].hosts[0]", "`ftp://x` is no address"),
            problem("categories.rules[0].routes", "there is no route `al`"),
            problem("routes[0].rewrite.deeper[3]", "odd"),
            problem("routes[1].path", "no such template"),
            problem("nowhere", "odder"),
        ],
    };
    let said = document.report(&error).to_string();
    for part in [
        "gateway.yaml:3:14",
        "did you mean `api`?",
        "gateway.yaml:7:11",
        "gateway.yaml:9:36",
        "gateway.yaml:4:43",
        "did you mean `all`?",
        "gateway.yaml:2:3",
        "gateway.yaml:1:1",
    ] {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
}

#[test]
fn prefixes_are_taken_away_from_paths_and_not_from_templates() {
    let rewrite = |text: &str| read(&route(text)).settings().routes[0].rewrite.clone();
    assert_eq!(rewrite("path: /v1, strip_prefix: true"), PathRewrite::StripPrefix);
    let replaced = PathRewrite::ReplacePrefix("/v2".to_owned());
    assert_eq!(rewrite("path: /v1, replace_prefix: /v2"), replaced);
    let said = wrong(&route("template: '/{a}', strip_prefix: true"));
    assert!(said.contains("a template has no prefix"), "{said}");
    let said = wrong(&route("path: /a, strip_prefix: true, replace_prefix: /b"));
    assert!(said.contains("exclude each other"), "{said}");
}

#[test]
fn empty_huge_and_deep_documents_are_refused() {
    assert!(wrong("").contains("the document is empty"));
    assert!(wrong("# nothing\n").contains("the document is empty"));
    assert!(wrong("[1]").contains("expected a mapping, found a list"));
    assert!(wrong(&" ".repeat(DOCUMENT_BYTES_MAX + 1)).contains("the maximum is"));
    let deep = format!("routes: {}", "[".repeat(10_000));
    assert!(!wrong(&deep).is_empty());
    let deep = format!("routes: {}{}", "{routes: ".repeat(500), "}".repeat(500));
    assert!(!wrong(&deep).is_empty());
}

#[test]
fn the_schema_knows_every_key_and_the_reference_too() {
    let schema = gateway_schema();
    let reference = gateway_reference();
    for mapping in DocumentKeys::mapping().reachable() {
        for key in mapping.keys {
            let at = format!("/$defs/{}/properties/{}", mapping.name, key.name);
            assert!(schema.pointer(&at).is_some(), "{at}");
            assert!(reference.contains(&format!("| `{}` |", key.name)), "{}", key.name);
        }
    }
    let validator = jsonschema::validator_for(&schema).unwrap();
    let good = serde_json::json!({
        "routes": [{"name": "all", "upstreams": "api", "cost": 2, "timeouts": {"total": "off"}}],
        "upstreams": [{"name": "api", "hosts": "http://127.0.0.1:1"}],
    });
    assert!(validator.is_valid(&good));
    assert!(!validator.is_valid(&serde_json::json!({"routes": [], "upstream": []})));
}

proptest! {
    #[test]
    fn no_text_panics_the_reader(text in "[a-z:{}\\[\\], \n\"'&*<-]{0,200}") {
        let _ = GatewayDocument::read(Source::new("x", text.as_str()));
        let _ = GatewayDocument::read(Source::new("x", with(&text)));
        let _ = GatewayDocument::read(Source::new("x", route(&text)));
    }
}
