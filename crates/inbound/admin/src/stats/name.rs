//! Names that statistics systems accept.

/// Cleans a name like envoyproxy/ratelimit: `:` and `|` become `_`, and so do the dots of IPv4 addresses, because a dot
/// separates levels. Control characters and spaces become `_` too.
pub(super) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    let mut after_digit = false;
    while let Some(letter) = rest.chars().next() {
        let address = if after_digit { 0 } else { address_length(rest) };
        let length = if address > 0 { address } else { letter.len_utf8() };
        let (part, next) = rest.split_at(length);
        if address > 0 {
            cleaned.extend(part.chars().map(|letter| if letter == '.' { '_' } else { letter }));
        } else if matches!(letter, ':' | '|') || letter.is_control() || letter.is_whitespace() {
            cleaned.push('_');
        } else {
            cleaned.push(letter);
        }
        after_digit = letter.is_ascii_digit();
        rest = next;
    }
    cleaned
}

/// The length of the IPv4 address at the start of the text; zero if there is none.
fn address_length(text: &str) -> usize {
    let mut length = 0;
    for part in 0..4 {
        let rest = text.get(length..).unwrap_or_default();
        let rest = if part == 0 { Some(rest) } else { rest.strip_prefix('.') };
        let Some(rest) = rest else { return 0 };
        let digits = rest.bytes().take(3).take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return 0;
        }
        length += usize::from(part > 0) + digits;
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_of_addresses_become_underscores_and_others_stay() {
        assert_eq!(clean("remote_address_10.0.0.1.path_/x"), "remote_address_10_0_0_1.path_/x");
        assert_eq!(clean("10.0.0.1"), "10_0_0_1");
        assert_eq!(clean("version_1.2.3"), "version_1.2.3");
        assert_eq!(clean("a.b.c.d"), "a.b.c.d");
        assert_eq!(clean("255.255.255.255"), "255_255_255_255");
    }

    #[test]
    fn separators_of_statistics_systems_become_underscores() {
        assert_eq!(clean("key_a:b|c"), "key_a_b_c");
        assert_eq!(clean("key_::1"), "key___1");
    }

    #[test]
    fn no_value_makes_a_line_of_its_own() {
        assert_eq!(clean("a\nb: 7\r\tc\u{2028}"), "a_b__7__c_");
    }
}
