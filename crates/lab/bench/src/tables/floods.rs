//! Floods of TLS connections and of SYN packets beside honest clients, with and without the limits on connections.
//!
//! The server is the real program with its defaults, on a processor of its own. Attackers repeat the first message of a
//! handshake: it costs them nothing, and the server a signature. Honest clients open a TLS connection for each request,
//! from their own addresses. The first rows run on loopback. The others run in two network namespaces, which needs
//! root, and are left out elsewhere.

mod clients;
mod syn_packets;

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tidegate_test_servers::authority::Authority;
use tidegate_test_servers::namespace::{NamespacePair, SERVER};

use super::service::beside;
use crate::processor::{Pins, time_of};
use crate::scale::{Scale, Size};
use crate::server::{Door, Server};
use crate::stopwatch::Stopwatch;
use crate::table::Table;

pub(crate) use clients::{FloodPlan, run_clients};

/// Connections of all attackers that are attempted in a second.
const RATES: [u32; 4] = [0, 500, 2_000, 8_000];

/// The rate of the floods in namespaces.
const NAMESPACE_RATE: u32 = 8_000;

/// SYN packets in a second.
const SYN_RATE: u32 = 20_000;

/// Not measured: the bursts of the attackers are used up.
const WARM_UP_SECONDS: u32 = 3;

/// How long the list may take: ten seconds of flood, a beat, and the guard.
const LIST_WAIT_MAX: Duration = Duration::from_secs(30);

/// How often the kernel's list is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) fn table(scale: Scale) -> anyhow::Result<Table> {
    let columns = [
        "flood",
        "limits",
        "attempts/s",
        "reset",
        "honest served/s",
        "of no flood",
        "p99 ms",
        "server CPU",
        "CPU µs / attempt",
    ];
    let mut table = Table::new("14. Floods (`floods`)", &columns);
    let seconds = if scale.size == Size::Full { 10 } else { 4 };
    let pins = Pins::new()?;
    let site = FloodSite::new()?;
    for limits in [FloodLimits::Off, FloodLimits::Connection] {
        let server = site.serve(limits, None, &pins)?;
        let mut quiet = None;
        for rate in RATES {
            eprintln!("floods: {rate} TLS connections a second, {}", limits.name());
            let plan = FloodPlan { rate, ..site.plan(server.door(Door::Http)?, seconds) };
            let figures = FloodSite::measure(&plan, &server, None, &pins)?;
            let before = *quiet.get_or_insert(figures.served);
            table.row(figures.row(&format!("TLS, {rate}/s"), limits.name(), before));
        }
    }
    in_namespaces(&site, &mut table, seconds, &pins)?;
    table.note(
        "Attackers come from 10 addresses and repeat a ClientHello; 40 honest connections a second, each with a request \
         and a patience of one second, come from 50. Server and clients have a processor each. `CPU µs / attempt` is the \
         server's time divided by the attackers' attempts; the time of packets in the kernel's interrupts is nobody's.",
    );
    Ok(table)
}

/// Which limits the server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FloodLimits {
    Off,
    Connection,
    List,
}

impl FloodLimits {
    const fn name(self) -> &'static str {
        match self {
            FloodLimits::Off => "none",
            FloodLimits::Connection => "`connection`",
            FloodLimits::List => "`connection` and list",
        }
    }
}

/// The files of a server.
struct FloodSite {
    folder: TempDir,
    authority: Authority,
    program: PathBuf,
}

impl FloodSite {
    fn new() -> anyhow::Result<Self> {
        let this = env::current_exe().context("cannot find this program")?;
        let folder = TempDir::new().context("cannot create a folder")?;
        let rules = "domain: d\ndescriptors: [{key: user, rate_limit: {unit: second, requests_per_unit: 1}}]\n";
        std::fs::write(folder.path().join("rules.yaml"), rules)?;
        Ok(FloodSite { folder, authority: Authority::new(), program: beside(&this, "tidegate")? })
    }

    fn serve(
        &self,
        limits: FloodLimits,
        pair: Option<&NamespacePair>,
        pins: &Pins,
    ) -> anyhow::Result<Server> {
        let files = self.authority.signs("localhost");
        let mut command = match pair {
            Some(pair) => pair.on_server(&self.program),
            None => Command::new(&self.program),
        };
        let at = if pair.is_some() { SERVER } else { "127.0.0.1" };
        let rules = self.folder.path().join("rules.yaml");
        command.args(["serve", "--log-format", "json", "--workers", "1"]).arg("--rules").arg(rules);
        command.args(["--http", &format!("{at}:0"), "--grpc", &format!("{at}:0")]);
        command.args(["--debug-listen", "127.0.0.1:0"]);
        let connection = if limits == FloodLimits::Off { "off" } else { "enforce" };
        let list = if limits == FloodLimits::List { "enforce" } else { "off" };
        for set in [
            format!("http.tls.cert={}", files.certificate.display()),
            format!("http.tls.key={}", files.key.display()),
            format!("switches.connection={connection}"),
            format!("floods.list={list}"),
            format!("floods.socket={}", self.socket().display()),
        ] {
            command.args(["--set", &set]);
        }
        pins.on_server(|| Server::start(command, &[Door::Http]))
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("floods.sock")
    }

    fn plan(&self, server: SocketAddr, seconds: u32) -> FloodPlan {
        FloodPlan {
            server,
            seconds,
            rate: 0,
            syn_rate: 0,
            attackers: [127, 1, 0, 1].into(),
            honest: [127, 2, 0, 1].into(),
            roots: self.authority.roots(),
        }
    }

    /// Runs the clients, first to warm up, then measured.
    fn measure(
        plan: &FloodPlan,
        server: &Server,
        pair: Option<&NamespacePair>,
        pins: &Pins,
    ) -> anyhow::Result<FloodFigures> {
        let run = |seconds: u32| -> anyhow::Result<FloodFigures> {
            let plan = FloodPlan { seconds, ..plan.clone() };
            let before = time_of(server.process())?;
            let stopwatch = Stopwatch::start();
            let output = pins.on_generator(|| {
                Ok(clients_command(&plan, pair)?.stderr(Stdio::inherit()).output()?)
            })?;
            ensure!(output.status.success(), "the clients ended with {}", output.status);
            let wall = stopwatch.elapsed();
            let spent = time_of(server.process())?.saturating_sub(before);
            FloodFigures::read(&output.stdout, spent, wall)
        };
        if plan.rate > 0 || plan.syn_rate > 0 {
            run(WARM_UP_SECONDS)?;
        }
        run(plan.seconds)
    }
}

/// This program as the clients of a flood, in the client's namespace if there is one.
fn clients_command(plan: &FloodPlan, pair: Option<&NamespacePair>) -> anyhow::Result<Command> {
    let this = env::current_exe().context("cannot find this program")?;
    let mut command = match pair {
        Some(pair) => pair.on_client(this),
        None => Command::new(this),
    };
    command.arg("flood-clients").args(plan.arguments());
    Ok(command)
}

/// What the clients saw, and what the server spent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FloodFigures {
    attempts: f64,
    reset: f64,
    served: f64,
    p99_ms: f64,
    /// Of one processor.
    processor: f64,
    micros_per_attempt: f64,
}

impl FloodFigures {
    fn read(output: &[u8], spent: Duration, wall: Duration) -> anyhow::Result<Self> {
        let seen: clients::ClientFigures =
            serde_json::from_slice(output).context("the clients wrote something else")?;
        let per_second = |count: u64| count as f64 / seen.seconds;
        let attempts = seen.attempts.max(1) as f64;
        Ok(FloodFigures {
            attempts: per_second(seen.attempts),
            reset: seen.reset as f64 / attempts,
            served: per_second(seen.served),
            p99_ms: seen.p99_ms,
            processor: spent.as_secs_f64() / wall.as_secs_f64(),
            micros_per_attempt: spent.as_secs_f64() * 1e6 / attempts,
        })
    }

    fn row(&self, flood: &str, limits: &str, quiet: f64) -> [String; 9] {
        let has_flood = self.attempts >= 1.0;
        let of_flood = |text: String| if has_flood { text } else { String::new() };
        [
            flood.to_owned(),
            limits.to_owned(),
            format!("{:.0}", self.attempts),
            of_flood(format!("{:.0} %", 100.0 * self.reset)),
            format!("{:.1}", self.served),
            format!("{:.2}", self.served / quiet.max(0.001)),
            format!("{:.1}", self.p99_ms),
            format!("{:.0} %", 100.0 * self.processor),
            of_flood(format!("{:.1}", self.micros_per_attempt)),
        ]
    }
}

/// A process that is ended with this value.
struct ChildProcess(Child);

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The rows that need network namespaces.
fn in_namespaces(
    site: &FloodSite,
    table: &mut Table,
    seconds: u32,
    pins: &Pins,
) -> anyhow::Result<()> {
    let Some(pair) = NamespacePair::or_skip("floods in network namespaces", &["nft"]) else {
        table.note("Rows in network namespaces are left out: they need root and nftables.");
        return Ok(());
    };
    let mut quiet = None;
    for limits in [FloodLimits::Off, FloodLimits::Connection, FloodLimits::List] {
        let server = site.serve(limits, Some(&pair), pins)?;
        let plan = FloodPlan {
            attackers: [10, 77, 65, 1].into(),
            honest: [10, 77, 66, 1].into(),
            ..site.plan(server.door(Door::Http)?, seconds)
        };
        let before = match quiet {
            Some(before) => before,
            None => *quiet.insert(FloodSite::measure(&plan, &server, Some(&pair), pins)?.served),
        };
        eprintln!("floods: TLS in namespaces, {}", limits.name());
        let flood = FloodPlan { rate: NAMESPACE_RATE, ..plan.clone() };
        let guard = (limits == FloodLimits::List).then(|| guard(site, &pair)).transpose()?;
        if guard.is_some() {
            let took = wait_for_list(&flood, &pair, pins)?;
            table.note(format!(
                "From the beginning of the flood to its first address in the kernel's list: {:.1} s.",
                took.as_secs_f64()
            ));
        }
        let figures = FloodSite::measure(&flood, &server, Some(&pair), pins)?;
        table.row(figures.row(
            &format!("TLS over a cable, {NAMESPACE_RATE}/s"),
            limits.name(),
            before,
        ));
        if limits != FloodLimits::List {
            eprintln!("floods: SYN in namespaces, {}", limits.name());
            let syn = FloodPlan { syn_rate: SYN_RATE, ..plan };
            if limits == FloodLimits::Connection {
                drop_rates(site, &pair, syn.server.port())?;
            }
            let name =
                if limits == FloodLimits::Off { "none" } else { "`connection`, exported rules" };
            let figures = FloodSite::measure(&syn, &server, Some(&pair), pins)?;
            table.row(figures.row(
                &format!("SYN from 1,000 addresses, {SYN_RATE}/s"),
                name,
                before,
            ));
            let _ = pair.on_server("nft").args(["delete", "table", "inet", "tidegate"]).output();
        }
    }
    Ok(())
}

/// Exports and applies a rule for every address.
fn drop_rates(site: &FloodSite, pair: &NamespacePair, port: u16) -> anyhow::Result<()> {
    let rules = site.folder.path().join("addresses.yaml");
    std::fs::write(
        &rules,
        "domain: edge\ndescriptors:\n- {key: address, address: true, limits: [{algorithm: token_bucket, unit: second, requests_per_unit: 10, burst: 20}]}\n",
    )?;
    let mut command = pair.on_server(&site.program);
    command.args(["rules", "export", "nftables", "--apply", "--port", &port.to_string()]);
    let done = command.arg("--rules").arg(rules).output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

fn guard(site: &FloodSite, pair: &NamespacePair) -> anyhow::Result<ChildProcess> {
    let mut command = pair.on_server(&site.program);
    command.arg("guard").arg("--socket").arg(site.socket());
    Ok(ChildProcess(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
}

/// Floods until the kernel has the list, and returns how long that took.
fn wait_for_list(flood: &FloodPlan, pair: &NamespacePair, pins: &Pins) -> anyhow::Result<Duration> {
    let plan = FloodPlan { seconds: 20, ..flood.clone() };
    let mut command = clients_command(&plan, Some(pair))?;
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let _flooding = pins.on_generator(|| Ok(ChildProcess(command.spawn()?)))?;
    let stopwatch = Stopwatch::start();
    while stopwatch.elapsed() < LIST_WAIT_MAX {
        let rules = pair.on_server("nft").args(["list", "ruleset"]).output()?;
        if String::from_utf8_lossy(&rules.stdout).contains("10.77.65.1") {
            return Ok(stopwatch.elapsed());
        }
        thread::park_timeout(LOOK_EVERY);
    }
    anyhow::bail!("the kernel has no list after {LIST_WAIT_MAX:?}")
}
