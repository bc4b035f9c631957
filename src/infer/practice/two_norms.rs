//! Norms of gradients in two sums that nothing reduces. In: a function that is given a group and never reads it. Out: where it adds up two sums of
//! squares, which a test tells apart, and nothing communicates: the ranks of the group have other parameters of one of the two. Never: a function
//! that hands a sum on, or reads the group. Source: ColossalAI, issue 2192: experts of other ranks in the norm. Next: `norm_sides.rs`.

use super::Found;
use super::found::Practice;
use super::near;
use super::reducers::is_gradient;
use super::training::Training;
use super::view::View;
use crate::ir::{BinOp, LocalId, Operand, Rvalue, Stmt, StmtId};
use crate::source::{Name, Place};

/// Words of code that takes a root, and of code that scales gradients by it.
pub const ROOTS: &[&str] = &["sqrt", "** 0.5", "**0.5", "1.0 /", "norm_type"];
pub const SCALES: &[&str] = &["clip", "clamp", "mul_", "max_norm"];
/// Words of names of groups.
const GROUP: &[&str] = &["_group", "_pg"];

/// What is added to a variable, and the side of the test under which.
struct Term {
    sum: LocalId,
    test: StmtId,
    holds: bool,
}

/// `total = dense + experts`, where `ep_group` is not read
pub fn joined(view: &View<'_>, out: &mut Found) {
    let whole = ["full_tensor", "assert", "raise", "reduced"];
    if near::communicates(view) || !near::has_any(view.code(), SCALES) || near::has_any(view.code(), &whole) {
        return;
    }
    // What a class offers may be a method of an interface.
    if view.func.class.is_some() {
        return;
    }
    let is_group = |name: &Name| GROUP.iter().any(|end| name.ends_with(end));
    let unread = |local: LocalId| !view.is_read(local) && view.defs(local).is_empty();
    let Some(group) = view.func.params.iter().find(|p| is_group(&p.name) && unread(p.local)) else { return };
    let terms: Vec<Term> = (0..view.steps.len()).filter_map(|step| term(view, step)).collect();
    let sums: Vec<LocalId> = terms.iter().map(|term| term.sum).collect();
    if (0..view.steps.len()).any(|step| hands_on(view, step, &sums)) {
        return;
    }
    for (at, step) in view.steps.iter().enumerate() {
        let (Some(Rvalue::Binary { op: BinOp::Add, left, right }), true) = (view.value(at), step.loops.is_empty())
        else {
            continue;
        };
        let of = |side: &Operand| {
            let roots = near::roots(view, side);
            terms.iter().find(|term| roots.contains(&term.sum))
        };
        let (Some(one), Some(other)) = (of(left), of(right)) else { continue };
        if one.sum == other.sum || one.test != other.test || one.holds == other.holds {
            continue;
        }
        let told: Place = view.part(one.test, 0);
        if !are_of(&group.name, &view.text(told).to_lowercase()) {
            continue;
        }
        let mistake = Training::TwoNorms { group: group.name.clone(), given: view.spot(view.func.name_span), told };
        out.push((view.place(step.id), Practice::Training(mistake)));
        return;
    }
}

/// Parts of names of groups, and words of tests for the parameters that differ between their ranks.
const KINDS: [(&[&str], &[&str]); 2] = [
    (&["ep", "expert", "moe"], &["expert", "moe", "\"allreduce\"", "ep_"]),
    (&["tp", "tensor", "mp", "model"], &["tensor", "tp_", "partition", "shard", "parallel", "is_split"]),
];

/// Whether a test tells apart what differs between the ranks of a group, as both are called.
fn are_of(group: &str, test: &str) -> bool {
    KINDS
        .iter()
        .any(|(parts, words)| parts.iter().any(|part| near::has_part(group, part)) && near::has_any(test, words))
}

/// `experts += x`, `experts.append(x)` under a test
fn term(view: &View<'_>, step: usize) -> Option<Term> {
    let (sum, added) = match view.value(step)? {
        Rvalue::InPlace { op: BinOp::Add, left, right } => (near::local(left)?, right),
        Rvalue::CallMethod { base, name, args } if name == "append" || name == "add_" => {
            (near::local(base)?, &args.first()?.value)
        }
        Rvalue::Binary { op: BinOp::Add, left, right } => {
            let left = near::local(left)?;
            (matches!(view.steps[step].stmt, Stmt::Assign { dst, .. } if *dst == left).then_some(left)?, right)
        }
        _ => return None,
    };
    // What comes from elsewhere may be reduced.
    if !is_gradient(&near::deep(view, &view.expr(added))) {
        return None;
    }
    let guard = view.steps[step].guards.last()?;
    Some(Term { sum, test: guard.at, holds: guard.holds })
}

/// Whether a step gives one of these sums to a function of the project or to one that is not known.
fn hands_on(view: &View<'_>, step: usize, sums: &[LocalId]) -> bool {
    let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
        return false;
    };
    let given = args.iter().any(|arg| near::roots(view, &arg.value).iter().any(|local| sums.contains(local)));
    let known = || match value {
        Rvalue::CallMethod { base, .. } if near::local(base).is_some_and(|l| !view.is_param(l)) => true,
        value => view.callee(value).is_some_and(|path| path.starts_with("torch.") || !path.contains('.')),
    };
    given && !known()
}
