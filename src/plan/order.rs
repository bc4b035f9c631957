//! In which order the mesh dims cut a tensor dim. In: placements and mesh sizes. Out: [`ShardOrder`], strided shards from it
//! and back, states in the run time's words. Never: a plan. Next: `greedy.rs`, `graph.rs`.
//!
//! Source: torch 2.15, `torch/distributed/tensor/_dtensor_spec.py`, class `DTensorSpec`.

use super::greedy::Move;
use super::mesh::Mesh;
use super::placement::Placement;
use std::collections::BTreeMap;

/// Tensor dim -> the mesh dims that cut it, first cut first; never an empty list.
pub type ShardOrder = BTreeMap<usize, Vec<usize>>;

/// The order from left to right. Source: `compute_default_shard_order`.
pub fn default_order(placements: &[Placement]) -> ShardOrder {
    let mut order = ShardOrder::new();
    for (mesh_dim, placement) in placements.iter().enumerate() {
        if let Some(dim) = placement.shard_dim() {
            order.entry(dim).or_default().push(mesh_dim);
        }
    }
    order
}

/// The order that strided shards stand for, and the placements as plain shards; `None` when no order has these split factors.
/// Source: `_maybe_convert_StridedShard_to_shard_order`, `_normalize_placements_into_shard_order`.
pub fn decode(placements: &[Placement], mesh: &Mesh) -> Option<(Vec<Placement>, ShardOrder)> {
    let mut order = ShardOrder::new();
    for (mesh_dim, placement) in placements.iter().enumerate().rev() {
        let (dim, split) = match *placement {
            Placement::Shard(dim) => (dim, 1),
            Placement::Strided { dim, split } => (dim, split),
            Placement::Replicate | Placement::Partial(_) => continue,
        };
        let cuts = order.entry(dim).or_default();
        // Cuts that come earlier in the order and later in the mesh multiply to the split factor.
        let mut earlier = 1u64;
        let place = (0..=cuts.len()).find(|&place| {
            if place > 0 {
                earlier = earlier.saturating_mul(mesh.size(cuts[place - 1]));
            }
            earlier == split
        })?;
        cuts.insert(place, mesh_dim);
    }
    let plain = placements.iter().map(|placement| match placement.shard_dim() {
        Some(dim) => Placement::Shard(dim),
        None => *placement,
    });
    Some((plain.collect(), order))
}

/// The strided shards that stand for an order of plain shards. Source: `_convert_shard_order_to_StridedShard`.
pub fn encode(placements: &[Placement], order: &ShardOrder, mesh: &Mesh) -> Vec<Placement> {
    let mut encoded = placements.to_vec();
    for (&dim, cuts) in order {
        for (place, &mesh_dim) in cuts.iter().enumerate() {
            let earlier = cuts[..place].iter().filter(|other| **other > mesh_dim);
            let split = earlier.fold(1u64, |all, other| all.saturating_mul(mesh.size(*other)));
            if let Some(placement) = encoded.get_mut(mesh_dim) {
                *placement = if split == 1 { Placement::Shard(dim) } else { Placement::Strided { dim, split } };
            }
        }
    }
    encoded
}

/// A state in the run time's words: `S(0)[1]S(0)[0]R`. Source: `format_shard_order_str`.
pub fn describe(placements: &[Placement], order: &ShardOrder) -> String {
    let mut text = String::new();
    for (mesh_dim, placement) in placements.iter().enumerate() {
        text.push_str(&placement.to_string());
        let cuts = placement.shard_dim().and_then(|dim| order.get(&dim)).filter(|cuts| cuts.len() > 1);
        if let Some(place) = cuts.and_then(|cuts| cuts.iter().position(|cut| *cut == mesh_dim)) {
            text.push_str(&format!("[{place}]"));
        }
    }
    text
}

/// Placements with the order they stand for, or without one when their strided shards stand for none.
pub fn describe_placements(placements: &[Placement], mesh: &Mesh) -> String {
    match decode(placements, mesh) {
        Some((plain, order)) => describe(&plain, &order),
        None => describe(placements, &ShardOrder::new()),
    }
}

/// The order of shards after a move. Source: `_update_shard_order_and_placements`.
pub fn recut(order: &mut ShardOrder, step: &Move) {
    if let Some(dim) = step.from.shard_dim()
        && let Some(cuts) = order.get_mut(&dim)
    {
        cuts.retain(|cut| *cut != step.mesh_dim);
        if cuts.is_empty() {
            order.remove(&dim);
        }
    }
    if let Some(dim) = step.to.shard_dim() {
        order.entry(dim).or_default().push(step.mesh_dim);
    }
}
