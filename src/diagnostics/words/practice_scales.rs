//! Words of groups, sizes and factors: steps without a reduction, other groups, factors that are missing or twice there. In: findings.
//! Out: drafts. Never: detection. Next: `practice.rs`.

use super::super::codes;
use super::{Draft, spot};
use crate::infer::practice::concerned::Concerned;
use crate::infer::practice::found::Scales;
use crate::source::{Label, Name, Place};

pub fn scales(mistake: &Scales) -> Draft {
    match mistake {
        Scales::UnreducedStep { model, made, backward, distributed } => {
            unreduced(model, *made, *backward, *distributed)
        }
        Scales::ReducedWhere { flag, holds, reduced } => reduced_where(flag, *holds, reduced),
        Scales::DataNotSummed { .. }
        | Scales::ReducerNotCalled { .. }
        | Scales::OtherGate { .. }
        | Scales::GuardAgainstMark { .. } => finaliser(mistake),
        Scales::SummedAgain { .. } | Scales::PartSummed { .. } => summed(mistake),
        Scales::UnmarkedBehind { layer, before, axes: over, used, said, sibling, inside, told_other } => {
            let mut draft = unmarked_behind((layer, before), over, *used, (*said, sibling.as_deref()));
            draft.labels.extend(inside.map(|place| spot(place, "made here, without a mark".to_string())));
            draft
                .labels
                .extend(told_other.map(|place| spot(place, "something else is said of its parameters".to_string())));
            draft
        }
        Scales::PlanMisfit { .. } => misfit(mistake),
        Scales::CheckpointAxis { parameter, mapped, marked, mark } => checkpoint(parameter, *mapped, *marked, *mark),
        Scales::ReplicasAsked { axis, asked, sharded } => replicas_asked(axis, *asked, *sharded),
        Scales::NarrowWrapper { .. } => narrow(mistake),
        Scales::GroupLeftOut { .. }
        | Scales::GroupNotGiven { .. }
        | Scales::BufferOfGroup { .. }
        | Scales::UnreadGroup { .. }
        | Scales::FixedRoot { .. }
        | Scales::OtherPart { .. }
        | Scales::SampledByAll { .. }
        | Scales::SplitOverModel { .. } => other_ranks(mistake),
        Scales::GlobalRank { unread, given } => global_rank(unread, *given),
        Scales::WorldRank { group, named } => {
            let title = match named {
                Some(name) => format!("`{name}` is the rank among all ranks, and not the one in its group"),
                None => "the rank among all ranks picks a part of what another group has".to_string(),
            };
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = "rank among all ranks".to_string();
            draft.labels.push(spot(*group, "among the ranks of this group".to_string()));
            draft.help.push("`dist.get_rank(group)` with that group, or `get_local_rank()` of its mesh".to_string());
            draft
        }
        Scales::OtherSize { size, group, reduced } => {
            let (size, group) = (axes(size), axes(group));
            let title = format!("a mean over {group} divides by the size of {size}");
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = format!("the number of ranks of {size}");
            draft.labels.push(spot(*reduced, format!("summed over {group}")));
            draft.help.push(format!("divide by the size of {group}"));
            draft
        }
        Scales::CountedAgain { summed, evidence } => {
            let title = "the count has each token once for every rank that holds it, and is scaled by the data-parallel ranks alone";
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title.to_string());
            draft.primary = "fewer ranks than were counted".to_string();
            draft.labels.push(spot(*summed, "summed over all ranks".to_string()));
            draft.labels.extend(evidence.map(|place| spot(place, "several ranks have the same tokens".to_string())));
            draft.help.push("multiply by the number of all ranks, or sum over the data-parallel group".to_string());
            draft
        }
        Scales::AveragedParts { .. }
        | Scales::TiedMean { .. }
        | Scales::NodeRank { .. }
        | Scales::FirstPart { .. }
        | Scales::BiasDivided { .. } => shares(mistake),
        _ => factor(mistake),
    }
}

/// What is each rank's own: its part of a gradient or of what was gathered, and its share of a bias.
fn shares(mistake: &Scales) -> Draft {
    match mistake {
        Scales::TiedMean { collective } => {
            let title = format!(
                "`{collective}` averages the gradient of a weight that stages share: it is the sum of those of both uses"
            );
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title);
            draft.primary = "divides by the number of stages with the weight".to_string();
            draft.help.push("sum it: each stage has the gradient of its own use alone".to_string());
            draft
        }
        Scales::AveragedParts { summed } => {
            let title = "gradients of parts of the sequence are averaged over tensor-parallel ranks, not summed";
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title.to_string());
            draft.primary = "divides by the number of ranks".to_string();
            let terms = summed.map(|place| spot(place, "each rank's gradient is a term of this sum".to_string()));
            draft.labels.extend(terms);
            let repair = if summed.is_some() { "leave out the division" } else { "sum" };
            draft.help.push(format!("{repair}: the complete gradient is the sum"));
            draft
        }
        Scales::NodeRank { rank, gathered, picked } => {
            let title = format!(
                "`{rank}` picks a part of what all ranks gathered: on the second node it is that of another rank"
            );
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = "the rank on the node".to_string();
            draft
                .labels
                .push(spot(*gathered, "the parts of all ranks, in the order of their ranks among all".to_string()));
            draft.labels.push(spot(*picked, "the part is picked here".to_string()));
            draft.help.push("pick by the rank among all ranks: `process_index`, `dist.get_rank()`".to_string());
            draft
        }
        Scales::FirstPart { slice, gathered, picked } => {
            let title = format!("`{slice}` is the first rank's part of what all ranks gathered, on every rank");
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = "starts at 0, whichever rank it is".to_string();
            draft.labels.push(spot(*gathered, "the parts of all ranks, in the order of their ranks".to_string()));
            draft.labels.push(spot(*picked, "the part is picked here".to_string()));
            draft.help.push("start at the rank times the length of a part".to_string());
            draft
        }
        Scales::BiasDivided { bias, summed } => {
            let title = format!("the gradient of `{bias}` is divided by the number of ranks, and nothing sums it");
            let mut draft = Draft::new(&codes::GRADIENT_FACTOR, title);
            draft.primary = "the backward divides the gradient too".to_string();
            draft.labels.push(spot(*summed, "its backward gives each rank the whole gradient".to_string()));
            draft.help.push(
                "divide in the forward alone: `bias + (bias / n - bias).detach()`, or add it after the sum".to_string(),
            );
            draft
        }
        _ => factor(mistake),
    }
}

/// A group that is left out, a rank that is in one group alone, data that is split over more ranks than it should be.
fn other_ranks(mistake: &Scales) -> Draft {
    match mistake {
        Scales::GroupNotGiven { function, parameter, own, stored, asked } => {
            let rest = match asked {
                true => format!("and `{own}` says which part of it is this rank's"),
                false => format!("and nothing else is done with `{own}`"),
            };
            let title = format!("`{function}` is not given `{parameter}`, over which it communicates, {rest}");
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = format!("without `{parameter}`");
            let label = if *asked { "the rank in this group" } else { "kept here, and never read" };
            draft.labels.push(spot(*stored, label.to_string()));
            draft.help.push(format!("pass `{parameter}={own}`"));
            draft
        }
        Scales::GroupLeftOut { collective, own, stored } => {
            let title = format!("`{collective}` runs over the default group, and `{own}` is the group here");
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = "no group is given".to_string();
            draft.labels.push(spot(*stored, "the group of the same axis".to_string()));
            draft.help.push(format!("pass `group={own}`"));
            draft
        }
        Scales::BufferOfGroup { collective, size, made } => {
            let title = format!("`{collective}` runs over all ranks, and its output is made for `{size}` of them");
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = "no group is given".to_string();
            draft.labels.push(spot(*made, "the number of ranks of a group".to_string()));
            draft.help.push("pass the group of this size".to_string());
            draft
        }
        Scales::UnreadGroup { collective, unread, given } => {
            let title = format!("`{collective}` does not run over `{unread}`, which is given for it and never read");
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = "over other ranks".to_string();
            draft.labels.push(spot(*given, format!("`{unread}` is named here")));
            draft.help.push(format!("pass `group={unread}`"));
            draft
        }
        Scales::OtherPart { size, rank, parts } => {
            let (size, rank) = (axes(size), axes(rank));
            let title = format!("the rank of {rank} picks one of the parts for the ranks of {size}");
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = format!("the rank of {rank}");
            draft.labels.push(spot(*parts, format!("as many parts as {size} has ranks")));
            draft.help.push(format!("pick by the rank of {size}, or cut by the size of {rank}"));
            draft
        }
        Scales::FixedRoot { collective, group, said } => {
            let group = axes(group);
            let title = format!(
                "`{collective}` over the ranks of {group} names rank 0 of all ranks, which is in one such group alone"
            );
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = "the other groups do not have this rank".to_string();
            draft.labels.extend(said.map(|place| spot(place, "a rank among all".to_string())));
            draft.help.push("name the first rank of the own group, or give `group_src=0`".to_string());
            draft
        }
        Scales::SampledByAll { wrapped } => sampled_by_all(*wrapped),
        Scales::SplitOverModel { dim, cut, sampler } => {
            let title = format!("each rank of `{dim}` reads other data, and has a part of the same model");
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = "as many replicas as there are ranks".to_string();
            draft.labels.push(spot(*cut, format!("the model is cut over `{dim}` here")));
            draft.labels.push(spot(*sampler, "splits the data".to_string()));
            draft
                .help
                .push(format!("split over the other dims of the mesh: ranks of `{dim}` are to have the same data"));
            draft
        }
        _ => Draft::new(&codes::INTERNAL_ERROR, "a finding without words".to_string()),
    }
}

/// A sampler over all ranks beside a wrapper over some.
fn sampled_by_all(wrapped: Place) -> Draft {
    let title = "the data is split over all ranks, and gradients are averaged over data-parallel ranks: those that share a model get other samples";
    let mut draft = Draft::new(&codes::DEFAULT_GROUP, title.to_string());
    draft.primary = "as many replicas as there are ranks".to_string();
    draft.labels.push(spot(wrapped, "averages over data-parallel ranks alone".to_string()));
    draft.help.push("give `num_replicas` and `rank` of the data-parallel group".to_string());
    draft
}

/// A reduction under a flag that says nothing of ranks.
fn reduced_where(flag: &str, holds: bool, reduced: &[Place]) -> Draft {
    let value = if holds { "true" } else { "false" };
    let title =
        format!("the optimizer steps on gradients that were not summed over the ranks, unless `{flag}` is {value}");
    let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
    draft.primary = "each rank steps with its own gradients".to_string();
    let only = |at: &Place| spot(*at, format!("only where `{flag}` is {value}"));
    draft.labels.extend(reduced.iter().map(only));
    draft.help.push("reduce the gradients whatever the flag says".to_string());
    draft
}

/// Finalisers that leave gradients out, or are left out.
fn finaliser(mistake: &Scales) -> Draft {
    match mistake {
        Scales::DataNotSummed { axis, backward, evidence, divided, reducer, parameters } => {
            let who = concerned(parameters).unwrap_or_else(|| "all parameters".to_string());
            let title = format!(
                "the gradients of {who} are never summed over `{axis}`: each of its ranks steps with those of its own samples"
            );
            let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
            draft.primary = "takes the gradients as they are".to_string();
            draft.labels.push(spot(*backward, "each rank has the gradients of its own samples".to_string()));
            let says = match divided {
                true => format!("divided by the number of ranks of `{axis}`, as for a mean"),
                false => format!("the ranks of `{axis}` have different values here"),
            };
            draft.labels.push(spot(*evidence, says));
            draft.labels.extend(reducer.map(|place| spot(place, "gradients are summed here, over other axes".into())));
            draft.labels.extend(labels(parameters));
            draft.help.push(format!("sum the gradient of every parameter over `{axis}` before the step"));
            draft
        }
        Scales::ReducerNotCalled { function, reducer, backward, parameters, .. } => {
            let who =
                concerned(parameters).map(|who| format!("those of {who}")).unwrap_or("gradients that it sums".into());
            let title = format!("nothing calls `{function}` before the step: {who} stay those of one rank");
            let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
            draft.primary = "takes the gradients as they are".to_string();
            draft.labels.push(spot(*backward, "gradients are computed here".to_string()));
            draft.labels.push(spot(*reducer, "sums gradients of marked parameters".to_string()));
            draft.labels.extend(labels(parameters));
            draft.help.push(format!("call `{function}` between the backward pass and the step"));
            draft
        }
        Scales::OtherGate { mark, predicate, defined } => {
            let title = format!(
                "gradients marked `{mark}` are summed under another condition than `{predicate}`, which says whether ranks have their own tokens"
            );
            let mut draft = Draft::new(&codes::PARAMETER_NOT_SUMMED, title);
            draft.primary = "decides whether the gradients are summed".to_string();
            draft.labels.push(spot(*defined, "reads other values of the configuration".to_string()));
            draft.help.push(format!("ask `{predicate}` here as well"));
            draft
        }
        Scales::GuardAgainstMark { flag, mark, marked, guard, parameters } => {
            let title = format!(
                "gradients marked `{mark}` are never summed: this runs only where `{flag}` is false, and the mark is set where it is true"
            );
            let mut draft = Draft::new(&codes::PARAMETER_NOT_SUMMED, title);
            draft.primary = "sums gradients of marked parameters".to_string();
            draft.labels.push(spot(*guard, format!("runs where `{flag}` is false")));
            draft.labels.push(spot(*marked, format!("marked where `{flag}` is true")));
            draft.labels.extend(labels(parameters).filter(|l| l.place != *marked));
            draft.help.push(format!("leave where `{flag}` is false instead"));
            draft
        }
        _ => factor(mistake),
    }
}

/// Maps of checkpoints that disagree with marks.
fn checkpoint(parameter: &Name, mapped: Option<i64>, marked: Option<i64>, mark: Place) -> Draft {
    let split = |dim: i64| format!("split on dim {dim}");
    let (title, primary, at) = match (mapped, marked) {
        (Some(mapped), Some(marked)) => (
            format!(
                "`{parameter}` is marked as split on dim {marked}, and its checkpoint is put together on dim {mapped}"
            ),
            split(mapped),
            split(marked),
        ),
        (Some(mapped), None) => (
            format!(
                "the checkpoint takes `{parameter}` for parts, and the constructor makes it whole and without a mark"
            ),
            split(mapped),
            "whole on every rank".to_string(),
        ),
        (None, marked) => (
            format!(
                "`{parameter}` is marked as a part, and its checkpoint takes it for a copy: the parts of other ranks are lost"
            ),
            format!("has no entry for `{parameter}`"),
            split(marked.unwrap_or_default()),
        ),
    };
    let mut draft = Draft::new(&codes::CHECKPOINT_AXIS, title);
    draft.primary = primary;
    draft.labels.push(spot(mark, at));
    draft.help.push(format!("make the map and the mark of `{parameter}` agree"));
    draft
}

/// Plans that do not fit the model.
fn misfit(mistake: &Scales) -> Draft {
    let Scales::PlanMisfit { module, source, gives_part, listed, norm, made, used } = mistake else {
        return Draft::new(&codes::PLAN_MISFIT, "the plan does not fit the model".to_string());
    };
    let sum = *norm && !listed;
    let title = match (sum, gives_part) {
        (true, _) => format!(
            "the gradient of `{module}` is not summed: each rank applies it to its own part of `{source}`, and the plan leaves it out"
        ),
        (false, true) => {
            format!("`{module}` is given this rank's part of `{source}`, and by the plan it takes the whole")
        }
        (false, false) => {
            format!("`{module}` is given the whole result of `{source}`, and by the plan it takes this rank's part")
        }
    };
    let mut draft = Draft::new(&codes::PLAN_MISFIT, title);
    draft.primary = match listed {
        true => format!("what the plan says of `{module}`"),
        false => format!("splits `{source}` over the ranks"),
    };
    draft.labels.push(spot(*made, format!("`{module}` is made here")));
    draft.labels.push(spot(*used, format!("takes the result of `{source}`")));
    draft.help.push(match sum {
        true => format!("give `{module}` an entry that sums its gradient"),
        false => format!("make the entries of `{source}` and `{module}` agree"),
    });
    draft
}

/// Sums that are one too many.
fn summed(mistake: &Scales) -> Draft {
    match mistake {
        Scales::SummedAgain { axes: names, first, sum } => {
            let over = if names.is_empty() { String::new() } else { format!(" over {}", axes(names)) };
            let title = format!("gradients are summed{over} a second time before the step: they are too large");
            let mut draft = Draft::new(&codes::REDUCED_TWICE, title);
            draft.primary = "sums what is equal on all ranks already".to_string();
            draft.labels.push(spot(*first, "gradients are reduced here before".to_string()));
            draft.labels.push(spot(*sum, "the sum".to_string()));
            draft.help.push("reduce each gradient once".to_string());
            draft
        }
        Scales::PartSummed { axes: names, part, sum } => {
            let over = axes(names);
            let title = match sum {
                Some(mark) => format!(
                    "a parameter of which each rank of {over} has its own part is marked `{mark}`: gradients of different parts would be summed"
                ),
                None => format!("gradients of parameters that are split over {over} are summed over {over} as well"),
            };
            let mut draft = Draft::new(&codes::PART_SUMMED, title);
            draft.primary = "adds up gradients of different parts".to_string();
            draft.labels.push(spot(*part, format!("a part on each rank of {over}")));
            draft
                .help
                .push("sum the gradients of parameters that are whole on every rank, and leave out the parts".into());
            draft
        }
        _ => Draft::new(&codes::GRADIENT_SCALE, "factors differ".to_string()),
    }
}

/// `a`, `a and b`, `a and 9 other parameters`.
pub fn concerned(parameters: &Concerned) -> Option<String> {
    match parameters.shown.as_slice() {
        [] => None,
        [(one, _)] if parameters.count == 1 => Some(format!("`{one}`")),
        [(one, _), (two, _)] if parameters.count == 2 => Some(format!("`{one}` and `{two}`")),
        [(one, _), ..] => Some(format!("`{one}` and {} other parameters", parameters.count - 1)),
    }
}

/// A label at each parameter that is shown.
pub fn labels(parameters: &Concerned) -> impl Iterator<Item = Label> + '_ {
    parameters.shown.iter().map(|(_, place)| spot(*place, "its gradient is not summed".to_string()))
}

fn unreduced(model: &Name, made: Place, backward: Place, distributed: Place) -> Draft {
    let title = format!("gradients of `{model}` are never summed over ranks before the step");
    let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
    draft.primary = "each rank steps with its own gradients".to_string();
    draft.labels.push(spot(made, "made here, wrapped in nothing".to_string()));
    draft.labels.push(spot(backward, "gradients of this rank's data".to_string()));
    if distributed != made {
        draft.labels.push(spot(distributed, "each rank has its own data".to_string()));
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
            draft.labels.push(spot(*outer, format!("divides by the size of `{whole}`")));
            draft.notes.push(
                "the tokens of all these ranks reach the experts: their gradients arrive multiplied by the difference"
                    .to_string(),
            );
            draft.help.push(format!("`{module}.set_gradient_divide_factor(...)` with the size of `{whole}`"));
            draft
        }
        Scales::ExpertMean { chosen, reduced } => {
            let title = "gradients of experts are averaged over the ranks with copies of them, not over all data ranks";
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title.to_string());
            draft.primary = "divides by the size of the chosen group".to_string();
            draft.labels.push(spot(*chosen, "another group for experts".to_string()));
            draft.labels.push(spot(*reduced, "summed over it".to_string()));
            draft.notes.push(
                "the tokens of all data ranks reach the experts, each with the factor of its own rank's mean"
                    .to_string(),
            );
            draft.help.push("divide by the size of the group that other parameters have".to_string());
            draft
        }
        Scales::ExpertCopies { beside, sized } => expert_copies(*beside, *sized),
        Scales::DividedAgain { first, again } => {
            let title = "gradients are divided by the number of ranks a second time";
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title.to_string());
            draft.primary = "asks for the division".to_string();
            draft.labels.push(spot(*first, "divides by the number of ranks".to_string()));
            draft.labels.push(spot(*again, "divides by it again".to_string()));
            draft.help.push("ask for the division where gradients were not divided before".to_string());
            draft
        }
        Scales::MixedMean { averaged } => {
            let title = "gradients are summed over ranks here, and averaged over them on the other branch";
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title.to_string());
            draft.primary = "takes the sum".to_string();
            draft.labels.push(spot(*averaged, "takes the mean".to_string()));
            draft.help.push("take the mean in both".to_string());
            draft
        }
        Scales::MeanTwice { wrapped } => {
            let title = "gradients are divided by the number of ranks and by the number of tokens of all ranks";
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title.to_string());
            draft.primary = "divides by the tokens of all ranks".to_string();
            draft.labels.push(spot(*wrapped, "averages gradients over ranks".to_string()));
            draft.help.push("multiply by the world size".to_string());
            draft
        }
        Scales::Auxiliary { scaler, main } => {
            let title = format!(
                "`{scaler}` scales the auxiliary loss without the context-parallel size, which the main loss has"
            );
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title);
            draft.primary = "no context-parallel size".to_string();
            draft.labels.push(spot(*main, "the main loss under the same condition".to_string()));
            draft.help.push("multiply by the same size".to_string());
            draft
        }
        Scales::WhateverFlag { flag, mean } => {
            let title = format!(
                "the loss is multiplied by the context-parallel size also where `{flag}` turns the mean off that this undoes"
            );
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title);
            draft.primary = format!("whatever `{flag}` says");
            draft.labels.push(spot(*mean, "averages in one case alone".to_string()));
            draft.help.push(format!("multiply where `{flag}` is tested"));
            draft
        }
        _ => Draft::new(&codes::GRADIENT_SCALE, "factors differ".to_string()),
    }
}

pub fn axes(names: &[Name]) -> String {
    let each: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
    each.join(" and ")
}

/// A whole layer behind one that leaves each rank a part of the sequence.
fn unmarked_behind(
    (layer, before): (&str, &str),
    over: &[Name],
    used: Place,
    (said, sibling): (Place, Option<&str>),
) -> Draft {
    let over = axes(over);
    let title = format!(
        "the gradient of `{layer}` is not summed over {over}: with sequence parallelism `{before}` leaves each rank a part of the sequence, and nothing marks `{layer}`"
    );
    let mut draft = Draft::new(&codes::PARAMETER_NOT_SUMMED, title);
    draft.primary = "whole on every rank, and not marked".to_string();
    draft.labels.push(spot(used, "computes with the rank's part".to_string()));
    draft
        .labels
        .push(spot(said, sibling.map_or("says so".to_string(), |name| format!("`{name}`, whole as well, is marked"))));
    draft.help.push(format!("mark the parameters of `{layer}` as `sequence_parallel`"));
    draft
}

/// A mean over the ranks with copies of experts.
fn expert_copies(beside: Place, sized: bool) -> Draft {
    let title = "gradients of experts are averaged over the ranks with copies of them, not over all data ranks";
    let mut draft = Draft::new(&codes::GRADIENT_SCALE, title.to_string());
    draft.primary = if sized { "divides by the number of copies" } else { "a mean over the copies" }.to_string();
    draft.labels.push(spot(beside, "others are averaged over all data ranks".to_string()));
    draft.notes.push(
        "the tokens of all data ranks reach the experts, each with the factor of its own rank's mean".to_string(),
    );
    draft
        .help
        .push("divide by the number of all data ranks: by the number of expert-parallel ranks as well".to_string());
    draft
}

/// A mesh without the replicas that the test for it asks for.
fn replicas_asked(axis: &str, asked: Place, sharded: Place) -> Draft {
    let title = format!(
        "gradients are not summed over `{axis}`: where there are several replicas each is sharded for itself, by a mesh without them"
    );
    let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
    draft.primary = format!("a mesh without `{axis}`");
    draft.labels.push(spot(asked, format!("also where `{axis}` alone has several ranks")));
    draft.labels.push(spot(sharded, "sharded over this mesh".to_string()));
    draft.help.push(format!("take a mesh of both dims, `{axis}` first, where there are replicas"));
    draft
}

/// The rank among all ranks, where a parameter says among which.
fn global_rank(unread: &str, given: Place) -> Draft {
    let title = format!("the rank among all ranks decides, and `{unread}` says among which ranks");
    let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
    draft.primary = "rank among all ranks".to_string();
    draft.labels.push(spot(given, "is never read".to_string()));
    draft.help.push("`mesh.get_local_rank(mesh_dim)`, or `dist.get_rank(group)`".to_string());
    draft
}

/// Gradients over data-parallel ranks alone.
fn narrow(mistake: &Scales) -> Draft {
    let Scales::NarrowWrapper { axis, sliced, made, also, collective } = mistake else {
        return Draft::new(&codes::UNREDUCED_STEP, "gradients are not summed over all ranks".to_string());
    };
    let over = collective.as_ref().map_or("the wrapper's group".to_string(), |c| format!("the group of `{c}`"));
    let title =
        format!("gradients are not summed over `{axis}`: each of its ranks has other tokens and is not in {over}");
    let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
    draft.primary = "data-parallel ranks alone".to_string();
    draft.labels.push(spot(*sliced, format!("each `{axis}` rank takes its own tokens")));
    draft.labels.extend(made.map(|place| spot(place, format!("without `{axis}`"))));
    draft.labels.extend(also.iter().map(|place| spot(*place, "and here".to_string())));
    draft.help.push(format!("use the group of data-parallel and `{axis}` ranks together"));
    draft
}
