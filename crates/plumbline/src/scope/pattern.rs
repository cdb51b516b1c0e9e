//! Patterns of the shell's `case`: `*` stands for any text, slashes included, and `?` for one character.

/// A pattern. All other characters stand for themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// The pattern that is written so.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern has several components of a path.
    pub fn has_slash(&self) -> bool {
        self.0.contains('/')
    }

    /// Whether the pattern matches the whole text.
    pub fn matches(&self, text: &[u8]) -> bool {
        matches(self.0.as_bytes(), text, |one, other| one == other)
    }

    /// As [`Pattern::matches`], ignoring the case of ASCII letters.
    pub fn matches_in_any_case(&self, text: &[u8]) -> bool {
        matches(self.0.as_bytes(), text, |one, other| one.eq_ignore_ascii_case(&other))
    }
}

/// Takes at most as many steps as the product of both lengths, since only the last `*` is tried again.
fn matches(pattern: &[u8], text: &[u8], same: impl Fn(u8, u8) -> bool) -> bool {
    let (mut at, mut position) = (0, 0);
    // The position after the last `*`, and the earliest end of the text that the `*` stands for.
    let mut retry: Option<(usize, usize)> = None;
    while let Some(byte) = text.get(position) {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                retry = Some((at, position));
            }
            Some(b'?') => {
                at += 1;
                position += character(text, position);
            }
            Some(expected) if same(*expected, *byte) => {
                at += 1;
                position += 1;
            }
            _ => {
                let Some((behind, end)) = retry else { return false };
                retry = Some((behind, end + 1));
                (at, position) = (behind, end + 1);
            }
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|rest| *rest == b'*')
}

/// The length in bytes of the UTF-8 character at this position.
fn character(text: &[u8], position: usize) -> usize {
    let continues = text.iter().skip(position + 1).take_while(|byte| **byte & 0xc0 == 0x80);
    1 + continues.take(3).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_like(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern).matches(text.as_bytes())
    }

    #[test]
    fn patterns_are_those_of_the_shell() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "/srv/a"),
            ("/srv/*", "/srv/a/b"),
            ("*.tmp", "a.tmp.tmp"),
            ("k?orker*", "kworker/0:1"),
            ("a*b*c", "a-b-b-c"),
            ("M?ller", "Müller"),
            ("1234[5].pbs", "1234[5].pbs"),
            ("", ""),
        ] {
            assert!(is_like(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("", "a"), ("a", ""), ("?", ""), ("/srv/*", "/srv"), ("*.tmp", "a.tmpx"), ("a", "A"), ("a*b*c", "a-c-b")]
        {
            assert!(!is_like(pattern, text), "{pattern} {text}");
        }
        assert!(Pattern::new("Server*").matches_in_any_case(b"sERVER1"));
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_time() {
        assert!(!is_like(&"*a".repeat(2000), &"a".repeat(1999)));
    }

    proptest! {
        #[test]
        fn text_is_like_itself_and_like_what_a_star_replaces(text in "[^*?]{0,20}", from in 0_usize..20, to in 0_usize..20) {
            prop_assert!(is_like(&text, &text));
            let letters: Vec<char> = text.chars().collect();
            let (from, to) = (from.min(letters.len()), to.min(letters.len()));
            let (from, to) = (from.min(to), from.max(to));
            let cut: String = letters[..from].iter().chain(['*'].iter()).chain(&letters[to..]).collect();
            prop_assert!(is_like(&cut, &text), "{} {}", cut, text);
        }

        #[test]
        fn no_pattern_and_no_bytes_break_it(pattern: String, text: Vec<u8>) {
            let _ = Pattern::new(&pattern).matches(&text);
        }
    }
}
