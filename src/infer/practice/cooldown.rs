//! Schedules of pipelines in which the last stage never sums its gradients. In: a function with a flag of a wrapper that says whether gradients
//! are summed. Out: a flag that is off in the rounds that go forward and backward, and on only in the loop behind them over the warm-up
//! rounds, of which the last stage has none. Never: where anything else may set the flag or sum: a call after the rounds, here, in
//! what is called or at a caller. Next: `no_sync.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::named_axes::{of_rank, of_size};
use super::near;
use super::no_sync::{SUMMING, switched};
use super::training::Training;
use super::view::{Guard, View};
use super::wrapped::{call, function};
use crate::ir::{BinOp, Const, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::Name;
use rustc_hash::FxHashSet;

/// Parts of names of what ends sums that are under way, or does them at the end of a step.
const ENDING: &[&str] = &["finali", "finish", "flush", "allreduce", "hook", "wait"];
/// Parts of names of what sums something else than gradients.
const OTHERS: &[&str] = &["loss", "metric", "log", "synchronize"];
/// Parts of names of what sends messages, or sums.
const EXCHANGES: &[&str] = &["communicate", "exchange"];
/// Words of functions that may sum gradients.
const REDUCES: &[&str] = &["all_reduce", "allreduce", "reduce_scatter", "coalesced"];
/// Words of tests that tell stages or rounds apart.
const STAGES: &[&str] = &["rank", "stage", "last", "first", "warm", "remain", "pipe", "pp"];
/// What messages between stages are called.
const MESSAGES: &[&str] = &["send", "recv", "receive", "communicate", "p2p", "isend", "irecv"];
/// What a message is called that goes to the next stage or comes from it.
const SENT: &[&str] = &["send", "recv", "receive"];
const MOST_DEPTH: usize = 6;
/// How deep and how many functions are searched for one that sets the flag.
const MOST_CALLS: usize = 3;
const MOST_FUNCTIONS: usize = 100;

/// `flag = False` in `range(n - w)`, `flag = i == w - 1` in `range(w)`
pub fn last_stage(view: &View<'_>, out: &mut Found) {
    let Some((flag, set)) = switches(view) else { return };
    let is_off = |value: &Operand| matches!(value, Operand::Const(Const::Bool(false)));
    let (off, on): (Vec<_>, Vec<_>) = set.iter().copied().partition(|(_, value)| is_off(value));
    let Some((first, _)) = on.first() else { return };
    let cooldown = view.steps[*first].loops.iter().copied().find(|at| skips(view, *at));
    let Some(cooldown) = cooldown.filter(|at| on.iter().all(|(i, _)| view.steps[*i].loops.contains(at))) else {
        return;
    };
    let Some(steady) = (0..cooldown).rev().find(|at| is_rest(view, *at, cooldown)) else { return };
    let passes: Vec<usize> = (0..view.steps.len()).filter(|i| passes_backward(view, *i)).collect();
    let inside = |at: usize| move |i: &usize| view.steps[*i].loops.contains(&at);
    let Some(last) = passes.iter().copied().rfind(inside(steady)) else { return };
    let elsewhere = |i: &usize| !inside(steady)(i) && !inside(cooldown)(i);
    if !passes.iter().any(inside(cooldown)) || passes.iter().any(elsewhere) || tells_apart(view, steady, last) {
        return;
    }
    let on: Vec<usize> = on.iter().map(|(i, _)| *i).collect();
    let leaves_out = |i: usize| {
        let before = if inside(steady)(&i) { i < last } else { view.steps[i].loops == view.steps[steady].loops };
        i < last && before && under_same(view, i, steady, &on)
    };
    let Some(off) = off.iter().map(|(i, _)| *i).find(|i| leaves_out(*i)) else { return };
    if may_sum(view, steady) || others_set(view, &flag) || callers_sum(view) {
        return;
    }
    let Stmt::For { .. } = view.steps[cooldown].stmt else { return };
    let rounds = Name::from(view.text(view.part(view.steps[cooldown].id, 0)));
    let (told, pass) = (view.place(view.steps[off].id), view.place(view.steps[last].id));
    let (place, other) = if inside(steady)(&off) { (told, pass) } else { (pass, told) };
    let mistake = Training::LastStage {
        flag,
        rounds,
        told: inside(steady)(&off),
        other,
        cooldown: view.part(view.steps[cooldown].id, 0),
    };
    out.push((place, Practice::Training(mistake)));
}

/// The flag or the method of a function that says whether gradients are summed, and what it is told; `None`: it is read, or there are several.
fn switches<'a>(view: &View<'a>) -> Option<(Name, Vec<(usize, &'a Operand)>)> {
    let set = switched(view)?;
    let name = |i: usize| match (view.steps[i].stmt, view.value(i)) {
        (Stmt::SetAttr { name, .. }, _) | (_, Some(Rvalue::CallMethod { name, .. })) => Some(name.clone()),
        _ => None,
    };
    let flag = name(set.first()?.0)?;
    let text = view.text(view.spot(view.func.span));
    let all = set.iter().all(|(i, _)| name(*i).as_ref() == Some(&flag));
    (all && near::bare(text).matches(flag.to_lowercase().as_str()).count() == set.len()).then_some((flag, set))
}

/// The number of rounds of a loop over `range(n)`.
fn rounds(view: &View<'_>, at: usize) -> Option<Expr> {
    let Stmt::For { iter, .. } = view.steps[at].stmt else { return None };
    match view.expr(iter) {
        Expr::Call { callee, mut args, .. } if matches!(callee.last_name(), Some("range" | "trange")) => {
            (args.len() == 1).then(|| args.swap_remove(0).1)
        }
        _ => None,
    }
}

/// Whether the last stage runs no round of a loop.
fn skips(view: &View<'_>, at: usize) -> bool {
    rounds(view, at).is_some_and(|count| is_zero(view, &count, at, MOST_DEPTH))
}

/// Whether a loop has the rounds that another one leaves: `range(n - w)`.
fn is_rest(view: &View<'_>, at: usize, cooldown: usize) -> bool {
    let (Some(all), Some(left)) = (rounds(view, at), rounds(view, cooldown)) else { return false };
    let same = |e: &Expr| *e == left || near::deep(view, e) == near::deep(view, &left);
    view.steps[at].loops == view.steps[cooldown].loops
        && matches!(near::deep(view, &all), Expr::Binary(BinOp::Sub, _, less) if same(&less))
}

/// Whether a number is zero on the last stage: `size - rank - 1`, or the least of several of which it is one.
fn is_zero(view: &View<'_>, count: &Expr, before: usize, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let inner = |e: &Expr| is_zero(view, e, before, depth);
    match count {
        Expr::Const(Const::Int(0)) => true,
        Expr::Local(local) => {
            let Some(def) = view.last_def(*local, before) else {
                let outer = near::deep(view, count);
                return outer != *count && inner(&outer);
            };
            let stands = |g: &Guard<'_>| view.steps[before].guards.iter().any(|h| h.at == g.at && h.holds == g.holds);
            view.steps[def].guards.iter().all(stands)
                && view.steps[before].loops.starts_with(&view.steps[def].loops)
                && is_zero(view, &view.bound(def, *local), def, depth)
        }
        Expr::Call { .. } => match (count.call_of("min"), count.call_of("max")) {
            (Some(all), _) => all.len() > 1 && all.iter().any(|(_, e)| inner(e)),
            (_, Some(all)) => all.len() > 1 && all.iter().all(|(_, e)| inner(e)),
            _ => false,
        },
        Expr::Binary(BinOp::Sub, ..) => is_behind(view, count),
        _ => false,
    }
}

/// `size - rank - 1`, in any order.
fn is_behind(view: &View<'_>, count: &Expr) -> bool {
    let (mut plus, mut minus, mut number) = (Vec::new(), Vec::new(), 0);
    terms(view, count, true, MOST_DEPTH, &mut |is_plus, term| match term {
        Expr::Const(Const::Int(n)) => number += if is_plus { n } else { -n },
        term => if is_plus { &mut plus } else { &mut minus }.push(term),
    });
    let ([size], [rank], -1) = (plus.as_slice(), minus.as_slice(), number) else { return false };
    let named = |e: &Expr, words: &[&str]| name_of(view, e).is_some_and(|name| near::has_any(&name, words));
    let of_stages = |axes: Option<Vec<Name>>| axes.is_none_or(|axes| axes.iter().all(|a| a == "pp" || a == "world"));
    named(size, &["size", "stages", "degree", "world"])
        && named(rank, &["rank", "stage"])
        && !named(size, &["rank"])
        && !named(rank, &["stages", "size"])
        && of_stages(of_size(view, size))
        && of_stages(of_rank(view, rank))
}

fn terms(view: &View<'_>, expr: &Expr, is_plus: bool, depth: usize, each: &mut dyn FnMut(bool, Expr)) {
    let seen_through = match expr {
        Expr::Local(_) => near::deep(view, expr),
        other => other.clone(),
    };
    match (&seen_through, depth.checked_sub(1)) {
        (Expr::Binary(op @ (BinOp::Add | BinOp::Sub), a, b), Some(depth)) => {
            terms(view, a, is_plus, depth, each);
            terms(view, b, is_plus == (*op == BinOp::Add), depth, each);
        }
        (Expr::Const(_), _) => each(is_plus, seen_through),
        _ => each(is_plus, expr.clone()),
    }
}

fn name_of(view: &View<'_>, expr: &Expr) -> Option<String> {
    match expr {
        Expr::Local(local) => Some(view.local_name(*local).as_str().to_lowercase()),
        Expr::Call { callee, .. } => callee.last_name().map(str::to_lowercase),
        other => other.last_name().map(str::to_lowercase),
    }
}

/// Whether a step runs a backward pass, by its name or in a function of the project.
fn passes_backward(view: &View<'_>, step: usize) -> bool {
    // A function that the schedule is given says by its name what it runs.
    let written = view.value(step).and_then(|value| near::written_name(view, value));
    let Some(name) = written.map(|name| super::lost::last(&name).to_lowercase()) else { return false };
    if near::has_any(&name, MESSAGES) {
        return false;
    }
    name.contains("backward")
        || called(view, step).is_some_and(|at| near::shared(view, at).code().contains("backward("))
}

fn called(view: &View<'_>, step: usize) -> Option<FuncRef> {
    let (callee, _) = call(view, view.value(step)?)?;
    function(view, &callee)
}

/// Whether the last stage may go another way than these rounds, or tells its backward passes what they do.
fn tells_apart(view: &View<'_>, steady: usize, backward: usize) -> bool {
    let asks = |g: &Guard<'_>| near::has_any(&view.text(view.part(g.at, 0)).to_lowercase(), STAGES);
    let told = match view.value(backward).and_then(|value| call(view, value)) {
        Some((_, args)) => args.iter().any(|(kind, e)| {
            let keyword =
                matches!(kind, crate::ir::ArgKind::Keyword(k) if near::has_any(k, &["sync", "last", "reduce"]));
            keyword || super::wrapped::says(view, e, &["sync", "is_last", "last_", "reduce"])
        }),
        None => true,
    };
    told || view.steps[backward].guards.iter().any(asks) || view.steps[steady].guards.iter().any(asks)
}

/// Whether a flag is set wherever the rounds run, or under a condition under which the flag is set otherwise as well.
fn under_same(view: &View<'_>, off: usize, steady: usize, on: &[usize]) -> bool {
    let stable = |e: &Expr| {
        let moves = |e: &Expr| match e {
            Expr::Local(local) => view.defs(*local).iter().any(|def| {
                view.steps[*def].loops.len() > view.steps[steady].loops.len()
                    || matches!(view.steps[*def].stmt, Stmt::For { .. })
            }),
            _ => false,
        };
        !e.any(&mut |e| moves(e))
    };
    view.steps[off].guards.iter().all(|g| {
        let test = view.expr(g.test);
        let same = |h: &Guard<'_>| h.holds == g.holds && (h.at == g.at || view.expr(h.test) == test);
        let shared = view.steps[steady].guards.iter().any(|h| h.at == g.at && h.holds == g.holds);
        shared || stable(&test) && on.iter().all(|i| view.steps[*i].guards.iter().any(same))
    })
}

/// Whether a name is that of something that may sum gradients.
fn sums(name: &str) -> bool {
    (near::has_any(name, SUMMING) || near::has_any(name, ENDING)) && !near::has_any(name, OTHERS)
}

/// Whether a call beside or behind the rounds may sum gradients.
fn may_sum(view: &View<'_>, steady: usize) -> bool {
    let from = if view.steps[steady].loops.is_empty() { steady } else { 0 };
    (from..view.steps.len()).any(|i| !is_told(view, i) && is_sum(view, i))
}

/// Whether a step sends a message between stages: it says so by a word that it is given, `communicate("recv_forward", ...)`.
fn is_message(view: &View<'_>, step: usize) -> bool {
    let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step) else { return false };
    let told = |e: &Expr| {
        e.string().map(|said| said.to_lowercase()).is_some_and(|said| near::has_any(&said, SENT) && !sums(&said))
    };
    args.iter().any(|a| told(&view.expr(&a.value)))
}

/// Whether a step calls something that may sum gradients, by its name or by what it does.
fn is_sum(view: &View<'_>, step: usize) -> bool {
    let Some(name) = near::name_of_call(view, step) else { return false };
    if near::has_any(&name, EXCHANGES) && called(view, step).is_none() && is_message(view, step) {
        return false;
    }
    let mut inner: Vec<FuncRef> = called(view, step).into_iter().collect();
    // What a function of the project exchanges it says itself.
    if sums(&name) && (inner.is_empty() || !near::has_any(&name, EXCHANGES)) {
        return true;
    }
    if let Some(Rvalue::CallMethod { name, .. }) = view.value(step) {
        inner.extend(methods(view, name));
    }
    let reduces = |at: &FuncRef| near::has_any(near::shared(view, *at).code(), REDUCES);
    !near::has_any(&name, OTHERS) && !name.contains("backward") && inner.iter().any(reduces)
}

/// The methods of the project with a name.
fn methods(view: &View<'_>, name: &Name) -> Vec<FuncRef> {
    let all = view.project.methods_named(name).iter().take(MOST_FUNCTIONS);
    all.map(|(class, func)| FuncRef { module: class.module, func: *func }).collect()
}

/// Whether a step is the method itself that is told whether gradients are summed.
fn is_told(view: &View<'_>, step: usize) -> bool {
    matches!(view.value(step), Some(Rvalue::CallMethod { name, .. }) if view.rules.wrappers().is_sync_method(name))
}

/// Whether a function that is called on the way may set the flag: any with the name of a method that is called.
fn others_set(view: &View<'_>, flag: &Name) -> bool {
    let mut seen = FxHashSet::from_iter([view.at]);
    let mut next = vec![view.at];
    for _ in 0..MOST_CALLS {
        let mut found = Vec::new();
        for at in next {
            let inner = near::shared(view, at);
            for step in 0..inner.steps.len() {
                found.extend(called(&inner, step));
                let method = match inner.value(step) {
                    Some(Rvalue::CallMethod { name, .. }) => name.clone(),
                    Some(Rvalue::Call { .. }) => Name::from("forward"),
                    _ => continue,
                };
                let named = methods(view, &method).into_iter();
                found.extend(named.filter(|at| view.files[view.project.file(at.module)].whole().contains(&**flag)));
            }
        }
        found.retain(|at| seen.insert(*at));
        let sets = |at: &FuncRef| sets_flag(&near::shared(view, *at), flag);
        if seen.len() > MOST_FUNCTIONS || found.iter().any(sets) {
            return true;
        }
        next = found;
    }
    false
}

fn sets_flag(view: &View<'_>, flag: &Name) -> bool {
    let quoted = |text: &str| ['"', '\''].iter().any(|q| text.contains(&format!("{q}{flag}{q}")));
    switched(view).is_none_or(|set| !set.is_empty()) || quoted(view.text(view.spot(view.func.span)))
}

/// Whether a function that runs the schedule, in any file, may sum gradients itself.
fn callers_sum(view: &View<'_>) -> bool {
    let says: Vec<_> = view.files.saying(&view.func.name).collect();
    let modules = view.project.modules.ids().filter(|module| says.contains(&view.project.file(*module)));
    modules.flat_map(|module| near::functions(view, module)).filter(|at| *at != view.at).any(|at| {
        let caller = near::shared(view, at);
        let runs =
            |i: &usize| near::name_of_call(&caller, *i).is_some_and(|n| n == view.func.name.to_lowercase().as_str());
        let Some(first) = (0..caller.steps.len()).find(runs) else { return false };
        // Behind a loop of steps it is too late.
        let same = |i: &usize| match caller.steps[first].loops.first() {
            Some(round) => caller.steps[*i].loops.contains(round),
            None => *i > first,
        };
        let later = (0..caller.steps.len()).filter(same);
        later.filter(|i| !runs(i)).any(|i| is_sum(&caller, i))
    })
}
