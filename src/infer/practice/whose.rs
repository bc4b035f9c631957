//! Whose parameters something has, as written. In: operands of a function. Out: the names on the way to a model, without `self`; nothing
//! where that is not a chain of names. Never: what two names have in common behind them. Next: `order.rs`, `doubled.rs`.

use super::expr::Expr;
use super::near;
use super::view::View;
use super::wrapped::parameters_in;
use crate::ir::{ArgKind, Operand, Rvalue, Stmt};
use crate::source::Name;

/// `model.head` of `self.model.head`, and of a variable that stands for it.
pub fn way(view: &View<'_>, expr: &Expr) -> Option<Vec<Name>> {
    way_from(view, expr, 0)
}

/// How long a way may be: a name may be bound to an attribute of itself.
const MOST_DEPTH: usize = 16;

fn way_from(view: &View<'_>, expr: &Expr, depth: usize) -> Option<Vec<Name>> {
    if depth > MOST_DEPTH {
        return None;
    }
    match expr {
        Expr::Local(local) => match view.through(&Operand::Local(*local)) {
            _ if view.local_name(*local) == "self" => Some(Vec::new()),
            seen @ Expr::Attr(..) => way_from(view, &seen, depth + 1),
            _ => Some(vec![view.local_name(*local).clone()]),
        },
        Expr::Attr(base, name) => {
            let mut out = way_from(view, base, depth + 1)?;
            // A wrapper keeps its model as `module`.
            out.extend((name != "module").then(|| name.clone()));
            Some(out)
        }
        Expr::Path(path) => Some(vec![super::lost::last(path)]),
        _ => None,
    }
}

/// Whose parameters an operand has: those of a model, or a list by its name.
pub fn of_parameters(view: &View<'_>, operand: &Operand) -> Option<Vec<Name>> {
    if are_chosen(view, operand) {
        return near::local(operand).filter(|l| !view.is_temp(*l)).map(|l| vec![view.local_name(l).clone()]);
    }
    super::wrapped::parameters_of(view, operand)
        .and_then(|model| way(view, &model))
        .or_else(|| way(view, &view.expr(operand)))
}

/// Whether a list has some of the parameters of a model, as a condition chooses that asks for more than whether they are trained.
fn are_chosen(view: &View<'_>, list: &Operand) -> bool {
    let Operand::Local(local) = list else { return false };
    let made = view.defs(*local).iter().find_map(|def| match view.value(*def) {
        Some(Rvalue::Use(Operand::Local(temp))) => Some(*temp),
        _ => None,
    });
    let trained = |e: &Expr| match e {
        Expr::Attr(_, name) => !matches!(name.as_str(), "grad" | "requires_grad"),
        Expr::Call { .. } | Expr::Path(_) => true,
        _ => false,
    };
    view.steps.iter().any(|step| match step.stmt {
        Stmt::Append { collection, .. } if collection == local || Some(*collection) == made => {
            step.guards.iter().any(|g| view.expr(g.test).any(&mut |e| trained(e)))
        }
        _ => false,
    })
}

/// Whose parameter it is of which a loop takes the gradient.
pub fn of_parameter(view: &View<'_>, parameter: &Operand) -> Option<Vec<Name>> {
    match view.through(parameter) {
        seen @ (Expr::Element(_) | Expr::Item(..)) => of_element(view, &seen),
        other => way(view, &other),
    }
}

/// Of an element of `zip(a.parameters(), b)`, `enumerate(a.parameters())` or of a collection.
fn of_element(view: &View<'_>, element: &Expr) -> Option<Vec<Name>> {
    let of = |collection: &Expr| {
        let model = parameters_in(view, collection);
        model.and_then(|model| way(view, &model)).or_else(|| way(view, collection))
    };
    match element {
        Expr::Item(inner, index) => match (&**inner, &**index) {
            (Expr::Element(from), Expr::Const(crate::ir::Const::Int(at))) => {
                match (from.call_of("zip"), from.call_of("enumerate")) {
                    (Some(args), _) => of(&args.get(usize::try_from(*at).ok()?)?.1),
                    (_, Some(args)) => of(&args.first()?.1),
                    _ => of(from),
                }
            }
            _ => of_element(view, inner),
        },
        Expr::Element(from) => of(from),
        _ => None,
    }
}

/// The same way in the function that calls another one, where it begins with a parameter of that.
pub fn given(view: &View<'_>, call: &Rvalue, inner: &View<'_>, way: Vec<Name>) -> Option<Vec<Name>> {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = call else { return None };
    let method = usize::from(matches!(call, Rvalue::CallMethod { .. }) && inner.func.class.is_some());
    let Some(at) = way.first().and_then(|first| inner.func.params.iter().position(|p| p.name == *first)) else {
        // What the object keeps is the same in its own methods.
        return (method == 1).then_some(way);
    };
    let named = args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(name) if *name == way[0]));
    let positional = || args.get(at.checked_sub(method)?).filter(|a| a.kind == ArgKind::Positional);
    let mut out = of_parameters(view, &named.or_else(positional)?.value)?;
    out.extend(way.into_iter().skip(1));
    Some(out)
}

/// Whether all that one has the other has too: `model.head` is a part of `model`.
pub fn has(whole: &[Name], part: &[Name]) -> bool {
    part.starts_with(whole)
}
