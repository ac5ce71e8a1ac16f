//! Ranks as processes: this program starts itself with the environment that nexar-run sets.
//!
//! With PART in its environment it is a rank. Otherwise it runs the cases, one after another: those
//! whose names contain one of its arguments, or all.
#![expect(unsafe_code, reason = "buffers of the API are addresses")]

mod ranks;

use std::net::UdpSocket;
use std::panic::catch_unwind;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nexar::{CpuAdapter, DataType, ReduceOp, SyncClient};

use ranks::{address, address_mut, within_limit};

/// The environment variable that names the scenario of a rank.
const PART: &str = "NEXAR_RS_TEST_PART";

const CASES: [(&str, fn()); 5] = [
    (
        "ranks_in_processes_compute_the_same_as_ranks_in_threads",
        ranks_in_processes_compute_the_same_as_ranks_in_threads,
    ),
    ("a_rank_that_exits_is_named_to_the_others", a_rank_that_exits_is_named_to_the_others),
    ("a_rank_that_does_not_join_is_named", a_rank_that_does_not_join_is_named),
    ("an_incomplete_environment_is_refused", an_incomplete_environment_is_refused),
    (
        "a_client_can_be_dropped_although_its_message_is_not_received",
        a_client_can_be_dropped_although_its_message_is_not_received,
    ),
];

fn main() -> ExitCode {
    if let Ok(part) = std::env::var(PART) {
        play(&part);
        return ExitCode::SUCCESS;
    }
    let filters: Vec<_> = std::env::args().skip(1).filter(|one| !one.starts_with('-')).collect();
    let is_meant = |name: &str| filters.is_empty() || filters.iter().any(|one| name.contains(one));
    let (mut passed, mut failed) = (0, 0);
    for (name, case) in CASES.iter().filter(|(name, _)| is_meant(name)) {
        // The message of a panic is printed where it occurs.
        let has_passed = catch_unwind(case).is_ok();
        println!("test {name} ... {}", if has_passed { "ok" } else { "FAILED" });
        *if has_passed { &mut passed } else { &mut failed } += 1;
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {passed} passed; {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Starts the first `started` ranks of a world and waits for them. Returns their output. Fails if
/// one fails.
fn job(
    part: &'static str,
    world: u32,
    started: u32,
    settings: &'static [(&str, &str)],
) -> Vec<String> {
    let program = std::env::current_exe().unwrap();
    let start = |rank: u32, address: &str| -> Child {
        let mut command = Command::new(&program);
        command.env(PART, part);
        command.env("NEXAR_RANK", rank.to_string()).env("NEXAR_NRANKS", world.to_string());
        command.env("NEXAR_COMM_ID", address).env("NEXAR_COMM_SECRET", "of the ranks of this test");
        command.env("NEXAR_INIT_TIMEOUT_MS", "60000").env("NEXAR_OP_TIMEOUT_MS", "60000");
        command.envs(settings.iter().copied()).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ranks: Vec<_> = (0..started).map(|rank| start(rank, &free)).collect();
    within_limit(|| {
        let end = |rank: Child| {
            let output = rank.wait_with_output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success(), "{}: {text}", output.status);
            text
        };
        ranks.into_iter().map(end).collect()
    })
}

fn play(part: &str) {
    match part {
        "computes" => computes(),
        "is left" => is_left(),
        "cannot join" => println!("{}", SyncClient::from_env().err().expect("it joined")),
        "gives up" => gives_up(),
        other => panic!("{other:?} is no part"),
    }
}

fn ranks_in_processes_compute_the_same_as_ranks_in_threads() {
    for settings in [&[][..], &[("NEXAR_SHM_DISABLE", "1")]] {
        job("computes", 3, 3, settings);
    }
}

fn computes() {
    let client = SyncClient::from_env().unwrap();
    let (rank, size) = (client.rank(), client.world_size());
    assert_eq!((rank.to_string(), size), (std::env::var("NEXAR_RANK").unwrap(), 3));
    for count in [1, 1000, 300_000] {
        let element = |index: usize, rank: u32| (index as i64 % 1000) * i64::from(rank + 1);
        let mut data: Vec<_> = (0..count).map(|index| element(index, rank)).collect();
        // SAFETY: there are `count` elements.
        unsafe { client.all_reduce(address_mut(&mut data), count, DataType::I64, ReduceOp::Sum) }
            .unwrap();
        let sum = |index| (0..size).map(|rank| element(index, rank)).sum::<i64>();
        assert!(data.iter().enumerate().all(|(index, value)| *value == sum(index)));
    }
    let send: Vec<_> = (0..size).map(|block| f64::from(block * 100 + rank)).collect();
    let mut block = [0f64];
    let (from, to) = (address(&send), address_mut(&mut block));
    // SAFETY: there is an element for each rank, and one.
    unsafe { client.reduce_scatter(from, to, 1, DataType::F64, ReduceOp::Sum) }.unwrap();
    assert_eq!(block, [f64::from(rank * 300 + 3)]);

    // All ranks send around the ring before they receive, and receive the last message first.
    const LARGE: usize = 3 << 20;
    const LAST_TAG: u32 = i32::MAX as u32;
    let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
    for tag in [7, LAST_TAG] {
        let sent = vec![(rank as u8).wrapping_add(tag as u8); LARGE];
        // SAFETY: there are LARGE bytes.
        unsafe { client.send(address(&sent), LARGE, next, tag) }.unwrap();
    }
    for tag in [LAST_TAG, 7] {
        let mut received = vec![0u8; LARGE];
        // SAFETY: as above.
        unsafe { client.recv(address_mut(&mut received), LARGE, last, tag) }.unwrap();
        assert_eq!(received, vec![(last as u8).wrapping_add(tag as u8); LARGE]);
    }
    let pair = client.split(u32::MAX - u32::from(rank == 2), size - rank).unwrap();
    assert_eq!((pair.rank(), pair.world_size()), if rank == 2 { (0, 1) } else { (1 - rank, 2) });
    drop(client);
    pair.barrier().unwrap();
}

fn a_rank_that_exits_is_named_to_the_others() {
    let texts = job("is left", 3, 3, &[]);
    for text in [&texts[0], &texts[2]] {
        assert!(text.contains("barrier failed on rank") && text.contains("rank 1"), "{text}");
    }
}

fn is_left() {
    let client = SyncClient::from_env().unwrap();
    client.barrier().unwrap();
    if client.rank() == 1 {
        std::process::exit(0);
    }
    println!("{}", client.barrier().unwrap_err());
}

fn a_rank_that_does_not_join_is_named() {
    let texts = job("cannot join", 2, 1, &[("NEXAR_INIT_TIMEOUT_MS", "4000")]);
    assert!(texts[0].contains("4000 ms") && texts[0].contains("rank 1"), "{texts:?}");
}

fn an_incomplete_environment_is_refused() {
    let texts = job("cannot join", 2, 1, &[("NEXAR_NRANKS", "")]);
    assert!(texts[0].contains("NEXAR_NRANKS"), "{texts:?}");
}

fn a_client_can_be_dropped_although_its_message_is_not_received() {
    job("gives up", 1, 1, &[("NEXAR_OP_TIMEOUT_MS", "500")]);
}

fn gives_up() {
    let clients = SyncClient::bootstrap_local(2, Arc::new(CpuAdapter::new())).unwrap();
    let data = vec![0u8; 4 << 20];
    // SAFETY: `data` has that many bytes.
    unsafe { clients[0].send(address(&data), data.len(), 1, 0) }.unwrap();
    let start = Instant::now();
    drop(clients);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}
