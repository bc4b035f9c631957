//! Marks on parameters that reducers look for. In: the project. Out: a mark that a reducer asks for and nothing sets, where there are
//! norms to carry it; a part of a module that is left out where another part is marked. Never: marks that a framework outside the
//! project sets. Next: `reducers.rs`.

use super::class_marks::text_of;
use super::expr::Expr;
use super::found::Practice;
use super::misnamed::given_as;
use super::reducers::{Reducer, Test};
use super::view::View;
use super::{Class, Found, Lint};
use crate::infer::memo::{Memo, Task, kept_each};
use crate::ir::{ArgKind, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId, Resolved};
use crate::rules::{Entry, ModuleRule};
use crate::source::{Name, Place, Span};
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// Marks that some function sets: `p.mark = x`, `setattr(p, "mark", x)`, `setattr(p, MARK, x)`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Marks {
    set: FxHashSet<Name>,
    /// A name that is not known is set somewhere.
    open: bool,
}

impl Marks {
    /// A mark that is set by assignment.
    pub fn add(&mut self, name: &Name) {
        if !self.set.contains(name) {
            self.set.insert(name.clone());
        }
    }

    /// Marks that a function sets through `setattr`.
    pub fn add_named(&mut self, view: &View<'_>) {
        for step in &view.steps {
            match step.stmt {
                Stmt::Assign { value: Rvalue::Call { callee: Operand::Global(callee), args }, .. }
                    if callee == "setattr" =>
                {
                    match args.get(1).map(|a| view.through(&a.value)) {
                        Some(Expr::Const(crate::ir::Const::Str(name))) => {
                            self.set.insert(name);
                        }
                        Some(Expr::Path(path)) => {
                            self.set.insert(last(&path));
                        }
                        _ => self.open = true,
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether something sets a mark, or may.
    pub fn sets(&self, mark: &str) -> bool {
        self.open || self.set.contains(mark)
    }

    /// The marks that are set, in the order of their names.
    pub fn all(&self) -> impl Iterator<Item = &Name> {
        let mut all: Vec<&Name> = self.set.iter().collect();
        all.sort();
        all.into_iter()
    }

    pub fn join(&mut self, other: &Marks) {
        self.set.extend(other.set.iter().cloned());
        self.open |= other.open;
    }
}

fn last(path: &Name) -> Name {
    Name::from(path.rsplit('.').next().unwrap_or(path))
}

/// The mark that all alternatives of a reducer ask for.
pub fn asked(reducer: &Reducer) -> Option<&Name> {
    let mut marks = reducer.when.iter().map(|all| match all.as_slice() {
        [Test::Mark(mark)] => Some(mark),
        _ => None,
    });
    let first = marks.next()??;
    marks.all(|m| m == Some(first)).then_some(first)
}

/// Norms of a class whose gradients a reducer would sum if anything marked them.
pub fn unset<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let marks = lint.marks();
    if marks.open {
        return;
    }
    let reducers: Vec<(&Reducer, &Name)> = lint.reducers().all.iter().filter_map(|r| Some((r, asked(r)?))).collect();
    let nobody_sets = |mark: &Name| !marks.set.contains(mark) && !is_of_tensors(mark) && !without(lint, mark);
    let Some((reducer, mark)) = reducers.into_iter().find(|(_, mark)| nobody_sets(mark)) else { return };
    // What a framework marks in its own layers need not be marked here.
    if lint.rules.mark(mark).is_some() {
        return;
    }
    // A class that names none, under its own name or another, has none.
    let names_one = |text: &str| ["norm", "Norm", "NORM"].iter().any(|word| text.contains(word));
    let renamed = || lint.files[lint.project.file(class.at.module)].whole().contains("orm as ");
    if !names_one(text_of(lint, class.at)) && !renamed() {
        return;
    }
    let Some(init) = class.init(lint) else { return };
    let mut norms = Vec::new();
    for step in &init.steps {
        if let Stmt::SetAttr { name, value, .. } = step.stmt
            && is_norm(init, name, value)
        {
            norms.push((name.clone(), init.place(step.id)));
        }
    }
    let Some((_, first)) = norms.first().filter(|_| given_as(lint, mark).is_none()) else { return };
    let names: Vec<Name> = norms.iter().map(|(n, _)| n.clone()).collect();
    let practice = Practice::MarkNeverSet {
        mark: mark.clone(),
        modules: names,
        reducer: reducer.guard.unwrap_or(reducer.place),
        missing: after(init),
    };
    out.push((*first, practice));
}

/// What tensors have of themselves, or from a wrapper: asking for it asks for a version or a kind of tensor.
const OF_TENSORS: &[&str] = &[
    "grad",
    "main_grad",
    "data",
    "dtype",
    "device",
    "placements",
    "device_mesh",
    "full_tensor",
    "to_local",
    "_local_tensor",
    "_spec",
];

fn is_of_tensors(mark: &str) -> bool {
    OF_TENSORS.contains(&mark) || mark.starts_with("register_")
}

/// Whether some reducer takes those without the mark: then a mark decides how a gradient is summed, not whether.
fn without(lint: &Lint<'_>, mark: &Name) -> bool {
    let tests = |r: &Reducer| r.when.iter().flatten().any(|t| matches!(t, Test::NoMark(other) if other == mark));
    lint.reducers().all.iter().any(tests)
}

/// Whether an attribute holds a normalisation layer that is made here.
fn is_norm(view: &View<'_>, attr: &str, value: &Operand) -> bool {
    let Expr::Call { callee, .. } = view.expr(value) else { return false };
    let named = |n: &str| n.to_lowercase().contains("norm");
    let made = match &*callee {
        Expr::Local(l) => named(view.local_name(*l)),
        other => other.last_name().is_some_and(named),
    };
    made || named(attr) && matches!(*callee, Expr::Local(_))
}

/// The line after the last statement of a function: where something is missing.
fn after(view: &View<'_>) -> Place {
    let end = view.func.span.end as usize;
    let file = view.project.file(view.at.module);
    let text = view.files[file].whole();
    let start = text[end..].find('\n').map_or(end, |n| end + n + 1);
    let line = text[start..].lines().next().unwrap_or("");
    let indent = line.len() - line.trim_start().len();
    let from = (start + indent).min(text.len());
    view.spot(Span::new(from as u32, (from + line.trim().len()) as u32))
}

/// Marks that say that a gradient is summed, in a project that sums its gradients itself and never looks at the mark: each once,
/// wherever it is set.
pub fn unasked(lint: &Lint<'_>, modules: &[ModuleId], memo: Option<&Memo>, out: &mut Found) {
    let Some(everything) = lint.reducers().all.iter().find(|r| r.when.is_empty()) else { return };
    let set = kept_each(memo, modules, Task::Unasked, |module| summed_in(lint, module));
    for (place, mark) in set.iter().flat_map(|part| part.iter()) {
        let Some(rule) = lint.rules.mark(mark) else { continue };
        let told = out.iter().any(|(_, p)| matches!(p, Practice::MarkNeverAsked { mark: m, .. } if m == mark));
        // A reducer over the axes, or over a group that is not known, may look at the mark in a way that is not followed.
        let elsewhere = || finalises_elsewhere(lint) || is_handed_out(lint, everything);
        if told || lint.reducers().over(&rule.axes).next().is_some() || elsewhere() {
            continue;
        }
        let (parameters, when) = super::concerned::marked(lint, mark);
        let (mark, axes, reducer) = (mark.clone(), rule.axes.clone(), everything.place);
        out.push((*place, Practice::MarkNeverAsked { mark, axes, reducer, parameters, when }));
    }
}

/// Where constructors of a module set marks on parameters that say that their gradients are summed.
fn summed_in(lint: &Lint<'_>, module: ModuleId) -> Vec<(Place, Name)> {
    let mut out = Vec::new();
    let m = &lint.project.modules[module];
    let marks = &lint.taken.asked.shown(module, lint.files[m.file].whole()).marks;
    for class in m.ir.classes.ids().filter(|_| !marks.is_empty()) {
        let Some(init) = init_of(lint, ClassRef { module, class }) else { continue };
        if !marks.inside(lint.project.func(init).span) {
            continue;
        }
        let init = lint.view(init);
        for step in &init.steps {
            let Some((target, mark)) = super::marking::mark_set(&init, step.stmt) else { continue };
            if super::marking::is_off(&init, step.stmt) {
                continue;
            }
            let summed = lint.rules.mark(&mark).is_some_and(|r| r.set == crate::types::AxisType::R);
            if summed && matches!(&target, Expr::Attr(base, _) if matches!(**base, Expr::Local(_) | Expr::Attr(..))) {
                out.push((init.place(step.id), mark));
            }
        }
    }
    out
}

/// Whether a mark is set on an object that is no parameter.
pub fn is_config(init: &View<'_>, stmt: &Stmt) -> bool {
    super::marking::mark_set(init, stmt).is_none_or(|(target, _)| !matches!(&target, Expr::Attr(..)))
}

/// A constructor that sets a mark where a flag holds, which a reducer looks for only where it does not.
pub fn against(lint: &Lint<'_>, class: ClassRef, out: &mut Found) {
    let guarded: Vec<&Reducer> = lint.reducers().all.iter().filter(|r| r.outer.iter().any(|(_, on, _)| !on)).collect();
    if guarded.is_empty() {
        return;
    }
    let Some(init) = lint.constructor(class) else { return };
    for step in &init.steps {
        let value = match step.stmt {
            Stmt::SetAttr { value, .. } => value,
            Stmt::Assign { value: Rvalue::Call { args, .. }, .. } if args.len() == 3 => &args[2].value,
            _ => continue,
        };
        let Some((_, mark)) = super::marking::mark_set(&init, step.stmt) else { continue };
        let Expr::Attr(_, flag) = init.through(value) else { continue };
        for reducer in guarded.iter().filter(|r| asked(r) == Some(&mark)) {
            let others = lint.reducers().all.iter().any(|r| r.place != reducer.place && r.axes == reducer.axes);
            let Some((_, _, guard)) = reducer.outer.iter().find(|(f, on, _)| *f == flag && !on) else { continue };
            let marked = init.place(step.id);
            let found = super::found::Scales::GuardAgainstMark {
                flag: flag.clone(),
                mark: mark.clone(),
                marked,
                guard: *guard,
                parameters: super::concerned::marked(lint, &mark).0,
            };
            let known = |(place, p): &(Place, Practice)| {
                *place == reducer.place && matches!(p, Practice::Scales(super::found::Scales::GuardAgainstMark { .. }))
            };
            if !others && !out.iter().any(known) {
                out.push((reducer.place, Practice::Scales(found)));
            }
        }
    }
}

/// Whether the project takes a finaliser, a wrapper or an engine from a framework.
fn finalises_elsewhere(lint: &Lint<'_>) -> bool {
    let own = |path: &str| lint.project.module_named(path).is_some();
    lint.project.modules.ids().any(|module| {
        lint.project.bindings(module).any(|(_, binding)| match binding {
            crate::project::Binding::Import(import) => {
                let base = lint.project.absolute(module, &import.path, import.level);
                let full = import.member.as_ref().map_or(base.clone(), |m| format!("{base}.{m}"));
                let framework =
                    lint.rules.protocols().iter().any(|p| p.packages.iter().any(|k| full.starts_with(k.as_str())));
                framework
                    && !own(&base)
                    && ["distributed", "training", "optimizer", "pipeline"].iter().any(|w| full.contains(w))
            }
            _ => false,
        })
    })
}

/// Words of functions that may sum gradients.
const REDUCES: &[&str] = &["reduce", "grad", "sync", "finali"];

/// Whether what sums the gradients calls something that is not seen and may look at marks.
fn is_handed_out(lint: &Lint<'_>, reducer: &Reducer) -> bool {
    let view = lint.view(reducer.func);
    (0..view.steps.len()).any(|i| {
        let Some(value @ Rvalue::Call { callee, .. }) = view.value(i) else { return false };
        let Some(path) = view.callee(value).filter(|p| !p.starts_with("torch.")) else { return false };
        let seen = super::wrapped::function(&view, &view.expr(callee)).is_some() || lint.rules.get(&path).is_some();
        let name = last(&path).to_lowercase();
        !seen && path.contains('.') && REDUCES.iter().any(|w| name.contains(w))
    })
}

/// A module of which one parameter is marked and another is not.
pub fn partly<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    let Some(init) = class.marking_init(lint) else { return };
    let mut marked: Vec<(Name, Name, Name, Place)> = Vec::new();
    for step in &init.steps {
        let (target, mark) = match step.stmt {
            Stmt::SetAttr { base, name, .. } => (init.expr(base), name.clone()),
            Stmt::Assign { value: Rvalue::Call { callee: Operand::Global(callee), args }, .. }
                if callee == "setattr" =>
            {
                let (Some(target), Some(name)) = (args.first(), args.get(1)) else { continue };
                match init.through(&name.value) {
                    Expr::Const(crate::ir::Const::Str(name)) => (init.expr(&target.value), name),
                    Expr::Path(path) => (init.expr(&target.value), last(&path)),
                    _ => continue,
                }
            }
            _ => continue,
        };
        if let Expr::Attr(module, part) = &target
            && let Expr::Attr(owner, attr) = &**module
            && matches!(**owner, Expr::Local(_))
            && asked_by_any(lint, &mark)
        {
            marked.push((attr.clone(), part.clone(), mark, init.place(step.id)));
        }
    }
    for (attr, part, mark, place) in &marked {
        for other in parts(init, attr) {
            let is_marked = marked.iter().any(|(a, p, m, _)| a == attr && *p == other && m == mark);
            let reported = out.iter().any(
                |(_, p)| matches!(p, Practice::PartNotMarked { module, part, .. } if module == attr && *part == other),
            );
            if !is_marked && !reported && other != *part {
                let practice = Practice::PartNotMarked {
                    module: attr.clone(),
                    marked: part.clone(),
                    part: other.clone(),
                    mark: mark.clone(),
                    made: made(init, attr).unwrap_or(*place),
                };
                out.push((*place, practice));
            }
        }
    }
}

/// Whether an attribute is a mark of the rules, or one that a reducer asks for.
pub fn is_mark(lint: &Lint<'_>, name: &str) -> bool {
    lint.rules.mark(name).is_some() || reducer_marks(lint).contains(name)
}

/// Whether a text may set a mark.
pub fn says_mark(lint: &Lint<'_>, text: &str) -> bool {
    text.contains("setattr") || lint.rules.marks().iter().chain(reducer_marks(lint)).any(|mark| text.contains(&**mark))
}

/// The marks that reducers of the project ask for.
fn reducer_marks<'l>(lint: &'l Lint<'_>) -> &'l FxHashSet<Name> {
    let reducers = lint.reducers();
    lint.asked_marks.get_or_init(|| {
        let tests = reducers.all.iter().flat_map(|r| r.when.iter().flatten());
        let marks = tests.filter_map(|t| match t {
            Test::Mark(mark) => Some(mark.clone()),
            _ => None,
        });
        marks.collect()
    })
}

/// Whether a reducer of the project asks for a mark, or the rules say that it makes a gradient be summed.
pub fn asked_by_any(lint: &Lint<'_>, mark: &Name) -> bool {
    let summed = lint.rules.mark(mark).is_some_and(|rule| rule.set == crate::types::AxisType::R);
    summed || reducer_marks(lint).contains(mark)
}

/// The parameters of the module that an attribute holds, by its rule and the arguments of its constructor.
pub fn parts(init: &View<'_>, attr: &Name) -> Vec<Name> {
    for step in &init.steps {
        let Stmt::SetAttr { name, value, .. } = step.stmt else { continue };
        if name != attr {
            continue;
        }
        let Some((rule, args)) = made_module(init, &init.expr(value), 0) else { return Vec::new() };
        let given =
            |param: &str| args.iter().find(|(k, _)| matches!(k, ArgKind::Keyword(n) if n == param)).map(|(_, e)| e);
        let absent = |part: &Name| {
            rule.params_when.iter().any(|(p, conditions)| {
                p == part
                    && conditions.iter().any(|c| {
                        // A condition that is not a constant may be false.
                        let by_place =
                            rule.args.index(c).and_then(|i| args.get(i)).filter(|(k, _)| *k == ArgKind::Positional);
                        match given(c).or(by_place.map(|(_, e)| e)) {
                            None => false,
                            Some(Expr::Const(crate::ir::Const::Bool(true))) => false,
                            Some(_) => true,
                        }
                    })
            })
        };
        return rule.params.iter().map(|(p, _)| p.clone()).filter(|p| !absent(p)).collect();
    }
    Vec::new()
}

/// A module by its rule, with the arguments that it is made with.
type MadeModule = (Arc<ModuleRule>, Vec<(ArgKind, Expr)>);

/// The module that an expression makes, by its rule, with the arguments; through a function of the project that makes and returns it.
fn made_module(view: &View<'_>, made: &Expr, depth: usize) -> Option<MadeModule> {
    let Expr::Call { callee, args, .. } = made else { return None };
    let path = callee.path()?;
    if let Some(Entry::Module(rule)) = view.rules.get(path) {
        return Some((rule.clone(), args.clone()));
    }
    let Resolved::Func(at) = view.project.path(path) else { return None };
    let maker = view.other(at);
    // It may do more than make the module.
    if super::near::has_any(maker.code(), &["requires_grad", "setattr", "register_", ".bias =", "parallel"]) {
        return None;
    }
    let mut returned = maker.steps.iter().filter_map(|step| match step.stmt {
        Stmt::Return { value } => Some(value),
        _ => None,
    });
    let (Some(value), None) = (returned.next(), returned.next()) else { return None };
    if depth > 1 { None } else { made_module(&maker, &maker.through(value), depth + 1) }
}

fn made(init: &View<'_>, attr: &Name) -> Option<Place> {
    let step = init.steps.iter().find(|s| matches!(s.stmt, Stmt::SetAttr { name, .. } if name == attr))?;
    Some(init.place(step.id))
}

/// The constructor of a class as a view.
pub fn constructor<'a>(lint: &Lint<'a>, class: ClassRef) -> Option<View<'a>> {
    Some(lint.view(init_of(lint, class)?))
}

/// The constructor that a class defines itself.
pub fn init_of(lint: &Lint<'_>, class: ClassRef) -> Option<FuncRef> {
    lint.project.own_method(class, "__init__")
}
