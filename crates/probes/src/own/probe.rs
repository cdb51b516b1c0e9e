//! Loads and attaches the two programs of an operation.

use std::{ffi::OsString, fs::File, os::unix::ffi::OsStringExt, path::Path};

use libbpf_rs::{Error, ErrorExt as _, Link, Object, OpenObject, ProgramMut};

use super::{
    OwnOperation,
    definition::{At, Definition, OwnHook},
    resolve::{self, MissingInKernel},
    ways::{AttachWay, is_program},
    words::{near, slips},
};
use crate::btf::Types;
use crate::{
    generated::{Plain as _, own_plan},
    libraries::elf::Elf,
    mounts::Mounts,
    probe::{AttachedTo, Probe},
    spec::Rung,
};

/// What of it is for static probes only.
const OF_USDT: &[u8] = b"__bpf_usdt";

/// A way to attach an operation, with the modules of its functions.
pub(super) struct Plan {
    ways: (AttachWay, AttachWay),
    plan: own_plan,
    modules: [Option<String>; 2],
}

/// The ways that this kernel may allow, best first.
///
/// # Errors
/// What prevents the best way, if no way is left.
pub(super) fn plans(definition: &Definition) -> Result<Vec<Result<Plan, MissingInKernel>>, MissingInKernel> {
    let Definition { begin, end, .. } = definition;
    for hook in [begin, end] {
        find_in_file(hook)?;
    }
    let at = (begin.line, begin.column);
    let kernel = Types::of_kernel().map_err(|error| {
        let fix = "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y".into();
        MissingInKernel { at, text: format!("this kernel's types cannot be read: {error}"), fix }
    })?;
    let plan = |ways| {
        let (plan, modules) = resolve::plan(definition, ways, &kernel)?;
        Ok(Plan { ways, plan, modules })
    };
    let all: Vec<_> = AttachWay::both(&begin.value, &end.value).into_iter().map(plan).collect();
    if all.iter().any(Result::is_ok) {
        return Ok(all);
    }
    let none =
        || MissingInKernel { at, text: "there is no way from this hook to the end's".into(), fix: String::new() };
    Err(all.into_iter().find_map(Result::err).unwrap_or_else(none))
}

/// Whether the file exists, is not on a watched mount, and has the function.
fn find_in_file(hook: &At<OwnHook>) -> Result<(), MissingInKernel> {
    let Some(path) = hook.value.path() else { return Ok(()) };
    let refuse = |text: String, fix: String| Err(MissingInKernel { at: (hook.line, hook.column), text, fix });
    let shown = path.display();
    let mounts = Mounts::own().unwrap_or_default();
    let is_below = |point: &[u8]| path.starts_with(Path::new(&OsString::from_vec(point.to_vec())));
    if mounts.iter().any(|point| point.remote && is_below(&point.path)) {
        let fix = "name a copy on a local file system".to_owned();
        return refuse(format!("{shown} is on a network file system, which is never touched"), fix);
    }
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return refuse(format!("{shown} cannot be opened: {error}"), "check the path".into()),
    };
    let OwnHook::User { name, .. } = &hook.value else { return Ok(()) };
    let Some(elf) = Elf::of(&file) else {
        return refuse(format!("{shown} is no 64-bit program or library of this machine"), "name another file".into());
    };
    if !elf.definitions(name.as_bytes(), |one| one == name.as_bytes()).is_empty() {
        return Ok(());
    }
    let all = elf.definitions(b"\0", |one| std::str::from_utf8(one).is_ok_and(|one| slips(name, one).is_some()));
    let fix = match near(name, all.keys().map(String::as_str)) {
        near if near.is_empty() => "name a function that it exports or, if it is not stripped, any other".to_owned(),
        near => format!("did you mean {}?", near.join(" or ")),
    };
    refuse(format!("{shown} has no function `{name}`"), fix)
}

/// An operation of the site's own, attached or not.
pub(crate) struct OwnProbe {
    own: &'static OwnOperation,
    plans: Vec<Result<Plan, MissingInKernel>>,
    /// How it is attached, and the modules of its functions.
    ways: Option<(AttachWay, AttachWay)>,
    modules: [Option<String>; 2],
    links: Vec<Link>,
}

impl OwnProbe {
    pub fn new(own: &'static OwnOperation) -> Self {
        Self { own, plans: Vec::new(), ways: None, modules: [None, None], links: Vec::new() }
    }

    fn place(&self, refusal: &MissingInKernel) -> String {
        let (line, column) = refusal.at;
        format!("{}:{line}:{column}: {}", self.own.definition.file, refusal.text)
    }
}

impl Probe for OwnProbe {
    fn refusal(&mut self) -> Option<(String, String)> {
        match plans(&self.own.definition) {
            Ok(plans) => {
                self.plans = plans;
                None
            }
            Err(refusal) => Some((self.place(&refusal), refusal.fix)),
        }
    }

    fn cure(&self) -> Option<String> {
        let Definition { file, begin, .. } = &self.own.definition;
        let (line, column) = (begin.line, begin.column);
        Some(format!("name another hook at {file}:{line}:{column}, or remove the operation; the others go on"))
    }

    fn prepare(&mut self, object: &mut OpenObject, rung: &Rung) -> libbpf_rs::Result<()> {
        let Definition { begin, end, .. } = &self.own.definition;
        let is_rung = |ways: &(AttachWay, AttachWay)| rung.required == [ways.0.program(false), ways.1.program(true)];
        let index = AttachWay::both(&begin.value, &end.value).iter().position(is_rung);
        let Plan { ways, plan, modules } = match index.and_then(|index| self.plans.get(index)) {
            Some(Ok(plan)) => plan,
            Some(Err(refusal)) => return Err(Error::from(std::io::Error::other(self.place(refusal)))),
            None => return Err(Error::from(std::io::Error::other("there is no plan for it"))),
        };
        let operation = self.own.definition.operation.as_str();
        let spec = super::current().into_iter().find(|spec| spec.own.is_some_and(|own| std::ptr::eq(own, self.own)));
        let code = spec.and_then(|spec| Some((spec.id.0, spec.protocol.operation(operation)?.code())));
        let Some((probe, code)) = code else {
            return Err(Error::from(std::io::Error::other("it is no longer in force")));
        };
        let plan = own_plan { probe, operation: code.into(), ..*plan };
        let needs_usdt = [ways.0, ways.1].contains(&AttachWay::Usdt);
        for mut map in object.maps_mut() {
            let name = map.name().as_encoded_bytes().to_vec();
            if name.ends_with(b".plan") {
                if let Some(value) = map.initial_value_mut().filter(|value| value.len() == size_of::<own_plan>()) {
                    value.copy_from_slice(plan.as_bytes());
                }
            } else if name == b"own_flights" {
                map.set_max_entries(self.own.flights)?;
            } else if name.starts_with(OF_USDT) {
                map.set_autocreate(needs_usdt)?;
            }
        }
        for mut program in object.progs_mut() {
            let name = program.name().to_owned();
            if is_program(&name, ways.0.program(false)) {
                ways.0.aim(&mut program, &begin.value, modules[0].as_deref())?;
            } else if is_program(&name, ways.1.program(true)) {
                ways.1.aim(&mut program, &end.value, modules[1].as_deref())?;
            }
        }
        (self.ways, self.modules) = (Some(*ways), modules.clone());
        Ok(())
    }

    fn attaches(&self, _: &ProgramMut<'_>) -> bool {
        true
    }

    fn attached_in(&self, module: &str) -> Vec<AttachedTo> {
        let Some((begin_way, end_way)) = self.ways else { return Vec::new() };
        let Definition { begin, end, .. } = &self.own.definition;
        let [begin_module, end_module] = &self.modules;
        let both = [(begin_way, &begin.value, begin_module), (end_way, &end.value, end_module)];
        let here = both.into_iter().filter(|(_, _, its)| its.as_deref() == Some(module));
        here.filter_map(|(way, hook, _)| way.attached_to(hook)).collect()
    }

    /// The end is attached first: otherwise operations that begin in between would never end.
    fn attach(&mut self, object: &mut Object) -> libbpf_rs::Result<()> {
        let Some((begin_way, end_way)) = self.ways else { return Ok(()) };
        let Definition { begin, end, .. } = &self.own.definition;
        self.links.clear();
        let both = [(end_way, end_way.program(true), &end.value), (begin_way, begin_way.program(false), &begin.value)];
        for (way, name, hook) in both {
            let Some(program) = object.progs_mut().find(|program| is_program(program.name(), name)) else { continue };
            let link = way.attach(&program, hook).with_context(|| format!("cannot attach to {hook}"));
            match link {
                Ok(link) => self.links.push(link),
                Err(error) => {
                    self.links.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn detach(&mut self, _: &Object) {
        self.links.clear();
    }

    /// A thread that is gone does not end an operation any more.
    fn has_ended(&self, key: &[u8]) -> bool {
        if !self.own.definition.key.is_empty() {
            return false;
        }
        let thread = key.get(..8).and_then(|thread| thread.try_into().ok()).map(u64::from_ne_bytes);
        thread.is_some_and(|thread| !Path::new("/proc").join(thread.to_string()).exists())
    }
}
