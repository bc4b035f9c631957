//! Words of family 4xx: autograd functions whose backward does not fit. In: findings. Out: drafts. Never: derivation.
//! Next: `mod.rs`.

use super::super::codes;
use super::{Draft, Words};
use crate::infer::finding::{Adjoint, Finding, FindingKind};
use crate::source::Label;
use crate::types::{Reduction, Spmd, Term};

impl Words<'_> {
    pub fn autograd(&self, finding: &Finding) -> Draft {
        match &finding.kind {
            FindingKind::NotAdjoint { class, forward, backward, forward_at, axes, nearest } => {
                let (f, b) = (chain(forward), chain(backward));
                let title = format!(
                    "the backward of `{class}` ({b}) is not the adjoint of its forward ({f}) on `{axes}`: gradients are wrong whatever the types"
                );
                let mut draft = Draft::new(&codes::NOT_ADJOINT, title);
                draft.primary = format!("backward: {b}");
                if *forward_at != finding.place {
                    draft.labels.push(Label { place: *forward_at, message: format!("forward: {f}") });
                }
                if !nearest.is_empty() {
                    let ways: Vec<String> = nearest.iter().map(way).collect();
                    draft.help.push(format!("with this forward, {}", ways.join("; ")));
                }
                draft
            }
            FindingKind::OtherGroup { class, forward, backward, forward_at } => {
                let title = format!(
                    "`{class}` communicates over `{forward}` in its forward and over `{backward}` in its backward: gradients are wrong"
                );
                let mut draft = Draft::new(&codes::OTHER_GROUP, title);
                draft.primary = format!("over `{backward}`");
                draft.labels.push(Label { place: *forward_at, message: format!("over `{forward}`") });
                draft.help.push(format!("use the group of `{forward}` in both, kept on `ctx`"));
                draft
            }
            FindingKind::GradientCount { class, returned, expected } => {
                let title = format!(
                    "the backward of `{class}` returns {returned} gradients for {expected} arguments of its forward: autograd refuses it"
                );
                let mut draft = Draft::new(&codes::GRADIENT_COUNT, title);
                draft.help.push("return one gradient for each argument, None where there is none".to_string());
                draft
            }
            _ => Draft::new(&codes::INTERNAL_ERROR, "a finding without words".to_string()),
        }
    }
}

/// `a backward of reduce-scatter on dim 0 makes it S(0) -> R`
fn way(adjoint: &Adjoint) -> String {
    let side = |(t, dim): (Spmd, Option<usize>)| match dim {
        Some(dim) if t == Spmd::Varying => format!("S({dim})"),
        _ => t.letter().to_string(),
    };
    format!("a backward of {} makes it {} -> {}", chain(&adjoint.backward), side(adjoint.source), side(adjoint.result))
}

/// A chain of steps, the first one first.
fn chain(term: &Term) -> String {
    let mut steps = Vec::new();
    let mut at = term;
    loop {
        steps.extend(step(at));
        match at.inner() {
            Some(x) => at = x,
            None => break,
        }
    }
    if steps.is_empty() {
        return "identity".to_string();
    }
    steps.reverse();
    steps.join(", then ")
}

fn step(term: &Term) -> Option<String> {
    Some(match term {
        Term::AllReduce { by, .. } => match by {
            Reduction::Sum => "all-reduce".to_string(),
            Reduction::Mean => "all-reduce of the mean".to_string(),
            Reduction::Other => "all-reduce of another kind".to_string(),
        },
        Term::AllGather { dim, .. } => format!("all-gather on dim {dim}"),
        Term::ReduceScatter { dim, .. } => format!("reduce-scatter on dim {dim}"),
        Term::AllToAll { split, concat, .. } => format!("all-to-all from dim {split} to dim {concat}"),
        Term::Split { dim, .. } => format!("split on dim {dim}"),
        Term::Broadcast { .. } => "broadcast".to_string(),
        Term::Scale { up: true, .. } => "times the number of ranks".to_string(),
        Term::Scale { up: false, .. } => "divided by the number of ranks".to_string(),
        Term::Mask { .. } => "zero except on one rank".to_string(),
        Term::Moved { from, to, .. } => format!("parts of dim {from} joined on dim {to}"),
        Term::Swapped { a, b, .. } => format!("dims {a} and {b} exchanged"),
        Term::Math { .. } => "local mathematics".to_string(),
        Term::Arg(_)
        | Term::Grad(_)
        | Term::Fresh
        | Term::Equal
        | Term::Chunk { .. }
        | Term::Gathered { .. }
        | Term::Exchanged { .. }
        | Term::Stacked { .. }
        | Term::Unknown => return None,
    })
}
