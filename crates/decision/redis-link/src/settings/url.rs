//! Parses the URL of a server, sentinels or cluster.
//!
//! Hand-written, because common URL parsers reject several hosts. No message quotes the part before `@` or after
//! `password=`.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::{
    ClientTls, Login, NameCheck, Password, RedisAddress, RedisServers, RedisSettings,
    RedisSettingsError, Secret, SettingsResult,
};

const SERVER_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

const OPTIONS: &str = "user, password, password_file, sentinel_user, sentinel_password, \
    sentinel_password_file, db, prefix, roots, certificate, key, name_check, connections, \
    deadline, connect_timeout, slot_lease, queue";

/// The kind of server that the scheme names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Single,
    Unix,
    Sentinel,
    Cluster,
}

/// The parts of a URL, not decoded yet.
struct Parts<'a> {
    login: Option<&'a str>,
    hosts: &'a str,
    path: &'a str,
    query: &'a str,
}

pub(super) fn read(url: &str) -> SettingsResult<RedisSettings> {
    let Some((scheme, rest)) = url.trim().split_once("://") else {
        return wrong("expected a URL such as redis://localhost:6379");
    };
    let (kind, tls) = kind(scheme)?;
    let parts = split(rest);
    let mut settings = RedisSettings::new(servers(kind, &parts)?);
    settings.tls = tls.then(ClientTls::default);
    if let Some(database) = database(kind, parts.path) {
        settings.database = number("the database", database)?;
    }
    if let Some(login) = parts.login {
        settings.login = read_login(login)?;
    }
    for option in parts.query.split('&').filter(|option| !option.is_empty()) {
        let Some((name, value)) = option.split_once('=') else {
            return wrong(&format!("option {option:?} has no value: write {option}=…"));
        };
        set(&mut settings, name, &decode(value, name)?)?;
    }
    Ok(settings)
}

fn kind(scheme: &str) -> SettingsResult<(Kind, bool)> {
    Ok(match scheme {
        "redis" | "valkey" => (Kind::Single, false),
        "rediss" | "valkeys" => (Kind::Single, true),
        "unix" | "redis+unix" => (Kind::Unix, false),
        "redis-sentinel" => (Kind::Sentinel, false),
        "rediss-sentinel" => (Kind::Sentinel, true),
        "redis-cluster" => (Kind::Cluster, false),
        "rediss-cluster" => (Kind::Cluster, true),
        other => {
            return wrong(&format!(
                "{other}:// is no store; use redis://, rediss://, redis+unix://, redis-sentinel:// or \
                 redis-cluster://"
            ));
        }
    })
}

fn split(rest: &str) -> Parts<'_> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let slash = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    let (login, hosts) =
        authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
    Parts { login, hosts, path, query }
}

fn servers(kind: Kind, parts: &Parts<'_>) -> SettingsResult<RedisServers> {
    let steps: Vec<&str> = parts.path.split('/').skip(1).collect();
    let too_many = |most: usize| steps.iter().skip(most).any(|step| !step.is_empty());
    match kind {
        Kind::Unix if !parts.hosts.is_empty() || parts.path.len() < 2 => {
            wrong("write the whole path of the socket: redis+unix:///run/redis.sock")
        }
        Kind::Unix => {
            let path = PathBuf::from(decode(parts.path, "the path")?);
            Ok(RedisServers::Single(RedisAddress::Unix(path)))
        }
        Kind::Single if parts.hosts.contains(',') => wrong(
            "redis:// names one server; write redis-cluster:// or redis-sentinel:// for several",
        ),
        Kind::Single if too_many(1) => wrong("only the database may follow the host"),
        Kind::Single => Ok(RedisServers::Single(address(parts.hosts, SERVER_PORT)?)),
        Kind::Cluster if too_many(0) => wrong("a cluster has no databases but 0"),
        Kind::Cluster => Ok(RedisServers::Cluster(addresses(parts.hosts, SERVER_PORT)?)),
        Kind::Sentinel if too_many(2) => wrong("only /master/database may follow the sentinels"),
        Kind::Sentinel => Ok(RedisServers::Sentinels {
            sentinels: addresses(parts.hosts, SENTINEL_PORT)?,
            master: decode(steps.first().unwrap_or(&""), "the master's name")?,
        }),
    }
}

/// The database in the path, if any.
fn database(kind: Kind, path: &str) -> Option<&str> {
    let index = match kind {
        Kind::Single => 1,
        Kind::Sentinel => 2,
        Kind::Unix | Kind::Cluster => return None,
    };
    path.split('/').nth(index).filter(|text| !text.is_empty())
}

fn addresses(hosts: &str, port: u16) -> SettingsResult<Vec<RedisAddress>> {
    hosts.split(',').map(|host| address(host.trim(), port)).collect()
}

fn address(text: &str, default_port: u16) -> SettingsResult<RedisAddress> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            None => return wrong(&format!("{text:?} has no closing bracket")),
        },
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return wrong(&format!("{text:?}: write an IPv6 address in brackets, as in [::1]"));
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return wrong("a host is missing, as in redis://localhost:6379");
    }
    let port = match port {
        Some(port) => port.parse().map_err(|_| {
            RedisSettingsError(format!("the port of {host} is not a number up to 65535"))
        })?,
        None => default_port,
    };
    Ok(RedisAddress::tcp(host, port))
}

fn read_login(text: &str) -> SettingsResult<Login> {
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => {
            (user, Password::Text(Secret::new(decode(password, "the password")?)))
        }
        None => (text, Password::None),
    };
    let user = decode(user, "the user")?;
    Ok(Login { user: Some(user).filter(|user| !user.is_empty()), password })
}

fn set(settings: &mut RedisSettings, name: &str, value: &str) -> SettingsResult<()> {
    let text = || value.to_owned();
    match name {
        "user" => settings.login.user = Some(text()),
        "password" => settings.login.password = Password::Text(Secret::new(value)),
        "password_file" => settings.login.password = Password::File(value.into()),
        "sentinel_user" => settings.sentinel_login.user = Some(text()),
        "sentinel_password" => {
            settings.sentinel_login.password = Password::Text(Secret::new(value));
        }
        "sentinel_password_file" => settings.sentinel_login.password = Password::File(value.into()),
        "db" => settings.database = number("db", value)?,
        "prefix" => settings.prefix = text(),
        "connections" => settings.connections = number("connections", value)?,
        "queue" => settings.queue = number("queue", value)?,
        "deadline" => settings.deadline = duration("deadline", value)?,
        "connect_timeout" => settings.connect_timeout = duration("connect_timeout", value)?,
        "slot_lease" => settings.slot_lease = duration("slot_lease", value)?,
        "roots" | "certificate" | "key" | "name_check" => set_tls(settings, name, value)?,
        other => return wrong(&format!("there is no option {other:?}; the options are {OPTIONS}")),
    }
    Ok(())
}

fn set_tls(settings: &mut RedisSettings, name: &str, value: &str) -> SettingsResult<()> {
    let Some(tls) = &mut settings.tls else {
        return wrong(&format!("{name} is for TLS: begin the URL with rediss"));
    };
    let pair = |tls: &ClientTls| tls.identity.clone().unwrap_or_default();
    match (name, value) {
        ("roots", path) => tls.authority = Some(path.into()),
        ("certificate", path) => tls.identity = Some((path.into(), pair(tls).1)),
        ("key", path) => tls.identity = Some((pair(tls).0, path.into())),
        ("name_check", "on") => tls.names = NameCheck::Strict,
        ("name_check", "off") => tls.names = NameCheck::Any,
        _ => return wrong("name_check is on or off"),
    }
    Ok(())
}

fn number<N: std::str::FromStr>(name: &str, text: &str) -> SettingsResult<N> {
    text.parse().map_err(|_| RedisSettingsError(format!("{name} is a whole number, not {text:?}")))
}

fn duration(name: &str, text: &str) -> SettingsResult<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let count: Option<u64> = count.parse().ok();
    let duration = match (count, unit) {
        (Some(count), "us") => Some(Duration::from_micros(count)),
        (Some(count), "ms") => Some(Duration::from_millis(count)),
        (Some(count), "s") => Some(Duration::from_secs(count)),
        _ => None,
    };
    duration.ok_or_else(|| {
        RedisSettingsError(format!("{name} is a time such as 250ms or 1s, not {text:?}"))
    })
}

/// Decodes `%XX`. The error names the part, and does not quote it.
fn decode(text: &str, part: &str) -> SettingsResult<String> {
    let is_escape =
        |rest: &str| rest.bytes().take_while(u8::is_ascii_hexdigit).take(2).count() == 2;
    if !text.split('%').skip(1).all(is_escape) {
        return Err(RedisSettingsError(format!("{part} has a % that is not written as %25")));
    }
    let decoded = percent_decode_str(text).decode_utf8().map(Cow::into_owned);
    decoded.map_err(|_| RedisSettingsError(format!("{part} is not UTF-8")))
}

fn wrong<T>(words: &str) -> SettingsResult<T> {
    Err(RedisSettingsError(words.to_owned()))
}
