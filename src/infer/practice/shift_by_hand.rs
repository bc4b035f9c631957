//! Labels that are shifted by hand where each rank has two chunks of a sequence, one from the front and one from the back. In: a function. Out: `cat([x[1:], fill])`, or
//! a helper that gives that, of chunks that the rank has put together: the last token of the first chunk gets the first token of the second one for its label.
//! Never: files that send, or that set labels to be ignored. Source: verl, `preprocess_packed_seqs`. Next: `shifted.rs`, for one chunk and `torch.roll`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::own_part;
use super::view::View;
use crate::ir::{Arg, BuildKind, Const, Item, Operand, Rvalue};
use crate::source::Place;

/// Helpers one inside the other that are followed.
const MOST_DEPTH: usize = 2;

/// `labels.append(shift_left(local))` after `local = cut(tokens)`
pub fn joins(view: &View<'_>, out: &mut Found) {
    let text = near::bare(view.file());
    if near::has_any(&text, &["send", "recv", "-100", "ignore_index"]) {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let place = view.place(step.id);
        let line = line_of(view, place).to_lowercase();
        if !near::has_any(&line, &["label", "target", "shift"]) {
            continue;
        }
        let Some(of) = shifted(view, i, 0) else { continue };
        if let Some(cut) = two_chunks(view, of, i, 0) {
            out.push((place, Practice::Membership(Membership::ShiftedPart { cut })));
            return;
        }
    }
}

/// The whole line in which a place begins.
pub(super) fn line_of<'a>(view: &View<'a>, place: Place) -> &'a str {
    let (file, at) = (view.file(), place.span.start as usize);
    let (before, behind) = file.split_at_checked(at).unwrap_or((file, ""));
    let from = before.rfind('\n').map_or(0, |end| end + 1);
    let to = behind.find('\n').map_or(file.len(), |end| at + end);
    file.get(from..to).unwrap_or_default()
}

/// What a step shifts to the left by one.
pub(super) fn shifted<'a>(view: &View<'a>, step: usize, depth: usize) -> Option<&'a Operand> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    match view.callee(value)?.as_str() {
        "torch.cat" => {
            let (_, Rvalue::Build { items, .. }) = view.source(&args.first()?.value)? else { return None };
            match items.first()? {
                Item::One(first) => without_first(view, first),
                Item::Star(_) => None,
            }
        }
        "torch.nn.functional.pad" => without_first(view, &args.first()?.value),
        _ => {
            let (at, bound) = own_part::helper(view, value).filter(|_| depth < MOST_DEPTH)?;
            let inner = near::shared(view, at);
            let (end, given) = own_part::returned(&inner)?;
            let made = inner.last_def(near::local(given)?, end)?;
            let param = shifted(&inner, made, depth + 1)?;
            given_for(&inner, param, args, bound)
        }
    }
}

/// `x` of `x[1:]`, `x[..., 1:]`
pub(super) fn without_first<'a>(view: &View<'a>, part: &Operand) -> Option<&'a Operand> {
    let (_, Rvalue::Item { base, index }) = view.source(part)? else { return None };
    let from_one = |o: &Operand| match view.source(o) {
        Some((_, Rvalue::Build { kind: BuildKind::Slice, items })) => match &items[..] {
            [Item::One(start), Item::One(stop), ..] => {
                view.expr(start) == Expr::Const(Const::Int(1)) && view.expr(stop).is_none()
            }
            _ => false,
        },
        _ => false,
    };
    let last = match view.source(index) {
        Some((_, Rvalue::Build { kind: BuildKind::Tuple, items })) => match items.last()? {
            Item::One(last) => from_one(last),
            Item::Star(_) => false,
        },
        _ => from_one(index),
    };
    last.then_some(base)
}

/// What a call gives for the parameter of a function that an operand is there.
fn given_for<'a>(inner: &View<'_>, param: &Operand, args: &'a [Arg], bound: usize) -> Option<&'a Operand> {
    let local = near::local(param).filter(|l| inner.is_param(*l))?;
    let at = inner.func.params.iter().position(|p| p.local == local)?.checked_sub(bound)?;
    args.get(at).filter(|a| a.kind == crate::ir::ArgKind::Positional).map(|a| &a.value)
}

/// Where a value was put together from two chunks by the rank: `cat([chunks[rank], chunks[2 * n - 1 - rank]])`.
fn two_chunks(view: &View<'_>, operand: &Operand, before: usize, depth: usize) -> Option<Place> {
    let local = near::local(operand).filter(|_| depth <= MOST_DEPTH)?;
    let step = view.last_def(local, before)?;
    let value = view.value(step)?;
    let place = view.place(view.steps[step].id);
    let args = match value {
        Rvalue::Use(inner) => return two_chunks(view, inner, step, depth),
        Rvalue::CallMethod { base, name, .. } if matches!(name.as_str(), "contiguous" | "clone" | "to" | "cuda") => {
            return two_chunks(view, base, step, depth);
        }
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => args,
        _ => return None,
    };
    if view.callee(value).is_some_and(|path| path == "torch.cat") {
        let (_, Rvalue::Build { items, .. }) = view.source(&args.first()?.value)? else { return None };
        let [Item::One(first), Item::One(second)] = &items[..] else { return None };
        let chunk = |o: &Operand| match view.source(o) {
            Some((_, Rvalue::Item { base, index })) => Some((near::local(base)?, view.expr(index))),
            _ => None,
        };
        let ((of, one), (again, other)) = (chunk(first)?, chunk(second)?);
        return (of == again && one != other && near::names_rank(view, &one) && near::names_rank(view, &other))
            .then_some(place);
    }
    let (at, _) = own_part::helper(view, value)?;
    let inner = near::shared(view, at);
    let (end, given) = own_part::returned(&inner)?;
    two_chunks(&inner, given, end, depth + 1).map(|_| place)
}
