//! What goes round a ring and is never looked at. In: a function. Out: a variable that a loop only sends on, while the same loop reads the
//! value that it had at the start. Never: a variable that anything else reads, a loop that does not read the first value, or one whose time is
//! taken. Next: `lost.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::training::Training;
use super::view::View;
use super::wrapped::{call, function};
use crate::ir::{BuildKind, LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::project::Resolved;
use crate::rules::Entry;

const MOST_DEPTH: usize = 4;

/// What measures how long something takes.
const CLOCKS: &[&str] = &["perf_counter(", "elapsed_time(", "time.time(", "monotonic("];

/// Words of files in which blocks are passed on. Not the end of `string_`.
pub const PASSES: &[&str] = &["recv", "rotat", " ring_", "_ring_", "(ring_", ".ring_", "=ring_", "send_"];

/// Whether a function runs its communication to warm it up, or to see how long it takes.
pub(super) fn measures(view: &View<'_>) -> bool {
    let name = view.func.name.to_lowercase();
    near::has_any(&name, &["warm", "bench", "measure"]) || near::has_any(view.text(view.spot(view.func.span)), CLOCKS)
}

pub fn arrivals(view: &View<'_>, out: &mut Found) {
    if measures(view) {
        return;
    }
    for (local, info) in view.func.locals().iter_enumerated() {
        if info.kind != LocalKind::Plain || view.defs(local).len() < 2 || view.is_param(local) {
            continue;
        }
        let Some((round, passed)) = only_passed(view, local) else { continue };
        let name = view.local_name(local).clone();
        // A new value of it in the loop is another matter.
        let kept = |first: &LocalId| !view.defs(*first).iter().any(|d| view.steps[*d].loops.contains(&round));
        let read = |first: LocalId| {
            let mut readers = view.readers(first).iter();
            readers.find(|s| view.steps[**s].loops.contains(&round) && !passes(view, **s)).map(|read| (first, *read))
        };
        let firsts = first_values(view, local, round);
        let Some((first, read)) = firsts.into_iter().filter(kept).find_map(read) else { continue };
        let mistake = Training::NeverRead {
            variable: name,
            first: view.local_name(first).clone(),
            passed: view.place(view.steps[passed].id),
        };
        let place = view.place(view.steps[read].id);
        if !out.iter().any(|(at, _)| *at == place) {
            out.push((place, Practice::Training(mistake)));
        }
    }
}

/// The loop in which a variable is given to communication and gets what comes back, if nothing else reads it; and the call.
fn only_passed(view: &View<'_>, local: LocalId) -> Option<(usize, usize)> {
    let readers = view.readers(local);
    let passed = readers.iter().copied().find(|s| passes(view, *s))?;
    let round = *view.steps[passed].loops.last()?;
    let idle = |s: usize| passes(view, s) || comes_to_nothing(view, s, MOST_DEPTH);
    // What the variable holds before the loop is its own.
    let all = readers.iter().all(|s| if view.steps[*s].loops.contains(&round) { idle(*s) } else { *s < round });
    let defs: Vec<&usize> = view.defs(local).iter().filter(|d| view.steps[**d].loops.contains(&round)).collect();
    let back = !defs.is_empty()
        && defs.iter().all(|d| {
            let value = match view.bound(**d, local) {
                Expr::Local(other) => view.through(&Operand::Local(other)),
                other => other,
            };
            let step = match &value {
                Expr::Call { step, .. } => Some(*step),
                Expr::Item(whole, _) => match &**whole {
                    Expr::Call { step, .. } => Some(*step),
                    _ => None,
                },
                _ => None,
            };
            step.is_some_and(|s| readers.contains(&s))
        });
    (all && back).then_some((round, passed))
}

/// Whether nothing reads what a step makes: it takes apart what arrived, and the parts are left alone.
fn comes_to_nothing(view: &View<'_>, step: usize, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let own = |local: &LocalId| !matches!(view.func.locals()[*local].kind, LocalKind::Cell | LocalKind::Captured);
    match view.steps[step].stmt {
        Stmt::Assign { dst, value } => {
            let pure = match value {
                Rvalue::CallMethod { name, .. } => APART.contains(&name.as_str()) || SAME.contains(&name.as_str()),
                Rvalue::Item { .. } | Rvalue::Use(_) => true,
                // `key, value = kv[0], kv[1]`
                Rvalue::Build { kind: BuildKind::Tuple | BuildKind::List, .. } => true,
                _ => false,
            };
            pure && own(dst) && view.readers(*dst).iter().all(|s| comes_to_nothing(view, *s, depth))
        }
        Stmt::Unpack { before, star, after, .. } => {
            before.iter().chain(star).chain(after.iter()).all(|local| own(local) && view.readers(*local).is_empty())
        }
        _ => false,
    }
}

/// Whether a step gives what it reads to a function that sends it on and returns what arrives.
fn passes(view: &View<'_>, step: usize) -> bool {
    let Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) = view.value(step) else { return false };
    let Some((callee, _)) = call(view, value) else { return false };
    function(view, &callee).is_some_and(|at| receives(&near::other(view, at), MOST_DEPTH))
}

/// Whether a function receives from another rank and returns something.
fn receives(view: &View<'_>, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    if !view.steps.iter().any(|s| matches!(s.stmt, Stmt::Return { value: Operand::Local(_) })) {
        return false;
    }
    (0..view.steps.len()).any(|i| {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            return false;
        };
        let arrives = |path: &str| {
            let rooted =
                matches!(view.rules.get(path), Some(Entry::Intrinsic(rule)) if rule.does == "rooted-collective");
            rooted && path.rsplit('.').next().is_some_and(|name| name.contains("recv"))
        };
        if view.callee(value).is_some_and(|path| arrives(&path)) {
            return true;
        }
        let given = args.iter().any(|a| matches!(view.through(&a.value), Expr::Path(path) if arrives(&path)));
        given || {
            let inner = view.callee(value).map(|path| view.project.path(&path));
            matches!(inner, Some(Resolved::Func(at)) if at != view.at && receives(&near::other(view, at), depth))
        }
    })
}

/// Methods that give the values of their tensor.
pub const SAME: &[&str] = &["contiguous", "clone", "detach"];

/// Methods that give the parts of their tensor.
const APART: &[&str] = &["unbind", "chunk", "split"];

/// Functions that put tensors together.
const TOGETHER: &[&str] = &["torch.stack", "torch.cat"];

/// The variables whose values a variable has before a loop: one, or those that are put together.
fn first_values(view: &View<'_>, local: LocalId, round: usize) -> Vec<LocalId> {
    let outside: Vec<usize> =
        view.defs(local).iter().copied().filter(|d| !view.steps[*d].loops.contains(&round) && *d < round).collect();
    let [def] = outside.as_slice() else { return Vec::new() };
    let mut value = view.bound(*def, local);
    while let Expr::Call { callee, args, .. } = value {
        match *callee {
            Expr::Attr(base, name) if args.is_empty() && SAME.contains(&name.as_str()) => {
                value = *base;
            }
            Expr::Path(path) if TOGETHER.contains(&path.as_str()) => {
                let Some((_, Expr::Build(items))) = args.first() else { return Vec::new() };
                let named = |item: &Expr| if let Expr::Local(first) = item { Some(*first) } else { None };
                return items.iter().filter_map(named).collect();
            }
            _ => return Vec::new(),
        }
    }
    match value {
        Expr::Local(first) if first != local => vec![first],
        _ => Vec::new(),
    }
}
