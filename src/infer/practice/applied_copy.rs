//! Results of autograd functions that are thrown away. In: a function. Out: a call for its effect on an argument, of which the forward makes a
//! copy before a collective writes into it. Never: an argument that is not read afterwards. Next: `lost.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::lost::{is_read_later, last};
use super::membership::Membership;
use super::near;
use super::view::View;
use crate::ir::{ArgKind, LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, Resolved};
use crate::source::Name;

/// Methods that may give a copy.
const MAY_COPY: &[&str] = &["contiguous", "clone"];

/// `Scatter.apply(out, parts)` as a statement, where the forward writes into `out.contiguous()`.
pub fn written(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value: value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) } =
            step.stmt
        else {
            continue;
        };
        if view.func.locals()[*dst].kind != LocalKind::Temp || !view.readers(*dst).is_empty() {
            continue;
        }
        let Some((path, _)) = view.ruled(value) else { continue };
        let Some(class) = path.strip_suffix(".apply") else { continue };
        let Resolved::Class(at) = view.project.path(class) else { continue };
        let Some(position) = copied(view, at) else { continue };
        let plain = args.iter().take(position + 1).all(|a| a.kind == ArgKind::Positional);
        let Some(Operand::Local(given)) = args.get(position).map(|a| &a.value).filter(|_| plain) else { continue };
        if view.is_temp(*given) || !is_read_later(view, &Expr::Local(*given), i) {
            continue;
        }
        let function = Name::from(format!("{}.apply", last(&Name::from(class))));
        let mistake = Membership::CopyWritten { function, value: view.local_name(*given).clone() };
        out.push((view.place(step.id), Practice::Membership(mistake)));
    }
}

/// The argument of `apply` of which the forward makes a copy that a collective writes into.
fn copied(view: &View<'_>, at: ClassRef) -> Option<usize> {
    let class = view.project.class(at);
    let (_, func) = class.methods.iter().find(|(name, _)| name == "forward")?;
    let forward = near::other(view, FuncRef { module: at.module, func: *func });
    forward.collectives().iter().find_map(|(_, call)| {
        let Operand::Local(buffer) = call.output.or(call.input)? else { return None };
        let given = forward.defs(*buffer).iter().find_map(|d| copy_of(&forward, *d))?;
        forward.func.params.iter().position(|p| p.local == given)?.checked_sub(1)
    })
}

/// The variable of which a step makes a copy.
fn copy_of(view: &View<'_>, step: usize) -> Option<LocalId> {
    match view.value(step)? {
        Rvalue::Use(from @ Operand::Local(local)) if view.is_temp(*local) => copy_of(view, view.source(from)?.0),
        Rvalue::CallMethod { base: Operand::Local(of), name, .. } if MAY_COPY.contains(&name.as_str()) => Some(*of),
        _ => None,
    }
}
