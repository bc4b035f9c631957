//! Labels that count from the first rank's rows. In: a function that compares the rows of this rank with those of all ranks. Out: a
//! cross entropy over such scores whose labels are `arange` over the own rows: the match of row i stands at `rank * rows + i`. Never: rows of
//! all ranks, labels that anything is added to, or gathered rows in another order than that of the ranks. Source: open_clip,
//! `ClipLoss.get_ground_truth` with `local_loss`. Next: `positions.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::only_some::callee;
use super::unfold::{is_around, unfold};
use super::view::{CollectiveCall, View};
use crate::ir::{ArgKind, BinOp, Const, LocalId, Operand, Rvalue, Stmt};
use crate::rules::Form;
use crate::source::{Name, Place};

/// How many functions and variables lie between scores and what gathers.
pub const MOST_STEPS: usize = 8;

/// Methods and functions whose result has the same rows in the same order.
pub const SAME: &[&str] = &[
    "normalize",
    "to",
    "long",
    "float",
    "half",
    "bfloat16",
    "cuda",
    "detach",
    "clone",
    "contiguous",
    "type_as",
    "list",
];

/// Methods that turn rows into columns.
pub(super) const TURNS: &[&str] = &["t", "transpose"];

/// Names of what compares all rows of one with all of another.
const PRODUCTS: &[&str] = &["matmul", "mm", "cos_sim", "similarity_fct", "similarity"];

pub fn labels(view: &View<'_>, out: &mut Found) {
    for step in 0..view.steps.len() {
        let Some((scores, labels)) = entropy(view, step) else { continue };
        let Some(counted) = counted(&unfold(view, &view.expr(labels), step)) else { continue };
        let Some((rows, columns)) = product(view, &view.expr(scores), step, MOST_STEPS) else { continue };
        let gathered = |(side, step): &Side| gathered(view, side, *step, MOST_STEPS);
        if let (None, Some(gathered)) = (gathered(&rows), gathered(&columns)) {
            let columns = name(view, &columns.0);
            let mistake = Membership::LabelsOfFirst { columns, gathered };
            out.push((view.place(view.steps[counted].id), Practice::Membership(mistake)));
        }
    }
}

/// The scores and the labels of a cross entropy.
pub(super) fn entropy<'a>(view: &View<'a>, step: usize) -> Option<(&'a Operand, &'a Operand)> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    if !is_entropy(view, value) {
        return None;
    }
    Some((view.argument(args, 0, "input")?, view.argument(args, 1, "target")?))
}

/// Whether a call is that of torch's function, or of its module that the constructor keeps.
fn is_entropy<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    const MODULE: &str = "torch.nn.CrossEntropyLoss";
    let makes = |e: &Expr, at: &View<'_>| match e {
        Expr::Call { callee, .. } => near::path(at, callee).is_some_and(|path| path == MODULE),
        _ => false,
    };
    match value {
        Rvalue::Call { callee, .. } => {
            let callee = near::deep(view, &view.expr(callee));
            callee.path().is_some_and(|path| path == "torch.nn.functional.cross_entropy") || makes(&callee, view)
        }
        Rvalue::CallMethod { base, name, .. } if near::is_self(view, base) => {
            near::class_of(view).is_some_and(|class| {
                let kept = near::assigned(view, class, name);
                !kept.is_empty() && kept.iter().all(|(method, _, value)| makes(&method.expr(value), method))
            })
        }
        Rvalue::CallMethod { .. } => view.callee(value).is_some_and(|path| path == "torch.nn.functional.cross_entropy"),
        _ => false,
    }
}

/// The call of `torch.arange(n)`, or `torch.arange(0, n)`.
fn counted(labels: &Expr) -> Option<usize> {
    let Expr::Call { callee, args, step } = labels else { return None };
    match &**callee {
        Expr::Attr(base, name) if SAME.contains(&name.as_str()) => counted(base),
        Expr::Path(path) if path == "torch.arange" => {
            let given: Vec<&Expr> =
                args.iter().filter(|(kind, _)| *kind == ArgKind::Positional).map(|(_, a)| a).collect();
            let named = |(kind, _): &(ArgKind, Expr)| matches!(kind, ArgKind::Keyword(k) if !["device", "dtype"].contains(&k.as_str()));
            let from_zero = matches!(given.as_slice(), [_] | [Expr::Const(Const::Int(0)), _]);
            (from_zero && !args.iter().any(named)).then_some(*step)
        }
        _ => None,
    }
}

/// One side of a product, and where it is read.
type Side = (Expr, usize);

/// What is compared with what: the rows of the scores, and their columns.
pub(super) fn product(view: &View<'_>, scores: &Expr, step: usize, depth: usize) -> Option<(Side, Side)> {
    let depth = depth.checked_sub(1)?;
    let side = |e: &Expr| (e.clone(), step);
    match scores {
        Expr::Local(local) => {
            let def = view.last_def(*local, step)?;
            let whole = is_around(&view.steps[def], view.steps.get(step)?);
            whole.then(|| product(view, &view.bound(def, *local), def, depth)).flatten()
        }
        Expr::Binary(BinOp::MatMul, a, b) => Some((side(a), side(b))),
        Expr::Binary(BinOp::Mul | BinOp::Div, a, b) => {
            product(view, a, step, depth).or_else(|| product(view, b, step, depth))
        }
        Expr::Attr(base, name) if name == "T" => product(view, base, step, depth).map(|(a, b)| (b, a)),
        Expr::Call { callee, args, .. } => {
            let last = callee.last_name()?;
            match (&**callee, args.as_slice()) {
                (Expr::Attr(base, _), _) if TURNS.contains(&last) => {
                    product(view, base, step, depth).map(|(a, b)| (b, a))
                }
                (Expr::Attr(base, _), _) if SAME.contains(&last) => product(view, base, step, depth),
                (Expr::Attr(base, _), [(_, other)]) if PRODUCTS.contains(&last) => Some((side(base), side(other))),
                (_, [(_, a), (_, b)]) if PRODUCTS.contains(&last) => Some((side(a), side(b))),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Where a value is gathered from all ranks, one behind the other, on some way that leads there.
pub(super) fn gathered(view: &View<'_>, expr: &Expr, step: usize, depth: usize) -> Option<Place> {
    let depth = depth.checked_sub(1)?;
    let inner = |e: &Expr| gathered(view, e, step, depth);
    match expr {
        Expr::Local(local) => written(view, *local, step, Form::IntoOutput)
            .or_else(|| last(view, *local, step, &|e, at| gathered(view, e, at, depth))),
        Expr::Attr(base, name) if name == "T" => inner(base),
        Expr::Binary(BinOp::Mul | BinOp::Div, a, b) => inner(a).or_else(|| inner(b)),
        Expr::Choice(_, a, b) => inner(a).or_else(|| inner(b)),
        // `all_image, all_text = gather([image, text])`
        Expr::Item(whole, index) => match (unfold(view, whole, step), &**index) {
            (Expr::Call { step: call, .. }, Expr::Const(Const::Int(at))) => {
                listed(view, call, depth).or_else(|| item(view, call, *at, depth))
            }
            _ => None,
        },
        Expr::Call { callee, args, step: call } => {
            let last = callee.last_name()?;
            match &**callee {
                Expr::Attr(base, _) if SAME.contains(&last) || TURNS.contains(&last) => inner(base),
                Expr::Path(_) if SAME.contains(&last) => inner(&args.first()?.1),
                Expr::Path(path) if path.starts_with("torch.") && ["cat", "concat", "vstack"].contains(&last) => {
                    let along = args.iter().skip(1).all(|(_, dim)| *dim == Expr::Const(Const::Int(0)));
                    along.then(|| parts(view, &args.first()?.1, step, depth)).flatten()
                }
                _ => made(view, *call, depth),
            }
        }
        _ => None,
    }
}

/// Where an item of the tuple is gathered that a function of the project returns: the same one on every way.
fn item(view: &View<'_>, call: usize, at: i64, depth: usize) -> Option<Place> {
    let inner = near::shared(view, callee(view, view.value(call)?)?);
    let returned = (0..inner.steps.len()).filter_map(|step| match inner.steps[step].stmt {
        Stmt::Return { value } => Some((step, value)),
        _ => None,
    });
    let gathered = returned.map(|(step, value)| {
        let items = near::items(inner.source(value)?.1)?;
        gathered(&inner, &inner.expr(items.get(usize::try_from(at).ok()?)?), step, depth)
    });
    let mut places = gathered.collect::<Option<Vec<Place>>>()?.into_iter();
    let first = places.next()?;
    places.all(|place| place == first).then_some(first)
}

/// Where each entry of the list is gathered that a function of the project puts together.
fn listed(view: &View<'_>, call: usize, depth: usize) -> Option<Place> {
    let inner = near::shared(view, callee(view, view.value(call)?)?);
    let mut returned = inner.steps.iter().filter_map(|step| match step.stmt {
        Stmt::Return { value } => near::local(value),
        _ => None,
    });
    let (Some(list), None) = (returned.next(), returned.next()) else { return None };
    let [made] = inner.defs(list) else { return None };
    if inner.is_param(list) || near::items(inner.value(*made)?).is_none_or(|items| !items.is_empty()) {
        return None;
    }
    let mut put = Vec::new();
    for (at, step) in inner.steps.iter().enumerate() {
        match (step.stmt, inner.value(at)) {
            (Stmt::Append { collection, value, .. }, _) if *collection == list => put.push((at, value)),
            (_, Some(Rvalue::CallMethod { base, name, args })) if near::local(base) == Some(list) => {
                put.push((at, &args.first().filter(|_| name == "append")?.value));
            }
            (Stmt::Return { .. }, _) => {}
            _ if inner.reads(at).into_iter().any(|o| near::local(o) == Some(list)) => return None,
            _ => {}
        }
    }
    let [(at, value)] = put.as_slice() else { return None };
    gathered(&inner, &inner.expr(value), *at, depth)
}

/// Where the parts of all ranks are gathered into a list or a tuple.
fn parts(view: &View<'_>, expr: &Expr, step: usize, depth: usize) -> Option<Place> {
    let depth = depth.checked_sub(1)?;
    match expr {
        Expr::Local(local) => {
            // Another order of the ranks, or other parts; not what is done with a tensor that has the name afterwards.
            let before = view.readers(*local).iter().filter(|at| **at < step);
            let changed = before.into_iter().any(|at| match view.steps[*at].stmt {
                Stmt::SetItem { index, .. } => !is_rank(view, index),
                Stmt::Assign { value: Rvalue::CallMethod { base, .. }, .. } => *base == Operand::Local(*local),
                _ => false,
            });
            if changed {
                return None;
            }
            written(view, *local, step, Form::IntoList)
                .or_else(|| last(view, *local, step, &|e, at| parts(view, e, at, depth)))
        }
        _ => gathered(view, expr, step, depth),
    }
}

/// Whether an index goes by a name of ranks.
fn is_rank(view: &View<'_>, index: &Operand) -> bool {
    let said = |name: &str| name.contains("rank");
    view.expr(index).any(&mut |e| view.name_of(e).is_some_and(said))
}

/// An all-gather that writes to a variable before a step.
fn written(view: &View<'_>, local: LocalId, step: usize, form: Form) -> Option<Place> {
    let gathers = |(at, call): &&(usize, CollectiveCall<'_>)| {
        *at < step
            && call.rule.op == "all_gather"
            && call.rule.form == form
            && call.output.and_then(near::local) == Some(local)
    };
    view.collectives().iter().find(gathers).map(|(at, _)| view.place(view.steps[*at].id))
}

/// What is asked of the values that a variable may have at a step: back to the binding that every way there passes.
fn last<T>(view: &View<'_>, local: LocalId, step: usize, ask: &dyn Fn(&Expr, usize) -> Option<T>) -> Option<T> {
    for def in view.defs(local).iter().rev().copied().filter(|def| *def < step) {
        if let Some(found) = ask(&view.bound(def, local), def) {
            return Some(found);
        }
        if view.steps.get(step).is_some_and(|reader| is_around(&view.steps[def], reader)) {
            return None;
        }
    }
    None
}

/// Where what a call gives is gathered: by a collective, an autograd function or a function of the project.
pub fn made(view: &View<'_>, call: usize, depth: usize) -> Option<Place> {
    let value = view.value(call)?;
    if let Some(collective) = view.collective(value) {
        let result = collective.rule.op == "all_gather" && collective.rule.form == Form::Result;
        return result.then(|| view.place(view.steps[call].id));
    }
    let returned = |other: &View<'_>| {
        (0..other.steps.len()).find_map(|at| match other.steps[at].stmt {
            Stmt::Return { value } => {
                gathered(other, &other.expr(value), at, depth).or_else(|| parts(other, &other.expr(value), at, depth))
            }
            _ => None,
        })
    };
    if let Rvalue::CallMethod { base, name, .. } = value
        && name == "apply"
        && let Some(class) = near::class_named(view, base)
    {
        return returned(&near::shared(view, view.project.own_method(class, "forward")?));
    }
    returned(&near::shared(view, callee(view, value)?))
}

/// What a side of a product is called.
fn name(view: &View<'_>, expr: &Expr) -> Option<Name> {
    match expr {
        Expr::Local(local) => (!view.is_temp(*local)).then(|| view.local_name(*local).clone()),
        Expr::Attr(base, name) if name == "T" => self::name(view, base),
        Expr::Call { callee, args, .. } => match &**callee {
            Expr::Attr(base, _) => name(view, base),
            _ => name(view, &args.first()?.1),
        },
        _ => None,
    }
}
