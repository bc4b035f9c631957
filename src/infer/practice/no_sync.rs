//! Steps of an optimizer on gradients that were not summed: the last backward pass before them was told to leave that out. In: a
//! function. Out: a step whose condition implies that of `no_sync`, and a flag that is set after the forward pass that reads it. Never: a
//! condition that trying numbers does not decide, or a loop in which something else may sum. Next: `trial.rs`.

use super::Found;
use super::beside::Question;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::ranks::LONE_JOB;
use super::training::Training;
use super::trial::{Trial, Values};
use super::view::{Guard, View};
use super::wrapped::{call, function, parameters_of, wrappers};
use crate::ir::{ArgKind, Const, LocalId, Operand, Rvalue, Stmt, UnOp};
use crate::source::{Name, Place};

/// Words of code that sums gradients or parameters in a way of its own.
const SUMS: &[&str] = &[
    "local_sgd",
    "localsgd",
    "diloco",
    "average_param",
    "average_grad",
    "average_model",
    "modelaverag",
    "model_averag",
    "hook",
    "reduce_grad",
    "allreduce_",
    "_allreduce",
    "sync_grad",
    "finalize",
    "synchronize_grad",
    "reduce_scatter",
    "gossip",
    "over_ranks",
    "distributedfused",
    "distributed_optim",
    "distmuon",
    "dist_optim",
];
/// Methods of a model that sum nothing.
const HARMLESS: &[&str] =
    &["parameters", "named_parameters", "zero_grad", "train", "eval", "modules", "clip_grad_norm_"];
/// Parts of names of what sums gradients or averages parameters.
pub(super) const SUMMING: &[&str] =
    &["reduce", "sync", "broadcast", "average", "aggregate", "exchange", "gossip", "communicate"];
/// Parts of names of what waits for sums that are under way.
const ENDING: &[&str] = &["flush", "finish"];
/// Parts of names of what brings copies together that have stepped apart.
const TOGETHER: &[&str] = &["average", "aggregate", "blend", "merge", "outer", "consensus", "gossip", "exchange"];
/// Parts of names of variables for a model or its parameters.
const OF_MODEL: &[&str] = &["param", "model", "net", "module"];
const MOST_DEPTH: usize = 6;

/// A backward pass, and the condition under which it sums nothing.
struct Backward {
    step: usize,
    silent: Expr,
    /// What says so.
    said: Option<Place>,
}

/// Steps that are reached after a backward pass that summed nothing.
pub fn steps(view: &View<'_>, out: &mut Found) {
    let code = view.code();
    if !code.contains("step(") {
        return;
    }
    if !(0..view.steps.len()).any(|i| is_step(view, i)) || sums_itself(view) || has_several(view) {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        if !is_step(view, i) {
            continue;
        }
        let Some(backwards) = backwards(view, i) else { continue };
        let Some(last) = backwards.last() else { continue };
        if backwards.iter().all(|b| b.silent == truth(false)) || may_sum(view, last.step, i) {
            continue;
        }
        if !is_silent(view, i, &backwards) || averages(view) {
            continue;
        }
        let told = backwards.iter().rev().find(|b| b.silent != truth(false)).unwrap_or(last);
        let Some(said) = told.said else { continue };
        let shared = |g: &Guard<'_>| view.steps[told.step].guards.iter().any(|h| h.at == g.at && h.holds == g.holds);
        let rounds = step.guards.iter().rev().find(|g| !shared(g)).map(|g| view.part(g.at, 0));
        let backward = view.place(view.steps[told.step].id);
        let decided = decision(view, &told.silent).filter(|place| *place != said);
        let mistake = Training::UnsyncedStep { backward, said, rounds, decided };
        out.push((view.place(step.id), Practice::Training(mistake)));
    }
}

/// Where the only variable that a condition asks is set to what a comparison says.
fn decision(view: &View<'_>, condition: &Expr) -> Option<Place> {
    let mut asked: Vec<LocalId> = Vec::new();
    condition.any(&mut |e| {
        if let Expr::Local(local) = e {
            asked.push(*local);
        }
        false
    });
    let compared = asked.into_iter().filter_map(|local| match view.defs(local) {
        [one] => match view.bound(*one, local) {
            Expr::Compare(..) | Expr::Bool { .. } | Expr::Unary(UnOp::Not, _) => Some(*one),
            _ => None,
        },
        _ => None,
    });
    let mut compared: Vec<usize> = compared.collect();
    compared.dedup();
    match compared.as_slice() {
        [one] => Some(view.place(view.steps[*one].id)),
        _ => None,
    }
}

/// Whether a function has more than one optimizer, or leaves out the sums of a model whose parameters its optimizer does not have.
fn has_several(view: &View<'_>) -> bool {
    let (mut optimizers, mut models, mut trained) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..view.steps.len() {
        match view.value(i) {
            Some(Rvalue::CallMethod { base, name, args }) if name == "step" => {
                let steps = args.first().map_or(base, |a| &a.value);
                optimizers.extend(is_step(view, i).then(|| view.expr(steps)));
            }
            Some(Rvalue::CallMethod { base, name, .. } | Rvalue::Attr { base, name })
                if view.rules.wrappers().is_no_sync(name) || view.rules.wrappers().is_sync_method(name) =>
            {
                models.push(view.expr(base));
            }
            Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }))
                if view.callee(value).is_some_and(|path| path.starts_with("torch.optim.")) =>
            {
                trained.extend(args.first().and_then(|a| parameters_of(view, &a.value)));
            }
            _ => {}
        }
    }
    let differ = |all: &[Expr]| all.windows(2).any(|two| two.first() != two.last());
    let other = trained.iter().any(|t| models.iter().any(|m| m != t));
    differ(&optimizers) || differ(&models) || other
}

/// Whether the file names something that sums gradients or parameters in a way of its own.
pub fn sums_itself(view: &View<'_>) -> bool {
    let sums = || near::has_any(&near::bare(view.file()), SUMS);
    view.answer(Question::Sums(view.at.module), sums)
}

fn truth(holds: bool) -> Expr {
    Expr::Const(Const::Bool(holds))
}

/// `optimizer.step()`, `scaler.step(optimizer)`
fn is_step(view: &View<'_>, step: usize) -> bool {
    let Some(Rvalue::CallMethod { base, name, args }) = view.value(step) else { return false };
    if name != "step" || args.len() > 1 {
        return false;
    }
    let is_optimizer = |o: &Operand| {
        let expr = view.expr(o);
        let name = match &expr {
            Expr::Local(l) => view.local_name(*l).as_str().to_lowercase(),
            other => other.last_name().unwrap_or_default().to_lowercase(),
        };
        name.contains("optim") || name.split('_').any(|p| p == "opt")
    };
    is_optimizer(base) || args.first().is_some_and(|a| is_optimizer(&a.value))
}

/// The backward passes before a step in its loop, in order; `None`: one is not understood.
fn backwards(view: &View<'_>, step: usize) -> Option<Vec<Backward>> {
    let around = &view.steps[step].loops;
    let mut out = Vec::new();
    for i in 0..step {
        if !view.steps[i].loops.starts_with(around) || !runs_backward(view, i)? {
            continue;
        }
        let (silent, said) = match silent_inside(view, i) {
            Some(said) => (always(), Some(said)),
            None => silence(view, i)?,
        };
        out.push(Backward { step: i, silent, said });
    }
    // Those of a loop of its own, or those of the loop of the step.
    let deepest = out.last()?.step;
    let loops = &view.steps[deepest].loops;
    out.retain(|b| view.steps[b.step].loops == *loops);
    (loops.len() <= around.len() + 1).then_some(out)
}

/// Whether a step runs a backward pass: itself, or a function of the project that it calls; `None`: not known.
fn runs_backward(view: &View<'_>, step: usize) -> Option<bool> {
    let value = match view.value(step) {
        Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) => value,
        _ => return Some(false),
    };
    if let Rvalue::CallMethod { name, .. } = value
        && name == "backward"
    {
        return Some(true);
    }
    let Some((callee, _)) = call(view, value) else { return Some(false) };
    let Some(at) = function(view, &callee) else { return Some(false) };
    let inner = near::other(view, at);
    if !inner.code().contains("backward(") {
        return Some(false);
    }
    // It may decide by itself.
    let decides = view.rules.wrappers().names_no_sync(inner.code());
    (!decides || silent_inside(view, step).is_some()).then_some(true)
}

/// Where a function that a step calls leaves out the sum of all its backward passes, whatever happens.
fn silent_inside(view: &View<'_>, step: usize) -> Option<Place> {
    let (callee, _) = call(view, view.value(step)?)?;
    let inner = near::shared(view, function(view, &callee)?);
    let sums = !inner.collectives().is_empty();
    if inner.at == view.at || sums || !view.rules.wrappers().names_no_sync(inner.code()) {
        return None;
    }
    let mut said = None;
    for i in 0..inner.steps.len() {
        let calls = matches!(inner.value(i), Some(Rvalue::Call { .. } | Rvalue::CallMethod { .. }));
        let passes = calls && is_backward(&inner, i);
        if calls && !passes && runs_project_backward(&inner, i) {
            return None;
        }
        if passes {
            let (silent, at) = silence(&inner, i)?;
            if silent != always() {
                return None;
            }
            said = said.or(at);
        }
    }
    said
}

/// Whether a step calls a function of the project in which something runs a backward pass.
fn runs_project_backward(view: &View<'_>, step: usize) -> bool {
    let callee = view.value(step).and_then(|value| call(view, value)).map(|(callee, _)| callee);
    let at = callee.and_then(|callee| function(view, &callee));
    at.is_some_and(|at| near::shared(view, at).code().contains("backward("))
}

/// The condition under which a backward pass sums nothing, and what says so.
fn silence(view: &View<'_>, step: usize) -> Option<(Expr, Option<Place>)> {
    let mut all = Vec::new();
    let mut said = None;
    for context in view.steps[step].contexts.iter() {
        let silent = leaves_out(view, context, step, MOST_DEPTH)?;
        if silent != truth(false) {
            said = Some(decided_at(view, context, step));
            all.push(silent);
        }
    }
    for (entered, silent) in entered(view, step)? {
        said = Some(named(view, step).unwrap_or(view.place(view.steps[entered].id)));
        all.push(silent);
    }
    let loops = &view.steps[step].loops;
    let set = switched(view)?;
    match set.as_slice() {
        [] => {}
        // Switched off for good, before the loop.
        [(at, Operand::Const(Const::Bool(false)))]
            if *at < step
                && loops.starts_with(&view.steps[*at].loops)
                && guards(view, *at, step).is_empty()
                && is_alone(view, *at) =>
        {
            said = Some(view.place(view.steps[*at].id));
            all.push(always());
        }
        [(at, value)] if *at < step && view.steps[*at].loops == *loops => {
            let off = Expr::Unary(UnOp::Not, Box::new(view.expr(value)));
            said = Some(view.place(view.steps[*at].id));
            all.push(both(guards(view, *at, step).into_iter().chain([off]).collect()));
        }
        _ => return None,
    }
    let whole = match all.len() {
        0 => truth(false),
        _ => Expr::Bool { and: false, of: all },
    };
    Some((whole, said))
}

/// Whether nothing else in the file says so or otherwise: what is called on the way may.
fn is_alone(view: &View<'_>, at: usize) -> bool {
    let name = match (view.steps[at].stmt, view.value(at)) {
        (Stmt::SetAttr { name, .. }, _) | (_, Some(Rvalue::CallMethod { name, .. })) => name,
        _ => return false,
    };
    view.file().matches(name.as_str()).count() == 1
}

/// The steps that say whether sums are left out from then on, and what they are told; `None`: one says it of a part of the model.
pub(super) fn switched<'a>(view: &View<'a>) -> Option<Vec<(usize, &'a Operand)>> {
    let mut out = Vec::new();
    for (i, step) in view.steps.iter().enumerate() {
        match (step.stmt, view.value(i)) {
            (Stmt::SetAttr { name, value, .. }, _) if view.rules.wrappers().is_sync_flag(name) => out.push((i, value)),
            (_, Some(Rvalue::CallMethod { name, args, .. })) if view.rules.wrappers().is_sync_method(name) => {
                let [only] = &args[..] else { return None };
                out.push((i, &only.value));
            }
            _ => {}
        }
    }
    Some(out)
}

/// What leaves out the sum at a step because a stack of contexts has entered it, and where; `None`: the stack may have left it again.
fn entered(view: &View<'_>, step: usize) -> Option<Vec<(usize, Expr)>> {
    let mut out = Vec::new();
    for i in 0..step {
        let Some(Rvalue::CallMethod { base, name, args }) = view.value(i) else { continue };
        let ([context], "enter_context") = (&args[..], name.as_str()) else { continue };
        if context_expr(view, &view.expr(&context.value), i, MOST_DEPTH) == Some(truth(false)) {
            continue;
        }
        let stack = near::local(base)?;
        let only_enters = view
            .readers(stack)
            .iter()
            .all(|at| matches!(view.value(*at), Some(Rvalue::CallMethod { name, .. }) if name == "enter_context"));
        let covers = view.steps[i].contexts.iter().all(|c| view.steps[step].contexts.contains(c));
        let under = view.steps[step].loops.starts_with(&view.steps[i].loops);
        if !only_enters || !covers || !under || view.steps[i].contexts.is_empty() {
            return None;
        }
        let silent = leaves_out(view, &context.value, i, MOST_DEPTH)?;
        let when = guards(view, i, step);
        out.push((i, if when.is_empty() { silent } else { both(when.into_iter().chain([silent]).collect()) }));
    }
    Some(out)
}

fn both(of: Vec<Expr>) -> Expr {
    Expr::Bool { and: true, of }
}

/// Where the method that leaves out the sum is named last before a step.
fn named(view: &View<'_>, step: usize) -> Option<Place> {
    (0..step).rev().find_map(|i| match view.value(i)? {
        Rvalue::Attr { name, .. } | Rvalue::CallMethod { name, .. } if view.rules.wrappers().is_no_sync(name) => {
            Some(view.place(view.steps[i].id))
        }
        _ => None,
    })
}

/// Where a context is entered.
fn context_place(view: &View<'_>, context: &Operand, step: usize) -> Place {
    let with = view.steps[..step]
        .iter()
        .rev()
        .find(|s| matches!(s.stmt, Stmt::With { context: other, .. } if other == context));
    with.map_or(view.place(view.steps[step].id), |s| view.part(s.id, 0))
}

/// Where it is decided that a context leaves out the sum: the method, or the choice between it and nothing where the method is named elsewhere.
fn decided_at(view: &View<'_>, context: &Operand, step: usize) -> Place {
    let entered = context_place(view, context, step);
    let chosen = matches!(view.expr(context), Expr::Choice(..));
    let inside =
        |p: &Place| p.file == entered.file && entered.span.start <= p.span.start && p.span.end <= entered.span.end;
    named(view, step).filter(|place| !chosen || inside(place)).unwrap_or(entered)
}

/// The conditions of a step that do not hold anyway at a later one.
fn guards(view: &View<'_>, step: usize, later: usize) -> Vec<Expr> {
    let there = |g: &Guard<'_>| view.steps[later].guards.iter().any(|h| h.at == g.at && h.holds == g.holds);
    view.steps[step].guards.iter().filter(|g| !there(g)).map(|g| condition(view, g)).collect()
}

fn condition(view: &View<'_>, guard: &Guard<'_>) -> Expr {
    match guard.holds {
        true => view.expr(guard.test),
        false => Expr::Unary(UnOp::Not, Box::new(view.expr(guard.test))),
    }
}

/// The condition under which a context leaves out the sum.
fn leaves_out(view: &View<'_>, context: &Operand, at: usize, depth: usize) -> Option<Expr> {
    let expr = view.expr(context);
    context_expr(view, &expr, at, depth)
}

fn context_expr(view: &View<'_>, expr: &Expr, at: usize, depth: usize) -> Option<Expr> {
    let depth = depth.checked_sub(1)?;
    match expr {
        Expr::Attr(_, name) if view.rules.wrappers().is_no_sync(name) => Some(truth(true)),
        Expr::Attr(_, name) => (!name.to_lowercase().contains("sync")).then(|| truth(false)),
        Expr::Path(path) => (!path.to_lowercase().contains("sync")).then(|| truth(false)),
        Expr::Call { callee, args, .. } => match &**callee {
            Expr::Attr(_, name) if view.rules.wrappers().is_no_sync(name) => match args.as_slice() {
                // Also one of a trainer, which is given the model.
                [] | [(ArgKind::Positional, _)] => Some(truth(true)),
                _ => None,
            },
            callee => context_expr(view, callee, at, depth),
        },
        Expr::Choice(test, a, b) => {
            let (a, b) = (context_expr(view, a, at, depth)?, context_expr(view, b, at, depth)?);
            Some(Expr::Choice(test.clone(), Box::new(a), Box::new(b)))
        }
        Expr::Local(local) => variable(view, *local, at, depth),
        Expr::Const(_) => Some(truth(false)),
        _ => None,
    }
}

/// A variable that holds a context: what its definitions before a step give it, each under its conditions.
fn variable(view: &View<'_>, local: LocalId, at: usize, depth: usize) -> Option<Expr> {
    if view.is_param(local) {
        return None;
    }
    let mut current: Option<Expr> = None;
    for def in view.defs(local).iter().filter(|d| **d < at) {
        let value = match view.bound(*def, local) {
            Expr::Choice(test, a, b) => {
                let branch = |e: &Expr| match (e, &current) {
                    (Expr::Local(same), Some(known)) if *same == local => Some(known.clone()),
                    _ => context_expr(view, e, *def, depth),
                };
                Expr::Choice(test, Box::new(branch(&a)?), Box::new(branch(&b)?))
            }
            other => context_expr(view, &other, *def, depth)?,
        };
        let when = guards(view, *def, at);
        current = Some(match (when.is_empty(), current) {
            (true, _) => value,
            // What an earlier branch left.
            (false, before) => {
                Expr::Choice(Box::new(both(when)), Box::new(value), Box::new(before.unwrap_or(truth(false))))
            }
        });
    }
    current
}

/// Whether something between a backward pass and a step may sum gradients.
fn may_sum(view: &View<'_>, backward: usize, step: usize) -> bool {
    (backward + 1..step).any(|i| {
        // What is put in the place of a gradient may be the sum.
        if let Stmt::SetAttr { name, value, .. } = view.steps[i].stmt {
            return name == "grad" && !view.expr(value).is_none();
        }
        let Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) = view.value(i) else { return false };
        if let Some(call) = view.collective(value) {
            let of_gradient = call.input.is_none_or(|o| {
                let gradient = |e: &Expr| matches!(e, Expr::Attr(_, name) if name.contains("grad"));
                view.through(o).any(&mut |e| gradient(e) || matches!(e, Expr::Element(_))) || is_of_gradients(view, o)
            });
            let shown = call.input.and_then(near::local).is_some_and(|l| {
                let name = view.local_name(l).to_lowercase();
                near::has_any(&name, &["loss", "metric"]) && !view.is_param(l)
            });
            return of_gradient || !shown && view.steps[i].loops.len() > view.steps[step].loops.len();
        }
        let Some((callee, args)) = call(view, value) else { return true };
        let name = callee.last_name().unwrap_or_default().to_lowercase();
        if near::has_any(&name, SUMMING) || near::has_any(&name, ENDING) {
            return name != "synchronize";
        }
        if let Some(at) = function(view, &callee) {
            return near::has_any(near::shared(view, at).code(), SUMMING);
        }
        let model = |e: &Expr| super::wrapped::says(view, e, &["model", "param"]);
        match &callee {
            Expr::Attr(base, _) if model(base) => !HARMLESS.contains(&name.as_str()),
            Expr::Attr(base, _) if matches!(&**base, Expr::Local(l) if view.local_name(*l) == "self") => true,
            Expr::Attr(base, _) => !HARMLESS.contains(&name.as_str()) && has_parameters(view, base),
            Expr::Path(path) => !path.starts_with("torch.") && args.iter().any(|(_, e)| model(e)) && path.contains('.'),
            // What a variable holds, or another function has made, is not seen.
            Expr::Local(local) => match near::function(view, &Operand::Local(*local)) {
                Some(at) => near::has_any(near::shared(view, at).code(), SUMMING),
                None => !view.local_name(*local).contains("log"),
            },
            Expr::Call { .. } => true,
            _ => false,
        }
    })
}

/// Whether a value comes from something that speaks of gradients: all of them one behind the other.
fn is_of_gradients(view: &View<'_>, value: &Operand) -> bool {
    // Not the rounds of accumulation.
    let speaks = |step: &usize| {
        let text = view.text(view.place(view.steps[*step].id)).to_lowercase();
        text.replace("grad_acc", "").replace("gradient_acc", "").contains("grad")
    };
    near::roots(view, value).into_iter().any(|local| view.defs(local).iter().any(speaks))
}

/// Whether a variable or an attribute holds an object that was made with the parameters of a model, and is no optimizer.
fn has_parameters(view: &View<'_>, base: &Expr) -> bool {
    match base {
        Expr::Local(local) => is_made_with(view, view.local_name(*local), &view.through(&Operand::Local(*local))),
        other => {
            let Some(name) = near::own_attribute(view, other) else { return false };
            let Some(class) = near::class_of(view) else { return false };
            let set = near::assigned(view, class, name);
            set.iter().any(|(method, _, value)| is_made_with(method, name, &method.through(value)))
        }
    }
}

fn is_made_with(view: &View<'_>, name: &str, made: &Expr) -> bool {
    let Expr::Call { callee, args, .. } = made else { return false };
    let torch = callee.path().is_some_and(|path| path.starts_with("torch."));
    if torch || near::has_any(&name.to_lowercase(), &["opt", "sched", "scaler", "loss", "ema"]) {
        return false;
    }
    let is_class = callee.last_name().is_some_and(|last| last.starts_with(char::is_uppercase));
    let parameters = |e: &Expr| ["parameters", "named_parameters"].iter().any(|name| e.call_of(name).is_some());
    args.iter().any(|(_, e)| {
        let whole = matches!(e, Expr::Local(_) | Expr::Attr(..)) && super::wrapped::says(view, e, OF_MODEL);
        e.any(&mut |inner| parameters(inner)) || is_class && whole
    })
}

/// Whether ranks are meant to step apart: something in the file communicates parameters, or is called so and is given the model.
fn averages(view: &View<'_>) -> bool {
    let together = (0..view.steps.len()).any(|i| {
        let Some((callee, args)) = view.value(i).and_then(|value| call(view, value)) else { return false };
        let name = near::name_of_call(view, i).unwrap_or_default();
        let given = || args.iter().any(|(_, e)| super::wrapped::says(view, e, OF_MODEL));
        let named = near::has_any(&name, TOGETHER) || name.starts_with("sync_");
        named && !callee.path().is_some_and(|path| path.starts_with("torch.")) && given()
    });
    let of_parameters = |other: &View<'_>, step: usize, input: Option<&Operand>| {
        let over = other.steps[step].loops.iter().any(|at| match other.steps[*at].stmt {
            Stmt::For { iter, .. } => {
                super::wrapped::says(other, &other.through(iter), &["param", "grad", "state_dict"])
            }
            _ => false,
        });
        over || input.is_some_and(|o| super::wrapped::says(other, &other.through(o), &["param"]))
    };
    together
        || near::functions(view, view.at.module).into_iter().any(|at| {
            let other = near::shared(view, at);
            let mut all = other.collectives().iter();
            // Copies are made equal before they are trained, too.
            all.any(|(step, call)| call.rule.op != "broadcast" && of_parameters(&other, *step, call.input))
        })
}

/// Whether whenever the step is reached, or on one way to it, the last backward pass before it has summed nothing.
fn is_silent(view: &View<'_>, step: usize, backwards: &[Backward]) -> bool {
    let conditions: Vec<Expr> = view.steps[step].guards.iter().map(|g| told(view, condition(view, g))).collect();
    let either = conditions.iter().enumerate().find_map(|(at, c)| match c {
        Expr::Bool { and: false, of } => Some((at, of.clone())),
        _ => None,
    });
    let Some((at, of)) = either else { return way_is_silent(view, step, &conditions, backwards).unwrap_or(false) };
    // One way to come here is enough.
    of.iter().enumerate().any(|(k, one)| {
        let mut way = conditions.clone();
        way[at] = one.clone();
        let others = of.iter().enumerate().filter(|(other, _)| *other != k).map(|(_, other)| other.clone()).collect();
        let mut reached = conditions.clone();
        reached[at] = Expr::Bool { and: false, of: others };
        way_is_silent(view, step, &way, backwards).unwrap_or(false)
            || !evens_out(view) && is_left_out(view, step, (one, reached), backwards).unwrap_or(false)
    })
}

/// Whether a file makes sure that the rounds fill whole windows, throws those away that do not, or runs on one rank: it pads, rounds up, refuses.
fn evens_out(view: &View<'_>) -> bool {
    let refuses = |line: &str| line.contains('%') || line.contains("len(");
    let leaves = |s: &super::view::Step<'_>| matches!(s.stmt, Stmt::Continue) && !s.guards.is_empty();
    let says = || {
        let file = near::bare(view.file());
        near::has_any(&file, &["pad", "-(-", LONE_JOB]) || near::refusals(&file).any(refuses)
    };
    view.steps.iter().any(leaves) || view.answer(Question::Evens(view.at.module), says)
}

/// What a condition that a variable holds says, if there are several ways to meet it.
fn told(view: &View<'_>, condition: Expr) -> Expr {
    let Expr::Local(local) = condition else { return condition };
    match view.defs(local) {
        [one] if !view.is_param(local) => match view.bound(*one, local) {
            several @ Expr::Bool { and: false, .. } => several,
            _ => condition,
        },
        _ => condition,
    }
}

/// Whether the only backward pass of a round sums where one way to the step is met and nowhere else, and another way leads there without it:
/// `sync = (i + 1) % k == 0`, and a step where that holds `or i + 1 == n`. Nobody would write the other way if it never led there alone.
fn is_left_out(view: &View<'_>, step: usize, (one, others): (&Expr, Vec<Expr>), of: &[Backward]) -> Option<bool> {
    let [backward] = of else { return None };
    let loops = &view.steps[backward.step].loops;
    if loops.len() != view.steps[step].loops.len() || !guards(view, backward.step, step).is_empty() {
        return None;
    }
    let mut trial = Trial::default();
    let summed = trial.read(view, one, loops)?;
    let silent = trial.read(view, &backward.silent, loops)?;
    let others = trial.read(view, &both(others), loops)?;
    trial.index.as_ref()?;
    let all = |values: &mut Values<'_>, holds: &dyn Fn(&Values<'_>) -> bool| {
        Values::indices().all(|index| holds(values.at(index)))
    };
    let opposite = |v: &Values<'_>| v.truth(&silent).is_some() && v.truth(&silent) == v.truth(&summed).map(|met| !met);
    let needless = |v: &Values<'_>| v.truth(&others) == Some(false) || v.truth(&summed) == Some(true);
    Some(trial.some_flags(&|v| all(v, &opposite)) && !trial.some_flags(&|v| all(v, &needless)))
}

fn way_is_silent(view: &View<'_>, step: usize, way: &[Expr], backwards: &[Backward]) -> Option<bool> {
    let loops = &view.steps[backwards.last()?.step].loops;
    let inner = loops.len() > view.steps[step].loops.len();
    // What a loop around both gives is the same in all rounds of the inner one.
    let loops = if inner { &loops[view.steps[step].loops.len()..] } else { &loops[..] };
    let mut trial = Trial::default();
    // Where a step in the same loop is silent without the end of the loop it is with it.
    let asked = way.iter().filter(|c| inner || !Trial::ends_early(view, c));
    let told = asked.filter(|c| !(inner && is_apart(view, c, step, backwards))).cloned().collect();
    let reached = trial.read(view, &both(told), loops)?;
    if inner && trial.index.as_ref().is_some_and(|i| loops.last() == Some(&i.round)) {
        return None;
    }
    let mut passes = Vec::new();
    for b in backwards {
        let under = guards(view, b.step, step);
        passes.push((trial.read(view, &both(under), loops)?, trial.read(view, &b.silent, loops)?));
    }
    let end = match trial.index.clone() {
        Some(known) if inner => {
            if loops.last() != Some(&known.round) {
                return None;
            }
            Some(trial.read_number(view, &known.end?, loops)?)
        }
        // A condition of flags alone may hold in no configuration in which the step is reached.
        None => {
            let always = passes.iter().all(|(under, silent)| *under == both(Vec::new()) && *silent == always());
            return Some(always);
        }
        Some(_) => None,
    };
    let unsummed = |values: &Values<'_>| {
        let last = passes.iter().rev().find(|(under, _)| values.truth(under) == Some(true));
        last.is_some_and(|(_, silent)| values.truth(silent) == Some(true))
    };
    Some(trial.some_flags(&|values| match &end {
        Some(end) => {
            let Some(end) = values.number(end) else { return false };
            let values = values.at(end - 1);
            values.truth(&reached) == Some(true) && unsummed(values)
        }
        None => {
            let mut some = false;
            for i in Values::indices() {
                let values = values.at(i);
                if values.truth(&reached) == Some(true) {
                    if !unsummed(values) {
                        return false;
                    }
                    some = true;
                }
            }
            some
        }
    }))
}

/// Whether a condition of a round holds for its backward passes as for its step, cannot be tried with them, and is about nothing that they
/// are told by: what stops training, or a count of rounds.
fn is_apart(view: &View<'_>, said: &Expr, step: usize, backwards: &[Backward]) -> bool {
    let loops = backwards.last().map_or(&[][..], |b| &view.steps[b.step].loops);
    let shared = |b: &Backward| view.steps[b.step].guards.iter().any(|g| condition(view, g) == *said);
    let symbol = |e: &Expr| matches!(e, Expr::Local(_) | Expr::Path(_) | Expr::Attr(..));
    let common = |b: &Backward| {
        let under = guards(view, b.step, step).into_iter().chain([b.silent.clone()]);
        both(under.collect()).any(&mut |e| symbol(e) && said.any(&mut |other| other == e))
    };
    let tried = || {
        let mut trial = Trial::default();
        trial.read(view, said, loops).is_some() && trial.index.is_none_or(|i| loops.last() == Some(&i.round))
    };
    backwards.iter().all(|b| shared(b) && !common(b)) && !tried()
}

/// What a context that is entered whatever happens gives.
fn always() -> Expr {
    Expr::Bool { and: false, of: vec![truth(true)] }
}

/// A flag of a wrapper that is set between the forward pass that reads it and the backward pass of its result.
pub fn late_flag(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::SetAttr { base, name, value } = step.stmt else { continue };
        if !view.rules.wrappers().is_sync_flag(name) || matches!(value, Operand::Const(Const::Bool(true))) {
            continue;
        }
        let model = view.expr(base);
        let same_round = |j: usize| view.steps[j].loops == step.loops;
        let Some(forward) = (0..i).rev().find(|j| same_round(*j) && is_forward(view, *j, &model)) else { continue };
        let Some(backward) = (i + 1..view.steps.len()).find(|j| same_round(*j) && is_backward(view, *j)) else {
            continue;
        };
        let set = |j: usize| matches!(view.steps[j].stmt, Stmt::SetAttr { name: other, .. } if other == name);
        // Another one in the loop: this one may be for the next round.
        if (0..view.steps.len()).any(|j| j != i && set(j)) || (i..backward).any(|j| is_forward(view, j, &model)) {
            continue;
        }
        let wrapped = wrappers(view, &model, i);
        if !wrapped.is_empty() && !wrapped.iter().any(|w| w.rule.sync_flag.as_ref() == Some(name)) {
            continue;
        }
        let Some(Rvalue::CallMethod { base, .. }) = view.value(backward) else { continue };
        let results = view.binds(forward);
        if !comes_from(view, base, &results) {
            continue;
        }
        let places = (view.place(view.steps[forward].id), view.place(view.steps[backward].id));
        let mistake = Training::LateFlag { flag: Name::clone(name), forward: places.0, backward: places.1 };
        out.push((view.place(step.id), Practice::Training(mistake)));
    }
}

/// A call of a model.
fn is_forward(view: &View<'_>, step: usize, model: &Expr) -> bool {
    match view.value(step) {
        Some(Rvalue::Call { callee, .. }) => &view.expr(callee) == model,
        Some(Rvalue::CallMethod { base, name, .. }) => &Expr::Attr(Box::new(view.expr(base)), name.clone()) == model,
        _ => false,
    }
}

fn is_backward(view: &View<'_>, step: usize) -> bool {
    matches!(view.value(step), Some(Rvalue::CallMethod { name, .. }) if name == "backward")
}

/// Whether a value comes from one of these.
fn comes_from(view: &View<'_>, value: &Operand, of: &[LocalId]) -> bool {
    let mut seen = Vec::new();
    let mut queue: Vec<LocalId> = near::local(value).into_iter().collect();
    while let Some(local) = queue.pop() {
        if of.contains(&local) {
            return true;
        }
        if !seen.contains(&local) {
            seen.push(local);
            for step in view.defs(local) {
                queue.extend(view.reads(*step).into_iter().filter_map(near::local));
            }
        }
    }
    false
}
