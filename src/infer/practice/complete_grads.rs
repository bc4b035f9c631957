//! Sums of gradients that every rank has whole already. In: a sum over a group of the gradient of something that an object keeps, by its name:
//! `model.q_a.grad`, `module.weight.grad` of a few modules. Out: such a sum, where all that the class computes of it goes into functions whose
//! backward sums over these ranks. Never: a mean, or what reaches anything else. Source: AReno, pull request 496. Next: `beside_layers.rs`.

use super::expr::Expr;
use super::found::{Practice, Scales};
use super::view::{CollectiveCall, View};
use super::{Found, near};
use crate::ir::{LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, Resolved};
use crate::rules::collective::Transition;
use crate::source::{Name, Place};
use crate::types::AxisType;
use rustc_hash::FxHashSet;

/// Words of code that makes a sum something else, or takes another rank's part.
const OTHERWISE: &[&str] = &["avg", "/", "div", "mul_", "*=", "max"];
/// Words of a forward that takes the rank's own part of something.
const PARTS: &[&str] = &["rank", "sequence_parallel", "scatter"];
/// Attributes of layers that are parameters.
const OF_LAYERS: &[&str] = &["weight", "bias"];
/// Methods that give the same values.
const SAME: &[&str] = &["view_as", "clone", "contiguous"];
const GRADIENTS: &[&str] = &["grad", "main_grad"];

/// `for p in (model.q_a, model.q_norm): all_reduce(p.grad, group=tp_group)`
pub fn summed(view: &View<'_>, out: &mut Found) {
    for (at, call) in view.collectives() {
        if call.rule.op != "all_reduce" || is_made_up_for(view, *at) {
            continue;
        }
        let Some(group) = group_name(view, call) else { continue };
        let names = call.input.map(|input| summed_names(view, *at, input)).unwrap_or_default();
        let found = names.iter().map(|name| whole(view, name, &group)).collect::<Option<Vec<_>>>();
        if let Some([(first, axes), ..]) = found.as_deref() {
            let sum = view.place(view.steps[*at].id);
            let mistake = Scales::SummedAgain { axes: axes.clone(), first: *first, sum };
            out.push((sum, Practice::Scales(mistake)));
            return;
        }
    }
}

/// Whether a sum is none, or the round of the loop around it, or else the function, does more with numbers.
fn is_made_up_for(view: &View<'_>, sum: usize) -> bool {
    let Some(head) = view.steps[sum].loops.last() else { return near::has_any(view.code(), OTHERWISE) };
    let inside = |step: &usize| view.steps[*step].loops.contains(head);
    (0..view.steps.len()).filter(inside).any(|step| {
        let text = view.text(view.place(view.steps[step].id)).to_lowercase();
        near::has_any(&text, OTHERWISE)
    })
}

/// What a group is called: `tp_group` of `self.tp_group`.
fn group_name(view: &View<'_>, call: &CollectiveCall<'_>) -> Option<Name> {
    let group = view.expr(call.group?);
    view.name_of(&group).map(Name::from)
}

/// The attributes whose gradients a sum takes: of `p.grad` in a loop over some, or of `model.layer.weight.grad`.
fn summed_names(view: &View<'_>, sum: usize, input: &Operand) -> Vec<Name> {
    let Expr::Attr(of, grad) = view.through(input) else { return Vec::new() };
    if !GRADIENTS.contains(&grad.as_str()) {
        return Vec::new();
    }
    let of = match *of {
        Expr::Attr(layer, part) if OF_LAYERS.contains(&part.as_str()) => *layer,
        of => of,
    };
    let of = match of {
        Expr::Local(one) => view.last_def(one, sum).map_or(Expr::Unknown, |def| view.bound(def, one)),
        of => of,
    };
    match of {
        Expr::Attr(_, name) => vec![name],
        Expr::Element(all) => match *all {
            Expr::Build(items) => items.iter().map(attribute).collect::<Option<Vec<_>>>().unwrap_or_default(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// The name of an attribute, or of the layer whose weight it is.
fn attribute(e: &Expr) -> Option<Name> {
    match e {
        Expr::Attr(layer, part) if OF_LAYERS.contains(&part.as_str()) => attribute(layer),
        Expr::Attr(_, name) => Some(name.clone()),
        _ => None,
    }
}

/// Where the backward of a class has summed the gradient of an attribute over a group of this name, and the axes that a rule says.
fn whole(view: &View<'_>, attr: &str, group: &str) -> Option<(Place, Vec<Name>)> {
    let module = view.at.module;
    let mut classes = view.project.modules[module].ir.classes.ids().filter_map(|class| {
        let at = ClassRef { module, class };
        let forward = near::shared(view, view.project.own_method(at, "forward")?);
        (!near::assigned(&forward, class, attr).is_empty()).then_some(forward)
    });
    let forward = classes.next()?;
    if classes.next().is_some() || near::has_any(forward.code(), PARTS) || may_differ(view, &forward, attr) {
        return None;
    }
    flows(&forward, attr, group)
}

/// Whether the file may use an attribute otherwise than its forward does, replace that, or divide gradients.
fn may_differ(view: &View<'_>, forward: &View<'_>, attr: &str) -> bool {
    let Some(class) = near::class_of(forward) else { return true };
    let at = ClassRef { module: view.at.module, class };
    let (text, attr) = (near::bare(view.file()), attr.to_lowercase());
    let name = view.project.class(at).name.to_lowercase();
    let derives = |line: &str| line.trim_start().starts_with("class ") && line.contains(&format!("({name}"));
    let derived = text.lines().any(derives);
    let replaced = near::has_any(&text, &["forward =", "methodtype"]);
    let divides = |line: &str| line.contains("grad") && near::has_any(line, &["/", "div", "mul", "*="]);
    let named = |code: &str| near::words(code, &attr).count();
    let of_init = view.project.own_method(at, "__init__").map_or(0, |init| named(near::shared(forward, init).code()));
    let elsewhere = named(&text) != named(forward.code()) + named(view.code()) + of_init;
    derived || replaced || elsewhere || text.lines().any(divides)
}

/// Follows what a forward computes of an attribute: the first boundary, if nothing of it goes anywhere else.
fn flows(forward: &View<'_>, attr: &str, group: &str) -> Option<(Place, Vec<Name>)> {
    let mut made: FxHashSet<LocalId> = FxHashSet::default();
    let mut first = None;
    for step in 0..forward.steps.len() {
        let value = forward.value(step);
        let begins = match value {
            Some(Rvalue::Attr { base, name } | Rvalue::CallMethod { base, name, .. }) => {
                near::is_self(forward, base) && name == attr
            }
            _ => false,
        };
        let touched = forward.reads(step).into_iter().any(|o| near::local(o).is_some_and(|l| made.contains(&l)));
        if !begins && !touched {
            continue;
        }
        let plain = forward.steps[step].guards.is_empty() && forward.steps[step].loops.is_empty();
        let Stmt::Assign { dst, value } = forward.steps[step].stmt else { return None };
        if !plain {
            return None;
        }
        match boundary(forward, value, group) {
            Some((axes, given)) if near::local(given).is_some_and(|l| made.contains(&l)) => {
                first = first.or_else(|| Some((forward.place(forward.steps[step].id), axes)));
            }
            Some(_) => return None,
            None if forward.may_communicate(value) || is_method_of_project(forward, value) => return None,
            None => {
                made.insert(*dst);
            }
        }
    }
    first
}

/// Whether a call runs a method of the object that the class defines: what that does with a value is not followed.
fn is_method_of_project<'a>(forward: &View<'a>, value: &'a Rvalue) -> bool {
    match value {
        Rvalue::CallMethod { base, name, .. } => {
            near::is_self(forward, base) && near::own_method(forward, name).is_some()
        }
        Rvalue::Call { .. } => {
            forward.callee(value).is_none_or(|path| matches!(forward.project.path(&path), Resolved::Func(_)))
        }
        _ => false,
    }
}

/// What a call sends on as it is, if its backward sums over a group of this name; and the axes that a rule says.
fn boundary<'a>(view: &View<'a>, value: &'a Rvalue, group: &str) -> Option<(Vec<Name>, &'a Operand)> {
    if let Some(call) = view.collective(value) {
        let copies = |t: &Transition| t.source.set == AxisType::I && t.result.set == AxisType::R;
        let is_copy = call.rule.op == "convert" && call.rule.transitions.iter().all(|(_, t)| copies(t));
        let over = group_name(view, &call).is_some_and(|name| name == group);
        return call.input.filter(|_| is_copy && over).map(|given| (call.rule.default_group.clone(), given));
    }
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let [given, rest @ ..] = &**args else { return None };
    let over = rest.iter().any(|arg| view.name_of(&view.expr(&arg.value)) == Some(group));
    let copies = || near::applied(view, value).is_some_and(|class| sums_backward(view, class));
    (over && copies()).then_some((Vec::new(), &given.value))
}

/// Whether an autograd function hands its first argument on as it is, and its backward sums the gradient over ranks and does nothing else.
fn sums_backward(view: &View<'_>, class: ClassRef) -> bool {
    let method = |name: &str| view.project.own_method(class, name).map(|at| near::shared(view, at));
    let (Some(forward), Some(backward)) = (method("forward"), method("backward")) else { return false };
    let Some(given) = forward.func.params.get(1).map(|p| p.local) else { return false };
    let returned = forward.steps.iter().filter_map(|step| match step.stmt {
        Stmt::Return { value } => Some(forward.through(value)),
        _ => None,
    });
    let is_given = |e: Expr| match e {
        Expr::Local(local) => local == given,
        Expr::Call { callee, .. } => match *callee {
            Expr::Attr(of, name) => SAME.contains(&name.as_str()) && *of == Expr::Local(given),
            _ => false,
        },
        _ => false,
    };
    let mut sums = backward.collectives().iter();
    let one_sum =
        sums.next().is_some_and(|(at, call)| call.rule.op == "all_reduce" && backward.steps[*at].guards.is_empty())
            && sums.next().is_none();
    let mut returned = returned.map(is_given).peekable();
    returned.peek().is_some()
        && returned.all(|same| same)
        && !near::communicates(&forward)
        && one_sum
        && !near::has_any(backward.code(), OTHERWISE)
}
