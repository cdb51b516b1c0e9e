//! Every send of the selected connections. The stages of a send arrive one by one and are joined here.

use std::{
    collections::{HashMap, VecDeque},
    io::{self, Write},
};

use anyhow::Result;
use diagnose::span;
use model::{Histogram, Nanos};
use probes::{
    ProbeSet,
    tcp::{Endpoints, SendStamp, Stage},
};
use serde_json::{Value, json};

use super::print::{end, stage_json};
use crate::view::{
    clock::Clock,
    table::{Table, TableColumn},
};

/// The most unacknowledged sends of one connection. Beyond this, the oldest is printed incomplete.
const MOST_OPEN: usize = 65_536;
/// The most connections whose names are kept.
const MOST_NAMES: usize = 65_536;

/// One send: a call of sendmsg() or a similar function. A time of 0 is not known or has not arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Send {
    start: Nanos,
    queued: Nanos,
    sched: Nanos,
    driver: Nanos,
    acked: Nanos,
    last: u32,
    bytes: u32,
    resent: u32,
}

/// The incomplete sends of one connection, oldest first.
#[derive(Default)]
struct OpenSends(VecDeque<Send>);

impl OpenSends {
    /// Adds a stamp. Returns the sends that are complete with it.
    fn see(&mut self, stamp: &SendStamp) -> Vec<Send> {
        let passed = |send: &Send| stamp.last.wrapping_sub(send.last) < 1 << 31;
        match stamp.stage {
            Stage::Call => {
                let SendStamp { start, time: queued, last, bytes, .. } = *stamp;
                self.0.push_back(Send { start, queued, last, bytes, ..Send::default() });
                if self.0.len() > MOST_OPEN { self.0.pop_front().into_iter().collect() } else { Vec::new() }
            }
            Stage::Queue => {
                for send in self.0.iter_mut().take_while(|send| passed(send)) {
                    match send.sched {
                        0 => send.sched = stamp.time,
                        _ => send.resent += u32::from(send.last == stamp.last),
                    }
                }
                Vec::new()
            }
            Stage::Scheduler => {
                for send in self.0.iter_mut().take_while(|send| passed(send)).filter(|send| send.driver == 0) {
                    send.driver = stamp.time;
                }
                Vec::new()
            }
            _ => {
                let over = self.0.iter().take_while(|send| passed(send)).count();
                self.0.drain(..over).map(|send| Send { acked: stamp.time, ..send }).collect()
            }
        }
    }
}

impl Send {
    /// The durations of all stages of [`Stage::ALL`] but the last; `None` if not known.
    fn times(&self) -> [Option<Nanos>; 5] {
        let between = |from: Nanos, to: Nanos| (from != 0 && to >= from).then(|| to - from);
        let began = if self.start == 0 { self.queued } else { self.start };
        let left = if self.driver == 0 { self.sched } else { self.driver };
        [
            between(self.start, self.queued),
            between(self.queued, self.sched),
            between(self.sched, self.driver),
            between(left, self.acked),
            between(began, self.acked),
        ]
    }
}

/// Prints lines, and sums them up.
pub struct EverySend {
    json: bool,
    table: Table,
    room: Option<usize>,
    clock: Clock,
    names: HashMap<u64, Endpoints>,
    open: HashMap<u64, OpenSends>,
    sums: [Histogram; 5],
    sends: u64,
    bytes: u64,
    resent: u64,
}

const COLUMNS: [TableColumn; 10] = [
    TableColumn::text("TIME", 15),
    TableColumn::text("LOCAL", 21).cut_to(11).optional(3),
    TableColumn::text("PEER", 21).cut_to(11),
    TableColumn::number("BYTES", 9).optional(1),
    TableColumn::number("CALL", 9).optional(4),
    TableColumn::number("QUEUE", 9),
    TableColumn::number("SCHEDULER", 9).optional(2),
    TableColumn::number("NETWORK", 9),
    TableColumn::number("SEND", 9),
    TableColumn::number("RESENT", 6).optional(5),
];

impl EverySend {
    pub fn new(json: bool, room: Option<usize>) -> Self {
        Self {
            json,
            table: Table::new(&COLUMNS, room),
            room,
            clock: Clock::now(),
            names: HashMap::new(),
            open: HashMap::new(),
            sums: Default::default(),
            sends: 0,
            bytes: 0,
            resent: 0,
        }
    }

    /// Reads the names of the present connections.
    pub fn match_sockets(&mut self, watch: &mut ProbeSet) -> Result<()> {
        let (connections, flows) = watch.flows()?;
        if self.names.len() > MOST_NAMES {
            self.names.clear();
        }
        self.names.extend(connections.iter().map(|connection| (connection.cookie, connection.ends)));
        self.names.extend(flows.iter().map(|flow| (flow.cookie, flow.ends)));
        Ok(())
    }

    pub fn heading(&self, out: &mut impl Write) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        eprintln!(
            "plumbline: of each call only its last byte is stamped: the times of a large one are those of its end"
        );
        self.table.header(out)?;
        out.flush()
    }

    /// Drains the ring.
    pub fn drain(&mut self, watch: &mut ProbeSet, out: &mut impl Write) -> Result<()> {
        loop {
            let taken = watch.drain(|_| ());
            for stamp in watch.stamps() {
                if !self.names.contains_key(&stamp.cookie) {
                    self.match_sockets(watch)?;
                }
                for send in self.open.entry(stamp.cookie).or_default().see(&stamp) {
                    self.print_send(out, stamp.cookie, &send)?;
                }
            }
            if taken < ProbeSet::BATCH {
                out.flush()?;
                return Ok(());
            }
        }
    }

    fn print_send(&mut self, out: &mut impl Write, cookie: u64, send: &Send) -> Result<()> {
        let times = send.times();
        self.sends += 1;
        self.bytes += u64::from(send.bytes);
        self.resent += u64::from(send.resent);
        for (sum, time) in self.sums.iter_mut().zip(times) {
            time.into_iter().for_each(|ns| sum.add(ns, 0, false));
        }
        let ends = self.names.get(&cookie);
        let (local, peer) = ends.map(|ends| (end(ends.local), end(ends.peer))).unwrap_or_default();
        if self.json {
            let us = times.map(|time| time.map(|ns| ns as f64 / 1e3));
            let [call, queue, scheduler, network, whole] = us;
            let line = json!({
                "time": self.clock.iso(send.queued), "local": local, "peer": peer, "bytes": send.bytes, "call_us": call,
                "queue_us": queue, "scheduler_us": scheduler, "network_us": network, "send_us": whole, "resent": send.resent,
            });
            serde_json::to_writer(&mut *out, &line)?;
            writeln!(out)?;
            return Ok(());
        }
        let mut cells = vec![self.clock.time_of_day(send.queued), local, peer, send.bytes.to_string()];
        cells.extend(times.map(|time| time.map_or("-".to_owned(), span)));
        cells.push(send.resent.to_string());
        self.table.row(out, &cells.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(())
    }

    /// Prints which sends were not acknowledged, and how long each stage took.
    pub fn finish(&mut self, watch: &ProbeSet, out: &mut impl Write) -> Result<()> {
        let mut unacknowledged = 0_u64;
        for (cookie, open) in std::mem::take(&mut self.open) {
            for send in open.0 {
                unacknowledged += 1;
                self.print_send(out, cookie, &send)?;
            }
        }
        let lost: u64 = watch.lost_events().iter().map(|(_, lost)| lost).sum();
        if self.json {
            let stages: serde_json::Map<String, Value> = Stage::ALL
                .iter()
                .zip(&self.sums)
                .filter(|(_, times)| times.count > 0)
                .map(|(stage, times)| (stage.name().to_owned(), stage_json(times)))
                .collect();
            let sum = json!({
                "sends": self.sends, "bytes": self.bytes, "resent": self.resent, "unacknowledged": unacknowledged,
                "stamps_lost": lost, "stages": stages,
            });
            serde_json::to_writer(&mut *out, &sum)?;
            writeln!(out)?;
        } else {
            self.distribution(out)?;
            writeln!(
                out,
                "{} sends, {} bytes; not acknowledged: {unacknowledged}; sent again: {}",
                self.sends, self.bytes, self.resent
            )?;
            if lost > 0 {
                writeln!(out, "{lost} stages found the ring full, so that some sends are not told, or not wholly")?;
            }
        }
        out.flush()?;
        Ok(())
    }

    fn distribution(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out)?;
        let shares = [("50 %", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("99.9 %", 0.999), ("ALL", 1.0)];
        let mut columns =
            vec![TableColumn::text("STAGE", 10), TableColumn::number("SENDS", 8), TableColumn::number("MEAN", 9)];
        columns.extend(shares.map(|(name, _)| TableColumn::number(name, 9)));
        let table = Table::new(&columns, self.room);
        table.header(out)?;
        for (stage, times) in Stage::ALL.iter().zip(&self.sums).filter(|(_, times)| times.count > 0) {
            let mut cells = vec![stage.name().to_owned(), times.count.to_string(), span(times.sum / times.count)];
            cells.extend(shares.map(|(_, share)| times.quantile(share).map_or("-".to_owned(), span)));
            table.row(out, &cells.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(stage: Stage, last: u32, time: Nanos) -> SendStamp {
        SendStamp { cookie: 1, time, stage, last, start: 0, bytes: 10 }
    }

    #[test]
    fn a_send_is_over_with_its_acknowledgement_and_one_of_a_later_send_is_its_too() {
        let mut open = OpenSends::default();
        // Sequence numbers begin again at zero.
        open.see(&stamp(Stage::Call, u32::MAX - 4, 100));
        open.see(&stamp(Stage::Call, 5, 200));
        open.see(&stamp(Stage::Queue, u32::MAX - 4, 110));
        open.see(&stamp(Stage::Scheduler, u32::MAX - 4, 111));
        open.see(&stamp(Stage::Queue, 5, 210));
        open.see(&stamp(Stage::Queue, 5, 300));
        let over = open.see(&stamp(Stage::Network, 5, 400));
        assert_eq!(over.len(), 2);
        assert_eq!(over[0].times(), [None, Some(10), Some(1), Some(289), Some(300)]);
        assert_eq!((over[1].sched, over[1].resent), (210, 1));
        assert_eq!(over[1].times(), [None, Some(10), None, Some(190), Some(200)]);
        assert!(open.0.is_empty());
    }
}
