//! Losses that are multiplied by the number of data- and context-parallel ranks, and whose count of tokens is summed over the data-parallel ones alone. In: a
//! method that takes a backward pass. Out: the sum of the count by another method of the class, where a comment says that each rank has a part of
//! the sequence: the count lacks the tokens of the other parts. Never: without that comment, where the count may be of the whole.
//! Source: verl, pull request 6049. Next: `all_processes.rs`, the number of all ranks.

use super::Found;
use super::all_processes::summed;
use super::expr::Expr;
use super::found::Practice;
use super::named_axes::of_size;
use super::near;
use super::slips::Slip;
use super::view::View;
use crate::ir::{ArgKind, BinOp, LocalId, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};

/// What the ranks that share a sequence are called.
const SHARES: &[&str] = &["cp", "sp"];
/// How comments speak of these ranks, and of what each has.
const RANKS: &[&str] = &["context-parallel", "context parallel", "cp rank", "cp-rank"];
const PARTS: &[&str] = &["part of", "slice", "shard", "chunk", "own part", "local"];

/// `all_reduce(n, group=dp_group)` in one method, and `loss(x, n, dp_cp_size)` in another one
pub fn scaled(view: &View<'_>, out: &mut Found) {
    let Some(class) = near::class_of(view).filter(|_| view.code().contains(".backward(")) else { return };
    let methods = near::methods(view, class);
    let mut sums = methods.iter().filter_map(summed);
    let Some(counted) = sums.next().filter(|_| sums.next().is_none()) else { return };
    let counts: Vec<LocalId> = (0..view.steps.len()).filter_map(|at| given_by(view, at, &counted.method)).collect();
    for step in 0..view.steps.len() {
        for count in &counts {
            let Some((axes, sized)) = multiplied(view, step, *count) else { continue };
            let more: Vec<&Name> = axes.iter().filter(|axis| !counted.axes.contains(axis)).collect();
            let fewer = counted.axes.iter().all(|axis| axes.contains(axis));
            let shares = !more.is_empty() && more.iter().all(|axis| SHARES.contains(&axis.as_str()));
            if !fewer || !shares || !says_parts(view) {
                continue;
            }
            let (count, over) = (counted.local.clone(), counted.axes.clone());
            let found = Slip::CountOfFewer { count, over, axes, sized };
            out.push((counted.place, Practice::Slips(found)));
            return;
        }
    }
}

/// The variable to which a step binds what a method of the object gives.
fn given_by(view: &View<'_>, step: usize, method: &Name) -> Option<LocalId> {
    match (view.steps[step].stmt, view.value(step)) {
        (Stmt::Assign { dst, .. }, Some(Rvalue::CallMethod { base, name, .. }))
            if name == method && near::is_self(view, base) =>
        {
            let named = view.readers(*dst).iter().find_map(|at| match view.steps[*at].stmt {
                Stmt::Assign { dst: named, value: Rvalue::Use(_) } => Some(*named),
                _ => None,
            });
            Some(if view.is_temp(*dst) { named.unwrap_or(*dst) } else { *dst })
        }
        _ => None,
    }
}

/// The axes of the number of ranks with which a step multiplies what is divided by a count, itself or by a function that it gives both.
fn multiplied(view: &View<'_>, step: usize, count: LocalId) -> Option<(Vec<Name>, Place)> {
    let value = view.value(step)?;
    if let Rvalue::Binary { left, right, .. } = value {
        let whole = view.through(left);
        let axes = of_size(view, &view.through(right))?;
        let divided = whole.any(&mut |e| matches!(e, Expr::Binary(BinOp::Div, _, by) if **by == Expr::Local(count)));
        return divided.then(|| (axes, view.place(view.steps[step].id)));
    }
    let Rvalue::Call { callee, args } = value else { return None };
    let helper = near::shared(view, near::function(view, callee)?);
    let given = |wanted: &dyn Fn(&Operand) -> bool| {
        let at = args.iter().position(|a| wanted(&a.value))?;
        let param = match &args[at].kind {
            ArgKind::Positional => helper.func.params.get(at),
            ArgKind::Keyword(name) => helper.func.params.iter().find(|p| p.name == *name),
            ArgKind::Star | ArgKind::DoubleStar => None,
        };
        Some((param?.local, at))
    };
    let (count, _) = given(&|o| *o == Operand::Local(count) || view.expr(o) == Expr::Local(count))?;
    let sized = |o: &Operand| of_size(view, &view.through(o)).is_some_and(|axes| axes.len() > 1);
    let (size, at) = given(&sized)?;
    let axes = of_size(view, &view.through(&args[at].value))?;
    let returns = helper.steps.iter().any(|s| match s.stmt {
        Stmt::Return { value } => helper.through(value).any(&mut |e| scales(e, count, size)),
        _ => false,
    });
    returns.then(|| (axes, view.place(view.steps[step].id)))
}

/// `x / count * size`, or `x * size / count`
fn scales(expr: &Expr, count: LocalId, size: LocalId) -> bool {
    let has = |e: &Expr, op: BinOp, local: LocalId| {
        e.any(&mut |e| matches!(e, Expr::Binary(o, _, by) if *o == op && **by == Expr::Local(local)))
    };
    has(expr, BinOp::Div, count) && has(expr, BinOp::Mul, size)
}

/// Whether a comment of the class says that each rank has a part of the sequence.
fn says_parts(view: &View<'_>) -> bool {
    let Some(class) = near::class_of(view) else { return false };
    let span = view.project.modules[view.at.module].ir.classes[class].span;
    let text = view.text(view.spot(span)).to_lowercase();
    let said = |line: &str| {
        let comment = line.contains('#') || line.contains("\"\"\"");
        comment && near::has_any(line, RANKS) && near::has_any(line, PARTS)
    };
    text.lines().any(said)
}
