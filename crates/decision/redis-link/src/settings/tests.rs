use std::path::PathBuf;
use std::time::Duration;

use super::*;

fn read(url: &str) -> RedisSettings {
    RedisSettings::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn refused(url: &str) -> String {
    RedisSettings::parse(url).expect_err(url).to_string()
}

fn single(host: &str, port: u16) -> RedisServers {
    RedisServers::Single(RedisAddress::tcp(host, port))
}

#[test]
fn a_host_is_enough() {
    let settings = read("redis://localhost");
    assert_eq!(settings, RedisSettings::new(single("localhost", 6379)));
    assert_eq!(settings.deadline, Duration::from_millis(250));
}

#[test]
fn a_url_names_user_password_port_and_database() {
    let settings = read("redis://limiter:s%40cret%2F@10.0.0.7:7000/3");
    assert_eq!(settings.servers, single("10.0.0.7", 7000));
    assert_eq!(settings.login.user.as_deref(), Some("limiter"));
    assert_eq!(settings.login.password, Password::Text(Secret::new("s@cret/")));
    assert_eq!(settings.database, 3);
    assert_eq!(settings.tls, None);
}

#[test]
fn a_password_needs_no_user() {
    let login = read("redis://:secret@localhost").login;
    assert_eq!(login, Login { user: None, password: Password::Text(Secret::new("secret")) });
}

#[test]
fn an_ipv6_address_stands_in_brackets() {
    assert_eq!(read("redis://[::1]:7000").servers, single("::1", 7000));
    assert_eq!(read("redis://[::1]").servers, single("::1", 6379));
    assert!(refused("redis://::1").contains("brackets"));
}

#[test]
fn a_socket_is_named_by_its_path() {
    let socket = RedisServers::Single(RedisAddress::Unix(PathBuf::from("/run/redis.sock")));
    for url in ["unix:///run/redis.sock?db=2", "redis+unix:///run/redis.sock?db=2"] {
        let settings = read(url);
        assert_eq!(settings.servers, socket);
        assert_eq!(settings.database, 2);
    }
}

#[test]
fn sentinels_come_with_the_masters_name() {
    let settings = read("redis-sentinel://:a@one,two:7001/counters/4?sentinel_password=b");
    let sentinels = vec![RedisAddress::tcp("one", 26379), RedisAddress::tcp("two", 7001)];
    let master = "counters".to_owned();
    assert_eq!(settings.servers, RedisServers::Sentinels { sentinels, master });
    assert_eq!(settings.database, 4);
    assert_eq!(settings.login.password, Password::Text(Secret::new("a")));
    assert_eq!(settings.sentinel_login.password, Password::Text(Secret::new("b")));
    assert!(refused("redis-sentinel://one,two").contains("master"));
}

#[test]
fn a_cluster_is_named_by_some_of_its_nodes() {
    let nodes = vec![RedisAddress::tcp("one", 6379), RedisAddress::tcp("two", 7001)];
    assert_eq!(read("redis-cluster://one,two:7001").servers, RedisServers::Cluster(nodes));
    assert!(refused("redis-cluster://one/3").contains("databases"));
    assert!(refused("redis-cluster://one?db=3").contains("databases"));
    assert!(refused("redis://one,two").contains("redis-cluster://"));
}

#[test]
fn two_s_mean_tls_and_options_say_how() {
    assert_eq!(read("rediss://localhost").tls, Some(ClientTls::default()));
    let tls =
        read("rediss-cluster://a,b?roots=/r.pem&certificate=/c.pem&key=/k.pem&name_check=off")
            .tls
            .unwrap();
    assert_eq!(tls.authority, Some(PathBuf::from("/r.pem")));
    assert_eq!(tls.identity, Some((PathBuf::from("/c.pem"), PathBuf::from("/k.pem"))));
    assert_eq!(tls.names, NameCheck::Any);
    assert!(refused("redis://localhost?roots=/r.pem").contains("rediss"));
}

#[test]
fn options_set_what_has_a_default() {
    let url = "redis://h?prefix=shop&connections=3&deadline=250us&connect_timeout=2s&queue=9\
        &slot_lease=3s&user=u&password_file=/run/secret";
    let settings = read(url);
    assert_eq!(settings.prefix, "shop");
    assert_eq!(settings.connections, 3);
    assert_eq!(settings.deadline, Duration::from_micros(250));
    assert_eq!(settings.connect_timeout, Duration::from_secs(2));
    assert_eq!(settings.slot_lease, Duration::from_secs(3));
    assert_eq!(settings.queue, 9);
    assert_eq!(settings.login.password, Password::File(PathBuf::from("/run/secret")));
}

#[test]
fn an_invalid_url_is_rejected_with_the_reason() {
    for (url, words) in [
        ("localhost:6379", "redis://localhost:6379"),
        ("http://localhost", "http:// is no store"),
        ("redis://", "host is missing"),
        ("redis://h:99999", "port of h"),
        ("redis://h/x", "database"),
        ("redis://h/1/2", "only the database"),
        ("redis://h?deadline=soon", "deadline is a time"),
        ("redis://h?deadline=0ms", "more than nothing"),
        ("redis://h?deadline=3601s", "at most 1h"),
        ("redis://h?slot_lease=299ms", "300ms to 1h"),
        ("redis://h?slot_lease=3601s", "300ms to 1h"),
        ("redis://h?queue=1000001", "1000000"),
        ("redis://h?conections=2", "there is no option \"conections\""),
        ("redis://h?connections=65", "1 to 64"),
        ("redis://h?prefix=a{b", "braces"),
        ("redis://limiter@h", "needs a password"),
        ("redis+unix://h/path", "whole path"),
        ("rediss://h?certificate=/c.pem", "come together"),
        ("rediss://h?key=/k.pem", "come together"),
        ("redis://u:a%zz@h", "the password has a %"),
    ] {
        assert!(refused(url).contains(words), "{url}: {}", refused(url));
    }
}

#[test]
fn passwords_appear_in_no_output() {
    let settings = read("redis://u:hunter2@h?sentinel_password=hunter2");
    assert!(!format!("{settings:?}").contains("hunter2"));
    for url in ["redis://u:hunter2%@h", "redis://u:hunter2@h:x", "redis://h?password=hunter2%q"] {
        assert!(!refused(url).contains("hunter2"), "{url}");
    }
}

#[test]
fn a_password_file_is_read_each_time_and_without_its_line_break() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let login = Login { user: None, password: Password::File(file.path().to_owned()) };
    std::fs::write(file.path(), "first\n").unwrap();
    assert_eq!(login.password_now().unwrap(), Some(Secret::new("first")));
    std::fs::write(file.path(), "second").unwrap();
    assert_eq!(login.password_now().unwrap(), Some(Secret::new("second")));
}
