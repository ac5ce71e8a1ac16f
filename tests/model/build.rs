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

const FILES: [File; 3] = [
    File {
        model: "doorbell",
        path: "src/transport/shm/dekker.rs",
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
];

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    for file in &FILES {
        let source = here.join("../..").join(file.path);
        let scenarios = here.join("src").join(file.model).join("scenarios.rs");
        let mut modules = String::new();
        let mut table = String::new();
        for copy in file.copies {
            let folder = out.join(file.model).join(copy.name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("scenarios.rs"), read(&scenarios)).unwrap();
            fs::write(folder.join("file.rs"), broken(&read(&source), file, copy)).unwrap();
            modules += &module(&folder, copy.name);
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
    copy.changes.iter().fold(text.to_owned(), |text, (was, is)| {
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
