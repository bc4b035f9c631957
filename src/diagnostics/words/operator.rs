//! Words of family 1xx: operators. In: operator findings. Out: drafts. Never: detection. Next: `collective.rs`.

use super::super::codes;
use super::{Draft, Words, label, set_words, state_words};
use crate::infer::finding::{Finding, FindingKind, OperandAt};
use crate::rules::Violation;
use crate::source::Place;
use crate::types::{Reason, Spmd};

impl Words<'_> {
    pub fn operator(&self, finding: &Finding) -> Draft {
        match &finding.kind {
            FindingKind::Operator { violation, axis, op, operands, symbol } => {
                let what = self.operation(op, *symbol, finding);
                let mut draft = match violation {
                    Violation::InvariantMixed => match finding.kind.unmarked() {
                        Some(name) => self.not_summed(axis.name(), name, operands),
                        None => self.invariant_mixed(axis.name(), &what, operands),
                    },
                    Violation::PartialWithVarying => self.partial_with_varying(axis.name(), &what, operands),
                    Violation::PartialNonlinear => self.partial_nonlinear(axis.name(), &what, operands),
                    Violation::PartialAffine => self.partial_affine(axis.name(), &what, operands, finding.place),
                    Violation::PartialTwice => self.partial_twice(axis.name(), &what, operands),
                    Violation::PartialDivisor => self.partial_divisor(axis.name(), &what, operands),
                };
                for operand in operands.iter().filter(|o| !o.is_number) {
                    let message = format!("{} on `{axis}`", state_words(&operand.state));
                    if operand.place != Some(finding.place) {
                        draft.labels.extend(label(operand.place, message));
                    }
                    self.provenance(axis.name(), &operand.state, finding, &mut draft.labels);
                }
                draft
            }
            FindingKind::MissingAxis { axis, operand, op } => {
                let name = self.name(operand);
                let title = format!("{name} has no type on `{axis}`, which strict checking of `{}` needs", short(op));
                let mut draft = Draft::new(&codes::MISSING_AXIS, title);
                draft.labels.extend(label(operand.place, format!("no type on `{axis}`")));
                draft
                    .notes
                    .push("inside `typecheck()` every operand needs a type on every axis of the mesh".to_string());
                draft.help.push(format!("state the type where the value is made: `assert_type(..., {{{axis}: ...}})`"));
                draft
            }
            FindingKind::NormalisedParts { axis, operand, op } => {
                let name = self.name(operand);
                let does = match short(op) {
                    "argmax" => "looks for the largest",
                    "argmin" => "looks for the smallest",
                    "logsumexp" => "adds up exponentials",
                    _ => "normalises",
                };
                let title =
                    format!("`{}` {does} over a dim of {name} of which each rank of `{axis}` has a part", short(op));
                let mut draft = Draft::new(&codes::NORMALISED_PARTS, title);
                let message = format!("{} on `{axis}`", state_words(&operand.state));
                draft.labels.extend(label(operand.place, message));
                self.provenance(axis.name(), &operand.state, finding, &mut draft.labels);
                draft.notes.push(match does {
                    "normalises" => format!(
                        "forward: each rank of `{axis}` divides by the sum over its own part, not by the sum over the whole dim"
                    ),
                    _ => format!("forward: each rank of `{axis}` has the result for its own part, not for the whole dim"),
                });
                draft.help.push(format!(
                    "gather {name} over `{axis}` first, or use a function that sums over `{axis}`, such as a vocabulary-parallel loss"
                ));
                draft
            }
            FindingKind::InPlaceChange { axis, op, target, result } => {
                let name = self.name(target);
                let title = format!(
                    "{name} is {} on `{axis}`, but `{}` would make it {} in place",
                    state_words(&target.state),
                    short(op),
                    set_words(*result)
                );
                let mut draft = Draft::new(&codes::IN_PLACE_CHANGE, title);
                self.provenance(axis.name(), &target.state, finding, &mut draft.labels);
                draft
                    .notes
                    .push("other references to the tensor, and its gradient, still have the old type".to_string());
                draft.help.push("use the out-of-place operation and bind its result to a new name".to_string());
                draft
            }
            _ => Draft::new(&codes::INTERNAL_ERROR, "a finding without words".to_string()),
        }
    }

    fn operation(&self, op: &str, symbol: bool, finding: &Finding) -> String {
        if symbol { self.named(finding.place) } else { format!("`{}`", short(op)) }
    }

    /// An operand, by its text; a parameter of a layer that is called has none of its own.
    fn met(&self, operand: &OperandAt) -> String {
        let text = self.name(operand);
        let of_layer = matches!(text.as_str(), "`self`" | "`super()`");
        let reason = operand.state.origin.as_ref().map(|o| &o.reason);
        match reason {
            Some(Reason::Whole(name) | Reason::Unmarked(name)) if of_layer => format!("`{name}`"),
            Some(Reason::Parameter) if of_layer => "the layer's weight".to_string(),
            _ => text,
        }
    }

    fn invariant_mixed(&self, axis: &str, what: &str, operands: &[OperandAt]) -> Draft {
        let invariant = find(operands, Spmd::Invariant);
        let other = operands.iter().find(|o| !o.is_number && o.state.known() != Some(Spmd::Invariant));
        let (Some(invariant), Some(other)) = (invariant, other) else {
            return Draft::new(&codes::INVARIANT_MIXED, format!("types that cannot meet on `{axis}` in {what}"));
        };
        let (a, b) = (self.name(invariant), self.met(other));
        let state = state_words(&other.state);
        let title = match other.state.known() {
            Some(Spmd::Varying) => format!(
                "{a} is Invariant on `{axis}` but meets {b}, which is Varying: nothing sums the gradient of {a}"
            ),
            Some(Spmd::Partial) => {
                format!("{a} is Invariant on `{axis}` but meets {b}, whose sum over `{axis}` is still pending")
            }
            Some(Spmd::Replicate) => {
                format!(
                    "{a} is Invariant on `{axis}` but meets {b}, which is Replicate: one of their gradients has the wrong scale"
                )
            }
            _ => format!("{a} is Invariant on `{axis}` but meets {b}, which is {state}"),
        };
        let mut draft = Draft::new(&codes::INVARIANT_MIXED, title);
        draft.notes.push(match other.state.known() {
            Some(Spmd::Varying) => {
                format!("backward: each rank of `{axis}` computes a different part of the gradient of {a}; the sum over `{axis}` is missing")
            }
            Some(Spmd::Partial) => format!("forward: each rank of `{axis}` holds one term of {b}; {a} is the whole value on every rank"),
            _ => format!("backward: the gradient of a Replicate value is summed over `{axis}`, that of an Invariant one is not"),
        });
        draft
    }

    /// A parameter without a mark that meets what is not equal on all ranks.
    fn not_summed(&self, axis: &str, name: &str, operands: &[OperandAt]) -> Draft {
        let others = || operands.iter().filter(|o| !o.is_number && o.state.known() != Some(Spmd::Invariant));
        let (b, state) = match others().find(|o| o.state.known().is_some()).or_else(|| others().next()) {
            Some(other) => (self.met(other), state_words(&other.state)),
            None => ("a value".to_string(), "not Invariant".to_string()),
        };
        let title = format!(
            "the gradient of `{name}` is not summed over `{axis}`: it carries no mark and meets {b}, which is {state}"
        );
        let mut draft = Draft::new(&codes::PARAMETER_NOT_SUMMED, title);
        draft.notes.push(format!(
            "backward: each rank of `{axis}` computes a part of the gradient, and its copies of the parameter drift apart"
        ));
        draft.help.push(format!(
            "mark the parameter so that its gradient is summed over `{axis}` before the step, in every configuration in which it meets such values"
        ));
        draft
    }

    fn partial_with_varying(&self, axis: &str, what: &str, operands: &[OperandAt]) -> Draft {
        let partial = find(operands, Spmd::Partial).map_or_else(|| "the pending sum".to_string(), |o| self.name(o));
        let varying = find(operands, Spmd::Varying).map_or_else(|| "a varying value".to_string(), |o| self.name(o));
        let title =
            format!("{partial} is a pending sum over `{axis}` but meets {varying}, which differs by rank, in {what}");
        let mut draft = Draft::new(&codes::PARTIAL_WITH_VARYING, title);
        draft.notes.push(format!("forward: the sum over `{axis}` of the results is not the result of the sum"));
        draft.help.push(format!("reduce {partial} first: all-reduce it, or reduce-scatter it to shards"));
        draft
    }

    fn partial_nonlinear(&self, axis: &str, what: &str, operands: &[OperandAt]) -> Draft {
        let partial = find(operands, Spmd::Partial).map_or_else(|| "a pending sum".to_string(), |o| self.name(o));
        let title = format!("{partial} is still to be summed over `{axis}` when {what} is applied to it");
        let mut draft = Draft::new(&codes::PARTIAL_NONLINEAR, title);
        draft.notes.push(format!("forward: {what} is not linear, so its results on the ranks of `{axis}` do not add up to its result on the sum"));
        draft.help.push(format!("reduce {partial} over `{axis}` before {what}"));
        draft
    }

    fn partial_affine(&self, axis: &str, what: &str, operands: &[OperandAt], here: Place) -> Draft {
        let partial = find(operands, Spmd::Partial).map_or_else(|| "the pending sum".to_string(), |o| self.name(o));
        let other = operands.iter().find(|o| o.state.known() != Some(Spmd::Partial));
        let added = match other {
            Some(o) if o.is_number => "a number".to_string(),
            Some(o) => self.met(o),
            None => "a value".to_string(),
        };
        // The sum that one call makes of a product and an addend is that call.
        let within = operands.iter().any(|o| o.state.known() == Some(Spmd::Partial) && o.place == Some(here));
        // A division by the number of ranks makes up for it in the forward pass, and divides the gradient as well.
        let by_ranks = added.split_once(" / ").is_some_and(|(_, by)| by.contains("size") || by.contains("world"));
        if by_ranks && other.is_some_and(|o| o.state.known() == Some(Spmd::Invariant)) {
            return self.divided_term(axis, &added, &partial);
        }
        let title = match within {
            true => {
                format!("{added} is counted once per rank of `{axis}`: {what} adds it to a product still to be summed")
            }
            false => {
                format!("{added} is counted once per rank of `{axis}`: it meets {partial}, which is still to be summed")
            }
        };
        let mut draft = Draft::new(&codes::PARTIAL_AFFINE, title);
        draft.notes.push(format!(
            "forward: after the sum over `{axis}`, the term {added} of {what} is there as many times as there are ranks"
        ));
        draft.help.push(format!("add {added} after the reduction of {partial}, or on one rank of `{axis}` only"));
        draft
    }

    fn divided_term(&self, axis: &str, added: &str, partial: &str) -> Draft {
        let title = format!(
            "{added} is a term on every rank of `{axis}` of {partial}, which is still to be summed: its gradient is divided, and nothing sums it"
        );
        let mut draft = Draft::new(&codes::PARTIAL_AFFINE, title);
        draft.notes.push(format!(
            "backward: a division by the number of ranks makes up for the sum in the forward pass, and leaves each rank of `{axis}` that part of the gradient"
        ));
        draft
            .help
            .push(format!("add the whole of it after the reduction of {partial}, or on one rank of `{axis}` only"));
        draft
    }

    fn partial_twice(&self, axis: &str, what: &str, operands: &[OperandAt]) -> Draft {
        let names: Vec<String> =
            operands.iter().filter(|o| o.state.known() == Some(Spmd::Partial)).map(|o| self.name(o)).take(2).collect();
        let both = names.join(" and ");
        let title = format!("{both} are both pending sums over `{axis}`: their product {what} loses the cross terms");
        let mut draft = Draft::new(&codes::PARTIAL_TWICE, title);
        draft.notes.push("forward: the sum of the products of the terms is not the product of the sums".to_string());
        draft.help.push("reduce all factors but one before they are multiplied".to_string());
        draft
    }

    fn partial_divisor(&self, axis: &str, what: &str, operands: &[OperandAt]) -> Draft {
        let divisor =
            operands.iter().find(|o| o.is_divisor).map_or_else(|| "the divisor".to_string(), |o| self.name(o));
        let title = format!("{divisor} is still to be summed over `{axis}` when {what} divides by it");
        let mut draft = Draft::new(&codes::PARTIAL_DIVISOR, title);
        draft.notes.push("forward: a quotient is not linear in its divisor".to_string());
        draft.help.push(format!("reduce {divisor} over `{axis}` before the division"));
        draft
    }
}

fn find(operands: &[OperandAt], t: Spmd) -> Option<&OperandAt> {
    operands.iter().find(|o| !o.is_number && o.state.known() == Some(t))
}

/// The last part of a qualified name, without underscores of operators.
pub fn short(op: &str) -> &str {
    let last = op.rsplit('.').next().unwrap_or(op);
    last.strip_prefix("__").and_then(|l| l.strip_suffix("__")).unwrap_or(last)
}
