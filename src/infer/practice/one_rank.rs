//! Collectives that run only where there is nobody to talk to. In: a function. Out: a collective behind a test that there is one rank, of its
//! group or of the whole job. Never: the size of another group, and functions that communicate on the other side as well.
//! Source: torch.distributed, whose collectives over one rank change nothing. Next: `nones.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::view::{Guard, View};
use crate::infer::repeated::statement;
use crate::ir::{ArgKind, Block, CmpOp, Const, Rvalue, Stmt, UnOp};
use crate::rules::Entry;
use crate::source::Name;

const OPERATIONS: &[&str] = &["all_reduce", "reduce_scatter", "all_gather", "broadcast"];
/// Functions that count ranks.
const COUNTS: &[&str] = &["get_world_size", "world_size", "xrt_world_size"];
/// What the number of all ranks is called.
const WORLD: &[&str] = &["world_size", "world"];

/// Intrinsics that reduce over all ranks.
const REDUCES: &[&str] = &["reduce-scaled", "gradients-averaged"];

/// `if world_size > 1: return`, `all_reduce(grad)`
pub fn alone(view: &View<'_>, out: &mut Found) {
    let all: Vec<(usize, Name, Option<Expr>)> =
        (0..view.steps.len()).filter_map(|i| communicates(view, i).map(|(name, group)| (i, name, group))).collect();
    for (i, collective, group) in &all {
        let asked = view.steps[*i].guards.iter().find(|guard| {
            let size = is_one(&view.through(guard.test), guard.holds);
            size.is_some_and(|size| counts(view, &size, group.as_ref()))
        });
        let Some(guard) = asked.filter(|guard| !refuses(view, guard)) else { continue };
        let elsewhere = |j: usize| view.steps[j].guards.iter().any(|g| g.at == guard.at && g.holds != guard.holds);
        if all.iter().any(|(j, ..)| elsewhere(*j)) {
            continue;
        }
        let (collective, reached) = (collective.clone(), view.place(view.steps[*i].id));
        out.push((view.part(guard.at, 0), Practice::Membership(Membership::OneRank { collective, reached })));
        return;
    }
}

/// Whether more ranks are refused, and not left out: the other side raises.
fn refuses(view: &View<'_>, guard: &Guard<'_>) -> bool {
    let raises = |block: &Block| block.iter().any(|node| matches!(node.stmt, Stmt::Raise));
    match statement(view.func.body(), guard.at) {
        Some(Stmt::Assert { .. }) => true,
        Some(Stmt::If { then, orelse, .. }) => raises(if guard.holds { orelse } else { then }),
        _ => false,
    }
}

/// The collective that a step calls, and its group, if it is given one.
fn communicates(view: &View<'_>, step: usize) -> Option<(Name, Option<Expr>)> {
    let value = view.value(step)?;
    if let Some(call) = view.collective(value) {
        let group = call.group.map(|g| near::deep(view, &view.expr(g))).filter(|g| !g.is_none());
        return OPERATIONS.contains(&call.rule.op.as_str()).then(|| (super::lost::last(&call.rule.name), group));
    }
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    match view.ruled(value)? {
        (path, Some(Entry::Intrinsic(rule))) if REDUCES.contains(&rule.does.as_str()) => {
            let grouped = args.iter().any(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == "groups"));
            (!grouped).then(|| (super::lost::last(&path), None))
        }
        _ => None,
    }
}

/// The number that is one where a condition holds, or does not.
fn is_one(test: &Expr, holds: bool) -> Option<Expr> {
    match test {
        Expr::Bool { and, of } if *and == holds => of.iter().find_map(|e| is_one(e, holds)),
        Expr::Unary(UnOp::Not, inner) => is_one(inner, !holds),
        Expr::Compare(op, size, number) => {
            let one = matches!(**number, Expr::Const(Const::Int(1)));
            let two = matches!(**number, Expr::Const(Const::Int(2)));
            let is = match op {
                CmpOp::Eq | CmpOp::Le if one => true,
                CmpOp::Lt if two => true,
                CmpOp::Gt | CmpOp::Ne if one => false,
                CmpOp::Ge if two => false,
                _ => return None,
            };
            (is == holds).then(|| (**size).clone())
        }
        _ => None,
    }
}

/// Whether a number is that of the ranks of a group, or of all ranks.
fn counts(view: &View<'_>, size: &Expr, group: Option<&Expr>) -> bool {
    match near::deep(view, size) {
        Expr::Call { callee, args, .. } if callee.last_name().is_some_and(|n| COUNTS.contains(&n)) => {
            match args.as_slice() {
                [] => callee.path().is_some(),
                [(_, of)] => group.is_some_and(|g| near::deep(view, of) == *g),
                _ => false,
            }
        }
        Expr::Local(local) => WORLD.contains(&view.local_name(local).as_str()) && group.is_none(),
        Expr::Attr(_, name) => WORLD.contains(&name.as_str()) && group.is_none(),
        _ => false,
    }
}
