//! Groups of experts that are kept and never used. In: a class. Out: a group for the parameters of experts that nothing reads, in a class
//! that tells these parameters apart and reduces gradients over another group only. Never: a group that other code may read.
//! Next: `named_axes.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::view::View;
use super::{Class, Found, Lint};
use crate::ir::{CmpOp, FuncKind, Operand, Param, Rvalue, Stmt, StmtId};
use crate::project::FuncRef;
use crate::source::{Name, Place};

/// Words by which code tells parameters of experts from others.
const EXPERTS: &[&str] = &["expert", "moe", "\"allreduce\"", "'allreduce'"];

fn is_expert_group(name: &str) -> bool {
    let lower = name.to_lowercase();
    let expert = lower.contains("expert") || lower.contains("moe") || near::has_part(&lower, "edp");
    let group = lower.contains("group") || near::has_part(&lower, "pg");
    let other = ["size", "rank", "name", "count", "num", "dispatch", "token"].iter().any(|w| lower.contains(w));
    let model = ["model_parallel", "tensor", "_tp", "etp"].iter().any(|w| lower.contains(w));
    expert && group && !other && !model
}

/// `self.expert_group = expert_group`, and nothing else.
pub fn stored<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let file = &lint.files[lint.project.file(class.at.module)];
    let own = file.slice(lint.project.class(class.at).span);
    // Experts that are not trained have no gradients.
    if !own.contains("expert") || ["requires_grad_(False", "requires_grad = False"].iter().any(|w| own.contains(w)) {
        return;
    }
    let text = file.whole();
    if !text.contains("grad") || !["all_reduce", "reduce_scatter"].iter().any(|w| text.contains(w)) {
        return;
    }
    let Some(init) = class.init(lint) else { return };
    for step in &init.steps {
        let Stmt::SetAttr { base, name, .. } = step.stmt else { continue };
        if !near::is_self(init, base) || !is_expert_group(name) || is_read(lint, class, name) {
            continue;
        }
        if is_kept_otherwise(init, step.stmt) {
            continue;
        }
        let Some((told, reduced)) = told_apart(lint, class) else { continue };
        let found = Membership::UnusedGroup { group: name.clone(), stored: init.place(step.id), reduced };
        out.push((told, Practice::Membership(found)));
        return;
    }
}

/// Words of code that may sum over the ranks with replicas otherwise.
const OTHERWISE: &[&str] = &["hook", "ddp", "distributeddataparallel", "replicate(", "vars(", "getattr(", "**self"];

/// `self.replicate_group = replicate_group`, and nothing else, in a class that leaves a rank its shard of reduced gradients.
pub fn replicas<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let file = &lint.files[lint.project.file(class.at.module)];
    let text = file.slice(lint.project.class(class.at).span);
    if !text.contains("replica") || !text.contains("reduce_scatter") || !lint.may_be_complete(class.at) {
        return;
    }
    if near::has_any(&near::bare(file.whole()), OTHERWISE) || near::refusals(text).any(|line| line.contains("replica"))
    {
        return;
    }
    let Some(init) = class.init(lint) else { return };
    let kept = init.steps.iter().find_map(|step| match step.stmt {
        Stmt::SetAttr { base, name, .. } if near::is_self(init, base) && is_of_replicas(name) => {
            (!is_read(lint, class, name)).then(|| (name.clone(), init.place(step.id), step.stmt))
        }
        _ => None,
    });
    let Some((group, kept, _)) = kept.filter(|(_, _, set)| !is_kept_otherwise(init, set)) else { return };
    for (_, func) in &lint.project.class(class.at).methods {
        let view = lint.view(FuncRef { module: class.at.module, func: *func });
        for (i, call) in view.collectives().iter().filter(|(_, call)| call.rule.op == "reduce_scatter") {
            let Some(over) = call.group.map(|group| view.through(group)) else { continue };
            let Some(shards) = near::own_attribute(&view, &over).filter(|name| name.contains("shard")) else {
                continue;
            };
            let of_gradients = view.text(view.place(view.steps[*i].id)).contains("grad");
            if of_gradients && view.collectives().len() == 1 {
                let collective = near::name_of_call(&view, *i).map_or(call.rule.op.clone(), Name::from);
                let found = Membership::ReplicasLeftOut { collective, group, shards: shards.clone(), kept };
                out.push((view.place(view.steps[*i].id), Practice::Membership(found)));
                return;
            }
        }
    }
}

/// Whether a name is that of the ranks with replicas.
fn is_of_replicas(name: &str) -> bool {
    let lower = name.to_lowercase();
    lower.contains("replica") && ["group", "pg"].iter().any(|part| near::has_part(&lower, part))
}

/// Whether the parameter that an attribute is set from goes elsewhere as well: `self.groups = {True: expert_group}`.
fn is_kept_otherwise(init: &View<'_>, set: &Stmt) -> bool {
    let Stmt::SetAttr { value, .. } = set else { return false };
    let from = match init.through(value) {
        Expr::Local(local) => Some(local),
        _ => near::local(value),
    };
    from.is_some_and(|local| init.is_param(local) && init.readers(local).len() > 1)
}

/// Whether anything may read an attribute: its name stands anywhere but where it is set once.
pub(super) fn is_read(lint: &Lint<'_>, class: &Class<'_>, name: &Name) -> bool {
    let own = lint.project.file(class.at.module);
    let attribute = format!(".{name}");
    let whole = |text: &str| near::ending(text, &attribute).count();
    let text = lint.files[own].whole();
    let quoted = |text: &str| text.contains(&format!("\"{name}\"")) || text.contains(&format!("'{name}'"));
    if whole(text) != 1 || quoted(text) || text.contains("__dict__") {
        return true;
    }
    lint.project.modules.ids().any(|m| {
        let file = lint.project.file(m);
        file != own && lint.files.says(file, &attribute)
    })
}

/// Whether a collective sums over ranks.
fn sums(op: &str) -> bool {
    matches!(op, "all_reduce" | "reduce_scatter")
}

/// Whether what is reduced is computed from gradients and is none: a part of their norm.
fn is_statistic(view: &View<'_>, input: Option<&Operand>) -> bool {
    let local = input.and_then(near::local);
    let of = |e: &Expr| ["pow", "norm", "square", "sum", "zeros", "mean"].iter().any(|f| e.call_of(f).is_some());
    input.is_some_and(|o| view.through(o).any(&mut |e| of(e)))
        || local.is_some_and(|l| view.defs(l).iter().any(|def| view.bound(*def, l).any(&mut |e| of(e))))
}

/// The first test of a function that speaks of experts.
fn test_of_experts(view: &View<'_>) -> Option<Place> {
    view.steps.iter().find_map(|step| {
        let Stmt::If { .. } = step.stmt else { return None };
        let place = view.part(step.id, 0);
        let text = view.text(place).to_lowercase();
        EXPERTS.iter().any(|word| text.contains(word)).then_some(place)
    })
}

/// Where a method tells parameters of experts from others, and where it, or what it calls, reduces gradients.
fn told_apart(lint: &Lint<'_>, class: &Class<'_>) -> Option<(Place, Place)> {
    let methods: Vec<FuncRef> = lint
        .project
        .class(class.at)
        .methods
        .iter()
        .map(|(_, func)| FuncRef { module: class.at.module, func: *func })
        .collect();
    let reduces = |view: &View<'_>| {
        let first = view.collectives().iter().find(|(_, call)| sums(&call.rule.op) && !is_statistic(view, call.input));
        first.map(|(i, _)| view.place(view.steps[*i].id))
    };
    let reducers: Vec<Name> =
        methods.iter().map(|at| lint.view(*at)).filter(|v| reduces(v).is_some()).map(|v| v.func.name.clone()).collect();
    let anywhere = methods.iter().find_map(|at| reduces(&lint.view(*at)));
    for at in &methods {
        let view = lint.view(*at);
        let init = view.func.name == "__init__";
        if !init && !view.code().contains("grad") {
            continue;
        }
        let calls =
            |i: usize| matches!(view.value(i), Some(Rvalue::CallMethod { name, .. }) if reducers.contains(name));
        let called = (0..view.steps.len()).find(|i| calls(*i)).map(|i| view.place(view.steps[i].id));
        let Some(reduced) = reduces(&view).or(called).or(anywhere.filter(|_| init)) else { continue };
        if let Some(test) = test_of_experts(&view) {
            return Some((test, reduced));
        }
    }
    None
}

/// `if is_expert: all_reduce(grad, dense_group) else: all_reduce(grad, expert_group)`
pub fn swapped(view: &View<'_>, out: &mut Found) {
    // What each branch of a test of the parameter reduces over: the test, whether it holds, the group.
    let mut branches: Vec<(crate::ir::StmtId, bool, String, Place)> = Vec::new();
    for (i, call) in view.collectives() {
        let step = &view.steps[*i];
        let gradient = call.input.is_some_and(|o| super::reducers::is_gradient(&view.through(o)));
        let (Some(group), true) = (call.group, gradient) else { continue };
        if let Some((test, a, b)) = choice(view, group) {
            chosen(view, step.id, &test, (&a, &b), out);
        }
        let Some(guard) = step.guards.last() else { continue };
        let Some(name) = group_name(view, &view.expr(group)) else { continue };
        branches.push((guard.at, guard.holds, name, view.place(step.id)));
    }
    if branches.len() < 2 || !view.code().contains("expert") {
        return;
    }
    for (at, _, group, place) in branches.iter().filter(|(_, holds, ..)| *holds) {
        let Some((.., other, _)) = branches.iter().find(|(id, holds, ..)| id == at && !holds) else { continue };
        let Some(guard) = view.steps.iter().flat_map(|s| s.guards.iter()).find(|g| g.at == *at) else { continue };
        let Some((mark, of_experts)) = asks_expert(view, &near::deep(view, &view.through(guard.test)), true) else {
            continue;
        };
        if is_swapped(of_experts, group, other) {
            let found = Membership::Swapped { mark, group: Name::from(group.as_str()), test: view.part(*at, 0) };
            out.push((*place, Practice::Membership(found)));
        }
    }
}

/// `all_reduce(p.grad, group=dense_group if "experts" in name else expert_group)`
fn chosen(view: &View<'_>, sum: StmtId, test: &Expr, (a, b): (&Expr, &Expr), out: &mut Found) {
    let Some((mark, of_experts)) = asks_expert(view, test, true) else { return };
    let (Some(group), Some(other)) = (group_name(view, a), group_name(view, b)) else { return };
    if is_swapped(of_experts, &group, &other) {
        let place = view.place(sum);
        out.push((place, Practice::Membership(Membership::Swapped { mark, group: Name::from(group), test: place })));
    }
}

/// The test by which a group is one or another: an expression, or a variable that is bound on both sides.
fn choice(view: &View<'_>, group: &Operand) -> Option<(Expr, Expr, Expr)> {
    if let Expr::Choice(test, a, b) = view.expr(group) {
        return Some((*test, *a, *b));
    }
    let local = near::local(group).filter(|l| !view.is_param(*l))?;
    let [first, second] = view.defs(local) else { return None };
    match (view.steps[*first].guards.last()?, view.steps[*second].guards.last()?) {
        (x, y) if x.at == y.at && x.holds && !y.holds => {
            Some((view.expr(x.test), view.bound(*first, local), view.bound(*second, local)))
        }
        _ => None,
    }
}

/// What a group is called, in lowercase.
fn group_name(view: &View<'_>, group: &Expr) -> Option<String> {
    let name = match group {
        Expr::Local(l) => view.local_name(*l).as_str(),
        Expr::Call { callee, .. } => callee.last_name()?,
        other => other.last_name()?,
    };
    Some(name.to_lowercase())
}

/// Whether experts have the group of the others, and those theirs.
fn is_swapped(of_experts: bool, group: &str, other: &str) -> bool {
    // `dp_expert_group`: all ranks of both, over which what is not of experts is summed.
    let of_both = |g: &str| g.find("expert").is_some_and(|at| ["dp", "data"].iter().any(|d| g[..at].contains(d)));
    let named = |g: &str| g.contains("expert") && !of_both(g) || near::has_part(g, "edp") || near::has_part(g, "moe");
    if of_experts { named(other) && !named(group) } else { named(group) && !named(other) }
}

/// A function that is given the group of experts, tells their parameters apart, and reduces gradients over another group alone.
pub fn given(view: &View<'_>, out: &mut Found) {
    if view.func.class.is_some() || view.func.kind != FuncKind::Function {
        return;
    }
    let reads_group = |at: &View<'_>| at.func.params.iter().any(|p| is_expert_group(&p.name) && at.is_read(p.local));
    let unread = |p: &&Param| is_expert_group(&p.name) && !p.has_default && !view.is_read(p.local);
    let Some(group) = view.func.params.iter().find(unread) else { return };
    // Another function may reduce those of experts.
    let others = near::functions(view, view.at.module).into_iter().filter(|at| *at != view.at);
    if others.map(|at| near::shared(view, at)).any(|at| reads_group(&at) && !at.collectives().is_empty()) {
        return;
    }
    let gradient = |input: &Operand| super::reducers::is_gradient(&view.through(input));
    let reduced = view.collectives().iter().find(|(_, call)| sums(&call.rule.op) && call.input.is_some_and(gradient));
    let Some((reduced, _)) = reduced else { return };
    let Some(told) = test_of_experts(view) else { return };
    let stored = Place { span: group.span, ..told };
    let found =
        Membership::UnusedGroup { group: group.name.clone(), stored, reduced: view.place(view.steps[*reduced].id) };
    out.push((told, Practice::Membership(found)));
}

/// The mark that a test asks a parameter for, and whether those that pass are of experts.
pub(super) fn asks_expert(view: &View<'_>, test: &Expr, holds: bool) -> Option<(Name, bool)> {
    match test {
        Expr::Compare(CmpOp::In, part, _) => spoken(part.string()?, holds),
        Expr::Compare(CmpOp::NotIn, part, _) => spoken(part.string()?, !holds),
        Expr::Unary(crate::ir::UnOp::Not, inner) => asks_expert(view, inner, !holds),
        Expr::Call { callee, args, .. } => {
            let function = callee.last_name()?;
            let mark = match function {
                "getattr" | "hasattr" => args.get(1)?.1.string()?.clone(),
                other => Name::from(other),
            };
            spoken(&mark, holds)
        }
        Expr::Attr(_, name) => spoken(name, holds),
        Expr::Local(l) => spoken(view.local_name(*l), holds),
        _ => None,
    }
}

fn spoken(mark: &Name, holds: bool) -> Option<(Name, bool)> {
    let lower = mark.to_lowercase();
    let dense = ["not", "non", "dense", "shared", "no_"].iter().any(|w| lower.contains(w));
    match lower.as_str() {
        "allreduce" => Some((mark.clone(), !holds)),
        _ if (lower.contains("expert") || lower.contains("moe")) && !dense => Some((mark.clone(), holds)),
        _ => None,
    }
}
