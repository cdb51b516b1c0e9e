//! The kernel's types against which objects are relocated. libbpf looks for each struct that an object names among all types of the kernel,
//! some hundred thousand, and of the modules, and reads these types anew for each object: that took a third of the start. So libbpf gets a
//! smaller description, with only the types that our objects name, and the types within them. The types have other numbers in this
//! description. Programs that tell the verifier a type's number read the number from an enumeration in this description.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{self, Write as _},
    os::fd::AsRawFd as _,
    path::PathBuf,
    rc::Rc,
};

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::{
    ARRAY, BtfId, CONST, ENUM, ENUM64, FLOAT, FWD, INT, MAGIC, PTR, RESTRICT, RawType, STRUCT, TYPE_TAG, TYPEDEF,
    Types, UNION, VOLATILE, behind_head, malformed,
};

/// The names of all types of our objects, the kernel's and our own.
const NAMES: &str = include_str!(concat!(env!("OUT_DIR"), "/type_names.txt"));
/// Bytes of the header that this writes.
const HEADER: u32 = 24;
/// The enumeration of the kernel's own numbers of structs, and what its constants begin with.
const NUMBERS: &str = "plumbline_type_ids";
const NUMBER: &str = "TYPE_ID_";

/// Such a description, as a file in memory.
#[derive(Debug)]
pub(crate) struct NamedTypes {
    file: File,
}

impl NamedTypes {
    /// The description of the types of the kernel and the modules that are loaded now.
    pub fn of_kernel() -> io::Result<Self> {
        let kernel = Types::of_kernel()?;
        let modules = Types::modules();
        // A module that was unloaded meanwhile has no types.
        let modules: Vec<_> = modules.iter().filter_map(|name| Types::of_module(name, &kernel).ok()).collect();
        let bytes = describe(&kernel, &modules, &wanted()).ok_or_else(|| malformed("the kernel"))?;
        let mut file = File::from(memfd_create("types", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(&bytes)?;
        Ok(Self { file })
    }

    /// The path where libbpf finds the description, valid as long as this value exists.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}

/// Which of the types of the kernel or a module are kept, by their index there.
struct Kept<'t> {
    types: &'t Types,
    is: Vec<bool>,
}

impl<'t> Kept<'t> {
    fn none(types: &'t Types) -> Self {
        Self { types, is: vec![false; types.at.len()] }
    }

    /// Keeps a type and the types within it, but not the types that it points to.
    fn with(&mut self, mut kernel: Option<&mut Kept<'t>>, id: BtfId) {
        let mut left = vec![id];
        while let Some(id) = left.pop() {
            let Some(own) = id.checked_sub(self.types.first()) else {
                if let Some(kernel) = &mut kernel {
                    kernel.with(None, id);
                }
                continue;
            };
            let (Some(is), Some(raw)) = (self.is.get_mut(own as usize), self.types.raw(id)) else { continue };
            if !std::mem::replace(is, true) {
                left.extend(references(&raw).into_iter().map(|index| word(&raw, index)));
            }
        }
    }

    fn ids(&self) -> impl Iterator<Item = BtfId> {
        self.types.own_ids().zip(&self.is).filter(|(_, is)| **is).map(|(id, _)| id)
    }
}

/// The 32-bit number at this index of a type's description; its head has three.
fn word(raw: &RawType<'_>, index: usize) -> u32 {
    match index {
        0 => raw.name,
        1 => raw.info,
        2 => raw.size_or_type,
        _ => raw.word_at(index - 3),
    }
}

/// Which of its numbers are types within it.
fn references(raw: &RawType<'_>) -> Vec<usize> {
    match raw.kind() {
        TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => vec![2],
        ARRAY => vec![3, 4],
        STRUCT | UNION => (0..raw.count()).map(|member| 4 + member * 3).collect(),
        _ => Vec::new(),
    }
}

/// Which of its numbers are names.
fn names(raw: &RawType<'_>) -> Vec<usize> {
    let each = |width| (0..raw.count()).map(move |index| 3 + index * width);
    match raw.kind() {
        STRUCT | UNION | ENUM64 => std::iter::once(0).chain(each(3)).collect(),
        ENUM => std::iter::once(0).chain(each(2)).collect(),
        _ => vec![0],
    }
}

/// Those that an object may name.
fn is_of_data(kind: u32) -> bool {
    matches!(kind, STRUCT | UNION | ENUM | ENUM64 | TYPEDEF | INT | FLOAT | FWD)
}

/// A description in the making.
#[derive(Default)]
struct Description {
    types: Vec<u32>,
    strings: Vec<u8>,
    /// How many types there are. Number 0 is void, and has no description.
    count: u32,
}

impl Description {
    /// Appends the kept types, and returns the new number of each. `others`: the new numbers of types that are described already.
    /// Types that are `hidden` get no name: a module may have its own copy of a struct of the kernel within a wanted struct (`struct
    /// inode` within `struct nfs_inode`, Linux 7.3), and libbpf must not find this copy.
    fn append(
        &mut self,
        kept: &Kept<'_>,
        others: &HashMap<BtfId, BtfId>,
        hidden: &HashSet<(u32, &[u8])>,
    ) -> Option<HashMap<BtfId, BtfId>> {
        let mut renumbered = HashMap::new();
        for id in kept.ids() {
            self.count = self.count.checked_add(1)?;
            renumbered.insert(id, self.count);
        }
        for id in kept.ids() {
            let raw = kept.types.raw(id)?;
            let words = 3 + behind_head(raw.info)? / size_of::<u32>();
            let mut numbers: Vec<_> = (0..words).map(|index| word(&raw, index)).collect();
            for index in references(&raw) {
                let new = |id: &u32| renumbered.get(id).or_else(|| others.get(id)).copied();
                numbers[index] = new(&numbers[index]).unwrap_or(0);
            }
            for index in names(&raw) {
                numbers[index] = self.text(kept.types.text_bytes(numbers[index]))?;
            }
            if hidden.contains(&(raw.kind(), essential(kept.types.text_bytes(raw.name)))) {
                numbers[0] = 0;
            }
            if raw.kind() == PTR {
                // A pointer to void: the type that it points to may not be kept.
                numbers[2] = 0;
            }
            self.types.append(&mut numbers);
        }
        Some(renumbered)
    }

    /// Appends the enumeration that `TYPE_ID` of bpf/fields.h reads: what numbers these structs have in the kernel.
    fn append_numbers(&mut self, structs: &[(BtfId, &[u8])]) -> Option<()> {
        let name = self.text(NUMBERS.as_bytes())?;
        self.types.extend([name, ENUM << 24 | u32::from(u16::try_from(structs.len()).ok()?), 4]);
        for (id, of) in structs {
            let name = self.text(&[NUMBER.as_bytes(), of].concat())?;
            self.types.extend([name, *id]);
        }
        self.count = self.count.checked_add(1)?;
        Some(())
    }

    /// Where a text is.
    fn text(&mut self, text: &[u8]) -> Option<u32> {
        if self.strings.is_empty() {
            self.strings.push(0);
        }
        if text.is_empty() {
            return Some(0);
        }
        let at = u32::try_from(self.strings.len()).ok()?;
        self.strings.extend_from_slice(text);
        self.strings.push(0);
        Some(at)
    }

    fn into_bytes(self) -> Option<Vec<u8>> {
        let Self { types, strings, .. } = self;
        let (length, texts) = (u32::try_from(types.len() * size_of::<u32>()).ok()?, u32::try_from(strings.len()).ok()?);
        // Version 1, no flags.
        let mut all = [&MAGIC.to_ne_bytes()[..], &[1, 0]].concat();
        let header = [HEADER, 0, length, length, texts];
        header.iter().chain(&types).for_each(|number| all.extend_from_slice(&number.to_ne_bytes()));
        all.extend(strings);
        Some(all)
    }
}

/// The types that have these names, first the kernel's, then the modules'. `None`: a number is too large.
fn describe(kernel: &Rc<Types>, modules: &[Rc<Types>], wanted: &HashSet<&[u8]>) -> Option<Vec<u8>> {
    let mut of_kernel = Kept::none(kernel);
    // libbpf looks into modules only for what the kernel proper does not have.
    let mut found = HashSet::new();
    let mut structs = Vec::new();
    for (id, kind, name) in wanted_of(kernel, wanted) {
        if found.insert((kind, name)) && kind == STRUCT {
            structs.push((id, name));
        }
        of_kernel.with(None, id);
    }
    let mut of_modules = Vec::new();
    for module in modules {
        let mut kept = Kept::none(module);
        for (id, ..) in wanted_of(module, wanted).filter(|(_, kind, name)| !found.contains(&(*kind, *name))) {
            kept.with(Some(&mut of_kernel), id);
        }
        of_modules.push(kept);
    }
    let mut description = Description::default();
    let renumbered = description.append(&of_kernel, &HashMap::new(), &HashSet::new())?;
    for kept in &of_modules {
        description.append(kept, &renumbered, &found)?;
    }
    description.append_numbers(&structs)?;
    description.into_bytes()
}

/// The names of all types of our objects.
fn wanted() -> HashSet<&'static [u8]> {
    NAMES.lines().map(str::as_bytes).collect()
}

/// The numbers, kinds and essential names of types that have one of these names.
fn wanted_of<'t>(types: &'t Types, wanted: &HashSet<&[u8]>) -> impl Iterator<Item = (BtfId, u32, &'t [u8])> {
    let named = types.own_ids().filter_map(|id| Some((id, types.raw(id)?))).filter(|(_, raw)| is_of_data(raw.kind()));
    let named = named.map(|(id, raw)| (id, raw.kind(), essential(types.text_bytes(raw.name))));
    named.filter(|(_, _, name)| !name.is_empty() && wanted.contains(name))
}

/// The name by which libbpf looks for a type: `file___before_6_5` is `file`.
fn essential(name: &[u8]) -> &[u8] {
    let end = name.windows(3).position(|three| three == b"___");
    end.and_then(|end| name.get(..end)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::{super::BtfField, *};

    /// A description of these types, each a line of its numbers.
    fn types(records: &[&[u32]], strings: &str, base: Option<&Rc<Types>>) -> Rc<Types> {
        let words: Vec<_> = records.concat();
        let length = u32::try_from(words.len() * 4).unwrap();
        let mut bytes = [&MAGIC.to_ne_bytes()[..], &[1, 0]].concat();
        let header = [HEADER, 0, length, length, u32::try_from(strings.len()).unwrap()];
        header.iter().chain(&words).for_each(|number| bytes.extend(number.to_ne_bytes()));
        bytes.extend(strings.as_bytes());
        Rc::new(Types::parse(bytes, base.cloned()).unwrap())
    }

    const STRUCT_OF_ONE: u32 = STRUCT << 24 | 1;

    /// What the enumeration says of each struct.
    fn numbers_in(described: &Types) -> Vec<(String, BtfId)> {
        let numbers = described.named(ENUM, NUMBERS).unwrap();
        (0..numbers.count())
            .map(|index| {
                let name = described.text(numbers.word_at(index * 2));
                (name.strip_prefix(NUMBER).unwrap().to_owned(), numbers.word_at(index * 2 + 1))
            })
            .collect()
    }

    #[test]
    fn wanted_types_are_there_with_what_is_within_them_and_their_numbers() {
        // 1 int, 2 struct other { int a; }, 3 pointer to 2, 4 struct inner { int a; }, 5 struct outer { struct inner b; struct other *c; }
        let kernel = types(
            &[
                &[1, INT << 24, 4, 32],
                &[5, STRUCT_OF_ONE, 4, 11, 1, 0],
                &[0, PTR << 24, 2],
                &[13, STRUCT_OF_ONE, 4, 11, 1, 0],
                &[19, STRUCT << 24 | 2, 16, 25, 4, 0, 27, 3, 64],
                &[5, STRUCT_OF_ONE, 4, 11, 1, 0],
            ],
            "\0int\0other\0a\0inner\0outer\0b\0c\0",
            None,
        );
        let described = Types::parse(describe(&kernel, &[], &HashSet::from([&b"outer"[..]])).unwrap(), None).unwrap();
        let names: Vec<_> = described.own_ids().map(|id| described.name(id)).collect();
        assert_eq!(names, ["", "int", "", "inner", "outer", NUMBERS]);
        let fields = |types: &Types, id| {
            types.fields(id).into_iter().map(|(name, field)| (name, field.offset)).collect::<Vec<_>>()
        };
        assert_eq!(fields(&described, 4), fields(&kernel, 5));
        assert_eq!(described.fields(4).iter().map(|(_, field)| field.id).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(described.fields(3), [("a".to_owned(), BtfField { id: 1, offset: 0, is_bits: false })]);
        assert_eq!(
            described.raw(2).map(|raw| (raw.kind(), raw.size_or_type)),
            Some((PTR, 0)),
            "what is only pointed to is not there"
        );
        assert_eq!(numbers_in(&described), [("outer".to_owned(), 5)]);
    }

    #[test]
    fn modules_types_come_behind_the_kernels() {
        let kernel = types(&[&[1, INT << 24, 4, 32], &[5, STRUCT_OF_ONE, 4, 1, 1, 0]], "\0int\0both\0", None);
        // The kernel's strings take ten bytes; the offsets of a module's strings continue from there.
        let named = |name: &str| format!("\0{name}\0f\0");
        // Each module has its own copy of the kernel's struct, within a struct that is wanted.
        let module = |name: &str| {
            let field = 12 + u32::try_from(name.len()).unwrap();
            let records: [&[u32]; 2] = [&[5, STRUCT_OF_ONE, 8, field, 1, 32], &[11, STRUCT_OF_ONE, 8, field, 3, 0]];
            types(&records, &named(name), Some(&kernel))
        };
        let modules = [module("first"), module("nobody"), module("second")];
        let wanted = HashSet::from([&b"first"[..], b"second", b"both"]);
        let described = Types::parse(describe(&kernel, &modules, &wanted).unwrap(), None).unwrap();
        let names: Vec<_> = described.own_ids().map(|id| described.name(id)).collect();
        assert_eq!(
            names,
            ["", "int", "both", "", "first", "", "second", NUMBERS],
            "what the kernel has is not found in modules"
        );
        for (id, of) in [(3, 1), (4, 3), (5, 1), (6, 5)] {
            let [(name, field)] = &described.fields(id)[..] else { panic!("one field") };
            assert_eq!((name.as_str(), field.id), ("f", of));
        }
        assert_eq!(numbers_in(&described), [("both".to_owned(), 2)], "modules' are no numbers of the kernel");
    }

    #[test]
    fn this_kernels_types_are_as_they_were() {
        let Ok(kernel) = Types::of_kernel() else {
            return eprintln!("SKIP this_kernels_types_are_as_they_were: no BTF");
        };
        let wanted = wanted();
        let described = Types::parse(describe(&kernel, &[], &wanted).unwrap(), None).unwrap();
        let numbers = numbers_in(&described);
        assert!(numbers.iter().any(|(name, _)| name == "task_struct"));
        let plain = |types: &Types, id| {
            types.fields(id).into_iter().map(|(name, field)| (name, field.offset, field.is_bits)).collect::<Vec<_>>()
        };
        for (name, id) in numbers {
            let is_it = |found: &BtfId| {
                described.name(*found) == name && described.raw(*found).is_some_and(|raw| raw.kind() == STRUCT)
            };
            let found = described.own_ids().find(is_it).unwrap();
            assert_eq!(plain(&described, found), plain(&kernel, id), "{name}");
        }
    }
}
