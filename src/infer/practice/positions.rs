//! Positions of a part of a sequence that start anew on every rank. In: a function. Out: `arange` over the length of tokens of which the rank has
//! cut its part out, under a name of positions. Never: positions that anything is added to. Next: `uncut_buffer.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::shifted::cut_dim;
use super::view::View;
use super::{near, own_part};
use crate::ir::{ArgKind, Const, Operand, Rvalue, Stmt};
use crate::source::Name;

/// `position_ids = torch.arange(tokens.size(1))` after `tokens = tokens.chunk(n, dim=1)[rank]`.
pub fn restarted(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value: value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) } =
            step.stmt
        else {
            continue;
        };
        if view.callee(value).is_none_or(|path| path != "torch.arange") {
            continue;
        }
        let given: Vec<&Operand> = args.iter().filter(|a| a.kind == ArgKind::Positional).map(|a| &a.value).collect();
        let [length] = given.as_slice() else { continue };
        let Some((of, dim)) = length_of(view, length) else { continue };
        let Some((_, cut)) = own_part::part(view, of, i, 0) else { continue };
        if cut_dim(view, of, i, 0) != Some(dim) || !is_position(view, *dst) || is_moved(view, *dst) {
            continue;
        }
        let Some(tokens) = near::local(of).map(|l| view.local_name(l).clone()) else { continue };
        out.push((view.place(step.id), Practice::Membership(Membership::PositionsRestart { tokens, cut })));
    }
}

/// The tensor and the dim of `tokens.size(1)` or `tokens.shape[1]`.
fn length_of<'a>(view: &View<'a>, length: &Operand) -> Option<(&'a Operand, i64)> {
    let number = |o: &Operand| match view.expr(o) {
        Expr::Const(Const::Int(n)) => Some(n),
        _ => None,
    };
    match view.source(length)?.1 {
        Rvalue::CallMethod { base, name, args } if name == "size" => Some((base, number(&args.first()?.value)?)),
        Rvalue::Item { base, index } => match view.source(base)?.1 {
            Rvalue::Attr { base: of, name } if name == "shape" => Some((of, number(index)?)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a value goes by a name of positions, or is given under one.
fn is_position(view: &View<'_>, local: crate::ir::LocalId) -> bool {
    let named = |name: &Name| ["pos", "position", "positions"].iter().any(|word| near::has_part(name, word));
    let given = |step: &usize| match view.value(*step) {
        Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => args
            .iter()
            .any(|a| a.value == Operand::Local(local) && matches!(&a.kind, ArgKind::Keyword(name) if named(name))),
        _ => false,
    };
    !view.is_temp(local) && named(view.local_name(local)) || view.readers(local).iter().any(given)
}

/// Whether anything is done with positions that may move them.
fn is_moved(view: &View<'_>, local: crate::ir::LocalId) -> bool {
    view.defs(local).len() != 1
        || view.readers(local).iter().any(|step| match view.value(*step) {
            Some(Rvalue::Binary { .. } | Rvalue::InPlace { .. }) => true,
            Some(Rvalue::CallMethod { base, name, .. }) => {
                *base == Operand::Local(local) && !["unsqueeze", "expand", "to", "expand_as"].contains(&name.as_str())
            }
            _ => false,
        })
}
