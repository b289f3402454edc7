//! The directory in which Tidegate keeps its files.
//!
//! One process opens it at a time. The directory has mode 0700 and its files 0600, because records may hold header
//! fields with secrets. A file `format` says which layout the directory has. Each component keeps one SQLite database in
//! it, with numbered migrations.
//!
//! SQLite runs in WAL mode with `synchronous=FULL`: a commit that returned survives the loss of power. The library is
//! bundled, because versions before 3.51.3 have a race between a reset of the WAL and a checkpoint that damages files.
//!
//! What the tables mean is the business of each component.
//!
//! ```
//! use tidegate_data_dir::{DataDir, Schema};
//!
//! const NOTES: Schema = Schema {
//!     name: "notes",
//!     application_id: 0x7467_6e74,
//!     migrations: &["CREATE TABLE notes (text TEXT NOT NULL) STRICT"],
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let parent = tempfile::tempdir()?;
//! # let path = parent.path().join("data");
//! let directory = DataDir::open(&path)?;
//! let database = directory.open_database(&NOTES)?;
//! database.execute("INSERT INTO notes VALUES ('hello')", [])?;
//!
//! // A copy of everything, made while the database is in use; it is a data directory itself.
//! tidegate_data_dir::back_up(&path, &parent.path().join("copy"))?;
//! # Ok(())
//! # }
//! ```

mod backup;
mod database;
mod directory;
mod error;

pub use backup::back_up;
pub use database::{SQLITE_VERSION_MIN, Schema};
pub use directory::{DataDir, FORMAT_VERSION};
pub use error::DataDirError;
