//! The rank among all ranks as the place of a part of a sequence. In: a function. Out: `get_rank()` without a group, times the length of a
//! part, as the first position of that part, where the sequence is split over a group that is given; and `get_rank() // n` that picks one
//! of the parts of another group, in a file that speaks of replicas. Never: a group that may be that of all ranks.
//! Source: torch.distributed, `get_rank`. Next: `world_rank.rs`.

use super::Found;
use super::all_ranks::{is_other, may_be_all};
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::own_group::asks_world_rank;
use super::view::View;
use super::world_rank::{explicit, is_all_ranks, is_of_sequence};
use super::wrapped::given;
use crate::ir::{Arg, ArgKind, BinOp, Item, LocalId, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};
use rustc_hash::FxHashSet;
use std::rc::Rc;

/// Parts of names of tables that are read by position, and of arguments that say where a part begins.
const TABLES: &[&str] = &["cos", "sin", "freqs", "rope", "rotary", "pos", "positions", "position", "pe", "wpe"];
const STARTS: &[&str] = &["offset", "start", "pos", "position"];

/// Words of files that know of several copies of the ranks of a sequence.
const REPLICAS: &[&str] = &["data-parallel", "data parallel", "data_parallel", "dp_group", "dp_size", "replica"];

/// `positions = torch.arange(s) + dist.get_rank() * s`, where `self.cp_group` has the parts of the sequence
pub fn offsets(view: &View<'_>, out: &mut Found) {
    let Some((i, rank)) = asked(view) else { return };
    let place = view.place(view.steps[i].id);
    if out.iter().any(|(at, _)| *at == place) {
        return;
    }
    let Some(used) = begins(view, rank, i) else { return };
    if !is_named(view, used) || may_be_all(view) || takes_all(view) {
        return;
    }
    let used = view.place(view.steps[used].id);
    if let Some((group, at)) = group_of_sequence(view) {
        out.push((place, Practice::Membership(Membership::PositionsOfAll { group, at, used })));
    }
}

/// `ring_rank = dist.get_rank() // ulysses_size` and `chunks[ring_rank]`, of as many chunks as the ring has ranks
pub fn quotients(view: &View<'_>, out: &mut Found) {
    let Some((i, rank)) = asked(view) else { return };
    let may_be_whole = || {
        let text = view.file().to_lowercase();
        !near::has_any(&text, REPLICAS) || may_be_all(view) || takes_all(view)
    };
    for (at, step) in view.steps.iter().enumerate().skip(i + 1) {
        let Stmt::Assign { dst, value: Rvalue::Binary { op: BinOp::FloorDiv, left, right } } = step.stmt else {
            continue;
        };
        let is_rank = near::local(left).is_some_and(|l| l == rank);
        let Some(inner) = size(view, right).filter(|_| is_rank) else { continue };
        let held = held(view, *dst);
        let picks = |later: usize| match view.value(later) {
            Some(Rvalue::Item { base, index }) if near::local(index).is_some_and(|l| held.contains(&l)) => {
                parts(view, base).filter(|outer| *outer != inner).map(|_| view.place(view.steps[later].id))
            }
            _ => None,
        };
        let Some(picked) = (at + 1..view.steps.len()).find_map(picks) else { continue };
        if may_be_whole() {
            return;
        }
        out.push((view.place(step.id), Practice::Membership(Membership::QuotientOfAll { picked })));
        return;
    }
}

/// The first step that asks for the rank among all ranks.
fn asked(view: &View<'_>) -> Option<(usize, LocalId)> {
    view.steps.iter().enumerate().find_map(|(i, step)| match step.stmt {
        Stmt::Assign { dst, value } if asks_world_rank(view, value) => {
            // A variable that is bound to it and to nothing else.
            let named = view.steps.get(i + 1).and_then(|next| match next.stmt {
                Stmt::Assign { dst: name, value: Rvalue::Use(Operand::Local(l)) } if l == dst => Some(*name),
                _ => None,
            });
            let rank = named.unwrap_or(*dst);
            (view.defs(rank).len() == 1).then_some((i, rank))
        }
        _ => None,
    })
}

/// The names that a value goes by.
fn held(view: &View<'_>, local: LocalId) -> FxHashSet<LocalId> {
    let mut out: FxHashSet<LocalId> = [local].into_iter().collect();
    for step in &view.steps {
        match step.stmt {
            Stmt::Assign { dst, value: Rvalue::Use(Operand::Local(l)) } if out.contains(l) => {
                out.insert(*dst);
            }
            Stmt::Unpack { value, before, .. } => {
                let Some((_, Rvalue::Build { items, .. })) = view.source(value) else { continue };
                let same = |item: &Item| matches!(item, Item::One(Operand::Local(l)) if out.contains(l));
                let named: Vec<LocalId> =
                    items.iter().zip(before.iter()).filter(|(item, _)| same(item)).map(|(_, l)| *l).collect();
                out.extend(named);
            }
            _ => {}
        }
    }
    out.retain(|l| view.defs(*l).len() == 1);
    out
}

/// The size of a group of its own that a number is, as the variable that holds it: every caller gives it so.
fn size(view: &View<'_>, number: &Operand) -> Option<LocalId> {
    let local = near::local(number)?;
    let is_size = |at: &View<'_>, e: &Expr| match near::deep(at, e) {
        Expr::Call { callee, args, .. } => {
            near::path(at, &callee).is_some_and(|path| path == "torch.distributed.get_world_size")
                && args.first().is_some_and(|(_, group)| !is_all_ranks(at, group))
        }
        _ => false,
    };
    if !view.is_param(local) {
        return is_size(view, &Expr::Local(local)).then_some(local);
    }
    let callers = given(view, local);
    let all = !callers.is_empty() && callers.iter().all(|(caller, _, value)| is_size(caller, value));
    (all && view.defs(local).is_empty()).then_some(local)
}

/// The size of a group by which a value was cut into parts.
fn parts(view: &View<'_>, base: &Operand) -> Option<LocalId> {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.source(base)?.1 else { return None };
    let name = near::written_name(view, view.source(base)?.1)?;
    let cuts = matches!(name.as_str(), "chunk" | "tensor_split");
    args.iter().filter(|_| cuts).find_map(|arg| match view.source(&arg.value) {
        Some((_, Rvalue::Binary { op: BinOp::Mul, left, right })) => size(view, left).or_else(|| size(view, right)),
        _ => size(view, &arg.value),
    })
}

/// Where a rank times a length is the first position of a part.
fn begins(view: &View<'_>, rank: LocalId, from: usize) -> Option<usize> {
    let (mut held, mut firsts) = (held(view, rank), FxHashSet::<LocalId>::default());
    for later in from + 1..view.steps.len() {
        let Stmt::Assign { dst, value } = view.steps[later].stmt else { continue };
        let is = |set: &FxHashSet<LocalId>, o: &Operand| near::local(o).is_some_and(|l| set.contains(&l));
        match value {
            Rvalue::Binary { op: BinOp::Mul, left, right } if is(&held, left) || is(&held, right) => {
                let length = if is(&held, left) { right } else { left };
                if is_of_all(view, length) {
                    return None;
                }
                firsts.insert(*dst);
            }
            Rvalue::Binary { op: BinOp::Add, left, right } if is(&firsts, left) || is(&firsts, right) => {
                let other = if is(&firsts, left) { right } else { left };
                if counts_up(view, other) {
                    return Some(later);
                }
                firsts.insert(*dst);
            }
            Rvalue::Use(o) if is(&firsts, o) => {
                firsts.insert(*dst);
            }
            Rvalue::Use(o) if is(&held, o) => {
                held.insert(*dst);
            }
            Rvalue::Build { .. } if value.operands().into_iter().any(|o| is(&firsts, o)) => {
                firsts.insert(*dst);
            }
            Rvalue::Item { base, index } if is(&firsts, index) && (is_table(view, base) || counts_up(view, base)) => {
                return Some(later);
            }
            Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => {
                let given = |arg: &&Arg| is(&firsts, &arg.value);
                let first = args.first().filter(given).is_some();
                let named = args.iter().filter(given).any(|arg| match &arg.kind {
                    ArgKind::Keyword(name) => STARTS.iter().any(|word| near::has_part(name, word)),
                    _ => false,
                });
                if named || first && view.callee(value).is_some_and(|path| path == "torch.arange") {
                    return Some(later);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether what a step makes, or reads, goes by a name of positions: numbers of samples, labels and slots are counted over all ranks too.
fn is_named(view: &View<'_>, step: usize) -> bool {
    let words = || TABLES.iter().chain(STARTS);
    let named = |name: &str| words().any(|word| near::has_part(name, word));
    let read = view.reads(step).into_iter().any(|o| {
        near::local(o).is_some_and(|l| named(view.local_name(l))) || view.expr(o).last_name().is_some_and(named)
    });
    let keyword = |value: &Rvalue| match value {
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => {
            args.iter().any(|arg| matches!(&arg.kind, ArgKind::Keyword(name) if named(name)))
        }
        _ => false,
    };
    let mut made: FxHashSet<LocalId> = view.binds(step).iter().copied().collect();
    (read || view.value(step).is_some_and(keyword))
        || (step..view.steps.len()).any(|later| {
            let reads = view.reads(later).into_iter().any(|o| near::local(o).is_some_and(|l| made.contains(&l)));
            let binds = view.binds(later);
            if later > step && !reads {
                return false;
            }
            made.extend(binds.iter().copied());
            let target = match view.steps[later].stmt {
                Stmt::SetAttr { name, .. } => named(name),
                Stmt::Return { .. } => named(&view.func.name),
                _ => false,
            };
            let called = later > step && near::name_of_call(view, later).is_some_and(|name| named(&name));
            target
                || called
                || view.value(later).is_some_and(keyword)
                || binds.iter().any(|l| named(view.local_name(*l)))
        })
}

/// Whether a length is one by the number of all ranks.
fn is_of_all(view: &View<'_>, length: &Operand) -> bool {
    let says = |e: &Expr| match e {
        Expr::Call { callee, args, .. } => callee.last_name() == Some("get_world_size") && args.is_empty(),
        Expr::Local(local) => view.local_name(*local).contains("world"),
        other => other.last_name().is_some_and(|name| name == "world_size"),
    };
    near::deep(view, &view.expr(length)).any(&mut |e| says(e) || says(&near::deep(view, e)))
}

/// `torch.arange(s)`, and what is made of it.
fn counts_up(view: &View<'_>, value: &Operand) -> bool {
    let counts = |e: &Expr| e.call_of("arange").is_some();
    view.through(value).any(&mut |e| counts(e))
}

/// Whether a value is a table that is read by position.
fn is_table(view: &View<'_>, base: &Operand) -> bool {
    let named = |name: &str| TABLES.iter().any(|word| near::has_part(name, word));
    view.name_of(&view.expr(base)).is_some_and(named)
}

/// Whether the file makes a group of all ranks, or asks how many there are to split a sequence among them.
fn takes_all(view: &View<'_>) -> bool {
    let text = view.file().to_lowercase();
    let of_all = |line: &str| line.contains("range(") && near::has_any(line, &["world", "num_proc", "nproc"]);
    text.contains("get_process_group_ranks(")
        || text.match_indices("new_group(").any(|(at, word)| {
            let given = text[at + word.len()..].split('\n').next().unwrap_or_default();
            given.starts_with(')') || given.contains("world") || given.contains("range(") || text.lines().any(of_all)
        })
}

/// A group over which the function, or another method of its class, exchanges parts of a sequence: its name and where it is given.
fn group_of_sequence(view: &View<'_>) -> Option<(Name, Place)> {
    let methods = near::class_of(view).map_or_else(Vec::new, |class| near::methods(view, class));
    in_function(view).or_else(|| methods.iter().find_map(|method: &Rc<View<'_>>| in_function(method)))
}

fn in_function(view: &View<'_>) -> Option<(Name, Place)> {
    (0..view.steps.len()).find_map(|step| {
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step)? else { return None };
        let name = args.iter().find_map(|arg| of_sequence(view, &arg.value))?;
        Some((name, view.place(view.steps[step].id)))
    })
}

/// The name of a group of a sequence that is given, and is surely not that of all ranks.
fn of_sequence(view: &View<'_>, group: &Operand) -> Option<Name> {
    let expr = view.expr(group);
    let name = Name::from(view.name_or_callee(&expr)?);
    (is_of_sequence(&name) && (explicit(view, group) || is_other(view, &expr, 0))).then_some(name)
}
