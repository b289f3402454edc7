//! What limiters do: as configured, as a watched file says, until somebody switches them.
//!
//! The file has the keys of the section `switches`. It is looked at each second, so that an
//! operator who can reach nothing but the disk can stop a limiter. What it says wins over the
//! configuration while it is there. A file that cannot be used changes nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_admin::{LimiterName, Switchboard};
use tidegate_document::{Fault, NodeKind, PlainValue, Problems, closest, one_of, parse};
use tidegate_engine::{Mode, Timestamp};
use tidegate_rules::Source;

use crate::config::LimiterSwitches;

/// The largest file: six lines and some remarks.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// The key that switches everything off.
const KILL: &str = "kill";

/// Keeps the switches as they should be.
#[derive(Debug)]
pub(super) struct Switches {
    board: Arc<Switchboard>,
    configured: LimiterSwitches,
    /// The text that was last used; none when there was no file.
    seen: Option<String>,
    /// The complaint that was last made, so that it is made once.
    complained: Option<String>,
}

/// What a file says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
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
        switches.apply(&Said::default());
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
        match text.as_deref().map_or(Ok(Said::default()), |text| said(&name, text)) {
            Ok(said) => {
                if said.has_old_word {
                    tracing::warn!(file = %name, "`dark` is the old word for `shadow`: write `shadow`");
                }
                self.apply(&said);
                (self.seen, self.complained) = (text, None);
                tracing::warn!(file = %name, limiters = ?self.board, "switched by a file");
            }
            Err(problems) => self.complain(problems),
        }
    }

    fn apply(&self, said: &Said) {
        self.board.switch_off(said.kill.unwrap_or(self.configured.kill));
        for limiter in LimiterName::ALL {
            let mode = said.modes.get(limiter.as_str()).copied();
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

/// What a text says, or everything that is wrong with it.
fn said(name: &str, text: &str) -> Result<Said, String> {
    let sources = [Source::new(name, text)];
    let mut problems = Problems::new(&sources);
    let mut said = Said::default();
    if let Some(yaml) = parse(0, text, &mut problems) {
        let root = yaml.root().filter(|root| !yaml.is_null(*root));
        if let Some(root) =
            root.filter(|root| !matches!(yaml.node(*root).kind, NodeKind::Mapping(_)))
        {
            let message = format!("the file is a mapping, not {}", yaml.describe(root));
            problems.error(yaml.location(root), Fault::new("wrong_type", message));
        }
        for (key, value) in root.map(|root| yaml.merged_pairs(root).pairs).unwrap_or_default() {
            let text = |id| yaml.scalar(id).map(|scalar| &*scalar.text).unwrap_or_default();
            let plain = yaml.scalar(value).map(|scalar| scalar.plain());
            match (LimiterName::from_word(text(key)), text(key), plain) {
                (Some(limiter), _, _) => match Mode::parse(text(value)) {
                    Some(mode) => {
                        said.has_old_word |= text(value) == Mode::DEPRECATED_SHADOW;
                        said.modes.insert(limiter.as_str(), mode);
                    }
                    None => {
                        let fault = Fault::new("unknown_choice", "this is no mode")
                            .hint(format!("it can be {}", Mode::SYNTAX));
                        problems.error(yaml.location(value), fault);
                    }
                },
                (None, KILL, Some(PlainValue::Bool(kill))) => said.kill = Some(kill),
                (None, KILL, _) => {
                    let fault = Fault::new("wrong_type", "`kill` takes `true` or `false`");
                    problems.error(yaml.location(value), fault);
                }
                (None, other, _) => {
                    let known = [KILL, "rate", "concurrency", "worker", "fleet", "gate"];
                    let hint = match closest(other, known) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => format!("it knows {}", one_of(&known)),
                    };
                    let fault = Fault::new("unknown_key", format!("there is no limiter `{other}`"));
                    problems.error(yaml.location(key), fault.hint(hint));
                }
            }
        }
    }
    if problems.has_errors() { Err(problems.into_report().to_string()) } else { Ok(said) }
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
    fn a_file_says_what_limiters_do_in_the_words_of_the_configuration() {
        let told = said("f", "kill: true\nrate: enforce 5%\ngate: off\n").unwrap();
        assert_eq!(told.kill, Some(true));
        assert_eq!(told.modes["rate"], Mode::Enforce(Percent::new(5)));
        assert_eq!(told.modes["gate"], Mode::Off);
        assert_eq!(said("f", "# nothing\n").unwrap(), Said::default());
    }

    #[test]
    fn the_old_word_for_shadow_is_still_read() {
        let old = said("f", "rate: dark\ngate: off\n").unwrap();
        assert_eq!((old.modes["rate"], old.has_old_word), (Mode::Shadow, true));
        let new = said("f", "rate: shadow\n").unwrap();
        assert_eq!((new.modes["rate"], new.has_old_word), (Mode::Shadow, false));
    }

    #[test]
    fn everything_that_is_wrong_with_a_file_is_told() {
        let problems = said("f", "rat: off\nworker: on\nkill: maybe\n").unwrap_err();
        for part in ["did you mean `rate`?", "this is no mode", "`kill` takes", "f:3:7"] {
            assert!(problems.contains(part), "{part}: {problems}");
        }
        assert!(said("f", "[1]").is_err());
    }

    #[test]
    fn a_file_wins_while_it_is_there_and_a_wrong_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("switches.yaml");
        let mut configured = Config::default().switches;
        configured.file = Some(path.clone());
        configured.rate = Mode::Shadow;
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
