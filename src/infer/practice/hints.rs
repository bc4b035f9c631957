//! What comments say of variables in plain words: `# x: this rank's part of the sequence`, `# [s/tp, b, h]`, `# replicated over TP`.
//! In: the text of a function. Out: [`Hint`]s with their places. Never: a finding on their word alone: a check needs the code as well,
//! and shows the comment. Next: the checks that ask.

use super::view::View;
use crate::ir::LocalId;
use crate::source::{Place, Span};

/// What a comment says of the values of its variables on the ranks of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// Different on each rank.
    Varies,
    /// Equal on all ranks.
    Same,
}

/// A comment about variables.
#[derive(Clone, Debug)]
pub struct Hint {
    /// The variables and parameters it names; of a comment behind an assignment, its targets.
    pub locals: Vec<LocalId>,
    /// Attributes of `self` that the line assigns.
    pub attrs: Vec<String>,
    pub says: Says,
    /// Axes it speaks of, by their usual names; empty: it does not say.
    pub axes: Vec<&'static str>,
    /// Dims that are split and the axis as written: of `[s/tp, b]` `(0, "tp")`, of `sequence (dim 1) sharded over CP` `(1, "cp")`.
    pub shards: Vec<(usize, String)>,
    /// A condition in the comment: `with sequence parallelism` or `without`.
    pub under: Option<(&'static str, bool)>,
    /// It is written as a declaration, `x: [s/tp, b]`, before anything else is done with what it names: what a parameter is at entry.
    pub at_entry: bool,
    pub place: Place,
}

/// Words for axes.
const AXES: &[(&str, &[&str])] = &[
    ("tp", &["tp", "tensor-parallel", "tensor parallel", "tensor model parallel", "tensor-model-parallel"]),
    ("dp", &["dp", "data-parallel", "data parallel", "data rank", "data/context", "fsdp"]),
    ("cp", &["cp", "context-parallel", "context parallel", "context rank", "data/context"]),
    ("ep", &["ep", "expert-parallel", "expert parallel"]),
    ("sp", &["sp", "sequence-parallel rank", "sequence parallel rank", "ulysses"]),
];

/// Phrases that say that values are equal.
const SAME: &[&str] = &[
    "same on every",
    "same on all",
    "same on each",
    "replicated",
    "replicate on",
    "identical on",
    "equal on all",
    "equal on every",
    "the same tokens on",
    "complete on",
    "not sharded",
    "no longer sharded",
    "unsharded",
];

/// Phrases that say that values differ.
const VARIES: &[&str] =
    &["rank's", "sharded", "shard of", "split over", "rank-local", "local to this rank", "per-rank"];

/// Conditions that a comment may state.
const CONDITIONS: &[(&str, &str, bool)] = &[
    ("without sequence parallel", "sequence_parallel", false),
    ("with sequence parallel", "sequence_parallel", true),
    ("under sequence parallel", "sequence_parallel", true),
    ("without expert parallel", "expert_parallel", false),
    ("with expert parallel", "expert_parallel", true),
];

/// The hints in a function's text, in order.
pub fn hints(view: &View<'_>) -> Vec<Hint> {
    let file = view.project.file(view.at.module);
    let span = view.func.span;
    let text = view.files[file].slice(span);
    if !text.contains('#') {
        return Vec::new();
    }
    let (mut out, mut start, mut quoted) = (Vec::new(), 0usize, false);
    for line in text.split_inclusive('\n') {
        // Strings of several lines hold no comments.
        let fences = line.matches("\"\"\"").count() + line.matches("'''").count();
        if !quoted && let Some(at) = comment_start(line) {
            let comment = line[at + 1..].trim();
            let place_span =
                Span::new(span.start + (start + at) as u32, span.start + (start + line.trim_end().len()) as u32);
            let code = Span::new(span.start + start as u32, span.start + (start + at) as u32);
            out.extend(hint(view, line[..at].trim(), code, comment, view.spot(place_span)));
        }
        quoted ^= fences % 2 == 1;
        start += line.len();
    }
    out
}

/// Where the comment of a line begins.
fn comment_start(line: &str) -> Option<usize> {
    if !line.contains('#') {
        return None;
    }
    let mut quote = None;
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(q), c) if c == q => quote = None,
            _ => {}
        }
    }
    None
}

fn hint(view: &View<'_>, code: &str, at: Span, comment: &str, place: Place) -> Option<Hint> {
    if comment.starts_with("spmd:") || comment.is_empty() {
        return None;
    }
    let lower = comment.to_lowercase();
    let mut shards = bracket_shards(&lower);
    shards.extend(dim_shards(&lower));
    let says = match (SAME.iter().any(|p| lower.contains(p)), VARIES.iter().any(|p| lower.contains(p))) {
        _ if !shards.is_empty() => Says::Varies,
        (true, _) => Says::Same,
        (false, true) => Says::Varies,
        (false, false) => return None,
    };
    let under = CONDITIONS.iter().find(|(phrase, ..)| lower.contains(phrase)).map(|(_, flag, holds)| (*flag, *holds));
    let under = under.or_else(|| splits_sequence(&lower).then_some(("sequence_parallel", true)));
    let (locals, attrs) = match code.is_empty() {
        true => (named(view, comment), Vec::new()),
        false => targets(view, at),
    };
    let axes = AXES.iter().filter(|(_, words)| words.iter().any(|w| has_word(&lower, w))).map(|(a, _)| *a).collect();
    let at_entry = is_declaration(view, comment, &locals) && is_untouched(view, &locals, at.start);
    Some(Hint { locals, attrs, says, axes, shards, under, at_entry, place })
}

/// Whether a comment declares and does not tell: names, a colon or nothing, and a shape or what is split, or the shape alone.
fn is_declaration(view: &View<'_>, comment: &str, locals: &[LocalId]) -> bool {
    let is_named = |head: &str| head.split(',').all(|w| locals.iter().any(|l| view.local_name(*l) == w.trim()));
    let head = comment.split_once(':').map_or_else(|| comment.split('[').next().unwrap_or_default(), |(head, _)| head);
    let of_another = comment.split_once(']').is_some_and(|(_, rest)| rest.trim_start().starts_with("of "));
    !of_another && (comment.starts_with('[') || is_named(head))
}

/// Whether nothing binds these variables before a place.
fn is_untouched(view: &View<'_>, locals: &[LocalId], at: u32) -> bool {
    let before = |step: &usize| view.func.spans().of(view.steps[*step].id).start < at;
    !locals.iter().any(|l| view.defs(*l).iter().any(before))
}

/// The variables of a function that a comment speaks of: those before a colon, else those among its words; of a bare shape on its own
/// the only parameter.
fn named(view: &View<'_>, comment: &str) -> Vec<LocalId> {
    let find = |word: &str| {
        let all = view.func.locals().iter_enumerated();
        all.filter(|(id, l)| l.name == word && !view.is_temp(*id)).map(|(id, _)| id).next()
    };
    if let Some((head, _)) = comment.split_once(':') {
        let found: Option<Vec<LocalId>> = head.split(',').map(|w| find(w.trim())).collect();
        if let Some(found) = found {
            return found;
        }
    }
    let words = comment.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| w.len() > 1 || *w == "x");
    let found: Vec<LocalId> = words.filter_map(find).collect();
    let mut params = view.func.params.iter().filter(|p| p.name != "self" && p.name != "ctx" && p.name != "cls");
    match (found.is_empty(), comment.starts_with('['), params.next(), params.next()) {
        (true, true, Some(only), None) => vec![only.local],
        _ => found,
    }
}

/// What the line before a comment assigns.
fn targets(view: &View<'_>, line: Span) -> (Vec<LocalId>, Vec<String>) {
    let (mut locals, mut attrs) = (Vec::new(), Vec::new());
    for step in &view.steps {
        let span = view.func.spans().of(step.id);
        if !(line.start <= span.start && span.start < line.end) {
            continue;
        }
        match step.stmt {
            crate::ir::Stmt::Assign { dst, .. } if !view.is_temp(*dst) => locals.push(*dst),
            crate::ir::Stmt::Unpack { before, .. } => locals.extend(before.iter().filter(|l| !view.is_temp(**l))),
            crate::ir::Stmt::SetAttr { name, .. } => attrs.push(name.to_string()),
            _ => {}
        }
    }
    (locals, attrs)
}

/// `[s/tp, b, h]` → dim 0 over tp.
fn bracket_shards(comment: &str) -> Vec<(usize, String)> {
    let Some(open) = comment.find('[') else { return Vec::new() };
    let Some(len) = comment[open..].find(']') else { return Vec::new() };
    let dims = comment[open + 1..open + len].split(',').enumerate();
    dims.filter_map(|(i, dim)| {
        let (_, axis) = dim.split_once('/')?;
        let axis: String = axis.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let named = !axis.is_empty() && !axis.chars().all(|c| c.is_ascii_digit());
        named.then_some((i, axis))
    })
    .collect()
}

/// `[s/tp, b, h]`: the sequence is split over the tensor-parallel ranks, which sequence parallelism does and nothing else.
fn splits_sequence(comment: &str) -> bool {
    comment.match_indices("/tp").any(|(at, _)| {
        let name: String = comment[..at].chars().rev().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        name.ends_with('s')
    })
}

/// `sequence (dim 1) sharded over CP` → dim 1 over cp.
fn dim_shards(comment: &str) -> Vec<(usize, String)> {
    let Some((head, tail)) = comment.split_once("sharded over ") else { return Vec::new() };
    let Some(dim) = head.rsplit_once("dim ") else { return Vec::new() };
    let digits: String = dim.1.chars().take_while(char::is_ascii_digit).collect();
    let axis: String = tail.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    match digits.parse() {
        Ok(dim) if !axis.is_empty() => vec![(dim, axis)],
        _ => Vec::new(),
    }
}

fn has_word(text: &str, word: &str) -> bool {
    let outside = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    text.match_indices(word)
        .any(|(at, _)| outside(text[..at].chars().next_back()) && outside(text[at + word.len()..].chars().next()))
}
