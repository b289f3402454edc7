use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use tidegate_document::{Bounds, HeaderName, ItemFault, Setting, Size, show_duration};

use super::*;

fn read<T: Setting + Default>(text: &str) -> Result<T, Vec<ItemFault>> {
    read_within(text, &Bounds::NONE)
}

fn read_within<T: Setting + Default>(text: &str, bounds: &Bounds) -> Result<T, Vec<ItemFault>> {
    let mut value = T::default();
    value.set_text(text, bounds).map(|()| value)
}

fn why<T: Setting + Default>(text: &str) -> String {
    let fault = read::<T>(text).unwrap_err().remove(0).fault;
    format!("{}; {}", fault.message(), fault.hint_text().unwrap_or_default())
}

#[test]
fn bounds_are_shown_in_the_unit_of_the_field() {
    let bounds = Bounds::of(1_000..=3_600_000);
    let faults = read_within::<Duration>("2h", &bounds).unwrap_err();
    assert_eq!(faults[0].fault.message(), "2h is not between 1s and 1h");
    let faults = read_within::<Workers>("0", &Bounds::of(1..=10)).unwrap_err();
    assert_eq!(faults[0].fault.message(), "0 is not between 1 and 10");
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
        ("0.0.0.0:65536", "`65536` is not a port"),
        ("example.org:80", "`example.org` is not an IP address; names are not looked up"),
        ("unix:", "the socket has no path"),
    ] {
        let why = why::<Vec<Address>>(text);
        assert!(why.contains(told), "{text}: {why}");
    }
    let long = format!("unix:/{}", "a".repeat(103));
    assert!(why::<Vec<Address>>(&long).contains("the maximum is 103"));
}

#[test]
fn addresses_collide_when_the_system_would_refuse_the_second() {
    let one = |text| Address::from_text(text).unwrap();
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
fn every_wrong_item_of_a_list_is_reported() {
    let faults = read::<Vec<Address>>("80, 127.0.0.1:81, :82").unwrap_err();
    assert_eq!(faults.iter().map(|fault| fault.item).collect::<Vec<_>>(), [Some(0), Some(2)]);
    let many = vec!["a"; 1_001].join(",");
    assert!(read::<Vec<PathBuf>>(&many).is_err());
}

#[test]
fn off_is_nothing_where_nothing_is_possible() {
    assert_eq!(read::<Option<Duration>>("off").unwrap(), None);
    assert_eq!(read::<Option<Duration>>("5s").unwrap(), Some(Duration::from_secs(5)));
    assert!(read::<Duration>("off").is_err());
    assert_eq!(read::<SwitchAccess>("off").unwrap(), SwitchAccess::Off);
}

#[test]
fn texts_are_checked_for_what_they_name() {
    assert!(read::<HeaderName>("X-RateLimit").is_ok());
    assert!(why::<HeaderName>("X RateLimit").contains("is not the name of a header field"));
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
