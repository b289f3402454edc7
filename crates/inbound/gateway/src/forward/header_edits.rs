//! Edits of header fields, as configured for a route.

use http::HeaderMap;

use crate::settings::HeaderEdit;

/// Edits, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderEdits(Box<[HeaderEdit]>);

impl HeaderEdits {
    pub(crate) fn of(edits: &[HeaderEdit]) -> Self {
        HeaderEdits(edits.into())
    }

    /// Applies the edits. A message that has reached the maximum number of fields gets no more.
    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        for edit in &self.0 {
            match edit {
                HeaderEdit::Set(name, value) => {
                    let _ = headers.try_insert(name, value.clone());
                }
                HeaderEdit::Add(name, value) => {
                    let _ = headers.try_append(name, value.clone());
                }
                HeaderEdit::Remove(name) => {
                    headers.remove(name);
                }
            }
        }
    }
}
