//! The planner for orders of shards: the cheapest path between two states. In: two states, the mesh, the size of the tensor.
//! Out: moves. Never: strided shards: they have become orders before. Next: `cost.rs` for the weights.
//!
//! Source: torch 2.15, `torch/distributed/tensor/_redistribute.py`, class `DTensorRedistributePlanner`: `find_min_cost_path`,
//! `get_next_state` (cases 1 to 6), `_get_shard_to_partial_target_states` (case 7). Cases 9 and 12 serve strided shards that
//! come from a view, which no call of `redistribute` can ask for. Ties are broken as there: by the order in which edges are made.

use super::cost::Topology;
use super::greedy::Move;
use super::mesh::Mesh;
use super::order::{self, ShardOrder};
use super::placement::{Placement, ReduceOp};
use rustc_hash::FxHashSet;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// States that a search may reach, about half a KiB each. PyTorch has no limit; with many mesh and tensor dims it does not come back.
const MOST_STATES: usize = 400_000;

/// Placements without strided shards, and the order of their shards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub placements: Vec<Placement>,
    pub order: ShardOrder,
}

/// Why there is no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPath {
    /// Every state was seen.
    Unreachable,
    /// The search was given up.
    TooMany,
}

/// A search over the states of one tensor.
pub struct Search<'a> {
    pub mesh: &'a Mesh,
    pub topology: &'a Topology,
    /// Bytes of the whole tensor.
    pub bytes: f64,
    /// Dims of the tensor.
    pub rank: usize,
    /// Reductions that the source or the target waits for, in the order in which they stand there.
    pub reductions: Vec<ReduceOp>,
}

/// A state that was reached, and from where.
struct Node {
    state: State,
    parent: Option<(usize, Move)>,
}

/// What waits in the queue: cheapest first, then the one that was found first.
#[derive(Clone, Copy)]
struct Waiting {
    cost: f64,
    counter: usize,
    node: usize,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        self.cost.total_cmp(&other.cost).then(self.counter.cmp(&other.counter))
    }
}

impl Search<'_> {
    /// The moves of the cheapest path.
    pub fn moves(&self, source: &State, target: &State) -> Result<Vec<Move>, NoPath> {
        let mut nodes = vec![Node { state: source.clone(), parent: None }];
        let mut queue = BinaryHeap::from([Reverse(Waiting { cost: 0.0, counter: 0, node: 0 })]);
        let mut settled: FxHashSet<State> = FxHashSet::default();
        let mut counter = 0;
        while let Some(Reverse(Waiting { cost, node, .. })) = queue.pop() {
            let state = nodes[node].state.clone();
            if state == *target {
                return Ok(path(&nodes, node));
            }
            if !settled.insert(state.clone()) {
                continue;
            }
            if nodes.len() > MOST_STATES {
                return Err(NoPath::TooMany);
            }
            for (step, next, weight) in self.edges(&state, target) {
                if settled.contains(&next) {
                    continue;
                }
                counter += 1;
                nodes.push(Node { state: next, parent: Some((node, step)) });
                queue.push(Reverse(Waiting { cost: cost + weight, counter, node: nodes.len() - 1 }));
            }
        }
        Err(NoPath::Unreachable)
    }

    /// The states one move away, in PyTorch's order, with the weight of the move in microseconds.
    fn edges(&self, state: &State, target: &State) -> Vec<(Move, State, f64)> {
        let gigabytes = self.local_gigabytes(state);
        let mut found = Vec::new();
        let mut add = |mesh_dim: usize, to: Placement| {
            let from = state.placements[mesh_dim];
            let weight = self.topology.weight(from, to, mesh_dim, gigabytes);
            let step = Move { mesh_dim, from, to };
            found.push((step, moved(state, &step), weight));
        };
        // The last cut of a tensor dim is the only one that can be undone.
        let last_cuts = || state.order.iter().filter_map(|(dim, cuts)| Some((*dim, *cuts.last()?)));
        for (dim, mesh_dim) in last_cuts() {
            for other in (0..self.rank).filter(|other| *other != dim) {
                add(mesh_dim, Placement::Shard(other));
            }
        }
        for (_, mesh_dim) in last_cuts() {
            add(mesh_dim, Placement::Replicate);
        }
        let on = |kind: fn(Placement) -> bool| {
            state.placements.iter().enumerate().filter(move |(_, p)| kind(**p)).map(|(mesh_dim, _)| mesh_dim)
        };
        let replicated = |placement| placement == Placement::Replicate;
        for mesh_dim in on(Placement::is_partial) {
            add(mesh_dim, Placement::Replicate);
        }
        for mesh_dim in on(replicated).chain(on(Placement::is_partial)) {
            for dim in 0..self.rank {
                add(mesh_dim, Placement::Shard(dim));
            }
        }
        for mesh_dim in on(replicated) {
            for &op in self.reductions.iter().filter(|op| !mixes(state, **op)) {
                add(mesh_dim, Placement::Partial(op));
            }
        }
        // A shard becomes a pending sum only where the target asks for one; it costs the search nothing.
        for (_, mesh_dim) in last_cuts() {
            let sum = Placement::Partial(ReduceOp::Sum);
            if target.placements.get(mesh_dim) == Some(&sum) {
                let step = Move { mesh_dim, from: state.placements[mesh_dim], to: sum };
                found.push((step, moved(state, &step), 0.0));
            }
        }
        found
    }

    /// Gigabytes that a rank holds, as the cost model counts them: evenly split.
    fn local_gigabytes(&self, state: &State) -> f64 {
        let cuts = state.placements.iter().enumerate().filter(|(_, placement)| placement.shard_dim().is_some());
        let shards = cuts.fold(1u64, |all, (mesh_dim, _)| all.saturating_mul(self.mesh.size(mesh_dim)));
        self.bytes / shards as f64 / 1024.0 / 1024.0 / 1024.0
    }
}

/// Pending reductions that do not commute with one of `op`. Source: `assert_no_mixed_partial_types`.
fn mixes(state: &State, op: ReduceOp) -> bool {
    let linear = |op: ReduceOp| matches!(op, ReduceOp::Sum | ReduceOp::Avg);
    let mut others = state.placements.iter().filter_map(|placement| placement.reduce_op());
    others.any(|other| other != op && !(linear(other) && linear(op)))
}

/// The state after a move.
fn moved(state: &State, step: &Move) -> State {
    let mut next = state.clone();
    next.placements[step.mesh_dim] = step.to;
    order::recut(&mut next.order, step);
    next
}

/// The moves from the source to a node.
fn path(nodes: &[Node], mut node: usize) -> Vec<Move> {
    let mut moves = Vec::new();
    while let Some((parent, step)) = nodes[node].parent {
        moves.push(step);
        node = parent;
    }
    moves.reverse();
    moves
}
