//! The state of the connections with the server, as measured when slow operations ended.

use maud::{Markup, html};
use model::EventLine;

use super::units::{grouped, of_ms};

/// The most connections that are shown.
const MOST: usize = 8;

/// The least and the greatest of the values added.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct ValueRange(Option<(f64, f64)>);

impl ValueRange {
    fn add(&mut self, value: Option<f64>) {
        let Some(value) = value.filter(|value| value.is_finite()) else { return };
        let (least, most) = self.0.unwrap_or((value, value));
        self.0 = Some((least.min(value), most.max(value)));
    }

    fn shown(self, figure: fn(f64) -> String) -> String {
        match self.0.map(|(least, most)| (figure(least), figure(most))) {
            None => "–".into(),
            Some((least, most)) if least == most => most,
            Some((least, most)) => format!("{least} to {most}"),
        }
    }
}

#[derive(Debug, Default)]
pub struct SlowConnection {
    number: u64,
    pub server: String,
    operations: u64,
    round_trip: ValueRange,
    least_round_trip: ValueRange,
    sent_again: ValueRange,
    out_of_order: ValueRange,
    own_queue: ValueRange,
    unread: ValueRange,
    window_limited: ValueRange,
}

/// The connections of slow operations, at most [`MOST`].
#[derive(Debug, Default)]
pub struct SlowConnections(pub Vec<SlowConnection>);

impl SlowConnections {
    /// Adds an operation's figures of its connection, if it has any.
    pub fn add(&mut self, line: &EventLine<'_>) {
        if line.srtt_ms.is_none() && line.rtt_ms.is_none() && line.retransmits.is_none() {
            return;
        }
        let is_same = |known: &&mut SlowConnection| known.number == line.connection && known.server == line.server;
        let connection = match self.0.iter_mut().position(|known| is_same(&&mut *known)) {
            Some(at) => self.0.get_mut(at),
            None if self.0.len() < MOST => {
                let (number, server) = (line.connection, line.server.clone().into_owned());
                self.0.push(SlowConnection { number, server, ..SlowConnection::default() });
                self.0.last_mut()
            }
            None => None,
        };
        let Some(connection) = connection else { return };
        connection.operations += 1;
        connection.round_trip.add(line.rtt_ms.or(line.srtt_ms));
        connection.least_round_trip.add(line.min_rtt_ms);
        connection.sent_again.add(line.retransmits.map(f64::from));
        connection.out_of_order.add(line.out_of_order.map(f64::from));
        connection.own_queue.add(line.own_queue.map(f64::from));
        connection.unread.add(line.unread_ms);
        connection.window_limited.add(line.window_limited_ms.map(f64::from));
    }

    /// The table; empty if no operation had figures of its connection.
    pub fn markup(&self) -> Markup {
        if self.0.is_empty() {
            return Markup::default();
        }
        let count = |figure: f64| grouped(figure as u64);
        html! {
            h2 { "The connection with the server" }
            div.wide { table {
                tr {
                    th { "connection" } th { "server" } th.n { "slow operations" } th.n { "round trip" } th.n { "shortest round trip" }
                    th.n { "segments retransmitted" } th.n { "out of order" } th.n { "packets in own queue" } th.n { "answer unread in the socket" }
                    th.n { "limited by window" }
                }
                @for of in &self.0 {
                    tr {
                        td { @if of.number > 0 { (of.number) } @else { "–" } } td { (of.server) } td.n { (grouped(of.operations)) }
                        td.n { (of.round_trip.shown(of_ms)) } td.n { (of.least_round_trip.shown(of_ms)) }
                        td.n { (of.sent_again.shown(count)) } td.n { (of.out_of_order.shown(count)) }
                        td.n { (of.own_queue.shown(count)) } td.n { (of.unread.shown(of_ms)) } td.n { (of.window_limited.shown(of_ms)) }
                    }
                }
            } }
            p.muted {
                "Each cell has the least and the greatest value at the end of a slow operation. Retransmitted segments, segments out of order and the time limited by the server's window are totals since the connection was made."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_a_row_with_its_extremes() {
        let mut connections = SlowConnections::default();
        let line = |rtt, retransmits| EventLine {
            connection: 7,
            server: "a-server".into(),
            rtt_ms: Some(rtt),
            retransmits: Some(retransmits),
            ..EventLine::default()
        };
        [line(0.5, 3), line(41.0, 9), EventLine::default()].iter().for_each(|line| connections.add(line));
        let page = connections.markup().into_string();
        for cell in ["a-server", ">2<", "500 us to 41 ms", "3 to 9", "–"] {
            assert!(page.contains(cell), "{cell}: {page}");
        }
    }

    #[test]
    fn without_connections_there_is_no_table() {
        assert_eq!(SlowConnections::default().markup().into_string(), "");
    }
}
