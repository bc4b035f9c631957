//! Ranks that come in another order, or each with another root. In: a function. Out: two branches of a test of the rank that call the same
//! collectives in different orders; a collective whose source or destination is whatever rank executes it. Never: branches that call
//! anything else which may communicate, messages between two ranks, or a call that only some ranks come to. Source: torch.distributed,
//! "Collective functions": every rank of the group calls them in one order, and names one `src` or `dst`. Next: `ranks.rs`.

use super::Found;
use super::called::sites;
use super::coming::Coming;
use super::expr::Expr;
use super::fixed_source::ROOTS;
use super::found::Practice;
use super::near;
use super::rank_tests::{Test, test};
use super::ranks::{decided, is_lone_job, without_group};
use super::raw::{Raw, Sort, raw};
use super::view::{Guard, View};
use crate::ir::{Rvalue, StmtId};
use crate::rules::Entry;
use crate::source::Place;
use rustc_hash::FxHashSet;

/// Methods and functions that talk to nobody.
const SILENT: &[&str] = &["print", "info", "warning", "debug", "append", "item", "format", "wait", "clone", "detach"];

/// A collective of one branch.
struct Call<'a> {
    step: usize,
    call: Raw<'a>,
}

/// `if rank == 0: all_reduce(a); broadcast(b, 0)`, and the other way round on the others.
pub fn branches(view: &View<'_>, out: &mut Found) {
    if view.func.is_generator || is_lone_job(view) {
        return;
    }
    // Either side of a test may be the one that tells ranks apart.
    let mut seen: FxHashSet<(StmtId, bool)> = FxHashSet::default();
    for i in 0..view.steps.len() {
        let Some(guard) = view.steps[i].guards.last().filter(|g| seen.insert((g.at, g.holds))) else { continue };
        let Some(told) = test(view, guard) else { continue };
        seen.insert((guard.at, !guard.holds));
        if let Some((first, other)) = apart(view, guard, told) {
            let collective = first.call.name.clone();
            let other = (other.call.name.clone(), view.place(view.steps[other.step].id));
            let place = view.place(view.steps[first.step].id);
            let condition = view.part(guard.at, 0);
            out.push((place, Practice::Coming(Coming::OtherOrder { collective, other, condition })));
        }
    }
}

/// The first two calls of both branches that meet and are not the same, where the branches have the same calls.
fn apart<'a>(view: &View<'a>, guard: &Guard<'_>, told: Test) -> Option<(Call<'a>, Call<'a>)> {
    let here = branch(view, guard, true)?;
    let there = branch(view, guard, false)?;
    // The ranks on one side may be all that a group has.
    let whole = here.iter().chain(&there).all(|c| without_group(c.call.group));
    if here.len() < 2 || here.len() != there.len() || !(told.of_all && whole) {
        return None;
    }
    let alike = |a: &Call<'_>, b: &Call<'_>| {
        let buffer = |c: &Call<'_>| c.call.buffer.map(|o| view.through(o));
        a.call.name == b.call.name && buffer(a) == buffer(b)
    };
    let count = |of: &[Call<'_>], wanted: &Call<'_>| of.iter().filter(|c| alike(c, wanted)).count();
    if here.iter().any(|c| count(&here, c) != count(&there, c)) {
        return None;
    }
    here.into_iter().zip(there).find(|(a, b)| !alike(a, b))
}

/// The collectives of one side of a test, each of which is reached once; nothing where something else may communicate.
fn branch<'a>(view: &View<'a>, guard: &Guard<'_>, holds: bool) -> Option<Vec<Call<'a>>> {
    let depth = view.test_of(guard).map_or(0, |at| view.steps[at].loops.len());
    let mut out = Vec::new();
    for (step, s) in view.steps.iter().enumerate() {
        if !s.guards.iter().any(|g| g.at == guard.at && g.holds == holds) {
            continue;
        }
        let Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) = view.value(step) else { continue };
        match raw(view, value) {
            Some(call) => {
                let last = s.guards.last().is_some_and(|g| g.at == guard.at);
                if call.sort != Sort::Everyone || call.is_async() || !last || s.loops.len() > depth {
                    return None;
                }
                out.push(Call { step, call });
            }
            None => {
                let name = near::name_of_call(view, step)?;
                let torch = view.callee(value).is_some_and(|path| path.starts_with("torch."));
                if !SILENT.contains(&name.as_str()) && !torch {
                    return None;
                }
            }
        }
    }
    Some(out)
}

/// `broadcast(x, src=dist.get_rank())` on every rank
pub fn roots(view: &View<'_>, out: &mut Found) {
    for i in 0..view.steps.len() {
        let Some((collective, argument, rank)) = own_root(view, i) else { continue };
        if decided(view, i).is_some() || !view.steps[i].guards.is_empty() || is_lone_job(view) {
            continue;
        }
        let method = view.func.class.map(|_| view.func.name.as_str());
        let sites = sites(view, &view.project.qualified(view.at), method);
        if sites.iter().any(|(site, at)| !site.steps[*at].guards.is_empty()) {
            continue;
        }
        let place = view.place(view.steps[i].id);
        out.push((place, Practice::Coming(Coming::OwnRoot { collective, argument, rank })));
    }
}

/// A collective with a root that is the rank that executes it, and where that is asked for.
fn own_root(view: &View<'_>, step: usize) -> Option<(crate::source::Name, crate::source::Name, Option<Place>)> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let path = view.callee(value)?;
    let Some(Entry::Intrinsic(rule)) = view.rules.get(&path) else { return None };
    if rule.does != "rooted-collective" {
        return None;
    }
    let given = |name: &&str| rule.args.index(name).and_then(|at| view.argument(args, at, name));
    let (argument, root) = ROOTS.iter().find_map(|r| Some((*r, given(r)?)))?;
    let Expr::Call { callee, args: asked, step: at } = near::deep(view, &view.expr(root)) else { return None };
    let own = asked.is_empty() && near::path(view, &callee).is_some_and(|p| p == "torch.distributed.get_rank");
    // One that is asked for in place is shown already.
    let rank = view.steps.get(at).map(|s| view.place(s.id)).filter(|_| matches!(view.expr(root), Expr::Local(_)));
    own.then(|| (super::lost::last(&path), argument.into(), rank))
}
