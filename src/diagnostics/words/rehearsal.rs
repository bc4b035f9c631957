//! Words about groups that do not fit the ranks of a small job. In: findings. Out: drafts. Never: detection. Next: `practice.rs`.

use super::super::codes;
use super::{Draft, spot};
use crate::infer::rehearsal::{Misfit, RANKS, Rehearsed};

pub fn rehearsed(found: &Rehearsed) -> Draft {
    let mut draft = misfit(found);
    draft.labels.extend(found.computed.map(|place| spot(place, "of these ranks".to_string())));
    draft
}

fn misfit(found: &Rehearsed) -> Draft {
    let job = job(found);
    match &found.misfit {
        Misfit::NotAlike { rank, ranks, other, instead } => {
            let title = format!("rank {rank} and rank {other} do not make the same groups: {job}");
            let mut draft = Draft::new(&codes::GROUPS_MISFIT, title);
            let makes = |rank: i64, ranks: &[i64]| match ranks {
                [] => format!("rank {rank} makes none here"),
                ranks => format!("rank {rank} makes {ranks:?}"),
            };
            draft.primary = format!("{}, {}", makes(*rank, ranks), makes(*other, instead));
            draft.help.push("make all groups on every rank in the same order, and keep the own one".to_string());
            draft
        }
        Misfit::Overlap { variable, rank, first, second, member } => {
            let title = format!("groups of `{variable}` overlap: {job}, rank {rank} is in two of them");
            let mut draft = Draft::new(&codes::GROUPS_MISFIT, title);
            draft.primary = format!("makes {first:?} and {second:?}");
            draft.notes.push(format!("`{variable}` is {second:?} on rank {rank} and another group on rank {member}"));
            draft
                .help
                .push("each rank belongs into one of the groups: check bounds and step of the ranges".to_string());
            draft
        }
        Misfit::NotMember { variable, rank, number, ranks, tested } => {
            let title = format!("`{variable}` is a group that rank {rank} is not in: {job}");
            let mut draft = Draft::new(&codes::GROUPS_MISFIT, title);
            draft.primary = format!("{ranks:?}, ranks among all");
            draft.labels.push(spot(*tested, format!("looks for {number} among the ranks, and this is rank {rank}")));
            draft.help.push("make the groups of ranks among all, and look for `dist.get_rank()` in them".to_string());
            draft
        }
        Misfit::LastMade { variable, rank, ranks, own } => {
            let title = match variable {
                Some(name) => format!("`{name}` is the last group that is made, on every rank: {job}"),
                None => format!("every rank is given the last group that is made: {job}"),
            };
            let mut draft = Draft::new(&codes::GROUPS_MISFIT, title);
            draft.primary = format!("{ranks:?} on rank {rank}, which is in {own:?}");
            draft.help.push("keep the group whose ranks the own rank is among: `if rank in ranks`".to_string());
            draft
        }
        Misfit::SameMembers { variables: (first, second), rank, member, ranks } => {
            let title = format!("ranks {rank} and {member} are together in `{first}` and in `{second}`: {job}");
            let mut draft = Draft::new(&codes::GROUPS_MISFIT, title);
            draft.primary = format!("on rank {rank} `{first}` is {:?}, and `{second}` is {:?}", ranks.0, ranks.1);
            draft.notes.push(format!(
                "ranks of `{first}` have different parts of the model, ranks of `{second}` are to have the same one"
            ));
            draft.help.push(format!("make `{second}` of the ranks that have the same place in their `{first}`"));
            draft
        }
        Misfit::RootOutside { collective, root, rank, ranks } => {
            let title = format!("`{collective}` names rank {root}, which is not in the group of rank {rank}: {job}");
            let mut draft = Draft::new(&codes::GROUPS_MISFIT, title);
            draft.primary = format!("rank {rank} is in {ranks:?}, ranks among all");
            draft.help.push(
                "name a rank of the own group: `dist.get_global_rank(group, 0)`, or give `group_src=0`".to_string(),
            );
            draft
        }
        Misfit::SourceOutside { function, group, rank, source, ranks } => {
            let title = format!("`{function}` gives a rank that is not in `{group}`: {job}");
            let mut draft = Draft::new(&codes::GROUPS_MISFIT, title);
            draft.primary = format!("rank {rank} gets {source}, and its group is {ranks:?}");
            draft.help.push("keep the ranks of the group where it is made, and take the rank from there".to_string());
            draft
        }
    }
}

/// The job in which it shows.
fn job(found: &Rehearsed) -> String {
    let numbers: Vec<String> = found.configuration.iter().map(|(name, n)| format!("`{name}` {n}")).collect();
    match numbers.as_slice() {
        [] => format!("of {RANKS} ranks"),
        [one] => format!("of {RANKS} ranks with {one}"),
        [init @ .., last] => format!("of {RANKS} ranks with {} and {last}", init.join(", ")),
    }
}
