//! Floods and the kernel: exported rules and the list of floods, in network namespaces of the tests' own.
//!
//! They need root, `ip`, `nft` and `iptables`, and say so when they cannot run.

#![expect(
    clippy::disallowed_methods,
    reason = "waits for real processes and a real kernel, in real time"
)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod export;
mod list;

use std::path::PathBuf;
use std::process::Command;

pub(crate) fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_tidegate"))
}

/// Connects from each of these addresses so often in turn, and returns how many of each succeeded.
pub(crate) const CONNECT: &str = "
import socket, sys
server, port, times, sources = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
opened, kept = {source: 0 for source in sources}, []
for _ in range(times):
    for source in sources:
        client = socket.socket()
        client.settimeout(0.25)
        client.bind((source, 0))
        try:
            client.connect((server, port))
            opened[source] += 1
            kept.append(client)
        except OSError:
            pass
print(' '.join(str(opened[source]) for source in sources))
";

/// Listens, says so, and holds every connection in the backlog.
pub(crate) const LISTEN: &str = "
import socket, sys, time
listener = socket.socket()
listener.bind(('10.77.0.1', 443))
listener.listen(1000)
print('ready', flush=True)
sys.stdin.read()
";

/// What a command prints; it must succeed.
#[track_caller]
pub(crate) fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (said, wrong) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{said}{wrong}");
    said.into_owned()
}
