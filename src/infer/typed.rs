//! Types of one module, for an editor. In: a project of which [`infer`](super::infer) has kept results, and a module. Out: the
//! types that every function has which reaches the module, expressions too. Never: findings. Next: `root.rs`.

use super::memo::{Memo, Task, kept};
use super::output::Output;
use super::root::Run;
use super::settings::Settings;
use super::statics::module_body;
use crate::ir::FuncKind;
use crate::project::{FuncRef, ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::Files;
use rustc_hash::FxHashSet;

/// Types in one module. `reach`: functions without callers that reach it, in order. `memo` keeps results with types.
pub fn types_in(
    project: &Project,
    rules: &RuleBook,
    files: &Files,
    settings: &Settings,
    memo: &Memo,
    (module, reach): (ModuleId, &[FuncRef]),
) -> Output {
    let mut settings = settings.clone();
    (settings.wants_types, settings.wants_steps) = (true, true);
    let mut run = Run::new(project, rules, files, &settings, Some(memo));
    let mut all = Output::default();
    // A module body sees nothing of what bodies leave.
    let mut bare = settings.clone();
    bare.exports = std::sync::Arc::default();
    let body = kept(Some(memo), Task::Body(module), || Run::new(project, rules, files, &bare, Some(memo)).body(module));
    all.merge_shared(body.0.clone());
    run.derivations_in(module, &mut all);
    run.roots(reach, &mut all);
    let own: FxHashSet<FuncRef> = reach.iter().copied().collect();
    let called: Vec<FuncRef> = project.modules[module]
        .ir
        .funcs
        .iter_enumerated()
        .filter(|(_, f)| f.kind == FuncKind::Function && f.captures.is_empty())
        .map(|(func, _)| FuncRef { module, func })
        .filter(|at| *at != module_body(module) && !own.contains(at) && settings.relevance.contains(*at))
        .collect();
    run.signatures(&called, &mut all);
    all.rows.retain(|row| row.func.module == module);
    all.exits.retain(|exit| exit.func.module == module);
    all.derived.retain(|row| row.place.file == project.file(module));
    all
}
