//! One request as a log shows it.

use std::borrow::Cow;

use tidegate_algorithms::{Nanos, Timestamp};

/// The most fields of one line that are kept.
pub(crate) const FIELDS_MAX: usize = 64;

/// How exactly a log gives the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimeResolution {
    /// Whole seconds: requests of one second are spread evenly over it, in the order of the file.
    #[default]
    Second,
    /// Parts of a second.
    Exact,
}

/// One request as a log shows it. What the log does not have is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedRequest<'l> {
    /// When it began, or when it ended if `ends_at` says so.
    pub time: Timestamp,
    /// How exact the time is.
    pub resolution: TimeResolution,
    /// Whether the time is that of the end.
    pub ends_at: bool,
    /// How long it took.
    pub duration: Option<Nanos>,
    /// The client's address.
    pub client: Option<Cow<'l, str>>,
    /// The user.
    pub user: Option<Cow<'l, str>>,
    /// The method.
    pub method: Option<Cow<'l, str>>,
    /// The target: path and query.
    pub target: Option<Cow<'l, str>>,
    /// The requested host.
    pub host: Option<Cow<'l, str>>,
    /// The status of the answer.
    pub status: Option<u16>,
    /// Whether a rate limit refused it, by the status or the flags of the log.
    pub refused: bool,
    /// Other variables, by the name that nginx gives them: `http_x_user`, `cookie_id`, `geoip_country`.
    pub fields: Vec<(Cow<'l, str>, Cow<'l, str>)>,
}

impl<'l> LoggedRequest<'l> {
    /// When the request began: logs that are written at the end say how long it took, or it is not known.
    pub fn began(&self) -> Timestamp {
        let took = self.duration.filter(|_| self.ends_at).unwrap_or(Nanos::ZERO);
        Timestamp::from_nanos(self.time.as_nanos().saturating_sub(took.get()))
    }

    /// The path without the query.
    pub fn path(&self) -> Option<&str> {
        let target = self.target.as_deref()?;
        Some(target.split(['?', '#']).next().unwrap_or(target))
    }

    /// The value of a variable, by the name that nginx gives it. `-` in a log stands for no value.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let found = match name {
            "remote_addr" => self.client.as_deref(),
            "remote_user" => self.user.as_deref(),
            "request_method" => self.method.as_deref(),
            "request_uri" => self.target.as_deref(),
            "uri" => self.path(),
            "host" => self.host.as_deref(),
            _ => self.field(name).or_else(|| self.argument(name.strip_prefix("arg_")?)),
        };
        found.filter(|value| !value.is_empty() && *value != "-")
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// An argument of the query, as it is written.
    fn argument(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.as_deref()?.split_once('?')?;
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Adds a variable, unless there are too many.
    pub(crate) fn add_field(&mut self, name: impl Into<Cow<'l, str>>, value: Cow<'l, str>) {
        if self.fields.len() < FIELDS_MAX {
            self.fields.push((name.into(), value));
        }
    }

    /// Takes a request line apart: `GET /path HTTP/1.1`.
    pub(crate) fn set_request_line(&mut self, line: Cow<'l, str>) {
        let (method, target) = match line {
            Cow::Borrowed(line) => {
                let mut parts = line.split(' ');
                (parts.next().map(Cow::Borrowed), parts.next().map(Cow::Borrowed))
            }
            Cow::Owned(line) => {
                let mut parts = line.split(' ').map(|part| Cow::Owned(part.to_owned()));
                (parts.next(), parts.next())
            }
        };
        if target.is_some() {
            (self.method, self.target) = (method, target);
        }
    }
}
