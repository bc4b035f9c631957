//! Parts of parameters that a class does not mark, where it marks others. In: a class that marks parts by name. Out: a parameter of its own, or
//! of a module that it makes, whose size is divided by the number of ranks of the axis and that carries no mark. Never: one that something
//! else may mark. Next: `class_marks.rs`, which finds the marks; `partition.rs` asks constructors alone.

use super::class_marks::{self, ClassMarks, Site};
use super::expr::Expr;
use super::found::Practice;
use super::view::View;
use super::{Class, Found, Lint, divided, marked_elsewhere, own_parameters, partition};
use crate::ir::{ArgKind, Const, Operand, Stmt, UnOp};
use crate::project::Resolved;
use crate::rules::Entry;
use crate::source::{Name, Place};
use crate::types::AxisType;

/// A parameter that is a part, by its size.
struct Part {
    path: Name,
    axes: Vec<Name>,
    made: Place,
}

/// Parameters of a class that are parts and not marked, beside others that it marks.
pub fn unmarked<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let Some(marks) = class.own_marks(lint) else { return };
    let of_parts = |site: &&Site<'_>| {
        !site.is_off && site.path.is_some() && lint.rules.mark(&site.mark).is_some_and(|r| r.set == AxisType::V)
    };
    let Some(site) = marks.sites.iter().find(of_parts).filter(|_| !marks.freezes(lint) && !marks.has_own_ways(lint))
    else {
        return;
    };
    let Some(beside) = &site.path else { return };
    let mut parts = own_parts(marks);
    for view in &marks.views {
        parts.extend(parts_of_modules(view));
    }
    for part in parts {
        let told = |(place, found): &(Place, Practice)| {
            *place == part.made
                && matches!(found, Practice::PartitionNotMarked { parameter, .. } if *parameter == part.path)
        };
        if marks.touches(&part.path, &site.mark, beside) || out.iter().any(told) {
            continue;
        }
        let is_of_mark = partition::mark_over(&site.view, &part.axes).as_ref() == Some(&site.mark);
        if is_of_mark && !marked_elsewhere::may_be(marks, lint, &part.path, &site.mark) {
            let (parameter, mark, axes) = (part.path, site.mark.clone(), part.axes);
            let other = site.place();
            out.push((
                part.made,
                Practice::PartitionNotMarked { parameter, mark, axes, other, is_asked: false, otherwise: None },
            ));
        }
    }
}

/// The parameters that a class makes itself and that are parts.
fn own_parts(marks: &ClassMarks<'_>) -> Vec<Part> {
    let part = |own: own_parameters::Own<'_>| {
        let mut axes = None;
        for making in &own.makings {
            axes = Some(divided::tensor(&making.view, &making.tensor, 0)?);
        }
        let first = own.makings.first()?;
        // Where the constructor's own check reports it.
        let made = first.view.place(first.view.steps[first.step].id);
        Some(Part { path: own.name, axes: axes?, made })
    };
    own_parameters::of(marks).into_iter().filter_map(part).collect()
}

/// The parameters of modules that a function makes, and that are parts by the sizes that these are given.
fn parts_of_modules(view: &View<'_>) -> Vec<Part> {
    let mut out = Vec::new();
    for step in &view.steps {
        let Stmt::SetAttr { base: Operand::Local(base), name, value } = step.stmt else { continue };
        if view.local_name(*base) != "self" {
            continue;
        }
        let Expr::Call { callee, args, .. } = view.expr(value) else { continue };
        let Some(path) = callee.path() else { continue };
        let made = view.place(step.id);
        for (parameter, axes) in split_parameters(view, path, &args) {
            out.push(Part { path: Name::from(format!("{name}.{parameter}")), axes, made });
        }
    }
    out
}

/// The parameters of a module that a call makes, those that are parts, with the axes.
fn split_parameters(view: &View<'_>, path: &Name, args: &[(ArgKind, Expr)]) -> Vec<(Name, Vec<Name>)> {
    let keyword = |name: &str| args.iter().find(|(k, _)| matches!(k, ArgKind::Keyword(n) if n == name)).map(|(_, e)| e);
    let Some(Entry::Module(rule)) = view.rules.get(path) else {
        let first = args.first().filter(|(kind, _)| *kind == ArgKind::Positional).map(|(_, e)| e);
        let size = first.or_else(|| keyword("hidden_size")).or_else(|| keyword("normalized_shape"));
        let axes = size.filter(|_| is_norm(view, path)).and_then(|size| divided::size(view, size, 0));
        return axes.map(|axes| (Name::from("weight"), axes)).into_iter().collect();
    };
    let given = |name: &str| {
        let by_place = || rule.args.index(name).and_then(|i| args.get(i)).filter(|(k, _)| *k == ArgKind::Positional);
        keyword(name).or_else(|| by_place().map(|(_, e)| e))
    };
    let absent = |part: &Name| {
        let conditions = rule.params_when.iter().filter(|(p, _)| p == part).flat_map(|(_, conditions)| conditions);
        conditions.into_iter().any(|c| given(c).is_some_and(|e| is_off(view, e)))
    };
    let axes = |sizes: &[Name]| sizes.iter().find_map(|s| divided::size(view, given(s.trim_start_matches('*'))?, 0));
    let parts = rule.params.iter().filter(|(part, _)| !absent(part));
    parts.filter_map(|(part, sizes)| Some((part.clone(), axes(sizes)?))).collect()
}

/// Whether a class, by its name, is that of normalisations with a weight: of the project, and marking nothing, or from outside.
fn is_norm(view: &View<'_>, path: &Name) -> bool {
    let is_named = path.rsplit('.').next().is_some_and(|last| last.to_lowercase().contains("norm"));
    let marks = view.rules.marks();
    let is_class = || match view.project.path(path) {
        Resolved::Class(_) => marks.iter().all(|mark| class_marks::calls_marker(view, path, mark, 0) == Some(false)),
        Resolved::External(_) => true,
        _ => false,
    };
    is_named && is_class()
}

/// Whether an argument is false, or asserted to be.
fn is_off(view: &View<'_>, given: &Expr) -> bool {
    let denied = |e: &Expr| matches!(e, Expr::Unary(UnOp::Not, of) if **of == *given);
    *given == Expr::Const(Const::Bool(false))
        || view.steps.iter().any(|s| matches!(s.stmt, Stmt::Assert { test } if denied(&view.expr(test))))
}
