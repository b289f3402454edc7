//! Changes to the fields of a message, as an operator wants them.

use http::HeaderMap;

use crate::settings::HeaderEdit;

/// Changes, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edits(Box<[HeaderEdit]>);

impl Edits {
    pub(crate) fn of(edits: &[HeaderEdit]) -> Self {
        Edits(edits.into())
    }

    /// Makes the changes. A message with tens of thousands of fields gets no more.
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
