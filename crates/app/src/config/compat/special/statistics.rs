//! Statistics: one of statsd, DogStatsD and Prometheus, as in upstream.

use tidegate_document::Fault;

use super::super::Environment;
use super::super::go::{boolean, invalid, pairs};
use crate::config::layers::NamedText;

const MOGRIFIER: &str = "DOG_STATSD_MOGRIFIER_";

const DEFAULT_HOST: &str = "localhost";
const DEFAULT_PORT: &str = "8125";

/// Whether the variable is a part of a mogrifier.
pub(in super::super) fn is_mogrifier(name: &str) -> bool {
    let part = name.strip_prefix(MOGRIFIER).and_then(|rest| rest.rsplit_once('_'));
    part.is_some_and(|(_, part)| matches!(part, "PATTERN" | "NAME" | "TAGS"))
}

/// How statistics leave the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sink {
    Statsd,
    DogStatsd,
    Prometheus,
    None,
}

pub(super) fn read(environment: &mut Environment<'_, '_, '_>) {
    let sink = environment.sink();
    if let Some(tags) = environment.get("EXTRA_TAGS") {
        // A malformed list is reported already.
        let items = pairs(tags.text).unwrap_or_default();
        let items = items.iter().map(|(key, value)| format!("{key}:{value}"));
        environment.set_list("statsd.tags", items.collect(), &tags);
    }
    environment.statsd(sink);
    environment.mogrifiers(sink);
    environment.prometheus(sink);
}

impl<'s> Environment<'_, 's, '_> {
    /// The sink that the switches choose. Upstream does not start with two; a default is not a choice here.
    fn sink(&mut self) -> Sink {
        if self.enabled("DISABLE_STATS").is_some() {
            return Sink::None;
        }
        let switches = [
            ("USE_DOG_STATSD", Sink::DogStatsd),
            ("USE_STATSD", Sink::Statsd),
            ("USE_PROMETHEUS", Sink::Prometheus),
        ];
        let chosen = switches.iter().filter_map(|(name, sink)| Some((self.enabled(name)?, *sink)));
        let chosen: Vec<_> = chosen.collect();
        if let [(first, _), (second, _), ..] = chosen.as_slice() {
            let message = format!("{} and {} exclude each other", first.name, second.name);
            let hint = "set one of USE_DOG_STATSD, USE_STATSD, USE_PROMETHEUS";
            self.refuse(second, Fault::new("exclusive", message).hint(hint));
        }
        let is_off = self.get("USE_STATSD").is_some_and(|text| boolean(text.text) == Ok(false));
        match chosen.first() {
            Some((_, sink)) => *sink,
            None if is_off => Sink::None,
            None => Sink::Statsd,
        }
    }

    fn statsd(&mut self, sink: Sink) {
        let (host, port) = (self.get("STATSD_HOST"), self.get("STATSD_PORT"));
        let protocol = self.get("STATSD_PROTOCOL");
        let scheme = match protocol.map_or("tcp", |protocol| protocol.text) {
            _ if sink == Sink::DogStatsd => "udp",
            "tcp" | "tcp4" | "tcp6" => "tcp",
            "udp" | "udp4" | "udp6" => "udp",
            other => {
                let hint = "it can be `tcp` or `udp`";
                let fault = invalid("unknown_choice", other, "a protocol of statsd", hint);
                return protocol.iter().for_each(|protocol| self.refuse(protocol, fault.clone()));
            }
        };
        if !matches!(sink, Sink::Statsd | Sink::DogStatsd) {
            let unused = [host, port, protocol].into_iter().flatten();
            self.note_no_effect(&unused.collect::<Vec<_>>(), "USE_STATSD");
            let off = self.get("USE_STATSD").or(self.enabled("DISABLE_STATS"));
            return off.iter().for_each(|off| self.set("statsd.address", "off".to_owned(), off));
        }
        let switch = self.enabled("USE_DOG_STATSD").or(self.enabled("USE_STATSD"));
        let host_text = host.map_or(DEFAULT_HOST, |host| host.text);
        let address = match host_text.strip_prefix("unix:") {
            Some(_) => host_text.to_owned(),
            None => {
                let port = port.map_or(DEFAULT_PORT, |port| port.text);
                // An IPv6 address needs brackets before its port.
                let is_bare = host_text.contains(':') && !host_text.starts_with('[');
                let (open, close) = if is_bare { ("[", "]") } else { ("", "") };
                format!("{scheme}://{open}{host_text}{close}:{port}")
            }
        };
        match host.or(port).or(protocol).or(switch) {
            Some(from) => self.set("statsd.address", address, &from),
            None => self.default("statsd.address", address),
        }
        if let (Sink::DogStatsd, Some(switch)) = (sink, switch) {
            self.set("statsd.format", "dogstatsd".to_owned(), &switch);
        }
    }

    /// Each mogrifier has a pattern, a name and tags in three variables.
    fn mogrifiers(&mut self, sink: Sink) {
        let Some(names) = self.get("USE_DOG_STATSD_MOGRIFIERS") else { return };
        if sink != Sink::DogStatsd {
            return self.note_no_effect(&[names], "USE_DOG_STATSD");
        }
        let mut rewrites = Vec::new();
        for name in names.text.split(',') {
            let part =
                |part: &str| self.get(&format!("{MOGRIFIER}{}_{part}", name.to_ascii_uppercase()));
            let (pattern, target, tags) = (part("PATTERN"), part("NAME"), part("TAGS"));
            let missing = match (pattern, target) {
                (Some(pattern), Some(target)) => {
                    let tags = tags.and_then(|tags| pairs(tags.text).ok()).unwrap_or_default();
                    let tags = tags.iter().map(|(key, value)| format!(" {key}:{value}"));
                    let tags: String = tags.collect();
                    rewrites.push(format!("{} -> {}{tags}", pattern.text, target.text));
                    continue;
                }
                (None, _) => "PATTERN",
                (Some(_), None) => "NAME",
            };
            let message = format!("no {missing} specified for mogrifier {name}");
            let hint = format!("set {MOGRIFIER}{}_{missing}", name.to_ascii_uppercase());
            self.refuse(&names, Fault::new("missing_mogrifier", message).hint(hint));
        }
        self.set_list("statsd.mogrifiers", rewrites, &names);
    }

    fn prometheus(&mut self, sink: Sink) {
        let (address, path) = (self.get("PROMETHEUS_ADDR"), self.get("PROMETHEUS_PATH"));
        let mapping = self.get("PROMETHEUS_MAPPER_YAML");
        let switch = self.enabled("USE_PROMETHEUS").filter(|_| sink == Sink::Prometheus);
        let Some(switch) = switch else {
            let variables = [address, path, mapping].into_iter().flatten();
            return self
                .note_no_effect(&variables.collect::<Vec<NamedText<'s>>>(), "USE_PROMETHEUS");
        };
        let text = address.map_or(":9090", |address| address.text);
        let from = address.unwrap_or(switch);
        // Without a host, Go listens on all addresses.
        let text = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
        self.set("debug.metrics_listen", text, &from);
        self.set("debug.upstream_metrics.enabled", "true".to_owned(), &switch);
        if let Some(path) = path {
            self.set("debug.metrics_path", path.text.to_owned(), &path);
        }
        if let Some(mapping) = mapping {
            self.set("debug.upstream_metrics.mapping", mapping.text.to_owned(), &mapping);
        }
    }
}
