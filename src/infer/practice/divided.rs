//! Whether a tensor or a size is a part, by a division by the number of ranks of an axis. In: an expression. Out: the axes. Never: factors of
//! values: what is divided is how many there are. Next: `partition.rs` and `part_beside.rs`, which ask.

use super::expr::Expr;
use super::near;
use super::view::View;
use crate::ir::{ArgKind, BinOp, LocalId, Stmt};
use crate::rules::{Entry, Gives};
use crate::source::Name;

/// Steps that are followed into the sizes of a parameter.
const MOST_DEPTH: usize = 12;

/// Functions that are given the sizes of what they make.
const MAKES: &[&str] = &["empty", "zeros", "ones", "rand", "randn", "arange", "linspace", "Tensor", "FloatTensor"];

/// Methods that give as many numbers as they are called on.
const ELEMENTWISE: &[&str] = &[
    "clamp",
    "clamp_",
    "uniform_",
    "normal_",
    "fill_",
    "zero_",
    "to",
    "cuda",
    "float",
    "double",
    "half",
    "bfloat16",
    "clone",
    "detach",
    "contiguous",
    "log",
    "exp",
    "neg",
    "abs",
    "sqrt",
    "type",
];

/// The axes over which a tensor is split, by the size that it is made with.
pub fn tensor(view: &View<'_>, expr: &Expr, depth: usize) -> Option<Vec<Name>> {
    if depth > MOST_DEPTH {
        return None;
    }
    let expr = near::deep(view, expr);
    match &expr {
        Expr::Call { callee, args, .. } if callee.path().is_some_and(|p| p.starts_with("torch.")) => {
            let name = callee.last_name()?;
            match name {
                _ if MAKES.contains(&name) => {
                    args.iter().filter(|(k, _)| is_size(k)).find_map(|(_, a)| size(view, a, depth + 1))
                }
                "full" => size(view, &args.first()?.1, depth + 1),
                _ => args.iter().find_map(|(_, a)| tensor(view, a, depth + 1)),
            }
        }
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, name) if ELEMENTWISE.contains(&name.as_str()) => tensor(view, base, depth + 1),
            _ => None,
        },
        Expr::Binary(BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div, a, b) => {
            tensor(view, a, depth + 1).or_else(|| tensor(view, b, depth + 1))
        }
        Expr::Unary(_, inner) => tensor(view, inner, depth + 1),
        Expr::Local(local) => of_all(view, *local, |e| tensor(view, e, depth + 1)),
        Expr::Attr(..) => attribute(view, &expr, |method, e| tensor(method, e, depth + 1)),
        _ => None,
    }
}

/// Whether an argument is a size: by position, or by the name for it.
fn is_size(kind: &ArgKind) -> bool {
    match kind {
        ArgKind::Keyword(name) => name == "size" || name == "end",
        _ => true,
    }
}

/// The axes by whose number of ranks a size is divided, or each of a list of sizes.
pub fn size(view: &View<'_>, expr: &Expr, depth: usize) -> Option<Vec<Name>> {
    if depth > MOST_DEPTH {
        return None;
    }
    let deeper = |e: &Expr| size(view, e, depth + 1);
    let expr = near::deep(view, expr);
    match &expr {
        // By a number that is written there; a size of a part by another one may be whole.
        Expr::Binary(BinOp::FloorDiv | BinOp::Div, of, by) if matches!(**by, Expr::Const(_)) => deeper(of),
        Expr::Binary(BinOp::FloorDiv | BinOp::Div, _, by) => ranks(view, by),
        Expr::Binary(BinOp::Mul, a, b) if ranks(view, a).is_some() || ranks(view, b).is_some() => None,
        Expr::Binary(BinOp::Add | BinOp::Sub | BinOp::Mul, a, b) => deeper(a).or_else(|| deeper(b)),
        Expr::Choice(_, a, b) => deeper(a).filter(|axes| deeper(b).as_ref() == Some(axes)),
        Expr::Call { callee, args, .. } => match callee.last_name()? {
            "divide" if args.len() == 2 => ranks(view, &args[1].1),
            "int" if args.len() == 1 => deeper(&args[0].1),
            "Size" => args.iter().find_map(|(_, a)| deeper(a)),
            _ => None,
        },
        Expr::Build(items) => items.iter().find_map(deeper),
        Expr::Local(local) => of_all(view, *local, deeper),
        Expr::Attr(..) => attribute(view, &expr, |method, e| size(method, e, depth + 1)),
        _ => None,
    }
}

/// What holds of every value of a variable that is bound several times; one that is made from the variable itself holds as the others do.
fn of_all(view: &View<'_>, local: LocalId, mut holds: impl FnMut(&Expr) -> Option<Vec<Name>>) -> Option<Vec<Name>> {
    let defs = view.defs(local);
    if defs.len() < 2
        || view.is_param(local)
        || !defs.iter().all(|def| matches!(view.steps[*def].stmt, Stmt::Assign { .. }))
    {
        return None;
    }
    let mut axes = None;
    for value in defs.iter().map(|def| view.bound(*def, local)).filter(|value| !value.mentions(local)) {
        axes = Some(holds(&value)?);
    }
    axes
}

/// What holds of the one value that an attribute of the object has.
fn attribute<'a>(
    view: &View<'a>,
    expr: &Expr,
    holds: impl FnOnce(&View<'a>, &Expr) -> Option<Vec<Name>>,
) -> Option<Vec<Name>> {
    let name = near::own_attribute(view, expr)?;
    let set = near::assigned(view, near::class_of(view)?, name);
    let [(method, _, value)] = set.as_slice() else { return None };
    holds(method, &method.expr(value))
}

/// The axes of which an expression is the number of ranks.
fn ranks(view: &View<'_>, expr: &Expr) -> Option<Vec<Name>> {
    // A variable may say more than the call that it holds.
    let named = match expr {
        Expr::Local(local) => of_name(view.local_name(*local)),
        _ => None,
    };
    if named.is_some() {
        return named;
    }
    match near::deep(view, expr) {
        Expr::Call { callee, args, .. } if args.is_empty() => match view.rules.get(callee.path()?) {
            Some(Entry::Group(rule)) if rule.gives == Gives::Size => Some(rule.axes.clone()),
            _ => None,
        },
        Expr::Attr(_, name) => of_name(&name),
        Expr::Local(local) => of_name(view.local_name(local)),
        _ => None,
    }
}

/// The axes of `tp_size`, `tp_world_size`.
fn of_name(name: &str) -> Option<Vec<Name>> {
    let axes = super::super::scale::groups::words(name.strip_suffix("_size")?)?;
    Some(axes.iter().map(|a| Name::from(a.name())).collect())
}
