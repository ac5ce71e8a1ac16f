//! Ranks that are killed, stop, abort, panic or leave while other ranks need them.

use std::thread::sleep;
use std::time::{Duration, Instant};

use nexar::error::Code;

use super::Case;
use super::process::{Answer, Process, ask_all, slowest, world};
use super::{check_time, report, row, times};

pub const CASES: [Case; 12] = [
    ("all_ranks_name_a_rank_killed_inside_an_all_reduce", killed),
    ("a_rank_that_stops_is_lost_after_the_peer_timeout", stopped),
    ("a_rank_that_stops_shorter_than_the_peer_timeout_is_not_lost", stopped_shortly),
    ("an_abort_ends_the_operations_of_the_others", aborted),
    ("a_panic_inside_an_operation_is_an_internal_error_on_every_rank", panicked),
    ("a_panic_inside_is_blamed_on_its_rank_if_all_exit_at_once", panicked_and_exited),
    ("a_call_that_needs_a_rank_that_has_left_names_it", left),
    ("processes_that_exit_after_a_collective_lose_no_result", ended_together),
    ("data_arrives_though_its_sender_has_exited", ended_first),
    ("a_call_that_needs_a_process_that_has_exited_names_it", ended_early),
    ("a_process_exits_though_its_peer_is_stopped", ended_beside_a_stopped_peer),
    ("a_rank_that_leaves_right_after_init_does_not_fail_the_init_of_others", left_at_once),
];

/// A peer timeout so long that a case which waits for it exceeds its time limit.
const LONG_PEER_TIMEOUT: [(&str, &str); 1] = [("NEXAR_PEER_TIMEOUT_MS", "60000")];

/// The last answer to the request `rounds`: the first that is not a correct result.
fn last_round(rank: &mut Process) -> Answer {
    loop {
        let answer = rank.answer();
        if answer.code != Code::Success || answer.text != "exact" {
            return answer;
        }
    }
}

fn killed() {
    let mut spans = Vec::new();
    let (mut aborts, mut exits) = (Vec::new(), Duration::ZERO);
    for repetition in 0..times(3, 20) {
        let victim = repetition % 4;
        let mut ranks = world(4, &[]);
        ranks
            .iter_mut()
            .for_each(|rank| rank.tell(&format!("rounds {}", times(16 << 20, 64 << 20))));
        ranks[victim].answer().succeeded();
        // Each repetition kills the rank at another point of the all-reduce.
        sleep(Duration::from_millis(40 * repetition as u64));
        ranks[victim].signal(9);
        let began = Instant::now();
        let name = format!("rank {victim} ");
        for (_, rank) in ranks.iter_mut().enumerate().filter(|(rank, _)| *rank != victim) {
            let answer = last_round(rank).failed(Code::RemoteError, &[&name]);
            spans.push(began.elapsed().as_secs_f64());
            if spans.len() == 1 {
                report(answer.text);
            }
        }
        for (_, mut rank) in ranks.into_iter().enumerate().filter(|(rank, _)| *rank != victim) {
            aborts.push(rank.ask("abort").succeeded().within(100.0));
            let began = Instant::now();
            assert!(rank.end().success());
            exits = exits.max(began.elapsed());
        }
    }
    let longest = spans.iter().copied().fold(0.0, f64::max);
    let shortest = spans.iter().copied().fold(f64::MAX, f64::min);
    report(format!("{} survivors: error after {shortest:.2} to {longest:.2} s", spans.len()));
    let abort = slowest(&aborts);
    report(format!("then an abort takes at most {abort:.2} ms, an exit {exits:.0?}"));
    check_time("the exit of a process", exits.as_secs_f64() * 1e3, 3000.0);
    check_time("the error", longest * 1e3, 6000.0);
}

fn stopped() {
    let mut ranks = world(3, &[("NEXAR_PEER_TIMEOUT_MS", "3000")]);
    ranks.iter_mut().for_each(|rank| rank.tell("rounds 1000000"));
    ranks[1].answer().succeeded();
    ranks[1].signal(19); // SIGSTOP
    let began = Instant::now();
    for rank in [0, 2] {
        let answer = last_round(&mut ranks[rank]).failed(Code::RemoteError, &["rank 1 "]);
        let seconds = began.elapsed().as_secs_f64();
        report(format!("rank {rank} after {seconds:.2} s: {}", answer.text));
        check_time(&answer.text, seconds * 1e3, 4500.0);
    }
    // When it continues, it learns that the others have failed the communicator.
    ranks[1].signal(18); // SIGCONT
    last_round(&mut ranks[1]).failed(Code::RemoteError, &[]);
}

fn stopped_shortly() {
    let mut ranks = world(3, &[("NEXAR_PEER_TIMEOUT_MS", "5000")]);
    ranks.iter_mut().for_each(|rank| rank.tell("rounds 1000000"));
    ranks[1].answer().succeeded();
    ranks[1].signal(19);
    sleep(Duration::from_secs(2)); // shorter than the peer timeout
    ranks[1].signal(18);
    for _ in 0..10 {
        for rank in &mut ranks {
            assert_eq!(rank.answer().succeeded().text, "exact");
        }
    }
}

fn aborted() {
    let mut ranks = world(4, &LONG_PEER_TIMEOUT);
    for rank in [0, 2, 3] {
        ranks[rank].tell("allreduce 100000");
    }
    ranks[1].ask("abort").succeeded().within(100.0);
    for rank in [0, 2, 3] {
        let answer = ranks[rank].answer().failed(Code::RemoteError, &["rank 1 aborted"]);
        answer.within(1000.0);
    }
    for rank in ranks {
        assert!(rank.end().success());
    }
}

fn panicked() {
    let mut ranks: Vec<_> = (0..4).map(|_| Process::start(&[])).collect();
    let mut times_of_all = Vec::new();
    let tries = times(8, 100);
    for turn in 0..tries {
        let (id, culprit) = (ranks[0].id(), turn % 4);
        for (rank, process) in ranks.iter_mut().enumerate() {
            process.tell(&format!("panic {id} {rank} 4 {culprit}"));
        }
        let words = format!("rank {culprit}, AllReduce(2 x int32, sum) #1: a panic inside nexar");
        for rank in &mut ranks {
            times_of_all.push(rank.answer().failed(Code::InternalError, &[&words]).ms);
        }
    }
    row("a panic inside an operation, 4 ranks", tries, 100.0, "ms", &times_of_all);
}

/// No rank blames a rank that has exited because of the error.
fn panicked_and_exited() {
    for size in [2, 4, 8] {
        let tries = times(4, 100);
        let mut wrong = vec![0.0; tries];
        for (turn, wrong) in wrong.iter_mut().enumerate() {
            let mut ranks: Vec<_> = (0..size).map(|_| Process::start(&[])).collect();
            let (id, culprit) = (ranks[0].id(), turn % size);
            for (rank, process) in ranks.iter_mut().enumerate() {
                process.tell(&format!("panic {id} {rank} {size} {culprit} exit"));
            }
            let words = format!("rank {culprit}, AllReduce(2 x int32, sum) #1: a panic inside");
            for rank in &mut ranks {
                let answer = rank.answer();
                if answer.code != Code::InternalError || !answer.text.contains(&words) {
                    *wrong += 1.0;
                    report(format!("rank {culprit} of {size} panicked: {}", answer.text));
                }
            }
        }
        let name = format!("a panic inside an operation, {size} ranks, each exits at once");
        row(&name, tries, 0.0, "wrong blames", &wrong);
    }
}

fn left() {
    for size in [2, 4] {
        let mut ranks = world(size, &LONG_PEER_TIMEOUT);
        for answer in ask_all(&mut ranks, "allreduce 1000") {
            answer.succeeded();
        }
        ranks[1..].iter_mut().for_each(|rank| rank.tell("allreduce 1000"));
        let destroyed = ranks[0].ask("destroy").succeeded();
        for rank in &mut ranks[1..] {
            let answer = rank.answer().failed(Code::RemoteError, &["rank 0 "]).within(3000.0);
            report(format!("{size} ranks, {:.0} ms: {}", answer.ms, answer.text));
        }
        report(format!("destroy took {:.1} ms", destroyed.ms));
    }
}

fn ended_together() {
    let mut longest = Duration::ZERO;
    let repetitions = times(20, 200);
    for size in [2, 4] {
        for repetition in 0..repetitions {
            // Small and large results; with and without destroying the communicator.
            let count = [1, 1 << 17][repetition % 2];
            let farewell = repetition % 4 == 3;
            let mut ranks = world(size, &[]);
            let request =
                format!("allreduce {count}\n{}exit", if farewell { "destroy\n" } else { "" });
            ranks.iter_mut().for_each(|rank| rank.tell(&request));
            for (number, rank) in ranks.iter_mut().enumerate() {
                let answer = rank.answer();
                let name = format!("{size} ranks, {count} elements, repetition {repetition}");
                assert_eq!(answer.code, Code::Success, "{name}, rank {number}: {}", answer.text);
                assert_eq!(answer.text, "exact");
                if farewell {
                    rank.answer().succeeded();
                }
            }
            let began = Instant::now();
            ranks.into_iter().for_each(|rank| assert!(rank.ended().success()));
            longest = longest.max(began.elapsed());
        }
    }
    report(format!("{repetitions} x 2 and 4 ranks; the last has ended after {longest:.0?}"));
}

fn ended_first() {
    for size in [2, 4] {
        for count in [64, 3 << 20] {
            let mut ranks = world(size, &[]);
            // In the binomial tree the root only sends to its children.
            ranks[0].tell(&format!("broadcast {count} 0\nexit"));
            ranks[0].answer().succeeded();
            let root = ranks.remove(0);
            // The others call it while the root already exits.
            ranks.iter_mut().for_each(|rank| rank.tell(&format!("broadcast {count} 0")));
            for (number, rank) in ranks.iter_mut().enumerate() {
                let answer = rank.answer();
                let name = format!("{size} ranks, {count} bytes, rank {}", number + 1);
                assert_eq!(answer.code, Code::Success, "{name}: {}", answer.text);
                assert_eq!(answer.text, "exact");
            }
            assert!(root.ended().success());
        }
    }
    // The root's process has exited before the other rank receives.
    let mut ranks = world(2, &[]);
    ranks[0].ask("broadcast 100000 0").succeeded();
    assert!(ranks.remove(0).end().success());
    let answer = ranks[0].ask("broadcast 100000 0");
    assert_eq!(answer.code, Code::Success, "after the root has ended: {}", answer.text);
}

fn ended_early() {
    let mut ranks = world(3, &LONG_PEER_TIMEOUT);
    ranks[1..].iter_mut().for_each(|rank| rank.tell("allreduce 1000"));
    let began = Instant::now();
    assert!(ranks.remove(0).end().success());
    report(format!("exit took {:.0?}", began.elapsed()));
    for rank in &mut ranks {
        rank.answer().failed(Code::RemoteError, &["rank 0 "]).within(5000.0);
    }
}

fn ended_beside_a_stopped_peer() {
    for request in ["exit", "destroy\nexit", "abort\nexit"] {
        let mut ranks = world(2, &LONG_PEER_TIMEOUT);
        ask_all(&mut ranks, "allreduce 1000")
            .into_iter()
            .for_each(|answer| drop(answer.succeeded()));
        ranks[1].signal(19); // SIGSTOP
        let mut rank = ranks.remove(0);
        let began = Instant::now();
        rank.tell(request);
        if request != "exit" {
            rank.answer().succeeded().within(100.0);
        }
        assert!(rank.ended().success());
        report(format!("{}: {:.1?}", request.replace('\n', " and "), began.elapsed()));
        check_time(request, began.elapsed().as_secs_f64() * 1e3, 5000.0);
    }
}

fn left_at_once() {
    const SIZE: usize = 8;
    for _ in 0..times(3, 20) {
        let mut ranks: Vec<_> = (0..SIZE).map(|_| Process::start(&[])).collect();
        let id = ranks[0].id();
        for (rank, process) in ranks.iter_mut().enumerate() {
            process.tell(&format!("join {id} {rank} {SIZE}\ndestroy\nexit"));
        }
        for mut process in ranks {
            process.answer().succeeded();
            process.answer().succeeded();
            assert!(process.ended().success());
        }
    }
}
