//! Sums of gradients that only a clipped step gets. In: a function with a step of an optimizer. Out: the one reduction of gradients before it,
//! under a test whether gradients are clipped, while the step is made either way. Never: a function whose file wraps a model, whose other
//! branch reduces as well, or whose step reduces by itself. Source: Hugging Face transformers, pull request 20116: the reduction on XLA devices
//! went into the branch of `max_grad_norm`. Next: `no_sync.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::lost::last;
use super::near;
use super::training::Training;
use super::view::{Guard, View};
use crate::ir::{Operand, Rvalue, Stmt, StmtId};

/// Parts of names of options that say whether gradients are clipped.
pub const CLIPS: &[&str] = &["max_grad_norm", "grad_clip", "clip_grad", "clip_norm", "max_norm", "gradient_clip"];

/// Parts of tests about more than clipping.
const OTHERS: &[&str] =
    &["world", "dist", "rank", "parallel", "tpu", "xla", "is_initialized", "ddp", "fsdp", "backend"];

/// Words of files in which something else may reduce.
const ELSEWHERE: &[&str] = &[
    "distributeddataparallel",
    "ddp(",
    "fsdp",
    "fully_shard",
    "optimizer_step(",
    "hook",
    "distributedoptim",
    "distributed_optim",
    "zeroredundancy",
    "replicate(",
];

/// `if max_grad_norm > 0: reduce_gradients(optimizer); clip(..)`, and `optimizer.step()` behind it
pub fn reduced(view: &View<'_>, out: &mut Found) {
    let reductions: Vec<usize> = (0..view.steps.len()).filter(|step| reduces(view, *step)).collect();
    let [first, others @ ..] = &reductions[..] else { return };
    let Some(guard) = view.steps[*first].guards.iter().find(|guard| guard.holds && clips(view, guard)) else { return };
    let under = |step: usize, at: StmtId| view.steps[step].guards.iter().any(|g| g.at == at && g.holds);
    if others.iter().any(|step| !under(*step, guard.at)) {
        return;
    }
    let outer = |step: usize| view.steps[step].guards.iter().take_while(|g| g.at != guard.at).count();
    let shared = &view.steps[*first].guards[..outer(*first)];
    // What stands between the reduction and the step decides nothing about clipping.
    let stepped = (first + 1..view.steps.len()).find(|step| steps(view, *step) && !asks(view, *step, guard.at));
    let Some(stepped) = stepped else { return };
    let same_way = shared.iter().all(|g| view.steps[stepped].guards.iter().any(|h| h.at == g.at && h.holds == g.holds));
    let file = near::bare(view.file());
    let test = view.text(view.part(guard.at, 0));
    if !same_way
        || near::has_any(&file, ELSEWHERE)
        || is_always_on(test, &file)
        || is_called_elsewhere(view, &reductions, &file)
    {
        return;
    }
    let stepped = view.place(view.steps[stepped].id);
    let reduced = view.place(view.steps[*first].id);
    let mistake = Training::ClippedOnly { test: test.into(), reduced, stepped };
    out.push((view.place(guard.at), Practice::Training(mistake)));
}

/// Whether a test is about clipping, and about nothing else that decides who reduces.
fn clips(view: &View<'_>, guard: &Guard<'_>) -> bool {
    let test = view.text(view.part(guard.at, 0)).to_lowercase();
    near::has_any(&test, CLIPS) && !near::has_any(&test, OTHERS)
}

/// Whether a file, without comments and in lowercase, says that a test always holds: it fills the option in, bounds it, or refuses others.
fn is_always_on(test: &str, file: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect()
    };
    // A constant of the module is what it is.
    let is_constant = |option: &String| option.chars().all(|c| !c.is_lowercase());
    let options = words(test).into_iter().filter(|word| near::has_any(&word.to_lowercase(), CLIPS));
    let (constants, options): (Vec<String>, Vec<String>) = options.partition(is_constant);
    let fills = |line: &str, option: &str| {
        let rest = line.trim_start_matches("self.").strip_prefix(option).map(str::trim_start);
        rest.and_then(|rest| rest.strip_prefix('='))
            .is_some_and(|value| value.trim().starts_with("float(") || value.trim().parse::<f64>().is_ok())
    };
    let bounds = [" or ", "max(", "gt=", "positive", "raise", "assert"];
    let says = |option: String| {
        let lines = file.lines().map(str::trim);
        let bounded = |line: &str| near::has_any(line, &bounds) && words(line).contains(&option);
        lines.into_iter().any(|line| fills(line, &option) || bounded(line))
            || near::refusals(file).any(|line| words(line).contains(&option))
    };
    !constants.is_empty() || options.into_iter().map(|option| option.to_lowercase()).any(says)
}

/// Whether a function that reduces is called at other places of the file as well: for the other answer, by a caller.
fn is_called_elsewhere(view: &View<'_>, reductions: &[usize], file: &str) -> bool {
    reductions.iter().any(|step| {
        let Some(name) = near::name_of_call(view, *step) else { return false };
        let here = reductions.iter().filter(|other| near::name_of_call(view, **other).as_ref() == Some(&name)).count();
        let calls = file.matches(&format!("{name}(")).count() - file.matches(&format!("def {name}(")).count();
        name != "all_reduce" && calls > here
    })
}

/// Whether a step stands under an answer of this test.
fn asks(view: &View<'_>, step: usize, at: StmtId) -> bool {
    view.steps[step].guards.iter().any(|guard| guard.at == at || clips(view, guard))
}

/// Whether a step reduces gradients: a collective of them, or a function that is called so.
fn reduces(view: &View<'_>, step: usize) -> bool {
    let Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) = view.value(step) else { return false };
    if let Some(call) = view.collective(value) {
        return call.input.is_some_and(|input| is_gradient(view, input));
    }
    let of_module = || view.callee(value).is_some_and(|path| path.contains('.') && !path.starts_with('.'));
    let name = match value {
        // An optimizer that reduces may do so in its step as well.
        Rvalue::CallMethod { base, .. } if !near::is_self(view, base) && !of_module() => return false,
        Rvalue::CallMethod { name, .. } => name.to_string(),
        _ => match view.callee(value) {
            Some(path) => last(&path).to_string(),
            None => return false,
        },
    };
    let name = name.to_lowercase();
    let sums = ["reduce", "average_", "sync_", "synchronize_"].iter().any(|word| name.contains(word));
    sums && name.contains("grad") && !name.contains("norm") && !name.contains("no_sync")
        || name == "all_reduce" && value.operands().into_iter().any(|operand| is_gradient(view, operand))
}

/// Whether an operand is gradients: of a parameter, or of all that an optimizer has.
fn is_gradient(view: &View<'_>, operand: &Operand) -> bool {
    view.through(operand).any(&mut |e| match e {
        Expr::Attr(_, name) => matches!(name.as_str(), "grad" | "main_grad"),
        Expr::Call { callee, .. } => callee.last_name() == Some("_fetch_gradients"),
        _ => false,
    })
}

/// Whether a step is that of an optimizer.
fn steps(view: &View<'_>, step: usize) -> bool {
    let Some(Rvalue::CallMethod { base, name, args }) = view.value(step) else { return false };
    let named = |operand: &Operand| {
        let of = view.through(operand);
        let name = view.name_of(&of).map(str::to_lowercase).unwrap_or_default();
        name.contains("optim") || name == "opt"
    };
    let is_statement = matches!(view.steps[step].stmt, Stmt::Assign { .. });
    is_statement && name == "step" && (named(base) || args.iter().any(|arg| named(&arg.value)))
}
