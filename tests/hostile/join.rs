//! Initialisation with a rank that is wrong, late, missing or duplicated.

use std::net::UdpSocket;
use std::time::Duration;

use nexar::error::Code;
use nexar::transport::key::Identity;

use super::Case;
use super::member::{ENTRY_BYTES, Member, OTHERS, message, present};
use super::process::{Answer, Process, ask_all, join_all, slowest, world};
use super::report;
use super::stranger::{Id, open_endpoint, runtime};

pub const CASES: [Case; 14] = [
    ("a_changed_id_is_refused_before_any_packet", changed_id),
    ("a_rank_with_another_secret_is_refused_while_the_others_keep_waiting", wrong_secret),
    ("a_rank_that_has_a_secret_refuses_an_id_created_without_it", ignored_secret),
    ("a_rank_of_another_job_at_the_same_address_is_refused", another_job),
    ("all_phases_of_initialisation_share_one_deadline", one_deadline),
    ("a_root_holds_one_table_for_all_ranks", one_table),
    ("a_duplicate_rank_fails_initialisation_on_all_ranks", duplicate),
    ("different_numbers_of_ranks_fail_initialisation_on_all_ranks", different_nranks),
    ("different_algorithms_fail_initialisation_on_all_ranks", different_algorithms),
    ("all_ranks_name_missing_ranks_at_the_deadline", missing),
    ("an_id_creates_one_communicator", reused_id),
    ("initialisation_from_the_environment_refuses_another_secret", environment),
    ("joining_times_out_if_the_process_of_the_id_has_exited", root_gone),
    ("waiting_ranks_report_that_the_root_was_killed", root_killed),
];

/// Sends each rank its own request, then waits for the answers.
fn ask_each(ranks: &mut [Process], requests: &[String]) -> Vec<Answer> {
    ranks.iter_mut().zip(requests).for_each(|(rank, request)| rank.tell(request));
    ranks.iter_mut().map(Process::answer).collect()
}

fn start(count: usize, environment: &[(&str, &str)]) -> Vec<Process> {
    (0..count).map(|_| Process::start(environment)).collect()
}

fn changed_id() {
    let mut rank = Process::start(&[]);
    let id = rank.id();
    for at in [0, 8, 100, 255] {
        let other = if &id[at..=at] == "0" { "1" } else { "0" };
        let changed = format!("{}{other}{}", &id[..at], &id[at + 1..]);
        let answer = rank.ask(&format!("join {changed} 0 2"));
        answer.failed(Code::InvalidArgument, &["commId"]).within(50.0);
    }
}

fn wrong_secret() {
    let right = [("NEXAR_COMM_SECRET", "the right secret of this job")];
    let mut ranks = start(3, &right);
    let id = ranks[0].id();
    ranks[0].tell(&format!("join {id} 0 3"));
    ranks[2].tell(&format!("join {id} 2 3"));
    let wrong = [("NEXAR_COMM_SECRET", "another secret, of another job")];
    for (environment, word) in [(&wrong[..], "rejected"), (&[], "needs NEXAR_COMM_SECRET")] {
        let refused = Process::start(environment).ask(&format!("join {id} 1 3"));
        let refused = refused.failed(Code::InvalidUsage, &[word]).within(1000.0);
        report(format!("refused after {:.0} ms: {}", refused.ms, refused.text));
    }
    ranks[1].tell(&format!("join {id} 1 3"));
    ranks.iter_mut().for_each(|rank| drop(rank.answer().succeeded()));
    for answer in ask_all(&mut ranks, "allreduce 1000") {
        assert_eq!(answer.succeeded().text, "exact");
    }
}

fn ignored_secret() {
    let secret = [("NEXAR_COMM_SECRET", "the secret of this job's ranks")];
    let mut ranks = start(1, &[]);
    ranks.extend(start(2, &secret));
    let id = ranks[0].id();
    ranks[0].tell(&format!("join {id} 0 3"));
    for number in [1, 2] {
        let answer = ranks[number].ask(&format!("join {id} {number} 3"));
        let words = ["NEXAR_COMM_SECRET is set", "created without it"];
        let answer = answer.failed(Code::InvalidUsage, &words).within(1000.0);
        report(format!("{:.0} ms: {}", answer.ms, answer.text));
    }
}

/// Both jobs have the same address and secret, as when a script restarts its job.
fn another_job() {
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let rank = |number: &str, job: (&'static str, &'static str)| {
        Process::start(&[
            ("NEXAR_RANK", number),
            ("NEXAR_NRANKS", "2"),
            ("NEXAR_COMM_ID", &free),
            ("NEXAR_COMM_SECRET", "the secret of all runs"),
            job,
        ])
    };
    let job = ("NEXAR_JOB_ID", "run 2");
    let mut ranks = [rank("0", job), rank("1", job)];
    ranks[0].tell("join_environment");
    for (other, words) in [
        (("NEXAR_JOB_ID", "run 1"), ["of another job", "run 1 by NEXAR_JOB_ID"]),
        (("SLURM_JOB_ID", "17"), ["of another job", "17 by SLURM_JOB_ID"]),
        (("NEXAR_JOB_ID", ""), ["of another job", "has no job id"]),
    ] {
        let answer = rank("1", other).ask("join_environment");
        let answer = answer.failed(Code::InvalidUsage, &words).within(1000.0);
        report(format!("{:.0} ms: {}", answer.ms, answer.text));
    }
    ranks[1].tell("join_environment");
    ranks.iter_mut().for_each(|rank| drop(rank.answer().succeeded()));
}

/// The last rank joins late and then does not answer the shared-memory handshake.
fn one_deadline() {
    let limits = [("NEXAR_INIT_TIMEOUT_MS", "8000"), ("NEXAR_SHM_DISABLE", "0")];
    let mut ranks = start(OTHERS, &limits);
    let hex = ranks[0].id();
    let root = ranks[0].address();
    for (number, rank) in ranks.iter_mut().enumerate() {
        rank.tell(&format!("join {hex} {} {}", number + 1, OTHERS + 1));
    }
    // The duration of the first phase of initialisation.
    std::thread::sleep(Duration::from_secs(6));
    runtime().block_on(async {
        let _silent = Member::join(&Id::parse(&hex), root).await;
        for rank in &mut ranks {
            let answer = rank.answer().failed(Code::Timeout, &["whether it shares memory"]);
            report(format!("{:.0} ms: {}", answer.ms, answer.text));
            // With a deadline for each phase it would take 14 s.
            assert!(answer.ms < 12_000.0, "{} ms", answer.ms);
            answer.within(9000.0);
        }
    });
}

/// No rank reads its table until all ranks have joined.
fn one_table() {
    const RANKS: usize = 400;
    const COPIES_KIB: i64 = (RANKS * RANKS * ENTRY_BYTES / 1024) as i64;
    let mut root = Process::start(&[]);
    let (id, address) = (Id::parse(&root.id()), root.address());
    let grown = runtime().block_on(async {
        let endpoint = open_endpoint();
        let mut ranks = Vec::new();
        for rank in 0..RANKS - 1 {
            let me = Identity::random().unwrap();
            ranks.push(present(&endpoint, &me, &id, address, rank, RANKS).await);
        }
        root.forget_most_resident();
        let before = root.most_resident();
        let me = Identity::random().unwrap();
        ranks.push(present(&endpoint, &me, &id, address, RANKS - 1, RANKS).await);
        for (_, _, recv) in &mut ranks {
            assert_eq!(message(recv).await.1.len(), RANKS * ENTRY_BYTES);
        }
        root.most_resident() - before
    });
    report(format!("{grown} KiB more to hand out {RANKS} tables of {COPIES_KIB} KiB in all"));
    assert!(grown < COPIES_KIB, "{grown} KiB");
}

fn duplicate() {
    let mut ranks = start(8, &[]);
    let id = ranks[0].id();
    let requests = [0, 1, 2, 1, 3, 4, 5, 6].map(|rank| format!("join {id} {rank} 8"));
    let answers = ask_each(&mut ranks, &requests);
    report(format!("all ranks report it after {:.0} ms: {}", slowest(&answers), answers[0].text));
    for answer in answers {
        answer.failed(Code::InvalidUsage, &["rank 1 joined twice"]).within(1000.0);
    }
}

fn different_nranks() {
    let mut ranks = start(3, &[]);
    let id = ranks[0].id();
    let requests = [(0, 4), (1, 4), (2, 3)].map(|(rank, size)| format!("join {id} {rank} {size}"));
    let answers = ask_each(&mut ranks, &requests);
    report(format!("all ranks report it after {:.0} ms: {}", slowest(&answers), answers[0].text));
    for answer in answers {
        answer.failed(Code::InvalidUsage, &["number of ranks", "says 4", "says 3"]).within(1000.0);
    }
}

fn different_algorithms() {
    let mut ranks = start(2, &[]);
    ranks.push(Process::start(&[("NEXAR_ALGO", "allreduce:ring")]));
    let id = ranks[0].id();
    let requests = [0, 1, 2].map(|rank| format!("join {id} {rank} 4"));
    let answers = ask_each(&mut ranks, &requests);
    report(format!("all ranks report it after {:.0} ms: {}", slowest(&answers), answers[0].text));
    for answer in answers {
        answer.failed(Code::InvalidUsage, &["rank 2", "NEXAR_ALGO"]).within(1000.0);
    }
}

fn missing() {
    // Long enough that the present ranks join.
    let mut ranks = start(3, &[("NEXAR_INIT_TIMEOUT_MS", "5000")]);
    let id = ranks[0].id();
    let requests = [0, 2, 4].map(|rank| format!("join {id} {rank} 5"));
    let answers = ask_each(&mut ranks, &requests);
    report(format!("{:.0} ms: {}", slowest(&answers), answers[0].text));
    for answer in answers {
        assert!(answer.ms > 4000.0, "{} ms is early", answer.ms);
        answer.failed(Code::Timeout, &["ranks 1, 3 of 5"]).within(5500.0);
    }
    // A single rank joins, and rank 0 is missing.
    let mut ranks = start(2, &[("NEXAR_INIT_TIMEOUT_MS", "1000")]);
    let id = ranks[0].id();
    let answer = ranks[1].ask(&format!("join {id} 1 2"));
    answer.failed(Code::Timeout, &["rank 0 of 2"]).within(1500.0);
}

fn reused_id() {
    let mut ranks = start(2, &[]);
    let id = ranks[0].id();
    let requests = [0, 1].map(|rank| format!("join {id} {rank} 2"));
    ask_each(&mut ranks, &requests).into_iter().for_each(|answer| drop(answer.succeeded()));
    let late = Process::start(&[]).ask(&format!("join {id} 1 2"));
    let late = late.failed(Code::InvalidUsage, &["used before"]).within(1000.0);
    report(format!("{:.0} ms: {}", late.ms, late.text));
    for answer in ask_all(&mut ranks, "allreduce 1000") {
        assert_eq!(answer.succeeded().text, "exact");
    }
    // The same processes join again, with a new id.
    join_all(&mut ranks);
    ask_all(&mut ranks, "allreduce 5").into_iter().for_each(|answer| drop(answer.succeeded()));
}

fn environment() {
    // The kernel does not reuse the port of a socket that was closed just now.
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let rank = |number: &str, secret: &str| {
        Process::start(&[
            ("NEXAR_RANK", number),
            ("NEXAR_NRANKS", "3"),
            ("NEXAR_COMM_ID", &free),
            ("NEXAR_COMM_SECRET", secret),
            (
                "NEXAR_INIT_TIMEOUT_MS",
                if secret == "the secret of all ranks" { "60000" } else { "20000" },
            ),
        ])
    };
    let mut ranks: Vec<_> =
        ["0", "1", "2"].into_iter().map(|number| rank(number, "the secret of all ranks")).collect();
    ranks[0].tell("join_environment");
    ranks[1].tell("join_environment");
    let wrong = rank("2", "a secret of nobody else").ask("join_environment");
    report(format!("another secret, {:.0} ms: {}", wrong.ms, wrong.text));
    wrong.failed(Code::InvalidUsage, &[]).within(2000.0);
    ranks[2].tell("join_environment");
    ranks.iter_mut().for_each(|rank| drop(rank.answer().succeeded()));
    ask_all(&mut ranks, "barrier").into_iter().for_each(|answer| drop(answer.succeeded()));
}

fn root_gone() {
    let mut ranks = start(2, &[("NEXAR_INIT_TIMEOUT_MS", "1500")]);
    let id = ranks[0].id();
    assert!(ranks.remove(0).end().success());
    let answer = ranks[0].ask(&format!("join {id} 1 2"));
    let answer = answer.failed(Code::Timeout, &["127.0.0.1", "does not answer"]).within(2500.0);
    report(format!("{:.0} ms: {}", answer.ms, answer.text));
    // After the failure other communicators can be created.
    drop(ranks);
    drop(world(2, &[]));
}

fn root_killed() {
    // The root logs to stdout, which tells the test when a rank has joined.
    let mut root = Process::start(&[("NEXAR_DEBUG", "TRACE"), ("NEXAR_DEBUG_FILE", "/dev/stdout")]);
    root.tell("id");
    // An id begins with NXR1.
    let id = root.line_with(" 4e585231").rsplit(' ').next().unwrap().to_owned();
    let mut ranks = start(2, &[]);
    for (number, rank) in ranks.iter_mut().enumerate() {
        rank.tell(&format!("join {id} {number} 3"));
        root.line_with(&format!("rank {number} has joined"));
    }
    root.signal(9);
    for rank in &mut ranks {
        let answer = rank.answer().failed(Code::RemoteError, &[]).within(6000.0);
        report(format!("{:.0} ms: {}", answer.ms, answer.text));
    }
}
