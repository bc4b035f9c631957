//! Pairs of autograd functions of which one is applied alone. In: a function. Out: an autograd function is applied whose forward leaves its input
//! as it is and whose backward multiplies, or divides, by a number that it is given, while its counterpart beside it, which undoes that, is
//! applied nowhere. Never: a counterpart that anything names but its definition and imports. Next: `backwards.rs`.

use super::Found;
use super::backwards::Backwards;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::view::View;
use crate::ir::{BinOp, BuildKind, Const, Item, Operand, Rvalue, Stmt, UnOp};
use crate::project::{ClassRef, FuncRef, Resolved};
use crate::source::Name;

/// Parts of names of functions that turn gradients around.
const REVERSES: &[&str] = &["revers", "grl", "flip", "negat", "adversar"];

/// `ScaleIn.apply(x, n)`, without `ScaleOut.apply(y, n)` anywhere
pub fn applied(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) = view.value(i) else { continue };
        let Some(class) = view.callee(value).and_then(|path| applies(view, &path)) else { continue };
        let Some((multiplies, factor)) = scales(view, class) else { continue };
        if is_reversal(view, class, value) {
            continue;
        }
        let ids = view.project.modules[class.module].ir.classes.ids();
        let mut others = ids.map(|id| ClassRef { module: class.module, class: id }).filter(|other| {
            *other != class && scales(view, *other).is_some_and(|(up, by)| up != multiplies && by == factor)
        });
        let (Some(other), None) = (others.next(), others.next()) else { continue };
        let definition = view.project.class(other);
        if is_named(view, other) {
            continue;
        }
        let file = view.project.file(other.module);
        let mistake = Backwards::Unpaired {
            class: view.project.class(class).name.clone(),
            other: definition.name.clone(),
            factor,
            multiplies,
            defined: crate::source::Place { file, span: definition.name_span },
        };
        out.push((view.place(step.id), Practice::Backwards(mistake)));
    }
}

/// Whether a function turns gradients around: by its name, or by a number below zero. That is one of no pair.
fn is_reversal(view: &View<'_>, class: ClassRef, value: &Rvalue) -> bool {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return false };
    let negative = |e: &Expr| match e {
        Expr::Unary(UnOp::Neg, _) => true,
        Expr::Const(Const::Int(n)) => *n < 0,
        Expr::Const(Const::Float(bits)) => f64::from_bits(*bits) < 0.0,
        _ => false,
    };
    near::has_any(&view.project.class(class).name.to_lowercase(), REVERSES)
        || args.iter().skip(1).any(|a| near::deep(view, &view.expr(&a.value)).any(&mut |e| negative(e)))
}

/// The class of the project whose `apply` a path is.
fn applies(view: &View<'_>, path: &str) -> Option<ClassRef> {
    match view.project.path(path.strip_suffix(".apply")?) {
        Resolved::Class(class) => Some(class),
        _ => None,
    }
}

/// Whether a class leaves its input as it is, and scales its gradient by an attribute of the context: whether it multiplies, and by what.
fn scales(view: &View<'_>, class: ClassRef) -> Option<(bool, Name)> {
    let methods = &view.project.class(class).methods;
    let method = |name: &str| {
        let (_, func) = methods.iter().find(|(n, _)| n == name)?;
        Some(near::shared(view, FuncRef { module: class.module, func: *func }))
    };
    let (forward, backward) = (method("forward")?, method("backward")?);
    let input = forward.func.params.get(1)?.local;
    let same = |value: &Operand| match forward.through(value) {
        Expr::Local(local) => local == input && forward.defs(local).is_empty(),
        Expr::Call { callee, .. } => match &*callee {
            Expr::Attr(base, name) => name == "view_as" && **base == Expr::Local(input),
            _ => false,
        },
        _ => false,
    };
    let mut returned = forward.steps.iter().filter_map(|s| match s.stmt {
        Stmt::Return { value } => Some(value),
        _ => None,
    });
    if !returned.all(same) {
        return None;
    }
    let gradient = backward.func.params.get(1)?.local;
    let mut found = None;
    for step in &backward.steps {
        let Stmt::Return { value } = step.stmt else { continue };
        let first = match backward.source(value) {
            Some((_, Rvalue::Build { kind: BuildKind::Tuple, items })) => match items.first()? {
                Item::One(first) => first,
                Item::Star(_) => return None,
            },
            _ => value,
        };
        let Expr::Binary(op, left, by) = backward.through(first) else { return None };
        let multiplies = match op {
            BinOp::Mul => true,
            BinOp::Div => false,
            _ => return None,
        };
        let Expr::Attr(context, name) = *by else { return None };
        let own = *left == Expr::Local(gradient) && *context == Expr::Local(backward.func.params.first()?.local);
        if !own || found.as_ref().is_some_and(|known| *known != (multiplies, name.clone())) {
            return None;
        }
        found = Some((multiplies, name));
    }
    found
}

/// Whether anything names a class but its definition, imports and lists of names.
fn is_named(view: &View<'_>, class: ClassRef) -> bool {
    let name = &view.project.class(class).name;
    view.files.saying(name).any(|file| {
        let text = near::bare(view.files[file].whole());
        let word = name.as_str().to_lowercase();
        let defined = format!("class {word}");
        let mut listed = false;
        text.lines().any(|line| {
            let start = line.trim_start();
            // Names in brackets behind an import stand on lines of their own.
            let imports = listed || start.starts_with("from ") || start.starts_with("import ");
            let renamed = imports && near::has_word(line, "as");
            listed = imports && (listed || line.contains('(')) && !line.contains(')');
            let quoted = || [format!("\"{word}\""), format!("'{word}'")].iter().any(|q| line.contains(q.as_str()));
            let definition = start.strip_prefix(&defined).is_some_and(|rest| rest.starts_with(['(', ':', ' ']));
            // A base, another name, or a name in a table may lead to it.
            near::has_word(line, &word)
                && (renamed || !imports)
                && !definition
                && !(quoted() && text.contains("__all__"))
        })
    })
}
