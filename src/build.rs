//! Linker flags of libnexar.so that Cargo has no field for.

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo sets the package version");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnexar.so.{major}");
    // dlclose leaves the code mapped: thread-local destructors and library threads may still run it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // All symbols are bound at load, so that the table of them can be read-only.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now");
}
