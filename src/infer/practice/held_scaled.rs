//! Factors that scale what a buffer holds in place of what is added to it. In: a function. Out: a buffer that is divided by the number of ranks of
//! a group, before the sum over that group is added to it, where that sum is added as it is: each round divides what earlier ones have
//! left again. Never: averages that forget, a sum that anything else may scale, or a buffer that anything else writes to or reduces.
//! Source: Megatron-LM, gradient buckets of Megatron-FSDP. Next: `each_round.rs`, `summed_scaled.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::lapses::Lapse;
use super::mixed_mean::averages;
use super::view::{CollectiveCall, Guard, View};
use super::{Found, near};
use crate::ir::{ArgKind, BinOp, CmpOp, Operand, Rvalue, Stmt};
use crate::source::Name;

/// Parts of names of averages that are meant to forget, and of factors that make them do so.
const FORGETS: &[&str] = &["moment", "ema", "beta", "decay", "avg", "average", "mean", "velocity", "running", "alpha"];
/// What a number of ranks is called.
const COUNTS: &[&str] = &["world_size", "group_size", "dp_size", "num_replicas", "num_ranks"];
/// Words in the names of factors.
const FACTORS: &[&str] = &["world", "size", "scal", "factor", "rank", "replica"];
/// What says that a buffer is kept from one round to the next.
const KEEPS: &[&str] = &["acc", "accum", "accumulated", "total", "main"];
/// Words of code that scales in a way that is not followed.
const HIDDEN: &[&str] = &["premul", "_foreach_mul", "_foreach_div", "multi_tensor_scale", "addcdiv", "addcmul"];
/// Methods that leave values as they are, or clear them.
const LEAVES: &[&str] =
    &["zero_", "view", "view_as", "reshape", "flatten", "narrow", "chunk", "contiguous", "numel", "size", "append"];

/// A step that scales in place, as an operand, what by, and whether it divides.
type Scaled<'a> = (&'a Operand, &'a Operand, bool);

/// `acc.mul_(1 / group.size())`, `reduce_scatter_tensor(shard, bucket, group=group)`, `acc.add_(shard)`
pub fn rounds(view: &View<'_>, out: &mut Found) {
    for (c, call) in view.collectives() {
        if !matches!(call.rule.op.as_str(), "all_reduce" | "reduce_scatter") || averages(view, call) != Some(false) {
            continue;
        }
        let (Some(input), Some(part)) = (call.input, call.output.or(call.input)) else { continue };
        let (input, part) = (view.expr(input), view.expr(part));
        let added = (*c + 1..view.steps.len()).find_map(|a| Some((a, added(view, a, &part)?)));
        let Some((a, held)) = added.filter(|(a, _)| together(view, *c, *a)) else { continue };
        let scales = |s: usize| scaled(view, s).filter(|(of, ..)| same(view, of, &held));
        let Some(s) = (0..a).find(|s| scales(*s).is_some() && together(view, *s, a)) else { continue };
        let Some((_, by, divides)) = scaled(view, s) else { continue };
        let Some(factor) = factor(view, by, divides, call) else { continue };
        let (Some(name), Some(reduced)) = (spelled(view, &held), spelled(view, &input)) else { continue };
        let forgets = |text: &str| FORGETS.iter().any(|word| text.to_lowercase().contains(word));
        if forgets(&name) || forgets(view.text(view.place(view.steps[s].id))) || !is_kept(view, &held, s) {
            continue;
        }
        let cleared = (a + 1..view.steps.len()).any(|i| clears(view, i, &input));
        let keeps = KEEPS.iter().any(|word| near::has_part(&name, word));
        let evident = factor == Factor::OfGroup || cleared || keeps;
        if evident
            && is_left(view, &held, [s, a])
            && is_plain(view, &input, &part, [*c, a])
            && !scales_elsewhere(view, s, &held)
        {
            let (reduced_at, added) = (view.place(view.steps[*c].id), view.place(view.steps[a].id));
            let mistake = Lapse::HeldScaled { held: name, reduced, summed: reduced_at, added };
            out.push((view.place(view.steps[s].id), Practice::Lapse(mistake)));
            return;
        }
    }
}

/// What a step adds a sum to.
fn added(view: &View<'_>, step: usize, part: &Expr) -> Option<Expr> {
    let (to, what) = match view.value(step)? {
        Rvalue::CallMethod { base, name, args } if name == "add_" && args.len() == 1 => (base, &args[0].value),
        Rvalue::InPlace { op: BinOp::Add, left, right } => (left, right),
        _ => return None,
    };
    let to = steady(view, to);
    (view.expr(what) == *part && to != *part).then_some(to)
}

fn scaled<'a>(view: &View<'a>, step: usize) -> Option<Scaled<'a>> {
    match view.value(step)? {
        Rvalue::CallMethod { base, name, args } if matches!(name.as_str(), "mul_" | "div_") => {
            let arg = args.first().filter(|a| a.kind == ArgKind::Positional)?;
            Some((base, &arg.value, name == "div_"))
        }
        Rvalue::InPlace { op: op @ (BinOp::Mul | BinOp::Div), left, right } => Some((left, right, *op == BinOp::Div)),
        _ => None,
    }
}

/// An operand as the attribute that it is, also under another name; otherwise as it is written.
fn steady(view: &View<'_>, operand: &Operand) -> Expr {
    match near::deep(view, &view.expr(operand)) {
        found @ Expr::Attr(..) => found,
        _ => view.expr(operand),
    }
}

fn same(view: &View<'_>, operand: &Operand, expr: &Expr) -> bool {
    steady(view, operand) == *expr
}

/// Whether two steps belong to one round: in the same loops, and under no test but whether something is there.
fn together(view: &View<'_>, a: usize, b: usize) -> bool {
    let (a, b) = (&view.steps[a], &view.steps[b]);
    let is_there = |g: &Guard<'_>| match view.expr(g.test) {
        Expr::Compare(CmpOp::Is | CmpOp::IsNot, _, right) => right.is_none(),
        _ => false,
    };
    a.loops == b.loops && a.handlers == b.handlers && a.guards.iter().chain(b.guards.iter()).all(is_there)
}

/// A factor that makes a sum over ranks a mean.
#[derive(PartialEq)]
enum Factor {
    /// One over the size of the group of the collective.
    OfGroup,
    /// One over a number of ranks, or what is called the factor of gradients.
    Named,
}

fn factor(view: &View<'_>, by: &Operand, divides: bool, call: &CollectiveCall<'_>) -> Option<Factor> {
    let by = near::deep(view, &view.expr(by));
    let group = call.group.map(|g| near::deep(view, &view.expr(g)));
    let group = group.as_ref().and_then(|g| last(view, g));
    if let Some(found) = share(view, &by, divides, group.as_deref()) {
        return Some(found);
    }
    let Expr::Attr(_, name) = &by else { return None };
    let mut set = Vec::new();
    for at in near::functions(view, view.at.module) {
        let other = near::shared(view, at);
        for step in &other.steps {
            if let Stmt::SetAttr { name: own, value, .. } = step.stmt
                && own == name
            {
                let value = near::deep(&other, &other.expr(value));
                set.push(share(&other, &value, divides, group.as_deref()).or_else(|| given(&other, &value, name)));
            }
        }
    }
    match set.is_empty() {
        true => is_called_factor(name).then_some(Factor::Named),
        false => set.into_iter().collect::<Option<Vec<Factor>>>()?.pop(),
    }
}

/// Whether a value is one over a number of ranks, or such a number where it is divided by.
fn share(view: &View<'_>, by: &Expr, divides: bool, group: Option<&str>) -> Option<Factor> {
    let number = match by {
        number if divides => number.clone(),
        Expr::Binary(BinOp::Div, one, number) if is_one(one) => near::deep(view, number),
        _ => return None,
    };
    let of = match &number {
        Expr::Call { callee, args, .. } => match callee.last_name()? {
            "get_world_size" => args.first().and_then(|(_, of)| last(view, of)),
            "size" if args.is_empty() => match &**callee {
                Expr::Attr(of, _) => last(view, of),
                _ => return None,
            },
            _ => return None,
        },
        other => {
            let name = last(view, other)?;
            return COUNTS.iter().any(|word| name.contains(word)).then_some(Factor::Named);
        }
    };
    Some(if of.as_deref() == group { Factor::OfGroup } else { Factor::Named })
}

/// The factor that a constructor is given under its own name.
fn given(view: &View<'_>, value: &Expr, name: &str) -> Option<Factor> {
    let own = matches!(value, Expr::Local(l) if view.is_param(*l) && view.local_name(*l) == name);
    (own && is_called_factor(name)).then_some(Factor::Named)
}

fn is_called_factor(name: &str) -> bool {
    name.contains("grad") && ["scaling_factor", "scale_factor", "divide_factor"].iter().any(|w| name.ends_with(w))
}

fn is_one(expr: &Expr) -> bool {
    matches!(expr, Expr::Const(number) if number.is_number(1.0))
}

fn last(view: &View<'_>, expr: &Expr) -> Option<String> {
    match expr {
        Expr::Local(local) => Some(view.local_name(*local).to_string()),
        other => other.last_name().map(str::to_string),
    }
}

/// A variable, or an attribute of one, as it is written.
fn spelled(view: &View<'_>, expr: &Expr) -> Option<Name> {
    match expr {
        Expr::Local(l) => Some(view.local_name(*l).clone()),
        Expr::Attr(base, name) => Some(Name::from(format!("{}.{name}", spelled(view, base)?))),
        _ => None,
    }
}

/// Whether a buffer is there before the round and after it: an attribute of the object, of an argument or of what a loop goes through, or a
/// variable that is made before the loop. The gradient of one backward pass is not.
fn is_kept(view: &View<'_>, held: &Expr, step: usize) -> bool {
    match held {
        Expr::Local(local) if is_of_round(view, held) => {
            KEEPS.iter().any(|word| near::has_part(view.local_name(*local), word))
        }
        Expr::Local(local) => {
            let around = &view.steps[step].loops;
            let outside = |d: &usize| around.iter().all(|at| at != d && !view.steps[*d].loops.contains(at));
            !around.is_empty()
                && view.defs(*local).iter().all(|d| outside(d) || scaled(view, *d).is_some() || *d > step)
        }
        Expr::Attr(base, name) => name != "grad" && is_of_round(view, base),
        _ => false,
    }
}

fn is_of_round(view: &View<'_>, base: &Expr) -> bool {
    match base {
        Expr::Attr(base, _) => is_of_round(view, base),
        Expr::Local(l) => {
            let looped = |d: &usize| matches!(view.steps[*d].stmt, Stmt::For { .. } | Stmt::Unpack { .. });
            view.is_as_given(*l) || !view.defs(*l).is_empty() && view.defs(*l).iter().all(looped)
        }
        _ => false,
    }
}

/// Whether a step clears what was reduced.
fn clears(view: &View<'_>, step: usize, input: &Expr) -> bool {
    matches!(view.value(step), Some(Rvalue::CallMethod { base, name, .. }) if name == "zero_" && view.expr(base) == *input)
}

/// Whether nothing but these two steps may change a buffer, and no collective of the file has it.
fn is_left(view: &View<'_>, held: &Expr, own_steps: [usize; 2]) -> bool {
    let is = |e: &Expr| e == held || matches!(e, Expr::Local(l) if same(view, &Operand::Local(*l), held));
    let mentions = |o: &Operand| view.expr(o).any(&mut |e| is(e));
    let untouched =
        (0..view.steps.len()).filter(|i| !own_steps.contains(i)).all(|i| match (view.steps[i].stmt, held) {
            (Stmt::SetAttr { name, .. }, Expr::Attr(_, own)) if name == own => is_of(view, i, &own_steps),
            _ => leaves(view, i) || !view.reads(i).into_iter().any(mentions),
        });
    let name = last(view, held);
    let communicated = near::functions(view, view.at.module).into_iter().any(|at| {
        let other = near::shared(view, at);
        let is = |o: Option<&Operand>| o.is_some_and(|o| last(&other, &other.expr(o)) == name);
        other.collectives().iter().any(|(_, call)| is(call.input) || is(call.output))
    });
    untouched && !communicated
}

/// Whether a step sets an attribute as `self.acc += x` does besides, where that is one of these steps.
fn is_of(view: &View<'_>, step: usize, own: &[usize]) -> bool {
    match view.steps[step].stmt {
        Stmt::SetAttr { value, .. } => {
            view.source(value).is_some_and(|(at, v)| matches!(v, Rvalue::InPlace { .. }) && own.contains(&at))
        }
        _ => false,
    }
}

/// Whether a step leaves the values that it reads as they are: it asks for sizes, makes another view, or makes something alike.
fn leaves(view: &View<'_>, step: usize) -> bool {
    match view.value(step) {
        Some(Rvalue::Attr { .. } | Rvalue::Item { .. } | Rvalue::Use(_) | Rvalue::Compare { .. }) => true,
        Some(Rvalue::InPlace { .. }) | None => false,
        Some(Rvalue::CallMethod { name, .. }) if LEAVES.contains(&name.as_str()) => name != "zero_",
        Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) => {
            let makes = |p: &Name| p.starts_with("torch.") && (p.ends_with("_like") || p.ends_with(".empty"));
            view.callee(value).is_some_and(|path| makes(&path) || path == "len")
        }
        _ => false,
    }
}

/// Whether what is reduced is reduced and added, and nothing else is done with it on the way.
fn is_plain(view: &View<'_>, input: &Expr, part: &Expr, own: [usize; 2]) -> bool {
    let these = [base(input), base(part)];
    let mentions = |e: &Expr| these.iter().any(|one| e.any(&mut |e| e == *one));
    let untouched = (0..view.steps.len()).filter(|i| !own.contains(i)).all(|i| {
        let reads = view.reads(i).into_iter().any(|o| mentions(&view.expr(o)));
        !reads
            || leaves(view, i)
            || is_of(view, i, &own)
            || clears(view, i, base(input))
            || matches!(view.steps[i].stmt, Stmt::For { .. })
    });
    untouched && these.into_iter().all(|e| is_unscaled(view, e))
}

/// The tensor that a view is one of.
fn base(expr: &Expr) -> &Expr {
    match expr {
        Expr::Attr(of, name) if name == "data" && matches!(**of, Expr::Local(_)) => of,
        Expr::Item(of, _) => base(of),
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(of, name) if LEAVES.contains(&name.as_str()) => base(of),
            _ => expr,
        },
        _ => expr,
    }
}

/// Whether a value is given, kept or made without a factor, as far as it shows.
fn is_unscaled(view: &View<'_>, expr: &Expr) -> bool {
    let local = match expr {
        Expr::Local(local) => *local,
        Expr::Attr(..) => return true,
        _ => return false,
    };
    view.defs(local).iter().all(|d| match (view.steps[*d].stmt, view.value(*d)) {
        (Stmt::For { .. } | Stmt::Unpack { .. }, _) => true,
        (_, Some(Rvalue::Attr { .. } | Rvalue::Item { .. } | Rvalue::Use(_))) => true,
        (_, Some(Rvalue::CallMethod { name, .. }))
            if view.rules.tensor_method(name).is_none() && !is_of_path(view, *d) =>
        {
            gives_as_it_is(view, name)
        }
        (_, Some(_)) => leaves(view, *d),
        _ => false,
    })
}

fn is_of_path(view: &View<'_>, step: usize) -> bool {
    view.value(step).and_then(|v| view.callee(v)).is_some_and(|path| !path.starts_with('.'))
}

/// Whether the methods of this name, as the file has them, compute nothing.
fn gives_as_it_is(view: &View<'_>, method: &Name) -> bool {
    let named = |at: &crate::project::FuncRef| view.project.func(*at).name == *method;
    let all: Vec<_> = near::functions(view, view.at.module).into_iter().filter(named).collect();
    let computes = |value: &Rvalue| match value {
        Rvalue::Binary { op: BinOp::Mul | BinOp::Div, .. } | Rvalue::InPlace { .. } => true,
        Rvalue::CallMethod { name, .. } => ["mul", "div", "scal"].iter().any(|word| name.contains(word)),
        _ => false,
    };
    let plain = |at: crate::project::FuncRef| {
        let other = near::shared(view, at);
        (0..other.steps.len()).all(|i| other.value(i).is_none_or(|value| !computes(value)))
    };
    !all.is_empty() && all.into_iter().all(plain)
}

/// Whether anything else in the file may scale gradients, losses or buffers by a number of ranks.
fn scales_elsewhere(view: &View<'_>, own: usize, held: &Expr) -> bool {
    let whole = view.file();
    if HIDDEN.iter().any(|word| whole.contains(word)) {
        return true;
    }
    near::functions(view, view.at.module).into_iter().any(|at| {
        let other = near::shared(view, at);
        (0..other.steps.len()).any(|i| {
            if at == view.at && i == own {
                return false;
            }
            let (of, by) = match other.value(i) {
                Some(Rvalue::Binary { op: BinOp::Mul | BinOp::Div, left, right }) => (left, right),
                Some(Rvalue::CallMethod { base, name, args }) if matches!(name.as_str(), "mul" | "div") => {
                    let Some(by) = args.first() else { return false };
                    (base, &by.value)
                }
                _ => match scaled(&other, i) {
                    Some((_, by, _)) => return speaks_of_ranks(&other, by),
                    None => return false,
                },
            };
            let is_tensor = |o: &Operand| is_named_tensor(&other, &other.expr(o), held);
            is_tensor(of) && speaks_of_ranks(&other, by) || is_tensor(by) && speaks_of_ranks(&other, of)
        })
    })
}

fn speaks_of_ranks(view: &View<'_>, by: &Operand) -> bool {
    let named = |name: &str| FACTORS.iter().any(|word| name.to_lowercase().contains(word));
    near::deep(view, &view.expr(by)).any(&mut |e| last(view, e).is_some_and(|name| named(&name)))
}

/// Whether a value is called a gradient, a loss, a bucket or as the buffer.
fn is_named_tensor(view: &View<'_>, expr: &Expr, held: &Expr) -> bool {
    let own = held.last_name();
    let named =
        |name: &str| ["grad", "loss", "bucket", "flat", "shard"].iter().any(|w| name.contains(w)) || Some(name) == own;
    let is_size = |name: &str| ["size", "numel", "len"].iter().any(|w| name.contains(w));
    expr.any(&mut |e| last(view, e).is_some_and(|name| named(&name) && !is_size(&name)))
}
