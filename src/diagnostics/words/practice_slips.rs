//! Words of slips about ranks, sizes and groups. In: findings. Out: drafts. Never: detection. Next: `practice.rs`.

use super::super::codes;
use super::practice_scales::axes;
use super::{Draft, spot};
use crate::infer::practice::slips::Slip;
use crate::source::Place;

pub fn slips(mistake: &Slip) -> Draft {
    match mistake {
        Slip::GroupForgotten { .. }
        | Slip::AskedNotGiven { .. }
        | Slip::MeshLeftOut { .. }
        | Slip::GroupOfOne { .. }
        | Slip::NodesLeftOut { .. }
        | Slip::SiblingHandsOn { .. }
        | Slip::OtherAxes { .. }
        | Slip::FirstOfOther { .. }
        | Slip::AllRanksFactor { .. }
        | Slip::CountOfFewer { .. }
        | Slip::ShareAveraged { .. } => groups(mistake),
        Slip::RankForSize { name, given, rank_given, other } => {
            let (is, wanted) =
                if *rank_given { ("a rank", "a number of ranks") } else { ("a number of ranks", "a rank") };
            let title = format!("`{name}` is {is}: `{given}` stands where {wanted} belongs");
            let mut draft = Draft::new(&codes::RANK_FOR_SIZE, title);
            draft.primary = format!("takes `{given}` for `{name}`");
            draft.labels.extend((*other).map(|at| spot(at, "and the other way round".to_string())));
            draft.help.push(match other {
                Some(_) => "exchange the two".to_string(),
                None => format!("give `{name}` {wanted}"),
            });
            draft
        }
        Slip::PartByWhole { part, whole, local, divided, kept } => {
            let title = format!("`self.{part}` is this rank's part, and `{whole}` is the number of all ranks");
            let mut draft = Draft::new(&codes::PART_BY_WHOLE, title);
            draft.primary = "too small by the number of ranks".to_string();
            draft.labels.push(spot(*divided, "divided by the number of ranks".to_string()));
            draft.labels.push(spot(*kept, format!("of `{whole}` this rank has `self.{local}`")));
            draft.help.push(format!("divide by `self.{local}`"));
            draft
        }
        Slip::EmptyPart { part, share } => {
            let title = format!("all ranks but the first get an empty part of `{part}`: `{share}` is its whole length");
            let mut draft = Draft::new(&codes::UNEVEN_SHARD, title);
            draft.primary = "begins behind the end on the second rank".to_string();
            draft.help.push(format!("divide `{share}` by the number of ranks first"));
            draft
        }
        Slip::ComparisonBound { name, used } => {
            let title = format!("`{name}` is true or false, and not the number: `:=` binds the whole comparison");
            let mut draft = Draft::new(&codes::COMPARISON_BOUND, title);
            draft.primary = format!("binds the comparison to `{name}`");
            draft.labels.push(spot(*used, "computed with here, as 0 or 1".to_string()));
            draft.help.push(format!("put the binding into parentheses: `({name} := ...)`, and compare that"));
            draft
        }
        Slip::AlwaysHolds { constant } => {
            let title = format!("the condition always holds: `{constant}` stands alone behind `or` and is true");
            let mut draft = Draft::new(&codes::ALWAYS_HOLDS, title);
            draft.primary = format!("`{constant}` is true, and so is the condition");
            draft.help.push(format!("compare with `{constant}` on this side of `or` too"));
            draft
        }
        Slip::LengthDivided { loader, sampler } => {
            let title =
                format!("`len({loader})` is divided by the number of ranks twice: it is the length for one rank");
            let mut draft = Draft::new(&codes::LENGTH_DIVIDED, title);
            draft.primary = "divided once more".to_string();
            draft.labels.push(spot(*sampler, "gives each rank its own part".to_string()));
            draft.help.push(format!("use `len({loader})` as it is, or divide the length of the data set"));
            draft
        }
    }
}

/// Slips about groups, and about how many ranks there are.
fn groups(mistake: &Slip) -> Draft {
    match mistake {
        Slip::SiblingHandsOn { function, parameter, handed, counts } => {
            sibling_hands_on(function, parameter, *handed, *counts)
        }
        Slip::NodesLeftOut { function, parameter, own, takes } => nodes_left_out(function, parameter, *own, *takes),
        Slip::GroupForgotten { function, parameter, given } => {
            let title = format!(
                "`{function}` calls itself without `{parameter}`: what is nested communicates over the default group"
            );
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = format!("without `{parameter}`");
            draft.labels.push(spot(*given, "the group that was given".to_string()));
            draft.help.push(format!("pass `{parameter}={parameter}`"));
            draft
        }
        Slip::AskedNotGiven { collective, group, guard, beside } => {
            let title = format!("`{collective}` runs over all ranks, and `{group}` is the group that is asked for");
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = "over the default group".to_string();
            draft.labels.push(spot(*guard, format!("asks whether there is `{group}`")));
            draft.labels.push(spot(*beside, "has its group".to_string()));
            draft.help.push(format!("pass `group={group}`"));
            draft
        }
        Slip::GroupOfOne { parameter, made } => {
            let title = format!("without `{parameter}` each rank is alone: nothing is exchanged with the others");
            let mut draft = Draft::new(&codes::GROUP_OF_ONE, title);
            draft.primary = "a group of this rank".to_string();
            draft.labels.push(spot(*made, "the only rank in it".to_string()));
            draft.help.push(format!("leave `{parameter}` as None, which stands for all ranks"));
            draft
        }
        Slip::OtherAxes { parameter, named, given, asked } => {
            let (named, given) = (axes(named), axes(given));
            let title =
                format!("`{parameter}` gets the group of {given}: what is meant for {named} runs over other ranks");
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = format!("the group of {given}");
            draft.labels.extend(asked.map(|at| spot(at, format!("is taken for that of {named}"))));
            draft.help.push(format!("pass the group of {named}"));
            draft
        }
        Slip::FirstOfOther { named, size, asked } => {
            let (named, size) = (axes(named), axes(size));
            let title = format!("the first rank of {named} is computed with the size of {size}");
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = format!("the first rank of {size}");
            draft.labels.push(spot(*asked, format!("how many ranks {size} has")));
            draft.help.push(format!("`dist.get_global_rank(group, 0)` with the group of {named}"));
            draft
        }
        Slip::ShareAveraged { loss, weight, reduced } => share_averaged(loss, weight, *reduced),
        Slip::CountOfFewer { count, over, axes: all, sized } => count_of_fewer(count, &axes(over), &axes(all), *sized),
        Slip::AllRanksFactor { count, over, summed, shared } => all_ranks_factor(count, &axes(over), *summed, *shared),
        Slip::MeshLeftOut { function, group, reduced } => {
            let title = format!(
                "`{function}` leaves out `{group}` for a distributed tensor: `full_tensor` reduces over the mesh of the tensor alone"
            );
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = format!("returned without the reduction over `{group}`");
            draft.labels.push(spot(*reduced, format!("any other tensor is reduced over `{group}` here")));
            draft.help.push("take the full tensor, and go on to the reduction".to_string());
            draft
        }
        Slip::EmptyPart { .. }
        | Slip::PartByWhole { .. }
        | Slip::RankForSize { .. }
        | Slip::ComparisonBound { .. }
        | Slip::AlwaysHolds { .. }
        | Slip::LengthDivided { .. } => slips(mistake),
    }
}

/// A factor of all ranks where fewer were counted.
fn all_ranks_factor(count: &str, over: &str, summed: Place, shared: Place) -> Draft {
    let title = format!(
        "gradients are too large by the number of tensor-parallel ranks: the loss is multiplied by that of all ranks, and `{count}` is summed over {over}"
    );
    let mut draft = Draft::new(&codes::GRADIENT_FACTOR, title);
    draft.primary = "by the number of all ranks".to_string();
    draft.labels.push(spot(summed, format!("counts what the ranks of {over} have")));
    draft.labels.push(spot(shared, "these ranks share a batch, and are among all ranks too".to_string()));
    draft.help.push(format!("multiply by the number of ranks of {over}"));
    draft
}

fn share_averaged(loss: &str, weight: &str, reduced: Place) -> Draft {
    let title = format!(
        "gradients are too small by the number of ranks: `{loss}` is a share of the mean over all ranks, and the wrapper averages shares"
    );
    let mut draft = Draft::new(&codes::GRADIENT_FACTOR, title);
    draft.primary = format!("divided by what all ranks have of `{weight}`");
    draft.labels.push(spot(reduced, "summed over all ranks".to_string()));
    draft.help.push(format!("multiply `{loss}` by the number of ranks"));
    draft
}

fn count_of_fewer(count: &str, over: &str, all: &str, sized: Place) -> Draft {
    let title = format!(
        "gradients are too large: the loss is multiplied by the number of ranks of {all}, and `{count}` is summed over {over}"
    );
    let mut draft = Draft::new(&codes::GRADIENT_FACTOR, title);
    draft.primary = "lacks the tokens of ranks that have other parts of the sequence".to_string();
    draft.labels.push(spot(sized, format!("multiplied by the number of ranks of {all}")));
    draft.help.push(format!("sum `{count}` over {all}"));
    draft
}

fn sibling_hands_on(function: &str, parameter: &str, handed: Place, counts: Place) -> Draft {
    let title = format!(
        "`{function}` is not given what is in `{parameter}`, which nothing here reads: it counts what this rank has"
    );
    let mut draft = Draft::new(&codes::LOCAL_COUNT, title);
    draft.primary = format!("leaves `{parameter}` out");
    draft.labels.push(spot(handed, format!("handed on here: `**{parameter}`")));
    draft.labels.push(spot(counts, "counted here where it is left out".to_string()));
    draft.help.push(format!("give it `**{parameter}` as well"));
    draft
}

fn nodes_left_out(function: &str, parameter: &str, own: Place, takes: Place) -> Draft {
    let title =
        format!("`{function}` counts the ranks of one node: `{parameter}` is not given to it, and nothing reads it");
    let mut draft = Draft::new(&codes::LOCAL_COUNT, title);
    draft.primary = format!("leaves out `{parameter}`");
    draft.labels.push(spot(own, "nothing reads it here".to_string()));
    draft.labels.push(spot(takes, "one, if it is left out".to_string()));
    draft.help.push(format!("give it `{parameter}`"));
    draft
}
