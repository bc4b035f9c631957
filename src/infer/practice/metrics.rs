//! What a training loop communicates that is no gradient, and loaders that take a part of the data for each rank. In: a view. Out: its code
//! without those calls; where data is split. Never: a sum of what is not computed here. Next: `unreduced_step.rs`.

use super::expr::Expr;
use super::near;
use super::view::View;
use crate::ir::{Arg, ArgKind, LocalId, Operand, Rvalue, Stmt};
use crate::source::Place;

/// Words for what gives a process its data.
const LOADERS: &[&str] = &["loader", "dataset", "sampler", "batches"];

/// Parts of names for the number of processes. One of these words has to stand in a file for [`split`] to find anything in it.
pub const COUNTS: &[&str] = &["world_size", "num_processes", "num_shards", "num_ranks", "shard_count", "worldsize"];

/// Where something that gives data is made for one rank of so many.
pub fn split(view: &View<'_>) -> Option<Place> {
    (0..view.steps.len()).find_map(|step| {
        let value = view.value(step)?;
        let (name, args) = match value {
            Rvalue::Call { callee, args } => match view.expr(callee) {
                // A class of the module whose body this is.
                Expr::Local(class) => (view.local_name(class).to_string(), args),
                other => (other.last_name()?.to_string(), args),
            },
            Rvalue::CallMethod { name, args, .. } => (name.to_string(), args),
            _ => return None,
        };
        let name = name.to_lowercase();
        let is_loader = LOADERS.iter().any(|w| name.contains(w));
        let of_one = args.iter().any(|arg| named(view, arg, is_rank));
        let of_many = args.iter().any(|arg| named(view, arg, is_count));
        (is_loader && of_one && of_many).then(|| view.place(view.steps[step].id))
    })
}

fn is_rank(name: &str) -> bool {
    near::has_part(name, "rank") && !near::has_part(name, "local") && !is_count(name)
}

fn is_count(name: &str) -> bool {
    let name = name.to_lowercase();
    COUNTS.iter().any(|w| name.contains(w))
}

/// Whether an argument, a variable, goes by a name of this kind: its keyword's or its own.
fn named(view: &View<'_>, arg: &Arg, is: fn(&str) -> bool) -> bool {
    let own = match view.expr(&arg.value) {
        Expr::Local(local) => Some(view.local_name(local).to_string()),
        Expr::Path(path) => path.rsplit('.').next().map(str::to_string),
        Expr::Attr(_, name) => Some(name.to_string()),
        Expr::Call { callee, .. } => callee.last_name().map(str::to_string),
        _ => None,
    };
    let Some(own) = own else { return false };
    is(&own) || matches!(&arg.kind, ArgKind::Keyword(name) if is(name))
}

/// Words in what a sum is made of that may bring gradients, parameters, or anything else of a model along.
const OF_MODELS: &[&str] = &[
    "grad",
    "param",
    "weight",
    "flat",
    "bucket",
    "buffer",
    "model",
    "state_dict",
    "optim",
    "anchor",
    "delta",
    ".data",
];

/// Whether a file imports the wrapper that sums gradients, and calls it nowhere: other programs have other ways to use what each rank
/// computes, such as a model for each rank.
pub fn forgets_wrapper(view: &View<'_>) -> bool {
    let file = view.file();
    const WRAPPER: &str = "DistributedDataParallel";
    let (mut imported, mut names) = (false, vec![WRAPPER]);
    let lines = near::words(file, WRAPPER).map(|at| line_around(file, at));
    for (line, _) in lines.filter(|(line, _)| line.contains("import ")) {
        imported = true;
        names.extend(line.split(" as ").nth(1).map(|name| name.trim().split([',', ' ', ')']).next().unwrap_or(name)));
    }
    // Neither imported, in a comment, nor in a text.
    let is_use = |at: usize| {
        let (line, start) = line_around(file, at);
        let before = &file[start..at];
        !line.contains("import ") && !before.contains('#') && before.matches(['"', '\'']).count().is_multiple_of(2)
    };
    let used = |name: &str| near::words(file, name).any(is_use);
    imported && !names.into_iter().any(used)
}

/// The line that a place of a text is in, and where it starts.
fn line_around(text: &str, at: usize) -> (&str, usize) {
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
    (&text[start..end], start)
}

/// What sounds like communication and is none: a choice of elements, a wish to a wrapper, devices and processes of torch_xla.
const QUIET: &[&str] = &[
    "torch.gather(",
    "require_backward_grad_sync",
    "torch_xla.device(",
    "torch_xla.launch(",
    "torch_xla.sync(",
    "xm.xla_device(",
];

/// Words of a program that splits what it computes by annotations, and not by processes.
const ANNOTATED: &[&str] = &["use_spmd", "mark_sharding", "distributed.spmd"];

/// The code of a view without its sums of values that are computed here and are no gradients, and without what only sounds like one.
pub fn without(view: &View<'_>, code: &str) -> String {
    let file = view.file();
    if ANNOTATED.iter().any(|w| file.contains(w)) {
        return code.to_string();
    }
    let mut out = QUIET.iter().fold(code.to_string(), |out, quiet| out.replace(quiet, "("));
    if !forgets_wrapper(view) {
        return out;
    }
    for (step, call) in view.collectives() {
        if call.input.is_some_and(|input| is_metric(view, input)) {
            let text = view.text(view.place(view.steps[*step].id)).to_lowercase();
            out = out.replace(&text, "");
        }
    }
    out
}

/// Parts of names of what is computed for the log.
const SHOWN: &[&str] = &[
    "loss",
    "acc",
    "metric",
    "correct",
    "total",
    "count",
    "num",
    "tokens",
    "score",
    "reward",
    "return",
    "ppl",
    "perplexity",
    "elapsed",
    "time",
    "avg",
    "mean",
    "stat",
    "stats",
    "error",
    "hits",
    "shown",
    "log",
    "logs",
    "batch",
    "samples",
    "norm",
];

/// Whether a variable goes by the name of a loss or a count, is made of nothing of a model, and no gradient is asked of it.
fn is_metric(view: &View<'_>, input: &Operand) -> bool {
    let Expr::Local(local) = view.expr(input) else { return false };
    let shown = SHOWN.iter().any(|part| near::has_part(view.local_name(local), part));
    let backward =
        |step: &usize| matches!(view.value(*step), Some(Rvalue::CallMethod { name, .. }) if name == "backward");
    shown && !view.is_param(local) && !view.readers(local).iter().any(backward) && !is_of_model(view, local)
}

/// Whether a value is made of parameters, or of what a loop over some of a model's gives.
fn is_of_model(view: &View<'_>, local: LocalId) -> bool {
    let mut todo = vec![local];
    let mut seen = Vec::new();
    while let Some(local) = todo.pop() {
        if seen.contains(&local) {
            continue;
        }
        seen.push(local);
        // The loss of a model, on data that a loop gives, is no part of it.
        for def in view.defs(local) {
            let step = view.steps[*def].id;
            let text = match view.steps[*def].stmt {
                Stmt::For { .. } => view.text(view.part(step, 0)),
                _ => view.text(view.place(step)),
            };
            let text =
                text.to_lowercase().replace("grad_accum", "").replace("gradient_accum", "").replace("no_grad", "");
            let words = OF_MODELS.iter().filter(|w| **w != "model" || text.contains(".modules"));
            if words.into_iter().any(|w| text.contains(w)) || text.contains("zip(") {
                return true;
            }
            todo.extend(view.reads(*def).into_iter().filter_map(near::local));
        }
    }
    false
}
