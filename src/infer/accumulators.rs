//! Containers that a loop fills and does not read: what they hold tells nothing about its next round. In: the blocks of a loop and the
//! world before it. Out: the cells of such containers. Never: what is put into them. Next: `exec.rs`, whose rounds ask.

use super::heap::Cell;
use super::machine::Machine;
use super::value::{Method, ObjId, Value};
use super::world::World;
use crate::ir::{Block, LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::source::Idx;

/// Methods that only add to a container.
const ADDING: &[&str] = &["append", "add", "insert", "extend"];

impl Machine<'_> {
    /// The lists, sets and dicts that the comprehension around a loop is making: nothing but the comprehension knows them yet.
    pub(super) fn under_construction(&self, blocks: &[&Block], before: &World) -> Vec<ObjId> {
        let mut locals = Vec::new();
        blocks.iter().for_each(|block| appended(block, &mut locals));
        let func = self.func();
        locals.retain(|local| func.locals[*local].kind == LocalKind::Temp);
        locals.iter().filter_map(|local| container(before, *local)).collect()
    }

    /// Containers of the user that a loop fills under the only name they have, and that it does not read.
    pub(super) fn filled(&self, blocks: &[&Block], before: &World) -> Vec<ObjId> {
        let locals = &self.func().locals;
        let mut uses = Uses { filled: Vec::new(), read: vec![false; locals.len()] };
        blocks.iter().for_each(|block| uses.block(block));
        let Uses { mut filled, read } = uses;
        filled.retain(|local| !read[local.index()] && locals[*local].kind == LocalKind::Plain);
        let mut out: Vec<ObjId> = filled.iter().filter_map(|local| container(before, *local)).collect();
        out.retain(|id| held_once(before, *id));
        out
    }
}

fn container(world: &World, local: LocalId) -> Option<ObjId> {
    match world.frame().get(local) {
        Value::List(id) | Value::Dict(id) => Some(*id),
        _ => None,
    }
}

/// Containers to which a block adds elements one by one.
fn appended(block: &Block, out: &mut Vec<LocalId>) {
    for node in block {
        match &node.stmt {
            Stmt::Append { collection, .. } if !out.contains(collection) => out.push(*collection),
            other => other.blocks().for_each(|block| appended(block, out)),
        }
    }
}

/// What blocks do with locals.
struct Uses {
    filled: Vec<LocalId>,
    /// By local: whether anything else is done with it.
    read: Vec<bool>,
}

impl Uses {
    fn block(&mut self, block: &Block) {
        for node in block {
            match &node.stmt {
                Stmt::Assign { value: Rvalue::CallMethod { base: Operand::Local(base), name, args }, .. }
                    if ADDING.contains(&name.as_str()) =>
                {
                    self.filled.push(*base);
                    args.iter().for_each(|arg| self.operand(&arg.value));
                }
                Stmt::SetItem { base: Operand::Local(base), index, value } => {
                    self.filled.push(*base);
                    self.operand(index);
                    self.operand(value);
                }
                other => other.operands().into_iter().for_each(|operand| self.operand(operand)),
            }
            node.stmt.blocks().for_each(|block| self.block(block));
        }
    }

    fn operand(&mut self, operand: &Operand) {
        if let Operand::Local(local) = operand {
            self.read[local.index()] = true;
        }
    }
}

/// Whether a world knows a container under one name only.
fn held_once(world: &World, id: ObjId) -> bool {
    let in_frames = world.frames.iter().flat_map(|f| f.values()).filter(|v| holds(v, id)).count();
    in_frames <= 1
        && world.heap.all(&mut |cell| match cell {
            Cell::Tensor(_) => true,
            Cell::List(list) => !list.items.iter().chain(&list.rest).any(|v| holds(v, id)),
            Cell::Dict(dict) => !dict.entries.iter().any(|(k, v)| holds(k, id) || holds(v, id)),
            Cell::Object(object) => !object.attrs.iter().any(|(_, v)| holds(v, id)),
            Cell::Variable(value) => !holds(value, id),
        })
}

/// Whether a container can be reached through a value without the heap.
fn holds(value: &Value, id: ObjId) -> bool {
    match value {
        Value::List(own) | Value::Dict(own) => *own == id,
        Value::Tuple(items) => items.iter().any(|v| holds(v, id)),
        Value::Bound(bound) => {
            holds(&bound.receiver, id)
                || matches!(&bound.method, Method::Closure(c) if c.defaults.iter().any(|(_, v)| holds(v, id)))
        }
        Value::Partial(app) => {
            holds(&app.callee, id) || app.args.iter().chain(app.keywords.iter().map(|(_, v)| v)).any(|v| holds(v, id))
        }
        Value::Closure(closure) => closure.defaults.iter().any(|(_, v)| holds(v, id)),
        Value::Slice(parts) => parts.iter().any(|v| holds(v, id)),
        Value::Super(of) => holds(&of.0, id),
        Value::Unset
        | Value::Unknown
        | Value::Sym(_)
        | Value::Const(_)
        | Value::Number(_)
        | Value::Tensor(_)
        | Value::Object(_)
        | Value::Class(_)
        | Value::Path(_)
        | Value::Module(_)
        | Value::Package(_)
        | Value::Mesh(_)
        | Value::Group(_)
        | Value::Size(_)
        | Value::Share(_)
        | Value::Rank(_)
        | Value::Atom(_)
        | Value::Spec(_)
        | Value::Context(_)
        | Value::Cond(_)
        | Value::RankCond(_)
        | Value::Placement(_)
        | Value::Layout(_)
        | Value::ReduceOp(_) => false,
    }
}
