//! Checks across fields.

use tidegate_document::{Bounds, Fault, Location, Problems, Setting};
use tidegate_engine::{Mode, Percent};

use super::compat;
use super::fields::{Config, Tls};
use super::kinds::{Address, KeyLayout, QueueUrl, SwitchAccess, TraceProtocol};
use super::layers::{Note, Origin, Provenances, Weight};

/// The default endpoint of traces over HTTP.
const HTTP_TRACES: &str = "http://localhost:4318";

struct CrossFieldCheck<'v, 'p> {
    config: &'v Config,
    from: &'v Provenances,
    problems: &'v mut Problems<'p>,
    notes: &'v mut Vec<Note>,
}

/// Sets the defaults that depend on other fields, and checks the whole configuration.
pub(super) fn validate(
    config: &mut Config,
    from: &Provenances,
    problems: &mut Problems<'_>,
    notes: &mut Vec<Note>,
) {
    set_dependent_defaults(config, from);
    let mut check = CrossFieldCheck { config, from, problems, notes };
    check.rules();
    check.listeners();
    check.tls("grpc.tls", &check.config.grpc.tls);
    check.tls("http.tls", &check.config.http.tls);
    check.tls("gateway.tls", &check.config.gateway.tls);
    check.tls("forward.tls", &check.config.forward.tls);
    check.gateway();
    check.forward();
    check.debug();
    check.redis();
    check.headers();
    check.floods();
}

fn set_dependent_defaults(config: &mut Config, from: &Provenances) {
    let is_default = |path: &str| from.get(path).is_none_or(|from| from.location.is_none());
    // The default paths are not read if there is a runtime directory.
    if is_default("rules.paths") && config.rules.runtime.root.is_some() {
        config.rules.paths.clear();
    }
    if is_default("traces.endpoint") && config.traces.protocol == TraceProtocol::Http {
        let endpoint = &mut config.traces.endpoint;
        endpoint.set_text(HTTP_TRACES, &Bounds::NONE).expect("the default is valid");
    }
}

impl CrossFieldCheck<'_, '_> {
    /// Where a field is set.
    fn location(&self, path: &str) -> Option<Location> {
        self.from.get(path)?.location
    }

    fn item_location(&self, path: &str, item: usize) -> Option<Location> {
        self.from.get(path)?.locations.get(item).copied().or(self.location(path))
    }

    /// Reports an error at the first of these fields that is set.
    fn error(&mut self, paths: &[&str], fault: Fault) {
        let location = paths.iter().find_map(|path| self.location(path));
        self.problems.error(location.unwrap_or_default(), fault);
    }

    /// Reports two fields that must not both be set.
    fn exclude(&mut self, first: &str, second: &str) {
        let message = format!("`{first}` and `{second}` exclude each other");
        let fault = Fault::new("exclusive", message).hint("remove one of the two");
        self.error(&[second, first], fault);
    }

    /// Whether every value given for these fields was valid: otherwise further errors would only be consequences.
    fn are_sound(&self, paths: &[&str]) -> bool {
        paths.iter().all(|path| self.from.get(*path).is_none_or(|from| from.is_sound))
    }

    /// Whether a field is set by a variable of envoyproxy/ratelimit.
    fn is_from_upstream(&self, path: &str) -> bool {
        let origin = self.from.get(path).map(|from| &from.origin);
        matches!(origin, Some(Origin::Variable(name)) if compat::is_known(name))
    }

    fn rules(&mut self) {
        let rules = &self.config.rules;
        if !self.are_sound(&["rules.paths", "rules.runtime.root"]) {
            return;
        }
        let is_ours = |path| self.location(path).is_some() && !self.is_from_upstream(path);
        let both = is_ours("rules.paths") && is_ours("rules.runtime.root");
        if both && rules.runtime.root.is_some() && !rules.paths.is_empty() {
            let message = "`rules.runtime` and `rules.paths` exclude each other";
            let paths = self.location("rules.paths").unwrap_or_default();
            let fault = Fault::new("exclusive", message)
                .related(paths, "the paths are here")
                .hint("remove one of the two");
            self.error(&["rules.runtime.root"], fault);
        }
        if rules.runtime.root.is_none() && rules.paths.is_empty() {
            let fault = Fault::new("no_rules", "there is no place to read rules from")
                .hint("give `rules.paths` a file or a directory");
            self.error(&["rules.paths"], fault);
        }
    }

    fn listeners(&mut self) {
        let config = self.config;
        // Without its document the gateway does not listen.
        let has_gateway = config.gateway.file.is_some();
        let gateway: &[Address] = if has_gateway { &config.gateway.listen } else { &[] };
        let forward = &config.forward;
        let has_forward = forward.file.is_some();
        let (api, worker): (&[Address], &[Address]) =
            if has_forward { (&forward.listen, &forward.worker_listen) } else { (&[], &[]) };
        let doors: [(&str, &[Address]); 7] = [
            ("grpc.listen", &config.grpc.listen),
            ("http.listen", &config.http.listen),
            ("gateway.listen", gateway),
            ("debug.listen", &config.debug.listen),
            ("debug.metrics_listen", &config.debug.metrics_listen),
            ("forward.listen", api),
            ("forward.worker_listen", worker),
        ];
        if !self.are_sound(&doors.map(|(path, _)| path)) {
            return;
        }
        if config.grpc.listen.is_empty() && config.http.listen.is_empty() && gateway.is_empty() {
            let message = "neither `grpc.listen` nor `http.listen` has an address";
            let fault = Fault::new("nothing_to_serve", message).hint("give one of them an address");
            self.error(&["http.listen", "grpc.listen"], fault);
        }
        let all: Vec<(&str, usize, &Address)> = doors
            .iter()
            .flat_map(|(path, list)| list.iter().enumerate().map(move |(at, one)| (*path, at, one)))
            .collect();
        for (at, (path, item, address)) in all.iter().enumerate() {
            let mut before = all.iter().take(at);
            let first = before.find(|(_, _, other)| address.collides(other));
            let Some((other_path, other_item, other)) = first else { continue };
            let message = format!("`{path}`: {address} is taken by {other} of `{other_path}`");
            let mut fault = Fault::new("duplicate_listener", message)
                .hint("give every listener an address and port of its own");
            let (location, first) =
                (self.item_location(path, *item), self.item_location(other_path, *other_item));
            if let (Some(_), Some(first)) = (location, first) {
                fault = fault.related(first, "taken here");
            }
            self.problems.error(location.or(first).unwrap_or_default(), fault);
        }
    }

    fn tls(&mut self, section: &str, tls: &Tls) {
        let path = |name: &str| format!("{section}.{name}");
        let fields = ["cert", "key", "client_ca", "client_san"].map(path);
        if !self.are_sound(&fields.each_ref().map(String::as_str)) {
            return;
        }
        let (cert, key) = (("cert", tls.cert.is_some()), ("key", tls.key.is_some()));
        let client_ca = ("client_ca", tls.client_ca.is_some());
        let client_san = ("client_san", tls.client_san.is_some());
        let pairs = [(cert, key), (key, cert), (client_ca, cert), (client_san, client_ca)];
        for ((name, is_set), (other, other_is_set)) in pairs {
            if is_set && !other_is_set {
                let message = format!("`{section}` has `{name}` but no `{other}`");
                let hint = format!("give `{}` too, or remove `{}`", path(other), path(name));
                self.error(&[&path(name)], Fault::new("incomplete_tls", message).hint(hint));
            }
        }
    }

    fn gateway(&mut self) {
        let config = self.config;
        let fields = ["gateway.file", "gateway.listen", "overload.capacity", "switches.file"];
        if !self.are_sound(&fields) {
            return;
        }
        if config.gateway.file.is_some() && config.gateway.listen.is_empty() {
            let fault = Fault::new("nothing_to_serve", "the gateway has no address to listen on")
                .hint("give `gateway.listen` an address, or remove `gateway.file`");
            self.error(&["gateway.listen", "gateway.file"], fault);
        }
        if config.gateway.file.is_none() && config.overload.capacity.is_some() {
            let message = "`overload.capacity` has no effect: there is no gateway to protect";
            let fault = Fault::new("no_effect", message).hint("set `gateway.file`");
            self.problems.warn(self.location("overload.capacity").unwrap_or_default(), fault);
        }
        let fleet = &config.overload.fleet;
        if fleet.beat.saturating_mul(2) > fleet.lease {
            let message = "a grant of the fleet ends before it can be renewed twice";
            let fault = Fault::new("exclusive", message)
                .hint("set `overload.fleet.lease` to at least twice `overload.fleet.beat`");
            self.error(&["overload.fleet.beat", "overload.fleet.lease"], fault);
        }
    }

    fn forward(&mut self) {
        let forward = &self.config.forward;
        let fields = ["forward.file", "forward.listen", "forward.worker_listen", "forward.tokens"];
        if !self.are_sound(&fields) || !self.are_sound(&["forward.queue", "forward.leases"]) {
            return;
        }
        if forward.file.is_some() && !forward.is_local() && forward.tokens.is_empty() {
            let message = "other machines can connect to the forwarder without a token, and have it send requests";
            let fault = Fault::new("open_forwarder", message)
                .hint("listen on 127.0.0.1, or set `forward.tokens`");
            self.error(&["forward.listen", "forward.worker_listen", "forward.file"], fault);
        }
        let is_shared = forward.queue.as_ref().is_some_and(QueueUrl::is_shared);
        let in_memory = forward.leases.as_ref().is_some_and(|url| url.reveal() == "memory:");
        if is_shared && in_memory {
            let message =
                "processes share the queue, and each would use the whole capacity of a target";
            let fault = Fault::new("unshared_leases", message)
                .hint("remove `forward.leases`, or name a store that the processes share");
            self.error(&["forward.leases", "forward.queue"], fault);
        }
    }

    fn debug(&mut self) {
        let debug = &self.config.debug;
        let tokens = ["debug.token", "debug.token_file", "debug.tokens"];
        if !self.are_sound(&["debug.listen", "debug.switches"]) || !self.are_sound(&tokens) {
            return;
        }
        if debug.token.is_some() && debug.token_file.is_some() {
            self.exclude("debug.token", "debug.token_file");
        }
        if debug.has_token() || debug.is_local() || debug.switches == SwitchAccess::Off {
            return;
        }
        if self.is_from_upstream("debug.listen") && debug.switches == SwitchAccess::Auto {
            let message = "DEBUG_HOST opens the debug port to other machines, and there is no \
                           token: its pages are served, its switches are off; set \
                           TIDEGATE_DEBUG_TOKEN to enable them";
            self.notes.push(Note { weight: Weight::Note, message: message.to_owned() });
            return;
        }
        let message = "`debug.listen`: other machines can connect to this address without a token";
        let hint = "listen on 127.0.0.1, or set `debug.token_file` or TIDEGATE_DEBUG_TOKEN, or \
                    turn switches off with `debug.switches: off`";
        let open = debug.listen.iter().position(|address| !address.is_local()).unwrap_or(0);
        let location = self.item_location("debug.listen", open);
        let location = location.or_else(|| self.location("debug.switches")).unwrap_or_default();
        self.problems.error(location, Fault::new("open_debug", message).hint(hint));
    }

    fn redis(&mut self) {
        let redis = &self.config.store.redis;
        if !self.are_sound(&["store.redis.url", "store.redis.layout", "store.redis.regions"]) {
            return;
        }
        let Some(url) = &redis.url else { return };
        if redis.password.is_some() && redis.password_file.is_some() {
            self.exclude("store.redis.password", "store.redis.password_file");
        }
        let tls = &redis.tls;
        let has_tls = tls.ca.is_some() || tls.cert.is_some() || !tls.verify_name;
        if has_tls && !url.reveal().starts_with("rediss") {
            let message = "`store.redis.tls` is set, but the URL has no TLS";
            let fault = Fault::new("incomplete_tls", message).hint("write `rediss://` in the URL");
            self.error(&["store.redis.tls.ca", "store.redis.url"], fault);
        }
        if redis.layout == KeyLayout::EnvoyRatelimit && !redis.regions.is_empty() {
            let message = "the layout of envoyproxy/ratelimit has no regions";
            let fault = Fault::new("exclusive", message)
                .hint("remove `store.redis.regions`, or set `store.redis.layout: tidegate`");
            self.error(&["store.redis.regions", "store.redis.layout"], fault);
        }
    }

    fn floods(&mut self) {
        let (floods, connection) = (&self.config.floods, self.config.switches.connection.0);
        if !self.are_sound(&["floods.list", "floods.socket", "switches.connection"]) {
            return;
        }
        if matches!(floods.list.0, Mode::Enforce(percent) if percent < Percent::ALL) {
            let message = "`floods.list` cannot be enforced for a percentage of networks";
            let fault = Fault::new("exclusive", message).hint("write `shadow` or `enforce`");
            self.error(&["floods.list"], fault);
        }
        if matches!(floods.list.0, Mode::Enforce(_)) && floods.socket.is_none() {
            let message = "`floods.list` is enforced, and there is no socket for `tidegate guard`";
            let fault = Fault::new("no_effect", message).hint("set `floods.socket`");
            self.error(&["floods.socket", "floods.list"], fault);
        }
        let refuses = matches!(connection, Mode::Enforce(_)) || self.config.gateway.file.is_some();
        if floods.list.0 != Mode::Off && !refuses {
            let message = "`floods.list` stays empty: only refused connections and requests count";
            let fault = Fault::new("no_effect", message).hint("set `switches.connection: enforce`");
            self.problems.warn(self.location("floods.list").unwrap_or_default(), fault);
        }
    }

    fn headers(&mut self) {
        let headers = &self.config.limiter.response_headers;
        let names = [
            ("limiter.response_headers.limit", &headers.limit),
            ("limiter.response_headers.remaining", &headers.remaining),
            ("limiter.response_headers.reset", &headers.reset),
        ];
        for (at, (path, header)) in names.iter().enumerate() {
            let mut before = names.iter().take(at);
            let same =
                before.find(|(_, other)| other.as_str().eq_ignore_ascii_case(header.as_str()));
            if let Some((other, _)) = same {
                let message = format!("`{path}` and `{other}` name the same header field");
                let fault = Fault::new("duplicate_header", message).hint("give each its own");
                self.error(&[path, other], fault);
            }
        }
    }
}
