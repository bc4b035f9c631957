//! The planner that PyTorch uses unless the order of shards matters. In: two lists of placements. Out: moves, each of one mesh
//! dim. Never: sizes or costs: it does not look at them. Next: `graph.rs` for the other planner, `traffic.rs` for the bytes.
//!
//! Source: torch 2.15, `torch/distributed/tensor/_redistribute.py`, `generate_greedy_transform_infos`.

use super::placement::Placement;

/// One step: what becomes of one mesh dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub mesh_dim: usize,
    pub from: Placement,
    pub to: Placement,
}

/// The moves from one list of placements to another of the same length.
///
/// `shards` is the number of pieces of the source: without any, nothing can be nested, and the first pass is left out.
pub fn moves(source: &[Placement], target: &[Placement], shards: u64) -> Vec<Move> {
    let mut current = source.to_vec();
    let mut found = Vec::new();
    let mut go = |current: &mut Vec<Placement>, mesh_dim: usize, to: Placement| {
        let from = current[mesh_dim];
        if from != to {
            found.push(Move { mesh_dim, from, to });
            current[mesh_dim] = to;
        }
    };
    let dims = current.len().min(target.len());
    // From the innermost: a shard whose outer neighbours are not yet those of the target is undone first.
    if dims > 1 && shards > 1 {
        for mesh_dim in (0..dims).rev() {
            let to = match target[mesh_dim] {
                Placement::Shard(dim) if cuts(&current[..mesh_dim], dim) != cuts(&target[..mesh_dim], dim) => {
                    Placement::Replicate
                }
                to => to,
            };
            go(&mut current, mesh_dim, to);
        }
    }
    for (mesh_dim, to) in target.iter().enumerate().take(dims) {
        go(&mut current, mesh_dim, *to);
    }
    found
}

/// The mesh dims that cut a tensor dim by plain shards; strided ones are not `is_shard()`.
fn cuts(placements: &[Placement], dim: usize) -> Vec<usize> {
    let shard = Placement::Shard(dim);
    placements.iter().enumerate().filter(|(_, placement)| **placement == shard).map(|(at, _)| at).collect()
}
