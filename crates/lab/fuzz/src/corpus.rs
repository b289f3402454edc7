//! The inputs that are kept: one folder for each target.
//!
//! The rule parser is also given the examples and the cases of its own tests,
//! where they are. What a run finds is added here, so that it is tried for ever.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::target::TargetName;

/// How deep folders are looked into. Cases are two folders deep.
const DEPTH_MAX: usize = 3;

/// The inputs that are kept for one target.
#[derive(Clone, Debug)]
pub struct Corpus {
    folder: PathBuf,
    elsewhere: Vec<PathBuf>,
}

impl Corpus {
    /// The inputs in this repository.
    pub fn of(target: TargetName) -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let elsewhere: &[&str] = match target {
            TargetName::Rules => &["../../../examples/rules", "../../decision/rules/tests/cases"],
            TargetName::Config | TargetName::Json | TargetName::Rls | TargetName::Gateway => &[],
        };
        Corpus {
            folder: here.join("corpus").join(target.as_str()),
            elsewhere: elsewhere.iter().map(|path| here.join(path)).collect(),
        }
    }

    /// All inputs, in the order of their paths.
    ///
    /// # Errors
    /// When a folder or a file cannot be read.
    pub fn read(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut paths = Vec::new();
        for folder in self.elsewhere.iter().chain([&self.folder]) {
            find(folder, DEPTH_MAX, &mut paths)?;
        }
        paths.sort();
        paths.iter().map(fs::read).collect()
    }

    /// Keeps an input, and says where.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self, name: &str, input: &[u8]) -> io::Result<PathBuf> {
        fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(name);
        fs::write(&path, input)?;
        Ok(path)
    }
}

fn find(folder: &Path, depth: usize, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && depth > 0 {
            find(&path, depth - 1, paths)?;
        } else if path.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}
