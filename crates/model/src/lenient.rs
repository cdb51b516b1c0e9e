//! Reading files of another version or another program: a field that is missing or invalid gets its default.

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

/// Deserialises a field; returns its default if the value is invalid.
pub fn lenient<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Lenient::deserialize(deserializer)?.ok().unwrap_or_default())
}

/// Deserialises a list without its invalid elements; returns an empty list if the value is no list.
pub fn lenient_list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let list: Vec<Lenient<T>> = lenient(deserializer)?;
    Ok(list.into_iter().filter_map(Lenient::ok).collect())
}
