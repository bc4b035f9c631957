//! Gradients that are labelled as their activation. In: a method that wraps what another method of the class has collected. Out: local parts of
//! gradients, wrapped by `DTensor.from_local` with the placements of another tensor: the gradient of a replicated tensor may be a pending sum.
//! Never: gradients that are redistributed, or whose own placements are asked for. Source: torchtitan 3412; torch.distributed.tensor,
//! `DTensor.from_local`: the placements are believed. Next: `own_rows.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::near;
use super::view::View;
use crate::ir::{Arg, ClassId, LocalId, Rvalue, Stmt};
use crate::project::ClassRef;
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
        if let Some(mistake) = listed(view, class, (i, args)) {
            let given = view.argument(args, 2, "placements");
            let at = args.iter().position(|a| given.is_some_and(|given| std::ptr::eq(given, &a.value)));
            let place = at.map_or(view.place(step.id), |at| view.part(step.id, at + 1));
            out.push((place, Practice::Placements(mistake)));
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

/// `DTensor.from_local(torch.cat([g.to_local() for g in self.chunk_grads]), mesh, self.reference.placements)`, where another method puts
/// each gradient into the list.
fn listed<'a>(view: &View<'a>, class: ClassId, (step, args): (usize, &'a [Arg])) -> Option<Placements> {
    let Expr::Attr(of, last) = view.through(view.argument(args, 2, "placements")?) else { return None };
    let reference = near::own_attribute(view, &of).filter(|_| last == "placements")?;
    let whole = view.text(view.spot(view.project.class(ClassRef { module: view.at.module, class }).span));
    let file = view.file();
    let asks = ["redistribute", "full_tensor"].iter().any(|word| file.contains(word));
    if asks || whole.matches(".placements").count() != 1 || has_grad(reference) {
        return None;
    }
    let text = view.text(view.place(view.steps[step].id));
    let (_, rest) = text.split_once(" in self.")?;
    let list = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|list| has_grad(list))?;
    let set = near::assigned(view, class, reference);
    let [(method, at, value)] = set.as_slice() else { return None };
    let Expr::Local(given) = method.through(value) else { return None };
    if !method.is_param(given) || !method.defs(given).is_empty() {
        return None;
    }
    let kept = method.place(method.steps[*at].id);
    let (gradient, taken) = put_into(view, class, list)?;
    let reference = method.local_name(given).clone();
    (text.contains(".to_local()") && !has_grad(&reference)).then_some(Placements::LabelledAs {
        gradient,
        reference,
        kept,
        taken,
    })
}

fn has_grad(name: &str) -> bool {
    ["grad", "grads", "gradient", "gradients"].iter().any(|part| near::has_part(name, part))
}

/// The gradient that a method of the class is given and puts into a list, and where.
fn put_into(view: &View<'_>, class: ClassId, list: &str) -> Option<(Name, Place)> {
    near::methods(view, class).iter().find_map(|method| {
        let puts = |s: &usize| match method.value(*s) {
            Some(Rvalue::CallMethod { base, name, args }) if name == "append" => {
                let own = near::own_attribute(method, &method.through(base)).is_some_and(|name| name == list);
                let given = args.first().and_then(|a| near::local(&a.value));
                own && given.is_some_and(|l| method.is_param(l) && has_grad(method.local_name(l)))
            }
            _ => false,
        };
        let at = (0..method.steps.len()).find(puts)?;
        let Some(Rvalue::CallMethod { args, .. }) = method.value(at) else { return None };
        let gradient = near::local(&args.first()?.value)?;
        Some((method.local_name(gradient).clone(), method.place(method.steps[at].id)))
    })
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
