//! The last good snapshot on disk: whole or not at all, readable by its owner only.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FILE: &str = "snapshot";
const NEW_FILE: &str = "snapshot.new";

/// The directory with the copy.
#[derive(Clone, Debug)]
pub(crate) struct KeptCopy {
    directory: PathBuf,
}

/// A copy that is being written while its bytes are read.
#[derive(Debug)]
pub(crate) struct NewCopy {
    file: File,
    error: Option<io::Error>,
}

impl KeptCopy {
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ok(KeptCopy { directory: directory.to_owned() })
    }

    /// Reads the copy.
    pub(crate) fn read(&self) -> io::Result<BufReader<File>> {
        File::open(self.directory.join(FILE)).map(BufReader::new)
    }

    pub(crate) fn begin(&self) -> io::Result<NewCopy> {
        let path = self.directory.join(NEW_FILE);
        let options =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).clone();
        Ok(NewCopy { file: options.open(path)?, error: None })
    }

    /// Makes a new copy the last good one.
    pub(crate) fn commit(&self, copy: NewCopy) -> io::Result<()> {
        if let Some(error) = copy.error {
            return Err(error);
        }
        copy.file.sync_all()?;
        fs::rename(self.directory.join(NEW_FILE), self.directory.join(FILE))?;
        File::open(&self.directory)?.sync_all()
    }
}

/// Reads bytes, and writes them to a copy. A copy that cannot be written does not end the reading.
pub(crate) struct CopyReader<'c, R> {
    pub(crate) source: R,
    pub(crate) copy: Option<&'c mut NewCopy>,
}

impl<R: Read> Read for CopyReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.source.read(buffer)?;
        if let Some(copy) = &mut self.copy
            && copy.error.is_none()
        {
            let written = copy.file.write_all(buffer.get(..bytes).unwrap_or_default());
            copy.error = written.err();
        }
        Ok(bytes)
    }
}
