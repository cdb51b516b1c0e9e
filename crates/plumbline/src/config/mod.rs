//! The configuration: what to watch, what to notice, what to collect and how much of it to keep.
//!
//! Text becomes a tree with positions ([`node`]), AOD's keys become ours ([`aod`]), and one reading of the tree
//! ([`native`], [`rules`], [`actions`]) gives either a [`Config`] in which everything is valid, or every error with its
//! line and column. The compiled-in `config/plumbline.yaml` is the default of every key.

mod actions;
mod aod;
mod aod_captures;
mod captures;
mod commands;
mod conf_d;
mod modes;
mod native;
mod node;
mod observe;
mod output_dir;
mod own;
mod peers;
mod publish;
mod reader;
mod rules;
mod scope;
#[cfg(test)]
mod tests;
mod types;
mod when;

use std::{
    fmt, fs,
    io::Read,
    path::{Path, PathBuf},
};

use model::text::printable;

pub use captures::{CaptureConfig, CaptureKind, CommandConfig, Hosts, PacketsConfig, TraceMemory, TracepointsConfig};
pub use node::Position;
pub use output_dir::check_output_dir;
pub use peers::{AskedServers, PeersConfig};
pub use publish::otlp_endpoint;
pub use reader::{did_you_mean, quoted, span};
pub use rules::is_kind;
pub use scope::{short_container, user_number};
pub use types::{
    Config, ConfiguredAction, ConfiguredRule, CustomAction, EvidenceLimits, FlightRecorder, KnownNames,
    KubernetesEventsConfig, NotYet, Observation, Otlp, OtlpProtocol, Prometheus, Retention, WebhookConfig,
};

use crate::watched;
use node::{Problem, YamlEntry, YamlNode, YamlValue};
use reader::ConfigReader;

/// The compiled-in configuration: every key with its default.
pub const COMPILED_IN: &str = include_str!("../../../../config/plumbline.yaml");

/// Its name in errors.
const COMPILED_IN_NAME: &str = "the compiled-in configuration";
/// The largest configuration file, bytes.
const MAX_FILE: u64 = 1 << 20;
/// The most errors that are reported.
const MAX_ERRORS: usize = 100;

/// One thing wrong in one place: `file:line:column: what is wrong; what to do`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, as the operator named it.
    pub file: String,
    /// The position in the file; `None` if the file could not be read.
    pub at: Option<Position>,
    /// What is wrong, and what to do about it.
    pub text: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = printable(self.file.as_bytes());
        match self.at {
            Some(at) => write!(f, "{file}:{}:{}: {}", at.line, at.column, self.text),
            None => write!(f, "{file}: {}", self.text),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// The configuration without any file.
    ///
    /// # Errors
    /// None in a program that passes its tests: the compiled-in text is one of them.
    pub fn compiled_in() -> Result<Self, Vec<ConfigError>> {
        Self::parse(COMPILED_IN, COMPILED_IN_NAME, &KnownNames::to_this_program())
    }

    /// Reads a text; `file` is its name in errors.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of its lines.
    pub fn parse(text: &str, file: &str, known: &KnownNames<'_>) -> Result<Self, Vec<ConfigError>> {
        Self::parse_all(&[ConfigText { name: file.to_owned(), text: text.to_owned() }], known)
    }

    /// Reads texts, each of which is merged into the previous ones.
    ///
    /// # Errors
    /// Everything that is wrong with them, in the order of files and lines.
    fn parse_all(texts: &[ConfigText], known: &KnownNames<'_>) -> Result<Self, Vec<ConfigError>> {
        let name = |file: usize| texts.get(file).map_or(COMPILED_IN_NAME, |text| &text.name).to_owned();
        parse(texts, known).map_err(|mut problems| {
            problems.sort();
            if let Some(next) = problems.get_mut(MAX_ERRORS) {
                next.text = "more mistakes follow; correct those above first".to_owned();
                problems.truncate(MAX_ERRORS + 1);
            }
            let error = |Problem { at, text }| ConfigError { file: name(at.file), at: Some(at), text };
            problems.into_iter().map(error).collect()
        })
    }
}

/// Reads a file or, without one, the compiled-in configuration, and checks its output directory. `run` uses the result, and `check` reports it.
/// `never_touch`: the watched mount points, on which neither may be.
///
/// # Errors
/// Everything that is wrong, in the order of its lines.
pub fn check(path: Option<&Path>, never_touch: &[PathBuf]) -> Result<Config, Vec<ConfigError>> {
    let mut config = read(path, never_touch)?;
    let file = config.output_dir_at.and_then(|at| config.files.get(at.file).cloned());
    let file = file.unwrap_or_else(|| name_of(path));
    let error = |text| vec![ConfigError { file: file.clone(), at: config.output_dir_at, text }];
    let note = check_output_dir(&config.output_dir, never_touch).map_err(error)?;
    config.notices.extend(note);
    Ok(config)
}

/// The configuration that `make install` and packages put in place.
pub const INSTALLED: &str = "/etc/plumbline/plumbline.yaml";

/// [`INSTALLED`], if it exists and is not on a watched mount; otherwise the compiled-in configuration is used.
pub fn installed() -> Option<PathBuf> {
    let path = PathBuf::from(INSTALLED);
    (watched::refuse(&path).is_ok() && path.symlink_metadata().is_ok()).then_some(path)
}

/// A configuration's name, for people.
pub fn name_of(path: Option<&Path>) -> String {
    path.map_or(COMPILED_IN_NAME.to_owned(), |path| path.display().to_string())
}

/// Reads a file and the files of `conf.d` beside it, which must not be on a watched mount; or, without a file, the compiled-in
/// configuration.
///
/// # Errors
/// Everything that is wrong, in the order of files and lines.
pub fn read(path: Option<&Path>, never_touch: &[PathBuf]) -> Result<Config, Vec<ConfigError>> {
    let Some(path) = path else {
        let mut config = Config::compiled_in()?;
        config.notices.extend(conf_d::without_configuration(Path::new(INSTALLED), never_touch));
        return Ok(config);
    };
    // On SIGHUP, the daemon reads the file on its only thread, so a mount that hangs must not be touched.
    let file = path.display().to_string();
    let error = |text| vec![ConfigError { file: file.clone(), at: None, text }];
    watched::check(path, never_touch).map_err(|watched| error(watched.to_string()))?;
    let bytes = read_file(path, |_| Ok(())).map_err(error)?;
    let mut texts = vec![ConfigText::new(file.clone(), bytes).map_err(|error| vec![error])?];
    let mut notices = Vec::new();
    texts.extend(conf_d::read_beside(path, never_touch, &mut notices).map_err(|error| vec![error])?);
    let config = Config::parse_all(&texts, &KnownNames::to_this_program())?;
    notices.extend(config.notices);
    // The programs are opened to find functions in them.
    for operation in &config.operations {
        for hook in [&operation.begin, &operation.end] {
            let checked = hook.value.path().map_or(Ok(()), |path| watched::check(path, never_touch));
            checked.map_err(|watched| {
                let at = Some(Position { file: 0, line: hook.line, column: hook.column });
                vec![ConfigError { file: operation.file.clone(), at, text: format!("what is hooked {watched}") }]
            })?;
        }
    }
    Ok(Config { notices, ..config })
}

/// The content of a file, and the file's name in errors.
struct ConfigText {
    name: String,
    text: String,
}

impl ConfigText {
    fn new(name: String, bytes: Vec<u8>) -> Result<Self, ConfigError> {
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self { name, text }),
            Err(bad) => {
                let valid = bad.utf8_error().valid_up_to();
                let at = end_of(&String::from_utf8_lossy(bad.as_bytes().get(..valid).unwrap_or_default()));
                let text = "this byte is not UTF-8; save the file as UTF-8".to_owned();
                Err(ConfigError { file: name, at: Some(at), text })
            }
        }
    }
}

fn parse(texts: &[ConfigText], known: &KnownNames<'_>) -> Result<Config, Vec<Problem>> {
    let (mut trees, mut problems) = (Vec::new(), Vec::new());
    for (file, ConfigText { text, .. }) in texts.iter().enumerate() {
        match node::parse(text, file) {
            Ok(Some(tree)) => trees.push(tree),
            Ok(None) => {}
            Err(wrong) => problems.extend(wrong),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let defaults = CompiledIn::read()?;
    let mut reader = ConfigReader::new(known, texts);
    let mut trees = trees.into_iter().peekable();
    let is_first = |tree: &YamlNode| tree.at.file == 0 && !matches!(tree.value, YamlValue::Null);
    let Some(tree) = trees.next_if(is_first) else {
        let text = "there is nothing in this file; write at least `{}`, which takes every default";
        return Err(vec![Problem::new(Position::START, text)]);
    };
    match native::read(&mut reader, tree, trees.collect(), &defaults) {
        Some(config) if reader.problems.is_empty() => {
            let files = texts.iter().map(|text| text.name.clone()).collect();
            Ok(Config { notices: reader.notices, files, ..config })
        }
        _ => Err(reader.problems),
    }
}

/// The compiled-in configuration's keys.
struct CompiledIn(Vec<YamlEntry>);

impl CompiledIn {
    fn read() -> Result<Self, Vec<Problem>> {
        match node::parse(COMPILED_IN, usize::MAX)?.map(|tree| tree.value) {
            Some(YamlValue::Map(entries)) => Ok(Self(entries)),
            _ => Ok(Self(Vec::new())),
        }
    }

    fn entries(&self) -> &[YamlEntry] {
        &self.0
    }
}

/// Reads a regular file, unless `refuse` returns an error.
fn read_file(path: &Path, refuse: impl Fn(&fs::Metadata) -> Result<(), String>) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}; check the path and its permissions");
    let about = fs::metadata(path).map_err(cannot)?;
    if about.is_dir() {
        return Err("is a directory; name the file in it".to_owned());
    }
    if !about.is_file() {
        return Err("is not a regular file; name a file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(cannot)?;
    refuse(&file.metadata().map_err(cannot)?)?;
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("is larger than {} KiB; no configuration is, so name the right file", MAX_FILE >> 10));
    }
    Ok(bytes)
}

/// The place just after a text.
fn end_of(text: &str) -> Position {
    let last = text.rsplit('\n').next().unwrap_or_default();
    Position { file: 0, line: text.matches('\n').count() + 1, column: last.chars().count() + 1 }
}
