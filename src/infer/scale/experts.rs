//! Factors of experts' gradients that are applied where they are not followed. In: a module and a mistake about experts. Out: whether
//! another statement of the file may make up for it: a hook that scales, a scaling by the number of expert-parallel ranks in another
//! function, an entry of a group of parameters, a rate of their own; or a test that refuses groups of two sizes. Never: a verdict on such
//! a factor. Source: all of these are linear in the gradient, so that it does not matter which comes first. Next: `unsure.rs`.

use super::elsewhere;
use super::verdict::{Mistake, Wrong, is_of_experts};
use super::written::operation;
use crate::infer::practice::expr::Expr;
use crate::infer::practice::near;
use crate::infer::practice::reducers::is_gradient;
use crate::infer::practice::view::View;
use crate::ir::{BinOp, BuildKind, CmpOp, FuncId, Item, Operand, Rvalue, Stmt};
use crate::project::{FuncRef, ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::{Files, Name, Place};
use crate::types::Factor;

/// Parts of names of experts, and of the ranks that exchange tokens for them.
const EXPERTS: &[&str] = &["ep", "expert", "experts", "moe"];
/// Parts of names of the ranks with copies of the same experts, and of other data-parallel ones.
const COPIES: &[&str] = &["dp", "edp", "data", "replica", "replicas"];
/// Parts of names of groups of ranks, which have a size as tensors have.
const GROUPS: &[&str] = &["group", "pg", "mesh", "comm"];
/// Hooks that are given a gradient, or the parameter that has it.
const HOOKS: &[&str] = &["register_hook", "register_post_accumulate_grad_hook"];
/// Parts of names of entries of a group of parameters that its gradients, or the steps with them, are multiplied with.
const ENTRIES: &[&str] = &["lr", "rate", "scale", "factor", "mult", "multiplier", "weight"];
/// How names of functions of torch begin that are given lists of tensors.
const LISTS: &str = "_foreach_";
/// How many attributes a value is followed through.
const MOST_ATTRIBUTES: usize = 3;

/// Whether a mistake that experts have a factor with the number of their ranks may be made up for in the same file.
pub fn may_scale(project: &Project, rules: &RuleBook, files: &Files, module: ModuleId, mistake: &Mistake) -> bool {
    let named = mistake.who.ends_with(", experts");
    let sized =
        mistake.factor.powers().any(|(f, _)| matches!(f, Factor::Size(a) if a.name() == "ep" || is_of_experts(a)));
    let concerned = match mistake.wrong {
        Wrong::Than(_) => named || sized,
        Wrong::Mean => named && sized,
        _ => false,
    };
    if !concerned {
        return false;
    }
    let mut followed: Vec<Place> = mistake.events.iter().map(|e| e.place).collect();
    followed.push(mistake.place);
    let funcs = project.modules[module].ir.funcs.ids();
    funcs.into_iter().any(|func: FuncId| {
        let view = View::new(project, rules, files, FuncRef { module, func });
        let known = |i: usize| {
            let place = view.place(view.steps[i].id);
            followed.iter().any(|p| overlap(p, &place))
        };
        (0..view.steps.len()).any(|i| {
            !known(i) && (scales(&view, i) || hooks(&view, i, &followed) || makes_entry(&view, i)) || refuses(&view, i)
        })
    })
}

fn overlap(a: &Place, b: &Place) -> bool {
    a.file == b.file && a.span.start < b.span.end && b.span.start < a.span.end
}

/// What a step multiplies or divides, and by what.
fn scaling<'a>(view: &View<'a>, step: usize) -> Option<(&'a Operand, &'a Operand)> {
    match view.value(step)? {
        Rvalue::Binary { op: BinOp::Mul | BinOp::Div, left, right }
        | Rvalue::InPlace { op: BinOp::Mul | BinOp::Div, left, right } => Some((left, right)),
        value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) if scaler(view, value).is_some() => {
            Some((&args.first()?.value, &args.get(1)?.value))
        }
        Rvalue::CallMethod { base, name, args } => {
            operation(name)?;
            Some((base, &args.first()?.value))
        }
        _ => None,
    }
}

/// The name of a function of torch that multiplies or divides what it is given first, a tensor or a list of them.
fn scaler(view: &View<'_>, value: &Rvalue) -> Option<Name> {
    let name = near::written_name(view, value)?;
    let plain = name.strip_prefix(LISTS);
    operation(plain.unwrap_or(&name))?;
    let of_torch = || match value {
        Rvalue::CallMethod { base, .. } => view.expr(base).path().is_some_and(|path| path == "torch"),
        Rvalue::Call { callee, .. } => view.through(callee).path().is_some_and(|path| path.starts_with("torch.")),
        _ => false,
    };
    (plain.is_some() || of_torch()).then_some(name)
}

/// Whether a step scales gradients, or a rate, by a number of expert-parallel ranks, or by what their group of parameters says.
fn scales(view: &View<'_>, step: usize) -> bool {
    let Some((of, by)) = scaling(view, step) else { return false };
    let (of, by) = (view.expr(of), view.expr(by));
    let is_named = |name: &str| name == "g" || near::has_part(name, "grad") || near::has_part(name, "grads");
    let named = matches!(&of, Expr::Local(l) if is_named(view.local_name(*l)));
    let rate = matches!(&of, Expr::Item(_, key) if is_entry(key));
    let list = || view.value(step).and_then(|value| scaler(view, value)).is_some_and(|name| name.starts_with(LISTS));
    (is_gradient(&of) || named || rate || list())
        && (counts_experts(view, &by, MOST_ATTRIBUTES) || is_ratio(view, &by) || !rate && is_of_group(view, &by))
}

/// Whether a factor is, or has in it, the number of ranks of one group over that of another, one of which has copies of experts.
fn is_ratio(view: &View<'_>, by: &Expr) -> bool {
    near::deep(view, by).any(&mut |e| match e {
        Expr::Binary(BinOp::Div, a, b) => {
            let (a, b) = (near::deep(view, a), near::deep(view, b));
            is_size(view, &a) && is_size(view, &b) && speaks_of_experts(view, &a) != speaks_of_experts(view, &b)
        }
        _ => false,
    })
}

/// Whether an expression has the number of expert-parallel ranks in it, by name.
fn counts_experts(view: &View<'_>, expr: &Expr, depth: usize) -> bool {
    let any = |name: &str, words: &[&str]| words.iter().any(|word| near::has_part(name, word));
    let named = |name: &str| any(name, EXPERTS) && !any(name, COPIES);
    expr.any(&mut |e| match e {
        Expr::Local(local) => {
            named(view.local_name(*local))
                || depth > 0 && {
                    let value = near::deep(view, e);
                    value != *e && counts_experts(view, &value, depth - 1)
                }
        }
        Expr::Path(_) => e.last_name().is_some_and(named),
        Expr::Attr(_, name) => named(name) || depth > 0 && is_kept(view, e, depth - 1),
        _ => false,
    })
}

/// The same of what the methods of a class put into an attribute.
fn is_kept(view: &View<'_>, attribute: &Expr, depth: usize) -> bool {
    let (Some(class), Some(name)) = (near::class_of(view), near::own_attribute(view, attribute)) else { return false };
    near::assigned(view, class, name).iter().any(|(method, _, value)| {
        // A group that is kept under another name says nothing of what is done with it.
        let value = method.through(value);
        matches!(value, Expr::Binary(..) | Expr::Call { .. }) && counts_experts(method, &value, depth)
    })
}

/// Whether a factor is an entry of a group of parameters: `group["grad_scale"]`, `group.get("grad_scale", 1.0)`.
fn is_of_group(view: &View<'_>, by: &Expr) -> bool {
    near::deep(view, by).any(&mut |e| match e {
        Expr::Item(_, key) => is_entry(key),
        Expr::Call { args, .. } => e.call_of("get").is_some() && args.first().is_some_and(|(_, key)| is_entry(key)),
        _ => false,
    })
}

/// Whether a key is that of an entry of a group of parameters that its steps are multiplied with.
fn is_entry(key: &Expr) -> bool {
    key.string().is_some_and(|key| ENTRIES.iter().any(|word| near::has_part(key, word)))
}

/// Whether a step registers a hook on a gradient that scales it, or of which nothing is known.
fn hooks(view: &View<'_>, step: usize, followed: &[Place]) -> bool {
    let Some(Rvalue::CallMethod { name, args, .. }) = view.value(step) else { return false };
    let Some(hook) = args.first().filter(|_| HOOKS.contains(&name.as_str())) else { return false };
    let Some(at) = near::function(view, &hook.value).or_else(|| method_given(view, &hook.value)) else { return true };
    let hook = near::other(view, at);
    let within = |p: &Place| p.file == view.project.file(at.module) && contains(hook.func.span, p.span);
    !followed.iter().any(within)
        && (0..hook.steps.len()).any(|i| scaling(&hook, i).is_some_and(|(_, by)| !matches!(by, Operand::Const(_))))
}

fn contains(outer: crate::source::Span, inner: crate::source::Span) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// The method of its own class that a value is.
fn method_given(view: &View<'_>, value: &Operand) -> Option<FuncRef> {
    let value = view.through(value);
    near::own_method(view, near::own_attribute(view, &value)?)
}

/// Whether a step makes a group of parameters with a rate or a factor that has the number of expert-parallel ranks in it:
/// `{"params": experts, "lr": lr / ep_size}`.
fn makes_entry(view: &View<'_>, step: usize) -> bool {
    let scaled = |value: &Operand| {
        let value = near::deep(view, &view.expr(value));
        matches!(value, Expr::Binary(BinOp::Mul | BinOp::Div, ..)) && counts_experts(view, &value, MOST_ATTRIBUTES)
    };
    match view.value(step) {
        Some(Rvalue::Build { kind: BuildKind::Dict, items }) => items.chunks(2).any(|pair| match pair {
            [Item::One(key), Item::One(value)] => is_entry(&view.expr(key)) && scaled(value),
            _ => false,
        }),
        _ => false,
    }
}

/// Whether a step goes on only where the group with copies of experts is as large as another one:
/// `assert get_world_size(edp) == get_world_size(dp)`.
fn refuses(view: &View<'_>, step: usize) -> bool {
    let equates = |test: &Operand, op: CmpOp| match near::deep(view, &view.expr(test)) {
        Expr::Compare(found, a, b) if found == op => {
            let (a, b) = (near::deep(view, &a), near::deep(view, &b));
            let plain = |e: &Expr| is_size(view, e) && !e.any(&mut |e| matches!(e, Expr::Binary(..)));
            plain(&a) && plain(&b) && (speaks_of_experts(view, &a) != speaks_of_experts(view, &b))
        }
        _ => false,
    };
    match view.steps[step].stmt {
        Stmt::Assert { test } => equates(test, CmpOp::Eq),
        Stmt::Raise => view.steps[step].guards.last().is_some_and(|guard| {
            let op = if guard.holds { CmpOp::Ne } else { CmpOp::Eq };
            equates(guard.test, op)
        }),
        _ => false,
    }
}

/// Whether an expression is the number of ranks of a group: by name, or because the group is asked for it.
fn is_size(view: &View<'_>, expr: &Expr) -> bool {
    let of_group = |name: &str| GROUPS.iter().any(|word| near::has_part(name, word));
    let group = |callee: &Expr| match callee {
        Expr::Attr(base, _) => match &**base {
            Expr::Local(local) => of_group(view.local_name(*local)),
            base => base.last_name().is_some_and(of_group),
        },
        _ => false,
    };
    let asked = matches!(expr, Expr::Call { callee, .. } if callee.last_name() == Some("size") && group(callee));
    // The same ranks are as many.
    asked || expr.call_of("get_process_group_ranks").is_some() || elsewhere::is_size(view, expr)
}

fn speaks_of_experts(view: &View<'_>, expr: &Expr) -> bool {
    let named = |name: &str| EXPERTS.iter().chain(&["edp"]).any(|word| near::has_part(name, word));
    expr.any(&mut |e| match e {
        Expr::Local(local) => named(view.local_name(*local)),
        _ => e.last_name().is_some_and(named),
    })
}
