//! Words of groups, sizes and factors: steps without a reduction, other groups, factors that are missing or twice there. In: findings.
//! Out: drafts. Never: detection. Next: `practice.rs`.

use super::super::codes;
use super::Draft;
use crate::infer::practice::found::Scales;
use crate::source::{Label, Name, Place};

pub fn scales(mistake: &Scales) -> Draft {
    match mistake {
        Scales::UnreducedStep { model, made, backward, distributed } => {
            unreduced(model, *made, *backward, *distributed)
        }
        Scales::NarrowWrapper { axis, sliced } => {
            let title = format!(
                "gradients are not summed over `{axis}`: each of its ranks has other tokens and is not in the wrapper's group"
            );
            let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
            draft.primary = "data-parallel ranks alone".to_string();
            draft.labels.push(label(*sliced, format!("each `{axis}` rank takes its own tokens")));
            draft.help.push(format!("use the group of data-parallel and `{axis}` ranks together"));
            draft
        }
        Scales::GroupLeftOut { collective, own, stored } => {
            let title = format!("`{collective}` runs over the default group, and `{own}` is the group here");
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = "no group is given".to_string();
            draft.labels.push(label(*stored, "the group of the same axis".to_string()));
            draft.help.push(format!("pass `group={own}`"));
            draft
        }
        Scales::GlobalRank { unread, given } => {
            let title = format!("the rank among all ranks decides, and `{unread}` says among which ranks");
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = "rank among all ranks".to_string();
            draft.labels.push(label(*given, "is never read".to_string()));
            draft.help.push("`mesh.get_local_rank(mesh_dim)`, or `dist.get_rank(group)`".to_string());
            draft
        }
        Scales::OtherSize { size, group, reduced } => {
            let (size, group) = (axes(size), axes(group));
            let title = format!("a mean over {group} divides by the size of {size}");
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = format!("the number of ranks of {size}");
            draft.labels.push(label(*reduced, format!("summed over {group}")));
            draft.help.push(format!("divide by the size of {group}"));
            draft
        }
        Scales::CountedAgain { summed, evidence } => {
            let title = "the count has each token once for every rank that holds it, and is scaled by the data-parallel ranks alone";
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title.to_string());
            draft.primary = "fewer ranks than were counted".to_string();
            draft.labels.push(label(*summed, "summed over all ranks".to_string()));
            draft.labels.extend(evidence.map(|place| label(place, "several ranks have the same tokens".to_string())));
            draft.help.push("multiply by the number of all ranks, or sum over the data-parallel group".to_string());
            draft
        }
        _ => factor(mistake),
    }
}

fn unreduced(model: &Name, made: Place, backward: Place, distributed: Place) -> Draft {
    let title = format!("gradients of `{model}` are never summed over ranks before the step");
    let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
    draft.primary = "each rank steps with its own gradients".to_string();
    draft.labels.push(label(made, "made here, wrapped in nothing".to_string()));
    draft.labels.push(label(backward, "gradients of this rank's data".to_string()));
    if distributed != made {
        draft.labels.push(label(distributed, "each rank has its own data".to_string()));
    }
    draft.help.push("wrap the model in DistributedDataParallel, or sum gradients before the step".to_string());
    draft
}

fn factor(mistake: &Scales) -> Draft {
    match mistake {
        Scales::InnerDivisor { module, mesh, whole, outer } => {
            let title = format!(
                "gradients of `{module}` are divided by the size of `{mesh}`, those around it by the size of `{whole}`"
            );
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title);
            draft.primary = format!("divides by the size of `{mesh}`");
            draft.labels.push(label(*outer, format!("divides by the size of `{whole}`")));
            draft.notes.push(
                "the tokens of all these ranks reach the experts: their gradients arrive multiplied by the difference"
                    .to_string(),
            );
            draft.help.push(format!("`{module}.set_gradient_divide_factor(...)` with the size of `{whole}`"));
            draft
        }
        Scales::MeanTwice { wrapped } => {
            let title = "gradients are divided by the number of ranks and by the number of tokens of all ranks";
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title.to_string());
            draft.primary = "divides by the tokens of all ranks".to_string();
            draft.labels.push(label(*wrapped, "averages gradients over ranks".to_string()));
            draft.help.push("multiply by the world size".to_string());
            draft
        }
        Scales::Auxiliary { scaler, main } => {
            let title = format!(
                "`{scaler}` scales the auxiliary loss without the context-parallel size, which the main loss has"
            );
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title);
            draft.primary = "no context-parallel size".to_string();
            draft.labels.push(label(*main, "the main loss under the same condition".to_string()));
            draft.help.push("multiply by the same size".to_string());
            draft
        }
        Scales::WhateverFlag { flag, mean } => {
            let title = format!(
                "the loss is multiplied by the context-parallel size also where `{flag}` turns the mean off that this undoes"
            );
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title);
            draft.primary = format!("whatever `{flag}` says");
            draft.labels.push(label(*mean, "averages in one case alone".to_string()));
            draft.help.push(format!("multiply where `{flag}` is tested"));
            draft
        }
        _ => Draft::new(&codes::GRADIENT_SCALE, "factors differ".to_string()),
    }
}

fn label(place: Place, message: String) -> Label {
    Label { place, message }
}

fn axes(names: &[Name]) -> String {
    let each: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
    each.join(" and ")
}
