//! Colour, where it means something and only on a terminal.

use std::{env, io::IsTerminal, sync::LazyLock};

static COLOUR: LazyLock<bool> =
    LazyLock::new(|| std::io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()));

/// Whether standard output shows colours, and nobody asks for none (NO_COLOR).
pub fn is_on() -> bool {
    *COLOUR
}

/// `text` padded to `width` columns, green.
pub fn green(text: &str, width: usize) -> String {
    painted(text, width, 32)
}

/// `text` padded to `width` columns, yellow.
pub fn yellow(text: &str, width: usize) -> String {
    painted(text, width, 33)
}

/// `text` padded to `width` columns, red.
pub fn red(text: &str, width: usize) -> String {
    painted(text, width, 31)
}

/// Padding comes first: escape sequences must not count as columns.
fn painted(text: &str, width: usize, code: u8) -> String {
    if *COLOUR { format!("\x1b[{code}m{text:<width$}\x1b[0m") } else { format!("{text:<width$}") }
}
