//! Comparisons that say something else than was meant. In: a function. Out: `n := size() > 1`, which binds whether there are several and is
//! computed with; a test `a == x or B` with a constant for what was to be compared as well. Never: a name that does not say that it is a
//! number, a comparison that is not computed with, or a constant that may be false. Source: NeMo `get_batch_on_this_context_parallel_rank`;
//! Python, 6.3 and 6.11: `:=` binds last, and a value that is no zero and not empty is true. Next: `nones.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::slips::Slip;
use super::view::View;
use crate::ir::{Arg, BinOp, CmpOp, Const, LocalId, Rvalue, Stmt};
use crate::project::Resolved;
use crate::source::{Name, Place};

/// Endings of names of numbers.
pub const NUMBERS: &[&str] = &["size", "rank", "ranks", "degree", "count", "num", "len", "length"];
/// Functions and methods that take sizes.
const SIZED: &[&str] =
    &["view", "reshape", "chunk", "split", "tensor_split", "range", "arange", "narrow", "repeat", "expand"];
/// Words of tests that tell ranks apart, in lowercase.
pub const TELLS: &[&str] = &["rank", "world_size", "parallel", "group"];

/// `if cp_size := get_context_parallel_world_size() > 1: x.view(2 * cp_size, -1)`
pub fn bound(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value: Rvalue::Compare { op, left, .. } } = step.stmt else { continue };
        let number = |name: &str| near_end(name, NUMBERS);
        let asks = ["is_", "has_", "use_", "multi_"].iter().any(|start| view.local_name(*dst).starts_with(start));
        if asks || view.is_temp(*dst) || view.defs(*dst).len() != 1 || !number(view.local_name(*dst)) {
            continue;
        }
        let orders = matches!(op, CmpOp::Gt | CmpOp::Ge | CmpOp::Lt | CmpOp::Le | CmpOp::Ne | CmpOp::Eq);
        let calls = matches!(view.through(left), Expr::Call { .. });
        let Some(used) = computed_with(view, *dst, i).filter(|_| orders && calls && is_walrus(view, i)) else {
            continue;
        };
        let slip = Slip::ComparisonBound { name: view.local_name(*dst).clone(), used };
        out.push((view.place(step.id), Practice::Slips(slip)));
    }
}

fn near_end(name: &str, words: &[&str]) -> bool {
    name.to_lowercase().rsplit('_').next().is_some_and(|last| words.contains(&last))
}

/// Whether a step binds in the midst of an expression: before it on its line stands `:=`.
fn is_walrus(view: &View<'_>, step: usize) -> bool {
    let place = view.place(view.steps[step].id);
    let text = view.files[place.file].whole();
    let own = view.text(place);
    // An assignment of what another one binds is none.
    let inside = own.split_once(":=").is_some_and(|(before, _)| !before.contains(['(', '=']));
    text[..place.span.start as usize].trim_end().ends_with(":=") || inside
}

/// Where a variable is an operand of a product or a quotient, or a size.
fn computed_with(view: &View<'_>, local: LocalId, from: usize) -> Option<Place> {
    let is = |o: &crate::ir::Operand| near::local(o) == Some(local);
    let used = view.readers(local).iter().find(|s| {
        **s > from
            && match view.value(**s) {
                Some(Rvalue::Binary { op, left, right } | Rvalue::InPlace { op, left, right }) => {
                    let arithmetic =
                        matches!(op, BinOp::Mul | BinOp::Div | BinOp::FloorDiv | BinOp::Mod | BinOp::Add | BinOp::Sub);
                    arithmetic && (is(left) || is(right))
                }
                Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) => {
                    let named = |path: Name| SIZED.contains(&super::lost::last(&path).as_str());
                    view.callee(value).is_some_and(named) && args.iter().any(|a: &Arg| is(&a.value))
                }
                _ => false,
            }
    })?;
    Some(view.place(view.steps[*used].id))
}

/// `if mode == get_mode() or Mode.DATA`
pub fn always_holds(view: &View<'_>, out: &mut Found) {
    for step in &view.steps {
        let Stmt::If { test, .. } = step.stmt else { continue };
        let Expr::Bool { and: false, of } = view.expr(test) else { continue };
        let Some((constant, compared)) = of.split_last() else { continue };
        let compares = compared.iter().any(|e| matches!(e, Expr::Compare(CmpOp::Eq | CmpOp::Ne, ..)) || is_chain(e));
        // `rank == 0 or 1`: a number behind something else switches a test off on purpose.
        let number = |e: &Expr| matches!(e, Expr::Const(Const::Int(_)));
        let numbers = compared.iter().any(|e| matches!(e, Expr::Compare(_, _, with) if number(with)));
        let alike = !number(constant) || numbers;
        let Some(constant) = is_true(view, constant).filter(|_| compares && alike) else { continue };
        let place = view.part(step.id, 0);
        let text = view.text(place).to_lowercase();
        if near::has_any(&text, TELLS) {
            out.push((place, Practice::Slips(Slip::AlwaysHolds { constant })));
        }
    }
}

/// `a == b == c`
fn is_chain(expr: &Expr) -> bool {
    matches!(expr, Expr::Bool { and: true, of } if of.iter().all(|e| matches!(e, Expr::Compare(CmpOp::Eq | CmpOp::Ne, ..))))
}

/// A constant that is true: a member of an enumeration by its name, or a text.
fn is_true(view: &View<'_>, expr: &Expr) -> Option<Name> {
    match expr {
        Expr::Const(Const::Str(text)) if !text.is_empty() => Some(Name::from(format!("\"{text}\""))),
        Expr::Const(Const::Int(number)) if *number != 0 => Some(Name::from(number.to_string())),
        Expr::Path(path) => {
            let (owner, member) = path.rsplit_once('.')?;
            let shown = Name::from(format!("{}.{member}", owner.rsplit('.').next().unwrap_or(owner)));
            (is_constant(member) && is_enumeration(view, owner)).then_some(shown)
        }
        _ => None,
    }
}

fn is_constant(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// Whether a path is an enumeration whose members are true whatever their value.
fn is_enumeration(view: &View<'_>, path: &str) -> bool {
    let Resolved::Class(at) = view.project.path(path) else { return false };
    let span = view.project.class(at).span;
    let text = view.files[view.project.file(at.module)].slice(span);
    let head = text.split_once(':').map_or(text, |(head, _)| head);
    head.contains("Enum") && !head.contains("IntEnum") && !head.contains("Flag") && !text.contains("__bool__")
}
