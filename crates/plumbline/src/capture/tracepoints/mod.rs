//! Captures tracepoints of the kernel in a tracefs instance of their own. The kernel's ring is the history.
//!
//! Reading the ring removes the events from it, so pages that were read are kept in memory for the next incident ([`pages`]).

mod instance;
mod pages;
mod trace_dat;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::time::{ClockId, clock_gettime};
use std::os::fd::AsFd;

use super::running::Background;
use super::{Capture, CaptureSpan, Sink, page_bytes};
use crate::config::{TraceMemory, TracepointsConfig};
use instance::Instance;
use pages::Pages;

/// How often missing tracepoints are tried again: a module that is loaded later may have them.
const LOOK_FOR: Duration = Duration::from_secs(10);
/// The size of a file without its pages, bytes: formats, symbols and names.
const FRAME: u64 = 3 << 20;

/// A capture of tracepoints.
pub struct Tracepoints {
    name: String,
    events: Vec<String>,
    instance: Instance,
    pages: Mutex<Pages>,
    missing: Mutex<Vec<String>>,
}

impl Tracepoints {
    /// Creates the instance and enables its tracepoints.
    ///
    /// # Errors
    /// If there is no tracefs, or the kernel refuses. A missing tracepoint is no error: the capture's thread tries it again.
    pub fn new(name: &str, config: &TracepointsConfig) -> Result<Self> {
        let processors = instance::processors()?;
        let (each, kept) = match config.memory {
            TraceMemory::All(bytes) => (bytes / 2 / processors.max(1), bytes / 2),
            TraceMemory::EachProcessor(bytes) => (bytes, bytes.saturating_mul(processors)),
        };
        let instance = Instance::make(name, each.max(16 << 10))?;
        let missing = instance.switch_on(&config.events);
        for event in &missing {
            tracing::warn!(
                "the capture {name} goes on without {event}: this kernel has no such tracepoint, or the module that has it is not loaded"
            );
        }
        let pages = Mutex::new(Pages::new(usize::try_from(processors)?, page_bytes(), kept));
        Ok(Self { name: name.to_owned(), events: config.events.clone(), instance, pages, missing: Mutex::new(missing) })
    }

    /// Tries the missing tracepoints again.
    fn look_again(&self) {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        if missing.is_empty() {
            return;
        }
        let still = self.instance.switch_on(&missing);
        for event in missing.iter().filter(|event| !still.contains(event)) {
            tracing::info!("the capture {} has {event}, too: the tracepoint is there now", self.name);
        }
        *missing = still;
    }
}

impl Capture for Tracepoints {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        format!("tracepoints: {}", self.events.join(", "))
    }

    fn cut(&self, span: CaptureSpan, sink: &mut dyn Sink) -> Result<()> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        self.instance.read_pages(|processor, page| pages.add(processor, page))?;
        let enabled = self.instance.enabled()?;
        if enabled.is_empty() {
            bail!("none of its tracepoints is there: {}", self.events.join(", "));
        }
        let offset = wall_clock_offset()?;
        let monotonic = |at: u64| u64::try_from(i128::from(at) - i128::from(offset)).unwrap_or(0);
        let span = CaptureSpan { from: monotonic(span.from), to: monotonic(span.to) };
        let (chosen, left_out) = pages.of(span, sink.limit().saturating_sub(FRAME));
        let head = trace_dat::TraceHead::read(&self.instance, &enabled, offset)?;
        sink.file(".dat", &mut |out| trace_dat::write(out, &head, &chosen))?;
        drop(chosen);
        if left_out > 0 {
            bail!("the oldest {left_out} pages are left out: they exceed the limit of {} KiB", sink.limit() >> 10);
        }
        Ok(())
    }
}

impl Background for Tracepoints {
    fn run(self: Arc<Self>, stop: &EventFd) -> Result<()> {
        loop {
            let is_complete = self.missing.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
            let limit = if is_complete { PollTimeout::NONE } else { PollTimeout::try_from(LOOK_FOR)? };
            match poll(&mut [PollFd::new(stop.as_fd(), PollFlags::POLLIN)], limit) {
                Ok(0) => self.look_again(),
                Err(Errno::EINTR) => {}
                done => {
                    done?;
                    return self.instance.remove();
                }
            }
        }
    }
}

/// The difference between the time of day and CLOCK_MONOTONIC, nanoseconds.
fn wall_clock_offset() -> Result<i64> {
    let read = |clock| -> Result<i64> {
        let time = clock_gettime(clock)?;
        Ok(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
    };
    Ok(read(ClockId::CLOCK_REALTIME)? - read(ClockId::CLOCK_MONOTONIC)?)
}
