//! Norms over the stages of a pipeline that each see one of a rank's parts. In: a function. Out: a call in a loop over the parts of a model that clips by a norm
//! which it sums over the stages: what is summed is the norm of the i-th parts of all ranks, and each part is clipped by another factor. Never: a call that is given no
//! stages, a loop in which an optimizer steps, or a list that is not named after parts. Source: cosmos-rl pull request 120. Next: `stage_norm.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::group_argument::{STAGES, called, names_group, reduces_over};
use super::near;
use super::training::Training;
use super::view::View;
use crate::ir::{Arg, LocalId, Operand, Stmt};
use crate::source::Name;

/// What lists of the parts of one model are called.
pub const PARTS: &[&str] = &["parts", "chunks", "stages"];
/// What scales gradients.
const SCALES: &[&str] = &["clip", "mul_"];

/// `for part in self.model_parts: clip(part.parameters(), 1.0, pp_mesh=mesh)`
pub fn clipped(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(&round) = step.loops.last() else { continue };
        let Stmt::For { dst, iter, .. } = view.steps[round].stmt else { continue };
        let Some((at, args)) = called(view, i) else { continue };
        let Some(list) = list_of_parts(view, iter) else { continue };
        if !args.first().is_some_and(|arg| is_of_part(view, &arg.value, *dst)) || may_be_right(view, i, &list) {
            continue;
        }
        // A bound of its own for each part is meant so; without a bound the norm alone is what is wanted.
        let own = |arg: &Arg| {
            let bound = near::is_without_bound(view, &view.expr(&arg.value));
            bound || near::reached(view, &arg.value, |_| true).contains(dst)
        };
        if args.iter().skip(1).any(own) {
            continue;
        }
        let func = view.project.func(at);
        let of_stages = |name: &str| STAGES.iter().any(|word| near::has_part(name, word));
        let params = func.params.iter().enumerate();
        let Some((position, param)) = params.clone().find(|(_, p)| names_group(p) && of_stages(&p.name)) else {
            continue;
        };
        let given = view.argument(args, position, &param.name).filter(|o| !near::deep(view, &view.expr(o)).is_none());
        let steps = |s: usize| {
            view.steps[s].loops.contains(&round) && near::name_of_call(view, s).is_some_and(|name| name == "step")
        };
        if given.is_none() || !reduces_over(view, at, param) || (0..view.steps.len()).any(steps) {
            continue;
        }
        let inner = near::shared(view, at);
        let Some((sum, _)) = inner
            .collectives()
            .iter()
            .find(|(_, c)| c.group.is_some_and(|group| near::deep(&inner, &inner.expr(group)).mentions(param.local)))
        else {
            continue;
        };
        if near::has_any(inner.code(), SCALES) {
            let summed = inner.place(inner.steps[*sum].id);
            let round = view.place(view.steps[round].id);
            let mistake = Training::NormOfEach { function: func.name.clone(), list, round, summed };
            // The arguments may stand on lines of their own.
            out.push((view.place(step.id), Practice::Training(mistake)));
            return;
        }
    }
}

/// Whether the list may have one part alone where a step is reached.
fn may_be_right(view: &View<'_>, step: usize, list: &Name) -> bool {
    let counted = |line: &str| line.contains("len(") && line.contains(list.as_str());
    // `self.model_parts = [stage.submod]`, and `(model,) = model_parts`
    let alone = format!("{list} = [");
    let one = |line: &str| {
        let items = line.split_once(alone.as_str()).map(|(_, items)| items);
        items.is_some_and(|items| !items.contains(',') && !items.contains(" for ") && !items.trim().is_empty())
            || line.contains(list.as_str()) && (line.contains(",) = ") || line.contains("] = "))
    };
    view.file().lines().any(one)
        || view.steps[step].guards.iter().any(|g| counted(view.text(view.part(g.at, 0))))
        || near::refusals(view.file()).any(counted)
}

/// The name of a list of parts that a loop goes through.
fn list_of_parts(view: &View<'_>, iter: &Operand) -> Option<Name> {
    let mut list = view.expr(iter);
    if let Some([(_, of)]) = list.call_of("enumerate") {
        list = of.clone();
    }
    let name = view.name_or_callee(&list)?;
    PARTS.iter().any(|part| near::has_part(name, part)).then(|| Name::from(name))
}

/// Whether a value is all parameters of the variable of a loop.
fn is_of_part(view: &View<'_>, given: &Operand, part: LocalId) -> bool {
    let is = |l: LocalId| l == part || view.defs(l).iter().any(|def| view.reads(*def).contains(&&Operand::Local(part)));
    view.through(given).any(&mut |e| match e {
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, name) => name == "parameters" && matches!(**base, Expr::Local(l) if is(l)),
            _ => false,
        },
        _ => false,
    })
}
