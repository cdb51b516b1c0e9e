//! The losses, in words.

use model::Losses;

use super::units::grouped;

/// One sentence for each loss; a single one if nothing was lost.
pub fn sentences(losses: &Losses) -> Vec<String> {
    let mut said = Vec::new();
    for (probe, lost) in &losses.probes {
        for (cause, count) in lost.by_cause().into_iter().filter(|(_, count)| *count > 0) {
            let (one, many, why) = words(cause);
            let what = if count == 1 { format!("{one} of {probe} was") } else { format!("{many} of {probe} were") };
            said.push(format!("{} {what} {why}.", grouped(count)));
        }
    }
    match losses.not_understood {
        0 => (),
        1 => said.push("1 record of the ring could not be read.".into()),
        count => said.push(format!("{} records of the ring could not be read.", grouped(count))),
    }
    if losses.sampling_one_in > 1 {
        let one_in = losses.sampling_one_in;
        said.push(format!("The ring was flooded: one event in {one_in} was kept."));
    }
    if said.is_empty() {
        said.push("No event was lost.".into());
    } else {
        said.push("These figures count from the start of the probes, so they may be older than the incident.".into());
    }
    said
}

fn words(cause: &str) -> (&'static str, &'static str, &'static str) {
    match cause {
        "ring_full" => ("event", "events", "lost: ring full"),
        "inflight_full" => ("operation", "operations", "not timed: the table of operations in flight was full"),
        "histograms_full" => ("operation", "operations", "missing in the histograms: the table was full"),
        "runs_missed" => ("run of programs", "runs of programs", "skipped by the kernel"),
        "swept" => ("operation", "operations", "dropped from the table of operations in flight: Plumbline saw no end"),
        "never_sent" => ("wait for credits", "waits for credits", "not counted: nothing was sent afterwards"),
        "sampled_out" => ("event", "events", "left out on purpose: ring flooded"),
        _ => ("event", "events", "lost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ProbeLosses;

    #[test]
    fn losses_are_told_in_words() {
        assert_eq!(sentences(&Losses::default()), ["No event was lost."]);
        let lost = ProbeLosses { ring_full: 1_204, swept: 1, produced: 7, ..ProbeLosses::default() };
        let losses = Losses { probes: vec![("smb".into(), lost)], sampling_one_in: 1, ..Losses::default() };
        assert_eq!(
            sentences(&losses)[..2],
            [
                "1\u{a0}204 events of smb were lost: ring full.",
                "1 operation of smb was dropped from the table of operations in flight: Plumbline saw no end."
            ]
        );
    }
}
