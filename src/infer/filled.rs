//! New values for a parameter: `x.data = ...`. In: the assignment. Out: what the parameter is from there on. Never: what is made of other
//! values than its own, taken for them. Next: `names.rs`, stores of attributes.

use super::expr::CallArgs;
use super::machine::Machine;
use super::share::{not_told, partitioned};
use super::value::{ObjId, Value};
use crate::ir::StmtId;
use crate::rules::shapes::ShapeRule;
use crate::source::Place;
use crate::types::{AxisType, Dist, TensorType, Tri};

impl Machine<'_> {
    /// `x.data = value`
    pub(super) fn set_data(&mut self, id: StmtId, tensor: ObjId, value: &Value) {
        // Its own values in another form of number, or in other memory, leave it what it is.
        if self.is_own_data(id) {
            return;
        }
        let Some(t) = self.tensor(value).cloned() else { return self.touch(tensor) };
        let Some(old) = self.w.heap.tensor(tensor).cloned() else { return self.retype(tensor, t) };
        let mut filled = filled(&old, t);
        if let (None, Some(home), true) = (&old.divided, old.home, filled.divided.is_some()) {
            self.becomes_part(id, home, &mut filled);
        }
        self.retype(tensor, filled);
    }

    /// `x.data.copy_(part)`: whether a parameter gets each rank's own part of something whole, and is that part from there on.
    pub(super) fn copied_part(&mut self, id: StmtId, target: ObjId, args: &CallArgs) -> bool {
        let source = args.args.get(1).and_then(|a| self.tensor(&a.value));
        let Some(divided) = source.and_then(|t| t.divided.clone()).filter(|d| !d.axes.is_empty()) else { return false };
        let whole = self.w.heap.tensor(target).and_then(|t| t.view_of).map_or(target, ObjId);
        let Some(old) = self.w.heap.tensor(whole).cloned() else { return false };
        let (Tri::Yes, None, Some(home)) = (old.grad, &old.divided, old.home) else { return false };
        if !self.is_written_whole(id, args) {
            return false;
        }
        let mut filled = TensorType { divided: Some(divided), ..old };
        self.becomes_part(id, home, &mut filled);
        let local = filled.local.clone();
        self.retype(whole, filled);
        if let Some(view) = self.w.heap.tensor(target).filter(|_| whole != target).cloned() {
            self.retype(target, TensorType { local, ..view });
        }
        true
    }

    /// Whether what a copy is written into is all of a variable or attribute, by what stands before the call.
    fn is_written_whole(&self, id: StmtId, args: &CallArgs) -> bool {
        let place = self.part(id, args.args.first().map_or(0, |a| a.part));
        let text = self.files[place.file].slice(place.span).trim_end();
        let text = [".data", ".detach()"].iter().fold(text, |text, end| text.strip_suffix(end).unwrap_or(text));
        !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'))
    }

    /// A parameter that gets its own part of what it had, or of what is loaded, is that part from there on; how the others of its layer
    /// are cut along that dim is not told.
    fn becomes_part(&mut self, id: StmtId, home: Place, filled: &mut TensorType) {
        let Some(divided) = filled.divided.clone() else { return };
        let origin = partitioned(self.place(id));
        self.split_by_size(&divided, &origin, &mut filled.local);
        for axis in divided.axes.iter() {
            let state = filled.local.get(axis).clone();
            if state.set == AxisType::V {
                filled.local.set(axis, state.from(&origin));
            }
        }
        filled.home = Some(home);
        if divided.dim.is_none_or(|dim| dim == 0) {
            for sibling in self.w.heap.made_at(home) {
                if let Some(t) = self.w.heap.tensor_mut(sibling).filter(|t| t.divided.is_none()) {
                    t.divided = Some(not_told());
                }
            }
        }
    }

    /// Whether a statement is `x.data = x.data.to(...)`, with any methods that give the same values.
    fn is_own_data(&self, id: StmtId) -> bool {
        let text = |place: Place| self.files[place.file].slice(place.span);
        let Some(mut rest) = text(self.part(id, 1)).strip_prefix(text(self.place(id))) else { return false };
        while let Some(call) = rest.strip_prefix('.') {
            let Some((name, arguments)) = call.split_once('(') else { return false };
            let same = self
                .rules
                .op(&format!("torch.Tensor.{name}"))
                .is_some_and(|rule| rule.identity && rule.shape == ShapeRule::Same);
            let mut depth = 1_usize;
            let end = arguments.find(|c: char| {
                match c {
                    '(' => depth += 1,
                    ')' => depth -= 1,
                    _ => {}
                }
                depth == 0
            });
            let (true, Some(end)) = (same, end) else { return false };
            rest = &arguments[end + 1..];
        }
        rest.is_empty()
    }
}

/// `old.data = new`: a parameter that was made as a part, of its size, stays that part where the new values do not say what they are.
fn filled(old: &TensorType, new: TensorType) -> TensorType {
    let mut out = TensorType { grad: old.grad, dist: Dist::Unknown, ..new };
    let Some(divided) = &old.divided else { return out };
    out.divided = Some(divided.clone());
    out.home = old.home;
    for (axis, part) in old.local.listed().filter(|(_, s)| s.set == AxisType::V) {
        let given = out.local.get(axis);
        if given.set.is_unknown() || given.set == AxisType::V && given.shard.is_none() {
            out.local.set(axis, part.clone());
        }
    }
    out
}
