//! Running statistics of this rank's samples. In: a module that registers buffers. Out: a method that moves a buffer towards a statistic of what it is given, in a class that
//! broadcasts its first values over ranks, or beside code that sums gradients over ranks by hand: the copies drift apart, or
//! know the samples of one rank alone. Never: a class that reduces or gathers anything, statistics of batch normalisation, or a file that
//! wraps models, whose wrapper broadcasts buffers. Source: rsl_rl pull request 226. Next: `inner_step.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::raw::raw;
use super::reducers::is_gradient;
use super::unshared::Unshared;
use super::view::View;
use super::{Class, Found, Lint};
use crate::ir::{ArgKind, BinOp, Const, FuncKind, LocalId, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::{Name, Place};

/// What shows that a class agrees with other ranks, or that its statistics are to be those of one batch.
const AGREES: &[&str] = &["reduce", "gather", "sync", "batch_norm", "batchnorm", "world", "no_dist"];
/// A wrapper that leaves buffers as they are.
const OFF: &str = "broadcast_buffers=False";
/// Wrappers broadcast the buffers of the first rank.
const WRAPS: &[&str] =
    &["distributeddataparallel", "ddp(", "fsdp", "fully_shard", ".initialize(", "accelerat", "prepare("];
/// How code says that it averages the buffers of a model, or everything that a model has.
const SYNCHRONIZE: &[&str] = &["sync_buffer", "sync_model(", "average_buffers"];
/// Methods that change a tensor in place.
const CHANGES: &[&str] = &["lerp_", "copy_", "add_", "mul_"];
/// What is taken of a batch.
pub(super) const STATISTICS: &[&str] = &["mean", "sum", "var", "std", "matmul", "bincount", "var_mean"];

/// `self.cluster_size.lerp_(onehot.sum(0), 0.01)`, and `dist.broadcast(embed, src=0)` in the constructor.
pub fn apart<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let file = lint.files[lint.project.file(class.at.module)].whole();
    let own = lint.files[lint.project.file(class.at.module)].slice(lint.project.class(class.at).span);
    if !own.contains("register_buffer(") || !file.contains("dist") {
        return;
    }
    // Evidence is a broadcast in the class, or gradients that the file sums.
    let by_hand_perhaps = file.contains("all_reduce") && file.contains(".grad");
    let broadcasts = own.contains("broadcast(") || own.contains("broadcast_") || file.contains(OFF);
    if !by_hand_perhaps && !broadcasts {
        return;
    }
    let text = near::bare(own);
    if near::has_any(&text, AGREES) {
        return;
    }
    let Some(init) = class.init(lint) else { return };
    let made_alike = buffers_shared(init, class).or_else(|| wrapped_without(init, &text));
    let first = first_shared(init).or(made_alike).or_else(|| by_hand(init, &near::bare(file)));
    let Some(shared) = first else { return };
    for (_, func) in &lint.project.class(class.at).methods {
        let at = FuncRef { module: class.at.module, func: *func };
        if at == init.at {
            continue;
        }
        let method = lint.view(at);
        let Some((step, buffer, taken)) = (0..method.steps.len()).find_map(|s| update(&method, s, own)) else {
            continue;
        };
        if made_alike.is_none() && is_seen_to(lint, class, init, &lint.project.func(at).name) {
            return;
        }
        let mistake =
            Unshared::RunningAlone { class: lint.project.class(class.at).name.clone(), buffer, taken, shared };
        out.push((method.place(method.steps[step].id), Practice::Unshared(mistake)));
        return;
    }
}

/// Whether the file may make the copies alike: it speaks of buffers, a subclass may do otherwise, or who calls the method agrees with other ranks before, gives it
/// what is loaded, or parameters.
fn is_seen_to(lint: &Lint<'_>, class: &Class<'_>, init: &View<'_>, method: &str) -> bool {
    let file = near::bare(lint.files[lint.project.file(class.at.module)].whole());
    let name = lint.project.class(class.at).name.to_lowercase();
    if file.contains("buffers()") || is_base(&file, &name) {
        return true;
    }
    let called = format!(".{method}(").to_lowercase();
    near::functions(init, class.at.module).into_iter().any(|at| {
        let function = near::shared(init, at);
        // The body of another class has all its methods.
        let own = function.func.class == Some(class.at.class) || function.func.kind == FuncKind::ClassBody;
        let agrees = ["gather", "reduce", "broadcast", "load(", ".weight", "parameters("];
        !own && function.code().contains(&called) && near::has_any(function.code(), &agrees)
    })
}

/// Whether a class of the file is derived from this one.
fn is_base(file: &str, name: &str) -> bool {
    let base = format!("({name})");
    file.lines().any(|line| line.trim_start().starts_with("class ") && line.contains(&base))
}

/// Where a constructor broadcasts what it starts with.
fn first_shared(init: &View<'_>) -> Option<Place> {
    let shares = |at: &usize| init.value(*at).and_then(|v| raw(init, v)).is_some_and(|call| call.name == "broadcast");
    (0..init.steps.len()).find(shares).map(|at| init.place(init.steps[at].id))
}

/// Where the file wraps models so that nobody makes buffers alike, beside a codebook, whose entries all ranks are to have.
fn wrapped_without(init: &View<'_>, own: &str) -> Option<Place> {
    if !init.file().contains(OFF) || !near::has_any(own, &["codebook", "quantiz"]) {
        return None;
    }
    near::functions(init, init.at.module).into_iter().find_map(|at| {
        let function = near::shared(init, at);
        let wraps = |step: &usize| match function.value(*step) {
            Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => args.iter().any(|arg| {
                let off = function.expr(&arg.value) == Expr::Const(Const::Bool(false));
                off && matches!(&arg.kind, ArgKind::Keyword(name) if name == "broadcast_buffers")
            }),
            _ => false,
        };
        let step = (0..function.steps.len()).find(wraps)?;
        Some(function.place(function.steps[step].id))
    })
}

/// Where a method other than the one that takes statistics makes all buffers of the object those of one rank: `broadcast_tensors(self.buffers())`, when
/// it fills or repairs them. The only thing that the file does with buffers.
fn buffers_shared(init: &View<'_>, class: &Class<'_>) -> Option<Place> {
    let mut shared: Vec<Place> = Vec::new();
    for method in near::methods(init, class.at.class).into_iter().filter(|method| method.func.name != "forward") {
        let broadcasts = |step: &usize| {
            let named = near::name_of_call(&method, *step).is_some_and(|name| name.contains("broadcast"));
            named && method.text(method.place(method.steps[*step].id)).contains("self.buffers()")
        };
        shared.extend((0..method.steps.len()).filter(broadcasts).map(|step| method.place(method.steps[step].id)));
    }
    let first = *shared.first()?;
    // A function of the project, or of a library, that makes all buffers alike in every step.
    if SYNCHRONIZE.iter().any(|word| init.files.any_says(word)) {
        return None;
    }
    (near::bare(init.file()).matches("buffers()").count() == shared.len()).then_some(first)
}

/// Where the file sums gradients over all ranks itself, and wraps nothing.
fn by_hand(view: &View<'_>, text: &str) -> Option<Place> {
    if !text.contains("all_reduce") || !text.contains(".grad") || near::has_any(text, WRAPS) {
        return None;
    }
    near::functions(view, view.at.module).into_iter().find_map(|at| {
        let function = near::shared(view, at);
        let sums = |call: &super::view::CollectiveCall<'_>| {
            call.rule.op == "all_reduce"
                && call.group.is_none()
                && call.input.is_some_and(|o| is_gradient(&function.through(o)))
        };
        let found = function.collectives().iter().find(|(_, call)| sums(call)).map(|(at, _)| *at);
        found.map(|at| function.place(function.steps[at].id))
    })
}

/// A buffer that a step moves towards a statistic of what the method is given, and where that is taken.
fn update(view: &View<'_>, step: usize, class: &str) -> Option<(usize, Name, Place)> {
    let (changed, given): (&Operand, Vec<&Operand>) = match view.value(step)? {
        Rvalue::CallMethod { base, name, args } if CHANGES.contains(&name.as_str()) => {
            (base, args.iter().map(|a| &a.value).collect())
        }
        Rvalue::InPlace { op: BinOp::Add, left, right } => (left, vec![right]),
        // `ema_inplace(self.mean, new, decay)`
        Rvalue::Call { callee, args } if changes_first(view, callee) => {
            (&args.first()?.value, args.iter().skip(1).map(|a| &a.value).collect())
        }
        _ => return None,
    };
    let changed = view.through(changed);
    // `self.mean.mul_(decay).add_(new)` changes what its first call gives.
    let mut buffer: Option<Name> = None;
    changed.any(&mut |e| {
        buffer = buffer.take().or_else(|| near::own_attribute(view, e).cloned());
        buffer.is_some()
    });
    let buffer = buffer?;
    let registered = [format!("register_buffer(\"{buffer}\""), format!("register_buffer('{buffer}'")];
    if !near::has_any(class, &registered) {
        return None;
    }
    given.into_iter().find_map(|operand| statistic(view, operand, step)).map(|taken| (step, buffer.clone(), taken))
}

/// Whether a function of the project changes its first argument in place.
fn changes_first(view: &View<'_>, callee: &Operand) -> bool {
    let Some(inner) = near::function(view, callee).map(|at| near::shared(view, at)) else { return false };
    let Some(param) = inner.func.params.first().map(|p| p.local) else { return false };
    (0..inner.steps.len()).any(|step| match inner.value(step) {
        Some(Rvalue::CallMethod { base, name, .. }) => {
            CHANGES.contains(&name.as_str()) && near::reached(&inner, base, |_| true).contains(&param)
        }
        _ => false,
    })
}

/// Where a statistic is taken that a value comes from, of what the method is given, here or in a method of the own object.
fn statistic(view: &View<'_>, value: &Operand, before: usize) -> Option<Place> {
    let reached = near::reached(view, value, |def| def < before);
    let given = |local: &LocalId| view.is_param(*local) && view.local_name(*local) != "self";
    if !reached.iter().any(given) {
        return None;
    }
    let takes = |view: &View<'_>, at: usize| {
        let value = view.value(at);
        value.is_some_and(|value| match value {
            Rvalue::Binary { op: BinOp::MatMul, .. } => true,
            Rvalue::CallMethod { name, .. } => STATISTICS.contains(&name.as_str()),
            _ => near::written_name(view, value)
                .is_some_and(|name| STATISTICS.contains(&super::lost::last(&name).as_str())),
        })
    };
    (0..before).find_map(|at| {
        if !view.binds(at).iter().any(|local| reached.contains(local)) {
            return None;
        }
        if takes(view, at) {
            return Some(view.place(view.steps[at].id));
        }
        let Some(Rvalue::CallMethod { base, name, .. }) = view.value(at) else { return None };
        let inner = near::is_self(view, base).then(|| near::own_method(view, name)).flatten()?;
        let inner = near::shared(view, inner);
        let taken = (0..inner.steps.len()).any(|s| takes(&inner, s));
        let returned = inner.steps.iter().find(|s| matches!(s.stmt, Stmt::Return { .. }))?;
        taken.then(|| inner.place(returned.id))
    })
}
