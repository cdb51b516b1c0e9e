//! `plumbline report`: a bundle as one self-contained page.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Seek, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Error, Result};

use super::{
    folder::{self, Folder},
    kind::FileFormat,
};
use crate::{
    evidence::{IncidentId, each_entry, read_incident},
    page::{EVENTS, NamesShown, PageMaterial},
};

#[derive(clap::Args)]
pub struct ReportArguments {
    /// The bundle: a .tar.zst, the id that `plumbline incidents` lists, or `latest`
    bundle: OsString,
    #[command(flatten)]
    folder: folder::FolderArguments,
    /// Where the page goes; without it, standard output
    #[arg(short, long, value_name = "F.html")]
    output: Option<PathBuf>,
    /// Replace the names of files, processes, users, hosts, mounts and addresses by tokens, and leave out the contents of the evidence, so that the page can go to outsiders
    #[arg(long)]
    redact: bool,
}

/// The most files of a bundle, and the most bytes in all. A bundle with more is not from Plumbline.
const FILES: usize = 1_000;
const BYTES: u64 = 1 << 30;

pub fn run(arguments: &ReportArguments) -> Result<ExitCode> {
    let material = match WantedIncident::parse(&arguments.bundle) {
        None => in_file(Path::new(&arguments.bundle))?,
        Some(wanted) => match arguments.folder.find()? {
            Ok(folder) => stored(&folder, wanted)?,
            Err(code) => return Ok(code),
        },
    };
    let page = material.page(if arguments.redact { NamesShown::Redacted } else { NamesShown::Shown });
    match &arguments.output {
        Some(path) => fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?,
        None => io::stdout().lock().write_all(page.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

enum WantedIncident {
    Latest,
    Id(IncidentId),
}

impl WantedIncident {
    /// Parses an id or `latest`; `None` for a path. Does not access the file: the working directory may be on a watched mount.
    fn parse(argument: &OsStr) -> Option<Self> {
        let text = argument.to_str()?;
        if text == "latest" { Some(Self::Latest) } else { IncidentId::parse(text).map(Self::Id) }
    }
}

fn stored(folder: &Folder, wanted: WantedIncident) -> Result<PageMaterial> {
    let none = || format!("no incidents in {}", folder.path.display());
    let store = folder.store.as_ref().with_context(none)?;
    let id = match wanted {
        WantedIncident::Id(id) => id,
        WantedIncident::Latest => store.list()?.into_iter().next().with_context(none)?.id,
    };
    let shown = || format!("cannot read {}; `plumbline incidents` lists what there is", store.path_of(&id).display());
    store.open_bundle(&id).map_err(Error::from).and_then(gather).with_context(shown)
}

fn in_file(path: &Path) -> Result<PageMaterial> {
    let material = File::open(path).map_err(Error::from).and_then(gather);
    let material = material.with_context(|| format!("cannot read {}", path.display()));
    material.map_err(|error| FileFormat::explain(path, FileFormat::Bundle, error))
}

/// Reads the material of a page from a bundle. The slow operations are needed first, wherever they are in the bundle.
fn gather(bundle: File) -> Result<PageMaterial> {
    let mut material = PageMaterial::new(read_incident(bundle.try_clone()?)?);
    for is_first in [true, false] {
        (&bundle).rewind()?;
        let (mut files, mut total) = (0, 0_u64);
        each_entry(&bundle, |name, bytes, content| {
            (files, total) = (files + 1, total.saturating_add(bytes));
            if files > FILES || total > BYTES {
                return Ok(false);
            }
            if (name == EVENTS) == is_first {
                io::copy(content, &mut material.file(name, bytes))?;
            }
            Ok(true)
        })?;
    }
    Ok(material)
}
