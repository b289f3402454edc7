//! From the document to groups of upstreams.

use tidegate_document::{Fault, OrOff, Problems};

use super::table::{TimeoutsKeys, TlsKeys, UpstreamKeys};
use super::{put, strings};
use crate::settings::{ClientTls, Timeouts, UpstreamSettings};

pub(super) fn group(keys: UpstreamKeys, problems: &mut Problems<'_>) -> UpstreamSettings {
    let name = keys.name.map(String::from).unwrap_or_default();
    let mut settings = UpstreamSettings::new(name, strings(keys.hosts));
    put(&mut settings.protocol, keys.protocol);
    if let Some(mut keys) = keys.tls {
        settings.server_name = keys.server_name.take().map(String::from);
        settings.tls = tls(keys, problems);
    }
    put(&mut settings.timeouts, keys.timeouts.map(|keys| timeouts(keys, Timeouts::default())));
    put(&mut settings.pool, keys.pool);
    settings.health = keys.health;
    put(&mut settings.ejection, keys.ejection);
    settings
}

fn tls(keys: TlsKeys, problems: &mut Problems<'_>) -> ClientTls {
    for (name, other) in [("cert", "key"), ("key", "cert")] {
        if keys.keys.has(name) && !keys.keys.has(other) {
            let message = format!("`{name}` needs `{other}`");
            let fault = Fault::new("incomplete_tls", message).hint("give `cert` and `key`");
            problems.error(keys.keys.value_location(name), fault);
        }
    }
    ClientTls {
        authority: keys.authority.map(|path| path.0.into()),
        identity: keys.cert.zip(keys.key).map(|(cert, key)| (cert.0.into(), key.0.into())),
        ..ClientTls::default()
    }
}

/// Timeouts; `inherited` applies to those that are not there.
pub(super) fn timeouts(keys: TimeoutsKeys, inherited: Timeouts) -> Timeouts {
    let mut settings = inherited;
    put(&mut settings.connect, keys.connect);
    put(&mut settings.first_byte, keys.first_byte);
    put(&mut settings.idle, keys.idle);
    put(&mut settings.total, keys.total.map(OrOff::into_option));
    settings
}
