//! Activations whose gradient is left to the compiler. In: a `forward`. Out: annotations of the forward alone, where the file imports
//! the form for both directions and does not use it. Never: parameters and inputs, or code without gradients.
//! Source: `corpus/bugs/xla-mark-sharding-forward-only`. Next: `mod.rs`.

use super::found::Sharding;
use crate::infer::practice::view::View;
use crate::ir::{Operand, Rvalue};
use crate::project::Resolved;
use crate::rules::{Entry, RuleBook};
use crate::source::{Name, Place, Span};

pub fn forward_only(view: &View<'_>, out: &mut Vec<(Place, Sharding)>) {
    if view.func.name != "forward" || view.func.class.is_none() {
        return;
    }
    let Some((differentiable, imported)) = unused(view) else { return };
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value @ Rvalue::CallMethod { args, .. } | value @ Rvalue::Call { args, .. }) = view.value(i) else {
            continue;
        };
        let marks = view.callee(value).is_some_and(|path| does(view.rules, &path, "sharding-mark"));
        let activation = view.argument(args, 0, "t").is_some_and(|t| is_activation(view, t));
        if marks && activation && !view.without_gradient(i) {
            let found = Sharding::ForwardOnly { differentiable: differentiable.clone(), imported };
            out.push((view.place(step.id), found));
        }
    }
}

fn does(rules: &RuleBook, path: &str, role: &str) -> bool {
    matches!(rules.get(path), Some(Entry::Intrinsic(rule)) if rule.does == role)
}

/// A variable that holds what a submodule returned.
fn is_activation(view: &View<'_>, operand: &Operand) -> bool {
    let Operand::Local(local) = operand else { return false };
    let own = |o: &Operand| matches!(o, Operand::Local(l) if view.func.params.first().is_some_and(|p| p.local == *l));
    !view.is_temp(*local)
        && !view.is_param(*local)
        && matches!(view.defs(*local), [one] if matches!(view.value(*one), Some(Rvalue::CallMethod { base, .. }) if own(base)))
}

/// A name that the module imports for both directions and does not read.
fn unused(view: &View<'_>) -> Option<(Name, Place)> {
    let project = view.project;
    let text = view.files[project.file(view.at.module)].whole();
    let mut names: Vec<&Name> = project.bindings(view.at.module).map(|(name, _)| name).collect();
    names.sort();
    names.into_iter().find_map(|name| {
        let Some(Resolved::External(path)) = project.member(view.at.module, name) else { return None };
        if !does(view.rules, &format!("{path}.apply"), "sharding-mark-gradients") {
            return None;
        }
        let mut words = occurrences(text, name);
        let at = words.next()?;
        let span = Span::new(u32::try_from(at).ok()?, u32::try_from(at + name.len()).ok()?);
        words.next().is_none().then(|| (name.clone(), view.spot(span)))
    })
}

/// Where a name stands as a word.
fn occurrences<'t>(text: &'t str, name: &'t str) -> impl Iterator<Item = usize> + 't {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name)
        .map(|(at, _)| at)
        .filter(move |at| !text[..*at].ends_with(inside) && !text[*at + name.len()..].starts_with(inside))
}
