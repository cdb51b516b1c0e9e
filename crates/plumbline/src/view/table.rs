//! Aligned columns for streams: widths are fixed, so that a row can be printed before the next is known.

use std::io::{self, Write};

/// A column's heading and width; a negative width aligns right, 0 is the rest of the line.
pub type Column = (&'static str, i16);

/// Columns separated by two spaces.
pub struct Table<'a> {
    columns: &'a [Column],
}

impl<'a> Table<'a> {
    /// A table of these columns.
    pub fn new(columns: &'a [Column]) -> Self {
        Self { columns }
    }

    /// The headings.
    pub fn header(&self, out: &mut impl Write) -> io::Result<()> {
        let headings: Vec<&str> = self.columns.iter().map(|(heading, _)| *heading).collect();
        self.row(out, &headings)
    }

    /// One row. Text wider than its column moves the rest of the row: nothing is cut.
    pub fn row(&self, out: &mut impl Write, cells: &[&str]) -> io::Result<()> {
        let mut line = String::new();
        for ((_, width), cell) in self.columns.iter().zip(cells) {
            let columns = usize::from(width.unsigned_abs());
            if *width < 0 {
                line.push_str(&format!("{cell:>columns$}  "));
            } else {
                line.push_str(&format!("{cell:<columns$}  "));
            }
        }
        writeln!(out, "{}", line.trim_end())
    }
}
