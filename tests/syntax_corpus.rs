//! Every Python file under the directories in `SPMD_SYNTAX_CORPUS` (separated by `:`; without the variable, those of this repository) is
//! parsed and dumped without a panic, and its functions are lowered alone as they are with the file. In: a tree of files. Out: counts and
//! times on standard error.

use spmd_check::ir::FileIr;
use spmd_check::ir::display::dump;
use spmd_check::syntax::{ProblemKind, decode, parse, run_on_big_stack};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn python_files(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            python_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "py" || e == "pyi") {
            found.push(path);
        }
    }
}

#[test]
fn every_file_of_the_corpus_parses() {
    let own = || ["corpus", "tests"].map(|name| format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))).join(":");
    let directories = std::env::var("SPMD_SYNTAX_CORPUS").unwrap_or_else(|_| own());
    for directory in directories.split(':') {
        let mut files = Vec::new();
        python_files(Path::new(directory), &mut files);
        files.sort();
        run_on_big_stack(|| check(directory, &files));
    }
}

/// A function whose text alone is lowered again has the statements that it had.
fn lowered_alone(file: &Path, text: &str, ir: &FileIr) {
    for ((id, func), alone) in ir.funcs.iter_enumerated().zip(ir.lowered_alone()) {
        let again = || spmd_check::syntax::function(text, id, func.span);
        assert!(!alone || again() == func.code, "{}: {} is lowered otherwise alone", file.display(), func.name);
    }
}

fn check(directory: &str, files: &[PathBuf]) {
    let (mut lines, mut funcs, mut stmts, mut parsing) = (0, 0, 0, Duration::ZERO);
    for file in files {
        let Ok(bytes) = std::fs::read(file) else { continue };
        let text = match decode(&bytes) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("{}: {} at {}", file.display(), error.message, error.offset);
                continue;
            }
        };
        lines += text.lines().count();
        let start = Instant::now();
        let parsed = parse(&text);
        parsing += start.elapsed();
        funcs += parsed.ir.funcs.len();
        stmts += parsed.ir.funcs.iter().map(|f| f.code.count()).sum::<usize>();
        assert!(!parsed.ir.funcs.is_empty(), "{}: no module body", file.display());
        let crashed = parsed.problems.iter().any(|p| p.detail == "the parser failed on this file");
        assert!(!crashed, "{}: panicked", file.display());
        for problem in &parsed.problems {
            if problem.kind != ProblemKind::SyntaxError || std::env::var("SPMD_SYNTAX_VERBOSE").is_ok() {
                eprintln!("{}: {:?} {:?} {}", file.display(), problem.kind, problem.span, problem.detail);
            }
        }
        dump(&parsed.ir);
        if parsed.problems.is_empty() {
            lowered_alone(file, &text, &parsed.ir);
        }
    }
    let files = files.len();
    eprintln!(
        "{directory}: {files} files, {lines} lines, {funcs} functions, {stmts} statements, parsed in {parsing:?}"
    );
}
