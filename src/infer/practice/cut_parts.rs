//! Means over ranks that have other samples, of what each rank has of a part of the sequence only. In: a function. Out: a mean that is taken
//! over data-parallel ranks, of values that a call has cut by the rank among those that share a sequence. Never: where anything in the
//! function runs over the other ranks as well, the values go through a call of
//! which nothing is known, or a sum that nothing divides. Next: `named_axes.rs`.

use super::Found;
use super::counts::{quotient, slice, slice_until};
use super::expr::Expr;
use super::found::Practice;
use super::hints::{Says, hints};
use super::membership::Membership;
use super::near;
use super::own_group;
use super::view::View;
use crate::ir::{Arg, ArgKind, BinOp, LocalId, Operand, Rvalue, Stmt};
use crate::project::Resolved;
use crate::rules::Gives;
use crate::source::{Name, Place};
use rustc_hash::FxHashSet;

const PARTS: &[&str] = &["cp", "sp"];

pub const WORDS: &[&str] = &[
    "context_parallel_rank",
    "sequence_parallel_rank",
    "context-parallel rank",
    "context parallel rank",
    "with_cp",
    "for_cp",
    "by_cp",
];

/// Verbs of functions outside the project that give this rank's part.
const CUTS: &[&str] = &["slice", "split", "shard", "chunk"];

/// `whiten(torch.cat(parts), group=get_data_parallel_group())`, where the parts were cut with `get_context_parallel_rank()`.
pub fn means(view: &View<'_>, out: &mut Found) {
    let cuts: Vec<(usize, Name)> =
        (0..view.steps.len()).filter_map(|i| cut_by(view, i).map(|axis| (i, axis))).collect();
    if cuts.is_empty() {
        return noted(view, out);
    }
    let groups: Vec<Vec<Name>> = (0..view.steps.len()).flat_map(|i| groups_of(view, i)).map(|(_, g)| g).collect();
    for (i, step) in view.steps.iter().enumerate() {
        let Some((group, args)) = mean_over(view, i) else { continue };
        if groups_of(view, i).iter().all(|(_, g)| g.as_slice() != [Name::from("dp")]) {
            continue;
        }
        let found = cuts.iter().find(|(at, axis)| {
            let made = |a: &&Arg| a.value != *group && comes_from(view, &a.value, *at, i);
            !groups.iter().any(|g| g.contains(axis)) && args.iter().any(|a| made(&a))
        });
        let Some((cut, axis)) = found else { continue };
        let got = match view.expr(group) {
            Expr::Local(local) => match view.defs(local) {
                [one] => view.place(view.steps[*one].id),
                _ => view.place(step.id),
            },
            // Where it is written among the arguments, behind what is called.
            _ => match args.iter().position(|a| a.value == *group) {
                Some(at) => view.part(step.id, at + 1),
                None => view.place(step.id),
            },
        };
        let (cut, taken): (Place, Place) = (view.place(view.steps[*cut].id), view.place(step.id));
        let found = Membership::MeanOfParts { axis: axis.clone(), cut, taken };
        out.push((got, Practice::Membership(found)));
        return;
    }
}

/// The same of sums of what a comment says to be this rank's part: `# mask: this context-parallel rank's part of each response`.
fn noted(view: &View<'_>, out: &mut Found) {
    let all = hints(view);
    let parts = all.iter().find(|h| h.says == Says::Varies && matches!(h.axes.as_slice(), ["cp"] | ["sp"]));
    let Some(hint) = parts.filter(|h| !h.locals.is_empty()) else { return };
    let axis = Name::from(hint.axes[0]);
    let groups: Vec<Vec<Name>> = (0..view.steps.len()).flat_map(|i| groups_of(view, i)).map(|(_, g)| g).collect();
    // Anything else that runs over the other ranks may have put the parts together.
    if view.collectives().len() != 1 || groups.iter().any(|g| g.contains(&axis)) {
        return;
    }
    for (i, call) in view.collectives() {
        let over = call.group.and_then(|g| own_group::axes(view, &view.expr(g), Gives::Group, 0));
        let (Some(over), Some(group), Some(input)) = (over, call.group, call.input) else { continue };
        let of_parts = is_sum_of(view, input, &hint.locals, *i);
        let Some(sums) = near::local(input) else { continue };
        let of_sums = |o: &Operand| near::deep(view, &view.expr(o)).mentions(sums);
        let divided = (*i + 1..view.steps.len())
            .any(|s| quotient(view, s).is_some_and(|(left, right)| of_sums(left) && of_sums(right)));
        if call.rule.op != "all_reduce" || over.as_slice() != [Name::from("dp")] || !of_parts || !divided {
            continue;
        }
        let taken = view.place(view.steps[*i].id);
        let got = match view.expr(group) {
            Expr::Local(local) => view.defs(local).first().map_or(taken, |d| view.place(view.steps[*d].id)),
            _ => taken,
        };
        let found = Membership::MeanOfParts { axis: axis.clone(), cut: hint.place, taken };
        out.push((got, Practice::Membership(found)));
    }
}

/// Methods that compute one element after the other, sum, or change the shape.
const COMPUTES: &[&str] = &[
    "sum",
    "float",
    "double",
    "square",
    "pow",
    "abs",
    "to",
    "type",
    "type_as",
    "mul",
    "add",
    "sub",
    "view",
    "reshape",
    "flatten",
    "detach",
    "clone",
    "bool",
    "long",
    "masked_fill",
    "unsqueeze",
    "squeeze",
];

/// Whether a value holds sums of named parameters, and comes from these alone, through operations of tensors that give one element for each.
/// Neither they nor what is made of them before is given to anything else.
fn is_sum_of<'a>(view: &View<'a>, value: &'a Operand, parts: &[LocalId], until: usize) -> bool {
    let mut summed = false;
    let mut seen: FxHashSet<LocalId> = FxHashSet::default();
    let mut queue: Vec<&Operand> = vec![value];
    while let Some(next) = queue.pop() {
        let Operand::Local(local) = next else { continue };
        if !seen.insert(*local) {
            continue;
        }
        let own = |s: &usize| *s > until || is_computed(view, *s).is_some() || *s == until;
        if !view.readers(*local).iter().all(own) {
            return false;
        }
        // What is summed may be given to code that sums it over the others.
        let later = |s: &usize| match view.value(*s) {
            Some(Rvalue::Item { .. } | Rvalue::Binary { .. }) => true,
            _ => *s <= until || is_computed(view, *s).is_some() || matches!(view.steps[*s].stmt, Stmt::Unpack { .. }),
        };
        if near::local(value) == Some(*local) && !view.readers(*local).iter().all(later) {
            return false;
        }
        if parts.contains(local) {
            // Bound again, it is no longer what the comment says.
            if !view.is_param(*local) || !view.defs(*local).is_empty() {
                return false;
            }
            continue;
        }
        let ([at], false) = (view.defs(*local), view.is_param(*local)) else { return false };
        let Some(sums) = is_computed(view, *at).filter(|_| *at < until) else { return false };
        summed |= sums;
        queue.extend(view.reads(*at));
    }
    summed && parts.iter().any(|l| seen.contains(l))
}

/// Whether a step computes of tensors, element by element or a sum; the answer: whether a sum.
fn is_computed(view: &View<'_>, step: usize) -> Option<bool> {
    match view.value(step)? {
        Rvalue::Use(_) | Rvalue::Build { .. } | Rvalue::Unary { .. } | Rvalue::Compare { .. } => Some(false),
        Rvalue::Binary { op, .. } => (*op != BinOp::MatMul).then_some(false),
        value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. }) => {
            let path = view.callee(value)?;
            match path.strip_prefix('.') {
                Some(method) => COMPUTES.contains(&method).then_some(method == "sum"),
                None => matches!(path.as_str(), "torch.stack" | "torch.cat" | "torch.sum" | "torch.square")
                    .then_some(path.ends_with(".sum")),
            }
        }
        _ => None,
    }
}

fn arguments(value: &Rvalue) -> &[Arg] {
    match value {
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => args,
        _ => &[],
    }
}

/// The axis of which a call is given the rank, beside what it cuts.
fn cut_by(view: &View<'_>, step: usize) -> Option<Name> {
    let value = view.value(step)?;
    let args = arguments(value);
    if args.is_empty() || view.collective(value).is_some() {
        return None;
    }
    if let Some(axis) = bounds_of(view, value).or_else(|| named(view, value)) {
        return Some(axis);
    }
    let of = |a: &Arg| own_group::axes(view, &view.expr(&a.value), Gives::Rank, 0);
    args.iter().skip(1).find_map(of).filter(|axes| axes.len() == 1 && PARTS.contains(&axes[0].as_str()))?.pop()
}

/// Whether a file asks how many ranks share a sequence: it may go on with one alone.
fn asks_size(file: &str) -> bool {
    let sizes = ["context_parallel_world_size", "context_parallel_size", "cp_size", "cp_world_size"];
    let asks = |line: &str| {
        let line = line.trim_start();
        ["assert ", "if ", "elif "].iter().any(|word| line.starts_with(word))
    };
    file.lines().any(|line| asks(line) && sizes.iter().any(|word| line.contains(word)))
}

/// The axis in the name of a function outside the project: `slice_log_prob_with_cp`.
fn named<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<Name> {
    let file = view.file();
    let path = view.callee(value).filter(|path| !path.starts_with('.') && !asks_size(file))?;
    let name = super::lost::last(&path);
    let cuts = CUTS.iter().any(|verb| name.starts_with(verb));
    let outside = !matches!(view.project.path(&path), Resolved::Func(_) | Resolved::Class(_));
    let axis = ["_with_cp", "_for_cp", "_by_cp"].iter().any(|end| name.ends_with(end)).then(|| Name::from("cp"));
    axis.filter(|_| cuts && outside)
}

/// The axis by whose rank a function of the project computes where the part of this rank begins and ends: it asks for the rank, multiplies by
/// it, and communicates with nobody.
fn bounds_of<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<Name> {
    let Rvalue::Call { callee: Operand::Global(_), .. } = value else { return None };
    let Resolved::Func(at) = view.project.path(&view.callee(value)?) else { return None };
    let text = view.files[view.project.file(at.module)].slice(view.project.func(at).span);
    if !["context_parallel_rank", "sequence_parallel_rank"].iter().any(|word| text.contains(word)) {
        return None;
    }
    let helper = near::shared(view, at);
    if !helper.collectives().is_empty() {
        return None;
    }
    let of = |o: &Operand| own_group::axes(&helper, &helper.through(o), Gives::Rank, 0);
    helper.steps.iter().find_map(|step| {
        let axes = match step.stmt {
            Stmt::Assign { value: Rvalue::Binary { op: BinOp::Mul, left, right }, .. } => {
                of(left).or_else(|| of(right))?
            }
            // `x.chunk(2 * size)[rank]`
            Stmt::Assign { value: Rvalue::Item { base, index }, .. } if is_chunks(&helper, base) => of(index)?,
            _ => return None,
        };
        let [axis] = axes.as_slice() else { return None };
        PARTS.contains(&axis.as_str()).then(|| axis.clone())
    })
}

/// Whether a value is what `chunk` or `split` makes of something.
fn is_chunks(view: &View<'_>, value: &Operand) -> bool {
    match near::deep(view, &view.expr(value)) {
        Expr::Call { callee, .. } => {
            callee.last_name().is_some_and(|name| ["chunk", "tensor_split", "split"].contains(&name))
        }
        _ => false,
    }
}

/// The groups that a call is given.
fn groups_of<'a>(view: &View<'a>, step: usize) -> Vec<(&'a Operand, Vec<Name>)> {
    let args = view.value(step).map(arguments).unwrap_or_default();
    let of = |a: &'a Arg| Some((&a.value, own_group::axes(view, &view.expr(&a.value), Gives::Group, 0)?));
    args.iter().filter_map(of).collect()
}

/// The group and the arguments of a call that takes a mean over ranks: a collective whose result is divided, or a function of the project
/// that does both.
fn mean_over<'a>(view: &View<'a>, step: usize) -> Option<(&'a Operand, &'a [Arg])> {
    let value = view.value(step)?;
    let args = arguments(value);
    if let Some(call) = view.collective(value) {
        let divided = |i: usize| {
            quotient(view, i).is_some_and(|(left, _)| slice(view, left).collectives.iter().any(|(at, _)| *at == step))
        };
        let sums = call.input.is_some_and(|input| !slice_until(view, input, step).sums.is_empty());
        let means = sums && call.rule.op == "all_reduce" && (0..view.steps.len()).any(divided);
        return call.group.filter(|_| means).map(|g| (g, args));
    }
    let Resolved::Func(at) = view.project.path(&view.callee(value)?) else { return None };
    let helper = near::other(view, at);
    let over = helper.collectives().iter().find_map(|(at, c)| {
        if slice_until(&helper, c.input?, *at).sums.is_empty() {
            return None;
        }
        let local = near::local(c.group.filter(|_| c.rule.op == "all_reduce")?)?;
        helper.func.params.iter().position(|p| p.local == local)
    })?;
    let divides = (0..helper.steps.len()).any(|i| quotient(&helper, i).is_some());
    let name = &helper.func.params[over].name;
    let named = args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == name));
    let given = named.or_else(|| args.get(over).filter(|a| a.kind == ArgKind::Positional))?;
    divides.then_some((&given.value, args))
}

/// Whether a value is made of what a step gives, through lists as well, and nothing on the way from there may communicate but what is `taken`
/// of it.
fn comes_from(view: &View<'_>, value: &Operand, step: usize, taken: usize) -> bool {
    // What each variable on the way is made of.
    let mut made_of: Vec<(LocalId, Vec<LocalId>)> = Vec::new();
    let mut seen: FxHashSet<LocalId> = FxHashSet::default();
    let mut queue: Vec<LocalId> = near::local(value).into_iter().collect();
    while let Some(local) = queue.pop() {
        if seen.insert(local) {
            let of = sources(view, local, taken);
            queue.extend(of.iter().copied());
            made_of.push((local, of));
        }
    }
    let mut parts: FxHashSet<LocalId> = view.binds(step).into_iter().collect();
    loop {
        let before = parts.len();
        for (local, of) in &made_of {
            if of.iter().any(|l| parts.contains(l)) {
                parts.insert(*local);
            }
        }
        if parts.len() == before {
            break;
        }
    }
    let others = |s: &usize| *s != step && *s != taken && is_other_call(view, *s);
    let mut on_the_way = made_of.iter().map(|(local, _)| *local).filter(|l| parts.contains(l));
    near::local(value).is_some_and(|value| parts.contains(&value))
        && !on_the_way.any(|l| view.defs(l).iter().any(others) || view.readers(l).iter().any(others))
}

/// What a variable is made of before a step: what its definitions read, and what is put into it.
fn sources(view: &View<'_>, local: LocalId, until: usize) -> Vec<LocalId> {
    let mut out = Vec::new();
    for s in &view.steps[..until] {
        match s.stmt {
            Stmt::Append { collection, value, .. } if *collection == local => out.extend(near::local(value)),
            Stmt::Assign { value: Rvalue::CallMethod { base, name, args }, .. }
                if name == "append" && near::local(base) == Some(local) =>
            {
                out.extend(args.iter().filter_map(|a| near::local(&a.value)));
            }
            _ => {}
        }
    }
    for def in view.defs(local).iter().filter(|def| **def < until) {
        out.extend(view.reads(*def).into_iter().filter_map(near::local));
    }
    out
}

/// Whether a step calls what is no operation of tensors or lists.
fn is_other_call(view: &View<'_>, step: usize) -> bool {
    let Some(value) = view.value(step) else { return false };
    match value {
        Rvalue::CallMethod { base, name, .. } if !matches!(view.through(base), Expr::Path(_)) => {
            name != "append" && view.rules.tensor_method(name).is_none()
        }
        Rvalue::Call { callee: Operand::Global(name), .. }
            if matches!(
                name.as_str(),
                "zip" | "enumerate" | "list" | "tuple" | "len" | "range" | "print" | "max" | "min" | "int"
            ) =>
        {
            false
        }
        Rvalue::Call { .. } | Rvalue::CallMethod { .. } => {
            view.callee(value).is_none_or(|p| view.rules.op(&p).is_none() && p != "torch.tensor")
        }
        _ => false,
    }
}
