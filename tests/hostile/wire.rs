//! A bad network, and what can be read on it or in a log.

use super::Case;
use super::process::{Process, ask_all, slowest};
use super::rank::PATTERN;
use super::relay::{Relay, Trouble};
use super::stranger::Id;
use super::{report, times};

pub const CASES: [Case; 4] = [
    ("over_a_lossy_doubling_reordering_corrupting_network_results_are_exact", bad_network),
    ("a_slow_line_gets_all_that_was_sent_by_a_rank_that_left", slow_line),
    ("neither_payload_nor_secret_is_seen_on_the_wire", wire_shows_nothing),
    ("a_trace_log_never_shows_a_secret", log_shows_nothing),
];

const SECRET: &str = "correct horse battery staple, 32";

/// Two ranks, each reachable through a relay of its own alone; and their id.
pub fn relayed(trouble: Trouble) -> (Vec<Process>, Vec<Relay>, Id) {
    let relays: Vec<_> = [1, 2].map(|seed| Relay::start(trouble, seed)).into();
    let mut ranks = Vec::new();
    let mut id = String::new();
    for relay in &relays {
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
        rank.tell(&format!("join {id} {number} 2"));
    }
    let joined: Vec<_> = ranks.iter_mut().map(|rank| rank.hear().succeeded()).collect();
    report(format!("joined after {:.0} ms", slowest(&joined)));
    (ranks, relays, Id::parse(&id))
}

/// The sender goes on living, or ends, long before the last byte has arrived.
fn slow_line() {
    for then in ["destroy", "exit"] {
        let trouble = Trouble { bytes_per_ms: 1000, ..Trouble::default() };
        let (mut ranks, relays, _) = relayed(trouble);
        ranks[0].tell(&format!("broadcast 3500000 0\n{then}"));
        let sent = ranks[0].hear().succeeded();
        let arrived = ranks[1].ask("broadcast 3500000 0").succeeded();
        assert_eq!(arrived.text, "exact");
        report(format!("{then}: sent after {:.0} ms, there after {:.0} ms", sent.ms, arrived.ms));
        drop(relays);
    }
}

fn bad_network() {
    let trouble = Trouble { lost: 5, doubled: 5, late: 5, changed: 1, bytes_per_ms: 0 };
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

fn wire_shows_nothing() {
    let (mut ranks, relays, id) = relayed(Trouble::default());
    for order in ["broadcast 1000000 0", "broadcast 64 1"] {
        for answer in ask_all(&mut ranks, order) {
            assert_eq!(answer.succeeded().text, "exact");
        }
    }
    ranks.into_iter().for_each(|rank| assert!(rank.end().success()));
    let wire: Vec<u8> = relays.iter().flat_map(Relay::captured).collect();
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
        ("NEXAR_INIT_TIMEOUT_MS", "5000"),
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

/// Of a multiple of three bytes.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letters = bytes.chunks(3).flat_map(|three| {
        let bits = three.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        [18, 12, 6, 0].map(|shift| LETTERS[bits >> shift & 63] as char)
    });
    letters.collect()
}
