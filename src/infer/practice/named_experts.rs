//! Variables that are called experts and hold for the others. In: a function. Out: `is_expert = getattr(p, "allreduce", False)`, a mark that
//! is true on parameters that all ranks have alike, and false on those of experts. Never: a mark that names experts itself, or a variable
//! whose name says that it is about the others. Next: `unused_group.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::unused_group::asks_expert;
use super::view::View;
use crate::ir::Stmt;

/// Parts of names of what belongs to experts.
const EXPERTS: &[&str] = &["expert", "experts", "ep", "moe"];

/// Parts of names of what does not.
const OTHERS: &[&str] = &["not", "non", "no", "dense", "shared", "without"];

/// `is_expert = getattr(p, "allreduce", False)`
pub fn kept(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, .. } = step.stmt else { continue };
        let name = view.local_name(*dst);
        let any = |words: &[&str]| words.iter().any(|word| near::has_part(name, word));
        if view.is_temp(*dst) || !any(EXPERTS) || any(OTHERS) || !says_so(name) || view.defs(*dst).len() != 1 {
            continue;
        }
        let value = view.bound(i, *dst);
        let reads = value.any(&mut |e| matches!(e, Expr::Call { callee, .. } if callee.last_name() == Some("getattr")));
        let Some((mark, false)) = asks_expert(view, &value, true).filter(|_| reads) else { continue };
        let mistake = Membership::NamedOtherwise { variable: name.clone(), mark };
        out.push((view.place(step.id), Practice::Membership(mistake)));
    }
}

/// Whether a name says of something that it is an expert's, and nothing else: `is_expert`, `expert`.
fn says_so(name: &str) -> bool {
    let lower = name.to_lowercase();
    lower.starts_with("is_") || lower.split('_').all(|part| EXPERTS.contains(&part) || part.starts_with("param"))
}
