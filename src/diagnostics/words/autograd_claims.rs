//! Words of family 4xx: what code says of an autograd function, and what it is. In: findings. Out: drafts. Never: derivation.
//! Next: `autograd.rs`.

use super::super::codes;
use super::autograd::chain;
use super::{Draft, Words};
use crate::infer::finding::{Finding, FindingKind};
use crate::source::Label;
use crate::types::AxisSet;

impl Words<'_> {
    pub fn autograd_claims(&self, finding: &Finding) -> Draft {
        match &finding.kind {
            FindingKind::Misplaced { class, given, missing, forward_at } => {
                let title = match (given, missing) {
                    (Some(given), Some(missing)) => format!(
                        "the backward of `{class}` gives the gradient of `{missing}` to `{given}`, which is no tensor, and none to `{missing}`"
                    ),
                    (Some(given), None) => {
                        format!("the backward of `{class}` gives a gradient to `{given}`, which is no tensor")
                    }
                    (None, missing) => {
                        let missing = missing.as_deref().unwrap_or("its input");
                        format!(
                            "the backward of `{class}` gives no gradient to `{missing}`, which its result is made of"
                        )
                    }
                };
                let mut draft = Draft::new(&codes::MISPLACED_GRADIENT, title);
                if *forward_at != finding.place {
                    draft.labels.push(Label { place: *forward_at, message: "the forward".to_string() });
                }
                draft.help.push(
                    "return the gradients in the order of the arguments of `forward`, None where there is none"
                        .to_string(),
                );
                draft
            }
            FindingKind::DeclaredOther { class, axes, derived, ruled, forward, backward, forward_at, backward_at } => {
                let exchanges = forward.exchanges() || backward.exchanges();
                let title = declared_other(class, (axes, derived), ruled.is_some(), exchanges);
                let mut draft = Draft::new(&codes::DECLARED_OTHER, title);
                draft.labels.push(Label { place: *forward_at, message: format!("forward: {}", chain(forward)) });
                draft.labels.push(Label { place: *backward_at, message: format!("backward: {}", chain(backward)) });
                draft.help.push(match ruled {
                    Some(says) => {
                        format!("calls are typed by the rule, {says}: change the direction that is wrong, or the name")
                    }
                    None => format!("declare {derived}, or change the direction that is wrong"),
                });
                draft
            }
            FindingKind::RawInDoubleBackward { class, claim } => {
                let title = format!(
                    "the backward of `{class}` calls a collective that has no gradient itself: the gradient of a gradient is lost here"
                );
                let mut draft = Draft::new(&codes::RAW_IN_DOUBLE_BACKWARD, title);
                draft.labels.push(Label { place: *claim, message: "said here to be differentiable twice".to_string() });
                draft.help.push(
                    "call the autograd function of the opposite direction in the backward, or mark it with `once_differentiable`"
                        .to_string(),
                );
                draft
            }
            FindingKind::CopyLeftOut { input, axis, copy, copy_at, sum } => {
                let label = Label {
                    place: *copy_at,
                    message: format!("its backward sums the gradient; `{sum}`, its counterpart, is applied"),
                };
                copy_left_out(finding, (input, axis.shown()), copy, label)
            }
            FindingKind::DocClaim { name, forward, backward, in_forward, forward_at, backward_at } => {
                let (direction, term, at) = match in_forward {
                    true => ("forward", forward, forward_at),
                    false => ("backward", backward, backward_at),
                };
                let title = format!("the docstring of `{name}` names another {direction} than its {}", chain(term));
                let mut draft = Draft::new(&codes::DOC_CLAIM, title);
                draft.labels.push(Label { place: *at, message: format!("{direction}: {}", chain(term)) });
                draft
            }
            _ => Draft::new(&codes::INTERNAL_ERROR, "a finding without words".to_string()),
        }
    }
}

/// The input that no function passes on whose backward sums its gradient. `axis`: as it is shown.
fn copy_left_out(finding: &Finding, (input, axis): (&str, &str), copy: &str, defined: Label) -> Draft {
    let title = format!("nothing sums the gradient of `{input}` over `{axis}`: `{copy}` is applied nowhere");
    let mut draft = Draft::new(&codes::COPY_LEFT_OUT, title);
    let message = format!("each rank of `{axis}` has a part of what `{input}` meets here");
    draft.labels.push(Label { place: finding.place, message });
    draft.labels.push(defined);
    draft.notes.push(format!(
        "backward: each rank of `{axis}` computes a part of the gradient of `{input}`, and all of them are needed"
    ));
    draft.help.push(format!("pass `{input}` through `{copy}` before it meets the part"));
    draft
}

/// What forward and backward are together, where something else is declared. `exchanges`: one of them communicates.
fn declared_other(class: &str, (axes, derived): (&AxisSet, &str), by_rules: bool, exchanges: bool) -> String {
    let declared = if by_rules { "the rules say of a function of this name" } else { "is declared here" };
    match axes.is_empty() || by_rules && !exchanges {
        true => format!(
            "neither forward nor backward of `{class}` exchanges anything between ranks, which is not what {declared}"
        ),
        false => {
            format!(
                "forward and backward of `{class}` together are {derived} on `{axes}`, which is not what {declared}"
            )
        }
    }
}
