//! A statsd server on TCP: upstream's statistics, summed by name.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Sums of counters by name.
pub(crate) type Counters = BTreeMap<String, u64>;

/// A server that sums what it is sent, until the process ends.
#[derive(Clone, Debug)]
pub(crate) struct Statsd {
    pub(crate) port: u16,
    sums: Arc<Mutex<Counters>>,
}

impl Statsd {
    /// Listens on any port.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let sums = Arc::default();
        let statsd = Statsd { port, sums: Arc::clone(&sums) };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let sums = Arc::clone(&sums);
                thread::spawn(move || read(stream, &sums));
            }
        });
        Ok(statsd)
    }

    /// The sums so far.
    pub(crate) fn read(&self) -> Counters {
        lock(&self.sums).clone()
    }
}

fn lock(sums: &Mutex<Counters>) -> MutexGuard<'_, Counters> {
    sums.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads lines such as `name:3|c`.
fn read(stream: TcpStream, sums: &Mutex<Counters>) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let Some((name, rest)) = line.rsplit_once(':') else { continue };
        let Some((number, kind)) = rest.split_once('|') else { continue };
        if let (Ok(number), "c") = (number.parse::<u64>(), kind) {
            *lock(sums).entry(name.to_owned()).or_default() += number;
        }
    }
}
