//! The format of the specification. In: a Markdown file. Out: [`Outcome`]. Never: rewriting expectations.
//!
//! A block fenced as `py` is a program of its own; `# file: name.py` as its first line starts a further file of the block before.
//! Expectations are comments: `# error: [name] "part of the title"` (also `warning`, `note`) at the end of the line on which the
//! finding starts, or on lines of their own directly above it; `# revealed: x: R@dp, S(0)@tp` is the type of a variable after its
//! line. Both directions count: what is expected and missing, and what is found and not expected. `# bug: why` marks behaviour that
//! is wrong and known.

use super::{files, read};
use spmd_check::config::Config;
use spmd_check::source::Severity;
use spmd_check::{TypeRow, Want, check};

/// What came of one file.
#[derive(Default)]
pub struct Outcome {
    pub blocks: usize,
    pub expectations: usize,
    pub bugs: usize,
    pub failures: Vec<String>,
}

struct Block {
    /// Line of the Markdown file on which the code starts, from 1.
    line: usize,
    /// Name and text of each file.
    files: Vec<(String, String)>,
}

#[derive(Debug)]
struct Expected {
    file: String,
    line: u32,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Finding { severity: Severity, name: String, text: String },
    Revealed { variable: String, types: String },
}

/// Runs every block of a Markdown file.
pub fn run_file(path: &str) -> Outcome {
    let text = read(path);
    let mut outcome = Outcome::default();
    for block in blocks(&text) {
        outcome.blocks += 1;
        run_block(path, &block, &mut outcome);
    }
    outcome
}

fn blocks(text: &str) -> Vec<Block> {
    let mut out: Vec<Block> = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        if line.trim_end() != "```py" {
            continue;
        }
        let mut start = 0;
        let mut code = String::new();
        for (n, line) in lines.by_ref() {
            if start == 0 {
                start = n + 1;
            }
            if line.trim_end() == "```" {
                break;
            }
            code.push_str(line);
            code.push('\n');
        }
        let named = code.lines().next().and_then(|l| l.strip_prefix("# file: ")).map(str::to_string);
        match (named, out.last_mut()) {
            (Some(name), Some(block)) => block.files.push((name, code)),
            (named, _) => {
                let name = named.unwrap_or_else(|| "test.py".to_string());
                out.push(Block { line: start, files: vec![(name, code)] });
            }
        }
    }
    out
}

fn run_block(path: &str, block: &Block, outcome: &mut Outcome) {
    let mut expected: Vec<Expected> = Vec::new();
    for (name, code) in &block.files {
        outcome.bugs += code.matches("# bug:").count();
        expected.extend(expectations(name, code));
    }
    outcome.expectations += expected.len();
    let mut sources: Vec<(&str, &str)> = block.files.iter().map(|(n, c)| (n.as_str(), c.as_str())).collect();
    sources.sort_unstable();
    let files = files(sources);
    let report = check(&Config::default(), &spmd_check::rules::builtin(), &files, Want::Types);
    let mut met = vec![false; expected.len()];
    for found in &report.diagnostics {
        let file = &files[found.place.file];
        let line = file.position(found.place.span.start).line;
        // As the one-line format shows it.
        let title = match found.when.as_slice() {
            [] => found.message.clone(),
            when => format!("{} (when {})", found.message, when.join(" or ")),
        };
        let at = expected.iter().enumerate().position(|(i, e)| {
            !met[i]
                && e.file == file.path
                && e.line == line
                && fits(&e.kind, found.severity, found.name, found.code, &title)
        });
        match at {
            Some(i) => met[i] = true,
            None => outcome.failures.push(format!(
                "{path}:{}: not expected: {}:{line}: {} [{}] {}",
                block.line,
                file.path,
                found.severity.as_str(),
                found.name,
                found.message
            )),
        }
    }
    for (e, met) in expected.iter().zip(&mut met) {
        if let Kind::Revealed { variable, types } = &e.kind {
            let row = report.types.iter().rfind(|r| r.path == e.file && r.line == e.line && r.variable == *variable);
            let shown = row.map_or_else(|| "nothing".to_string(), shown);
            *met = shown == *types;
            if !*met {
                outcome
                    .failures
                    .push(format!("{path}:{}: `{variable}` on line {} is {shown}, not {types}", block.line, e.line));
                *met = true;
            }
        }
        if !*met {
            outcome.failures.push(format!("{path}:{}: missing: {e:?}", block.line));
        }
    }
}

fn shown(row: &TypeRow) -> String {
    row.types.iter().map(|(axis, t)| format!("{t}@{axis}")).collect::<Vec<_>>().join(", ")
}

fn fits(kind: &Kind, found: Severity, found_name: &str, code: &str, message: &str) -> bool {
    match kind {
        Kind::Finding { severity, name, text } => {
            *severity == found && (name == found_name || name == code) && message.contains(text.as_str())
        }
        Kind::Revealed { .. } => false,
    }
}

fn expectations(file: &str, code: &str) -> Vec<Expected> {
    let lines: Vec<&str> = code.lines().collect();
    let mut out = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        for (severity, word) in
            [(Severity::Error, "# error: ["), (Severity::Warning, "# warning: ["), (Severity::Note, "# note: [")]
        {
            for (at, _) in line.match_indices(word) {
                let rest = &line[at + word.len()..];
                let Some((name, rest)) = rest.split_once(']') else { continue };
                let text = rest.split('"').nth(1).unwrap_or("").to_string();
                let target = if line[..at].trim().is_empty() { below(&lines, n) } else { n };
                let kind = Kind::Finding { severity, name: name.to_string(), text };
                out.push(Expected { file: file.to_string(), line: target as u32 + 1, kind });
            }
        }
        if let Some((_, rest)) = line.split_once("# revealed: ")
            && let Some((variable, types)) = rest.split_once(": ")
        {
            let kind = Kind::Revealed { variable: variable.to_string(), types: types.trim().to_string() };
            out.push(Expected { file: file.to_string(), line: n as u32 + 1, kind });
        }
    }
    out
}

/// The next line that is not an expectation of its own.
fn below(lines: &[&str], from: usize) -> usize {
    let own = |l: &str| ["# error: [", "# warning: [", "# note: ["].iter().any(|w| l.trim_start().starts_with(w));
    (from + 1..lines.len()).find(|n| !own(lines[*n])).unwrap_or(from)
}
