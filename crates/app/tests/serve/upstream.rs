//! A small HTTP server that tests put behind the gateway.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::process::PATIENCE;

/// Answers every request with its path. Those below `/hold` wait to be let go, and the answer to
/// `/trailers` has some.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    came: Receiver<String>,
    released: Arc<OnceLock<()>>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (tell, came) = sync_channel(1_000);
        let released: Arc<OnceLock<()>> = Arc::default();
        let let_go = Arc::clone(&released);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (tell, let_go) = (tell.clone(), Arc::clone(&let_go));
                thread::spawn(move || answer(stream, &tell, &let_go));
            }
        });
        Upstream { address, came, released }
    }

    /// Waits for the head of the next request.
    pub(crate) fn next(&self) -> String {
        self.came.recv_timeout(PATIENCE).expect("a request came")
    }

    /// Lets those go that wait, and all that come.
    pub(crate) fn let_go(&self) {
        let _ = self.released.set(());
    }

    /// A document with one route, and this in it too.
    pub(crate) fn document(&self, more: &str) -> String {
        format!(
            "routes:
- name: all
  upstreams: api
  descriptors: [{{entries: [{{key: user, from: header, name: X-User}}]}}]
upstreams:
- {{name: api, hosts: ['http://{}']}}
{more}",
            self.address
        )
    }
}

fn answer(stream: TcpStream, tell: &SyncSender<String>, let_go: &OnceLock<()>) {
    let Ok(reading) = stream.try_clone() else { return };
    let mut head = String::new();
    for line in BufReader::new(reading).lines().map_while(Result::ok) {
        if line.is_empty() {
            break;
        }
        head.push_str(&line);
        head.push('\n');
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    // A head that no test reads is dropped: waiting for room would delay the answer.
    let _ = tell.try_send(head);
    if path.starts_with("/hold") {
        let_go.wait();
    }
    let length = path.len();
    let mut stream = stream;
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n";
    let rest = if path == "/trailers" {
        let body = format!("{length:x}\r\n{path}\r\n0\r\nx-sum: 42\r\n\r\n");
        format!("transfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n{body}")
    } else {
        format!("content-length: {length}\r\n\r\n{path}")
    };
    // The other side may be gone.
    let _ = stream.write_all(format!("{head}{rest}").as_bytes());
}
