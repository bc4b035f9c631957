//! Gradients of tied weights that are averaged. In: a function. Out: a mean over the stages that share a weight, of its gradient. Never: a group
//! or a gradient that is not named so. Source: Megatron-LM, `_allreduce_word_embedding_grads`: the gradient of one parameter with two uses is
//! the sum of both. Next: `tied.rs`.

use super::Found;
use super::averaged::is_multiplied;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::lost::last;
use super::mixed_mean::averages;
use super::near;
use super::view::View;
use crate::ir::Operand;

/// Parts of names of groups of stages that share a weight, and of such weights.
const SHARED: &[&str] = &["tied", "embedding", "embd", "shared_weight"];

/// `all_reduce(model.embedding.grad, op=AVG, group=tied_group)`
pub fn gradients(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        if call.rule.op != "all_reduce" || averages(view, call) != Some(true) {
            continue;
        }
        let (Some(input), Some(group)) = (call.input, call.group) else { continue };
        let has = |name: &str| SHARED.iter().any(|word| name.to_lowercase().contains(word));
        let named = |e: &Expr| view.name_or_callee(e).is_some_and(has);
        let given = view.through(input);
        let (mut gradient, mut shared) = (false, false);
        given.any(&mut |e| {
            gradient |= matches!(e, Expr::Attr(_, name) if name == "grad" || name == "main_grad");
            // `weight = model.embedding_weight()`, and then its gradient.
            let behind = match e {
                Expr::Local(local) => Some(view.through(&Operand::Local(*local))),
                _ => None,
            };
            shared |= matches!(e, Expr::Attr(_, name) if has(name)) || named(e) || behind.as_ref().is_some_and(named);
            false
        });
        // Copies of a stage are averaged as others are, and what is copied is read alone.
        let group = view.expr(group);
        let of_data = |name: &str| ["dp", "data"].iter().any(|word| near::has_part(name, word));
        let of_copies = view.name_of(&group).is_some_and(of_data);
        let apart = of_copies || given.any(&mut |e| e.call_of("clone").is_some()) || is_multiplied(view);
        if gradient && shared && named(&group) && !near::is_self(view, input) && !apart {
            let mistake = Scales::TiedMean { collective: last(&call.rule.name) };
            out.push((view.place(view.steps[*i].id), Practice::Scales(mistake)));
        }
    }
}
