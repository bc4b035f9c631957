//! Numbers of one sample that ranks with parts of it draw apart. In: a function. Out: a generator that is seeded by the rank among all ranks,
//! from which one number for each sample is drawn, where what is made of that is cut by the rank in a group that shares the sample: each
//! of its ranks has a part of another sample. Never: numbers for each position alone, of which a part is as good as another; functions or
//! files that send numbers to other ranks; a rank that is divided first. Source: torch.Generator. Next: `sampler_seed.rs`.

use super::Found;
use super::called;
use super::expr::Expr;
use super::found::Practice;
use super::mean_of_own::SEQUENCE;
use super::membership::Membership;
use super::near;
use super::own_part;
use super::unfold::unfold;
use super::view::View;
use crate::ir::{ArgKind, BinOp, Const, LocalId, Operand, Rvalue, Stmt};
use std::rc::Rc;

/// How many functions are gone through from a generator to its seed.
const MOST_DEPTH: usize = 3;
/// What draws as many numbers as it is told.
const DRAWS: &[&str] = &["torch.rand", "torch.randn", "torch.randint"];
/// How the size of the first dim is called.
const SAMPLES: &[&str] = &["b", "bs", "bsz", "batch", "batch_size", "num_samples"];
/// Words of files in which ranks may come to draw the same after all.
const SHARES: &[&str] = &["broadcast", "set_state", "all_gather", "scatter"];
/// Methods that give what they are called on, in another form.
const SAME: &[&str] = &["contiguous", "clone", "detach", "to", "float", "cuda"];

/// `t = torch.rand(x.size(0), generator=g)`, `noisy.chunk(n, dim=1)[sp_rank]` and `g.manual_seed(seed + rank)`
pub fn drawn(view: &View<'_>, out: &mut Found) {
    let file = view.file();
    let refused = || near::refusals(file).any(|line| near::has_any(line, &["== 1", "> 1", "!= 1"]));
    if near::has_any(file, SHARES) || !view.collectives().is_empty() || refused() {
        return;
    }
    for step in 0..view.steps.len() {
        let Some((number, generator)) = of_samples(view, step) else { continue };
        let Some(cut) = (step + 1..view.steps.len()).find(|at| cuts(view, *at, number)) else { continue };
        let Some((seeded, at)) = seed(view, generator, 0) else { continue };
        let Some(Rvalue::CallMethod { args, .. }) = seeded.value(at) else { continue };
        let Some(given) = args.first().map(|a| unfold(&seeded, &seeded.expr(&a.value), at)) else { continue };
        let place = seeded.place(seeded.steps[at].id);
        // Where the numbers are drawn the generator may be seeded anew.
        if seeded.at != view.at && view.code().contains(".manual_seed(") {
            continue;
        }
        if has_rank(&seeded, &given) && out.iter().all(|(told, _)| *told != place) {
            let (drawn, cut) = (view.place(view.steps[step].id), view.place(view.steps[cut].id));
            out.push((place, Practice::Membership(Membership::SeedOfSample { drawn, cut })));
        }
    }
}

/// The variable for one number of each sample that a step draws, and the generator.
fn of_samples<'a>(view: &View<'a>, step: usize) -> Option<(LocalId, &'a Operand)> {
    let Stmt::Assign { dst, value: value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) } =
        view.steps[step].stmt
    else {
        return None;
    };
    let path = view.callee(value).filter(|path| DRAWS.contains(&path.as_str()))?;
    let generator = args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == "generator"))?;
    let given: Vec<_> = args.iter().filter(|a| a.kind == ArgKind::Positional).map(|a| &a.value).collect();
    let shape = match (path.as_str(), &given[..]) {
        ("torch.randint", [_, shape] | [_, _, shape]) | ("torch.rand" | "torch.randn", [shape]) => view.through(shape),
        _ => return None,
    };
    let one = match &shape {
        Expr::Build(sizes) => match &sizes[..] {
            [one] => one.clone(),
            _ => return None,
        },
        other => other.clone(),
    };
    counts_samples(view, &one).then_some((*dst, &generator.value))
}

/// Whether a number is the size of the first dim of something, or called so.
fn counts_samples(view: &View<'_>, size: &Expr) -> bool {
    let zero = |e: &Expr| matches!(e, Expr::Const(Const::Int(0)));
    match near::deep(view, size) {
        Expr::Call { callee, args, .. } => {
            callee.last_name() == Some("size") && matches!(&args[..], [(_, dim)] if zero(dim))
        }
        Expr::Item(of, at) => zero(&at) && of.last_name() == Some("shape"),
        Expr::Local(local) => SAMPLES.contains(&view.local_name(local).to_lowercase().as_str()),
        _ => false,
    }
}

/// Whether a step cuts a part of what a number went into along another dim than that of the samples, by the rank in a group that has parts
/// of a sequence: here, or in a function that it calls.
fn cuts(view: &View<'_>, step: usize, number: LocalId) -> bool {
    let comes = |o: &Operand| near::reached(view, o, |_| true).contains(&number);
    match view.value(step) {
        Some(value @ Rvalue::Item { .. }) => picked(view, value).is_some_and(comes),
        Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) => {
            let Some((at, bound)) = own_part::helper(view, value) else { return false };
            let helper = near::shared(view, at);
            let Some((_, mut given)) = own_part::returned(&helper) else { return false };
            loop {
                given = match helper.source(given) {
                    Some((_, Rvalue::CallMethod { base, name, .. })) if SAME.contains(&name.as_str()) => base,
                    Some((_, Rvalue::Use(inner))) => inner,
                    _ => break,
                };
            }
            let Some(whole) = helper.source(given).and_then(|(_, v)| picked(&helper, v)).and_then(near::local) else {
                return false;
            };
            let at = helper.func.params.iter().position(|p| p.local == whole).and_then(|at| at.checked_sub(bound));
            at.and_then(|at| view.argument(args, at, helper.local_name(whole))).is_some_and(comes)
        }
        _ => false,
    }
}

/// What `x.chunk(n, dim=1)[sp_rank]` picks a part of.
fn picked<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<&'a Operand> {
    let Rvalue::Item { base, index } = value else { return None };
    let (_, split @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.source(base)? else {
        return None;
    };
    let path = view.callee(split)?;
    let (of, at) = match (split, path.as_str()) {
        (Rvalue::CallMethod { base, .. }, ".chunk" | ".tensor_split") => (base, 1),
        (_, "torch.chunk" | "torch.tensor_split") => (&args.first()?.value, 2),
        _ => return None,
    };
    let along = view.argument(args, at, "dim")?;
    let first = matches!(view.expr(along), Expr::Const(Const::Int(0)));
    (!first && is_rank_of_sequence(view, index)).then_some(of)
}

/// Whether a number is the rank in a group that has parts of a sequence, by its name or by what it is.
fn is_rank_of_sequence(view: &View<'_>, index: &Operand) -> bool {
    let named = |name: &str| near::has_part(name, "rank") && SEQUENCE.iter().any(|word| near::has_part(name, word));
    let written = match view.expr(index) {
        Expr::Local(local) => named(view.local_name(local)),
        other => other.last_name().is_some_and(named),
    };
    let called = |e: Expr| matches!(e, Expr::Call { callee, .. } if callee.last_name().is_some_and(named));
    written || called(view.through(index))
}

/// Where a generator is seeded: here, in the function that makes it, or where all callers of the file make it.
fn seed<'a>(view: &View<'a>, generator: &Operand, depth: usize) -> Option<(Rc<View<'a>>, usize)> {
    if depth > MOST_DEPTH {
        return None;
    }
    let local = near::local(generator)?;
    let here = near::shared(view, view.at);
    if view.is_param(local) {
        return view.defs(local).is_empty().then(|| by_callers(view, local, depth)).flatten();
    }
    let mut seeds = (0..view.steps.len()).filter(|step| match view.value(*step) {
        Some(Rvalue::CallMethod { base, name, .. }) => name == "manual_seed" && near::local(base) == Some(local),
        _ => false,
    });
    if let Some(step) = seeds.next() {
        return seeds.next().is_none().then_some((here, step));
    }
    match view.source(generator)? {
        (_, Rvalue::Use(inner)) => seed(view, inner, depth + 1),
        // `torch.Generator(device).manual_seed(seed)`
        (step, Rvalue::CallMethod { name, .. }) if name == "manual_seed" => Some((here, step)),
        (_, value) => {
            let (at, _) = own_part::helper(view, value)?;
            let maker = near::shared(view, at);
            let (_, made) = own_part::returned(&maker)?;
            seed(&maker, made, depth + 1)
        }
    }
}

/// The one place where all callers in the file of a function seed what they give a parameter.
fn by_callers<'a>(view: &View<'a>, local: LocalId, depth: usize) -> Option<(Rc<View<'a>>, usize)> {
    let bound = usize::from(view.func.class.is_some());
    let at = view.func.params.iter().position(|p| p.local == local)?.checked_sub(bound)?;
    let method = view.func.class.is_some().then_some(view.func.name.as_str());
    let mut found: Option<(Rc<View<'a>>, usize)> = None;
    for (caller, step) in called::sites(view, &view.project.qualified(view.at), method) {
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = caller.value(step)? else { return None };
        let one = seed(&caller, caller.argument(args, at, view.local_name(local))?, depth + 1)?;
        match &found {
            Some((by, at)) if by.at != one.0.at || *at != one.1 => return None,
            _ => found = Some(one),
        }
    }
    found
}

/// Whether the rank among all ranks is added to other numbers in an expression. Divided, it is that of a set of ranks.
pub(super) fn has_rank(view: &View<'_>, expr: &Expr) -> bool {
    match expr {
        Expr::Binary(BinOp::Add | BinOp::Sub | BinOp::Mul, a, b) => has_rank(view, a) || has_rank(view, b),
        other => is_world_rank(view, other),
    }
}

/// `get_rank()`, or an attribute that is nothing else wherever the file sets it: of the object itself, or of one that is given.
fn is_world_rank(view: &View<'_>, expr: &Expr) -> bool {
    match near::deep(view, expr) {
        asked @ Expr::Call { .. } => asks(view, &asked),
        Expr::Attr(base, name) if near::has_part(&name, "rank") && matches!(*base, Expr::Local(_)) => {
            let own = near::own_attribute(view, &Expr::Attr(base.clone(), name.clone())).and(near::class_of(view));
            let classes = view.project.modules[view.at.module].ir.classes.ids();
            let classes = classes.filter(|class| own.is_none_or(|own| own == *class));
            let mut sets = classes.flat_map(|class| near::assigned(view, class, &name));
            let is =
                |(by, step, value): (Rc<View<'_>>, usize, &Operand)| asks(&by, &unfold(&by, &by.expr(value), step));
            sets.next().is_some_and(is) && sets.all(is)
        }
        _ => false,
    }
}

fn asks(view: &View<'_>, expr: &Expr) -> bool {
    let Expr::Call { callee, args, .. } = expr else { return false };
    args.is_empty() && near::path(view, callee).is_some_and(|path| path == "torch.distributed.get_rank")
}
