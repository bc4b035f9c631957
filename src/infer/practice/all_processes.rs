//! Losses that are multiplied by the number of all ranks, and whose count of tokens is summed over the data-parallel ones alone. In: a method.
//! Out: such a product, where a method of the class sums the count and the class speaks of tensor-parallel ranks: these have the same tokens, so
//! that gradients are too large by their number. Never: a method that knows of these ranks itself, a loss that anything else scales, or a
//! class that refuses them. Ranks with parts of a sequence are no evidence: the count may be that of the whole. Next: `own_group.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::named_axes::{by_name, of_group};
use super::near;
use super::slips::Slip;
use super::view::View;
use super::wrapped::says;
use crate::ir::{BinOp, LocalId, Operand, Rvalue, Stmt};
use crate::rules::{Form, Gives};
use crate::source::{Name, Place, Span};
use std::rc::Rc;

/// How the number of all ranks is written.
pub const SIZES: &[&str] = &["num_processes", "get_world_size", "world_size"];
/// Parts of names of counts.
const COUNTS: &[&str] = &["token", "item", "count", "num", "denom", "valid"];
/// Parts of names of axes other than the data-parallel one.
const OTHER_AXES: &[&str] =
    &["tp", "cp", "sp", "pp", "ep", "non", "mesh", "parallelism", "parallel", "pipeline", "ulysses"];
/// Tests that have nothing to do with what is counted.
const PLAIN_TESTS: &[&str] = &["is_initialized", "is_available", "> 1", "is not none"];
const MOST_DEPTH: usize = 4;

/// A count that a method sums over data-parallel ranks and gives to its caller, or keeps.
pub(super) struct Counted {
    pub method: Name,
    pub local: Name,
    pub axes: Vec<Name>,
    pub place: Place,
    /// The tests under which it is summed.
    tests: Vec<String>,
}

/// `all_reduce(n, group=self.dp_group)`, and `loss * self.accelerator.num_processes` elsewhere in the class
pub fn scaled(view: &View<'_>, out: &mut Found) {
    let Some(class) = near::class_of(view) else { return };
    if view.file().contains("_hook(") {
        return;
    }
    let Some((at, loss)) = (0..view.steps.len()).find_map(|i| Some((i, product(view, i)?))) else { return };
    let roots = near::roots(view, loss);
    let counts: Vec<LocalId> = roots.into_iter().filter(|l| is_count(view.local_name(*l))).collect();
    if counts.is_empty() || !is_trained(view, at) || knows_others(view) || scales_again(view, at, &counts) {
        return;
    }
    let methods = near::methods(view, class);
    let mut sums = methods.iter().filter_map(summed);
    let Some(counted) = sums.next().filter(|_| sums.next().is_none()) else { return };
    let Some(count) = counts.into_iter().find(|l| is_of(view, *l, &counted)) else { return };
    if !is_summed_there(view, at, &counted) || methods.iter().any(|m| refuses(m) || divides_by_others(m)) {
        return;
    }
    let Some(shared) = evidence(view) else { return };
    let found = Slip::AllRanksFactor {
        count: view.local_name(count).clone(),
        over: counted.axes,
        summed: counted.place,
        shared,
    };
    out.push((view.place(view.steps[at].id), Practice::Slips(found)));
}

/// The loss that a step multiplies by the number of all ranks.
fn product<'a>(view: &View<'a>, step: usize) -> Option<&'a Operand> {
    let (Rvalue::Binary { op: BinOp::Mul, left, right } | Rvalue::InPlace { op: BinOp::Mul, left, right }) =
        view.value(step)?
    else {
        return None;
    };
    let is_number = |e: &Expr| ["item", "detach", "clone"].iter().any(|name| e.call_of(name).is_some());
    let is_loss = |o: &Operand| {
        let expr = view.expr(o);
        says(view, &expr, &["loss"]) && !expr.any(&mut |e| is_number(e))
    };
    let all = |o: &Operand| is_all(view, &view.expr(o), MOST_DEPTH);
    match (is_loss(left) && all(right), is_loss(right) && all(left)) {
        (true, _) => Some(left),
        (_, true) => Some(right),
        _ => None,
    }
}

/// Whether the gradient of what a step makes is taken, here or by the caller: a number that is only logged may have any factor.
fn is_trained(view: &View<'_>, step: usize) -> bool {
    let mut made = view.binds(step);
    let mut at = 0;
    while let Some(local) = made.get(at).copied() {
        at += 1;
        for reader in view.readers(local).iter().filter(|r| **r > step) {
            let by_name = near::name_of_call(view, *reader).is_some_and(|name| name.contains("backward"));
            let leaves = match view.steps[*reader].stmt {
                Stmt::Return { .. } => true,
                Stmt::Assign {
                    dst,
                    value: Rvalue::Use(_) | Rvalue::Binary { .. } | Rvalue::Build { .. } | Rvalue::InPlace { .. },
                } => {
                    if !made.contains(dst) {
                        made.push(*dst);
                    }
                    false
                }
                _ => false,
            };
            if by_name || leaves {
                return !view.without_gradient(step);
            }
        }
    }
    false
}

/// Whether a number is that of all ranks.
fn is_all(view: &View<'_>, expr: &Expr, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let expr = near::deep(view, expr);
    match &expr {
        Expr::Attr(base, name) if name == "num_processes" => says(view, base, &["accelerator", "state"]),
        Expr::Attr(..) => {
            let Some((class, name)) = near::class_of(view).zip(near::own_attribute(view, &expr)) else { return false };
            let set = near::assigned(view, class, name);
            matches!(set.as_slice(), [(method, _, value)] if is_all(method, &method.expr(value), depth))
        }
        Expr::Call { callee, args, .. } => {
            args.is_empty() && near::path(view, callee).is_some_and(|path| path == "torch.distributed.get_world_size")
        }
        // With one device for each process.
        Expr::Choice(_, all, other) => is_all(view, all, depth) && other.last_name() == Some("n_gpu"),
        _ => false,
    }
}

fn is_count(name: &str) -> bool {
    near::has_any(&name.to_lowercase(), COUNTS)
}

/// Whether a method speaks of ranks other than the data-parallel ones.
fn knows_others(view: &View<'_>) -> bool {
    words(view.code()).any(|(_, word)| is_of_others(word))
}

fn is_of_others(word: &str) -> bool {
    OTHER_AXES.iter().any(|part| near::has_part(word, part))
}

/// The words of a text, and where they stand.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_in = |c: char| c.is_alphanumeric() || c == '_';
    let starts = move |(at, c): &(usize, char)| is_in(*c) && !text[..*at].ends_with(is_in);
    text.char_indices().filter(starts).map(move |(at, _)| {
        let rest = &text[at..];
        (at, &rest[..rest.find(|c: char| !is_in(c)).unwrap_or(rest.len())])
    })
}

/// Whether anything but the count scales the loss as well.
fn scales_again(view: &View<'_>, at: usize, counts: &[LocalId]) -> bool {
    let by_count = |o: &Operand| {
        let by = view.expr(o);
        counts.iter().any(|count| by == Expr::Local(*count))
    };
    (0..view.steps.len()).filter(|i| *i != at).any(|i| match view.value(i) {
        Some(
            Rvalue::Binary { op: BinOp::Div | BinOp::FloorDiv, left, right }
            | Rvalue::InPlace { op: BinOp::Div | BinOp::FloorDiv, left, right },
        ) => says(view, &view.expr(left), &["loss"]) && !by_count(right),
        Some(Rvalue::Binary { op: BinOp::Mul, left, right } | Rvalue::InPlace { op: BinOp::Mul, left, right }) => {
            [left, right].iter().any(|o| says(view, &view.expr(o), &["loss"]))
        }
        Some(Rvalue::CallMethod { base, name, .. }) => {
            matches!(name.as_str(), "mul" | "mul_" | "div" | "div_") && says(view, &view.expr(base), &["loss"])
        }
        _ => false,
    })
}

/// The count that a method sums over data-parallel ranks, and nothing else changes.
pub(super) fn summed(method: &Rc<View<'_>>) -> Option<Counted> {
    let mut all = method.collectives().iter();
    let ((at, call), None) = (all.next()?, all.next()) else { return None };
    let local = near::local(call.input?)?;
    let is_sum = call.rule.op == "all_reduce"
        && call.rule.form == Form::InPlace
        && !call.args.iter().any(|a| {
            let given = method.through(&a.value);
            given.is_other_reduction() || given.last_name() == Some("AVG")
        });
    let group = method.expr(call.group?);
    let axes = of_group(method, &group)?;
    // What is kept under the name of more axes than it is given for.
    let named = match &group {
        Expr::Local(local) => by_name(method.local_name(*local), Gives::Group),
        other => other.last_name().and_then(|name| by_name(name, Gives::Group)),
    };
    if named.is_some_and(|named| named != axes) {
        return None;
    }
    let data = axes.iter().all(|a| matches!(a.as_str(), "dp" | "dp_replicate" | "dp_shard" | "fsdp"));
    let is_kept = method.defs(local).iter().all(|def| def < at)
        && method.readers(local).iter().all(|r| r <= at || hands_on(method, *r));
    let name = method.local_name(local);
    let counts = is_count(name) || is_count(&method.func.name);
    if !is_sum || !data || !is_kept || !counts || !counts_labels(method, local) {
        return None;
    }
    let step = &method.steps[*at];
    let tests = step.guards.iter().map(|g| method.text(method.part(g.at, 0)).to_lowercase()).collect();
    let method_name = method.func.name.clone();
    Some(Counted { method: method_name, local: name.clone(), axes, place: method.place(step.id), tests })
}

/// Whether a step gives a value on as it is.
fn hands_on(method: &View<'_>, step: usize) -> bool {
    match method.steps[step].stmt {
        Stmt::Return { .. } | Stmt::SetAttr { .. } | Stmt::If { .. } => true,
        Stmt::Assign { value, .. } => match value {
            Rvalue::Use(_) | Rvalue::Build { .. } | Rvalue::Compare { .. } => true,
            Rvalue::CallMethod { name, .. } => matches!(name.as_str(), "item" | "to" | "float" | "clamp" | "detach"),
            // Another method may use it in the place of the caller.
            Rvalue::Binary { op: BinOp::Div, .. } => true,
            _ => false,
        },
        _ => false,
    }
}

/// Whether a count is one of what a batch has: a sum of a mask or of a comparison.
fn counts_labels(method: &View<'_>, local: LocalId) -> bool {
    let mut steps: Vec<usize> = method.defs(local).to_vec();
    for root in near::roots(method, &Operand::Local(local)) {
        steps.extend(method.defs(root));
    }
    steps.iter().any(|s| {
        let text = method.text(method.place(method.steps[*s].id)).to_lowercase();
        text.contains("sum(") && near::has_any(&text, &["!=", ".ne(", "mask", "label"])
    })
}

/// Whether a variable is the count that a method gives: by its name, or that of the method, or because it is bound to it.
fn is_of(view: &View<'_>, local: LocalId, counted: &Counted) -> bool {
    let name = view.local_name(local);
    let gives =
        |def: &usize| near::name_of_call(view, *def).is_some_and(|called| called == counted.method.to_lowercase());
    let kept = |def: &usize| {
        let Some(Rvalue::Attr { base, name }) = view.value(*def) else { return false };
        near::is_self(view, base) && *name == counted.local
    };
    match view.is_param(local) {
        true => view.defs(local).is_empty() && (*name == counted.local || counted.method.ends_with(name.as_str())),
        false => {
            *name == counted.local && view.func.name == counted.method
                || view.defs(local).iter().any(|def| gives(def) || kept(def))
        }
    }
}

/// Whether the count is summed wherever the loss is multiplied.
fn is_summed_there(view: &View<'_>, at: usize, counted: &Counted) -> bool {
    let tests: Vec<String> = view.steps[at]
        .guards
        .iter()
        .filter(|g| g.holds)
        .map(|g| view.text(view.part(g.at, 0)).to_lowercase())
        .collect();
    counted
        .tests
        .iter()
        .all(|test| near::has_any(test, PLAIN_TESTS) || tests.iter().any(|other| other.contains(test.as_str())))
}

/// Whether a method fails where there are other ranks.
fn refuses(method: &View<'_>) -> bool {
    let speaks = |place: Place| {
        let text = method.text(place).to_lowercase();
        words(&text).any(|(_, word)| is_tensor_parallel(word))
    };
    method.steps.iter().any(|step| match step.stmt {
        Stmt::Assert { .. } => speaks(method.place(step.id)),
        Stmt::Raise => step.guards.iter().any(|g| speaks(method.part(g.at, 0))),
        _ => false,
    })
}

/// Whether a method divides by a number of other ranks: that may undo the factor.
fn divides_by_others(method: &View<'_>) -> bool {
    method.steps.iter().enumerate().any(|(i, _)| match method.value(i) {
        Some(
            Rvalue::Binary { op: BinOp::Div | BinOp::FloorDiv, right, .. }
            | Rvalue::InPlace { op: BinOp::Div | BinOp::FloorDiv, right, .. },
        ) => near::deep(method, &method.expr(right)).any(&mut |e| method.name_of(e).is_some_and(is_of_others)),
        _ => false,
    })
}

fn is_tensor_parallel(word: &str) -> bool {
    near::has_part(word, "tp") || word.contains("tensor_parallel") || word.contains("tensor_model_parallel")
}

/// Where a class speaks of tensor-parallel ranks: in its code, or in a comment.
fn evidence(view: &View<'_>) -> Option<Place> {
    let class = &view.project.modules[view.at.module].ir.classes[near::class_of(view)?];
    let span = class.span;
    let text = view.files[view.project.file(view.at.module)].slice(span);
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let lower = line.to_ascii_lowercase();
        let denied = near::has_any(&lower, &["without", "no tp", "no tensor", "not "]);
        let said = ["tensor-parallel", "tensor parallel"].iter().find_map(|said| Some((lower.find(said)?, said.len())));
        let word = words(&lower).find(|(_, word)| is_tensor_parallel(word)).map(|(at, word)| (at, word.len()));
        if let Some((at, len)) = word.or(said).filter(|_| !denied) {
            let from = span.start + (start + at) as u32;
            return Some(view.spot(Span::new(from, from + len as u32)));
        }
        start += line.len();
    }
    None
}
