//! Gradients of an input that are summed in one mode of an autograd function only. In: an autograd function that multiplies with a part of a
//! weight, and its callers. Out: a backward that reduce-scatters the gradient of the input where the sequence is split, and leaves it as
//! each rank has it where it is whole. Never: files that copy an input for its gradient or rule the other mode out, callers that say which
//! mode it is, or that reduce what comes out. Source: flash-attention, `fused_dense.py`, `FusedDenseFunc.backward`. Next: `unsummed_input.rs`.

use super::backwards::{Backwards, both_ways};
use super::called;
use super::expr::Expr;
use super::found::Practice;
use super::view::View;
use super::{Class, Found, Lint, near};
use crate::ir::{Arg, ArgKind, BinOp, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, Resolved};
use crate::source::{Name, Place};
use std::rc::Rc;

/// Parts of names of flags that say that the sequence is split.
const SEQUENCE: &[&str] = &["seq", "sequence"];
/// Ends of names of groups.
const GROUPS: &[&str] = &["group", "pg"];
/// What has the word for a copy in it, and copies no input for its gradient.
const OTHER_COPIES: &[&str] = &["copy_(", "copyright", "deepcopy", "import copy", "copy.copy"];
/// What divides the features of a layer, or marks its weight as a part.
const DIVIDES: &[&str] = &["//", "divide(", ".tensor_model_parallel = true", "partition_dim"];

/// What a forward does with its input.
struct Forward {
    input: LocalId,
    weight: LocalId,
    flag: LocalId,
    group: LocalId,
    gathered: usize,
}

/// `if ctx.sequence_parallel: grad_input = reduce_scatter(grad_input, ctx.group)`
pub fn parts<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let Some((forward, backward)) = both_ways(lint, class.at).filter(|_| lint.is_autograd(class.at)) else { return };
    let (forward, backward) = (lint.view(forward), lint.view(backward));
    // Whatever else reduces may be the sum.
    let scatters = backward.code().contains("reduce_scatter");
    let others = backward.code().replace("reduce_scatter", "").contains("reduce");
    if !scatters || others || forward.code().contains("reduce") {
        return;
    }
    let Some(of) = of_forward(&forward) else { return };
    let flag = forward.local_name(of.flag).clone();
    let Some(scattered) = scattered(&backward, &flag) else { return };
    if refuses(&backward, &flag) || refuses(&forward, &flag) {
        return;
    }
    let file = lint.files[lint.project.file(class.at.module)].whole();
    if copies(&near::bare(file))
        || says_copies(&forward)
        || says_copies(&backward)
        || near::refusals(file).any(|line| line.contains(&*flag))
        || has_copy(lint, class.at)
        || is_decided(file, &flag)
    {
        return;
    }
    let Some(called) = whole_input(&forward, &of, class.at) else { return };
    let summed = &backward.steps[scattered];
    let tested = summed.guards.last().map_or(backward.place(summed.id), |g| backward.part(g.at, 0));
    let mistake = Backwards::SummedInOneMode {
        class: lint.project.class(class.at).name.clone(),
        input: forward.local_name(of.input).clone(),
        weight: forward.local_name(of.weight).clone(),
        flag,
        tested,
        gathered: forward.place(forward.steps[of.gathered].id),
        called,
    };
    out.push((backward.place(summed.id), Practice::Backwards(mistake)));
}

/// Whether a file gives a flag one value, or derives it or what it decides from something else; or sums the gradients of modules, or stops them.
fn is_decided(file: &str, flag: &str) -> bool {
    let given = |line: &str| {
        let (name, value) = line.split_once(" = ").unwrap_or_default();
        let own = name.rsplit('.').next() == Some(flag);
        own && (value.starts_with("True") || value.contains('>') || value.contains("==")) && !line.starts_with("def ")
    };
    let derives = [format!("if {flag} else 1"), format!("if {flag} else None"), format!("if self.{flag} else 1")];
    let called = format!("{flag}=True");
    let calls = |line: &str| line.contains(&called) && line.contains('(') && !line.trim_start().starts_with("def ");
    file.lines().any(|line| given(line.trim()) || calls(line))
        || derives.iter().any(|text| file.contains(text))
        || near::has_any(file, &["register_full_backward_hook(", "no_grad("])
}

/// Whether a function refuses something by a flag.
fn refuses(view: &View<'_>, flag: &str) -> bool {
    let asks = |test: &Operand| {
        near::deep(view, &view.expr(test)).any(&mut |e| match near::deep(view, e) {
            Expr::Local(local) => view.local_name(local) == flag,
            other => other.last_name() == Some(flag),
        })
    };
    view.steps.iter().any(|step| match step.stmt {
        Stmt::Raise => step.guards.iter().any(|g| asks(g.test)),
        Stmt::Assert { test } => asks(test),
        _ => false,
    })
}

/// Whether a text copies an input so that its gradient is summed.
fn copies(text: &str) -> bool {
    let mut text = text.to_lowercase();
    for other in OTHER_COPIES {
        text = text.replace(other, "");
    }
    text.contains("copy") || text.contains("copies") || text.contains("copied") || text.contains("register_hook")
}

/// Whether a comment or docstring of a function speaks of copies.
fn says_copies(view: &View<'_>) -> bool {
    near::notes(view).iter().any(|note| copies(&note.text))
}

/// Whether another function of the file sums gradients and multiplies nothing.
fn has_copy(lint: &Lint<'_>, class: ClassRef) -> bool {
    let multiplies = |code: &str| near::has_any(code, &["linear", "matmul", "@", "mm("]);
    lint.project.modules[class.module].ir.classes.ids().any(|other| {
        let at = ClassRef { module: class.module, class: other };
        let ways = both_ways(lint, at).filter(|_| at != class && lint.is_autograd(at));
        ways.is_some_and(|(forward, backward)| {
            lint.view(backward).code().contains("reduce") && !multiplies(lint.view(forward).code())
        })
    })
}

/// The gather of an input under a flag, and the product of that with a weight.
fn of_forward(view: &View<'_>) -> Option<Forward> {
    let param = |o: &Operand| near::local(o).filter(|l| view.is_param(*l));
    (0..view.steps.len()).find_map(|step| {
        let args = arguments(view, step)?;
        if !near::name_of_call(view, step)?.contains("gather") {
            return None;
        }
        let flag = held(view, step).into_iter().find_map(|e| match e {
            Expr::Local(l) if view.is_param(l) && is_flag(view.local_name(l)) => Some(l),
            _ => None,
        })?;
        // Behind the buffer, where it is gathered into one.
        let whole = |o: &Operand| match view.source(o) {
            Some((_, Rvalue::CallMethod { base, name, .. })) if name == "contiguous" => param(base),
            _ => param(o),
        };
        let input = args.iter().take(2).find_map(|a| whole(&a.value))?;
        let group = args.iter().filter_map(|a| param(&a.value)).find(|l| is_group(view.local_name(*l)))?;
        let weight = (step + 1..view.steps.len()).find_map(|at| {
            let (left, right) = product(view, at)?;
            let comes = near::reached(view, left, |_| true).contains(&input);
            let from = near::roots(view, right);
            let weights = |p: &&crate::ir::Param| from.contains(&p.local) && p.local != input;
            view.func.params.iter().find(weights).map(|p| p.local).filter(|_| comes)
        })?;
        Some(Forward { input, weight, flag, group, gathered: step })
    })
}

fn is_flag(name: &str) -> bool {
    SEQUENCE.iter().any(|word| near::has_part(name, word))
}

fn is_group(name: &str) -> bool {
    GROUPS.iter().any(|word| near::has_part(name, word))
}

fn arguments<'a>(view: &View<'a>, step: usize) -> Option<&'a [Arg]> {
    match view.value(step)? {
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => Some(args),
        _ => None,
    }
}

/// The two sides of a product.
fn product<'a>(view: &View<'a>, step: usize) -> Option<(&'a Operand, &'a Operand)> {
    match view.value(step)? {
        Rvalue::Binary { op: BinOp::MatMul, left, right } => Some((left, right)),
        value => {
            let path = view.callee(value)?;
            let args = arguments(view, step)?;
            let multiplies = path.starts_with("torch.") && (path.ends_with(".linear") || path.ends_with(".matmul"));
            match args {
                [left, right, ..] if multiplies => Some((&left.value, &right.value)),
                _ => None,
            }
        }
    }
}

/// What holds where a step is executed, each by itself.
fn held(view: &View<'_>, step: usize) -> Vec<Expr> {
    let mut out = Vec::new();
    for guard in view.steps[step].guards.iter().filter(|g| g.holds) {
        let mut todo = vec![near::deep(view, &view.expr(guard.test))];
        while let Some(next) = todo.pop() {
            match next {
                Expr::Bool { and: true, of } => todo.extend(of.iter().map(|e| near::deep(view, e))),
                other => out.push(other),
            }
        }
    }
    out
}

/// The first reduce-scatter, where all are under the flag that the forward keeps, and none under its opposite.
fn scattered(view: &View<'_>, flag: &str) -> Option<usize> {
    let is_flag = |e: &Expr| matches!(e, Expr::Attr(base, name) if name == flag && matches!(**base, Expr::Local(_)));
    let mut first = None;
    for step in 0..view.steps.len() {
        if near::name_of_call(view, step).is_some_and(|name| name.contains("reduce_scatter")) {
            if !held(view, step).iter().any(is_flag) {
                return None;
            }
            first = first.or(Some(step));
        }
    }
    first
}

/// Where a layer that has a part of the weight gives the function its input as it was given it, whatever the flag says.
fn whole_input<'a>(forward: &View<'a>, of: &Forward, class: ClassRef) -> Option<Place> {
    near::functions(forward, class.module).into_iter().find_map(|at| {
        let site = near::shared(forward, at);
        (0..site.steps.len()).find_map(|step| {
            let Some(Rvalue::CallMethod { base, name, args }) = site.value(step) else { return None };
            let own = match site.through(base) {
                Expr::Path(path) => matches!(site.project.path(&path), Resolved::Class(at) if at == class),
                _ => false,
            };
            (own && name == "apply").then_some(())?;
            let given = |local: LocalId| {
                let slot = forward.func.params.iter().position(|p| p.local == local)?.checked_sub(1)?;
                args.get(slot).filter(|a| a.kind == ArgKind::Positional).map(|a| site.expr(&a.value))
            };
            let given = [given(of.input)?, given(of.flag)?, given(of.group)?];
            if is_layer(&site, &given) {
                return Some(site.place(site.steps[step].id));
            }
            by_function(&site, &given)
        })
    })
}

/// The same through a function that hands its arguments on.
fn by_function(site: &Rc<View<'_>>, given: &[Expr; 3]) -> Option<Place> {
    if site.func.class.is_some() {
        return None;
    }
    called::callers(site).into_iter().find_map(|(caller, step)| {
        let args = arguments(&caller, step)?;
        let handed = |e: &Expr| match e {
            Expr::Local(l) if site.is_as_given(*l) => {
                let at = site.func.params.iter().position(|p| p.local == *l)?;
                caller.argument(args, at, site.local_name(*l)).map(|o| caller.expr(o))
            }
            _ => None,
        };
        let [input, flag, group] = given;
        let given = [handed(input)?, handed(flag)?, handed(group)?];
        is_layer(&caller, &given).then(|| caller.place(caller.steps[step].id))
    })
}

/// Whether a method of a layer that divides its features hands on its own input, with a flag and a group that it keeps.
fn is_layer(view: &View<'_>, [input, flag, group]: &[Expr; 3]) -> bool {
    let Some(class) = near::class_of(view) else { return false };
    let as_given = matches!(input, Expr::Local(l) if view.is_as_given(*l));
    let kept = |e: &Expr, named: fn(&str) -> bool| near::own_attribute(view, e).is_some_and(|name: &Name| named(name));
    let text = near::bare(view.text(view.spot(view.project.modules[view.at.module].ir.classes[class].span)));
    let called = near::has_any(view.code(), &["reduce", "gather", "scatter"]);
    let divides = near::has_any(&text, DIVIDES) && !called && !says_copies(view);
    as_given && kept(flag, is_flag) && kept(group, is_group) && divides
}
