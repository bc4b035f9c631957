//! Weights that are gathered without gradients. In: a function. Out: a collective under `no_grad` on the weights of a mixture that the function is given,
//! where the same variable is these weights as they are on the other side of a test. Never: positions and counts, or what is cut off on both sides.
//! Source: Megatron-LM, `MoEDroplessTokenDispatcher`. Next: `cut_loss.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::handles::excludes;
use super::lapses::Lapse;
use super::lost::last;
use super::near;
use super::view::View;
use super::wrapped::function;
use crate::ir::{LocalId, Operand, Rvalue, Stmt};
use crate::source::Name;
use rustc_hash::FxHashSet;

/// Parts of names of the weights of a mixture.
pub const WEIGHTS: &[&str] = &["prob", "weight", "score", "gate", "gating"];
/// Parts of names of what has no gradient.
const WHOLE: &[&str] = &["idx", "ind", "mask", "count", "num", "map", "target", "label"];

/// `with no_grad(): local = gather(probs)[mine]`, and `else: local = probs`
pub fn gathered(view: &View<'_>, out: &mut Found) {
    for (at, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value: value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) } =
            step.stmt
        else {
            continue;
        };
        if !view.without_gradient(at) {
            continue;
        }
        let given = args.iter().find_map(|a| near::local(&a.value).filter(|l| is_weights(view, *l)));
        let Some((weights, collective)) = given.zip(communicates(view, value)) else { continue };
        let Some(kept) = kept(view, at, *dst, weights) else { continue };
        let value = view.local_name(weights).clone();
        let mistake = Lapse::WeightsCut { collective, value, kept: view.place(view.steps[kept].id) };
        out.push((view.place(step.id), Practice::Lapse(mistake)));
    }
}

/// Whether a variable is a parameter that is named as weights are, and that nothing binds again.
fn is_weights(view: &View<'_>, local: LocalId) -> bool {
    let name = view.local_name(local).to_lowercase();
    let any = |words: &[&str]| name.split('_').any(|part| words.iter().any(|w| part.starts_with(w)));
    view.is_as_given(local) && any(WEIGHTS) && !any(WHOLE)
}

/// The collective that a call is, or the function of the project that communicates for it.
fn communicates<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<Name> {
    if let Some(call) = view.collective(value) {
        return Some(last(&call.rule.name));
    }
    let callee = match value {
        Rvalue::Call { callee, .. } => view.through(callee),
        Rvalue::CallMethod { base, name, .. } => Expr::Attr(Box::new(view.expr(base)), name.clone()),
        _ => return None,
    };
    let helper = near::shared(view, function(view, &callee)?);
    (!helper.collectives().is_empty()).then(|| helper.func.name.clone())
}

/// Where a variable that holds what was gathered, or a part of it, is the weights themselves.
fn kept(view: &View<'_>, at: usize, gathered: LocalId, weights: LocalId) -> Option<usize> {
    let mut made: FxHashSet<LocalId> = std::iter::once(gathered).collect();
    for (step, s) in view.steps.iter().enumerate().skip(at) {
        let Stmt::Assign { dst, value } = s.stmt else { continue };
        let of = |o: &Operand| matches!(o, Operand::Local(l) if made.contains(l));
        let selected = match value {
            Rvalue::Use(of_all) | Rvalue::Item { base: of_all, .. } => of(of_all),
            Rvalue::CallMethod { base, .. } => of(base),
            _ => false,
        };
        if step != at && !selected {
            continue;
        }
        made.insert(*dst);
        let itself = |def: &usize| {
            let is_other = *def != step && excludes(&view.steps[*def], &view.steps[at]);
            is_other && matches!(view.value(*def), Some(Rvalue::Use(Operand::Local(l))) if *l == weights)
        };
        if let Some(def) = view.defs(*dst).iter().find(|def| itself(def)) {
            return Some(*def);
        }
    }
    None
}
