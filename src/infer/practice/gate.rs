//! Sums of gradients that go by another condition than the split of the sequence. In: a function, and predicates of the project that say
//! whether sequences are split. Out: a hook or a sum for marked parameters, decided by values of the configuration of which that
//! predicate reads none. Never: a condition that is a flag of its own. Source: DESIGN.md section 7. Next: `reducers.rs`.

use super::expr::Expr;
use super::found::{Practice, Scales};
use super::reducers::is_gradient;
use super::view::View;
use super::{Found, Lint};
use crate::ir::{CmpOp, FuncKind, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::{Name, Place};

/// What a predicate about split sequences is called.
const PREDICATE: &str = "sequence_parallel";

/// A predicate of the project.
struct Predicate {
    name: Name,
    place: Place,
    reads: Vec<Vec<Name>>,
}

/// Gates of sums that no predicate agrees with.
pub fn gates<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    if view.func.kind != FuncKind::Function {
        return;
    }
    let Some(step) = (0..view.steps.len()).find(|s| sums(view, *s)) else { return };
    let mut parts = Vec::new();
    for guard in view.steps[step].guards.iter().filter(|g| g.holds) {
        conjuncts(&view.through(guard.test), view.part(guard.at, 0), &mut parts);
    }
    let Some(mark) = parts.iter().find_map(|(e, _)| marked(e)) else { return };
    let mut reads = Vec::new();
    for (part, _) in &parts {
        if part.any(&mut |e| matches!(e, Expr::Call { .. })) && marked(part).is_none() {
            return;
        }
        paths(part, &mut reads);
    }
    let compared = parts.iter().find(|(e, _)| matches!(e, Expr::Compare(CmpOp::Gt | CmpOp::Ge | CmpOp::Ne, a, _) if path(a).is_some_and(|p| p.len() > 1)));
    let Some((_, place)) = compared else { return };
    if reads.iter().flatten().any(|name| name.contains(PREDICATE)) {
        return;
    }
    let all = predicates(lint);
    if let [one] = all.as_slice()
        && !one.reads.iter().any(|p| reads.contains(p))
    {
        let found = Scales::OtherGate { mark, predicate: one.name.clone(), defined: one.place };
        out.push((*place, Practice::Scales(found)));
    }
}

/// Whether a step sums the gradient of a parameter, or registers what does.
fn sums(view: &View<'_>, step: usize) -> bool {
    match view.value(step) {
        Some(Rvalue::CallMethod { name, .. }) => {
            matches!(name.as_str(), "register_hook" | "register_post_accumulate_grad_hook")
        }
        Some(value) => view
            .collective(value)
            .is_some_and(|c| c.rule.op == "all_reduce" && c.input.is_some_and(|i| is_gradient(&view.through(i)))),
        None => false,
    }
}

fn conjuncts(expr: &Expr, place: Place, out: &mut Vec<(Expr, Place)>) {
    match expr {
        Expr::Bool { and: true, of } => of.iter().for_each(|e| conjuncts(e, place, out)),
        other => out.push((other.clone(), place)),
    }
}

/// The mark that `getattr(p, "mark", False)` asks for.
fn marked(expr: &Expr) -> Option<Name> {
    expr.call_of("getattr").and_then(|args| args.get(1)).and_then(|(_, e)| e.string().cloned())
}

/// `weight.size` of `cfg.weight["size"]`: what is read of a variable.
fn path(expr: &Expr) -> Option<Vec<Name>> {
    match expr {
        Expr::Local(_) | Expr::Path(_) => Some(Vec::new()),
        Expr::Attr(base, name) => path(base).map(|mut p| {
            p.push(name.clone());
            p
        }),
        Expr::Item(base, index) => {
            let mut p = path(base)?;
            p.push(index.string()?.clone());
            Some(p)
        }
        _ => None,
    }
}

/// Everything that an expression reads of variables.
fn paths(expr: &Expr, out: &mut Vec<Vec<Name>>) {
    match path(expr) {
        Some(p) if !p.is_empty() => out.push(p),
        Some(_) => {}
        None => expr.inner().into_iter().for_each(|e| paths(e, out)),
    }
}

/// Functions of the project that are one expression about a configuration, and that code asks whether sequences are split.
fn predicates(lint: &Lint<'_>) -> Vec<Predicate> {
    let mut out = Vec::new();
    for module in lint.project.modules.ids() {
        if !lint.files.says(lint.project.file(module), PREDICATE) {
            continue;
        }
        let m = &lint.project.modules[module];
        for (func, f) in m.ir.funcs.iter_enumerated() {
            if f.kind != FuncKind::Function || !f.name.contains(PREDICATE) || f.class.is_some() {
                continue;
            }
            let view = lint.view(FuncRef { module, func });
            let returns: Vec<Expr> = view
                .steps
                .iter()
                .filter_map(|s| match s.stmt {
                    Stmt::Return { value } => Some(view.through(value)),
                    _ => None,
                })
                .collect();
            let [Expr::Bool { .. } | Expr::Compare(..)] = returns.as_slice() else { continue };
            let mut reads = Vec::new();
            paths(&returns[0], &mut reads);
            if !reads.is_empty() && is_asked(lint, &f.name) {
                let place = Place { file: m.file, span: f.name_span };
                out.push(Predicate { name: f.name.clone(), place, reads });
            }
        }
    }
    out
}

/// Whether code calls a function somewhere.
fn is_asked(lint: &Lint<'_>, name: &str) -> bool {
    let call = format!("{name}(");
    lint.files.times(&call) > 1
}
