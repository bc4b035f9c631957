//! Collectives that are left out by ranks which own nothing. In: a function. Out: a collective over the ranks among which something was dealt out, that is reached where
//! the own share is not empty: `if not mine: continue`. Never: a collective over another group, whose ranks may have the same share, a branch for the others that calls
//! anything, or a share that is chosen by more than the own rank in the group. Source: facebookresearch/optimizers pull request 149, `DDPDistributor`.
//! Next: `own_list.rs`, the same of stages and shards.

use super::Found;
use super::beside::Question;
use super::coming::Coming;
use super::expr::Expr;
use super::flow::is_failure;
use super::found::Practice;
use super::mirrored::given;
use super::near;
use super::only_some::callee;
use super::rank_tests::{asks_job, is_rank};
use super::ranks::{is_lone_job, other_branch_calls, same, together};
use super::view::{Guard, View};
use crate::ir::{Arg, BuildKind, CmpOp, Const, Item, LocalId, Operand, Rvalue, Stmt, StmtId, UnOp};
use crate::project::FuncRef;
use crate::source::{Name, Place};
use std::rc::Rc;

/// How files choose what a rank owns, in lowercase.
pub(super) const CHOSEN: &[&str] =
    &["== self.rank", "== rank", "rank ==", "== self._rank", "get_rank()", "rank::", "rank ::"];
/// How far shares and groups are followed.
const MOST: usize = 5;
/// Methods that lists, dicts and tensors have as well: what an object has of that name is not known.
const COMMON: &[&str] = &["append", "update", "get", "items", "add", "extend", "copy", "clear", "pop", "step", "sum"];

/// What tells groups apart: the name that the class or the function has for it, or all ranks.
#[derive(Clone, Debug, PartialEq)]
enum Group {
    All,
    Named(Name),
}

/// What a rank has of what was dealt out: the group among whose ranks, and where it is chosen.
struct Share {
    group: Group,
    chosen: Place,
}

/// A test and the side of it, with the list of the own share that it asks, if it asks one.
type Asked = (StmtId, bool, Option<(Name, Share)>);

/// Whether a file makes sure that every rank has something: it refuses fewer things than ranks, fills up what is dealt out, or takes no more ranks.
fn all_own(view: &View<'_>) -> bool {
    let file = near::bare(view.file());
    near::refusals(&file).any(|line| line.contains("len(") || line.contains("world"))
        || near::has_any(&file, &["while len(", "pad", "min(len(", "(-len("])
}

/// `mine = [p for i, p in enumerate(params) if i % world == rank]`, `if not mine: return`, and a collective behind it
pub fn left_out(view: &View<'_>, out: &mut Found) {
    if view.func.is_generator {
        return;
    }
    let mut known: Vec<Asked> = Vec::new();
    for at in 0..view.steps.len() {
        if !matches!(view.value(at), Some(Rvalue::Call { .. } | Rvalue::CallMethod { .. })) {
            continue;
        }
        for guard in view.steps[at].guards.iter() {
            if !known.iter().any(|(id, holds, _)| *id == guard.at && *holds == guard.holds) {
                known.push((guard.at, guard.holds, tested(view, guard)));
            }
            let found = known.iter().find(|(id, holds, _)| *id == guard.at && *holds == guard.holds);
            let Some((_, _, Some((list, share)))) = found else { continue };
            let Some((collective, group)) = meets(view, at) else { continue };
            if group != Group::All && group != share.group
                || is_failure(view, guard)
                || is_lone_job(view)
                || other_branch_calls(view, guard)
                || is_matched(view, guard, &collective)
                || view.answer(Question::Owns(view.at.module), || all_own(view))
            {
                continue;
            }
            let call = view.place(view.steps[at].id);
            let exit = exit_of(view, guard);
            let place = exit.unwrap_or_else(|| view.part(guard.at, 0));
            let mistake = Coming::OwnsNone { collective, list: list.clone(), chosen: share.chosen, call };
            out.push((place, Practice::Coming(mistake)));
            return;
        }
    }
}

/// Where the ranks leave for which a condition does not hold.
fn exit_of(view: &View<'_>, guard: &Guard<'_>) -> Option<Place> {
    let leaves = view.steps.iter().find(|s| {
        matches!(s.stmt, Stmt::Return { .. } | Stmt::Continue | Stmt::Break)
            && s.guards.last().is_some_and(|g| g.at == guard.at && g.holds != guard.holds)
    });
    leaves.map(|s| view.place(s.id))
}

/// Whether the same is called where the condition decides nothing, or for the others.
fn is_matched(view: &View<'_>, guard: &Guard<'_>, collective: &Name) -> bool {
    (0..view.steps.len()).any(|j| {
        let here = view.steps[j].guards.iter().any(|g| same(g, guard));
        !here && view.value(j).and_then(|v| near::written_name(view, v)).is_some_and(|name| name == *collective)
    })
}

/// The share that is not empty where a condition holds.
fn tested(view: &View<'_>, guard: &Guard<'_>) -> Option<(Name, Share)> {
    filled(view, &view.expr(guard.test), guard.holds)
}

fn filled(view: &View<'_>, test: &Expr, holds: bool) -> Option<(Name, Share)> {
    let zero = |e: &Expr| *e == Expr::Const(Const::Int(0));
    match test {
        Expr::Unary(UnOp::Not, inner) => filled(view, inner, !holds),
        Expr::Compare(op, left, right) if zero(right) => {
            let (_, counted) = left.call_of("len")?.first()?;
            let some = match op {
                CmpOp::Gt | CmpOp::Ne => holds,
                CmpOp::Eq | CmpOp::Le => !holds,
                _ => return None,
            };
            some.then(|| filled(view, counted, true)).flatten()
        }
        Expr::Local(local) if holds && !view.is_param(*local) => {
            Some((view.local_name(*local).clone(), share(view, *local, 0)?))
        }
        Expr::Attr(..) if holds => {
            let name = near::own_attribute(view, test)?;
            Some((name.clone(), kept(view, name, 0)?))
        }
        _ => None,
    }
}

/// The share that a variable has.
fn share(view: &View<'_>, local: LocalId, depth: usize) -> Option<Share> {
    let [def] = view.defs(local) else { return None };
    if depth > MOST || view.is_param(local) {
        return None;
    }
    let of = |o: &Operand| share(view, near::local(o)?, depth + 1);
    match view.value(*def)? {
        Rvalue::Use(from) => of(from),
        Rvalue::Build { kind: BuildKind::List, items } if items.is_empty() => {
            put(view, &|base| *base == Operand::Local(local), Some(local), depth)
        }
        Rvalue::Attr { .. } => kept(view, near::own_attribute(view, &view.bound(*def, local))?, depth + 1),
        Rvalue::Item { index, .. } => {
            let (_, Rvalue::Build { kind: BuildKind::Slice, items }) = view.source(index)? else { return None };
            let [Item::One(start), _, Item::One(Operand::Local(_) | Operand::Global(_))] = &items[..] else {
                return None;
            };
            Some(Share { group: group_of_rank(view, &view.expr(start), 0)?, chosen: view.place(view.steps[*def].id) })
        }
        value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => {
            let listed = matches!(near::written_name(view, value)?.as_str(), "list" | "sorted" | "tuple");
            if let (true, [one]) = (listed, &args[..]) {
                return of(&one.value);
            }
            let inner = near::shared(view, method(view, value)?);
            let mut found = None;
            for step in &inner.steps {
                let Stmt::Return { value } = step.stmt else { continue };
                let group = share(&inner, near::local(value)?, depth + 1)?.group;
                // What is chosen there is shown where it is asked for.
                found = Some(Share { group, chosen: view.place(view.steps[*def].id) });
            }
            found.filter(|_| !inner.func.is_generator)
        }
        _ => None,
    }
}

/// The share that an attribute of the object has.
fn kept(view: &View<'_>, name: &Name, depth: usize) -> Option<Share> {
    let class = near::class_of(view).filter(|_| depth <= MOST)?;
    let set = near::assigned(view, class, name);
    let [(method, _, value)] = set.as_slice() else { return None };
    let local = near::local(value)?;
    let empty =
        matches!(method.source(value), Some((_, Rvalue::Build { kind: BuildKind::List, items })) if items.is_empty());
    let filled = method.steps.iter().any(|s| matches!(s.stmt, Stmt::Append { collection, .. } if *collection == local));
    if !empty || filled {
        return share(method, local, depth + 1);
    }
    let is = |by: &View<'_>, base: &Operand| near::own_attribute(by, &by.expr(base)) == Some(name);
    near::methods(view, class).iter().find_map(|by| put(by, &|base| is(by, base), None, depth))
}

/// What all that is put into a list is chosen by: a comparison with the own rank, or a share that it is taken from.
fn put(view: &View<'_>, is_list: &dyn Fn(&Operand) -> bool, built: Option<LocalId>, depth: usize) -> Option<Share> {
    let mut found: Option<Share> = None;
    for (i, step) in view.steps.iter().enumerate() {
        let puts = match step.stmt {
            Stmt::Append { collection, .. } => Some(*collection) == built,
            _ => match view.value(i) {
                Some(Rvalue::CallMethod { base, name, .. }) if is_list(base) => match name.as_str() {
                    "append" => true,
                    "sort" | "index" | "count" => false,
                    _ => return None,
                },
                _ => false,
            },
        };
        if !puts {
            continue;
        }
        let by_test = step.guards.iter().find_map(|g| {
            let group = of_own_rank(view, &view.expr(g.test), g.holds)?;
            Some(Share { group, chosen: view.part(g.at, 0) })
        });
        let from = |round: &usize| match view.steps[*round].stmt {
            Stmt::For { iter, .. } => share(view, near::local(iter)?, depth + 1),
            _ => None,
        };
        let this = by_test.or_else(|| step.loops.iter().find_map(from))?;
        if found.as_ref().is_some_and(|other| other.group != this.group) {
            return None;
        }
        found = found.or(Some(this));
    }
    found
}

/// The group whose rank something is compared with where a condition holds.
fn of_own_rank(view: &View<'_>, test: &Expr, holds: bool) -> Option<Group> {
    match test {
        Expr::Unary(UnOp::Not, inner) => of_own_rank(view, inner, !holds),
        Expr::Bool { and, of } if *and == holds => of.iter().find_map(|e| of_own_rank(view, e, holds)),
        Expr::Compare(op @ (CmpOp::Eq | CmpOp::Ne), a, b) if holds == (*op == CmpOp::Eq) => {
            let fixed = |e: &Expr| matches!(near::deep(view, e), Expr::Const(_));
            match (group_of_rank(view, a, 0), group_of_rank(view, b, 0)) {
                (Some(group), None) if !fixed(b) => Some(group),
                (None, Some(group)) if !fixed(a) => Some(group),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The group in which a number is the own rank.
fn group_of_rank(view: &View<'_>, number: &Expr, depth: usize) -> Option<Group> {
    if depth > MOST || depth == 0 && !is_rank(view, number) {
        return None;
    }
    match number {
        Expr::Call { callee, args, .. } if callee.last_name() == Some("get_rank") => match args.as_slice() {
            [] => Some(Group::All),
            [(_, group)] => named(view, group),
            _ => None,
        },
        Expr::Local(local) => match view.through(&Operand::Local(*local)) {
            Expr::Local(_) => view.is_param(*local).then_some(Group::All),
            other => group_of_rank(view, &other, depth + 1),
        },
        Expr::Attr(..) => {
            let (name, class) = near::own_attribute(view, number).zip(near::class_of(view))?;
            let set = near::assigned(view, class, name);
            let mut asked = set.iter().filter(|(by, _, value)| !matches!(by.expr(value), Expr::Const(_)));
            let (by, _, value) = asked.next()?;
            if asked.next().is_some() { None } else { group_of_rank(by, &by.expr(value), depth + 1) }
        }
        _ => None,
    }
}

/// The name by which a group is known.
fn named(view: &View<'_>, group: &Expr) -> Option<Group> {
    match group {
        Expr::Const(Const::None) => Some(Group::All),
        Expr::Local(local) => match view.through(&Operand::Local(*local)) {
            Expr::Local(same) => Some(Group::Named(view.local_name(same).clone())),
            other => named(view, &other),
        },
        Expr::Attr(..) => {
            let (name, class) = near::own_attribute(view, group).zip(near::class_of(view))?;
            match near::assigned(view, class, name).as_slice() {
                [(by, _, value)] => match by.expr(value) {
                    Expr::Local(local) if by.is_param(local) => Some(Group::Named(by.local_name(local).clone())),
                    _ => Some(Group::Named(name.clone())),
                },
                _ => Some(Group::Named(name.clone())),
            }
        }
        Expr::Path(path) if path.ends_with(".WORLD") => Some(Group::All),
        _ => None,
    }
}

/// What a step calls with all ranks of a group: a collective, or a function of the project that issues one whatever it is given.
fn meets(view: &View<'_>, step: usize) -> Option<(Name, Group)> {
    let value = view.value(step)?;
    if let Some(call) = together(view, value) {
        return Some((call.name, over(view, call.group)?));
    }
    let inner = near::shared(view, method(view, value)?);
    if inner.func.is_generator || inner.func.is_async {
        return None;
    }
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    (0..inner.steps.len()).find_map(|i| {
        let at = &inner.steps[i];
        let job = |g: &Guard<'_>| asks_job(&inner, &inner.expr(g.test), g.holds);
        let own = |round: &usize| match inner.steps[*round].stmt {
            Stmt::For { iter, .. } => near::local(iter).is_some_and(|l| share(&inner, l, 0).is_some()),
            _ => true,
        };
        let call = together(&inner, inner.value(i)?)?;
        if !at.guards.iter().all(job) || at.loops.iter().any(own) {
            return None;
        }
        Some((inner.func.name.clone(), as_called(view, &inner, args, call.group)?))
    })
}

fn over(view: &View<'_>, group: Option<&Operand>) -> Option<Group> {
    group.map_or(Some(Group::All), |group| named(view, &view.expr(group)))
}

/// The group of a collective in a function, as the caller knows it.
fn as_called<'a>(view: &View<'a>, inner: &Rc<View<'_>>, args: &'a [Arg], group: Option<&Operand>) -> Option<Group> {
    match group.and_then(near::local).filter(|local| inner.is_param(*local)) {
        Some(param) => named(view, &view.expr(given(inner, param, args, usize::from(inner.func.class.is_some()))?)),
        None => over(inner, group),
    }
}

/// The function of the project that a call calls; also the only method of that name in the file.
fn method(view: &View<'_>, value: &Rvalue) -> Option<FuncRef> {
    callee(view, value).or_else(|| {
        let Rvalue::CallMethod { base: Operand::Local(_), name, .. } = value else { return None };
        if COMMON.contains(&name.as_str()) || view.rules.tensor_method(name).is_some() {
            return None;
        }
        match view.project.methods_named(name) {
            [(class, func)] if class.module == view.at.module => Some(FuncRef { module: class.module, func: *func }),
            _ => None,
        }
    })
}
