//! Tests for flat parameters that no parameter passes. In: a function that reduces gradients by hand. Out: a test of the parameters of a model for
//! flat ones, where the only wrapper in the file keeps the original parameters: the gradients of shards are taken for whole ones. Never: a file
//! in which the choice is a variable, or a wrapper that may keep flat parameters.
//! Source: torch.distributed.fsdp.FullyShardedDataParallel, `use_orig_params`: the parameters of the module are the original ones.
//! Next: `flat_unchanged.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::omissions::Omission;
use super::view::View;
use crate::ir::{LocalId, Stmt, UnOp};
use crate::source::Span;

const FLAT: &str = "FlatParameter";
const KEEPS: &str = "use_orig_params=";

/// `if not isinstance(p, FlatParameter): grads.append(p.grad)`, and `FSDP(model, use_orig_params=True)` in the file.
pub fn tested(view: &View<'_>, out: &mut Found) {
    let file = view.file();
    let chosen = || file.match_indices(KEEPS).map(|(at, _)| (at, file[at + KEEPS.len()..].starts_with("True")));
    let Some((first, _)) = chosen().next() else { return };
    // Another wrapper in the file keeps flat parameters unless it says so.
    let wrappers = ["FullyShardedDataParallel(", "FSDP("].iter().map(|w| file.matches(w).count()).sum::<usize>();
    if !chosen().all(|(_, on)| on) || wrappers > chosen().count() || !view.code().contains(".parameters()") {
        return;
    }
    // The gradients of all parameters may be meant: those of replicas, or of one part of the model.
    let of_all = view.code().contains("model.parameters()") || view.code().contains("module.parameters()");
    if view.code().contains("repl") || !of_all {
        return;
    }
    for step in &view.steps {
        let Stmt::If { test, .. } = step.stmt else { continue };
        let test = view.expr(test);
        let Some(parameter) = not_flat(&test).filter(|_| view.code().contains(".grad")) else { continue };
        let wrapped = view.spot(Span::new(first as u32, (first + KEEPS.len() + "True".len()) as u32));
        let parameter = view.local_name(parameter).clone();
        out.push((view.part(step.id, 0), Practice::Omission(Omission::NeverFlat { parameter, wrapped })));
        return;
    }
}

/// The variable of which a test asks, among others, that it be no flat parameter.
fn not_flat(test: &Expr) -> Option<LocalId> {
    match test {
        // Another test may tell the parameters apart.
        Expr::Bool { and: true, of } => of
            .iter()
            .filter(|e| not_flat(e).is_none())
            .all(says_of_gradient)
            .then(|| of.iter().find_map(not_flat))
            .flatten(),
        Expr::Unary(UnOp::Not, inner) => match inner.call_of("isinstance")? {
            [(_, Expr::Local(of)), (_, class)] if class.last_name() == Some(FLAT) => Some(*of),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a test asks for no more than that there is a gradient.
fn says_of_gradient(test: &Expr) -> bool {
    let named = |e: &Expr| matches!(e, Expr::Attr(_, name) if name == "grad" || name == "requires_grad");
    named(test) || matches!(test, Expr::Compare(_, of, with) if named(of) && with.is_none())
}
