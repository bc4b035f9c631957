//! Gradients of a whole input that a split weight gives in parts. In: an autograd function. Out: a backward that hands back the product of its
//! gradient with a weight as it is, where the forward reduces what it makes of the product of input and weight over ranks: these have other
//! rows of the weight and the same input. Never: a backward that communicates, or callers that give it what something else hands on. Source:
//! ml-cross-entropy, pull request 42. Next: `weight_left.rs`.

use super::backwards::{Backwards, both_ways};
use super::expr::Expr;
use super::found::Practice;
use super::rank_tests::whole;
use super::view::View;
use super::{Class, Found, Lint, near};
use crate::ir::{Arg, ArgKind, BinOp, BuildKind, Const, Item, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, Resolved};
use crate::source::{Name, Place};

/// Reductions over the columns of a product, each of which the ranks have others of.
const OVER_COLUMNS: &[&str] = &["sum", "amax", "max", "logsumexp"];
/// Names of groups that a function is given.
const GROUPS: &[&str] = &["group", "pg", "process_group", "tp_group"];
/// How many variables lie between a value and what is asked of it.
const MOST_STEPS: usize = 6;
/// Methods that give the same values in another form.
const FORMS: &[&str] = &[
    "view",
    "reshape",
    "flatten",
    "contiguous",
    "unsqueeze",
    "squeeze",
    "float",
    "to",
    "type_as",
    "clone",
    "transpose",
    "view_as",
];
/// Methods that give the same values in another type.
const CASTS: &[&str] = &["float", "to", "half", "bfloat16", "type", "type_as", "contiguous"];
/// Words of files in which a gradient may be summed elsewhere.
const ELSEWHERE: &[&str] = &[
    "copy_to",
    "copy_in",
    "_autograd(",
    "reduce_grad",
    "register_hook",
    "grad_placements",
    "CopyTo",
    "gather_from",
    "no_grad",
    "detach()",
    "requires_grad_",
    ".grad,",
    ".grad)",
];

/// `s = (e @ c.t()).exp().sum(-1)`, `all_reduce(s)`, and `return d @ c, ...`
pub fn parts<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let Some((forward, backward)) = both_ways(lint, class.at).filter(|_| lint.is_autograd(class.at)) else { return };
    let text = lint.files[lint.project.file(class.at.module)].whole();
    if ELSEWHERE.iter().any(|word| text.contains(word)) {
        return;
    }
    let (forward, backward) = (lint.view(forward), lint.view(backward));
    let Some((input, product, weight)) = (0..forward.steps.len()).find_map(|step| product(&forward, step)) else {
        return;
    };
    let reduced: Vec<(usize, &Operand)> = (0..forward.steps.len())
        .filter_map(|at| Some((at, reduces(&forward, at)?)))
        .filter(|(_, value)| near::comes_from(&forward, value, product, 0))
        .collect();
    let whole = reduced.iter().find(|(at, value)| is_over_columns(&forward, value, *at, product));
    // The parts of a softmax are put together: by its largest entry, or its logarithm.
    let softmax = reduced.iter().any(|(at, value)| {
        forward.text(forward.place(forward.steps[*at].id)).contains("MAX")
            || near::local(value).is_some_and(|l| made_by(&forward, l, *at, "logsumexp"))
    });
    let summed_whole = reduced.iter().any(|(_, value)| near::local(value) == Some(product));
    if !softmax || summed_whole || another_sums(lint, class.at) {
        return;
    }
    let Some((whole, _)) = whole.filter(|_| reduced.len() > 1 && !near::communicates(&backward)) else { return };
    let name = forward.local_name(weight);
    let own = usize::from(forward.func.params.first().is_some_and(|p| p.name == "ctx"));
    let Some(slot) = forward.func.params.iter().position(|p| p.local == input).and_then(|at| at.checked_sub(own))
    else {
        return;
    };
    let Some((returned, made)) = given_back(&backward, slot, &saved_as(&forward, &backward, weight)) else { return };
    if !is_called_plainly(lint, class.at, slot) {
        return;
    }
    let mistake = Backwards::InputNotSummed {
        class: lint.project.class(class.at).name.clone(),
        input: forward.local_name(input).clone(),
        weight: name.clone(),
        reduced: forward.place(forward.steps[*whole].id),
        made,
    };
    out.push((returned, Practice::Backwards(mistake)));
}

/// Whether a variable is made by a function of this name.
fn made_by(view: &View<'_>, local: LocalId, before: usize, name: &str) -> bool {
    let Some(def) = view.last_def(local, before) else { return false };
    matches!(view.bound(def, local), Expr::Call { callee, .. } if callee.last_name() == Some(name))
}

/// Whether another autograd function of the file sums a gradient: callers may apply it to what they give this one.
fn another_sums(lint: &Lint<'_>, class: ClassRef) -> bool {
    let classes = lint.project.modules[class.module].ir.classes.ids();
    let mut others = classes.map(|c| ClassRef { module: class.module, class: c }).filter(|c| *c != class);
    others.any(|other| {
        // Its forward hands on what it is given, or what ranks have of that together.
        let multiplies = |at: FuncRef| {
            let forward = lint.view(at);
            (0..forward.steps.len()).any(|step| multiplied(&forward, step).is_some())
        };
        let hands_on = lint.project.own_method(other, "forward").is_some_and(|at| !multiplies(at));
        let backward = lint.project.own_method(other, "backward").filter(|_| hands_on && lint.is_autograd(other));
        backward.is_some_and(|at| near::has_any(lint.view(at).code(), &["reduce", "sum", ".apply("]))
    })
}

/// What a step reduces over ranks: by a collective, or a function that its name says to and that is given a group.
fn reduces<'a>(view: &View<'a>, step: usize) -> Option<&'a Operand> {
    let value = view.value(step)?;
    if let Some(call) = view.collective(value) {
        return call.input.filter(|_| call.rule.op == "all_reduce");
    }
    let Rvalue::Call { args, .. } = value else { return None };
    let group = |arg: &Arg| matches!(&arg.kind, ArgKind::Keyword(name) if GROUPS.contains(&name.as_str()));
    let name = near::written_name(view, value)?;
    let named = name.rsplit('.').next().is_some_and(|last| last.contains("reduce") && !last.contains("scatter"));
    args.first().filter(|_| named && args.iter().any(group)).map(|arg| &arg.value)
}

/// `e @ c.t()` of two parameters, with the variable for it.
fn product(view: &View<'_>, step: usize) -> Option<(LocalId, LocalId, LocalId)> {
    let (left, right, linear) = multiplied(view, step)?;
    let Stmt::Assign { dst, .. } = view.steps[step].stmt else { return None };
    let param = |e: &Expr| match uncast(e) {
        e if as_given(view, e).is_some() => as_given(view, e),
        // Some of its rows in each round of a loop.
        Expr::Local(l) => match view.defs(*l) {
            [def] => match view.bound(*def, *l) {
                Expr::Item(base, _) => as_given(view, &base),
                _ => None,
            },
            _ => None,
        },
        Expr::Item(base, _) => as_given(view, base),
        _ => None,
    };
    let right = view.expr(right);
    let turned = match uncast(&right) {
        whole if linear => param(whole),
        Expr::Attr(base, name) if matches!(name.as_str(), "T" | "mT") => param(base),
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, name) if matches!(name.as_str(), "t" | "transpose") => param(base),
            _ => None,
        },
        _ => None,
    }?;
    Some((param(&view.expr(left))?, *dst, turned))
}

fn as_given(view: &View<'_>, e: &Expr) -> Option<LocalId> {
    match uncast(e) {
        Expr::Local(l) if view.is_as_given(*l) => Some(*l),
        _ => None,
    }
}

/// The factors of a product of matrices, and whether the second one is turned by what multiplies.
pub(super) fn multiplied<'a>(view: &View<'a>, step: usize) -> Option<(&'a Operand, &'a Operand, bool)> {
    match view.value(step)? {
        Rvalue::Binary { op: BinOp::MatMul, left, right } => Some((left, right, false)),
        value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => {
            let path = view.callee(value);
            match (path.as_deref(), value, &**args) {
                (Some("torch.matmul" | "torch.mm"), _, [left, right]) => Some((&left.value, &right.value, false)),
                (Some("torch.nn.functional.linear"), _, [left, right]) => Some((&left.value, &right.value, true)),
                (_, Rvalue::CallMethod { base, name, .. }, [right]) if matches!(name.as_str(), "matmul" | "mm") => {
                    Some((base, &right.value, false))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// What a backward calls what the forward has saved of a variable: by its place among them, or by its own name.
fn saved_as(forward: &View<'_>, backward: &View<'_>, of: LocalId) -> Name {
    let saved = (0..forward.steps.len()).find_map(|step| match forward.value(step)? {
        Rvalue::CallMethod { name, args, .. } if name == "save_for_backward" => Some(&**args),
        _ => None,
    });
    let at = saved.and_then(|args| args.iter().position(|arg| near::local(&arg.value) == Some(of)));
    let renamed = at.zip(near::saved_names(backward)).and_then(|(at, names)| names.get(at));
    renamed.map_or_else(|| forward.local_name(of).clone(), |local| backward.local_name(*local).clone())
}

/// A value before it is turned into another type.
fn uncast(e: &Expr) -> &Expr {
    match e {
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, name) if CASTS.contains(&name.as_str()) => uncast(base),
            _ => e,
        },
        _ => e,
    }
}

/// Whether a value that is reduced is one of each row of a product.
fn is_over_columns(view: &View<'_>, value: &Operand, at: usize, product: LocalId) -> bool {
    let Some(local) = near::local(value) else { return false };
    let Some(made) = view.last_def(local, at) else { return false };
    is_reduction(view, &view.bound(made, local), MOST_STEPS) && near::comes_from(view, value, product, 0)
}

/// Whether an expression reduces over columns, in another form or not: `x.max(-1).values`, `x.exp().sum(-1).unsqueeze(0)`.
fn is_reduction(view: &View<'_>, e: &Expr, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    match e {
        Expr::Local(local) => match view.defs(*local) {
            [def] => is_reduction(view, &view.bound(*def, *local), depth),
            _ => false,
        },
        Expr::Attr(base, name) => name == "values" && is_reduction(view, base, depth),
        Expr::Item(base, at) => **at == Expr::Const(Const::Int(0)) && is_reduction(view, base, depth),
        Expr::Call { callee, args, .. } => match &**callee {
            Expr::Attr(base, name) if FORMS.contains(&name.as_str()) => is_reduction(view, base, depth),
            callee => callee.last_name().is_some_and(|name| OVER_COLUMNS.contains(&name)) && is_over_last(args),
        },
        _ => false,
    }
}

/// Whether a reduction is told to run over the last dim of a matrix: over all of it, or over its rows, it is of something else.
fn is_over_last(args: &[(ArgKind, Expr)]) -> bool {
    args.iter().any(|(kind, value)| {
        let dim = match kind {
            ArgKind::Keyword(name) => matches!(name.as_str(), "dim" | "axis"),
            ArgKind::Positional => true,
            ArgKind::Star | ArgKind::DoubleStar => false,
        };
        dim && matches!(whole(value), Some(-1 | 1))
    })
}

/// Whether every application of a function gives it an input as its caller was given it.
fn is_called_plainly(lint: &Lint<'_>, class: ClassRef, slot: usize) -> bool {
    lint.naming(class).all(|site| {
        let of_class = near::class_of(&site).map(|class| ClassRef { module: site.at.module, class });
        let name = of_class.map_or(&site.func.name, |class| &site.project.class(class).name);
        // Files that call it may give it what sums the gradient.
        let is_copied = || {
            let copies = |file| ELSEWHERE.iter().any(|word| lint.files[file].whole().contains(word));
            lint.files.saying(name).any(|file| file != site.place(site.steps[0].id).file && copies(file))
        };
        (0..site.steps.len()).all(|step| match site.value(step) {
            Some(Rvalue::CallMethod { base, name, args }) if name == "apply" => {
                let own = match site.through(base) {
                    Expr::Path(path) => matches!(site.project.path(&path), Resolved::Class(at) if at == class),
                    _ => false,
                };
                let given = |a: &Arg| is_as_given(&site, &site.expr(&a.value), None, MOST_STEPS);
                !own || args.get(slot).is_none_or(given) && !is_copied()
            }
            _ => true,
        })
    })
}

/// Whether a value is what a function was given, in another form or not.
fn is_as_given(view: &View<'_>, e: &Expr, rebound: Option<LocalId>, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    match e {
        Expr::Local(local) if view.is_as_given(*local) || rebound == Some(*local) => true,
        Expr::Local(local) => {
            // `x = x.view(-1, n)` of a parameter is that parameter still.
            let rebound = rebound.or(view.is_param(*local).then_some(*local));
            let mut defs = view.defs(*local).iter().map(|def| view.bound(*def, *local)).peekable();
            defs.peek().is_some() && defs.all(|made| is_as_given(view, &made, rebound, depth))
        }
        Expr::Item(base, _) => is_as_given(view, base, rebound, depth),
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, name) => FORMS.contains(&name.as_str()) && is_as_given(view, base, rebound, depth),
            _ => false,
        },
        _ => false,
    }
}

/// Where a backward returns the product of something with the weight in a slot, whatever its type is turned into, and where it makes that.
fn given_back(view: &View<'_>, slot: usize, weight: &str) -> Option<(Place, Place)> {
    let is_weight = |o: &Operand| {
        let mut expr = view.expr(o);
        while let Expr::Call { callee, .. } = expr {
            expr = match *callee {
                Expr::Attr(base, _) => *base,
                _ => return false,
            };
        }
        matches!(expr, Expr::Local(l) if view.local_name(l) == weight)
    };
    let is_product = |local: LocalId| {
        let made = |s: usize| {
            let weighed = multiplied(view, s).is_some_and(|(_, right, linear)| !linear && is_weight(right));
            let Stmt::Assign { dst, .. } = view.steps[s].stmt else { return false };
            // `de[rows] = d @ c`
            let stores = |reader: &usize| match view.steps[*reader].stmt {
                Stmt::SetItem { base, value, .. } => {
                    near::local(base) == Some(local) && near::local(value) == Some(*dst)
                }
                _ => false,
            };
            weighed && (*dst == local || view.readers(*dst).iter().any(stores))
        };
        (0..view.steps.len()).find(|s| made(*s))
    };
    view.steps.iter().find_map(|step| {
        let Stmt::Return { value } = step.stmt else { return None };
        let (_, Rvalue::Build { kind: BuildKind::Tuple, items }) = view.source(value)? else { return None };
        let Item::One(given) = items.get(slot)? else { return None };
        let mut local = near::local(given)?;
        if let Some((_, Rvalue::CallMethod { base, name, .. })) = view.source(given)
            && matches!(name.as_str(), "to" | "type_as" | "view" | "reshape" | "view_as")
        {
            local = near::local(base)?;
        }
        is_product(local).map(|made| (view.place(step.id), view.place(view.steps[made].id)))
    })
}
