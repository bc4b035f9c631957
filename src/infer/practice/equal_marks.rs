//! Lists of axes over which gradients are said to be equal, which nobody reads. In: a function that sums a gradient over each axis of a list that parameters carry. Out: its sum, where another
//! list beside that one has some of the same axes, its name says that ranks have the same, and no text of the project reads it. Never: a sum beside which something is divided, or a list
//! that is about values and not about gradients. Source: makani, `is_shared_mp`. Next: `mark_unasked.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::unshared::Unshared;
use super::view::View;
use crate::ir::{FuncKind, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef};
use crate::source::{Name, Place, Span};
use std::rc::Rc;

/// How hooks are registered.
pub const REGISTER: &[&str] = &["register_hook(", "register_post_accumulate_grad_hook("];
/// Parts of names that say that ranks have the same.
const SAME: &[&str] = &["same", "equal", "identical"];
/// Of gradients, and of what they are made from.
const GRADIENTS: &[&str] = &["grad", "grads", "gradient", "gradients"];
const INPUTS: &[&str] = &["input", "inputs", "activation", "activations"];
/// Words of code that makes up for a sum, or makes it none.
const UNDONE: &[&str] = &["/", "div", "avg", "mul_", "*=", " * ", "mean", "scale"];

/// Two lists of axes that one parameter carries.
struct Beside {
    summed: Name,
    other: Name,
    axis: Name,
    set: Place,
}

/// `for name in param.shared: all_reduce(grad, group=get_group(name))`, and `param.same_input` that nobody reads
pub fn summed(view: &View<'_>, out: &mut Found) {
    let Some(at) = view.collectives().iter().find(|(at, _)| sums_each(view, *at)).map(|(at, _)| *at) else { return };
    let around = around(view);
    if around.iter().any(|one| near::has_any(one.code(), UNDONE)) {
        return;
    }
    let mut read: Vec<Name> = around.iter().flat_map(|one| attributes(one)).collect();
    read.sort();
    read.dedup();
    let mut found = read.iter().filter_map(|mark| beside(view, mark));
    let (Some(Beside { summed, other, axis, set }), None) = (found.next(), found.next()) else { return };
    if is_scaled_elsewhere(view, &axis) {
        return;
    }
    let mistake = Unshared::EqualSummed { mark: other, summed, axis, set };
    out.push((view.place(view.steps[at].id), Practice::Unshared(mistake)));
}

/// Whether a line of the file that names the axis multiplies or divides something.
fn is_scaled_elsewhere(view: &View<'_>, axis: &str) -> bool {
    let scales = |line: &str| near::has_any(line, &[" / ", "div(", "div_(", "mul_(", " * ", "*="]);
    // An attribute that is the number of ranks is there to divide by.
    let keeps_size = |line: &str| {
        let kept = line.trim_start().strip_prefix("self.").and_then(|rest| rest.split_once(" = "));
        kept.is_some_and(|(_, value)| value.split('(').next().is_some_and(|called| called.contains("size")))
    };
    view.file().lines().any(|line| line.contains(axis) && (scales(line) || keeps_size(line)))
}

/// Whether a step sums what a function is given over the group that the variable of a loop around it names.
fn sums_each(view: &View<'_>, at: usize) -> bool {
    let Some((_, call)) = view.collectives().iter().find(|(step, _)| *step == at) else { return false };
    let (Some(group), Some(input)) = (call.group, call.input) else { return false };
    let operator = view.operator(call).map(|op| view.expr(op));
    let sum = operator.is_none_or(|op| op.last_name() == Some("SUM"));
    let named = near::reached(view, group, |_| true);
    let of_loop = view.steps[at].loops.iter().any(|head| view.binds(*head).iter().any(|local| named.contains(local)));
    let given = || near::roots(view, input).into_iter().any(|local| view.is_param(local));
    let gradient = || near::reached(view, input, |_| true).into_iter().any(|l| view.local_name(l).contains("grad"));
    call.rule.op == "all_reduce" && sum && of_loop && (given() || gradient())
}

/// A function, those around it, and those of its file that call it or what is around it by name.
fn around<'a>(view: &View<'a>) -> Vec<Rc<View<'a>>> {
    let module = view.at.module;
    let funcs = &view.project.modules[module].ir.funcs;
    let is_code = |kind| matches!(kind, FuncKind::Function | FuncKind::Lambda);
    let mut own = Vec::new();
    let mut at = Some(view.at.func);
    while let Some(func) = at {
        if is_code(funcs[func].kind) {
            own.push(func);
        }
        at = funcs[func].parent;
    }
    let names: Vec<&Name> = own.iter().map(|func| &funcs[*func].name).collect();
    let calls = |span: Span| {
        let text = view.text(view.spot(span));
        names.iter().any(|name| near::words(text, name).any(|at| text[at + name.len()..].starts_with('(')))
    };
    let callers = funcs
        .iter_enumerated()
        .filter(|(func, f)| !own.contains(func) && is_code(f.kind) && calls(f.span))
        .map(|(func, _)| func);
    let all: Vec<_> = own.iter().copied().chain(callers).collect();
    all.into_iter().map(|func| near::shared(view, FuncRef { module, func })).collect()
}

/// The attributes that a function reads, also by their names.
fn attributes(view: &View<'_>) -> Vec<Name> {
    let read = |step: usize| match view.value(step)? {
        Rvalue::Attr { name, .. } => Some(name.clone()),
        Rvalue::Call { callee: Operand::Global(callee), args } if callee == "getattr" => {
            view.expr(&args.get(1)?.value).string().cloned()
        }
        _ => None,
    };
    (0..view.steps.len()).filter_map(read).collect()
}

/// A list of axes beside one that is read, of which some are the same, and that nobody reads.
fn beside(view: &View<'_>, summed: &Name) -> Option<Beside> {
    let set = format!(".{summed} = [");
    let files = view.project.modules.ids().filter(|m| view.files[view.project.file(*m)].whole().contains(&set));
    let mut found: Option<Beside> = None;
    for module in files {
        for at in near::functions(view, module) {
            let func = view.project.func(at);
            let text = || view.files[view.project.file(module)].slice(func.span);
            if func.kind != FuncKind::Function || !text().contains(&set) {
                continue;
            }
            let maker = near::shared(view, at);
            let lists = lists(&maker);
            for (holder, mark, axes, _) in lists.iter().filter(|(_, mark, ..)| mark == summed) {
                let others = lists.iter().filter(|(of, other, ..)| of == holder && other != mark);
                for (_, other, some, place) in others {
                    // An empty list says nothing.
                    if some.is_empty() || !says_same(&maker, other, some) {
                        continue;
                    }
                    let inside = some.iter().all(|axis| axes.contains(axis));
                    if !inside || found.as_ref().is_some_and(|known| known.other != *other) {
                        return None;
                    }
                    if let (Some(axis), None) = (some.iter().next(), &found) {
                        let (summed, other) = (summed.clone(), other.clone());
                        found = Some(Beside { summed, other, axis: axis.clone(), set: *place });
                    }
                }
            }
        }
    }
    found.filter(|found| is_unread(view, &found.other))
}

/// What carries a list of names, how the list is called, the names, and where it is set.
type Listed = (Expr, Name, Vec<Name>, Place);

fn lists(maker: &View<'_>) -> Vec<Listed> {
    let of = |step: &super::view::Step<'_>| {
        let Stmt::SetAttr { base, name, value } = step.stmt else { return None };
        let Expr::Build(items) = maker.expr(value) else { return None };
        let names: Option<Vec<Name>> = items.iter().map(|item| item.string().cloned()).collect();
        let holder = maker.expr(base);
        matches!(holder, Expr::Attr(..) | Expr::Local(_)).then_some((
            holder,
            name.clone(),
            names?,
            maker.place(step.id),
        ))
    };
    maker.steps.iter().filter_map(of).collect()
}

/// Whether a name says that ranks have the same gradients, or the same input in a class that gathers it over the axis and cuts the result again.
fn says_same(maker: &View<'_>, name: &str, axes: &[Name]) -> bool {
    let has = |words: &[&str]| name.split('_').any(|part| words.contains(&part));
    let gathers = || {
        let Some(class) = near::class_of(maker) else { return false };
        let class = ClassRef { module: maker.at.module, class };
        let code = near::code(maker, maker.project.class(class).span);
        let over = |axis: &Name, words: &[&str]| {
            let quoted = |line: &str| {
                ['"', '\''].iter().any(|quote| line.contains(&format!("{quote}{}{quote}", axis.to_lowercase())))
            };
            code.lines().any(|line| near::has_any(line, words) && line.contains('(') && quoted(line))
        };
        !axes.is_empty() && axes.iter().all(|axis| over(axis, &["gather"]) && over(axis, &["scatter", "split"]))
    };
    has(SAME) && (has(GRADIENTS) || has(INPUTS) && gathers())
}

/// Whether all that the project says of an attribute is to set it.
fn is_unread(view: &View<'_>, mark: &str) -> bool {
    let name = mark.to_lowercase();
    view.project.modules.ids().all(|module| {
        let text = view.files[view.project.file(module)].whole();
        if !text.contains(mark) {
            return true;
        }
        let bare = near::bare(text);
        // Also as a part of another name.
        bare.match_indices(&name).all(|(at, _)| {
            let value = bare[at + name.len()..].trim_start().strip_prefix('=');
            bare[..at].ends_with('.') && value.is_some_and(|value| !value.starts_with('='))
        }) && !bare.contains("__dict__")
    })
}
