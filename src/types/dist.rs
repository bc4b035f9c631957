//! Distributed tensors: on which mesh a tensor lies, and how. In: a mesh, placements. Out: [`Dist`], what is known of one tensor.
//! Never: what operations do to placements, which is `infer/dtensor/`. Source: DESIGN.md section 8. Next: `tensor.rs`.

use super::{Axis, AxisState, AxisType, LocalType, Mesh};
use crate::plan::Placement;
use crate::source::Place;
use std::sync::Arc;

/// Whether a tensor is a distributed one.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Dist {
    #[default]
    Unknown,
    /// Certainly a tensor of one process.
    Plain,
    On(Arc<OnMesh>),
}

/// Where a distributed tensor lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnMesh {
    /// `None`: not known which mesh.
    pub mesh: Option<Arc<Mesh>>,
    /// One for each mesh dim, where it is known; `None`: not even their number.
    pub placements: Option<Vec<Option<Placement>>>,
    pub stated: Stated,
}

/// Where placements are stated, if they are; no part of what they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stated(pub Option<Place>);

impl PartialEq for Stated {
    fn eq(&self, _: &Stated) -> bool {
        true
    }
}
impl Eq for Stated {}

impl Dist {
    pub fn on(&self) -> Option<&Arc<OnMesh>> {
        match self {
            Dist::On(on) => Some(on),
            _ => None,
        }
    }

    #[must_use]
    pub fn join(&self, other: &Dist) -> Dist {
        if self == other { self.clone() } else { Dist::Unknown }
    }
}

impl OnMesh {
    /// The axes of the mesh, each with its placement; none where either is not known.
    pub fn axes(&self) -> impl Iterator<Item = (&Axis, Option<Placement>)> {
        let mesh = self.mesh.as_deref().map(|m| m.axes.as_slice()).unwrap_or_default();
        let placements = self.placements.as_deref().unwrap_or_default();
        let fit = mesh.len() == placements.len();
        mesh.iter().map(|(a, _)| a).zip(placements.iter().copied()).filter(move |_| fit)
    }

    /// The placement on one mesh dim.
    pub fn placement(&self, mesh_dim: usize) -> Option<Placement> {
        self.placements.as_ref()?.get(mesh_dim).copied().flatten()
    }

    /// All placements, if each of them is known.
    pub fn known(&self) -> Option<Vec<Placement>> {
        self.placements.as_ref()?.iter().copied().collect()
    }

    /// What the local tensors are to each other, one type for each axis.
    pub fn local(&self) -> LocalType {
        let mut local = LocalType::unknown();
        for (axis, placement) in self.axes() {
            if let Some(placement) = placement.filter(|_| !axis.is_position()) {
                // What is equal on all ranks, and a distributed tensor knows it.
                let whole = placement == Placement::Replicate;
                local.set(axis, if whole { AxisState::new(AxisType::R) } else { state(placement) });
            }
        }
        local
    }
}

/// The type that a placement stands for. A whole value is equal on all ranks, whatever becomes of its gradient.
pub fn state(placement: Placement) -> AxisState {
    let mut state = AxisState::new(match placement {
        Placement::Replicate => AxisType::EQUAL,
        Placement::Shard(_) | Placement::Strided { .. } => AxisType::V,
        Placement::Partial(_) => AxisType::P,
    });
    if let Placement::Shard(dim) = placement {
        state.shard = i8::try_from(dim).ok();
    }
    state
}
