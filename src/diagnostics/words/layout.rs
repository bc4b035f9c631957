//! Words of 611 to 615: which dim of a tensor is split over which axis. In: findings. Out: drafts. Never: detection.
//! Next: `contract.rs`.

use super::super::codes;
use super::{Draft, Words, label};
use crate::infer::finding::{Finding, OperandAt};
use crate::infer::layout::Layout;
use crate::rules::shards::{Reduction, Refusal};
use crate::types::Axis;

impl Words<'_> {
    pub fn layout(&self, finding: &Finding, layout: &Layout) -> Draft {
        match layout {
            Layout::Refused { axis, op, dim, refusal, operand, other } => {
                self.refused(finding, axis, op, *dim, *refusal, operand, other.as_ref())
            }
            Layout::NoSpec { axis, operand } => {
                let value = self.name(operand);
                let title = format!("{value} differs by rank of `{axis}`, and nothing says which of its dims is split");
                let mut draft = Draft::new(&codes::NO_SPEC, title);
                self.provenance(axis.name(), &operand.state, finding, &mut draft.labels);
                draft.notes.push("with global types every varying value is a part of one tensor".to_string());
                draft.help.push(format!("state the dim: `assert_type({}, {{{axis}: S(i)}})`", value.trim_matches('`')));
                draft.help.push(format!("or, if it is a term of a sum: `reinterpret(..., {axis}, src=V, dst=P)`"));
                draft
            }
            Layout::SplitSum { axis, dim, operand } => {
                let value = self.name(operand);
                let title =
                    format!("{value} is a pending sum over `{axis}`, but its dim {dim} is said to be split over it");
                let mut draft = Draft::new(&codes::SPEC_CONFLICT, title);
                self.provenance(axis.name(), &operand.state, finding, &mut draft.labels);
                draft.help.push(
                    "a term of a sum is not split: sum over the dim first, or leave the value Varying".to_string(),
                );
                draft
            }
            Layout::NotInnermost { axis, inner, name, dim, operand } => {
                let title = format!(
                    "`{name}` over `{axis}` would mix up dim {dim} of {}: `{inner}` splits it further inside",
                    self.name(operand)
                );
                let mut draft = Draft::new(&codes::NOT_INNERMOST, title);
                self.provenance(axis.name(), &operand.state, finding, &mut draft.labels);
                draft.help.push(format!("redistribute `{inner}` first: only the innermost axis of a dim can be moved"));
                draft
            }
            Layout::SpecConflict { dim, known, stated_dim, stated, operand } => {
                let (name, known, stated) = (self.name(operand), listed(known), listed(stated));
                let title = match dim == stated_dim {
                    true => format!("dim {dim} of {name} is split over {known}, not over {stated}"),
                    false => format!(
                        "dim {dim} of {name} is split over {known}, and dim {stated_dim} is said to be over {stated}"
                    ),
                };
                let mut draft = Draft::new(&codes::SPEC_CONFLICT, title);
                draft.notes.push(
                    "a second statement may add what is not known; the order of axes on a dim counts".to_string(),
                );
                draft
                    .help
                    .push("state the whole spec of the dim where the tensor is made, outermost axis first".to_string());
                draft
            }
            Layout::NoOrder { dim, axes: [a, b], op } => {
                let title =
                    format!("`{a}` and `{b}` both split dim {dim} of the result of `{}`, in no known order", short(op));
                let mut draft = Draft::new(&codes::AXIS_ORDER, title);
                draft.help.push("split an operand over both axes, or gather one of them before".to_string());
                draft
            }
            Layout::OtherOrder { axes: [a, b], op } => {
                let title =
                    format!("the operands of `{}` are split over `{a}` and `{b}` in different order", short(op));
                let mut draft = Draft::new(&codes::AXIS_ORDER, title);
                draft.help.push("give both the same order in their partition specs".to_string());
                draft
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one variant")]
    fn refused(
        &self,
        finding: &Finding,
        axis: &Axis,
        op: &str,
        dim: usize,
        refusal: Refusal,
        operand: &OperandAt,
        other: Option<&OperandAt>,
    ) -> Draft {
        let (value, name) = (self.name(operand), short(op));
        let with = other.map_or_else(|| "the other operand".to_string(), |o| self.name(o));
        let title = match refusal {
            Refusal::Coupled => {
                format!("`{name}` runs along dim {dim} of {value}, of which every rank of `{axis}` has only a part")
            }
            Refusal::OtherWhole(_) => {
                format!("`{name}` meets dim {dim} of {value}, split over `{axis}`, with {with}, which is whole there")
            }
            Refusal::OtherSplit(_) => {
                format!("`{name}` meets {value}, split on dim {dim} over `{axis}`, with {with}, split on another dim")
            }
            Refusal::AddedTerm => {
                format!(
                    "`{name}` contracts dim {dim} of {value}, split over `{axis}`, and every rank would add the same term"
                )
            }
            Refusal::Reduced(reduction) => format!(
                "`{name}` over dim {dim} of {value}, split over `{axis}`, leaves {} of the parts, which is no type",
                reduced(reduction)
            ),
            Refusal::Strided => {
                format!("`{name}` scatters what a rank of `{axis}` has of dim {dim} of {value} over the result")
            }
            Refusal::CutApart => format!("`{name}` cuts dim {dim} of {value}, split over `{axis}`, into several dims"),
            Refusal::Taken => {
                format!(
                    "`{name}` takes a part of dim {dim} of {value}, of which every rank of `{axis}` has another part"
                )
            }
            Refusal::Repeated => format!("`{name}` repeats dim {dim} of {value}, split over `{axis}`"),
            Refusal::Joined => format!("`{name}` joins tensors along dim {dim}, over which `{axis}` splits {value}"),
        };
        let mut draft = Draft::new(&codes::SHARDS_APART, title);
        self.provenance(axis.name(), &operand.state, finding, &mut draft.labels);
        if let Some(other) = other {
            draft.labels.extend(label(other.place, format!("{} on `{axis}`", other.state.notation())));
        }
        draft.notes.push(match refusal {
            Refusal::Reduced(_) => "only a sum can stay pending over ranks".to_string(),
            Refusal::AddedTerm => "the term would be counted once for every rank when the sum is done".to_string(),
            _ => "forward: the parts that the ranks compute are not the parts of one result".to_string(),
        });
        let plain = value.trim_matches('`').to_string();
        draft.help.push(match refusal {
            Refusal::OtherWhole(_) => {
                format!("split {with} alike, or gather {value}: `all_gather({plain}, {axis}, src=S({dim}), dst=R)`")
            }
            Refusal::Reduced(Reduction::Mean) => {
                "sum instead, reduce, and divide by the number of elements of all ranks".to_string()
            }
            Refusal::AddedTerm => format!("reduce the product over `{axis}` before adding"),
            Refusal::OtherSplit(_) => format!(
                "make dim {dim} whole first: `all_gather({plain}, {axis}, src=S({dim}), dst=R)`, or an autograd function that gathers it and whose backward reduce-scatters the gradient"
            ),
            _ => format!(
                "make dim {dim} whole first: `all_gather({plain}, {axis}, src=S({dim}), dst=R)`, or split another dim"
            ),
        });
        draft
    }
}

fn reduced(reduction: Reduction) -> &'static str {
    match reduction {
        Reduction::Sum => "a sum",
        Reduction::Mean => "a mean",
        Reduction::Max => "a maximum",
        Reduction::Min => "a minimum",
        Reduction::Norm => "a norm",
        Reduction::Product => "a product",
    }
}

/// The last part of an operation's name, without underscores.
fn short(op: &str) -> &str {
    op.rsplit('.').next().unwrap_or(op).trim_matches('_')
}

fn listed(axes: &[Axis]) -> String {
    axes.iter().map(|a| format!("`{a}`")).collect::<Vec<_>>().join(" and then ")
}
