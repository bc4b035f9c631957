//! Copies in a sum of parts. In: a function. Out: what a test finds not to be split over some ranks, added to what is, before the sum over
//! those ranks. Never: copies that one rank alone adds, or that are divided by the number of ranks. Next: `named_axes.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::named_axes::of_group;
use super::near;
use super::view::View;
use crate::ir::{BinOp, LocalId, Operand, Rvalue, Stmt, UnOp};
use crate::rules::Form;
use crate::source::Name;

/// Words of a test that asks whether a parameter is split over the ranks of a tensor-parallel group.
pub const SPLIT: &[&str] =
    &["shard", "tensor_model_parallel", "tensor_parallel", "is_tp", "partitioned", "model_parallel"];
/// Those that ask for more than that.
const OTHERWISE: &[&str] = &["rank", "duplicate", "shared", "replic", "==", "expert"];

/// Words of code in which one rank alone may add its copies.
const FIRST: &[&str] = &["rank", "is_first", "is_main"];

/// `total = split + copied; all_reduce(total, group=tp)`
pub fn summed(view: &View<'_>, out: &mut Found) {
    if !view.collectives().iter().any(|(_, call)| call.rule.op == "all_reduce") {
        return;
    }
    let code = view.code();
    if !code.contains("grad") || !SPLIT.iter().any(|w| code.contains(w)) || near::has_any(code, FIRST) {
        return;
    }
    let Some((split, copied, added)) = sums(view) else { return };
    for (i, call) in view.collectives() {
        let (Some(input), Some(group), Form::InPlace) = (call.input, call.group, call.rule.form) else { continue };
        let Operand::Local(total) = input else { continue };
        if call.rule.op != "all_reduce" || reads_as_maximum(view, call.args) {
            continue;
        }
        let Some(over) = of_group(view, &view.expr(group)) else { continue };
        let model = |a: &Name| a == "tp";
        if !over.iter().all(model) || !holds_both(view, *total, split, copied, *i) {
            continue;
        }
        let copies = view.place(view.steps[added].id);
        let found = Membership::CopiesSummed { over, copies, added: copies };
        out.push((view.place(view.steps[*i].id), Practice::Membership(found)));
        return;
    }
}

fn reads_as_maximum(view: &View<'_>, args: &[crate::ir::Arg]) -> bool {
    args.iter().any(|a| view.expr(&a.value).last_name().is_some_and(|n| matches!(n, "MAX" | "MIN" | "AVG" | "op")))
}

/// The variables to which the branches of one test add, and the step that adds what is not split.
fn sums(view: &View<'_>) -> Option<(LocalId, LocalId, usize)> {
    let adds = |i: usize| match (view.steps[i].stmt, view.value(i)) {
        (Stmt::Assign { dst, .. }, Some(Rvalue::InPlace { op: BinOp::Add, left: Operand::Local(l), .. }))
            if dst == l || view.is_temp(*dst) =>
        {
            Some(*l)
        }
        _ => None,
    };
    let all: Vec<(usize, LocalId)> = (0..view.steps.len()).filter_map(|i| Some((i, adds(i)?))).collect();
    for (i, a) in &all {
        let Some(guard) = view.steps[*i].guards.last() else { continue };
        let (asks, positive) = asks(view, &near::deep(view, &view.through(guard.test)));
        if !asks || guard.holds != positive {
            continue;
        }
        let other = |j: &usize| {
            let mine = &view.steps[*j].guards;
            mine.len() == view.steps[*i].guards.len()
                && mine.last().is_some_and(|g| g.at == guard.at && g.holds != guard.holds)
        };
        if let Some((j, b)) = all.iter().find(|(j, b)| other(j) && b != a) {
            return Some((*a, *b, *j));
        }
    }
    None
}

/// Whether a test asks if something is split, and whether it does so without a negation.
fn asks(view: &View<'_>, test: &Expr) -> (bool, bool) {
    match test {
        Expr::Unary(UnOp::Not, inner) => {
            let (asks, positive) = asks(view, inner);
            (asks, !positive)
        }
        other => {
            let mut words = String::new();
            spelled(view, other, &mut words);
            let asks = SPLIT.iter().any(|w| words.contains(w)) && !OTHERWISE.iter().any(|w| words.contains(w));
            (asks, true)
        }
    }
}

/// The names in a test, in lowercase.
fn spelled(view: &View<'_>, expr: &Expr, out: &mut String) {
    expr.any(&mut |e| {
        match e {
            Expr::Local(l) => out.push_str(view.local_name(*l)),
            Expr::Const(crate::ir::Const::Str(text)) => out.push_str(text),
            Expr::Path(path) => out.push_str(path.rsplit('.').next().unwrap_or(path)),
            Expr::Attr(_, name) => out.push_str(name),
            Expr::Compare(..) => out.push_str("=="),
            _ => {}
        }
        out.push(' ');
        false
    });
    *out = out.to_lowercase();
}

/// Whether a variable holds the sum of two others when a step reads it, and nothing was done to either alone: each is only added to, and
/// then to the other one. Afterwards the copies that were too many may be taken off again, if anything reads them.
fn holds_both(view: &View<'_>, total: LocalId, a: LocalId, b: LocalId, before: usize) -> bool {
    let mut joined = false;
    for i in 0..before {
        let mentions = |o: &Operand, of: LocalId| view.expr(o).mentions(of);
        match view.value(i) {
            Some(Rvalue::Binary { op: BinOp::Add, left, right }) => {
                let (x, y) = (view.expr(left), view.expr(right));
                let chosen = |e: &Expr| e.any(&mut |e| matches!(e, Expr::Choice(..)));
                let both = (x.mentions(a) && y.mentions(b)) || (x.mentions(b) && y.mentions(a));
                let both = both && !chosen(&x) && !chosen(&y);
                joined |= both && flows(view, i, total);
            }
            Some(Rvalue::InPlace { op: BinOp::Add, left: Operand::Local(l), right }) => {
                let of = |x: LocalId, y: LocalId| *l == x && total == x && mentions(right, y);
                joined |= of(a, b) || of(b, a);
            }
            Some(Rvalue::CallMethod { base, name, args }) if name == "add_" && args.len() == 1 => {
                let of =
                    |x, y| near::local(base) == Some(x) && total == x && args.iter().any(|o| mentions(&o.value, y));
                joined |= of(a, b) || of(b, a);
            }
            _ => {}
        }
    }
    let adds = |step: &usize| match view.value(*step) {
        Some(Rvalue::Binary { op, .. } | Rvalue::InPlace { op, .. }) => *op == BinOp::Add,
        Some(Rvalue::CallMethod { name, args, .. }) => name == "add_" && args.len() == 1,
        _ => false,
    };
    let only_added = |l: LocalId| l == total || view.readers(l).iter().all(|s| *s < before && adds(s));
    let own = view.readers(total).iter().filter(|s| **s < before);
    joined && only_added(a) && only_added(b) && own.clone().all(adds)
}

/// Whether a step binds a variable, at once or through one that it is bound from.
fn flows(view: &View<'_>, step: usize, to: LocalId) -> bool {
    view.binds(step)
        .iter()
        .any(|l| *l == to || view.defs(to).iter().any(|d| view.reads(*d).iter().any(|o| near::local(o) == Some(*l))))
}
