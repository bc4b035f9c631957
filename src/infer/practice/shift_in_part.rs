//! Targets that no position predicts, because labels are shifted after the sequence is cut. In: a function that takes a loss. Out: labels without their first
//! entry, beside logits without their last, in a file that gives each rank its own part of the sequences: the first token of each
//! part but the first is left out. Never: a file that gathers, sends, lets parts overlap, or shifts labels before. Source: transformers,
//! `shift_labels` under sequence parallelism. Next: `shifted.rs`.

use super::Found;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::view::View;
use crate::source::{Place, Span};

/// What shows that parts are put together again, overlap, or come with targets of their own.
const OTHERWISE: &[&str] =
    &["gather", "send", "recv", "\"shift_labels\"", "roll(", "overlap", "next_token", "halo", "pad(", "] = -100"];
/// Parts of names of ranks that share a sequence.
const SHARING: &[&str] = &["sp", "cp", "ulysses", "sequence", "context", "seq"];

/// `logits[..., :-1, :]` and `labels[..., 1:]`, where `labels` are `whole.chunk(n, dim=1)[rank]`.
pub fn drops(view: &View<'_>, out: &mut Found) {
    let cuts_last = |text: &str| {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        text.contains("logits[...,:-1") || text.contains("logits[:,:-1")
    };
    if !cuts_last(view.code()) {
        return;
    }
    let shifts = |place: Place| {
        let text: String = view.text(place).chars().filter(|c| !c.is_whitespace()).collect();
        text.contains("label") && (text.contains("[...,1:]") || text.contains("[:,1:]"))
    };
    let Some(step) = view.steps.iter().find(|step| step.guards.is_empty() && shifts(view.place(step.id))) else {
        return;
    };
    let text = near::bare(view.file());
    if near::has_any(&text, OTHERWISE) {
        return;
    }
    if let Some(cut) = cut(view, &text) {
        let mistake = Membership::DroppedAtCut { cut };
        out.push((view.place(step.id), Practice::Membership(mistake)));
    }
}

/// Where the file takes the part of a rank out of dim 1.
fn cut(view: &View<'_>, text: &str) -> Option<Place> {
    let mut names = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    if !names.any(|name| SHARING.iter().any(|part| near::has_part(name, part))) {
        return None;
    }
    let file = view.file();
    let mut at = 0;
    for line in file.split_inclusive('\n') {
        let code = line.split('#').next().unwrap_or_default();
        if is_cut(code) {
            let start = at + code.len() - code.trim_start().len();
            let end = at + code.trim_end().len();
            return Some(view.spot(Span::new(start as u32, end as u32)));
        }
        at += line.len();
    }
    None
}

/// `t.chunk(n, dim=1)[rank]`, or `t[:, rank * n : (rank + 1) * n]`.
fn is_cut(line: &str) -> bool {
    let line = line.to_lowercase();
    let line: String = line.chars().filter(|c| !c.is_whitespace()).collect();
    let chunk = line.contains("chunk(") && (line.contains("dim=1)[") || line.contains(",1)["));
    let slice = line.contains("[:,") && line.contains("rank*") && line.contains("rank+1)*") && !line.contains("+1]");
    (chunk || slice) && line.contains("rank")
}
