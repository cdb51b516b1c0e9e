//! The output of `plumbline prove`: a progress line and a table.

use std::{io::Write, time::Instant};

use anyhow::Result;
use model::Layer;

use super::{
    Said,
    judge::{Tried, VerdictMatch},
};
use crate::view::{
    paint,
    screen::StatusLine,
    table::{Table, TableColumn, Wide},
};

/// Prints the reports as a table.
pub struct ProvePrinter {
    table: Table,
    status: StatusLine,
    pub tried: Vec<Tried>,
    began: Instant,
}

const COLUMNS: [TableColumn; 7] = [
    TableColumn::text("FAULT", 48).cut_to(24),
    TableColumn::text("ON", 4),
    TableColumn::text("MADE AT", 8).optional(1),
    TableColumn::text("", 7),
    TableColumn::number("SURE", 5),
    TableColumn::number("AFTER", 6),
    TableColumn::rest("VERDICT", 18).wrapped(),
];

impl ProvePrinter {
    pub fn new(wide: Wide) -> Self {
        Self {
            table: Table::new(&COLUMNS, wide.room()),
            status: StatusLine::new(true),
            tried: Vec::new(),
            began: Instant::now(),
        }
    }

    pub fn print(&mut self, said: Said<'_>, json: bool) -> Result<()> {
        match said {
            Said::Progress(text) => self.progress(text),
            Said::Bed(bed, faults) => {
                self.status.clear();
                for line in &bed.missing {
                    let _ = writeln!(std::io::stderr(), "plumbline: {line}");
                }
                if !json {
                    let mut out = std::io::stdout().lock();
                    let cases = if faults == 1 { "1 case".to_owned() } else { format!("{faults} cases") };
                    writeln!(out, "Linux {}, {}: {cases}\n", crate::source::this_host().kernel, bed.describe())?;
                    self.table.header(&mut out)?;
                }
            }
            Said::Tried(tried) => {
                self.status.clear();
                if !json {
                    row(&self.table, &tried)?;
                }
                self.tried.push(tried);
            }
        }
        Ok(())
    }

    fn progress(&mut self, text: &str) {
        self.status.show(&format!("{} s, {text} ...", self.began.elapsed().as_secs()));
    }

    /// Prints the last lines.
    pub fn finish(&mut self, json: bool) -> Result<()> {
        self.status.clear();
        let mut out = std::io::stdout().lock();
        if json {
            serde_json::to_writer_pretty(&mut out, &self.tried)?;
            writeln!(out)?;
            return Ok(());
        }
        let count = |judged: VerdictMatch| self.tried.iter().filter(|tried| tried.judged == judged).count();
        writeln!(
            out,
            "\n{} right, {} unknown, {} wrong, {} missed, {} false alarms; {:.0} s; nothing is left behind",
            count(VerdictMatch::Right),
            count(VerdictMatch::Unknown),
            count(VerdictMatch::Wrong),
            count(VerdictMatch::Missed),
            count(VerdictMatch::Alarm),
            self.began.elapsed().as_secs_f64()
        )?;
        Ok(())
    }

    /// Whether no wrong layer was named, and no incident was reported without a fault.
    pub fn is_good(&self) -> bool {
        !self.tried.iter().any(|tried| matches!(tried.judged, VerdictMatch::Wrong | VerdictMatch::Alarm))
    }
}

fn row(table: &Table, tried: &Tried) -> Result<()> {
    let judged = match tried.judged {
        VerdictMatch::Right => paint::green("right", 7),
        VerdictMatch::Unknown => paint::yellow("unknown", 7),
        VerdictMatch::Missed => paint::yellow("missed", 7),
        VerdictMatch::Wrong => paint::red("WRONG", 7),
        VerdictMatch::Alarm => paint::red("ALARM", 7),
    };
    let verdict = match (tried.layer, tried.cause) {
        (Layer::Unknown, None) if tried.made_at == Some(Layer::Unknown) && tried.judged == VerdictMatch::Right => {
            "unknown, which is all that can be seen".to_owned()
        }
        (_, Some(cause)) => format!("{}: {}", tried.layer.name(), cause.describe()),
        (Layer::Unknown, None) if tried.after_s.is_none() => "nothing was reported".to_owned(),
        (layer, None) => format!("{}: {}", layer.name(), tried.because.last().map_or("", String::as_str)),
    };
    let sure = if tried.confidence > 0.0 { format!("{:.0} %", tried.confidence * 100.0) } else { "-".to_owned() };
    let after = tried.after_s.map_or_else(|| "-".to_owned(), |after| format!("{after:.1} s"));
    let made_at = match tried.made_at {
        None | Some(Layer::Unknown) => "-",
        Some(layer) => layer.name(),
    };
    let cells = [tried.fault, tried.protocol, made_at, &judged, &sure, &after, &verdict];
    table.row(&mut std::io::stdout().lock(), &cells)?;
    Ok(())
}
