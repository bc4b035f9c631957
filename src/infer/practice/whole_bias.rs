//! Biases that every rank adds in full before the results are summed. In: a forward. Out: a parameter that the constructor makes with whole sizes,
//! beside a weight whose size it divides by the number of ranks: it is added to the product with that weight, and what comes of it is summed over
//! these ranks. Never: a bias that is divided, or added on some ranks alone, or a class that tells ranks apart. Source: torchtitan, pull request
//! 4245. Next: `shared_bias.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::lapses::Lapse;
use super::shared_bias::{is_short, sums};
use super::view::{Guard, View};
use super::{Found, near};
use crate::ir::{ArgKind, BinOp, Const, FuncKind, LocalId, Operand, Rvalue, Stmt, UnOp};
use crate::source::{Name, Place};
use std::rc::Rc;

/// Methods through which a parameter stays that parameter.
const KEEPS: &[&str] = &[
    "to",
    "float",
    "half",
    "bfloat16",
    "type_as",
    "view",
    "reshape",
    "contiguous",
    "unsqueeze",
    "expand",
    "expand_as",
    "index_select",
];
/// Functions that multiply with a weight.
const MULTIPLIES: &[&str] = &[
    "bmm",
    "matmul",
    "mm",
    "linear",
    "einsum",
    "baddbmm",
    "addmm",
    "_grouped_mm",
    "grouped_mm",
    "grouped_gemm",
    "gmm",
];
/// Parts of names of sizes that are cut already.
const CUT: &[&str] = &["local", "partition", "shard", "per", "rank", "part", "split"];
/// Parts of names of numbers of ranks.
const SIZES: &[&str] = &["size", "degree", "world", "ranks", "tp", "mp"];
/// What a class says that tells its ranks apart, or does something else with a bias.
const OTHERWISE: &[&str] = &[
    "rank ==",
    "rank !=",
    "rank() ==",
    "rank() !=",
    "rank >",
    "rank() >",
    "not rank",
    "not self.rank",
    "is_first",
    "is_master",
    "rank:",
    "rank() else",
    "rank else",
    "zero_(",
    "zeros_like(",
    "skip_bias",
    "local_rank",
    "requires_grad=false",
    "register_hook",
];

/// `torch.bmm(h, self.w2) + self.b2`, then a sum over the ranks
pub fn added(view: &View<'_>, out: &mut Found) {
    let mut text = None;
    for i in 0..view.steps.len() {
        let Some((bias, sum, product)) = addition(view, i) else { continue };
        let Some((init, _, whole)) = made(view, &bias) else { continue };
        // Whether there is a bias is the same question on all ranks.
        let asks_bias = |g: &Guard<'_>| view.expr(g.test).any(&mut |e| e.last_name() == Some(bias.as_str()));
        if !(is_whole(&init, whole.clone()) || is_of_layer(&init, &whole))
            || !view.steps[i].guards.iter().all(asks_bias)
        {
            continue;
        }
        let Some((divisor, cut)) = weights(view, &product).into_iter().find_map(|weight| divided(view, &weight)) else {
            continue;
        };
        let Some(summed) = (i + 1..view.steps.len()).find(|s| sums(view, *s, sum, i)) else { continue };
        let text = text.get_or_insert_with(|| class_text(view));
        let tells_ranks = |line: &str| line.contains("rank(") && near::has_any(line, &[" == ", " != ", " else "]);
        if near::has_any(text, OTHERWISE)
            || text.lines().any(tells_ranks)
            || text.contains("- 1)")
            || is_seen_to(view, &bias)
            || !is_over(view, summed, &divisor)
            || !is_straight(view, summed, i)
        {
            return;
        }
        let mistake = Lapse::WholeBias { bias, summed: view.place(view.steps[summed].id), cut };
        out.push((view.place(view.steps[i].id), Practice::Lapse(mistake)));
    }
}

/// Whether another function of the file, beside the forward and the constructor, speaks of the bias and of ranks or their number: it may be other values
/// on each, or a share.
fn is_seen_to(view: &View<'_>, bias: &Name) -> bool {
    near::functions(view, view.at.module).into_iter().filter(|at| *at != view.at).any(|at| {
        let func = view.project.func(at);
        let text = view.text(view.spot(func.span)).to_lowercase();
        func.kind == FuncKind::Function
            && func.name != "__init__"
            && near::has_word(&text, &bias.to_lowercase())
            && near::has_any(&text, &["rank", "size", "world", "degree"])
    })
}

fn class_text(view: &View<'_>) -> String {
    let class = near::class_of(view).map(|class| view.project.modules[view.at.module].ir.classes[class].span);
    class.map_or(String::new(), |span| near::code(view, span))
}

/// The parameter that a step adds, what it makes and what it is added to.
fn addition(view: &View<'_>, step: usize) -> Option<(Name, LocalId, Operand)> {
    let Stmt::Assign { dst, value } = view.steps[step].stmt else { return None };
    match value {
        Rvalue::Binary { op: BinOp::Add, left, right } | Rvalue::InPlace { op: BinOp::Add, left, right } => {
            let (bias, other) = match (parameter(view, right, step), parameter(view, left, step)) {
                (Some(bias), None) => (bias, left),
                (None, Some(bias)) => (bias, right),
                _ => return None,
            };
            Some((bias, *dst, other.clone()))
        }
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }
            if near::written_name(view, value).is_some_and(|name| super::lost::last(&name) == "linear") =>
        {
            let named = |kind: &ArgKind| matches!(kind, ArgKind::Keyword(k) if k == "bias");
            let plain = args.iter().all(|a| a.kind == ArgKind::Positional || named(&a.kind));
            let bias = args.get(2).filter(|_| plain && args.len() == 3)?;
            Some((parameter(view, &bias.value, step)?, *dst, Operand::Local(*dst)))
        }
        _ => None,
    }
}

/// The name of the parameter of the object that an operand is at a step, in another form or shape.
fn parameter(view: &View<'_>, operand: &Operand, step: usize) -> Option<Name> {
    let (mut operand, mut step) = (operand, step);
    for _ in 0..super::super::limits::MAX_EXPR_DEPTH {
        if let Some(name) = near::own_attribute(view, &view.expr(operand)) {
            let bias = name.to_lowercase().contains("bias") || near::has_part(name, "b") || is_short(name);
            return bias.then(|| name.clone());
        }
        step = view.last_def(near::local(operand)?, step)?;
        operand = match view.value(step)? {
            Rvalue::Use(inner) => inner,
            Rvalue::CallMethod { base, name, .. } if KEEPS.contains(&name.as_str()) => base,
            Rvalue::Item { base, .. } => base,
            _ => return None,
        };
    }
    None
}

/// Where an attribute is made, once and as a parameter: the method, the step in it, and what it is made of.
fn made<'a>(view: &View<'a>, name: &str) -> Option<(Rc<View<'a>>, usize, Expr)> {
    let all = near::assigned(view, near::class_of(view)?, name);
    let [(method, step, value)] = all.as_slice() else { return None };
    let made = match method.through(value) {
        // Without a bias there is none.
        Expr::Choice(_, made, other) if other.is_none() => *made,
        made => made,
    };
    match near::deep(method, &made) {
        Expr::Call { callee, args, .. } if callee.last_name() == Some("Parameter") => {
            let (kind, data) = args.first()?;
            (*kind == ArgKind::Positional).then(|| (method.clone(), *step, near::deep(method, data)))
        }
        _ => None,
    }
}

/// A tensor without what hands it on as it is: `weight` of `weight.data.clone()`.
fn stripped(data: &Expr) -> &Expr {
    match data {
        Expr::Attr(of, name) if name == "data" => stripped(of),
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(of, name) if matches!(name.as_str(), "clone" | "detach" | "contiguous" | "to") => stripped(of),
            _ => data,
        },
        _ => data,
    }
}

/// Whether a value is the bias of a layer that the constructor is given, as it is.
fn is_of_layer(init: &View<'_>, data: &Expr) -> bool {
    match stripped(data) {
        Expr::Attr(of, name) => name == "bias" && matches!(&**of, Expr::Local(l) if init.is_as_given(*l)),
        _ => false,
    }
}

/// By what number of ranks a weight is cut along the dim of its inputs: `weight.chunk(n, dim=1)[rank]`.
fn chunked(init: &View<'_>, data: &Expr) -> Option<String> {
    match stripped(data) {
        Expr::Item(parts, _) => {
            let Expr::Call { callee, args, .. } = near::deep(init, parts) else { return None };
            let of_torch = callee.path().is_some_and(|path| path == "torch.chunk");
            if callee.last_name() != Some("chunk") {
                return None;
            }
            let given = &args[usize::from(of_torch).min(args.len())..];
            let (_, by) = given.first()?;
            let inputs = |e: &Expr| match e {
                Expr::Const(Const::Int(1)) => true,
                Expr::Unary(UnOp::Neg, of) => **of == Expr::Const(Const::Int(1)),
                _ => false,
            };
            given.get(1).is_some_and(|(_, dim)| inputs(dim)).then(|| named(init, by)).flatten()
        }
        _ => None,
    }
}

/// How a number of ranks is named, and what it is asked of.
fn named(init: &View<'_>, by: &Expr) -> Option<String> {
    let mut names = Vec::new();
    for e in [near::deep(init, by), by.clone()] {
        e.any(&mut |e| {
            names.extend(init.name_of(e).map(str::to_lowercase));
            false
        });
    }
    let ranks = names.iter().any(|name| SIZES.iter().any(|part| near::has_part(name, part)));
    ranks.then(|| names.join("_"))
}

/// The sizes of what `torch.empty` and its like make.
fn sizes(data: &Expr) -> Option<Vec<Expr>> {
    let Expr::Call { callee, args, .. } = data else { return None };
    let makes = matches!(&**callee, Expr::Path(path) if path.starts_with("torch."))
        && matches!(callee.last_name(), Some("empty" | "zeros" | "randn" | "ones" | "rand"));
    let given: Vec<&Expr> = args.iter().filter(|(kind, _)| *kind == ArgKind::Positional).map(|(_, e)| e).collect();
    match given.as_slice() {
        _ if !makes => None,
        [Expr::Build(all)] => Some(all.clone()),
        all => Some(all.iter().map(|e| (*e).clone()).collect()),
    }
}

/// Whether all sizes are those that the constructor is given, or its configuration has.
fn is_whole(init: &View<'_>, data: Expr) -> bool {
    let cut = |name: &str| CUT.iter().any(|part| near::has_part(name, part));
    let known = |e: &Expr| match near::deep(init, e) {
        Expr::Const(_) => true,
        Expr::Local(l) => init.is_as_given(l) && !cut(init.local_name(l)),
        Expr::Attr(of, name) => {
            let own = matches!(&*of, Expr::Local(l) if near::is_self(init, &Operand::Local(*l)));
            let given = |(method, _, value): &super::beside::Assigned<'_>| match method.through(value) {
                Expr::Local(l) => method.is_as_given(l) && !cut(method.local_name(l)),
                Expr::Attr(_, name) => !cut(&name),
                _ => false,
            };
            let set = || near::class_of(init).map(|class| near::assigned(init, class, &name)).unwrap_or_default();
            !cut(&name) && (!own || matches!(set().as_slice(), [one] if given(one)))
        }
        _ => false,
    };
    sizes(&data).is_some_and(|all| !all.is_empty() && all.iter().all(known))
}

/// The parameters that a product is made with.
fn weights(view: &View<'_>, product: &Operand) -> Vec<Name> {
    let first = |operand: &Operand| view.value(*view.defs(near::local(operand)?).first()?);
    let Some(mut value) = first(product) else { return Vec::new() };
    // Names may be bound to one another in a circle.
    for _ in 0..super::super::limits::MAX_EXPR_DEPTH {
        let Rvalue::Use(inner) = value else { break };
        let Some(next) = first(inner) else { return Vec::new() };
        value = next;
    }
    let own = |o: &Operand| near::own_attribute(view, &view.through(o)).cloned();
    match value {
        Rvalue::Binary { op: BinOp::MatMul, left, right } => [left, right].into_iter().filter_map(own).collect(),
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }
            if near::written_name(view, value)
                .is_some_and(|n| MULTIPLIES.contains(&super::lost::last(&n).as_str())) =>
        {
            let stripped = |o: &Operand| match view.through(o) {
                Expr::Call { callee, .. } => match *callee {
                    Expr::Attr(of, name)
                        if matches!(name.as_str(), "t" | "transpose" | "to" | "type_as" | "bfloat16") =>
                    {
                        near::own_attribute(view, &of).cloned()
                    }
                    _ => None,
                },
                Expr::Attr(of, name) if name == "T" || name == "mT" => near::own_attribute(view, &of).cloned(),
                e => near::own_attribute(view, &e).cloned(),
            };
            args.iter().filter_map(|a| stripped(&a.value)).collect()
        }
        _ => Vec::new(),
    }
}

/// The number of ranks that the size of a parameter is divided by, as it is written, and where the parameter is made.
fn divided(view: &View<'_>, weight: &str) -> Option<(String, Place)> {
    let (init, step, data) = made(view, weight)?;
    let by = match sizes(&data) {
        Some(sizes) => sizes.iter().find_map(|size| divisor(&init, size))?,
        None => chunked(&init, &data)?,
    };
    Some((by, init.place(init.steps[step].id)))
}

/// What a size is divided by, if that is named as a number of ranks is.
fn divisor(init: &View<'_>, size: &Expr) -> Option<String> {
    let mut size = near::deep(init, size);
    if let Some(name) = near::own_attribute(init, &size).cloned()
        && let Some(class) = near::class_of(init)
    {
        let all = near::assigned(init, class, &name);
        let [(method, _, value)] = all.as_slice() else { return None };
        if method.at != init.at {
            return None;
        }
        size = near::deep(init, &method.through(value));
    }
    let by = match size {
        Expr::Binary(BinOp::FloorDiv, _, by) => *by,
        Expr::Call { callee, args, .. } if callee.last_name() == Some("divide") => args.get(1)?.1.clone(),
        _ => return None,
    };
    named(init, &by)
}

/// Whether what a step sums over are the ranks that a size was divided by.
fn is_over(view: &View<'_>, step: usize, divisor: &str) -> bool {
    let general = [
        "size",
        "get",
        "group",
        "mesh",
        "world",
        "self",
        "device",
        "dist",
        "torch",
        "distributed",
        "rank",
        "process",
        "parallel",
        "pg",
    ];
    let text = view.text(view.place(view.steps[step].id)).to_lowercase();
    let words = |text: &str| text.split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect::<Vec<_>>();
    let said = words(&text);
    let specific = |word: &&String| !word.is_empty() && !general.contains(&word.as_str());
    let of_divisor = words(divisor);
    let same = of_divisor.iter().filter(specific).any(|word| said.contains(word));
    let tensor = |words: &[String]| words.iter().any(|w| matches!(w.as_str(), "tp" | "tensor" | "mp" | "model"));
    // Without a group both are about all ranks.
    let all = !said.iter().any(|w| matches!(w.as_str(), "group" | "mesh" | "pg"));
    let whole = all && of_divisor.iter().any(|w| w == "world") && !of_divisor.iter().any(|w| specific(&w));
    same || whole || tensor(&said) && tensor(&of_divisor)
}

/// Whether what a step sums is what another one made, in another form or shape at most.
fn is_straight(view: &View<'_>, summed: usize, added: usize) -> bool {
    let Some(value) = view.value(summed) else { return false };
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return false };
    let input = view.collective(value).and_then(|call| call.input).or(args.first().map(|a| &a.value));
    let Some(mut operand) = input else { return false };
    let mut before = summed;
    for _ in 0..super::super::limits::MAX_EXPR_DEPTH {
        let Some(step) = near::local(operand).and_then(|local| view.last_def(local, before)) else { return false };
        if step == added {
            return true;
        }
        operand = match view.value(step) {
            Some(Rvalue::Use(inner)) => inner,
            Some(Rvalue::CallMethod { base, name, .. }) if KEEPS.contains(&name.as_str()) => base,
            _ => return false,
        };
        before = step;
    }
    false
}
