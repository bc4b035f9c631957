//! The order of a training step: backward, reduction, clipping, step. In: a function. Out: a reduction of gradients that were cleared,
//! moved elsewhere, clipped or used before. Never: across functions, but for methods that move gradients and helpers that reduce them.
//! Next: `raw.rs`.

use super::expr::Expr;
use super::found::{Late, Practice};
use super::near;
use super::raw::{Sort, raw};
use super::view::View;
use super::{Found, Lint, data_sum, whose};
use crate::ir::{BinOp, Item, LocalId, Operand, Rvalue, Stmt};
use crate::project::{FuncRef, Resolved};
use crate::rules::Entry;
use crate::source::{Name, Place};

#[derive(Clone, Debug, PartialEq)]
enum What {
    Backward,
    Clear(Expr),
    /// Whose gradients, where that is known.
    Clip(Option<Vec<Name>>),
    /// Gradients leave `.grad` in a method; where it clears them.
    Move(Name, Place),
    /// Where the gradients are taken, and whose they are.
    Reduce(Place, Option<Vec<Name>>),
    Step(Expr),
}

struct Event {
    at: usize,
    what: What,
}

pub fn order<'a>(lint: &Lint<'a>, view: &View<'a>, out: &mut Found) {
    let text = view.text(view.spot(view.func.span));
    if !text.contains("backward(") || view.func.name == "backward" {
        return;
    }
    let events: Vec<Event> =
        (0..view.steps.len()).filter_map(|at| event(lint, view, at).map(|what| Event { at, what })).collect();
    if !events.iter().any(|e| matches!(e.what, What::Reduce(..))) {
        return;
    }
    let mut levels: Vec<&[usize]> = events
        .iter()
        .filter(|e| matches!(e.what, What::Backward | What::Step(_)))
        .map(|e| view.steps[e.at].loops.as_slice())
        .collect();
    levels.sort_unstable();
    levels.dedup();
    let mut told = Vec::new();
    for level in levels {
        let here: Vec<&Event> = events.iter().filter(|e| view.steps[e.at].loops.starts_with(level)).collect();
        if let Some((event, gradients, backward)) = early(view, &here).filter(|(at, ..)| !told.contains(at)) {
            told.push(event);
            let practice = Practice::LateReduction { why: Late::Early, gradients, before: backward };
            out.push((view.place(view.steps[event].id), practice));
        }
        let mut segment: Vec<&Event> = Vec::new();
        let (mut open, mut again) = (false, false);
        for (i, event) in here.iter().enumerate() {
            if event.what == What::Backward {
                segment.clear();
                (open, again) = (true, false);
            } else if open {
                if let What::Reduce(from, _) = &event.what {
                    // A second reduction may be of other gradients, which another step uses.
                    let later: Vec<&Event> =
                        here[i + 1..].iter().copied().take_while(|e| e.what != What::Backward).collect();
                    let used = later.iter().any(|e| matches!(e.what, What::Step(_)));
                    let why =
                        why(view, &segment, event, &later).filter(|(why, _)| !again || *why == Late::Used && !used);
                    if let Some((why, before)) = why.filter(|_| !told.contains(&event.at)) {
                        told.push(event.at);
                        let id = view.steps[event.at].id;
                        out.push((view.place(id), Practice::LateReduction { why, gradients: *from, before }));
                        open = false;
                    }
                    again = true;
                }
                segment.push(event);
            }
        }
    }
}

/// The only reduction, if it stands between the clearing of gradients and the pass that computes them, with that pass.
fn early(view: &View<'_>, events: &[&Event]) -> Option<(usize, Place, Place)> {
    let mut reductions = events.iter().enumerate().filter_map(|(i, e)| match &e.what {
        What::Reduce(from, whose) => Some((i, e.at, *from, whose)),
        _ => None,
    });
    let (i, reduce, from, whose) = reductions.next()?;
    if reductions.next().is_some() {
        return None;
    }
    let What::Clear(cleared) = &events[i.checked_sub(1)?].what else { return None };
    let [backward, rest @ ..] = &events[i + 1..] else { return None };
    let steps = rest.iter().all(|e| matches!(&e.what, What::Step(of) | What::Clear(of) if of == cleared));
    let stepped = rest.iter().any(|e| matches!(e.what, What::Step(_)));
    if backward.what != What::Backward || !steps || !stepped {
        return None;
    }
    // All of it in each round, whatever configuration it is.
    let (clear, pass) = (&view.steps[events[i - 1].at], &view.steps[backward.at]);
    let always = clear.guards.is_empty() && pass.guards.is_empty() && clear.loops == pass.loops;
    let between = || events[i - 1].at + 1..backward.at;
    let (made, base) = made_for(view, backward.at)?;
    // Any other call may have run a pass already.
    let still =
        between().filter(|at| *at != reduce).all(|at| !sets(view, at) && (made.contains(&at) || gives(view, at)));
    let own = whose.as_ref()?.first().is_some_and(|model| base.iter().any(|name| name == model));
    (always && still && own).then(|| (reduce, from, view.place(pass.id)))
}

/// The steps that make what a pass goes back from, and the names of the variables and attributes that they read.
fn made_for(view: &View<'_>, backward: usize) -> Option<(Vec<usize>, Vec<Name>)> {
    let Rvalue::CallMethod { base, .. } = view.value(backward)? else { return None };
    let (mut todo, mut steps, mut names) = (vec![base.clone()], Vec::new(), Vec::new());
    while let Some(operand) = todo.pop() {
        let Operand::Local(local) = operand else { continue };
        names.push(view.local_name(local).clone());
        for def in view.defs(local).iter().filter(|def| **def < backward) {
            if steps.contains(def) {
                continue;
            }
            steps.push(*def);
            // An attribute, or one that is called: `self.model(x)`.
            if let Some(Rvalue::Attr { name, .. } | Rvalue::CallMethod { name, .. }) = view.value(*def) {
                names.push(name.clone());
            }
            todo.extend(view.reads(*def).into_iter().cloned());
        }
    }
    Some((steps, names))
}

/// Whether a step calls nothing, or only what gives parameters and numbers.
fn gives(view: &View<'_>, at: usize) -> bool {
    match view.value(at) {
        _ if near::only_tells(view, at) => true,
        Some(Rvalue::CallMethod { name, .. }) => matches!(name.as_str(), "parameters" | "named_parameters" | "items"),
        Some(value @ Rvalue::Call { .. }) => {
            view.callee(value).is_some_and(|path| matches!(path.as_str(), "len" | "range" | "enumerate" | "list"))
        }
        _ => true,
    }
}

/// Why a reduction comes too late, and what came before it.
fn why(view: &View<'_>, before: &[&Event], reduce: &Event, later: &[&Event]) -> Option<(Late, Place)> {
    let What::Reduce(_, reduced) = &reduce.what else { return None };
    let chained = |e: &Event| {
        let (a, b) = (&view.steps[e.at].guards, &view.steps[reduce.at].guards);
        a.iter().zip(b.iter()).all(|(x, y)| x.at == y.at && x.holds == y.holds)
    };
    let steps = || {
        later.iter().filter_map(|e| match &e.what {
            What::Step(of) => Some(of),
            _ => None,
        })
    };
    let cleared = before.iter().filter_map(|e| match &e.what {
        What::Step(of) | What::Clear(of) => Some(of),
        _ => None,
    });
    // With two optimizers nobody knows whose gradients these are.
    let optimizers: Vec<&Expr> = cleared.chain(steps()).collect();
    if optimizers.windows(2).any(|w| w[0] != w[1]) {
        return None;
    }
    let same = |clipped: &Option<Vec<Name>>| {
        clipped.as_ref().zip(reduced.as_ref()).is_some_and(|(clipped, reduced)| whose::has(clipped, reduced))
    };
    before.iter().filter(|e| chained(e)).find_map(|e| {
        let place = view.place(view.steps[e.at].id);
        let between = e.at + 1..reduce.at;
        let kept = |at: usize| !sets(view, at);
        match &e.what {
            What::Step(_) if between.clone().all(kept) => Some((Late::Used, place)),
            What::Clear(_) if steps().next().is_some() && between.clone().all(|at| kept(at) && leaves(view, at)) => {
                Some((Late::Cleared, place))
            }
            What::Clip(whose) if same(whose) && between.clone().all(kept) => Some((Late::Clipped, place)),
            What::Move(method, cleared) => Some((Late::Moved { method: method.clone(), call: place }, *cleared)),
            _ => None,
        }
    })
}

/// Whether a step gives something another gradient than a multiple of what it has.
pub fn sets(view: &View<'_>, at: usize) -> bool {
    let is_gradient = |e: &Expr| e.any(&mut |e| matches!(e, Expr::Attr(_, name) if name == "grad"));
    match (view.steps[at].stmt, view.value(at)) {
        (Stmt::SetAttr { name, value, .. }, _) if name == "grad" => match view.expr(value) {
            Expr::Binary(BinOp::Mul | BinOp::Div, of, _) => !is_gradient(&of),
            other => !other.is_none(),
        },
        (_, Some(Rvalue::InPlace { op: BinOp::Add | BinOp::Sub, left, .. })) => is_gradient(&view.expr(left)),
        (_, Some(Rvalue::CallMethod { base, name, .. })) => {
            let sets = ["copy_", "add_", "sub_", "set_", "normal_", "lerp_", "addcmul_", "addcdiv_"];
            sets.contains(&name.as_str()) && is_gradient(&view.expr(base))
        }
        _ => false,
    }
}

/// Whether nothing that a step calls can give gradients.
fn leaves(view: &View<'_>, at: usize) -> bool {
    let Some(value @ (Rvalue::Call { .. } | Rvalue::CallMethod { .. })) = view.value(at) else { return true };
    let inner = view.callee(value).map(|path| view.project.path(&path));
    match inner {
        Some(Resolved::Func(func)) => !super::near::other(view, func).code().contains("grad"),
        _ => data_sum::is_followed(view, at),
    }
}

fn event(lint: &Lint<'_>, view: &View<'_>, at: usize) -> Option<What> {
    let value = view.value(at)?;
    if let Some((from, whose)) = reduced(view, at) {
        return Some(What::Reduce(from, whose));
    }
    if let Some((_, Some(Entry::Intrinsic(rule)))) = view.ruled(value)
        && rule.does == "gradients-averaged"
    {
        return is_only_optimizer(view, value).then(|| What::Reduce(view.place(view.steps[at].id), None));
    }
    // What a generator does, and a context manager made of one, it does when somebody asks it for more.
    let runs = |at: &FuncRef| !view.project.func(*at).is_generator;
    if let Some(helper) = helper(lint, view, value).filter(runs) {
        let inner = lint.view(helper);
        let reduces = (0..inner.steps.len()).find_map(|i| reduced(&inner, i));
        let more = (0..inner.steps.len())
            .filter_map(|i| inner.value(i))
            .any(|v| is_named(&inner, v, "step") || is_named(&inner, v, "backward"));
        if let Some((_, taken)) = reduces.filter(|_| !more) {
            let whose = taken.and_then(|way| whose::given(view, value, &inner, way));
            return Some(What::Reduce(view.place(view.steps[at].id), whose));
        }
    }
    if let Some(path) = view.callee(value)
        && path.starts_with("torch.")
        && (path.ends_with(".clip_grad_norm_") || path.ends_with(".clip_grad_value_"))
    {
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
        if view.argument(args, 1, "max_norm").is_some_and(|most| near::is_without_bound(view, &view.expr(most))) {
            return None;
        }
        return Some(What::Clip(args.first().and_then(|a| whose::of_parameters(view, &a.value))));
    }
    if passes_backward(view, value) {
        return Some(What::Backward);
    }
    let Rvalue::CallMethod { base, name, args } = value else { return None };
    let of = view.expr(base);
    let named = |e: &Expr| view.name_of(e).is_some_and(|name| name.contains("opt")) || is_optimizer(view, e);
    match name.as_str() {
        "backward" => Some(What::Backward),
        "step" if named(&of) => Some(What::Step(of)),
        // A gradient scaler steps what it is given.
        "step" => args.first().map(|a| view.expr(&a.value)).filter(named).map(What::Step),
        "zero_grad" if named(&of) => Some(What::Clear(of)),
        _ if !matches!(of, Expr::Path(_)) => moves(lint, name).map(|place| What::Move(name.clone(), place)),
        _ => None,
    }
}

/// Whether a variable is bound to what an optimizer makes, by the name of what is called: `zero = ZeroRedundancyOptimizer(...)`.
fn is_optimizer(view: &View<'_>, expr: &Expr) -> bool {
    let Expr::Local(local) = expr else { return false };
    let [made] = view.defs(*local) else { return false };
    let called = view.value(*made).and_then(|value| view.callee(value));
    called.is_some_and(|path| path.to_lowercase().contains("optim"))
}

/// Whether a function steps the optimizer alone that a call is given: each reduces the gradients of its own parameters.
fn is_only_optimizer(view: &View<'_>, value: &Rvalue) -> bool {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return false };
    let Some(given) = args.first().map(|arg| view.expr(&arg.value)) else { return false };
    let mut stepped = (0..view.steps.len()).filter_map(|at| match view.value(at) {
        Some(Rvalue::CallMethod { base, name, .. }) if matches!(name.as_str(), "step" | "zero_grad") => {
            Some(view.expr(base))
        }
        _ => None,
    });
    stepped.all(|optimizer| optimizer == given)
}

/// Whether a call runs forward and backward passes, by its name: a schedule.
fn passes_backward(view: &View<'_>, value: &Rvalue) -> bool {
    let name = match value {
        Rvalue::Call { callee, .. } => match view.expr(callee) {
            Expr::Local(local) => view.local_name(local).to_string(),
            other => other.last_name().unwrap_or_default().to_string(),
        },
        Rvalue::CallMethod { name, .. } => name.to_string(),
        _ => return false,
    };
    name.contains("forward_backward") && !name.starts_with("get_")
}

fn is_named<'a>(view: &View<'a>, value: &'a Rvalue, wanted: &str) -> bool {
    match value {
        Rvalue::CallMethod { name, .. } => name == wanted,
        other => view.callee(other).is_some_and(|p| p.ends_with(wanted)),
    }
}

/// Whose gradient a step takes.
fn whose_taken(view: &View<'_>, taken: usize) -> Option<Vec<Name>> {
    match view.value(taken)? {
        Rvalue::Attr { base, .. } => whose::of_parameter(view, base),
        _ => None,
    }
}

/// Where the gradients come from that a step reduces in place, and whose they are.
fn reduced(view: &View<'_>, at: usize) -> Option<(Place, Option<Vec<Name>>)> {
    if let Some(base) = replaced(view, at) {
        return Some((view.place(view.steps[at].id), whose::of_parameter(view, base)));
    }
    let call = raw(view, view.value(at)?)?;
    if call.sort != Sort::Everyone || !call.name.starts_with("all_reduce") {
        return None;
    }
    let here = || gradients(view, call.buffer?, 0).map(|(from, taken)| (from, whose_taken(view, taken)));
    let copied = matches!(view.source(call.buffer?), Some((_, Rvalue::Call { .. } | Rvalue::CallMethod { .. })));
    (!copied || is_put_back(view, at)).then(|| here().or_else(|| returned(view, call.buffer?))).flatten()
}

/// `p.grad = net.simple_all_reduce(p.grad)`: the parameter whose gradient a function outside the project gives back reduced, by its name.
fn replaced<'a>(view: &View<'a>, at: usize) -> Option<&'a Operand> {
    let value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(at)? else { return None };
    let (_, Rvalue::Attr { base, name }) = view.source(&args.first()?.value)? else { return None };
    if name != "grad" {
        return None;
    }
    let Stmt::Assign { dst, .. } = view.steps[at].stmt else { return None };
    let [set] = view.readers(*dst) else { return None };
    if !matches!(view.steps[*set].stmt, Stmt::SetAttr { base: of, name, .. } if of == base && name == "grad") {
        return None;
    }
    let name = near::written_name(view, value)?.to_lowercase();
    let outside = || view.callee(value).is_none_or(|path| !matches!(view.project.path(&path), Resolved::Func(_)));
    let file = view.file();
    let summed = ["DataParallel", "DDP(", "FSDP(", "DistributedOptimizer", "fully_shard", "hook"];
    let reduces = ["all_reduce", "allreduce"].iter().any(|word| name.ends_with(word)) && outside();
    (reduces && !summed.iter().any(|word| file.contains(word))).then_some(base)
}

/// Whether gradients are written behind a step. A copy of all of them is only looked at otherwise.
fn is_put_back(view: &View<'_>, at: usize) -> bool {
    let unpacks =
        |s: usize| near::name_of_call(view, s).is_some_and(|name| name.contains("unflatten") || name == "copy_");
    (at + 1..view.steps.len()).any(|s| sets(view, s) || unpacks(s))
}

/// The same of a buffer that a function of the project makes of the gradients it is given.
fn returned(view: &View<'_>, buffer: &Operand) -> Option<(Place, Option<Vec<Name>>)> {
    let (at, call) = view.source(buffer)?;
    let Resolved::Func(helper) = view.project.path(&view.callee(call)?) else { return None };
    let inner = near::shared(view, helper);
    let taken = inner.steps.iter().find_map(|step| match step.stmt {
        Stmt::Return { value } => gradients(&inner, value, 0),
        _ => None,
    });
    let (_, taken) = taken?;
    let whose = whose_taken(&inner, taken).and_then(|way| whose::given(view, call, &inner, way));
    Some((view.place(view.steps[at].id), whose))
}

/// Methods that give the same numbers in another shape.
const FLAT: &[&str] = &["view", "reshape", "flatten", "ravel", "contiguous"];

/// Whether an operand is `.grad` of something, or is made of such; where it is taken, and by which step.
pub(super) fn gradients(view: &View<'_>, o: &Operand, depth: usize) -> Option<(Place, usize)> {
    let Operand::Local(local) = o else { return None };
    if depth > 8 {
        return None;
    }
    view.defs(*local).iter().find_map(|at| {
        let id = view.steps[*at].id;
        match view.steps[*at].stmt {
            Stmt::For { iter, .. } => gradients(view, iter, depth + 1).map(|(_, taken)| (view.part(id, 0), taken)),
            Stmt::Assign { value, .. } => match value {
                Rvalue::Attr { name, .. } if name == "grad" => Some((view.place(id), *at)),
                Rvalue::Attr { base, name } if name == "data" => gradients(view, base, depth + 1),
                Rvalue::Use(base) => gradients(view, base, depth + 1),
                Rvalue::CallMethod { base, name, .. } if FLAT.contains(&name.as_str()) => {
                    gradients(view, base, depth + 1)
                }
                Rvalue::Build { items, .. } => {
                    let inside = items.iter().find_map(|(Item::One(o) | Item::Star(o))| gradients(view, o, depth + 1));
                    inside.or_else(|| appended(view, *local, depth))
                }
                Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => {
                    let path = view.callee(value)?;
                    let joins = path.ends_with("cat") || path.contains("flatten");
                    joins.then(|| args.iter().find_map(|a| gradients(view, &a.value, depth + 1))).flatten()
                }
                _ => None,
            },
            _ => None,
        }
    })
}

/// Gradients that a comprehension or a loop puts into a list.
fn appended(view: &View<'_>, list: LocalId, depth: usize) -> Option<(Place, usize)> {
    view.steps.iter().find_map(|s| match s.stmt {
        Stmt::Append { collection, value, .. } if *collection == list => gradients(view, value, depth + 1),
        Stmt::Assign { value: Rvalue::CallMethod { base: Operand::Local(l), name, args }, .. }
            if *l == list && name == "append" =>
        {
            gradients(view, &args.first()?.value, depth + 1)
        }
        _ => None,
    })
}

/// The function of the project that a call calls.
fn helper<'a>(lint: &Lint<'_>, view: &View<'a>, value: &'a Rvalue) -> Option<FuncRef> {
    if let Rvalue::CallMethod { base: Operand::Local(base), name, .. } = value
        && view.local_name(*base) == "self"
    {
        let class = super::cut::class_of(view)?;
        return lint.settings.statics.linearized(class).iter().find_map(|c| lint.project.own_method(*c, name));
    }
    let path = view.callee(value)?;
    match lint.project.path(&path) {
        Resolved::Func(at) => Some(at),
        _ => None,
    }
}

/// Where the only method of this name in the project, one of an optimizer, clears gradients that it has added to others.
fn moves(lint: &Lint<'_>, name: &Name) -> Option<Place> {
    let mut found = None;
    for &(class, func) in lint.project.methods_named(name) {
        if found.is_some() || !lint.project.class(class).methods.iter().any(|(n, _)| n == "step") {
            return None;
        }
        found = Some(FuncRef { module: class.module, func });
    }
    let view = lint.view(found?);
    let clears = view.steps.iter().position(|s| match s.stmt {
        Stmt::SetAttr { name, value, .. } if name == "grad" => match view.expr(value) {
            Expr::Call { callee, .. } => callee.last_name().is_some_and(|n| n.starts_with("zeros")),
            other => other.is_none(),
        },
        _ => false,
    })?;
    let from_grad = |o: &Operand| view.expr(o).any(&mut |e| matches!(e, Expr::Attr(_, n) if n == "grad"));
    let added = (0..clears).any(|i| match view.value(i) {
        Some(Rvalue::CallMethod { name, args, .. }) => {
            matches!(name.as_str(), "add_" | "copy_" | "append") && args.iter().any(|a| from_grad(&a.value))
        }
        Some(Rvalue::InPlace { right, .. }) => from_grad(right),
        _ => false,
    });
    added.then(|| view.place(view.steps[clears].id))
}
