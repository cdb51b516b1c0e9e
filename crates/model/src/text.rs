//! Names as the kernel has them: untrusted bytes, made safe to print.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Up to `N` bytes that end at the first NUL; `Display` never breaks a terminal, a line or a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text<const N: usize>([u8; N]);

impl<const N: usize> Text<N> {
    /// The first `N` bytes of `bytes`, cut at the first NUL.
    pub fn new(bytes: &[u8]) -> Self {
        let mut text = [0; N];
        for (to, from) in text.iter_mut().zip(bytes.iter().take_while(|byte| **byte != 0)) {
            *to = *from;
        }
        Self(text)
    }

    /// The bytes before the first NUL.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// True if there is no name.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

/// Serialises as a string if the bytes are UTF-8, else as an array of numbers, so that no byte is lost.
impl<const N: usize> Serialize for Text<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.as_bytes()) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_seq(self.as_bytes()),
        }
    }
}

impl<'de, const N: usize> Deserialize<'de> for Text<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum TextOrBytes {
            Text(String),
            Bytes(Vec<u8>),
        }
        Ok(match TextOrBytes::deserialize(deserializer)? {
            TextOrBytes::Text(text) => Self::new(text.as_bytes()),
            TextOrBytes::Bytes(bytes) => Self::new(&bytes),
        })
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(self.as_bytes()))
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// `bytes` as text that is safe in a terminal, a log line and a table cell: bytes that are not UTF-8, control
/// characters and the invisible characters that reorder a line become `\xNN` or `\u{NNNN}`; a backslash stays as it is.
pub fn printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\0'..='\x1f' | '\x7f' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
                '\u{80}'..='\u{9f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    out.push_str(&format!("\\u{{{:04x}}}", u32::from(c)));
                }
                _ => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hostile_names_are_spelled_out() {
        assert_eq!(Text::<16>::new(b"a\nb\x1b[31m\xff\0tail").to_string(), "a\\x0ab\\x1b[31m\\xff");
        assert_eq!(printable("\u{202e}gpj.exe".as_bytes()), "\\u{202e}gpj.exe");
        assert_eq!(printable("Müller".as_bytes()), "Müller");
    }

    proptest! {
        #[test]
        fn a_name_is_read_as_it_was_written(bytes: Vec<u8>) {
            let name = Text::<16>::new(&bytes);
            prop_assert_eq!(serde_json::from_str::<Text<16>>(&serde_json::to_string(&name).unwrap()).unwrap(), name);
        }

        #[test]
        fn printable_text_has_no_control_character(bytes: Vec<u8>) {
            prop_assert!(!printable(&bytes).chars().any(char::is_control));
        }
    }
}
