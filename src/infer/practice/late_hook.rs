//! Hooks that read a variable of the loop in which they are made. In: a function. Out: a collective in such a hook on what the variable holds, which
//! is what the last round left in it when the hook runs. Never: a default of a parameter or an argument, which is bound when the hook is made, and loops
//! that are left early. Source: Python, which binds names of enclosing functions late. Next: `lapses.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::lapses::Lapse;
use super::lost::last;
use super::near;
use super::view::View;
use crate::ir::{FuncId, FuncKind, LocalId, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::Name;

/// `for p in params: def hook(*_): all_reduce(p.grad)`, `p.register_hook(hook)`
pub fn registered(view: &View<'_>, out: &mut Found) {
    for (at, step) in view.steps.iter().enumerate() {
        let (made, func) = match step.stmt {
            Stmt::Def { dst, func, .. } | Stmt::Assign { dst, value: Rvalue::Closure { func, .. } } => (*dst, *func),
            _ => continue,
        };
        let Some(head) = step.loops.last() else { continue };
        if !is_registered(view, at, made) || is_left(view, *head) || is_removed(view, *head) {
            continue;
        }
        let inner = near::other(view, FuncRef { module: view.at.module, func });
        let Some((variable, collective, place)) = late(view, &inner, func, *head) else { continue };
        let round = view.part(view.steps[*head].id, 1);
        out.push((place, Practice::Lapse(Lapse::LateHook { variable, collective, round })));
    }
}

/// The variable of a loop that a collective of a function in it communicates, the collective, and where it is called.
fn late(view: &View<'_>, inner: &View<'_>, func: FuncId, head: usize) -> Option<(Name, Name, crate::source::Place)> {
    let each_round = |local: LocalId| {
        let defs = view.defs(local);
        !view.is_param(local)
            && !defs.is_empty()
            && defs.iter().all(|d| *d == head || view.steps[*d].loops.contains(&head))
            && !defs.iter().all(|d| *d != head && is_alike(&view.bound(*d, local)))
    };
    let captures = &view.project.modules[view.at.module].ir.funcs[func].captures;
    let captured = |local: LocalId| captures.iter().find(|(_, own)| *own == local).map(|(outer, _)| *outer);
    let global = |path: &Name| {
        let local = view.func.locals().named(path.rsplit('.').next()?)?;
        (view.func.kind == FuncKind::Module && view.global(view.local_name(local)) == *path).then_some(local)
    };
    for (step, call) in inner.collectives() {
        for arg in call.args {
            let mut found = near::roots(inner, &arg.value).into_iter().find_map(captured).filter(|l| each_round(*l));
            inner.expr(&arg.value).any(&mut |e| {
                let outer = match e {
                    Expr::Local(local) => captured(*local),
                    Expr::Path(path) => global(path),
                    _ => None,
                };
                found = found.or(outer.filter(|l| each_round(*l)));
                found.is_some()
            });
            if let Some(found) = found {
                let place = inner.place(inner.steps[*step].id);
                return Some((view.local_name(found).clone(), last(&call.rule.name), place));
            }
        }
    }
    None
}

/// Whether a function is registered as a hook in the loop in which it is made.
fn is_registered(view: &View<'_>, at: usize, made: LocalId) -> bool {
    view.readers(made).iter().any(|s| match view.value(*s) {
        Some(Rvalue::CallMethod { name, args, .. }) => {
            let given = args.iter().any(|a| a.value == Operand::Local(made));
            *s > at && given && name.contains("hook") && view.steps[*s].loops == view.steps[at].loops
        }
        _ => false,
    })
}

/// Whether a value is the same in every round: a constant, a name of a module, what a function gives that is told nothing.
fn is_alike(value: &Expr) -> bool {
    match value {
        Expr::Const(_) | Expr::Path(_) => true,
        Expr::Call { callee, args, .. } => args.is_empty() && matches!(**callee, Expr::Path(_)),
        _ => false,
    }
}

/// Whether a hook is taken off again before the next round.
fn is_removed(view: &View<'_>, head: usize) -> bool {
    (0..view.steps.len()).any(|i| {
        let removes =
            matches!(view.value(i), Some(Rvalue::CallMethod { name, args, .. }) if name == "remove" && args.is_empty());
        removes && view.steps[i].loops.contains(&head)
    })
}

/// Whether a loop ends on the way, so that it may have one round alone.
fn is_left(view: &View<'_>, head: usize) -> bool {
    let ends = |stmt: &Stmt| matches!(stmt, Stmt::Break | Stmt::Return { .. });
    view.steps.iter().any(|step| step.loops.contains(&head) && ends(step.stmt))
}
