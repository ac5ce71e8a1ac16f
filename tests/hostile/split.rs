//! Splits that never complete: a rank sends its color and key, but does not create the new
//! communicator.

use nexar::error::Code;

use super::Case;
use super::process::{Process, ask_all};

pub const CASES: [Case; 3] = [
    ("a_split_that_a_rank_does_not_complete_ends_at_its_deadline", deadline),
    ("an_abort_of_the_parent_ends_a_split_at_once", abort),
    ("destroying_the_parent_waits_until_its_split_has_ended", destroy),
];

/// Starts two ranks inside a split that the third rank does not complete.
fn stuck(init_timeout_ms: &str) -> Vec<Process> {
    let environment = [("NEXAR_SHM_DISABLE", "0"), ("NEXAR_INIT_TIMEOUT_MS", init_timeout_ms)];
    let mut ranks: Vec<_> = (0..3).map(|_| Process::start(&environment)).collect();
    let id = ranks[0].id();
    ranks[0].tell(&format!("join {id} 0 3"));
    ranks[1].tell(&format!("join {id} 1 3"));
    ranks[2].tell(&format!("half_split {id} 2 3"));
    for rank in &mut ranks[..2] {
        rank.answer().succeeded();
        rank.ask("begin_split").succeeded();
    }
    ranks[2].answer().succeeded();
    ranks
}

fn deadline() {
    let mut ranks = stuck("6000");
    let answers = ask_all(&mut ranks[..2], "end_split").into_iter();
    let answers = answers.map(|answer| answer.within(10_000.0));
    // On the other rank the split fails too, or the new communicator has failed.
    let late = answers.filter(|answer| answer.code != Code::Success);
    let late: Vec<_> = late.map(|answer| answer.failed(Code::Timeout, &["6000 ms"])).collect();
    assert!(!late.is_empty());
}

fn abort() {
    let mut ranks = stuck("60000");
    ranks[0].ask("abort").succeeded().within(2000.0);
    ranks[0].ask("end_split").failed(Code::InvalidUsage, &["abort"]).within(5000.0);
    // On the other rank the split fails too, or the new communicator has failed.
    ranks[1].ask("end_split").within(5000.0);
}

fn destroy() {
    let mut ranks = stuck("6000");
    let destroyed = ranks[0].ask("destroy").succeeded();
    let split = ranks[0].ask("end_split");
    // Both began at about the same time.
    assert!(destroyed.ms > split.ms / 2.0, "{} ms beside {} ms", destroyed.ms, split.ms);
}
