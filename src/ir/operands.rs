//! What statements and operations read. In: a statement or an operation. Out: its operands. Never: what nested blocks read. Next:
//! `display.rs`.

use super::{Item, Operand, Rvalue, Stmt};
use smallvec::{SmallVec, smallvec};

impl Stmt {
    /// Every operand that a statement reads, nested blocks left out.
    pub fn operands(&self) -> SmallVec<[&Operand; 4]> {
        match self {
            Stmt::Assign { value, .. } => value.operands(),
            Stmt::SetGlobal { value, .. } | Stmt::Return { value } | Stmt::Unpack { value, .. } => smallvec![value],
            Stmt::SetAttr { base, value, .. } => smallvec![base, value],
            Stmt::SetItem { base, index, value } => smallvec![base, &**index, value],
            Stmt::If { test, .. } | Stmt::Assert { test } => smallvec![test],
            Stmt::While { test, .. } => smallvec![&**test],
            Stmt::For { iter, .. } => smallvec![iter],
            Stmt::With { context, .. } => smallvec![context],
            Stmt::Def { defaults, decorators, .. } => defaults.iter().map(|(_, o)| o).chain(decorators).collect(),
            Stmt::Class { bases, keywords, decorators, .. } => {
                bases.iter().chain(keywords.iter().map(|(_, o)| o)).chain(decorators).collect()
            }
            Stmt::Append { key, value, .. } => key.iter().chain([value]).collect(),
            Stmt::Try { .. }
            | Stmt::Raise
            | Stmt::Break
            | Stmt::Continue
            | Stmt::Import { .. }
            | Stmt::ImportStar { .. }
            | Stmt::Delete { .. } => SmallVec::new(),
        }
    }
}

impl Rvalue {
    /// Every operand of an operation.
    pub fn operands(&self) -> SmallVec<[&Operand; 4]> {
        match self {
            Rvalue::Use(o) | Rvalue::Yield(o) | Rvalue::Await(o) => smallvec![o],
            Rvalue::Attr { base, .. } => smallvec![base],
            Rvalue::Item { base, index } => smallvec![base, index],
            Rvalue::Call { callee, args } => std::iter::once(callee).chain(args.iter().map(|a| &a.value)).collect(),
            Rvalue::CallMethod { base, args, .. } => {
                std::iter::once(base).chain(args.iter().map(|a| &a.value)).collect()
            }
            Rvalue::Unary { operand, .. } => smallvec![operand],
            Rvalue::Binary { left, right, .. }
            | Rvalue::InPlace { left, right, .. }
            | Rvalue::Compare { left, right, .. } => smallvec![left, right],
            Rvalue::Bool { operands, .. } => operands.iter().collect(),
            Rvalue::Build { items, .. } => items
                .iter()
                .map(|i| match i {
                    Item::One(o) | Item::Star(o) => o,
                })
                .collect(),
            Rvalue::Closure { defaults, .. } => defaults.iter().map(|(_, o)| o).collect(),
            Rvalue::Opaque => SmallVec::new(),
        }
    }
}
