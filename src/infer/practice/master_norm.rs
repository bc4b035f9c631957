//! Norms of copies of parameters that get the gradients of this rank's shards. In: a function that clips. Out: a clip by the norm of a list of copies, made
//! of the parameters of a model that the file wraps so that each rank has shards in plain tensors, or that takes the local parts of distributed gradients.
//! Never: copies with distributed gradients, a wrapper whose strategy is not written down, or a class that communicates itself.
//! Source: SpecForge pull request 663. Next: `shard_norm.rs`, `part_list.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::shard_norm::{is_whole_here, norm, only_measures};
use super::training::Training;
use super::view::View;
use super::wrapped::{Wrapped, parameters_in, parameters_of, says, wrappers};
use crate::ir::{Arg, ArgKind, LocalId, Operand, Rvalue, Stmt};
use crate::rules::Keeps;
use crate::source::{Name, Place};
use std::rc::Rc;

/// Functions that scale gradients by their norm.
const CLIPS: &[&str] = &["clip_grad_norm_", "clip_grad_norm"];
/// Methods and functions that give a copy of a tensor, or a part of it that is the same.
const COPIES: &[&str] = &[
    "detach",
    "clone",
    "float",
    "double",
    "half",
    "bfloat16",
    "to",
    "cuda",
    "cpu",
    "contiguous",
    "requires_grad_",
    "Parameter",
    "data",
    "to_local",
];
/// Words of tests that tell whether there are several ranks, or how a model is wrapped.
const TELLS: &[&str] =
    &["fsdp", "shard", "strategy", "isinstance", "parallel", "distributed", "dist_", "hasattr", "world", "size"];
/// Words of tests that leave out parameters which have no gradient.
const TRAINED: &[&str] = &["requires_grad", ".grad", "numel"];
/// What sums a norm, or makes gradients whole, in the class or function; and in the file.
const SUMS: &[&str] = &["reduce", "gather", "full_tensor", "redistribute", "from_local"];
const WHOLE: &[&str] = &["summon_full_params", "no_shard", "full_tensor"];

const MOST_DEPTH: usize = 4;

/// `clip_grad_norm_(self.masters, 1.0)` after `master.grad = p.grad.float()` of parameters of which a rank has shards.
pub fn clipped(view: &View<'_>, out: &mut Found) {
    let own = scope(view);
    if near::has_any(&own, SUMS) || near::has_any(&near::bare(view.file()), WHOLE) {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Some((function, args)) = norm(view, i).filter(|(f, _)| CLIPS.contains(&f.as_str())) else { continue };
        let Some(given) = view.argument(args, 0, "parameters") else { continue };
        let told = step.guards.iter().any(|g| says(view, &view.expr(g.test), TELLS));
        if told || only_measures(view, args) || is_whole_here(view, i) || !is_plain(view, args) {
            continue;
        }
        let Some(copies) = copies_of(view, given) else { continue };
        let found = wrappers(&copies.view, &copies.model, copies.step);
        let keeps = |w: &Wrapped<'_>| match w.rule.keeps {
            Keeps::Shards => has_shards(w).then_some(false),
            Keeps::Distributed => Some(true),
            _ => None,
        };
        let Some(local) = found.first().and_then(keeps) else { continue };
        if !found.iter().all(|w| keeps(w) == Some(local)) {
            continue;
        }
        let Some(copied) = copied(view, local) else { continue };
        let list = Name::from(view.text(view.part(step.id, 1)));
        let mistake = Training::CopiedNorm { function, list, copied, wrapped: found[0].place() };
        out.push((view.place(step.id), Practice::Training(mistake)));
    }
}

/// The code of the class, or of the function that is in none.
fn scope(view: &View<'_>) -> String {
    let module = &view.project.modules[view.at.module].ir;
    near::code(view, near::class_of(view).map_or(view.func.span, |class| module.classes[class].span))
}

/// Whether the largest norm is a number or a name, and not computed from something that knows of the other ranks.
fn is_plain<'a>(view: &View<'a>, args: &'a [Arg]) -> bool {
    let most = view.argument(args, 1, "max_norm").map(|most| view.through(most));
    most.is_some_and(|most| matches!(most, Expr::Const(_) | Expr::Local(_) | Expr::Attr(..) | Expr::Path(_)))
}

/// A list of copies: the model whose parameters they are of, and where it is used.
struct Copies<'a> {
    view: Rc<View<'a>>,
    model: Expr,
    step: usize,
}

/// What a list is of, if all that is put into it are copies of parameters of one model.
fn copies_of<'a>(view: &View<'a>, list: &Operand) -> Option<Copies<'a>> {
    let (method, at, value) = put_into(view, list)?;
    let (of, copied) = copied_from(&value);
    copied.then(|| model_of(&method, of, at, MOST_DEPTH)).flatten()
}

/// The one value that is put into a list, in the function that does, behind tests of whether a parameter is trained alone.
fn put_into<'a>(view: &View<'a>, list: &Operand) -> Option<(Rc<View<'a>>, usize, Expr)> {
    let listed = view.expr(list);
    let (method, made) = match near::own_attribute(view, &listed) {
        Some(name) => {
            let set = near::assigned(view, near::class_of(view)?, name);
            let [(method, _, value)] = set.as_slice() else { return None };
            (method.clone(), near::local(value))
        }
        None => (near::shared(view, view.at), near::local(list)),
    };
    let built = |l: LocalId| method.source(&Operand::Local(l)).is_some_and(|(_, v)| matches!(v, Rvalue::Build { .. }));
    // A variable is bound to what a comprehension fills.
    let made = made.map(|l| match method.source(&Operand::Local(l)) {
        Some((_, Rvalue::Use(Operand::Local(from)))) => *from,
        _ => l,
    });
    let made = made.filter(|l| built(*l))?;
    let mut all = method.steps.iter().enumerate().filter_map(|(i, step)| match step.stmt {
        Stmt::Append { collection, value, .. } if *collection == made => Some((i, value)),
        Stmt::Assign { value: Rvalue::CallMethod { base, name, args }, .. } if name == "append" => {
            let of_list = near::local(base) == Some(made) || is_same(view, &listed, &method, base);
            args.first().filter(|_| of_list).map(|a| (i, &a.value))
        }
        _ => None,
    });
    let (Some((at, value)), None) = (all.next(), all.next()) else { return None };
    drop(all);
    let trained = |test: &str| near::has_any(test, TRAINED);
    let known = method.steps[at].guards.iter().all(|g| trained(method.text(method.part(g.at, 0))));
    let value = match method.through(value) {
        Expr::Unknown => return None,
        value => value,
    };
    known.then_some((method, at, value))
}

/// Whether a value is the attribute that a list is.
fn is_same(view: &View<'_>, list: &Expr, method: &View<'_>, base: &Operand) -> bool {
    let base = method.expr(base);
    let own = near::own_attribute(method, &base);
    own.is_some() && own == near::own_attribute(view, list)
}

/// What a value is a copy of, and whether it is one.
fn copied_from(value: &Expr) -> (&Expr, bool) {
    let mut at = value;
    let mut copied = false;
    loop {
        let next = match at {
            Expr::Call { callee, args, .. } => match (&**callee, args.first()) {
                (Expr::Attr(base, name), _) if COPIES.contains(&name.as_str()) => {
                    copied |= matches!(name.as_str(), "clone" | "float" | "double" | "to");
                    &**base
                }
                (made, Some((ArgKind::Positional, first))) if made.last_name() == Some("Parameter") => first,
                _ => break,
            },
            Expr::Attr(base, name) if COPIES.contains(&name.as_str()) => &**base,
            _ => break,
        };
        at = next;
    }
    (at, copied)
}

/// The model that a value in a loop is a parameter of, through lists of parameters.
fn model_of<'a>(view: &Rc<View<'a>>, value: &Expr, step: usize, depth: usize) -> Option<Copies<'a>> {
    let depth = depth.checked_sub(1)?;
    let seen = match value {
        Expr::Local(local) => view.through(&Operand::Local(*local)),
        other => other.clone(),
    };
    if let Some(model) = parameters_in(view, &seen) {
        return Some(Copies { view: view.clone(), model, step });
    }
    let Expr::Element(list) = &seen else { return None };
    let name = near::own_attribute(view, list)?;
    let set = near::assigned(view, near::class_of(view)?, name);
    let [(method, at, value)] = set.as_slice() else { return None };
    if let Some(model) = parameters_of(method, value) {
        let model = Copies { view: method.clone(), model, step: *at };
        return is_of_trained(method, value).then_some(model);
    }
    let (inner, at, value) = put_into(method, value)?;
    model_of(&inner, &value, at, depth)
}

/// Whether a list leaves out no parameters but those that are not trained.
fn is_of_trained(view: &View<'_>, list: &Operand) -> bool {
    let Some(list) = near::local(list) else { return true };
    view.steps.iter().all(|step| match step.stmt {
        Stmt::Append { collection, .. } if *collection == list => {
            step.guards.iter().all(|g| near::has_any(view.text(view.part(g.at, 0)), TRAINED))
        }
        _ => true,
    })
}

/// Whether a call of a wrapper leaves a rank its shards alone, by a strategy that is written down or left out.
fn has_shards(wrapped: &Wrapped<'_>) -> bool {
    let view = &wrapped.view;
    let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(wrapped.step) else {
        return false;
    };
    let open = args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar));
    let strategy = args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == "sharding_strategy"));
    let shards = strategy.is_none_or(|s| {
        near::deep(view, &view.expr(&s.value))
            .last_name()
            .is_some_and(|n| n.ends_with("SHARD") || n == "SHARD_GRAD_OP" || n.starts_with("HYBRID"))
    });
    !open && shards && args.iter().filter(|a| a.kind == ArgKind::Positional).count() < 3
}

/// Where the class or the function gives one tensor the gradient of another; its local part, where `local`.
fn copied(view: &View<'_>, local: bool) -> Option<Place> {
    let methods = match near::class_of(view) {
        Some(class) => near::methods(view, class),
        None => vec![near::shared(view, view.at)],
    };
    methods.iter().find_map(|method| {
        method.steps.iter().find_map(|step| {
            let Stmt::SetAttr { name, value, .. } = step.stmt else { return None };
            let value = near::deep(method, &method.expr(value));
            let reads = value.any(&mut |e| matches!(e, Expr::Attr(_, name) if name == "grad"));
            let parts = !local || value.any(&mut |e| e.call_of("to_local").is_some());
            (name == "grad" && reads && parts).then(|| method.place(step.id))
        })
    })
}
