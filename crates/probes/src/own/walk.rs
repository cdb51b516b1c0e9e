//! From an argument to a value, through the fields of structs.

use super::words::{one_of, some};
use crate::btf::{BtfId, BtfKind, Types};
use crate::generated::own_place;

/// The purpose of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Key,
    Bytes,
    Status,
    Mount,
    File,
}

impl What {
    pub fn name(self) -> &'static str {
        match self {
            Self::Key => "a key",
            Self::Bytes => "a number of bytes",
            Self::Status => "a status",
            Self::Mount => "a device number, nor anything that leads to one",
            Self::File => "a text, nor anything that has a file's name",
        }
    }
}

/// The way from an argument to a value.
pub(super) struct ValueWalk<'t> {
    pub types: &'t Types,
    pub id: BtfId,
    /// The offset at each pointer.
    pub steps: Vec<u32>,
    pub said: String,
    pub is_bits: bool,
}

/// What is wrong, and the cure.
pub(super) type Wrong = (String, String);

impl ValueWalk<'_> {
    pub fn field(&mut self, name: &str) -> Result<(), Wrong> {
        let (target, through_pointer) = match self.types.kind(self.id) {
            BtfKind::Pointer(to) => (to, true),
            _ => (self.id, false),
        };
        let Some(target) = self.types.described(target) else {
            let text = format!("`{}` is {}, which has no fields", self.said, self.described());
            return Err((text, format!("end the path at `{}`, or take another way", self.said)));
        };
        let Some(field) = self.types.field(target, name) else {
            let all = self.types.fields(target);
            let text = format!("struct {} has no field `{name}`", self.types.name(target));
            return Err((text, one_of(name, all.iter().map(|(name, _)| name.as_str()))));
        };
        match self.steps.last_mut() {
            Some(last) if !through_pointer => *last += field.offset,
            _ => self.steps.push(field.offset),
        }
        (self.id, self.is_bits) = (field.id, field.is_bits);
        self.said = format!("{}{}{name}", self.said, if through_pointer { "->" } else { "." });
        Ok(())
    }

    /// The type, in words.
    fn described(&self) -> String {
        let types = self.types;
        match types.kind(self.id) {
            BtfKind::Void => "void".into(),
            BtfKind::Number { size, .. } if self.is_bits => format!("some bits of {size} bytes"),
            BtfKind::Number { size, is_signed } => match types.name(self.id) {
                "" => format!("a{} number of {size} bytes", if is_signed { " signed" } else { "n unsigned" }),
                name => format!("a number ({name})"),
            },
            BtfKind::Pointer(to) => match types.kind(to) {
                BtfKind::Struct | BtfKind::Declared => format!("a pointer to struct {}", types.name(to)),
                BtfKind::Number { .. } => format!("a pointer to {}", types.name(to)),
                _ => "a pointer".into(),
            },
            BtfKind::Array { count, .. } => format!("an array of {count}"),
            BtfKind::Struct | BtfKind::Declared => format!("struct {}", types.name(self.id)),
            BtfKind::Function | BtfKind::Other => "neither a number nor a pointer".into(),
        }
    }

    /// Goes on to a device number or a name, from a type that has one.
    fn go_on(&mut self, what: What) -> Result<(), Wrong> {
        let target = match self.types.kind(self.id) {
            BtfKind::Pointer(to) => to,
            BtfKind::Struct => self.id,
            _ => return Ok(()),
        };
        let more: &[&str] = match (what, self.types.name(target)) {
            (What::Mount, "super_block") => &["s_dev"],
            (What::Mount, "inode") => &["i_sb", "s_dev"],
            (What::Mount, "dentry") => &["d_sb", "s_dev"],
            (What::Mount, "path") => &["dentry", "d_sb", "s_dev"],
            (What::Mount, "file") => &["f_inode", "i_sb", "s_dev"],
            (What::Mount, "vfsmount") => &["mnt_sb", "s_dev"],
            (What::Mount, "block_device") => &["bd_dev"],
            (What::Mount, "request") => &["q", "disk", "part0", "bd_dev"],
            (What::File, "qstr") => &["name"],
            (What::File, "dentry") => &["d_name", "name"],
            (What::File, "path") => &["dentry", "d_name", "name"],
            (What::File, "file") => &["f_path", "dentry", "d_name", "name"],
            _ => &[],
        };
        more.iter().try_for_each(|name| self.field(name))
    }

    pub fn finish(mut self, mut place: own_place, what: What) -> Result<own_place, Wrong> {
        if matches!(what, What::Mount | What::File) {
            self.go_on(what)?;
        }
        let mut kind = self.types.kind(self.id);
        // An argument by which a function returns a number.
        if let (What::Bytes | What::Status, BtfKind::Pointer(to)) = (what, kind)
            && let number @ BtfKind::Number { size: 2.., .. } = self.types.kind(to)
        {
            self.steps.push(0);
            kind = number;
        }
        let is_text = |id| matches!(self.types.kind(id), BtfKind::Number { size: 1, .. });
        match (what, kind) {
            (What::File, BtfKind::Pointer(to)) if is_text(to) => {
                // One more step: the address of the text is itself a value.
                self.steps.push(0);
                place.size = 8;
            }
            (What::File, BtfKind::Array { of, .. }) if is_text(of) && !self.steps.is_empty() => place.size = 8,
            (What::Bytes | What::Status | What::Mount | What::Key, BtfKind::Number { size, is_signed })
                if !self.is_bits && matches!(size, 1 | 2 | 4 | 8) =>
            {
                (place.size, place.is_signed) = (size, is_signed.into());
            }
            // A pointer may be an error in disguise (ERR_PTR).
            (What::Key, BtfKind::Pointer(_)) => place.size = 8,
            (What::Status, BtfKind::Pointer(_)) => (place.size, place.is_signed) = (8, 1),
            _ => {
                let text = format!("`{}` is {}, not {}", self.said, self.described(), what.name());
                return Err((text, self.better(what)));
            }
        }
        if self.steps.len() > place.offset.len() {
            let most = place.offset.len();
            return Err((format!("`{}` follows more than {most} pointers", self.said), "take a shorter way".into()));
        }
        place.steps = u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        place.offset.iter_mut().zip(&self.steps).for_each(|(to, from)| *to = *from);
        Ok(place)
    }

    /// Suggestions of names that were perhaps meant.
    fn better(&self, what: What) -> String {
        let target = match self.types.kind(self.id) {
            BtfKind::Pointer(to) => self.types.described(to),
            _ => self.types.described(self.id),
        };
        let fields = target.map(|target| self.types.fields(target)).unwrap_or_default();
        let is_number = |id| matches!(self.types.kind(id), BtfKind::Number { .. });
        let numbers = fields.iter().filter(|(_, field)| is_number(field.id) && !field.is_bits);
        let names: Vec<_> = numbers.map(|(name, _)| name.as_str()).collect();
        match what {
            What::Bytes | What::Status if !names.is_empty() => {
                format!("name a number; of its fields, these are: {}", some(names.into_iter()))
            }
            What::Mount => {
                "name a device number, or a super_block, inode, dentry, file, path, block_device or request".into()
            }
            What::File => "name a text (char *), or a dentry, file, path or qstr".into(),
            _ => "name a number".into(),
        }
    }
}
