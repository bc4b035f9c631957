//! Steps that average what a wrapper has split. In: a function. Out: a call that averages the gradients of an optimizer over all ranks and steps, where the optimizer has the
//! parameters of a model that a wrapper keeps in shards: each rank has the gradients of other entries. Never: a call under a condition, or groups that it is
//! given. Source: torch_xla, `XlaFullyShardedDataParallel`: "use `optimizer.step()` instead of `xm.optimizer_step(optimizer)`". Next: `doubled.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::unshared::Unshared;
use super::view::View;
use super::wrapped::wrappers;
use crate::ir::{ArgKind, Rvalue};
use crate::rules::{Entry, Keeps};

/// `model = FSDP(net)`, `optimizer = AdamW(model.parameters())` and `xm.optimizer_step(optimizer)`
pub fn averages(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            continue;
        };
        let Some((path, Some(Entry::Intrinsic(rule)))) = view.ruled(value) else { continue };
        let groups = args.iter().any(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == "groups"));
        if rule.does != "gradients-averaged-and-used" || groups || may_be_otherwise(view, i) {
            continue;
        }
        let Some(Expr::Local(optimizer)) = args.first().map(|a| view.expr(&a.value)) else { continue };
        let [made] = view.defs(optimizer) else { continue };
        let Expr::Call { args: given, .. } = view.bound(*made, optimizer) else { continue };
        let model = given.first().and_then(|(_, parameters)| match near::deep(view, parameters) {
            Expr::Call { callee, .. } => match *callee {
                Expr::Attr(model, name) if name == "parameters" => Some(*model),
                _ => None,
            },
            _ => None,
        });
        let Some(model) = model else { continue };
        let all = wrappers(view, &model, *made);
        if let Some(wrapped) = all.iter().find(|w| w.rule.keeps == Keeps::Shards)
            && all.iter().all(|w| w.view.steps[w.step].guards.is_empty())
        {
            let call = super::lost::last(&path);
            let mistake = Unshared::ShardsAveraged {
                call,
                wrapper: super::lost::last(&wrapped.rule.name),
                wrapped: wrapped.place(),
            };
            out.push((view.place(step.id), Practice::Unshared(mistake)));
        }
    }
}

/// Whether a condition that speaks of the wrapper decides about a step.
fn may_be_otherwise(view: &View<'_>, step: usize) -> bool {
    view.steps[step].guards.iter().any(|g| {
        let test = view.text(view.part(g.at, 0)).to_lowercase();
        near::has_any(&test, &["fsdp", "shard", "wrap", "strategy", "ddp"])
    })
}
