//! Variables that mean something only together, or that decide whether we can
//! serve at all.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Environment;
use crate::config::layers::VariableText;
use tidegate_document::Fault;

/// Where upstream listens when it is not told where.
const EVERYWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Where our debug port is when nobody says where.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(super) fn read(environment: &mut Environment<'_, '_, '_>) {
    environment.listener("http.listen", "HOST", "PORT", (EVERYWHERE, 8080));
    environment.grpc_listener();
    environment.listener("debug.listen", "DEBUG_HOST", "DEBUG_PORT", (HERE, 6070));
    environment.debug();
    environment.tls();
    environment.source();
    environment.store();
    environment.prometheus();
}

impl<'s> Environment<'_, 's, '_> {
    /// A host and a port become one address.
    fn listener(&mut self, path: &str, host: &str, port: &str, default: (IpAddr, u16)) {
        let (host, port) = (self.get(host), self.get(port));
        let Some(from) = port.or(host) else { return };
        let address = host.map_or(Ok(default.0), |host| ip(host.text));
        let number = port.map_or(Ok(default.1), |port| port_number(port.text));
        // The field names the host where that was given: it decides who can reach it.
        let named = host.unwrap_or(from);
        match (address, number) {
            (Ok(address), Ok(number)) => {
                self.set(path, SocketAddr::new(address, number).to_string(), &named);
            }
            (address, number) => {
                if let (Err(fault), Some(host)) = (address, host) {
                    self.refuse(&host, fault);
                }
                // What is no number at all is told already.
                if let (Err(Some(fault)), Some(port)) = (number, port) {
                    self.refuse(&port, fault);
                }
            }
        }
    }

    /// Upstream lets everyone reach its debug port by default.
    fn debug(&mut self) {
        if self.get("DEBUG_HOST").is_none() && !self.ours.contains(&"debug.listen") {
            let message = "only this machine can reach the debug port, unlike upstream's; set \
                           DEBUG_HOST to 0.0.0.0 to let others";
            self.note(message.to_owned());
        }
    }

    fn grpc_listener(&mut self) {
        match self.get("GRPC_UDS") {
            Some(socket) => self.set("grpc.listen", format!("unix:{}", socket.text), &socket),
            None => self.listener("grpc.listen", "GRPC_HOST", "GRPC_PORT", (EVERYWHERE, 8081)),
        }
    }

    fn tls(&mut self) {
        let files = [
            ("GRPC_SERVER_TLS_CERT", "grpc.tls.cert"),
            ("GRPC_SERVER_TLS_KEY", "grpc.tls.key"),
            ("GRPC_CLIENT_TLS_CACERT", "grpc.tls.client_ca"),
            ("GRPC_CLIENT_TLS_SAN", "grpc.tls.client_san"),
        ];
        let given: Vec<(VariableText<'s>, &str)> =
            files.into_iter().filter_map(|(name, path)| Some((self.get(name)?, path))).collect();
        if self.flag("GRPC_SERVER_USE_TLS") != Some(true) {
            for (variable, _) in given {
                let name = variable.name;
                self.note(format!("{name} has no effect: GRPC_SERVER_USE_TLS is not true"));
            }
            return;
        }
        for needed in ["GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY"] {
            if let (None, Some(switch)) = (self.get(needed), self.get("GRPC_SERVER_USE_TLS")) {
                let message = format!("TLS is on, but {needed} is not set");
                self.refuse(
                    &switch,
                    Fault::new("incomplete_tls", message).hint("set it to a path"),
                );
            }
        }
        for (variable, path) in given {
            self.set(path, variable.text.to_owned(), &variable);
        }
    }

    fn source(&mut self) {
        if let Some(kind) = self.get("CONFIG_TYPE") {
            let wrong = match kind.text {
                "FILE" => None,
                "GRPC_XDS_SOTW" => {
                    Some(Fault::new("unsupported", "rules over xDS are not supported").hint(
                        "write the rules to files: set CONFIG_TYPE=FILE and RUNTIME_ROOT, or \
                         `rules.paths`",
                    ))
                }
                other => Some(
                    Fault::new("unknown_choice", format!("`{other}` is no source of rules"))
                        .hint("it can be `FILE`"),
                ),
            };
            if let Some(wrong) = wrong {
                self.refuse(&kind, wrong);
            }
        }
        if let (Some(true), Some(forced)) = (
            self.flag("FORCE_START_WITHOUT_INITIAL_CONFIG"),
            self.get("FORCE_START_WITHOUT_INITIAL_CONFIG"),
        ) {
            self.set("rules.required", "false".to_owned(), &forced);
        }
    }

    fn store(&mut self) {
        const ALONE: &str =
            "counters are kept in this process, and every process limits for itself";
        if self.get("BACKEND_TYPE").is_none_or(|backend| backend.text == "redis") {
            self.redis();
        }
        let Some(backend) = self.get("BACKEND_TYPE") else { return };
        match backend.text {
            "redis" => {}
            "memcache" => {
                let message =
                    format!("BACKEND_TYPE is memcache, but this version has none: {ALONE}");
                self.warn(message);
            }
            other => {
                let wrong =
                    Fault::new("unknown_choice", format!("`{other}` is no store of counters"))
                        .hint("it can be `redis` or `memcache`");
                self.refuse(&backend, wrong);
            }
        }
    }

    fn redis(&mut self) {
        self.redis_url("REDIS", "store.redis.url");
        self.login("REDIS_AUTH", "store.redis.user", "store.redis.password");
        let sentinel = ("store.redis.sentinel.user", "store.redis.sentinel.password");
        self.login("REDIS_SENTINEL_AUTH", sentinel.0, sentinel.1);
        if let Some(jitter) = self.get("EXPIRATION_JITTER_MAX_SECONDS") {
            let text = format!("{}s", jitter.text);
            self.set("store.redis.upstream.expiration_jitter", text, &jitter);
        }
        if self.flag("REDIS_PERSECOND") != Some(true) {
            return;
        }
        const PER_SECOND: [&str; 3] = [
            "store.redis.upstream.per_second_url",
            "store.redis.upstream.per_second_user",
            "store.redis.upstream.per_second_password",
        ];
        self.redis_url("REDIS_PERSECOND", PER_SECOND[0]);
        self.login("REDIS_PERSECOND_AUTH", PER_SECOND[1], PER_SECOND[2]);
    }

    /// Upstream names a Redis by several variables; here it is one URL.
    fn redis_url(&mut self, group: &str, path: &str) {
        let get = |name: &str| self.get(&format!("{group}_{name}"));
        let Some(place) = get("URL") else { return };
        let scheme =
            if self.flag(&format!("{group}_TLS")) == Some(true) { "rediss" } else { "redis" };
        let kind = get("TYPE").map_or("SINGLE", |kind| kind.text);
        let url = match kind.to_ascii_uppercase().as_str() {
            "SINGLE" if get("SOCKET_TYPE").is_none_or(|socket| socket.text != "tcp") => {
                Ok(format!("redis+unix://{}", place.text))
            }
            "SINGLE" => Ok(format!("{scheme}://{}", place.text)),
            "CLUSTER" => Ok(format!("{scheme}-cluster://{}", place.text)),
            "SENTINEL" => match place.text.split_once(',') {
                Some((master, sentinels)) => {
                    Ok(format!("{scheme}-sentinel://{sentinels}/{master}"))
                }
                None => Err(Fault::new("invalid_url", "sentinels are missing after the master")
                    .hint("write `MASTER,HOST:PORT,HOST:PORT`")),
            },
            other => Err(Fault::new("unknown_choice", format!("`{other}` is no kind of Redis"))
                .hint("it can be `SINGLE`, `SENTINEL` or `CLUSTER`")),
        };
        match url {
            Ok(url) => self.set(path, url, &place),
            Err(wrong) => self.refuse(&get("TYPE").unwrap_or(place), wrong),
        }
    }

    /// A password, with a user and a colon before it if there is one.
    fn login(&mut self, name: &str, user: &str, password: &str) {
        let Some(given) = self.get(name) else { return };
        match given.text.split_once(':') {
            Some((name, secret)) => {
                self.set(user, name.to_owned(), &given);
                self.set(password, secret.to_owned(), &given);
            }
            None => self.set(password, given.text.to_owned(), &given),
        }
    }

    fn prometheus(&mut self) {
        let (address, path) = (self.get("PROMETHEUS_ADDR"), self.get("PROMETHEUS_PATH"));
        let switch =
            self.get("USE_PROMETHEUS").filter(|_| self.flag("USE_PROMETHEUS") == Some(true));
        let Some(switch) = switch else {
            for variable in [address, path].into_iter().flatten() {
                let name = variable.name;
                self.note(format!("{name} has no effect: USE_PROMETHEUS is not true"));
            }
            return;
        };
        let text = address.map_or(":9090", |address| address.text);
        let from = address.unwrap_or(switch);
        // Go listens everywhere when there is nothing before the colon.
        let text = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
        self.set("debug.metrics_listen", text, &from);
        if let Some(path) = path {
            self.set("debug.metrics_path", path.text.to_owned(), &path);
        }
    }
}

fn ip(text: &str) -> Result<IpAddr, Fault> {
    if text.eq_ignore_ascii_case("localhost") {
        return Ok(HERE);
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().map_err(|_| {
        Fault::new("invalid_address", format!("`{text}` is no IP address"))
            .hint("names are not looked up: write an IP address, or `0.0.0.0` for everyone")
    })
}

/// None in the error when the text is no number, which is told elsewhere.
fn port_number(text: &str) -> Result<u16, Option<Fault>> {
    let number: i64 = text.parse().map_err(|_| None)?;
    u16::try_from(number).map_err(|_| {
        let wrong = Fault::new("out_of_range", format!("{number} is no port"));
        Some(wrong.hint("a port is a number from 0 to 65535"))
    })
}
