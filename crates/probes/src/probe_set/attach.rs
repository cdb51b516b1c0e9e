//! How a probe is loaded and attached: the best way that this kernel allows.

use std::{
    collections::HashSet,
    os::fd::AsFd as _,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use libbpf_rs::{
    ErrorExt as _, Link, Map, MapCore as _, MapHandle, Object, ObjectBuilder, OpenProgramMut, Program, ProgramMut,
};
use model::Nanos;

use super::{
    at_work::{AtWork, ProbeObstacle},
    nanos_now, slots,
};
use crate::{
    btf::{NamedTypes, ParsedOnce},
    kernel::{PERMISSION, functions_of_kernel, has_types, may_load, module_identity, programs_hold_modules},
    libraries::{self, Libraries},
    probe::{AttachedTo, Probe},
    shared::SharedMaps,
    spec::{Hook, RequiredModule, Rung, Spec},
};

/// How long a failure to attach stands.
const RETRY_AFTER: Duration = Duration::from_secs(300);
/// The section of a program that the kernel runs for each entry of a map.
const OVER_A_MAP: &str = "iter/bpf_map_elem";

/// A probe that has been loaded and attached. Dropping it detaches.
pub(super) struct Attached {
    // Links first: they are dropped before the object that their programs live in.
    _links: Vec<Link>,
    /// For a probe that has one: the iterator over tasks that lists the operations in flight.
    pub in_flight: Option<Link>,
    /// For a probe that has one: the iterator over the map of operations in flight that removes operations whose end was
    /// missed.
    pub forgets_ended: Option<Link>,
    /// Of a probe on libraries: what it is attached to.
    pub libraries: Option<Libraries>,
    pub object: Object,
    pub rung: &'static Rung,
    pub all_optional: bool,
    /// What the probe does not see, because this kernel lacks the functions for some hooks.
    pub unseen: Vec<&'static str>,
    pub since: Nanos,
    /// References that its programs hold on the module.
    pub own_users: u64,
    pub idle_since: Option<Duration>,
    /// Which loading of the module it is attached to.
    pub module: Option<u64>,
}

/// Attaches probes on as many threads as there are processors: reading the kernel's types and verification take most of the time.
pub(super) fn attach_side_by_side(wanted: Vec<&mut AtWork>, shared: &SharedMaps, now: Duration) {
    if wanted.is_empty() {
        return;
    }
    let types = match NamedTypes::of_kernel() {
        Ok(types) => types,
        Err(error) => {
            for probe in wanted {
                let reason = format!("cannot read the kernel's description of its types (BTF): {error}");
                let fix = cure(&reason, &*probe.probe);
                refused(probe, reason, fix, now);
            }
            return;
        }
    };
    let types = types.path();
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(wanted.len());
    let left = Mutex::new(wanted.into_iter());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let _read = ParsedOnce::on_this_thread();
        while let Some(probe) = next() {
            try_to_attach(probe, shared, &types, now);
        }
    };
    if workers <= 1 {
        return work();
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        // A thread that panicked leaves nothing attached.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    });
}

/// `types`: those of the kernel that objects name.
fn try_to_attach(probe: &mut AtWork, shared: &SharedMaps, types: &Path, now: Duration) {
    if let Some((reason, fix)) = probe.probe.refusal() {
        return refused(probe, reason, fix, now);
    }
    match attach(probe.spec, &mut *probe.probe, shared, types) {
        Ok(attached) => (probe.attached, probe.retry_at) = (Some(attached), Duration::ZERO),
        Err(reason) => {
            let fix = cure(&reason, &*probe.probe);
            refused(probe, reason, fix, now);
        }
    }
}

/// Another try takes the verifier's time, and a kernel that has refused once seldom accepts later.
fn refused(probe: &mut AtWork, reason: String, fix: String, now: Duration) {
    probe.obstacle = ProbeObstacle { reason, fix, may_come: false };
    probe.retry_at = now + RETRY_AFTER;
}

/// How many references on a module the kernel has taken for an object's programs. The number is not measured by reading the module's
/// `refcnt` before and after: a mount that is set up meanwhile takes references and returns some.
fn references(object: &Object, module: &RequiredModule, probe: &dyn Probe) -> u64 {
    // A part of the kernel proper has no references.
    if module.hooks.is_none() || !has_types(module.name) {
        return 0;
    }
    let by_section = |program: Program<'_>| {
        let section = program.section().to_string_lossy().into_owned();
        let (kind, target) = section.split_once('/')?;
        let (of, function) = target.split_once(':').map_or((module.hooks, target), |(of, name)| (Some(of), name));
        match kind {
            _ if of != Some(module.name) => None,
            "fentry" | "fexit" => Some(AttachedTo::Function(function.to_owned())),
            "tp_btf" => Some(AttachedTo::Tracepoint),
            _ => None,
        }
    };
    let by_sections = object.progs().filter(|program| program.autoload()).filter_map(by_section);
    let (mut functions, mut on_functions, mut on_tracepoints) = (HashSet::new(), 0, 0);
    for target in by_sections.chain(probe.attached_in(module.name)) {
        match target {
            AttachedTo::Function(function) => {
                functions.insert(function);
                on_functions += 1;
            }
            AttachedTo::Tracepoint => on_tracepoints += 1,
        }
    }
    // A program attached to a tracepoint holds the tracepoint's module (bpf_get_raw_tracepoint,
    // trace_event_try_get_ref).
    on_tracepoints + if programs_hold_modules() { on_functions } else { functions.len() as u64 }
}

/// Tries one rung after the other until one attaches. The error has the reason why each rung failed.
fn attach(spec: &'static Spec, probe: &mut dyn Probe, shared: &SharedMaps, types: &Path) -> Result<Attached, String> {
    let (functions, mut unseen) = choose(spec.hooks)?;
    let mut failures = Vec::new();
    // PLUMBLINE_VIA=kprobe, for example, tries a lower rung where a better one works.
    let only = std::env::var("PLUMBLINE_VIA").ok();
    for rung in
        spec.rungs.iter().filter(|rung| only.as_deref().is_none_or(|only| only.split(',').any(|via| via == rung.via)))
    {
        // Tries with the optional programs; if that fails and there are any, tries without them.
        let tries: &[bool] = if rung.optional.is_empty() { &[true] } else { &[true, false] };
        for optional in tries.iter().copied() {
            match attach_rung((spec, probe), (shared, types), rung, optional, &functions) {
                Ok(Hooked { object, links, in_flight, forgets_ended, libraries }) => {
                    unseen.extend(probe.unseen(rung));
                    let own_users = spec.module.as_ref().map_or(0, |module| references(&object, module, probe));
                    tracing::debug!(probe = spec.name, own_users, "its programs hold the module");
                    return Ok(Attached {
                        _links: links,
                        in_flight,
                        forgets_ended,
                        libraries,
                        object,
                        rung,
                        all_optional: optional,
                        unseen,
                        since: nanos_now(),
                        own_users,
                        idle_since: None,
                        module: spec.module.as_ref().and_then(|module| module_identity(module.name)),
                    });
                }
                Err(error) => failures.push(format!("{}: {error:#}", rung.via)),
            }
        }
    }
    failures.dedup();
    if failures.is_empty() {
        let ways: Vec<_> = spec.rungs.iter().map(|rung| rung.via).collect();
        return Err(format!("PLUMBLINE_VIA leaves out every way to attach it: {}", ways.join(", ")));
    }
    Err(failures.join("; "))
}

/// The functions to hook on this kernel, and what the probe does not see because functions are missing.
fn choose(hooks: &'static [Hook]) -> Result<(Vec<&'static str>, Vec<&'static str>), String> {
    if hooks.is_empty() {
        return Ok(Default::default());
    }
    let wanted: HashSet<_> = hooks.iter().flat_map(|hook| hook.functions).copied().collect();
    let there = functions_of_kernel(&wanted).map_err(|error| format!("cannot read the kernel's BTF: {error}"))?;
    let find = |hook: &'static Hook| hook.functions.iter().find(|name| there.contains(*name)).ok_or(hook.sees);
    let (found, unseen): (Vec<_>, Vec<_>) = hooks.iter().map(find).partition(Result::is_ok);
    Ok((found.into_iter().flatten().copied().collect(), unseen.into_iter().filter_map(Result::err).collect()))
}

/// Whether a program belongs to a rung's way to attach, and its function is one of `functions`.
fn hooks_one_of(section: &str, rung: &Rung, functions: &[&str]) -> bool {
    let ways = [("fentry", "fentry"), ("fexit", "fentry"), ("kprobe", "kprobe"), ("kretprobe", "kprobe")];
    section.split_once('/').is_some_and(|(kind, name)| ways.contains(&(kind, rung.via)) && functions.contains(&name))
}

/// Makes libbpf look for a program's target only where it is: in this module, or in the kernel proper. Otherwise libbpf reads all types of
/// the kernel once for each module that is loaded.
fn find_in_module(program: &mut OpenProgramMut<'_>, module: Option<&str>) -> libbpf_rs::Result<()> {
    let section = program.section().to_string_lossy().into_owned();
    match section.split_once('/') {
        // A section may name another module than the one that has most hooks.
        Some(("fentry" | "fexit" | "tp_btf", function)) if !function.contains(':') => {
            program.set_attach_target(0, Some(format!("{}:{function}", module.unwrap_or("vmlinux"))))
        }
        _ => Ok(()),
    }
}

/// The result of trying a rung.
struct Hooked {
    object: Object,
    links: Vec<Link>,
    in_flight: Option<Link>,
    forgets_ended: Option<Link>,
    libraries: Option<Libraries>,
}

fn attach_rung(
    (spec, probe): (&Spec, &mut dyn Probe),
    (shared, types): (&SharedMaps, &Path),
    rung: &Rung,
    optional: bool,
    functions: &[&str],
) -> libbpf_rs::Result<Hooked> {
    let mut builder = ObjectBuilder::default();
    builder.btf_custom_path(types)?;
    let mut object = builder.open_memory(spec.object)?;
    let hooks = spec.module.as_ref().and_then(|module| module.hooks).filter(|name| has_types(name));
    for mut program in object.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let wanted = rung.required.contains(&name.as_str())
            || (optional && rung.optional.contains(&name.as_str()))
            || hooks_one_of(&program.section().to_string_lossy(), rung, functions);
        program.set_autoload(wanted);
        if wanted {
            find_in_module(&mut program, hooks)?;
        }
    }
    shared.lend_to(&mut object)?;
    probe.prepare(&mut object, rung)?;
    let mut object = object.load()?;
    let attach = |program: ProgramMut<'_>| {
        program.attach().with_context(|| format!("cannot attach {}", program.name().to_string_lossy()))
    };
    let (mut links, mut in_flight, mut forgets_ended) = (Vec::new(), None, None);
    let of_flights = |map: &Map<'_>| spec.inflight.iter().any(|name| map.name() == *name);
    let flights = object.maps().find(of_flights).map(|map| MapHandle::try_from(&map)).transpose()?;
    // In an object, the programs that see an operation's start come before those that see its end. The end is attached
    // first: otherwise operations that start in between would never end, and would seem to hang.
    let libraries = match spec.libraries {
        Some(kind) => Some(Libraries::new(kind, &mut object, rung.via)?),
        None => None,
    };
    let wanted = |program: &ProgramMut<'_>| {
        program.autoload()
            && program.section() != slots::RUN
            && !libraries::is_attached_later(program)
            && !probe.attaches(program)
    };
    let mut programs: Vec<_> = object.progs_mut().filter(wanted).collect();
    programs.reverse();
    for program in programs {
        if spec.inflight.iter().any(|name| program.name() == *name) {
            in_flight = Some(attach(program)?);
        } else if let Some(map) = flights.as_ref().filter(|_| program.section() == OVER_A_MAP) {
            forgets_ended = Some(program.attach_iter(map.as_fd())?);
        } else {
            links.push(attach(program)?);
        }
    }
    probe.attach(&mut object)?;
    Ok(Hooked { object, links, in_flight, forgets_ended, libraries })
}

fn cure(reason: &str, probe: &dyn Probe) -> String {
    if !may_load() {
        return PERMISSION.into();
    }
    if reason.contains("Operation not permitted") || reason.contains("Permission denied") {
        return "this kernel does not allow attaching to functions (its configuration or a security module forbids it); the syscalls probe works without that"
            .into();
    }
    probe.cure().unwrap_or_else(|| "please report this with the kernel's release and `plumbline -v doctor`".into())
}
