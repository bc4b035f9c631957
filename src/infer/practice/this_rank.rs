//! Values of one rank where those of all ranks are meant. In: a function. Out: a sum over rows and ranks that is divided by the number of
//! this rank's rows; a statistic of this rank that is kept beside one of the same rows which is summed over ranks; a sum over this rank's
//! part of a dim of which the ranks took the largest element. Never: where something else communicates it, what is divided was changed by
//! anything but the reduction, or something knows of the number of ranks. Next: `counts.rs`.

use super::Found;
use super::counts::{over_data, quotient, slice, slice_until};
use super::expr::Expr;
use super::found::{Own, Practice};
use super::near;
use super::view::{CollectiveCall, View};
use crate::ir::{BinOp, Const, LocalId, Operand, Rvalue, Stmt, UnOp};
use rustc_hash::FxHashSet;

/// Words in names of numbers of ranks.
const RANKS: &[&str] =
    &["world", "rank", "gpu", "num_proc", "nproc", "n_proc", "replica", "dp_size", "n_dev", "device_count", "ngpus"];
/// What counts the rows of a tensor, or only converts.
const COUNTS: &[&str] = &["len", "size", "numel", "float", "int", "max", "tensor", "to", "clamp", "item", "as_tensor"];
/// Methods that write what they are given into their tensor.
const WRITES: &[&str] = &["lerp_", "add_", "copy_", "mul_"];
/// The same, as they are written.
pub const WRITTEN: &[&str] = &["lerp_(", "add_(", "copy_(", "mul_("];
/// Functions that are not linear: of a part of a sum they make nothing.
const ROOTS: &[&str] = &["log", "log_", "log1p", "sqrt", "rsqrt", "reciprocal"];
/// Methods that leave every element at its place.
const ELEMENTWISE: &[&str] = &["exp", "exp_", "float", "to", "clone", "contiguous", "detach", "half", "sub", "sub_"];

/// `dist.all_reduce(total); total / len(x)`, where the total is the sum of the rows of `x` and nothing else has changed it.
pub fn sizes(view: &View<'_>, out: &mut Found) {
    let mut scales = None;
    for (i, step) in view.steps.iter().enumerate() {
        let Some((left, right)) = quotient(view, i) else { continue };
        let Some(total) = near::local(left).filter(|l| !view.is_temp(*l)) else { continue };
        let counted = near::deep(view, &view.through(right));
        let mut subjects = FxHashSet::default();
        if !counts(view, &counted, &mut subjects, 0) || subjects.len() != 1 {
            continue;
        }
        // Of what is scaled to one later, no factor is left.
        let unit = view.code().contains("normalize");
        if unit || !slice(view, right).collectives.is_empty() || rescaled(view, i, total) {
            continue;
        }
        // A tensor that is made of a size is made to be reduced.
        let made =
            slice(view, right).locals.iter().any(|l| near::deep(view, &Expr::Local(*l)).call_of("tensor").is_some());
        let reduced = view.collectives().iter().find(|(at, call)| {
            *at < i
                && call.input.and_then(near::local) == Some(total)
                && over_data(view, *at)
                && subjects.iter().all(|subject| summed_once(view, total, *at, i, *subject, made))
        });
        let mut by_ranks = || knows_ranks(view);
        if let Some((at, _)) = reduced.filter(|_| !*scales.get_or_insert_with(&mut by_ranks)) {
            let own = Own::Size { reduced: view.place(view.steps[*at].id) };
            out.push((view.place(step.id), Practice::OfThisRank(own)));
        }
    }
}

/// Whether a total is the sum of the rows of a tensor that is given, or (`made`) of any that is given beside that; bound once before it is
/// divided, and changed by its reduction alone.
fn summed_once(view: &View<'_>, total: LocalId, at: usize, divided: usize, subject: LocalId, made: bool) -> bool {
    let before: Vec<usize> = view.defs(total).iter().copied().filter(|d| *d < divided).collect();
    let [sum] = before[..] else { return false };
    if sum > at || !view.is_param(subject) || !view.defs(subject).is_empty() {
        return false;
    }
    let written = |i: usize| match view.value(i) {
        Some(Rvalue::CallMethod { base, name, .. }) => near::local(base) == Some(total) && name.ends_with('_'),
        _ => false,
    };
    if (sum..divided).any(written) {
        return false;
    }
    let rows = fold(view, sum).is_some_and(|(of, dim, sums)| sums && dim == 0 && near::local(of) == Some(subject));
    let beside = || {
        let of = slice_until(view, &Operand::Local(total), at);
        of.collectives.is_empty() && !of.sums.is_empty() && of.locals.iter().any(|l| view.is_param(*l))
    };
    rows || made && beside()
}

/// Whether the quotient is divided once more, or multiplied with a number of which nothing is known.
fn rescaled(view: &View<'_>, step: usize, total: LocalId) -> bool {
    let results = view.binds(step);
    let is = |o: &Operand| near::local(o).is_some_and(|l| results.contains(&l) || results.is_empty() && l == total);
    let number = |o: &Operand| matches!(near::deep(view, &view.expr(o)), Expr::Const(_));
    let attribute = |o: &Operand| matches!(view.expr(o), Expr::Attr(..));
    (step + 1..view.steps.len()).any(|i| match view.value(i) {
        Some(Rvalue::Binary { op: BinOp::Mul, left, right } | Rvalue::InPlace { op: BinOp::Mul, left, right }) => {
            is(left) && attribute(right) || is(right) && attribute(left)
        }
        Some(Rvalue::CallMethod { base, name, .. }) if matches!(name.as_str(), "mul_" | "mul") => is(base),
        _ => quotient(view, i).is_some_and(|(left, right)| is(left) && !number(right)),
    })
}

/// How far a count is followed: a name may be bound to a multiple of itself.
const MOST_DEPTH: usize = 8;

/// Whether an expression counts rows and nothing else; the tensors of which it does.
fn counts(view: &View<'_>, expr: &Expr, subjects: &mut FxHashSet<LocalId>, depth: usize) -> bool {
    if depth > MOST_DEPTH {
        return false;
    }
    let first = |e: &Expr| matches!(e, Expr::Const(Const::Int(0)));
    match expr {
        Expr::Const(_) => true,
        Expr::Local(_) => {
            let behind = near::deep(view, expr);
            !matches!(behind, Expr::Local(_)) && counts(view, &behind, subjects, depth + 1)
        }
        // How many experts each token goes to; any other number may be one of ranks.
        Expr::Attr(base, name) => {
            matches!(**base, Expr::Local(_)) && name.to_lowercase().replace("_", "").ends_with("topk")
        }
        Expr::Binary(BinOp::Mul, a, b) => counts(view, a, subjects, depth + 1) && counts(view, b, subjects, depth + 1),
        Expr::Item(of, at) => match &**of {
            Expr::Attr(of, name) if name == "shape" => first(at) && subject(of, subjects),
            _ => false,
        },
        Expr::Call { callee, args, .. } if callee.last_name().is_some_and(|n| COUNTS.contains(&n)) => match &**callee {
            Expr::Attr(of, name) if name == "size" => {
                args.first().is_some_and(|(_, at)| first(at)) && subject(of, subjects)
            }
            Expr::Attr(_, name) if name == "numel" => false,
            Expr::Attr(of, _) => counts(view, of, subjects, depth + 1),
            Expr::Path(path) if path.rsplit('.').next() == Some("len") => {
                args.first().is_some_and(|(_, of)| subject(of, subjects))
            }
            _ => args
                .iter()
                .all(|(kind, a)| *kind != crate::ir::ArgKind::Positional || counts(view, a, subjects, depth + 1)),
        },
        _ => false,
    }
}

fn subject(of: &Expr, subjects: &mut FxHashSet<LocalId>) -> bool {
    if let Expr::Local(local) = of {
        subjects.insert(*local);
    }
    matches!(of, Expr::Local(_))
}

/// Whether a function scales something by a number of ranks, or a caller of it may.
pub(super) fn knows_ranks(view: &View<'_>) -> bool {
    let says = |caller: &View<'_>| RANKS.iter().any(|w| caller.code().contains(w));
    (0..view.steps.len()).any(|i| scales_by_ranks(view, i))
        || super::called::callers(view).iter().any(|(caller, _)| says(caller))
}

/// Whether a step multiplies with, or divides by, a number of ranks.
pub(super) fn scales_by_ranks(view: &View<'_>, step: usize) -> bool {
    let knows = |o: &Operand| {
        near::deep(view, &view.expr(o)).any(&mut |e| {
            let name = match e {
                Expr::Local(l) => Some(view.local_name(*l).as_str()),
                other => other.last_name(),
            };
            name.is_some_and(|n| RANKS.iter().any(|w| n.to_lowercase().contains(w)))
        })
    };
    match view.value(step) {
        Some(
            Rvalue::Binary { op: BinOp::Mul | BinOp::Div, left, right }
            | Rvalue::InPlace { op: BinOp::Mul | BinOp::Div, left, right },
        ) => knows(left) || knows(right),
        Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => args.iter().any(|a| knows(&a.value)),
        _ => false,
    }
}

/// Losses of one function that are divided by numbers which are given by name, one of all ranks and another of this rank alone.
pub fn factors(view: &View<'_>, out: &mut Found) {
    let mut reduced = None;
    let mut own: Vec<(usize, usize)> = Vec::new();
    for i in 0..view.steps.len() {
        let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(i) else { continue };
        if !near::name_of_call(view, i).is_some_and(|name| name.starts_with("loss")) {
            continue;
        }
        let named = |a: &&crate::ir::Arg| matches!(&a.kind, crate::ir::ArgKind::Keyword(k) if k == "avg_factor");
        let Some(given) = args.iter().find(named) else { continue };
        let made = slice_until(view, &given.value, i);
        let over_ranks = |s: usize| {
            let read = view.reads(s).iter().any(|o| near::local(o).is_some_and(|l| made.locals.contains(&l)));
            let bound = view.binds(s).iter().any(|l| made.locals.contains(l));
            (read || bound) && reduces(view, s)
        };
        match (0..i).find(|s| over_ranks(*s)) {
            Some(at) => reduced = reduced.or(Some(at)),
            None if !made.open && made.collectives.is_empty() => {
                own.extend(made.sums.iter().max().filter(|at| sums_comparison(view, **at)).map(|at| (i, *at)));
            }
            None => {}
        }
    }
    if let (Some(at), [(_, counted), ..]) = (reduced, own.as_slice()) {
        let found = Own::Factor { reduced: view.place(view.steps[at].id) };
        out.push((view.place(view.steps[*counted].id), Practice::OfThisRank(found)));
    }
}

/// Whether a step counts where a comparison holds. A sum of weights is the mean that a weighted loss is.
fn sums_comparison(view: &View<'_>, step: usize) -> bool {
    fn compares(e: &Expr) -> bool {
        match e {
            Expr::Compare(..) => true,
            Expr::Call { callee, .. } => match &**callee {
                Expr::Attr(_, name) if matches!(name.as_str(), "eq" | "ne" | "gt" | "ge" | "lt" | "le") => true,
                Expr::Attr(base, _) => compares(base),
                _ => false,
            },
            _ => false,
        }
    }
    matches!(view.value(step), Some(Rvalue::CallMethod { base, .. }) if compares(&view.through(base)))
}

/// Whether a call reduces over ranks: a collective, or a function that is called so.
fn reduces(view: &View<'_>, step: usize) -> bool {
    let Some(name) = near::name_of_call(view, step) else { return false };
    ["reduce_mean", "all_reduce", "allreduce", "reduce_sum"].iter().any(|w| name.contains(w))
}

/// Statistics of the same data that a method keeps in buffers, of which it sums one over the ranks and another not.
pub fn kept(view: &View<'_>, out: &mut Found) {
    let Some(class) = near::class_of(view) else { return };
    let text = view.text(view.spot(view.project.modules[view.at.module].ir.classes[class].span));
    let registered = |name: &str| text.contains(&format!("register_buffer(\"{name}\""));
    let mut writes: Vec<(usize, String, LocalId)> = Vec::new();
    if text.contains("buffers()") {
        return;
    }
    for i in 0..view.steps.len() {
        let Some(Rvalue::CallMethod { base, name, args }) = view.value(i) else { continue };
        let Some(buffer) = buffer(view, &view.expr(base)).filter(|b| WRITES.contains(&name.as_str()) && registered(b))
        else {
            continue;
        };
        if let Some(Expr::Local(local)) = args.first().map(|a| view.expr(&a.value)) {
            writes.push((i, buffer, local));
        }
    }
    let summed = |at: usize, local: LocalId| (0..at).find(|i| sums(view, *i, local));
    for (i, buffer, local) in &writes {
        let own = slice_until(view, &Operand::Local(*local), *i);
        // A product with what the other sums: both are of the same rows.
        let computed = !own.open
            && view.defs(*local).iter().all(|d| multiplies(view, *d))
            && view.defs(*local).len() == 1
            && view.readers(*local).len() == 1;
        if !computed
            || handed_on(view, class, buffer)
            || !own.collectives.is_empty()
            || own.locals.iter().any(|l| summed(*i, *l).is_some())
        {
            continue;
        }
        let beside = writes.iter().find_map(|(j, other, value)| {
            let at = summed(*j, *value).filter(|_| other != buffer)?;
            let rows = |d: &usize| fold(view, *d).is_some_and(|(_, dim, sums)| sums && dim == 0);
            if !view.defs(*value).iter().all(rows) {
                return None;
            }
            let of = slice_until(view, &Operand::Local(*value), at);
            let shared = |l: &LocalId| !view.is_temp(*l) && view.local_name(*l) != "self" && own.locals.contains(l);
            of.locals.iter().any(shared).then_some(at)
        });
        let later = (*i..view.steps.len()).any(|s| sums(view, s, *local));
        if let Some(at) = beside.filter(|_| !later) {
            let own = Own::Kept { reduced: view.place(view.steps[at].id) };
            out.push((view.place(view.steps[*i].id), Practice::OfThisRank(own)));
        }
    }
}

/// Whether a step multiplies matrices.
fn multiplies(view: &View<'_>, step: usize) -> bool {
    match view.value(step) {
        Some(Rvalue::Binary { op: BinOp::MatMul, .. }) => true,
        Some(value) => view.callee(value).is_some_and(|p| p.ends_with("matmul") || p.ends_with("einsum")),
        None => false,
    }
}

/// Whether anything in a class is given an attribute, other than operations: it may reduce that.
fn handed_on(view: &View<'_>, class: crate::ir::ClassId, attribute: &str) -> bool {
    near::methods(view, class).iter().any(|method| {
        (0..method.steps.len()).any(|i| {
            let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = method.value(i) else {
                return false;
            };
            let is = |o: &Operand| buffer(method, &method.through(o)).is_some_and(|name| name == attribute);
            !is_operation(method, i) && args.iter().any(|a| is(&a.value))
        })
    })
}

/// The attribute of `self` that an expression is, seen through `.data` and what is done to it in place.
fn buffer(view: &View<'_>, expr: &Expr) -> Option<String> {
    match expr {
        Expr::Attr(base, name) if name == "data" => buffer(view, base),
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, name) if name.ends_with('_') => buffer(view, base),
            _ => None,
        },
        other => near::own_attribute(view, other).map(ToString::to_string),
    }
}

/// Whether a step sums a variable over ranks in place: a collective, or an attribute that may hold one.
fn sums(view: &View<'_>, step: usize, local: LocalId) -> bool {
    let Some(value) = view.value(step) else { return false };
    let first = |o: Option<&Operand>| o.and_then(near::local) == Some(local);
    if let Some(call) = view.collective(value) {
        return call.rule.op == "all_reduce" && first(call.input);
    }
    let Rvalue::CallMethod { base, name, args } = value else { return false };
    let gives = || {
        let method = near::methods(view, near::class_of(view)?).into_iter().find(|m| m.func.name == *name)?;
        let given = method.func.params.get(1)?.local;
        let sums = |c: &CollectiveCall<'_>| c.rule.op == "all_reduce" && c.input.and_then(near::local) == Some(given);
        method.collectives().iter().any(|(_, c)| sums(c)).then_some(())
    };
    let holds = || {
        let class = near::class_of(view)?;
        let set = near::assigned(view, class, name);
        let all_reduce = |e: &Expr| e.last_name() == Some("all_reduce");
        set.iter().any(|(at, _, v)| near::deep(at, &at.expr(v)).any(&mut |e| all_reduce(e))).then_some(())
    };
    near::is_self(view, base) && first(args.first().map(|a| &a.value)) && holds().or_else(gives).is_some()
}

/// A sum over a dim of which ranks have parts, as another reduction over the dim shows, that no rank adds those of the others to.
pub fn partial(view: &View<'_>, out: &mut Found) {
    let folds: Vec<(usize, &Operand, i64, bool)> =
        (0..view.steps.len()).filter_map(|i| fold(view, i).map(|(of, dim, sum)| (i, of, dim, sum))).collect();
    if folds.len() < 2 {
        return;
    }
    let reduced = |at: usize| {
        let held = followed(view, at, false);
        view.collectives().iter().find(|(i, call)| {
            *i > at
                && call.rule.op == "all_reduce"
                && call.group.is_some_and(|g| !view.expr(g).is_none())
                && call.input.and_then(near::local).is_some_and(|l| held.contains(&l))
        })
    };
    for (at, of, dim, _) in folds.iter().filter(|f| f.3) {
        let all = followed(view, *at, true);
        // Where anything takes it that is no operation, nobody knows what comes of it.
        let leaves = |i: usize| {
            let calls = matches!(view.value(i), Some(Rvalue::Call { .. } | Rvalue::CallMethod { .. }));
            let uses = || view.reads(i).iter().any(|o| near::local(o).is_some_and(|l| all.contains(&l)));
            calls && uses() && !is_operation(view, i)
        };
        // Beside the sum of the same exponentials over all ranks, this rank's own is meant.
        let whole = folds.iter().any(|(i, other, d, sum)| {
            let same = *sum && i != at && d == dim && is_exponential(view, other) && is_exponential(view, of);
            same && reduced(*i).is_some()
        });
        if whole || (*at + 1..view.steps.len()).any(leaves) {
            continue;
        }
        let own = elements(view, of, *at);
        let beside = folds.iter().filter(|f| !f.3).find_map(|(i, other, d, _)| {
            let same = i != at
                && d == dim
                && shifts(view, of, *at, *i)
                && elements(view, other, *i).intersection(&own).next().is_some();
            reduced(*i).filter(|_| same).map(|(c, _)| *c)
        });
        let Some(beside) = beside else { continue };
        let held = followed(view, *at, false);
        let uses = |o: &Operand| near::local(o).is_some_and(|l| held.contains(&l));
        let misused = (*at + 1..view.steps.len()).find(|i| match view.value(*i) {
            Some(Rvalue::CallMethod { base, name, .. }) => ROOTS.contains(&name.as_str()) && uses(base),
            Some(value @ Rvalue::Call { args, .. }) => {
                let root = view.callee(value).is_some_and(|p| ROOTS.contains(&p.trim_start_matches("torch.")));
                root && args.first().is_some_and(|a| uses(&a.value))
            }
            Some(Rvalue::Binary { op: BinOp::Div, right, .. }) => uses(right),
            _ => false,
        });
        if let Some(misused) = misused {
            let (partial, reduced) = (view.place(view.steps[*at].id), view.place(view.steps[beside].id));
            let own = Own::Partial { partial, reduced };
            out.push((view.place(view.steps[misused].id), Practice::OfThisRank(own)));
        }
    }
}

/// Whether what is summed is made smaller by the largest element, which a step takes: so are numbers kept small whose ranks share a row.
fn shifts(view: &View<'_>, summed: &Operand, at: usize, largest: usize) -> bool {
    let (made, held) = (elements(view, summed, at), followed(view, largest, false));
    let is = |o: &Operand| near::local(o).is_some_and(|l| held.contains(&l));
    let of = |o: &Operand| near::local(o).is_some_and(|l| made.contains(&l));
    (largest..at).any(|i| match view.value(i) {
        Some(Rvalue::Binary { op: BinOp::Sub, left, right } | Rvalue::InPlace { op: BinOp::Sub, left, right }) => {
            of(left) && is(right)
        }
        Some(Rvalue::CallMethod { base, name, args }) if matches!(name.as_str(), "sub" | "sub_") => {
            of(base) && args.first().is_some_and(|a| is(&a.value))
        }
        _ => false,
    })
}

/// Whether an operand is an exponential as it stands.
fn is_exponential(view: &View<'_>, operand: &Operand) -> bool {
    let made = near::local(operand).map(|l| view.defs(l));
    let Some([at]) = made else { return false };
    view.value(*at).and_then(|v| view.callee(v)).is_some_and(|p| matches!(p.as_str(), ".exp" | "torch.exp"))
}

/// A reduction along a dim that is written out: its subject, the dim, and whether it sums.
fn fold<'a>(view: &View<'a>, step: usize) -> Option<(&'a Operand, i64, bool)> {
    let value = view.value(step)?;
    let (of, at, args) = match value {
        Rvalue::CallMethod { base, args, .. } if !matches!(view.through(base), Expr::Path(_)) => (base, 0, args),
        Rvalue::CallMethod { args, .. } | Rvalue::Call { args, .. } => (&args.first()?.value, 1, args),
        _ => return None,
    };
    let path = view.callee(value)?;
    let name = path.strip_prefix('.').or_else(|| path.strip_prefix("torch."))?;
    let sum = matches!(name, "sum" | "logsumexp");
    if !sum && !matches!(name, "max" | "amax") {
        return None;
    }
    let dim = match view.expr(view.argument(args, at, "dim")?) {
        Expr::Const(Const::Int(n)) => n,
        Expr::Unary(UnOp::Neg, n) => match *n {
            Expr::Const(Const::Int(n)) => -n,
            _ => return None,
        },
        _ => return None,
    };
    Some((of, dim, sum))
}

/// What a value is made of element by element.
fn elements(view: &View<'_>, of: &Operand, before: usize) -> FxHashSet<LocalId> {
    let (mut seen, mut queue) = (FxHashSet::default(), vec![of.clone()]);
    while let Some(Operand::Local(local)) = queue.pop() {
        if !seen.insert(local) {
            continue;
        }
        for at in view.defs(local).iter().filter(|d| **d < before) {
            match view.value(*at) {
                Some(Rvalue::Use(o)) => queue.push(o.clone()),
                Some(Rvalue::Binary { left, .. }) => queue.push(left.clone()),
                Some(Rvalue::InPlace { left, .. }) => queue.push(left.clone()),
                Some(Rvalue::CallMethod { base, name, .. }) if ELEMENTWISE.contains(&name.as_str()) => {
                    queue.push(base.clone());
                }
                Some(Rvalue::Call { args, .. })
                    if view.value(*at).and_then(|v| view.callee(v)).is_some_and(|p| p == "torch.exp") =>
                {
                    queue.extend(args.first().map(|a| a.value.clone()));
                }
                _ => {}
            }
        }
    }
    seen
}

/// Whether a step calls an operation of tensors.
pub(super) fn is_operation(view: &View<'_>, step: usize) -> bool {
    let Some(value) = view.value(step) else { return false };
    match value {
        Rvalue::CallMethod { base, name, .. } if !matches!(view.through(base), Expr::Path(_)) => {
            view.rules.tensor_method(name).is_some() || name.starts_with("save_for_")
        }
        other => view.callee(other).is_some_and(|p| view.rules.op(&p).is_some()),
    }
}

/// The variables that hold the result of a step; `all`: or anything that is computed from it.
fn followed(view: &View<'_>, step: usize, all: bool) -> FxHashSet<LocalId> {
    let mut held: FxHashSet<LocalId> = view.binds(step).iter().copied().collect();
    for i in step + 1..view.steps.len() {
        let uses = |o: &Operand| near::local(o).is_some_and(|l| held.contains(&l));
        let passes = match view.value(i) {
            _ if all => view.reads(i).iter().any(|o| uses(o)) && !matches!(view.steps[i].stmt, Stmt::If { .. }),
            Some(Rvalue::Use(o) | Rvalue::Item { base: o, .. }) => uses(o),
            Some(Rvalue::CallMethod { base, name, .. }) => {
                matches!(name.as_str(), "unsqueeze" | "float" | "contiguous" | "clone" | "to" | "view") && uses(base)
            }
            _ => false,
        };
        if passes {
            held.extend(view.binds(i));
        }
    }
    held
}
