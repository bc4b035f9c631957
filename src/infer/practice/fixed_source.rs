//! Ranks of the whole program in calls over some of them. In: a function. Out: a collective over the ranks of an axis that starts at, or
//! ends on, rank 0 of all ranks: that rank is in one of the groups only. Never: a group that is not known by its getter or as that of any
//! dim of a mesh, or a call that only some ranks come to.
//! Next: `own_group.rs`.

use super::Found;
use super::all_ranks::may_be_all;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::near;
use super::view::View;
use super::wrapped::says;
use crate::ir::{ArgKind, Const, Operand, Rvalue, Stmt};
use crate::project::ModuleId;
use crate::rules::{Entry, Gives};
use crate::source::{Name, Place};

/// Arguments that are a rank of all ranks.
pub(super) const ROOTS: &[&str] = &["src", "dst"];

/// `broadcast(x, src=0, group=get_tensor_model_parallel_group())`
pub fn roots(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some((path, 0, group)) = rooted(view, i) else { continue };
        let Expr::Call { callee, args, .. } = near::deep(view, &view.expr(group)) else { continue };
        let said = named(view, i);
        if let Some(dim) = any_dim(view, &callee, &args).filter(|_| step.guards.is_empty() && !may_be_all(view)) {
            let mistake = Scales::FixedRoot { collective: super::lost::last(&path), group: vec![dim], said };
            out.push((view.place(step.id), Practice::Scales(mistake)));
            continue;
        }
        let Some(getter) = near::path(view, &callee).filter(|_| args.is_empty()) else { continue };
        let Some(Entry::Group(known)) = view.rules.get(&getter) else { continue };
        if known.gives != Gives::Group || known.axes.is_empty() {
            continue;
        }
        if may_be_all(view) || makes_one_group(view) || is_of_some(view, i, &known.axes, 0) {
            continue;
        }
        let collective = super::lost::last(&path);
        let mistake = Scales::FixedRoot { collective, group: known.axes.clone(), said };
        out.push((view.place(step.id), Practice::Scales(mistake)));
    }
}

/// `mesh.get_group(mesh_dim)`: the dim of a mesh that a function is given, which is to work for each of several.
fn any_dim(view: &View<'_>, callee: &Expr, args: &[(ArgKind, Expr)]) -> Option<Name> {
    let (Expr::Attr(mesh, name), [(_, Expr::Local(dim))]) = (callee, args) else { return None };
    let Expr::Local(mesh) = &**mesh else { return None };
    let chosen = view.func.params.iter().find(|p| p.local == *dim).filter(|p| !p.has_default)?;
    let given = name == "get_group" && view.is_param(*mesh) && view.defs(*dim).is_empty();
    (given && near::has_part(&chosen.name, "dim")).then(|| chosen.name.clone())
}

/// Where a variable for the rank is set.
fn named(view: &View<'_>, step: usize) -> Option<Place> {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step)? else { return None };
    let root = args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(k) if ROOTS.contains(&k.as_str())))?;
    match view.defs(near::local(&root.value)?) {
        [one] => Some(view.place(view.steps[*one].id)),
        _ => None,
    }
}

/// The collective that a step is, if it starts at, or ends on, a rank of all ranks that is written out, over a group that it is given.
pub(super) fn rooted<'a>(view: &View<'a>, step: usize) -> Option<(Name, i64, &'a Operand)> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let path = view.callee(value)?;
    let Some(Entry::Intrinsic(rule)) = view.rules.get(&path) else { return None };
    let given = |name: &str| rule.args.index(name).and_then(|at| view.argument(args, at, name));
    let root = ROOTS.iter().find_map(|r| given(r)).filter(|_| rule.does == "rooted-collective")?;
    let Expr::Const(Const::Int(root)) = near::deep(view, &view.expr(root)) else { return None };
    Some((path, root, given("group")?))
}

/// How far calls are followed to where they stand.
const MOST: usize = 4;

/// Words of names that say which ranks these are, or how many.
const RANKS: &[&str] = &[
    "rank", "size", "world", "main", "master", "first", "last", "src", "source", "leader", "chief", "replica", "degree",
];

/// Whether only some ranks may come to a step, or only some numbers of ranks: a condition around it, around the function or around its
/// calls asks for another rank or size than that in the group.
pub(super) fn is_of_some(view: &View<'_>, step: usize, axes: &[Name], depth: usize) -> bool {
    let mut guards = view.steps[step].guards.iter();
    guards.any(|g| asks(view, &view.expr(g.test), axes, 0))
        || depth < MOST && calls(view).iter().any(|(at, s)| is_of_some(at, *s, axes, depth + 1))
}

/// Where the project makes or calls something with the name of a function.
fn calls<'a>(view: &View<'a>) -> Vec<(View<'a>, usize)> {
    let path = view.project.qualified(view.at);
    let named = |at: &View<'a>, step: usize| match (at.steps[step].stmt, at.value(step)) {
        // In other files a function is called by what its name leads to.
        (_, Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })))
            if at.at.module != view.at.module && view.func.class.is_none() =>
        {
            at.callee(value).is_some_and(|callee| callee == path)
        }
        (Stmt::Def { func, .. }, _) => *func == view.at.func && at.at.module == view.at.module,
        (_, Some(Rvalue::CallMethod { name, .. })) => *name == view.func.name,
        (_, Some(Rvalue::Call { callee, .. })) => match at.expr(callee) {
            Expr::Local(local) => *at.local_name(local) == view.func.name,
            other => other.last_name() == Some(view.func.name.as_str()),
        },
        _ => false,
    };
    let says = |module: &ModuleId| view.files.says(view.project.file(*module), &view.func.name);
    let modules = view.project.modules.ids().filter(|module| *module == view.at.module || says(module));
    let all = modules.flat_map(|module| near::functions(view, module)).map(|at| near::other(view, at));
    all.flat_map(|at| {
        let steps: Vec<usize> = (0..at.steps.len()).filter(|s| named(&at, *s)).collect();
        steps.into_iter().map(move |s| (near::other(&at, at.at), s)).collect::<Vec<_>>()
    })
    .collect()
}

/// Whether the file starts groups with the number of all ranks: there is one of them.
fn makes_one_group(view: &View<'_>) -> bool {
    near::functions(view, view.at.module).into_iter().map(|at| near::other(view, at)).any(|at| {
        (0..at.steps.len()).any(|step| {
            let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = at.value(step) else {
                return false;
            };
            let starts = at.callee(value).is_some_and(|path| super::lost::last(&path).ends_with("model_parallel"));
            starts && args.iter().any(|a| says(&at, &near::deep(&at, &at.expr(&a.value)), &["world"]))
        })
    })
}

/// Whether a condition asks for a rank or a number of ranks that is not one in the group itself.
fn asks(view: &View<'_>, test: &Expr, axes: &[Name], depth: usize) -> bool {
    let named = |name: &str| {
        let name = name.to_lowercase();
        RANKS.iter().any(|word| name.contains(word))
    };
    if depth > crate::infer::limits::MAX_EXPR_DEPTH {
        return true;
    }
    let inside = |e: &Expr| e.inner().into_iter().any(|e| asks(view, e, axes, depth + 1));
    match test {
        Expr::Local(local) => match near::deep(view, test) {
            Expr::Local(_) | Expr::Unknown => named(view.local_name(*local)),
            seen => asks(view, &seen, axes, depth + 1),
        },
        // Whether a group has several ranks at all is no choice between groups, nor which rank of its own group one is.
        Expr::Compare(_, size, one) if **one == Expr::Const(Const::Int(1)) && is_size(view, size, axes) => false,
        Expr::Call { callee, args, .. } if args.is_empty() => {
            let known = near::path(view, callee).and_then(|path| view.rules.get(&path));
            match known {
                Some(Entry::Group(rule)) => rule.gives != Gives::Rank || !is_within(&rule.axes, axes),
                _ => inside(test),
            }
        }
        Expr::Path(name) | Expr::Attr(_, name) => named(super::lost::last(name).as_str()) || inside(test),
        _ => inside(test),
    }
}

fn is_size(view: &View<'_>, size: &Expr, axes: &[Name]) -> bool {
    let Expr::Call { callee, args, .. } = near::deep(view, size) else { return false };
    let rule = near::path(view, &callee).and_then(|path| view.rules.get(&path));
    matches!(rule, Some(Entry::Group(rule)) if args.is_empty() && rule.gives == Gives::Size && is_within(&rule.axes, axes))
}

fn is_within(axes: &[Name], of: &[Name]) -> bool {
    !axes.is_empty() && axes.iter().all(|a| of.contains(a))
}
