//! Reads typed values from a tree. Every function returns `None` and notes the problem if there is one, so that one pass finds all problems.

use std::{ops::RangeInclusive, time::Duration};

use model::{Protocol, text::printable};

use super::{
    CaptureConfig, ConfigText, KnownNames,
    node::{self, Position, Problem, YamlEntry, YamlNode, YamlValue},
};

/// The range of a number, and what it counts.
#[derive(Debug, Clone, Copy)]
pub struct NumberRange {
    /// Smallest value accepted.
    pub low: f64,
    /// Largest value accepted.
    pub high: f64,
    /// `seconds`, `ms`.
    pub unit: &'static str,
}

impl NumberRange {
    /// From `low` to `high`, both accepted.
    pub const fn new(low: f64, high: f64, unit: &'static str) -> Self {
        Self { low, high, unit }
    }
}

/// The state of reading.
pub struct ConfigReader<'a> {
    /// The names that exist.
    pub known: &'a KnownNames<'a>,
    /// The files that are read together, by [`Position::file`].
    texts: &'a [ConfigText],
    /// The probes that the configuration itself defines.
    pub own: Vec<&'static Protocol>,
    /// The names of the actions that the configuration itself defines.
    pub custom_actions: Vec<String>,
    /// The names of its captures.
    pub captures: Vec<String>,
    /// The captures that replace AOD's.
    pub aod_captures: Vec<CaptureConfig>,
    /// The problems found.
    pub problems: Vec<Problem>,
    /// Notices for the operator.
    pub notices: Vec<String>,
}

impl<'a> ConfigReader<'a> {
    /// The state before anything is read.
    pub fn new(known: &'a KnownNames<'a>, texts: &'a [ConfigText]) -> Self {
        let (captures, aod_captures) = (Vec::new(), Vec::new());
        let (own, custom_actions, problems, notices) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { known, texts, own, custom_actions, captures, aod_captures, problems, notices }
    }

    /// Every probe that there is.
    pub fn protocols(&self) -> Vec<&'static Protocol> {
        [self.known.protocols, &self.own].concat()
    }

    /// The name of the file that a place is in.
    pub fn file(&self, at: Position) -> String {
        self.texts.get(at.file).map_or_else(String::new, |file| file.name.clone())
    }

    /// Notes a problem.
    pub fn refuse(&mut self, at: Position, text: impl Into<String>) {
        self.problems.push(Problem::new(at, text));
    }

    /// A position in words, beside another position: `line 5`, or `line 5 of FILE` if the files differ.
    pub fn place(&self, at: Position, beside: Position) -> String {
        match self.texts.get(at.file).filter(|_| at.file != beside.file) {
            Some(ConfigText { name, .. }) => format!("line {} of {}", at.line, printable(name.as_bytes())),
            None => format!("line {}", at.line),
        }
    }

    /// The position of the byte `offset` of a value's text. If the file does not show it (YAML may have folded the text, or it may be in quotes with
    /// escapes), the position of the value.
    pub fn place_in(&self, node: &YamlNode, text: &str, offset: usize) -> Position {
        let file = self.texts.get(node.at.file).map_or("", |file| &file.text);
        node::place_in(file, node.at, text, offset)
    }

    /// Notes something worth knowing, once.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notices.contains(&text) {
            self.notices.push(text);
        }
    }

    /// The entries of a map; no entries if the value is empty.
    pub fn map<'n>(&mut self, what: &str, node: &'n YamlNode) -> Option<&'n [YamlEntry]> {
        match &node.value {
            YamlValue::Map(entries) => Some(entries),
            YamlValue::Null => Some(&[]),
            other => {
                self.refuse(node.at, format!("{what} must be keys with values, not {}", kind(other)));
                None
            }
        }
    }

    /// Notes every key that is not one of `keys`. Suggestions may come from `others`, too.
    pub fn only_keys(&mut self, entries: &[YamlEntry], keys: &[&str], others: &[&str]) {
        for entry in entries.iter().filter(|entry| !keys.contains(&entry.key.as_str())) {
            let hint = did_you_mean(&entry.key, keys.iter().chain(others).copied())
                .unwrap_or_else(|| format!("the keys here are {}", keys.join(", ")));
            self.refuse(entry.at, format!("unknown key {}; {hint}", quoted(&entry.key)));
        }
    }

    /// The entries of a map that has these keys and no others.
    pub fn section<'n>(&mut self, entry: &'n YamlEntry, keys: &[&str]) -> Option<&'n [YamlEntry]> {
        let entries = self.map(&quoted(&entry.key), &entry.value)?;
        self.only_keys(entries, keys, &[]);
        Some(entries)
    }

    /// The items of a list; no items if the value is empty.
    pub fn list<'n>(&mut self, entry: &'n YamlEntry) -> Option<&'n [YamlNode]> {
        match &entry.value.value {
            YamlValue::List(items) => Some(items),
            YamlValue::Null => Some(&[]),
            other => {
                let what = quoted(&entry.key);
                self.refuse(entry.value.at, format!("{what} must be a list, not {}; write [a, b]", kind(other)));
                None
            }
        }
    }

    /// The text of a value, as written.
    pub fn text<'n>(&mut self, what: &str, node: &'n YamlNode) -> Option<&'n str> {
        match &node.value {
            YamlValue::Plain(text) | YamlValue::Quoted(text) => Some(text),
            YamlValue::Null => {
                self.refuse(node.at, format!("{what} has no value; write one"));
                None
            }
            other => {
                self.refuse(node.at, format!("{what} must be one word, not {}", kind(other)));
                None
            }
        }
    }

    /// The text of an entry.
    pub fn word<'n>(&mut self, entry: &'n YamlEntry) -> Option<&'n str> {
        if matches!(entry.value.value, YamlValue::Null) {
            self.refuse(entry.at, format!("{} has no value; write one or remove the key", quoted(&entry.key)));
            return None;
        }
        self.text(&quoted(&entry.key), &entry.value)
    }

    /// One of several words, ignoring case and spaces.
    pub fn choice<T: Copy>(&mut self, entry: &YamlEntry, choices: &[(&str, T)]) -> Option<T> {
        let text = self.word(entry)?;
        let word = text.replace(' ', "").to_ascii_lowercase();
        if let Some((_, chosen)) = choices.iter().find(|(name, _)| *name == word) {
            return Some(*chosen);
        }
        let names = || choices.iter().map(|(name, _)| *name);
        let hint = did_you_mean(&word, names())
            .unwrap_or_else(|| format!("write one of {}", names().collect::<Vec<_>>().join(", ")));
        self.refuse(entry.value.at, format!("there is no {} {}; {hint}", entry.key, quoted(text)));
        None
    }

    /// True or false, or one of the words yes, no, on and off of older YAML.
    pub fn flag(&mut self, entry: &YamlEntry) -> Option<bool> {
        let text = self.word(entry)?;
        match (&entry.value.value, text.to_ascii_lowercase().as_str()) {
            (YamlValue::Plain(_), "true" | "yes" | "on") => Some(true),
            (YamlValue::Plain(_), "false" | "no" | "off") => Some(false),
            _ => {
                let what = quoted(&entry.key);
                self.refuse(entry.value.at, format!("{what} is {}; write true or false", quoted(text)));
                None
            }
        }
    }

    /// A number within a range; fractions allowed.
    pub fn number(&mut self, entry: &YamlEntry, range: NumberRange) -> Option<f64> {
        let text = self.word(entry)?;
        let number = match &entry.value.value {
            YamlValue::Plain(text) => parse_number(text),
            _ => None,
        };
        if let Some(number) = number.filter(|number| (range.low..=range.high).contains(number)) {
            return Some(number);
        }
        let (what, NumberRange { low, high, unit }) = (quoted(&entry.key), range);
        let quotes = if matches!(entry.value.value, YamlValue::Quoted(_)) { " (in quotes it is text)" } else { "" };
        self.refuse(
            entry.value.at,
            format!("{what} is {}{quotes}; write a number from {low} to {high} {unit}", quoted(text)),
        );
        None
    }

    /// A whole number within a range.
    pub fn whole(&mut self, entry: &YamlEntry, range: RangeInclusive<u32>) -> Option<u32> {
        let text = self.word(entry)?;
        let number = match &entry.value.value {
            YamlValue::Plain(text) => parse_number(text).filter(|number| number.fract() == 0.0),
            _ => None,
        };
        let (low, high) = (f64::from(*range.start()), f64::from(*range.end()));
        if let Some(number) = number.filter(|number| (low..=high).contains(number)) {
            return Some(number as u32); // Within u32: `range` is.
        }
        let what = quoted(&entry.key);
        self.refuse(entry.value.at, format!("{what} is {}; write a whole number from {low} to {high}", quoted(text)));
        None
    }

    /// A time given in seconds.
    pub fn seconds(&mut self, entry: &YamlEntry, low: f64, high: f64) -> Option<Duration> {
        self.number(entry, NumberRange::new(low, high, "seconds")).map(Duration::from_secs_f64)
    }

    /// A time with its unit, `90s`, `10m`, `2h` or `1d`; without one, in seconds.
    pub fn span(&mut self, entry: &YamlEntry, low: f64, high: f64) -> Option<Duration> {
        let text = self.word(entry)?;
        let span = span(text).map(|span| span.as_secs_f64());
        if let Some(span) = span.filter(|span| (low..=high).contains(span)) {
            return Some(Duration::from_secs_f64(span));
        }
        let (what, from, to) = (quoted(&entry.key), written(low), written(high));
        self.refuse(
            entry.value.at,
            format!("{what} is {}; write a time from {from} to {to}, `90s`, `10m` or `2h` say", quoted(text)),
        );
        None
    }

    /// A time given in milliseconds, up to a day.
    pub fn milliseconds(&mut self, entry: &YamlEntry, low: f64) -> Option<Duration> {
        let ms = self.number(entry, NumberRange::new(low, 86_400_000.0, "ms"))?;
        Some(Duration::from_secs_f64(ms / 1e3))
    }
}

/// The entry with this key.
pub fn find<'n>(entries: &'n [YamlEntry], key: &str) -> Option<&'n YamlEntry> {
    entries.iter().find(|entry| entry.key == key)
}

/// A foreign text in backquotes, safe to print and shortened.
pub fn quoted(text: &str) -> String {
    const LONGEST: usize = 64;
    let cut: String = text.chars().take(LONGEST).collect();
    let more = if cut.len() < text.len() { "..." } else { "" };
    format!("`{}{more}`", printable(cut.as_bytes()))
}

/// ``did you mean `x`?`` if a name looks like a slip of one of `names`.
pub fn did_you_mean<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<String> {
    // No name is longer, and the memory of the comparison grows with the length.
    if name.len() > 64 {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let slips = |other: &str| strsim::damerau_levenshtein(&name, &other.to_ascii_lowercase());
    let (slips, nearest) = names.into_iter().map(|other| (slips(other), other)).min()?;
    // A missing unit (`watch_interval` for `watch_interval_sec`) is more than a typing error.
    let cut_short = name.len() > 4 && nearest.starts_with(&name);
    (cut_short || slips <= (nearest.len() / 3).clamp(1, 3)).then(|| format!("did you mean `{nearest}`?"))
}

/// A time with its unit, `90s`, `10m`, `2h` or `1d`; without one, in seconds.
pub fn span(text: &str) -> Option<Duration> {
    const UNITS: [(char, f64); 4] = [('s', 1.0), ('m', 60.0), ('h', 3600.0), ('d', 86_400.0)];
    let unit = UNITS.into_iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let (number, seconds) = unit.unwrap_or((text, 1.0));
    Duration::try_from_secs_f64(parse_number(number)? * seconds).ok()
}

/// Seconds in the largest unit that gives a whole number.
pub fn written(seconds: f64) -> String {
    let units = [("d", 86_400.0), ("h", 3600.0), ("m", 60.0)];
    let fits = |(_, unit): &(&str, f64)| seconds >= *unit && seconds % unit == 0.0;
    units.into_iter().find(fits).map_or(format!("{seconds}s"), |(name, unit)| format!("{}{name}", seconds / unit))
}

/// A decimal number, not `inf`, `nan` or hexadecimal. A number too large for f64 is infinite.
fn parse_number(text: &str) -> Option<f64> {
    let decimal = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
    text.chars().all(decimal).then(|| text.parse().ok())?
}

fn kind(value: &YamlValue) -> &'static str {
    match value {
        YamlValue::Null => "nothing",
        YamlValue::Plain(_) | YamlValue::Quoted(_) => "a single value",
        YamlValue::List(_) => "a list",
        YamlValue::Map(_) => "keys with values",
    }
}
