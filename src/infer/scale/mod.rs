//! The factor that every gradient carries: what losses are divided by, what reductions and wrappers multiply with. In: the project.
//! Out: gradients that reach an optimizer with another factor than the mean that the loss is, or than each other. Never: types, or a
//! verdict where any factor is not known. Source: DESIGN.md section 7; types/scale.rs for the domain.
//!
//! Reading order: `value.rs`, `exec.rs`, `eval.rs`, `calls.rs`, `collectives.rs`, `grads.rs`, `verdict.rs`.

mod applied;
mod assumed;
mod calls;
mod collectives;
mod conditional;
mod cut;
mod dicts;
mod elsewhere;
mod eval;
mod exec;
mod experts;
mod forwarded;
mod grads;
pub mod groups;
mod handed;
mod inert;
mod known;
mod losses;
mod makers;
mod measured;
mod meshes;
mod methods;
mod norms;
mod objects;
mod optimizers;
mod overflow;
mod placeholder;
mod received;
pub mod roots;
mod round;
mod same;
mod slots;
pub mod table;
mod together;
mod trainers;
mod unknown;
mod unsure;
pub mod value;
pub mod verdict;
pub mod wrappers;
mod written;

use super::finding::{Finding, FindingKind};
use super::formula::{Atom, Facts};
use super::memo::{Memo, Task, combined, kept_each, kept_equals};
use super::practice::asked::{Asked, Topic};
use super::practice::found::{Practice, Scales};
use super::practice::near::has_word;
use super::practice::training::Training;
use super::practice::view::View;
use super::settings::Settings;
use super::shared::Shared;
use crate::ir::{ClassId, FuncId, FuncKind};
use crate::project::{ClassRef, FuncRef, ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::reads::{Read, note};
use crate::source::{Files, Idx, Name, Place, Span};
use crate::types::Scale;
use applied::Applied;
use roots::Reducers;
use rustc_hash::{FxHashMap, FxHashSet};
use slots::Slots;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use table::{GradientRow, ScaleRow};
use unsure::Unsure;
use value::{Frame, State, Val, What};
use verdict::{Declared, Mistake, Wrong};

/// What is said beside a mean over all tokens that is not taken over those of all ranks, or is only shown.
const OF_ONE: &[&str] =
    &["this rank", "own rank", "per rank", "each rank", "every rank", "local", "packed", "estimate", "shown", "logged"];
/// Paths that are kept apart.
const MOST_STATES: usize = 8;
/// Statements that are executed for one root.
const MOST_STEPS: usize = 1500;
/// The same of the statements of a file that trains: a script is one long function.
const MOST_STEPS_OF_BODY: usize = 6000;
/// Those of a constructor of an object that a function is given.
const MOST_STEPS_OF_OBJECT: usize = 300;
/// Forwards of models that are executed in one root and give no loss, as in a loop that evaluates: none of their statements count.
const MOST_VAIN: usize = 8;
/// Calls within calls.
const MOST_CALLS: usize = 6;

/// What a path says at a step.
pub struct Outcome {
    pub root: FuncRef,
    pub place: Place,
    pub facts: Shared<BTreeMap<Name, bool>>,
    pub mistake: Option<Mistake>,
    /// Of a step after a backward pass: what has reduced the gradients, if anything has.
    reduced: Option<Option<Vec<Place>>>,
    /// Some gradients are known to be right.
    right: bool,
}

/// An execution of one root.
pub struct Run<'a> {
    project: &'a Project,
    rules: &'a RuleBook,
    files: &'a Files,
    settings: &'a Settings,
    views: FxHashMap<FuncRef, Rc<View<'a>>>,
    applied: &'a [Applied],
    root: FuncRef,
    declared: Declared,
    out: Vec<Outcome>,
    /// Mistakes that are plain whatever the loss is.
    noted: Vec<(Place, Practice)>,
    pub told: Told,
    made: FxHashMap<ClassRef, Vec<(State, Val)>>,
    matter: FxHashMap<FuncRef, bool>,
    /// Classes whose constructors ran for a function that is left alone.
    passed: FxHashSet<ClassRef>,
    /// Classes whose objects nothing is known of, because their constructors have several ways through or are long.
    unmade: FxHashSet<ClassRef>,
    inert: inert::Inert,
    /// Conditions that one rank decides otherwise than another.
    by_rank: FxHashSet<Name>,
    known: known::Known,
    /// Numbers of names of attributes.
    numbers: FxHashMap<Name, usize>,
    /// What the module's own statements leave.
    start: Option<State>,
    /// Functions of the module that wrap what they are given.
    builders: Option<Arc<Vec<assumed::Builder>>>,
    /// Whether functions of the module, or the classes of methods, wrap or reduce.
    alone: FxHashMap<Result<ClassId, FuncId>, bool>,
    /// Functions of the module in which a comment says that ranks have different numbers of tokens.
    uneven: Option<Rc<Vec<FuncId>>>,
    /// An optimizer has stepped in this root.
    stepped: bool,
    steps: usize,
    /// How many may be.
    most_steps: usize,
    /// Forwards of models that gave no loss.
    vain: usize,
}

/// Factors of variables and gradients, to be shown.
#[derive(Clone, Debug, Default)]
pub struct Told {
    pub rows: Vec<ScaleRow>,
    pub gradients: Vec<GradientRow>,
    /// Steps whose factors are known to be right or wrong.
    pub judged: Vec<Place>,
}

/// What is found in a project.
#[derive(Debug, Default)]
pub struct Factors {
    pub findings: Vec<Finding>,
    pub told: Told,
}

/// Gradients whose factor is wrong.
pub fn scales(
    project: &Project,
    rules: &RuleBook,
    files: &Files,
    settings: &Settings,
    asked: &Asked,
    memo: Option<&Memo>,
) -> Factors {
    let modules: Vec<ModuleId> = project.modules.ids().collect();
    let reducers =
        kept_equals(memo, &modules, Task::Reducing, |module| roots::reducers(project, rules, files, asked, module));
    let changed = |a: &Reducers, b: &Reducers| if a.calls == b.calls { Vec::new() } else { vec![Read::Factors] };
    let all = |parts: Vec<Arc<Vec<String>>>| Reducers::new(parts.iter().flat_map(|part| part.iter()));
    let reducers = combined(memo, "scale reducers", reducers, all, changed);
    let applied = kept_equals(memo, &modules, Task::Applied, |module| {
        applied::of_module(project, rules, files, settings, asked, module)
    });
    let flat = |parts: Vec<Arc<Vec<Applied>>>| parts.iter().flat_map(|part| part.iter().cloned()).collect::<Vec<_>>();
    let applied = combined(memo, "scale applied", applied, flat, |_, _| vec![Read::Factors]);
    let found = kept_each(memo, &modules, Task::Factors, |module| {
        note(|| Read::Factors);
        of_module(project, rules, files, settings, (&applied, &reducers, asked), module)
    });
    let mut out = Factors::default();
    for one in found {
        out.findings.extend(one.findings.iter().cloned());
        out.told.rows.extend(one.told.rows.iter().cloned());
        out.told.gradients.extend(one.told.gradients.iter().cloned());
        out.told.judged.extend(one.told.judged.iter().copied());
    }
    out.findings = first_of_each(out.findings);
    out
}

/// The findings of practice and these: of two on one line the former stays, and of two that say that a mean is taken twice the one
/// with the factor.
pub fn together(
    project: &Project,
    files: &Files,
    practices: Vec<Finding>,
    factors: Factors,
) -> (Vec<Finding>, Vec<Finding>, Told) {
    let line = |p: &Place| (p.file, files[p.file].position(p.span.start).line);
    let told: Vec<_> = factors.findings.iter().filter_map(|f| project.function_at(f.place)).collect();
    let twice = |f: &Finding| {
        let mean = matches!(&f.kind, FindingKind::Practice(Practice::Scales(Scales::MeanTwice { .. })));
        mean && project.function_at(f.place).is_some_and(|at| told.contains(&at))
    };
    // A division by some of the sizes may be made good by the loss: where the whole is known, it decides.
    let part = |f: &Finding| match &f.kind {
        FindingKind::Practice(Practice::Scales(Scales::OtherSize { reduced, .. })) => {
            factors.told.judged.contains(reduced)
        }
        _ => false,
    };
    let practices: Vec<Finding> = practices.into_iter().filter(|f| !twice(f) && !part(f)).collect();
    let scaled =
        |f: &&Finding| matches!(&f.kind, FindingKind::Practice(Practice::Scales(_) | Practice::LocalCount { .. }));
    // That a step gets sums on some ways alone is said once, of the test that decides.
    let clipped: Vec<_> = practices.iter().filter_map(only_clipped).map(|at| line(&at)).collect();
    let of_clipped = |f: &Finding| match &f.kind {
        FindingKind::Practice(Practice::Scales(Scales::ReducedWhere { reduced, .. })) => {
            reduced.iter().any(|at| clipped.contains(&line(at)))
        }
        _ => false,
    };
    let known: Vec<_> = practices.iter().filter(scaled).map(|f| line(&f.place)).collect();
    // Gradients that nothing sums have no factor to speak of.
    let backward = |f: &Finding| match &f.kind {
        FindingKind::Practice(Practice::Scales(
            Scales::UnreducedStep { backward, .. }
            | Scales::DataNotSummed { backward, .. }
            | Scales::ReducerNotCalled { backward, .. },
        )) => Some(line(backward)),
        _ => None,
    };
    let unsummed: Vec<_> = practices.iter().filter_map(backward).collect();
    let of_unsummed = |f: &Finding| match &f.kind {
        FindingKind::Practice(Practice::Scales(Scales::Factor(m))) => {
            m.events.iter().any(|e| unsummed.contains(&line(&e.place)))
        }
        _ => false,
    };
    // Nor have those that are summed with the wrong group, where their mark is said never to be summed over its own.
    let marks: Vec<&Name> = practices.iter().filter_map(never_asked).collect();
    let asks = |place: &Place| {
        let at = project.module_of(place.file).and_then(|module| project.func_around(module, place.span));
        let text = at.map(|at| files[place.file].slice(project.func(at).span));
        text.is_some_and(|text| marks.iter().any(|mark| has_word(text, mark)))
    };
    let of_mark = |f: &Finding| match &f.kind {
        FindingKind::Practice(Practice::Scales(Scales::Factor(m))) => m.events.iter().any(|e| asks(&e.place)),
        _ => false,
    };
    let told = norms::told(&practices);
    let further = factors
        .findings
        .into_iter()
        .filter(|f| {
            !known.contains(&line(&f.place))
                && !of_unsummed(f)
                && !of_mark(f)
                && !of_clipped(f)
                && !norms::is_told(f, &told)
        })
        .collect();
    (practices, further, factors.told)
}

/// Where gradients are summed that only a clipped step gets.
fn only_clipped(finding: &Finding) -> Option<Place> {
    match &finding.kind {
        FindingKind::Practice(Practice::Training(Training::ClippedOnly { reduced, .. })) => Some(*reduced),
        _ => None,
    }
}

/// The mark of gradients that are never summed over its axes.
fn never_asked(finding: &Finding) -> Option<&Name> {
    match &finding.kind {
        FindingKind::Practice(Practice::MarkNeverAsked { mark, .. }) => Some(mark),
        _ => None,
    }
}

/// Of several findings at one place the one that says least of other files, whatever the order of files.
fn first_of_each(found: Vec<Finding>) -> Vec<Finding> {
    let key = |f: &Finding| match &f.kind {
        FindingKind::Practice(Practice::Scales(Scales::Factor(m))) => {
            let elsewhere = m.events.iter().filter(|e| e.place.file != f.place.file).count();
            (elsewhere, format!("{:?} {} {}", m.wrong, m.who, m.factor))
        }
        _ => (0, String::new()),
    };
    let mut out: Vec<Finding> = Vec::new();
    for finding in found {
        match out.iter_mut().find(|o| o.place == finding.place) {
            Some(kept) if key(&finding) < key(kept) => *kept = finding,
            Some(_) => {}
            None => out.push(finding),
        }
    }
    out
}

impl<'a> Run<'a> {
    pub fn new(
        project: &'a Project,
        rules: &'a RuleBook,
        files: &'a Files,
        settings: &'a Settings,
        applied: &'a [Applied],
        module: ModuleId,
    ) -> Run<'a> {
        let root = FuncRef { module, func: FuncId::from_index(0) };
        let (views, out) = (FxHashMap::default(), Vec::new());
        let (declared, told) = (Declared::default(), Told::default());
        Run {
            project,
            rules,
            files,
            settings,
            views,
            applied,
            root,
            declared,
            out,
            noted: Vec::new(),
            told,
            made: FxHashMap::default(),
            matter: FxHashMap::default(),
            passed: FxHashSet::default(),
            unmade: FxHashSet::default(),
            inert: inert::Inert::default(),
            by_rank: FxHashSet::default(),
            known: known::Known::default(),
            numbers: FxHashMap::default(),
            start: None,
            builders: None,
            alone: FxHashMap::default(),
            uneven: None,
            stepped: false,
            steps: 0,
            vain: 0,
            most_steps: MOST_STEPS,
        }
    }
}

fn of_module<'a>(
    project: &'a Project,
    rules: &'a RuleBook,
    files: &'a Files,
    settings: &'a Settings,
    (applied, reducers, asked): (&'a [Applied], &Reducers, &Asked),
    module: ModuleId,
) -> Factors {
    let shown = asked.shown(module, files[project.file(module)].whole());
    let receives = shown.speaks_of(Topic::Receives);
    let mut found = if receives { received::copies(project, rules, files, module) } else { Vec::new() };
    let roots::Roots { funcs: mut roots, body } = roots::roots(project, rules, files, (reducers, shown), module);
    if settings.gradient_mean.is_some() {
        roots.extend(
            roots::losses(project, files, module).into_iter().filter(|f| !roots.contains(f)).collect::<Vec<_>>(),
        );
    }
    let mut run = Run::new(project, rules, files, settings, applied, module);
    if shown.speaks_of(Topic::Losses) {
        roots.extend(run.loss_methods(module).into_iter().filter(|f| !roots.contains(f)).collect::<Vec<_>>());
    }
    if roots.is_empty() && !body {
        return Factors { findings: found.iter().map(finding).collect(), told: Told::default() };
    }
    if body {
        (run.declared, run.most_steps) = (run.said(run.root), MOST_STEPS_OF_BODY);
    }
    let start = run.body(run.root);
    run.most_steps = MOST_STEPS;
    run.start = Some(start.clone());
    for func in roots {
        (run.steps, run.vain, run.stepped) = (0, 0, false);
        run.root = FuncRef { module, func };
        if run.is_inert(run.root, &start) {
            continue;
        }
        run.declared = run.said(run.root);
        run.root(run.root, start.clone());
    }
    found.dedup();
    let mut findings: Vec<Finding> = found.iter().map(finding).collect();
    let unsure = Unsure::of(project, rules, files, module);
    let hides = |f: &Finding| match &f.kind {
        FindingKind::Practice(practice) => practice.unsummed(f.place).is_some_and(|places| unsure.hides(&places)),
        _ => false,
    };
    findings.extend(run.findings_noted().into_iter().filter(|f| !hides(f)));
    run.out.iter_mut().for_each(|o| o.mistake = o.mistake.take().filter(|m| !unsure.is_about(m)));
    findings.extend(self::findings(run.out, &run.by_rank));
    Factors { findings, told: run.told }
}

impl<'a> Run<'a> {
    pub fn view(&mut self, at: FuncRef) -> Rc<View<'a>> {
        let (project, rules, files) = (self.project, self.rules, self.files);
        self.views.entry(at).or_insert_with(|| Rc::new(View::new(project, rules, files, at))).clone()
    }

    /// A module's own statements; what they leave is what its functions see.
    fn body(&mut self, at: FuncRef) -> State {
        let unsettled = self.sums_parts(at.module);
        let of_model = groups::says_model_axis(self.files[self.project.file(at.module)].whole());
        let mut state = State { unsettled, of_model, ..State::default() };
        state.frames.push(Shared::new(Frame { at, locals: Slots::default(), call: None }));
        let empty = state.clone();
        let func = self.project.func(at);
        let after = self.block(func.body(), vec![state]);
        let mut first = after.into_iter().next().unwrap_or(empty);
        first.left_to_functions();
        State { unsettled, ..first }
    }

    /// A function with arguments that are known by name alone.
    fn root(&mut self, at: FuncRef, state: State) {
        let func = self.project.func(at);
        let own = func.params.first().filter(|p| func.class.is_some() && p.name == "self");
        let Some(own) = own else { return self.root_with(at, Slots::default(), state) };
        for made in self.instances(at, state) {
            let (made, object) = self.prepared(at, made);
            let mut args = Slots::default();
            args.insert(own.local.index(), object);
            self.root_with(at, args, made);
        }
    }

    fn root_with(&mut self, at: FuncRef, mut args: Slots, mut state: State) {
        let func = self.project.func(at);
        let bound = usize::from(args.values().next().is_some());
        for param in func.params.iter().skip(bound) {
            let value = match self.is_wrapped(at, param) {
                true => self.wrapped(at, param, &mut state),
                false => self.assumed(at, param, &mut state),
            };
            args.insert(param.local.index(), value);
        }
        let outer = func.parent.filter(|_| func.class.is_none());
        if outer.is_some_and(|f| f.index() != 0) {
            // What surrounds it is not known here; it is executed where that is.
            return;
        }
        for (state, value) in self.run(at, args, None, state) {
            let place = Place { file: self.project.file(at.module), span: func.name_span };
            self.shown(place, &value, &state);
            self.handed_out(place, &value, &state);
            self.judge(place, &state);
            // It is no step.
            if let Some(last) = self.out.last_mut() {
                last.reduced = None;
            }
        }
    }

    /// A wrapped model that a function is given.
    fn wrapped(&mut self, at: FuncRef, param: &crate::ir::Param, state: &mut State) -> Val {
        let place = Place { file: self.project.file(at.module), span: param.span };
        let everyone = state.everyone();
        self.wrap(&Val::Named(param.name.clone()), everyone, place, state)
    }

    /// Whether the annotation of a parameter, or `no_sync` on it, says that it is a wrapped model, in a function that knows of no other group
    /// than all ranks.
    fn is_wrapped(&self, at: FuncRef, param: &crate::ir::Param) -> bool {
        self.shows_wrapper(at, param, self.project.func(at).span, &param.name)
    }

    /// The same of a parameter of a constructor, by what the methods of its class do with the attribute of its name.
    fn is_kept_wrapped(&self, init: FuncRef, param: &crate::ir::Param, class: crate::project::ClassRef) -> bool {
        self.shows_wrapper(init, param, self.project.class(class).span, &format!("self.{}", param.name))
    }

    fn shows_wrapper(&self, at: FuncRef, param: &crate::ir::Param, span: Span, variable: &str) -> bool {
        let file = &self.files[self.project.file(at.module)];
        let text = file.slice(span);
        if ["group", "mesh"].iter().any(|word| text.contains(word)) {
            return false;
        }
        let named = |hint: &Name| super::practice::expr::path_of_hint(self.project, at.module, hint);
        match &param.hint {
            Some(hint) => named(hint).is_some_and(|path| self.rules.wrappers().get(&path).is_some_and(|r| !r.in_place)),
            None => self.rules.wrappers().is_shown(variable, text, file.whole()),
        }
    }

    /// A loss that is returned to code that averages gradients, as the configuration says.
    fn handed_out(&mut self, place: Place, value: &Val, state: &State) {
        let (Some(axes), Val::Tensor(tensor)) = (self.averaging(self.root, state), assumed::loss_in(value)) else {
            return;
        };
        if tensor.rows.is_some() || !tensor.parts.iter().any(|p| p.grad.known().is_some()) {
            return;
        }
        let place = state.returned.unwrap_or(place);
        let mut state = state.clone();
        let mut class = value::Class::new(None);
        class.always = (Scale::size(&axes).inverse(), axes.clone(), vec![state.event(What::Wrapped(axes), place)]);
        (state.classes, state.terms) = (Shared::new(vec![class]), Shared::default());
        for part in &tensor.parts {
            let loops = state.loops.to_vec();
            state.terms.push(value::Term { part: part.clone(), loops, every: Vec::new(), place });
        }
        let mut mistake = verdict::judge(&state, place, self.declared, &mut Vec::new(), &mut false);
        if let Some(m) = &mut mistake {
            m.place = place;
        }
        self.plain(place, &state, mistake);
    }

    pub fn judge(&mut self, place: Place, state: &State) {
        let mut judged = Vec::new();
        let mut right = false;
        let mistake =
            verdict::judge(state, place, self.declared, &mut judged, &mut right).or_else(|| self.twice(state));
        let right = right && mistake.is_none();
        self.told.judged.extend(judged);
        if state.returned.is_none() || !self.stepped {
            self.tabulate(place, state);
        }
        self.stepped |= state.returned.is_none();
        let reduced = conditional::reduced(state);
        self.out.push(Outcome { root: self.root, place, facts: state.facts.clone(), mistake, reduced, right });
    }

    /// A value that is shown or returned.
    pub fn shown(&mut self, place: Place, value: &Val, state: &State) {
        if let Val::Tensor(tensor) = value {
            let mistake = verdict::metric(tensor, state, place);
            self.plain(place, state, mistake);
        }
    }

    /// A mistake that is plain where it happens.
    pub fn plain(&mut self, place: Place, state: &State, mistake: Option<Mistake>) {
        self.out.push(Outcome {
            root: self.root,
            place,
            facts: state.facts.clone(),
            mistake,
            reduced: None,
            right: false,
        });
    }

    /// What comments around a function and the configuration say of the loss.
    fn said(&mut self, at: FuncRef) -> Declared {
        let view = self.view(at);
        let mut notes = super::practice::near::notes(&view);
        if view.func.kind == FuncKind::Module {
            let own = super::practice::near::own_parts(&self.project.modules[at.module].ir.funcs);
            notes.retain(|n| n.place.is_none_or(|p| own.iter().any(|part| part.contains(p.span.start))));
        }
        let uneven = self.says_uneven(at);
        let says = |words: &[&str]| notes.iter().any(|n| words.iter().any(|w| n.text.contains(w)));
        // Of the tokens of one rank, where all have as many, or of what is only shown.
        let of_one = |text: &str| OF_ONE.iter().any(|w| text.contains(w));
        let over = ["mean over all tokens", "mean over global tokens", "mean over the global"];
        let over_all = notes.iter().any(|n| over.iter().any(|w| n.text.contains(w)) && !of_one(&n.text));
        Declared {
            over_tokens: self.settings.mean_over_tokens || uneven || over_all,
            mean: says(&["loss is a mean", "loss is the mean", "loss is averaged", "loss is normali"]),
        }
    }

    /// An object of the class of a method, after its constructor; two where that leaves two that differ.
    fn instances(&mut self, method: FuncRef, mut state: State) -> Vec<(State, Val)> {
        let func = self.project.func(method);
        let class = func.class.map(|class| crate::project::ClassRef { module: method.module, class });
        state.objects.push(Shared::new(value::Object { class, attrs: Slots::default() }));
        let object = Val::Object(state.objects.len() - 1);
        let Some(class) = class else { return vec![(state, object)] };
        let Some(init) = self.method(class, "__init__").filter(|_| func.name != "__init__") else {
            return vec![(state, object)];
        };
        if let Some(made) = self.made.get(&class) {
            return made.clone();
        }
        let f = self.project.func(init);
        let mut args = Slots::default();
        for (i, param) in f.params.iter().enumerate() {
            let value = match i {
                0 => object.clone(),
                _ if self.is_kept_wrapped(init, param, class) => self.wrapped(init, param, &mut state),
                _ => self.assumed(init, param, &mut state),
            };
            args.insert(param.local.index(), value);
        }
        let before = state.clone();
        let steps = self.steps;
        let mut all: Vec<State> = self.run(init, args, None, state).into_iter().map(|(s, _)| s).collect();
        if self.passed.contains(&class) {
            self.steps = steps;
        }
        let second =
            all.iter().skip(1).position(|s| conditional::differs(&all[0], s)).map(|at| all.swap_remove(at + 1));
        let mut made: Vec<State> = vec![all.into_iter().next().unwrap_or(before)];
        made.extend(second);
        // What was decided is of account only where it was decided both ways.
        let both = made.len() > 1;
        let settled = |s: State| {
            let facts = if both { s.facts.clone() } else { Shared::default() };
            (State { facts, terms: Shared::default(), ..s }, object.clone())
        };
        let made: Vec<(State, Val)> = made.into_iter().map(settled).collect();
        self.made.insert(class, made.clone());
        made
    }
}

/// What holds on all paths to a step, or on all that one flag tells apart.
fn findings(outcomes: Vec<Outcome>, by_rank: &FxHashSet<Name>) -> Vec<Finding> {
    let mut steps: Vec<(Place, FuncRef)> = outcomes.iter().map(|o| (o.place, o.root)).collect();
    steps.sort_by_key(|(p, root)| (p.file, p.span.start, root.func.index()));
    steps.dedup();
    let mut out: Vec<Finding> = Vec::new();
    let gradients: Vec<FuncRef> = outcomes
        .iter()
        .filter(|o| o.mistake.as_ref().is_some_and(|m| m.wrong == Wrong::Mean))
        .map(|o| o.root)
        .collect();
    for (step, root) in steps {
        let here: Vec<&Outcome> = outcomes.iter().filter(|o| o.place == step && o.root == root).collect();
        out.extend(conditional::finding(step, &conditional::beside(&here, &outcomes)));
        let mut seen: Vec<&Mistake> = Vec::new();
        for mistake in here.iter().filter_map(|o| o.mistake.as_ref()) {
            // What is shown of a loss that is wrong is the same mistake.
            if seen.iter().any(|known| known.is_like(mistake))
                || mistake.wrong == Wrong::Metric && gradients.contains(&root)
            {
                continue;
            }
            seen.push(mistake);
            if mistake.beside && !here.iter().any(|o| o.right) {
                continue;
            }
            let elsewhere = |name: &Name| {
                let other = |o: &&Outcome| o.root == root && o.place != step && (o.right || o.reduced.is_some());
                outcomes.iter().filter(other).any(|o| o.facts.get(name) == Some(&false))
            };
            let (with, without): (Vec<&Outcome>, Vec<&Outcome>) =
                here.iter().partition(|o| o.mistake.as_ref().is_some_and(|m| m.is_like(mistake)));
            // In the other rounds another step is made.
            let held = |name: &Name| with.iter().all(|o| o.facts.get(name) == Some(&true));
            let often = |name: &&Name| name.starts_with(value::EVERY) && held(name);
            if without.is_empty() && with[0].facts.keys().filter(often).any(elsewhere) {
                continue;
            }
            let flag = match without.is_empty() {
                true => None,
                false => match decisive(&with, &without) {
                    // The step is made in other rounds as well: nothing has added up.
                    Some((name, _)) if name.starts_with(value::EVERY) && steps_anyway(&name, &with, &without) => {
                        continue;
                    }
                    // What one rank adds and the others do not is the whole of it.
                    Some((name, _)) if by_rank.contains(&name) || conditional::asks_rank(&name) => continue,
                    Some(flag) => Some(flag),
                    None if mistake.beside => None,
                    None => continue,
                },
            };
            let mut finding = finding(mistake);
            if flag.is_none() && !without.is_empty() {
                finding.worlds = with.iter().map(|o| conditional::world(&o.facts)).collect();
                finding.silent_worlds = without.iter().map(|o| conditional::world(&o.facts)).collect();
            }
            if let Some((name, value)) = flag {
                let known = |b: bool| Facts::default().with(Atom::True(name.clone()), b);
                finding.worlds = vec![known(value)];
                finding.silent_worlds = vec![known(!value)];
            }
            if !out.iter().any(|f| f.place == finding.place) {
                out.push(finding);
            }
        }
    }
    out
}

/// Whether a step is made whether a condition on the round holds or not, and not only under another one: `or last`.
fn steps_anyway(name: &Name, with: &[&Outcome], without: &[&Outcome]) -> bool {
    let others: Vec<&&Outcome> = without.iter().filter(|o| o.facts.get(name) == Some(&false)).collect();
    let Some(first) = others.first() else { return false };
    let asked = |k: &Name, v: &bool| {
        k != name && others.iter().all(|o| o.facts.get(k) == Some(v)) && !with.iter().all(|o| o.facts.get(k) == Some(v))
    };
    !first.facts.iter().any(|(k, v)| asked(k, v))
}

/// The one flag that tells the paths with a mistake from those without.
fn decisive(with: &[&Outcome], without: &[&Outcome]) -> Option<(Name, bool)> {
    let first = with.first()?;
    first
        .facts
        .iter()
        .find(|(name, value)| {
            with.iter().all(|o| o.facts.get(*name) == Some(value))
                && without.iter().all(|o| conditional::value(&o.facts, name).is_some_and(|v| v != **value))
        })
        .map(|(name, value)| (name.clone(), *value))
}

fn finding(mistake: &Mistake) -> Finding {
    let kind = FindingKind::Practice(Practice::Scales(Scales::Factor(Box::new(mistake.clone()))));
    Finding::everywhere(mistake.place, kind)
}
