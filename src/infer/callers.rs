//! Functions that are executed for themselves. In: the project, what is worth executing, what module bodies have executed. Out: those that
//! nothing calls by name, and the others. Never: execution. Next: `root.rs`.

use super::memo::{Memo, Task, combined, kept_each, kept_equals};
use super::output::Output;
use super::relevance::Relevance;
use crate::ir::FuncKind;
use crate::project::{FuncRef, ModuleId, Project};
use crate::source::Name;
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// Functions to execute: those that nothing in the project calls by name, then the others.
pub fn functions(
    project: &Project,
    relevance: &Relevance,
    done: &Output,
    memo: Option<&Memo>,
) -> (Vec<FuncRef>, Vec<FuncRef>) {
    let modules: Vec<ModuleId> = project.modules.ids().collect();
    let parts = kept_equals(memo, &modules, Task::Called, |module| {
        let mut names = FxHashSet::default();
        for func in project.modules[module].ir.funcs.iter() {
            called_names(&func.body, func, &mut names);
        }
        names.into_iter().map(Name::from).collect::<FxHashSet<Name>>()
    });
    let union = |parts: Vec<Arc<FxHashSet<Name>>>| -> FxHashSet<Name> {
        parts.iter().flat_map(|part| part.iter().cloned()).collect()
    };
    let called = combined(memo, "called", parts, union, |_, _| Vec::new());
    let candidates = kept_each(memo, &modules, Task::Candidates, |module| candidates(project, relevance, module));
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for (at, asked) in candidates.iter().flat_map(|part| part.iter()) {
        match asked {
            Asked::Always => first.push(*at),
            _ if done.executed.contains(at) => {}
            Asked::Uncalled(name) if called.contains(name) => rest.push(*at),
            Asked::Forward | Asked::Uncalled(_) => first.push(*at),
        }
    }
    (first, rest)
}

/// When a function is executed for itself before the others.
enum Asked {
    /// Its types are declared, and checked against its body.
    Always,
    Forward,
    /// Nothing calls its name.
    Uncalled(Name),
}

/// The functions of a module that may be executed for themselves.
fn candidates(project: &Project, relevance: &Relevance, module: ModuleId) -> Vec<(FuncRef, Asked)> {
    let mut out = Vec::new();
    for (func, f) in project.modules[module].ir.funcs.iter_enumerated() {
        let at = FuncRef { module, func };
        // Nested functions run where they are defined; lambdas and class bodies have no callers of their own.
        if f.kind != FuncKind::Function || !relevance.contains(at) || !f.captures.is_empty() {
            continue;
        }
        let asked = match f.name.as_str() {
            _ if !f.signature.is_empty() => Asked::Always,
            "forward" => Asked::Forward,
            _ => Asked::Uncalled(f.name.clone()),
        };
        out.push((at, asked));
    }
    out
}

/// Names that are called, as functions or methods.
pub fn called_names<'a>(block: &'a crate::ir::Block, func: &'a crate::ir::Func, out: &mut FxHashSet<&'a str>) {
    use crate::ir::{Operand, Rvalue, Stmt};
    for node in block {
        match &node.stmt {
            Stmt::Assign { value: Rvalue::CallMethod { name, .. }, .. } => {
                out.insert(name.as_str());
            }
            Stmt::Assign { value: Rvalue::Call { callee, .. }, .. } => match callee {
                Operand::Global(name) => {
                    out.insert(name.as_str());
                }
                Operand::Local(local) => {
                    out.insert(func.locals[*local].name.as_str());
                }
                Operand::Const(_) => {}
            },
            stmt => stmt.blocks().for_each(|b| called_names(b, func, out)),
        }
    }
}
