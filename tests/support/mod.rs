//! What the test programs share. In: files of this repository. Out: their text, and reports of the checker on them.
//! Never: expectations. Next: the tests beside this folder.

// Every test program compiles this file and uses a part of it.
#![allow(dead_code)]

pub mod spec;

use spmd_check::config::Config;
use spmd_check::rules::RuleBook;
use spmd_check::source::{Diagnostic, File, Files};
use spmd_check::{Report, Want, check};
use std::path::{Path, PathBuf};

/// The same as in the program: deep sources recurse deeply.
const STACK_BYTES: usize = 64 << 20;

/// A program on its own, and what is found in it.
pub fn checked(rules: &RuleBook, path: &str) -> (Files, Vec<Diagnostic>) {
    let text = read(path);
    let name = path.rsplit('/').next().expect("a path has a last part");
    let files = files([(name, text.as_str())]);
    let found = run(rules, &files, Want::Findings).diagnostics;
    (files, found)
}

/// A path in this repository.
pub fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

/// The text of a file of this repository.
pub fn read(relative: &str) -> String {
    let path = path(relative);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files below a folder of this repository whose names end like this, sorted, as paths relative to the repository.
pub fn files_below(folder: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(path(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    for entry in entries {
        let entry = entry.expect("the folder can be read");
        let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            found.extend(files_below(&name, ending));
        } else if name.ends_with(ending) {
            found.push(name);
        }
    }
    found.sort();
    found
}

/// Files in memory, in the order given.
pub fn files<'a>(sources: impl IntoIterator<Item = (&'a str, &'a str)>) -> Files {
    let mut files = Files::default();
    for (path, text) in sources {
        files.add(File::new(path, text));
    }
    files
}

/// Runs something on so many threads with deep stacks.
pub fn on_threads<T: Send>(threads: usize, body: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).stack_size(STACK_BYTES).build();
    pool.expect("threads can be started").install(body)
}

/// Checks files with an empty configuration.
pub fn run(rules: &RuleBook, files: &Files, want: Want) -> Report {
    check(&Config::default(), rules, files, want)
}

/// Line of the `# BUG` mark of the only file, from 1.
pub fn marked(files: &Files) -> Option<u32> {
    let (_, file) = files.iter().next().expect("one file was checked");
    let line = file.text.lines().position(|line| line.contains("# BUG"))?;
    u32::try_from(line + 1).ok()
}

/// Whether records are to be rewritten.
pub fn updating() -> bool {
    std::env::var_os("UPDATE").is_some_and(|value| value == "1")
}

/// The line of a diagnostic, from 1.
pub fn line(files: &Files, found: &Diagnostic) -> u32 {
    files[found.place.file].position(found.place.span.start).line
}

/// A title is one line, begins in lower case (or with a type: `S(0)`, `P`) and has no final period.
pub fn assert_title(found: &Diagnostic) {
    let title = &found.message;
    assert!(!title.is_empty() && !title.contains('\n'), "{}: {title:?} is not one line", found.code);
    assert!(!title.ends_with('.'), "{}: {title:?} ends with a period", found.code);
    let is_type = title.starts_with("S(") || title.chars().nth(1) == Some(' ');
    assert!(is_type || !title.starts_with(char::is_uppercase), "{}: {title:?} begins in upper case", found.code);
}

/// Numbers in a fixed order (xorshift): the same on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// A number below `bound`; 0 for an empty range.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % (bound.max(1) as u64)) as usize
    }
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
