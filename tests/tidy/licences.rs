//! Licences of the dependencies, as Cargo reports them.

use std::process::Command;

use super::root;

/// Licences under which a program may link the library without further conditions on its own code.
const ALLOWED: [&str; 6] = ["Apache-2.0", "MIT", "BSD-3-Clause", "ISC", "Zlib", "Unicode-3.0"];

/// Whether a licence expression (SPDX: AND, OR, parentheses; `/` is an old OR) can be met with the
/// allowed licences. AND binds more strongly than OR.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut tokens = spaced.split_whitespace().peekable();
    let allowed = either(&mut tokens);
    assert_eq!(tokens.next(), None, "{expression} is not a licence expression");
    allowed
}

type Tokens<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn either(tokens: &mut Tokens<'_>) -> bool {
    let mut allowed = both(tokens);
    while tokens.next_if_eq(&"OR").is_some() {
        allowed |= both(tokens);
    }
    allowed
}

fn both(tokens: &mut Tokens<'_>) -> bool {
    let mut allowed = licence(tokens);
    while tokens.next_if_eq(&"AND").is_some() {
        allowed &= licence(tokens);
    }
    allowed
}

fn licence(tokens: &mut Tokens<'_>) -> bool {
    if tokens.next_if_eq(&"(").is_some() {
        let allowed = either(tokens);
        assert_eq!(tokens.next(), Some(")"));
        return allowed;
    }
    let name = tokens.next().expect("an expression ends with a licence");
    // An exception adds permissions.
    if tokens.next_if_eq(&"WITH").is_some() {
        tokens.next();
    }
    ALLOWED.contains(&name)
}

#[test]
fn licence_expressions_are_evaluated() {
    assert!(is_allowed("MIT OR GPL-3.0"));
    assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(is_allowed("Apache-2.0 WITH LLVM-exception"));
    assert!(is_allowed("MIT/Apache-2.0"));
    assert!(!is_allowed("MIT AND GPL-3.0"));
    assert!(!is_allowed("(MIT AND GPL-3.0) OR MPL-2.0"));
}

#[test]
fn every_dependency_of_the_library_has_an_allowed_licence() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--package=nexar-capi", "--edges=no-dev"])
        .args(["--prefix=none", "--format={l}|{p}"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list = String::from_utf8(output.stdout).unwrap();
    for line in list.lines().filter(|line| !line.is_empty()) {
        let (licence, package) = line.split_once('|').expect("the format has a bar");
        let package = package.trim_end_matches(" (*)");
        assert!(
            is_allowed(licence.trim_end_matches(" (*)")),
            "{package} has the licence {licence}"
        );
    }
    assert!(list.lines().count() > 50, "cargo lists the dependencies");
}
