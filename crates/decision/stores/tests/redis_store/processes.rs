//! Many processes on one key.

use std::process::{Command, Stdio};
use std::sync::Arc;

use tidegate_algorithms::Holder;
use tidegate_stores::{Check, Verb};

use super::{check, connected, lasting, one};
use tidegate_test_servers::server::Server;

/// The environment variable that makes a process load this server.
const HAMMER: &str = "TIDEGATE_TEST_HAMMER";
const PROCESSES: usize = 4;
const CALLERS: usize = 16;

/// Sends more checks than the limit allows, and prints how many were admitted.
async fn hammer(url: &str) -> String {
    let store = Arc::new(connected(url).await);
    let mut said = String::new();
    for (name, limit, room) in lasting() {
        let tries = usize::try_from(room).expect("small") * 2 / PROCESSES / CALLERS + 1;
        let callers = (0..CALLERS).map(|caller| {
            let (store, limit) = (Arc::clone(&store), limit.clone());
            tokio::spawn(async move {
                let mut admitted = 0;
                for time in 0..tries {
                    let id = u64::from(std::process::id()) << 32 | (caller * 1_000 + time) as u64;
                    let check = Check { holder: Holder(id + 1), ..check(name, &limit, 1) };
                    admitted += u64::from(one(&store, Verb::Check, check).await.is_admitted());
                }
                admitted
            })
        });
        let mut admitted = 0;
        for caller in callers.collect::<Vec<_>>() {
            admitted += caller.await.expect("no caller panics");
        }
        said += &format!("admitted {name} {admitted}\n");
    }
    said
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "how a test tells a process of its own what to do")]
async fn many_processes_on_one_key_admit_exactly_the_limit() {
    if let Ok(url) = std::env::var(HAMMER) {
        // Begins on a line of its own, whatever the harness has printed.
        println!("\n{}", hammer(&url).await);
        return;
    }
    let server = Server::redis();
    let program = std::env::current_exe().expect("a test is a program");
    let processes: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(&program)
                .args(["--exact", "processes::many_processes_on_one_key_admit_exactly_the_limit"])
                .arg("--nocapture")
                .env(HAMMER, server.url())
                .stdout(Stdio::piped())
                .spawn()
                .expect("the test starts itself")
        })
        .collect();
    let mut said = String::new();
    for process in processes {
        let output = process.wait_with_output().expect("it ends");
        assert!(output.status.success(), "a process failed");
        said += &String::from_utf8_lossy(&output.stdout);
    }
    for (name, _, room) in lasting() {
        let own =
            said.lines().filter_map(|line| line.strip_prefix("admitted ")?.strip_prefix(name));
        let admitted: Vec<u64> = own.filter_map(|count| count.trim().parse().ok()).collect();
        assert_eq!(admitted.len(), PROCESSES, "{name}: {said}");
        assert_eq!(admitted.iter().sum::<u64>(), room, "{name}: {said}");
    }
}

#[tokio::test]
async fn a_counter_that_is_read_and_then_written_loses_an_update_and_a_check_does_not() {
    let server = Server::redis();
    let read =
        || server.ask(&["GET", "counter"]).text().and_then(|count| count.parse::<u64>().ok());
    server.tell(&["SET", "counter", "3"]);
    // Two processes read before either writes.
    let seen = [read(), read()];
    for count in seen.into_iter().flatten() {
        server.tell(&["SET", "counter", &(count + 1).to_string()]);
    }
    assert_eq!(read(), Some(4), "of two requests one is counted");

    let stores =
        [Arc::new(connected(&server.url()).await), Arc::new(connected(&server.url()).await)];
    for (name, limit, room) in lasting() {
        let most = Check { holder: Holder(1), ..check(name, &limit, room - 4) };
        assert!(one(&stores[0], Verb::Check, most).await.is_admitted(), "{name}");
        let calls = (2..12).zip(stores.iter().cycle()).map(|(holder, store)| {
            let (store, limit) = (Arc::clone(store), limit.clone());
            tokio::spawn(async move {
                let asked = Check { holder: Holder(holder), ..check(name, &limit, 1) };
                one(&store, Verb::Check, asked).await.is_admitted()
            })
        });
        let mut admitted = 0;
        for call in calls.collect::<Vec<_>>() {
            admitted += u64::from(call.await.expect("no call panics"));
        }
        assert_eq!(admitted, 4, "{name}: all that was left, and no more");
    }
}
