//! Packed weights that are cut as one. In: the functions of a module. Out: equal runs of rows of a whole weight, given to a parameter whose output
//! the forward splits into several parts, where a comment says that these stand one after another in the weight: a rank gets rows of other
//! parts than it reads there. Never: a weight that is taken apart or put in another order first. Source: Megatron-LM, pull request 1989;
//! gpt-fast, tp.py, which cuts the three parts of `wqkv` apart. Next: `weights_cut.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::near;
use super::view::View;
use crate::ir::{Const, LocalId, Operand, Rvalue, Stmt};
use crate::project::{FuncRef, Resolved};
use crate::source::{Name, Place};

/// What files say of weights that hold several parts.
const PACKED: &[&str] = &[
    "one after the other",
    "one after another",
    "packed as",
    "packs q",
    "all of q, then",
    "packed along",
    "q, then k",
    "[q | k",
    "[q, k, v",
    "rows of q, k",
];
/// What puts rows in another order, or takes them apart.
const ORDERS: &[&str] = &[
    "view",
    "reshape",
    "transpose",
    "permute",
    "cat",
    "stack",
    "unflatten",
    "split",
    "index_select",
    "rearrange",
    "unbind",
];

/// `full.chunk(size, dim=0)[rank]` for `self.in_proj.weight`, and `q, k, v = self.in_proj(x).split(sizes, dim=-1)`
pub fn cuts(view: &View<'_>, out: &mut Found) {
    let file = view.file();
    let lower = file.to_lowercase();
    if !PACKED.iter().any(|phrase| lower.contains(phrase)) {
        return;
    }
    for i in 0..view.steps.len() {
        let Some((name, given)) = filled(view, i) else { continue };
        let Some(place) = cut(view, &given, i, 0) else { continue };
        if let Some(split) = split_in_forward(view, &name) {
            let mistake = Placements::PackedCut { parameter: name, split, filled: view.place(view.steps[i].id) };
            out.push((place, Practice::Placements(mistake)));
            return;
        }
    }
}

/// The attribute that a step fills with a weight, and that: `self.in_proj.weight.copy_(w)`, `attn.wqkv = nn.Parameter(w)`.
fn filled(view: &View<'_>, step: usize) -> Option<(Name, Operand)> {
    match (view.steps[step].stmt, view.value(step)) {
        (_, Some(Rvalue::CallMethod { base, name, args })) if name == "copy_" => {
            let mut at = view.through(base);
            loop {
                match at {
                    Expr::Attr(inner, name) if matches!(name.as_str(), "weight" | "data") => at = *inner,
                    Expr::Attr(_, name) => return Some((name, args.first()?.value.clone())),
                    _ => return None,
                }
            }
        }
        (Stmt::SetAttr { name, value, .. }, _) => {
            let (_, made) = view.source(value)?;
            let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = made else { return None };
            let parameter = near::written_name(view, made).is_some_and(|n| n.ends_with("Parameter"));
            parameter.then(|| Some((name.clone(), args.first()?.value.clone())))?
        }
        _ => None,
    }
}

/// Where equal runs of rows are cut out of a whole weight that nothing put in order, if a value is one of them.
fn cut(view: &View<'_>, value: &Operand, before: usize, depth: usize) -> Option<Place> {
    if depth > 4 {
        return None;
    }
    let local = near::local(value)?;
    let made = view.last_def(local, before)?;
    let step = view.value(made)?;
    match step {
        Rvalue::CallMethod { base, name, .. } if matches!(name.as_str(), "contiguous" | "clone" | "to" | "detach") => {
            cut(view, base, made, depth + 1)
        }
        Rvalue::Item { base, index } => {
            let (_, Rvalue::CallMethod { base: whole, name, args }) = view.source(base)? else { return None };
            let rows = view.argument(args, 1, "dim").is_none_or(|o| *o == Operand::Const(Const::Int(0)));
            let by_rank = match view.through(index) {
                Expr::Local(l) => view.local_name(l).contains("rank"),
                other => other.last_name().is_some_and(|n| n.contains("rank")),
            };
            let even = matches!(name.as_str(), "chunk" | "tensor_split");
            (even && rows && by_rank && is_in_order(view, whole, made)).then(|| view.place(view.steps[made].id))
        }
        Rvalue::Call { args, .. } => {
            let path = view.callee(step)?;
            if path.ends_with(".distribute_tensor") {
                let placements = view.through(view.argument(args, 2, "placements")?);
                let rows =
                    |e: &Expr| e.call_of("Shard").is_some_and(|a| matches!(a, [(_, Expr::Const(Const::Int(0)))]));
                let whole = &args.first()?.value;
                let by_rows = matches!(&placements, Expr::Build(items) if items.len() == 1 && rows(&items[0]));
                return (by_rows && is_in_order(view, whole, made)).then(|| view.place(view.steps[made].id));
            }
            let Resolved::Func(at) = view.project.path(&path) else { return None };
            let inner = near::shared(view, at);
            inner.steps.iter().enumerate().find_map(|(i, step)| match step.stmt {
                Stmt::Return { value } => cut(&inner, value, i, depth + 1),
                _ => None,
            })
        }
        _ => None,
    }
}

/// Whether nothing takes a weight apart or orders its rows before it is cut.
fn is_in_order(view: &View<'_>, whole: &Operand, before: usize) -> bool {
    let mut todo: Vec<LocalId> = near::local(whole).into_iter().collect();
    let mut seen = Vec::new();
    while let Some(local) = todo.pop() {
        if seen.contains(&local) {
            continue;
        }
        seen.push(local);
        for def in view.defs(local).iter().filter(|def| **def < before) {
            let name = view.value(*def).and_then(|value| near::written_name(view, value));
            if name.is_some_and(|name| ORDERS.iter().any(|word| super::lost::last(&name) == *word)) {
                return false;
            }
            todo.extend(view.reads(*def).into_iter().filter_map(near::local));
        }
    }
    true
}

/// Where a method splits what comes of an attribute into several parts.
fn split_in_forward(view: &View<'_>, attribute: &str) -> Option<Place> {
    near::functions(view, view.at.module).into_iter().find_map(|at: FuncRef| {
        let method = near::shared(view, at);
        method.func.class?;
        (0..method.steps.len()).find_map(|s| {
            let Stmt::Unpack { value, before, .. } = method.steps[s].stmt else { return None };
            let made = method.through(value);
            let (callee, args) = match &made {
                Expr::Call { callee, args, .. } => (callee, args),
                _ => return None,
            };
            let name = callee.last_name()?;
            let subject = match &**callee {
                Expr::Attr(base, _) => Some(&**base),
                _ => args.first().map(|(_, e)| e),
            }?;
            let splits = matches!(name, "split" | "chunk") && before.len() >= 2;
            (splits && is_of(&method, subject, attribute, 0)).then(|| method.place(method.steps[s].id))
        })
    })
}

/// Whether an expression is computed with an attribute of the object.
fn is_of(view: &View<'_>, expr: &Expr, attribute: &str, depth: usize) -> bool {
    depth < 6
        && expr.any(&mut |e| match e {
            Expr::Local(local) => {
                let defs = view.defs(*local);
                defs.iter().any(|def| match view.steps[*def].stmt {
                    Stmt::Unpack { value, .. } => is_of(view, &view.expr(value), attribute, depth + 1),
                    _ => is_of(view, &view.bound(*def, *local), attribute, depth + 1),
                })
            }
            other => near::own_attribute(view, other).is_some_and(|name| name == attribute),
        })
}
