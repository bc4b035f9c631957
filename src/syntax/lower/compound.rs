//! Statements with blocks: `if`, loops, `with`, `try`.
//!
//! In: the statement. Out: one node that holds its blocks. Never: deciding what a block means. Next: `matching.rs`.

use super::target::After;
use super::{Lowerer, span};
use crate::ir::{Block, ClaimTarget, Operand, Rvalue, Stmt};
use crate::source::Span;
use ruff_python_ast as ast;
use ruff_python_ast::{ElifElseClause, ExceptHandler, Expr, Stmt as PyStmt, WithItem};

impl<'a> Lowerer<'a> {
    pub(super) fn if_stmt(&mut self, node: &'a ast::StmtIf) {
        let at = span(node).start;
        let test = self.test(&node.test);
        self.claim_header(at);
        let test_span = span(node.test.as_ref());
        let id = self.reserve(Span::new(at, test_span.end), Box::new([test_span]));
        let then = self.block(|this| this.stmts(&node.body));
        let orelse = self.block(|this| this.clauses(&node.elif_else_clauses));
        self.push(id, Stmt::If { test, then, orelse });
    }

    fn clauses(&mut self, clauses: &'a [ElifElseClause]) {
        let Some((first, rest)) = clauses.split_first() else { return };
        let Some(test) = &first.test else { return self.stmts(&first.body) };
        self.deeper(span(first), |this| {
            let operand = this.expr(test);
            let header = Span::new(span(first).start, span(test).end);
            let id = this.reserve(header, Box::new([span(test)]));
            let then = this.block(|this| this.stmts(&first.body));
            let orelse = this.block(|this| this.clauses(rest));
            this.push(id, Stmt::If { test: operand, then, orelse });
        });
    }

    pub(super) fn while_stmt(&mut self, node: &'a ast::StmtWhile) {
        let at = span(node).start;
        let test_span = span(node.test.as_ref());
        let id = self.reserve(Span::new(at, test_span.end), Box::new([test_span]));
        self.cur().loops += 1;
        let mut test = None;
        let head = self.block(|this| test = Some(this.test(&node.test)));
        let body = self.block(|this| {
            this.claim_header(at);
            this.stmts(&node.body);
        });
        self.cur().loops -= 1;
        let orelse = self.block(|this| this.stmts(&node.orelse));
        let test = test.expect("the head was lowered");
        self.push(id, Stmt::While { head, test: Box::new(test), body, orelse });
    }

    pub(super) fn for_stmt(&mut self, node: &'a ast::StmtFor) {
        let at = span(node).start;
        let (iter_span, target_span) = (span(node.iter.as_ref()), span(node.target.as_ref()));
        let iter = self.expr(&node.iter);
        let (dst, then) = self.target_slot(&node.target);
        let id = self.reserve(Span::new(at, iter_span.end), Box::new([iter_span, target_span]));
        self.cur().loops += 1;
        let body = self.block(|this| {
            if let After::Nothing = then {
                this.note_target(ClaimTarget::Local(dst));
            }
            this.finish_target(dst, then, target_span);
            this.claim_header(at);
            this.stmts(&node.body);
        });
        self.cur().loops -= 1;
        let orelse = self.block(|this| this.stmts(&node.orelse));
        self.push(id, Stmt::For { dst, iter, body, orelse });
    }

    pub(super) fn with_stmt(&mut self, node: &'a ast::StmtWith) {
        self.with_items(&node.items, &node.body, span(node).start);
    }

    fn with_items(&mut self, items: &'a [WithItem], body: &'a [PyStmt], at: u32) {
        let Some((item, rest)) = items.split_first() else {
            self.claim_header(at);
            return self.stmts(body);
        };
        let context = self.expr(&item.context_expr);
        let context_span = span(&item.context_expr);
        let (bind, then) = match item.optional_vars.as_deref() {
            Some(target) => {
                let (slot, then) = self.target_slot(target);
                (Some(slot), then)
            }
            None => (None, After::Nothing),
        };
        let id = self.reserve(span(item), Box::new([context_span]));
        let block = self.block(|this| {
            if let Some(slot) = bind {
                if let After::Nothing = then {
                    this.note_target(ClaimTarget::Local(slot));
                }
                this.finish_target(slot, then, context_span);
            }
            this.deeper(context_span, |this| this.with_items(rest, body, at));
        });
        self.push(id, Stmt::With { context, bind, body: block });
    }

    pub(super) fn try_stmt(&mut self, node: &'a ast::StmtTry) {
        let at = span(node).start;
        self.claim_header(at);
        let id = self.reserve(Span::new(at, at + 3), Box::new([]));
        let body = self.block(|this| this.stmts(&node.body));
        let handlers = node.handlers.iter().map(|ExceptHandler::ExceptHandler(h)| self.handler(h)).collect();
        let orelse = self.block(|this| this.stmts(&node.orelse));
        let finally = self.block(|this| this.stmts(&node.finalbody));
        self.push(id, Stmt::Try { body, handlers, orelse, finally });
    }

    fn handler(&mut self, handler: &'a ast::ExceptHandlerExceptHandler) -> Block {
        self.block(|this| {
            if let Some(kind) = handler.type_.as_deref() {
                // Evaluated for its effects alone; plain names of exceptions have none.
                if !is_exception_name(kind) {
                    this.expr(kind);
                }
            }
            if let Some(name) = &handler.name {
                this.bind_opaque(name.as_str(), span(name));
            }
            this.stmts(&handler.body);
        })
    }

    /// Assigns a value of which nothing is known.
    pub(super) fn bind_opaque(&mut self, name: &'a str, at: Span) {
        let (slot, then) = self.name_slot(name, at);
        self.assign(slot, Rvalue::Opaque, at, Box::new([]));
        self.finish_target(slot, then, at);
    }

    /// A test of which nothing is known.
    pub(super) fn opaque_test(&mut self, at: Span) -> Operand {
        self.assign_temp(Rvalue::Opaque, at, Box::new([]))
    }
}

fn is_exception_name(kind: &Expr) -> bool {
    match kind {
        Expr::Name(_) => true,
        Expr::Attribute(node) => matches!(node.value.as_ref(), Expr::Name(_)),
        Expr::Tuple(node) => node.elts.iter().all(|e| matches!(e, Expr::Name(_) | Expr::Attribute(_))),
        _ => false,
    }
}
