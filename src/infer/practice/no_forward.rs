//! Wrapped modules whose wrapper never runs. In: a function that wraps an object of a class of the project without a `forward`, and steps with its parameters. Out: the backward
//! pass: the wrapper sums gradients after a forward pass of its own alone, and there is none to call. Never: a class whose bases or attributes may give it a forward,
//! parameters that may belong to another wrapped model, or a file that sums anything but what it reports. Source: torch.nn.parallel.DistributedDataParallel: its
//! forward prepares the reducer. Next: `bypassed.rs`.

use super::Found;
use super::bypassed::variable;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::quiet::{is_file_quiet, is_handed_on, is_optimizer_quiet, is_quiet, is_read_whole, is_text_quiet};
use super::unshared::Unshared;
use super::view::View;
use super::wrapped::parameters_of;
use crate::ir::{Arg, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, Resolved};
use crate::rules::Keeps;
use crate::source::Name;

/// What gives a class another way to be called, or its parameters to another module.
const CALLED: &[&str] = &[
    "__call__",
    "__getattr__",
    "forward =",
    "forward=",
    "def forward",
    "setattr(",
    "add_module(",
    "register_module(",
    "_modules",
];
/// Packages that such programs use besides.
const ALSO: &[&str] = &["accelerate", "transformers", "datasets"];
/// Words of files in which gradients may be brought together, the wrapper may be called, or there may be one rank.
const OTHERWISE: &[&str] = &[
    "all_reduce",
    "reduce(",
    "gather",
    "scatter",
    "all_to_all",
    "comm",
    "sync",
    "mean_over",
    "average",
    "autograd.function",
    "setattr(",
    "prepare_for_backward",
    "is_main_process",
    "raise",
    "num_processes",
    "distributed_type",
    "rank ==",
    "rank !=",
];
/// What makes a wrapper of what it is given, by its name: an object that knows how this program runs.
const PREPARES: &str = "prepare";
/// What such objects are called.
const RUNS: &str = "from accelerate import";

/// `network = DDP(LoRANetwork(unet))`, `unet(x)`, `loss.backward()`, `optimizer.step()`
pub fn trained(view: &View<'_>, out: &mut Found) {
    let text = near::bare(view.file());
    let decorated = text.lines().any(|line| line.starts_with('@'));
    let own_optimizer =
        |line: &str| line.starts_with("class ") && near::has_any(line, &["optim", "adam", "sgd", " module("]);
    if decorated || text.lines().any(own_optimizer) || !is_read_whole(&text, ALSO, OTHERWISE) {
        return;
    }
    for step in 0..view.steps.len() {
        let Some((model, class, with, wrapper)) = wraps(view, step) else { continue };
        if is_given(view, model, step) {
            continue;
        }
        let Some((backward, last)) = passes(view, step) else { continue };
        if !view.steps[backward].guards.is_empty() {
            continue;
        }
        if is_part_of_another(view, model)
            || !is_optimized(view, model)
            || !is_file_quiet(view)
            || !is_quiet(view, backward + 1..last, with)
        {
            continue;
        }
        if is_handed_on(view, &Expr::Local(model), last + 1..view.steps.len(), with) {
            continue;
        }
        let of = view.project.class(class);
        let mistake = Unshared::NoForward {
            model: view.local_name(model).clone(),
            class: of.name.clone(),
            wrapper,
            wrapped: view.place(view.steps[step].id),
        };
        out.push((view.place(view.steps[backward].id), Practice::Unshared(mistake)));
        return;
    }
}

/// A variable that a step wraps, its class, which has no forward, the object that wraps if it is one, and the wrapper if it has a name.
fn wraps(view: &View<'_>, step: usize) -> Option<(LocalId, ClassRef, Option<LocalId>, Option<Name>)> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let rule = view.callee(value).and_then(|path| view.rules.wrappers().get(&path));
    if let Some(rule) = rule {
        let copies = !rule.in_place && rule.keeps == Keeps::Whole;
        let model = variable(view, step).filter(|_| copies)?;
        let class = class_of(view, &args.first()?.value, step)?;
        return Some((model, class, None, Some(super::lost::last(&rule.name))));
    }
    let Rvalue::CallMethod { base, name, .. } = value else { return None };
    let runs = || near::bare(view.file()).contains(RUNS);
    let with = near::local(base).filter(|_| name == PREPARES && args.len() > 1 && runs())?;
    let prepared = |arg: &Arg| {
        let model = near::local(&arg.value)?;
        Some((comes_back(view, step, model)?, class_of(view, &arg.value, step)?))
    };
    let (model, class) = args.iter().find_map(prepared)?;
    Some((model, class, Some(with), None))
}

/// The variable, if what a step gives is put into it again.
fn comes_back(view: &View<'_>, step: usize, model: LocalId) -> Option<LocalId> {
    let Stmt::Assign { dst, .. } = view.steps[step].stmt else { return None };
    let puts = |s: &super::view::Step<'_>| match s.stmt {
        Stmt::Unpack { value, before, after, .. } => {
            *value == Operand::Local(*dst) && (before.contains(&model) || after.contains(&model))
        }
        Stmt::Assign { dst: to, value: Rvalue::Use(from) } => *from == Operand::Local(*dst) && *to == model,
        _ => false,
    };
    (*dst == model || view.steps.iter().any(puts)).then_some(model)
}

/// The class of the project, without a forward, of which a value is an object that is made here.
fn class_of(view: &View<'_>, value: &Operand, before: usize) -> Option<ClassRef> {
    let made = match value {
        Operand::Local(local) if !view.is_param(*local) => match view.last_def(*local, before) {
            Some(def) => view.bound(def, *local),
            None => return None,
        },
        _ => return None,
    };
    let made = moved(made);
    let Expr::Call { callee, .. } = made else { return None };
    let Resolved::Class(class) = view.project.path(&near::path(view, &callee)?) else { return None };
    is_never_called(view, class).then_some(class)
}

/// A model before methods that give it back.
fn moved(made: Expr) -> Expr {
    match made {
        Expr::Call { callee, args, step } => match *callee {
            Expr::Attr(base, name) if matches!(name.as_str(), "to" | "cuda" | "train" | "float") => moved(*base),
            callee => Expr::Call { callee: Box::new(callee), args, step },
        },
        other => other,
    }
}

/// Whether a class of modules has no forward, and gets none: its one base is that of all modules.
fn is_never_called(view: &View<'_>, class: ClassRef) -> bool {
    let file = view.files[view.project.file(class.module)].whole();
    let text = near::bare(view.files[view.project.file(class.module)].slice(view.project.class(class).span));
    let head = text.lines().next().unwrap_or_default();
    let base = head.split_once('(').and_then(|(_, rest)| rest.split(')').next()).map(str::trim);
    let forward = format!("{}.forward", view.project.class(class).name);
    matches!(base, Some("nn.module" | "torch.nn.module" | "module"))
        && !near::has_any(&text, CALLED)
        && !file.contains(&forward)
        && (class.module == view.at.module || is_text_quiet(&near::bare(file)))
}

/// Whether a model is called, put into something, or given to anything but the wrapper.
fn is_given(view: &View<'_>, model: LocalId, wrap: usize) -> bool {
    let forward = |s: &super::view::Step<'_>| matches!(s.stmt, Stmt::SetAttr { base, name, .. } if name == "forward" && *base == Operand::Local(model));
    if view.steps.iter().any(forward) {
        return true;
    }
    view.readers(model).iter().filter(|step| **step != wrap).any(|step| match view.value(*step) {
        Some(Rvalue::Call { callee, args }) => {
            let given = args.iter().any(|arg| arg.value == Operand::Local(model));
            *callee == Operand::Local(model)
                || given
                    && view
                        .rules
                        .wrappers()
                        .get(&view.callee(view.value(*step).expect("it has one")).unwrap_or_default())
                        .is_none()
        }
        Some(Rvalue::CallMethod { base, args, .. }) => {
            *base != Operand::Local(model) && args.iter().any(|arg| arg.value == Operand::Local(model))
        }
        Some(Rvalue::Build { .. }) => !matches!(view.steps[*step].stmt, Stmt::Return { .. }),
        _ => false,
    })
}

/// The last step of an optimizer behind one, and the backward pass before it.
fn passes(view: &View<'_>, from: usize) -> Option<(usize, usize)> {
    let method =
        |i: usize, wanted: &str| matches!(view.value(i), Some(Rvalue::CallMethod { name, .. }) if name == wanted);
    let is_step = |i: usize| match view.value(i) {
        Some(Rvalue::CallMethod { base, name, args }) if name == "step" => {
            let optimizer = args.first().map_or(base, |arg| &arg.value);
            let expr = view.expr(optimizer);
            let name = view.name_of(&expr).unwrap_or_default().to_lowercase();
            (name.contains("optim") || near::has_part(&name, "opt")) && is_optimizer_quiet(view, optimizer)
        }
        _ => false,
    };
    let last = (from..view.steps.len()).rev().find(|i| is_step(*i))?;
    let backward = (from..last).rev().find(|i| method(*i, "backward"))?;
    (!view.without_gradient(backward)).then_some((backward, last))
}

/// Whether a model is put into another module, or given to one that is made.
fn is_part_of_another(view: &View<'_>, model: LocalId) -> bool {
    view.readers(model).iter().any(|step| match view.steps[*step].stmt {
        Stmt::SetAttr { base, value, .. } => *value == Operand::Local(model) && !near::is_self(view, base),
        Stmt::SetItem { value, .. } => *value == Operand::Local(model),
        Stmt::Assign { value: value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }), .. } => {
            let given = args.iter().any(|arg| arg.value == Operand::Local(model));
            let makes = view.callee(value).is_some_and(|path| {
                super::lost::last(&path).starts_with(char::is_uppercase) && view.rules.wrappers().get(&path).is_none()
            });
            given && makes
        }
        _ => false,
    })
}

/// Whether an optimizer of torch gets parameters of a model and of nothing else that is wrapped.
fn is_optimized(view: &View<'_>, model: LocalId) -> bool {
    (0..view.steps.len()).any(|step| {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
            return false;
        };
        let made =
            view.callee(value).is_some_and(|path| path.starts_with("torch.optim.") && !path.contains("lr_sched"));
        let given = view.argument(args, 0, "params").filter(|_| made);
        given.is_some_and(|given| {
            near::reached(view, given, |def| def < step).contains(&model)
                || parameters_of(view, given) == Some(Expr::Local(model))
        })
    })
}
