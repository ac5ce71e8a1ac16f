//! The resources of a communicator (files, threads, memory, ports), and connections over IPv6 and
//! between network namespaces.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use super::Case;
use super::process::{Process, ask_all, join_all, slowest, world};
use super::{report, times};

pub const CASES: [Case; 7] = [
    ("communicators_that_come_and_go_leave_nothing_behind", come_and_go),
    ("a_large_all_reduce_needs_little_memory_of_its_own", memory),
    ("a_process_has_one_port_whatever_it_does", one_port),
    ("a_port_range_is_kept", port_range),
    ("many_processes_find_each_other_quickly", many),
    ("ranks_meet_over_ipv6_loopback", ipv6),
    ("ranks_meet_between_network_namespaces", namespaces),
];

fn come_and_go() {
    let mut ranks = world(2, &[]);
    let again = |times: usize, ranks: &mut Vec<Process>| {
        for _ in 0..times {
            join_all(ranks);
            ask_all(ranks, "allreduce 1000")
                .into_iter()
                .for_each(|answer| drop(answer.succeeded()));
            ask_all(ranks, "destroy").into_iter().for_each(|answer| drop(answer.succeeded()));
        }
        ranks.iter_mut().map(Process::measure).collect::<Vec<_>>()
    };
    let before = again(times(30, 100), &mut ranks);
    let count = times(100, 1000);
    let mut after = again(count, &mut ranks);
    // The links of the last communicator close in the background.
    let patience = Instant::now() + Duration::from_secs(30);
    let settled = |after: &[HashMap<String, usize>]| {
        let all = || before.iter().zip(after);
        ["files", "threads"]
            .iter()
            .all(|name| all().all(|(before, after)| after[*name] <= before[*name]))
    };
    while !settled(&after) && Instant::now() < patience {
        after = ranks.iter_mut().map(Process::measure).collect();
    }
    for (before, after) in before.iter().zip(&after) {
        let grown = |name: &str| after[name] as i64 - before[name] as i64;
        let (files, threads, rss) = (grown("files"), grown("threads"), grown("rss"));
        report(format!("{count} times: files {files:+}, threads {threads:+}, memory {rss:+} KiB"));
        assert!(files <= 0 && threads <= 0 && rss <= 1024, "a resource leaks");
    }
}

fn memory() {
    let mut ranks = world(2, &[]);
    let before: Vec<_> = ranks.iter_mut().map(Process::measure).collect();
    const MIB: usize = 256;
    let answers = ask_all(&mut ranks, &format!("allreduce {}", MIB << 18));
    report(format!("{MIB} MiB in {:.0} ms", slowest(&answers)));
    answers.into_iter().for_each(|answer| assert_eq!(answer.succeeded().text, "exact"));
    for (rank, before) in ranks.iter_mut().zip(before) {
        let own = rank.measure()["peak"] - before["rss"] - (MIB << 10);
        report(format!("memory besides the user's buffer: {own} KiB"));
        assert!(own <= 32 << 10, "{own} KiB");
    }
}

fn one_port() {
    let mut ranks = world(3, &[]);
    let first: Vec<_> = ranks.iter_mut().map(Process::measure).collect();
    // A second communicator, whose id another process creates, and an id that is not used.
    ranks.rotate_left(1);
    join_all(&mut ranks);
    drop(ranks[1].id());
    ranks.rotate_right(1);
    ask_all(&mut ranks, "allreduce 100000").into_iter().for_each(|answer| drop(answer.succeeded()));
    for (rank, first) in ranks.iter_mut().zip(first) {
        let now = rank.measure();
        assert_eq!((now["udp"], now["tcp"]), (1, 0));
        assert_eq!(now["port"], first["port"]);
    }
}

fn port_range() {
    let near = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let first = near.min(60_000);
    let range = format!("{first}-{}", first + 40);
    let mut ranks = world(3, &[("NEXAR_PORT_RANGE", &range)]);
    ask_all(&mut ranks, "barrier").into_iter().for_each(|answer| drop(answer.succeeded()));
    for rank in &mut ranks {
        let now = rank.measure();
        let port = now["port"];
        assert!(
            (first.into()..=usize::from(first) + 40).contains(&port),
            "{port} is not in {range}"
        );
        assert_eq!((now["udp"], now["tcp"]), (1, 0));
    }
}

fn many() {
    for size in [2, 8, 32] {
        let mut ranks: Vec<_> = (0..size).map(|_| Process::start(&[])).collect();
        let id = ranks[0].id();
        for (number, rank) in ranks.iter_mut().enumerate() {
            rank.tell(&format!("join {id} {number} {size}"));
        }
        let joined: Vec<_> = ranks.iter_mut().map(|rank| rank.answer().succeeded()).collect();
        report(format!("{size} processes: {:.0} ms", slowest(&joined)));
        for answer in joined {
            answer.within(5000.0);
        }
        for answer in ask_all(&mut ranks, "allreduce 1000") {
            assert_eq!(answer.succeeded().text, "exact");
        }
    }
}

fn ipv6() {
    if UdpSocket::bind("[::1]:0").is_err() {
        return report("skipped: this host has no IPv6".to_owned());
    }
    let mut ranks: Vec<_> =
        (0..3).map(|_| Process::start(&[("NEXAR_SOCKET_FAMILY", "AF_INET6")])).collect();
    let id = ranks[0].id();
    // The first address of the id is ::1.
    assert_eq!(&id[160..192], "00000000000000000000000000000001");
    join_all(&mut ranks);
    all_sizes(&mut ranks);
}

fn all_sizes(ranks: &mut [Process]) {
    for count in [1, 262_147, times(1 << 20, 16 << 20)] {
        let answers = ask_all(ranks, &format!("allreduce {count}"));
        let ms = slowest(&answers);
        answers.into_iter().for_each(|answer| assert_eq!(answer.succeeded().text, "exact"));
        report(format!("{} bytes in {ms:.1} ms", 4 * count));
    }
}

/// Two network namespaces joined by a veth pair. Dropping removes them.
struct Cable {
    names: [String; 2],
}

impl Cable {
    fn create() -> Result<Self, String> {
        let names = ["a", "b"].map(|end| format!("nx{}{end}", std::process::id()));
        let [a, b] = &names;
        let cable = Self { names: names.clone() };
        ip(&format!("netns add {a}"))?;
        ip(&format!("netns add {b}"))?;
        ip(&format!("link add {a} netns {a} type veth peer name {b} netns {b}"))?;
        for (number, name) in ["1", "2"].into_iter().zip(&names) {
            ip(&format!("-n {name} addr add 10.77.0.{number}/24 dev {name}"))?;
            ip(&format!("-n {name} addr add fd77::{number}/64 dev {name} nodad"))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set {name} up"))?;
        }
        Ok(cable)
    }

    /// Starts a rank in one of the namespaces.
    fn start(&self, end: usize, family: &str) -> Process {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[end]]).arg(std::env::current_exe().unwrap());
        let any = [("NEXAR_SOCKET_IFNAME", ""), ("NEXAR_SOCKET_FAMILY", family)];
        Process::start_by(command, &any)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| drop(ip(&format!("netns del {name}"))));
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let ran = Command::new("ip").args(arguments.split(' ')).output();
    let ran = ran.map_err(|error| format!("ip: {error}"))?;
    let why = || format!("ip {arguments}: {}", String::from_utf8_lossy(&ran.stderr).trim());
    if ran.status.success() { Ok(()) } else { Err(why()) }
}

fn namespaces() {
    let cable = match Cable::create() {
        Ok(cable) => cable,
        Err(why) => return report(format!("skipped: {why}")),
    };
    for (family, network) in [("AF_INET", "0a4d00"), ("AF_INET6", "fd7700")] {
        let mut ranks = vec![cable.start(0, family), cable.start(1, family)];
        let id = ranks[0].id();
        let address = &id[160..192];
        assert!(address.contains(network), "{address} is not on the cable");
        join_all(&mut ranks);
        report(family.to_owned());
        all_sizes(&mut ranks);
        ranks.into_iter().for_each(|rank| assert!(rank.end().success()));
    }
    // More ranks of one address than may handshake at once.
    let mut ranks: Vec<_> = (0..24).map(|rank| cable.start(rank.min(1), "AF_INET")).collect();
    let began = Instant::now();
    join_all(&mut ranks);
    report(format!("24 processes, 23 of one address: {:.0?}", began.elapsed()));
    for answer in ask_all(&mut ranks, "allreduce 1000") {
        assert_eq!(answer.succeeded().text, "exact");
    }
}
