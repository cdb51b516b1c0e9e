//! Suggestions for misspelt names, and lists of the available names.

/// Names of fields and arguments in one line.
const SHOWN: usize = 24;
/// The most letters by which a misspelt name may differ.
const SLIPS: usize = 3;

/// The names that this one may be a slip of, the nearest first.
pub(super) fn near<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let mut all: Vec<_> = names.filter_map(|other| Some((slips(name, other)?, other))).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(|(_, name)| name).take(3).collect()
}

/// How many letters differ; `None`: too many for a slip.
pub(super) fn slips(name: &str, other: &str) -> Option<usize> {
    let most = SLIPS.min(name.len() / 3);
    let may_be = other.len().abs_diff(name.len()) <= most;
    may_be.then(|| strsim::damerau_levenshtein(name, other)).filter(|slips| *slips <= most)
}

/// The available names, in a sentence.
pub(super) fn one_of<'n>(name: &str, names: impl Iterator<Item = &'n str> + Clone) -> String {
    match near(name, names.clone()).first() {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", some(names)),
    }
}

/// As many names as a line has room for.
pub(super) fn some<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    let more = if names.len() > SHOWN { format!(" and {} more", names.len() - SHOWN) } else { String::new() };
    format!("{}{more}", names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", "))
}
