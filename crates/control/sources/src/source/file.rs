//! Rules from files and directories.
//!
//! A path that is a file is read whatever it is called; of a directory, the
//! rule files in it and below it. Names that begin with a dot are skipped
//! there: editors leave such files, and Kubernetes keeps the real contents of a
//! mounted volume in `..data` beside links to them. Links are followed, and
//! a file that is reached twice is read once.
//!
//! Reads once, when asked, and says which places to watch. Watching them is
//! not here.

use std::path::PathBuf;

use tidegate_rules::Source;

use super::places::{Places, Watched};
use super::reading::{self, Naming, Reader};
use super::walk::{Selection, Walk};
use super::{LoadError, TextSource};

/// Rules from files and directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSource {
    paths: Vec<PathBuf>,
}

impl FileSource {
    /// A source of these files and directories, in this order.
    pub fn new(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        FileSource { paths: paths.into_iter().map(Into::into).collect() }
    }
}

impl TextSource for FileSource {
    fn load(&self) -> Result<Vec<Source>, LoadError> {
        let mut walk = Walk::new(Selection::RuleFiles, Reader::new(Naming::Path));
        for path in &self.paths {
            walk.given(path);
        }
        reading::texts(walk)
    }

    fn watched(&self) -> Watched {
        let mut walk = Walk::new(Selection::RuleFiles, Places::default());
        for path in &self.paths {
            walk.visitor.trail(path);
            walk.given(path);
        }
        // What is in the way is told by loading.
        let (places, _) = walk.finish();
        places.into_watched()
    }
}
