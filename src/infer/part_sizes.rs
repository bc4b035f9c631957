//! Arithmetic with sizes of parts: the rank's own range and its length, what is left over, rounding. In: numbers. Out: what of them is
//! still the size of a part, or where one begins. Never: a part of at least one row, which several ranks may have alike. Next: `reshaped.rs`.

use super::expr::{CallArgs, differing, number_type};
use super::machine::Machine;
use super::scale::groups::of_size_name;
use super::value::Value;
use crate::ir::{BinOp, Const, StmtId};
use crate::rules::IntrinsicRule;
use std::sync::Arc;

impl Machine<'_> {
    /// Sizes and bounds of the own range: `rank * part` begins it, a part later it ends, and the distance of two bounds is a part.
    pub fn own_range(&self, op: BinOp, left: &Value, right: &Value) -> Option<Value> {
        if self.deriving.is_some() || !self.in_constructor() {
            return None;
        }
        let over = |v: &Value, axes: &_| differing(v).is_some_and(|of| of == *axes);
        let counts = |v: &Value| matches!(v, Value::Const(Const::Int(_)) | Value::Number(None) | Value::Share(_));
        match (op, left, right) {
            (BinOp::Mul, rank, Value::Share(axes)) | (BinOp::Mul, Value::Share(axes), rank) if over(rank, axes) => {
                Some(Value::Edge(axes.clone()))
            }
            (BinOp::Sub, Value::Edge(a), Value::Edge(b)) if a == b => Some(Value::Share(a.clone())),
            // A size that no rule knows is no tensor where it is counted off by the rank.
            (BinOp::Mul, Value::Sym(size), rank) | (BinOp::Mul, rank, Value::Sym(size))
                if self.symbol(size).is_none() && matches!(rank, Value::Rank(_) | Value::Number(Some(_))) =>
            {
                number_type(rank).map(|t| Value::Number(Some(Arc::new(t))))
            }
            (BinOp::FloorDiv, start, Value::Size(axes)) if over(start, axes) => Some(Value::Edge(axes.clone())),
            // The first ranks have one row more of what is left over.
            (BinOp::Add | BinOp::Sub, Value::Edge(axes), more) if counts(more) || over(more, axes) => {
                Some(Value::Edge(axes.clone()))
            }
            (BinOp::Add, more, Value::Edge(axes)) if counts(more) || over(more, axes) => {
                Some(Value::Edge(axes.clone()))
            }
            (BinOp::Add | BinOp::Sub, Value::Share(axes), more) | (BinOp::Add, more, Value::Share(axes))
                if over(more, axes) && !matches!(more, Value::Rank(_)) =>
            {
                Some(Value::Share(axes.clone()))
            }
            _ => None,
        }
    }

    /// `divmod(a, b)`
    pub fn divided_with_rest(&mut self, id: StmtId, args: &CallArgs) -> Value {
        match (args.positional(0), args.positional(1)) {
            (Some(a), Some(b)) if !matches!(a, Value::Tensor(_)) => {
                let (a, b) = (a.clone(), b.clone());
                let quotient = self.binary(id, BinOp::FloorDiv, &a, &b, false);
                Value::tuple(vec![quotient, Value::Number(None)])
            }
            _ => Value::Number(None),
        }
    }

    /// `max(1, size)` and `min(end, whole)`: bounds that change neither what is counted nor whose range it is.
    pub fn bounded(&self, name: &str, values: &[Value]) -> Option<Value> {
        let [a, b] = values else { return None };
        match (name, a, b) {
            ("max", Value::Const(Const::Int(..=1)), size @ Value::Size(_))
            | ("max", size @ Value::Size(_), Value::Const(Const::Int(..=1))) => Some(size.clone()),
            ("min", bound @ Value::Edge(_), whole) | ("min", whole, bound @ Value::Edge(_))
                if matches!(whole, Value::Const(Const::Int(_)) | Value::Number(None) | Value::Sym(_)) =>
            {
                Some(bound.clone())
            }
            ("max" | "min", Value::Const(Const::Int(_)), count)
            | ("max" | "min", count, Value::Const(Const::Int(_)))
                if counts_ranks(count) =>
            {
                Some(Value::Number(None))
            }
            _ => None,
        }
    }

    /// `-a` of a number.
    pub fn negative(&mut self, value: &Value) -> Value {
        match value {
            // `-(-n // size)` is rounded up.
            Value::Share(_) => value.clone(),
            value => self.arithmetic(value, &Value::int(0)),
        }
    }
}

/// Whether a value is called a number of ranks.
fn counts_ranks(value: &Value) -> bool {
    matches!(value, Value::Sym(path) if of_size_name(path).is_some())
}

/// What a function gives that has no effect: nothing is known of it, but that a part of a size that is rounded is one, and that it is a number if
/// it is made of the number of ranks alone: `math.sqrt(world_size)`.
pub fn pure(rule: &IntrinsicRule, args: &CallArgs) -> Value {
    match args.positional(0) {
        Some(share @ Value::Share(_)) if rule.does == "whole-number" => share.clone(),
        Some(count) if args.args.len() == 1 && counts_ranks(count) => Value::Number(None),
        _ => Value::Unknown,
    }
}
