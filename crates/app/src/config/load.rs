//! Reads the file and the environment.

use std::ffi::OsString;
use std::path::Path;

use super::ConfigArgs;
use super::file::FILE_BYTES_MAX;
use super::layers::{Input, LoadedConfig, resolve};
use crate::exit::Failure;
use crate::input::read_source;

/// The configuration file that is read if no other is named.
const DEFAULT_PATH: &str = "tidegate.yaml";

/// The configuration from the file, the environment and the arguments.
pub(crate) fn load(args: &ConfigArgs) -> Result<LoadedConfig, Failure> {
    resolve(&input(args)?).map_err(Failure::Config)
}

/// The texts that the configuration is made of.
pub(crate) fn input(args: &ConfigArgs) -> Result<Input, Failure> {
    let default = Path::new(DEFAULT_PATH);
    let path = args.config.as_deref().or_else(|| default.exists().then_some(default));
    let file = path.map(|path| read_source(path, FILE_BYTES_MAX)).transpose()?;
    // A value that is not UTF-8 is replaced here and refused by its field.
    let text = |text: OsString| text.to_string_lossy().into_owned();
    let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    Ok(Input { file, variables, flags: args.flags() })
}
