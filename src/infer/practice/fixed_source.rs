//! Ranks of the whole program in calls over some of them. In: a function. Out: a collective over the ranks of an axis that starts at, or
//! ends on, rank 0 of all ranks: that rank is in one of the groups only. Never: a group that is not known by its getter.
//! Next: `own_group.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::near;
use super::view::View;
use crate::ir::{Const, Rvalue};
use crate::rules::{Entry, Gives};

/// Arguments that are a rank of all ranks.
const ROOTS: &[&str] = &["src", "dst"];

/// `broadcast(x, src=0, group=get_tensor_model_parallel_group())`
pub fn roots(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            continue;
        };
        let Some(path) = view.callee(value) else { continue };
        let Some(Entry::Intrinsic(rule)) = view.rules.get(&path) else { continue };
        if rule.does != "rooted-collective" {
            continue;
        }
        let given = |name: &str| rule.args.index(name).and_then(|at| view.argument(args, at, name));
        let fixed = ROOTS.iter().find_map(|r| given(r)).map(|o| near::deep(view, &view.expr(o)));
        let Some(group) = given("group") else { continue };
        if fixed != Some(Expr::Const(Const::Int(0))) {
            continue;
        }
        let Expr::Call { callee, args, .. } = near::deep(view, &view.expr(group)) else { continue };
        let Some(getter) = near::path(view, &callee).filter(|_| args.is_empty()) else { continue };
        let Some(Entry::Group(known)) = view.rules.get(&getter) else { continue };
        if known.gives != Gives::Group || known.axes.is_empty() {
            continue;
        }
        let collective = super::lost::last(&path);
        let mistake = Scales::FixedRoot { collective, group: known.axes.clone() };
        out.push((view.place(step.id), Practice::Scales(mistake)));
    }
}
