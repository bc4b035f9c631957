//! Backwards that divide by the size of this rank's part where the forward divides by that of the whole. In: the backward of an autograd function. Out: a term that is divided by the length
//! of a dim, whose forward divides it by that length times the number of ranks. Never: a backward that asks for the number of ranks or reduces anything, or a
//! forward that divides by the length of the part as well. Source: NVIDIA/Megatron-LM issue 737, `_VocabParallelCrossEntropy`. Next: `mean_backward.rs`, the same of rows.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::mean_backward::divided;
use super::near;
use super::rank_tests::is_number_of_ranks;
use super::ranks::LONE_JOB;
use super::unshared::Unshared;
use super::view::View;
use crate::ir::{BinOp, LocalId, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};

/// Words of a backward that may bring the number of ranks in.
const RANKS: &[&str] = &["world", "num_ranks", "n_ranks", "group_size", "tp_size", "avg", "num_parts"];
/// What makes a dim longer.
const LONGER: &[&str] = &["cat(", "stack(", "gather_into", "all_gather"];

/// Wrappers that average gradients over ranks.
const AVERAGES: &[&str] = &["distributeddataparallel", "ddp(", "fullyshardeddataparallel", "fsdp", "fully_shard"];
/// What a group of ranks with other samples is called.
const DATA: &[&str] = &["dp_group", "data_parallel", "replica"];

/// The length of a dim of a tensor.
#[derive(Clone, Copy, PartialEq)]
struct Length {
    of: LocalId,
    dim: i64,
}

/// `return grad / x.size(-1)`, where the forward does `total / (x.size(-1) * dist.get_world_size(group))`
pub fn of_part(view: &View<'_>, out: &mut Found) {
    if view.func.name != "backward" || near::has_any(view.code(), RANKS) || !view.collectives().is_empty() {
        return;
    }
    let Some(class) = near::autograd_class(view) else { return };
    let Some(forward) = near::methods(view, class.class).into_iter().find(|m| m.func.name == "forward") else { return };
    // A wrapper that averages over ranks divides by their number.
    // So does a hook, or code that takes the mean of gradients by hand; on one rank the part is the whole.
    let averaged = || {
        let file = near::bare(view.file());
        let by_hand = file.contains(".grad") && near::has_any(&file, &["/= ", ".div_("]);
        by_hand || near::has_any(&file, AVERAGES) || near::has_any(&file, &["register_hook", LONE_JOB])
    };
    if near::has_any(forward.code(), LONGER) || near::has_any(forward.code(), DATA) || averaged() {
        return;
    }
    for step in 0..view.steps.len() {
        let Some((term, by)) = divided(view, step) else { continue };
        // Rows may be those of other samples, whose gradients are averaged elsewhere.
        let part = length_in_backward(view, &forward, &view.expr(by)).filter(|part| part.dim != 0);
        let Some(part) = part else { continue };
        let Some((whole, made)) = divided_by_whole(&forward, part) else { continue };
        if !is_same_term(view, &forward, term, made) || others_know(view, &forward, term) {
            continue;
        }
        let mistake = Unshared::OwnDivisor { whole };
        out.push((view.place(view.steps[step].id), Practice::Unshared(mistake)));
        return;
    }
}

/// The length of a dim: `x.size(-1)`, `x.shape[-1]`, also under a name.
fn length(view: &View<'_>, number: &Expr) -> Option<Length> {
    let dim = |e: &Expr| super::rank_tests::whole(e);
    match near::deep(view, number) {
        Expr::Item(shape, at) => match &*shape {
            Expr::Attr(of, name) if name == "shape" => match &**of {
                Expr::Local(of) => Some(Length { of: *of, dim: dim(&at)? }),
                _ => None,
            },
            _ => None,
        },
        Expr::Call { callee, args, .. } => match (&*callee, args.as_slice()) {
            (Expr::Attr(of, name), [(_, at)]) if name == "size" => match &**of {
                Expr::Local(of) => Some(Length { of: *of, dim: dim(at)? }),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// The same in a backward, of what the forward saved, as the forward knows it.
fn length_in_backward(view: &View<'_>, forward: &View<'_>, by: &Expr) -> Option<Length> {
    if let Some(Length { of, dim }) = length(view, by) {
        let at = near::saved_names(view).map(|names| names.iter().position(|name| *name == of));
        let at = match at {
            Some(at) => at?,
            None => {
                let Expr::Item(saved, at) = view.through(&Operand::Local(of)) else { return None };
                let index = super::rank_tests::whole(&at)?;
                (saved.last_name() == Some(near::SAVED)).then(|| usize::try_from(index).ok())??
            }
        };
        return Some(Length { of: near::local(saved(forward)?.get(at)?)?, dim });
    }
    let Expr::Attr(ctx, name) = near::deep(view, by) else { return None };
    is_context(view, &ctx)
        .then(|| kept(forward, &name))
        .flatten()
        .and_then(|value| length(forward, &forward.expr(value)))
}

/// What a forward saves.
fn saved<'a>(forward: &View<'a>) -> Option<Vec<&'a Operand>> {
    forward.steps.iter().find_map(|step| match step.stmt {
        Stmt::Assign { value: Rvalue::CallMethod { name, args, .. }, .. } if name == "save_for_backward" => {
            Some(args.iter().map(|a| &a.value).collect())
        }
        _ => None,
    })
}

/// Whether an expression is the context of the method.
fn is_context(view: &View<'_>, e: &Expr) -> bool {
    matches!((e, view.func.params.first()), (Expr::Local(local), Some(first)) if first.local == *local)
}

/// What a forward sets an attribute of its context to, once.
fn kept<'a>(forward: &View<'a>, name: &Name) -> Option<&'a Operand> {
    let mut all = forward.steps.iter().filter_map(|step| match step.stmt {
        Stmt::SetAttr { base, name: set, value } if set == name => {
            is_context(forward, &forward.expr(base)).then_some(value)
        }
        _ => None,
    });
    let first = all.next()?;
    all.next().is_none().then_some(first)
}

/// Where a forward divides by the length of a dim times the number of ranks, and what that gives; nothing where it divides by the length as well.
fn divided_by_whole(forward: &View<'_>, part: Length) -> Option<(Place, LocalId)> {
    let alike = |number: &Expr| {
        length(forward, number).is_some_and(|l| {
            let same = || l.of == part.of || near::reached(forward, &Operand::Local(part.of), |_| true).contains(&l.of);
            l.dim == part.dim && same()
        })
    };
    let ranks = |e: &Expr| {
        let e = near::deep(forward, e);
        is_number_of_ranks(forward, &e) || e.call_of("get_world_size").is_some()
    };
    let whole = |number: &Expr| match near::deep(forward, number) {
        Expr::Binary(BinOp::Mul, a, b) => alike(&a) && ranks(&b) || alike(&b) && ranks(&a),
        Expr::Attr(ctx, name) if is_context(forward, &ctx) => {
            kept(forward, &name).is_some_and(|value| match near::deep(forward, &forward.expr(value)) {
                Expr::Binary(BinOp::Mul, a, b) => alike(&a) && ranks(&b) || alike(&b) && ranks(&a),
                _ => false,
            })
        }
        _ => false,
    };
    let mut found = None;
    for step in 0..forward.steps.len() {
        let Some((_, by)) = divided(forward, step) else { continue };
        let by = forward.expr(by);
        if alike(&by) {
            return None;
        }
        if let (Stmt::Assign { dst, .. }, true) = (forward.steps[step].stmt, whole(&by)) {
            found = found.or(Some((forward.place(forward.steps[step].id), *dst)));
        }
    }
    found
}

/// Whether what a backward divides is the gradient of the one result, which is made of what the forward divided, or a number with which that was multiplied.
fn is_same_term(view: &View<'_>, forward: &View<'_>, term: &Operand, made: LocalId) -> bool {
    let of_made = |o: &Operand| near::reached(forward, o, |_| true).contains(&made);
    if let Expr::Attr(ctx, name) = view.expr(term) {
        let factor = kept(forward, &name).filter(|_| is_context(view, &ctx)).map(|value| forward.expr(value));
        let Some(Expr::Local(factor)) = factor else { return false };
        return forward.steps.iter().any(|step| match step.stmt {
            Stmt::Assign { value: Rvalue::Binary { op: BinOp::Mul, left, right }, .. } => {
                let is = |o: &Operand| forward.expr(o).mentions(factor);
                is(left) && of_made(right) || is(right) && of_made(left)
            }
            _ => false,
        });
    }
    let mut returned = forward.steps.iter().filter_map(|step| match step.stmt {
        Stmt::Return { value } => Some(value),
        _ => None,
    });
    let one = returned.next().is_some_and(|value| {
        of_made(value) && !matches!(forward.source(value), Some((_, Rvalue::Build { .. }))) && returned.next().is_none()
    });
    let [_, gradient] = &view.func.params[..] else { return false };
    one && near::reached(view, term, |_| true).contains(&gradient.local)
}

/// Whether anything else that the forward kept, and that the backward reads, may have the number of ranks in it.
fn others_know(view: &View<'_>, forward: &View<'_>, term: &Operand) -> bool {
    let own = match view.expr(term) {
        Expr::Attr(_, name) => Some(name),
        _ => None,
    };
    view.steps.iter().any(|step| match step.stmt {
        Stmt::Assign { value: Rvalue::Attr { base, name }, .. } => {
            let read = is_context(view, &view.expr(base)) && name != near::SAVED && Some(name) != own.as_ref();
            read && kept(forward, name).is_none_or(|value| knows_ranks(forward, value))
        }
        _ => false,
    })
}

/// Whether a value of a forward comes of the number of ranks.
fn knows_ranks(forward: &View<'_>, value: &Operand) -> bool {
    let reached = near::reached(forward, value, |_| true);
    let asks = |s: usize| {
        let made = forward.binds(s).iter().any(|l| reached.contains(l));
        made && near::name_of_call(forward, s).is_some_and(|name| near::has_any(&name, &["_size", "rank"]))
    };
    matches!(value, Operand::Global(_)) || (0..forward.steps.len()).any(asks)
}
