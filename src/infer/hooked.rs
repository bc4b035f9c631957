//! Hooks on the gradients of activations, and on modules: what they return takes the place of what they are given. In:
//! `tensor.register_hook(hook)`, `module.register_forward_hook(hook)` and its kin. Out: a tensor, or what a module gives, of which nothing is
//! known where the hook may communicate, for it may sum what would otherwise be missing. Never: hooks of parameters, which the reducers of the
//! project know. Source: torch 2.15 `torch/_tensor.py`, `Tensor.register_hook`. Next: `practice/reducers.rs`.

use super::expr::CallArgs;
use super::heap::Cell;
use super::machine::Machine;
use super::value::{Method, Value};
use crate::ir::Const;
use crate::source::Name;
use crate::types::LocalType;

/// What an object keeps where a hook may change what it takes or gives; no attribute of Python has this name.
const HOOKED: &str = "<hooked>";

impl Machine<'_> {
    /// Forgets the type of an activation whose gradient goes through a hook.
    pub fn hooked(&mut self, base: &Value, args: &CallArgs) {
        let Value::Tensor(id) = base else { return };
        let Some(t) = self.w.heap.tensor(*id).filter(|t| t.home.is_none()) else { return };
        let hook = args.get(0, "hook");
        if !hook.is_none_or(|hook| self.may_communicate(hook)) {
            return;
        }
        let mut t = t.clone();
        (t.local, t.untracked) = (LocalType::unknown(), true);
        if let Some(known) = self.w.heap.tensor_mut(*id) {
            *known = t;
        }
    }

    /// Notes that a module calls a function on what it takes or gives.
    pub(super) fn hook_module(&mut self, module: &Value, args: &CallArgs) {
        let hook = args.get(0, "hook").cloned();
        if let Value::Object(id) = module
            && hook.as_ref().is_none_or(|hook| self.may_communicate(hook))
            && let Some(Cell::Object(cell)) = self.w.heap.get_mut(*id)
        {
            cell.set(&Name::from(HOOKED), Value::Const(Const::Bool(true)));
        }
    }

    /// Whether a module has such a hook.
    pub(super) fn is_hooked(&self, module: &Value) -> bool {
        let Value::Object(id) = module else { return false };
        self.w.heap.object(*id).is_some_and(|object| object.get(HOOKED).is_some())
    }

    /// Whether a function that is handed on may exchange something between ranks.
    fn may_communicate(&self, function: &Value) -> bool {
        let closure = match function {
            Value::Closure(closure) => closure,
            Value::Bound(bound) => match &bound.method {
                Method::Closure(closure) => closure,
                Method::Named(_) => return true,
            },
            _ => return true,
        };
        self.settings.relevance.contains(closure.func)
    }
}
