//! Losses that are scaled for other ranks than those whose gradients the wrapper averages. In: a function. Out: a loss that is divided by a count over
//! `fsdp_group` or `fsdp_mesh` and multiplied by `dp_size` of the same object, in a file that splits sequences: the mean is over the ranks of the first, and
//! gradients are too small by the ranks that share a sequence. Never: a file without such ranks, or another count.
//! Source: VeOmni pull request 338. Next: `counts.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::omissions::Omission;
use super::own_part::{helper, returned};
use super::view::View;
use crate::ir::{BinOp, LocalId, Stmt};
use crate::source::{Name, Place};

/// The groups over which a wrapper averages, by their names, and the number of ranks that is taken for that of them.
const GROUPS: [&str; 2] = ["fsdp_group", "fsdp_mesh"];
const SIZE: &str = "dp_size";
/// Parts of names of ranks that share a sequence.
const SHARING: &[&str] = &["sp", "cp", "ulysses", "sequence", "context"];

/// `total = all_reduce(tokens, group=ps.fsdp_group)`, and `loss * tokens / total * ps.dp_size`.
pub fn losses(view: &View<'_>, out: &mut Found) {
    let file = near::bare(view.file());
    let mut names = file.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    if !names.any(|name| SHARING.iter().any(|part| near::has_part(name, part))) {
        return;
    }
    // How many ranks a wrapper has is said by what counts the others in.
    let (mut defines, mut counts_all) = (false, false);
    let makes_up = file.lines().any(|line| {
        let inside = std::mem::replace(&mut defines, line.contains("def fsdp_size"));
        let product = inside && line.contains("return") && line.contains('*');
        counts_all |= product && line.contains(SIZE);
        !product && !defines && may_be_right(line)
    });
    if makes_up {
        return;
    }
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, .. } = step.stmt else { continue };
        let chosen = step.guards.iter().any(|g| !view.text(view.place(g.at)).starts_with("assert"));
        if chosen || view.is_temp(*dst) || !view.local_name(*dst).contains("loss") {
            continue;
        }
        let (mut times, mut over) = (Vec::new(), Vec::new());
        let value = view.bound(i, *dst);
        factors(&value, true, &mut times, &mut over);
        let is_size = |e: &Expr| matches!(near::deep(view, e), Expr::Attr(_, name) if name == SIZE);
        let Some(size) = times.iter().find(|e| is_size(e)) else { continue };
        // Another number of ranks may make up for it.
        let others = |e: &&Expr| near::deep(view, e).any(&mut |e| e.last_name().is_some_and(|n| n.ends_with("_size")));
        if times.iter().filter(|e| others(e)).count() > 1 {
            continue;
        }
        let counted = over.iter().find_map(|count| summed(view, count, i));
        // A mesh may be that of the data ranks alone.
        let wide = |(group, _): &(Name, Place)| group == GROUPS[0] || counts_all;
        if let Some((group, counted)) = counted.filter(wide).filter(|_| !over.iter().any(|e| is_size(e))) {
            let size = near::deep(view, size).last_name().unwrap_or(SIZE).into();
            let mistake = Omission::SizeOfFewer { size, group, counted };
            out.push((view.place(step.id), Practice::Omission(mistake)));
        }
    }
}

/// Whether a line makes up for the ranks that share a sequence, refuses them, counts them among the others, or communicates with them.
fn may_be_right(line: &str) -> bool {
    let shares = |ends: &[&str]| {
        let mut names = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        names.any(|name| {
            SHARING.iter().any(|part| near::has_part(name, part)) && ends.iter().any(|end| name.ends_with(end))
        })
    };
    let defines = line.contains("fsdp_size");
    let scales = near::has_any(line, &["*", "mul", "div", "/"]);
    let refuses = near::has_any(line, &["assert", "if "]);
    shares(&["_group"])
        || !defines && (scales || refuses) && shares(&["_size", "_world_size", "_degree"])
        || defines && line.contains(SIZE) && !line.contains('*')
}

/// What a product is multiplied with and divided by.
pub(super) fn factors<'e>(expr: &'e Expr, up: bool, times: &mut Vec<&'e Expr>, over: &mut Vec<&'e Expr>) {
    match expr {
        Expr::Binary(BinOp::Mul, a, b) => {
            factors(a, up, times, over);
            factors(b, up, times, over);
        }
        Expr::Binary(BinOp::Div, a, b) => {
            factors(a, up, times, over);
            factors(b, !up, times, over);
        }
        other if up => times.push(other),
        other => over.push(other),
    }
}

/// Which of the groups an expression names.
fn named(e: &Expr) -> Option<Name> {
    let mut group = None;
    e.any(&mut |e| {
        if let Expr::Attr(_, name) = e
            && GROUPS.contains(&name.as_str())
        {
            group = Some(name.clone());
        }
        group.is_some()
    });
    group
}

/// Over which group a count is summed, and where: by a collective on it before a step, by a call that is given the group, or by one of the file that sums
/// what it returns.
fn summed(view: &View<'_>, count: &Expr, before: usize) -> Option<(Name, Place)> {
    let mut counted = None;
    count.any(&mut |e| {
        if let Expr::Local(local) = e
            && counted.is_none()
        {
            counted = by_call(view, *local, before).or_else(|| in_place(view, *local, before));
        }
        counted.is_some()
    });
    counted.map(|(group, at)| (group, view.place(view.steps[at].id)))
}

/// The group that a call is given which a variable was bound to before a step, or over which it sums what it returns.
fn by_call(view: &View<'_>, local: LocalId, before: usize) -> Option<(Name, usize)> {
    let def = view.last_def(local, before)?;
    let mut group = None;
    near::deep(view, &view.bound(def, local)).any(&mut |e| {
        if let Expr::Call { args, step, .. } = e {
            group = args.iter().find_map(|(_, a)| named(a)).or_else(|| {
                let (at, _) = helper(view, view.value(*step)?)?;
                let inner = near::shared(view, at);
                let (last, value) = returned(&inner)?;
                in_place(&inner, near::local(value)?, last).map(|(group, _)| group)
            });
        }
        group.is_some()
    });
    group.map(|group| (group, def))
}

/// The group over which a variable is reduced in place before a step.
fn in_place(view: &View<'_>, local: LocalId, before: usize) -> Option<(Name, usize)> {
    view.collectives().iter().find_map(|(at, call)| {
        let input = call.input.and_then(near::local) == Some(local);
        let group = call.group.and_then(|g| named(&view.expr(g)))?;
        (*at < before && input).then_some((group, *at))
    })
}
