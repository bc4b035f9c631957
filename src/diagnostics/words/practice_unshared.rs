//! Words of what each rank has of its own where all are to share it. In: findings. Out: drafts. Never: detection. Next: `practice.rs`.

use super::super::codes;
use super::practice_scales::axes;
use super::{Draft, spot};
use crate::infer::practice::unshared::Unshared;
use crate::source::{Name, Place};

pub fn unshared(mistake: &Unshared) -> Draft {
    match mistake {
        Unshared::RowsNotSummed { rows, lookup, zeroed, other } => rows_not_summed(rows, *lookup, *zeroed, *other),
        Unshared::OwnWeights { rank, made } => own_weights(rank, *made),
        Unshared::StateOfOne { loaded } => state_of_one(*loaded),
        Unshared::NumberOfAll { count, reduced } => number_of_all(count, *reduced),
        Unshared::ShardsAveraged { call, wrapper, wrapped } => shards_averaged(call, wrapper, *wrapped),
        Unshared::MeanGathered { mean } => mean_gathered(*mean),
        Unshared::KernelSplit { axis, of_sequence, call } => kernel_split(axis, *of_sequence, *call),
        Unshared::CompleteSummed { layer, completed, summed } => complete_summed(layer, *completed, *summed),
        Unshared::RunningAlone { class, buffer, taken, shared } => running_alone((class, buffer), *taken, *shared),
        Unshared::TakenInTurns { taken, in_turns } => taken_in_turns(*taken, *in_turns),
        Unshared::ColumnsJoined { joined, counted } => columns_joined(*joined, *counted),
        Unshared::CountKept { name, function, summed, kept } => count_kept(name, function, *summed, *kept),
        Unshared::NormNotTold { norm, flag, mark, told } => norm_not_told(norm, (flag, mark), *told),
        Unshared::OwnDivisor { whole } => own_divisor(*whole),
        Unshared::SpreadOfPart { weight, made, drawn } => spread_of_part(weight, *made, *drawn),
        Unshared::DrawnBeside { function, buffer, shared } => drawn_beside(function, buffer, *shared),
        Unshared::OtherCut { value, two } => other_cut(value, *two),
        Unshared::RootNotSharded { model, outside, made, sharded } => root_not_sharded(model, outside, *made, *sharded),
        Unshared::ReadInLoop { read, handle, waited } => read_in_loop(read, handle, *waited),
        Unshared::OwnPermutation { taken } => own_permutation(*taken),
        Unshared::MarkUnasked { mark, asked, set } => mark_unasked(mark, asked, *set),
        Unshared::EqualSummed { mark, summed, axis, set } => equal_summed(mark, summed, axis, *set),
        Unshared::MarkedComplete { module, mark, axes, layer, first, sum } => {
            marked_complete((module, mark), axes, (layer, *first), *sum)
        }
        Unshared::OwnPartOfKeys { class, rows, called } => own_part_of_keys(class, *rows, *called),
        Unshared::SiblingCut { features, sibling, kept, detached } => sibling_cut(features, sibling, *kept, *detached),
        Unshared::SiblingNeverCalled { called, idle, reduces, marked } => {
            sibling_never_called(called, idle, *reduces, marked)
        }
        Unshared::SplitStep { method, other, function, called, summed } => {
            split_step((method, other), function, *called, *summed)
        }
        Unshared::NeverCalled { wrapper, method, wrapped, backward, reduces } => {
            never_called((wrapper, method), *wrapped, *backward, *reduces)
        }
        Unshared::HooksNotRun { model, wrapper, wrapped, put } => hooks_not_run((model, wrapper), *wrapped, *put),
        Unshared::RowsTimesRanks { reduced, counted } => rows_times_ranks(*reduced, *counted),
        Unshared::AffineTwice { class, parameter, of, wrapper, summed, wrapped } => {
            affine_twice(class, (parameter, of), (wrapper, *wrapped), *summed)
        }
        Unshared::NoForward { model, class, wrapper, wrapped } => {
            no_forward((model, class), wrapper.as_deref(), *wrapped)
        }
        Unshared::DrawnApart { rank, seeded, made } => drawn_apart(rank, *seeded, *made),
        Unshared::DataDrawnApart { data, split, given } => data_drawn_apart(data, *split, *given),
        Unshared::DimNotSeeded { given, missing, mesh } => dim_not_seeded(given, missing, *mesh),
        Unshared::PendingDropped { drops, waits, started, stepped } => {
            pending_dropped(drops, waits, *started, *stepped)
        }
        Unshared::KeysWithoutGradient { rows, called } => keys_without_gradient(*rows, *called),
    }
}

fn rows_not_summed(rows: &str, lookup: Place, zeroed: Place, other: Option<Place>) -> Draft {
    let title =
        format!("each rank goes on with zeros for the rows of the others: nothing sums `{rows}` over the ranks");
    let mut draft = Draft::new(&codes::ROWS_NOT_SUMMED, title);
    draft.primary = "leaves as this rank has it".to_string();
    draft.labels.push(spot(lookup, "from this rank's rows of the table".to_string()));
    draft.labels.push(spot(zeroed, "zero where another rank has the row".to_string()));
    draft.labels.extend(other.map(|other| spot(other, "summed here, on the other side of the test".to_string())));
    let help = format!(
        "sum `{rows}` over the ranks that share the table: all-reduce it, or reduce-scatter it along the sequence"
    );
    draft.help.push(help);
    draft
}

fn own_weights(rank: &str, made: Place) -> Draft {
    let title =
        format!("each rank starts from other weights: the seed has `{rank}` in it, and nothing makes them equal");
    let mut draft = Draft::new(&codes::SEED_OF_RANK, title);
    draft.primary = "another seed on each rank".to_string();
    draft.labels.push(spot(made, "drawn here, by each rank for itself".to_string()));
    let help = "make the model with one seed, and seed by the rank afterwards; or broadcast its state from one rank";
    draft.help.push(help.to_string());
    draft
}

fn state_of_one(loaded: Place) -> Draft {
    let title =
        "after a restart all ranks draw the same random numbers: one rank's state is saved, and seeds differ by rank";
    let mut draft = Draft::new(&codes::SEED_OF_RANK, title.to_string());
    draft.primary = "saves the state of one rank".to_string();
    draft.labels.push(spot(loaded, "every rank goes on from it".to_string()));
    draft.help.push("save the state of each rank in a file of its own, named after the rank".to_string());
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

fn keys_without_gradient(rows: Place, called: Option<Place>) -> Draft {
    let title =
        "features get no gradient as keys of other rows: a raw gather cuts it, and each rank scores its own rows alone";
    let mut draft = Draft::new(&codes::GRADIENT_CUT, title.to_string());
    draft.primary = "autograd does not see this".to_string();
    draft.labels.extend(called.map(|at| spot(at, "gathers features that are trained".to_string())));
    draft.labels.push(spot(rows, "this rank's rows against the features of all ranks".to_string()));
    draft.help.push("gather with a gradient: `torch.distributed.nn.functional.all_gather`".to_string());
    draft
}

fn own_part_of_keys(class: &str, rows: Place, called: Option<Place>) -> Draft {
    let title = format!(
        "features get no gradient as keys of other rows: the backward of `{class}` sums nothing, and each rank scores its own rows alone"
    );
    let mut draft = Draft::new(&codes::GRADIENT_CUT, title);
    draft.primary = "what the losses of other ranks ask of this rank's part is left out".to_string();
    draft.labels.extend(called.map(|at| spot(at, "gathers features that are trained".to_string())));
    draft.labels.push(spot(rows, "this rank's rows against the features of all ranks".to_string()));
    draft.help.push("reduce-scatter the gradient, or all-reduce it before the own part is taken".to_string());
    draft
}

fn sibling_cut(features: &str, sibling: &str, kept: Place, detached: bool) -> Draft {
    let (title, primary, label, help) = match detached {
        true => (
            format!(
                "`{features}` gets no gradient from the rows of other ranks: it is detached, and `{sibling}` is not"
            ),
            "gathered without its gradient",
            format!("`{sibling}` is gathered with its gradient"),
            format!("gather `{features}` as it is"),
        ),
        false => (
            format!("`{features}` gets no gradient: its gathered rows have none, and its own are not put back"),
            "what it writes has no history",
            format!("the own rows of `{sibling}` are put back into what this gives"),
            format!("store `{features}` at the place of this rank in the gathered list, or gather with a gradient"),
        ),
    };
    let mut draft = Draft::new(&codes::GRADIENT_CUT, title);
    draft.primary = primary.to_string();
    draft.labels.push(spot(kept, label));
    draft.help.push(help);
    draft
}

fn sibling_never_called(called: &str, idle: &str, reduces: Place, marked: &str) -> Draft {
    let title = format!(
        "gradients for which `{marked}` holds stay those of one rank: `{called}` is called, and nothing calls `{idle}`"
    );
    let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
    draft.primary = "sums the gradients over other ranks".to_string();
    draft.labels.push(spot(reduces, format!("`{idle}` would sum them here")));
    draft.help.push(format!("call `{idle}` as well"));
    draft
}

fn split_step((method, other): (&str, &str), function: &str, called: Place, summed: Place) -> Draft {
    let title = format!(
        "gradients of marked parameters stay those of one rank where `{method}` steps: only `{other}` calls `{function}`"
    );
    let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
    draft.primary = format!("without `{function}`");
    draft.labels.push(spot(called, format!("`{other}` calls it before it steps")));
    draft.labels.push(spot(summed, "sums the gradients of marked parameters".to_string()));
    draft.help.push(format!("call `{function}` before the step of `{method}` as well"));
    draft
}

fn never_called((wrapper, method): (&str, &str), wrapped: Place, backward: Place, reduces: Place) -> Draft {
    let title = format!("each rank steps with its own gradients: nothing calls `{method}` of `{wrapper}`");
    let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
    draft.primary = "takes the gradients as they are".to_string();
    draft.labels.push(spot(backward, "gradients are computed here".to_string()));
    draft.labels.push(spot(wrapped, format!("wrapped in `{wrapper}`, whose forward and hooks reduce nothing")));
    draft.labels.push(spot(reduces, "reduces the gradients over the ranks".to_string()));
    draft.help.push(format!("call `{method}` between the backward pass and the step"));
    draft
}

fn running_alone((class, buffer): (&str, &str), taken: Place, shared: Place) -> Draft {
    let title = format!(
        "`{buffer}` of `{class}` follows the samples of this rank alone: its copies drift apart, or know one rank's samples"
    );
    let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
    draft.primary = "moves towards a statistic of this rank's samples".to_string();
    draft.labels.push(spot(taken, "taken here, over no other rank".to_string()));
    draft.labels.push(spot(shared, "ranks are to have the same".to_string()));
    draft.help.push("reduce the statistic over the ranks before".to_string());
    draft
}

fn other_cut(value: &str, two: Place) -> Draft {
    let title = format!(
        "`{value}` and the tokens of a rank are of other positions: one run of the sequence, and two chunks from either end"
    );
    let mut draft = Draft::new(&codes::SHARDS_APART, title);
    draft.primary = "takes one run by the rank".to_string();
    draft.labels.push(spot(two, "takes the tokens' second chunk from the end of the sequence".to_string()));
    draft.help.push(format!("cut `{value}` as the tokens are cut"));
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

fn taken_in_turns(taken: Place, in_turns: bool) -> Draft {
    let (title, primary, label, help) = match in_turns {
        true => (
            "rows are gathered rank after rank, and taken back in turns: each rank gets those of others",
            "the rows of a rank stand in one run",
            "takes every n-th row, from the rank on",
            "gather in turns, `torch.stack(parts, dim=1).flatten(0, 1)`, if samples are dealt so, or take the run back",
        ),
        false => (
            "rows are gathered in turns, and taken back in one run: each rank gets those of others",
            "the rows of a rank stand apart from each other",
            "takes one run of rows",
            "take every n-th row back, from the rank on, or gather with `torch.cat(parts)`",
        ),
    };
    let mut draft = Draft::new(&codes::LABELS_OF_FIRST, title.to_string());
    draft.primary = primary.to_string();
    draft.labels.push(spot(taken, label.to_string()));
    draft.help.push(help.to_string());
    draft
}

fn own_divisor(whole: Place) -> Draft {
    let title = "the backward divides by the length of this rank's part, and the forward by that of the whole: the gradient is too large by the number of ranks";
    let mut draft = Draft::new(&codes::SCALED_ONE_WAY, title.to_string());
    draft.primary = "counts what this rank has".to_string();
    draft.labels.push(spot(whole, "counts what all ranks have".to_string()));
    draft.help.push("keep the number in the forward, and divide by that".to_string());
    draft
}

fn spread_of_part(weight: &str, made: Place, drawn: Place) -> Draft {
    let title = format!(
        "the random start of `{weight}` has the spread of this rank's part: it is another one for each number of ranks"
    );
    let mut draft = Draft::new(&codes::LOCAL_COUNT, title);
    draft.primary = "follows from the length of the part".to_string();
    draft.labels.push(spot(made, "a dim is split over the ranks".to_string()));
    draft.labels.push(spot(drawn, "drawn with it".to_string()));
    draft.help.push("compute it from the length of the whole dim".to_string());
    draft
}

fn drawn_beside(function: &str, buffer: &str, shared: Place) -> Draft {
    let title = format!("each rank writes what it draws from its own data into `{buffer}`: the ranks drift apart");
    let mut draft = Draft::new(&codes::LOCAL_COUNT, title);
    draft.primary = format!("`{function}` gives other rows on each rank");
    draft.labels.push(spot(shared, format!("sent to all ranks here, before `{buffer}` is written")));
    draft.help.push("broadcast it here as well".to_string());
    draft
}

fn columns_joined(joined: Place, counted: Place) -> Draft {
    let title = "labels point to other rows: each rank joins its columns before they are gathered, and labels count the rows of one column";
    let mut draft = Draft::new(&codes::LABELS_OF_FIRST, title.to_string());
    draft.primary = "all columns of a rank stand before those of the next one".to_string();
    draft.labels.push(spot(joined, "several columns, one below the other".to_string()));
    draft.labels.push(spot(counted, "begins at the rank times the rows of one column".to_string()));
    draft.help.push("gather each column, and join what comes out".to_string());
    draft
}

fn count_kept(name: &str, function: &str, summed: Place, kept: Place) -> Draft {
    let title = format!(
        "ranks with few tokens weigh as much as the others: `{function}` divides by its own count, and nothing reads `{name}`, that of all ranks"
    );
    let mut draft = Draft::new(&codes::LOCAL_COUNT, title);
    draft.primary = "the count of one rank".to_string();
    draft.labels.push(spot(summed, "summed over all ranks".to_string()));
    draft.labels.push(spot(kept, format!("kept as `{name}`, which stands nowhere else")));
    draft.help.push(format!(
        "divide by `{name}`, and multiply by the number of ranks where gradients are averaged over them"
    ));
    draft
}

fn norm_not_told(norm: &str, (flag, mark): (&str, &str), told: Place) -> Draft {
    let title = format!(
        "the gradients of `{norm}` are not summed where sequences are split: nothing marks its parameters `{mark}`"
    );
    let mut draft = Draft::new(&codes::PARAMETER_NOT_SUMMED, title);
    draft.primary = "made without a mark".to_string();
    draft.labels.push(spot(told, format!("on the other side of the test `{norm}` is given `{flag}`")));
    draft.help.push(format!("mark each parameter of `{norm}` with `{mark}`, as the flag says"));
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

fn marked_complete((module, mark): (&str, &str), over: &[Name], (layer, first): (&str, Place), sum: Place) -> Draft {
    let over = axes(over);
    let title = format!(
        "the gradient of `{module}` is summed over {over} twice: `{layer}` has summed that of its input, and `{mark}` asks for another sum"
    );
    let mut draft = Draft::new(&codes::REDUCED_TWICE, title);
    draft.primary = "asks for a sum of what is equal on all ranks already".to_string();
    draft.labels.push(spot(first, format!("sums the gradient of its input over {over} in its backward")));
    draft.labels.push(spot(sum, format!("sums those that are marked `{mark}`")));
    draft.help.push("set the mark only where each rank has a part of the sequence".to_string());
    draft
}

fn equal_summed(mark: &str, summed: &str, axis: &str, set: Place) -> Draft {
    let title = format!(
        "gradients that are equal on all ranks of `{axis}` are summed over them: nothing reads `{mark}`, which says so, and `{summed}` has `{axis}` as well"
    );
    let mut draft = Draft::new(&codes::REDUCED_TWICE, title);
    draft.primary = format!("sums over each axis of `{summed}`");
    draft.labels.push(spot(set, format!("ranks of `{axis}` have the same here")));
    draft.help.push(format!("divide by the number of ranks where `{mark}` has the axis"));
    draft
}

fn hooks_not_run((model, wrapper): (&str, &str), wrapped: Place, put: Place) -> Draft {
    let title = format!(
        "gradients of `{model}` stay those of one rank: `torch.autograd.grad` runs none of the hooks with which `{wrapper}` sums them"
    );
    let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
    draft.primary = "gradients of this rank's samples alone".to_string();
    draft.labels.push(spot(wrapped, "sums what a backward pass accumulates, and nothing else".to_string()));
    draft.labels.push(spot(put, "each rank steps with its own".to_string()));
    draft.help.push("call `loss.backward()`, or all-reduce each gradient before the step".to_string());
    draft
}

fn rows_times_ranks(reduced: Place, counted: Place) -> Draft {
    let title = "gradients are wrong where ranks have different numbers of rows: sums over all ranks are divided by the rows of this rank times the number of ranks";
    let mut draft = Draft::new(&codes::LOCAL_COUNT, title.to_string());
    draft.primary = "takes every rank to have as many rows as this one".to_string();
    draft.labels.push(spot(reduced, "summed over all ranks".to_string()));
    draft.labels.push(spot(counted, "the forward counts the rows of all ranks".to_string()));
    draft.help.push("keep the number of all rows in the forward, and divide by that".to_string());
    draft
}

fn affine_twice(class: &str, (parameter, of): (&str, &str), (wrapper, wrapped): (&str, Place), summed: Place) -> Draft {
    let title = format!(
        "the gradient of `{parameter}` is too large by the number of ranks: `{class}` sums it over the ranks, and `{wrapper}` takes the mean of equal sums"
    );
    let mut draft = Draft::new(&codes::REDUCED_TWICE, title);
    draft.primary = format!("a sum over all ranks as the gradient of `{of}.{parameter}`");
    draft.labels.push(spot(summed, "summed here".to_string()));
    draft.labels.push(spot(wrapped, "averages the gradient of each parameter over the ranks".to_string()));
    draft.help.push("return what this rank's samples give, and sum a copy for the gradient of the input".to_string());
    draft
}

fn no_forward((model, class): (&str, &str), wrapper: Option<&str>, wrapped: Place) -> Draft {
    let what = wrapper.map_or("its wrapper".to_string(), |wrapper| format!("`{wrapper}`"));
    let title = format!(
        "gradients of `{model}` stay those of one rank: `{class}` has no forward, so that {what} is never called"
    );
    let mut draft = Draft::new(&codes::OUTSIDE_WRAPPER, title);
    draft.primary = "no rank sums what this computes".to_string();
    draft.labels.push(spot(wrapped, "sums gradients after a forward pass of its own only".to_string()));
    draft.help.push(
        "all-reduce the gradients before the step, or give the class a forward that does all of the pass".to_string(),
    );
    draft
}

fn drawn_apart(rank: &str, seeded: Place, made: Place) -> Draft {
    let title =
        format!("each rank trains other weights: the seed has `{rank}` in it, and nothing broadcasts the parameters");
    let mut draft = Draft::new(&codes::SEED_OF_RANK, title);
    draft.primary = "averages gradients, and leaves parameters as they are".to_string();
    draft.labels.push(spot(seeded, "another seed on each rank".to_string()));
    draft.labels.push(spot(made, "drawn here, by each rank for itself".to_string()));
    draft.help.push("broadcast the parameters from one rank before training: `broadcast_parameters(model.state_dict(), root_rank=0)`".to_string());
    draft
}

fn pending_dropped(drops: &str, waits: &str, started: Place, stepped: Place) -> Draft {
    let title = format!(
        "the optimizer steps while gradients are still being reduced: `{drops}` drops what has completed, and nothing calls `{waits}`"
    );
    let mut draft = Draft::new(&codes::READ_IN_FLIGHT, title);
    draft.primary = "leaves under way what has not completed".to_string();
    draft.labels.push(spot(started, "goes on in the background".to_string()));
    draft.labels.push(spot(stepped, "reads the gradients".to_string()));
    draft.help.push(format!("call `{waits}` before the step"));
    draft
}

fn data_drawn_apart(data: &str, split: Place, given: Place) -> Draft {
    let title = format!(
        "ranks that have parts of one model change the samples of `{data}` in other ways: the seed has the rank among all ranks in it"
    );
    let mut draft = Draft::new(&codes::SEED_OF_RANK, title);
    draft.primary = "differs between ranks that have the same samples".to_string();
    draft.labels.push(spot(split, "goes by the data-parallel rank".to_string()));
    if given != split {
        draft.labels.push(spot(given, "is given both".to_string()));
    }
    draft.help.push("seed by the data-parallel rank too".to_string());
    draft
}

fn dim_not_seeded(given: &str, missing: &str, mesh: Place) -> Draft {
    let title = format!(
        "ranks along `{missing}` have other samples and draw the same numbers for them: the seeds differ along `{given}` alone"
    );
    let mut draft = Draft::new(&codes::SEED_OF_RANK, title);
    draft.primary = format!("leaves out `{missing}`");
    draft.labels.push(spot(mesh, "each rank of this mesh has samples of its own".to_string()));
    draft.help.push(format!("name `{missing}` too"));
    draft
}
