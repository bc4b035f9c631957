//! Products of each rank's own rows with its own columns: of the whole product a rank has the block on the diagonal alone, as where the sequence
//! is not gathered in front of a column-parallel layer. In: the operands of a product, an axis. Out: a finding. Never: weights of several
//! experts, of which each rank has its own by design, or a weight whose number of dims is not known. Source: a tensor is split over an axis on
//! one dim, DESIGN.md section 3. Next: `products.rs`.

use super::finding::FindingKind;
use super::layout::Layout;
use super::machine::Machine;
use super::ops::Operand;
use crate::ir::StmtId;
use crate::rules::shards::Refusal;
use crate::source::Name;
use crate::types::{Axis, AxisType};

impl Machine<'_> {
    /// Refuses a product whose operands are split over an axis on two dims of its result.
    ///
    /// # Errors
    /// A finding was reported.
    pub fn refuse_own_block(&mut self, id: StmtId, op: &Name, operands: &[Operand], axis: &Axis) -> Result<(), ()> {
        // The dim of the weight that is kept, which no dim of the other operand is; what `linear` takes is a matrix.
        let (kept, is_matrix) = match op.rsplit('.').next() {
            Some("linear") => (0, true),
            Some("matmul" | "mm") => (1, false),
            _ => return Ok(()),
        };
        let [x, weight, ..] = operands else { return Ok(()) };
        let split = |o: &Operand| Some(o.ty.get(axis)).filter(|s| s.set == AxisType::V).and_then(|s| s.shard);
        let (Some(rows), Some(columns)) = (split(x).and_then(|dim| usize::try_from(dim).ok()), split(weight)) else {
            return Ok(());
        };
        let Some(made) = weight.id.and_then(|id| self.w.heap.tensor(id)).filter(|t| t.home.is_some()) else {
            return Ok(());
        };
        let has_two = made.shape.as_ref().is_some_and(|shape| shape.0.len() == 2);
        if !(is_matrix || has_two) || columns != kept && columns != kept - 2 || self.is_restricted(axis) {
            return Ok(());
        }
        let (operand, other) = (self.operand_at(id, x, axis), Some(self.operand_at(id, weight, axis)));
        let refusal = Refusal::OtherSplit(1);
        let kind = Layout::Refused { axis: axis.clone(), op: op.clone(), dim: rows, refusal, operand, other };
        self.report(self.place(id), FindingKind::Layout(kind));
        Err(())
    }
}
