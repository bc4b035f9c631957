//! Functions that are executed for themselves. In: the project, what is worth executing, what module bodies have executed. Out: those that
//! nothing calls by name, and the others. Never: execution. Next: `root.rs`.

use super::digest::{Digests, Gist};
use super::memo::{Memo, Task, combined, kept_each, kept_equals};
use super::output::Output;
use super::relevance::Relevance;
use crate::ir::FuncKind;
use crate::project::{FuncRef, ModuleId, Project};
use crate::source::{Files, Name};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Names that the project calls, as functions or methods.
pub fn called(project: &Project, digests: &Digests, memo: Option<&Memo>) -> Arc<FxHashSet<Name>> {
    let modules: Vec<ModuleId> = project.modules.ids().collect();
    let parts = kept_equals(memo, &modules, Task::Called, |module| {
        digests.of(project, module).funcs.iter().flat_map(Gist::called).cloned().collect::<FxHashSet<Name>>()
    });
    let union = |parts: Vec<Arc<FxHashSet<Name>>>| -> FxHashSet<Name> {
        parts.iter().flat_map(|part| part.iter().cloned()).collect()
    };
    combined(memo, "called", parts, union, |_, _| Vec::new())
}

/// Whether a module tries others out, by its file: a test, a benchmark or an example. Whoever uses what it calls may call it otherwise.
pub fn tries(project: &Project, files: &Files, module: ModuleId) -> bool {
    let path = &files[project.file(module)].path;
    let mut parts = path.rsplit(['/', '\\']);
    let file = parts.next().unwrap_or_default();
    let starts = ["test_", "benchmark_", "bench_"].iter().any(|start| file.starts_with(start));
    let named = starts || file.ends_with("_test.py") || file == "conftest.py";
    named || parts.any(|folder| matches!(folder, "test" | "tests" | "example" | "examples" | "benchmarks"))
}

/// What bodies of modules have executed for good: what only a test or an example calls, in another file, is executed for itself as well.
pub fn settled(project: &Project, files: &Files, bodies: &[(ModuleId, &Output)]) -> BTreeSet<FuncRef> {
    let mut done = BTreeSet::new();
    for (module, body) in bodies {
        let others = body.executed.iter().any(|func| func.module != *module);
        let tries = others && tries(project, files, *module);
        let own = |func: &&FuncRef| !tries || self::tries(project, files, func.module);
        done.extend(body.executed.iter().filter(own).copied());
    }
    done
}

/// Functions to execute: those that nothing in the project calls by name, then the others; and those that bodies of modules have executed.
pub fn functions(
    project: &Project,
    (relevance, called): (&Relevance, &FxHashSet<Name>),
    done: &Output,
    memo: Option<&Memo>,
) -> (Vec<FuncRef>, Vec<FuncRef>, Vec<FuncRef>) {
    let modules: Vec<ModuleId> = project.modules.ids().collect();
    let candidates = kept_each(memo, &modules, Task::Candidates, |module| candidates(project, relevance, module));
    let (mut first, mut rest, mut executed) = (Vec::new(), Vec::new(), Vec::new());
    for (at, asked) in candidates.iter().flat_map(|part| part.iter()) {
        match asked {
            Asked::Always => first.push(*at),
            // Bodies of modules execute these, with what a script gives them; their own types are shown as if nobody did.
            Asked::Forward | Asked::Uncalled(_) if done.executed.contains(at) => executed.push(*at),
            Asked::Nested if done.executed.contains(at) => {}
            Asked::Uncalled(name) if called.contains(name) => rest.push(*at),
            Asked::Nested => rest.push(*at),
            Asked::Forward | Asked::Uncalled(_) => first.push(*at),
        }
    }
    (first, rest, executed)
}

/// When a function is executed for itself before the others.
enum Asked {
    /// Its types are declared, and checked against its body.
    Always,
    Forward,
    /// Nothing calls its name.
    Uncalled(Name),
    /// It reads variables of the function around it, which is what gives it a meaning: only if nothing executes it otherwise.
    Nested,
}

/// The functions of a module that may be executed for themselves.
fn candidates(project: &Project, relevance: &Relevance, module: ModuleId) -> Vec<(FuncRef, Asked)> {
    let mut out = Vec::new();
    for (func, f) in project.modules[module].ir.funcs.iter_enumerated() {
        let at = FuncRef { module, func };
        // Lambdas and class bodies have no callers of their own.
        if f.kind != FuncKind::Function || !relevance.contains(at) {
            continue;
        }
        let asked = match f.name.as_str() {
            _ if !f.captures.is_empty() && relevance.tells(at) => Asked::Nested,
            _ if !f.captures.is_empty() => continue,
            _ if !f.signature.is_empty() || relevance.is_noted(at) => Asked::Always,
            "forward" => Asked::Forward,
            _ => Asked::Uncalled(f.name.clone()),
        };
        out.push((at, asked));
    }
    out
}
