//! Where values go: names, attributes, items, tuples; and `del`.
//!
//! In: a target and an operand. Out: the statements that store it, and the list of targets that claims refer to.
//! Never: evaluating the value. Next: `comprehension.rs`.

use super::{Lowerer, span};
use crate::ir::{ClaimTarget, LocalId, Operand, Rvalue, Stmt};
use crate::source::{Name, Span};
use ruff_python_ast::Expr;

/// How the slot of a target is finished, once something was assigned to it.
pub(super) enum After<'a> {
    Nothing,
    SetGlobal(&'a str, Span),
    Store(&'a Expr),
}

impl<'a> Lowerer<'a> {
    pub(super) fn note_target(&mut self, target: ClaimTarget) {
        if !self.claims.is_empty() {
            self.claims.targets.push(target);
        }
    }

    /// Stores `value`, whose expression is at `from`.
    pub(super) fn store(&mut self, target: &'a Expr, value: Operand, from: Span) {
        self.deeper(span(target), |this| this.store_at(target, value, from));
    }

    fn store_at(&mut self, target: &'a Expr, value: Operand, from: Span) {
        match target {
            Expr::Name(name) => match self.slot(name.id.as_str()) {
                Some(dst) => {
                    self.note_target(ClaimTarget::Local(dst));
                    self.assign(dst, Rvalue::Use(value), from, Box::new([from]));
                }
                None => {
                    self.note_target(ClaimTarget::Other);
                    self.emit(
                        Stmt::SetGlobal { name: Name::from(name.id.as_str()), value },
                        span(target),
                        Box::new([from]),
                    );
                }
            },
            Expr::Attribute(attribute) => {
                let base = self.expr(&attribute.value);
                let name = self.word(attribute.attr.as_str());
                self.note_target(ClaimTarget::Attr(base.clone(), name.clone()));
                let parts = Box::new([span(attribute.value.as_ref()), from]);
                self.emit(Stmt::SetAttr { base, name, value }, span(target), parts);
            }
            Expr::Subscript(subscript) => {
                let base = self.expr(&subscript.value);
                let index = self.expr(&subscript.slice);
                self.note_target(ClaimTarget::Other);
                let parts = Box::new([span(subscript.value.as_ref()), span(subscript.slice.as_ref()), from]);
                let index = Box::new(index);
                self.emit(Stmt::SetItem { base, index, value }, span(target), parts);
            }
            Expr::Tuple(tuple) => self.unpack(&tuple.elts, span(target), value, from),
            Expr::List(list) => self.unpack(&list.elts, span(target), value, from),
            Expr::Starred(starred) => self.store(&starred.value, value, from),
            // Only in a file with syntax errors.
            other => {
                self.note_target(ClaimTarget::Other);
                self.expr(other);
            }
        }
    }

    fn unpack(&mut self, targets: &'a [Expr], at: Span, value: Operand, from: Span) {
        let (mut before, mut star, mut after) = (Vec::new(), None, Vec::new());
        let mut parts = Vec::with_capacity(targets.len() + 1);
        parts.push(from);
        let mut finish = Vec::new();
        for target in targets {
            let (inner, starred) = match target {
                Expr::Starred(inner) => (inner.value.as_ref(), true),
                other => (other, false),
            };
            let (slot, then) = self.target_slot(inner);
            // The claims of a starred name and of nested targets come in the order of the slots they fill.
            match then {
                After::Nothing if !starred => self.note_target(ClaimTarget::Local(slot)),
                After::Nothing | After::SetGlobal(..) => self.note_target(ClaimTarget::Other),
                After::Store(_) => {}
            }
            let noted = self.claims.targets.len();
            finish.push((slot, then, span(target), noted));
            parts.push(span(target));
            match (starred, star) {
                (true, None) => star = Some(slot),
                (_, None) => before.push(slot),
                (_, Some(_)) => after.push(slot),
            }
        }
        self.emit(
            Stmt::Unpack { value, before: before.into(), star, after: after.into() },
            at,
            parts.into_boxed_slice(),
        );
        let mut inserted = 0;
        for (slot, then, at, noted) in finish {
            let tail = self.claims.targets.split_off((noted + inserted).min(self.claims.targets.len()));
            self.finish_target(slot, then, at);
            inserted = self.claims.targets.len() - noted;
            self.claims.targets.extend(tail);
        }
    }

    /// A slot that a construct can assign directly, and what remains to be done for the target afterwards.
    pub(super) fn target_slot(&mut self, target: &'a Expr) -> (LocalId, After<'a>) {
        match target {
            Expr::Name(name) => self.name_slot(name.id.as_str(), span(target)),
            other => (self.temp(), After::Store(other)),
        }
    }

    pub(super) fn name_slot(&mut self, name: &'a str, at: Span) -> (LocalId, After<'a>) {
        match self.slot(name) {
            Some(slot) => (slot, After::Nothing),
            None => (self.temp(), After::SetGlobal(name, at)),
        }
    }

    /// Does what remains for a target after its slot was assigned.
    pub(super) fn finish_target(&mut self, slot: LocalId, then: After<'a>, at: Span) {
        match then {
            After::Nothing => {}
            After::SetGlobal(name, span) => {
                self.emit(
                    Stmt::SetGlobal { name: Name::from(name), value: Operand::Local(slot) },
                    span,
                    Box::new([span]),
                );
            }
            After::Store(target) => self.store(target, Operand::Local(slot), at),
        }
    }

    pub(super) fn delete(&mut self, target: &'a Expr) {
        match target {
            Expr::Name(name) => {
                if let Some(local) = self.slot(name.id.as_str()) {
                    self.emit(Stmt::Delete { local }, span(target), Box::new([]));
                }
            }
            Expr::Attribute(attribute) => {
                self.expr(&attribute.value);
            }
            Expr::Subscript(subscript) => {
                self.expr(&subscript.value);
                self.expr(&subscript.slice);
            }
            Expr::Tuple(tuple) => tuple.elts.iter().for_each(|t| self.delete_nested(t)),
            Expr::List(list) => list.elts.iter().for_each(|t| self.delete_nested(t)),
            other => {
                self.expr(other);
            }
        }
    }

    fn delete_nested(&mut self, target: &'a Expr) {
        self.deeper(span(target), |this| this.delete(target));
    }
}
