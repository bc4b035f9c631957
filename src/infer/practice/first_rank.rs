//! The first rank of a group, by the size of another one. In: a function. Out: `rank // size * size` under a name that says whose first rank
//! it is, with the size of a group over other axes. Never: names or sizes that say no axis, or that may share ranks with each other.
//! Source: Megatron-LM, `get_tensor_model_parallel_src_rank`; gpt-neox `get_data_parallel_src_rank`. Next: `other_part.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::named_axes::of_size;
use super::near;
use super::other_part::apart;
use super::slips::Slip;
use super::view::View;
use crate::infer::scale::groups::{of_size_name, words};
use crate::ir::{BinOp, Operand, Stmt};
use crate::source::{Name, Place};

/// Endings of names of the first rank of a group.
pub const FIRST: &[&str] = &["_src_rank", "_source_rank", "_first_rank", "_root_rank", "_src", "_root"];

/// `def get_data_parallel_src_rank(): return rank // tp_size * tp_size`
pub fn of_other(view: &View<'_>, out: &mut Found) {
    for step in &view.steps {
        let (name, value) = match step.stmt {
            Stmt::Return { value } => (&view.func.name, value.clone()),
            Stmt::SetAttr { name, value, .. } => (name, value.clone()),
            Stmt::Assign { dst, .. } if !view.is_temp(*dst) => (view.local_name(*dst), Operand::Local(*dst)),
            _ => continue,
        };
        let Some(named) = named(name) else { continue };
        let Some(size) = first_by(view, &value) else { continue };
        let Some(axes) = axes_of(view, &size) else { continue };
        if apart(&named, &axes) {
            let asked = asked_at(view, &size).unwrap_or(view.place(step.id));
            let slip = Slip::FirstOfOther { named, size: axes, asked };
            out.push((view.place(step.id), Practice::Slips(slip)));
            return;
        }
    }
}

/// The axes of whose group a name says that it is the first rank.
fn named(name: &str) -> Option<Vec<Name>> {
    let lower = name.to_lowercase();
    let lower = lower.trim_start_matches('_').trim_start_matches("get_");
    let stem = FIRST.iter().find_map(|end| lower.strip_suffix(end))?;
    // `data_src_rank` has the data, whatever its axis.
    if stem.split('_').any(|word| word == "data") && !stem.contains("parallel") {
        return None;
    }
    Some(words(stem)?.iter().map(|a| Name::from(a.name())).collect())
}

/// `n` of `rank // n * n`
fn first_by(view: &View<'_>, value: &Operand) -> Option<Expr> {
    let Expr::Binary(BinOp::Mul, a, b) = view.through(value) else { return None };
    let of = |rounded: &Expr, n: &Expr| match near::deep(view, rounded) {
        Expr::Binary(BinOp::FloorDiv, _, by) if *by == *n => Some(n.clone()),
        _ => None,
    };
    of(&a, &b).or_else(|| of(&b, &a))
}

fn axes_of(view: &View<'_>, size: &Expr) -> Option<Vec<Name>> {
    let by_name = || match near::deep(view, size) {
        Expr::Call { callee, args, .. } if args.is_empty() => {
            let name = callee.last_name()?.trim_start_matches("get_").to_string();
            Some(of_size_name(&name)?.iter().map(|a| Name::from(a.name())).collect())
        }
        _ => None,
    };
    of_size(view, size).or_else(by_name)
}

fn asked_at(view: &View<'_>, size: &Expr) -> Option<Place> {
    match size {
        Expr::Local(local) => view.defs(*local).first().map(|d| view.place(view.steps[*d].id)),
        _ => None,
    }
}
