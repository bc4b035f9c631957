//! Comprehensions as loops that build a collection.
//!
//! In: list, set and dict comprehensions, generator expressions. Out: `Build`, `For`, `Append` in the enclosing
//! function. Never: leaking the loop variables. Next: `define.rs`.

use super::{Lowerer, Value, span};
use crate::ir::{Block, BuildKind, LocalId, Operand, Rvalue, Stmt};
use crate::source::Span;
use ruff_python_ast::{Comprehension, Expr};

/// What is appended in the innermost loop.
#[derive(Clone, Copy)]
struct Element<'a> {
    key: Option<&'a Expr>,
    value: &'a Expr,
}

impl<'a> Lowerer<'a> {
    pub(super) fn comprehension(&mut self, expr: &'a Expr) -> Value {
        let (kind, element, generators) = match expr {
            Expr::ListComp(n) => (BuildKind::List, Element { key: None, value: &n.elt }, &n.generators),
            Expr::SetComp(n) => (BuildKind::Set, Element { key: None, value: &n.elt }, &n.generators),
            Expr::Generator(n) => (BuildKind::List, Element { key: None, value: &n.elt }, &n.generators),
            Expr::DictComp(n) => (BuildKind::Dict, Element { key: n.key.as_deref(), value: &n.value }, &n.generators),
            _ => return Value::Rvalue(Rvalue::Opaque, Box::new([])),
        };
        let whole = span(expr);
        // Claims are about the targets of statements, not of loops within their expressions.
        let noted = self.claims.targets.len();
        let scope = self.cur().comprehension.len();
        let Some(first) = generators.first() else { return Value::Rvalue(Rvalue::Opaque, Box::new([])) };
        let iter = self.expr(&first.iter);
        let dst = self.temp();
        self.assign(dst, Rvalue::Build { kind, items: Box::default() }, whole, Box::new([]));
        self.cur().loops += 1;
        self.generator(dst, iter, generators, element, whole);
        self.cur().loops -= 1;
        self.cur().comprehension.truncate(scope);
        self.claims.targets.truncate(noted);
        Value::Operand(Operand::Local(dst))
    }

    fn generator(
        &mut self,
        dst: LocalId,
        iter: Operand,
        generators: &'a [Comprehension],
        element: Element<'a>,
        whole: Span,
    ) {
        let Some((first, rest)) = generators.split_first() else { return };
        self.declare_fresh(&first.target);
        let item = match &first.target {
            Expr::Name(name) => self.visible(name.id.as_str()),
            _ => None,
        };
        let (slot, store) = match item {
            Some(slot) => (slot, None),
            None => (self.temp(), Some(&first.target)),
        };
        let id = self.reserve(span(first), Box::new([span(&first.iter), span(&first.target)]));
        let body = self.block(|this| {
            if let Some(target) = store {
                this.store_fresh(target, Operand::Local(slot), span(&first.iter));
            }
            this.filtered(&first.ifs, &mut |this: &mut Self| match rest.first() {
                Some(next) => {
                    let iter = this.expr(&next.iter);
                    if this.deeper(whole, |this| this.generator(dst, iter, rest, element, whole)).is_none() {
                        this.assign(dst, Rvalue::Opaque, whole, Box::new([]));
                    }
                }
                None => this.append(dst, element),
            });
        });
        self.push(id, Stmt::For { dst: slot, iter, body, orelse: Block::default() });
    }

    fn append(&mut self, collection: LocalId, element: Element<'a>) {
        let key = element.key.map(|k| self.expr(k));
        let value = self.expr(element.value);
        let part = span(element.value);
        let at = element.key.map_or(part, |k| span(k).cover(part));
        self.emit(Stmt::Append { collection, key, value }, at, Box::new([part]));
    }

    /// `inner` under the conditions `ifs`.
    fn filtered(&mut self, ifs: &'a [Expr], inner: &mut dyn FnMut(&mut Self)) {
        let Some((first, rest)) = ifs.split_first() else { return inner(self) };
        let test = self.expr(first);
        let id = self.reserve(span(first), Box::new([span(first)]));
        let then = self.block(|this| {
            this.deeper(span(first), |this| this.filtered(rest, inner));
        });
        self.push(id, Stmt::If { test, then, orelse: Block::default() });
    }

    fn declare_fresh(&mut self, target: &'a Expr) {
        self.deeper(span(target), |this| match target {
            Expr::Name(name) => {
                this.fresh(name.id.as_str());
            }
            Expr::Tuple(tuple) => tuple.elts.iter().for_each(|t| this.declare_fresh(t)),
            Expr::List(list) => list.elts.iter().for_each(|t| this.declare_fresh(t)),
            Expr::Starred(starred) => this.declare_fresh(&starred.value),
            _ => {}
        });
    }

    /// The innermost comprehension variable of that name.
    fn visible(&mut self, name: &str) -> Option<LocalId> {
        self.cur().comprehension.iter().rev().find(|(n, _)| *n == name).map(|&(_, id)| id)
    }

    /// Like `store`, into comprehension variables.
    fn store_fresh(&mut self, target: &'a Expr, value: Operand, from: Span) {
        let elements = match target {
            Expr::Tuple(tuple) => &tuple.elts,
            Expr::List(list) => &list.elts,
            // `for x.y in ...`: the target is no variable of the comprehension.
            other => return self.store(other, value, from),
        };
        let (mut before, mut star, mut after, mut nested) = (Vec::new(), None, Vec::new(), Vec::new());
        let mut parts = vec![from];
        for element in elements {
            let (inner, starred) = match element {
                Expr::Starred(inner) => (inner.value.as_ref(), true),
                other => (other, false),
            };
            let slot = match inner {
                Expr::Name(name) => self.visible(name.id.as_str()),
                _ => None,
            };
            let slot = slot.unwrap_or_else(|| {
                let temp = self.temp();
                nested.push((inner, temp));
                temp
            });
            parts.push(span(element));
            match (starred, star) {
                (true, None) => star = Some(slot),
                (_, None) => before.push(slot),
                (_, Some(_)) => after.push(slot),
            }
        }
        self.emit(
            Stmt::Unpack { value, before: before.into(), star, after: after.into() },
            span(target),
            parts.into_boxed_slice(),
        );
        for (inner, temp) in nested {
            let at = span(inner);
            self.deeper(at, |this| this.store_fresh(inner, Operand::Local(temp), at));
        }
    }
}
