//! Order statistics.

/// The upper median; `None` without values.
pub(crate) fn median(mut values: Vec<u64>) -> Option<u64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
}

/// The 99th percentile: the least value that 99 of 100 values do not exceed; `None` without values.
pub(crate) fn p99(mut values: Vec<u64>) -> Option<u64> {
    let at = (values.len() * 99).div_ceil(100).checked_sub(1)?;
    Some(*values.select_nth_unstable(at).1)
}
