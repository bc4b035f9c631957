//! Words of training loops: norms of shards, steps without a sum, parameters that no wrapper sees. In: findings. Out: drafts.
//! Never: detection. Next: `practice.rs`.

use super::super::codes;
use super::{Draft, spot};
use crate::infer::practice::training::Training;
use crate::source::{Name, Place};

pub fn training(mistake: &Training) -> Draft {
    match mistake {
        Training::ShardNorm { function, model, method, wrapped } => shard_norm(function, model, method, *wrapped),
        Training::StageNorm { function, schedule } => stage_norm(function, *schedule),
        Training::ListOfParts { function, list, cut } => list_of_parts(function, list, *cut),
        Training::CopiedNorm { function, list, copied, wrapped } => copied_norm(function, list, *copied, *wrapped),
        Training::LocalNorm { wrapped, summed } => {
            let title =
                "gradients are scaled by the norm of this rank's parts: nothing sums the squares over the ranks";
            let mut draft = Draft::new(&codes::SHARD_NORM, title.to_string());
            draft.primary = "of the parts of one rank".to_string();
            draft.labels.extend(summed.iter().map(|at| spot(*at, "sums over other ranks than those".to_string())));
            draft.labels.push(spot(*wrapped, "each rank keeps a part of every parameter from here".to_string()));
            draft.help.push("all-reduce the sum of squares over the ranks that share the model".to_string());
            draft
        }
        Training::SynchronizedAgain { optimizer, first, made } => synchronized_again(optimizer, *first, *made),
        Training::MarkedNorm { mark, asked } => marked_norm(mark, *asked),
        Training::AskedNorm { asked, divided } => asked_norm(*asked, *divided),
        Training::NormOperation { largest, operation, test } => norm_operation(*largest, operation, *test),
        Training::NormOneSide { largest, group, reduced } => norm_one_side(*largest, group.as_deref(), *reduced),
        Training::NormSquared { made, squared, used } => norm_squared(*made, *squared, *used),
        Training::NormOfEach { function, list, round, summed } => norm_of_each(function, list, *round, *summed),
        Training::NormsAveraged { root, used } => norms_averaged(*root, *used),
        Training::RootsSummed { used } => {
            let title = "norms are summed over the ranks, and not their squares: the sum is not the norm of the model";
            let mut draft = Draft::new(&codes::SHARD_NORM, title.to_string());
            draft.primary = "adds up one root for each rank".to_string();
            draft.labels.push(spot(*used, "gradients are scaled with this".to_string()));
            draft.help.push("sum the squares, and take the root of the sum".to_string());
            draft
        }
        Training::PartialNorm { function, taken, wrapped, asked } => {
            let title = format!("`to_local()` of what `{function}` gives is the norm of this rank's parts");
            let mut draft = Draft::new(&codes::SHARD_NORM, title);
            draft.primary = "the local value of a partial norm".to_string();
            draft.labels.push(spot(*taken, "a distributed tensor that is still to be reduced".to_string()));
            let shown = if *asked {
                "it is a distributed tensor here"
            } else {
                "each rank keeps a part of every parameter from here"
            };
            draft.labels.push(spot(*wrapped, shown.to_string()));
            draft.help.push("`full_tensor()` gives the norm of the model".to_string());
            draft
        }
        Training::TwoNorms { group, given, told } => two_norms(group, *given, *told),
        Training::UnsyncedStep { backward, said, rounds, decided } => {
            unsynced_step(*backward, *said, *rounds, *decided)
        }
        Training::LastStage { flag, rounds, told, other, cooldown } => {
            last_stage(flag, rounds, *told, *other, *cooldown)
        }
        Training::AfterScatter { before, scattered, summed } => after_scatter(*before, *scattered, *summed),
        Training::FinaliserOff { method, off, split } => finaliser_off(method, off.as_ref(), *split),
        Training::OverrideSum { method, axes, summed, helper } => {
            override_sum(method, axes, *summed, helper.as_deref())
        }
        Training::LateFlag { flag, forward, backward } => late_flag(flag, *forward, *backward),
        Training::NeverRead { variable, first, passed } => never_read(variable, first, *passed),
        Training::BlockNeverRead { variable, taken } => block_never_read(variable, *taken),
        Training::OwnBlockRead { unread, own, taken } => own_block_read(unread, own, *taken),
        Training::Ignored { wrapper, ignored, optimizer } => left_alone(wrapper, *ignored, *optimizer),
        Training::Replaced { model, by, replaced } => of_before(model, by, *replaced),
        Training::RoundHook { flag, summed } => round_hook(flag, *summed),
        Training::ClippedOnly { test, reduced, stepped } => clipped_only(test, *reduced, *stepped),
        Training::Bypassed { model, wrapper, wrapped } => bypassed(model, wrapper, *wrapped),
        Training::Attached { module, wrapper, wrapped, put, optimizer } => {
            attached(module, wrapper, *wrapped, *put, *optimizer)
        }
    }
}

/// A norm of what one rank keeps.
fn shard_norm(function: &str, model: &str, method: &str, wrapped: Place) -> Draft {
    let title = format!(
        "`{function}` takes the norm of this rank's shards of `{model}`: every rank clips its gradients by another factor"
    );
    let mut draft = Draft::new(&codes::SHARD_NORM, title);
    draft.primary = "sees the shards of one rank".to_string();
    draft.labels.push(spot(wrapped, "each rank keeps a part of every parameter from here".to_string()));
    draft.help.push(format!("`{model}.{method}(...)` sums the norm over all ranks"));
    draft
}

/// A norm of what one stage has.
fn stage_norm(function: &str, schedule: Place) -> Draft {
    let title = format!(
        "`{function}` takes the norm of the gradients of this stage: every stage of the pipeline clips by another factor"
    );
    let mut draft = Draft::new(&codes::SHARD_NORM, title);
    draft.primary = "sees the parameters of one stage".to_string();
    draft.labels.push(spot(schedule, "runs this rank's stage of the model".to_string()));
    draft.help.push("sum the powers of the norm over the stages, and scale by the root of that".to_string());
    draft
}

/// A norm in which split parameters count by their parts of one rank.
fn marked_norm(mark: &str, asked: Place) -> Draft {
    let title = "gradients are scaled by the norm of this rank's parts: nothing sums the squares over the ranks";
    let mut draft = Draft::new(&codes::SHARD_NORM, title.to_string());
    draft.primary = "each rank has another norm".to_string();
    draft
        .labels
        .push(spot(asked, format!("of a parameter with `{mark}` a rank has a part, and others count on one rank")));
    draft.help.push("all-reduce the sum of squares over the ranks that share the model".to_string());
    draft
}

/// A sum of norms that is squared.
fn norm_squared(made: Place, squared: Place, used: Place) -> Draft {
    let title =
        "norms are summed over the ranks and squared after it: the square of their sum is not the sum of their squares";
    let mut draft = Draft::new(&codes::SHARD_NORM, title.to_string());
    draft.primary = "adds up one root for each rank".to_string();
    draft.labels.push(spot(made, "the norm of what this rank has".to_string()));
    draft.labels.push(spot(squared, "squared here".to_string()));
    draft.labels.push(spot(used, "makes the norm of all".to_string()));
    draft.help.push("square the norm of each rank first, and sum that".to_string());
    draft
}

/// Norms of the i-th parts of all ranks.
fn norm_of_each(function: &str, list: &str, round: Place, summed: Place) -> Draft {
    let title = format!(
        "`{function}` sums the norm of one of `{list}` over the stages: each part of the model is clipped by another factor"
    );
    let mut draft = Draft::new(&codes::SHARD_NORM, title);
    draft.primary = "sees one part of this rank's model".to_string();
    draft.labels.push(spot(round, "each round has another part".to_string()));
    draft.labels.push(spot(summed, "summed over the stages".to_string()));
    draft.help.push(format!("call `{function}` once, with the parameters of all of `{list}`"));
    draft
}

/// A mean of the norms of ranks that have other experts.
fn norms_averaged(root: Place, used: Place) -> Draft {
    let title = "gradients are clipped by a mean of norms: ranks have other experts, and the mean of their norms is not the norm of all";
    let mut draft = Draft::new(&codes::SHARD_NORM, title.to_string());
    draft.primary = "averages the norms of the ranks".to_string();
    draft.labels.push(spot(root, "the norm of what this rank has".to_string()));
    draft.labels.push(spot(used, "gradients are scaled by it".to_string()));
    let help = "sum the squares of the experts over the expert-parallel ranks, and add those of the rest once";
    draft.help.push(help.to_string());
    draft
}

/// A norm of the local parts of distributed gradients.
fn asked_norm(asked: Place, divided: Option<Place>) -> Draft {
    let title = "this norm is that of one rank's parts of the gradients: nothing sums the squares over the ranks";
    let mut draft = Draft::new(&codes::SHARD_NORM, title.to_string());
    draft.primary = "each rank has another norm".to_string();
    draft.labels.push(spot(asked, "the local part of a distributed gradient".to_string()));
    draft.labels.extend(divided.map(|at| spot(at, "counts once in a sum over these ranks".to_string())));
    draft.help.push("all-reduce the sum of squares over the ranks that have the other parts".to_string());
    draft
}

/// A norm of copies that have the gradients of shards.
fn copied_norm(function: &str, list: &str, copied: Place, wrapped: Place) -> Draft {
    let title = format!(
        "`{function}` takes the norm of this rank's shards in `{list}`: every rank clips its gradients by another factor"
    );
    let mut draft = Draft::new(&codes::SHARD_NORM, title);
    draft.primary = "plain tensors, which know of no other rank".to_string();
    draft.labels.push(spot(copied, "takes the gradient of the part that this rank has".to_string()));
    draft.labels.push(spot(wrapped, "each rank keeps a part of every parameter from here".to_string()));
    draft.help.push("all-reduce the sum of squares over the ranks, and scale by its root".to_string());
    draft
}

/// A step on gradients that were not summed.
fn unsynced_step(backward: Place, said: Place, rounds: Option<Place>, decided: Option<Place>) -> Draft {
    let title = "the optimizer steps on gradients that were not summed: the last backward pass leaves the sum out";
    let mut draft = Draft::new(&codes::UNSYNCED_STEP, title.to_string());
    draft.primary = "each rank steps with its own gradients".to_string();
    draft.labels.push(spot(said, "leaves out the sum, and the step may follow".to_string()));
    draft.labels.extend(decided.map(|decided| spot(decided, "decides in which rounds".to_string())));
    draft.labels.extend(rounds.map(|rounds| spot(rounds, "when the step follows".to_string())));
    draft.labels.push(spot(backward, "gradients of this rank's data are added here".to_string()));
    draft.help.push("let the last backward pass before each step sum".to_string());
    draft
}

/// A hook that sums what its own backward pass adds.
fn round_hook(flag: &str, summed: Place) -> Draft {
    let title =
        format!("gradients of the rounds without `{flag}` are never summed: the hook gets those of one backward pass");
    let mut draft = Draft::new(&codes::UNSYNCED_STEP, title);
    draft.primary = "before the gradient is added to what the rounds before have left".to_string();
    draft.labels.push(spot(summed, "sums what this backward pass adds, and nothing of the rounds before".to_string()));
    draft.help.push("register it with `register_post_accumulate_grad_hook`, and sum `param.grad` there".to_string());
    draft
}

/// A sum that belongs to clipping.
fn clipped_only(test: &str, reduced: Place, stepped: Place) -> Draft {
    let title =
        format!("gradients are summed only where they are clipped: without `{test}` each rank steps with its own");
    let mut draft = Draft::new(&codes::UNSYNCED_STEP, title);
    draft.primary = "decides whether gradients are clipped".to_string();
    draft.labels.push(spot(reduced, "sums them over the ranks".to_string()));
    draft.labels.push(spot(stepped, "steps either way".to_string()));
    draft.help.push("sum the gradients before the test".to_string());
    draft
}

/// Sums that only the stages with warm-up rounds take.
fn last_stage(flag: &str, rounds: &str, told: bool, other: Place, cooldown: Place) -> Draft {
    let title = format!(
        "the last stage of the pipeline never sums its gradients: `{flag}` is on only in the loop over `{rounds}`, which it skips"
    );
    let mut draft = Draft::new(&codes::UNSYNCED_STEP, title);
    let (off, pass) = ("off in each of these rounds", "the last backward pass of the last stage is one of these");
    let (here, there) = if told { (off, pass) } else { (pass, off) };
    draft.primary = here.to_string();
    draft.labels.push(spot(other, there.to_string()));
    draft.labels.push(spot(cooldown, "no round on the last stage, which has no warm-up".to_string()));
    draft.help.push("sum in the last of these rounds where there were no warm-up rounds".to_string());
    draft
}

/// A flag that is set too late.
fn late_flag(flag: &str, forward: Place, backward: Place) -> Draft {
    let title = format!("`{flag}` is set after the forward pass, which has read it already");
    let mut draft = Draft::new(&codes::UNSYNCED_STEP, title);
    draft.primary = "holds from the next forward pass on".to_string();
    draft.labels.push(spot(forward, "prepares the reduction of gradients, or leaves it out".to_string()));
    draft.labels.push(spot(backward, "goes by the value of the last round".to_string()));
    draft.help.push(format!("set `{flag}` before the model is called"));
    draft
}

/// A value that arrives and that nothing reads.
fn never_read(variable: &str, first: &str, passed: Place) -> Draft {
    let title = format!(
        "`{variable}` goes round the ranks and is never read: each round uses `{first}`, the part of this rank"
    );
    let mut draft = Draft::new(&codes::NEVER_READ, title);
    draft.primary = "reads the first value in every round".to_string();
    draft.labels.push(spot(passed, format!("`{variable}` arrives here, and is only sent on")));
    draft.help.push(format!("use `{variable}` here"));
    draft
}

/// A block that nothing reads.
fn block_never_read(variable: &str, taken: Place) -> Draft {
    let title = format!(
        "`{variable}` is taken up in each round and never read: each round uses the part of this rank that was saved"
    );
    let mut draft = Draft::new(&codes::NEVER_READ, title);
    draft.primary = "reads what the forward has saved, in every round".to_string();
    draft.labels.push(spot(taken, "the block of another rank, which nothing reads".to_string()));
    draft.help.push(format!("give `{variable}` to this call"));
    draft
}

/// A norm of what a class keeps its parts of in a list.
fn list_of_parts(function: &str, list: &str, cut: Place) -> Draft {
    let title = format!(
        "`{function}` takes the norm of this rank's parts in `{list}`: every rank clips its gradients by another factor"
    );
    let mut draft = Draft::new(&codes::SHARD_NORM, title);
    draft.primary = "sees the parts of one rank".to_string();
    draft.labels.push(spot(cut, "each rank keeps its own part from here".to_string()));
    draft.help.push("all-reduce the sum of squares over the ranks, and scale by its root".to_string());
    draft
}

/// Names, the last two joined by `and`.
fn and(names: &[Name]) -> String {
    let all: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match all.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => all.join(""),
    }
}

/// Blocks of other ranks that nothing reads, and the own ones in their place.
fn own_block_read(unread: &[Name], own: &[Name], taken: Place) -> Draft {
    let (blocks, own) = (and(unread), and(own));
    let (are, block) = if unread.len() > 1 { ("are", "the blocks") } else { ("is", "the block") };
    let title = format!("{blocks} {are} taken up in each round and never read: each round uses {own} of this rank");
    let mut draft = Draft::new(&codes::NEVER_READ, title);
    draft.primary = format!("reads {own}, the same in every round");
    draft.labels.push(spot(taken, format!("{block} of another rank, which nothing reads")));
    draft.help.push(format!("give {blocks} to this call"));
    draft
}

/// Parameters that a wrapper leaves alone.
fn left_alone(wrapper: &str, left: Place, optimizer: Place) -> Draft {
    let title = format!("`{wrapper}` leaves these parameters alone, and nothing sums their gradients before the step");
    let mut draft = Draft::new(&codes::OUTSIDE_WRAPPER, title);
    draft.primary = "each rank steps with its own gradients".to_string();
    draft.labels.push(spot(left, "left alone: not sharded, gradients not summed".to_string()));
    draft.labels.push(spot(optimizer, "trains nothing else".to_string()));
    draft.help.push("sum their gradients before the step, or let the wrapper have them".to_string());
    draft
}

/// An optimizer of parameters that the model has no more.
fn of_before(model: &str, by: &str, replaced: Place) -> Draft {
    let title =
        format!("the optimizer steps parameters that `{model}` no longer has: `{by}` puts others in their place");
    let mut draft = Draft::new(&codes::OUTSIDE_WRAPPER, title);
    draft.primary = format!("has the parameters of before `{by}`");
    draft.labels.push(spot(replaced, "makes new parameters, which nothing trains".to_string()));
    draft.help.push(format!("make the optimizer after `{by}`"));
    draft
}

/// A pass around the wrapper.
fn bypassed(model: &str, wrapper: &str, wrapped: Place) -> Draft {
    let title =
        format!("gradients of `{model}` are not summed: this goes around `{wrapper}`, which nothing here calls");
    let mut draft = Draft::new(&codes::OUTSIDE_WRAPPER, title);
    draft.primary = "the module inside, not the wrapper".to_string();
    draft.labels.push(spot(wrapped, "sums gradients after a forward pass of its own only".to_string()));
    draft.help.push(format!("call `{model}(...)`, with a forward that does all of the pass"));
    draft
}

/// A module that comes after the wrapper.
fn attached(module: &str, wrapper: &str, wrapped: Place, put: Place, optimizer: Place) -> Draft {
    let title = format!(
        "the parameters of `{module}` come into the model after `{wrapper}` has wrapped it: nothing sums their gradients"
    );
    let mut draft = Draft::new(&codes::OUTSIDE_WRAPPER, title);
    draft.primary = "too late for the wrapper".to_string();
    draft.labels.push(spot(wrapped, "takes the parameters that are there".to_string()));
    draft.labels.push(spot(put, format!("a new `{module}`")));
    draft.labels.push(spot(optimizer, "trains them".to_string()));
    draft.help.push(format!("put `{module}` into the model before `{wrapper}`"));
    draft
}

fn synchronized_again(optimizer: &str, first: Place, made: Place) -> Draft {
    let title = format!(
        "`{optimizer}` sums the gradients of all ranks twice: they are too large by the number of ranks, and were clipped before that"
    );
    let mut draft = Draft::new(&codes::REDUCED_TWICE, title);
    draft.primary = "sums over the ranks once more before it steps".to_string();
    draft.labels.push(spot(first, "summed here already".to_string()));
    draft.labels.push(spot(made, "reduces by a sum".to_string()));
    draft.help.push(format!("step inside of `with {optimizer}.skip_synchronize():`"));
    draft
}

/// A norm that is reduced as the other kind is.
fn norm_operation(largest: bool, operation: &str, test: Place) -> Draft {
    let title = match (largest, operation) {
        (true, "AVG") => "the largest entry of the gradients is averaged over the ranks: it is not that of any of them",
        (true, _) => "the largest entries of the ranks are summed: the norm is too large",
        (false, "AVG") => "sums of powers of the gradients are averaged over the ranks: the norm is too small",
        (false, _) => "of the ranks' sums of powers the largest is taken: the others do not count in the norm",
    };
    let mut draft = Draft::new(&codes::SHARD_NORM, title.to_string());
    draft.primary = format!("reduced by `{operation}`");
    let asks =
        if largest { "the norm is that of the largest entry here" } else { "the norm is a root of a sum otherwise" };
    draft.labels.push(spot(test, asks.to_string()));
    draft.help.push(format!("`op=dist.ReduceOp.{}`", if largest { "MAX" } else { "SUM" }));
    draft
}

/// A norm that is reduced in one branch alone.
fn norm_one_side(largest: bool, group: Option<&str>, reduced: Place) -> Draft {
    let kind = if largest { "the norm of the largest entry" } else { "the norm of a sum" };
    let over = group.map_or("over all ranks".to_string(), |group| format!("over `{group}`"));
    let title = format!("{kind} is that of this rank alone: only the other branch reduces {over}");
    let mut draft = Draft::new(&codes::SHARD_NORM, title);
    draft.primary = "decides which norm is taken".to_string();
    draft.labels.push(spot(reduced, "has no counterpart in the other branch".to_string()));
    draft.help.push("reduce in both branches, by the largest or by a sum".to_string());
    draft
}

/// The norm of parameters of which other ranks have others.
fn two_norms(group: &str, given: Place, told: Place) -> Draft {
    let title = format!("the norm leaves out what other ranks of `{group}` have: nothing reduces either of its sums");
    let mut draft = Draft::new(&codes::SHARD_NORM, title);
    draft.primary = "adds up two sums of this rank".to_string();
    draft.labels.push(spot(told, "tells the two kinds of parameters apart".to_string()));
    draft.labels.push(spot(given, format!("is given `{group}`, and never reads it")));
    draft.help.push(format!("sum the part over `{group}` that differs by rank, and add the other one once"));
    draft
}

/// A shared weight whose gradient is summed too late.
fn after_scatter(before: Place, scattered: Place, summed: Place) -> Draft {
    let title = "the gradient of the shared weight is summed over its copies after it was scattered: each rank adds what is reduced to what is not";
    let mut draft = Draft::new(&codes::LATE_REDUCTION, title.to_string());
    draft.primary = "too late for the rows that other ranks have reduced".to_string();
    draft.labels.push(spot(before, "reduces before".to_string()));
    draft.labels.push(spot(scattered, "leaves each rank its part of the buffer".to_string()));
    draft.labels.push(spot(summed, "sums over the stages that hold a copy".to_string()));
    draft.help.push("sum it over its copies first, or give it a bucket of its own".to_string());
    draft
}

fn finaliser_off(method: &str, off: Option<&(Name, Place)>, split: Place) -> Draft {
    let title = format!(
        "`{method}` reduces over data-parallel ranks alone: gradients of norms and shared weights, of which each rank has a part, stay those of one rank"
    );
    let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
    draft.primary = "all that is reduced before the step".to_string();
    draft.labels.extend(
        off.map(|(name, place)| spot(*place, format!("`{name}` would sum them, and nothing puts it back or calls it"))),
    );
    draft.labels.push(spot(split, "each rank has a part of such gradients".to_string()));
    draft.help.push(match off {
        Some((name, _)) => format!("call what `{name}` was, instead of `{method}`, once before the step"),
        None => "sum them over the ranks that share the model as well, before the step".to_string(),
    });
    draft
}

fn override_sum(method: &str, axes: &[Name], summed: Place, helper: Option<&str>) -> Draft {
    let over: Vec<String> = axes.iter().map(|axis| format!("`{axis}`")).collect();
    let over = over.join(" and ");
    let title = format!(
        "`{method}` leaves out the sum over {over} that the method of the base has: gradients stay those of one rank"
    );
    let mut draft = Draft::new(&codes::UNREDUCED_STEP, title);
    draft.primary = "overrides it, and reduces over data ranks alone".to_string();
    draft.labels.push(spot(summed, format!("the base sums gradients over {over} here")));
    let repair = helper.map_or(format!("call `super().{method}()`, or sum here as well"), |name| {
        format!("call `self.{name}()` here too")
    });
    draft.help.push(repair);
    draft
}
