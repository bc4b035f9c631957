//! Conditions that are the wrong way round. In: a function. Out: a collective on what is None wherever it is reached: after
//! `if x is not None: continue`, or inside `if x is None:`. Never: truthiness, and values that a call may have changed. Next: `mod.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::view::View;
use crate::ir::{CmpOp, LocalKind, Operand, Rvalue, Stmt, StmtId, UnOp};
use crate::source::{Name, Place};
use std::collections::BTreeMap;

/// What is known of one condition.
struct Behind {
    /// What is None behind it.
    subject: Expr,
    /// Where the condition holds, or does not.
    holds: bool,
    /// The steps before this one leave the subject as it is.
    kept: usize,
    /// Some step does not.
    changed: bool,
    /// The first use of the subject, and the first collective.
    used: Option<Place>,
    collective: Option<Name>,
}

/// Collectives that only run where their subject is None.
pub fn inverted(view: &View<'_>, out: &mut Found) {
    // Only conditions around some collective matter.
    let around = |i: usize| !view.steps[i].guards.is_empty() && collective(view, i).is_some();
    if !(0..view.steps.len()).any(around) {
        return;
    }
    let mut asked: BTreeMap<StmtId, Behind> = BTreeMap::new();
    for (i, step) in view.steps.iter().enumerate() {
        let (Stmt::If { test, .. } | Stmt::Assert { test }) = step.stmt else { continue };
        let test = view.expr(test);
        let subject = |holds| none_if(&test, holds).filter(|s| is_plain(view, s)).map(|subject| (subject, holds));
        if let Some((subject, holds)) = subject(true).or_else(|| subject(false)) {
            let behind = Behind { subject, holds, kept: i + 1, changed: false, used: None, collective: None };
            asked.insert(step.id, behind);
        }
    }
    if asked.is_empty() {
        return;
    }
    for i in 0..view.steps.len() {
        for guard in view.steps[i].guards.iter() {
            let Some(behind) = asked.get_mut(&guard.at).filter(|b| b.holds == guard.holds && !b.changed) else {
                continue;
            };
            let before = std::mem::replace(&mut behind.kept, i);
            behind.changed = (before..i).any(|step| changes(view, &behind.subject, step));
            if behind.changed {
                continue;
            }
            if behind.used.is_none() {
                behind.used = used(view, i, &behind.subject);
            }
            if behind.collective.is_none() {
                behind.collective = collective(view, i);
            }
        }
    }
    for (at, behind) in asked {
        let (Some(used), Some(collective)) = (behind.used, behind.collective) else { continue };
        out.push((
            view.part(at, 0),
            Practice::InvertedGuard { variable: written(view, &behind.subject), used, collective },
        ));
    }
}

/// What is None if a test holds, or does not.
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
        Expr::Local(l) => view.func.locals()[*l].kind == LocalKind::Plain,
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

/// Whether a step binds a variable anew; of an attribute whether it may set it.
fn changes(view: &View<'_>, subject: &Expr, step: usize) -> bool {
    let attribute = matches!(subject, Expr::Attr(..));
    match view.steps[step].stmt {
        Stmt::Delete { local } => subject.mentions(*local),
        Stmt::SetAttr { .. } => attribute,
        Stmt::Assign { value: Rvalue::Call { .. } | Rvalue::CallMethod { .. }, .. } if attribute => true,
        _ => view.binds(step).into_iter().any(|l| subject.mentions(l)),
    }
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
