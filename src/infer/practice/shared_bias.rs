//! Biases that each rank divides by the number of ranks before the results are summed. In: a forward. Out: a parameter of which every rank
//! adds its share to a partial result, where the backward of the sum hands each rank the whole gradient: it is divided once more, and
//! nothing sums it. Never: a sum whose backward sums too, a gradient that is declared or reduced elsewhere in the file, or a quotient
//! that stays out of the gradient. Source: torchtitan, pull request 4332. Next: `straight_through.rs`, how it is written right.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::near;
use super::view::View;
use crate::ir::{ArgKind, BinOp, LocalId, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::rules::collective::Form;
use crate::source::Name;
use crate::types::AxisType;

/// Methods through which a parameter stays that parameter.
const KEEPS: &[&str] = &[
    "to",
    "float",
    "half",
    "bfloat16",
    "type_as",
    "to_local",
    "view",
    "reshape",
    "contiguous",
    "unsqueeze",
    "squeeze",
    "flatten",
    "expand",
];
/// Parts of names of numbers of ranks.
const SIZES: &[&str] = &["size", "degree", "world", "ranks"];
/// Words of files that do something else with gradients, or have none.
const OTHERWISE: &[&str] = &[
    "sequence_parallel",
    "register_buffer(\"bias",
    "endswith(\"bias",
    "\"lr\":",
    "\"bias\" in",
    ".grad ",
    ".grad.",
    ".grad)",
    ".grad,",
    "main_grad",
    "hook",
    "requires_grad_(false",
    "requires_grad=false",
    "requires_grad = false",
];

/// `F.linear(x, self.weight, self.bias / self.tp_size)`, then a sum over the ranks
pub fn divided(view: &View<'_>, out: &mut Found) {
    for i in 0..view.steps.len() {
        let Some(Rvalue::Binary { op: BinOp::Div, left, right }) = view.value(i) else { continue };
        let Stmt::Assign { dst: share, .. } = view.steps[i].stmt else { continue };
        let share = *share;
        let Some(bias) = parameter(view, left, i) else { continue };
        let only_read = || {
            let trains = |g: &super::view::Guard<'_>| view.text(view.part(g.at, 0)).contains("training");
            view.without_gradient(i) || view.steps[i].guards.iter().any(trains)
        };
        if !is_size(view, right) || only_read() || !is_trained(view, &bias) {
            continue;
        }
        let Some(added) = added(view, share, i) else { continue };
        let Some(summed) = (added..view.steps.len()).find(|s| sums(view, *s, share, i)) else { continue };
        if near::is_unrecorded(view) || near::has_any(&whole_file(view), OTHERWISE) {
            return;
        }
        let mistake = Scales::BiasDivided { bias, summed: view.place(view.steps[summed].id) };
        out.push((view.place(view.steps[i].id), Practice::Scales(mistake)));
    }
}

fn whole_file(view: &View<'_>) -> String {
    near::bare(view.file())
}

/// The name of the parameter of the object that an operand is at a step.
fn parameter(view: &View<'_>, operand: &Operand, step: usize) -> Option<Name> {
    let mut operand = operand;
    let mut step = step;
    loop {
        if let Some(name) = near::own_attribute(view, &view.expr(operand)) {
            let bias = near::has_part(name, "bias") || is_short(name);
            return bias.then(|| name.clone());
        }
        let local = near::local(operand)?;
        step = view.last_def(local, step)?;
        operand = match view.value(step)? {
            Rvalue::Use(inner) => inner,
            Rvalue::CallMethod { base, name, args } if KEEPS.contains(&name.as_str()) => {
                // Placements say what the gradient is.
                if args.iter().any(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == "grad_placements")) {
                    return None;
                }
                base
            }
            _ => return None,
        };
    }
}

/// Whether an attribute is a parameter wherever the class sets it, or is that of a base.
fn is_trained(view: &View<'_>, name: &str) -> bool {
    let Some(class) = near::class_of(view) else { return false };
    let makes = |e: &Expr| matches!(e, Expr::Call { callee, .. } if callee.last_name() == Some("Parameter"));
    near::assigned(view, class, name).iter().all(|(method, _, value)| makes(&method.through(value)))
}

/// `b2`, the bias of the second weight
pub fn is_short(name: &str) -> bool {
    name.strip_prefix('b').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// Whether a number is that of the ranks of a group.
fn is_size(view: &View<'_>, operand: &Operand) -> bool {
    let named = |name: &str| SIZES.iter().any(|part| near::has_part(name, part));
    match near::deep(view, &view.expr(operand)) {
        Expr::Local(local) => named(view.local_name(local)),
        Expr::Call { callee, .. } => callee.last_name().is_some_and(named),
        other => other.last_name().is_some_and(named),
    }
}

/// The step that adds a share to a product, if that is all that is done with it.
fn added(view: &View<'_>, share: LocalId, made: usize) -> Option<usize> {
    let readers: Vec<usize> = view.readers(share).iter().copied().filter(|at| *at > made).collect();
    let adds = |at: &usize| match view.value(*at) {
        Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) => {
            let given = |a: &crate::ir::Arg| {
                a.value == Operand::Local(share) && !matches!(&a.kind, ArgKind::Keyword(k) if k != "bias")
            };
            let last = near::written_name(view, value).map(|n| super::lost::last(&n));
            last.is_some_and(|n| n.contains("linear")) && args.iter().skip(2).any(given)
        }
        Some(Rvalue::Binary { op: BinOp::Add, .. } | Rvalue::InPlace { op: BinOp::Add, .. }) => true,
        _ => false,
    };
    readers.iter().all(adds).then(|| readers.first().copied())?
}

/// Whether a step sums over ranks what came of the share, and its backward hands the gradient on as it is.
pub fn sums(view: &View<'_>, step: usize, share: LocalId, made: usize) -> bool {
    let Some(value) = view.value(step) else { return false };
    if let Some(call) = view.collective(value) {
        let transitions = &call.rule.transitions;
        let kept = !transitions.is_empty() && transitions.iter().all(|(_, t)| t.result.set == AxisType::I);
        let identity = call.rule.op == "all_reduce" && (kept || call.rule.form == Form::InPlace);
        return identity && call.input.is_some_and(|input| near::comes_from(view, input, share, made));
    }
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return false };
    let given = || args.first().is_some_and(|a| near::comes_from(view, &a.value, share, made));
    let name = near::written_name(view, value).map(|n| super::lost::last(&n));
    match name.as_deref() {
        Some("from_local") => {
            let partial = |a: &crate::ir::Arg| {
                view.through(&a.value).any(&mut |e| e.path().is_some_and(|p| super::lost::last(p) == "Partial"))
            };
            args.iter().skip(1).any(partial) && given()
        }
        Some("apply") => is_identity_sum(view, value) && given(),
        _ => false,
    }
}

/// Whether an autograd function of the project sums in its forward and communicates nothing in its backward.
fn is_identity_sum(view: &View<'_>, value: &Rvalue) -> bool {
    let Some(at) = near::applied(view, value) else { return false };
    let method = |wanted: &str| {
        let (_, func) = view.project.class(at).methods.iter().find(|(name, _)| name == wanted)?;
        Some(near::shared(view, FuncRef { module: at.module, func: *func }))
    };
    let (Some(forward), Some(backward)) = (method("forward"), method("backward")) else { return false };
    let all_reduces = forward.collectives().iter().any(|(_, call)| call.rule.op == "all_reduce");
    all_reduces && forward.collectives().len() == 1 && !near::communicates(&backward)
}
