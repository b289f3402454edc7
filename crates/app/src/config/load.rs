//! Reading the file and the environment.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tidegate_rules::Source;

use super::ConfigArgs;
use super::file::FILE_BYTES_MAX;
use super::layers::{Input, Loaded, resolve};
use crate::exit::{Complaint, Failure};

/// Where the configuration is looked for when nobody says where.
const DEFAULT_PATH: &str = "tidegate.yaml";

/// The configuration that the arguments, the environment and the file make.
pub(crate) fn load(args: &ConfigArgs) -> Result<Loaded, Failure> {
    resolve(&input(args)?).map_err(Failure::Config)
}

/// The texts that the configuration is made of.
pub(crate) fn input(args: &ConfigArgs) -> Result<Input, Failure> {
    let file = match &args.config {
        Some(path) => Some(read(path)?),
        None if Path::new(DEFAULT_PATH).exists() => Some(read(&PathBuf::from(DEFAULT_PATH))?),
        None => None,
    };
    // What is no text cannot be right; the field that it is for will say so.
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    Ok(Input { file, variables, flags: args.flags() })
}

fn read(path: &Path) -> Result<Source, Complaint> {
    if path == Path::new("-") {
        return Ok(Source::new(
            "<stdin>",
            text("standard input", io::stdin().lock(), FILE_BYTES_MAX)?,
        ));
    }
    Ok(Source::new(path.to_string_lossy(), read_text(path, FILE_BYTES_MAX)?))
}

/// The text in a file, up to a byte more than the most.
pub(crate) fn read_text(path: &Path, bytes_max: usize) -> Result<String, Complaint> {
    let quoted = format!("`{}`", path.to_string_lossy());
    let file = File::open(path).map_err(|error| unreadable(&quoted, &error))?;
    text(&quoted, file, bytes_max)
}

fn text(name: &str, input: impl Read, bytes_max: usize) -> Result<String, Complaint> {
    let mut bytes = Vec::new();
    let most = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    input.take(most).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
    String::from_utf8(bytes).map_err(|_| {
        let message = format!("{name} is not UTF-8 text");
        Complaint::new(message, "a configuration is YAML text in UTF-8")
    })
}

fn unreadable(name: &str, error: &io::Error) -> Complaint {
    let (what, help) = match error.kind() {
        io::ErrorKind::NotFound => {
            ("does not exist".to_owned(), "check the spelling, and the directory that you are in")
        }
        io::ErrorKind::PermissionDenied => {
            ("may not be read".to_owned(), "give this user the right to read it")
        }
        io::ErrorKind::IsADirectory => ("is a directory".to_owned(), "name the file in it"),
        _ => (format!("cannot be read: {error}"), "see that it is a file"),
    };
    Complaint::new(format!("{name} {what}"), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_refused() {
        let message = text("it", [0xff].as_slice(), 9).unwrap_err().message;
        assert_eq!(message, "it is not UTF-8 text");
    }

    #[test]
    fn a_file_without_end_is_not_read_to_its_end() {
        assert_eq!(text("it", io::repeat(b'#'), 99).unwrap().len(), 100);
    }
}
