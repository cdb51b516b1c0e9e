//! Detects the type of a file that was given to a command, since each type has its own command.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use anyhow::{Error, anyhow};

use crate::recording::MAGIC;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// A bundle with the evidence of an incident.
    Bundle,
    /// A recording of `plumbline record` or of the daemon's recorder.
    Recording,
    /// A recording of `plumbline io --record`.
    IoRecording,
}

/// The position of the magic in a tar archive (POSIX, ustar).
const USTAR: std::ops::Range<usize> = 257..262;
const ZSTD: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes(); // RFC 8878, section 3.1.1

impl FileFormat {
    /// The type by the first bytes; `None` if it is none of ours, or the file cannot be read. A pipe's first bytes may have been read already.
    pub fn of(path: &Path) -> Option<Self> {
        path.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let mut first = Vec::new();
        File::open(path).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut first)).ok()?;
        if first == MAGIC {
            return Some(Self::Recording);
        }
        if !first.starts_with(&ZSTD) {
            return None;
        }
        let block = unpacked(path).ok()?;
        match block.get(USTAR) {
            Some(b"ustar") => Some(Self::Bundle),
            _ => block.starts_with(b"{").then_some(Self::IoRecording),
        }
    }

    /// The error of a command that could not read a file of the type `taken`. If the file has another type, the error names the command for that.
    pub fn explain(path: &Path, taken: Self, error: Error) -> Error {
        let (what, command) = match Self::of(path) {
            Some(kind) if kind == taken => return error,
            None if taken == Self::Bundle && File::open(path).is_ok() => {
                return error.context(format!("{} is no bundle of an incident, or it is damaged", path.display()));
            }
            None => return error,
            Some(Self::Bundle) => ("the bundle of an incident", "plumbline report"),
            Some(Self::Recording) => ("a recording of `plumbline record`", "plumbline replay"),
            Some(Self::IoRecording) => ("a recording of `plumbline io --record`", "plumbline io report"),
        };
        anyhow!("{0} is {what}: `{command} {0}`", path.display())
    }
}

/// The first bytes of compressed content.
fn unpacked(path: &Path) -> io::Result<Vec<u8>> {
    let mut block = Vec::new();
    zstd::stream::read::Decoder::new(File::open(path)?)?.take(USTAR.end as u64).read_to_end(&mut block)?;
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_first_bytes_whatever_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let kind = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            FileFormat::of(&path)
        };
        let packed = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
        let mut archive = tar::Builder::new(Vec::new());
        archive.append_data(&mut tar::Header::new_gnu(), "incident.json", io::empty()).unwrap();
        assert_eq!(kind(&packed(&archive.into_inner().unwrap())), Some(FileFormat::Bundle));
        assert_eq!(kind(&packed(b"{\"header\":{}}\n")), Some(FileFormat::IoRecording));
        assert_eq!(kind(b"PLUMBREC and more"), Some(FileFormat::Recording));
        for other in [&b""[..], b"PLUMB", b"{}", &packed(b""), &ZSTD] {
            assert_eq!(kind(other), None);
        }
        assert_eq!(FileFormat::of(Path::new("/nowhere")), None);
    }
}
