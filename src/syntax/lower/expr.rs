//! Expressions to operands, one statement for each operation.
//!
//! In: expressions. Out: operands, and the statements that compute them. Never: branching inside a value: conditional
//! expressions become `If`. Next: `chain.rs` (calls, attributes, items, operators), `comprehension.rs`.

use super::literal::{number, signed, unary_op};
use super::{Lowerer, Parts, Value, span};
use crate::ir::{BuildKind, ClaimTarget, Const, Item, LocalId, Operand, Rvalue, Stmt};
use crate::source::{Name, Span};
use ruff_python_ast as ast;
use ruff_python_ast::{Expr, FStringPart, InterpolatedStringElement};

impl<'a> Lowerer<'a> {
    /// The value of an expression as something to name.
    pub(super) fn expr(&mut self, expr: &'a Expr) -> Operand {
        match self.value(expr) {
            Value::Operand(operand) => operand,
            Value::Rvalue(rvalue, parts) => self.assign_temp(rvalue, span(expr), parts),
        }
    }

    /// Evaluates an expression straight into a slot.
    pub(super) fn expr_into(&mut self, dst: LocalId, expr: &'a Expr) {
        if let Expr::If(node) = expr {
            if self.deeper(span(expr), |this| this.if_expr(dst, node)).is_none() {
                self.assign(dst, Rvalue::Opaque, span(expr), Box::new([]));
            }
            return;
        }
        match self.value(expr) {
            Value::Operand(operand) => self.assign(dst, Rvalue::Use(operand), span(expr), Box::new([span(expr)])),
            Value::Rvalue(rvalue, parts) => self.assign(dst, rvalue, span(expr), parts),
        };
    }

    pub(super) fn value(&mut self, expr: &'a Expr) -> Value {
        // Names and constants are the bulk and need no guard.
        match expr {
            Expr::Name(name) => return Value::Operand(self.read(name.id.as_str())),
            Expr::NumberLiteral(node) => return constant(number(&node.value)),
            Expr::StringLiteral(node) => return constant(Const::Str(Name::from(node.value.to_str()))),
            Expr::BooleanLiteral(node) => return constant(Const::Bool(node.value)),
            Expr::NoneLiteral(_) => return constant(Const::None),
            Expr::EllipsisLiteral(_) => return constant(Const::Ellipsis),
            _ => {}
        }
        self.deeper(span(expr), |this| this.compound_value(expr)).unwrap_or(Value::Rvalue(Rvalue::Opaque, Box::new([])))
    }

    fn compound_value(&mut self, expr: &'a Expr) -> Value {
        match expr {
            Expr::Attribute(_) | Expr::Call(_) | Expr::Subscript(_) => self.postfix(expr),
            Expr::BinOp(_) => self.binary(expr),
            Expr::BoolOp(node) => self.bool_op(node),
            Expr::Compare(node) => self.compare(node),
            Expr::UnaryOp(node) => {
                if let Some(folded) = signed(node) {
                    return constant(folded);
                }
                let operand = self.expr(&node.operand);
                let value = Rvalue::Unary { op: unary_op(node.op), operand };
                Value::Rvalue(value, Box::new([span(node.operand.as_ref())]))
            }
            Expr::If(node) => {
                let dst = self.temp();
                self.if_expr(dst, node);
                Value::Operand(Operand::Local(dst))
            }
            Expr::Named(node) => self.named(node),
            Expr::Lambda(node) => self.lambda(node),
            Expr::Tuple(node) => self.build(BuildKind::Tuple, &node.elts),
            Expr::List(node) => self.build(BuildKind::List, &node.elts),
            Expr::Set(node) => self.build(BuildKind::Set, &node.elts),
            Expr::Dict(node) => self.dict(node),
            Expr::Slice(node) => self.slice(node),
            Expr::ListComp(_) | Expr::SetComp(_) | Expr::DictComp(_) | Expr::Generator(_) => self.comprehension(expr),
            Expr::Await(node) => {
                let value = self.expr(&node.value);
                Value::Rvalue(Rvalue::Await(value), Box::new([span(node.value.as_ref())]))
            }
            Expr::Yield(node) => self.yield_expr(node.value.as_deref(), span(expr)),
            Expr::YieldFrom(node) => self.yield_expr(Some(&node.value), span(expr)),
            Expr::FString(node) => self.f_string(node),
            Expr::TString(node) => {
                let (mut items, mut parts) = (Vec::new(), Vec::new());
                node.value.elements().for_each(|e| self.interpolated(e, &mut items, &mut parts));
                Value::Rvalue(Rvalue::Build { kind: BuildKind::Str, items: items.into() }, parts.into_boxed_slice())
            }
            // Only in a file with syntax errors: a star is taken by the list, tuple or call around it.
            Expr::Starred(node) => self.value(&node.value),
            Expr::BytesLiteral(_) | Expr::IpyEscapeCommand(_) => Value::Rvalue(Rvalue::Opaque, Box::new([])),
            Expr::Name(_)
            | Expr::NumberLiteral(_)
            | Expr::StringLiteral(_)
            | Expr::BooleanLiteral(_)
            | Expr::NoneLiteral(_)
            | Expr::EllipsisLiteral(_) => self.value(expr),
        }
    }

    fn if_expr(&mut self, dst: LocalId, node: &'a ast::ExprIf) {
        let test = self.expr(&node.test);
        let id = self.reserve(span(node), Box::new([span(node.test.as_ref())]));
        let then = self.block(|this| this.expr_into(dst, &node.body));
        let orelse = self.block(|this| this.expr_into(dst, &node.orelse));
        self.push(id, Stmt::If { test, then, orelse });
    }

    fn named(&mut self, node: &'a ast::ExprNamed) -> Value {
        let Expr::Name(name) = node.target.as_ref() else { return Value::Operand(self.expr(&node.value)) };
        match self.slot_before(name.id.as_str()) {
            Some(slot) => {
                self.expr_into(slot, &node.value);
                self.mark_assigned(slot);
                Value::Operand(Operand::Local(slot))
            }
            None => {
                let value = self.expr(&node.value);
                let set = Stmt::SetGlobal { name: Name::from(name.id.as_str()), value: value.clone() };
                self.emit(set, span(node.target.as_ref()), Box::new([span(node.value.as_ref())]));
                Value::Operand(value)
            }
        }
    }

    /// The test of an `if` or `while`; a claim on its line may type what it binds with `:=`.
    pub(super) fn test(&mut self, test: &'a Expr) -> Operand {
        let operand = self.expr(test);
        if let (Expr::Named(_), Operand::Local(id)) = (test, &operand) {
            self.note_target(ClaimTarget::Local(*id));
        }
        operand
    }

    fn build(&mut self, kind: BuildKind, elements: &'a [Expr]) -> Value {
        let mut items = Vec::with_capacity(elements.len());
        let mut parts = Vec::with_capacity(elements.len());
        for element in elements {
            items.push(match element {
                Expr::Starred(starred) => Item::Star(self.expr(&starred.value)),
                other => Item::One(self.expr(other)),
            });
            parts.push(span(element));
        }
        Value::Rvalue(Rvalue::Build { kind, items: items.into() }, parts.into_boxed_slice())
    }

    fn dict(&mut self, node: &'a ast::ExprDict) -> Value {
        let mut items = Vec::with_capacity(node.items.len() * 2);
        let mut parts = Vec::with_capacity(node.items.len() * 2);
        for entry in &node.items {
            match &entry.key {
                Some(key) => {
                    items.push(Item::One(self.expr(key)));
                    parts.push(span(key));
                    items.push(Item::One(self.expr(&entry.value)));
                }
                None => items.push(Item::Star(self.expr(&entry.value))),
            }
            parts.push(span(&entry.value));
        }
        Value::Rvalue(Rvalue::Build { kind: BuildKind::Dict, items: items.into() }, parts.into_boxed_slice())
    }

    fn slice(&mut self, node: &'a ast::ExprSlice) -> Value {
        let mut items = Vec::with_capacity(3);
        let mut parts: Vec<Span> = Vec::with_capacity(3);
        for bound in [&node.lower, &node.upper, &node.step] {
            match bound {
                Some(bound) => {
                    items.push(Item::One(self.expr(bound)));
                    parts.push(span(bound.as_ref()));
                }
                None => {
                    items.push(Item::One(Operand::Const(Const::None)));
                    parts.push(span(node));
                }
            }
        }
        Value::Rvalue(Rvalue::Build { kind: BuildKind::Slice, items: items.into() }, parts.into_boxed_slice())
    }

    fn yield_expr(&mut self, value: Option<&'a Expr>, at: Span) -> Value {
        self.cur().is_generator = true;
        match value {
            Some(value) => Value::Rvalue(Rvalue::Yield(self.expr(value)), Box::new([span(value)])),
            None => Value::Rvalue(Rvalue::Yield(Operand::Const(Const::None)), Box::new([at])),
        }
    }

    fn f_string(&mut self, node: &'a ast::ExprFString) -> Value {
        let (mut items, mut parts) = (Vec::new(), Vec::new());
        for part in &node.value {
            match part {
                FStringPart::Literal(literal) => {
                    items.push(Item::One(Operand::Const(Const::Str(Name::from(literal.as_str())))));
                    parts.push(span(literal));
                }
                FStringPart::FString(string) => {
                    string.elements.iter().for_each(|e| self.interpolated(e, &mut items, &mut parts));
                }
            }
        }
        match merged_text(&items) {
            Some(text) => constant(Const::Str(text)),
            None => {
                Value::Rvalue(Rvalue::Build { kind: BuildKind::Str, items: items.into() }, parts.into_boxed_slice())
            }
        }
    }

    fn interpolated(&mut self, element: &'a InterpolatedStringElement, items: &mut Vec<Item>, parts: &mut Vec<Span>) {
        match element {
            InterpolatedStringElement::Literal(literal) => {
                items.push(Item::One(Operand::Const(Const::Str(Name::from(&*literal.value)))));
                parts.push(span(literal));
            }
            InterpolatedStringElement::Interpolation(node) => {
                items.push(Item::One(self.expr(&node.expression)));
                parts.push(span(node.expression.as_ref()));
                if let Some(spec) = node.format_spec.as_deref() {
                    // Evaluated, but not part of the text as far as anyone downstream cares.
                    for nested in spec.elements.interpolations() {
                        self.expr(&nested.expression);
                    }
                }
            }
        }
    }
}

pub(super) fn constant(value: Const) -> Value {
    Value::Operand(Operand::Const(value))
}

pub(super) fn parts2(left: Span, right: Span) -> Parts {
    Box::new([left, right])
}

/// The text of an f-string that interpolates nothing.
fn merged_text(items: &[Item]) -> Option<Name> {
    let mut text = String::new();
    for item in items {
        match item {
            Item::One(Operand::Const(Const::Str(piece))) => text.push_str(piece),
            Item::One(_) | Item::Star(_) => return None,
        }
    }
    Some(Name::from(text))
}
