//! The common part of every BPF iterator: it is loaded when it is asked for, read to its end, and unloaded when it is dropped.
//! A new iterator is a `.bpf.c` file and, beside it, the meaning of its records.

use std::io::Read;

use libbpf_rs::{Iter, Link, MapCore, Object, ObjectBuilder, OpenObject};

use crate::generated::Plain;

/// An iterator, loaded.
pub(crate) struct KernelIterator {
    // The links come first: they are dropped before the object that their programs live in.
    links: Vec<Link>,
    object: Object,
}

impl KernelIterator {
    /// Loads an object with one iterator, or with several that give the same kind of record, with `options` as its
    /// `.rodata.options`.
    pub fn load(object: &[u8], options: &[u8]) -> libbpf_rs::Result<Self> {
        let object = open(object, options)?.load()?;
        let links = object.progs_mut().map(|program| program.attach()).collect::<libbpf_rs::Result<_>>()?;
        Ok(Self { links, object })
    }

    /// Pins the iterator in bpffs, where it stays after this process.
    pub fn pin(&mut self, path: &std::path::Path) -> libbpf_rs::Result<()> {
        self.links.iter_mut().try_for_each(|link| link.pin(path))
    }

    /// One of its object's maps.
    pub fn map(&self, name: &str) -> Option<libbpf_rs::Map<'_>> {
        self.object.maps().find(|map| map.name() == name)
    }

    /// All records that the iterator gives now, all of one size.
    pub fn records<T: Plain>(&self) -> libbpf_rs::Result<Vec<T>> {
        let mut all = Vec::new();
        for link in &self.links {
            all.append(&mut read_all(link)?);
        }
        Ok(all)
    }

    /// All records that the iterator gives now, if they differ in length. `take` gets the bytes from the beginning of a record on,
    /// and returns the record's length, or `None` if the record is not complete. No more than the longest record is kept.
    pub fn each(&self, mut take: impl FnMut(&[u8]) -> Option<usize>) -> libbpf_rs::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        self.links.iter().try_for_each(|link| each_of(&mut Iter::new(link)?, &mut buffer, &mut take))
    }
}

fn each_of(
    iterator: &mut Iter,
    buffer: &mut [u8],
    take: &mut impl FnMut(&[u8]) -> Option<usize>,
) -> libbpf_rs::Result<()> {
    let mut held = 0;
    loop {
        let count = iterator.read(buffer.get_mut(held..).unwrap_or_default())?;
        if count == 0 {
            return Ok(());
        }
        held += count;
        let mut at = 0;
        while let Some(length) = buffer.get(at..held).and_then(&mut *take) {
            at += length;
        }
        buffer.copy_within(at..held, 0);
        held -= at;
    }
}

/// Opens an object and writes `options` over the beginning of its `.rodata.options`.
pub(crate) fn open(object: &[u8], options: &[u8]) -> libbpf_rs::Result<OpenObject> {
    let mut object = ObjectBuilder::default().open_memory(object)?;
    for mut map in object.maps_mut() {
        let is_options = map.name().as_encoded_bytes().ends_with(b".options");
        if let Some(value) = map.initial_value_mut().filter(|_| is_options) {
            value.iter_mut().zip(options).for_each(|(to, from)| *to = *from);
        }
    }
    Ok(object)
}

/// All the output of an iterator.
pub(crate) fn read_all<T: Plain>(iterator: &Link) -> libbpf_rs::Result<Vec<T>> {
    let mut bytes = Vec::new();
    Iter::new(iterator)?.read_to_end(&mut bytes)?;
    Ok(bytes.chunks_exact(size_of::<T>()).filter_map(T::from_bytes).collect())
}
