//! Functions of whole matrices that are given a rank's rows. In: a function. Out: the local part of a distributed tensor, given to a function of the
//! project that multiplies it with its own transpose, whose result is wrapped as the same part of a distributed tensor. Never: a
//! function that works on many matrices at once, or code that says that each part is a matrix of its own. Source: torch.distributed.tensor,
//! `DTensor.from_local`: the local tensor is the shard of the whole that the placements say. Next: `part_out.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::lost::last;
use super::near;
use super::unfold::unfold;
use super::view::View;
use crate::ir::{BinOp, Rvalue};
use crate::source::{Name, Place};

/// Words of code that means it so, or makes whole what it is given.
const MEANT: &[&str] =
    &["blockwise", "block-wise", "per shard", "per-shard", "shard-wise", "full_tensor", "redistribute", "all_gather"];

/// `DTensor.from_local(f(x.to_local()), x.device_mesh, x.placements)`
pub fn wrapped(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            continue;
        };
        if !view.callee(value).is_some_and(|path| path.ends_with("DTensor.from_local")) {
            continue;
        }
        let Some(placements) = view.argument(args, 2, "placements") else { continue };
        let said = view.expr(placements);
        let Expr::Attr(placed, name) = unfold(view, &said, i) else { continue };
        let Some(local) = args.first().filter(|_| name == "placements") else { continue };
        let Some((function, place)) = computed(view, unfold(view, &view.expr(&local.value), i), &placed) else {
            continue;
        };
        let code = view.code();
        if MEANT.iter().any(|word| code.contains(word)) {
            continue;
        }
        let value = match &said {
            Expr::Attr(base, _) => name_of(view, base),
            other => name_of(view, other),
        };
        let mistake = Placements::OwnRows { function, value, wrapped: view.place(step.id) };
        out.push((place, Practice::Placements(mistake)));
    }
}

/// The function of whole matrices that gives a value and is given the local part of `placed`, and where it is called.
fn computed(view: &View<'_>, value: Expr, placed: &Expr) -> Option<(Name, Place)> {
    match value {
        Expr::Call { callee, args, step } => match *callee {
            // `f(x.to_local()).to(dtype)`
            Expr::Attr(base, method) if matches!(method.as_str(), "to" | "type_as" | "contiguous") => {
                computed(view, *base, placed)
            }
            callee => {
                let path = near::path(view, &callee)?;
                let is_local = |e: &Expr| match e {
                    Expr::Call { callee, args, .. } if args.is_empty() => {
                        matches!(&**callee, Expr::Attr(base, name) if name == "to_local" && **base == *placed)
                    }
                    _ => false,
                };
                let at = args.iter().position(|(_, arg)| is_local(arg))?;
                let function = view.project.path(&path);
                let crate::project::Resolved::Func(func) = function else { return None };
                let inner = near::shared(view, func);
                squares(&inner, at).then(|| (last(&path), view.place(view.steps[step].id)))
            }
        },
        _ => None,
    }
}

fn name_of(view: &View<'_>, expr: &Expr) -> Name {
    match expr {
        Expr::Local(local) => view.local_name(*local).clone(),
        other => Name::from(other.last_name().unwrap_or("the tensor")),
    }
}

/// Whether a function multiplies a parameter, or what it makes of it, with its own transpose, and knows of one matrix alone.
fn squares(view: &View<'_>, parameter: usize) -> bool {
    let Some(parameter) = view.func.params.get(parameter) else { return false };
    if ["ndim", ".mT", "dim()", "transpose(-", "bmm"]
        .iter()
        .any(|word| view.text(view.spot(view.func.span)).contains(word))
    {
        return false;
    }
    (0..view.steps.len()).any(|step| {
        let Some(Rvalue::Binary { op: BinOp::MatMul, left, right }) = view.value(step) else { return false };
        let (left, right) = (view.expr(left), view.expr(right));
        let turned = |e: &Expr, of: &Expr| match e {
            Expr::Attr(base, name) => name == "T" && **base == *of,
            Expr::Call { callee, .. } => matches!(&**callee, Expr::Attr(base, name) if name == "t" && **base == *of),
            _ => false,
        };
        let Expr::Local(own) = (if turned(&right, &left) { &left } else { &right }) else { return false };
        (turned(&right, &left) || turned(&left, &right))
            && near::roots(view, &crate::ir::Operand::Local(*own)).contains(&parameter.local)
    })
}
