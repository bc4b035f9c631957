//! Scalers of losses that look for overflow in this rank's part of the gradients alone. In: a function that makes one, and wraps its model so that a
//! rank keeps a part of the gradients. Out: the scaler: one rank leaves the step out and another one makes it. Never: a wrapper under a condition,
//! a scaler that a variable switches on, or a file that names the scaler for shards. Source: fairscale issue 180 and
//! `torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler`; `[[loss-scaler]]` says which they are. Next: `own_overflow.rs`.

use super::Found;
use super::coming::Coming;
use super::found::Practice;
use super::view::View;
use crate::ir::{Arg, ArgKind, Const, LocalId, Operand, Rvalue, Stmt};
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

fn calls<'v>(view: &'v View<'_>) -> impl Iterator<Item = Call<'v>> {
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
