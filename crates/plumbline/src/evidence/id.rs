//! The name of an incident, which is also the stem of its bundle's file name.

use std::fmt;

/// The longest protocol or type in a name, characters; a longer one is cut.
const WORD: usize = 32;

/// `<UTC>-<protocol>-<type>-<seq>`, such as `20251120T102414Z-smb-latency-7`.
///
/// An `IncidentId` is safe in a path: it consists of ASCII letters, digits, `_` and the three hyphens only. Retention deletes
/// only files whose names parse as an `IncidentId`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IncidentId(String);

impl IncidentId {
    /// Makes the name of an incident. Unsafe characters of `protocol` and `kind` become `_`.
    pub fn new(detected: jiff::Timestamp, protocol: &str, kind: &str, sequence: u64) -> Self {
        let utc = detected.strftime("%Y%m%dT%H%M%SZ");
        Self(format!("{utc}-{}-{}-{sequence}", word(protocol), word(kind)))
    }

    /// Reads a name back; `None` if it is not exactly of this form.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.splitn(5, '-').collect();
        let [utc, protocol, kind, sequence] = parts.as_slice() else { return None };
        let whole =
            is_utc(utc) && [protocol, kind].iter().all(|part| word(part) == **part) && sequence.parse::<u64>().is_ok();
        (whole && sequence.bytes().all(|byte| byte.is_ascii_digit())).then(|| Self(text.to_owned()))
    }

    /// The id in a bundle's file name; `None` if it is not one.
    pub fn of_bundle(file_name: &str) -> Option<Self> {
        Self::parse(file_name.strip_suffix(".tar.zst")?)
    }

    /// The id in the file name of a half-written bundle; `None` if it is not one.
    pub fn of_temporary(file_name: &str) -> Option<Self> {
        Self::parse(file_name.strip_prefix('.')?.strip_suffix(".tmp")?)
    }

    /// The bundle's file name.
    pub fn bundle(&self) -> String {
        format!("{}.tar.zst", self.0)
    }

    /// The bundle's file name while it is being written.
    pub fn temporary(&self) -> String {
        format!(".{}.tmp", self.0)
    }

    /// The type in the name.
    pub fn kind(&self) -> &str {
        self.0.rsplit('-').nth(1).unwrap_or_default()
    }

    /// The sequence number at the end of the name.
    pub fn sequence(&self) -> u64 {
        self.0.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IncidentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_utc(text: &str) -> bool {
    text.len() == "20251120T102414Z".len()
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        })
}

fn word(text: &str) -> String {
    let safe: String =
        text.chars().take(WORD).map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if safe.is_empty() { "_".to_owned() } else { safe }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_id_says_when_what_and_which() {
        let id = IncidentId::new("2025-11-20T10:24:14.5Z".parse().unwrap(), "smb", "latency", 7);
        assert_eq!(id.bundle(), "20251120T102414Z-smb-latency-7.tar.zst");
        assert_eq!(IncidentId::of_bundle(&id.bundle()), Some(id.clone()));
        assert_eq!(IncidentId::of_temporary(&id.temporary()), Some(id.clone()));
        assert_eq!((id.kind(), id.sequence()), ("latency", 7));
    }

    #[test]
    fn names_of_others_are_not_ids() {
        for name in [
            "notes",
            "20251120T102414Z-smb-latency",
            "20251120T102414Z-smb-latency-7-8",
            "20251120T102414Z-..-x-1",
            "20251120T102414Z-smb-latency-+7",
            "2025112xT102414Z-smb-latency-7",
            "20251120T102414Z--x-1",
        ] {
            assert_eq!(IncidentId::parse(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_hostile_protocol_or_type_never_gets_into_a_path(protocol: String, kind: String, sequence: u64) {
            let id = IncidentId::new(jiff::Timestamp::UNIX_EPOCH, &protocol, &kind, sequence);
            prop_assert!(id.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'));
            prop_assert_eq!(IncidentId::of_bundle(&id.bundle()), Some(id));
        }
    }
}
