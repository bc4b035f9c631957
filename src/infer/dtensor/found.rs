//! What is wrong with distributed tensors, as data. In: nothing. Out: [`Distributed`]. Never: words. Next: `make.rs`.

use crate::infer::finding::OperandAt;
use crate::plan::{Placement, Refusal, Written};
use crate::source::{Name, Place};
use crate::types::{Axis, AxisState, Mesh};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub enum Distributed {
    /// A shard of a dim that the tensor does not have.
    ShardDim { api: Name, dim: i64, rank: usize },
    /// Placements, or a way between them, that the library refuses.
    Refused { api: Name, refusal: Refusal },
    /// A distributed tensor is distributed again, another way.
    Again { api: Name, was: Vec<Placement>, wanted: Vec<Placement> },
    /// A distributed tensor where the tensor of one process is due.
    NotLocal { api: Name, tensor: Place },
    /// Operands on two meshes.
    TwoMeshes { op: Name, meshes: [Arc<Mesh>; 2], at: [Place; 2] },
    /// A redistribution to another mesh.
    OtherMesh { api: Name, meshes: [Arc<Mesh>; 2] },
    /// Distributed tensors and others in one operation.
    Mixed { op: Name, distributed: Place, plain: Place },
    /// An operation that first completes a pending reduction.
    Implicit { op: Name, axis: Option<Axis>, placement: Placement, operand: Place, cost: Option<Cost> },
    /// An operation in place that would have to complete a pending reduction.
    InPlace { op: Name, axis: Option<Axis>, placement: Placement, operand: Place },
    /// Local values that are not to each other what the placement says.
    Claim { api: Name, axis: Axis, placement: Placement, operand: OperandAt },
    /// A view that cuts a split dim into parts that the ranks do not divide.
    View { op: Name, operand: Place, dim: usize, size: i64, ranks: u64 },
    /// A type that one notation states and a placement by another. `here`: the placement is stated here, and the
    /// type before; else the type is stated of `value`, at `by`.
    Notations {
        axis: Axis,
        state: AxisState,
        placement: Placement,
        stated: Option<Place>,
        here: bool,
        value: Option<Place>,
        by: Option<Place>,
    },
    /// A decorator that selects a parallel mode, of a part of the library that is gone.
    ModeGone { api: Name, removed: Name },
    /// The result of a program in a mode that takes no pending sums for results.
    PartialResult { mode: Name, axis: Axis, value: Place },
    /// Dims of a mesh.
    Mesh(MeshMistake),
    /// A plan for the modules of a model.
    Plan(PlanMistake),
}

/// What a collective that nobody wrote moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    pub ranks: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum MeshMistake {
    /// Another number of names than of sizes.
    Names { names: usize, sizes: usize },
    /// A name twice.
    Repeated(Name),
    /// A slice by a name that the mesh does not have.
    NoDim { name: Name, mesh: Arc<Mesh> },
    /// A slice of a mesh whose dims have no names.
    Unnamed,
    /// A slice with the dims in another order.
    Order { given: Vec<Name>, mesh: Arc<Mesh> },
    /// A group of a mesh with several dims, without saying which.
    WhichDim { method: Name, mesh: Arc<Mesh> },
    /// A function that takes meshes with some numbers of dims only.
    Dims { api: Name, dims: usize, least: usize, most: usize },
    /// Hybrid sharding over a mesh whose dims have no names.
    NoNames { api: Name },
}

#[derive(Clone, Debug, PartialEq)]
pub enum PlanMistake {
    /// No module of this name.
    NoModule { key: Name, class: Name, near: Option<Name> },
    /// A style for layers of other kinds.
    Layer { style: Name, key: Name, layer: Name, takes: Vec<Name> },
    /// Layouts and desired layouts of different length.
    Lengths { style: Name, given: usize, desired: usize },
    /// Layouts without desired ones.
    NoDesired { style: Name },
    /// What one style leaves is not what the next one takes it for.
    Layouts { style: Name, layout: Written, state: AxisState, value: Place, left: Option<Place> },
    /// An operation on the part of a rank and a whole value.
    Apart { op: Name, split: Place, dim: i8, whole: Place, plan: Option<Place> },
    /// A layer that the plan leaves whole gets a part of the dim over which it sums.
    Whole { layer: Name, value: Place },
    /// A function that is called with another number of arguments than it takes.
    Arity { argument: Name, takes: usize, given: usize },
}
