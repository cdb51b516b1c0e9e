//! The terminal: taken over as a whole, and given back however the program ends. And who sends messages to the thread that draws.

use std::{
    io::{self, Stdout},
    sync::{
        Once,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::{Hide, Show},
        event::{Event, read},
        execute,
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
    layout::{Position, Rect},
};

use super::{
    draw::draw,
    keys::TopKey,
    model::{KnownOrReason, TopSample},
    state::TopState,
};
use crate::view::paint;

/// Messages that wait: keys held down, at the most.
const WAITING: usize = 64;

/// What the thread that draws is told.
#[derive(Debug)]
pub enum DrawMessage {
    Key(TopKey),
    /// Columns and lines.
    Resized(u16, u16),
    Signal(Signal),
    Look(Box<KnownOrReason<TopSample>>),
}

/// Where messages come in; whoever sends some has a clone of the other end.
pub fn mailbox() -> (SyncSender<DrawMessage>, Receiver<DrawMessage>) {
    sync_channel(WAITING)
}

/// Has these signals come as messages. To be called before any other thread is started: threads block what their parent blocks.
///
/// # Errors
///
/// When no thread can be started.
pub fn watch_signals(signals: &[Signal], to: SyncSender<DrawMessage>) -> Result<()> {
    let set: SigSet = signals.iter().copied().collect();
    set.thread_block().context("cannot block signals")?;
    let work = move || {
        while let Ok(signal) = set.wait() {
            if to.send(DrawMessage::Signal(signal)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(work).context("cannot start a thread")?;
    Ok(())
}

/// Has what is typed come as messages.
fn watch_keys(to: SyncSender<DrawMessage>) -> Result<()> {
    let work = move || {
        loop {
            let message = match read() {
                Ok(Event::Key(key)) => TopKey::of(key).map(DrawMessage::Key),
                Ok(Event::Resize(columns, lines)) => Some(DrawMessage::Resized(columns, lines)),
                Ok(_) => None,
                // Nobody can type any more: the terminal has gone.
                Err(_) => Some(DrawMessage::Signal(Signal::SIGHUP)),
            };
            let is_over = matches!(message, Some(DrawMessage::Signal(_)));
            if message.is_some_and(|message| to.send(message).is_err()) || is_over {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".into()).spawn(work).context("cannot start a thread")?;
    Ok(())
}

/// A terminal that is ours. Dropping it gives it back.
pub struct Taken {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    colours: bool,
}

impl Taken {
    /// Takes over the terminal on standard output.
    ///
    /// # Errors
    ///
    /// When it cannot be had.
    pub fn take(keys_to: SyncSender<DrawMessage>) -> Result<Self> {
        give_back_in_a_panic();
        // From here on, whatever fails gives it back.
        let taken = Self {
            terminal: Terminal::new(CrosstermBackend::new(io::stdout())).context("cannot use the terminal")?,
            colours: paint::is_on(),
        };
        enter().context("cannot use the terminal")?;
        watch_keys(keys_to)?;
        Ok(taken)
    }

    /// Columns and lines.
    pub fn size(&self) -> (u16, u16) {
        self.terminal.size().map_or((80, 24), |size| (size.width, size.height))
    }

    /// Draws what has changed.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be written to.
    pub fn draw(&mut self, state: &TopState) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame, state, self.colours)).map(drop)
    }

    /// What is on the screen may be somebody else's: all of it is drawn with the next frame.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be written to.
    pub fn forget(&mut self) -> io::Result<()> {
        // Not `clear()`, which asks the terminal where the cursor is: the thread that reads keys would have the answer.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from((Position::ORIGIN, size)))
    }

    /// Gives the terminal back for a while, and stops the process as the signal would have done. Comes back when it goes on.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be had again.
    pub fn suspend(&mut self) -> Result<()> {
        leave();
        nix::sys::signal::raise(Signal::SIGSTOP)?;
        self.resume()
    }

    /// The process was stopped and goes on: somebody else may have changed the terminal.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be had again.
    pub fn resume(&mut self) -> Result<()> {
        // What is raw already, by crossterm's account, is not made so again.
        disable_raw_mode()?;
        enter()?;
        Ok(self.forget()?)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        leave();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

/// Harmless where it was not taken. Nobody is left to tell of an error.
fn leave() {
    let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}

/// So that what a panic says can be read.
fn give_back_in_a_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            before(panic);
        }));
    });
}
