//! What a limiter does, and which networks are meant.

use std::fmt;

use ipnet::IpNet;
use serde_json::Value;
use tidegate_document::Scalar;
use tidegate_engine::Mode;


use super::text::filled;
use super::{Bounds, Shape, Single, Wrong};

impl Single for Mode {
    const SHAPE: Shape = Shape::Mode;

    fn read(written: &Scalar<'_>, _: &Bounds) -> Result<Self, Wrong> {
        let text = &*written.text;
        Mode::parse(text).ok_or_else(|| {
            Wrong::new("unknown_choice", format!("`{text}` is no mode"))
                .hint(format!("it can be {}", Mode::SYNTAX))
        })
    }

    fn shown(&self) -> Value {
        Value::from(self.to_string())
    }
}

/// A network, such as `10.0.0.0/8`; an address is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    /// The network itself.
    pub const fn get(self) -> IpNet {
        self.0
    }
}

impl fmt::Display for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, out)
    }
}

impl Single for Network {
    const SHAPE: Shape = Shape::Network;

    fn read(written: &Scalar<'_>, _: &Bounds) -> Result<Self, Wrong> {
        let text = filled(written, Self::SHAPE)?;
        let address = || text.parse().ok().map(|address: std::net::IpAddr| IpNet::from(address));
        text.parse().ok().or_else(address).map(Network).ok_or_else(|| {
            Wrong::new("invalid_network", format!("`{text}` is no network"))
                .hint("write `10.0.0.0/8`, `fd00::/8` or an address")
        })
    }

    fn shown(&self) -> Value {
        Value::from(self.to_string())
    }
}

/// Where a log goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogTo {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
    /// The end of a file.
    File(std::path::PathBuf),
}

impl Single for LogTo {
    const SHAPE: Shape = Shape::Path;

    fn read(written: &Scalar<'_>, _: &Bounds) -> Result<Self, Wrong> {
        Ok(match filled(written, Self::SHAPE)? {
            "stdout" => LogTo::Stdout,
            "stderr" => LogTo::Stderr,
            path => LogTo::File(path.into()),
        })
    }

    fn shown(&self) -> Value {
        Value::from(match self {
            LogTo::Stdout => "stdout".to_owned(),
            LogTo::Stderr => "stderr".to_owned(),
            LogTo::File(path) => path.to_string_lossy().into_owned(),
        })
    }
}
