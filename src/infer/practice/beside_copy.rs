//! Weights beside a copied input. In: a function that puts its input through a function whose backward sums, and the sum of what it makes of it
//! through one whose forward sums. Out: a product inside with weights that come of the same input and of no such function: each rank has
//! a part of their gradient. Never: weights without a gradient, or one that the file reduces itself. Source: transformers, issue 48687;
//! Megatron-LM, `copy_to_tensor_model_parallel_region`. Next: `plain_input.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::lapses::Lapse;
use super::near;
use super::view::View;
use crate::ir::{Arg, BinOp, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, Resolved};
use crate::source::Name;
use rustc_hash::FxHashSet;

/// What gives no gradient, or one that is not followed.
const STOPS: &[&str] = &[
    "detach",
    "apply",
    "argmax",
    "argsort",
    "one_hot",
    "nonzero",
    "size",
    "item",
    "shape",
    "long",
    "int",
    "bool",
    "eq",
    "ne",
    "ge",
    "gt",
    "le",
    "lt",
    "sign",
    "round",
    "floor",
    "bincount",
    "histc",
    "numel",
    "len",
    "range",
    "zeros_like",
    "ones_like",
    "empty_like",
    "full_like",
    "rand_like",
    "new_zeros",
    "new_ones",
    "new_empty",
    "randint",
    "rand",
    "randn",
    "bernoulli",
    "multinomial",
    "isin",
    "any",
    "all",
    "isnan",
    "dim",
    "tolist",
    "gumbel",
    "type",
];

/// How functions stop gradients, or copy what they are given.
const STOP_WORDS: &[&str] =
    &[".apply(", "copy", "detach", "no_grad", ".size(", "shape", "sign(", "round(", ".ne(", "arange(", "mask", ".data"];

/// What takes the kind of a tensor from another one.
const KINDS: &[&str] = &["to", "type_as", "expand_as", "view_as", "reshape_as", "new_tensor"];

/// What gives values and their indices.
const WITH_INDICES: &[&str] = &["topk", "max", "min", "sort", "kthvalue", "median"];

/// How code reduces gradients itself.
const OWN_WAYS: &[&str] = &["register_hook", ".grad", "_hook(", "main_grad"];

/// A call of a function that communicates in one direction alone.
struct Call {
    name: Name,
    class: ClassRef,
    step: usize,
    given: LocalId,
    made: LocalId,
    rest: Vec<Expr>,
}

/// `expert(Copy.apply(x)) * gate(x).softmax(-1)`, and `Reduce.apply(out)` of the sum
pub fn weights(view: &View<'_>, out: &mut Found) {
    let calls: Vec<Call> = (0..view.steps.len()).filter_map(|step| applied(view, step, 0)).collect();
    let text = view.file();
    if calls.len() < 2 || near::has_any(text, OWN_WAYS) || near::is_unrecorded(view) {
        return;
    }
    for copy in calls.iter().filter(|call| sums(view, call.class, "backward")) {
        let later = calls.iter().filter(|call| call.step > copy.step && call.rest == copy.rest);
        for sum in later.filter(|call| sums(view, call.class, "forward")) {
            let product = (copy.step + 1..sum.step).find_map(|step| {
                let (copied, weights) = product(view, step, copy)?;
                let Stmt::Assign { dst, .. } = view.steps[step].stmt else { return None };
                reaches(view, *dst, step, sum).then_some((step, copied, weights))
            });
            let Some((step, input, weights)) = product else { continue };
            let mistake = Lapse::BesideCopy {
                input,
                weights,
                function: copy.name.clone(),
                copied: view.place(view.steps[copy.step].id),
                summed: view.place(view.steps[sum.step].id),
            };
            out.push((view.place(view.steps[step].id), Practice::Lapse(mistake)));
            return;
        }
    }
}

/// The autograd function of the project that a step applies, also through a function that does nothing else.
fn applied(view: &View<'_>, step: usize, depth: usize) -> Option<Call> {
    let Stmt::Assign { dst, value } = view.steps[step].stmt else { return None };
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let path = view.callee(value)?;
    let class = match path.strip_suffix(".apply") {
        Some(class) => match view.project.path(class) {
            Resolved::Class(at) => at,
            _ => return None,
        },
        None => match view.project.path(&path) {
            Resolved::Func(at) if depth == 0 => around(view, at)?,
            _ => return None,
        },
    };
    let given = near::local(&args.first()?.value)?;
    let rest = args[1..].iter().map(|arg: &Arg| near::deep(view, &view.expr(&arg.value))).collect();
    // What is bound under a name is meant by it.
    let made = view.readers(*dst).iter().find_map(|at| match view.steps[*at].stmt {
        Stmt::Assign { dst: named, value: Rvalue::Use(_) } if view.is_temp(*dst) => Some(*named),
        _ => None,
    });
    let name = Name::from(path.trim_end_matches(".apply").rsplit('.').next()?);
    Some(Call { name, class, step, given, made: made.unwrap_or(*dst), rest })
}

/// The class that a function applies to its first parameter, and returns.
fn around(view: &View<'_>, at: FuncRef) -> Option<ClassRef> {
    let inner = near::shared(view, at);
    let calls: Vec<Call> = (0..inner.steps.len()).filter_map(|step| applied(&inner, step, 1)).collect();
    let [one] = calls.as_slice() else { return None };
    (inner.func.params.first()?.local == one.given && inner.steps.len() <= 3).then_some(one.class)
}

/// Whether an autograd function sums over ranks in this direction, and does nothing of the kind in the other.
fn sums(view: &View<'_>, class: ClassRef, direction: &str) -> bool {
    let method = |name: &str| view.project.own_method(class, name).map(|at| near::shared(view, at));
    let (Some(forward), Some(backward)) = (method("forward"), method("backward")) else { return false };
    let (with, without) = if direction == "forward" { (forward, backward) } else { (backward, forward) };
    let plain = |value: &Rvalue| matches!(value, Rvalue::Binary { op: BinOp::Div | BinOp::Mul, .. });
    let scales = (0..with.steps.len()).any(|step| with.value(step).is_some_and(plain));
    let [(_, call)] = with.collectives() else { return false };
    call.rule.op == "all_reduce"
        && !scales
        && super::mixed_mean::averages(&with, call) != Some(true)
        && !near::communicates(&without)
}

/// What a step multiplies, where one side comes of the copy and the other of its input as it was: the input and the weights by name.
fn product(view: &View<'_>, step: usize, copy: &Call) -> Option<(Name, Name)> {
    let (left, right) = match view.value(step)? {
        Rvalue::Binary { op: BinOp::Mul, left, right } | Rvalue::InPlace { op: BinOp::Mul, left, right } => {
            (left, right)
        }
        Rvalue::CallMethod { base, name, args } if matches!(name.as_str(), "mul" | "mul_") => {
            (base, &args.first()?.value)
        }
        _ => return None,
    };
    let copied = |o: &Operand| near::comes_from(view, o, copy.made, copy.step);
    let weights = |o: &Operand| {
        if view.source(o).is_some_and(|(_, made)| may_copy(view, made)) {
            return false;
        }
        let mut seen = FxHashSet::default();
        !copied_only(view, o, copy) && flows(view, o, step, copy, &mut seen)
    };
    let side = match (copied(left), copied(right)) {
        (true, _) if weights(right) => right,
        (_, true) if weights(left) => left,
        _ => return None,
    };
    let name = name_of(view, side)?;
    Some((view.local_name(copy.given).clone(), name))
}

/// Whether a value is the copy, or is made of it.
fn copied_only(view: &View<'_>, value: &Operand, copy: &Call) -> bool {
    near::reached(view, value, |def| def > copy.step).contains(&copy.made) && copy.made != copy.given
}

/// The first name on the way of what is multiplied.
fn name_of(view: &View<'_>, value: &Operand) -> Option<Name> {
    let local = near::local(value)?;
    if !view.is_temp(local) {
        return Some(view.local_name(local).clone());
    }
    let (_, made) = view.source(value)?;
    match made {
        Rvalue::Item { base, .. } | Rvalue::Attr { base, .. } | Rvalue::Use(base) | Rvalue::CallMethod { base, .. } => {
            name_of(view, base)
        }
        Rvalue::Call { args, .. } => name_of(view, &args.first()?.value),
        Rvalue::Binary { left, right, .. } => name_of(view, left).or_else(|| name_of(view, right)),
        _ => None,
    }
}

/// Whether a gradient of a value flows back to the input of the copy, past the copy. `before`: the step that reads it.
fn flows(view: &View<'_>, value: &Operand, before: usize, copy: &Call, seen: &mut FxHashSet<(LocalId, usize)>) -> bool {
    let Some(local) = near::local(value) else { return false };
    if local == copy.given && (copy.made != copy.given || before <= copy.step) {
        return true;
    }
    let Some(def) = view.last_def(local, before).filter(|def| *def != copy.step) else { return false };
    if view.defs(local).len() > 2 || !seen.insert((local, def)) || view.without_gradient(def) {
        return false;
    }
    let mut on = |o: &Operand| flows(view, o, def, copy, seen);
    match (view.steps[def].stmt, view.value(def)) {
        (Stmt::Unpack { value, before, .. }, _) => {
            let indices = view.source(value).is_some_and(|(at, _)| {
                near::name_of_call(view, at).is_some_and(|name| WITH_INDICES.contains(&name.as_str()))
            });
            (!indices || before.first() == Some(&local)) && on(value)
        }
        (_, Some(Rvalue::Use(o) | Rvalue::Unary { operand: o, .. })) => on(o),
        (_, Some(Rvalue::Item { base, .. })) => on(base),
        (_, Some(Rvalue::Attr { base, name })) => {
            matches!(name.as_str(), "T" | "mT" | "values" | "logits" | "scores") && on(base)
        }
        (_, Some(Rvalue::Binary { left, right, .. } | Rvalue::InPlace { left, right, .. })) => on(left) || on(right),
        (_, Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }))) => {
            let Some(name) = near::written_name(view, value) else { return false };
            let stops = STOPS.contains(&name.as_str()) || view.may_communicate(value);
            if stops || applied(view, def, 0).is_some() || may_copy(view, value) {
                return false;
            }
            let of_object = |base: &Operand| near::is_self(view, base);
            if matches!(value, Rvalue::CallMethod { base, name, .. } if of_object(base) && is_own_module(view, name)) {
                return false;
            }
            let base = matches!(value, Rvalue::CallMethod { base, .. } if !of_object(base) && on(base));
            base || !KINDS.contains(&name.as_str()) && args.iter().any(|arg| on(&arg.value))
        }
        _ => false,
    }
}

/// Whether a function of the project that is called, or a method of the object, may copy what it is given as well.
fn may_copy<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    let called = match value {
        Rvalue::CallMethod { base, name, .. } if near::is_self(view, base) => near::own_method(view, name),
        _ => view.callee(value).and_then(|path| match view.project.path(&path) {
            Resolved::Func(at) => Some(at),
            _ => None,
        }),
    };
    called.is_some_and(|at| {
        let inner = near::shared(view, at);
        near::communicates(&inner) || near::has_any(inner.code(), STOP_WORDS)
    })
}

/// Whether a submodule is of a class of the project, whose forward may copy as well.
fn is_own_module(view: &View<'_>, name: &str) -> bool {
    let Some(class) = near::class_of(view) else { return false };
    near::assigned(view, class, name).iter().any(|(method, _, value)| match method.expr(value) {
        Expr::Call { callee, .. } => {
            near::path(method, &callee).is_some_and(|path| matches!(view.project.path(&path), Resolved::Class(_)))
        }
        _ => false,
    })
}

/// Whether a value goes into a sum, also by what is added in place.
fn reaches(view: &View<'_>, from: LocalId, step: usize, sum: &Call) -> bool {
    let mut held: FxHashSet<LocalId> = [from].into_iter().collect();
    for later in step + 1..sum.step {
        let reads = view.reads(later).into_iter().any(|o| near::local(o).is_some_and(|l| held.contains(&l)));
        match view.steps[later].stmt {
            Stmt::Assign { dst, value } if reads => {
                held.insert(*dst);
                if let Rvalue::CallMethod { base: Operand::Local(base), name, .. } = value
                    && name.ends_with('_')
                {
                    held.insert(*base);
                    held.extend(view.source(&Operand::Local(*base)).and_then(|(_, made)| match made {
                        Rvalue::Item { base, .. } => near::local(base),
                        _ => None,
                    }));
                }
            }
            Stmt::SetItem { base, .. } if reads => held.extend(near::local(base)),
            _ => {}
        }
    }
    held.contains(&sum.given)
}
