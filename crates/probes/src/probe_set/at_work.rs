//! A probe at work: its state, and why it is not attached.

use std::time::Duration;

use libbpf_rs::Object;

use super::attach::Attached;
use crate::{
    Capability, Kernel, ProbeSupport,
    kernel::{ModuleState, module_users},
    libraries::Libraries,
    mounts::Mounts,
    own::OwnProbe,
    probe::Probe,
    spec::{Rung, Spec},
};

/// A probe that is wanted.
pub(super) struct AtWork {
    pub spec: &'static Spec,
    pub probe: Box<dyn Probe>,
    pub attached: Option<Attached>,
    /// Why it is not attached, and what would help.
    pub obstacle: ProbeObstacle,
    /// Attaching failed: do not try again before this time.
    pub retry_at: Duration,
    /// Whether the probe is attached only on demand, and whether there is a demand.
    pub demand: Demand,
}

/// When a probe is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Demand {
    /// All the time.
    Always,
    /// On demand, and there is a demand.
    Now,
    /// On demand, and there is no demand.
    NotNow,
}

/// Why a probe is off.
#[derive(Debug, Clone, Default)]
pub(super) struct ProbeObstacle {
    pub reason: String,
    pub fix: String,
    pub may_come: bool,
}

impl AtWork {
    pub fn new(spec: &'static Spec, on_demand: bool) -> Self {
        let demand = if on_demand { Demand::NotNow } else { Demand::Always };
        let probe = spec.own.map_or_else(|| (spec.probe)(), |own| Box::new(OwnProbe::new(own)) as Box<dyn Probe>);
        let (obstacle, retry_at) = (ProbeObstacle::default(), Duration::ZERO);
        Self { spec, probe, attached: None, obstacle, retry_at, demand }
    }

    /// Detaches the probe from its hooks.
    pub fn detach(&mut self) {
        if let Some(attached) = self.attached.take() {
            self.probe.detach(&attached.object);
        }
    }

    /// Why it is not to be attached now, if it is on demand.
    pub fn is_demanded(&self) -> Result<(), ProbeObstacle> {
        match self.demand {
            Demand::Always | Demand::Now => Ok(()),
            Demand::NotNow => Err(ProbeObstacle {
                reason: "it is loaded on demand, and no rule that needs it is armed".into(),
                fix: String::new(),
                may_come: true,
            }),
        }
    }

    /// Updates the probe's own maps, if it is attached.
    pub fn follow_mounts(&mut self, mounts: &Mounts) {
        let Some(attached) = &mut self.attached else { return };
        if let Err(error) = self.probe.follow_mounts(&mut attached.object, mounts) {
            tracing::warn!(probe = self.spec.name, %error, "cannot tell the probe what is mounted");
        }
    }

    /// Makes the probe attach and detach programs that are needed only at times.
    pub fn tend(&mut self) {
        if let Some(attached) = &self.attached {
            self.probe.tend(&attached.object);
        }
    }

    pub fn libraries(&mut self) -> Option<(&mut Libraries, &mut Object)> {
        let attached = self.attached.as_mut()?;
        Some((attached.libraries.as_mut()?, &mut attached.object))
    }

    pub fn capability(&self) -> Capability {
        let probe = self.spec.name;
        match &self.attached {
            None => {
                let ProbeObstacle { reason, fix, may_come } = self.obstacle.clone();
                Capability { probe, state: ProbeSupport::Unavailable, via: vec![], reason, fix, may_come }
            }
            Some(attached) => {
                // fentry sees the same as tp_btf at the same cost; the probe reports what its fentry rung does not see.
                let is_best = |best: &Rung| best.via == attached.rung.via || attached.rung.via == "fentry";
                let best = self.spec.rungs.first().is_some_and(is_best);
                let missing = (!attached.all_optional).then_some(attached.rung.without);
                let missing: Vec<_> = missing.iter().chain(&attached.unseen).copied().collect();
                let missing = (!missing.is_empty()).then(|| format!("without {}", missing.join(", ")));
                let state = if best && missing.is_none() { ProbeSupport::Ready } else { ProbeSupport::Degraded };
                let lower = (!best)
                    .then(|| format!("attached by {}, since the better ways failed to attach", attached.rung.via));
                let (of_libraries, why, fix) =
                    attached.libraries.as_ref().map_or((ProbeSupport::Ready, String::new(), ""), Libraries::state);
                let state = if of_libraries == ProbeSupport::Ready { state } else { of_libraries };
                let why = Some(why).filter(|why| !why.is_empty());
                let reason = [lower, missing, why].into_iter().flatten().collect::<Vec<_>>().join("; ");
                let via = vec![attached.rung.via];
                Capability { probe, state, via, reason, fix: fix.into(), may_come: false }
            }
        }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.detach();
    }
}

/// Whether attaching is worth a try; otherwise the reason and the cure. `ours`: only if the module has more users than
/// these.
pub(super) fn ready(spec: &Spec, kernel: &Kernel, ours: Option<u64>) -> Result<(), ProbeObstacle> {
    if !kernel.btf {
        return Err(ProbeObstacle {
            reason: "this kernel has no BTF (/sys/kernel/btf/vmlinux)".into(),
            fix: "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y".into(),
            may_come: false,
        });
    }
    if kernel.lockdown == "confidentiality" {
        // Every program reads kernel memory. If that is not permitted, loading fails with EINVAL, which explains
        // nothing.
        return Err(ProbeObstacle {
            reason: "kernel lockdown is at confidentiality, which forbids BPF programs to read kernel memory".into(),
            fix: "boot with lockdown=integrity or without lockdown".into(),
            may_come: false,
        });
    }
    let Some(module) = &spec.module else { return Ok(()) };
    let ours = ours.filter(|_| module.hooks.is_some());
    match kernel.module(module.name) {
        ModuleState::Loaded
            if ours.is_some_and(|ours| module_users(module.name).is_some_and(|users| users <= ours)) =>
        {
            Err(ProbeObstacle {
                reason: format!("nothing uses the module {} now; the probe attaches at its first use", module.name),
                fix: String::new(),
                may_come: true,
            })
        }
        ModuleState::Loaded => Ok(()),
        ModuleState::Loadable => Err(ProbeObstacle {
            reason: format!("the module {} is not loaded; the probe attaches as soon as it is", module.name),
            fix: module.load.into(),
            may_come: true,
        }),
        ModuleState::Missing => Err(ProbeObstacle {
            reason: format!("kernel {} has no {} module", kernel.release, module.name),
            fix: if module.load.is_empty() {
                ""
            } else {
                "install the kernel's module package, or boot a kernel with it"
            }
            .into(),
            may_come: false,
        }),
    }
}
