//! A member of the same host that writes what it likes into its own shared segment: the rings and
//! payload slots of its messages, and its counts of what it has consumed.
//!
//! The member joins normally, so that the others map its segment. This file writes every byte of
//! its violation, as `src/transport/shm/segment.rs` draws the memory.

use std::time::Instant;

use nexar::dtype::DataType;
use nexar::error::Code;
use nexar::message::{Envelope, Tag};
use nexar::transport::shm::{payload_slots, peer, ring};
use nexar::transport::{ControlMessage, Location, Protocol};

use super::process::{Answer, Process, world};
use super::relay::Dice;
use super::{Case, report, row, seed, times};

pub const CASES: [Case; 7] = [
    ("a_member_that_garbles_its_ring_is_named_at_once", garbled),
    ("a_member_that_garbles_its_payloads_is_named", payloads),
    ("a_member_that_answers_a_message_as_it_likes_is_named", answers),
    ("a_member_that_counts_wrongly_spoils_only_what_it_receives", counts),
    ("random_bytes_in_the_memory_of_a_member_spoil_no_other_message", random),
    ("a_member_that_garbles_all_doorbells_only_delays_the_others", doorbells),
    ("payloads_of_all_lengths_around_those_of_slots_are_exact", slots),
];

const SIZE: usize = 3;
/// Waits, sends and receives.
const VICTIM: usize = 0;
/// Exchanges messages with the victim, and with nobody else.
const BYSTANDER: usize = 1;
const MEMBER: usize = 2;
const BROKE: &str = "rank 2 broke the protocol";

/// The offsets that `segment`, `message_ring` and `payload_slots` draw.
const CONSUMED: usize = 0;
const OPENED: usize = 8;
const PARTS_CONSUMED: usize = 16;
const LINE: usize = 64;
const LINES: usize = 128;
const HEAD: usize = 8;
const PAYLOAD: usize = 32;

/// Longer than eager.
const LONG: usize = 100_000;
/// Bytes of a part of a payload.
const PAYLOAD_SLOT: u64 = 16 << 10;
const SLOTS: usize = 12;

/// The RTS of a message of `LONG` bytes.
fn long(id: u64, location: Option<Location>) -> ControlMessage {
    let envelope = Envelope { tag: Tag::None, dtype: DataType::Uint8.into(), count: LONG };
    ControlMessage::Message { id, envelope, protocol: Protocol::Rendezvous { location } }
}

fn eager(id: u64, bytes: usize) -> ControlMessage {
    let envelope = Envelope { tag: Tag::None, dtype: DataType::Uint8.into(), count: bytes };
    let protocol = Protocol::Eager { payload: vec![7; bytes.min(PAYLOAD)], wants_cts: false };
    ControlMessage::Message { id, envelope, protocol }
}

fn located(offset: u64) -> ControlMessage {
    long(0, Some(Location::new(offset)))
}

/// An operation ends after two seconds at the latest.
const SETTINGS: [(&str, &str); 2] = [("NEXAR_SHM_DISABLE", "0"), ("NEXAR_OP_TIMEOUT_MS", "2000")];

fn ranks() -> Vec<Process> {
    world(SIZE, &SETTINGS)
}

/// The member writes into its own segment.
fn poke(ranks: &mut [Process], offset: usize, bytes: &[u8]) {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    ranks[MEMBER].ask(&format!("poke nexar-segment {offset} {hex}")).succeeded();
}

fn poke_word(ranks: &mut [Process], offset: usize, word: u64) {
    poke(ranks, offset, &word.to_le_bytes());
}

/// The member writes a message into line `index` of its ring to the victim.
fn write(ranks: &mut [Process], index: usize, head: &[u8], payload: &[u8], stamp: u64) {
    let line = ring(SIZE, VICTIM) + index * LINE;
    poke(ranks, line + HEAD, head);
    if !payload.is_empty() {
        poke(ranks, line + PAYLOAD, payload);
    }
    poke_word(ranks, line, stamp);
}

/// The member writes these messages, as a rank that keeps the protocol writes its first ones.
fn write_all(ranks: &mut [Process], messages: &[ControlMessage]) {
    for (index, message) in messages.iter().enumerate() {
        write(ranks, index, &message.head(), message.payload(), 1 + index as u64);
    }
    open(ranks);
}

fn open(ranks: &mut [Process]) {
    poke_word(ranks, peer(VICTIM) + OPENED, 1);
}

/// The member writes part 0 of a payload to the victim, without its bytes.
fn write_part(ranks: &mut [Process], id: u64, length: u64) {
    let line = payload_slots(SIZE, VICTIM);
    poke_word(ranks, line + 8, id);
    poke_word(ranks, line + 16, length);
    poke_word(ranks, line, 1);
}

/// The victim and the bystander exchange messages of every protocol.
fn exchange(ranks: &mut [Process]) {
    for bytes in [0, 32, 33, 16_384, 16_385, LONG] {
        for (from, to) in [(VICTIM, BYSTANDER), (BYSTANDER, VICTIM)] {
            ranks[from].tell(&format!("send {bytes} {to}"));
            ranks[to].tell(&format!("recv {bytes} {from}"));
            for rank in [from, to] {
                assert_eq!(ranks[rank].answer().succeeded().text, "exact", "{bytes} bytes");
            }
        }
    }
}

/// The victim and the bystander wait for each other. Both must name the member. Returns after how
/// many ms they did.
fn expelled(what: &str, ranks: &mut [Process], began: Instant) -> Vec<f64> {
    let mut spans = Vec::new();
    for rank in [VICTIM, BYSTANDER] {
        let answer = ranks[rank].answer();
        spans.push(began.elapsed().as_secs_f64() * 1e3);
        let named = answer.text.contains(BROKE) && answer.code == Code::RemoteError;
        assert!(named, "{what}: {answer:?}");
    }
    spans
}

fn garbled() {
    use ControlMessage::{ClearToSend, Credit, PayloadRead};
    let head = |message: &ControlMessage, at: usize, value: u8| {
        let mut head = message.head();
        head[at] = value;
        vec![head.to_vec()]
    };
    let heads =
        |messages: &[ControlMessage]| messages.iter().map(|one| one.head().to_vec()).collect();
    let violations: [(&str, Vec<Vec<u8>>); 13] = [
        ("a kind that does not exist", head(&eager(0, 8), 0, 99)),
        ("zeros", vec![vec![0; 24]]),
        ("a reserved byte", head(&eager(0, 8), 3, 1)),
        ("an element type that does not exist", head(&eager(0, 8), 1, 250)),
        ("an eager payload that is too long", heads(&[eager(0, 16_385)])),
        ("a length that wraps", heads(&[eager(0, usize::MAX)])),
        ("an id of the future", heads(&[eager(5, 8)])),
        ("an id of the past", heads(&[eager(0, 8), eager(0, 8)])),
        ("messages beyond credit", heads(&(0..20).map(|id| eager(id, 16_384)).collect::<Vec<_>>())),
        ("a CTS for nothing", heads(&[ClearToSend { id: 0 }])),
        ("a read of a payload for nothing", heads(&[PayloadRead { id: 0 }])),
        ("credit that was not used", heads(&[Credit { bytes: 1 }])),
        ("credit without bound", heads(&[Credit { bytes: usize::MAX }])),
    ];
    let (mut spans, mut grown) = (Vec::new(), Vec::new());
    let tries = violations.len() * times(1, 8);
    for (what, heads) in violations.iter().cycle().take(tries) {
        let mut ranks = ranks();
        exchange(&mut ranks);
        ranks.iter().for_each(Process::forget_most_resident);
        let before = ranks[VICTIM].most_resident();
        ranks[VICTIM].tell(&format!("recv 4 {BYSTANDER}"));
        ranks[BYSTANDER].tell(&format!("recv 4 {VICTIM}"));
        for (index, head) in heads.iter().enumerate() {
            write(&mut ranks, index, head, &[], 1 + index as u64);
        }
        let began = Instant::now();
        open(&mut ranks);
        spans.extend(expelled(what, &mut ranks, began));
        grown.push((ranks[VICTIM].most_resident() - before) as f64);
    }
    // The victim sleeps at most 100 ms without polling, and the member does not ring.
    row("malicious member of this host: messages", tries, 500.0, "ms", &spans);
    row("malicious member of this host: memory of a peer", tries, 2048.0, "KiB", &grown);
}

fn payloads() {
    let wraps = u64::MAX - LONG as u64 + 1;
    let locations = [located(u64::MAX), located(wraps), located(u64::MAX / 2), long(0, None)];
    // What follows the RTS: the id and the length of a part.
    let parts = [
        Some((0, 0)),
        Some((0, 1)),
        Some((0, PAYLOAD_SLOT + 1)),
        Some((0, LONG as u64)),
        Some((0, u64::MAX)),
        Some((7, PAYLOAD_SLOT)), // of a message that was not sent
        None,
    ];
    // The lengths have no common factor, so all pairs are tried.
    let tries = times(14, locations.len() * parts.len());
    let mut spans = Vec::new();
    for one in 0..tries {
        let (rts, part) = (&locations[one % locations.len()], parts[one % parts.len()]);
        let mut ranks = ranks();
        exchange(&mut ranks);
        if let Some((id, length)) = part {
            write_part(&mut ranks, id, length);
        }
        write_all(&mut ranks, std::slice::from_ref(rts));
        let answer = ranks[VICTIM].ask(&format!("recv {LONG} {MEMBER}"));
        let code = match part {
            Some((0, _)) => Code::RemoteError,
            _ => Code::Timeout,
        };
        let is_named = answer.text.contains("rank 2");
        assert!(answer.code == code && is_named, "{rts:?}, {part:?}: {answer:?}");
        spans.push(answer.ms);
        let told = ranks[BYSTANDER].ask(&format!("recv 4 {VICTIM}"));
        assert!(told.code != Code::Success && told.text.contains("rank 2"), "{told:?}");
    }
    row("malicious member of this host: payloads", tries, 2500.0, "ms", &spans);
}

/// The victim sends a long message, which the member answers. Returns the result of the send.
fn answered(ranks: &mut [Process], answers: &[ControlMessage]) -> Answer {
    ranks[VICTIM].tell(&format!("send {LONG} {MEMBER}"));
    // The victim has written the RTS, and awaits its answer.
    ranks[MEMBER].ask(&format!("await nexar-segment {} 1", ring(SIZE, MEMBER))).succeeded();
    write_all(ranks, answers);
    ranks[VICTIM].answer()
}

fn answers() {
    use ControlMessage::{ClearToSend, PayloadRead};
    let (cts, read) = (ClearToSend { id: 0 }, PayloadRead { id: 0 });
    for twice in [[cts.clone(), cts.clone()], [read.clone(), cts.clone()]] {
        // The send may have completed with the first answer.
        let mut ranks = ranks();
        answered(&mut ranks, &twice);
        for rank in [VICTIM, BYSTANDER] {
            let request = format!("recv 4 {}", 1 - rank);
            ranks[rank].ask(&request).failed(Code::RemoteError, &[BROKE]);
        }
    }
    // The payload is in no arena, so the member cannot have read it.
    answered(&mut ranks(), &[read]).failed(Code::RemoteError, &[BROKE, "not published"]);
    // Nothing is consumed, or everything before it was written.
    let few = answered(&mut ranks(), std::slice::from_ref(&cts));
    few.succeeded(); // the slots have room for it
    for consumed in [0, 6, u64::MAX] {
        let mut ranks = ranks();
        poke_word(&mut ranks, peer(VICTIM) + PARTS_CONSUMED, consumed);
        ranks[VICTIM].tell(&format!("send {} {MEMBER}", 10 * LONG));
        ranks[MEMBER].ask(&format!("await nexar-segment {} 1", ring(SIZE, MEMBER))).succeeded();
        write_all(&mut ranks, std::slice::from_ref(&cts));
        if consumed == u64::MAX {
            ranks[VICTIM].answer().succeeded();
            exchange(&mut ranks);
        } else {
            ranks[VICTIM].answer().failed(Code::Timeout, &["rank 2"]);
        }
    }
}

/// What the member says that it has consumed of the victim's messages.
fn counts() {
    for count in [0, LINES as u64 + 1, u64::MAX] {
        let mut ranks = ranks();
        exchange(&mut ranks);
        poke_word(&mut ranks, peer(VICTIM) + CONSUMED, count);
        // The ring has room for three, and the credit suffices for fifteen.
        let answers = (0..20).map(|_| ranks[VICTIM].ask(&format!("send 16384 {MEMBER}")));
        let failed = answers.into_iter().find(|answer| answer.code != Code::Success);
        failed.expect("the credit is used up").failed(Code::Timeout, &["rank 2"]);
    }
}

/// Heads that a decoder accepts, changed in a few bytes, in all lines of the ring; and random
/// words where the member counts.
fn random() {
    let mut dice = Dice::new(seed());
    let tries = times(10, 60);
    let mut codes = [0; 9];
    for _ in 0..tries {
        let mut ranks = ranks();
        exchange(&mut ranks);
        let mut lines = Vec::new();
        for index in 0..LINES as u64 {
            let message = match dice.below(6) {
                0 => eager(dice.below(3), dice.below(40) as usize),
                1 => located(dice.below(1 << 20)),
                2 => long(0, None),
                3 => ControlMessage::ClearToSend { id: dice.below(2) },
                4 => ControlMessage::PayloadRead { id: dice.below(2) },
                _ => ControlMessage::Credit { bytes: 0 },
            };
            let mut line = vec![0; LINE];
            line[..HEAD]
                .copy_from_slice(&(index + 1 + dice.below(2) * dice.below(2)).to_le_bytes());
            line[HEAD..PAYLOAD].copy_from_slice(&message.head());
            if dice.below(8) == 0 {
                line[HEAD + dice.below(24) as usize] = dice.below(256) as u8;
            }
            line[PAYLOAD..].fill(dice.below(256) as u8);
            lines.extend(line);
        }
        poke(&mut ranks, ring(SIZE, VICTIM), &lines);
        let counts: Vec<u8> = (0..24).map(|_| dice.below(256) as u8).collect();
        poke(&mut ranks, peer(VICTIM), &counts);
        open(&mut ranks);
        let receives = dice.below(4) != 0;
        let bytes = [0, 8, 39, LONG][dice.below(4) as usize];
        let what = if receives { "recv" } else { "send" };
        let answer = ranks[VICTIM].ask(&format!("{what} {bytes} {MEMBER}"));
        codes[answer.code as usize] += 1;
        let sent = ranks[VICTIM].ask(&format!("send 4 {BYSTANDER}"));
        let received = ranks[BYSTANDER].ask(&format!("recv 4 {VICTIM}"));
        for answer in [&answer, &sent] {
            let is_right = answer.code == Code::Success || answer.text.contains("rank 2");
            assert!(is_right, "{answer:?}");
        }
        let is_right = received.text == "exact" || received.text.contains("rank 2");
        assert!(is_right, "{received:?}");
    }
    report(format!("{tries} tries; answers by code: {codes:?}"));
}

/// A lost wake-up costs at most 100 ms, and nothing else.
fn doorbells() {
    let mut ranks = ranks();
    for word in [0, 1, 0x7fff_ffff, 0xffff_ffff_u32] {
        for offset in [0, 64, 68] {
            let hex: String = word.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            let request = format!("poke nexar-doorbell {offset} {hex}");
            ranks[MEMBER].ask(&request).succeeded();
        }
        exchange(&mut ranks);
        ranks[VICTIM].tell(&format!("recv 9 {BYSTANDER}"));
        ranks[BYSTANDER].ask(&format!("send 9 {VICTIM}")).succeeded();
        assert_eq!(ranks[VICTIM].answer().succeeded().text, "exact");
    }
}

fn slots() {
    let mut ranks = ranks();
    let all = SLOTS * PAYLOAD_SLOT as usize;
    for bytes in [0, 16_384, 16_385, 2 * 16_384, all - 1, all, all + 1, 3_000_001] {
        for (from, to) in [(0, 1), (1, 2), (2, 0), (2, 1)] {
            ranks[from].tell(&format!("send {bytes} {to}"));
            ranks[to].tell(&format!("recv {bytes} {from}"));
            for rank in [from, to] {
                assert_eq!(ranks[rank].answer().succeeded().text, "exact", "{bytes} bytes");
            }
        }
    }
}
