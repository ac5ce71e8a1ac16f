//! Rules of style: the length of lines, sentences of comments with a subject, unique type names.

use std::collections::BTreeMap;

use super::{files, read};

/// The maximum length of a line, of code and comments alike.
const COLUMNS: usize = 100;

/// First words of sentences that do not name their subject.
const NO_SUBJECT: [&str; 3] = ["Who", "Whoever", "Of"];

fn sources() -> Vec<String> {
    let folders = [
        "src",
        "tests",
        "fuzz/targets",
        "benches",
        "tools/src",
        "tools/tests",
        "standins/nccl/src",
        "standins/nexar-rs/src",
        "standins/nexar-rs/tests",
    ];
    folders.iter().flat_map(|folder| files(folder, &["rs"])).collect()
}

#[test]
fn no_line_is_too_long() {
    for path in sources() {
        for (number, line) in read(&path).lines().enumerate() {
            let columns = line.chars().count();
            assert!(columns <= COLUMNS, "{path}:{} has {columns} columns", number + 1);
        }
    }
}

/// The text of a line that is a comment. `None` if the line has code.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let markers = ["///", "//!", "//"];
    markers.iter().find_map(|marker| line.strip_prefix(marker)).map(str::trim)
}

#[test]
fn every_sentence_of_a_comment_names_its_subject() {
    for path in sources() {
        let mut begins = true;
        for (number, line) in read(&path).lines().enumerate() {
            let Some(text) = comment(line) else {
                begins = true;
                continue;
            };
            for sentence in text.split(". ") {
                let first = sentence.split(|letter: char| !letter.is_alphabetic()).next();
                let is_empty = begins && first.is_some_and(|word| NO_SUBJECT.contains(&word));
                assert!(!is_empty, "{path}:{}: a sentence without a subject", number + 1);
                begins = true;
            }
            begins = text.is_empty() || text.ends_with(['.', ':']);
        }
    }
}

#[test]
fn a_type_name_exists_once_in_the_crate() {
    let mut homes: BTreeMap<String, String> = BTreeMap::new();
    for path in files("src", &["rs"]) {
        for line in read(&path).lines() {
            let mut words = line.split_whitespace().filter(|word| !word.starts_with("pub"));
            let kind = words.next().unwrap_or_default();
            // Associated types are indented.
            let is_alias = kind == "type" && !line.starts_with(' ');
            if !is_alias && !["struct", "enum", "trait", "union"].contains(&kind) {
                continue;
            }
            let name = words.next().unwrap_or_default();
            let name = name.split(|letter: char| !letter.is_alphanumeric()).next().unwrap();
            if let Some(home) = homes.insert(name.to_owned(), path.clone()) {
                assert_eq!(home, path, "{name} is the name of two types");
            }
        }
    }
}
