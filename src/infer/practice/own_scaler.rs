//! Scalers of losses that look for overflow in this rank's part of the gradients alone. In: a function that makes one, and wraps its model so that a
//! rank keeps a part of the gradients, or where a test says so. Out: the scaler: one rank leaves the step out and another one makes it. Never: a wrapper under a condition,
//! a scaler that a variable switches on, or a file that names the scaler for shards. Source: fairscale issue 180 and
//! `torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler`; `[[loss-scaler]]` says which they are. Next: `own_overflow.rs`.

use super::Found;
use super::coming::Coming;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::omissions::Omission;
use super::view::View;
use crate::ir::{Arg, ArgKind, CmpOp, Const, LocalId, Operand, Rvalue, Stmt};
use crate::source::Name;

/// What a file says that makes ranks equal by itself.
const ASKS: &str = "found_inf";

/// A call, by its step, with the variable of its result and what it calls.
struct Call<'a> {
    step: usize,
    result: LocalId,
    args: &'a [Arg],
    path: Name,
}

pub fn scalers(view: &View<'_>, out: &mut Found) {
    let wrappers = view.rules.wrappers();
    let is_scaler = |call: &Call<'_>| wrappers.scalers(&call.path).next().is_some() && !may_be_off(call.args);
    let Some(made) = calls(view).find(is_scaler) else { return };
    let mut always = calls(view).filter(|call| view.steps[call.step].guards.is_empty());
    let met = always.find_map(|call| Some((wrappers.scalers(&made.path).find(|s| s.meets_part(&call.path))?, call)));
    let Some((scaler, wrapper)) = met else { return };
    let place = view.place(view.steps[made.step].id);
    let text = view.files[place.file].whole();
    let is_whole = scaler.whole_where.as_ref().is_some_and(|word| text.contains(word.as_str()));
    if is_whole || text.contains(scaler.instead.as_str()) || text.contains(ASKS) {
        return;
    }
    let mistake = Coming::ByOwnPart {
        scaler: view.local_name(made.result).clone(),
        wrapper: super::lost::last(&wrapper.path),
        wrapped: view.place(view.steps[wrapper.step].id),
        instead: scaler.instead.clone(),
    };
    out.push((place, Practice::Coming(mistake)));
}

/// The scaler that takes the maximum over a group.
const OF_GROUP: &str = "ShardedGradScaler";

/// `if gangs.root.size != gangs.rdp.size: ShardedGradScaler(process_group=gangs.dp.as_process_group())`: the test says that ranks of a group
/// have different gradients, and the scaler asks those of another one.
pub fn groups(view: &View<'_>, out: &mut Found) {
    for call in calls(view).filter(|call| super::lost::last(&call.path) == OF_GROUP) {
        let Some(group) = view.argument(call.args, usize::MAX, "process_group") else { continue };
        let Some((owner, given)) = member(view, &near::deep(view, &view.expr(group))) else { continue };
        let compared = view.steps[call.step].guards.iter().filter(|g| g.holds).find_map(|g| {
            let sides = match near::deep(view, &view.expr(g.test)) {
                Expr::Compare(CmpOp::Ne | CmpOp::Gt, a, b) => (size_of(view, &a)?, size_of(view, &b)?),
                _ => return None,
            };
            let alike = sides.0.0 == owner && sides.1.0 == owner && sides.0.1 != given && is_of_data(&given);
            let alike = alike && WHOLE.contains(&sides.0.1.as_str()) && splits_models(view);
            alike.then(|| (sides.0.1, view.part(g.at, 0)))
        });
        if let Some((whole, asked)) = compared {
            let named = near::local(group).filter(|l| !view.is_temp(*l));
            let bound = named.and_then(|l| view.last_def(l, call.step));
            let place = view.place(view.steps[bound.unwrap_or(call.step)].id);
            let mistake = Omission::ScalerOfFewer { group: given, whole, asked };
            out.push((place, Practice::Omission(mistake)));
        }
    }
}

/// Names of all ranks.
const WHOLE: &[&str] = &["root", "world", "all"];

/// Whether a name is that of the data-parallel ranks, shards and replicas of them or not.
fn is_of_data(name: &str) -> bool {
    let others = ["shard", "sdp", "tp", "mp", "tensor"];
    ["dp", "data"].iter().any(|part| near::has_part(name, part))
        && !others.iter().any(|part| near::has_part(name, part))
}

/// Whether a file speaks of ranks that split a model, among which gradients differ as well.
fn splits_models(view: &View<'_>) -> bool {
    let file = view.file();
    if near::refusals(file).any(|line| near::has_any(line, &["tp", "tensor"])) {
        return false;
    }
    let mut words = file.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| word.eq_ignore_ascii_case("tp") || word.eq_ignore_ascii_case("tensor") && file.contains("arallel"))
}

/// The object and the attribute of `gangs.dp`, also of what a method of it gives.
fn member(view: &View<'_>, group: &Expr) -> Option<(Expr, Name)> {
    match group {
        Expr::Call { callee, args, .. } if args.is_empty() => match &**callee {
            Expr::Attr(base, _) => member(view, &near::deep(view, base)),
            _ => None,
        },
        Expr::Attr(owner, name) => Some(((**owner).clone(), name.clone())),
        _ => None,
    }
}

/// The same of `gangs.dp.size`.
fn size_of(view: &View<'_>, size: &Expr) -> Option<(Expr, Name)> {
    match size {
        Expr::Attr(of, name) if name == "size" => member(view, of),
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(of, name) if name == "size" => member(view, of),
            _ => None,
        },
        _ => None,
    }
}

fn calls<'v, 'a>(view: &'v View<'a>) -> impl Iterator<Item = Call<'a>> + use<'v, 'a> {
    view.steps.iter().enumerate().filter_map(|(step, of)| {
        let Stmt::Assign { dst, value: value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) } =
            of.stmt
        else {
            return None;
        };
        Some(Call { step, result: *dst, args, path: view.callee(value)? })
    })
}

/// Whether an argument may switch a scaler off.
fn may_be_off(args: &[Arg]) -> bool {
    let is_on = |arg: &Arg| match &arg.kind {
        ArgKind::Keyword(name) if name == "enabled" => matches!(arg.value, Operand::Const(Const::Bool(true))),
        ArgKind::Keyword(_) | ArgKind::Positional => true,
        ArgKind::Star | ArgKind::DoubleStar => false,
    };
    !args.iter().all(is_on)
}
