//! Gradients that are copied before they are reduced. In: a class or a function. Out: one that copies the gradients of one list of parameters to
//! those of another, before the gradients of the first are reduced: the other list keeps what one rank had. Never: a copy that is made
//! again after the reduction. Next: `order.rs`.

use super::expr::Expr;
use super::found::{Late, Practice};
use super::near;
use super::view::View;
use super::{Class, Found, Lint};
use crate::ir::{ArgKind, LocalId, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::{Name, Place};

/// Attributes that keep a gradient.
const GRADIENTS: &[&str] = &["grad", "main_grad"];

/// What a step does with the gradients of a list, as an expression of the function.
enum Does {
    /// From one list to another.
    Copies(Expr),
    Reduces(Expr),
}

/// Where something is done, among the steps of a function and in the source.
type At = (usize, Place);

/// `self.copy_to_master()`, and `self.reduce()` after it.
pub fn stepped<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let file = &lint.files[lint.project.file(class.at.module)];
    let text = file.slice(lint.project.class(class.at).span);
    if !text.contains("reduce") || !text.contains(".grad") || !text.contains("zip(") {
        return;
    }
    // Views are made of methods that do both, by themselves or by what they call.
    let methods = || {
        let each = lint.project.class(class.at).methods.iter();
        each.map(|(name, func)| (name, FuncRef { module: class.at.module, func: *func }))
    };
    let own = |at: FuncRef| file.slice(lint.project.func(at).span);
    let of = |words: [&str; 2]| -> Vec<String> {
        let all = methods().filter(|(_, at)| words.iter().all(|w| own(*at).contains(w)));
        all.map(|(name, _)| name.to_string()).collect()
    };
    let (copies, reduces) = (of(["zip(", "grad"]), of(["reduce", "grad"]));
    let does = |name: &str, text: &str, of: &[String]| {
        of.iter().any(|one| one == name || text.contains(&format!("self.{one}(")))
    };
    for (name, at) in methods() {
        if does(name, own(at), &copies) && does(name, own(at), &reduces) {
            late(&lint.view(at), out);
        }
    }
}

/// The same in a function, and in those that it calls with both lists.
pub fn in_function(view: &View<'_>, out: &mut Found) {
    if view.func.class.is_none() {
        late(view, out);
    }
}

fn late(view: &View<'_>, out: &mut Found) {
    let all = events(view, 0);
    for (i, (copied, does)) in all.iter().enumerate() {
        let Does::Copies(list) = does else { continue };
        let same = |d: &Does| matches!(d, Does::Reduces(other) if other == list);
        let again = |d: &Does| matches!(d, Does::Copies(other) if other == list);
        let Some(reduced) = all[i + 1..].iter().find(|(at, d)| same(d) && at.0 != copied.0) else { continue };
        let renewed = all[i + 1..].iter().any(|(at, d)| again(d) && at.0 != copied.0);
        let before = all[..i].iter().any(|(_, d)| same(d));
        let beside = view.steps[copied.0].guards.len() != view.steps[reduced.0.0].guards.len();
        if !renewed && !before && !beside {
            let mistake = Practice::LateReduction { why: Late::Copied, gradients: copied.1, before: copied.1 };
            out.push((reduced.0.1, mistake));
            return;
        }
    }
}

/// What a function does, and the functions that it calls: at which of its own steps, where that stands, and what.
fn events(view: &View<'_>, depth: usize) -> Vec<(At, Does)> {
    let mut out = Vec::new();
    for step in 0..view.steps.len() {
        let at = (step, view.place(view.steps[step].id));
        let copy = |from: &Operand, to: LocalId| {
            let from = gradient_in(view, &view.expr(from)).and_then(|of| list_of(view, step, of))?;
            let to = list_of(view, step, to)?;
            (from != to).then_some(Does::Copies(from))
        };
        match (view.steps[step].stmt, view.value(step)) {
            (Stmt::SetAttr { base, name, value }, _) if GRADIENTS.contains(&name.as_str()) => {
                out.extend(near::local(base).and_then(|to| copy(value, to)).map(|does| (at, does)));
            }
            (_, Some(Rvalue::CallMethod { base, name, args })) if name == "copy_" => {
                let to = gradient_in(view, &view.expr(base));
                let copied = to.zip(args.first()).and_then(|(to, arg)| copy(&arg.value, to));
                out.extend(copied.map(|does| (at, does)));
            }
            (_, Some(value)) => {
                if let Some(call) = view.collective(value) {
                    let of = call.input.and_then(|input| gradient_in(view, &view.through(input)));
                    let list = of.and_then(|of| list_of(view, step, of)).filter(|_| call.rule.op == "all_reduce");
                    out.extend(list.map(|list| (at, Does::Reduces(list))));
                } else if depth == 0 {
                    out.extend(called(view, value).into_iter().map(|does| (at, does)));
                }
            }
            _ => {}
        }
    }
    out
}

/// What a method of the object does, or a function with the lists that it is given.
fn called(view: &View<'_>, value: &Rvalue) -> Vec<Does> {
    match value {
        Rvalue::CallMethod { base, name, .. } if near::is_self(view, base) => {
            let method = near::own_method(view, name)
                .map(|at| near::shared(view, at))
                .map(|method| (events(&method, 1), method));
            let Some((all, method)) = method else { return Vec::new() };
            // Attributes of the object are the same in all of its methods.
            let own = |list: &Expr| near::own_attribute(&method, list).map(|name| of_self(view, name));
            all.into_iter().filter_map(|(_, does)| renamed(does, &own)).collect()
        }
        Rvalue::Call { callee, args } => {
            let Some(at) = near::function(view, callee).filter(|at| *at != view.at) else { return Vec::new() };
            let helper = near::shared(view, at);
            let given = |list: &Expr| match list {
                Expr::Local(local) => {
                    let place = helper.func.params.iter().position(|p| p.local == *local)?;
                    let arg = args.get(place).filter(|a| a.kind == ArgKind::Positional)?;
                    Some(plain(view.through(&arg.value)))
                }
                _ => None,
            };
            events(&helper, 1).into_iter().filter_map(|(_, does)| renamed(does, &given)).collect()
        }
        _ => Vec::new(),
    }
}

fn renamed(does: Does, other: &dyn Fn(&Expr) -> Option<Expr>) -> Option<Does> {
    Some(match does {
        Does::Copies(list) => Does::Copies(other(&list)?),
        Does::Reduces(list) => Does::Reduces(other(&list)?),
    })
}

fn of_self(view: &View<'_>, name: &Name) -> Expr {
    match view.func.params.first() {
        Some(own) => Expr::Attr(Box::new(Expr::Local(own.local)), name.clone()),
        None => Expr::Unknown,
    }
}

/// A list as an expression that says where it comes from, and not in which statement: `model.parameters()`.
fn plain(list: Expr) -> Expr {
    match list {
        Expr::Call { callee, args, .. } => Expr::Call { callee, args, step: 0 },
        other => other,
    }
}

/// The variable whose gradient an expression is, or is made of.
fn gradient_in(view: &View<'_>, expr: &Expr) -> Option<LocalId> {
    let mut found = None;
    expr.any(&mut |e| {
        if let Expr::Attr(of, name) = e
            && GRADIENTS.contains(&name.as_str())
            && let Expr::Local(local) = &**of
            && !view.is_param(*local)
        {
            found.get_or_insert(*local);
        }
        false
    });
    found
}

/// The list through which the loop around a step goes with a variable: `models` of `for p, q in zip(models, masters)`.
fn list_of(view: &View<'_>, step: usize, local: LocalId) -> Option<Expr> {
    let known = |list: Expr| (!matches!(list, Expr::Unknown | Expr::Const(_))).then(|| plain(list));
    view.steps[step].loops.iter().rev().find_map(|at| {
        let Stmt::For { dst, iter, .. } = view.steps[*at].stmt else { return None };
        if *dst == local {
            return known(view.through(iter));
        }
        let unpacked = view.steps.iter().find_map(|s| match s.stmt {
            Stmt::Unpack { value: Operand::Local(value), before, star: None, .. } if value == dst => Some(before),
            _ => None,
        })?;
        let place = unpacked.iter().position(|l| *l == local)?;
        let zipped = view.through(iter);
        let (_, list) = zipped.call_of("zip")?.get(place)?;
        known(near::deep(view, list))
    })
}
