//! How a rank takes its part of a sequence: two chunks, one from either end, or one run of it. In: a function. Out: indices that count the chunks from the end by the own rank
//! (`2 * size - 1 - rank`), values that are put together from such two chunks, and runs of a tensor by the own rank. Never: a rank that a
//! loop counts, which is that of each. Next: `shifted_chunks.rs`, `other_cut.rs`, which ask.

use super::expr::Expr;
use super::near;
use super::own_part::helper;
use super::view::View;
use crate::ir::{Arg, ArgKind, BinOp, BuildKind, Const, Item, LocalId, Operand, Rvalue, Stmt, UnOp};
use crate::source::Place;
use rustc_hash::FxHashSet;

const DEPTH: usize = 8;
/// Functions inside one another that are looked through.
const INNER: usize = 2;
/// Parts of names of numbers of chunks.
const CHUNKS: &[&str] = &["chunk", "chunks", "parts", "pieces", "slices", "blocks"];
/// Functions and methods that put parts together, or take several at once.
const JOINS: &[&str] = &["cat", "concat", "hstack", "stack", "index_select", "take_along_dim"];
/// Methods behind which chunks are apart again.
const APART: &[&str] = &["chunk", "split", "tensor_split", "unflatten", "view", "reshape", "unbind"];

/// A chunk that the own rank takes from the end, or the run that it takes: its rank, and the number of ranks if the code says it there.
#[derive(Clone, Debug)]
pub struct OwnCut {
    pub step: usize,
    pub rank: Expr,
    pub size: Option<Expr>,
}

/// A run of a tensor by the own rank.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    pub cut: OwnCut,
    pub of: &'a Operand,
    pub dim: Option<i64>,
}

/// A sum of multiples.
#[derive(Default)]
struct Linear {
    terms: Vec<(Expr, i64)>,
    constant: i64,
}

fn linear(view: &View<'_>, expr: &Expr, factor: i64, depth: usize, out: &mut Linear) {
    match expr {
        Expr::Const(Const::Int(n)) => out.constant += n * factor,
        Expr::Binary(op @ (BinOp::Add | BinOp::Sub), a, b) if depth > 0 => {
            linear(view, a, factor, depth - 1, out);
            let factor = if *op == BinOp::Sub { -factor } else { factor };
            linear(view, b, factor, depth - 1, out);
        }
        Expr::Binary(BinOp::Mul, a, b) if depth > 0 => match (number(view, a), number(view, b)) {
            (Some(n), _) => linear(view, b, factor * n, depth - 1, out),
            (_, Some(n)) => linear(view, a, factor * n, depth - 1, out),
            _ => out.terms.push((expr.clone(), factor)),
        },
        Expr::Unary(UnOp::Neg, a) if depth > 0 => linear(view, a, -factor, depth - 1, out),
        Expr::Unary(UnOp::Invert, a) if depth > 0 => {
            out.constant -= factor;
            linear(view, a, -factor, depth - 1, out);
        }
        _ => {
            let deep = near::deep(view, expr);
            match &deep {
                Expr::Const(_) | Expr::Binary(BinOp::Add | BinOp::Sub | BinOp::Mul, ..)
                    if deep != *expr && depth > 0 =>
                {
                    linear(view, &deep, factor, depth - 1, out);
                }
                _ => out.terms.push((expr.clone(), factor)),
            }
        }
    }
}

fn number(view: &View<'_>, expr: &Expr) -> Option<i64> {
    match near::deep(view, expr) {
        Expr::Const(Const::Int(n)) => Some(n),
        Expr::Unary(UnOp::Neg, n) => match *n {
            Expr::Const(Const::Int(n)) => Some(-n),
            _ => None,
        },
        _ => None,
    }
}

/// Whether an expression is this rank's number, and none that a loop counts.
pub fn is_own_rank(view: &View<'_>, expr: &Expr) -> bool {
    let named = |e: &Expr| view.name_or_callee(e).is_some_and(|name| near::has_part(name, "rank"));
    let deep = near::deep(view, expr);
    let counted = match expr {
        Expr::Local(l) => view.defs(*l).iter().any(|d| matches!(view.steps[*d].stmt, Stmt::For { .. })),
        _ => false,
    };
    !counted && !matches!(deep, Expr::Element(_)) && (named(expr) || named(&deep))
}

/// The chunks that the own rank takes from the end: `2 * size - 1 - rank`, `num_chunks - 1 - rank`, or `-rank - 1` as an index.
pub fn mirrors(view: &View<'_>) -> Vec<OwnCut> {
    (0..view.steps.len()).filter_map(|step| mirror(view, step)).collect()
}

fn mirror(view: &View<'_>, step: usize) -> Option<OwnCut> {
    let Stmt::Assign { dst, value: Rvalue::Binary { op: BinOp::Sub | BinOp::Add, .. } | Rvalue::Unary { .. } } =
        view.steps[step].stmt
    else {
        return None;
    };
    let mut sum = Linear::default();
    linear(view, &view.bound(step, *dst), 1, DEPTH, &mut sum);
    let (ranks, others): (Vec<_>, Vec<_>) = sum.terms.into_iter().partition(|(e, _)| is_own_rank(view, e));
    let [(rank, -1)] = &ranks[..] else { return None };
    if sum.constant != -1 {
        return None;
    }
    let size = match &others[..] {
        [] => {
            let index = |at: &usize| matches!(view.value(*at), Some(Rvalue::Item { index, .. }) if near::local(index) == Some(*dst));
            view.readers(*dst).iter().any(index).then_some(None)?
        }
        [(size, 2)] => Some(size.clone()),
        [(number, 1)] => {
            let counts = |e: &Expr| {
                e.call_of("len").is_some()
                    || view.name_of(e).is_some_and(|name| CHUNKS.iter().any(|part| near::has_part(name, part)))
            };
            (counts(number) || counts(&near::deep(view, number))).then_some(None)?
        }
        _ => return None,
    };
    Some(OwnCut { step, rank: rank.clone(), size })
}

/// Everything that some operands are made of before a step, what lists are filled with among it.
fn inputs(view: &View<'_>, operands: &[&Operand], before: usize) -> FxHashSet<LocalId> {
    let mut all = FxHashSet::default();
    operands.iter().for_each(|o| all.extend(near::reached(view, o, |def| def < before)));
    for step in &view.steps[..before] {
        match step.stmt {
            Stmt::Append { collection, value, .. } if all.contains(collection) => {
                all.extend(near::reached(view, value, |def| def < before));
            }
            Stmt::Assign { value: Rvalue::CallMethod { base, name, args }, .. }
                if name == "append" && near::local(base).is_some_and(|l| all.contains(&l)) =>
            {
                args.iter().for_each(|a| all.extend(near::reached(view, &a.value, |def| def < before)));
            }
            _ => {}
        }
    }
    all
}

/// Whether a step puts parts together, among them a chunk from the end.
fn joins(view: &View<'_>, step: usize, mirrors: &[OwnCut]) -> bool {
    let Some(value) = view.value(step) else { return false };
    let of = match value {
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => {
            let name = near::written_name(view, value).map(|name| super::lost::last(&name));
            if !name.is_some_and(|name| JOINS.contains(&name.as_str())) {
                return false;
            }
            inputs(view, &args.iter().map(|a| &a.value).collect::<Vec<_>>(), step)
        }
        Rvalue::Item { index, .. } => {
            let of = inputs(view, &[index], step);
            let listed = |l: &LocalId| {
                view.defs(*l).iter().any(|d| match view.value(*d) {
                    Some(Rvalue::Build { kind: BuildKind::List, .. }) => true,
                    Some(value) => near::written_name(view, value).is_some_and(|name| name.ends_with("tensor")),
                    None => false,
                })
            };
            if !of.iter().any(listed) {
                return false;
            }
            of
        }
        _ => return false,
    };
    mirrors.iter().any(|m| view.binds(m.step).iter().any(|l| of.contains(l)))
}

/// Where a function puts two chunks together, and which it takes from the end.
pub fn joined(view: &View<'_>) -> Option<(usize, OwnCut)> {
    let mirrors = mirrors(view);
    let first = mirrors.first()?.clone();
    (0..view.steps.len()).find(|step| joins(view, *step, &mirrors)).map(|step| (step, first))
}

/// Whether a function puts two chunks together, or calls one that does.
pub fn gives_two(view: &View<'_>, depth: usize) -> bool {
    joined(view).is_some()
        || depth > 0
            && (0..view.steps.len()).any(|step| {
                let inner = view.value(step).and_then(|value| helper(view, value));
                inner.is_some_and(|(at, _)| at != view.at && gives_two(&near::shared(view, at), depth - 1))
            })
}

/// Where a value was put together from two chunks by the own rank before a step.
pub fn two_chunks(view: &View<'_>, operand: &Operand, before: usize) -> Option<Place> {
    let of = inputs(view, &[operand], before);
    let mut steps: Vec<usize> = of.iter().flat_map(|l| view.defs(*l)).copied().filter(|d| *d < before).collect();
    // What is written into a dict comes of it as well.
    steps.extend((0..before).filter(|at| match view.steps[*at].stmt {
        Stmt::SetItem { base, .. } => near::local(base).is_some_and(|l| of.contains(&l)),
        _ => false,
    }));
    steps.sort_unstable();
    let inner =
        |step: usize| view.value(step).and_then(|value| helper(view, value)).map(|(at, _)| near::shared(view, at));
    let gathers = |step: &usize| {
        view.value(*step).is_some_and(|value| view.collective(value).is_some())
            || inner(*step).is_some_and(|inner| near::communicates(&inner))
    };
    if steps.iter().any(gathers) {
        return None;
    }
    let mirrors = mirrors(view);
    let found = steps.iter().copied().rfind(|step| match view.steps[*step].stmt {
        Stmt::SetItem { value, .. } => {
            let made = near::local(value).and_then(|l| view.last_def(l, *step));
            made.is_some_and(|made| {
                joins(view, made, &mirrors) || inner(made).is_some_and(|inner| gives_two(&inner, INNER))
            })
        }
        _ => joins(view, *step, &mirrors) || inner(*step).is_some_and(|inner| gives_two(&inner, INNER)),
    })?;
    let takes_apart = |step: &usize| {
        *step > found
            && view.value(*step).and_then(|v| near::written_name(view, v)).is_some_and(|n| APART.contains(&n.as_str()))
    };
    (!steps.iter().any(takes_apart)).then(|| view.place(view.steps[found].id))
}

/// The run of a tensor that a step takes by the own rank: `x.chunk(n, dim)[rank]`, `x[:, rank * n : (rank + 1) * n]`, `x.narrow(dim, rank * n, n)`.
pub fn run<'a>(view: &View<'a>, step: usize) -> Option<Run<'a>> {
    let dim_of = |args: &'a [Arg], at: usize| match view.argument(args, at, "dim") {
        Some(dim) => number(view, &view.expr(dim)),
        None => Some(0),
    };
    match view.value(step)? {
        Rvalue::Item { base, index } => {
            if let Some((_, value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }))) = view.source(base)
                && let Some(name) = view.callee(value)
                && matches!(name.rsplit('.').next(), Some("chunk" | "tensor_split"))
            {
                let (of, at) = match value {
                    Rvalue::CallMethod { base, .. } if name.starts_with('.') => (base, 0),
                    _ => (&args.first()?.value, 1),
                };
                let rank = view.expr(index);
                let count = view.expr(view.argument(args, at, "chunks")?);
                let mut sum = Linear::default();
                linear(view, &count, 1, DEPTH, &mut sum);
                let [(size, 1)] = &sum.terms[..] else { return None };
                let counts = CHUNKS.iter().any(|p| view.name_of(size).is_some_and(|n| near::has_part(n, p)));
                if !is_own_rank(view, &rank) || sum.constant != 0 || counts {
                    return None;
                }
                let cut = OwnCut { step, rank, size: Some(size.clone()) };
                return Some(Run { cut, of, dim: dim_of(args, at + 1) });
            }
            let (dim, start) = bounded(view, index)?;
            let rank = start_of(view, start)?;
            Some(Run { cut: OwnCut { step, rank, size: None }, of: base, dim: Some(dim) })
        }
        Rvalue::CallMethod { base, name, args } if name == "narrow" && !matches!(view.through(base), Expr::Path(_)) => {
            let rank = start_of(view, view.argument(args, 1, "start")?)?;
            Some(Run { cut: OwnCut { step, rank, size: None }, of: base, dim: dim_of(args, 0) })
        }
        _ => None,
    }
}

/// The runs that the own rank takes of what a value is made of before a step, here or in a function that this calls: where, and the dim.
pub fn runs_of(view: &View<'_>, operand: &Operand, before: usize) -> Vec<(Place, i64)> {
    let of = inputs(view, &[operand], before);
    let mut steps: Vec<usize> = of.iter().flat_map(|l| view.defs(*l)).copied().filter(|d| *d < before).collect();
    for step in &view.steps[..before] {
        if let Stmt::Append { collection, value, .. } = step.stmt
            && of.contains(collection)
        {
            steps.extend(near::local(value).and_then(|l| view.last_def(l, before)));
        }
    }
    if steps.iter().any(|step| view.value(*step).is_some_and(|value| view.collective(value).is_some())) {
        return Vec::new();
    }
    let one = |step: usize| {
        let dim = match run(view, step) {
            Some(run) => run.dim,
            None => of_call(view, step).map(|(_, dim)| dim),
        };
        Some((view.place(view.steps[step].id), dim?))
    };
    steps.into_iter().filter_map(one).collect()
}

/// The run that a call gives of its argument by the own rank, with the view of what it calls, and its dim.
pub fn of_call<'a>(view: &View<'a>, step: usize) -> Option<(std::rc::Rc<View<'a>>, i64)> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let (at, bound) = helper(view, value)?;
    let inner = near::shared(view, at);
    if !mirrors(&inner).is_empty() {
        return None;
    }
    let (end, result) = super::own_part::returned(&inner)?;
    let of = inputs(&inner, &[result], end);
    let run = of.iter().flat_map(|l| inner.defs(*l)).copied().find_map(|step| run(&inner, step))?;
    let dim = || {
        let param = inner.func.params.iter().position(|p| ["dim", "axis", "seq_dim"].contains(&p.name.as_str()))?;
        match given(&inner, inner.func.params[param].local, args, bound) {
            Some(dim) => number(view, &view.expr(dim)),
            None => match near::default_of(&inner, param)? {
                Const::Int(n) => Some(n),
                _ => None,
            },
        }
    };
    let dim = run.dim.or_else(dim)?;
    Some((inner, dim))
}

/// The rank in where a run begins: `rank * n`.
fn start_of(view: &View<'_>, start: &Operand) -> Option<Expr> {
    match near::deep(view, &view.expr(start)) {
        Expr::Binary(BinOp::Mul, a, b) => [*a, *b].into_iter().find(|e| is_own_rank(view, e)),
        _ => None,
    }
}

/// The dim of the one slice with both bounds in an index, and where it starts.
fn bounded<'a>(view: &View<'a>, index: &Operand) -> Option<(i64, &'a Operand)> {
    let slice = |o: &Operand| match view.source(o)?.1 {
        Rvalue::Build { kind: BuildKind::Slice, items } => match &items[..] {
            [Item::One(start), Item::One(stop), ..] if !view.expr(stop).is_none() => Some(start),
            _ => None,
        },
        _ => None,
    };
    match view.source(index)?.1 {
        Rvalue::Build { kind: BuildKind::Tuple, items } => items.iter().enumerate().find_map(|(at, item)| match item {
            Item::One(o) => Some((at as i64, slice(o)?)),
            Item::Star(_) => None,
        }),
        _ => Some((0, slice(index)?)),
    }
}

/// What a call gives a parameter of what it calls.
pub fn given<'a>(inner: &View<'_>, param: LocalId, args: &'a [Arg], bound: usize) -> Option<&'a Operand> {
    let at = inner.func.params.iter().position(|p| p.local == param)?;
    let name = &inner.func.params[at].name;
    let named = args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == name));
    named.or_else(|| args.get(at.checked_sub(bound)?).filter(|a| a.kind == ArgKind::Positional)).map(|a| &a.value)
}
