//! Mistakes about groups and marks that the code beside them rules out. In: a finding and the text around it. Out: whether an assertion or a
//! `raise` says that there is one rank, or that two groups have the same ones, whether a hook or another mark does what is missing, and
//! whether the file takes the mean that is reported. Never: what it says of other things. Next: `mod.rs`, which asks.

use super::Lint;
use super::found::{Practice, Scales};
use super::membership::Membership;
use super::near::{self, has_any, refusals};
use super::slips::Slip;
use super::view::View;
use crate::ir::FuncKind;
use crate::source::{Name, Place};

/// Words of numbers that tell ranks apart, or count them.
const RANKS: &[&str] = &["size", "ranks", "process", "world", "num_replicas"];

/// Words of refusals where there are several ranks.
const ALONE: &[&str] = &["== 1", "!= 1", "> 1"];

/// How gradients are seen one by one.
const HOOKS: &[&str] = &["register_hook(", "register_post_accumulate_grad_hook("];

/// Whether what stands beside a finding says that it is none.
pub fn is_ruled_out(lint: &Lint<'_>, place: Place, practice: &Practice) -> bool {
    let Some(module) = lint.project.module_of(place.file) else { return false };
    let Some(view) = lint.project.func_around(module, place.span).map(|at| lint.view(at)) else { return false };
    let text = lint.files[place.file].whole();
    let class = near::class_of(&view).map(|class| lint.project.modules[module].ir.classes[class].span);
    let around = view.text(view.spot(class.unwrap_or(view.func.span)));
    match practice {
        Practice::Slips(Slip::OtherAxes { .. })
        | Practice::Scales(Scales::NodeRank { .. } | Scales::WorldRank { .. }) => is_refused(around),
        Practice::Scales(Scales::InnerDivisor { .. } | Scales::NarrowWrapper { .. }) => is_refused(text),
        Practice::Scales(Scales::AveragedParts { .. }) => is_summed_elsewhere(&view) || takes_own_mean(text),
        Practice::Scales(Scales::OtherSize { group, size, .. }) => {
            let notes = near::notes(&view);
            let left = |axis: &&Name| !size.contains(axis);
            group
                .iter()
                .filter(left)
                .any(|axis| notes.iter().any(|note| note.text.contains(&format!("summed over {axis}"))))
        }
        Practice::Membership(Membership::ExpertNotMarked { .. }) => is_never_made(&view, place, around),
        Practice::MarkMisnamed { set, .. } => {
            let setter = lint.project.module_of(set.file).and_then(|module| lint.project.func_around(module, set.span));
            setter.is_some_and(|at| {
                let setter = lint.view(at);
                has_any(setter.text(setter.spot(setter.func.span)), HOOKS)
            })
        }
        Practice::PartitionNotMarked { parameter, mark, .. } => {
            let own = format!("self.{parameter}.");
            let other = |rest: &str| {
                let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                name != mark && lint.rules.mark(name).is_some() && rest[name.len()..].starts_with(" = True")
            };
            around.split(&own).skip(1).any(other)
        }
        _ => false,
    }
}

/// Whether a text goes on only with one rank, or where two groups have the same.
fn is_refused(text: &str) -> bool {
    let compares = |line: &str| {
        let sides = line.split_once("==").or_else(|| line.split_once("!="));
        sides.is_some_and(|(a, b)| has_any(a, RANKS) && has_any(b, RANKS))
    };
    refusals(text).any(|line| has_any(line, ALONE) || compares(line))
}

/// Whether another function of the file sums the gradients of the parameters with the mark, and calls this one as well.
fn is_summed_elsewhere(view: &View<'_>) -> bool {
    let sums = |text: &str| {
        text.contains("\"sequence_parallel\"") && text.contains("all_reduce(") && !has_any(text, &["AVG", "/"])
    };
    let call = format!("{}(", view.func.name);
    let mut others = near::functions(view, view.at.module).into_iter().filter(|at| *at != view.at);
    others.any(|at| {
        let func = view.project.func(at);
        let text = view.text(view.spot(func.span));
        func.kind == FuncKind::Function && sums(text) && text.contains(&call)
    })
}

/// Whether the file computes a mean over the tokens that it has, of which it takes the gradients itself: a mean of those is the whole one.
fn takes_own_mean(text: &str) -> bool {
    text.contains(".backward()") && has_any(text, &["cross_entropy(", "mse_loss(", ".mean()"])
}

/// Whether what a test around a place asks is asserted to be otherwise.
fn is_never_made(view: &View<'_>, place: Place, text: &str) -> bool {
    let Some(step) = view.steps.iter().find(|step| view.place(step.id).span.contains(place.span.start)) else {
        return false;
    };
    step.guards.iter().any(|guard| {
        let test = view.text(view.part(guard.at, 0)).trim();
        let denied = match (guard.holds, test.strip_prefix("not ")) {
            (true, Some(of)) => of.to_owned(),
            (true, None) => format!("not {test}"),
            (false, _) => return false,
        };
        refusals(text).any(|line| line.strip_prefix("assert ").is_some_and(|rest| rest.starts_with(&denied)))
    })
}
