//! A variable that holds the handle of one of several collectives in the background, by flags, and is waited for where one of the flags is set. In: a function.
//! Out: a collective whose buffer is used on a path on which nothing waits for it. Never: waits whose conditions are other ones than those of the
//! launches, handles that go elsewhere, and anything else that may wait. Source: torch.distributed, `async_op`. Next: `handles.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Until};
use super::gradient::root;
use super::handles::{reads, waits_for_others};
use super::near;
use super::raw::{Raw, Sort, raw};
use super::view::{Guard, View};
use crate::ir::{CmpOp, Const, LocalId, LocalKind, Operand, Rvalue, Stmt, UnOp};

/// What holds: a test, and whether it does.
pub(super) type Fact = (Expr, bool);

/// Parts of names of what may wait for whatever is under way.
const WAITS: &[&str] = &["synchron", "wait", "barrier", "stream", "finish", "flush"];

pub fn unwaited(view: &View<'_>, out: &mut Found) {
    for index in 0..view.steps.len() {
        let Stmt::Assign { dst, .. } = view.steps[index].stmt else { continue };
        if launch(view, index).is_none() {
            continue;
        }
        let plain = view.func.locals()[*dst].kind == LocalKind::Plain && !view.is_param(*dst);
        let launches: Vec<usize> = view.defs(*dst).iter().copied().filter(|d| !is_nothing(view, *d)).collect();
        let first = launches.first() == Some(&index) && launches.len() > 1;
        if !plain || !first || !launches.iter().all(|l| launch(view, *l).is_some()) {
            continue;
        }
        of_handle(view, *dst, &launches, out);
    }
}

/// The launches of one variable that nothing waits for on some path.
fn of_handle(view: &View<'_>, handle: LocalId, launches: &[usize], out: &mut Found) {
    let Some(waits) = waits(view, handle) else { return };
    for &at in launches {
        let Some(call) = launch(view, at) else { continue };
        let Some(buffer) = call.buffer.and_then(|b| root(view, b)) else { continue };
        let Some((used, wait)) = used(view, (handle, at, buffer), launches, &waits) else { continue };
        let practice = Practice::ReadInFlight {
            collective: call.name.clone(),
            launched: view.place(view.steps[at].id),
            until: Until::OtherPath { read: view.place(view.steps[used].id), wait: view.place(view.steps[wait].id) },
            buffer: view.local_name(buffer).clone(),
        };
        out.push((view.place(view.steps[at].id), practice));
        return;
    }
}

/// Where the buffer of a launch is used without a wait, and a wait on another path.
fn used(
    view: &View<'_>,
    (handle, at, buffer): (LocalId, usize, LocalId),
    launches: &[usize],
    waits: &[usize],
) -> Option<(usize, usize)> {
    let step = &view.steps[at];
    let own = facts(view, &step.guards);
    for j in at + 1..view.steps.len() {
        let later = &view.steps[j];
        if later.loops != step.loops {
            return None;
        }
        if !reads(view, j, buffer) {
            continue;
        }
        let mut known = own.clone();
        known.extend(facts(view, &later.guards));
        let between: Vec<usize> = waits.iter().copied().filter(|w| *w > at && *w < j).collect();
        // The other launch has the variable: what is waited for is that one.
        let others = launches.iter().filter(|l| **l != at).flat_map(|l| facts(view, &view.steps[*l].guards));
        let flags: Vec<Fact> = others.filter(|fact| !own.contains(fact)).collect();
        let off = |known: &mut Vec<Fact>, wait: usize| {
            let needs = facts(view, &view.steps[wait].guards);
            if needs.iter().any(|need| contradicts(known, need)) {
                return needs.iter().any(|need| flags.contains(need));
            }
            let Some((test, holds)) = needs.into_iter().find(|need| flags.contains(need)) else { return false };
            known.push((test, !holds));
            true
        };
        let all_off = !between.is_empty() && between.iter().all(|w| off(&mut known, *w));
        let possible = known.iter().all(|fact| !contradicts(&known, fact));
        let may_run = |s: usize| facts(view, &view.steps[s].guards).iter().all(|f| !contradicts(&known, f));
        let mut replacing = launches.iter().chain(view.defs(buffer));
        let replaced = replacing.any(|s| *s > at && *s < j && may_run(*s));
        if all_off && possible && !replaced && !waits_for_others(view, handle, at, j) {
            return Some((j, between[0]));
        }
    }
    None
}

/// What guards say: the parts of a conjunction each for itself.
pub(super) fn facts(view: &View<'_>, guards: &[Guard<'_>]) -> Vec<Fact> {
    let mut out = Vec::new();
    for guard in guards {
        take_apart(view.through(guard.test), guard.holds, &mut out);
    }
    out
}

fn take_apart(test: Expr, holds: bool, out: &mut Vec<Fact>) {
    match test {
        Expr::Unary(UnOp::Not, of) => take_apart(*of, !holds, out),
        Expr::Bool { and, of } if and == holds => of.into_iter().for_each(|part| take_apart(part, holds, out)),
        test => out.push((test, holds)),
    }
}

pub(super) fn contradicts(known: &[Fact], (test, holds): &Fact) -> bool {
    known.iter().any(|(other, value)| other == test && value != holds)
}

/// A collective that is launched in the background for all ranks.
fn launch<'a>(view: &View<'a>, step: usize) -> Option<Raw<'a>> {
    let call = raw(view, view.value(step)?).filter(|c| c.is_async() && c.sort == Sort::Everyone)?;
    (view.in_plain_contexts(step) || view.without_gradient(step)).then_some(call)
}

/// `handle = None`
fn is_nothing(view: &View<'_>, step: usize) -> bool {
    matches!(view.value(step), Some(Rvalue::Use(Operand::Const(Const::None))))
}

/// The waits for a handle, if that is all that is done with it and nothing else of the function may wait.
fn waits(view: &View<'_>, handle: LocalId) -> Option<Vec<usize>> {
    let is_wait = |s: usize| matches!(view.value(s), Some(Rvalue::CallMethod { base, name, .. }) if name == "wait" && near::local(base) == Some(handle));
    let looks = |s: usize| match view.value(s) {
        Some(Rvalue::Compare { op: CmpOp::Is | CmpOp::IsNot, .. }) => true,
        Some(_) => is_wait(s),
        None => matches!(view.steps[s].stmt, Stmt::If { .. }),
    };
    let may_wait = |s: usize| {
        let Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) = view.value(s) else { return false };
        let waits_for_one = matches!(value, Rvalue::CallMethod { name, .. } if name == "wait");
        let name = near::written_name(view, value).unwrap_or_default().to_lowercase();
        !waits_for_one && near::has_any(&name, WAITS)
    };
    let all = view.readers(handle);
    let fits = all.iter().all(|s| looks(*s)) && !(0..view.steps.len()).any(may_wait);
    fits.then(|| all.iter().copied().filter(|s| is_wait(*s)).collect())
}
