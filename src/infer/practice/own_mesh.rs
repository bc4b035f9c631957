//! Reductions that leave out a mesh for distributed tensors. In: a function that reduces what it is given over a mesh or group that it is
//! given. Out: a branch for distributed tensors that returns `full_tensor()`, which reduces over the mesh of the tensor alone. Never: a branch
//! that goes on to the reduction, or that asks what mesh the tensor has, or a file
//! that makes distributed tensors. Source: torch.distributed.tensor, `DTensor.full_tensor`;
//! torchtitan 3313. Next: `group_argument.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::slips::Slip;
use super::view::View;
use crate::ir::{Operand, Stmt};

/// `if isinstance(x, DTensor): return x.full_tensor()`, then `return funcol.all_reduce(x, op, group=mesh)`
pub fn left_out(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Return { value } = step.stmt else { continue };
        let Some(guard) = step.guards.last().filter(|g| g.holds) else { continue };
        let Some(tensor) = distributed(view, guard.test) else { continue };
        let whole = |e: &Expr| match e {
            Expr::Call { callee, args, .. } if args.is_empty() => {
                matches!(&**callee, Expr::Attr(base, name) if name == "full_tensor" && **base == tensor)
            }
            _ => false,
        };
        if !near::deep(view, &view.expr(value)).any(&mut |e| whole(e)) {
            continue;
        }
        let inside = |s: usize| view.steps[s].guards.iter().any(|g| g.at == guard.at && g.holds);
        let over = view.collectives().iter().find_map(|(at, call)| {
            let group = near::local(call.group?)?;
            let same = call.input.is_some_and(|o| view.expr(o) == tensor);
            (!inside(*at) && same && view.is_param(group) && *at > i).then_some((*at, group))
        });
        let Some((at, group)) = over else { continue };
        // A file that makes distributed tensors knows their mesh.
        if near::has_any(view.file(), &["from_local(", "distribute_tensor("]) {
            return;
        }
        if view.readers(group).iter().any(|s| inside(*s)) || near::code(view, view.func.span).contains(".device_mesh") {
            continue;
        }
        let mistake = Slip::MeshLeftOut {
            function: view.func.name.clone(),
            group: view.local_name(group).clone(),
            reduced: view.place(view.steps[at].id),
        };
        out.push((view.place(step.id), Practice::Slips(mistake)));
    }
}

/// What a test asks to be a distributed tensor.
fn distributed(view: &View<'_>, test: &Operand) -> Option<Expr> {
    let asked = view.through(test);
    let [(_, of), (_, class)] = asked.call_of("isinstance")? else { return None };
    class.last_name().is_some_and(|name| name == "DTensor").then(|| of.clone())
}
