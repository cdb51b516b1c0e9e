//! A cache of recently used values, limited by bytes.

use std::{collections::HashMap, hash::Hash};

/// The bytes of the table for each entry, besides key and value.
const OVERHEAD: usize = 64;

/// Values by key, in two halves. When the new half is full, the old half is dropped, and the new one becomes the old one. A value that is used
/// moves to the new half.
#[derive(Debug)]
pub struct RecentValues<K, V> {
    new: HashMap<K, (V, usize)>,
    old: HashMap<K, (V, usize)>,
    new_bytes: usize,
    /// The limit of each half, bytes.
    most_bytes: usize,
}

impl<K: Eq + Hash + Clone, V: Clone> RecentValues<K, V> {
    /// A cache of at most this many bytes.
    pub fn within(bytes: usize) -> Self {
        Self { new: HashMap::new(), old: HashMap::new(), new_bytes: 0, most_bytes: bytes / 2 }
    }

    /// The value of the key, if it is cached.
    pub fn get(&mut self, key: &K) -> Option<V> {
        if let Some((value, _)) = self.new.get(key) {
            return Some(value.clone());
        }
        let (value, bytes) = self.old.remove(key)?;
        self.put(key.clone(), value.clone(), bytes);
        Some(value)
    }

    /// Adds a value that has `heap` bytes on the heap.
    pub fn insert(&mut self, key: K, value: V, heap: usize) {
        self.old.remove(&key);
        self.put(key, value, heap + size_of::<(K, V)>() + OVERHEAD);
    }

    fn put(&mut self, key: K, value: V, bytes: usize) {
        if self.new_bytes + bytes > self.most_bytes {
            (self.old, self.new_bytes) = (std::mem::take(&mut self.new), 0);
        }
        self.new_bytes += bytes;
        if let Some((_, before)) = self.new.insert(key, (value, bytes)) {
            self.new_bytes = self.new_bytes.saturating_sub(before);
        }
    }

    /// How many values are kept.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.new.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_gives_way() {
        let mut recent = RecentValues::within(100_000);
        for number in 0..10_000_u32 {
            recent.insert(number, (), 100);
            assert_eq!(recent.get(&0), Some(()), "after {number}");
            assert!(recent.len() <= 600, "{}", recent.len());
        }
        assert_eq!((recent.get(&9_999), recent.get(&1_000)), (Some(()), None));
    }

    #[test]
    fn a_value_that_is_set_again_counts_once() {
        let mut recent = RecentValues::within(10_000);
        (0..1_000).for_each(|value| recent.insert("a", value, 100));
        recent.insert("b", 0, 100);
        assert_eq!((recent.get(&"a"), recent.get(&"b"), recent.len()), (Some(999), Some(0), 2));
    }
}
