//! Communicators of real processes in a bad world: strangers, liars, losses and a broken network.
//!
//! Every rank is a process of its own: this very program, started again by a case and told what to
//! call line by line (`rank.rs`, `process.rs`). Cases run one after another, because most of them
//! promise a time (`check_time`). A case waits for what it is told; it lets time pass only where that is
//! the trouble itself. It ends by itself.
//!
//! `cargo test --test hostile [-- words]` runs the cases whose name contains one of the words;
//! with `HOSTILE_FULL=1` as often as `make fault` asks. With `HOSTILE_ROWS=1` there are lines for
//! `capi-tests/fault/hostile.py`, which makes rows of its table of them. `hostile relay` is a relay for
//! the processes of others.

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
        rank::obey();
        return ExitCode::SUCCESS;
    }
    if let Some("relay") = std::env::args().nth(1).as_deref() {
        relay::serve(std::env::args().skip(2));
        return ExitCode::SUCCESS;
    }
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(&**word));
    let modules: [&[Case]; 13] = [
        &join::CASES,
        &builds::CASES,
        &loss::CASES,
        &message::CASES,
        &mismatch::CASES,
        &member::CASES,
        &stranger::CASES,
        &garbage::CASES,
        &initials::CASES,
        &wire::CASES,
        &resource::CASES,
        &split::CASES,
        &user::CASES,
    ];
    // One line says where a case failed.
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

/// A measurement, shown under the name of the case.
fn report(figure: String) {
    FIGURES.lock().unwrap().push(figure);
}

/// A row of the table of `make fault`: what a number of tries gave. Counts and memory must keep the bound
/// in every run; times and shares need many tries, and are judged there.
fn row(name: &str, tries: usize, bound: f64, unit: &str, values: &[f64]) {
    let worst = values.iter().copied().fold(0.0, f64::max);
    report(format!("{name}: {tries} tries, at most {worst:.1} {unit}"));
    if std::env::var_os("HOSTILE_ROWS").is_some() {
        let values: Vec<_> = values.iter().map(f64::to_string).collect();
        report(format!("row\t{name}\t{tries}\t{bound}\t{unit}\t{}", values.join(" ")));
    }
    assert!(matches!(unit, "ms" | "%") || worst <= bound, "{name}: {worst} {unit}, not {bound}");
}

/// Ranks that give up waiting by themselves do so later, after 30 s or more.
const NOBODY_GIVES_UP_MS: f64 = 25_000.0;

/// What took so long was over before anything gave up waiting. That it took no longer than promised is
/// checked with `HOSTILE_TIMES` in the environment, as by `make fault`: a promise of time needs a machine
/// that does nothing else.
#[track_caller]
fn check_time(what: &str, ms: f64, promised_ms: f64) {
    let is_strict = std::env::var_os("HOSTILE_TIMES").is_some();
    let most = if is_strict { promised_ms } else { promised_ms.max(NOBODY_GIVES_UP_MS) };
    assert!(ms <= most, "{ms} ms, not {most}: {what}");
}

/// The seed of everything that is drawn at random.
fn seed() -> u64 {
    std::env::var("HOSTILE_SEED").map_or(1, |seed| seed.parse().expect("a number"))
}

/// How often: `few` in every run, `many` if asked for.
fn times(few: usize, many: usize) -> usize {
    if std::env::var_os("HOSTILE_FULL").is_some() { many } else { few }
}
