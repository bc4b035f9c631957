//! `match` as nested `If`s.
//!
//! In: subject and cases. Out: a comparison where the pattern is a constant, an opaque test otherwise; captures are
//! opaque. Never: following the structure of a pattern. Next: `ir/mod.rs`.

use super::scope::pattern_names;
use super::{Lowerer, span};
use crate::ir::{CmpOp, Const, Operand, Rvalue, Stmt};
use crate::source::Span;
use ruff_python_ast as ast;
use ruff_python_ast::{MatchCase, Pattern, Singleton};

impl<'a> Lowerer<'a> {
    pub(super) fn match_stmt(&mut self, node: &'a ast::StmtMatch) {
        let subject = self.expr(&node.subject);
        self.claim_header(span(node).start);
        self.cases(&subject, span(node.subject.as_ref()), &node.cases);
    }

    fn cases(&mut self, subject: &Operand, subject_span: Span, cases: &'a [MatchCase]) {
        let Some((case, rest)) = cases.split_first() else { return };
        let at = span(&case.pattern);
        if case.guard.is_none() && case.pattern.is_irrefutable() {
            self.bind_captures(&case.pattern);
            return self.stmts(&case.body);
        }
        self.deeper(at, |this| {
            let mut test = this.pattern_test(subject, subject_span, &case.pattern);
            let mut test_span = at;
            if let Some(guard) = case.guard.as_deref() {
                // Bound before the guard runs, as the guard reads them; a case that fails leaves them bound in Python
                // too.
                this.bind_captures(&case.pattern);
                let guarded = this.expr(guard);
                test_span = at.cover(span(guard));
                let both = Rvalue::Bool { and: true, operands: Box::new([test, guarded]) };
                test = this.assign_temp(both, test_span, Box::new([at, span(guard)]));
            }
            let id = this.reserve(Span::new(span(case).start, test_span.end), Box::new([test_span]));
            let then = this.block(|this| {
                if case.guard.is_none() {
                    this.bind_captures(&case.pattern);
                }
                this.stmts(&case.body);
            });
            let orelse = this.block(|this| this.cases(subject, subject_span, rest));
            this.push(id, Stmt::If { test, then, orelse });
        });
    }

    fn pattern_test(&mut self, subject: &Operand, subject_span: Span, pattern: &'a Pattern) -> Operand {
        let at = span(pattern);
        let (op, right) = match pattern {
            Pattern::MatchValue(node) => (CmpOp::Eq, self.expr(&node.value)),
            Pattern::MatchSingleton(node) => {
                let value = match node.value {
                    Singleton::None => Const::None,
                    Singleton::True => Const::Bool(true),
                    Singleton::False => Const::Bool(false),
                };
                (CmpOp::Is, Operand::Const(value))
            }
            Pattern::MatchSequence(_)
            | Pattern::MatchMapping(_)
            | Pattern::MatchClass(_)
            | Pattern::MatchStar(_)
            | Pattern::MatchAs(_)
            | Pattern::MatchOr(_) => return self.opaque_test(at),
        };
        let value = Rvalue::Compare { op, left: subject.clone(), right };
        self.assign_temp(value, at, Box::new([subject_span, at]))
    }

    fn bind_captures(&mut self, pattern: &'a Pattern) {
        let mut names = Vec::new();
        self.deeper(span(pattern), |_| pattern_names(pattern, &mut |name| names.push(name)));
        for name in names {
            self.bind_opaque(name, span(pattern));
        }
    }
}
