//! Reads the kernel side's counts, and computes what was added.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    time::Instant,
};

use anyhow::{Context, Result};
use model::{Histogram, MountKey, Operation, text::Text};
use probes::{Account, ProbeSet, Usage, Who};

/// The operations of one kind, mount and requester since the last reading.
#[derive(Debug, Clone)]
pub struct IoSample {
    pub operation: Operation,
    pub mount: MountKey,
    /// 0: not requested, or not known.
    pub cgroup: u64,
    /// 0: not requested.
    pub pid: u32,
    /// The first name of the process; empty if it is not known.
    pub comm: Text<16>,
    pub amounts: Histogram,
}

/// The counts at the last reading.
#[derive(Debug, Default)]
pub struct IoMeter {
    account: Account,
    most_keys: usize,
    histograms: HashMap<(Operation, MountKey), Histogram>,
    usage: HashMap<Who, Usage>,
}

impl IoMeter {
    /// Starts from the present counts.
    pub fn start(watch: &ProbeSet, account: Account, most_keys: u32) -> Result<Self> {
        let mut meter = Self { account, most_keys: most_keys as usize, ..Self::default() };
        meter.read(watch)?;
        Ok(meter)
    }

    /// The operations since the last reading.
    pub fn read(&mut self, watch: &ProbeSet) -> Result<Vec<IoSample>> {
        let began = Instant::now();
        let (samples, keys) = if self.account == Account::Nobody {
            (self.read_histograms(watch)?, self.histograms.len())
        } else {
            (self.read_usage(watch)?, self.usage.len())
        };
        tracing::debug!(keys, us = began.elapsed().as_micros(), "read what was counted");
        Ok(samples)
    }

    fn read_histograms(&mut self, watch: &ProbeSet) -> Result<Vec<IoSample>> {
        let all = watch.histograms().context("cannot read the histograms")?;
        let mut samples = Vec::new();
        for (operation, mount, now) in all {
            let before = self.histograms.entry((operation, mount)).or_default();
            // A smaller count: the entry was removed in between and created again.
            let amounts = if now.count < before.count { now.clone() } else { now.since(before) };
            *before = now;
            if amounts.count > 0 {
                samples.push(IoSample { operation, mount, cgroup: 0, pid: 0, comm: Text::default(), amounts });
            }
        }
        Ok(samples)
    }

    fn read_usage(&mut self, watch: &ProbeSet) -> Result<Vec<IoSample>> {
        let mut samples = Vec::new();
        let before = &mut self.usage;
        let read = watch.usage(|who, now| {
            let earlier = before.entry(who).or_default();
            if now.calls > earlier.calls {
                samples.push(sample(&who, &now.since(earlier)));
                *earlier = now;
            }
        });
        read.context("cannot read the operations by who asked for them")?;
        if self.usage.len() > self.most_keys / 2 {
            self.make_room(watch, &mut samples)?;
        }
        Ok(samples)
    }

    /// Removes the entries of processes that have ended.
    fn make_room(&mut self, watch: &ProbeSet, samples: &mut Vec<IoSample>) -> Result<()> {
        let pids: HashSet<u32> = self.usage.keys().map(|who| who.pid).filter(|pid| *pid != 0).collect();
        let gone: HashSet<u32> = pids.into_iter().filter(|pid| !Path::new(&format!("/proc/{pid}")).exists()).collect();
        let gone: Vec<Who> = self.usage.keys().filter(|who| gone.contains(&who.pid)).copied().collect();
        for who in gone {
            let last = watch.take_usage(&who).context("cannot make room for more who ask")?;
            let before = self.usage.remove(&who).unwrap_or_default();
            if let Some(last) = last.filter(|last| last.calls > before.calls) {
                samples.push(sample(&who, &last.since(&before)));
            }
        }
        Ok(())
    }
}

fn sample(who: &Who, added: &Usage) -> IoSample {
    let Who { operation, mount, cgroup, pid } = *who;
    IoSample { operation, mount, cgroup, pid, comm: added.comm, amounts: added.histogram() }
}
