//! Means of each rank's own tokens whose gradients are summed as they are. In: a class with a weight whose mark says that its gradient is summed
//! over ranks with other tokens. Out: an auxiliary loss that is a mean over the tokens of one rank and is attached to what the weight gives,
//! without a division by the number of these ranks. Never: a loss, or a factor of it, that speaks of sizes or counts, or a class that
//! communicates. Source: Megatron-LM, z-loss of a router. Next: `part_mean.rs`, `marks.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::lapses::Lapse;
use super::marking::{is_off, mark_set};
use super::view::View;
use super::{Class, Found, Lint, near};
use crate::ir::{ArgKind, BinOp, LocalId, Operand, Rvalue, Stmt, UnOp};
use crate::project::{ClassRef, FuncRef};
use crate::rules::Entry;
use crate::source::{Name, Place};
use crate::types::AxisType;
use std::rc::Rc;

/// Parts of names of numbers that may hold a number of ranks or tokens.
const SIZES: &[&str] = &[
    "size", "world", "degree", "rank", "group", "parallel", "shard", "token", "count", "scale", "length", "seq", "mesh",
];
/// The same, between underscores.
const AXES: &[&str] = &["tp", "sp", "cp", "n", "num"];
/// What a function is called that communicates, or may hand on to one that does.
const COMMUNICATES: &[&str] = &["reduce", "all_gather", "allgather", "gather_from", "all_to_all", "sync"];
/// Methods that give the same number in another form.
const SAME: &[&str] = &["float", "to", "type", "type_as", "double"];

/// A weight whose gradient is summed, and what says so.
struct Summed {
    weight: Name,
    mark: Name,
    axes: Vec<Name>,
    place: Place,
}

/// A mean, and where it is taken.
type Mean = Place;

/// `Scaler.apply(logits, z_loss(logits, coeff))`, where `self.weight.sequence_parallel = True`.
pub fn attached<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let file = &lint.files[lint.project.file(class.at.module)];
    let attaches = |text: &str| text.contains(".apply(") && text.contains("loss");
    if !attaches(file.slice(lint.project.class(class.at).span)) {
        return;
    }
    let own =
        lint.project.class(class.at).methods.iter().map(|(_, func)| FuncRef { module: class.at.module, func: *func });
    for method in own.filter(|at| attaches(file.slice(lint.project.func(*at).span))).map(|at| lint.view(at)) {
        for (step, activation, loss) in attachments(&method) {
            let Some((made, name, mean)) = own_mean(&method, step, loss) else { continue };
            let Some(summed) = summed(lint, class.at) else { return };
            let methods = own_methods(lint, class.at);
            let reads = methods.iter().any(|m| gives(m, &summed.weight));
            let silent = !reads
                || !is_of_tokens(&method, activation)
                || methods.iter().any(|m| communicates_first(m, &method.func.name))
                || asks_axes(&method, step)
                || is_divided(lint, &summed)
                || is_gathered(lint, class.at);
            if silent {
                return;
            }
            let mistake = Lapse::MeansSummed {
                loss: name,
                weight: summed.weight,
                mark: summed.mark,
                axes: summed.axes,
                mean,
                marked: summed.place,
                attached: method.place(method.steps[step].id),
            };
            out.push((made, Practice::Lapse(mistake)));
            return;
        }
    }
}

/// The methods of a class, and those of its bases in the project.
pub fn own_methods<'a>(lint: &Lint<'a>, class: ClassRef) -> Vec<View<'a>> {
    let order = lint.settings.statics.linearized(class);
    let of = |at: &ClassRef| {
        let module = at.module;
        let methods = &lint.project.class(*at).methods;
        methods.iter().map(|(_, func)| FuncRef { module, func: *func }).collect::<Vec<_>>()
    };
    order.iter().flat_map(of).map(|at| lint.view(at)).collect()
}

/// The steps that attach a loss to a value, by a function that the rules know, with both.
fn attachments<'a>(view: &View<'a>) -> Vec<(usize, &'a Operand, &'a Operand)> {
    let of = |step: usize| {
        let value = view.value(step)?;
        let (_, Some(Entry::Intrinsic(rule))) = view.ruled(value)? else { return None };
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
        let loss = rule.args.index("loss").filter(|at| rule.does == "identity" && *at > 0)?;
        let plain = args.len() > loss && args.iter().all(|a| a.kind == ArgKind::Positional);
        plain.then(|| (step, &args[0].value, &args[loss].value))
    };
    (0..view.steps.len()).filter_map(of).collect()
}

/// Where a loss is made that is a mean of this rank's values and nothing else is done with, what it is called, and the mean.
fn own_mean(view: &View<'_>, attached: usize, loss: &Operand) -> Option<(Place, Option<Name>, Mean)> {
    let (made, _) = view.source(loss)?;
    let name = near::local(loss).filter(|l| !view.is_temp(*l));
    let before = |s: &&usize| **s != attached && **s < attached;
    let untouched = |l: LocalId| {
        view.readers(l).iter().filter(before).all(|s| match view.value(*s) {
            Some(Rvalue::CallMethod { name, .. }) => name == "detach" || name == "item",
            Some(Rvalue::Binary { .. } | Rvalue::Compare { .. } | Rvalue::Attr { .. }) => true,
            _ => false,
        })
    };
    if !name.is_none_or(untouched) {
        return None;
    }
    let mean = mean(view, &view.expr(loss), 0)?;
    Some((view.place(view.steps[made].id), name.map(|l| view.local_name(l).clone()), mean))
}

/// Where the mean is taken of which an expression is a multiple, by a coefficient that is known to be one.
fn mean(view: &View<'_>, expr: &Expr, depth: usize) -> Option<Mean> {
    if depth > super::super::limits::MAX_VALUE_DEPTH {
        return None;
    }
    let within = |e: &Expr| mean(view, e, depth + 1);
    match near::deep(view, expr) {
        Expr::Binary(BinOp::Mul, a, b) => match within(&a) {
            Some(found) => is_coefficient(view, &b, 0).then_some(found),
            None => within(&b).filter(|_| is_coefficient(view, &a, 0)),
        },
        Expr::Binary(BinOp::Div, a, b) => within(&a).filter(|_| is_coefficient(view, &b, 0)),
        Expr::Call { callee, args, step } => match &*callee {
            Expr::Path(path) if path == "torch.mean" => {
                let [(ArgKind::Positional, of)] = args.as_slice() else { return None };
                is_own(view, of).then(|| view.place(view.steps[step].id))
            }
            Expr::Attr(of, name) if name == "mean" && args.is_empty() => {
                is_own(view, of).then(|| view.place(view.steps[step].id))
            }
            Expr::Attr(of, name) if SAME.contains(&name.as_str()) => within(of),
            _ => of_helper(view, step, depth),
        },
        _ => None,
    }
}

/// The mean that a function of the project gives, which is given values and coefficients.
fn of_helper(view: &View<'_>, step: usize, depth: usize) -> Option<Mean> {
    let (at, args) = match view.value(step)? {
        Rvalue::Call { callee, args } => (near::function(view, callee)?, args),
        Rvalue::CallMethod { base, name, args } if near::is_self(view, base) => {
            let class = ClassRef { module: view.at.module, class: near::class_of(view)? };
            (view.project.own_method(class, name)?, args)
        }
        _ => return None,
    };
    let helper: Rc<View<'_>> = near::shared(view, at);
    let mut returned = helper.steps.iter().filter_map(|s| match s.stmt {
        Stmt::Return { value } => Some(value),
        _ => None,
    });
    let (Some(value), None) = (returned.next(), returned.next()) else { return None };
    let plain =
        args.iter().all(|a| is_coefficient(view, &view.expr(&a.value), 0) || is_own(view, &view.expr(&a.value)));
    let names = helper.func.params.iter().any(|p| speaks_of_size(&p.name));
    if at == view.at || !plain || names || communicates(&helper).is_some() {
        return None;
    }
    mean(&helper, &helper.expr(value), depth + 1)
}

/// Whether a number is one that the configuration gives, and has nothing of sizes or counts in it.
fn is_coefficient(view: &View<'_>, expr: &Expr, depth: usize) -> bool {
    if depth > super::super::limits::MAX_VALUE_DEPTH {
        return false;
    }
    let deeper = |e: &Expr| is_coefficient(view, e, depth + 1);
    match near::deep(view, expr) {
        Expr::Const(_) => true,
        Expr::Unary(UnOp::Neg, of) => deeper(&of),
        Expr::Binary(BinOp::Mul | BinOp::Div, a, b) => deeper(&a) && deeper(&b),
        Expr::Local(l) => view.is_as_given(l) && !speaks_of_size(view.local_name(l)),
        Expr::Attr(of, name) => {
            let whole = Expr::Attr(of.clone(), name.clone());
            let set = near::own_attribute(view, &whole).zip(near::class_of(view)).map(|(own, class)| {
                let values = near::assigned(view, class, own);
                // What nothing sets is a property, or that of a base.
                !values.is_empty()
                    && values.iter().all(|(method, _, value)| is_coefficient(method, &method.expr(value), depth + 1))
            });
            // What divides it elsewhere may do so for this.
            let divided = || view.files.any_says(&format!("{name} /"));
            !speaks_of_size(&name) && set.unwrap_or_else(|| is_chain(view, &of)) && !divided()
        }
        _ => false,
    }
}

/// `self.config`, `args`
fn is_chain(view: &View<'_>, expr: &Expr) -> bool {
    match expr {
        Expr::Local(l) => !speaks_of_size(view.local_name(*l)),
        Expr::Attr(of, name) => !speaks_of_size(name) && is_chain(view, of),
        _ => false,
    }
}

fn speaks_of_size(name: &str) -> bool {
    let name = name.to_lowercase();
    near::has_any(&name, SIZES) || AXES.iter().any(|axis| near::has_part(&name, axis))
}

/// Whether a value is made of what the function is given by operations of torch alone, none of which counts or communicates.
fn is_own(view: &View<'_>, expr: &Expr) -> bool {
    is_own_within(view, expr, 0)
}

fn is_own_within(view: &View<'_>, expr: &Expr, depth: usize) -> bool {
    if depth > super::super::limits::MAX_EXPR_DEPTH {
        return false;
    }
    let deeper = |e: &Expr| is_own_within(view, e, depth + 1);
    match near::deep(view, expr) {
        Expr::Const(_) => true,
        Expr::Path(path) => path.starts_with("torch.") && !path.starts_with("torch.distributed"),
        Expr::Local(l) => view.is_param(l) && !speaks_of_size(view.local_name(l)),
        Expr::Unary(_, a) => deeper(&a),
        Expr::Binary(BinOp::Mul | BinOp::Add | BinOp::Sub | BinOp::Pow, a, b) => deeper(&a) && deeper(&b),
        Expr::Call { callee, args, .. } => {
            let called = match &*callee {
                Expr::Path(path) => path.starts_with("torch.") && !path.starts_with("torch.distributed"),
                Expr::Attr(of, name) => view.rules.tensor_method(name).is_some() && deeper(of),
                _ => false,
            };
            called && args.iter().all(|(_, a)| deeper(a))
        }
        _ => false,
    }
}

/// Whether a value that a loss is attached to is what the method is given, or made of it.
fn is_of_tokens(view: &View<'_>, activation: &Operand) -> bool {
    let given = |l: &LocalId| view.is_param(*l) && view.local_name(*l) != "self";
    near::roots(view, activation).iter().any(given)
}

/// The weight of a class that is marked so that its gradient is summed over ranks.
fn summed(lint: &Lint<'_>, class: ClassRef) -> Option<Summed> {
    let mut found = None;
    for at in lint.settings.statics.linearized(class).iter() {
        let Some(init) = lint.constructor(*at) else { continue };
        for step in &init.steps {
            let Some((target, mark)) = mark_set(&init, step.stmt) else { continue };
            let Some(weight) = near::own_attribute(&init, &target) else { continue };
            // A mark that tells how gradients are averaged says that they are no sums.
            if ["avg", "average", "mean"].iter().any(|word| mark.contains(word)) {
                return None;
            }
            let Some(rule) = init.rules.mark(&mark).filter(|r| r.set == AxisType::R) else { continue };
            if !is_off(&init, step.stmt) && found.is_none() {
                let (weight, axes, place) = (weight.clone(), rule.axes.clone(), init.place(step.id));
                found = Some(Summed { weight, mark, axes, place });
            }
        }
    }
    found
}

/// Whether a method hands a weight to a function or a product.
fn gives(method: &View<'_>, weight: &Name) -> bool {
    method.func.name != "__init__"
        && (0..method.steps.len()).any(|i| {
            let takes = match method.value(i) {
                Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => args.len() > 1,
                Some(Rvalue::Binary { op, .. }) => *op == BinOp::MatMul,
                _ => false,
            };
            let own = |e: &Expr| near::own_attribute(method, e) == Some(weight);
            takes && method.reads(i).into_iter().any(|o| method.through(o).any(&mut |e| own(e)))
        })
}

/// The first step of a method that communicates, or may.
fn communicates(method: &View<'_>) -> Option<usize> {
    let named = |i: usize| {
        let value = method.value(i)?;
        let of_torch =
            method.callee(value).is_some_and(|path| path.starts_with("torch.") && !path.contains("distributed"));
        near::name_of_call(method, i).filter(|_| !of_torch)
    };
    let by_name = |i: &usize| named(*i).is_some_and(|name| near::has_any(&name, COMMUNICATES));
    let first = method.collectives().first().map(|(at, _)| *at);
    (0..method.steps.len()).find(by_name).into_iter().chain(first).min()
}

/// Whether a method communicates before it has the loss attached, or without that.
fn communicates_first(method: &View<'_>, attaching: &Name) -> bool {
    let attaches = |i: &usize| matches!(method.value(*i), Some(Rvalue::CallMethod { base, name, .. }) if name == attaching && near::is_self(method, base));
    communicates(method).is_some_and(|at| !(0..at).any(|i| attaches(&i) && method.steps[i].guards.is_empty()))
}

/// Whether a loss is attached under a test that asks how the tokens are split.
fn asks_axes(view: &View<'_>, step: usize) -> bool {
    view.steps[step].guards.iter().any(|guard| {
        let test = view.text(view.part(guard.at, 0));
        test.split(|c: char| !c.is_alphanumeric() && c != '_').any(speaks_of_size)
    })
}

/// Whether what sums the gradients may divide them, or what scales the losses knows of the ranks.
fn is_divided(lint: &Lint<'_>, summed: &Summed) -> bool {
    let asks = |text: &str| text.contains(summed.mark.as_str());
    let reduces = lint.reducers().all.iter().filter(|r| r.asks(&summed.mark) || r.axes.is_none());
    let divides = |code: &str| near::has_any(code, &["avg", "div", " / ", "/=", "mul_(", "*="]);
    let mut reducers = reduces.map(|r| lint.view(r.func)).filter(|view| asks(view.code()));
    reducers.any(|view| divides(view.code())) || is_scaled(lint)
}

/// Whether what scales the losses that are attached knows of the ranks that split a sequence.
pub fn is_scaled(lint: &Lint<'_>) -> bool {
    lint.files.saying("set_loss_scale(").any(|file| {
        let text = lint.files[file].whole();
        text.match_indices("set_loss_scale(").any(|(at, _)| {
            // A call that ends on its line is all that is given.
            let first = text[at..].lines().next().unwrap_or_default();
            let ends = first.matches('(').count() == first.matches(')').count();
            let given = text[at..].lines().take(if ends { 1 } else { 3 }).collect::<String>();
            let words = [
                "tensor_model",
                "tensor_parallel",
                "tp_size",
                "tp_group",
                "tp_world",
                "_tp",
                "tp_cp",
                "model_parallel",
            ];
            words.iter().any(|word| given.contains(word))
        })
    })
}

/// Whether a file that names the class gathers values along the axes: the class may get all tokens.
fn is_gathered(lint: &Lint<'_>, class: ClassRef) -> bool {
    let (name, span) = (&lint.project.class(class).name, lint.project.class(class).span);
    let shown = |path: &Name| {
        let last = super::lost::last(path).to_lowercase().to_string();
        let class = path.strip_suffix(".apply").map(|class| super::lost::last(&Name::from(class)).to_lowercase());
        class.map_or(last, |class| format!("{class}.apply"))
    };
    let gathering = lint.rules.collectives().filter(|rule| rule.differentiable && rule.op == "all_gather");
    // An index picks entries by a method of that name.
    let gathers: Vec<String> = gathering.map(|rule| shown(&rule.name)).filter(|name| name != "gather").collect();
    let calls = |code: &str, name: &String| near::words(code, name).any(|at| code[at + name.len()..].starts_with('('));
    lint.files.saying(name).any(|file| {
        let whole = lint.files[file].whole();
        // What the class itself does is looked at more closely.
        let own = (file == lint.project.file(class.module)).then_some(span.start as usize..span.end as usize);
        let (before, after) = own.map_or((whole, ""), |own| (&whole[..own.start], &whole[own.end..]));
        let code = format!("{}\n{}", near::bare(before), near::bare(after));
        gathers.iter().any(|gather| calls(&code, gather))
    })
}
