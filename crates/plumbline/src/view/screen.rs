//! What is written over on a terminal: a table that is drawn again and again in the same place (anywhere else one below the other), and a line of status
//! (anywhere else nothing).

use std::io::{self, IsTerminal, Write};

use super::table::{cut, room_of};

/// Where the cursor goes, what is behind it in the line, and what is below it.
const HOME: &str = "\x1b[H";
const CLEAR: &str = "\x1b[2J";
const TO_THE_END_OF_THE_LINE: &str = "\x1b[K";
const TO_THE_END_OF_THE_SCREEN: &str = "\x1b[J";

/// One line on standard error, which is written over. Everybody clears it before anything else is printed.
pub struct StatusLine {
    terminal: bool,
    shown: bool,
}

impl StatusLine {
    /// Shown only where standard error is a terminal, and `wanted`.
    pub fn new(wanted: bool) -> Self {
        Self { terminal: wanted && io::stderr().is_terminal(), shown: false }
    }

    /// Whether anybody sees it.
    pub fn is_seen(&self) -> bool {
        self.terminal
    }

    /// Shows this in place of what was there; what is too long is cut, since a line that wraps cannot be written over.
    pub fn show(&mut self, text: &str) {
        if self.terminal {
            let room = room_of(&io::stderr()).unwrap_or(usize::MAX);
            let _ = write!(io::stderr(), "\r{TO_THE_END_OF_THE_LINE}{}", cut(text, room.saturating_sub(1)));
            self.shown = true;
        }
    }

    /// Makes room.
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

    /// Whether what is drawn takes the place of what was drawn before.
    pub fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// How many lines are shown: the last of a terminal stays free for the shell.
    pub fn lines(&self) -> usize {
        let height = terminal_size::terminal_size_of(io::stdout()).filter(|_| self.in_place);
        height.map_or(usize::MAX, |(_, height)| usize::from(height.0).saturating_sub(1))
    }

    /// Shows this; on a terminal as much of it as there are lines.
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
        // In one piece, so that no half of it is ever seen.
        out.write_all(&frame)?;
        out.flush()
    }
}
