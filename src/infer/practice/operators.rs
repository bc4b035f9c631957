//! Arguments of collectives in the place of others. In: a function. Out: an operator of a reduction where a rank, a group or a tensor is
//! expected. Never: an argument that is given by a name of its own, or a function of which the arguments are not known.
//! Source: torch.distributed, whose `reduce(tensor, dst, op)` has the rank where `all_reduce(tensor, op)` has the operator.
//! Next: `raw.rs`.

use super::Found;
use super::coming::Coming;
use super::found::Practice;
use super::lost::last;
use super::near;
use super::view::View;
use crate::ir::{Operand, Rvalue};
use crate::rules::Entry;
use crate::source::Name;

/// Arguments that are no operator.
const OTHERS: &[&str] = &["dst", "src", "group", "tensor"];

pub fn as_others(view: &View<'_>, out: &mut Found) {
    for i in 0..view.steps.len() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            continue;
        };
        if !view.may_communicate(value) {
            continue;
        }
        let Some((path, Some(rule))) = view.ruled(value) else { continue };
        let signature = match rule {
            Entry::Intrinsic(rule) if rule.does == "rooted-collective" => &rule.args,
            Entry::Collective(rule) => &rule.args,
            _ => continue,
        };
        let taken = OTHERS.iter().find(|name| {
            let given = signature.index(name).and_then(|at| view.argument(args, at, name));
            given.is_some_and(|o| is_operator(view, o))
        });
        if let Some(taken) = taken {
            let mistake = Coming::OperatorAs { collective: last(&path), argument: Name::from(*taken) };
            out.push((view.place(view.steps[i].id), Practice::Coming(mistake)));
        }
    }
}

/// Whether a value is an operator of reductions.
fn is_operator(view: &View<'_>, operand: &Operand) -> bool {
    let expr = near::deep(view, &view.expr(operand));
    let rule = expr.path().and_then(|path| view.rules.get(path));
    matches!(rule, Some(Entry::Intrinsic(rule)) if rule.does == "reduce-op")
}
