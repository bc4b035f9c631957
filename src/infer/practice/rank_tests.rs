//! Tests that tell ranks apart, however they are written. In: a condition and whether it holds. Out: whether ranks are told apart by their
//! number among all ranks or in a group, and whether one rank alone is left. Never: what only may be a rank, such as an attribute of an
//! object that is not known. Next: `ranks.rs` and `only_some.rs`.

use super::expr::Expr;
use super::near;
use super::view::{Guard, View};
use super::wrapped;
use crate::ir::{Arg, ArgKind, CmpOp, Const, LocalId, Operand, Rvalue, Stmt, UnOp};
use crate::project::{ClassRef, FuncRef};
use crate::rules::{Entry, FIRST_RANK, Gives, IntrinsicRule};
use crate::source::Name;
use std::rc::Rc;

/// A test of which only some ranks are on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// By the rank among all, and not by that in a group.
    pub of_all: bool,
    /// On the side that is taken there is one rank alone.
    pub one: bool,
}

/// What a number that is asked is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rank {
    of_all: bool,
    /// Its name alone says so: it may be that of a matrix.
    named: bool,
    /// It is the text of a variable of the environment: all that is set is true, 0 too.
    text: bool,
}

/// How far tests and ranks are followed.
const MOST_STEPS: usize = 8;

/// How many values a variable may have.
const MOST_VALUES: usize = 4;

/// The test that a guard is, on the side where it holds or does not.
pub fn test(view: &View<'_>, guard: &Guard<'_>) -> Option<Test> {
    let side = (guard.at, guard.holds);
    let known = view.rank_tests.borrow().get(&side).copied();
    known.unwrap_or_else(|| {
        let told = told(view, &view.expr(guard.test), guard.holds, MOST_STEPS);
        view.rank_tests.borrow_mut().insert(side, told);
        told
    })
}

/// The test in a conjunction of which the other side was left: `if rank == 0 and done: return`. The ranks that go on miss one there.
pub fn test_in_part(view: &View<'_>, guard: &Guard<'_>) -> Option<Test> {
    match view.expr(guard.test) {
        Expr::Bool { and, of } if and != guard.holds => {
            let plain = |e: &Expr| !speaks_of_jobs(view, e);
            let found = of.iter().find_map(|e| told(view, e, guard.holds, MOST_STEPS))?;
            let others = of.iter().filter(|e| told(view, e, guard.holds, MOST_STEPS).is_none());
            others.into_iter().all(plain).then_some(Test { one: false, ..found })
        }
        _ => None,
    }
}

/// The parts of a condition that hold together with a test of ranks.
pub fn others(view: &View<'_>, guard: &Guard<'_>) -> Vec<Expr> {
    match view.expr(guard.test) {
        Expr::Bool { and, of } if and == guard.holds => {
            of.into_iter().filter(|e| told(view, e, guard.holds, MOST_STEPS).is_none()).collect()
        }
        _ => Vec::new(),
    }
}

fn told(view: &View<'_>, test: &Expr, holds: bool, depth: usize) -> Option<Test> {
    let depth = depth.checked_sub(1)?;
    // `if rank:`, and `if not rank:`
    if let Some(rank) = rank(view, test, depth).filter(|r| !r.text && (!holds || !r.named)) {
        return Some(Test { of_all: rank.of_all, one: !holds });
    }
    match test {
        Expr::Unary(UnOp::Not, inner) => told(view, inner, !holds, depth),
        Expr::Compare(op, a, b) => compared(view, *op, (a, b), holds, depth),
        Expr::Bool { and, of } if *and == holds => {
            let mut found = of.iter().filter_map(|e| told(view, e, holds, depth));
            let first = found.next()?;
            Some(Test { one: first.one || found.any(|t| t.one), ..first })
        }
        Expr::Bool { of, .. } => {
            let mut found = None;
            for e in of {
                match told(view, e, holds, depth) {
                    Some(test) => found = Some(Test { one: found.is_none() && test.one, ..test }),
                    None if means_alone(view, e, holds) => {}
                    None => return None,
                }
            }
            found
        }
        Expr::Choice(_, a, b) => of_values(view, &[(**a).clone(), (**b).clone()], holds, depth),
        Expr::Local(local) if !view.is_param(*local) => {
            let values = values(view, *local);
            match values.is_empty() {
                true => elsewhere(view, test, holds, depth),
                false => of_values(view, &values, holds, depth),
            }
        }
        Expr::Path(_) => elsewhere(view, test, holds, depth),
        Expr::Attr(_, name) => attribute(view, test, &|view, e| told(view, e, holds, depth), &mut |view, values| {
            of_values(view, values, holds, depth)
        })
        .or_else(|| first(view.rules.first_rank(name)?, holds).filter(|_| is_foreign(view, test))),
        Expr::Call { callee, args, .. } if args.is_empty() => match inner(view, callee) {
            Some(inner) => returned_test(&inner, holds, depth),
            None => {
                let known = match &**callee {
                    Expr::Attr(_, name) => view.rules.first_rank(name).filter(|_| is_foreign(view, callee)),
                    callee => near::path(view, callee).and_then(|path| match view.rules.get(&path) {
                        Some(Entry::Intrinsic(rule)) if rule.does == FIRST_RANK => Some(rule.as_ref()),
                        _ => None,
                    }),
                };
                first(known?, holds)
            }
        },
        _ => None,
    }
}

/// The test that an object of a library has made: whether this is the first rank of all, or the first one of a node.
fn first(rule: &IntrinsicRule, holds: bool) -> Option<Test> {
    let of_nodes = rule.role("of").is_some_and(|of| of == "node");
    Some(Test { of_all: true, one: holds && !of_nodes })
}

/// Whether the project does not say what an attribute is.
fn is_foreign(view: &View<'_>, e: &Expr) -> bool {
    let Some((name, class)) = near::own_attribute(view, e).zip(near::class_of(view)) else { return true };
    let at = ClassRef { module: view.at.module, class };
    view.project.own_method(at, name).is_none() && near::assigned(view, class, name).is_empty()
}

/// What a variable is bound to; one that is bound often is not followed.
fn values(view: &View<'_>, local: LocalId) -> Vec<Expr> {
    match view.defs(local) {
        defs if defs.len() <= MOST_VALUES => defs.iter().map(|def| view.bound(*def, local)).collect(),
        _ => vec![Expr::Unknown],
    }
}

/// What a name of the module or of the function around holds.
fn elsewhere(view: &View<'_>, test: &Expr, holds: bool, depth: usize) -> Option<Test> {
    let deep = near::deep(view, test);
    if deep == *test { None } else { told(view, &deep, holds, depth) }
}

/// Of the values of a variable all that are no constants have to be tests.
fn of_values(view: &View<'_>, values: &[Expr], holds: bool, depth: usize) -> Option<Test> {
    let mut found: Option<Test> = None;
    for value in values {
        match told(view, value, holds, depth) {
            Some(test) => {
                let both = found.is_none_or(|f| f.one);
                found = Some(Test { one: both && test.one, ..test });
            }
            None if matches!(value, Expr::Const(Const::Bool(_))) => {}
            None => return None,
        }
    }
    found
}

/// A function that tells whether this is a certain rank: `return dist.get_rank() == 0`.
fn returned_test(inner: &View<'_>, holds: bool, depth: usize) -> Option<Test> {
    if inner.func.is_generator || inner.func.is_async {
        return None;
    }
    let mut values = Vec::new();
    let mut by_guard = None;
    for step in &inner.steps {
        let Stmt::Return { value } = step.stmt else { continue };
        let value = inner.expr(value);
        if let Expr::Const(Const::Bool(given)) = value {
            let told = |g: &Guard<'_>| told(inner, &inner.expr(g.test), g.holds == (given == holds), depth);
            by_guard = by_guard.or_else(|| step.guards.iter().find_map(told));
        }
        values.push(value);
    }
    of_values(inner, &values, holds, depth).or_else(|| {
        let constants = values.iter().all(|v| matches!(v, Expr::Const(Const::Bool(_))));
        by_guard.filter(|_| constants).map(|test| Test { one: false, ..test })
    })
}

fn compared(view: &View<'_>, op: CmpOp, (a, b): (&Expr, &Expr), holds: bool, depth: usize) -> Option<Test> {
    let (op, a, b) = match (op, rank(view, a, depth)) {
        (_, Some(_)) => (op, a, b),
        (CmpOp::Eq | CmpOp::Ne, None) => (op, b, a),
        (CmpOp::Lt, None) => (CmpOp::Gt, b, a),
        (CmpOp::Gt, None) => (CmpOp::Lt, b, a),
        _ => return None,
    };
    let rank = rank(view, a, depth)?;
    let test = |one: bool| Some(Test { of_all: rank.of_all, one });
    let number = match near::deep(view, b) {
        Expr::Const(Const::Int(n)) => Some(n),
        Expr::Const(Const::Str(text)) => text.parse().ok(),
        _ => None,
    };
    match (op, number) {
        (CmpOp::Eq | CmpOp::Ne, Some(1..)) if rank.named => None,
        (CmpOp::Eq | CmpOp::Ne, Some(0..)) => test(holds == (op == CmpOp::Eq)),
        (CmpOp::Eq | CmpOp::Ne, None) if is_last(view, b) => test(holds == (op == CmpOp::Eq)),
        _ if rank.named => None,
        // Numbers below the bound are on one side.
        (CmpOp::Lt, Some(n)) | (CmpOp::Ge, Some(n)) if n > 0 => test(n == 1 && holds == (op == CmpOp::Lt)),
        (CmpOp::Le, Some(n)) | (CmpOp::Gt, Some(n)) if n >= 0 => test(n == 0 && holds == (op == CmpOp::Le)),
        (CmpOp::In | CmpOp::NotIn, None) => {
            let Expr::Build(items) = near::deep(view, b) else { return None };
            let numbers: Option<Vec<i64>> = items.iter().map(whole).collect();
            let numbers = numbers?;
            let ranks = numbers.iter().filter(|n| **n >= 0).count();
            // These may be all.
            let first = ranks > 1 && (0..).zip(&numbers).all(|(i, n)| i == *n);
            if ranks == 0 || first { None } else { test(ranks == 1 && holds == (op == CmpOp::In)) }
        }
        _ => None,
    }
}

/// The whole number that an expression is written as.
pub(super) fn whole(e: &Expr) -> Option<i64> {
    match e {
        Expr::Const(Const::Int(n)) => Some(*n),
        Expr::Unary(UnOp::Neg, inner) => whole(inner).and_then(i64::checked_neg),
        _ => None,
    }
}

/// Whether a number is that of the last rank: `world_size - 1`.
fn is_last(view: &View<'_>, number: &Expr) -> bool {
    let whole = match number {
        Expr::Local(local) => view.through(&Operand::Local(*local)),
        other => other.clone(),
    };
    match &whole {
        Expr::Binary(crate::ir::BinOp::Sub, size, one) => {
            **one == Expr::Const(Const::Int(1)) && is_number_of_ranks(view, size)
        }
        _ => false,
    }
}

/// Whether an expression is the number of all ranks.
pub fn is_number_of_ranks(view: &View<'_>, size: &Expr) -> bool {
    let named = |name: &str| {
        let name = name.to_lowercase();
        let name = name.trim_start_matches('_').trim_start_matches("get_");
        matches!(name, "world" | "world_size" | "num_ranks" | "n_ranks" | "nranks" | "global_world_size")
    };
    match size {
        Expr::Call { callee, args, .. } => {
            let none = |e: &Expr| match e {
                Expr::Const(Const::None) => true,
                Expr::Local(l) => view.func.params.iter().any(|p| p.local == *l && p.has_default),
                _ => false,
            };
            args.iter().all(|(_, e)| none(e)) && near::path(view, callee).is_some_and(|p| named(&super::lost::last(&p)))
        }
        Expr::Local(local) => match view.through(&Operand::Local(*local)) {
            Expr::Local(same) => named(view.local_name(same)),
            Expr::Call { callee, args, step } => is_number_of_ranks(view, &Expr::Call { callee, args, step }),
            _ => named(view.local_name(*local)),
        },
        Expr::Path(name) => named(&super::lost::last(name)),
        Expr::Attr(_, name) => named(name),
        _ => false,
    }
}

/// Whether a number is the rank for sure.
pub fn is_rank(view: &View<'_>, number: &Expr) -> bool {
    rank(view, number, MOST_STEPS).is_some_and(|rank| !rank.named && !rank.text)
}

/// The number that an expression is, if that is a rank.
fn rank(view: &View<'_>, e: &Expr, depth: usize) -> Option<Rank> {
    let depth = depth.checked_sub(1)?;
    match e {
        Expr::Call { callee, args, .. } => called(view, callee, args, depth),
        Expr::Local(local) if view.is_param(*local) => named(view, *local),
        Expr::Local(local) => {
            let values = values(view, *local);
            match values.is_empty() {
                true => deeper(view, e, depth),
                false => ranks(view, &values, depth),
            }
        }
        Expr::Path(_) => deeper(view, e, depth),
        Expr::Item(of, key) => matches!(&**of, Expr::Path(p) if p == "os.environ").then(|| variable(key)).flatten(),
        Expr::Choice(_, a, b) => ranks(view, &[(**a).clone(), (**b).clone()], depth),
        Expr::Attr(..) => {
            attribute(view, e, &|view, e| rank(view, e, depth).filter(|r| !r.named), &mut |view, values| {
                ranks(view, values, depth).filter(|r| !r.named)
            })
        }
        _ => None,
    }
}

fn deeper(view: &View<'_>, e: &Expr, depth: usize) -> Option<Rank> {
    let deep = near::deep(view, e);
    if deep == *e { None } else { rank(view, &deep, depth) }
}

/// Values of which all are ranks, but for numbers that stand for a program that is not distributed.
fn ranks(view: &View<'_>, values: &[Expr], depth: usize) -> Option<Rank> {
    let mut found: Option<Rank> = None;
    for value in values {
        match rank(view, value, depth) {
            Some(r) => {
                let all = found.is_none_or(|f| f.of_all);
                let text = r.text || found.is_some_and(|f| f.text);
                found = Some(Rank { of_all: all && r.of_all, text, ..r });
            }
            None if whole(value).is_some() => {}
            None => return None,
        }
    }
    found
}

/// A parameter that is called a rank; beside the number of ranks it is one for sure.
fn named(view: &View<'_>, local: LocalId) -> Option<Rank> {
    if !view.defs(local).is_empty() || !matches!(view.local_name(local).as_str(), "rank" | "global_rank") {
        return None;
    }
    let own = view.func.params.iter().find(|p| p.local == local)?;
    if own.has_default || is_of_matrices(view, own.name.as_str()) {
        return None;
    }
    let sizes = ["world_size", "world", "num_ranks", "nprocs"];
    let beside = view.func.params.iter().any(|p| sizes.contains(&p.name.as_str()));
    let whole = view.file();
    let of_jobs = ["init_process_group", "world_size", "get_rank", "spawn(", "device", "cuda"];
    let named = !beside && view.local_name(local) == "rank";
    (!named || near::has_any(whole, &of_jobs)).then_some(Rank { of_all: true, named, text: false })
}

/// Words of code in which a rank is that of a matrix, or the number of dims.
const MATRICES: &[&str] =
    &["lora", "adapter", "svd", "low_rank", "lowrank", "powersgd", "ndim", "dims", ".dim(", "tensor rank"];

/// Functions that are given sizes.
const SIZED: &[&str] = &["randn", "zeros", "empty", "ones", "Linear", "new_zeros", "new_empty", "new_ones"];

/// Whether a function, or the class around it, speaks of matrices, or takes the rank as a size.
fn is_of_matrices(view: &View<'_>, rank: &str) -> bool {
    let speaks = |text: &str| near::has_any(&text.to_lowercase(), MATRICES);
    let sized = || {
        (0..view.steps.len()).any(|i| {
            let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(i) else { return false };
            let is = |a: &Arg| matches!(a.value, Operand::Local(l) if view.local_name(l) == rank);
            let makes = || match view.value(i) {
                Some(Rvalue::CallMethod { name, .. }) => SIZED.contains(&name.as_str()),
                Some(value) => view.callee(value).is_some_and(|p| SIZED.contains(&super::lost::last(&p).as_str())),
                None => false,
            };
            args.iter().any(is) && makes()
        })
    };
    let class = || {
        near::class_of(view).is_some_and(|class| {
            let of = view.project.class(ClassRef { module: view.at.module, class });
            speaks(view.text(view.spot(of.span)))
        })
    };
    speaks(view.text(view.spot(view.func.span))) || class() || sized()
}

/// A variable of the environment.
fn variable(key: &Expr) -> Option<Rank> {
    match key.string()?.as_str() {
        "RANK" | "SLURM_PROCID" | "OMPI_COMM_WORLD_RANK" => Some(Rank { of_all: true, named: false, text: true }),
        "LOCAL_RANK" => Some(Rank { of_all: false, named: false, text: true }),
        _ => None,
    }
}

/// What a call gives.
fn called(view: &View<'_>, callee: &Expr, args: &[(ArgKind, Expr)], depth: usize) -> Option<Rank> {
    if let Expr::Attr(base, name) = callee
        && near::own_attribute(view, callee).is_none()
    {
        let mesh = wrapped::says(view, base, &["mesh"]);
        return (mesh && name == "get_local_rank").then_some(Rank { of_all: false, named: false, text: false });
    }
    if let Some(path) = near::path(view, callee) {
        match (path.trim_start_matches("builtins."), args) {
            (to @ ("int" | "str"), [(ArgKind::Positional, inner)]) => {
                let text = to == "str";
                return rank(view, inner, depth).map(|r| Rank { text, ..r });
            }
            ("os.environ.get" | "os.getenv", [(_, key), ..]) => return variable(key),
            _ => {}
        }
        match view.rules.get(&path) {
            Some(Entry::Intrinsic(rule)) if &*rule.does == "get-rank" => {
                return Some(Rank { of_all: args.iter().all(|(_, e)| e.is_none()), named: false, text: false });
            }
            Some(Entry::Group(rule)) if rule.gives == Gives::Rank => {
                return Some(Rank { of_all: rule.axes.is_empty(), named: false, text: false });
            }
            _ => {}
        }
    }
    if !args.is_empty() {
        return None;
    }
    let inner = inner(view, callee)?;
    if inner.func.is_generator || inner.func.is_async {
        return None;
    }
    ranks(&inner, &returned(&inner), depth).filter(|r| !r.named)
}

/// What a function returns.
pub(super) fn returned(inner: &View<'_>) -> Vec<Expr> {
    let given = inner.steps.iter().filter_map(|s| match s.stmt {
        Stmt::Return { value } => Some(inner.expr(value)),
        _ => None,
    });
    given.take(MOST_VALUES + 1).collect()
}

/// The function of the project that a call without arguments calls.
fn inner<'a>(view: &View<'a>, callee: &Expr) -> Option<Rc<View<'a>>> {
    Some(near::shared(view, wrapped::function(view, callee)?))
}

/// What an attribute of the object itself is: what all of its assignments give, or its property.
fn attribute<'a, T>(
    view: &View<'a>,
    e: &Expr,
    one: &dyn Fn(&View<'a>, &Expr) -> Option<T>,
    many: &mut dyn FnMut(&View<'a>, &[Expr]) -> Option<T>,
) -> Option<T> {
    let (name, class) = near::own_attribute(view, e).zip(near::class_of(view))?;
    let at = ClassRef { module: view.at.module, class };
    if let Some(method) = view.project.own_method(at, name) {
        return property(view, method, many);
    }
    // Constants stand for a program that is not distributed.
    let mut found = None;
    for (method, _, value) in near::assigned(view, class, name) {
        match method.expr(value) {
            Expr::Const(Const::Int(_) | Const::Bool(_)) => {}
            value => found = Some(one(&method, &value)?),
        }
    }
    found
}

/// What a property gives.
fn property<'a, T>(
    view: &View<'a>,
    method: FuncRef,
    many: &mut dyn FnMut(&View<'a>, &[Expr]) -> Option<T>,
) -> Option<T> {
    if !near::is_property(view, method) {
        return None;
    }
    let inner = near::shared(view, method);
    many(&inner, &returned(&inner))
}

/// Parts of names of what says that a program is distributed.
const JOBS: &[&str] = &["initialized", "distributed", "dist_avail", "is_dist"];

/// Whether a part of a condition asks whether there are several ranks.
fn speaks_of_jobs(view: &View<'_>, e: &Expr) -> bool {
    wrapped::says(
        view,
        e,
        &["world", "size", "initialized", "available", "distributed", "fsdp", "ddp", "shard", "solo"],
    )
}

/// Whether a test says, where it holds or does not, that the program is distributed, and always does so there.
pub fn means_distributed(view: &View<'_>, test: &Expr, holds: bool) -> bool {
    means_within(view, test, holds, MOST_STEPS)
}

fn means_within(view: &View<'_>, test: &Expr, holds: bool, depth: usize) -> bool {
    // A variable may be made of itself: `alone = not alone`.
    let Some(depth) = depth.checked_sub(1) else { return false };
    match test {
        Expr::Unary(UnOp::Not, inner) => means_within(view, inner, !holds, depth),
        Expr::Bool { of, .. } => of.iter().all(|e| means_within(view, e, holds, depth)),
        Expr::Compare(op, size, number) => side_of_several(*op, number, holds) && is_number_of_ranks(view, size),
        Expr::Local(local) => {
            let named = near::has_any(&view.local_name(*local).to_lowercase(), JOBS);
            match view.through(&Operand::Local(*local)) {
                Expr::Local(_) | Expr::Unknown => holds && named && !is_negative(view.local_name(*local)),
                value => {
                    means_within(view, &value, holds, depth) || holds && named && !is_negative(view.local_name(*local))
                }
            }
        }
        Expr::Call { callee, .. } => match near::path(view, callee) {
            Some(path) => holds && is_job(&path),
            None => false,
        },
        Expr::Path(name) => holds && is_job(name),
        Expr::Attr(_, name) => holds && is_job(name),
        _ => false,
    }
}

/// Whether the side of a comparison with a number of ranks is that of several ones.
fn side_of_several(op: CmpOp, number: &Expr, holds: bool) -> bool {
    let Expr::Const(Const::Int(n)) = *number else { return false };
    match op {
        CmpOp::Gt => holds && n == 1,
        CmpOp::Ge => holds && n == 2,
        CmpOp::Le | CmpOp::Eq => !holds && n == 1,
        CmpOp::Lt => !holds && n == 2,
        CmpOp::Ne => holds && n == 1,
        _ => false,
    }
}

/// Whether a test asks the job itself whether it is distributed: what a caller or an object says may be that it is not to be.
pub fn asks_job(view: &View<'_>, test: &Expr, holds: bool) -> bool {
    asked(view, test, holds, MOST_STEPS)
}

fn asked(view: &View<'_>, test: &Expr, holds: bool, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let ends = |e: &Expr, wanted: &dyn Fn(&str) -> bool| match e {
        Expr::Call { callee, .. } => near::path(view, callee).is_some_and(|path| {
            let inside = || {
                let words = ["get_world_size", "is_initialized", "is_available", "is_distributed"];
                wrapped::function(view, callee).is_none_or(|at| near::has_any(near::shared(view, at).code(), &words))
            };
            wanted(&path) && inside()
        }),
        _ => false,
    };
    match test {
        Expr::Unary(UnOp::Not, inner) => asked(view, inner, !holds, depth),
        Expr::Bool { of, .. } => of.iter().all(|e| asked(view, e, holds, depth)),
        Expr::Compare(op, size, number) => {
            let several = side_of_several(*op, number, holds);
            let whole = match &**size {
                Expr::Local(local) => view.through(&Operand::Local(*local)),
                other => near::deep(view, other),
            };
            several && is_number_of_ranks(view, &whole) && ends(&whole, &|_| true)
        }
        Expr::Local(local) if !view.is_param(*local) => match view.defs(*local) {
            [one] => asked(view, &view.bound(*one, *local), holds, depth),
            _ => false,
        },
        Expr::Call { .. } => holds && ends(test, &|path| is_job(&Name::from(path))),
        Expr::Path(_) => {
            let deep = near::deep(view, test);
            deep != *test && asked(view, &deep, holds, depth)
        }
        Expr::Attr(..) => {
            let Some((name, class)) = near::own_attribute(view, test).zip(near::class_of(view)) else { return false };
            let values = near::assigned(view, class, name);
            !values.is_empty() && values.iter().all(|(by, _, value)| asked(by, &by.expr(value), holds, depth))
        }
        _ => false,
    }
}

/// Whether a test says that the program is not distributed.
fn means_alone(view: &View<'_>, test: &Expr, holds: bool) -> bool {
    means_distributed(view, test, !holds)
}

fn is_job(path: &Name) -> bool {
    let name = path.rsplit('.').next().unwrap_or(path).to_lowercase();
    let of_torch = path.starts_with("torch.distributed") && name == "is_available";
    of_torch || near::has_any(&name, JOBS) && !is_negative(&name)
}

/// Whether a name says the contrary: `not_distributed`.
fn is_negative(name: &str) -> bool {
    near::has_any(name, &["not_", "non", "no_", "un", "single"])
}
