//! Which functions can yield anything: those from which a collective, a typing call or an annotation is reached. In: the project and
//! the rules. Out: [`Relevance`]. Never: an effect on what a relevant function yields; an irrelevant one called with typed arguments
//! is still executed. Next: `root.rs`.

use super::digest::{COMMON, Digests, Gist, Methods, Rare};
use super::limits::{MAX_CHOICE, MAX_DISTANCE, MAX_SETUP};
use super::memo::{Memo, Task, combined, kept_equals};
use super::namesakes::Namesakes;
use super::settings::is_degree;
use crate::ir::annotation::SuppressionScope;
use crate::ir::{Block, Func, FuncId, FuncKind, LocalId, Operand, Param, Rvalue, Stmt};
use crate::project::{Binding, ClassRef, FuncRef, ModuleId, Project, Resolved};
use crate::rules::{Entry, RuleBook};
use crate::source::reads::{Read, note, number};
use crate::source::{Files, Idx, Name};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

/// Intrinsics that say something about types.
const TELLING: &[&str] = &[
    "assert-type",
    "assert-type-like",
    "mutate-type",
    "typecheck",
    "set-current-mesh",
    "local-map",
    "scalar",
    "init-device-mesh",
    "dtensor-distribute",
    "dtensor-from-local",
    "dtensor-redistribute",
    "dtensor-local-map",
    "dtensor-fully-shard",
    "dtensor-parallelize",
    "dtensor-style-input",
    "dtensor-style-output",
    "dtensor-style-both",
    "dtensor-style-weight",
    "sharding-mark",
    "sharding-mark-gradients",
    "declared-layout",
    "declared-sharding",
    "build-module",
];

/// Methods through which a module uses what its constructor made.
const CALLED: &[&str] = &["forward", "__call__"];

/// The functions worth executing as roots, or without typed arguments: as texts show, and those of classes of which shardings are declared.
#[derive(Clone, Debug, Default)]
pub struct Relevance {
    pub shown: Arc<Relevant>,
    pub declared: Arc<Relevant>,
}

/// Functions and classes worth executing.
#[derive(Clone, Debug, Default)]
pub struct Relevant {
    /// With the number of calls, as names show them, to one that is worth it by itself.
    funcs: FxHashMap<FuncRef, u32>,
    /// Those that are worth it by themselves, not by what they call.
    telling: FxHashSet<FuncRef>,
    classes: FxHashSet<ClassRef>,
    /// Those whose comments show how a tensor is split.
    noted: FxHashSet<FuncRef>,
    /// Functions of modules that give the number of ranks of a group, or the rank in one, and do little else.
    getters: FxHashSet<FuncRef>,
}

impl Relevance {
    pub fn contains(&self, func: FuncRef) -> bool {
        self.distance(func).is_some()
    }
    /// The number of calls from a function to one that tells, on the shortest way that names show; `None`: there is none.
    pub fn distance(&self, func: FuncRef) -> Option<u32> {
        note(|| Read::Relevant(func.module.0, func.func.0));
        let (shown, declared) = (self.shown.funcs.get(&func), self.declared.funcs.get(&func));
        shown.into_iter().chain(declared).min().copied()
    }
    /// Whether a function mentions something that tells, so that an execution that enters it is not in vain.
    pub fn tells(&self, func: FuncRef) -> bool {
        note(|| Read::Relevant(func.module.0, func.func.0));
        self.shown.telling.contains(&func) || self.declared.telling.contains(&func)
    }
    /// Whether the comments of a function show how a tensor is split, which declares it as an annotation would.
    pub fn is_noted(&self, func: FuncRef) -> bool {
        note(|| Read::Relevant(func.module.0, func.func.0));
        self.shown.noted.contains(&func)
    }
    /// Whether a function gives the number of ranks of a group, or the own rank in one, and does little else.
    pub fn is_getter(&self, func: FuncRef) -> bool {
        note(|| Read::Relevant(func.module.0, func.func.0));
        self.shown.getters.contains(&func)
    }
    /// Whether a method of the class is worth executing, and so what its constructor leaves.
    pub fn has_class(&self, class: ClassRef) -> bool {
        note(|| Read::RelevantClass(class.module.0, class.class.0));
        self.shown.classes.contains(&class) || self.declared.classes.contains(&class)
    }
}

impl Relevant {
    /// Further functions worth executing.
    pub fn add(&mut self, func: FuncRef, class: ClassRef) {
        self.funcs.insert(func, 0);
        self.telling.insert(func);
        self.classes.insert(class);
    }

    /// Starts from the functions that mention a telling name, and all of those of an expanded module, to which a parallel mode gives
    /// types, and follows calls backwards.
    pub fn new(
        project: &Project,
        rules: &RuleBook,
        files: &Files,
        (digests, expanded): (&Digests, &(dyn Fn(ModuleId) -> bool + Sync)),
        memo: Option<&Memo>,
    ) -> Arc<Relevant> {
        let by_name = Namesakes::new(project, memo);
        let modules: Vec<ModuleId> = project.modules.ids().collect();
        let parts = kept_equals(memo, &modules, Task::Scanned, |module| {
            scanned(project, rules, files, (module, expanded(module)), digests, &by_name)
        });
        combined(memo, "relevance", parts, |parts| Relevant::joined(&parts), Relevant::differences)
    }

    pub fn differences(&self, other: &Relevant) -> Vec<Read> {
        let funcs = super::memo::differing(&self.funcs, &other.funcs);
        let classes = self.classes.symmetric_difference(&other.classes);
        funcs
            .chain(self.telling.symmetric_difference(&other.telling))
            .chain(self.getters.symmetric_difference(&other.getters))
            .chain(self.noted.symmetric_difference(&other.noted))
            .map(|f| Read::Relevant(f.module.0, f.func.0))
            .chain(classes.map(|c| Read::RelevantClass(c.module.0, c.class.0)))
            .collect()
    }

    fn joined(parts: &[Arc<Vec<Scanned>>]) -> Relevant {
        let callers = Callers::new(parts);
        let (classes, makers) = planned(parts, &callers);
        let mut out = Relevant { classes, ..Relevant::default() };
        let mut work = VecDeque::new();
        let all = || parts.iter().flat_map(|part| part.iter());
        let sizes: FxHashSet<FuncRef> = all().filter(|found| found.gives_size).map(|found| found.at).collect();
        let ranks = all().filter(|found| found.gives_rank).map(|found| found.at);
        out.getters = sizes.iter().copied().chain(ranks).collect();
        out.noted = all().filter(|found| found.noted).map(|found| found.at).collect();
        for found in all() {
            // The size of a parameter means something that is divided by the number of ranks.
            let divides = || found.constructs && found.callees.iter().any(|callee| sizes.contains(callee));
            if found.tells || divides() {
                out.telling.insert(found.at);
                if out.funcs.insert(found.at, 0).is_none() {
                    work.push_back(found.at);
                }
            }
        }
        // The nearest first, so that a function is met on the shortest way.
        while let Some(func) = work.pop_front() {
            let farther = out.funcs[&func] + 1;
            let is_last = farther > MAX_DISTANCE;
            // A constructor that makes something worth following: the class calls it through an attribute.
            let found = &parts[func.module.index()][func.func.index()];
            out.classes.extend(found.class);
            for next in found.used.iter().chain(callers.of(func)).filter(|_| !is_last) {
                if let Slot::Vacant(free) = out.funcs.entry(*next) {
                    free.insert(farther);
                    work.push_back(*next);
                }
            }
        }
        for maker in makers {
            out.funcs.entry(maker).or_insert(1);
        }
        out
    }
}

/// Who may call each function. The functions of all modules are numbered one after the other.
struct Callers {
    /// The number of the first function of each module.
    starts: Vec<usize>,
    /// By number: where the callers of a function begin in `all`; they end where those of the next one begin.
    firsts: Vec<u32>,
    all: Vec<FuncRef>,
}

impl Callers {
    fn new(parts: &[Arc<Vec<Scanned>>]) -> Callers {
        let mut starts = Vec::with_capacity(parts.len());
        let mut count = 0;
        for part in parts {
            starts.push(count);
            count += part.len();
        }
        let number = |at: FuncRef| starts[at.module.index()] + at.func.index();
        // A nested function is reached through the function that defines it.
        let calls = || {
            let found = parts.iter().flat_map(|part| part.iter());
            let calls = |f: &Scanned, then: &mut dyn FnMut(usize, FuncRef)| {
                f.callees.iter().for_each(|callee| then(number(*callee), f.at));
                f.parent.into_iter().for_each(|parent| then(number(f.at), parent));
            };
            move |then: &mut dyn FnMut(usize, FuncRef)| found.for_each(|f| calls(f, then))
        };
        let mut firsts = vec![0u32; count + 2];
        calls()(&mut |callee, _| firsts[callee + 2] += 1);
        for at in 2..firsts.len() {
            firsts[at] += firsts[at - 1];
        }
        let unset = FuncRef { module: ModuleId(0), func: FuncId(0) };
        let mut all = vec![unset; firsts[count + 1] as usize];
        calls()(&mut |callee, caller| {
            let free = &mut firsts[callee + 1];
            all[*free as usize] = caller;
            *free += 1;
        });
        Callers { starts, firsts, all }
    }

    fn of(&self, func: FuncRef) -> &[FuncRef] {
        let number = self.starts[func.module.index()] + func.func.index();
        &self.all[self.firsts[number] as usize..self.firsts[number + 1] as usize]
    }
}

/// Calls, as names show them, between a function that makes a model and one that applies a plan to it.
const MAX_TO_PLAN: usize = 2;

/// Classes of the modules that are made by functions which apply plans to modules, or call such functions, and of the modules that those
/// have; and the free functions that make the modules for them, by their names.
fn planned(scanned: &[Arc<Vec<Scanned>>], callers: &Callers) -> (FxHashSet<ClassRef>, Vec<FuncRef>) {
    let (mut out, mut makers) = (FxHashSet::default(), Vec::new());
    let of = |at: &FuncRef| &scanned[at.module.index()][at.func.index()];
    let all = || scanned.iter().flat_map(|part| part.iter());
    let mut work: Vec<&Scanned> = all().filter(|s| s.plans).collect();
    let mut seen: FxHashSet<FuncRef> = work.iter().map(|s| s.at).collect();
    let mut last = 0;
    for _ in 0..MAX_TO_PLAN {
        let nearer = last..work.len();
        last = work.len();
        let above: Vec<FuncRef> = work[nearer].iter().flat_map(|s| callers.of(s.at)).copied().collect();
        work.extend(above.iter().filter(|at| seen.insert(**at)).map(of));
    }
    for at in work.iter().flat_map(|s| s.callees.iter()) {
        if of(at).gives_model && seen.insert(*at) {
            makers.push(*at);
        }
    }
    work.extend(makers.iter().map(of));
    while let Some(found) = work.pop() {
        for callee in found.callees.iter().map(of).filter(|callee| callee.makes) {
            if callee.class.is_some_and(|class| out.insert(class)) {
                work.push(callee);
            }
        }
    }
    (out, makers)
}

/// Divisions of a dim by the size of an axis, as comments write them.
const SPLITS: &[&str] = &["/tp", "/etp", "/cp", "/ep", "/sp", "/dp", "/ TP", "/TP"];

/// A function as its own text shows it.
#[derive(Debug, PartialEq)]
struct Scanned {
    at: FuncRef,
    parent: Option<FuncRef>,
    class: Option<ClassRef>,
    /// Whether it is a constructor.
    makes: bool,
    /// Of a constructor, the methods through which the class uses what it made.
    used: Vec<FuncRef>,
    /// Whether it mentions something that tells, or a parallel mode gives types to its file.
    tells: bool,
    /// Whether its comments show how a tensor is split.
    noted: bool,
    /// Whether it is a constructor that makes parameters.
    constructs: bool,
    /// Whether it gives the number of ranks of a group, and does no more than what sets a process up.
    gives_size: bool,
    /// Or the own rank in one.
    gives_rank: bool,
    /// Whether it applies plans to modules.
    plans: bool,
    /// Whether it is a free function that gives a model, by its name: `build_model`.
    gives_model: bool,
    /// Functions that it may call.
    callees: Box<[FuncRef]>,
}

/// What asks for the number of ranks of a group, and what for the own rank in one.
const SIZE: &str = "get_world_size";
const RANK: &str = "get_rank";

/// Whether a function calls one of that name.
fn asks(gist: &Gist, wanted: &str) -> bool {
    let asks = |name: &Name| name == wanted;
    gist.globals.iter().any(asks) || gist.methods.iter().any(|(name, _)| asks(name))
}

/// Whether a function is called after a number of ranks: `get_tp_world_size`, `tp_size`.
fn counts(f: &Func) -> bool {
    let name = f.name.trim_start_matches('_');
    is_degree(name.strip_prefix("get_").unwrap_or(name))
}

/// Names that imports give to what tells: `from .. import all_reduce as total`.
fn renamed<'a>(project: &'a Project, module: ModuleId, telling: &FxHashSet<Name>) -> Vec<&'a Name> {
    let renames = |(name, binding): (&'a Name, &'a Binding)| {
        let Binding::Import(import) = binding else { return None };
        let member = import.member.as_ref()?;
        let tells = member != name && telling.contains(member) && !COMMON.contains(&member.as_str());
        tells.then_some(name)
    };
    project.bindings(module).filter_map(renames).collect()
}

/// Whether comments in a text show how a tensor is split: `# [s/tp, b, h]`.
pub fn shows_split(text: &str) -> bool {
    // Each of them starts with the stroke.
    let has = |part: &str| {
        part.match_indices('/')
            .any(|(at, _)| SPLITS.iter().any(|split| part.as_bytes()[at..].starts_with(split.as_bytes())))
    };
    has(text) && text.lines().any(|line| line.split_once('#').is_some_and(|(_, c)| c.contains('[') && has(c)))
}

/// The functions of one module.
fn scanned(
    project: &Project,
    rules: &RuleBook,
    files: &Files,
    (module, expanded): (ModuleId, bool),
    digests: &Digests,
    by_name: &Namesakes,
) -> Vec<Scanned> {
    let (words, digest) = (digests.words(), digests.of(project, module));
    let ir = &project.modules[module].ir;
    let skipped = ir.suppressions.iter().any(|s| s.scope == SuppressionScope::Skip);
    let by_mark = super::parameters::protocol(project, rules, module).is_some();
    // What no line of the file shows, no function of it does.
    let any_noted = shows_split(files[project.file(module)].whole());
    let seen = by_name.seen_from(project, module, digest);
    let mut names = Names { project, rules, module, called: FxHashMap::default() };
    let renamed = renamed(project, module, &words.telling);
    let none = Rare::default();
    let scan = |((func, f), gist): ((FuncId, &Func), &Gist)| {
        let at = FuncRef { module, func };
        let rare = gist.rare.as_deref().unwrap_or(&none);
        let mut callees = Vec::new();
        for name in gist.globals.iter().chain(&rare.bound) {
            callees.extend_from_slice(names.called(name));
        }
        let applied: Vec<FuncRef> =
            gist.globals[..gist.calls as usize].iter().flat_map(|name| names.applied(name, digests)).collect();
        callees.extend_from_slice(&applied);
        for name in names.inside(&gist.methods) {
            note(|| Read::Named(number(name)));
            callees.extend(by_name.named(name, &seen));
        }
        // A plan may be for a module that only the annotation of a parameter shows.
        for hint in f.params.iter().filter(|_| gist.plans).filter_map(|p| p.hint.as_deref()) {
            callees.extend_from_slice(&called(project, module, &Name::from(hint.trim_matches(['"', '\'']))));
        }
        callees.extend(modules_given(project, files, (module, f), &rare.calls));
        let hinted = f.params.iter().any(|p| p.hint.as_deref().is_some_and(|h| words.tell(h)));
        let noted = any_noted && f.kind == FuncKind::Function && shows_split(files[project.file(module)].slice(f.span));
        // A whole parameter means something where a framework goes by marks.
        let constructs = f.name == "__init__" && gist.makes_parameter;
        // Elsewhere the size of a parameter means something that is divided by the number of ranks.
        let makes = constructs
            && (by_mark || asks(gist, SIZE) || gist.asks_environment || f.params.iter().any(|p| is_degree(&p.name)));
        // A method that fills parameters with the own part of whole ones says how those are split.
        let fills = f.class.is_some() && [SIZE, RANK, "copy_"].iter().all(|name| asks(gist, name));
        let direct = gist.tells
            || fills
            || gist.globals.iter().any(|name| renamed.contains(&name))
            || rare.common.iter().any(|(base, name)| names.tells_by_path(base.as_ref(), name))
            || rare.applied.iter().any(|base| names.is_class(base))
            || !applied.is_empty();
        let tells = (direct || hinted || noted || makes || !f.claims.is_empty() || !f.signature.is_empty()) && !skipped;
        let methods = f.class.filter(|_| f.name == "__init__").map_or(&[][..], |class| &ir.classes[class].methods);
        // One that is given the group whose ranks it counts is short: `get_size(group)`.
        let longest = if f.params.iter().all(|p| p.has_default) { MAX_SETUP } else { MAX_CHOICE };
        let is_getter = f.class.is_none() && f.code.count() <= longest;
        let uses = |func: &FuncId| !rare.attributes.is_empty() && calls_attribute(&ir.funcs[*func], &rare.attributes);
        let used = methods.iter().filter(|(name, func)| CALLED.contains(&name.as_str()) || uses(func));
        Scanned {
            at,
            parent: f.parent.map(|func| FuncRef { module, func }),
            class: f.class.map(|class| ClassRef { module, class }),
            used: used.map(|(_, func)| FuncRef { module, func: *func }).collect(),
            tells: tells || expanded,
            noted: noted && !skipped,
            constructs: constructs && !skipped,
            gives_size: is_getter && (asks(gist, SIZE) || gist.asks_environment || asks(gist, "size") && counts(f)),
            gives_rank: is_getter && (asks(gist, RANK) || asks(gist, "get_local_rank")),
            makes: f.name == "__init__",
            plans: gist.plans,
            gives_model: f.class.is_none() && f.kind == FuncKind::Function && f.name.contains("model"),
            callees: callees.into(),
        }
    };
    ir.funcs.iter_enumerated().zip(&digest.funcs).map(scan).collect()
}

/// The forwards of modules that a function is given and may call: those that only an annotation shows, or the only module of the file.
fn modules_given(project: &Project, files: &Files, (module, f): (ModuleId, &Func), calls: &[LocalId]) -> Vec<FuncRef> {
    let mut out = Vec::new();
    let may_call = |p: &Param| f.name == "__init__" || calls.contains(&p.local);
    for param in f.params.iter().filter(|p| f.kind == FuncKind::Function && !p.has_default && may_call(p)) {
        out.extend(param.hint.as_deref().and_then(|hint| module_hinted(project, module, hint)));
        if f.class.is_none() && calls.contains(&param.local) {
            let sole = super::loss_root::sole_module(project, files, module, param);
            out.extend(sole.and_then(|class| forward_of(project, class)));
        }
    }
    out
}

/// Whether a method calls one of these attributes of its object.
fn calls_attribute(func: &Func, attributes: &[Name]) -> bool {
    let Some(receiver) = func.params.first().filter(|p| p.name == "self").map(|p| p.local) else { return false };
    let mut open: Vec<&Block> = vec![func.body()];
    while let Some(block) = open.pop() {
        for node in block {
            match &node.stmt {
                Stmt::Assign { value: Rvalue::CallMethod { base: Operand::Local(base), name, .. }, .. }
                    if *base == receiver && attributes.contains(name) =>
                {
                    return true;
                }
                other => open.extend(other.blocks()),
            }
        }
    }
    false
}

/// The `forward` of the class that an annotation names.
fn module_hinted(project: &Project, module: ModuleId, hint: &str) -> Option<FuncRef> {
    forward_of(project, super::unseen::hinted_class(project, module, hint)?)
}

fn forward_of(project: &Project, class: ClassRef) -> Option<FuncRef> {
    let (_, func) = project.class(class).methods.iter().find(|(name, _)| name == "forward")?;
    Some(FuncRef { module: class.module, func: *func })
}

/// Whether what a rule describes communicates or states a type.
fn is_telling(entry: &Entry) -> bool {
    match entry {
        Entry::Collective(_) | Entry::Layer(_) => true,
        Entry::Intrinsic(rule) => TELLING.contains(&rule.does.as_str()),
        Entry::Op(_) | Entry::Module(_) | Entry::Group(_) | Entry::Mark(_) => false,
    }
}

/// The last parts of the names of collectives and of calls that state types.
pub fn telling_names(rules: &RuleBook) -> FxHashSet<Name> {
    rules
        .entries()
        .filter(|(_, entry)| is_telling(entry))
        .map(|(name, _)| Name::from(name.rsplit('.').next().unwrap_or(name)))
        .filter(|name| !COMMON.contains(&name.as_str()))
        .collect()
}

/// Variables of the environment that hold the own rank, or the number of ranks.
pub fn environment_names(rules: &RuleBook) -> FxHashSet<Name> {
    let asks = |(_, e): (&Name, &Entry)| match e {
        Entry::Intrinsic(rule) if rule.does == "environment" => Some(rule.clone()),
        _ => None,
    };
    let rules: Vec<_> = rules.entries().filter_map(asks).collect();
    rules.iter().flat_map(|rule| ["rank", "size"].map(|part| rule.role(part).cloned())).flatten().collect()
}

/// Names of functions that apply plans to modules.
pub fn planning_names(rules: &RuleBook) -> FxHashSet<Name> {
    let planning = |e: &Entry| matches!(e, Entry::Intrinsic(rule) if rule.does == "dtensor-parallelize");
    let names = rules.entries().filter(|(_, e)| planning(e));
    names.map(|(name, _)| Name::from(name.rsplit('.').next().unwrap_or(name))).collect()
}

/// The functions that a name of a module denotes: itself, or the methods of a class.
fn called(project: &Project, module: ModuleId, name: &Name) -> Vec<FuncRef> {
    match project.member(module, name) {
        Some(Resolved::Func(func)) => vec![func],
        Some(Resolved::Class(class)) => {
            project.class(class).methods.iter().map(|(_, func)| FuncRef { module: class.module, func: *func }).collect()
        }
        _ => Vec::new(),
    }
}

/// What names of one module denote.
struct Names<'a> {
    project: &'a Project,
    rules: &'a RuleBook,
    module: ModuleId,
    /// What was looked up before.
    called: FxHashMap<Name, Vec<FuncRef>>,
}

impl Names<'_> {
    fn called(&mut self, name: &Name) -> &[FuncRef] {
        let (project, module) = (self.project, self.module);
        self.called.entry(name.clone()).or_insert_with(|| called(project, module, name))
    }

    /// The methods of the class whose `apply` a variable of the project stands for.
    fn applied(&self, name: &Name, digests: &Digests) -> Vec<FuncRef> {
        let Some(Resolved::Value(module, variable)) = self.project.member(self.module, name) else { return Vec::new() };
        let applies = &digests.of(self.project, module).applies;
        let class = applies.iter().find(|(applied, _)| *applied == variable).map(|(_, class)| class);
        class.map_or_else(Vec::new, |class| called(self.project, module, class))
    }

    /// Whether a name is a class of the project: `Function.apply` has the type that its source implies.
    fn is_class(&self, base: &Name) -> bool {
        matches!(self.project.member(self.module, base), Some(Resolved::Class(_)))
    }

    /// A common name of something outside the project whose path has a rule: `base.name`, or `name` as it was imported.
    fn tells_by_path(&self, base: Option<&Name>, name: &Name) -> bool {
        let Some(Resolved::External(path)) = self.project.member(self.module, base.unwrap_or(name)) else {
            return false;
        };
        let entry = match base {
            None => self.rules.get(&path),
            Some(_) => self.rules.get(&format!("{path}.{name}")),
        };
        entry.is_some_and(is_telling)
    }

    /// The methods, each once, that are called of what may be inside the project. Members of what is outside are outside as well.
    fn inside<'m>(&self, methods: &'m Methods) -> FxHashSet<&'m Name> {
        let outside = |base: &Name| matches!(self.project.member(self.module, base), Some(Resolved::External(_)));
        let inside = methods.iter().filter(|(_, base)| !base.is_some_and(outside));
        inside.map(|(name, _)| name).collect()
    }
}
