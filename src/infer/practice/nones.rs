//! Conditions that are the wrong way round. In: a function. Out: a collective on what is None wherever it is reached: after
//! `if x is not None: continue`, or inside `if x is None:`. Never: truthiness, and values that a call may have changed. Next: `mod.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::view::{Guard, View};
use crate::ir::{CmpOp, LocalKind, Operand, Rvalue, Stmt, StmtId, UnOp};
use crate::source::{Name, Place};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of one condition: its subject, the first use of it, the first collective behind it.
struct Behind {
    subject: Expr,
    used: Option<Place>,
    collective: Option<Name>,
}

/// Collectives that only run where their subject is None.
pub fn inverted(view: &View<'_>, out: &mut Found) {
    let mut seen: BTreeMap<StmtId, Behind> = BTreeMap::new();
    // Only conditions around some collective matter.
    let communicating = (0..view.steps.len()).filter(|i| collective(view, *i).is_some());
    let asked: BTreeSet<StmtId> = communicating.flat_map(|i| view.steps[i].guards.iter().map(|g| g.at)).collect();
    if asked.is_empty() {
        return;
    }
    // What is None behind each of them, until it is changed.
    let mut subjects: BTreeMap<(StmtId, bool), Option<Expr>> = BTreeMap::new();
    for i in 0..view.steps.len() {
        for guard in view.steps[i].guards.iter().filter(|g| asked.contains(&g.at)) {
            let subject = || none_if(&view.expr(guard.test), guard.holds).filter(|s| is_plain(view, s));
            let known = subjects.entry((guard.at, guard.holds)).or_insert_with(subject);
            let Some(subject) = known else { continue };
            if changed(view, guard, subject, i) {
                *known = None;
                continue;
            }
            let subject = subject.clone();
            let behind = seen.entry(guard.at).or_insert(Behind { subject, used: None, collective: None });
            if behind.used.is_none() {
                behind.used = used(view, i, &behind.subject);
            }
            if behind.collective.is_none() {
                behind.collective = collective(view, i);
            }
        }
    }
    for (at, behind) in seen {
        let (Some(used), Some(collective)) = (behind.used, behind.collective) else { continue };
        out.push((
            view.part(at, 0),
            Practice::InvertedGuard { variable: written(view, &behind.subject), used, collective },
        ));
    }
}

fn none_if(test: &Expr, holds: bool) -> Option<Expr> {
    match test {
        Expr::Compare(CmpOp::Is, a, b) if holds && b.is_none() => Some((**a).clone()),
        Expr::Compare(CmpOp::IsNot, a, b) if !holds && b.is_none() => Some((**a).clone()),
        Expr::Unary(UnOp::Not, inner) => none_if(inner, !holds),
        // A conjunction that holds, a disjunction that does not.
        Expr::Bool { and, of } if *and == holds => of.iter().find_map(|e| none_if(e, holds)),
        _ => None,
    }
}

/// A variable of this function alone, or an attribute of one.
fn is_plain(view: &View<'_>, e: &Expr) -> bool {
    match e {
        Expr::Local(l) => view.func.locals[*l].kind == LocalKind::Plain,
        Expr::Attr(base, _) => is_plain(view, base),
        _ => false,
    }
}

fn written(view: &View<'_>, e: &Expr) -> Name {
    match e {
        Expr::Local(l) => view.local_name(*l).clone(),
        Expr::Attr(base, name) => Name::from(format!("{}.{name}", written(view, base))),
        _ => Name::from(""),
    }
}

/// Whether a variable is bound anew between the test and a step; of an attribute whether anything may have set it.
fn changed(view: &View<'_>, guard: &Guard<'_>, subject: &Expr, step: usize) -> bool {
    let Some(test) = view.steps.iter().position(|s| s.id == guard.at) else { return true };
    let attribute = matches!(subject, Expr::Attr(..));
    (test + 1..step).any(|i| match view.steps[i].stmt {
        Stmt::Delete { local } => subject.mentions(*local),
        Stmt::SetAttr { .. } => attribute,
        Stmt::Assign { value: Rvalue::Call { .. } | Rvalue::CallMethod { .. }, .. } if attribute => true,
        _ => view.binds(i).into_iter().any(|l| subject.mentions(l)),
    })
}

/// Where a step uses an attribute, an item or a method of the subject, or communicates it.
fn used(view: &View<'_>, step: usize, subject: &Expr) -> Option<Place> {
    let is = |o: &Operand| view.expr(o) == *subject;
    let id = view.steps[step].id;
    let hit = match view.value(step) {
        Some(Rvalue::Attr { base, name } | Rvalue::CallMethod { base, name, .. }) if !name.starts_with("__") => {
            is(base) || view.value(step).and_then(|v| given(view, v)).is_some_and(is)
        }
        Some(Rvalue::Item { base, .. }) => is(base),
        Some(value @ Rvalue::Call { .. }) => given(view, value).is_some_and(is),
        Some(_) => false,
        None => match view.steps[step].stmt {
            Stmt::SetAttr { base, .. } | Stmt::SetItem { base, .. } => is(base),
            _ => false,
        },
    };
    hit.then(|| view.place(id))
}

/// What a collective is given.
fn given<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<&'a Operand> {
    view.collective(value).and_then(|c| c.input).or_else(|| super::raw::raw(view, value)?.buffer)
}

/// The collective of a step.
fn collective(view: &View<'_>, step: usize) -> Option<Name> {
    let value = view.value(step)?;
    if let Some(call) = view.collective(value) {
        return (call.rule.op != "layer").then(|| super::lost::last(&call.rule.name));
    }
    super::raw::raw(view, value).map(|r| r.name)
}
