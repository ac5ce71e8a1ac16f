//! Messages between two ranks when one of them is lost, or over a faulty network.

use nexar::error::Code;

use super::Case;
use super::process::{ask_all, world};
use super::relay::Impairments;
use super::report;
use super::wire::relayed;

pub const CASES: [Case; 5] = [
    ("a_pending_send_or_receive_names_a_killed_peer", killed_before),
    ("a_rank_killed_inside_a_long_message_is_named_by_its_peer", killed_inside),
    ("a_receive_from_an_unconnected_rank_that_has_left_fails", gone_unmet),
    ("messages_over_a_faulty_network_are_exact_and_in_order", bad_network),
    ("a_message_arrives_though_its_sender_has_left", left_after),
];

fn killed_before() {
    let mut ranks = world(3, &[("NEXAR_PEER_TIMEOUT_MS", "5000")]);
    ranks[0].tell("recv 4 1");
    ranks[2].tell("send 1000000 1");
    ranks[1].signal(9);
    for rank in [0, 2] {
        let answer = ranks[rank].answer().failed(Code::RemoteError, &["rank 1 "]);
        report(format!("rank {rank} after {:.0} ms: {}", answer.ms, answer.text));
    }
}

fn killed_inside() {
    for victim in [0, 1] {
        let impairments = Impairments { bytes_per_ms: 4000, ..Impairments::default() };
        let (mut ranks, relays, _) = relayed(impairments);
        // Takes five seconds if nothing fails.
        ranks[0].tell("send 20000000 1");
        ranks[1].tell("recv 20000000 0");
        let before: usize = relays.iter().map(|relay| relay.datagrams()).sum();
        while relays.iter().map(|relay| relay.datagrams()).sum::<usize>() < before + 500 {
            std::thread::yield_now();
        }
        ranks[victim].signal(9);
        let name = format!("rank {victim} ");
        let answer = ranks[1 - victim].answer().failed(Code::RemoteError, &[&name]);
        report(format!("after {:.0} ms: {}", answer.ms, answer.text));
    }
}

/// Among six ranks, 0 and 3 are not neighbours. Rank 3 exits normally, so no rank reports a loss.
fn gone_unmet() {
    for waits_before in [true, false] {
        let mut ranks = world(6, &[("NEXAR_OP_TIMEOUT_MS", "60000")]);
        if waits_before {
            ranks[0].tell("recv 4 3");
        }
        assert!(ranks.remove(3).end().success());
        if !waits_before {
            // Rank 0 has noticed the exit, or notices it while it waits.
            ranks[0].tell("recv 4 3");
        }
        let answer = ranks[0].answer().failed(Code::RemoteError, &["rank 3 "]);
        report(format!("after {:.0} ms: {}", answer.ms, answer.text));
    }
}

fn bad_network() {
    let impairments = Impairments {
        lost: 5,
        duplicated: 5,
        reordered: 5,
        corrupted: 1,
        ..Impairments::default()
    };
    let (mut ranks, _relays, _) = relayed(impairments);
    for length in [0, 1, 5000, 16384, 16385, 1_000_003] {
        ranks[0].tell(&format!("send {length} 1"));
        ranks[1].tell(&format!("recv {length} 0"));
        for rank in &mut ranks {
            assert_eq!(rank.answer().succeeded().text, "exact", "{length}");
        }
    }
    // Unexpected messages of different lengths: one out of order would not fit its receive.
    for length in 0..100 {
        ranks[1].ask(&format!("send {length} 0")).succeeded();
    }
    for length in 0..100 {
        assert_eq!(ranks[0].ask(&format!("recv {length} 1")).succeeded().text, "exact");
    }
    for answer in ask_all(&mut ranks, "barrier") {
        answer.succeeded();
    }
}

fn left_after() {
    for then in ["destroy", "exit"] {
        let impairments = Impairments { bytes_per_ms: 1000, ..Impairments::default() };
        let (mut ranks, relays, _) = relayed(impairments);
        ranks[0].tell(&format!("send 9 1\nsend 3500000 1\n{then}"));
        assert_eq!(ranks[1].ask("recv 9 0").succeeded().text, "exact");
        let arrived = ranks[1].ask("recv 3500000 0").succeeded();
        assert_eq!(arrived.text, "exact");
        ranks[0].answer().succeeded();
        let sent = ranks[0].answer().succeeded();
        report(format!(
            "{then}: sent after {:.0} ms, received after {:.0} ms",
            sent.ms, arrived.ms
        ));
        ranks[1].ask("recv 1 0").failed(Code::RemoteError, &["rank 0 has left the communicator"]);
        drop(relays);
    }
}
