//! Sums over this rank's part of a dim that are divided by the size of the whole dim. In: a method of a module. Out: such a quotient, where the
//! constructor makes a parameter of as many elements as that size divided by the number of ranks, and the method multiplies with it. Never:
//! a method that is given more than one value, or that calls anything but elementwise functions and the one that adds up. Source: OLMo 2, whose norms of queries and keys span all heads. Next:
//! `statistic.rs`.

use super::Found;
use super::expr::Expr;
use super::found::{Own, Practice};
use super::near;
use super::only_some::callee;
use super::rank_tests::{is_number_of_ranks, returned, whole};
use super::view::View;
use super::wrapped::function;
use crate::ir::{BinOp, ClassId, Const, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef};
use crate::source::Place;

/// A root of what is summed.
pub const WORDS: &[&str] = &["sqrt("];
/// What stands in a method that makes statistics whole.
const TALKS: &[&str] = &["reduce", "gather", "all_to_all", "psum", ".apply(", "redistribute", "region", "dist."];
/// What stands in a method that takes the part of this rank itself.
const CUTS: &[&str] = &["chunk", "narrow", "split", "[..., ", "[:, ", "rank", "start"];
/// What a class says whose statistics are those of parts.
const OF_PARTS: &[&str] =
    &["group_size", "ngroups", "n_groups", "per rank", "per-rank", "local norm", "local_norm", "head"];
/// All that a method calls whose input and output have the same elements.
const ELEMENTWISE: &[&str] = &[
    "pow",
    "square",
    "mean",
    "sum",
    "rsqrt",
    "sqrt",
    "float",
    "to",
    "type_as",
    "type",
    "abs",
    "mul",
    "add",
    "size",
    "clamp",
    "reciprocal",
];

pub fn divided(view: &View<'_>, out: &mut Found) {
    if view.func.name != "forward"
        || !view.collectives().is_empty()
        || near::has_any(view.code(), TALKS)
        || near::has_any(view.code(), CUTS)
        || view.func.params.len() != 2
    {
        return;
    }
    let Some(class) = near::class_of(view) else { return };
    for i in 0..view.steps.len() {
        let Some(Rvalue::Binary { op: BinOp::Div, left, right }) = view.value(i) else { continue };
        let size = view.expr(right);
        let Some(name) = near::own_attribute(view, &size) else { continue };
        let Some((sum, helper)) = sum_of_part(view, &near::deep(view, &view.expr(left)), true) else { continue };
        let Some((attribute, cut)) = divided_parameter(view, class, name) else { continue };
        if !multiplies(view, &attribute) || !is_elementwise(view, helper) {
            continue;
        }
        out.push((view.place(view.steps[i].id), Practice::OfThisRank(Own::Width { partial: sum, cut })));
        return;
    }
    means(view, class, out);
}

/// `x * torch.rsqrt((x * x).mean(-1) + eps) * self.weight`, where the weight has as many elements as a size divided by the number of ranks.
fn means(view: &View<'_>, class: ClassId, out: &mut Found) {
    let text = view.text(view.spot(view.project.class(ClassRef { module: view.at.module, class }).span)).to_lowercase();
    if near::has_any(&text, OF_PARTS) || !is_elementwise(view, None) {
        return;
    }
    let Some(mean) = (0..view.steps.len()).find(|step| is_mean_of_squares(view, class, *step)) else { return };
    let size = |init: &View<'_>, e: &Expr| matches!(e, Expr::Local(l) if init.is_as_given(*l));
    if let Some((_, cut)) = parameter_of(view, class, &size).filter(|(name, _)| multiplies(view, name)) {
        out.push((view.place(view.steps[mean].id), Practice::OfThisRank(Own::WidthMean { cut })));
    }
}

/// Whether a step takes the mean of squares over the last dim of what the method is given.
fn is_mean_of_squares(view: &View<'_>, class: ClassId, step: usize) -> bool {
    let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
        return false;
    };
    let own = matches!(value, Rvalue::CallMethod { base, .. } if !matches!(view.through(base), Expr::Path(_)));
    let dim = view.argument(args, usize::from(!own), "dim").map(|dim| view.expr(dim));
    let last = dim.is_some_and(|dim| whole(&dim) == Some(-1) || kept_last(view, class, &dim));
    let of = match value {
        Rvalue::CallMethod { base, .. } if own => Some(base),
        _ => args.first().map(|arg| &arg.value),
    };
    let squares = of.is_some_and(|of| match near::deep(view, &view.expr(of)) {
        Expr::Binary(BinOp::Mul, a, b) => a == b,
        Expr::Binary(BinOp::Pow, _, two) => whole(&two) == Some(2),
        Expr::Call { callee, .. } => callee.last_name().is_some_and(|name| matches!(name, "pow" | "square")),
        _ => false,
    });
    near::name_of_call(view, step).is_some_and(|name| name == "mean") && last && squares
}

/// Whether a dim is kept in an attribute, as the parameter of the constructor whose default is the last one.
fn kept_last(view: &View<'_>, class: ClassId, dim: &Expr) -> bool {
    let Some(name) = near::own_attribute(view, dim) else { return false };
    let [(made, _, value)] = &near::assigned(view, class, name)[..] else { return false };
    let Expr::Local(given) = made.expr(value) else { return false };
    let at = made.func.params.iter().position(|param| param.local == given);
    at.and_then(|at| near::default_of(made, at)).is_some_and(|default| default == Const::Int(-1))
}

/// Where the elements of the last dim of what a method is given are added up, here or in a function that does nothing else.
fn sum_of_part(view: &View<'_>, expr: &Expr, may_be_helper: bool) -> Option<(Place, Option<FuncRef>)> {
    let Expr::Call { callee, args, step } = expr else { return None };
    let place = view.place(view.steps.get(*step)?.id);
    if callee.last_name() == Some("sum") {
        let Expr::Attr(of, _) = &**callee else { return None };
        let given = |e: &Expr| matches!(e, Expr::Local(l) if view.is_as_given(*l));
        let adds = args.iter().any(|(_, a)| whole(a) == Some(-1)) && of.any(&mut |e| given(e));
        return adds.then_some((place, None));
    }
    let helper = function(view, callee).filter(|_| args.len() == 1 && may_be_helper)?;
    let inner = near::shared(view, helper);
    let [value] = &returned(&inner)[..] else { return None };
    let alone = inner.collectives().is_empty() && !near::has_any(inner.code(), TALKS) && is_elementwise(&inner, None);
    (alone && sum_of_part(&inner, &near::deep(&inner, value), false).is_some()).then_some((place, Some(helper)))
}

/// Whether a function calls nothing but elementwise functions, and the one that adds up.
fn is_elementwise(view: &View<'_>, helper: Option<FuncRef>) -> bool {
    (0..view.steps.len()).all(|i| match view.value(i) {
        Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) => {
            let known = near::written_name(view, value).is_some_and(|name| ELEMENTWISE.contains(&name.as_str()));
            known || helper.is_some() && callee(view, value) == helper
        }
        _ => true,
    })
}

/// The parameter of as many elements as the size in an attribute divided by the number of ranks, and where it is made.
fn divided_parameter(view: &View<'_>, class: ClassId, size: &str) -> Option<(String, Place)> {
    let [(made, _, value)] = &near::assigned(view, class, size)[..] else { return None };
    let Expr::Local(given) = made.expr(value) else { return None };
    let own = ClassRef { module: view.at.module, class };
    view.project.own_method(own, "__init__").filter(|at| *at == made.at)?;
    parameter_of(view, class, &|_, e| *e == Expr::Local(given))
}

/// The parameter of as many elements as a size divided by the number of ranks, and where it is made.
fn parameter_of(
    view: &View<'_>,
    class: ClassId,
    is_size: &dyn Fn(&View<'_>, &Expr) -> bool,
) -> Option<(String, Place)> {
    let own = ClassRef { module: view.at.module, class };
    let init = near::shared(view, view.project.own_method(own, "__init__")?);
    init.steps.iter().find_map(|step| {
        let Stmt::SetAttr { name, value, .. } = step.stmt else { return None };
        let whole = near::deep(&init, &init.expr(value));
        let Expr::Call { callee, .. } = &whole else { return None };
        let parts = callee.last_name() == Some("Parameter")
            && whole.any(&mut |e| match e {
                Expr::Binary(BinOp::FloorDiv, a, b) => is_size(&init, a) && counts_ranks(&init, &near::deep(&init, b)),
                _ => false,
            });
        parts.then(|| (name.to_string(), init.place(step.id)))
    })
}

/// Whether a number is that of the ranks of a group, or of all.
fn counts_ranks(view: &View<'_>, size: &Expr) -> bool {
    size.call_of("get_world_size").is_some()
        || size.call_of("size").is_some_and(<[_]>::is_empty)
        || is_number_of_ranks(view, size)
        || size.last_name().is_some_and(|n| n == "tp_size" || n.ends_with("world_size"))
}

/// Whether a method multiplies with an attribute.
fn multiplies(view: &View<'_>, attribute: &str) -> bool {
    let is = |o: &Operand| near::own_attribute(view, &view.expr(o)).is_some_and(|n| n == attribute);
    (0..view.steps.len())
        .any(|i| matches!(view.value(i), Some(Rvalue::Binary { op: BinOp::Mul, left, right }) if is(left) || is(right)))
}
