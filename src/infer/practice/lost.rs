//! Results of collectives that are lost. In: a function. Out: in-place collectives on a copy that nothing keeps, and results that
//! nothing uses. Never: a factory's tensor, which a barrier or a warm-up reduces for its own sake. Next: `mod.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::ranks::mentions;
use super::view::{CollectiveCall, Guard, View};
use super::wrapped::function;
use crate::ir::{Arg, ArgKind, BinOp, LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, Resolved};
use crate::rules::{Entry, Form};
use crate::source::Name;

/// Methods that return a copy, always or where the tensor is not as asked.
pub const COPIES: &[&str] =
    &["contiguous", "clone", "to", "float", "half", "bfloat16", "double", "cuda", "cpu", "type", "int", "long"];

/// What stands in a function that takes the time of what it calls.
const TIMED: &[&str] = &["perf_counter", "elapsed_time", "cuda.event(", "time.monotonic()", "do_bench(", "timeit"];

/// `all_reduce(x.contiguous())`: the sum is written to a copy.
pub fn copies(view: &View<'_>, out: &mut Found) {
    // What only takes the time leaves its data as they are.
    for (step, call) in view.collectives() {
        let copied = written(call).and_then(|operand| copy(view, operand).or_else(|| named_copy(view, *step, operand)));
        let Some((made, method, copied)) = copied else { continue };
        let kept = || is_read_later(view, &copied, *step) || is_of_hook(view, &copied, *step);
        // A copy that goes first, and the original after it: the first exchange is for its own sake.
        let other = |(at, other): &(usize, CollectiveCall<'_>)| {
            at != step
                && written(other)
                    .is_some_and(|operand| near::deep(view, &view.expr(operand)) == near::deep(view, &copied))
        };
        let also = method == "clone" && view.collectives().iter().any(other);
        if !is_fresh(&copied) && kept() && !also && !is_itself(view, made, &copied) {
            if is_timed(view) {
                return;
            }
            let original = view.part(view.steps[made].id, 0);
            let practice = Practice::LostCopy { collective: last(&call.rule.name), method, original };
            out.push((view.place(view.steps[*step].id), practice));
        }
    }
}

/// Methods that compute a new tensor.
const COMPUTED: &[&str] = &["sum", "mean", "div", "mul", "add", "sub", "pow", "abs", "square"];

/// What a class of the project computes with as it likes.
const OPERATORS: &[&str] = &["__truediv__", "__add__", "__mul__", "__sub__"];
/// Words for a collective that is there to be waited for.
const WAITED: &[&str] = &["fence", "barrier", "warm", "synchroni"];

/// `all_reduce(x / n)`: the sum is written to the quotient, which nothing keeps, and `x` goes on as it was.
pub fn computed(view: &View<'_>, out: &mut Found) {
    for (step, call) in view.collectives() {
        let Some(Operand::Local(temp)) = written(call) else { continue };
        let [made] = view.defs(*temp) else { continue };
        // A name says what it is: only a quotient that is reduced is meant to be used.
        let quotient = matches!(view.value(*made), Some(Rvalue::Binary { .. }));
        if !is_given_once(view, *temp, *step) || !view.is_temp(*temp) && !quotient {
            continue;
        }
        // A list of tensors is joined to another one.
        if last(&call.rule.name).ends_with("coalesced") {
            continue;
        }
        let own = |name: &str| !view.project.methods_named(&Name::from(name)).is_empty();
        let operands = match view.value(*made) {
            Some(Rvalue::Binary { left, right, .. }) if !OPERATORS.iter().any(|name| own(name)) => vec![left, right],
            Some(Rvalue::CallMethod { base, name, .. }) if COMPUTED.contains(&name.as_str()) && !own(name) => {
                vec![base]
            }
            _ => continue,
        };
        let goes_on = |o: &&Operand| {
            let of = view.expr(o);
            matches!(of, Expr::Local(_) | Expr::Attr(..)) && !is_fresh(&of) && is_read_later(view, &of, *step)
        };
        // What is made here and scaled is a barrier; and a handle may be asked for what came out.
        let made_here = operands.iter().any(|o| near::deep(view, &view.expr(o)).any(&mut |e| is_factory(e)));
        let file = view.file();
        let asked = ["get_future", ".result("].iter().any(|w| file.contains(w));
        if !made_here
            && !asked
            && operands.into_iter().any(|o| goes_on(&o) && !is_no_tensor(view, o))
            && !is_timed(view)
        {
            let made = view.place(view.steps[*made].id);
            let practice = Practice::LostComputed { collective: last(&call.rule.name), made };
            out.push((view.place(view.steps[*step].id), practice));
        }
    }
}

/// Whether an attribute is an object of a class of its own: a method is called that tensors do not have.
fn is_no_tensor(view: &View<'_>, operand: &Operand) -> bool {
    let of = view.expr(operand);
    let called = |value: &Rvalue| match value {
        Rvalue::CallMethod { base, name, .. } => {
            view.rules.tensor_method(name).is_none() && !COMPUTED.contains(&name.as_str()) && view.expr(base) == of
        }
        _ => false,
    };
    matches!(of, Expr::Attr(..)) && (0..view.steps.len()).filter_map(|step| view.value(step)).any(called)
}

/// Whether a function takes the time of what it calls, or calls it to be waited for.
fn is_timed(view: &View<'_>) -> bool {
    let name = view.func.name.to_lowercase();
    let said = || near::notes(view).iter().any(|n| WAITED.iter().any(|w| n.text.contains(w)));
    let named = name.contains("bench") || WAITED.iter().any(|w| name.contains(w));
    named || TIMED.iter().any(|w| view.code().contains(w)) || said()
}

/// Whether what was copied is what a hook is given, which returns nothing and does nothing after a step.
fn is_of_hook(view: &View<'_>, copied: &Expr, step: usize) -> bool {
    let of = match copied {
        Expr::Item(of, _) => &**of,
        other => other,
    };
    let given = matches!(of, Expr::Local(local) if view.is_as_given(*local));
    let returns = |s: &super::view::Step<'_>| matches!(s.stmt, Stmt::Return { value } if !view.expr(value).is_none());
    given
        && view.func.name.contains("hook")
        && step + 1 >= view.steps.iter().filter(|s| !matches!(s.stmt, Stmt::Return { .. })).count()
        && !view.steps.iter().any(returns)
}

/// The tensor that a collective writes to.
pub(super) fn written<'a>(call: &CollectiveCall<'a>) -> Option<&'a Operand> {
    match call.rule.form {
        Form::InPlace => call.input,
        Form::IntoOutput => call.output,
        Form::Result | Form::IntoList | Form::SrcDst => None,
    }
}

/// Where a copy is made that nothing reads a second time, by which method, and of what.
fn copy(view: &View<'_>, operand: &Operand) -> Option<(usize, Name, Expr)> {
    let (temp, made, base, name) = is_copy(view, operand)?;
    let once = view.readers(temp).len() <= 1;
    once.then(|| (made, name.clone(), view.expr(base)))
}

/// Whether a variable goes to one step and nowhere else, on all ranks: one without a name, or one that nobody reads a second time.
fn is_given_once(view: &View<'_>, local: LocalId, step: usize) -> bool {
    let once = view.readers(local) == [step] && !view.is_param(local);
    let of_rank = |g: &Guard<'_>| mentions(view, g, &["rank", "main", "master", "src", "first", "last"]);
    match view.func.locals()[local].kind {
        LocalKind::Temp => once,
        LocalKind::Plain => once && !view.steps[step].guards.iter().any(of_rank),
        LocalKind::Captured | LocalKind::Cell => false,
    }
}

/// The same of a copy with a name that only the collective reads, on all ranks: the rank that sends one need not read it.
fn named_copy(view: &View<'_>, step: usize, operand: &Operand) -> Option<(usize, Name, Expr)> {
    let Operand::Local(copy) = operand else { return None };
    let ([made], LocalKind::Plain) = (view.defs(*copy), view.func.locals()[*copy].kind) else { return None };
    let Some(Rvalue::CallMethod { base, name, .. }) = view.value(*made) else { return None };
    (is_given_once(view, *copy, step) && COPIES.contains(&name.as_str()))
        .then(|| (*made, name.clone(), view.expr(base)))
}

/// Whether a conversion returns the tensor itself: it was converted the same way before, or made so, or is asked whether it is so.
fn is_itself(view: &View<'_>, made: usize, copied: &Expr) -> bool {
    let Some(Rvalue::CallMethod { name, args, .. }) = view.value(made) else { return false };
    if name == "clone" {
        return false;
    }
    let exprs = |args: &[Arg]| args.iter().map(|a| view.expr(&a.value)).collect::<Vec<_>>();
    let asked = |step: usize| match view.value(step) {
        Some(Rvalue::CallMethod { base, name, .. }) => name == "is_contiguous" && view.expr(base) == *copied,
        _ => false,
    };
    if name == "contiguous" && (0..made).any(asked) {
        return true;
    }
    let set = (0..made).rev().find_map(|step| match (view.steps[step].stmt, copied) {
        (Stmt::Assign { value: Rvalue::InPlace { .. }, .. }, _) => None,
        (Stmt::SetAttr { base, name, value }, Expr::Attr(of, attr)) => {
            (name == attr && view.expr(base) == **of).then(|| view.source(value))
        }
        (Stmt::Assign { dst, value }, Expr::Local(local)) if dst == local => Some(match value {
            Rvalue::Use(from) => view.source(from),
            made => Some((step, made)),
        }),
        _ => None,
    });
    let Some(Some((_, value))) = set else { return false };
    match value {
        Rvalue::CallMethod { name: before, args: given, .. } if before == name => exprs(given) == exprs(args),
        Rvalue::Call { .. } | Rvalue::CallMethod { .. } => is_made_so(view, value, name),
        Rvalue::Binary { op: BinOp::MatMul, .. } => name == "contiguous",
        _ => false,
    }
}

/// Functions and methods whose result is contiguous, or lies as its input does: products, reductions and what joins tensors.
const DENSE: &[&str] = &[
    "cat",
    "stack",
    "matmul",
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "linear",
    "softmax",
    "log_softmax",
    "sum",
    "mean",
    "norm",
    "amax",
    "amin",
    "logsumexp",
    "cross_entropy",
    "embedding",
    "bincount",
];

/// Whether a function of torch makes what a conversion returns as it is.
fn is_made_so<'a>(view: &View<'a>, value: &'a Rvalue, conversion: &str) -> bool {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return false };
    if let (Rvalue::CallMethod { name, .. }, "contiguous") = (value, conversion)
        && DENSE.contains(&name.as_str())
    {
        return true;
    }
    let Some(path) = view.callee(value).filter(|path| path.starts_with("torch.")) else { return false };
    let given = |wanted: &str| args.iter().any(|a| matches!(&a.kind, ArgKind::Keyword(name) if name == wanted));
    let factory = FACTORIES.contains(&last(&path).as_str());
    let makes = DENSE.contains(&last(&path).as_str());
    match conversion {
        // What is made like another tensor lies in memory like it.
        "contiguous" => factory && !path.ends_with("_like") || makes,
        "cuda" | "to" | "cpu" => factory && (given("device") || path.ends_with("_like")),
        "float" => factory && !given("dtype"),
        _ => false,
    }
}

/// The temporary that holds a copy, where it is made, of what, and by which method.
fn is_copy<'a>(view: &View<'a>, operand: &Operand) -> Option<(LocalId, usize, &'a Operand, &'a Name)> {
    let Operand::Local(temp) = operand else { return None };
    let ([made], LocalKind::Temp) = (view.defs(*temp), view.func.locals()[*temp].kind) else { return None };
    let Some(Rvalue::CallMethod { base, name, .. }) = view.value(*made) else { return None };
    COPIES.contains(&name.as_str()).then_some((*temp, *made, base, name))
}

/// `sum_into(x.contiguous())`, where the function writes the sum into what it is given, and nothing uses what it returns.
pub fn copies_for_calls(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value: Rvalue::Call { callee, args } } = step.stmt else { continue };
        if view.func.locals()[*dst].kind != LocalKind::Temp || !view.readers(*dst).is_empty() {
            continue;
        }
        let Some(at) = function(view, &view.through(callee)) else { continue };
        for (n, arg) in args.iter().enumerate().take_while(|(_, a)| a.kind == ArgKind::Positional) {
            let copied = copy(view, &arg.value).or_else(|| named_copy(view, i, &arg.value));
            let Some((made, method, copied)) = copied else { continue };
            let Some(collective) = written_by(&near::other(view, at), n) else { continue };
            if !is_fresh(&copied) && is_read_later(view, &copied, i) && !is_itself(view, made, &copied) {
                let practice = Practice::LostCopy { collective, method, original: view.part(step.id, n + 1) };
                out.push((view.place(step.id), practice));
            }
        }
    }
}

/// The collective by which a function writes to its n-th parameter.
fn written_by(inner: &View<'_>, n: usize) -> Option<Name> {
    let param = inner.func.params.get(n).filter(|p| inner.defs(p.local).is_empty())?.local;
    let (_, call) = inner.collectives().iter().find(|(_, call)| written(call) == Some(&Operand::Local(param)))?;
    Some(last(&call.rule.name))
}

/// Whether what was copied is read after a step: a copy that is reduced for its own sake is a barrier or a warm-up.
pub(super) fn is_read_later(view: &View<'_>, copied: &Expr, step: usize) -> bool {
    (step + 1..view.steps.len()).any(|s| {
        view.reads(s).iter().any(|o| {
            let read = view.expr(o);
            read.any(&mut |e| e == copied)
        })
    })
}

/// `reduce_from_region(x)` as a statement: the reduced value is thrown away.
pub fn results(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        let step = &view.steps[*i];
        let Stmt::Assign { dst, .. } = step.stmt else { continue };
        // One that is given where to write its result writes it there as well.
        let pure = matches!(call.rule.form, Form::Result) && call.rule.op != "layer" && call.output.is_none();
        let unused = view.func.locals()[*dst].kind == LocalKind::Temp && view.readers(*dst).is_empty();
        let fresh = call.input.is_none_or(|o| is_fresh(&view.expr(o)) || is_factory(&view.through(o)));
        if pure && unused && !fresh && view.defs(*dst) == [*i] && !reduces_in_place(view, *i) {
            let practice = Practice::UnusedResult { collective: last(&call.rule.name) };
            out.push((view.place(step.id), practice));
        }
    }
}

/// Whether the function of the project that a call calls lies beside a plain sum: such functions sum what is contiguous in place.
fn reduces_in_place(view: &View<'_>, step: usize) -> bool {
    let path = view.value(step).and_then(|value| view.callee(value));
    match path.map(|path| view.project.path(&path)) {
        Some(Resolved::Func(at)) => {
            let text = view.files[view.project.file(at.module)].whole();
            text.contains("distributed.all_reduce(") || text.contains("dist.all_reduce(")
        }
        _ => false,
    }
}

/// `Carry.apply(x, loss)` as a statement: what is used afterwards is `x` itself, and the backward never runs.
pub fn applied(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Assign { dst, value: value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) } =
            step.stmt
        else {
            continue;
        };
        if view.func.locals()[*dst].kind != LocalKind::Temp || !view.readers(*dst).is_empty() {
            continue;
        }
        let Some(Operand::Local(first)) = args.first().map(|a| &a.value) else { continue };
        let given = Expr::Local(*first);
        if view.is_temp(*first)
            || view.without_gradient(i)
            || near::is_unrecorded(view)
            || !is_read_later(view, &given, i)
        {
            continue;
        }
        let Some((path, rule)) = view.ruled(value) else { continue };
        let Some(class) = path.strip_suffix(".apply") else { continue };
        let carries = match view.project.path(class) {
            Resolved::Class(at) => is_carrier(view, at),
            // Of a library: one that returns what it is given.
            _ => matches!(rule, Some(Entry::Intrinsic(rule)) if rule.does == "identity"),
        };
        if carries {
            let (function, value) = (last(&Name::from(class)), view.local_name(*first).clone());
            let function = Name::from(format!("{function}.apply"));
            out.push((view.place(step.id), Practice::UnusedApply { function, value }));
        }
    }
}

/// Whether a class is an autograd function whose forward gives back what it was given and does nothing else, and whose backward makes a
/// gradient for something else: so it is there for its backward alone.
fn is_carrier(view: &View<'_>, at: ClassRef) -> bool {
    let class = view.project.class(at);
    let text = view.files[view.project.file(at.module)].slice(class.span);
    let bases = text.split_once(':').map_or("", |(head, _)| head);
    let method = |name: &str| Some(near::other(view, view.project.own_method(at, name)?));
    let (true, Some(forward), Some(backward)) =
        (bases.trim_end_matches(')').ends_with("Function"), method("forward"), method("backward"))
    else {
        return false;
    };
    let Some(given) = forward.func.params.get(1).map(|p| p.local).filter(|l| forward.defs(*l).is_empty()) else {
        return false;
    };
    let mut returned = forward.steps.iter().filter_map(|s| match s.stmt {
        Stmt::Return { value } => Some(*value == Operand::Local(given) || is_same(&forward.through(value), given)),
        _ => None,
    });
    let same = returned.next() == Some(true) && returned.all(|same| same);
    same && only_keeps(&forward, given) && makes_other_gradient(&backward)
}

/// How a forward gives back what it was given as a value of its own.
const SAME: &[&str] = &["view_as", "clone", "contiguous"];

/// `x.view_as(x)`
fn is_same(expr: &Expr, given: LocalId) -> bool {
    let Expr::Call { callee, .. } = expr else { return false };
    matches!(&**callee, Expr::Attr(base, name) if **base == Expr::Local(given) && SAME.contains(&name.as_str()))
}

/// Whether a forward does nothing but keep values for its backward.
fn only_keeps(forward: &View<'_>, given: LocalId) -> bool {
    let Some(ctx) = forward.func.params.first().map(|p| p.local) else { return false };
    forward.steps.iter().all(|s| match s.stmt {
        Stmt::Return { .. } => true,
        Stmt::SetAttr { base, .. } => *base == Operand::Local(ctx),
        Stmt::Assign { value: Rvalue::Use(_) | Rvalue::Attr { .. }, .. } => true,
        Stmt::Assign { value: Rvalue::CallMethod { base, name, .. }, .. } => {
            *base == Operand::Local(ctx) && name == "save_for_backward"
                || *base == Operand::Local(given) && SAME.contains(&name.as_str())
        }
        _ => false,
    })
}

/// Whether the one return of a backward gives the gradient on, and beside it something that is neither that gradient nor `None`.
fn makes_other_gradient(backward: &View<'_>) -> bool {
    let mut returned = backward.steps.iter().filter_map(|s| match s.stmt {
        Stmt::Return { value } => Some(backward.through(value)),
        _ => None,
    });
    let (Some(Expr::Build(gradients)), None) = (returned.next(), returned.next()) else { return false };
    let [first, others @ ..] = gradients.as_slice() else { return false };
    let Some(incoming) = backward.func.params.get(1).map(|p| Expr::Local(p.local)) else { return false };
    let made = |e: &Expr| matches!(near::deep(backward, e), Expr::Call { .. } | Expr::Binary(..));
    *first == incoming && others.iter().any(|e| made(e) && !e.is_none())
}

/// Whether a value is made on the spot, by a function.
fn is_fresh(expr: &Expr) -> bool {
    match expr {
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, _) => is_fresh(base),
            _ => true,
        },
        Expr::Const(_) | Expr::Build(_) | Expr::Unknown => true,
        _ => false,
    }
}

/// Functions that make a tensor of nothing, by the last part of their names.
const FACTORIES: &[&str] =
    &["zeros", "ones", "empty", "full", "tensor", "rand", "randn", "arange", "zeros_like", "ones_like"];

/// Whether a value is made by a factory: what a barrier or a warm-up reduces.
fn is_factory(expr: &Expr) -> bool {
    let Expr::Call { callee, .. } = expr else { return false };
    let made = |n: &str| FACTORIES.contains(&n);
    match &**callee {
        Expr::Attr(base, _) => is_factory(base),
        other => other.last_name().is_some_and(made),
    }
}

/// The last part of a qualified name.
pub fn last(path: &Name) -> Name {
    Name::from(path.rsplit('.').next().unwrap_or(path))
}
