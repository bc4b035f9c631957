//! Parts of what all ranks gathered, picked by the rank on the node. In: a function. Out: a slice whose bounds are computed from
//! `local_process_index` or `local_rank`, of values that come from a gather over all ranks; one that is named as this rank's and starts at
//! 0 on all. Never: a gather over a group that is named, or a
//! slice of what is not seen to be gathered. Source: accelerate, `PartialState.local_process_index`: the index of the process on its node; what
//! is gathered stands in the order of `process_index`. Next: `world_rank.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::near;
use super::view::View;
use crate::infer::limits::MAX_EXPR_DEPTH;
use crate::ir::{ArgKind, BinOp, BuildKind, Const, Item, LocalId, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::{Name, Place};

/// Names of the rank on a node.
const ON_NODE: &[&str] = &["local_process_index", "local_rank"];
/// What puts the values of all ranks one after another.
const GATHERS: &[&str] = &["gather", "gather_for_metrics", "gather_object"];
/// Parts of names of what is this rank's.
const OWN: &[&str] = &["process", "rank", "own", "mine", "local"];
/// Words of functions that are told which ranks.
const GROUPS: &[&str] = &[
    "group=",
    "_group",
    "mesh",
    "local_world",
    "nnodes",
    "num_nodes",
    "device_count(",
    "group_world_size",
    "node_rank",
];
/// Words of code that one rank alone comes to.
const ONE_RANK: &[&str] =
    &["is_main_process", "is_local_main", "process_index ==", "rank == 0", "rank() == 0", "rank != 0"];

/// `gather(rewards)[local_process_index * n : (local_process_index + 1) * n]`
pub fn picks(view: &View<'_>, out: &mut Found) {
    if near::has_any(view.code(), GROUPS) {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Some(Rvalue::Item { base, index }) = view.value(i) else { continue };
        let bounds = bounds(view, index);
        let by = bounds.iter().find_map(|bound| node_rank(view, bound, 0));
        let first = by.is_none().then(|| named_own(view, index, &bounds)).flatten();
        if by.is_none() && first.is_none() {
            continue;
        }
        let Some(gathered) = near::local(base).and_then(|base| gathered(view, base, i, 0)) else { continue };
        let picked = view.place(step.id);
        let (place, mistake) = match (by, first) {
            (Some((rank, said)), _) => (said.unwrap_or(picked), Scales::NodeRank { rank, gathered, picked }),
            (None, Some((slice, said))) => (said, Scales::FirstPart { slice, gathered, picked }),
            (None, None) => continue,
        };
        out.push((place, Practice::Scales(mistake)));
        return;
    }
}

/// The bounds of a slice, written as one or made by `slice()`.
fn bounds(view: &View<'_>, index: &Operand) -> Vec<Expr> {
    let items = |value: &Rvalue| match value {
        Rvalue::Build { kind: BuildKind::Slice, items } => {
            items.iter().map(|(Item::One(o) | Item::Star(o))| view.expr(o)).collect()
        }
        Rvalue::Build { kind: BuildKind::Tuple, items } => match items.first() {
            Some(Item::One(first)) if view.source(first).is_some() => bounds(view, first),
            _ => Vec::new(),
        },
        Rvalue::Call { args, .. } => args.iter().map(|a| view.expr(&a.value)).collect(),
        _ => Vec::new(),
    };
    match (view.source(index), near::local(index).map(|local| view.defs(local))) {
        (Some((_, value)), _) => items(value),
        (None, Some([one])) => match view.through(index).call_of("slice") {
            Some(_) => view.value(*one).map(items).unwrap_or_default(),
            None => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// `process_slice = slice(0, n)`: a slice that is named as that of one rank and is the same for all, and where it is made.
fn named_own(view: &View<'_>, index: &Operand, bounds: &[Expr]) -> Option<(Name, Place)> {
    let local = near::local(index).filter(|local| !view.is_temp(*local))?;
    let [one] = view.defs(local) else { return None };
    let name = view.local_name(local);
    let own = OWN.iter().any(|part| near::has_part(name, part));
    let given = |e: &Expr| matches!(e, Expr::Local(l) if view.is_as_given(*l));
    let own_length = |e: &Expr| matches!(e.call_of("len"), Some([(_, of)]) if given(of));
    let from_first = matches!(bounds, [Expr::Const(Const::Int(0)), end] if own_length(end));
    let alone = near::has_any(view.code(), ONE_RANK);
    (own && from_first && !alone).then(|| (name.clone(), view.place(view.steps[*one].id)))
}

/// The name of the rank on the node from which an expression is computed, and where a variable is set to it.
fn node_rank(view: &View<'_>, expr: &Expr, depth: usize) -> Option<(Name, Option<Place>)> {
    if depth > MAX_EXPR_DEPTH {
        return None;
    }
    match expr {
        Expr::Local(local) => {
            let [one] = view.defs(*local) else { return None };
            let (name, inner) = node_rank(view, &view.bound(*one, *local), depth + 1)?;
            let place = view.place(view.steps[*one].id);
            Some((name, inner.or((!view.is_temp(*local)).then_some(place))))
        }
        Expr::Attr(_, name) if ON_NODE.contains(&name.as_str()) => Some((name.clone(), None)),
        Expr::Binary(BinOp::Mul, a, b) => node_rank(view, a, depth + 1).or_else(|| node_rank(view, b, depth + 1)),
        // Beside another number it may be the rank among all.
        Expr::Binary(BinOp::Add, a, b) if matches!(**b, Expr::Const(_)) => node_rank(view, a, depth + 1),
        _ => None,
    }
}

/// Where a value, and all that it is computed from, was gathered over all ranks.
fn gathered(view: &View<'_>, local: LocalId, before: usize, depth: usize) -> Option<Place> {
    if depth > MAX_EXPR_DEPTH {
        return None;
    }
    let made = view.last_def(local, before)?;
    let value = view.value(made)?;
    let everyone = |view: &View<'_>, value: &Rvalue| match value {
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => {
            let name = near::written_name(view, value).map(|name| super::lost::last(&name));
            let told = args.iter().any(|a| matches!(&a.kind, ArgKind::Keyword(k) if k != "dim"));
            name.is_some_and(|name| GATHERS.contains(&name.as_str())) && args.len() == 1 && !told
        }
        _ => false,
    };
    if everyone(view, value) {
        return Some(view.place(view.steps[made].id));
    }
    let returns = own_method(view, value).is_some_and(|method| {
        let inner = near::shared(view, method);
        inner.steps.iter().any(|step| match step.stmt {
            Stmt::Return { value } => inner.source(value).is_some_and(|(_, value)| everyone(&inner, value)),
            _ => false,
        })
    });
    if returns {
        return Some(view.place(view.steps[made].id));
    }
    // What is computed from gathered values alone, and numbers, is of all ranks.
    let first = view.reads(made).into_iter().find_map(near::local).filter(|next| *next != local)?;
    gathered(view, first, made, depth + 1)
}

/// The method of the same class that a call calls.
fn own_method(view: &View<'_>, value: &Rvalue) -> Option<FuncRef> {
    match value {
        Rvalue::CallMethod { base, name, .. } if near::is_self(view, base) => near::own_method(view, name),
        _ => None,
    }
}
