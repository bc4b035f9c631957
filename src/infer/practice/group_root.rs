//! Ranks in a group in the place of ranks among all. In: a function. Out: a collective or a message over a group, whose source, destination or
//! peer is computed from the rank in a group, compared with one, or counted through its size: torch expects the rank among all ranks there.
//! Never: a rank that may have been translated, or a group that may be that of all ranks: that of the data ranks by its name, or one that a caller gives, unless the function says
//! that it counts in the group, or the file has groups of some ranks.
//! Source: torch.distributed, `broadcast`: "src: source rank on global process group (regardless of group argument)". Next: `fixed_source.rs`.

use super::Found;
use super::all_ranks::may_be_all;
use super::called::callers;
use super::coming::Coming;
use super::expr::Expr;
use super::found::Practice;
use super::lost::last;
use super::named_axes::of_group;
use super::near;
use super::view::View;
use crate::infer::scale::groups::WORLD;
use crate::ir::{ArgKind, BinOp, CmpOp, Const, LocalId, Rvalue, Stmt};
use crate::rules::{Entry, Gives, GroupRule};
use crate::source::{Name, Place};
use std::rc::Rc;

/// Arguments that are a rank of all ranks, and those that are one in the group.
const ROOTS: &[&str] = &["src", "dst", "peer"];
const IN_GROUP: &[&str] = &["group_src", "group_dst", "group_peer"];

/// What gives the rank in a group that it is given.
const RANK: &str = "torch.distributed.get_rank";

/// How far a rank is followed.
const MOST: usize = 6;

pub fn roots(view: &View<'_>, out: &mut Found) {
    for i in 0..view.steps.len() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            continue;
        };
        if !view.may_communicate(value) {
            continue;
        }
        let Some((path, Some(Entry::Intrinsic(rule)))) = view.ruled(value) else { continue };
        if rule.does != "rooted-collective" && rule.does != "object-collective" {
            continue;
        }
        let given = |name: &str| rule.args.index(name).and_then(|at| view.argument(args, at, name));
        if IN_GROUP.iter().any(|name| given(name).is_some()) {
            continue;
        }
        let root = ROOTS.iter().find_map(|name| Some((*name, given(name)?)));
        let (Some((argument, root)), Some(group)) = (root, given("group")) else { continue };
        let (root, group) = (view.expr(root), view.expr(group));
        let rank = if is_some_group(view, &group) && !may_be_all(view) {
            within(view, &root, 0).or_else(|| compared(view, &root))
        } else {
            compared_in_context(view, &root, &group).or_else(|| numbered(view, &root, &group, i))
        };
        if let Some(rank) = rank {
            let mistake = Coming::GroupRoot { collective: last(&path), argument: Name::from(argument), rank };
            out.push((view.place(view.steps[i].id), Practice::Coming(mistake)));
        }
    }
}

/// Whether a group is surely not that of all ranks.
fn is_some_group(view: &View<'_>, group: &Expr) -> bool {
    let named = || of_group(view, group).is_some_and(|axes| !axes.iter().any(may_be_world));
    asks(&near::deep(view, group), "get_group") || named() || is_given_some(view, group)
}

/// Whether an axis may have all ranks: in many programs that of the data does.
fn may_be_world(axis: &Name) -> bool {
    axis.contains("dp") || axis.contains("data") || axis == WORLD
}

/// Whether a group is one that every call in the file gives, and surely not that of all ranks there.
fn is_given_some(view: &View<'_>, group: &Expr) -> bool {
    let Expr::Local(local) = group else { return false };
    let Some(at) = view.func.params.iter().position(|p| p.local == *local).filter(|_| view.defs(*local).is_empty())
    else {
        return false;
    };
    let some = |(caller, step): &(Rc<View<'_>>, usize)| {
        let args = match caller.value(*step) {
            Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => args,
            _ => return false,
        };
        let given = caller.argument(args, at, &view.func.params[at].name).map(|o| caller.expr(o));
        let axes = given.and_then(|group| of_group(caller, &group));
        axes.is_some_and(|axes| !axes.iter().any(may_be_world)) && !may_be_all(caller)
    };
    let callers = callers(view);
    view.func.class.is_none() && !callers.is_empty() && callers.iter().all(some)
}

/// Whether something is asked of a getter by the name of what it is for: `context.get_group(mode)`, `mesh.get_local_rank("tp")`.
fn asks(expr: &Expr, getter: &str) -> bool {
    matches!(expr, Expr::Call { callee, args, .. } if args.len() == 1 && callee.last_name() == Some(getter))
}

/// Where the rank in a group is asked for that a value is computed from.
fn within(view: &View<'_>, expr: &Expr, depth: usize) -> Option<Place> {
    if depth > MOST {
        return None;
    }
    match expr {
        Expr::Call { callee, args, step } => {
            let found = is_group_rank(view, callee, args);
            found.then(|| view.steps.get(*step).map(|s| view.place(s.id))).flatten()
        }
        // `(rank + 1) % size`
        Expr::Binary(BinOp::Mod, a, _) => within(view, a, depth + 1),
        Expr::Binary(BinOp::Add | BinOp::Sub, a, b) => {
            let one = |x: &Expr, y: &Expr| within(view, x, depth + 1).filter(|_| is_number(y));
            one(a, b).or_else(|| one(b, a)).or_else(|| last_of_group(view, expr))
        }
        Expr::Choice(_, a, b) => {
            let (x, y) = (within(view, a, depth + 1), within(view, b, depth + 1));
            match (x, y) {
                (Some(x), Some(_)) => Some(x),
                (Some(x), None) if is_number(b) => Some(x),
                (None, Some(y)) if is_number(a) => Some(y),
                _ => None,
            }
        }
        Expr::Local(local) => variable(view, *local, depth),
        Expr::Attr(..) => {
            let name = near::own_attribute(view, expr)?;
            let set = near::assigned(view, near::class_of(view)?, name);
            let all: Option<Vec<Place>> =
                set.iter().map(|(method, _, value)| within(method, &method.expr(value), depth + 1)).collect();
            all?.first().copied()
        }
        _ => None,
    }
}

/// A variable, every value of which is computed so.
fn variable(view: &View<'_>, local: LocalId, depth: usize) -> Option<Place> {
    let defs = view.defs(local);
    if view.is_param(local) || defs.is_empty() {
        return None;
    }
    let each = |def: &usize| match view.bound(*def, local) {
        // `for i in range(dist.get_world_size(group))`
        Expr::Element(over) => counted(view, &over),
        bound => within(view, &bound, depth + 1),
    };
    let all: Option<Vec<Place>> = defs.iter().map(each).collect();
    all?.first().copied()
}

fn is_number(expr: &Expr) -> bool {
    matches!(expr, Expr::Const(_))
}

/// Where the size of a group is asked for, of a rank that is one less: `size - 1`.
fn last_of_group(view: &View<'_>, rank: &Expr) -> Option<Place> {
    match rank {
        Expr::Binary(BinOp::Sub, size, one) if **one == Expr::Const(Const::Int(1)) => size_asked(view, size),
        _ => None,
    }
}

/// Where the size of a group is asked for that numbers go up to.
fn counted(view: &View<'_>, over: &Expr) -> Option<Place> {
    let [(ArgKind::Positional, size)] = over.call_of("range")? else { return None };
    size_asked(view, size)
}

/// Where a number is asked for that is the size of a group.
fn size_asked(view: &View<'_>, size: &Expr) -> Option<Place> {
    let Expr::Call { callee, args, step } = near::deep(view, size) else { return None };
    let path = near::path(view, &callee)?;
    let asks = path == "torch.distributed.get_world_size" && is_given(view, &args);
    let known =
        args.is_empty() && matches!(view.rules.get(&path), Some(Entry::Group(rule)) if model_ranks(rule, Gives::Size));
    (asks || known).then(|| view.steps.get(step).map(|s| view.place(s.id))).flatten()
}

/// Whether the only argument of a call is a group that was chosen.
fn is_given(view: &View<'_>, args: &[(ArgKind, Expr)]) -> bool {
    let [(kind, group)] = args else { return false };
    let first = matches!(kind, ArgKind::Positional) || matches!(kind, ArgKind::Keyword(k) if k == "group");
    first && is_some_group(view, group)
}

fn model_ranks(rule: &GroupRule, gives: Gives) -> bool {
    rule.gives == gives && !rule.axes.is_empty()
}

/// Whether a call gives the rank in a group.
fn is_group_rank(view: &View<'_>, callee: &Expr, args: &[(ArgKind, Expr)]) -> bool {
    if let Some(path) = near::path(view, callee) {
        if path == RANK {
            return is_given(view, args);
        }
        if let Some(Entry::Group(rule)) = view.rules.get(&path) {
            return args.is_empty() && model_ranks(rule, Gives::Rank);
        }
    }
    false
}

/// Where a root is compared with the rank in a group of the same getter, here or where the class keeps it.
fn compared(view: &View<'_>, root: &Expr) -> Option<Place> {
    match root {
        Expr::Attr(..) => {
            let (name, class) = near::own_attribute(view, root).zip(near::class_of(view))?;
            near::methods(view, class).iter().find_map(|method| {
                // The parameter that it is kept from.
                let kept = near::assigned(view, class, name).into_iter().find_map(|(at, _, value)| {
                    near::local(value).filter(|l| at.at == method.at && method.is_param(*l))
                });
                let is = |e: &Expr| match e {
                    Expr::Local(local) => kept == Some(*local),
                    other => near::own_attribute(method, other) == Some(name),
                };
                compared_in(method, &is)
            })
        }
        // One that is bound anew after the comparison may be another rank.
        Expr::Local(local) if view.is_param(*local) && !view.defs(*local).is_empty() => None,
        Expr::Local(local) => compared_in(view, &|e| *e == Expr::Local(*local)),
        _ => None,
    }
}

/// Where an autograd function asks for the rank in the group that it is given, if it keeps it in the context and compares it with the root that
/// it keeps there, in a file that says that roots are ranks among all.
fn compared_in_context(view: &View<'_>, root: &Expr, group: &Expr) -> Option<Place> {
    let (Expr::Local(root), Expr::Local(group)) = (root, group) else { return None };
    if ![root, group].iter().all(|local| view.is_param(**local) && view.defs(**local).is_empty()) {
        return None;
    }
    let class = near::class_of(view).filter(|_| near::autograd_class(view).is_some())?;
    let text = view.file();
    if !["global rank", "get_global_rank"].iter().any(|words| text.contains(words)) {
        return None;
    }
    let context = |local: LocalId| view.func.params.first().is_some_and(|first| first.local == local);
    let (mut roots, mut ranks): (Vec<&Name>, Vec<(&Name, Place)>) = (Vec::new(), Vec::new());
    for step in &view.steps {
        let Stmt::SetAttr { base, name, value } = step.stmt else { continue };
        if !near::local(base).is_some_and(context) {
            continue;
        }
        match near::deep(view, &view.expr(value)) {
            Expr::Local(local) if local == *root => roots.push(name),
            Expr::Call { callee, args, .. } if near::path(view, &callee).is_some_and(|p| p == RANK) => {
                let own = matches!(args.as_slice(), [(_, Expr::Local(of))] if of == group);
                ranks.extend(own.then(|| (name, view.place(step.id))));
            }
            _ => {}
        }
    }
    let kept = |method: &View<'_>, expr: &Expr| match expr {
        Expr::Attr(base, name) => match **base {
            Expr::Local(local) => method.func.params.first().filter(|p| p.local == local).map(|_| name.clone()),
            _ => None,
        },
        _ => None,
    };
    near::methods(view, class).iter().find_map(|method| {
        (0..method.steps.len()).find_map(|step| {
            let Some(Rvalue::Compare { op: CmpOp::Eq | CmpOp::Ne, left, right }) = method.value(step) else {
                return None;
            };
            let (left, right) = (kept(method, &method.expr(left))?, kept(method, &method.expr(right))?);
            let asked = |root: &Name, rank: &Name| {
                let rank = ranks.iter().find(|(name, _)| *name == rank);
                rank.filter(|_| roots.contains(&root)).map(|(_, place)| *place)
            };
            asked(&left, &right).or_else(|| asked(&right, &left))
        })
    })
}

/// Words of a function that counts in the group that it is given.
const COUNTS_IN_GROUP: &[&str] =
    &["inside ", "within", "in the group", "of the group", "group rank", "intra", "subgroup", "sub-group", "members"];

/// Calls of a file with groups that have some of the ranks.
const OF_SOME: &[&str] = &["new_group(", "new_subgroups", "get_global_rank(", "group_src", "group_dst", "get_group("];

/// Where a number that a function is given is compared with the rank in the group that it is given, if it says that it counts there.
fn numbered(view: &View<'_>, root: &Expr, group: &Expr, step: usize) -> Option<Place> {
    let (Expr::Local(number), Expr::Local(of)) = (root, group) else { return None };
    if !view.is_as_given(*number) || !view.is_as_given(*of) {
        return None;
    }
    let at = view.func.params.iter().position(|p| p.local == *of)?;
    let param = &view.func.params[at];
    let hinted = param.hint.as_ref().is_none_or(|hint| hint.ends_with("ProcessGroup"));
    let all = |(caller, call): &(Rc<View<'_>>, usize)| match caller.value(*call) {
        Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => {
            let given = caller.argument(args, at, &param.name).map(|o| near::deep(caller, &caller.expr(o)));
            given.is_none_or(|given| given.is_none() || given.last_name() == Some("WORLD"))
        }
        _ => true,
    };
    let world = |e: &Expr| super::wrapped::says(view, e, &["world", "WORLD"]);
    if param.has_default
        || !hinted
        || may_be_all(view)
        || !counts_in_group(view)
        || callers(view).iter().any(all)
        || view.steps[step].guards.iter().any(|g| world(&view.expr(g.test)))
    {
        return None;
    }
    let is = |e: &Expr| *e == Expr::Local(*number);
    let ranks = |e: &Expr| match e {
        Expr::Call { callee, args, .. } => match (&**callee, args.as_slice()) {
            (Expr::Attr(base, name), []) => name == "rank" && **base == Expr::Local(*of),
            (callee, [(_, given)]) => {
                *given == Expr::Local(*of) && near::path(view, callee).is_some_and(|path| path == RANK)
            }
            _ => false,
        },
        _ => false,
    };
    (0..view.steps.len()).find_map(|step| {
        let Some(Rvalue::Compare { op: CmpOp::Eq | CmpOp::Ne, left, right }) = view.value(step) else { return None };
        let (left, right) = (view.expr(left), view.expr(right));
        let met = is(&left) && ranks(&near::deep(view, &right)) || is(&right) && ranks(&near::deep(view, &left));
        met.then(|| view.place(view.steps[step].id))
    })
}

/// Whether a function says that its ranks are those in a group, and not among all, or the file has such groups.
fn counts_in_group(view: &View<'_>) -> bool {
    let notes = near::notes(view);
    if notes.iter().any(|note| near::has_any(&note.text, &["global", "all processes", "default group", "world"])) {
        return false;
    }
    notes.iter().any(|note| near::has_any(&note.text, COUNTS_IN_GROUP))
        || near::has_any(&near::bare(view.file()), OF_SOME)
}

fn compared_in(view: &View<'_>, is: &dyn Fn(&Expr) -> bool) -> Option<Place> {
    (0..view.steps.len()).find_map(|step| {
        let Some(Rvalue::Compare { op: CmpOp::Eq | CmpOp::Ne, left, right }) = view.value(step) else { return None };
        let (left, right) = (view.expr(left), view.expr(right));
        let rank = if is(&left) {
            &right
        } else if is(&right) {
            &left
        } else {
            return None;
        };
        let rank = near::deep(view, rank);
        let asked = asks(&rank, "get_local_rank");
        let Expr::Call { callee, args, .. } = &rank else { return None };
        (asked || is_group_rank(view, callee, args)).then(|| view.place(view.steps[step].id))
    })
}
