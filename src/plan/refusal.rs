//! What PyTorch refuses, and what nobody can plan. In: placements. Out: [`Refusal`], with PyTorch's exception and our words.
//! Never: a plan. Next: `route.rs`.
//!
//! Source: torch 2.15, `torch/distributed/tensor/_api.py` (`from_local`, `redistribute`), `_utils.py`
//! (`assert_no_mixed_partial_types`), `_redistribute.py` (`redistribute_local_tensor`), `placement_types.py`.

use super::mesh::Mesh;
use super::order;
use super::parse::Written;
use super::placement::{Placement, ReduceOp};
use std::collections::{BTreeMap, BTreeSet};

/// Whose exception it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    RuntimeError,
    ValueError,
    AssertionError,
    IndexError,
    /// Not PyTorch's: the question itself is wrong.
    InputError,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::RuntimeError => "RuntimeError",
            Kind::ValueError => "ValueError",
            Kind::AssertionError => "AssertionError",
            Kind::IndexError => "IndexError",
            Kind::InputError => "InputError",
        }
    }
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: Kind,
    /// The text of PyTorch's exception; ours where PyTorch has none.
    pub text: String,
    /// What is wrong, in our words.
    pub words: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl Refusal {
    /// A question that cannot be put.
    pub fn input(words: String) -> Refusal {
        Refusal { kind: Kind::InputError, text: words.clone(), words, help: None }
    }

    fn new(kind: Kind, text: String, words: String, help: &str) -> Refusal {
        Refusal { kind, text, words, help: (!help.is_empty()).then(|| help.to_owned()) }
    }

    /// A step towards a pending reduction that the run time has no way for. Source: `redistribute_local_tensor`, target partial.
    pub fn of_partial_step(from: Placement, op: ReduceOp) -> Option<Refusal> {
        let to = Placement::Partial(op);
        let words = format!("no step goes from {from} to {to}");
        match (from, op) {
            (Placement::Replicate, ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Min | ReduceOp::Max) => None,
            (Placement::Replicate, op) => {
                let text = format!("Replicate to Partial({}) conversion is not supported.", op.name());
                Some(Refusal::new(Kind::ValueError, text, words, ""))
            }
            (Placement::Shard(_), ReduceOp::Sum) => None,
            (Placement::Shard(_) | Placement::Strided { .. }, _) => {
                let text = format!("redistribute from {from} to {to} not supported yet");
                Some(Refusal::new(Kind::RuntimeError, text, words, ""))
            }
            (Placement::Partial(_), _) => {
                let text = format!("Redistribution from one partial type ({from}) to another ({to}) is unsupported.");
                Some(Refusal::new(Kind::AssertionError, text, words, ""))
            }
        }
    }

    /// A state that the graph search does not reach.
    pub fn no_path(source: &str, target: &str) -> Refusal {
        let text = format!("No path found from src_state {source} to dst_state {target}");
        Refusal::new(Kind::AssertionError, text, format!("no steps lead from {source} to {target}"), "")
    }
}

/// Which side of the question a list stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Source,
    Target,
}

impl Side {
    fn word(self) -> &'static str {
        match self {
            Side::Source => "source",
            Side::Target => "target",
        }
    }
}

/// Placements as the run time has them: dims counted from the front, orders as strided shards.
pub fn resolve(written: &[Written], rank: usize, mesh: &Mesh, side: Side) -> Result<Vec<Placement>, Refusal> {
    if written.len() != mesh.ndim() {
        let counted = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        let (placements, dims) = (counted(written.len(), "placement"), counted(mesh.ndim(), "dim"));
        let words = format!("the {} has {placements}, but the mesh has {dims}", side.word());
        let mut refusal = Refusal::input(words);
        refusal.help =
            Some("PyTorch does not check this: it drops what is over, or fails with a bare IndexError".to_owned());
        return Err(refusal);
    }
    let mut placements = Vec::with_capacity(written.len());
    for (mesh_dim, placement) in written.iter().enumerate() {
        placements.push(match *placement {
            Written::Replicate => Placement::Replicate,
            Written::Partial(op) => Placement::Partial(op),
            Written::Shard { dim, .. } => Placement::Shard(tensor_dim(dim, rank, mesh_dim, written, side)?),
            Written::Strided { dim, split } => {
                Placement::Strided { dim: tensor_dim(dim, rank, mesh_dim, written, side)?, split }
            }
        });
    }
    let orders = written_orders(written, &placements)?;
    Ok(order::encode(&placements, &orders, mesh))
}

/// A tensor dim counted from the front.
fn tensor_dim(dim: i64, rank: usize, mesh_dim: usize, written: &[Written], side: Side) -> Result<usize, Refusal> {
    let counted = if dim < 0 { dim.saturating_add_unsigned(rank as u64) } else { dim };
    if let Ok(found) = usize::try_from(counted)
        && found < rank
    {
        return Ok(found);
    }
    let dims = match rank {
        0 => "has no dims".to_owned(),
        1 => "has one dim, 0".to_owned(),
        _ => format!("has dims 0 to {}", rank - 1),
    };
    let words = format!("the {} shards tensor dim {dim}, but the tensor {dims}", side.word());
    let rank_text = i64::try_from(rank).unwrap_or(i64::MAX);
    // What the run time says depends on where it stumbles; for a target this is a chunk of a whole tensor.
    let (kind, text) = match side {
        Side::Source if counted < 0 => (
            Kind::RuntimeError,
            format!("Shard placements should have negative dims normalized in the user-facing APIs: S({counted})"),
        ),
        Side::Source => (
            Kind::RuntimeError,
            format!("Sharding dim {counted} greater than tensor ndim {rank} for placement number {mesh_dim}"),
        ),
        Side::Target if counted < 0 => {
            let listed = python_tuple(written, rank);
            (Kind::AssertionError, format!("Shard dim {counted} in placements {listed} must be normalized"))
        }
        Side::Target if rank == 0 => (Kind::AssertionError, "Expected tensor.dim() > 0, got 0".to_owned()),
        Side::Target if counted > rank_text => {
            (Kind::AssertionError, format!("Sharding dim {counted} greater than tensor ndim {rank}"))
        }
        Side::Target => (
            Kind::IndexError,
            format!(
                "Dimension out of range (expected to be in range of [-{rank}, {}], but got {counted})",
                rank_text - 1
            ),
        ),
    };
    Err(Refusal::new(kind, text, words, ""))
}

/// `repr` of a tuple of placements, dims after one attempt to count them from the front.
fn python_tuple(written: &[Written], rank: usize) -> String {
    let front = |dim: i64| if dim < 0 { dim.saturating_add_unsigned(rank as u64) } else { dim };
    let words: Vec<String> = written
        .iter()
        .map(|placement| match *placement {
            Written::Replicate => "Replicate()".to_owned(),
            Written::Shard { dim, .. } => format!("Shard(dim={})", front(dim)),
            Written::Strided { dim, split } => format!("_StridedShard(dim={}, sf={split})", front(dim)),
            Written::Partial(op) => format!("Partial({})", op.name()),
        })
        .collect();
    let comma = if words.len() == 1 { "," } else { "" };
    format!("({}{comma})", words.join(", "))
}

/// The orders that are written out, `S(0)[1]S(0)[0]`: each shard of the dim has its own place.
fn written_orders(written: &[Written], placements: &[Placement]) -> Result<order::ShardOrder, Refusal> {
    let mut orders: BTreeMap<usize, BTreeMap<usize, usize>> = BTreeMap::new();
    let mut all: BTreeMap<usize, usize> = BTreeMap::new();
    for (mesh_dim, (written, placement)) in written.iter().zip(placements).enumerate() {
        let Some(dim) = placement.shard_dim() else { continue };
        *all.entry(dim).or_default() += 1;
        let Written::Shard { order: Some(place), .. } = written else { continue };
        if orders.entry(dim).or_default().insert(*place, mesh_dim).is_some() {
            return Err(Refusal::input(format!("two shards of tensor dim {dim} have place [{place}] in its order")));
        }
    }
    for (dim, places) in &orders {
        let count = all.get(dim).copied().unwrap_or_default();
        if !places.keys().copied().eq(0..count) {
            let words = format!(
                "the order of the shards of tensor dim {dim} must give each of them a place, 0 to {}",
                count - 1
            );
            return Err(Refusal::input(words));
        }
    }
    Ok(orders.into_iter().map(|(dim, places)| (dim, places.into_values().collect())).collect())
}

/// What `redistribute` looks at before it plans, in its order.
pub fn check(source: &[Placement], target: &[Placement], mesh: &Mesh) -> Result<(), Refusal> {
    mixed(source, Side::Source)?;
    for (mesh_dim, (&from, &to)) in source.iter().zip(target).enumerate() {
        if !to.is_partial() || from == to {
            continue;
        }
        if matches!(from, Placement::Shard(_)) && to == Placement::Partial(ReduceOp::Sum) {
            continue;
        }
        return Err(to_partial(from, to, &mesh.name(mesh_dim)));
    }
    if source == target { Ok(()) } else { mixed(target, Side::Target) }
}

/// A pending reduction is made by operations, not by moving data.
fn to_partial(from: Placement, to: Placement, axis: &str) -> Refusal {
    let text =
        format!("Can not redistribute from {from} to {to}, only Shard to Partial(sum) redistribution is supported!");
    let (why, help) = match (from, to) {
        (Placement::Replicate, Placement::Partial(ReduceOp::Sum)) => (
            "a whole value does not become a pending sum",
            "keep it replicated, or shard it first: S(i) goes to P(sum) without a collective",
        ),
        (Placement::Replicate, _) => ("a whole value does not become a pending reduction", "keep it replicated"),
        (Placement::Partial(_), _) => (
            "a pending reduction does not become another one",
            "reduce it first: redistribute to R or S(i), then go on from there",
        ),
        (Placement::Strided { .. }, Placement::Partial(ReduceOp::Sum)) => (
            "a strided shard does not become a pending sum, only a plain one does",
            "redistribute to S(i) in the order from left to right first",
        ),
        _ => ("a shard becomes a pending sum and no other reduction", "use P(sum), or keep the shard"),
    };
    Refusal::new(Kind::RuntimeError, text, format!("on `{axis}`, {from} cannot become {to}: {why}"), help)
}

/// Pending reductions of one list must commute: one of them, or sum and avg. Source: `assert_no_mixed_partial_types`.
///
/// PyTorch prints a Python set of their names, whose order it does not promise; here it is that of `Partial.ALL_REDUCE_OPS`.
fn mixed(placements: &[Placement], side: Side) -> Result<(), Refusal> {
    let found: BTreeSet<ReduceOp> = placements.iter().filter_map(|placement| placement.reduce_op()).collect();
    if found.len() < 2 || found.iter().eq([&ReduceOp::Sum, &ReduceOp::Avg]) {
        return Ok(());
    }
    let names: Vec<String> = found.iter().map(|op| format!("'{}'", op.name())).collect();
    let text = format!(
        "Mixed Partial reduce types are not supported in the same placement list. Found reduce ops: {{{}}}. Please ensure \
         all Partial placements use the same reduce operation.",
        names.join(", ")
    );
    let shown: Vec<String> = found.iter().map(|op| Placement::Partial(*op).to_string()).collect();
    let words = format!(
        "the {} waits for {} at once: which comes first would change the result",
        side.word(),
        shown.join(" and ")
    );
    Err(Refusal::new(Kind::ValueError, text, words, "reduce one of them before the other begins"))
}
