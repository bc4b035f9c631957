//! Plans whose first module leaves the whole sequence to modules that take parts. In: a function. Out: an embedding that a plan makes whole
//! on every rank, beside norms that take what they get for their part of the sequence, and projections that give parts. Never: a plan
//! that cuts the sequence at a module's boundary. And two blocks of one plan that take parts of the sequence, of which one gives parts
//! and the other the whole. Next: `plan.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::view::View;
use crate::ir::{ArgKind, BuildKind, Const, Item, Rvalue, Stmt, StmtId};
use crate::source::{Name, Place};

/// Words in the names of embeddings.
const EMBEDDINGS: &[&str] = &["embed", "wte", "emb"];

/// Words in names of what has no sequence to cut, or is no embedding.
const NO_SEQUENCE: &[&str] = &["norm", "pos", "time", "label", "class", "patch", "step"];

/// An entry of a plan.
pub(super) struct Entry {
    pub name: Name,
    pub style: Name,
    pub args: Vec<(Name, Expr)>,
    pub place: Place,
    /// The conditions under which it is made.
    pub guards: Vec<(StmtId, bool)>,
    /// The step that makes the plan.
    plan: usize,
}

impl Entry {
    fn is_embedding(&self) -> bool {
        let name = self.name.rsplit('.').next().unwrap_or(&self.name).to_lowercase();
        EMBEDDINGS.iter().any(|w| name.contains(w)) && !NO_SEQUENCE.iter().any(|w| name.contains(w))
    }

    /// Whether what it gives stays distributed: what takes it places it as it needs it.
    fn stays_distributed(&self) -> bool {
        self.given("use_local_output").is_some_and(|e| *e == Expr::Const(Const::Bool(false)))
    }

    fn given(&self, name: &str) -> Option<&Expr> {
        self.args.iter().find(|(n, _)| n == name).map(|(_, e)| e)
    }

    /// Whether a norm may take what an embedding gives: both stand in one module, or the norm in one inside of it by its number.
    fn is_of_stream(&self, norm: &Entry) -> bool {
        let image = near::has_any(&self.name.to_lowercase(), &["image", "vision", "pixel", "audio", "visual"]);
        !image || norm.name.split('.').next() == self.name.split('.').next()
    }

    pub fn says(&self, name: &str, placement: &str) -> bool {
        self.given(name)
            .is_some_and(|e| e.call_of(placement).is_some() || e.any(&mut |e| e.call_of(placement).is_some()))
    }
}

/// Words in names of blocks whose results are added to nothing.
const LAST: &[&str] = &["head", "out", "classif", "pool", "value", "score", "logit", "aux", "probe", "critic", "mtp"];

/// `"tok_embeddings": RowwiseParallel(input_layouts=Replicate())` before `"norm": SequenceParallel()`
pub fn embeddings(view: &View<'_>, out: &mut Found) {
    if !view.code().contains("sequenceparallel") {
        return;
    }
    let entries: Vec<Entry> = (0..view.steps.len()).flat_map(|i| plan(view, i)).collect();
    let cuts = |e: &&Entry| {
        e.style.starts_with("PrepareModule")
            && (e.says("desired_input_layouts", "Shard") || e.says("desired_output_layouts", "Shard"))
    };
    let parts = entries.iter().find(|e| e.style == "SequenceParallel");
    let gives = entries.iter().any(|e| e.style == "RowwiseParallel" && e.says("output_layouts", "Shard"));
    let (Some(parts), true, None) = (parts, gives, entries.iter().find(cuts)) else { return };
    // One that is put into the plan later on may cut it.
    let placed = entries.iter().filter(|e| e.style == "PrepareModuleOutput").count();
    if view.code().matches("preparemoduleoutput(").count() > placed {
        return;
    }
    // Several embeddings, or a helper that cuts the sequence by hand.
    if ["scatter", "chunk(", "split(", "redistribute", "distribute_module", "_hook("]
        .iter()
        .any(|w| view.code().contains(w))
    {
        return;
    }
    // Another plan for another case, or a module whose forward is followed.
    let text = view.file();
    let parts_too = entries.iter().any(|e| e.is_embedding() && e.says("output_layouts", "Shard"));
    let one_case = entries.iter().all(|e| e.guards.is_empty());
    if parts_too || !one_case {
        return;
    }
    for entry in entries.iter().filter(|e| e.is_embedding() && !text.contains(&format!("self.{} =", e.name))) {
        let whole = match entry.given("output_layouts") {
            None => entry.style == "RowwiseParallel" && entry.says("input_layouts", "Replicate"),
            Some(_) => entry.says("output_layouts", "Replicate"),
        };
        // A norm in another module is that of a part of the model.
        let together = entry.is_of_stream(parts);
        if whole && together && parts.plan == entry.plan && !entry.stays_distributed() {
            let found =
                Membership::WholeInput { module: entry.name.clone(), norm: parts.name.clone(), taken: parts.place };
            out.push((entry.place, Practice::Membership(found)));
        }
    }
}

/// `"mlp.w2": RowwiseParallel()` beside `"attention.wo": RowwiseParallel(output_layouts=Shard(1))`, where a plan makes both blocks from
/// parts of the sequence.
pub fn residuals(view: &View<'_>, out: &mut Found) {
    // Further calls may split again what a block leaves.
    let calls = view.code().matches("parallelize_module(").count();
    if calls > 1 && !is_of_whole_model(view, calls) || view.code().contains("preparemoduleoutput") {
        return;
    }
    for step in 0..view.steps.len() {
        let entries = plan(view, step);
        let from_parts = |e: &&Entry| {
            e.style == "PrepareModuleInput"
                && e.says("input_layouts", "Shard")
                && e.says("desired_input_layouts", "Replicate")
                && e.guards.is_empty()
        };
        if !entries.iter().any(|e| e.style == "SequenceParallel") {
            continue;
        }
        // The one projection of a block that leaves the split dim.
        let closer = |block: &Entry| {
            let inside = |e: &&Entry| e.name.strip_prefix(block.name.as_str()).is_some_and(|r| r.starts_with('.'));
            let mut rowwise = entries.iter().filter(inside).filter(|e| e.style == "RowwiseParallel");
            rowwise.next().filter(|_| rowwise.next().is_none())
        };
        let is_last = |e: &&Entry| LAST.iter().any(|word| e.name.to_lowercase().contains(word));
        let closers: Vec<&Entry> =
            entries.iter().filter(from_parts).filter(|e| !is_last(e)).filter_map(closer).collect();
        let Some(parts) = closers.iter().find(|e| e.says("output_layouts", "Shard")) else { continue };
        for whole in
            closers.iter().filter(|e| e.given("output_layouts").is_none() || e.says("output_layouts", "Replicate"))
        {
            if whole.stays_distributed() {
                continue;
            }
            let found =
                Membership::WholeOutput { module: whole.name.clone(), other: parts.name.clone(), parts: parts.place };
            out.push((whole.place, Practice::Membership(found)));
        }
    }
}

/// Whether each of several calls has a plan in sight, and no two of these name the same module or one inside of it: one plan is for what stands
/// before and behind the blocks of the other.
fn is_of_whole_model(view: &View<'_>, calls: usize) -> bool {
    let plans: Vec<Vec<Entry>> = (0..view.steps.len()).map(|i| plan(view, i)).filter(|p| !p.is_empty()).collect();
    let top = |e: &Entry| e.name.split('.').next().unwrap_or_default().to_string();
    let names: Vec<Vec<String>> = plans.iter().map(|p| p.iter().map(top).collect()).collect();
    let apart = |(n, own): (usize, &Vec<String>)| names[..n].iter().flatten().all(|other| !own.contains(other));
    calls == 2 && plans.len() == calls && names.iter().enumerate().all(apart)
}

/// The entries of a dict that are styles by name of a module.
pub(super) fn plan(view: &View<'_>, step: usize) -> Vec<Entry> {
    let Some(Rvalue::Build { kind: BuildKind::Dict, items }) = view.value(step) else { return Vec::new() };
    let one = |i: &Item| match i {
        Item::One(o) => Some(view.expr(o)),
        Item::Star(_) => None,
    };
    let step_of_plan = step;
    let entry = |pair: &[Item]| {
        let (Some(Expr::Const(Const::Str(name))), Some(style)) = (one(pair.first()?), one(pair.get(1)?)) else {
            return None;
        };
        let Expr::Call { callee, args, step } = &style else { return None };
        let named = args.iter().filter_map(|(kind, e)| match kind {
            ArgKind::Keyword(n) => Some((n.clone(), e.clone())),
            _ => None,
        });
        if named.clone().count() != args.len() {
            return None;
        }
        let at = view.steps.get(*step)?;
        let (place, guards) = (view.place(at.id), at.guards.iter().map(|g| (g.at, g.holds)).collect());
        Some(Entry {
            name,
            style: style_named(view, callee)?,
            args: named.collect(),
            place,
            guards,
            plan: step_of_plan,
        })
    };
    items.chunks(2).filter_map(entry).collect()
}

/// Styles, the longer names first.
const STYLES: &[&str] = &[
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "PrepareModuleInput",
    "SequenceParallel",
    "ColwiseParallel",
    "RowwiseParallel",
];

/// The style that a callee is: by its name, or by those that a variable may stand for, which are kinds of one style.
fn style_named(view: &View<'_>, callee: &Expr) -> Option<Name> {
    let Expr::Local(local) = callee else { return callee.last_name().map(Name::from) };
    let mut found = None;
    for def in view.defs(*local) {
        let Stmt::Unpack { value, before, star: None, after } = view.steps[*def].stmt else { return None };
        let at = before.iter().chain(after).position(|l| l == local)?;
        let Some((_, Rvalue::Build { kind: BuildKind::Tuple, items })) = view.source(value) else { return None };
        let Item::One(named) = items.get(at)? else { return None };
        // The same styles for products in another form of number have its name inside theirs.
        let of = view.through(named).last_name()?.replace("Float8", "");
        let style = STYLES.iter().find(|style| of.ends_with(**style))?;
        if found.replace(*style).is_some_and(|known| known != *style) {
            return None;
        }
    }
    found.map(Name::from)
}
