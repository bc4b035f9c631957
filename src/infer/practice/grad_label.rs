//! Gradients that are labelled as their activation. In: a method that wraps what another method of the class has collected. Out: local parts of
//! gradients, wrapped by `DTensor.from_local` with the placements of another tensor: the gradient of a replicated tensor may be a pending sum.
//! Never: gradients that are redistributed, or whose own placements are asked for. Source: torchtitan 3412; torch.distributed.tensor,
//! `DTensor.from_local`: the placements are believed. Next: `own_rows.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::near;
use super::view::View;
use crate::ir::{ClassId, LocalId, Rvalue, Stmt};
use crate::source::{Name, Place};

/// `self.placements = activation.placements`, `buffer.copy_(grad.to_local())`, `DTensor.from_local(buffer, mesh, self.placements)`
pub fn wrapped(view: &View<'_>, out: &mut Found) {
    let Some(class) = view.func.class else { return };
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            continue;
        };
        if !view.callee(value).is_some_and(|path| path.ends_with("DTensor.from_local")) {
            continue;
        }
        let attribute = |at, name| {
            let given = view.expr(view.argument(args, at, name)?);
            near::own_attribute(view, &given).cloned()
        };
        let (Some(buffer), Some(placements)) = (attribute(0, "local_tensor"), attribute(2, "placements")) else {
            continue;
        };
        let Some((reference, kept)) = kept(view, class, &placements) else { continue };
        let Some((gradient, taken)) = collected(view, class, &buffer) else { continue };
        if gradient != reference {
            let mistake = Placements::LabelledAs { gradient, reference, kept, taken };
            out.push((view.place(step.id), Practice::Placements(mistake)));
        }
    }
}

/// Whose placements an attribute has, and where it gets them: those of one argument, and nothing else but None.
fn kept(view: &View<'_>, class: ClassId, attribute: &str) -> Option<(Name, Place)> {
    let mut found = None;
    for (method, at, value) in near::assigned(view, class, attribute) {
        match method.through(value) {
            e if e.is_none() => {}
            Expr::Attr(base, name) if name == "placements" => match *base {
                Expr::Local(l) if method.is_param(l) && found.is_none() => {
                    found = Some((method.local_name(l).clone(), method.place(method.steps[at].id)));
                }
                _ => return None,
            },
            _ => return None,
        }
    }
    found
}

/// The gradient that a method of the class is given, of whose local part it writes a buffer, and where it takes that part.
fn collected(view: &View<'_>, class: ClassId, buffer: &str) -> Option<(Name, Place)> {
    near::methods(view, class).iter().find_map(|method| {
        let param = method.func.params.iter().find(|p| near::has_part(&p.name, "grad"))?;
        let own = |e: &Expr| e.any(&mut |e| near::own_attribute(method, e).is_some_and(|name| name == buffer));
        let writes = (0..method.steps.len()).any(|s| match (method.steps[s].stmt, method.value(s)) {
            (Stmt::SetItem { base, .. }, _) => own(&method.through(base)),
            (_, Some(Rvalue::CallMethod { base, name, .. })) => {
                name == "copy_" && own(&near::deep(method, &method.expr(base)))
            }
            _ => false,
        });
        let asks = ["placements", "redistribute", "full_tensor"].iter().any(|word| method.code().contains(word));
        let taken = (0..method.steps.len()).find(|s| takes_local(method, *s, param.local))?;
        (writes && !asks).then(|| (param.name.clone(), method.place(method.steps[taken].id)))
    })
}

fn takes_local(method: &View<'_>, step: usize, gradient: LocalId) -> bool {
    matches!(method.value(step), Some(Rvalue::CallMethod { base, name, .. }) if name == "to_local" && near::local(base) == Some(gradient))
}
