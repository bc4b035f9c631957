//! Handles that an object keeps and forgets, where what their collectives write is used afterwards. In: a method that puts the handle of a collective in
//! the background into a list of its object. Out: another method that empties the list, and goes on with the gradients that were to be reduced, where
//! nothing in the class waits for anything. Never: a list that anything else looks at, a class that others derive from, or a program that
//! synchronizes between the backward pass and the step. Source: torch.distributed, `async_op`. Next: `never_waited.rs`, lists of functions.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Until};
use super::near;
use super::never_waited::{is_in_front, settles};
use super::raw::{Sort, raw};
use super::view::View;
use crate::ir::{ArgKind, BuildKind, Item, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef};
use crate::source::Name;
use std::rc::Rc;

/// What may wait, or tells whether all has come.
const WAITS: &[&str] = &["wait", "synchronize(", "barrier(", "stream", "is_completed", "future", "coalesc", ".join("];

/// `self.handles.append(all_reduce(p.grad, async_op=True))`, and elsewhere `self.handles.clear()`, `p.grad.div_(n)`
pub fn cleared(view: &View<'_>, out: &mut Found) {
    let Some(class) = view.func.class.map(|class| ClassRef { module: view.at.module, class }) else { return };
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value } = step.stmt else { continue };
        let Some(call) = raw(view, value).filter(|c| c.is_async() && c.sort == Sort::Everyone) else { continue };
        let Some(gradient) = call.buffer.map(|b| view.expr(b)).and_then(|b| b.last_name().map(Name::from)) else {
            continue;
        };
        let Some(list) = kept_in(view, *dst).filter(|_| gradient.ends_with("grad")) else { continue };
        let own = near::bare(view.text(view.spot(view.project.class(class).span)));
        if near::has_any(&own, WAITS) || !is_forgotten(&own, &list) || is_seen_outside(view, class, &list) {
            return;
        }
        let Some(read) = gone_on(view, class, &list, &gradient) else { return };
        let launched = view.place(view.steps[i].id);
        let until = Until::End { read: Some(read) };
        out.push((launched, Practice::ReadInFlight { collective: call.name, launched, until, buffer: gradient }));
        return;
    }
}

/// The attribute of the own object to which a handle is added, alone or beside other things, and goes nowhere else.
fn kept_in(view: &View<'_>, handle: LocalId) -> Option<Name> {
    let [by] = view.readers(handle) else { return None };
    let (put, at) = match view.steps[*by].stmt {
        Stmt::Assign { dst, value: Rvalue::Build { kind: BuildKind::Tuple, items } } => match view.readers(*dst) {
            [put] if items.contains(&Item::One(Operand::Local(handle))) => (*dst, *put),
            _ => return None,
        },
        _ => (handle, *by),
    };
    let Some(Rvalue::CallMethod { base, name, args }) = view.value(at) else { return None };
    let added = |a: &crate::ir::Arg| a.kind == ArgKind::Positional && a.value == Operand::Local(put);
    let is_added = name == "append" && args.len() == 1 && args.iter().all(added);
    near::own_attribute(view, &view.expr(base)).filter(|_| is_added).cloned()
}

/// Whether a class does nothing with a list but to fill, count and empty it.
fn is_forgotten(class: &str, list: &str) -> bool {
    let name = format!("self.{}", list.to_lowercase());
    class.match_indices(&name).all(|(at, _)| {
        let (before, after) = (&class[..at], &class[at + name.len()..]);
        let other = after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let line = after.lines().next().unwrap_or_default();
        let emptied = line.split_once('=').is_some_and(|(kind, value)| {
            let is_kind = kind.trim().is_empty() || kind.trim_start().starts_with(':');
            let among_others =
                before.lines().next_back().is_some_and(|line| line.contains(',')) && value.ends_with("[]");
            is_kind && (among_others || matches!(value.trim(), "[]" | "list()" | "deque()"))
        });
        let counted = before.ends_with("len(") && after.starts_with(')');
        other || emptied || counted || [".append(", ".clear()"].iter().any(|used| after.starts_with(used))
    })
}

/// Whether anything outside of a class may look at a list of its objects, or derives from it.
pub(super) fn is_seen_outside(view: &View<'_>, class: ClassRef, list: &str) -> bool {
    let of = view.project.class(class);
    let attribute = format!(".{list}");
    let count = |text: &str| near::bare(text).matches(&attribute.to_lowercase()).count();
    let derived = format!("({}", of.name);
    let derives = |text: &str| {
        let heads = text.match_indices(&derived);
        heads.filter_map(|(at, _)| text[..at].rsplit('\n').next()).any(|line| line.trim_start().starts_with("class "))
    };
    count(view.file()) != count(view.text(view.spot(of.span)))
        || view.files.saying(&attribute).count() > 1
        || view.files.saying(&derived).any(|file| derives(view.files[file].whole()))
}

/// Where a method that empties the list goes on with the gradients, if nothing there or around its calls comes behind all that is under way.
fn gone_on(view: &View<'_>, class: ClassRef, list: &str, gradient: &str) -> Option<crate::source::Place> {
    let methods = view.project.class(class).methods.iter();
    let others = methods.map(|(_, func)| FuncRef { module: class.module, func: *func }).filter(|at| *at != view.at);
    for at in others {
        let other: Rc<View<'_>> = near::shared(view, at);
        let all = 0..other.steps.len();
        let Some(emptied) = all.clone().find(|s| other.func.name != "__init__" && empties(&other, *s, list)) else {
            continue;
        };
        if all.clone().any(|s| is_in_front(&other, s) || settles(&other, s))
            || is_settled_around(view, &other.func.name)
        {
            return None;
        }
        let reads = |s: &usize| {
            other.reads(*s).into_iter().any(|o| matches!(other.expr(o), Expr::Attr(_, name) if name == gradient))
                && matches!(
                    other.value(*s),
                    Some(Rvalue::CallMethod { .. } | Rvalue::InPlace { .. } | Rvalue::Binary { .. })
                )
        };
        if let Some(read) = all.clone().skip(emptied).find(reads).or_else(|| all.clone().find(reads)) {
            return Some(other.place(other.steps[read].id));
        }
    }
    None
}

/// `self.list.clear()` and `self.list = []`
fn empties(view: &View<'_>, step: usize, list: &str) -> bool {
    match view.steps[step].stmt {
        Stmt::SetAttr { base, name, .. } => name == list && near::is_self(view, base),
        Stmt::Assign { value: Rvalue::CallMethod { base, name, .. }, .. } => {
            name == "clear" && near::own_attribute(view, &view.expr(base)).is_some_and(|own| own == list)
        }
        _ => false,
    }
}

/// Whether a file that calls a method waits for everything between the backward pass before the call and the step after it.
fn is_settled_around(view: &View<'_>, method: &str) -> bool {
    let call = format!(".{method}(");
    let lower = call.to_lowercase();
    view.files.saying(&call).any(|file| {
        let text = near::bare(view.files[file].whole());
        text.match_indices(&lower).any(|(at, _)| {
            let from = text[..at].rfind("backward(").unwrap_or_default();
            let end = text[at..].find("step(").map_or(text.len(), |end| at + end);
            near::has_any(&text[from..end], &["wait(", "synchronize(", "barrier("])
        })
    })
}
