//! The proxies under test and their settings, which make all do the same work.
//!
//! One worker, limits for each client address that no run reaches, persistent connections to
//! the upstream, no log, and the `X-Forwarded-*` headers that our gateway sends.

use std::env;
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::peer;
use crate::processor::Pins;
use crate::server::{Door, Server};
use crate::tables::Tools;
use crate::tables::service::beside;

/// A proxy under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProxyName {
    Tidegate,
    /// The same, with rate limit headers on refusals only.
    Silent,
    /// The same without limiters.
    Unlimited,
    /// A second process of the same, to measure noise.
    UnlimitedToo,
    Nginx,
    Haproxy,
    Envoy,
}

/// The server behind the proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpstreamKind {
    /// Our own server with a prepared answer: it takes the least CPU.
    Canned,
    /// An nginx that serves a file of 1 KiB.
    Nginx,
}

impl fmt::Display for ProxyName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            ProxyName::Tidegate => "all limiters",
            ProxyName::Silent => "all limiters, fields on refusals only",
            ProxyName::Unlimited => "no limiters",
            ProxyName::UnlimitedToo => "no limiters, too",
            ProxyName::Nginx => "nginx",
            ProxyName::Haproxy => "HAProxy",
            ProxyName::Envoy => "Envoy",
        })
    }
}

/// The upstream and all proxies, running.
pub(super) struct Proxies {
    upstream: Server,
    servers: Vec<(ProxyName, Server)>,
    missing: Vec<anyhow::Error>,
    /// Configuration files, removed with this value.
    _folder: TempDir,
}

impl Proxies {
    /// Starts the upstream and all proxies.
    ///
    /// # Errors
    /// When the upstream or a gateway of ours does not start; other proxies may be missing.
    pub(super) fn start(kind: UpstreamKind, tools: &Tools, pins: &Pins) -> anyhow::Result<Self> {
        let program = peer_program()?;
        let folder = TempDir::new().context("cannot create a folder for settings")?;
        let upstream = pins.on_generator(|| match kind {
            UpstreamKind::Canned => {
                let mut command = Command::new(&program);
                command.arg(peer::PeerName::Upstream.to_string());
                Server::start(command, &[Door::Http])
            }
            UpstreamKind::Nginx => nginx_upstream(&tools.nginx, folder.path()),
        })?;
        let at = upstream.door(Door::Http)?;
        let mut missing = Vec::new();
        let servers = pins.on_server(|| {
            let ours = |(who, limiters)| {
                let command = gateway(&program, at, &["--limiters", limiters]);
                anyhow::Ok((who, Server::start(command, &[Door::Http])?))
            };
            let ours = [
                (ProxyName::Tidegate, "all"),
                (ProxyName::Silent, "silent"),
                (ProxyName::Unlimited, "none"),
            ]
            .map(ours);
            let mut servers = ours.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
            let nginx = nginx(&tools.nginx, at, folder.path());
            let haproxy = haproxy(&tools.haproxy, at, folder.path());
            let envoy = envoy(&tools.envoy, at, folder.path());
            let others = [
                (ProxyName::Nginx, nginx),
                (ProxyName::Haproxy, haproxy),
                (ProxyName::Envoy, envoy),
            ];
            for (who, server) in others {
                match server {
                    Ok(server) => servers.push((who, server)),
                    Err(error) => missing.push(error.context(format!("{who} did not start"))),
                }
            }
            Ok(servers)
        })?;
        Ok(Proxies { upstream, servers, missing, _folder: folder })
    }

    pub(super) fn servers(&self) -> Vec<(ProxyName, &Server)> {
        self.servers.iter().map(|(who, server)| (*who, server)).collect()
    }

    /// The upstream's process.
    pub(super) fn upstream(&self) -> u32 {
        self.upstream.process()
    }

    pub(super) fn missing(&self) -> &[anyhow::Error] {
        &self.missing
    }
}

/// The program `tidegate-bench-peer`.
pub(in crate::tables) fn peer_program() -> anyhow::Result<PathBuf> {
    beside(&env::current_exe().context("cannot find this program")?, "tidegate-bench-peer")
}

/// A gateway of ours.
pub(in crate::tables) fn gateway(
    program: &Path,
    upstream: SocketAddr,
    arguments: &[&str],
) -> Command {
    let mut command = Command::new(program);
    command.arg(peer::PeerName::Gateway.to_string());
    command.args(["--upstream", &upstream.to_string()]).args(arguments);
    command
}

fn nginx(program: &Path, upstream: SocketAddr, folder: &Path) -> anyhow::Result<Server> {
    start_nginx(program, &folder.join("proxy"), |address| nginx_proxy(address, upstream))
}

/// An nginx that answers every request with a file of 1 KiB.
fn nginx_upstream(program: &Path, folder: &Path) -> anyhow::Result<Server> {
    let folder = folder.join("upstream");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("page.txt"), [b'x'; peer::PAGE_BYTES])?;
    let root = folder.display().to_string();
    start_nginx(program, &folder, |address| {
        format!(
            "    sendfile on;
    server {{
        listen {address};
        root {root};
        location / {{ try_files /page.txt =404; }}
    }}
"
        )
    })
}

/// Starts an nginx with these settings for its `http` block, in one process: then the CPU time
/// of the process is all that it takes.
fn start_nginx(
    program: &Path,
    folder: &Path,
    http_settings: impl FnOnce(SocketAddr) -> String,
) -> anyhow::Result<Server> {
    fs::create_dir_all(folder)?;
    Server::start_at(Command::new(on_path(program)), Door::Http, |address| {
        let file = folder.join("nginx.conf");
        fs::write(&file, nginx_settings(folder, &http_settings(address)))?;
        let [folder, file] = [folder, &file].map(|path| path.display().to_string());
        Ok(["-p", &folder, "-c", &file, "-e", "stderr"].map(str::to_owned).into())
    })
}

/// `/usr/sbin`, where distributions install daemons, is not on every path.
fn on_path(program: &Path) -> PathBuf {
    let installed = Path::new("/usr/sbin").join(program);
    if installed.is_file() { installed } else { program.to_owned() }
}

fn nginx_settings(folder: &Path, http_settings: &str) -> String {
    let folder = folder.display();
    format!(
        "daemon off;
master_process off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000000;
{http_settings}}}
"
    )
}

fn nginx_proxy(address: SocketAddr, upstream: SocketAddr) -> String {
    format!(
        "    limit_req_zone $binary_remote_addr zone=rate:10m rate=1000000r/s;
    limit_conn_zone $binary_remote_addr zone=in_flight:10m;
    upstream api {{
        server {upstream};
        keepalive 128;
        keepalive_requests 1000000000;
    }}
    server {{
        listen {address};
        location / {{
            limit_req zone=rate burst=1000000 nodelay;
            limit_conn in_flight 60000;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $http_host;
            proxy_pass http://api;
        }}
    }}
"
    )
}

fn haproxy(program: &Path, upstream: SocketAddr, folder: &Path) -> anyhow::Result<Server> {
    Server::start_at(Command::new(on_path(program)), Door::Http, |address| {
        let file = folder.join("haproxy.cfg");
        fs::write(&file, haproxy_settings(address, upstream))?;
        // In the foreground and without a master process.
        Ok(["-db", "-f", &file.display().to_string()].map(str::to_owned).into())
    })
}

/// A stick table counts requests a second and connections of each client address. With one
/// request at a time on a connection, the connections are the requests in flight.
fn haproxy_settings(address: SocketAddr, upstream: SocketAddr) -> String {
    format!(
        "global
    nbthread 1
    maxconn 8192
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option http-keep-alive
    option forwardfor
    http-reuse always
frontend entry
    bind {address}
    stick-table type ip size 100k expire 60s store http_req_rate(1s),conn_cur
    http-request track-sc0 src
    http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt 1000000 }}
    http-request deny deny_status 429 if {{ sc_conn_cur(0) gt 60000 }}
    http-request set-header X-Forwarded-Proto http
    http-request set-header X-Forwarded-Host %[req.hdr(host)]
    default_backend api
backend api
    server one {upstream}
"
    )
}

fn envoy(program: &Path, upstream: SocketAddr, folder: &Path) -> anyhow::Result<Server> {
    ensure!(program.is_file(), "{} is missing", program.display());
    Server::start_at(Command::new(program), Door::Http, |address| {
        let file = folder.join("envoy.json");
        fs::write(&file, envoy_settings(address, upstream).to_string())?;
        let file = file.display().to_string();
        let arguments = ["-c", &file, "--concurrency", "1", "--disable-hot-restart", "-l", "error"];
        Ok(arguments.map(str::to_owned).into())
    })
}

fn envoy_settings(address: SocketAddr, upstream: SocketAddr) -> Value {
    const EXTENSIONS: &str = "type.googleapis.com/envoy.extensions.filters";
    let filters = json!([
        {
            "name": "envoy.filters.http.local_ratelimit",
            "typed_config": {
                "@type": format!("{EXTENSIONS}.http.local_ratelimit.v3.LocalRateLimit"),
                "stat_prefix": "rate",
                "token_bucket": {
                    "max_tokens": 1_000_000,
                    "tokens_per_fill": 1_000_000,
                    "fill_interval": "1s",
                },
                "filter_enabled": {"default_value": {"numerator": 100, "denominator": "HUNDRED"}},
                "filter_enforced": {"default_value": {"numerator": 100, "denominator": "HUNDRED"}},
            },
        },
        {
            "name": "envoy.filters.http.router",
            "typed_config": {"@type": format!("{EXTENSIONS}.http.router.v3.Router")},
        },
    ]);
    let manager = json!({
        "@type": format!("{EXTENSIONS}.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "entry",
        "use_remote_address": true,
        "http_filters": filters,
        "route_config": {"virtual_hosts": [{
            "name": "all",
            "domains": ["*"],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "api"}}],
        }]},
    });
    json!({"static_resources": {
        "listeners": [{
            "name": "entry",
            "address": socket(address),
            "filter_chains": [{"filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": manager,
            }]}],
        }],
        "clusters": [{
            "name": "api",
            "type": "STATIC",
            "load_assignment": {
                "cluster_name": "api",
                "endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket(upstream)}}]}],
            },
        }],
    }})
}

fn socket(address: SocketAddr) -> Value {
    json!({"socket_address": {
        "address": address.ip().to_string(),
        "port_value": address.port(),
    }})
}
