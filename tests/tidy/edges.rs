//! The graph of the files of `src`: which file uses names of which other.
//!
//! A name counts for the file that defines it. Re-exports are resolved, so a `mod.rs` that only
//! declares and re-exports has no edges. Comments, string literals and unit tests do not count.
//! Limit: the use of a method or a field is not found if the file does not name its type.

use std::collections::{BTreeMap, BTreeSet};

/// The source files of a crate.
pub struct Sources {
    modules: BTreeMap<Vec<String>, Module>,
}

struct Module {
    file: String,
    /// Names that the file imports or re-exports, and their paths from the root of the crate.
    imports: BTreeMap<String, Vec<String>>,
    /// Modules whose names the file re-exports with `*`.
    globs: Vec<Vec<String>>,
    /// Paths of names that the file uses, from the root of the crate.
    used: Vec<Vec<String>>,
    defined: BTreeSet<String>,
}

impl Sources {
    pub fn new(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let code: BTreeMap<Vec<String>, (String, Vec<String>)> = files
            .into_iter()
            .filter_map(|(file, text)| Some((module_path(&file)?, (file, tokens(&text)))))
            .collect();
        let paths: BTreeSet<_> = code.keys().cloned().collect();
        let parsed = code.into_iter().map(|(path, (file, tokens))| {
            let module = Module::parse(&path, file, &tokens, &paths);
            (path, module)
        });
        Self { modules: parsed.collect() }
    }

    /// Each file with the files that it uses.
    pub fn edges(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let edges = self.modules.values().map(|module| {
            let used = module.used.iter().filter_map(|path| self.file_of(path, 0));
            let others = used.filter(|file| *file != module.file);
            (module.file.as_str(), others.collect())
        });
        edges.collect()
    }

    /// Pairs of files that use each other.
    pub fn cycles(&self) -> Vec<(&str, &str)> {
        let edges = self.edges();
        let pairs = edges.iter().flat_map(|(from, all)| all.iter().map(move |to| (*from, *to)));
        pairs.filter(|(from, to)| from < to && edges[to].contains(from)).collect()
    }

    /// The file that defines the last name of a path. `None` if the path ends at the root or at
    /// a module that defines nothing, or if no file of the crate defines the name.
    fn file_of(&self, path: &[String], hops: usize) -> Option<&str> {
        // Bounds the search when imports form a cycle.
        const MOST_HOPS: usize = 16;
        let module_end =
            (0..=path.len()).rev().find(|end| self.modules.contains_key(&path[..*end]))?;
        let (module, rest) = (&self.modules[&path[..module_end]], &path[module_end..]);
        let is_root = module_end == 0;
        let Some(name) = rest.first() else {
            // A path to a module counts as a use of its file if the file defines something.
            return (!is_root && !module.defined.is_empty()).then_some(&*module.file);
        };
        if module.defined.contains(name) || hops == MOST_HOPS {
            return Some(&module.file);
        }
        if let Some(target) = module.imports.get(name) {
            let target = [target, &rest[1..]].concat();
            return self.file_of(&target, hops + 1);
        }
        let mut globs = module.globs.iter().map(|glob| [glob, rest].concat());
        globs.find_map(|target| self.file_of(&target, hops + 1))
    }
}

impl Module {
    fn parse(
        path: &[String],
        file: String,
        tokens: &[String],
        modules: &BTreeSet<Vec<String>>,
    ) -> Self {
        let mut module = Self {
            file,
            imports: BTreeMap::new(),
            globs: Vec::new(),
            used: Vec::new(),
            defined: defined(tokens),
        };
        let mut reexported = BTreeMap::new();
        let mut code = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            if tokens[at] != "use" {
                code.push(tokens[at].as_str());
                at += 1;
                continue;
            }
            let is_public = at > 0 && (tokens[at - 1] == "pub" || tokens[at - 1] == ")");
            let end = at + tokens[at..].iter().position(|token| token == ";").unwrap_or(0);
            let mut leaves = Vec::new();
            use_tree(&tokens[at + 1..end], &[], &mut leaves);
            for (leaf, name) in leaves {
                let Some(target) = absolute(path, &leaf, &BTreeMap::new(), modules) else {
                    continue;
                };
                match (name.as_str(), is_public) {
                    ("*", true) => module.globs.push(target),
                    (_, true) => {
                        reexported.insert(name.clone(), target.clone());
                        module.imports.insert(name, target);
                    }
                    (_, false) => {
                        module.used.push(target.clone());
                        module.imports.insert(name, target);
                    }
                }
            }
            at = end + 1;
        }
        for segments in paths_in(&code) {
            // A re-exported name counts as used if the file also uses it itself.
            module.used.extend(reexported.get(segments[0]).cloned());
            let segments: Vec<_> = segments.into_iter().map(str::to_owned).collect();
            if segments.len() > 1 {
                module.used.extend(absolute(path, &segments, &module.imports, modules));
            }
        }
        module
    }
}

/// The module of a file: `a` for `src/a/mod.rs` and `src/a.rs`. `None` for a file of unit tests.
fn module_path(file: &str) -> Option<Vec<String>> {
    let below = file.strip_prefix("src/")?.strip_suffix(".rs")?;
    let path: Vec<_> = below.split('/').map(str::to_owned).collect();
    match path.last().map(String::as_str) {
        _ if path.iter().any(|name| name == "tests") => None,
        Some("mod" | "lib") => Some(path[..path.len() - 1].to_vec()),
        _ => Some(path),
    }
}

/// Resolves a path in `module` to one from the root of the crate. `None` if it leads elsewhere.
fn absolute(
    module: &[String],
    path: &[String],
    imports: &BTreeMap<String, Vec<String>>,
    modules: &BTreeSet<Vec<String>>,
) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    let mut base = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        name => match imports.get(name) {
            Some(target) => target.clone(),
            None => {
                let child = [module, &[name.to_owned()]].concat();
                modules.contains(&child).then_some(child)?
            }
        },
    };
    let more = rest.iter().take_while(|name| *name == "super").count();
    base.truncate(base.len().checked_sub(more)?);
    base.extend_from_slice(&rest[more..]);
    Some(base)
}

/// Collects the leaves of a use tree: each path and the name under which it is imported.
fn use_tree(tokens: &[String], prefix: &[String], leaves: &mut Vec<(Vec<String>, String)>) {
    let mut path = prefix.to_vec();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "::" => {}
            "{" => {
                let inner = &tokens[at + 1..tokens.len() - 1];
                return split_at_commas(inner).for_each(|one| use_tree(one, &path, leaves));
            }
            "*" => return leaves.push((path, "*".to_owned())),
            "as" => return leaves.push((path, tokens[at + 1].clone())),
            "self" if !path.is_empty() => {}
            name => path.push(name.to_owned()),
        }
        at += 1;
    }
    if let Some(name) = path.last().cloned() {
        leaves.push((path, name));
    }
}

/// Splits a list at its commas, but not inside nested braces.
fn split_at_commas(tokens: &[String]) -> impl Iterator<Item = &[String]> {
    let mut depth = 0_i32;
    let parts = tokens.split(move |token| {
        depth += i32::from(token == "{") - i32::from(token == "}");
        token == "," && depth == 0
    });
    parts.filter(|part| !part.is_empty())
}

/// The paths in code, each as its names without the `::`.
fn paths_in<'a>(code: &[&'a str]) -> Vec<Vec<&'a str>> {
    let is_name = |token: &str| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let mut paths = Vec::new();
    let mut at = 0;
    while at < code.len() {
        // Names of fields, of methods and of declared modules are not paths.
        let is_other = at > 0 && [".", "::", "mod"].contains(&code[at - 1]);
        if !is_name(code[at]) || is_other {
            at += 1;
            continue;
        }
        let mut path = vec![code[at]];
        while at + 2 < code.len() && code[at + 1] == "::" && is_name(code[at + 2]) {
            path.push(code[at + 2]);
            at += 2;
        }
        paths.push(path);
        at += 1;
    }
    paths
}

/// The names that are defined at the top level of a file.
fn defined(tokens: &[String]) -> BTreeSet<String> {
    const KEYWORDS: [&str; 8] =
        ["struct", "enum", "trait", "fn", "const", "static", "type", "union"];
    let mut depth = 0_i32;
    let mut names = BTreeSet::new();
    for pair in tokens.windows(2) {
        depth += i32::from(pair[0] == "{") - i32::from(pair[0] == "}");
        if depth == 0 && KEYWORDS.contains(&pair[0].as_str()) && pair[1] != "fn" {
            names.insert(pair[1].clone());
        }
    }
    names
}

/// The tokens above the unit tests, without comments and without string and character literals.
fn tokens(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let mut rest = text;
    let mut tokens = Vec::new();
    while let Some(c) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if c == '"' {
            text_length(rest)
        } else if c == 'r' && rest[1..].trim_start_matches('#').starts_with('"') {
            raw_length(rest)
        } else if c == '\'' {
            quote_length(rest)
        } else if c.is_alphabetic() || c == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(rest[..end].to_owned());
            end
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else {
            if !c.is_whitespace() {
                tokens.push(c.to_string());
            }
            c.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// The length of a string literal with its quotes.
fn text_length(text: &str) -> usize {
    let mut escaped = false;
    let end = text[1..].find(|c: char| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

/// The length of a raw string literal, `r"…"` or `r#"…"#`.
fn raw_length(text: &str) -> usize {
    let hashes = text[1..].len() - text[1..].trim_start_matches('#').len();
    let end = format!("\"{}", "#".repeat(hashes));
    let begin = hashes + 2;
    text[begin..].find(&end).map_or(text.len(), |at| begin + at + end.len())
}

/// The length of a character literal with its quotes, or 1 for the quote of a lifetime.
fn quote_length(text: &str) -> usize {
    let after = &text[1..];
    if let Some(escape) = after.strip_prefix('\\') {
        return escape[1..].find('\'').map_or(text.len(), |end| end + 4);
    }
    let mut characters = after.char_indices();
    let (first, second) = (characters.next(), characters.next());
    match (first, second) {
        (Some(_), Some((at, '\''))) => at + 2,
        _ => 1,
    }
}
