//! Sums and counts that a loop adds up. In: a function. Out: a quotient of two of them where the sum was taken over ranks and the count is
//! that of this rank. Never: a count that anything else may communicate, a mean over ranks, a function that knows the number of ranks.
//! Next: `counts.rs`.

use super::Found;
use super::counts::{is_mask, over_data, quotient, slice_until};
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::this_rank::scales_by_ranks;
use super::view::{CollectiveCall, View};
use crate::ir::{Arg, ArgKind, BinOp, LocalId, LocalKind, Operand, Rvalue, Stmt};

/// Words of a function whose ranks have other data.
const DATA: &[&str] = &["dp_group", "data_parallel", "DistributedSampler", "num_replicas", "dp_rank", "dp_size"];

/// What gives the number that it is given, or a tensor of it.
const SAME: &[&str] = &["item", "float", "int", "max", "clamp", "clamp_min", "cpu", "to", "double", "detach"];

pub fn divided(view: &View<'_>, out: &mut Found) {
    let mut scales = None;
    for (i, step) in view.steps.iter().enumerate() {
        let Some((left, right)) = quotient(view, i) else { continue };
        let (Some(total), Some(count)) = (inner(view, left), inner(view, right)) else { continue };
        let Some((round, counted)) = added_up(view, count).filter(|_| total != count) else { continue };
        if !of_data(view, counted) || !is_own(view, count, counted) || view.code().contains("rank") {
            continue;
        }
        let reduced = view.collectives().iter().find(|(at, call)| {
            let sums = over_data(view, *at) && (call.group.is_some() || splits(view)) && is_sum(view, call);
            let of_round = |local: LocalId| added_up(view, local).is_some_and(|(r, _)| r == round);
            let input = || call.input.and_then(near::local);
            let made = || call.input.map(|input| slice_until(view, input, *at).locals).unwrap_or_default();
            let same = input() == Some(total) && (of_round(total) || made().iter().any(|l| of_round(*l)));
            *at > counted && *at < i && sums && same && unguarded(view, *at)
        });
        let Some((at, _)) = reduced else { continue };
        // A count over a count is a number of times.
        if added_up(view, total).is_some_and(|(_, sum)| what(view, sum) == what(view, counted)) {
            continue;
        }
        let by_ranks = || {
            let divides = |v: &View<'_>| (0..v.steps.len()).any(|s| quotient(v, s).is_some() && scales_by_ranks(v, s));
            (0..view.steps.len()).any(|step| scales_by_ranks(view, step))
                || super::called::callers(view).iter().any(|(caller, _)| divides(caller))
        };
        if !*scales.get_or_insert_with(by_ranks) {
            let practice = Practice::LocalCount {
                divided: view.place(step.id),
                reduced: Some(view.place(view.steps[*at].id)),
                comment: None,
            };
            out.push((view.place(view.steps[counted].id), practice));
        }
    }
}

/// Whether ranks have other data, going by the function: else the sum over all of them may be one of parts of a model.
fn splits(view: &View<'_>) -> bool {
    DATA.iter().any(|w| view.code().contains(&w.to_lowercase()))
}

/// The variable that an operand is, but for conversions and for a least value.
fn inner(view: &View<'_>, operand: &Operand) -> Option<LocalId> {
    let mut expr = view.expr(operand);
    loop {
        expr = match expr {
            Expr::Local(local) => return (view.func.locals()[local].kind == LocalKind::Plain).then_some(local),
            Expr::Item(of, _) => *of,
            Expr::Call { callee, args, .. } if callee.last_name().is_some_and(|n| SAME.contains(&n)) => match *callee {
                Expr::Attr(of, _) => *of,
                _ => args.into_iter().next()?.1,
            },
            _ => return None,
        };
    }
}

/// The loop that adds to a variable which is bound before it, and the step that does.
fn added_up(view: &View<'_>, local: LocalId) -> Option<(usize, usize)> {
    let adds = |def: &usize| match view.value(*def) {
        Some(Rvalue::InPlace { op: BinOp::Add, left, .. } | Rvalue::Binary { op: BinOp::Add, left, .. }) => {
            *left == Operand::Local(local) && !view.steps[*def].loops.is_empty()
        }
        _ => false,
    };
    let (sums, starts): (Vec<usize>, Vec<usize>) = view.defs(local).iter().copied().partition(adds);
    let ([sum], [start]) = (sums.as_slice(), starts.as_slice()) else { return None };
    let round = *view.steps[*sum].loops.last()?;
    let before = *start < round && !view.steps[*start].loops.contains(&round) && !view.is_param(local);
    (before && unguarded(view, *sum)).then_some((round, *sum))
}

/// Whether a reduction sums, and says so where it says anything.
fn is_sum(view: &View<'_>, call: &CollectiveCall<'_>) -> bool {
    let op = |arg: &&Arg| matches!(&arg.kind, ArgKind::Keyword(name) if name == "op");
    call.args.iter().find(op).is_none_or(|arg| view.through(&arg.value).last_name() == Some("SUM"))
}

/// The text of what a step adds.
fn what<'a>(view: &View<'a>, step: usize) -> &'a str {
    let text = view.text(view.place(view.steps[step].id));
    text.split('+').next_back().unwrap_or(text).trim_start_matches('=').trim()
}

/// What a step adds.
fn added(view: &View<'_>, step: usize) -> Option<Expr> {
    let (Rvalue::InPlace { right, .. } | Rvalue::Binary { right, .. }) = view.value(step)? else { return None };
    Some(view.through(right))
}

/// How far an expression is followed to what a loop gives.
const MOST_DEPTH: usize = 12;

/// Whether an expression is what a loop gives, or a part of it by its key: not what a call makes of it.
fn is_given(view: &View<'_>, expr: &Expr, depth: usize) -> bool {
    // A name may be bound to a part of itself.
    if depth > MOST_DEPTH {
        return false;
    }
    let is_given = |view: &View<'_>, expr: &Expr| is_given(view, expr, depth + 1);
    match expr {
        Expr::Local(local) => match view.defs(*local) {
            [def] if matches!(view.steps[*def].stmt, Stmt::For { .. }) => true,
            [def] if view.value(*def).is_none() => {
                let parts = view.reads(*def);
                let given = |part: &Operand| near::local(part).is_some_and(|l| is_given(view, &Expr::Local(l)));
                !parts.is_empty() && parts.into_iter().all(given)
            }
            [def] => is_given(view, &view.bound(*def, *local)),
            _ => false,
        },
        Expr::Attr(of, name) => !is_of_all(name) && is_given(view, of),
        Expr::Item(of, key) => !key.string().is_some_and(|key| is_of_all(key)) && is_given(view, of),
        Expr::Compare(_, a, b) => is_given(view, a) || is_given(view, b),
        Expr::Call { callee, args, .. } => match &**callee {
            Expr::Attr(of, name) if MOVES.contains(&name.as_str()) => {
                !args.iter().any(|(_, a)| a.string().is_some_and(|key| is_of_all(key))) && is_given(view, of)
            }
            _ => false,
        },
        _ => false,
    }
}

/// Methods that give what a batch holds, elsewhere or in another shape.
const MOVES: &[&str] =
    &["pop", "get", "to", "cuda", "view", "reshape", "flatten", "float", "bool", "int", "long", "ne", "eq", "squeeze"];

fn is_of_all(name: &str) -> bool {
    ["all", "global", "whole", "everyone", "full"].iter().any(|w| near::has_part(name, w))
}

/// Whether what a step adds depends on the data: elements of a mask, rows or elements of a tensor. Rounds and seconds are the same on all
/// ranks.
fn of_data(view: &View<'_>, step: usize) -> bool {
    let Some(mut counted) = added(view, step) else { return false };
    while let Expr::Call { callee, args, .. } = counted {
        match *callee {
            Expr::Attr(of, name) if SAME.contains(&name.as_str()) => counted = *of,
            Expr::Attr(of, name) => {
                let sums = name == "sum" && is_mask(view, &of);
                return (name == "numel" || name == "size" || sums) && is_given(view, &of, 0);
            }
            Expr::Path(path) if path == "len" => return args.first().is_some_and(|(_, of)| is_given(view, of, 0)),
            _ if args.len() == 1 => match args.into_iter().next() {
                Some((_, of)) => counted = of,
                None => return false,
            },
            _ => return false,
        }
    }
    match counted {
        Expr::Item(of, _) => matches!(&*of, Expr::Attr(of, name) if name == "shape" && is_given(view, of, 0)),
        _ => false,
    }
}

/// Whether no rank decides whether a step runs.
pub(super) fn unguarded(view: &View<'_>, step: usize) -> bool {
    !view.steps[step].guards.iter().any(|guard| {
        near::deep(view, &view.expr(guard.test)).any(&mut |e| view.name_of(e).is_some_and(|name| name.contains("rank")))
    })
}

/// Whether a count goes nowhere but into numbers: nothing communicates it, and no function of the project is given it.
fn is_own(view: &View<'_>, count: LocalId, counted: usize) -> bool {
    let parts: Vec<LocalId> = view.reads(counted).into_iter().filter_map(near::local).collect();
    let summed = |local: Option<LocalId>| local.is_some_and(|l| l != count && parts.contains(&l));
    if view.collectives().iter().any(|(_, call)| summed(call.input.and_then(near::local))) {
        return false;
    }
    let communicated = view.collectives().iter().any(|(at, call)| {
        let mut given = call.args.iter().map(|arg| slice_until(view, &arg.value, *at));
        given.any(|slice| slice.locals.contains(&count))
    });
    let harmless = |step: &usize| match view.value(*step) {
        Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) => {
            let name = view.callee(value);
            let last = name.as_ref().and_then(|path| path.rsplit('.').next());
            last.is_some_and(|n| SAME.contains(&n) || matches!(n, "print" | "format" | "info" | "append"))
        }
        Some(Rvalue::Build { .. }) | None => false,
        Some(_) => true,
    };
    !communicated && view.readers(count).iter().all(harmless)
}
