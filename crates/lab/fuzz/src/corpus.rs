//! The corpus: one folder of inputs for each target.
//!
//! The rule parser also reads its examples and test cases. Inputs that a run finds are added, so
//! that every later run tries them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::target::TargetName;

/// The depth of the folders. Cases are two folders deep.
const DEPTH_MAX: usize = 3;

/// The inputs of one target.
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
            TargetName::Config
            | TargetName::Json
            | TargetName::Rls
            | TargetName::Gateway
            | TargetName::Logs
            | TargetName::Pages
            | TargetName::Delivery => &[],
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

    /// Adds an input and returns its path.
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
