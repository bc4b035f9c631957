//! House rules that a program can check. In: the sources, rules and pages of this repository. Out: every offender at once.
//! Never: taste. Next: `src/lib.rs`, whose drawing of the layers is checked here.

mod support;

use spmd_check::diagnostics::CODES;
use spmd_check::rules::FILES;
use std::collections::BTreeSet;

/// From the bottom up: a layer uses those before it.
const LAYERS: [&str; 15] = [
    "plan",
    "source",
    "types",
    "ir",
    "syntax",
    "project",
    "rules",
    "config",
    "infer",
    "diagnostics",
    "check",
    "fix",
    "render",
    "cli",
    "lsp",
];

/// A dependency and the only layer that names it.
const OWNERS: [(&str, &str); 5] =
    [("ruff_", "syntax"), ("clap", "cli"), ("codespan", "render"), ("lsp_server", "lsp"), ("lsp_types", "lsp")];

/// Frameworks are data: their names stand in `rules/`.
const FRAMEWORKS: [&str; 5] = ["megatron", "torchtitan", "deepspeed", "nanotron", "colossal"];

const LEFT_BEHIND: [&str; 5] = ["unsafe", "todo!", "unimplemented!", "dbg!", "#[ignore"];

const MOST_LINES_OF_A_FILE: usize = 800;
const MANY_LINES_OF_A_FILE: usize = 400;
const MOST_LINES_OF_A_FUNCTION: usize = 80;

/// Path and text of every source file.
fn sources() -> Vec<(String, String)> {
    let paths = support::files_below("src", ".rs");
    paths.into_iter().map(|path| (path.clone(), support::read(&path))).collect()
}

/// The code of a file: without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let body = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    body.lines().map(|line| without_comment(line).to_owned() + "\n").collect()
}

fn without_comment(line: &str) -> &str {
    // `//` inside a string is an address.
    match line.match_indices("//").find(|(at, _)| !line[..*at].ends_with(':')) {
        Some((at, _)) => &line[..at],
        None => line,
    }
}

/// The layer of a source file; none for `lib.rs` and `main.rs`.
fn layer(path: &str) -> Option<&str> {
    let inside = path.strip_prefix("src/")?;
    let name = inside.split('/').next()?.trim_end_matches(".rs");
    LAYERS.contains(&name).then_some(name)
}

fn none(what: &str, offenders: &[String]) {
    assert!(offenders.is_empty(), "{what}:\n  {}", offenders.join("\n  "));
}

/// The names that follow `crate::` in a piece of code, also in braces.
fn crate_names(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let whole_word = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$');
        let rest = &code[at + "crate::".len()..];
        if !whole_word {
            continue;
        }
        let Some(group) = rest.strip_prefix('{') else {
            names.insert(word(rest));
            continue;
        };
        let mut depth = 0;
        let mut start = true;
        for (i, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => start = true,
                c if start && depth == 0 && !c.is_whitespace() => {
                    names.insert(word(&group[i..]));
                    start = false;
                }
                _ => {}
            }
        }
    }
    names
}

fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

#[test]
fn a_layer_uses_those_before_it() {
    let place = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    let mut offenders = Vec::new();
    for (path, text) in sources() {
        let Some(own) = layer(&path) else {
            let known = ["src/lib.rs", "src/main.rs"].contains(&path.as_str());
            assert!(known, "{path} belongs to no layer");
            continue;
        };
        for used in crate_names(&code(&text)) {
            if place(&used) > place(own) {
                offenders.push(format!("{path}: `{own}` uses `{used}`"));
            }
        }
    }
    none("a layer uses a later one", &offenders);
}

#[test]
fn a_dependency_has_one_owner() {
    let mut offenders = Vec::new();
    for (path, text) in sources() {
        for (name, owner) in OWNERS {
            if layer(&path) != Some(owner) && code(&text).contains(name) {
                offenders.push(format!("{path} names `{name}`, which belongs to `{owner}`"));
            }
        }
    }
    none("a dependency is named outside its layer", &offenders);
}

#[test]
fn every_file_says_what_it_is() {
    let tests = support::files_below("tests", ".rs").into_iter().chain(support::files_below("benches", ".rs"));
    let all = sources().into_iter().chain(tests.map(|path| (path.clone(), support::read(&path))));
    let silent: Vec<String> = all.filter(|(_, text)| !text.starts_with("//! ")).map(|(path, _)| path).collect();
    none("no `//!` at the top", &silent);
}

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    for (path, text) in sources() {
        let lines = text.lines().count();
        if lines > MOST_LINES_OF_A_FILE {
            long.push(format!("{path}: {lines}"));
        } else if lines > MANY_LINES_OF_A_FILE {
            println!("note: {path} has {lines} lines");
        }
    }
    none("more than 800 lines", &long);
}

/// Functions with their number of lines. The sources are formatted, so a function ends with a `}` at its own indentation.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let head = line.trim_start();
        let indent = line.len() - head.len();
        let signature = head.split("fn ").next().unwrap_or(head);
        let words = ["pub", "pub(super)", "pub(crate)", "const", "async", "extern", "\"C\""];
        let is_function = head.contains("fn ") && signature.split_whitespace().all(|word| words.contains(&word));
        if !is_function || head.starts_with("//") {
            continue;
        }
        let name = head.split("fn ").nth(1).map(word).unwrap_or_default();
        let end = format!("{}}}", &line[..indent]);
        let length = match line.ends_with('}') || line.ends_with(';') {
            true => 1,
            false => lines[i..].iter().position(|other| *other == end).map_or(1, |n| n + 1),
        };
        found.push((name, i + 1, length));
    }
    found
}

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    for (path, text) in sources() {
        for (name, line, length) in functions(&text) {
            if length > MOST_LINES_OF_A_FUNCTION {
                long.push(format!("{path}:{line}: `{name}` has {length} lines"));
            }
        }
    }
    none("more than 80 lines", &long);
}

#[test]
fn frameworks_are_data() {
    let mut offenders = Vec::new();
    for (path, text) in sources() {
        for (number, line) in code(&text).lines().enumerate() {
            // The table of embedded files names the files.
            let line = match path.as_str() {
                "src/rules/builtin.rs" => line.replace("rules/models/", "rules/\u{0}").replace("../../rules", ""),
                _ => line.to_owned(),
            };
            if line.contains('\u{0}') {
                continue;
            }
            for name in FRAMEWORKS.iter().filter(|name| line.to_lowercase().contains(*name)) {
                offenders.push(format!("{path}:{}: {name}", number + 1));
            }
        }
    }
    none("a framework is named in code", &offenders);
}

#[test]
fn nothing_is_left_behind() {
    let tests = support::files_below("tests", ".rs").into_iter().filter(|path| path != "tests/tidy.rs");
    let all = sources().into_iter().chain(tests.map(|path| (path.clone(), support::read(&path))));
    let mut offenders = Vec::new();
    for (path, text) in all {
        for (number, line) in text.lines().enumerate() {
            let line = without_comment(line);
            for word in LEFT_BEHIND {
                let found = line.match_indices(word).any(|(at, _)| {
                    let inside = |c: char| c.is_alphanumeric() || c == '_';
                    let whole = !line[..at].ends_with(inside) && !line[at + word.len()..].starts_with(inside);
                    whole && !line[..at].ends_with('"')
                });
                if found {
                    offenders.push(format!("{path}:{}: {word}", number + 1));
                }
            }
        }
    }
    none("left behind", &offenders);
}

#[test]
fn every_rule_file_is_embedded() {
    let on_disk: BTreeSet<String> = support::files_below("rules", ".toml").into_iter().collect();
    let embedded: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(on_disk, embedded);
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let pages: BTreeSet<String> = support::files_below("src/diagnostics/pages", ".md").into_iter().collect();
    let codes: BTreeSet<String> = CODES.iter().map(|code| format!("src/diagnostics/pages/{}.md", code.code)).collect();
    assert_eq!(pages, codes);
    let names: BTreeSet<&str> = CODES.iter().map(|code| code.name).collect();
    assert_eq!(names.len(), CODES.len(), "two codes have one name");
    for code in CODES {
        let first = code.page.lines().next().unwrap_or_default();
        let named = first.contains(code.code) && first.contains(code.name);
        assert!(named, "the page of {} begins with {first:?}", code.code);
        assert!(code.name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "`{}` is not kebab case", code.name);
    }
}

/// A path of one machine in a file that everybody gets.
#[test]
fn no_machine_is_named() {
    let marks: Vec<String> = ["work/", "root/", "tmp/bash"].iter().map(|place| format!("/{place}")).collect();
    let endings = ["corpus", "rules", "tests", "src", "scripts", "benches", ".ci"];
    let mut offenders = Vec::new();
    for folder in endings.into_iter().filter(|folder| support::path(folder).is_dir()) {
        for path in support::files_below(folder, "") {
            let Ok(text) = std::fs::read_to_string(support::path(&path)) else { continue };
            for mark in marks.iter().filter(|mark| text.contains(*mark)) {
                offenders.push(format!("{path}: {mark}"));
            }
        }
    }
    none("a path of one machine", &offenders);
}

/// The helpers of this file see what they are meant to see.
#[test]
fn the_checks_see_offenders() {
    let text = "use crate::{cli::args, infer};\nlet x = crate::render::text();\n";
    let names: Vec<String> = crate_names(text).into_iter().collect();
    assert_eq!(names, ["cli", "infer", "render"]);
    let text = "impl A {\n    pub fn b(&self) -> u8 {\n        1\n    }\n}\nconst fn c() {}\n";
    assert_eq!(functions(text), [("b".to_owned(), 2, 3), ("c".to_owned(), 6, 1)]);
    assert_eq!(without_comment("let a = \"https://b\"; // c"), "let a = \"https://b\"; ");
}
