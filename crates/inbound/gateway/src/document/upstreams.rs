//! From the document to groups of upstreams.

use tidegate_rules::reading::{Fault, Problems};

use super::tree::Section;
use super::{put, size};
use crate::settings::{
    Ejection, HealthCheck, PoolSettings, Timeouts, UpstreamProtocol, UpstreamSettings, UpstreamTls,
};

pub(super) fn group(section: &Section, problems: &mut Problems<'_>) -> UpstreamSettings {
    let name = section.text("name").unwrap_or_default();
    let mut settings = UpstreamSettings::new(name, section.strings("hosts"));
    put(
        &mut settings.protocol,
        section.choice("protocol").map(|word| match word {
            "http1" => UpstreamProtocol::Http1,
            "http2" => UpstreamProtocol::Http2,
            _ => UpstreamProtocol::Auto,
        }),
    );
    put(&mut settings.tls, section.one("tls").map(|section| tls(section, problems)));
    if let Some(section) = section.one("timeouts") {
        settings.timeouts = timeouts(section, settings.timeouts);
    }
    put(&mut settings.pool, section.one("pool").map(pool));
    settings.health = section.one("health").map(health);
    put(&mut settings.ejection, section.one("ejection").map(ejection));
    settings
}

fn tls(section: &Section, problems: &mut Problems<'_>) -> UpstreamTls {
    let (cert, key) = (section.text("cert"), section.text("key"));
    for (given, name, other) in [(cert, "cert", key), (key, "key", cert)] {
        if given.is_some() && other.is_none() {
            let message = format!("`{name}` is alone");
            let fault = Fault::new("incomplete_tls", message).hint("give `cert` and `key`");
            problems.error(section.spot(name), fault);
        }
    }
    UpstreamTls {
        authority: section.text("authority").map(Into::into),
        server_name: section.text("server_name").map(str::to_owned),
        client: cert.zip(key).map(|(cert, key)| (cert.into(), key.into())),
    }
}

/// Timeouts; what is not said is as `otherwise`.
pub(super) fn timeouts(section: &Section, otherwise: Timeouts) -> Timeouts {
    let mut settings = otherwise;
    put(&mut settings.connect, section.duration("connect"));
    put(&mut settings.first_byte, section.duration("first_byte"));
    put(&mut settings.idle, section.duration("idle"));
    put(&mut settings.total, section.duration("total").map(Some));
    if section.is_off("total") {
        settings.total = None;
    }
    settings
}

fn pool(section: &Section) -> PoolSettings {
    let mut settings = PoolSettings::default();
    put(&mut settings.idle_max, section.count("idle_max").map(size));
    put(&mut settings.idle_timeout, section.duration("idle_timeout"));
    put(&mut settings.streams_max, section.count("streams_max").map(size));
    put(&mut settings.shared_max, section.count("shared_max").map(size));
    settings
}

fn health(section: &Section) -> HealthCheck {
    let mut settings = HealthCheck::default();
    put(&mut settings.path, section.text("path").map(str::to_owned));
    put(&mut settings.interval, section.duration("interval"));
    put(&mut settings.timeout, section.duration("timeout"));
    put(&mut settings.unhealthy_after, section.count("unhealthy_after").map(times));
    put(&mut settings.healthy_after, section.count("healthy_after").map(times));
    settings
}

fn ejection(section: &Section) -> Ejection {
    let mut settings = Ejection::default();
    put(&mut settings.failures, section.count("failures").map(times));
    put(&mut settings.base, section.duration("base"));
    put(&mut settings.max, section.duration("max"));
    settings
}

fn times(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
