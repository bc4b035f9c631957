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
    /// Whether the program may not return a pending sum.
    fn refuses_pending_results(&self) -> bool {
        false
    }
    /// Whether a parameter is gathered before it is used, because each rank keeps a part of it.
    fn gathers_parameters(&self) -> bool {
        false
    }
}

/// A mode that says the same of every tensor of a kind.
#[derive(Debug)]
struct Expansion {
    name: &'static str,
    axis: &'static str,
    inputs: AxisState,
    parameters: Option<AxisState>,
    /// Where they are not as the parameters are.
    states: Option<AxisState>,
    gradients: Gradients,
    gathers_parameters: bool,
    refuses_pending_results: bool,
}

impl ParallelMode for Expansion {
    fn name(&self) -> &'static str {
        self.name
    }
    fn axis(&self) -> &'static str {
        self.axis
    }
    fn inputs(&self) -> Option<AxisState> {
        Some(self.inputs.clone())
    }
    fn parameters(&self) -> Option<AxisState> {
        self.parameters.clone()
    }
    fn states(&self) -> Option<AxisState> {
        self.states.clone().or_else(|| self.parameters())
    }
    fn gradients(&self) -> Gradients {
        self.gradients
    }
    fn gathers_parameters(&self) -> bool {
        self.gathers_parameters
    }
    fn refuses_pending_results(&self) -> bool {
        self.refuses_pending_results
    }
}

const REPLICATE: AxisState = AxisState { set: AxisType::R, ..AxisState::UNKNOWN };
const INVARIANT: AxisState = AxisState { set: AxisType::I, ..AxisState::UNKNOWN };

/// Split on a dim.
const fn split(dim: i8) -> AxisState {
    AxisState { set: AxisType::V, shard: Some(dim), ..AxisState::UNKNOWN }
}

/// Inputs that are split, parameters that every rank has whole, gradients that are summed.
const fn replicated(name: &'static str, axis: &'static str, dim: i8, refuses_pending_results: bool) -> Expansion {
    Expansion {
        name,
        axis,
        inputs: split(dim),
        parameters: Some(REPLICATE),
        states: None,
        gradients: Gradients::AllReduce,
        gathers_parameters: false,
        refuses_pending_results,
    }
}

/// Parameters that have marks and reducers of their own.
const fn marked(name: &'static str, axis: &'static str, inputs: AxisState) -> Expansion {
    Expansion {
        name,
        axis,
        inputs,
        parameters: None,
        states: None,
        gradients: Gradients::Own,
        gathers_parameters: false,
        refuses_pending_results: false,
    }
}

static DTENSOR_EXPAND: Expansion = replicated("dtensor-expand", "dp", 0, true);
static DATA_PARALLEL: Expansion = replicated("data-parallel", "dp", 0, false);
static FSDP: Expansion = Expansion {
    name: "fsdp",
    axis: "dp",
    inputs: split(0),
    parameters: Some(REPLICATE),
    states: Some(split(0)),
    gradients: Gradients::ReduceScatter,
    gathers_parameters: true,
    refuses_pending_results: false,
};
static TENSOR_PARALLEL: Expansion = marked("tensor-parallel", "tp", INVARIANT);
static SEQUENCE_PARALLEL: Expansion = marked("sequence-parallel", "tp", split(0));
static CONTEXT_PARALLEL: Expansion = replicated("context-parallel", "cp", 1, false);

/// Every mode, by name.
pub static MODES: &[&dyn ParallelMode] =
    &[&DTENSOR_EXPAND, &DATA_PARALLEL, &FSDP, &TENSOR_PARALLEL, &SEQUENCE_PARALLEL, &CONTEXT_PARALLEL];

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
