//! What a user sees, and what keys do, at the sizes that terminals have.

use std::time::Duration;

use ::model::{Histogram, Mount};
use model::{OwnCost, PhaseTimes, TopConnection, TopOperations, TopSample};
use ratatui::{Terminal, backend::TestBackend, style::Color};

use super::{
    draw::{draw, print},
    keys::{HINTS, TopKey},
    model,
    panes::Pane,
    state::{KeyOutcome, TopState},
};
use crate::view::incident;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 50)];
const LONG: &str = "/srv/projects/a-department-with-a-long-name/2026/november/share-of-the-whole-team";

fn finished(mount: &str, layer: &str, operation: &str, count: u64, ns: u64) -> TopOperations {
    let mut amounts = Histogram::default();
    (0..count).for_each(|number| amounts.add(ns, 4096, number % 10 == 9));
    TopOperations { mount: mount.into(), layer: layer.into(), operation: operation.into(), amounts }
}

fn mount(at: &str, source: &str, fstype: &str) -> Mount {
    Mount {
        mountpoint: at.into(),
        source: source.into(),
        server: "fs1".into(),
        fstype: fstype.into(),
        ..Mount::default()
    }
}

fn sample() -> TopSample {
    let event = |ms: f64, operation: &'static str, in_flight| ::model::EventLine {
        operation: operation.into(),
        duration_ms: ms,
        wire_ms: Some(ms - 1.0),
        pid: 4711,
        comm: "nightly-backup".into(),
        mountpoint: "/mnt/share".into(),
        file: "a-database-with-a-very-long-file-name-indeed.sqlite3".into(),
        in_flight,
        ..::model::EventLine::default()
    };
    let connection = |peer: &str, retransmits| TopConnection {
        local: "10.0.0.2:50000".into(),
        peer: peer.into(),
        mount: "/mnt/share".into(),
        state: "ESTABLISHED".into(),
        srtt_us: 325,
        min_rtt_us: 200,
        retransmits,
        retransmits_total: 7,
        unacked: 4096,
    };
    let ms = 1_000_000;
    TopSample {
        time: "2026-11-24T12:34:56.000000Z".into(),
        seconds: 2.0,
        mounts: vec![
            mount("/mnt/share", "//fs1/share", "cifs"),
            mount(LONG, "fs1:/export/projects/a-department-with-a-long-name", "nfs4"),
            mount("/mnt/idle", "//fs1/idle", "cifs"),
        ],
        operations: vec![
            finished("/mnt/share", "syscalls", "write", 200, 2 * ms),
            finished("/mnt/share", "smb", "SMB2_WRITE", 50, 12 * ms),
            finished(LONG, "nfs", "READ", 4_000, ms / 4),
            finished("/mnt/share", "connections", "TCP_RETRANSMIT", 1, ms),
        ],
        phases: Ok(vec![PhaseTimes {
            mount: "/mnt/share".into(),
            means: [Some(ms / 10), None, Some(ms / 3), Some(11 * ms), Some(ms / 50)],
        }]),
        slowest: Ok(vec![event(2_780.0, "SMB2_READ", true), event(31.5, "SMB2_WRITE", false)]),
        incidents: Ok(vec![incident::IncidentRow {
            id: "an-id".into(),
            name: Some("smb_latency".into()),
            observed: Some("37 operations, slowest 2.78 s (SMB2_READ)".into()),
            first_seen: Some("2026-11-24T12:30:00.000000Z".into()),
            last_seen: Some("2026-11-24T12:34:55.000000Z".into()),
            mountpoint: Some("/mnt/share".into()),
            ..incident::IncidentRow::default()
        }]),
        connections: Ok(vec![connection("10.0.0.1:445", 3), connection("[fd00:1:2:3:4:5:6:7]:2049", 0)]),
        cost: OwnCost { cpu: Some(0.0012), resident: Some(9 << 20), kernel: None, lost: Default::default() },
    }
}

fn without_root() -> TopSample {
    let none = "the daemon's metrics have none of it";
    TopSample { phases: Err(none.into()), slowest: Err(none.into()), connections: Err(none.into()), ..sample() }
}

fn state_of(sample: TopSample, size: (u16, u16)) -> TopState {
    let mut state = TopState::new("own probes".into(), Duration::from_secs(2));
    state.size = size;
    state.update(Ok(sample));
    state
}

fn terminal(state: &TopState, colours: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(state.size.0, state.size.1)).unwrap();
    terminal.draw(|frame| draw(frame, state, colours)).unwrap();
    terminal
}

fn screen(state: &TopState) -> Vec<String> {
    let terminal = terminal(state, true);
    let buffer = terminal.backend().buffer();
    let width = usize::from(buffer.area.width);
    let lines =
        buffer.content().chunks(width.max(1)).map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>());
    let lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    if std::env::var_os("SHOW_FRAMES").is_some() {
        eprintln!("{}", lines.join("\n"));
    }
    lines
}

fn line<'a>(screen: &'a [String], text: &str) -> &'a str {
    let found = screen.iter().find(|line| line.contains(text));
    found.unwrap_or_else(|| panic!("{text} is not on the screen:\n{}", screen.join("\n")))
}

fn press(state: &mut TopState, keys: &str) {
    keys.chars().for_each(|key| assert_eq!(state.key(TopKey::Character(key)), KeyOutcome::Nothing));
}

#[test]
fn at_every_size_all_panes_are_named_and_nothing_overflows() {
    for size in SIZES {
        let screen = screen(&state_of(sample(), size));
        assert_eq!(screen.len(), usize::from(size.1));
        for name in [
            "Mounts: 3",
            "Operations: 4",
            "Latency by phase",
            "Slowest operations: 2",
            "Open incidents: 1",
            "Connections: 2",
        ] {
            line(&screen, name);
        }
        assert!(screen.iter().all(|line| line.chars().count() <= usize::from(size.0)));
        assert!(screen[0].starts_with("plumbline top  12:34:56 UTC  every 2 s, own probes"), "{}", screen[0]);
        assert_eq!(screen[1], "Plumbline itself: CPU 0.12 %, memory 9 MiB; events lost 0");
        line(&screen, "smb_latency");
        line(&screen, "in flight");
        assert!(screen.last().unwrap().starts_with(HINTS.get(..60).unwrap()));
    }
}

#[test]
fn figures_have_units_and_long_names_are_cut_in_the_middle() {
    for size in SIZES {
        let screen = screen(&state_of(sample(), size));
        let share = line(&screen, "/mnt/share");
        for figure in ["100/s", "400 KiB/s", "10/s", "2 ms"] {
            assert!(share.contains(figure), "{figure}: {share}");
        }
        let idle = line(&screen, "/mnt/idle");
        assert!(idle.contains(" 0/s ") && idle.contains(" 0 B/s ") && idle.contains(" - "), "{idle}");
    }
    let narrow = screen(&state_of(sample(), (80, 24)));
    let cut = line(&narrow, "-team");
    assert!(cut.starts_with("/srv/") && cut.contains('…'), "{cut}");
    assert!(line(&screen(&state_of(sample(), (200, 50))), "nfs4").starts_with("/srv/projects/a-depart"));
}

#[test]
fn a_wide_terminal_shows_every_row_and_the_course_of_each() {
    let mut state = state_of(sample(), (200, 50));
    (0..10).for_each(|_| state.update(Ok(sample())));
    let screen = screen(&state);
    assert!(line(&screen, "SMB2_WRITE").ends_with("███████████"), "{}", line(&screen, "SMB2_WRITE"));
    for phase in ["queue", "network", "server", "deliver", "total"] {
        assert!(line(&screen, &format!(" {phase} ")).contains("/mnt/share"));
    }
    assert!(!screen.iter().any(|line| line.contains(" send ")), "what is not known is not there");
    let slow = line(&screen, "in flight");
    assert!(slow.trim_start().starts_with("2.78 s") && slow.contains("4711 nightly-backup"), "{slow}");
    assert!(line(&screen, "smb_latency").contains("37 operations, slowest 2.78 s (SMB2_READ)"));
    let connection = line(&screen, "10.0.0.1:445");
    assert!(
        connection.contains("325 us") && connection.contains("1.5/s") && connection.contains("4 KiB"),
        "{connection}"
    );
}

#[test]
fn what_metrics_do_not_tell_is_said_to_be_unknown_with_the_reason() {
    let mut state = state_of(without_root(), (80, 24));
    let frame = screen(&state);
    for pane in ["Slowest operations: not known", "Connections: not known"] {
        line(&frame, pane);
    }
    press(&mut state, "");
    (0..3).for_each(|_| assert_eq!(state.key(TopKey::Tab), KeyOutcome::Nothing));
    assert_eq!(state.focus(), Pane::Slowest);
    line(&screen(&state), "the daemon's metrics have none of it");
    line(&screen(&state), " total ");
}

#[test]
fn before_the_first_look_and_after_a_failed_one_the_screen_says_so() {
    let mut state = TopState::new("own probes".into(), Duration::from_secs(2));
    line(&screen(&state), "the first figures come in 2 s");
    state.update(Ok(sample()));
    state.update(Err("no metrics from 127.0.0.1:9437: Connection refused".into()));
    let screen = screen(&state);
    line(&screen, "Connection refused");
    line(&screen, "12:34:56");
}

#[test]
fn rows_are_sorted_by_the_chosen_column_and_the_order_can_be_inverted() {
    let order = |state: &TopState| -> Vec<String> {
        let screen = screen(state);
        let from = screen.iter().position(|line| line.contains("Mounts")).unwrap() + 2;
        screen[from..from + 3].iter().map(|line| line.chars().take(6).collect()).collect()
    };
    let mut state = state_of(sample(), (120, 40));
    assert_eq!(order(&state), ["/srv/p", "/mnt/s", "/mnt/i"], "the busiest first");
    press(&mut state, "I");
    assert_eq!(order(&state), ["/mnt/i", "/mnt/s", "/srv/p"]);
    press(&mut state, "I<<<");
    line(&screen(&state), "Mounts: 3, by MOUNT");
    assert_eq!(order(&state), ["/mnt/i", "/mnt/s", "/srv/p"]);
    state.key(TopKey::Function(6));
    line(&screen(&state), "Mounts: 3, by FSTYPE");
}

#[test]
fn a_search_moves_and_a_filter_hides() {
    let mut state = state_of(sample(), (80, 24));
    press(&mut state, "/idle");
    line(&screen(&state), "Search: idle_");
    assert_eq!(state.view(Pane::Mounts).cursor, 2);
    state.key(TopKey::Escape);
    press(&mut state, "\\SMB2");
    state.key(TopKey::Enter);
    let frame = screen(&state);
    line(&frame, "Operations: 1,");
    line(&frame, "Mounts: none with this text");
    line(&frame, "filter: SMB2");
    state.key(TopKey::Escape);
    line(&screen(&state), "Mounts: 3");
}

#[test]
fn the_cursor_stays_within_the_rows_and_in_sight() {
    let mut many = sample();
    many.mounts = (0..500).map(|number| mount(&format!("/mnt/{number:03}"), "//fs1/x", "cifs")).collect();
    many.operations.clear();
    let mut state = state_of(many, (80, 24));
    for (key, cursor) in [
        (TopKey::End, 499),
        (TopKey::PageUp, 487),
        (TopKey::Home, 0),
        (TopKey::Up, 0),
        (TopKey::PageDown, 12),
        (TopKey::Down, 13),
    ] {
        state.key(key);
        assert_eq!(state.view(Pane::Mounts).cursor, cursor, "{key:?}");
        line(&screen(&state), &format!("/mnt/{cursor:03}"));
    }
    state.key(TopKey::End);
    state.update(Ok(sample()));
    assert_eq!(state.view(Pane::Mounts).cursor, 2, "rows have gone");
}

#[test]
fn a_pause_keeps_the_frame_and_keys_change_the_interval() {
    let mut state = state_of(sample(), (80, 24));
    press(&mut state, " ");
    let mut later = sample();
    later.time = "2026-11-24T23:59:59.000000Z".into();
    state.update(Ok(later.clone()));
    let frame = screen(&state);
    assert!(frame[0].contains("12:34:56 UTC  PAUSED"), "{}", frame[0]);
    press(&mut state, "p+");
    state.update(Ok(later));
    assert!(screen(&state)[0].contains("23:59:59 UTC  every 5 s"), "{}", screen(&state)[0]);
    press(&mut state, "----------");
    assert_eq!(state.interval, Duration::from_millis(500));
}

#[test]
fn help_shows_the_keys_and_any_key_goes_back() {
    for key in [TopKey::Function(1), TopKey::Character('h'), TopKey::Character('?')] {
        let mut state = state_of(sample(), (80, 24));
        state.key(key);
        let frame = screen(&state);
        line(&frame, "F10, q or Ctrl-C");
        line(&frame, "Esc: show all");
        state.key(TopKey::Escape);
        line(&screen(&state), "Mounts: 3");
    }
}

#[test]
fn keys_that_quit_quit_but_a_letter_that_is_typed_does_not() {
    let mut state = state_of(sample(), (80, 24));
    assert_eq!(state.key(TopKey::Character('q')), KeyOutcome::Quit);
    assert_eq!(state.key(TopKey::Function(10)), KeyOutcome::Quit);
    press(&mut state, "/q");
    assert_eq!(state.key(TopKey::Interrupt), KeyOutcome::Quit);
    assert_eq!(state.key(TopKey::Suspend), KeyOutcome::Suspend);
}

#[test]
fn colours_stand_for_trouble_only_and_can_be_left_out() {
    let colours = |state: &TopState, wanted| {
        let terminal = terminal(state, wanted);
        let mut seen: Vec<Color> = terminal.backend().buffer().content().iter().map(|cell| cell.fg).collect();
        seen.dedup();
        seen.sort_by_key(|colour| format!("{colour:?}"));
        seen.dedup();
        seen
    };
    let state = state_of(sample(), (200, 50));
    assert_eq!(colours(&state, true), [Color::Red, Color::Reset, Color::Yellow]);
    assert_eq!(colours(&state, false), [Color::Reset]);
    let mut well = sample();
    (well.incidents, well.slowest, well.connections) = (Ok(vec![]), Ok(vec![]), Ok(vec![]));
    assert_eq!(colours(&state_of(well, (200, 50)), true), [Color::Reset]);
}

#[test]
fn no_size_is_too_small_to_be_drawn() {
    for width in [0, 1, 5, 20, 79] {
        for height in 0..12 {
            screen(&state_of(sample(), (width, height)));
        }
    }
}

#[test]
fn as_text_nothing_is_cut() {
    let mut text = Vec::new();
    print(&mut text, &state_of(without_root(), (80, 24))).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains(LONG) && text.contains("\nMounts: 3, by OPS\n"), "{text}");
    assert!(text.contains("\nConnections: not known\nthe daemon's metrics have none of it\n"), "{text}");
    assert!(!text.contains('\x1b'));
}

#[test]
fn json_has_every_field_and_the_reason_for_each_that_is_null() {
    let json = sample().json("probes");
    assert_eq!((&json["source"], &json["mounts"][0]["operations_per_sec"]), (&"probes".into(), &100.0.into()));
    assert_eq!(json["phases"][0]["send_ms"], serde_json::Value::Null);
    assert_eq!(json["cost"]["cpu_percent"], 0.12);
    assert_eq!(json["unavailable"], serde_json::json!({}));
    let json = without_root().json("metrics");
    assert!(json["slowest"].is_null() && json["unavailable"]["slowest"].is_string());
    assert_eq!(json["incidents"][0]["id"], "an-id");
}
