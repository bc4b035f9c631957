//! Losses for schedules of pipelines that scale gradients themselves. In: a function. Out: a schedule of torch with a number of microbatches,
//! whose loss function divides by it too, or one that another function makes for it. Never: a schedule that is told not to scale, or a loss
//! function that is not in view.
//! Source: torch.distributed.pipelining.schedules, `scale_grads=True`: gradients are divided by the number of microbatches.
//! Next: `factor.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::view::View;
use super::wrapped::function;
use crate::ir::{Arg, ArgKind, BinOp, Const, LocalId, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::{Name, Place};
use std::rc::Rc;

/// Parts of words for rounds of accumulation.
pub(super) const ROUNDS: &[&str] = &["microbatch", "micro_batch", "micro-batch", "micro batch", "accum"];

/// `Schedule1F1B(stage, n_microbatches=n, loss_fn=loss)`, with `return loss / n`
pub fn losses(view: &View<'_>, out: &mut Found) {
    let code = view.code();
    let only_read = near::is_unrecorded(view) || code.contains(".eval(") && !code.contains(".step(");
    if only_read || near::has_any(code, &[".grad.mul_", ".grad *="]) {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value @ Rvalue::Call { callee, args }) = view.value(i) else { continue };
        let Some(loss) = view.argument(args, usize::MAX, "loss_fn") else { continue };
        if !makes_scaling(view, value, callee, args) {
            continue;
        }
        let Some(count) = view.argument(args, 1, "n_microbatches") else { continue };
        let counted = view.through(count);
        let divided = match near::function(view, loss) {
            Some(loss) => divides(view, &counted, &near::other(view, loss)),
            None => divides_inside(view, &view.expr(count), loss),
        };
        if let Some((by, place)) = divided {
            let mistake = Membership::ScheduleDivides { by, schedule: view.place(step.id) };
            out.push((place, Practice::Membership(mistake)));
        }
    }
}

/// `for _ in range(n): schedule.step(x)`, and `optimizer.step()` behind it: each round divides what those before it have left in `.grad`, too.
pub fn repeated(view: &View<'_>, out: &mut Found) {
    if near::is_unrecorded(view) {
        return;
    }
    // Whoever touches gradients, by hooks too, may move them away; and a schedule may be told later.
    let file = near::bare(view.file());
    if near::has_word(&file, "grad")
        || near::has_any(&file, &["_hook(", "scale_grads", "break"])
        || near::refusals(&file).any(|line| near::has_any(line, &["accum", "rounds", "micro"]))
    {
        return;
    }
    let called = |at: usize| match view.value(at) {
        Some(Rvalue::CallMethod { base, name, .. }) if name == "step" || name == "zero_grad" => {
            Some((base, name.as_str()))
        }
        _ => None,
    };
    for (i, step) in view.steps.iter().enumerate() {
        let (Some((base, "step")), Some(round)) = (called(i), step.loops.last()) else { continue };
        let ends = |at: usize, inside: bool| {
            called(at).is_some_and(|(other, _)| view.expr(other) != view.expr(base))
                && view.steps[at].loops.contains(round) == inside
        };
        let of = |at: usize, wanted: &str| called(at).is_some_and(|(_, name)| name == wanted);
        let steps_behind = (i..view.steps.len()).find(|at| ends(*at, false) && of(*at, "step"));
        let cleared = |end: usize| (i..end).any(|at| of(at, "zero_grad"));
        let within = |at: usize| ends(at, true) || hands_on(view, at, *round);
        if once(view, *round) || (0..view.steps.len()).any(within) || steps_behind.is_none_or(cleared) {
            continue;
        }
        let Some((maker, made)) = schedule_of(view, base, i) else { continue };
        let Some(Rvalue::Call { args, .. }) = maker.value(made) else { continue };
        let Some(at) = args.iter().position(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == "loss_fn")) else {
            continue;
        };
        let id = maker.steps[made].id;
        let mistake = Membership::ScheduleDividesAgain { loss: maker.part(id, at + 1), round: view.place(step.id) };
        let place = maker.place(id);
        if !out.iter().any(|(told, _)| *told == place) {
            out.push((place, Practice::Membership(mistake)));
        }
    }
}

/// Whether a loop has one round.
fn once(view: &View<'_>, round: usize) -> bool {
    let Stmt::For { iter, .. } = view.steps[round].stmt else { return false };
    let iter = view.expr(iter);
    iter.call_of("range").is_some_and(|args| match args {
        [(_, n)] => near::deep(view, n) == Expr::Const(Const::Int(1)),
        _ => false,
    })
}

/// Whether a step in a loop gives an optimizer to something else, which may step with it.
fn hands_on(view: &View<'_>, at: usize, round: usize) -> bool {
    let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(at) else { return false };
    let optimizer = |a: &Arg| view.name_of(&view.expr(&a.value)).is_some_and(|name| name.contains("optim"));
    view.steps[at].loops.contains(&round) && args.iter().any(optimizer)
}

/// Where the schedule is made that a value is, if it scales gradients: here, in the function that gives it, or for an attribute.
fn schedule_of<'a>(view: &View<'a>, value: &Operand, before: usize) -> Option<(Rc<View<'a>>, usize)> {
    let own = || near::shared(view, view.at);
    match view.expr(value) {
        Expr::Local(local) => made_at(&own(), view.last_def(local, before)?),
        attribute => {
            let (class, name) = (near::class_of(view)?, near::own_attribute(view, &attribute)?);
            let set = near::assigned(view, class, name);
            let [(method, step, value)] = &set[..] else { return None };
            let at = near::local(value).and_then(|l| method.last_def(l, *step)).unwrap_or(*step);
            made_at(method, at)
        }
    }
}

/// The step itself, if it makes a schedule that scales gradients by more than one, or the one that does in the function that it calls.
fn made_at<'a>(view: &Rc<View<'a>>, step: usize) -> Option<(Rc<View<'a>>, usize)> {
    let value @ Rvalue::Call { callee, args } = view.value(step)? else { return None };
    let makes = |view: &View<'a>, value: &'a Rvalue, callee: &Operand, args: &'a [Arg]| {
        let count = view.argument(args, 1, "n_microbatches").map(|n| view.through(n));
        count != Some(Expr::Const(Const::Int(1))) && makes_scaling(view, value, callee, args)
    };
    if makes(view, value, callee, args) {
        return Some((view.clone(), step));
    }
    let maker = near::shared(view, near::function(view, callee)?);
    let mut returned = maker.steps.iter().filter_map(|s| match s.stmt {
        Stmt::Return { value } => Some(maker.source(value)),
        _ => None,
    });
    let (Some(Some((at, value @ Rvalue::Call { callee, args }))), None) = (returned.next(), returned.next()) else {
        return None;
    };
    makes(&maker, value, callee, args).then(|| (maker.clone(), at))
}

/// Whether a call makes a schedule that scales gradients.
fn makes_scaling<'a>(view: &View<'a>, value: &'a Rvalue, callee: &Operand, args: &'a [Arg]) -> bool {
    let known = view.callee(value).is_some_and(|path| is_schedule(&path)) || is_chosen(view, &view.through(callee));
    known && !scales_not(view, args)
}

fn is_schedule(path: &Name) -> bool {
    path.starts_with("torch.distributed.pipelining") && super::lost::last(path).starts_with("Schedule")
}

/// `get_schedule_class(name)(stage, ...)`
fn is_chosen(view: &View<'_>, callee: &Expr) -> bool {
    let Expr::Call { callee, .. } = callee else { return false };
    near::path(view, callee)
        .is_some_and(|path| path.starts_with("torch.distributed.pipelining") && path.ends_with("get_schedule_class"))
}

/// Whether a schedule is told not to scale, or may be.
fn scales_not<'a>(view: &View<'a>, args: &'a [Arg]) -> bool {
    use crate::ir::ArgKind::{DoubleStar, Star};
    let told = view.argument(args, usize::MAX, "scale_grads");
    let open = args.iter().any(|a| matches!(a.kind, Star | DoubleStar));
    open || told.is_some_and(|told| view.through(told) != Expr::Const(Const::Bool(true)))
}

/// The number of microbatches by which all that a loss function returns is divided.
fn divides(view: &View<'_>, count: &Expr, loss: &View<'_>) -> Option<(Name, Place)> {
    let mut found = None;
    for step in &loss.steps {
        let Stmt::Return { value } = step.stmt else { continue };
        let (made, value) = loss.source(value)?;
        let Rvalue::Binary { op: BinOp::Div, right, .. } = value else { return None };
        let by = loss.through(right);
        if !is_same(view, count, loss, &by) {
            return None;
        }
        found = Some((name_of(loss, &by)?, loss.place(loss.steps[made].id)));
    }
    found
}

/// The same of a loss function that another function makes, which is given the number: `loss_fn=rescaled(loss, n)`. What it gives divides by
/// a parameter of the function that made it.
fn divides_inside(view: &View<'_>, count: &Expr, loss: &Operand) -> Option<(Name, Place)> {
    let Expr::Call { callee, args, step } = view.through(loss) else { return None };
    let maker = near::shared(view, function(view, &callee)?);
    let mut found = None;
    for step in &maker.steps {
        let Stmt::Return { value } = step.stmt else { continue };
        let inner = near::shared(view, made_inside(&maker, value)?);
        if inner.func.parent != Some(maker.at.func) {
            return None;
        }
        let divisor = divisor(&inner)?;
        let (outer, _) = inner.func.captures.iter().find(|(_, inside)| *inside == divisor)?;
        let index = maker.func.params.iter().position(|p| p.local == *outer)?;
        let name = &maker.func.params[index].name;
        let named = args.iter().find(|(kind, _)| matches!(kind, ArgKind::Keyword(k) if k == name));
        let given = named.or_else(|| args.get(index).filter(|(kind, _)| *kind == ArgKind::Positional));
        let (_, given) = given?;
        if given != count || !maker.defs(*outer).is_empty() {
            return None;
        }
        // Literals may be equal by chance.
        if matches!(count, Expr::Const(_)) && (*count == Expr::Const(Const::Int(1)) || !near::has_any(name, ROUNDS)) {
            return None;
        }
        found = Some(name_of(view, given)?);
    }
    Some((found?, view.place(view.steps[step].id)))
}

/// The function that a value is: defined here, whatever decorates it without a change of what it gives.
fn made_inside(maker: &View<'_>, value: &Operand) -> Option<FuncRef> {
    let decorated = |local: LocalId| {
        maker.defs(local).iter().any(|def| match maker.steps[*def].stmt {
            Stmt::Def { decorators, .. } => {
                decorators.iter().any(|d| !maker.expr(d).any(&mut |e| e.last_name() == Some("wraps")))
            }
            _ => true,
        })
    };
    match maker.through(value) {
        Expr::Local(local) if decorated(local) => None,
        _ => near::function(maker, value),
    }
}

/// The variable by which all that a function returns is divided.
fn divisor(loss: &View<'_>) -> Option<LocalId> {
    let mut found = None;
    for step in &loss.steps {
        let Stmt::Return { value } = step.stmt else { continue };
        let Expr::Binary(BinOp::Div, _, by) = loss.through(value) else { return None };
        let Expr::Local(by) = *by else { return None };
        if found.is_some_and(|other| other != by) {
            return None;
        }
        found = Some(by);
    }
    found
}

/// Whether two functions speak of the same number: by its name, or by its value where the loss function says what it divides by.
fn is_same(view: &View<'_>, count: &Expr, loss: &View<'_>, by: &Expr) -> bool {
    match (count, by) {
        (Expr::Const(a), Expr::Const(b)) => a == b && *a != Const::Int(1) && speaks_of_rounds(loss),
        // A variable of the loss function alone is another one, whatever it is called.
        (_, Expr::Local(local)) if is_own(loss, *local) => false,
        _ => match (name_of(view, count), name_of(loss, by)) {
            (Some(a), Some(b)) => {
                a == b || [a, b].iter().all(|n| n.as_str().to_lowercase().replace('_', "").contains("microbatches"))
            }
            _ => false,
        },
    }
}

/// Whether a variable is neither given to a function nor one of those around it, and no name for rounds.
fn is_own(loss: &View<'_>, local: LocalId) -> bool {
    let captured = loss.func.captures.iter().any(|(_, inside)| *inside == local);
    !captured && !loss.is_param(local) && !near::has_any(&loss.local_name(local).to_lowercase(), ROUNDS)
}

/// Whether the name, the docstring or a comment of a loss function is about rounds: a literal alone may be any number.
fn speaks_of_rounds(loss: &View<'_>) -> bool {
    let file = &loss.files[loss.project.file(loss.at.module)];
    let said = near::comments(loss, loss.func.span);
    let documented = loss.func.documented(file).map(|text| text.to_lowercase());
    near::has_any(&loss.func.name.to_lowercase(), ROUNDS)
        || documented.is_some_and(|text| near::has_any(&text, ROUNDS))
        || said.iter().any(|note| near::has_any(&note.text, ROUNDS))
}

fn name_of(view: &View<'_>, expr: &Expr) -> Option<Name> {
    match expr {
        Expr::Local(local) => Some(view.local_name(*local).clone()),
        Expr::Const(Const::Int(n)) => Some(Name::from(n.to_string())),
        other => other.last_name().map(Name::from),
    }
}
