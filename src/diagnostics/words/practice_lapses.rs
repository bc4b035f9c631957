//! Words of lapses in hooks, handles and arguments. In: findings. Out: drafts. Never: detection. Next: `practice.rs`.

use super::super::codes;
use super::{Draft, spot};
use crate::infer::practice::lapses::Lapse;
use crate::source::{Name, Place};

pub fn lapses(mistake: &Lapse) -> Draft {
    match mistake {
        Lapse::LateHook { variable, collective, round } => {
            let title = format!(
                "every hook communicates the last `{variable}`: `{collective}` reads the variable of the loop when the hook runs"
            );
            let mut draft = Draft::new(&codes::LATE_HOOK, title);
            draft.primary = format!("`{variable}` of the last round, whichever hook it is");
            draft.labels.push(spot(*round, "each round binds it again".to_string()));
            draft.help.push(format!(
                "bind it when the hook is made: a default `{variable}={variable}`, or a function that makes the hook"
            ));
            draft
        }
        Lapse::ParameterReduced { function, parameter, collective } => reduced_itself(function, parameter, collective),
        Lapse::ParameterDivided { parameter, collective, summed } => {
            let title =
                format!("`{parameter}` itself is divided by the number of ranks, and its summed gradient is not");
            let mut draft = Draft::new(&codes::GRADIENT_SCALE, title);
            draft.primary = "divides the weights, each time".to_string();
            draft.labels.push(spot(*summed, format!("`{collective}` sums the gradient here")));
            draft.help.push(format!("divide the gradient: `{parameter}.grad`"));
            draft
        }
        Lapse::HandleDropped { function, started, kept } => {
            let title =
                format!("nothing waits for what `{function}` starts: this call drops the handle that it returns");
            let mut draft = Draft::new(&codes::READ_IN_FLIGHT, title);
            draft.primary = "its handle is dropped".to_string();
            draft.labels.push(spot(*started, "started here, in the background".to_string()));
            draft.labels.push(spot(*kept, "this call keeps it".to_string()));
            draft
                .help
                .push("keep the handle as the other call does, and wait for it before the buffer is used".to_string());
            draft
        }
        Lapse::NotHandedOn { class, function, arguments, kept } => {
            let all: Vec<String> = arguments.iter().map(|a| format!("`{a}`")).collect();
            let all = all.join(" and ");
            let title = format!(
                "the forward of `{class}` leaves {all} out: `{function}` takes its defaults, and the backward goes by what was given"
            );
            let mut draft = Draft::new(&codes::NOT_HANDED_ON, title);
            draft.primary = "with defaults, whatever the forward is given".to_string();
            draft.labels.push(spot(*kept, "kept for the backward".to_string()));
            let given: Vec<String> = arguments.iter().map(|a| format!("{a}={a}")).collect();
            draft.help.push(format!("hand them on: `{function}(..., {})`", given.join(", ")));
            draft
        }
        Lapse::HeldScaled { held, reduced, summed, added } => {
            let title = format!(
                "`{held}` is scaled again in each round, with all that it holds, and the sum that is added to it never"
            );
            let mut draft = Draft::new(&codes::REPEATED_FACTOR, title);
            draft.primary = "scales what earlier rounds have left once more".to_string();
            draft.labels.push(spot(*summed, format!("`{reduced}` is summed over the ranks, without the factor")));
            draft.labels.push(spot(*added, "added as it is".to_string()));
            draft.help.push(format!("scale `{reduced}` before it is reduced, and leave `{held}` as it is"));
            draft
        }
        Lapse::NeededOther { gradient, asked, returned, input, at } => {
            needed_other(gradient, *asked, *returned, input, *at)
        }
        Lapse::BesideCopy { input, weights, function, copied, summed } => {
            beside_copy(input, weights, function, *copied, *summed)
        }
        Lapse::PlainInput { .. } => plain_input(mistake),
        Lapse::MeansSummed { .. } => means_summed(mistake),
        Lapse::WholeBias { bias, summed, cut } => whole_bias(bias, *summed, *cut),
        Lapse::CountUnread { function, parameter, summed, given } => count_unread(function, parameter, *summed, *given),
        Lapse::OwnTokens { loss, count, group, shared, counted } => {
            let mut draft = own_tokens(loss.as_ref(), count.as_ref(), group, *shared);
            draft.labels.extend(counted.map(|at| spot(at, "counted here".to_string())));
            draft
        }
        other => of_gradients(other),
    }
}

/// A mean over the tokens of each rank, and a gradient that is summed.
fn means_summed(mistake: &Lapse) -> Draft {
    let Lapse::MeansSummed { loss, weight, mark, axes, mean, marked, attached } = mistake else {
        return lapses(mistake);
    };
    let loss = loss.as_ref().map_or("the loss".to_string(), |name| format!("`{name}`"));
    let over: Vec<String> = axes.iter().map(|axis| format!("`{axis}`")).collect();
    let over = over.join(" and ");
    let title = format!(
        "the gradient of `{weight}` from {loss} is multiplied by the number of ranks of {over}: each adds the mean of its own tokens"
    );
    let mut draft = Draft::new(&codes::GRADIENT_FACTOR, title);
    draft.primary = "a mean over the tokens of this rank".to_string();
    if mean != attached {
        draft.labels.push(spot(*mean, "over this rank's tokens".to_string()));
    }
    draft.labels.push(spot(*attached, format!("{loss} adds its gradient here, as it is")));
    draft.labels.push(spot(*marked, format!("`{mark}` says that the gradient is summed over {over}")));
    draft.help.push(format!("divide {loss} by the number of ranks of {over}"));
    draft
}

/// A bias of which every rank adds the whole to what is summed.
fn whole_bias(bias: &str, summed: Place, cut: Place) -> Draft {
    let title =
        format!("`{bias}` is counted once per rank: every rank adds the whole of it before the results are summed");
    let mut draft = Draft::new(&codes::PARTIAL_AFFINE, title);
    draft.primary = format!("`{bias}` in full, on every rank");
    draft.labels.push(spot(summed, "a term of a sum over the ranks".to_string()));
    draft.labels.push(spot(cut, "each rank has a part of this weight".to_string()));
    draft.help.push(format!("add `{bias}` after the sum, or on one rank alone"));
    draft
}

/// A mean over own tokens, beside a count of all of them.
fn count_unread(function: &str, parameter: &str, summed: Place, given: Place) -> Draft {
    let title = format!(
        "`{function}` returns the mean over each rank's own tokens: it never reads the count of all of them, `{parameter}`"
    );
    let mut draft = Draft::new(&codes::MEAN_OF_MEANS, title);
    draft.primary = "a mean over the tokens of this rank".to_string();
    draft.labels.push(spot(summed, "the count is summed over the ranks here".to_string()));
    draft.labels.push(spot(given, format!("and given as `{parameter}`")));
    draft.help.push(format!(
        "divide the sum by `{parameter}`, and multiply by the number of ranks where gradients are averaged over them"
    ));
    draft
}

/// A share of a loss that is weighed by the tokens of one rank.
fn own_tokens(loss: Option<&Name>, count: Option<&Name>, group: &str, shared: Place) -> Draft {
    let loss = loss.map_or("the loss".to_string(), |name| format!("`{name}`"));
    let title = format!(
        "the gradient from {loss} is too small by the number of ranks of `{group}`: it is multiplied by the tokens of this rank alone"
    );
    let mut draft = Draft::new(&codes::GRADIENT_FACTOR, title);
    let count = count.map_or("the count".to_string(), |name| format!("`{name}`"));
    draft.primary = format!("{count} is of this rank's part of the tokens");
    draft.labels.push(spot(shared, format!("{loss} is this rank's share of a loss over `{group}`")));
    draft.help.push(format!("multiply by the number of ranks of `{group}` as well, or sum the count over them"));
    draft
}

/// An input whose gradient is summed on one side of a flag alone.
fn plain_input(mistake: &Lapse) -> Draft {
    let Lapse::PlainInput { input, flag: (flag, holds), weight, collective, gathered, used, summed, repair } = mistake
    else {
        return lapses(mistake);
    };
    let (here, there) = if *holds { ("without", "with") } else { ("with", "without") };
    let title =
        format!("nothing sums the gradient of `{input}` {here} `{flag}`: each rank has that of its part of `{weight}`");
    let mut draft = Draft::new(&codes::INVARIANT_MIXED, title);
    draft.primary = format!("`{input}` goes on as it is");
    draft.labels.push(spot(*gathered, format!("the backward of `{collective}` sums it, {there} `{flag}`")));
    draft.labels.push(spot(*used, format!("meets `{weight}`, of which each rank has a part")));
    draft.labels.push(spot(*summed, "the parts of the output are summed here".to_string()));
    draft.help.extend(repair.as_ref().map(|text| text.replace("{x}", input).to_string()));
    draft
}

/// Gradients that a sum, a gather or an exchange does not pass on as it should.
fn of_gradients(mistake: &Lapse) -> Draft {
    match mistake {
        Lapse::AroundFunction { class, collective, call, applied } => {
            let title = format!(
                "no gradient flows back through `{collective}` where it is called around `{class}`: what it writes has no history"
            );
            let mut draft = Draft::new(&codes::GRADIENT_CUT, title);
            draft.primary = "outside of autograd, but for the call in the forward".to_string();
            draft.labels.push(spot(*call, "called by itself here".to_string()));
            draft.labels.push(spot(
                *applied,
                format!("through `{class}`, which has a backward, on the other side of the test"),
            ));
            draft.help.push(format!("use `{class}`, or another differentiable collective, on both sides"));
            draft
        }
        Lapse::SumInLoss { collective, value, bends } => {
            let title = format!(
                "`{collective}` passes the gradient of `{value}` on as it is: the mean over ranks that follows makes it too small by their number"
            );
            let mut draft = Draft::new(&codes::SUM_IN_LOSS, title);
            draft.primary = "sums the values of all ranks, and no gradients".to_string();
            draft.labels.push(spot(*bends, "the loss is made of it".to_string()));
            draft.help.push(format!(
                "`{value} = torch.distributed.nn.functional.all_reduce({value})`, whose backward sums too"
            ));
            draft
        }
        Lapse::WeightsCut { collective, value, kept } => {
            let title = format!("no gradient flows back to `{value}`: `{collective}` gathers it without gradients");
            let mut draft = Draft::new(&codes::GRADIENT_CUT, title);
            draft.primary = "under `no_grad`".to_string();
            draft.labels.push(spot(*kept, format!("`{value}` itself here, with its gradient")));
            draft.help.push("gather it outside of `no_grad`, with a collective that has a gradient".to_string());
            draft
        }
        Lapse::StatisticMeets { collective, made, meets, backward } => {
            let title = format!(
                "`{collective}` does nothing in its backward: what the other ranks make of this rank's part is missing from its gradient"
            );
            let mut draft = Draft::new(&codes::GRADIENT_CUT, title);
            draft.primary = "its gradient differs from rank to rank, and nothing sums it".to_string();
            draft.labels.push(spot(*made, "added up over the part of this rank".to_string()));
            draft.labels.push(spot(*meets, "meets the part of this rank".to_string()));
            draft.labels.extend(backward.map(|at| spot(at, "the gradient of this rank, as it is".to_string())));
            draft
                .help
                .push("use a sum whose backward sums too, as `torch.distributed.nn.functional.all_reduce`".to_string());
            draft
        }
        Lapse::OneBuffer { collective, list, call } => {
            let list = list.as_ref().map_or("the list".to_string(), |name| format!("`{name}`"));
            let title =
                format!("all entries of {list} are one tensor: `{collective}` writes the parts of all ranks to it");
            let mut draft = Draft::new(&codes::SHARED_BUFFER, title);
            draft.primary = "one tensor, repeated".to_string();
            draft.labels.push(spot(*call, "the part that comes last is in all entries".to_string()));
            draft.help.push("make each entry: `[torch.empty_like(x) for _ in range(n)]`".to_string());
            draft
        }
        Lapse::NeverFilled { buffer, by, made, returned } => never_filled(buffer, by, *made, *returned),
        Lapse::LateHook { .. }
        | Lapse::ParameterReduced { .. }
        | Lapse::ParameterDivided { .. }
        | Lapse::HandleDropped { .. }
        | Lapse::NotHandedOn { .. }
        | Lapse::HeldScaled { .. }
        | Lapse::NeededOther { .. }
        | Lapse::PlainInput { .. }
        | Lapse::BesideCopy { .. }
        | Lapse::MeansSummed { .. }
        | Lapse::WholeBias { .. }
        | Lapse::CountUnread { .. }
        | Lapse::OwnTokens { .. } => lapses(mistake),
    }
}

/// A gradient under the test of another input.
fn needed_other(gradient: &str, asked: usize, returned: usize, input: &str, at: Place) -> Draft {
    let title =
        format!("`{gradient}` is computed only where the gradient of `{input}` is asked for, which is another input");
    let mut draft = Draft::new(&codes::MISPLACED_GRADIENT, title);
    draft.primary = format!("asks for input {asked}");
    draft.labels.push(spot(at, format!("`{gradient}` is returned for input {returned}")));
    draft.help.push(format!("ask for `ctx.needs_input_grad[{returned}]`"));
    draft
}

/// A buffer that nothing writes to.
fn never_filled(buffer: &str, by: &str, made: Place, returned: bool) -> Draft {
    let read = if returned { "returned" } else { "read" };
    let mut draft = Draft::new(
        &codes::UNFILLED_BUFFER,
        format!("`{buffer}` is {read} as `{by}` left it: no collective and nothing else writes to it"),
    );
    draft.primary = format!("{read} here, whatever the memory held before");
    draft.labels.push(spot(made, "allocated here, without values".to_string()));
    draft.help.push(format!("give `{buffer}` to the collective that fills it, before it is {read}"));
    draft
}

fn beside_copy(input: &str, weights: &str, function: &str, copied: Place, summed: Place) -> Draft {
    let title = format!("`{weights}` meets this rank's part: nothing sums the gradient of `{weights}` over the ranks");
    let mut draft = Draft::new(&codes::INVARIANT_MIXED, title);
    draft.primary = format!("`{weights}` comes of `{input}` as it was, and is the same on every rank");
    draft.labels.push(spot(copied, format!("what comes of `{input}` from here on has its gradient summed")));
    draft.labels.push(spot(summed, "each rank's products are a part of this sum".to_string()));
    draft.help.push(format!("put `{weights}` through `{function}` as well"));
    draft
}

/// A parameter that is reduced in place of its gradient.
fn reduced_itself(function: &str, parameter: &str, collective: &str) -> Draft {
    let title = format!(
        "`{function}` reduces `{parameter}` itself and no gradient: each rank steps with the gradient of its own data"
    );
    let mut draft = Draft::new(&codes::GRADIENT_NOT_SUMMED, title);
    draft.primary = format!("`{collective}` of the values of the parameter");
    draft.help.push(format!("reduce `{parameter}.grad`"));
    draft
}
