//! Scalers of losses that look for overflow in this rank's part of the gradients alone. In: a function that makes one, and wraps its model so that a
//! rank keeps a part of the gradients. Out: the scaler: one rank leaves the step out and another one makes it. Never: a wrapper under a condition,
//! a scaler that a variable switches on, or a file that names the scaler for shards. Source: fairscale issue 180 and
//! `torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler`. Next: `own_overflow.rs`.

use super::Found;
use super::coming::Coming;
use super::found::Practice;
use super::view::View;
use crate::ir::{Arg, ArgKind, Const, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};

/// Where the scaler for whole gradients is.
const SCALERS: &[&str] = &["torch.cuda.amp.", "torch.amp."];

/// Wrappers that leave a rank its own part of the gradients, and where they are.
const SPLIT: &[&str] = &["FullyShardedDataParallel", "ShardedDataParallel"];
const FROM: &[&str] = &["torch.distributed.fsdp.", "fairscale.nn."];

/// What a file says where the parts are not parts, or the scaler of parts is used somewhere.
const WHOLE: &[&str] = &["NO_SHARD", "ShardedGradScaler", "found_inf"];

pub fn scalers(view: &View<'_>, out: &mut Found) {
    if let Some((scaler, made)) = scaler(view)
        && let Some((wrapper, wrapped)) = wrapper(view)
        && !WHOLE.iter().any(|word| view.files[made.file].whole().contains(word))
    {
        out.push((made, Practice::Coming(Coming::ByOwnPart { scaler, wrapper, wrapped })));
    }
}

/// A scaler for whole gradients, by its variable, and where it is made.
fn scaler(view: &View<'_>) -> Option<(Name, Place)> {
    view.steps.iter().find_map(|step| {
        let Stmt::Assign { dst, value: value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) } =
            step.stmt
        else {
            return None;
        };
        let path = view.callee(value)?;
        let plain = SCALERS.iter().any(|base| path.starts_with(base)) && path.ends_with(".GradScaler");
        (plain && !may_be_off(args)).then(|| (view.func.locals()[*dst].name.clone(), view.place(step.id)))
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

/// What wraps a model in any case so that gradients are split, and where.
fn wrapper(view: &View<'_>) -> Option<(Name, Place)> {
    view.steps.iter().filter(|step| step.guards.is_empty()).find_map(|step| {
        let Stmt::Assign { value: value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. }), .. } = step.stmt else {
            return None;
        };
        let path = view.callee(value)?;
        let last = path.rsplit('.').next()?;
        let splits = SPLIT.contains(&last) && FROM.iter().any(|base| path.starts_with(base));
        splits.then(|| (Name::from(last), view.place(step.id)))
    })
}
