//! Labels that are shifted where each rank has two chunks of the sequence, in more ways than by one call. In: a function. Out: `torch.roll(ids, -1)`, `ids[:, 1:]` with something behind it, or a
//! helper or caller in between, of what was put together from two chunks: where they meet, the label is a token from elsewhere, and a mask of
//! the last place alone does not leave it out. Never: code that sends, gathers, or writes or masks anything inside of labels.
//! Source: verl pull request 4250. Next: `shifted.rs`, `shift_by_hand.rs` for the plain forms, `mirrored.rs`.

use super::Found;
use super::called::callers;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::mirrored::{given, joined, runs_of, two_chunks};
use super::near;
use super::own_part::{helper, returned};
use super::shift_by_hand::{line_of, shifted, without_first};
use super::shifted::{is_written, leaves_out_last, roll};
use super::view::View;
use crate::ir::{Const, Operand, Rvalue, Stmt, UnOp};
use crate::source::{Name, Place};

/// Functions and callers that are followed.
const DEPTH: usize = 2;
/// Parts of names of what is no token.
const OTHERS: &[&str] =
    &["type", "position", "positions", "pos", "segment", "mask", "len", "count", "num", "log", "prob"];
/// Lines above a join in which its chunks are cut.
const ABOVE: usize = 6;
/// What shows that something is done about the places where chunks meet.
const REPAIRS: &[&str] = &[
    "seam",
    "bound",
    "edge",
    "junction",
    "halo",
    "neighb",
    "all_gather",
    "gather_",
    "send",
    "recv",
    "next_rank",
    "permute(",
    "index_fill",
    "index_put",
    "index_copy",
    "scatter_",
    "all_to_all",
    "chunk(2",
    "is_last",
    "last_of",
    "where(",
    "masked_fill(",
];

/// `labels = torch.roll(ids, -1, 1)` after `ids = cut(ids, rank, size)`
pub fn rolls(view: &View<'_>, out: &mut Found) {
    if !near::has_any(view.code(), &["label", "target", "ids", "token"]) {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Some(of) = left(view, i, DEPTH) else { continue };
        let place = view.place(step.id);
        let line = line_of(view, place).to_lowercase();
        let name = named(view, of);
        let other = name.as_deref().is_some_and(|name| OTHERS.iter().any(|part| near::has_part(name, part)));
        let tokens = ["label", "target", "ids", "token", "tokens", "labels", "targets"];
        let is_token = name.as_deref().is_some_and(|name| tokens.iter().any(|part| near::has_part(name, part)));
        if other || !is_token && !near::has_any(&line, &["label", "target"]) {
            continue;
        }
        let known = |(at, practice): &(Place, Practice)| {
            let shift = matches!(practice, Practice::Membership(Membership::ShiftedPart { .. }));
            shift && at.file == place.file
        };
        let two = cut(view, of, i, DEPTH).filter(|at| !is_repaired(view) && !is_of_rows(view, *at));
        let Some(cut) = two.or_else(|| is_token.then(|| own_run(view, i)).flatten()) else { continue };
        if !out.iter().any(known) {
            out.push((place, Practice::Membership(Membership::ShiftedPart { cut })));
            return;
        }
    }
}

/// Where the rank has cut one run out of what a step rolls along the same dim, in a helper or an entry of a dict, if nothing leaves out the last place.
fn own_run(view: &View<'_>, step: usize) -> Option<Place> {
    let (of, shift, dim) = roll(view, step)?;
    let otherwise = || {
        is_repaired(view)
            || near::has_any(view.code(), &["send", "recv", "permute("])
            || view.file().contains("= -100")
            || is_written(view, step)
            || leaves_out_last(view, step)
    };
    let along = |d: i64| d == dim || d + dim == 0 && d.abs() == 1;
    let runs = runs_of(view, of, step);
    let (cut, _) = runs.into_iter().find(|(_, d)| along(*d)).filter(|_| shift == -1 && dim != 0)?;
    (!otherwise()).then_some(cut)
}

/// The name of a value: of a variable, an attribute, or an entry.
fn named(view: &View<'_>, of: &Operand) -> Option<Name> {
    match view.expr(of) {
        Expr::Local(l) => Some(view.local_name(l).to_lowercase()),
        Expr::Attr(_, name) => Some(name.to_lowercase()),
        Expr::Item(_, key) => key.string().map(|key| key.to_lowercase()),
        _ => None,
    }
}

/// What a step shifts to the left by one.
fn left<'a>(view: &View<'a>, step: usize, depth: usize) -> Option<&'a Operand> {
    if let Some(of) = rolled(view, step) {
        return Some(of);
    }
    match view.steps[step].stmt {
        // `labels[:, :-1] = ids[:, 1:]`
        Stmt::SetItem { value, index, .. } => {
            let text = view.text(view.part(view.steps[step].id, 1));
            let _ = index;
            let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            text.ends_with(":-1").then(|| without_first(view, value)).flatten()
        }
        Stmt::Assign { value: value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }), .. } => {
            if let Some(of) = shifted(view, step, 0) {
                return Some(of);
            }
            let (at, bound) = helper(view, value).filter(|_| depth > 0)?;
            let inner = near::shared(view, at);
            let (end, value) = returned(&inner)?;
            let of = left(&inner, inner.last_def(near::local(value)?, end)?, depth - 1)?;
            given(&inner, near::local(of).filter(|l| inner.is_param(*l))?, args, bound)
        }
        _ => None,
    }
}

/// The subject of a roll by one to the left.
fn rolled<'a>(view: &View<'a>, step: usize) -> Option<&'a Operand> {
    let value = view.value(step)?;
    let path = view.callee(value)?;
    let (of, at, args) = match value {
        Rvalue::CallMethod { base, args, .. } if path == ".roll" => (base, 0, args),
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } if path == "torch.roll" => {
            (&args.first()?.value, 1, args)
        }
        _ => return None,
    };
    let one = |e: &Expr| match e {
        Expr::Const(Const::Int(n)) => *n == -1,
        Expr::Unary(UnOp::Neg, n) => **n == Expr::Const(Const::Int(1)),
        _ => false,
    };
    let by = match view.expr(view.argument(args, at, "shifts")?) {
        Expr::Build(items) => items.into_iter().next_back()?,
        other => other,
    };
    one(&by).then_some(of)
}

/// Where a value was put together from two chunks, here or by all who call this function.
fn cut(view: &View<'_>, of: &Operand, before: usize, depth: usize) -> Option<Place> {
    if let Some(cut) = two_chunks(view, of, before) {
        return Some(cut);
    }
    let param = near::local(of).filter(|l| view.is_as_given(*l) && depth > 0)?;
    let mut found = None;
    for (caller, step) in callers(view) {
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = caller.value(step)? else { return None };
        let bound = helper(&caller, caller.value(step)?)?.1;
        let cut = cut(&caller, given(view, param, args, bound)?, step, depth - 1)?;
        found = found.or_else(|| (!is_repaired(&caller)).then_some(cut));
    }
    found
}

/// Whether what is put together are rows: long and short samples, each of them whole.
fn is_of_rows(view: &View<'_>, joined: Place) -> bool {
    let text = view.files[joined.file].whole();
    let before = &text[..(joined.span.end as usize).min(text.len())];
    let near_by: Vec<&str> = before.lines().rev().take(ABOVE).collect();
    near_by.iter().any(|line| {
        let line: String = line.chars().filter(|c| !c.is_whitespace()).collect();
        near::has_any(&line, &["chunk(", "split(", "cat(", "index_select(", "stack("])
            && near::has_any(&line, &["dim=0", ",0)", "axis=0"])
    })
}

/// Whether this function, one that calls it, or one that either calls does something about the places where chunks meet.
fn is_repaired(view: &View<'_>) -> bool {
    let mut texts = vec![view.code().to_owned()];
    texts.extend(callers(view).iter().map(|(caller, _)| caller.code().to_owned()));
    let around = texts.join("\n");
    for at in near::functions(view, view.at.module) {
        let name = view.project.func(at).name.to_lowercase();
        if at != view.at && !name.starts_with('<') && near::has_any(&around, &[format!("{name}(")]) {
            let inner = near::shared(view, at);
            if joined(&inner).is_none() {
                texts.push(inner.code().to_owned());
            }
        }
    }
    texts.iter().any(|text| near::has_any(text, REPAIRS) || text.lines().any(writes_inside))
}

/// Whether a line writes into labels or a mask anywhere but at the last place, or masks by a computed place.
fn writes_inside(line: &str) -> bool {
    let of_labels = near::has_any(line, &["label", "mask", "target", "weight", "valid", "tgt"]);
    let computed = near::has_any(line, &["where(", "masked_fill", " * ", "&", "*="])
        && near::has_any(line, &["- 1", "half", "%", "arange("]);
    if of_labels && computed {
        return true;
    }
    let Some((to, _)) = line.split_once(" = ").filter(|_| of_labels) else { return false };
    let Some((_, index)) = to.trim_end().strip_suffix(']').and_then(|to| to.split_once('[')) else { return false };
    // Behind the key of a dict.
    let index = match index.split_once("][") {
        Some((key, rest)) if key.starts_with(['"', '\'']) => rest,
        _ => index,
    };
    let plain = |part: &str| matches!(part, ":" | "..." | "-1" | "-1:" | ":-1" | "1:") || part.starts_with(['"', '\'']);
    let apart = near::has_any(to, &["view(", "reshape(", "unflatten(", "split("]);
    let is_name = |part: &str| {
        part.chars().all(|c| c.is_alphanumeric() || c == '_') && (part == "key" || part == "k" || part == "name")
    };
    apart || !index.split(',').map(str::trim).all(|part| plain(part) || is_name(part))
}

#[cfg(test)]
mod tests {
    use super::writes_inside;

    #[test]
    fn the_last_place_alone_is_not_inside() {
        assert!(!writes_inside("label_mask[:, -1] = 0"));
        assert!(!writes_inside("batch[\"labels\"] = labels"));
        assert!(!writes_inside("batch[\"labels\"][:, -1] = -100"));
        assert!(writes_inside("batch[\"labels\"][:, [half - 1, -1]] = -100"));
        assert!(writes_inside("labels[:, n // 2 - 1] = -100"));
        assert!(writes_inside("loss_mask = loss_mask * (pos % chunk != chunk - 1)"));
        assert!(writes_inside("labels.view(b, 2, -1)[..., -1] = -100"));
    }
}
