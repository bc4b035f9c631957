//! Functions that a decorator expands by a parallel mode: which mode, and which inputs are placed otherwise. In: the project and the
//! rules. Out: [`Decorated`]. Never: execution. Source: torch 2.4 `torch.distributed._spmd.api`. Next: `modes.rs`.

use super::memo::{Memo, Task, combined, differing, kept_equals, taken};
use super::practice::expr::Expr;
use super::practice::view::View;
use crate::ir::{ArgKind, Const, FuncKind, Stmt};
use crate::plan::{Placement, ReduceOp};
use crate::project::{FuncRef, ModuleId, Project};
use crate::rules::{Entry, IntrinsicRule, RuleBook};
use crate::source::reads::Read;
use crate::source::{Files, Name, Place};
use crate::types::mode::{ParallelMode, mode};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A function under a decorator that selects a mode.
#[derive(Clone, Debug)]
pub struct Decorated {
    pub place: Place,
    /// The decorator, and the version of its library without it.
    pub api: Name,
    pub removed: Option<Name>,
    pub mode: &'static dyn ParallelMode,
    /// The dim on which inputs are split, if it is said.
    pub dim: Option<i8>,
    /// Inputs that are placed otherwise, by parameter.
    pub overrides: Vec<(Name, Placement)>,
}

/// Functions with what their decorators say.
pub type DecoratedFuncs = FxHashMap<FuncRef, Decorated>;

impl PartialEq for Decorated {
    fn eq(&self, other: &Decorated) -> bool {
        let parts = |d: &Decorated| (d.place, d.api.clone(), d.removed.clone(), d.mode.name(), d.dim);
        parts(self) == parts(other) && self.overrides == other.overrides
    }
}

/// The packages that have such decorators.
pub fn packages(rules: &RuleBook) -> Vec<Name> {
    let decorators = rules.entries().filter_map(|(name, entry)| match entry {
        Entry::Intrinsic(rule) if rule.does == "mode-decorator" => name.rsplit('.').nth(1).map(Name::from),
        _ => None,
    });
    decorators.collect()
}

/// The decorated functions of modules that speak of such packages.
pub fn decorated(
    project: &Project,
    rules: &RuleBook,
    files: &Files,
    modules: &[ModuleId],
    memo: Option<&Memo>,
) -> Arc<DecoratedFuncs> {
    let parts = kept_equals(memo, modules, Task::Decorated, |module| of_module(project, rules, files, module));
    let joined = |parts: Vec<Arc<DecoratedFuncs>>| parts.into_iter().flat_map(taken).collect::<DecoratedFuncs>();
    combined(memo, "decorated", parts, joined, |a, b| differing(a, b).map(|at| Read::Decorated(at.module.0)).collect())
}

fn of_module(project: &Project, rules: &RuleBook, files: &Files, module: ModuleId) -> DecoratedFuncs {
    let mut out = DecoratedFuncs::default();
    let funcs = &project.modules[module].ir.funcs;
    let view = |func| View::new(project, rules, files, FuncRef { module, func });
    for func in project.modules[module].ir.defining() {
        let view = &view(func);
        for step in &view.steps {
            let Stmt::Def { func, decorators, .. } = step.stmt else { continue };
            let found = decorators.iter().find_map(|d| selected(view, rules, &view.through(d)));
            if let Some(found) = found {
                out.insert(FuncRef { module, func: *func }, found);
            }
        }
    }
    if !out.is_empty() {
        let bodies = funcs.iter_enumerated().filter(|(_, f)| f.kind != FuncKind::Lambda);
        bodies.for_each(|(func, _)| overrides(&view(func), rules, &mut out));
    }
    out
}

fn intrinsic(rules: &RuleBook, callee: &Expr, does: &str) -> Option<Arc<IntrinsicRule>> {
    match rules.get(callee.path()?)? {
        Entry::Intrinsic(rule) if rule.does == does => Some(rule.clone()),
        _ => None,
    }
}

/// An argument of a call, by the part that it plays.
fn played<'e>(rule: &IntrinsicRule, args: &'e [(ArgKind, Expr)], part: &str) -> Option<&'e Expr> {
    let name = rule.role(part)?;
    let keyword = args.iter().find(|(kind, _)| matches!(kind, ArgKind::Keyword(k) if k == name));
    let at = rule.args.index(name)?;
    let takes = rule.args.params.get(at).is_some_and(|p| !p.keyword_only);
    let positional = args.iter().filter(|(kind, _)| *kind == ArgKind::Positional).nth(at).filter(|_| takes);
    keyword.or(positional).map(|(_, value)| value)
}

/// The mode that a decorator selects.
fn selected(view: &View<'_>, rules: &RuleBook, decorator: &Expr) -> Option<Decorated> {
    let (callee, args, place) = match decorator {
        Expr::Call { callee, args, step } => {
            (callee.as_ref(), &args[..], view.steps.get(*step).map(|s| view.place(s.id))?)
        }
        _ => return None,
    };
    let rule = intrinsic(rules, callee, "mode-decorator")?;
    let given = played(&rule, args, "mode").filter(|e| !matches!(e, Expr::Const(Const::None)));
    let (name, dim) = match given {
        None => (rule.role("default")?.clone(), None),
        Some(expr) => {
            let expr = match expr {
                Expr::Local(local) => view.through(&crate::ir::Operand::Local(*local)),
                other => other.clone(),
            };
            let Expr::Call { callee, args, .. } = &expr else { return None };
            let made = intrinsic(rules, callee, "parallel-mode")?;
            let style = match played(&made, args, "style") {
                Some(Expr::Const(Const::Str(style))) => made.role(style).cloned(),
                _ => None,
            };
            let dim = match played(&made, args, "dim") {
                Some(Expr::Const(Const::Int(n))) => i8::try_from(*n).ok(),
                _ => None,
            };
            (style.or_else(|| made.role("mode").cloned())?, dim)
        }
    };
    let api = super::collective::short(&rule.name);
    let removed = rule.role("removed").cloned();
    Some(Decorated { place, api, removed, mode: mode(&name)?, dim, overrides: Vec::new() })
}

/// Tensors whose placements a function overrides before it calls a decorated one with them.
fn overrides(view: &View<'_>, rules: &RuleBook, out: &mut DecoratedFuncs) {
    let mut placed = Vec::new();
    for (i, _) in view.steps.iter().enumerate() {
        let Some(value) = view.value(i) else { continue };
        let (callee, args) = match value {
            crate::ir::Rvalue::Call { callee, args } => (view.through(callee), args),
            _ => continue,
        };
        if intrinsic(rules, &callee, "mode-override").is_some() {
            if let [tensor, placements] = &args[..]
                && let Expr::Local(local) = view.expr(&tensor.value)
                && let Expr::Build(items) = view.through(&placements.value)
                && let [one] = items.as_slice()
                && let Some(placement) = placement(rules, one)
            {
                placed.push((local, placement));
            }
            continue;
        }
        let called = match value {
            crate::ir::Rvalue::Call { callee: crate::ir::Operand::Global(name), .. } => name,
            crate::ir::Rvalue::Call { callee: crate::ir::Operand::Local(local), .. } => view.local_name(*local),
            _ => continue,
        };
        let module = view.at.module;
        for (at, decorated) in out.iter_mut().filter(|(at, _)| at.module == module) {
            let func = view.project.func(*at);
            if func.name != *called {
                continue;
            }
            for (param, arg) in func.params.iter().zip(args).filter(|(_, a)| a.kind == ArgKind::Positional) {
                let Expr::Local(local) = view.expr(&arg.value) else { continue };
                if let Some((_, placement)) = placed.iter().rev().find(|(l, _)| *l == local) {
                    decorated.overrides.push((param.name.clone(), *placement));
                }
            }
        }
    }
}

fn placement(rules: &RuleBook, expr: &Expr) -> Option<Placement> {
    let Expr::Call { callee, args, .. } = expr else { return None };
    let Entry::Intrinsic(rule) = rules.get(callee.path()?)? else { return None };
    match (rule.does.as_str(), args.first()) {
        ("dtensor-replicate", _) => Some(Placement::Replicate),
        ("dtensor-partial", None) => Some(Placement::Partial(ReduceOp::Sum)),
        ("dtensor-shard", Some((_, Expr::Const(Const::Int(dim))))) => usize::try_from(*dim).ok().map(Placement::Shard),
        _ => None,
    }
}
