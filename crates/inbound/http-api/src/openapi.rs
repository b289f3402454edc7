//! The document that says what is served.
//!
//! Written by hand, as a document is better written; tests keep it true.

/// An OpenAPI 3.1 document, in JSON.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

#[cfg(test)]
mod tests;
