//! Data of a data-parallel rank that the ranks of it draw apart. In: a function. Out: a data set whose samples are those of the data-parallel rank, and whose random numbers
//! come of a seed with the rank among all ranks in it: ranks that have parts of one model are given one sample, and each changes it in another way. Never: a file that sends
//! data to other ranks, a rank whose group is not told apart from all ranks, or random numbers of anything but data. Source: metaseq pull request 753.
//! Next: `sample_seed.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::rank_tests::test;
use super::sample_seed::has_rank;
use super::unshared::Unshared;
use super::view::View;
use super::wrapped::function;
use crate::ir::{Arg, ArgKind, Rvalue};
use crate::source::Place;

/// Words of files in which the ranks of a model may come to have the same data after all.
const SHARES: &[&str] = &["broadcast", "set_state", "all_gather", "scatter", "send(", "recv("];
/// What a data set is called.
const DATA: &[&str] = &["data", "load", "stream", "sampler"];
/// What makes random numbers of a seed.
const MAKERS: &[&str] = &["default_rng", "RandomState", "Random", "manual_seed", "SeedSequence", "PCG64"];
/// Dims of a mesh of ranks that have one sample.
const OTHERS: &[&str] = &["\"tp\"", "'tp'", "\"pp\"", "'pp'", "\"mp\"", "'mp'", "\"cp\"", "'cp'", "\"sp\"", "'sp'"];

/// Words of conditions about the number of ranks that have one sample.
const SIZES: &[&str] = &["parallel", "world_size", "tp", "mp", "size"];

/// `Masked(Stream(documents, get_data_parallel_rank()), default_rng([seed, dist.get_rank()]))`
pub fn drawn(view: &View<'_>, out: &mut Found) {
    let refused = || near::refusals(view.file()).any(|line| near::has_any(line, &["== 1", "> 1", "!= 1"]));
    if near::has_any(&near::bare(view.file()), SHARES) || refused() {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            continue;
        };
        // Where a condition asks how many ranks have one sample, there may be one.
        let asks = |at| near::has_any(&view.text(view.part(at, 0)).to_lowercase(), SIZES);
        if step.guards.iter().any(|g| test(view, g).is_some() || asks(g.at)) {
            continue;
        }
        let Some(name) = near::written_name(view, value) else { continue };
        // What shuffles by such a seed is another mistake.
        if !near::has_any(&name.to_lowercase(), DATA) || name.ends_with("DistributedSampler") {
            continue;
        }
        let Some(seeded) = args.iter().find_map(|arg| seed(view, i, arg)) else { continue };
        let Some(split) = args.iter().find_map(|arg| split(view, i, arg)) else { continue };
        let mistake = Unshared::DataDrawnApart { data: name, split, given: view.place(step.id) };
        out.push((seeded, Practice::Unshared(mistake)));
        return;
    }
}

/// Where an argument is seeded with the rank among all ranks: random numbers, or the seed itself.
fn seed(view: &View<'_>, call: usize, arg: &Arg) -> Option<Place> {
    let rank = |e: &Expr| match near::deep(view, e) {
        Expr::Build(items) => items.iter().any(|e| has_rank(view, e)),
        other => has_rank(view, &other),
    };
    // What waits for another try, or shuffles, draws nothing for a sample.
    let otherwise = |name: &str| ["retry", "backoff", "wait", "jitter"].iter().any(|word| name.contains(word));
    if matches!(&arg.kind, ArgKind::Keyword(name) if otherwise(name)) {
        return None;
    }
    match near::deep(view, &view.expr(&arg.value)) {
        Expr::Call { callee, args, step } if callee.last_name().is_some_and(|name| MAKERS.contains(&name)) => {
            args.first().filter(|(_, e)| rank(e)).map(|_| view.place(view.steps[step].id))
        }
        other => {
            let named = matches!(&arg.kind, ArgKind::Keyword(name) if name == "seed" || name.ends_with("_seed"));
            (named && matches!(other, Expr::Binary(..)) && has_rank(view, &other))
                .then(|| view.place(view.steps[call].id))
        }
    }
}

/// Where what an argument is goes by the rank among those that have other data.
fn split(view: &View<'_>, call: usize, arg: &Arg) -> Option<Place> {
    match near::deep(view, &view.expr(&arg.value)) {
        Expr::Call { callee, args, step } if !is_data_rank(view, &callee, &args) => {
            let of = |(_, e): &_| match near::deep(view, e) {
                Expr::Call { callee, args, .. } => is_data_rank(view, &callee, &args),
                _ => false,
            };
            args.iter().any(of).then(|| view.place(view.steps[step].id))
        }
        Expr::Call { .. } => Some(view.place(view.steps[call].id)),
        _ => None,
    }
}

/// Whether a call asks for the rank among those that have other data, where there are others that have the same.
fn is_data_rank(view: &View<'_>, callee: &Expr, args: &[(ArgKind, Expr)]) -> bool {
    match callee.last_name() {
        Some("get_data_parallel_rank") => match function(view, callee) {
            Some(at) => near::has_any(near::shared(view, at).code(), &["group", "mesh", "//"]),
            None => true,
        },
        Some("get_local_rank") => {
            let data = |e: &Expr| e.string().is_some_and(|name| name == "dp");
            let of_mesh = match callee {
                Expr::Attr(base, _) => match &near::deep(view, base) {
                    Expr::Item(_, dim) => args.is_empty() && data(dim),
                    _ => false,
                },
                _ => false,
            };
            let named = matches!(args, [(_, dim)] if data(dim));
            (of_mesh || named) && near::has_any(view.file(), OTHERS)
        }
        _ => false,
    }
}
