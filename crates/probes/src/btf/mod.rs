//! The kernel's description of its types (BTF, Documentation/bpf/btf.rst): functions, their arguments, and the fields of structs.
//! Invalid bytes are refused. This parser exists because libbpf-rs reads the kernel's types, but not the types of a module, which
//! refer to those of the kernel.

mod named;
mod parsed_once;

use std::{ffi::CStr, fs, io, path::Path, rc::Rc};

pub(crate) use named::NamedTypes;
pub(crate) use parsed_once::ParsedOnce;

const KERNEL: &str = "/sys/kernel/btf/vmlinux";
const FOLDER: &str = "/sys/kernel/btf";
const MAGIC: u16 = 0xeb9f;
/// The largest description that is read, bytes. No kernel's is larger.
const MOST: u64 = 64 << 20;
/// The most modifiers and names of types that lead to a type, and the deepest nesting of structs: no type of C has
/// more.
const DEEPEST: usize = 32;

/// A type's number.
pub(crate) type BtfId = u32;

/// What a type is, without modifiers and typedefs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BtfKind {
    Void,
    /// A number: its size in bytes, and whether it has a sign. Enumerations are numbers, too.
    Number {
        size: u32,
        is_signed: bool,
    },
    Pointer(BtfId),
    Array {
        of: BtfId,
        count: u32,
    },
    /// A struct or union.
    Struct,
    /// A struct or union whose fields are described elsewhere, or nowhere.
    Declared,
    Function,
    Other,
}

/// A field as it was found: its type and where it is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BtfField {
    pub id: BtfId,
    pub offset: u32,
    /// Some bits of a number.
    pub is_bits: bool,
}

/// A function: its arguments, by name and type, and what it returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub arguments: Vec<(String, BtfId)>,
    pub returns: BtfId,
}

/// The types of the kernel, or of a module on top of these.
#[derive(Debug)]
pub(crate) struct Types {
    bytes: Vec<u8>,
    /// Where each type begins in `bytes`.
    at: Vec<u32>,
    strings: usize,
    strings_end: usize,
    base: Option<Rc<Types>>,
}

struct RawType<'t> {
    name: u32,
    info: u32,
    size_or_type: u32,
    rest: &'t [u8],
}

impl RawType<'_> {
    fn kind(&self) -> u32 {
        self.info >> 24 & 31
    }

    fn count(&self) -> usize {
        (self.info & 0xffff) as usize
    }

    fn flag(&self) -> bool {
        self.info >> 31 == 1
    }

    /// The 32-bit number at this index behind the head.
    fn word_at(&self, index: usize) -> u32 {
        u32_at(self.rest, index * 4).unwrap_or(0)
    }
}

// include/uapi/linux/btf.h
const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FWD: u32 = 7;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const FLOAT: u32 = 16;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

impl Types {
    /// The kernel's own.
    pub fn of_kernel() -> io::Result<Rc<Self>> {
        Ok(Rc::new(Self::parse(read(Path::new(KERNEL))?, None).ok_or_else(|| malformed(KERNEL))?))
    }

    /// A module's, if it is loaded and describes its types.
    pub fn of_module(name: &str, kernel: &Rc<Self>) -> io::Result<Rc<Self>> {
        let path = Path::new(FOLDER).join(name);
        let types = Self::parse(read(&path)?, Some(Rc::clone(kernel)));
        Ok(Rc::new(types.ok_or_else(|| malformed(&path.display().to_string()))?))
    }

    /// The modules that describe their types.
    pub fn modules() -> Vec<String> {
        let all = fs::read_dir(FOLDER).into_iter().flatten().flatten();
        let mut names: Vec<_> = all.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.retain(|name| name != "vmlinux");
        names.sort();
        names
    }

    /// `None`: these bytes describe no types.
    pub fn parse(bytes: Vec<u8>, base: Option<Rc<Self>>) -> Option<Self> {
        if u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?) != MAGIC {
            return None;
        }
        let [head, types, length, strings, strings_length] =
            [4, 8, 12, 16, 20].map(|at| u32_at(&bytes, at).map(|word| word as usize));
        let head = head?;
        let mut here = head.checked_add(types?)?;
        let end = here.checked_add(length?)?;
        let strings = head.checked_add(strings?)?;
        let strings_end = strings.checked_add(strings_length?)?;
        if end > bytes.len() || strings_end > bytes.len() {
            return None;
        }
        // Number 0 is void, and has no description.
        let mut at = if base.is_some() { Vec::new() } else { vec![u32::MAX] };
        while here < end {
            at.push(u32::try_from(here).ok()?);
            here += 12 + behind_head(u32_at(&bytes, here.checked_add(4)?)?)?;
        }
        Some(Self { bytes, at, strings, strings_end, base })
    }

    fn first(&self) -> u32 {
        self.base.as_ref().map_or(0, |base| base.first() + base.at.len() as u32)
    }

    fn raw(&self, id: BtfId) -> Option<RawType<'_>> {
        let Some(own) = id.checked_sub(self.first()) else { return self.base.as_ref()?.raw(id) };
        let at = usize::try_from(*self.at.get(own as usize)?).ok()?;
        let [name, info, size_or_type] = [0, 4, 8].map(|more| u32_at(&self.bytes, at.checked_add(more)?));
        Some(RawType { name: name?, info: info?, size_or_type: size_or_type?, rest: self.bytes.get(at + 12..)? })
    }

    fn text(&self, offset: u32) -> &str {
        std::str::from_utf8(self.text_bytes(offset)).unwrap_or("")
    }

    /// For searches through all names.
    fn text_bytes(&self, offset: u32) -> &[u8] {
        let inherited = self.base.as_ref().map_or(0, |base| base.strings_all());
        let Some(own) = offset.checked_sub(inherited) else {
            return self.base.as_ref().map_or(b"", |base| base.text_bytes(offset));
        };
        let rest = self.strings_bytes().get(own as usize..).unwrap_or_default();
        CStr::from_bytes_until_nul(rest).map_or(rest, CStr::to_bytes)
    }

    fn strings_bytes(&self) -> &[u8] {
        self.bytes.get(self.strings..self.strings_end).unwrap_or_default()
    }

    fn strings_all(&self) -> u32 {
        let own = self.strings_bytes().len() as u32;
        self.base.as_ref().map_or(0, |base| base.strings_all()) + own
    }

    /// Those that are described here, without those of the kernel below a module.
    fn own_ids(&self) -> impl Iterator<Item = BtfId> {
        let first = self.first();
        (0..self.at.len() as u32).map(move |index| first + index)
    }

    fn named(&self, kind: u32, name: &str) -> Option<RawType<'_>> {
        let found = self.own_ids().filter_map(|id| self.raw(id));
        found.into_iter().find(|raw| raw.kind() == kind && self.text_bytes(raw.name) == name.as_bytes())
    }

    /// The function of this name that is described here.
    pub fn function(&self, name: &str) -> Option<Function> {
        self.prototype(self.named(FUNC, name)?.size_or_type)
    }

    /// The function that a typedef of a pointer to a function describes.
    pub fn function_type(&self, typedef: &str) -> Option<Function> {
        match self.kind(self.named(TYPEDEF, typedef)?.size_or_type) {
            BtfKind::Pointer(id) => self.prototype(self.plain(id)),
            _ => None,
        }
    }

    fn prototype(&self, id: BtfId) -> Option<Function> {
        let raw = self.raw(id).filter(|raw| raw.kind() == FUNC_PROTO)?;
        let argument = |index| (self.text(raw.word_at(index * 2)).to_owned(), raw.word_at(index * 2 + 1));
        Some(Function { arguments: (0..raw.count()).map(argument).collect(), returns: raw.size_or_type })
    }

    /// The names of all functions that are described here.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.own_ids().filter_map(|id| self.raw(id)).filter(|raw| raw.kind() == FUNC).map(|raw| self.text(raw.name))
    }

    /// Without modifiers and typedefs.
    fn plain(&self, mut id: BtfId) -> BtfId {
        for _ in 0..DEEPEST {
            match self.raw(id) {
                Some(raw) if matches!(raw.kind(), TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG) => {
                    id = raw.size_or_type;
                }
                _ => break,
            }
        }
        id
    }

    pub fn kind(&self, id: BtfId) -> BtfKind {
        let id = self.plain(id);
        let Some(raw) = self.raw(id) else { return if id == 0 { BtfKind::Void } else { BtfKind::Other } };
        match raw.kind() {
            INT => BtfKind::Number { size: raw.size_or_type, is_signed: raw.word_at(0) >> 24 & 1 == 1 },
            ENUM | ENUM64 => BtfKind::Number { size: raw.size_or_type, is_signed: raw.flag() },
            PTR => BtfKind::Pointer(raw.size_or_type),
            ARRAY => BtfKind::Array { of: raw.word_at(0), count: raw.word_at(2) },
            STRUCT | UNION => BtfKind::Struct,
            FWD => BtfKind::Declared,
            FUNC_PROTO | FUNC => BtfKind::Function,
            _ => BtfKind::Other,
        }
    }

    /// The name of a struct, a union or a number's type.
    pub fn name(&self, id: BtfId) -> &str {
        self.raw(self.plain(id)).map_or("", |raw| self.text(raw.name))
    }

    /// The description of a struct that is only declared here.
    pub fn described(&self, id: BtfId) -> Option<BtfId> {
        let id = self.plain(id);
        if self.kind(id) == BtfKind::Struct {
            return Some(id);
        }
        let name = self.name(id).to_owned();
        let is_it = |id: &BtfId| self.kind(*id) == BtfKind::Struct && self.name(*id) == name;
        if self.kind(id) != BtfKind::Declared {
            return None;
        }
        let kernel = self.base.as_ref().and_then(|base| base.own_ids().find(is_it));
        self.own_ids().find(is_it).or(kernel)
    }

    /// The field of this name of a struct, also within structs that have no name.
    pub fn field(&self, of: BtfId, name: &str) -> Option<BtfField> {
        self.each_field(of, 0, 0, &mut |field, found| (found == name).then_some(field))
    }

    /// The names of a struct's fields, with their types.
    pub fn fields(&self, of: BtfId) -> Vec<(String, BtfField)> {
        let mut all = Vec::new();
        self.each_field::<()>(of, 0, 0, &mut |field, name| {
            all.push((name.to_owned(), field));
            None
        });
        all
    }

    fn each_field<T>(
        &self,
        of: BtfId,
        offset: u32,
        depth: usize,
        see: &mut impl FnMut(BtfField, &str) -> Option<T>,
    ) -> Option<T> {
        let raw = self.raw(self.plain(of)).filter(|raw| matches!(raw.kind(), STRUCT | UNION))?;
        for index in 0..raw.count() {
            let [name, id, place] = [0, 1, 2].map(|part| raw.word_at(index * 3 + part));
            let (bits, width) = if raw.flag() { (place & 0xff_ffff, place >> 24) } else { (place, 0) };
            let field = BtfField { id, offset: offset.checked_add(bits / 8)?, is_bits: width != 0 || bits % 8 != 0 };
            let name = self.text(name);
            let found = match name.is_empty() && depth < DEEPEST {
                true => self.each_field(id, field.offset, depth + 1, see),
                false => see(field, name),
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

/// How many bytes follow a type's head.
fn behind_head(info: u32) -> Option<usize> {
    let count = (info & 0xffff) as usize;
    Some(match info >> 24 & 31 {
        INT | VAR | DECL_TAG => 4,
        ARRAY => 12,
        STRUCT | UNION | DATASEC | ENUM64 => count * 12,
        ENUM | FUNC_PROTO => count * 8,
        PTR | FWD | TYPEDEF | VOLATILE | CONST | RESTRICT | FUNC | FLOAT | TYPE_TAG => 0,
        _ => return None,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn malformed(path: &str) -> io::Error {
    io::Error::other(format!("{path} does not describe types in a way that is known"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn this_kernels_types_are_understood() {
        let Ok(types) = Types::of_kernel() else { return eprintln!("SKIP this_kernels_types_are_understood: no BTF") };
        let function = types.function("vfs_read").unwrap();
        let names: Vec<_> = function.arguments.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["file", "buf", "count", "pos"]);
        assert_eq!(types.kind(function.returns), BtfKind::Number { size: 8, is_signed: true });
        let BtfKind::Pointer(file) = types.kind(function.arguments[0].1) else { panic!("a pointer") };
        assert_eq!(types.name(file), "file");
        assert!(types.field(file, "f_inode").is_some() && types.field(file, "f_no_such").is_none());
        assert!(types.functions().any(|name| name == "vfs_write"));
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..300), length in 0_u32..300) {
            let mut whole = vec![0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0];
            whole.extend(length.to_ne_bytes());
            whole.extend(length.to_ne_bytes());
            whole.extend(20_u32.to_ne_bytes());
            whole.extend(&bytes);
            if let Some(types) = Types::parse(whole, None) {
                for id in 0..20 {
                    let _ = (types.kind(id), types.name(id).len(), types.fields(id), types.described(id));
                }
                let _ = (types.function("a"), types.function_type("a"), types.functions().count());
            }
        }
    }
}
