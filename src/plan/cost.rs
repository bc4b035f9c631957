//! What an edge of the graph search weighs. In: one move and the mesh. Out: microseconds, by PyTorch's model of a ring.
//! Never: the bytes of a plan, which are in `traffic.rs`. Next: `graph.rs`.
//!
//! Source: torch 2.15, `torch/distributed/tensor/_collective_utils.py`: `MeshTopoInfo`, `_compute_placement_transition_cost`.
//! The search compares sums of these numbers, so every operation is done in the order in which PyTorch does it.

use super::mesh::{Machine, Mesh};
use super::placement::Placement;

/// Gigabytes per second inside a host.
const BANDWIDTH: f64 = 87.7;
/// Of the bandwidth inside a host, what is left between hosts.
const BETWEEN_HOSTS: f64 = 0.22;
/// Microseconds of a hop inside a host and between hosts.
const LATENCY: f64 = 0.6;
const LATENCY_BETWEEN_HOSTS: f64 = 2.7;
/// Microseconds before anything moves.
const BASE_LATENCY: f64 = 6.6;

/// Ranks, bandwidth and latency of each mesh dim.
#[derive(Clone, Debug)]
pub struct Topology {
    dims: Vec<(f64, f64, f64)>,
}

impl Topology {
    /// A mesh dim is slow when it and those inside it do not fit on one host.
    pub fn new(mesh: &Mesh, machine: Machine) -> Topology {
        let mut dims = Vec::with_capacity(mesh.ndim());
        let mut devices = 1u64;
        for &size in mesh.sizes.iter().rev() {
            devices = devices.saturating_mul(size);
            let count = size as f64;
            dims.push(match devices > machine.per_host {
                true => (count, BANDWIDTH * BETWEEN_HOSTS, LATENCY_BETWEEN_HOSTS),
                false => (count, BANDWIDTH, LATENCY),
            });
        }
        dims.reverse();
        Topology { dims }
    }

    /// Microseconds of a move on one mesh dim; `gigabytes` is what a rank holds before it.
    pub fn weight(&self, from: Placement, to: Placement, mesh_dim: usize, gigabytes: f64) -> f64 {
        let (devices, bandwidth, latency) = self.dims.get(mesh_dim).copied().unwrap_or((1.0, BANDWIDTH, LATENCY));
        let ring = |gigabytes: f64, hops: f64| {
            let wait = BASE_LATENCY + hops * latency;
            let seconds = (gigabytes * hops / devices) / bandwidth;
            wait + seconds * 1e6
        };
        match (from, to) {
            (Placement::Shard(_), Placement::Replicate) => ring(gigabytes * devices, devices - 1.0),
            // An all-to-all counts as a gather and a little more.
            (Placement::Shard(_), Placement::Shard(_)) => ring(gigabytes, devices - 1.0) + 1.0,
            (Placement::Partial(_), Placement::Replicate) => ring(gigabytes, 2.0 * (devices - 1.0)),
            (Placement::Partial(_), Placement::Shard(_)) => ring(gigabytes, devices - 1.0),
            (Placement::Shard(_) | Placement::Partial(_), Placement::Partial(_)) => f64::INFINITY,
            _ => 0.0,
        }
    }
}
