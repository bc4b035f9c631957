//! Hooks on the gradients of activations: what they return is the gradient from there on. In: `tensor.register_hook(hook)`. Out: a tensor of
//! which nothing is known where the hook may communicate, for it may sum what would otherwise be missing. Never: hooks of parameters, which
//! the reducers of the project know. Source: torch 2.15 `torch/_tensor.py`, `Tensor.register_hook`. Next: `practice/reducers.rs`.

use super::expr::CallArgs;
use super::machine::Machine;
use super::value::{Method, Value};
use crate::types::LocalType;

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
