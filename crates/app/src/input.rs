//! Texts from files and standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tidegate_rules::Source;

use crate::exit::Complaint;

/// The path that means standard input.
pub(crate) const STDIN: &str = "-";

/// The text of a file, or of standard input, up to one byte more than the maximum.
pub(crate) fn read_source(path: &Path, bytes_max: usize) -> Result<Source, Complaint> {
    if path == Path::new(STDIN) {
        let text = read_text("standard input", io::stdin().lock(), bytes_max)?;
        return Ok(Source::new("<stdin>", text));
    }
    read_file(path, bytes_max)
}

/// The text of a file, up to one byte more than the maximum.
pub(crate) fn read_file(path: &Path, bytes_max: usize) -> Result<Source, Complaint> {
    let quoted = format!("`{}`", path.display());
    let file = File::open(path).map_err(|error| unreadable(&quoted, &error))?;
    Ok(Source::new(path.to_string_lossy(), read_text(&quoted, file, bytes_max)?))
}

fn read_text(name: &str, input: impl Read, bytes_max: usize) -> Result<String, Complaint> {
    let mut bytes = Vec::new();
    let most = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    input.take(most).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
    String::from_utf8(bytes).map_err(|_| {
        Complaint::new(format!("{name} is not UTF-8 text"), "save the YAML text in UTF-8")
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
        _ => (format!("cannot be read: {error}"), "check that it is a file"),
    };
    Complaint::new(format!("{name} {what}"), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_not_utf_8_is_refused() {
        for name in ["it", "standard input"] {
            let message = read_text(name, [0xff].as_slice(), 9).unwrap_err().message;
            assert_eq!(message, format!("{name} is not UTF-8 text"));
        }
    }

    #[test]
    fn an_endless_file_is_not_read_to_its_end() {
        assert_eq!(read_text("it", io::repeat(b'#'), 99).unwrap().len(), 100);
    }
}
