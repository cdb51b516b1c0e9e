//! `plumbline prove`: makes faults of known cause on this machine's own kernel, and checks the verdicts.
//!
//! Everything is in namespaces of its own ([`bed`]): a server, a router, and mounts that no other process sees. The helper processes are this
//! program. They obey lines ([`talk`]), and end with the process that sends these.

mod bed;
mod faults;
mod judge;
mod load;
mod printer;
mod server;
mod talk;
mod watching;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use nix::sys::signalfd::SignalFd;

use bed::{Bed, LoadedMount};
use faults::{ProveFault, Truth};
use judge::{Begin, Tried, VerdictMatch, is_ours, judge};
pub use printer::ProvePrinter;
use watching::Watching;

/// The time without a fault before each fault, and the longest time until the fault is judged.
const HEALTHY: Duration = Duration::from_millis(4_500);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(7);
/// How long after it was first right a verdict may still change.
const SETTLED: Duration = Duration::from_secs(2);
/// The longest time to recover from a fault.
const RECOVERY: Duration = Duration::from_secs(40);
/// The bed has recovered when no incident is open for this long.
const WELL: Duration = Duration::from_secs(1);

/// Runs a helper process until its input ends.
///
/// # Errors
///
/// When there is no helper process of this name, or the FUSE file system cannot be mounted.
pub fn part(name: &str, words: &[PathBuf]) -> Result<()> {
    match (name, words) {
        ("load", []) => load::part(),
        ("server", []) => server::part()?,
        ("idle", []) => talk::obey(|_| Ok(String::new())),
        ("fuse", [mountpoint, control]) => {
            let mounted = slowfs::Mounted::new(mountpoint, control.clone(), "plumbline-prove")?;
            std::thread::spawn(move || mounted.serve());
            talk::obey(|_| Ok(String::new()));
        }
        _ => bail!("there is no such part"),
    }
    Ok(())
}

/// Makes the bed, tries all faults, and takes the bed down. Calls `report` with each result. Returns false if a signal ended this early.
///
/// # Errors
///
/// When no fault can be tried here.
pub fn run(stop: SignalFd, choice: &ProveSelection, report: &mut dyn FnMut(Said<'_>) -> Result<()>) -> Result<bool> {
    bed::leave_the_host()?;
    let mut watching = Watching::start(stop)?;
    report(Said::Progress("making a server, a router and mounts"))?;
    let mut bed = Bed::make(choice.fuse_only)?;
    let mut faults = bed.faults();
    faults.retain(|fault| choice.only.is_empty() || choice.only.iter().any(|words| fault.name.contains(words)));
    if faults.is_empty() {
        let without = bed.missing.iter().map(|what| format!(" ({what})")).collect::<String>();
        bail!("no case that can run here has such a name{without}; without --only, all cases run and are named");
    }
    report(Said::Bed(&bed, faults.len()))?;
    try_all(&mut watching, &mut bed, &faults, report)
}

/// The choice of faults.
#[derive(Debug, Default)]
pub struct ProveSelection {
    /// Uses a FUSE file system, even if a server can be mounted.
    pub fuse_only: bool,
    /// Only cases whose names contain one of these texts; if there are none, all cases.
    pub only: Vec<String>,
}

/// The reports of [`run`].
pub enum Said<'a> {
    /// The present step.
    Progress(&'a str),
    /// The bed, and the number of faults that will be tried.
    Bed(&'a Bed, usize),
    /// A fault that was tried.
    Tried(Tried),
}

fn try_all(
    watching: &mut Watching,
    bed: &mut Bed,
    faults: &[ProveFault],
    report: &mut dyn FnMut(Said<'_>) -> Result<()>,
) -> Result<bool> {
    for (number, fault) in faults.iter().enumerate() {
        report(Said::Progress(&format!("{} of {}: {}", number + 1, faults.len(), fault.name)))?;
        watching.begin();
        if !watching.watch_for(HEALTHY, &mut |_| false)? {
            return Ok(false);
        }
        let places: Vec<_> = bed.places.iter().filter(|place| is_for(fault, place)).cloned().collect();
        let began = Begin { at: Instant::now(), since: Timestamp::now() };
        if let Err(error) = bed.make_fault(fault.act) {
            // The fault may have been made in part.
            let _ = bed.heal(fault.act);
            return Err(error).with_context(|| format!("cannot do this: {}", fault.name));
        }
        let all_settled = |watching: &Watching| {
            let mut judged = places.iter().map(|place| judge(watching, fault, place, began));
            fault.truth != Truth::Nobody
                && judged.all(|(tried, since)| {
                    tried.judged == VerdictMatch::Right && since.is_some_and(|since| since.elapsed() >= SETTLED)
                })
        };
        let went_on = watching.watch_for(SETTLE_TIMEOUT, &mut |watching| all_settled(watching));
        let tried: Vec<_> = places.iter().map(|place| judge(watching, fault, place, began).0).collect();
        bed.heal(fault.act).with_context(|| format!("cannot end this: {}", fault.name))?;
        if !went_on? {
            return Ok(false);
        }
        for tried in tried {
            report(Said::Tried(tried))?;
        }
        if !recover(watching)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_for(fault: &ProveFault, place: &LoadedMount) -> bool {
    fault.protocols.is_empty() || fault.protocols.contains(&place.protocol)
}

/// Waits until the bed has recovered: a second without an open incident.
fn recover(watching: &mut Watching) -> Result<bool> {
    let until = Instant::now() + RECOVERY;
    while Instant::now() < until {
        watching.begin();
        if !watching.watch_for(WELL, &mut |_| false)? {
            return Ok(false);
        }
        if !watching.incidents().any(is_ours) {
            break;
        }
    }
    Ok(true)
}
