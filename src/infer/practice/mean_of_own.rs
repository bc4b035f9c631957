//! Losses that are averaged over parts of a sequence although each part has another number of targets. In: a function. Out: a loss that is
//! divided by this rank's count of targets, here or in what gives it, and then gathered or reduced with its gradient and averaged over the ranks that have the other
//! parts. Never: a count that anything communicates, or ranks that have samples of their own. Next: `part_mean.rs`.

use super::Found;
use super::counts::{quotient, slice_until};
use super::expr::Expr;
use super::found::Practice;
use super::membership::Membership;
use super::near;
use super::own_part;
use super::view::{CollectiveCall, View};
use crate::ir::{BinOp, CmpOp, Item, LocalId, Operand, Rvalue, Stmt};
use crate::source::{Name, Place};
use rustc_hash::FxHashSet;

/// What cuts a part of the whole, or says that counts are equal.
const WHOLE: &[&str] = &["chunk(", "narrow(", "tensor_split(", "split(", "assert", "* sp_size", "* cp_size", "rank *"];

/// Names of groups over which a sequence is split.
pub const SEQUENCE: &[&str] = &["sp", "cp", "seq", "sequence", "context", "ulysses"];

/// `loss = total / (labels != -100).sum()`, `sum(all_gather(loss, sp_group)) / sp_size`
pub fn losses(view: &View<'_>, out: &mut Found) {
    let known = |call: &CollectiveCall<'_>| {
        call.rule.differentiable && matches!(call.rule.op.as_str(), "all_gather" | "all_reduce")
    };
    if may_differ(view) {
        view.collectives().iter().filter(|(_, call)| known(call)).for_each(|(at, call)| judge(view, *at, call, out));
    }
}

/// The same where an autograd function of the project sums: `Sum.apply(local_mean, cp_group) / cp_size`
pub fn applied(view: &View<'_>, out: &mut Found) {
    let sums: Vec<_> = (0..view.steps.len()).filter_map(|at| Some((at, own_sum(view, at)?))).collect();
    if !sums.is_empty() && may_differ(view) {
        sums.iter().for_each(|(at, call)| judge(view, *at, call, out));
    }
}

/// The sum over ranks that a call of an autograd function is, whose forward does nothing else.
fn own_sum<'a>(view: &View<'a>, at: usize) -> Option<CollectiveCall<'a>> {
    let Rvalue::CallMethod { base, name, args } = view.value(at)? else { return None };
    let class = near::class_named(view, base).filter(|_| name == "apply")?;
    let forward = near::shared(view, view.project.own_method(class, "forward")?);
    let [(_, sum)] = forward.collectives() else { return None };
    if sum.rule.op != "all_reduce" || super::mixed_mean::averages(&forward, sum) != Some(false) {
        return None;
    }
    let given = |operand: Option<&Operand>| {
        let roots = near::roots(&forward, operand?);
        let param = forward.func.params.iter().skip(1).position(|p| roots.contains(&p.local))?;
        Some(&args.get(param)?.value)
    };
    let (input, group) = (given(sum.input)?, given(sum.group)?);
    Some(CollectiveCall { rule: sum.rule.clone(), input: Some(input), output: None, group: Some(group), args: &[] })
}

/// Whether nothing says that the ranks count alike, or of the whole.
fn may_differ(view: &View<'_>) -> bool {
    // The count may be of the whole, of which the rank has a part; or of as many as on the others.
    let equal = |text: &str| near::has_any(text, &["as many", "same number", "equally many", "equal number"]);
    let file = view.file();
    let head = file[..(view.func.span.start as usize).min(file.len())].trim_end();
    let off = head.lines().next_back().is_some_and(|line| line.trim_start().starts_with("@torch.no_grad"));
    !off && !near::has_any(view.code(), WHOLE) && !near::notes(view).iter().any(|n| equal(&n.text))
}

/// A sum or gather of a loss over the ranks that have the other parts.
fn judge(view: &View<'_>, at: usize, call: &CollectiveCall<'_>, out: &mut Found) {
    let Some(Operand::Local(loss)) = call.input else { return };
    if !call.group.is_some_and(|group| is_of_sequence(view, &view.expr(group))) {
        return;
    }
    let Some((divided, counted)) = own_mean(view, *loss, at).or_else(|| by_helper(view, *loss, at)) else { return };
    if view.files[divided.file].slice(divided.span).contains("detach(") {
        return;
    }
    let Stmt::Assign { dst, .. } = view.steps[at].stmt else { return };
    let Some(averaged) = averaged(view, *dst, at, call) else { return };
    let mistake = Membership::MeanOfOwnMeans { loss: name(view, *loss), divided, counted };
    out.push((view.place(view.steps[averaged].id), Practice::Membership(mistake)));
}

/// Whether something is gathered before a step: the loss may be that of the whole on every rank.
fn gathers_before(view: &View<'_>, step: usize) -> bool {
    let collective = view.collectives().iter().any(|(at, call)| *at < step && call.rule.op.contains("gather"));
    // An index picks entries by a method of that name.
    let named = |at: usize| near::name_of_call(view, at).is_some_and(|n| n.contains("gather") && n != "gather");
    collective || (0..step).any(named)
}

fn name(view: &View<'_>, loss: LocalId) -> Name {
    match view.is_temp(loss) {
        true => Name::from("loss"),
        false => view.local_name(loss).clone(),
    }
}

/// Whether a group is one of ranks that have parts of one sequence, by its name.
fn is_of_sequence(view: &View<'_>, group: &Expr) -> bool {
    group.any(&mut |e| {
        let name = match e {
            Expr::Local(local) => view.local_name(*local),
            Expr::Path(name) | Expr::Attr(_, name) => name,
            Expr::Const(_) => return e.string().is_some_and(|s| SEQUENCE.iter().any(|w| near::has_part(s, w))),
            _ => return false,
        };
        let last = name.rsplit('.').next().unwrap_or_default();
        SEQUENCE.iter().any(|word| near::has_part(last, word))
    })
}

/// The same of a loss that a method of the class or a function of the project gives, alone or beside other results.
fn by_helper(view: &View<'_>, loss: LocalId, before: usize) -> Option<(Place, Place)> {
    let def = view.defs(loss).iter().copied().rfind(|d| *d < before)?;
    let (made, item) = match view.steps[def].stmt {
        Stmt::Unpack { value, before, star: None, after } if after.is_empty() => {
            let item = before.iter().position(|l| *l == loss)?;
            (view.source(value)?.0, Some((item, before.len())))
        }
        _ => (def, None),
    };
    let (at, _) = own_part::helper(view, view.value(made)?)?;
    let helper = near::shared(view, at);
    if gathers_before(view, made) || near::has_any(helper.code(), WHOLE) || !helper.collectives().is_empty() {
        return None;
    }
    let mut returns = helper.steps.iter().enumerate().filter_map(|(i, s)| match s.stmt {
        Stmt::Return { value } => Some((i, value)),
        _ => None,
    });
    let (step, value) = returns.next().filter(|_| returns.next().is_none())?;
    let given = match item {
        None => near::local(value)?,
        Some((item, of)) => match helper.source(value)? {
            (_, Rvalue::Build { items, .. }) if items.len() == of => match &items[item] {
                Item::One(one) => near::local(one)?,
                Item::Star(_) => return None,
            },
            _ => return None,
        },
    };
    own_mean(&helper, given, step)
}

/// Where a loss is divided by a count of this rank, and where that is counted.
fn own_mean(view: &View<'_>, loss: LocalId, before: usize) -> Option<(Place, Place)> {
    let def = *view.defs(loss).iter().rfind(|d| **d < before)?;
    let divided = match view.value(def)? {
        Rvalue::Use(Operand::Local(other)) => *view.defs(*other).iter().rfind(|d| **d < def)?,
        _ => def,
    };
    let (_, right) = quotient(view, divided)?;
    let count = slice_until(view, right, divided);
    if count.open || !count.collectives.is_empty() {
        return None;
    }
    let [counted] = count.sums[..] else { return None };
    // The count is of a mask: what is compared with what marks no target.
    let Some(Rvalue::CallMethod { base, .. }) = view.value(counted) else { return None };
    let is_mask = match view.through(base) {
        Expr::Compare(CmpOp::Ne, ..) => true,
        Expr::Call { callee, .. } => callee.last_name() == Some("ne"),
        Expr::Local(local) => view.local_name(local).contains("mask"),
        other => other.last_name().is_some_and(|name| name.contains("mask")),
    };
    let place = |step: usize| view.place(view.steps[step].id);
    (is_mask && !gathers_before(view, divided)).then(|| (place(divided), place(counted)))
}

/// Where what a collective gives is averaged: by a mean, or a quotient of the sum.
fn averaged(view: &View<'_>, result: LocalId, at: usize, call: &CollectiveCall<'_>) -> Option<usize> {
    let reduces = call.rule.op == "all_reduce";
    let is_mean = |e: Expr| match &e {
        Expr::Const(_) => e.string().is_some_and(|s| matches!(s.as_str(), "avg" | "mean")),
        other => matches!(other.last_name(), Some("AVG")),
    };
    if reduces && call.args.iter().any(|a| is_mean(view.expr(&a.value))) {
        return Some(at);
    }
    let mut held: FxHashSet<LocalId> = [result].into_iter().collect();
    // Whether what is held is a sum over the ranks already.
    let mut summed: FxHashSet<LocalId> = if reduces { held.clone() } else { FxHashSet::default() };
    for later in at + 1..view.steps.len() {
        let Stmt::Assign { dst, value } = view.steps[later].stmt else { continue };
        let holds = |o: &Operand| near::local(o).is_some_and(|l| held.contains(&l));
        let sums = |o: &Operand| near::local(o).is_some_and(|l| summed.contains(&l));
        match value {
            Rvalue::Use(o) if holds(o) => {
                if sums(o) {
                    summed.insert(*dst);
                }
                held.insert(*dst);
            }
            Rvalue::Binary { op: BinOp::Div, left, right } | Rvalue::InPlace { op: BinOp::Div, left, right }
                if sums(left) =>
            {
                return is_size(view, right).then_some(later);
            }
            Rvalue::CallMethod { base, name, .. } if holds(base) => match name.as_str() {
                "sum" if !reduces => {
                    held.insert(*dst);
                    summed.insert(*dst);
                }
                "mean" if !reduces => return Some(later),
                _ => return None,
            },
            Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }
                if args.first().is_some_and(|a| holds(&a.value)) =>
            {
                match view.callee(value)?.trim_start_matches("builtins.") {
                    "sum" | "torch.sum" => {
                        held.insert(*dst);
                        summed.insert(*dst);
                    }
                    "torch.stack" | "torch.cat" => {
                        held.insert(*dst);
                    }
                    "torch.mean" if !reduces => return Some(later),
                    _ => return None,
                }
            }
            // Anything else may weigh the losses of the ranks.
            other if other.operands().into_iter().any(holds) => return None,
            _ => {}
        }
    }
    None
}

/// Whether a divisor is a number of ranks, by its name.
fn is_size(view: &View<'_>, divisor: &Operand) -> bool {
    let name = match view.expr(divisor) {
        Expr::Local(local) => view.local_name(local).as_str().to_lowercase(),
        Expr::Call { callee, .. } => callee.last_name().unwrap_or_default().to_lowercase(),
        other => other.last_name().unwrap_or_default().to_lowercase(),
    };
    ["size", "degree", "ranks", "len"].iter().any(|word| name.contains(word)) && !name.contains("token")
}
