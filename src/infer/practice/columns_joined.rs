//! Columns of rows that are joined before they are gathered. In: a function that takes the cross entropy of this rank's rows against candidates of all ranks. Out: candidates of several
//! columns that each rank joins first and gathers then, where the labels of a rank begin at its rank times the rows of one column. Never: one column, labels that
//! count all rows of a rank, a gather of each column, or rows that anything has put into another order since. Source: sentence-transformers pull request 3453; torch.distributed,
//! `all_gather`. Next: `own_labels.rs`, labels that begin with the first rank's rows.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::only_some::callee;
use super::own_labels::{MOST_STEPS, SAME, TURNS, entropy, gathered, made, product};
use super::rank_tests::is_rank;
use super::unfold::{is_around, unfold};
use super::unshared::Unshared;
use super::view::{CollectiveCall, View};
use crate::ir::{ArgKind, BinOp, BuildKind, Const, Item, LocalId, Operand, Rvalue, Stmt};
use crate::rules::Form;

/// What joins rows.
const JOINS: &[&str] = &["cat", "concat", "vstack"];
/// Parts of names of columns beside the one that labels point to.
const OTHERS: &[&str] = &["neg", "negs", "negative", "negatives", "hard", "distractors"];

/// Labels that count the rows of one column: the step that makes them, and the tensor with these rows.
struct Labels {
    step: usize,
    rows: Expr,
}

/// What is joined: all but the first entries of a list, or what is written there one by one.
enum Columns {
    /// The list, and whether something is made of each entry.
    Rest(LocalId, bool),
    /// What is left of a list behind these.
    Behind(Vec<LocalId>),
    Each(Vec<Expr>),
}

/// `columns = gather(torch.cat(all[1:]))`, and `arange(n) + rank * n`, where `n` is the number of rows of `all[0]`
pub fn joined(view: &View<'_>, out: &mut Found) {
    for step in 0..view.steps.len() {
        let Some((scores, labels)) = entropy(view, step) else { continue };
        let Some(labels) = labels_of(view, &view.expr(labels), step, MOST_STEPS) else { continue };
        let Some((rows, columns)) = product(view, &view.expr(scores), step, MOST_STEPS) else { continue };
        if gathered(view, &rows.0, rows.1, MOST_STEPS).is_some() {
            continue;
        }
        let Some((gather, given)) = gather_of(view, &columns.0, columns.1, MOST_STEPS) else { continue };
        let Some(join) = join_of(view, &given, gather, MOST_STEPS) else { continue };
        if !is_asked(view, gather) && !is_asked(view, join) && are_several(view, join, &labels.rows) {
            let place = |step: usize| view.place(view.steps[step].id);
            let mistake = Unshared::ColumnsJoined { joined: place(join), counted: place(labels.step) };
            out.push((place(gather), Practice::Unshared(mistake)));
            return;
        }
    }
}

/// Whether a condition around a step asks how many there are of something.
fn is_asked(view: &View<'_>, step: usize) -> bool {
    view.steps[step].guards.iter().any(|g| near::has_any(view.text(view.part(g.at, 0)), &["len(", "num_"]))
}

/// What is asked of the value that a variable has at a step for sure.
fn always<T>(view: &View<'_>, local: LocalId, step: usize, ask: impl FnOnce(&Expr, usize) -> Option<T>) -> Option<T> {
    let def = view.last_def(local, step)?;
    if is_around(&view.steps[def], view.steps.get(step)?) { ask(&view.bound(def, local), def) } else { None }
}

/// What is asked of the values that a variable may have at a step, the last one first, back to the one that every way there has.
fn on_a_way<T>(view: &View<'_>, local: LocalId, step: usize, ask: &dyn Fn(&Expr, usize) -> Option<T>) -> Option<T> {
    for def in view.defs(local).iter().rev().copied().filter(|def| *def < step) {
        if let Some(found) = ask(&view.bound(def, local), def) {
            return Some(found);
        }
        if is_around(&view.steps[def], view.steps.get(step)?) {
            return None;
        }
    }
    None
}

/// Labels that count from this rank's rows on: `arange(n) + rank * n`, `arange(rank * n, rank * n + n)`.
fn labels_of(view: &View<'_>, labels: &Expr, step: usize, depth: usize) -> Option<Labels> {
    let depth = depth.checked_sub(1)?;
    match labels {
        Expr::Local(local) => on_a_way(view, *local, step, &|e, at| labels_of(view, e, at, depth)),
        Expr::Binary(BinOp::Add, a, b) => {
            let counts = |e: &Expr| counted(view, e, step, depth);
            let (Labels { step: at, rows }, offset) =
                counts(a).map(|labels| (labels, b)).or_else(|| counts(b).map(|labels| (labels, a)))?;
            (rows_of_ranks(view, offset, step)? == rows).then_some(Labels { step: at, rows })
        }
        Expr::Call { callee, args, step: call } => match (&**callee, positional(args)?.as_slice()) {
            (Expr::Attr(base, name), _) if SAME.contains(&name.as_str()) => labels_of(view, base, step, depth),
            (Expr::Path(path), [from, to]) if path == "torch.arange" => {
                let Expr::Binary(BinOp::Add, a, b) = to else { return None };
                let rows = rows_of_ranks(view, from, *call)?;
                let is = |start: &Expr, size: &Expr| {
                    rows_of_ranks(view, start, *call).as_ref() == Some(&rows)
                        && rows_of(view, size, *call).as_ref() == Some(&rows)
                };
                (is(a, b) || is(b, a)).then_some(Labels { step: *call, rows })
            }
            _ => None,
        },
        _ => None,
    }
}

/// `arange(n)`
fn counted(view: &View<'_>, e: &Expr, step: usize, depth: usize) -> Option<Labels> {
    let depth = depth.checked_sub(1)?;
    match e {
        Expr::Local(local) => always(view, *local, step, |e, at| counted(view, e, at, depth)),
        Expr::Call { callee, args, step: call } => match (&**callee, positional(args)?.as_slice()) {
            (Expr::Attr(base, name), _) if SAME.contains(&name.as_str()) => counted(view, base, step, depth),
            (Expr::Path(path), [size] | [Expr::Const(Const::Int(0)), size]) if path == "torch.arange" => {
                Some(Labels { step: *call, rows: rows_of(view, size, *call)? })
            }
            _ => None,
        },
        _ => None,
    }
}

/// The arguments of a call without those that say of which kind the numbers are, and where.
fn positional(args: &[(ArgKind, Expr)]) -> Option<Vec<&Expr>> {
    let mut out = Vec::new();
    for (kind, arg) in args {
        match kind {
            ArgKind::Positional => out.push(arg),
            ArgKind::Keyword(name) if matches!(name.as_str(), "device" | "dtype" | "non_blocking") => {}
            _ => return None,
        }
    }
    Some(out)
}

/// The tensor of whose rows a number is the rank's multiple; 0 without ranks.
fn rows_of_ranks(view: &View<'_>, offset: &Expr, step: usize) -> Option<Expr> {
    let zero = |e: &Expr| *e == Expr::Const(Const::Int(0));
    match offset {
        Expr::Binary(BinOp::Mul, a, b) if is_rank(view, a) => rows_of(view, b, step),
        Expr::Binary(BinOp::Mul, a, b) if is_rank(view, b) => rows_of(view, a, step),
        Expr::Choice(_, a, b) if zero(a) => rows_of_ranks(view, b, step),
        Expr::Choice(_, a, b) if zero(b) => rows_of_ranks(view, a, step),
        Expr::Local(local) if !view.is_param(*local) => {
            let mut found = None;
            for def in view.defs(*local) {
                let bound = view.bound(*def, *local);
                if zero(&bound) {
                    continue;
                }
                let rows = match bound {
                    Expr::Local(_) => return None,
                    other => rows_of_ranks(view, &other, *def)?,
                };
                if found.as_ref().is_some_and(|other| *other != rows) {
                    return None;
                }
                found = Some(rows);
            }
            found
        }
        _ => None,
    }
}

/// The tensor whose number of rows a number is; only one that has one value.
fn rows_of(view: &View<'_>, size: &Expr, step: usize) -> Option<Expr> {
    let tensor = match near::deep(view, size) {
        Expr::Item(shape, at) if *at == Expr::Const(Const::Int(0)) => match *shape {
            Expr::Attr(base, name) if name == "shape" => *base,
            Expr::Call { callee, args, .. } if args.is_empty() => match *callee {
                Expr::Attr(base, name) if name == "size" => *base,
                _ => return None,
            },
            _ => return None,
        },
        Expr::Call { callee, args, .. } => match (*callee, args.as_slice()) {
            (Expr::Attr(base, name), [(_, dim)]) if name == "size" && *dim == Expr::Const(Const::Int(0)) => *base,
            (callee, [(_, of)]) if callee.last_name() == Some("len") => of.clone(),
            _ => return None,
        },
        _ => return None,
    };
    match &tensor {
        Expr::Local(local) if view.defs(*local).iter().filter(|d| **d < step).count() > 1 => None,
        Expr::Local(local) if view.is_param(*local) && !view.defs(*local).is_empty() => None,
        _ => Some(tensor),
    }
}

/// The call that gathers candidates, rank after rank, and what it is given: on the last way that does.
fn gather_of(view: &View<'_>, candidates: &Expr, step: usize, depth: usize) -> Option<(usize, Expr)> {
    let depth = depth.checked_sub(1)?;
    let inner = |e: &Expr| gather_of(view, e, step, depth);
    match candidates {
        Expr::Local(local) => {
            if let Some(found) = written(view, *local, step, Form::IntoOutput) {
                return Some(found);
            }
            on_a_way(view, *local, step, &|e, at| gather_of(view, e, at, depth))
        }
        Expr::Attr(base, name) if name == "T" => inner(base),
        Expr::Call { callee: called, args, step: call } => {
            let last = called.last_name()?;
            match &**called {
                Expr::Attr(base, _) if SAME.contains(&last) || TURNS.contains(&last) => inner(base),
                Expr::Path(path) if path.starts_with("torch.") && JOINS.contains(&last) => {
                    let along = args.iter().skip(1).all(|(_, dim)| *dim == Expr::Const(Const::Int(0)));
                    let parts = &args.first().filter(|_| along)?.1;
                    match parts {
                        Expr::Call { args: given, step: gather, .. } => {
                            gathers(view, *gather).then_some(())?;
                            Some((*gather, given.first()?.1.clone()))
                        }
                        Expr::Local(list) => written(view, *list, *call, Form::IntoList),
                        _ => None,
                    }
                }
                _ if gathers(view, *call) => Some((*call, args.first()?.1.clone())),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The gather that fills a list or a buffer which nothing else changes, but for the own part.
fn written(view: &View<'_>, list: LocalId, before: usize, form: Form) -> Option<(usize, Expr)> {
    let fills = |(at, call): &&(usize, CollectiveCall<'_>)| {
        let into = call.output.and_then(near::local) == Some(list);
        *at < before && into && call.rule.op == "all_gather" && call.rule.form == form
    };
    let (at, call) = view.collectives().iter().find(fills)?;
    let changed = view.readers(list).iter().any(|r| match view.steps[*r].stmt {
        Stmt::SetItem { index, .. } => !is_rank(view, &view.expr(index)),
        Stmt::Assign { value: Rvalue::CallMethod { base, .. }, .. } => *base == Operand::Local(list),
        _ => false,
    });
    let given = view.expr(call.input?);
    (!changed && view.defs(list).len() == 1).then_some((*at, given))
}

/// Whether a call gathers the first of its arguments over ranks: a collective, or a function or autograd function of the project.
fn gathers(view: &View<'_>, call: usize) -> bool {
    let Some(value) = view.value(call) else { return false };
    if made(view, call, MOST_STEPS).is_none() {
        return false;
    }
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return false };
    let first = args.first().is_some_and(|a| a.kind == ArgKind::Positional);
    if view.collective(value).is_some() || matches!(value, Rvalue::CallMethod { name, .. } if name == "apply") {
        return first;
    }
    let Some(inner) = callee(view, value).map(|at| near::shared(view, at)) else { return false };
    let Some(param) = inner.func.params.get(usize::from(inner.func.class.is_some())) else { return false };
    // What gathers in there is given the tensor with its rows as they are.
    let plain = |o: &Operand, at: usize| {
        let mut given = unfold(&inner, &inner.expr(o), at);
        while let Expr::Call { callee, .. } = &given {
            match &**callee {
                Expr::Attr(base, name) if SAME.contains(&name.as_str()) => given = (**base).clone(),
                _ => break,
            }
        }
        given == Expr::Local(param.local)
    };
    let mut known = inner.collectives().iter().filter(|(_, c)| c.rule.op == "all_gather").peekable();
    first && (known.peek().is_none() || known.all(|(at, c)| c.input.is_some_and(|o| plain(o, *at))))
}

/// The step that joins several tensors, one below the other, to what a value is.
fn join_of(view: &View<'_>, given: &Expr, step: usize, depth: usize) -> Option<usize> {
    let depth = depth.checked_sub(1)?;
    match given {
        Expr::Local(local) => always(view, *local, step, |e, at| join_of(view, e, at, depth)),
        Expr::Call { callee, args, step: call } => match &**callee {
            Expr::Attr(base, name) if SAME.contains(&name.as_str()) => join_of(view, base, step, depth),
            Expr::Path(path) if path.starts_with("torch.") => {
                let last = callee.last_name()?;
                if SAME.contains(&last) {
                    return join_of(view, &args.first()?.1, step, depth);
                }
                let along = args.iter().skip(1).all(|(_, dim)| *dim == Expr::Const(Const::Int(0)));
                (JOINS.contains(&last) && along).then_some(*call)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Whether a step joins several columns, of which each has as many rows as a tensor, or the first one has.
fn are_several(view: &View<'_>, join: usize, rows: &Expr) -> bool {
    let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(join) else { return false };
    let Some(columns) = args.first().and_then(|a| columns(view, &a.value, join, MOST_STEPS)) else { return false };
    // What `rows` is made of, if that is one column.
    let whole = match rows {
        Expr::Local(local) => match view.defs(*local) {
            [def] => view.bound(*def, *local),
            _ => rows.clone(),
        },
        other => other.clone(),
    };
    let puts = |e: &Expr| JOINS.iter().chain(&["stack"]).any(|name| e.call_of(name).is_some());
    if whole.any(&mut |e| puts(e)) {
        return false;
    }
    match columns {
        Columns::Rest(list, made) => {
            let entry = |e: &Expr| match e {
                Expr::Item(base, at) => **base == Expr::Local(list) && matches!(**at, Expr::Const(Const::Int(0))),
                _ => false,
            };
            let is = if made { whole.any(&mut |e| entry(e)) } else { entry(&whole) };
            is && may_be_long(view, list)
        }
        Columns::Behind(first) => matches!(rows, Expr::Local(local) if first.contains(local)),
        Columns::Each(each) => {
            let name = |e: &Expr| view.name_or_callee(e).map(str::to_lowercase);
            let other = |e: &Expr| name(e).is_some_and(|name| OTHERS.iter().any(|part| near::has_part(&name, part)));
            each.len() > 1 && (each.contains(rows) || each.iter().any(other))
        }
    }
}

/// Whether a list may have more than two entries, as far as the file shows.
fn may_be_long(view: &View<'_>, list: LocalId) -> bool {
    let pair = |hint: &str| hint.to_lowercase().starts_with("tuple[") && !hint.contains("...");
    let hinted = view.func.params.iter().any(|p| p.local == list && p.hint.as_deref().is_some_and(pair));
    let counted = format!("len({})", view.local_name(list).to_lowercase());
    let refused = near::refusals(view.code()).any(|line| line.contains(&counted));
    let short = match view.defs(list) {
        [] => false,
        [def] => matches!(view.bound(*def, list), Expr::Build(items) if items.len() < 3),
        _ => true,
    };
    !hinted && !refused && !short
}

/// The columns of which a list consists at a step.
fn columns(view: &View<'_>, list: &Operand, step: usize, depth: usize) -> Option<Columns> {
    let depth = depth.checked_sub(1)?;
    let local = near::local(list)?;
    let def = view.last_def(local, step)?;
    if !is_around(&view.steps[def], view.steps.get(step)?) {
        return None;
    }
    match view.steps[def].stmt {
        Stmt::Unpack { before, star: Some(star), after, .. } if *star == local && after.is_empty() => {
            (before.len() == 1).then(|| Columns::Behind(before.to_vec()))
        }
        Stmt::Assign { value: Rvalue::Use(of), .. } => columns(view, of, def, depth),
        Stmt::Assign { value: Rvalue::Item { base, index }, .. } => rest(view, base, index, false),
        Stmt::Assign { value: Rvalue::Build { kind: BuildKind::List | BuildKind::Tuple, items }, .. } => {
            if items.is_empty() {
                return comprehended(view, local, step);
            }
            let each = items.iter().map(|item| match item {
                Item::One(one) | Item::Star(one) => view.expr(one),
            });
            Some(Columns::Each(each.collect()))
        }
        _ => None,
    }
}

/// All entries of a list but the first.
fn rest(view: &View<'_>, base: &Operand, index: &Operand, made: bool) -> Option<Columns> {
    let (_, Rvalue::Build { kind: BuildKind::Slice, items }) = view.source(index)? else { return None };
    let all: Option<Vec<Expr>> =
        items.iter().map(|i| if let Item::One(o) = i { Some(view.expr(o)) } else { None }).collect();
    match all?.as_slice() {
        [Expr::Const(Const::Int(1)), rest @ ..] if rest.iter().all(Expr::is_none) => {
            Some(Columns::Rest(near::local(base)?, made))
        }
        _ => None,
    }
}

/// `[f(x) for x in xs[1:]]`
fn comprehended(view: &View<'_>, list: LocalId, before: usize) -> Option<Columns> {
    let mut added = view.steps[..before]
        .iter()
        .filter(|s| matches!(s.stmt, Stmt::Append { collection, .. } if *collection == list));
    let (Some(one), None) = (added.next(), added.next()) else { return None };
    let Stmt::For { iter, .. } = view.steps[*one.loops.last()?].stmt else { return None };
    match view.source(iter)? {
        (_, Rvalue::Item { base, index }) => rest(view, base, index, true),
        _ => None,
    }
}
