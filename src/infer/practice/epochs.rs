//! Samplers that are never told which epoch it is. In: a function with a loop over epochs. Out: a loader of training whose `DistributedSampler`
//! shuffles, where nothing in the project calls `set_epoch`: the order of each epoch is that of the first. Never: a loader of validation, a
//! trainer that may tell it, or a sampler that keeps the order. Source: torch 2.9, torch.utils.data.DistributedSampler: "calling the
//! set_epoch() method at the beginning of each epoch ... is necessary to make shuffling work properly across multiple epochs".
//! Next: `sampler_seed.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::loader_length::{in_loader, made, sampler_of};
use super::lost::last;
use super::membership::Membership;
use super::near;
use super::view::View;
use crate::ir::{Const, LocalId, Operand, Rvalue, Stmt};
use crate::project::ClassRef;
use crate::source::{Name, Place};

/// What tells a sampler which epoch it is.
const TELLS: &[&str] = &["set_epoch", "sampler.epoch"];

/// Parts of names of loaders that nothing is trained with.
const OTHERS: &[&str] = &["val", "test", "eval", "dev", "valid", "infer", "predict"];

/// `for epoch in range(epochs): for batch in loader: ...`
pub fn never_told(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(outer) = step.loops.iter().copied().find(|o| is_over_epochs(view, *o)) else { continue };
        let Some((loader, trained)) = read(view, i) else { continue };
        let name = match &loader {
            Expr::Local(local) => view.local_name(*local).clone(),
            other => match near::own_attribute(view, other) {
                Some(own) => own.clone(),
                None => continue,
            },
        };
        let lower = name.to_lowercase();
        if !trained || OTHERS.iter().any(|part| near::has_part(&lower, part)) {
            continue;
        }
        // A loader that is made in the loop may be another one each time.
        let inside = |l: LocalId| view.defs(l).iter().any(|d| view.steps[*d].loops.contains(&outer));
        if matches!(loader, Expr::Local(l) if inside(l)) {
            continue;
        }
        let Some(sampler) = sampler_of(view, &loader, &of_loader).filter(|at| shuffles(view, *at)) else { continue };
        // All texts are searched where nothing else is left to ask.
        if TELLS.iter().any(|word| view.files.any_says(word)) {
            return;
        }
        let mistake = Membership::EpochNeverSet { loader: name, sampler, epochs: view.place(view.steps[outer].id) };
        out.push((view.part(step.id, 0), Practice::Membership(mistake)));
        return;
    }
}

/// `for epoch in range(n)`
fn is_over_epochs(view: &View<'_>, step: usize) -> bool {
    let Stmt::For { dst, iter, .. } = view.steps[step].stmt else { return false };
    let once = matches!(view.expr(iter).call_of("range"), Some([(_, Expr::Const(Const::Int(..=1)))]));
    !once && view.local_name(*dst).to_lowercase().contains("epoch")
}

/// The loader that a step goes through, or hands to a function of the project, and whether torch's own backward pass is called for what it
/// brings: that of a trainer may come with loaders that know the epoch.
fn read(view: &View<'_>, step: usize) -> Option<(Expr, bool)> {
    match view.steps[step].stmt {
        Stmt::For { iter, .. } => {
            let inside = |s: &usize| view.steps[*s].loops.contains(&step);
            let trains = (step + 1..view.steps.len()).filter(inside).any(|s| goes_back(view, s));
            Some((gone_through(view.expr(iter)), trains))
        }
        Stmt::Assign { value: Rvalue::Call { callee, args }, .. } => {
            let helper = near::shared(view, near::function(view, callee)?);
            let trains = (0..helper.steps.len()).any(|s| goes_back(&helper, s));
            let loader = |e: &Expr| match e {
                Expr::Local(l) => view.local_name(*l).to_lowercase().contains("load"),
                other => other.last_name().is_some_and(|name| name.to_lowercase().contains("load")),
            };
            Some((args.iter().map(|a| view.expr(&a.value)).find(loader)?, trains))
        }
        _ => None,
    }
}

/// `loss.backward()`
fn goes_back(view: &View<'_>, step: usize) -> bool {
    matches!(view.value(step), Some(Rvalue::CallMethod { name, args, .. }) if name == "backward" && args.is_empty())
}

/// `enumerate(loader)`, `tqdm(loader)`
fn gone_through(expr: Expr) -> Expr {
    match expr {
        Expr::Call { callee, mut args, .. } if !args.is_empty() && callee.last_name().is_some_and(|n| n != "range") => {
            gone_through(args.swap_remove(0).1)
        }
        other => other,
    }
}

/// Where the sampler is made, of a loader that is made there, by a function too, with one that a condition decides on.
fn of_loader(view: &View<'_>, loader: &Operand) -> Option<Place> {
    if let Some(found) = in_loader(view, loader) {
        return Some(found);
    }
    if let Some((_, args)) = made(view, loader, "DataLoader") {
        let sampler = near::local(view.argument(args, 3, "sampler")?)?;
        return view.defs(sampler).iter().find_map(|step| distributed(view, *step, 0));
    }
    // `loader = self.get_train_dataloader()`: the one sampler of that function.
    let (_, value) = view.source(loader)?;
    let at = match value {
        Rvalue::Call { callee, .. } => near::function(view, callee)?,
        Rvalue::CallMethod { base, name, .. } if near::is_self(view, base) => {
            let class = ClassRef { module: view.at.module, class: near::class_of(view)? };
            view.project.own_method(class, name)?
        }
        _ => return None,
    };
    let helper = near::shared(view, at);
    let mut all = (0..helper.steps.len()).filter_map(|step| distributed(&helper, step, 0));
    match (all.next(), all.next()) {
        (Some(one), None) => Some(one),
        _ => None,
    }
}

/// Where a step makes a distributed sampler, or takes over one.
fn distributed(view: &View<'_>, step: usize, depth: usize) -> Option<Place> {
    let value = view.value(step)?;
    if let Rvalue::Use(Operand::Local(from)) = value {
        return if depth < 4 { view.defs(*from).iter().find_map(|d| distributed(view, *d, depth + 1)) } else { None };
    }
    let path: Name = view.callee(value)?;
    (path.starts_with("torch.utils.data") && last(&path) == "DistributedSampler")
        .then(|| view.place(view.steps[step].id))
}

/// Whether a sampler takes the samples in another order than theirs, on several ranks, as far as its call shows.
fn shuffles(view: &View<'_>, sampler: Place) -> bool {
    let text = view.text(sampler);
    let arguments = text.split(',').count();
    !text.contains("shuffle") && !text.contains('*') && arguments < 4
        || text.contains("shuffle=True") && !text.contains("num_replicas=1,")
}
