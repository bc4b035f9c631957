//! Handles that nothing can wait for any more, where what their collective writes is used later. In: a function. Out: a handle that is dropped, or put
//! into a list of the function whose handles nobody looks at, and a later use: of the same gradients in another loop or by the optimizer, of the
//! elements of the same list, of what stands beside the handle. The same of a helper that returns the handle of what it starts. Never: where anything
//! that may wait is named, or a collective that is not in the background comes between. Next: `handles.rs`, which sees variables.

use super::Found;
use super::called;
use super::dropped_handle::{is_of, returns_handle};
use super::expr::Expr;
use super::found::{Practice, Until};
use super::handles::{excludes, reads_what};
use super::near;
use super::raw::{Sort, raw};
use super::view::View;
use super::wrapped::called_function;
use crate::ir::{ArgKind, BuildKind, FuncKind, Item, LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::source::Name;

/// Parts of names of what may wait, or tells whether all has come.
const WAITS: &[&str] =
    &["wait", "synchron", "barrier", "stream", "finish", "flush", "is_completed", "get_future", "coalescing", "join_"];

/// Where a handle has gone.
enum Gone {
    Dropped,
    /// Into a list, beside other things in a tuple or alone.
    /// `by`: the step that reads it to that end.
    Put {
        list: LocalId,
        by: usize,
        position: usize,
        beside: Vec<Operand>,
    },
}

pub fn lost(view: &View<'_>, out: &mut Found) {
    if near::has_any(view.code(), WAITS) || view.func.is_generator {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value } = step.stmt else { continue };
        let Some(call) = raw(view, value).filter(|c| c.is_async() && c.sort == Sort::Everyone) else { continue };
        let Some(buffer) = call.buffer.filter(|_| view.in_plain_contexts(i) || view.without_gradient(i)) else {
            continue;
        };
        let Some(gone) = gone(view, i, *dst) else { continue };
        if let Some((used, name)) = used(view, i, buffer, &gone) {
            report(view, (i, call.name), (used, name), out);
        }
    }
}

/// Calls of a function that starts something in the background and returns the handle, which drop it.
pub fn started(view: &View<'_>, out: &mut Found) {
    if view.func.kind != FuncKind::Function {
        return;
    }
    let Some(given) = returns_handle(view) else { return };
    let method = view.func.class.map(|_| view.func.name.as_str());
    let path = view.project.qualified(view.at);
    for (site, step) in called::sites(view, &path, method) {
        let Some((Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }, dst)) = assigned(&site, step) else {
            continue;
        };
        if !is_of(view, &site, step) || near::has_any(site.code(), WAITS) {
            continue;
        }
        let bound = usize::from(view.func.class.is_some());
        let Some(position) = view.func.params.iter().position(|p| p.local == given) else { continue };
        let name = &view.func.params[position].name;
        let named = args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == name));
        let placed = || args.get(position.checked_sub(bound)?).filter(|a| a.kind == ArgKind::Positional);
        let Some(buffer) = named.or_else(placed).map(|a| &a.value) else { continue };
        let Some(gone) = gone(&site, step, dst) else { continue };
        if let Some((used, name)) = used(&site, step, buffer, &gone) {
            report(&site, (step, view.func.name.clone()), (used, name), out);
        }
    }
}

fn assigned<'a>(view: &View<'a>, step: usize) -> Option<(&'a Rvalue, LocalId)> {
    match view.steps[step].stmt {
        Stmt::Assign { dst, value } => Some((value, *dst)),
        _ => None,
    }
}

fn report(view: &View<'_>, (launch, collective): (usize, Name), (used, buffer): (usize, Name), out: &mut Found) {
    let launched = view.place(view.steps[launch].id);
    let told = |p: &Practice| matches!(p, Practice::ReadInFlight { launched: at, .. } if *at == launched);
    if !out.iter().any(|(place, p)| told(p) || *place == launched) {
        let until = Until::End { read: Some(view.place(view.steps[used].id)) };
        out.push((launched, Practice::ReadInFlight { collective, launched, until, buffer }));
    }
}

/// Where a handle has gone, if nothing can wait for it there.
fn gone(view: &View<'_>, launch: usize, handle: LocalId) -> Option<Gone> {
    let local = |l: LocalId| matches!(view.func.locals()[l].kind, LocalKind::Plain | LocalKind::Temp);
    if !local(handle) {
        return None;
    }
    // A comprehension puts it into its list.
    let comprehended = view.steps.iter().find_map(|s| match s.stmt {
        Stmt::Append { collection, value: Operand::Local(l), .. } if *l == handle => Some(*collection),
        _ => None,
    });
    if let Some(list) = comprehended {
        let list = renamed(view, list);
        let alone = view.readers(handle).len() == 1 && local(list) && is_forgotten(view, list, launch, 0);
        return alone.then_some(Gone::Put { list, by: launch, position: 0, beside: Vec::new() });
    }
    match view.readers(handle) {
        [] => Some(Gone::Dropped),
        [by] => {
            let (put, at, beside) = match view.steps[*by].stmt {
                Stmt::Assign { dst, value: Rvalue::Build { items, .. } } => match view.readers(*dst) {
                    [put] => (*dst, *put, ones(items)?),
                    _ => return None,
                },
                _ => (handle, *by, Vec::new()),
            };
            let Some(Rvalue::CallMethod { base, name, args }) = view.value(at) else { return None };
            let [arg] = &**args else { return None };
            let list = near::local(base).filter(|l| name == "append" && local(*l) && is_own_list(view, *l))?;
            let position = beside.iter().position(|o| *o == Operand::Local(handle)).unwrap_or(0);
            let fits = arg.value == Operand::Local(put) && at > launch && is_forgotten(view, list, *by, position);
            fits.then_some(Gone::Put { list, by: *by, position, beside })
        }
        _ => None,
    }
}

/// Whether a variable is a list that is made here.
fn is_own_list(view: &View<'_>, list: LocalId) -> bool {
    let made = |def: &usize| match view.value(*def) {
        Some(Rvalue::Build { kind: BuildKind::List, .. }) => true,
        Some(Rvalue::Use(from)) => matches!(view.source(from), Some((_, Rvalue::Build { kind: BuildKind::List, .. }))),
        Some(value @ Rvalue::Call { .. }) => view
            .callee(value)
            .is_some_and(|p| matches!(p.trim_start_matches("builtins."), "list" | "collections.deque")),
        _ => false,
    };
    !view.is_param(list) && !view.defs(list).is_empty() && view.defs(list).iter().all(made)
}

fn ones(items: &[Item]) -> Option<Vec<Operand>> {
    let one = |i: &Item| match i {
        Item::One(o) => Some(o.clone()),
        Item::Star(_) => None,
    };
    items.iter().map(one).collect()
}

/// The variable that a temporary is put into.
fn renamed(view: &View<'_>, list: LocalId) -> LocalId {
    match view.readers(list) {
        [.., at] if view.is_temp(list) => match view.steps[*at].stmt {
            Stmt::Assign { dst, value: Rvalue::Use(Operand::Local(l)) } if *l == list => *dst,
            _ => list,
        },
        _ => list,
    }
}

/// Whether nothing does anything with the handles of a list.
fn is_forgotten(view: &View<'_>, list: LocalId, by: usize, position: usize) -> bool {
    view.readers(list).iter().all(|at| match view.steps[*at].stmt {
        Stmt::For { dst, .. } => beside_in_round(view, *dst, by, position).is_some(),
        Stmt::Append { .. } | Stmt::If { .. } => true,
        Stmt::Assign { value: Rvalue::CallMethod { base, name, .. }, .. } => {
            near::local(base) == Some(list) && matches!(name.as_str(), "append" | "clear")
        }
        Stmt::Assign { value: value @ Rvalue::Call { .. }, .. } => {
            view.callee(value).is_some_and(|p| p.trim_start_matches("builtins.") == "len")
        }
        _ => false,
    })
}

/// What a loop over a list takes out of its tuples, if it leaves the handle where it is.
fn beside_in_round(view: &View<'_>, element: LocalId, by: usize, position: usize) -> Option<Vec<LocalId>> {
    let mut taken = Vec::new();
    for at in view.readers(element) {
        let Stmt::Unpack { before, star: None, after, .. } = view.steps[*at].stmt else { return None };
        if !after.is_empty() || before.get(position).is_none_or(|h| view.readers(*h).iter().any(|s| *s != by)) {
            return None;
        }
        taken.extend(before.iter().copied());
    }
    Some(taken)
}

/// Where something uses what is being written, and its name.
fn used(view: &View<'_>, launch: usize, buffer: &Operand, gone: &Gone) -> Option<(usize, Name)> {
    let around = view.steps[launch].loops.first().copied();
    let from = match around {
        Some(first) => (first..view.steps.len()).rev().find(|s| view.steps[*s].loops.contains(&first))? + 1,
        None => launch + 1,
    };
    let at = (from..view.steps.len())
        .filter(|s| !excludes(&view.steps[launch], &view.steps[*s]))
        .find_map(|s| Some((s, uses(view, launch, buffer, gone, s)?)))?;
    // What comes after it in the same group comes after it on the device.
    let settled = (launch + 1..at.0).any(|s| is_in_front(view, s) || settles(view, s));
    (!settled).then_some(at)
}

/// Whether a step is a collective that is not in the background.
pub(super) fn is_in_front(view: &View<'_>, step: usize) -> bool {
    let call = view.value(step).and_then(|value| raw(view, value));
    call.is_some_and(|call| !call.is_async() && call.sort == Sort::Everyone)
}

/// Parts of names of functions after which nothing is under way.
const SETTLES: &[&str] = &["sync", "drain", "complete", "done", "wait", "barrier", "flush"];

/// Whether a step calls something that may wait for all that is under way, by its name or inside.
pub(super) fn settles(view: &View<'_>, step: usize) -> bool {
    let has = |text: &str| near::has_any(&text.to_lowercase().replace("async", ""), SETTLES);
    let Some(value) = view.value(step) else { return false };
    let (Rvalue::Call { .. } | Rvalue::CallMethod { .. }) = value else { return false };
    let name = near::written_name(view, value).unwrap_or_default();
    let inside = || {
        called_function(view, value).is_some_and(|at| {
            let inner = near::shared(view, at);
            let together = |i: usize| inner.value(i).and_then(|v| raw(&inner, v)).is_some_and(|c| !c.is_async());
            has(inner.code()) || (0..inner.steps.len()).any(together)
        })
    };
    raw(view, value).is_none() && (has(&name) || inside())
}

/// Whether a function steps several optimizers, of which one may have other parameters.
fn has_several_optimizers(view: &View<'_>) -> bool {
    let mut first = None;
    (0..view.steps.len()).filter(|s| optimizes(view, *s)).any(|s| {
        let Some(Rvalue::CallMethod { base, .. }) = view.value(s) else { return false };
        let of = view.expr(base);
        *first.get_or_insert_with(|| of.clone()) != of
    })
}

fn uses(view: &View<'_>, launch: usize, buffer: &Operand, gone: &Gone, step: usize) -> Option<Name> {
    let written = view.expr(buffer);
    let gradient = written.last_name().filter(|n| matches!(written, Expr::Attr(..)) && n.ends_with("grad"));
    if let Some(gradient) = gradient {
        let Expr::Attr(owner, _) = &written else { return None };
        let of = iterated(view, owner, launch);
        let kept = |other: &Expr| match (other, &**owner) {
            (Expr::Local(a), Expr::Local(b)) => a == b && !view.defs(*a).iter().any(|d| (launch..step).contains(d)),
            (a, b) => a == b,
        };
        let again = |o: &Operand| match view.expr(o) {
            Expr::Attr(other, name) => {
                name == gradient && (kept(&other) || of.is_some() && iterated(view, &other, step) == of)
            }
            _ => false,
        };
        let steps = || {
            of.as_ref().is_some_and(|of| is_of_parameters(view, of))
                && optimizes(view, step)
                && !has_several_optimizers(view)
        };
        return (reads_what(view, step, &again) || steps()).then(|| Name::from(gradient));
    }
    let local = super::gradient::root(view, buffer)?;
    let name = || view.local_name(local).clone();
    // What stands beside the handle.
    if let Gone::Put { list, by, position: handle, beside } = gone
        && let Some(position) = beside.iter().position(|o| near::local(o) == Some(local))
    {
        let taken = |s: &usize| match view.steps[*s].stmt {
            Stmt::For { dst, .. } => beside_in_round(view, *dst, *by, *handle)?.get(position).copied(),
            _ => None,
        };
        let mut rounds = view.readers(*list).iter().filter_map(taken);
        if rounds.any(|l| reads_what(view, step, &|o| viewed(view, o) == Some(l)) || copies(view, step, l)) {
            return Some(name());
        }
    }
    // The elements of what is iterated over again.
    let of = iterated(view, &Expr::Local(local), launch)?;
    let element = |o: &Operand| {
        let of_this = |l: LocalId| iterated(view, &Expr::Local(l), step).as_ref() == Some(&of);
        super::gradient::root(view, o).is_some_and(of_this)
    };
    (view.steps[launch].loops.len() == 1 && reads_what(view, step, &element)).then(name)
}

/// Methods that give a view.
const VIEWS: &[&str] =
    &["view", "view_as", "reshape", "narrow", "flatten", "detach", "to", "type_as", "squeeze", "unsqueeze"];

/// The variable of which an operand is a view.
fn viewed(view: &View<'_>, operand: &Operand) -> Option<LocalId> {
    let mut local = near::local(operand)?;
    while view.is_temp(local) {
        local = match view.source(&Operand::Local(local))?.1 {
            Rvalue::Item { base, .. } => near::local(base)?,
            Rvalue::CallMethod { base, name, .. } if VIEWS.contains(&name.as_str()) => near::local(base)?,
            _ => return None,
        };
    }
    Some(local)
}

/// Whether a step copies a variable to something else.
fn copies(view: &View<'_>, step: usize, local: LocalId) -> bool {
    match view.value(step) {
        Some(Rvalue::CallMethod { name, args, .. }) => {
            name == "copy_" && args.first().is_some_and(|a| viewed(view, &a.value) == Some(local))
        }
        _ => false,
    }
}

/// What a variable of a loop is an element of, inside of the loop.
fn iterated(view: &View<'_>, element: &Expr, step: usize) -> Option<Expr> {
    let Expr::Local(local) = element else { return None };
    let def = *view.defs(*local).iter().rfind(|d| **d < step)?;
    let round = match view.steps[def].stmt {
        Stmt::For { .. } => def,
        _ => *view.steps[def].loops.last()?,
    };
    if !view.steps[step].loops.contains(&round) {
        return None;
    }
    let of = match view.bound(def, *local) {
        Expr::Element(of) => *of,
        // One of a tuple: of `named_parameters()`.
        Expr::Item(of, _) => match *of {
            Expr::Element(of) => *of,
            _ => return None,
        },
        _ => return None,
    };
    match of {
        Expr::Call { callee, args, .. } if args.is_empty() => Some(*callee),
        of @ (Expr::Local(_) | Expr::Attr(..) | Expr::Item(..)) => Some(of),
        _ => None,
    }
}

/// Whether what is iterated over are parameters by its name.
fn is_of_parameters(view: &View<'_>, of: &Expr) -> bool {
    match of {
        Expr::Local(local) => view.local_name(*local).contains("param"),
        Expr::Item(_, key) => key.string().is_some_and(|k| k.contains("param")),
        other => other.last_name().is_some_and(|n| n.contains("param")),
    }
}

/// Whether a step changes the weights by their gradients, or scales those.
fn optimizes(view: &View<'_>, step: usize) -> bool {
    match view.value(step) {
        Some(Rvalue::CallMethod { base, name, .. }) if name == "step" => {
            let base = view.expr(base);
            let named = match &base {
                Expr::Local(local) => Some(view.local_name(*local).as_str()),
                other => other.last_name(),
            };
            named.is_some_and(|n| n.starts_with("opt"))
        }
        Some(value) => view.callee(value).is_some_and(|p| p.starts_with("torch.") && p.contains("clip_grad_norm")),
        None => false,
    }
}
