//! Aligned columns for streams: widths are fixed before the first row, so that a row can be printed before the next one is known.
//!
//! On a terminal, a table fits the width: long values are cut in the middle, then the least important columns are left out. Otherwise, and with
//! `--wide`, all columns are shown, and nothing is cut.

use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
};

/// Between two columns.
const GAP: usize = 2;
/// In place of what was cut.
const CUT: char = '…';

/// How wide tables may be.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Wide {
    /// All columns and whole values, however narrow the terminal is
    #[arg(long)]
    wide: bool,
}

impl Wide {
    /// The characters in a line of standard output; `None`: no limit.
    pub fn room(self) -> Option<usize> {
        if self.wide { None } else { room_of(&io::stdout()) }
    }
}

/// The characters in a line of this terminal; `None` if it is not a terminal.
pub fn room_of(out: &(impl AsFd + IsTerminal)) -> Option<usize> {
    // A terminal that does not report its width reports 0.
    let (width, _) = terminal_size::terminal_size_of(out).filter(|(width, _)| out.is_terminal() && width.0 > 0)?;
    Some(width.0.into())
}

/// A column.
#[derive(Debug, Clone, Copy)]
pub struct TableColumn {
    heading: &'static str,
    /// The width, characters; 0 for the last column: the rest of the line.
    width: usize,
    right: bool,
    /// The least width, characters.
    least: usize,
    /// Whether longer values are cut.
    is_cut: bool,
    /// If there is no room even with least widths, the column with the greatest rank is left out first; 0: the column is never left out.
    rank: u8,
    /// Whether text that does not fit continues in the next line.
    wraps: bool,
}

impl TableColumn {
    /// Aligned left.
    pub const fn text(heading: &'static str, width: usize) -> Self {
        Self { heading, width, right: false, least: width, is_cut: false, rank: 0, wraps: false }
    }

    /// Aligned right.
    pub const fn number(heading: &'static str, width: usize) -> Self {
        Self { right: true, ..Self::text(heading, width) }
    }

    /// A column that takes the rest of the line, at least `least` characters.
    pub const fn rest(heading: &'static str, least: usize) -> Self {
        Self::text(heading, 0).cut_to(least)
    }

    /// Allows values to be cut to this many characters.
    pub const fn cut_to(self, least: usize) -> Self {
        Self { least, is_cut: true, ..self }
    }

    /// Allows the column to be left out, before columns of a lower rank.
    pub const fn optional(self, rank: u8) -> Self {
        Self { rank, ..self }
    }

    /// Lets text that does not fit continue in the next line instead of cutting it.
    pub const fn wrapped(self) -> Self {
        Self { wraps: true, ..self }
    }

    /// What it is called.
    pub fn heading(&self) -> &'static str {
        self.heading
    }

    fn needs(&self) -> usize {
        self.least.max(self.heading.chars().count())
    }
}

/// The columns that are shown.
#[derive(Debug)]
pub struct Table {
    /// The columns, each with the index of its cell in a row.
    shown: Vec<(usize, TableColumn)>,
    fits: bool,
}

impl Table {
    /// A table with these columns, in lines of `room` characters.
    pub fn new(columns: &[TableColumn], room: Option<usize>) -> Self {
        let shown = columns.iter().copied().enumerate().collect();
        match room {
            Some(room) => Self { shown: fit(shown, room), fits: true },
            None => Self { shown, fits: false },
        }
    }

    /// The width of the column with this index; `None` if it is left out.
    pub fn width_of(&self, place: usize) -> Option<usize> {
        self.shown.iter().find(|(shown, _)| *shown == place).map(|(_, column)| column.width)
    }

    /// The headings.
    pub fn header(&self, out: &mut impl Write) -> io::Result<()> {
        self.line(out, |_, column| column.heading)
    }

    /// Writes a row. If the table has no limit of width, a text wider than its column moves the rest of the row.
    pub fn row(&self, out: &mut impl Write, cells: &[&str]) -> io::Result<()> {
        self.line(out, |place, _| cells.get(place).copied().unwrap_or_default())
    }

    fn line<'a>(&self, out: &mut impl Write, cell: impl Fn(usize, &TableColumn) -> &'a str) -> io::Result<()> {
        // Escape sequences of colours in a cell take no room.
        let (mut line, mut indent, mut more) = (String::new(), 0, Vec::new());
        for (place, column) in &self.shown {
            let text = cell(*place, column);
            let text = match () {
                () if !self.fits || !column.is_cut => Cow::from(text),
                () if column.wraps => {
                    let mut lines = wrap(text, column.width).into_iter();
                    let first = lines.next().unwrap_or_default();
                    more = lines.map(|text| format!("{:indent$}{text}", "")).collect();
                    first.into()
                }
                () => cut(text, column.width),
            };
            let width = column.width;
            line.push_str(&if column.right { format!("{text:>width$}") } else { format!("{text:<width$}") });
            line.push_str("  ");
            indent += width + GAP;
        }
        writeln!(out, "{}", line.trim_end())?;
        more.iter().try_for_each(|line| writeln!(out, "{line}"))
    }
}

/// Leaves out columns for which there is no room, and sets the widths of the others; columns that are never left out get room first.
fn fit(mut columns: Vec<(usize, TableColumn)>, room: usize) -> Vec<(usize, TableColumn)> {
    let needed = |columns: &[(usize, TableColumn)]| {
        columns.iter().map(|(_, column)| column.needs() + GAP).sum::<usize>().saturating_sub(GAP)
    };
    while needed(&columns) > room {
        let ranks = columns.iter().map(|(_, column)| column.rank).enumerate();
        // Of columns with equal rank, the last is left out.
        let Some((place, _)) = ranks.filter(|(_, rank)| *rank > 0).max_by_key(|(_, rank)| *rank) else { break };
        columns.remove(place);
    }
    let mut spare = room.saturating_sub(needed(&columns));
    let mut order: Vec<&mut TableColumn> = columns.iter_mut().map(|(_, column)| column).collect();
    order.sort_by_key(|column| (column.width == 0, column.rank));
    for column in order {
        let least = column.needs();
        // A column without a width that is not cut is empty: it indents the next.
        let is_rest = column.width == 0 && column.is_cut;
        let more = if is_rest { spare } else { column.width.saturating_sub(least).min(spare) };
        column.width = least + more;
        spare -= more;
    }
    columns
}

/// The text; if it is too long, its beginning and its end.
pub fn cut(text: &str, width: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= width {
        return text.into();
    }
    let kept = width.saturating_sub(1);
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    let mut short: String = text.chars().take(head).collect();
    short.extend((width > 0).then_some(CUT));
    short.extend(text.chars().skip(count - tail));
    short.into()
}

/// Splits a text into lines of whole words. A word that is longer than a line gets a line of its own.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= width) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [TableColumn; 5] = [
        TableColumn::text("TIME", 8),
        TableColumn::number("MS", 6),
        TableColumn::number("BYTES", 9).optional(2),
        TableColumn::text("COMM", 12).cut_to(6).optional(1),
        TableColumn::rest("FILE", 10),
    ];
    const CELLS: [&str; 5] = ["12:00:00", "1.5", "4096", "very-long-name", "/mnt/share/a/b/c/file.dat"];

    fn shown(room: Option<usize>) -> Vec<String> {
        let (table, mut out) = (Table::new(&COLUMNS, room), Vec::new());
        table.header(&mut out).unwrap();
        table.row(&mut out, &CELLS).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn without_a_limit_nothing_is_cut() {
        assert_eq!(
            shown(None),
            [
                "TIME          MS      BYTES  COMM          FILE",
                "12:00:00     1.5       4096  very-long-name  /mnt/share/a/b/c/file.dat"
            ]
        );
    }

    #[test]
    fn what_is_too_long_is_cut_in_the_middle_then_columns_give_way_by_importance() {
        assert_eq!(
            shown(Some(60)),
            [
                "TIME          MS      BYTES  COMM          FILE",
                "12:00:00     1.5       4096  very-l…-name  /mnt/shar…file.dat"
            ]
            .map(|line| line.replace("/mnt/shar…file.dat", &cut(CELLS[4], 60 - 43)))
        );
        assert_eq!(shown(Some(40))[0], "TIME          MS  COMM        FILE");
        assert_eq!(shown(Some(30)), ["TIME          MS  FILE", "12:00:00     1.5  /mnt/s…e.dat"]);
        assert_eq!(shown(Some(4))[0], "TIME          MS  FILE", "the last ones do not give way");
        for room in 28..80 {
            assert!(shown(Some(room)).iter().all(|line| line.chars().count() <= room), "{room}");
        }
    }

    #[test]
    fn a_value_keeps_its_beginning_and_its_end() {
        assert_eq!(cut("abcdefghij", 10), "abcdefghij");
        assert_eq!(cut("abcdefghij", 6), "abc…ij");
        assert_eq!(cut("äöüäöüäöü", 4), "äö…ü");
        assert_eq!((cut("abc", 1), cut("abc", 0)), ("…".into(), "".into()));
    }

    #[test]
    fn a_reason_goes_on_below_its_column() {
        let columns = [TableColumn::text("PROBE", 6), TableColumn::rest("", 10).wrapped()];
        let mut out = Vec::new();
        Table::new(&columns, Some(24)).row(&mut out, &["smb", "fentry is not there on this kernel"]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "smb     fentry is not\n        there on this\n        kernel\n");
    }

    #[test]
    fn a_column_of_nothing_indents_the_next() {
        let columns = [TableColumn::text("", 0), TableColumn::rest("", 10).wrapped()];
        let mut out = Vec::new();
        Table::new(&columns, Some(16)).row(&mut out, &["", "more of the same"]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "  more of the\n  same\n");
    }
}
