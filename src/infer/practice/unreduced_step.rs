//! Training loops whose gradients nobody sums. In: a function. Out: `optimizer.step()` after `backward()` for a model that is made here
//! and given to nothing that may wrap it, in a program that starts process groups and reads other data on each rank. Never: a model that
//! comes from outside, or a call with it that is not understood. Source: DESIGN.md section 7. Next: `near.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::view::View;
use super::{metrics, near};
use crate::ir::{Arg, ArgKind, FuncKind, LocalId, Operand, Rvalue, Stmt};
use crate::project::{FuncRef, Resolved};
use crate::source::Place;

/// Words in code that may sum gradients, wrap a model, or do nothing of the kind with data.
const SUMS: &[&str] = &[
    "all_reduce",
    "allreduce",
    "reduce_scatter",
    "distributeddataparallel",
    "ddp(",
    "fsdp",
    "fully_shard",
    "parallelize",
    "finalize",
    "reduce_grad",
    "sync_grad",
    "average_grad",
    "average_param",
    "register_hook",
    "post_accumulate",
    "register_step",
    "prepare(",
    ".initialize(",
    "engine",
    "hvd.",
    "distributedoptimizer",
    "zeroredundancy",
    "replicate(",
    "dataparallel(",
    "grad_sync",
    "pipelinestage",
    "setup(",
    "fabric",
    "distribute_module",
    "distribute_tensor",
    "reduce(",
    "broadcast_grad",
    "allreduce_",
    "booster",
    "wrap",
    "xla",
    "dtensor",
    "gather",
    "isend",
    "irecv",
    ".send",
    ".recv",
    "send(",
    "recv(",
    "p2pop",
    "scatter",
    "_object",
    "all_to_all",
    "rpc",
];

/// Words of code that gives each rank other data.
pub const SPLITS: &[&str] =
    &["distributedsampler", "initialize_model_parallel(", "split_dataset_by_node", "num_replicas="];

pub fn steps(view: &View<'_>, out: &mut Found) {
    let Some(code) = run(view) else { return };
    if SPLITS.iter().any(|w| code.contains(w)) {
        unreduced(view, code, None, out);
    }
}

/// The same where a loader is told the rank and the number of processes, of a file that imports the wrapper and does not use it.
pub fn steps_of_loaders(view: &View<'_>, out: &mut Found) {
    if !metrics::forgets_wrapper(view) {
        return;
    }
    let Some(code) = run(view).filter(|code| !SPLITS.iter().any(|w| code.contains(w))) else { return };
    if let Some(split) = metrics::split(view) {
        unreduced(view, code, Some(split), out);
    }
}

/// The code that runs with a function, if there is a step of an optimizer in it.
fn run<'v>(view: &'v View<'_>) -> Option<&'v str> {
    let stands = matches!(view.func.kind, FuncKind::Function | FuncKind::Module)
        && view.text(view.spot(view.func.span)).contains(".step(");
    Some(view.code()).filter(|code| stands && code.contains(".step("))
}

fn unreduced(view: &View<'_>, code: &str, split: Option<Place>, out: &mut Found) {
    let rest = metrics::without(view, code);
    if SUMS.iter().any(|w| code_calls(&rest, w)) || takes_gradients(view) || spreads_in_rounds(view) {
        return;
    }
    let Some(distributed) = split.or_else(|| starts(view)) else { return };
    for (i, step) in view.steps.iter().enumerate() {
        let Some(Rvalue::CallMethod { base: Operand::Local(optimizer), name, .. }) = view.value(i) else { continue };
        let Some((model, made)) = (name == "step").then(|| model_of(view, *optimizer)).flatten() else { continue };
        let Some(backward) = backward(view, i) else { continue };
        if is_bare(view, model) {
            let name = view.local_name(model).clone();
            let mistake = Scales::UnreducedStep { model: name, made, backward, distributed };
            out.push((view.place(step.id), Practice::Scales(mistake)));
        }
    }
}

/// Whether a function takes gradients itself: where it puts them is not followed.
fn takes_gradients(view: &View<'_>) -> bool {
    (0..view.steps.len()).any(|step| match view.value(step) {
        Some(Rvalue::Attr { name, .. }) => matches!(name.as_str(), "grad" | "main_grad"),
        _ => false,
    })
}

/// Whether something is broadcast from the first round on, and not before it: the parameters, or what was sent to one rank.
fn spreads_in_rounds(view: &View<'_>) -> bool {
    let backward =
        |step: &usize| matches!(view.value(*step), Some(Rvalue::CallMethod { name, .. }) if name == "backward");
    let Some(backward) = (0..view.steps.len()).find(backward) else { return false };
    let first = view.steps[backward].loops.first().copied().unwrap_or(backward);
    (first..view.steps.len()).any(|step| {
        let Some(path) = view.value(step).and_then(|value| view.callee(value)) else { return false };
        match view.project.path(&path) {
            Resolved::Func(at) => near::other(view, at).code().contains("broadcast"),
            _ => path.contains("broadcast"),
        }
    })
}

/// Whether code names something outside an import.
fn code_calls(code: &str, word: &str) -> bool {
    code.lines()
        .any(|l| l.contains(word) && !l.trim_start().starts_with("from ") && !l.trim_start().starts_with("import "))
}

/// Where process groups are started, or data is split between ranks.
fn starts(view: &View<'_>) -> Option<Place> {
    view.steps.iter().enumerate().find_map(|(i, step)| {
        let name = match view.value(i)? {
            Rvalue::Call { callee, .. } => view.through(callee).last_name()?.to_string(),
            Rvalue::CallMethod { name, .. } => name.to_string(),
            _ => return None,
        };
        let starts = ["initialize_model_parallel", "init_process_group", "DistributedSampler", "split_dataset_by_node"];
        starts.contains(&name.as_str()).then(|| view.place(step.id))
    })
}

/// The model whose parameters an optimizer has, and where it is made.
fn model_of(view: &View<'_>, optimizer: LocalId) -> Option<(LocalId, Place)> {
    let [def] = view.defs(optimizer) else { return None };
    let value = view.value(*def)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let owner = match view.callee(value)? {
        path if path.starts_with("torch.optim.") => {
            let given = view.expr(&args.first()?.value);
            let Expr::Call { callee, .. } = &given else { return None };
            let Expr::Attr(base, name) = &**callee else { return None };
            (name == "parameters").then(|| (**base).clone())?
        }
        _ => makes_its_own(view, value)?,
    };
    let Expr::Local(owner) = owner else { return None };
    let model = *names_of(view, owner).first()?;
    if view.is_param(model) {
        return None;
    }
    let first = *view.defs(model).first()?;
    Some((model, view.place(view.steps[first].id)))
}

/// The model that a method of its class gives an optimizer for.
fn makes_its_own<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<Expr> {
    let Rvalue::CallMethod { base, name, .. } = value else { return None };
    let owner = view.expr(base);
    let Expr::Local(local) = &owner else { return None };
    let model = *names_of(view, *local).first()?;
    let made = view.defs(model).iter().find_map(|def| match view.project.path(&view.callee(view.value(*def)?)?) {
        Resolved::Class(class) => Some(class),
        _ => None,
    })?;
    let inner = near::other(view, view.project.own_method(made, name)?);
    (inner.code().contains("torch.optim.") && inner.code().contains("parameters()")).then_some(owner)
}

/// The model that a variable is, and its other names: `raw = model`, `raw = model.module if wrapped else model`.
fn names_of(view: &View<'_>, local: LocalId) -> Vec<LocalId> {
    let mut root = local;
    for _ in 0..MOST_NAMES {
        match same(view, root) {
            Some(other) if other != root => root = other,
            _ => break,
        }
    }
    let mut names = vec![root];
    for (other, _) in view.func.locals().iter_enumerated() {
        if other != root && !view.is_temp(other) && same(view, other) == Some(root) {
            names.push(other);
        }
    }
    names
}

/// Names that a model goes by one after the other.
const MOST_NAMES: usize = 4;

/// The variable that another one is a name of.
fn same(view: &View<'_>, local: LocalId) -> Option<LocalId> {
    let [def] = view.defs(local) else { return None };
    let model = |e: &Expr| match e {
        Expr::Local(l) => Some(*l),
        Expr::Attr(base, name) if name == "module" => match &**base {
            Expr::Local(l) => Some(*l),
            _ => None,
        },
        _ => None,
    };
    match view.bound(*def, local) {
        Expr::Choice(_, a, b) => model(&a).filter(|a| model(&b) == Some(*a)),
        other => model(&other),
    }
}

/// The last `backward()` before a step, or a schedule that runs it.
fn backward(view: &View<'_>, before: usize) -> Option<Place> {
    (0..before).rev().find_map(|i| {
        let runs = match view.value(i)? {
            Rvalue::CallMethod { name, .. } => name == "backward",
            Rvalue::Call { callee, .. } => schedule(view, callee),
            _ => false,
        };
        runs.then(|| view.place(view.steps[i].id))
    })
}

/// Whether a call runs a schedule that the rules know.
fn schedule(view: &View<'_>, callee: &Operand) -> bool {
    let path = match near::deep(view, &view.expr(callee)) {
        Expr::Call { callee, .. } => near::path(view, &callee),
        other => near::path(view, &other),
    };
    path.is_some_and(
        |p| matches!(view.rules.get(&p), Some(crate::rules::Entry::Intrinsic(rule)) if rule.does == "schedule"),
    )
}

/// Whether a model is made here by a constructor, and no call takes it that may reduce its gradients.
fn is_bare(view: &View<'_>, model: LocalId) -> bool {
    let made = view.defs(model).iter().all(|d| view.value(*d).is_some_and(|v| makes(view, v, model)));
    let names = names_of(view, model);
    made && (0..view.steps.len()).all(|i| names.iter().all(|name| harmless(view, i, *name, &names)))
}

/// `Model(config)`, `build_model().to(device)`, `model.cuda()`.
fn makes<'a>(view: &View<'a>, value: &'a Rvalue, model: LocalId) -> bool {
    match value {
        Rvalue::CallMethod { base, name, .. }
            if matches!(name.as_str(), "to" | "cuda" | "train" | "bfloat16" | "half" | "float") =>
        {
            match view.expr(base) {
                Expr::Local(l) if l == model => true,
                Expr::Local(l) if !view.is_param(l) => match view.defs(l) {
                    [one] => view.value(*one).is_some_and(|made| makes(view, made, l)),
                    _ => false,
                },
                Expr::Call { callee, .. } => constructs(view, &callee),
                _ => false,
            }
        }
        // What is compiled stays what it was.
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } if compiles(view, value) => {
            args.first().is_some_and(|arg| view.expr(&arg.value) == Expr::Local(model))
        }
        Rvalue::Call { callee, .. } => constructs(view, &view.through(callee)),
        Rvalue::CallMethod { base, name, .. } => constructs(view, &Expr::Attr(Box::new(view.expr(base)), name.clone())),
        _ => false,
    }
}

fn compiles<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    view.callee(value).is_some_and(|path| path == "torch.compile")
}

/// Whether a callee gives a model as it is: a class, or a builder that wraps nothing.
fn constructs(view: &View<'_>, callee: &Expr) -> bool {
    if let Expr::Local(l) = callee
        && view.is_param(*l)
    {
        let name = view.local_name(*l).to_lowercase();
        return [
            "provider",
            "model_cls",
            "model_class",
            "model_fn",
            "model_factory",
            "build_model",
            "make_model",
            "create_model",
        ]
        .iter()
        .any(|w| name.contains(w));
    }
    let Some(path) = near::path(view, callee) else { return false };
    match view.project.path(&path) {
        Resolved::Class(at) => plain(&class_code(view, at)),
        Resolved::Func(at) => is_plain_throughout(view, at, None),
        Resolved::External(path) => {
            let last = path.rsplit('.').next().unwrap_or("");
            let class = last.chars().next().is_some_and(char::is_uppercase)
                || last == "from_pretrained"
                || path.starts_with("torchvision.models.");
            class && !path.to_lowercase().contains("parallel")
        }
        _ => false,
    }
}

/// Functions below one that are looked through.
const MOST_HELPERS: usize = 40;

/// Whether a function, and those of the project that it hands the model to, names nothing that may reduce gradients. Of a builder, which
/// makes the model, nothing tells where that goes: all that it calls counts.
fn is_plain_throughout(view: &View<'_>, at: FuncRef, given: Option<usize>) -> bool {
    let mut reached = vec![(at, given)];
    let mut next = 0;
    while let Some((at, given)) = reached.get(next).copied() {
        next += 1;
        let inner = near::other(view, at);
        if next > MOST_HELPERS || !plain(&near::code(&inner, view.project.func(at).span)) {
            return false;
        }
        let model = given.and_then(|n| inner.func.params.get(n)).map(|param| param.local);
        for step in 0..inner.steps.len() {
            let Some((called, handed)) = handed_on(&inner, step, model) else { continue };
            if (given.is_none() || handed.is_some()) && !reached.iter().any(|(known, _)| *known == called) {
                reached.push((called, handed.filter(|_| given.is_some())));
            }
        }
    }
    true
}

/// The function of the project that a step calls, and the number of the parameter that it gives the model, or something of it.
fn handed_on(view: &View<'_>, step: usize, model: Option<LocalId>) -> Option<(FuncRef, Option<usize>)> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let Resolved::Func(called) = view.project.path(&view.callee(value)?) else { return None };
    let is_model = |arg: &&Arg| model.is_some_and(|m| view.expr(&arg.value).any(&mut |e| *e == Expr::Local(m)));
    let at = args.iter().position(|arg| is_model(&arg));
    let params = &view.project.func(called).params;
    let number = at.map(|n| match &args[n].kind {
        ArgKind::Keyword(name) => params.iter().position(|p| p.name == *name).unwrap_or(n),
        _ => n,
    });
    Some((called, number))
}

fn class_code(view: &View<'_>, at: crate::project::ClassRef) -> String {
    let class = view.project.class(at);
    view.files[view.project.file(at.module)].slice(class.span).to_lowercase()
}

fn plain(code: &str) -> bool {
    !SUMS.iter().any(|w| code.contains(w))
}

/// Whether a step cannot wrap the model or reduce its gradients.
fn harmless(view: &View<'_>, step: usize, model: LocalId, names: &[LocalId]) -> bool {
    let is_model = |o: &Operand| matches!(o, Operand::Local(l) if *l == model);
    if !keeps_parameters(view, step, model) {
        return false;
    }
    match (view.steps[step].stmt, view.value(step)) {
        (Stmt::Assign { dst, .. }, Some(Rvalue::Use(o))) if is_model(o) => view.is_temp(*dst) || names.contains(dst),
        (Stmt::SetAttr { value, .. } | Stmt::SetItem { value, .. } | Stmt::Return { value }, _) => {
            !is_model(value) || matches!(view.steps[step].stmt, Stmt::Return { .. })
        }
        (_, Some(Rvalue::Call { callee, args })) if args.iter().any(|a| is_model(&a.value)) => {
            schedule(view, callee) || takes(view, step, model, &view.through(callee))
        }
        (_, Some(value)) if compiles(view, value) => true,
        (_, Some(Rvalue::CallMethod { args, .. })) => !args.iter().any(|a| is_model(&a.value)),
        (_, Some(Rvalue::Build { items, .. })) => {
            !items.iter().any(|i| matches!(i, crate::ir::Item::One(o) | crate::ir::Item::Star(o) if is_model(o)))
        }
        _ => true,
    }
}

/// What gives the parameters of a model, or what they hold.
const PARAMETERS: &[&str] = &["parameters", "named_parameters", "state_dict"];

/// Whether a step does not give the parameters of the model to anything that is not known.
fn keeps_parameters(view: &View<'_>, step: usize, model: LocalId) -> bool {
    let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
        return true;
    };
    let of_model = |e: &Expr| match e {
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, name) => PARAMETERS.contains(&name.as_str()) && **base == Expr::Local(model),
            _ => false,
        },
        _ => false,
    };
    let given = args.iter().any(|a| near::deep(view, &view.expr(&a.value)).any(&mut |e| of_model(e)));
    !given
        || view.callee(value).is_some_and(|path| match view.project.path(&path) {
            Resolved::Func(_) => does_nothing(view, step, model),
            _ => path.starts_with("torch.") || !path.contains('.'),
        })
}

/// Whether a function of the project that a step gives the model takes no gradients, and sums none.
fn does_nothing(view: &View<'_>, step: usize, model: LocalId) -> bool {
    let Some((at, given)) = handed_on(view, step, Some(model)) else { return false };
    is_plain_throughout(view, at, Some(given.unwrap_or(0))) && !takes_gradients(&near::other(view, at))
}

/// Whether a step calls what does nothing with the gradients of the model that it is given.
fn takes(view: &View<'_>, step: usize, model: LocalId, callee: &Expr) -> bool {
    let Some(path) = near::path(view, callee) else { return false };
    match view.project.path(&path) {
        Resolved::Func(_) => does_nothing(view, step, model),
        _ => ["print", "len", "isinstance", "torch.nn.utils.clip_grad_norm_"].contains(&path.as_str()),
    }
}
