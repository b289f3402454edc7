use http::Request;
use proptest::prelude::*;

use super::*;

fn examined(request: http::request::Builder) -> Result<(Target, Parts), Fault> {
    let (mut head, ()) = request.body(()).unwrap().into_parts();
    match examine(&mut head, &HeadSettings::default(), None)? {
        HeadCheck::Sound(target) => Ok((target, head)),
        HeadCheck::Capabilities => panic!("it is not for a resource"),
    }
}

fn path_of(uri: &str) -> Result<(String, String), Fault> {
    let (target, head) = examined(Request::get(uri).header("host", "a"))?;
    Ok((target.path(&head).to_owned(), head.uri.to_string()))
}

fn both(matched: &str, sent: &str) -> Result<(String, String), Fault> {
    Ok((matched.to_owned(), sent.to_owned()))
}

#[test]
fn a_plain_path_stays_as_it_is() {
    assert_eq!(path_of("/a/b?c=%2e"), both("/a/b", "/a/b?c=%2e"));
    assert_eq!(path_of("/"), both("/", "/"));
}

#[test]
fn needless_escapes_are_decoded_for_matching_and_for_the_upstream() {
    assert_eq!(path_of("/%61dmin?x=1"), both("/admin", "/admin?x=1"));
    assert_eq!(path_of("/a%2fb%3f"), both("/a%2Fb%3F", "/a%2Fb%3F"));
}

#[test]
fn doubled_slashes_are_matched_as_one() {
    assert_eq!(path_of("/a//b"), both("/a/b", "/a//b"));
}

#[test]
fn paths_that_servers_interpret_differently_are_rejected() {
    for path in ["/a/../b", "/a/%2e%2E/b", "/.", "/a%00b", "/a%zz", "/a%", "/a%5Cb", "/a%+1b"] {
        assert_eq!(path_of(path), Err(Fault::BadTarget), "{path}");
    }
    assert_eq!(path_of(&"/a".repeat(300)), Err(Fault::TargetTooLong));
    assert_eq!(path_of(&format!("/{}", "a".repeat(9_000))), Err(Fault::TargetTooLong));
}

#[test]
fn dots_beside_an_escaped_slash_or_a_semicolon_are_rejected() {
    for path in [
        "/a/..%2fb",
        "/a%2F../b",
        "/a%2f..%2fb",
        "/a/..;/b",
        "/a/..;x=1/b",
        "/a/;../b",
        "/a/..%3bx/b",
        "/a%2F.",
        "/.;/a",
        "/a;..",
    ] {
        assert_eq!(path_of(path), Err(Fault::BadTarget), "{path}");
    }
    assert_eq!(path_of(&"/a%2Fb".repeat(200)), Err(Fault::TargetTooLong));
}

#[test]
fn parameters_of_segments_are_forwarded_and_not_matched() {
    assert_eq!(path_of("/a;v=1/b;w?c;d"), both("/a/b", "/a;v=1/b;w?c;d"));
    assert_eq!(path_of("/a%3bv/b"), both("/a/b", "/a%3Bv/b"));
    assert_eq!(path_of("/;x/a//b;"), both("/a/b", "/;x/a//b;"));
    assert_eq!(path_of("/a/;x"), both("/a/", "/a/;x"));
}

#[test]
fn an_absolute_target_takes_precedence_over_the_host_field() {
    let (target, head) =
        examined(Request::get("http://b.test:81/x?y").header("host", "a")).unwrap();
    assert_eq!(target.host(), Some("b.test"));
    assert_eq!(head.uri, "/x?y");
}

#[test]
fn in_http_2_the_host_field_must_agree() {
    let two = || Request::get("http://b.test/").version(Version::HTTP_2);
    assert_eq!(examined(two()).unwrap().0.host(), Some("b.test"));
    assert!(examined(two().header("host", "B.test")).is_ok());
    assert_eq!(examined(two().header("host", "a")).unwrap_err(), Fault::BadHost);
}

#[test]
fn a_request_has_exactly_one_host() {
    let refused = |request| examined(request).unwrap_err();
    assert_eq!(refused(Request::get("/")), Fault::BadHost);
    let two = Request::get("/").header("host", "a").header("host", "a");
    assert_eq!(refused(two), Fault::BadHost);
    assert_eq!(refused(Request::get("/").header("host", "u@a")), Fault::BadHost);
    assert_eq!(refused(Request::get("/").header("host", "a b")), Fault::BadHost);
    let (target, _) = examined(Request::get("/").header("host", "a.test.:80")).unwrap();
    assert_eq!(target.host(), Some("a.test"));
    assert!(examined(Request::get("/").version(Version::HTTP_10)).is_ok());
}

#[test]
fn a_host_is_a_name_or_an_address_with_an_optional_port() {
    let host = |host: &str| examined(Request::get("/").header("host", host)).map(|_| ());
    for valid in
        ["a", "a.test", "a.test.", "a_b-c.test:80", "127.0.0.1:8000", "[::1]", "[::1]:80", "a:"]
    {
        assert_eq!(host(valid), Ok(()), "{valid}");
    }
    for odd in [
        "",
        "x,y",
        "x:abc",
        "x:70000",
        "x:+80",
        "x:1:2",
        ".",
        "..",
        ".a",
        "a..b",
        "a%2eb",
        "a b",
        "[::1",
        "[a]",
        "[::1]80",
        "[::1%25eth0]",
        "x;y",
        "x'y",
        "x/y",
        ":80",
    ] {
        assert_eq!(host(odd), Err(Fault::BadHost), "{odd}");
    }
    let two = Request::get("http://x,y/").version(Version::HTTP_2);
    assert_eq!(examined(two).unwrap_err(), Fault::BadHost);
}

#[test]
fn a_target_has_the_scheme_of_http() {
    for scheme in ["http", "https", "HTTP"] {
        let request = Request::get(format!("{scheme}://a/")).header("host", "a");
        assert!(examined(request).is_ok(), "{scheme}");
    }
    for scheme in ["ftp", "ws", "file", "h2c"] {
        let request = Request::get(format!("{scheme}://a/")).header("host", "a");
        assert_eq!(examined(request).unwrap_err(), Fault::BadTarget, "{scheme}");
    }
}

#[test]
fn the_lines_of_a_cookie_field_become_one() {
    let request = Request::get("/").header("host", "a").header("cookie", "a=1");
    let (_, head) =
        examined(request.header("cookie", b"b=\xff".as_slice()).header("x", "y")).unwrap();
    let lines: Vec<_> = head.headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    assert_eq!(lines, [b"a=1; b=\xff"]);
    assert_eq!(head.headers["x"], "y");
}

#[test]
fn spaces_around_a_value_are_rejected_in_http_2() {
    for value in [" a", "a ", "\ta", "a\t", " "] {
        let request = Request::get("http://a/").version(Version::HTTP_2);
        let padded = request.header("x", "b").header("x", value);
        assert_eq!(examined(padded).unwrap_err(), Fault::BadHeader, "{value:?}");
    }
    let inner =
        Request::get("http://a/").version(Version::HTTP_2).header("x", "a b").header("y", "");
    assert!(examined(inner).is_ok());
}

#[test]
fn only_the_chunked_coding_can_be_forwarded() {
    let post = |coding| Request::post("/").header("host", "a").header(TRANSFER_ENCODING, coding);
    assert!(examined(post("Chunked")).is_ok());
    assert_eq!(examined(post("gzip, chunked")).unwrap_err(), Fault::UnknownCoding);
    let twice = post("chunked").header(TRANSFER_ENCODING, "chunked");
    assert_eq!(examined(twice).unwrap_err(), Fault::BadFraming);
    let both = post("chunked").header(CONTENT_LENGTH, "3");
    assert_eq!(examined(both).unwrap_err(), Fault::BadFraming);
}

#[test]
fn connect_and_trace_are_rejected() {
    let connect = Request::connect("a:443").header("host", "a");
    assert_eq!(examined(connect).unwrap_err(), Fault::MethodNotAllowed);
    let trace = Request::trace("/").header("host", "a");
    assert_eq!(examined(trace).unwrap_err(), Fault::MethodNotAllowed);
}

#[test]
fn options_is_forwarded_until_max_forwards_is_zero() {
    let options = |left: &str| {
        let request = Request::options("/").header("host", "a").header(MAX_FORWARDS, left);
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        let examined = examine(&mut head, &HeadSettings::default(), None);
        (examined.map(|found| matches!(found, HeadCheck::Capabilities)), head)
    };
    assert_eq!(options("0").0, Ok(true));
    let (passed, head) = options("3");
    assert_eq!(passed, Ok(false));
    assert_eq!(head.headers[MAX_FORWARDS], "2");
    assert_eq!(options("many").0, Err(Fault::BadHeader));
}

proptest! {
    #[test]
    fn normalizing_a_path_twice_changes_nothing(path in "/[a-zA-Z0-9%./~-]{0,40}") {
        if let Some(once) = normalized(&path) {
            let twice = normalized(&once);
            prop_assert_eq!(twice.as_deref(), Some(&*once));
        }
    }

    #[test]
    fn no_path_panics(path in "\\PC{0,60}") {
        let _ = normalized(&path);
        let _ = matched_path(&path, Parameters::Remove);
        let _ = matched_path(&path, Parameters::Keep);
    }
}

#[test]
fn a_host_validated_before_gives_the_same_result() {
    let known = Authority::from_static("shop.example");
    let asked = |host: &str, known: Option<&Authority>| {
        let request = http::Request::get("/").header("host", host).body(()).unwrap();
        match examine(&mut request.into_parts().0, &HeadSettings::default(), known) {
            Ok(HeadCheck::Sound(target)) => target.authority.map(|host| host.to_string()),
            _ => None,
        }
    };
    for host in ["shop.example", "SHOP.example", "shop.example:80", "other.example", "a@b", ""] {
        assert_eq!(asked(host, Some(&known)), asked(host, None), "{host}");
    }
    assert_eq!(asked("shop.example", Some(&known)).as_deref(), Some("shop.example"));
}
