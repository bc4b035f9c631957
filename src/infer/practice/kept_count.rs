//! Counts of all ranks that are kept beside a batch and that nothing reads. In: a function that sums the count of a mask over ranks, puts it into the batch that has the
//! mask, and steps backward. Out: the loss of the file that divides by its own count of the same mask. Never: a name that occurs anywhere else in the project, a batch that
//! anything reads by names which are not written there, or a loss that is weighed afterwards. Source: verl, pull request 3994. Next: `unread_count.rs`, counts
//! that a loss is given and never reads.

use super::Found;
use super::expr::Expr;
use super::factor::AVERAGES;
use super::found::Practice;
use super::near;
use super::only_some::callee;
use super::unshared::Unshared;
use super::view::{CollectiveCall, View};
use crate::ir::{ArgKind, BinOp, FuncKind, LocalId, LocalKind, Operand, ParamKind, Rvalue, Stmt, UnOp};
use crate::project::FuncRef;
use crate::source::{Name, Place};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Methods that give the same number, or one that is not below another.
const SAME: &[&str] =
    &["item", "to", "float", "double", "long", "int", "detach", "clone", "cuda", "clamp", "clamp_min", "values"];
/// What scales gradients elsewhere, or makes the counts of all ranks equal.
const OTHERWISE: &[&str] =
    &["divide_factor", "comm_hook", "ones_like(", "torch.ones(", "broadcast(", "broadcast_object"];
/// What reads entries by names that are not written there.
const READS_ALL: &[&str] = &["items()", "keys()", "__dict__", "vars(", "asdict(", "getattr(", "to_dict("];
/// Parts of names of what weighs a loss.
const WEIGHTS: &[&str] = &["token", "count", "mask", "valid", "num", "weight", "scale", "size", "factor"];
/// Parts of names of what may read a batch in a way of its own, or tells what it holds.
const READERS: &[&str] = &[
    "model", "module", "net", "engine", "actor", "policy", "trainer", "head", "log", "report", "track", "record",
    "metric", "print", "write", "save", "dump", "callback",
];
/// How far values are followed.
const MOST: usize = 8;

/// The count of a mask, and the batch that has the mask.
struct Counted {
    mask: Name,
    batch: LocalId,
    made: usize,
}

/// Under which name a count is kept, by which step, and all steps on the way there.
struct Kept {
    name: Name,
    step: usize,
    passed: Vec<usize>,
}

/// `dist.all_reduce(count)` and `batch["count"] = count`, where nothing says `"count"`, and `loss.sum() / batch["mask"].sum()`
pub fn unread(view: &View<'_>, out: &mut Found) {
    for (summed, call) in view.collectives() {
        let Some(count) = call.input.and_then(near::local).filter(|_| call.rule.op == "all_reduce") else { continue };
        if !is_sum_of_data(view, call) || view.func.locals()[count].kind == LocalKind::Cell {
            continue;
        }
        let Some(counted) = counted(view, count, *summed) else { continue };
        let Some(kept) = kept(view, count, *summed, counted.batch) else { continue };
        if !is_unread(view, &kept, &[counted.made, *summed]) || !is_trained(view) {
            continue;
        }
        let inside = inside(view);
        let Some((mean, function)) = own_mean(view, &counted.mask) else { continue };
        if gives_whole(view, Some(counted.batch)) || inside.iter().any(|inner| gives_whole(inner, None)) {
            continue;
        }
        let place = |step: usize| view.place(view.steps[step].id);
        let mistake = Unshared::CountKept { name: kept.name, function, summed: place(*summed), kept: place(kept.step) };
        out.push((mean, Practice::Unshared(mistake)));
        return;
    }
}

/// Whether a reduction is a sum over all ranks, or over those that have other data.
fn is_sum_of_data(view: &View<'_>, call: &CollectiveCall<'_>) -> bool {
    let other = |e: &Expr| e.any(&mut |e| e.is_other_reduction() || e.last_name() == Some("AVG"));
    let group = call.group.map(|group| view.expr(group)).filter(|group| !group.is_none());
    let of_data = group.is_none_or(|group| {
        let name = view.name_or_callee(&group).map(str::to_lowercase).unwrap_or_default();
        ["dp", "data", "fsdp"].iter().any(|part| near::has_part(&name, part))
    });
    of_data && !call.args.iter().any(|a| other(&view.expr(&a.value)))
}

/// The mask whose entries a variable counts: `batch["mask"].sum()`.
fn counted(view: &View<'_>, count: LocalId, before: usize) -> Option<Counted> {
    let [made] = view.defs(count) else { return None };
    let (mask, batch) = mask_of(view, &view.bound(*made, count))?;
    (*made < before).then_some(Counted { mask, batch: batch?, made: *made })
}

/// The mask of which a number is the sum, and the batch that has it, if that is seen.
fn mask_of(view: &View<'_>, e: &Expr) -> Option<(Name, Option<LocalId>)> {
    let mut e = e.clone();
    let mut summed = false;
    for _ in 0..MOST {
        let next = match &e {
            Expr::Call { callee, args, .. } => match &**callee {
                Expr::Attr(base, name) if name == "sum" && args.is_empty() && !summed => {
                    summed = true;
                    (**base).clone()
                }
                Expr::Attr(base, name) if SAME.contains(&name.as_str()) => (**base).clone(),
                _ => return None,
            },
            Expr::Local(local) => match view.defs(*local) {
                [def] if !view.is_param(*local) => view.bound(*def, *local),
                _ => break,
            },
            _ => break,
        };
        match next {
            Expr::Call { .. } | Expr::Item(..) | Expr::Attr(..) | Expr::Local(_) => e = next,
            _ => break,
        }
    }
    let found = match e {
        Expr::Item(base, key) => match (&*base, key.string()) {
            (Expr::Local(batch), Some(key)) => (key.clone(), Some(*batch)),
            _ => return None,
        },
        Expr::Attr(base, name) => match *base {
            Expr::Local(batch) => (name, Some(batch)),
            _ => return None,
        },
        Expr::Local(local) => (view.local_name(local).clone(), None),
        _ => return None,
    };
    (summed && found.0.to_lowercase().contains("mask")).then_some(found)
}

/// The one place where a count goes, if that is the batch.
fn kept(view: &View<'_>, count: LocalId, summed: usize, batch: LocalId) -> Option<Kept> {
    let mut passed = Vec::new();
    let mut work = vec![count];
    let mut found: Option<(Name, usize)> = None;
    while let Some(local) = work.pop() {
        for step in view.readers(local).iter().copied().filter(|step| *step != summed) {
            if passed.contains(&step) || step < summed || passed.len() > MOST {
                return None;
            }
            passed.push(step);
            let goes_on = match view.value(step) {
                Some(Rvalue::CallMethod { base, name, args }) => {
                    let own = *base == Operand::Local(local) && SAME.contains(&name.as_str());
                    own && args.iter().all(|a| a.value != Operand::Local(local))
                }
                Some(Rvalue::Use(_)) => true,
                _ => false,
            };
            if goes_on {
                work.extend(view.binds(step));
                continue;
            }
            if found.is_some() {
                return None;
            }
            found = Some((name_kept(view, step, local, batch)?, step));
        }
    }
    found.map(|(name, step)| Kept { name, step, passed })
}

/// The name under which a step puts a value into a batch.
fn name_kept(view: &View<'_>, step: usize, value: LocalId, batch: LocalId) -> Option<Name> {
    let is = |o: &Operand, local: LocalId| *o == Operand::Local(local);
    match view.steps[step].stmt {
        Stmt::SetItem { base, index, value: set } if is(base, batch) && is(set, value) => {
            view.expr(index).string().cloned()
        }
        Stmt::SetAttr { base, name, value: set } if is(base, batch) && is(set, value) => Some(name.clone()),
        Stmt::Assign { value: called @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }), dst } => {
            let method = matches!(called, Rvalue::CallMethod { base, .. } if is(base, batch));
            let given = method || args.iter().any(|a| a.kind == ArgKind::Positional && is(&a.value, batch));
            let spread = args.iter().any(|a| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar));
            // A function of the project that takes any name has none of its own for it.
            let takes_any = |at: FuncRef| view.project.func(at).params.iter().any(|p| p.kind == ParamKind::KwArgs);
            if !given || spread || view.is_read(*dst) || !callee(view, called).is_none_or(takes_any) {
                return None;
            }
            args.iter().find_map(|a| match &a.kind {
                ArgKind::Keyword(name) if is(&a.value, value) => Some(name.clone()),
                _ => None,
            })
        }
        _ => None,
    }
}

/// Whether a name stands nowhere in the project but on the lines that count, sum and keep, and nothing reads entries whatever they are called.
fn is_unread(view: &View<'_>, kept: &Kept, others: &[usize]) -> bool {
    let file = view.file();
    let mut own = BTreeSet::new();
    for step in kept.passed.iter().chain(others) {
        let span = view.place(view.steps[*step].id).span;
        let line = |at: u32| file[..at as usize].matches('\n').count();
        own.extend(line(span.start)..=line(span.end));
    }
    let said = |line: &str| line.matches(kept.name.as_str()).count();
    let here: usize = file.lines().enumerate().filter(|(n, _)| own.contains(n)).map(|(_, line)| said(line)).sum();
    let text = near::bare(file);
    let spreads = |line: &str| {
        let head = line.trim_start();
        let spread = |(at, _): (usize, &str)| {
            let before = line[..at].trim_end();
            let named = line[at + 2..].starts_with(|c: char| c.is_alphabetic() || c == '_');
            named && (before.is_empty() || before.ends_with(['(', ',', '{']))
        };
        !head.starts_with("def ") && line.match_indices("**").any(spread)
    };
    view.files.times(&kept.name) == here && !near::has_any(&text, READS_ALL) && !text.lines().any(spreads)
}

/// Whether the function steps backward from a loss that no count weighs, in a file whose wrapper averages gradients over ranks.
fn is_trained(view: &View<'_>) -> bool {
    let text = near::bare(view.file());
    if !near::has_any(&text, AVERAGES) || near::has_any(&text, OTHERWISE) {
        return false;
    }
    let losses = losses(view);
    let weighs = |operand: &Operand| {
        let said = |e: &Expr| view.name_of(e).is_some_and(|name| near::has_any(&name.to_lowercase(), WEIGHTS));
        view.expr(operand).any(&mut |e| said(e)) || near::deep(view, &view.expr(operand)).any(&mut |e| said(e))
    };
    let mut of_losses = losses.iter().flat_map(|loss| near::reached(view, &Operand::Local(*loss), |_| true));
    let weighed = of_losses.any(|local| {
        view.defs(local).iter().any(|def| match view.value(*def) {
            Some(
                Rvalue::Binary { op: BinOp::Mul | BinOp::Div, left, right }
                | Rvalue::InPlace { op: BinOp::Mul | BinOp::Div, left, right },
            ) => weighs(left) || weighs(right),
            Some(Rvalue::CallMethod { name, .. }) => matches!(name.as_str(), "mul" | "div" | "mul_" | "div_"),
            _ => false,
        })
    });
    !losses.is_empty() && !weighed
}

/// The functions of the file that a function calls.
fn inside<'a>(view: &View<'a>) -> Vec<Rc<View<'a>>> {
    let called = (0..view.steps.len()).filter_map(|step| callee(view, view.value(step)?));
    called.filter(|at| at.module == view.at.module).map(|at| near::shared(view, at)).collect()
}

/// Whether the loss that a function steps backward from comes of another one: it is called, or a function of the file is that names it or is given it.
fn is_stepped_with(view: &View<'_>, loss: FuncRef, name: &str) -> bool {
    let mut all = losses(view).into_iter().flat_map(|l| near::reached(view, &Operand::Local(l), |_| true));
    all.any(|local| {
        view.defs(local).iter().any(|def| {
            let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(*def) else {
                return false;
            };
            let given = |o: &Operand| match view.expr(o) {
                // The name stands in the head, as a default.
                Expr::Local(local) => view.is_as_given(local) && near::has_word(view.code(), name),
                other => other.last_name().is_some_and(|last| last.to_lowercase() == name),
            };
            match callee(view, value) {
                Some(at) if at == loss => true,
                Some(at) if at.module == view.at.module => {
                    near::has_word(near::shared(view, at).code(), name) || args.iter().any(|a| given(&a.value))
                }
                _ => matches!(value, Rvalue::Call { callee, .. } if given(callee)),
            }
        })
    })
}

/// What a function steps backward from.
fn losses(view: &View<'_>) -> Vec<LocalId> {
    let stepped = |step: usize| match view.value(step) {
        Some(Rvalue::CallMethod { base, name, args }) if name == "backward" => {
            near::local(args.first().map_or(base, |a| &a.value))
        }
        _ => None,
    };
    (0..view.steps.len()).filter_map(stepped).collect()
}

/// Whether a model or a log that is not seen is given the whole batch, or what a function itself is given.
fn gives_whole(view: &View<'_>, batch: Option<LocalId>) -> bool {
    let is = |o: &Operand| match (near::local(o), batch) {
        (Some(local), Some(batch)) => {
            local == batch || near::reached(view, o, |s| keeps_whole(view, s)).contains(&batch)
        }
        (Some(local), None) => view.is_as_given(local) && !near::is_self(view, o),
        _ => false,
    };
    (0..view.steps.len()).any(|step| {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
            return false;
        };
        let reads = near::written_name(view, value)
            .is_some_and(|n| n.starts_with("on_") || near::has_any(&n.to_lowercase(), READERS));
        let forward = matches!(value, Rvalue::CallMethod { name, .. } if name == "forward");
        (reads || forward) && callee(view, value).is_none() && args.iter().any(|a| is(&a.value))
    })
}

/// Whether a step may make batches of a batch: it goes through them, or calls something.
fn keeps_whole(view: &View<'_>, step: usize) -> bool {
    match view.steps[step].stmt {
        Stmt::For { .. } => true,
        Stmt::Assign { value, .. } => matches!(value, Rvalue::Use(_) | Rvalue::Call { .. } | Rvalue::CallMethod { .. }),
        _ => false,
    }
}

/// Where a function of the file, which this one trains with, returns a sum divided by its own count of a mask.
fn own_mean(view: &View<'_>, mask: &Name) -> Option<(Place, Name)> {
    let functions = near::functions(view, view.at.module);
    let mut found = functions.into_iter().filter_map(|at: FuncRef| {
        let func = view.project.func(at);
        let lower = func.name.to_lowercase();
        if at == view.at
            || func.kind != FuncKind::Function
            || !lower.contains("loss")
            || !is_stepped_with(view, at, &lower)
        {
            return None;
        }
        let inner = near::shared(view, at);
        if near::communicates(&inner) || near::is_unrecorded(&inner) || near::decorators(view, at).next().is_some() {
            return None;
        }
        Some((divided(&inner, mask)?, func.name.clone()))
    });
    let first = found.next()?;
    if found.next().is_some() { None } else { Some(first) }
}

/// The division of a sum by the own count of a mask that is all that a function returns first.
fn divided(inner: &View<'_>, mask: &Name) -> Option<Place> {
    let mut returned = (0..inner.steps.len()).filter_map(|at| match inner.steps[at].stmt {
        Stmt::Return { value } => Some((at, value)),
        _ => None,
    });
    let (Some((at, value)), None) = (returned.next(), returned.next()) else { return None };
    let mut loss = match near::deep(inner, &inner.expr(value)) {
        Expr::Build(all) => near::deep(inner, all.first()?),
        other => other,
    };
    if let Expr::Unary(UnOp::Neg, of) = loss {
        loss = near::deep(inner, &of);
    }
    let Expr::Binary(BinOp::Div, above, below) = loss else { return None };
    let above = match near::deep(inner, &above) {
        Expr::Unary(UnOp::Neg, of) => near::deep(inner, &of),
        other => other,
    };
    let sums = |e: &Expr| match e {
        Expr::Call { callee, .. } => callee.last_name().is_some_and(|name| name == "sum" || name.ends_with("_sum")),
        _ => false,
    };
    let own = |e: &Expr| mask_of(inner, e).is_some_and(|(name, _)| name == *mask);
    if !sums(&above) || !own(&below) {
        return None;
    }
    let division = (0..at).find(|step| match inner.value(*step) {
        Some(Rvalue::Binary { op: BinOp::Div, right, .. }) => own(&inner.expr(right)),
        _ => false,
    })?;
    inner.steps[division].guards.is_empty().then(|| inner.place(inner.steps[division].id))
}
