//! Values that a statement of its own may have changed in place. In: the function under execution, a variable and where it is used. Out: whether
//! something of which nothing is known was given the variable before, or a method scaled it by a number that is not written out. Never: a collective
//! that a rule types, or a function of the project, which is executed. Next: `ops.rs`, which asks before it reports.

use super::machine::Machine;
use super::ops::Operand as Given;
use super::practice::expr::Expr;
use super::practice::view::View;
use super::practice::{hidden_change, near};
use crate::ir::{Const, LocalId, Operand, Rvalue, Stmt, StmtId};
use crate::project::{FuncRef, Resolved};
use crate::rules::Violation;
use crate::types::{Axis, AxisType};

/// Methods that scale what they are called on, or add to it.
const SCALES: &[&str] = &["mul_", "div_", "sub_", "add_", "multiply_", "divide_", "true_divide_", "subtract_"];

impl Machine<'_> {
    /// Whether a term of a sum that the rules refuse, or what meets it, may not be any more what it was.
    pub(super) fn is_changed_unseen(&self, id: StmtId, violation: Violation, axis: &Axis, operands: &[Given]) -> bool {
        let pending = matches!(violation, Violation::PartialNonlinear | Violation::PartialAffine);
        if !pending || self.w.modes.typecheck.is_some() {
            return false;
        }
        self.drops_nothing(id)
            || operands.iter().any(|o| {
                let is_sum = o.ty.get(axis).set == AxisType::P;
                (is_sum || violation == Violation::PartialAffine) && self.may_be_changed(id, o.part, !is_sum)
            })
    }

    /// Whether a statement is a dropout that drops nothing, and so leaves a sum what it is.
    fn drops_nothing(&self, id: StmtId) -> bool {
        let place = self.place(id);
        let said: String = self.files[place.file].slice(place.span).chars().filter(|c| !c.is_whitespace()).collect();
        let never =
            |arg: &str| matches!(arg.strip_prefix("p=").unwrap_or(arg), "0" | "0.0" | "0.") || arg == "training=False";
        said.split_once("dropout(").is_some_and(|(_, args)| args.trim_end_matches(')').split(',').skip(1).any(never))
    }

    /// Whether a part of a statement is a variable that may have been changed in place, by what is not followed. `scaled`: or by a number.
    pub(super) fn may_be_changed(&self, id: StmtId, part: usize, scaled: bool) -> bool {
        let place = self.part(id, part);
        let name = self.files[place.file].slice(place.span);
        let Some(local) = self.func().locals().named(name) else { return false };
        let view = View::new(self.project, self.rules, self.files, self.activation());
        let Some(step) = (0..view.steps.len()).find(|step| view.steps[*step].id == id) else { return false };
        let Some(from) = view.last_def(local, step) else { return false };
        (from + 1..step).any(|at| is_given(&view, at, local, name) || scaled && is_scaled(&view, at, local))
    }
}

/// Whether a step gives a variable to something of which nothing is known, and takes nothing back.
fn is_given(view: &View<'_>, step: usize, local: LocalId, name: &str) -> bool {
    let Stmt::Assign { dst, value } = view.steps[step].stmt else { return false };
    if !matches!(value, Rvalue::Call { .. } | Rvalue::CallMethod { .. }) || !is_dropped(view, *dst, 0) {
        return false;
    }
    let said = view.text(view.place(view.steps[step].id));
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let inside = said.split_once('(').map_or("", |(_, args)| args);
    let names = inside.match_indices(name).any(|(at, _)| {
        !inside[..at].ends_with(|c: char| word(c) || c == '.')
            && !inside[at + name.len()..].starts_with(|c: char| word(c) || c == '.')
    });
    // A method of the variable that is called on the spot, and what comes of it is given away.
    let through = || view.reads(step).iter().any(|operand| comes_of(view, operand, local, 0));
    (names || through()) && !is_known(view, value)
}

/// Whether an operand is what a method in place gives of a variable.
fn comes_of(view: &View<'_>, operand: &Operand, local: LocalId, depth: usize) -> bool {
    match view.source(operand) {
        Some((_, Rvalue::CallMethod { base, name, .. })) if name.ends_with('_') && depth < 3 => {
            *base == Operand::Local(local) || comes_of(view, base, local, depth + 1)
        }
        _ => false,
    }
}

/// Whether nothing takes what a step gives, but for a call on it of which nothing is taken either.
fn is_dropped(view: &View<'_>, made: LocalId, depth: usize) -> bool {
    view.is_temp(made)
        && view.readers(made).iter().all(|reader| match view.steps[*reader].stmt {
            Stmt::Assign { dst, value: Rvalue::CallMethod { base, .. } } => {
                *base == Operand::Local(made) && depth < 2 && is_dropped(view, *dst, depth + 1)
            }
            _ => false,
        })
}

/// Whether what a call does is known: a collective with a rule, a function of the project, or one that shows something.
fn is_known(view: &View<'_>, value: &Rvalue) -> bool {
    if near::written_name(view, value).is_some_and(|name| hidden_change::observes(&name)) {
        return true;
    }
    match value {
        Rvalue::Call { callee, .. } => match view.through(callee) {
            Expr::Path(path) => is_followed(view, &path),
            _ => false,
        },
        Rvalue::CallMethod { base, name, .. } => match view.through(base) {
            Expr::Path(path) => is_followed(view, &format!("{path}.{name}")),
            _ => {
                view.project
                    .methods_named(name)
                    .iter()
                    .any(|(class, func)| !near::is_property(view, FuncRef { module: class.module, func: *func }))
                    || view.rules.tensor_method(name).is_some()
            }
        },
        _ => true,
    }
}

/// Whether what has a path is executed, typed by a rule, or only computes something else.
fn is_followed(view: &View<'_>, path: &str) -> bool {
    let last = path.rsplit('.').next().unwrap_or(path);
    matches!(view.project.path(path), Resolved::Func(_))
        || view.rules.may_communicate(last)
        || view.rules.op(path).is_some() && !last.ends_with('_')
}

/// Whether a step scales a variable in place by something else than a number that is written out.
fn is_scaled(view: &View<'_>, step: usize, local: LocalId) -> bool {
    let Some(Rvalue::CallMethod { base: Operand::Local(base), name, args }) = view.value(step) else { return false };
    let number = |operand: &Operand| matches!(view.through(operand), Expr::Const(Const::Int(_) | Const::Float(_)));
    *base == local && SCALES.contains(&name.as_str()) && !args.iter().all(|arg| number(&arg.value))
}
