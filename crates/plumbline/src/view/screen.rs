//! A table that is drawn again and again in the same place, on a terminal; anywhere else one below the other.

use std::io::{self, IsTerminal, Write};

/// Where the cursor goes, what is behind it in the line, and what is below it.
const HOME: &str = "\x1b[H";
const CLEAR: &str = "\x1b[2J";
const TO_THE_END_OF_THE_LINE: &str = "\x1b[K";
const TO_THE_END_OF_THE_SCREEN: &str = "\x1b[J";

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

    /// Shows this; on a terminal as much of it as there are lines, the last of which stays free for the shell.
    pub fn draw(&mut self, text: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if !self.in_place {
            out.write_all(text)?;
            return out.flush();
        }
        let lines = terminal_size::terminal_size_of(&out).map_or(usize::MAX, |(_, height)| height.0.into());
        let mut frame = Vec::with_capacity(text.len() + 1024);
        frame.extend_from_slice(if self.drawn { HOME } else { CLEAR }.as_bytes());
        if !self.drawn {
            frame.extend_from_slice(HOME.as_bytes());
        }
        for line in text.split_inclusive(|byte| *byte == b'\n').take(lines.saturating_sub(1)) {
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
