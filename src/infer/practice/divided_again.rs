//! Sums over ranks that are divided by the number of the ranks both before and after. In: a function that communicates. Out: the second division, where the first
//! is made in some configuration and the second in it as well. Never: other numbers, other tests, or several sums, of which each has its own number of ranks.
//! Source: torch.distributed, `all_reduce`. Next: `averaged_twice.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::lost::{last, written};
use super::membership::Membership;
use super::mixed_mean::averages;
use super::near;
use super::one_path::{contradicts, facts};
use super::view::View;
use crate::ir::{BinOp, Operand, Rvalue, Stmt};
use crate::rules::{Entry, Gives};

/// `if not after: flat /= n`, `all_reduce(flat)` and `flat /= n`
pub fn sums(view: &View<'_>, out: &mut Found) {
    let reduces = |call: &super::view::CollectiveCall<'_>| call.rule.op.contains("reduce");
    for (step, call) in view.collectives().iter().filter(|(_, call)| reduces(call)) {
        let Some(buffer) = written(call).map(|o| view.expr(o)).filter(is_named) else { continue };
        let sums = call.rule.op == "all_reduce" && averages(view, call) == Some(false);
        let others = view.collectives().iter().filter(|(_, c)| {
            written(c).is_some_and(|o| view.expr(o) == buffer) || c.input.is_some_and(|o| view.expr(o) == buffer)
        });
        if !sums || others.count() != 1 {
            continue;
        }
        let divided: Vec<(usize, Expr)> = (0..view.steps.len())
            .filter(|i| view.steps[*i].loops == view.steps[*step].loops)
            .filter_map(|i| Some((i, divided(view, i, &buffer)?)))
            .collect();
        let (before, after): (Vec<_>, Vec<_>) = divided.into_iter().partition(|(i, _)| i < step);
        let ([(first, by)], [(again, other)]) = (before.as_slice(), after.as_slice()) else { continue };
        let known = facts(view, &view.steps[*first].guards);
        let implied = |of: usize| facts(view, &view.steps[of].guards).iter().all(|fact| known.contains(fact));
        let possible = known.iter().all(|fact| !contradicts(&known, fact));
        let kept = is_kept(view, &buffer, *first, *again);
        if is_same(by, other) && implied(*step) && implied(*again) && possible && kept {
            let mistake = Membership::DividedAgain {
                collective: last(&call.rule.name),
                first: view.place(view.steps[*first].id),
                summed: view.place(view.steps[*step].id),
            };
            out.push((view.place(view.steps[*again].id), Practice::Membership(mistake)));
        }
    }
}

/// Whether an expression is a variable or an attribute.
fn is_named(e: &Expr) -> bool {
    match e {
        Expr::Local(_) => true,
        Expr::Attr(base, _) => is_named(base),
        _ => false,
    }
}

/// The number of ranks by which a step divides what a buffer holds.
fn divided(view: &View<'_>, step: usize, buffer: &Expr) -> Option<Expr> {
    let is = |o: &Operand| view.expr(o) == *buffer;
    let rebinds =
        |of: &Operand| matches!(view.steps[step].stmt, Stmt::Assign { dst, .. } if near::local(of) == Some(*dst));
    let (by, inverse) = match view.value(step)? {
        Rvalue::InPlace { op: BinOp::Div, left, right } if is(left) => (right, false),
        Rvalue::InPlace { op: BinOp::Mul, left, right } if is(left) => (right, true),
        Rvalue::Binary { op: BinOp::Div, left, right } if is(left) && rebinds(left) => (right, false),
        Rvalue::CallMethod { base, name, args } if is(base) && args.len() == 1 => match name.as_str() {
            "div_" => (&args[0].value, false),
            "mul_" => (&args[0].value, true),
            _ => return None,
        },
        _ => return None,
    };
    let number = near::deep(view, &view.expr(by));
    let number = match (inverse, number) {
        (false, number) => number,
        (true, Expr::Binary(BinOp::Div, one, number)) if is_one(&one) => *number,
        _ => return None,
    };
    counts_ranks(view, &number).then_some(number)
}

/// Whether two numbers are one, wherever they are asked for.
fn is_same(a: &Expr, b: &Expr) -> bool {
    match (a, b) {
        (Expr::Call { callee: f, args: x, .. }, Expr::Call { callee: g, args: y, .. }) => f == g && x == y,
        (a, b) => a == b,
    }
}

fn is_one(e: &Expr) -> bool {
    matches!(e, Expr::Const(number) if number.is_number(1.0))
}

/// Whether an expression is a number of ranks: `get_world_size(..)`, `group.size()`, or what is named so.
fn counts_ranks(view: &View<'_>, e: &Expr) -> bool {
    let named = |n: &str| n == "world_size" || n.ends_with("_world_size") || n == "num_ranks";
    match e {
        Expr::Call { callee, args, .. } => {
            let group = |base: &Expr| view.name_of(base).is_some_and(|n| GROUPS.iter().any(|w| n.contains(w)));
            let rule = || near::path(view, callee).and_then(|p| view.rules.get(&p));
            match &**callee {
                Expr::Attr(base, name) if name == "size" && args.is_empty() => group(base),
                other => {
                    other.last_name() == Some("get_world_size")
                        || matches!(rule(), Some(Entry::Group(rule)) if rule.gives == Gives::Size)
                }
            }
        }
        Expr::Local(local) => named(view.local_name(*local)),
        Expr::Attr(_, name) => named(name),
        _ => false,
    }
}

/// Parts of names of groups of ranks.
const GROUPS: &[&str] = &["group", "comm", "pg"];

/// Whether a buffer holds the same tensor at two steps, other than by what is divided in place.
fn is_kept(view: &View<'_>, buffer: &Expr, from: usize, to: usize) -> bool {
    let Expr::Local(local) = buffer else { return true };
    let binds = |def: &&usize| **def > from && **def < to && divided(view, **def, buffer).is_none();
    !view.defs(*local).iter().any(|def| binds(&def))
}
