//! The modes of limiters: from the configuration, from a watched file, and from switches at run time.
//!
//! The file has the keys of the section `switches`. It is read every second, so that an operator who can only write to
//! the disk can stop a limiter. It wins over the configuration while it exists. A file with problems changes nothing.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_admin::{Change, LimitTarget, LimiterName, Switchboard};
use tidegate_document::{PlainDialect, Problems, Reader, Source, mapping, parse};
use tidegate_engine::{Mode, Timestamp};

use crate::config::{LimiterSwitches, SwitchMode};

/// The largest file: seven lines and some comments.
const FILE_BYTES_MAX: u64 = 64 * 1024;

mapping! {
    /// the switches file
    SwitchesFile "switches" {
        /// Whether everything is switched off: every request passes.
        kill: Option<bool>,
        /// Limits of requests over time.
        rate: Option<SwitchMode>,
        /// Limits of requests in flight.
        concurrency: Option<SwitchMode>,
        /// The worker utilization shedder.
        worker: Option<SwitchMode>,
        /// The fleet usage shedder.
        fleet: Option<SwitchMode>,
        /// The gate.
        gate: Option<SwitchMode>,
        /// Limits on connections by network.
        connection: Option<SwitchMode>,
    }
}

/// Applies the configuration and the file to the switches.
#[derive(Debug)]
pub(super) struct Switches {
    board: Arc<Switchboard>,
    configured: LimiterSwitches,
    /// The text that was applied last; `None` if there was no file.
    applied: Option<String>,
    /// The problem that was logged last, so that each is logged once.
    logged: Option<String>,
}

impl Switches {
    /// Applies the configuration, and the file if it exists.
    pub(super) fn start(configured: &LimiterSwitches, board: Arc<Switchboard>) -> Self {
        let configured = configured.clone();
        let mut switches = Switches { board, configured, applied: None, logged: None };
        switches.apply(&switches.configured);
        switches.read_file();
        switches
    }

    /// The board that the debug port uses.
    pub(super) const fn board(&self) -> &Arc<Switchboard> {
        &self.board
    }

    /// Ends expired switches, and applies the file if it changed.
    pub(super) fn tick(&mut self, now: Timestamp) {
        for switched in self.board.expire(now) {
            tracing::warn!(
                switched = switched.as_str(),
                "this switch has expired: as configured again"
            );
        }
        for LimitTarget { domain, path, limit } in self.board.expire_limits(now) {
            let limit = limit.unwrap_or_default();
            tracing::warn!(domain, path, limit, "this switch has expired: as its rule file says");
        }
        self.read_file();
    }

    fn read_file(&mut self) {
        let Some(path) = self.configured.file.clone() else { return };
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) => return self.complain(format!("`{}`: {error}", path.display())),
        };
        if text == self.applied {
            return;
        }
        let name = path.to_string_lossy();
        match parse_switches(&name, text.as_deref().unwrap_or_default(), &self.configured) {
            Ok((switches, has_old_word)) => {
                if has_old_word {
                    tracing::warn!(file = %name, "`dark` is the old word for `shadow`: write `shadow`");
                }
                self.apply(&switches);
                (self.applied, self.logged) = (text, None);
                tracing::warn!(file = %name, limiters = ?self.board, "applied the switches file");
                let words =
                    if self.applied.is_some() { "was applied" } else { "is gone: as configured" };
                self.board.report(Change::switches_file(format!("the switches file {words}")));
            }
            Err(problems) => self.complain(problems),
        }
    }

    fn apply(&self, switches: &LimiterSwitches) {
        self.board.switch_off(switches.kill);
        for limiter in LimiterName::ALL {
            self.board.configure(limiter, switches.mode(limiter));
        }
    }

    fn complain(&mut self, problems: String) {
        if self.logged.as_ref() != Some(&problems) {
            tracing::error!(problems, "the switches file cannot be used; nothing is switched");
            self.logged = Some(problems);
        }
    }
}

/// The text of the file; `None` if it does not exist.
fn read(path: &PathBuf) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    let bytes = file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    if u64::try_from(bytes).unwrap_or(u64::MAX) >= FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it has {FILE_BYTES_MAX} bytes or more")));
    }
    Ok(Some(text))
}

/// The configured switches with those of a file, and whether the file has [`Mode::DEPRECATED_SHADOW`]. Otherwise all
/// problems of the file.
fn parse_switches(
    name: &str,
    text: &str,
    configured: &LimiterSwitches,
) -> Result<(LimiterSwitches, bool), String> {
    let sources = [Source::new(name, text)];
    let mut problems = Problems::new(&sources);
    let (mut switches, mut has_old_word) = (configured.clone(), false);
    let yaml = parse(0, text, &mut problems);
    let yaml = yaml.filter(|yaml| yaml.root().is_some_and(|root| !yaml.is_null(root)));
    if let Some(yaml) = yaml
        && let Some(file) = Reader::new(&yaml, &mut problems, &PlainDialect).root::<SwitchesFile>()
    {
        let is_old =
            |node| yaml.scalar(node).is_some_and(|text| text.text == Mode::DEPRECATED_SHADOW);
        has_old_word = file.keys.iter().any(|given| is_old(given.node));
        switches.kill = file.kill.unwrap_or(switches.kill);
        switches.rate = file.rate.unwrap_or(switches.rate);
        switches.concurrency = file.concurrency.unwrap_or(switches.concurrency);
        switches.worker = file.worker.unwrap_or(switches.worker);
        switches.fleet = file.fleet.unwrap_or(switches.fleet);
        switches.gate = file.gate.unwrap_or(switches.gate);
        switches.connection = file.connection.unwrap_or(switches.connection);
    }
    let has_errors = problems.has_errors();
    if has_errors { Err(problems.into_report().to_string()) } else { Ok((switches, has_old_word)) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tidegate_engine::{Engine, MemoryConfig, MemoryStore, Percent, SystemClock};

    use super::*;
    use crate::config::Config;

    fn board() -> Arc<Switchboard> {
        let store = MemoryStore::new(MemoryConfig::default()).unwrap();
        Arc::new(Switchboard::new(Arc::new(Engine::new(store, SystemClock::new())), None))
    }

    fn parse_file(text: &str) -> Result<(LimiterSwitches, bool), String> {
        parse_switches("f", text, &Config::default().switches)
    }

    #[test]
    fn a_file_has_the_words_of_the_configuration() {
        let (read, _) = parse_file("kill: true\nrate: enforce 5%\ngate: off\n").unwrap();
        assert!(read.kill);
        assert_eq!(read.rate.0, Mode::Enforce(Percent::new(5)));
        assert_eq!(read.gate.0, Mode::Off);
        assert_eq!(read.worker, Config::default().switches.worker);
        assert_eq!(parse_file("# nothing\n").unwrap(), (Config::default().switches, false));
    }

    #[test]
    fn the_old_word_for_shadow_is_still_read() {
        let (old, has_old_word) = parse_file("rate: dark\ngate: off\n").unwrap();
        assert_eq!((old.rate.0, has_old_word), (Mode::Shadow, true));
        let (new, has_old_word) = parse_file("rate: shadow\n").unwrap();
        assert_eq!((new.rate.0, has_old_word), (Mode::Shadow, false));
    }

    #[test]
    fn all_problems_of_a_file_are_reported() {
        let problems = parse_file("rat: off\nworker: on\nkill: maybe\n").unwrap_err();
        for part in ["did you mean `rate`?", "`on` is not a mode", "`kill`: expected", "f:3:7"] {
            assert!(problems.contains(part), "{part}: {problems}");
        }
        assert!(parse_file("[1]").is_err());
    }

    #[test]
    fn a_file_wins_while_it_is_there_and_a_wrong_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("switches.yaml");
        let mut configured = Config::default().switches;
        configured.file = Some(path.clone());
        configured.rate = SwitchMode(Mode::Shadow);
        let mut switches = Switches::start(&configured, board());
        let board = Arc::clone(switches.board());
        let rate = || board.mode(LimiterName::Rate).unwrap();
        assert_eq!(rate(), Mode::Shadow);

        fs::write(&path, "rate: off\nkill: true\n").unwrap();
        switches.tick(Timestamp::EPOCH);
        assert_eq!((rate(), board.is_off()), (Mode::Off, true));
        fs::write(&path, "rate: nonsense\n").unwrap();
        switches.tick(Timestamp::EPOCH);
        assert_eq!((rate(), board.is_off()), (Mode::Off, true));

        fs::write(&path, "rate: enforce\n").unwrap();
        switches.tick(Timestamp::EPOCH);
        assert_eq!((rate(), board.is_off()), (Mode::ENFORCE, false));
        board.set(LimiterName::Rate, Mode::Off);
        switches.tick(Timestamp::EPOCH);
        assert_eq!(rate(), Mode::Off, "an unchanged file does not undo a switch");

        fs::remove_file(&path).unwrap();
        switches.tick(Timestamp::EPOCH);
        assert_eq!(rate(), Mode::Shadow);
    }
}
