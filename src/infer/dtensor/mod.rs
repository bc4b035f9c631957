//! Distributed tensors: meshes, placements, and what operations do to them. In: calls of the functions that `rules/torch/dtensor.toml`
//! names, and operations on their results. Out: values with a mark [`crate::types::Dist`], and [`found::Distributed`] findings.
//! Never: steps of a redistribution, which `plan/` knows. What is not known is silent. Source: DESIGN.md section 8; torch 2.15
//! `torch.distributed.tensor`. Next: `found.rs`, `make.rs`, `op.rs`.

pub mod found;
mod make;
mod mesh;
pub mod model_of_plan;
mod modules;
mod op;
mod placements;
pub mod planned;
mod region;
mod unknown_mesh;
mod view;
mod whole_layers;

use super::expr::CallArgs;
use super::machine::Machine;
use super::value::{ObjId, Value};
use crate::ir::StmtId;
use crate::plan::{Placement, ReduceOp, Written};
use crate::rules::{Entry, IntrinsicRule};
use crate::source::Name;
use crate::types::{AxisState, Dist, dims_differ, state_of_placement};
use std::sync::Arc;

/// A call with its arguments by name.
struct Call<'a> {
    id: StmtId,
    rule: &'a IntrinsicRule,
    args: &'a CallArgs,
}

impl Call<'_> {
    /// An argument and the part of the statement where it is.
    fn arg(&self, name: &str) -> Option<(&Value, usize)> {
        let keywords: Vec<Option<&Name>> = self.args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let at = self.rule.args.bind(&keywords).first(self.rule.args.index(name)?)?;
        self.args.args.get(at).map(|a| (&a.value, a.part))
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.arg(name).map(|(value, _)| value)
    }

    /// The name of the function, without its package.
    fn name(&self) -> Name {
        super::collective::short(&self.rule.name)
    }
}

impl Machine<'_> {
    /// Whether a tensor is of a class, if that is the class of distributed tensors and it is known.
    pub(super) fn is_distributed(&self, id: ObjId, class: &str) -> Option<bool> {
        let Some(Entry::Intrinsic(rule)) = self.rules.get(class) else { return None };
        match &self.w.heap.tensor(id)?.dist {
            _ if rule.does != "dtensor-class" => None,
            Dist::On(_) => Some(true),
            Dist::Plain => Some(false),
            Dist::Unknown => None,
        }
    }

    /// Something that may have been distributed meanwhile: nobody knows any more that it is of one process.
    pub(super) fn maybe_distributed(&mut self, id: ObjId) {
        if let Some(t) = self.w.heap.tensor_mut(id)
            && t.dist == Dist::Plain
        {
            t.dist = Dist::Unknown;
        }
    }

    /// A function about distributed tensors; `None` if the rule is about something else.
    pub(super) fn distributed_intrinsic(
        &mut self,
        id: StmtId,
        rule: &Arc<IntrinsicRule>,
        args: &CallArgs,
    ) -> Option<Value> {
        let does = rule.does.strip_prefix("dtensor-")?;
        let call = Call { id, rule, args };
        if args.open {
            self.forget(args);
            return Some(Value::Unknown);
        }
        Some(match does {
            "shard" => match call.value("dim").and_then(Value::as_int) {
                Some(dim) => placement(Written::Shard { dim, order: None }),
                None => Value::Unknown,
            },
            "replicate" => placement(Written::Replicate),
            "partial" => match call.value("reduce_op") {
                None => placement(Written::Partial(ReduceOp::Sum)),
                Some(op) => reduction(op).map_or(Value::Unknown, |op| placement(Written::Partial(op))),
            },
            "distribute" => self.distribute(&call),
            "from-local" => self.local_wrapped(&call),
            "factory" => self.distributed_factory(&call),
            "redistribute" => self.redistribute(&call),
            "to-local" => self.local_part(&call),
            "full-tensor" => self.full_tensor(&call),
            "fully-shard" => self.fully_shard(&call),
            "parallelize" => self.parallelize(&call),
            "style" | "style-weight" | "style-input" | "style-output" | "style-both" => self.style(&call),
            "module" => self.distribute_module(&call),
            "local-map" => self.local_region(&call),
            _ => {
                self.forget(args);
                Value::Unknown
            }
        })
    }
}

/// Whether a type and a placement cannot be of one tensor.
pub(super) fn differs(state: &AxisState, placement: Placement, rank: Option<usize>) -> bool {
    let placed = state_of_placement(placement);
    if state.set.is_unknown() {
        return false;
    }
    let dims =
        matches!((state.shard, placed.shard), (Some(a), Some(b)) if state.set == placed.set && dims_differ(a, b, rank));
    state.set.meet(placed.set).is_empty() || dims
}

fn placement(written: Written) -> Value {
    Value::Placement(Arc::new(written))
}

fn reduction(value: &Value) -> Option<ReduceOp> {
    let name = value.as_str()?;
    ReduceOp::ALL.into_iter().find(|op| op.name() == name.as_str())
}
