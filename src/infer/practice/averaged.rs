//! Averages of what has to be summed. In: a function that registers a hook on gradients, or a loop over parameters. Out: a sum over
//! tensor-parallel ranks that is divided by their number, where the code says that each of them has a part of the sequence. Never: ranks that hold the
//! whole sequence, whose gradients are equal and may well be averaged. Source: Megatron-LM, `finalize_model_grads`: gradients of
//! parameters of the sequence-parallel region are summed over the tensor-parallel group. Next: `near.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::gradient::root;
use super::mixed_mean;
use super::near;
use super::reducers::is_gradient;
use super::view::{CollectiveCall, View};
use crate::ir::{BinOp, Const, LocalId, Operand, Rvalue, Stmt, UnOp};
use crate::source::{Name, Place};

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
    "shard of one sequence",
    "chunk of the sequence",
    "sequence chunk",
    "sequence / tp",
    "sequence / mp",
    "seq / tp",
    "[s / tp",
    "[s/tp",
    "[s / mp",
    "[s/mp",
];

/// The flag that says that sequences are split.
const FLAG: &str = "sequence_parallel";

pub fn hooks(view: &View<'_>, out: &mut Found) {
    for step in 0..view.steps.len() {
        let Some(Rvalue::CallMethod { name, args, .. }) = view.value(step) else { continue };
        if !REGISTER.contains(&name.as_str()) {
            continue;
        }
        if asks_for_split(view, step) == Some(false) {
            continue;
        }
        let Some(hook) = args.first().and_then(|a| near::function(view, &a.value)) else { continue };
        let hook = near::other(view, hook);
        if !speaks_of_parts(view) && !speaks_of_parts(&hook) && !is_of_parts(view) {
            continue;
        }
        if let Some((divided, summed)) = averages_first(&hook) {
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

/// Whether a comment in a class of the file says so, whose instances a function looks for.
fn is_of_parts(view: &View<'_>) -> bool {
    let asked = |name: &Name| {
        (0..view.steps.len()).any(|step| match view.value(step) {
            Some(Rvalue::Call { callee: Operand::Global(f), args }) if f == "isinstance" => {
                let is = |e: &Expr| e.last_name().is_some_and(|last| last == name.as_str());
                args.get(1).is_some_and(|of| view.through(&of.value).any(&mut |e| is(e)))
            }
            _ => false,
        })
    };
    let module = &view.project.modules[view.at.module].ir;
    module.classes.iter().any(|class| {
        let said = near::comments(view, class.span);
        said.iter().any(|note| near::speaks_of(&note.text, SPLIT)) && asked(&class.name)
    })
}

/// Whether a name is about the ranks among which tensors are split.
fn is_tensor_axis(name: &str) -> bool {
    let name = name.to_lowercase();
    let words = ["model_parallel", "tensor_parallel", "tp_group", "tp_size", "tp_world_size", "mp_group", "mp_size"];
    words.iter().any(|w| name.contains(w))
        && !["data", "expert", "context", "pipeline"].iter().any(|w| name.contains(w))
}

/// `all_reduce(p.grad, op=AVG, group=tp_group)` of parameters that a mark, or the function by their names, takes for those of parts.
pub fn in_loops(view: &View<'_>, out: &mut Found) {
    for (at, call) in view.collectives() {
        let step = &view.steps[*at];
        let of_gradient = |e: &Expr| matches!(e, Expr::Attr(_, name) if name == "grad" || name == "main_grad");
        if call.rule.op != "all_reduce"
            || step.loops.is_empty()
            || !call.input.is_some_and(|i| of_gradient(&view.through(i)))
        {
            continue;
        }
        let takes = |words: &[&str]| {
            let says = |e: &Expr| match e {
                Expr::Const(Const::Str(text)) => near::has_any(text, words),
                other => other.last_name().is_some_and(|name| near::has_any(name, words)),
            };
            step.guards.iter().any(|guard| {
                let test = view.through(guard.test);
                let asks = |e: &Expr| matches!(e, Expr::Call { .. } | Expr::Compare(..)) && e.any(&mut |e| says(e));
                guard.holds && !matches!(test, Expr::Unary(..)) && test.any(&mut |e| asks(e))
            })
        };
        let split = asks_for_split(view, *at);
        let told = || split == Some(true) || near::notes(view).iter().any(|note| near::speaks_of(&note.text, SPLIT));
        let parts = takes(&["sequence_parallel"]) || takes(&["norm"]) && told();
        if takes(&["average", "avg", "mean"]) || split == Some(false) || !parts || is_multiplied(view) {
            continue;
        }
        if let Some((divided, summed)) = averages(view, *at, call) {
            out.push((divided, Practice::Scales(Scales::AveragedParts { summed })));
        }
    }
}

/// `grads.append(p.grad)` of parameters with the mark of parts of the sequence, and a sum of the list over tensor-parallel ranks that is divided by
/// their number, in one piece or one after the other.
pub fn of_lists(view: &View<'_>, out: &mut Found) {
    let lists: Vec<LocalId> = (0..view.steps.len())
        .filter_map(|at| {
            let (list, put) = match (view.steps[at].stmt, view.value(at)) {
                (Stmt::Append { collection, value, .. }, _) => (*collection, value),
                (_, Some(Rvalue::CallMethod { base, name, args })) if name == "append" => {
                    (near::local(base)?, &args.first()?.value)
                }
                _ => return None,
            };
            let asks = |e: &Expr| e.string().is_some_and(|s| s == FLAG) || e.last_name() == Some(FLAG);
            let guards = &view.steps[at].guards;
            let marked = guards.iter().any(|g| g.holds && view.through(g.test).any(&mut |e| asks(e)));
            (marked && is_gradient(&view.through(put))).then_some(list)
        })
        .collect();
    if lists.is_empty() || is_multiplied(view) {
        return;
    }
    for (at, call) in view.collectives().iter().filter(|(_, call)| call.rule.op == "all_reduce") {
        let of_list = call.input.is_some_and(|input| {
            let reached = near::reached(view, input, |step| step < *at);
            lists.iter().any(|list| reached.contains(list))
        });
        if let Some((divided, summed)) = averages(view, *at, call).filter(|_| of_list) {
            out.push((divided, Practice::Scales(Scales::AveragedParts { summed })));
        }
    }
}

/// Whether a function multiplies gradients, as one that puts a factor back.
pub(super) fn is_multiplied(view: &View<'_>) -> bool {
    let of_gradient =
        |o: &Operand| view.through(o).any(&mut |e| e.last_name().is_some_and(|name| name.contains("grad")));
    (0..view.steps.len()).any(|step| match view.value(step) {
        Some(Rvalue::CallMethod { base, name, .. }) => {
            // What is divided where the others are averaged comes with a factor that all have.
            let others = view.steps[step].guards.iter().any(|guard| !guard.holds);
            let name = name.trim_end_matches('_');
            (name == "mul" || name == "div" && others) && of_gradient(base)
        }
        Some(Rvalue::Binary { op: BinOp::Mul, left, right } | Rvalue::InPlace { op: BinOp::Mul, left, right }) => {
            of_gradient(left) || of_gradient(right)
        }
        _ => false,
    })
}

/// Whether a step runs where a flag says that sequences are split, or that they are not; nothing where none is asked for.
fn asks_for_split(view: &View<'_>, step: usize) -> Option<bool> {
    let says = |e: &Expr| view.name_of(e).is_some_and(|name| name.contains(FLAG));
    let mut found = None;
    for guard in view.steps[step].guards.iter() {
        let test = view.expr(guard.test);
        if !test.any(&mut |e| says(e)) && !view.through(guard.test).any(&mut |e| says(e)) {
            continue;
        }
        let denied = |e: &Expr| matches!(e, Expr::Unary(UnOp::Not, of) if of.any(&mut |e| says(e)));
        let (holds, rest) = match test {
            Expr::Unary(UnOp::Not, of) => (!guard.holds, *of),
            other => (guard.holds, other),
        };
        if !holds || rest.any(&mut |e| denied(e)) {
            return Some(false);
        }
        found = Some(true);
    }
    found
}

/// Where the first sum of a hook is divided, and the sum, where that is another place.
fn averages_first(hook: &View<'_>) -> Option<(Place, Option<Place>)> {
    let (at, call) = hook.collectives().iter().find(|(_, call)| call.rule.op == "all_reduce")?;
    averages(hook, *at, call)
}

/// Where a sum over tensor-parallel ranks is divided by their number, and the sum, where that is another place.
fn averages<'a>(view: &View<'a>, at: usize, call: &CollectiveCall<'a>) -> Option<(Place, Option<Place>)> {
    let group = near::deep(view, &view.expr(call.group?));
    let over = |e: &Expr| view.name_or_callee(e).is_some_and(is_tensor_axis);
    let input = call.input?;
    let value = root(view, input)?;
    let attribute = Some(view.through(input)).filter(|e| matches!(e, Expr::Attr(..)));
    let same = |o: &Operand| root(view, o) == Some(value) || attribute.as_ref().is_some_and(|e| view.through(o) == *e);
    let is_size = |o: &Operand| match near::deep(view, &view.expr(o)) {
        Expr::Call { callee, args, .. } if callee.last_name() == Some("get_world_size") => {
            args.first().is_some_and(|(_, g)| near::deep(view, g) == group)
        }
        other => over(&other),
    };
    if !over(&group) {
        return None;
    }
    let sum = view.place(view.steps[at].id);
    if mixed_mean::averages(view, call) == Some(true) {
        return Some((sum, None));
    }
    let by_number = |step: usize| match view.value(step) {
        Some(Rvalue::Binary { op: BinOp::Div, left, right } | Rvalue::InPlace { op: BinOp::Div, left, right }) => {
            same(left) && is_size(right)
        }
        Some(Rvalue::CallMethod { base, name, args }) if matches!(name.as_str(), "div_" | "div") => {
            same(base) && args.first().is_some_and(|a| is_size(&a.value))
        }
        _ => false,
    };
    let divided =
        (0..view.steps.len()).find(|step| by_number(*step) && view.steps[*step].loops == view.steps[at].loops)?;
    Some((view.place(view.steps[divided].id), Some(sum)))
}
