//! Losses that are scaled for other ranks than those whose gradients the wrapper averages. In: a function. Out: a loss that is divided by a count over
//! `fsdp_group` and multiplied by `dp_size` of the same object, in a file that splits sequences: the mean is over the ranks of the first, and
//! gradients are too small by the ranks that share a sequence. Never: a file without such ranks, or another count.
//! Source: VeOmni pull request 338. Next: `counts.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::omissions::Omission;
use super::view::View;
use crate::ir::{BinOp, Stmt};
use crate::source::Place;

/// The group over which a wrapper averages, by its name, and the number of ranks that is taken for that of it.
const GROUP: &str = "fsdp_group";
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
    if file.lines().any(may_be_right) {
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
        if let Some(counted) = counted.filter(|_| !over.iter().any(|e| is_size(e))) {
            let size = near::deep(view, size).last_name().unwrap_or(SIZE).into();
            let mistake = Omission::SizeOfFewer { size, group: GROUP.into(), counted };
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
fn factors<'e>(expr: &'e Expr, up: bool, times: &mut Vec<&'e Expr>, over: &mut Vec<&'e Expr>) {
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

/// Where a count is summed over the group: by a collective on it before a step, or by a call that is given the group and returns it.
fn summed(view: &View<'_>, count: &Expr, before: usize) -> Option<Place> {
    let of_group = |e: &Expr| e.any(&mut |e| matches!(e, Expr::Attr(_, name) if name == GROUP));
    let mut counted = None;
    count.any(&mut |e| {
        if let Expr::Local(local) = e
            && counted.is_none()
        {
            let by_call = view.last_def(*local, before).filter(|def| {
                let value = near::deep(view, &view.bound(*def, *local));
                value.any(&mut |e| matches!(e, Expr::Call { args, .. } if args.iter().any(|(_, a)| of_group(a))))
            });
            let in_place = view.collectives().iter().find(|(at, call)| {
                let input = call.input.and_then(near::local) == Some(*local);
                *at < before && input && call.group.is_some_and(|g| of_group(&view.expr(g)))
            });
            counted = by_call.or(in_place.map(|(at, _)| *at));
        }
        counted.is_some()
    });
    counted.map(|at| view.place(view.steps[at].id))
}
