//! Words about groups that do not fit the ranks of a small job. In: findings. Out: drafts. Never: detection. Next: `practice.rs`.

use super::super::codes;
use super::{Draft, spot};
use crate::infer::rehearsal::{Misfit, RANKS, Rehearsed};

pub fn rehearsed(found: &Rehearsed) -> Draft {
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
