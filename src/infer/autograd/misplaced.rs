//! Gradients in the wrong place. In: the methods of a class, and what its backward returns. Out: an argument that is no tensor and gets
//! a gradient, and a tensor that the result is made of and gets none. Never: a backward that gives no gradient at all, which is meant.
//! Source: DESIGN.md section 6. Next: `derive.rs`.

use super::super::expr::CallArgs;
use super::super::machine::Machine;
use super::super::practice::expr::Expr;
use super::super::practice::view::View;
use super::super::value::Value;
use super::derive::{Methods, Trouble};
use crate::ir::{Const, LocalId, Operand, Stmt};
use crate::project::FuncRef;
use crate::source::{Name, Place};
use crate::types::Term;
use std::sync::Arc;

/// Words of annotations of what is no tensor.
const PLAIN_HINTS: &[&str] = &["int", "bool", "str", "ProcessGroup", "DeviceMesh"];

impl Machine<'_> {
    /// Which arguments are no tensors: by what is given, or by their annotations and by collectives that take them for a group.
    pub fn plain_arguments(&self, methods: &Methods, own: usize, args: Option<&CallArgs>) -> Vec<bool> {
        let forward = View::new(self.project, self.rules, self.files, methods.forward);
        let mut attrs: Vec<(Name, LocalId)> = Vec::new();
        for step in &forward.steps {
            if let Stmt::SetAttr { base, name, value } = step.stmt
                && own == 1
                && is_context(&forward, base)
                && let Expr::Local(local) = forward.through(value)
            {
                attrs.push((name.clone(), local));
            }
        }
        let mut groups = Vec::new();
        self.groups_in(&forward, &mut |expr| {
            if let Expr::Local(local) = expr {
                groups.push(*local);
            }
        });
        let backward = View::new(self.project, self.rules, self.files, methods.backward);
        self.groups_in(&backward, &mut |expr| {
            if let Expr::Attr(_, name) = expr {
                groups.extend(attrs.iter().filter(|(n, _)| n == name).map(|(_, l)| *l));
            }
        });
        let plain = |p: &crate::ir::Param| {
            let hint = p.hint.as_deref().unwrap_or("");
            let last = hint.rsplit('.').next().unwrap_or(hint);
            PLAIN_HINTS.contains(&last) || groups.contains(&p.local)
        };
        let given = |(i, p): (usize, &crate::ir::Param)| match args.and_then(|a| a.get(i, &p.name)) {
            Some(value) => is_plain_value(value),
            None => plain(p),
        };
        forward.func.params.iter().skip(own).enumerate().map(given).collect()
    }

    /// The groups of collectives in a function.
    fn groups_in(&self, view: &View<'_>, then: &mut dyn FnMut(&Expr)) {
        for step in 0..view.steps.len() {
            let call = view.value(step).and_then(|v| view.collective(v));
            if let Some(group) = call.and_then(|c| c.group) {
                then(&view.through(group));
            }
        }
    }

    /// What is wrong with the places of the gradients of one way through the backward.
    pub fn misplaced(&self, plain: &[bool], result: &Arc<Term>, returned: &[Value]) -> Option<Trouble> {
        let names = &self.deriving.as_ref()?.params;
        let upstream = |v: &Value| {
            let term = self.term(v);
            let steps = term.steps();
            steps.iter().any(|s| matches!(s, Term::Grad(_)))
        };
        let named = |i: usize| names.get(i).cloned();
        let given = (0..returned.len()).find(|i| plain.get(*i) == Some(&true) && upstream(&returned[*i]));
        // Only of a tensor that the ranks exchange and nothing else is done with is it sure that it takes part.
        let source = start(result).filter(|i| returned.get(*i).is_some_and(Value::is_none));
        // One tensor stands in for another on the way forward, and the gradient goes to that one.
        let through = |(i, v): (usize, &Value)| plain.get(i) != Some(&true) && upstream(v);
        let stands_in = matches!(result.as_ref(), Term::Arg(_)) && returned.iter().enumerate().any(through);
        let missing = source.filter(|_| !stands_in && returned.iter().any(upstream));
        if given.is_none() && missing.is_none() {
            return None;
        }
        Some(Trouble::Misplaced { given: given.and_then(named), missing: missing.and_then(named) })
    }

    /// The only return statement, or the name of a method.
    pub fn return_or_name(&self, at: FuncRef) -> Place {
        self.only_return(at).unwrap_or_else(|| self.name_of(at))
    }

    /// Where a function is named.
    pub fn name_of(&self, at: FuncRef) -> Place {
        Place { file: self.project.file(at.module), span: self.project.func(at).name_span }
    }
}

/// Whether a value is surely no tensor.
fn is_plain_value(value: &Value) -> bool {
    matches!(value, Value::Group(_) | Value::Const(Const::Bool(_) | Const::Int(_) | Const::Str(_)) | Value::Size(_))
}

fn is_context(view: &View<'_>, base: &Operand) -> bool {
    let first = view.func.params.first().map(|p| p.local);
    matches!(view.expr(base), Expr::Local(local) if Some(local) == first)
}

/// The argument that a chain of collectives starts from.
fn start(term: &Term) -> Option<usize> {
    match term {
        Term::Arg(i) => Some(*i),
        other => start(other.inner()?),
    }
}
