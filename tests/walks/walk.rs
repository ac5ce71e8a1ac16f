//! The walks: what the ranks call, and the comparison with ARCHITECTURE.md.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;

use nexar::capi::collective::nexarAllReduce;
use nexar::capi::comm::{nexarCommDestroy, nexarCommInitRank, nexarGetUniqueId};
use nexar::capi::message::{nexarRecv, nexarSend};
use nexar::capi::types::{nexarComm_t, nexarUniqueId};
use nexar::capi::version::nexarGetLastError;
use nexar::error::Code;

use crate::breakpoint::{Thread, watch};
use crate::cuda::{self, Driver};

const RANKS: usize = 2;
/// The codes of nexarFloat32 and nexarSum.
const FLOAT32: i32 = 7;
const SUM: i32 = 0;

/// A walk of ARCHITECTURE.md: the files on the stack of the calling thread at the points where the
/// bytes of a call reach memory or the network, leave them, and are reduced.
struct Walk {
    /// The heading of the walk in ARCHITECTURE.md.
    name: &'static str,
    /// The maximum number of files.
    most_files: usize,
    call: Call,
    /// The number of calls, within which all points must be reached.
    repeated: usize,
    settings: &'static [(&'static str, &'static str)],
    points: &'static [Point],
}

/// A rank, its thread that reaches the point, a file below `src/`, and a function of it or "".
type Point = (usize, Thread, &'static str, &'static str);

/// The watched threads, in the order of their stacks in a walk.
const THREADS: [(usize, Thread); 3] =
    [(0, Thread::Caller), (0, Thread::Named(WORKER)), (1, Thread::Caller)];
/// The thread of a communicator that executes calls on device memory.
const WORKER: &str = "nexar-stream";

#[derive(Clone, Copy)]
enum Call {
    AllReduce {
        bytes: usize,
    },
    Message {
        bytes: usize,
    },
    /// On device memory.
    CudaAllReduce {
        bytes: usize,
    },
}

/// Modules that no walk lists: threads and wake-ups, which every wait uses, and basic types.
const OMITTED: [&str; 14] = [
    "arena", "blocks", "buffer", "dtype", "error", "kept", "lib", "memory", "message", "op",
    "parker", "rank", "runtime", "sync",
];

/// Waiting counts as one file, because it depends on the peers whether a thread has to wait.
const WAIT: &str = "transport/wait.rs";
const DOORBELL: &str = "transport/shm/doorbell.rs";

/// Files that surround every exported function. A call enters them once for each of their guards.
const GUARDS: [&str; 2] = ["capi/boundary.rs", "capi/process.rs"];

const WALKS: [Walk; 7] = [
    Walk {
        name: "All-reduce, 8 B, one host",
        most_files: 14,
        call: Call::AllReduce { bytes: 8 },
        repeated: 200,
        settings: &[],
        points: &[
            (0, Thread::Caller, "transport/shm/segment.rs", "publish_inline"),
            (0, Thread::Caller, "transport/shm/segment.rs", "view_inline"),
            (0, Thread::Caller, "reduce/dispatch.rs", "fold_inline"),
        ],
    },
    Walk {
        name: "All-reduce, 16 MiB, one host",
        most_files: 18,
        call: Call::AllReduce { bytes: 16 << 20 },
        repeated: 10,
        settings: &[],
        points: &[
            (0, Thread::Caller, "transport/shm/segment.rs", "publish"),
            (0, Thread::Caller, "transport/shm/segment.rs", "view"),
            (0, Thread::Caller, "reduce/reducer.rs", "fold_into"),
        ],
    },
    Walk {
        name: "All-reduce, 16 MiB, between hosts",
        most_files: 18,
        call: Call::AllReduce { bytes: 16 << 20 },
        repeated: 10,
        settings: &[("NEXAR_SHM_DISABLE", "1"), ("NEXAR_ALGO", "allreduce:ring")],
        points: &[
            (0, Thread::Caller, "transport/quic/streams.rs", "send"),
            (0, Thread::Caller, "transport/quic/stream_reader.rs", "land"),
            (0, Thread::Caller, "reduce/reducer.rs", "fold"),
        ],
    },
    Walk {
        name: "Message, 8 B, one host",
        most_files: 13,
        call: Call::Message { bytes: 8 },
        repeated: 200,
        settings: &[],
        points: &[
            (0, Thread::Caller, "transport/shm/message_ring.rs", "write"),
            (1, Thread::Caller, "transport/shm/message_ring.rs", "take"),
        ],
    },
    Walk {
        name: "Message, 64 KiB, one host",
        most_files: 18,
        call: Call::Message { bytes: 64 << 10 },
        repeated: 10,
        settings: &[],
        points: &[
            (0, Thread::Caller, "transport/shm/message_ring.rs", "write"),
            (1, Thread::Caller, "matching.rs", ""),
            (0, Thread::Caller, "transport/shm/payload_slots.rs", "write"),
            (1, Thread::Caller, "transport/shm/payload_slots.rs", "read"),
        ],
    },
    Walk {
        name: "Message, 64 KiB",
        most_files: 16,
        call: Call::Message { bytes: 64 << 10 },
        repeated: 10,
        settings: &[("NEXAR_SHM_DISABLE", "1")],
        points: &[
            (0, Thread::Caller, "transport/quic/control_messages.rs", ""),
            (0, Thread::Caller, "transport/quic/payload_streams.rs", ""),
            (1, Thread::Caller, "matching.rs", ""),
            (1, Thread::Caller, "transport/quic/payload_streams.rs", ""),
        ],
    },
    Walk {
        name: "All-reduce, 16 MiB, CUDA buffer",
        most_files: 26,
        call: Call::CudaAllReduce { bytes: 16 << 20 },
        repeated: 10,
        settings: &[("LD_LIBRARY_PATH", cuda::DIRECTORY)],
        points: &[
            (0, Thread::Caller, "device/stream.rs", "copy"),
            (0, Thread::Caller, "device/stream.rs", "wait_value"),
            (0, Thread::Named(WORKER), "transport/shm/segment.rs", "publish"),
            (0, Thread::Named(WORKER), "reduce/reducer.rs", "fold"),
        ],
    },
];

/// A place in the source, below `src/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    file: String,
    line: usize,
}

/// If a peer is late, a call takes another path through the files. A walk shows the path of a call
/// that does not wait, so it is retried.
const ATTEMPTS: usize = 5;

/// Checks all walks, or those whose name contains the first argument of the program.
pub fn check_all() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/ARCHITECTURE.md")).unwrap();
    cuda::compile();
    let named = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let is_meant =
        |walk: &&Walk| named.as_ref().is_none_or(|part| walk.name.contains(part.as_str()));
    let mut sources = Sources::read();
    let (mut passed, mut failed) = (0, 0);
    for walk in WALKS.iter().filter(is_meant) {
        let mut attempts = (0..ATTEMPTS).map(|_| walk.check(&page, &mut sources));
        let reasons: Vec<String> = attempts.by_ref().map_while(Result::err).collect();
        if reasons.len() < ATTEMPTS {
            passed += 1;
        } else {
            failed += 1;
            println!("{}: {}", walk.name, reasons.join("\n"));
        }
    }
    println!("{passed} passed, {failed} failed");
    assert!(failed == 0 && passed > 0, "walks differ from ARCHITECTURE.md");
}

/// The first place at which a stack returns to a file in another function than those of this file
/// further out on the stack. A closure counts as its function. The guards are left out.
fn step_back(stack: &[Place], sources: &mut Sources) -> Option<Place> {
    for (index, place) in stack.iter().enumerate() {
        let before = &stack[..index];
        if GUARDS.contains(&place.file.as_str()) {
            continue;
        }
        let is_new = before.last().is_some_and(|last| last.file != place.file);
        let mut known = before.iter().filter(|other| other.file == place.file).peekable();
        let function = sources.function(place);
        if is_new && known.peek().is_some() && !known.any(|one| sources.function(one) == function) {
            return Some(place.clone());
        }
    }
    None
}

/// The source files, which are read on demand, and the line table of this program.
struct Sources {
    texts: BTreeMap<String, Vec<String>>,
    /// The addresses of the instructions of each place in `src/`.
    table: BTreeMap<Place, Vec<usize>>,
}

impl Sources {
    fn read() -> Self {
        let table = Command::new("readelf")
            .args(["-W", "--debug-dump=decodedline"])
            .arg(std::env::current_exe().unwrap())
            .output()
            .expect("readelf comes with the compiler's binutils");
        Self { texts: BTreeMap::new(), table: parse(&String::from_utf8_lossy(&table.stdout)) }
    }

    /// The addresses of the statements of a function, or of a whole file.
    fn addresses(&mut self, file: &str, function: &str) -> Vec<usize> {
        let places: Vec<Place> =
            self.table.keys().filter(|place| place.file == file).cloned().collect();
        let is_meant = |place: &Place| {
            function.is_empty() || self.function(place).split(' ').next() == Some(function)
        };
        let meant: Vec<Place> = places.into_iter().filter(is_meant).collect();
        meant.iter().flat_map(|place| self.table[place].iter().copied()).collect()
    }

    /// The name of the innermost function around a place. Relies on rustfmt's indentation.
    fn function(&mut self, place: &Place) -> String {
        let lines = self.texts.entry(place.file.clone()).or_insert_with(|| {
            let root = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");
            let text = fs::read_to_string(format!("{root}{}", place.file)).unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        });
        let mut found = String::new();
        for (index, line) in lines.iter().enumerate().take(place.line) {
            let Some((before, rest)) = line.split_once("fn ") else { continue };
            let words = ["pub", "async", "unsafe", "const", "extern"];
            let is_item = before.split_whitespace().all(|word| {
                words.iter().any(|known| word.starts_with(known))
                    || word.starts_with(['"', '('])
                    || word.ends_with(')')
            });
            let indent = line.len() - line.trim_start().len();
            let end = format!("{}}}", " ".repeat(indent));
            let length = lines[index..].iter().position(|line| *line == end).unwrap_or(0);
            if is_item && place.line <= index + 1 + length {
                let name = rest.split(['(', '<']).next().unwrap_or_default();
                found = format!("{name} at {}", index + 1);
            }
        }
        found
    }
}

impl Walk {
    /// The files that ARCHITECTURE.md lists under the name of this walk.
    fn listed<'a>(&self, page: &'a str) -> Vec<&'a str> {
        let section =
            page.split("\n### ").find(|section| section.lines().next() == Some(self.name));
        let lines =
            section.unwrap_or_default().lines().skip(1).take_while(|line| !line.starts_with('#'));
        let items = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
        items.filter_map(|line| line.split('`').nth(1)?.strip_prefix("src/")).collect()
    }

    /// Executes the walk once. The error says how it differs from ARCHITECTURE.md.
    fn check(&self, page: &str, sources: &mut Sources) -> Result<(), String> {
        let stacks = self.stacks(sources)?;
        let mut files: Vec<&str> = Vec::new();
        for place in stacks.iter().flatten() {
            let module = place.file.split(['/', '.']).next().unwrap_or_default();
            let file = if place.file == DOORBELL { WAIT } else { place.file.as_str() };
            if !OMITTED.contains(&module) && !files.contains(&file) {
                files.push(file);
            }
        }
        if let Some(place) = stacks.iter().find_map(|stack| step_back(stack, sources)) {
            return Err(format!("steps back to {}:{}", place.file, place.line));
        }
        let listed = self.listed(page);
        if listed != files {
            let (files, listed) = (files.join(" "), listed.join(" "));
            return Err(format!("executed:\n  {files}\nARCHITECTURE.md:\n  {listed}"));
        }
        if files.len() > self.most_files {
            return Err(format!("{} files, at most {}", files.len(), self.most_files));
        }
        println!("{}: {} of {} files", self.name, files.len(), self.most_files);
        Ok(())
    }

    /// The stack at each point, outermost place first.
    fn stacks(&self, sources: &mut Sources) -> Result<Vec<Vec<Place>>, String> {
        let mut stacks = Vec::new();
        for (rank, thread) in THREADS {
            let points = self.points.iter().filter(|point| point.0 == rank && point.1 == thread);
            let points: Vec<_> = points.collect();
            if points.is_empty() {
                continue;
            }
            let addresses = points.iter().map(|(_, _, file, function)| {
                let addresses = sources.addresses(file, function);
                addresses.iter().map(|one| format!("{one:x}")).collect::<Vec<_>>().join(",")
            });
            let lines = self.run(rank, thread, &addresses.collect::<Vec<_>>())?;
            for ((_, _, file, function), line) in points.into_iter().zip(lines) {
                if line.is_empty() {
                    return Err(format!("{file} {function} was not executed"));
                }
                let addresses: Vec<String> = line.split(' ').map(str::to_owned).collect();
                let frames = resolve(&addresses).into_iter().rev();
                stacks.push(frames.flat_map(|(_, places)| places.into_iter().rev()).collect());
            }
        }
        Ok(stacks)
    }

    /// Runs both ranks and watches one of them. Returns the lines that it prints.
    fn run(
        &self,
        watched: usize,
        thread: Thread,
        points: &[String],
    ) -> Result<Vec<String>, String> {
        let mut id = nexarUniqueId { internal: [0; 128] };
        // SAFETY: `id` is valid for writes.
        check(unsafe { nexarGetUniqueId(&raw mut id) });
        let id: String = id.internal.iter().map(|byte| format!("{:02x}", *byte as u8)).collect();
        let start = |rank: usize| {
            let role = match thread {
                _ if rank != watched => "run",
                Thread::Caller => "watch",
                Thread::Named(name) => name,
            };
            Command::new(std::env::current_exe().unwrap())
                .args(["rank", self.name, &rank.to_string(), &id, role])
                .args(points)
                .envs(self.settings.iter().copied())
                .env("NEXAR_PEER_TIMEOUT_MS", "60000")
                .env("NEXAR_OP_TIMEOUT_MS", "60000")
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let ranks: Vec<Child> = (0..RANKS).map(start).collect();
        let mut lines = Vec::new();
        let outputs: Vec<_> =
            ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect();
        for output in outputs {
            if !output.status.success() {
                return Err(format!("a rank ended with {}", output.status));
            }
            let text = String::from_utf8(output.stdout).unwrap();
            lines.extend(text.lines().map(str::to_owned));
        }
        Ok(lines)
    }
}

/// Parses the line table as readelf prints it: the name of a file and a colon, then a line for each
/// of its instructions with line number and address. Code that is not linked has addresses below
/// those of the program.
fn parse(table: &str) -> BTreeMap<Place, Vec<usize>> {
    let (mut file, mut places) = (None, BTreeMap::<Place, Vec<usize>>::new());
    for line in table.lines() {
        if let Some(name) = line.strip_suffix(':') {
            file = below_src(name.trim_start_matches("CU: "));
        } else if let Some(file) = file {
            let mut words = line.split_whitespace().skip(1);
            let number = words.next().and_then(|number| number.parse().ok());
            let address = words.next().and_then(|address| address.strip_prefix("0x"));
            let address = address.and_then(|address| usize::from_str_radix(address, 16).ok());
            let begins_statement = words.next() == Some("x");
            if let (Some(line), Some(address), true) = (number, address, begins_statement) {
                places.entry(Place { file: file.to_owned(), line }).or_default().push(address);
            }
        }
    }
    places
}

/// The path of a file relative to `src/`. `None` if it is elsewhere.
fn below_src(name: &str) -> Option<&str> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");
    name.strip_prefix(root).or(name.strip_prefix("src/"))
}

/// The places in `src/` of addresses relative to the beginning of this program, for each address
/// the innermost inlined function first.
fn resolve(addresses: &[String]) -> Vec<(String, Vec<Place>)> {
    let mut resolver = Command::new("addr2line")
        .args(["-a", "-i", "-e"])
        .arg(std::env::current_exe().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("addr2line comes with the compiler's binutils");
    let mut input = resolver.stdin.take().unwrap();
    let text = addresses.join("\n") + "\n";
    let writing = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = resolver.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    let mut resolved: Vec<(String, Vec<Place>)> = Vec::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        if line.starts_with("0x") {
            resolved.push((line.to_owned(), Vec::new()));
            continue;
        }
        let (file, line) = line.split_once(':').unwrap_or((line, ""));
        let file = below_src(file);
        let line = line.split(' ').next().and_then(|line| line.parse().ok());
        let place = |(file, line): (&str, usize)| Place { file: file.to_owned(), line };
        if let Some((_, places)) = resolved.last_mut() {
            places.extend(file.zip(line).map(place));
        }
    }
    resolved
}

/// Runs one rank of a walk. A watched rank prints its stack at each point.
pub fn rank(name: &str, rank: &str, id: &str, role: &str, points: &[String]) {
    let walk = WALKS.iter().find(|walk| walk.name == name).expect("a walk has this name");
    let rank: i32 = rank.parse().unwrap();
    let driver = matches!(walk.call, Call::CudaAllReduce { .. }).then(Driver::open);
    let mut unique = nexarUniqueId { internal: [0; 128] };
    for (index, byte) in unique.internal.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&id[2 * index..][..2], 16).unwrap() as _;
    }
    let mut comm = null_mut();
    // SAFETY: `comm` is valid for writes.
    check(unsafe { nexarCommInitRank(&raw mut comm, RANKS as i32, unique, rank) });
    let (Call::AllReduce { bytes } | Call::Message { bytes } | Call::CudaAllReduce { bytes }) =
        walk.call;
    let (sent, mut received) = (vec![0_u8; bytes], vec![1_u8; bytes]);
    let on_device = driver.as_ref().map(|driver| [driver.allocate(bytes), driver.allocate(bytes)]);
    let [from, into] =
        on_device.unwrap_or([sent.as_ptr().cast_mut().cast(), received.as_mut_ptr().cast()]);
    let call = || execute(walk.call, rank, from, into, comm);
    let synchronize = || driver.iter().for_each(Driver::synchronize);
    let complete = || {
        call();
        synchronize();
    };
    // If a peer is late, another path or thread executes the call.
    let repeat = || (0..walk.repeated).for_each(|_| complete());
    // The first calls create connections and memory.
    (0..3).for_each(|_| complete());
    let code = program_code();
    let base = program_start();
    let mut text = String::new();
    let thread = match role {
        "run" => None,
        "watch" => Some(Thread::Caller),
        _ => Some(Thread::Named(WORKER)),
    };
    if let Some(thread) = thread {
        let address = |text: &str| base + usize::from_str_radix(text, 16).unwrap();
        let addresses = |text: &String| -> Vec<usize> {
            let all = text.split(',').filter(|one| !one.is_empty()).map(address);
            all.filter(|address| code.contains(address)).collect()
        };
        let points: Vec<_> = points.iter().map(addresses).collect();
        let stacks = watch(thread, &points, repeat);
        for stack in &stacks {
            // A return address is that of the instruction after the call.
            let offset = |(depth, address): (usize, &usize)| {
                format!("{:x}", address.wrapping_sub(base).wrapping_sub(usize::from(depth > 0)))
            };
            let offsets: Vec<String> = stack.iter().enumerate().map(offset).collect();
            text += &format!("{}\n", offsets.join(" "));
        }
    } else {
        repeat();
    }
    complete();
    check(nexarCommDestroy(comm));
    // Printed at the end: the output is read when the other rank has ended too.
    print!("{text}");
}

fn execute(call: Call, rank: i32, from: *const c_void, into: *mut c_void, comm: nexarComm_t) {
    // SAFETY: both buffers have as many bytes as the call names and outlive it.
    check(unsafe {
        match (call, rank) {
            (Call::AllReduce { bytes } | Call::CudaAllReduce { bytes }, _) => {
                nexarAllReduce(from, into, bytes / 4, FLOAT32, SUM, comm, null_mut())
            }
            (Call::Message { bytes }, 0) => {
                nexarSend(from, bytes / 4, FLOAT32, 1, comm, null_mut())
            }
            (Call::Message { bytes }, _) => {
                nexarRecv(into, bytes / 4, FLOAT32, 0, comm, null_mut())
            }
        }
    });
}

fn check(code: Code) {
    // SAFETY: the string lives until the next call of nexarGetLastError on this thread.
    let text = unsafe { CStr::from_ptr(nexarGetLastError(null_mut())) };
    assert_eq!(code, Code::Success, "{}", text.to_string_lossy());
}

/// The address at which this program is loaded.
fn program_start() -> usize {
    mapping(|_| true).start
}

/// The addresses of this program's code.
fn program_code() -> Range<usize> {
    mapping(|line| line.contains(" r-xp "))
}

/// The first line of /proc/self/maps that `is_meant` accepts, as a range of addresses.
fn mapping(is_meant: impl Fn(&str) -> bool) -> Range<usize> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| is_meant(line)).unwrap();
    let address = |text: &str| usize::from_str_radix(text, 16).unwrap();
    let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
    address(start)..address(end)
}
