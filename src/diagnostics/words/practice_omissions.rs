//! Words of what is left out. In: findings. Out: drafts. Never: detection. Next: `practice.rs`.

use super::super::codes;
use super::{Draft, spot};
use crate::infer::practice::omissions::Omission;
use crate::source::Place;

pub fn omissions(mistake: &Omission) -> Draft {
    match mistake {
        Omission::FlatUnchanged { flat, list, back } => {
            let title = format!(
                "`{list}` keeps what each rank had: `{flat}` is flattened and taken apart, and no collective runs on it"
            );
            let mut draft = Draft::new(&codes::LOST_RESULT, title);
            draft.primary = format!("flattens `{list}`");
            draft.labels.push(spot(*back, format!("`{flat}` is as it was, and is copied back")));
            draft.help.push(format!("reduce `{flat}` over its group in between"));
            draft
        }
        Omission::NeverFlat { parameter, wrapped } => {
            let title = format!(
                "the condition always holds: `{parameter}` is never a `FlatParameter` with `use_orig_params=True`, gradients of shards are taken for whole ones"
            );
            let mut draft = Draft::new(&codes::ALWAYS_HOLDS, title);
            draft.primary = "holds for every parameter, sharded or not".to_string();
            draft.labels.push(spot(*wrapped, "the parameters of the model stay the original ones".to_string()));
            draft.help.push("ask whether the parameter is among those that the wrapper was told to ignore".to_string());
            draft
        }
        Omission::ScalerOfFewer { group, whole, asked } => {
            let title = format!(
                "a rank leaves out a step that others make: overflow is shared over `{group}`, and gradients differ over `{whole}`"
            );
            let mut draft = Draft::new(&codes::SOME_RANKS, title);
            draft.primary = format!("the ranks of `{group}` alone");
            draft.labels.push(spot(*asked, format!("ranks of `{whole}` have different gradients")));
            draft.help.push(format!("share it over `{whole}`"));
            draft
        }
        Omission::RanksNotAsked { ranks, given, norm } => {
            let title = format!(
                "gradients are scaled by the norm of this rank's part of the model: `{ranks}` is given and never read"
            );
            let mut draft = Draft::new(&codes::SHARD_NORM, title);
            draft.primary = "scales by another number on each rank".to_string();
            draft.labels.push(spot(*norm, "of the gradients that this rank has".to_string()));
            draft.labels.push(spot(*given, "the ranks that have the others".to_string()));
            draft.help.push(format!("sum the powers of the norm over `{ranks}` first"));
            draft
        }
        Omission::OverflowOfRank { flag, looked } => {
            let title = format!(
                "each rank steps or not by its own gradients: `{flag}` is never reduced over the model-parallel ranks"
            );
            let mut draft = Draft::new(&codes::SOME_RANKS, title);
            draft.primary = "says what this rank has found".to_string();
            draft.labels.push(spot(*looked, "looks at the gradients of this rank".to_string()));
            draft.help.push(format!("reduce `{flag}` over the model-parallel ranks with MAX first"));
            draft
        }
        Omission::InnerStep { backward, summed } => {
            let title = "a module steps inside of its forward with the gradients of this rank: its copies drift apart";
            let mut draft = Draft::new(&codes::UNREDUCED_STEP, title.to_string());
            draft.primary = "steps with what this rank's samples give".to_string();
            draft.labels.push(spot(*backward, "gives gradients that no wrapper sums".to_string()));
            draft.labels.push(spot(*summed, "other statistics are summed over ranks".to_string()));
            draft.help.push("average these gradients over the ranks before the step".to_string());
            draft
        }
        Omission::ShardsAveraged { .. }
        | Omission::MeanGathered { .. }
        | Omission::KernelSplit { .. }
        | Omission::CompleteSummed { .. }
        | Omission::RunningAlone { .. }
        | Omission::RootNotSharded { .. }
        | Omission::ReadInLoop { .. }
        | Omission::OwnPermutation { .. }
        | Omission::MarkUnasked { .. }
        | Omission::KeysWithoutGradient { .. } => of_ranks(mistake),
        Omission::DivisionNotAsked { .. }
        | Omission::SequenceDivided { .. }
        | Omission::SizeOfFewer { .. }
        | Omission::SizeNotGiven { .. }
        | Omission::SlopesOfFirst { .. } => of_factors(mistake),
        Omission::FewerUndone { factor, mean, gathered } => fewer_undone(factor, *mean, *gathered),
        Omission::NumberOfAll { count, reduced } => number_of_all(count, *reduced),
    }
}

/// What is left out of a factor, or of a part.
fn of_factors(mistake: &Omission) -> Draft {
    match mistake {
        Omission::DivisionNotAsked { function, switch, set, exchanged } => {
            let title = format!(
                "`{function}` gives sums for gradients: its backward does not look at `{switch}`, which asks for means"
            );
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title);
            draft.primary = "returned as it was received".to_string();
            draft.labels.push(spot(*exchanged, "adds up what the losses of all ranks give".to_string()));
            draft.labels.push(spot(*set, "gradients are to be divided by the number of ranks".to_string()));
            draft.help.push(format!("divide by the number of ranks of the group if `{switch}`"));
            draft
        }
        Omission::SequenceDivided { number, kept, divided } => {
            let title = format!(
                "gradients are too small by `{number}`: they are divided by the number of sequence-parallel ranks as well"
            );
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title);
            draft.primary = "reduced over data and sequence ranks together".to_string();
            draft.labels.push(spot(*divided, "divides by all of these ranks".to_string()));
            draft.labels.push(spot(*kept, "kept here, and never read".to_string()));
            draft
                .help
                .push(format!("divide by the number of ranks over `{number}`: the shares of one sequence add up"));
            draft
        }
        Omission::SizeOfFewer { size, group, counted } => {
            let title = format!(
                "gradients are too small by the ranks that share a sequence: the loss is counted over `{group}` and multiplied by `{size}`"
            );
            let mut draft = Draft::new(&codes::GRADIENT_FACTOR, title);
            draft.primary = format!("times `{size}`, where gradients are averaged over `{group}`");
            draft.labels.push(spot(*counted, format!("summed over `{group}`")));
            draft.help.push(format!("multiply by the number of ranks of `{group}`"));
            draft
        }
        Omission::SizeNotGiven { function, size, made, divided } => {
            let title = format!(
                "gradients are too small by the ranks that share a sequence: `{function}` is not given `{size}`, and divides by all ranks"
            );
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title);
            draft.primary = "without the number of ranks to divide by".to_string();
            draft.labels.push(spot(*made, "made for this, and given to another reduction".to_string()));
            draft.labels.push(spot(*divided, "all ranks of the group, where no number is given".to_string()));
            draft.help.push(format!("give it `{size}`"));
            draft
        }
        Omission::SlopesOfFirst { builder } => {
            let title = format!(
                "every rank has the slopes of the first heads: `{builder}` never asks which heads are this rank's"
            );
            let mut draft = Draft::new(&codes::UNCUT_BUFFER, title);
            draft.primary = "the same on each rank, whose heads are others".to_string();
            draft.help.push("take the part of the rank: `alibi.chunk(tp_size)[tp_rank]`".to_string());
            draft
        }
        Omission::FlatUnchanged { .. }
        | Omission::NeverFlat { .. }
        | Omission::OverflowOfRank { .. }
        | Omission::ScalerOfFewer { .. }
        | Omission::InnerStep { .. }
        | Omission::FewerUndone { .. }
        | Omission::NumberOfAll { .. }
        | Omission::KeysWithoutGradient { .. }
        | Omission::RunningAlone { .. }
        | Omission::OwnPermutation { .. }
        | Omission::MarkUnasked { .. }
        | Omission::RootNotSharded { .. }
        | Omission::ReadInLoop { .. }
        | Omission::ShardsAveraged { .. }
        | Omission::MeanGathered { .. }
        | Omission::KernelSplit { .. }
        | Omission::CompleteSummed { .. }
        | Omission::RanksNotAsked { .. } => omissions(mistake),
    }
}

fn fewer_undone(factor: &str, mean: Place, gathered: Place) -> Draft {
    let title = format!(
        "gradients are too small by the ranks of `cp`: `{factor}` undoes a mean over `dp` alone, which is taken over both"
    );
    let mut draft = Draft::new(&codes::GRADIENT_FACTOR, title);
    draft.primary = "the number of data ranks alone".to_string();
    draft.labels.push(spot(mean, "averages over context ranks as well".to_string()));
    draft.labels.push(spot(gathered, "of the parts, this rank's alone has a gradient".to_string()));
    draft.help.push("multiply by the number of ranks of the group that averages".to_string());
    draft
}

fn number_of_all(count: &str, reduced: Place) -> Draft {
    let title = format!(
        "gradients are too small by the number of ranks: `{count}` is that of all ranks, and data parallelism averages gradients besides"
    );
    let mut draft = Draft::new(&codes::GRADIENT_FACTOR, title);
    draft.primary = "used for all ranks together, where each has its own losses".to_string();
    draft.labels.push(spot(reduced, "summed over all ranks".to_string()));
    draft.help.push(format!("divide by the number of ranks: `{count} / dist.get_world_size()`"));
    draft
}

fn keys_without_gradient(rows: Place) -> Draft {
    let title =
        "features get no gradient as keys of other rows: a raw gather cuts it, and each rank scores its own rows alone";
    let mut draft = Draft::new(&codes::GRADIENT_CUT, title.to_string());
    draft.primary = "autograd does not see this".to_string();
    draft.labels.push(spot(rows, "this rank's rows against the features of all ranks".to_string()));
    draft.help.push("gather with a gradient: `torch.distributed.nn.functional.all_gather`".to_string());
    draft
}

fn running_alone((class, buffer): (&str, &str), taken: Place, shared: Place) -> Draft {
    let title = format!("the copies of `{class}` drift apart: `{buffer}` follows the samples of this rank alone");
    let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
    draft.primary = "moves towards a statistic of this rank's samples".to_string();
    draft.labels.push(spot(taken, "taken here, over no other rank".to_string()));
    draft.labels.push(spot(shared, "ranks are to have the same".to_string()));
    draft.help.push("reduce the statistic over the ranks before".to_string());
    draft
}

fn shards_averaged(call: &str, wrapper: &str, wrapped: Place) -> Draft {
    let title = format!("`{call}` averages the shards of different ranks: `{wrapper}` has reduced their gradients");
    let mut draft = Draft::new(&codes::PART_SUMMED, title);
    draft.primary = "adds up gradients of different parts".to_string();
    draft.labels.push(spot(wrapped, "each rank keeps a shard from here on".to_string()));
    draft.help.push("call the optimizer's own `step()`".to_string());
    draft
}

fn mean_gathered(mean: Place) -> Draft {
    let title = "samples that fill up the last batch stay in the metric: each rank's mean is gathered, not its samples";
    let mut draft = Draft::new(&codes::MEAN_OF_MEANS, title.to_string());
    draft.primary = "drops entries of samples, and a mean has none".to_string();
    draft.labels.push(spot(mean, "the mean over this rank's batch".to_string()));
    draft.help.push("gather one entry for each sample, and take the mean of all".to_string());
    draft
}

fn kernel_split(axis: &str, of_sequence: bool, call: Place) -> Draft {
    let (part, what) = match of_sequence {
        true => ("of the sequence", "attends to its own part of the sequence alone"),
        false => ("of each head", "takes scores over its own part of each head alone"),
    };
    let title = format!("each rank of `{axis}` {what}: the spec splits dim {}", if of_sequence { 2 } else { 3 });
    let mut draft = Draft::new(&codes::SHARD_DIM, title);
    draft.primary = format!("`{axis}` gets a part {part}");
    draft.labels.push(spot(call, "runs on each part by itself; dims are batch, heads, sequence, head dim".to_string()));
    draft.help.push("split the heads: `(batch axis, heads axis, None, None)`".to_string());
    draft
}

fn complete_summed(layer: &str, completed: Place, summed: Place) -> Draft {
    let title = format!("the output of `{layer}` is counted once per rank: it is complete, and is summed with parts");
    let mut draft = Draft::new(&codes::PARTIAL_AFFINE, title);
    draft.primary = "a complete term joins parts".to_string();
    draft.labels.push(spot(completed, "summed over the ranks by the layer already".to_string()));
    draft.labels.push(spot(summed, "a sum over the ranks".to_string()));
    draft.help.push("sum the parts first, and add the complete term afterwards".to_string());
    draft
}

fn root_not_sharded(model: &str, outside: &str, made: Place, sharded: Place) -> Draft {
    let title = format!(
        "gradients of `{outside}` are summed over no ranks: the blocks of the model are sharded, and the model itself is not"
    );
    let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
    draft.primary = "parameters outside of the blocks stay plain".to_string();
    draft.labels.push(spot(made, "in none of the blocks".to_string()));
    draft.labels.push(spot(sharded, "the blocks alone".to_string()));
    draft.help.push(format!("`fully_shard({model})` after its blocks"));
    draft
}

fn read_in_loop(read: &str, handle: &str, waited: Place) -> Draft {
    let title = format!("`{read}` is read while its reduction is in flight: `{handle}` is waited for afterwards");
    let mut draft = Draft::new(&codes::READ_IN_FLIGHT, title);
    draft.primary = "may not have arrived".to_string();
    draft.labels.push(spot(waited, "waited for here".to_string()));
    draft.help.push(format!("wait for `{handle}` before this"));
    draft
}

fn own_permutation(taken: Place) -> Draft {
    let title = "some samples are taken twice and some never: each rank takes its part of a permutation of its own";
    let mut draft = Draft::new(&codes::SEED_OF_RANK, title.to_string());
    draft.primary = "another order on each rank".to_string();
    draft.labels.push(spot(taken, "the part of this rank".to_string()));
    draft.help.push("broadcast the permutation, or draw it with a generator that all ranks seed alike".to_string());
    draft
}

fn mark_unasked(mark: &str, asked: &str, set: Place) -> Draft {
    let title =
        format!("gradients of parameters that are marked `{mark}` are summed by nobody: `{asked}` alone is asked for");
    let mut draft = Draft::new(&codes::PARAMETER_NOT_SUMMED, title);
    draft.primary = format!("takes the parameters that are marked `{asked}`");
    draft.labels.push(spot(set, "marked here, and never asked for".to_string()));
    draft.help.push(format!("sum those with `{mark}` over the ranks that share them as well"));
    draft
}

/// Mistakes about what the ranks have each of its own.
fn of_ranks(mistake: &Omission) -> Draft {
    match mistake {
        Omission::ShardsAveraged { call, wrapper, wrapped } => shards_averaged(call, wrapper, *wrapped),
        Omission::MeanGathered { mean } => mean_gathered(*mean),
        Omission::KernelSplit { axis, of_sequence, call } => kernel_split(axis, *of_sequence, *call),
        Omission::CompleteSummed { layer, completed, summed } => complete_summed(layer, *completed, *summed),
        Omission::RunningAlone { class, buffer, taken, shared } => running_alone((class, buffer), *taken, *shared),
        Omission::RootNotSharded { model, outside, made, sharded } => root_not_sharded(model, outside, *made, *sharded),
        Omission::ReadInLoop { read, handle, waited } => read_in_loop(read, handle, *waited),
        Omission::OwnPermutation { taken } => own_permutation(*taken),
        Omission::MarkUnasked { mark, asked, set } => mark_unasked(mark, asked, *set),
        Omission::KeysWithoutGradient { rows } => keys_without_gradient(*rows),
        other => omissions(other),
    }
}
