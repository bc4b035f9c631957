//! Lengths of loaders that are divided among ranks once more. In: a function. Out: `len(loader) // world_size`, where the loader goes through a
//! `DistributedSampler`: it is as long as the part of one rank. Never: a loader that other statements may have made, a length that is
//! multiplied by the number of ranks as well, or a number of other ranks. Source: cosmos-rl `SFTTrainer`; torch.utils.data, `DataLoader`,
//! whose length is that of its sampler in batches. Next: `sampler.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::slips::Slip;
use super::view::View;
use crate::infer::scale::groups::of_size_name;
use crate::ir::{Arg, BinOp, Operand, Rvalue};
use crate::source::{Name, Place};
use std::rc::Rc;

/// Samplers that give each rank its own part.
const SAMPLER: &str = "DistributedSampler";
const LOADER: &str = "DataLoader";
/// Axes whose ranks have the same data.
const MODEL: &[&str] = &["tp", "pp", "cp", "sp", "ep", "etp"];

/// `steps = len(loader) * epochs // world_size`
pub fn divided(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(Rvalue::Binary { op: BinOp::Div | BinOp::FloorDiv, left, right }) = view.value(i) else { continue };
        if !counts_ranks(view, right) {
            continue;
        }
        let mut factors = Vec::new();
        split(&view.expr(left), &mut factors);
        if factors.iter().any(|f| size_name(view, f).is_some()) {
            continue;
        }
        let found = factors.iter().find_map(|f| {
            let [(_, loader)] = f.call_of("len")? else { return None };
            Some((shown(view, loader)?, sampler_of(view, loader, &in_loader)?))
        });
        // Of how many ranks the sampler knows is told by what it is given.
        let by = size_name(view, &view.expr(right));
        let other = |sampler: &Place| {
            let text = view.text(*sampler);
            text.contains("num_replicas") && !by.is_some_and(|name| text.contains(name.as_str()))
        };
        if let Some((loader, sampler)) = found.filter(|(_, sampler)| !other(sampler)) {
            out.push((view.place(step.id), Practice::Slips(Slip::LengthDivided { loader, sampler })));
        }
    }
}

/// The factors of a product, through quotients by other numbers.
fn split(expr: &Expr, factors: &mut Vec<Expr>) {
    match expr {
        Expr::Binary(BinOp::Mul, a, b) => {
            split(a, factors);
            split(b, factors);
        }
        Expr::Binary(BinOp::Div | BinOp::FloorDiv, a, _) => split(a, factors),
        other => factors.push(other.clone()),
    }
}

/// The name by which an expression is a number of ranks.
fn size_name(view: &View<'_>, expr: &Expr) -> Option<Name> {
    let name = match expr {
        Expr::Local(local) => view.local_name(*local).clone(),
        Expr::Call { callee, .. } => Name::from(callee.last_name()?.trim_start_matches("get_")),
        other => Name::from(other.last_name()?),
    };
    let counts = matches!(name.as_str(), "num_replicas" | "num_gpus" | "n_gpus" | "ngpus" | "num_processes");
    (counts || of_size_name(&name).is_some()).then_some(name)
}

/// Whether a divisor is the number of all ranks, or of those that have their own data.
fn counts_ranks(view: &View<'_>, by: &Operand) -> bool {
    let expr = view.expr(by);
    let Some(name) = size_name(view, &expr) else { return false };
    let model = of_size_name(&name).is_some_and(|axes| axes.iter().any(|a| MODEL.contains(&a.name())));
    !model
}

fn shown(view: &View<'_>, loader: &Expr) -> Option<Name> {
    match loader {
        Expr::Local(local) => Some(view.local_name(*local).clone()),
        other => near::own_attribute(view, other).map(|own| Name::from(format!("self.{own}"))),
    }
}

/// Where the sampler is made through which a loader goes: a variable, or an attribute that is set once. `of`: the same of what makes the loader.
pub(super) fn sampler_of(
    view: &View<'_>,
    loader: &Expr,
    of: &dyn Fn(&View<'_>, &Operand) -> Option<Place>,
) -> Option<Place> {
    if let Some(own) = near::own_attribute(view, loader) {
        let set = near::assigned(view, near::class_of(view)?, own);
        let [(method, _, value)] = set.as_slice() else { return None };
        return of(method, value);
    }
    let Expr::Local(local) = loader else { return None };
    of(view, &Operand::Local(*local))
}

pub(super) fn made<'a>(view: &View<'a>, operand: &Operand, class: &str) -> Option<(usize, &'a [Arg])> {
    let (step, value) = view.source(operand)?;
    let value = match value {
        Rvalue::Use(inner) => return made(view, inner, class),
        other => other,
    };
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let path = view.callee(value)?;
    (path.starts_with("torch.utils.data") && super::lost::last(&path) == class).then_some((step, &args[..]))
}

pub(super) fn in_loader(view: &View<'_>, loader: &Operand) -> Option<Place> {
    let (_, args) = made(view, loader, LOADER)?;
    let sampler = view.argument(args, 3, "sampler")?;
    if let Some((step, _)) = made(view, sampler, SAMPLER) {
        return Some(view.place(view.steps[step].id));
    }
    let own = near::own_attribute(view, &view.expr(sampler))?.clone();
    let set = near::assigned(view, near::class_of(view)?, &own);
    let [(method, _, value)] = set.as_slice() else { return None };
    let method: &Rc<View<'_>> = method;
    made(method, value, SAMPLER).map(|(step, _)| method.place(method.steps[step].id))
}
