//! API keys: maps a caller's key to the owner's name and plan.
//!
//! Only hashes are stored, so a leaked table reveals no key. One round of SHA-256 is enough because keys are long and
//! random; passwords would need a slow hash.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::request::Parts;
use tidegate_access::{Sha256Hash, parse_sha256, sha256};
use tidegate_document::{Fault, Problems, Source, words_of_lines};
use tidegate_macros::debug_fields;

use super::credential::{ValueMatch, credential};
use super::identity::Credential;
use crate::settings::{ApiKeySettings, PresentedIn};
use crate::watched_file::WatchedFile;

/// The maximum size of a file: 16 MiB hold 150,000 keys.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Begins every new key, so that scanners for leaked secrets can find it.
const KEY_PREFIX: &str = "tgk_";

/// The owner of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyOwner {
    pub(crate) name: Box<str>,
    pub(crate) plan: Box<str>,
}

/// All API keys, by their hashes.
#[derive(Debug)]
pub(crate) struct ApiKeys {
    presented_in: PresentedIn,
    /// The keys in the settings.
    inline: HashMap<Sha256Hash, Arc<KeyOwner>>,
    file: Option<WatchedFile>,
    /// The keys in the settings and in the file.
    all: ArcSwap<HashMap<Sha256Hash, Arc<KeyOwner>>>,
}

impl ApiKeys {
    /// Loads the keys, also from the file if there is one. Blocks.
    pub(crate) fn load(settings: &ApiKeySettings) -> Result<Self, String> {
        let mut inline = HashMap::new();
        for (hash, name, plan) in &settings.keys {
            let owner = KeyOwner { name: name.as_str().into(), plan: plan.as_str().into() };
            inline.insert(parse_hash(hash)?, Arc::new(owner));
        }
        let file = settings.file.as_deref().map(|path| WatchedFile::new(path, FILE_BYTES_MAX));
        let all = ArcSwap::from_pointee(inline.clone());
        let presented_in = settings.presented_in.clone();
        let keys = ApiKeys { presented_in, inline, file, all };
        keys.refresh()?;
        Ok(keys)
    }

    /// Reloads the file if it has changed, and returns whether it has. An invalid file leaves the old keys in use.
    /// Blocks.
    pub(crate) fn refresh(&self) -> Result<bool, String> {
        let Some(file) = &self.file else { return Ok(false) };
        file.refresh(|text| {
            let mut all = self.inline.clone();
            all.extend(read_keys(text)?);
            self.all.store(Arc::new(all));
            Ok(())
        })
    }

    /// The owner of the request's key.
    pub(super) fn owner(&self, head: &Parts) -> Credential<Arc<KeyOwner>> {
        let key = match credential(head, &self.presented_in) {
            ValueMatch::One(key) => key,
            ValueMatch::Missing => return Credential::Absent,
            ValueMatch::Several => return Credential::Ambiguous,
        };
        let owner = self.all.load().get(&sha256(key.as_bytes())).cloned();
        owner.map_or(Credential::Invalid, Credential::Valid)
    }
}

/// A new API key: 256 random bits, which need no slow hash.
#[derive(Clone, PartialEq, Eq)]
pub struct NewApiKey {
    /// The key, for its owner only.
    pub key: String,
    /// Its SHA-256 in hexadecimal, for the file or the document.
    pub hash: String,
}

impl NewApiKey {
    /// Makes a key.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn generate() -> Result<Self, String> {
        let mut random = [0; 32];
        aws_lc_rs::rand::fill(&mut random)
            .map_err(|_| "no random numbers are available".to_owned())?;
        let key = format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
        let hash = sha256(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(NewApiKey { key, hash })
    }

    /// The line for the file of keys.
    ///
    /// # Errors
    /// When the name or the plan cannot stand in that file.
    pub fn line(&self, name: &str, plan: &str) -> Result<String, String> {
        for word in [name, plan] {
            if word.is_empty()
                || word.contains(|letter: char| letter.is_whitespace() || letter == '#')
            {
                return Err(format!("`{word}` is not one word without `#`"));
            }
        }
        Ok(format!("{} {name} {plan}", self.hash))
    }
}

debug_fields!(NewApiKey { hash });

/// The plans of all API keys, those of the key file included. Reads the file.
///
/// # Errors
/// When a key, or the file, cannot be used.
pub fn api_key_plans(settings: &ApiKeySettings) -> Result<BTreeSet<String>, String> {
    let keys = ApiKeys::load(settings)?;
    let plans = keys.all.load().values().map(|owner| owner.plan.to_string()).collect();
    Ok(plans)
}

/// The keys of a file: hash, name and plan in each line. All problems at once, without the text: a key that was
/// written in place of its hash must not get into a log.
fn read_keys(text: &str) -> Result<Vec<(Sha256Hash, Arc<KeyOwner>)>, String> {
    let hide = |byte| if byte == b'\n' { '\n' } else { ' ' };
    let hidden: String = text.bytes().map(hide).collect();
    let sources = [Source::new("API keys", hidden)];
    let mut problems = Problems::new(&sources);
    let mut keys = Vec::new();
    for words in words_of_lines(0, text) {
        let location = words.first().map(|word| word.location).unwrap_or_default();
        let [hash, name, plan] = words.as_slice() else {
            let fault = Fault::new("malformed_line", "expected hash, name and plan");
            problems.error(location, fault);
            continue;
        };
        match parse_hash(hash.text) {
            Ok(hash) => {
                let owner = KeyOwner { name: name.text.into(), plan: plan.text.into() };
                keys.push((hash, Arc::new(owner)));
            }
            Err(message) => problems.error(location, Fault::new("invalid_hash", message)),
        }
    }
    if !problems.has_errors() {
        return Ok(keys);
    }
    let report = problems.into_report();
    let lines = report
        .problems()
        .iter()
        .map(|problem| format!("line {}: {}", problem.line, problem.message));
    Err(lines.collect::<Vec<_>>().join("; "))
}

/// Parses the hash of a key.
fn parse_hash(text: &str) -> Result<Sha256Hash, String> {
    let wrong = || "expected the SHA-256 of a key in 64 hexadecimal digits".to_owned();
    parse_sha256(text).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use http::Request;

    use super::*;

    /// The SHA-256 of `letmein`.
    const LETMEIN: &str = "1c8bfe8f801d79745c4631d09fff36c82aa37fc4cce4fc946683d7b336b63032";

    fn plan(keys: &ApiKeys, key: &str) -> Option<String> {
        let request = Request::get("/").header("x-api-key", key).body(()).unwrap();
        match keys.owner(&request.into_parts().0) {
            Credential::Valid(owner) => Some(owner.plan.to_string()),
            _ => None,
        }
    }

    #[test]
    fn a_key_is_identified_by_its_hash() {
        let key = (LETMEIN.to_owned(), "acme".to_owned(), "gold".to_owned());
        let settings = ApiKeySettings { keys: vec![key], ..ApiKeySettings::default() };
        let keys = ApiKeys::load(&settings).unwrap();
        assert_eq!(plan(&keys, "letmein").as_deref(), Some("gold"));
        assert_eq!(plan(&keys, "letmeout"), None);
        assert_eq!(plan(&keys, LETMEIN), None);
    }

    #[test]
    fn a_new_key_is_known_by_the_line_for_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let (one, other) = (NewApiKey::generate().unwrap(), NewApiKey::generate().unwrap());
        assert_ne!(one.key, other.key);
        assert!(!format!("{one:?}").contains(&one.key));
        fs::write(&path, format!("{}\n", one.line("acme", "gold").unwrap())).unwrap();
        let settings = ApiKeySettings { file: Some(path), ..ApiKeySettings::default() };
        let keys = ApiKeys::load(&settings).unwrap();
        assert_eq!(plan(&keys, &one.key).as_deref(), Some("gold"));
        assert_eq!(plan(&keys, &other.key), None);
        for (name, plan) in [("a b", "gold"), ("", "gold"), ("acme", "go#ld"), ("acme", "a\nb")] {
            assert!(one.line(name, plan).is_err(), "{name:?} {plan:?}");
        }
    }

    #[test]
    fn a_changed_file_is_reloaded_and_an_invalid_one_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        fs::write(&path, format!("# ours\n{LETMEIN} acme free # for now\n")).unwrap();
        let settings = ApiKeySettings { file: Some(path.clone()), ..ApiKeySettings::default() };
        let keys = ApiKeys::load(&settings).unwrap();
        assert_eq!(plan(&keys, "letmein").as_deref(), Some("free"));
        assert_eq!(keys.refresh(), Ok(false));

        fs::write(&path, "letmein acme gold\n").unwrap();
        let error = keys.refresh().unwrap_err();
        assert!(error.contains("line 1") && !error.contains("letmein"), "{error}");
        assert_eq!(plan(&keys, "letmein").as_deref(), Some("free"));

        fs::write(&path, "\nacme gold\n1234 acme gold\n").unwrap();
        let error = keys.refresh().unwrap_err();
        assert!(error.contains("line 2") && error.contains("line 3"), "{error}");

        fs::write(&path, format!("{LETMEIN} acme platinum\n")).unwrap();
        assert_eq!(keys.refresh(), Ok(true));
        assert_eq!(plan(&keys, "letmein").as_deref(), Some("platinum"));
    }
}
