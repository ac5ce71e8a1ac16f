//! A bad network, and what can be read on it or in a log.

use std::time::{Duration, Instant};

use super::Case;
use super::process::{Process, ask_all, slowest};
use super::rank::PATTERN;
use super::relay::{Dice, Relay, Trouble};
use super::stranger::Id;
use super::{report, row, seed, times};

pub const CASES: [Case; 7] = [
    ("over_a_lossy_doubling_reordering_corrupting_network_results_are_exact", bad_network),
    ("a_network_that_does_anything_to_datagrams_changes_no_result", network),
    ("a_second_of_a_black_hole_is_survived", black_hole),
    ("a_network_that_takes_its_time_is_waited_for", delay),
    ("a_slow_line_gets_all_that_was_sent_by_a_rank_that_left", slow_line),
    ("neither_payload_nor_secret_is_seen_on_the_wire", wire_shows_nothing),
    ("a_trace_log_never_shows_a_secret", log_shows_nothing),
];

const SECRET: &str = "correct horse battery staple, 32";

/// Two ranks, each behind a relay of its own that makes the same trouble; and their id.
pub fn relayed(trouble: Trouble) -> (Vec<Process>, Vec<Relay>, Id) {
    let relays: Vec<_> = [1, 2].map(|seed| Relay::start(trouble, seed)).into();
    let (ranks, id) = behind(&relays);
    (ranks, relays, id)
}

/// Ranks, each reachable through a relay of its own alone; and their id.
pub fn behind(relays: &[Relay]) -> (Vec<Process>, Id) {
    let mut ranks = Vec::new();
    let mut id = String::new();
    for relay in relays {
        let address = relay.address.to_string();
        let environment = [("NEXAR_ADVERTISE_ADDR", &*address), ("NEXAR_COMM_SECRET", SECRET)];
        let mut rank = Process::start(&environment);
        // Making an id opens the socket; the first rank's is used.
        let made = rank.id();
        if id.is_empty() {
            id = made;
        }
        relay.lead_to(rank.address());
        ranks.push(rank);
    }
    for (number, rank) in ranks.iter_mut().enumerate() {
        rank.tell(&format!("join {id} {number} {}", relays.len()));
    }
    let joined: Vec<_> = ranks.iter_mut().map(|rank| rank.hear().succeeded()).collect();
    report(format!("joined after {:.0} ms", slowest(&joined)));
    (ranks, Id::parse(&id))
}

/// The sender goes on living, or ends, long before the last byte has arrived.
fn slow_line() {
    for then in ["destroy", "exit"] {
        let trouble = Trouble { bytes_per_ms: 1000, ..Trouble::default() };
        let (mut ranks, _relays, _) = relayed(trouble);
        ranks[0].tell(&format!("broadcast 3500000 0\n{then}"));
        let sent = ranks[0].hear().succeeded();
        let arrived = ranks[1].ask("broadcast 3500000 0").succeeded();
        assert_eq!(arrived.text, "exact");
        report(format!("{then}: sent after {:.0} ms, there after {:.0} ms", sent.ms, arrived.ms));
    }
}

fn bad_network() {
    let trouble = Trouble { lost: 5, doubled: 5, late: 5, changed: 1, ..Trouble::default() };
    let (mut ranks, relays, _) = relayed(trouble);
    for _ in 0..times(3, 20) {
        let answers = ask_all(&mut ranks, "allreduce 262147");
        report(format!("1 MB all-reduce in {:.0} ms", slowest(&answers)));
        for answer in answers {
            assert_eq!(answer.succeeded().text, "exact");
        }
    }
    for answer in ask_all(&mut ranks, "broadcast 1000000 1") {
        assert_eq!(answer.succeeded().text, "exact");
    }
    let datagrams: usize = relays.iter().map(Relay::datagrams).sum();
    report(format!("{datagrams} datagrams; 5 % lost, 5 % doubled, 5 % late, 1 % changed"));
    assert!(datagrams > 500, "the relays were not on the way");
    ranks.into_iter().for_each(|rank| assert!(rank.end().success()));
}

/// What is done to datagrams, and how many MB must come through that in a full run. A lossy line
/// takes its time: most bytes come over others.
const TROUBLES: [(&str, Trouble, usize); 6] = [
    ("20 % loss", Trouble { lost: 20, ..NONE }, 50),
    ("5 % loss, 5 % doubled, 10 % reordered, 1 % corrupted", ALL, 150),
    ("1 % loss", Trouble { lost: 1, ..NONE }, 210),
    ("5 % doubled", Trouble { doubled: 5, ..NONE }, 210),
    ("10 % reordered", Trouble { late: 10, ..NONE }, 210),
    ("1 % corrupted", Trouble { changed: 1, ..NONE }, 210),
];
const NONE: Trouble =
    Trouble { lost: 0, doubled: 0, late: 0, changed: 0, bytes_per_ms: 0, delay: Duration::ZERO };
const ALL: Trouble = Trouble { lost: 5, doubled: 5, late: 10, changed: 1, ..NONE };

/// Random collectives of random sizes between three ranks; every byte of every result is compared.
fn network() {
    let seed = seed();
    for (index, (name, trouble, most)) in TROUBLES.into_iter().enumerate() {
        let seed = seed + 10_000 * index as u64;
        let relays = [0, 100, 200].map(|more| Relay::start(trouble, seed + more));
        let (mut ranks, _) = behind(&relays);
        let (mut dice, began) = (Dice::new(seed), Instant::now());
        let (mut received, mut wrong) = (0, Vec::new());
        while received < times(100_000, most * 1_000_000) {
            // From 8 bytes to 4 MiB.
            let bytes = 8 << dice.below(20) as usize;
            let order = match dice.below(4) {
                0 => format!("allreduce {}", bytes / 4),
                1 => format!("broadcast {bytes} {}", dice.below(3)),
                2 => format!("allgather {}", bytes / 2),
                _ => format!("alltoall {}", bytes / 2),
            };
            let answers = ask_all(&mut ranks, &order);
            // Each rank gets so many from others; the root of a broadcast none.
            received += bytes * if order.starts_with("broadcast") { 2 } else { 3 };
            for answer in answers {
                wrong.push(if answer.succeeded().text == "exact" { 0.0 } else { 1.0 });
            }
        }
        let (mb, seconds) = (received / 1_000_000, began.elapsed().as_secs());
        report(format!("{mb} MB received in {seconds} s, seed {seed}"));
        let name = format!("network, {name}, {} MB", times(1, most));
        row(&name, wrong.len(), 0.0, "wrong", &wrong);
        let datagrams: usize = relays.iter().map(Relay::datagrams).sum();
        // None is longer than that.
        assert!(datagrams * 6500 > received, "the relays were not on the way");
        ranks.into_iter().for_each(|rank| assert!(rank.end().success()));
    }
}

fn black_hole() {
    let (mut ranks, relays, _) = relayed(Trouble::default());
    ranks.iter_mut().for_each(|rank| rank.tell("allreduce 10000000"));
    relays.iter().for_each(|relay| relay.change(Trouble { lost: 100, ..NONE }));
    std::thread::sleep(Duration::from_secs(1));
    relays.iter().for_each(|relay| relay.change(NONE));
    let answers: Vec<_> = ranks.iter_mut().map(|rank| rank.hear().succeeded()).collect();
    report(format!("40 MB all-reduce in {:.0} ms", slowest(&answers)));
    assert!(answers.iter().all(|answer| answer.text == "exact"));
    assert!(slowest(&answers) > 900.0, "the relays were not on the way");
}

fn delay() {
    let delay = Duration::from_millis(30);
    let (mut ranks, _relays, _) = relayed(Trouble { delay, ..NONE });
    for order in ["allreduce 2", "allreduce 1000000"] {
        let answers = ask_all(&mut ranks, order);
        report(format!("{order} in {:.0} ms", slowest(&answers)));
        for answer in answers {
            assert!(answer.ms > 25.0, "the relays were not on the way");
            assert_eq!(answer.succeeded().text, "exact");
        }
    }
}

fn wire_shows_nothing() {
    let relays = [(); 2].map(|()| Relay::watching());
    let (mut ranks, id) = behind(&relays);
    for order in ["broadcast 1000000 0", "broadcast 64 1"] {
        for answer in ask_all(&mut ranks, order) {
            assert_eq!(answer.succeeded().text, "exact");
        }
    }
    ranks.into_iter().for_each(|rank| assert!(rank.end().success()));
    let captured = relays.iter().map(Relay::captured);
    let both = captured.flat_map(|captured| [captured.to_target, captured.from_target].concat());
    let wire: Vec<u8> = both.flatten().collect();
    report(format!("{} bytes captured", wire.len()));
    assert!(wire.len() > 1_000_000, "the relays were not on the way");
    for part in [&PATTERN[..16], &PATTERN[24..40], &PATTERN[48..]] {
        assert!(!contains(&wire, part), "the payload is on the wire");
    }
    assert!(!contains(&wire, &SECRET.as_bytes()[..16]), "NEXAR_COMM_SECRET is on the wire");
    assert!(!contains(&wire, &id.secret()[..16]), "the id's secret is on the wire");
}

fn log_shows_nothing() {
    let directory = std::env::temp_dir().join(format!("hostile-log-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("%p").to_str().unwrap().to_owned();
    let environment = [
        ("NEXAR_DEBUG", "TRACE"),
        ("NEXAR_DEBUG_FILE", &*file),
        ("NEXAR_COMM_SECRET", SECRET),
        ("NEXAR_INIT_TIMEOUT_MS", "30000"),
    ];
    let mut ranks: Vec<_> = (0..3).map(|_| Process::start(&environment)).collect();
    let hex = ranks[0].id();
    let changed = format!("{}00{}", &hex[..60], &hex[62..]);
    for (rank, number) in ranks.iter_mut().zip(["0", "1", "2"]) {
        rank.ask(&format!("join {changed} {number} 3")); // an error is logged, too
        rank.tell(&format!("join {hex} {number} 3"));
    }
    ranks.iter_mut().for_each(|rank| drop(rank.hear().succeeded()));
    ask_all(&mut ranks, "allreduce 1000").into_iter().for_each(|answer| drop(answer.succeeded()));
    ranks[0].ask("abort").succeeded();
    ask_all(&mut ranks[1..], "barrier");
    ranks.into_iter().for_each(|rank| assert!(rank.end().success()));

    let files = std::fs::read_dir(&directory).unwrap().map(|file| file.unwrap().path());
    let log: Vec<u8> = files.flat_map(|path| std::fs::read(path).unwrap()).collect();
    std::fs::remove_dir_all(&directory).unwrap();
    report(format!("{} bytes of log", log.len()));
    assert!(contains(&log, b"AllReduce"), "there is no log");
    let id = Id::parse(&hex);
    for secret in [&id.secret()[..], SECRET.as_bytes()] {
        let text = String::from_utf8_lossy(&log).to_lowercase();
        let shown: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let list = format!("{secret:?}");
        assert!(!contains(&log, &secret[..12]), "a secret is in the log");
        assert!(!text.contains(&shown[..16]), "a secret is in the log, in hexadecimal");
        assert!(!text.contains(&list[1..40]), "a secret is in the log, as a list");
        // The first 12 bytes make 16 letters without padding.
        let letters = base64(&secret[..12]);
        assert!(!contains(&log, letters.as_bytes()), "a secret is in the log, in base64");
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window[0] == needle[0] && window == needle)
}

/// Encodes a multiple of three bytes.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letters = bytes.chunks(3).flat_map(|three| {
        let bits = three.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        [18, 12, 6, 0].map(|shift| LETTERS[bits >> shift & 63] as char)
    });
    letters.collect()
}
