//! Inputs whose gradient is summed on one side of a flag alone. In: a method that gathers its input where a flag holds, by a collective whose
//! backward sums, and hands it on as it is where it does not. Out: the input that goes on plain to a weight of which each rank has a part,
//! in a class that sums its output itself on both sides of the same flag, or takes a loss of the ranks' parts of it. Never: a file, or one that names the class, where anything
//! copies values to the ranks or has hooks and backwards of its own. Source: Megatron-LM, shared experts. Next: `whole_input.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::lapses::Lapse;
use super::partition::marks_part;
use super::view::{CollectiveCall, Guard, View};
use super::{Found, near};
use crate::ir::{ArgKind, ClassId, Const, LocalId, Operand, Rvalue, Stmt, UnOp};
use crate::project::ClassRef;
use crate::rules::{CollectiveRule, Entry, Form, Transition};
use crate::source::{Name, Place};
use crate::types::AxisType;
use std::rc::Rc;
use std::sync::Arc;

/// Words of code that may sum the gradient of an input in a way that is not followed.
const OTHERWISE: &[&str] = &["backward(", "_hook(", ".apply(", "function)", "no_grad", "detach(", "requires_grad"];

/// Parts of names of functions that may copy a value to the ranks.
const COPIES: &[&str] =
    &["copy(", "copy_(", "copy_in", "copy_input", "enter_", "_enter", "to_tp", "into_tp", "broadcast"];

/// Methods that give the same values.
const VIEWS: &[&str] = &["view", "reshape", "flatten", "contiguous", "transpose", "unsqueeze", "squeeze", "t", "to"];

/// `return gather(x) if self.flag else x`, where `self.flag` decides between two sums of the output as well.
pub fn handed_on(view: &View<'_>, out: &mut Found) {
    let Some(class) = view.func.class else { return };
    for (g, call) in view.collectives() {
        if call.rule.op != "all_gather" || !is_of(view, call, AxisType::V, AxisType::R) || view.without_gradient(*g) {
            continue;
        }
        let (Some(flag), Some(input)) = (flag(view, *g), parameter(view, call, *g)) else { continue };
        let Some((plain, at)) = plain(view, *g, input) else { continue };
        let summed = sums_output(view, class, &flag, call).or_else(|| loses_parts(view, class));
        let Some(summed) = summed else { continue };
        let Some((weight, used)) = meets_part(view, class, &plain) else { continue };
        let copies = copies(view, call);
        if copies.is_empty() || may_be_summed(view, class, &copies) {
            continue;
        }
        let mistake = Lapse::PlainInput {
            input: view.local_name(input).clone(),
            flag: (flag.name, flag.holds),
            weight,
            collective: super::lost::last(&call.rule.name),
            gathered: view.place(view.steps[*g].id),
            used,
            summed,
            repair: copies.iter().find_map(|rule| rule.repair.clone()),
        };
        out.push((at, Practice::Lapse(mistake)));
        return;
    }
}

/// What decides, and its value where a step runs.
#[derive(PartialEq)]
struct Flag {
    name: Name,
    holds: bool,
}

/// The attribute of the object that alone decides whether a step runs.
fn flag(view: &View<'_>, step: usize) -> Option<Flag> {
    let [guard] = view.steps[step].guards.as_slice() else { return None };
    of_guard(view, guard).filter(|flag| is_configured(view, &flag.name))
}

/// Whether a flag is one of the configuration, of which nothing says that it holds wherever there are several ranks.
fn is_configured(view: &View<'_>, flag: &str) -> bool {
    let name = flag.rsplit('.').next().unwrap_or(flag);
    let Some(class) = view.func.class else { return false };
    let text = view.text(view.spot(view.project.class(ClassRef { module: view.at.module, class }).span));
    let refuses = |line: &str| (line.contains("assert ") || line.contains("if ")) && line.contains(name);
    let guarded = text
        .lines()
        .zip(text.lines().skip(1))
        .any(|(line, next)| refuses(line) && (line.contains("assert ") || next.trim_start().starts_with("raise")));
    let computed = near::assigned(view, class, name)
        .iter()
        .any(|(method, _, value)| matches!(method.through(value), Expr::Bool { .. } | Expr::Compare(..)));
    !guarded && !computed && !["training", "infer", "eval", "decod"].iter().any(|word| name.contains(word))
}

fn of_guard(view: &View<'_>, guard: &Guard<'_>) -> Option<Flag> {
    let (test, holds) = match near::deep(view, &view.expr(guard.test)) {
        Expr::Unary(UnOp::Not, of) => (near::deep(view, &of), !guard.holds),
        test => (test, guard.holds),
    };
    Some(Flag { name: spelled(view, &test)?, holds })
}

/// `self.flag`, `self.config.flag`
fn spelled(view: &View<'_>, expr: &Expr) -> Option<Name> {
    match expr {
        Expr::Attr(base, name) => match &**base {
            Expr::Local(l) if view.local_name(*l) == "self" => Some(Name::from(format!("self.{name}"))),
            base => Some(Name::from(format!("{}.{name}", spelled(view, base)?))),
        },
        _ => None,
    }
}

/// The parameter that a collective is given as it came in, whatever it is bound to afterwards.
fn parameter(view: &View<'_>, call: &CollectiveCall<'_>, step: usize) -> Option<LocalId> {
    let Expr::Local(local) = view.expr(call.input?) else { return None };
    let before = view.defs(local).iter().all(|d| view.steps[*d].id == view.steps[step].id || *d > step);
    (view.is_param(local) && before).then_some(local)
}

/// Whether a differentiable collective takes and gives values of these types.
fn is_of<'a>(view: &View<'a>, call: &CollectiveCall<'a>, from: AxisType, to: AxisType) -> bool {
    transition(view, call).is_some_and(|t| t.source.set.bits() & from.bits() != 0 && t.result.set == to)
        && call.rule.differentiable
        && call.rule.form == Form::Result
}

/// The row of the rule that holds for the arguments, where these are constants.
fn transition<'r, 'a>(view: &View<'a>, call: &'r CollectiveCall<'a>) -> Option<&'r Transition> {
    for (condition, row) in &call.rule.transitions {
        let Some((arg, wanted)) = condition else { return Some(row) };
        let name = &call.rule.args.params.get(*arg)?.name;
        let given = match view.argument(call.args, *arg, name).map(|o| view.expr(o)) {
            None => continue,
            Some(Expr::Const(Const::Bool(true))) => "True",
            Some(Expr::Const(Const::Bool(false))) => "False",
            Some(_) => return None,
        };
        if given == wanted.as_str() {
            return Some(row);
        }
    }
    None
}

/// Where the plain value goes on.
enum Plain {
    /// The method returns it.
    Returned(Name),
    Local(LocalId),
    /// An attribute of the object has it.
    Kept(Name),
}

/// What has the gathered value on one side of the flag and the parameter itself on the other, and where it gets that.
fn plain(view: &View<'_>, gathered: usize, input: LocalId) -> Option<(Plain, Place)> {
    let Stmt::Assign { dst, .. } = view.steps[gathered].stmt else { return None };
    let guard = view.steps[gathered].guards.last()?;
    let other = |i: usize| {
        let guards = &view.steps[i].guards;
        guards.len() == 1 && guards[0].at == guard.at && guards[0].holds != guard.holds
    };
    let is_input = |o: &Operand| view.expr(o) == Expr::Local(input);
    // `x = gather(x)` alone on its side.
    let mut bound = vec![*dst];
    for (i, step) in view.steps.iter().enumerate() {
        let from_here = |o: &Operand| near::local(o).is_some_and(|l| bound.contains(&l));
        match step.stmt {
            Stmt::Assign { dst, value: Rvalue::Use(from) } if i > gathered && from_here(from) && !other(i) => {
                bound.push(*dst);
            }
            Stmt::Return { value } if other(i) && is_input(value) && returns(view, &bound) => {
                return Some((Plain::Returned(view.func.name.clone()), view.place(step.id)));
            }
            Stmt::SetAttr { base, name, value } if other(i) && near::is_self(view, base) && is_input(value) => {
                let kept = |s: &super::view::Step<'_>| match s.stmt {
                    Stmt::SetAttr { name: own, value, .. } => own == name && from_here(value),
                    _ => false,
                };
                if view.steps.iter().any(kept) {
                    return Some((Plain::Kept(name.clone()), view.place(step.id)));
                }
            }
            Stmt::Assign { dst, value: Rvalue::Use(from) } if other(i) && is_input(from) && bound.contains(dst) => {
                return Some((chosen(view, *dst), view.place(step.id)));
            }
            _ => {}
        }
    }
    let rebound = bound.contains(&input) && view.defs(input).len() == 1;
    rebound.then(|| (chosen(view, input), view.place(view.steps[gathered].id)))
}

/// Whether one of these is returned.
fn returns(view: &View<'_>, bound: &[LocalId]) -> bool {
    view.steps.iter().any(|s| match s.stmt {
        Stmt::Return { value } => near::local(value).is_some_and(|l| bound.contains(&l)),
        _ => false,
    })
}

/// A variable that has both, or what it is returned as.
fn chosen(view: &View<'_>, local: LocalId) -> Plain {
    match returns(view, &[local]) {
        true => Plain::Returned(view.func.name.clone()),
        false => Plain::Local(local),
    }
}

/// Where the class sums its output over the same ranks where the flag does not hold, and scatters the sum where it does.
fn sums_output(view: &View<'_>, class: ClassId, flag: &Flag, gather: &CollectiveCall<'_>) -> Option<Place> {
    near::methods(view, class).iter().find_map(|method| {
        let on = |op: &str, to: AxisType, holds: bool| {
            method.collectives().iter().find(|(i, call)| {
                let guarded = self::flag(method, *i).is_some_and(|f| f.name == flag.name && f.holds == holds);
                guarded
                    && call.rule.op == op
                    && is_of(method, call, AxisType::P, to)
                    && alike(view, gather, method, call)
            })
        };
        let (_, scattered) = on("reduce_scatter", AxisType::V, flag.holds)?;
        let (at, summed) = on("all_reduce", AxisType::I, !flag.holds)?;
        let same = method.expr(scattered.input?) == method.expr(summed.input?);
        same.then(|| method.place(method.steps[*at].id))
    })
}

/// Where a loss of the class puts together what each rank has of the vocabulary.
fn loses_parts(view: &View<'_>, class: ClassId) -> Option<Place> {
    near::methods(view, class).iter().find_map(|method| {
        let loss = |call: &CollectiveCall<'_>| {
            call.rule.op == "loss" && call.rule.transitions.iter().any(|(_, t)| t.source.set == AxisType::V)
        };
        let (at, _) = method.collectives().iter().find(|(_, call)| loss(call))?;
        Some(method.place(method.steps[*at].id))
    })
}

/// The attributes that hold layers of whose weight each rank has rows, by the annotations of the constructor.
fn layers(init: &View<'_>) -> Vec<Name> {
    let split = |at: LocalId| {
        let param = init.func.params.iter().find(|p| p.local == at)?;
        let path = super::expr::path_of_hint(init.project, init.at.module, param.hint.as_ref()?)?;
        let Some(Entry::Layer(rule)) = init.rules.get(&path) else { return None };
        rule.params.iter().any(|(name, pattern)| name == "weight" && pattern.dim() == Some(0)).then_some(())
    };
    let kept = |step: &super::view::Step<'_>| match step.stmt {
        Stmt::SetAttr { name, value, .. } => match init.through(value) {
            Expr::Local(local) if init.is_param(local) => split(local).map(|()| name.clone()),
            _ => None,
        },
        _ => None,
    };
    init.steps.iter().filter_map(kept).collect()
}

/// Whether two collectives run over one group.
fn alike(view: &View<'_>, a: &CollectiveCall<'_>, other: &View<'_>, b: &CollectiveCall<'_>) -> bool {
    let group = |view: &View<'_>, call: &CollectiveCall<'_>| call.group.map(|g| spelled(view, &view.expr(g)));
    match (group(view, a), group(other, b)) {
        (None, None) => a.rule.default_group == b.rule.default_group,
        (Some(Some(a)), Some(Some(b))) => a == b,
        _ => false,
    }
}

/// A weight of which each rank has a part, with which the plain value is multiplied, and where.
fn meets_part(view: &View<'_>, class: ClassId, plain: &Plain) -> Option<(Name, Place)> {
    let methods = near::methods(view, class);
    let init = methods.iter().find(|m| m.func.name == "__init__")?;
    let parts: Vec<Name> = (0..init.steps.len())
        .filter_map(|i| marks_part(init, i))
        .filter_map(|(target, _)| near::own_attribute(init, &target).cloned())
        .collect();
    let layers = layers(init);
    methods.iter().filter(|m| m.func.name != "__init__").find_map(|method| {
        if matches!(plain, Plain::Local(_)) && method.at != view.at {
            return None;
        }
        (0..method.steps.len()).find_map(|i| {
            let (a, b) = product(method, i)?;
            let of_layer = |e: &Expr| match e {
                Expr::Attr(layer, name) if name == "weight" => {
                    near::own_attribute(method, layer).filter(|name| layers.contains(name)).cloned()
                }
                _ => None,
            };
            let marked = |e: &Expr| near::own_attribute(method, e).filter(|name| parts.contains(name)).cloned();
            let weight = |e: &Expr| marked(e).or_else(|| of_layer(e));
            let is_plain = |e: &Expr| has(method, e, plain, 0);
            let weight =
                weight(base(&b)).filter(|_| is_plain(&a)).or_else(|| weight(base(&a)).filter(|_| is_plain(&b)))?;
            Some((weight, method.place(method.steps[i].id)))
        })
    })
}

/// The factors of a product of matrices.
fn product(view: &View<'_>, step: usize) -> Option<(Expr, Expr)> {
    let value = view.value(step)?;
    match value {
        Rvalue::Binary { op: crate::ir::BinOp::MatMul, left, right } => Some((view.through(left), view.through(right))),
        Rvalue::CallMethod { args, base, .. } | Rvalue::Call { args, callee: base } => {
            let path = view.callee(value)?;
            match path.as_str() {
                "torch.nn.functional.linear" | "torch.matmul" | "torch.mm" => {
                    Some((view.through(&args.first()?.value), view.through(&args.get(1)?.value)))
                }
                ".matmul" | ".mm" => Some((view.through(base), view.through(&args.first()?.value))),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The tensor that a view is one of.
fn base(expr: &Expr) -> &Expr {
    match expr {
        Expr::Attr(of, name) if matches!(name.as_str(), "T" | "mT") => base(of),
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(of, name) if VIEWS.contains(&name.as_str()) => base(of),
            _ => expr,
        },
        _ => expr,
    }
}

/// How many methods a value is followed through.
const MOST: usize = 3;

/// Whether an expression is the plain value, or a view of it, also where an attribute has it or a method is given it.
fn has(method: &View<'_>, expr: &Expr, plain: &Plain, depth: usize) -> bool {
    let Some(class) = method.func.class.filter(|_| depth < MOST) else { return false };
    let within = |view: &View<'_>, value: &Operand| has(view, &view.through(value), plain, depth + 1);
    match (plain, base(expr)) {
        (Plain::Local(local), Expr::Local(l)) => l == local,
        (Plain::Returned(name), Expr::Call { callee, .. }) => near::own_attribute(method, callee) == Some(name),
        (_, own @ Expr::Attr(..)) => near::own_attribute(method, own).is_some_and(|own| {
            matches!(plain, Plain::Kept(name) if name == own)
                || near::assigned(method, class, own).iter().any(|(setter, _, value)| within(setter, value))
        }),
        (_, Expr::Local(l)) if method.defs(*l).is_empty() => {
            let at = method.func.params.iter().position(|p| p.local == *l).and_then(|at| at.checked_sub(1));
            let given = |caller: &View<'_>, step: usize| match caller.value(step) {
                Some(Rvalue::CallMethod { base, name, args }) if *name == method.func.name => {
                    let arg = at.and_then(|at| args.get(at)).filter(|a| a.kind == ArgKind::Positional);
                    near::is_self(caller, base) && arg.is_some_and(|arg| within(caller, &arg.value))
                }
                _ => false,
            };
            near::methods(method, class).iter().any(|caller| (0..caller.steps.len()).any(|step| given(caller, step)))
        }
        // What it came in as is not read again behind the one step that binds it.
        (_, Expr::Local(l)) if method.is_param(*l) => match method.defs(*l) {
            [one] if method.steps[*one].guards.is_empty() => has(method, &method.bound(*one, *l), plain, depth + 1),
            _ => false,
        },
        _ => false,
    }
}

/// The conversions of the same vocabulary by which a value is copied to the ranks, with a backward that sums.
fn copies(view: &View<'_>, gather: &CollectiveCall<'_>) -> Vec<Arc<CollectiveRule>> {
    let parent = |name: &Name| name.rsplit_once('.').map(|(parent, _)| parent.to_string());
    let copy = |rule: &&Arc<CollectiveRule>| match rule.transitions.as_slice() {
        [(None, t)] => t.source.set == AxisType::I && t.result.set == AxisType::R && rule.op == "convert",
        _ => false,
    };
    let alike = |rule: &&Arc<CollectiveRule>| parent(&rule.name) == parent(&gather.rule.name);
    view.rules.collectives().filter(copy).filter(alike).cloned().collect()
}

/// Whether anything may sum the gradient of the input where the class does not: code of the file, or of one that names the class.
fn may_be_summed(view: &View<'_>, class: ClassId, copies: &[Arc<CollectiveRule>]) -> bool {
    let at = ClassRef { module: view.at.module, class };
    let own = view.file();
    let code = near::bare(own);
    let name = &view.project.class(at).name;
    let head = view.text(view.spot(view.project.class(at).span)).lines().next().unwrap_or_default();
    let copies_in = |text: &str| copies.iter().any(|rule| is_used(text, &super::lost::last(&rule.name).to_lowercase()));
    let elsewhere = || {
        view.files.saying(name).any(|file| {
            let code = near::bare(view.files[file].whole());
            near::has_word(&code, &name.to_lowercase()) && (copies_in(&code) || may_copy(&code))
        })
    };
    let derived =
        || near::has_any(&code, &[format!("({})", name.to_lowercase()), format!("({},", name.to_lowercase())]);
    let layers = || calls_layers(&near::methods(view, class));
    !head.contains("Module)") || copies_in(&code) || may_copy(&code) || derived() || layers() || elsewhere()
}

/// Whether a text may sum gradients of inputs, or copy these.
fn may_copy(code: &str) -> bool {
    near::has_any(code, OTHERWISE) || near::has_any(code, COPIES)
}

/// Whether a text does more with a name than to import it.
fn is_used(text: &str, name: &str) -> bool {
    near::words(text, name).any(|at| {
        let after = text[at + name.len()..].trim_start_matches([' ', '\t']);
        !after.is_empty() && !after.starts_with([',', '\n', ')'])
            || text[..at].trim_end().ends_with(['=', '(']) && !text[..at].trim_end().ends_with("import (")
    })
}

/// Whether methods call a layer that has collectives of its own.
fn calls_layers(methods: &[Rc<View<'_>>]) -> bool {
    methods.iter().any(|m| {
        m.steps.iter().any(|s| match s.stmt {
            Stmt::Assign { value: value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. }), .. } => {
                m.callee(value).is_some_and(|path| m.rules.layer(&path).is_some())
            }
            _ => false,
        })
    })
}
