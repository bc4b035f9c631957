//! Losses that a model's own `forward` returns. In: a call of a module that the project defines. Out: the loss, alone or among other results, on
//! each way through the forward that makes one. Never: what the layers do: a call of a module is followed for its loss alone.
//! Next: `calls.rs`.

use super::calls::Args;
use super::value::{ModId, State, Val};
use super::{MOST_STATES, MOST_VAIN, Run};
use crate::ir::StmtId;

impl Run<'_> {
    /// What a module returns, if its forward makes a loss of what it is given.
    pub fn forwarded(&mut self, id: StmtId, module: ModId, args: &Args, state: &State) -> Option<Vec<(State, Val)>> {
        self.loss_of(id, module, "forward", args, state)
    }

    /// What a method of a module returns, if it makes a loss of what it is given.
    pub fn loss_of(
        &mut self,
        id: StmtId,
        module: ModId,
        method: &str,
        args: &Args,
        state: &State,
    ) -> Option<Vec<(State, Val)>> {
        let class = state.modules.get(module)?.class?;
        let forward = self.method(class, method).filter(|_| !args.open)?;
        let text = self.files[self.project.file(forward.module)].slice(self.project.func(forward).span);
        if self.vain >= MOST_VAIN || !self.may_make_loss(class, text) {
            return None;
        }
        let bound = self.bind(forward, Some(Val::Module(module)), args);
        let call = Some(self.place(state, id));
        let before = self.mark();
        let ways = self.run(forward, bound, call, state.clone());
        let made: Vec<(State, Val)> = ways.into_iter().filter(|(_, value)| has_loss(value)).collect();
        if made.is_empty() || made.len() > MOST_STATES {
            self.vain += 1;
            self.back_to(&before);
            return None;
        }
        Some(made)
    }
}

/// Whether a value is a loss, or has one among its parts.
fn has_loss(value: &Val) -> bool {
    match value {
        Val::Tensor(tensor) => tensor.rows.is_none(),
        Val::Tuple(items) => items.iter().any(has_loss),
        Val::Dict(items) => items.iter().any(|(_, item)| has_loss(item)),
        _ => false,
    }
}
