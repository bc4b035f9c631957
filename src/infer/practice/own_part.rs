//! Sums of parts that each rank cuts out at its own place. In: a function. Out: reductions over a group of a slice by the rank in that
//! group: the ranks give different positions, and the sum adds what does not belong together. Never: parts that are written into a
//! buffer of the whole, reductions over another group, maxima, or a rank's single row. Next: `near.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::view::{CollectiveCall, View};
use crate::ir::{ArgKind, BinOp, BuildKind, Const, Item, LocalId, Operand, ParamKind, Rvalue, Stmt};
use crate::project::{FuncRef, Resolved};
use crate::rules::{Entry, Gives};
use crate::source::{Name, Place};
use std::rc::Rc;

/// What tells one group from another.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Group {
    /// By the axes of a getter.
    Axes(Vec<Name>),
    /// A parameter of a function.
    Param(FuncRef, LocalId),
    /// A dim of a mesh: the mesh, and how the dim is said.
    Mesh(FuncRef, Expr, Vec<Expr>),
    /// All ranks.
    All,
}

/// How many variables, attributes and helpers are seen through.
const DEPTH: usize = 6;

/// `x = x.narrow(0, rank * n, n)`, then `all_reduce(x)` over the group of that rank.
pub fn sums(view: &View<'_>, out: &mut Found) {
    for (step, call) in view.collectives() {
        if !matches!(call.rule.op.as_str(), "all_reduce" | "reduce_scatter") || !adds(view, call) {
            continue;
        }
        let Some(input) = call.input else { continue };
        let Some((cut, sliced)) = part(view, input, *step, 0) else { continue };
        if of_collective(view, call).is_some_and(|group| group == cut) && !is_added_up(view, *step, input) {
            let collective = super::lost::last(&call.rule.name);
            out.push((view.place(view.steps[*step].id), Practice::OtherPositions { collective, sliced }));
        }
    }
}

/// Whether all that is done with a reduced part is to add up its elements: the parts are terms of one sum, whatever their positions.
fn is_added_up(view: &View<'_>, step: usize, input: &Operand) -> bool {
    let given = match (view.steps[step].stmt, input) {
        (Stmt::Assign { dst, .. }, _) if !view.readers(*dst).is_empty() => *dst,
        (_, Operand::Local(local)) => *local,
        (_, Operand::Const(_) | Operand::Global(_)) => return false,
    };
    are_added(view, step, given, 0)
}

/// Whether all that is done with a variable after a step is to add up its elements, or those of products with it.
fn are_added(view: &View<'_>, step: usize, given: LocalId, depth: usize) -> bool {
    let mut later = view.readers(given).iter().filter(|r| **r > step && !looks_only(view, **r)).peekable();
    let product = |at: usize| match view.steps[at].stmt {
        Stmt::Assign { dst, .. } => depth < DEPTH && are_added(view, at, *dst, depth + 1),
        _ => false,
    };
    let adds = |step: &usize| match view.value(*step) {
        Some(Rvalue::CallMethod { base, name, args }) if name == "sum" && *base == Operand::Local(given) => {
            is_of_first(view.argument(args, 0, "dim"))
        }
        Some(Rvalue::Binary { op: BinOp::Mul | BinOp::MatMul, .. }) => product(*step),
        Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) => {
            match view.callee(value).as_deref().map(|path| path.rsplit_once('.').unwrap_or(("", path))) {
                Some(("torch", "sum")) => is_of_first(view.argument(args, 1, "dim")),
                Some(("torch", "matmul" | "mul" | "bmm")) => product(*step),
                _ => false,
            }
        }
        _ => false,
    };
    later.peek().is_some() && later.all(adds)
}

/// Whether a sum may go over the first dim, along which parts are cut where nothing else is said.
fn is_of_first(dim: Option<&Operand>) -> bool {
    !matches!(dim, Some(Operand::Const(Const::Int(n))) if *n != 0)
}

/// Whether a reduction is a sum or a mean, as far as its arguments say.
fn adds(view: &View<'_>, call: &CollectiveCall<'_>) -> bool {
    let is_sum = |name: &str| matches!(name.to_ascii_lowercase().as_str(), "sum" | "avg" | "mean");
    call.args.iter().all(|a| {
        let named = matches!(&a.kind, ArgKind::Keyword(k) if matches!(k.as_str(), "op" | "reduceOp" | "reduce_op"));
        match view.through(&a.value) {
            Expr::Path(path) if path.contains("ReduceOp") => is_sum(path.rsplit('.').next().unwrap_or_default()),
            Expr::Const(Const::Str(text)) => is_sum(&text),
            _ => !named,
        }
    })
}

fn of_collective(view: &View<'_>, call: &CollectiveCall<'_>) -> Option<Group> {
    match call.group {
        Some(group) => match view.expr(group) {
            expr if expr.is_none() => default_of(call),
            expr => group_of(view, &expr, 0),
        },
        None => default_of(call),
    }
}

fn default_of(call: &CollectiveCall<'_>) -> Option<Group> {
    Some(match call.rule.default_group.is_empty() {
        true => Group::All,
        false => Group::Axes(call.rule.default_group.clone()),
    })
}

/// The group whose own rank decides which part of a tensor a value is, and where it is cut out.
pub(super) fn part(view: &View<'_>, operand: &Operand, before: usize, depth: usize) -> Option<(Group, Place)> {
    let Operand::Local(local) = operand else { return None };
    let step = reaching(view, *local, before)?;
    if depth > DEPTH {
        return None;
    }
    let value = view.value(step)?;
    let place = view.place(view.steps[step].id);
    let found = match value {
        Rvalue::Use(inner) => return part(view, inner, step, depth + 1),
        Rvalue::Item { base, index } => item(view, base, index, step)?,
        Rvalue::CallMethod { base, name, .. } if keeps_places(name) || name == "unsqueeze" => {
            return part(view, base, step, depth + 1);
        }
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => {
            match view.callee(value).as_deref().unwrap_or("") {
                "torch.clone" => return part(view, &args.first()?.value, step, depth + 1),
                "torch.narrow" => rank_of_start(view, view.argument(args, 2, "start")?)?,
                ".narrow" => rank_of_start(view, view.argument(args, 1, "start")?)?,
                "torch.cat" => {
                    let parts = &args.first()?.value;
                    joined(view, parts, step).or_else(|| collected(view, parts))?
                }
                _ => of_helper(view, value, args, depth)?,
            }
        }
        _ => return None,
    };
    Some((found, place))
}

/// Methods whose result has what its tensor has, at the same places.
fn keeps_places(name: &str) -> bool {
    matches!(
        name,
        "contiguous" | "clone" | "detach" | "to" | "float" | "half" | "bfloat16" | "double" | "cuda" | "type_as"
    )
}

/// The function that a call calls: of the project, one that is defined here, or a method of the own class. With how many parameters it is
/// given before the arguments.
pub(super) fn helper(view: &View<'_>, value: &Rvalue) -> Option<(FuncRef, usize)> {
    match value {
        Rvalue::CallMethod { base, name, .. } if near::is_self(view, base) => Some((near::own_method(view, name)?, 1)),
        Rvalue::CallMethod { base, name, .. } => match view.through(base) {
            Expr::Path(path) => match view.project.path(&format!("{path}.{name}")) {
                Resolved::Func(at) => Some((at, 0)),
                _ => None,
            },
            _ => None,
        },
        Rvalue::Call { callee, .. } => Some((near::function(view, callee)?, 0)),
        _ => None,
    }
}

/// The one value that a function returns, and where. What it returns as it was given to it, it returns where there is nothing to do.
pub(super) fn returned<'a>(helper: &View<'a>) -> Option<(usize, &'a Operand)> {
    let mut returns = helper.steps.iter().enumerate().filter_map(|(i, s)| match s.stmt {
        Stmt::Return { value } if !s.guards.is_empty() && is_given(helper, value) => None,
        Stmt::Return { value } => Some((i, value)),
        _ => None,
    });
    returns.next().filter(|_| returns.next().is_none())
}

/// Whether an operand is a parameter as it came in.
fn is_given(helper: &View<'_>, value: &Operand) -> bool {
    near::local(value).is_some_and(|l| helper.is_as_given(l))
}

/// What a function cuts out of its argument, by the rank in a group that it is given.
fn of_helper<'a>(view: &View<'a>, value: &'a Rvalue, args: &'a [crate::ir::Arg], depth: usize) -> Option<Group> {
    if depth > 1 {
        return None;
    }
    let (at, bound) = helper(view, value)?;
    let helper = near::other(view, at);
    let (step, value) = returned(&helper)?;
    match part(&helper, value, step, depth + 1)?.0 {
        Group::Param(func, local) if func == at => {
            let n = helper.func.params.iter().position(|p| p.local == local)?.checked_sub(bound)?;
            let given = view.argument(args, n, helper.local_name(local))?;
            group_of(view, &view.expr(given), 0)
        }
        Group::Param(..) | Group::Mesh(..) if bound == 0 => None,
        known => Some(known),
    }
}

/// Several of the parts of one split, put together, one of which is that of the rank: `cat([parts[rank], parts[2 * n - 1 - rank]])`.
fn joined(view: &View<'_>, parts: &Operand, step: usize) -> Option<Group> {
    let (made, Rvalue::Build { items, .. }) = source(view, parts, step)? else { return None };
    let mut of = None;
    let mut own = None;
    for item in items {
        let Item::One(one) = item else { return None };
        let (at, Rvalue::Item { base, index }) = source(view, one, made)? else { return None };
        let split = near::local(base)?;
        if *of.get_or_insert(split) != split {
            return None;
        }
        own = own.or_else(|| self::item(view, base, index, at));
    }
    own
}

/// The slices that are put into a list one by one, if each is one, of the sequences of a batch for example.
pub(super) fn appended<'a>(view: &View<'a>, list: &Operand) -> Option<Vec<(usize, &'a Operand, &'a Operand)>> {
    let list = near::local(list)?;
    let [made] = view.defs(list) else { return None };
    let is_empty =
        matches!(view.value(*made), Some(Rvalue::Build { kind: BuildKind::List, items }) if items.is_empty());
    let put = |step: usize| match view.value(step) {
        Some(Rvalue::CallMethod { base, name, args }) if near::local(base) == Some(list) => Some((step, name, args)),
        _ => None,
    };
    let slices = (0..view.steps.len()).filter_map(put).map(|(step, name, args)| {
        let [one] = &args[..] else { return None };
        match source(view, &one.value, step)? {
            (at, Rvalue::Item { base, index }) if name == "append" => Some((at, base, index)),
            _ => None,
        }
    });
    slices.collect::<Option<Vec<_>>>().filter(|slices| is_empty && !slices.is_empty())
}

/// The group whose rank says where the slices of a list begin: that of the first one that shows it.
fn collected(view: &View<'_>, list: &Operand) -> Option<Group> {
    appended(view, list)?.into_iter().find_map(|(at, base, index)| item(view, base, index, at))
}

/// `base[index]`, where that is one of as many parts as there are ranks, or a slice that starts at a multiple of the rank.
fn item(view: &View<'_>, base: &Operand, index: &Operand, step: usize) -> Option<Group> {
    if let Some((_, value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. }))) = source(view, base, step)
        && let Some(path) = view.callee(value)
    {
        let splits = ["chunk", "split", "tensor_split"];
        let of_tensor = path.strip_prefix('.').or_else(|| path.strip_prefix("torch."));
        if of_tensor.is_some_and(|n| splits.contains(&n)) {
            return rank_of(view, &view.expr(index), 0);
        }
    }
    if is_gradients(view, base) {
        return rank_of(view, &view.expr(index), 0);
    }
    let (made, value) = source(view, index, step)?;
    let start = |slice: &Rvalue| match slice {
        Rvalue::Build { kind: BuildKind::Slice, items } => match &items[..] {
            [Item::One(start), Item::One(stop), ..] if !view.expr(stop).is_none() => rank_of_start(view, start),
            _ => None,
        },
        _ => None,
    };
    match value {
        Rvalue::Build { kind: BuildKind::Tuple, items } => items.iter().find_map(|i| match i {
            Item::One(o) => start(source(view, o, made)?.1),
            Item::Star(_) => None,
        }),
        slice => start(slice),
    }
}

/// Whether something is the gradients of all results of an autograd function, one after another.
fn is_gradients(view: &View<'_>, base: &Operand) -> bool {
    let Operand::Local(local) = base else { return false };
    let all = |p: &crate::ir::Param| p.local == *local && p.kind == ParamKind::VarArgs;
    view.func.name == "backward"
        && view.func.class.is_some()
        && view.defs(*local).is_empty()
        && view.func.params.iter().any(all)
}

/// The operation that gave a variable its value.
fn source<'a>(view: &View<'a>, operand: &Operand, before: usize) -> Option<(usize, &'a Rvalue)> {
    let Operand::Local(local) = operand else { return None };
    let step = reaching(view, *local, before)?;
    Some((step, view.value(step)?))
}

/// The step that gave a variable its value, where that is certain and nothing has looked at the variable in between.
fn reaching(view: &View<'_>, local: LocalId, before: usize) -> Option<usize> {
    let defs = view.defs(local);
    let at = defs[..defs.partition_point(|d| *d < before)].last().copied()?;
    let (def, used) = (&view.steps[at], &view.steps[before]);
    let guarded = def.guards.len() <= used.guards.len()
        && def.guards.iter().zip(used.guards.iter()).all(|(a, b)| a.at == b.at && a.holds == b.holds);
    let readers = view.readers(local);
    let later = &readers[readers.partition_point(|r| *r <= at)..];
    let read = later.iter().take_while(|r| **r < before).any(|r| !looks_only(view, *r));
    (guarded && def.loops == used.loops && !read).then_some(at)
}

/// Parts of names of models.
const MODELS: &[&str] = &["model", "module", "actor", "net"];

/// Whether a step reads no more than an attribute or a size, or gives it to a model.
fn looks_only(view: &View<'_>, step: usize) -> bool {
    match view.value(step) {
        Some(Rvalue::Attr { .. }) => true,
        Some(Rvalue::CallMethod { name, .. }) => matches!(name.as_str(), "size" | "dim" | "numel" | "stride"),
        // A model is given it: what is computed of it is something else.
        Some(Rvalue::Call { callee, .. }) => {
            let callee = view.expr(callee);
            view.name_of(&callee).is_some_and(|name| MODELS.iter().any(|part| near::has_part(name, part)))
        }
        _ => false,
    }
}

/// The group whose rank, times something, is where a slice starts.
fn rank_of_start(view: &View<'_>, start: &Operand) -> Option<Group> {
    match near::deep(view, &view.expr(start)) {
        Expr::Binary(BinOp::Mul, a, b) => rank_of(view, &a, 0).or_else(|| rank_of(view, &b, 0)),
        Expr::Attr(base, name) => {
            let (method, value) = kept(view, &Expr::Attr(base, name))?;
            match near::deep(&method, &method.expr(value)) {
                Expr::Binary(BinOp::Mul, a, b) => rank_of(&method, &a, 0).or_else(|| rank_of(&method, &b, 0)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// What the one assignment to `self.name` gives it.
fn kept<'a>(view: &View<'a>, expr: &Expr) -> Option<(Rc<View<'a>>, &'a Operand)> {
    let name = near::own_attribute(view, expr)?;
    let mut set = near::assigned(view, near::class_of(view)?, name);
    let (method, _, value) = set.pop().filter(|_| set.is_empty())?;
    Some((method, value))
}

/// The group in which a number is the own rank.
fn rank_of(view: &View<'_>, expr: &Expr, depth: usize) -> Option<Group> {
    if depth > DEPTH {
        return None;
    }
    let expr = near::deep(view, expr);
    match &expr {
        Expr::Call { callee, args, .. } => match &**callee {
            Expr::Attr(base, name) if name == "rank" && args.is_empty() => group_of(view, base, depth + 1),
            Expr::Attr(base, name) if name == "get_local_rank" => mesh_of(view, base, args),
            callee => {
                let path = near::path(view, callee)?;
                if path == "torch.distributed.get_rank" {
                    return match &args[..] {
                        [] => Some(Group::All),
                        [(_, group)] if group.is_none() => Some(Group::All),
                        [(_, group)] => group_of(view, group, depth + 1),
                        _ => None,
                    };
                }
                by_getter(view, &path, args, Gives::Rank)
            }
        },
        Expr::Attr(..) => {
            let (method, value) = kept(view, &expr)?;
            rank_of(&method, &method.expr(value), depth + 1)
        }
        _ => None,
    }
}

fn by_getter(view: &View<'_>, path: &Name, args: &[(ArgKind, Expr)], gives: Gives) -> Option<Group> {
    match view.rules.get(path) {
        Some(Entry::Group(rule)) if rule.gives == gives && args.is_empty() => Some(Group::Axes(rule.axes.clone())),
        _ => None,
    }
}

fn group_of(view: &View<'_>, expr: &Expr, depth: usize) -> Option<Group> {
    if depth > DEPTH {
        return None;
    }
    let expr = near::deep(view, expr);
    match &expr {
        Expr::Local(local) if view.is_as_given(*local) => Some(Group::Param(view.at, *local)),
        Expr::Call { callee, args, .. } => match &**callee {
            Expr::Attr(base, name) if name == "get_group" => mesh_of(view, base, args),
            callee => by_getter(view, &near::path(view, callee)?, args, Gives::Group),
        },
        Expr::Attr(..) => {
            let (method, value) = kept(view, &expr)?;
            group_of(&method, &method.expr(value), depth + 1)
        }
        _ => None,
    }
}

fn mesh_of(view: &View<'_>, base: &Expr, args: &[(ArgKind, Expr)]) -> Option<Group> {
    let base = near::deep(view, base);
    let steady = !base.any(&mut |e| match e {
        Expr::Local(l) => !view.is_as_given(*l),
        Expr::Call { .. } | Expr::Unknown => true,
        _ => false,
    });
    let dims: Vec<Expr> = args.iter().map(|(_, a)| near::deep(view, a)).collect();
    let named = dims.iter().all(|d| matches!(d, Expr::Const(_)));
    (steady && named).then_some(Group::Mesh(view.at, base, dims))
}
