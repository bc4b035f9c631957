//! Experts that are overwritten by those of another rank. In: a function that broadcasts the parameters of a model. Out: where all of them go over the
//! group of data ranks, in a file that tells parameters of experts apart and reduces their gradients over a group of their own: ranks that
//! have different experts begin with those of one. Never: a function that speaks of experts, a call that is made where there are none, a test of
//! the parameter that is not followed, or a file that broadcasts over the group of experts too.
//! Source: DeepSpeed, `DeepSpeedEngine._broadcast_model`. Next: `unused_group.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::view::View;
use super::{Found, near};
use crate::ir::{FuncKind, LocalId, Operand, Rvalue};
use crate::project::FuncRef;
use crate::source::{Name, Place};

/// Words of experts.
const EXPERTS: &[&str] = &["expert", "moe", "allreduce"];
/// Parts of names of data ranks.
const DATA: &[&str] = &["data", "dp"];
/// How whole models are called.
const MODELS: &[&str] = &["model", "module"];
/// Functions that tell nothing of experts, whatever they are given.
const PLAIN: &[&str] = &["is_tensor", "isinstance", "len", "numel", "id", "is_floating_point", "data_ptr"];

/// `dist.broadcast(p.data, src, group=data_parallel_group)` for every parameter.
pub fn parameters(view: &View<'_>, out: &mut Found) {
    let code = view.code();
    if near::has_any(code, EXPERTS) || !near::has_any(code, &["parameters("]) {
        return;
    }
    for step in 0..view.steps.len() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
            continue;
        };
        // Not a method of an object.
        let sends = |path: &Name| !path.starts_with('.') && super::lost::last(path) == "broadcast";
        if !view.callee(value).is_some_and(|path| sends(&path)) {
            continue;
        }
        let Some(parameter) = args.first().and_then(|input| of_all(view, step, &input.value)) else { continue };
        let Some(group) = view.argument(args, 2, "group").and_then(|group| data_group(view, group)) else { continue };
        if !view.steps[step].guards.iter().all(|guard| is_plain_test(view, guard.test, parameter)) {
            continue;
        }
        let Some((told, reduced)) = told_apart(view).filter(|_| !is_left_out(view)) else { continue };
        let mistake = Membership::ExpertsBroadcast { group, told, reduced };
        out.push((view.place(view.steps[step].id), Practice::Membership(mistake)));
    }
}

/// The variable of a loop over all parameters of a model, if that is what is sent.
fn of_all(view: &View<'_>, step: usize, input: &Operand) -> Option<LocalId> {
    let sent = match near::deep(view, &view.expr(input)) {
        Expr::Attr(of, name) if name == "data" => *of,
        Expr::Call { callee, args, .. } if args.is_empty() => match *callee {
            Expr::Attr(of, name) if name == "detach" => *of,
            _ => return None,
        },
        other => other,
    };
    let Expr::Local(local) = sent else { return None };
    let over = view.steps[step].loops.last()?;
    let inside = view.defs(local).iter().all(|def| *def >= *over);
    let of = element_of(view, local).filter(|_| inside)?;
    let Expr::Call { callee, args, .. } = of else { return None };
    let Expr::Attr(owner, method) = *callee else { return None };
    // A part of the model may have no experts.
    let whole = near::own_attribute(view, &owner).is_some() || matches!(*owner, Expr::Local(_));
    let named = view.name_of(&owner).is_some_and(|name| near::has_any(&name.to_lowercase(), MODELS));
    let all = matches!(method.as_str(), "parameters" | "named_parameters") && args.is_empty();
    (all && whole && named).then_some(local)
}

/// What a loop goes through whose variable, or a part of it, this is.
fn element_of(view: &View<'_>, local: LocalId) -> Option<Expr> {
    let [def] = view.defs(local) else { return None };
    match view.bound(*def, local) {
        Expr::Item(of, _) => match *of {
            Expr::Element(over) => Some(*over),
            Expr::Local(pair) => element_of(view, pair),
            _ => None,
        },
        Expr::Element(over) => Some(*over),
        _ => None,
    }
}

/// The name of a group of data ranks.
fn data_group(view: &View<'_>, group: &Operand) -> Option<Name> {
    let expr = near::deep(view, &view.expr(group));
    let name = view.name_or_callee(&expr)?.to_lowercase();
    let data =
        DATA.iter().any(|part| near::has_part(&name, part)) && !near::has_any(&name, &["expert", "ep_", "edp", "moe"]);
    data.then(|| Name::from(name.trim_start_matches("_get_").trim_start_matches("get_").trim_start_matches('_')))
}

/// Whether a test tells nothing of experts: every function that is given the parameter is known, or one of the project that does not speak of them.
fn is_plain_test(view: &View<'_>, test: &Operand, parameter: LocalId) -> bool {
    let test = near::deep(view, &view.expr(test));
    if matches!(test, Expr::Unknown) {
        return false;
    }
    let mut plain = true;
    test.any(&mut |e| {
        if let Expr::Call { callee, args, .. } = e
            && args.iter().any(|(_, a)| a.mentions(parameter))
        {
            plain &= is_plain_call(view, callee, args.iter().map(|(_, a)| a));
        }
        false
    });
    plain
}

fn is_plain_call<'e>(view: &View<'_>, callee: &Expr, args: impl Iterator<Item = &'e Expr>) -> bool {
    let name = callee.last_name().unwrap_or_default();
    if PLAIN.contains(&name) {
        return true;
    }
    if matches!(name, "getattr" | "hasattr") {
        return args.filter_map(Expr::string).all(|attribute| !near::has_any(&attribute.to_lowercase(), EXPERTS));
    }
    let own = match callee {
        Expr::Attr(_, name) if near::own_attribute(view, callee).is_some() => near::own_method(view, name),
        Expr::Path(path) => match view.project.path(path) {
            crate::project::Resolved::Func(at) => Some(at),
            _ => None,
        },
        _ => None,
    };
    own.is_some_and(|at| {
        let other = near::shared(view, at);
        // A function that calls others may ask them.
        let asks = (0..other.steps.len()).any(|step| match other.value(step) {
            Some(Rvalue::Call { callee, .. }) => other
                .through(callee)
                .last_name()
                .is_none_or(|name| !PLAIN.contains(&name) && !matches!(name, "getattr" | "hasattr")),
            Some(Rvalue::CallMethod { .. }) => true,
            _ => false,
        });
        !near::has_any(other.code(), EXPERTS) && !asks
    })
}

/// Where the file tells parameters of experts apart, and reduces them over a group of their own.
fn told_apart(view: &View<'_>) -> Option<(Place, Place)> {
    near::functions(view, view.at.module).into_iter().filter(|at| *at != view.at).find_map(|at| {
        if view.project.func(at).kind != FuncKind::Function {
            return None;
        }
        let other = near::shared(view, at);
        let reduced = other.collectives().iter().find_map(|(step, call)| {
            let over = call.group.is_some_and(|group| is_of_experts(&other, group));
            (over && matches!(call.rule.op.as_str(), "all_reduce" | "reduce_scatter")).then_some(*step)
        })?;
        let told = other.steps[reduced].guards.iter().find(|guard| {
            let test = near::deep(&other, &other.expr(guard.test));
            let test = match &test {
                Expr::Bool { of, .. } => of.iter().collect(),
                one => vec![one],
            };
            test.iter().any(|e| matches!(e, Expr::Call { .. } | Expr::Unary(..)) && names_experts(&other, e))
        })?;
        Some((other.part(told.at, 0), other.place(other.steps[reduced].id)))
    })
}

fn names_experts(view: &View<'_>, expr: &Expr) -> bool {
    let names = |name: &str| near::has_any(&name.to_lowercase(), EXPERTS);
    expr.any(&mut |e| view.name_or_callee(e).is_some_and(names) || e.string().is_some_and(|text| names(text)))
}

/// Whether a group is one of ranks with the same experts.
fn is_of_experts(view: &View<'_>, group: &Operand) -> bool {
    near::deep(view, &view.expr(group)).any(&mut |e| {
        view.name_or_callee(e)
            .is_some_and(|name| near::has_any(&name.to_lowercase(), &["expert", "moe_dp", "edp", "ep_dp"]))
    })
}

/// Whether the file broadcasts over a group of experts too, or calls this function where a test speaks of experts.
fn is_left_out(view: &View<'_>) -> bool {
    let calls = format!("{}(", view.func.name);
    near::functions(view, view.at.module).into_iter().filter(|at| *at != view.at).any(|at: FuncRef| {
        if view.project.func(at).kind != FuncKind::Function {
            return false;
        }
        let other = near::shared(view, at);
        let code = other.code();
        let sends = code.contains("broadcast") && near::has_any(code, EXPERTS) && !code.contains(&calls.to_lowercase());
        let guarded = (0..other.steps.len()).any(|step| {
            let called = near::name_of_call(&other, step).is_some_and(|name| name == view.func.name.to_lowercase());
            called
                && other.steps[step]
                    .guards
                    .iter()
                    .any(|guard| names_experts(&other, &near::deep(&other, &other.expr(guard.test))))
        });
        sends || guarded
    })
}
