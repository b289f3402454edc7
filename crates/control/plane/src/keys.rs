//! The key files of a control plane: `keys/` in its data directory, mode 0600.
//!
//! - `signing.key` signs snapshots; `signing.next.key` is the key that replaces it, while servers learn to trust it.
//! - `epoch.key` certifies new epochs. It belongs to a safe place, away from this machine.
//! - `epoch.certificate` permits the signing key to sign in an epoch: its number, and the certificate.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tidegate_snapshot_file::{EpochCertificate, PublicKey, SigningKey};

use crate::error::PlaneError;

const SIGNING: &str = "signing.key";
const NEXT: &str = "signing.next.key";
const EPOCH: &str = "epoch.key";
const CERTIFICATE: &str = "epoch.certificate";

/// The keys of a new control plane.
#[derive(Debug)]
pub struct NewKeys {
    /// Signs snapshots.
    pub signing: SigningKey,
    /// Certifies new epochs.
    pub epoch: SigningKey,
}

/// The key files of a data directory.
#[derive(Clone, Debug)]
pub struct KeyFiles {
    directory: PathBuf,
}

impl KeyFiles {
    /// Those of this data directory.
    pub fn of(data_dir: &Path) -> Self {
        KeyFiles { directory: data_dir.join("keys") }
    }

    /// Where they are.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Makes the keys of a new control plane.
    ///
    /// # Errors
    /// When there are keys already, or the directory cannot be written.
    pub fn create(&self) -> Result<NewKeys, PlaneError> {
        self.create_directory()?;
        let (signing, epoch) = (generate()?, generate()?);
        self.write(SIGNING, &signing.to_secret_text())?;
        self.write(EPOCH, &epoch.to_secret_text())?;
        Ok(NewKeys { signing, epoch })
    }

    /// The key that signs.
    ///
    /// # Errors
    /// When it is missing, unreadable, or readable by others.
    pub fn signing(&self) -> Result<SigningKey, PlaneError> {
        self.read(SIGNING)
    }

    /// Makes the next key, or finds the one that was made. Its public key.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn next(&self) -> Result<PublicKey, PlaneError> {
        if self.directory.join(NEXT).exists() {
            return Ok(self.read(NEXT)?.public_key());
        }
        let next = generate()?;
        self.write(NEXT, &next.to_secret_text())?;
        Ok(next.public_key())
    }

    /// Makes the next key the one that signs. Its public key.
    ///
    /// # Errors
    /// When there is no next key.
    pub fn finish_rotation(&self) -> Result<PublicKey, PlaneError> {
        let next = self.read(NEXT)?;
        fs::rename(self.directory.join(NEXT), self.directory.join(SIGNING))
            .and_then(|()| File::open(&self.directory)?.sync_all())
            .map_err(|error| failed(&self.directory, &error))?;
        Ok(next.public_key())
    }

    /// Permits the signing key to sign in an epoch of a cell, and no other key.
    ///
    /// # Errors
    /// When the certificate cannot be written.
    pub fn certify(&self, by: &SigningKey, cell: &str, epoch: u64) -> Result<(), PlaneError> {
        let certificate = by.certify_epoch(cell, epoch, &self.signing()?.public_key());
        let _ = fs::remove_file(self.directory.join(CERTIFICATE));
        self.write(CERTIFICATE, &format!("{epoch} {certificate}"))
    }

    /// The epoch that is certified, and its certificate.
    ///
    /// # Errors
    /// When the file holds something else.
    pub fn certificate(&self) -> Result<Option<(u64, EpochCertificate)>, PlaneError> {
        let path = self.directory.join(CERTIFICATE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&path, &error)),
        };
        let parsed = text.trim().split_once(' ').and_then(|(epoch, certificate)| {
            Some((epoch.parse().ok()?, certificate.parse().ok()?))
        });
        let damaged = || PlaneError::Damaged(format!("{} holds no certificate", path.display()));
        parsed.map(Some).ok_or_else(damaged)
    }

    fn create_directory(&self) -> Result<(), PlaneError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        made.map_err(|error| failed(&self.directory, &error))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), PlaneError> {
        let path = self.directory.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| {
            writeln!(file, "{text}")?;
            file.sync_all()
        });
        written.map_err(|error| failed(&path, &error))
    }

    fn read(&self, name: &str) -> Result<SigningKey, PlaneError> {
        let path = self.directory.join(name);
        let text = fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
        let mode = fs::metadata(&path).map_err(|error| failed(&path, &error))?.permissions().mode();
        if mode & 0o077 != 0 {
            let text = format!("{} can be read by others; run `chmod 600` on it", path.display());
            return Err(PlaneError::Forbidden(text));
        }
        let damaged = |error| PlaneError::Damaged(format!("{}: {error}", path.display()));
        text.trim().parse().map_err(damaged)
    }
}

fn generate() -> Result<SigningKey, PlaneError> {
    SigningKey::generate().map_err(|error| PlaneError::Unavailable(error.to_string()))
}

fn failed(path: &Path, error: &std::io::Error) -> PlaneError {
    PlaneError::Unavailable(format!("{}: {error}", path.display()))
}

/// Copies the database and the keys of a data directory to a new one, also while it is in use.
///
/// # Errors
/// When the copy cannot be made.
pub fn back_up(source: &Path, destination: &Path) -> Result<(), PlaneError> {
    tidegate_data_dir::back_up(source, destination)?;
    let (from, to) = (KeyFiles::of(source), KeyFiles::of(destination));
    if !from.directory.is_dir() {
        return Ok(());
    }
    to.create_directory()?;
    for entry in fs::read_dir(&from.directory).map_err(|error| failed(&from.directory, &error))? {
        let path = entry.map_err(|error| failed(&from.directory, &error))?.path();
        let text = fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        to.write(&name.unwrap_or_default(), text.trim())?;
    }
    Ok(())
}
