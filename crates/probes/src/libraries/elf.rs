//! The functions that an ELF file defines, and their offsets in the file. Invalid bytes are refused.

use std::{collections::HashMap, fs::File, os::unix::fs::FileExt};

/// More of a file's table of symbols, or of its names, is not read.
const MOST_BYTES: u64 = 8 << 20;
const MOST_SECTIONS: u64 = 4096;

/// What is read from.
pub(crate) trait ByteSource {
    /// Just these bytes; `None` if there are fewer.
    fn read(&self, offset: u64, length: u64) -> Option<Vec<u8>>;
}

impl ByteSource for File {
    fn read(&self, offset: u64, length: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(length.min(MOST_BYTES)).ok().filter(|_| length <= MOST_BYTES)?];
        self.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }
}

impl ByteSource for [u8] {
    fn read(&self, offset: u64, length: u64) -> Option<Vec<u8>> {
        let start = usize::try_from(offset).ok()?;
        Some(self.get(start..start.checked_add(usize::try_from(length).ok()?)?)?.to_vec())
    }
}

/// A 64-bit ELF file of this machine's byte order (elf(5)).
pub(crate) struct Elf<'a, S: ByteSource + ?Sized> {
    source: &'a S,
    entry: u64,
    /// Address, offset in the file and length of what is loaded.
    loaded: Vec<(u64, u64, u64)>,
    sections: Vec<ElfSection>,
}

struct ElfSection {
    kind: u32,
    offset: u64,
    length: u64,
    link: usize,
}

const SYMBOLS_OF_DEBUGGING: u32 = 2; // SHT_SYMTAB
const SYMBOLS_OF_LINKING: u32 = 11; // SHT_DYNSYM

impl<'a, S: ByteSource + ?Sized> Elf<'a, S> {
    /// `None`: the file is not an ELF file of this kind.
    pub fn of(source: &'a S) -> Option<Self> {
        let header = source.read(0, 64)?;
        if !header.starts_with(b"\x7fELF\x02\x01") || cfg!(target_endian = "big") {
            return None;
        }
        let (entry, programs, sections) = (u64_at(&header, 24)?, u64_at(&header, 32)?, u64_at(&header, 40)?);
        let [program_length, program_count, section_length, section_count] =
            [54, 56, 58, 60].map(|at| u16_at(&header, at).map_or(0, u64::from));
        if program_length != 56 || section_length != 64 || section_count > MOST_SECTIONS {
            return None;
        }
        let programs = source.read(programs, program_count * program_length)?;
        let loaded = programs.chunks_exact(56).filter(|program| u32_at(program, 0) == Some(1)); // PT_LOAD
        let loaded =
            loaded.filter_map(|program| Some((u64_at(program, 16)?, u64_at(program, 8)?, u64_at(program, 32)?)));
        let table = source.read(sections, section_count * section_length)?;
        let section = |bytes: &[u8]| {
            Some(ElfSection {
                kind: u32_at(bytes, 4)?,
                offset: u64_at(bytes, 24)?,
                length: u64_at(bytes, 32)?,
                link: usize::try_from(u32_at(bytes, 40)?).ok()?,
            })
        };
        let sections = table.chunks_exact(64).filter_map(section).collect();
        Some(Self { source, entry, loaded: loaded.collect(), sections })
    }

    /// Where in the file the program starts to run.
    pub fn entry(&self) -> Option<u64> {
        self.offset_of(self.entry)
    }

    fn offset_of(&self, address: u64) -> Option<u64> {
        let holds = |(start, _, length): &&(u64, u64, u64)| address.checked_sub(*start).is_some_and(|at| at < *length);
        let (start, offset, _) = self.loaded.iter().find(holds)?;
        offset.checked_add(address - start)
    }

    /// Name and offset of each function that the file defines under a name that `wanted` accepts. The names are those for
    /// dynamic linking; for a program that contains the library, those for debugging. Empty if none of the names contains
    /// `part`.
    pub fn definitions(&self, part: &[u8], wanted: impl Fn(&[u8]) -> bool) -> HashMap<String, u64> {
        let tables = [SYMBOLS_OF_LINKING, SYMBOLS_OF_DEBUGGING];
        let tables = tables.iter().flat_map(|kind| self.sections.iter().filter(move |section| section.kind == *kind));
        tables
            .map(|table| self.defined_in(table, part, &wanted).unwrap_or_default())
            .find(|found| !found.is_empty())
            .unwrap_or_default()
    }

    fn defined_in(
        &self,
        table: &ElfSection,
        part: &[u8],
        wanted: &impl Fn(&[u8]) -> bool,
    ) -> Option<HashMap<String, u64>> {
        let names = self.sections.get(table.link)?;
        let names = self.source.read(names.offset, names.length.min(MOST_BYTES))?;
        if !contains(&names, part) {
            return None;
        }
        let symbols = self.source.read(table.offset, table.length.min(MOST_BYTES))?;
        let definition = |symbol: &[u8]| {
            let (name, section, address) = (u32_at(symbol, 0)?, u16_at(symbol, 6)?, u64_at(symbol, 8)?);
            let name = names.get(usize::try_from(name).ok()?..)?.split(|byte| *byte == 0).next()?;
            if section == 0 || !wanted(name) {
                return None;
            }
            // An empty variable, for example, has no place in the file, but is defined all the same.
            Some((std::str::from_utf8(name).ok()?.to_owned(), self.offset_of(address).unwrap_or(0)))
        };
        Some(symbols.chunks_exact(24).filter_map(definition).collect())
    }
}

pub(crate) fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn own() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    #[test]
    fn this_program_is_understood() {
        let bytes = own();
        let elf = Elf::of(bytes.as_slice()).unwrap();
        assert!(elf.entry().is_some_and(|entry| entry > 64));
        let found = elf.definitions(b"main", |name| name == b"main");
        assert!(found["main"] > 64);
        assert!(elf.definitions(b"MPI_File_\x01", |_| true).is_empty());
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0_usize..200) {
            let mut whole = own();
            whole.truncate(1 << 16);
            for (slot, byte) in whole.iter_mut().skip(at).zip(&bytes) {
                *slot = *byte;
            }
            whole[..6].copy_from_slice(b"\x7fELF\x02\x01");
            for bytes in [bytes.as_slice(), &whole] {
                if let Some(elf) = Elf::of(bytes) {
                    let _ = (elf.entry(), elf.definitions(b"m", |_| true));
                }
            }
        }
    }
}
