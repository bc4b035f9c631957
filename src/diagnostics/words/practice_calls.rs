//! Words for communication that is written in the wrong place, order or condition. In: findings. Out: drafts. Never: detection.
//! Next: `mod.rs`.

use super::super::codes;
use super::{Draft, Words};
use crate::infer::practice::found::{Late, Own, Practice, Until};
use crate::source::{Label, Name, Place};

impl Words<'_> {
    pub fn calls(practice: &Practice) -> Draft {
        match practice {
            Practice::InvertedGuard { variable, used, collective } => {
                let title = format!(
                    "`{collective}` is reached only where `{variable}` is None: the condition is the wrong way round"
                );
                let mut draft = Draft::new(&codes::INVERTED_GUARD, title);
                draft.primary = format!("leaves out every `{variable}` there is");
                label(&mut draft, *used, format!("`{variable}` is None here"));
                draft.help.push("invert the condition".to_string());
                draft
            }
            Practice::GradientCut { collective, call, before } => gradient_cut(collective, *call, before.as_ref()),
            Practice::MixedGradient { collective, differentiable, other } => {
                let title = format!(
                    "`{collective}` is not differentiable: the gradient of this part stays that of one rank, and `{differentiable}` sums the other"
                );
                let mut draft = Draft::new(&codes::GRADIENT_CUT, title);
                draft.primary = "outside of autograd".to_string();
                label(&mut draft, *other, "differentiable, of the same value".to_string());
                draft.help.push("use a differentiable collective for both".to_string());
                draft
            }
            Practice::ReadInFlight { collective, launched, until, buffer } => {
                let title = match until {
                    Until::OtherPath { .. } => {
                        format!(
                            "nothing waits for `{collective}` on one path: `{buffer}` is used there while it may still be written"
                        )
                    }
                    Until::End { .. } => {
                        format!("nothing waits for `{collective}`: `{buffer}` is used while it may still be written")
                    }
                    Until::Wait(_) | Until::HandedOn(_) => {
                        format!("`{buffer}` is used before the wait: `{collective}` may still be writing it")
                    }
                };
                let mut draft = Draft::new(&codes::READ_IN_FLIGHT, title);
                let (primary, labels) = match until {
                    Until::End { read } => {
                        ("its handle is dropped", read.map(|at| (at, "used here")).into_iter().collect())
                    }
                    Until::OtherPath { read, wait } => {
                        ("launched here", vec![(*read, "used here"), (*wait, "not waited for on that path")])
                    }
                    Until::Wait(at) => ("used here", vec![(*launched, "launched here"), (*at, "waited for here")]),
                    Until::HandedOn(at) => {
                        ("used here", vec![(*launched, "launched here"), (*at, "its handle goes on from here")])
                    }
                };
                draft.primary = primary.to_string();
                labels.into_iter().for_each(|(at, text): (Place, &str)| label(&mut draft, at, text.to_string()));
                draft.help.push("call `wait()` on the handle before the buffer is used".to_string());
                draft
            }
            Practice::SomeRanks { collective, condition, exit } => {
                Self::some_ranks(collective, *condition, *exit, false)
            }
            Practice::SomeOfGroup { collective, condition, exit } => {
                Self::some_ranks(collective, *condition, exit.then_some(*condition), true)
            }
            Practice::UnusedApply { function, value } => {
                let title = format!("the result of `{function}` is not used: its backward never runs");
                let mut draft = Draft::new(&codes::LOST_RESULT, title);
                draft.primary = "thrown away".to_string();
                draft.help.push(format!("go on with the result: `{value} = {function}(...)`"));
                draft
            }
            Practice::LocalCount { divided, reduced, comment } => Self::count(*divided, *reduced, *comment),
            Practice::OfThisRank(own) => Self::of_this_rank(own),
            Practice::LateReduction { why, gradients, before } => Self::late(why, *gradients, *before),
            _ => Draft::new(&codes::INTERNAL_ERROR, "a finding without words".to_string()),
        }
    }

    /// `of_group`: of those of a group, and not of all.
    fn some_ranks(collective: &str, condition: Place, exit: Option<Place>, of_group: bool) -> Draft {
        let (who, over) = match of_group {
            true => ("some ranks of the group", "over all ranks of the group"),
            false => ("some ranks", "over all ranks"),
        };
        let title = format!("only {who} reach `{collective}`: they wait for the others forever");
        let mut draft = Draft::new(&codes::SOME_RANKS, title);
        draft.primary = over.to_string();
        let message = match exit {
            Some(exit) if exit == condition => "the other ranks leave here",
            Some(_) => "does not hold on all ranks",
            None => "the other ranks do not come here",
        };
        label(&mut draft, condition, message.to_string());
        if let Some(exit) = exit.filter(|exit| *exit != condition) {
            label(&mut draft, exit, "the other ranks leave here".to_string());
        }
        draft.help.push("call it on every rank, or over a group of those that reach it".to_string());
        draft
    }

    fn count(divided: Place, reduced: Option<Place>, comment: Option<Place>) -> Draft {
        let title = match reduced {
            Some(_) => "a sum over all ranks is divided by the count of this rank alone",
            None => {
                "every rank divides its loss by its own count: the average of the gradients weighs ranks with few tokens too much"
            }
        };
        let mut draft = Draft::new(&codes::LOCAL_COUNT, title.to_string());
        draft.primary = "counts this rank's part".to_string();
        label(&mut draft, divided, "divides here".to_string());
        if let Some(reduced) = reduced {
            label(&mut draft, reduced, "the sum is over all ranks from here".to_string());
        }
        if let Some(comment) = comment {
            label(&mut draft, comment, "averaged, it says here".to_string());
        }
        draft.help.push("all-reduce the count over the same ranks".to_string());
        draft
    }

    fn of_this_rank(own: &Own) -> Draft {
        let (title, primary, partial, reduced, message, help) = match own {
            Own::Size { reduced } => (
                "a sum over all ranks is divided by the size of this rank's tensor alone",
                "counts this rank's part",
                None,
                *reduced,
                "the sum is over all ranks from here",
                "multiply the size by the number of ranks, or all-reduce it too",
            ),
            Own::Factor { reduced } => (
                "a loss is divided by a count of this rank alone, and another one beside it by a count of all ranks",
                "counts this rank's part",
                None,
                *reduced,
                "the other count is taken over the ranks here",
                "take the mean of the count over the ranks as well",
            ),
            Own::Kept { reduced } => (
                "a statistic of this rank alone is kept beside one of all ranks: the ranks' buffers drift apart",
                "of this rank's data",
                None,
                *reduced,
                "what is kept beside it is summed over the ranks here",
                "all-reduce it over the same ranks",
            ),
            Own::Partial { partial, reduced } => (
                "a sum over this rank's part of a dim is taken for one over the whole",
                "needs the sum over all parts",
                Some(*partial),
                *reduced,
                "the same dim is reduced over the ranks here",
                "all-reduce the sum over the same group",
            ),
            Own::WidthMean { cut } => (
                "a mean over this rank's part of a dim is taken for that of the whole dim",
                "a mean of what this rank has",
                None,
                *cut,
                "each rank has a part of the dim",
                "take the mean over the ranks that have the other parts too",
            ),
            Own::Width { partial, cut } => (
                "a sum over this rank's part of a dim is divided by the size of the whole dim",
                "needs the sum over all parts",
                Some(*partial),
                *cut,
                "each rank has a part of the dim",
                "all-reduce the sum over the same group, with a gradient that is summed too",
            ),
        };
        let mut draft = Draft::new(&codes::LOCAL_COUNT, title.to_string());
        draft.primary = primary.to_string();
        if let Some(partial) = partial {
            label(&mut draft, partial, "sums what this rank has".to_string());
        }
        label(&mut draft, reduced, message.to_string());
        draft.help.push(help.to_string());
        draft
    }

    fn late(why: &Late, gradients: Place, before: Place) -> Draft {
        let (title, message, help) = match why {
            Late::Used => (
                "gradients are reduced after the optimizer has used them: every rank steps with its own",
                "steps here",
                "reduce before the step",
            ),
            Late::Cleared => (
                "gradients are reduced after they were cleared: what the backward computed is not reduced",
                "cleared here",
                "reduce before they are cleared",
            ),
            Late::Clipped => (
                "gradients are clipped before they are reduced: every rank scales its own part by its own norm",
                "clipped here",
                "reduce before clipping",
            ),
            Late::Early => {
                let title =
                    "gradients are reduced before the backward pass computes them: every rank steps with its own";
                let mut draft = Draft::new(&codes::LATE_REDUCTION, title.to_string());
                draft.primary = "reduced too early".to_string();
                label(&mut draft, before, "computes gradients".to_string());
                draft.help.push("reduce after the backward pass".to_string());
                return draft;
            }
            Late::Copied => {
                let title = "gradients are reduced after they were copied to other parameters: the copies stay those of each rank";
                let mut draft = Draft::new(&codes::LATE_REDUCTION, title.to_string());
                draft.primary = "reduced too late".to_string();
                label(&mut draft, before, "copied here".to_string());
                draft.help.push("reduce before they are copied, or reduce the copies".to_string());
                return draft;
            }
            Late::Moved { method, .. } => {
                let title = format!(
                    "`.grad` is reduced after `{method}` has moved the gradients elsewhere: what the optimizer steps with stays that of each rank"
                );
                let mut draft = Draft::new(&codes::LATE_REDUCTION, title);
                draft.primary = "reduces what was left behind".to_string();
                label(&mut draft, gradients, "taken from `.grad`".to_string());
                label(&mut draft, before, "added to other buffers and cleared here".to_string());
                draft.help.push("reduce the buffers that the step reads".to_string());
                return draft;
            }
        };
        let mut draft = Draft::new(&codes::LATE_REDUCTION, title.to_string());
        draft.primary = "reduced too late".to_string();
        label(&mut draft, before, message.to_string());
        draft.help.push(help.to_string());
        draft
    }
}

fn label(draft: &mut Draft, place: Place, message: String) {
    draft.labels.push(Label { place, message });
}

/// A collective past autograd on the way of a gradient.
fn gradient_cut(collective: &Name, call: Option<Place>, before: Option<&(Name, Place)>) -> Draft {
    let title = format!(
        "no gradient flows back through `{collective}`: what it writes has no history, and the layer before it is not trained"
    );
    let mut draft = Draft::new(&codes::GRADIENT_CUT, title);
    draft.primary = "outside of autograd".to_string();
    if let Some(call) = call {
        label(&mut draft, call, "what a submodule computed is given to it here".to_string());
    }
    if let Some((differentiable, at)) = before {
        label(&mut draft, *at, format!("the gradient that `{differentiable}` brings back ends there"));
    }
    draft.help.push("use a differentiable collective, or put the part of this rank back into the buffer".to_string());
    draft
}
