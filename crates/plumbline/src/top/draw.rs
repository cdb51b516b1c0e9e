//! Draws a state: on a terminal, or as plain text.

use std::io::{self, Write};

use diagnose::span;
use ratatui::{
    Frame,
    layout::Rect,
    style::{Color, Modifier, Style},
    text::{Line, Span},
};

use super::{
    history::sparkline,
    keys::{HELP, HINTS},
    layout::share,
    model::OwnCost,
    panes::{BY_IMPORTANCE, Mood, PANES, Pane, PaneCell, PaneRow},
    state::{KeyMode, TopState},
};
use crate::{
    io::rows::size,
    view::table::{Table, wrap},
};

/// The length of a trend if the width of the line does not limit it.
const LOOKS_AS_TEXT: usize = 60;

/// Draws everything. `colours`: whether to use colours; everything else is independent of it.
pub fn draw(frame: &mut Frame<'_>, state: &TopState, colours: bool) {
    let area = frame.area();
    let width = usize::from(area.width);
    let mut lines = head(state, colours);
    let foot = 1;
    let height = usize::from(area.height).saturating_sub(lines.len() + foot);
    if state.mode == KeyMode::Help {
        lines.extend(help().into_iter().take(height));
    } else {
        lines.extend(body(state, width, height, colours));
    }
    for (line, y) in lines.into_iter().zip(0..area.height.saturating_sub(1)) {
        frame.render_widget(line, Rect { y, height: 1, ..area });
    }
    if area.height > 0 {
        frame.render_widget(bottom(state), Rect { y: area.height - 1, height: 1, ..area });
    }
}

/// Prints the panes as text: each with all its rows, and nothing cut.
pub fn print(out: &mut impl Write, state: &TopState) -> io::Result<()> {
    for line in head(state, false) {
        writeln!(out, "{line}")?;
    }
    for pane in PANES {
        let content = PaneContent::of(state, pane, None);
        writeln!(out, "\n{}", content.title)?;
        content.lines.iter().try_for_each(|(line, _)| writeln!(out, "{}", line.trim_end()))?;
    }
    writeln!(out)
}

/// The head: the time, the source, and Plumbline's own cost.
fn head(state: &TopState, colours: bool) -> Vec<Line<'static>> {
    let time = state.sample.as_ref().and_then(|sample| sample.time.get(11..19)).unwrap_or("--:--:--");
    let every = span(u64::try_from(state.interval.as_nanos()).unwrap_or(u64::MAX));
    // The user's choices come before what is the same in every frame, since a narrow terminal cuts the end.
    let mut line = vec![Span::raw(format!("plumbline top  {time} UTC  "))];
    if state.paused {
        line.push(Span::styled("PAUSED  ", Style::new().add_modifier(Modifier::BOLD)));
    }
    if !state.filter.is_empty() {
        line.push(Span::raw(format!("filter: {}  ", state.filter)));
    }
    line.push(Span::raw(format!("every {every}, {}", state.source)));
    let mut lines = vec![Line::from(line)];
    match (&state.sample, &state.problem) {
        (_, Some(problem)) => lines.push(Line::styled(problem.clone(), mood_style(Mood::Alarm, colours))),
        (Some(sample), None) => lines.push(cost(&sample.cost, colours)),
        (None, None) => lines.push(Line::raw(format!("the first figures come in {every}"))),
    }
    lines
}

fn cost(cost: &OwnCost, colours: bool) -> Line<'static> {
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let mut parts = Vec::new();
    parts.extend(cost.cpu.map(|share| format!("CPU {}", percent(share))));
    parts.extend(cost.kernel.map(|share| format!("in the kernel {}", percent(share))));
    parts.extend(cost.resident.map(|bytes| format!("memory {}", size(bytes))));
    let own = format!("Plumbline itself: {}", if parts.is_empty() { "not known".to_owned() } else { parts.join(", ") });
    let all: u64 = cost.lost.values().fold(0, |sum, count| sum.saturating_add(*count));
    if all == 0 {
        return Line::raw(format!("{own}; events lost 0"));
    }
    let most = cost.lost.iter().max_by_key(|(_, count)| **count);
    let most = most.map(|((probe, cause), _)| format!(", most by {probe}: {cause}")).unwrap_or_default();
    Line::from(vec![
        Span::raw(format!("{own}; ")),
        Span::styled(format!("events lost {all}{most}"), mood_style(Mood::Notable, colours)),
    ])
}

fn body(state: &TopState, width: usize, height: usize, colours: bool) -> Vec<Line<'static>> {
    let contents = PANES.map(|pane| PaneContent::of(state, pane, Some(width)));
    let first = std::iter::once(state.focus());
    let order = first.chain(BY_IMPORTANCE.into_iter().filter(|pane| *pane != state.focus()));
    let order: Vec<usize> = order.filter_map(|pane| PANES.iter().position(|one| *one == pane)).collect();
    let needs: Vec<usize> = contents.iter().map(|content| content.lines.len() + 1).collect();
    let mut lines = Vec::new();
    for ((pane, content), has) in PANES.iter().zip(contents).zip(share(height, &needs, &order)) {
        if has == 0 {
            continue;
        }
        let is_focus = *pane == state.focus();
        lines.push(title(&content.title, width, is_focus));
        let cursor = is_focus.then(|| state.view(*pane).cursor);
        lines.extend(content.shown(width, has - 1, cursor, colours));
    }
    lines
}

/// A horizontal line with a title; a heavy line for the pane in focus.
fn title(text: &str, width: usize, is_focus: bool) -> Line<'static> {
    let (rule, modifier) = if is_focus { ("━", Modifier::BOLD) } else { ("─", Modifier::empty()) };
    let rest = width.saturating_sub(text.chars().count() + 4);
    Line::styled(format!("{} {text} {}", rule.repeat(2), rule.repeat(rest)), Style::new().add_modifier(modifier))
}

/// The content of a pane.
struct PaneContent {
    title: String,
    /// The headings first, if there are rows.
    lines: Vec<(String, Mood)>,
    headings: usize,
}

impl PaneContent {
    fn of(state: &TopState, pane: Pane, room: Option<usize>) -> Self {
        let said = |text: &str| -> Vec<(String, Mood)> {
            let lines = room.map_or_else(|| vec![text.to_owned()], |room| wrap(text, room));
            lines.into_iter().map(|line| (line, Mood::Usual)).collect()
        };
        let rows = match state.rows(pane) {
            Ok(rows) => rows,
            Err(why) => return Self { title: format!("{}: not known", pane.name()), lines: said(&why), headings: 0 },
        };
        let count = rows.len();
        if count == 0 {
            let none = if state.filter.is_empty() { "none" } else { "none with this text" };
            let lines = pane.remark(state).map(said).unwrap_or_default();
            return Self { title: format!("{}: {none}", pane.name()), lines, headings: 0 };
        }
        let view = state.view(pane);
        let by = pane.headings().get(view.sort).map_or("", |heading| heading.name);
        let inverted = if view.inverted { ", inverted" } else { "" };
        let mut lines = table(pane, &rows, room);
        lines.extend(pane.remark(state).into_iter().flat_map(said));
        Self { title: format!("{}: {count}, by {by}{inverted}", pane.name()), lines, headings: 1 }
    }

    /// The headings and rows around the cursor, at most `height` lines; the row of the cursor is marked.
    fn shown(self, width: usize, height: usize, cursor: Option<usize>, colours: bool) -> Vec<Line<'static>> {
        let Self { lines, headings, .. } = self;
        let rows = lines.len().saturating_sub(headings);
        let room = height.saturating_sub(headings);
        let first = cursor.unwrap_or(0).saturating_sub(room / 2).min(rows.saturating_sub(room));
        let mut shown = Vec::new();
        for (index, (text, mood)) in lines.into_iter().enumerate() {
            let row = index.checked_sub(headings);
            if row.is_some_and(|row| row < first) || shown.len() >= height {
                continue;
            }
            let style = match row {
                None => Style::new().add_modifier(Modifier::DIM),
                Some(row) if headings > 0 && cursor == Some(row) => {
                    mood_style(mood, colours).add_modifier(Modifier::REVERSED)
                }
                Some(_) => mood_style(mood, colours),
            };
            shown.push(Line::styled(format!("{text:<width$}"), style));
        }
        shown
    }
}

/// Rows as aligned lines, the headings first.
fn table(pane: Pane, rows: &[PaneRow], room: Option<usize>) -> Vec<(String, Mood)> {
    let longest =
        |column: usize| rows.iter().filter_map(|row| row.cells.get(column)).map(PaneCell::length).max().unwrap_or(0);
    let columns: Vec<_> =
        pane.headings().iter().enumerate().map(|(index, heading)| heading.column(longest(index), room)).collect();
    let table = Table::new(&columns, room);
    let mut lines = Vec::new();
    let mut add = |write: &dyn Fn(&mut Vec<u8>) -> io::Result<()>, mood| {
        let mut line = Vec::new();
        // Writing to memory does not fail.
        if write(&mut line).is_ok() {
            lines.push((String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned(), mood));
        }
    };
    add(&|line| table.header(line), Mood::Usual);
    for row in rows {
        let cells = row.cells.iter().enumerate().map(|(index, cell)| match cell {
            PaneCell::Text(text) | PaneCell::Number(text, _) => text.clone(),
            PaneCell::Trend(course) => {
                let looks = if room.is_some() { table.width_of(index).unwrap_or(0) } else { LOOKS_AS_TEXT };
                sparkline(course.get(course.len().saturating_sub(looks)..).unwrap_or_default())
            }
        });
        let cells: Vec<String> = cells.collect();
        add(&|line| table.row(line, &cells.iter().map(String::as_str).collect::<Vec<_>>()), row.mood);
    }
    lines
}

fn help() -> Vec<Line<'static>> {
    let keys = HELP.iter().map(|(keys, what)| Line::raw(format!("  {keys:<32}  {what}")));
    let heading = [Line::raw(""), Line::raw("Keys; any key goes back. docs/top.md explains the panes."), Line::raw("")];
    heading.into_iter().chain(keys).collect()
}

/// The last line: the text that is being typed, or the keys.
fn bottom(state: &TopState) -> Line<'static> {
    match state.mode {
        KeyMode::Search => Line::raw(format!("Search: {}_", state.search)),
        KeyMode::Filter => Line::raw(format!("Filter: {}_", state.filter)),
        KeyMode::Normal | KeyMode::Help => Line::styled(HINTS, Style::new().add_modifier(Modifier::DIM)),
    }
}

fn mood_style(mood: Mood, colours: bool) -> Style {
    match mood {
        _ if !colours => Style::new(),
        Mood::Usual => Style::new(),
        Mood::Notable => Style::new().fg(Color::Yellow),
        Mood::Alarm => Style::new().fg(Color::Red),
    }
}
