//! What a move does on the wire. In: a move, the state before it, the mesh. Out: a [`Step`]: its collective, the size of the
//! group and the bytes. Never: which moves to make. Next: `route.rs`.
//!
//! Source of which collective: torch 2.15, `torch/distributed/tensor/_redistribute.py`, `redistribute_local_tensor`. Bytes are
//! those that one rank sends, by the ring algorithms that PyTorch's cost model assumes, padding of uneven shards included:
//! gather `(n-1) * shard`, reduce-scatter `(n-1) * shard`, all-reduce `2 (n-1) * whole / n`, all-to-all `(n-1) * shard / n`.

use super::greedy::Move;
use super::mesh::{Device, Mesh};
use super::placement::Placement;
use super::refusal::Refusal;

/// A collective, by its kind. The run time's own name for it depends on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    AllGather,
    AllReduce,
    ReduceScatter,
    AllToAll,
}

impl Collective {
    /// The word of `_TransformInfo._comm_type_key`.
    pub fn name(self) -> &'static str {
        match self {
            Collective::AllGather => "all_gather",
            Collective::AllReduce => "all_reduce",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::AllToAll => "all_to_all",
        }
    }

    /// The operator that `CommDebugMode` counts.
    pub fn operator(self, device: Device) -> &'static str {
        match (self, device) {
            (Collective::AllGather, _) | (Collective::AllToAll, Device::Cpu) => "all_gather_into_tensor",
            (Collective::AllReduce, _) => "all_reduce",
            (Collective::ReduceScatter, _) => "reduce_scatter_tensor",
            (Collective::AllToAll, Device::Cuda) => "shard_dim_alltoall",
        }
    }
}

/// A move with all that is said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub mesh_dim: usize,
    pub from: Placement,
    pub to: Placement,
    /// None where every rank has what it needs.
    pub collective: Option<Collective>,
    /// Ranks that take part: the size of the mesh dim.
    pub group: u64,
    /// Bytes that one rank sends.
    pub bytes: u64,
    /// What the first rank holds afterwards, one size for each tensor dim.
    pub local: Vec<u64>,
}

/// The shape that the first rank holds: no rank holds more. `shape` is the global one.
pub fn local_shape(shape: &[u64], placements: &[Placement], mesh: &Mesh) -> Vec<u64> {
    let mut local = shape.to_vec();
    for (mesh_dim, placement) in placements.iter().enumerate() {
        let ranks = mesh.size(mesh_dim);
        match *placement {
            Placement::Shard(dim) => {
                if let Some(size) = local.get_mut(dim) {
                    *size = size.div_ceil(ranks);
                }
            }
            Placement::Strided { dim, split } => {
                if let Some(size) = local.get_mut(dim) {
                    *size = strided_size(*size, split, ranks);
                }
            }
            Placement::Replicate | Placement::Partial(_) => {}
        }
    }
    local
}

/// What the first of `ranks` gets of `size` elements that are cut into `split` pieces first. Source: `_StridedShard._split_tensor`.
fn strided_size(size: u64, split: u64, ranks: u64) -> u64 {
    let piece = size.div_ceil(split.max(1));
    if piece == 0 {
        return 0;
    }
    (size / piece).saturating_mul(piece.div_ceil(ranks)).saturating_add((size % piece).div_ceil(ranks))
}

/// What carries a move out; the run time's refusal where nothing does.
pub fn collective(step: &Move) -> Result<Option<Collective>, Refusal> {
    use Placement::{Partial, Replicate, Shard, Strided};
    match (step.from, step.to) {
        (from, to) if from == to => Ok(None),
        (Partial(_), Replicate | Strided { .. }) => Ok(Some(Collective::AllReduce)),
        (Shard(_) | Strided { .. }, Replicate) => Ok(Some(Collective::AllGather)),
        (Replicate, Replicate | Shard(_) | Strided { .. }) => Ok(None),
        (Partial(_), Shard(_)) => Ok(Some(Collective::ReduceScatter)),
        (Shard(_), Shard(_)) => Ok(Some(Collective::AllToAll)),
        // A strided shard on either side goes by way of the whole.
        (Strided { .. }, Shard(_) | Strided { .. }) | (Shard(_), Strided { .. }) => Ok(Some(Collective::AllGather)),
        (from, Partial(op)) => match Refusal::of_partial_step(from, op) {
            Some(refusal) => Err(refusal),
            None => Ok(None),
        },
    }
}

/// The size of the tensor and what moves it.
pub struct Cargo<'a> {
    pub mesh: &'a Mesh,
    /// The global shape.
    pub shape: &'a [u64],
    /// Bytes of one element.
    pub element: u64,
    pub device: Device,
}

impl Cargo<'_> {
    /// Carries a move out on `placements`, which it changes.
    pub fn step(&self, step: &Move, placements: &mut [Placement]) -> Result<Step, Refusal> {
        let group = self.mesh.size(step.mesh_dim);
        let before = local_shape(self.shape, placements, self.mesh);
        if let Some(placement) = placements.get_mut(step.mesh_dim) {
            *placement = step.to;
        }
        let local = local_shape(self.shape, placements, self.mesh);
        // A group of one rank has nothing to say to itself, and is not even asked whether it could.
        let collective = if group == 1 { None } else { collective(step)? };
        let bytes = collective.map_or(0, |collective| self.bytes(collective, group, &before, &local));
        Ok(Step { mesh_dim: step.mesh_dim, from: step.from, to: step.to, collective, group, bytes, local })
    }

    /// Bytes that one rank sends; more than fit in 64 bits count as that many.
    fn bytes(&self, collective: Collective, group: u64, before: &[u64], after: &[u64]) -> u64 {
        let elements = |shape: &[u64]| shape.iter().fold(1u128, |all, size| all.saturating_mul(u128::from(*size)));
        let others = u128::from(group) - 1;
        let sent = match (collective, self.device) {
            (Collective::AllGather, _) => elements(before) * others,
            (Collective::ReduceScatter, _) => elements(after) * others,
            (Collective::AllReduce, _) => elements(before).div_ceil(u128::from(group)) * 2 * others,
            (Collective::AllToAll, device) => {
                // One piece for each rank: the old shard, cut along the new dim.
                let piece: Vec<u64> = before.iter().zip(after).map(|(before, after)| *before.min(after)).collect();
                match device {
                    Device::Cuda => elements(&piece) * others,
                    Device::Cpu => elements(&piece) * u128::from(group) * others,
                }
            }
        };
        u64::try_from(sent.saturating_mul(u128::from(self.element))).unwrap_or(u64::MAX)
    }
}
