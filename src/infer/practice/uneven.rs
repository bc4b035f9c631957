//! Modules of one kind of which some are marked for the reduction of their gradients and some are not, and reducers that go by name and
//! take a weight without the bias beside it. In: the project. Out: the module or parameter left out. Never: modules of different kinds.
//! Next: `marks.rs`.

use super::averaged::REGISTER;
use super::class_marks::text_of;
use super::expr::Expr;
use super::found::Practice;
use super::marking::mark_set;
use super::marks::{asked_by_any, parts};
use super::membership::Membership;
use super::reducers::{Covered, Test};
use super::view::{Guard, View};
use super::{Class, Found, Lint, class_marks, near, own_parameters};
use crate::ir::{LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, Resolved};
use crate::source::{Name, Place};

/// Norms of one class, made alike: one is marked and another is not.
pub fn siblings<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let Some(init) = class.marking_init(lint) else { return };
    let marked = marked_attributes(lint, init);
    let Some((first, mark, at)) = marked.first() else { return };
    let Some(kind) = kind_of(init, first) else { return };
    if gathers(lint, class.at) {
        return;
    }
    // Where the sequence is split all norms see a part of it; another mark says what one of them sees, and one of another size sees something else.
    let of_sequence = mark.contains("sequence");
    let otherwise = |name: &Name| {
        let marks = class.own_marks(lint);
        marks.is_some_and(|marks| super::marked_elsewhere::may_be(marks, lint, name, mark)) || applied(init, mark)
    };
    for step in &init.steps {
        let Stmt::SetAttr { name, value, .. } = step.stmt else { continue };
        let alike = made_by(init, value).is_some_and(|k| k == kind)
            && (of_sequence || arguments_of(init, name) == arguments_of(init, first));
        let left_out = alike && kind.to_lowercase().contains("norm") && !marked.iter().any(|(n, ..)| n == name);
        if left_out && !otherwise(name) {
            let practice = Practice::SiblingNotMarked {
                module: name.clone(),
                sibling: first.clone(),
                mark: mark.clone(),
                marked: *at,
            };
            out.push((init.place(step.id), practice));
        }
    }
}

/// The same of norms whose gradients a hook of the constructor sums.
pub fn hooked<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let c = lint.project.class(class.at);
    let text = lint.files[lint.project.file(class.at.module)].slice(c.span);
    if !REGISTER.iter().any(|r| text.contains(r)) || !text.contains("all_reduce") || gathers(lint, class.at) {
        return;
    }
    let Some(init) = class.init(lint) else { return };
    let mut hooks: Vec<(Name, Place)> = Vec::new();
    for (index, step) in init.steps.iter().enumerate() {
        let Some(Rvalue::CallMethod { base, name, .. }) = init.value(index) else { continue };
        if !REGISTER.contains(&name.as_str()) {
            continue;
        }
        // The list that is gone through says which are summed.
        let place = step.loops.last().map_or(init.place(step.id), |at| init.part(init.steps[*at].id, 0));
        let hooked = attributes(init, &init.expr(base));
        if hooked.is_empty() {
            return;
        }
        hooks.extend(hooked.into_iter().map(|attr| (attr, place)));
    }
    let Some((first, place)) = hooks.first() else { return };
    let Some(kind) = kind_of(init, first).filter(|kind| kind.to_lowercase().contains("norm")) else { return };
    for step in &init.steps {
        let Stmt::SetAttr { name, value, .. } = step.stmt else { continue };
        let alike =
            made_by(init, value).is_some_and(|k| k == kind) && arguments_of(init, name) == arguments_of(init, first);
        if alike && !hooks.iter().any(|(n, _)| n == name) {
            let (module, summed) = (name.clone(), first.clone());
            let mistake = Membership::SiblingNotHooked { module, summed, hooked: *place };
            out.push((init.place(step.id), Practice::Membership(mistake)));
        }
    }
}

/// Whether a function of the file that speaks of a mark is applied to all modules of something: `model.apply(mark_norms)`.
fn applied(view: &View<'_>, mark: &str) -> bool {
    let given =
        view.file().split(".apply(").skip(1).filter_map(|rest| rest.split_once(')')).map(|(name, _)| name.trim());
    let functions = near::functions(view, view.at.module);
    given.into_iter().any(|name| {
        functions
            .iter()
            .map(|at| view.project.func(*at))
            .any(|f| f.name == name && view.text(view.spot(f.span)).contains(mark))
    })
}

/// A callee and its arguments.
type Made = (Expr, Vec<(crate::ir::ArgKind, Expr)>);

/// What a constructor makes an attribute with.
fn arguments_of(init: &View<'_>, attr: &Name) -> Option<Made> {
    let value = init.steps.iter().find_map(|s| match s.stmt {
        Stmt::SetAttr { name, value, .. } if name == attr => Some(value),
        _ => None,
    })?;
    without_steps(init.expr(value))
}

/// What is called with which arguments, wherever that stands.
fn without_steps(expr: Expr) -> Option<Made> {
    match expr {
        Expr::Call { callee, args, .. } => Some((*callee, args)),
        _ => None,
    }
}

/// Whether the forward of a class gathers or scatters on the way, so that its norms may see different things.
pub fn gathers(lint: &Lint<'_>, class: ClassRef) -> bool {
    let methods = &lint.project.class(class).methods;
    methods.iter().filter(|(n, _)| n != "__init__").any(|(_, f)| {
        let view = lint.view(crate::project::FuncRef { module: class.module, func: *f });
        (0..view.steps.len()).any(|s| {
            let callee = view.value(s).and_then(|v| view.callee(v));
            callee.is_some_and(|c| {
                let last = c.rsplit('.').next().unwrap_or_default().to_lowercase();
                last.contains("gather")
                    || last.contains("scatter")
                    || last.contains("all_to_all")
                    || last.contains("split")
            })
        })
    })
}

/// The callee that makes the value of an attribute.
fn kind_of(init: &View<'_>, attr: &Name) -> Option<String> {
    init.steps.iter().find_map(|s| match s.stmt {
        Stmt::SetAttr { name, value, .. } if name == attr => made_by(init, value),
        _ => None,
    })
}

fn made_by(init: &View<'_>, value: &Operand) -> Option<String> {
    match init.expr(value) {
        Expr::Call { callee, .. } => match &*callee {
            Expr::Path(path) => Some(path.to_string()),
            Expr::Local(local) => Some(init.local_name(*local).to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// Attributes whose parameters a constructor marks: directly, in a loop, or through a helper of the project. With the mark and the place.
fn marked_attributes(lint: &Lint<'_>, init: &View<'_>) -> Vec<(Name, Name, Place)> {
    let mut out: Vec<(Name, Name, Place)> = Vec::new();
    for (index, step) in init.steps.iter().enumerate() {
        let place = init.place(step.id);
        if let Some((target, mark)) = mark_set(init, step.stmt) {
            if !asked_by_any(lint, &mark) {
                continue;
            }
            for attr in attributes(init, &target) {
                out.push((attr, mark.clone(), place));
            }
        }
        if let Some(Rvalue::Call { callee: Operand::Global(name), args }) = init.value(index)
            && let Some(mark) = helper_mark(lint, init, name)
        {
            for arg in args {
                for attr in attributes(init, &init.expr(&arg.value)) {
                    out.push((attr, mark.clone(), place));
                }
            }
        }
    }
    out
}

/// The mark that a function of the project sets on what it is given.
fn helper_mark(lint: &Lint<'_>, view: &View<'_>, name: &Name) -> Option<Name> {
    let Some(Resolved::Func(func)) = lint.project.member(view.at.module, name) else { return None };
    let helper = lint.view(func);
    let first = helper.func.params.first()?.local;
    helper.steps.iter().find_map(|s| {
        let (target, mark) = mark_set(&helper, s.stmt)?;
        let of_argument = roots(&helper, &target).contains(&first);
        (of_argument && asked_by_any(lint, &mark)).then_some(mark)
    })
}

/// The variables that an expression starts from, loops followed.
fn roots(view: &View<'_>, expr: &Expr) -> Vec<LocalId> {
    let mut out = Vec::new();
    starts(view, expr, &mut out, &mut Vec::new());
    out
}

/// The attributes of `self` that an expression starts from, loops over tuples of them followed.
fn attributes(view: &View<'_>, expr: &Expr) -> Vec<Name> {
    let mut out = Vec::new();
    starts(view, expr, &mut Vec::new(), &mut out);
    out
}

/// Variables and attributes of `self` in an expression, and in what loops over; each variable is followed once.
fn starts(view: &View<'_>, expr: &Expr, locals: &mut Vec<LocalId>, attrs: &mut Vec<Name>) {
    let mut work = vec![expr.clone()];
    while let Some(next) = work.pop() {
        next.any(&mut |e| {
            match e {
                Expr::Attr(base, name) if matches!(**base, Expr::Local(l) if view.local_name(l) == "self") => {
                    attrs.push(name.clone());
                }
                Expr::Local(local) if !locals.contains(local) => {
                    locals.push(*local);
                    for def in view.defs(*local) {
                        if let Stmt::For { iter, .. } = view.steps[*def].stmt {
                            work.push(view.through(iter));
                        }
                    }
                }
                _ => {}
            }
            false
        });
    }
}

/// A reducer takes `name.weight` by name; the module has a bias, which no reducer takes.
pub fn biases<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let by_name = |r: &&super::reducers::Reducer| r.when.iter().flatten().any(|t| matches!(t, Test::NameEnds(_)));
    if !lint.reducers().all.iter().any(|r| by_name(&r)) {
        return;
    }
    // A bias that is frozen somewhere needs no sum.
    if text_of(lint, class.at).contains("requires_grad") {
        return;
    }
    let Some(init) = class.init(lint) else { return };
    for step in &init.steps {
        let Stmt::SetAttr { name, .. } = step.stmt else { continue };
        let parts = parts(init, name);
        let covered = |part: &Name| {
            let path = format!("{name}.{part}");
            lint.reducers().all.iter().map(|r| r.covers(&path, &|_| false)).collect::<Vec<Covered>>()
        };
        for reducer in lint.reducers().all.iter().filter(by_name) {
            let named = parts.iter().find(|p| reducer.covers(&format!("{name}.{p}"), &|_| false) == Covered::Yes);
            let Some(named) = named else { continue };
            let left = parts.iter().find(|p| covered(p).iter().all(|c| *c == Covered::No));
            if let Some(left) = left {
                let practice = Practice::PartNotNamed {
                    module: name.clone(),
                    named: named.clone(),
                    part: left.clone(),
                    made: init.place(step.id),
                };
                out.push((reducer.guard.unwrap_or(reducer.place), practice));
            }
        }
    }
}

/// Parameters of a class that one normalisation is given, of which one is marked and the other is not.
pub fn of_one_norm<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let Some(init) = class.marking_init(lint) else { return };
    let marked = marked_attributes(lint, init);
    let Some((first, mark, at)) = marked.first() else { return };
    let may_be_right = |name: &Name, guards: &[Guard<'_>]| {
        let Some(marks) = class.own_marks(lint) else { return false };
        let site = marks.sites.iter().find(|site| site.path.as_ref() == Some(first));
        site.is_some_and(|site| class_marks::exclude((&site.view, site.guards()), (init, guards)))
            || marks.has_own_ways(lint)
            || marks.freezes(lint)
            || marks.exchanges(name, "")
            || marks.denies(lint, name, mark)
            || marks.is_summed_by_class(lint)
    };
    // What is not followed may mark any of them.
    let derives = |other| lint.settings.statics.linearized(other).contains(&class.at);
    for step in &init.steps {
        let Stmt::SetAttr { name, value, .. } = step.stmt else { continue };
        let is_marked = marked.iter().any(|(attr, ..)| attr == name);
        if is_marked
            || !own_parameters::trains(&init.expr(value))
            || lint.settings.marking.may_mark(class.at, name, (&derives, &[]), false)
        {
            continue;
        }
        if normalised_with(lint, class.at, first, name) && !may_be_right(name, &step.guards) {
            let practice = Practice::SiblingNotMarked {
                module: name.clone(),
                sibling: first.clone(),
                mark: mark.clone(),
                marked: *at,
            };
            let made = init.source(value).map_or(step.id, |(made, _)| init.steps[made].id);
            out.push((init.place(made), practice));
        }
    }
}

/// Whether a method of a class gives two attributes to one normalisation.
fn normalised_with(lint: &Lint<'_>, class: ClassRef, a: &Name, b: &Name) -> bool {
    lint.project.class(class).methods.iter().filter(|(n, _)| n != "__init__").any(|(_, func)| {
        let view = lint.view(crate::project::FuncRef { module: class.module, func: *func });
        (0..view.steps.len()).any(|step| {
            let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
                return false;
            };
            let norm = view.callee(value).is_some_and(|c| {
                let name = c.rsplit('.').next().unwrap_or_default().to_lowercase();
                // A product behind the norm has a weight of its own, which may be split.
                name.contains("norm")
                    && !["linear", "head", "proj", "mlp", "gemm", "matmul"].iter().any(|w| name.contains(w))
            });
            let has = |wanted: &Name| {
                args.iter().any(|arg| matches!(view.through(&arg.value), Expr::Attr(_, ref name) if name == wanted))
            };
            norm && has(a) && has(b)
        })
    })
}
