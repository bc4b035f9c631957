//! Containers that a loop fills and does not read: what they hold tells nothing about its next round. In: the blocks of a loop and the
//! world before it. Out: the cells of such containers. Never: what is put into them. Next: `exec.rs`, whose rounds ask.

use super::heap::Cell;
use super::machine::Machine;
use super::value::{Method, ObjId, Value};
use super::world::{Frame, World};
use crate::ir::{Block, LocalId, LocalKind, Operand, Rvalue, Stmt};

/// Methods that only add to a container.
const ADDING: &[&str] = &["append", "add", "insert", "extend"];

impl Machine<'_> {
    /// Containers that a loop fills and does not read: those that the comprehension around it is making, which nothing else knows yet, and
    /// those of the user that have one name only.
    pub(super) fn filled(&mut self, blocks: &[&Block], before: &World) -> Vec<ObjId> {
        let mut uses = Uses::default();
        blocks.iter().for_each(|block| uses.block(block));
        let locals = &self.func().locals();
        let of_kind = |all: &[LocalId], kind: LocalKind| -> Vec<ObjId> {
            all.iter()
                .filter(|local| locals[**local].kind == kind)
                .filter_map(|local| container(before, *local))
                .collect()
        };
        let mut out = of_kind(&uses.built, LocalKind::Temp);
        let own = of_kind(&uses.filled_only(), LocalKind::Plain);
        let size = before.frames.iter().map(Frame::size).sum::<usize>() as u64 + u64::from(self.next_id);
        if !own.is_empty() && self.budget.search(size) {
            out.extend(held_once(before, own));
        }
        out
    }
}

fn container(world: &World, local: LocalId) -> Option<ObjId> {
    match world.frame().get(local) {
        Value::List(id) | Value::Dict(id) => Some(*id),
        _ => None,
    }
}

/// What blocks do with locals.
#[derive(Default)]
struct Uses {
    /// What comprehensions make.
    built: Vec<LocalId>,
    filled: Vec<LocalId>,
    /// Anything else is done with these.
    read: Vec<LocalId>,
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
                Stmt::Append { collection, key, value } => {
                    self.built.push(*collection);
                    key.iter().chain([value]).for_each(|operand| self.operand(operand));
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
            self.read.push(*local);
        }
    }

    /// The locals that are filled and nothing else.
    fn filled_only(mut self) -> Vec<LocalId> {
        self.filled.sort_unstable();
        self.filled.dedup();
        self.read.sort_unstable();
        self.filled.retain(|local| self.read.binary_search(local).is_err());
        self.filled
    }
}

/// Those of these containers that a world knows under one name only.
fn held_once(world: &World, mut ids: Vec<ObjId>) -> Vec<ObjId> {
    let values = || world.frames.iter().flat_map(Frame::values);
    ids.retain(|id| values().filter(|v| holds(v, *id)).nth(1).is_none());
    world.heap.all(&mut |cell| {
        ids.retain(|id| !is_inside(cell, *id));
        !ids.is_empty()
    });
    ids
}

/// Whether a cell holds a container.
fn is_inside(cell: &Cell, id: ObjId) -> bool {
    match cell {
        Cell::Tensor(_) => false,
        Cell::List(list) => list.items.iter().chain(&list.rest).any(|v| holds(v, id)),
        Cell::Dict(dict) => {
            dict.entries.iter().any(|(k, v)| holds(k, id) || holds(v, id)) || dict.rest.iter().any(|v| holds(v, id))
        }
        Cell::Object(object) => object.attrs.iter().any(|(_, v)| holds(v, id)),
        Cell::Variable(value) => holds(value, id),
    }
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
        | Value::Edge(_)
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
