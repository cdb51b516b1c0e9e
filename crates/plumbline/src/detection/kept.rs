//! Keeps the learned normals across restarts, in `normals.json` in the output directory.

use std::{collections::BTreeMap, io, path::Path};

use anyhow::{Context, Result, bail};
use diagnose::long_term::{LongTerm, LongTermKind, LongTermMount, Sketch};
use serde::{Deserialize, Serialize};

use crate::{
    recording::{name_of, operation_named},
    state_file,
};

/// The file's name.
pub const FILE: &str = "normals.json";
/// The largest count that is read.
const MOST_COUNTED: f32 = 1e9;
/// The version that is written, and the only one that is read.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct KeptNormals {
    version: u32,
    /// The mounts by [`model::Mount::name`]: the source if it is on a server, else the mount point.
    mounts: BTreeMap<String, LearnedMount>,
}

/// Counts are of operations or of periods of ten seconds, and fade with time. Distributions are pairs of a bucket (docs/maps.md) and a count.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct LearnedMount {
    periods: f32,
    periods_in_trouble: f32,
    operations: f32,
    sent_again: f32,
    round_trip: Vec<(u8, f32)>,
    kinds: Vec<KeptKind>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct KeptKind {
    /// Such as `smb:SMB2_WRITE`.
    operation: String,
    /// Operations of at least this many bytes and less than twice as many; 0: operations without data.
    bytes: u64,
    periods: f32,
    duration: Vec<(u8, f32)>,
    queue: Vec<(u8, f32)>,
    wire: Vec<(u8, f32)>,
    deliver: Vec<(u8, f32)>,
    /// The time between two such operations.
    apart: Vec<(u8, f32)>,
}

/// Reads the normals; empty if there is no file.
///
/// # Errors
///
/// When the file cannot be read, or contains no normals of this version.
pub fn load(path: &Path) -> Result<LongTerm> {
    let Some(text) = state_file::read(path)? else { return Ok(LongTerm::default()) };
    parse(&text).with_context(|| format!("{} is no file of normals", path.display()))
}

/// Replaces the file as a whole: after a crash, it has the old or the new content. Only a power failure can damage it.
///
/// # Errors
///
/// When the file cannot be written.
pub fn save(path: &Path, long_term: &LongTerm) -> io::Result<()> {
    state_file::write(path, &kept(long_term))
}

fn kept(long_term: &LongTerm) -> KeptNormals {
    let pairs = |sketch: &Sketch| sketch.buckets().iter().map(|(at, count)| (*at, rounded(*count))).collect();
    let mount = |place: &LongTermMount| LearnedMount {
        periods: rounded(place.learned),
        periods_in_trouble: rounded(place.in_trouble),
        operations: rounded(place.operations),
        sent_again: rounded(place.sent_again),
        round_trip: pairs(&place.round_trip),
        kinds: place
            .kinds
            .iter()
            .map(|((operation, size), kind)| KeptKind {
                operation: name_of(*operation),
                bytes: size.checked_sub(1).map_or(0, |power| 1_u64.checked_shl(power.into()).unwrap_or(0)),
                periods: rounded(kind.periods),
                duration: pairs(&kind.duration),
                queue: pairs(&kind.queue),
                wire: pairs(&kind.wire),
                deliver: pairs(&kind.deliver),
                apart: pairs(&kind.apart),
            })
            .collect(),
    };
    let mounts = long_term.places().iter().map(|(name, place)| (name.clone(), mount(place))).collect();
    KeptNormals { version: VERSION, mounts }
}

fn parse(text: &str) -> Result<LongTerm> {
    let kept: KeptNormals = serde_json::from_str(text)?;
    if kept.version != VERSION {
        bail!("it has version {}, this program reads {VERSION}", kept.version);
    }
    let mut long_term = LongTerm::default();
    for (name, mount) in kept.mounts {
        let mut place = LongTermMount {
            round_trip: Sketch::of(mount.round_trip),
            operations: sound(mount.operations),
            sent_again: sound(mount.sent_again),
            learned: sound(mount.periods),
            in_trouble: sound(mount.periods_in_trouble),
            ..LongTermMount::default()
        };
        for kind in mount.kinds {
            // This version has no such operation.
            let Some(operation) = operation_named(&kind.operation) else { continue };
            let size = kind.bytes.checked_ilog2().and_then(|power| u8::try_from(power + 1).ok()).unwrap_or(0);
            let [duration, queue, wire, deliver, apart] =
                [kind.duration, kind.queue, kind.wire, kind.deliver, kind.apart].map(Sketch::of);
            let periods = sound(kind.periods);
            let known = LongTermKind { periods, duration, queue, wire, deliver, apart, ..LongTermKind::default() };
            place.kinds.insert((operation, size), known);
        }
        long_term.insert(name, place);
    }
    Ok(long_term)
}

/// The count, limited to valid values.
fn sound(count: f32) -> f32 {
    if count.is_finite() { count.clamp(0.0, MOST_COUNTED) } else { 0.0 }
}

/// The count, rounded to a hundredth: more digits are not worth storing.
fn rounded(count: f32) -> f32 {
    (count * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use diagnose::long_term::{PERIOD, PeriodSample};
    use model::{MountKey, Network, Phases};

    use super::*;
    use crate::recording::RecordedEvent;
    use std::fs;

    fn learned() -> LongTerm {
        let event = |bytes: u64| {
            RecordedEvent {
                operation: "smb:SMB2_WRITE".to_owned(),
                duration: 3_000_000,
                phases: Phases { queue: 5, wire: 2_000_000, deliver: 9 },
                network: Network { rtt_us: 250, known: true, ..Network::default() },
                mount: MountKey(5),
                bytes,
                ..RecordedEvent::default()
            }
            .event()
            .unwrap()
        };
        let mut long_term = LongTerm::default();
        long_term.name(MountKey(5), "//server/share");
        let (events, length) = ([event(0), event(4096), event(4097)], PERIOD.as_nanos() as u64);
        long_term.learn(&PeriodSample { now: 77, length, each: 2.0, events: &events, in_trouble: &|_| false });
        long_term
    }

    #[test]
    fn what_was_learned_is_there_again_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        assert_eq!(load(&path).unwrap(), LongTerm::default(), "there is none yet");
        let before = learned();
        save(&path, &before).unwrap();
        save(&path, &before).unwrap();
        let after = load(&path).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing temporary stays");
        let (before, after) = (&before.places()["//server/share"], &after.places()["//server/share"]);
        assert_eq!((after.learned, after.operations), (1.0, 6.0));
        assert_eq!(after.round_trip, before.round_trip);
        let kinds = |place: &LongTermMount| {
            let kinds = place.kinds.iter().map(|(of, kind)| (*of, LongTermKind { seen: 0, ..kind.clone() }));
            kinds.collect::<BTreeMap<_, _>>()
        };
        assert_eq!(kinds(after), kinds(before));
        assert_eq!(after.kinds.len(), 2);
    }

    #[test]
    fn what_is_no_file_of_normals_is_refused_and_what_makes_no_sense_in_one_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        for text in ["", "{", "[]", r#"{"version":2,"mounts":{}}"#, r#"{"mounts":{}}"#] {
            fs::write(&path, text).unwrap();
            let error = format!("{:#}", load(&path).unwrap_err());
            assert!(error.contains("normals.json"), "{error}");
        }
        fs::write(&path, vec![b' '; state_file::LARGEST as usize + 1]).unwrap();
        assert!(format!("{:#}", load(&path).unwrap_err()).contains("Plumbline did not write it"));
        let odd = r#"{"version":1,"mounts":{"//a/b":{"periods":-3,"kinds":[{"operation":"smb:NO_SUCH"},
            {"operation":"smb:SMB2_READ","bytes":18446744073709551615,"duration":[[255,1],[7,1e30]]}]}}}"#;
        fs::write(&path, odd).unwrap();
        let place = &load(&path).unwrap().places()["//a/b"].clone();
        assert_eq!((place.learned, place.kinds.len()), (0.0, 1));
    }
}
