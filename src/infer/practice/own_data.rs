//! Collectives that a rank reaches by what its own samples contain. In: a function. Out: a reduction over all ranks, or over data ranks, here or in a function
//! that is called, under a test of how many entries of this rank's batch fit: the positive samples, the marked tokens. Never: a
//! test of what anything may have made equal, one that ends the program, another side that communicates as well, or code
//! that generates or serves. Source: torch.distributed: every rank of the group takes part. Next: `own_decision.rs`.

use super::Found;
use super::coming::Coming;
use super::expr::Expr;
use super::flow::is_failure;
use super::found::Practice;
use super::near;
use super::own_part::helper;
use super::ranks::is_lone_job;
use super::raw::{Sort, raw};
use super::view::{Guard, View};
use super::wrapped::says;
use crate::ir::{CmpOp, Const, LocalId, Rvalue, Stmt, UnOp};
use crate::source::Name;

/// How tests count, in the text of a function.
pub const COUNTS: &[&str] = &["nonzero(", ".any(", ".sum(", "where("];

/// Parts of the text of functions whose ranks may have the same data.
const TOGETHER: &[&str] = &[
    "generat",
    "decode",
    "eos",
    "infer",
    "broadcast",
    "object",
    "barrier",
    "is_main",
    "all_gather_into",
    "tp_",
    "_tp",
];

/// Parts of names of what makes values of ranks equal.
const EQUAL: &[&str] = &["reduce", "sync", "gather", "broadcast", "average", "consensus", "all_", "global", "total"];

/// Parts of names of what each sample has its own of.
const SAMPLES: &[&str] = &[
    "label", "labels", "target", "targets", "mask", "masks", "score", "scores", "cls", "gt", "pos", "weights", "ids",
    "valid",
];

/// A question about an expression before a step: the variables through which it may be answered.
type Asks = fn(&View<'_>, &Expr, usize, usize) -> Option<Vec<LocalId>>;

/// How far a variable is followed.
const MOST: usize = 8;

/// `if len(pos) > 0: dist.all_reduce(n)`, where `pos = (labels >= 0).nonzero()`.
pub fn decides(view: &View<'_>, out: &mut Found) {
    // Also a helper of another file is named for what it does.
    if !view.file().contains("reduce")
        || view.func.is_generator
        || is_lone_job(view)
        || near::has_any(view.code(), TOGETHER)
    {
        return;
    }
    for at in 0..view.steps.len() {
        let Some(collective) = reduces(view, at, 1) else { continue };
        for guard in view.steps[at].guards.iter() {
            let Some(before) = view.test_of(guard) else { continue };
            let Some(tested) = own(view, &view.expr(guard.test), before, 0) else { continue };
            if is_failure(view, guard) || !is_silent(view, guard) || is_made_equal(view, &tested, guard, before) {
                continue;
            }
            let call = view.place(view.steps[at].id);
            let name = view.local_name(tested[0]).clone();
            let mistake = Coming::ByOwnData { collective, tested: name, call };
            out.push((view.part(guard.at, 0), Practice::Coming(mistake)));
            return;
        }
    }
}

/// The collective over all ranks, or data ranks, that a step issues, or the function that it calls.
fn reduces(view: &View<'_>, step: usize, depth: usize) -> Option<Name> {
    let value = view.value(step)?;
    if let Some(call) = raw(view, value) {
        let with_all = call.group.is_none_or(|g| {
            let group = view.through(g);
            group.is_none() || says(view, &group, &["world", "data", "dp"])
        });
        let sums = call.sort == Sort::Everyone && call.name.contains("reduce") && !call.is_async();
        return (sums && with_all).then_some(call.name);
    }
    let (at, _) = helper(view, value).filter(|_| depth > 0)?;
    let inner = near::shared(view, at);
    // What the helper itself asks may be the same on all ranks, as whether there are several.
    let always = |s: &usize| {
        inner.steps[*s].loops.is_empty() && inner.steps[*s].guards.iter().all(|g| is_about_ranks(&inner, g))
    };
    let found = (0..inner.steps.len()).filter(always).any(|s| reduces(&inner, s, depth - 1).is_some());
    found.then(|| inner.func.name.clone())
}

fn is_about_ranks(view: &View<'_>, guard: &Guard<'_>) -> bool {
    says(view, &view.expr(guard.test), &["initialized", "available", "world", "distributed"])
}

/// The variables through which a test asks how many entries of this rank's data fit.
fn own(view: &View<'_>, test: &Expr, before: usize, depth: usize) -> Option<Vec<LocalId>> {
    let small = |e: &Expr| matches!(e, Expr::Const(Const::Int(0 | 1)));
    match test {
        Expr::Compare(CmpOp::Eq | CmpOp::Ne | CmpOp::Lt | CmpOp::Le | CmpOp::Gt | CmpOp::Ge, a, b) if small(b) => {
            amount(view, a, before, depth)
        }
        Expr::Unary(UnOp::Not, inner) => own(view, inner, before, depth),
        Expr::Bool { and: true, of } => of.iter().find_map(|e| own(view, e, before, depth)),
        other => amount(view, other, before, depth),
    }
}

/// What is asked of the value that a variable has before a step, with the variable in front.
fn bound_to(view: &View<'_>, local: LocalId, before: usize, depth: usize, ask: Asks) -> Option<Vec<LocalId>> {
    let def = view.last_def(local, before)?;
    let mut found = ask(view, &view.bound(def, local), def, depth + 1)?;
    found.insert(0, local);
    Some(found)
}

/// The same, of a number.
fn amount(view: &View<'_>, e: &Expr, before: usize, depth: usize) -> Option<Vec<LocalId>> {
    if depth > MOST {
        return None;
    }
    match e {
        Expr::Local(local) => bound_to(view, *local, before, depth, amount),
        Expr::Call { callee, args, .. } => match (&**callee, args.as_slice()) {
            (Expr::Attr(base, name), []) if matches!(name.as_str(), "numel" | "nelement") => {
                chosen(view, base, before, depth + 1)
            }
            (Expr::Attr(base, name), _) if matches!(name.as_str(), "any" | "sum" | "count_nonzero") => {
                mask(view, base, before, depth + 1)
            }
            (Expr::Attr(base, name), []) if matches!(name.as_str(), "item" | "float" | "int" | "long") => {
                amount(view, base, before, depth + 1)
            }
            (Expr::Attr(base, name), [(_, Expr::Const(Const::Int(0)))]) if name == "size" => {
                chosen(view, base, before, depth + 1)
            }
            (callee, [(_, one), ..]) => match callee.last_name()? {
                "len" => chosen(view, one, before, depth + 1),
                "any" | "count_nonzero" | "sum" => mask(view, one, before, depth + 1),
                "int" | "float" | "bool" => amount(view, one, before, depth + 1),
                _ => None,
            },
            _ => None,
        },
        Expr::Item(base, at) => match (&**base, &**at) {
            (Expr::Attr(of, name), Expr::Const(Const::Int(0))) if name == "shape" => {
                chosen(view, of, before, depth + 1)
            }
            _ => None,
        },
        _ => None,
    }
}

/// The same, of entries that were chosen by what they contain.
fn chosen(view: &View<'_>, e: &Expr, before: usize, depth: usize) -> Option<Vec<LocalId>> {
    if depth > MOST {
        return None;
    }
    match e {
        Expr::Local(local) => bound_to(view, *local, before, depth, chosen),
        Expr::Call { callee, args, .. } => match (&**callee, args.as_slice()) {
            (Expr::Attr(base, name), []) if name == "nonzero" => {
                mask(view, base, before, depth + 1).or(Some(Vec::new()))
            }
            (Expr::Attr(base, name), _)
                if matches!(name.as_str(), "reshape" | "view" | "squeeze" | "flatten" | "squeeze_") =>
            {
                chosen(view, base, before, depth + 1)
            }
            (callee, [(_, one), ..]) if matches!(callee.last_name(), Some("nonzero")) => {
                mask(view, one, before, depth + 1)
            }
            (callee, [(_, one)]) if matches!(callee.last_name(), Some("where")) => mask(view, one, before, depth + 1),
            _ => None,
        },
        // `x[mask]`, and the first of what `where` gives.
        Expr::Item(base, at) => mask(view, at, before, depth + 1).or_else(|| chosen(view, base, before, depth + 1)),
        _ => None,
    }
}

/// The same, of what says which entries of samples fit.
fn mask(view: &View<'_>, e: &Expr, before: usize, depth: usize) -> Option<Vec<LocalId>> {
    if depth > MOST {
        return None;
    }
    match e {
        Expr::Local(local) => bound_to(view, *local, before, depth, mask),
        Expr::Compare(_, a, _) => {
            // What the object keeps is no batch: ranks may keep it alike.
            let sampled = a.any(&mut |e| {
                if near::own_attribute(view, e).is_some() {
                    return false;
                }
                let name = view.name_of(e).unwrap_or_default().to_lowercase();
                SAMPLES.iter().any(|part| near::has_part(&name, part))
            });
            sampled.then(Vec::new)
        }
        Expr::Binary(_, a, b) => mask(view, a, before, depth + 1).or_else(|| mask(view, b, before, depth + 1)),
        Expr::Unary(_, a) => mask(view, a, before, depth + 1),
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, name)
                if matches!(
                    name.as_str(),
                    "bool" | "float" | "view" | "reshape" | "flatten" | "to" | "int" | "long"
                ) =>
            {
                mask(view, base, before, depth + 1)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Whether the other side of a test communicates nothing, and ends no loop that the ranks go round together.
fn is_silent(view: &View<'_>, guard: &Guard<'_>) -> bool {
    let there = |i: &usize| view.steps[*i].guards.iter().any(|g| g.at == guard.at && g.holds != guard.holds);
    (0..view.steps.len()).filter(there).all(|i| match (view.steps[i].stmt, view.value(i)) {
        (Stmt::Break | Stmt::Raise, _) => false,
        (_, Some(value)) => {
            let inside = || helper(view, value).is_some_and(|(at, _)| near::communicates(&near::shared(view, at)));
            !view.may_communicate(value) && !inside() && reduces(view, i, 2).is_none()
        }
        _ => true,
    })
}

/// Whether anything may have made what a guard tests equal, or anything that it is made of.
fn is_made_equal(view: &View<'_>, of: &[LocalId], guard: &Guard<'_>, before: usize) -> bool {
    let equal = |name: &str| near::has_any(&name.to_lowercase(), EQUAL);
    let Some(first) = of.first() else { return true };
    let reached = near::reached(view, guard.test, |def| def < before);
    let agrees = |i: usize| {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            return false;
        };
        let given = args.iter().any(|a| near::local(&a.value).is_some_and(|l| reached.contains(&l)));
        let made = view.binds(i).iter().any(|l| reached.contains(l));
        let inside = || helper(view, value).is_some_and(|(at, _)| near::communicates(&near::shared(view, at)));
        (given || made)
            && (view.may_communicate(value)
                || near::written_name(view, value).is_none_or(|name| equal(&name))
                || inside())
    };
    view.is_param(*first) || of.iter().any(|local| equal(view.local_name(*local))) || (0..before).any(agrees)
}
