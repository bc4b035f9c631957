//! Words about who comes to a collective: groups that some ranks make, tests that each rank answers for itself. In: findings. Out: drafts.
//! Never: detection. Next: `practice.rs`.

use super::super::codes;
use super::{Draft, spot};
use crate::infer::practice::coming::Coming;
use crate::source::{Name, Place};

pub fn coming(mistake: &Coming) -> Draft {
    match mistake {
        Coming::MadeBySome { maker, condition, exit } => made_by_some(maker, *condition, *exit),
        Coming::MadeOfOwn { maker, ranks, chosen } => {
            let title =
                format!("every rank gives `{maker}` the ranks of its own group: all have to make the same groups");
            let mut draft = Draft::new(&codes::SOME_RANKS, title);
            draft.primary = format!("`{}` differs by rank", shortened(ranks));
            draft.labels.push(spot(*chosen, "by the rank of its own, or by its machine".to_string()));
            draft.help.push("make all groups on every rank in the same order, and keep the own one".to_string());
            draft
        }
        Coming::ByClock { collective, clock, call, exit } => {
            let title = format!("the clock of each rank decides whether it reaches `{collective}`");
            let mut draft = Draft::new(&codes::SOME_RANKS, title);
            let message = if *exit { "some ranks leave here" } else { "holds on some ranks before others" };
            draft.primary = format!("{message}: `{}`", shortened(clock));
            draft.labels.push(spot(*call, "waits for all ranks".to_string()));
            draft.help.push("decide by a number of steps, or broadcast the decision of one rank".to_string());
            draft
        }
        Coming::ByOwnLoss { collective, loss, call } => by_own_loss(collective, loss, *call),
        Coming::StopOfOne { flag, set, condition, waits } => stop_of_one(flag, *set, *condition, *waits),
        Coming::OwnsNone { collective, list, chosen, call } => owns_none(collective, list, *chosen, *call),
        Coming::ByOwnData { collective, tested, call } => by_own_data(collective, tested, *call),
        Coming::ByPartialSum { collective, rank, test, call, at } => {
            by_partial_sum((collective, *rank), *test, (call, *at))
        }
        Coming::ByOwnPart { scaler, wrapper, wrapped, instead } => by_own_part(scaler, (wrapper, *wrapped), instead),
        Coming::ByOwnGradients { group, stored } => by_own_gradients(group, *stored),
        Coming::ConstantLoss { collective, function, tested, call } => {
            constant_loss(collective, function, tested, *call)
        }
        Coming::OwnList { collective, list, over, put, condition } => {
            own_list(collective, list, over, (*put, *condition))
        }
        Coming::NothingToAdd { collective, list, group, reduced, condition } => {
            nothing_to_add(collective, list, group, (*reduced, *condition))
        }
        Coming::SetOrder { collective, call, sorted } => {
            let title =
                format!("ranks call `{collective}` in the order of a set, which is another one in each process");
            let mut draft = Draft::new(&codes::COLLECTIVE_ORDER, title);
            draft.primary = "in the order of hashes".to_string();
            draft.labels.push(spot(*call, "meets the call for another element on other ranks".to_string()));
            let few = "the key tells few of the elements apart: the others stay in the order of the set";
            draft.labels.extend(sorted.map(|at| spot(at, few.to_string())));
            draft.help.push(match sorted {
                Some(_) => "sort by the elements themselves as well".to_string(),
                None => "go through `sorted(...)` of it, or keep a list".to_string(),
            });
            draft
        }
        Coming::OtherOrder { collective, other: (other, call), condition } => {
            other_order(collective, (other, *call), *condition)
        }
        Coming::OwnRoot { collective, argument, rank } => own_root(collective, argument, *rank),
        Coming::GroupRoot { collective, argument, rank } => group_root(collective, argument, *rank),
        Coming::WorkerAsRank { function, given } => {
            let title = format!("`{function}` takes `{given}`, a worker of this rank's data loader, for the rank");
            let mut draft = Draft::new(&codes::MISPLACED_ARGUMENT, title);
            draft.primary = "all ranks have the same workers, and read the same rows".to_string();
            draft.help.push("give it the rank among all ranks".to_string());
            draft
        }
        Coming::OperatorAs { collective, argument } => {
            let title = format!("`{collective}` takes the operator for its `{argument}`");
            let mut draft = Draft::new(&codes::MISPLACED_ARGUMENT, title);
            draft.primary = format!("its argument here is `{argument}`");
            draft.help.push("give the operator by name: `op=...`".to_string());
            draft
        }
    }
}

fn by_own_gradients(group: &str, stored: Place) -> Draft {
    let title = format!("each rank decides by its own gradients whether to step, and `{group}` is never used");
    let mut draft = Draft::new(&codes::SOME_RANKS, title);
    draft.primary = "whether this rank's gradients are numbers".to_string();
    draft.labels.push(spot(stored, "kept here, and never read".to_string()));
    draft.help.push(format!("take the maximum over `{group}` first: `all_reduce` with `ReduceOp.MAX`"));
    draft
}

fn other_order(collective: &Name, (other, call): (&Name, Place), condition: Place) -> Draft {
    let title = if collective == other {
        format!("ranks call `{collective}` for other tensors in the same place: their values are mixed up")
    } else {
        format!("`{collective}` meets `{other}` of the other ranks, which call the same in another order")
    };
    let mut draft = Draft::new(&codes::COLLECTIVE_ORDER, title);
    draft.primary = "comes in this place on some ranks".to_string();
    draft.labels.push(spot(call, "comes in the same place on the others".to_string()));
    draft.labels.push(spot(condition, "tells ranks apart".to_string()));
    draft.help.push("call them in one order on every rank, before or behind the test".to_string());
    draft
}

fn own_root(collective: &Name, argument: &Name, rank: Option<Place>) -> Draft {
    let title =
        format!("every rank gives itself as the `{argument}` of `{collective}`: no two ranks mean the same call");
    let mut draft = Draft::new(&codes::MISPLACED_ARGUMENT, title);
    draft.primary = format!("`{argument}` is another rank on each of them");
    draft.labels.extend(rank.map(|place| spot(place, "the rank that executes this".to_string())));
    draft.help.push(format!("give one `{argument}` on all ranks: `{argument}=0`"));
    draft
}

fn group_root(collective: &Name, argument: &Name, rank: Place) -> Draft {
    let title = format!("`{collective}` takes the rank in a group for its `{argument}`, which is a rank among all");
    let mut draft = Draft::new(&codes::DEFAULT_GROUP, title);
    draft.primary = format!("`{argument}` is counted among all ranks, whatever the group");
    draft.labels.push(spot(rank, "among the ranks of a group".to_string()));
    draft.help.push(
        "translate it: `dist.get_global_rank(group, rank)`, or pass it as `group_src` or `group_dst`".to_string(),
    );
    draft
}

fn own_list(collective: &Name, list: &Name, over: &[Name], (put, condition): (Place, Place)) -> Draft {
    let over = over.iter().map(|a| format!("`{a}`")).collect::<Vec<_>>().join(" and ");
    let title = format!("only ranks that have something in `{list}` reach `{collective}`: the others never come");
    let mut draft = Draft::new(&codes::SOME_RANKS, title);
    draft.primary = format!("over all ranks of {over}");
    draft.labels.push(spot(condition, "does not hold on a rank without any".to_string()));
    draft.labels.push(spot(put, "not every rank has such a parameter".to_string()));
    draft.help.push("start from zero where the list is empty, and reduce on every rank".to_string());
    draft
}

fn by_own_loss(collective: &Name, loss: &Name, call: Place) -> Draft {
    let title = format!("each rank decides by its own `{loss}` whether it takes part in the sum of gradients");
    let mut draft = Draft::new(&codes::SOME_RANKS, title);
    draft.primary = format!("holds on some ranks and not on others: `{loss}` is of the samples of this rank");
    draft.labels.push(spot(call, format!("`{collective}` waits for all ranks")));
    draft.help.push(
        "decide on all ranks alike: reduce the answer with `MAX` before the test, or go on with a loss of zero"
            .to_string(),
    );
    draft
}

fn constant_loss(collective: &Name, function: &Name, tested: &Name, call: Place) -> Draft {
    let title = format!("a rank whose own `{tested}` is empty takes no part in the sum of gradients");
    let mut draft = Draft::new(&codes::SOME_RANKS, title);
    draft.primary = format!("`{function}` returns a number without a gradient: this rank has no backward pass");
    draft.labels.push(spot(call, format!("`{collective}` waits for all ranks")));
    draft.help.push("return a loss of zero that is computed from the model's output on every rank".to_string());
    draft
}

fn others(exit: bool) -> String {
    let message = if exit { "the other ranks leave here" } else { "the other ranks do not come here" };
    message.to_string()
}

/// A text in one line.
fn shortened(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A scaler of losses that looks at this rank's part of the gradients.
fn by_own_part(scaler: &str, (wrapper, wrapped): (&str, Place), instead: &str) -> Draft {
    let title =
        format!("`{scaler}` looks for overflow in this rank's part of the gradients: ranks disagree whether to step");
    let mut draft = Draft::new(&codes::SOME_RANKS, title);
    draft.primary = "a scaler for gradients that every rank has whole".to_string();
    draft.labels.push(spot(wrapped, format!("`{wrapper}` leaves each rank its own part of the gradients")));
    draft.help.push(format!("use `{instead}`, which asks all ranks"));
    draft
}

/// Ranks that return where they have no gradients.
fn nothing_to_add(collective: &str, list: &str, group: &str, (reduced, condition): (Place, Place)) -> Draft {
    let title =
        format!("a rank without gradients returns before `{collective}` over `{group}`: the others wait for it");
    let mut draft = Draft::new(&codes::SOME_RANKS, title);
    draft.primary = "leaves the others alone".to_string();
    draft.labels.push(spot(condition, format!("`{list}` may be empty on some ranks: they have other parameters")));
    draft.labels.push(spot(reduced, "waits for every rank of the group".to_string()));
    draft.help.push("let a rank without gradients add zero".to_string());
    draft
}

/// A group that some ranks alone make.
fn made_by_some(maker: &str, condition: Place, exit: bool) -> Draft {
    let title = format!("only some ranks reach `{maker}`: every rank of the job takes part in making a group");
    let mut draft = Draft::new(&codes::SOME_RANKS, title);
    draft.primary = "waits for all ranks, also for those that are not in the group".to_string();
    draft.labels.push(spot(condition, others(exit)));
    draft.help.push("make the group on every rank, and keep it on those that are in it".to_string());
    draft
}

fn by_partial_sum((collective, rank): (&str, i64), test: Place, (call, at): (&str, Place)) -> Draft {
    let title = format!(
        "all ranks decide by a sum that rank {rank} alone has whether they come to `{call}`: some come, and wait for the others"
    );
    let mut draft = Draft::new(&codes::SOME_RANKS, title);
    draft.primary = format!("leaves a part of the sum on all ranks but rank {rank}");
    draft.labels.push(spot(test, "another answer on other ranks".to_string()));
    draft.labels.push(spot(at, "every rank has to come here".to_string()));
    draft.help.push(format!("use `all_reduce` instead of `{collective}`"));
    draft
}

fn by_own_data(collective: &str, tested: &str, call: Place) -> Draft {
    let title =
        format!("ranks whose samples leave `{tested}` empty never come to `{collective}`: the others wait for them");
    let mut draft = Draft::new(&codes::SOME_RANKS, title);
    draft.primary = "another answer on each rank".to_string();
    draft.labels.push(spot(call, "every rank has to come here".to_string()));
    draft.help.push(format!("call `{collective}` before the test, with zero where there is nothing"));
    draft
}

fn owns_none(collective: &str, list: &str, chosen: Place, call: Place) -> Draft {
    let title = format!("a rank whose `{list}` is empty never comes to `{collective}`: the others wait for it");
    let mut draft = Draft::new(&codes::SOME_RANKS, title);
    draft.primary = "another way on each rank".to_string();
    draft.labels.push(spot(chosen, "each rank has its own share".to_string()));
    draft.labels.push(spot(call, "every rank has to come here".to_string()));
    draft.help.push(format!("call `{collective}` on every rank, also on those that own nothing"));
    draft
}

fn stop_of_one(flag: &str, set: Place, condition: Place, waits: bool) -> Draft {
    let title = format!(
        "the first rank alone sets `{flag}`, and nothing tells the others: they go on, and wait for it for ever"
    );
    let mut draft = Draft::new(&codes::SOME_RANKS, title);
    if waits {
        draft.primary = "all ranks meet here, and learn nothing".to_string();
        draft.labels.push(spot(set, "each rank reads its own".to_string()));
    } else {
        draft.primary = "each rank reads its own".to_string();
    }
    draft.labels.push(spot(condition, "holds on one rank".to_string()));
    draft.help.push(format!("reduce or broadcast the decision on all ranks, and set `{flag}` to that"));
    draft
}
