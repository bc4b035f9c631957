//! Streams of random numbers of one rank where all need their own, and the other way around. In: a function. Out: a model that is drawn with a seed that has the rank
//! in it, in a file that averages over ranks and never makes the weights equal; a state of random numbers that one rank saves and all load, where the
//! seeds differ by rank. Never: ranks with parts of a model, wrappers, which broadcast, or files that load, send or gather. Source: torch, reproducibility;
//! torch.nn.parallel.DistributedDataParallel, which broadcasts the state of its module. Next: `sample_seed.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::rank_tests::test;
use super::unshared::Unshared;
use super::view::View;
use super::wrapped::function;
use crate::ir::{ArgKind, FuncKind, LocalId, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::Name;
use std::rc::Rc;

/// What makes weights equal, or may, or draws them by other means.
const EQUAL: &[&str] = &[
    "broadcast",
    "distributeddataparallel",
    "ddp",
    "fsdp",
    "fully_shard",
    "initialize(",
    "load(",
    "load_",
    "pretrained",
    "checkpoint",
    "prepare",
    "restore",
    "scatter",
    "gather",
    "send(",
    "recv(",
    "sync_module",
    "sync_param",
    "sync_weight",
    "replicate",
    "deepcopy",
    "fork_rng",
    "rng_state",
    "seed_everything",
    "set_seed",
    "isolate",
    "zeros_(",
    "ones_(",
    "constant_(",
    "eye_(",
    "dirac_(",
    "linspace",
    "reset_parameters",
    "numpy",
    "meta",
    "ensemble",
    "population",
];

/// What draws weights.
const DRAWS: &[&str] =
    &["normal_(", "uniform_(", "kaiming_", "xavier_", "nn.linear(", "nn.conv", "nn.embedding(", "nn.transformer"];

/// What says that ranks have parts of a model.
const OF_PARTS: &[&str] = &[
    "tensor_parallel",
    "model_parallel",
    "tp_",
    "_tp",
    "pipeline",
    "stage",
    "expert",
    "columnparallel",
    "local_shard",
];

/// Parts of names of ranks that have other parts of the model.
const OTHER_RANKS: &[&str] = &["tp", "pp", "ep", "mp", "model", "tensor", "pipeline", "stage", "expert", "shard"];

/// `torch.manual_seed(seed + rank)`, and `model = Net()`
pub fn drawn(view: &View<'_>, out: &mut Found) {
    let Some((seed, rank)) = (0..view.steps.len()).find_map(|step| Some((step, seeded(view, step)?))) else { return };
    let again = |at: &usize| view.code().matches("seed(").count() > 1 && is_seed(view, *at);
    let Some(made) = (seed + 1..view.steps.len()).find(|at| is_model(view, *at)) else { return };
    if (seed + 1..made).any(|at| again(&at))
        || !view.steps[seed]
            .guards
            .iter()
            .all(|g| view.steps[made].guards.iter().any(|h| (g.at, g.holds) == (h.at, h.holds)))
    {
        return;
    }
    let text = near::bare(view.file());
    let parts = near::has_any(&text, OF_PARTS) || near::has_word(&text, "tp");
    let drawn_again = |at: FuncRef| {
        let inner = near::shared(view, at);
        inner.code().contains("copy_(") && inner.code().contains("generator")
    };
    let again = text.matches("torch.manual_seed(").count() > 1
        || near::functions(view, view.at.module).into_iter().any(drawn_again);
    let draws = near::has_any(&text, DRAWS) && !near::has_any(view.code(), &["generator", "with ", "copy_("]) && !again;
    if parts || near::has_any(&text, EQUAL) || !draws || !averages_gradients(&text) {
        return;
    }
    let mistake = Unshared::OwnWeights { rank, made: view.place(view.steps[made].id) };
    out.push((view.place(view.steps[seed].id), Practice::Unshared(mistake)));
}

/// Whether all that a text sums over ranks is gradients, or numbers, and gradients are among it: sums of weights make these equal.
fn averages_gradients(text: &str) -> bool {
    let mut gradients = false;
    for (at, call) in text.match_indices("all_reduce(") {
        let given = &text[at + call.len()..];
        let given = given.split([',', ')', '\n']).next().unwrap_or_default();
        let of_gradient = ["grad", "delta"].iter().any(|word| given.contains(word));
        if !of_gradient && !["loss", "count", "total", "metric"].iter().any(|word| given.contains(word)) {
            return false;
        }
        gradients |= of_gradient;
    }
    gradients && !text.contains("reduce_op") && !near::has_any(text, &["reduceop.max", "reduceop.min"])
}

/// The rank that a step seeds all that is drawn with, by its name.
pub(super) fn seeded(view: &View<'_>, step: usize) -> Option<Name> {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step)? else { return None };
    is_seed(view, step).then_some(())?;
    let number = &args.first()?.value;
    // A parameter that is bound again is another number from there on.
    let bound = near::local(number).and_then(|l| Some(view.bound(view.last_def(l, step)?, l)));
    rank_in(view, &bound.unwrap_or_else(|| view.expr(number)))
}

pub(super) fn is_seed(view: &View<'_>, step: usize) -> bool {
    view.value(step).and_then(|value| view.callee(value)).is_some_and(|path| path == "torch.manual_seed")
}

/// The name of a rank in a number, of those that have the same model.
pub(super) fn rank_in(view: &View<'_>, number: &Expr) -> Option<Name> {
    let mut found = None;
    near::deep(view, number).any(&mut |e| {
        let name = match e {
            Expr::Call { callee, .. } => callee.last_name(),
            e => view.name_of(e),
        };
        let is_rank =
            |name: &&str| near::has_part(name, "rank") && !OTHER_RANKS.iter().any(|w| near::has_part(name, w));
        found = found.clone().or_else(|| name.filter(is_rank).map(Name::from));
        found.is_some()
    });
    found
}

/// Whether a step makes a model.
fn is_model(view: &View<'_>, step: usize) -> bool {
    let Stmt::Assign { dst, value: Rvalue::Call { .. } | Rvalue::CallMethod { .. } } = view.steps[step].stmt else {
        return false;
    };
    let named = |l: LocalId| matches!(view.local_name(l).as_str(), "model" | "net" | "network" | "policy" | "encoder");
    let called = near::name_of_call(view, step).map(|name| name.to_lowercase()).unwrap_or_default();
    let handed_on = matches!(called.as_str(), "to" | "cuda" | "train" | "eval" | "compile" | "load");
    let bound = if view.is_temp(*dst) { taken_on(view, *dst) } else { Some(*dst) };
    bound.is_some_and(named) && !handed_on
}

/// The variable that what a step gives goes to, through methods that hand a module on.
fn taken_on(view: &View<'_>, temp: LocalId) -> Option<LocalId> {
    let [reader] = view.readers(temp) else { return None };
    match view.steps[*reader].stmt {
        Stmt::Assign { dst, value: Rvalue::CallMethod { name, .. } }
            if matches!(name.as_str(), "to" | "cuda" | "train") =>
        {
            if view.is_temp(*dst) {
                taken_on(view, *dst)
            } else {
                Some(*dst)
            }
        }
        Stmt::Assign { dst, value: Rvalue::Use(_) } => Some(*dst),
        _ => None,
    }
}

/// `if rank == 0: torch.save(get_rng_state(), path)`, and `set_rng_state(torch.load(path))`
pub fn restored(view: &View<'_>, out: &mut Found) {
    let Some(saved) = (0..view.steps.len()).find(|step| saves_state(view, *step)) else { return };
    let text = near::bare(view.file());
    if ["gather", "scatter", "broadcast_object"].iter().any(|word| text.contains(word)) {
        return;
    }
    let functions: Vec<Rc<View<'_>>> =
        near::functions(view, view.at.module).into_iter().map(|at| near::shared(view, at)).collect();
    let seeding = functions.iter().filter(|f| starts_by_rank(f, &text));
    let by_rank: Vec<&Name> = seeding.map(|f| &f.func.name).collect();
    if by_rank.is_empty() {
        return;
    }
    let loaded = functions.iter().find_map(|inner| {
        let code = inner.code();
        let again = near::has_any(code, &["rank", "seed"]) || calls_any(inner, &by_rank);
        let sets = || (0..inner.steps.len()).find(|step| sets_state(inner, *step));
        let set = (code.contains("load(") && !again).then(sets)??;
        Some(inner.place(inner.steps[set].id))
    });
    if let Some(loaded) = loaded {
        let mistake = Unshared::StateOfOne { loaded };
        out.push((view.place(view.steps[saved].id), Practice::Unshared(mistake)));
    }
}

/// Whether the code of a function calls one of these.
fn calls_any(view: &View<'_>, names: &[&Name]) -> bool {
    names.iter().any(|name| view.code().contains(&format!("{}(", name.to_lowercase())))
}

/// Whether a function seeds what all the program draws from by the rank, once, at its start.
fn starts_by_rank(view: &View<'_>, text: &str) -> bool {
    let name = view.func.name.to_lowercase();
    let starts = ["seed", "start", "init", "setup", "main", "train"].iter().any(|word| name.contains(word));
    let other = near::has_any(view.code(), &["fork_rng", "rng_state", "worker", "step", "epoch"]);
    let top =
        view.func.parent.is_none_or(|at| view.project.modules[view.at.module].ir.funcs[at].kind != FuncKind::Function);
    let calls = text.matches(&format!("{name}(")).count();
    starts && top && !other && calls <= 2 && (0..view.steps.len()).any(|step| seeded(view, step).is_some())
}

/// Whether a step of one rank alone saves a state of random numbers, in a file that is not named after it.
fn saves_state(view: &View<'_>, step: usize) -> bool {
    let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
        return false;
    };
    let one = view.steps[step].guards.iter().any(|g| test(view, g).is_some_and(|t| t.one && t.of_all));
    if !one || view.callee(value).is_none_or(|path| path != "torch.save") || args.len() < 2 {
        return false;
    }
    let given = &args[0].value;
    let reached = near::reached(view, given, |def| def < step);
    let positional = args.iter().all(|a| a.kind == ArgKind::Positional);
    positional
        && !near::names_rank(view, &view.expr(&args[1].value))
        && (0..step).any(|at| {
            view.binds(at).into_iter().any(|l| reached.contains(&l) || near::local(given) == Some(l))
                && asks(view, at, "get_rng_state(")
        })
}

/// Whether a step calls what gives or sets a state of random numbers, itself or in the function that it calls.
fn asks(view: &View<'_>, step: usize, what: &str) -> bool {
    let called = near::name_of_call(view, step).is_some_and(|name| what.strip_suffix('(') == Some(name.as_str()));
    called
        || match view.value(step) {
            Some(Rvalue::Call { callee, .. }) => {
                function(view, &view.through(callee)).is_some_and(|at| near::shared(view, at).code().contains(what))
            }
            _ => false,
        }
}

/// Whether a step sets a state of random numbers that was loaded, on all ranks.
fn sets_state(view: &View<'_>, step: usize) -> bool {
    let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step) else { return false };
    let given = args.first().is_some_and(|a| {
        let loads = |e: &Expr| e.call_of("load").is_some();
        near::deep(view, &view.expr(&a.value)).any(&mut |e| loads(e))
    });
    given && asks(view, step, "set_rng_state(")
}
