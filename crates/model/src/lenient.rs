//! Reading what another version, or somebody else, has written: what is missing or not understood is as if it were not there.

use serde::{Deserialize, Deserializer, de::IgnoredAny};

#[derive(Deserialize)]
#[serde(untagged)]
enum Lenient<T> {
    Understood(T),
    Other(IgnoredAny),
}

impl<T> Lenient<T> {
    fn ok(self) -> Option<T> {
        match self {
            Self::Understood(value) => Some(value),
            Self::Other(_) => None,
        }
    }
}

/// A field; its default if it holds anything but what it should.
pub fn lenient<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Lenient::deserialize(deserializer)?.ok().unwrap_or_default())
}

/// A list without those of its elements that are not what they should be; empty if it is no list.
pub fn lenient_list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let list: Vec<Lenient<T>> = lenient(deserializer)?;
    Ok(list.into_iter().filter_map(Lenient::ok).collect())
}
