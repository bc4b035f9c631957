//! Rows that are gathered rank after rank and taken back in turns, or the other way around. In: a function. Out: rows of all ranks that are set off against each other, in the
//! order in which they were gathered, and of which each rank takes back every n-th one where its own stand in one run. Never: rows that are dealt out anew, as data
//! that goes on to a model is, or that anything has put into another order. Source: torch.distributed, `all_gather`; torch.utils.data.DistributedSampler, which
//! deals in turns. Next: `own_labels.rs`, the same of labels.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::only_some::callee;
use super::rank_tests::{is_number_of_ranks, is_rank, returned};
use super::unshared::Unshared;
use super::view::View;
use crate::ir::{ArgKind, BinOp, BuildKind, Const, Item, LocalId, Operand, Rvalue, Stmt};
use crate::source::Place;

/// How far values are followed.
const MOST: usize = 12;
/// Methods that keep the order of rows.
const KEEPS: &[&str] = &[
    "flatten",
    "squeeze",
    "unsqueeze",
    "float",
    "to",
    "double",
    "half",
    "bfloat16",
    "clamp",
    "detach",
    "clone",
    "contiguous",
    "cpu",
    "cuda",
];
/// What sets rows off against each other.
const STATISTICS: &[&str] = &["mean", "std", "var", "sum", "median", "max", "min", "amax", "amin"];
/// What part of a name says that an object gathers over all ranks.
const GATHERER: &str = "accelerator";

/// In which order rows of all ranks are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    RankAfterRank,
    InTurns,
}

/// Rows of all ranks: their order, where they are put together, and whether they were set off against each other.
#[derive(Clone, Copy)]
struct Rows {
    order: Order,
    gathered: Place,
    compared: bool,
}

/// `everything = torch.cat(parts)`, and `(everything - everything.mean())[rank::world]`
pub fn taken(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some((rows, order)) = taken_by(view, i) else { continue };
        let Some(found) = followed(view, &view.expr(rows), 0) else { continue };
        if found.order == order || !found.compared || !is_kept(view, i, 0) {
            continue;
        }
        // One row of each rank is the same row in either order.
        if near::refusals(&near::bare(view.file())).any(|line| line.contains("== 1")) {
            return;
        }
        let mistake = Unshared::TakenInTurns { taken: view.place(step.id), in_turns: order == Order::InTurns };
        out.push((found.gathered, Practice::Unshared(mistake)));
        return;
    }
}

/// The rows of which a step takes those of this rank, and the order in which that has them; also in a function of the project.
fn taken_by<'a>(view: &View<'a>, step: usize) -> Option<(&'a Operand, Order)> {
    match view.value(step)? {
        Rvalue::Item { base, index } => Some((base, part_of_rank(view, base, index)?)),
        value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => {
            let [given] = &args[..] else { return None };
            let inner = near::shared(view, callee(view, value)?);
            let param = inner.func.params.get(usize::from(inner.func.class.is_some()))?.local;
            let mut returns = inner.steps.iter().filter_map(|s| match s.stmt {
                Stmt::Return { value } => Some(value),
                _ => None,
            });
            let (_, Rvalue::Item { base, index }) = inner.source(returns.next()?)? else { return None };
            let own = *base == Operand::Local(param) && inner.is_as_given(param) && returns.next().is_none();
            Some((&given.value, part_of_rank(&inner, base, index).filter(|_| own)?))
        }
        _ => None,
    }
}

/// The order by which an index takes the rows of this rank: `[rank::world]`, `[rank * n : (rank + 1) * n]`, and `[rank]` of chunks.
fn part_of_rank(view: &View<'_>, base: &Operand, index: &Operand) -> Option<Order> {
    let rank = |e: &Expr| is_rank(view, e) || e.last_name() == Some("process_index");
    let ranks = |e: &Expr| is_number_of_ranks(view, e) || e.last_name() == Some("num_processes");
    if let Some((_, Rvalue::Build { kind: BuildKind::Slice, items })) = view.source(index) {
        let all: Option<Vec<Expr>> =
            items.iter().map(|i| if let Item::One(o) = i { Some(view.expr(o)) } else { None }).collect();
        return match all?.as_slice() {
            [start, stop, by] if stop.is_none() && rank(start) && ranks(by) => Some(Order::InTurns),
            [start, stop, rest @ ..] if rest.iter().all(Expr::is_none) && !stop.is_none() => {
                let start = near::deep(view, start);
                let times = matches!(&start, Expr::Binary(BinOp::Mul, a, b) if rank(a) || rank(b));
                times.then_some(Order::RankAfterRank)
            }
            _ => None,
        };
    }
    let by_rank = rank(&view.expr(index));
    let chunks = near::deep(view, &view.expr(base)).call_of("chunk").is_some_and(|args| {
        args.iter().any(|(_, e)| ranks(e)) && args.iter().all(|(kind, _)| *kind == ArgKind::Positional)
    });
    (by_rank && chunks).then_some(Order::RankAfterRank)
}

/// Where the rows of a value come from, if nothing has changed their order.
fn followed(view: &View<'_>, rows: &Expr, depth: usize) -> Option<Rows> {
    if depth > MOST {
        return None;
    }
    if let Some(found) = put_together(view, rows, depth) {
        return Some(found);
    }
    let deeper = |e: &Expr| followed(view, e, depth + 1);
    match rows {
        Expr::Local(local) => match view.defs(*local) {
            [one] if !view.is_param(*local) => deeper(&view.bound(*one, *local)).filter(|_| !is_changed(view, *local)),
            _ => None,
        },
        Expr::Binary(BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div, a, b) => {
            let found = match (deeper(a), deeper(b)) {
                (Some(a), Some(b)) if a.order == b.order => Rows { compared: a.compared || b.compared, ..a },
                (Some(one), None) | (None, Some(one)) => one,
                _ => return None,
            };
            let of_all = |e: &Expr| statistic_of(view, e, 0).is_some_and(|of| deeper(&of).is_some());
            Some(Rows { compared: found.compared || of_all(a) || of_all(b), ..found })
        }
        Expr::Call { callee, args, .. } => match &**callee {
            Expr::Attr(base, name) if KEEPS.contains(&name.as_str()) => deeper(base),
            Expr::Attr(base, name) if matches!(name.as_str(), "view" | "reshape") && keeps_rows(args) => deeper(base),
            _ => None,
        },
        _ => None,
    }
}

/// `view(-1, n)`, `reshape(-1)`
fn keeps_rows(args: &[(ArgKind, Expr)]) -> bool {
    args.first().is_some_and(|(_, first)| is_minus_one(first))
}

fn is_minus_one(e: &Expr) -> bool {
    super::rank_tests::whole(e) == Some(-1)
}

/// What a number is a statistic of that takes several rows together: `rows.mean()`, `rows.view(-1, n).mean(dim=1)`, with what keeps its shape.
fn statistic_of(view: &View<'_>, e: &Expr, depth: usize) -> Option<Expr> {
    if depth > MOST {
        return None;
    }
    match e {
        Expr::Local(local) => {
            let [one] = view.defs(*local) else { return None };
            statistic_of(view, &view.bound(*one, *local), depth + 1)
        }
        Expr::Binary(_, a, b) => statistic_of(view, a, depth + 1).or_else(|| statistic_of(view, b, depth + 1)),
        Expr::Call { callee, args, .. } => match &**callee {
            Expr::Attr(base, name) if STATISTICS.contains(&name.as_str()) => {
                let dim = args.iter().find(|(kind, _)| match kind {
                    ArgKind::Keyword(name) => name == "dim" || name == "axis",
                    ArgKind::Positional => true,
                    _ => false,
                });
                let of = near::deep(view, base);
                let groups = || of.call_of("view").or(of.call_of("reshape")).is_some_and(|args| args.len() > 1);
                let several = dim.is_none_or(|(_, dim)| super::rank_tests::whole(dim) == Some(0)) || groups();
                several.then(|| (**base).clone())
            }
            Expr::Attr(base, name) if name == "repeat_interleave" || name == "unsqueeze" || name == "clamp" => {
                statistic_of(view, base, depth + 1)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Whether anything writes to a variable but what makes it.
fn is_changed(view: &View<'_>, local: LocalId) -> bool {
    view.readers(local).iter().any(|r| match view.steps[*r].stmt {
        Stmt::SetItem { base, .. } => *base == Operand::Local(local),
        Stmt::Assign { value: Rvalue::CallMethod { base, name, .. }, .. } => {
            *base == Operand::Local(local) && name.ends_with('_') && !name.ends_with("__")
        }
        _ => false,
    })
}

/// Rows of all ranks as they are gathered and put together.
fn put_together(view: &View<'_>, rows: &Expr, depth: usize) -> Option<Rows> {
    match rows {
        Expr::Local(local) => {
            let (at, _) = view.collectives().iter().find(|(_, call)| {
                let into = call.output.and_then(near::local) == Some(*local);
                into && super::lost::last(&call.rule.name).contains("into_tensor") && call.rule.op == "all_gather"
            })?;
            let one = view.defs(*local).len() == 1 && !is_changed(view, *local);
            one.then(|| Rows { order: Order::RankAfterRank, gathered: view.place(view.steps[*at].id), compared: false })
        }
        Expr::Call { callee: what, args, step } => {
            let gathered = view.place(view.steps[*step].id);
            let found = |order| Some(Rows { order, gathered, compared: false });
            match &**what {
                Expr::Attr(base, name) if name == "gather" && args.len() == 1 => {
                    let of_all = view.name_of(base).is_some_and(|name| name.contains(GATHERER));
                    if of_all { found(Order::RankAfterRank) } else { None }
                }
                Expr::Attr(base, name) if matches!(name.as_str(), "reshape" | "view" | "flatten") => {
                    let stacked = near::deep(view, base);
                    let (parts, dim) = joined(&stacked, "stack")?;
                    let one_dim = name == "flatten" && args.len() != 1 || args.len() == 1 && keeps_rows(args);
                    if dim == 1 && one_dim && are_parts(view, parts) { found(Order::InTurns) } else { None }
                }
                Expr::Path(path) if path == "torch.cat" || path == "torch.concat" => {
                    let (parts, dim) = joined(rows, super::lost::last(path).as_str())?;
                    if dim == 0 && are_parts(view, parts) { found(Order::RankAfterRank) } else { None }
                }
                _ => {
                    let inner = near::shared(view, callee(view, view.value(*step)?)?);
                    if depth > 0 && inner.at == view.at || inner.func.is_generator {
                        return None;
                    }
                    let given = |e: &&Expr| !matches!(e, Expr::Local(l) if inner.is_as_given(*l));
                    let values = returned(&inner);
                    let mut all = values.iter().filter(given);
                    let first = put_together(&inner, &near::deep(&inner, all.next()?), depth + 1)?;
                    if all.next().is_some() { None } else { Some(first) }
                }
            }
        }
        _ => None,
    }
}

/// The parts that `torch.cat` or `torch.stack` joins, and along which dim.
fn joined<'e>(call: &'e Expr, name: &str) -> Option<(&'e Expr, i64)> {
    let args = call.call_of(name)?;
    let (_, parts) = args.first()?;
    let dim = args.iter().skip(1).find(|(kind, _)| match kind {
        ArgKind::Keyword(name) => name == "dim" || name == "axis",
        _ => true,
    });
    let dim = dim.map_or(Some(0), |(_, e)| match e {
        Expr::Const(Const::Int(n)) => Some(*n),
        _ => None,
    })?;
    Some((parts, dim))
}

/// Whether a list has the part of each rank, as a gather gives it and nothing else changes it.
fn are_parts(view: &View<'_>, parts: &Expr) -> bool {
    match parts {
        Expr::Local(local) => {
            let gathers = |(_, call): &(usize, super::view::CollectiveCall<'_>)| {
                call.output.and_then(near::local) == Some(*local) && call.rule.op == "all_gather"
            };
            let put = view.readers(*local).iter().any(|r| match view.steps[*r].stmt {
                Stmt::SetItem { value, .. } => near::local(value).is_none_or(|l| l != *local),
                _ => near::name_of_call(view, *r).is_some_and(|n| matches!(n.as_str(), "reverse" | "sort" | "append")),
            });
            view.collectives().iter().any(gathers) && view.defs(*local).len() == 1 && !put
        }
        _ => false,
    }
}

/// Whether what a step gives is returned, or computed with: it goes on as the numbers of this rank's own rows.
fn is_kept(view: &View<'_>, step: usize, depth: usize) -> bool {
    depth < MOST
        && view.binds(step).iter().any(|local| {
            view.readers(*local).iter().any(|r| match view.steps[*r].stmt {
                Stmt::Return { .. } => true,
                Stmt::Assign { value, .. } => match value {
                    Rvalue::Binary { .. } => true,
                    Rvalue::Use(_) => is_kept(view, *r, depth + 1),
                    Rvalue::CallMethod { name, base, .. } => {
                        *base == Operand::Local(*local)
                            && (KEEPS.contains(&name.as_str()) || name == "view" || name == "reshape")
                            && is_kept(view, *r, depth + 1)
                    }
                    _ => false,
                },
                _ => false,
            })
        })
}
