//! Parallel modes: named expansions of a program for one device into a distributed one.
//!
//! In: a name. Out: a [`ParallelMode`]: what inputs, parameters, buffers and states are on the axis of the mode, and what is done with
//! gradients. Never: inference; a type that the program states goes before that of a mode. Source: DESIGN.md section 8;
//! torch 2.2 `torch.distributed._spmd.parallel_mode` for `dtensor-expand`. Next: `infer/modes.rs`.

use super::{AxisState, AxisType};

/// What is done with the gradient of a parameter over the axis, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gradients {
    /// Summed over the ranks after the backward: every rank has all of it.
    AllReduce,
    /// Summed, and every rank keeps its part.
    ReduceScatter,
    /// The mode says nothing: each parameter has its own.
    Own,
}

/// A named expansion.
pub trait ParallelMode: Sync + std::fmt::Debug {
    /// As it is written in configurations and on the command line.
    fn name(&self) -> &'static str;
    /// The axis over which it works, unless the mesh has one axis only.
    fn axis(&self) -> &'static str;
    /// A tensor that comes into the program; none: as the program says.
    fn inputs(&self) -> Option<AxisState>;
    /// A parameter where the program computes with it.
    fn parameters(&self) -> Option<AxisState>;
    /// A buffer.
    fn buffers(&self) -> Option<AxisState> {
        self.parameters()
    }
    /// The state that an optimizer keeps for a parameter.
    fn states(&self) -> Option<AxisState> {
        self.parameters()
    }
    fn gradients(&self) -> Gradients;
    /// Whether a parameter is gathered before it is used, because each rank keeps a part of it.
    fn gathers_parameters(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct DtensorExpand;
#[derive(Debug)]
struct DataParallel;
#[derive(Debug)]
struct Fsdp;
#[derive(Debug)]
struct TensorParallel;
#[derive(Debug)]
struct SequenceParallel;
#[derive(Debug)]
struct ContextParallel;

fn replicate() -> Option<AxisState> {
    Some(AxisState::new(AxisType::R))
}

impl ParallelMode for DtensorExpand {
    fn name(&self) -> &'static str {
        "dtensor-expand"
    }
    fn axis(&self) -> &'static str {
        "dp"
    }
    fn inputs(&self) -> Option<AxisState> {
        Some(AxisState::shard(0))
    }
    fn parameters(&self) -> Option<AxisState> {
        replicate()
    }
    fn gradients(&self) -> Gradients {
        Gradients::AllReduce
    }
}

impl ParallelMode for DataParallel {
    fn name(&self) -> &'static str {
        "data-parallel"
    }
    fn axis(&self) -> &'static str {
        "dp"
    }
    fn inputs(&self) -> Option<AxisState> {
        Some(AxisState::shard(0))
    }
    fn parameters(&self) -> Option<AxisState> {
        replicate()
    }
    fn gradients(&self) -> Gradients {
        Gradients::AllReduce
    }
}

impl ParallelMode for Fsdp {
    fn name(&self) -> &'static str {
        "fsdp"
    }
    fn axis(&self) -> &'static str {
        "dp"
    }
    fn inputs(&self) -> Option<AxisState> {
        Some(AxisState::shard(0))
    }
    fn parameters(&self) -> Option<AxisState> {
        replicate()
    }
    fn states(&self) -> Option<AxisState> {
        Some(AxisState::shard(0))
    }
    fn gradients(&self) -> Gradients {
        Gradients::ReduceScatter
    }
    fn gathers_parameters(&self) -> bool {
        true
    }
}

impl ParallelMode for TensorParallel {
    fn name(&self) -> &'static str {
        "tensor-parallel"
    }
    fn axis(&self) -> &'static str {
        "tp"
    }
    fn inputs(&self) -> Option<AxisState> {
        Some(AxisState::new(AxisType::I))
    }
    fn parameters(&self) -> Option<AxisState> {
        None
    }
    fn gradients(&self) -> Gradients {
        Gradients::Own
    }
}

impl ParallelMode for SequenceParallel {
    fn name(&self) -> &'static str {
        "sequence-parallel"
    }
    fn axis(&self) -> &'static str {
        "tp"
    }
    fn inputs(&self) -> Option<AxisState> {
        Some(AxisState::shard(0))
    }
    fn parameters(&self) -> Option<AxisState> {
        None
    }
    fn gradients(&self) -> Gradients {
        Gradients::Own
    }
}

impl ParallelMode for ContextParallel {
    fn name(&self) -> &'static str {
        "context-parallel"
    }
    fn axis(&self) -> &'static str {
        "cp"
    }
    fn inputs(&self) -> Option<AxisState> {
        Some(AxisState::shard(1))
    }
    fn parameters(&self) -> Option<AxisState> {
        replicate()
    }
    fn gradients(&self) -> Gradients {
        Gradients::AllReduce
    }
}

/// Every mode, by name.
pub const MODES: &[&dyn ParallelMode] =
    &[&DtensorExpand, &DataParallel, &Fsdp, &TensorParallel, &SequenceParallel, &ContextParallel];

/// The mode of a name; `_` and `-` are the same, and so are the names of the classes of the old `torch.distributed._spmd`.
pub fn mode(name: &str) -> Option<&'static dyn ParallelMode> {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let same = |m: &&&'static dyn ParallelMode| {
        let own: String = m.name().chars().filter(char::is_ascii_alphanumeric).collect();
        own == plain || format!("{own}mode") == plain
    };
    let alias = |name: &str| MODES.iter().find(|m| m.name() == name).copied();
    MODES.iter().find(same).copied().or_else(|| match plain.as_str() {
        "replicate" | "ddp" => alias("data-parallel"),
        "fullyshard" | "fullysharded" => alias("fsdp"),
        "dataparallelmode" => alias("data-parallel"),
        _ => None,
    })
}
