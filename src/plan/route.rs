//! A redistribute, forward and backward. In: a [`Question`]. Out: a [`Plan`]: the steps of each direction and what they move.
//! Never: words for people, which are in `text.rs`. Next: `text.rs`, `json.rs`.
//!
//! Source: torch 2.15, `torch/distributed/tensor/_redistribute.py`: `_gen_transform_infos_non_cached`, `Redistribute`,
//! `_redistribute_backward`; `_api.py`: `_FromTorchTensor.backward`.

use super::cost::Topology;
use super::graph::{NoPath, Search, State};
use super::greedy::{self, Move};
use super::mesh::{Dtype, Machine, Mesh};
use super::order::{self, ShardOrder};
use super::parse::Written;
use super::placement::{Placement, ReduceOp};
use super::refusal::{self, Refusal, Side};
use super::traffic::{Cargo, Step};
use std::collections::BTreeMap;

/// One tensor, where it lies and where it should.
#[derive(Clone, Debug)]
pub struct Question {
    pub mesh: Mesh,
    /// The global shape.
    pub shape: Vec<u64>,
    pub dtype: Dtype,
    pub machine: Machine,
    /// One for each mesh dim, as are those of the target.
    pub source: Vec<Placement>,
    pub target: Vec<Placement>,
}

/// Which planner made a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planner {
    Greedy,
    Graph,
    /// Greedy, because the strided shards stand for no order of shards.
    Undecodable,
}

/// One way of a value or of its gradient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub planner: Planner,
    pub steps: Vec<Step>,
    /// The states it goes through, as `DebugMode` prints them.
    pub trace: String,
}

/// Everything that follows from one `redistribute` of a tensor that came from `DTensor.from_local`.
#[derive(Clone, Debug)]
pub struct Plan {
    pub forward: Route,
    /// None when the dtype has no gradient.
    pub backward: Option<Result<Backward, Refusal>>,
}

/// The way of the gradient, which arrives as the target lies.
#[derive(Clone, Debug)]
pub struct Backward {
    /// Through `redistribute`.
    pub redistribute: Route,
    /// Through `DTensor.from_local`: a gradient that is still pending where the source was is reduced there.
    pub from_local: Route,
}

impl Route {
    /// Bytes that one rank sends.
    pub fn bytes(&self) -> u64 {
        self.steps.iter().fold(0, |all, step| all.saturating_add(step.bytes))
    }

    /// Steps that communicate.
    pub fn collectives(&self) -> usize {
        self.steps.iter().filter(|step| step.collective.is_some()).count()
    }
}

impl Plan {
    /// The routes in the order in which they are taken.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        let backward = self.backward.iter().flatten().flat_map(|back| [&back.redistribute, &back.from_local]);
        std::iter::once(&self.forward).chain(backward)
    }
}

/// How often the run time issues each operator, sorted by its name, as `CommDebugMode` counts.
pub fn counts<'a>(routes: impl IntoIterator<Item = &'a Route>, machine: Machine) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for step in routes.into_iter().flat_map(|route| &route.steps) {
        if let Some(collective) = step.collective {
            *counts.entry(collective.operator(machine.device)).or_default() += 1;
        }
    }
    counts
}

impl Question {
    /// Puts the question: dims are counted from the front, and what PyTorch refuses before it plans is refused.
    pub fn new(
        mesh: Mesh,
        shape: Vec<u64>,
        dtype: Dtype,
        machine: Machine,
        source: &[Written],
        target: &[Written],
    ) -> Result<Question, Refusal> {
        let source = refusal::resolve(source, shape.len(), &mesh, Side::Source)?;
        let target = refusal::resolve(target, shape.len(), &mesh, Side::Target)?;
        refusal::check(&source, &target, &mesh)?;
        Ok(Question { mesh, shape, dtype, machine, source, target })
    }

    /// The plan of it.
    pub fn plan(&self) -> Result<Plan, Refusal> {
        let forward = self.route(&self.source, &self.target)?;
        let backward = self.dtype.differentiable.then(|| self.backward());
        Ok(Plan { forward, backward })
    }

    /// The gradient goes back to where the value came from, but is not made pending again.
    fn backward(&self) -> Result<Backward, Refusal> {
        let pairs = || self.target.iter().zip(&self.source);
        let arrived: Vec<Placement> = pairs()
            .map(|(gradient, source)| match (gradient.is_partial(), source.is_partial()) {
                (false, true) => Placement::Replicate,
                _ => *source,
            })
            .collect();
        let whole = |placement: &Placement| if placement.is_partial() { Placement::Replicate } else { *placement };
        let local: Vec<Placement> = self.source.iter().map(whole).collect();
        Ok(Backward { redistribute: self.route(&self.target, &arrived)?, from_local: self.route(&arrived, &local)? })
    }

    /// The steps between two lists of placements, by the planner that PyTorch takes.
    fn route(&self, source: &[Placement], target: &[Placement]) -> Result<Route, Refusal> {
        if source == target {
            let trace = order::describe_placements(source, &self.mesh);
            return Ok(Route { planner: Planner::Greedy, steps: Vec::new(), trace });
        }
        let strided = source.iter().chain(target).any(|placement| placement.is_strided());
        let decoded = order::decode(source, &self.mesh).zip(order::decode(target, &self.mesh));
        match decoded {
            Some((source, target)) if strided => {
                let source = State { placements: source.0, order: source.1 };
                let target = State { placements: target.0, order: target.1 };
                let moves = self.search(&source, &target)?;
                self.walk(Planner::Graph, &moves, source.placements, source.order)
            }
            _ => {
                let cuts = source.iter().enumerate().filter(|(_, placement)| placement.shard_dim().is_some());
                let shards = cuts.fold(1u64, |all, (mesh_dim, _)| all.saturating_mul(self.mesh.size(mesh_dim)));
                let moves = greedy::moves(source, target, shards);
                let planner = if strided { Planner::Undecodable } else { Planner::Greedy };
                let order = if strided { ShardOrder::new() } else { order::default_order(source) };
                self.walk(planner, &moves, source.to_vec(), order)
            }
        }
    }

    /// The cheapest moves between two states.
    fn search(&self, source: &State, target: &State) -> Result<Vec<Move>, Refusal> {
        let topology = Topology::new(&self.mesh, self.machine);
        let mut reductions: Vec<ReduceOp> = Vec::new();
        for op in source.placements.iter().chain(&target.placements).filter_map(|placement| placement.reduce_op()) {
            if !reductions.contains(&op) {
                reductions.push(op);
            }
        }
        let elements = self.shape.iter().fold(1.0, |all, size| all * *size as f64);
        let bytes = elements * self.dtype.bytes as f64;
        let search = Search { mesh: &self.mesh, topology: &topology, bytes, rank: self.shape.len(), reductions };
        search.moves(source, target).map_err(|reason| match reason {
            NoPath::Unreachable => {
                let words = |state: &State| order::describe(&state.placements, &state.order);
                Refusal::no_path(&words(source), &words(target))
            }
            NoPath::TooMany => {
                Refusal::input("there are too many ways between these shard orders to search".to_owned())
            }
        })
    }

    /// Carries moves out from a state, and writes down the states on the way.
    fn walk(
        &self,
        planner: Planner,
        moves: &[Move],
        mut placements: Vec<Placement>,
        mut order: ShardOrder,
    ) -> Result<Route, Refusal> {
        let cargo =
            Cargo { mesh: &self.mesh, shape: &self.shape, element: self.dtype.bytes, device: self.machine.device };
        let mut trace = order::describe(&placements, &order);
        let mut steps = Vec::with_capacity(moves.len());
        for step in moves {
            steps.push(cargo.step(step, &mut placements)?);
            if planner != Planner::Undecodable {
                order::recut(&mut order, step);
            }
            trace.push_str("->");
            trace.push_str(&order::describe(&placements, &order));
        }
        Ok(Route { planner, steps, trace })
    }
}
