//! Tokens in the place of names.

use std::collections::{BTreeMap, HashMap};

/// Each name with its token. The same name has the same token, of whatever kind it was first met as.
#[derive(Debug, Default)]
pub struct Tokens {
    names: BTreeMap<String, String>,
    numbers: HashMap<&'static str, usize>,
}

impl Tokens {
    /// The token of a name.
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

    /// Puts a token in the place of a name; an empty one stays empty.
    pub fn replace(&mut self, kind: &'static str, name: &mut String) {
        if !name.is_empty() {
            *name = self.of(kind, name);
        }
    }

    /// Every name so far with its token, the longest first.
    pub fn longest_first(&self) -> Vec<(String, String)> {
        let mut names: Vec<_> = self.names.iter().map(|(name, token)| (name.clone(), token.clone())).collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        names
    }
}
