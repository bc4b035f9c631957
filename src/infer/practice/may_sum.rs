//! Whether a call may sum gradients of parameters, itself or through what it calls, and over which axes. In: a function and a step of it,
//! and the functions of the project by name. Out: [`Sums`]. Never: that something sums for certain; what is not followed may sum over
//! anything. Source: DESIGN.md section 7. Next: `reducers.rs`, which asks.

use super::expr::Expr;
use super::near;
use super::reducers::{axes_of, may_name};
use super::view::{CollectiveCall, View};
use crate::infer::limits::{MAX_NAMESAKES, MAX_REDUCING_CALLS};
use crate::ir::{Arg, ArgKind, FuncId, FuncKind, Operand, Rvalue};
use crate::project::{ClassRef, FuncRef, Resolved};
use crate::source::Name;

/// What a call may do to the gradients of parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Sums {
    Never,
    /// It may sum them over these axes, or over a group that nothing names.
    Over(Option<Vec<Name>>),
}

/// Words of what is exchanged that is no gradient of a parameter: one number, or an activation.
const NUMBERS: &[&str] = &["norm", "inf", "zeros", "loss", "amax", "overflow", "tokens"];

/// Words of the gradients of parameters in a backward that also has those of activations.
const WEIGHTS: &[&str] =
    &["weight", "bias", "main_grad", "param", "wgrad", "db", "dw", "dgamma", "dbeta", "gamma", "beta"];

/// Methods that give a tensor with the same elements.
const SAME: &[&str] =
    &["float", "half", "bfloat16", "to", "contiguous", "clone", "detach", "view", "reshape", "flatten"];

/// Words of groups, and the axis that they are of.
const GROUP_WORDS: &[(&str, &str)] = &[
    ("data_parallel", "dp"),
    ("dp", "dp"),
    ("optimizer", "dp"),
    ("pipeline", "pp"),
    ("pp", "pp"),
    ("embedding", "pp"),
    ("embd", "pp"),
];

/// Words of a group that may be more than one axis.
const WIDE: &[&str] =
    &["tensor", "tp", "model", "mp", "context", "cp", "sequence", "sp", "expert", "ep", "etp", "world"];

/// Methods of containers: a method of the project that is called so says nothing about these calls.
const OF_CONTAINERS: &[&str] = &["add", "append", "extend", "update", "get", "pop", "remove", "clear", "copy", "items"];

/// Functions between a registration and what the hook itself does.
const NEAR_HOOK: usize = 3;

/// Registrations of functions that see values on the way forward, or what is saved.
const OTHER_HOOKS: &[&str] = &["forward", "state_dict", "load"];

impl Sums {
    pub fn and(self, other: Sums) -> Sums {
        match (self, other) {
            (Sums::Never, x) | (x, Sums::Never) => x,
            (Sums::Over(None), _) | (_, Sums::Over(None)) => Sums::Over(None),
            (Sums::Over(Some(mut a)), Sums::Over(Some(b))) => {
                a.extend(b.into_iter().filter(|axis| !a.contains(axis)).collect::<Vec<_>>());
                Sums::Over(Some(a))
            }
        }
    }
}

/// What one step of a function that reads gradients may do to them.
pub fn of_step(view: &View<'_>, step: usize) -> Sums {
    of(view, step, &mut Seen { funcs: vec![view.at], in_hook: false })
}

/// The functions that were looked through.
struct Seen {
    funcs: Vec<FuncRef>,
    /// They are called with a gradient: whatever they call may sum it.
    in_hook: bool,
}

fn of(view: &View<'_>, step: usize, seen: &mut Seen) -> Sums {
    let Some(value) = view.value(step) else { return Sums::Never };
    if let Some(call) = view.collective(value) {
        return of_collective(view, step, &call);
    }
    let (name, args) = match value {
        // What a hook keeps may be summed later.
        Rvalue::CallMethod { name, .. }
            if seen.in_hook && seen.funcs.len() <= NEAR_HOOK && (name == "append" || name == "extend") =>
        {
            return Sums::Over(None);
        }
        Rvalue::CallMethod { name, args, .. } => (name, args),
        Rvalue::Call { args, .. } => return of_call(view, value, args, seen),
        _ => return Sums::Never,
    };
    if name.starts_with("register") && name.contains("hook") {
        if OTHER_HOOKS.iter().any(|word| name.contains(word)) {
            return Sums::Never;
        }
        seen.in_hook = true;
        return args.first().map_or(Sums::Over(None), |hook| of_hook(view, &hook.value, seen));
    }
    of_call(view, value, args, seen)
}

/// A function that is called with each gradient.
fn of_hook(view: &View<'_>, hook: &Operand, seen: &mut Seen) -> Sums {
    if let Some(at) = near::function(view, hook) {
        return whole(view, at, seen);
    }
    match view.source(hook) {
        // `partial(hook, group)`: a function with some of its arguments.
        Some((_, value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })))
            if view.callee(value).is_some_and(|path| path == "functools.partial") =>
        {
            args.first().map_or(Sums::Over(None), |bound| of_hook(view, &bound.value, seen))
        }
        // `self._make_hook(param)`: what it returns is in it.
        Some((_, value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }))) => {
            of_call(view, value, args, seen)
        }
        Some((_, Rvalue::Attr { base, name })) => match method(view, base, name) {
            Some(found) => found.into_iter().fold(Sums::Never, |sums, at| sums.and(whole(view, at, seen))),
            None => Sums::Over(None),
        },
        _ => Sums::Over(None),
    }
}

/// A call of something else than a collective.
fn of_call(view: &View<'_>, value: &Rvalue, args: &[Arg], seen: &mut Seen) -> Sums {
    // In a hook everything may have to do with the gradient that can be told which function it is.
    let concerned = concerns(view, value);
    let followed = concerned || seen.in_hook && is_certain(view, value);
    if !followed {
        return Sums::Never;
    }
    // What is handed on may be called there.
    let mut sums = Sums::Never;
    for arg in args {
        if let Some(at) = near::function(view, &arg.value) {
            sums = sums.and(whole(view, at, seen));
        }
    }
    let path = match value {
        Rvalue::Call { callee, .. } => match near::function(view, callee) {
            Some(at) => return sums.and(whole(view, at, seen)),
            None => match view.through(callee) {
                Expr::Path(path) => path,
                // A variable that holds a function, perhaps a collective.
                _ => return Sums::Over(group_given(view, args)),
            },
        },
        Rvalue::CallMethod { base, name, .. } => match view.through(base) {
            Expr::Path(path) => Name::from(format!("{path}.{name}")),
            _ if OF_CONTAINERS.contains(&name.as_str()) && !near::is_self(view, base) => return sums,
            _ => {
                return match method(view, base, name) {
                    Some(found) => found.into_iter().fold(sums, |sums, at| sums.and(whole(view, at, seen))),
                    None if may_name(name) => Sums::Over(None),
                    None => sums,
                };
            }
        },
        _ => return sums,
    };
    let more = match view.project.path(&path) {
        Resolved::Func(at) => whole(view, at, seen),
        Resolved::Class(class) => of_class(view, class, seen),
        _ if path.starts_with("torch.") || path.starts_with("builtins.") => Sums::Never,
        _ if may_name(&path) => Sums::Over(None),
        _ => Sums::Never,
    };
    sums.and(more)
}

/// Whether a call is of a function of the project, of a variable that holds one, or of a method of the own object.
fn is_certain(view: &View<'_>, value: &Rvalue) -> bool {
    match value {
        Rvalue::Call { callee, .. } => match view.through(callee) {
            Expr::Path(path) => match view.project.path(&path) {
                Resolved::Func(_) => true,
                Resolved::Class(class) => view.project.class(class).methods.iter().any(|(name, _)| name == "__call__"),
                _ => false,
            },
            _ => true,
        },
        Rvalue::CallMethod { base, .. } => near::is_self(view, base),
        _ => false,
    }
}

/// Words of calls that have to do with gradients.
const CONCERNS: &[&str] = &["grad", "reduce", "sync", "hook", "bucket", "param", "flush"];

/// Whether what a call calls or is given has to do with gradients, by its words.
fn concerns(view: &View<'_>, value: &Rvalue) -> bool {
    let says = |text: &str| {
        let text = text.to_lowercase();
        CONCERNS.iter().any(|word| text.contains(word))
    };
    let named = |operand: &Operand| match operand {
        Operand::Local(local) if view.is_temp(*local) => view.expr(operand).any(&mut |e| match e {
            Expr::Local(local) => says(view.local_name(*local)),
            Expr::Attr(_, name) => says(name),
            _ => false,
        }),
        Operand::Local(local) => says(view.local_name(*local)),
        Operand::Global(name) => says(name),
        Operand::Const(_) => false,
    };
    match value {
        Rvalue::CallMethod { base, name, args } => {
            says(name) || named(base) || args.iter().any(|arg| named(&arg.value))
        }
        Rvalue::Call { callee, args } => named(callee) || args.iter().any(|arg| named(&arg.value)),
        _ => false,
    }
}

/// The axes of the group that a call is given by keyword.
fn group_given(view: &View<'_>, args: &[Arg]) -> Option<Vec<Name>> {
    let is_group = |arg: &&Arg| matches!(&arg.kind, ArgKind::Keyword(name) if name.contains("group"));
    let group = args.iter().find(is_group)?;
    axes_of(view, &group.value).or_else(|| named_axes(view, &group.value))
}

/// Making an object may register hooks.
fn of_class(view: &View<'_>, class: ClassRef, seen: &mut Seen) -> Sums {
    let methods = view.project.class(class).methods.iter().filter(|(name, _)| name == "__init__" || name == "__call__");
    methods
        .fold(Sums::Never, |sums, (_, func)| sums.and(whole(view, FuncRef { module: class.module, func: *func }, seen)))
}

/// The methods that a call may mean; nothing if there may be others than those of the project, or too many.
fn method(view: &View<'_>, base: &Operand, name: &Name) -> Option<Vec<FuncRef>> {
    let own = view.func.class.filter(|_| near::is_self(view, base)).and_then(|class| {
        let methods = &view.project.class(ClassRef { module: view.at.module, class }).methods;
        let (_, func) = methods.iter().find(|(own, _)| own == name)?;
        Some(FuncRef { module: view.at.module, func: *func })
    });
    if let Some(own) = own {
        return Some(vec![own]);
    }
    let named = view.project.methods_named(name);
    let few = !named.is_empty() && named.len() <= 2 * MAX_NAMESAKES;
    few.then(|| named.iter().map(|(class, func)| FuncRef { module: class.module, func: *func }).collect())
}

/// A function with those inside of it.
fn whole(view: &View<'_>, at: FuncRef, seen: &mut Seen) -> Sums {
    if seen.funcs.contains(&at) {
        return Sums::Never;
    }
    if seen.funcs.len() >= MAX_REDUCING_CALLS {
        return Sums::Over(None);
    }
    seen.funcs.push(at);
    let own = near::shared(view, at);
    let mut sums = (0..own.steps.len()).fold(Sums::Never, |sums, step| sums.and(of(&own, step, seen)));
    let funcs = &view.project.modules[at.module].ir.funcs;
    let inside = |f: &FuncId| funcs[*f].parent == Some(at.func) && funcs[*f].kind != FuncKind::ClassBody;
    for func in funcs.ids().filter(inside) {
        sums = sums.and(whole(view, FuncRef { module: at.module, func }, seen));
    }
    sums
}

fn of_collective(view: &View<'_>, step: usize, call: &CollectiveCall<'_>) -> Sums {
    if matches!(call.rule.op.as_str(), "layer" | "broadcast" | "barrier") || takes_extreme(view, call) {
        return Sums::Never;
    }
    let text = call.input.map(|input| written(view, step, input)).unwrap_or_default();
    let says = |words: &[&str]| words.iter().any(|word| near::has_word(&text.replace('_', " "), word));
    let is_number =
        says(NUMBERS) && !text.contains("grads") && !call.input.is_some_and(|i| is_gradient(&view.through(i)));
    let is_activation = is_backward(view) && !says(WEIGHTS) && !WEIGHTS.iter().any(|w| w.len() > 4 && text.contains(w));
    if is_number || is_activation {
        return Sums::Never;
    }
    let Some(group) = call.group else { return Sums::Over(None) };
    Sums::Over(axes_of(view, group).or_else(|| named_axes(view, group)))
}

/// Whether an expression is the gradient of a parameter itself, scaled or in another form.
fn is_gradient(expr: &Expr) -> bool {
    match expr {
        Expr::Attr(_, name) if name == "grad" || name == "main_grad" => true,
        Expr::Attr(base, name) if name == "data" => is_gradient(base),
        Expr::Binary(_, a, b) => is_gradient(a) || is_gradient(b),
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, method) => SAME.contains(&method.as_str()) && is_gradient(base),
            _ => false,
        },
        _ => false,
    }
}

/// Whether a collective takes the largest or smallest: nothing is summed.
fn takes_extreme(view: &View<'_>, call: &CollectiveCall<'_>) -> bool {
    call.args.iter().any(|arg| view.through(&arg.value).is_other_reduction())
}

/// What an operand is called, in lowercase: the variable, or what stands in its place.
fn written(view: &View<'_>, step: usize, operand: &Operand) -> String {
    if let Operand::Local(local) = operand
        && !view.is_temp(*local)
    {
        return view.local_name(*local).to_lowercase().to_string();
    }
    let text = view.text(view.place(view.steps[step].id));
    let args = text.split_once('(').map_or(text, |(_, args)| args);
    args.split(',').next().unwrap_or_default().to_lowercase()
}

/// Whether a function is the forward or backward of an autograd function: its values are activations unless they say otherwise.
fn is_backward(view: &View<'_>) -> bool {
    let first = view.func.params.first().map(|param| view.local_name(param.local).as_str());
    view.func.class.is_some() && first == Some("ctx") && matches!(view.func.name.as_str(), "forward" | "backward")
}

/// The axes of a group by what it is called, where that names one of those that are never the model's own. Of a variable that is bound
/// several times, all that it may be.
fn named_axes(view: &View<'_>, group: &Operand) -> Option<Vec<Name>> {
    let mut out: Vec<Name> = Vec::new();
    let several = match group {
        Operand::Local(local) if !view.is_param(*local) && view.defs(*local).len() > 1 => {
            view.defs(*local).iter().map(|def| view.bound(*def, *local)).collect()
        }
        _ => vec![view.through(group)],
    };
    for expr in several {
        let name = match &expr {
            Expr::Call { callee, .. } => callee.last_name()?.to_owned(),
            Expr::Local(local) => view.local_name(*local).to_string(),
            other => other.last_name()?.to_owned(),
        };
        let words: Vec<&str> = name.split('_').collect();
        let says = |word: &str| words.contains(&word) || word.contains('_') && name.contains(word);
        let axis = GROUP_WORDS.iter().find(|(word, _)| says(word)).map(|(_, axis)| Name::from(*axis));
        let axis = axis.filter(|_| !words.iter().any(|word| WIDE.contains(word)))?;
        if !out.contains(&axis) {
            out.push(axis);
        }
    }
    Some(out)
}
