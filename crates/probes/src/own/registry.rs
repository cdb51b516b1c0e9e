//! The current probes and operations of the site's own. Their names and numbers stay the same until the program ends: a number in an
//! event or in a rule's window never comes to mean another operation.

use std::sync::{Mutex, PoisonError, RwLock};

use model::{Detail, Direction, FileNames, Level, OwnFile, Protocol};

use super::{OwnOperation, definition::Definition, ways::AttachWay};
use crate::{
    columns::{self, EventCell, EventColumn},
    decode::text,
    generated::probe_id,
    probe::PlainProbe,
    shared::MAX_OPERATIONS,
    spec::{RequiredModule, Rung, Spec},
};

/// Probes of a site's own.
pub const MOST_PROTOCOLS: usize = (probe_id::PROBE_OWN_END.0 - probe_id::PROBE_OWN.0) as usize;
/// Their operations, together.
pub const MOST_OPERATIONS: usize = 32;
/// The most operations under way that are remembered, over all operations of the site's own: 6 MiB.
const FLIGHTS: usize = 32_768;
/// The same for one operation.
const MOST_FLIGHTS: usize = 8192;
/// The most definitions that one process makes in its life; a changed definition counts as another one.
const MOST_MADE: usize = 512;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/own.bpf.o"));

/// The specs in force.
static CURRENT: RwLock<Vec<&'static Spec>> = RwLock::new(Vec::new());
static MADE: Mutex<Made> = Mutex::new(Made { names: Vec::new(), protocols: Vec::new(), specs: Vec::new() });

/// Every definition ever made, each once. It is never freed, so that references to it stay valid.
struct Made {
    names: Vec<OperationNames>,
    protocols: Vec<&'static Protocol>,
    specs: Vec<&'static Spec>,
}

/// The names of a probe's operations, in the order of their codes.
struct OperationNames {
    protocol: &'static str,
    operations: Vec<&'static str>,
}

/// The specs in force.
pub(crate) fn current() -> Vec<&'static Spec> {
    CURRENT.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The probes that these operations make, in their order.
///
/// # Errors
/// When this process has known too many others.
pub fn protocols(definitions: &[Definition]) -> Result<Vec<&'static Protocol>, String> {
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found: Vec<&'static Protocol> = Vec::new();
    for definition in definitions {
        if !found.iter().any(|protocol| protocol.name == definition.protocol) {
            found.push(made.protocol_of(definition, definitions)?);
        }
    }
    Ok(found)
}

/// Puts these operations in the place of those in force: from now on, events and names mean them.
///
/// # Errors
/// When this process has known too many others.
pub fn enter(definitions: &[Definition]) -> Result<(), String> {
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut specs: Vec<&'static Spec> = Vec::new();
    for definition in definitions {
        let protocol = made.protocol_of(definition, definitions)?;
        let is_first = !specs.iter().any(|spec| spec.protocol == protocol);
        let flights = (FLIGHTS / definitions.len().max(1)).min(MOST_FLIGHTS) as u32;
        specs.push(made.spec(OwnOperation { definition: definition.clone(), is_first, flights }, protocol)?);
    }
    *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = specs;
    Ok(())
}

/// Gives a name from elsewhere, such as a recording, a meaning, unless it has one already. Nothing is attached for this
/// name.
///
/// # Errors
/// When there are too many.
pub fn learn(name: &str, operations: &[&str]) -> Result<(), String> {
    if crate::protocol(name).is_some_and(|known| operations.iter().all(|one| known.operation(one).is_some())) {
        return Ok(());
    }
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
    // A definition in force may have other operations than the recording.
    let known = current.iter().find(|spec| spec.protocol.name == name).map(|spec| spec.protocol.operations);
    let mut all = operations.to_vec();
    all.extend(known.into_iter().flatten().filter(|known| !known.is_empty() && !operations.contains(known)));
    let protocol = made.protocol(name, &all, true)?;
    let spec: &'static Spec = Box::leak(Box::new(Spec { name: protocol.name, ..made.base(protocol) }));
    made.specs.push(spec);
    current.retain(|spec| spec.protocol != protocol);
    current.push(spec);
    Ok(())
}

impl Made {
    fn protocol_of(&mut self, definition: &Definition, all: &[Definition]) -> Result<&'static Protocol, String> {
        let name = definition.protocol.as_str();
        let of_it = || all.iter().filter(|other| other.protocol == name);
        let operations: Vec<_> = of_it().map(|other| other.operation.as_str()).collect();
        self.protocol(name, &operations, of_it().any(|other| other.path.is_some()))
    }

    fn protocol(&mut self, name: &str, operations: &[&str], names_files: bool) -> Result<&'static Protocol, String> {
        let index = match self.names.iter().position(|known| known.protocol == name) {
            Some(index) => index,
            None if self.names.len() < MOST_PROTOCOLS => {
                self.names.push(OperationNames { protocol: leak(name), operations: Vec::new() });
                self.names.len() - 1
            }
            None => return Err(too_many(&format!("{MOST_PROTOCOLS} probes"))),
        };
        let Some(names) = self.names.get_mut(index) else { return Err(too_many("probes")) };
        for operation in operations {
            if !names.operations.contains(operation) {
                if names.operations.len() >= MAX_OPERATIONS {
                    return Err(too_many(&format!("{MAX_OPERATIONS} operations of {name}")));
                }
                names.operations.push(leak(operation));
            }
        }
        let there = |known: &&'static str| if operations.contains(known) { *known } else { "" };
        let list: Vec<&'static str> = names.operations.iter().map(there).collect();
        let file_names = if names_files { FileNames::Path } else { FileNames::None };
        let is_it =
            |known: &&&Protocol| known.name == name && known.operations == list && known.file_names == file_names;
        if let Some(known) = self.protocols.iter().find(is_it) {
            return Ok(known);
        }
        let name = names.protocol;
        self.has_room()?;
        let protocol: &'static Protocol = Box::leak(Box::new(Protocol {
            name,
            operations: Vec::leak(list),
            level: Level::Own,
            direction,
            file_names,
            ..Protocol::BY_ERRNO
        }));
        self.protocols.push(protocol);
        Ok(protocol)
    }

    fn spec(&mut self, own: OwnOperation, protocol: &'static Protocol) -> Result<&'static Spec, String> {
        // This must be the very same protocol: another one of this name has other operations.
        let is_it = |spec: &&&Spec| spec.own == Some(&own) && std::ptr::eq(spec.protocol, protocol);
        if let Some(known) = self.specs.iter().find(is_it) {
            return Ok(known);
        }
        self.has_room()?;
        let own: &'static OwnOperation = Box::leak(Box::new(own));
        let Definition { begin, end, operation, .. } = &own.definition;
        let rungs: Vec<_> = AttachWay::both(&begin.value, &end.value).into_iter().map(rung).collect();
        let module = begin.value.module().or(end.value.module()).map(|module| RequiredModule {
            name: module,
            load: leak(&format!("`modprobe {module}`, or use what loads it")),
            hooks: Some(module),
        });
        let spec: &'static Spec = Box::leak(Box::new(Spec {
            name: leak(&format!("{}/{operation}", protocol.name)),
            object: OBJECT,
            module,
            rungs: Vec::leak(rungs),
            inflight: &["own_flights"],
            own: Some(own),
            ..self.base(protocol)
        }));
        self.specs.push(spec);
        Ok(spec)
    }

    fn base(&self, protocol: &'static Protocol) -> Spec {
        let index = self.names.iter().position(|known| known.protocol == protocol.name).unwrap_or_default();
        Spec {
            protocol,
            id: probe_id(probe_id::PROBE_OWN.0 + index as u32),
            detail: |raw| Detail::Own(OwnFile { name: text(&raw.file) }),
            columns: COLUMNS,
            probe: || Box::new(PlainProbe),
            ..Spec::BASE
        }
    }

    fn has_room(&self) -> Result<(), String> {
        if self.protocols.len() + self.specs.len() < MOST_MADE { Ok(()) } else { Err(too_many("definitions")) }
    }
}

fn too_many(what: &str) -> String {
    format!("this process has had as many as it can: {what}; restart it")
}

fn leak(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

/// By its name, as elsewhere.
fn direction(name: &str) -> Option<Direction> {
    match name.to_ascii_lowercase().as_str() {
        "read" => Some(Direction::Read),
        "write" => Some(Direction::Written),
        _ => None,
    }
}

fn rung((begin, end): (AttachWay, AttachWay)) -> Rung {
    let via = if begin.name() == end.name() { begin.name() } else { leak(&format!("{}+{}", begin.name(), end.name())) };
    let required = Vec::leak(vec![begin.program(false), end.program(true)]);
    Rung { via, required, optional: &[], without: "" }
}

const COLUMNS: &[EventColumn] = &[
    columns::TIME,
    EventColumn::operation(20),
    columns::DURATION,
    EventColumn::bytes(-9),
    EventColumn::new("STATUS", 12, EventCell::Status),
    columns::PID,
    columns::COMM,
    EventColumn::mount(24),
    columns::FILE,
];

#[cfg(test)]
mod tests {
    use super::super::definition::{At, OwnHook};
    use super::*;

    fn definition(protocol: &str, operation: &str, function: &str) -> Definition {
        let at = |value| At { value, line: 1, column: 1 };
        let begin = OwnHook::parse("fentry", function).unwrap();
        let end = begin.return_of().unwrap();
        Definition {
            protocol: protocol.into(),
            operation: operation.into(),
            file: "f".into(),
            begin: at(begin),
            end: at(end),
            key: vec![],
            bytes: None,
            status: None,
            mount: None,
            path: None,
        }
    }

    /// One test for everything, because the registry belongs to the process.
    #[test]
    fn a_name_keeps_its_number_whatever_else_changes_and_the_same_is_made_once() {
        let (read, write) = (definition("mine", "READ", "a"), definition("mine", "WRITE", "b"));
        enter(&[read.clone(), write.clone()]).unwrap();
        let before = current();
        let names: Vec<_> = before.iter().map(|spec| (spec.name, spec.is_first(), spec.rungs.len())).collect();
        assert_eq!(names, [("mine/READ", true, 2), ("mine/WRITE", false, 2)]);
        let mine = crate::protocol("mine").unwrap();
        assert_eq!(mine.operation("WRITE").unwrap().code(), 1);
        enter(&[read.clone(), write.clone()]).unwrap();
        assert!(std::ptr::eq(before[0], current()[0]), "made once");
        enter(std::slice::from_ref(&write)).unwrap();
        let mine = crate::protocol("mine").unwrap();
        assert_eq!((mine.operation("WRITE").unwrap().code(), mine.operation("READ")), (1, None));
        assert_eq!(crate::numbers().last(), Some((probe_id::PROBE_OWN.0 as u8, mine)));
        learn("mine", &["SYNC"]).unwrap();
        let mine = crate::protocol("mine").unwrap();
        assert_eq!(mine.operation("SYNC").unwrap().code(), 2);
        assert_eq!(mine.operation("WRITE").unwrap().code(), 1, "is still there");
        for number in 1..MOST_PROTOCOLS {
            enter(&[definition(&format!("p{number}"), "A", "a")]).unwrap();
        }
        assert!(enter(&[definition("last", "A", "a")]).unwrap_err().ends_with("restart it"));
        enter(&[]).unwrap();
        assert!(crate::protocol("mine").is_none());
    }
}
