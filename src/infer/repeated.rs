//! Reductions that a loop repeats on one buffer that it neither fills nor reads: measurements of their time, of which nobody uses the sums.
//! In: a function and the statement of a collective. Out: whether it is one. Never: execution. Next: `collective.rs`.

use crate::ir::{Block, Func, LocalId, LocalKind, Operand, Rvalue, Stmt, StmtId};

/// Whether the innermost loop around a collective gives its first argument, a variable, to calls of functions and does nothing else with it.
pub fn only_repeats(func: &Func, collective: StmtId) -> bool {
    let Some((round, stmt)) = innermost(func.body(), collective) else { return false };
    let Stmt::Assign { value: Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }, .. } = stmt else {
        return false;
    };
    let Some(Operand::Local(buffer)) = args.first().map(|arg| &arg.value) else { return false };
    func.locals()[*buffer].kind == LocalKind::Plain
        && round.iter().all(|block| !assigns(block, *buffer))
        && is_only_given(func.body(), *buffer)
}

/// The blocks of the innermost loop around a statement, and the statement.
fn innermost(block: &Block, wanted: StmtId) -> Option<(Vec<&Block>, &Stmt)> {
    for node in block {
        let blocks: Vec<&Block> = node.stmt.blocks().collect();
        for inner in &blocks {
            if let Some(found) = innermost(inner, wanted) {
                return Some(found);
            }
        }
        if matches!(node.stmt, Stmt::For { .. } | Stmt::While { .. }) {
            let found = blocks.iter().find_map(|inner| statement(inner, wanted));
            if let Some(stmt) = found {
                return Some((blocks, stmt));
            }
        }
    }
    None
}

fn statement(block: &Block, wanted: StmtId) -> Option<&Stmt> {
    block.iter().find_map(|node| match node.id == wanted {
        true => Some(&node.stmt),
        false => node.stmt.blocks().find_map(|inner| statement(inner, wanted)),
    })
}

/// Whether a block assigns a variable.
fn assigns(block: &Block, buffer: LocalId) -> bool {
    block.iter().any(|node| {
        let here = match &node.stmt {
            Stmt::Assign { dst, .. } | Stmt::For { dst, .. } | Stmt::Import { dst, .. } => *dst == buffer,
            Stmt::With { bind, .. } => *bind == Some(buffer),
            Stmt::Unpack { before, star, after, .. } => before.iter().chain(star).chain(after).any(|l| *l == buffer),
            _ => false,
        };
        here || node.stmt.blocks().any(|inner| assigns(inner, buffer))
    })
}

/// Whether nothing in a block reads a variable but to give it to a function.
fn is_only_given(block: &Block, buffer: LocalId) -> bool {
    let is = |operand: &Operand| *operand == Operand::Local(buffer);
    block.iter().all(|node| {
        let reads = match &node.stmt {
            Stmt::Assign { value: Rvalue::Call { callee, .. }, .. } => is(callee),
            Stmt::Assign { value: Rvalue::CallMethod { base, .. }, .. } => is(base),
            other => other.operands().into_iter().any(is),
        };
        !reads && node.stmt.blocks().all(|inner| is_only_given(inner, buffer))
    })
}
