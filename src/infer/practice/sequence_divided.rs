//! Gradients that are divided by the number of sequence-parallel ranks as well. In: a class that keeps a number of sequence-parallel ranks. Out: where
//! its gradients go to a reduction over the data and sequence ranks together that divides by the size of that group, while nothing reads the number:
//! ranks of one sequence have shares of one loss, which add up. And a reduction that is not given the size that another one of the same
//! method is given. Never: a number that other code may read.
//! Source: DeepSpeed pull request 5555, `_reduce_non_expert_gradients`. Next: `unused_group.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::omissions::Omission;
use super::unused_group::is_read;
use super::view::View;
use super::{Class, Found, Lint};
use crate::ir::{Arg, ArgKind, BinOp, LocalId, Operand, Param, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::Place;
use std::rc::Rc;

/// Parts of names of numbers of sequence-parallel ranks, and of groups with data ranks too.
const SEQUENCE: &[&str] = &["sequence", "seq", "sp", "ulysses"];
const SIZES: &[&str] = &["size", "degree", "world"];
const DATA: &[&str] = &["data", "dp"];
const MOST_CALLS: usize = 3;

fn has(name: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| near::has_part(name, part))
}

/// `self.sequence_parallel_size = n`, never read, and `self.reduce(grads, group=sequence_data_group)`.
pub fn over_both<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let text = lint.files[lint.project.file(class.at.module)].slice(lint.project.class(class.at).span);
    let concerned = text.contains("all_reduce") && text.contains("get_world_size(") && text.contains("grad");
    if !concerned || !near::has_any(text, &["seq", "sp_", "ulysses"]) {
        return;
    }
    // What the loss is a mean of decides, where it is in view; and the number may be asked for where it comes from.
    let file = near::bare(lint.files[lint.project.file(class.at.module)].whole());
    let loss = near::has_any(&file, &["cross_entropy(", "mse_loss(", "autograd.function", ").loss"]);
    if loss {
        return;
    }
    let Some(init) = class.init(lint) else { return };
    let asked = text.matches("sequence_parallel_world_size(").count()
        > init.text(init.spot(init.func.span)).matches("sequence_parallel_world_size(").count();
    let number = init.steps.iter().find_map(|step| match step.stmt {
        Stmt::SetAttr { base, name, .. } if near::is_self(init, base) && has(name, SEQUENCE) && has(name, SIZES) => {
            (!has(name, DATA) && !is_read(lint, class, name)).then(|| (name.clone(), init.place(step.id)))
        }
        _ => None,
    });
    let Some((number, kept)) = number else { return };
    if asked || near::refusals(&file).any(|line| line.contains(number.as_str())) {
        return;
    }
    for (_, func) in &lint.project.class(class.at).methods {
        let method = lint.view(FuncRef { module: class.at.module, func: *func });
        for (i, step) in method.steps.iter().enumerate() {
            let Some(Rvalue::CallMethod { base, name, args }) = method.value(i) else { continue };
            let Some(group) = args.iter().position(|a| is_of_both(&method, &a.value)) else { continue };
            if !near::is_self(&method, base) {
                continue;
            }
            // A size that is given besides is the one to divide by.
            let sizes: Vec<usize> = (0..args.len()).filter(|at| gives_size(&method, &args[*at])).collect();
            let divided = match sizes.as_slice() {
                [] => divides(&method, name, &args[group], group, MOST_CALLS),
                [one] => given_whole(&method, name, args, *one),
                _ => None,
            };
            let Some(divided) = divided else { continue };
            // One cause, one finding: that the number is never looked at is said here.
            out.retain(|(_, told)| !matches!(told, Practice::IgnoredSwitch { switch, .. } if *switch == number));
            let mistake = Omission::SequenceDivided { number, kept, divided };
            out.push((method.place(step.id), Practice::Omission(mistake)));
            return;
        }
    }
}

/// `n = get_world_size(group) / self.sequence_parallel_size`, which one reduction is given and another one of the same method is not.
pub fn one_of_two<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let text = lint.files[lint.project.file(class.at.module)].slice(lint.project.class(class.at).span);
    if !near::has_any(text, &["seq", "sp_", "ulysses"])
        || !text.contains("get_world_size(")
        || !text.contains("all_reduce")
    {
        return;
    }
    for (_, func) in &lint.project.class(class.at).methods {
        let method = lint.view(FuncRef { module: class.at.module, func: *func });
        let Some((made, size, group)) = (0..method.steps.len()).find_map(|i| share(&method, i)) else { continue };
        if is_multiplied(text, lint.files[lint.project.file(class.at.module)].whole()) {
            return;
        }
        let own = method.local_name(size);
        let given = |args: &[Arg], of: LocalId| args.iter().position(|a| near::local(&a.value) == Some(of));
        let calls = |i: usize| match method.value(i) {
            Some(Rvalue::CallMethod { base, name, args }) => Some((base, name, args)),
            _ => None,
        };
        let all = (made + 1..method.steps.len()).filter_map(|i| calls(i).map(|call| (i, call)));
        let all: Vec<_> = all.filter(|(_, (_, _, args))| given(args, group).is_some()).collect();
        if !all.iter().any(|(_, (_, _, args))| given(args, size).is_some()) {
            continue;
        }
        for (i, (base, name, args)) in all {
            let gradients = |a: &Arg| {
                let name = method.name_of(&method.expr(&a.value)).unwrap_or_default().to_lowercase();
                has(&name, &["grad", "grads", "bucket", "buckets", "dense", "flat"])
            };
            let own_call = near::is_self(&method, base) && args.iter().any(gradients);
            let Some(at) = given(args, group).filter(|_| own_call) else { continue };
            if args.iter().any(|a| gives_size(&method, a)) {
                continue;
            }
            let Some(divided) = divides(&method, name, &args[at], at, MOST_CALLS) else { continue };
            let made = method.place(method.steps[made].id);
            let mistake = Omission::SizeNotGiven { function: name.clone(), size: own.clone(), made, divided };
            out.push((method.place(method.steps[i].id), Practice::Omission(mistake)));
            return;
        }
    }
}

/// Whether anything but a mean multiplies, or a reduction divides by fewer ranks of its own accord.
fn is_multiplied(class: &str, file: &str) -> bool {
    let multiplies = |line: &str| {
        let inverse = near::has_any(line, &["mul_(1", "*= 1"]);
        !inverse && near::has_any(line, &["mul_(", "*=", "_foreach_mul"])
    };
    let shares = class.lines().filter(|line| line.contains("get_world_size(") && line.contains('/')).count();
    shares > 1 || near::bare(file).lines().any(multiplies)
}

/// The size of a group divided by the number of ranks that share a sequence: the step, the variable and that of the group.
fn share(view: &View<'_>, step: usize) -> Option<(usize, LocalId, LocalId)> {
    let Stmt::Assign { dst, .. } = view.steps[step].stmt else { return None };
    let Expr::Binary(BinOp::Div | BinOp::FloorDiv, all, by) = view.bound(step, *dst) else { return None };
    let [(_, Expr::Local(group))] = all.call_of("get_world_size")? else { return None };
    let sharing = by.any(&mut |e| view.name_of(e).is_some_and(|name| has(name, SEQUENCE) && has(name, SIZES)));
    (sharing && !view.is_temp(*dst)).then_some((step, *dst, *group))
}

/// Whether a value is a group of data and sequence ranks, by what gives it.
fn is_of_both(view: &View<'_>, value: &Operand) -> bool {
    let both = |name: &str| has(name, SEQUENCE) && has(name, DATA) && name.contains("group");
    let named = |e: &Expr| match e {
        Expr::Call { callee, .. } => callee.last_name().is_some_and(both),
        other => view.name_of(other).is_some_and(both),
    };
    let value = view.expr(value);
    named(&value)
        || match &value {
            Expr::Local(local) => view.defs(*local).iter().any(|def| named(&view.bound(*def, *local))),
            _ => false,
        }
}

fn gives_size(view: &View<'_>, arg: &Arg) -> bool {
    let by_name = matches!(&arg.kind, ArgKind::Keyword(k) if k.contains("size") || k.contains("divi"));
    let value = view.expr(&arg.value);
    by_name || view.name_of(&value).is_some_and(|name| name.contains("size"))
}

/// Where the size that a method divides by is made, if that is the number of ranks of a group of data and sequence ranks.
fn given_whole(view: &View<'_>, method: &str, args: &[Arg], at: usize) -> Option<Place> {
    let size = near::local(&args[at].value)?;
    let asked = |def: usize| match view.bound(def, size).call_of("get_world_size")? {
        [(_, Expr::Local(group))] => Some((def, *group)),
        _ => None,
    };
    // One that anything else makes may be another number.
    let asked: Option<Vec<(usize, LocalId)>> = view.defs(size).iter().map(|def| asked(*def)).collect();
    let of_both = |(def, group): &(usize, LocalId)| {
        view.last_def(*group, *def).is_some_and(|made| is_named_both(&view.bound(made, *group)))
    };
    let (made, _) = asked?.into_iter().find(of_both)?;
    divides_by(view, method, &args[at], at, MOST_CALLS).then(|| view.place(view.steps[made].id))
}

/// Whether an expression calls what gives a group of data and sequence ranks.
fn is_named_both(expr: &Expr) -> bool {
    let both = |name: &str| has(name, SEQUENCE) && has(name, DATA) && name.contains("group");
    matches!(expr, Expr::Call { callee, .. } if callee.last_name().is_some_and(both))
}

/// The parameter of a method that takes an argument.
fn taken_by<'a>(method: &View<'a>, given: &Arg, position: usize) -> Option<&'a Param> {
    match &given.kind {
        ArgKind::Keyword(name) => method.func.params.iter().find(|p| p.name == *name),
        _ => method.func.params.get(position + 1),
    }
}

/// Whether a method, or one that it hands the size on to, sums and divides by the size that it is given.
fn divides_by(from: &View<'_>, method: &str, given: &Arg, position: usize, depth: usize) -> bool {
    let (Some(depth), Some(at)) = (depth.checked_sub(1), near::own_method(from, method)) else { return false };
    let method: Rc<View<'_>> = near::shared(from, at);
    let param = taken_by(&method, given, position);
    let Some(param) = param.filter(|p| method.defs(p.local).is_empty()) else { return false };
    let name = param.name.to_lowercase();
    let forms = [
        format!(".div_({name})"),
        format!("/= {name}\n"),
        format!(".mul_(1.0 / {name})"),
        format!(".mul_(1. / {name})"),
    ];
    // A number that multiplies besides may make up for it.
    let code = method.code();
    if near::has_any(code, &forms) && code.contains("all_reduce") && code.matches("mul_(").count() <= 1 {
        return !code.contains("if ");
    }
    (0..method.steps.len()).any(|step| match method.value(step) {
        Some(Rvalue::CallMethod { base, name, args }) if near::is_self(&method, base) => {
            let at = args.iter().position(|a| near::local(&a.value) == Some(param.local));
            at.is_some_and(|at| divides_by(&method, name, &args[at], at, depth))
        }
        _ => false,
    })
}

/// Where a method, or one that it hands the group on to, divides by the number of ranks of the group that it is given.
fn divides(from: &View<'_>, method: &str, given: &Arg, position: usize, depth: usize) -> Option<Place> {
    let depth = depth.checked_sub(1)?;
    let method: Rc<View<'_>> = near::shared(from, near::own_method(from, method)?);
    let param = taken_by(&method, given, position)?;
    let asks = |e: &Expr| {
        e.call_of("get_world_size").is_some_and(|args| args.iter().any(|(_, a)| *a == Expr::Local(param.local)))
    };
    let asked = (0..method.steps.len()).find(|at| match method.steps[*at].stmt {
        Stmt::Assign { dst, .. } => asks(&method.bound(*at, *dst)),
        _ => false,
    });
    let scales = near::has_any(method.code(), &["mul_(1", "div_(", "/="]) && method.code().contains("all_reduce");
    if let (Some(asked), true) = (asked, scales) {
        return Some(method.place(method.steps[asked].id));
    }
    (0..method.steps.len()).find_map(|at| match method.value(at) {
        Some(Rvalue::CallMethod { base, name, args }) if near::is_self(&method, base) => {
            let group = args.iter().position(|a| near::local(&a.value) == Some(param.local))?;
            divides(&method, name, &args[group], group, depth)
        }
        _ => None,
    })
}
