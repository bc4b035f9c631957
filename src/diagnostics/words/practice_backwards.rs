//! Words for backwards that do not fit their forwards, as the text shows. In: findings. Out: drafts. Never: detection. Next: `mod.rs`.

use super::super::codes;
use super::{Draft, spot};
use crate::infer::practice::backwards::Backwards;
use crate::source::Label;
use crate::source::Place;

/// The words of a mistake of a backward.
pub fn backwards(mistake: &Backwards) -> Draft {
    match mistake {
        Backwards::OtherInput { class, input, asked, returned } => {
            let title = format!(
                "the backward of `{class}` computes the gradient of input {input} where input {asked} needs one: the two conditions are mixed up"
            );
            let mut draft = Draft::new(&codes::OTHER_INPUT, title);
            draft.primary = format!("only if `needs_input_grad[{asked}]` is set");
            draft
                .labels
                .push(Label { place: *returned, message: format!("returned as the gradient of input {input}") });
            draft.help.push(format!("ask for `needs_input_grad[{input}]`: inputs count from 0, without the context"));
            draft
        }
        Backwards::WeightLeft { .. }
        | Backwards::NeighbourKept { .. }
        | Backwards::InputNotSummed { .. }
        | Backwards::SummedInOneMode { .. } => left_out(mistake),
        Backwards::Unpaired { class, other, factor, multiplies, defined } => {
            let does = if *multiplies { "multiplies" } else { "divides" };
            let undoes = if *multiplies { "divides" } else { "multiplies" };
            let title = format!(
                "`{class}` {does} gradients by `{factor}`, and `{other}`, which {undoes} them again, is applied nowhere"
            );
            let mut draft = Draft::new(&codes::SCALED_ONE_WAY, title);
            draft.primary = format!("all gradients before this are scaled by `{factor}`");
            draft.labels.push(Label { place: *defined, message: "the counterpart".to_string() });
            draft.help.push(format!("apply `{other}` on the other side of what is between"));
            draft
        }
        Backwards::PlainSplit { value, class, made, gathered, cut } => {
            let title = format!(
                "the gradient of `{value}` stays that of this rank's part: nothing gathers it, and `{class}`, which does, is not used"
            );
            let mut draft = Draft::new(&codes::PLAIN_SPLIT, title);
            draft.primary = "the other positions get no gradient".to_string();
            if let Some(cut) = cut {
                draft.labels.push(Label { place: *cut, message: "the part is cut out here".to_string() });
            }
            draft.labels.push(Label { place: *gathered, message: "gathers the values again".to_string() });
            draft.labels.push(Label { place: *made, message: "splits, and gathers in its backward".to_string() });
            draft.help.push(format!("split with `{class}.apply`"));
            draft
        }
        Backwards::PlainInputSplit { input, gathered, summed } => plain_input_split(input, *gathered, *summed),
        Backwards::GroupLeftOut { class, group, with, in_backward } => {
            let (one, other) = if *in_backward { ("backward", "forward") } else { ("forward", "backward") };
            let title = format!(
                "`{class}` communicates over `{group}` in its {other} and over all ranks in its {one}: gradients are wrong"
            );
            let mut draft = Draft::new(&codes::OTHER_GROUP, title);
            draft.primary = "no group is given".to_string();
            draft.labels.push(Label { place: *with, message: format!("over `{group}`") });
            draft.help.push(format!("use `{group}` in both, kept on `ctx`"));
            draft
        }
        Backwards::PartAveraged { class, group, gathered, passed, wrapped } => {
            part_averaged((class, group), *gathered, *passed, *wrapped)
        }
        Backwards::KeptGroupLeftOut { class, group, kept } => kept_group(class, group, *kept),
        Backwards::EarlyReturn { class, gradient, collective, summed } => {
            let title = format!("the backward of `{class}` returns `{gradient}` before it is summed over the ranks");
            let mut draft = Draft::new(&codes::EARLY_RETURN, title);
            draft.primary = format!("`{gradient}` of this rank alone");
            draft.labels.push(Label { place: *summed, message: format!("`{collective}` makes it complete otherwise") });
            draft.help.push(format!("sum `{gradient}` before this return as well"));
            draft
        }
        Backwards::SameSizes { class, sent, received, forward } => {
            let title = format!(
                "the backward of `{class}` sends parts of the sizes `{sent}` again: a rank has to send back `{received}` and gets `{sent}`"
            );
            let mut draft = Draft::new(&codes::SPLIT_SIZES, title);
            draft.primary = "the sizes in the places of the forward".to_string();
            draft.labels.push(Label { place: *forward, message: format!("sends `{sent}`, receives `{received}`") });
            draft.help.push("exchange the two lists of sizes in the backward".to_string());
            draft
        }
    }
}

/// What a backward leaves out of the gradient: a weight, or the parts of other ranks.
fn left_out(mistake: &Backwards) -> Draft {
    match mistake {
        Backwards::WeightLeft { class, weight, weighed } => {
            let title = format!(
                "the backward of `{class}` leaves out `{weight}`, by which its forward weighs what this rank has: gradients are wrong by that factor"
            );
            let mut draft = Draft::new(&codes::SCALED_ONE_WAY, title);
            draft.primary = "the same for every rank, whatever its weight".to_string();
            draft.labels.push(Label { place: *weighed, message: "weighed by what this rank has".to_string() });
            draft.help.push(format!("multiply the gradient by `{weight}`, over the sum of all ranks"));
            draft
        }
        Backwards::NeighbourKept { class, gradient, received } => {
            let title = format!(
                "the backward of `{class}` keeps `{gradient}` on this rank: what its forward received is another rank's, and so is its gradient"
            );
            let mut draft = Draft::new(&codes::NOT_ADJOINT, title);
            draft.primary = "taken for the gradient of what this rank sent".to_string();
            draft.labels.push(Label { place: *received, message: "comes from another rank".to_string() });
            draft.help.push(format!("send `{gradient}` back the way that the forward came"));
            draft
        }
        Backwards::InputNotSummed { class, input, weight, reduced, made } => {
            let title = format!(
                "the backward of `{class}` gives each rank the gradient of `{input}` from its own rows of `{weight}` only: nothing sums it"
            );
            let mut draft = Draft::new(&codes::NOT_ADJOINT, title);
            draft.primary = "a part on each rank".to_string();
            let message = format!("put together over the ranks: each has other rows of `{weight}`");
            draft.labels.push(Label { place: *reduced, message });
            draft.labels.push(Label { place: *made, message: "from this rank's rows".to_string() });
            draft.help.push(format!("sum the gradient of `{input}` over these ranks before it is returned"));
            draft
        }
        Backwards::SummedInOneMode { class, input, weight, flag, tested, gathered, called } => {
            let title = format!(
                "the backward of `{class}` sums the gradient of `{input}` under `{flag}` only: without it each rank keeps what its part of `{weight}` gives"
            );
            let mut draft = Draft::new(&codes::NOT_ADJOINT, title);
            draft.primary = format!("nothing is summed where `{flag}` is unset");
            let message = format!("parts of `{input}` under `{flag}`; without it every rank has all of it");
            draft.labels.push(Label { place: *tested, message: "holds in one mode alone".to_string() });
            draft.labels.push(Label { place: *gathered, message });
            draft.labels.push(Label { place: *called, message: format!("with a part of `{weight}` on each rank") });
            draft.help.push(format!("all-reduce the gradient of `{input}` where `{flag}` is unset"));
            draft
        }
        _ => Draft::new(&codes::INTERNAL_ERROR, "a finding without words".to_string()),
    }
}

fn plain_input_split(input: &str, gathered: Place, summed: Option<Place>) -> Draft {
    let title = format!("the gradient of `{input}` stays that of this rank's part: nothing gathers it");
    let mut draft = Draft::new(&codes::PLAIN_SPLIT, title);
    draft.primary = "the other positions get no gradient on this rank".to_string();
    draft
        .labels
        .push(Label { place: gathered, message: "gathers the values again, and splits the gradient".to_string() });
    if let Some(summed) = summed {
        draft.labels.push(Label { place: summed, message: "sums the gradients of other submodules alone".to_string() });
    }
    draft.help.push("split with an autograd function whose backward gathers over the same group".to_string());
    draft
}

/// A group that a forward keeps, and that no collective of its backward is given.
fn kept_group(class: &str, group: &str, kept: Place) -> Draft {
    let title = format!("`{class}` keeps `{group}`, and its backward communicates over all ranks: gradients are wrong");
    let mut draft = Draft::new(&codes::OTHER_GROUP, title);
    draft.primary = "no group is given".to_string();
    draft.labels.push(Label { place: kept, message: "kept here, and given to no collective".to_string() });
    draft.help.push(format!("give `ctx.{group}` to the collective of the backward"));
    draft
}

/// Parts of gradients of which a wrapper takes the mean.
fn part_averaged((class, group): (&str, &str), gathered: Place, passed: Place, wrapped: Place) -> Draft {
    let title = format!(
        "gradients are divided by the number of ranks of `{group}`: the backward of `{class}` leaves each its own part, and the wrapper averages the parts"
    );
    let mut draft = Draft::new(&codes::GRADIENT_FACTOR, title);
    draft.primary = "this rank's part of the gradient, which nothing sums".to_string();
    draft.labels.push(spot(gathered, "gathered here".to_string()));
    draft.labels.push(spot(passed, "gradients of a loss that all these ranks have".to_string()));
    draft.labels.push(spot(wrapped, format!("averages gradients over ranks that `{group}` is part of")));
    draft.help.push("sum the gradient over the ranks before each takes its part".to_string());
    draft
}
