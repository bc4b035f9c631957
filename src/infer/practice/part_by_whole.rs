//! Sizes of this rank's part that are divided by a number of the whole model. In: a constructor. Out: a quotient of an attribute that was divided
//! by the number of ranks, and of a count of which the constructor keeps this rank's part as well: groups, or heads, come out too small by
//! the number of ranks. Never: a count of which a part is kept under a condition, as of key heads that ranks may share, or that is bound anew.
//! Source: state-spaces/mamba, pull request 951. Next: `sequence_divided.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::slips::Slip;
use super::view::View;
use crate::ir::{BinOp, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};

/// Parts of names of numbers of ranks that weights are split over.
const RANKS: &[&str] = &["world", "tp", "mp", "size", "ranks", "parallel"];

/// Numbers of ranks in the text of a constructor.
pub const COUNTS: &[&str] = &["world_size", "tp_size", "mp_size", "parallel_size"];

/// What this rank has of something: the attribute, the whole, and the step.
struct Part {
    name: Name,
    whole: Expr,
    ranks: Expr,
    made: Place,
}

/// `self.groups = groups // n` and `self.width = width // n` beside `self.width // groups`
pub fn quotients(view: &View<'_>, out: &mut Found) {
    if view.func.name != "__init__" {
        return;
    }
    let parts: Vec<Part> = (0..view.steps.len()).filter_map(|at| part(view, at)).collect();
    if parts.len() < 2 {
        return;
    }
    for at in 0..view.steps.len() {
        let Some(Rvalue::Binary { op: BinOp::FloorDiv | BinOp::Div, left, right }) = view.value(at) else { continue };
        let (Some(own), by) = (kept(view, left), view.through(right)) else { continue };
        let Some(of) = parts.iter().find(|p| p.name == own && p.whole != by) else { continue };
        let Some(other) = parts.iter().find(|p| p.whole == by && p.ranks == of.ranks && p.name != own) else {
            continue;
        };
        if scaled(view, at) {
            continue;
        }
        let Some(whole) = view.name_of(&by).map(Name::from) else { continue };
        let (part, local) = (of.name.clone(), other.name.clone());
        let found = Slip::PartByWhole { part, whole, local, divided: of.made, kept: other.made };
        out.push((view.place(view.steps[at].id), Practice::Slips(found)));
        return;
    }
}

/// The attribute of the object that an operand is, as it is read or as a variable that goes into it alone.
fn kept(view: &View<'_>, operand: &Operand) -> Option<Name> {
    near::own_attribute(view, &view.expr(operand)).cloned()
}

/// `self.groups = groups // n`, whatever else holds, where groups are what the constructor is given or an attribute of that.
fn part(view: &View<'_>, at: usize) -> Option<Part> {
    let step = &view.steps[at];
    let Stmt::SetAttr { base, name, value } = step.stmt else { return None };
    // What stands behind an assertion holds nonetheless.
    let asserted = |g: &super::view::Guard<'_>| view.text(view.place(g.at)).starts_with("assert");
    if !near::is_self(view, base) || !step.guards.iter().all(asserted) || !step.loops.is_empty() {
        return None;
    }
    let Expr::Binary(BinOp::FloorDiv, whole, ranks) = view.through(value) else { return None };
    let set = |s: &&super::view::Step<'_>| matches!(s.stmt, Stmt::SetAttr { name: other, .. } if other == name);
    let once = view.steps.iter().filter(set).count() == 1;
    (once && counts_ranks(view, &ranks)).then(|| Part {
        name: name.clone(),
        whole: *whole,
        ranks: near::deep(view, &ranks),
        made: view.place(step.id),
    })
}

/// Whether an expression is a number of ranks by its name, or asks a group for it.
fn counts_ranks(view: &View<'_>, ranks: &Expr) -> bool {
    let named = |name: &str| RANKS.iter().any(|part| near::has_part(name, part));
    match ranks {
        Expr::Call { callee, .. } => callee.last_name().is_some_and(named),
        other => view.name_of(other).is_some_and(|name| {
            named(name) && near::has_any(name, &["world", "tp", "mp", "parallel", "ranks"]) && !name.contains("rank_")
        }),
    }
}

/// Whether a quotient is multiplied with something that makes up for it.
fn scaled(view: &View<'_>, at: usize) -> bool {
    let Stmt::Assign { dst, .. } = view.steps[at].stmt else { return false };
    view.readers(*dst).iter().any(|reader| {
        matches!(
            view.value(*reader),
            Some(Rvalue::Binary { op: BinOp::Mul, .. } | Rvalue::InPlace { op: BinOp::Mul, .. })
        )
    })
}
