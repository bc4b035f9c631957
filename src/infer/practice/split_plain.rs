//! Activations that a rank cuts out at its own place as if they were data. In: the forward of a module. Out: such a part of what a submodule
//! computed, in front of layers whose result an autograd function gathers again, where another one of the file splits with a gather in its
//! backward and nobody uses it. And the part of what a module is given, alike on all ranks of a model-parallel group, whose results such a function
//! gathers: each rank has the gradient of its own part. Never: inputs without a gradient, classes that anything names, or a file where another backward
//! communicates. Source: fastmoe, commit 704092b. Next: `own_part.rs`.

use super::backwards::{Backwards, both_ways};
use super::beside::Question;
use super::cut::{class_of, is_module, is_trained};
use super::expr::Expr;
use super::found::Practice;
use super::gradient::target;
use super::near::{self, has_word};
use super::own_part::part;
use super::reducers::parameter_loop;
use super::view::View;
use super::{Found, Lint};
use crate::ir::{BinOp, BuildKind, Item, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, Resolved};
use crate::source::{Name, Place};

/// Parts of activations whose gradient nothing gathers.
pub(super) fn splits<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    let module = class_of(view).is_some_and(|c| is_module(lint, c));
    if view.func.name != "forward" || !module {
        return;
    }
    let of_file = |class| ClassRef { module: view.at.module, class };
    let any = || lint.project.modules[view.at.module].ir.classes.ids().any(|class| lint.is_autograd(of_file(class)));
    if !view.answer(Question::Autograd(view.at.module), any) || !is_trained(lint, view) {
        return;
    }
    // A file that runs models without gradients, and trains none.
    let file = view.file();
    if ["no_grad", "inference_mode"].iter().any(|w| file.contains(w)) && !file.contains(".backward(") {
        return;
    }
    let Some((gather, gathered)) = last_gather(lint, view) else { return };
    for step in 0..gather {
        let Stmt::Assign { dst, .. } = view.steps[step].stmt else { continue };
        if view.is_temp(*dst) || part(view, &Operand::Local(*dst), step + 1, 0).is_none() {
            continue;
        }
        let place = view.place(view.steps[step].id);
        let text = view.text(place);
        let computed = |local: &LocalId| has_word(text, view.local_name(*local));
        let Some(value) = computed_before(view, step).into_iter().find(computed) else { continue };
        let Some(class) = unused_split(lint, view) else { return };
        let c = lint.project.class(class);
        let mistake = Backwards::PlainSplit {
            value: view.local_name(value).clone(),
            class: c.name.clone(),
            made: Place { file: lint.project.file(class.module), span: c.name_span },
            gathered,
            cut: view.value(step).and_then(|v| cut_in_helper(lint, view, v)),
        };
        out.push((place, Practice::Backwards(mistake)));
        return;
    }
}

/// What names of inputs say that have no gradient.
const DATA: &[&str] = &[
    "id",
    "ids",
    "token",
    "tokens",
    "label",
    "labels",
    "target",
    "targets",
    "mask",
    "pos",
    "position",
    "positions",
    "index",
    "indices",
    "idx",
    "image",
    "images",
    "img",
    "pixel",
    "pixels",
    "video",
    "frames",
    "audio",
    "batch",
    "data",
    "latent",
    "latents",
    "timestep",
    "noise",
    "freqs",
    "cos",
    "sin",
];
/// What names of modules say that have no parameters.
const TABLES: &[&str] =
    &["rotary", "rope", "freq", "freqs", "sinusoidal", "table", "pos", "position", "positions", "mask"];
/// What shows that some module has no gradient, or that it is summed.
const UNTRAINED: &[&str] =
    &["no_grad", "inference_mode", "requires_grad", "detach(", "hook", ".weight.grad", "param_group"];
/// Parts of names of groups whose ranks are given the same activations.
const MODEL: &[&str] = &["mp", "tp", "tensor", "model"];
/// What shows that a gradient is summed or gathered elsewhere, that the module is given data, or that nothing is trained.
const ELSEWHERE: &[&str] = &[
    "copy_to",
    "hook",
    "scatter_to",
    "_to_group",
    "identity",
    "no_grad",
    "inference_mode",
    "embedding(",
    "embed(",
    "conv2d(",
    "conv3d(",
    "conv1d(",
    "nn.functional",
    "dist_nn",
    "dist.nn",
];

/// `inp = inp[rank * n:(rank + 1) * n]`, and `return AllGather.apply(y, ...)`, over model-parallel ranks.
pub(super) fn inputs<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    // Few files gather with a backward of their own.
    if view.func.name != "forward" || !view.file().contains("all_gather") || !view.file().contains("def backward(") {
        return;
    }
    if !class_of(view).is_some_and(|c| is_module(lint, c)) || !is_trained(lint, view) {
        return;
    }
    let text = near::bare(view.file());
    if near::has_any(&text, ELSEWHERE) || backward_talks(lint, view) {
        return;
    }
    let Some((gather, gathered)) = last_gather(lint, view) else { return };
    let over = view.text(gathered).to_lowercase();
    let mut names = over.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    if !names.any(|name| name.contains("group") && MODEL.iter().any(|m| near::has_part(name, m))) {
        return;
    }
    for step in 0..gather {
        let Stmt::Assign { dst, .. } = view.steps[step].stmt else { continue };
        let own = || part(view, &Operand::Local(*dst), step + 1, 0).is_some() || starts_at_rank(view, step);
        if view.is_temp(*dst) || !own() {
            continue;
        }
        let place = view.place(view.steps[step].id);
        let cut = view.text(place);
        let given = view.func.params.iter().find(|p| {
            let name = p.name.to_lowercase();
            name != "self"
                && has_word(cut, &p.name)
                && view.last_def(p.local, step).is_none()
                && !DATA.iter().any(|word| near::has_part(&name, word))
        });
        if let Some(given) = given {
            let mistake = Backwards::PlainInputSplit { input: given.name.clone(), gathered, summed: None };
            out.push((place, Practice::Backwards(mistake)));
            return;
        }
    }
}

/// `h = model.embed(ids)`, `h = h.chunk(n, dim=1)[rank]` and a gather, where the gradients of other submodules alone are summed over these ranks.
pub(super) fn computed<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    let text = view.file();
    if !text.contains(".backward(ctx") && !text.contains("def backward(") || near::has_any(text, UNTRAINED) {
        return;
    }
    // An optimizer may have other parameters than those of the whole model.
    if text.contains("optim.") && !text.contains("model.parameters()") {
        return;
    }
    if !is_trained(lint, view) || view.func.name == "backward" || backward_talks(lint, view) {
        return;
    }
    let Some((gather, gathered)) = last_gather(lint, view) else { return };
    for step in 0..gather {
        let Stmt::Assign { dst, .. } = view.steps[step].stmt else { continue };
        if view.is_temp(*dst) || part(view, &Operand::Local(*dst), step + 1, 0).is_none() {
            continue;
        }
        let place = view.place(view.steps[step].id);
        let cut = view.text(place);
        let made = (0..step).rev().find_map(|at| match (view.steps[at].stmt, view.value(at)) {
            (Stmt::Assign { dst, .. }, Some(Rvalue::CallMethod { base, name, .. }))
                if has_word(cut, view.local_name(*dst)) && matches!(view.expr(base), Expr::Local(_)) =>
            {
                Some(name.clone())
            }
            _ => None,
        });
        let table = |name: &Name| TABLES.iter().any(|part| near::has_part(&name.to_lowercase(), part));
        let Some(module) = made.filter(|name| !table(name)) else { continue };
        let Some(summed) = summed_elsewhere(view, view.text(gathered), &module) else { return };
        let mistake = Backwards::PlainInputSplit { input: module, gathered, summed: Some(summed) };
        out.push((place, Practice::Backwards(mistake)));
        return;
    }
}

/// Where the file sums the gradients of submodules over a group that a text names, where none of them is this one and nothing sums those of a whole
/// model.
fn summed_elsewhere(view: &View<'_>, over: &str, module: &str) -> Option<Place> {
    let mut found = None;
    for at in near::functions(view, view.at.module) {
        let other = near::shared(view, at);
        for (step, call) in other.collectives() {
            let named = call.group.and_then(|g| other.name_of(&other.expr(g)).map(|name| has_word(over, name)));
            let Some(head) = parameter_loop(&other, *step).filter(|_| named == Some(true)) else { continue };
            let Stmt::For { iter, .. } = other.steps[head].stmt else { continue };
            let mut of = None;
            other.through(iter).any(&mut |e| {
                if let Expr::Attr(base, name) = e
                    && name.ends_with("parameters")
                {
                    of = Some(base.last_name().map(str::to_owned));
                }
                of.is_some()
            });
            match of.flatten() {
                Some(submodule) if submodule != module => found = Some(other.place(other.steps[*step].id)),
                _ => return None,
            }
        }
    }
    found
}

/// Whether a step takes a slice from a multiple of a number that is named as a rank in such a group is.
fn starts_at_rank(view: &View<'_>, step: usize) -> bool {
    let Some(Rvalue::Item { index, .. }) = view.value(step) else { return false };
    let Some((_, Rvalue::Build { kind: BuildKind::Slice, items })) = view.source(index) else { return false };
    let Some(Item::One(start)) = items.first() else { return false };
    let is_rank = |e: &Expr| {
        let name = view.name_of(e).unwrap_or_default().to_lowercase();
        near::has_part(&name, "rank") && MODEL.iter().any(|m| near::has_part(&name, m))
    };
    match near::deep(view, &view.expr(start)) {
        Expr::Binary(BinOp::Mul, a, b) => is_rank(&a) || is_rank(&b),
        _ => false,
    }
}

/// Whether a backward of the file communicates.
fn backward_talks(lint: &Lint<'_>, view: &View<'_>) -> bool {
    let ids = lint.project.modules[view.at.module].ir.classes.ids();
    ids.map(|class| ClassRef { module: view.at.module, class })
        .filter(|class| lint.is_autograd(*class))
        .any(|class| both_ways(lint, class).is_none_or(|(_, backward)| talks(lint, backward)))
}

/// Where a function of the project that a call calls returns the part.
fn cut_in_helper<'a>(lint: &Lint<'a>, view: &View<'a>, value: &'a Rvalue) -> Option<Place> {
    let (at, _) = target(lint, view, value)?;
    let helper = lint.view(at);
    let step = helper.steps.iter().find(|s| matches!(s.stmt, Stmt::Return { .. }))?;
    Some(helper.place(step.id))
}

/// Variables that hold what a submodule computed.
fn computed_before(view: &View<'_>, step: usize) -> Vec<LocalId> {
    let own = |base: &Operand| match view.expr(base) {
        Expr::Local(l) => view.local_name(l) == "self",
        _ => false,
    };
    let called = |i: usize| match (view.steps[i].stmt, view.value(i)) {
        (Stmt::Assign { dst, .. }, Some(Rvalue::CallMethod { base, .. })) if own(base) => Some(*dst),
        _ => None,
    };
    (0..step).filter_map(called).filter(|l| !view.is_temp(*l)).collect()
}

/// The last step at which an autograd function gathers whose backward communicates nothing, and where it is.
fn last_gather<'a>(lint: &Lint<'a>, view: &View<'a>) -> Option<(usize, Place)> {
    (0..view.steps.len()).rev().find_map(|step| {
        let class = applied(lint, view, view.value(step)?, 0)?;
        let (forward, backward) = both_ways(lint, class)?;
        (gathers(lint, forward) && !talks(lint, backward)).then(|| (step, view.place(view.steps[step].id)))
    })
}

/// The autograd function that a call applies, also through a function that returns what it gives.
fn applied<'a>(lint: &Lint<'a>, view: &View<'a>, value: &'a Rvalue, depth: usize) -> Option<ClassRef> {
    if let Rvalue::CallMethod { base, name, .. } = value
        && name == "apply"
        && let Expr::Path(path) = view.through(base)
    {
        return match lint.project.path(&path) {
            Resolved::Class(class) if lint.is_autograd(class) => Some(class),
            _ => None,
        };
    }
    let (at, false) = target(lint, view, value)? else { return None };
    if depth > 0 {
        return None;
    }
    let helper = lint.view(at);
    (0..helper.steps.len()).find_map(|step| applied(lint, &helper, helper.value(step)?, depth + 1))
}

/// An autograd function of the file that takes its own part and gathers in its backward, and that nothing names.
fn unused_split(lint: &Lint<'_>, view: &View<'_>) -> Option<ClassRef> {
    let module = view.at.module;
    lint.project.modules[module].ir.classes.ids().map(|class| ClassRef { module, class }).find(|class| {
        let Some((forward, backward)) = both_ways(lint, *class).filter(|_| lint.is_autograd(*class)) else {
            return false;
        };
        if talks(lint, forward) || !gathers(lint, backward) {
            return false;
        }
        let name = &lint.project.class(*class).name;
        let words = |text: &str| {
            let inside = |c: char| c.is_alphanumeric() || c == '_';
            let code = text.lines().map(|line| line.split('#').next().unwrap_or_default());
            code.map(|line| line.split(|c| !inside(c)).filter(|w| w == name).count()).sum::<usize>()
        };
        let named: usize = lint.project.modules.ids().map(|m| words(lint.files[lint.project.file(m)].whole())).sum();
        named == 1
    })
}

fn gathers(lint: &Lint<'_>, at: FuncRef) -> bool {
    collectives(lint, at, 0).iter().any(|op| op == "all_gather")
}

fn talks(lint: &Lint<'_>, at: FuncRef) -> bool {
    !collectives(lint, at, 0).is_empty()
}

/// The collectives of a function and of those that it calls.
fn collectives(lint: &Lint<'_>, at: FuncRef, depth: usize) -> Vec<String> {
    let view = lint.view(at);
    let mut out: Vec<String> = view.collectives().iter().map(|(_, call)| call.rule.op.to_string()).collect();
    for step in 0..view.steps.len() {
        let Some(value) = view.value(step).filter(|_| depth < 2) else { continue };
        if !matches!(value, Rvalue::Call { .. } | Rvalue::CallMethod { .. }) {
            continue;
        }
        match (applied(lint, &view, value, 1), target(lint, &view, value)) {
            (Some(_), _) => out.push("applied".to_string()),
            (None, Some((inner, _))) if inner != at => out.extend(collectives(lint, inner, depth + 1)),
            _ => {}
        }
    }
    out
}
