//! Words about who takes part in a sum: groups that are asked and not used, counts over other ranks, copies, ranks that are left out.
//! In: findings. Out: drafts. Never: detection. Next: `practice.rs`.

use super::super::codes;
use super::{Draft, spot};
use crate::infer::practice::membership::Membership;
use crate::source::{Name, Place};

pub fn membership(mistake: &Membership) -> Draft {
    match mistake {
        Membership::OtherAsked { collective, asked, over, guard } => {
            let (asked, over) = (axes(asked), axes(over));
            let title =
                format!("`{collective}` runs over {over} where {asked} has several ranks, which take no part in it");
            let mut draft = Draft::new(&codes::OTHER_ASKED, title);
            draft.primary = format!("over the ranks of {over}");
            draft.labels.push(spot(*guard, format!("asks for the ranks of {asked}")));
            draft.help.push(format!("give it the group of {asked}, or one that holds it"));
            draft
        }
        Membership::OtherCount { summed, counted, count, divided } => other_count(summed, counted, *count, *divided),
        Membership::CopiesSummed { over, copies, .. } => {
            let over = axes(over);
            let title =
                format!("what every rank of {over} has alike is summed over them: it counts once for each rank");
            let mut draft = Draft::new(&codes::COPIES_SUMMED, title);
            draft.primary = format!("sums over {over}");
            draft.labels.push(spot(*copies, "of parameters that are not split: equal on these ranks".to_string()));
            draft.help.push("sum what is split first, and add the rest to the result".to_string());
            draft
        }
        Membership::CopiesCounted { over, equal } => {
            let over = axes(over);
            let title = format!(
                "a norm of gradients that are equal on every rank of {over} is summed over them: it counts them once for each rank"
            );
            let mut draft = Draft::new(&codes::COPIES_SUMMED, title);
            draft.primary = format!("sums over {over}, among others or alone");
            draft.labels.push(spot(*equal, format!("equal on the ranks of {over} from here")));
            draft.help.push("sum over the ranks that have other parts alone".to_string());
            draft
        }
        Membership::ReplicasCounted { over, taken, group } => {
            let over = axes(over);
            let title = format!(
                "a norm of parts is summed over {over} as well, where ranks have the same parts: it counts them once for each rank"
            );
            let mut draft = Draft::new(&codes::COPIES_SUMMED, title);
            draft.primary = format!("sums over {over}, among others");
            draft.labels.push(spot(*taken, "of the part of each gradient that this rank has".to_string()));
            draft.labels.extend(group.map(|place| spot(place, format!("the group has {over} in it"))));
            draft.help.push("sum over the ranks that have other parts alone".to_string());
            draft
        }
        Membership::NormOfReplicas { .. } | Membership::ReplicasLeftOut { .. } | Membership::WholeHandles { .. } => {
            of_replicas(mistake)
        }
        Membership::CopiesGathered { collective, argument, over, cut, said, layer } => {
            copies_gathered(collective, argument, over, (*cut, *said), layer.as_ref())
        }
        Membership::WholeMarked { parameter, mode, divided } => whole_marked(parameter, mode, *divided),
        Membership::WholeCounted { over, taken } => {
            let over = axes(over);
            let title = format!(
                "a norm of all gradients is summed over {over}: those of parameters that are whole on its ranks count once for each"
            );
            let mut draft = Draft::new(&codes::COPIES_SUMMED, title);
            draft.primary = format!("sums over {over}");
            draft.labels.push(spot(*taken, "of every parameter, split or not".to_string()));
            draft.help.push("leave out parameters that are not split on all ranks but the first".to_string());
            draft
        }
        Membership::UnusedGroup { group, stored, reduced } => {
            let title =
                format!("parameters of experts are told apart, and nothing reduces their gradients over `{group}`");
            let mut draft = Draft::new(&codes::UNUSED_GROUP, title);
            draft.primary = "of experts".to_string();
            draft.labels.push(spot(*stored, "given here, and never read".to_string()));
            draft.labels.push(spot(*reduced, "gradients are reduced here, over another group".to_string()));
            draft.help.push(format!("reduce the gradients of experts over `{group}`"));
            draft
        }
        other => of_gradients(other),
    }
}

/// Experts that are overwritten by those of another rank.
fn experts_broadcast(group: &str, told: Place, reduced: Place) -> Draft {
    let title = format!(
        "ranks with different experts begin with those of one: all parameters are sent over `{group}`, experts too"
    );
    let mut draft = Draft::new(&codes::UNUSED_GROUP, title);
    draft.primary = "asks of no parameter whether it is one of an expert".to_string();
    draft.labels.push(spot(told, "tells parameters of experts apart".to_string()));
    draft.labels.push(spot(reduced, "over the ranks that have the same expert".to_string()));
    draft.help.push("send parameters of experts over that group, from a rank of it".to_string());
    draft
}

/// Results that are multiplied, of which a plan makes one whole and the other this rank's part.
fn split_apart(module: &str, other: &str, splits: Place, multiplied: Place) -> Draft {
    let title = format!(
        "`{module}` is split along the dim that it sums over: its result is whole, and is multiplied with this rank's part of `{other}`"
    );
    let mut draft = Draft::new(&codes::PLAN_LAYOUTS, title);
    draft.primary = "gives the whole result".to_string();
    draft.labels.push(spot(splits, "gives each rank its own columns".to_string()));
    draft.labels.push(spot(multiplied, "multiplied here".to_string()));
    draft.help.push(format!("give both the style of `{other}`"));
    draft
}

/// A norm of parts of a sequence without an entry in the plan.
fn norm_left_out(module: &str, sister: &str, made: Place) -> Draft {
    let title = format!(
        "the gradient of `{module}` is not summed: it is applied to this rank's part of the sequence, and the plan leaves it out"
    );
    let mut draft = Draft::new(&codes::PLAN_MISFIT, title);
    draft.primary = format!("the plan has an entry for `{sister}` alone");
    draft.labels.push(spot(made, format!("`{module}` is made here")));
    draft.help.push(format!("give `{module}` the style of `{sister}`"));
    draft
}

/// Gradients that go another way than they should, or none.
fn of_gradients(mistake: &Membership) -> Draft {
    match mistake {
        Membership::Swapped { mark, group, test } => {
            let title =
                format!("gradients of experts and of the others change places: `{mark}` decides the other way round");
            let mut draft = Draft::new(&codes::SWAPPED_GROUPS, title);
            draft.primary = format!("over `{group}`");
            draft.labels.push(spot(*test, format!("asks for `{mark}`")));
            draft.help.push("negate the test, or exchange the groups".to_string());
            draft
        }
        Membership::ExpertsBroadcast { group, told, reduced } => experts_broadcast(group, *told, *reduced),
        Membership::NamedOtherwise { variable, mark } => {
            let title =
                format!("`{variable}` holds for the parameters that are not of experts: `{mark}` is false on those");
            let mut draft = Draft::new(&codes::SWAPPED_GROUPS, title);
            draft.primary = format!("true where `{mark}` says that all ranks have the parameter alike");
            draft.help.push(format!("`not getattr(parameter, \"{mark}\", True)`"));
            draft
        }
        Membership::WholeInput { module, norm, taken } => {
            let title = format!(
                "`{module}` leaves the whole sequence on every rank, and `{norm}` takes it for this rank's part"
            );
            let mut draft = Draft::new(&codes::WHOLE_INPUT, title);
            draft.primary = "gives the whole result".to_string();
            draft.labels.push(spot(*taken, "a plain tensor counts as a part of the sequence".to_string()));
            draft.help.push("`output_layouts=Shard(1)`".to_string());
            draft
        }
        Membership::WholeOutput { module, other, parts } => {
            let title = format!(
                "`{module}` leaves the whole sequence on every rank, and `{other}` leaves parts of it: both are added to one stream"
            );
            let mut draft = Draft::new(&codes::WHOLE_INPUT, title);
            draft.primary = "gives the whole result".to_string();
            draft.labels.push(spot(*parts, "gives parts of the sequence".to_string()));
            draft.help.push("`output_layouts=Shard(1)`".to_string());
            draft
        }
        Membership::SplitApart { module, other, splits, multiplied } => {
            split_apart(module, other, *splits, *multiplied)
        }
        Membership::NormLeftOut { module, sister, made } => norm_left_out(module, sister, *made),
        Membership::ScaledEachRound { round, reduced } => {
            let title = "accumulated gradients are divided in every round, and reduced in some: earlier rounds are divided again";
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title.to_string());
            draft.primary = "runs in every round".to_string();
            draft.labels.push(spot(*round, "holds in some rounds".to_string()));
            draft.labels.push(spot(*reduced, "reduced in these alone".to_string()));
            draft.help.push("divide where they are reduced".to_string());
            draft
        }
        Membership::TiedNotSummed { group, made, reduced, called } => {
            let title = format!(
                "a weight that starts equal over `{group}` gets other gradients on each of its ranks: nothing sums them"
            );
            let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
            draft.primary = "takes the gradients as they are".to_string();
            draft.labels.push(spot(*made, format!("made equal over `{group}`")));
            draft.labels.push(spot(*reduced, "gradients are reduced here, over another group".to_string()));
            draft.labels.extend(called.map(|place| spot(place, "called here".to_string())));
            draft.help.push(format!("sum the gradient of the weight over `{group}` before the step"));
            draft
        }
        Membership::LeftDim { wrapper, dim, mesh } => {
            let title =
                format!("gradients are not summed over `{dim}`: `{wrapper}` is given the other dim of the mesh alone");
            let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
            draft.primary = format!("without the ranks of `{dim}`");
            draft.labels.push(spot(*mesh, format!("has `{dim}` too, and nothing else uses it")));
            draft.help.push("give it the whole mesh: it sums over one dim and shards over the other".to_string());
            draft
        }
        other => of_parts(other),
    }
}

/// Values that are not what they are taken for.
fn of_values(mistake: &Membership) -> Draft {
    match mistake {
        Membership::AveragedTwice { collective, averaged } => {
            let title = format!("a mean is divided by the number of ranks again: `{collective}` has divided already");
            let mut draft = Draft::new(&codes::REPEATED_FACTOR, title);
            draft.primary = "divides by the number of ranks".to_string();
            draft.labels.push(spot(*averaged, "takes the mean over these ranks".to_string()));
            draft.help.push("leave out the division, or sum".to_string());
            draft
        }
        Membership::DividedAgain { collective, first, summed } => divided_again(collective, *first, *summed),
        Membership::Rebound { variable, value } => {
            let title =
                format!("`{value}` is lost: `{variable} = {value}` binds the variable of the loop and writes nothing");
            let mut draft = Draft::new(&codes::LOST_RESULT, title);
            draft.primary = "the tensor stays as it is".to_string();
            draft.help.push(format!("`{variable}.copy_({value})`"));
            draft
        }
        Membership::OwnLargest { reduced } => {
            let title =
                "exponentials of different scales are summed over ranks: each takes off the largest of its own part";
            let mut draft = Draft::new(&codes::LOCAL_COUNT, title.to_string());
            draft.primary = "the largest of this rank's part".to_string();
            draft.labels.push(spot(*reduced, "added up over ranks".to_string()));
            draft.help.push("take the largest over all ranks first, by `all_reduce` with `ReduceOp.MAX`".to_string());
            draft
        }
        Membership::RatioOfCounts { over, under, summed, divided } => {
            ratio_of_counts([*over, *under], *summed, *divided)
        }
        Membership::PartMean { reduced, size } => part_mean(*reduced, *size),
        Membership::PositionsRestart { tokens, cut } => {
            let title = format!("positions start at 0 on every rank: `{tokens}` is a part of the sequence");
            let mut draft = Draft::new(&codes::UNCUT_BUFFER, title);
            draft.primary = "counts from the start of the part".to_string();
            draft.labels.push(spot(*cut, "each rank has its own part from here".to_string()));
            draft
                .help
                .push("add the start of the part, or cut the positions of the whole sequence as well".to_string());
            draft
        }
        Membership::PositionsOfAll { group, at, used } => {
            let title =
                format!("the rank among all ranks says where a part of the sequence begins: `{group}` has the parts");
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = "rank among all ranks".to_string();
            draft.labels.push(spot(*used, "positions of this rank's part".to_string()));
            draft.labels.push(spot(*at, "the other parts are on the ranks of this group".to_string()));
            draft.help.push(format!("`dist.get_rank({group})`"));
            draft
        }
        Membership::QuotientOfAll { picked } => {
            let title = "the rank among all ranks is divided by the size of one group and picks a part of another: the next replica has none";
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title.to_string());
            draft.primary = "counts on over all replicas".to_string();
            draft.labels.push(spot(*picked, "as many parts as the other group has ranks".to_string()));
            draft.help.push("`dist.get_rank(group)` of the group with the parts".to_string());
            draft
        }
        Membership::SummedMean { mean, made, taken } => {
            let title =
                format!("`{mean}` is the sum of the means of all ranks, and is taken off as if it were their mean");
            let mut draft = Draft::new(&codes::LOCAL_COUNT, title);
            draft.primary = "adds up a mean of each rank".to_string();
            draft.labels.push(spot(*made, "the mean of what this rank has".to_string()));
            draft.labels.push(spot(*taken, "taken off of the same values".to_string()));
            draft.help.push("divide by the number of ranks, or reduce with `ReduceOp.AVG`".to_string());
            draft
        }
        other => of_samples(other),
    }
}

/// Samples, and statistics of them.
fn of_samples(mistake: &Membership) -> Draft {
    match mistake {
        Membership::EpochNeverSet { loader, sampler, epochs } => {
            let title = format!(
                "`{loader}` brings the same samples in the same order in every epoch: nothing tells its sampler which epoch it is"
            );
            let mut draft = Draft::new(&codes::EPOCH_NEVER_SET, title);
            draft.primary = "the order of the first epoch, each time".to_string();
            draft.labels.push(spot(*sampler, "shuffles by its seed and its epoch, which stays 0".to_string()));
            draft.labels.push(spot(*epochs, "each round is another epoch".to_string()));
            draft.help.push(
                "call `set_epoch` of the sampler with the number of the epoch, before the loader is gone through"
                    .to_string(),
            );
            draft
        }
        Membership::OwnCentre { squares, summed, reduced } => {
            let title = format!(
                "`{squares}` measures from the mean of this rank: how far the ranks are apart is left out of its sum"
            );
            let mut draft = Draft::new(&codes::LOCAL_COUNT, title);
            draft.primary = "distances from the mean of this rank".to_string();
            draft.labels.push(spot(*summed, "what that mean is made of is summed over the ranks".to_string()));
            draft.labels.push(spot(*reduced, "taken for the distances from the mean of all ranks".to_string()));
            draft.help.push("take the mean of what is summed over the ranks".to_string());
            draft
        }
        Membership::MeanOfVariances { root } => {
            let title =
                "the mean of the ranks' variances is no variance of all: how far their means are apart is left out";
            let mut draft = Draft::new(&codes::LOCAL_COUNT, title.to_string());
            draft.primary = "each variance is that around the mean of its rank".to_string();
            draft.labels.push(spot(*root, "taken for the variance of all".to_string()));
            draft.help.push("reduce the mean of the squares, and take off the square of the mean".to_string());
            draft
        }
        Membership::LabelsOfFirst { columns, gathered } => {
            let columns = columns.as_ref().map_or("the columns".to_string(), |name| format!("`{name}`"));
            let title =
                format!("labels count from the first rank's rows on every rank: {columns} has those of all ranks");
            let mut draft = Draft::new(&codes::LABELS_OF_FIRST, title);
            draft.primary = "counts this rank's rows from 0".to_string();
            draft.labels.push(spot(*gathered, "gathered here, one rank behind the other".to_string()));
            draft.help.push("add the rank times the number of rows of one rank".to_string());
            draft
        }
        Membership::SeedOfRank { sampler, sliced } => {
            let title = "each rank shuffles by a seed of its own, and takes its slice of another order: samples come twice or never";
            let mut draft = Draft::new(&codes::SEED_OF_RANK, title.to_string());
            draft.primary = "differs between the ranks".to_string();
            draft
                .labels
                .push(spot(*sliced, format!("`{sampler}` shuffles, and takes each n-th sample from the rank on")));
            draft
                .help
                .push("give one seed on all ranks; seed what each rank draws for itself apart from it".to_string());
            draft
        }
        Membership::SeedOfSample { drawn, cut } => {
            let title = "ranks that have parts of one sample draw other numbers for it: the seed has the rank among all ranks in it";
            let mut draft = Draft::new(&codes::SEED_OF_RANK, title.to_string());
            draft.primary = "differs between the ranks that share a sample".to_string();
            draft.labels.push(spot(*drawn, "one number for each sample".to_string()));
            draft.labels.push(spot(*cut, "each rank of the group takes its part of the sample".to_string()));
            draft.help.push("seed by the number of the group, which its ranks share".to_string());
            draft
        }
        other => of_factors(other),
    }
}

/// Factors and conditions.
fn of_factors(mistake: &Membership) -> Draft {
    match mistake {
        Membership::OneRank { collective, reached } => {
            let title = format!("`{collective}` never runs where there are several ranks: the condition is inverted");
            let mut draft = Draft::new(&codes::INVERTED_GUARD, title);
            draft.primary = "leaves one rank".to_string();
            draft.labels.push(spot(*reached, "reached by one rank alone, where it changes nothing".to_string()));
            draft.help.push("invert the condition".to_string());
            draft
        }
        Membership::StatisticCut { collective, made, used } => {
            let title = format!(
                "`{collective}` cuts the gradient: what the other ranks scale by this rank's squares does not flow back"
            );
            let mut draft = Draft::new(&codes::GRADIENT_CUT, title);
            draft.primary = "autograd does not see this sum".to_string();
            draft.labels.push(spot(*made, "squares of the part of this rank".to_string()));
            draft.labels.push(spot(*used, "scales the result".to_string()));
            draft.help.push("use `torch.distributed.nn.functional.all_reduce`, whose backward sums too".to_string());
            draft
        }
        Membership::SummedAndScaled { summed } => {
            let title =
                "gradients are too large by the number of ranks: they are summed, and the loss is scaled for a mean";
            let mut draft = Draft::new(&codes::GRADIENT_FACTOR, title.to_string());
            draft.primary = "times the number of ranks, over the number of all tokens".to_string();
            draft.labels.push(spot(*summed, "divides by 1: gradients are summed".to_string()));
            draft.help.push("leave out the number of ranks, or let the wrapper average".to_string());
            draft
        }
        Membership::HookDivides { divided } => {
            let title = "gradients are divided by these ranks twice: here, and by the number of all ranks".to_string();
            let mut draft = Draft::new(&codes::REPEATED_FACTOR, title);
            draft.primary = "each backward divides".to_string();
            draft.labels.push(spot(*divided, "divides by the number of all ranks".to_string()));
            draft.help.push("leave out the hook".to_string());
            draft
        }
        _ => Draft::new(&codes::INTERNAL_ERROR, "a finding without words".to_string()),
    }
}

/// Sums that are there and that not everything goes through.
fn of_ways(mistake: &Membership) -> Draft {
    match mistake {
        Membership::ScheduleDividesAgain { loss, round } => divides_again(*loss, *round),
        Membership::GateInverted { flag, over } => {
            let title = format!(
                "gradients are summed over {} only where every rank has the whole sequence: `{flag}` is asked the wrong way round",
                axes(over)
            );
            let mut draft = Draft::new(&codes::PARAMETER_NOT_SUMMED, title);
            draft.primary = "holds where the sequence is not split".to_string();
            draft.help.push("sum them where the sequence is split; elsewhere they are equal already".to_string());
            draft
        }
        Membership::Overwritten { buffer, flag, added } => {
            let title =
                format!("`{buffer}` is overwritten whether or not `{flag}` holds: earlier gradients in it are lost");
            let mut draft = Draft::new(&codes::OVERWRITTEN, title);
            draft.primary = format!("copies without asking `{flag}`");
            draft.labels.push(spot(*added, format!("adds to it when `{flag}` decides so")));
            draft.help.push(format!("ask `{flag}` here as well"));
            draft
        }
        Membership::CopyWritten { function, value } => {
            let title = format!("the result of `{function}` is lost: it may write to a copy of `{value}`");
            let mut draft = Draft::new(&codes::LOST_RESULT, title);
            draft.primary = "thrown away".to_string();
            draft.help.push(format!("go on with the result: `{value} = {function}(...)`"));
            draft
        }
        Membership::MeanOfMeans { counted } => {
            let title =
                "gradients are a mean of each rank's mean: ranks with few rows count as much as those with many";
            let mut draft = Draft::new(&codes::MEAN_OF_MEANS, title.to_string());
            draft.primary = "divided by the number of ranks".to_string();
            draft.labels.push(spot(*counted, "the forward sums the number of rows".to_string()));
            draft.help.push("sum over rows and ranks, and divide by the number of all rows".to_string());
            draft
        }
        Membership::MeanOfOwnMeans { loss, divided, counted } => {
            let title = format!(
                "`{loss}` is a mean of each rank's mean: ranks whose part has few targets count as much as those with many"
            );
            let mut draft = Draft::new(&codes::MEAN_OF_MEANS, title);
            draft.primary = "averages over the ranks".to_string();
            draft.labels.push(spot(*divided, "the mean of this rank".to_string()));
            draft.labels.push(spot(*counted, "counts the targets of this rank".to_string()));
            draft
                .help
                .push("sum the losses and the counts over the ranks, and divide the one by the other".to_string());
            draft
        }
        Membership::StagesLeftOut { function, parameter, schedule } => {
            let title = format!(
                "`{function}` is not given `{parameter}`: it goes by the parameters of this stage of the pipeline alone"
            );
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = format!("without `{parameter}`");
            draft.labels.push(spot(*schedule, "runs the stages".to_string()));
            draft.help.push(format!("pass `{parameter}`"));
            draft
        }
        other => of_values(other),
    }
}

/// Parameters of experts that are taken for those that all ranks have.
fn of_experts(mistake: &Membership) -> Draft {
    match mistake {
        Membership::ExpertNotMarked { parameter, sibling, mark, marked } => {
            let title = format!(
                "the gradient of `{parameter}` is summed over the ranks of another group: `{sibling}` of the same experts is marked `{mark}` and it is not"
            );
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = "not marked: taken for a parameter that all ranks have".to_string();
            draft.labels.push(spot(*marked, format!("marks `{sibling}`")));
            draft.help.push(format!("mark `{parameter}` like `{sibling}`"));
            draft
        }
        Membership::ExpertsNotMarked { mark, told } => {
            let title = format!(
                "gradients of experts are summed over the ranks of another group: nothing marks them `{mark}` where the others are"
            );
            let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
            draft.primary = "says what holds without the mark as well".to_string();
            draft.labels.push(spot(*told, "tells experts apart".to_string()));
            draft.help.push(format!("mark parameters of experts too: `{mark}` is whether all ranks have them"));
            draft
        }
        other => of_values(other),
    }
}

/// Parts of a sequence, and of gradients, that are taken for the whole.
fn of_parts(mistake: &Membership) -> Draft {
    match mistake {
        Membership::OtherRound { round, step, stepped } => {
            let title =
                "gradients are reduced in another round of accumulation than the one in which the optimizer steps";
            let mut draft = Draft::new(&codes::UNSYNCED_STEP, title.to_string());
            draft.primary = "sums what has been added up to here".to_string();
            draft.labels.push(spot(*round, "in this round".to_string()));
            draft.labels.push(spot(*step, "steps with what each rank has added since".to_string()));
            draft.labels.push(spot(*stepped, "in this round".to_string()));
            draft.help.push("reduce under the condition of the step".to_string());
            draft
        }
        Membership::ExpertNotMarked { .. } | Membership::ExpertsNotMarked { .. } => of_experts(mistake),
        Membership::ClassLeftOut { asked, left, function, returned, sum } => {
            class_left_out((asked, left, function), *returned, *sum)
        }
        Membership::SiblingNotHooked { module, summed, hooked } => {
            let title = format!(
                "the gradients of `{module}` are not summed: a hook sums those of `{summed}`, and `{module}` is made alike"
            );
            let mut draft = Draft::new(&codes::PARAMETER_NOT_SUMMED, title);
            draft.primary = "has no hook".to_string();
            draft.labels.push(spot(*hooked, format!("`{summed}` has one")));
            draft.help.push(format!("register the hook for `{module}` as well"));
            draft
        }
        Membership::HooksLost { model, method, registered } => {
            let title = format!(
                "hooks on the parameters of `{model}` are lost: `{method}` puts other parameters in their place"
            );
            let mut draft = Draft::new(&codes::HOOKS_LOST, title);
            draft.primary = "registers hooks that never run".to_string();
            draft.labels.push(spot(*registered, "replaces the parameters".to_string()));
            draft.help.push(format!("register the hooks after `{method}`"));
            draft
        }
        Membership::MarksLost { model, method, mark, replaced, asked } => {
            marks_lost((model, method, mark), *replaced, *asked)
        }
        Membership::ScheduleDivides { by, schedule } => {
            let title = format!("the loss is divided by `{by}` twice: the schedule divides gradients by it as well");
            let mut draft = Draft::new(&codes::REPEATED_FACTOR, title);
            draft.primary = format!("divided by `{by}`");
            draft.labels.push(spot(*schedule, "scales gradients, as it is not told `scale_grads=False`".to_string()));
            draft.help.push("leave out the division, or give the schedule `scale_grads=False`".to_string());
            draft
        }
        Membership::RoundsDivided { count, schedule, total, divides } => {
            rounds_divided(count, *schedule, *total, *divides)
        }
        Membership::UncutBuffer { table, read } => {
            let title =
                format!("`{table}` is not cut with the sequence: every rank reads the positions of the first part");
            let mut draft = Draft::new(&codes::UNCUT_BUFFER, title);
            draft.primary = format!("cuts these buffers, and not `{table}`");
            draft
                .labels
                .push(spot(*read, "reads as many positions as this rank has tokens, from the first".to_string()));
            draft.help.push(format!("add `{table}` of the model to the buffers, with its dim of positions"));
            draft
        }
        Membership::DroppedAtCut { cut } => dropped_at_cut(*cut),
        Membership::ShiftedPart { cut } => {
            let title =
                "tokens are shifted after the sequence was cut: at the end of a part stands its own first token";
            let mut draft = Draft::new(&codes::SHIFTED_PART, title.to_string());
            draft.primary = "shifts inside the part of this rank".to_string();
            draft.labels.push(spot(*cut, "each rank takes its own part here".to_string()));
            draft.help.push("shift the whole sequence first, and cut the result".to_string());
            draft
        }
        Membership::MeanOfParts { axis, cut, taken } => mean_of_parts(axis, *cut, *taken),
        other => of_ways(other),
    }
}

fn axes(names: &[Name]) -> String {
    let all: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
    all.join(", ")
}

/// A schedule that scales gradients in each of several rounds.
fn divides_again(loss: Place, round: Place) -> Draft {
    let title = "gradients of earlier rounds are divided by the number of microbatches again: the schedule scales all of `.grad`";
    let mut draft = Draft::new(&codes::REPEATED_FACTOR, title.to_string());
    draft.primary = "scales gradients, as it is not told `scale_grads=False`".to_string();
    draft.labels.push(spot(round, "in each of these rounds, before the step".to_string()));
    draft.labels.push(spot(loss, "is not divided itself".to_string()));
    draft
        .help
        .push("divide the loss by the number of microbatches, and give the schedule `scale_grads=False`".to_string());
    draft
}

/// Marks on parameters that others have taken the place of. They are the model, what replaces, the mark (`MarksLost`).
fn marks_lost((model, method, mark): (&Name, &Name, &Name), replaced: Place, asked: Place) -> Draft {
    let title =
        format!("`{mark}` on the parameters of `{model}` is lost: `{method}` puts other parameters in their place");
    let mut draft = Draft::new(&codes::HOOKS_LOST, title);
    draft.primary = "marks parameters that the model has no longer".to_string();
    draft.labels.push(spot(replaced, "replaces the parameters".to_string()));
    draft.labels.push(spot(asked, "asks for the mark, and finds none".to_string()));
    draft.help.push(format!("mark the parameters after `{method}`"));
    draft
}

/// A schedule that divides once more.
fn rounds_divided(count: &str, schedule: Place, total: Place, divides: Option<Place>) -> Draft {
    let title = format!(
        "gradients are too small by `{count}`: the schedule divides by it, and the loss is normalised by the sum over all micro-batches"
    );
    let mut draft = Draft::new(&codes::REPEATED_FACTOR, title);
    draft.primary = format!("nothing multiplies by `{count}`");
    draft.labels.push(spot(total, "of all micro-batches, not of one".to_string()));
    draft.labels.push(spot(schedule, "divides the loss of a pair by the number of micro-batches".to_string()));
    draft.labels.extend(divides.map(|at| spot(at, "divides by it".to_string())));
    draft.help.push(format!("multiply by `{count}`"));
    draft
}

/// A gather whose backward sums what all ranks compute alike.
fn copies_gathered(
    collective: &str,
    argument: &str,
    over: &[Name],
    (cut, said): (Place, Place),
    layer: Option<&Name>,
) -> Draft {
    let over = axes(over);
    let title = format!(
        "the backward of `{collective}` sums gradients that are equal on every rank of {over}: they are too large by their number"
    );
    let mut draft = Draft::new(&codes::COPIES_SUMMED, title);
    draft.primary = "takes the gradient for the ranks' parts of a sum".to_string();
    draft.labels.push(spot(said, "all ranks compute the same".to_string()));
    draft.labels.push(spot(
        cut,
        match layer {
            Some(layer) => format!("`{layer}` gives each rank the whole gradient"),
            None => "its backward gives each rank the whole gradient".to_string(),
        },
    ));
    draft.help.push(format!("give it `{argument}=False`"));
    draft
}

/// A sum over the ranks of one group, divided by a count over those of another.
fn other_count(summed: &[Name], counted: &[Name], count: Place, divided: Place) -> Draft {
    let (summed, counted) = (axes(summed), axes(counted));
    let title = format!("a sum over {summed} is divided by a count over {counted}");
    let mut draft = Draft::new(&codes::OTHER_COUNT, title);
    draft.primary = format!("summed over {summed}");
    draft.labels.push(spot(count, format!("counted over {counted}")));
    draft.labels.push(spot(divided, "divided here".to_string()));
    draft.help.push("reduce both over the same group".to_string());
    draft
}

/// A whole parameter that is marked as a part.
fn whole_marked(parameter: &str, mode: &str, divided: Place) -> Draft {
    let title =
        format!("`{parameter}` is whole on every rank where `{mode}` is `None`, and is marked as a part all the same");
    let mut draft = Draft::new(&codes::PARTITION_NOT_MARKED, title);
    draft.primary = format!("marks it whatever `{mode}` is");
    draft.labels.push(spot(divided, "divided in this mode alone".to_string()));
    draft.help.push(format!("mark it only where `{mode}` is not `None`"));
    draft
}

fn dropped_at_cut(cut: Place) -> Draft {
    let title = "the first token of each rank's part is never predicted: labels are shifted after the cut";
    let mut draft = Draft::new(&codes::SHIFTED_PART, title.to_string());
    draft.primary = "its position is the last one of the rank before, whose logits go unused".to_string();
    draft.labels.push(spot(cut, "each rank has its part of the sequence".to_string()));
    draft.help.push("shift the labels of the whole sequence, and cut them afterwards".to_string());
    draft
}

fn mean_of_parts(axis: &str, cut: Place, taken: Place) -> Draft {
    let title = format!("a mean over `dp` alone is taken of values of which each rank of `{axis}` has a part");
    let mut draft = Draft::new(&codes::OTHER_COUNT, title);
    draft.primary = format!("without the ranks of `{axis}`");
    draft.labels.push(spot(cut, format!("each rank of `{axis}` takes its own part here")));
    draft.labels.push(spot(taken, "the mean is taken here".to_string()));
    draft.help.push(format!("reduce over the ranks of `{axis}` as well"));
    draft
}

/// Ranks with the same parts, which are counted or forgotten.
fn of_replicas(mistake: &Membership) -> Draft {
    match mistake {
        Membership::NormOfReplicas { replicas, shards, alone, taken, group, asked } => {
            let (code, title) = if *alone {
                let title = format!(
                    "a norm of parts is summed over `{replicas}`, where ranks have the same parts, and not over `{shards}`, where they have the others"
                );
                (&codes::SHARD_NORM, title)
            } else {
                let title = format!(
                    "a norm of parts is summed over `{replicas}` as well, where ranks have the same parts: it counts them once for each rank"
                );
                (&codes::COPIES_SUMMED, title)
            };
            let mut draft = Draft::new(code, title);
            draft.primary = format!("sums over `{replicas}`{}", if *alone { " alone" } else { ", among others" });
            draft.labels.push(spot(*taken, "of the part of each gradient that this rank has".to_string()));
            draft.labels.extend(group.map(|place| spot(place, format!("the group has `{replicas}` in it"))));
            draft
                .labels
                .extend(asked.map(|place| spot(place, "no sum at all where the mesh has no such dim".to_string())));
            draft.help.push(format!("sum over `{shards}` alone"));
            draft
        }
        Membership::ReplicasLeftOut { collective, group, shards, kept } => {
            let title = format!(
                "gradients are not summed over `{group}`: `{collective}` runs over `{shards}`, and nothing reads the other group"
            );
            let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
            draft.primary = format!("without the ranks of `{group}`");
            draft.labels.push(spot(*kept, "given here, and never read".to_string()));
            draft.help.push(format!("all-reduce the shard over `{group}` as well"));
            draft
        }
        Membership::WholeHandles { flag, list, told, taken } => {
            let title = format!(
                "a norm of all of `{list}` is summed over the ranks: where `{flag}` does not hold gradients are whole, and count once for each rank"
            );
            let mut draft = Draft::new(&codes::COPIES_SUMMED, title);
            draft.primary = "sums what is sharded and what is not".to_string();
            draft.labels.push(spot(*taken, format!("nothing asks `{flag}`")));
            draft.labels.push(spot(*told, "says which of them are sharded".to_string()));
            draft.help.push("sum the powers of those that are sharded, and add the others afterwards".to_string());
            draft
        }
        other => membership(other),
    }
}

/// A sum that is divided by the number of ranks on both sides.
fn divided_again(collective: &str, first: Place, summed: Place) -> Draft {
    let title = format!("divided by the number of ranks a second time: before and after `{collective}`");
    let mut draft = Draft::new(&codes::REPEATED_FACTOR, title);
    draft.primary = "divides by the number of ranks also where that was done before the sum".to_string();
    draft.labels.push(spot(first, "divided by it already".to_string()));
    draft.labels.push(spot(summed, "summed here".to_string()));
    draft.help.push("divide once, before the sum or after it".to_string());
    draft
}

/// A ratio of counts of one rank beside the count of all ranks.
fn ratio_of_counts([over, under]: [Place; 2], summed: Place, divided: Place) -> Draft {
    let title = "a loss is weighed by the ratio of two counts of this rank, where gradients are divided by a count of all ranks";
    let mut draft = Draft::new(&codes::LOCAL_COUNT, title.to_string());
    draft.primary = "another ratio on each rank".to_string();
    draft.labels.push(spot(over, "counted on this rank".to_string()));
    draft.labels.push(spot(under, "and here".to_string()));
    draft.labels.push(spot(summed, "the count of all ranks".to_string()));
    draft.labels.push(spot(divided, "gradients are divided by it".to_string()));
    draft.help.push("sum both counts over the ranks before their ratio is taken".to_string());
    draft
}

/// A mean over a part of a dim of which sums are those of all ranks.
fn part_mean(reduced: Place, size: Option<Place>) -> Draft {
    let title = "the result differs by rank: a mean is that of this rank's part, beside sums over all ranks";
    let mut draft = Draft::new(&codes::LOCAL_COUNT, title.to_string());
    draft.primary = "the mean over this rank's part of the dim".to_string();
    draft.labels.push(spot(reduced, "sums of the same dim are added up over ranks".to_string()));
    draft.help.push("add up its sum over ranks as well, and divide by the size of the whole dim".to_string());
    draft.labels.extend(size.map(|place| spot(place, "the length of this rank's part".to_string())));
    draft
}

/// A sum for norms of one class, where a function may give those of another.
fn class_left_out((asked, left, function): (&Name, &Name, &Name), returned: Place, sum: Place) -> Draft {
    let title =
        format!("the gradients of `{left}` are not summed: those of `{asked}` are, and `{function}` may give either");
    let mut draft = Draft::new(&codes::PARAMETER_NOT_SUMMED, title);
    draft.primary = format!("leaves out `{left}`");
    draft.labels.push(spot(returned, format!("`{function}` gives `{left}` here")));
    draft.labels.push(spot(sum, "for those that the test takes".to_string()));
    draft.help.push(format!("ask for every class that `{function}` may give"));
    draft
}
