//! Parameters that a class makes itself. In: the functions of a class. Out: [`Own`], each with every statement that makes it. Never: one that is
//! also set to something else, or that is not trained. Next: `class_marks.rs`, which says what is marked.

use super::class_marks::ClassMarks;
use super::expr::Expr;
use super::view::View;
use crate::ir::{ArgKind, Const, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};
use std::collections::BTreeMap;
use std::rc::Rc;

/// One way in which a parameter is made.
pub struct Making<'a> {
    pub view: Rc<View<'a>>,
    pub step: usize,
    pub place: Place,
    /// The tensor that it is made from.
    pub tensor: Expr,
}

/// A parameter of the class.
pub struct Own<'a> {
    pub name: Name,
    pub makings: Vec<Making<'a>>,
}

/// The parameters of a class by `self.name = Parameter(...)` and its kin, in the order of their names.
pub fn of<'a>(marks: &ClassMarks<'a>) -> Vec<Own<'a>> {
    let mut all: BTreeMap<Name, Vec<Option<Making<'a>>>> = BTreeMap::new();
    for view in &marks.views {
        for (step, s) in view.steps.iter().enumerate() {
            let Some((name, value)) = set(view, s.stmt) else { continue };
            // Where it is written, which need not be the line of the attribute.
            let made_at = view.source(value).map_or(s.id, |(made, _)| view.steps[made].id);
            let place = view.place(made_at);
            let value = view.expr(value);
            if !value.is_none() {
                let making = made(&value).map(|tensor| Making { view: view.clone(), step, place, tensor });
                all.entry(name.clone()).or_default().push(making);
            }
        }
    }
    let own = |(name, makings): (Name, Vec<Option<Making<'a>>>)| {
        Some(Own { name, makings: makings.into_iter().collect::<Option<_>>()? })
    };
    all.into_iter().filter_map(own).collect()
}

/// The attribute of the object that a statement sets: `self.name = ...`, `self.register_parameter("name", ...)`.
fn set<'a>(view: &View<'a>, stmt: &'a Stmt) -> Option<(Name, &'a Operand)> {
    let (base, name, value) = match stmt {
        Stmt::SetAttr { base, name, value } => (base, name.clone(), value),
        Stmt::Assign { value: Rvalue::CallMethod { base, name, args }, .. } if name == "register_parameter" => {
            let [name, value] = &**args else { return None };
            (base, view.expr(&name.value).string()?.clone(), &value.value)
        }
        _ => return None,
    };
    matches!(base, Operand::Local(base) if view.local_name(*base) == "self").then_some((name, value))
}

/// The tensor of a parameter that is trained.
fn made(value: &Expr) -> Option<Expr> {
    let Expr::Call { args, .. } = value else { return None };
    let (_, tensor) = args.first().filter(|_| trains(value))?;
    Some(tensor.clone())
}

/// Whether a value is a parameter that is made here and has a gradient.
pub fn trains(value: &Expr) -> bool {
    let Expr::Call { callee, args, .. } = value else { return false };
    let whole = |e: &Expr| *e == Expr::Const(Const::Bool(true));
    let named = |kind: &ArgKind| matches!(kind, ArgKind::Keyword(k) if k == "requires_grad");
    callee.last_name() == Some("Parameter")
        && args.iter().skip(1).all(|(kind, e)| whole(e) && (named(kind) || *kind == ArgKind::Positional))
}
