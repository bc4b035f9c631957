//! Programs put together from parts of other programs, so that an input reaches the inference and not only the parser. In: choices, the
//! programs of `corpus/` and recorded ones. Out: text that is mostly Python. Never: chance. Next: `../targets/splice.rs`.

use crate::Bytes;
use std::path::Path;
use std::sync::OnceLock;

/// Longer programs take so long that few of them are tried.
const MOST_LINES: usize = 250;
/// Of each record of programs.
const RECORDED: usize = 60;
const MOST_EDITS: usize = 32;

/// Words that decide what a line means to the checker.
const WORDS: [&str; 64] = [
    "R", "I", "V", "P", "S(0)", "S(-1)", "S(9)", "Replicate()", "Shard(0)", "Partial()", "Partial(\"avg\")", "None", "True",
    "False", "0", "1", "-1", "2", "99999999999999999999", "0.5", "1e308", "\"tp\"", "\"dp\"", "tp", "dp", "world", "self",
    "super()", "*args", "**kwargs", "lambda: None", "[]", "()", "{}", "[*x]", "x[...]", "x[::2]", "not", "and", "or", "in",
    "is", "await", "yield", "==", "!=", "<", "+", "-", "*", "@", "/", "//", "%", "**", ":=", "+=", "torch", "dist.all_reduce",
    "dist.all_gather", "dist.reduce_scatter_tensor", "ctx.save_for_backward", "torch.cat", "x.view(-1)",
];

/// Heads under which a line can be put.
const HEADS: [&str; 12] = [
    "if flag:", "if not flag:", "while flag:", "for i in range(4):", "for x in xs:", "with torch.no_grad():", "try:",
    "def inner(x):", "class Inner(torch.nn.Module):", "if a is None:", "for i, x in enumerate(xs):",
    "if torch.distributed.get_rank() == 0:",
];

/// Lines that are put between others.
const LINES: [&str; 16] = [
    "pass", "return x", "return", "break", "continue", "raise ValueError", "except Exception:", "else:", "finally:", "del x",
    "global x", "x = x", "x = y = x + x", "# spmd: x: {tp: P}", "x, *y = x", "assert isinstance(x, torch.Tensor)",
];

/// Texts of programs, the same in every run.
pub fn programs() -> &'static [Vec<String>] {
    static ALL: OnceLock<Vec<Vec<String>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let mut texts = Vec::new();
        python_files(&root.join("corpus"), &mut texts);
        for record in ["local", "structured", "global", "xla", "autograd"] {
            let text = std::fs::read_to_string(root.join(format!("tests/oracle/{record}.jsonl"))).unwrap_or_default();
            let sources = text.lines().filter_map(|line| {
                let case: serde_json::Value = serde_json::from_str(line).ok()?;
                case["source"].as_str().map(str::to_owned)
            });
            texts.extend(sources.take(RECORDED));
        }
        let lines = |text: &String| text.lines().map(str::to_owned).collect::<Vec<String>>();
        let all: Vec<Vec<String>> = texts.iter().map(lines).filter(|lines| lines.len() <= MOST_LINES).collect();
        assert!(!all.is_empty(), "no programs below {}", root.display());
        all
    })
}

fn python_files(folder: &Path, texts: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            python_files(&path, texts);
        } else if path.extension().is_some_and(|extension| extension == "py") {
            texts.extend(std::fs::read_to_string(path));
        }
    }
}

/// A program with parts of others in it.
pub fn spliced(choices: &mut Bytes) -> String {
    let programs = programs();
    let mut lines = choices.pick(programs).cloned().unwrap_or_default();
    for _ in 0..MOST_EDITS {
        if choices.is_empty() {
            break;
        }
        edit(&mut lines, programs, choices);
    }
    lines.join("\n") + "\n"
}

fn edit(lines: &mut Vec<String>, programs: &[Vec<String>], choices: &mut Bytes) {
    let kind = choices.below(14);
    let at = choices.below(lines.len());
    let Some(here) = lines.get(at).cloned() else { return };
    match kind {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, here),
        2 => {
            let other = choices.below(lines.len());
            lines.swap(at, other);
        }
        3 | 4 => {
            let other = choices.pick(programs).and_then(|program| choices.pick(program)).cloned().unwrap_or_default();
            let line = indented(&other, indent(&here));
            if kind == 3 {
                lines[at] = line;
            } else {
                lines.insert(at, line);
            }
        }
        5 | 6 => {
            // A whole block of another program, or of this one.
            let from = if kind == 5 { choices.pick(programs).cloned().unwrap_or_default() } else { lines.clone() };
            let start = choices.below(from.len());
            let block = &from[start..end_of_block(&from, start)];
            let base = block.first().map_or(0, |line| indent(line));
            let moved = block.iter().map(|line| indented(line, indent(&here) + indent(line).saturating_sub(base)));
            let moved: Vec<String> = moved.collect();
            lines.splice(at..at, moved);
        }
        7 => drop(lines.drain(at..end_of_block(lines, at))),
        8 => {
            let end = end_of_block(lines, at);
            let head = indented(choices.pick(&HEADS).copied().unwrap_or("if x:"), indent(&here));
            for line in &mut lines[at..end] {
                line.insert_str(0, "    ");
            }
            lines.insert(at, head);
        }
        9 => lines.insert(at, indented(choices.pick(&LINES).copied().unwrap_or("pass"), indent(&here))),
        10 => {
            // One word in the place of another.
            let new = choices.pick(&WORDS).copied().unwrap_or("x").to_owned();
            lines[at] = with_token(&here, choices, &new);
        }
        11 | 12 => {
            let line = choices.pick(lines).cloned().unwrap_or_default();
            let tokens: Vec<&str> = tokens(&line).into_iter().filter(|t| !t.trim().is_empty()).collect();
            let new = choices.pick(&tokens).copied().unwrap_or("x").to_owned();
            lines[at] = with_token(&here, choices, &new);
        }
        _ => {
            // One name is called like another one from here on.
            let names: Vec<String> =
                lines.iter().flat_map(|line| tokens(line)).filter(|t| is_name(t)).map(str::to_owned).collect();
            let (old, new) = (choices.pick(&names).cloned(), choices.pick(&names).cloned());
            let (Some(old), Some(new)) = (old, new) else { return };
            for line in &mut lines[at..] {
                *line = tokens(line).into_iter().map(|token| if token == old { new.as_str() } else { token }).collect();
            }
        }
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn indented(line: &str, by: usize) -> String {
    " ".repeat(by) + line.trim_start()
}

/// After the lines that are indented deeper than the first.
fn end_of_block(lines: &[String], start: usize) -> usize {
    let Some(first) = lines.get(start) else { return start };
    let inside = |line: &&String| line.trim().is_empty() || indent(line) > indent(first);
    (start + 1 + lines[start + 1..].iter().take_while(inside).count()).min(lines.len())
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words, numbers, runs of spaces, single marks.
fn tokens(line: &str) -> Vec<&str> {
    let kind = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 1,
        ' ' => 2,
        _ => 0,
    };
    let mut out = Vec::new();
    let (mut start, mut last) = (0, None);
    for (at, c) in line.char_indices() {
        if at > 0 && (kind(c) == 0 || last != Some(kind(c))) {
            out.push(&line[start..at]);
            start = at;
        }
        last = Some(kind(c));
    }
    out.push(&line[start..]);
    out
}

fn with_token(line: &str, choices: &mut Bytes, new: &str) -> String {
    let mut tokens = tokens(line);
    let solid: Vec<usize> = (0..tokens.len()).filter(|i| !tokens[*i].trim().is_empty()).collect();
    if let Some(at) = choices.pick(&solid) {
        tokens[*at] = new;
    }
    tokens.concat()
}
