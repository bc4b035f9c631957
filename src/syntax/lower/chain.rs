//! Chains: calls, attributes and items after one another, binary operators, comparisons, `and` and `or`.
//!
//! In: the outermost expression of a chain. Out: a statement for each link but the last, which is returned. Never:
//! recursing along the chain: a sum of a hundred thousand terms needs no stack. Next: `literal.rs`.

use super::expr::parts2;
use super::literal::{binary_op, compare_op};
use super::{Lowerer, Value, span};
use crate::ir::{Arg, ArgKind, BinOp, Block, LocalId, Operand, Rvalue, Stmt};
use crate::source::Span;
use ruff_python_ast as ast;
use ruff_python_ast::{ArgOrKeyword, BoolOp, Expr};
use smallvec::{SmallVec, smallvec};

/// Nesting up to which an operand is searched for side effects; anything deeper counts as having them.
const MAX_PURE_DEPTH: u32 = 20;

impl<'a> Lowerer<'a> {
    /// `base.name(args)[index]...`
    pub(super) fn postfix(&mut self, expr: &'a Expr) -> Value {
        let mut links: SmallVec<[&'a Expr; 8]> = smallvec![expr];
        let mut base = expr;
        while let Some(inner) = inner_link(base) {
            base = inner;
            if inner_link(base).is_some() {
                links.push(base);
            }
        }
        let mut current = self.expr(base);
        let mut current_span = span(base);
        let mut next = links.len();
        loop {
            next -= 1;
            let mut link = links[next];
            let (rvalue, parts) = match link {
                Expr::Attribute(node) => match next.checked_sub(1).map(|i| links[i]) {
                    Some(outer @ Expr::Call(call)) => {
                        next -= 1;
                        link = outer;
                        let (args, parts) = match truncated(call) {
                            Some(division) => self.whole_quotient(division, current_span),
                            None => self.arguments(&call.arguments, current_span),
                        };
                        let name = self.word(node.attr.as_str());
                        (Rvalue::CallMethod { base: current, name, args: args.into() }, parts)
                    }
                    _ => {
                        let attr = Rvalue::Attr { base: current, name: self.word(node.attr.as_str()) };
                        (attr, vec![current_span])
                    }
                },
                Expr::Call(call) => {
                    let (args, parts) = match truncated(call) {
                        Some(division) => self.whole_quotient(division, current_span),
                        None => self.arguments(&call.arguments, current_span),
                    };
                    (Rvalue::Call { callee: current, args: args.into() }, parts)
                }
                Expr::Subscript(node) => {
                    let index = self.expr(&node.slice);
                    (Rvalue::Item { base: current, index }, vec![current_span, span(node.slice.as_ref())])
                }
                _ => (Rvalue::Use(current), vec![current_span]),
            };
            let parts = parts.into_boxed_slice();
            if next == 0 {
                return Value::Rvalue(rvalue, parts);
            }
            current_span = span(link);
            current = self.assign_temp(rvalue, current_span, parts);
        }
    }

    /// Arguments in source order; the spans start with that of the callee.
    fn arguments(&mut self, arguments: &'a ast::Arguments, callee: Span) -> (Vec<Arg>, Vec<Span>) {
        let count = arguments.args.len() + arguments.keywords.len();
        let mut args = Vec::with_capacity(count);
        let mut parts = Vec::with_capacity(count + 1);
        parts.push(callee);
        for argument in arguments.iter_source_order() {
            let (kind, value) = match argument {
                ArgOrKeyword::Arg(Expr::Starred(starred)) => (ArgKind::Star, starred.value.as_ref()),
                ArgOrKeyword::Arg(value) => (ArgKind::Positional, value),
                ArgOrKeyword::Keyword(keyword) => match &keyword.arg {
                    Some(name) => (ArgKind::Keyword(self.word(name.as_str())), &keyword.value),
                    None => (ArgKind::DoubleStar, &keyword.value),
                },
            };
            parts.push(span(value));
            args.push(Arg { kind, value: self.expr(value) });
        }
        (args, parts)
    }

    /// The argument of `int(a / b)`, as `a // b`: sizes and numbers of ranks are not negative, and rounded up they are parts as well.
    fn whole_quotient(&mut self, division: &'a Expr, callee: Span) -> (Vec<Arg>, Vec<Span>) {
        let value = match self.binary(division) {
            Value::Rvalue(Rvalue::Binary { op: BinOp::Div, left, right }, parts) => {
                let rvalue = Rvalue::Binary { op: BinOp::FloorDiv, left, right };
                self.assign_temp(rvalue, span(division), parts)
            }
            Value::Rvalue(rvalue, parts) => self.assign_temp(rvalue, span(division), parts),
            Value::Operand(operand) => operand,
        };
        (vec![Arg { kind: ArgKind::Positional, value }], vec![callee, span(division)])
    }

    /// `a + b + c`, nested to the left.
    pub(super) fn binary(&mut self, expr: &'a Expr) -> Value {
        let mut links: SmallVec<[&'a ast::ExprBinOp; 8]> = SmallVec::new();
        let mut first = expr;
        while let Expr::BinOp(node) = first {
            links.push(node);
            first = &node.left;
        }
        let mut left = self.expr(first);
        let mut left_span = span(first);
        while let Some(node) = links.pop() {
            let right = self.expr(&node.right);
            let rvalue = Rvalue::Binary { op: binary_op(node.op), left, right };
            let parts = parts2(left_span, span(node.right.as_ref()));
            if links.is_empty() {
                return Value::Rvalue(rvalue, parts);
            }
            left_span = span(node);
            left = self.assign_temp(rvalue, left_span, parts);
        }
        Value::Operand(left)
    }

    pub(super) fn compare(&mut self, node: &'a ast::ExprCompare) -> Value {
        let mut left = self.expr(&node.left);
        let mut left_span = span(node.left.as_ref());
        let mut links = Vec::with_capacity(node.ops.len());
        let mut parts = Vec::with_capacity(node.ops.len());
        for (op, comparator) in node.ops.iter().zip(&node.comparators) {
            let right = self.expr(comparator);
            let right_span = span(comparator);
            let rvalue = Rvalue::Compare { op: compare_op(*op), left, right: right.clone() };
            if node.ops.len() == 1 {
                return Value::Rvalue(rvalue, parts2(left_span, right_span));
            }
            let at = left_span.cover(right_span);
            links.push(self.assign_temp(rvalue, at, parts2(left_span, right_span)));
            parts.push(at);
            (left, left_span) = (right, right_span);
        }
        Value::Rvalue(Rvalue::Bool { and: true, operands: links.into() }, parts.into_boxed_slice())
    }

    pub(super) fn bool_op(&mut self, node: &'a ast::ExprBoolOp) -> Value {
        let and = node.op == BoolOp::And;
        match node.values.iter().skip(1).position(|v| !is_pure(v, 0)) {
            None => self.pure_bool(and, &node.values),
            Some(_) => {
                let dst = self.temp();
                self.branching_bool(dst, and, &node.values);
                Value::Operand(Operand::Local(dst))
            }
        }
    }

    fn pure_bool(&mut self, and: bool, values: &'a [Expr]) -> Value {
        let operands = values.iter().map(|v| self.expr(v)).collect();
        Value::Rvalue(Rvalue::Bool { and, operands }, values.iter().map(span).collect())
    }

    /// Operands with side effects are evaluated under an `If` on those before them.
    fn branching_bool(&mut self, dst: LocalId, and: bool, values: &'a [Expr]) {
        let Some(first) = values.first() else { return };
        let pure = values.iter().skip(1).take_while(|v| is_pure(v, 0)).count();
        let (head, rest) = values.split_at(pure + 1);
        let at = span(first).cover(head.last().map_or(span(first), span));
        if head.len() == 1 {
            self.expr_into(dst, first);
        } else if let Value::Rvalue(rvalue, parts) = self.pure_bool(and, head) {
            self.assign(dst, rvalue, at, parts);
        }
        if rest.is_empty() {
            return;
        }
        let whole = at.cover(rest.last().map_or(at, span));
        let id = self.reserve(whole, Box::new([at]));
        let branch = self.block(|this| {
            if this.deeper(whole, |this| this.branching_bool(dst, and, rest)).is_none() {
                this.assign(dst, Rvalue::Opaque, whole, Box::new([]));
            }
        });
        let (then, orelse) = if and { (branch, Block::default()) } else { (Block::default(), branch) };
        self.push(id, Stmt::If { test: Operand::Local(dst), then, orelse });
    }
}

/// What an attribute, call or item is taken of.
fn inner_link(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Attribute(node) => Some(&node.value),
        Expr::Call(node) => Some(&node.func),
        Expr::Subscript(node) => Some(&node.value),
        _ => None,
    }
}

/// Whether evaluating an expression has no effect that a checker could miss.
fn is_pure(expr: &Expr, depth: u32) -> bool {
    if depth > MAX_PURE_DEPTH {
        return false;
    }
    let pure = |e: &Expr| is_pure(e, depth + 1);
    match expr {
        Expr::Name(_)
        | Expr::NumberLiteral(_)
        | Expr::StringLiteral(_)
        | Expr::BytesLiteral(_)
        | Expr::BooleanLiteral(_)
        | Expr::NoneLiteral(_)
        | Expr::EllipsisLiteral(_) => true,
        Expr::Attribute(node) => pure(&node.value),
        Expr::Subscript(node) => pure(&node.value) && pure(&node.slice),
        Expr::Slice(node) => [&node.lower, &node.upper, &node.step].into_iter().flatten().all(|e| pure(e)),
        Expr::Tuple(node) => node.elts.iter().all(pure),
        Expr::List(node) => node.elts.iter().all(pure),
        Expr::Compare(node) => pure(&node.left) && node.comparators.iter().all(pure),
        Expr::BoolOp(node) => node.values.iter().all(pure),
        Expr::UnaryOp(node) => pure(&node.operand),
        Expr::Call(node) => is_pure_call(node, depth),
        _ => false,
    }
}

/// Functions that make a whole number of a quotient.
const WHOLE: &[&str] = &["ceil", "floor", "int", "round", "trunc"];

/// The division of `int(a / b)`, `math.ceil(a / b)`.
fn truncated(call: &ast::ExprCall) -> Option<&Expr> {
    let name = match call.func.as_ref() {
        Expr::Name(name) => name.id.as_str(),
        Expr::Attribute(node) if matches!(node.value.as_ref(), Expr::Name(base) if base.id.as_str() == "math") => {
            node.attr.as_str()
        }
        _ => return None,
    };
    match (call.arguments.args.as_ref(), call.arguments.keywords.is_empty()) {
        ([division @ Expr::BinOp(node)], true) if WHOLE.contains(&name) && node.op == ast::Operator::Div => {
            Some(division)
        }
        _ => None,
    }
}

fn is_pure_call(node: &ast::ExprCall, depth: u32) -> bool {
    let arguments = &node.arguments;
    match node.func.as_ref() {
        Expr::Name(name) => {
            let known = ["isinstance", "hasattr", "getattr", "len", "callable", "issubclass", "bool"];
            known.contains(&name.id.as_str())
                && arguments.keywords.is_empty()
                && arguments.args.iter().all(|a| is_pure(a, depth + 1))
        }
        Expr::Attribute(method) => {
            ["size", "rank", "dim", "is_initialized"].contains(&method.attr.as_str())
                && arguments.is_empty()
                && is_pure(&method.value, depth + 1)
        }
        _ => false,
    }
}
