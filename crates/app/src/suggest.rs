//! "Did you mean": the nearest word, by edits.

pub(crate) use tidegate_rules::closest;

/// "did you mean `x`?", or else what there is.
pub(crate) fn did_you_mean(typed: &str, words: &[&str], otherwise: &str) -> String {
    match closest(typed, words.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => otherwise.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_word_that_was_mistyped() {
        assert_eq!(closest("usr", ["path", "user"]), Some("user"));
        assert_eq!(closest("WAIT", ["wait", "rules"]), Some("wait"));
        assert_eq!(closest("/logon", ["/login", "/logout"]), Some("/login"));
    }

    #[test]
    fn suggests_nothing_when_no_word_is_near() {
        assert_eq!(closest("colour", ["user", "path"]), None);
        assert_eq!(closest(&"u".repeat(1000), ["user"]), None);
        assert_eq!(closest("", ["user"]), None);
        let otherwise = did_you_mean("colour", &["user"], "there is only user");
        assert_eq!(otherwise, "there is only user");
    }
}
