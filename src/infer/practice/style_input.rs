//! Inputs of a parallel style that leave a distributed tensor without saying what their gradient is. In: a method that prepares inputs. Out:
//! `to_local()` of a replicated tensor, or of the input of weights that are cut in pairs, without gradient placements, where the class takes
//! the output of the same module for partial: each rank computes a term of the output from the whole input, and so has a term of its
//! gradient. Never: a class that names gradient placements. Source: torch.distributed.tensor, `DTensor.to_local`: the gradient is taken for
//! placed as the tensor is; torchtitan, `TensorParallel` of its experts. Next: `local_gradient.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::near;
use super::unfold::is_around;
use super::view::View;
use crate::ir::{Const, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef};
use crate::source::{Name, Place};

pub const WORDS: &[&str] = &[".to_local()"];

/// What says of what a class does that it prepares the inputs and the outputs of a module.
const INPUT: &str = "input";
const OUTPUT: &str = "output";
/// Methods that place a tensor, or take its part on this rank.
const PLACES: &[&str] = &["from_local", "to_local", "redistribute"];

pub fn bare(view: &View<'_>, out: &mut Found) {
    if !view.func.name.contains(INPUT) {
        return;
    }
    let Some(class) = near::class_of(view) else { return };
    let class = ClassRef { module: view.at.module, class };
    let text = view.files[view.project.file(class.module)].slice(view.project.class(class).span);
    let file = view.files[view.project.file(class.module)].whole();
    let of_embedding = view.project.class(class).name.to_lowercase().contains("embed");
    if of_embedding
        || ["grad_placements", "no_grad", "requires_grad_(False)"].iter().any(|w| text.contains(w))
        || file.contains("inference_mode")
    {
        return;
    }
    // The module may sum the gradient of its input itself.
    let sums = |backward: &str| backward.split("\nclass ").next().is_some_and(|own| own.contains("all_reduce("));
    for (i, step) in view.steps.iter().enumerate() {
        let Some(Rvalue::CallMethod { base, name, args }) = view.value(i) else { continue };
        if name != "to_local" || !args.is_empty() {
            continue;
        }
        let base = view.through(base);
        let gathers = || {
            [".placements", "_hook("].iter().any(|w| text.contains(w))
                || ["all_gather", "copy_to"].iter().any(|w| file.contains(w))
                || file.contains(".apply(") && file.split("def backward").skip(1).any(&sums)
        };
        let whole = || {
            let name = given_whole(view, &base).filter(|_| cuts_both_ways(text));
            name.filter(|_| is_handed_on(view, i) && !gathers())
        };
        let placed = placed(view, &base, i);
        let Some(input) = replicated(view, placed.as_ref().unwrap_or(&base)).or_else(whole) else { continue };
        let Some(meets) = partial_output(view, class) else { return };
        let practice = Placements::StyleInput { input, partial: meets };
        out.push((view.place(step.id), Practice::Placements(practice)));
    }
}

/// What a variable that is bound again was bound to last.
fn placed(view: &View<'_>, base: &Expr, step: usize) -> Option<Expr> {
    let Expr::Local(local) = base else { return None };
    let last = view.last_def(*local, step)?;
    is_around(&view.steps[last], &view.steps[step]).then(|| view.bound(last, *local))
}

/// The tensor that an expression places on every rank: `DTensor.from_local(x, mesh, (Replicate(),))`.
fn replicated(view: &View<'_>, made: &Expr) -> Option<Name> {
    let Expr::Call { callee, args, .. } = made else { return None };
    if callee.last_name() != Some("from_local") || !places(args.iter().map(|(_, a)| a), "Replicate") {
        return None;
    }
    match &args.first()?.1 {
        // As it is given: a function that is called with it may sum its gradient.
        Expr::Local(local) if view.defs(*local).iter().all(|def| !is_called(view, *def)) => {
            Some(view.local_name(*local).clone()).filter(|name| !is_index(name))
        }
        _ => None,
    }
}

/// The distributed tensor that a method is given as its input: `inputs[0]`, `x`.
fn given_whole(view: &View<'_>, base: &Expr) -> Option<Name> {
    let given = match base {
        Expr::Item(of, at) if matches!(**at, Expr::Const(Const::Int(_))) => of,
        other => other,
    };
    let Expr::Local(local) = given else { return None };
    let name = view.local_name(*local);
    (view.is_as_given(*local) && !is_index(name)).then(|| name.clone())
}

/// Whether what a step binds is returned as it is, alone or beside others.
fn is_handed_on(view: &View<'_>, step: usize) -> bool {
    let Stmt::Assign { dst, .. } = view.steps[step].stmt else { return false };
    view.readers(*dst).iter().all(|reader| match view.steps[*reader].stmt {
        Stmt::Return { .. } => true,
        Stmt::Assign { value: Rvalue::Build { .. } | Rvalue::Use(_), .. } => is_handed_on(view, *reader),
        _ => false,
    })
}

/// Whether a class cuts weights of a module along one dim and others along another, as the two of a pair: columns, which take the input
/// whole, and rows.
fn cuts_both_ways(text: &str) -> bool {
    let mut dims: Vec<&str> =
        text.split("Shard(").skip(1).filter_map(|rest| rest.split(')').next()).map(str::trim).collect();
    dims.sort_unstable();
    dims.dedup();
    text.contains("distribute_tensor(") && dims.len() == 2 && dims.iter().all(|dim| dim.parse::<i64>().is_ok())
}

/// Whether what a step binds is the result of a function, but for that which places it.
fn is_called(view: &View<'_>, step: usize) -> bool {
    match view.value(step) {
        Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) => {
            !near::written_name(view, value).is_some_and(|name| PLACES.contains(&name.as_str()))
        }
        _ => false,
    }
}

/// Whether a name is that of numbers without gradients.
fn is_index(name: &str) -> bool {
    let parts = [
        "id",
        "ids",
        "index",
        "indices",
        "mask",
        "label",
        "labels",
        "position",
        "positions",
        "num",
        "counts",
        "token",
        "tokens",
        "freqs",
        "cis",
        "cos",
        "sin",
        "rope",
        "cache",
    ];
    name.split('_').any(|part| parts.contains(&part))
}

/// Whether one of the arguments is a list of placements that are all of this kind.
fn places<'e>(mut args: impl Iterator<Item = &'e Expr>, kind: &str) -> bool {
    let is =
        |e: &Expr| matches!(e, Expr::Call { callee, args, .. } if args.is_empty() && callee.last_name() == Some(kind));
    args.any(|a| matches!(a, Expr::Build(items) if !items.is_empty() && items.iter().all(is)))
}

/// Where a method of the class that prepares outputs takes them for terms of a sum.
fn partial_output(view: &View<'_>, class: ClassRef) -> Option<Place> {
    let methods = &view.project.class(class).methods;
    methods.iter().filter(|(name, _)| name.contains(OUTPUT)).find_map(|(_, func)| {
        let method = near::shared(view, FuncRef { module: class.module, func: *func });
        (0..method.steps.len()).find_map(|i| {
            let value = method.value(i)?;
            let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
            let named = near::written_name(&method, value).is_some_and(|name| name == "from_local");
            let given: Vec<Expr> = args.iter().map(|a| method.expr(&a.value)).collect();
            // All that the module gives: of several outputs, one may be a count.
            let of_output = matches!(args.first()?.value, Operand::Local(l) if method.is_param(l));
            (named && of_output && places(given.iter(), "Partial")).then(|| method.place(method.steps[i].id))
        })
    })
}
