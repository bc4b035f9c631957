//! Parameters of routers: a row for each expert of the model. In: what makes a parameter or a module. Out: whether it is one. Never: the
//! weights of experts, of which each rank may have its own: they have a size more. Next: `sizes.rs`.

use super::expr::Expr;
use super::sizes::{CONFIGS, Size, size_of};
use super::view::View;
use crate::ir::{Arg, ArgKind, Operand, Rvalue, Stmt};

/// Words of what chooses experts.
const CHOOSES: &[&str] = &["router", "gate", "gating", "wg"];

/// Words of counts of experts that are not those of the model.
const OF_SOME: &[&str] = &["per_", "local", "rank", "topk", "top_k", "active", "shard", "partition"];

/// Whether a call makes the matrix that a router has: a layer from the width of the model to the number of experts, which only chooses among
/// all of them, or a matrix of both sizes that is called so.
pub fn routes(view: &View<'_>, step: usize, name: &str) -> bool {
    let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
        return false;
    };
    match view.callee(value).as_deref() {
        Some("torch.nn.Linear" | "torch.nn.modules.linear.Linear") => {
            let size = |at: usize, name: &str| view.argument(args, at, name).map(|o| view.through(o));
            let (Some(from), Some(to)) = (size(0, "in_features"), size(1, "out_features")) else { return false };
            counts_experts(view, &to, 0) && size_of(view, &from, false, 0) != Size::Part
        }
        Some("torch.nn.Parameter" | "torch.nn.parameter.Parameter") => {
            is_called_router(view, name) && is_matrix(view, args)
        }
        _ => false,
    }
}

/// Whether a parameter, or the class that makes it, is called after what chooses.
fn is_called_router(view: &View<'_>, name: &str) -> bool {
    let class = view.func.class.map(|class| view.project.modules[view.at.module].ir.classes[class].name.to_lowercase());
    let chooses = |text: &str| CHOOSES.iter().any(|word| text.contains(word));
    let last = name.to_lowercase();
    chooses(&last) || last.ends_with("weight") && class.is_some_and(|class| chooses(&class))
}

/// Whether a parameter is made of a matrix of two whole sizes, of which one is the number of experts.
fn is_matrix(view: &View<'_>, args: &[Arg]) -> bool {
    let Some(Expr::Call { callee, args, .. }) = args.first().map(|data| view.through(&data.value)) else {
        return false;
    };
    let made = callee.path().and_then(|path| path.strip_prefix("torch.").map(str::to_owned));
    if !made.is_some_and(|made| ["empty", "zeros", "ones", "randn", "rand"].contains(&made.as_str())) {
        return false;
    }
    let sizes: Vec<&Expr> =
        args.iter().filter(|(kind, _)| matches!(kind, ArgKind::Positional)).map(|(_, e)| e).collect();
    let sizes: Vec<&Expr> = match sizes.as_slice() {
        [Expr::Build(items)] => items.iter().collect(),
        _ => sizes,
    };
    let [a, b] = sizes.as_slice() else { return false };
    let whole = |e: &Expr| size_of(view, e, false, 0) != Size::Part;
    counts_experts(view, a, 0) && whole(b) || counts_experts(view, b, 0) && whole(a)
}

/// Whether a size is the number of experts of the model, as it is given or configured.
fn counts_experts(view: &View<'_>, expr: &Expr, depth: usize) -> bool {
    if depth > super::super::limits::MAX_VALUE_DEPTH {
        return false;
    }
    match expr {
        Expr::Local(l) => view.is_param(*l) && says_experts(view.local_name(*l), false),
        Expr::Path(path) => says_experts(path.rsplit('.').next().unwrap_or(path), false),
        Expr::Attr(base, name) => match &**base {
            Expr::Local(l) if view.local_name(*l) == "self" => {
                let stored: Vec<&Operand> = stored(view, name);
                let counts = |value: &&Operand| counts_experts(view, &view.through(value), depth + 1);
                !stored.is_empty() && stored.iter().all(counts)
            }
            // A configuration is that of the model, whatever it calls them.
            Expr::Local(l) => says_experts(name, CONFIGS.contains(&view.local_name(*l).as_str())),
            Expr::Attr(_, inner) => says_experts(name, CONFIGS.contains(&inner.as_str())),
            _ => false,
        },
        _ => false,
    }
}

/// What a function stores in an attribute.
fn stored<'a>(view: &View<'a>, attr: &str) -> Vec<&'a Operand> {
    let stores = view.steps.iter().filter_map(|s| match s.stmt {
        Stmt::SetAttr { base: Operand::Local(l), name, value } if name == attr && view.local_name(*l) == "self" => {
            Some(value)
        }
        _ => None,
    });
    stores.collect()
}

/// Whether a name is that of a number of experts, and of no part of them.
fn says_experts(name: &str, configured: bool) -> bool {
    let lower = name.to_lowercase();
    let counts = lower.ends_with("experts") || lower.ends_with("n_expert") || lower.ends_with("num_expert");
    let some = |word: &&str| lower.contains(*word) && !(configured && *word == "local");
    counts && lower != "experts" && !OF_SOME.iter().any(some)
}
