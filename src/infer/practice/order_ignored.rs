//! Orders of parts that one function asks for and its inverse does not. In: a function that gathers and puts parts in another order. Out: a
//! parameter that it never reads, and by which another function of the file decides in which order it cuts. Never: a parameter that nothing
//! else tests. Source: ms-swift, pull request 10071. Next: `switch.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::view::View;
use crate::ir::{FuncKind, Param, ParamKind};
use crate::source::Place;

/// Parts of names of parameters that say in which order parts lie.
pub const ORDERS: &[&str] =
    &["mode", "order", "layout", "zigzag", "striped", "balanc", "partition", "contiguous", "interleav"];

/// What puts parts in another order.
pub const TURNS: &[&str] = &["reversed(", ".flip(", "torch.flip(", "[::-1]", ".flipud("];

/// `def join(parts, mode)` that reverses every second part beside `def cut(x, mode)` with `if mode == "contiguous"`
pub fn orders(view: &View<'_>, out: &mut Found) {
    if view.func.kind != FuncKind::Function || !near::has_any(view.code(), TURNS) {
        return;
    }
    let named = |p: &&Param| {
        let plain = matches!(p.kind, ParamKind::Normal | ParamKind::KeywordOnly | ParamKind::PositionalOnly);
        plain && near::has_any(&p.name.to_lowercase(), ORDERS) && !view.is_read(p.local)
    };
    let Some(unread) = view.func.params.iter().find(named) else { return };
    if !view.collectives().iter().any(|(_, call)| call.rule.op == "all_gather") {
        return;
    }
    let others = near::functions(view, view.at.module).into_iter().filter(|at| *at != view.at);
    let decided = others.map(|at| near::shared(view, at)).any(|other| cuts_by(&other, unread));
    let Some(turned) = turned(view).filter(|_| decided) else { return };
    let (owner, switch) = (view.func.name.clone(), unread.name.clone());
    let place = Place { span: unread.span, ..turned };
    out.push((place, Practice::IgnoredSwitch { owner, switch, runs: vec![turned] }));
}

/// Whether a function cuts what it is given, in an order that a parameter of the same name decides.
fn cuts_by(other: &View<'_>, unread: &Param) -> bool {
    let Some(param) = other.func.params.iter().find(|p| p.name == unread.name) else { return false };
    let tests = |e: &Expr| *e == Expr::Local(param.local);
    let decides = |guard: &super::view::Guard<'_>| near::deep(other, &other.through(guard.test)).any(&mut |e| tests(e));
    let cuts = near::has_any(other.code(), &["chunk(", "split(", "narrow(", "index_select("]);
    cuts && other.steps.iter().any(|step| step.guards.iter().any(decides))
}

/// The step that puts parts in another order, or the first that takes gathered ones apart.
fn turned(view: &View<'_>) -> Option<Place> {
    let (gathered, _) = view.collectives().iter().find(|(_, call)| call.rule.op == "all_gather")?;
    (*gathered + 1..view.steps.len()).map(|at| view.place(view.steps[at].id)).find(|place| {
        let text = view.text(*place);
        near::has_any(text, &["chunk(", "split(", "unbind("]) || near::has_any(text, TURNS)
    })
}
