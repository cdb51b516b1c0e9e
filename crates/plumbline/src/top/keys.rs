//! Keys as in htop and top.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// A key with a meaning in `top`, or which may be part of a typed text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopKey {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Tab,
    BackTab,
    Enter,
    Escape,
    Backspace,
    /// F1 is 1.
    Function(u8),
    Character(char),
    /// Ctrl-C, which is no signal in raw mode.
    Interrupt,
    /// Ctrl-Z, which is no signal in raw mode.
    Suspend,
    /// Ctrl-L.
    Redraw,
}

impl TopKey {
    /// The key of a terminal event; `None` if the event has no meaning here.
    pub fn of(event: KeyEvent) -> Option<Self> {
        if event.kind == KeyEventKind::Release {
            return None;
        }
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        Some(match event.code {
            KeyCode::Char('c') if control => Self::Interrupt,
            KeyCode::Char('z') if control => Self::Suspend,
            KeyCode::Char('l') if control => Self::Redraw,
            KeyCode::Char(_) if control || event.modifiers.contains(KeyModifiers::ALT) => return None,
            KeyCode::Char(character) => Self::Character(character),
            KeyCode::F(number) => Self::Function(number),
            KeyCode::Up => Self::Up,
            KeyCode::Down => Self::Down,
            KeyCode::PageUp => Self::PageUp,
            KeyCode::PageDown => Self::PageDown,
            KeyCode::Home => Self::Home,
            KeyCode::End => Self::End,
            KeyCode::Tab => Self::Tab,
            KeyCode::BackTab => Self::BackTab,
            KeyCode::Enter => Self::Enter,
            KeyCode::Esc => Self::Escape,
            KeyCode::Backspace => Self::Backspace,
            _ => return None,
        })
    }
}

/// The keys and their meanings for the help.
pub const HELP: &[(&str, &str)] = &[
    ("Tab, Shift-Tab", "the next pane, the one before"),
    ("Up, Down, PgUp, PgDn, Home, End", "move in the pane"),
    ("F6 or >, <", "sort by the next column, the one before"),
    ("I", "invert the order"),
    ("F3 or /", "search the pane; Enter: the next, Esc: end"),
    ("F4 or \\", "filter all panes; Enter: keep, Esc: show all"),
    ("Space or p", "pause: the frame stays as it is"),
    ("+, -", "a longer, a shorter interval"),
    ("F1, h or ?", "this help"),
    ("F10, q or Ctrl-C", "quit"),
];

/// The last line: the most important keys.
pub const HINTS: &str = "F1 Help  F3 Search  F4 Filter  F6 Sort  I Invert  Space Pause  Tab Pane  q Quit";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_htop() {
        let key = |code, modifiers| TopKey::of(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(TopKey::Character('q')));
        assert_eq!(key(KeyCode::Char('I'), KeyModifiers::SHIFT), Some(TopKey::Character('I')));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(TopKey::Interrupt));
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::CONTROL), None);
        assert_eq!(key(KeyCode::F(10), KeyModifiers::NONE), Some(TopKey::Function(10)));
        assert_eq!(key(KeyCode::Insert, KeyModifiers::NONE), None);
    }
}
