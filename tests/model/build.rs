//! Mutation test of the models: writes copies of each modelled source file, each with one error
//! ("broken copies"), next to a copy of its scenarios. A test asserts that the model finds each
//! error.
//!
//! Leaves to the `mod.rs` of each model what is proved of the file itself. Invariant: the text that
//! an error replaces occurs exactly once in the file, or the build fails. So an error cannot
//! silently vanish when the file changes.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// A source file of nexar and its broken copies.
struct File {
    /// The model's folder in `src`.
    model: &'static str,
    path: &'static str,
    /// Changes of every copy: sizes with which loom can execute all interleavings. If there are
    /// any, the module `small` has the file with these changes alone.
    sizes: &'static [(&'static str, &'static str)],
    copies: &'static [Copy],
}

struct Copy {
    name: &'static str,
    /// Pairs of a text in the file and its replacement.
    changes: &'static [(&'static str, &'static str)],
    /// Part of the panic message with which the model reports the error.
    reported_as: &'static str,
}

/// loom's report that all threads are blocked: a wake-up was lost.
const LOST: &str = "deadlock";

/// loom's report that bytes are written while another thread may access them.
const RACE: &str = "Causality violation";

const FILES: [File; 5] = [
    File {
        model: "doorbell",
        path: "src/transport/shm/dekker.rs",
        sizes: &[],
        copies: &[
            Copy {
                name: "writer_without_fence",
                changes: &[(
                    "    if full_barrier {\n        fence(Ordering::SeqCst);",
                    "    if full_barrier {",
                )],
                reported_as: LOST,
            },
            Copy {
                name: "writer_with_a_release_fence",
                changes: &[(
                    "    if full_barrier {\n        fence(Ordering::SeqCst);",
                    "    if full_barrier {\n        fence(Ordering::Release);",
                )],
                reported_as: LOST,
            },
            Copy {
                name: "sleeper_without_fence",
                changes: &[("            fence(Ordering::SeqCst);\n", "")],
                reported_as: LOST,
            },
            Copy {
                name: "sleeper_with_a_fence_in_place_of_membarrier",
                changes: &[("if doorbell.needs_fence() || !membarrier() {", "if true {")],
                reported_as: LOST,
            },
            Copy {
                name: "membarrier_before_the_sleeper_is_counted",
                changes: &[
                    (
                        "        doorbell.sleepers().fetch_add(1, Ordering::SeqCst);\n",
                        "        let reached = !doorbell.needs_fence() && membarrier();
                     doorbell.sleepers().fetch_add(1, Ordering::SeqCst);\n",
                    ),
                    ("if doorbell.needs_fence() || !membarrier() {", "if !reached {"),
                ],
                reported_as: LOST,
            },
            Copy {
                name: "sleeper_that_looks_before_it_is_counted",
                changes: &[(
                    "    let _sleeper = Sleeper::new(doorbell);
    let seen = doorbell.rung().load(Ordering::SeqCst);
    if let Some(limit) = look() {",
                    "    let seen = doorbell.rung().load(Ordering::SeqCst);
    let looked = look();
    let _sleeper = Sleeper::new(doorbell);
    if let Some(limit) = looked {",
                )],
                reported_as: LOST,
            },
            Copy {
                name: "sleeper_that_reads_the_futex_after_its_look",
                changes: &[(
                    "    let seen = doorbell.rung().load(Ordering::SeqCst);
    if let Some(limit) = look() {",
                    "    if let Some(limit) = look() {
        let seen = doorbell.rung().load(Ordering::SeqCst);",
                )],
                reported_as: LOST,
            },
            Copy {
                name: "wake_that_does_not_change_the_futex",
                changes: &[("    doorbell.rung().fetch_add(1, Ordering::SeqCst);\n", "")],
                reported_as: LOST,
            },
            Copy {
                name: "wake_before_the_futex_changes",
                changes: &[(
                    "    doorbell.rung().fetch_add(1, Ordering::SeqCst);
    futex_wake_all(doorbell.rung());",
                    "    futex_wake_all(doorbell.rung());
    doorbell.rung().fetch_add(1, Ordering::SeqCst);",
                )],
                reported_as: LOST,
            },
        ],
    },
    File {
        model: "recent_calls",
        path: "src/transport/recent_calls.rs",
        sizes: &[],
        copies: &[
            Copy {
                name: "writer_without_fence",
                changes: &[("        fence(Release); // before the words\n", "")],
                reported_as: "torn",
            },
            Copy {
                name: "writer_that_invalidates_nothing",
                changes: &[("        entry.stamp.store(0, Relaxed);\n", "")],
                reported_as: "torn",
            },
            Copy {
                name: "writer_that_publishes_relaxed",
                changes: &[
                    ("entry.stamp.store(seq + 1, Release)", "entry.stamp.store(seq + 1, Relaxed)"),
                    ("self.end.store(seq + 1, Release)", "self.end.store(seq + 1, Relaxed)"),
                ],
                reported_as: "torn",
            },
            Copy {
                name: "writer_that_publishes_before_the_words",
                changes: &[
                    (
                        "        entry.stamp.store(seq + 1, Release);
        self.end.store(seq + 1, Release);\n",
                        "",
                    ),
                    (
                        "        entry.words[0].store(",
                        "        entry.stamp.store(seq + 1, Release);
        self.end.store(seq + 1, Release);
        entry.words[0].store(",
                    ),
                ],
                reported_as: "torn",
            },
            Copy {
                name: "reader_without_fence",
                changes: &[("        fence(Acquire); // after the words\n", "")],
                reported_as: "torn",
            },
            Copy {
                name: "reader_that_begins_relaxed",
                changes: &[
                    ("entry.stamp.load(Acquire)", "entry.stamp.load(Relaxed)"),
                    ("self.end.load(Acquire)", "self.end.load(Relaxed)"),
                ],
                reported_as: "torn",
            },
            Copy {
                name: "reader_that_checks_once",
                changes: &[(" && entry.stamp.load(Relaxed) == before", "")],
                reported_as: "torn",
            },
            Copy {
                name: "end_stored_relaxed",
                changes: &[(
                    "self.end.store(seq + 1, Release)",
                    "self.end.store(seq + 1, Relaxed)",
                )],
                reported_as: "missing",
            },
            Copy {
                name: "end_loaded_relaxed",
                changes: &[("self.end.load(Acquire)", "self.end.load(Relaxed)")],
                reported_as: "missing",
            },
        ],
    },
    File {
        model: "device_poller",
        path: "src/device/poller.rs",
        sizes: &[],
        copies: &[
            Copy {
                name: "waiter_that_does_not_notify",
                changes: &[("            self.poller.not_empty.notify_one();\n", "")],
                reported_as: LOST,
            },
            Copy {
                name: "waiter_that_notifies_before_it_registers",
                changes: &[
                    (
                        "        let is_first = queue.waits.is_empty();\n",
                        "        let is_first = queue.waits.is_empty();
        drop(queue);
        if is_first {
            self.poller.not_empty.notify_one();
        }
        let mut queue = self.poller.queue();\n",
                    ),
                    (
                        "        queue.registered += 1;
        drop(queue);
        if is_first {
            self.poller.not_empty.notify_one();
        }\n",
                        "        queue.registered += 1;\n",
                    ),
                ],
                reported_as: LOST,
            },
            Copy {
                name: "poller_that_sleeps_without_a_second_look",
                changes: &[(
                    "            while queue.waits.is_empty() {\n",
                    "            if queue.waits.is_empty() {
                drop(queue);
                queue = self.queue();\n",
                )],
                reported_as: LOST,
            },
            Copy {
                name: "poller_that_removes_without_waking",
                changes: &[(
                    "            wakers.drain(..).for_each(Waker::wake);\n",
                    "            wakers.clear();\n",
                )],
                reported_as: LOST,
            },
            Copy {
                name: "poller_that_never_asks",
                changes: &[("let recheck = now - rechecked >= RECHECK;", "let recheck = false;")],
                reported_as: "maximum number of branches",
            },
            Copy {
                name: "waiter_that_keeps_its_first_waker",
                changes: &[("if !wait.waker.will_wake(context.waker()) {", "if false {")],
                reported_as: LOST,
            },
            Copy {
                name: "waiter_that_stays_registered",
                changes: &[(
                    "            let removed = self.poller.queue().waits.remove(key);\n",
                    "            let removed = key;\n",
                )],
                reported_as: "freed",
            },
        ],
    },
    File {
        model: "message_ring",
        path: "src/transport/shm/message_ring.rs",
        sizes: &[
            ("const LINES: usize = MOST_MESSAGES;", "pub const LINES: usize = 2;"),
            ("const AREA: usize = 48 << 10;", "const AREA: usize = LINE;"),
        ],
        copies: &[
            Copy {
                name: "stamp_stored_relaxed",
                changes: &[(
                    "store(self.written + 1, Release)",
                    "store(self.written + 1, Relaxed)",
                )],
                reported_as: RACE,
            },
            Copy {
                name: "stamp_loaded_relaxed",
                changes: &[("load(Acquire) == index + 1", "load(Relaxed) == index + 1")],
                reported_as: RACE,
            },
            Copy {
                name: "stamp_before_the_payload",
                changes: &[
                    ("        memory.atomic_u64(line).store(self.written + 1, Release);\n", ""),
                    (
                        "        // SAFETY: this is the owner's mapping, and",
                        "        memory.atomic_u64(line).store(self.written + 1, Release);
        // SAFETY: this is the owner's mapping, and",
                    ),
                ],
                reported_as: RACE,
            },
            Copy {
                name: "stamp_before_the_head",
                changes: &[
                    ("        memory.atomic_u64(line).store(self.written + 1, Release);\n", ""),
                    (
                        "        for (index, word) in head.chunks_exact(8).enumerate() {",
                        "        memory.atomic_u64(line).store(self.written + 1, Release);
        for (index, word) in head.chunks_exact(8).enumerate() {",
                    ),
                ],
                reported_as: "torn",
            },
            Copy {
                name: "writer_that_waits_for_nothing",
                changes: &[(
                    "            if !self.has_room(end) {
                return false;",
                    "            if false {
                return false;",
                )],
                reported_as: RACE,
            },
            Copy {
                name: "writer_with_one_line_too_many",
                changes: &[(
                    "self.written - self.consumed < LINES",
                    "self.written - self.consumed <= LINES",
                )],
                reported_as: RACE,
            },
            Copy {
                name: "writer_that_counts_no_payloads",
                changes: &[(" && end - freed <= AREA as u64", "")],
                reported_as: RACE,
            },
            Copy {
                name: "writer_that_keeps_no_end",
                changes: &[(
                    "        self.ends[(self.written % LINES as u64) as usize] = end;\n",
                    "        self.ends[(self.written % LINES as u64) as usize] = u64::MAX / 2;\n",
                )],
                reported_as: "overflow",
            },
            Copy {
                name: "reader_that_reads_the_next_line",
                changes: &[(
                    "let word = memory.atomic_u64(line(start, self.consumed) + HEAD",
                    "let word = memory.atomic_u64(line(start, self.consumed + 1) + HEAD",
                )],
                reported_as: "torn",
            },
        ],
    },
    File {
        model: "payload_slots",
        path: "src/transport/shm/payload_slots.rs",
        sizes: &[
            ("const SLOTS: usize = 12;", "const SLOTS: usize = 1;"),
            ("const PAYLOAD_SLOT: usize = 16 << 10;", "const PAYLOAD_SLOT: usize = 8;"),
        ],
        copies: &[
            Copy {
                name: "stamp_stored_relaxed",
                changes: &[(
                    "store(self.written + 1, Release)",
                    "store(self.written + 1, Relaxed)",
                )],
                reported_as: RACE,
            },
            Copy {
                name: "stamp_loaded_relaxed",
                changes: &[(
                    "memory.atomic_u64(line + STAMP).load(Acquire)",
                    "memory.atomic_u64(line + STAMP).load(Relaxed)",
                )],
                reported_as: RACE,
            },
            Copy {
                name: "stamp_before_the_length",
                changes: &[
                    ("memory.atomic_u64(line + STAMP).store(self.written + 1, Release);", ""),
                    (
                        "memory.atomic_u64(line + LENGTH).store(",
                        "memory.atomic_u64(line + STAMP).store(self.written + 1, Release);
        memory.atomic_u64(line + LENGTH).store(",
                    ),
                ],
                reported_as: "torn",
            },
            Copy {
                name: "writer_that_waits_for_nothing",
                changes: &[(
                    "            if self.written - self.consumed == SLOTS as u64 {
                return false;",
                    "            if false {
                return false;",
                )],
                reported_as: RACE,
            },
            Copy {
                name: "reader_that_consumes_nothing",
                changes: &[("        self.consumed += 1;\n", "")],
                reported_as: "torn",
            },
        ],
    },
];

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    for file in &FILES {
        let source = here.join("../..").join(file.path);
        let scenarios = here.join("src").join(file.model).join("scenarios.rs");
        let mut modules = String::new();
        let mut table = String::new();
        let small = Copy { name: "small", changes: &[], reported_as: "" };
        let whole = (!file.sizes.is_empty()).then_some(&small);
        for copy in file.copies.iter().chain(whole) {
            let folder = out.join(file.model).join(copy.name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("scenarios.rs"), read(&scenarios)).unwrap();
            fs::write(folder.join("file.rs"), broken(&read(&source), file, copy)).unwrap();
            modules += &module(&folder, copy.name);
            if copy.name == small.name {
                modules += "pub use small::{file, scenarios};\n";
                continue;
            }
            table += &format!(
                "crate::Broken {{ name: {:?}, scenarios: {}::scenarios::all, reported_as: {:?} }},",
                copy.name, copy.name, copy.reported_as
            );
        }
        let text = format!("{modules}\npub const BROKEN: &[crate::Broken] = &[{table}];\n");
        fs::write(out.join(format!("{}.rs", file.model)), text).unwrap();
    }
}

fn read(path: &Path) -> String {
    println!("cargo::rerun-if-changed={}", path.display());
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn broken(text: &str, file: &File, copy: &Copy) -> String {
    file.sizes.iter().chain(copy.changes).fold(text.to_owned(), |text, (was, is)| {
        let places = text.matches(was).count();
        assert_eq!(places, 1, "{}: {} replaces in {places} places:\n{was}", file.path, copy.name);
        text.replace(was, is)
    })
}

fn module(folder: &Path, name: &str) -> String {
    let path = |file| folder.join(file);
    format!(
        "#[allow(warnings, reason = \"a broken copy\")]
        pub mod {name} {{
            #[path = {:?}] pub mod file;
            #[path = {:?}] pub mod scenarios;
        }}\n",
        path("file.rs"),
        path("scenarios.rs")
    )
}
