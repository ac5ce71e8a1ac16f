//! Results over an impaired network, and the confidentiality of the wire and of the log.

use std::time::{Duration, Instant};

use super::Case;
use super::process::{Process, ask_all, slowest};
use super::rank::PATTERN;
use super::relay::{Dice, Impairments, Relay};
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

/// Starts two ranks, each behind a relay with these impairments. Returns ranks, relays and id.
pub fn relayed(impairments: Impairments) -> (Vec<Process>, Vec<Relay>, Id) {
    let relays: Vec<_> = [1, 2].map(|seed| Relay::start(impairments, seed)).into();
    let (ranks, id) = behind(&relays);
    (ranks, relays, id)
}

/// Starts a rank for each relay, reachable only through it. Returns the ranks and their id.
pub fn behind(relays: &[Relay]) -> (Vec<Process>, Id) {
    let mut ranks = Vec::new();
    let mut id = String::new();
    for relay in relays {
        let address = relay.address.to_string();
        let environment = [("NEXAR_ADVERTISE_ADDR", &*address), ("NEXAR_COMM_SECRET", SECRET)];
        let mut rank = Process::start(&environment);
        // Creating an id opens the socket. The id of the first rank is used.
        let created = rank.id();
        if id.is_empty() {
            id = created;
        }
        relay.set_target(rank.address());
        ranks.push(rank);
    }
    for (number, rank) in ranks.iter_mut().enumerate() {
        rank.tell(&format!("join {id} {number} {}", relays.len()));
    }
    let joined: Vec<_> = ranks.iter_mut().map(|rank| rank.answer().succeeded()).collect();
    report(format!("joined after {:.0} ms", slowest(&joined)));
    (ranks, Id::parse(&id))
}

/// The sender destroys its communicator or exits long before the last byte has arrived.
fn slow_line() {
    for then in ["destroy", "exit"] {
        let impairments = Impairments { bytes_per_ms: 1000, ..Impairments::default() };
        let (mut ranks, _relays, _) = relayed(impairments);
        ranks[0].tell(&format!("broadcast 3500000 0\n{then}"));
        let sent = ranks[0].answer().succeeded();
        let arrived = ranks[1].ask("broadcast 3500000 0").succeeded();
        assert_eq!(arrived.text, "exact");
        report(format!(
            "{then}: sent after {:.0} ms, received after {:.0} ms",
            sent.ms, arrived.ms
        ));
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
    let (mut ranks, relays, _) = relayed(impairments);
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
    assert!(datagrams > 500, "the relays were bypassed");
    ranks.into_iter().for_each(|rank| assert!(rank.end().success()));
}

/// The name of a row, its impairments, and how many MB a full run transfers. Fewer over lossy
/// lines, which are slow.
const IMPAIRMENTS: [(&str, Impairments, usize); 6] = [
    ("20 % loss", Impairments { lost: 20, ..NONE }, 50),
    ("5 % loss, 5 % doubled, 10 % reordered, 1 % corrupted", ALL, 150),
    ("1 % loss", Impairments { lost: 1, ..NONE }, 210),
    ("5 % doubled", Impairments { duplicated: 5, ..NONE }, 210),
    ("10 % reordered", Impairments { reordered: 10, ..NONE }, 210),
    ("1 % corrupted", Impairments { corrupted: 1, ..NONE }, 210),
];
const NONE: Impairments = Impairments {
    lost: 0,
    duplicated: 0,
    reordered: 0,
    corrupted: 0,
    bytes_per_ms: 0,
    delay: Duration::ZERO,
};
const ALL: Impairments =
    Impairments { lost: 5, duplicated: 5, reordered: 10, corrupted: 1, ..NONE };

/// Random collectives of random sizes between three ranks; every byte of every result is compared.
fn network() {
    let seed = seed();
    for (index, (name, impairments, most)) in IMPAIRMENTS.into_iter().enumerate() {
        let seed = seed + 10_000 * index as u64;
        let relays = [0, 100, 200].map(|more| Relay::start(impairments, seed + more));
        let (mut ranks, _) = behind(&relays);
        let (mut dice, began) = (Dice::new(seed), Instant::now());
        let (mut received, mut wrong) = (0, Vec::new());
        while received < times(100_000, most * 1_000_000) {
            // From 8 bytes to 4 MiB.
            let bytes = 8 << dice.below(20) as usize;
            let request = match dice.below(4) {
                0 => format!("allreduce {}", bytes / 4),
                1 => format!("broadcast {bytes} {}", dice.below(3)),
                2 => format!("allgather {}", bytes / 2),
                _ => format!("alltoall {}", bytes / 2),
            };
            let answers = ask_all(&mut ranks, &request);
            // Bytes that each of three ranks receives; the root of a broadcast receives none.
            received += bytes * if request.starts_with("broadcast") { 2 } else { 3 };
            for answer in answers {
                wrong.push(if answer.succeeded().text == "exact" { 0.0 } else { 1.0 });
            }
        }
        let (mb, seconds) = (received / 1_000_000, began.elapsed().as_secs());
        report(format!("{mb} MB received in {seconds} s, seed {seed}"));
        let name = format!("network, {name}, {} MB", times(1, most));
        row(&name, wrong.len(), 0.0, "wrong", &wrong);
        let datagrams: usize = relays.iter().map(Relay::datagrams).sum();
        // No datagram is longer.
        assert!(datagrams * 6500 > received, "the relays were bypassed");
        ranks.into_iter().for_each(|rank| assert!(rank.end().success()));
    }
}

fn black_hole() {
    let (mut ranks, relays, _) = relayed(Impairments::default());
    ranks.iter_mut().for_each(|rank| rank.tell("allreduce 10000000"));
    relays.iter().for_each(|relay| relay.set_impairments(Impairments { lost: 100, ..NONE }));
    std::thread::sleep(Duration::from_secs(1));
    relays.iter().for_each(|relay| relay.set_impairments(NONE));
    let answers: Vec<_> = ranks.iter_mut().map(|rank| rank.answer().succeeded()).collect();
    report(format!("40 MB all-reduce in {:.0} ms", slowest(&answers)));
    assert!(answers.iter().all(|answer| answer.text == "exact"));
    assert!(slowest(&answers) > 900.0, "the relays were bypassed");
}

fn delay() {
    let delay = Duration::from_millis(30);
    let (mut ranks, _relays, _) = relayed(Impairments { delay, ..NONE });
    for request in ["allreduce 2", "allreduce 1000000"] {
        let answers = ask_all(&mut ranks, request);
        report(format!("{request} in {:.0} ms", slowest(&answers)));
        for answer in answers {
            assert!(answer.ms > 25.0, "the relays were bypassed");
            assert_eq!(answer.succeeded().text, "exact");
        }
    }
}

fn wire_shows_nothing() {
    let relays = [(); 2].map(|()| Relay::capturing());
    let (mut ranks, id) = behind(&relays);
    for request in ["broadcast 1000000 0", "broadcast 64 1"] {
        for answer in ask_all(&mut ranks, request) {
            assert_eq!(answer.succeeded().text, "exact");
        }
    }
    ranks.into_iter().for_each(|rank| assert!(rank.end().success()));
    let captured = relays.iter().map(Relay::captured);
    let both = captured.flat_map(|captured| [captured.to_target, captured.from_target].concat());
    let wire: Vec<u8> = both.flatten().collect();
    report(format!("{} bytes captured", wire.len()));
    assert!(wire.len() > 1_000_000, "the relays were bypassed");
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
        rank.ask(&format!("join {changed} {number} 3")); // an error is logged as well
        rank.tell(&format!("join {hex} {number} 3"));
    }
    ranks.iter_mut().for_each(|rank| drop(rank.answer().succeeded()));
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
