//! Placements as arguments: how many, of which dims, with which reductions. In: a value, a mesh, a rank. Out: placements, each where
//! it is known, or a finding. Never: a tensor. Next: `make.rs`.

use super::Call;
use super::found::Distributed;
use crate::infer::finding::FindingKind;
use crate::infer::machine::Machine;
use crate::infer::practice::found::{Placements, Practice};
use crate::infer::value::Value;
use crate::plan::{Device, Dtype, Machine as Hosts, Mesh as PlanMesh, Placement, Plan, Question, Refusal, Written};
use crate::types::{Mesh, Shape, normalize_dim};

/// A size that any number of ranks divides evenly enough.
const ANY_SIZE: u64 = 1 << 12;
/// Ranks of a mesh dim of which the number is not known.
const ANY_RANKS: u64 = 2;

impl Machine<'_> {
    /// The entries of a list of placements, each where it is known.
    pub(super) fn placements_given(&self, value: Option<&Value>) -> Option<Vec<Option<Written>>> {
        let items = self.literal_items(value?)?;
        Some(
            items
                .iter()
                .map(|item| match item {
                    Value::Placement(written) => Some(**written),
                    _ => None,
                })
                .collect(),
        )
    }

    /// Checks placements against the dims of a mesh and of a tensor.
    ///
    /// # Errors
    /// A finding was reported.
    pub(super) fn check_placements(
        &mut self,
        call: &Call<'_>,
        argument: &str,
        mesh: Option<&Mesh>,
        shape: Option<&Shape>,
        given: &[Option<Written>],
    ) -> Result<Vec<Option<Placement>>, ()> {
        let part = call.arg(argument).map_or(0, |(_, part)| part);
        if let Some(mesh) = mesh.filter(|m| m.ndim() != given.len()) {
            let dims = mesh.ndim();
            let mistake = Placements::Count { api: call.name(), given: given.len(), dims, why: None };
            self.report(self.place(call.id), FindingKind::Practice(Practice::Placements(mistake)));
            return Err(());
        }
        let rank = shape.map(Shape::rank);
        let mut out = Vec::with_capacity(given.len());
        for written in given {
            out.push(match (written, rank) {
                (Some(Written::Replicate), _) => Some(Placement::Replicate),
                (Some(Written::Partial(op)), _) => Some(Placement::Partial(*op)),
                (Some(Written::Shard { dim, .. }), Some(rank)) => match normalize_dim(*dim, rank) {
                    Some(dim) => Some(Placement::Shard(dim)),
                    None => {
                        let kind = Distributed::ShardDim { api: call.name(), dim: *dim, rank };
                        self.report(self.part(call.id, part), FindingKind::Distributed(kind));
                        return Err(());
                    }
                },
                (Some(Written::Shard { dim, .. }), None) => usize::try_from(*dim).ok().map(Placement::Shard),
                (Some(Written::Strided { .. }) | None, _) => None,
            });
        }
        if let Some(known) = out.iter().copied().collect::<Option<Vec<_>>>()
            && let Err(refusal) = question(mesh, shape, &known, &vec![Placement::Replicate; known.len()])
        {
            self.refuse(call, part, refusal);
            return Err(());
        }
        Ok(out)
    }

    pub(super) fn refuse(&mut self, call: &Call<'_>, part: usize, refusal: Refusal) {
        let kind = Distributed::Refused { api: call.name(), refusal };
        self.report(self.part(call.id, part), FindingKind::Distributed(kind));
    }
}

/// The plan of a redistribution. Sizes that are not known are taken for some that fit.
///
/// # Errors
/// What the library refuses.
pub(super) fn question(
    mesh: Option<&Mesh>,
    shape: Option<&Shape>,
    from: &[Placement],
    to: &[Placement],
) -> Result<Option<Plan>, Refusal> {
    let size =
        |i: usize| mesh.filter(|m| !m.flat).and_then(|m| m.axes.get(i)).and_then(|(_, n)| *n).unwrap_or(ANY_RANKS);
    let Ok(mut of) = PlanMesh::of_sizes((0..from.len()).map(size).collect()) else { return Ok(None) };
    if let Some(mesh) = mesh.filter(|m| m.is_named() && !m.flat && m.axes.len() == from.len()) {
        of.names = mesh.axes.iter().map(|(a, _)| a.name().to_owned()).collect();
    }
    let dims = from.iter().chain(to).filter_map(|p| p.shard_dim()).max().map_or(1, |d| d + 1);
    let sizes: Vec<u64> = match shape {
        Some(shape) if shape.rank() >= dims => {
            shape.0.iter().map(|n| n.and_then(|n| u64::try_from(n).ok()).unwrap_or(ANY_SIZE)).collect()
        }
        _ => vec![ANY_SIZE; dims],
    };
    let Ok(dtype) = Dtype::parse("f32") else { return Ok(None) };
    let hosts = Hosts::new(Device::Cuda, None);
    let question = Question::new(of, sizes, dtype, hosts, &written(from), &written(to))?;
    question.plan().map(Some)
}

fn written(placements: &[Placement]) -> Vec<Written> {
    placements
        .iter()
        .map(|p| match *p {
            Placement::Replicate => Written::Replicate,
            Placement::Partial(op) => Written::Partial(op),
            Placement::Shard(dim) => Written::Shard { dim: i64::try_from(dim).unwrap_or(i64::MAX), order: None },
            Placement::Strided { dim, split } => {
                Written::Strided { dim: i64::try_from(dim).unwrap_or(i64::MAX), split }
            }
        })
        .collect()
}
