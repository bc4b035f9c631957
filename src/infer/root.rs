//! Roots: module bodies, and functions that no analysed call reaches. In: the project. Out: merged [`Output`].
//! Never: dependence on the order of threads: roots are independent and merged in order. Source: DESIGN.md section 5. Next: `machine.rs`.

use super::autograd::Case;
use super::budget::{Budget, allowances};
use super::callers::functions;
use super::contract::contract_conditions;
use super::facts::{Body, Left, declare, facts, left, mentions, only, speaking};
use super::finding::Finding;
use super::heap::{Cell, ObjectCell, ObjectClass};
use super::layer_source::LayerSource;
use super::limits::MAX_STEPS;
use super::machine::{Activation, Machine};
use super::memo::{Memo, Task, combined, kept, kept_each, kept_long, kept_told};
use super::output::{Exit, Output};
use super::practice::asked::Taken;
use super::settings::{Allowances, Settings};
use super::statics::module_body;
use super::unknown_param::Annotated;
use super::value::{Closure, Flavour, Method, Value};
use super::whole::{Assumed, Needs, is_used_before};
use super::world::{Flow, Frame, World};
use crate::ir::{Const, Func, FuncKind, LocalKind};
use crate::project::{ClassRef, FuncRef, ModuleId, Project};
use crate::rules::collective::Transition;
use crate::rules::{CollectiveRule, Entry, RuleBook};
use crate::source::reads::{Read, note};
use crate::source::{Files, Name, Place};
use crate::types::{AxisState, LocalType, Reason};
use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Executes every root. Module bodies first: what they leave is what functions see of them. `taken`: what was taken from the files
/// while they were lowered. With a memo, results are kept for later versions of the project.
pub fn infer(
    project: &Project,
    rules: &RuleBook,
    files: &Files,
    settings: &mut Settings,
    taken: &Taken,
    memo: Option<&Memo>,
) -> Output {
    settings.add_directives(project, rules);
    let mentions = mentions(project, rules, files, memo);
    let decorating = speaking(&mentions, |m| m.decorators);
    settings.decorated = super::decorated::decorated(project, rules, files, &decorating, memo);
    let modules: Vec<ModuleId> = project.modules.ids().collect();
    let (digests, asked) = (&taken.digests, &taken.asked);
    facts(project, rules, files, taken, settings, memo);
    let run = Run::new(project, rules, files, settings, memo);
    let bodies = kept_each(memo, &modules, Task::Body, |module| run.body(module));
    let mut out = Output::default();
    if settings.wants_types {
        for place in super::coverage::collective_calls(project, rules) {
            out.coverage.site(place, super::output::Site::NotReached);
        }
        for place in super::coverage::declarations(project, rules) {
            out.coverage.declarations.entry(place).or_default();
        }
    }
    for body in &bodies {
        if settings.wants_types {
            // A shared result is taken over without its counts.
            out.coverage.add(&body.0.coverage);
        }
        out.merge_shared(body.0.clone());
    }
    let by_module: Vec<(ModuleId, &Output)> = modules.iter().copied().zip(bodies.iter().map(|body| &*body.0)).collect();
    out.executed = super::callers::settled(project, files, &by_module);
    // What module bodies declare is not followed.
    out.sharded.clear();
    left(bodies, settings, memo);
    declare(project, rules, files, settings, (&mentions, memo), &mut out);
    let (first, rest, executed) = functions(project, (&settings.relevance, &settings.called), &out, memo);
    let roots = (first, rest);
    let changed =
        |a: &Allowances, b: &Allowances| super::memo::differing(a, b).map(|module| Read::Allowance(module.0)).collect();
    let alone = |f: &&FuncRef| project.func(**f).captures.is_empty();
    let table = Arc::new(allowances(roots.0.iter().chain(&roots.1).filter(alone)));
    settings.allowances = combined(memo, "allowances", vec![table], only, changed);
    derivations(&Run::new(project, rules, files, settings, memo), &modules, &mut out);
    let claims = super::autograd::claims(project, files, &out.derived, memo);
    let ruled = ruled(&Run::new(project, rules, files, settings, memo));
    claims.into_iter().chain(ruled).for_each(|finding| out.report(finding));
    // What is read from the text needs nothing of what is executed.
    let read = || {
        let factors = super::scale::scales(project, rules, files, settings, asked, memo);
        let practices = super::practice::Practices::new(project, rules, files, settings, taken, memo);
        (practices, factors, super::sharding::sharding(project, rules, files, digests, memo))
    };
    let run = Run::new(project, rules, files, settings, memo);
    let ((), (practices, factors, sharding)) = rayon::join(|| execute(run, roots, &mut out), read);
    if settings.wants_types {
        Run::new(project, rules, files, settings, memo).signatures(&executed, &mut out);
    }
    super::autograd::unapplied(project, rules, files, &out).into_iter().for_each(|finding| out.report(finding));
    out.keep_causes();
    let ties = super::ties::Ties { project, rules, files, settings };
    out.settle(|found| ties.settle(found));
    out.settle(|found| practices.settle(found));
    out.failed.extend(practices.failed.iter().filter(|at| !out.failed.contains(at)).copied().collect::<Vec<_>>());
    let practices = practices.findings(&out.findings);
    let (mut practices, factors, told) = super::scale::together(project, files, practices, factors);
    ties.settle(&mut practices);
    out.factors = told;
    for finding in practices.into_iter().chain(factors) {
        out.report(finding);
    }
    for finding in sharding.into_iter().chain(settings.gone()) {
        out.report(finding);
    }
    memo.into_iter().for_each(Memo::settle);
    out
}

/// Executes functions: the first ones, and of the others those that none of these has executed; those of tests and examples at the end, whose
/// calls are not all that there may be.
pub(super) fn execute(mut run: Run<'_>, (first, others): (Vec<FuncRef>, Vec<FuncRef>), out: &mut Output) {
    let tries = |f: &FuncRef| super::callers::tries(run.project, run.files, f.module);
    let (trying, first): (Vec<FuncRef>, Vec<FuncRef>) = first.into_iter().partition(tries);
    let (tried, others): (Vec<FuncRef>, Vec<FuncRef>) = others.into_iter().partition(tries);
    for (first, others) in [(first, others), (trying, tried)] {
        run.roots(&first, out);
        let captures = |f: &FuncRef| !run.project.func(*f).captures.is_empty();
        let (mut nested, others): (Vec<FuncRef>, Vec<FuncRef>) = others.into_iter().partition(captures);
        let (called, left): (Vec<FuncRef>, Vec<FuncRef>) = others.into_iter().partition(|f| out.executed.contains(f));
        run.roots(&left, out);
        nested.retain(|f| !out.executed.contains(f));
        run.roots(&nested, out);
        if run.settings.wants_types {
            run.signatures(&called, out);
        }
    }
}

/// The cases of a function that applies an autograd function to its tensor argument, after [`infer`] on the same settings.
pub fn wrapper_cases(
    project: &Project,
    rules: &RuleBook,
    files: &Files,
    settings: &Settings,
    (at, tensor, given): (FuncRef, &Name, &[(Name, Const)]),
) -> Vec<Case> {
    let run = Run::new(project, rules, files, settings, None);
    run.guarded(|m| m.wrapper_cases(at, tensor, given)).unwrap_or_default()
}

/// Functions of the project that a rule types by their names, and whose own source says something else.
fn ruled(run: &Run<'_>) -> Vec<Finding> {
    let modules: Vec<ModuleId> = run.project.modules.ids().collect();
    let parts = kept_each(run.memo, &modules, Task::RuledIn, |module| ruled_in(run, module));
    let found: Vec<&Ruled> = parts.iter().flat_map(|part| part.iter()).collect();
    let compared = found.par_iter().with_max_len(1).map(|(at, rule)| {
        kept(run.memo, Task::Ruled(*at), || {
            let tensor = &rule.args.params[rule.input].name;
            let f = run.project.func(*at);
            let place = Place { file: run.project.file(at.module), span: f.name_span };
            let input = f.params.iter().position(|p| p.name == *tensor)?;
            let groups = super::ruled_source::groups_of(run.settings, rule, f);
            let compared = |given: &[(Name, Const)], transitions: &[Transition]| {
                let cases = run.guarded(|m| m.wrapper_cases(*at, tensor, given)).unwrap_or_default();
                let says = super::autograd::Says { transitions, input, groups: &groups };
                super::autograd::against_rule(place, &f.name, &says, &cases)
            };
            let all: Vec<Transition> = rule.transitions.iter().map(|(_, t)| t.clone()).collect();
            compared(&[], &all).or_else(|| {
                // Where an argument decides, the source is held to what the rule says of that value alone.
                rule.transitions.iter().find_map(|(condition, transition)| {
                    let (param, text) = condition.as_ref()?;
                    let Value::Const(value) = super::layer::written(Some(text)) else { return None };
                    let name = rule.args.params[*param].name.clone();
                    // Older and newer versions have other arguments.
                    f.params.iter().find(|p| p.name == name)?;
                    compared(&[(name, value)], std::slice::from_ref(transition))
                })
            })
        })
    });
    compared.collect::<Vec<_>>().into_iter().filter_map(super::memo::taken).collect()
}

/// A function and the rule that types it.
type Ruled = (FuncRef, Arc<CollectiveRule>);

/// The functions of a module that apply something and that a rule types.
fn ruled_in(run: &Run<'_>, module: ModuleId) -> Vec<Ruled> {
    let mut found = Vec::new();
    let m = &run.project.modules[module];
    let file = &run.files[m.file];
    if !file.whole().contains(".apply(") {
        return found;
    }
    for (func, f) in m.ir.funcs.iter_enumerated() {
        let at = FuncRef { module, func };
        if f.kind == FuncKind::Function
            && f.class.is_none()
            && file.slice(f.span).contains(".apply(")
            && let Some(Entry::Collective(rule)) = run.rules.get(&run.project.qualified(at))
            && f.params.iter().any(|p| p.name == rule.args.params[rule.input].name)
        {
            found.push((at, rule.clone()));
        }
    }
    found
}

/// Derives every autograd function of these modules.
fn derivations(run: &Run<'_>, modules: &[ModuleId], out: &mut Output) {
    let classes = kept_each(run.memo, modules, Task::Autograd, |module| autograd_in(run, module));
    let classes: Vec<(ClassRef, FuncRef)> = classes.iter().flat_map(|part| part.iter().copied()).collect();
    let task = |(class, _): (ClassRef, FuncRef)| Task::Derived(class);
    let outputs = kept_long(
        run.memo,
        &classes,
        task,
        |_| 0,
        |(class, forward)| run.guarded(|m| m.derivation_root(class, forward)).unwrap_or_else(|| failed(forward)),
    );
    outputs.into_iter().for_each(|output| out.merge_shared(output));
}

/// The autograd functions of a module, with their forwards.
fn autograd_in(run: &Run<'_>, module: ModuleId) -> Vec<(ClassRef, FuncRef)> {
    let mut classes = Vec::new();
    let m = &run.project.modules[module];
    for class in m.ir.classes.ids() {
        let at = ClassRef { module, class };
        let forward = m.ir.classes[class].methods.iter().find(|(name, _)| name == "forward");
        if let Some((_, func)) = forward
            && run.settings.statics.external_bases(at).any(|b| run.rules.autograd_base(b))
        {
            classes.push((at, FuncRef { module, func: *func }));
        }
    }
    classes
}

/// What every root sees, and the objects that roots share.
pub(super) struct Run<'a> {
    project: &'a Project,
    rules: &'a RuleBook,
    files: &'a Files,
    settings: &'a Settings,
    memo: Option<&'a Memo>,
    /// Objects of classes as their constructors leave them; `None` where the checker itself failed.
    built: FxHashMap<ClassRef, Arc<Option<Built>>>,
}

impl<'a> Run<'a> {
    pub fn new(
        project: &'a Project,
        rules: &'a RuleBook,
        files: &'a Files,
        settings: &'a Settings,
        memo: Option<&'a Memo>,
    ) -> Run<'a> {
        Run { project, rules, files, settings, memo, built: FxHashMap::default() }
    }

    /// Derives the autograd functions of one module.
    pub fn derivations_in(&self, module: ModuleId, out: &mut Output) {
        derivations(self, &[module], out);
    }

    pub fn body(&self, module: ModuleId) -> Body {
        let root = module_body(module);
        let (output, exports) = self.guarded(|m| m.module_root(module)).unwrap_or_else(|| (failed(root), Vec::new()));
        (Arc::new(output), Arc::new(Left::new(exports)))
    }

    /// The object that the constructor of a class leaves.
    fn shared(&self, class: ClassRef) -> Option<&Option<Built>> {
        note(|| Read::Built(class.module.0, class.class.0));
        self.built.get(&class).map(|built| &**built)
    }

    /// Executes functions that others call as if nobody did, only for their signatures.
    pub fn signatures(&mut self, called: &[FuncRef], out: &mut Output) {
        self.build_classes(called, &mut Output::default());
        let outputs = kept_long(self.memo, called, Task::Signature, |_| 0, |root| self.signature(root));
        for exits in outputs {
            out.exits.extend(super::memo::taken(exits));
        }
    }

    /// The ends of a function that is executed as if nobody called it.
    fn signature(&self, root: FuncRef) -> Vec<Exit> {
        let class = self.class_of(root);
        let shared = class.and_then(|class| self.shared(class)).and_then(Option::as_ref);
        let output = self.guarded(|mut m| {
            m.quiet = true;
            m.function_root(root, class, shared)
        });
        output.map_or_else(Vec::new, |output| output.exits)
    }

    /// Executes roots; first the constructors of their classes, whose objects the methods share.
    pub fn roots(&mut self, roots: &[FuncRef], out: &mut Output) {
        self.build_classes(roots, out);
        let outputs = kept_long(self.memo, roots, Task::Root, |root| self.weight(root), |root| self.root(root));
        outputs.into_iter().for_each(|output| out.merge_shared(super::memo::taken(output)));
    }

    /// An estimate of the work for a root: its statements, in each world that the constructor of its class leaves.
    fn weight(&self, root: FuncRef) -> usize {
        let built = self.class_of(root).and_then(|class| (**self.built.get(&class)?).as_ref());
        let worlds = built.map_or(1, |b| b.worlds.len());
        self.project.func(root).code.count() * worlds
    }

    /// Executes the constructors of the classes of these roots.
    fn build_classes(&mut self, roots: &[FuncRef], out: &mut Output) {
        let mut classes: Vec<ClassRef> = roots
            .iter()
            .filter(|root| self.project.func(**root).name != "__init__")
            .filter_map(|root| self.class_of(*root))
            .filter(|class| !self.built.contains_key(class))
            .collect();
        classes.dedup();
        let told = |class: ClassRef| Read::Built(class.module.0, class.class.0);
        let built = kept_told(self.memo, &classes, Task::Built, told, |class| self.guarded(|m| m.built(class)));
        for (class, built) in classes.into_iter().zip(built) {
            if let Some(built) = &*built {
                out.merge_shared(built.reached.clone());
            }
            self.built.insert(class, built);
        }
    }

    /// The class whose object is the receiver of a root.
    fn class_of(&self, root: FuncRef) -> Option<ClassRef> {
        let func = self.project.func(root);
        let is_static = matches!(self.settings.static_flavour(self.project, self.rules, root), Some(Flavour::Static));
        let class = func.class.filter(|_| !is_static && !func.params.is_empty())?;
        Some(ClassRef { module: root.module, class })
    }

    /// Executes one root, unless it is a constructor that was executed already.
    fn root(&self, root: FuncRef) -> Arc<Output> {
        let class = self.class_of(root);
        let shared = class.and_then(|class| self.shared(class));
        let own = shared.and_then(|b| b.as_ref()).filter(|b| b.own == Some(root));
        let output = match (shared, own) {
            (_, Some(built)) => return built.out.clone(),
            _ if self.project.func(root).name == "__init__" => self.guarded(|m| m.function_root(root, class, None)),
            (Some(None), _) => None,
            (Some(Some(built)), _) => self.guarded(|m| m.function_root(root, class, Some(built))),
            (None, _) => self.guarded(|m| m.function_root(root, class, None)),
        };
        Arc::new(output.unwrap_or_else(|| failed(root)))
    }

    /// Runs one root; a failure of the checker itself is a lost root, not a lost run.
    fn guarded<T>(&self, f: impl FnOnce(Machine<'_>) -> T) -> Option<T> {
        let machine = Machine::new(self.project, self.rules, self.files, self.settings);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(machine))).ok()
    }
}

/// What a root yields on which the checker itself failed.
fn failed(root: FuncRef) -> Output {
    let mut out = Output::default();
    out.failed.push(root);
    out.executed.insert(root);
    out
}

/// An object of a class as its constructor leaves it.
pub(super) struct Built {
    object: Value,
    worlds: Vec<World>,
    next_id: u32,
    /// What annotations say of the parameters of the constructor.
    annotated: BTreeMap<Name, Annotated>,
    /// Whether it has whole parameters beside split ones.
    has_whole: bool,
    /// The constructor, if its execution was that of a root; then `out` is what the root yields.
    own: Option<FuncRef>,
    out: Arc<Output>,
    /// Functions and collectives that the constructor reaches.
    reached: Arc<Output>,
    /// Whether a function that tells is among them.
    pub(super) meets: bool,
}

impl Machine<'_> {
    /// Executes a module body; its exports are the names whose values need no heap.
    fn module_root(mut self, module: ModuleId) -> (Output, Vec<(Name, Value)>) {
        let at = module_body(module);
        let func = self.project.func(at);
        self.begin(at, func.locals().len(), MAX_STEPS);
        let later = std::cell::OnceCell::new();
        let mut exports: Option<Vec<(Name, Value)>> = None;
        for path in self.block(func.body()) {
            if !self.plans.is_empty() {
                self.w = path.world.clone();
                self.run_plans();
            }
            let Some(frame) = path.world.frames.first() else { continue };
            let named: Vec<(Name, Value)> = func
                .locals()
                .iter()
                .zip(frame.values())
                .filter(|(l, _)| l.kind != LocalKind::Temp)
                .map(|(l, v)| (l.name.clone(), portable(v)))
                .filter(|(_, v)| is_portable(v))
                .filter(|(name, v)| {
                    let holds = matches!(v, Value::Const(_));
                    !holds || !later.get_or_init(|| self.set_later(module)).contains(name)
                })
                .collect();
            exports = Some(match exports {
                None => named,
                Some(known) => known.into_iter().filter(|e| named.contains(e)).collect(),
            });
        }
        self.out.finish();
        (self.out, exports.unwrap_or_default())
    }

    /// Names of a module that its functions set: `None`, or a number, in the module body only holds their place.
    pub(super) fn set_later(&self, module: ModuleId) -> FxHashSet<Name> {
        const WORD: &str = "global ";
        let text = self.files[self.project.modules[module].file].whole();
        let mut out = FxHashSet::default();
        for at in memchr::memmem::find_iter(text.as_bytes(), WORD) {
            // A statement of its own: nothing but spaces before it on its line.
            let before = text[..at].trim_end_matches([' ', '\t']);
            if !before.is_empty() && !before.ends_with('\n') {
                continue;
            }
            let names = text[at + WORD.len()..].lines().next().unwrap_or_default().split(',').map(str::trim);
            out.extend(names.map(|name| Name::from(name.split('#').next().unwrap_or(name).trim())));
        }
        for at in memchr::memmem::find_iter(text.as_bytes(), "globals()[") {
            let rest = &text[at + "globals()[".len()..];
            let named = rest.strip_prefix(['"', '\'']).and_then(|rest| rest.split(['"', '\'']).next());
            out.extend(named.map(Name::from));
        }
        out
    }

    /// Executes a function whose caller is not known; a second time with what it needs of its arguments, where it says so: what was made
    /// of them before the use that tells is known then. Without whole parameters only sums that are missing are taken from there: a value
    /// that is cut or divided by what is not known may be meant as a part.
    fn function_root(mut self, root: FuncRef, class: Option<ClassRef>, shared: Option<&Built>) -> Output {
        let (project, rules, files, settings, quiet) =
            (self.project, self.rules, self.files, self.settings, self.quiet);
        if let Some(vain) = self.scouted(root, class, shared) {
            return vain;
        }
        let (mut output, needs) = self.executed(root, class, shared, &Assumed::default());
        if !self.residual.is_empty() {
            let mut again = Machine::new(project, rules, files, settings);
            again.quiet = quiet;
            let residual = Assumed { needed: self.residual.clone(), holds: None };
            output.blame_uses(again.executed(root, class, shared, &residual).0);
            return output;
        }
        let has_whole = shared.is_some_and(|b| b.has_whole);
        let held = if has_whole { self.holds_whole() } else { Vec::new() };
        let (func, file) = (project.func(root), project.file(root.module));
        // A hook may sum the gradient, and what needs none is summed by nobody.
        let is_plain = || !["_hook(", "requires_grad"].iter().any(|word| files[file].slice(func.span).contains(word));
        let of_all = Assumed { needed: needs.of_all(), holds: None };
        let under_flag = needs.under_flag(&of_all.needed);
        for assumed in std::iter::once(of_all).chain(under_flag) {
            let whole = has_whole && assumed.holds.is_none();
            let tells_more = || whole || is_used_before(func, file, &assumed.needed) && is_plain();
            let is_held = whole && !held.is_empty();
            if !is_held && (assumed.needed.is_empty() || !tells_more()) {
                continue;
            }
            let mut again = Machine::new(project, rules, files, settings);
            again.quiet = quiet;
            again.held_on.extend(held.iter().filter(|_| is_held).cloned());
            let second = again.executed(root, class, shared, &assumed).0;
            if whole && !assumed.needed.is_empty() {
                return second;
            }
            output.adopt_missing_sums(second, assumed.holds.as_ref());
        }
        output
    }

    /// Before a root runs: what its returns are compared with, the rule of the function or of the layer that it is the forward of.
    fn compared_begin(&mut self, root: FuncRef, class: Option<ClassRef>) -> Option<LayerSource> {
        self.ruled = self.ruled_source(root);
        self.layer_source(self.project.func(root), class)
    }

    /// After it ran: what is found on some ways only is taken back.
    fn compared_end(&mut self, source: Option<&LayerSource>) {
        self.ruled_done();
        self.layer_done(source);
    }

    /// Executes a function whose caller is not known. A method gets the object that the constructor of its class leaves.
    pub(super) fn executed(
        &mut self,
        root: FuncRef,
        class: Option<ClassRef>,
        shared: Option<&Built>,
        known: &Assumed,
    ) -> (Output, Needs) {
        let func = self.project.func(root);
        let mut worlds = vec![World::default()];
        let receiver = match (class, shared) {
            (Some(_), Some(built)) => {
                self.next_id = built.next_id;
                self.annotated.clone_from(&built.annotated);
                worlds.clone_from(&built.worlds);
                Some(built.object.clone())
            }
            (Some(class), None) => {
                let object = self.bare(class);
                worlds = vec![std::mem::take(&mut self.w)];
                Some(object)
            }
            (None, _) => None,
        };
        let mut left = self.settings.allowance(root.module);
        self.vain_after = self.vain_allowance(root, shared);
        let mut needed = Needs::default();
        let source = self.compared_begin(root, class);
        worlds = known.told(self.assumed_worlds(root.module, worlds));
        if let Some(source) = &source {
            worlds = self.layer_worlds(source, root, receiver.as_ref(), worlds);
            left *= worlds.len() as u64;
        }
        let mut waiting = worlds.into_iter();
        while let Some(world) = waiting.next() {
            self.w = world;
            self.begin(root, func.locals().len(), left / (waiting.len() as u64 + 1));
            let given = self.give_unknown(func, receiver.as_ref());
            let flavour = self.settings.static_flavour(self.project, self.rules, root);
            self.gradient_off(&func.name, flavour);
            self.data = self.data_beside(root, &given);
            let named: Vec<(Name, Value)> =
                func.params.iter().map(|p| p.name.clone()).zip(given.iter().cloned()).collect();
            self.give_needed(&known.needed, &named);
            self.entered(root);
            let place = self.place_of(func.name_span);
            let mut paths = Vec::new();
            self.layer = source.clone().map(|source| Arc::new((source, named.clone())));
            for world in self.decided_worlds(func) {
                self.w = world;
                self.entered_root(root);
                self.layer_input();
                paths.extend(self.block(func.body()));
            }
            self.layer = None;
            for path in paths {
                self.w = path.world;
                for (param, value) in func.params.iter().zip(&given) {
                    self.record_at(place, &param.name, value);
                }
                if !matches!(path.flow, Flow::Raise) {
                    self.run_plans();
                    needed.also(self.needs(&named), &self.w.facts);
                }
                match path.flow {
                    Flow::Return(value) => {
                        self.returned_loss(root, &value);
                        self.record_exit(root, &given, &value);
                    }
                    Flow::Next => self.record_exit(root, &given, &Value::NONE),
                    Flow::Raise | Flow::Break | Flow::Continue => {}
                }
            }
            self.stack.clear();
            left = left.saturating_sub(self.budget.spent());
            self.vain_after = self.vain_after.map(|end| end.saturating_sub(self.budget.spent()));
        }
        self.compared_end(source.as_ref());
        self.out.finish();
        (std::mem::take(&mut self.out), needed)
    }

    /// Binds every parameter of a function whose caller is not known: the first one to the receiver, if there is one.
    pub(super) fn give_unknown(&mut self, func: &Func, receiver: Option<&Value>) -> Vec<Value> {
        let mut given = Vec::with_capacity(func.params.len());
        for (i, param) in func.params.iter().enumerate() {
            let value = receiver.filter(|_| i == 0).cloned().unwrap_or_else(|| self.unknown_param(param));
            given.push(value.clone());
            self.set_local(param.local, value);
        }
        // What the function around it makes of its variables hangs together in ways that nothing shows here.
        for (_, inner) in &func.captures {
            self.set_local(*inner, Value::Unknown);
        }
        given
    }

    /// What a path makes of the parameters and the result of a function, if types are asked for.
    fn record_exit(&mut self, func: FuncRef, given: &[Value], result: &Value) {
        self.note_open_inputs(func, given, result);
        if !self.settings.wants_types {
            return;
        }
        let known = |m: &Self, value: &Value| match value {
            Value::Tensor(_) => m.tensor(value).map(|t| t.local.clone()),
            Value::Sym(path) => m.w.symbols.get(path).and_then(|id| m.w.heap.tensor(*id)).map(|t| t.local.clone()),
            _ => None,
        };
        let names = self.project.func(func).params.iter().map(|p| p.name.clone());
        let params = names.zip(given).filter_map(|(n, v)| Some((n, as_given(known(self, v)?)))).collect();
        let (results, is_tuple) = match result {
            Value::Tuple(items) => (items.iter().map(|v| known(self, v)).collect(), true),
            value => (vec![known(self, value)], false),
        };
        let facts = self.w.facts.clone();
        self.out.exits.push(super::output::Exit { func, facts, params, results, is_tuple });
    }

    /// Worlds in which the assumptions of the file hold.
    fn assumed_worlds(&mut self, module: ModuleId, mut worlds: Vec<World>) -> Vec<World> {
        let settings: &Settings = self.settings;
        for world in &mut worlds {
            std::mem::swap(&mut self.w, world);
            for (_, cond) in settings.assumptions.iter().filter(|(m, _)| *m == module) {
                self.assume_cond(cond);
            }
            std::mem::swap(&mut self.w, world);
        }
        worlds
    }

    /// The present world in every combination of the conditions of the function's declared types.
    fn decided_worlds(&mut self, func: &Func) -> Vec<World> {
        let mut worlds = vec![std::mem::take(&mut self.w)];
        let hinted = self.hint_conditions();
        for cond in contract_conditions(func).into_iter().chain(&hinted) {
            let mut next = Vec::new();
            for world in worlds {
                self.w = world;
                let formula = self.cond_here(cond);
                let world = std::mem::take(&mut self.w);
                self.split(&formula, world, &mut |_, world, _| next.push(world));
            }
            worlds = next;
        }
        worlds.truncate(super::limits::MAX_WORLDS);
        worlds
    }

    /// Starts a root that may take so many steps beyond its own statements.
    pub(super) fn begin(&mut self, func: FuncRef, n_locals: usize, steps: u64) {
        self.stack = vec![Activation::new(self.project, func, None)];
        self.w.frames = vec![Frame::new(func, n_locals)];
        self.w.modes.mesh = self.settings.mesh_of(func.module);
        self.w.modes.global = self.settings.is_global(func.module) || self.settings.decorated(func).is_some();
        let own = self.project.func(func).code.count() as u64;
        self.budget = Budget::of_root(own, steps);
    }

    /// An object of a class, before its constructor.
    fn bare(&mut self, class: ClassRef) -> Value {
        let cell = ObjectCell { class: ObjectClass::Project(class), path: Name::from("self"), attrs: Vec::new() };
        Value::Object(self.fresh(Cell::Object(cell)))
    }

    /// An object after its constructor, in the worlds that the constructor leaves.
    fn built(mut self, class: ClassRef) -> Built {
        let object = self.bare(class);
        let before = self.w.clone();
        let init = self.class_attr(class, &Name::from("__init__"), Some(object.clone()));
        let closure = match init {
            Some(Value::Bound(bound)) => match &bound.method {
                Method::Closure(closure) => Some(closure.clone()),
                Method::Named(_) => None,
            },
            _ => None,
        };
        let mut worlds = Vec::new();
        let mut own = None;
        if let Some(closure) = closure {
            own = Some(closure.func).filter(|_| self.is_plain(class, &closure));
            self.quiet = own.is_none();
            worlds = self.run_init(class, &closure, &object);
        }
        if worlds.is_empty() {
            worlds.push(before);
        }
        for world in &mut worlds {
            world.heap.forget_state();
            self.begun(class, &object, world);
        }
        self.split_by_reducers(&object, &mut worlds);
        self.settle(class, &object, &mut worlds);
        let has_whole = self.found_whole;
        let mut reached = Output::default();
        reached.executed.clone_from(&self.out.executed);
        reached.coverage.collectives.clone_from(&self.out.coverage.collectives);
        let meets = reached.executed.iter().any(|func| self.settings.relevance.tells(*func));
        self.out.executed.extend(own);
        self.out.finish();
        let (reached, out) = (Arc::new(reached), Arc::new(self.out));
        let (next_id, annotated) = (self.next_id, self.annotated);
        Built { object, worlds, next_id, annotated, has_whole, own, out, reached, meets }
    }

    /// Whether a constructor as a root is no more than its body: defined by the class itself, without declared types.
    fn is_plain(&self, class: ClassRef, init: &Closure) -> bool {
        let func = self.project.func(init.func);
        init.func.module == class.module
            && func.class == Some(class.class)
            && func.signature.is_empty()
            && contract_conditions(func).is_empty()
            && init.flavour == Flavour::Plain
            && self.settings.defaults.is_empty()
            && !self.settings.assumptions.iter().any(|(module, _)| *module == class.module)
    }

    fn run_init(&mut self, class: ClassRef, closure: &Arc<Closure>, object: &Value) -> Vec<World> {
        let func = self.project.func(closure.func);
        self.begin(closure.func, func.locals().len(), MAX_STEPS);
        let given = self.give_unknown(func, Some(object));
        let place = self.place_of(func.name_span);
        let mut worlds: Vec<World> = Vec::new();
        let mut paths = Vec::new();
        for world in self.layer_groups(class, func) {
            self.w = world;
            paths.extend(self.block(func.body()));
        }
        for path in paths {
            self.w = path.world;
            for (param, value) in func.params.iter().zip(&given) {
                self.record_at(place, &param.name, value);
            }
            if matches!(path.flow, Flow::Next | Flow::Return(_)) {
                let mut world = std::mem::take(&mut self.w);
                world.frames.clear();
                worlds.push(world);
            }
        }
        self.stack.clear();
        let quiet = std::mem::replace(&mut self.quiet, true);
        worlds = self.limit(worlds, None);
        worlds.truncate(super::limits::MAX_WORLDS);
        self.quiet = quiet;
        worlds
    }
}

/// A function without the defaults that mean something in one world only.
fn portable(value: &Value) -> Value {
    match value {
        Value::Closure(closure) if !is_portable(value) => {
            let mut closure = closure.as_ref().clone();
            closure.defaults.retain(|(_, v)| is_portable(v));
            Value::Closure(Arc::new(closure))
        }
        other => other.clone(),
    }
}

/// Whether a value means the same in every world: nothing in the heap, nothing mutable.
fn is_portable(value: &Value) -> bool {
    match value {
        Value::Const(_)
        | Value::Number(None)
        | Value::Path(_)
        | Value::Module(_)
        | Value::Package(_)
        | Value::Class(_)
        | Value::Mesh(_)
        | Value::Group(_)
        | Value::Size(_)
        | Value::Share(_)
        | Value::Rank(_)
        | Value::Atom(_)
        | Value::Spec(_)
        | Value::Placement(_)
        | Value::Layout(_)
        | Value::ReduceOp(_) => true,
        Value::Closure(closure) => closure.cells.is_empty() && closure.defaults.iter().all(|(_, v)| is_portable(v)),
        Value::Tuple(items) => items.iter().all(is_portable),
        Value::Bound(bound) => matches!((&bound.receiver, &bound.method), (Value::Class(_), Method::Named(_))),
        Value::Partial(app) => {
            is_portable(&app.callee) && app.args.iter().chain(app.keywords.iter().map(|(_, v)| v)).all(is_portable)
        }
        _ => false,
    }
}

/// The type of a parameter without what a collective has written into it: of what was given nothing is known then.
fn as_given(mut local: LocalType) -> LocalType {
    for axis in LocalType::axes_of([&local]) {
        let written = local.get(&axis).origin.as_ref().is_some_and(|o| matches!(o.reason, Reason::Collective(_)));
        if written {
            local.set(&axis, AxisState::UNKNOWN);
        }
    }
    local
}
