//! The modes of limiters: from the configuration, from a watched file, and from switches at run time.
//!
//! The file has the keys of the section `switches`. It is read every second, so that an operator who can only write to
//! the disk can stop a limiter. It wins over the configuration while it exists. A file with problems changes nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_admin::{LimiterName, Switchboard};
use tidegate_document::{PlainDialect, Problems, Reader, Source, mapping, parse};
use tidegate_engine::{Mode, Timestamp};

use crate::config::{LimiterSwitches, SwitchMode};

/// The largest file: six lines and some remarks.
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
    }
}

/// Applies the configuration and the file to the switches.
#[derive(Debug)]
pub(super) struct Switches {
    board: Arc<Switchboard>,
    configured: LimiterSwitches,
    /// The text that was last used; none when there was no file.
    seen: Option<String>,
    /// The last problem that was logged, so that it is logged once.
    complained: Option<String>,
}

/// The switches in a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct FileSwitches {
    kill: Option<bool>,
    modes: BTreeMap<&'static str, Mode>,
    /// Whether a mode is written as [`Mode::DEPRECATED_SHADOW`].
    has_old_word: bool,
}

impl Switches {
    /// Switches everything as configured, and as the file says if there is one.
    pub(super) fn start(configured: &LimiterSwitches, board: Arc<Switchboard>) -> Self {
        let configured = configured.clone();
        let mut switches = Switches { board, configured, seen: None, complained: None };
        switches.apply(&FileSwitches::default());
        switches.read_file();
        switches
    }

    /// The switches themselves.
    pub(super) const fn board(&self) -> &Arc<Switchboard> {
        &self.board
    }

    /// Ends what was switched for a while, and does as the file says if that is new.
    pub(super) fn look(&mut self, now: Timestamp) {
        for switched in self.board.expire(now) {
            tracing::warn!(switched = switched.as_str(), "as configured again: its time is over");
        }
        self.read_file();
    }

    fn read_file(&mut self) {
        let Some(path) = self.configured.file.clone() else { return };
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) => return self.complain(format!("`{}`: {error}", path.display())),
        };
        if text == self.seen {
            return;
        }
        let name = path.to_string_lossy();
        match text
            .as_deref()
            .map_or(Ok(FileSwitches::default()), |text| parse_switches(&name, text))
        {
            Ok(file) => {
                if file.has_old_word {
                    tracing::warn!(file = %name, "`dark` is the old word for `shadow`: write `shadow`");
                }
                self.apply(&file);
                (self.seen, self.complained) = (text, None);
                tracing::warn!(file = %name, limiters = ?self.board, "switched by a file");
            }
            Err(problems) => self.complain(problems),
        }
    }

    fn apply(&self, file: &FileSwitches) {
        self.board.switch_off(file.kill.unwrap_or(self.configured.kill));
        for limiter in LimiterName::ALL {
            let mode = file.modes.get(limiter.as_str()).copied();
            self.board.configure(limiter, mode.unwrap_or_else(|| self.configured.mode(limiter)));
        }
    }

    fn complain(&mut self, problems: String) {
        if self.complained.as_ref() != Some(&problems) {
            tracing::error!(problems, "the file of switches cannot be used; they stay as they are");
            self.complained = Some(problems);
        }
    }
}

/// The text of the file; none when there is no such file.
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

/// The switches in a text, or all its problems.
fn parse_switches(name: &str, text: &str) -> Result<FileSwitches, String> {
    let sources = [Source::new(name, text)];
    let mut problems = Problems::new(&sources);
    let mut switches = FileSwitches::default();
    let yaml = parse(0, text, &mut problems);
    let yaml = yaml.filter(|yaml| yaml.root().is_some_and(|root| !yaml.is_null(root)));
    if let Some(yaml) = yaml
        && let Some(file) = Reader::new(&yaml, &mut problems, &PlainDialect).root::<SwitchesFile>()
    {
        let is_old =
            |node| yaml.scalar(node).is_some_and(|text| text.text == Mode::DEPRECATED_SHADOW);
        switches.has_old_word = file.keys.iter().any(|given| is_old(given.node));
        switches.kill = file.kill;
        for limiter in LimiterName::ALL {
            let mode = match limiter {
                LimiterName::Rate => file.rate,
                LimiterName::Concurrency => file.concurrency,
                LimiterName::Worker => file.worker,
                LimiterName::Fleet => file.fleet,
                LimiterName::Gate => file.gate,
            };
            switches.modes.extend(mode.map(|mode| (limiter.as_str(), mode.0)));
        }
    }
    if problems.has_errors() { Err(problems.into_report().to_string()) } else { Ok(switches) }
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

    #[test]
    fn a_file_has_the_words_of_the_configuration() {
        let read = parse_switches("f", "kill: true\nrate: enforce 5%\ngate: off\n").unwrap();
        assert_eq!(read.kill, Some(true));
        assert_eq!(read.modes["rate"], Mode::Enforce(Percent::new(5)));
        assert_eq!(read.modes["gate"], Mode::Off);
        assert_eq!(parse_switches("f", "# nothing\n").unwrap(), FileSwitches::default());
    }

    #[test]
    fn the_old_word_for_shadow_is_still_read() {
        let old = parse_switches("f", "rate: dark\ngate: off\n").unwrap();
        assert_eq!((old.modes["rate"], old.has_old_word), (Mode::Shadow, true));
        let new = parse_switches("f", "rate: shadow\n").unwrap();
        assert_eq!((new.modes["rate"], new.has_old_word), (Mode::Shadow, false));
    }

    #[test]
    fn all_problems_of_a_file_are_reported() {
        let problems = parse_switches("f", "rat: off\nworker: on\nkill: maybe\n").unwrap_err();
        for part in ["did you mean `rate`?", "`on` is not a mode", "`kill`: expected", "f:3:7"] {
            assert!(problems.contains(part), "{part}: {problems}");
        }
        assert!(parse_switches("f", "[1]").is_err());
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
        switches.look(Timestamp::EPOCH);
        assert_eq!((rate(), board.is_off()), (Mode::Off, true));
        fs::write(&path, "rate: nonsense\n").unwrap();
        switches.look(Timestamp::EPOCH);
        assert_eq!((rate(), board.is_off()), (Mode::Off, true));

        fs::write(&path, "rate: enforce\n").unwrap();
        switches.look(Timestamp::EPOCH);
        assert_eq!((rate(), board.is_off()), (Mode::ENFORCE, false));
        board.set(LimiterName::Rate, Mode::Off);
        switches.look(Timestamp::EPOCH);
        assert_eq!(rate(), Mode::Off, "an unchanged file does not undo a switch");

        fs::remove_file(&path).unwrap();
        switches.look(Timestamp::EPOCH);
        assert_eq!(rate(), Mode::Shadow);
    }
}
