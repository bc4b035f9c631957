//! Words of family 4xx: autograd functions whose backward does not fit. In: findings. Out: drafts. Never: derivation.
//! Next: `mod.rs`.

use super::super::codes;
use super::{Draft, Words};
use crate::infer::finding::{Adjoint, Finding, FindingKind};
use crate::source::{Label, Place};
use crate::types::{AxisSet, Reduction, Spmd, Term};

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
            FindingKind::ScaledOneWay { class, forward, backward, in_forward, forward_at, axes } => {
                let (here, there) = if *in_forward { ("forward", "backward") } else { ("backward", "forward") };
                let mut draft = Draft::new(&codes::SCALED_ONE_WAY, scaled(class, here, there, axes));
                let (f, b) = (chain(forward), chain(backward));
                draft.primary = format!("{here}: {}", if *in_forward { &f } else { &b });
                if *forward_at != finding.place {
                    draft.labels.push(Label { place: *forward_at, message: format!("forward: {f}") });
                }
                let kept = Some(chain(&backward.without_factors())).filter(|_| !in_forward);
                if let Some(kept) = kept {
                    draft.help.push(format!(
                        "where every rank computes the same from the result, a backward of {kept} is right"
                    ));
                    if matches!(backward.without_factors(), Term::Split { .. }) {
                        draft.help.push(
                            "where each rank uses the result for itself, sum the gradient over the ranks first".into(),
                        );
                    }
                }
                draft
            }
            FindingKind::BeforeExchange { class, argument, forward_at } => {
                let title = format!(
                    "the backward of `{class}` computes the gradient of `{argument}` before the all-to-all: it multiplies values of different parts"
                );
                let mut draft = Draft::new(&codes::BEFORE_EXCHANGE, title);
                draft.primary = "the gradient as it comes, in the layout after the forward's all-to-all".to_string();
                draft
                    .labels
                    .push(Label { place: *forward_at, message: "the forward exchanges parts here".to_string() });
                draft
                    .help
                    .push("exchange the gradient back first, and wait for it, as for the other gradients".to_string());
                draft
            }
            FindingKind::Misordered { class, argument, other, early, exchanged, forward_at } => {
                misordered(class, argument, other, *early, (*exchanged, *forward_at))
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
pub fn chain(term: &Term) -> String {
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
        Term::Fixed { dim, .. } => format!("the same part of dim {dim} on every rank"),
        Term::Math { .. } => "local mathematics".to_string(),
        Term::Unknown => "something that is not followed".to_string(),
        Term::Arg(_)
        | Term::Grad(_)
        | Term::Fresh
        | Term::Equal
        | Term::Chunk { .. }
        | Term::Gathered { .. }
        | Term::Exchanged { .. }
        | Term::Stacked { .. } => return None,
    })
}

/// A product on the wrong side of an exchange.
fn misordered(
    class: &str,
    argument: &str,
    other: &str,
    early: bool,
    (exchanged, forward_at): (Option<Place>, Place),
) -> Draft {
    let (found, due) = if early { ("before", "after") } else { ("after", "before") };
    let title = format!(
        "the backward of `{class}` exchanges the gradient of `{argument}` {found} its product with `{other}`: each rank has another `{other}`"
    );
    let mut draft = Draft::new(&codes::PRODUCT_ORDER, title);
    draft.primary = format!("the product with this rank's `{other}`");
    if let Some(place) = exchanged.filter(|_| !early) {
        draft.labels.push(Label { place, message: "exchanged here, too late".to_string() });
    }
    draft.labels.push(Label { place: forward_at, message: "the forward exchanges here".to_string() });
    draft.help.push(match early {
        true => {
            format!("multiply with `{other}` first, and sum the products over the ranks: exchange {due} the product")
        }
        false => format!("exchange the gradient of the result first, then multiply: exchange {due} the product"),
    });
    draft
}

/// One direction scales by the number of ranks of these axes, or of a group that has no name.
fn scaled(class: &str, here: &str, there: &str, axes: &AxisSet) -> String {
    let of = if axes.is_empty() { String::new() } else { format!(" of `{axes}`") };
    format!(
        "the {here} of `{class}` scales by the number of ranks{of}, its {there} does not: gradients are wrong by that factor"
    )
}
