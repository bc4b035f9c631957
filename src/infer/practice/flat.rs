//! Gradients that are copied into one tensor for a sum which nobody reads. In: a function. Out: a sum of such a copy, where the copy is not
//! looked at again. Never: a copy that anything reads, returns, keeps or captures, or code that measures time.
//! Source: torch, `cat` and `_flatten_dense_tensors` copy what they are given. Next: `lost.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Unlike};
use super::lost::last;
use super::reducers::is_gradient;
use super::view::View;
use crate::ir::{LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::source::Place;

/// Functions whose result is a copy of all that they are given.
const JOINS: &[&str] =
    &["_flatten_dense_tensors", "flatten_dense_tensors", "cat", "concat", "stack", "parameters_to_vector"];

/// Methods that give the same values once more.
const AGAIN: &[&str] =
    &["float", "half", "bfloat16", "double", "to", "contiguous", "clone", "detach", "view", "reshape"];

/// Methods that change a tensor where it is.
const CHANGES: &[&str] = &["div_", "mul_"];

/// Attributes and methods that tell nothing of the values.
const MEASURES: &[&str] = &["numel", "nelement", "size", "shape", "dtype", "device", "element_size", "dim"];

/// Words of code that communicates to see how long it takes.
const TIMES: &[&str] = &["time(", "perf_counter", "event(", "bench", "warm", "profil"];

/// How many names the list of a copy has at most.
const MOST_NAMES: usize = 12;

/// `flat = torch.cat([p.grad.view(-1) for p in params])`, `all_reduce(flat)`, and nothing more.
pub fn copies(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        let (Some(Operand::Local(flat)), "all_reduce") = (call.input, call.rule.op.as_str()) else { continue };
        if view.func.locals()[*flat].kind == LocalKind::Temp || view.func.locals()[*flat].kind == LocalKind::Cell {
            continue;
        }
        if view.is_param(*flat) || view.readers(*flat).iter().any(|s| s != i && !keeps(view, *s, *flat)) {
            continue;
        }
        let Some(made) = copied(view, *flat) else { continue };
        if TIMES.iter().any(|word| view.code().contains(word)) {
            continue;
        }
        let unlike = Unlike::Flat { collective: last(&call.rule.name), flat: view.local_name(*flat).clone(), made };
        out.push((view.place(view.steps[*i].id), Practice::Unlike(unlike)));
    }
}

/// Whether a step that reads a variable changes nothing but it, and hands its values to nobody.
fn keeps(view: &View<'_>, step: usize, flat: LocalId) -> bool {
    let Stmt::Assign { dst, value } = view.steps[step].stmt else { return false };
    let own = |o: &Operand| matches!(o, Operand::Local(l) if *l == flat);
    let unused = || view.is_temp(*dst) && view.readers(*dst).is_empty();
    // What goes through a temporary back into the variable.
    let back =
        || *dst == flat || view.is_temp(*dst) && view.readers(*dst).iter().all(|s| view.binds(*s).contains(&flat));
    match value {
        Rvalue::InPlace { left, right, .. } => *dst == flat && own(left) && !own(right),
        Rvalue::Binary { left, .. } => own(left) && back(),
        Rvalue::Attr { base, name } => own(base) && MEASURES.contains(&name.as_str()),
        Rvalue::CallMethod { base, name, .. } if own(base) => {
            MEASURES.contains(&name.as_str())
                || CHANGES.contains(&name.as_str()) && unused()
                || AGAIN.contains(&name.as_str()) && back() && !(view.is_temp(*dst) && view.readers(*dst).is_empty())
        }
        _ => false,
    }
}

/// Where a variable is made a copy of gradients, if it holds nothing else.
fn copied(view: &View<'_>, flat: LocalId) -> Option<Place> {
    let mut made = None;
    for def in view.defs(flat) {
        match view.bound(*def, flat) {
            Expr::Call { callee, args, step } if callee.last_name().is_some_and(|n| JOINS.contains(&n)) => {
                let whole = args.first().map(|(_, e)| e)?;
                let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step) else {
                    return None;
                };
                if !(is_gradient(whole) || gathers(view, &args.first()?.value)) {
                    return None;
                }
                made = Some(view.place(view.steps[*def].id));
            }
            Expr::Call { callee, .. } if matches!(&*callee, Expr::Attr(of, name) if name == "clone" && is_gradient(of)) =>
            {
                made = Some(view.place(view.steps[*def].id));
            }
            other if other.mentions(flat) => {}
            _ => return None,
        }
    }
    made
}

/// Whether a list is made of gradients.
fn gathers(view: &View<'_>, list: &Operand) -> bool {
    let mut names: Vec<LocalId> = Vec::new();
    let mut queue: Vec<&Operand> = vec![list];
    while let Some(Operand::Local(local)) = queue.pop() {
        if names.contains(local) || names.len() > MOST_NAMES {
            continue;
        }
        names.push(*local);
        for def in view.defs(*local) {
            if let Some(Rvalue::Use(o)) = view.value(*def) {
                queue.push(o);
            }
        }
    }
    (0..view.steps.len()).any(|s| match (view.steps[s].stmt, view.value(s)) {
        (Stmt::Append { collection, value, .. }, _) => names.contains(collection) && is_gradient(&view.through(value)),
        (_, Some(Rvalue::CallMethod { base: Operand::Local(base), name, args })) if name == "append" => {
            names.contains(base) && args.first().is_some_and(|a| is_gradient(&view.through(&a.value)))
        }
        _ => false,
    })
}
