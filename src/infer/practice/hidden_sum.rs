//! Sums that are not seen as such. In: a function, and places of numbers that would be right if they had been summed over the ranks. Out:
//! whether one of them goes, under another name, in a container or to a function, where something communicates in its place. Never: that
//! it is summed for certain, or a collective that is given the variable itself, which the checks see. Source: torch, views share their
//! elements. Next: `mod.rs`, which asks before it reports.

use super::expr::Expr;
use super::view::View;
use super::{hidden_change, near};
use crate::ir::{Arg, ArgKind, Block, FuncId, LocalId, Operand, ParamKind, Rvalue, Stmt};
use crate::project::{FuncRef, Resolved};
use crate::source::{Name, Place};
use rustc_hash::FxHashSet;

/// Methods that give a tensor with the same elements, a copy that may be written back, or what a container holds.
const KEEPS: &[&str] = &[
    "view",
    "view_as",
    "reshape",
    "flatten",
    "squeeze",
    "unsqueeze",
    "detach",
    "contiguous",
    "clone",
    "cpu",
    "cuda",
    "double",
    "float",
    "long",
    "int",
    "to",
    "type_as",
    "t",
    "transpose",
    "expand",
    "unbind",
    "items",
    "values",
    "pop",
    "popleft",
    "get",
    "copy",
    "ravel",
    "narrow",
    "as_strided",
];

/// Functions that give what they are given, one by one or together.
const PASSES: &[&str] =
    &["enumerate", "zip", "list", "tuple", "reversed", "iter", "next", "dict", "set", "sorted", "deque", "chain"];

/// Parts of names of functions of nobody knows whom that may sum.
const SUMS: &[&str] = &["sum", "reduc", "sync", "gather", "avg", "average", "mean", "comm", "dist", "collect"];

/// Parts of names of what is no number.
const OTHERS: &[&str] = &[
    "group",
    "mesh",
    "optim",
    "model",
    "net",
    "scaler",
    "loader",
    "sched",
    "engine",
    "accelerator",
    "module",
    "trainer",
    "args",
    "config",
    "cfg",
    "hparam",
    "parser",
    "options",
];

/// How far calls are followed.
const MOST: usize = 3;

/// Whether a number at one of these places may be a sum over ranks after all. `follows`: what asks has followed calls of functions of the
/// project, as long as it is plain which argument is which. `of_gradient`: it asks about what the gradient of a loss is multiplied by, which a sum
/// of its values outside of the graph leaves alone.
pub fn may_be(view: &View<'_>, places: &[Place], follows: bool, of_gradient: bool) -> bool {
    let own = roots(view, places);
    let mut known = aliases(view, own);
    if of_gradient {
        known.copies.retain(|copy| !is_detached_loss(view, *copy));
    }
    let (own, copies) = (&known.own, &known.copies);
    hidden_change::gathered(view, own, copies)
        || (0..view.steps.len())
            .any(|i| hands_over(view, i, &known, follows) || hidden_change::changes(view, i, own, copies))
}

/// Names of some variables.
struct Known {
    /// They themselves, and what a loop over a list of them gives.
    own: FxHashSet<LocalId>,
    /// Containers with one of them.
    lists: FxHashSet<LocalId>,
    /// What comes out of containers in other ways: `for i, t in enumerate([x])`.
    held: FxHashSet<LocalId>,
    /// Views and copies.
    copies: FxHashSet<LocalId>,
    /// Objects that were given one of them.
    objects: FxHashSet<LocalId>,
}

/// The variables that what stands at some places is made of, without groups.
fn roots(view: &View<'_>, places: &[Place]) -> FxHashSet<LocalId> {
    let mut out = FxHashSet::default();
    for step in &view.steps {
        let at = view.place(step.id);
        let here = |p: &Place| p.file == at.file && p.span.start <= at.span.end && at.span.start <= p.span.end;
        let Stmt::Assign { dst, value } = step.stmt else { continue };
        if places.iter().any(here) {
            out.insert(*dst);
            for operand in value.operands() {
                out.extend(near::roots(view, operand));
                out.extend(near::local(operand));
            }
        }
    }
    let is_other = |l: &LocalId| {
        let name = view.local_name(*l).to_lowercase();
        near::has_any(&name, OTHERS) || name.ends_with("pg")
    };
    out.retain(|l| !is_other(l) && !view.is_param(*l) && !view.is_temp(*l));
    out
}

/// Whether a value without a name is a loss outside of the graph: `dist.all_reduce(loss.detach())`.
fn is_detached_loss(view: &View<'_>, copy: LocalId) -> bool {
    let of_loss = |o: &Operand| near::local(o).is_some_and(|l| view.local_name(l).to_lowercase().contains("loss"));
    let detached = |step: usize| matches!(view.value(step), Some(Rvalue::CallMethod { base, name, .. }) if name == "detach" && of_loss(base));
    view.is_temp(copy) && view.defs(copy).iter().all(|step| detached(*step))
}

/// Whether an operand is the gradient of a parameter.
fn is_gradient(view: &View<'_>, operand: &Operand) -> bool {
    matches!(view.expr(operand), Expr::Attr(_, name) if name == "grad" || name == "main_grad")
}

/// Other names of these variables and of gradients, and what holds them.
fn aliases(view: &View<'_>, own: FxHashSet<LocalId>) -> Known {
    let none = FxHashSet::default;
    let mut known = Known { own, lists: none(), held: none(), copies: none(), objects: none() };
    // What a loop puts into a container early is taken from it late.
    for _ in 0..2 {
        for step in &view.steps {
            match step.stmt {
                Stmt::Assign { dst, value } => known.assign(view, *dst, value),
                Stmt::For { dst, iter, body, .. } => match near::local(iter) {
                    Some(list) if known.lists.contains(&list) && gives(body) => known.add(*dst, |k| &mut k.held),
                    Some(list) if known.lists.contains(&list) => known.add(*dst, |k| &mut k.own),
                    Some(list) if known.held.contains(&list) => known.add(*dst, |k| &mut k.held),
                    _ => {}
                },
                Stmt::Unpack { value, before, after, .. }
                    if near::local(value).is_some_and(|l| known.held.contains(&l)) =>
                {
                    before.iter().chain(after.iter()).for_each(|l| known.add(*l, |k| &mut k.held));
                }
                _ => {}
            }
        }
    }
    known
}

/// Whether a loop is that of a comprehension.
fn gives(body: &Block) -> bool {
    body.iter().any(|node| matches!(node.stmt, Stmt::Append { .. }) || node.stmt.blocks().any(gives))
}

/// Whether a call makes an object of a class of the project.
fn makes(view: &View<'_>, callee: &Operand) -> bool {
    matches!(view.through(callee), Expr::Path(path) if matches!(view.project.path(&path), Resolved::Class(_)))
}

impl Known {
    /// One that is known already stays what it is.
    fn add(&mut self, local: LocalId, set: fn(&mut Known) -> &mut FxHashSet<LocalId>) {
        if ![&self.own, &self.lists, &self.held, &self.copies].iter().any(|known| known.contains(&local)) {
            set(self).insert(local);
        }
    }

    fn is_own(&self, view: &View<'_>, operand: &Operand) -> bool {
        near::local(operand).is_some_and(|l| self.own.contains(&l)) || is_gradient(view, operand)
    }

    fn is_any(&self, view: &View<'_>, operand: &Operand) -> bool {
        let any = |l: LocalId| [&self.lists, &self.held, &self.copies].iter().any(|set| set.contains(&l));
        self.is_own(view, operand) || near::local(operand).is_some_and(any)
    }

    fn assign(&mut self, view: &View<'_>, dst: LocalId, value: &Rvalue) {
        let of = |set: &FxHashSet<LocalId>, o: &Operand| near::local(o).is_some_and(|l| set.contains(&l));
        match value {
            Rvalue::Build { .. } if value.operands().into_iter().any(|o| self.is_any(view, o)) => {
                self.lists.insert(dst);
            }
            Rvalue::Item { base, .. } if of(&self.lists, base) || of(&self.held, base) => {
                self.add(dst, |k| &mut k.held)
            }
            Rvalue::Item { base, .. } if self.is_own(view, base) || of(&self.copies, base) => {
                self.add(dst, |k| &mut k.copies);
            }
            Rvalue::Attr { base, name } if name == "data" && of(&self.own, base) => self.add(dst, |k| &mut k.copies),
            Rvalue::Use(o) if of(&self.held, o) => self.add(dst, |k| &mut k.held),
            Rvalue::Use(o) if of(&self.objects, o) => {
                self.objects.insert(dst);
            }
            Rvalue::CallMethod { base, name, .. } if KEEPS.contains(&name.as_str()) => {
                if of(&self.lists, base) || of(&self.held, base) {
                    self.add(dst, |k| &mut k.held);
                } else if of(&self.own, base) || of(&self.copies, base) {
                    self.add(dst, |k| &mut k.copies);
                }
            }
            Rvalue::Call { callee, args } => {
                if args.iter().any(|a| self.is_any(view, &a.value)) && makes(view, callee) {
                    self.objects.insert(dst);
                }
                let passes = |p: Name| PASSES.contains(&super::lost::last(&p).as_str());
                if args.iter().any(|a| of(&self.lists, &a.value) || of(&self.held, &a.value))
                    && callee_of(view, value).is_some_and(passes)
                {
                    self.add(dst, |k| &mut k.held);
                }
            }
            _ => {}
        }
    }

    /// Whether a step writes a copy back: `x.copy_(c)`.
    fn writes_back(&self, view: &View<'_>, step: usize, copy: LocalId) -> bool {
        match view.value(step) {
            Some(Rvalue::CallMethod { base, name, args }) => {
                let from = |a: &Arg| near::roots(view, &a.value).contains(&copy) || a.value == Operand::Local(copy);
                name == "copy_" && self.is_own(view, base) && args.first().is_some_and(from)
            }
            _ => false,
        }
    }
}

fn callee_of(view: &View<'_>, value: &Rvalue) -> Option<Name> {
    let Rvalue::Call { callee, .. } = value else { return None };
    match view.through(callee) {
        Expr::Path(path) => Some(path),
        _ => None,
    }
}

/// Whether a step gives a variable, or what is another name for it, to something that may sum it in place.
fn hands_over(view: &View<'_>, step: usize, known: &Known, follows: bool) -> bool {
    let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(step) else {
        return false;
    };
    // What nothing is known of sums in place only where its result is left alone, or waited for.
    let left = matches!(view.steps[step].stmt, Stmt::Assign { dst, .. } if view.readers(*dst).iter().all(|r| only_waits(view, *r)));
    if !args.iter().any(|a| known.is_any(view, &a.value)) {
        // `Holder(x).sum()`
        return matches!(value, Rvalue::CallMethod { base, name, .. }
            if left && near::local(base).is_some_and(|l| known.objects.contains(&l)) && !hidden_change::observes(name));
    }
    let spread = |a: &Arg| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar);
    if view.may_communicate(value) && view.ruled(value).is_some_and(|(_, rule)| rule.is_some()) {
        return args.iter().any(spread) || is_unseen(view, value, known);
    }
    let held = |a: &Arg| {
        let given = view.through(&a.value);
        near::function(view, &a.value).is_some_and(|at| communicates(view, at, MOST))
            || matches!(given, Expr::Path(_)) && names_collective(&given)
            || left && matches!(given, Expr::Call { .. }) && given.call_of("partial").is_some()
    };
    if args.iter().any(held) || hidden_change::maps(view, value) {
        return true;
    }
    let of_project = |at: FuncRef| {
        let packed = |a: &Arg| near::local(&a.value).is_some_and(|l| known.lists.contains(&l));
        let plain = follows && !args.iter().any(|a| spread(a) || packed(a)) && takes_plainly(view, at);
        !plain && communicates(view, at, MOST)
    };
    let by_path = |path: &Name, of_function: &dyn Fn(FuncRef) -> bool| match view.project.path(path) {
        Resolved::Func(at) => of_function(at),
        Resolved::Class(_) => false,
        // A method of a group.
        _ if path.contains(".WORLD.") => left && names_collective(&Expr::Path(path.clone())),
        _ => !is_of_library(path) && left && !hidden_change::observes(path) && view.rules.get(path).is_none(),
    };
    match value {
        Rvalue::Call { callee, .. } => match near::function(view, callee) {
            Some(at) => of_project(at),
            None => match view.through(callee) {
                Expr::Path(path) => by_path(&path, &of_project),
                // What scales a loss takes its backward pass.
                Expr::Local(local) if view.local_name(local).to_lowercase().contains("scaler") => false,
                // A variable that holds a function: `partial(dist.all_reduce, group=group)`, an object, an entry of a table.
                other => left || other.any(&mut |e| names_collective(e)),
            },
        },
        Rvalue::CallMethod { base, name, .. } => match view.through(base) {
            // A static method, or a function of a module.
            Expr::Path(path) => by_path(&Name::from(format!("{path}.{name}")), &|at| communicates(view, at, MOST)),
            _ => match namesakes(view, name).as_slice() {
                [] => left && !hidden_change::observes(name) && !known.is_any(view, base),
                // `self.sum(x)`, where `sum` is a property that gives a function.
                methods => methods.iter().any(|at| of_project(*at) || left && view.project.func(*at).params.len() < 2),
            },
        },
        _ => false,
    }
}

/// Whether all that a step does with what it reads is to wait for it.
fn only_waits(view: &View<'_>, step: usize) -> bool {
    matches!(view.value(step), Some(Rvalue::CallMethod { name, .. }) if matches!(name.as_str(), "wait" | "result" | "synchronize"))
}

/// Whether a collective is given another name of a variable, or several at once.
fn is_unseen<'a>(view: &View<'a>, value: &'a Rvalue, known: &Known) -> bool {
    let Some(call) = view.collective(value) else {
        // A reduction to one rank, before it is sent to all.
        return view
            .callee(value)
            .is_some_and(|p| matches!(super::lost::last(&p).as_str(), "reduce" | "all_reduce_coalesced"));
    };
    let Some(input) = call.input else { return false };
    if super::lost::last(&call.rule.name).contains("coalesced") || call.rule.op == "reduce" {
        return true;
    }
    let Operand::Local(local) = input else { return false };
    if known.held.contains(local) {
        return true;
    }
    let back = |step: usize| known.writes_back(view, step, *local);
    known.copies.contains(local) && (view.is_temp(*local) || (0..view.steps.len()).any(back))
}

/// Whether it is plain which argument of a function is which, and it does not call itself.
fn takes_plainly(view: &View<'_>, at: FuncRef) -> bool {
    let func = view.project.func(at);
    let several = |p: &crate::ir::Param| matches!(p.kind, ParamKind::VarArgs | ParamKind::KwArgs);
    let inner = near::shared(view, at);
    let code = inner.code();
    // What a parameter with a default does is told by the callers: `fn=dist.all_reduce`.
    let calls_given =
        |i: usize| matches!(inner.value(i), Some(Rvalue::Call { callee, .. }) if is_optional(&inner, callee));
    let calls_itself = code.matches(&format!("{}(", func.name)).count() > 1;
    !func.params.iter().any(several)
        && !calls_itself
        && !(0..inner.steps.len()).any(calls_given)
        && ![".values()", ".items()", "enumerate(", "zip("].iter().any(|w| code.contains(w))
}

/// Whether what is called is a parameter with a default.
fn is_optional(view: &View<'_>, callee: &Operand) -> bool {
    matches!(callee, Operand::Local(l) if view.func.params.iter().any(|p| p.local == *l && p.has_default))
}

/// The methods of the project that have a name.
fn namesakes(view: &View<'_>, name: &Name) -> Vec<FuncRef> {
    let methods = view.project.methods_named(name);
    methods.iter().map(|(class, func)| FuncRef { module: class.module, func: *func }).collect()
}

/// Whether a path is one of torch or of Python itself.
fn is_of_library(path: &str) -> bool {
    path.starts_with("torch.") && !path.starts_with("torch.ops.") || path.starts_with("builtins.")
}

fn says(name: &str) -> bool {
    let name = name.rsplit('.').next().unwrap_or(name).to_lowercase();
    SUMS.iter().any(|w| name.contains(w))
}

/// Whether an expression names a collective.
fn names_collective(e: &Expr) -> bool {
    e.last_name().is_some_and(|n| n.contains("reduce") || n.contains("gather"))
}

/// Whether a function of the project, or what it calls, communicates.
fn communicates(view: &View<'_>, at: FuncRef, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let inner = near::shared(view, at);
    // Which of its implementations is called, its argument decides.
    let registers = format!("@{}.register", inner.func.name);
    if inner.files[inner.project.file(at.module)].whole().contains(&registers) {
        return true;
    }
    let funcs = &view.project.modules[at.module].ir.funcs;
    let nested = |f: &FuncId| funcs[*f].parent == Some(at.func);
    (0..inner.steps.len()).any(|i| {
        let Some(value) = inner.value(i) else { return false };
        inner.may_communicate(value)
            || match value {
                Rvalue::Call { callee, .. } if is_optional(&inner, callee) => true,
                Rvalue::Call { callee, .. } => match near::function(&inner, callee) {
                    Some(next) => next != at && communicates(&inner, next, depth),
                    None => match inner.through(callee) {
                        Expr::Path(path) => match inner.project.path(&path) {
                            Resolved::Func(next) => next != at && communicates(&inner, next, depth),
                            _ => false,
                        },
                        _ => false,
                    },
                },
                Rvalue::CallMethod { name, .. } => {
                    let methods = namesakes(&inner, name);
                    methods.len() <= crate::infer::limits::MAX_NAMESAKES
                        && methods.into_iter().any(|next| next != at && communicates(&inner, next, depth))
                }
                _ => false,
            }
    }) || funcs.ids().filter(nested).any(|func| communicates(view, FuncRef { module: at.module, func }, depth))
}

/// Whether a call may exchange something between ranks that is no collective of its own.
pub fn may_exchange(view: &View<'_>, value: &Rvalue) -> bool {
    match value {
        Rvalue::Call { callee, .. } => match near::function(view, callee) {
            Some(at) => communicates(view, at, MOST),
            None => match view.through(callee) {
                Expr::Path(path) => match view.project.path(&path) {
                    Resolved::Func(at) => communicates(view, at, MOST),
                    _ if is_of_library(&path) => names_collective(&Expr::Path(path)),
                    // A name without a module is built in.
                    _ => path.contains('.') && says(&path),
                },
                other => other.last_name().is_some_and(says),
            },
        },
        Rvalue::CallMethod { name, .. } => {
            let mut methods = namesakes(view, name).into_iter();
            name.contains("reduce") || name.contains("gather") || methods.any(|at| communicates(view, at, MOST))
        }
        _ => false,
    }
}
