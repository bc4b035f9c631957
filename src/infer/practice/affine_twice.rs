//! Gradients of parameters that a backward sums and the wrapper sums again. In: the backward of an autograd function. Out: a gradient that it returns as summed over all
//! ranks, for an argument that a module of the file keeps as a parameter, where the file wraps models so that gradients are averaged over all ranks: that of every other
//! parameter is a mean, and this one stays a sum. Never: a mean, a group of fewer ranks, or a file that changes gradients by hand. Source: sony/nnabla issue 1120.
//! Next: `mean_backward.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::unshared::Unshared;
use super::view::{CollectiveCall, View};
use crate::ir::{ArgKind, Const, LocalId, Operand, Rvalue, Stmt};
use crate::project::ClassRef;
use crate::rules::Keeps;
use crate::source::{Name, Place};
use std::rc::Rc;

/// Methods that give the same values, and parts of them.
const SAME: &[&str] = &[
    "chunk",
    "split",
    "unbind",
    "view",
    "view_as",
    "reshape",
    "to",
    "type_as",
    "float",
    "half",
    "contiguous",
    "squeeze",
];
/// Those that give them in the same memory: what is summed afterwards is summed in both.
const VIEWS: &[&str] = &["chunk", "split", "unbind", "view", "view_as", "squeeze"];
/// How the number of ranks is called.
const RANKS: &[&str] = &["world", "num_ranks", "n_ranks", "group_size", "replicas"];
/// What a file says that has groups of fewer ranks, or makes up for the factor.
const MAKES_UP: &[&str] = &[
    "_hook(",
    "_to_ignore",
    ".grad",
    "process_group=",
    "new_group",
    "new_subgroups",
    "mesh",
    "tp_",
    "_tp",
    "model_parallel",
    "tensor_parallel",
    "mpu",
    "subgroup",
    "requires_grad",
    "param_groups",
    "lr /",
];

/// `dist.all_reduce(sums)`, `return dx, sums[1], sums[0]`
pub fn returned(view: &View<'_>, out: &mut Found) {
    if view.func.name != "backward" {
        return;
    }
    let Some(class) = near::autograd_class(view) else { return };
    let mut all = view.steps.iter().enumerate().filter_map(|(at, step)| match step.stmt {
        Stmt::Return { value } => Some((at, view.expr(value))),
        _ => None,
    });
    let (Some((at, value)), None) = (all.next(), all.next()) else { return };
    let gradients = match value {
        Expr::Build(items) => items,
        Expr::Local(local) => match view.through(&Operand::Local(local)) {
            Expr::Build(items) => items,
            _ => return,
        },
        _ => return,
    };
    let found = gradients.iter().enumerate().find_map(|(n, gradient)| {
        let summed = sum_of(view, gradient, at)?;
        let (parameter, of) = kept_parameter(view, class, n)?;
        Some((summed, parameter, of))
    });
    let Some((summed, parameter, of)) = found else { return };
    let text = near::bare(view.file());
    // What the forward keeps may be a number by which the sum is divided.
    if view.code().matches("ctx.").count() != 1 {
        return;
    }
    let scaled = text.lines().any(|line| line.contains("loss") && near::has_any(line, RANKS));
    if scaled || near::has_any(&text, MAKES_UP) {
        return;
    }
    let Some((wrapper, wrapped)) = wraps(view, &of) else { return };
    let class = view.project.class(class).name.clone();
    let mistake = Unshared::AffineTwice { class, parameter, of, wrapper, summed, wrapped };
    out.push((view.place(view.steps[at].id), Practice::Unshared(mistake)));
}

/// Where a gradient that is returned was summed over all ranks, if nothing has changed it since.
fn sum_of(view: &View<'_>, gradient: &Expr, returned: usize) -> Option<Place> {
    view.collectives().iter().find_map(|(step, call)| {
        let input = near::local(call.input?).filter(|_| is_plain_sum(view, call))?;
        let mut chain = Vec::new();
        follow(view, gradient, *step, &mut chain);
        let alike = view.steps[*step].guards.iter().all(|g| {
            let text = view.text(view.part(g.at, 0)).to_lowercase();
            view.steps[returned].guards.iter().any(|h| h.at == g.at && h.holds == g.holds)
                || g.holds && near::has_any(&text, &["world", "initialized"])
        });
        let sums = chain.contains(&input) && alike && *step < returned && !is_scaled(view, input, &chain, *step);
        sums.then(|| view.place(view.steps[*step].id))
    })
}

/// The variables in whose memory a gradient lies, or that held its values after a step.
fn follow(view: &View<'_>, expr: &Expr, summed: usize, chain: &mut Vec<LocalId>) {
    match expr {
        Expr::Local(local) => {
            let [def] = view.defs(*local) else { return };
            if !chain.contains(local) {
                chain.push(*local);
                let bound = view.bound(*def, *local);
                if !matches!(bound, Expr::Unknown) {
                    follow(view, &bound, summed, chain);
                }
            }
        }
        Expr::Item(of, _) | Expr::Element(of) => follow(view, of, summed, chain),
        Expr::Call { callee, step, .. } => {
            if let Expr::Attr(of, name) = &**callee
                && SAME.contains(&name.as_str())
                && (*step > summed || VIEWS.contains(&name.as_str()))
            {
                follow(view, of, summed, chain);
            }
        }
        _ => {}
    }
}

/// Whether a collective is a sum over all ranks.
fn is_plain_sum<'a>(view: &View<'a>, call: &CollectiveCall<'a>) -> bool {
    let sum = view.operator(call).is_none_or(|op| view.expr(op).last_name() == Some("SUM"));
    let group = call.group.is_none_or(|group| match view.expr(group) {
        Expr::Const(Const::None) => true,
        Expr::Attr(_, name) => name.contains("group"),
        other => view.name_of(&other).is_some_and(|name| name.contains("group")),
    });
    call.rule.op == "all_reduce" && sum && group
}

/// Whether a value was scaled by the number of ranks before it was summed, or changed afterwards.
fn is_scaled(view: &View<'_>, input: LocalId, chain: &[LocalId], summed: usize) -> bool {
    let before = near::reached(view, &Operand::Local(input), |def| def < summed);
    let is_any = |operand: &Operand| near::local(operand).is_some_and(|l| chain.contains(&l));
    (0..view.steps.len()).any(|step| {
        let makes = step < summed && view.binds(step).iter().any(|local| before.contains(local));
        let text = || view.text(view.place(view.steps[step].id)).to_lowercase();
        let changes = match view.steps[step].stmt {
            Stmt::SetItem { base, .. } => is_any(base),
            Stmt::Assign { value: Rvalue::InPlace { left, .. }, .. } => is_any(left),
            Stmt::Assign { value: Rvalue::CallMethod { base, name, .. }, .. } => is_any(base) && name.ends_with('_'),
            _ => false,
        };
        changes || makes && (near::has_any(&text(), RANKS) || text().contains(".mean("))
    })
}

/// The attribute that a module of the file gives an autograd function as its n-th argument, if it is a parameter, and the module.
fn kept_parameter(view: &View<'_>, function: ClassRef, n: usize) -> Option<(Name, Name)> {
    near::functions(view, view.at.module).into_iter().find_map(|at| {
        let caller: Rc<View<'_>> = near::shared(view, at);
        let class = near::class_of(&caller).filter(|class| *class != function.class)?;
        (0..caller.steps.len()).find_map(|step| {
            let value = caller.value(step)?;
            let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
            let given = args.get(n).filter(|arg| arg.kind == ArgKind::Positional)?;
            if near::applied(&caller, value) != Some(function) {
                return None;
            }
            let attribute = near::own_attribute(&caller, &caller.through(&given.value))?.clone();
            let mut assigned = near::assigned(&caller, class, &attribute).into_iter();
            let made = assigned.any(|(method, _, value)| {
                let made = method.through(value);
                matches!(&made, Expr::Call { callee, .. } if callee.last_name() == Some("Parameter"))
            });
            let of = caller.project.class(ClassRef { module: view.at.module, class }).name.clone();
            made.then_some((attribute, of))
        })
    })
}

/// Where the file wraps a model whose gradients are averaged over all ranks, and in what.
fn wraps(view: &View<'_>, of: &str) -> Option<(Name, Place)> {
    let of = of.to_lowercase();
    near::functions(view, view.at.module).into_iter().find_map(|at| {
        let function = near::shared(view, at);
        // The model is made of such modules where it is wrapped.
        let makes = near::has_word(function.code(), &of);
        (0..function.steps.len()).filter(|_| makes).find_map(|step| {
            let path = function.callee(function.value(step)?)?;
            let rule = function.rules.wrappers().get(&path).filter(|r| !r.in_place && r.keeps == Keeps::Whole)?;
            Some((super::lost::last(&rule.name), function.place(function.steps[step].id)))
        })
    })
}
