use super::*;

fn combined(line: &str) -> Option<LoggedRequest<'_>> {
    LineFormat::compile(COMBINED).unwrap().read(line)
}

const LINE: &str =
    r#"192.0.2.7 - ada [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 "-" "curl/8""#;

#[test]
fn a_combined_line_is_read() {
    let request = combined(LINE).unwrap();
    assert_eq!(request.client.as_deref(), Some("192.0.2.7"));
    assert_eq!(request.variable("remote_user"), Some("ada"));
    assert_eq!(request.variable("request_method"), Some("GET"));
    assert_eq!(request.variable("uri"), Some("/a"));
    assert_eq!(request.variable("arg_b"), Some("c"));
    assert_eq!(request.variable("http_user_agent"), Some("curl/8"));
    assert_eq!(request.variable("http_referer"), None);
    assert_eq!((request.status, request.refused), (Some(200), false));
    assert_eq!(request.resolution, TimeResolution::Second);
}

#[test]
fn quotes_are_read_as_nginx_and_as_apache_escape_them() {
    let nginx = r#"::1 - - [10/Oct/2000:13:55:36 -0700] "GET /\x22x\x22 HTTP/1.1" 200 1 "-" "-""#;
    assert_eq!(combined(nginx).unwrap().target.as_deref(), Some("/\"x\""));
    let apache = r#"::1 - a\"b [10/Oct/2000:13:55:36 -0700] "GET /\"x\" HTTP/1.1" 429 1 "-" "\\""#;
    let request = combined(apache).unwrap();
    assert_eq!(request.target.as_deref(), Some("/\"x\""));
    assert_eq!(request.variable("http_user_agent"), Some("\\"));
    assert!(request.refused);
}

#[test]
fn addresses_lose_brackets_and_port() {
    assert_eq!(address("[2001:db8::1]:443"), "2001:db8::1");
    assert_eq!(address("2001:db8::1"), "2001:db8::1");
    assert_eq!(address("192.0.2.1:80"), "192.0.2.1");
}

#[test]
fn a_request_begins_before_it_is_logged() {
    let text = "$msec $request_time \"$request\" $http_x_user $limit_req_status";
    let mut format = LineFormat::compile(text).unwrap();
    let request = format.read("100.500 0.250 \"GET / HTTP/2\" ada REJECTED").unwrap();
    assert_eq!(request.began().as_nanos(), 100_250_000_000);
    assert_eq!(request.variable("http_x_user"), Some("ada"));
    assert!(request.refused);
    assert_eq!(request.resolution, TimeResolution::Exact);
}

#[test]
fn formats_that_cannot_be_read_are_refused() {
    let adjacent = LineFormat::compile("$remote_addr$time_local").unwrap_err();
    assert!(adjacent.to_string().contains("`$remote_addr` and `$time_local`"), "{adjacent}");
    assert_eq!(LineFormat::compile("$remote_addr $status").unwrap_err(), FormatError::NoTime);
}

#[test]
fn lines_of_another_kind_are_not_read() {
    for line in
        ["", "-", "hello world", "\0\0\0", "{\"a\":1}", &LINE[..40], "192.0.2.7 - - [x] \"\" 1 1"]
    {
        assert_eq!(combined(line), None, "{line}");
    }
}

#[test]
fn a_request_line_without_a_target_is_a_request_without_a_target() {
    let line = r#"192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "-" 400 0 "-" "-""#;
    let request = combined(line).unwrap();
    assert_eq!((request.target, request.status), (None, Some(400)));
}
