//! Results of reductions in the background that one loop copies out before another one waits. In: a function with two loops over the same list. Out: a read of what is kept beside a
//! handle, in the first, where the second calls `wait()` on the handle; a function of the file has put the buffer and the handle of one collective into the list
//! under these names. Never: a first loop that waits, or a buffer by another name. Source: torch.distributed, `Work.wait`. Next: `in_flight.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::raw::raw;
use super::unshared::Unshared;
use super::view::View;
use crate::ir::{Operand, Rvalue, Stmt};
use crate::source::{Name, Span};

/// `for item in pending: grad.copy_(item.flat)`, then `for item in pending: item.handle.wait()`
pub fn copied(view: &View<'_>, out: &mut Found) {
    let loops: Vec<(usize, Expr)> = (0..view.steps.len())
        .filter_map(|at| match view.steps[at].stmt {
            Stmt::For { iter, .. } => Some((at, view.expr(iter))),
            _ => None,
        })
        .collect();
    for (n, (first, over)) in loops.iter().enumerate() {
        let Some((second, _)) = loops[n + 1..].iter().find(|(_, other)| other == over && *over != Expr::Unknown) else {
            continue;
        };
        let inside = |at: usize, head: usize| view.steps[at].loops.contains(&head);
        let all = 0..view.steps.len();
        let waits = |at: usize| match view.value(at) {
            Some(Rvalue::CallMethod { base, name, .. }) if name == "wait" => beside(view, base, over),
            _ => None,
        };
        if waits_before(view, *first, *second) {
            continue;
        }
        let Some((waited, handle)) =
            all.clone().find_map(|at| inside(at, *second).then(|| waits(at)).flatten().map(|h| (at, h)))
        else {
            continue;
        };
        let read = all.clone().find_map(|at| {
            let reads = view.reads(at).into_iter().filter_map(|o| beside(view, o, over));
            let buffer = reads.into_iter().find(|name| *name != handle && put_together(view, name, &handle))?;
            inside(at, *first).then_some(buffer)
        });
        let Some(buffer) = read else { continue };
        let copies = |at: &usize| matches!(view.value(*at), Some(Rvalue::CallMethod { name, .. }) if name == "copy_");
        let Some(copied) = all.clone().find(|s| inside(*s, *first) && copies(s)) else { continue };
        let waited = view.place(view.steps[waited].id);
        out.push((
            view.place(view.steps[copied].id),
            Practice::Unshared(Unshared::ReadInLoop { read: buffer, handle, waited }),
        ));
        return;
    }
}

/// The attribute of an element of what is gone through that an operand is.
fn beside(view: &View<'_>, operand: &Operand, over: &Expr) -> Option<Name> {
    match view.through(operand) {
        Expr::Attr(of, name) => {
            let element = match &*of {
                Expr::Local(local) => {
                    view.defs(*local).iter().any(|d| view.bound(*d, *local) == Expr::Element(Box::new(over.clone())))
                }
                Expr::Element(inner) => **inner == *over,
                _ => false,
            };
            element.then_some(name)
        }
        _ => None,
    }
}

/// Whether anything up to the second loop waits, or is given an element or the list as a whole, which it may wait for.
fn waits_before(view: &View<'_>, first: usize, second: usize) -> bool {
    let start = view.func.span.start;
    let end = view.place(view.steps[second].id).span.start;
    let text = near::bare(view.text(view.spot(Span::new(start, end.max(start)))));
    let Stmt::For { iter, .. } = view.steps[first].stmt else { return true };
    let list = view.name_of(&view.expr(iter)).unwrap_or_default().to_lowercase();
    let items = view.binds(first).iter().map(|l| view.local_name(*l).to_lowercase()).collect::<Vec<_>>();
    let whole = |name: &str| {
        [format!("({name})"), format!("({name},"), format!(", {name})"), format!(", {name},")]
            .iter()
            .any(|t| text.contains(t.as_str()))
    };
    let given_list = !list.is_empty() && near::has_any(&text, &[format!("{list})"), format!("{list},")]);
    near::has_any(&text, &["wait", "sync"]) || items.iter().any(|name| whole(name)) || given_list
}

/// Whether a function of the file gives one call both the buffer of a collective in the background, by this name, and its handle.
fn put_together(view: &View<'_>, buffer: &str, handle: &str) -> bool {
    near::functions(view, view.at.module).into_iter().any(|at| {
        let other = near::shared(view, at);
        let started = (0..other.steps.len()).find_map(|step| {
            let call = raw(&other, other.value(step)?).filter(|call| call.is_async())?;
            let Stmt::Assign { dst, .. } = other.steps[step].stmt else { return None };
            Some((*dst, near::local(call.buffer?)?))
        });
        started.is_some_and(|(kept, written)| {
            // A property may wait.
            let computed = view.file().contains(&format!("def {buffer}("));
            let named = !computed
                && other.local_name(written) == buffer
                && (other.local_name(kept) == handle || handle.contains("handle") || handle.contains("work"));
            named
                && other.steps.iter().any(|step| match step.stmt {
                    Stmt::Assign { value: Rvalue::Call { args, .. }, .. } => {
                        let given = |l| args.iter().any(|a| near::local(&a.value) == Some(l));
                        given(kept) && given(written)
                    }
                    _ => false,
                })
        })
    })
}
