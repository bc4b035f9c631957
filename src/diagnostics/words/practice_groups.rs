//! Words about who takes part in a sum: groups that are asked and not used, counts over other ranks, copies, ranks that are left out.
//! In: findings. Out: drafts. Never: detection. Next: `practice.rs`.

use super::super::codes;
use super::Draft;
use crate::infer::practice::membership::Membership;
use crate::source::{Label, Name, Place};

pub fn membership(mistake: &Membership) -> Draft {
    match mistake {
        Membership::OtherAsked { collective, asked, over, guard } => {
            let (asked, over) = (axes(asked), axes(over));
            let title = format!("`{collective}` runs over {over} where {asked} has several ranks, which take no part in it");
            let mut draft = Draft::new(&codes::OTHER_ASKED, title);
            draft.primary = format!("over the ranks of {over}");
            draft.labels.push(label(*guard, format!("asks for the ranks of {asked}")));
            draft.help.push(format!("give it the group of {asked}, or one that holds it"));
            draft
        }
        Membership::OtherCount { summed, counted, count, divided } => {
            let (summed, counted) = (axes(summed), axes(counted));
            let title = format!("a sum over {summed} is divided by a count over {counted}");
            let mut draft = Draft::new(&codes::OTHER_COUNT, title);
            draft.primary = format!("summed over {summed}");
            draft.labels.push(label(*count, format!("counted over {counted}")));
            draft.labels.push(label(*divided, "divided here".to_string()));
            draft.help.push("reduce both over the same group".to_string());
            draft
        }
        Membership::CopiesSummed { over, copies, .. } => {
            let over = axes(over);
            let title = format!("what every rank of {over} has alike is summed over them: it counts once for each rank");
            let mut draft = Draft::new(&codes::COPIES_SUMMED, title);
            draft.primary = format!("sums over {over}");
            draft.labels.push(label(*copies, "of parameters that are not split: equal on these ranks".to_string()));
            draft.help.push("sum what is split first, and add the rest to the result".to_string());
            draft
        }
        Membership::UnusedGroup { group, stored, reduced } => {
            let title = format!("parameters of experts are told apart, and nothing reduces their gradients over `{group}`");
            let mut draft = Draft::new(&codes::UNUSED_GROUP, title);
            draft.primary = "of experts".to_string();
            draft.labels.push(label(*stored, "kept here, and never read".to_string()));
            draft.labels.push(label(*reduced, "gradients are reduced here, over another group".to_string()));
            draft.help.push(format!("reduce the gradients of experts over `{group}`"));
            draft
        }
        Membership::LeftDim { wrapper, dim, mesh } => {
            let title = format!("gradients are not summed over `{dim}`: `{wrapper}` is given the other dim of the mesh alone");
            let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
            draft.primary = format!("without the ranks of `{dim}`");
            draft.labels.push(label(*mesh, format!("has `{dim}` too, and nothing else uses it")));
            draft.help.push("give it the whole mesh: it sums over one dim and shards over the other".to_string());
            draft
        }
    }
}

fn label(place: Place, message: String) -> Label {
    Label { place, message }
}

fn axes(names: &[Name]) -> String {
    let all: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
    all.join(", ")
}
