//! Collectives on losses, counts and gradients. In: a call of a collective. Out: its value; values and gradients changed in place.
//! Never: what a collective does to types. Next: `grads.rs`.

use super::Run;
use super::eval::replace;
use super::groups::{Kind, kind};
use super::value::{Num, Part, State, Tensor, Val, What};
use crate::infer::practice::view::CollectiveCall;
use crate::ir::{Const, Operand, StmtId};
use crate::rules::Form;
use crate::source::Name;
use crate::types::{Axis, AxisSet, Scale, Spmd};

impl<'a> Run<'a> {
    pub fn collective(&mut self, id: StmtId, call: &CollectiveCall<'_>, state: &mut State) -> Val {
        let unknown = Val::Named(self.text(state, id));
        let Some(input) = self.operand_of(call.input, state) else { return unknown };
        let group = match self.operand_of(call.group, state) {
            None | Some(Val::Const(Const::None)) if !call.rule.default_group.is_empty() => {
                Some(call.rule.default_group.iter().map(|a| Axis::new(a.clone())).collect())
            }
            None => Some(state.everyone()),
            Some(group) => state.axes(&group),
        };
        let Some(axes) = group else {
            // Some ranks or other: nothing is known afterwards.
            state.lose(&input);
            if let (Val::Num(_), Form::InPlace) = (&input, call.rule.form) {
                replace(state, &input, &unknown);
            }
            return unknown;
        };
        let mean = self.mean(call, state);
        if let Some(value) = self.norm_collective(id, call, &input, (&axes, mean), state) {
            return value;
        }
        match call.rule.op.as_str() {
            "all_gather" => self.gathered(id, call, &input, &axes, state),
            _ => match (&input, mean) {
                (Val::Grad(g), Some(mean)) => {
                    let scatters = call.rule.op == "reduce_scatter";
                    let input = if scatters { input.clone() } else { self.copy_is_meant(g, state) };
                    self.reduce(id, g, &axes, mean, state);
                    if scatters {
                        state.shard(g, Some(&axes));
                    }
                    if let Some(Operand::Local(output)) = call.output {
                        state.set(*output, input.clone());
                    }
                    input
                }
                (Val::Grad(_), None) => {
                    state.lose(&input);
                    input
                }
                (Val::List(l), _) => {
                    for item in state.lists[*l].items.clone() {
                        match (&item, mean) {
                            (Val::Grad(g), Some(mean)) => self.reduce(id, g, &axes, mean, state),
                            (Val::Grad(_), None) => state.lose(&item),
                            _ => {}
                        }
                    }
                    unknown
                }
                (_, None) => unknown,
                (_, Some(mean)) => {
                    // Lengths of what several ranks have parts of.
                    state.unsettled |= input == Val::Mask;
                    // Where the backward reduces too, each rank's gradient is that of all ranks' losses.
                    let both = call.rule.differentiable
                        && call.rule.form == Form::Result
                        && call.rule.transitions.iter().all(|(_, t)| t.result.set.contains(Spmd::Replicate));
                    let input = unknown_loss(&input, state).unwrap_or(input);
                    let new = self.reduced(id, both, &input, &axes, mean, state);
                    if call.rule.form == Form::InPlace {
                        self.put(&input, &new, state);
                        match (call.input, &new) {
                            (Some(Operand::Local(local)), Val::Tensor(_)) => state.set(*local, new),
                            // What was a number of this rank is that of all of them.
                            (Some(Operand::Local(local)), Val::Named(_)) => state.set(*local, unknown.clone()),
                            _ => {}
                        }
                        return unknown;
                    }
                    new
                }
            },
        }
    }

    /// A collective on norms.
    fn norm_collective(
        &mut self,
        id: StmtId,
        call: &CollectiveCall<'_>,
        input: &Val,
        (axes, mean): (&AxisSet, Option<bool>),
        state: &mut State,
    ) -> Option<Val> {
        match input {
            Val::Norm(n) if call.rule.op == "all_reduce" => {
                let new = self.norm_reduced(id, n, axes, mean, state);
                if call.rule.form == Form::InPlace {
                    replace(state, input, &new);
                }
                Some(new)
            }
            Val::Grad(g) if call.rule.op == "all_gather" => {
                state.shard(g, None);
                None
            }
            Val::Norm(_) | Val::List(_) | Val::Pack(_) => {
                let args = super::calls::Args { plain: vec![input.clone()], ..Default::default() };
                self.norms_lost("", &args, state);
                None
            }
            _ => None,
        }
    }

    /// Whether a reduction takes the mean; `None` if it is neither a sum nor a mean.
    fn mean(&mut self, call: &CollectiveCall<'_>, state: &State) -> Option<bool> {
        let args = self.arguments(call.args, state);
        let given = call.rule.reduce_op.and_then(|at| {
            let name = &call.rule.args.params.get(at)?.name;
            args.keyword(name).or_else(|| args.plain.get(at).filter(|_| at > 0))
        });
        if matches!(given, Some(Val::Named(op)) if !matches!(super::value::last(op), "SUM" | "sum" | "AVG" | "avg" | "mean"))
        {
            return None;
        }
        let mut found = Some(false);
        for value in args.all() {
            let name = match value {
                Val::Path(path) | Val::Named(path) => super::value::last(path),
                Val::Const(Const::Str(text)) => text.as_str(),
                _ => continue,
            };
            match name {
                "AVG" | "avg" | "mean" => found = Some(true),
                "MAX" | "MIN" | "PRODUCT" | "BAND" | "BOR" | "BXOR" | "max" | "min" | "PREMUL_SUM" => found = None,
                _ => {}
            }
        }
        found
    }

    /// A loss or a count after a reduction; whether the gradient is reduced too.
    pub fn reduced(
        &mut self,
        id: StmtId,
        both: bool,
        input: &Val,
        axes: &AxisSet,
        mean: bool,
        state: &mut State,
    ) -> Val {
        let place = self.place(state, id);
        match input {
            Val::Num(n) => {
                // A mean of counts is that of all ranks too, once their number is divided out.
                if n.scale.known().is_some_and(|m| !m.is_number()) {
                    state.counted.push((axes.clone(), place));
                }
                let scale = if mean { n.scale.clone() } else { n.scale.times(&Scale::size(axes)) };
                let made = (!mean && n.scale == super::eval::tokens()).then_some(place);
                Val::Num(Num { id: state.fresh(), scale, added: n.added, made })
            }
            Val::Tensor(t) => {
                let data: AxisSet = axes.iter().filter(|a| kind(a) != Kind::Model).cloned().collect();
                let size = Scale::size(&data);
                let event =
                    state.event(if mean { What::Averaged(axes.clone()) } else { What::Summed(axes.clone()) }, place);
                let part = |p: &Part| {
                    let value = if mean { p.value.over(&size) } else { p.value.clone() };
                    let grad = if both && !mean { p.grad.times(&size) } else { p.grad.clone() };
                    let events = p.events.iter().cloned().chain([event.clone()]).collect();
                    Part { label: p.label.clone(), grad, value, events }
                };
                let over = t.over.iter().chain(data.iter()).cloned().collect();
                Val::Tensor(Tensor { id: state.fresh(), parts: t.parts.iter().map(part).collect(), over, ..t.clone() })
            }
            Val::Pack(items) => {
                let items: Vec<Val> = items.iter().map(|v| self.reduced(id, both, v, axes, mean, state)).collect();
                Val::Pack(items)
            }
            other => other.clone(),
        }
    }

    /// Writes a value over another one wherever that is held.
    fn put(&mut self, old: &Val, new: &Val, state: &mut State) {
        match (old, new) {
            (Val::Pack(a), Val::Pack(b)) => {
                let pairs: Vec<(Val, Val)> = a.iter().cloned().zip(b.iter().cloned()).collect();
                pairs.iter().for_each(|(a, b)| replace(state, a, b));
            }
            _ => replace(state, old, new),
        }
    }

    /// What all ranks have, in one tensor or in a list of them.
    fn gathered(
        &mut self,
        id: StmtId,
        call: &CollectiveCall<'_>,
        input: &Val,
        axes: &AxisSet,
        state: &mut State,
    ) -> Val {
        // Parts of the last dim, put side by side, are as many rows as before.
        let transitions = &call.rule.transitions;
        if !transitions.is_empty() && transitions.iter().all(|(_, t)| t.source.dim() == Some(-1)) {
            return match input {
                Val::Tensor(t) => Val::Tensor(Tensor { id: state.fresh(), ..t.clone() }),
                _ => Val::Named(self.text(state, id)),
            };
        }
        let size = Scale::size(axes);
        let differentiable = call.rule.differentiable;
        let value = match input {
            Val::Tensor(t) => {
                let mut t = t.clone();
                t.id = state.fresh();
                for part in t.parts.iter_mut().filter(|_| differentiable) {
                    part.grad = part.grad.times(&size);
                }
                match &t.rows {
                    Some(rows) => t.rows = Some(rows.times(&size)),
                    None => t.rows = Some(size.clone()),
                }
                Val::Tensor(t)
            }
            Val::Num(n) => Val::Num(n.clone()),
            Val::Named(text) => {
                let text = Name::from(text.as_str());
                match self.per_token(&text, state) {
                    Val::Tensor(t) => Val::Tensor(Tensor { rows: Some(super::eval::tokens().times(&size)), ..t }),
                    other => other,
                }
            }
            other => other.clone(),
        };
        let value = match value {
            Val::Tensor(t) if !differentiable => Val::Tensor(cut(&t)),
            other => other,
        };
        match (call.rule.form, self.operand_of(call.output, state)) {
            (Form::IntoList, Some(Val::List(l))) => {
                // Each entry is what one rank has.
                let one = match (&value, input) {
                    (Val::Tensor(t), Val::Named(_)) => {
                        Val::Tensor(Tensor { rows: Some(super::eval::tokens()), ..t.clone() })
                    }
                    (Val::Tensor(t), Val::Tensor(u)) => Val::Tensor(Tensor { rows: u.rows.clone(), ..t.clone() }),
                    _ => input.clone(),
                };
                // What is counted on each rank is known of all of them.
                if matches!(one, Val::Num(_)) {
                    let place = self.place(state, id);
                    state.counted.push((axes.clone(), place));
                }
                if let Some(list) = state.lists.get_mut(l) {
                    (list.items, list.length) = (vec![one], Some(size));
                }
                Val::Named(self.text(state, id))
            }
            (Form::Result, _) => value,
            _ => {
                // What is counted in the buffer is what all ranks have.
                state.unsettled |= matches!(input, Val::Mask | Val::Named(_)) && call.rule.form == Form::IntoOutput;
                Val::Named(self.text(state, id))
            }
        }
    }
}

/// A loss of which only the name is known, as a summand.
fn unknown_loss(value: &Val, state: &mut State) -> Option<Val> {
    let Val::Named(text) = value else { return None };
    if !text.to_lowercase().contains("loss") {
        return None;
    }
    let parts = vec![super::eval::opaque(text)];
    Some(Val::Tensor(Tensor { id: state.fresh(), parts, rows: None, over: AxisSet::default(), added: false }))
}

/// The same values, of whose gradients nothing is known: a collective that autograd does not see cuts them off.
pub fn cut(tensor: &Tensor) -> Tensor {
    let mut out = tensor.clone();
    out.parts.iter_mut().for_each(|p| p.grad = Scale::Unknown);
    out
}
