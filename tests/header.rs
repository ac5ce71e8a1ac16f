//! Fails if include/nexar.h differs from what cbindgen generates from the doc comments and
//! Cargo.toml. `NEXAR_BLESS=1 cargo test --test header` rewrites the header.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The version macros, from Cargo.toml.
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
    for file in ["error", "dtype", "op/reduction", "capi/types"] {
        builder = builder.with_src(root().join(format!("src/{file}.rs")));
    }
    for (file, ..) in FAMILIES {
        builder = builder.with_src(root().join(format!("src/capi/{file}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().expect("the sources can be read").write(&mut text);
    let text = String::from_utf8(text).unwrap();
    with_banners(text.replace("@FAMILIES@", contents().trim_end()))
}

/// The families of functions, in the order of the header: file below `src/capi`, title, contents.
const FAMILIES: [(&str, &str, &str); 12] = [
    ("version", "VERSION AND ERRORS", "version of the library, texts of results and errors"),
    ("comm", "COMMUNICATORS", "create, inspect, finalize, destroy, abort"),
    ("split", "SPLITTING", "communicators of a part of the ranks"),
    ("collective", "COLLECTIVES", "AllReduce ... Barrier; blocks of equal size"),
    ("varying", "COLLECTIVES WITH COUNTS", "the V forms: a count for each rank"),
    ("message", "MESSAGES", "send, receive and probe, with and without tags"),
    ("request", "REQUESTS", "tagged messages that the caller does not wait for at once"),
    ("datatype", "DATA TYPES", "elements of any size"),
    ("redop", "OPERATORS", "scaled sums, functions of the program"),
    ("group", "GROUPS", "start calls together"),
    ("stream", "HOST STREAMS", "calls that return at once"),
    ("memory", "MEMORY", "buffers that processes of a host share"),
];

/// The list of families for the head of the header.
fn contents() -> String {
    FAMILIES.iter().map(|(_, title, what)| format!(" *   {title:<25} {what}\n")).collect()
}

/// Puts a banner above the types and above the first function of each family.
fn with_banners(mut header: String) -> String {
    let mut insert = |item: &str, title: &str| {
        let at = header.find(item).unwrap_or_else(|| panic!("{item} is in the header"));
        let comment = header[..at].rfind("/**").expect("each item has a comment");
        let rule = "-".repeat(93 - title.len());
        header.insert_str(comment, &format!("/* {title} {rule} */\n\n"));
    };
    insert("#define NEXAR_VERSION(", "CONSTANTS");
    insert("typedef enum", "TYPES");
    for (file, title, _) in FAMILIES {
        let source = std::fs::read_to_string(root().join(format!("src/capi/{file}.rs"))).unwrap();
        let exported = source.split("#[unsafe(no_mangle)]").nth(1).expect("it has a function");
        let name = exported.split("fn ").nth(1).and_then(|rest| rest.split('(').next()).unwrap();
        insert(&format!("\nnexarResult_t {name}("), title);
    }
    header
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
