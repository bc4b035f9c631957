//! Products with parts of parameters. In: operands of an operation. Out: the pending sum that a contraction leaves. Never: the other
//! operations, which `ops.rs` combines.
//! Source: DESIGN.md section 4, "contraction of a dim that is known to be sharded". Next: `share.rs`, which says what is split.

use super::machine::Machine;
use super::ops::Operand;
use super::value::ObjId;
use crate::ir::StmtId;
use crate::rules::dims::{self, Split};
use crate::rules::{Kind, Role};
use crate::source::Name;
use crate::types::{AxisType, Tri};

impl Machine<'_> {
    /// A product that leaves a pending sum, as the operand of the addition that follows it.
    ///
    /// # Errors
    /// A finding was reported.
    pub fn pending_product(
        &mut self,
        id: StmtId,
        dims: &str,
        op: &Name,
        factors: &[Operand; 2],
    ) -> Result<Option<Operand>, ()> {
        let split = |o: &Operand| o.ty.listed().any(|(_, s)| s.set == AxisType::V && s.shard.is_some());
        if !factors.iter().any(split) || self.is_global() {
            return Ok(None);
        }
        let mut ty = self.combine(id, Kind::Multilinear, op, factors)?;
        self.flow_shards(id, dims, factors, &mut ty);
        let pending = ty.listed().any(|(_, s)| s.set == AxisType::P);
        // It has no place of its own but that of the whole call.
        Ok(pending.then_some(Operand { id: None, ty, grad: Tri::Yes, role: Role::Term, part: usize::MAX }))
    }

    /// Whether a split dim of a parameter is summed over: what it meets there has only the part that goes with it.
    pub fn contracts_part(&self, dims: &str, operands: &[Operand], splits: &[Split]) -> bool {
        let parameter = |o: &Operand| {
            let mut at = o.id;
            // Seen through views such as its transpose.
            for _ in 0..super::limits::MAX_VALUE_DEPTH {
                let Some(t) = at.and_then(|id| self.w.heap.tensor(id)) else { return false };
                if t.divided.is_some() {
                    return true;
                }
                at = t.view_of.map(ObjId);
            }
            false
        };
        let known = operands.iter().zip(splits).enumerate().find(|(_, (o, s))| s.dim.is_some() && parameter(o));
        let Some((at, (_, split))) = known else { return false };
        operands.len() == 2
            && splits.iter().enumerate().all(|(i, s)| i == at || s.dim.is_none())
            && dims::contracts(dims, at, *split)
    }
}
