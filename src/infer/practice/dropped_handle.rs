//! Handles that a function returns and a call of it drops. In: a function that starts a collective in the background. Out: a call that uses nothing of what it returns,
//! beside one that keeps the handle. Never: functions that wait or keep the handle themselves, and callers that wait for everything.
//! Next: `handles.rs`.

use super::Found;
use super::called;
use super::expr::Expr;
use super::found::Practice;
use super::lapses::Lapse;
use super::mirrored::given;
use super::near;
use super::never_waited::{is_in_front, settles};
use super::raw::raw;
use super::view::View;
use crate::ir::{Const, FuncKind, Item, LocalId, Operand, Rvalue, Stmt};
use crate::source::Name;

/// Parts of names of what communicates.
const COLLECTIVES: &[&str] = &[
    "all_reduce",
    "allreduce",
    "all_gather",
    "allgather",
    "reduce_scatter",
    "reducescatter",
    "all_to_all",
    "alltoall",
];

/// Calls after which nothing is under way.
const ENDS: &[&str] = &["synchronize(", "barrier(", "raises("];

/// `def start(p): handle = all_reduce_async(p.grad)`, `return handle`, and `start(p)` as a statement
pub fn calls(view: &View<'_>, out: &mut Found) {
    if view.func.kind != FuncKind::Function {
        return;
    }
    let Some((started, handle)) = (0..view.steps.len()).find_map(|step| Some((step, starts(view, step)?))) else {
        return;
    };
    if !view.readers(handle).iter().all(|s| is_handed_back(view, *s, handle)) || view.readers(handle).is_empty() {
        return;
    }
    let method = view.func.class.map(|_| view.func.name.as_str());
    let path = view.project.qualified(view.at);
    let sites: Vec<_> =
        called::sites(view, &path, method).into_iter().filter(|(site, step)| is_of(view, site, *step)).collect();
    let used = |site: &View<'_>, step: usize| match site.steps[step].stmt {
        Stmt::Assign { dst, .. } => !site.is_temp(*dst) || !site.readers(*dst).is_empty(),
        _ => true,
    };
    let Some((keeper, kept)) = sites.iter().find(|(site, step)| used(site, *step)) else { return };
    for (site, step) in sites.iter().filter(|(site, step)| !used(site, *step)) {
        // Of one group the last to be started is the last to end.
        let last = keeper.at == site.at && *kept > *step;
        if last
            || ENDS.iter().any(|word| site.code().contains(word))
            || is_thrown_away(site, *step)
            || is_in_front_here(view, started, site, *step)
            || settled(site, *step)
        {
            continue;
        }
        let mistake = Lapse::HandleDropped {
            function: view.func.name.clone(),
            started: view.place(view.steps[started].id),
            kept: keeper.place(keeper.steps[*kept].id),
        };
        out.push((site.place(site.steps[*step].id), Practice::Lapse(mistake)));
    }
}

/// Whether what is given is made for the call: nobody reads what comes.
fn is_thrown_away(site: &View<'_>, step: usize) -> bool {
    let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = site.value(step) else { return false };
    let made = |a: &crate::ir::Arg| super::one_buffer::is_tensor(&site.expr(&a.value));
    args.first().is_some_and(made)
}

/// Whether a call says no to what the function asks before it starts anything in the background: `sync(grad, async_op=False)`.
fn is_in_front_here(view: &View<'_>, started: usize, site: &View<'_>, step: usize) -> bool {
    let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = site.value(step) else { return false };
    let own = usize::from(view.func.class.is_some());
    view.steps[started].guards.iter().any(|guard| {
        let said = near::local(guard.test).and_then(|asked| given(view, asked, args, own));
        said.is_some_and(|value| site.through(value) == Expr::Const(Const::Bool(!guard.holds)))
    })
}

/// Whether something later waits for all that is under way, or comes after it in the same group.
fn settled(site: &View<'_>, step: usize) -> bool {
    (step + 1..site.steps.len()).any(|s| {
        // Of one handle it says nothing about others.
        let one = matches!(site.value(s), Some(Rvalue::CallMethod { name, .. }) if name == "wait");
        is_in_front(site, s) || !one && settles(site, s)
    })
}

/// The parameter of which a function starts a collective in the background, on every way, to return the handle and nothing else.
pub(super) fn returns_handle(view: &View<'_>) -> Option<LocalId> {
    let mut given = None;
    for step in &view.steps {
        let Stmt::Assign { dst, value } = step.stmt else { continue };
        let Some(call) = raw(view, value) else { continue };
        let buffer = call.buffer.filter(|_| call.is_async())?;
        let buffer = super::gradient::root(view, buffer).filter(|l| view.is_as_given(*l))?;
        let back = |s: &usize| match view.steps[*s].stmt {
            Stmt::Return { value } => *value == Operand::Local(*dst),
            Stmt::Assign { dst: named, value: Rvalue::Use(o) } if *o == Operand::Local(*dst) => {
                let returned = |s: &usize| matches!(view.steps[*s].stmt, Stmt::Return { .. });
                view.readers(*named).iter().all(returned)
            }
            _ => false,
        };
        if view.readers(*dst).is_empty() || !view.readers(*dst).iter().all(back) || given.is_some_and(|l| l != buffer) {
            return None;
        }
        given = Some(buffer);
    }
    let handed = view.steps.iter().all(|s| !matches!(s.stmt, Stmt::Return { value: Operand::Const(_) }));
    given.filter(|_| handed)
}

/// Whether a call is one of this function: of a method, on the object of its own class.
pub(super) fn is_of(view: &View<'_>, site: &View<'_>, step: usize) -> bool {
    match site.value(step) {
        Some(Rvalue::CallMethod { base, .. }) if view.func.class.is_some() => {
            // Of a function inside a method the object is a variable of the method.
            let own = near::local(base).is_some_and(|local| site.local_name(local) == "self");
            own && near::class_of(site) == view.func.class
        }
        _ => view.func.class.is_none(),
    }
}

/// The handle of what a step starts in the background, of something that the function is given: what it makes itself, as a flag for the others,
/// it may send for its own sake.
fn starts(view: &View<'_>, step: usize) -> Option<LocalId> {
    let Stmt::Assign { dst, value } = view.steps[step].stmt else { return None };
    let buffer = match raw(view, value) {
        Some(call) => call.buffer.filter(|_| call.is_async())?,
        None => is_named(value)?,
    };
    let given =
        near::roots(view, buffer).into_iter().any(|l| view.is_param(l) && !near::is_self(view, &Operand::Local(l)));
    given.then_some(*dst)
}

/// What a call is given that is named as a collective in the background.
fn is_named(value: &Rvalue) -> Option<&Operand> {
    let (name, args) = match value {
        Rvalue::CallMethod { name, args, .. } => (name.clone(), args),
        Rvalue::Call { callee: Operand::Global(name), args } => (name.clone(), args),
        _ => return None,
    };
    let name = Name::from(name.to_lowercase());
    let named = name.contains("async") && COLLECTIVES.iter().any(|c| name.contains(c));
    args.first().map(|a| &a.value).filter(|_| named)
}

/// Whether all that a step does with a handle is to return it, alone or in a tuple.
fn is_handed_back(view: &View<'_>, step: usize, handle: LocalId) -> bool {
    match view.steps[step].stmt {
        Stmt::Return { value } => *value == Operand::Local(handle),
        Stmt::Assign { dst, value: Rvalue::Build { items, .. } } => {
            let holds = items.iter().any(|i| matches!(i, Item::One(o) if *o == Operand::Local(handle)));
            let returned = |s: &usize| matches!(view.steps[*s].stmt, Stmt::Return { .. });
            holds && view.is_temp(*dst) && view.readers(*dst).iter().all(returned)
        }
        _ => false,
    }
}
