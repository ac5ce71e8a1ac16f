//! Communicators of real processes under attack and faults: unauthenticated peers, malicious
//! members, lost ranks and a faulty network.
//!
//! Every rank is a process: a case starts this program again and sends it requests, one per line
//! (`rank.rs`, `process.rs`). Cases run one after another, because most of them check a time
//! (`check_time`). A case waits for events; it sleeps only where elapsed time is the fault under
//! test. Every case terminates.
//!
//! `cargo test --test hostile [-- words]` runs the cases whose name contains one of the words.
//! `HOSTILE_FULL=1` repeats each case as often as `make fault` requires. `HOSTILE_ROWS=1` prints
//! the lines that `capi-tests/fault/hostile.py` turns into rows of its table. `hostile relay`
//! starts relays for the processes of other tests.

mod builds;
mod forger;
mod garbage;
mod initials;
mod join;
mod loss;
mod member;
mod message;
mod mismatch;
mod process;
mod rank;
mod relay;
mod resource;
mod segment;
mod split;
mod stranger;
mod user;
mod wire;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

type Case = (&'static str, fn());

fn main() -> ExitCode {
    if std::env::var_os(process::ROLE).is_some() {
        rank::execute_requests();
        return ExitCode::SUCCESS;
    }
    if let Some("relay") = std::env::args().nth(1).as_deref() {
        relay::serve(std::env::args().skip(2));
        return ExitCode::SUCCESS;
    }
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(&**word));
    let modules: [&[Case]; 14] = [
        &join::CASES,
        &builds::CASES,
        &loss::CASES,
        &message::CASES,
        &mismatch::CASES,
        &member::CASES,
        &segment::CASES,
        &stranger::CASES,
        &garbage::CASES,
        &initials::CASES,
        &wire::CASES,
        &resource::CASES,
        &split::CASES,
        &user::CASES,
    ];
    // A failure prints one line with its location.
    std::panic::set_hook(Box::new(|panic| println!("{panic}")));
    let cases: Vec<_> = modules.concat().into_iter().filter(|(name, _)| wanted(name)).collect();
    println!("\nrunning {} tests", cases.len());
    let mut failed = Vec::new();
    for (name, case) in &cases {
        let began = Instant::now();
        let passed = catch_unwind(case).is_ok();
        let seconds = began.elapsed().as_secs_f64();
        println!("test {name} ... {} ({seconds:.1} s)", if passed { "ok" } else { "FAILED" });
        for figure in FIGURES.lock().unwrap().drain(..) {
            println!("    {figure}");
        }
        if !passed {
            failed.push(*name);
        }
    }
    let (verdict, passed) =
        (if failed.is_empty() { "ok" } else { "FAILED" }, cases.len() - failed.len());
    println!("\ntest result: {verdict}. {passed} passed; {} failed\n", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

static FIGURES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records a measurement, to be printed below the name of the case.
fn report(figure: String) {
    FIGURES.lock().unwrap().push(figure);
}

/// Reports a row of the table of `make fault`, with the values of `tries` tries. Counts and memory
/// are checked against `bound` in every run. Times (ms) and ratios (%) need many tries; `make
/// fault` checks them.
fn row(name: &str, tries: usize, bound: f64, unit: &str, values: &[f64]) {
    let worst = values.iter().copied().fold(0.0, f64::max);
    report(format!("{name}: {tries} tries, at most {worst:.1} {unit}"));
    if std::env::var_os("HOSTILE_ROWS").is_some() {
        let values: Vec<_> = values.iter().map(f64::to_string).collect();
        report(format!("row\t{name}\t{tries}\t{bound}\t{unit}\t{}", values.join(" ")));
    }
    assert!(matches!(unit, "ms" | "%") || worst <= bound, "{name}: {worst} {unit}, not {bound}");
}

/// Shorter than every timeout of a rank: the shortest is 30 s.
const BELOW_TIMEOUTS_MS: f64 = 25_000.0;

/// Asserts that `what` ended before any timeout of a rank. With `HOSTILE_TIMES`, which `make fault`
/// sets, asserts `promised_ms` instead, which needs an otherwise idle machine.
#[track_caller]
fn check_time(what: &str, ms: f64, promised_ms: f64) {
    let is_strict = std::env::var_os("HOSTILE_TIMES").is_some();
    let most = if is_strict { promised_ms } else { promised_ms.max(BELOW_TIMEOUTS_MS) };
    assert!(ms <= most, "{ms} ms, not {most}: {what}");
}

/// The seed of all random numbers.
fn seed() -> u64 {
    std::env::var("HOSTILE_SEED").map_or(1, |seed| seed.parse().expect("a number"))
}

/// The number of repetitions: `few`, or `many` with `HOSTILE_FULL`.
fn times(few: usize, many: usize) -> usize {
    if std::env::var_os("HOSTILE_FULL").is_some() { many } else { few }
}
