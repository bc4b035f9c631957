//! Gradients that are summed although that is done already, or must not be. In: a function, the reducers of the project. Out: a second
//! sum before the step; a sum after a wrapper that averages; a sum over the ranks that have other parts of the parameter. Never: a sum
//! that something divides again, or that a condition may leave out. Source: DESIGN.md section 7. Next: `reducers.rs`.

use super::expr::Expr;
use super::found::{Practice, Scales};
use super::marking::{mark_set, mark_value};
use super::reducers::{Reducer, Test};
use super::view::View;
use super::{Class, Found, Lint, data_sum, near, partition, whose};
use crate::ir::{Arg, ArgKind, FuncKind, Operand, Rvalue, Stmt};
use crate::project::{FuncRef, Resolved};
use crate::source::{Name, Place};
use crate::types::AxisType;

/// Words of code that makes up for a second sum, or makes it no sum.
const UNDONE: &[&str] = &["/", "div", "avg", "mul_", "*=", "max", "no_sync", "average"];

/// Words of code in which a wrapper may reduce no gradient, or in another way.
const UNWRAPS: &[&str] = &["hook", "to_ignore", "no_sync"];

/// Words that say of gradients that they are no plain sum.
const MEANS: &[&str] = &["avg", "average", "max", "mean"];
/// Quotients, and products that may be some.
const QUOTIENTS: &[&str] = &["/", "div", "mul_"];
/// Words that have to do with rounds of accumulation, or with gradients as a whole.
const OF_ROUNDS: &[&str] = &["grad_accum", "gradient_accum", "accum", "no_grad", "zero_grad", "clip_grad", "grad_norm"];

/// A second sum of the same gradients between the backward pass and the step.
pub fn twice<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    if !matches!(view.func.kind, FuncKind::Function | FuncKind::Module) {
        return;
    }
    let Some((backward, last)) = data_sum::region(view) else { return };
    let mut seen: Vec<(&Reducer, Place, usize)> = Vec::new();
    for step in backward + 1..last {
        if !view.steps[step].guards.is_empty() {
            continue;
        }
        let here = view.place(view.steps[step].id);
        let Some(reached) = data_sum::reached(lint, view, step..step + 1) else { return };
        for reducer in lint.reducers().all.iter().filter(|r| runs(view, r, &reached, here)) {
            if !plain(lint, reducer) {
                continue;
            }
            let before = seen.iter().find(|(r, first, at)| {
                let alike = r.axes == reducer.axes && r.when == reducer.when;
                alike && *first != here && same_gradients(lint, view, (r, *at), (reducer, step))
            });
            if let Some((_, first, _)) = before {
                let axes = reducer.axes.clone().unwrap_or_default();
                out.push((here, Practice::Scales(Scales::SummedAgain { axes, first: *first, sum: reducer.place })));
                return;
            }
            seen.push((reducer, here, step));
        }
    }
}

/// Whether two sums have gradients of the same parameters, as written.
fn same_gradients(lint: &Lint<'_>, view: &View<'_>, a: (&Reducer, usize), b: (&Reducer, usize)) -> bool {
    match (summed(lint, view, a.0, a.1, 0), summed(lint, view, b.0, b.1, 0)) {
        (Some(a), Some(b)) => whose::has(&a, &b) || whose::has(&b, &a),
        // What is called again with the same sums the same again.
        _ => match (view.value(a.1), view.value(b.1)) {
            (Some(Rvalue::Call { callee: f, args: x }), Some(Rvalue::Call { callee: g, args: y })) => {
                let exprs = |args: &[Arg]| args.iter().map(|a| view.expr(&a.value)).collect::<Vec<_>>();
                view.expr(f) == view.expr(g) && exprs(x) == exprs(y)
            }
            _ => false,
        },
    }
}

/// How far calls are followed to a sum.
const MOST_CALLS: usize = 4;

/// Whose gradients a reducer sums that a step is, or that what it calls runs.
fn summed(lint: &Lint<'_>, view: &View<'_>, reducer: &Reducer, step: usize, depth: usize) -> Option<Vec<Name>> {
    let inside = |view: &View<'_>| {
        let sum = (0..view.steps.len()).find(|s| view.place(view.steps[*s].id) == reducer.place)?;
        let head = super::reducers::parameter_loop(view, sum)?;
        let Stmt::For { iter, .. } = view.steps[head].stmt else { return None };
        whose::of_parameters(view, iter)
    };
    if reducer.func == view.at {
        return inside(view);
    }
    let call = view.value(step)?;
    let Resolved::Func(at) = view.project.path(&view.callee(call)?) else { return None };
    let inner = lint.view(at);
    let way = match at == reducer.func {
        true => inside(&inner)?,
        false if depth == MOST_CALLS => return None,
        false => (0..inner.steps.len()).find_map(|s| summed(lint, &inner, reducer, s, depth + 1))?,
    };
    whose::given(view, call, &inner, way)
}

/// Whether a step runs a reducer: it is one, or what it calls holds it.
fn runs(view: &View<'_>, reducer: &Reducer, reached: &[FuncRef], here: Place) -> bool {
    if reducer.func == view.at { reducer.place == here } else { reached.contains(&reducer.func) }
}

/// Whether a reducer is a sum that nothing beside it makes up for, under no condition.
pub fn plain(lint: &Lint<'_>, reducer: &Reducer) -> bool {
    let view = lint.view(reducer.func);
    let known = reducer.axes.is_some() && reducer.when.iter().flatten().all(|t| *t != Test::Other);
    known && reducer.through.is_none() && !UNDONE.iter().any(|w| view.code().contains(w))
}

/// A loop that sums the gradients of a model that a wrapper averages already.
pub fn wrapped<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    let mut own = lint.reducers().all.iter().filter(|r| r.func == view.at && r.when.is_empty()).peekable();
    if own.peek().is_none() || UNWRAPS.iter().any(|w| view.code().contains(w)) {
        return;
    }
    for reducer in own {
        let step = (0..view.steps.len()).find(|s| view.place(view.steps[*s].id) == reducer.place);
        let Some(head) = step.and_then(|s| super::reducers::parameter_loop(view, s)) else { continue };
        let Stmt::For { iter, .. } = view.steps[head].stmt else { continue };
        let Some(model) = parameters_of(&view.through(iter)) else { continue };
        let Some(made) = view.defs(model).last().filter(|d| wraps(view, **d)) else { continue };
        let sum = step.filter(|sum| same_group(view, *made, *sum) && !is_made_up_for(view, *sum));
        if sum.is_none() || is_given_away(view, model, *made) {
            continue;
        }
        let first = view.place(view.steps[*made].id);
        let axes = reducer.axes.clone().unwrap_or_default();
        let mistake = Scales::SummedAgain { axes, first, sum: reducer.place };
        out.push((reducer.place, Practice::Scales(mistake)));
    }
}

/// Whether a sum is a mean, or gradients or a loss are multiplied or divided by what may be the number of ranks. Rounds of accumulation
/// are not.
fn is_made_up_for(view: &View<'_>, sum: usize) -> bool {
    let said = view.text(view.place(view.steps[sum].id)).to_lowercase();
    let may_scale = |line: &str| {
        let outside_of_strings: String = line.split(['"', '\'']).step_by(2).collect();
        let plain = outside_of_strings.replace("//", "").replace("**", "");
        let rest = OF_ROUNDS.iter().fold(plain.clone(), |rest, word| rest.replace(word, ""));
        let factor = plain.rsplit(['/', '*']).next().unwrap_or_default().trim_start();
        let by_number = factor.starts_with(|c: char| c.is_ascii_digit());
        let by_rounds = near::has_any(&plain, &["accum", "step", "micro", "len("]);
        let scales = near::has_any(&plain, QUOTIENTS) || plain.contains('*');
        // Told by the round, it reduces in the last one.
        let told = line.contains("grad_sync") && !line.contains("==");
        let of_loss = near::has_any(&rest, &["loss", "backward"]);
        told || scales && (rest.contains("grad") || of_loss && !by_rounds && !by_number)
    };
    near::has_any(&said, MEANS) || view.code().lines().any(may_scale)
}

/// The variable of `model.parameters()` or `model.named_parameters()`.
fn parameters_of(iter: &Expr) -> Option<crate::ir::LocalId> {
    let Expr::Call { callee, .. } = iter else { return None };
    match &**callee {
        Expr::Attr(base, name) if name == "parameters" || name == "named_parameters" => match **base {
            Expr::Local(local) => Some(local),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a sum runs over the group of a wrapper, as written; without one that is all ranks, and all sums are of equals.
fn same_group(view: &View<'_>, made: usize, sum: usize) -> bool {
    let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(made) else { return false };
    if args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar)) {
        return false;
    }
    let own = view.argument(args, 5, "process_group").map(|o| near::deep(view, &view.expr(o)));
    let over = view.value(sum).and_then(|v| view.collective(v)).and_then(|c| c.group);
    own.is_none_or(|own| own.is_none() || over.is_some_and(|o| near::deep(view, &view.expr(o)) == own))
}

/// Whether a function that is not known gets a wrapper before the loop: it may turn it off.
fn is_given_away(view: &View<'_>, model: crate::ir::LocalId, made: usize) -> bool {
    (made + 1..view.steps.len()).filter(|s| view.steps[*s].loops.is_empty()).any(|s| match view.value(s) {
        Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) => {
            let given = args.iter().any(|a| a.value == Operand::Local(model));
            given && !view.callee(value).is_some_and(|path| path.starts_with("torch.") || !path.contains('.'))
        }
        _ => false,
    })
}

fn wraps(view: &View<'_>, step: usize) -> bool {
    let value = view.value(step);
    value.and_then(|v| view.callee(v)).is_some_and(|p| p == "torch.nn.parallel.DistributedDataParallel")
}

/// A sum over the ranks of an axis that takes parameters of which each rank has its own part.
pub fn parts<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    let marking = &lint.settings.marking;
    for reducer in lint.reducers().all.iter().filter(|r| r.func == view.at) {
        let Some(axes) = reducer.axes.as_ref().filter(|_| takes_parts(lint, reducer)) else { continue };
        let split = lint.rules.entries().any(|(_, e)| match e {
            crate::rules::Entry::Mark(rule) => rule.set == AxisType::V && rule.axes.iter().all(|a| axes.contains(a)),
            _ => false,
        });
        let marked = lint.project.modules.ids().find_map(|m| marking.partitions_in(m));
        if let Some(part) = marked.filter(|_| split && axes.len() == 1) {
            let mistake = Scales::PartSummed { axes: axes.clone(), part, sum: None };
            out.push((reducer.place, Practice::Scales(mistake)));
        }
    }
}

/// The gradients of a whole model are summed or averaged over an axis by a loop over all of its
/// parameters, in a file whose layers are split over that axis.
pub fn parts_of_layers<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    let mut sums: Vec<(Place, Vec<Name>)> = Vec::new();
    for reducer in lint.reducers().all.iter().filter(|r| r.func == view.at && r.when.is_empty()) {
        let step = (0..view.steps.len()).find(|s| view.place(view.steps[*s].id) == reducer.place);
        let head = step.and_then(|s| super::reducers::parameter_loop(view, s)).map(|head| view.steps[head].stmt);
        let whole = matches!(head, Some(Stmt::For { iter, .. }) if parameters_of(&view.through(iter)).is_some());
        if let Some(axes) = reducer.axes.clone().filter(|_| whole && reducer.through.is_none()) {
            sums.push((reducer.place, axes));
        }
    }
    sums.into_iter().for_each(|(place, axes)| over_layers(view, place, axes, out));
}

/// `DistributedDataParallel(model, process_group=get_tensor_model_parallel_group())`
pub fn wrapped_parts(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate().filter(|(i, _)| wraps(view, *i)) {
        let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(i) else { continue };
        let group = view.argument(args, 5, "process_group").map(|o| view.expr(o));
        let axes = group.and_then(|g| super::own_group::axes(view, &g, crate::rules::Gives::Group, 0));
        if let Some(axes) = axes {
            over_layers(view, view.place(step.id), axes, out);
        }
    }
}

fn over_layers(view: &View<'_>, place: Place, axes: Vec<Name>, out: &mut Found) {
    if let Some(part) = layer_over(view, &axes) {
        let mistake = Scales::PartSummed { axes, part, sum: None };
        out.push((place, Practice::Scales(mistake)));
    }
}

/// Where a file makes a layer whose parameters are split over some axes, by its default group.
fn layer_over(view: &View<'_>, axes: &[Name]) -> Option<Place> {
    near::functions(view, view.at.module).into_iter().find_map(|at| {
        let other = near::shared(view, at);
        (0..other.steps.len()).find_map(|step| {
            let value = other.value(step)?;
            let rule = other.rules.layer(&other.callee(value)?)?;
            let plain = rule.group.is_none_or(|group| match value {
                Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => {
                    other.argument(args, group, "").is_none()
                }
                _ => false,
            });
            (plain && rule.default_group == axes && !rule.params.is_empty()).then(|| other.place(other.steps[step].id))
        })
    })
}

/// Whether a reducer takes every parameter, or those without a mark that no part has.
fn takes_parts(lint: &Lint<'_>, reducer: &Reducer) -> bool {
    let whole = |t: &Test| match t {
        Test::NoMark(mark) => lint.rules.mark(mark).is_some_and(|r| r.set == AxisType::R),
        _ => false,
    };
    reducer.through.is_none() && reducer.when.iter().all(|all| !all.is_empty() && all.iter().all(whole))
}

/// A parameter that is marked as a part, and marked for a sum over the same ranks.
pub fn marked_twice<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let Some(init) = class.marking_init(lint) else { return };
    let around = |s: usize| -> Vec<_> { init.steps[s].guards.iter().map(|g| (g.at, g.holds)).collect() };
    let parts: Vec<(Expr, Place, Vec<_>)> =
        (0..init.steps.len()).filter_map(|s| partition::marks_part(init, s).map(|(e, p)| (e, p, around(s)))).collect();
    if parts.is_empty() {
        return;
    }
    for (at, step) in init.steps.iter().enumerate() {
        let Some((target, mark)) = mark_set(init, step.stmt) else { continue };
        let Some(rule) = lint.rules.mark(&mark).filter(|r| r.set == AxisType::R) else { continue };
        let tensor = rule.axes.iter().all(|a| splits(lint, a));
        let own = matches!(&target, Expr::Attr(base, _) if matches!(**base, Expr::Local(_)));
        let value = mark_value(step.stmt).map(|o| init.through(o));
        let off = matches!(value, Some(Expr::Const(crate::ir::Const::Bool(false))));
        let part = parts.iter().find(|(e, _, guards)| *e == target && around(at).starts_with(guards));
        if let Some((_, part, _)) = part.filter(|_| own && tensor && !off) {
            let mistake = Scales::PartSummed { axes: rule.axes.clone(), part: *part, sum: Some(mark) };
            out.push((init.place(step.id), Practice::Scales(mistake)));
        }
    }
}

/// Whether a mark of parts is about an axis.
fn splits(lint: &Lint<'_>, axis: &str) -> bool {
    lint.rules.entries().any(|(_, e)| match e {
        crate::rules::Entry::Mark(rule) => rule.set == AxisType::V && rule.axes.iter().any(|a| a == axis),
        _ => false,
    })
}
