//! The access tokens of the doors, which change with the configuration file.

use tidegate_access::{AccessToken, AccessTokens};

use crate::config::{Config, Debug, Token};
use crate::exit::Complaint;

/// The fields whose changes take effect without a restart.
pub(super) const FIELDS: [&str; 5] =
    ["grpc.tokens", "http.tokens", "debug.token", "debug.token_file", "debug.tokens"];

/// The tokens of each door. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct DoorTokens {
    pub(super) grpc: AccessTokens,
    pub(super) http: AccessTokens,
    pub(super) debug: AccessTokens,
}

impl DoorTokens {
    /// The tokens of a configuration. Reads `debug.token_file`.
    pub(super) fn of(config: &Config) -> Result<Self, Complaint> {
        Ok(DoorTokens {
            grpc: access_tokens(&config.grpc.tokens, None),
            http: access_tokens(&config.http.tokens, None),
            debug: debug_tokens(&config.debug)?,
        })
    }

    /// Replaces the tokens with those of another configuration, and logs the doors whose tokens differ. A list does not
    /// become empty: that would open the door, and a file may be empty while it is written.
    pub(super) fn replace(&self, tokens: &DoorTokens) {
        let doors = [
            ("grpc", &self.grpc, &tokens.grpc),
            ("http", &self.http, &tokens.http),
            ("debug", &self.debug, &tokens.debug),
        ];
        for (door, active, changed) in doors {
            if changed.is_empty() && !active.is_empty() {
                tracing::warn!(door, "no access tokens in the configuration: it takes a restart");
            } else if active.replace(changed) {
                tracing::info!(door, "activated other access tokens");
            }
        }
    }
}

/// The tokens of a list, and one more.
pub(crate) fn access_tokens(tokens: &[Token], secret: Option<AccessToken>) -> AccessTokens {
    AccessTokens::new(secret.into_iter().chain(tokens.iter().map(|token| token.get().clone())))
}

/// The tokens of the debug port; `debug.token` has all roles.
fn debug_tokens(debug: &Debug) -> Result<AccessTokens, Complaint> {
    let text = match (&debug.token, &debug.token_file) {
        (Some(token), _) => token.reveal().to_owned(),
        (None, Some(path)) => std::fs::read_to_string(path).map_err(|error| {
            let message = format!("`{}` cannot be read: {error}", path.display());
            Complaint::new(message, "check `debug.token_file`")
        })?,
        (None, None) => return Ok(access_tokens(&debug.tokens, None)),
    };
    let token = AccessToken::of_secret("debug.token", text.trim()).map_err(|error| {
        Complaint::new(format!("`debug.token` cannot be used: {error}"), "give another one")
    })?;
    Ok(access_tokens(&debug.tokens, Some(token)))
}
