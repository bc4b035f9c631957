//! Regions of local tensors whose input gradients are taken for complete. In: a function. Out: `local_map` with a replicated input that
//! ranks use for different work, without gradient placements in some configuration; styles of parallel modules that return local
//! tensors and are used for a router without them. Never: inputs that may need no gradient. Source: torch.distributed.tensor
//! `local_map`: `in_grad_placements=None` means those of the inputs. Next: `near.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::near;
use super::view::View;
use crate::ir::{Arg, ArgKind, BuildKind, Const, Item, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, Resolved};
use crate::source::{Name, Place};

/// What placements say of one tensor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    Replicate,
    Shard,
    Partial,
    /// `None`, or not known.
    Other,
}

/// Parts of names of inputs that receive a gradient.
pub(super) const DIFFERENTIABLE: &[&str] = &[
    "x",
    "w",
    "weight",
    "hidden",
    "hidden_states",
    "gate",
    "scores",
    "inp",
    "bias",
    "w1",
    "w2",
    "w3",
    "q",
    "k",
    "v",
    "query",
    "key",
    "value",
];

pub fn regions(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(Rvalue::Call { callee, args }) = view.value(i) else { continue };
        let Some(path) = view.through(callee).path().cloned() else { continue };
        if !path.ends_with(".local_map") && path != "local_map" || !path.starts_with("torch") {
            continue;
        }
        if args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar)) || no_sum_is_due(view, i, args) {
            continue;
        }
        let first = usize::from(!args.is_empty());
        let given = |name: &str, position: usize| view.argument(args, position, name);
        let Some(inputs) = given("in_placements", 1 + first).map(|o| near::deep(view, &view.expr(o))) else { continue };
        let outputs = given("out_placements", first).map(|o| near::deep(view, &view.expr(o)));
        let gradient = args.iter().position(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == "in_grad_placements"));
        let gradients = gradient.map(|g| near::deep(view, &view.expr(&args[g].value)));
        let Some((dropped, kept)) = dropped(view, gradients.as_ref()) else { continue };
        let inputs = tensors(view, &inputs);
        let outputs = outputs.map(|o| tensors(view, &o)).unwrap_or_default();
        if !is_partial(view, args, &inputs, &outputs, kept.as_ref()) {
            continue;
        }
        let place = match gradient {
            // The parts of a call are the callee and the arguments.
            Some(at) => view.part(step.id, at + 1),
            None => view.part(step.id, 0),
        };
        let mistake = Placements::RegionGradient { conditional: dropped };
        out.push((place, Practice::Placements(mistake)));
    }
}

/// Words of code through which no gradient goes, or which sums it itself.
const SUMS_ITSELF: &[&str] =
    &[".detach(", "no_grad", "inference_mode", ".apply(", "copy_to", "reduce", "register_hook"];

/// Whether no gradient flows through a region, or the region sums it itself.
fn no_sum_is_due(view: &View<'_>, step: usize, args: &[Arg]) -> bool {
    let inside = || {
        let region = args.first().and_then(|a| near::function(view, &a.value));
        region.is_some_and(|at| near::has_any(near::shared(view, at).code(), SUMS_ITSELF))
    };
    view.without_gradient(step) || near::is_unrecorded(view) || view.code().contains(".detach(") || inside()
}

/// Whether gradient placements are absent in some configuration: whether a condition decides, and what they are otherwise.
fn dropped(view: &View<'_>, given: Option<&Expr>) -> Option<(bool, Option<Expr>)> {
    match given {
        None => Some((false, None)),
        Some(e) if e.is_none() => Some((false, None)),
        Some(Expr::Choice(_, a, b)) if a.is_none() != b.is_none() => {
            let kept = if a.is_none() { b } else { a };
            Some((true, Some(near::deep(view, kept))))
        }
        Some(Expr::Bool { and: true, of }) => Some((true, of.last().map(|e| near::deep(view, e)))),
        Some(Expr::Local(local)) => {
            // Bound in one branch, `None` before or in the other.
            let values: Vec<Expr> = view.defs(*local).iter().map(|d| value(view, *d)).collect();
            let none = values.iter().any(Expr::is_none);
            let kept = values.into_iter().find(|v| !v.is_none() && *v != Expr::Unknown)?;
            none.then(|| (true, Some(near::deep(view, &kept))))
        }
        _ => None,
    }
}

fn value(view: &View<'_>, step: usize) -> Expr {
    match view.value(step) {
        Some(Rvalue::Use(o)) => view.expr(o),
        Some(Rvalue::Build { kind: BuildKind::Tuple | BuildKind::List, items }) => {
            let all: Option<Vec<Expr>> = items
                .iter()
                .map(|i| match i {
                    Item::One(o) => Some(view.expr(o)),
                    Item::Star(_) => None,
                })
                .collect();
            all.map_or(Expr::Unknown, Expr::Build)
        }
        _ => Expr::Unknown,
    }
}

/// Whether the gradient of some replicated input is partial.
fn is_partial(view: &View<'_>, args: &[Arg], inputs: &[Placed], outputs: &[Placed], kept: Option<&Expr>) -> bool {
    let replicated: Vec<usize> = (0..inputs.len()).filter(|i| inputs[*i] == Placed::Replicate).collect();
    if let Some(kept) = kept {
        // The code itself says so, under its condition.
        let kept = tensors(view, kept);
        return replicated.iter().any(|i| kept.get(*i) == Some(&Placed::Partial));
    }
    let names = names(view, args);
    let differs =
        outputs.contains(&Placed::Partial) || inputs.contains(&Placed::Shard) && outputs.contains(&Placed::Shard);
    let learns =
        |i: &usize| names.get(*i).is_some_and(|n| DIFFERENTIABLE.contains(&n.as_str()) || n.ends_with("_weight"));
    differs && replicated.iter().any(learns)
}

/// The names of the parameters of the function that runs on local tensors.
fn names(view: &View<'_>, args: &[Arg]) -> Vec<Name> {
    let given = args.first().and_then(|a| near::function(view, &a.value));
    given.map_or_else(Vec::new, |at| view.project.func(at).params.iter().map(|p| p.name.clone()).collect())
}

/// The placements of each tensor.
fn tensors(view: &View<'_>, placements: &Expr) -> Vec<Placed> {
    match near::deep(view, placements) {
        Expr::Build(items) => {
            let each: Vec<Placed> = items.iter().map(|i| one(view, i)).collect();
            // One list of placements for the only output.
            let flat = items.iter().all(|i| placement(i).is_some());
            if flat && !items.is_empty() { vec![each[0]] } else { each }
        }
        _ => Vec::new(),
    }
}

/// The placements of one tensor, dim by dim of the mesh.
pub(super) fn by_dim(view: &View<'_>, items: &[Expr]) -> Vec<Placed> {
    items.iter().map(|i| placement(&near::deep(view, i)).unwrap_or(Placed::Other)).collect()
}

fn one(view: &View<'_>, expr: &Expr) -> Placed {
    match near::deep(view, expr) {
        Expr::Build(items) => {
            let kinds = by_dim(view, &items);
            let all = |p: Placed| !kinds.is_empty() && kinds.iter().all(|k| *k == p);
            match () {
                () if all(Placed::Replicate) => Placed::Replicate,
                () if kinds.contains(&Placed::Partial) => Placed::Partial,
                () if kinds.contains(&Placed::Shard) => Placed::Shard,
                () => Placed::Other,
            }
        }
        other => placement(&other).unwrap_or(Placed::Other),
    }
}

fn placement(expr: &Expr) -> Option<Placed> {
    let Expr::Call { callee, .. } = expr else { return None };
    match callee.last_name()? {
        "Replicate" => Some(Placed::Replicate),
        "Shard" => Some(Placed::Shard),
        "Partial" => Some(Placed::Partial),
        _ => None,
    }
}

/// Names of modules whose output decides which expert works on a token.
pub const ROUTERS: &[&str] = &["router", "gate", "gating", "wg", "router_gate"];

/// The same as keys of a plan, or what is given such a module.
pub const AS_KEYS: &[&str] = &[
    "router\"",
    "router'",
    "gate\"",
    "gate'",
    "gating\"",
    "gating'",
    "wg\"",
    "wg'",
    "router,",
    "gate,",
    "gating,",
    "wg,",
    "parallelize_module",
];

/// Plans that leave out gradient placements for a router.
pub fn styles(view: &View<'_>, out: &mut Found) {
    for step in 0..view.steps.len() {
        let pairs: Vec<(Operand, &Operand)> = match (view.steps[step].stmt, view.value(step)) {
            (_, Some(Rvalue::Build { kind: BuildKind::Dict, items })) => items
                .chunks(2)
                .filter_map(|pair| match pair {
                    [Item::One(key), Item::One(value)] => Some((key.clone(), value)),
                    _ => None,
                })
                .collect(),
            (Stmt::SetItem { index, value, .. }, _) => vec![(Operand::clone(index), value)],
            _ => continue,
        };
        for (key, value) in pairs {
            let Some(module) = view.expr(&key).string().cloned() else { continue };
            let last = module.rsplit('.').next().unwrap_or(&module);
            if ROUTERS.contains(&last) && (last != "gate" || routes(view)) {
                style(view, module, value, out);
            }
        }
    }
    for (i, _) in view.steps.iter().enumerate() {
        let Some(Rvalue::Call { callee, args }) = view.value(i) else { continue };
        let applies = view.through(callee).last_name() == Some("parallelize_module");
        let (Some(module), Some(plan)) = (view.argument(args, 0, "module"), view.argument(args, 2, "parallelize_plan"))
        else {
            continue;
        };
        let name = view.through(module).last_name().map(Name::from);
        if let Some(name) =
            name.filter(|n| applies && ROUTERS.contains(&n.as_str()) && (n.as_str() != "gate" || routes(view)))
        {
            style(view, name, plan, out);
        }
    }
}

/// Whether a file speaks of experts: a gate may be that of a highway.
fn routes(view: &View<'_>) -> bool {
    let text = view.file().to_lowercase();
    near::has_any(&text, &["expert", "moe", "router"])
}

/// One entry of a plan.
fn style(view: &View<'_>, module: Name, value: &Operand, out: &mut Found) {
    let made = view.through(value);
    let Expr::Call { callee, args, step } = &made else { return };
    let Some(path) = near::path(view, callee) else { return };
    let Resolved::Class(class) = view.project.path(&path) else { return };
    let Some((parameter, position, returns)) = returned(view, class) else { return };
    // What stays distributed has a gradient with placements.
    let stays = |(kind, value): &(ArgKind, Expr)| {
        matches!(kind, ArgKind::Keyword(k) if k.contains("local")) && *value == Expr::Const(Const::Bool(false))
    };
    if args.iter().any(stays) {
        return;
    }
    let given = args.iter().enumerate().any(|(i, (kind, value))| match kind {
        ArgKind::Keyword(k) => *k == parameter && !value.is_none(),
        ArgKind::Positional => Some(i) == position,
        ArgKind::Star | ArgKind::DoubleStar => true,
    });
    if !given {
        let style = Name::from(path.rsplit('.').next().unwrap_or(&path));
        let mistake = Placements::StyleGradient { style, module, parameter, returns };
        out.push((view.place(view.steps[*step].id), Practice::Placements(mistake)));
    }
}

/// The parameter of a style's constructor that becomes the gradient placements of its local output, where it is `None` by default.
fn returned(view: &View<'_>, class: ClassRef) -> Option<(Name, Option<usize>, Place)> {
    let ir = &view.project.modules[class.module].ir;
    let methods: Vec<View<'_>> = ir.classes[class.class]
        .methods
        .iter()
        .map(|(_, func)| near::other(view, FuncRef { module: class.module, func: *func }))
        .collect();
    let init = methods.iter().find(|m| m.func.name == "__init__")?;
    let (at, parameter) = init.func.params.iter().enumerate().find(|(_, p)| p.name.ends_with("grad_placements"))?;
    let none = parameter.has_default && near::default_of(init, at).is_none_or(|c| c == Const::None);
    let returns = methods.iter().find_map(|m| {
        m.steps.iter().enumerate().find_map(|(i, step)| match m.value(i) {
            Some(Rvalue::CallMethod { name, args, .. }) if name == "to_local" && !args.is_empty() => {
                Some(m.place(step.id))
            }
            _ => None,
        })
    })?;
    let position = (parameter.kind == crate::ir::ParamKind::Normal).then(|| at.saturating_sub(1));
    none.then(|| (parameter.name.clone(), position, returns))
}
