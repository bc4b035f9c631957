//! Norms of lists of parts. In: a method. Out: a clip by the norm of what one rank has, where the class fills the list with parameters that are
//! this rank's parts of others: a `chunk` that is picked by the rank. Never: distributed tensors, a test that tells whether there are
//! several ranks, or a list that anything else fills. Source: torch_xla `ZeroRedundancyOptimizer`. Next: `shard_norm.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::shard_norm::norm;
use super::training::Training;
use super::view::View;
use crate::ir::{LocalId, Operand, Rvalue, Stmt};
use crate::project::ClassRef;
use crate::source::{Name, Place};
use rustc_hash::FxHashSet;

/// Functions that scale gradients by their norm.
const CLIPS: &[&str] = &["clip_grad_norm_", "clip_grad_norm"];
/// Methods and functions that cut a value into as many parts as they are told.
const CUTS: &[&str] = &["chunk", "tensor_split", "split"];
/// Words of tests that tell whether there are several ranks, and of code whose tensors know all parts.
const TELLS: &[&str] = &["world", "size", "distributed", "parallel", "isinstance", "fsdp"];
const KNOWS: &[&str] = &["dtensor", "from_local", "distributed_tensor"];

/// `clip_grad_norm_(self.shards, 1.0)` after `self.shards.append(Parameter(p.chunk(n)[rank]))`
pub fn clipped(view: &View<'_>, out: &mut Found) {
    let Some(class) = near::class_of(view) else { return };
    for (i, step) in view.steps.iter().enumerate() {
        let Some((function, args)) = norm(view, i).filter(|(f, _)| CLIPS.contains(&f.as_str())) else { continue };
        let Some(given) = view.argument(args, 0, "parameters") else { continue };
        let expr = view.through(given);
        let Some(list) = near::own_attribute(view, &expr) else { continue };
        let told = step.guards.iter().any(|g| near::has_any(&view.text(view.part(g.at, 0)).to_lowercase(), TELLS));
        let text = view.files[view.project.file(view.at.module)]
            .slice(view.project.modules[view.at.module].ir.classes[class].span);
        // Without a bound the norm alone is what is wanted.
        let unbound = view.text(view.place(step.id)).contains("inf");
        if told || unbound || near::has_any(&text.to_lowercase(), KNOWS) {
            continue;
        }
        let filled: Vec<Option<Place>> = near::methods(view, class).iter().flat_map(|m| fills(m, list)).collect();
        let [Some(cut)] = filled.as_slice() else { continue };
        let list = Name::from(format!("self.{list}"));
        out.push((view.place(step.id), Practice::Training(Training::ListOfParts { function, list, cut: *cut })));
    }
}

/// Where a method puts something into a list of its object: where that is cut, if it is a parameter that is a part.
fn fills(view: &View<'_>, list: &str) -> Vec<Option<Place>> {
    let is_list = |o: &Operand| near::own_attribute(view, &view.through(o)).is_some_and(|n| n == list);
    let mut out = Vec::new();
    for step in &view.steps {
        match step.stmt {
            Stmt::Assign { value: Rvalue::CallMethod { base, name, args }, .. } if is_list(base) => {
                if matches!(name.as_str(), "append" | "extend" | "insert") {
                    out.push(args.first().filter(|_| name == "append").and_then(|a| part(view, &a.value)));
                }
            }
            Stmt::SetAttr { base, name, value } if name == list && near::is_self(view, base) => {
                let empty = matches!(view.through(value), Expr::Build(items) if items.is_empty());
                if !empty {
                    out.push(None);
                }
            }
            _ => {}
        }
    }
    out
}

/// Where a parameter is cut, if it is one that is made of this rank's part of something.
fn part(view: &View<'_>, value: &Operand) -> Option<Place> {
    let (_, made @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.source(value)? else {
        return None;
    };
    if super::lost::last(&view.callee(made)?) != "Parameter" {
        return None;
    }
    cut_by_rank(view, &args.first()?.value, true)
}

/// Where a value is picked by the rank from pieces, through every definition on the way, and through methods of the same object.
fn cut_by_rank(view: &View<'_>, value: &Operand, through_methods: bool) -> Option<Place> {
    let mut seen: FxHashSet<LocalId> = FxHashSet::default();
    let mut queue: Vec<LocalId> = near::local(value).into_iter().collect();
    while let Some(local) = queue.pop() {
        if !seen.insert(local) {
            continue;
        }
        for def in view.defs(local) {
            match view.value(*def) {
                Some(Rvalue::Item { base, index }) if is_rank(view, index) && is_cut(view, base) => {
                    return Some(view.place(view.steps[*def].id));
                }
                Some(Rvalue::CallMethod { base, name, .. }) if through_methods && near::is_self(view, base) => {
                    let class = near::class_of(view)?;
                    let class = ClassRef { module: view.at.module, class };
                    let method = near::shared(view, view.project.own_method(class, name)?);
                    let cut = method.steps.iter().find_map(|s| match s.stmt {
                        Stmt::Return { value } => cut_by_rank(&method, value, false),
                        _ => None,
                    });
                    return cut.filter(|_| method.collectives().is_empty());
                }
                Some(Rvalue::CallMethod { base, .. }) => queue.extend(near::local(base)),
                Some(Rvalue::Use(inner) | Rvalue::Attr { base: inner, .. }) => queue.extend(near::local(inner)),
                _ => {}
            }
        }
    }
    None
}

fn is_rank(view: &View<'_>, index: &Operand) -> bool {
    match view.expr(index) {
        Expr::Local(local) => view.local_name(local).ends_with("rank"),
        Expr::Call { callee, .. } => callee.last_name().is_some_and(|n| matches!(n, "get_rank" | "get_ordinal")),
        other => other.last_name().is_some_and(|n| n.ends_with("rank")),
    }
}

fn is_cut(view: &View<'_>, base: &Operand) -> bool {
    match view.source(base) {
        Some((_, Rvalue::CallMethod { name, .. })) => CUTS.contains(&name.as_str()),
        Some((_, call @ Rvalue::Call { .. })) => {
            view.callee(call).is_some_and(|p| CUTS.contains(&super::lost::last(&p).as_str()))
        }
        _ => false,
    }
}
