//! Texts with edits, and the difference between two texts. In: files and edits. Out: files, unified diffs. Never: reformatting what no edit
//! covers. Next: `mod.rs`.

use crate::source::{Edit, File, FileId, Files};
use std::fmt::Write as _;
use std::sync::Arc;

/// Lines of context around a change.
const CONTEXT: usize = 3;
/// A changed region of more lines than this is shown as a whole.
const MOST_LINES: usize = 3000;

/// The files, some with another text.
pub fn replaced(files: &Files, texts: &[(FileId, String)]) -> Files {
    let mut out = Files::default();
    for (id, file) in files.iter() {
        let other = texts.iter().find(|(changed, _)| *changed == id).map(|(_, text)| Arc::new(text.clone()));
        let mut copy = File::sharing(file.path.clone(), other.unwrap_or_else(|| file.text.clone()));
        copy.reported = file.reported;
        copy.unreadable = file.unreadable.clone();
        out.add(copy);
    }
    out
}

/// The files with edits applied; nothing if two of them overlap.
pub fn apply(files: &Files, edits: &[Edit]) -> Option<Files> {
    let mut sorted: Vec<&Edit> = edits.iter().collect();
    sorted.sort_by_key(|edit| (edit.place.file, edit.place.span.start, edit.place.span.end));
    sorted.dedup();
    let overlap = |pair: &[&Edit]| match pair {
        [a, b] => a.place.file == b.place.file && b.place.span.start < a.place.span.end,
        _ => false,
    };
    if sorted.windows(2).any(overlap) {
        return None;
    }
    let mut texts: Vec<(FileId, String)> = Vec::new();
    for edit in sorted.into_iter().rev() {
        let id = edit.place.file;
        if !texts.iter().any(|(known, _)| *known == id) {
            texts.push((id, files[id].text.to_string()));
        }
        let (_, text) = texts.iter_mut().find(|(known, _)| *known == id)?;
        let range = edit.place.span.start as usize..edit.place.span.end as usize;
        text.get(range.clone())?;
        text.replace_range(range, &edit.text);
    }
    Some(replaced(files, &texts))
}

/// One line of a comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Keep,
    Remove,
    Add,
}

/// A unified diff of a file; empty if the texts are equal.
pub fn unified_diff(path: &str, old: &str, new: &str) -> String {
    if old == new {
        return String::new();
    }
    let (a, b): (Vec<&str>, Vec<&str>) = (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let steps = steps(&a, &b);
    let mut out = format!("--- {path}\n+++ {path}\n");
    let mut at = 0;
    let (mut i, mut j) = (0, 0);
    while at < steps.len() {
        if steps[at] == Step::Keep {
            (at, i, j) = (at + 1, i + 1, j + 1);
            continue;
        }
        let lead = CONTEXT.min(i);
        let start = at - lead;
        // A hunk goes on while changes are close together.
        let mut end = at;
        let mut quiet = 0;
        while end < steps.len() && quiet <= 2 * CONTEXT {
            quiet = if steps[end] == Step::Keep { quiet + 1 } else { 0 };
            end += 1;
        }
        end -= quiet.saturating_sub(CONTEXT);
        let part = &steps[start..end];
        let lines = |without: Step| part.iter().filter(|s| **s != without).count();
        let head = |first: usize, count: usize| format!("{},{count}", if count == 0 { first } else { first + 1 });
        let (from, to) = (i - lead, j - lead);
        let _ = writeln!(out, "@@ -{} +{} @@", head(from, lines(Step::Add)), head(to, lines(Step::Remove)));
        (i, j) = (from, to);
        for step in part {
            let (mark, line) = match step {
                Step::Keep => (' ', a.get(i)),
                Step::Remove => ('-', a.get(i)),
                Step::Add => ('+', b.get(j)),
            };
            i += usize::from(*step != Step::Add);
            j += usize::from(*step != Step::Remove);
            let line = line.copied().unwrap_or("");
            let _ = write!(out, "{mark}{line}");
            if !line.ends_with('\n') {
                out.push_str("\n\\ No newline at end of file\n");
            }
        }
        at = end;
    }
    out
}

/// The steps from one list of lines to another, with the longest common part kept.
fn steps(a: &[&str], b: &[&str]) -> Vec<Step> {
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let tail = a[same..].iter().rev().zip(b[same..].iter().rev()).take_while(|(x, y)| x == y).count();
    let (old, new) = (&a[same..a.len() - tail], &b[same..b.len() - tail]);
    let mut out = vec![Step::Keep; same];
    if old.len().max(new.len()) > MOST_LINES {
        out.extend(old.iter().map(|_| Step::Remove));
        out.extend(new.iter().map(|_| Step::Add));
    } else {
        // `best[i][j]`: how many lines `old[i..]` and `new[j..]` have in common.
        let mut best = vec![vec![0u32; new.len() + 1]; old.len() + 1];
        for i in (0..old.len()).rev() {
            for j in (0..new.len()).rev() {
                best[i][j] = if old[i] == new[j] { best[i + 1][j + 1] + 1 } else { best[i + 1][j].max(best[i][j + 1]) };
            }
        }
        let (mut i, mut j) = (0, 0);
        while i < old.len() || j < new.len() {
            if i < old.len() && j < new.len() && old[i] == new[j] {
                out.push(Step::Keep);
                (i, j) = (i + 1, j + 1);
            } else if i < old.len() && (j == new.len() || best[i + 1][j] >= best[i][j + 1]) {
                out.push(Step::Remove);
                i += 1;
            } else {
                out.push(Step::Add);
                j += 1;
            }
        }
    }
    out.extend(std::iter::repeat_n(Step::Keep, tail));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_has_context_and_line_numbers() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = "1\n2\n3\n4\nfive\n6\n7\n8\n9";
        let wanted =
            "--- f\n+++ f\n@@ -2,8 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n-9\n+9\n\\ No newline at end of file\n";
        assert_eq!(unified_diff("f", old, new), wanted);
        assert_eq!(unified_diff("f", old, old), "");
        assert_eq!(unified_diff("f", "", "a\n"), "--- f\n+++ f\n@@ -0,0 +1,1 @@\n+a\n");
    }
}
