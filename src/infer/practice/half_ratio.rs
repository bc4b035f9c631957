//! Ratios of which one half is summed over the ranks. In: a function that communicates. Out: a denominator that is added up beside its numerator in the same
//! rounds, weighs it, or is summed along the same dims, and that no rank adds those of the others to. Never: without evidence that it differs between the
//! ranks, or where anything that is not followed has it. Source: torch.distributed, `all_reduce`: the sum is that of all ranks. Next: `counts.rs`.

use super::Found;
use super::counts::{Slice, copied_before, over_data, quotient, slice, slice_until};
use super::expr::Expr;
use super::found::{Own, Practice};
use super::gradient::root;
use super::mixed_mean::averages;
use super::near;
use super::own_size::{added, is_start};
use super::this_rank::{is_operation, scales_by_ranks};
use super::view::{CollectiveCall, View};
use crate::ir::{BinOp, LocalId, LocalKind, Operand, Rvalue};
use crate::rules::Form;
use rustc_hash::FxHashSet;

/// Functions that only look at a number.
const LOOKS: &[&str] =
    &["float", "int", "max", "min", "print", "len", "log", "round", "abs", "tensor", "sqrt", "isnan"];

/// `total += (loss * mask).sum()`, `count += mask.sum()`, `all_reduce(total)` and `total / count`
pub fn added_up<'a>(view: &View<'a>, out: &mut Found) {
    if (0..view.steps.len()).any(|step| scales_by_ranks(view, step)) {
        return;
    }
    for divided in 0..view.steps.len() {
        let Some((left, right)) = quotient(view, divided) else { continue };
        let Some((counted, adds)) = number(view, right).and_then(|l| Some((l, grows(view, l)?))) else { continue };
        let (sum, count) = (slice(view, left), slice(view, &Operand::Local(counted)));
        let own = count.collectives.is_empty() && !taken_elsewhere(view, &|l| l == counted);
        if adds.iter().any(|at| *at > divided || !is_of_data(view, *at)) || !own {
            continue;
        }
        let beside = |(at, input): &(usize, Option<Operand>)| {
            let before = slice_until(view, input.as_ref()?, *at);
            let alike = |(total, adds_too): (LocalId, Vec<usize>)| {
                let beside = |a: &usize| *a < *at && adds.iter().any(|b| are_alike(view, *a, *b));
                total != counted && !count.locals.contains(&total) && adds_too.iter().all(beside)
            };
            let mut totals = grown(view, &before);
            let plain = before.collectives.is_empty() && !before.locals.contains(&counted);
            let summed = *at < divided && plain && !copied_before(view, left, *at) && over_data(view, *at);
            (summed && totals.any(alike)).then_some(*at)
        };
        let Some(reduced) = sum.collectives.iter().find_map(beside) else { continue };
        let practice = Practice::LocalCount {
            divided: view.place(view.steps[divided].id),
            reduced: Some(view.place(view.steps[reduced].id)),
            comment: None,
        };
        out.push((view.place(view.steps[adds[0]].id), practice));
    }
}

/// The variables of a value that are added up in rounds, and where.
fn grown<'v>(view: &'v View<'_>, of: &'v Slice) -> impl Iterator<Item = (LocalId, Vec<usize>)> + 'v {
    of.locals.iter().filter_map(|l| Some((*l, grows(view, *l)?)))
}

/// Methods that give the same number.
const SAME: &[&str] = &["item", "float", "double", "to", "cpu", "clamp", "clamp_min", "int", "long", "max"];

/// The variable behind bounds, conversions and fixed factors: of `math.log(2) * n.item()` the `n`.
fn number(view: &View<'_>, operand: &Operand) -> Option<LocalId> {
    let local = near::local(operand)?;
    if grows(view, local).is_some() {
        return Some(local);
    }
    let fixed = |o: &Operand| !view.expr(o).any(&mut |e| matches!(e, Expr::Local(_) | Expr::Unknown | Expr::Attr(..)));
    match view.source(operand)?.1 {
        Rvalue::Use(of) => number(view, of),
        Rvalue::Binary { op: BinOp::Mul | BinOp::Add, left, right } if fixed(right) => number(view, left),
        Rvalue::Binary { op: BinOp::Mul | BinOp::Add, left, right } if fixed(left) => number(view, right),
        Rvalue::CallMethod { base, name, .. } if SAME.contains(&name.as_str()) => number(view, base),
        Rvalue::Call { callee: Operand::Global(name), args } if SAME.contains(&name.as_str()) => {
            number(view, &args.first()?.value)
        }
        _ => None,
    }
}

/// The steps that add to a variable in rounds, which starts with zero before them, and is at most made a plain number behind them.
fn grows(view: &View<'_>, local: LocalId) -> Option<Vec<usize>> {
    if view.is_temp(local) || view.is_param(local) || view.func.locals()[local].kind != LocalKind::Plain {
        return None;
    }
    let (adds, others): (Vec<usize>, Vec<usize>) =
        view.defs(local).iter().copied().partition(|d| added(view, *d, local).is_some());
    let (first, last) = (*adds.first()?, *adds.last()?);
    let converts = |d: usize| match view.bound(d, local) {
        Expr::Call { callee, .. } => {
            matches!(&*callee, Expr::Attr(of, name) if name == "item" && **of == Expr::Local(local))
        }
        _ => false,
    };
    let starts = others.first().is_some_and(|d| *d < first);
    let fits = others.iter().all(|d| *d < first && is_start(view, *d, local) || *d > last && converts(*d));
    (starts && fits && adds.iter().all(|at| !view.steps[*at].loops.is_empty())).then_some(adds)
}

/// Whether the same rounds add to two variables what comes of the same data.
fn are_alike(view: &View<'_>, a: usize, b: usize) -> bool {
    let (x, y) = (&view.steps[a], &view.steps[b]);
    let same = |g: &super::view::Guard<'_>| y.guards.iter().any(|h| h.at == g.at && h.holds == g.holds);
    let together = x.loops == y.loops && x.guards.len() == y.guards.len() && x.guards.iter().all(same);
    let Some(round) = x.loops.last().copied().filter(|_| together) else { return false };
    let of_round = |l: &LocalId| {
        let made = |d: &usize| *d == round || view.steps[*d].loops.contains(&round);
        !view.is_temp(*l) && view.defs(*l).iter().all(made) && !view.defs(*l).is_empty()
    };
    let from = |step: usize| match addend(view, step) {
        Some(of) => near::roots(view, of),
        None => Default::default(),
    };
    let (of_a, of_b) = (from(a), from(b));
    // The same number, of all and of this rank, gives the share of this rank.
    if of_a == of_b {
        return false;
    }
    of_a.iter().any(|l| of_round(l) && of_b.contains(l))
}

fn addend<'a>(view: &View<'a>, step: usize) -> Option<&'a Operand> {
    let local = view.binds(step).first().copied()?;
    added(view, step, local)
}

/// Functions that hand out data.
const HANDS_OUT: &[&str] = &["next", "iter", "range", "enumerate", "zip", "items", "get", "pop", "list"];

/// Whether what a step adds is a sum of elements, by operations on what each round has.
fn is_of_data(view: &View<'_>, step: usize) -> bool {
    let Some(of) = addend(view, step) else { return false };
    let made = slice(view, of);
    let of_rounds = |d: usize| !view.steps[d].loops.is_empty();
    let known = |d: &usize| match view.value(*d) {
        Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) => {
            let name = near::written_name(view, value).unwrap_or_default();
            is_operation(view, *d) || LOOKS.contains(&name.as_str()) || HANDS_OUT.contains(&name.as_str())
        }
        _ => true,
    };
    let reached = near::reached(view, of, of_rounds);
    let plain = reached.iter().flat_map(|l| view.defs(*l)).filter(|d| of_rounds(**d)).all(known);
    plain && !made.sums.is_empty() && made.collectives.is_empty()
}

/// Whether a call that is no operation of tensors takes one of these variables.
fn taken_elsewhere(view: &View<'_>, is: &dyn Fn(LocalId) -> bool) -> bool {
    (0..view.steps.len()).any(|step| {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
            return false;
        };
        let takes = args.iter().any(|a| root(view, &a.value).is_some_and(is));
        let name = || near::written_name(view, value).unwrap_or_default();
        takes && !is_operation(view, step) && !near::only_tells(view, step) && !LOOKS.contains(&name().as_str())
    })
}

/// The sum over ranks that a step writes to a variable in place.
fn sums<'a>(call: &CollectiveCall<'a>, view: &View<'a>) -> Option<LocalId> {
    let plain = call.rule.op == "all_reduce" && call.rule.form == Form::InPlace && averages(view, call) == Some(false);
    near::local(call.input?).filter(|_| plain)
}

/// `weight = (lse - largest).exp()`, `out *= weight`, `all_reduce(out)` and `out / weight`, where the largest is that of all ranks.
pub fn weighed<'a>(view: &View<'a>, out: &mut Found) {
    for divided in 0..view.steps.len() {
        let Some((left, right)) = quotient(view, divided) else { continue };
        let (Some(total), Some(weight)) = (held(view, left), held(view, right)) else { continue };
        let of_total = |(at, call): &&(usize, CollectiveCall<'a>)| {
            *at < divided && sums(call, view) == Some(total) && is_weighed(view, total, weight, *at)
        };
        let Some((reduced, _)) = view.collectives().iter().find(of_total) else { continue };
        let Some(made) = shifted(view, weight) else { continue };
        let fixed = |l: LocalId| view.defs(l).len() == 1;
        if !fixed(weight) || taken_elsewhere(view, &|l| l == weight) {
            continue;
        }
        let practice = Practice::LocalCount {
            divided: view.place(view.steps[divided].id),
            reduced: Some(view.place(view.steps[*reduced].id)),
            comment: None,
        };
        out.push((view.place(view.steps[made].id), practice));
    }
}

/// The variable behind bounds and small numbers: `w.clamp(min=eps)`, `w + eps`.
fn held(view: &View<'_>, operand: &Operand) -> Option<LocalId> {
    let local = near::local(operand)?;
    if !view.is_temp(local) {
        return Some(local);
    }
    match view.source(operand)?.1 {
        Rvalue::CallMethod { base, name, .. } if matches!(name.as_str(), "clamp" | "clamp_min" | "unsqueeze") => {
            held(view, base)
        }
        Rvalue::Binary { op: BinOp::Add, left, right } if near::local(right).is_none() => held(view, left),
        _ => None,
    }
}

/// Whether a variable was multiplied with a weight before a step, and is that since.
fn is_weighed(view: &View<'_>, total: LocalId, weight: LocalId, before: usize) -> bool {
    let Some(made) = view.last_def(total, before) else { return false };
    let is = |o: &Operand| held(view, o) == Some(weight);
    let multiplies = |value: &Rvalue| match value {
        Rvalue::Binary { op: BinOp::Mul, left, right } | Rvalue::InPlace { op: BinOp::Mul, left, right } => {
            is(left) || is(right)
        }
        _ => false,
    };
    match view.value(made) {
        Some(Rvalue::Use(of)) => view.source(of).is_some_and(|(_, value)| multiplies(value)),
        Some(value) => multiplies(value),
        None => false,
    }
}

/// Where a weight is made, as an exponential of what each rank has less the largest of all ranks.
fn shifted<'a>(view: &View<'a>, weight: LocalId) -> Option<usize> {
    let &[made] = view.defs(weight) else { return None };
    let of = view.bound(made, weight);
    let inner = match &of {
        Expr::Call { callee, args, .. } => match (&**callee, args.as_slice()) {
            (Expr::Attr(base, name), []) if name == "exp" => &**base,
            (Expr::Path(path), [(_, of)]) if path == "torch.exp" => of,
            _ => return None,
        },
        _ => return None,
    };
    let (Expr::Local(own), Expr::Local(largest)) = (match inner {
        Expr::Binary(BinOp::Sub, a, b) => (&**a, &**b),
        _ => return None,
    }) else {
        return None;
    };
    let is_largest = |(at, call): &(usize, CollectiveCall<'a>)| {
        let most = view.operator(call).is_some_and(|op| view.expr(op).last_name() == Some("MAX"));
        let input = call.input.and_then(near::local) == Some(*largest);
        let from = slice_until(view, &Operand::Local(*largest), *at);
        *at < made && most && input && call.rule.form == Form::InPlace && from.locals.contains(own)
    };
    (own != largest && view.collectives().iter().any(is_largest)).then_some(made)
}

/// `total = x.sum(dims)`, `square = (x ** 2).sum(dims)`, `all_reduce(total)`, `total / count` and `square / count`, where the count is that of all ranks.
pub fn statistics<'a>(view: &View<'a>, out: &mut Found) {
    let quotients: Vec<(usize, LocalId, LocalId)> = (0..view.steps.len())
        .filter_map(|i| {
            let (left, right) = quotient(view, i)?;
            Some((i, near::local(left)?, near::local(right)?))
        })
        .collect();
    for (divided, own, count) in &quotients {
        let Some((made, dims)) = summed(view, *own).filter(|_| counts_all(view, *count)) else { continue };
        let beside = quotients.iter().find_map(|(at, total, other)| {
            let same = other == count && total != own;
            let (from, _) = summed(view, *total).filter(|(_, d)| same && *d == dims)?;
            let (reduced, _) = view.collectives().iter().find(|(_, call)| sums(call, view) == Some(*total))?;
            let alike = shares(view, *total, *own) && from < *reduced && reduced < at;
            alike.then_some(*reduced)
        });
        let Some(reduced) = beside else { continue };
        let all = made_of(view, *own, made);
        if taken_elsewhere(view, &|l| all.contains(&l)) {
            continue;
        }
        let found =
            Own::Partial { partial: view.place(view.steps[made].id), reduced: view.place(view.steps[reduced].id) };
        out.push((view.place(view.steps[*divided].id), Practice::OfThisRank(found)));
    }
}

/// A variable and whatever comes of it in the steps behind one.
fn made_of(view: &View<'_>, local: LocalId, from: usize) -> FxHashSet<LocalId> {
    let mut held: FxHashSet<LocalId> = std::iter::once(local).collect();
    for step in from + 1..view.steps.len() {
        if view.reads(step).iter().any(|o| near::local(o).is_some_and(|l| held.contains(&l))) {
            held.extend(view.binds(step));
        }
    }
    held
}

/// Where a variable is made as a sum along dims, or a copy of one, and these as they are written.
fn summed<'a>(view: &View<'a>, local: LocalId) -> Option<(usize, &'a str)> {
    let &[made] = view.defs(local) else { return None };
    let Expr::Call { callee, step, .. } = view.bound(made, local) else { return None };
    if let Expr::Attr(of, name) = &*callee
        && let (Expr::Local(of), "clone") = (&**of, name.as_str())
    {
        return summed(view, *of).filter(|_| *of != local).map(|(_, dims)| (made, dims));
    }
    let Some(Rvalue::CallMethod { args, .. }) = view.value(step) else { return None };
    let sums = matches!(&*callee, Expr::Attr(_, name) if name == "sum");
    let text = view.text(view.place(view.steps[step].id));
    let dims = text.rfind(".sum(").map(|at| &text[at..]);
    dims.filter(|_| sums && !args.is_empty() && !view.is_param(local)).map(|dims| (made, dims))
}

/// Whether two sums are of the same argument.
fn shares(view: &View<'_>, a: LocalId, b: LocalId) -> bool {
    let (a, b) = (slice(view, &Operand::Local(a)), slice(view, &Operand::Local(b)));
    a.locals.iter().any(|l| view.is_param(*l) && !near::is_self(view, &Operand::Local(*l)) && b.locals.contains(l))
}

/// Whether a number is multiplied with the number of ranks of a group.
fn counts_all(view: &View<'_>, count: LocalId) -> bool {
    let &[made] = view.defs(count) else { return false };
    let is_size =
        |e: &Expr| e.call_of("get_world_size").is_some() || e.last_name().is_some_and(|n| NUMBERS.contains(&n));
    let named = |e: &Expr| matches!(e, Expr::Local(l) if NUMBERS.contains(&view.local_name(*l).as_str()));
    let size = |e: &Expr| is_size(e) || named(e);
    view.bound(made, count).any(&mut |e| matches!(e, Expr::Binary(BinOp::Mul, a, b) if size(a) || size(b)))
}

/// Names of numbers of ranks.
const NUMBERS: &[&str] = &["world_size", "tp_size", "sp_size", "cp_size", "num_ranks", "group_size"];
