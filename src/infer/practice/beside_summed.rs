//! Statistics of one batch of which one is summed over the ranks and another is not. In: a method. Out: two buffers that follow statistics of the same values, where the statistic of one goes
//! through a sum over the ranks first and that of the other does not: one knows the batch of all ranks, the other that of this one. Never: a
//! statistic that anything unknown is given, a buffer that is reduced or broadcast elsewhere, and buffers that are called local.
//! Source: espnet pull request 6284. Next: `this_rank.rs`, which knows the plainest form; `running.rs`, where neither is summed.

use super::Found;
use super::expr::Expr;
use super::found::{Own, Practice};
use super::mirrored::given;
use super::near;
use super::own_part::helper;
use super::raw::raw;
use super::running::STATISTICS;
use super::view::View;
use crate::ir::{Arg, BinOp, Const, LocalId, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};
use rustc_hash::FxHashSet;

/// Methods that move a buffer.
const MOVES: &[&str] = &["lerp_", "add_", "copy_"];
/// How the code of a function shows that it changes what it is given.
const CHANGES: &[&str] = &["lerp_(", "add_(", "copy_(", "mul_("];
/// How the code of a function shows that it takes statistics.
const TAKES: &[&str] =
    &["sum(", "mean(", " @ ", "matmul(", "bincount(", "var(", "index_add_(", "scatter_add_(", "einsum("];
/// Methods that add to a tensor of this function.
const ADDS: &[&str] = &["index_add_", "scatter_add_", "scatter_reduce_"];
/// Parts of names of what may sum, or make equal.
const AGREES: &[&str] = &["reduce", "gather", "sync", "broadcast", "average", "psum"];
/// Methods and functions that give what they are given.
const SAME: &[&str] = &["contiguous", "detach", "float", "to", "double", "view", "reshape", "flatten"];
/// What shows that buffers are made equal.
const EQUAL: &[&str] = &["buffers()", "_buffers(", "broadcast_buffers=true", "broadcast_coalesced"];
/// How groups are called of which each rank has channels, codes or experts of its own, whose statistics are complete without a sum.
const PARTS: &[&str] = &["tp_group", "tensor_parallel", "tensor_model", "model_parallel", "ep_group", "expert"];
/// Parts of names of numbers that are no values of a batch.
const SETTINGS: &[&str] = &["decay", "momentum", "eps", "alpha", "group", "rank", "world", "rate", "num", "size"];
/// Parts of names of what is meant to be one rank's.
const LOCAL: &[&str] = &["local", "own", "rank", "my"];

/// A buffer that a step moves, and all that it is moved by.
struct Update {
    step: usize,
    buffer: Name,
    by: FxHashSet<LocalId>,
}

/// A sum over ranks: the variables that hold it.
struct Sum {
    step: usize,
    of: FxHashSet<LocalId>,
}

/// `all_reduce(count); ema(self.size, count); ema(self.total, onehot.t() @ x)`
pub fn statistics(view: &View<'_>, out: &mut Found) {
    if near::class_of(view).is_none() {
        return;
    }
    let text = near::bare(view.file());
    let known = |(at, practice): &(Place, Practice)| {
        let inside = at.span.start >= view.func.span.start && at.span.end <= view.func.span.end;
        inside && matches!(practice, Practice::OfThisRank(Own::Kept { .. }))
    };
    if near::has_any(&text, EQUAL) || near::has_any(view.code(), PARTS) || out.iter().any(known) {
        return;
    }
    let updates: Vec<Update> = updates(view, 1).into_iter().filter(|u| is_buffer(&text, &u.buffer)).collect();
    if updates.len() < 2 {
        return;
    }
    let sums: Vec<Sum> = (0..view.steps.len()).filter_map(|at| sum(view, at)).collect();
    let averaged = near::has_any(view.code(), &["avg", "world_size"]) && is_wrapped(&text);
    for (sum, summed) in sums.iter().flat_map(|s| updates.iter().map(move |u| (s, u))) {
        if averaged || sum.step >= summed.step || summed.by.is_disjoint(&sum.of) {
            continue;
        }
        let made: FxHashSet<LocalId> = sum.of.iter().filter(|l| summed.by.contains(l)).copied().collect();
        let left_alone = |other: &&Update| {
            let alike = other.buffer != summed.buffer && is_beside(view, &made, other, &sums);
            alike && !is_local(&other.buffer) && !is_seen_to(view, &other.buffer)
        };
        let Some(other) = updates.iter().find(left_alone) else { continue };
        let own = Own::Kept { reduced: view.place(view.steps[sum.step].id) };
        out.push((view.place(view.steps[other.step].id), Practice::OfThisRank(own)));
        return;
    }
}

fn is_local(name: &str) -> bool {
    LOCAL.iter().any(|part| near::has_part(name, part))
}

/// Whether the file wraps a model so that buffers of the first rank are broadcast.
fn is_wrapped(text: &str) -> bool {
    near::has_any(text, &["distributeddataparallel", "ddp("]) && !text.contains("broadcast_buffers=false")
}

/// Whether a class of the file keeps a tensor of that name that is not trained.
fn is_buffer(text: &str, name: &str) -> bool {
    let name = name.to_lowercase();
    let quoted = [format!("\"{name}\""), format!("'{name}'")];
    let kept = |line: &str| line.contains(&format!("self.{name} =")) && line.contains("requires_grad=false");
    text.contains("register_buffer(") && near::has_any(text, &quoted) || text.lines().any(kept)
}

/// The buffers of the own object that the steps of a method move.
fn updates(view: &View<'_>, depth: usize) -> Vec<Update> {
    (0..view.steps.len()).flat_map(|step| update(view, step, depth)).collect()
}

fn update(view: &View<'_>, step: usize, depth: usize) -> Vec<Update> {
    let all = |of: &[&Operand]| {
        let mut by = FxHashSet::default();
        of.iter().for_each(|o| by.extend(near::reached(view, o, |def| def < step)));
        by
    };
    let one = |buffer: Name, of: &[&Operand]| vec![Update { step, buffer, by: all(of) }];
    match view.steps[step].stmt {
        Stmt::SetAttr { base, name, value } if near::is_self(view, base) => {
            let by = all(&[value]);
            let itself = by.iter().any(|l| view.defs(*l).iter().any(|d| reads_own(view, *d, name)));
            if itself { vec![Update { step, buffer: name.clone(), by }] } else { Vec::new() }
        }
        Stmt::Assign { value: Rvalue::CallMethod { base, name, args }, .. } if MOVES.contains(&name.as_str()) => {
            let given: Vec<&Operand> = args.iter().map(|a| &a.value).collect();
            buffer_of(view, base, step).map_or(Vec::new(), |buffer| one(buffer, &given))
        }
        Stmt::Assign { value: Rvalue::InPlace { op: BinOp::Add, left, right }, .. } => {
            buffer_of(view, left, step).map_or(Vec::new(), |buffer| one(buffer, &[right]))
        }
        Stmt::Assign { value: value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }), .. } => {
            let Some((at, bound)) = helper(view, value) else { return Vec::new() };
            let inner = near::shared(view, at);
            if !near::has_any(inner.code(), CHANGES) && !inner.code().contains("self.") || near::communicates(&inner) {
                return Vec::new();
            }
            let direct = args.iter().find_map(|a| Some((a, buffer_of(view, &a.value, step)?)));
            if let Some((moved, buffer)) = direct.filter(|_| near::has_any(inner.code(), CHANGES)) {
                let others: Vec<&Operand> =
                    args.iter().filter(|a| !std::ptr::eq(*a, moved)).map(|a| &a.value).collect();
                return one(buffer, &others);
            }
            if bound == 0 || depth == 0 {
                return Vec::new();
            }
            of_method(&inner, args, bound, depth)
                .into_iter()
                .map(|(buffer, of)| Update { step, buffer, by: all(&of) })
                .collect()
        }
        _ => Vec::new(),
    }
}

/// The buffers that another method of the object moves by what a call gives it.
fn of_method<'a>(inner: &View<'_>, args: &'a [Arg], bound: usize, depth: usize) -> Vec<(Name, Vec<&'a Operand>)> {
    updates(inner, depth - 1)
        .into_iter()
        .map(|u| (u.buffer, u.by.iter().filter_map(|l| given(inner, *l, args, bound)).collect::<Vec<_>>()))
        .filter(|(_, of)| !of.is_empty())
        .collect()
}

/// Whether a step reads an attribute of the own object.
fn reads_own(view: &View<'_>, step: usize, attr: &str) -> bool {
    matches!(view.value(step), Some(Rvalue::Attr { base, name }) if name == attr && near::is_self(view, base))
}

/// The attribute of the own object that a value is, or a view of: `self.mean.data.mul_(decay)`.
fn buffer_of(view: &View<'_>, operand: &Operand, before: usize) -> Option<Name> {
    let mut operand = operand;
    for _ in 0..6 {
        let value = view.value(view.last_def(near::local(operand)?, before)?)?;
        operand = match value {
            Rvalue::Attr { base, name } if near::is_self(view, base) => return Some(name.clone()),
            Rvalue::Attr { base, name } if name == "data" => base,
            Rvalue::CallMethod { base, name, .. } if name.ends_with('_') || name == "detach" => base,
            Rvalue::Use(of) => of,
            _ => return None,
        };
    }
    None
}

/// The sum over ranks that a step is, by a collective or by what says that it reduces.
fn sum(view: &View<'_>, step: usize) -> Option<Sum> {
    let Stmt::Assign { dst, value: value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) } =
        view.steps[step].stmt
    else {
        return None;
    };
    let by_name = || near::written_name(view, value).is_some_and(|name| name.to_lowercase().contains("all_reduce"));
    let inner = || {
        helper(view, value).is_some_and(|(at, _)| {
            let inner = near::shared(view, at);
            near::communicates(&inner) && inner.code().contains("all_reduce")
        })
    };
    let sums = view.collective(value).map_or_else(|| by_name() || inner(), |call| call.rule.op == "all_reduce");
    if !sums {
        return None;
    }
    let mut of = FxHashSet::default();
    args.iter().for_each(|arg| same(view, &arg.value, step, &mut of));
    // What it returns is the sum as well.
    of.insert(*dst);
    for at in view.readers(*dst) {
        match view.steps[*at].stmt {
            Stmt::Unpack { before, .. } => of.extend(before.iter().copied()),
            Stmt::Assign { dst, value: Rvalue::Item { .. } | Rvalue::Use(_) } => drop(of.insert(*dst)),
            _ => {}
        }
    }
    Some(Sum { step, of })
}

/// The variables that an operand is another name of, or that it is a list of.
fn same(view: &View<'_>, operand: &Operand, before: usize, out: &mut FxHashSet<LocalId>) {
    let Some(local) = near::local(operand).filter(|l| out.insert(*l)) else { return };
    let Some(def) = view.last_def(local, before) else { return };
    match view.steps[def].stmt {
        Stmt::Assign { value: Rvalue::Use(of), .. } | Stmt::For { iter: of, .. } | Stmt::Unpack { value: of, .. } => {
            same(view, of, before, out);
        }
        Stmt::Assign { value: Rvalue::CallMethod { base, name, .. }, .. } if SAME.contains(&name.as_str()) => {
            same(view, base, before, out);
        }
        Stmt::Assign { value: Rvalue::Item { base, .. }, .. } => same(view, base, before, out),
        Stmt::Assign { value: value @ Rvalue::Build { .. }, .. } => {
            near::items(value).into_iter().flatten().for_each(|item| same(view, item, before, out));
        }
        _ => {}
    }
}

/// Whether a buffer is moved by a statistic of values from which what was summed comes too, and nothing sums it.
fn is_beside(view: &View<'_>, summed: &FxHashSet<LocalId>, other: &Update, sums: &[Sum]) -> bool {
    statistic(view, summed, other, sums).is_some_and(|at| !is_handed_on(view, other, at))
}

/// Where that statistic is taken.
fn statistic(view: &View<'_>, summed: &FxHashSet<LocalId>, other: &Update, sums: &[Sum]) -> Option<usize> {
    let is_summed = |l: &LocalId| sums.iter().any(|s| s.step < other.step && s.of.contains(l));
    let agreed = |l: &LocalId| view.defs(*l).iter().any(|d| *d < other.step && may_agree(view, *d));
    if other.by.iter().any(|l| is_summed(l) || agreed(l)) {
        return None;
    }
    let of_summed: FxHashSet<usize> = summed.iter().flat_map(|l| taken(view, *l)).collect();
    let of_other: FxHashSet<usize> = other.by.iter().flat_map(|l| taken(view, *l)).collect();
    // What was summed may be a copy of the other one.
    let mut of_other: Vec<usize> = of_other.difference(&of_summed).copied().collect();
    of_other.sort_unstable();
    let made_of_it = |at: &usize| {
        summed
            .iter()
            .any(|s| near::reached(view, &Operand::Local(*s), |_| true).iter().any(|l| view.binds(*at).contains(l)))
    };
    // What is summed along another dim than that of the samples may be split along it.
    if of_other.iter().any(made_of_it) || !of_summed.iter().chain(&of_other).all(|at| is_of_rows(view, *at)) {
        return None;
    }
    let values: FxHashSet<LocalId> = of_summed.iter().flat_map(|at| sources(view, *at)).collect();
    let alike = of_other.into_iter().find(|at| !sources(view, *at).is_disjoint(&values));
    alike.or_else(|| one_of_several(view, summed, other))
}

/// Whether a statistic is taken over the samples: along dim 0 or all dims, or as a product of matrices.
fn is_of_rows(view: &View<'_>, step: usize) -> bool {
    let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
        return true;
    };
    let Some(name) = near::written_name(view, value).map(|name| super::lost::last(&name)) else { return false };
    if !matches!(name.as_str(), "sum" | "mean" | "var" | "std" | "var_mean") {
        return true;
    }
    let of_torch = matches!(value, Rvalue::CallMethod { base, .. } if view.through(base).path().is_some())
        || matches!(value, Rvalue::Call { .. });
    let zero = |e: &Expr| *e == Expr::Const(Const::Int(0));
    match view.argument(args, usize::from(of_torch), "dim").or_else(|| view.argument(args, usize::MAX, "axis")) {
        None => true,
        Some(dim) => match view.through(dim) {
            Expr::Build(dims) => dims.iter().any(zero),
            other => zero(&other),
        },
    }
}

/// Where a function gives several statistics, of which what was summed and what moves a buffer are different ones.
fn one_of_several(view: &View<'_>, summed: &FxHashSet<LocalId>, other: &Update) -> Option<usize> {
    let from: FxHashSet<LocalId> =
        summed.iter().flat_map(|l| near::reached(view, &Operand::Local(*l), |_| true)).collect();
    (0..other.step).find(|at| {
        let Stmt::Unpack { value, before, .. } = view.steps[*at].stmt else { return false };
        let both = |l: &LocalId| from.contains(l) && other.by.contains(l);
        let apart = before.iter().any(|l| from.contains(l)) && before.iter().any(|l| other.by.contains(l));
        let call = near::local(value).and_then(|l| view.last_def(l, *at)).and_then(|def| view.value(def));
        let takes = |value| {
            helper(view, value).is_some_and(|(at, _)| {
                let inner = near::shared(view, at);
                !near::communicates(&inner) && near::has_any(inner.code(), TAKES)
            })
        };
        apart && !before.iter().any(both) && call.is_some_and(takes)
    })
}

/// The steps that take statistics from which a variable comes.
fn taken(view: &View<'_>, local: LocalId) -> Vec<usize> {
    let reached = near::reached(view, &Operand::Local(local), |_| true);
    let takes = |at: &usize| match view.value(*at) {
        Some(Rvalue::Binary { op: BinOp::MatMul, .. }) => true,
        Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) => {
            near::written_name(view, value).is_some_and(|name| {
                let name = super::lost::last(&name);
                STATISTICS.contains(&name.as_str()) || matches!(name.as_str(), "einsum" | "mm" | "square")
            })
        }
        _ => false,
    };
    let mut steps: Vec<usize> = reached.iter().flat_map(|l| view.defs(*l)).copied().filter(takes).collect();
    steps.extend(reached.iter().flat_map(|l| view.readers(*l)).copied().filter(|at| adds_to(view, *at, &reached)));
    steps
}

/// Whether a step adds something to one of some variables: `count.index_add_(0, index, ones)`.
fn adds_to(view: &View<'_>, step: usize, of: &FxHashSet<LocalId>) -> bool {
    matches!(view.value(step), Some(Rvalue::CallMethod { base, name, .. })
        if ADDS.contains(&name.as_str()) && near::local(base).is_some_and(|l| of.contains(&l)))
}

/// The values of a batch that a statistic is taken of.
fn sources(view: &View<'_>, step: usize) -> FxHashSet<LocalId> {
    let mut all = FxHashSet::default();
    view.reads(step).into_iter().for_each(|o| all.extend(near::reached(view, o, |def| def < step)));
    let setting = |l: &LocalId| {
        let name = view.local_name(*l);
        name == "self" || SETTINGS.iter().any(|part| near::has_part(name, part))
    };
    all.retain(|l| !view.is_temp(*l) && !setting(l));
    all
}

/// Whether a statistic, or what is made of it, is given to something that may sum it, or of which nothing is known.
fn is_handed_on(view: &View<'_>, update: &Update, statistic: usize) -> bool {
    let from = view.binds(statistic);
    let comes = |l: &LocalId| near::reached(view, &Operand::Local(*l), |_| true).iter().any(|r| from.contains(r));
    let chain: FxHashSet<LocalId> = update.by.iter().filter(|l| comes(l)).copied().collect();
    (statistic + 1..view.steps.len()).filter(|at| *at != update.step).any(|at| {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(at) else {
            return false;
        };
        let mut given = FxHashSet::default();
        args.iter().for_each(|arg| same(view, &arg.value, at, &mut given));
        if given.is_disjoint(&chain) {
            return false;
        }
        let known = match value {
            Rvalue::CallMethod { base, name, .. } if helper(view, value).is_none() => {
                view.rules.tensor_method(name).is_some()
                    || name.ends_with('_')
                    || view.through(base).path().is_some_and(|path| path.starts_with("torch"))
            }
            _ => helper(view, value).is_some() || view.callee(value).is_some_and(|path| path.starts_with("torch")),
        };
        !known || may_agree(view, at)
    })
}

/// Whether a step may communicate what it is given.
fn may_agree(view: &View<'_>, step: usize) -> bool {
    let Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) = view.value(step) else { return false };
    let named = |name: Name| near::has_any(&name.to_lowercase(), AGREES);
    view.collective(value).is_some()
        || raw(view, value).is_some()
        || near::written_name(view, value).is_some_and(named)
        || helper(view, value).is_some_and(|(at, _)| near::communicates(&near::shared(view, at)))
}

/// Whether anything in the file communicates a buffer.
fn is_seen_to(view: &View<'_>, buffer: &str) -> bool {
    near::functions(view, view.at.module).into_iter().any(|at| {
        let function = near::shared(view, at);
        let names = |l: &LocalId| {
            function
                .defs(*l)
                .iter()
                .any(|d| matches!(function.value(*d), Some(Rvalue::Attr { name, .. }) if name == buffer))
        };
        let own = |step: usize| {
            let args = match function.value(step) {
                Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => args,
                _ => return false,
            };
            args.iter().any(|a| {
                let mut of = FxHashSet::default();
                same(&function, &a.value, step, &mut of);
                of.iter().any(names)
            })
        };
        // What another function reads of it may be in anything that is summed there.
        let reads = || {
            if !function.code().contains("all_reduce") {
                return false;
            }
            let mut all = (0..function.steps.len()).filter_map(|step| function.value(step));
            all.any(|value| matches!(value, Rvalue::Attr { name, .. } if name == buffer))
        };
        let step = |step| may_agree(&function, step) && (own(step) || at != view.at && reads());
        (0..function.steps.len()).any(step)
    }) || is_of_the_process(view.file(), buffer)
}

/// Whether a buffer is not kept with the model: what one process looks at.
fn is_of_the_process(text: &str, buffer: &str) -> bool {
    text.lines().any(|line| line.contains("persistent=False") && line.contains(buffer))
}
