//! Features that are gathered unlike their siblings. In: a function that gathers two kinds of features side by side. Out: one kind that is cut off its gradient where the
//! other one is not: the argument of a differentiable gather is detached, or a raw gather whose own rows nobody puts back. Never: where the
//! file has a kind of features that is to have no gradient, or kinds that are not named alike. Source: open_clip, `gather_features`. Next: `local_rows.rs`.

use super::Found;
use super::cut_loss::{ONE_SIDED, are_siblings};
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::unshared::Unshared;
use super::view::{CollectiveCall, View};
use crate::ir::{LocalId, Operand, Rvalue, Stmt};
use crate::rules::Form;

/// What puts the rows of a list together.
const JOINS: &[&str] = &["cat", "concat", "stack", "vstack"];

/// A gather of one kind of features.
struct Gather<'a> {
    step: usize,
    /// The features by name.
    features: &'a str,
    detached: bool,
    /// The list that a raw one fills.
    list: Option<LocalId>,
}

/// `all_gather(image)` and `all_gather(text.detach())`; `rows[rank] = image`, and nothing of the kind for text.
pub fn cuts(view: &View<'_>, out: &mut Found) {
    let calls = view.collectives();
    let gathers: Vec<Gather<'_>> = calls.iter().filter_map(|(step, call)| gather(view, *step, call)).collect();
    if gathers.len() < 2 {
        return;
    }
    let text = near::bare(view.file());
    if near::has_any(&text, ONE_SIDED) || text.contains("requires_grad") {
        return;
    }
    let mut found = Vec::new();
    for (i, cut) in gathers.iter().enumerate() {
        let sibling = gathers.iter().enumerate().find(|(j, other)| {
            let together = view.steps[other.step].guards.len() == view.steps[cut.step].guards.len()
                && !super::handles::excludes(&view.steps[cut.step], &view.steps[other.step]);
            *j != i && together && are_siblings(cut.features, other.features) && is_cut(view, cut, other)
        });
        if let Some((_, other)) = sibling {
            found.push((cut, other));
        }
    }
    // One way or the other it is the same kind that is cut on each way: where both are, it is a choice.
    let [(first, _), rest @ ..] = found.as_slice() else { return };
    if rest.iter().any(|(cut, _)| cut.features != first.features) {
        return;
    }
    for (cut, other) in found {
        let mistake = Unshared::SiblingCut {
            features: cut.features.into(),
            sibling: other.features.into(),
            kept: view.place(view.steps[other.step].id),
            detached: cut.detached,
        };
        out.push((view.place(view.steps[cut.step].id), Practice::Unshared(mistake)));
    }
}

/// Whether one of two is cut off its gradient and the other one is not.
fn is_cut(view: &View<'_>, cut: &Gather<'_>, other: &Gather<'_>) -> bool {
    match (cut.list, other.list) {
        (None, None) => cut.detached && !other.detached && cut.features.contains("feat"),
        (Some(list), Some(other)) => {
            only_joined(view, list, cut.step) && is_only_gathered(view, cut) && is_put_back(view, other)
        }
        _ => false,
    }
}

/// Whether a list is joined after the gather as that has left it, and nothing else is done with it.
fn only_joined(view: &View<'_>, list: LocalId, gather: usize) -> bool {
    let later: Vec<usize> = view.readers(list).iter().copied().filter(|step| *step != gather).collect();
    let joins = |step: &usize| match view.value(*step) {
        Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => {
            let named = near::name_of_call(view, *step).is_some_and(|name| JOINS.contains(&name.as_str()));
            *step > gather && named && args.first().is_some_and(|arg| arg.value == Operand::Local(list))
        }
        _ => false,
    };
    !later.is_empty() && later.iter().all(joins)
}

/// Whether nothing but the gather, and what asks for their form, reads features.
fn is_only_gathered(view: &View<'_>, cut: &Gather<'_>) -> bool {
    let form = ["zeros_like", "empty_like", "ones_like", "size", "shape", "numel", "dim"];
    view.func.params.iter().filter(|param| param.name == cut.features).all(|param| {
        view.readers(param.local).iter().all(|step| {
            let asks = near::name_of_call(view, *step).is_some_and(|name| form.contains(&name.as_str()));
            *step == cut.step || asks || matches!(view.value(*step), Some(Rvalue::Attr { .. }))
        })
    })
}

/// Whether something is stored in a list: the rows that have a gradient.
fn is_put_back(view: &View<'_>, list: LocalId) -> bool {
    view.steps.iter().any(|step| match step.stmt {
        Stmt::SetItem { base: Operand::Local(base), .. } => *base == list,
        _ => false,
    })
}

fn gather<'a>(view: &View<'a>, step: usize, call: &CollectiveCall<'a>) -> Option<Gather<'a>> {
    if call.rule.op != "all_gather" || !view.steps[step].loops.is_empty() || view.without_gradient(step) {
        return None;
    }
    let (local, detached) = match view.expr(call.input?) {
        Expr::Local(local) => (local, false),
        Expr::Call { callee, .. } => match *callee {
            Expr::Attr(base, name) if name == "detach" => match *base {
                Expr::Local(local) => (local, true),
                _ => return None,
            },
            _ => return None,
        },
        _ => return None,
    };
    let list = match (call.rule.differentiable, call.output) {
        (true, _) => None,
        (false, Some(Operand::Local(list))) if call.rule.form == Form::IntoList => Some(*list),
        (false, _) => return None,
    };
    Some(Gather { step, features: view.local_name(local), detached, list })
}
