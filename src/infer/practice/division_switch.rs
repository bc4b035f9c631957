//! Exchanges of gradients that do not look at the switch for their division. In: the backward of an autograd function. Out: what it returns as it has
//! received it, in a module with a variable that says that gradients are divided by the number of ranks. Never: an exchange that another
//! function waits for and may divide, or a backward that scales in any other way. Source: torchrec pull request 1322. Next: `averaged.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::omissions::Omission;
use super::view::View;
use crate::ir::{Const, FuncId, FuncKind, LocalId, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::{Idx, Name, Place};

/// Endings of operations whose result is made of what all ranks have computed.
const EXCHANGES: &[&str] = &["all_to_all", "reduce_scatter", "all_reduce"];
/// What scales, starts without an end, or leaves the matter to others.
const OTHERS: &[&str] = &["div", "/", "mul_", "*=", "avg", "async_op", "scale"];

/// `dist.all_to_all_single(grad, out, ...); return grad`, beside `GRADIENT_DIVISION = True`.
pub fn never_asked(view: &View<'_>, out: &mut Found) {
    let Some(class) = near::autograd_class(view).filter(|_| view.func.name == "backward") else { return };
    let Some((switch, set)) = switch(view) else { return };
    let [(at, call)] = view.collectives() else { return };
    let exchanges = EXCHANGES.iter().any(|op| call.rule.op.starts_with(op));
    let given = call.output.or(call.input).and_then(near::local);
    // `/` of a path in a string is none of these: the text has lost its sentences.
    if !exchanges || near::has_any(view.code(), OTHERS) || near::has_word(view.text(view.spot(view.func.span)), &switch)
    {
        return;
    }
    if is_asked_elsewhere(view, &switch, &call.rule.op) {
        return;
    }
    let result = match view.steps[*at].stmt {
        Stmt::Assign { dst, .. } if !view.is_temp(*dst) => Some(*dst),
        _ => given,
    };
    let returned = |l: LocalId| {
        view.steps.iter().find(|s| match s.stmt {
            Stmt::Return { value } => match view.through(value) {
                Expr::Build(of) => of.contains(&Expr::Local(l)),
                other => other == Expr::Local(l),
            },
            _ => false,
        })
    };
    let Some(step) = result.and_then(returned) else { return };
    let function = view.project.class(class).name.clone();
    let exchanged = view.place(view.steps[*at].id);
    let mistake = Omission::DivisionNotAsked { function, switch, set, exchanged };
    out.push((view.place(step.id), Practice::Omission(mistake)));
}

/// The variable of the module that says whether gradients are divided.
fn switch(view: &View<'_>) -> Option<(Name, Place)> {
    let body = near::shared(view, FuncRef { module: view.at.module, func: FuncId::from_index(0) });
    body.steps.iter().find_map(|step| {
        let Stmt::Assign { dst, value: Rvalue::Use(Operand::Const(Const::Bool(true))) } = step.stmt else {
            return None;
        };
        let name = body.local_name(*dst);
        let lower = name.to_lowercase();
        let says = lower.contains("grad") && lower.contains("divi");
        (says && step.guards.is_empty()).then(|| (name.clone(), body.place(step.id)))
    })
}

/// Whether something reads the switch that is no backward of the same exchange: it may divide for this one too.
fn is_asked_elsewhere(view: &View<'_>, switch: &str, op: &str) -> bool {
    let own = view.project.file(view.at.module);
    let elsewhere = view.files.saying(switch).any(|file| file != own);
    elsewhere
        || near::functions(view, view.at.module).into_iter().any(|at| {
            let func = view.project.func(at);
            if func.kind != FuncKind::Function {
                return false;
            }
            let text = view.files[own].slice(func.span);
            let sets = text.contains(&format!("global {switch}"));
            let alike = || {
                let other = near::shared(view, at);
                other.func.name == "backward" && other.collectives().iter().any(|(_, call)| call.rule.op == op)
            };
            near::has_word(text, switch) && !sets && !alike()
        })
}
