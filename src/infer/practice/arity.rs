//! How many gradients the backward of an autograd function returns. In: a class. Out: a `return` that gives too few or too many, from the
//! text alone, where execution sees no collective. Never: what the gradients are. Source: DESIGN.md section 6. Next: `mod.rs`.

use super::super::finding::FindingKind;
use super::super::value::Flavour;
use super::Lint;
use crate::ir::{BuildKind, Const, Func, Item, Operand, ParamKind, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, Project};
use crate::source::{Files, Name, Place};

/// Every `return` of the backward of a class that cannot fit its forward.
pub fn arity(lint: &Lint<'_>, class: ClassRef, out: &mut Vec<(Place, FindingKind)>) {
    let method = |name: &str| lint.project.own_method(class, name);
    let (Some(forward), Some(backward)) = (method("forward"), method("backward")) else { return };
    let bound = |at: FuncRef| lint.settings.static_flavour(lint.project, lint.rules, at) == Some(Flavour::ClassMethod);
    // A class method has one parameter more.
    if !lint.is_autograd(class) || bound(forward) || bound(backward) {
        return;
    }
    let skipped = usize::from(method("setup_context").is_none());
    let Some((least, most)) = arguments(lint.project.func(forward), skipped) else { return };
    let view = lint.view(backward);
    if view.func.is_generator {
        return;
    }
    for step in &view.steps {
        let Stmt::Return { value } = step.stmt else { continue };
        let Some((_, Rvalue::Build { kind: BuildKind::Tuple, items })) = view.source(value) else { continue };
        let given: Option<Vec<&Operand>> = items
            .iter()
            .map(|i| match i {
                Item::One(o) => Some(o),
                Item::Star(_) => None,
            })
            .collect();
        let Some(given) = given else { continue };
        // A backward that gives no gradient at all is that of outputs without one, such as indices, and never runs.
        if given.iter().all(|o| matches!(o, Operand::Const(Const::None))) {
            continue;
        }
        let many = given.len() > most && given[most..].iter().any(|o| !matches!(o, Operand::Const(Const::None)));
        let few = given.len() < least
            && !is_compiled_without(
                (lint.project, lint.files),
                class,
                lint.project.func(forward),
                (skipped, given.len()),
            );
        if few || many {
            let expected = if many { most } else { least };
            let kind = FindingKind::GradientCount {
                class: lint.project.class(class).name.clone(),
                returned: given.len(),
                expected,
            };
            out.push((view.place(step.id), kind));
        }
    }
}

/// Whether the last arguments, for which there is no gradient, are no tensors, in a program that runs compiled in one piece: there the gradients
/// are read for tensors alone. Source: torch `AutogradFunctionApplyVariable`.
pub fn is_compiled_without(
    (project, files): (&Project, &Files),
    class: ClassRef,
    forward: &Func,
    (skipped, returned): (usize, usize),
) -> bool {
    let missing = forward.params.iter().skip(skipped + returned);
    let number = |p: &crate::ir::Param| match &p.hint {
        Some(hint) => matches!(hint.as_str(), "float" | "int" | "bool" | "str"),
        None => p.has_default || ["scale", "eps", "factor", "size", "dim", "alpha"].iter().any(|w| p.name.contains(w)),
    };
    let module = project.name(class.module);
    let (own, last) = (project.file(class.module), module.rsplit('.').next().unwrap_or(module));
    // The program that compiles its model names the module, or is it.
    let compiles = || files.saying("fullgraph=True").any(|file| file == own || files.says(file, last));
    missing.clone().next().is_some() && missing.clone().all(number) && compiles()
}

/// The least and the greatest number of arguments of a forward without its context.
fn arguments(forward: &Func, skipped: usize) -> Option<(usize, usize)> {
    let plain = |p: &crate::ir::Param| matches!(p.kind, ParamKind::Normal | ParamKind::PositionalOnly);
    if forward.params.len() < skipped || !forward.params.iter().all(plain) {
        return None;
    }
    let rest = &forward.params[skipped..];
    Some((rest.iter().filter(|p| !p.has_default).count(), rest.len()))
}

/// Whether a finding says again what execution has found of the class.
pub fn is_told(found: &[super::super::finding::Finding], place: Place, kind: &FindingKind) -> bool {
    let FindingKind::GradientCount { class, .. } = kind else { return false };
    let same = |c: &Name| c == class;
    found.iter().any(|f| {
        f.place.file == place.file && matches!(&f.kind, FindingKind::GradientCount { class, .. } if same(class))
    })
}
