//! Output that overwrites itself on a terminal: a table that is drawn again in the same place, and a status line. If the output is no terminal,
//! tables are printed one below the other, and there is no status line.

use std::io::{self, IsTerminal, Write};

use super::table::{cut, room_of};

/// The escape sequences that move the cursor to the top, and that clear the screen, the rest of the line and the rest of the screen.
const HOME: &str = "\x1b[H";
const CLEAR: &str = "\x1b[2J";
const TO_THE_END_OF_THE_LINE: &str = "\x1b[K";
const TO_THE_END_OF_THE_SCREEN: &str = "\x1b[J";

/// A line on standard error that overwrites itself. It must be cleared before anything else is printed.
pub struct StatusLine {
    terminal: bool,
    shown: bool,
}

impl StatusLine {
    /// The line is shown only if it is `wanted` and standard error is a terminal.
    pub fn new(wanted: bool) -> Self {
        Self { terminal: wanted && io::stderr().is_terminal(), shown: false }
    }

    /// Whether the line is shown.
    pub fn is_seen(&self) -> bool {
        self.terminal
    }

    /// Shows a text in place of the previous one. A long text is cut, since a wrapped line cannot be overwritten.
    pub fn show(&mut self, text: &str) {
        if self.terminal {
            let room = room_of(&io::stderr()).unwrap_or(usize::MAX);
            let _ = write!(io::stderr(), "\r{TO_THE_END_OF_THE_LINE}{}", cut(text, room.saturating_sub(1)));
            self.shown = true;
        }
    }

    /// Clears the line.
    pub fn clear(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r{TO_THE_END_OF_THE_LINE}");
            self.shown = false;
        }
    }
}

/// Standard output.
pub struct Screen {
    in_place: bool,
    drawn: bool,
}

impl Screen {
    pub fn new() -> Self {
        Self { in_place: io::stdout().is_terminal(), drawn: false }
    }

    /// Whether a table is drawn over the previous one.
    pub fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// The number of lines for a table: the last line of a terminal stays free for the shell.
    pub fn lines(&self) -> usize {
        let height = terminal_size::terminal_size_of(io::stdout()).filter(|_| self.in_place);
        height.map_or(usize::MAX, |(_, height)| usize::from(height.0).saturating_sub(1))
    }

    /// Draws a table; on a terminal, only as many lines as it has.
    pub fn draw(&mut self, text: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if !self.in_place {
            out.write_all(text)?;
            return out.flush();
        }
        let mut frame = Vec::with_capacity(text.len() + 1024);
        frame.extend_from_slice(if self.drawn { HOME } else { CLEAR }.as_bytes());
        if !self.drawn {
            frame.extend_from_slice(HOME.as_bytes());
        }
        for line in text.split_inclusive(|byte| *byte == b'\n').take(self.lines()) {
            frame.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
            frame.extend_from_slice(TO_THE_END_OF_THE_LINE.as_bytes());
            frame.push(b'\n');
        }
        frame.extend_from_slice(TO_THE_END_OF_THE_SCREEN.as_bytes());
        self.drawn = true;
        // A single write, so that no partial table is visible.
        out.write_all(&frame)?;
        out.flush()
    }
}
