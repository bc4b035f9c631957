//! The two ways to take a norm. In: a function. Out: under a test whether the norm is that of the largest entry, and in its other branch, a
//! reduction that belongs into the other one: the largest is summed, or sums of powers are compared; or ranks over which one branch
//! reduces, and the other does not. Never: a branch that calls what may communicate, or values that are not called a norm.
//! Source: torch.nn.utils, `get_total_norm`: the largest norm for infinity, the root of a sum otherwise. Next: `shard_norm.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::training::Training;
use super::view::{CollectiveCall, View};
use super::{Found, hidden_change, hidden_sum, near};
use crate::ir::{ArgKind, CmpOp, LocalId, Operand, Rvalue, Stmt, StmtId};
use crate::rules::Form;
use crate::source::Name;
use rustc_hash::FxHashSet;

/// What one branch does.
struct Side<'v, 'a> {
    reductions: Vec<(usize, &'v CollectiveCall<'a>)>,
    binds: FxHashSet<LocalId>,
    /// Something in it may communicate besides.
    open: bool,
}

/// `if norm_type == inf: all_reduce(total_norm, op=MAX) else: all_reduce(total_norm)`
pub fn of_norms(view: &View<'_>, out: &mut Found) {
    for step in &view.steps {
        let Some(largest) = asks_largest(view, step.stmt) else { continue };
        let (inf, other) = (side(view, step.id, largest), side(view, step.id, !largest));
        if !inf.binds.intersection(&other.binds).any(|l| view.local_name(*l).contains("norm")) {
            continue;
        }
        let test = view.part(step.id, 0);
        for (side, largest) in [(&inf, true), (&other, false)] {
            for (i, call) in &side.reductions {
                let operation = operation(view, call);
                let wrong = match operation.as_deref() {
                    Some("MAX") => !largest,
                    Some("SUM") => largest,
                    Some("AVG") => true,
                    _ => false,
                };
                if let Some(operation) = operation.filter(|_| wrong && is_norm(view, call)) {
                    let mistake = Training::NormOperation { largest, operation, test };
                    out.push((view.place(view.steps[*i].id), Practice::Training(mistake)));
                }
            }
        }
        for (has, lacks, largest) in [(&inf, &other, false), (&other, &inf, true)] {
            let missing = has.reductions.iter().find(|(_, call)| is_norm(view, call) && !covers(view, lacks, call));
            // Several groups, one after the other, may be the ranks of one.
            let others = || lacks.reductions.iter().all(|(_, call)| !covers(view, has, call));
            let both = has.reductions.len() > 1 && !lacks.reductions.is_empty() && others();
            let product = lacks.reductions.len() > has.reductions.len() || both;
            let Some((i, call)) = missing.filter(|_| !has.open && !lacks.open && !product) else { continue };
            let group = call.group.map(|g| Name::from(shown(view, g))).filter(|name| name != "WORLD");
            let mistake = Training::NormOneSide { largest, group, reduced: view.place(view.steps[*i].id) };
            out.push((test, Practice::Training(mistake)));
        }
    }
}

/// Whether a branch asks for the norm of the largest entry, and on which side.
fn asks_largest(view: &View<'_>, stmt: &Stmt) -> Option<bool> {
    let Stmt::If { test, .. } = stmt else { return None };
    let (op, other) = match view.through(test) {
        Expr::Compare(op @ (CmpOp::Eq | CmpOp::Ne), a, b) => (op, [*a, *b]),
        _ => return None,
    };
    other.iter().any(|e| near::is_without_bound(view, e)).then_some(op == CmpOp::Eq)
}

fn side<'v, 'a>(view: &'v View<'a>, test: StmtId, holds: bool) -> Side<'v, 'a> {
    let inside = |i: usize| view.steps[i].guards.iter().any(|g| g.at == test && g.holds == holds);
    let sums = |call: &CollectiveCall<'_>| call.rule.op == "all_reduce" && call.rule.form == Form::InPlace;
    let all = view.collectives().iter().filter(|(i, _)| inside(*i));
    let (mut reductions, mut open) = (Vec::new(), false);
    for (i, call) in all {
        if sums(call) { reductions.push((*i, call)) } else { open = true }
    }
    let mut binds = FxHashSet::default();
    for i in (0..view.steps.len()).filter(|i| inside(*i)) {
        binds.extend(view.binds(i).iter().copied().filter(|l| !view.is_temp(*l)));
        let seen = reductions.iter().any(|(at, _)| *at == i);
        let hides = |value| hidden_sum::may_exchange(view, value) || hidden_change::maps(view, value);
        open |= !seen && (view.value(i).is_some_and(hides) || takes_norm(view, i) || lists_norm(view, i));
    }
    Side { reductions, binds, open }
}

/// Whether a step gives a norm to something of which nothing is known, and leaves its result alone.
fn takes_norm(view: &View<'_>, step: usize) -> bool {
    let norm = |e: &Expr| matches!(e, Expr::Local(l) if view.local_name(*l).contains("norm"));
    hidden_change::gives_away(view, step, &|o| view.expr(o).any(&mut |e| norm(e)))
}

/// Whether a step puts a norm into a list or a dict, from which anything may take it: what a tensor is made of is none.
fn lists_norm(view: &View<'_>, step: usize) -> bool {
    let norm = |o: &&Operand| near::local(o).is_some_and(|l| view.local_name(l).contains("norm"));
    let Stmt::Assign { dst, value: value @ Rvalue::Build { .. } } = view.steps[step].stmt else { return false };
    let of_torch = |reader: &usize| {
        view.value(*reader).and_then(|call| view.callee(call)).is_some_and(|path| {
            path.starts_with("torch.") || path.rsplit('.').next().is_some_and(|last| last.contains("applier"))
        })
    };
    let kept = !view.is_temp(*dst) || !view.readers(*dst).iter().all(of_torch);
    kept && value.operands().iter().any(norm)
}

/// Whether a branch reduces over the ranks of a reduction of the other one, as far as can be told: all ranks are those of any group, and any
/// groups may be all ranks together.
fn covers(view: &View<'_>, side: &Side<'_, '_>, of: &CollectiveCall<'_>) -> bool {
    let group = |call: &CollectiveCall<'_>| {
        let group = call.group.map(|g| view.expr(g)).filter(|e| !e.is_none() && e.last_name() != Some("WORLD"));
        group.map(|e| spelled(view, &e))
    };
    match group(of) {
        None => !side.reductions.is_empty(),
        Some(wanted) => side.reductions.iter().any(|(_, call)| group(call).is_none_or(|g| g == wanted || g.is_none())),
    }
}

/// An expression as it is written; nothing where it is more than names, members and calls.
fn spelled(view: &View<'_>, e: &Expr) -> Option<String> {
    Some(match e {
        Expr::Local(local) => view.local_name(*local).to_string(),
        Expr::Path(path) => super::lost::last(path).to_string(),
        Expr::Attr(base, name) => format!("{}.{name}", spelled(view, base)?),
        Expr::Const(c) => format!("{c:?}"),
        Expr::Call { callee, args, .. } => {
            let args: Option<Vec<String>> = args.iter().map(|(_, e)| spelled(view, e)).collect();
            format!("{}({})", spelled(view, callee)?, args?.join(","))
        }
        Expr::Item(base, index) => format!("{}[{}]", spelled(view, base)?, spelled(view, index)?),
        _ => return None,
    })
}

/// The operation of a reduction, as its argument says; a sum where none is given.
fn operation<'a>(view: &View<'a>, call: &CollectiveCall<'a>) -> Option<Name> {
    let open = call.args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar));
    call.rule.reduce_op.filter(|_| !open)?;
    match view.operator(call) {
        None => Some(Name::from("SUM")),
        Some(given) => view.through(given).last_name().map(Name::from),
    }
}

/// Whether what is reduced is called a norm.
fn is_norm(view: &View<'_>, call: &CollectiveCall<'_>) -> bool {
    matches!(call.input, Some(Operand::Local(l)) if view.local_name(*l).contains("norm"))
}

/// A group as it is written.
fn shown(view: &View<'_>, group: &Operand) -> String {
    let group = view.expr(group);
    spelled(view, &group).or_else(|| group.last_name().map(str::to_owned)).unwrap_or_else(|| "group".to_owned())
}
