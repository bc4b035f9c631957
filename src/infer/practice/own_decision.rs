//! Rounds that each rank leaves out by its own loss. In: a function. Out: a sum of gradients that is reached, or left out, by a test on the loss
//! of this rank: whether it is a number, or how large it is. Never: a loss that anything may have made equal before it is tested, a test
//! that ends the program or the job, or a branch that calls something which may hold the counterpart. Source:
//! torch.nn.parallel.DistributedDataParallel: every rank takes part in each backward pass. Next: `clock.rs`.

use super::Found;
use super::coming::Coming;
use super::expr::Expr;
use super::flow::is_failure;
use super::found::Practice;
use super::near;
use super::no_sync::sums_itself;
use super::ranks::{ALONE_WORDS, is_lone_job, mentions};
use super::raw::{Sort, raw};
use super::view::{Guard, View};
use super::wrapped::{Wrapped, called_function, made_for, says, wrappers};
use crate::ir::{CmpOp, Const, LocalId, Operand, Rvalue, Stmt, UnOp};
use crate::project::FuncRef;
use crate::source::Name;
use rustc_hash::FxHashSet;

/// Functions that ask whether a number is one.
const ASKS: &[&str] = &["isnan", "isinf", "isfinite"];

/// Parts of the text of every function that tests a loss.
pub const TESTS: &[&str] = &["isnan", "isinf", "isfinite", " > ", " < ", " >= ", " <= ", " == ", " != "];

/// Methods of a number that differ where it does.
const SAME: &[&str] =
    &["item", "detach", "float", "double", "cpu", "abs", "mean", "sum", "clone", "any", "all", "data"];

/// Parts of names of what makes values of ranks equal.
const EQUAL: &[&str] =
    &["reduce", "sync", "gather", "broadcast", "average", "avg", "dist", "consensus", "psum", "all_", "parallel"];

/// Collectives in the text of a module that gathers what it computes the loss of.
const COLLECTIVES: &[&str] = &["all_gather", "all_reduce", "allgather", "allreduce", "all_to_all", "gather("];

/// Methods and functions that a branch may call that takes no part: nothing that others wait for.
const NOTHING: &[&str] = &[
    "print",
    "info",
    "warning",
    "warn",
    "debug",
    "error",
    "zero_grad",
    "empty_cache",
    "update",
    "append",
    "format",
    "item",
    "write",
    "collect",
];

/// How far a variable is followed, and how deep what a loss is computed of.
const MOST: usize = 6;
const DEEPEST: usize = 12;

pub fn skipped(view: &View<'_>, out: &mut Found) {
    if view.func.is_generator || is_lone_job(view) {
        return;
    }
    for back in 0..view.steps.len() {
        let Some(loss) = backward_of(view, back).filter(|_| !is_put_off(view, back)) else { continue };
        let summed = (0..view.steps.len()).find_map(|at| Some((at, sum_of_gradients(view, at)?)));
        let Some((at, collective)) = summed.or_else(|| Some((back, wrapper_of(view, loss, back)?))) else { continue };
        let decides = |g: &&Guard<'_>| is_own_test(view, &view.expr(g.test), loss, 0) && !is_failure(view, g);
        let Some(guard) = view.steps[at].guards.iter().find(decides) else { continue };
        let alone = view.steps[at].guards.iter().any(|g| mentions(view, g, ALONE_WORDS));
        if alone
            || is_made_equal(view, loss)
            || comes_of_equal(view, loss, back)
            || other_way(view, guard) != Way::GoesOn
        {
            continue;
        }
        let (name, call) = (view.local_name(loss).clone(), view.place(view.steps[at].id));
        out.push((view.part(guard.at, 0), Practice::Coming(Coming::ByOwnLoss { collective, loss: name, call })));
        return;
    }
}

/// The loss of a backward pass: `loss.backward()`, `scaler.scale(loss).backward()`.
pub(super) fn backward_of(view: &View<'_>, step: usize) -> Option<LocalId> {
    let Rvalue::CallMethod { base, name, .. } = view.value(step)? else { return None };
    if name != "backward" {
        return None;
    }
    let loss = match view.expr(base) {
        Expr::Local(loss) => loss,
        scaled => match scaled.call_of("scale")? {
            [(_, Expr::Local(loss))] => *loss,
            _ => return None,
        },
    };
    // A loss that is given may be one that the caller has made equal.
    (!view.is_param(loss) && !view.without_gradient(step)).then_some(loss)
}

/// The collective that a step sums gradients with.
fn sum_of_gradients(view: &View<'_>, step: usize) -> Option<Name> {
    let call = raw(view, view.value(step)?)?;
    let of_gradient = |o: &Operand| view.expr(o).any(&mut |e| matches!(e, Expr::Attr(_, name) if name == "grad"));
    let sums = call.sort == Sort::Everyone && call.name.contains("reduce");
    // The ranks of another group may have the same loss.
    let with_all = call.group.is_none_or(|g| {
        let group = view.through(g);
        group.is_none() || says(view, &group, &["world", "data", "dp"])
    });
    (sums && with_all && call.buffer.is_some_and(of_gradient)).then_some(call.name)
}

/// The wrapper that sums the gradients of the model that a loss is of.
pub(super) fn wrapper_of(view: &View<'_>, loss: LocalId, back: usize) -> Option<Name> {
    if sums_itself(view) { None } else { wrapper_in(view, &Expr::Local(loss), back) }
}

/// The same, where a function of the file is named after the parameter that has the model.
pub(super) fn wrapper_by_name(view: &View<'_>, loss: LocalId, back: usize) -> Option<Name> {
    let by_name = |model: &Expr, _| match model {
        Expr::Local(local) if view.is_param(*local) => made_for(view, *local),
        _ => Vec::new(),
    };
    if sums_itself(view) { None } else { wrapper_among(view, &Expr::Local(loss), back, by_name) }
}

/// The wrapper of the model that a backward pass goes through.
pub(super) fn wrapper_of_pass(view: &View<'_>, step: usize) -> Option<Name> {
    let Rvalue::CallMethod { base, .. } = view.value(step)? else { return None };
    wrapper_in(view, &view.expr(base), step)
}

fn wrapper_in(view: &View<'_>, value: &Expr, back: usize) -> Option<Name> {
    wrapper_among(view, value, back, |model, step| wrappers(view, model, step))
}

/// The first wrapper of what a value is computed by calling with gradients. `of`: those of a model that a step calls.
fn wrapper_among<'a>(
    view: &View<'a>,
    value: &Expr,
    back: usize,
    of: impl Fn(&Expr, usize) -> Vec<Wrapped<'a>>,
) -> Option<Name> {
    let mut calls = Vec::new();
    called(view, value, back, 0, &mut calls);
    let mut recorded = calls.iter().filter(|(_, step)| !view.without_gradient(*step));
    recorded.find_map(|(model, step)| of(model, *step).first().map(|w| super::lost::last(&w.rule.name)))
}

/// What a value is computed by calling: variables and attributes, with the steps of the calls.
fn called(view: &View<'_>, value: &Expr, before: usize, depth: usize, out: &mut Vec<(Expr, usize)>) {
    if depth > DEEPEST {
        return;
    }
    match value {
        Expr::Local(local) if !view.is_param(*local) => {
            let Some(def) = view.defs(*local).iter().rfind(|d| **d < before) else { return };
            called(view, &view.bound(*def, *local), *def, depth + 1, out);
        }
        Expr::Call { callee, args, step } => {
            match &**callee {
                // Gradients go no further.
                Expr::Attr(_, name) if matches!(name.as_str(), "detach" | "item") => return,
                Expr::Local(_) => out.push(((**callee).clone(), *step)),
                Expr::Attr(base, _) if near::own_attribute(view, callee).is_some() => {
                    out.push(((**callee).clone(), *step));
                    called(view, base, before, depth + 1, out);
                }
                Expr::Attr(base, _) => called(view, base, before, depth + 1, out),
                _ => {}
            }
            args.iter().for_each(|(_, a)| called(view, a, before, depth + 1, out));
        }
        other => other.inner().into_iter().for_each(|e| called(view, e, before, depth + 1, out)),
    }
}

/// Whether a test asks for the loss of this rank.
fn is_own_test(view: &View<'_>, test: &Expr, loss: LocalId, depth: usize) -> bool {
    let deeper = |e: &Expr| depth < MOST && is_own_test(view, e, loss, depth + 1);
    let is_loss = |e: &Expr| follows(view, e, loss, 0);
    match test {
        Expr::Unary(UnOp::Not, inner) => deeper(inner),
        // Another flag may be the one that says there is one rank, or that this round sums nothing.
        Expr::Bool { of, .. } => of.iter().any(deeper) && of.iter().all(|e| deeper(e) || is_plain(e)),
        Expr::Compare(op, a, b) => {
            let constant = |e: &Expr| matches!(e, Expr::Const(Const::Int(_) | Const::Float(_))) || !is_loss(e);
            let asks = !matches!(op, CmpOp::Is | CmpOp::IsNot | CmpOp::In | CmpOp::NotIn);
            asks && (is_loss(a) && constant(b) || is_loss(b) && constant(a))
        }
        Expr::Call { callee, args, .. } => match (&**callee, args.as_slice()) {
            (Expr::Attr(base, name), []) if ASKS.contains(&name.as_str()) => is_loss(base),
            (Expr::Attr(base, name), []) if SAME.contains(&name.as_str()) => deeper(base),
            (callee, [(_, only)]) => callee.last_name().is_some_and(|n| ASKS.contains(&n)) && is_loss(only),
            _ => false,
        },
        Expr::Local(local) if !view.is_param(*local) => match view.defs(*local) {
            [one] => deeper(&view.bound(*one, *local)),
            _ => false,
        },
        _ => false,
    }
}

/// Whether a test asks how far training has come, or whether there is anything.
fn is_plain(test: &Expr) -> bool {
    match test {
        Expr::Compare(_, _, with) => with.is_none() || matches!(**with, Expr::Const(Const::Int(_) | Const::Float(_))),
        _ => false,
    }
}

/// Whether a value is a loss, or computed of it alone.
fn follows(view: &View<'_>, value: &Expr, loss: LocalId, depth: usize) -> bool {
    let deeper = |e: &Expr| depth < MOST && follows(view, e, loss, depth + 1);
    match value {
        Expr::Local(local) if *local == loss => true,
        Expr::Local(local) if !view.is_param(*local) => match view.defs(*local) {
            [one] => deeper(&view.bound(*one, *local)),
            _ => false,
        },
        Expr::Attr(base, name) => SAME.contains(&name.as_str()) && deeper(base),
        Expr::Binary(_, a, b) => deeper(a) || deeper(b),
        Expr::Call { callee, args, .. } => match (&**callee, args.as_slice()) {
            (Expr::Attr(base, name), []) => SAME.contains(&name.as_str()) && deeper(base),
            (Expr::Path(path), [(_, only)]) => matches!(path.as_str(), "float" | "abs" | "torch.abs") && deeper(only),
            _ => false,
        },
        _ => false,
    }
}

/// Whether anything in the function may have made a loss, or what follows from it, equal on all ranks.
fn is_made_equal(view: &View<'_>, loss: LocalId) -> bool {
    (0..view.steps.len()).any(|i| {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            return false;
        };
        let own = |o: &Operand| follows(view, &view.expr(o), loss, 0) || is_own_test(view, &view.expr(o), loss, 0);
        let binds = || view.binds(i).iter().any(|l| *l == loss || of_loss(view, *l, loss));
        if !args.iter().any(|a| own(&a.value)) && !binds() {
            return false;
        }
        let inside = || called_function(view, value).is_some_and(|at| equal(near::other(view, at).code()));
        near::written_name(view, value).is_none_or(|name| equal(&name)) || inside()
    })
}

/// Whether a text has a part of a name of what makes values of ranks equal.
fn equal(text: &str) -> bool {
    near::has_any(&text.to_lowercase(), EQUAL)
}

/// Whether a backward pass stands where the ranks need not come together: `no_sync()`, `join()`.
fn is_put_off(view: &View<'_>, step: usize) -> bool {
    view.steps[step].contexts.iter().any(|c| says(view, &view.through(c), &["no_sync", "join"]))
}

/// Whether anything that a loss is computed of may be the same on all ranks: gathered features, the sum of a parallel layer.
fn comes_of_equal(view: &View<'_>, loss: LocalId, back: usize) -> bool {
    let mut of = FxHashSet::from_iter([loss]);
    // Backwards, and once more for what a loop carries on.
    for i in (0..=back).rev().chain((0..=back).rev()) {
        if !view.binds(i).iter().any(|l| of.contains(l)) {
            continue;
        }
        let Some(value) = view.value(i) else {
            of.extend(view.reads(i).iter().filter_map(|o| near::local(o)));
            continue;
        };
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else {
            of.extend(view.reads(i).iter().filter_map(|o| near::local(o)));
            continue;
        };
        let name = near::written_name(view, value);
        // Who wraps a model, or gives each rank its part of the data, makes no loss.
        if matches!(value, Rvalue::Call { .. }) && name.as_deref().is_some_and(|n| wraps(n) || n.ends_with("Sampler")) {
            continue;
        }
        if name.is_some_and(|n| equal(&n)) || is_equal_inside(view, value) {
            return true;
        }
        if let Rvalue::CallMethod { base, .. } = value {
            of.extend(near::local(base));
        }
        of.extend(args.iter().filter_map(|a| near::local(&a.value)));
    }
    gathers_in_forward(view)
}

fn wraps(name: &str) -> bool {
    name.contains("Parallel") || name.contains("DDP") || name == "fully_shard"
}

fn is_equal_inside<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    called_function(view, value).is_some_and(|at| near::has_any(near::other(view, at).code(), COLLECTIVES))
}

/// Whether a module of the project that the file names gathers in its forward pass.
fn gathers_in_forward(view: &View<'_>) -> bool {
    let text = view.file();
    view.project.methods_named(&Name::from("forward")).iter().any(|(class, func)| {
        let named = near::has_word(text, &view.project.class(*class).name);
        named && near::has_any(near::other(view, FuncRef { module: class.module, func: *func }).code(), COLLECTIVES)
    })
}

/// Whether a temporary becomes the loss.
fn of_loss(view: &View<'_>, temp: LocalId, loss: LocalId) -> bool {
    let hands_on = |s: &usize| match view.steps[*s].stmt {
        Stmt::Assign { dst, value: Rvalue::Use(_) } => *dst == loss,
        Stmt::Unpack { before, .. } => before.contains(&loss),
        _ => false,
    };
    view.is_temp(temp) && view.readers(temp).iter().any(hands_on)
}

/// What ranks do for which a test is answered otherwise.
#[derive(PartialEq, Eq)]
enum Way {
    /// They go on, with the next round or behind the branch.
    GoesOn,
    /// They may communicate, or end the job.
    Other,
}

fn other_way(view: &View<'_>, guard: &Guard<'_>) -> Way {
    let there = |i: &usize| view.steps[*i].guards.iter().any(|g| g.at == guard.at && g.holds != guard.holds);
    let harmless = |i: usize| match (view.steps[i].stmt, view.value(i)) {
        (_, Some(Rvalue::Call { callee, .. })) => {
            view.expr(callee).last_name().is_some_and(|n| NOTHING.contains(&n) || ASKS.contains(&n))
        }
        (_, Some(Rvalue::CallMethod { name, .. })) => NOTHING.contains(&name.as_str()),
        (_, Some(Rvalue::Yield(_) | Rvalue::Await(_))) => false,
        // Who leaves for good ends the job: the others wait, and are ended.
        (Stmt::Raise | Stmt::Break, _) => false,
        (Stmt::Return { .. }, _) => view.steps[i].loops.is_empty() && !callers_end(view),
        _ => true,
    };
    if (0..view.steps.len()).filter(there).all(harmless) { Way::GoesOn } else { Way::Other }
}

/// Whether a caller ends the job for what a function returns.
fn callers_end(view: &View<'_>) -> bool {
    let method = view.func.class.map(|_| view.func.name.as_str());
    let sites = super::called::sites(view, &view.project.qualified(view.at), method);
    sites.iter().any(|(site, _)| near::has_any(site.code(), &["raise ", "exit(", "abort("]))
}
