//! Statistics over a dim that is split, whose sum over ranks does nothing in its backward. In: a function. Out: such a sum, where its result meets the
//! parts that it was made of: what the other ranks make of this rank's part is missing from its gradient. Never: autograd functions, results that
//! go through anything unknown first, and of raw sums other than those of exponentials in a loss. Source: Megatron-LM mappings.py,
//! `reduce_from_tensor_model_parallel_region`. Next: `statistic.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::lapses::Lapse;
use super::lost::last;
use super::mixed_mean::averages;
use super::near;
use super::unfold::unfold;
use super::view::{CollectiveCall, View};
use crate::ir::{ArgKind, BinOp, Const, LocalId, Operand, Rvalue, Stmt};
use crate::rules::{Form, OpClass};
use crate::source::{Name, Place};
use crate::types::AxisType;
use rustc_hash::FxHashSet;

/// Reductions along a dim.
const SUMS: &[&str] = &["sum", "mean"];
/// What is made of a part element by element before it is added up.
const BENT: &[&str] = &["pow", "square", "exp"];
/// Parts of names of what gets no gradient in a loss.
const FIXED: &[&str] = &["teacher", "target", "ref", "label", "old", "frozen", "prior", "t_"];
/// Words of code that is not trained.
const UNTRAINED: &[&str] = &["nference", "no_grad", "infer", "decod", "generat"];

/// `s = reduce(x.pow(2).mean(-1))`, and `x * rsqrt(s)`
pub fn met(view: &View<'_>, out: &mut Found) {
    if is_of_autograd(view) || near::is_unrecorded(view) {
        return;
    }
    for (at, call) in view.collectives().iter().filter(|(_, call)| call.rule.op == "all_reduce") {
        let Some(Operand::Local(input)) = call.input else { continue };
        if view.without_gradient(*at) {
            continue;
        }
        let Some(result) = without_backward(view, *at, call, *input) else { continue };
        let Some((made, parts)) = added_up(view, *at, *input) else { continue };
        let raw = !call.rule.differentiable;
        if raw && !is_part_of_loss(view, *at, *input, &parts) {
            continue;
        }
        let Some(meets) = meeting(view, *at, result, &parts) else { continue };
        if serves_autograd(view) {
            return;
        }
        let mistake = Lapse::StatisticMeets {
            collective: last(&call.rule.name),
            made: view.place(view.steps[made].id),
            meets: view.place(view.steps[meets].id),
            backward: None,
        };
        out.push((view.place(view.steps[*at].id), Practice::Lapse(mistake)));
    }
}

/// The same of a sum that is an autograd function of the project whose backward returns the gradient: `s = AllReduce.apply(cat([x.mean(0), ..]))`
pub fn of_own_function(view: &View<'_>, out: &mut Found) {
    if is_of_autograd(view) || near::is_unrecorded(view) {
        return;
    }
    for at in 0..view.steps.len() {
        let Some((input, class, backward)) = own_sum(view, at).filter(|_| !view.without_gradient(at)) else { continue };
        let Stmt::Assign { dst, .. } = view.steps[at].stmt else { continue };
        let Some((made, parts)) = along_a_dim(view, &unfold(view, &view.expr(input), at)) else { continue };
        let Some(meets) = meeting(view, at, *dst, &parts) else { continue };
        let mistake = Lapse::StatisticMeets {
            collective: class,
            made: view.place(view.steps[made].id),
            meets: view.place(view.steps[meets].id),
            backward: Some(backward),
        };
        out.push((view.place(view.steps[at].id), Practice::Lapse(mistake)));
    }
}

/// What a step gives to an autograd function that sums it over ranks and whose backward returns the gradient; its name, and where it returns.
fn own_sum<'a>(view: &View<'a>, step: usize) -> Option<(&'a Operand, Name, Place)> {
    let Rvalue::CallMethod { base, name, args } = view.value(step)? else { return None };
    if name != "apply" {
        return None;
    }
    let class = near::class_named(view, base)?;
    let forward = near::shared(view, view.project.own_method(class, "forward")?);
    let backward = near::shared(view, view.project.own_method(class, "backward")?);
    let [.., given] = &forward.func.params[..] else { return None };
    let [(at, call)] = forward.collectives() else { return None };
    let plain = forward.steps[*at].guards.is_empty() && forward.func.params.len() == 2;
    let (_, returned) = returned(&forward).filter(|_| plain)?;
    let copies = |of: &Expr| match near::deep(&forward, of) {
        Expr::Call { callee, .. } => matches!(&*callee, Expr::Attr(of, name)
            if matches!(name.as_str(), "clone" | "detach" | "contiguous") && of.mentions(given.local)),
        other => other == Expr::Local(given.local),
    };
    let summed = call.input?;
    let in_place = matches!(call.rule.form, Form::InPlace)
        && averages(&forward, call) == Some(false)
        && returned == forward.expr(summed);
    let is_gathered = call.rule.op == "all_gather";
    let is_sum = in_place || is_gathered && adds_up(&forward, &returned, call.output?) == Some(true);
    (is_sum && copies(&forward.expr(summed))).then_some(())?;
    let [_, gradient] = &backward.func.params[..] else { return None };
    // Anything else that reads it may sum it in place.
    let untouched = backward.defs(gradient.local).is_empty() && backward.readers(gradient.local).len() == 1;
    let (back, _) = self::returned(&backward).filter(|(_, e)| untouched && *e == Expr::Local(gradient.local))?;
    Some((&args.first()?.value, view.project.class(class).name.clone(), back))
}

/// Where a method returns and what, if it does so once.
fn returned(method: &View<'_>) -> Option<(Place, Expr)> {
    let mut all = method.steps.iter().filter(|s| matches!(s.stmt, Stmt::Return { .. }));
    let (one, more) = (all.next()?, all.next());
    let Stmt::Return { value } = one.stmt else { return None };
    more.is_none().then(|| (method.place(one.id), method.expr(value)))
}

/// Whether a value is the sum of what was gathered into a list: `torch.stack(parts).sum(0)`, `sum(parts)`.
fn adds_up(view: &View<'_>, value: &Expr, parts: &Operand) -> Option<bool> {
    let parts = view.expr(parts);
    let value = near::deep(view, value);
    let Expr::Call { callee, args, .. } = &value else { return Some(false) };
    if **callee == Expr::Path(Name::from("builtins.sum")) {
        return Some(args.len() == 1 && args[0].1 == parts);
    }
    // Of torch the first argument, and of a method the object.
    let (stacked, rest) = match &**callee {
        Expr::Path(path) if path == "torch.sum" => (near::deep(view, &args.first()?.1), &args[1..]),
        Expr::Attr(base, name) if name == "sum" => (near::deep(view, base), args.as_slice()),
        _ => return Some(false),
    };
    let first = |args: &[(ArgKind, Expr)]| matches!(args, [(_, Expr::Const(Const::Int(0)))]);
    let of = stacked.call_of("stack")?;
    let (list, dim) = of.split_first()?;
    Some(list.1 == parts && (dim.is_empty() || first(dim)) && first(rest))
}

/// Where something is added up along a dim, and the variables that it is made of.
fn along_a_dim(view: &View<'_>, whole: &Expr) -> Option<(usize, FxHashSet<LocalId>)> {
    let mut found = None;
    // A statistic that is no part of the gradient is meant so.
    if whole.any(&mut |e| e.call_of("detach").is_some()) {
        return None;
    }
    whole.any(&mut |e| {
        let Expr::Call { callee, args, step } = e else { return false };
        let Some(name) = callee.last_name().filter(|n| SUMS.contains(n)) else { return false };
        let (base, rest) = match &**callee {
            Expr::Path(path) if path.starts_with("torch.") && path.ends_with(name) => {
                let Some((first, rest)) = args.split_first() else { return false };
                (&first.1, rest)
            }
            Expr::Attr(base, _) => (&**base, args.as_slice()),
            _ => return false,
        };
        let parts = variables(view, base);
        if !rest.is_empty() && !parts.is_empty() {
            found = Some((*step, parts));
        }
        found.is_some()
    });
    found
}

fn is_of_autograd(view: &View<'_>) -> bool {
    let context = view.func.params.first().is_some_and(|p| p.name == "ctx");
    context || near::autograd_class(view).is_some()
}

/// Whether a function is called where gradients are computed by hand, or not at all, and nowhere else.
fn serves_autograd(view: &View<'_>) -> bool {
    let callers = super::called::callers(view);
    !callers.is_empty() && callers.iter().all(|(site, step)| is_of_autograd(site) || site.without_gradient(*step))
}

/// What holds the sum, if its backward gives each rank the gradient as it is.
fn without_backward<'a>(view: &View<'a>, at: usize, call: &CollectiveCall<'a>, input: LocalId) -> Option<LocalId> {
    if call.rule.differentiable {
        let kept = |set: AxisType| set == AxisType::I;
        let all = !call.rule.transitions.is_empty() && call.rule.transitions.iter().all(|(_, t)| kept(t.result.set));
        return match view.steps[at].stmt {
            Stmt::Assign { dst, .. } if all && matches!(call.rule.form, Form::Result) => Some(*dst),
            _ => None,
        };
    }
    let sums = matches!(call.rule.form, Form::InPlace) && averages(view, call) == Some(false);
    sums.then_some(input)
}

/// Where a value is added up along a dim, and the variables that what is added up is made of, without what was reduced before.
fn added_up(view: &View<'_>, at: usize, input: LocalId) -> Option<(usize, FxHashSet<LocalId>)> {
    let made = view.defs(input).iter().copied().rfind(|d| *d < at)?;
    let whole = view.bound(made, input);
    let Expr::Call { callee, args, .. } = &whole else { return None };
    let name = callee.last_name().filter(|n| SUMS.contains(n))?;
    // Of torch the first argument, and of a method the object.
    let base = match &**callee {
        Expr::Path(path) if path.starts_with("torch.") && path.ends_with(name) => &args.first()?.1,
        Expr::Attr(base, _) => &**base,
        _ => return None,
    };
    let along = args.iter().any(|(_, a)| matches!(a, Expr::Const(Const::Int(_)) | Expr::Unary(..)));
    let bent = base.any(&mut |e| match e {
        Expr::Call { callee, .. } => callee.last_name().is_some_and(|n| BENT.contains(&n)),
        Expr::Binary(BinOp::Mul, a, b) => a == b,
        Expr::Binary(BinOp::Pow, ..) => true,
        _ => false,
    });
    let cut = base.any(&mut |e| {
        e.call_of("detach").is_some() || matches!(e, Expr::Attr(_, name) if name == "data" || name == "grad")
    });
    let parts = variables(view, base);
    (along && bent && !cut && !parts.is_empty()).then_some((made, parts))
}

/// The variables that an expression is made of, without the object whose method it is.
fn variables(view: &View<'_>, of: &Expr) -> FxHashSet<LocalId> {
    let mut parts = FxHashSet::default();
    of.any(&mut |e| {
        if let Expr::Local(local) = e {
            parts.insert(*local);
        }
        false
    });
    parts.retain(|l| !near::is_self(view, &Operand::Local(*l)));
    parts
}

/// Whether a raw sum of exponentials normalises what a loss is made of, and that is trained.
fn is_part_of_loss(view: &View<'_>, at: usize, input: LocalId, parts: &FxHashSet<LocalId>) -> bool {
    let exponentials = view.text(view.place(view.steps[at].id)).contains("reduce")
        && view.defs(input).iter().any(|d| view.bound(*d, input).any(&mut |e| e.call_of("exp").is_some()));
    let fixed = |name: &Name| {
        let name = name.to_lowercase();
        FIXED.iter().any(|w| if w.ends_with('_') { name.starts_with(w) } else { name.split('_').any(|p| p == *w) })
    };
    let mut of: FxHashSet<LocalId> = parts.clone();
    for part in parts {
        of.extend(near::roots(view, &Operand::Local(*part)));
    }
    let qualname = view.project.qualname(view.at);
    let named = [qualname.to_lowercase(), view.project.name(view.at.module).to_lowercase()];
    let loss = named.iter().any(|n| n.contains("loss") || n.contains("cross_entropy"));
    let detached = of.iter().any(|l| view.defs(*l).iter().any(|d| view.bound(*d, *l).call_of("detach").is_some()));
    exponentials
        && loss
        && !detached
        && !fixed(view.local_name(input))
        && !of.iter().any(|l| fixed(view.local_name(*l)))
        && !UNTRAINED.iter().any(|word| qualname.contains(word))
}

/// Where the sum, or what is made of it by operations of torch, meets one of the parts, or what is made of those alone.
fn meeting(view: &View<'_>, at: usize, result: LocalId, parts: &FxHashSet<LocalId>) -> Option<usize> {
    let mut sums: FxHashSet<LocalId> = std::iter::once(result).collect();
    let mut own: FxHashSet<LocalId> = parts.clone();
    own.remove(&result);
    for step in at + 1..view.steps.len() {
        if let Stmt::Unpack { value: Operand::Local(whole), before, .. } = view.steps[step].stmt
            && sums.contains(whole)
        {
            sums.extend(before.iter().copied());
        }
        let Stmt::Assign { dst, value } = view.steps[step].stmt else { continue };
        if super::handles::excludes(&view.steps[at], &view.steps[step]) {
            continue;
        }
        // What is summed in place is a part no more: all ranks make the same of it, so that the gradient of each is whole.
        if let Some(call) = view.collective(value)
            && (call.rule.op.as_str(), call.rule.form) == ("all_reduce", Form::InPlace)
            && let Some(Operand::Local(summed)) = call.input
            && own.remove(summed)
        {
            sums.insert(*summed);
            continue;
        }
        let reads = view.reads(step);
        let has = |set: &FxHashSet<LocalId>| reads.iter().any(|o| matches!(o, Operand::Local(l) if set.contains(l)));
        let (of_sums, of_own) = (has(&sums), has(&own));
        let known = is_plain(view, value);
        if of_sums && of_own {
            let meets = matches!(value, Rvalue::Binary { op: BinOp::Mul | BinOp::Div | BinOp::Sub, .. });
            if meets && !view.without_gradient(step) {
                return Some(step);
            }
        }
        sums.remove(dst);
        own.remove(dst);
        match (known, of_sums, of_own) {
            (true, true, false) => drop(sums.insert(*dst)),
            (true, false, true) => drop(own.insert(*dst)),
            _ => {}
        }
    }
    None
}

/// Whether a step computes something of tensors, element by element or in another way that gradients flow back through.
fn is_plain<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    match value {
        Rvalue::Use(_) | Rvalue::Binary { .. } | Rvalue::InPlace { .. } | Rvalue::Unary { .. } => true,
        Rvalue::Call { .. } | Rvalue::CallMethod { .. } => {
            if view.collective(value).is_some() {
                return false;
            }
            let rule = match value {
                Rvalue::CallMethod { base, name, .. } if !matches!(view.through(base), Expr::Path(_)) => {
                    view.rules.tensor_method(name)
                }
                _ => view.callee(value).and_then(|path| view.rules.op(&path)),
            };
            rule.is_some_and(|op| matches!(op.class, OpClass::Plain(_)) && !op.nondiff)
        }
        _ => false,
    }
}
