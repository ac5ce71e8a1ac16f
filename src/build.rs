//! The fingerprint of the protocol, and linker flags of libnexar.so that Cargo has no field for.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Sources on which no other rank depends: they write logs, or serve the devices of this process.
/// All other sources are the protocol: frames, layouts of shared memory, constants, the choice of
/// algorithms and the order in which they reduce. A new file is part of the protocol unless it is
/// listed here. Folders of unit tests are not part of it; neither are dependencies, whose
/// versions Cargo.lock fixes.
const LOCAL: [&str; 3] = ["build.rs", "device", "log.rs"];

fn main() {
    let source = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("src");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rustc-env=PROTOCOL_FINGERPRINT={:016x}", fingerprint(&source));
    let major = env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo sets the package version");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnexar.so.{major}");
    // dlclose leaves the code mapped: thread-local destructors and library threads may still
    // execute it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // All symbols are bound at load, so that their table can be read-only.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now");
}

/// Hash of names and contents of the sources. It does not depend on the compiler, the machine, the
/// build directory or the line endings of a checkout. FNV-1a, because the standard library promises
/// no stable hash; it need not resist an attacker, who gains nothing by a collision.
fn fingerprint(source: &Path) -> u64 {
    let mut files = Vec::new();
    collect(source, &mut files);
    let name = |path: &PathBuf| {
        let below = path.strip_prefix(source).expect("the file is below the sources");
        below
            .components()
            .map(|part| part.as_os_str().to_string_lossy())
            .collect::<Vec<_>>()
            .join("/")
    };
    let mut named: Vec<_> = files.iter().map(|path| (name(path), path)).collect();
    named.retain(|(name, _)| !LOCAL.contains(&name.split('/').next().unwrap_or_default()));
    named.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    for (name, path) in named {
        let text = fs::read(path).expect("a source can be read");
        name.bytes().chain([0]).for_each(&mut add);
        text.into_iter().filter(|byte| *byte != b'\r').chain([0]).for_each(&mut add);
    }
    hash
}

/// All Rust files below a directory.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("the sources can be listed") {
        let path = entry.expect("an entry of the sources").path();
        if path.ends_with("tests") {
            continue;
        } else if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
}
