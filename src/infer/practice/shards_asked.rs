//! Models whose tensors are made whole one after the other in a helper. In: a function. Out: the model of a loop over all of its tensors, whether a step makes one
//! whole, and whether a model is split for sure where a step is reached. Never: a model that is split in some modes alone, or after the step. Source:
//! torch.distributed.tensor, `DTensor.full_tensor`; torch.distributed.fsdp, `fully_shard`; transformers pull request 48569. Next: `only_some.rs`, which asks.

use super::expr::Expr;
use super::near;
use super::only_some::callee;
use super::rank_tests::test;
use super::view::View;
use crate::ir::{LocalId, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::Name;

/// The method that makes a tensor whole.
pub const WHOLE_TENSOR: &str = "full_tensor";
/// What makes all parameters of a module tensors of which each rank has a part.
const SHARDERS: &[&str] = &["fully_shard", "parallelize_module", "distribute_module"];
/// Methods that list the tensors of a model; none of them is empty.
const LISTS: &[&str] = &["parameters", "named_parameters", "state_dict"];
/// What goes through all that it is given.
const THROUGH: &[&str] = &["items", "values", "list", "tuple", "sorted", "enumerate", "tqdm"];
/// Words of conditions that may ask whether a model is split.
const MODES: &[&str] = &["shard", "fsdp", "dtensor", "parallel", "tp", "mesh", "strategy", "mode"];

/// The model whose tensors a loop goes through, all of them: `for name, tensor in model.state_dict().items()`.
pub fn listed(view: &View<'_>, round: usize) -> Option<Expr> {
    let Stmt::For { iter, .. } = view.steps[round].stmt else { return None };
    let mut list = view.through(iter);
    loop {
        let Expr::Call { callee, args, .. } = &list else { return None };
        let name = callee.last_name()?;
        let next = match &**callee {
            Expr::Attr(base, _) if LISTS.contains(&name) && args.is_empty() => return is_model(base),
            Expr::Attr(base, _) if THROUGH.contains(&name) && args.is_empty() => near::deep(view, base),
            _ if THROUGH.contains(&name) => near::deep(view, &args.first()?.1),
            _ => return None,
        };
        list = next;
    }
}

/// A model that goes by a name.
fn is_model(model: &Expr) -> Option<Expr> {
    match model {
        Expr::Local(_) => Some(model.clone()),
        Expr::Attr(base, _) if matches!(**base, Expr::Local(_)) => Some(model.clone()),
        _ => None,
    }
}

/// Whether a call makes a tensor whole that the ranks have in parts.
pub fn makes_whole(view: &View<'_>, value: &Rvalue) -> bool {
    let Rvalue::CallMethod { name, args, .. } = value else { return false };
    name == WHOLE_TENSOR && args.is_empty() && view.project.methods_named(&Name::from(WHOLE_TENSOR)).is_empty()
}

/// Whether a test asks whether a tensor is in parts: `isinstance(tensor, DTensor)`.
pub fn asks_split(test: &Expr) -> bool {
    let second = |name: &str| test.call_of(name).and_then(|args| args.get(1)).map(|(_, e)| e);
    second("isinstance").is_some_and(|class| class.last_name() == Some("DTensor"))
        || second("hasattr").and_then(Expr::string).is_some_and(|name| name == WHOLE_TENSOR)
}

/// Whether a model is split wherever a step is reached.
pub fn is_sharded(view: &View<'_>, step: usize, model: &Expr) -> bool {
    let asks = |at| near::has_any(&view.text(view.part(at, 0)).to_lowercase(), MODES);
    // A test of ranks may hold a mode as well: `not sharded and rank == 0`.
    if view.steps[step].guards.iter().any(|g| asks(g.at) && (test(view, g).is_none() || is_joined(view, g.test))) {
        return false;
    }
    match model {
        Expr::Local(local) if view.is_as_given(*local) => {
            let name = view.local_name(*local);
            let here = (0..view.steps.len()).any(|s| shards(view, s).is_some_and(|given| given.mentions(*local)));
            let module = view.at.module;
            let named = |at: FuncRef| {
                let other = near::shared(view, at);
                let is = |e: &Expr| matches!(e, Expr::Local(l) if other.local_name(*l) == name);
                (0..other.steps.len()).any(|s| shards(&other, s).is_some_and(|given| given.any(&mut |e| is(e))))
            };
            let plain = |at: &FuncRef| view.project.func(*at).class.is_none();
            if here {
                is_given(view, *local, step)
            } else {
                plain(&view.at) && near::functions(view, module).into_iter().filter(plain).any(named)
            }
        }
        Expr::Local(local) => is_given(view, *local, step),
        Expr::Attr(..) => is_kept(view, model),
        _ => false,
    }
}

fn is_joined(view: &View<'_>, test: &Operand) -> bool {
    matches!(view.expr(test), Expr::Bool { .. })
}

/// Whether a variable is given to what splits it, or is what that gives, before a step.
fn is_given(view: &View<'_>, model: LocalId, step: usize) -> bool {
    (0..step).any(|s| shards(view, s).is_some_and(|given| given.mentions(model) || view.binds(s).contains(&model)))
}

/// Whether a method of the own class splits an attribute, or sets it to what is split.
fn is_kept(view: &View<'_>, model: &Expr) -> bool {
    let (Some(name), Some(class)) = (near::own_attribute(view, model), near::class_of(view)) else { return false };
    let given = near::methods(view, class).iter().any(|method| {
        let is = |e: &Expr| near::own_attribute(method, e) == Some(name);
        (0..method.steps.len()).any(|s| shards(method, s).is_some_and(|given| given.any(&mut |e| is(e))))
    });
    let set = || {
        near::assigned(view, class, name).iter().any(|(method, at, value)| match method.expr(value) {
            Expr::Call { step, .. } => method.steps[*at].guards.is_empty() && shards(method, step).is_some(),
            Expr::Local(local) => (0..method.steps.len()).any(|s| {
                shards(method, s).is_some_and(|given| given.mentions(local) || method.binds(s).contains(&local))
            }),
            _ => false,
        })
    };
    given || set()
}

/// What a step gives to what splits modules, itself or inside a function of the project, in every mode.
fn shards(view: &View<'_>, step: usize) -> Option<Expr> {
    let value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step)? else { return None };
    if !view.steps[step].guards.is_empty() {
        return None;
    }
    let given = view.expr(&args.first()?.value);
    let by_name =
        |view: &View<'_>, s: usize| near::name_of_call(view, s).is_some_and(|name| SHARDERS.contains(&name.as_str()));
    let inside = || {
        let inner = near::shared(view, callee(view, value)?);
        (0..inner.steps.len()).any(|s| inner.steps[s].guards.is_empty() && by_name(&inner, s)).then_some(())
    };
    (by_name(view, step) || inside().is_some()).then_some(given)
}
