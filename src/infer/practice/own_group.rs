//! The group of all ranks, or of a framework, where an object or a caller gives another one. In: a function. Out: collectives without
//! the group that their class keeps for the same axis; the rank of all ranks where the function is given a mesh dim or a group that it
//! never looks at. Never: a group that the default getter gave. Next: `near.rs`, `rules/models`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::near;
use super::view::{CollectiveCall, Step, View};
use crate::ir::{ArgKind, LocalId, Operand, Rvalue, Stmt};
use crate::rules::{Entry, Gives};
use crate::source::{Name, Place};

/// `scatter_to_sequence_parallel_region(x)` in a class with `self.tp_group`.
pub fn left_out(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        let (i, step) = (*i, &view.steps[*i]);
        if call.rule.group.is_none() || call.rule.default_group.is_empty() || call.rule.op == "layer" {
            continue;
        }
        if call.group.is_some_and(|g| !view.expr(g).is_none()) {
            continue;
        }
        let Some((own, stored)) = given(view, i, &call.rule.default_group) else { continue };
        if compares(view, own.trim_start_matches("self.")) {
            continue;
        }
        let collective = super::lost::last(&call.rule.name);
        out.push((view.place(step.id), Practice::Scales(Scales::GroupLeftOut { collective, own, stored })));
    }
}

/// The group for these axes that the class keeps or the function gets.
fn given(view: &View<'_>, step: usize, axes: &[Name]) -> Option<(Name, Place)> {
    let is_of = |name: &str| {
        let rule = view.rules.group_attribute(name);
        rule.is_some_and(|r| r.gives == Gives::Group && r.axes == axes)
    };
    if let Some(param) = view.func.params.iter().find(|p| is_of(&p.name)) {
        // `if group is None: f(x)` is the default on purpose.
        let asked = view.steps[step].guards.iter().any(|g| view.expr(g.test).mentions(param.local));
        return (!asked).then(|| (param.name.clone(), view.spot(param.span)));
    }
    let class = near::class_of(view)?;
    for method in near::methods(view, class) {
        for at in &method.steps {
            let Stmt::SetAttr { base, name, value } = at.stmt else { continue };
            if !near::is_self(&method, base) || !is_of(name) || !is_explicit(&method, value) {
                continue;
            }
            let tested = view.steps[step]
                .guards
                .iter()
                .any(|g| view.expr(g.test).any(&mut |e| near::own_attribute(view, e).is_some_and(|n| n == name)));
            return (!tested).then(|| (Name::from(format!("self.{name}")), method.place(at.id)));
        }
    }
    None
}

/// Whether a function, or its class, compares a group with another one: it may be the default one on purpose.
fn compares(view: &View<'_>, name: &str) -> bool {
    let compares = |at: &View<'_>| {
        let is = |o: &Operand| match at.expr(o) {
            Expr::Local(local) => at.local_name(local) == name,
            other => other.last_name() == Some(name),
        };
        (0..at.steps.len()).any(|step| match at.value(step) {
            Some(Rvalue::Compare { left, right, .. }) => {
                let none = at.expr(left).is_none() || at.expr(right).is_none();
                !none && (is(left) || is(right))
            }
            _ => false,
        })
    };
    compares(view)
        || near::class_of(view).is_some_and(|class| near::methods(view, class).iter().any(|method| compares(method)))
}

/// Whether a group comes from a parameter, as it is or as a member of it.
fn is_explicit(view: &View<'_>, value: &Operand) -> bool {
    match view.through(value) {
        Expr::Local(l) => view.is_as_given(l),
        Expr::Attr(base, _) => matches!(*base, Expr::Local(l) if view.is_param(l) && view.local_name(l) != "self"),
        _ => false,
    }
}

/// `dist.get_rank()` decides which values a rank keeps, in a function that is given a mesh dim or a group and never reads it.
pub fn global_rank(view: &View<'_>, out: &mut Found) {
    let Some((unread, place)) = unread(view) else { return };
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value } = step.stmt else { continue };
        if asks_world_rank(view, value) && decides(view, *dst, i) && !is_handed_on(view) && !is_one_of_several(view) {
            out.push((
                view.place(step.id),
                Practice::Scales(Scales::GlobalRank { unread: unread.clone(), given: place }),
            ));
        }
    }
}

/// Whether another class of the module has a method of the same name: the parameter may be there for that one.
fn is_one_of_several(view: &View<'_>) -> bool {
    let classes = &view.project.modules[view.at.module].ir.classes;
    let has = |class: &crate::ir::Class| class.methods.iter().any(|(name, _)| *name == view.func.name);
    view.func.class.is_some() && classes.iter().filter(|class| has(class)).count() > 1
}

/// `dist.get_rank()`, of no group.
pub(super) fn asks_world_rank<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return false };
    args.is_empty() && view.callee(value).is_some_and(|path| path == "torch.distributed.get_rank")
}

/// A parameter that says over which ranks, and that the function never reads.
fn unread(view: &View<'_>) -> Option<(Name, Place)> {
    if view.func.class.is_some() && view.func.name.starts_with("__") || view.func.body().len() < 2 {
        return None;
    }
    // Who calls a hook says what it is given.
    let bucket = |p: &crate::ir::Param| p.name == "bucket" || p.hint.as_ref().is_some_and(|h| h.contains("GradBucket"));
    if view.func.params.iter().any(bucket) {
        return None;
    }
    let wanted = ["mesh_dim", "group", "process_group", "pg", "mesh", "device_mesh"];
    let all = wanted.iter().filter_map(|w| {
        view.func
            .params
            .iter()
            .find(|p| p.name.strip_suffix(w).is_some_and(|rest| rest.is_empty() || rest.ends_with('_')))
    });
    let unread: Vec<_> = all.filter(|p| !view.is_read(p.local)).collect();
    // A mesh without its dim, or the dim without its mesh, is read for another purpose.
    let found = unread.first()?;
    Some((found.name.clone(), view.spot(found.span)))
}

/// Whether the file gives a function to something, which then says what the function is given.
fn is_handed_on(view: &View<'_>) -> bool {
    let path = view.project.qualified(view.at);
    near::functions(view, view.at.module).into_iter().any(|at| {
        let other = near::other(view, at);
        (0..other.steps.len()).any(|step| match other.value(step) {
            Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => {
                args.iter().any(|a| near::path(&other, &other.through(&a.value)).as_ref() == Some(&path))
            }
            _ => false,
        })
    })
}

/// Whether a rank decides which tensor is returned or which part of one is taken.
fn decides(view: &View<'_>, rank: LocalId, from: usize) -> bool {
    let mut held = vec![rank];
    for step in from + 1..view.steps.len() {
        let uses = |o: &Operand| near::local(o).is_some_and(|l| held.contains(&l));
        match (view.steps[step].stmt, view.value(step)) {
            (Stmt::Assign { dst, .. }, Some(Rvalue::Use(o) | Rvalue::Unary { operand: o, .. })) if uses(o) => {
                held.push(*dst)
            }
            (Stmt::Assign { dst, .. }, Some(Rvalue::Compare { left, right, .. })) if uses(left) || uses(right) => {
                held.push(*dst);
            }
            (_, Some(Rvalue::Item { index, .. })) if uses(index) => return true,
            (Stmt::If { then, test, .. }, _) if uses(test) => {
                let returns = then.iter().any(|n| match &n.stmt {
                    Stmt::Return { value } => !matches!(value, Operand::Const(_)),
                    _ => false,
                });
                if returns {
                    return true;
                }
            }
            (_, Some(Rvalue::CallMethod { name, args, .. }))
                if name == "narrow" && args.iter().any(|a| uses(&a.value)) =>
            {
                return true;
            }
            _ => {}
        }
    }
    false
}

/// A set of ranks: its axes, by the rules; none: all ranks.
pub(super) type Axes = Vec<Name>;

/// A value is divided by the size of one group and summed over another.
pub fn other_size(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        let (i, step) = (*i, &view.steps[*i]);
        if call.rule.op != "all_reduce" || call.rule.form != crate::rules::Form::InPlace {
            continue;
        }
        let (Some(input), Some(group)) = (call.input, call.group) else { continue };
        let Some(over) = axes(view, &view.expr(group), Gives::Group, 0) else { continue };
        let Some((factor, _)) = scaled(view, i, input) else { continue };
        let Some((by, place)) = size(view, &factor) else { continue };
        let expert = |a: &Axes| a.iter().any(|n| n.starts_with('e'));
        if by == over || by.is_empty() || expert(&by) || expert(&over) || !by.iter().any(|a| over.contains(a)) {
            continue;
        }
        if is_undone(view, &by, &over) {
            continue;
        }
        let reduced = view.place(step.id);
        let mistake = Scales::OtherSize { size: by, group: over, reduced };
        out.push((place.unwrap_or(reduced), Practice::Scales(mistake)));
    }
}

/// Whether the file sums something else over just those ranks that the size leaves out, or asks for their number: a loss is divided by
/// what all of them count, or by how many they are.
fn is_undone(view: &View<'_>, by: &Axes, over: &Axes) -> bool {
    let left: Axes = over.iter().filter(|a| !by.contains(a)).cloned().collect();
    near::functions(view, view.at.module).into_iter().any(|at| {
        let other = near::other(view, at);
        let leaves = |axes: Option<Axes>| axes.is_some_and(|a| !a.is_empty() && a.iter().all(|a| left.contains(a)));
        let sums = other
            .collectives()
            .iter()
            .any(|(_, call)| leaves(call.group.and_then(|g| axes(&other, &other.expr(g), Gives::Group, 0))));
        let counts = |step: &Step<'_>| match step.stmt {
            Stmt::Assign { dst, value: Rvalue::Call { .. } | Rvalue::CallMethod { .. } } => {
                leaves(axes(&other, &other.expr(&Operand::Local(*dst)), Gives::Size, 0))
            }
            _ => false,
        };
        sums || other.steps.iter().any(counts)
    })
}

/// The factor or divisor of a value just before or after a step, in the same block.
fn scaled(view: &View<'_>, at: usize, value: &Operand) -> Option<(Expr, usize)> {
    let target = view.expr(value);
    let text = |e: &Expr| e.last_name().map(str::to_string);
    let same = |o: &Operand| {
        let e = view.expr(o);
        e == target || text(&e).is_some() && text(&e) == text(&target)
    };
    let mut all = Vec::new();
    for other in at.saturating_sub(8)..(at + 8).min(view.steps.len()) {
        if view.steps[other].loops != view.steps[at].loops {
            continue;
        }
        let found = match view.value(other) {
            Some(Rvalue::InPlace { op: crate::ir::BinOp::Mul | crate::ir::BinOp::Div, left, right }) if same(left) => {
                Some(view.expr(right))
            }
            Some(Rvalue::CallMethod { base, name, args }) if matches!(name.as_str(), "mul_" | "div_") && same(base) => {
                args.first().map(|a| view.expr(&a.value))
            }
            _ => None,
        };
        all.extend(found.map(|found| (found, other)));
    }
    // With several, each may be of a part of the ranks.
    if all.len() == 1 { all.pop() } else { None }
}

/// The group whose size a factor is, or its inverse: directly, through a variable or through an attribute of the class.
fn size(view: &View<'_>, factor: &Expr) -> Option<(Axes, Option<Place>)> {
    let factor = near::deep(view, factor);
    if let Some(name) = near::own_attribute(view, &factor) {
        let set = near::assigned(view, near::class_of(view)?, name);
        let [(method, step, value)] = set.as_slice() else { return None };
        let inner = near::deep(method, &method.expr(value));
        let (axes, place) = size_of(method, &inner)?;
        return Some((axes, place.or_else(|| Some(method.place(method.steps[*step].id)))));
    }
    size_of(view, &factor)
}

fn size_of(view: &View<'_>, factor: &Expr) -> Option<(Axes, Option<Place>)> {
    let divisor = match factor {
        Expr::Binary(crate::ir::BinOp::Div, one, by) if matches!(**one, Expr::Const(_)) => near::deep(view, by),
        other => other.clone(),
    };
    let place = match &divisor {
        Expr::Call { step, .. } => view.steps.get(*step).map(|s| view.place(s.id)),
        _ => None,
    };
    Some((axes(view, &divisor, Gives::Size, 0)?, place))
}

/// The axes of a group or a size.
pub(super) fn axes(view: &View<'_>, expr: &Expr, gives: Gives, depth: usize) -> Option<Axes> {
    if depth > 4 {
        return None;
    }
    let expr = near::deep(view, expr);
    match &expr {
        Expr::Call { callee, args, .. } => {
            let path = near::path(view, callee)?;
            if gives == Gives::Size && path == "torch.distributed.get_world_size" {
                let group = args
                    .iter()
                    .find(|(k, _)| *k == ArgKind::Positional || matches!(k, ArgKind::Keyword(n) if n == "group"))?;
                return axes(view, &group.1, Gives::Group, depth + 1);
            }
            let Some(Entry::Group(rule)) = view.rules.get(&path) else { return None };
            if rule.gives != gives {
                return None;
            }
            let mut result = rule.axes.clone();
            for (kind, value) in args {
                match (kind, value) {
                    (ArgKind::Keyword(name), Expr::Const(crate::ir::Const::Bool(on))) => {
                        if let Some((_, with)) = rule.with.iter().find(|(n, _)| n == name).filter(|_| *on) {
                            result = with.clone();
                        }
                    }
                    _ => return None,
                }
            }
            Some(result)
        }
        Expr::Attr(..) => {
            let name = near::own_attribute(view, &expr)?;
            let set = near::assigned(view, near::class_of(view)?, name);
            let [(method, _, value)] = set.as_slice() else { return None };
            axes(method, &method.expr(value), gives, depth + 1)
        }
        _ => None,
    }
}

/// Names of the data-parallel size.
const DATA_SIZES: &[&str] =
    &["dp_degree", "dp_size", "dp_world_size", "data_parallel_size", "data_parallel_degree", "dp"];

/// A count summed over all ranks, then scaled with the number of data-parallel ranks, where ranks of another axis count the same.
pub fn counted_again(view: &View<'_>, out: &mut Found) {
    let sums = |call: &CollectiveCall<'_>| {
        call.rule.op == "all_reduce" && call.group.is_none() && call.rule.default_group.is_empty()
    };
    if !view.collectives().iter().any(|(_, call)| sums(call)) {
        return;
    }
    let code = view.code();
    let other = ["tensor-parallel", "tensor parallel", "tp rank", "model-parallel", "model parallel"];
    let noted =
        near::notes(view).into_iter().find(|n| other.iter().any(|w| n.text.contains(w)) && n.text.contains("same"));
    if noted.is_none() && !["tp_degree", "tp_size", "tp_mesh", "tensor_parallel"].iter().any(|w| code.contains(w)) {
        return;
    }
    let mut world: Vec<(Expr, Place)> = Vec::new();
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value) = view.value(i) else { continue };
        if let Some(call) = view.collective(value)
            && sums(&call)
            && let Some(input) = call.input
        {
            let expr = view.expr(input);
            if is_count(view, &expr) {
                world.push((expr, view.place(step.id)));
            }
        }
        if let Rvalue::Binary { op: crate::ir::BinOp::Div, left, right } = value
            && let Some((_, summed)) = world.iter().find(|(e, _)| *e == view.expr(right))
            && name_of(view, &view.expr(left)).is_some_and(|n| DATA_SIZES.contains(&n.as_str()))
        {
            let mistake = Scales::CountedAgain { summed: *summed, evidence: noted.as_ref().and_then(|n| n.place) };
            out.push((view.place(step.id), Practice::Scales(mistake)));
        }
    }
}

fn name_of(view: &View<'_>, expr: &Expr) -> Option<String> {
    match expr {
        Expr::Local(l) => Some(view.local_name(*l).trim_start_matches('_').to_lowercase()),
        other => other.last_name().map(|n| n.trim_start_matches('_').to_lowercase()),
    }
}

fn is_count(view: &View<'_>, expr: &Expr) -> bool {
    name_of(view, expr).is_some_and(|n| ["token", "count", "num_", "n_"].iter().any(|w| n.contains(w)))
}
