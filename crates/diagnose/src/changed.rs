//! What changed: the operations, processes, clients of this host's server, files and connections that account for the time beyond normal, and the
//! 99th percentile without them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use model::{Changed, Detail, Event, MountKey, Nanos, Requester, Served, text::Text};

use crate::{
    long_term::{KindOf, LongTerm, kind_of},
    order::{median, p99},
    units::{SECOND, size, span},
};

/// The least share of the time beyond normal with which a group is listed.
const WORTH_SAYING: f64 = 0.1;
/// At most this many groups are listed of each kind.
const LISTED: usize = 3;
/// The least number of other operations from which a 99th percentile without the group is computed.
const LEAST_OTHERS: usize = 10;
/// The recorder must go back at least this far, nanoseconds, for a normal rate of operations.
const LEAST_BEFORE: u64 = 5 * SECOND;
/// The 99th percentile without a group is mentioned if it is at most this part of the incident's 99th percentile.
const ANOTHER: f64 = 0.5;

/// The properties by which operations are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GroupedBy {
    /// The process' name, as an index into [`Names::processes`], and the kind of operation.
    Process(usize, KindOf),
    /// For requests that this host served: the client's number (`Served::client_number`), and the kind of operation.
    Client(u64, KindOf),
    Operation(KindOf),
    File(MountKey, u64, Text<128>),
    Connection(u64),
}

/// The word for each, in the order of listing.
const WORDS: [&str; 5] = ["process", "client", "operation", "file", "connection"];

/// The operations of a group.
#[derive(Clone, Default)]
struct OperationGroup {
    /// Their time beyond normal, nanoseconds, or the number of their failures.
    cost: f64,
    /// How many there are in the incident, and the least and the most bytes that one of them moves.
    count: u64,
    bytes: Option<(u64, u64)>,
    pids: BTreeSet<u32>,
    /// How many there were before the incident, in the recorder.
    before: u64,
}

/// Attributes the time beyond normal of an incident that lasted from `from` to `to` to groups of operations. `slow` are
/// the anomalous operations, `around` those of the flight recorder. `by_failures` attributes failures instead: each
/// counts the same.
pub fn changed(
    (from, to): (Nanos, Nanos),
    slow: &[Event],
    around: &[Event],
    long_term: &LongTerm,
    by_failures: bool,
) -> Vec<Changed> {
    let (before, during) = sorted((from, to), slow, around);
    let cost: Vec<f64> = if by_failures {
        during.iter().map(|event| f64::from(u8::from(event.flags.failed))).collect()
    } else {
        excess(&during, &before, long_term)
    };
    let all: f64 = cost.iter().sum();
    if all <= 0.0 {
        return Vec::new();
    }
    let mut index = GroupIndex::new(slow.iter().chain(around));
    let keys: Vec<Keys> = during.iter().map(|event| index.keys(event)).collect();
    let mut groups = vec![OperationGroup::default(); index.groups.len()];
    for ((event, cost), keys) in during.iter().zip(&cost).zip(&keys) {
        for group in keys.iter().flatten().copied() {
            let Some(group) = groups.get_mut(group) else { continue };
            group.cost += cost;
            group.count += 1;
            let (least, most) = group.bytes.unwrap_or((event.bytes, event.bytes));
            group.bytes = Some((least.min(event.bytes), most.max(event.bytes)));
            group.pids.insert(event.requester.pid);
        }
    }
    for event in &before {
        for group in index.keys(event).into_iter().flatten() {
            groups.get_mut(group).into_iter().for_each(|group| group.before += 1);
        }
    }
    let connections = index.groups.keys().filter(|by| matches!(by, GroupedBy::Connection(_))).count();
    // The recorder may hold only the end of the incident.
    let seen_from = during.first().map_or(from, |first| first.end()).max(from);
    let covers = if before.is_empty() { seen_from } else { from };
    let seen = GroupedData {
        seconds: to.saturating_sub(covers).max(1) as f64 / SECOND as f64,
        before: before.first().map(|first| from.saturating_sub(first.end())).filter(|before| *before >= LEAST_BEFORE),
        p99: p99(during.iter().map(|event| event.duration).collect()),
        during: &during,
        keys: &keys,
        names: &index.names,
        long_term,
        all,
        by_failures,
    };
    let is_worth_saying = |by: &GroupedBy, group: &OperationGroup| {
        // A connection is listed only if there are several: otherwise it has all operations.
        group.cost / all >= WORTH_SAYING && (connections > 1 || !matches!(by, GroupedBy::Connection(_)))
    };
    let all_groups = index.groups.iter().filter_map(|(by, id)| Some((by, *id, groups.get(*id)?)));
    let mut listed: Vec<_> = all_groups.filter(|(by, _, group)| is_worth_saying(by, group)).collect();
    listed.sort_by(|(.., one), (.., other)| other.cost.total_cmp(&one.cost));
    let of_word = |word| listed.iter().filter(move |(by, ..)| by.word() == word).take(LISTED);
    WORDS.into_iter().flat_map(of_word).map(|(by, id, group)| seen.describe(by, *id, group)).collect()
}

/// The data from which groups are described.
struct GroupedData<'a> {
    seconds: f64,
    /// How far the recorder goes back before the incident, nanoseconds.
    before: Option<u64>,
    during: &'a [&'a Event],
    keys: &'a [Keys],
    p99: Option<u64>,
    names: &'a Names,
    long_term: &'a LongTerm,
    all: f64,
    by_failures: bool,
}

impl GroupedData<'_> {
    fn describe(&self, by: &GroupedBy, id: usize, group: &OperationGroup) -> Changed {
        let without = self.p99_without(by, id);
        let per_second = group.count as f64 / self.seconds;
        let normally = self.normally(by, group);
        let (share, name) = (group.cost / self.all, by.name(group, self.names));
        let of_what = if self.by_failures { "the failures" } else { "the time beyond normal" };
        let mut said = format!("{name}: {:.0} % of {of_what}, {} a second", share * 100.0, rate(per_second));
        if let Some(normally) = normally {
            said.push_str(&format!(" (normally {})", rate(normally)));
        }
        said.push('.');
        let another = self.p99.zip(without).filter(|(all, without)| *without as f64 <= *all as f64 * ANOTHER);
        if let Some((all, without)) = another {
            let (all, without) = (span(all), span(without));
            said.push_str(&format!(" Without them, the 99th percentile would have been {without} instead of {all}."));
        }
        let ms = |time: u64| (time as f64 / 1e3).round() / 1e3;
        let hundredths = |rate: f64| (rate * 100.0).round() / 100.0;
        Changed {
            by: by.word().to_owned(),
            name,
            share: (share * 1_000.0).round() / 1_000.0,
            per_second: hundredths(per_second),
            normally_per_second: normally.map(hundredths),
            p99_ms: self.p99.filter(|_| !self.by_failures).map(ms),
            p99_without_ms: without.map(ms),
            said,
        }
    }

    /// The 99th percentile of operations outside the group, nanoseconds; `None` if they are too few, or if it has no
    /// meaning: for failures, and for files, since the recorder has no files of fast operations.
    fn p99_without(&self, by: &GroupedBy, id: usize) -> Option<u64> {
        if self.by_failures || matches!(by, GroupedBy::File(..)) {
            return None;
        }
        let others = self.during.iter().zip(self.keys).filter(|(_, keys)| !keys.contains(&Some(id)));
        let others: Vec<u64> = others.map(|(event, _)| event.duration).collect();
        if others.len() >= LEAST_OTHERS { p99(others) } else { None }
    }

    /// The group's operations per second before the incident; `None` if not known.
    fn normally(&self, by: &GroupedBy, group: &OperationGroup) -> Option<f64> {
        let learned = |of: &KindOf| {
            let example = self.during.iter().find(|event| kind_of(event) == *of)?;
            self.long_term.per_second(example)
        };
        match (by, self.before) {
            (GroupedBy::File(..), _) => None,
            (_, Some(before)) => Some(group.before as f64 * SECOND as f64 / before as f64),
            (GroupedBy::Operation(of), None) => learned(of),
            (_, None) => None,
        }
    }
}

impl GroupedBy {
    fn word(&self) -> &'static str {
        let [process, client, operation, file, connection] = WORDS;
        match self {
            Self::Process(..) => process,
            Self::Client(..) => client,
            Self::Operation(_) => operation,
            Self::File(..) => file,
            Self::Connection(_) => connection,
        }
    }

    fn name(&self, group: &OperationGroup, names: &Names) -> String {
        let kind = |(operation, _): &KindOf| format!("{}{}", operation.name(), Bytes(group.bytes));
        match self {
            Self::Operation(of) => kind(of),
            Self::Process(name, of) => {
                let name = names.processes.get(*name).map_or("process", String::as_str);
                let pids: Vec<_> = group.pids.iter().collect();
                match *pids {
                    [pid] => format!("{name} ({pid}): {}", kind(of)),
                    _ => format!("{name} ({} processes): {}", pids.len(), kind(of)),
                }
            }
            Self::Client(number, of) => {
                let address =
                    names.clients.get(number).map_or_else(|| format!("client {number:#x}"), IpAddr::to_string);
                format!("{address}: {}", kind(of))
            }
            Self::File(_, inode, name) => match name.to_string() {
                name if name.is_empty() => format!("inode {inode}"),
                name => name,
            },
            Self::Connection(connection) => format!("connection {connection}"),
        }
    }
}

/// Displays as ` of 64 KiB` or ` of 64 KiB to 96 KiB`; as nothing if no bytes were moved.
struct Bytes(Option<(u64, u64)>);

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None | Some((_, 0)) => Ok(()),
            Some((least, most)) if least == most => write!(out, " of {}", size(most)),
            Some((least, most)) => write!(out, " of {} to {}", size(least), size(most)),
        }
    }
}

fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => "none".to_owned(),
        0.0..10.0 => format!("{per_second:.1}"),
        _ => format!("{per_second:.0}"),
    }
}

/// The names of processes and clients.
struct Names {
    processes: Vec<String>,
    /// By process id, the index into `processes`.
    process_of: BTreeMap<u32, usize>,
    /// The addresses, by number.
    clients: BTreeMap<u64, IpAddr>,
}

impl Names {
    /// Takes the names from events, since the recorder's records have no process names. The first name stands for all unknown ones.
    fn new<'e>(events: impl Iterator<Item = &'e Event>) -> Self {
        let mut names =
            Self { processes: vec!["process".to_owned()], process_of: BTreeMap::new(), clients: BTreeMap::new() };
        let mut known = BTreeMap::<Text<16>, usize>::new();
        for event in events {
            if let Detail::Served(Served { client: Some(client), .. }) = event.detail {
                names.clients.insert(event.connection, client);
            }
            let Requester { pid, comm, .. } = event.requester;
            if comm == Text::default() {
                continue;
            }
            let next = names.processes.len();
            let place = *known.entry(comm).or_insert(next);
            if place == next {
                names.processes.push(comm.to_string());
            }
            names.process_of.insert(pid, place);
        }
        names
    }
}

/// The groups of one operation, by number.
type Keys = [Option<usize>; 4];

/// Groups, and the number of each.
struct GroupIndex {
    names: Names,
    groups: BTreeMap<GroupedBy, usize>,
}

impl GroupIndex {
    fn new<'e>(events: impl Iterator<Item = &'e Event>) -> Self {
        Self { names: Names::new(events), groups: BTreeMap::new() }
    }

    /// The groups that an operation belongs to.
    fn keys(&mut self, event: &Event) -> Keys {
        let (kind, pid) = (kind_of(event), event.requester.pid);
        let name = self.names.process_of.get(&pid).copied().unwrap_or(0);
        // The threads of a server are all alike, and a client has one number whichever connection it uses.
        let (process, connection) = if matches!(event.detail, Detail::Served(_)) {
            (Some(GroupedBy::Client(event.connection, kind)), None)
        } else {
            let connection = (event.connection != 0).then_some(GroupedBy::Connection(event.connection));
            ((pid != 0).then_some(GroupedBy::Process(name, kind)), connection)
        };
        let file = event.detail.file().filter(|file| file.inode != 0 || file.name != Text::default());
        [
            Some(GroupedBy::Operation(kind)),
            process,
            connection,
            file.map(|file| GroupedBy::File(event.mount, file.inode, file.name)),
        ]
        .map(|by| {
            let next = self.groups.len();
            by.map(|by| *self.groups.entry(by).or_insert(next))
        })
    }
}

/// The operations that ended before `from`, and those that ended from then until `to`, each once, in the order of their ends. From `around`, it takes
/// only operations of the same protocols and mounts as the anomalous ones, and none that wait by design.
fn sorted<'a>((from, to): (Nanos, Nanos), slow: &'a [Event], around: &'a [Event]) -> (Vec<&'a Event>, Vec<&'a Event>) {
    let of: BTreeSet<_> = slow.iter().map(|event| (event.operation.protocol().name, event.mount)).collect();
    let near = |event: &&Event| {
        of.contains(&(event.operation.protocol().name, event.mount)) && !event.operation.waits_by_design()
    };
    // The sort is stable: of an operation's event and its record, the event comes first and is kept, since it has more
    // fields.
    let mut all: Vec<_> = slow.iter().chain(around.iter().filter(near)).filter(|event| event.end() <= to).collect();
    all.sort_by_key(|event| event.identity());
    all.dedup_by_key(|event| event.identity());
    let during = all.split_off(all.partition_point(|event| event.end() < from));
    (all, during)
}

/// For each operation of `during`, its time beyond the normal of its kind, nanoseconds.
fn excess(during: &[&Event], before: &[&Event], long_term: &LongTerm) -> Vec<f64> {
    let mut kinds = BTreeMap::<(KindOf, MountKey), Vec<u64>>::new();
    for event in before {
        kinds.entry((kind_of(event), event.mount)).or_default().push(event.duration);
    }
    let mut normals = BTreeMap::<(KindOf, MountKey), u64>::new();
    let mut normal = |event: &Event| {
        let key = (kind_of(event), event.mount);
        *normals.entry(key).or_insert_with(|| {
            let recent = kinds.remove(&key).filter(|durations| durations.len() >= LEAST_OTHERS / 2);
            let learned = || long_term.normal(event).map(|normal| normal.duration);
            recent.and_then(median).or_else(learned).unwrap_or(0)
        })
    };
    during.iter().map(|event| event.duration.saturating_sub(normal(event)) as f64).collect()
}
