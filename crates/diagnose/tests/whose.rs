//! Faults that look like the path's, and of which the kernel knows who made them: programs of this host, firewalls, neighbours, routes.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{
    MS,
    connections::{
        ADMIN, ADMIN_PROHIBITED, HOST_UNREACHABLE, LEARNED, OWN_PROHIBITED, OWN_UNREACHABLE, RECEIVED,
        SERVER_PROHIBITED, answers, happening, held, reads, unanswered, verdict,
    },
    judge, smb,
};
use model::{Cause, Connection, Detail, Event, Layer, text::Text};

#[test]
fn segments_sent_again_while_this_host_holds_others_are_its_own() {
    let (fast, _) = reads();
    let again: Vec<_> = (0..6).map(|n| happening("TCP_RETRANSMIT", 1200.0 + 400.0 * f64::from(n), 0)).collect();
    let silence: Vec<_> = (0..3).map(|n| happening("TCP_NO_ANSWER", 1400.0 + 400.0 * f64::from(n), 0)).collect();
    let received = |left, held_ms| Event { status: RECEIVED, ..held(left, held_ms) };
    let inspected: Vec<_> = (0..6).map(|n| received(1310 + 400 * n, 350)).collect();
    let own = verdict(&again, &[&fast[..], &inspected].concat());
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnQueue)), "{own:?}");
    assert!(own.because[0].contains("a program that inspects them (NFQUEUE)"), "{own:?}");
    let long = [&answers(0, 20, 700)[..], &[received(2800, 1700)], &answers(2900, 20, 700)].concat();
    let own = verdict(&silence, &long);
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnQueue)), "not a path that was cut: {own:?}");
    let shortly: Vec<_> = (0..6).map(|n| received(1210 + 400 * n, 90)).collect();
    let sent: Vec<_> = (0..6).map(|n| held(1310 + 400 * n, 350)).collect();
    assert_ne!(verdict(&again, &sent).layer, Layer::Client, "a cable that is out makes the interface hold segments");
    assert_ne!(verdict(&again, &shortly).layer, Layer::Client, "TCP waits for longer before it sends again");
    assert_ne!(verdict(&again, &inspected[..2]).layer, Layer::Client, "most were lost elsewhere");
}

#[test]
fn a_longer_round_trip_is_no_longer_path_where_this_host_holds_what_it_receives() {
    let mut scene = common::faults::longer_path(28.0);
    assert_eq!(scene.verdict().cause, Some(Cause::LongerPath), "{:?}", scene.verdict());
    let held: Vec<_> = scene
        .slow
        .iter()
        .map(|slow| Event { status: RECEIVED, start: slow.end() - 22 * MS, ..happening("TCP_HELD", 0.0, 20) })
        .collect();
    scene.around.extend(held);
    let own = scene.verdict();
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnQueue)), "{own:?}");
}

/// Three ICMP errors that a host sends during the silence.
fn errors(status: u32, sender: &str) -> Vec<Event> {
    let peer = Text::new(format!("10.2.0.1:445 from port 900 by {sender}").as_bytes());
    let detail = Detail::Connection(Connection { peer, times: 0, ..Connection::default() });
    (0..3)
        .map(|n| Event {
            status,
            detail: detail.clone(),
            ..happening("TCP_UNREACHABLE", 1010.0 + 200.0 * f64::from(n), 0)
        })
        .collect()
}

#[test]
fn who_says_that_segments_did_not_get_through_knows_more_than_a_silence() {
    let around = |errors: Vec<Event>| [answers(0, 20, 700), errors, answers(2000, 20, 700)].concat();
    let judged = |status, sender| verdict(&unanswered(), &around(errors(status, sender)));
    let server = judged(SERVER_PROHIBITED, "10.2.0.1");
    assert_eq!((server.layer, server.cause), (Layer::Server, Some(Cause::Refused)), "{server:?}");
    assert!(server.because[0].contains("sent by the server's own address"), "{server:?}");
    let path = judged(ADMIN_PROHIBITED, "10.1.0.254");
    assert_eq!((path.layer, path.cause), (Layer::Network, Some(Cause::NoPath)), "{path:?}");
    assert!(path.because[0].contains("(ADMIN_PROHIBITED), sent by 10.1.0.254: a firewall on the path"), "{path:?}");
    let last_link = judged(HOST_UNREACHABLE, "10.1.0.254");
    assert_eq!(last_link.layer, Layer::Unknown, "a dead host and a cut last link look the same: {last_link:?}");
    assert!(last_link.because[0].contains("sent by 10.1.0.254"), "{last_link:?}");
    let own = judged(OWN_PROHIBITED, "10.1.0.1");
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnDrops)), "{own:?}");
    let without = verdict(&unanswered(), &around(Vec::new()));
    assert_eq!(
        judged(OWN_UNREACHABLE, "10.1.0.1"),
        without,
        "that the next hop does not answer says no more than the silence"
    );
    let later = errors(SERVER_PROHIBITED, "10.2.0.1")
        .into_iter()
        .map(|event| Event { start: event.start + 3000 * MS, ..event });
    assert_eq!(verdict(&unanswered(), &around(later.collect())), without, "errors from after the silence");
}

#[test]
fn operations_that_wait_while_the_servers_host_refuses_are_the_servers() {
    let (fast, slow) = reads();
    let refused = [fast, slow.clone(), errors(SERVER_PROHIBITED, "10.2.0.1")].concat();
    let judged = common::verdict(&slow, &refused);
    assert_eq!((judged.layer, judged.cause), (Layer::Server, Some(Cause::Refused)), "{judged:?}");
    let stalled = Event { duration: 6000 * MS, ..smb("SMB2_READ", 990.0, [0.0; 3]) };
    let judged = judge("stalled", std::slice::from_ref(&stalled), &errors(ADMIN_PROHIBITED, "10.1.0.254"));
    assert_eq!((judged.layer, judged.cause), (Layer::Network, Some(Cause::NoPath)), "{judged:?}");
    let mut nameless = errors(ADMIN_PROHIBITED, "");
    nameless.iter_mut().for_each(|event| event.detail = Detail::None);
    let judged = judge("stalled", &[stalled], &nameless);
    assert!(
        judged.because.iter().any(|why| why.contains("sent by another host")),
        "the recorder has no texts: {judged:?}"
    );
}

#[test]
fn a_next_hop_with_another_link_layer_address_is_whose_who_changed_it() {
    let detail = Detail::Connection(Connection {
        peer: Text::new(b"10.2.0.1:445 from port 900 via 10.1.0.254"),
        times: 0,
        ..Connection::default()
    });
    let changed = |status| Event { status, detail: detail.clone(), ..happening("NEIGHBOUR_CHANGED", 960.0, 40) };
    let around =
        |status| [&answers(0, 20, 700)[..], &unanswered(), &[changed(status)], &answers(2000, 20, 700)].concat();
    let by_hand = verdict(&unanswered(), &around(ADMIN));
    assert_eq!((by_hand.layer, by_hand.cause), (Layer::Client, Some(Cause::OwnRoute)), "{by_hand:?}");
    assert!(by_hand.because[0].contains("(10.1.0.254) changed: somebody on this host set it"), "{by_hand:?}");
    let learned = verdict(&unanswered(), &around(LEARNED));
    assert_eq!((learned.layer, learned.cause), (Layer::Network, Some(Cause::NoPath)), "{learned:?}");
    assert!(learned.because[0].contains("the network announced it"), "{learned:?}");
    let (fast, slow) = reads();
    let of_slow = common::verdict(&slow, &[&fast[..], &slow, &[changed(ADMIN)], &unanswered()].concat());
    assert_eq!(of_slow.cause, Some(Cause::OwnRoute), "{of_slow:?}");
    let answered = [&around(ADMIN)[..], &answers(970, 1, 700)].concat();
    assert_ne!(verdict(&unanswered(), &answered).layer, Layer::Client, "the new address answers");
}

#[test]
fn operations_that_are_slow_since_the_route_changed_are_this_hosts() {
    let longer = common::faults::longer_path(28.0);
    let detail = Detail::Connection(Connection {
        peer: Text::new(b"10.2.0.1:445 from port 900 through vpn0"),
        times: 0,
        ..Connection::default()
    });
    let judged = |at_ms: f64, more: &[Event]| {
        let mut scene = longer.clone();
        scene.around.push(Event { detail: detail.clone(), ..happening("TCP_REROUTED", at_ms, 0) });
        scene.around.extend_from_slice(more);
        scene.verdict()
    };
    let own = judged(995.0, &[]);
    assert_eq!((own.layer, own.cause), (Layer::Client, Some(Cause::OwnRoute)), "{own:?}");
    assert!(own.because.iter().any(|why| why.contains("left through vpn0")), "{own:?}");
    let without = longer.verdict();
    assert_eq!(without.cause, Some(Cause::LongerPath), "{without:?}");
    assert_eq!(judged(500.0, &[]), without, "operations were fast by the new route, too");
    assert_eq!(judged(1400.0, &[]), without, "operations were slow before");
    assert_eq!(judged(995.0, &[happening("TCP_REROUTED", 1400.0, 0)]), without, "they are slow by the old route, too");
    let another = Event { detail: detail.clone(), ..happening("TCP_REROUTED", 1100.0, 0) };
    assert_eq!(judged(995.0, &[another]).cause, Some(Cause::OwnRoute), "another connection follows");
    let mut slow_server = common::faults::slow_server(100.0, 4096);
    let named = slow_server.verdict().layer;
    slow_server.around.push(happening("TCP_REROUTED", 995.0, 0));
    assert_eq!(slow_server.verdict().layer, named, "round trips are as short as before");
}
