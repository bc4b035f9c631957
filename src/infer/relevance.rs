//! Which functions can yield anything: those from which a collective, a typing call or an annotation is reached. In: the project and
//! the rules. Out: [`Relevance`]. Never: an effect on what a relevant function yields; an irrelevant one called with typed arguments
//! is still executed. Next: `root.rs`.

use super::memo::{Memo, Task, combined, constant, kept_equals};
use super::namesakes::Namesakes;
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
    "dtensor-fully-shard",
    "dtensor-parallelize",
    "dtensor-style-input",
    "dtensor-style-output",
    "sharding-mark",
    "sharding-mark-gradients",
    "declared-layout",
    "declared-sharding",
];

/// Names that other things have as well: they tell only where their path does.
const COMMON: &[&str] =
    &["gather", "scatter", "reduce", "local", "send", "recv", "shard", "apply", "convert", "broadcast", "Scalar"];

/// Builtins that test a value against a class.
const CLASS_TESTS: &[&str] = &["isinstance", "issubclass"];

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
        expanded: &(dyn Fn(ModuleId) -> bool + Sync),
        memo: Option<&Memo>,
    ) -> Arc<Relevant> {
        let known = constant(memo, "names", || (telling_names(rules), planning_names(rules)));
        let names = Names { telling: &known.0, planning: &known.1 };
        let by_name = Namesakes::new(project, memo);
        let modules: Vec<ModuleId> = project.modules.ids().collect();
        let parts = kept_equals(memo, &modules, Task::Scanned, |module| {
            scanned(project, rules, files, (module, expanded(module)), &names, &by_name)
        });
        combined(memo, "relevance", parts, |parts| Relevant::joined(&parts), Relevant::differences)
    }

    pub fn differences(&self, other: &Relevant) -> Vec<Read> {
        let funcs = super::memo::differing(&self.funcs, &other.funcs);
        let classes = self.classes.symmetric_difference(&other.classes);
        funcs
            .chain(self.telling.symmetric_difference(&other.telling))
            .map(|f| Read::Relevant(f.module.0, f.func.0))
            .chain(classes.map(|c| Read::RelevantClass(c.module.0, c.class.0)))
            .collect()
    }

    fn joined(parts: &[Arc<Vec<Scanned>>]) -> Relevant {
        let callers = Callers::new(parts);
        let mut out = Relevant { classes: planned(parts), ..Relevant::default() };
        let mut work = VecDeque::new();
        for found in parts.iter().flat_map(|part| part.iter()) {
            if found.tells {
                out.telling.insert(found.at);
                if out.funcs.insert(found.at, 0).is_none() {
                    work.push_back(found.at);
                }
            }
        }
        // The nearest first, so that a function is met on the shortest way.
        while let Some(func) = work.pop_front() {
            let farther = out.funcs[&func] + 1;
            // A constructor that makes something worth following: the class calls it through an attribute.
            let found = &parts[func.module.index()][func.func.index()];
            out.classes.extend(found.class);
            for next in found.used.iter().chain(callers.of(func)) {
                if let Slot::Vacant(free) = out.funcs.entry(*next) {
                    free.insert(farther);
                    work.push_back(*next);
                }
            }
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

/// Classes of the modules that functions make which apply plans to modules, and of the modules that those have.
fn planned(scanned: &[Arc<Vec<Scanned>>]) -> FxHashSet<ClassRef> {
    let mut out = FxHashSet::default();
    let all = || scanned.iter().flat_map(|part| part.iter());
    let mut work: Vec<&Scanned> = all().filter(|s| s.plans).collect();
    if work.is_empty() {
        return out;
    }
    let by_func: FxHashMap<FuncRef, &Scanned> = all().map(|s| (s.at, s)).collect();
    while let Some(found) = work.pop() {
        for callee in &found.callees {
            let Some(callee) = by_func.get(callee).filter(|callee| callee.makes) else { continue };
            if callee.class.is_some_and(|class| out.insert(class)) {
                work.push(callee);
            }
        }
    }
    out
}

/// Divisions of a dim by the size of an axis, as comments write them.
const SPLITS: &[&str] = &["/tp", "/etp", "/cp", "/ep", "/sp", "/dp", "/ TP", "/TP"];

/// Names that make a function worth executing, and those of functions that apply plans to modules.
struct Names<'a> {
    telling: &'a FxHashSet<Name>,
    planning: &'a [Name],
}

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
    /// Whether it applies plans to modules.
    plans: bool,
    /// Functions that it may call.
    callees: Box<[FuncRef]>,
}

/// Whether the annotation of a parameter names something that tells: a layer with a contract.
fn names_telling(hint: &str, telling: &FxHashSet<Name>) -> bool {
    hint.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| telling.contains(word))
}

/// Names that imports give to what tells: `from .. import all_reduce as total`.
fn renamed<'a>(project: &'a Project, module: ModuleId, telling: &FxHashSet<Name>) -> Vec<&'a Name> {
    let renames = |(name, binding): (&'a Name, &'a Binding)| {
        let Binding::Import { member: Some(member), .. } = binding else { return None };
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
fn scanned<'a>(
    project: &'a Project,
    rules: &'a RuleBook,
    files: &Files,
    (module, expanded): (ModuleId, bool),
    names: &Names<'a>,
    by_name: &Namesakes,
) -> Vec<Scanned> {
    let ir = &project.modules[module].ir;
    let skipped = ir.suppressions.iter().any(|s| s.scope == SuppressionScope::Skip);
    let by_mark = super::parameters::protocol(project, rules, module).is_some();
    // What no line of the file shows, no function of it does.
    let any_noted = shows_split(files[project.file(module)].whole());
    let seen = by_name.seen_from(project, module);
    let renamed = renamed(project, module, names.telling);
    let mut called_by_name: FxHashMap<&'a Name, Vec<FuncRef>> = FxHashMap::default();
    let scan = |(func, f): (FuncId, &'a Func)| {
        let at = FuncRef { module, func };
        let mut scan = Scan {
            project,
            rules,
            at,
            func: f,
            telling: names.telling,
            planning: names.planning,
            renamed: renamed.clone(),
            direct: false,
            plans: false,
            makes_parameter: false,
            methods: Vec::new(),
            called: FxHashMap::default(),
            names: Vec::new(),
            seen: FxHashSet::default(),
            calls: Vec::new(),
            read: vec![false; f.locals.len()],
        };
        scan.block(&f.body);
        let mut callees = Vec::new();
        for name in scan.names {
            callees.extend_from_slice(called_by_name.entry(name).or_insert_with(|| called(project, at, name)));
        }
        for name in scan.methods {
            note(|| Read::Named(number(name)));
            callees.extend(by_name.named(name, &seen));
        }
        // A plan may be for a module that only the annotation of a parameter shows.
        for hint in f.params.iter().filter(|_| scan.plans).filter_map(|p| p.hint.as_deref()) {
            callees.extend(called(project, at, &Name::from(hint.trim_matches(['"', '\'']))));
        }
        callees.extend(modules_given(project, files, (module, f), &scan.calls));
        let hinted = f.params.iter().any(|p| p.hint.as_deref().is_some_and(|h| names_telling(h, names.telling)));
        let noted = any_noted && f.kind == FuncKind::Function && shows_split(files[project.file(module)].slice(f.span));
        // A whole parameter means something where a framework goes by marks.
        let makes = by_mark && f.name == "__init__" && scan.makes_parameter;
        let tells =
            (scan.direct || hinted || noted || makes || !f.claims.is_empty() || !f.signature.is_empty()) && !skipped;
        let methods = f.class.filter(|_| f.name == "__init__").map_or(&[][..], |class| &ir.classes[class].methods);
        let attributes = if methods.is_empty() { Vec::new() } else { telling_attributes(f, names.telling) };
        let uses = |func: &FuncId| !attributes.is_empty() && calls_attribute(&ir.funcs[*func], &attributes);
        let used = methods.iter().filter(|(name, func)| CALLED.contains(&name.as_str()) || uses(func));
        Scanned {
            at,
            parent: f.parent.map(|func| FuncRef { module, func }),
            class: f.class.map(|class| ClassRef { module, class }),
            used: used.map(|(_, func)| FuncRef { module, func: *func }).collect(),
            tells: tells || expanded,
            makes: f.name == "__init__",
            plans: scan.plans,
            callees: callees.into(),
        }
    };
    ir.funcs.iter_enumerated().map(scan).collect()
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

/// Attributes that a constructor gives what tells: a layer that it makes, or that the annotation of a parameter names.
fn telling_attributes<'a>(init: &'a Func, telling: &FxHashSet<Name>) -> Vec<&'a Name> {
    let hinted = |p: &&Param| p.hint.as_deref().is_some_and(|h| names_telling(h, telling));
    let mut locals: Vec<LocalId> = init.params.iter().filter(hinted).map(|p| p.local).collect();
    let mut out = Vec::new();
    let mut open: Vec<&Block> = vec![&init.body];
    while let Some(block) = open.pop() {
        for node in block {
            match &node.stmt {
                Stmt::Assign { dst, value: Rvalue::Call { callee: Operand::Global(name), .. } }
                    if telling.contains(name) =>
                {
                    locals.push(*dst);
                }
                Stmt::SetAttr { name, value: Operand::Local(value), .. } if locals.contains(value) => out.push(name),
                other => open.extend(other.blocks()),
            }
        }
    }
    out
}

/// Whether a method calls one of these attributes of its object.
fn calls_attribute(func: &Func, attributes: &[&Name]) -> bool {
    let Some(receiver) = func.params.first().filter(|p| p.name == "self").map(|p| p.local) else { return false };
    let mut open: Vec<&Block> = vec![&func.body];
    while let Some(block) = open.pop() {
        for node in block {
            match &node.stmt {
                Stmt::Assign { value: Rvalue::CallMethod { base: Operand::Local(base), name, .. }, .. }
                    if *base == receiver && attributes.contains(&name) =>
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
fn telling_names(rules: &RuleBook) -> FxHashSet<Name> {
    rules
        .entries()
        .filter(|(_, entry)| is_telling(entry))
        .map(|(name, _)| Name::from(name.rsplit('.').next().unwrap_or(name)))
        .filter(|name| !COMMON.contains(&name.as_str()))
        .collect()
}

/// Names of functions that apply plans to modules.
fn planning_names(rules: &RuleBook) -> Vec<Name> {
    let planning = |e: &Entry| matches!(e, Entry::Intrinsic(rule) if rule.does == "dtensor-parallelize");
    let names = rules.entries().filter(|(_, e)| planning(e));
    names.map(|(name, _)| Name::from(name.rsplit('.').next().unwrap_or(name))).collect()
}

/// The functions that a name of a function's module denotes: itself, or the constructor and forward of a class.
fn called(project: &Project, from: FuncRef, name: &Name) -> Vec<FuncRef> {
    match project.member(from.module, name) {
        Some(Resolved::Func(func)) => vec![func],
        Some(Resolved::Class(class)) => {
            project.class(class).methods.iter().map(|(_, func)| FuncRef { module: class.module, func: *func }).collect()
        }
        _ => Vec::new(),
    }
}

struct Scan<'a> {
    project: &'a Project,
    rules: &'a RuleBook,
    at: FuncRef,
    func: &'a Func,
    telling: &'a FxHashSet<Name>,
    /// Names of functions that apply plans.
    planning: &'a [Name],
    /// Names under which the module imports what tells.
    renamed: Vec<&'a Name>,
    direct: bool,
    plans: bool,
    /// It makes a parameter, or a module that has one.
    makes_parameter: bool,
    /// Methods of what may be inside the project, each once.
    methods: Vec<&'a Name>,
    /// Those that were looked at before, and whether they are among these.
    called: FxHashMap<&'a Name, bool>,
    /// Names that may be called, each once.
    names: Vec<&'a Name>,
    /// What was looked at before: names, and locals by number.
    seen: FxHashSet<&'a Name>,
    /// Locals that are called.
    calls: Vec<LocalId>,
    read: Vec<bool>,
}

impl<'a> Scan<'a> {
    fn operand(&mut self, operand: &'a Operand) {
        let name = match operand {
            Operand::Global(name) => name,
            Operand::Local(local) => {
                if std::mem::replace(&mut self.read[local.index()], true) {
                    return;
                }
                &self.func.locals[*local].name
            }
            Operand::Const(_) => return,
        };
        // Temporaries have no name.
        if name.is_empty() || matches!(operand, Operand::Global(_)) && !self.seen.insert(name) {
            return;
        }
        let imported = matches!(operand, Operand::Global(_));
        self.direct |= self.telling.contains(name) || imported && self.tells_by_path(None, name);
        self.direct |= imported && self.renamed.contains(&name);
        self.plans |= self.planning.contains(name);
        if imported || self.func.kind == FuncKind::Module {
            self.names.push(name);
        }
    }

    /// Whether a name is a class of the project: `Function.apply` has the type that its source implies.
    fn is_class(&self, base: &Operand) -> bool {
        let Operand::Global(base) = base else { return false };
        matches!(self.project.member(self.at.module, base), Some(Resolved::Class(_)))
    }

    /// A common name of something outside the project whose path has a rule: `base.name`, or `name` as it was imported.
    fn tells_by_path(&self, base: Option<&Operand>, name: &Name) -> bool {
        if !COMMON.contains(&name.as_str()) {
            return false;
        }
        let owner = match base {
            None => name,
            Some(Operand::Global(base)) => base,
            Some(Operand::Local(_) | Operand::Const(_)) => return false,
        };
        let Some(Resolved::External(path)) = self.project.member(self.at.module, owner) else { return false };
        let entry = match base {
            None => self.rules.get(&path),
            Some(_) => self.rules.get(&format!("{path}.{name}")),
        };
        entry.is_some_and(is_telling)
    }

    /// Whether a name denotes something outside the project, whose members are outside as well.
    fn is_outside(&self, base: &Operand) -> bool {
        match base {
            Operand::Global(name) => {
                matches!(self.project.member(self.at.module, name), Some(Resolved::External(_)))
            }
            Operand::Local(_) | Operand::Const(_) => false,
        }
    }

    fn block(&mut self, block: &'a Block) {
        for node in block {
            match &node.stmt {
                Stmt::Assign { value, .. } => self.rvalue(value),
                stmt => stmt.blocks().for_each(|b| self.block(b)),
            }
        }
    }

    fn rvalue(&mut self, value: &'a Rvalue) {
        match value {
            Rvalue::Attr { base, name } => {
                self.direct |= self.telling.contains(name) || self.tells_by_path(Some(base), name);
                self.operand(base);
            }
            Rvalue::Use(operand) => self.operand(operand),
            // A class that a value is tested against is not called.
            Rvalue::Call { callee: Operand::Global(name), .. } if CLASS_TESTS.contains(&name.as_str()) => {}
            Rvalue::Call { callee, args } => {
                self.makes_parameter |= matches!(callee, Operand::Global(name) if name == "Parameter");
                if let Operand::Local(local) = callee {
                    self.calls.push(*local);
                }
                self.operand(callee);
                for arg in args {
                    self.operand(&arg.value);
                }
            }
            Rvalue::CallMethod { base, name, args } => {
                let known = self.called.get(name).copied();
                if known.is_none() {
                    self.plans |= self.planning.contains(name);
                    self.direct |= self.telling.contains(name);
                    self.makes_parameter |= name == "Parameter";
                }
                self.direct =
                    self.direct || self.tells_by_path(Some(base), name) || name == "apply" && self.is_class(base);
                if known != Some(true) {
                    let inside = !self.is_outside(base);
                    self.called.insert(name, inside);
                    if inside {
                        self.methods.push(name);
                    }
                }
                self.operand(base);
                for arg in args {
                    self.operand(&arg.value);
                }
            }
            _ => {}
        }
    }
}
