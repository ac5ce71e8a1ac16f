//! Ranks that make different calls: every rank reports the mismatch.

use nexar::error::Code;

use super::Case;
use super::process::{Answer, Process, slowest, world};
use super::report;

pub const CASES: [Case; 6] = [
    ("all_ranks_report_different_counts", counts),
    ("all_ranks_report_crossed_roots_where_no_rank_sends", crossed_roots),
    ("all_ranks_report_different_collectives", collectives),
    ("all_ranks_report_a_count_of_zero_on_one_rank", count_of_zero),
    ("all_ranks_report_reductions_to_different_roots", reductions),
    ("all_ranks_report_an_earlier_mismatch_of_empty_calls", long_before),
];

fn counts() {
    disagree(&["allreduce 1000", "allreduce 1000", "allreduce 1001"], 1500.0);
    disagree(&["allreduce 1000000", "allreduce 1000000", "allreduce 1000001"], 1500.0);
}

fn crossed_roots() {
    disagree(&["broadcast 1000 1", "broadcast 1000 0"], 1500.0);
    disagree(&["broadcast 1000 1", "broadcast 1000 2", "broadcast 1000 0"], 1500.0);
}

fn collectives() {
    disagree(&["allreduce 1000", "barrier", "allreduce 1000"], 1500.0);
    disagree(&["broadcast 1000 0", "reduce 1000 0"], 1500.0);
}

fn count_of_zero() {
    disagree(&["allreduce 1000", "allreduce 0", "allreduce 1000"], 1500.0);
}

/// The first of several empty calls differs between the ranks. Then they make a call that sends
/// data.
fn long_before() {
    let mut ranks = world(2, &[]);
    for (rank, odd) in ranks.iter_mut().zip(["allreduce 0", "broadcast 0 0"]) {
        let alike = "reduce 0 0\n".repeat(6);
        rank.tell(&format!("{odd}\n{alike}allreduce 10\nbarrier"));
    }
    for rank in &mut ranks {
        let answers: Vec<_> = (0..9).map(|_| rank.answer()).collect();
        let wrong = answers.iter().find(|answer| answer.code != Code::Success).unwrap();
        report(wrong.text.clone());
        let _ = wrong.clone().failed(Code::InvalidUsage, &["disagree on"]);
    }
}

fn reductions() {
    disagree(&["reduce 1000 0", "reduce 1000 1"], 1500.0);
    disagree(&["reduce 1000 0", "reduce 1000 0", "reduce 1000 2", "reduce 1000 0"], 1500.0);
}

/// Asserts that on every rank the call or the next one fails with a text that names two different
/// calls. Two ranks must report the same text. With more ranks, several may detect the mismatch
/// concurrently, each from another pair of calls.
fn disagree(requests: &[&str], limit: f64) {
    let mut ranks = world(requests.len(), &[]);
    ranks.iter_mut().for_each(|rank| rank.tell("barrier"));
    ranks.iter_mut().for_each(|rank| drop(rank.answer().succeeded()));
    let both = ranks.iter_mut().zip(requests);
    both.for_each(|(rank, request)| rank.tell(&format!("{request}\nbarrier")));
    let failure = |rank: &mut Process| {
        first_error(rank).failed(Code::InvalidUsage, &["ranks disagree on call #1"]).within(limit)
    };
    let answers: Vec<_> = ranks.iter_mut().map(failure).collect();
    // The text begins with the function that the rank called. The rest is the same on all ranks.
    let words = |answer: &Answer| answer.text.split_once(": ").unwrap().1.to_owned();
    report(format!("{:.0} ms: {}", slowest(&answers), words(&answers[0])));
    for answer in &answers {
        let words = words(answer);
        let (_, sides) = words.split_once("call #1: ").unwrap();
        let (one, other) = sides.split_once(", rank ").unwrap();
        let call = |side: &str| side.split_once(" called ").unwrap().1.to_owned();
        assert_ne!(call(one), call(other), "{words}");
    }
    assert!(requests.len() > 2 || words(&answers[0]) == words(&answers[1]));
}

fn first_error(rank: &mut Process) -> Answer {
    let first = rank.answer();
    let second = rank.answer();
    if first.code == Code::Success { second } else { first }
}
