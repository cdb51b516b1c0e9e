//! `plumbline report`: a bundle as one self-contained page.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};

use super::{
    folder::{self, Folder},
    incidents::read_incident,
    kind::Kind,
    usage_error,
};
use crate::{evidence::Id, view::report};

#[derive(clap::Args)]
pub struct Arguments {
    /// The bundle: a .tar.zst, the id that `plumbline incidents` lists, or `latest`
    bundle: OsString,
    #[command(flatten)]
    folder: folder::Arguments,
    /// Where the page goes; without it, standard output
    #[arg(short, long, value_name = "F.html")]
    output: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (bundle, name) = match id_of(&arguments.bundle) {
        None => {
            let path = Path::new(&arguments.bundle);
            (open(path)?, path.display().to_string())
        }
        Some(id) => match arguments.folder.find()? {
            Ok(folder) => stored(&folder, id)?,
            Err(message) => return Ok(usage_error(message)),
        },
    };
    let page = report::page(&read_incident(bundle).with_context(|| format!("cannot read {name}"))?);
    match &arguments.output {
        Some(path) => fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?,
        None => std::io::stdout().lock().write_all(page.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

enum Wanted {
    Latest,
    Id(Id),
}

/// What an argument means that is no file's path. A file of that name goes before.
fn id_of(argument: &OsStr) -> Option<Wanted> {
    let text = argument.to_str()?;
    if Path::new(argument).exists() {
        return None;
    }
    if text == "latest" { Some(Wanted::Latest) } else { Id::parse(text).map(Wanted::Id) }
}

fn stored(folder: &Folder, wanted: Wanted) -> Result<(File, String)> {
    let Some(store) = &folder.store else { bail!("no incidents in {}", folder.path.display()) };
    let id = match wanted {
        Wanted::Id(id) => id,
        Wanted::Latest => match store.list()?.into_iter().next() {
            Some(newest) => newest.id,
            None => bail!("no incidents in {}", folder.path.display()),
        },
    };
    let name = store.path_of(&id).display().to_string();
    let bundle = store.open_bundle(&id);
    Ok((bundle.with_context(|| format!("cannot read {name}; `plumbline incidents` lists what there is"))?, name))
}

fn open(path: &Path) -> Result<File> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    match Kind::advice(path, Kind::Bundle) {
        Some(advice) => bail!(advice),
        None => Ok(file),
    }
}
