//! Accumulated gradients that one branch overwrites. In: a function. Out: a copy into a buffer of gradients, on one side of a test, where the
//! other side asks a flag whether to add or to copy. Never: a side that asks the flag itself, and buffers of anything else.
//! Next: `mixed_mean.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::view::{Guard, View};
use crate::ir::{Rvalue, Stmt};
use crate::source::Name;

/// A step that writes into a buffer of gradients.
struct Write {
    step: usize,
    buffer: Expr,
    adds: bool,
}

/// `if many: (if accumulate: shard.add_(x) else: shard.copy_(x))`, `else: shard.copy_(y)`
pub fn gradients(view: &View<'_>, out: &mut Found) {
    let writes: Vec<Write> = (0..view.steps.len()).filter_map(|i| written(view, i)).collect();
    for write in writes.iter().filter(|w| !w.adds) {
        let Some((added, flag)) = writes.iter().filter(|w| w.adds).find_map(|added| {
            let copied = writes.iter().find(|c| !c.adds && c.step != write.step && opposite(view, added, c))?;
            let flag = view.steps[added.step].guards.last()?;
            (copied.buffer == write.buffer && other_side(view, added, write, flag)).then_some((added, flag))
        }) else {
            continue;
        };
        let Some(flag) = name(view, &view.through(flag.test)) else { continue };
        let Some(buffer) = name(view, &write.buffer) else { continue };
        let mistake = Membership::Overwritten { buffer, flag, added: view.place(view.steps[added.step].id) };
        out.push((view.place(view.steps[write.step].id), Practice::Membership(mistake)));
    }
}

fn written(view: &View<'_>, step: usize) -> Option<Write> {
    let Some(Rvalue::CallMethod { base, name: method, .. }) = view.value(step) else { return None };
    let adds = match method.as_str() {
        "add_" => true,
        "copy_" => false,
        _ => return None,
    };
    let buffer = view.expr(base);
    let called = name(view, &buffer)?;
    called.contains("grad").then_some(Write { step, buffer, adds })
}

/// Whether one flag alone decides which of two writes is made.
fn opposite(view: &View<'_>, added: &Write, copied: &Write) -> bool {
    let (a, c) = (&view.steps[added.step].guards, &view.steps[copied.step].guards);
    let (Some(last), Some(other)) = (a.last(), c.last()) else { return false };
    a.len() == c.len() && last.at == other.at && last.holds != other.holds && added.buffer == copied.buffer
}

/// Whether a write is on the other side of a test around the addition, and nothing asks the flag there.
fn other_side(view: &View<'_>, added: &Write, write: &Write, flag: &Guard<'_>) -> bool {
    let around = &view.steps[added.step].guards;
    let own = &view.steps[write.step].guards;
    let asked = view.through(flag.test);
    let apart = around[..around.len() - 1].iter().any(|g| own.iter().any(|o| o.at == g.at && o.holds != g.holds));
    // A side that refuses the flag asks it.
    let refuses = || {
        view.steps.iter().any(|step| match step.stmt {
            Stmt::Raise => step.guards.iter().any(|g| view.through(g.test).any(&mut |e| *e == asked)),
            Stmt::Assert { test } => view.through(test).any(&mut |e| *e == asked),
            _ => false,
        })
    };
    apart && !own.iter().any(|o| view.through(o.test).any(&mut |e| *e == asked)) && !refuses()
}

fn name(view: &View<'_>, expr: &Expr) -> Option<Name> {
    match expr {
        Expr::Local(local) => Some(view.local_name(*local).clone()),
        Expr::Item(base, _) => name(view, base),
        Expr::Attr(_, attr) => Some(attr.clone()),
        _ => None,
    }
}
