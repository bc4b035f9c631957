//! Gradients that code writes itself: into their entries, by `out=`, in place by whatever method, or into a step of its own. In: a write.
//! Out: what the gradients carry, or that it is not known. Never: reductions. Source: the functions of torch that these names are of.
//! Next: `grads.rs`.

use super::Run;
use super::calls::Args;
use super::eval::{is_size, sizes};
use super::value::{Grad, State, Val, last};
use crate::ir::{BinOp, Const, StmtId};
use crate::types::Scale;

/// The product or quotient that a function or method of torch gives, in place or not.
pub fn operation(name: &str) -> Option<BinOp> {
    match name.strip_suffix('_').unwrap_or(name) {
        "mul" | "multiply" => Some(BinOp::Mul),
        "div" | "divide" | "true_divide" => Some(BinOp::Div),
        _ => None,
    }
}

/// Names that say nothing, or that something is a part of what was laid out flat.
const ANYTHING: &[&str] = &[
    "g", "t", "s", "v", "buf", "buffer", "flat", "bucket", "summed", "reduced", "tensor", "shard", "part", "chunk",
    "synced",
];

/// Whether the name of a method of a model, or of an optimizer, says that it changes gradients: `reduce_gradients`, `finalize`.
pub fn changes_gradients(method: &str) -> bool {
    let lower = method.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|w| lower.contains(w));
    // What says when a wrapper sums changes nothing itself.
    if lower.starts_with("set_") || says(&["require", "no_sync"]) {
        return false;
    }
    says(&["reduc", "averag", "finali"]) || says(&["grad"]) && says(&["scale", "sync", "divi", "normali", "mul"])
}

/// Whether something is called a model.
pub fn is_model(text: &str) -> bool {
    matches!(last(text), "model" | "net" | "module")
}

impl<'a> Run<'a> {
    /// `p.grad[...] = value`: all entries, or some, which leaves the others as they were.
    pub fn put_entries(&mut self, grad: &Grad, index: &Val, value: &Val, state: &mut State) {
        let all = match index {
            Val::Const(Const::Ellipsis) => true,
            Val::Named(text) => text.as_str() == ":",
            _ => false,
        };
        let whole = Val::Grad(grad.clone());
        match all {
            true => self.put_grad(&whole, &grad.of, value, state),
            false => state.lose(&whole),
        }
    }

    /// A function of torch that is given a gradient to write to.
    pub fn put_out(&mut self, id: StmtId, name: &str, out: &Grad, args: &Args, state: &mut State) -> Val {
        let whole = Val::Grad(out.clone());
        match (operation(name), args.plain.as_slice()) {
            (Some(op), [a, b]) => {
                let value = self.binary(id, op, a, b, state);
                self.put_grad(&whole, &out.of, &value, state);
            }
            _ => state.lose(&whole),
        }
        whole
    }

    /// `p.grad.copy_(value)`
    pub fn copied_into(&mut self, grad: &Grad, args: &Args, state: &mut State) -> Val {
        let whole = Val::Grad(grad.clone());
        match args.plain.first() {
            Some(value @ Val::Grad(_)) => self.put_grad(&whole, &grad.of, value, state),
            // What an object keeps from one step to the next may have been divided before.
            Some(Val::Named(text)) if !text.starts_with("self.") => {}
            None => {}
            Some(_) => state.lose(&whole),
        }
        whole
    }

    /// A method of gradients that is known by nothing but its name: one in place may do anything.
    pub fn method_in_place(&mut self, grad: &Grad, name: &str, state: &mut State) {
        if name.ends_with('_') && !name.ends_with("__") {
            state.lose(&Val::Grad(grad.clone()));
        }
    }

    /// A copy of gradients that was multiplied is reduced in their stead: what it was multiplied with goes into them, and it is as they are.
    pub fn copy_is_meant(&mut self, copy: &Grad, state: &mut State) -> Val {
        if copy.by == Scale::one() {
            return Val::Grad(copy.clone());
        }
        self.multiply(copy, &copy.by, &copy.events, false, state);
        let is_copy = |v: &Val| matches!(v, Val::Grad(g) if g == copy);
        let plain = Val::Grad(Grad { by: Scale::one(), events: Vec::new(), ..copy.clone() });
        state.change(&|v| is_copy(v).then(|| plain.clone()));
        plain
    }

    /// Copies of gradients that were multiplied go where they are not followed: they may come back from there.
    pub fn copies_go(value: &Val, state: &mut State) {
        let is_copy = |v: &Val| matches!(v, Val::Grad(g) if g.by != Scale::one());
        match value {
            Val::List(at) => {
                let items = state.lists.get(*at).map(|l| l.items.clone()).unwrap_or_default();
                items.iter().filter(|v| is_copy(v)).for_each(|v| state.lose(v));
            }
            value if is_copy(value) => state.lose(value),
            _ => {}
        }
    }

    /// Parameters take a step by hand: with sizes in it, these are sizes that their gradients are multiplied with.
    pub fn stepped_by_hand(&mut self, to: &Val, by: &Val, state: &mut State) {
        let (Val::Param(_), Val::Grad(g)) = (to, by) else { return };
        let within = match g.by {
            Scale::Known(_) => sizes(&g.by),
            Scale::Unknown => Scale::Unknown,
        };
        if within != Scale::one() {
            self.multiply(g, &within, &g.events, false, state);
        }
    }

    /// A method that is not known, of a model or (`None`) of an optimizer: if its name says that it changes gradients, or it calls something for each
    /// part after the backward pass, nothing is known of them.
    pub fn method_changes(on: Option<&Val>, name: &str, state: &mut State) {
        let after = || name == "apply" && !state.terms.is_empty();
        if !changes_gradients(name) && !after() {
            return;
        }
        match on {
            None => {
                (0..state.modules.len()).for_each(|m| state.lose(&Val::Module(m)));
                // Of a model that has not been seen yet it says the same.
                state.unsettled = true;
            }
            Some(Val::Named(text)) if state.modules.iter().any(|m| m.name == *text) || is_model(text) => {
                let module = Val::Module(state.module(text));
                state.lose(&module);
            }
            Some(module @ Val::Module(_)) => state.lose(module),
            Some(_) => {}
        }
    }

    /// Something that is not followed, but called gradients, is multiplied with the size of a group: gradients that are followed may be meant.
    pub fn scaled_by_name(&self, name: &Val, by: &Val, state: &mut State) {
        let n = match (name, by) {
            (Val::Named(_), Val::Num(n)) => n,
            // By what is not known it may be multiplied as well.
            (Val::Named(text), Val::Named(_)) if text.ends_with(".grad") => {
                state.unsettled = true;
                return;
            }
            _ => return,
        };
        let Val::Named(text) = name else { return };
        let word = last(text);
        let grads =
            text.contains("grad") && !word.contains("norm") && !word.contains("accum") || ANYTHING.contains(&word);
        state.unsettled |= grads && (is_size(&n.scale) || is_size(&n.scale.inverse()));
    }
}
