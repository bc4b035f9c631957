//! Classes of norms that a sum of gradients leaves out. In: a function that goes through modules, and registers a hook, marks or sums for those
//! of some classes. Out: where another function of the file says which class of norm a configuration means, one of several, and some of these are left out.
//! Never: a test of a name, of a base, or of classes that the other function does not give; a function that tells more than norms apart.
//! Source: gpt-neox, pull request 1257. Next: `uneven.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::takes::goes_through_modules;
use super::view::View;
use crate::ir::{FuncKind, Stmt};
use crate::source::{Name, Place};

/// What sums gradients, or says that they are to be summed.
pub const SUMS: &[&str] =
    &["register_hook(", "register_post_accumulate_grad_hook(", "all_reduce(", "sequence_parallel"];

/// `if isinstance(module, nn.LayerNorm): ...` beside a function that returns `RMSNorm`, or `nn.LayerNorm`
pub fn chosen(view: &View<'_>, out: &mut Found) {
    if view.func.kind != FuncKind::Function || !near::has_any(view.code(), SUMS) {
        return;
    }
    for step in &view.steps {
        let Some(guard) = step.guards.last().filter(|g| g.holds) else { continue };
        let Some(asked) = classes_asked(view, &view.through(guard.test)) else { continue };
        let text = view.text(view.place(step.id));
        if !near::has_any(text, SUMS) || !walks_modules(view, step) {
            continue;
        }
        let Some((function, left, returned)) = given_otherwise(view, &asked) else { continue };
        let test = view.part(guard.at, 0);
        let asked = asked.first().cloned().unwrap_or_default();
        let found = Membership::ClassLeftOut { asked, left, function, returned, sum: view.place(step.id) };
        out.push((test, Practice::Membership(found)));
        return;
    }
}

/// The norms that `isinstance(module, ..)` asks for, nothing but norms.
fn classes_asked(view: &View<'_>, test: &Expr) -> Option<Vec<Name>> {
    let [_, (_, types)] = test.call_of("isinstance")? else { return None };
    let one = |e: &Expr| e.last_name().filter(|name| name.ends_with("Norm")).map(Name::from);
    match near::deep(view, types) {
        Expr::Build(items) => items.iter().map(one).collect(),
        other => Some(vec![one(&other)?]),
    }
}

/// Whether a loop around a step goes through the modules of a model.
fn walks_modules(view: &View<'_>, step: &super::view::Step<'_>) -> bool {
    step.loops.iter().any(|at| match view.steps[*at].stmt {
        Stmt::For { iter, .. } => goes_through_modules(&view.through(iter)),
        _ => false,
    })
}

/// A function of the file that returns one of several classes of norms, of which some are asked for and one is not: that one, and where.
fn given_otherwise(view: &View<'_>, asked: &[Name]) -> Option<(Name, Name, Place)> {
    near::functions(view, view.at.module).into_iter().filter(|at| *at != view.at).find_map(|at| {
        let other = near::shared(view, at);
        let returned: Vec<(Name, Place)> = other
            .steps
            .iter()
            .filter_map(|step| match step.stmt {
                Stmt::Return { value } => Some((class_of(&other, &other.through(value))?, other.place(step.id))),
                _ => None,
            })
            .collect();
        let takes = |name: &Name| asked.contains(name);
        let all_norms = returned.len() > 1 && returned.iter().all(|(name, _)| name.ends_with("Norm"));
        if !all_norms || !returned.iter().any(|(name, _)| takes(name)) || derives(view, asked) {
            return None;
        }
        let (left, place) = returned.into_iter().find(|(name, _)| !takes(name))?;
        Some((other.func.name.clone(), left, place))
    })
}

/// Whether a class of the file is derived from one that is asked for.
fn derives(view: &View<'_>, asked: &[Name]) -> bool {
    let lines = || view.file().lines().map(str::trim_start).filter(|line| line.starts_with("class "));
    lines().any(|line| {
        let bases = line.split_once('(').map_or("", |(_, bases)| bases);
        asked.iter().any(|name| near::has_word(bases, name))
    })
}

/// The class that is returned, alone or first of several values.
fn class_of(view: &View<'_>, returned: &Expr) -> Option<Name> {
    let class = match returned {
        Expr::Build(items) => items.first()?,
        other => other,
    };
    match class {
        Expr::Path(_) | Expr::Attr(..) => class.last_name().map(Name::from),
        Expr::Local(local) => Some(view.local_name(*local).clone()),
        _ => None,
    }
}
