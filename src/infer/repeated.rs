//! Reductions of one buffer that nobody reads, or that a loop repeats and neither fills nor reads: measurements of their time, of which
//! nobody uses the sums. In: a function and the statement of a collective. Out: whether it is one. Never: execution. Next: `collective.rs`.

use super::limits::MAX_MEASURED;
use super::practice::view::{Step, View};
use crate::ir::{Block, Func, LocalId, LocalKind, Operand, Rvalue, Stmt, StmtId};
use crate::project::{FuncRef, Project};
use crate::rules::RuleBook;
use crate::source::Files;

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

/// What tells how large a tensor is, and nothing of its values.
const MEASURES: &[&str] = &["numel", "nelement", "element_size", "size", "dim", "shape", "dtype", "device", "nbytes"];

/// What makes a tensor of any values, and moves it to where it is wanted.
const MAKES: &[&str] = &["empty", "zeros", "ones", "full", "rand", "randn", "randint", "arange"];
const MOVES: &[&str] = &["cuda", "cpu", "to", "half", "float", "bfloat16", "contiguous"];

/// Whether a variable that a collective changes has any values to begin with, and is given to that collective alone, wherever its function
/// and those that share the variable name it: then nobody learns what is in it.
pub fn is_never_read(project: &Project, at: FuncRef, collective: StmtId) -> bool {
    let func = project.func(at);
    if func.code.count() > MAX_MEASURED {
        return false;
    }
    let Some(Stmt::Assign { value, .. }) = statement(func.body(), collective) else { return false };
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return false };
    let Some(Operand::Local(buffer)) = args.first().map(|arg| &arg.value) else { return false };
    match func.locals()[*buffer].kind {
        LocalKind::Plain => is_made(func, *buffer, 0) && is_only_reduced(func, *buffer, value),
        LocalKind::Captured => {
            let Some(parent) = func.parent else { return false };
            let Some((outer, _)) = func.captures.iter().find(|(_, inner)| inner == buffer) else { return false };
            let around = project.func(FuncRef { module: at.module, func: parent });
            if around.code.count() > MAX_MEASURED {
                return false;
            }
            // One level, and no other function beside it: more is not looked through.
            let shared = |f: &Func| f.parent == Some(parent) && f.captures.iter().any(|(o, _)| o == outer);
            let alone = project.modules[at.module].ir.funcs.iter().filter(|f| shared(f)).count() == 1;
            let own = around.locals()[*outer].kind == LocalKind::Cell;
            alone
                && own
                && is_made(around, *outer, 0)
                && is_only_reduced(func, *buffer, value)
                && is_only_reduced(around, *outer, value)
        }
        LocalKind::Cell | LocalKind::Temp => false,
    }
}

/// Whether a variable is bound once, to a tensor that has just been made.
fn is_made(func: &Func, local: LocalId, depth: usize) -> bool {
    let mut values = Vec::new();
    bound(func.body(), local, &mut values);
    let [value] = values.as_slice() else { return false };
    let through = |base: &Operand| match base {
        Operand::Local(inner) => depth < 4 && is_made(func, *inner, depth + 1),
        _ => false,
    };
    match value {
        Rvalue::Use(base) => through(base),
        Rvalue::CallMethod { base, name, .. } => {
            MAKES.contains(&name.as_str()) || MOVES.contains(&name.as_str()) && through(base)
        }
        Rvalue::Call { callee: Operand::Global(name), .. } => MAKES.contains(&name.as_str()),
        _ => false,
    }
}

/// What a variable is assigned in a block.
pub(super) fn bound<'b>(block: &'b Block, local: LocalId, out: &mut Vec<&'b Rvalue>) {
    for node in block {
        if let Stmt::Assign { dst, value } = &node.stmt
            && *dst == local
        {
            out.push(value);
        }
        node.stmt.blocks().for_each(|inner| bound(inner, local, out));
    }
}

/// Whether a function does nothing with a variable but give it to one collective, and ask how large it is.
fn is_only_reduced(func: &Func, buffer: LocalId, collective: &Rvalue) -> bool {
    !func.params.iter().any(|p| p.local == buffer) && only_reduces(func.body(), buffer, collective)
}

fn only_reduces(block: &Block, buffer: LocalId, collective: &Rvalue) -> bool {
    let is = |operand: &Operand| *operand == Operand::Local(buffer);
    block.iter().all(|node| {
        let reads = match &node.stmt {
            Stmt::Assign { value, .. } if same_callee(value, collective) => false,
            Stmt::Assign { value: Rvalue::Attr { base, name } | Rvalue::CallMethod { base, name, .. }, .. }
                if is(base) =>
            {
                !MEASURES.contains(&name.as_str())
            }
            other => other.operands().into_iter().any(is),
        };
        !reads && node.stmt.blocks().all(|inner| only_reduces(inner, buffer, collective))
    })
}

fn same_callee(a: &Rvalue, b: &Rvalue) -> bool {
    match (a, b) {
        (Rvalue::Call { callee: a, .. }, Rvalue::Call { callee: b, .. }) => a == b,
        (Rvalue::CallMethod { name: a, .. }, Rvalue::CallMethod { name: b, .. }) => a == b,
        _ => false,
    }
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

/// The statement with this id.
pub(super) fn statement(block: &Block, wanted: StmtId) -> Option<&Stmt> {
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

/// What replaces all values of a tensor.
const REPLACES: &[&str] = &["fill_", "zero_", "copy_", "normal_", "uniform_"];

/// Whether a variable of a function that a collective changes has a tensor of its own, and nobody reads it again but the same collective, or what
/// replaces its values: the sum is for the sake of the exchange.
pub fn is_read_no_more(project: &Project, rules: &RuleBook, files: &Files, at: FuncRef, collective: StmtId) -> bool {
    let func = project.func(at);
    if func.code.count() > MAX_MEASURED {
        return false;
    }
    let steps = View::new(project, rules, files, at).steps;
    let Some(at) = steps.iter().position(|step| step.id == collective) else { return false };
    let Stmt::Assign { value, .. } = steps[at].stmt else { return false };
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return false };
    let Some(Operand::Local(buffer)) = args.first().map(|arg| &arg.value) else { return false };
    if func.locals()[*buffer].kind != LocalKind::Plain || !is_own(func, *buffer, 0) {
        return false;
    }
    let is = |operand: &Operand| *operand == Operand::Local(*buffer);
    let again = |step: &Step<'_>| steps[at].loops.iter().any(|around| step.loops.contains(around));
    let harmless = |(i, step): (usize, &Step<'_>)| match step.stmt {
        _ if i == at || !step.stmt.operands().into_iter().any(is) => true,
        Stmt::Assign { value: other, .. } if same_callee(other, value) => true,
        // Another name of it, of which the values are replaced.
        Stmt::Assign { dst, value: Rvalue::Use(_) } => is_replaced(&steps[i + 1..], *dst),
        Stmt::Assign { value: Rvalue::CallMethod { base, name, .. }, .. }
            if is(base) && REPLACES.contains(&name.as_str()) =>
        {
            true
        }
        Stmt::Assign {
            value: Rvalue::Compare { .. } | Rvalue::CallMethod { .. } | Rvalue::Attr { .. } | Rvalue::Binary { .. },
            ..
        } => i < at && !again(step) && !is_kept(step.stmt, *buffer),
        _ => false,
    };
    steps.iter().enumerate().all(harmless)
}

/// Whether the first statement that reads a variable replaces its values.
fn is_replaced(later: &[Step<'_>], local: LocalId) -> bool {
    let is = |operand: &Operand| *operand == Operand::Local(local);
    let first = later.iter().find(|step| step.stmt.operands().into_iter().any(is));
    first.is_some_and(|step| match step.stmt {
        Stmt::Assign { value: Rvalue::CallMethod { base, name, .. }, .. } => {
            is(base) && REPLACES.contains(&name.as_str())
        }
        _ => false,
    })
}

/// Whether a statement hands a variable to something that may keep it.
fn is_kept(stmt: &Stmt, local: LocalId) -> bool {
    let Stmt::Assign { value: Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }, .. } = stmt else {
        return false;
    };
    args.iter().any(|arg| arg.value == Operand::Local(local))
}

/// Whether a variable is bound to what is made here, or to a parameter that is moved to a device: never to a part of something that is kept.
fn is_own(func: &Func, local: LocalId, depth: usize) -> bool {
    let mut values = Vec::new();
    bound(func.body(), local, &mut values);
    let given = func.params.iter().any(|param| param.local == local);
    let moved = |base: &Operand| match base {
        Operand::Local(inner) if depth < 4 => {
            (*inner == local && given)
                || func.params.iter().any(|p| p.local == *inner)
                || is_own(func, *inner, depth + 1)
        }
        _ => false,
    };
    let own = |value: &&Rvalue| match value {
        Rvalue::Use(base) => moved(base) && !given,
        Rvalue::CallMethod { base, name, .. } => {
            MAKES.contains(&name.as_str())
                || name == "clone"
                || (MOVES.contains(&name.as_str()) || name == "npu") && moved(base)
        }
        Rvalue::Call { callee: Operand::Global(name), .. } => MAKES.contains(&name.as_str()),
        _ => false,
    };
    !values.is_empty() && values.iter().all(own)
}
