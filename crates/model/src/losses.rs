//! What was lost, by probe and by cause.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
};

use crate::lenient::lenient;

/// What has been lost since the probes were loaded. Serialises as the `losses` of `incident.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Losses {
    /// Each probe's share, in the order of the probes.
    #[serde(flatten, serialize_with = "as_map", deserialize_with = "of_map")]
    pub probes: Vec<(String, ProbeLosses)>,
    /// Events taken from the ring.
    #[serde(deserialize_with = "lenient")]
    pub consumed: u64,
    /// Records in the ring that could not be decoded.
    #[serde(deserialize_with = "lenient")]
    pub not_understood: u64,
    /// The current sampling interval: one event in this many is kept. 1 unless the ring is flooded.
    #[serde(deserialize_with = "lenient")]
    pub sampling_one_in: u64,
}

/// The losses of one probe, and, for comparison, its totals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeLosses {
    /// Events that found the ring full.
    pub ring_full: u64,
    /// Operations that could not be timed because too many were in flight.
    pub inflight_full: u64,
    /// Operations missing in the histograms, which were full.
    pub histograms_full: u64,
    /// Times that the kernel did not run a program.
    pub runs_missed: u64,
    /// Operations whose end was not seen.
    pub swept: u64,
    /// SMB: waits for credits after which nothing was sent.
    pub never_sent: u64,
    /// Events left out on purpose while the ring was flooded.
    pub sampled_out: u64,
    /// Events meant for the ring. No loss.
    pub produced: u64,
    /// Operations seen to start. No loss.
    pub started: u64,
    /// Started operations that are still in flight. No loss.
    pub unfinished: u64,
}

impl ProbeLosses {
    /// The number of losses by cause, each with the name of the cause.
    pub fn by_cause(&self) -> [(&'static str, u64); 7] {
        [
            ("ring_full", self.ring_full),
            ("inflight_full", self.inflight_full),
            ("histograms_full", self.histograms_full),
            ("runs_missed", self.runs_missed),
            ("swept", self.swept),
            ("never_sent", self.never_sent),
            ("sampled_out", self.sampled_out),
        ]
    }
}

fn as_map<S: Serializer>(probes: &[(String, ProbeLosses)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(probes.iter().map(|(probe, losses)| (probe, losses)))
}

fn of_map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, ProbeLosses)>, D::Error> {
    struct Probes;
    impl<'de> Visitor<'de> for Probes {
        type Value = Vec<(String, ProbeLosses)>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a map of losses by probe")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut probes = Vec::new();
            while let Some((probe, Understood(losses))) = map.next_entry::<String, Understood>()? {
                probes.push((probe, losses));
            }
            Ok(probes)
        }
    }
    deserializer.deserialize_map(Probes)
}

/// Reads as no losses if it is invalid.
#[derive(Deserialize)]
struct Understood(#[serde(deserialize_with = "lenient")] ProbeLosses);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_stand_beside_the_sums_in_their_own_order() {
        let of = |ring_full| ProbeLosses { ring_full, ..ProbeLosses::default() };
        let losses = Losses {
            probes: vec![("smb".into(), of(1)), ("nfs".into(), of(0))],
            consumed: 2,
            not_understood: 0,
            sampling_one_in: 1,
        };
        let json = serde_json::to_string(&losses).unwrap();
        assert!(json.starts_with(r#"{"smb":{"ring_full":1,"inflight_full":0,"#), "{json}");
        assert!(json.ends_with(r#","unfinished":0},"consumed":2,"not_understood":0,"sampling_one_in":1}"#), "{json}");
        assert_eq!(serde_json::from_str::<Losses>(&json).unwrap(), losses);
    }
}
