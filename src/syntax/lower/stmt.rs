//! Statements without blocks, and the dispatch to those with blocks.
//!
//! In: statements. Out: nodes in the current block, claims attached. Never: deciding where a value is stored
//! (`target.rs`). Next: `compound.rs`, `define.rs`.

use super::literal::binary_op;
use super::{Lowerer, Value, span};
use crate::ir::{ClaimTarget, Const, LocalId, Operand, Rvalue, Stmt};
use crate::source::{Idx, Name, Span};
use crate::syntax::attach::{Moment, StmtKind};
use ruff_python_ast as ast;
use ruff_python_ast::{Expr, Stmt as PyStmt};

impl<'a> Lowerer<'a> {
    pub(super) fn stmts(&mut self, body: &'a [PyStmt]) {
        for stmt in body {
            if self.deeper(span(stmt), |this| this.stmt(stmt)).is_none() {
                return;
            }
        }
    }

    fn stmt(&mut self, stmt: &'a PyStmt) {
        if self.claims.is_empty() {
            return self.dispatch(stmt);
        }
        let at = span(stmt).start;
        let kind = match stmt {
            PyStmt::Return(_) => StmtKind::Return,
            _ => StmtKind::Other,
        };
        if has_blocks(stmt) {
            // Claims on the header are attached by the construct, once its header is lowered.
            self.dispatch(stmt);
        } else {
            self.claims.targets.clear();
            // What a comment above says of other variables holds before the statement; one that only calls may change them.
            if matches!(stmt, PyStmt::Assign(_) | PyStmt::AnnAssign(_) | PyStmt::Return(_)) && self.claims.is_above(at)
            {
                self.nothing(at);
                let last = crate::ir::StmtId::from_index(self.cur().spans.len() - 1);
                self.claims.put_before(at, last);
            }
            let before = self.cur().spans.len();
            self.dispatch(stmt);
            self.claim(at, Moment::OnLine, kind, before);
        }
        self.claims.targets.clear();
        let before = self.cur().spans.len();
        self.claim(at, Moment::After, kind, if has_blocks(stmt) { before } else { before.saturating_sub(1) });
    }

    /// Attaches the comments of the logical line that starts at `at` to the last statement emitted; where none was
    /// emitted since `before`, to one that does nothing.
    pub(super) fn claim(&mut self, at: u32, moment: Moment, kind: StmtKind, before: usize) {
        if !self.claims.is_due(at, moment) {
            return;
        }
        if self.cur().spans.len() == before {
            self.nothing(at);
        }
        let here = self.cur();
        let (func, last) = (here.id, crate::ir::StmtId::from_index(here.spans.len() - 1));
        self.claims.attach(at, moment, kind, func, last);
    }

    /// A statement that does nothing.
    fn nothing(&mut self, at: u32) {
        let here = Span::new(at, at);
        self.assign_temp(Rvalue::Use(Operand::Const(Const::None)), here, Box::new([here]));
    }

    /// Claims on the header of a statement with a block: they hold when the block is entered.
    pub(super) fn claim_header(&mut self, at: u32) {
        if !self.claims.is_empty() {
            let before = self.cur().spans.len();
            self.claim(at, Moment::OnLine, StmtKind::Other, before);
            self.claims.targets.clear();
        }
    }

    fn dispatch(&mut self, stmt: &'a PyStmt) {
        match stmt {
            PyStmt::FunctionDef(node) => self.function_def(node),
            PyStmt::ClassDef(node) => self.class_def(node),
            PyStmt::Return(node) => self.return_stmt(node),
            PyStmt::Delete(node) => node.targets.iter().for_each(|t| self.delete(t)),
            PyStmt::TypeAlias(_) => {}
            PyStmt::Assign(node) => self.assign_stmt(node),
            PyStmt::AugAssign(node) => self.aug_assign(node),
            PyStmt::AnnAssign(node) => self.ann_assign(node),
            PyStmt::For(node) => self.for_stmt(node),
            PyStmt::While(node) => self.while_stmt(node),
            PyStmt::If(node) => self.if_stmt(node),
            PyStmt::With(node) => self.with_stmt(node),
            PyStmt::Match(node) => self.match_stmt(node),
            PyStmt::Raise(node) => {
                node.exc.iter().chain(&node.cause).for_each(|e| {
                    self.expr(e);
                });
                self.emit(Stmt::Raise, span(node), Box::new([]));
            }
            PyStmt::Try(node) => self.try_stmt(node),
            PyStmt::Assert(node) => {
                // The message is evaluated only on failure, which ends the path.
                let test = self.expr(&node.test);
                self.emit(Stmt::Assert { test }, span(node), Box::new([span(node.test.as_ref())]));
            }
            PyStmt::Import(node) => node.names.iter().for_each(|alias| self.import(alias)),
            PyStmt::ImportFrom(node) => self.import_from(node),
            PyStmt::Expr(node) => self.expr_stmt(&node.value),
            PyStmt::Break(node) => {
                self.emit(Stmt::Break, span(node), Box::new([]));
            }
            PyStmt::Continue(node) => {
                self.emit(Stmt::Continue, span(node), Box::new([]));
            }
            PyStmt::Global(_) | PyStmt::Nonlocal(_) | PyStmt::Pass(_) | PyStmt::IpyEscapeCommand(_) => {}
        }
    }

    fn return_stmt(&mut self, node: &'a ast::StmtReturn) {
        let (value, part) = match node.value.as_deref() {
            Some(value) => (self.expr(value), span(value)),
            None => (Operand::Const(Const::None), span(node)),
        };
        self.emit(Stmt::Return { value }, span(node), Box::new([part]));
    }

    /// A constant alone (a docstring, `...`) does nothing.
    fn expr_stmt(&mut self, value: &'a Expr) {
        let constant = matches!(
            value,
            Expr::StringLiteral(_)
                | Expr::BytesLiteral(_)
                | Expr::NumberLiteral(_)
                | Expr::BooleanLiteral(_)
                | Expr::NoneLiteral(_)
                | Expr::EllipsisLiteral(_)
        );
        if constant {
            return;
        }
        match self.value(value) {
            // A temporary of its own: the statement that fills it is already there.
            Value::Operand(Operand::Local(id)) if self.is_temp(id) => {}
            Value::Operand(operand) => {
                self.assign_temp(Rvalue::Use(operand), span(value), Box::new([span(value)]));
            }
            Value::Rvalue(rvalue, parts) => {
                self.assign_temp(rvalue, span(value), parts);
            }
        }
    }

    pub(super) fn is_temp(&mut self, id: LocalId) -> bool {
        self.cur().locals[id].kind == crate::ir::LocalKind::Temp
    }

    fn assign_stmt(&mut self, node: &'a ast::StmtAssign) {
        let value = node.value.as_ref();
        let mut targets = node.targets.iter();
        let first = match node.targets.first() {
            Some(Expr::Name(name)) => self.slot_before(name.id.as_str()),
            _ => None,
        };
        let operand = match first {
            Some(slot) => {
                targets.next();
                self.expr_into(slot, value);
                self.mark_assigned(slot);
                self.note_target(ClaimTarget::Local(slot));
                // A constant or a name is assigned to each target as itself.
                if targets.len() > 0 && is_atom(value) { self.expr(value) } else { Operand::Local(slot) }
            }
            None => self.expr(value),
        };
        for target in targets {
            self.store(target, operand.clone(), span(value));
        }
    }

    fn ann_assign(&mut self, node: &'a ast::StmtAnnAssign) {
        match (node.value.as_deref(), node.target.as_ref()) {
            (Some(value), Expr::Name(name)) => match self.slot_before(name.id.as_str()) {
                Some(slot) => {
                    self.expr_into(slot, value);
                    self.mark_assigned(slot);
                    self.note_target(ClaimTarget::Local(slot));
                }
                None => {
                    let operand = self.expr(value);
                    self.store(&node.target, operand, span(value));
                }
            },
            (Some(value), target) => {
                let operand = self.expr(value);
                self.store(target, operand, span(value));
            }
            // A bare declaration: nothing happens, but a comment may type it.
            (None, Expr::Name(name)) if !self.claims.is_empty() => {
                if let Some(&super::Binding::Local(id)) = self.cur().names.get(name.id.as_str()) {
                    self.note_target(ClaimTarget::Local(id));
                }
            }
            (None, Expr::Attribute(attribute)) if !self.claims.is_empty() => {
                if let Expr::Name(base) = attribute.value.as_ref() {
                    let base = self.read(base.id.as_str());
                    self.note_target(ClaimTarget::Attr(base, Name::from(attribute.attr.as_str())));
                }
            }
            (None, _) => {}
        }
    }

    fn aug_assign(&mut self, node: &'a ast::StmtAugAssign) {
        let op = binary_op(node.op);
        let (whole, target) = (span(node), span(node.target.as_ref()));
        let parts = || -> super::Parts { Box::new([target, span(node.value.as_ref())]) };
        match node.target.as_ref() {
            Expr::Name(name) => {
                let left = self.read(name.id.as_str());
                let right = self.expr(&node.value);
                let value = Rvalue::InPlace { op, left, right };
                match self.slot(name.id.as_str()) {
                    Some(dst) => {
                        self.assign(dst, value, whole, parts());
                        self.note_target(ClaimTarget::Local(dst));
                    }
                    None => {
                        let value = self.assign_temp(value, whole, parts());
                        self.emit(
                            Stmt::SetGlobal { name: Name::from(name.id.as_str()), value },
                            target,
                            Box::new([whole]),
                        );
                    }
                }
            }
            Expr::Attribute(attribute) => {
                let (base, base_span) = (self.expr(&attribute.value), span(attribute.value.as_ref()));
                let name = self.word(attribute.attr.as_str());
                let read = Rvalue::Attr { base: base.clone(), name: name.clone() };
                let left = self.assign_temp(read, target, Box::new([base_span]));
                let right = self.expr(&node.value);
                let value = self.assign_temp(Rvalue::InPlace { op, left, right }, whole, parts());
                self.note_target(ClaimTarget::Attr(base.clone(), name.clone()));
                self.emit(Stmt::SetAttr { base, name, value }, target, Box::new([base_span, whole]));
            }
            Expr::Subscript(subscript) => {
                let (base, base_span) = (self.expr(&subscript.value), span(subscript.value.as_ref()));
                let (index, index_span) = (self.expr(&subscript.slice), span(subscript.slice.as_ref()));
                let read = Rvalue::Item { base: base.clone(), index: index.clone() };
                let left = self.assign_temp(read, target, Box::new([base_span, index_span]));
                let right = self.expr(&node.value);
                let value = self.assign_temp(Rvalue::InPlace { op, left, right }, whole, parts());
                self.note_target(ClaimTarget::Other);
                let index = Box::new(index);
                self.emit(Stmt::SetItem { base, index, value }, target, Box::new([base_span, index_span, whole]));
            }
            other => {
                self.expr(other);
                self.expr(&node.value);
            }
        }
    }

    pub(super) fn docstring(&mut self, body: &'a [PyStmt]) {
        if let Some(PyStmt::Expr(first)) = body.first()
            && let Expr::StringLiteral(text) = first.value.as_ref()
        {
            self.cur().docstring = Some(span(text));
        }
    }
}

fn has_blocks(stmt: &PyStmt) -> bool {
    matches!(
        stmt,
        PyStmt::FunctionDef(_)
            | PyStmt::ClassDef(_)
            | PyStmt::For(_)
            | PyStmt::While(_)
            | PyStmt::If(_)
            | PyStmt::With(_)
            | PyStmt::Match(_)
            | PyStmt::Try(_)
    )
}

fn is_atom(value: &Expr) -> bool {
    matches!(
        value,
        Expr::Name(_)
            | Expr::StringLiteral(_)
            | Expr::NumberLiteral(_)
            | Expr::BooleanLiteral(_)
            | Expr::NoneLiteral(_)
            | Expr::EllipsisLiteral(_)
    )
}
