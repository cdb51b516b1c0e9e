//! YAML text as a tree of nodes with their positions.
//!
//! Anchors, aliases and tags are left out on purpose: no configuration needs them, and without them a tree is never
//! larger than its text.

use serde_saphyr::granit_parser::{self, ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError};

use super::reader::quoted;

/// A place in a text; line and column count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Which of the files that are read together: an index.
    pub file: usize,
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

impl Position {
    /// Where a text begins.
    pub const START: Self = Self { file: 0, line: 1, column: 1 };

    fn of(marker: Marker, file: usize) -> Self {
        Self { file, line: marker.line(), column: marker.col() + 1 }
    }
}

/// What is wrong at a place, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where.
    pub at: Position,
    /// One line.
    pub text: String,
}

impl Problem {
    /// A problem at a place.
    pub fn new(at: Position, text: impl Into<String>) -> Self {
        Self { at, text: text.into() }
    }
}

/// A value and where it stood.
#[derive(Debug, Clone)]
pub struct YamlNode {
    /// Where it begins.
    pub at: Position,
    /// The value.
    pub value: YamlValue,
}

/// A value as it was written: numbers and booleans are still text.
#[derive(Debug, Clone)]
pub enum YamlValue {
    /// Nothing, `~` or `null`.
    Null,
    /// Text without quotes.
    Plain(String),
    /// Text in quotes or in a block.
    Quoted(String),
    /// `[a, b]` or lines that begin with `-`.
    List(Vec<YamlNode>),
    /// `key: value`, each key once.
    Map(Vec<YamlEntry>),
}

/// One `key: value`.
#[derive(Debug, Clone)]
pub struct YamlEntry {
    /// The key.
    pub key: String,
    /// Where the key stood.
    pub at: Position,
    /// The value.
    pub value: YamlNode,
}

/// The greatest depth, which bounds recursion. No configuration needs more.
const MAX_DEPTH: usize = 32;

/// Reads one document; `None` if there is nothing in it. `file`: the index for [`Position::file`].
///
/// # Errors
/// The first place at which the text is no YAML, or the first key that is given twice.
pub fn parse(text: &str, file: usize) -> Result<Option<YamlNode>, Vec<Problem>> {
    let options = granit_parser::options! {
        emit_comments: false,
        emit_unresolved_aliases: true,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let mut tree = YamlTree { file, ..YamlTree::default() };
    for event in Parser::new_from_str_with_options(text, options) {
        let outcome = event.map_err(|error| syntax(&error, text, file)).and_then(|(event, span)| tree.add(event, span));
        if let Err(problem) = outcome {
            tree.problems.push(problem);
            return Err(tree.problems);
        }
    }
    if tree.problems.is_empty() { Ok(tree.root) } else { Err(tree.problems) }
}

/// A list or map whose end has not been parsed yet.
enum OpenNode {
    List { at: Position, items: Vec<YamlNode> },
    Map { at: Position, entries: Vec<YamlEntry>, key: Option<(String, Position)> },
}

#[derive(Default)]
struct YamlTree {
    file: usize,
    open: Vec<OpenNode>,
    root: Option<YamlNode>,
    documents: usize,
    problems: Vec<Problem>,
}

impl YamlTree {
    fn add(&mut self, event: Event<'_>, span: granit_parser::Span) -> Result<(), Problem> {
        let at = Position::of(span.start, self.file);
        if let (true, Some(tag)) = (event.tag().is_some(), span.tag_start()) {
            let at = Position::of(tag, self.file);
            return Err(Problem::new(at, "tags are not supported; remove the word that begins with `!`"));
        }
        match event {
            Event::Scalar(text, style, ..) => self.place(YamlNode { at, value: scalar(text.into_owned(), style) }),
            Event::SequenceStart(..) => {
                self.open.push(OpenNode::List { at, items: Vec::new() });
                Ok(())
            }
            Event::MappingStart(..) => {
                self.open.push(OpenNode::Map { at, entries: Vec::new(), key: None });
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(OpenNode::List { at, items }) => self.place(YamlNode { at, value: YamlValue::List(items) }),
                Some(OpenNode::Map { at, entries, .. }) => self.place(YamlNode { at, value: YamlValue::Map(entries) }),
                None => Ok(()),
            },
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                Err(Problem::new(at, "aliases are not supported; write the value out here, a pattern in quotes"))
            }
            Event::DocumentStart(..) if self.documents > 0 => Err(Problem::new(
                at,
                "a second document begins here; one file is one configuration, so remove the rest",
            )),
            Event::DocumentStart(..) => {
                self.documents += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Adds a finished value to the list or map that contains it.
    fn place(&mut self, node: YamlNode) -> Result<(), Problem> {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(OpenNode::List { items, .. }) => items.push(node),
            Some(OpenNode::Map { entries, key, .. }) => match key.take() {
                None => *key = Some((key_text(&node)?, node.at)),
                Some((key, at)) => match entries.iter().find(|entry| entry.key == key) {
                    Some(first) => self.problems.push(Problem::new(
                        at,
                        format!("{} is given twice (first in line {}); remove one", quoted(&key), first.at.line),
                    )),
                    None => entries.push(YamlEntry { key, at, value: node }),
                },
            },
        }
        Ok(())
    }
}

fn key_text(node: &YamlNode) -> Result<String, Problem> {
    match &node.value {
        YamlValue::Plain(text) | YamlValue::Quoted(text) if text == "<<" => {
            Err(Problem::new(node.at, "merge keys are not supported; write the keys out here"))
        }
        YamlValue::Plain(text) | YamlValue::Quoted(text) => Ok(text.clone()),
        _ => Err(Problem::new(node.at, "this key is not a word; write `key: value`")),
    }
}

fn scalar(text: String, style: ScalarStyle) -> YamlValue {
    match (style, text.as_str()) {
        (ScalarStyle::Plain, "" | "~" | "null" | "Null" | "NULL") => YamlValue::Null,
        (ScalarStyle::Plain, _) => YamlValue::Plain(text),
        _ => YamlValue::Quoted(text),
    }
}

/// The parser's error message, and what to do.
fn syntax(error: &ScanError, text: &str, file: usize) -> Problem {
    use ErrorKind::{
        RecursionLimitExceeded, TabAtBlockScalarStart, TabInBlockIndentation, TabInIndentation, TabInPlainScalar,
        TabNotAllowed, UnclosedFlowCollection, UnclosedQuotedScalar,
    };
    let mut at = Position::of(*error.marker(), file);
    let cure = match error.kind() {
        TabNotAllowed | TabInBlockIndentation | TabAtBlockScalarStart | TabInIndentation | TabInPlainScalar => {
            // The parser reports the position after the tab.
            let line = text.lines().nth(at.line.saturating_sub(1)).unwrap_or_default();
            at.column = line.chars().position(|c| c == '\t').map_or(at.column, |tab| tab + 1);
            "indent with spaces"
        }
        UnclosedQuotedScalar => "close the quote",
        UnclosedFlowCollection { .. } => "close the bracket",
        RecursionLimitExceeded => "no configuration is nested this deep",
        _ => "check the indentation, colons, quotes and brackets here and in the line above",
    };
    // The message may quote a character of the text.
    let what = model::text::printable(error.info().as_bytes());
    Problem::new(at, format!("this is not YAML: {what}; {cure}"))
}

/// The position in a file of the byte `offset` of a value's text. `at`: the position of the value. White space may differ, since YAML folds it.
/// If the file has other text there, such as escapes in quotes, returns `at`.
pub fn place_in(file: &str, at: Position, text: &str, offset: usize) -> Position {
    let (before, after) = text.split_at_checked(offset).unwrap_or((text, ""));
    let mut place = at;
    let start = file.split_inclusive('\n').take(at.line.saturating_sub(1)).map(str::len).sum::<usize>();
    let line = file.get(start..).unwrap_or_default();
    let mut rest = line.chars().skip(at.column.saturating_sub(1)).peekable();
    let step = |place: &mut Position, sign: char| match sign {
        '\n' => (place.line, place.column) = (place.line + 1, 1),
        _ => place.column += 1,
    };
    match rest.peek() {
        Some('\'' | '"') => rest.next().into_iter().for_each(|sign| step(&mut place, sign)),
        // A block: it begins in the next line.
        Some('|' | '>') => {
            while let Some(sign) = rest.next_if(|sign| *sign != '\n') {
                step(&mut place, sign);
            }
        }
        _ => {}
    }
    for wanted in before.chars().filter(|sign| !sign.is_whitespace()).map(Some).chain([None]) {
        while let Some(space) =
            rest.next_if(|sign| sign.is_whitespace() && !(wanted.is_none() && after.is_empty() && *sign == '\n'))
        {
            step(&mut place, space);
        }
        match (wanted, rest.peek()) {
            (None, _) => {}
            (Some(wanted), Some(sign)) if *sign == wanted => {
                rest.next().into_iter().for_each(|sign| step(&mut place, sign))
            }
            _ => return at,
        }
    }
    place
}
