//! A site's definition of an operation of its own: hooks, and where values come from. Nothing here asks a kernel.

use std::{fmt, path::PathBuf};

/// Something that stands in a configuration, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    /// What it is.
    pub value: T,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
}

/// An operation of the site's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The probe's name.
    pub protocol: String,
    /// The operation's name.
    pub operation: String,
    /// The file that it is defined in, as errors name it.
    pub file: String,
    /// Where it begins.
    pub begin: At<OwnHook>,
    /// Where it ends.
    pub end: At<OwnHook>,
    /// The values that pair the start and the end of an operation. One or two of each; none: the thread.
    pub key: Vec<(At<ValueSource>, At<ValueSource>)>,
    /// How many bytes it moves.
    pub bytes: Option<At<ValueSource>>,
    /// How it ended.
    pub status: Option<At<ValueSource>>,
    /// The mount that it belongs to.
    pub mount: Option<At<ValueSource>>,
    /// The name of its file.
    pub path: Option<At<ValueSource>>,
}

/// What a program can be attached to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnHook {
    /// A function of the kernel.
    Function {
        /// Its module, if that is named: then the operation waits for it.
        module: Option<String>,
        /// Its name.
        name: String,
        /// When it returns; else when it is called.
        returns: bool,
        /// Never attach by fentry or fexit.
        only_kprobe: bool,
    },
    /// A tracepoint.
    Tracepoint {
        /// `block`
        group: String,
        /// `block_rq_issue`
        name: String,
    },
    /// A function of a program or a library.
    User {
        /// The file.
        path: PathBuf,
        /// The function.
        name: String,
        /// When it returns.
        returns: bool,
    },
    /// A static probe of a program or a library.
    Usdt {
        /// The file.
        path: PathBuf,
        /// Whose probe.
        provider: String,
        /// Its name.
        name: String,
    },
}

/// The words for hooks.
pub const HOOKS: [&str; 8] = ["fentry", "fexit", "kprobe", "kretprobe", "tracepoint", "uprobe", "uretprobe", "usdt"];

impl OwnHook {
    /// The hook that a word and a name mean.
    ///
    /// # Errors
    /// What is wrong with the name, and how to write it.
    pub fn parse(word: &str, text: &str) -> Result<Self, String> {
        match word {
            "fentry" | "fexit" | "kprobe" | "kretprobe" => {
                let (module, name) = match text.split_once(':') {
                    Some((module, name)) => (Some(module), name),
                    None => (None, text),
                };
                if !is_name(name) || !module.is_none_or(is_name) {
                    return Err("is no function of the kernel; write its name, or MODULE:NAME".into());
                }
                let (returns, only_kprobe) = (matches!(word, "fexit" | "kretprobe"), word.starts_with('k'));
                Ok(Self::Function { module: module.map(str::to_owned), name: name.to_owned(), returns, only_kprobe })
            }
            "tracepoint" => match text.split_once(':') {
                Some((group, name)) if is_name(group) && is_name(name) => {
                    Ok(Self::Tracepoint { group: group.to_owned(), name: name.to_owned() })
                }
                _ => Err("is no tracepoint; write GROUP:NAME, such as block:block_rq_issue".into()),
            },
            "uprobe" | "uretprobe" => match text.rsplit_once(':') {
                Some((path, name)) if is_path(path) && is_symbol(name) => {
                    Ok(Self::User { path: path.into(), name: name.to_owned(), returns: word == "uretprobe" })
                }
                _ => Err("is no function of a program; write PATH:FUNCTION with an absolute path".into()),
            },
            _ => {
                let mut parts = text.rsplitn(3, ':');
                match (parts.next(), parts.next(), parts.next()) {
                    (Some(name), Some(provider), Some(path))
                        if is_path(path) && is_symbol(name) && is_symbol(provider) =>
                    {
                        Ok(Self::Usdt { path: path.into(), provider: provider.to_owned(), name: name.to_owned() })
                    }
                    _ => Err("is no static probe; write PATH:PROVIDER:NAME with an absolute path".into()),
                }
            }
        }
    }

    /// The return of the function; `None` if this is not a function, or is a return already.
    pub fn return_of(&self) -> Option<Self> {
        let mut hook = self.clone();
        match &mut hook {
            Self::Function { returns, .. } | Self::User { returns, .. } if !*returns => *returns = true,
            _ => return None,
        }
        Some(hook)
    }

    /// Whether it is the return of a function.
    pub fn is_return(&self) -> bool {
        matches!(self, Self::Function { returns: true, .. } | Self::User { returns: true, .. })
    }

    /// Whether the hook is in a process, where no types are known.
    pub fn is_user(&self) -> bool {
        matches!(self, Self::User { .. } | Self::Usdt { .. })
    }

    /// The module that is named with a function.
    pub(super) fn module(&self) -> Option<&str> {
        match self {
            Self::Function { module, .. } => module.as_deref(),
            _ => None,
        }
    }

    /// The file that it is in, of a program or a library.
    pub fn path(&self) -> Option<&std::path::Path> {
        match self {
            Self::User { path, .. } | Self::Usdt { path, .. } => Some(path),
            _ => None,
        }
    }
}

impl fmt::Display for OwnHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function { name, .. } => f.write_str(name),
            Self::Tracepoint { group, name } => write!(f, "{group}:{name}"),
            Self::User { path, name, .. } => write!(f, "{name} of {}", path.display()),
            Self::Usdt { path, provider, name } => write!(f, "{provider}:{name} of {}", path.display()),
        }
    }
}

/// Where a value comes from: `return`, `thread`, `args.req->tc.size`, `end.nr_bytes`, `args.2:u32`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueSource {
    /// As it was written.
    pub text: String,
    /// What it begins with.
    pub root: ValueRoot,
    /// An argument's name or number.
    pub argument: String,
    /// Fields that lead from there.
    pub fields: Vec<String>,
    /// Its type, where it is given: size in bytes, and whether it has a sign.
    pub cast: Option<(u32, bool)>,
}

/// What a value begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueRoot {
    /// What the function returns.
    Return,
    /// The thread's id.
    Thread,
    /// An argument when the operation begins; of a key, of the hook in question.
    Begin,
    /// An argument when it ends.
    End,
}

const CASTS: [(&str, (u32, bool)); 8] = [
    ("u8", (1, false)),
    ("s8", (1, true)),
    ("u16", (2, false)),
    ("s16", (2, true)),
    ("u32", (4, false)),
    ("s32", (4, true)),
    ("u64", (8, false)),
    ("s64", (8, true)),
];

impl ValueSource {
    /// The value that a text means.
    ///
    /// # Errors
    /// What is wrong with it, and how to write it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let how = "write `return`, or an argument such as args.count or end.req->size";
        let (path, cast) = match text.split_once(':') {
            None => (text, None),
            Some((path, cast)) => {
                let found = CASTS.iter().find(|(name, _)| *name == cast.trim());
                let known = CASTS.map(|(name, _)| name).join(", ");
                (path, Some(found.ok_or_else(|| format!("has a type that is not known; write one of {known}"))?.1))
            }
        };
        let path = path.trim().replace("->", ".");
        let mut parts = path.split('.').map(str::to_owned);
        let root = match parts.next().as_deref() {
            Some("return") => ValueRoot::Return,
            Some("thread") => ValueRoot::Thread,
            Some("args") => ValueRoot::Begin,
            Some("end") => ValueRoot::End,
            _ => return Err(format!("is no value; {how}")),
        };
        let mut parts: Vec<_> = parts.collect();
        if parts.iter().any(|part| !is_name(part)) {
            return Err(format!("has a part that is no name; {how}"));
        }
        let argument = match root {
            ValueRoot::Begin | ValueRoot::End if parts.is_empty() => return Err(format!("names no argument; {how}")),
            ValueRoot::Begin | ValueRoot::End => parts.remove(0),
            ValueRoot::Thread if !parts.is_empty() => return Err("is a number without fields; write `thread`".into()),
            ValueRoot::Thread | ValueRoot::Return => String::new(),
        };
        Ok(Self { text: text.to_owned(), root, argument, fields: parts, cast })
    }

    /// The thread.
    pub fn thread() -> Self {
        let (text, argument, fields) = ("thread".to_owned(), String::new(), Vec::new());
        Self { text, root: ValueRoot::Thread, argument, fields, cast: None }
    }
}

/// The name of a probe or an operation: it stands in metrics, in file names and on command lines.
pub fn is_good_name(name: &str, longest: usize) -> bool {
    name.len() <= longest && is_name(name)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A symbol of a program may have been mangled, or have a version.
fn is_symbol(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':')
}

fn is_path(text: &str) -> bool {
    text.starts_with('/') && !text.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_are_read_by_their_word() {
        let hook = |word, text| OwnHook::parse(word, text);
        let function = |module: Option<&str>, returns, only_kprobe| OwnHook::Function {
            module: module.map(str::to_owned),
            name: "f".into(),
            returns,
            only_kprobe,
        };
        assert_eq!(hook("fentry", "f"), Ok(function(None, false, false)));
        assert_eq!(hook("kretprobe", "m:f"), Ok(function(Some("m"), true, true)));
        let user = |returns| OwnHook::User { path: "/bin/a:b".into(), name: "f".into(), returns };
        assert_eq!(hook("uprobe", "/bin/a:b:f"), Ok(user(false)));
        assert_eq!(user(false).return_of(), Some(user(true)));
        assert_eq!(user(true).return_of(), None);
        let usdt = OwnHook::Usdt { path: "/bin/a".into(), provider: "p".into(), name: "n".into() };
        assert_eq!(hook("usdt", "/bin/a:p:n"), Ok(usdt));
        for (word, wrong) in
            [("fentry", "a b"), ("tracepoint", "block"), ("uprobe", "a:f"), ("usdt", "/bin/a:n"), ("fexit", "")]
        {
            assert!(hook(word, wrong).is_err(), "{word} {wrong}");
        }
    }

    #[test]
    fn values_are_paths_of_names() {
        let source = ValueSource::parse("args.req->tc.size").unwrap();
        assert_eq!((source.root, source.argument.as_str()), (ValueRoot::Begin, "req"));
        assert_eq!(source.fields, ["tc", "size"]);
        let source = ValueSource::parse("end.2:u32").unwrap();
        assert_eq!((source.root, source.cast), (ValueRoot::End, Some((4, false))));
        assert_eq!(ValueSource::parse("thread").unwrap(), ValueSource::thread());
        for wrong in ["", "args", "count", "args.a..b", "args.a[0]", "args.1:int", "thread.x", "return:"] {
            assert!(ValueSource::parse(wrong).is_err(), "{wrong}");
        }
    }
}
