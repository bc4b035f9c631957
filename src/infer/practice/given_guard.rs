//! Groups that are asked for and not given. In: a function. Out: a collective over all ranks under a test that a group is there, in a
//! function in which another collective has its group. Never: a group that anything under the test reads, a test of
//! several groups, or what is the largest of all.
//! Source: ColossalAI `compute_norm`: the norm is summed over the data-parallel group, and then over all ranks. Next: `asked_group.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::slips::Slip;
use super::view::{Guard, View};
use crate::infer::scale::groups::of_group_name;
use crate::ir::{CmpOp, Operand, UnOp};
use crate::source::Name;

const OPERATIONS: &[&str] = &["all_reduce", "reduce_scatter", "all_gather", "all_to_all"];

/// `if mp_group is not None: all_reduce(norm)` beside `all_reduce(norm, group=dp_group)`
pub fn not_given(view: &View<'_>, out: &mut Found) {
    let calls = view.collectives();
    for (i, call) in calls {
        let step = &view.steps[*i];
        let plain = call.rule.group.is_some() && call.rule.default_group.is_empty();
        if call.group.is_some() || !plain || !OPERATIONS.contains(&call.rule.op.as_str()) || is_extreme(view, *i) {
            continue;
        }
        let Some(guard) = step.guards.last() else { continue };
        let Some((asked, group)) = asked_for(view, guard) else { continue };
        let beside = calls.iter().find(|(j, other)| {
            let over = other.group.map(|g| view.through(g));
            let same = |input: Option<&Operand>| input.map(|i| view.expr(i));
            let about = same(call.input).is_some() && same(call.input) == same(other.input);
            j != i && about && over.is_some_and(|o| !o.is_none() && o != asked)
        });
        let Some((beside, _)) = beside else { continue };
        if is_read_under(view, &asked, guard) {
            continue;
        }
        let collective = super::lost::last(&call.rule.name);
        let (guard, beside) = (view.part(guard.at, 0), view.place(view.steps[*beside].id));
        out.push((view.place(step.id), Practice::Slips(Slip::AskedNotGiven { collective, group, guard, beside })));
    }
}

/// Whether a collective takes the largest or smallest: over more ranks, that is the one of all of them, as a norm may be.
fn is_extreme(view: &View<'_>, step: usize) -> bool {
    let text = view.text(view.place(view.steps[step].id)).to_lowercase();
    ["max", "min"].iter().any(|word| near::has_word(&text, word))
}

/// The group of which a test says that it is there, and its name.
fn asked_for(view: &View<'_>, guard: &Guard<'_>) -> Option<(Expr, Name)> {
    let mut test = view.expr(guard.test);
    let mut holds = guard.holds;
    if let Expr::Unary(UnOp::Not, inner) = test {
        (test, holds) = (*inner, !holds);
    }
    let group = match test {
        Expr::Compare(op, a, b) if b.is_none() && matches!(op, CmpOp::IsNot | CmpOp::Ne) == holds => *a,
        other if holds => other,
        _ => return None,
    };
    let name = match &group {
        Expr::Local(local) => view.local_name(*local).clone(),
        Expr::Attr(_, name) => name.clone(),
        _ => return None,
    };
    let shown = match near::own_attribute(view, &group) {
        Some(own) => Name::from(format!("self.{own}")),
        None => name.clone(),
    };
    of_group_name(&name).is_some().then_some((group, shown))
}

/// Whether anything under the same test names the group.
fn is_read_under(view: &View<'_>, group: &Expr, guard: &Guard<'_>) -> bool {
    (0..view.steps.len()).any(|s| {
        let under = view.steps[s].guards.iter().any(|g| g.at == guard.at && g.holds == guard.holds);
        under && view.reads(s).into_iter().any(|o| near::deep(view, &view.expr(o)).any(&mut |e| e == group))
    })
}
