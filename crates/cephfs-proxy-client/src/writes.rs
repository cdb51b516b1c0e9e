//! Tracks the writes of a file, to know whether writes are lost if the daemon goes away.

/// The writes of one open file. A write is confirmed once an fsync that began after its end has succeeded.
#[derive(Debug, Default)]
pub struct Writes {
    /// Writes that are not confirmed, including those under way.
    unconfirmed: u64,
    under_way: u64,
    /// The number of writes begun so far.
    begun: u64,
    /// The number of daemons that have gone away.
    daemons: u32,
    /// The last of these daemons has flushed all writes.
    settled: bool,
    lost: bool,
}

/// A write under way.
#[derive(Debug, Clone, Copy)]
pub struct Ticket(u32);

/// The end of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The daemon answered.
    Answered,
    /// The daemon went away before it took the write.
    Untouched,
    /// The daemon went away during the write, which may or may not be done.
    Unknown,
}

/// An fsync under way.
#[derive(Debug, Clone, Copy)]
pub struct Sync {
    daemons: u32,
    begun: u64,
    alone: bool,
}

impl Writes {
    /// Notes that a write begins.
    pub fn begin(&mut self) -> Ticket {
        self.unconfirmed += 1;
        self.under_way += 1;
        self.begun += 1;
        Ticket(self.daemons)
    }

    /// Notes that a write ends.
    pub fn end(&mut self, ticket: Ticket, fate: Fate) {
        self.under_way -= 1;
        let same_daemon = ticket.0 == self.daemons;
        match fate {
            Fate::Answered if same_daemon => {}
            Fate::Answered => {
                self.unconfirmed -= 1;
                self.lost |= !self.settled;
            }
            Fate::Untouched => self.unconfirmed -= 1,
            Fate::Unknown => {
                self.unconfirmed -= 1;
                self.lost = true;
            }
        }
    }

    /// Notes that an fsync begins; it confirms writes that have ended.
    pub fn sync(&self) -> Sync {
        Sync { daemons: self.daemons, begun: self.begun, alone: self.under_way == 0 }
    }

    /// Notes that an fsync has succeeded. If there were writes at the same time, it is not known which it covers, so it
    /// confirms none.
    pub fn synced(&mut self, sync: Sync) {
        if sync.alone && sync.begun == self.begun && sync.daemons == self.daemons {
            self.unconfirmed = 0;
        }
    }

    /// Notes that the daemon is gone; `settled`: it has flushed all writes. Writes under way are not counted as lost,
    /// since their callers get an error.
    pub fn daemon_gone(&mut self, settled: bool) {
        self.lost |= !settled && self.unconfirmed > self.under_way;
        self.unconfirmed = self.under_way;
        self.daemons += 1;
        self.settled = settled;
    }

    /// Whether a write that succeeded may be lost. Then the file must not be used any more.
    pub fn lost(&self) -> bool {
        self.lost
    }

    /// Whether writes would be lost if the daemon went away.
    pub fn unconfirmed(&self) -> bool {
        self.unconfirmed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Writes {
        let mut writes = Writes::default();
        let ticket = writes.begin();
        writes.end(ticket, Fate::Answered);
        writes
    }

    #[test]
    fn what_no_fsync_confirmed_is_lost_with_the_daemon() {
        let mut writes = written();
        writes.daemon_gone(false);
        assert!(writes.lost());
        let mut settled = written();
        settled.daemon_gone(true);
        assert!(!settled.lost());
        let mut synced = written();
        synced.synced(synced.sync());
        synced.daemon_gone(false);
        assert!(!synced.lost());
    }

    #[test]
    fn an_fsync_confirms_no_write_that_was_beside_it() {
        let mut writes = written();
        let before = writes.sync();
        let ticket = writes.begin();
        writes.synced(before);
        assert!(writes.unconfirmed());
        let beside = writes.sync();
        writes.end(ticket, Fate::Answered);
        writes.synced(beside);
        assert!(writes.unconfirmed());
        writes.daemon_gone(false);
        assert!(writes.lost());
    }

    #[test]
    fn a_write_under_way_decides_itself() {
        for (fate, settled, lost) in [
            (Fate::Untouched, false, false),
            (Fate::Unknown, false, true),
            (Fate::Answered, false, true),
            (Fate::Answered, true, false),
        ] {
            let mut writes = Writes::default();
            let ticket = writes.begin();
            writes.daemon_gone(settled);
            assert!(!writes.lost());
            writes.end(ticket, fate);
            assert_eq!((writes.lost(), writes.unconfirmed()), (lost, false), "{fate:?}");
        }
    }

    #[test]
    fn an_fsync_of_another_daemon_confirms_nothing() {
        let mut writes = Writes::default();
        let sync = writes.sync();
        writes.daemon_gone(true);
        let ticket = writes.begin();
        writes.end(ticket, Fate::Answered);
        writes.synced(sync);
        assert!(writes.unconfirmed());
    }
}
