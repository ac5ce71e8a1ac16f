//! Checks the rules of the repository. A test fails with the file and line that breaks its rule.

#[path = "tidy/edges.rs"]
mod edges;
#[path = "tidy/licences.rs"]
mod licences;
#[path = "tidy/wording.rs"]
mod wording;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use edges::Sources;

/// Files that may contain `unsafe`, besides those of `src/capi`.
const UNSAFE: [&str; 17] = [
    "src/arena.rs",
    "src/buffer.rs",
    "src/device/calls.rs",
    "src/device/driver.rs",
    "src/device/pinned.rs",
    "src/device/staging.rs",
    "src/memory.rs",
    "src/reduce/environment.rs",
    "src/reduce/x86.rs",
    "src/runtime.rs",
    "src/transport/slot.rs",
    "src/transport/quic/process.rs",
    "src/transport/quic/socket.rs",
    "src/transport/shm/message_ring.rs",
    "src/transport/shm/payload_slots.rs",
    "src/transport/shm/remote.rs",
    "src/transport/shm/segment.rs",
];
/// Names of calls that block their thread. A task of the runtime must not block: its thread may be
/// the one that drives all sockets of the process.
const BLOCKING: [&str; 16] = [
    "connect_addr(",
    "Stream::connect(",
    "StdStream::",
    "to_socket_addrs",
    "getaddrinfo",
    "thread::sleep",
    "thread::park",
    "park_timeout",
    "flock(",
    "lock_exclusive",
    "recv_timeout(",
    "blocking_",
    "Command::new",
    "stdin()",
    "print!(",
    "println!(",
];
/// Exceptions: calls that are made before a task is started, or that cannot block as they are used.
const DOES_NOT_BLOCK: [(&str, &str); 3] = [
    ("src/bootstrap/address.rs", "to_socket_addrs"),
    ("src/bootstrap/address.rs", "recv_timeout("),
    ("src/transport/shm/handshake.rs", "StdStream::"),
];
/// The maximum number of lines of a source file.
const LONGEST: usize = 600;
/// Words in a path that say nothing about the contents of the file.
const EMPTY_WORDS: [&str; 6] = ["utils", "helpers", "common", "manager", "_impl", "_inner"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Files below `directory` with one of these extensions, as paths from the root.
fn files(directory: &str, endings: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![root().join(directory)];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            if path.is_dir() {
                open.push(path);
            } else if endings.contains(&ending) {
                found.push(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    assert!(!found.is_empty(), "no files below {directory}");
    found.sort();
    found
}

/// The part of a source file above its unit tests.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text)
}

/// The first module below `src`: `transport` for `src/transport/mem/queue.rs`.
fn module(path: &str) -> &str {
    let below = path.strip_prefix("src/").unwrap();
    below.split('/').next().unwrap().trim_end_matches(".rs")
}

/// Reads the module table of ARCHITECTURE.md: the modules that each module may use.
fn allowed_edges() -> BTreeMap<String, Vec<String>> {
    let text = read("ARCHITECTURE.md");
    let rows = text.lines().skip_while(|line| !line.starts_with("| module |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let words = |cell: &str| -> Vec<String> {
        cell.split([',', ' ', '`', '/'])
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let mut table = BTreeMap::new();
    for row in rows {
        let cells: Vec<_> = row.split('|').collect();
        for module in words(cells[1]) {
            table.insert(module, words(cells[3]));
        }
    }
    table
}

#[test]
fn modules_use_only_what_the_table_in_architecture_md_allows() {
    let table = allowed_edges();
    let mut seen: Vec<&str> = Vec::new();
    let sources = files("src", &["rs"]);
    for path in
        sources.iter().filter(|path| !path.ends_with("lib.rs") && !path.ends_with("build.rs"))
    {
        let from = module(path);
        seen.push(from);
        let allowed = table.get(from).unwrap_or_else(|| panic!("{from} is not in the table"));
        let text = read(path);
        for (number, line) in without_tests(&text).lines().enumerate() {
            for used in uses(line) {
                let fine = used == from || allowed.contains(&used);
                assert!(fine, "{path}:{}: {from} may not use {used}", number + 1);
            }
        }
    }
    for module in table.keys() {
        assert!(seen.contains(&module.as_str()), "{module} is in the table but not in src");
    }
}

/// The modules of this crate that a line names as `crate::a::B` or `crate::{a::B, c}`.
fn uses(line: &str) -> Vec<String> {
    let code = line.split("//").next().unwrap();
    let word = |text: &str| -> String {
        text.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let mut found = Vec::new();
    for after in code.split("crate::").skip(1) {
        match after.strip_prefix('{') {
            Some(list) => found.extend(list.split(',').map(word)),
            None => found.push(word(after)),
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

#[test]
fn the_edge_finder_finds_edges() {
    assert_eq!(uses("use crate::comm::Communicator;"), ["comm"]);
    assert_eq!(uses("use crate::{config, log};"), ["config", "log"]);
    assert_eq!(uses("let x = crate::reduce::fold(a); // crate::comm"), ["reduce"]);
}

/// Files that may use `device`, besides those of `src/device` and `src/comm/cuda`, and why.
const USES_DEVICE: [(&str, &str); 1] =
    [("src/bootstrap/mod.rs", "the roster says whether a rank has CUDA")];

#[test]
fn no_two_files_use_each_other() {
    let texts = files("src", &["rs"]).into_iter().map(|path| (path.clone(), read(&path)));
    let sources = Sources::new(texts);
    let cycles = sources.cycles();
    assert!(cycles.is_empty(), "these use each other: {cycles:#?}");
}

#[test]
fn the_edge_finder_finds_the_file_that_defines_a_name() {
    let files = [
        ("src/lib.rs", "pub mod a; pub mod b; pub mod c;"),
        (
            "src/a/mod.rs",
            "mod one; mod two; pub use one::{One, make as build}; pub(super) use two::Two;",
        ),
        ("src/a/one.rs", "use super::two::Two; pub struct One; pub fn make() {}"),
        (
            "src/a/two.rs",
            "// use crate::b::B;\n pub struct Two; \
             fn f<'a>() { ('\"', \"crate::b::B\"); super::build() }",
        ),
        (
            "src/b.rs",
            "use crate::{a::{self, Two as T}, c::C};\npub struct B;\nfn g() { a::One::new(); }\n\
             #[cfg(test)]\nmod tests { use crate::d::D; }",
        ),
        ("src/c.rs", "pub struct C; fn h() { crate::d::Unknown; }"),
        ("src/d.rs", "pub use crate::b::B as D; pub use crate::c::*;"),
    ];
    let sources = Sources::new(files.map(|(path, text)| (path.to_owned(), text.to_owned())));
    let edges = sources.edges();
    let of = |file: &str| edges[file].iter().copied().collect::<Vec<_>>();
    assert!(
        of("src/lib.rs").is_empty() && of("src/a/mod.rs").is_empty() && of("src/d.rs").is_empty()
    );
    assert_eq!(of("src/a/one.rs"), ["src/a/two.rs"]);
    assert_eq!(of("src/a/two.rs"), ["src/a/one.rs"]);
    assert_eq!(of("src/b.rs"), ["src/a/one.rs", "src/a/two.rs", "src/c.rs"]);
    assert!(of("src/c.rs").is_empty(), "{:?}", of("src/c.rs"));
    assert_eq!(sources.cycles(), [("src/a/one.rs", "src/a/two.rs")]);
}

#[test]
fn only_listed_files_use_the_device() {
    for path in files("src", &["rs"]) {
        let may = path.starts_with("src/device/") || path.starts_with("src/comm/cuda/");
        let may = may || USES_DEVICE.iter().any(|(listed, _)| *listed == path);
        let text = read(&path);
        for (number, line) in without_tests(&text).lines().enumerate() {
            let uses_it = uses(line).iter().any(|used| used == "device");
            assert!(may || !uses_it, "{path}:{}: use what `comm` re-exports", number + 1);
        }
    }
}

/// Only `transport` may name the kinds of links; `bootstrap` may name QUIC.
#[test]
fn nothing_above_transport_names_a_kind_of_link() {
    let above = ["src/capi", "src/comm", "src/collective", "src/messaging.rs"];
    let is_above = |path: &String| above.iter().any(|start| path.starts_with(start));
    for path in files("src", &["rs"]).iter().filter(|path| is_above(path)) {
        let text = read(path);
        for (number, line) in without_tests(&text).lines().enumerate() {
            let code = line.split("//").next().unwrap();
            let names = ["shm::", "quic::", "transport::process"];
            let found = names.iter().find(|name| code.contains(**name));
            assert!(found.is_none(), "{path}:{}: names {}", number + 1, found.unwrap());
        }
    }
}

#[test]
fn unsafe_stands_only_in_the_files_named_for_it() {
    for path in files("src", &["rs"]) {
        let text = read(&path);
        let opens =
            text.contains("unsafe {") || text.contains("unsafe fn") || text.contains("#[unsafe(");
        let may = path.starts_with("src/capi/") || UNSAFE.contains(&path.as_str());
        assert!(may || !opens, "{path} contains unsafe");
    }
}

#[test]
fn no_task_of_the_runtime_makes_a_call_that_blocks() {
    let mut paths = files("src/transport", &["rs"]);
    paths.extend(files("src/bootstrap", &["rs"]));
    paths.push("src/log.rs".to_owned());
    for path in paths {
        let text = read(&path);
        for (number, line) in without_tests(&text).lines().enumerate() {
            let code = line.split("//").next().unwrap();
            let found = BLOCKING.iter().find(|name| code.contains(**name));
            let fine = found.is_none_or(|name| DOES_NOT_BLOCK.contains(&(&*path, *name)));
            assert!(fine, "{path}:{}: {} blocks its thread", number + 1, found.unwrap());
        }
    }
}

#[test]
fn the_environment_is_read_in_one_file() {
    for path in files("src", &["rs"]) {
        let reads = read(&path).contains("env::var") || read(&path).contains("std::env");
        let may = path == "src/config.rs" || path == "src/build.rs";
        assert!(may || !reads, "{path} reads the environment; config.rs does that");
    }
}

#[test]
fn no_file_is_too_long_and_none_has_an_empty_name() {
    let mut paths = files("src", &["rs"]);
    paths.extend(files("tests", &["rs"]));
    paths.extend(files("fuzz/targets", &["rs"]));
    paths.extend(files("capi-tests", &["c", "h"]));
    paths.extend(files("examples-c", &["c"]));
    paths.extend(files("standins/nccl/src", &["rs"]));
    paths.extend(files("standins/nexar-rs/src", &["rs"]));
    paths.extend(files("standins/nexar-rs/tests", &["rs"]));
    for path in paths {
        let lines = read(&path).lines().count();
        assert!(lines <= LONGEST, "{path} has {lines} lines; {LONGEST} is the limit");
        let empty = EMPTY_WORDS.iter().find(|word| path.contains(**word));
        assert!(empty.is_none(), "{path}: {empty:?} says nothing");
    }
}

#[test]
fn every_source_file_says_what_it_is_for() {
    for path in files("src", &["rs"]) {
        assert!(read(&path).starts_with("//! "), "{path} does not begin with its purpose");
    }
}

#[test]
fn every_algorithm_has_its_card() {
    let rows = ["steps", "bytes sent", "scratch", "restricted", "fold order", "chosen"];
    for row in nexar::collective::table::TABLE.iter() {
        let path = format!("src/collective/{}/{}.rs", row.collective, row.name);
        let text = read(&path);
        for name in rows {
            assert!(text.contains(&format!("//! | {name:<10} |")), "{path} has no row {name}");
        }
        assert!(text.contains("```text"), "{path} has no drawing");
    }
}

#[test]
fn every_fuzz_target_is_built_and_has_a_small_corpus() {
    let manifest = read("fuzz/Cargo.toml");
    for path in files("fuzz/targets", &["rs"]) {
        let name = Path::new(&path).file_stem().unwrap().to_str().unwrap();
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{path} is not built");
        let inputs = fs::read_dir(root().join("fuzz/corpus").join(name)).into_iter().flatten();
        let lengths: Vec<_> =
            inputs.map(|input| input.unwrap().metadata().unwrap().len()).collect();
        assert!((1..=40).contains(&lengths.len()), "{name} has {} inputs", lengths.len());
        assert!(lengths.iter().all(|length| *length <= 4096), "{name} has long inputs");
    }
}

#[test]
fn the_readme_lists_every_setting() {
    let readme = read("README.md");
    for (name, meaning) in nexar::config::NAMES {
        assert!(readme.contains(&format!("| `{name}` | {meaning} |")), "README.md lacks {name}");
    }
}

#[test]
fn the_table_of_the_stand_in_lists_every_function_once() {
    let readme = read("standins/nccl/README.md");
    for name in read("standins/nccl/symbols.txt").lines() {
        let rows = readme.matches(&format!("| `{name}` |")).count();
        assert_eq!(rows, 1, "rows of {name}");
    }
}

#[test]
fn the_readme_of_the_crate_lists_every_call_once() {
    let readme = read("standins/nexar-rs/README.md");
    let source = read("standins/nexar-rs/src/client.rs");
    let heads = source.lines().map(str::trim_start);
    let heads = heads
        .filter_map(|line| line.strip_prefix("pub unsafe fn ").or(line.strip_prefix("pub fn ")));
    let names: Vec<_> = heads.map(|head| head.split('(').next().unwrap()).collect();
    for name in &names {
        assert_eq!(readme.matches(&format!("| `{name}` |")).count(), 1, "rows of {name}");
    }
    let rows = readme.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, names.len(), "the table has a row without a call");
}

#[test]
fn documents_name_only_files_that_exist() {
    let documents = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "RELIABILITY.md",
        "standins/nccl/README.md",
        "standins/nexar-rs/README.md",
    ];
    for document in documents {
        let text = read(document);
        for quoted in text.split('`').skip(1).step_by(2) {
            let path = quoted.trim_end_matches('/');
            let is_path = [
                "src/",
                "tests/",
                "capi-tests/",
                "examples-c/",
                "cmake/",
                "include/",
                "standins/",
                "bench/",
                "fuzz/",
                "tools/",
            ]
            .iter()
            .any(|start| path.starts_with(start));
            let concrete = !path.contains(['*', '<', ' ']);
            assert!(!is_path || !concrete || root().join(path).exists(), "{document} names {path}");
        }
    }
}

#[test]
fn the_version_lives_in_cargo_toml_alone() {
    let version = env!("CARGO_PKG_VERSION");
    for path in ["Makefile", "CMakeLists.txt", "README.md"] {
        assert!(!read(path).contains(version), "{path} repeats the version {version}");
    }
}
