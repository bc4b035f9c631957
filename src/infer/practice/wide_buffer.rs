//! Buffers that are wider or narrower in another dim than the one along which the parts of the ranks lie. In: a function that gathers into one
//! tensor, or scatters a sum into one. Out: the collective, where the buffer has the sizes of what is given, but for a dim behind the first, by
//! number or by a variable, that is as many times larger or smaller as there are ranks: the rows of the ranks are read as longer rows, or each
//! rank gets rows in place of parts of rows. Never: a buffer whose parts are taken apart or put in another order again, sizes of
//! another value, or a dim of which nothing says that it is not the first. Source: TransformerEngine, issue 530;
//! `torch.distributed.all_gather_into_tensor`, which concatenates along dim 0, and `reduce_scatter_tensor`, which cuts along dim 0.
//! Next: `views_apart.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::near;
use super::view::{CollectiveCall, View};
use crate::ir::{Arg, ArgKind, BinOp, BuildKind, Const, FuncKind, Item, LocalId, Operand, Rvalue, Stmt, UnOp};
use crate::rules::Form;
use crate::source::{Name, Place};

/// Parts of names of numbers of ranks.
const SIZES: &[&str] = &["world", "size", "ranks", "degree", "n", "num"];

/// What makes a tensor of given sizes.
const MAKES: &[&str] = &["empty", "zeros", "new_empty", "new_zeros"];

/// What tells that a value has one dim only, or hands its parts on in another order.
const ORDERS: &[&str] = &[
    "view",
    "reshape",
    "transpose",
    "permute",
    "unflatten",
    "split",
    "chunk",
    "rearrange",
    "unbind",
    "movedim",
    "swapaxes",
    "flatten",
    "t",
    "unfold",
    "tensor_split",
    "mT",
    "T",
];

/// How a function says that there is one row, or one dim.
const ONE: &[&str] = &[
    "[0] == 1",
    "size(0) == 1",
    "[0] != 1",
    "size(0) != 1",
    "batch size 1",
    "batch of one",
    "ndim == 1",
    "dim() == 1",
    "ndim != 1",
    "dim() != 1",
    "[None",
    "unsqueeze(0)",
    "(1, -1)",
    "[-1:",
    ".flatten()",
    ".ravel()",
    "view(-1)",
    "reshape(-1)",
];

/// How a caller puts rows in another order.
const APART: &[&str] =
    &[".view(", ".reshape(", ".flatten()", "chunk(", "split(", "unflatten(", "rearrange(", "movedim("];

/// How rows are turned into parts that lie one behind another, before or after.
const TURNS: &[&str] = &[
    "chunk(",
    "split(",
    "unflatten(",
    "rearrange(",
    "movedim(",
    "moveaxis(",
    "transpose(",
    "permute(",
    "swapaxes(",
    "swapdims(",
];

/// What does so as well in the function itself: in a caller, views and products of matrices are of other values.
const TURNS_HERE: &[&str] = &["cat(", "stack(", ".t()", ".mt", "einsum(", "unbind(", ".view(", ".reshape("];

/// `sizes[-1] *= world`, `out = torch.empty(sizes)`, `all_gather_into_tensor(out, x)`
pub fn gathers(view: &View<'_>, out: &mut Found) {
    for Buffer { step, collective, buffer, dim, resized } in buffers(view, "all_gather", &is_times) {
        if is_put_apart(view, APART) {
            continue;
        }
        // A dim of which only a variable tells may be the first, and what is given may be turned before.
        let Some(dim) = behind_first(view, &dim).filter(|_| dim.is_number() || is_unturned(view)) else { continue };
        let mistake = Placements::WideBuffer { collective, buffer, dim, wider: resized };
        out.push((view.place(view.steps[step].id), Practice::Placements(mistake)));
    }
}

/// `sizes[dim] //= world`, `out = torch.empty(sizes)`, `reduce_scatter_tensor(out, x)`
pub fn scatters(view: &View<'_>, out: &mut Found) {
    for Buffer { step, collective, buffer, dim, resized } in buffers(view, "reduce_scatter", &is_share) {
        if !is_unturned(view) || is_put_apart(view, TURNS) {
            continue;
        }
        let Some(dim) = behind_first(view, &dim) else { continue };
        let mistake = Placements::NarrowBuffer { collective, buffer, dim, narrower: resized };
        out.push((view.place(view.steps[step].id), Practice::Placements(mistake)));
    }
}

/// A buffer that a collective writes into, with the sizes of what it is given but for one.
struct Buffer {
    step: usize,
    collective: Name,
    buffer: Name,
    dim: Dim,
    /// Where the other size is made.
    resized: Place,
}

/// The buffers of collectives of a kind with a dim of another size, made so, that go on as they are.
fn buffers(view: &View<'_>, op: &str, resized: Resized<'_>) -> Vec<Buffer> {
    // With one row, or one dim, the parts lie along the other dim as well.
    if near::has_any(view.code(), ONE) {
        return Vec::new();
    }
    let of = |(step, call): &(usize, CollectiveCall<'_>)| {
        let (given, local) = (call.input?, call.output.and_then(near::local)?);
        let [made] = view.defs(local) else { return None };
        if call.rule.op != op || call.rule.form != Form::IntoOutput || *made > *step {
            return None;
        }
        let (of, dim, resized) = made_as(view, *made, resized)?;
        let same = plain(view, given).is_some_and(|value| value == of);
        let collective = super::lost::last(&call.rule.name);
        let buffer = view.local_name(local).clone();
        (same && !is_ordered(view, local) && goes_on(view, local)).then_some(Buffer {
            step: *step,
            collective,
            buffer,
            dim,
            resized,
        })
    };
    view.collectives().iter().filter_map(of).collect()
}

/// A dim of a buffer.
enum Dim {
    Number(i64),
    Named(LocalId),
}

impl Dim {
    fn is_number(&self) -> bool {
        matches!(self, Dim::Number(_))
    }
}

/// Whether a size is made of an own one as that of a buffer is.
type Resized<'r> = &'r dyn Fn(&View<'_>, &Expr, &dyn Fn(&Expr) -> bool) -> bool;

/// Whose sizes a buffer has, and the dim behind the first in which it has another one, with the place that makes it so.
fn made_as(view: &View<'_>, made: usize, resized: Resized<'_>) -> Option<(Expr, Dim, Place)> {
    let value = view.value(made)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let name = near::written_name(view, value)?;
    if !MAKES.contains(&name.as_str()) {
        return None;
    }
    match args.first().map(|arg| &arg.value) {
        Some(Operand::Local(sizes)) if !view.is_temp(*sizes) => in_list(view, *sizes, made, resized),
        _ if args.first().is_some_and(|a| a.kind == ArgKind::Star) => {
            in_last(view, args, resized).map(|of| (of, Dim::Number(-1), view.place(view.steps[made].id)))
        }
        _ => {
            let given: Vec<Expr> =
                args.iter().take_while(|a| a.kind == ArgKind::Positional).map(|a| view.expr(&a.value)).collect();
            let given = match given.as_slice() {
                [Expr::Build(items)] => items.clone(),
                _ => given,
            };
            in_row(view, &given, resized).map(|(of, dim)| (of, Dim::Number(dim), view.place(view.steps[made].id)))
        }
    }
}

/// `sizes = list(x.size())`, and the one entry of it that is set.
fn in_list(view: &View<'_>, sizes: LocalId, made: usize, resized: Resized<'_>) -> Option<(Expr, Dim, Place)> {
    let [defined] = view.defs(sizes) else { return None };
    let of = listed(&near::deep(view, &view.bound(*defined, sizes)))?;
    let mut set = (*defined + 1..made).filter_map(|step| match view.steps[step].stmt {
        Stmt::SetItem { base, index, value } if near::local(base) == Some(sizes) => Some((step, index, value)),
        _ => None,
    });
    let ((step, index, value), None) = (set.next()?, set.next()) else { return None };
    let (dim, at) = match &**index {
        Operand::Const(Const::Int(dim)) if *dim != 0 => (Dim::Number(*dim), Expr::Const(Const::Int(*dim))),
        Operand::Local(dim) => match view.expr(&Operand::Local(*dim)) {
            Expr::Local(dim) => (Dim::Named(dim), Expr::Local(dim)),
            at => (Dim::Number(dim_of(&at)?), at),
        },
        _ => return None,
    };
    // A method of the list may do anything with it.
    let method = |step: usize| matches!(view.value(step), Some(Rvalue::CallMethod { base, .. }) if near::local(base) == Some(sizes));
    let sometimes = view.steps[made].guards.len() < view.steps[step].guards.len();
    if sometimes || (*defined..made).any(method) || is_bound_after(view, &of, *defined) {
        return None;
    }
    let own = |e: &Expr| match e {
        Expr::Item(base, index) if **index == at => {
            **base == Expr::Local(sizes) || matches!(&**base, Expr::Attr(x, name) if name == "shape" && **x == of)
        }
        Expr::Call { callee, args, .. } => {
            let size = matches!(&**callee, Expr::Attr(x, name) if name == "size" && **x == of);
            size && matches!(args.as_slice(), [(_, index)] if *index == at)
        }
        _ => false,
    };
    let size = near::deep(view, &view.expr(value));
    resized(view, &size, &own).then(|| (of, dim, view.place(view.steps[step].id)))
}

/// `x.size(0), x.size(1) * world`
fn in_row(view: &View<'_>, given: &[Expr], resized: Resized<'_>) -> Option<(Expr, i64)> {
    let given: Vec<Expr> = given.iter().map(|e| near::deep(view, e)).collect();
    let (of, 0) = size_at(given.first()?)? else { return None };
    let mut larger = None;
    for (at, size) in (1_i64..).zip(&given[1..]) {
        let own = |e: &Expr| size_at(e) == Some((of.clone(), at));
        if own(size) {
            continue;
        }
        if larger.is_some() || !resized(view, size, &own) {
            return None;
        }
        larger = Some(at);
    }
    Some((of, larger?))
}

/// `*x.shape[:-1], x.size(-1) * world`: the value whose sizes these are.
fn in_last(view: &View<'_>, args: &[Arg], resized: Resized<'_>) -> Option<Expr> {
    let [front, last, rest @ ..] = args else { return None };
    let (_, Rvalue::Item { base, index }) = view.source(&front.value)? else { return None };
    let (_, Rvalue::Build { kind: BuildKind::Slice, items }) = view.source(index)? else { return None };
    let no_start = |item: &Item| matches!(item, Item::One(o) if view.expr(o).is_none());
    let all_but_one = match &items[..] {
        [start, Item::One(stop), step @ ..] => {
            no_start(start) && step.iter().all(no_start) && dim_of(&view.expr(stop)) == Some(-1)
        }
        _ => false,
    };
    let Expr::Attr(of, shape) = near::deep(view, &view.expr(base)) else { return None };
    let own = |e: &Expr| match e {
        Expr::Call { callee, args, .. } => {
            let same = matches!(&**callee, Expr::Attr(base, name) if name == "size" && *base == of);
            same && matches!(args.as_slice(), [(_, dim)] if dim_of(dim) == Some(-1))
        }
        Expr::Item(base, at) => {
            matches!(&**base, Expr::Attr(base, name) if name == "shape" && *base == of) && dim_of(at) == Some(-1)
        }
        _ => false,
    };
    let positional = last.kind == ArgKind::Positional && rest.iter().all(|a| matches!(a.kind, ArgKind::Keyword(_)));
    let wider = resized(view, &near::deep(view, &view.expr(&last.value)), &own);
    (shape == "shape" && all_but_one && positional && wider).then_some(*of)
}

/// A dim that is written as a number, also a negative one.
fn dim_of(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Const(Const::Int(dim)) => Some(*dim),
        Expr::Unary(UnOp::Neg, of) => dim_of(of).map(|dim| -dim),
        _ => None,
    }
}

/// `x` of `list(x.size())` and `list(x.shape)`.
fn listed(expr: &Expr) -> Option<Expr> {
    let args = expr.call_of("list")?;
    let [(_, sizes)] = args else { return None };
    match sizes {
        Expr::Attr(of, name) if name == "shape" => Some((**of).clone()),
        Expr::Call { callee, args, .. } if args.is_empty() => match &**callee {
            Expr::Attr(of, name) if name == "size" => Some((**of).clone()),
            _ => None,
        },
        _ => None,
    }
}

/// A value and the dim of it whose size this is: `x.size(1)`, `x.shape[1]`.
fn size_at(expr: &Expr) -> Option<(Expr, i64)> {
    match expr {
        Expr::Item(base, at) => match (&**base, &**at) {
            (Expr::Attr(of, name), Expr::Const(Const::Int(dim))) if name == "shape" => Some(((**of).clone(), *dim)),
            _ => None,
        },
        Expr::Call { callee, args, .. } => match (&**callee, args.as_slice()) {
            (Expr::Attr(of, name), [(_, Expr::Const(Const::Int(dim)))]) if name == "size" => {
                Some(((**of).clone(), *dim))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Whether a size is an own one times a number of ranks.
fn is_times(view: &View<'_>, size: &Expr, own: &dyn Fn(&Expr) -> bool) -> bool {
    match size {
        Expr::Binary(BinOp::Mul, a, b) => own(a) && is_ranks(view, b) || own(b) && is_ranks(view, a),
        _ => false,
    }
}

/// Whether a size is an own one divided by a number of ranks.
fn is_share(view: &View<'_>, size: &Expr, own: &dyn Fn(&Expr) -> bool) -> bool {
    match size {
        Expr::Binary(BinOp::FloorDiv | BinOp::Div, a, b) => own(a) && is_ranks(view, b),
        made => matches!(made.call_of("int"), Some([(_, of)]) if is_share(view, of, own)),
    }
}

/// Whether an expression is called a number of ranks.
fn is_ranks(view: &View<'_>, expr: &Expr) -> bool {
    let name = view.name_or_callee(expr);
    name.is_some_and(|name| SIZES.iter().any(|part| near::has_part(&name.to_lowercase(), part)))
}

/// Whether the value whose sizes were taken is another one afterwards.
fn is_bound_after(view: &View<'_>, of: &Expr, taken: usize) -> bool {
    matches!(of, Expr::Local(local) if view.defs(*local).iter().any(|def| *def > taken))
}

/// How a dim is to be called that is not the first: a number, or a parameter that has another one where nothing is given, or is given another
/// one in the file, and that no test looks at.
fn behind_first(view: &View<'_>, dim: &Dim) -> Option<Name> {
    let dim = match dim {
        Dim::Number(dim) => return Some(Name::from(dim.to_string())),
        Dim::Named(dim) => *dim,
    };
    let at = view.func.params.iter().position(|p| p.local == dim)?;
    let name = &view.func.params[at].name;
    let tested = |line: &str| {
        let line = line.trim_start();
        // That it is negative tells nothing.
        let tests = line.starts_with("if ") || line.starts_with("assert") || line.contains(" if ");
        tests && near::has_word(line, &name.to_lowercase()) && !line.contains(&format!("{} < 0", name.to_lowercase()))
    };
    if view.code().lines().any(tested) {
        return None;
    }
    let given: Vec<Option<i64>> = given_dims(view, at);
    let default = match near::default_of(view, at) {
        Some(Const::Int(dim)) => Some(dim),
        _ => None,
    };
    let behind = |dim: &Option<i64>| dim.is_some_and(|dim| dim != 0);
    let others = given.iter().any(behind) || default != Some(0) && given.iter().any(Option::is_none);
    (others || given.is_empty() && behind(&default))
        .then(|| name.clone())
        .filter(|_| behind(&default) || given.iter().any(behind))
}

/// What the calls in the file give a parameter: a number, or something else.
fn given_dims(view: &View<'_>, at: usize) -> Vec<Option<i64>> {
    let name = &view.func.params[at].name;
    let mut out = Vec::new();
    for other in near::functions(view, view.at.module) {
        let caller = near::shared(view, other);
        for step in 0..caller.steps.len() {
            let Some(Rvalue::Call { callee, args }) = caller.value(step) else { continue };
            if near::function(&caller, callee) != Some(view.at) {
                continue;
            }
            if let Some(given) = caller.argument(args, at, name) {
                out.push(dim_of(&near::deep(&caller, &caller.expr(given))));
            }
        }
    }
    out
}

/// Whether nothing in a function puts values in another order.
fn is_unturned(view: &View<'_>) -> bool {
    !near::has_any(view.code(), TURNS) && !near::has_any(view.code(), TURNS_HERE)
}

/// What is given, without what keeps its sizes.
fn plain(view: &View<'_>, operand: &Operand) -> Option<Expr> {
    let mut at = near::deep(view, &view.expr(operand));
    loop {
        at = match &at {
            Expr::Call { callee, .. } => match &**callee {
                Expr::Attr(base, name) if matches!(name.as_str(), "contiguous" | "detach" | "clone") => {
                    (**base).clone()
                }
                _ => return Some(at),
            },
            _ => return Some(at),
        };
    }
}

/// Whether the function takes parts of a buffer out, or puts them in another order.
fn is_ordered(view: &View<'_>, buffer: LocalId) -> bool {
    let orders = |step: &usize| match view.value(*step) {
        Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) => {
            near::written_name(view, value).is_some_and(|name: Name| ORDERS.contains(&name.as_str()))
        }
        Some(Rvalue::Attr { name, .. }) => ORDERS.contains(&name.as_str()),
        Some(Rvalue::Item { .. }) => true,
        _ => false,
    };
    view.readers(buffer).iter().any(orders)
}

/// Whether a buffer is returned as it is, or multiplied: a maximum, a norm or a sum of it all is the same in any order.
fn goes_on(view: &View<'_>, buffer: LocalId) -> bool {
    let is = |operand: &Operand| near::local(operand) == Some(buffer);
    view.steps.iter().any(|step| match step.stmt {
        Stmt::Return { value } => is(value),
        Stmt::Assign { value: Rvalue::Binary { op: BinOp::MatMul, left, right }, .. } => is(left) || is(right),
        _ => false,
    })
}

/// Whether a function of the file that calls this one says that there is one row, or puts rows in another order.
fn is_put_apart(view: &View<'_>, apart: &[&str]) -> bool {
    let class = near::class_of(view).map(|class| &view.project.modules[view.at.module].ir.classes[class].name);
    let names = [Some(format!("{}(", view.func.name)), class.map(|name| format!("{name}.apply("))];
    let calls = |text: &str| names.iter().flatten().any(|name| text.contains(name.as_str()));
    near::functions(view, view.at.module).into_iter().filter(|at| *at != view.at).any(|at| {
        let func = view.project.func(at);
        let text = view.text(view.spot(func.span));
        func.kind == FuncKind::Function && calls(text) && (near::has_any(text, ONE) || near::has_any(text, apart))
    })
}
