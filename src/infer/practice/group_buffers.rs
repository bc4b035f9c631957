//! Buffers that are made for the ranks of one group, in a collective over all ranks. In: a function. Out: a collective without a group, of
//! which the output is as long as the size of a group says. Never: where the group may be left out on purpose: a test asks for it, or the
//! same collective is given it elsewhere in the function. And an output that is longer along another dim than the one along which the
//! collective puts the parts. Next: `own_group.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales, Unlike};
use super::near;
use super::view::View;
use crate::ir::{BinOp, Const, LocalId, Operand, Rvalue, Stmt, UnOp};
use crate::rules::{Entry, Form, Gives};
use crate::source::{Name, Place};

/// How many steps an output is followed back.
const MOST: usize = 64;

pub fn made_for_group(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        let alone = call.rule.group.is_some() && call.rule.default_group.is_empty() && call.rule.op != "layer";
        if !alone || call.group.is_some_and(|g| !view.expr(g).is_none()) {
            continue;
        }
        let Some(output) = call.output else { continue };
        let mut sizes = Sizes::default();
        behind(view, output, &mut sizes);
        let Some((size, at)) = sizes.of_group.first().filter(|_| !sizes.of_all) else { continue };
        let elsewhere =
            view.collectives().iter().any(|(j, c)| j != i && c.rule.op == call.rule.op && c.group.is_some());
        let asked = view.steps[*i]
            .guards
            .iter()
            .any(|g| view.expr(g.test).any(&mut |e| name_of(view, e).is_some_and(|n| names_group(&n))));
        if !elsewhere && !asked {
            let collective = super::lost::last(&call.rule.name);
            let mistake = Scales::BufferOfGroup { collective, size: size.clone(), made: *at };
            out.push((view.place(view.steps[*i].id), Practice::Scales(mistake)));
        }
    }
}

/// Methods and functions that put the parts of a gathered buffer in their places.
const SORTS: &[&str] = &[
    "view",
    "reshape",
    "chunk",
    "split",
    "tensor_split",
    "unbind",
    "movedim",
    "permute",
    "transpose",
    "unflatten",
    "cat",
    "rearrange",
    "view_as",
    "flatten",
    "swapaxes",
    "t",
];

/// `shape[-1] *= world_size`, and `all_gather_into_tensor` into a buffer of this shape that is used as it is.
pub fn other_dim(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        if call.rule.op != "all_gather" || call.rule.form != Form::IntoOutput {
            continue;
        }
        let Some(buffer) = call.output.and_then(near::local) else { continue };
        let [made] = view.defs(buffer) else { continue };
        let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(*made) else { continue };
        let Some(shape) = args.first().and_then(|a| near::local(&a.value)) else { continue };
        let Some((dim, grown)) = grown_dim(view, shape, *made) else { continue };
        if view.readers(buffer).iter().all(|s| *s <= *i || !sorts(view, *s)) {
            let collective = super::lost::last(&call.rule.name);
            let unlike = Unlike::Dim { collective, dim, grown };
            out.push((view.place(view.steps[*i].id), Practice::Unlike(unlike)));
        }
    }
}

/// The one dim of a list of sizes that is multiplied, unless it is the first, and where.
fn grown_dim(view: &View<'_>, shape: LocalId, before: usize) -> Option<(i64, Place)> {
    let mut all = view.steps[..before].iter().filter_map(|s| match s.stmt {
        Stmt::SetItem { base: Operand::Local(base), index, value } if *base == shape => {
            Some((view.expr(index), view.source(value), s))
        }
        _ => None,
    });
    let (index, source, step) = all.next().filter(|_| all.next().is_none())?;
    let (_, value) = source?;
    let multiplies = matches!(value, Rvalue::InPlace { op: BinOp::Mul, .. } | Rvalue::Binary { op: BinOp::Mul, .. });
    let dim = match index {
        Expr::Const(Const::Int(n)) => n,
        Expr::Unary(UnOp::Neg, inner) => match *inner {
            Expr::Const(Const::Int(n)) => -n,
            _ => return None,
        },
        _ => return None,
    };
    (multiplies && dim != 0).then(|| (dim, view.place(step.id)))
}

/// Whether a step puts what it reads into another order or shape.
fn sorts(view: &View<'_>, step: usize) -> bool {
    let name = match view.value(step) {
        Some(Rvalue::CallMethod { name, .. }) => Some(name.to_string()),
        Some(Rvalue::Call { callee, .. }) => view.through(callee).last_name().map(str::to_string),
        _ => None,
    };
    name.is_some_and(|n| SORTS.contains(&n.as_str()))
}

/// The sizes of groups that a buffer is made with.
#[derive(Default)]
struct Sizes {
    /// As written, and where.
    of_group: Vec<(Name, Place)>,
    /// The number of all ranks is among them.
    of_all: bool,
}

/// Collects the sizes of groups on the way to a value, without those that made the tensors it is shaped like.
fn behind(view: &View<'_>, output: &Operand, sizes: &mut Sizes) {
    let mut queue: Vec<LocalId> = near::local(output).into_iter().collect();
    let mut seen: Vec<LocalId> = Vec::new();
    while let Some(local) = queue.pop() {
        if seen.contains(&local) || seen.len() > MOST {
            continue;
        }
        seen.push(local);
        let push = |queue: &mut Vec<LocalId>, o: &Operand| queue.extend(near::local(o));
        for (at, step) in view.steps.iter().enumerate() {
            match step.stmt {
                Stmt::Append { collection, .. } if *collection == local => {
                    // As long as what the loop goes over.
                    for round in step.loops.iter() {
                        if let Stmt::For { iter, .. } = view.steps[*round].stmt {
                            push(&mut queue, iter);
                        }
                    }
                }
                Stmt::SetItem { base: Operand::Local(base), value, .. } if *base == local => push(&mut queue, value),
                _ if view.defs(local).contains(&at) => {
                    if let Some(value) = view.value(at) {
                        through(view, at, value, sizes, &mut queue);
                    }
                }
                _ => {}
            }
        }
    }
}

/// What makes a value: a size of a group, or operands that may hold one.
fn through(view: &View<'_>, at: usize, value: &Rvalue, sizes: &mut Sizes, queue: &mut Vec<LocalId>) {
    let mut push = |o: &Operand| queue.extend(near::local(o));
    match value {
        Rvalue::Use(o) => push(o),
        Rvalue::Binary { left, right, .. } | Rvalue::InPlace { left, right, .. } => {
            push(left);
            push(right);
        }
        Rvalue::Build { .. } => view.reads(at).into_iter().for_each(push),
        Rvalue::Item { base, .. } => push(base),
        Rvalue::Attr { .. } => {
            let expr = view.expr(&Operand::Local(match view.steps[at].stmt {
                Stmt::Assign { dst, .. } => *dst,
                _ => return,
            }));
            of_attribute(view, &expr, sizes);
        }
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => {
            match size(view, value) {
                Some(Size::All) => sizes.of_all = true,
                Some(Size::Group) => {
                    let place = view.place(view.steps[at].id);
                    sizes.of_group.push((Name::from(view.text(place)), place));
                }
                // The tensor that another one is shaped like may have any size.
                None if is_like(view, value) => {}
                None => args.iter().for_each(|a| push(&a.value)),
            }
        }
        _ => {}
    }
}

enum Size {
    All,
    Group,
}

/// Whether a call gives the number of ranks of a group, or of all.
fn size(view: &View<'_>, value: &Rvalue) -> Option<Size> {
    let (name, args) = match value {
        Rvalue::Call { callee, args } => (view.through(callee).last_name().map(str::to_string)?, args),
        Rvalue::CallMethod { name, args, base } => {
            if name == "size" && args.is_empty() && name_of(view, &view.expr(base)).is_some_and(|n| names_group(&n)) {
                return Some(Size::Group);
            }
            (name.to_string(), args)
        }
        _ => return None,
    };
    if name == "get_world_size" {
        let given = args.first().map(|a| view.expr(&a.value)).filter(|e| !e.is_none());
        return match given {
            None => Some(Size::All),
            // The group of another object may be that of all ranks.
            Some(Expr::Attr(base, _)) if !matches!(&*base, Expr::Local(l) if view.local_name(*l) == "self") => None,
            Some(_) => Some(Size::Group),
        };
    }
    let ruled = {
        let path = match value {
            Rvalue::Call { callee, .. } => near::path(view, &view.through(callee)),
            Rvalue::CallMethod { base, name, .. } => {
                view.through(base).path().map(|p| Name::from(format!("{p}.{name}")))
            }
            _ => None,
        };
        path.and_then(|p| match view.rules.get(&p) {
            Some(Entry::Group(rule)) => Some(rule.gives == Gives::Size && !rule.axes.is_empty()),
            _ => None,
        })
    };
    let named = || name.starts_with("get_") && name.ends_with("_parallel_world_size") && args.is_empty();
    ruled.unwrap_or_else(named).then_some(Size::Group)
}

/// `self.world_size`, which the class sets from the size of a group.
fn of_attribute(view: &View<'_>, expr: &Expr, sizes: &mut Sizes) {
    let (Some(name), Some(class)) = (near::own_attribute(view, expr), near::class_of(view)) else { return };
    let set = near::assigned(view, class, name);
    let [(method, _, value)] = set.as_slice() else { return };
    let Some((at, made)) = method.source(value) else { return };
    match size(method, made) {
        Some(Size::All) => sizes.of_all = true,
        Some(Size::Group) => {
            let place = method.place(method.steps[at].id);
            sizes.of_group.push((Name::from(method.text(place)), place));
        }
        None => {}
    }
}

/// Whether a call makes a tensor with the sizes of another one, or reads sizes.
fn is_like(view: &View<'_>, value: &Rvalue) -> bool {
    let name = match value {
        Rvalue::Call { callee, .. } => view.through(callee).last_name().map(str::to_string).unwrap_or_default(),
        Rvalue::CallMethod { name, .. } => name.to_string(),
        _ => return false,
    };
    name.ends_with("_like") || name == "cat" || name == "stack"
}

fn name_of(view: &View<'_>, expr: &Expr) -> Option<String> {
    match expr {
        Expr::Local(l) => Some(view.local_name(*l).as_str().to_lowercase()),
        other => other.last_name().map(str::to_lowercase),
    }
}

/// Whether a name is that of a group of ranks.
fn names_group(name: &str) -> bool {
    near::has_part(name, "group") || near::has_part(name, "pg") || near::has_part(name, "mesh")
}
