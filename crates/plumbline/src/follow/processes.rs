//! The processes that are followed: a process and its descendants, the processes of a job, or those of a command.

use std::{collections::HashSet, ffi::OsString, path::Path, process::Child};

use anyhow::{Context, Result, ensure};
use probes::{Followed, every_process};

use crate::{cli::child, who::Cgroups};

/// The processes that are followed.
pub struct FollowedProcesses {
    followed: Followed,
    job: Option<String>,
    cgroups: Cgroups,
}

impl FollowedProcesses {
    /// Follows this process, its present and future descendants, and the processes of this job.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the program, or the job has no process.
    pub fn start(pid: Option<u32>, job: Option<&str>) -> Result<Self> {
        let followed = Followed::start().context("cannot follow processes from parent to child")?;
        if let Some(pid) = pid {
            followed.follow_family(pid).context("cannot follow the process")?;
        }
        let mut all = Self { followed, job: job.map(str::to_owned), cgroups: Cgroups::default() };
        all.look_for_job()?;
        if let Some(job) = job {
            let known = "`plumbline ps --json` and `plumbline io --by job` have the names of jobs";
            ensure!(!all.followed.all().is_empty(), "no process of this host is in the job {job}; {known}");
        }
        Ok(all)
    }

    /// The kernel side's list of processes.
    pub fn kernel_side(&self) -> &Followed {
        &self.followed
    }

    /// Starts a command so that none of its operations is missed; `None` if it has no words.
    ///
    /// # Errors
    ///
    /// When there is no such program.
    pub fn start_command(&self, command: &[OsString]) -> Result<Option<Child>> {
        if command.is_empty() {
            return Ok(None);
        }
        child::start_followed(&self.followed, command)
    }

    /// Adds processes of the job that were not started by a followed process.
    ///
    /// # Errors
    ///
    /// When the map cannot be written.
    pub fn look_for_job(&mut self) -> Result<()> {
        let Some(job) = self.job.clone() else { return Ok(()) };
        let known = self.followed.all();
        for pid in every_process().filter(|pid| !known.contains(pid) && *pid != std::process::id()) {
            if is_of_job(&self.cgroups.of(pid, 0).job, &job) {
                self.followed.follow(pid).context("cannot follow the processes of the job")?;
            }
        }
        Ok(())
    }

    /// All followed processes, including those that have ended.
    pub fn all(&self) -> HashSet<u32> {
        self.followed.all()
    }

    /// Whether all followed processes have ended.
    pub fn are_gone(&self) -> bool {
        !self.all().iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists())
    }
}

/// Whether a process's job is the wanted one or a step of it.
pub fn is_of_job(of_process: &str, wanted: &str) -> bool {
    of_process.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_meant_with_all_of_its_steps_and_no_other_job_is() {
        assert!(is_of_job("slurm:1234.0", "slurm:1234") && is_of_job("slurm:1234.batch", "slurm:1234.batch"));
        assert!(
            !is_of_job("slurm:12345.0", "slurm:1234")
                && !is_of_job("slurm:1234", "slurm:1234.0")
                && !is_of_job("", "slurm:1")
        );
    }
}
