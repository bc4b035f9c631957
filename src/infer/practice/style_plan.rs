//! Norms between projections that a plan of styles splits. In: a function with a dict from paths of modules to styles, and the classes of its
//! file. Out: a norm with a weight that `forward` applies to a split result, and that the plan leaves out: each rank has the gradient of its
//! own heads. Never: a class that lacks one of the names of the plan, a norm that a string names, or a file that sums gradients itself.
//! Source: torch.distributed.tensor.parallel. Next: `plan.rs`, for plans of words.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::near;
use super::plan::{Attributes, Made, attributes, sources_of};
use super::view::View;
use crate::ir::{BuildKind, Const, Item, Operand, Rvalue};
use crate::project::{ClassRef, FuncRef};
use crate::source::{Name, Place};

/// The style that splits a result, in lowercase.
pub const WORDS: &[&str] = &["colwiseparallel("];

/// Styles of a whole module that change nothing in it.
const AROUND: &[&str] = &["PrepareModuleInput", "PrepareModuleOutput", "PrepareModuleInputOutput"];

/// What sums gradients without a plan.
const SUMS: &[&str] = &["register_hook", "post_accumulate", "_hook(", "requires_grad", "inference_mode", "}_norm"];

/// What turns gradients off, or a model to evaluation.
const INFERS: &[&str] = &["no_grad", "inference_mode", "set_grad_enabled(false)", ".eval()"];

/// How many names of a plan a class has at least to be the one that it is about.
const FEWEST: usize = 3;

/// How often a variable is seen through.
const MOST_DEPTH: usize = 6;

struct Entry {
    parent: Name,
    leaf: Name,
    style: Option<Name>,
    splits: bool,
}

/// `{"attn.q_proj": ColwiseParallel(), ...}`, and `self.q_norm(self.q_proj(x).view(...))` in the class
pub fn norms(view: &View<'_>, out: &mut Found) {
    // What is added to the plan afterwards, or split on its own, may be the norm.
    if near::has_any(view.code(), &[".update(", "|=", "norm,", "norm)"]) {
        return;
    }
    if only_infers(view) {
        return;
    }
    for (step, at) in view.steps.iter().enumerate() {
        let entries = entries(view, step);
        if entries.iter().filter(|e| e.splits).count() == 0 || entries.len() < FEWEST {
            continue;
        }
        let mut parents: Vec<&Name> = entries.iter().map(|e| &e.parent).collect();
        parents.sort_unstable();
        parents.dedup();
        for parent in parents {
            let own: Vec<&Entry> = entries.iter().filter(|e| e.parent == *parent).collect();
            // The module as a whole may have a style that sums inside of it.
            let whole = entries.iter().find(|e| join(&e.parent, &e.leaf) == *parent);
            let around = |e: &Entry| e.style.as_ref().is_some_and(|s| AROUND.contains(&s.as_str()));
            if own.len() < FEWEST || !own.iter().any(|e| e.splits) || whole.is_some_and(|e| !around(e)) {
                continue;
            }
            for class in view.project.modules[view.at.module].ir.classes.ids() {
                let class = ClassRef { module: view.at.module, class };
                if let Some(found) = left_out(view, class, &own) {
                    out.push((view.place(at.id), Practice::Scales(found)));
                }
            }
        }
    }
}

/// Whether the file runs no backward pass and turns gradients off, or models to evaluation.
fn only_infers(view: &View<'_>) -> bool {
    let text = near::bare(view.file());
    !text.contains("backward") && near::has_any(&text, INFERS)
}

fn join(parent: &str, leaf: &str) -> Name {
    match parent {
        "" => Name::from(leaf),
        _ => Name::from(format!("{parent}.{leaf}")),
    }
}

/// The entries of a dict from paths to styles.
fn entries(view: &View<'_>, step: usize) -> Vec<Entry> {
    let Some(Rvalue::Build { kind: BuildKind::Dict, items }) = view.value(step) else { return Vec::new() };
    let mut out = Vec::new();
    for pair in items.chunks(2) {
        let [Item::One(Operand::Const(Const::Str(key))), Item::One(style)] = pair else { return Vec::new() };
        let (parent, leaf) = key.rsplit_once('.').unwrap_or(("", key));
        let (name, splits) = match view.through(style) {
            Expr::Call { callee, args, .. } => {
                let name = callee.last_name().map(Name::from);
                (name, callee.last_name() == Some("ColwiseParallel") && args.is_empty())
            }
            _ => (None, false),
        };
        out.push(Entry { parent: Name::from(parent), leaf: Name::from(leaf), style: name, splits });
    }
    out
}

/// A norm of a class with all names of a plan, that it applies to a split result and that the plan leaves out.
fn left_out(view: &View<'_>, class: ClassRef, plan: &[&Entry]) -> Option<Scales> {
    let methods = &view.project.class(class).methods;
    let method = |name: &str| {
        let (_, func) = methods.iter().find(|(n, _)| n == name)?;
        Some(near::shared(view, FuncRef { module: class.module, func: *func }))
    };
    let own = attributes(&*method("__init__")?);
    let has = |leaf: &Name| own.iter().any(|(name, ..)| name == leaf);
    if !own.iter().any(|(.., made)| *made == Made::Norm) || !plan.iter().all(|e| has(&e.leaf)) {
        return None;
    }
    let forward = method("forward")?;
    (0..forward.steps.len()).find_map(|step| {
        let (norm, made, source) = applied(&forward, step, &own)?;
        let split = plan.iter().any(|e| e.leaf == source && e.splits);
        if !split || plan.iter().any(|e| e.leaf == norm) || is_handled(view, &norm) {
            return None;
        }
        Some(Scales::PlanMisfit {
            module: norm,
            source,
            gives_part: true,
            listed: false,
            norm: true,
            made,
            used: forward.place(forward.steps[step].id),
        })
    })
}

/// The norm that a step applies to the result of one other module, where it is made, and that module.
fn applied(forward: &View<'_>, step: usize, own: &Attributes) -> Option<(Name, Place, Name)> {
    let Rvalue::CallMethod { base, name, args } = forward.value(step)? else { return None };
    let (_, made, _) = own.iter().find(|(n, _, made)| n == name && *made == Made::Norm)?;
    if !near::is_self(forward, base) {
        return None;
    }
    let [given] = &args[..] else { return None };
    let mut sources = Vec::new();
    let given = before(forward, &forward.expr(&given.value), step, 0);
    sources_of(forward, &given, own, 0, &mut sources)?;
    let [source] = &sources[..] else { return None };
    Some((name.clone(), *made, source.clone()))
}

/// An expression with variables of several values replaced by what the last step before gives them, where that step always runs.
fn before(view: &View<'_>, expr: &Expr, step: usize, depth: usize) -> Expr {
    let inner = |e: &Expr| Box::new(before(view, e, step, depth));
    match expr {
        Expr::Local(local) if depth < MOST_DEPTH => {
            let Some(def) = view.defs(*local).iter().rfind(|def| **def < step) else { return expr.clone() };
            let (made, used) = (&view.steps[*def], &view.steps[step]);
            let same = made.loops == used.loops && made.guards.iter().all(|g| used.guards.iter().any(|h| h.at == g.at));
            match (same, view.bound(*def, *local)) {
                (true, value) if !matches!(value, Expr::Unknown) => before(view, &value, *def, depth + 1),
                _ => expr.clone(),
            }
        }
        Expr::Call { callee, args, step } => Expr::Call { callee: inner(callee), args: args.clone(), step: *step },
        Expr::Attr(base, name) => Expr::Attr(inner(base), name.clone()),
        other => other.clone(),
    }
}

/// Whether the file names a norm in a string, as another plan may, or sums gradients in a way of its own.
fn is_handled(view: &View<'_>, norm: &str) -> bool {
    let text = view.file();
    let named = [format!("{norm}\""), format!("{norm}'"), format!("{norm}.")].iter().any(|end| {
        near::ending(text, norm).any(|at| text[at..].starts_with(end.as_str()) && !text[..at].ends_with("self."))
    });
    let sums = near::ending(text, ".grad").next().is_some() && text.contains("reduce");
    named || sums || near::has_any(text, SUMS) || near::summed_elsewhere(view, norm)
}
