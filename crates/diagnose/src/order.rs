//! What lies where among values.

/// The upper median; `None` without values.
pub(crate) fn median(mut values: Vec<u64>) -> Option<u64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
}

/// What all but one in a hundred values are at or below; `None` without values.
pub(crate) fn p99(mut values: Vec<u64>) -> Option<u64> {
    let at = (values.len() * 99).div_ceil(100).checked_sub(1)?;
    Some(*values.select_nth_unstable(at).1)
}
