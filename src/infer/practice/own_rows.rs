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
use crate::ir::{BinOp, Operand, Rvalue, Stmt};
use crate::project::Resolved;
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

/// `u = f(buf.to_local())`, `p.to_local().add_(u)`, where the file shards its model by rows; and `g, meta = to_local(grad)`, `f(g)`, where
/// the function that takes the local part is one of the project and another one wraps the result.
pub fn given(view: &View<'_>, out: &mut Found) {
    let file = view.file();
    for i in 0..view.steps.len() {
        let Some(Rvalue::Call { callee, args }) = view.value(i) else { continue };
        let Some(path) = near::path(view, &view.expr(callee)) else { continue };
        let Resolved::Func(func) = view.project.path(&path) else { continue };
        let inner = near::shared(view, func);
        for (_, arg) in args.iter().enumerate().filter(|(at, _)| squares(&inner, *at)) {
            let found = match view.source(&arg.value) {
                Some((_, Rvalue::CallMethod { base, name, args })) if name == "to_local" && args.is_empty() => {
                    let written = (i + 1..view.steps.len()).find(|s| writes_part(view, *s));
                    let sharded = file.contains("fully_shard(");
                    written
                        .filter(|_| sharded)
                        .map(|s| (view.place(view.steps[i].id), base.clone(), view.place(view.steps[s].id)))
                }
                _ => helper(view, &arg.value).map(|(place, wrapped)| (place, arg.value.clone(), wrapped)),
            };
            if let Some((place, value, wrapped)) = found {
                let code = near::bare(file);
                if MEANT.iter().any(|word| code.contains(word)) {
                    return;
                }
                let value = name_of(view, &view.expr(&value));
                let mistake = Placements::OwnRows { function: last(&path), value, wrapped };
                out.push((place, Practice::Placements(mistake)));
                return;
            }
        }
    }
}

/// `p.to_local().add_(u)`
fn writes_part(view: &View<'_>, step: usize) -> bool {
    let Some(Rvalue::CallMethod { base, name, .. }) = view.value(step) else { return false };
    matches!(name.as_str(), "add_" | "sub_" | "copy_") && view.through(base).call_of("to_local").is_some()
}

/// Where a function of the project gives the local part of what it is given, if a value is the first that it gives, and where a function of
/// the file wraps local parts.
fn helper(view: &View<'_>, value: &Operand) -> Option<(Place, Place)> {
    let [made] = view.defs(near::local(value)?) else { return None };
    let Stmt::Unpack { value: of, before, .. } = view.steps[*made].stmt else { return None };
    let (_, Rvalue::Call { callee, .. }) = view.source(of)? else { return None };
    if before.first().copied() != near::local(value) {
        return None;
    }
    let Resolved::Func(func) = view.project.path(&near::path(view, &view.expr(callee))?) else { return None };
    let inner = near::shared(view, func);
    let gives = |step: &&super::view::Step<'_>| {
        let Stmt::Return { value } = step.stmt else { return false };
        let Expr::Build(items) = inner.through(value) else { return false };
        let tests = step.guards.iter().any(|g| g.holds && inner.text(inner.part(g.at, 0)).contains("DTensor"));
        tests && items.first().is_some_and(|e| e.call_of("to_local").is_some())
    };
    let taken = inner.steps.iter().find(gives).map(|step| inner.place(step.id))?;
    let wrapped = near::functions(view, view.at.module).into_iter().find_map(|at| {
        let other = near::shared(view, at);
        let wraps = |s: &usize| {
            other.value(*s).and_then(|v| other.callee(v)).is_some_and(|path| path.ends_with("DTensor.from_local"))
        };
        (0..other.steps.len()).find(wraps).map(|s| other.place(other.steps[s].id))
    })?;
    Some((taken, wrapped))
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
                let Resolved::Func(func) = function else { return None };
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
    let text = view.text(view.spot(view.func.span));
    // `mT` is of the last two dims, of which there are no more where the first one is compared with the second.
    let flat = near::has_any(text, &["size(0)", "shape[0]"]) && near::has_any(text, &["size(1)", "shape[1]"]);
    let stacked = || near::has_any(text, &["ndim", "dim()", "transpose(-", "bmm", "size(-", "shape[-"]);
    if stacked() || text.contains(".mT") && !flat {
        return false;
    }
    // What it reduces over the ranks is that of the whole.
    if near::communicates(view) {
        return false;
    }
    (0..view.steps.len()).any(|step| {
        let Some(Rvalue::Binary { op: BinOp::MatMul, left, right }) = view.value(step) else { return false };
        let (left, right) = (view.expr(left), view.expr(right));
        let turned = |e: &Expr, of: &Expr| match e {
            Expr::Attr(base, name) => matches!(name.as_str(), "T" | "mT") && **base == *of,
            Expr::Call { callee, .. } => matches!(&**callee, Expr::Attr(base, name) if name == "t" && **base == *of),
            _ => false,
        };
        let Expr::Local(own) = (if turned(&right, &left) { &left } else { &right }) else { return false };
        (turned(&right, &left) || turned(&left, &right))
            && near::roots(view, &Operand::Local(*own)).contains(&parameter.local)
    })
}
