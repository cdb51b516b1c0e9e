//! What is known of a file's writes: whether a daemon that goes away takes some of them with it.

/// Of one open file. What was written counts as kept once an fsync that began after it has succeeded.
#[derive(Debug, Default)]
pub struct Writes {
    /// Begun, and not known to be kept: with those under way.
    unconfirmed: u64,
    under_way: u64,
    /// Goes up with each that is begun.
    begun: u64,
    /// Goes up with each daemon that goes away.
    daemons: u32,
    /// The last of them said that it has kept all.
    settled: bool,
    lost: bool,
}

/// A write that was begun.
#[derive(Debug, Clone, Copy)]
pub struct Ticket(u32);

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The daemon answered.
    Answered,
    /// It never saw it.
    Untouched,
    /// It went away meanwhile.
    Unknown,
}

/// An fsync that was begun.
#[derive(Debug, Clone, Copy)]
pub struct Sync {
    daemons: u32,
    begun: u64,
    alone: bool,
}

impl Writes {
    /// A write begins.
    pub fn begin(&mut self) -> Ticket {
        self.unconfirmed += 1;
        self.under_way += 1;
        self.begun += 1;
        Ticket(self.daemons)
    }

    /// And ends.
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

    /// An fsync begins: it is about writes that have ended.
    pub fn sync(&self) -> Sync {
        Sync { daemons: self.daemons, begun: self.begun, alone: self.under_way == 0 }
    }

    /// It has succeeded. If there were writes beside it, it is not known which of them it was about: none, then.
    pub fn synced(&mut self, sync: Sync) {
        if sync.alone && sync.begun == self.begun && sync.daemons == self.daemons {
            self.unconfirmed = 0;
        }
    }

    /// The daemon is gone; `settled` if it has said that all was kept. Of what is under way, those know who wait for it.
    pub fn daemon_gone(&mut self, settled: bool) {
        self.lost |= !settled && self.unconfirmed > self.under_way;
        self.unconfirmed = self.under_way;
        self.daemons += 1;
        self.settled = settled;
    }

    /// Whether something that was written may not be there, and nobody was told so: nothing may be done with the file any more.
    pub fn lost(&self) -> bool {
        self.lost
    }

    /// Whether something would be lost if the daemon were gone.
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
