//! Norms of distributed tensors that count what is whole once for each rank. In: a function. Out: a sum over tensor-parallel ranks of norms of what
//! this rank has of every gradient, where nobody asks how a gradient is placed: those of norms and biases are replicated, and equal on these ranks.
//! Never: a function, or a caller of it, that speaks of placements, copies or lists of its own. Source: NeMo-RL pull request 3788.
//! Next: `copies.rs`, for those that are told apart and added.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::named_axes::of_group;
use super::near;
use super::view::Guard;
use super::view::View;
use super::wrapped::given;
use crate::ir::{BinOp, LocalId, Operand, Rvalue, Stmt};
use crate::source::Name;

/// Words of code that tells gradients apart, or takes some of them.
const APART: &[&str] = &[
    "placement",
    "shard",
    "replic",
    "duplicate",
    "shared",
    "parallel",
    "rank",
    "partial",
    "split",
    "dense",
    "/ tp",
    "local_p",
];
/// What takes a norm.
const NORMS: &[&str] = &["vector_norm", "norm", "get_total_norm"];

/// `total += vector_norm(grad.to_local(), 2) ** 2` for all gradients, and `all_reduce(total, group=tp_group)`.
pub fn sums(view: &View<'_>, out: &mut Found) {
    if near::has_any(view.code(), APART) {
        return;
    }
    let is_norm = |at: &usize| near::name_of_call(view, *at).is_some_and(|name| NORMS.contains(&name.as_str()));
    let Some(norm) = (0..view.steps.len()).find(is_norm).filter(|at| !view.steps[*at].loops.is_empty()) else { return };
    let reads_local = view.code().contains("to_local") && view.code().contains(".grad");
    // What a file splits by itself may be all that there is.
    let split = view.file().contains("Shard(") && !view.file().contains("Replicate");
    if !reads_local || split || !takes_all(view) {
        return;
    }
    for (i, call) in view.collectives().iter().filter(|(at, _)| *at > norm) {
        let (Some(group), Some(total)) = (call.group, call.input.and_then(near::local)) else { continue };
        let sums = call.rule.op == "all_reduce" && !call.args.iter().any(|a| view.expr(&a.value).is_other_reduction());
        let over = of_group(view, &view.expr(group)).unwrap_or_default();
        let of_norm = || view.binds(norm).iter().any(|l| near::comes_from(view, &Operand::Local(total), *l, norm));
        if sums && over == [Name::from("tp")] && of_norm() {
            let taken = view.place(view.steps[norm].id);
            out.push((view.place(view.steps[*i].id), Practice::Membership(Membership::WholeCounted { over, taken })));
        }
    }
}

/// Powers of a gradient that are summed where no function takes a norm.
const POWERS: &[&str] = &["pow", "square", "vector_norm", "norm"];

/// `total += p.grad.pow(2).sum()` for all parameters, and `all_reduce(total, group=tp_group)`, in a file that marks some of them as split.
pub fn of_marked(view: &View<'_>, out: &mut Found) {
    if near::has_any(view.code(), APART) || !view.code().contains(".grad") {
        return;
    }
    let is_power = |at: &usize| {
        let called = near::name_of_call(view, *at).is_some_and(|name| POWERS.contains(&name.as_str()));
        let raised = matches!(view.value(*at), Some(Rvalue::Binary { op: BinOp::Pow, .. }));
        called || raised
    };
    let Some(power) = (0..view.steps.len()).find(|at| is_power(at) && !view.steps[*at].loops.is_empty()) else {
        return;
    };
    let Some(over) = sum_after(view, power) else { return };
    // A test of anything but the gradient may leave out what is whole.
    let plain = |g: &Guard<'_>| near::has_any(view.text(view.part(g.at, 0)), &["grad", "max_norm", "inf"]);
    if over.1 != [Name::from("tp")]
        || !view.steps[power].guards.iter().all(plain)
        || !marks_some(view)
        || !takes_all(view)
    {
        return;
    }
    let taken = view.place(view.steps[power].id);
    let mistake = Membership::WholeCounted { over: over.1, taken };
    out.push((view.place(view.steps[over.0].id), Practice::Membership(mistake)));
}

/// The sum over ranks of what a step makes, and the axes.
fn sum_after(view: &View<'_>, norm: usize) -> Option<(usize, Vec<Name>)> {
    view.collectives().iter().filter(|(at, _)| *at > norm).find_map(|(at, call)| {
        let total = call.input.and_then(near::local)?;
        let sums = call.rule.op == "all_reduce" && !call.args.iter().any(|a| view.expr(&a.value).is_other_reduction());
        let comes = |l: &LocalId| near::comes_from(view, &Operand::Local(total), *l, norm);
        // A list holds what a comprehension puts into it.
        let listed = view.steps[norm..*at].iter().find_map(|step| match step.stmt {
            Stmt::Append { collection, .. } if step.loops == view.steps[norm].loops => Some(*collection),
            _ => None,
        });
        let of_list = |list: LocalId| near::reached(view, &Operand::Local(total), |_| true).contains(&list);
        let of_norm = view.binds(norm).iter().any(comes) || listed.is_some_and(of_list);
        (sums && of_norm).then_some((*at, of_group(view, &view.expr(call.group?))?))
    })
}

/// Whether the file marks some parameters as split, by a value that is computed, and never asks for the mark.
fn marks_some(view: &View<'_>) -> bool {
    let text = near::bare(view.file());
    let marks = view.rules.marks();
    marks.iter().filter(|mark| near::has_word(&text, &mark.to_lowercase())).any(|mark| {
        let (mut set, mut computed) = (0, false);
        for at in near::functions(view, view.at.module) {
            let inner = near::shared(view, at);
            for step in &inner.steps {
                if let Stmt::SetAttr { name, value, .. } = step.stmt
                    && name == mark
                {
                    set += 1;
                    computed |= !matches!(inner.through(value), Expr::Const(_));
                }
            }
        }
        computed && near::words(&text, &mark.to_lowercase()).count() == set
    })
}

/// Whether a caller in the file gives all parameters of something, and speaks of no others.
fn takes_all(view: &View<'_>) -> bool {
    view.func.params.iter().any(|param| {
        let callers = given(view, param.local);
        // Beside a plan for some modules, without a caller in sight, what is called parameters is all of them.
        // So it is where the norm is that of all ranks, and another function of the file, which nobody calls, tells gradients apart.
        let told_apart = || view.collectives().len() > 1 && has_idle_question(view);
        let planned = || {
            let all = matches!(&*param.name, "parameters" | "params" | "model");
            all && (view.file().contains("parallelize_module(") || told_apart())
        };
        if callers.is_empty() {
            return planned();
        }
        callers.iter().all(|(caller, _, value)| {
            let of = |word: &str| near::deep(caller, value).any(&mut |e| e.call_of(word).is_some());
            (of("parameters") || of("values") && told_apart()) && !near::has_any(caller.code(), APART)
        })
    })
}

/// Whether the file has a function that asks for the placements of what it is given, and its name stands nowhere else.
fn has_idle_question(view: &View<'_>) -> bool {
    near::functions(view, view.at.module).into_iter().any(|at| {
        let func = view.project.func(at);
        let asks = func.class.is_none() && near::shared(view, at).code().contains(".placements");
        asks && near::times_said(view.files, &func.name) == 1
    })
}
