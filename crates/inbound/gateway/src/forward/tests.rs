use http::Request;
use http::header::HeaderValue;

use super::*;
use crate::head::{HeadCheck, examine};
use crate::settings::{HeadSettings, PathMatch, PathRewrite};

fn left(fields: &[(&'static str, &'static str)]) -> Vec<String> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(*name, HeaderValue::from_static(value));
    }
    remove_hop_by_hop(&mut headers);
    let mut left: Vec<String> = headers.keys().map(ToString::to_string).collect();
    left.sort();
    left
}

#[test]
fn fields_named_by_any_connection_field_are_removed() {
    let fields = [
        ("connection", "close, X-One"),
        ("connection", "x-two,, not a name"),
        ("x-one", "1"),
        ("x-two", "2"),
        ("x-two", "3"),
        ("x-three", "4"),
    ];
    assert_eq!(left(&fields), ["x-three"]);
}

#[test]
fn hop_by_hop_fields_are_removed_even_if_connection_does_not_name_them() {
    let fields = [
        ("te", "trailers"),
        ("upgrade", "h2c"),
        ("http2-settings", "x"),
        ("keep-alive", "5"),
        ("transfer-encoding", "chunked"),
        ("trailer", "x-sum"),
        ("content-length", "3"),
    ];
    assert_eq!(left(&fields), ["content-length", "trailer"]);
}

fn rewritten(rewrite: &PathRewrite, prefix: &str, uri: &str) -> String {
    let rewrite = Rewrite::of(rewrite, &PathMatch::Prefix(prefix.to_owned())).unwrap();
    let request = Request::get(uri).header("host", "a").body(()).unwrap();
    let (mut head, ()) = request.into_parts();
    let Ok(HeadCheck::Sound(target)) = examine(&mut head, &HeadSettings::default(), None) else {
        panic!("{uri} is valid")
    };
    rewrite.apply(&head, &target).to_string()
}

#[test]
fn a_replaced_prefix_leaves_a_valid_path() {
    let strip = &PathRewrite::StripPrefix;
    assert_eq!(rewritten(strip, "/api", "/api"), "/");
    assert_eq!(rewritten(strip, "/api", "/api/a;v=1"), "/a;v=1");
    assert_eq!(rewritten(strip, "/api", "/api;v=1/a"), "/a");
    assert_eq!(rewritten(strip, "/api", "/api/"), "/");
    assert_eq!(rewritten(strip, "/api/", "/api//x?y=%2F"), "/x?y=%2F");
    assert_eq!(rewritten(strip, "/", "/x"), "/x");
    let replace = &PathRewrite::ReplacePrefix("/v2".to_owned());
    assert_eq!(rewritten(replace, "/api", "/api"), "/v2");
    assert_eq!(rewritten(replace, "/", "/x"), "/v2/x");
}

#[test]
fn a_replacement_that_is_not_a_path_is_rejected() {
    let any = PathMatch::default();
    for to in ["v2", "/v2?x", "/v 2"] {
        assert!(Rewrite::of(&PathRewrite::ReplacePrefix(to.to_owned()), &any).is_err(), "{to}");
    }
}
