//! Backwards that take the mean of each rank's mean. In: a backward. Out: means that are summed over ranks and divided by the number of ranks,
//! where the forward sums the number of rows over the same ranks; sums over ranks that are divided by the rows of this rank times the number of ranks.
//! Never: a forward that does not count, or one whose ranks are said to have the same number of rows. Source: SyncBatchNorm of PyTorch,
//! which divides sums by the number of all rows. Next: `counts.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::unshared::Unshared;
use super::view::View;
use crate::ir::{BinOp, LocalId, Operand, Rvalue};
use crate::source::Place;
use rustc_hash::FxHashSet;

/// Steps that are followed into what is summed.
const MOST_DEPTH: usize = 4;
/// How rows are counted.
const COUNTS: &[&str] = &["size", "numel", "shape"];

/// `all_reduce(dy.mean(0))`, `/ world_size`, where the forward does `all_reduce(cat([x.sum(0), x.size(0)]))`
pub fn of_means(view: &View<'_>, out: &mut Found) {
    if view.func.name != "backward" {
        return;
    }
    let Some(class) = near::class_of(view) else { return };
    let Some(forward) = near::methods(view, class).into_iter().find(|m| m.func.name == "forward") else { return };
    let counted = forward.collectives().iter().find(|(_, c)| {
        let counts =
            |e: &Expr| matches!(e, Expr::Attr(_, n) if n == "shape") || COUNTS.iter().any(|n| e.call_of(n).is_some());
        c.rule.op == "all_reduce"
            && c.input.is_some_and(|i| holds(&forward, &forward.expr(i), 0, &counts))
            && c.input.is_some_and(|i| holds(&forward, &forward.expr(i), 0, &|e| e.call_of("sum").is_some()))
    });
    let Some((counted, _)) = counted else { return };
    let counted = forward.place(forward.steps[*counted].id);
    for (_, call) in view.collectives().iter().filter(|(_, c)| c.rule.op == "all_reduce") {
        let Some(input @ Operand::Local(summed)) = call.input else { continue };
        if !holds(view, &view.expr(input), 0, &|e| e.call_of("mean").is_some()) {
            continue;
        }
        let divided = (0..view.steps.len()).find(|i| match view.value(*i) {
            Some(Rvalue::Binary { op: BinOp::Div, left, right }) => {
                *left == Operand::Local(*summed)
                    && near::deep(view, &view.expr(right)).call_of("get_world_size").is_some()
            }
            _ => false,
        });
        if let Some(divided) = divided {
            let place = view.place(view.steps[divided].id);
            out.push((place, Practice::Membership(Membership::MeanOfMeans { counted })));
        }
    }
}

/// What makes a tensor of a number, and which of its arguments that is.
const NUMBERS: &[(&str, usize)] = &[
    ("tensor", 0),
    ("as_tensor", 0),
    ("new_tensor", 0),
    ("FloatTensor", 0),
    ("full", 1),
    ("new_full", 1),
    ("full_like", 1),
    ("fill_", 0),
];
/// How the number of ranks is called.
const RANKS: &[&str] = &["world", "num_ranks", "n_ranks", "group_size", "num_replicas"];
/// What says that ranks have as many rows as each other.
const ALIKE: &[&str] = &["same", "equal", "equally", "identical", "drop_last", "assert", "fixed"];

/// `sums / (x.size(0) * world_size)`, where the forward does `all_reduce(cat([x.sum(0), x.size(0)]))`
pub fn of_own_rows(view: &View<'_>, out: &mut Found) {
    if view.func.name != "backward" {
        return;
    }
    let Some(class) = near::autograd_class(view) else { return };
    let Some(forward) = near::methods(view, class.class).into_iter().find(|m| m.func.name == "forward") else { return };
    let Some(counted) = counted_rows(&forward) else { return };
    // Rows are counted along the first dim, and may be brought to one length.
    let first = near::has_any(view.code(), &["size(0)", "shape[0]", "len("]);
    let other = ["shape[-1]", "shape[1]", "size(-1)", "size(1)", "shape[2]"];
    if !first || near::has_any(view.code(), &other) || near::has_any(&near::bare(view.file()), &["pad", "raise", "max"])
    {
        return;
    }
    let text = view.file().to_lowercase();
    let sums: Vec<(usize, LocalId)> = view
        .collectives()
        .iter()
        .filter(|(_, call)| call.rule.op == "all_reduce")
        .filter_map(|(at, call)| Some((*at, near::local(call.input?)?)))
        .collect();
    let written: FxHashSet<LocalId> = sums.iter().map(|(_, local)| *local).collect();
    for step in 0..view.steps.len() {
        let Some((whole, by)) = divided(view, step) else { continue };
        let of = near::reached(view, whole, |def| def < step);
        let Some((summed, _)) = sums.iter().find(|(at, local)| *at < step && of.contains(local)) else { continue };
        let others = near::reached(view, by, |_| true);
        if others.iter().any(|local| written.contains(local))
            || !is_own_times_ranks(view, &near::deep(view, &view.expr(by)))
        {
            continue;
        }
        if ALIKE.iter().any(|word| near::has_word(&text, word)) {
            return;
        }
        let reduced = view.place(view.steps[*summed].id);
        let mistake = Unshared::RowsTimesRanks { reduced, counted };
        out.push((view.place(view.steps[step].id), Practice::Unshared(mistake)));
        return;
    }
}

/// What a step divides, and by what.
pub(super) fn divided<'a>(view: &View<'a>, step: usize) -> Option<(&'a Operand, &'a Operand)> {
    match view.value(step)? {
        Rvalue::Binary { op: BinOp::Div, left, right } | Rvalue::InPlace { op: BinOp::Div, left, right } => {
            Some((left, right))
        }
        Rvalue::CallMethod { base, name, args } if matches!(name.as_str(), "div" | "div_") => {
            Some((base, &args.first()?.value))
        }
        _ => None,
    }
}

fn is_count(e: &Expr) -> bool {
    matches!(e, Expr::Attr(_, n) if n == "shape") || COUNTS.iter().any(|n| e.call_of(n).is_some())
}

/// Where a forward brings the numbers of rows of all ranks together: a tensor that is made of one.
fn counted_rows(forward: &View<'_>) -> Option<Place> {
    let is_number = |e: &Expr| {
        let given = |last: &str, n: usize| e.call_of(last).and_then(|args| args.get(n)).map(|(_, given)| given);
        let made = NUMBERS.iter().filter_map(|(last, n)| given(last, *n)).any(|of| holds(forward, of, 0, &is_count));
        let times = |a: &Expr, b: &Expr| {
            let ones = ["ones", "new_ones", "ones_like"].iter().any(|last| a.call_of(last).is_some());
            ones && holds(forward, b, 0, &is_count)
        };
        made || matches!(e, Expr::Binary(BinOp::Mul, a, b) if times(a, b) || times(b, a))
    };
    let mut all = forward.collectives().iter();
    let counts = all.find(|(_, call)| {
        matches!(call.rule.op.as_str(), "all_reduce" | "all_gather")
            && call.input.is_some_and(|input| holds(forward, &forward.expr(input), 0, &is_number))
    });
    counts.map(|(at, _)| forward.place(forward.steps[*at].id))
}

/// Whether a number is one of rows that this rank has, times the number of ranks.
fn is_own_times_ranks(view: &View<'_>, number: &Expr) -> bool {
    let rows = |e: &Expr| holds(view, e, 0, &is_count);
    let of_ranks = |e: &Expr| {
        let named = |e: &Expr| view.name_or_callee(e).is_some_and(|name| near::has_any(&name.to_lowercase(), RANKS));
        e.any(&mut |e| named(e)) || holds(view, e, 0, &|e| e.call_of("get_world_size").is_some())
    };
    number.any(&mut |e| match e {
        Expr::Binary(BinOp::Mul, a, b) => rows(a) && of_ranks(b) || rows(b) && of_ranks(a),
        _ => false,
    })
}

/// Whether something is in an expression, or in one that a variable in it is bound to.
fn holds(view: &View<'_>, expr: &Expr, depth: usize, wanted: &dyn Fn(&Expr) -> bool) -> bool {
    if depth > MOST_DEPTH {
        return false;
    }
    expr.any(&mut |e| match e {
        Expr::Local(local) => {
            let defs = view.defs(*local);
            defs.len() <= 2 && defs.iter().any(|d| holds(view, &view.bound(*d, *local), depth + 1, wanted))
        }
        other => wanted(other),
    })
}
