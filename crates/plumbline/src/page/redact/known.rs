//! Values that are no secret, since they are the same on all hosts: operations, outcomes, times, versions. Other values
//! become tokens.

use std::borrow::Cow;

use jiff::Timestamp;

use super::tokens::Tokens;

/// Whether this is the name of a probe's operation.
pub fn is_operation(name: &str) -> bool {
    probes::protocols().any(|protocol| protocol.operations.contains(&name))
}

/// Whether this has the form of a protocol's status, or is the name of an errno.
pub fn is_outcome(name: &str) -> bool {
    let is_upper =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    let families = ["STATUS_", "NFS4ERR_", "NFS3ERR_", "NFSERR_", "MPI_ERR_"];
    let is_errno = || {
        let is_number = |number: &i32| format!("{:?}", nix::errno::Errno::from_raw(*number)) == name;
        (1..200).any(|number| is_number(&number))
    };
    let is_status = families.iter().filter_map(|family| name.strip_prefix(family)).any(is_upper);
    name != "UnknownErrno" && (is_status || ["NO_ANSWER", "RPC_FAILED"].contains(&name) || is_errno())
}

/// Keeps an operation's name; replaces anything else.
pub fn operation(name: &mut String, tokens: &mut Tokens) {
    if !is_operation(name) {
        tokens.replace("operation", name);
    }
}

/// Keeps a status, an error or a number; replaces anything else.
pub fn outcome(name: &mut Option<String>, tokens: &mut Tokens) {
    if let Some(name) = name.as_mut().filter(|name| !is_outcome(name) && name.parse::<u32>().is_err()) {
        tokens.replace("status", name);
    }
}

/// Returns a time unchanged, and an empty text for anything else.
pub fn time(text: String) -> String {
    if text.parse::<Timestamp>().is_ok() { text } else { String::new() }
}

/// The numbers at the beginning of a version: `6.12.48` of `6.12.48-acme`.
pub fn version(text: &str) -> String {
    let figures: String = text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    figures.trim_end_matches('.').to_owned()
}

/// Keeps a text that is one of `words`; replaces anything else.
pub fn one_of(words: &[&str], kind: &'static str, text: &mut String, tokens: &mut Tokens) {
    if !words.contains(&text.as_str()) {
        tokens.replace(kind, text);
    }
}

/// Keeps the name of a probe, or `all`; replaces anything else.
pub fn probe(name: &mut Cow<'static, str>, tokens: &mut Tokens) {
    if name != "all" && probes::protocol(name).is_none() {
        tokens.replace("probe", name.to_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_everywhere_is_known() {
        assert!(["SMB2_WRITE", "write", "READ"].into_iter().all(is_operation));
        assert!(["STATUS_ACCESS_DENIED", "NFS4ERR_DELAY", "EIO", "NO_ANSWER"].into_iter().all(is_outcome));
        assert!(!["SECRET", "STATUS_a secret", "ESECRET", "UnknownErrno"].into_iter().any(is_outcome));
        assert_eq!((version("6.12.48+deb13-amd64"), version("acme")), ("6.12.48".into(), String::new()));
        assert_eq!((time("2026-03-01T12:00:00Z".into()).len(), time("noon at acme".into()).len()), (20, 0));
    }
}
