//! Handles of collectives in the background. In: a function. Out: a buffer that is read while the collective may still write it: before
//! the wait, or with no wait at all. Never: handles that are kept, returned or passed on, and streams. Next: `raw.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Until};
use super::gradient::root;
use super::near;
use super::raw::{Sort, raw};
use super::view::{Step, View};
use crate::ir::{BuildKind, ClassId, CmpOp, Item, LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::rules::OpClass;
use crate::source::{Name, Place};

/// Methods that look at no element, or give a view.
const HARMLESS: &[&str] = &[
    "size",
    "dim",
    "numel",
    "nelement",
    "data_ptr",
    "element_size",
    "record_stream",
    "stride",
    "is_contiguous",
    "view",
    "reshape",
    "flatten",
    "narrow",
    "chunk",
    "split",
    "squeeze",
    "unsqueeze",
    "unbind",
    "detach",
    "append",
    "get_device",
    "untyped_storage",
    "storage",
    "storage_offset",
    "requires_grad_",
    "view_as",
    "expand",
    "transpose",
    "permute",
    "new_empty",
    "new_zeros",
    "type",
    "contiguous",
    "is_floating_point",
    "wait",
    "pop",
    "insert",
    "extend",
    "clear",
    "index",
    "get",
    "items",
    "keys",
    "values",
];

/// Methods that give another order of the elements.
const TURNS: &[&str] = &["transpose", "permute"];

/// Methods that read the elements of the tensor that they are given, to change their own.
const TAKES: &[&str] = &["copy_", "add_", "sub_", "mul_", "div_"];

pub fn unwaited(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value } = step.stmt else { continue };
        let Some(call) = raw(view, value).filter(|c| c.is_async() && c.sort != Sort::Send) else { continue };
        let Some(buffer) = call.buffer.and_then(|b| root(view, b)) else { continue };
        let plain = |l: LocalId| matches!(view.func.locals()[l].kind, LocalKind::Plain | LocalKind::Temp);
        // A handle that is dropped at once is waited for by nobody, wherever the buffer is kept.
        let dropped = view.is_temp(*dst) && view.readers(*dst).is_empty();
        if !plain(*dst) || !plain(buffer) && !dropped || !view.in_plain_contexts(i) && !view.without_gradient(i) {
            continue;
        }
        let wait = match waited(view, *dst) {
            Waited::Never if !synchronizes(view, i, *dst) => None,
            Waited::At(at) if at > i && view.steps[at].loops.starts_with(&step.loops) => Some(at),
            Waited::Elsewhere => match waited_with_others(view, i, *dst) {
                Some(at) if synchronizing(view, i, *dst).all(|sync| sync >= at) => Some(at),
                _ => {
                    out.extend(read_before_handed_on(view, (i, *dst), buffer, &call.name));
                    continue;
                }
            },
            _ => continue,
        };
        // A handle in a variable that is bound twice is that of another launch.
        if view.defs(*dst).len() > 1 && wait.is_none() {
            continue;
        }
        let until = wait.unwrap_or(view.steps.len());
        for j in i + 1..until {
            if view.defs(buffer).contains(&j) {
                break;
            }
            let later = &view.steps[j];
            let follows = later.loops.starts_with(&step.loops) && under(step, later);
            let after = wait.is_none() && step.loops.starts_with(&later.loops) && !excludes(step, later);
            if (follows || after) && reads(view, j, buffer) && !is_of_root(view, &call.name, j) {
                // What comes in from another rank is not behind what went out before.
                let behind = if call.sort == Sort::Receive && step.loops.is_empty() { i + 1 } else { 0 };
                if waits_for_others(view, *dst, behind, j) {
                    break;
                }
                let practice = Practice::ReadInFlight {
                    collective: call.name.clone(),
                    launched: view.place(step.id),
                    until: match wait {
                        Some(wait) => Until::Wait(view.place(view.steps[wait].id)),
                        None => Until::End { read: Some(view.place(later.id)) },
                    },
                    buffer: view.local_name(buffer).clone(),
                };
                out.push((if wait.is_some() { view.place(later.id) } else { view.place(step.id) }, practice));
                break;
            }
        }
    }
}

/// `self.work = dist.all_reduce(self.buffer, async_op=True)` and `self.buffer.div_(n)`: the handle is kept, and nothing between the two
/// can wait or put another buffer in its place.
pub fn written(view: &View<'_>, out: &mut Found) {
    let Some(class) = view.func.class else { return };
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value } = step.stmt else { continue };
        let Some(call) = raw(view, value).filter(|c| c.is_async() && c.sort == Sort::Everyone) else { continue };
        let kept = view.readers(*dst).iter().find_map(|s| match view.steps[*s].stmt {
            Stmt::SetAttr { base, name, .. } if near::is_self(view, base) => Some((*s, name)),
            _ => None,
        });
        let Some((kept, handle)) = kept.filter(|(_, name)| is_data(view, class, name)) else { continue };
        let Some(buffer) = call.buffer.map(|b| view.expr(b)).filter(|_| view.in_plain_contexts(i)) else { continue };
        if near::own_attribute(view, &buffer).is_none_or(|name| !is_data(view, class, name)) {
            continue;
        }
        for j in i + 1..view.steps.len() {
            let later = &view.steps[j];
            if later.guards.len() != step.guards.len() || !under(step, later) || later.loops != step.loops {
                break;
            }
            let on = match view.value(j) {
                Some(Rvalue::InPlace { left, .. }) => Some(left),
                Some(Rvalue::CallMethod { base, name, .. }) if name.ends_with('_') && name != "requires_grad_" => {
                    Some(base)
                }
                _ => None,
            };
            if on.is_some_and(|o| view.expr(o) == buffer) {
                let practice = Practice::ReadInFlight {
                    collective: call.name.clone(),
                    launched: view.place(step.id),
                    until: Until::End { read: None },
                    buffer: Name::from(buffer.last_name().unwrap_or_default()),
                };
                out.push((view.place(later.id), practice));
                break;
            }
            if j != kept && !only_looks(view, class, j, handle) {
                break;
            }
        }
    }
}

/// Whether only the rank that a broadcast sends from takes a step: its buffer stays what it is.
fn is_of_root(view: &View<'_>, collective: &str, step: usize) -> bool {
    let asks = |test: &str| test.contains("rank") && test.contains("==");
    let guards = &view.steps[step].guards;
    collective.starts_with("broadcast") && guards.iter().any(|g| g.holds && asks(view.text(view.part(g.at, 0))))
}

/// A buffer that is read before anything has got hold of the handle: `output.transpose(0, 1).contiguous()`, `Pending(result, work)`.
fn read_before_handed_on(
    view: &View<'_>,
    (launch, handle): (usize, LocalId),
    buffer: LocalId,
    collective: &Name,
) -> Option<(Place, Practice)> {
    let step = &view.steps[launch];
    let mut may_wait = Vec::new();
    for at in launch + 1..view.steps.len() {
        let later = &view.steps[at];
        if view.defs(buffer).contains(&at) || later.loops != step.loops || !under(step, later) {
            return None;
        }
        if reads(view, at, buffer) && !is_of_root(view, collective, at) {
            let before = |other: &usize| *other < at && !excludes(&view.steps[*other], later);
            let use_of = match kept_with_others(view, launch, handle).filter(before) {
                Some(kept) => kept,
                None => {
                    let handed = view.readers(handle).iter().filter(|reader| **reader > launch).any(before);
                    let after = |reader: &&usize| **reader > at && under(later, &view.steps[**reader]);
                    *view.readers(handle).iter().find(after).filter(|_| !handed)?
                }
            };
            let practice = Practice::ReadInFlight {
                collective: collective.clone(),
                launched: view.place(step.id),
                until: Until::HandedOn(view.place(view.steps[use_of].id)),
                buffer: view.local_name(buffer).clone(),
            };
            return (!may_wait.iter().any(before)).then(|| (view.place(later.id), practice));
        }
        if !never_waits(view, at) {
            may_wait.push(at);
        }
    }
    None
}

/// Where a handle is put to others, in a list or a dict that is a variable or an attribute of the object: to put it there waits for nothing.
fn kept_with_others(view: &View<'_>, launch: usize, handle: LocalId) -> Option<usize> {
    let (base, at) = put(view, launch, handle)?;
    let plain = match view.expr(base) {
        Expr::Local(local) => is_plain(view, local),
        kept => {
            let sets = near::assigned(view, view.func.class?, near::own_attribute(view, &kept)?);
            !sets.is_empty() && sets.iter().all(|(by, _, value)| near::local(value).is_some_and(|l| is_plain(by, l)))
        }
    };
    plain.then_some(at)
}

/// Whether a step makes a list or a dict. One of a class of its own may wait when something is put into it.
fn is_plain(view: &View<'_>, local: LocalId) -> bool {
    let &[step] = view.defs(local) else { return false };
    match view.value(step) {
        Some(Rvalue::Build { kind, .. }) => matches!(kind, BuildKind::List | BuildKind::Dict),
        Some(value) => {
            view.callee(value).is_some_and(|path| matches!(path.trim_start_matches("builtins."), "list" | "dict"))
        }
        // `self.works, self.n = [], n`
        None => view.bound(step, local) == Expr::Build(Vec::new()),
    }
}

/// Whether a step surely neither waits nor runs code that may.
fn never_waits(view: &View<'_>, step: usize) -> bool {
    match view.value(step) {
        Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) => {
            view.callee(value).is_some_and(|path| match path.strip_prefix('.') {
                Some(method) => HARMLESS.contains(&method) && method != "wait",
                None => path.ends_with(".get_world_size") || path.ends_with(".get_rank"),
            })
        }
        Some(_) => true,
        None => matches!(view.steps[step].stmt, Stmt::If { .. } | Stmt::Return { .. }),
    }
}

/// Whether an attribute is one that the class assigns, and no property or method.
fn is_data(view: &View<'_>, class: ClassId, name: &Name) -> bool {
    let methods = &view.project.modules[view.at.module].ir.classes[class].methods;
    methods.iter().all(|(method, _)| method != name) && !near::assigned(view, class, name).is_empty()
}

/// Whether a step surely neither waits, nor runs code that may, nor assigns an attribute.
fn only_looks(view: &View<'_>, class: ClassId, step: usize, handle: &Name) -> bool {
    let Some(value) = view.value(step) else { return false };
    match value {
        _ if near::only_tells(view, step) => true,
        Rvalue::Use(_) | Rvalue::Binary { .. } | Rvalue::Compare { .. } | Rvalue::Unary { .. } => true,
        Rvalue::Attr { base, name } => match near::is_self(view, base) {
            true => name != handle && is_data(view, class, name),
            false => matches!(view.expr(base), Expr::Path(_)),
        },
        Rvalue::Call { .. } | Rvalue::CallMethod { .. } => view.callee(value).is_some_and(|path| {
            matches!(path.as_str(), ".size" | ".numel" | ".rank")
                || path.starts_with("torch.distributed") && path.ends_with(".get_world_size")
        }),
        _ => false,
    }
}

enum Waited {
    Never,
    At(usize),
    /// It is used in another way.
    Elsewhere,
}

fn waited(view: &View<'_>, handle: LocalId) -> Waited {
    let is = |o: &Operand| matches!(o, Operand::Local(l) if *l == handle);
    let mut first = None;
    for &i in view.readers(handle) {
        match view.value(i) {
            Some(Rvalue::CallMethod { base, name, .. }) if is(base) && name == "wait" => {
                first.get_or_insert(i);
            }
            Some(Rvalue::Compare { op: CmpOp::Is | CmpOp::IsNot, .. }) => {}
            None if matches!(view.steps[i].stmt, Stmt::If { .. }) => {}
            _ => return Waited::Elsewhere,
        }
    }
    first.map_or(Waited::Never, Waited::At)
}

/// What a handle, or its future, is put into by the only step that uses it: a list that it is appended to, alone or in a tuple, or a dict.
/// With that step.
fn put<'a>(view: &View<'a>, launch: usize, handle: LocalId) -> Option<(&'a Operand, usize)> {
    let only = |local: LocalId| match *view.readers(local) {
        [at] if at > launch => Some(at),
        _ => None,
    };
    let (mut given, mut at) = (handle, only(handle)?);
    for _ in 0..2 {
        let hands_on = match view.value(at) {
            Some(Rvalue::CallMethod { name, .. }) => name == "get_future",
            Some(Rvalue::Build { kind: BuildKind::Tuple, .. }) => true,
            _ => false,
        };
        if hands_on {
            given = *view.binds(at).first()?;
            at = only(given)?;
        }
    }
    let is_given = |o: &Operand| near::local(o) == Some(given);
    match view.steps[at].stmt {
        Stmt::SetItem { base, value, .. } if is_given(value) => Some((base, at)),
        _ => match view.value(at)? {
            Rvalue::CallMethod { base, name, args } if name == "append" && args.iter().any(|a| is_given(&a.value)) => {
                Some((base, at))
            }
            _ => None,
        },
    }
}

/// Where the handles of a list or a dict are waited for, into which the only use of a handle puts it.
fn waited_with_others(view: &View<'_>, launch: usize, handle: LocalId) -> Option<usize> {
    let (base, at) = put(view, launch, handle)?;
    let all = near::local(base)?;
    let other = |j: &usize| match view.value(*j) {
        Some(Rvalue::CallMethod { name, .. }) => name != "append",
        _ => !matches!(view.steps[*j].stmt, Stmt::If { .. } | Stmt::SetItem { .. }),
    };
    // Whatever is done with them first has to be the wait, and no round of the loop comes after it.
    let mut first = view.readers(all).iter().copied().filter(other).min()?;
    if matches!(view.value(first), Some(Rvalue::CallMethod { name, .. }) if matches!(name.as_str(), "values" | "items"))
    {
        first = *view.readers(*view.binds(first).first()?).first()?;
    }
    let waits = match view.steps[first].stmt {
        Stmt::For { dst, .. } => {
            let waits = |of: LocalId| {
                let is_wait = |j: &usize| {
                    matches!(view.value(*j), Some(Rvalue::CallMethod { base, name, .. })
                        if name == "wait" && near::local(base) == Some(of))
                };
                view.readers(of).iter().any(is_wait)
            };
            let taken_apart = |j: &usize| match view.steps[*j].stmt {
                Stmt::Unpack { .. } => view.binds(*j).iter().any(|of| waits(*of)),
                _ => false,
            };
            waits(*dst) || view.readers(*dst).iter().any(taken_apart)
        }
        _ => view.value(first).and_then(|value| view.callee(value)).is_some_and(|path| path.contains("wait")),
    };
    let later = first > at && view.steps[launch].loops.starts_with(&view.steps[first].loops);
    (waits && later && !view.is_param(all)).then_some(first)
}

/// Whether something else in the function may wait. What is launched later in the background and waited for is no part of it.
fn synchronizes(view: &View<'_>, launch: usize, handle: LocalId) -> bool {
    synchronizing(view, launch, handle).next().is_some()
}

/// The steps that may wait for what is launched: those after it, and those of its loop, which come round again.
fn synchronizing<'v>(view: &'v View<'_>, launch: usize, handle: LocalId) -> impl Iterator<Item = usize> + 'v {
    let first = view.steps[launch].loops.first().copied().unwrap_or(launch);
    (first..view.steps.len()).filter(move |i| {
        let name = match view.value(*i) {
            Some(Rvalue::CallMethod { base, name, .. }) if name == "wait" && other_handle(view, base, handle) => {
                return false;
            }
            Some(Rvalue::CallMethod { name, .. }) => name.clone(),
            Some(other) => match view.callee(other) {
                Some(path) => super::lost::last(&path),
                None => return false,
            },
            None => return false,
        };
        let name = name.to_lowercase();
        ["synchron", "wait", "barrier", "stream", "finish", "flush"].iter().any(|w| name.contains(w))
    })
}

/// Whether an operand is the handle of another collective, in a variable of its own.
fn other_handle(view: &View<'_>, operand: &Operand, handle: LocalId) -> bool {
    let Operand::Local(local) = operand else { return false };
    let launch = |at: &usize| view.value(*at).and_then(|value| raw(view, value)).is_some_and(|call| call.is_async());
    *local != handle && !view.defs(*local).is_empty() && view.defs(*local).iter().all(launch)
}

/// Whether another handle may be waited for before a step: collectives of one group end in their order.
/// `behind`: the first step that may launch one of them.
pub(super) fn waits_for_others(view: &View<'_>, handle: LocalId, behind: usize, step: usize) -> bool {
    let end = if view.steps[step].loops.is_empty() { step } else { view.steps.len() };
    let later = |o: &Operand| near::local(o).is_some_and(|l| view.defs(l).iter().any(|def| *def >= behind));
    (0..end).filter_map(|i| view.value(i)).any(|value| {
        matches!(value, Rvalue::CallMethod { base, name, .. }
            if name == "wait" && later(base) && other_handle(view, base, handle))
    })
}

/// Whether the conditions of a step hold at a later one.
fn under(step: &Step<'_>, later: &Step<'_>) -> bool {
    step.guards.iter().all(|g| later.guards.iter().any(|h| h.at == g.at && h.holds == g.holds))
}

/// Whether two steps are in different branches.
pub fn excludes(step: &Step<'_>, later: &Step<'_>) -> bool {
    step.guards.iter().any(|g| later.guards.iter().any(|h| h.at == g.at && h.holds != g.holds))
}

/// Whether a step reads the elements of a variable.
pub(super) fn reads(view: &View<'_>, step: usize, buffer: LocalId) -> bool {
    let is = |o: &Operand| root(view, o) == Some(buffer);
    // What is turned is no longer in order, and put in order in a copy.
    let turned = |of: &Operand| match view.source(of) {
        Some((_, Rvalue::CallMethod { base, name, .. })) => TURNS.contains(&name.as_str()) && is(base),
        _ => false,
    };
    let copies = matches!(view.value(step), Some(Rvalue::CallMethod { base, name, .. })
        if name == "contiguous" && turned(base));
    copies || reads_what(view, step, &is)
}

/// Whether a step reads the elements of what is asked for.
pub fn reads_what(view: &View<'_>, step: usize, is: &dyn Fn(&Operand) -> bool) -> bool {
    match view.steps[step].stmt {
        Stmt::Return { value } => match view.source(value) {
            Some((_, Rvalue::Build { items, .. })) => items.iter().any(|(Item::One(o) | Item::Star(o))| is(o)),
            _ => is(value),
        },
        Stmt::Assign { value, .. } => match value {
            Rvalue::Binary { left, right, .. } | Rvalue::InPlace { left, right, .. } => is(left) || is(right),
            Rvalue::Unary { op: crate::ir::UnOp::Neg, operand } => is(operand),
            _ if raw(view, value).is_some() || view.collective(value).is_some() => false,
            Rvalue::CallMethod { base, name, .. } if is(base) => {
                !HARMLESS.contains(&name.as_str())
                    && view.rules.tensor_method(name).is_some_and(|op| op.class != OpClass::Metadata)
            }
            Rvalue::CallMethod { name, args, .. } if TAKES.contains(&name.as_str()) => {
                args.iter().any(|a| is(&a.value))
            }
            Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => {
                let op = view.callee(value).and_then(|path| view.rules.op(&path));
                let computes = op.is_some_and(|op| matches!(op.class, OpClass::Plain(_)));
                computes && args.iter().any(|a| is(&a.value))
            }
            _ => false,
        },
        _ => false,
    }
}
