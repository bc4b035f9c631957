//! Functions that are to reduce gradients, by their names, and reduce parameters. In: a function that communicates. Out: the reduction. Never: functions whose name
//! or text speaks of gradients anywhere else, or of weights as well, and those that are called after a step, or by nobody in a file that trains. Source: torch.distributed, `all_reduce`. Next: `parameter_divided.rs`.

use super::Found;
use super::called;
use super::expr::Expr;
use super::found::Practice;
use super::lapses::Lapse;
use super::lost::{last, written};
use super::near;
use super::view::View;
use crate::ir::{FuncKind, LocalId, Rvalue};

/// Parts of names of functions that reduce.
const REDUCES: &[&str] = &["sync", "reduce", "average", "aggregate", "mean"];
/// Parts of names of functions that may do it to parameters as well.
const OTHERS: &[&str] = &["param", "weight", "model", "buffer", "state", "delta", "and", "or", "test", "no"];

/// `def sync_gradients(model)`: `all_reduce(p.data)` for each parameter, and no gradient anywhere
pub fn parameters(view: &View<'_>, out: &mut Found) {
    let name = view.func.name.to_lowercase();
    let is_reducer = name.contains("grad") && REDUCES.iter().any(|w| name.contains(w));
    if !is_reducer || view.func.kind != FuncKind::Function || OTHERS.iter().any(|w| near::has_part(&name, w)) {
        return;
    }
    // Its own name, and contexts without gradients, are no gradients.
    let text = view.code().replace(name.as_str(), "").replace("no_grad", "");
    if text.contains("grad") {
        return;
    }
    if !may_come_before_step(view) {
        return;
    }
    let [(step, call)] = view.collectives() else { return };
    let of = written(call).filter(|_| call.rule.op == "all_reduce").map(|o| view.expr(o));
    let Some(parameter) = of.as_ref().and_then(|e| parameter(view, e)) else { return };
    let mistake = Lapse::ParameterReduced {
        function: view.func.name.clone(),
        parameter: view.local_name(parameter).clone(),
        collective: last(&call.rule.name),
    };
    out.push((view.place(view.steps[*step].id), Practice::Lapse(mistake)));
}

/// Whether every caller of the file may go on to a step of an optimizer: after one, parameters may be averaged as well. In a file that trains, what nobody calls
/// is left over.
fn may_come_before_step(view: &View<'_>) -> bool {
    let method = view.func.class.map(|_| view.func.name.as_str());
    let callers = called::sites(view, &view.project.qualified(view.at), method);
    let goes_on = |(site, at): &(std::rc::Rc<View<'_>>, usize)| {
        let steps = |s: &usize| matches!(site.value(*s), Some(Rvalue::CallMethod { name, .. }) if name == "step");
        let (before, after) = ((0..*at).any(|s| steps(&s)), (*at..site.steps.len()).any(|s| steps(&s)));
        after || !before
    };
    callers.iter().all(goes_on) && !(callers.is_empty() && view.file().contains(".backward("))
}

/// The parameter of a loop over all of a module that an expression is, or the values of.
fn parameter(view: &View<'_>, of: &Expr) -> Option<LocalId> {
    let local = match of {
        Expr::Attr(base, name) if name == "data" => match **base {
            Expr::Local(local) => local,
            _ => return None,
        },
        Expr::Local(local) => *local,
        _ => return None,
    };
    let (&def, changed) = view.defs(local).split_first()?;
    if !changed.iter().all(|d| matches!(view.value(*d), Some(Rvalue::InPlace { .. }))) {
        return None;
    }
    let all = |e: &Expr| e.call_of("parameters").is_some() || e.call_of("named_parameters").is_some();
    near::deep(view, &view.bound(def, local)).any(&mut |e| all(e)).then_some(local)
}
