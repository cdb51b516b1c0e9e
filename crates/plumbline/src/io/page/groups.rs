//! Groups of processes: the processes of one program in one job are a group, which can be expanded.

use std::{cmp::Reverse, collections::BTreeMap};

use diagnose::{counted, span};
use maud::{Markup, html};

use super::{
    axis::AxisUnit,
    charts::{Bar, bars},
    percent_of_time,
};
use crate::io::{
    layers::LayerDepth,
    summary::{IoSummary, ProcessShare, ProcessSummary},
};

/// The most groups that are shown.
pub const MOST_GROUPS: usize = 24;
/// The most processes of a group that are shown.
pub const MOST_MEMBERS: usize = 256;

/// Processes of one program in one job.
pub struct ProgramGroup<'a> {
    pub name: String,
    /// By rank, then by process id.
    pub members: Vec<(u32, &'a ProcessSummary)>,
}

/// All groups, greatest `weight` first, without processes of no weight.
pub fn groups(summary: &IoSummary, weight: impl Fn(&ProcessSummary) -> u64) -> Vec<ProgramGroup<'_>> {
    let mut groups: BTreeMap<(&str, &str), Vec<(u32, &ProcessSummary)>> = BTreeMap::new();
    for (pid, process) in summary.processes.iter().filter(|(_, process)| weight(process) > 0) {
        groups.entry((&process.comm, &process.job)).or_default().push((*pid, process));
    }
    let mut groups: Vec<_> = groups
        .into_iter()
        .map(|((comm, job), mut members)| {
            members.sort_by_key(|(pid, process)| (process.rank, *pid));
            ProgramGroup { name: group_name(comm, job, &members), members }
        })
        .collect();
    groups.sort_by_key(|group| Reverse(group.members.iter().map(|(_, process)| weight(process)).sum::<u64>()));
    groups
}

fn group_name(comm: &str, job: &str, members: &[(u32, &ProcessSummary)]) -> String {
    if let [(pid, process)] = members {
        return name(*pid, process);
    }
    let comm = if comm.is_empty() { "without a name" } else { comm };
    let job = if job.is_empty() { String::new() } else { format!(" ({job})") };
    format!("{} × {comm}{job}", members.len())
}

/// A process's name on the page.
pub fn name(pid: u32, process: &ProcessSummary) -> String {
    let job = if process.job.is_empty() { String::new() } else { format!(" ({})", process.job) };
    let rank = process.rank.map_or_else(String::new, |rank| format!("rank {rank}: "));
    if pid == 0 { "nobody's (--keys)".into() } else { format!("{rank}{} {pid}{job}", process.comm) }
}

/// The section about the time that each process spent.
pub fn time_by_process(summary: &IoSummary) -> Markup {
    let depth = summary.main_depth();
    let share = |process: &ProcessSummary| process.at.get(&depth).copied().unwrap_or_default();
    let groups = groups(summary, |process| share(process).ns());
    let seconds = summary.seconds();
    let shown = || groups.iter().take(MOST_GROUPS);
    let mean = |group: &ProgramGroup<'_>| {
        let shares = group.members.iter().map(|(_, process)| share(process));
        let sum = shares.fold(ProcessShare::default(), |sum, more| sum.plus(&more));
        [sum.reading_ns, sum.writing_ns, sum.other_ns].map(|ns| ns / group.members.len().max(1) as u64)
    };
    let bar = |group: &ProgramGroup<'_>| {
        let times = || group.members.iter().map(|(_, process)| share(process).ns());
        let mean = mean(group);
        let note = percent_of_time(mean.iter().sum(), seconds);
        let least_and_most = (group.members.len() > 1)
            .then(|| format!("; {} to {}", span(times().min().unwrap_or(0)), span(times().max().unwrap_or(0))));
        bar_of_times(&group.name, mean, &format!("{note}{}", least_and_most.unwrap_or_default()))
    };
    let member_bar = |(pid, process): &(u32, &ProcessSummary)| {
        let ProcessShare { reading_ns, writing_ns, other_ns, .. } = share(process);
        let above = process.at.get(&LayerDepth::Library).filter(|_| depth != LayerDepth::Library);
        let above = above.map_or_else(String::new, |above| format!("; in MPI-IO {}", span(above.ns())));
        let note = format!("{}{above}", percent_of_time(share(process).ns(), seconds));
        bar_of_times(&name(*pid, process), [reading_ns, writing_ns, other_ns], &note)
    };
    let longest = |group: &ProgramGroup<'_>| {
        group.members.iter().map(|(_, process)| share(process).ns()).max().unwrap_or(0) as f64
    };
    html! {
        h2 id="processes" { "Time in I/O, by program and process" }
        (key_of_times(depth.calls()))
        p.muted {
            "The mean of the processes of a group; of how many there are, the least and the greatest. Per cent are of the run time, "
            (span((seconds * 1e9) as u64)) "; threads of one process add up."
        }
        (bars(&shown().map(bar).collect::<Vec<_>>(), AxisUnit::Time, None))
        @if groups.len() > MOST_GROUPS { p.muted { "and " (counted((groups.len() - MOST_GROUPS) as u64, "group")) " that took less time" } }
        @for group in shown().filter(|group| group.members.len() > 1) {
            details {
                summary { "Each of " (group.name) }
                (bars(&group.members.iter().take(MOST_MEMBERS).map(member_bar).collect::<Vec<_>>(), AxisUnit::Time, Some(longest(group))))
                (left_out(group.members.len()))
            }
        }
    }
}

/// How many members of a group are not shown.
pub fn left_out(members: usize) -> Markup {
    let rest = members.saturating_sub(MOST_MEMBERS);
    html! { @if rest > 0 { p.muted { "and " (rest) " more processes" } } }
}

fn bar_of_times(name: &str, ns: [u64; 3], note: &str) -> Bar {
    let parts = ns.map(|ns| (ns as f64, span(ns)));
    Bar { name: name.into(), parts, note: format!("{}, {note}", span(ns.iter().sum())) }
}

/// The legend of the times' colours.
pub fn key_of_times(calls: &str) -> Markup {
    html! {
        p.key { "in " (calls) ":" i.read {} "reading" i.written {} "writing" i.other {} "everything else (open, close, sync, attributes, ...)" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_one_program_and_job_are_one_group_and_ranks_are_in_order() {
        let mut summary = IoSummary::default();
        for pid in 1..=40 {
            let at =
                [(LayerDepth::SystemCalls, ProcessShare { reading_ns: u64::from(pid), ..ProcessShare::default() })]
                    .into();
            let (comm, rank) = if pid == 40 { ("ls", None) } else { ("ior", Some(100 - pid)) };
            summary.processes.insert(pid, ProcessSummary { comm: comm.into(), rank, at, ..ProcessSummary::default() });
        }
        let groups = groups(&summary, |process| process.at[&LayerDepth::SystemCalls].ns());
        let names: Vec<_> = groups.iter().map(|group| group.name.as_str()).collect();
        assert_eq!(names, ["39 × ior", "ls 40"]);
        assert_eq!((groups[0].members[0].0, groups[0].members[38].0), (39, 1));
        let page = time_by_process(&summary).into_string();
        assert_eq!((page.matches("<svg").count(), page.matches("<details>").count()), (2, 1));
        assert!(page.contains("rank 61: ior 39"), "{page}");
    }
}
