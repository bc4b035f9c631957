//! Words for placements that are stated twice, views of split dims, modes, and plans at work. In: a mistake. Out: a [`Draft`]. Never:
//! detection. Next: `dtensor.rs`.

use super::dtensor::short;
use super::{Draft, Words};
use crate::diagnostics::codes;
use crate::infer::dtensor::found::{Distributed, PlanMistake};
use crate::plan::Written;
use crate::source::Label;

impl Words<'_> {
    pub(super) fn stated(&self, mistake: &Distributed) -> Draft {
        match mistake {
            Distributed::View { op, operand, dim, size, ranks } => {
                let value = self.named(*operand);
                let title =
                    format!("`{}` cuts dim {dim} of {value}, which {ranks} ranks share, into {size} parts", short(op));
                let mut draft = Draft::new(&codes::SHARDED_VIEW, title);
                draft.labels.push(Label { place: *operand, message: format!("dim {dim} is split over {ranks} ranks") });
                draft
                    .notes
                    .push(format!("RuntimeError at run time: a dim of size {size} is not evenly divisible by {ranks}"));
                draft.help.push("`redistribute` to `Replicate()` or to another dim before".to_string());
                draft
            }
            Distributed::Notations { axis, state, placement, stated, here, value, by } => {
                let is = state.notation();
                let title = match here {
                    true => format!("annotated as {placement} on `{axis}`, and stated to be {is} there before"),
                    false => {
                        let value = value.map_or("the value".to_string(), |place| self.named(place));
                        format!("{value} is stated to be {is} on `{axis}`, and its placements say {placement}")
                    }
                };
                let mut draft = Draft::new(&codes::NOTATIONS_DISAGREE, title);
                let other = if *here { format!("{is} on `{axis}`") } else { format!("{placement} on `{axis}`") };
                draft.labels.extend(stated.map(|place| Label { place, message: other }));
                let by = by.filter(|by| Some(*by) != *value);
                draft.labels.extend(by.map(|place| Label { place, message: format!("{is} on `{axis}`, stated here") }));
                draft.help.push("one of the two is wrong: state the same in both".to_string());
                draft
            }
            Distributed::ModeGone { api, removed } => {
                let title = format!("`{api}` selects a parallel mode, and torch {removed} and later do not have it");
                let mut draft = Draft::new(&codes::MODE_GONE, title);
                draft.help.push(
                    "say `# spmd: mode ...` to have the program checked, and use DDP or `fully_shard`".to_string(),
                );
                draft
            }
            Distributed::PartialResult { mode, axis, value } => {
                let title = format!(
                    "{} is returned as a pending sum over `{axis}`, which `{mode}` refuses",
                    self.named(*value)
                );
                let mut draft = Draft::new(&codes::PARTIAL_RESULT, title);
                draft.primary = format!("Partial on `{axis}`");
                draft.help.push("reduce it before, or return what is not pending".to_string());
                draft
            }
            _ => Draft::new(&codes::REFUSED_PLACEMENT, String::new()),
        }
    }

    /// What one style leaves against what the code does with it next.
    pub(super) fn plan_at_work(&self, mistake: &PlanMistake) -> Draft {
        match mistake {
            PlanMistake::Layouts { style, layout, state, value, left } => {
                let is = state.notation();
                let title =
                    format!("`{style}` takes {} for {}, and what comes is {is}", self.named(*value), written(*layout));
                let mut draft = Draft::new(&codes::PLAN_LAYOUTS, title);
                draft.primary = format!("{is}, by the plan");
                draft.labels.extend(left.map(|place| Label { place, message: "the plan".to_string() }));
                draft.notes.push(
                    "nothing compares the two: what follows computes with a tensor of another size, or of other values"
                        .to_string(),
                );
                draft.help.push(
                    "state the same layout as `output_layouts` of the one and `input_layouts` of the other".to_string(),
                );
                draft
            }
            PlanMistake::Apart { op, split, dim, whole, plan } => {
                let (a, b) = (self.named(*split), self.named(*whole));
                let title = format!(
                    "`{}` of {a}, of which the plan leaves each rank a part of dim {dim}, and {b}, which is whole",
                    short(op)
                );
                let mut draft = Draft::new(&codes::PLAN_LAYOUTS, title);
                draft.labels.push(Label { place: *split, message: format!("S({dim}), by the plan") });
                draft.labels.push(Label { place: *whole, message: "whole, by the plan".to_string() });
                draft.labels.extend(plan.map(|place| Label { place, message: "the plan".to_string() }));
                draft.notes.push("RuntimeError at run time: the sizes do not fit".to_string());
                draft.help.push(format!("`output_layouts=Shard({dim})` for the style that leaves it whole"));
                draft
            }
            PlanMistake::Whole { layer, value } => {
                let title = format!(
                    "{} is split on its last dim, and goes into a `{layer}` that the plan leaves whole",
                    self.named(*value)
                );
                let mut draft = Draft::new(&codes::PLAN_LAYOUTS, title);
                draft.primary = "each rank has a part of the last dim".to_string();
                draft.notes.push("RuntimeError at run time: the sizes do not fit".to_string());
                draft.help.push(
                    "`RowwiseParallel()` for this layer, or `output_layouts=Replicate()` for the one before"
                        .to_string(),
                );
                draft
            }
            _ => Draft::new(&codes::PLAN_LAYOUTS, String::new()),
        }
    }
}

fn written(layout: Written) -> String {
    match layout {
        Written::Replicate => "Replicate()".to_string(),
        Written::Shard { dim, .. } | Written::Strided { dim, .. } => format!("Shard({dim})"),
        Written::Partial(_) => "Partial()".to_string(),
    }
}
