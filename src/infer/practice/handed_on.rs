//! What the forward of an autograd function hands on to the function that communicates for it. In: such a forward. Out: arguments that it keeps for its backward
//! and leaves out of that call, whose defaults hold then; the same call elsewhere, around the autograd function. Never: arguments that the forward uses in another way,
//! groups, and tests that ask for training. Source: torch.autograd.Function. Next: `lapses.rs`.

use super::Found;
use super::asked_tests::asks_training;
use super::backwards::stored;
use super::called;
use super::expr::Expr;
use super::found::Practice;
use super::lapses::Lapse;
use super::lost::last;
use super::near;
use super::view::View;
use super::wrapped::function;
use crate::ir::{Arg, ArgKind, FuncId, LocalId, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::rules::Form;
use crate::source::{Idx, Name, Place};
use std::rc::Rc;

/// `ctx.dim = dim` and `exchange(x)`, where `exchange(x, dim=1)` has a default.
pub fn left_out(view: &View<'_>, out: &mut Found) {
    let Some(class) = autograd(view) else { return };
    let kept = stored(view);
    for (at, step) in view.steps.iter().enumerate() {
        let Some((args, helper)) = helped(view, at) else { continue };
        if args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar)) {
            continue;
        }
        let missing = |(name, value): &(Name, Expr)| {
            let Expr::Local(local) = value else { return None };
            let own = view.func.params.iter().find(|p| p.local == *local && !is_group(&p.name))?;
            let index = helper.func.params.iter().position(|p| p.name == own.name && p.has_default)?;
            let given = view.argument(args, index, &own.name).is_some();
            let apart = view.defs(*local).is_empty() && view.readers(*local).iter().all(|s| is_kept(view, *s));
            (!given && apart && class.reads(name)).then(|| own.name.clone())
        };
        let arguments: Vec<Name> = kept.iter().filter_map(missing).collect();
        let keeps = |s: &usize| matches!(view.steps[*s].stmt, Stmt::SetAttr { value: Operand::Local(l), .. } if arguments.contains(view.local_name(*l)));
        let Some(kept) = (0..view.steps.len()).find(keeps) else { continue };
        let mistake = Lapse::NotHandedOn {
            class: class.name.clone(),
            function: helper.func.name.clone(),
            arguments: arguments.clone(),
            kept: view.place(view.steps[kept].id),
        };
        out.push((view.place(step.id), Practice::Lapse(mistake)));
        return;
    }
}

/// `y = exchange(x)` on one side of a test, and on the other `y = Exchange.apply(x)`, whose forward calls `exchange`.
pub fn around(view: &View<'_>, out: &mut Found) {
    let Some(class) = autograd(view) else { return };
    let Some(tensor) = view.func.params.get(1) else { return };
    for at in 0..view.steps.len() {
        let Some((args, helper)) = helped(view, at) else { continue };
        let index = args.iter().position(|a| a.kind == ArgKind::Positional && a.value == Operand::Local(tensor.local));
        let Some((collective, place)) = index.and_then(|i| written(&helper, i)) else { continue };
        let path = view.project.qualified(helper.at);
        for (site, step) in called::sites(view, &path, None) {
            let Some(applied) = other_side(&site, step, &class) else { continue };
            let mistake = Lapse::AroundFunction {
                class: class.name.clone(),
                collective: collective.clone(),
                call: site.place(site.steps[step].id),
                applied,
            };
            out.push((place, Practice::Lapse(mistake)));
            return;
        }
    }
}

/// A class of autograd functions, by what it is written as.
struct Autograd<'a> {
    name: Name,
    path: Name,
    text: &'a str,
}

impl Autograd<'_> {
    /// Whether the backward asks the context for what is kept under a name.
    fn reads(&self, name: &str) -> bool {
        let backward = self.text.find("def backward").map_or("", |at| &self.text[at..]);
        near::ending(backward, &format!(".{name}")).next().is_some()
    }
}

/// The class of a function, if that is the forward of an autograd function.
fn autograd<'a>(view: &View<'a>) -> Option<Autograd<'a>> {
    let context = view.func.params.first().is_some_and(|p| p.name == "ctx");
    let at = near::autograd_class(view).filter(|_| context && view.func.name == "forward")?;
    let class = view.project.class(at);
    let text = view.text(view.spot(class.span));
    Some(Autograd { name: class.name.clone(), path: view.project.qualified_class(at), text })
}

/// The function of the project that a step calls, if that communicates.
fn helped<'a>(view: &View<'a>, step: usize) -> Option<(&'a [Arg], Rc<View<'a>>)> {
    let Some(Rvalue::Call { callee, args }) = view.value(step) else { return None };
    let at: FuncRef = function(view, &view.through(callee))?;
    let helper = near::shared(view, at);
    (!helper.collectives().is_empty()).then_some((args, helper))
}

/// Whether all that a step does is to keep a value on the context.
fn is_kept(view: &View<'_>, step: usize) -> bool {
    matches!(view.steps[step].stmt, Stmt::SetAttr { base: Operand::Local(l), .. } if view.func.params.first().is_some_and(|p| p.local == *l))
}

/// The collective without a gradient by which a function writes what it is given as its n-th argument into what it returns.
fn written(helper: &View<'_>, n: usize) -> Option<(Name, Place)> {
    let given: LocalId = helper.func.params.get(n)?.local;
    let returned: Vec<LocalId> = helper
        .steps
        .iter()
        .filter_map(|step| match step.stmt {
            Stmt::Return { value } => Some(near::roots(helper, value)),
            _ => None,
        })
        .flatten()
        .collect();
    helper.collectives().iter().find_map(|(step, call)| {
        let buffer = matches!(call.rule.form, Form::IntoOutput | Form::IntoList) && !call.rule.differentiable;
        let input = near::roots(helper, call.input?).contains(&given);
        let out = near::local(call.output?).is_some_and(|o| returned.contains(&o));
        let plain = buffer && input && out && !helper.without_gradient(*step);
        plain.then(|| (last(&call.rule.name), helper.place(helper.steps[*step].id)))
    })
}

/// Where a class is applied on the other side of the test that a call stands under, if training has nothing to do with it.
fn other_side(site: &View<'_>, step: usize, class: &Autograd<'_>) -> Option<Place> {
    let guards = &site.steps[step].guards;
    let own = guards.last()?;
    if site.without_gradient(step) || autograd(site).is_some() || guards.iter().any(|g| asks_training(site, g.test)) {
        return None;
    }
    let apply = Name::from(format!("{}.apply", class.path));
    (0..site.steps.len()).find_map(|other| {
        let around = &site.steps[other].guards;
        let apart = around.iter().any(|g| g.at == own.at && g.holds != own.holds);
        if !apart || around.iter().any(|g| asks_training(site, g.test)) {
            return None;
        }
        let applies = match site.value(other)? {
            Rvalue::Call { callee, .. } => is_alias(site, &site.through(callee), class),
            value @ Rvalue::CallMethod { .. } => site.callee(value)? == apply,
            _ => false,
        };
        applies.then(|| site.place(site.steps[other].id))
    })
}

/// Whether a name of the module stands for `Class.apply`, as it is or with something around it.
fn is_alias(site: &View<'_>, callee: &Expr, class: &Autograd<'_>) -> bool {
    let Some((module, name)) = callee.path().and_then(|path| path.rsplit_once('.')) else { return false };
    let Some(module) = site.project.module_named(module).filter(|m| *m == site.at.module) else { return false };
    let body = near::shared(site, FuncRef { module, func: FuncId::from_index(0) });
    let Some([bound]) = body.func.locals().named(name).map(|local| body.defs(local)) else { return false };
    let Some(value) = body.value(*bound) else { return false };
    let applies = |e: &Expr| match e {
        Expr::Attr(of, name) if name == "apply" => match &**of {
            Expr::Local(local) => *body.local_name(*local) == class.name,
            other => other.path().is_some_and(|path| *path == class.path),
        },
        Expr::Path(path) => path.strip_suffix(".apply") == Some(class.path.as_str()),
        _ => false,
    };
    match value {
        Rvalue::Use(of) => body.expr(of).any(&mut |e| applies(e)),
        Rvalue::Attr { .. } | Rvalue::Call { .. } | Rvalue::CallMethod { .. } => {
            let Stmt::Assign { dst, .. } = body.steps[*bound].stmt else { return false };
            body.bound(*bound, *dst).any(&mut |e| applies(e))
        }
        _ => false,
    }
}

/// Whether a parameter is a group, by its name: another check compares those.
fn is_group(name: &str) -> bool {
    name.contains("group") || name.contains("mesh")
}
