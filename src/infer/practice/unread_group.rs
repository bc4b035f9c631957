//! Groups that a loop goes through, or that a function is given, and that nothing reads. In: a function. Out: a collective over other ranks
//! that stands there instead. Never: a name that anything reads, methods, which may have to take what they are given, or groups of an
//! optimizer. Next: `group_argument.rs`.

use super::Found;
use super::found::{Practice, Scales};
use super::near;
use super::view::View;
use crate::ir::{FuncKind, LocalId, Stmt};
use crate::source::{Name, Place};

/// Endings of names of groups.
const ENDS: &[&str] = &["group", "_pg"];

fn names_group(name: &str) -> bool {
    ENDS.iter().any(|end| name.ends_with(end)) || name == "pg"
}

/// `for params, group in (..): all_reduce(x, group=self.dp_group)`, `def sum_over(x, group): all_reduce(x)`.
pub fn unread(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        if !call.rule.default_group.is_empty()
            || !matches!(call.rule.op.as_str(), "all_reduce" | "reduce_scatter" | "all_gather" | "all_to_all")
        {
            continue;
        }
        let step = &view.steps[*i];
        let given = call.group.is_some_and(|g| !view.expr(g).is_none());
        let found =
            step.loops.iter().find_map(|at| of_loop(view, *at)).or_else(|| of_function(view).filter(|_| !given));
        let Some((unread, place)) = found else { continue };
        let collective = super::lost::last(&call.rule.name);
        let mistake = Scales::UnreadGroup { collective, unread, given: place };
        out.push((view.place(step.id), Practice::Scales(mistake)));
    }
}

/// The group that a loop names beside something else, and never reads.
fn of_loop(view: &View<'_>, at: usize) -> Option<(Name, Place)> {
    let Stmt::For { dst, iter, .. } = view.steps[at].stmt else { return None };
    if view.expr(iter).any(&mut |e| e.last_name().is_some_and(|n| n.contains("param_groups"))) {
        return None;
    }
    let unpacks = |s: &&super::view::Step<'_>| match s.stmt {
        Stmt::Unpack { value, .. } => near::local(value) == Some(*dst),
        _ => false,
    };
    let Stmt::Unpack { before, star: None, .. } = view.steps.iter().find(unpacks)?.stmt else { return None };
    let is = |l: &&LocalId| names_group(view.local_name(**l)) && view.defs(**l).len() == 1 && !view.is_read(**l);
    let local = before.iter().find(is)?;
    let others = before.iter().any(|l| l != local && view.is_read(*l));
    others.then(|| (view.local_name(*local).clone(), view.place(view.steps[at].id)))
}

/// The only group that a function is given, if it never reads that.
fn of_function(view: &View<'_>) -> Option<(Name, Place)> {
    if view.func.kind != FuncKind::Function || view.func.class.is_some() {
        return None;
    }
    if view.text(view.spot(view.func.span)).contains("deprecat") {
        return None;
    }
    let mut groups = view.func.params.iter().filter(|p| names_group(&p.name));
    let (Some(one), None) = (groups.next(), groups.next()) else { return None };
    let other = view.func.params.iter().any(|p| p.name.contains("mesh") || p.name.contains("context"));
    (!other && !view.is_read(one.local) && view.defs(one.local).is_empty())
        .then(|| (one.name.clone(), view.spot(one.span)))
}
