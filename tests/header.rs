//! Fails if include/nexar.h differs from what cbindgen generates from the doc comments and
//! Cargo.toml. `NEXAR_BLESS=1 cargo test --test header` rewrites the header.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The version macros. Only Cargo.toml states the version.
fn version() -> String {
    let parts = [
        ("NEXAR_MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("NEXAR_MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("NEXAR_PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ];
    parts.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect()
}

fn generate() -> String {
    let mut config = cbindgen::Config::from_file(root().join("cmake/cbindgen.toml")).unwrap();
    config.include_guard = Some("NEXAR_H".to_owned());
    let macros = config.after_includes.take().unwrap_or_default();
    config.after_includes = Some(macros.replace("@VERSION@\n", &version()));
    let mut builder = cbindgen::Builder::new().with_config(config);
    // The header lists its functions in the order of these files.
    let vocabulary = ["error", "dtype", "op/reduction"];
    let functions = [
        "types",
        "version",
        "comm",
        "split",
        "collective",
        "varying",
        "message",
        "redop",
        "group",
        "stream",
        "memory",
    ];
    for file in vocabulary {
        builder = builder.with_src(root().join(format!("src/{file}.rs")));
    }
    for file in functions {
        builder = builder.with_src(root().join(format!("src/capi/{file}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().expect("the sources can be read").write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_checked_in_header_is_the_generated_one() {
    let path = root().join("include/nexar.h");
    let generated = generate();
    if std::env::var_os("NEXAR_BLESS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let present = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        present == generated,
        "include/nexar.h is out of date; run NEXAR_BLESS=1 cargo test --test header"
    );
}
