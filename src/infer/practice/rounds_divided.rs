//! Losses that a schedule divides by the number of micro-batches, and that are normalised by what all of these weigh. In: a function that runs a
//! schedule with a function for the loss of a micro-batch, which gives a pair: `(loss, {})`. Out: a loss that is divided by a sum over the same
//! micro-batches, and that nothing multiplies by their number. Never: a triple with a number of tokens, which such schedules treat otherwise;
//! a factor that is not understood, or anything that may scale gradients afterwards. Next: `rounds_weight.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::named_axes::of_size;
use super::near;
use super::rounds_weight::{Batches, argument, batches, total};
use super::scheduled::ROUNDS;
use super::view::View;
use super::wrapped::{called_function, says};
use crate::ir::{Arg, ArgKind, BinOp, Const, Item, LocalId, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::{Name, Place};
use std::rc::Rc;

/// What gives a schedule that divides the loss of a pair.
const SCHEDULES: &str = "get_forward_backward_func";
/// Words of files that scale losses or gradients in a way of their own.
const SCALED: &[&str] = &[
    "grad_scale_func",
    "calculate_per_token_loss",
    "grad.mul_",
    "grad *=",
    "scale_grad",
    "* num_micro",
    "*= num_micro",
    "num_microbatches *",
    "* self.num_micro",
    "* n_micro",
    "* self.n_micro",
];
/// What ends a step with the gradients: a function of one's own may scale them.
const FINISHES: &str = "finalize_model_grads";
/// Methods that give the same numbers.
const SAME: &[&str] = &["item", "float", "to", "detach", "clone", "double", "cuda", "contiguous"];
/// Parts of names of what a loss is made of, and of what may be any factor.
const PARTS: &[&str] = &["loss", "weight", "token", "count", "entropy", "valid", "mask", "logprob"];
const ANY_FACTOR: &[&str] = &["scale", "factor", "mult", "coef", "norm", "ratio"];
const MOST_DEPTH: usize = 12;

/// A schedule that is run: the function for the forward pass, the number of micro-batches, and where it divides by it.
struct Schedule<'a> {
    forward: &'a Operand,
    count: &'a Operand,
    divides: Option<Place>,
}

/// One factor of a loss.
struct Factor<'a> {
    view: Rc<View<'a>>,
    expr: Expr,
    /// Multiplied by it, or divided.
    up: bool,
}

/// `get_forward_backward_func()(forward_step_func=step, num_microbatches=len(batches))`
pub fn losses(view: &View<'_>, out: &mut Found) {
    for (i, step) in view.steps.iter().enumerate() {
        let Some(schedule) = schedule(view, i) else { continue };
        let Some(batches) = counted(view, schedule.count) else { continue };
        let Some(loss) = loss_of(view, schedule.forward) else { continue };
        let Some((place, total)) = normalised(view, &loss, &batches) else { continue };
        let file = near::bare(view.file());
        // The number of rounds is asked for besides: it may be a factor of what is not followed.
        let again = view.code().matches("len(").count() > 1;
        let finishes = again || file.contains(FINISHES) && !file.contains(&format!("{FINISHES}_func = {FINISHES}\n"));
        if finishes || near::has_any(&file, SCALED) || near::has_any(view.code(), &["* len(", "*= len("]) {
            return;
        }
        let count = shown(view, &view.expr(schedule.count));
        let mistake =
            Membership::RoundsDivided { count, schedule: view.place(step.id), total, divides: schedule.divides };
        out.push((place, Practice::Membership(mistake)));
        return;
    }
}

fn shown(view: &View<'_>, count: &Expr) -> Name {
    match count {
        Expr::Local(local) => view.local_name(*local).clone(),
        Expr::Attr(base, name) => Name::from(format!("{}.{name}", shown(view, base))),
        Expr::Call { args, .. } => match args.first() {
            Some((_, of)) => Name::from(format!("len({})", shown(view, of))),
            None => Name::from("num_microbatches"),
        },
        _ => Name::from("num_microbatches"),
    }
}

/// The schedule that a step runs.
fn schedule<'a>(view: &View<'a>, step: usize) -> Option<Schedule<'a>> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let is_given = |given: &Rvalue| match given {
        Rvalue::Call { callee, .. } => match view.through(callee) {
            Expr::Call { callee, .. } => callee.last_name() == Some(SCHEDULES),
            _ => false,
        },
        _ => false,
    };
    if is_given(value) {
        // One of the project may do otherwise.
        if view.project.modules.ids().any(|module| view.project.own_function(module, SCHEDULES).is_some()) {
            return None;
        }
        let only_forward = view.argument(args, usize::MAX, "forward_only");
        if only_forward.is_some_and(|told| view.through(told) == Expr::Const(Const::Bool(true))) {
            return None;
        }
        // What a dict says is not seen.
        if args.iter().any(|a| matches!(a.kind, ArgKind::DoubleStar | ArgKind::Star)) {
            return None;
        }
        let forward = view.argument(args, 0, "forward_step_func")?;
        let count = view.argument(args, usize::MAX, "num_microbatches")?;
        return Some(Schedule { forward, count, divides: None });
    }
    let inner = near::shared(view, called_function(view, value)?);
    let (count, divides) = divided_inside(&inner)?;
    let count = argument(&inner, args, count)?;
    let calls = |arg: &&Arg| near::function(view, &arg.value).is_some();
    let forward = &args.iter().find(calls)?.value;
    Some(Schedule { forward, count, divides: Some(divides) })
}

/// The parameter by which a function divides each loss before its backward pass, in as many rounds; and where.
fn divided_inside(inner: &View<'_>) -> Option<(usize, Place)> {
    let mut found = None;
    for (i, step) in inner.steps.iter().enumerate() {
        match inner.value(i) {
            Some(Rvalue::Binary { op: BinOp::Mul, .. } | Rvalue::InPlace { op: BinOp::Mul, .. }) => return None,
            Some(Rvalue::Binary { op: BinOp::Div, left, right } | Rvalue::InPlace { op: BinOp::Div, left, right }) => {
                let param = inner.func.params.iter().position(|p| Operand::Local(p.local) == *right)?;
                let rounds =
                    is_rounds(&inner.func.params[param].name) && step.guards.is_empty() && !step.loops.is_empty();
                if found.is_some() || !rounds || !goes_back(inner, i, left) {
                    return None;
                }
                found = Some((param, inner.place(step.id)));
            }
            _ => {}
        }
    }
    let (param, _) = found?;
    let count = Expr::Local(inner.func.params.get(param)?.local);
    let rounds = |e: &Expr| e.call_of("range").is_some_and(|args| matches!(args, [(_, n)] if *n == count));
    let repeats = inner.steps.iter().any(|s| matches!(s.stmt, Stmt::For { iter, .. } if rounds(&inner.expr(iter))));
    found.filter(|_| repeats && unpacks_pair(inner))
}

fn is_rounds(name: &str) -> bool {
    near::has_any(&name.to_lowercase(), ROUNDS)
}

/// Whether what a step makes of a loss goes back.
fn goes_back(inner: &View<'_>, step: usize, loss: &Operand) -> bool {
    let Stmt::Assign { dst, .. } = inner.steps[step].stmt else { return false };
    says(inner, &inner.expr(loss), &["loss", "output"])
        && (step..inner.steps.len()).any(|i| match inner.value(i) {
            Some(Rvalue::CallMethod { base, name, .. }) => {
                name == "backward" && near::local(base).is_some_and(|l| l == *dst || inner.expr(base).mentions(*dst))
            }
            _ => false,
        })
}

/// `loss, _ = loss_func(output)`
fn unpacks_pair(inner: &View<'_>) -> bool {
    inner.steps.iter().any(|s| match s.stmt {
        Stmt::Unpack { value, before, star: None, after } => {
            before.len() == 2 && after.is_empty() && matches!(inner.expr(value), Expr::Call { .. })
        }
        _ => false,
    })
}

/// The micro-batches that a number counts.
fn counted(view: &View<'_>, count: &Operand) -> Option<Batches> {
    let count = near::deep(view, &view.expr(count));
    match count.call_of("len")? {
        [(_, of)] => batches(of),
        _ => None,
    }
}

/// The function that an operand is, also one that an enclosing function defines.
fn defined(view: &View<'_>, operand: &Operand) -> Option<FuncRef> {
    near::function(view, operand).or_else(|| {
        let local = near::local(operand)?;
        let (outer, _) = view.func.captures.iter().find(|(_, inner)| *inner == local)?;
        let parent = near::shared(view, FuncRef { module: view.at.module, func: view.func.parent? });
        near::function(&parent, &Operand::Local(*outer))
    })
}

/// The items of what a function returns, each time.
fn returned<'a>(view: &View<'a>) -> Option<Vec<(usize, [&'a Operand; 2])>> {
    let mut all = Vec::new();
    for (i, step) in view.steps.iter().enumerate() {
        let Stmt::Return { value } = step.stmt else { continue };
        let (_, Rvalue::Build { items, .. }) = view.source(value)? else { return None };
        let [Item::One(first), Item::One(second)] = &items[..] else { return None };
        all.push((i, [first, second]));
    }
    (!all.is_empty()).then_some(all)
}

/// The function for the loss that the one for the forward pass returns beside its output.
fn loss_of<'a>(view: &View<'a>, forward: &Operand) -> Option<Rc<View<'a>>> {
    let forward = near::shared(view, defined(view, forward)?);
    let [(_, [_, loss])] = returned(&forward)?[..] else { return None };
    let at = defined(&forward, loss).or_else(|| {
        let (_, value) = forward.source(loss)?;
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
        forward.callee(value).filter(|path| path == "functools.partial")?;
        defined(&forward, &args.first()?.value)
    })?;
    Some(near::shared(view, at))
}

/// Where a loss is divided by the weight of all micro-batches without their number: the place for the factor, and where the weight is summed.
fn normalised<'a>(view: &View<'a>, loss: &Rc<View<'a>>, batches: &Batches) -> Option<(Place, Place)> {
    let mut found = None;
    for (at, [first, _]) in returned(loss)? {
        let mut search = Search { outer: view, batches, total: None, place: None, factors: Vec::new() };
        search.collect(loss, &loss.expr(first), true, at, MOST_DEPTH)?;
        let all = search.factors.iter().all(is_understood);
        let total = search.total?;
        let has_loss = search.factors.iter().any(|f| f.up && says(&f.view, &f.expr, &["loss", "entropy"]));
        if !all || !has_loss || found.is_some() {
            return None;
        }
        found = Some((search.place.unwrap_or(loss.part(loss.steps[at].id, 0)), total));
    }
    found
}

/// The factors of a product, followed into the functions around.
struct Search<'s, 'a> {
    outer: &'s View<'a>,
    batches: &'s Batches,
    /// Where the weight of all micro-batches is summed, once it was met.
    total: Option<Place>,
    /// Where a factor is made outside of the loss.
    place: Option<Place>,
    factors: Vec<Factor<'a>>,
}

impl<'a> Search<'_, 'a> {
    fn collect(&mut self, view: &Rc<View<'a>>, expr: &Expr, up: bool, before: usize, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match expr {
            Expr::Binary(BinOp::Mul, a, b) => {
                self.collect(view, a, up, before, depth)?;
                self.collect(view, b, up, before, depth)
            }
            Expr::Binary(BinOp::Div, a, b) => {
                self.collect(view, a, up, before, depth)?;
                self.collect(view, b, !up, before, depth)
            }
            Expr::Call { callee, .. } => match &**callee {
                Expr::Attr(base, name) if SAME.contains(&name.as_str()) => self.collect(view, base, up, before, depth),
                _ => self.leaf(view, expr, up),
            },
            Expr::Local(local) => self.variable(view, *local, up, before, depth),
            other => self.leaf(view, other, up),
        }
    }

    fn leaf(&mut self, view: &Rc<View<'a>>, expr: &Expr, up: bool) -> Option<()> {
        self.factors.push(Factor { view: view.clone(), expr: expr.clone(), up });
        Some(())
    }

    fn variable(&mut self, view: &Rc<View<'a>>, local: LocalId, up: bool, before: usize, depth: usize) -> Option<()> {
        if !up
            && view.at == self.outer.at
            && let Some(place) = total(view, local, self.batches)
        {
            // By two such sums nothing is meant.
            return self.total.replace(place).is_none().then_some(());
        }
        if let Some((outer, _)) = view.func.captures.iter().find(|(_, inner)| *inner == local) {
            let parent = near::shared(self.outer, FuncRef { module: view.at.module, func: view.func.parent? });
            let defs = parent.defs(*outer);
            // What is bound again after the function was defined is not followed.
            if up && defs.len() > 1 {
                return None;
            }
            let made = |def: &usize| {
                let value = parent.value(*def);
                matches!(value, Some(Rvalue::Call { .. } | Rvalue::CallMethod { .. } | Rvalue::Binary { .. }))
            };
            if let Some(def) = defs.first().filter(|def| up && parent.at == self.outer.at && made(def)) {
                self.place = Some(parent.place(parent.steps[*def].id));
            }
            return self.variable(&parent, *outer, up, parent.steps.len(), depth);
        }
        let Some(def) = view.last_def(local, before) else {
            return self.leaf(view, &Expr::Local(local), up);
        };
        // What only some ways bind is not followed.
        if !view.steps[def].guards.is_empty() || !view.steps[def].loops.is_empty() {
            return None;
        }
        match view.bound(def, local) {
            Expr::Unknown => self.leaf(view, &Expr::Local(local), up),
            value => self.collect(view, &value, up, def, depth),
        }
    }
}

/// Whether a factor is certainly no number of micro-batches: what a loss is made of, its weight, a number of ranks, the scale of the optimizer.
fn is_understood(factor: &Factor<'_>) -> bool {
    let (view, expr) = (&factor.view, &factor.expr);
    let rounds = |e: &Expr| match e {
        Expr::Local(local) => is_rounds(view.local_name(*local)),
        Expr::Call { callee, .. } => callee.last_name().is_some_and(|name| name == "len" || is_rounds(name)),
        other => other.last_name().is_some_and(is_rounds),
    };
    if expr.any(&mut |e| rounds(e)) {
        return false;
    }
    let name = match expr {
        Expr::Local(local) => Some(view.local_name(*local).as_str()),
        Expr::Call { callee, .. } => match &**callee {
            Expr::Local(local) => Some(view.local_name(*local).as_str()),
            other => other.last_name(),
        },
        other => other.last_name(),
    };
    let of_torch =
        matches!(expr, Expr::Call { callee, .. } if callee.path().is_some_and(|path| path.starts_with("torch.")));
    let name = name.unwrap_or_default().to_lowercase();
    let is_part = near::has_any(&name, PARTS) && !near::has_any(&name, ANY_FACTOR) || name == "get_loss_scale";
    match expr {
        Expr::Const(number) => *number == Const::Int(1) || *number == Const::Float(1.0f64.to_bits()),
        Expr::Binary(..) | Expr::Item(..) => says(view, expr, &["loss"]) && !says(view, expr, ANY_FACTOR),
        _ => {
            is_part
                || of_torch
                || matches!(name.as_str(), "sum" | "mean")
                || name.contains("world_size")
                || of_size(view, expr).is_some()
        }
    }
}
