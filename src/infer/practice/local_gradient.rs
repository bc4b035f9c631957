//! Parameters that leave a distributed tensor without saying what their gradient is. In: a function. Out: `to_local()` and
//! `full_tensor()` of a weight that meets values of one rank, and no gradient placements. Never: weights that may be sharded like their
//! data. Source: torch.distributed.tensor, `DTensor.to_local`: the gradient is taken for placed as the tensor is. Next: `near.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::near;
use super::only_some::callee;
use super::view::View;
use crate::ir::{ArgKind, BinOp, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, Resolved};
use crate::source::{Name, Place};
use rustc_hash::FxHashSet;

/// Methods and operations through which a weight stays that weight.
const KEEPS: &[&str] = &[
    "to",
    "float",
    "half",
    "bfloat16",
    "type",
    "type_as",
    "t",
    "transpose",
    "view",
    "reshape",
    "contiguous",
    "cuda",
    "unsqueeze",
    "squeeze",
    "expand",
];

/// Parts of names of functions that combine a weight with activations.
const COMBINES: &[&str] = &[
    "linear",
    "matmul",
    "mm",
    "bmm",
    "addmm",
    "einsum",
    "mul",
    "cross_entropy",
    "loss",
    "layer_norm",
    "rms_norm",
    "norm",
    "logits",
];

/// Words of comments for values of one rank.
const ONE_RANK: &[&str] = &[
    "rank's",
    "ranks' own",
    "this rank",
    "each rank",
    "per-rank",
    "per rank",
    "rank-local",
    "local to",
    "sharded",
    "slice of",
    "split over",
    "local tokens",
    "local shard",
];

/// Words of comments that turn those into the opposite.
const ALL_RANKS: &[&str] = &[
    "same",
    "identical",
    "equal",
    "gathered",
    "is replicated",
    "not sharded",
    "no longer sharded",
    "unsharded",
    "un-sharded",
];

/// Whether a comment speaks of values of one rank.
fn of_one_rank(text: &str) -> bool {
    ONE_RANK.iter().any(|w| text.contains(w)) && !ALL_RANKS.iter().any(|w| text.contains(w))
}

/// Words of comments that say that ranks hold different data.
const DATA_PARALLEL: &[&str] =
    &["fsdp", "data-parallel", "data parallel", "data/context", "context-parallel", "context parallel"];

pub fn bare(view: &View<'_>, out: &mut Found) {
    // Autograd sees nothing of what the forward of an autograd function does: its backward places gradients itself.
    if view.func.params.first().is_some_and(|p| p.name == "ctx") {
        return;
    }
    for step in 0..view.steps.len() {
        let Some((base, name)) = leaving(view, step).filter(|_| !is_apart(view, step)) else { continue };
        // A hook on what is gathered may sum its gradient.
        if near::has_any(view.code(), &["register_hook(", "sum_grad", "reduce_grad", "reducegrad"]) {
            continue;
        }
        let receiver = match view.expr(base) {
            Expr::Local(local) => weight_behind(view, local, step),
            other => other,
        };
        // A copy that is whole on every rank has the gradient of each for the gradient of all, as one that is gathered.
        let (receiver, whole) = match made_whole(view, &receiver) {
            Some(inner) => (inner, true),
            None => (receiver, name == "full_tensor"),
        };
        let Some((meets, data)) = meeting(view, step) else { continue };
        let Some(weight) = weight_name(view, &receiver) else { continue };
        // What is added to one part of a pending sum has the gradient of the sum, which is the same on all ranks.
        if weight.contains("bias") && ["from_local(", "partial()"].iter().all(|word| view.code().contains(word)) {
            continue;
        }
        let evidence = match whole {
            true => gathered(view, &weight, &data),
            false => replicated(view, &receiver, &weight).and_then(|why| one_rank(view, &data).map(|_| why)),
        };
        if let Some(evidence) = evidence {
            let weight = match view.expr(base) {
                Expr::Local(local) if !view.is_temp(local) => view.local_name(local).clone(),
                _ => weight,
            };
            let mistake = Placements::BareLocal { method: name.clone(), weight, meets, evidence };
            out.push((view.place(view.steps[step].id), Practice::Placements(mistake)));
        }
    }
}

/// What leaves a distributed tensor at a step, and by which method: `weight.to_local()`, or a helper that does no more than that.
fn leaving<'v>(view: &View<'v>, step: usize) -> Option<(&'v Operand, Name)> {
    let value = view.value(step)?;
    if let Some((base, name)) = left_by(value) {
        return Some((base, name.clone()));
    }
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let [arg] = &args[..] else { return None };
    let helper = near::shared(view, callee(view, value)?);
    let params = &helper.func.params[usize::from(helper.func.class.is_some())..];
    let [param] = params else { return None };
    let is_param = |o: &Operand| matches!(helper.expr(o), Expr::Local(l) if l == param.local);
    let mut found = None;
    for inner in 0..helper.steps.len() {
        let Some(value) = helper.value(inner) else { continue };
        if let Some((_, name)) = left_by(value).filter(|(base, _)| is_param(base)) {
            if found.replace(name.clone()).is_some() {
                return None;
            }
        } else if matches!(value, Rvalue::CallMethod { .. } | Rvalue::Binary { .. }) {
            return None;
        }
    }
    Some((&arg.value, found.filter(|_| helper.func.code.count() <= MAX_HELPER)?))
}

/// Methods by which a tensor leaves a distributed one.
const LEAVES: &[&str] = &["to_local", "full_tensor"];
/// Statements of a helper that does no more than that.
const MAX_HELPER: usize = 16;

/// The tensor and the method of `tensor.to_local()`.
fn left_by(value: &Rvalue) -> Option<(&Operand, &Name)> {
    match value {
        Rvalue::CallMethod { base, name, args } if args.is_empty() && LEAVES.contains(&name.as_str()) => {
            Some((base, name))
        }
        _ => None,
    }
}

/// The tensor that is first made whole on every rank: `weight.redistribute(placements=[Replicate()])`.
fn made_whole(view: &View<'_>, receiver: &Expr) -> Option<Expr> {
    let Expr::Call { callee, args, step } = receiver else { return None };
    let Expr::Attr(base, method) = &**callee else { return None };
    let text = view.text(view.place(view.steps[*step].id));
    let placed = text.contains("Replicate()") && !near::has_any(text, &["Shard(", "Partial("]);
    (method == "redistribute" && !args.is_empty() && placed).then(|| match &**base {
        Expr::Local(local) => weight_behind(view, *local, *step),
        other => other.clone(),
    })
}

/// How a function says that a weight is not trained.
const FROZEN: &[&str] = &["frozen", "Frozen", "requires_grad_(False)", "requires_grad = False"];

/// Whether gradients do not flow here, or the code is about storage.
pub(super) fn is_apart(view: &View<'_>, step: usize) -> bool {
    const STORAGE: &[&str] = &[
        "state_dict",
        "save",
        "load",
        "init",
        "reset",
        "sync",
        "clip",
        "export",
        "test",
        "gather_",
        "debug",
        "check",
        "copy",
        "optimizer",
        "step",
        "shard",
        "generate",
        "merge",
        "convert",
    ];
    let function = view.func.name.to_lowercase();
    if STORAGE.iter().any(|w| function.contains(w)) || view.without_gradient(step) {
        return true;
    }
    let own = view.text(view.spot(view.func.span));
    if FROZEN.iter().any(|w| own.contains(w)) {
        return true;
    }
    near::is_unrecorded(view)
}

/// A variable that holds `self.lm_head.weight` or a parameter, at a step that may rebind it.
fn weight_behind(view: &View<'_>, local: LocalId, step: usize) -> Expr {
    let before: Vec<usize> = view.defs(local).iter().copied().filter(|d| *d < step).collect();
    match before.as_slice() {
        [one] => match view.value(*one) {
            None => match view.bound(*one, local) {
                part @ Expr::Attr(..) => part,
                _ => Expr::Local(local),
            },
            Some(Rvalue::Use(operand)) => view.expr(operand),
            Some(Rvalue::Attr { base, name }) => Expr::Attr(Box::new(view.expr(base)), name.clone()),
            _ => Expr::Local(local),
        },
        _ => Expr::Local(local),
    }
}

/// The name of a weight or bias: an attribute that the constructor makes a parameter, or what is called like one.
fn weight_name(view: &View<'_>, receiver: &Expr) -> Option<Name> {
    let name = match receiver {
        Expr::Local(local) if !view.is_temp(*local) => view.local_name(*local).clone(),
        Expr::Attr(_, name) => name.clone(),
        _ => return None,
    };
    let lower = name.to_lowercase();
    let weight = ["weight", "bias", "gamma", "beta"].iter().any(|w| lower.contains(w))
        || ["w", "b", "embed", "kernel", "lm_head"].iter().any(|w| lower == *w);
    (weight || is_parameter(view, receiver)).then_some(name)
}

/// Whether the class makes an attribute of its own a parameter.
fn is_parameter(view: &View<'_>, receiver: &Expr) -> bool {
    let (Some(name), Some(class)) = (near::own_attribute(view, receiver), near::class_of(view)) else { return false };
    let made = |method: &View<'_>, value: &Operand| method.through(value).call_of("Parameter").is_some();
    near::assigned(view, class, name).iter().any(|(method, _, value)| made(method, value))
}

/// Where the value that a step makes meets activations, and these.
pub(super) fn meeting(view: &View<'_>, step: usize) -> Option<(Place, FxHashSet<LocalId>)> {
    let Stmt::Assign { dst, .. } = view.steps[step].stmt else { return None };
    meeting_of(view, *dst, step + 1, true)
}

/// Where a variable meets activations from a step on, also in a function to which it is given.
fn meeting_of(view: &View<'_>, of: LocalId, from: usize, inside: bool) -> Option<(Place, FxHashSet<LocalId>)> {
    let mut held: FxHashSet<LocalId> = [of].into_iter().collect();
    for later in from..view.steps.len() {
        let Some(value) = view.value(later) else { continue };
        let is_held = |o: &Operand| matches!(o, Operand::Local(l) if held.contains(l));
        let others: Vec<&Operand> = match value {
            Rvalue::Binary { op: BinOp::Mul | BinOp::MatMul, left, right } if is_held(left) || is_held(right) => {
                vec![if is_held(left) { right } else { left }]
            }
            Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }
                if combines(view, value, &held) || inside && combines_inside(view, value, &held) =>
            {
                let base = match value {
                    Rvalue::CallMethod { base, .. } => Some(base),
                    _ => None,
                };
                args.iter().map(|a| &a.value).chain(base).filter(|o| !is_held(o)).collect()
            }
            Rvalue::Use(o) if is_held(o) => {
                keep(view, later, &mut held);
                continue;
            }
            Rvalue::CallMethod { base, name, .. } if is_held(base) && KEEPS.contains(&name.as_str()) => {
                keep(view, later, &mut held);
                continue;
            }
            Rvalue::Attr { base, name } if is_held(base) && matches!(name.as_str(), "T" | "mT") => {
                keep(view, later, &mut held);
                continue;
            }
            _ => continue,
        };
        let data: FxHashSet<LocalId> = others.into_iter().flat_map(|o| near::roots(view, o)).collect();
        let data: FxHashSet<LocalId> =
            data.into_iter().filter(|l| !held.contains(l) && view.local_name(*l) != "self").collect();
        if !data.is_empty() {
            return Some((view.place(view.steps[later].id), data));
        }
    }
    None
}

/// Whether a function of the project combines with something what it is given: `head(hidden, weight)`, `checkpoint(head, hidden, weight)`.
fn combines_inside(view: &View<'_>, value: &Rvalue, held: &FxHashSet<LocalId>) -> bool {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return false };
    let is_held = |o: &Operand| matches!(o, Operand::Local(l) if held.contains(l));
    let positional: Vec<&Operand> =
        args.iter().take_while(|a| matches!(a.kind, ArgKind::Positional)).map(|a| &a.value).collect();
    let Some(at) = positional.iter().position(|o| is_held(o)) else { return false };
    let name = match value {
        Rvalue::Call { callee, .. } => view.through(callee).last_name().map(str::to_owned),
        _ => None,
    };
    let (function, at) = match (name.as_deref(), positional.first()) {
        (Some("checkpoint"), Some(first)) if at > 0 => (given_function(view, first), at - 1),
        _ => (callee(view, value), at),
    };
    let Some(function) = function else { return false };
    let inner = near::shared(view, function);
    let skipped = usize::from(inner.func.class.is_some());
    let param = inner.func.params.get(at + skipped).map(|p| p.local);
    param.is_some_and(|param| meeting_of(&inner, param, 0, false).is_some())
}

/// A function of the project, or method of the own object, that is given to a call.
fn given_function(view: &View<'_>, operand: &Operand) -> Option<FuncRef> {
    let given = view.through(operand);
    match near::own_attribute(view, &given) {
        Some(name) => {
            let class = ClassRef { module: view.at.module, class: near::class_of(view)? };
            view.project.own_method(class, name)
        }
        None => match view.project.path(&near::path(view, &given)?) {
            Resolved::Func(at) => Some(at),
            _ => None,
        },
    }
}

fn keep(view: &View<'_>, step: usize, held: &mut FxHashSet<LocalId>) {
    if let Stmt::Assign { dst, .. } = view.steps[step].stmt {
        held.insert(*dst);
    }
}

/// Whether a call combines the weight with something.
fn combines(view: &View<'_>, value: &Rvalue, held: &FxHashSet<LocalId>) -> bool {
    let (args, name) = match value {
        Rvalue::Call { callee, args } => (args, view.through(callee).last_name().map(str::to_lowercase)),
        Rvalue::CallMethod { base, name, args } => {
            let owner = match view.expr(base) {
                Expr::Local(l) => view.local_name(l).as_str().to_lowercase(),
                other => other.last_name().unwrap_or_default().to_lowercase(),
            };
            (args, Some(format!("{owner}.{}", name.to_lowercase())))
        }
        _ => return false,
    };
    let given = args.iter().any(|a| matches!(&a.value, Operand::Local(l) if held.contains(l)));
    let local_callee = || match value {
        Rvalue::Call { callee: Operand::Local(l), .. } => view.local_name(*l).as_str().to_lowercase(),
        _ => String::new(),
    };
    let name = name.unwrap_or_else(local_callee);
    given && COMBINES.iter().any(|c| name.contains(c))
}

/// Whether a gathered weight surely meets data that differs between the ranks that hold its shards.
fn gathered(view: &View<'_>, weight: &str, data: &FxHashSet<LocalId>) -> Option<Option<Place>> {
    if equal_everywhere(view) {
        return None;
    }
    let apart = |text: &str| near::has_any(text, &["already", "unshard", "tp only", "only tp", "before the forward"]);
    let of_data =
        |text: &str| text.split(['.', ';', ':']).any(|said| near::speaks_of(said, DATA_PARALLEL) && !apart(said));
    let note =
        near::notes(view).into_iter().find(|n| of_data(&n.text) || of_one_rank(&n.text) && names(view, data, &n.text));
    if let Some(note) = note {
        return Some(note.place);
    }
    // A head that computes a loss of the labels of its batch.
    let head = ["lm", "vocab", "head", "embed"].iter().any(|w| weight.to_lowercase().contains(w))
        || view.code().contains("lm_head")
        || weight == "weight" && view.file().contains("lm_head.weight") && view.code().contains("cross_entropy");
    let labels =
        view.func.params.iter().any(|p| matches!(p.name.as_str(), "labels" | "target" | "targets" | "shift_labels"));
    // A head that a plan splits over the ranks of one copy of the model meets what is equal on these ranks.
    let split = || {
        let file = view.file();
        let plans = file.contains("ColwiseParallel") && (file.contains("head\":") || file.contains("output\":"));
        plans && !near::has_any(file, &["fully_shard", "FSDP"])
    };
    (head && labels && !split()).then_some(None)
}

/// Whether the function says that all ranks have the same activations.
fn equal_everywhere(view: &View<'_>) -> bool {
    // One sentence speaks of both.
    let says = |text: &str| {
        text.split(['.', ';', ':']).any(|said| {
            let equal = ["same", "identical", "equal"].iter().any(|word| near::has_word(said, word))
                || near::has_any(said, &["all tokens", "every token"]);
            let of_ranks = near::has_any(said, &["rank", "tensor-parallel", "tensor parallel"]);
            equal && (of_ranks || ["tp", "there"].iter().any(|word| near::has_word(said, word)))
        })
    };
    let lines = view.text(view.spot(view.func.span)).to_lowercase();
    let doc = lines.split("\"\"\"").nth(1).unwrap_or_default();
    says(doc)
        || near::notes(view).iter().any(|n| says(&n.text) && !near::has_any(&n.text, &["not the same", "not equal"]))
}

/// Whether a weight is the same on all ranks: a comment, its placements, or a norm.
fn replicated(view: &View<'_>, receiver: &Expr, weight: &str) -> Option<Option<Place>> {
    let class = near::class_of(view);
    let class_name = class.map(|c| view.project.modules[view.at.module].ir.classes[c].name.to_lowercase());
    if class_name.as_ref().is_some_and(|n| n.contains("expert") || n.contains("moe") || n.contains("parallel")) {
        return None;
    }
    let mut spans = vec![view.func.span];
    if let (Some(class), Expr::Attr(..)) = (class, receiver) {
        spans.push(view.project.modules[view.at.module].ir.classes[class].span);
        for (method, step, value) in near::assigned(view, class, weight) {
            let place = method.place(method.steps[step].id);
            let text = line_of(&method, place).to_lowercase();
            if text.contains("shard(") || text.contains("sharded") {
                return None;
            }
            let made = method.through(value);
            let replicate = &mut |e: &Expr| e.call_of("Replicate").is_some();
            if text.contains("replicat") || made.any(replicate) {
                return Some(Some(place));
            }
        }
    }
    for span in spans {
        for note in near::comments(view, span) {
            if near::has_word(&note.text, weight) && note.text.contains("replicat") {
                return Some(note.place);
            }
        }
    }
    let owner = match receiver {
        Expr::Attr(base, _) => base.last_name().map(str::to_lowercase).unwrap_or_default(),
        _ => String::new(),
    };
    let norm = class_name.is_some_and(|n| n.contains("norm"))
        || owner.contains("norm")
        || weight.to_lowercase().contains("norm");
    norm.then_some(None)
}

/// The line of the source that a place begins on.
fn line_of<'a>(view: &View<'a>, place: Place) -> &'a str {
    let text = view.files[place.file].whole();
    let at = place.span.start as usize;
    let start = text[..at].rfind('\n').map_or(0, |n| n + 1);
    let end = text[at..].find('\n').map_or(text.len(), |n| at + n);
    &text[start..end]
}

/// Whether activations are those of one rank: their names or a comment about them say so.
fn one_rank(view: &View<'_>, data: &FxHashSet<LocalId>) -> Option<()> {
    let named = data.iter().any(|l| {
        let name = view.local_name(*l);
        near::has_part(name, "local") || near::has_part(name, "shard")
    });
    let noted = || near::notes(view).iter().any(|n| of_one_rank(&n.text) && names(view, data, &n.text));
    (named && !equal_everywhere(view) || noted()).then_some(())
}

/// Whether a text names one of the variables.
fn names(view: &View<'_>, data: &FxHashSet<LocalId>, text: &str) -> bool {
    data.iter().any(|l| near::has_word(text, &view.local_name(*l).to_lowercase()))
}
