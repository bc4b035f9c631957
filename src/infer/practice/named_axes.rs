//! Which axes a group or a size has, for checks that read what is written: by the rules, through the attributes that keep it, by name.
//! In: an expression. Out: names of axes. Never: a guess; a name that says nothing gives nothing. Next: `asked_group.rs`.

use super::super::scale::groups;
use super::expr::Expr;
use super::near;
use super::own_group;
use super::view::View;
use crate::ir::{ArgKind, Const};
use crate::rules::Gives;
use crate::source::Name;
use crate::types::AxisSet;

const MOST_DEPTH: usize = 6;

fn names(axes: &AxisSet) -> Option<Vec<Name>> {
    let all: Vec<Name> = axes.iter().map(|a| Name::from(a.name())).collect();
    (!all.is_empty()).then_some(all)
}

/// The axes of a group.
pub fn of_group(view: &View<'_>, group: &Expr) -> Option<Vec<Name>> {
    resolve(view, group, Gives::Group, 0)
}

/// The axes whose number of ranks a value is.
pub fn of_size(view: &View<'_>, size: &Expr) -> Option<Vec<Name>> {
    resolve(view, size, Gives::Size, 0)
}

/// The axes among whose ranks a value is the own rank.
pub fn of_rank(view: &View<'_>, rank: &Expr) -> Option<Vec<Name>> {
    resolve(view, rank, Gives::Rank, 0)
}

fn resolve(view: &View<'_>, expr: &Expr, gives: Gives, depth: usize) -> Option<Vec<Name>> {
    if depth > MOST_DEPTH {
        return None;
    }
    if let Some(known) = own_group::axes(view, expr, gives, 0) {
        return Some(known);
    }
    match expr {
        Expr::Call { callee, args, .. } => of_call(view, callee, args, gives, depth),
        Expr::Item(mesh, dims) if gives == Gives::Group && is_mesh(view, mesh) => of_dims(dims),
        Expr::Attr(..) | Expr::Path(_) => {
            let own = near::own_attribute(view, expr);
            own.and_then(|name| kept(view, name, gives, depth)).or_else(|| by_name(expr.last_name()?, gives))
        }
        Expr::Local(local) => {
            let inner = near::deep(view, expr);
            let through = if inner == *expr { None } else { resolve(view, &inner, gives, depth + 1) };
            let once = view.defs(*local).len() + usize::from(view.is_param(*local)) == 1;
            through.or_else(|| by_name(view.local_name(*local), gives).filter(|_| once))
        }
        _ => None,
    }
}

/// The axes that a name says, of a group, its size or a rank in it.
pub fn by_name(name: &str, gives: Gives) -> Option<Vec<Name>> {
    names(&match gives {
        Gives::Group => groups::of_group_name(name)?,
        Gives::Size => groups::of_size_name(name).filter(|_| !name.ends_with("world_size") || name.len() > 10)?,
        Gives::Rank => groups::words(name.trim_start_matches('_').strip_suffix("_rank")?.trim_end_matches("_local"))?,
    })
}

/// What the class keeps in an attribute, if one statement sets it.
fn kept(view: &View<'_>, name: &str, gives: Gives, depth: usize) -> Option<Vec<Name>> {
    let set = near::assigned(view, near::class_of(view)?, name);
    let [(method, _, value)] = set.as_slice() else { return None };
    resolve(method, &method.expr(value), gives, depth + 1)
}

fn of_call(view: &View<'_>, callee: &Expr, args: &[(ArgKind, Expr)], gives: Gives, depth: usize) -> Option<Vec<Name>> {
    let group = |at: usize| {
        let keyword = |k: &ArgKind| matches!(k, ArgKind::Keyword(n) if n == "group");
        let named = args.iter().find(|(k, _)| keyword(k));
        named.or_else(|| args.get(at).filter(|(k, _)| *k == ArgKind::Positional)).map(|(_, e)| e)
    };
    if let Some(path) = near::path(view, callee)
        && let Some(asked) = path.strip_prefix("torch.distributed.get_")
        && let Some(is) = [("world_size", Gives::Size), ("rank", Gives::Rank)].into_iter().find(|(n, _)| *n == asked)
    {
        return resolve(view, group(0).filter(|_| gives == is.1)?, Gives::Group, depth + 1);
    }
    let Expr::Attr(base, method) = callee else { return None };
    match (method.as_str(), args) {
        ("size", []) if gives == Gives::Size => resolve(view, base, Gives::Group, depth + 1),
        ("rank" | "get_local_rank", []) if gives == Gives::Rank => resolve(view, base, Gives::Group, depth + 1),
        ("get_local_rank", [(_, Expr::Const(Const::Str(dim)))]) if gives == Gives::Rank => of_dim(dim),
        ("get_group", []) => resolve(view, base, Gives::Group, depth + 1),
        ("_flatten" | "flatten", _) => resolve(view, base, Gives::Group, depth + 1),
        ("get_group", [(_, Expr::Const(Const::Str(dim)))]) if gives == Gives::Group => of_dim(dim),
        ("size", [(_, Expr::Const(Const::Str(dim)))]) if gives == Gives::Size && is_mesh(view, base) => of_dim(dim),
        _ => None,
    }
}

fn of_dim(dim: &str) -> Option<Vec<Name>> {
    names(&groups::words(dim)?)
}

fn of_dims(dims: &Expr) -> Option<Vec<Name>> {
    let one = |e: &Expr| of_dim(e.string()?);
    match dims {
        Expr::Build(items) => {
            let all: Option<Vec<Vec<Name>>> = items.iter().map(one).collect();
            let mut all: Vec<Name> = all?.concat();
            all.sort();
            all.dedup();
            Some(all)
        }
        dim => one(dim),
    }
}

fn is_mesh(view: &View<'_>, expr: &Expr) -> bool {
    let name = match expr {
        Expr::Local(local) => Some(view.local_name(*local).as_str()),
        other => other.last_name(),
    };
    name.is_some_and(|n| n.to_lowercase().contains("mesh"))
}
