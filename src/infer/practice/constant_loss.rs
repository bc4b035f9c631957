//! Losses that are a constant on some ranks. In: a function with a backward pass through a wrapped model. Out: a function of the project that makes the
//! whole loss, and that returns a number of its own where this rank's data has nothing to count. Never: a loss that other terms are added to, a
//! test of a flag, or one on what was summed over ranks. Source: torch.nn.parallel.DistributedDataParallel: every rank takes
//! part in each backward pass. Next: `own_decision.rs`.

use super::Found;
use super::coming::Coming;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::own_decision::{backward_of, wrapper_by_name, wrapper_of};
use super::ranks::is_lone_job;
use super::view::View;
use super::wrapped::function;
use crate::ir::{BinOp, Const, LocalId, Operand, Stmt};
use crate::source::{Name, Place};

/// Functions that make a tensor of numbers.
const MAKES: &[&str] = &["torch.tensor", "torch.as_tensor", "torch.zeros", "torch.zeros_like"];

/// What a test asks of data that each rank has its own of.
const COUNTS: &[&str] = &["sum", "any", "count_nonzero", "nonzero"];

/// Parts of the text of a function whose values may be the same on all ranks.
const EQUAL: &[&str] = &["reduce", "gather", "broadcast", "dist."];

/// How many calls lie between a loss and what makes it.
const MOST: usize = 3;

/// `loss = masked_mean(x, mask)`, where `masked_mean` ends with `return torch.tensor(0.0)`.
pub fn returned(view: &View<'_>, out: &mut Found) {
    // Whoever asks the loss, writes into the mask or agrees with the others first has thought of it.
    let text = view.file();
    // A number of tokens that is summed decides nothing where nothing is asked.
    let asks = || view.steps.iter().any(|s| matches!(s.stmt, Stmt::If { .. } | Stmt::While { .. }));
    let agrees = near::has_any(view.code(), EQUAL) && asks();
    let thought = agrees || text.contains("requires_grad") || text.contains(".any(");
    let writes = view.steps.iter().any(|s| matches!(s.stmt, Stmt::SetItem { .. }));
    if view.func.is_generator || is_lone_job(view) || thought || writes {
        return;
    }
    for back in 0..view.steps.len() {
        let Some(loss) = backward_of(view, back) else { continue };
        let [def] = view.defs(loss) else { continue };
        let made = view.bound(*def, loss);
        let Some((place, function, tested)) = constant_of(view, unscaled(&made), 0) else { continue };
        let wrapper = wrapper_of(view, loss, back).or_else(|| wrapper_by_name(view, loss, back));
        let Some(collective) = wrapper.filter(|_| !may_be_full(view, &tested)) else { continue };
        let call = view.place(view.steps[back].id);
        let told = out.iter().any(|(at, _)| *at == place);
        if !told {
            out.push((place, Practice::Coming(Coming::ConstantLoss { collective, function, tested, call })));
        }
    }
}

/// Whether data may never be empty: a mask of attention, or one that the file refuses or repairs where it is.
fn may_be_full(view: &View<'_>, tested: &str) -> bool {
    let file = view.file();
    near::has_any(view.code(), &["attention_mask", "attn_mask", "padding_mask", "ones_like"])
        || near::refusals(file).any(|line| line.contains(tested))
}

/// A loss without the factors that it is multiplied with and divided by.
fn unscaled(value: &Expr) -> &Expr {
    match value {
        Expr::Binary(BinOp::Div, of, _) => unscaled(of),
        Expr::Binary(BinOp::Mul, of, by) => match &**of {
            Expr::Const(_) => unscaled(by),
            of => unscaled(of),
        },
        other => other,
    }
}

/// Where a function that a value is the result of returns a constant, its name, and what it asks first.
fn constant_of(view: &View<'_>, value: &Expr, depth: usize) -> Option<(Place, Name, Name)> {
    let Expr::Call { callee, .. } = value else { return None };
    let at = function(view, callee).filter(|at| depth < MOST && *at != view.at)?;
    let inner = near::other(view, at);
    if near::has_any(inner.code(), EQUAL) {
        return None;
    }
    let returns = || {
        inner.steps.iter().enumerate().filter_map(|(i, s)| match s.stmt {
            Stmt::Return { value } => Some((i, value)),
            _ => None,
        })
    };
    let chosen = returns().find_map(|(i, o)| Some((i, by_count(&inner, &inner.through(o))?)));
    if let (Some((step, tested)), 1) = (chosen, returns().count()) {
        let name = view.project.func(at).name.clone();
        return Some((inner.place(inner.steps[step].id), name, inner.local_name(tested).clone()));
    }
    let constant = |o: &Operand| is_constant(&inner.through(o));
    let (step, _) = match returns().find(|(_, o)| constant(o)) {
        Some(found) if returns().any(|(_, o)| !constant(o)) => found,
        Some(_) => return None,
        None => return returns().find_map(|(_, o)| constant_of(&inner, &inner.through(o), depth + 1)),
    };
    let tested = inner.steps[step].guards.iter().find_map(|g| counted(&inner, &inner.expr(g.test)))?;
    let name = view.project.func(at).name.clone();
    Some((inner.place(inner.steps[step].id), name, inner.local_name(tested).clone()))
}

/// The parameter whose elements are counted to choose between a value and a constant.
fn by_count(view: &View<'_>, value: &Expr) -> Option<LocalId> {
    let Expr::Choice(test, a, b) = value else { return None };
    (is_constant(a) != is_constant(b)).then(|| counted(view, test)).flatten()
}

/// Whether a value is a number that no gradient goes through.
fn is_constant(value: &Expr) -> bool {
    let Expr::Call { callee, args, .. } = value else { return false };
    let Expr::Path(path) = &**callee else { return false };
    let number = matches!(args.first(), Some((_, Expr::Const(Const::Int(_) | Const::Float(_)))));
    let filled = path.starts_with("torch.zeros");
    let tracked = args.iter().any(|(kind, _)| matches!(kind, crate::ir::ArgKind::Keyword(k) if k == "requires_grad"));
    MAKES.contains(&path.as_str()) && (number || filled) && !tracked
}

/// The parameter of which a test counts the elements.
fn counted(view: &View<'_>, test: &Expr) -> Option<LocalId> {
    let mut found = None;
    test.any(&mut |e| {
        if let Expr::Call { callee, args, .. } = e
            && callee.last_name().is_some_and(|name| COUNTS.contains(&name))
        {
            let mut of = |e: &Expr| {
                e.any(&mut |e| match e {
                    Expr::Local(local) if view.is_param(*local) && found.is_none() => {
                        found = Some(*local);
                        true
                    }
                    _ => false,
                })
            };
            let _ = of(callee) || args.iter().any(|(_, a)| of(a));
        }
        found.is_some()
    });
    found
}
