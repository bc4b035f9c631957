//! What is known of the whole project before functions are executed: from definitions and texts, from module bodies, from declared
//! shardings. In: the project, the results of bodies. Out: the tables of `settings.rs`. Never: findings of its own. Next: `root.rs`.

use super::memo::{Memo, Task, kept_equal};
use super::output::Output;
use super::practice::asked::Asked;
use super::relevance::Relevance;
use super::root::{Body, Run, execute, functions};
use super::settings::Settings;
use super::statics::Statics;
use super::value::{Closure, Value};
use crate::project::{ClassRef, FuncRef, ModuleId, Project};
use crate::rules::{Entry, RuleBook};
use crate::source::{Files, Idx, Name};
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What definitions and texts say of the whole project, before anything is executed.
pub fn facts(
    project: &Project,
    rules: &RuleBook,
    files: &Files,
    asked: &Asked,
    settings: &mut Settings,
    memo: Option<&Memo>,
) {
    settings.exports = Arc::default();
    let expanded = |module: ModuleId| settings.is_expanded(module);
    let (statics, relevance) =
        rayon::join(|| Statics::new(project, rules, memo), || Relevance::new(project, rules, files, &expanded, memo));
    (settings.statics, settings.relevance) = (statics, relevance);
    settings.specs = super::specs::Specs::new(project, rules, memo);
    (settings.reducers, settings.marking) = rayon::join(
        || super::practice::reducers::Reducers::new(project, rules, files, asked, memo),
        || super::practice::marking::Marking::new(project, rules, files, asked, memo),
    );
}

pub fn exports(bodies: Vec<Arc<Body>>) -> FxHashMap<(ModuleId, Name), Value> {
    let mut out = FxHashMap::default();
    out.reserve(bodies.iter().map(|body| body.1.len()).sum());
    for (module, body) in bodies.into_iter().enumerate() {
        let module = ModuleId::from_index(module);
        out.extend(body.1.iter().map(|(name, value)| ((module, name.clone()), value.clone())));
    }
    out
}

/// The closures with defaults that module bodies leave, by function.
pub type Defaults = FxHashMap<FuncRef, Vec<Arc<Closure>>>;

pub fn defaults(bodies: &[Arc<Body>]) -> Defaults {
    let mut out = Defaults::default();
    for (_, value) in bodies.iter().flat_map(|body| &body.1) {
        if let Value::Closure(closure) = value
            && !closure.defaults.is_empty()
        {
            out.entry(closure.func).or_default().push(closure.clone());
        }
    }
    out
}

/// How a module is given declared shardings, as texts write it.
fn declaring(rules: &RuleBook) -> Vec<Name> {
    let attributes = rules.entries().filter_map(|(_, entry)| match entry {
        Entry::Intrinsic(rule) if rule.does == "declared-sharding" => rule.role("attribute"),
        _ => None,
    });
    attributes.map(|name| Name::from(format!(".{name} = "))).collect()
}

/// What a file speaks of that is looked for in all files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mentions {
    /// Decorators that select a mode.
    pub decorators: bool,
    /// Declared shardings.
    pub shardings: bool,
}

/// What any file speaks of.
pub fn mentions(project: &Project, rules: &RuleBook, files: &Files, memo: Option<&Memo>) -> Mentions {
    let (decorating, declaring) = (super::decorated::packages(rules), declaring(rules));
    let modules: Vec<ModuleId> = project.modules.ids().collect();
    let of_module = |module: &ModuleId| {
        kept_equal(memo, Task::Mentions(*module), || {
            let text = files[project.file(*module)].whole();
            let says = |words: &[Name]| words.iter().any(|word| text.contains(word.as_str()));
            Mentions { decorators: says(&decorating), shardings: says(&declaring) }
        })
    };
    let each: Vec<Arc<Mentions>> = modules.par_iter().map(of_module).collect();
    Mentions { decorators: each.iter().any(|m| m.decorators), shardings: each.iter().any(|m| m.shardings) }
}

/// Executes the functions that give modules declared shardings, before those that compute with them.
pub fn declare(project: &Project, rules: &RuleBook, files: &Files, settings: &mut Settings, out: &mut Output) {
    let kept = declaring(rules);
    let says = |text: &str| kept.iter().any(|word| text.contains(word.as_str()));
    let (mut first, mut rest) = functions(project, &settings.relevance, out, None);
    for roots in [&mut first, &mut rest] {
        roots.retain(|at| {
            let file = &files[project.file(at.module)];
            says(file.whole()) && says(file.slice(project.func(*at).span)) && project.func(*at).class.is_none()
        });
    }
    if first.is_empty() && rest.is_empty() {
        return;
    }
    execute(Run::new(project, rules, files, settings, None), (first, rest), out);
    settings.shardings = super::declared::flow::Shardings::new(&out.sharded);
    let classes: Vec<ClassRef> = settings.shardings.classes().collect();
    for class in classes {
        let methods = &project.class(class).methods;
        if let Some((_, func)) = methods.iter().find(|(name, _)| name == "forward") {
            Arc::make_mut(&mut settings.relevance).add(FuncRef { module: class.module, func: *func }, class);
        }
    }
}
