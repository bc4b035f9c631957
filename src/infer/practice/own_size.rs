//! Matches of all ranks divided by the size of one rank's samples. In: a function. Out: a number of matches, of predictions and labels, that is
//! summed over the ranks and divided by how many labels this rank has. Never: sizes that are summed, labels that were gathered, or a
//! function that asks how many ranks there are. Source: torch.distributed, `all_reduce`: the sum is that of all ranks. Next: `counts.rs`.

use super::Found;
use super::counts::{over_data, quotient, slice, slice_until};
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::this_rank::knows_ranks;
use super::view::{Step, View};
use super::wrapped::is_always;
use crate::ir::{BinOp, CmpOp, Const, LocalId, Operand, Rvalue, Stmt};
use crate::source::Name;

/// Parts of the text of every function that counts matches.
pub const MATCHES: &[&str] = &["==", ".eq("];
pub const SIZES: &[&str] = &["shape[", "size(", "numel(", "len("];

/// Words of functions that know how many ranks there are.
const KNOWS: &[&str] = &["world", "num_gpu", "n_gpu", "num_proc", "replica", "dp_size", "num_rank", "nranks", "divide"];

/// Methods and functions that keep what a number counts.
const SAME: &[&str] =
    &["float", "double", "int", "long", "to", "item", "clamp", "clamp_min", "tensor", "max", "as_tensor"];

/// How far a number is followed.
const MOST: usize = 6;

pub fn divisors(view: &View<'_>, out: &mut Found) {
    if near::has_any(view.code(), KNOWS) {
        return;
    }
    for i in 0..view.steps.len() {
        let Some((left, right)) = quotient(view, i) else { continue };
        let Some((of, counted)) = size_of(view, right, 0) else { continue };
        let sum = slice(view, left);
        let [(reduced, Some(input))] = sum.collectives.as_slice() else { continue };
        // What is matched may be of all ranks already: the matches are what is summed.
        let before = slice_until(view, input, *reduced);
        let matched = before.collectives.is_empty() && before.sums.iter().any(|at| matches(view, *at).contains(&of));
        let own = |o: &Operand| slice(view, o).collectives.is_empty();
        let is_own = own(right) && own(&Operand::Local(of));
        let masked = before.sums.iter().any(|at| matches(view, *at).into_iter().any(|l| is_masked(view, l)));
        if !matched || masked || !over_data(view, *reduced) || !is_own || knows_ranks(view) {
            continue;
        }
        // Ranks without results count the samples and match none: stages of a pipeline.
        let counted_at = counted.unwrap_or(i);
        let sums = before.sums.iter().chain(&sum.sums).copied().filter(|at| matches(view, *at).contains(&of));
        let grown = before.locals.iter().chain(&sum.locals).flat_map(|l| view.defs(*l).iter().map(move |d| (*l, *d)));
        let grown = grown.filter(|(l, d)| added(view, *d, *l).is_some()).map(|(_, d)| d).filter(|d| *d < *reduced);
        if sums.chain(grown).any(|at| !is_always(&view.steps[at], Some(&view.steps[counted_at]))) {
            continue;
        }
        // What was added up over many rounds is the result.
        let rounds = counted.is_some_and(|at| !view.steps[at].loops.is_empty());
        if !rounds && is_for_caller(view, i) {
            continue;
        }
        out.push((view.place(view.steps[counted.unwrap_or(i)].id), local_count(view, i, *reduced)));
    }
}

fn local_count(view: &View<'_>, divided: usize, reduced: usize) -> Practice {
    let place = |step: usize| view.place(view.steps[step].id);
    Practice::LocalCount { divided: place(divided), reduced: Some(place(reduced)), comment: None }
}

/// Whether a quotient is returned as it is to callers that are not seen, which may divide it by the number of ranks.
fn is_for_caller(view: &View<'_>, step: usize) -> bool {
    let Stmt::Assign { dst, .. } = view.steps[step].stmt else { return false };
    let returned = view.steps.iter().any(|s| matches!(s.stmt, Stmt::Return { value: Operand::Local(l) } if l == dst));
    returned && super::called::callers(view).is_empty()
}

/// Whether a variable has its own entries in some places alone, and something else in others: those of other ranks count once.
fn is_masked(view: &View<'_>, local: LocalId) -> bool {
    let fills = ["full", "full_like", "where", "masked_fill", "new_full"];
    let filled = |def: &usize| view.bound(*def, local).any(&mut |e| fills.iter().any(|name| e.call_of(name).is_some()));
    let set = |s: &Step<'_>| matches!(s.stmt, Stmt::SetItem { base: Operand::Local(l), .. } if *l == local);
    view.defs(local).iter().any(filled) || view.steps.iter().any(set)
}

/// The variables whose entries a step compares and counts: `(pred == y).sum()`.
fn matches(view: &View<'_>, step: usize) -> Vec<LocalId> {
    let Some(Rvalue::CallMethod { base, .. }) = view.value(step) else { return Vec::new() };
    let mut compared = view.through(base);
    loop {
        let (one, other) = match &compared {
            Expr::Compare(CmpOp::Eq, a, b) => (&**a, &**b),
            Expr::Call { callee, args, .. } => match (&**callee, args.as_slice()) {
                (Expr::Attr(a, name), [(_, b)]) if name == "eq" => (&**a, b),
                (Expr::Attr(inner, name), _) if SAME.contains(&name.as_str()) => {
                    compared = (**inner).clone();
                    continue;
                }
                _ => return Vec::new(),
            },
            _ => return Vec::new(),
        };
        // A comparison with a constant is a mask of what counts.
        if matches!(one, Expr::Const(_)) || matches!(other, Expr::Const(_)) {
            return Vec::new();
        }
        return [one, other].into_iter().filter_map(rooted).collect();
    }
}

/// The variable of `y`, `y.view(-1)`, `y.to(device)`.
fn rooted(e: &Expr) -> Option<LocalId> {
    match e {
        Expr::Local(local) => Some(*local),
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, name)
                if matches!(name.as_str(), "view" | "reshape" | "flatten" | "to" | "view_as" | "cuda") =>
            {
                rooted(base)
            }
            _ => None,
        },
        _ => None,
    }
}

/// The variable whose size a number is, alone or added up over rounds, and the step that adds it.
fn size_of(view: &View<'_>, o: &Operand, depth: usize) -> Option<(LocalId, Option<usize>)> {
    let Operand::Local(local) = o else { return None };
    if depth > MOST || view.is_param(*local) {
        return None;
    }
    if let [one] = view.defs(*local) {
        let value = view.value(*one)?;
        return match value {
            Rvalue::Use(inner) => size_of(view, inner, depth + 1),
            value => match sized(view, value) {
                Some(of) => Some((of, Some(*one))),
                None => size_of(view, kept(view, value)?, depth + 1),
            },
        };
    }
    // `n = 0`, and `n += y.size(0)` in a loop.
    let (mut found, mut others) = (None, 0);
    for def in view.defs(*local) {
        match added(view, *def, *local) {
            Some(addend) => found = size_of(view, addend, depth + 1).map(|(of, _)| (of, Some(*def))),
            None => others += usize::from(!is_start(view, *def, *local)),
        }
    }
    found.filter(|_| others == 0)
}

/// The variable whose size an operation asks for: of its first dim, or of all.
fn sized(view: &View<'_>, value: &Rvalue) -> Option<LocalId> {
    let first = |e: &Expr| matches!(e, Expr::Const(Const::Int(0)));
    match value {
        Rvalue::Item { base, index } if first(&view.expr(index)) => match view.expr(base) {
            Expr::Attr(of, name) if name == "shape" => rooted(&of),
            _ => None,
        },
        Rvalue::CallMethod { base, name, args } => match (name.as_str(), &args[..]) {
            ("numel" | "nelement", []) => rooted(&view.expr(base)),
            ("size", [dim]) if first(&view.expr(&dim.value)) => rooted(&view.expr(base)),
            _ => None,
        },
        Rvalue::Call { callee: Operand::Global(name), args } if name == "len" => {
            rooted(&view.expr(&args.first()?.value))
        }
        _ => None,
    }
}

/// What a function that keeps a number is given.
fn kept<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<&'a Operand> {
    match value {
        Rvalue::CallMethod { base, name, args } if SAME.contains(&name.as_str()) => match view.expr(base) {
            Expr::Path(_) => Some(&args.first()?.value),
            _ => Some(base),
        },
        Rvalue::Call { callee: Operand::Global(name), args } if SAME.contains(&name.as_str()) => {
            Some(&args.first()?.value)
        }
        _ => None,
    }
}

/// What a step adds to a variable.
pub(super) fn added<'a>(view: &View<'a>, def: usize, to: LocalId) -> Option<&'a Operand> {
    let is = |o: &Operand| matches!(o, Operand::Local(l) if *l == to);
    let addend = |value: &'a Rvalue| match value {
        Rvalue::InPlace { op: BinOp::Add, left, right } | Rvalue::Binary { op: BinOp::Add, left, right }
            if is(left) =>
        {
            Some(right)
        }
        _ => None,
    };
    match view.value(def)? {
        Rvalue::Use(Operand::Local(temp)) if view.is_temp(*temp) => match view.defs(*temp) {
            [one] => addend(view.value(*one)?),
            _ => None,
        },
        value => addend(value),
    }
}

/// Whether a step starts a sum: with zero, or zeros.
pub(super) fn is_start(view: &View<'_>, def: usize, local: LocalId) -> bool {
    match view.bound(def, local) {
        Expr::Const(Const::Int(0) | Const::Float(0)) => true,
        e => ["zeros", "tensor", "zeros_like", "new_zeros"].iter().any(|name| e.call_of(name).is_some()),
    }
}

/// The same of what a class keeps: `self.total += value * n` and `self.count += n`, of which the total alone is summed.
pub fn kept_counts(view: &View<'_>, out: &mut Found) {
    let Some(class) = near::class_of(view).filter(|_| !near::has_any(view.code(), KNOWS)) else {
        return;
    };
    for i in 0..view.steps.len() {
        let Some((left, right)) = quotient(view, i) else { continue };
        let (total, count) = (view.through(left), view.through(right));
        let (Some(total), Some(count)) = (near::own_attribute(view, &total), near::own_attribute(view, &count)) else {
            continue;
        };
        let reduces = |at: &View<'_>, name: &str| {
            at.collectives().iter().find_map(|(step, call)| {
                let input = at.through(call.input?);
                let own = input.any(&mut |e| near::own_attribute(at, e).is_some_and(|n| n == name));
                own.then_some(*step)
            })
        };
        let Some(reduced) = reduces(view, total).filter(|at| *at < i && over_data(view, *at)) else { continue };
        let methods = near::methods(view, class);
        if methods.iter().any(|method| reduces(method, count).is_some()) || knows_ranks(view) {
            continue;
        }
        let grown = |name: &Name| {
            let mut assigned = near::assigned(view, class, name).into_iter();
            assigned.find_map(|(method, step, value)| {
                let addend = grows(&method, value)?.clone();
                let by = method.expr(&addend);
                Some((method, step, by))
            })
        };
        let (Some((here, sum, by)), Some((there, counted, n))) = (grown(total), grown(count)) else { continue };
        let together = here.at == there.at && is_always(&here.steps[sum], Some(&there.steps[counted]));
        let weighed = together && matches!(n, Expr::Local(_)) && by.any(&mut |e| *e == n);
        // A caller may divide what it gets by the number of ranks.
        let knows = |(site, _): &(std::rc::Rc<View<'_>>, usize)| near::has_any(site.code(), KNOWS);
        let path = view.project.qualified(view.at);
        let told = || super::called::sites(view, &path, Some(view.func.name.as_str())).iter().any(knows);
        if weighed && !told() {
            out.push((view.part(view.steps[i].id, 1), local_count(view, i, reduced)));
        }
    }
}

/// What is added to an attribute: of `self.x += n`, the `n`.
fn grows<'a>(view: &View<'a>, value: &Operand) -> Option<&'a Operand> {
    match view.source(value)?.1 {
        Rvalue::InPlace { op: BinOp::Add, right, .. } => Some(right),
        _ => None,
    }
}
