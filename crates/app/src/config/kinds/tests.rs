use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn read<T: Setting + Default>(text: &str) -> Result<T, Vec<Wrong>> {
    read_within(text, &Bounds::NONE)
}

fn read_within<T: Setting + Default>(text: &str, bounds: &Bounds) -> Result<T, Vec<Wrong>> {
    let mut value = T::default();
    value.set_text(text, bounds).map(|()| value)
}

fn why<T: Setting + Default>(text: &str) -> String {
    let wrong = read::<T>(text).unwrap_err().remove(0);
    format!("{}; {}", wrong.message, wrong.hint.unwrap_or_default())
}

#[test]
fn sizes_are_read_in_every_unit_and_shown_in_the_largest() {
    for (text, bytes) in
        [("512B", 512), ("64MiB", 64 << 20), ("1GiB", 1 << 30), ("2kB", 2_000), ("3MB", 3_000_000)]
    {
        let size: Size = read(text).unwrap();
        assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, text));
    }
    assert_eq!(read::<Size>("1024KiB").unwrap().to_string(), "1MiB");
    assert_eq!(read::<Size>("0B").unwrap().to_string(), "0B");
    for text in ["", "5", "MiB", "1.5GiB", "-1B", "1 MiB", "1mib", "99999999999999999999B"] {
        assert!(read::<Size>(text).is_err(), "{text}");
    }
    assert_eq!(read::<Size>("18446744073709551615TiB").unwrap().bytes(), u64::MAX);
}

#[test]
fn bounds_are_said_in_the_unit_of_the_field() {
    let bounds = Bounds::of(1_024..=1_048_576);
    let wrong = read_within::<Size>("2MiB", &bounds).unwrap_err();
    assert_eq!(wrong[0].message, "2MiB is not between 1KiB and 1MiB");
    let bounds = Bounds::of(1_000..=3_600_000);
    let wrong = read_within::<Duration>("2h", &bounds).unwrap_err();
    assert_eq!(wrong[0].message, "2h is not between 1s and 1h");
    let wrong = read_within::<u32>("0", &Bounds::of(1..=10)).unwrap_err();
    assert_eq!(wrong[0].message, "0 is not between 1 and 10");
    assert!(read_within::<u32>("4294967296", &Bounds::NONE).is_err());
}

#[test]
fn shares_are_kept_exactly() {
    for (text, millionths) in
        [("0.8", 800_000), ("80%", 800_000), ("1", 1_000_000), (".5", 500_000), ("99.99%", 999_900)]
    {
        assert_eq!(read::<Ratio>(text).unwrap().millionths(), millionths, "{text}");
    }
    assert_eq!(Setting::shown(&read::<Ratio>("80%").unwrap()), json!(0.8));
    assert_eq!(Setting::shown(&read::<Percent>("0.5").unwrap()), json!(0.5));
    assert_eq!(Setting::shown(&read::<Percent>("100%").unwrap()), json!(100));
    for text in ["", ".", "%", "1.1", "101%", "-0.1", "0.8.1", "1e-1", "NaN", "1000"] {
        assert!(read::<Ratio>(text).is_err(), "{text}");
    }
    assert!(read::<Percent>("100.1").is_err());
}

#[test]
fn addresses_are_ports_and_sockets() {
    let shown = |text| read::<Vec<Address>>(text).unwrap()[0].to_string();
    assert_eq!(shown("0.0.0.0:8081"), "0.0.0.0:8081");
    assert_eq!(shown("[::1]:80"), "[::1]:80");
    assert_eq!(shown("localhost:80"), "127.0.0.1:80");
    assert_eq!(shown("unix:/run/a.sock"), "unix:/run/a.sock");
    assert_eq!(shown("unix:///run/a.sock"), "unix:/run/a.sock");
    assert_eq!(shown("127.0.0.1:0"), "127.0.0.1:0");
}

#[test]
fn a_wrong_address_is_told_with_what_would_be_right() {
    for (text, told) in [
        ("8080", "has no address before its port; write `0.0.0.0:8080`"),
        (":8080", "has no address before its port; write `0.0.0.0:8080`"),
        ("/run/a.sock", "has no port; did you mean `unix:/run/a.sock`?"),
        ("http://0.0.0.0:80", "is a URL, not an address"),
        ("::1", "has no port; write the address in brackets: `[::1]:PORT`"),
        ("2001:db8::1:80:8080", "write the address in brackets"),
        ("0.0.0.0", "has no port; write `ADDRESS:PORT`"),
        ("0.0.0.0:65536", "`65536` is no port"),
        ("example.org:80", "`example.org` is no IP address; names are not looked up"),
        ("unix:", "the socket has no path"),
    ] {
        let why = why::<Vec<Address>>(text);
        assert!(why.contains(told), "{text}: {why}");
    }
    let long = format!("unix:/{}", "a".repeat(103));
    assert!(why::<Vec<Address>>(&long).contains("at most 103 bytes"));
}

#[test]
fn addresses_collide_when_the_system_would_refuse_the_second() {
    let one = |text| Address::parse(text).unwrap();
    for (left, right, collides) in [
        ("127.0.0.1:80", "127.0.0.1:80", true),
        ("0.0.0.0:80", "127.0.0.1:80", true),
        ("127.0.0.1:80", "127.0.0.2:80", false),
        ("127.0.0.1:80", "127.0.0.1:81", false),
        ("0.0.0.0:0", "0.0.0.0:0", false),
        ("0.0.0.0:80", "[::1]:80", false),
        ("unix:/a", "unix:/a", true),
        ("unix:/a", "unix:/b", false),
        ("unix:/a", "127.0.0.1:80", false),
    ] {
        assert_eq!(one(left).collides(&one(right)), collides, "{left} {right}");
        assert_eq!(one(right).collides(&one(left)), collides, "{right} {left}");
    }
}

#[test]
fn every_wrong_item_of_a_list_is_told() {
    let wrong = read::<Vec<Address>>("80, 127.0.0.1:81, :82").unwrap_err();
    assert_eq!(wrong.iter().map(|wrong| wrong.item).collect::<Vec<_>>(), [Some(0), Some(2)]);
    let many = vec!["a"; ITEMS_MAX + 1].join(",");
    assert!(read::<Vec<PathBuf>>(&many).is_err());
}

#[test]
fn off_is_nothing_where_nothing_is_possible() {
    assert_eq!(read::<Option<Duration>>("off").unwrap(), None);
    assert_eq!(read::<Option<Duration>>("5s").unwrap(), Some(Duration::from_secs(5)));
    assert!(read::<Duration>("off").is_err());
    assert_eq!(read::<Switches>("off").unwrap(), Switches::Off);
}

#[test]
fn texts_are_checked_for_what_they_name() {
    assert!(read::<HeaderName>("X-RateLimit").is_ok());
    assert!(why::<HeaderName>("X RateLimit").contains("is no name of a header field"));
    assert!(read::<Url>("https://[::1]:4317/v1").is_ok());
    for text in
        ["localhost:4317", "http://", "http:///a", "http://a:b", "http://a:70000", "ftp://a"]
    {
        assert!(read::<Url>(text).is_err(), "{text}");
    }
    assert!(read::<UrlPath>("/metrics").is_ok());
    assert!(read::<UrlPath>("metrics").is_err() && read::<UrlPath>("/a?b").is_err());
    assert!(read::<San>("envoy.example.org").is_ok() && read::<San>("a b").is_err());
    assert!(read::<String>("").is_err() && read::<String>("a\u{7}").is_err());
    assert!(read::<String>(&"a".repeat(5_000)).is_err());
}

#[test]
fn a_secret_is_never_shown() {
    let secret: Option<Secret> = read("correct horse battery").unwrap();
    assert_eq!(secret.as_ref().unwrap().reveal(), "correct horse battery");
    assert_eq!(Setting::shown(&secret), json!("set"));
    assert_eq!(format!("{secret:?}"), "Some(***)");
    assert!(why::<Option<Secret>>("short").starts_with("a token has at least 16 characters"));
}

#[test]
fn a_boolean_in_quotes_is_told_to_lose_them() {
    let quoted = Scalar { text: "true".into(), style: ScalarStyle::Text };
    let wrong = true.clone().set(&[quoted], &Bounds::NONE).unwrap_err();
    assert_eq!(wrong[0].message, "this takes `true` or `false`, not text");
    assert_eq!(wrong[0].hint.as_deref(), Some("remove the quotes"));
}

proptest! {
    #[test]
    fn what_a_size_or_a_length_of_time_is_shown_as_reads_the_same(number in any::<u64>()) {
        let size = Size::new(number);
        prop_assert_eq!(read::<Size>(&size.to_string()).unwrap(), size);
        let length = Duration::from_millis(number);
        prop_assert_eq!(read::<Duration>(&show_duration(length)).unwrap(), length);
    }

    #[test]
    fn no_text_makes_a_kind_panic(text in "\\PC{0,24}") {
        let kinds: [Box<dyn Setting>; 10] = [
            Box::new(false), Box::new(0_u32), Box::new(Workers::Auto), Box::new(Size::new(0)),
            Box::new(Duration::ZERO), Box::new(Ratio::default()), Box::new(Percent::default()),
            Box::new(Vec::<Address>::new()), Box::new(Url::default()), Box::new(UrlPath::default()),
        ];
        for mut kind in kinds {
            let before = kind.shown();
            if kind.set_text(&text, &Bounds::of(1..=100)).is_err() {
                prop_assert_eq!(kind.shown(), before);
            }
        }
    }
}
