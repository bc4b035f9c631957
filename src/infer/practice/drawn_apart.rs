//! Weights that each rank draws for itself under an optimizer that averages gradients. In: a function that seeds by the rank, makes a model, and gives its optimizer to one
//! that averages over ranks and knows nothing of parameters. Out: that call, where the file neither broadcasts nor loads anything. Never: a model that is loaded,
//! seeded again, or handed to what is not known. Source: horovod.torch, `DistributedOptimizer` and `broadcast_parameters`. Next: `own_weights.rs`, for sums by hand.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::own_weights::{is_seed, rank_in, seeded};
use super::quiet::is_read_whole;
use super::unshared::Unshared;
use super::view::View;
use super::wrapped::parameters_of;
use crate::ir::{ArgKind, Const, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ModuleId, Resolved};
use crate::source::Name;

/// What makes weights equal, or may.
const EQUAL: &[&str] = &[
    "broadcast",
    "load_",
    "torch.load(",
    ".load(",
    "pretrained",
    "restore",
    "resume",
    "elastic",
    ".sync(",
    "fork_rng",
    "rng_state",
    "allreduce(",
    "allreduce_(",
    "allgather",
    "deepcopy",
    "set_weights",
    "set_seed",
    "seed_everything",
    "seed_all",
    "zeros",
    "ones",
    "constant_",
    "generator",
    "numpy",
    "copy_(",
    "bcast",
    "alltoall",
    "loads(",
    "process_set",
    "//",
];
/// What says that nothing is loaded after all.
const NOT_LOADED: &[&str] = &["pretrained=false", "pretrained = false"];
/// Keywords of makers that say which weights are loaded.
const LOADS: &[&str] = &["weights", "pretrained", "checkpoint", "checkpoint_path"];
const OPTIMIZER: &str = "DistributedOptimizer";

/// `torch.manual_seed(seed + hvd.rank())`, `model = Net()`, `optimizer = hvd.DistributedOptimizer(optimizer)`
pub fn averaged(view: &View<'_>, out: &mut Found) {
    let text = near::bare(view.file());
    if text.matches("manual_seed(").count() != 1 || !is_read_whole(&text, &["horovod"], EQUAL) {
        return;
    }
    let Some(at) = (0..view.steps.len()).find(|step| is_optimizer(view, *step)) else { return };
    let Some((seed, rank)) = (0..at).find_map(|step| Some((step, seeds(view, step)?))) else { return };
    let Some(model) = model_of(view, at) else { return };
    let Some(made) = view.defs(model).iter().copied().find(|def| (seed + 1..at).contains(def)) else { return };
    let within = view.steps[seed]
        .guards
        .iter()
        .all(|g| view.steps[made].guards.iter().any(|h| (g.at, g.holds) == (h.at, h.holds)));
    if !within || !is_plain(view, view.at.module) || !is_drawn(view, model, made) {
        return;
    }
    let again = |step: usize| is_seed(view, step) || near::name_of_call(view, step).is_some_and(|n| n.contains("seed"));
    if (seed + 1..made).any(again) || !view.file().contains(".step(") || !stays(view, model) {
        return;
    }
    let mistake =
        Unshared::DrawnApart { rank, seeded: view.place(view.steps[seed].id), made: view.place(view.steps[made].id) };
    out.push((view.place(view.steps[at].id), Practice::Unshared(mistake)));
}

/// Whether a step makes an optimizer that averages gradients, of a library that has nothing to do with parameters.
fn is_optimizer(view: &View<'_>, step: usize) -> bool {
    let path = view.value(step).and_then(|value| view.callee(value));
    path.is_some_and(|path| path.starts_with("horovod.") && super::lost::last(&path) == OPTIMIZER)
}

/// The rank that a step seeds with, itself or in a function of the file that is given the number.
fn seeds(view: &View<'_>, step: usize) -> Option<Name> {
    if let Some(rank) = seeded(view, step) {
        return Some(rank);
    }
    let Some(Rvalue::Call { callee, args }) = view.value(step) else { return None };
    let inner = near::shared(view, near::function(view, callee)?);
    let (n, rank) = args.iter().enumerate().find_map(|(n, arg)| Some((n, rank_in(view, &view.expr(&arg.value))?)))?;
    let param = inner.func.params.get(n).filter(|_| args[n].kind == ArgKind::Positional)?.local;
    let passes_on = (0..inner.steps.len()).any(|s| match inner.value(s) {
        Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => {
            is_seed(&inner, s)
                && args.first().is_some_and(|a| near::reached(&inner, &a.value, |_| true).contains(&param))
        }
        _ => false,
    });
    passes_on.then_some(rank)
}

/// The model whose parameters an optimizer has: those that it is told the names of, or those of the optimizer that it is given.
fn model_of(view: &View<'_>, step: usize) -> Option<LocalId> {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step)? else { return None };
    let named = view.argument(args, 1, "named_parameters").and_then(|named| parameters_of(view, named));
    let inner = || {
        let given = near::local(&args.first()?.value)?;
        let def = view.last_def(given, step)?;
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(def)? else { return None };
        parameters_of(view, &args.first()?.value)
    };
    match named.or_else(inner)? {
        Expr::Local(local) => Some(local),
        _ => None,
    }
}

/// Whether the file of a module neither broadcasts nor loads.
fn is_plain(view: &View<'_>, module: ModuleId) -> bool {
    let text = near::bare(view.files[view.project.file(module)].whole());
    let text = NOT_LOADED.iter().fold(text, |text, no| text.replace(no, ""));
    !near::has_any(&text, EQUAL)
}

/// Whether a step makes a model that is drawn: what it calls is not told to load anything.
fn is_drawn(view: &View<'_>, model: LocalId, made: usize) -> bool {
    let mut expr = view.bound(made, model);
    while let Expr::Call { callee, .. } = &expr
        && let Expr::Attr(base, _) = &**callee
        && matches!(**base, Expr::Call { .. })
    {
        expr = (**base).clone();
    }
    let Expr::Call { callee, args, .. } = expr else { return false };
    let loads = args.iter().any(|(kind, value)| {
        let off = matches!(value, Expr::Const(Const::None | Const::Bool(false)));
        matches!(kind, ArgKind::Keyword(name) if LOADS.contains(&name.as_str())) && !off
            || matches!(kind, ArgKind::Star | ArgKind::DoubleStar)
            || matches!(value, Expr::Const(Const::Bool(true)))
    });
    !loads && is_known(view, &callee)
}

/// Whether what is called stands in a file that neither broadcasts nor loads, or makes an object.
fn is_known(view: &View<'_>, callee: &Expr) -> bool {
    let Some(path) = near::path(view, callee) else { return false };
    match view.project.path(&path) {
        Resolved::Func(at) => is_plain(view, at.module),
        Resolved::Class(at) => is_plain(view, at.module),
        _ => true,
    }
}

/// Whether a model is given to nothing that may make it equal on all ranks.
fn stays(view: &View<'_>, model: LocalId) -> bool {
    view.readers(model).iter().all(|step| match view.steps[*step].stmt {
        Stmt::SetAttr { .. } | Stmt::SetItem { .. } => false,
        Stmt::Assign { value: value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }), .. } => {
            let given = args.iter().any(|arg| arg.value == Operand::Local(model));
            !given || is_harmless(view, value)
        }
        _ => true,
    })
}

/// Whether a call is one of a function of the project in a file that neither broadcasts nor loads.
fn is_harmless(view: &View<'_>, value: &Rvalue) -> bool {
    match value {
        Rvalue::Call { callee, .. } => {
            match near::path(view, &view.through(callee)).map(|path| view.project.path(&path)) {
                Some(Resolved::Func(at)) => is_plain(view, at.module),
                _ => false,
            }
        }
        _ => false,
    }
}
