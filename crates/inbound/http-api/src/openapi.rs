//! The OpenAPI document of the API, written by hand. Tests compare it with the routes and with real answers.

/// An OpenAPI 3.1 document, in JSON.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

#[cfg(test)]
mod tests;
