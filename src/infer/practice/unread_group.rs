//! Groups that a loop goes through and that nothing reads. In: a function. Out: a collective over other ranks that stands there instead.
//! Never: a name that anything reads, what a function is given, which it may have to take for the sake of its callers, or anything that is
//! not written out as groups: a loop may go through groups of people as well. Next: `group_argument.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::near;
use super::view::View;
use crate::ir::{BuildKind, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};

/// Endings of names of groups.
const ENDS: &[&str] = &["group", "_pg"];

fn names_group(name: &str) -> bool {
    ENDS.iter().any(|end| name.ends_with(end)) || name == "pg"
}

/// `for params, group in ((dense, self.dp_group), (experts, self.ep_group)): all_reduce(x, group=self.dp_group)`.
pub fn unread(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        if !call.rule.default_group.is_empty()
            || !matches!(call.rule.op.as_str(), "all_reduce" | "reduce_scatter" | "all_gather" | "all_to_all")
        {
            continue;
        }
        let step = &view.steps[*i];
        let Some((unread, place)) = call.group.and_then(|group| {
            let over = view.through(group);
            step.loops.iter().find_map(|at| of_loop(view, *at, &over))
        }) else {
            continue;
        };
        let collective = super::lost::last(&call.rule.name);
        let mistake = Scales::UnreadGroup { collective, unread, given: place };
        out.push((view.place(step.id), Practice::Scales(mistake)));
    }
}

/// The group that a loop names beside something else, and never reads.
fn of_loop(view: &View<'_>, at: usize, over: &Expr) -> Option<(Name, Place)> {
    let Stmt::For { dst, iter, .. } = view.steps[at].stmt else { return None };
    let unpacks = |s: &&super::view::Step<'_>| match s.stmt {
        Stmt::Unpack { value, .. } => near::local(value) == Some(*dst),
        _ => false,
    };
    let Stmt::Unpack { before, star: None, .. } = view.steps.iter().find(unpacks)?.stmt else { return None };
    let local = before.iter().enumerate().find_map(|(i, l)| {
        let unread = names_group(view.local_name(*l)) && view.defs(*l).len() == 1 && !view.is_read(*l);
        (unread && several_groups(view, iter, i, over)).then_some(l)
    })?;
    let others = before.iter().any(|l| l != local && view.is_read(*l));
    others.then(|| (view.local_name(*local).clone(), view.place(view.steps[at].id)))
}

/// The items of a tuple or a list that is written out.
fn items<'a>(view: &View<'a>, of: &Operand) -> Option<Vec<&'a Operand>> {
    let (_, value) = view.source(of)?;
    let is_row = matches!(value, Rvalue::Build { kind: BuildKind::Tuple | BuildKind::List, .. });
    is_row.then(|| near::items(value)).flatten()
}

/// Whether all rows of what a loop goes through have a group at a place, some of them the one over which it communicates and others another.
fn several_groups(view: &View<'_>, iter: &Operand, at: usize, over: &Expr) -> bool {
    let group = |row: &Operand| -> Option<Expr> {
        let given = view.through(items(view, row)?.get(at)?);
        let name = match &given {
            Expr::Local(local) => view.local_name(*local).as_str(),
            Expr::Call { callee, .. } => callee.last_name()?,
            other => other.last_name()?,
        };
        (names_group(name) && !["param", "layer", "bucket"].iter().any(|w| name.contains(w))).then_some(given)
    };
    let Some(rows) = items(view, iter) else { return false };
    let Some(groups) = rows.into_iter().map(group).collect::<Option<Vec<Expr>>>() else { return false };
    groups.contains(over) && groups.iter().any(|g| g != over)
}
