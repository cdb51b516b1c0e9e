//! `plumbline report`: a bundle as one self-contained page.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Error, Result};
use model::Incident;

use super::{
    folder::{self, Folder},
    incidents::read_incident,
    kind::Kind,
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
    let incident = match Wanted::parse(&arguments.bundle) {
        None => in_file(Path::new(&arguments.bundle))?,
        Some(wanted) => match arguments.folder.find()? {
            Ok(folder) => stored(&folder, wanted)?,
            Err(code) => return Ok(code),
        },
    };
    let page = report::page(&incident);
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

impl Wanted {
    /// `None` for a file's path. Nothing is looked up: the working directory may be on a mount that is watched.
    fn parse(argument: &OsStr) -> Option<Self> {
        let text = argument.to_str()?;
        if text == "latest" { Some(Self::Latest) } else { Id::parse(text).map(Self::Id) }
    }
}

fn stored(folder: &Folder, wanted: Wanted) -> Result<Incident> {
    let none = || format!("no incidents in {}", folder.path.display());
    let store = folder.store.as_ref().with_context(none)?;
    let id = match wanted {
        Wanted::Id(id) => id,
        Wanted::Latest => store.list()?.into_iter().next().with_context(none)?.id,
    };
    let shown = || format!("cannot read {}; `plumbline incidents` lists what there is", store.path_of(&id).display());
    store.open_bundle(&id).map_err(Error::from).and_then(read_incident).with_context(shown)
}

fn in_file(path: &Path) -> Result<Incident> {
    let incident = File::open(path).map_err(Error::from).and_then(read_incident);
    let incident = incident.with_context(|| format!("cannot read {}", path.display()));
    incident.map_err(|error| Kind::explain(path, Kind::Bundle, error))
}
