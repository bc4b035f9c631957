//! How many gradients a backward returns, by its return statements. In: the methods of a class. Out: returns that are too short, or that
//! give a gradient to an argument that does not exist. Never: values. Next: `apply.rs`.

use super::super::finding::FindingKind;
use super::super::machine::Machine;
use super::super::practice::arity::is_compiled_without;
use crate::ir::{Block, BuildKind, Const, Func, Item, LocalId, Operand, ParamKind, Rvalue, Stmt, StmtId};
use crate::project::ClassRef;
use crate::source::Place;

/// A return statement, and which elements of its tuple are more than `None`; `None` where it is no tuple that is written there.
struct Returned {
    at: StmtId,
    elements: Option<Vec<bool>>,
}

impl Machine<'_> {
    /// Compares the returns of the backward with the arguments: those of a call, or those that every call has.
    pub fn check_count(&mut self, class: ClassRef, given: Option<usize>) {
        let Some(methods) = self.methods_of(class) else { return };
        let forward = self.project.func(methods.forward);
        if forward.params.iter().any(|p| matches!(p.kind, ParamKind::VarArgs | ParamKind::KwArgs)) {
            return;
        }
        let own = usize::from(methods.setup.is_none());
        let Some(most) = forward.params.len().checked_sub(own) else { return };
        let required = forward.params.iter().skip(own).filter(|p| !p.has_default).count();
        // A call with more arguments than the forward takes is wrong itself, or of another version.
        let given = given.filter(|n| *n <= most);
        let expected = given.unwrap_or(required);
        // Nobody differentiates what a backward itself applies.
        if given.is_some() && self.stack.iter().any(|a| a.func == methods.backward) {
            return;
        }
        let backward = self.project.func(methods.backward);
        let returned = returns(backward);
        // Where arguments may be left out, each return is for a number of them.
        let enough = |r: &Returned| r.elements.as_ref().is_none_or(|e| e.len() >= expected);
        let each = required < most && returned.iter().any(enough);
        for found in &returned {
            let Some(elements) = &found.elements else { continue };
            if each && elements.len() >= required {
                continue;
            }
            // A backward that gives no gradient at all is that of outputs without one, such as indices, and never runs.
            if !elements.contains(&true) {
                continue;
            }
            let beyond = elements.iter().skip(most).any(|some| *some);
            // Every argument that has no gradient says so, and what is over may be `None`.
            if elements.len() >= expected && !beyond {
                continue;
            }
            if !beyond && is_compiled_without((self.project, self.files), class, forward, (own, elements.len())) {
                continue;
            }
            let expected = if beyond { most } else { expected };
            let place = Place { file: self.project.file(methods.backward.module), span: backward.spans().of(found.at) };
            let class = self.project.class(class).name.clone();
            self.report(place, FindingKind::GradientCount { class, returned: elements.len(), expected });
        }
    }

    /// The place of the only return statement of a function.
    pub fn only_return(&self, at: crate::project::FuncRef) -> Option<Place> {
        let func = self.project.func(at);
        match returns(func).as_slice() {
            [one] => Some(Place { file: self.project.file(at.module), span: func.spans().of(one.at) }),
            _ => None,
        }
    }
}

fn returns(func: &Func) -> Vec<Returned> {
    let (mut built, mut out) = (Vec::new(), Vec::new());
    collect(func.body(), &mut built, &mut out);
    out
}

fn collect(block: &Block, built: &mut Vec<(LocalId, Option<Vec<bool>>)>, out: &mut Vec<Returned>) {
    for node in block {
        match &node.stmt {
            Stmt::Assign { dst, value: Rvalue::Build { kind: BuildKind::Tuple, items } } => {
                let some = |item: &Item| match item {
                    Item::One(operand) => Some(!matches!(operand, Operand::Const(Const::None))),
                    Item::Star(_) => None,
                };
                built.push((*dst, items.iter().map(some).collect()));
            }
            Stmt::Assign { dst, .. } => built.push((*dst, None)),
            Stmt::Return { value } => {
                let elements = match value {
                    Operand::Local(local) => {
                        built.iter().rev().find(|(l, _)| l == local).and_then(|(_, items)| items.clone())
                    }
                    _ => None,
                };
                out.push(Returned { at: node.id, elements });
                // What stands behind a return is never reached.
                break;
            }
            Stmt::Raise => break,
            Stmt::If { then, orelse, .. } => {
                collect(then, built, out);
                collect(orelse, built, out);
            }
            Stmt::With { body, .. } | Stmt::For { body, .. } | Stmt::While { body, .. } => collect(body, built, out),
            Stmt::Try { body, handlers, orelse, finally } => {
                for b in [body, orelse, finally].into_iter().chain(handlers) {
                    collect(b, built, out);
                }
            }
            _ => {}
        }
    }
}
