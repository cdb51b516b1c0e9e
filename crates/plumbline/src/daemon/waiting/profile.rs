//! Kernel stacks, added up.

use std::{cmp::Reverse, collections::HashMap, fmt::Write as _, time::Duration};

use model::{Waited, text::Text};

/// Places that are told apart; what more there are is not kept.
const PLACES: usize = 256;
/// So many are listed in the incident. The folded file has all.
const LISTED: usize = 8;
/// Modules whose workers take answers: a worker that is blocked elsewhere is somebody else's.
const CLIENTS: [&str; 9] = ["cifs", "nfs", "nfsv3", "nfsv4", "sunrpc", "rpcrdma", "fuse", "ceph", "libceph"];

/// What a thread has to do with operations in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// It asked for one.
    Requester,
    /// It takes answers.
    Receiver,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Requester => "requester",
            Self::Receiver => "receiver",
        }
    }
}

/// A thread as it was found once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sighting {
    pub role: Role,
    pub comm: Text<16>,
    /// `asleep`, `blocked`, `runnable`, `running` or `stopped`.
    pub state: &'static str,
    /// Addresses, the innermost first.
    pub frames: Vec<u64>,
}

/// How long threads were seen like that.
#[derive(Debug, Clone, Copy, Default)]
struct Time {
    total: Duration,
    longest: Duration,
}

/// A place with a name.
struct Named {
    role: Role,
    comm: String,
    state: &'static str,
    functions: Vec<String>,
    time: Time,
}

/// Where threads waited, and for how long.
#[derive(Debug, Default)]
pub struct Profile {
    places: HashMap<Sighting, Time>,
}

impl Profile {
    /// A thread was found so: that stands for `span`, at the end of `stretch` in which it has not run.
    pub fn add(&mut self, seen: Sighting, span: Duration, stretch: Duration) {
        if self.places.len() >= PLACES && !self.places.contains_key(&seen) {
            return;
        }
        let time = self.places.entry(seen).or_default();
        time.total += span;
        time.longest = time.longest.max(stretch);
    }

    /// For the incident: the places with the most time. `function` names a frame's function and its module.
    pub fn told(&self, function: &dyn Fn(u64) -> Option<(String, String)>) -> Vec<Waited> {
        let named = self.named(function);
        let ms = |time: Duration| (time.as_secs_f64() * 1e3).round();
        let of_role = |role: Role| -> f64 {
            let times = named.iter().filter(|place| place.role == role).map(|place| place.time.total.as_secs_f64());
            times.sum()
        };
        let told = named.iter().take(LISTED).map(|place| Waited {
            role: place.role.name().to_owned(),
            comm: place.comm.clone(),
            state: place.state.to_owned(),
            total_ms: ms(place.time.total),
            share: (place.time.total.as_secs_f64() / of_role(place.role) * 1e3).round() / 1e3,
            longest_ms: ms(place.time.longest),
            stack: place.functions.clone(),
        });
        told.collect()
    }

    /// One line for each place, as tools for flame graphs read it: `requester;dd;vfs_write;...;schedule 1200`, milliseconds.
    pub fn folded(&self, function: &dyn Fn(u64) -> Option<(String, String)>) -> String {
        let mut text = String::new();
        for place in self.named(function) {
            let comm = place.comm.replace(';', ":");
            let mut frames: Vec<_> = place.functions.iter().rev().map(String::as_str).collect();
            let state = format!("[{}]", place.state);
            frames.push(&state);
            let ms = place.time.total.as_millis();
            let _ = writeln!(text, "{};{comm};{} {ms}", place.role.name(), frames.join(";"));
        }
        text
    }

    /// By function: two places in one are the same. The most time first.
    fn named(&self, function: &dyn Fn(u64) -> Option<(String, String)>) -> Vec<Named> {
        let mut known: HashMap<u64, (String, String)> = HashMap::new();
        let mut all: HashMap<(Role, String, &str, Vec<String>), Time> = HashMap::new();
        for (seen, time) in &self.places {
            let mut of_client = seen.role == Role::Requester || !is_worker(seen.comm);
            let mut functions = Vec::new();
            for frame in &seen.frames {
                let named = || function(*frame).unwrap_or_else(|| (format!("{frame:#x}"), String::new()));
                let (name, module) = known.entry(*frame).or_insert_with(named);
                of_client |= CLIENTS.contains(&module.as_str());
                functions.push(name.clone());
            }
            if !of_client {
                continue;
            }
            let comm = if is_worker(seen.comm) { "kworker".to_owned() } else { seen.comm.to_string() };
            let all = all.entry((seen.role, comm, seen.state, functions)).or_default();
            all.total += time.total;
            all.longest = all.longest.max(time.longest);
        }
        let place = |((role, comm, state, functions), time)| Named { role, comm, state, functions, time };
        let mut named: Vec<_> = all.into_iter().map(place).collect();
        named.sort_by(|one, other| {
            let key = |place: &Named| (place.role, Reverse(place.time.total));
            let names = |place: &Named| (place.comm.clone(), place.functions.clone());
            key(one).cmp(&key(other)).then_with(|| names(one).cmp(&names(other)))
        });
        named
    }
}

fn is_worker(comm: Text<16>) -> bool {
    comm.to_string().starts_with("kworker/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn seen(role: Role, comm: &str, frames: &[u64]) -> Sighting {
        Sighting { role, comm: Text::new(comm.as_bytes()), state: "asleep", frames: frames.to_vec() }
    }

    fn function(address: u64) -> Option<(String, String)> {
        let (name, module) = match address {
            1..10 => ("wait_for_response", "cifs"),
            10..20 => ("vfs_write", ""),
            20..30 => ("jbd2_log_wait_commit", "jbd2"),
            30..40 => ("sock_recvmsg", ""),
            _ => return None,
        };
        Some((name.to_owned(), module.to_owned()))
    }

    #[test]
    fn places_in_one_function_are_one_and_the_longest_stretch_counts() {
        let mut profile = Profile::default();
        profile.add(seen(Role::Requester, "dd", &[1, 10]), SECOND, SECOND);
        profile.add(seen(Role::Requester, "dd", &[2, 11]), SECOND, 3 * SECOND);
        profile.add(seen(Role::Requester, "dd", &[12]), SECOND, Duration::ZERO);
        profile.add(seen(Role::Receiver, "cifsd", &[30]), SECOND, Duration::ZERO);
        let told = profile.told(&function);
        assert_eq!(told.len(), 3);
        assert_eq!((told[0].total_ms, told[0].longest_ms, told[0].share), (2_000.0, 3_000.0, 0.667));
        assert_eq!(told[0].stack, ["wait_for_response", "vfs_write"]);
        assert_eq!((told[2].role.as_str(), told[2].share), ("receiver", 1.0));
        let folded = profile.folded(&function);
        assert_eq!(folded.lines().next(), Some("requester;dd;vfs_write;wait_for_response;[asleep] 2000"));
    }

    #[test]
    fn a_worker_that_is_blocked_elsewhere_takes_no_answers() {
        let mut profile = Profile::default();
        profile.add(seen(Role::Receiver, "kworker/0:1", &[20]), SECOND, SECOND);
        profile.add(seen(Role::Receiver, "kworker/0:2", &[1, 20]), SECOND, SECOND);
        let told = profile.told(&function);
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].comm.as_str(), told[0].stack.len()), ("kworker", 2));
    }

    #[test]
    fn what_has_no_name_keeps_its_address_and_no_more_is_kept_than_fits() {
        let mut profile = Profile::default();
        for frame in 0..2 * PLACES as u64 {
            profile.add(seen(Role::Requester, "dd", &[0x1000 + frame]), SECOND, SECOND);
        }
        assert_eq!(profile.folded(&function).lines().count(), PLACES);
        assert!(profile.folded(&function).contains("dd;0x1000;[asleep] 1000"));
    }
}
