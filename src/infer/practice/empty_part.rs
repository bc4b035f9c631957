//! Parts that begin at a multiple of the whole. In: a function. Out: `x[rank * n : (rank + 1) * n]` where `n` is how long `x` is, so that
//! all ranks but the first get nothing. Never: a tensor that is bound again after its length was taken, or an attribute that is set
//! otherwise. Next: `own_part.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::slips::Slip;
use super::view::View;
use crate::ir::{ArgKind, BinOp, BuildKind, Const, Item, LocalId, LocalKind, Operand, Rvalue};

/// What says how long something is.
pub const LENGTHS: &[&str] = &["shape", "size(", "len(", "self."];

/// What makes a list longer.
const GROWS: &[&str] = &[".extend(", ".append(", ".insert("];

/// `x[rank * x.size(0) : (rank + 1) * x.size(0)]`
pub fn cut(view: &View<'_>, out: &mut Found) {
    // What is made longer has another length than it had.
    let file = view.file();
    let may_grow = || near::has_any(view.code(), GROWS) || near::has_any(file, &[".data =", "resize_("]);
    for (i, step) in view.steps.iter().enumerate() {
        let Some(Rvalue::Item { base, index }) = view.value(i) else { continue };
        let Some((_, Rvalue::Build { kind: BuildKind::Slice, items })) = view.source(index) else { continue };
        let [Item::One(start), Item::One(stop), ..] = &items[..] else { continue };
        let (start, stop) = (bare(&view.through(start)), bare(&view.through(stop)));
        let Some(share) = share(view, &start, &stop) else { continue };
        let whole = view.expr(base);
        if is_length(view, &share, &whole, i) && !in_guard_of_one(view, i) && !may_grow() {
            let (Some(part), Some(share)) = (shown(view, &whole), shown(view, &share)) else { continue };
            out.push((view.place(step.id), Practice::Slips(Slip::EmptyPart { part, share })));
        }
    }
}

/// The share of each rank, where one begins at `rank * share` and ends at `(rank + 1) * share`, or `rank * share + share`.
fn share(view: &View<'_>, start: &Expr, stop: &Expr) -> Option<Expr> {
    let Expr::Binary(BinOp::Mul, a, b) = start else { return None };
    let (rank, share) = match (is_rank(view, a), is_rank(view, b)) {
        (true, false) => (a, b),
        (false, true) => (b, a),
        _ => return None,
    };
    let next = |e: &Expr| match e {
        Expr::Binary(BinOp::Add, x, y) => {
            let one = Expr::Const(Const::Int(1));
            (x == rank && **y == one) || (y == rank && **x == one)
        }
        _ => false,
    };
    let ends = match stop {
        Expr::Binary(BinOp::Mul, x, y) => next(x) && y == share || next(y) && x == share,
        Expr::Binary(BinOp::Add, x, y) => {
            let is_start = |e: &Expr| seen(view, e) == *start;
            is_start(x) && y == share || is_start(y) && x == share
        }
        _ => false,
    };
    ends.then(|| (**share).clone())
}

fn seen(view: &View<'_>, expr: &Expr) -> Expr {
    match expr {
        Expr::Local(local) => bare(&view.through(&Operand::Local(*local))),
        other => other.clone(),
    }
}

/// An expression without the steps of its calls: what is asked for twice is the same.
fn bare(expr: &Expr) -> Expr {
    let inner = |e: &Expr| Box::new(bare(e));
    match expr {
        Expr::Call { callee, args, .. } => {
            let args = args.iter().map(|(kind, e)| (kind.clone(), bare(e))).collect();
            Expr::Call { callee: inner(callee), args, step: 0 }
        }
        Expr::Binary(op, a, b) => Expr::Binary(*op, inner(a), inner(b)),
        Expr::Item(a, b) => Expr::Item(inner(a), inner(b)),
        Expr::Attr(base, name) => Expr::Attr(inner(base), name.clone()),
        other => other.clone(),
    }
}

/// Whether an expression is the rank by its name.
fn is_rank(view: &View<'_>, expr: &Expr) -> bool {
    let name = match expr {
        Expr::Local(local) => Some(view.local_name(*local).as_str()),
        Expr::Call { callee, .. } => callee.last_name(),
        other => other.last_name(),
    };
    name.is_some_and(|name| near::has_part(name, "rank"))
}

/// Whether a share is the length of the first dim of what is cut.
fn is_length(view: &View<'_>, share: &Expr, whole: &Expr, at: usize) -> bool {
    match whole {
        Expr::Local(local) => {
            let bound: Vec<usize> = view.defs(*local).to_vec();
            let fixed = match bound.as_slice() {
                [] => view.is_param(*local),
                [one] => *one < at && !view.is_param(*local) && view.steps[*one].loops == view.steps[at].loops,
                _ => false,
            };
            // What was asked for before the variable was bound is the length of something else: then it has another variable.
            fixed && is_own(view, *local) && first_size(&seen(view, share), whole)
        }
        Expr::Attr(..) => near::own_attribute(view, whole).is_some_and(|name| {
            first_size(&seen(view, share), whole) && is_set_once(view, name)
                || near::own_attribute(view, share).is_some_and(|size| is_made_of(view, name, size))
        }),
        _ => false,
    }
}

/// A variable that no inner function binds.
fn is_own(view: &View<'_>, local: LocalId) -> bool {
    view.func.locals()[local].kind == LocalKind::Plain
}

/// `x.shape[0]`, `x.size(0)`, `len(x)`
fn first_size(share: &Expr, of: &Expr) -> bool {
    let zero = |e: &Expr| *e == Expr::Const(Const::Int(0));
    match share {
        Expr::Item(shape, at) => {
            zero(at) && matches!(&**shape, Expr::Attr(base, name) if name == "shape" && **base == *of)
        }
        Expr::Call { callee, args, .. } => match (&**callee, args.as_slice()) {
            (Expr::Attr(base, name), [(_, at)]) => name == "size" && zero(at) && **base == *of,
            (Expr::Path(path), [(_, only)]) => path.trim_start_matches("builtins.") == "len" && only == of,
            _ => false,
        },
        _ => false,
    }
}

fn is_set_once(view: &View<'_>, name: &str) -> bool {
    near::class_of(view).is_some_and(|class| near::assigned(view, class, name).len() == 1)
}

/// Whether the constructor makes an attribute with a size first that it keeps as another attribute, and nothing else sets either.
fn is_made_of(view: &View<'_>, name: &str, size: &str) -> bool {
    let Some(class) = near::class_of(view) else { return false };
    let (made, kept) = (near::assigned(view, class, name), near::assigned(view, class, size));
    let ([(init, _, made)], [(other, _, kept)]) = (made.as_slice(), kept.as_slice()) else { return false };
    if init.at != other.at || init.func.name != "__init__" {
        return false;
    }
    let kept = init.expr(kept);
    let Expr::Local(param) = kept else { return false };
    if !init.is_param(param) || !init.defs(param).is_empty() {
        return false;
    }
    let own = |e: &Expr| *e == kept || near::own_attribute(init, e).is_some_and(|n| n == size);
    sizes(&init.expr(made), 0).is_some_and(|first| own(&first))
}

/// The first size of a tensor that an expression makes: `nn.Parameter(torch.ones(n, m))`, also with a factor.
fn sizes(made: &Expr, depth: usize) -> Option<Expr> {
    let deeper = |e: &Expr| if depth < 6 { sizes(e, depth + 1) } else { None };
    match made {
        Expr::Unary(_, of) => deeper(of),
        Expr::Binary(_, a, b) => deeper(a).or_else(|| deeper(b)),
        Expr::Call { callee, args, .. } => {
            let (_, first) = args.iter().find(|(kind, _)| *kind == ArgKind::Positional)?;
            match callee.last_name()? {
                "Parameter" => deeper(first),
                "ones" | "zeros" | "randn" | "rand" | "empty" => Some(match first {
                    Expr::Build(items) => items.first()?.clone(),
                    other => other.clone(),
                }),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether a step runs where there is one rank alone.
fn in_guard_of_one(view: &View<'_>, at: usize) -> bool {
    view.steps[at].guards.iter().any(|g| {
        view.expr(g.test).any(&mut |e| {
            matches!(e, Expr::Compare(crate::ir::CmpOp::Eq, _, one)
            if **one == Expr::Const(Const::Int(1)) || **one == Expr::Const(Const::Int(0)))
        }) && g.holds
    })
}

fn shown(view: &View<'_>, expr: &Expr) -> Option<crate::source::Name> {
    use crate::source::Name;
    match expr {
        Expr::Local(local) => Some(view.local_name(*local).clone()),
        Expr::Attr(base, name) => Some(Name::from(format!("{}.{name}", shown(view, base)?))),
        Expr::Item(base, at) => match &**at {
            Expr::Const(Const::Int(n)) => Some(Name::from(format!("{}[{n}]", shown(view, base)?))),
            _ => None,
        },
        Expr::Call { callee, args, .. } => match (&**callee, args.as_slice()) {
            (callee, [(_, Expr::Const(Const::Int(n)))]) => Some(Name::from(format!("{}({n})", shown(view, callee)?))),
            (Expr::Path(path), [(_, only)]) => {
                Some(Name::from(format!("{}({})", super::lost::last(path), shown(view, only)?)))
            }
            _ => None,
        },
        _ => None,
    }
}
