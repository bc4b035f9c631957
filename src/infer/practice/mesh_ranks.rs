//! Which dims of a mesh an expression may stand for. In: an expression of a file that makes its meshes itself. Out: the named dims of a mesh, or of the group of
//! one, for every way in which it may be set: through attributes, properties, functions and callers of the file. Never: a guess; one way that is not
//! followed gives nothing. Next: `replica_norm.rs`.

use super::expr::Expr;
use super::near;
use super::view::View;
use super::wrapped::{function, given};
use crate::ir::{ArgKind, ClassId, Stmt};
use crate::project::{ClassRef, FuncRef};
use crate::source::{Name, Place};
use std::rc::Rc;

const MOST_DEPTH: usize = 8;
const MOST_WAYS: usize = 8;

/// Named dims of a mesh, first dim first, and where that is decided; none: of nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranks {
    pub dims: Vec<Name>,
    /// All of them as one dim.
    pub flat: bool,
    /// The step that picks them, with the test around it, if that is what there is to see.
    pub picked: Option<(Place, Option<Place>)>,
}

/// What an expression may stand for; nothing if any way is not followed.
pub fn ranks(view: &View<'_>, expr: &Expr) -> Option<Vec<Ranks>> {
    let mut out = Vec::new();
    collect(view, expr, MOST_DEPTH, &mut out)?;
    out.dedup();
    (!out.is_empty() && out.len() <= MOST_WAYS).then_some(out)
}

fn collect(view: &View<'_>, expr: &Expr, depth: usize, out: &mut Vec<Ranks>) -> Option<()> {
    let depth = depth.checked_sub(1).filter(|_| out.len() <= MOST_WAYS)?;
    match expr {
        none if none.is_none() => Some(()),
        Expr::Choice(_, a, b) => {
            collect(view, a, depth, out)?;
            collect(view, b, depth, out)
        }
        Expr::Local(local) => {
            if view.is_as_given(*local) {
                let all = given(view, *local);
                let followed = !all.is_empty() && view.func.captures.is_empty();
                return all
                    .iter()
                    .filter(|_| followed)
                    .try_fold(false, |_, (caller, _, value)| collect(caller, value, depth, out).map(|()| true))
                    .filter(|any| *any)
                    .map(|_| ());
            }
            let defs = view.defs(*local);
            let known = !view.is_param(*local) && !defs.is_empty();
            defs.iter().try_for_each(|def| collect(view, &view.bound(*def, *local), depth, out)).filter(|()| known)
        }
        Expr::Attr(base, name) => attribute(view, base, name, depth, out),
        Expr::Item(_, dims) => {
            let picked: Option<Vec<Name>> = match &**dims {
                Expr::Build(items) => items.iter().map(|item| item.string().cloned()).collect(),
                one => one.string().map(|dim| vec![dim.clone()]),
            };
            out.push(Ranks { dims: picked?, flat: false, picked: None });
            Some(())
        }
        Expr::Call { callee, args, .. } => called(view, callee, args, depth, out),
        _ => None,
    }
}

/// What a call gives: a mesh that it makes, the group of one, or what a function of the file returns.
fn called(view: &View<'_>, callee: &Expr, args: &[(ArgKind, Expr)], depth: usize, out: &mut Vec<Ranks>) -> Option<()> {
    match (callee, callee.last_name()?) {
        (_, "init_device_mesh") => {
            let named = |kind: &ArgKind| matches!(kind, ArgKind::Keyword(k) if k == "mesh_dim_names");
            let third = || args.get(2).filter(|(kind, _)| *kind == ArgKind::Positional);
            let (_, names) = args.iter().find(|(kind, _)| named(kind)).or_else(third)?;
            let Expr::Build(items) = near::deep(view, names) else { return None };
            let dims = items.iter().map(|item| item.string().cloned()).collect::<Option<Vec<Name>>>()?;
            out.push(Ranks { dims, flat: false, picked: None });
            Some(())
        }
        (Expr::Attr(_, _), "get_group") if args.len() == 1 => {
            let dim = args[0].1.string()?;
            out.push(Ranks { dims: vec![dim.clone()], flat: false, picked: None });
            Some(())
        }
        (Expr::Attr(mesh, _), "get_group") if args.is_empty() => collect(view, mesh, depth, out),
        (Expr::Attr(mesh, _), "_flatten" | "flatten") => {
            let from = out.len();
            collect(view, mesh, depth, out)?;
            out[from..].iter_mut().for_each(|ranks| ranks.flat = true);
            Some(())
        }
        _ => returned(view, function(view, callee)?, depth, out),
    }
}

/// What a function of the project returns.
fn returned(view: &View<'_>, at: FuncRef, depth: usize, out: &mut Vec<Ranks>) -> Option<()> {
    if at.module != view.at.module {
        return None;
    }
    let inner = near::shared(view, at);
    let mut any = false;
    for step in &inner.steps {
        if let Stmt::Return { value } = step.stmt {
            collect(&inner, &inner.expr(value), depth, out)?;
            any = true;
        }
    }
    any.then_some(())
}

/// What an attribute is set to, or a property gives: of the own class, or of the only one in the file that has it.
fn attribute(view: &View<'_>, base: &Expr, name: &Name, depth: usize, out: &mut Vec<Ranks>) -> Option<()> {
    let own =
        near::own_attribute(view, &Expr::Attr(Box::new(base.clone()), name.clone())).and_then(|_| near::class_of(view));
    let class = own.or_else(|| only_with(view, name))?;
    let at = ClassRef { module: view.at.module, class };
    if let Some(method) = view.project.own_method(at, name) {
        return near::is_property(view, method).then(|| returned(view, method, depth, out))?;
    }
    let set = near::assigned(view, class, name);
    for (method, step, value) in &set {
        let value = method.expr(value);
        let from = out.len();
        collect(method, &value, depth, out)?;
        let test = method.steps[*step].guards.last().map(|guard| method.part(guard.at, 0));
        for ranks in &mut out[from..] {
            ranks.picked = ranks.picked.or(Some((method.place(method.steps[*step].id), test)));
        }
    }
    (!set.is_empty()).then_some(())
}

/// The only class of the file that has an attribute or a property of that name.
fn only_with(view: &View<'_>, name: &Name) -> Option<ClassId> {
    let has = |class: &ClassId| {
        let at = ClassRef { module: view.at.module, class: *class };
        view.project.own_method(at, name).is_some() || !near::assigned(view, *class, name).is_empty()
    };
    let mut all = view.project.modules[view.at.module].ir.classes.ids().filter(has);
    all.next().filter(|_| all.next().is_none())
}

/// A call of a function of that name in the file, with its view and the step.
pub fn calls_of<'a>(view: &View<'a>, name: &str) -> Vec<(Rc<View<'a>>, usize)> {
    let all = near::functions(view, view.at.module).into_iter().map(|at| near::shared(view, at));
    all.flat_map(|inner| {
        let steps: Vec<usize> =
            (0..inner.steps.len()).filter(|s| near::name_of_call(&inner, *s).as_deref() == Some(name)).collect();
        steps.into_iter().map(move |step| (inner.clone(), step))
    })
    .collect()
}
