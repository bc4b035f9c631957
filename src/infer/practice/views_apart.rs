//! Views that stand mixed behind a gather. In: a function that puts several views of its batch behind one another, gathers that, and takes the
//! views apart as if all ranks' rows of one stood together. Out: the gather; the ranks' blocks stand behind one another there, each with
//! all views. Never: what is put in another order in between, or taken apart by ranks. Source: Spijkervet/SimCLR, pull request 46;
//! `torch.distributed.all_gather_into_tensor`, which concatenates along dim 0 in the order of the ranks. Next: `own_labels.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::near;
use super::own_labels;
use super::unfold::unfold;
use super::view::View;
use crate::ir::{ArgKind, Const, LocalId, Operand, Rvalue, Stmt};
use crate::rules::Form;
use crate::source::Place;

/// Methods and functions that put rows in another order or take some of them.
const ORDERS: &[&str] = &[
    "view",
    "reshape",
    "transpose",
    "permute",
    "stack",
    "unflatten",
    "split",
    "chunk",
    "index_select",
    "rearrange",
    "unbind",
    "gather",
    "roll",
    "flip",
];

/// What goes into a gather, and where what all ranks gave comes out.
struct Gathered {
    given: Operand,
    result: LocalId,
    step: usize,
}

/// `z = torch.cat(all_gather(torch.cat([a, b])))`, and `z.chunk(2)` or `torch.diag(z @ z.T, batch * world_size)`
pub fn taken(view: &View<'_>, out: &mut Found) {
    for step in 0..view.steps.len() {
        let Some(gathered) = gathered(view, step) else { continue };
        let Some((parts, joined)) = joined(view, &gathered.given, step) else { continue };
        let later = || step + 1..view.steps.len();
        let Some(apart) = later().find_map(|at| apart(view, at, &gathered, parts)) else { continue };
        let mistake = Placements::ViewsApart { parts, joined, apart };
        out.push((view.place(view.steps[step].id), Practice::Placements(mistake)));
    }
}

/// The gather that a step is, of which the ranks' blocks come out behind one another.
fn gathered(view: &View<'_>, step: usize) -> Option<Gathered> {
    let value = view.value(step)?;
    let Stmt::Assign { dst, .. } = view.steps[step].stmt else { return None };
    if let Some(call) = view.collective(value) {
        let result = match call.rule.form {
            Form::IntoOutput | Form::IntoList => near::local(call.output?)?,
            _ => *dst,
        };
        let given = call.input?.clone();
        let along = |a: &crate::ir::Arg| matches!(&a.kind, ArgKind::Keyword(name) if name == "dim" || name == "axis");
        let elsewhere = call.args.iter().any(|a| along(a) && a.value != Operand::Const(Const::Int(0)));
        return (!elsewhere && call.rule.op == "all_gather").then_some(Gathered { given, result, step });
    }
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    if !near::written_name(view, value).is_some_and(|name| name.to_lowercase().contains("gather") || name == "apply") {
        return None;
    }
    own_labels::made(view, step, own_labels::MOST_STEPS)?;
    Some(Gathered { given: args.first()?.value.clone(), result: *dst, step })
}

/// How many values a value is put together from along dim 0, and where.
fn joined(view: &View<'_>, given: &Operand, before: usize) -> Option<(usize, Place)> {
    let mut at = unfold(view, &view.expr(given), before);
    loop {
        let Expr::Call { callee, args, step } = at else { return None };
        match &*callee {
            Expr::Path(path) if matches!(path.as_str(), "torch.cat" | "torch.concat" | "torch.vstack") => {
                let [(_, Expr::Build(of)), rest @ ..] = args.as_slice() else { return None };
                let along = rest.iter().all(|(_, dim)| *dim == Expr::Const(Const::Int(0)));
                return (along && of.len() > 1).then(|| (of.len(), view.place(view.steps[step].id)));
            }
            Expr::Path(_) if own_labels::SAME.contains(&callee.last_name()?) => at = args.into_iter().next()?.1,
            Expr::Attr(base, name) if own_labels::SAME.contains(&name.as_str()) => at = (**base).clone(),
            _ => return None,
        }
    }
}

/// Where a step takes apart what comes of a gather: into as many runs of rows as there are views, or along the diagonal that lies as many
/// rows away as all ranks have of one view.
fn apart(view: &View<'_>, step: usize, gathered: &Gathered, parts: usize) -> Option<Place> {
    let value = view.value(step)?;
    let (base, args) = match value {
        Rvalue::CallMethod { base, args, .. } if view.callee(value).is_none_or(|path| !path.starts_with("torch.")) => {
            (base, &args[..])
        }
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => (&args.first()?.value, args.get(1..)?),
        _ => return None,
    };
    let name = near::written_name(view, value)?;
    let first = view.argument(args, 0, if name == "chunk" { "chunks" } else { "offset" });
    let fits = match name.as_str() {
        "chunk" => {
            let dim = view.argument(args, 1, "dim").is_none_or(|dim| *dim == Operand::Const(Const::Int(0)));
            dim && first.is_some_and(|n| view.expr(n) == Expr::Const(Const::Int(parts as i64)))
        }
        "diag" | "diagonal" => {
            parts == 2 && first.is_some_and(|away| is_of_all_ranks(&unfold(view, &view.expr(away), step)))
        }
        _ => false,
    };
    (fits && comes_in_order(view, base, gathered, step)).then(|| view.place(view.steps[step].id))
}

/// Whether a number is that of the rows of all ranks.
fn is_of_all_ranks(number: &Expr) -> bool {
    let said = |e: &Expr| e.last_name().is_some_and(|name| name.to_lowercase().contains("world"));
    number.any(&mut |e| said(e))
}

/// Whether a value comes of what is gathered, and nothing orders its rows or picks some of them on the way.
fn comes_in_order(view: &View<'_>, value: &Operand, gathered: &Gathered, before: usize) -> bool {
    let follows = |def: usize| (gathered.step..before).contains(&def);
    let mut seen = near::reached(view, value, follows);
    if !seen.contains(&gathered.result) {
        return false;
    }
    seen.retain(|local| {
        let own = *local == gathered.result;
        own || near::comes_from(view, &Operand::Local(*local), gathered.result, gathered.step)
    });
    let mut defs = seen.iter().flat_map(|local| view.defs(*local).iter().copied()).filter(|def| follows(*def));
    !defs.any(|def| def != gathered.step && view.value(def).is_none_or(|value| orders(view, value)))
}

/// Whether what a value is made by puts rows in another order, or other rows beside them.
fn orders<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else {
        return matches!(value, Rvalue::Item { .. });
    };
    let Some(name) = near::written_name(view, value) else { return false };
    if !matches!(name.as_str(), "cat" | "concat") {
        return ORDERS.contains(&name.as_str());
    }
    let along = view.argument(args, 1, "dim").is_none_or(|dim| *dim == Operand::Const(Const::Int(0)));
    !along || args.first().is_none_or(|of| matches!(view.expr(&of.value), Expr::Build(_)))
}
