//! The ends of a function that `spmd_types.local_map` wraps. In: the types that the decorator declares, a call. Out: arguments that are held against these, a body
//! without partition specs, results that have the declared types. Never: trees that do not match, of which nothing is said. Source: spmd_types 0.3.1
//! `runtime._typecheck_boundary`. Next: `assertion.rs`, which checks and stamps.

use super::expr::{CallArg, CallArgs};
use super::machine::Machine;
use super::value::{Boundary, Value};
use super::world::World;
use crate::ir::StmtId;
use crate::types::TensorType;

impl Machine<'_> {
    /// Where a call enters: positional arguments have the declared types, and from here on specs are not followed. Whether they had these.
    pub fn boundary_in(&mut self, id: StmtId, boundary: &Boundary, args: &CallArgs) -> bool {
        let before = self.out.findings.len();
        if let Some(Value::Tuple(takes)) = &boundary.takes {
            let positional: Vec<CallArg> = args.args.iter().filter(|a| a.keyword.is_none()).cloned().collect();
            if positional.len() == takes.len() {
                for (arg, declared) in positional.iter().zip(takes.iter()) {
                    self.held_to(id, &arg.value, declared, arg.part);
                }
            }
        }
        self.w.modes.global = false;
        self.out.findings.len() == before
    }

    /// Where it leaves: what it returns has the declared types. `sound`: whether it got what it takes.
    pub fn boundary_out(&mut self, id: StmtId, boundary: &Boundary, sound: bool, outcomes: &mut [(World, Value)]) {
        let here = std::mem::take(&mut self.w);
        for (world, value) in outcomes {
            self.w = std::mem::take(world);
            let given = if sound { value.clone() } else { untold(value) };
            *value = self.stamped(id, &given, &boundary.gives);
            *world = std::mem::take(&mut self.w);
        }
        self.w = here;
    }

    fn stamped(&mut self, id: StmtId, value: &Value, declared: &Value) -> Value {
        match (value, declared) {
            (Value::Tuple(items), Value::Tuple(types)) if items.len() == types.len() => {
                Value::tuple(items.iter().zip(types.iter()).map(|(item, ty)| self.stamped(id, item, ty)).collect())
            }
            (Value::Unknown, Value::Dict(_) | Value::Spec(_)) => {
                let made = self.new_tensor(TensorType::unknown());
                self.held_to(id, &made, declared, 0);
                made
            }
            (value, declared) => {
                self.held_to(id, value, declared, 0);
                value.clone()
            }
        }
    }

    /// Asserts a type of a tree: `{tp: R}`, `PartitionSpec(...)`, or both.
    fn held_to(&mut self, id: StmtId, value: &Value, declared: &Value, part: usize) {
        let types: Vec<Value> = match declared {
            Value::Tuple(both) => both.to_vec(),
            Value::Dict(_) | Value::Spec(_) | Value::Atom(_) => vec![declared.clone()],
            _ => return,
        };
        if !matches!(value, Value::Tensor(_)) {
            return;
        }
        let given = std::iter::once(value.clone()).chain(types);
        let args = given.map(|value| CallArg { keyword: None, value, part }).collect();
        self.assert_type(id, &CallArgs { args, open: false });
    }
}

/// A value of the same form of which nothing is known.
fn untold(value: &Value) -> Value {
    match value {
        Value::Tuple(items) => Value::tuple(items.iter().map(untold).collect()),
        _ => Value::Unknown,
    }
}
