//! Blocks of other ranks that a loop takes up under names of their own, and never reads. In: a function. Out: a call in a loop over blocks that were gathered or arrive there, which is
//! given this rank's own block each time, while nothing reads its namesake of another rank: `f(query, key)` beside `next_key = blocks[i]`. Never: a
//! block of which anything is used, a loop that binds the own one again, a function that takes the time.
//! Source: diffusers issue 14265. Next: `stale_block.rs`, for what the forward has saved.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::raw::{Sort, raw};
use super::stale::measures;
use super::training::Training;
use super::view::View;
use super::wrapped::called_function;
use crate::ir::{Arg, BinOp, LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::source::Name;
use rustc_hash::FxHashSet;

/// Parts of names of the keys that go around.
pub const KEYS: &[&str] = &["key", "k_", "_k", "kv"];
/// How a round takes up a block.
pub const TAKES: &[&str] = &["gather", "recv", "rotate", "ring_"];
/// Methods whose result has the values of their tensor, in another shape or elsewhere.
const PURE: &[&str] = &[
    "reshape",
    "view",
    "contiguous",
    "clone",
    "to",
    "unbind",
    "chunk",
    "split",
    "flatten",
    "transpose",
    "float",
    "type_as",
    "unsqueeze",
    "squeeze",
];
/// Methods that say how large their tensor is.
const SIZES: &[&str] = &["numel", "size", "dim", "stride"];
/// Functions that look at no value of what they are given.
const SHAPES: &[&str] =
    &["len", "print", "isinstance", "id", "range", "zeros", "empty", "ones", "append", "save_for_backward", "del"];
/// Parts of names that say whose a block is, or which one.
const DECOR: &[&str] = &[
    "next",
    "recv",
    "received",
    "remote",
    "other",
    "peer",
    "block",
    "blk",
    "blocks",
    "step",
    "cur",
    "curr",
    "current",
    "chunk",
    "part",
    "src",
    "source",
    "gathered",
    "incoming",
    "new",
    "shard",
    "ring",
    "round",
    "local",
    "own",
    "my",
    "self",
    "orig",
    "in",
    "from",
    "i",
    "j",
    "r",
    "s",
    "t",
    "n",
    "tile",
    "piece",
    "neighbor",
    "neighbour",
    "prev",
    "for",
    "buf",
    "buffer",
    "head",
];
/// Names of one thing.
const SYNONYMS: &[(&str, &[&str])] =
    &[("k", &["key", "keys", "ks"]), ("v", &["value", "values", "val", "vals", "vs"]), ("q", &["query", "queries"])];

/// What a round of a loop takes up.
struct Arrival {
    /// The loop.
    round: usize,
    local: LocalId,
    /// The index turns with the rank: nothing else has to show that there are blocks of several ranks.
    turns: bool,
}

/// `next_key, next_value = blocks[(rank + i) % n]; dq, dk, dv = op(grad, query, key, value)`
pub fn blocks(view: &View<'_>, out: &mut Found) {
    if !near::has_any(view.code(), KEYS)
        || measures(view)
        || !view.steps.iter().any(|step| matches!(step.stmt, Stmt::For { .. } | Stmt::While { .. }))
    {
        return;
    }
    let sent = sent(view);
    let mut told = Vec::new();
    for at in 0..view.steps.len() {
        for arrival in arrivals(view, at) {
            let mut names = Vec::new();
            spread(view, arrival.local, at, &arrival, &mut names, &mut FxHashSet::default());
            let is_dead = |l: &LocalId| dead(view, *l, at, arrival.round, &mut FxHashSet::default());
            let (unread, mut alive): (Vec<LocalId>, Vec<LocalId>) = names.into_iter().partition(is_dead);
            // The gradients of blocks that nobody reads travel with them.
            let is_gradient = |l: &LocalId| {
                let name = view.local_name(*l);
                unread.iter().any(|u| {
                    let of = view.local_name(*u);
                    ["d", "d_", "grad_", "g_"].iter().any(|start| name.strip_prefix(start) == Some(of.as_str()))
                })
            };
            alive.retain(|l| !is_gradient(l));
            let Some((call, own)) = own_read(view, &arrival, (&unread, &alive), &sent) else { continue };
            let place = view.place(view.steps[call].id);
            // Of several blocks of one loop the first is enough.
            if told.contains(&arrival.round) || out.iter().any(|(known, _)| *known == place) {
                continue;
            }
            told.push(arrival.round);
            let own_names: Vec<Name> = own.iter().map(|(_, name)| name.clone()).collect();
            let mut unread: Vec<Name> = own.iter().map(|(of, _)| view.local_name(*of).clone()).collect();
            unread.dedup();
            let taken = view.place(view.steps[at].id);
            let mistake = Training::OwnBlockRead { unread, own: own_names, taken };
            out.push((place, Practice::Training(mistake)));
        }
    }
}

/// What a step takes up of another rank in a loop.
fn arrivals(view: &View<'_>, at: usize) -> Vec<Arrival> {
    let step = &view.steps[at];
    let one = |round, local, turns| vec![Arrival { round, local, turns }];
    match (step.stmt, step.loops.last()) {
        (Stmt::For { dst, iter, .. }, _) if is_gathered(view, iter, at) => one(at, *dst, false),
        (Stmt::Assign { dst, value: Rvalue::Item { base, index } }, Some(round)) => {
            let (turns, varies) = (goes_round(view, index, *round), varies(view, index, *round));
            let taken = turns || varies && is_gathered(view, base, at);
            let fills = || (0..view.steps.len()).any(|at| view.value(at).and_then(|v| filled(view, v)) == Some(*dst));
            if taken && !fills() { one(*round, *dst, turns) } else { Vec::new() }
        }
        (Stmt::Assign { dst, value: value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. }) }, Some(round)) => {
            if let Some(call) = raw(view, value).filter(|call| call.sort == Sort::Receive) {
                // An entry of a list is filled for whoever reads the list.
                let entry = |l: &LocalId| {
                    view.last_def(*l, at).is_some_and(|d| matches!(view.value(d), Some(Rvalue::Item { .. })))
                };
                return match call.buffer.and_then(near::local).filter(|l| !entry(l)) {
                    Some(buffer) => one(*round, buffer, false),
                    None => Vec::new(),
                };
            }
            if let Some(buffer) = posted(view, value) {
                return one(*round, buffer, false);
            }
            if arrives(view, value) { one(*round, *dst, false) } else { Vec::new() }
        }
        _ => Vec::new(),
    }
}

/// The variable that a message fills.
fn filled<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<LocalId> {
    let received = || raw(view, value).filter(|call| call.sort == Sort::Receive)?.buffer.and_then(near::local);
    posted(view, value).or_else(received)
}

/// The buffer of `P2POp(dist.irecv, buffer, ..)`.
fn posted(view: &View<'_>, value: &Rvalue) -> Option<LocalId> {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let [what, buffer, ..] = &args[..] else { return None };
    let receives = near::written_name(view, value)?.ends_with("P2POp")
        && view.through(&what.value).last_name().is_some_and(|name| name.contains("recv"));
    near::local(&buffer.value).filter(|_| receives)
}

/// Whether a call gives what arrives from another rank: a function of the project that communicates, or by its name.
fn arrives<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    let named = near::written_name(view, value).is_some_and(|name| {
        let name = name.to_lowercase();
        near::has_any(&name, &["send_recv", "sendrecv", "rotate", "ring_pass", "exchange", "recv_"])
    });
    let gives = |at| {
        let inner = near::other(view, at);
        near::communicates(&inner)
            && inner.steps.iter().any(|s| matches!(s.stmt, Stmt::Return { value: Operand::Local(_) }))
            && near::has_any(inner.code(), &["recv", "permute"])
    };
    named || called_function(view, value).is_some_and(gives)
}

/// Whether an index is another one in each round, by the rank: `(rank + i) % n`.
fn goes_round(view: &View<'_>, index: &Operand, round: usize) -> bool {
    let of = near::deep(view, &view.expr(index));
    let turns = of.any(&mut |e| matches!(e, Expr::Binary(BinOp::Mod, ..)));
    turns && near::names_rank(view, &of) && varies(view, index, round)
}

/// Whether an index depends on the round.
fn varies(view: &View<'_>, index: &Operand, round: usize) -> bool {
    let inside = |def: &usize| *def == round || view.steps[*def].loops.contains(&round);
    near::reached(view, index, |_| true).iter().any(|l| view.defs(*l).iter().any(inside))
}

/// Whether something holds what all ranks have: a collective or a function of the project that communicates gave it, or filled it.
fn is_gathered(view: &View<'_>, base: &Operand, before: usize) -> bool {
    let of = near::reached(view, base, |def| def < before);
    let gives = |def: &usize| {
        *def < before
            && view.value(*def).is_some_and(|value| {
                let gathers = |at| near::other(view, at).code().contains("gather");
                view.collective(value).is_some_and(|call| call.rule.op == "all_gather")
                    || called_function(view, value).is_some_and(gathers)
            })
    };
    of.iter().any(|l| view.defs(*l).iter().any(gives))
        || view.collectives().iter().any(|(at, call)| {
            *at < before && call.output.and_then(near::local).is_some_and(|output| of.contains(&output))
        })
}

/// The variables that what this function sends and gathers is made of.
fn sent(view: &View<'_>) -> FxHashSet<LocalId> {
    let mut all = FxHashSet::default();
    for step in 0..view.steps.len() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
            continue;
        };
        let inner = || called_function(view, value).is_some_and(|at| near::communicates(&near::other(view, at)));
        let posts = || near::written_name(view, value).is_some_and(|name| name.ends_with("P2POp"));
        if view.collective(value).is_some() || raw(view, value).is_some() || arrives(view, value) || posts() || inner()
        {
            args.iter().for_each(|arg| all.extend(near::reached(view, &arg.value, |_| true)));
        }
    }
    let of_context = |l: &LocalId| ["ctx", "self", "cls"].contains(&view.local_name(*l).as_str());
    all.retain(|l| !of_context(l));
    all
}

/// The variables into which a step puts a block or its parts.
fn spread(
    view: &View<'_>,
    local: LocalId,
    step: usize,
    arrival: &Arrival,
    names: &mut Vec<LocalId>,
    seen: &mut FxHashSet<LocalId>,
) {
    if !seen.insert(local) {
        return;
    }
    if !view.is_temp(local) && !view.local_name(local).starts_with('_') {
        names.push(local);
    }
    for at in view.readers(local).iter().filter(|at| **at >= step && view.steps[**at].loops.contains(&arrival.round)) {
        match view.steps[*at].stmt {
            Stmt::Assign { dst, value: Rvalue::Item { .. } | Rvalue::Use(_) } => {
                spread(view, *dst, *at, arrival, names, seen);
            }
            Stmt::Assign { dst, value: Rvalue::CallMethod { name, .. } } if PURE.contains(&name.as_str()) => {
                spread(view, *dst, *at, arrival, names, seen);
            }
            Stmt::Unpack { before, star, after, .. } => {
                before.iter().chain(star).chain(after.iter()).for_each(|l| spread(view, *l, *at, arrival, names, seen));
            }
            Stmt::Assign { dst, .. } => {
                for (local, at) in beside(view, local, *at, *dst).into_iter().flatten() {
                    spread(view, local, at, arrival, names, seen);
                }
            }
            _ => {}
        }
    }
}

/// The variables to which a value goes in `a, b = f(x), f(y)`, and the steps that bind them; nothing if the tuple goes anywhere else.
fn beside(view: &View<'_>, local: LocalId, step: usize, tuple: LocalId) -> Option<Vec<(LocalId, usize)>> {
    let items = near::items(view.value(step)?).filter(|_| view.is_temp(tuple))?;
    let bound = view.readers(tuple).iter().map(|at| match view.steps[*at].stmt {
        Stmt::Unpack { before, star: None, after, .. } if after.is_empty() && before.len() == items.len() => Some(
            items
                .iter()
                .zip(before.iter())
                .filter(|(item, _)| near::local(item) == Some(local))
                .map(|(_, to)| (*to, *at)),
        ),
        _ => None,
    });
    Some(bound.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Whether nothing comes of a variable, in its loop or behind it: it is taken apart, and the parts are left alone.
fn dead(view: &View<'_>, local: LocalId, step: usize, round: usize, seen: &mut FxHashSet<LocalId>) -> bool {
    if !seen.insert(local) {
        return true;
    }
    if matches!(view.func.locals()[local].kind, LocalKind::Cell | LocalKind::Captured) {
        return false;
    }
    let later = |at: &&usize| **at > round && (**at > step || view.steps[**at].loops.contains(&round));
    view.readers(local).iter().filter(later).all(|at| match view.steps[*at].stmt {
        Stmt::Assign { dst, value } => match value {
            Rvalue::CallMethod { name, .. } if SIZES.contains(&name.as_str()) => true,
            Rvalue::Attr { name, .. } => matches!(name.as_str(), "shape" | "dtype" | "device"),
            Rvalue::CallMethod { base, name, .. } if near::local(base) == Some(local) => {
                PURE.contains(&name.as_str()) && dead(view, *dst, *at, round, seen)
            }
            Rvalue::Item { .. } | Rvalue::Use(_) => dead(view, *dst, *at, round, seen),
            Rvalue::Build { .. } if goes_on(view, *dst, local) => true,
            Rvalue::Build { .. } => beside(view, local, *at, *dst)
                .is_some_and(|all| all.into_iter().all(|(l, at)| dead(view, l, at, round, seen))),
            Rvalue::Call { .. } | Rvalue::CallMethod { .. } => {
                filled(view, value) == Some(local) || arrives(view, value) && gives(view, *dst, local)
            }
            _ => false,
        },
        Stmt::Unpack { before, star, after, .. } => {
            before.iter().chain(star).chain(after.iter()).all(|l| dead(view, *l, *at, round, seen))
        }
        _ => false,
    })
}

/// Whether a list goes nowhere but to the next rank, of which comes what a variable is then: `k, v = rotate([k, v])`.
fn goes_on(view: &View<'_>, list: LocalId, local: LocalId) -> bool {
    let on = |at: &usize| match view.steps[*at].stmt {
        Stmt::Assign { dst, value } => arrives(view, value) && gives(view, *dst, local),
        _ => false,
    };
    view.is_temp(list) && !view.readers(list).is_empty() && view.readers(list).iter().all(on)
}

/// Whether a variable is bound anew to what a call gives, or to a part of it.
fn gives(view: &View<'_>, result: LocalId, local: LocalId) -> bool {
    let unpacks = |at: &usize| match view.steps[*at].stmt {
        Stmt::Unpack { before, after, .. } => before.iter().chain(after.iter()).any(|l| *l == local),
        Stmt::Assign { dst, value: Rvalue::Use(_) | Rvalue::Item { .. } } => *dst == local,
        _ => false,
    };
    result == local || view.readers(result).iter().any(unpacks)
}

/// A call of a round that is given this rank's own blocks: for each the namesake that nobody reads, and its own name.
fn own_read(
    view: &View<'_>,
    arrival: &Arrival,
    (unread, alive): (&[LocalId], &[LocalId]),
    sent: &FxHashSet<LocalId>,
) -> Option<(usize, Vec<(LocalId, Name)>)> {
    if unread.is_empty() {
        return None;
    }
    let rebound = |l: LocalId| {
        view.defs(l).iter().any(|def| *def == arrival.round || view.steps[*def].loops.contains(&arrival.round))
    };
    let is_sent = |l: LocalId| {
        let of = near::reached(view, &Operand::Local(l), |_| true);
        of.iter().any(|l| sent.contains(l))
    };
    let owned = |expr: &Expr| match expr {
        Expr::Local(l) => (!rebound(*l) && (arrival.turns || is_sent(*l))).then(|| view.local_name(*l).clone()),
        Expr::Attr(base, name) => match &**base {
            Expr::Local(l) if !rebound(*l) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    };
    (arrival.round + 1..view.steps.len()).find_map(|at| {
        if !view.steps[at].loops.contains(&arrival.round) {
            return None;
        }
        let given: Vec<Expr> = computes(view, at)?.into_iter().map(|o| bare(view.expr(o))).collect();
        // Of some blocks that are read the others are left out on purpose, but where both meet.
        let beside = alive.is_empty() || alive.iter().any(|l| given.iter().any(|e| e.mentions(*l)));
        let names: Vec<Name> = given.iter().filter_map(owned).collect();
        let mut own = Vec::new();
        for of in unread {
            own.extend(namesakes(view.local_name(*of), &names).into_iter().map(|name| (*of, name)));
        }
        // What several blocks are put together in has no more to say than these.
        let whole = |(of, _): &(LocalId, Name)| stem(view.local_name(*of)).as_deref() == Some("kv");
        if own.iter().any(|pair| !whole(pair)) {
            own.retain(|pair| !whole(pair));
        }
        (beside && !own.is_empty()).then_some((at, own))
    })
}

/// The operands of a step that computes something of them on this rank.
fn computes<'a>(view: &View<'a>, at: usize) -> Option<Vec<&'a Operand>> {
    match view.value(at)? {
        Rvalue::Binary { op: BinOp::MatMul, left, right } => Some(vec![left, right]),
        value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => {
            let name = near::written_name(view, value)?;
            let communicates =
                || called_function(view, value).is_some_and(|f| near::communicates(&near::other(view, f)));
            let idle = SHAPES.contains(&name.as_str())
                || name.ends_with("_like")
                || name.ends_with('_')
                || name.to_lowercase().contains("log")
                || view.collective(value).is_some()
                || raw(view, value).is_some()
                || arrives(view, value)
                || name.ends_with("P2POp")
                || communicates();
            let of: Vec<&Operand> = args.iter().map(|a: &Arg| &a.value).collect();
            (!idle && !of.is_empty()).then_some(of)
        }
        _ => None,
    }
}

/// The variable or attribute of which a value is another view: `key` of `key.transpose(-1, -2)`.
fn bare(expr: Expr) -> Expr {
    match expr {
        Expr::Call { callee, .. } if matches!(&*callee, Expr::Attr(..)) => match *callee {
            Expr::Attr(base, _) => bare(*base),
            other => other,
        },
        Expr::Item(base, _) => bare(*base),
        other => other,
    }
}

/// Those of some names that say the same as another but for whose it is: `key` and `value` of `next_kv`, `key` of `next_key`.
fn namesakes(of: &str, names: &[Name]) -> Vec<Name> {
    let Some(stem) = stem(of) else { return Vec::new() };
    let like =
        |wanted: &str| names.iter().find(|name| *name != of && self::stem(name).as_deref() == Some(wanted)).cloned();
    if stem == "kv" {
        return match (like("k"), like("v")) {
            (Some(k), Some(v)) => vec![k, v],
            _ => like("kv").into_iter().collect(),
        };
    }
    like(&stem).into_iter().collect()
}

/// What a name says beside whose it is.
fn stem(name: &str) -> Option<String> {
    let lower = name.to_lowercase();
    let parts: Vec<&str> = lower
        .split('_')
        .map(|part| part.trim_end_matches(|c: char| c.is_ascii_digit()))
        .filter(|part| !part.is_empty() && !DECOR.contains(part))
        .map(|part| SYNONYMS.iter().find(|(_, all)| all.contains(&part)).map_or(part, |(one, _)| one))
        .map(|part| if ["ki", "kj", "kr"].contains(&part) { "k" } else { part })
        .map(|part| if ["vi", "vj", "vr"].contains(&part) { "v" } else { part })
        .collect();
    (!parts.is_empty()).then(|| parts.join("_"))
}

#[cfg(test)]
mod tests {
    use super::{namesakes, stem};
    use crate::source::Name;

    #[test]
    fn names_say_whose_a_block_is() {
        assert_eq!(stem("next_key"), stem("k"));
        assert_eq!(stem("v_block_0"), stem("local_value"));
        assert_eq!(stem("i"), None);
        let own = ["query", "key", "value"].map(Name::from);
        assert_eq!(namesakes("k_i", &own), [Name::from("key")]);
        assert_eq!(namesakes("kv_block", &own), [Name::from("key"), Name::from("value")]);
        assert!(namesakes("mask_i", &own).is_empty());
    }
}
