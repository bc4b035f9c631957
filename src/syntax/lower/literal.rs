//! Constants and operators: tree values to IR values. In: literals. Out: [`Const`]s and operator enums. Never:
//! emitting. Next: `expr.rs`.

use crate::ir::{BinOp, CmpOp, Const, UnOp};
use ruff_python_ast as ast;
use ruff_python_ast::{Expr, Number, Operator, UnaryOp};

pub(super) fn number(value: &Number) -> Const {
    match value {
        Number::Int(int) => match int.as_i64() {
            Some(small) => Const::Int(small),
            None => Const::Float(int.to_string().parse::<f64>().unwrap_or(f64::NAN).to_bits()),
        },
        Number::Float(float) => Const::Float(float.to_bits()),
        Number::Complex { .. } => Const::Float(f64::NAN.to_bits()),
    }
}

/// `-1` and `+1` as constants.
pub(super) fn signed(node: &ast::ExprUnaryOp) -> Option<Const> {
    let Expr::NumberLiteral(literal) = node.operand.as_ref() else { return None };
    let value = number(&literal.value);
    match node.op {
        UnaryOp::UAdd => Some(value),
        UnaryOp::USub => match value {
            Const::Int(int) => Some(Const::Int(-int)),
            Const::Float(bits) => Some(Const::Float((-f64::from_bits(bits)).to_bits())),
            Const::None | Const::Bool(_) | Const::Str(_) | Const::Ellipsis => None,
        },
        UnaryOp::Invert | UnaryOp::Not => None,
    }
}

pub(super) fn binary_op(op: Operator) -> BinOp {
    match op {
        Operator::Add => BinOp::Add,
        Operator::Sub => BinOp::Sub,
        Operator::Mult => BinOp::Mul,
        Operator::MatMult => BinOp::MatMul,
        Operator::Div => BinOp::Div,
        Operator::Mod => BinOp::Mod,
        Operator::Pow => BinOp::Pow,
        Operator::LShift => BinOp::LShift,
        Operator::RShift => BinOp::RShift,
        Operator::BitOr => BinOp::BitOr,
        Operator::BitXor => BinOp::BitXor,
        Operator::BitAnd => BinOp::BitAnd,
        Operator::FloorDiv => BinOp::FloorDiv,
    }
}

pub(super) fn unary_op(op: UnaryOp) -> UnOp {
    match op {
        UnaryOp::Invert => UnOp::Invert,
        UnaryOp::Not => UnOp::Not,
        UnaryOp::UAdd => UnOp::Pos,
        UnaryOp::USub => UnOp::Neg,
    }
}

pub(super) fn compare_op(op: ast::CmpOp) -> CmpOp {
    match op {
        ast::CmpOp::Eq => CmpOp::Eq,
        ast::CmpOp::NotEq => CmpOp::Ne,
        ast::CmpOp::Lt => CmpOp::Lt,
        ast::CmpOp::LtE => CmpOp::Le,
        ast::CmpOp::Gt => CmpOp::Gt,
        ast::CmpOp::GtE => CmpOp::Ge,
        ast::CmpOp::Is => CmpOp::Is,
        ast::CmpOp::IsNot => CmpOp::IsNot,
        ast::CmpOp::In => CmpOp::In,
        ast::CmpOp::NotIn => CmpOp::NotIn,
    }
}
