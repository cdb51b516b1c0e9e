//! The state of `top`: the last sample, the history of figures, and the user's choices.

use std::time::Duration;

use super::{
    history::FigureHistory,
    keys::TopKey,
    model::{KnownOrReason, PHASES, TopSample, on_mounts},
    panes::{PANES, Pane, PaneRow},
};

/// The index of the whole time, after those of its parts.
pub const TOTAL: usize = PHASES.len();
/// The intervals that + and - go through, milliseconds.
const INTERVALS: [u64; 8] = [500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000];
/// Characters of a text that is searched or filtered for.
const LONGEST_TEXT: usize = 64;

/// See the top of the file.
pub struct TopState {
    /// Where figures come from, in words.
    pub source: String,
    /// Between two looks.
    pub interval: Duration,
    /// Columns and lines of the terminal.
    pub size: (u16, u16),
    pub paused: bool,
    pub mode: KeyMode,
    /// Only rows with this text are shown, if it is one.
    pub filter: String,
    /// What was searched for last.
    pub search: String,
    pub sample: Option<TopSample>,
    /// Why there is no newer sample.
    pub problem: Option<String>,
    /// Means of operations by mount, layer and operation, nanoseconds.
    pub operations: FigureHistory<(String, String, String)>,
    /// Means by mount and phase, [`TOTAL`] included, nanoseconds.
    pub phases: FigureHistory<(String, usize)>,
    focus: usize,
    views: [PaneView; PANES.len()],
}

/// What keys do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyMode {
    Normal,
    Help,
    /// Keys are text of the search.
    Search,
    Filter,
}

/// The user's choices for a pane.
#[derive(Debug, Clone, Copy)]
pub struct PaneView {
    /// The row in focus.
    pub cursor: usize,
    /// The column that rows are sorted by.
    pub sort: usize,
    pub inverted: bool,
}

/// The effect of a key on the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOutcome {
    Nothing,
    Quit,
    /// As Ctrl-Z asks.
    Suspend,
    /// The terminal may have been changed by another program.
    Redraw,
}

impl TopState {
    /// The state before the first sample.
    pub fn new(source: String, interval: Duration) -> Self {
        Self {
            source,
            interval,
            size: (80, 24),
            paused: false,
            mode: KeyMode::Normal,
            filter: String::new(),
            search: String::new(),
            sample: None,
            problem: None,
            operations: FigureHistory::default(),
            phases: FigureHistory::default(),
            focus: 0,
            views: PANES.map(|pane| PaneView { cursor: 0, sort: pane.first_sort(), inverted: false }),
        }
    }

    /// Takes the sample of a look, or the reason why there is none. Changes nothing while paused.
    pub fn update(&mut self, look: KnownOrReason<TopSample>) {
        if self.paused {
            return;
        }
        let sample = match look {
            Ok(sample) => sample,
            Err(problem) => {
                self.problem = Some(problem);
                return;
            }
        };
        self.problem = None;
        let mean = |amounts: &model::Histogram| amounts.sum.checked_div(amounts.count);
        self.operations.add(
            sample
                .operations
                .iter()
                .map(|one| ((one.mount.clone(), one.layer.clone(), one.operation.clone()), mean(&one.amounts))),
        );
        let totals = on_mounts(&sample.operations);
        let totals = totals.into_iter().map(|(mount, sum)| ((mount.to_owned(), TOTAL), mean(&sum.amounts)));
        let parts = sample
            .phases
            .iter()
            .flatten()
            .flat_map(|one| one.means.iter().enumerate().map(|(phase, mean)| ((one.mount.clone(), phase), *mean)));
        self.phases.add(parts.chain(totals));
        self.sample = Some(sample);
        self.keep_cursors();
    }

    /// The pane that keys are for.
    pub fn focus(&self) -> Pane {
        PANES.get(self.focus).copied().unwrap_or(Pane::Mounts)
    }

    /// How a pane is looked at.
    pub fn view(&self, pane: Pane) -> PaneView {
        let view = PANES.iter().position(|one| *one == pane).and_then(|index| self.views.get(index));
        view.copied().unwrap_or(PaneView { cursor: 0, sort: 0, inverted: false })
    }

    /// What a pane shows, filtered and in order.
    pub fn rows(&self, pane: Pane) -> KnownOrReason<Vec<PaneRow>> {
        let mut rows = pane.rows(self)?;
        rows.retain(|row| self.filter.is_empty() || row.has(&self.filter));
        let PaneView { sort, inverted, .. } = self.view(pane);
        rows.sort_by(|one, other| match (one.cells.get(sort), other.cells.get(sort)) {
            (Some(one), Some(other)) if inverted => other.compare(one),
            (Some(one), Some(other)) => one.compare(other),
            _ => std::cmp::Ordering::Equal,
        });
        Ok(rows)
    }

    /// Handles a key.
    pub fn key(&mut self, key: TopKey) -> KeyOutcome {
        match (key, self.mode) {
            (TopKey::Interrupt | TopKey::Function(10), _) => return KeyOutcome::Quit,
            (TopKey::Suspend, _) => return KeyOutcome::Suspend,
            (TopKey::Redraw, _) => return KeyOutcome::Redraw,
            (_, KeyMode::Normal) => return self.command(key),
            (_, KeyMode::Help) => self.mode = KeyMode::Normal,
            (_, KeyMode::Search | KeyMode::Filter) => self.typed(key),
        }
        KeyOutcome::Nothing
    }

    fn command(&mut self, key: TopKey) -> KeyOutcome {
        match key {
            TopKey::Character('q' | 'Q') => return KeyOutcome::Quit,
            TopKey::Function(1) | TopKey::Character('h' | '?') => self.mode = KeyMode::Help,
            TopKey::Function(3) | TopKey::Character('/') => {
                self.search.clear();
                self.mode = KeyMode::Search;
            }
            TopKey::Function(4) | TopKey::Character('\\') => self.mode = KeyMode::Filter,
            TopKey::Function(6) | TopKey::Character('>') => self.sort_by_next(1),
            TopKey::Character('<') => self.sort_by_next(self.focus().headings().len() - 1),
            TopKey::Character('I') => self.change(|view| view.inverted = !view.inverted),
            TopKey::Character(' ' | 'p') => self.paused = !self.paused,
            TopKey::Character('+') => self.step_interval(true),
            TopKey::Character('-') => self.step_interval(false),
            TopKey::Tab => self.focus = (self.focus + 1) % PANES.len(),
            TopKey::BackTab => self.focus = (self.focus + PANES.len() - 1) % PANES.len(),
            TopKey::Escape => self.filter.clear(),
            TopKey::Up | TopKey::Down | TopKey::PageUp | TopKey::PageDown | TopKey::Home | TopKey::End => {
                self.move_cursor(key)
            }
            _ => {}
        }
        self.keep_cursors();
        KeyOutcome::Nothing
    }

    /// Handles a key while a text is being typed.
    fn typed(&mut self, key: TopKey) {
        let is_search = self.mode == KeyMode::Search;
        let text = if is_search { &mut self.search } else { &mut self.filter };
        match key {
            TopKey::Character(character) if text.chars().count() < LONGEST_TEXT => {
                text.push(character);
                if is_search {
                    self.find(0);
                }
            }
            TopKey::Backspace => drop(text.pop()),
            TopKey::Enter | TopKey::Function(3) if is_search => self.find(1),
            TopKey::Enter => self.mode = KeyMode::Normal,
            TopKey::Escape => {
                text.clear();
                self.mode = KeyMode::Normal;
            }
            _ => {}
        }
        self.keep_cursors();
    }

    /// Moves the cursor to the next row with the text, from `skip` rows after the cursor on, wrapping around.
    fn find(&mut self, skip: usize) {
        let rows = self.rows(self.focus()).unwrap_or_default();
        let from = self.view(self.focus()).cursor + skip;
        let order = (0..rows.len()).map(|index| (from + index) % rows.len().max(1));
        let found = order.into_iter().find(|index| rows.get(*index).is_some_and(|row| row.has(&self.search)));
        if let Some(found) = found {
            self.change(|view| view.cursor = found);
        }
    }

    fn move_cursor(&mut self, key: TopKey) {
        let page = usize::from(self.size.1 / 2).max(1);
        self.change(|view| {
            view.cursor = match key {
                TopKey::Up => view.cursor.saturating_sub(1),
                TopKey::Down => view.cursor.saturating_add(1),
                TopKey::PageUp => view.cursor.saturating_sub(page),
                TopKey::PageDown => view.cursor.saturating_add(page),
                TopKey::Home => 0,
                _ => usize::MAX,
            }
        });
    }

    fn sort_by_next(&mut self, step: usize) {
        let pane = self.focus();
        let columns = pane.headings().len();
        self.change(|view| {
            view.sort = (view.sort + step) % columns;
            if !pane.can_sort_by(view.sort) {
                view.sort = (view.sort + step) % columns;
            }
        });
    }

    fn step_interval(&mut self, longer: bool) {
        let now = u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX);
        let next = if longer {
            INTERVALS.into_iter().find(|interval| *interval > now)
        } else {
            INTERVALS.into_iter().rev().find(|interval| *interval < now)
        };
        self.interval = next.map_or(self.interval, Duration::from_millis);
    }

    fn change(&mut self, how: impl FnOnce(&mut PaneView)) {
        if let Some(view) = self.views.get_mut(self.focus) {
            how(view);
        }
    }

    /// Moves cursors back into range, since rows may have gone.
    fn keep_cursors(&mut self) {
        let counts = PANES.map(|pane| self.rows(pane).map_or(0, |rows| rows.len()));
        for (view, count) in self.views.iter_mut().zip(counts) {
            view.cursor = view.cursor.min(count.saturating_sub(1));
        }
    }
}
