//! Times the ways to the process table against each other, in turn: what bench/ps runs.

#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use plumbline_probes::tasks::{EmptyWalk, TaskOptions, Tasks};

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is passed on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller has it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller has it.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Microseconds of each run.
#[derive(Default)]
struct RunTimes(Vec<f64>);

impl RunTimes {
    fn time<T>(&mut self, run: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = run();
        self.0.push(began.elapsed().as_secs_f64() * 1e6);
        result
    }

    fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    fn show(&self, what: &str) {
        let least = self.least();
        let most = self.0.iter().copied().fold(0.0, f64::max);
        println!("{what}: {:.0} us ({least:.0} to {most:.0}, {} runs)", self.median(), self.0.len());
    }

    fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::MAX, f64::min)
    }
}

/// A snapshot, all of it read: how many, and their CPU time together, so that nothing of it is left out.
fn read(tasks: &mut Tasks) -> (usize, u64) {
    let snapshot = tasks.snapshot().expect("the process table");
    let sum = snapshot.iter().map(|task| task.cpu_ns() ^ u64::from(task.pid()) ^ task.rss_pages()).sum();
    (snapshot.found(), std::hint::black_box(sum))
}

fn main() {
    let rounds: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(15);
    let empty = EmptyWalk::load().expect("the open-coded iterator over tasks: Linux 6.7 or newer");
    let load = |via, wait_channels| Tasks::load_from(TaskOptions { wait_channels, ..TaskOptions::default() }, via);
    let mut walk = load("bpf_iter_task", false);
    let mut waits = load("bpf_iter_task", true);
    let mut iterator = load("iter/task", false);
    let mut proc = load("/proc", false);
    let [mut of_empty, mut of_walk, mut of_waits, mut of_iterator, mut of_proc, mut of_load] =
        <[RunTimes; 6]>::default();
    let mut count = read(&mut walk).0;
    for _ in 0..rounds {
        of_load.time(|| drop(load("bpf_iter_task", false)));
        for _ in 0..10 {
            of_empty.time(|| empty.run()).expect("a walk");
            count = of_walk.time(|| read(&mut walk)).0;
        }
        of_waits.time(|| read(&mut waits));
        of_iterator.time(|| read(&mut iterator));
        of_proc.time(|| read(&mut proc));
    }
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    read(&mut walk);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;

    println!("{count} processes");
    of_empty.show("the kernel's empty walk");
    of_walk.show("the process table, bpf_iter_task");
    of_waits.show("the same with wait channels");
    of_iterator.show("the process table, iter/task");
    of_proc.show("the same fields from /proc");
    of_load.show("to load it and give it back, once for each look");
    let more = (of_walk.median() - of_empty.median()) * 1000.0 / count as f64;
    let more_at_least = (of_walk.least() - of_empty.least()) * 1000.0 / count as f64;
    println!("more than the empty walk: {more:.1} ns a process, by the least of each {more_at_least:.1}; budget 40");
    let for_many = |us: f64| us / count as f64 * 10.0;
    let (usual, least) = (for_many(of_walk.median()), for_many(of_walk.least()));
    println!("10 000 processes: {usual:.3} ms, at least {least:.3}; budget 1");
    println!("/proc against bpf_iter_task: {:.0} times; budget 100", of_proc.median() / of_walk.median());
    println!("/proc against iter/task: {:.0} times", of_proc.median() / of_iterator.median());
    println!("allocations of one look: {allocations}; budget: none for a process");
}
