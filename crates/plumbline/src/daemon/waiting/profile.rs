//! A profile of waiting threads: kernel stacks with the time spent in each.

use std::{cmp::Reverse, collections::HashMap, fmt::Write as _, time::Duration};

use model::Waited;

/// The most places that are kept. The time of further places counts for the shares only.
const PLACES: usize = 256;
/// How many places of each role `incident.json` lists.
const LISTED: [(Role, usize); 2] = [(Role::Requester, 5), (Role::Receiver, 3)];

/// What a thread has to do with operations in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The thread requested one.
    Requester,
    /// The thread reads answers from a socket.
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

/// A thread in one sample. Equal sightings are one place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ThreadSample {
    pub role: Role,
    pub comm: String,
    /// `asleep`, `blocked`, `runnable`, `running` or `stopped`.
    pub state: &'static str,
    /// Addresses, the innermost first.
    pub frames: Vec<u64>,
}

/// How long threads were seen in a place: altogether, and the longest without running in between.
#[derive(Debug, Clone, Copy, Default)]
struct PlaceTime {
    total: Duration,
    longest: Duration,
}

/// A place, with function names for addresses.
struct NamedPlace {
    role: Role,
    comm: String,
    state: &'static str,
    functions: Vec<String>,
    time: PlaceTime,
}

/// The places in which threads were seen, with their times.
#[derive(Debug, Default)]
pub struct Profile {
    places: HashMap<ThreadSample, PlaceTime>,
    /// The time in all places, by role, including places that were not kept.
    totals: HashMap<Role, Duration>,
}

impl Profile {
    /// Adds one sighting, which stands for the time `span`. `stretch`: how long the thread has not run.
    pub fn add(&mut self, seen: ThreadSample, span: Duration, stretch: Duration) {
        *self.totals.entry(seen.role).or_default() += span;
        if self.places.len() >= PLACES && !self.places.contains_key(&seen) {
            return;
        }
        let time = self.places.entry(seen).or_default();
        time.total += span;
        time.longest = time.longest.max(stretch);
    }

    /// Returns the places with the most time, for `incident.json`, and all places as folded stacks for flame graphs.
    /// These are lines such as `requester;dd;vfs_write;...;request_wait_answer;[asleep] 1200`, in milliseconds.
    /// `function` names the function of an address.
    pub fn summary(&self, function: &dyn Fn(u64) -> String) -> (Vec<Waited>, String) {
        let named = self.named(function);
        let of_role = |role: Role| named.iter().filter(move |place| place.role == role);
        let listed = LISTED.into_iter().flat_map(|(role, most)| of_role(role).take(most));
        let waited = listed.map(|place| self.waited(place)).collect();
        (waited, named.iter().map(NamedPlace::folded).collect())
    }

    fn waited(&self, place: &NamedPlace) -> Waited {
        let ms = |time: Duration| (time.as_secs_f64() * 1e3).round();
        let total = self.totals.get(&place.role).copied().unwrap_or(place.time.total);
        Waited {
            role: place.role.name().to_owned(),
            comm: place.comm.clone(),
            state: place.state.to_owned(),
            total_ms: ms(place.time.total),
            share: (place.time.total.as_secs_f64() / total.as_secs_f64() * 1e3).round() / 1e3,
            longest_ms: ms(place.time.longest),
            stack: place.functions.clone(),
        }
    }

    /// Joins places whose frames lie in the same functions; most time first within a role.
    fn named(&self, function: &dyn Fn(u64) -> String) -> Vec<NamedPlace> {
        let mut all: HashMap<(Role, String, &str, Vec<String>), PlaceTime> = HashMap::new();
        for (seen, time) in &self.places {
            let functions = seen.frames.iter().map(|frame| function(*frame)).collect();
            let all = all.entry((seen.role, seen.comm.clone(), seen.state, functions)).or_default();
            all.total += time.total;
            all.longest = all.longest.max(time.longest);
        }
        let place = |((role, comm, state, functions), time)| NamedPlace { role, comm, state, functions, time };
        let mut named: Vec<_> = all.into_iter().map(place).collect();
        named.sort_by(|one, other| {
            let key = |place: &NamedPlace| (place.role, Reverse(place.time.total));
            let names = |place: &NamedPlace| (place.comm.clone(), place.functions.clone());
            key(one).cmp(&key(other)).then_with(|| names(one).cmp(&names(other)))
        });
        named
    }
}

impl NamedPlace {
    fn folded(&self) -> String {
        let mut line = format!("{};{}", self.role.name(), self.comm.replace(';', ":"));
        for name in self.functions.iter().rev() {
            let _ = write!(line, ";{name}");
        }
        let _ = writeln!(line, ";[{}] {}", self.state, self.time.total.as_millis());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn seen(role: Role, comm: &str, frames: &[u64]) -> ThreadSample {
        ThreadSample { role, comm: comm.to_owned(), state: "asleep", frames: frames.to_vec() }
    }

    fn function(address: u64) -> String {
        match address {
            1..10 => "wait_for_response".to_owned(),
            10..20 => "vfs_write".to_owned(),
            30..40 => "sock_recvmsg".to_owned(),
            other => format!("{other:#x}"),
        }
    }

    #[test]
    fn places_in_one_function_are_one_and_the_longest_stretch_counts() {
        let mut profile = Profile::default();
        profile.add(seen(Role::Requester, "d;d", &[1, 10]), SECOND, SECOND);
        profile.add(seen(Role::Requester, "d;d", &[2, 11]), SECOND, 3 * SECOND);
        profile.add(seen(Role::Requester, "d;d", &[12]), SECOND, Duration::ZERO);
        profile.add(seen(Role::Receiver, "cifsd", &[30]), SECOND, Duration::ZERO);
        let (places, folded) = profile.summary(&function);
        assert_eq!(places.len(), 3);
        assert_eq!((places[0].total_ms, places[0].longest_ms, places[0].share), (2_000.0, 3_000.0, 0.667));
        assert_eq!(places[0].stack, ["wait_for_response", "vfs_write"]);
        assert_eq!((places[2].role.as_str(), places[2].share), ("receiver", 1.0));
        assert_eq!(folded.lines().next(), Some("requester;d:d;vfs_write;wait_for_response;[asleep] 2000"));
    }

    #[test]
    fn many_places_of_requesters_leave_room_for_receivers_and_no_more_is_kept_than_fits() {
        let mut profile = Profile::default();
        profile.add(seen(Role::Receiver, "cifsd", &[30]), SECOND, SECOND);
        for frame in 0..2 * PLACES as u64 {
            profile.add(seen(Role::Requester, "dd", &[0x1000 + frame]), SECOND, SECOND);
        }
        let (places, folded) = profile.summary(&function);
        assert_eq!(places.iter().map(|place| place.role.as_str()).filter(|role| *role == "receiver").count(), 1);
        assert_eq!((places.len(), places[0].share), (6, 0.002));
        assert_eq!(folded.lines().count(), PLACES);
        assert!(folded.contains("dd;0x1000;[asleep] 1000"));
    }
}
