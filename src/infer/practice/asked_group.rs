//! Sums whose group is not the one beside it. In: a function. Out: a guard that asks whether one group has several ranks around a
//! collective over another one; a sum over some ranks that is divided by a count over others. Never: groups of which one may hold the
//! other, or experts, whose groups go by the size of another. Next: `named_axes.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::named_axes::{of_group, of_size};
use super::view::{CollectiveCall, Guard, View};
use super::{Found, near};
use crate::ir::{BinOp, CmpOp, Const, LocalId, Operand, Rvalue};
use crate::rules::Form;
use crate::source::{Name, Place};

/// `if cp_size > 1: all_reduce(x, group=dp_group)`
pub fn guards(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        let step = &view.steps[*i];
        let (Some(group), true) = (call.group, matches!(call.rule.op.as_str(), "all_reduce" | "all_gather")) else {
            continue;
        };
        let Some(over) = of_group(view, &view.expr(group)) else { continue };
        // A guard that asks for a size that is not known says nothing about the others.
        let asked: Option<Vec<_>> = step.guards.iter().map(|g| Some((sizes_asked(view, g)?, g))).collect();
        let asked: Vec<(Vec<Name>, &Guard<'_>)> = asked
            .into_iter()
            .flatten()
            .flat_map(|(sizes, guard)| sizes.into_iter().map(move |axes| (axes, guard)))
            .collect();
        let [(axes, guard)] = asked.as_slice() else { continue };
        if !apart(view, axes, &over) || used(view, axes, guard) {
            continue;
        }
        let collective = super::lost::last(&call.rule.name);
        let guard = view.part(guard.at, 0);
        let found = Membership::OtherAsked { collective, asked: axes.clone(), over, guard };
        out.push((view.place(step.id), Practice::Membership(found)));
    }
}

/// How many parts of a test are looked at: a name may be bound to a test that it is part of.
const MOST_PARTS: usize = 64;

/// The groups of which a guard asks whether they have several ranks; nothing if it asks for a size that is not known.
fn sizes_asked(view: &View<'_>, guard: &Guard<'_>) -> Option<Vec<Vec<Name>>> {
    let mut out = Vec::new();
    let mut all = vec![near::deep(view, &view.through(guard.test))];
    let mut asked = 0;
    while let Some(expr) = all.pop() {
        asked += 1;
        if asked > MOST_PARTS {
            return None;
        }
        match expr {
            Expr::Bool { and: true, of } => all.extend(of.iter().map(|e| near::deep(view, e))),
            Expr::Compare(op, left, right) => {
                let several = match (op, &*right) {
                    (CmpOp::Gt | CmpOp::Ne, Expr::Const(Const::Int(1))) | (CmpOp::Ge, Expr::Const(Const::Int(2))) => {
                        true
                    }
                    (CmpOp::Le | CmpOp::Eq, Expr::Const(Const::Int(1))) => false,
                    _ if speaks_of_size(view, &left) => return None,
                    _ => continue,
                };
                match of_size(view, &left) {
                    Some(axes) if several == guard.holds => out.push(axes),
                    _ => return None,
                }
            }
            other if speaks_of_size(view, &other) => return None,
            _ => {}
        }
    }
    Some(out)
}

fn speaks_of_size(view: &View<'_>, expr: &Expr) -> bool {
    expr.any(&mut |e| {
        let name = match e {
            Expr::Local(l) => Some(view.local_name(*l).as_str()),
            other => other.last_name(),
        };
        name.is_some_and(|n| ["size", "degree", "group", "mesh", "parallel", "enabled"].iter().any(|w| n.contains(w)))
    })
}

fn is(axes: &[Name], of: &[&str]) -> bool {
    axes.iter().all(|a| of.contains(&a.as_str()))
}

/// Whether two sets of ranks have certainly nothing to do with each other.
fn apart(view: &View<'_>, asked: &[Name], over: &[Name]) -> bool {
    match (is(asked, &["cp"]) || is(asked, &["sp"]), is(asked, &["tp"])) {
        (true, _) if is(over, &["tp"]) => is(asked, &["cp"]),
        // A data-parallel group has the parts of a sequence in it, unless the file knows a group of those.
        (true, _) if is(over, &["dp"]) => has_group(view, asked),
        (_, true) => is(over, &["cp"]),
        _ => false,
    }
}

/// Whether a name of the file is that of a group with exactly these axes.
fn has_group(view: &View<'_>, axes: &[Name]) -> bool {
    let text = view.file();
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| w.contains("group"));
    words.into_iter().any(|word| {
        let word = word.trim_start_matches("get_");
        let found = super::super::scale::groups::of_group_name(word);
        found.is_some_and(|a| a.len() == axes.len() && a.iter().all(|a| axes.iter().any(|n| n == a.name())))
    }) || text.contains("get_context_parallel_world_size")
}

/// Whether something under the guard runs over what it asks for.
fn used(view: &View<'_>, axes: &[Name], guard: &Guard<'_>) -> bool {
    let under = |i: usize| view.steps[i].guards.iter().any(|g| g.at == guard.at && g.holds == guard.holds);
    let over = |call: &CollectiveCall<'_>| call.group.and_then(|g| of_group(view, &view.expr(g)));
    let other = view.collectives().iter().filter(|(i, _)| under(*i));
    let mut other = other.map(|(_, call)| over(call));
    other.any(|o| o.is_none_or(|o| o.iter().any(|a| axes.contains(a))))
}

/// A sum in place of a variable, with its group.
struct Summed {
    local: LocalId,
    axes: Vec<Name>,
    place: Place,
    guards: Vec<crate::ir::StmtId>,
}

/// `total / count`, each summed over other ranks.
pub fn ratios(view: &View<'_>, out: &mut Found) {
    let mut sums: Vec<Summed> = Vec::new();
    for (i, call) in view.collectives() {
        let (Some(Operand::Local(local)), Form::InPlace) = (call.input, call.rule.form) else { continue };
        let known = (call.rule.op == "all_reduce").then_some(call.group).flatten();
        // Whatever else is done to it makes it another sum.
        let again = sums.iter().any(|s| s.local == *local) || view.defs(*local).iter().any(|def| def > i);
        let other = |name: &str| matches!(name, "AVG" | "MAX" | "MIN" | "PRODUCT");
        if again || call.args.iter().any(|a| view.expr(&a.value).last_name().is_some_and(other)) {
            return;
        }
        let Some(axes) = known.and_then(|g| of_group(view, &view.expr(g))) else { return };
        let step = &view.steps[*i];
        let guards = step.guards.iter().map(|g| g.at).collect();
        sums.push(Summed { local: *local, axes, place: view.place(step.id), guards });
    }
    for i in 0..view.steps.len() {
        let Some(Rvalue::Binary { op: BinOp::Div, left, right }) = view.value(i) else { continue };
        let of = |o: &Operand| {
            let expr = view.expr(o);
            let mut all = sums.iter().filter(|s| expr.mentions(s.local));
            all.next().filter(|_| all.next().is_none())
        };
        let (Some(total), Some(count)) = (of(left), of(right)) else { continue };
        if total.guards != count.guards || !more(&total.axes, &count.axes) || made_by_sum(view, total.local) {
            continue;
        }
        if shares_sequences(&total.axes, &count.axes) && counts_whole(view, count.local) {
            continue;
        }
        let (summed, counted) = (total.axes.clone(), count.axes.clone());
        let divided = view.place(view.steps[i].id);
        let found = Membership::OtherCount { summed, counted, count: count.place, divided };
        out.push((total.place, Practice::Membership(found)));
        return;
    }
}

/// Whether one set has the ranks of the other and those of axes with data besides.
fn more(a: &[Name], b: &[Name]) -> bool {
    let (small, large) = if a.len() < b.len() { (a, b) } else { (b, a) };
    let data = |n: &Name| matches!(n.as_str(), "dp" | "cp" | "sp" | "dp_replicate" | "dp_shard" | "fsdp");
    small.len() < large.len() && small.iter().all(|n| large.contains(n)) && large.iter().all(data)
}

/// Whether what a variable holds was summed or gathered by something before.
fn made_by_sum(view: &View<'_>, local: LocalId) -> bool {
    let roots = near::roots(view, &Operand::Local(local));
    let words = ["reduce", "gather", "sum_over", "sync"];
    let calls = |i: usize| match view.value(i) {
        Some(Rvalue::Call { callee, .. }) => view.expr(callee).last_name().map(str::to_string),
        Some(Rvalue::CallMethod { name, .. }) => Some(name.to_string()),
        _ => None,
    };
    let binds = |i: usize| view.binds(i).iter().any(|l| roots.contains(l) || *l == local);
    (0..view.steps.len()).filter(|i| binds(*i)).any(|i| {
        let text = view.text(view.place(view.steps[i].id)).to_lowercase();
        calls(i).is_some_and(|c| words.iter().any(|w| c.to_lowercase().contains(w)))
            || words.iter().any(|w| text.contains(w))
    })
}

/// Whether a sum runs over ranks besides those of a count that have parts of the same sequences.
fn shares_sequences(summed: &[Name], counted: &[Name]) -> bool {
    summed.iter().filter(|a| !counted.contains(a)).all(|a| matches!(a.as_str(), "cp" | "sp"))
}

/// Whether a count is that of sequences, or of what its name calls whole: the same on the ranks that share a sequence.
fn counts_whole(view: &View<'_>, count: LocalId) -> bool {
    let whole = ["full", "whole", "global", "all", "batch", "seqs", "sequences", "samples"];
    let named = near::roots(view, &Operand::Local(count));
    let of_rows = |e: &Expr| match e {
        Expr::Item(of, at) => {
            **at == Expr::Const(Const::Int(0)) && matches!(&**of, Expr::Attr(_, name) if name == "shape")
        }
        Expr::Call { callee, args, .. } => match args.as_slice() {
            [(_, at)] if callee.last_name() == Some("size") => *at == Expr::Const(Const::Int(0)),
            _ => callee.last_name() == Some("len"),
        },
        _ => false,
    };
    named.iter().any(|l| whole.iter().any(|part| near::has_part(view.local_name(*l), part)))
        || view.through(&Operand::Local(count)).any(&mut |e| of_rows(e))
}

/// A report of a loss and its count in one tensor, summed over fewer ranks than the same count elsewhere in the file.
pub fn reports(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        let (Some(Operand::Local(local)), Form::InPlace, "all_reduce") =
            (call.input, call.rule.form, call.rule.op.as_str())
        else {
            continue;
        };
        let Some(summed) = call.group.and_then(|g| of_group(view, &view.expr(g))) else { continue };
        let [def] = view.defs(*local) else { continue };
        let packed = view.bound(*def, *local);
        if ["cat", "stack", "tensor"].iter().all(|f| packed.call_of(f).is_none()) {
            continue;
        }
        // The whole file is searched last: few functions come so far.
        let file = view.file();
        if !["context_parallel_rank", "cp_rank", "sp_rank"].iter().any(|w| file.contains(w)) {
            return;
        }
        let names: Vec<&Name> =
            near::roots(view, &Operand::Local(*local)).into_iter().map(|l| view.local_name(l)).collect();
        for at in near::functions(view, view.at.module).into_iter().filter(|at| *at != view.at) {
            let other = near::other(view, at);
            for (j, counts) in other.collectives() {
                let (Some(Operand::Local(n)), "all_reduce") = (counts.input, counts.rule.op.as_str()) else { continue };
                let name = other.local_name(*n);
                let Some(counted) = counts.group.and_then(|g| of_group(&other, &other.expr(g))) else { continue };
                let count = name.contains("token") && other.is_param(*n) && names.contains(&name);
                if !count || summed.len() >= counted.len() || !more(&summed, &counted) {
                    continue;
                }
                let place = other.place(other.steps[*j].id);
                let found = Membership::OtherCount { summed, counted, count: place, divided: place };
                out.push((view.place(view.steps[*i].id), Practice::Membership(found)));
                return;
            }
        }
    }
}
