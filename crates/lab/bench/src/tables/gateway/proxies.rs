//! The proxies that are measured: how each is set up to do the same.
//!
//! One worker, limits for each client address that no run reaches, connections to the upstream
//! that stay open, no log, and the upstream is told of the client as ours is told.

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

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    Tidegate,
    /// The same, silent about limits unless they refuse.
    Silent,
    /// The same without limiters.
    Unlimited,
    /// Another like that.
    UnlimitedToo,
    Nginx,
    Envoy,
}

impl fmt::Display for Who {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Who::Tidegate => "all limiters",
            Who::Silent => "all limiters, fields on refusals only",
            Who::Unlimited => "no limiters",
            Who::UnlimitedToo => "no limiters, too",
            Who::Nginx => "nginx",
            Who::Envoy => "Envoy",
        })
    }
}

/// Everybody, running.
pub(super) struct Proxies {
    upstream: Server,
    servers: Vec<(Who, Server)>,
    missing: Vec<anyhow::Error>,
    /// Holds the files of others, and goes with them.
    _folder: TempDir,
}

impl Proxies {
    /// Starts everybody.
    ///
    /// # Errors
    /// When one of ours does not start; others may be missing.
    pub(super) fn start(tools: &Tools, pins: &Pins) -> anyhow::Result<Self> {
        let program = peer_program()?;
        let folder = TempDir::new().context("cannot make a folder for settings")?;
        let mut command = Command::new(&program);
        command.arg(peer::Name::Upstream.to_string());
        let upstream = pins.on_generator(|| Server::start(command, &[Door::Http]))?;
        let at = upstream.door(Door::Http)?;
        let mut missing = Vec::new();
        let servers = pins.on_server(|| {
            let ours = |(who, limiters)| {
                let command = gateway(&program, at, &["--limiters", limiters]);
                anyhow::Ok((who, Server::start(command, &[Door::Http])?))
            };
            let ours = [(Who::Tidegate, "all"), (Who::Silent, "silent"), (Who::Unlimited, "none")]
                .map(ours);
            let mut servers = ours.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
            let nginx = nginx(&tools.nginx, at, folder.path());
            let envoy = envoy(&tools.envoy, at, folder.path());
            for (who, server) in [(Who::Nginx, nginx), (Who::Envoy, envoy)] {
                match server {
                    Ok(server) => servers.push((who, server)),
                    Err(error) => missing.push(error.context(format!("{who} could not be had"))),
                }
            }
            Ok(servers)
        })?;
        Ok(Proxies { upstream, servers, missing, _folder: folder })
    }

    pub(super) fn servers(&self) -> Vec<(Who, &Server)> {
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

/// The program of our peers.
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
    command.arg(peer::Name::Gateway.to_string());
    command.args(["--upstream", &upstream.to_string()]).args(arguments);
    command
}

fn nginx(program: &Path, upstream: SocketAddr, folder: &Path) -> anyhow::Result<Server> {
    Server::start_at(Command::new(on_path(program)), Door::Http, |address| {
        let file = folder.join("nginx.conf");
        fs::write(&file, nginx_settings(address, upstream, folder))?;
        let [folder, file] = [folder, &file].map(|path| path.display().to_string());
        Ok(["-p", &folder, "-c", &file, "-e", "stderr"].map(str::to_owned).into())
    })
}

/// Daemons are not on the path of everybody.
fn on_path(program: &Path) -> PathBuf {
    let installed = Path::new("/usr/sbin").join(program);
    if installed.is_file() { installed } else { program.to_owned() }
}

/// In one process, so that its processor time is that of the process.
fn nginx_settings(address: SocketAddr, upstream: SocketAddr, folder: &Path) -> String {
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
    limit_req_zone $binary_remote_addr zone=rate:10m rate=1000000r/s;
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
}}
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
