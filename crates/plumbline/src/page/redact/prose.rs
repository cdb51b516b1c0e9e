//! Redacts sentences: replaces every word that is not known to be harmless.

use std::{collections::HashSet, sync::LazyLock};

use super::{
    known::{is_operation, is_outcome},
    tokens::Tokens,
};

/// The words of Plumbline's own sentences, in lower case.
static VOCABULARY: LazyLock<HashSet<&str>> =
    LazyLock::new(|| include_str!("vocabulary.txt").split_ascii_whitespace().collect());

/// A piece of a sentence.
enum Piece {
    Token(String),
    Text(String),
}

/// Replaces all names that have tokens, and then every word that is not known to be harmless.
pub fn sentence(text: &mut String, tokens: &mut Tokens) {
    let mut pieces = vec![Piece::Text(std::mem::take(text))];
    for (name, token) in tokens.longest_first() {
        pieces = pieces.into_iter().flat_map(|piece| cut(piece, &name, &token)).collect();
    }
    for piece in pieces {
        match piece {
            Piece::Token(token) => text.push_str(&token),
            Piece::Text(part) => words(&part, text, tokens),
        }
    }
}

/// Replaces a name by its token wherever it is not part of a longer word.
fn cut(piece: Piece, name: &str, token: &str) -> Vec<Piece> {
    let Piece::Text(text) = piece else { return vec![piece] };
    let is_part = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let (mut pieces, mut rest, mut kept) = (Vec::new(), text.as_str(), String::new());
    while let Some((before, after)) = rest.split_once(name) {
        let last = before.chars().next_back().or_else(|| kept.chars().next_back());
        kept.push_str(before);
        if is_part(last) || is_part(after.chars().next()) || is_word(name) {
            kept.push_str(name);
        } else {
            pieces.push(Piece::Text(std::mem::take(&mut kept)));
            pieces.push(Piece::Token(token.to_owned()));
        }
        rest = after;
    }
    kept.push_str(rest);
    pieces.push(Piece::Text(kept));
    pieces
}

/// Whether a name is an ordinary word, such as a process called `server`: in a sentence, that word reveals nothing.
fn is_word(name: &str) -> bool {
    VOCABULARY.contains(name)
}

fn words(text: &str, out: &mut String, tokens: &mut Tokens) {
    for word in text.split_inclusive(char::is_whitespace) {
        let bare = word.trim_end();
        let space = word.get(bare.len()..).unwrap_or_default();
        let is_mark = |c: char| ".,;:()[]\"'`%".contains(c);
        let core = bare.trim_matches(is_mark);
        if core.is_empty() {
            out.extend(bare.chars().filter(|c| is_mark(*c)));
        } else {
            let from = bare.find(core).unwrap_or(0);
            out.push_str(bare.get(..from).unwrap_or_default());
            if is_harmless(core) {
                out.push_str(core)
            } else {
                out.push_str(&tokens.of("text", core))
            }
            out.push_str(bare.get(from + core.len()..).unwrap_or_default());
        }
        out.push_str(space);
    }
}

fn is_harmless(word: &str) -> bool {
    let is_figure = |text: &str| {
        text.bytes().filter(|byte| *byte == b'.').count() < 2
            && text.bytes().all(|byte| byte.is_ascii_digit() || b".+-".contains(&byte))
    };
    let is_hex =
        |text: &str| text.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    // Which of a cluster's daemons it is, by number.
    let is_daemon = |text: &str| {
        let number = text.strip_prefix("mds.").or_else(|| text.strip_prefix("osd."));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    is_figure(word)
        || is_hex(word)
        || is_daemon(word)
        || VOCABULARY.contains(word.to_lowercase().as_str())
        || is_operation(word)
        || is_outcome(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(text: &str) -> String {
        let mut tokens = Tokens::default();
        ["fio", "/mnt/a share", "srv"].into_iter().for_each(|name| drop(tokens.of("name", name)));
        let mut text = text.to_owned();
        sentence(&mut text, &mut tokens);
        text
    }

    #[test]
    fn sentences_keep_their_words_and_lose_their_names() {
        for (text, expected) in [
            ("37 operations, slowest 204 ms (SMB2_WRITE).", "37 operations, slowest 204 ms (SMB2_WRITE)."),
            ("fio (4711): READ of 64 KiB", "name-1 (4711): READ of 64 KiB"),
            (
                "The slow requests went to mds.0 (10.0.0.1:6801), not to osd.x1.",
                "The slow requests went to mds.0 (text-1), not to text-2.",
            ),
            ("READ on /mnt/a share: median 5 ms", "READ on name-2: median 5 ms"),
            ("The server 10.0.0.1:445 answered EIO.", "The server text-1 answered EIO."),
            (
                "p99 > 3 * normal.p99 && errors > 0, for 2 windows in a row",
                "p99 > 3 * normal.p99 && errors > 0, for 2 windows in a row",
            ),
            ("srv srv2 /home/secret fe80::1", "name-3 text-1 text-2 text-3"),
        ] {
            assert_eq!(redacted(text), expected);
        }
    }

    #[test]
    fn every_cause_is_described_in_words_that_are_kept() {
        for cause in model::Cause::ALL {
            assert_eq!(redacted(cause.describe()), cause.describe());
        }
    }

    #[test]
    fn a_mark_that_hides_between_marks_is_found() {
        assert!(!redacted("(\"SECRET\"): 'SECRET'. %SECRET%").contains("SECRET"));
        assert_eq!(redacted("§ ¶"), "text-1 text-2");
    }
}
