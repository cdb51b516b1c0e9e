//! Labels that the operator's own actions give an incident, in lines `key=value`.

use std::collections::BTreeMap;

use model::text::printable;

/// The most labels of an incident.
pub const MOST: usize = 32;
/// The most bytes that are read of one action's labels.
pub const LONGEST: usize = 16 << 10;
/// The longest key, bytes, and the longest value, characters.
const KEY: usize = 64;
const VALUE: usize = 256;

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// Adds the labels of these lines. A new value replaces the old value of its key.
///
/// # Errors
/// What is wrong with the first invalid line; all valid lines are added.
pub fn add(labels: &mut Labels, lines: &[u8]) -> Result<(), String> {
    let mut wrong = None;
    let cut = lines.get(..LONGEST).unwrap_or(lines);
    if cut.len() < lines.len() {
        wrong = Some(format!("labels: more than {} KiB; what is beyond is left out", LONGEST >> 10));
    }
    for (number, line) in (1..).zip(cut.split(|byte| *byte == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        if let Err(text) = add_one(labels, line) {
            wrong.get_or_insert(format!("line {number} of the labels: {text}"));
        }
    }
    wrong.map_or(Ok(()), Err)
}

fn add_one(labels: &mut Labels, line: &[u8]) -> Result<(), String> {
    let split = line.iter().position(|byte| *byte == b'=').and_then(|at| line.split_at_checked(at));
    let (key, value) = split.ok_or("it has no `=`; write key=value")?;
    let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
    let key = key.trim_ascii_end();
    if key.is_empty() || key.len() > KEY || !key.iter().all(is_good) {
        return Err(format!("the key must be 1 to {KEY} letters, digits, `_`, `-` or `.`"));
    }
    let value = printable(value.get(1..).unwrap_or_default().trim_ascii_start());
    if value.chars().count() > VALUE {
        return Err(format!("the value is longer than {VALUE} characters"));
    }
    let key = String::from_utf8_lossy(key).into_owned();
    if labels.len() >= MOST && !labels.contains_key(&key) {
        return Err(format!("an incident has {MOST} labels at most"));
    }
    labels.insert(key, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> (Vec<(String, String)>, Result<(), String>) {
        let mut labels = Labels::new();
        let result = add(&mut labels, lines.as_bytes());
        (labels.into_iter().collect(), result)
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn a_label_is_a_line_with_a_key_and_a_value() {
        let (labels, result) = read("ticket=4711\n\n team = storage east \nempty=\nurl=https://x/?a=b\nticket=4712");
        let expected =
            [pair("empty", ""), pair("team", "storage east"), pair("ticket", "4712"), pair("url", "https://x/?a=b")];
        assert_eq!((labels.as_slice(), result), (&expected[..], Ok(())));
    }

    #[test]
    fn wrong_lines_are_told_and_the_others_count() {
        let (labels, result) = read("good=1\nno label\na b=2\n=3\nlast=\x1b[31m");
        assert_eq!(labels, [pair("good", "1"), pair("last", "\\x1b[31m")]);
        assert_eq!(result, Err("line 2 of the labels: it has no `=`; write key=value".into()));
        let key = "line 1 of the labels: the key must be 1 to 64 letters, digits, `_`, `-` or `.`";
        for line in ["=3", "a b=2", "\u{fc}=1", &format!("{}=1", "k".repeat(65))] {
            assert_eq!(read(line), (vec![], Err(key.into())), "{line}");
        }
        assert_eq!(
            read(&format!("a={}", "v".repeat(257))).1,
            Err("line 1 of the labels: the value is longer than 256 characters".into())
        );
    }

    #[test]
    fn labels_are_few_and_short() {
        let many: String = (0..40).map(|n| format!("k{n}=v\n")).collect();
        let (labels, result) = read(&many);
        assert_eq!(labels.len(), 32);
        assert_eq!(result, Err("line 33 of the labels: an incident has 32 labels at most".into()));
        let (labels, result) = read(&"a=b\n".repeat(5000));
        assert_eq!(
            (labels.len(), result.unwrap_err().as_str()),
            (1, "labels: more than 16 KiB; what is beyond is left out")
        );
    }
}
