//! Losses that undo a mean over fewer ranks than it is taken over. In: a function. Out: a factor of a loss that is the number of data ranks alone, in a
//! file that averages gradients over data and context ranks together and puts this rank's part, the only one with a gradient, among those that it
//! gathers from the context ranks: gradients are too small by the number of these. Never: a gather whose backward sums, or a file that
//! multiplies by the number of context ranks too. Source: SkyRL pull request 1420. Next: `wrapper_size.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::mixed_mean;
use super::omissions::Omission;
use super::reducers::is_gradient;
use super::view::View;
use super::wrapper_size::factors;
use super::{Found, named_axes, near};
use crate::ir::{LocalId, Rvalue, Stmt};
use crate::source::{Name, Place};

/// The axis of the ranks with other samples, and that of those that share a sequence.
const DATA: &str = "dp";
const CONTEXT: &str = "cp";
/// Collectives with a backward of their own, which sums.
const SUMMING: &[&str] =
    &["nn.functional", "dist_nn", "dist.nn.", "distributed.nn", "autograd.function", "reduce_scatter"];

/// `factor = rounds * dp_size`, which a loss is multiplied by.
pub fn losses(view: &View<'_>, out: &mut Found) {
    let mut text = None;
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, .. } = step.stmt else { continue };
        if view.is_temp(*dst) || !step.guards.is_empty() {
            continue;
        }
        let value = view.bound(i, *dst);
        let (mut times, mut over) = (Vec::new(), Vec::new());
        factors(&value, true, &mut times, &mut over);
        let axes = |e: &Expr| named_axes::of_size(view, e).unwrap_or_default();
        if !times.iter().any(|e| axes(e) == [DATA]) || over.iter().any(|e| !axes(e).is_empty()) {
            continue;
        }
        let text = text.get_or_insert_with(|| near::bare(view.file()));
        if near::has_any(text, SUMMING) || !scales_loss(view, text, *dst) || text.lines().any(counts_context) {
            continue;
        }
        let Some(mean) = seen_in(view, averaged) else { continue };
        let Some(gathered) = seen_in(view, own_among_gathered) else { continue };
        let mistake = Omission::FewerUndone { factor: view.local_name(*dst).clone(), mean, gathered };
        out.push((view.place(step.id), Practice::Omission(mistake)));
        return;
    }
}

/// Whether a variable is a loss, or a line multiplies one by it.
fn scales_loss(view: &View<'_>, text: &str, factor: LocalId) -> bool {
    let name = view.local_name(factor).to_lowercase();
    let scales = |line: &str| line.contains('*') && line.contains("loss") && near::has_word(line, &name);
    near::has_part(&name, "loss") || text.lines().any(scales)
}

/// Whether a line multiplies by what may be the number of context ranks.
fn counts_context(line: &str) -> bool {
    let names = ["cp_size", "cp_world", "context_parallel_size", "context_parallel_world", "cp_degree", "sp_size"];
    near::has_any(line, &names) && near::has_any(line, &["*", "mul", "/", "div"])
}

/// Where one of the functions of the file does something.
fn seen_in(view: &View<'_>, sought: fn(&View<'_>) -> Option<Place>) -> Option<Place> {
    near::functions(view, view.at.module).into_iter().find_map(|at| sought(&near::shared(view, at)))
}

fn has(axes: &[Name], axis: &str) -> bool {
    axes.iter().any(|a| a == axis)
}

/// Where a function averages gradients over data and context ranks.
fn averaged(view: &View<'_>) -> Option<Place> {
    view.collectives().iter().find_map(|(at, call)| {
        let axes = named_axes::of_group(view, &view.expr(call.group?))?;
        let gradient = is_gradient(&view.through(call.input?));
        let divides = |step: usize| match view.value(step) {
            Some(Rvalue::CallMethod { base, name, args }) if name == "div_" && is_gradient(&view.through(base)) => {
                args.first().is_some_and(|by| named_axes::of_size(view, &view.expr(&by.value)).as_ref() == Some(&axes))
            }
            _ => false,
        };
        let mean = mixed_mean::averages(view, call) == Some(true) || (0..view.steps.len()).any(divides);
        (gradient && mean && has(&axes, DATA) && has(&axes, CONTEXT)).then(|| view.place(view.steps[*at].id))
    })
}

/// Where a function puts what it was given among the parts that it has gathered from context ranks, at this rank's place.
fn own_among_gathered(view: &View<'_>) -> Option<Place> {
    let gathers = view.collectives().iter().any(|(_, call)| {
        let axes = call.group.and_then(|group| named_axes::of_group(view, &view.expr(group)));
        call.rule.op == "all_gather" && axes.is_some_and(|axes| axes == [CONTEXT])
    });
    let own = |step: &super::view::Step<'_>| match step.stmt {
        Stmt::SetItem { index, value, .. } => {
            let rank = named_axes::of_rank(view, &view.expr(index)).is_some_and(|axes| axes == [CONTEXT])
                || view.name_of(&view.expr(index)).is_some_and(|name| near::has_part(name, "rank"));
            rank && near::local(value).is_some_and(|local| view.is_as_given(local))
        }
        _ => false,
    };
    gathers.then(|| view.steps.iter().find(|step| own(step)).map(|step| view.place(step.id))).flatten()
}
