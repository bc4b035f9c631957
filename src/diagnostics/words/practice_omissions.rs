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
        Omission::OverflowOfShard { stepped } => {
            let title = "each rank steps or not by its own shard of the gradients: the others' may be infinite where its own is not";
            let mut draft = Draft::new(&codes::SOME_RANKS, title.to_string());
            draft.primary = "looks at the shard of this rank".to_string();
            draft.labels.push(spot(*stepped, "another answer on each rank".to_string()));
            draft.help.push("all-reduce the answer with MAX before it decides".to_string());
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
        Omission::InnerStep { backward, summed, ignored } => inner_step(*backward, *summed, *ignored),
        Omission::DivisionNotAsked { .. }
        | Omission::SequenceDivided { .. }
        | Omission::SizeOfFewer { .. }
        | Omission::SizeNotGiven { .. }
        | Omission::SlopesOfFirst { .. } => of_factors(mistake),
        Omission::FewerUndone { factor, mean, gathered } => fewer_undone(factor, *mean, *gathered),
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
        | Omission::OverflowOfShard { .. }
        | Omission::ScalerOfFewer { .. }
        | Omission::InnerStep { .. }
        | Omission::FewerUndone { .. }
        | Omission::RanksNotAsked { .. } => omissions(mistake),
    }
}

fn inner_step(backward: Place, summed: Place, ignored: bool) -> Draft {
    let title = "a module steps inside of its forward with the gradients of this rank: its copies drift apart";
    let mut draft = Draft::new(&codes::UNREDUCED_STEP, title.to_string());
    draft.primary = "steps with what this rank's samples give".to_string();
    draft.labels.push(spot(backward, "gives gradients that no wrapper sums".to_string()));
    let beside = match ignored {
        true => "the wrapper is told to leave parameters out",
        false => "other statistics are summed over ranks",
    };
    draft.labels.push(spot(summed, beside.to_string()));
    draft.help.push("average these gradients over the ranks before the step".to_string());
    draft
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
