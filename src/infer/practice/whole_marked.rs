//! Whole parameters that are marked as parts. In: a class. Out: a mark of a part on a parameter whose size is divided by the number of ranks in
//! some modes of the layer alone, where the layer has a mode besides (`parallel_mode=None`). Never: a mark that asks for the mode, or a mode
//! that the constructor refuses. Source: ROCm/TransformerEngine, pull request 715; `set_tensor_model_parallel_attributes` of Megatron-LM.
//! Next: `partition.rs`, parts that are not marked.

use super::expr::Expr;
use super::found::Practice;
use super::marking::{mark_set, mark_value};
use super::membership::Membership;
use super::partition::marks_part;
use super::view::View;
use super::{Class, Found, Lint, near};
use crate::ir::{BinOp, CmpOp, Const, Rvalue, Stmt, StmtId};
use crate::source::{Name, Place};

/// `if mode == "column": out //= tp_size`, and `set_tensor_model_parallel_attributes(self.weight, True, ...)` for every mode
pub fn modes<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let text = lint.files[lint.project.file(class.at.module)].slice(lint.project.class(class.at).span);
    if !text.contains("mode") || !text.contains("//") && !text.contains("divide(") || !text.contains("parallel") {
        return;
    }
    let Some(init) = class.init(lint) else { return };
    let Some((mode, sizes, divided)) = divided(init) else { return };
    if !may_be_none(init, &mode) {
        return;
    }
    let made: Vec<Name> = init.steps.iter().filter_map(|step| made_of(init, step.stmt, &sizes)).collect();
    for method in near::methods(init, class.at.class) {
        for index in 0..method.steps.len() {
            let Some((target, mark)) = marks_part(&method, index).filter(|_| is_certain(&method, index)) else {
                continue;
            };
            // An assertion holds for every mode that there is.
            let asserts = |at: StmtId| method.steps.iter().any(|s| s.id == at && matches!(s.stmt, Stmt::Assert { .. }));
            let guards = method.steps[index].guards.iter().filter(|g| !asserts(g.at));
            let guarded = guards.clone().any(|g| says(&method, &method.expr(g.test), &mode));
            let Some(parameter) = parameter(&target, &made) else { continue };
            if !guarded && !refuses(&method, &mode) {
                let mistake = Membership::WholeMarked { parameter, mode, divided };
                out.push((mark, Practice::Membership(mistake)));
                return;
            }
        }
    }
}

/// Whether a mark that is set as an attribute is set to true; of a function that sets it this is asked where it is found.
fn is_certain(view: &View<'_>, index: usize) -> bool {
    let stmt = view.steps[index].stmt;
    let value = mark_set(view, stmt).and_then(|_| mark_value(stmt));
    value.is_none_or(|value| view.through(value) == Expr::Const(Const::Bool(true)))
}

/// Which parameter a mark is set on: `self.weight`, or one of a list of names.
fn parameter(target: &Expr, made: &[Name]) -> Option<Name> {
    match target {
        Expr::Attr(_, name) => made.contains(name).then(|| name.clone()),
        Expr::Call { callee, .. } if callee.last_name() == Some("getattr") => made.first().cloned(),
        _ => None,
    }
}

/// The argument that says the mode, the sizes that are divided in some modes, and where; `None` if any is divided in all of them.
fn divided(init: &View<'_>) -> Option<(Name, Vec<Name>, Place)> {
    let mut found: Option<(Name, Vec<Name>, Place)> = None;
    for step in &init.steps {
        let Stmt::Assign { dst, value } = step.stmt else { continue };
        let by = match value {
            Rvalue::InPlace { op: BinOp::FloorDiv, right, .. } | Rvalue::Binary { op: BinOp::FloorDiv, right, .. } => {
                right
            }
            Rvalue::Call { callee, args } if init.expr(callee).last_name() == Some("divide") => &args.get(1)?.value,
            _ => continue,
        };
        if !of_ranks(init, &init.through(by)) || init.is_temp(*dst) {
            continue;
        }
        let modes = step.guards.iter().filter(|g| g.holds).filter_map(|g| mode(init, &init.expr(g.test)));
        let mode = modes.last()?;
        let size = init.local_name(*dst).clone();
        match &mut found {
            Some((known, sizes, _)) if *known == mode => sizes.push(size),
            Some(_) => return None,
            None => found = Some((mode, vec![size], init.place(step.id))),
        }
    }
    found
}

/// Whether an expression is a number of ranks.
fn of_ranks(init: &View<'_>, by: &Expr) -> bool {
    let named =
        |name: &str| name.contains("size") && ["tp", "world", "parallel"].iter().any(|part| name.contains(part));
    init.name_or_callee(by).is_some_and(named)
}

/// The name of what is compared with a word: `parallel_mode == "row"`.
fn mode(view: &View<'_>, test: &Expr) -> Option<Name> {
    match test {
        Expr::Compare(CmpOp::Eq, of, word) if word.string().is_some() => match &**of {
            Expr::Local(local) => Some(view.local_name(*local).clone()),
            Expr::Attr(_, name) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Whether an expression has the mode in it.
fn says(view: &View<'_>, expr: &Expr, mode: &str) -> bool {
    expr.any(&mut |e| match e {
        Expr::Local(local) => view.local_name(*local) == mode,
        Expr::Attr(_, name) => name == mode,
        _ => false,
    })
}

/// Whether the mode may be none: it is where nothing is given, and nothing refuses or replaces that.
fn may_be_none(init: &View<'_>, mode: &Name) -> bool {
    let Some(param) = init.func.params.iter().find(|p| p.name == *mode) else { return false };
    let head = &init.code()[..init.code().find("):").unwrap_or(0)];
    let by_default = near::words(head, mode).any(|at| {
        let rest = head[at + mode.len()..].split(['\n', '=']).next().unwrap_or_default();
        let after = &head[at + mode.len() + rest.len()..];
        after.trim_start_matches('=').trim_start().starts_with("none")
    });
    by_default && init.defs(param.local).is_empty() && !refuses(init, mode)
}

/// Whether a function tests whether the mode is none or is said at all.
fn refuses(view: &View<'_>, mode: &str) -> bool {
    let asks = |test: &Expr| match test {
        Expr::Compare(CmpOp::Is | CmpOp::IsNot, of, none) => none.is_none() && says(view, of, mode),
        Expr::Unary(_, of) => says(view, of, mode),
        Expr::Local(local) => view.local_name(*local) == mode,
        _ => false,
    };
    view.steps.iter().any(|step| match step.stmt {
        Stmt::If { test, .. } | Stmt::Assert { test, .. } => asks(&view.expr(test)),
        _ => false,
    })
}

/// `self.weight = Parameter(torch.empty(out_features, in_features))`, whatever the mode.
fn made_of(init: &View<'_>, stmt: &Stmt, sizes: &[Name]) -> Option<Name> {
    let Stmt::SetAttr { name, value, .. } = stmt else { return None };
    let made = init.expr(value);
    let parameter = matches!(&made, Expr::Call { callee, .. } if callee.last_name() == Some("Parameter"));
    let of_sizes = made.any(&mut |e| match e {
        Expr::Local(local) => sizes.contains(init.local_name(*local)),
        Expr::Attr(_, size) => sizes.contains(size),
        _ => false,
    });
    (parameter && of_sizes).then(|| name.clone())
}
