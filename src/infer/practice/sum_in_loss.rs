//! Sums over all ranks on the way to a loss, without a sum in their backward. In: a function that computes a loss. Out: an in-place sum over all ranks of
//! what features are made of, from which the loss is made in a way that is not linear: under a wrapper that takes the mean of gradients, they are too small by
//! the number of ranks. Never: sums over a group, counts, what is reported, or code that multiplies by the number of ranks.
//! Source: torch.distributed, whose collectives autograd does not see. Next: `cut_loss.rs`.

use super::cut::{class_of, is_module, is_trained};
use super::cut_loss::is_loss;
use super::expr::Expr;
use super::found::Practice;
use super::gradient::{Walk, may_cut};
use super::lapses::Lapse;
use super::lost::written;
use super::made::{Communicates, PARAMS, direct, through};
use super::mixed_mean::averages;
use super::near;
use super::view::View;
use super::{Found, Lint};
use crate::ir::{BinOp, FuncKind, LocalId, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use rustc_hash::FxHashSet;

/// Words in names of what computes no loss that is trained on.
const WATCHED: &[&str] = &[
    "metric", "log", "report", "valid", "test", "eval", "monitor", "track", "reduce", "average", "center", "update",
    "sinkhorn",
];
/// What bends a value, so that its gradient depends on it.
const BENDS: &[&str] =
    &["pow", "square", "log", "exp", "sqrt", "rsqrt", "norm", "softmax", "log_softmax", "abs", "relu"];
/// How code scales by the number of ranks.
const SCALES: &[&str] = &[
    "*world",
    "*self.world",
    "*dist.get_world",
    "*get_world",
    "world_size*",
    "world_size()*",
    "mul_(world",
    "mul(world",
    "num_replicas",
    "*torch.distributed.get_world",
    "*=dist.get_world",
    "*accelerator.num_processes",
    "full_like(",
];

/// `c = a.T @ b`, `dist.all_reduce(c)`, `(c - eye).pow(2).sum()`
pub fn sums<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    let name = view.func.name.to_lowercase();
    let loss = is_loss(view.project, view.at) || lint.project.name(view.at.module).to_lowercase().contains("loss");
    let watched = WATCHED.iter().any(|word| name.contains(word));
    if !loss || watched || !may_cut(lint, view) || !is_trained(lint, view) {
        return;
    }
    let class = class_of(view);
    if class.is_some_and(|class| !is_module(lint, class)) || scales(lint, view) || multiplies(view) {
        return;
    }
    let places: Vec<(usize, LocalId)> = view
        .collectives()
        .iter()
        .filter(|(_, call)| {
            call.rule.op == "all_reduce" && !call.rule.differentiable && call.rule.default_group.is_empty()
        })
        .filter(|(_, call)| call.group.is_none_or(|g| view.through(g).is_none()) && averages(view, call) == Some(false))
        .filter_map(|(step, call)| Some((*step, near::local(written(call)?)?)))
        .collect();
    if places.is_empty() {
        return;
    }
    let Some(walk) = Walk::of(lint, view) else { return };
    for (k, cut) in walk.cuts.iter().enumerate().filter(|(_, cut)| cut.how == Communicates::InPlace && cut.computed) {
        let Some((step, summed)) = places.iter().find(|(step, _)| view.place(view.steps[*step].id) == cut.place) else {
            continue;
        };
        let reaches = walk.firsts().iter().any(|made| made & through(k) != 0 && made & direct(k) == 0);
        let Some(bends) = bent(view, *step, *summed).filter(|_| reaches && cut.input & PARAMS != 0) else { continue };
        if is_made_up_for(lint, view) {
            return;
        }
        let value = view.local_name(*summed).clone();
        let mistake = Lapse::SumInLoss { collective: cut.name.clone(), value, bends: view.place(view.steps[bends].id) };
        out.push((cut.place, Practice::Lapse(mistake)));
    }
}

/// Whether the code around, a class or the function, multiplies by the number of ranks.
fn scales(lint: &Lint<'_>, view: &View<'_>) -> bool {
    let span = class_of(view).map_or(view.func.span, |class| lint.project.class(class).span);
    let mut text = near::code(view, span);
    text.retain(|c| !c.is_whitespace());
    SCALES.iter().any(|word| text.contains(word))
}

/// Whether a function multiplies by a variable or an attribute for the number of ranks.
fn multiplies(view: &View<'_>) -> bool {
    let counts = |e: &Expr| matches!(e, Expr::Call { callee, .. } if callee.last_name() == Some("get_world_size"));
    let is_count = |o: &Operand| {
        let value = near::deep(view, &view.expr(o));
        let kept = || {
            let (name, class) = near::own_attribute(view, &value).zip(near::class_of(view))?;
            Some(near::assigned(view, class, name).iter().any(|(method, _, set)| counts(&method.through(set))))
        };
        counts(&value) || kept().unwrap_or(false)
    };
    (0..view.steps.len()).any(|step| match view.value(step) {
        Some(Rvalue::Binary { op: BinOp::Mul, left, right } | Rvalue::InPlace { op: BinOp::Mul, left, right }) => {
            is_count(left) || is_count(right)
        }
        Some(Rvalue::CallMethod { name, args, .. }) if name == "mul" || name == "mul_" => {
            args.iter().any(|a| is_count(&a.value))
        }
        _ => false,
    })
}

/// Whether the file reduces gradients in a way of its own, or multiplies by the number of ranks somewhere: the mean may not come.
fn is_made_up_for(lint: &Lint<'_>, view: &View<'_>) -> bool {
    let file = lint.files[lint.project.file(view.at.module)].whole();
    let otherwise = ["set_gradient_divide_factor", "register_comm_hook", "vector_to_parameters"];
    let plain = |at: &FuncRef| {
        let func = lint.project.func(*at);
        func.class.is_none() && func.kind == FuncKind::Function
    };
    let scales = |at| {
        let mut text = near::code(view, lint.project.func(at).span);
        text.retain(|c| !c.is_whitespace());
        SCALES.iter().any(|word| text.contains(word))
    };
    // What reads gradients may sum them, or undo the mean.
    let reads = near::ending(file, ".grad").next().is_some() || file.contains("register_hook(");
    reads
        || otherwise.iter().any(|word| file.contains(word))
        || near::functions(view, view.at.module).into_iter().filter(plain).any(scales)
}

/// Where something that is made of a sum by operations of tensors is bent, or multiplied by itself.
fn bent(view: &View<'_>, at: usize, summed: LocalId) -> Option<usize> {
    let mut made: FxHashSet<LocalId> = std::iter::once(summed).collect();
    let parts = near::roots(view, &Operand::Local(summed));
    for step in at + 1..view.steps.len() {
        let Stmt::Assign { dst, value } = view.steps[step].stmt else { continue };
        let of = |o: &Operand| matches!(o, Operand::Local(l) if made.contains(l));
        if !view.reads(step).into_iter().any(of) {
            continue;
        }
        // Beside what this rank has of it, the loss is another one on each rank.
        if let Rvalue::Binary { left, right, .. } = value {
            let own = |o: &Operand| {
                near::local(o).is_some_and(|l| !made.contains(&l))
                    && view.expr(o).any(&mut |e| matches!(e, Expr::Local(l) if parts.contains(l) && !made.contains(l)))
            };
            if own(left) || own(right) {
                return None;
            }
        }
        let bends = match value {
            Rvalue::CallMethod { base, name, .. } if of(base) => BENDS.contains(&name.trim_end_matches('_')),
            Rvalue::Call { .. } | Rvalue::CallMethod { .. } => view.callee(value).is_some_and(|path| {
                path.starts_with("torch.") && path.rsplit('.').next().is_some_and(|n| BENDS.contains(&n))
            }),
            Rvalue::Binary { op: BinOp::Pow, left, .. } => of(left),
            Rvalue::Binary { op: BinOp::Mul, left, right } => of(left) && of(right),
            _ => false,
        };
        if bends {
            return Some(step);
        }
        // What is read of it as a number is followed no further.
        let number = matches!(value, Rvalue::CallMethod { name, .. } if matches!(name.as_str(), "item" | "detach" | "size" | "tolist"))
            || matches!(value, Rvalue::Attr { name, .. } if name == "shape" || name == "data")
            || matches!(view.bound(step, *dst), Expr::Unknown);
        if !number {
            made.insert(*dst);
        }
    }
    None
}
