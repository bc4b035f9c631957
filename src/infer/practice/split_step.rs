//! Classes with two ways to step, of which one leaves out a sum of gradients. In: a class. Out: a method that steps an optimizer of the object, or
//! what it sums before, where another method that does so calls a function for the gradients that nothing else in the project calls. Never: a way
//! that the other one runs, or a function that anything outside of these methods names. Source: NeMo-RL, pull request 3716: an interface of
//! single steps beside one for whole batches. Next: `uncalled.rs`.

use super::found::Practice;
use super::reducers::{Reducer, Test};
use super::unshared::Unshared;
use super::view::View;
use super::{Class, Found, Lint, near};
use crate::ir::{Rvalue, Stmt};
use crate::source::{Name, Place};
use std::rc::Rc;

/// Parts of names of attributes that are optimizers.
const OPTIMIZER: &[&str] = &["optim", "opt"];
/// Words of methods that decide by themselves who sums, or step in another way.
const OTHERWISE: &[&str] = &["raise", "no_sync", "hook", "getattr(self", "super()"];

/// A method that steps.
struct Way<'a> {
    view: Rc<View<'a>>,
    /// The attribute that is the optimizer, and the step.
    optimizer: Name,
    step: usize,
    /// The names that it calls, itself or through methods of the object.
    calls: Vec<Name>,
}

/// `train` calls `self.finalize_grads()` before `self.optimizer.step()`, and `optim_step` does not
pub fn left_out<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let own = lint.files[lint.project.file(class.at.module)].slice(lint.project.class(class.at).span);
    // Few classes say so, and texts without comments are made of all others for nothing.
    if own.matches(".step(").count() < 2 {
        return;
    }
    let text = near::bare(own);
    // What has no gradient needs no sum.
    if near::has_any(&text, &["no_grad", ".grad = none", "requires_grad"]) {
        return;
    }
    if !near::has_any(&text, OPTIMIZER) || !text.contains("grad") {
        return;
    }
    let Some(init) = class.init(lint) else { return };
    let methods = near::methods(init, class.at.class);
    let ways: Vec<Way<'a>> = methods.iter().filter_map(|method| way(&methods, method)).collect();
    for (other, way) in ways.iter().flat_map(|a| ways.iter().map(move |b| (a, b))) {
        let runs = |a: &Way<'_>, b: &Way<'_>| a.calls.contains(&b.view.func.name);
        if other.view.at == way.view.at || other.optimizer != way.optimizer || runs(other, way) || runs(way, other) {
            continue;
        }
        let left = other.calls.iter().filter(|name| !way.calls.contains(name)).find_map(|name| {
            let reducer = summing(lint, class, name)?;
            is_alone(lint, &ways, name).then_some((name, reducer))
        });
        let Some((function, summed)) = left.filter(|_| !near::has_any(way.view.code(), OTHERWISE)) else { continue };
        let Some(called) = called(&other.view, function) else { continue };
        let shared = (0..way.step).find(|step| {
            let sums = |name: &Name| near::has_any(name, &["reduce", "sync", "average"]) && other.calls.contains(name);
            own_call(&way.view, *step).is_some_and(sums)
        });
        let place = way.view.place(way.view.steps[shared.unwrap_or(way.step)].id);
        let mistake = Unshared::SplitStep {
            method: way.view.func.name.clone(),
            other: other.view.func.name.clone(),
            function: function.clone(),
            called,
            summed,
        };
        out.push((place, Practice::Unshared(mistake)));
        return;
    }
}

/// A method that steps an optimizer of its object, under no condition.
fn way<'a>(methods: &[Rc<View<'a>>], view: &Rc<View<'a>>) -> Option<Way<'a>> {
    let steps = |step: &usize| match view.value(*step) {
        Some(Rvalue::CallMethod { base, name, .. }) if name == "step" => {
            near::own_attribute(view, &view.expr(base)).filter(|of| near::has_any(of, OPTIMIZER)).cloned()
        }
        _ => None,
    };
    let (step, optimizer) = (0..view.steps.len()).find_map(|step| Some((step, steps(&step)?)))?;
    let mut calls = Vec::new();
    called_before(methods, view, step, &mut calls);
    view.steps[step].guards.is_empty().then(|| Way { view: view.clone(), optimizer, step, calls })
}

/// What a method calls before a step, with what the methods of the object call that it runs.
fn called_before(methods: &[Rc<View<'_>>], view: &View<'_>, step: usize, out: &mut Vec<Name>) {
    for at in 0..step {
        let value = view.value(at);
        let name = match value {
            Some(Rvalue::CallMethod { name, .. }) => name.clone(),
            Some(value @ Rvalue::Call { .. }) => match near::written_name(view, value) {
                Some(name) => super::lost::last(&name),
                None => continue,
            },
            _ => continue,
        };
        if out.contains(&name) {
            continue;
        }
        out.push(name.clone());
        let own = own_call(view, at).and_then(|name| methods.iter().find(|method| method.func.name == *name));
        if let Some(own) = own {
            called_before(methods, own, own.steps.len(), out);
        }
    }
}

/// The method of the own object that a step calls.
fn own_call<'a>(view: &View<'a>, step: usize) -> Option<&'a Name> {
    match view.value(step)? {
        Rvalue::CallMethod { base, name, .. } if near::is_self(view, base) => Some(name),
        _ => None,
    }
}

/// Where a function of this name sums gradients of marked parameters: a method of the class, or the only function of the project with the name.
fn summing(lint: &Lint<'_>, class: &Class<'_>, name: &str) -> Option<Place> {
    let marked = |r: &&Reducer| {
        !r.when.is_empty() && r.when.iter().all(|all| all.iter().all(|test| matches!(test, Test::Mark(_))))
    };
    let of_name = |r: &&Reducer| {
        let func = lint.project.func(r.func);
        let own = func.class.is_none_or(|of| of == class.at.class && r.func.module == class.at.module);
        func.name == *name && own
    };
    let mut all = lint.reducers().all.iter().filter(of_name);
    let first = all.find(marked)?;
    // Another sum for the same parameters may stand on the other way.
    let another = |r: &Reducer| {
        let takes = |test: &Test| r.when.iter().flatten().any(|other| other == test);
        let alike = r.axes == first.axes && r.group == first.group;
        r.place != first.place && alike && (r.when.is_empty() || first.when.iter().flatten().any(takes))
    };
    if lint.reducers().all.iter().any(another) {
        return None;
    }
    (first.outer.is_empty() && first.through.is_none()).then_some(first.place)
}

/// Whether nothing names a function but these methods, its definition and imports.
fn is_alone(lint: &Lint<'_>, ways: &[Way<'_>], name: &str) -> bool {
    let lower = name.to_lowercase();
    let of_ways: usize = ways.iter().map(|way| near::words(way.view.code(), &lower).count()).sum();
    let defined = lint.reducers().all.iter().any(|r| lint.project.func(r.func).name == *name);
    let imported: usize = lint
        .files
        .saying(name)
        .map(|file| {
            let text = near::bare(lint.files[file].whole());
            text.lines().filter(|line| line.contains("import ") && near::has_word(line, &lower)).count()
        })
        .sum();
    near::times_said(lint.files, name) == of_ways + usize::from(defined) + imported
}

/// Where a method calls a function of this name.
fn called(view: &View<'_>, name: &str) -> Option<Place> {
    let calls = |step: &usize| match (view.steps[*step].stmt, view.value(*step)) {
        (Stmt::Assign { .. }, Some(Rvalue::CallMethod { name: called, .. })) => called == name,
        (Stmt::Assign { .. }, Some(value @ Rvalue::Call { .. })) => {
            near::written_name(view, value).is_some_and(|path| super::lost::last(&path) == name)
        }
        _ => false,
    };
    (0..view.steps.len()).find(calls).map(|step| view.place(view.steps[step].id))
}
