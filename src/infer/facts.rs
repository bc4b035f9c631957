//! What is known of the whole project before functions are executed: from definitions and texts, from module bodies, from declared
//! shardings. In: the project, the results of bodies. Out: the tables of `settings.rs`. Never: findings of its own. Next: `root.rs`.

use super::callers::functions;
use super::declared::flow::Shardings;
use super::memo::{Memo, Task, combined, combined_equal, differing, kept_equals, taken};
use super::output::Output;
use super::practice::asked::Taken;
use super::relevance::{Relevance, Relevant};
use super::root::{Run, execute};
use super::settings::Settings;
use super::statics::Statics;
use super::value::{Closure, Value};
use crate::project::{FuncRef, ModuleId, Project};
use crate::rules::{Entry, RuleBook};
use crate::source::reads::{Read, number};
use crate::source::{Files, Idx, Name};
use litemap::LiteMap;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What definitions and texts say of the whole project, before anything is executed.
pub fn facts(
    project: &Project,
    rules: &RuleBook,
    files: &Files,
    taken: &Taken,
    settings: &mut Settings,
    memo: Option<&Memo>,
) {
    let digests = &taken.digests;
    (settings.exports, settings.left_defaults) = (Arc::default(), Arc::default());
    let expanded = |module: ModuleId| settings.is_expanded(module);
    let (statics, relevance) = rayon::join(
        || Statics::new(project, rules, memo),
        || Relevant::new(project, rules, files, (digests, &expanded), memo),
    );
    let specs = super::specs::Specs::new(project, rules, digests, memo);
    let called = super::callers::called(project, digests, memo);
    settings.resets = super::resets::Resets::new(project, digests, memo);
    settings.statics = statics;
    settings.relevance = Relevance { shown: relevance, ..Relevance::default() };
    (settings.specs, settings.called) = (specs, called);
    // One after the other: both wait for what is read from the same text.
    settings.reducers = super::practice::reducers::Reducers::new(project, rules, files, taken, memo);
    settings.marking = super::practice::marking::Marking::new(project, rules, files, &taken.asked, memo);
    let own = Arc::new(super::own_protocol::own_protocol(project, rules, files, settings));
    settings.own_protocol = combined_equal(memo, "own protocol", vec![own], only, |_, _| vec![Read::Reducers]);
    settings.name_model_axis(project, rules, files);
}

/// What a module body yields, and what it leaves.
pub type Body = (Arc<Output>, Arc<Left>);

/// What a module body leaves.
#[derive(Debug, Default)]
pub struct Left {
    pub names: LiteMap<Name, Value>,
    /// Functions with defaults, in the order of their names' first appearance.
    defaults: Arc<Vec<Arc<Closure>>>,
}

impl Left {
    pub fn new(exports: Vec<(Name, Value)>) -> Left {
        let with_defaults = |(_, value): &(Name, Value)| match value {
            Value::Closure(closure) if !closure.defaults.is_empty() => Some(closure.clone()),
            _ => None,
        };
        let defaults = Arc::new(exports.iter().filter_map(with_defaults).collect());
        Left { names: exports.into_iter().collect(), defaults }
    }
}

/// The closures with defaults that module bodies leave, by function.
pub type Defaults = FxHashMap<FuncRef, Vec<Arc<Closure>>>;

/// Takes on what module bodies leave.
pub fn left(bodies: Vec<Arc<Body>>, settings: &mut Settings, memo: Option<&Memo>) {
    let defaults = bodies.iter().map(|body| body.1.defaults.clone()).collect();
    let joined = |parts: Vec<Arc<Vec<Arc<Closure>>>>| {
        let mut out = Defaults::default();
        for closure in parts.iter().flat_map(|part| part.iter()) {
            out.entry(closure.func).or_default().push(closure.clone());
        }
        out
    };
    settings.left_defaults = combined_equal(memo, "defaults", defaults, joined, |a, b| {
        differing(a, b).map(|func| Read::Func(func.module.0, func.func.0)).collect()
    });
    let exports: Vec<Arc<Left>> = bodies.iter().map(|body| body.1.clone()).collect();
    settings.exports = combined(
        memo,
        "exports",
        exports,
        |parts| parts,
        |a, b| {
            let other = a.iter().zip(b).enumerate().filter(|(_, (a, b))| !Arc::ptr_eq(a, b));
            let number_of = |module: usize| u32::try_from(module).unwrap_or(u32::MAX);
            other
                .flat_map(|(module, (a, b))| {
                    others(&a.names, &b.names).map(move |name| Read::Export(number_of(module), number(name)))
                })
                .collect()
        },
    );
}

/// The names that two modules do not leave alike.
fn others<'a>(a: &'a LiteMap<Name, Value>, b: &'a LiteMap<Name, Value>) -> impl Iterator<Item = &'a Name> {
    let changed = b.iter().filter(|(name, value)| a.get(*name) != Some(*value)).map(|(name, _)| name);
    changed.chain(a.keys().filter(|name| !b.contains_key(*name)))
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

/// What each file speaks of.
pub fn mentions(project: &Project, rules: &RuleBook, files: &Files, memo: Option<&Memo>) -> Vec<Arc<Mentions>> {
    let (decorating, declaring) = (super::decorated::packages(rules), declaring(rules));
    let modules: Vec<ModuleId> = project.modules.ids().collect();
    kept_equals(memo, &modules, Task::Mentions, |module| {
        let text = files[project.file(module)].whole();
        let says = |words: &[Name]| words.iter().any(|word| text.contains(word.as_str()));
        Mentions { decorators: says(&decorating), shardings: says(&declaring) }
    })
}

/// The modules whose files speak of something.
pub fn speaking(mentions: &[Arc<Mentions>], of: impl Fn(&Mentions) -> bool) -> Vec<ModuleId> {
    let those = mentions.iter().enumerate().filter(|(_, mentions)| of(mentions));
    those.map(|(module, _)| ModuleId::from_index(module)).collect()
}

/// Executes the functions that give modules declared shardings, before those that compute with them.
pub fn declare(
    project: &Project,
    rules: &RuleBook,
    files: &Files,
    settings: &mut Settings,
    (mentions, memo): (&[Arc<Mentions>], Option<&Memo>),
    out: &mut Output,
) {
    let mut found = Shardings::default();
    if mentions.iter().any(|m| m.shardings) {
        let kept = declaring(rules);
        let says = |text: &str| kept.iter().any(|word| text.contains(word.as_str()));
        // What is worth executing is more once shardings are declared.
        let early = memo.map(Memo::early);
        let (mut first, mut rest, _) = functions(project, (&settings.relevance, &settings.called), out, early);
        for roots in [&mut first, &mut rest] {
            roots.retain(|at| {
                mentions[at.module.index()].shardings
                    && says(files[project.file(at.module)].slice(project.func(*at).span))
                    && project.func(*at).class.is_none()
            });
        }
        if !first.is_empty() || !rest.is_empty() {
            execute(Run::new(project, rules, files, settings, early), (first, rest), out);
            found = Shardings::new(&out.sharded);
        }
    }
    let mut relevant = Relevant::default();
    for class in found.classes() {
        let methods = &project.class(class).methods;
        if let Some((_, func)) = methods.iter().find(|(name, _)| name == "forward") {
            relevant.add(FuncRef { module: class.module, func: *func }, class);
        }
    }
    settings.shardings = combined(memo, "shardings", vec![Arc::new(found)], only, Shardings::differences);
    settings.relevance.declared = combined(memo, "declared", vec![Arc::new(relevant)], only, Relevant::differences);
}

/// The one part of a table that has no others.
pub fn only<T: Clone + Default>(parts: Vec<Arc<T>>) -> T {
    parts.into_iter().next().map(taken).unwrap_or_default()
}
