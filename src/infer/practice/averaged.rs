//! Hooks that average what has to be summed. In: a function that registers a hook on gradients. Out: a sum over tensor-parallel ranks that
//! the hook divides by their number, where the code says that each of them has a part of the sequence. Never: ranks that hold the
//! whole sequence, whose gradients are equal and may well be averaged. Source: Megatron-LM, `finalize_model_grads`: gradients of
//! parameters of the sequence-parallel region are summed over the tensor-parallel group. Next: `near.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::gradient::root;
use super::near;
use super::view::View;
use crate::ir::{BinOp, Operand, Rvalue};
use crate::source::Place;

/// Calls that register a hook on a gradient.
pub const REGISTER: &[&str] = &["register_hook", "register_post_accumulate_grad_hook"];

/// How names and comments say that ranks have parts of the sequence.
const SPLIT: &[&str] = &[
    "sequence_parallel",
    "sequence parallel",
    "sequence-parallel",
    "part of the sequence",
    "slice of the sequence",
    "shard of the sequence",
    "sequence shard",
];

pub fn hooks(view: &View<'_>, out: &mut Found) {
    for step in 0..view.steps.len() {
        let Some(Rvalue::CallMethod { name, args, .. }) = view.value(step) else { continue };
        if !REGISTER.contains(&name.as_str()) {
            continue;
        }
        let Some(hook) = args.first().and_then(|a| near::function(view, &a.value)) else { continue };
        let hook = near::other(view, hook);
        if !speaks_of_parts(view) && !speaks_of_parts(&hook) {
            continue;
        }
        if let Some((divided, summed)) = averages(&hook) {
            out.push((divided, Practice::Scales(Scales::AveragedParts { summed })));
        }
    }
}

/// Whether the name, the text or the comments of a function speak of a split sequence.
fn speaks_of_parts(view: &View<'_>) -> bool {
    let text = view.text(view.spot(view.func.span)).to_lowercase();
    let name = view.func.name.to_lowercase().replace("parallelism", "parallel");
    near::speaks_of(&text, SPLIT) || SPLIT.iter().any(|w| name.contains(w))
}

/// Whether a name is about the ranks among which tensors are split.
fn is_tensor_axis(name: &str) -> bool {
    let name = name.to_lowercase();
    let words = ["model_parallel", "tensor_parallel", "tp_group", "tp_size", "tp_world_size"];
    words.iter().any(|w| name.contains(w))
        && !["data", "expert", "context", "pipeline"].iter().any(|w| name.contains(w))
}

/// Where a sum over tensor-parallel ranks is divided by their number, and the sum.
fn averages(hook: &View<'_>) -> Option<(Place, Place)> {
    let (at, call) = hook.collectives().iter().find(|(_, call)| call.rule.op == "all_reduce")?;
    let group = near::deep(hook, &hook.expr(call.group?));
    let over = |e: &Expr| match e {
        Expr::Call { callee, .. } => callee.last_name().is_some_and(is_tensor_axis),
        Expr::Local(local) => is_tensor_axis(hook.local_name(*local)),
        other => other.last_name().is_some_and(is_tensor_axis),
    };
    let value = root(hook, call.input?)?;
    let same = |o: &Operand| root(hook, o) == Some(value);
    let is_size = |o: &Operand| match near::deep(hook, &hook.expr(o)) {
        Expr::Call { callee, args, .. } if callee.last_name() == Some("get_world_size") => {
            args.first().is_some_and(|(_, g)| near::deep(hook, g) == group)
        }
        other => over(&other),
    };
    if !over(&group) {
        return None;
    }
    let by_number = |step: usize| match hook.value(step) {
        Some(Rvalue::Binary { op: BinOp::Div, left, right } | Rvalue::InPlace { op: BinOp::Div, left, right }) => {
            same(left) && is_size(right)
        }
        Some(Rvalue::CallMethod { base, name, args }) if matches!(name.as_str(), "div_" | "div") => {
            same(base) && args.first().is_some_and(|a| is_size(&a.value))
        }
        _ => false,
    };
    let divided = (0..hook.steps.len()).find(|step| by_number(*step))?;
    Some((hook.place(hook.steps[divided].id), hook.place(hook.steps[*at].id)))
}
