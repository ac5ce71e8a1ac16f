//! include/nexar.h is what the doc comments and Cargo.toml say, or this fails.
//! `NEXAR_BLESS=1 cargo test --test header` rewrites it.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Macros that need the version or C's own constants.
fn macros() -> String {
    let version = [
        ("NEXAR_MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("NEXAR_MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("NEXAR_PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ];
    let mut text = String::from("\n#include <limits.h>\n#include <stddef.h>\n\n");
    for (name, value) in version {
        text += &format!("#define {name} {value}\n");
    }
    text += r#"
/**
 * A version as one number.
 */
#define NEXAR_VERSION(major, minor, patch) ((major) * 10000 + (minor) * 100 + (patch))

/**
 * The version of this header; nexarGetVersion gives that of the library.
 */
#define NEXAR_VERSION_CODE NEXAR_VERSION(NEXAR_MAJOR, NEXAR_MINOR, NEXAR_PATCH)

/**
 * A field of nexarConfig_t that was not set.
 */
#define NEXAR_CONFIG_UNDEF_INT INT_MIN

/**
 * nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
 */
#define NEXAR_CONFIG_INITIALIZER                                                                   \
  {                                                                                                \
    sizeof(nexarConfig_t),  /* size */                                                             \
    NEXAR_API_MAGIC,        /* magic */                                                            \
    NEXAR_VERSION_CODE,     /* version */                                                          \
    NEXAR_CONFIG_UNDEF_INT, /* blocking */                                                         \
    NEXAR_CONFIG_UNDEF_INT, /* initTimeoutMs */                                                    \
    NEXAR_CONFIG_UNDEF_INT, /* opTimeoutMs */                                                      \
    NEXAR_CONFIG_UNDEF_INT, /* peerTimeoutMs */                                                    \
    NEXAR_CONFIG_UNDEF_INT, /* splitShare */                                                       \
    NULL                    /* name */                                                             \
  }
"#;
    text
}

fn generate() -> String {
    let mut config = cbindgen::Config::from_file(root().join("cmake/cbindgen.toml")).unwrap();
    config.include_guard = Some("NEXAR_H".to_owned());
    config.after_includes = Some(macros());
    let mut builder = cbindgen::Builder::new().with_config(config);
    // The header's functions stand in the order of these files.
    for file in
        ["error", "dtype", "op", "capi/types", "capi/version", "capi/comm", "capi/collective"]
    {
        builder = builder.with_src(root().join(format!("src/{file}.rs")));
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
