//! Variances of ranks that are weighed, added up and given on as the variance of all. In: a function. Out: a sum over ranks of each rank's own variance, beside that of its mean,
//! where the two go on together: they are returned as a pair, follow each other into buffers, or scale the data. Never: a function in which anything that comes of the data or
//! of its mean is added to or taken from the variance, or one that gives the two out as numbers to look at. Source: Chan, Golub, LeVeque 1983, pairwise
//! variance; leggedrobotics/rsl_rl pull request 226. Next: `mean_of_variances.rs`, the same of plain means under a root.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::mean_of_variances::{is_centred_before, is_small, result};
use super::membership::Membership;
use super::mixed_mean::averages;
use super::near;
use super::statistic::takes_root;
use super::view::{CollectiveCall, View};
use crate::ir::{BinOp, BuildKind, LocalId, Operand, Rvalue, Stmt};

/// Methods that change no value.
const SAME: &[&str] =
    &["clone", "detach", "contiguous", "to", "float", "double", "view", "reshape", "flatten", "squeeze", "unsqueeze"];
/// Methods that write what they are given into a buffer.
const WRITES: &[&str] = &["copy_", "lerp_", "add_", "set_"];
/// Words of functions for data that all ranks have, and for the spread within ranks alone.
const OTHERWISE: &[&str] = &["broadcast", "within", "pooled", "ghost", "stderr", "standard_error"];
/// How far a value is followed.
const MOST: usize = 8;

/// A moment of some data where it is reduced.
struct Moment {
    is_mean: bool,
    data: Expr,
    /// The step that gives what is reduced its last value.
    made: usize,
    /// The reduction, and what holds its result.
    at: usize,
    reduced: LocalId,
}

/// `m = x.mean(0) * w`, `v = x.var(0) * w`, `all_reduce(m)`, `all_reduce(v)`, `return m, v`
pub fn pairs(view: &View<'_>, out: &mut Found) {
    // What all ranks have alike has no spread between them, and that within them may be what is wanted.
    if near::has_any(view.code(), OTHERWISE) {
        return;
    }
    if view.collectives().iter().any(|(_, call)| call.rule.op == "all_gather") {
        return;
    }
    let found: Vec<Moment> = view.collectives().iter().filter_map(|(at, call)| moment(view, *at, call)).collect();
    for var in found.iter().filter(|m| !m.is_mean) {
        let Some(mean) = found.iter().find(|m| m.is_mean && m.data == var.data) else { continue };
        let Some(goes) = goes_on(view, mean, var) else { continue };
        if is_corrected(view, mean, var) || is_handed(view, var) || is_centred_before(view, var.at) {
            continue;
        }
        let mistake = Membership::MeanOfVariances { root: view.place(view.steps[goes].id) };
        out.push((view.place(view.steps[var.made].id), Practice::Membership(mistake)));
        return;
    }
}

/// The moment that a collective adds up over ranks.
fn moment<'a>(view: &View<'a>, at: usize, call: &CollectiveCall<'a>) -> Option<Moment> {
    if call.rule.op != "all_reduce" || averages(view, call).is_none() {
        return None;
    }
    let input = call.input?;
    let (is_mean, data) = moment_of(view, &Expr::Local(near::local(input)?), at, 0)?;
    let made = view.last_def(near::local(input)?, at).filter(|_| near::local(input).is_some_and(|l| !view.is_temp(l)));
    Some(Moment { is_mean, data, made: made.unwrap_or(at), at, reduced: result(view, at, call)? })
}

/// Whether a value is the mean of some data or its variance, as it is or times a weight, and the data.
fn moment_of(view: &View<'_>, value: &Expr, before: usize, depth: usize) -> Option<(bool, Expr)> {
    if depth > MOST {
        return None;
    }
    let deeper = |e: &Expr| moment_of(view, e, before, depth + 1);
    match value {
        Expr::Local(local) => {
            let def = view.last_def(*local, before)?;
            moment_of(view, &view.bound(def, *local), def, depth + 1)
        }
        Expr::Binary(BinOp::Mul, a, b) => match (deeper(a), deeper(b)) {
            (Some(one), None) | (None, Some(one)) => Some(one),
            _ => None,
        },
        Expr::Binary(BinOp::Div, a, b) => deeper(a).filter(|_| deeper(b).is_none()),
        Expr::Item(of, index) => {
            let (Expr::Call { args, .. }, Expr::Const(at)) = (&**of, &**index) else { return None };
            of.call_of("var_mean")?;
            let (_, data) = args.first()?;
            Some((*at == crate::ir::Const::Int(1), data.clone()))
        }
        Expr::Call { callee, args, .. } => match (&**callee, args.first()) {
            (Expr::Attr(base, name), _) if SAME.contains(&name.as_str()) => deeper(base),
            (Expr::Attr(base, name), _) if name == "mean" || name == "var" => {
                Some((name == "mean", (**base).clone())).filter(|_| deeper(base).is_none())
            }
            (Expr::Path(path), Some((_, data))) if path == "torch.mean" || path == "torch.var" => {
                Some((path == "torch.mean", data.clone()))
            }
            _ => None,
        },
        _ => None,
    }
}

fn comes(view: &View<'_>, operand: &Operand, of: &Moment) -> bool {
    near::comes_from(view, operand, of.reduced, of.at)
}

/// Where mean and variance go on together: returned, written one beside the other, or a root that scales what the mean is taken off from.
fn goes_on(view: &View<'_>, mean: &Moment, var: &Moment) -> Option<usize> {
    let after = || var.at + 1..view.steps.len();
    let of_var = |o: &Operand| comes(view, o, var);
    let plain = |o: &Operand, of: &Moment| comes(view, o, of) && !is_number(view, o);
    let pair = after().find(|s| match view.steps[*s].stmt {
        Stmt::Return { value } => match view.source(value) {
            Some((_, made @ Rvalue::Build { kind: BuildKind::Tuple, .. })) => near::items(made)
                .is_some_and(|items| items.iter().any(|o| plain(o, mean)) && items.iter().any(|o| plain(o, var))),
            _ => false,
        },
        _ => false,
    });
    let stored = |of: &Moment| (of.at + 1..view.steps.len()).find(|s| is_stored(view, *s, &|o| comes(view, o, of)));
    let both = || stored(mean).and_then(|_| stored(var));
    let root = || {
        let centred = after().any(|s| match view.value(s) {
            Some(Rvalue::Binary { op: BinOp::Sub, right, .. }) => comes(view, right, mean),
            _ => false,
        });
        // The other check speaks of moments that are reduced as they are.
        let weighed = matches!(view.bound(var.made, var.reduced), Expr::Binary(..));
        after().find(|s| takes_root(view, *s, &of_var)).filter(|_| centred && weighed)
    };
    pair.or_else(both).or_else(root)
}

/// Whether a step writes a value into an attribute of the object or a buffer of it.
fn is_stored(view: &View<'_>, step: usize, of: &dyn Fn(&Operand) -> bool) -> bool {
    let own = |o: &Operand| near::own_attribute(view, &view.through(o)).is_some();
    match view.steps[step].stmt {
        Stmt::SetAttr { base, value, .. } => near::is_self(view, base) && of(value) && !is_number(view, value),
        Stmt::Assign { value: Rvalue::CallMethod { base, name, args }, .. } => {
            WRITES.contains(&name.as_str()) && own(base) && args.iter().any(|a| of(&a.value))
        }
        _ => false,
    }
}

/// Whether a value is a number to look at: `mean.item()`.
fn is_number(view: &View<'_>, value: &Operand) -> bool {
    view.through(value).any(&mut |e| e.call_of("item").is_some() || e.call_of("float").is_some_and(|a| !a.is_empty()))
}

/// Whether something that comes of the data or of a mean of it is added to the variance or taken off, before or after it is reduced.
fn is_corrected(view: &View<'_>, mean: &Moment, var: &Moment) -> bool {
    let data = match &var.data {
        Expr::Local(local) => Some(*local),
        _ => None,
    };
    let of_data = |o: &Operand| {
        let reached = near::reached(view, o, |_| true);
        reached.contains(&mean.reduced) || data.is_some_and(|data| reached.contains(&data)) || data.is_none()
    };
    let more = |one: &Operand, other: &Operand| comes(view, one, var) && !is_small(view, other) && of_data(other);
    let adds = |s: usize| match view.value(s) {
        Some(Rvalue::Binary { op: BinOp::Add | BinOp::Sub, left, right })
        | Some(Rvalue::InPlace { op: BinOp::Add | BinOp::Sub, left, right }) => more(left, right) || more(right, left),
        Some(Rvalue::CallMethod { base, name, args }) => {
            let plain = matches!(name.as_str(), "add" | "add_" | "sub" | "sub_" | "addcmul" | "addcmul_");
            plain && args.iter().any(|a| more(base, &a.value))
        }
        _ => false,
    };
    (0..view.steps.len()).any(adds) || is_difference(view, mean)
}

/// Whether the mean of this rank is set off against that of all anywhere.
fn is_difference(view: &View<'_>, mean: &Moment) -> bool {
    (mean.at + 1..view.steps.len()).any(|s| match view.value(s) {
        Some(Rvalue::Binary { op: BinOp::Sub, left, right }) => {
            let own = |o: &Operand| moment_of(view, &view.expr(o), mean.at, 0).is_some_and(|(is_mean, _)| is_mean);
            let all = |o: &Operand| comes(view, o, mean);
            own(left) && all(right) && near::local(left) != Some(mean.reduced)
                || own(right) && all(left) && near::local(right) != Some(mean.reduced)
        }
        _ => false,
    })
}

/// Whether the variance is given to anything that is not known, which may correct it.
fn is_handed(view: &View<'_>, var: &Moment) -> bool {
    (var.at + 1..view.steps.len()).any(|s| match view.value(s) {
        Some(value @ Rvalue::Call { args, .. }) => {
            let outside = view.callee(value).is_none_or(|path| !path.starts_with("torch."));
            outside && args.iter().any(|a| comes(view, &a.value, var))
        }
        Some(Rvalue::CallMethod { base, args, .. }) if near::is_self(view, base) => {
            args.iter().any(|a| comes(view, &a.value, var))
        }
        _ => false,
    })
}
