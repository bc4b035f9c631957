//! Groups that do not fit the ranks. In: a function that makes groups. Out: what a rehearsal of a small job finds. Never: what
//! `new_groups.rs` tells by the text alone. Source: torch.distributed, `new_group`. Next: `../rehearsal/mod.rs`.

use super::Found;
use super::found::Practice;
use super::near;
use super::new_groups::{self, MEMBERS_ONLY};
use super::view::View;
use crate::ir::Rvalue;
use crate::source::Place;

pub fn groups(view: &View<'_>, out: &mut Found) {
    let text = view.files[view.project.file(view.at.module)].whole();
    if near::has_any(text, MEMBERS_ONLY) {
        return;
    }
    let mut told = Found::new();
    new_groups::made(view, &mut told);
    if !told.is_empty() {
        return;
    }
    if let Some((place, mut found)) = super::super::rehearsal::rehearse(view.project, view.rules, view.at) {
        found.computed = ranks_at(view, place);
        out.push((place, Practice::Rehearsed(Box::new(found))));
    }
}

/// Where the ranks are computed that a group is made of.
fn ranks_at(view: &View<'_>, made: Place) -> Option<Place> {
    let call = view.steps.iter().position(|s| view.place(s.id) == made)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(call)? else { return None };
    let local = near::local(view.argument(args, 0, "ranks")?)?;
    let before = view.defs(local).iter().rfind(|def| **def < call)?;
    (!view.is_temp(local)).then(|| view.place(view.steps[*before].id))
}
