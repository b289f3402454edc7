//! Records what a binary of Tidegate sends to Redis, for `tests/rolling_upgrade.rs`:
//! `cargo run -p tidegate-app --example record_redis_traffic -- PATH`.
//!
//! The traffic stands for nodes of an earlier release during an upgrade. So it is recorded with the
//! binary of that release, and only again when nodes of that release no longer have to be served beside.

#[allow(dead_code, reason = "the tests of `serve` use the rest")]
#[path = "../tests/serve/process.rs"]
mod process;
#[path = "../tests/support/redis_wire.rs"]
mod redis_wire;
#[path = "../../decision/stores/tests/support/mod.rs"]
mod servers;
#[path = "../tests/support/upgrade.rs"]
mod upgrade;

use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, thread};

use parking_lot::Mutex;
use process::{Folder, Serving};
use redis_wire::{Connection, Reply, Words, encode, read_command};
use servers::server::Server;
use upgrade::{OLD_CHECKS, RECORDED, RULES, Step, UPSTREAM};

fn main() -> io::Result<()> {
    let binary = std::env::args_os().nth(1).map(PathBuf::from).expect("the path of a binary");
    let traffic = upgrade::traffic_folder();
    if traffic.exists() {
        fs::remove_dir_all(&traffic)?;
    }
    fs::create_dir_all(traffic.join("scripts"))?;
    record_own(&binary)?;
    record_upstream(&binary);
    Ok(())
}

/// A relay to a server that keeps every command.
struct Tap {
    port: u16,
    commands: Arc<Mutex<Vec<Words>>>,
}

impl Tap {
    fn to(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let commands: Arc<Mutex<Vec<Words>>> = Arc::default();
        let kept = Arc::clone(&commands);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let kept = Arc::clone(&kept);
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).expect("Redis");
                // Each ends when a side hangs up.
                thread::spawn(move || relay(client, server, &kept));
            }
        });
        Tap { port, commands }
    }

    /// The commands since the last call, without those of these keys.
    fn take(&self, background: &[Vec<u8>]) -> Vec<Words> {
        let mut commands = std::mem::take(&mut *self.commands.lock());
        commands.retain(|command| !command.iter().any(|word| background.contains(word)));
        commands
    }
}

fn relay(client: TcpStream, server: TcpStream, kept: &Mutex<Vec<Words>>) -> io::Result<()> {
    let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || io::copy(&mut from_server, &mut to_client));
    let (mut from_client, mut to_server) = (BufReader::new(client), server);
    loop {
        let command = read_command(&mut from_client)?;
        let bytes = encode(&command);
        kept.lock().push(command);
        to_server.write_all(&bytes)?;
    }
}

/// The key that nodes are counted by, which is not of a check.
fn background_keys(redis: &mut Connection) -> Vec<Vec<u8>> {
    servers::eventually("that the node is counted", || {
        let reply = redis.ask(&["KEYS", "*"]);
        let keys: Vec<Vec<u8>> = reply.list().iter().map(Reply::bytes).collect();
        Some(keys).filter(|keys| !keys.is_empty())
    })
}

/// Checks of one caller, one after the other.
fn checks(
    serving: &mut Serving,
    tap: &Tap,
    key: &str,
    background: &[Vec<u8>],
) -> (Vec<Step>, String) {
    let mut steps = Vec::new();
    let mut permit = String::new();
    for _ in 0..OLD_CHECKS {
        tap.take(background);
        let answer = upgrade::ask(serving, "check", key, "ada");
        assert_eq!(answer.status, 200, "{key}: {}", answer.body);
        if let (true, Some(given)) = (permit.is_empty(), answer.json()["permit"].as_str()) {
            given.clone_into(&mut permit);
        }
        let commands = tap.take(background);
        assert!(!commands.is_empty(), "{key}: Redis was not asked");
        steps.push(Step { about: "check".to_owned(), commands });
    }
    (steps, permit)
}

fn record_own(binary: &Path) -> io::Result<()> {
    let server = Server::redis();
    let mut redis = Connection::open(server.port());
    let tap = Tap::to(server.port());
    let folder = Folder::with_rules(RULES);
    let mut serving = upgrade::start(binary, &folder, tap.port).serving();
    upgrade::until_shared(&mut serving);
    let background = background_keys(&mut redis);
    // The first call may have to load the script.
    upgrade::ask(&mut serving, "check", "fixed_window", "nobody");
    for command in tap.take(&[]) {
        if let [script, load, text] = command.as_slice()
            && script.eq_ignore_ascii_case(b"SCRIPT")
            && load.eq_ignore_ascii_case(b"LOAD")
        {
            let name = redis.ask(&command).bytes().escape_ascii().to_string();
            fs::write(upgrade::traffic_folder().join(format!("scripts/{name}.lua")), text)?;
        }
    }
    for key in RECORDED {
        let (mut steps, permit) = checks(&mut serving, &tap, key, &background);
        if !permit.is_empty() {
            tap.take(&background);
            let body = format!(r#"{{"permit":"{permit}"}}"#);
            let answer = serving.ask("http", "POST", "/v1/release", &[], &body);
            assert_eq!(answer.json()["released"], true, "{}", answer.body);
            let commands = servers::eventually("that the release is sent", || {
                Some(tap.take(&background)).filter(|commands| !commands.is_empty())
            });
            steps.push(Step { about: "release".to_owned(), commands });
        }
        upgrade::write_steps(key, &steps, "none");
    }
    Ok(())
}

fn record_upstream(binary: &Path) {
    let server = Server::redis();
    let mut redis = Connection::open(server.port());
    let tap = Tap::to(server.port());
    let folder = Folder::with_rules(RULES);
    let mut serving = upgrade::start_upstream(binary, &folder, tap.port).serving();
    upgrade::until_shared(&mut serving);
    let background = background_keys(&mut redis);
    let (steps, _) = checks(&mut serving, &tap, "fixed_window", &background);
    let now = redis.ask(&["TIME"]).list()[0].bytes().escape_ascii().to_string();
    upgrade::write_steps(UPSTREAM, &steps, &upgrade::window(now.parse().expect("seconds")));
}
