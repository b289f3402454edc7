//! Variables whose effect depends on other variables, or that decide whether the service can start.

mod statistics;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Environment;
use super::GoKind;
use super::go::invalid;
use crate::config::layers::NamedText;
use tidegate_document::Fault;

pub(super) use statistics::is_mogrifier;

/// Upstream's default of REDIS_TIMEOUT.
const REDIS_TIMEOUT: &str = "10s";

/// Upstream waits without end if its timeout is zero; here this is the maximum.
const TIMEOUT_MAX: &str = "1h";

/// Upstream's default address.
const EVERYWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The default address of our debug port.
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(super) fn read(environment: &mut Environment<'_, '_, '_>) {
    environment.listener("http.listen", "HOST", "PORT", (EVERYWHERE, 8080));
    environment.grpc_listener();
    environment.listener("debug.listen", "DEBUG_HOST", "DEBUG_PORT", (LOCALHOST, 6070));
    environment.debug();
    environment.tls();
    environment.source();
    environment.store();
    statistics::read(environment);
    environment.traces();
}

impl<'s> Environment<'_, 's, '_> {
    /// A host and a port become one address.
    fn listener(&mut self, path: &str, host: &str, port: &str, default: (IpAddr, u16)) {
        let (host, port) = (self.get(host), self.get(port));
        let Some(from) = port.or(host) else { return };
        let address = host.map_or(Ok(default.0), |host| ip(host.text));
        let number = port.map_or(Ok(default.1), |port| port_number(port.text));
        // The host decides who can connect, so it is the origin if it is set.
        let named = host.unwrap_or(from);
        match (address, number) {
            (Ok(address), Ok(number)) => {
                self.set(path, SocketAddr::new(address, number).to_string(), &named);
            }
            (address, number) => {
                if let (Err(fault), Some(host)) = (address, host) {
                    self.refuse(&host, fault);
                }
                // A port that is not a number is reported already.
                if let (Err(Some(fault)), Some(port)) = (number, port) {
                    self.refuse(&port, fault);
                }
            }
        }
    }

    /// By default, upstream's debug port is open to other machines.
    fn debug(&mut self) {
        if self.get("DEBUG_HOST").is_none() && !self.ours.contains(&"debug.listen") {
            let message = "only this machine can connect to the debug port, unlike upstream's; set \
                           DEBUG_HOST to 0.0.0.0 to open it";
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
        let given: Vec<(NamedText<'s>, &str)> =
            files.into_iter().filter_map(|(name, path)| Some((self.get(name)?, path))).collect();
        let Some(switch) = self.enabled("GRPC_SERVER_USE_TLS") else {
            let files: Vec<NamedText<'s>> = given.iter().map(|(file, _)| *file).collect();
            return self.note_no_effect(&files, "GRPC_SERVER_USE_TLS");
        };
        for needed in ["GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY"] {
            if self.get(needed).is_none() {
                let message = format!("TLS is on, but {needed} is not set");
                let fault = Fault::new("incomplete_tls", message).hint("set it to a path");
                self.refuse(&switch, fault);
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
                other => {
                    Some(invalid("unknown_choice", other, "a source of rules", "it can be `FILE`"))
                }
            };
            if let Some(wrong) = wrong {
                self.refuse(&kind, wrong);
            }
        }
        if let Some(forced) = self.enabled("FORCE_START_WITHOUT_INITIAL_CONFIG") {
            self.set("rules.required", "false".to_owned(), &forced);
        }
    }

    fn store(&mut self) {
        let Some(backend) = self.get("BACKEND_TYPE") else { return self.redis() };
        match backend.text {
            "redis" => self.redis(),
            "memcache" => {
                let fault = Fault::new("unsupported", "counters in Memcached are not supported")
                    .hint(
                        "set BACKEND_TYPE=redis and REDIS_URL, to share limits through Redis or \
                         Valkey; unset BACKEND_TYPE and REDIS_URL to count in the memory of one \
                         process",
                    );
                self.refuse(&backend, fault);
            }
            other => {
                let hint = "it can be `redis`";
                let fault = invalid("unknown_choice", other, "a store of counters", hint);
                self.refuse(&backend, fault);
            }
        }
    }

    /// Upstream's timeout applies to connecting and to calls.
    fn redis_timeout(&mut self) {
        let text = self.get("REDIS_TIMEOUT");
        let timeout = text.map_or(REDIS_TIMEOUT, |text| text.text);
        // A value that is not a duration is reported already.
        let Ok(timeout) = GoKind::Age.translate(timeout) else { return };
        let timeout = if timeout == "off" { TIMEOUT_MAX.to_owned() } else { timeout };
        for path in ["store.redis.deadline", "store.redis.connect_timeout"] {
            match &text {
                Some(text) => self.set(path, timeout.clone(), text),
                None => self.default(path, timeout.clone()),
            }
        }
    }

    fn redis(&mut self) {
        self.redis_timeout();
        self.redis_url("REDIS", "store.redis.url");
        self.login("REDIS_AUTH", "store.redis.user", "store.redis.password");
        let sentinel = ("store.redis.sentinel.user", "store.redis.sentinel.password");
        self.login("REDIS_SENTINEL_AUTH", sentinel.0, sentinel.1);
        if let Some(jitter) = self.get("EXPIRATION_JITTER_MAX_SECONDS") {
            let text = format!("{}s", jitter.text);
            self.set("store.redis.upstream.expiration_jitter", text, &jitter);
        }
        if self.enabled("REDIS_PERSECOND").is_some() {
            self.redis_url("REDIS_PERSECOND", "store.redis.upstream.per_second_url");
            let login = "store.redis.upstream.per_second";
            let (user, password) = (format!("{login}_user"), format!("{login}_password"));
            self.login("REDIS_PERSECOND_AUTH", &user, &password);
        }
    }

    /// Upstream has several variables for one Redis; here it is one URL.
    fn redis_url(&mut self, group: &str, path: &str) {
        let get = |name: &str| self.get(&format!("{group}_{name}"));
        let Some(servers) = get("URL") else { return };
        let has_tls = self.enabled(&format!("{group}_TLS")).is_some();
        let scheme = if has_tls { "rediss" } else { "redis" };
        let kind = get("TYPE").map_or("SINGLE", |kind| kind.text);
        let url = match kind.to_ascii_uppercase().as_str() {
            "SINGLE" if get("SOCKET_TYPE").is_none_or(|socket| socket.text != "tcp") => {
                Ok(format!("redis+unix://{}", servers.text))
            }
            "SINGLE" => Ok(format!("{scheme}://{}", servers.text)),
            "CLUSTER" => Ok(format!("{scheme}-cluster://{}", servers.text)),
            "SENTINEL" => match servers.text.split_once(',') {
                Some((master, sentinels)) => {
                    Ok(format!("{scheme}-sentinel://{sentinels}/{master}"))
                }
                None => Err(Fault::new("invalid_url", "sentinels are missing after the master")
                    .hint("write `MASTER,HOST:PORT,HOST:PORT`")),
            },
            other => {
                let hint = "it can be `SINGLE`, `SENTINEL` or `CLUSTER`";
                Err(invalid("unknown_choice", other, "a kind of Redis", hint))
            }
        };
        match url {
            Ok(url) => self.set(path, url, &servers),
            Err(wrong) => self.refuse(&get("TYPE").unwrap_or(servers), wrong),
        }
    }

    /// The endpoint of one signal is used as it is; the endpoint of all signals is a base URL.
    fn traces(&mut self) {
        let signal = self.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        if let Some(endpoint) = signal {
            return self.set("traces.endpoint", endpoint.text.to_owned(), &endpoint);
        }
        let Some(base) = self.get("OTEL_EXPORTER_OTLP_ENDPOINT") else { return };
        let protocol = self.get("TRACING_EXPORTER_PROTOCOL");
        let is_grpc = protocol.is_some_and(|protocol| protocol.text.eq_ignore_ascii_case("grpc"));
        let text = match is_grpc {
            true => base.text.to_owned(),
            false => format!("{}/v1/traces", base.text.trim_end_matches('/')),
        };
        self.set("traces.endpoint", text, &base);
    }

    /// `PASSWORD`, or `USER:PASSWORD`.
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
}

fn ip(text: &str) -> Result<IpAddr, Fault> {
    if text.eq_ignore_ascii_case("localhost") {
        return Ok(LOCALHOST);
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let hint = "names are not looked up: write an IP address, or `0.0.0.0` for all";
    bare.parse().map_err(|_| invalid("invalid_address", text, "an IP address", hint))
}

/// The error is `None` if the text is not a number, which is reported elsewhere.
fn port_number(text: &str) -> Result<u16, Option<Fault>> {
    let number: i64 = text.parse().map_err(|_| None)?;
    u16::try_from(number).map_err(|_| {
        let wrong = Fault::new("out_of_range", format!("{number} is not a port"));
        Some(wrong.hint("a port is a number from 0 to 65535"))
    })
}
