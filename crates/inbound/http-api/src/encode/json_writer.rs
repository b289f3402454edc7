//! Writes JSON objects field by field into a buffer.
//!
//! By hand, because each check writes an answer: derived serializers take three times as long.

use tidegate_answers::write_number;

/// A JSON object that is being written.
pub(crate) struct JsonWriter<'o> {
    out: &'o mut Vec<u8>,
    has_fields: bool,
}

impl<'o> JsonWriter<'o> {
    /// Starts an object; [`JsonWriter::end`] ends it.
    pub(crate) fn new(out: &'o mut Vec<u8>) -> Self {
        JsonWriter { out, has_fields: false }
    }

    pub(crate) fn end(self) {
        self.out.extend_from_slice(if self.has_fields { b"}" } else { b"{}" });
    }

    pub(crate) fn flag(&mut self, key: &'static str, flag: bool) {
        self.key(key);
        self.out.extend_from_slice(if flag { b"true" } else { b"false" });
    }

    /// Left out if it is false.
    pub(crate) fn flag_if(&mut self, key: &'static str, flag: bool) {
        if flag {
            self.flag(key, true);
        }
    }

    pub(crate) fn number(&mut self, key: &'static str, number: u64) {
        self.key(key);
        write_number(self.out, number);
    }

    pub(crate) fn some_number(&mut self, key: &'static str, number: Option<u64>) {
        if let Some(number) = number {
            self.number(key, number);
        }
    }

    pub(crate) fn text(&mut self, key: &'static str, text: &str) {
        self.key(key);
        write_text(self.out, text);
    }

    pub(crate) fn some_text(&mut self, key: &'static str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(key, text);
        }
    }

    /// An object as the value of a field.
    pub(crate) fn object(&mut self, key: &'static str, write: impl FnOnce(&mut JsonWriter<'_>)) {
        self.key(key);
        let mut object = JsonWriter::new(self.out);
        write(&mut object);
        object.end();
    }

    /// A list of objects as the value of a field.
    pub(crate) fn objects<T>(
        &mut self,
        key: &'static str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(T, &mut JsonWriter<'_>),
    ) {
        self.key(key);
        self.out.push(b'[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            let mut object = JsonWriter::new(self.out);
            write(item, &mut object);
            object.end();
        }
        self.out.push(b']');
    }

    /// Inlined, so that the key is copied as a constant.
    #[inline(always)]
    fn key(&mut self, key: &'static str) {
        self.out.extend_from_slice(if self.has_fields { b",\"" } else { b"{\"" });
        self.has_fields = true;
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }
}

/// Writes a string with its quotes.
fn write_text(out: &mut Vec<u8>, text: &str) {
    let is_special = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    if text.bytes().fold(false, |special, byte| special | is_special(byte)) {
        // Cannot fail: a string into memory.
        let _ = serde_json::to_writer(out, text);
        return;
    }
    out.reserve(text.len().saturating_add(2));
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn written(write: impl FnOnce(&mut JsonWriter<'_>)) -> Value {
        let mut out = Vec::new();
        let mut object = JsonWriter::new(&mut out);
        write(&mut object);
        object.end();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn fields_keep_their_order_and_absent_ones_are_left_out() {
        let value = written(|object| {
            object.some_number("none", None);
            object.flag("yes", true);
            object.flag_if("no", false);
            object.object("inner", |_| {});
            object.objects("list", [1, 2], |number, object| object.number("n", number));
            object.some_text("text", Some("t"));
        });
        let expected = json!({"yes": true, "inner": {}, "list": [{"n": 1}, {"n": 2}], "text": "t"});
        assert_eq!(value, expected);
        assert_eq!(written(|_| {}), json!({}));
    }

    proptest! {
        #[test]
        fn any_text_and_number_is_read_back(text: String, number: u64) {
            let value = written(|object| {
                object.text("text", &text);
                object.number("number", number);
            });
            prop_assert_eq!(value, json!({"text": text, "number": number}));
        }
    }
}
