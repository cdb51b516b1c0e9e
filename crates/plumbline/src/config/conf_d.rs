//! The folder `conf.d` beside a configuration: its files are read in the order of their names, and laid over it.
//!
//! Maps are merged key by key. Any other value of a later file replaces that of an earlier one, and `null` removes a key
//! below the top level, such as a rule.

use std::{
    fs,
    io::ErrorKind,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use nix::unistd::geteuid;

use super::{
    ConfigError, ConfigText,
    aod::TOP_KEYS,
    node::{YamlEntry, YamlNode, YamlValue},
    read_file,
    reader::{ConfigReader, did_you_mean, find, quoted},
    rules::is_kind,
};
use crate::watched::{self, shown};

/// The folder's name.
const FOLDER: &str = "conf.d";
/// The most files in the folder.
const MAX_FILES: usize = 100;

/// Reads the files beside a configuration. Adds a notice for a file that looks as if it should be one of them.
///
/// # Errors
/// If the folder or one of its files cannot be read, is on a watched mount, or can be written by others than root while
/// we are root.
pub fn read_beside(
    path: &Path,
    never_touch: &[PathBuf],
    notices: &mut Vec<String>,
) -> Result<Vec<ConfigText>, ConfigError> {
    let folder = path.parent().unwrap_or(Path::new("")).join(FOLDER);
    let error = |path: &Path, text| ConfigError { file: path.display().to_string(), at: None, text };
    let check = |path: &Path| watched::check(path, never_touch).map_err(|watched| error(path, watched.to_string()));
    check(&folder)?;
    let cannot = |bad: std::io::Error| format!("cannot be read: {bad}; check its permissions, or move it away");
    match fs::metadata(&folder) {
        Err(missing) if missing.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(bad) => return Err(error(&folder, cannot(bad))),
        Ok(about) if !about.is_dir() => {
            return Err(error(&folder, "is not a directory; move it away: it is for files of configuration".into()));
        }
        Ok(about) => trusted(&about, &folder).map_err(|text| error(&folder, text))?,
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|bad| error(&folder, cannot(bad)))? {
        let name = entry.map_err(|bad| error(&folder, cannot(bad)))?.file_name();
        let is_hidden = name.as_bytes().starts_with(b".");
        if !is_hidden && name.as_bytes().ends_with(b".yaml") {
            files.push(folder.join(name));
        } else if !is_hidden && name.as_bytes().ends_with(b".yml") {
            notices.push(format!("{} is not read: end its name in .yaml", shown(&folder.join(name))));
        }
        if files.len() > MAX_FILES {
            return Err(error(&folder, format!("has more than {MAX_FILES} files; put what belongs together into one")));
        }
    }
    files.sort();
    let read = |file: PathBuf| {
        check(&file)?;
        let text = read_file(&file, |about| trusted(about, &file));
        ConfigText::new(file.display().to_string(), text.map_err(|text| error(&file, text))?)
    };
    files.into_iter().map(read).collect()
}

/// A notice if there are such files without a configuration beside them: they are then ignored.
pub fn without_configuration(missing: &Path, never_touch: &[PathBuf]) -> Option<String> {
    let files = read_beside(missing, never_touch, &mut Vec::new()).ok()?;
    let first = files.first()?;
    let text = "is not read, since there is no configuration beside the folder; write";
    Some(format!("{} {text} {} with `{{}}` in it, which takes every default", first.name, shown(missing)))
}

/// Refuses files that users other than root can change while we are root, since the configuration can run commands as root.
fn trusted(about: &fs::Metadata, path: &Path) -> Result<(), String> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let shown = shown(path);
    if about.uid() != 0 {
        return Err(format!("belongs to user {}, not to root; run `chown 0 {shown}`, or move it away", about.uid()));
    }
    if about.mode() & 0o022 != 0 {
        let mode = about.mode() & 0o7777;
        return Err(format!("can be written by others (mode {mode:04o}); run `chmod go-w {shown}`, or move it away"));
    }
    Ok(())
}

/// Merges the tree of one file into the previous ones, which are complete: each key has a value.
pub fn lay_over(reader: &mut ConfigReader<'_>, base: &mut Vec<YamlEntry>, tree: YamlNode) {
    match tree.value {
        YamlValue::Map(entries) => {
            if !is_of_aod(reader, &entries) {
                merge(reader, base, entries, true);
            }
        }
        YamlValue::Null => {}
        _ => reader.refuse(tree.at, "a configuration is keys with values; write `key: value`, one a line"),
    }
}

fn merge(reader: &mut ConfigReader<'_>, base: &mut Vec<YamlEntry>, entries: Vec<YamlEntry>, is_top: bool) {
    for entry in entries {
        let index = base.iter().position(|known| known.key == entry.key);
        let removes = matches!(entry.value.value, YamlValue::Null) && !is_top;
        match (index, entry) {
            (Some(index), _) if removes => drop(base.remove(index)),
            (None, entry) if removes => {
                let hint = did_you_mean(&entry.key, base.iter().map(|known| known.key.as_str()));
                let hint = hint.unwrap_or_else(|| "remove the line".to_owned());
                reader.refuse(entry.at, format!("there is no {} to remove; {hint}", quoted(&entry.key)));
            }
            (None, entry) => base.push(entry),
            (Some(index), entry) => {
                let Some(known) = base.get_mut(index) else { continue };
                match (&mut known.value.value, entry.value.value) {
                    (YamlValue::Map(known), YamlValue::Map(entries)) => merge(reader, known, entries, false),
                    (_, value) => *known = YamlEntry { value: YamlNode { at: entry.value.at, value }, ..entry },
                }
            }
        }
    }
}

/// Refuses keys of AOD, since the keys with which they would be merged have other names.
fn is_of_aod(reader: &mut ConfigReader<'_>, entries: &[YamlEntry]) -> bool {
    let before = reader.problems.len();
    let cure = "AOD's configuration is one file, so write it there, or in Plumbline's own form here";
    for entry in entries.iter().filter(|entry| TOP_KEYS.contains(&entry.key.as_str())) {
        reader.refuse(entry.at, format!("{} is AOD's; {cure}", quoted(&entry.key)));
    }
    let Some(YamlValue::Map(rules)) = find(entries, "anomalies").map(|entry| &entry.value.value) else {
        return reader.problems.len() > before;
    };
    for rule in rules {
        let YamlValue::Map(keys) = &rule.value.value else { continue };
        let is_group = |key: &&YamlEntry| is_kind(&key.key) && matches!(key.value.value, YamlValue::Map(_));
        let of_aod = find(keys, "tool").or_else(|| keys.iter().find(is_group));
        if let Some(key) = of_aod {
            let at = key.at;
            reader.refuse(at, format!("{} of {} is AOD's; {cure}", quoted(&key.key), quoted(&rule.key)));
        }
    }
    reader.problems.len() > before
}
