//! Tokens that replace names.

use std::collections::{BTreeMap, HashMap};

/// The tokens of names. A name keeps the token of the kind as which it was first seen.
#[derive(Debug, Default)]
pub struct Tokens {
    names: BTreeMap<String, String>,
    numbers: HashMap<&'static str, usize>,
}

impl Tokens {
    /// The token of a name; a new one, `<kind>-<number>`, for a new name.
    pub fn of(&mut self, kind: &'static str, name: &str) -> String {
        if let Some(token) = self.names.get(name) {
            return token.clone();
        }
        let number = self.numbers.entry(kind).or_default();
        *number += 1;
        let token = format!("{kind}-{number}");
        self.names.insert(name.to_owned(), token.clone());
        token
    }

    /// Replaces a name by its token; an empty name stays empty.
    pub fn replace(&mut self, kind: &'static str, name: &mut String) {
        if !name.is_empty() {
            *name = self.of(kind, name);
        }
    }

    /// All names so far with their tokens, longest name first.
    pub fn longest_first(&self) -> Vec<(String, String)> {
        let mut names: Vec<_> = self.names.iter().map(|(name, token)| (name.clone(), token.clone())).collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        names
    }
}
