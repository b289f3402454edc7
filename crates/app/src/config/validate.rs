//! What fields mean together.

use tidegate_document::{Bounds, Fault, Location, Problems, Setting};

use super::fields::{Config, Tls};
use super::kinds::{Address, KeyLayout, Switches, TraceProtocol, Url};
use super::layers::{Note, Origin, Provenances, Weight};

/// Where traces go over HTTP when nobody says where.
const HTTP_TRACES: &str = "http://localhost:4318";

struct Check<'v, 'p> {
    config: &'v Config,
    from: &'v Provenances,
    problems: &'v mut Problems<'p>,
    notes: &'v mut Vec<Note>,
}

/// Checks the whole, and settles the defaults that depend on other fields.
pub(super) fn validate(
    config: &mut Config,
    from: &Provenances,
    problems: &mut Problems<'_>,
    notes: &mut Vec<Note>,
) {
    settle(config, from);
    let mut check = Check { config, from, problems, notes };
    check.rules();
    check.listeners();
    check.tls("grpc.tls", &check.config.grpc.tls);
    check.tls("http.tls", &check.config.http.tls);
    check.tls("gateway.tls", &check.config.gateway.tls);
    check.gateway();
    check.debug();
    check.redis();
    check.headers();
}

fn settle(config: &mut Config, from: &Provenances) {
    // Paths that nobody gave are not read beside a runtime directory.
    let no_paths = from.get("rules.paths").is_none_or(|from| from.location.is_none());
    if no_paths && config.rules.runtime.root.is_some() {
        config.rules.paths.clear();
    }
    let untouched = from.get("traces.endpoint").is_none_or(|from| from.location.is_none());
    if untouched && config.traces.protocol == TraceProtocol::Http {
        let mut endpoint: Url = config.traces.endpoint.clone();
        endpoint.set_text(HTTP_TRACES, &Bounds::NONE).expect("the default is right");
        config.traces.endpoint = endpoint;
    }
}

impl Check<'_, '_> {
    /// Where a field was given; for a default, where the other one was.
    fn location(&self, path: &str, otherwise: &str) -> Location {
        let given = |path: &str| self.from.get(path).and_then(|from| from.location);
        given(path).or_else(|| given(otherwise)).unwrap_or_default()
    }

    fn item_location(&self, path: &str, item: usize) -> Option<Location> {
        let from = self.from.get(path)?;
        from.locations.get(item).copied().or(from.location)
    }

    /// Whether everything given for these fields could be read: what is told
    /// already should not lead to more complaints.
    fn are_sound(&self, paths: &[&str]) -> bool {
        paths.iter().all(|path| self.from.get(*path).is_none_or(|from| from.is_sound))
    }

    fn rules(&mut self) {
        let rules = &self.config.rules;
        if !self.are_sound(&["rules.paths", "rules.runtime.root"]) {
            return;
        }
        let by_hand = |path: &str| match self.from.get(path).map(|from| &from.origin) {
            Some(Origin::Variable(name)) => !super::compat::is_known(name),
            Some(Origin::File { .. } | Origin::Flag(_)) => true,
            Some(Origin::Default | Origin::CompatDefault) | None => false,
        };
        let both = by_hand("rules.paths") && by_hand("rules.runtime.root");
        if both && rules.runtime.root.is_some() && !rules.paths.is_empty() {
            let message = "`rules.runtime` and `rules.paths` exclude each other";
            let fault = Fault::new("exclusive", message)
                .related(self.location("rules.paths", ""), "the paths are here")
                .hint("remove one of the two");
            self.problems.error(self.location("rules.runtime.root", ""), fault);
        }
        if rules.runtime.root.is_none() && rules.paths.is_empty() {
            let fault = Fault::new("no_rules", "there is no place to read rules from")
                .hint("give `rules.paths` a file or a directory");
            self.problems.error(self.location("rules.paths", ""), fault);
        }
    }

    fn listeners(&mut self) {
        let config = self.config;
        // Without its document the gateway does not listen.
        let has_gateway = config.gateway.file.is_some();
        let gateway: &[Address] = if has_gateway { &config.gateway.listen } else { &[] };
        let doors: [(&str, &[Address]); 5] = [
            ("grpc.listen", &config.grpc.listen),
            ("http.listen", &config.http.listen),
            ("gateway.listen", gateway),
            ("debug.listen", &config.debug.listen),
            ("debug.metrics_listen", &config.debug.metrics_listen),
        ];
        if !self.are_sound(&doors.map(|(path, _)| path)) {
            return;
        }
        if config.grpc.listen.is_empty() && config.http.listen.is_empty() && gateway.is_empty() {
            let message = "neither `grpc.listen` nor `http.listen` has an address";
            let fault = Fault::new("nothing_to_serve", message).hint("give one of them an address");
            self.problems.error(self.location("http.listen", "grpc.listen"), fault);
        }
        let all: Vec<(&str, usize, &Address)> = doors
            .iter()
            .flat_map(|(path, list)| list.iter().enumerate().map(move |(at, one)| (*path, at, one)))
            .collect();
        for (at, (path, item, address)) in all.iter().enumerate() {
            let mut before = all.iter().take(at);
            let Some(first) = before.find(|(_, _, other)| address.collides(other)) else {
                continue;
            };
            let (other_path, other_item, other) = first;
            let message = format!("`{path}`: {address} is taken by {other} of `{other_path}`");
            let locations =
                (self.item_location(path, *item), self.item_location(other_path, *other_item));
            let mut fault = Fault::new("duplicate_listener", message)
                .hint("give every listener an address and port of its own");
            let location = match locations {
                (Some(location), Some(first)) => {
                    fault = fault.related(first, "taken here");
                    location
                }
                (Some(location), None) | (None, Some(location)) => location,
                (None, None) => Location::default(),
            };
            self.problems.error(location, fault);
        }
    }

    fn tls(&mut self, path: &str, tls: &Tls) {
        let at = |name: &str| format!("{path}.{name}");
        let fields = ["cert", "key", "client_ca", "client_san"].map(at);
        if !self.are_sound(&fields.each_ref().map(String::as_str)) {
            return;
        }
        let mut needs = |given: bool, name: &str, needed: bool, other: &str| {
            if given && !needed {
                let message = format!("`{path}` has `{name}` but no `{other}`");
                let fault = Fault::new("incomplete_tls", message).hint(format!(
                    "give `{}` too, or remove `{}`",
                    at(other),
                    at(name)
                ));
                self.problems.error(
                    self.from.get(&at(name)).and_then(|from| from.location).unwrap_or_default(),
                    fault,
                );
            }
        };
        needs(tls.cert.is_some(), "cert", tls.key.is_some(), "key");
        needs(tls.key.is_some(), "key", tls.cert.is_some(), "cert");
        needs(tls.client_ca.is_some(), "client_ca", tls.cert.is_some(), "cert");
        needs(tls.client_san.is_some(), "client_san", tls.client_ca.is_some(), "client_ca");
    }

    fn gateway(&mut self) {
        let config = self.config;
        let fields = ["gateway.file", "gateway.listen", "overload.capacity", "switches.file"];
        if !self.are_sound(&fields) {
            return;
        }
        if config.gateway.file.is_some() && config.gateway.listen.is_empty() {
            let fault = Fault::new("nothing_to_serve", "the gateway has nowhere to listen")
                .hint("give `gateway.listen` an address, or remove `gateway.file`");
            self.problems.error(self.location("gateway.listen", "gateway.file"), fault);
        }
        if config.gateway.file.is_none() && config.overload.capacity.is_some() {
            let message = "`overload.capacity` has no effect: there is no gateway to protect";
            let fault = Fault::new("no_effect", message).hint("set `gateway.file`");
            self.problems.warn(self.location("overload.capacity", ""), fault);
        }
        let fleet = &config.overload.fleet;
        if fleet.beat.saturating_mul(2) > fleet.lease {
            let message = "a grant of the fleet ends before it can be renewed twice";
            let fault = Fault::new("exclusive", message)
                .hint("let `overload.fleet.lease` be at least twice `overload.fleet.beat`");
            let location = self.location("overload.fleet.beat", "overload.fleet.lease");
            self.problems.error(location, fault);
        }
    }

    fn debug(&mut self) {
        let debug = &self.config.debug;
        let tokens = ["debug.token", "debug.token_file", "debug.tokens"];
        if !self.are_sound(&["debug.listen", "debug.switches"]) || !self.are_sound(&tokens) {
            return;
        }
        if debug.token.is_some() && debug.token_file.is_some() {
            let message = "`debug.token` and `debug.token_file` exclude each other";
            let fault = Fault::new("exclusive", message).hint("remove one of the two");
            self.problems.error(self.location("debug.token_file", "debug.token"), fault);
        }
        if debug.has_token() || debug.is_local() || debug.switches == Switches::Off {
            return;
        }
        let far = debug.listen.iter().position(|address| !address.is_local()).unwrap_or(0);
        let upstream = matches!(
            self.from.get("debug.listen").map(|from| &from.origin),
            Some(Origin::Variable(name)) if super::compat::is_known(name)
        );
        if upstream && debug.switches == Switches::Auto {
            self.notes.push(Note {
                weight: Weight::Note,
                message: "DEBUG_HOST lets others reach the debug port and there is no token: its \
                          pages are served, its switches are off; set TIDEGATE_DEBUG_TOKEN to \
                          have them"
                    .to_owned(),
            });
            return;
        }
        let message = "`debug.listen`: others can reach this address, and there is no token";
        let hint = "listen on 127.0.0.1, or set `debug.token_file` or TIDEGATE_DEBUG_TOKEN, or \
                    serve only what can be read with `debug.switches: off`";
        let location = self.item_location("debug.listen", far);
        let location = location.unwrap_or_else(|| self.location("debug.switches", ""));
        self.problems.error(location, Fault::new("open_debug", message).hint(hint));
    }

    fn redis(&mut self) {
        let redis = &self.config.store.redis;
        if !self.are_sound(&["store.redis.url", "store.redis.layout", "store.redis.regions"]) {
            return;
        }
        let Some(url) = &redis.url else { return };
        let (password, file) = ("store.redis.password", "store.redis.password_file");
        if redis.password.is_some() && redis.password_file.is_some() {
            let message = format!("`{password}` and `{file}` exclude each other");
            let fault = Fault::new("exclusive", message).hint("remove one of the two");
            self.problems.error(self.location(file, password), fault);
        }
        let tls = &redis.tls;
        let given = tls.ca.is_some() || tls.cert.is_some() || !tls.verify_name;
        if given && !url.reveal().starts_with("rediss") {
            let message = "`store.redis.tls` is set, but the URL is one without TLS";
            let fault = Fault::new("incomplete_tls", message).hint("write `rediss://` in the URL");
            let location = self.location("store.redis.tls.ca", "store.redis.url");
            self.problems.error(location, fault);
        }
        if redis.layout == KeyLayout::EnvoyRatelimit && !redis.regions.is_empty() {
            let message = "the layout of envoyproxy/ratelimit has no regions";
            let fault = Fault::new("exclusive", message)
                .hint("remove `store.redis.regions`, or set `store.redis.layout: tidegate`");
            self.problems.error(self.location("store.redis.regions", "store.redis.layout"), fault);
        }
    }

    fn headers(&mut self) {
        let headers = &self.config.limiter.response_headers;
        let names = [
            ("limit", &headers.limit),
            ("remaining", &headers.remaining),
            ("reset", &headers.reset),
        ];
        for (at, (name, header)) in names.iter().enumerate() {
            let mut before = names.iter().take(at);
            let same =
                before.find(|(_, other)| other.as_str().eq_ignore_ascii_case(header.as_str()));
            if let Some((other, _)) = same {
                let path = format!("limiter.response_headers.{name}");
                let other = format!("limiter.response_headers.{other}");
                let message = format!("`{path}` and `{other}` name the same header field");
                let fault = Fault::new("duplicate_header", message).hint("give each its own");
                self.problems.error(self.location(&path, &other), fault);
            }
        }
    }
}
