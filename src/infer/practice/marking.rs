//! Where a project marks parameters for the reduction of their gradients, in whatever form. In: the project and the marks of the rules.
//! Out: [`Marking`]: what a site may mark, and which classes go by marks at all. Never: a conclusion from a form that is not followed;
//! such a site may mark anything. Next: `infer/parameters.rs`, which asks.

use super::asked::Asked;
use super::expr::Expr;
use super::near;
use super::view::View;
use crate::infer::memo::{Memo, Task, combined, kept_equals};
use crate::ir::{ArgKind, BuildKind, FuncKind, Item, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId, Project};
use crate::rules::{Entry, RuleBook};
use crate::source::reads::{Read, note};
use crate::source::{Files, Name, Place};
use crate::types::AxisType;
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// Methods of a module that give parameters or modules, not attributes of its own.
const WALKS: &[&str] =
    &["parameters", "named_parameters", "modules", "named_modules", "children", "named_children", "buffers"];

/// Receivers whose attributes are no marks of parameters.
const NO_PARAMETERS: &[&str] = &["self", "config", "cfg", "args", "ctx", "cls", "conf"];

/// How names of modules end; what is set on one is an attribute of its own.
const MODULES: &[&str] = &["module", "layer", "model"];

/// A statement that marks parameters.
#[derive(Clone, Debug, PartialEq)]
struct Site {
    /// Attributes on the way to what it marks; none: anything.
    names: Vec<Name>,
    /// The whole ways to what it marks, from its own object, where each of them is written down.
    ways: Option<Vec<Way>>,
    /// The attribute that carries the mark, where it is no walk over parameters.
    exact: Option<Name>,
    /// The class of the method, and whether it is a parameter or module of its own object in the constructor, which execution follows.
    class: Option<ClassRef>,
    followed: bool,
    /// What it marks are parameters of its own object alone.
    own: bool,
}

/// A way from an object to parameters of it.
#[derive(Clone, Debug, PartialEq)]
struct Way {
    attributes: Vec<Name>,
    /// To all parameters of what is there, and not to one.
    walks: bool,
}

impl Way {
    /// Whether it may lead to a parameter of which the way from some object is known, which may be below.
    fn may_lead_to(&self, parts: &[&str]) -> bool {
        let own = &self.attributes;
        let within = parts.windows(own.len()).any(|part| part.iter().zip(own).all(|(a, b)| *a == b.as_str()));
        let below = own.len() >= parts.len() && own.iter().rev().zip(parts.iter().rev()).all(|(a, b)| a == b);
        within || below || self.walks && parts.len() == 1
    }
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Marking {
    sites: Vec<Site>,
    /// Classes that mark something themselves.
    classes: Vec<ClassRef>,
    /// Functions that mark what they are given, or what they make and give back.
    helpers: Vec<Name>,
    /// Where a constructor marks parameters of its own as parts.
    parts: Vec<(ModuleId, Place)>,
    /// Something may mark any parameter as a part.
    any_part: bool,
    /// Classes whose objects are made with whole sizes.
    whole: FxHashSet<ClassRef>,
}

/// Whether a function gives back what a variable holds.
fn is_returned(view: &View<'_>, local: LocalId) -> bool {
    let returns = |stmt: &Stmt| matches!(stmt, Stmt::Return { value } if view.through(value) == Expr::Local(local) || *value == Operand::Local(local));
    view.readers(local).iter().any(|step| returns(view.steps[*step].stmt))
}

impl Marking {
    pub fn new(project: &Project, rules: &RuleBook, files: &Files, asked: &Asked, memo: Option<&Memo>) -> Arc<Marking> {
        let modules: Vec<_> = project.modules.ids().collect();
        let parts = kept_equals(memo, &modules, Task::Marking, |module| {
            Marking::of_module(project, rules, files, asked, module)
        });
        let mut out = combined(memo, "marking", parts, |parts| Marking::joined(&parts), |_, _| vec![Read::Marking]);
        let whole = super::sizes::made_whole(project, rules, files, asked, memo);
        Arc::make_mut(&mut out).whole.clone_from(&whole);
        out
    }

    fn of_module(project: &Project, rules: &RuleBook, files: &Files, asked: &Asked, module: ModuleId) -> Marking {
        let mut out = Marking::default();
        let m = &project.modules[module];
        let marks = &asked.shown(module, files[m.file].whole()).marks;
        if marks.is_empty() {
            return out;
        }
        for (func, f) in m.ir.funcs.iter_enumerated() {
            let sets = || files[m.file].slice(f.span).contains("setattr(");
            if (marks.inside(f.span) || sets()) && matches!(f.kind, FuncKind::Function | FuncKind::Lambda) {
                out.add(&View::new(project, rules, files, FuncRef { module, func }));
            }
        }
        out
    }

    fn joined(parts: &[Arc<Marking>]) -> Marking {
        let mut out = Marking::default();
        for one in parts {
            out.sites.extend(one.sites.iter().cloned());
            out.classes.extend(one.classes.iter().copied());
            let further = one.helpers.iter().filter(|name| !out.helpers.contains(name)).cloned().collect::<Vec<_>>();
            out.helpers.extend(further);
            out.parts.extend(one.parts.iter().copied());
            out.any_part |= one.any_part;
        }
        out
    }

    fn add(&mut self, view: &View<'_>) {
        let class = view.func.class.map(|class| ClassRef { module: view.at.module, class });
        let helper = view.project.qualified(view.at);
        let is_helper = matches!(view.rules.get(&helper), Some(Entry::Intrinsic(r)) if r.does == "mark-partitioned");
        let mut marks_given = false;
        for index in 0..view.steps.len() {
            let step = &view.steps[index];
            if let Some((target, place)) = super::partition::marks_part(view, index) {
                match own_names(view, &target) {
                    Some(_) if view.func.name == "__init__" => self.parts.push((view.at.module, place)),
                    _ => self.any_part |= !is_helper && !is_no_parameter(view, &target),
                }
            }
            let handed = view.value(index).and_then(|value| handed(view, value));
            let is_handed = handed.is_some();
            if let Some((target, mark)) = mark_set(view, step.stmt).or(handed) {
                let Some(rule) = view.rules.mark(&mark) else { continue };
                if is_no_parameter(view, &target) {
                    continue;
                }
                self.classes.extend(class);
                marks_given |=
                    matches!(&target, Expr::Local(local) if view.is_param(*local) || is_returned(view, *local));
                if rule.set == AxisType::R && !is_off(view, step.stmt) {
                    let followed = view.func.name == "__init__" && is_own(view, &target) && !is_handed;
                    let exact = match &target {
                        Expr::Attr(_, name) => Some(name.clone()),
                        _ => None,
                    };
                    let walk = || walks_itself(view, &target) && class.is_some_and(|class| !holds_modules(view, class));
                    let own = near::own_attribute(view, &target).is_some() || walk();
                    let names = names(view, &target, 0).unwrap_or_default();
                    // A method that a class lends to the objects of others marks anything.
                    if class.is_some_and(|class| own && is_lent(view, class)) {
                        self.sites.push(Site {
                            names: Vec::new(),
                            ways: None,
                            exact: None,
                            class: None,
                            followed: false,
                            own: false,
                        });
                    }
                    let ways = ways(view, &target).filter(|ways| !ways.is_empty());
                    self.sites.push(Site { names, ways, exact, class, followed, own });
                }
            }
            let marks = view.value(index).and_then(|v| view.callee(v)).is_some_and(|path| {
                let own = || path.rsplit('.').next().is_some_and(|last| self.helpers.iter().any(|name| name == last));
                match view.rules.get(&path) {
                    Some(Entry::Intrinsic(rule)) => rule.does == "mark-partitioned",
                    _ => own(),
                }
            });
            if marks {
                self.classes.extend(class);
                marks_given = true;
            }
        }
        if class.is_none() && marks_given {
            self.helpers.push(view.func.name.clone());
        }
    }

    /// Whether a text calls a function that marks what it is given.
    pub fn hands_to_marker(&self, text: &str) -> bool {
        note(|| Read::Marking);
        let called =
            |name: &Name| text.match_indices(name.as_str()).any(|(at, _)| text[at + name.len()..].starts_with('('));
        self.helpers.iter().any(called)
    }

    /// Where a constructor of a module marks a parameter of its own as a part.
    pub fn partitions_in(&self, module: ModuleId) -> Option<Place> {
        note(|| Read::Marking);
        self.parts.iter().find(|(m, _)| *m == module).map(|(_, place)| *place)
    }

    /// Whether a site that is not followed may mark any parameter as a part.
    pub fn partitions_anything(&self) -> bool {
        note(|| Read::Marking);
        self.any_part
    }

    /// Whether a class marks something itself, so that leaving something unmarked says something.
    pub fn goes_by_marks(&self, class: ClassRef) -> bool {
        note(|| Read::Marking);
        self.classes.contains(&class)
    }

    /// Whether the project makes objects of a class, with the sizes of the whole model only.
    pub fn is_made_whole(&self, class: ClassRef) -> bool {
        self.whole.contains(&class)
    }

    /// Whether a site that execution does not follow may mark a parameter of objects of a class, by the way to it from there.
    /// `derives`: whether a class is derived from that class; `holder`: that of the object that has the parameter itself, and those that it is
    /// derived from; `apart`: no other class marks what its objects hold.
    pub fn may_mark(
        &self,
        class: ClassRef,
        path: &str,
        (derives, holder): (&dyn Fn(ClassRef) -> bool, &[ClassRef]),
        apart: bool,
    ) -> bool {
        note(|| Read::Marking);
        let parts: Vec<&str> = path.split('.').collect();
        self.sites.iter().any(|site| {
            if site.followed {
                return site.class.is_some_and(|c| c != class && derives(c));
            }
            if site.own && site.class.is_some_and(|c| holder.contains(&c)) {
                return site.exact.as_deref().is_none_or(|name| parts.last() == Some(&name));
            }
            if site.own || apart && site.class.is_some() {
                return site.class.is_some_and(|c| c == class || derives(c));
            }
            if site.exact.as_deref().is_some_and(|name| parts.last() != Some(&name)) {
                return false;
            }
            if let Some(ways) = &site.ways {
                return ways.iter().any(|way| way.may_lead_to(&parts));
            }
            // Of a parameter without a way the object may be what the site names.
            site.names.is_empty() || parts.len() == 1 || site.names.iter().any(|n| parts.contains(&n.as_str()))
        })
    }
}

/// Whether a target is an element of `self.parameters()` or `self.named_parameters()`.
fn walks_itself(view: &View<'_>, target: &Expr) -> bool {
    let Expr::Local(local) = target else { return false };
    let of_itself = |e: &Expr| match e {
        Expr::Call { callee, .. } => {
            near::own_attribute(view, callee).is_some_and(|name| name == "parameters" || name == "named_parameters")
        }
        _ => false,
    };
    let defs = view.defs(*local);
    let walks = |def: &usize| visited(view, *def).is_some_and(|source| source.any(&mut |e| of_itself(e)));
    !defs.is_empty() && defs.iter().all(walks)
}

/// Whether the file calls a method by its class, with another object: `Base.mark(self)`.
fn is_lent(view: &View<'_>, class: ClassRef) -> bool {
    let text = view.file();
    text.contains(&format!("{}.{}(self", view.project.class(class).name, view.func.name))
}

/// Whether a call may make a module: of a class, or of a function that builds.
fn may_make(callee: &Expr) -> bool {
    let name = callee.last_name().unwrap_or("Unknown");
    let is_class = name.starts_with(char::is_uppercase) && name != "Parameter";
    is_class || ["build", "make", "module", "layer"].iter().any(|word| name.contains(word))
}

/// Whether a class keeps something that it makes or is given to make, and that may be a module with parameters of its own.
fn holds_modules(view: &View<'_>, class: ClassRef) -> bool {
    near::methods(view, class.class).iter().any(|own| {
        own.steps.iter().any(|step| match step.stmt {
            Stmt::SetAttr { base, value, .. } => {
                near::is_self(own, base)
                    && own.through(value).any(&mut |e| matches!(e, Expr::Call { callee, .. } if may_make(callee)))
            }
            Stmt::Assign { value: Rvalue::CallMethod { name, .. }, .. } => {
                matches!(name.as_str(), "add_module" | "register_module")
            }
            _ => false,
        })
    })
}

/// The target and the name of a mark that a statement sets.
pub fn mark_set(view: &View<'_>, stmt: &Stmt) -> Option<(Expr, Name)> {
    match stmt {
        Stmt::SetAttr { base, name, .. } => Some((view.expr(base), name.clone())),
        Stmt::Assign { value: Rvalue::Call { callee: Operand::Global(callee), args }, .. } if callee == "setattr" => {
            let name = &args.get(1)?.value;
            let mark = match near::deep(view, &view.expr(name)) {
                Expr::Const(crate::ir::Const::Str(name)) => name,
                Expr::Path(path) => Name::from(path.rsplit('.').next()?),
                // One of several: any mark that the function names.
                Expr::Local(_) | Expr::Unknown | Expr::Item(..) | Expr::Element(_) => named_mark(view)?,
                _ => return None,
            };
            Some((view.expr(&args.first()?.value), mark))
        }
        _ => None,
    }
}

/// The mark that a function names in a string or as an argument.
fn named_mark(view: &View<'_>) -> Option<Name> {
    let text = view.code();
    let named = |name: &str| ["\"", "'"].iter().any(|quote| text.contains(&format!("{quote}{name}{quote}")));
    let marks = view.rules.entries().filter(|(_, entry)| matches!(entry, Entry::Mark(rule) if rule.set == AxisType::R));
    marks.map(|(name, _)| Name::from(&name[1..])).find(|name| named(name))
}

/// What a call gives a mark that it names in a dict or as an argument: `set_attrs(self.bias, {"sequence_parallel": True})`.
fn handed(view: &View<'_>, value: &Rvalue) -> Option<(Expr, Name)> {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let name = near::written_name(view, value)?;
    let last = name.rsplit('.').next().unwrap_or(&name);
    if last.starts_with(char::is_uppercase) || last == "__init__" {
        return None;
    }
    let target = view.expr(&args.first().filter(|a| a.kind == ArgKind::Positional)?.value);
    let mark = |name: &str| view.rules.mark(name).is_some_and(|rule| rule.set == AxisType::R);
    let by = args[1..].iter().find_map(|a| match &a.kind {
        ArgKind::Keyword(k) if mark(k) => Some(k.clone()),
        _ => match view.source(&a.value) {
            Some((_, Rvalue::Build { kind: BuildKind::Dict, items })) => items.iter().find_map(|item| match item {
                Item::One(Operand::Const(crate::ir::Const::Str(key))) if mark(key) => Some(key.clone()),
                _ => None,
            }),
            _ => None,
        },
    })?;
    near::own_attribute(view, &target).is_some().then_some((target, by))
}

/// What a statement sets a mark to: `p.mark = x`, `setattr(p, "mark", x)`.
pub fn mark_value(stmt: &Stmt) -> Option<&Operand> {
    match stmt {
        Stmt::SetAttr { value, .. } => Some(value),
        Stmt::Assign { value: Rvalue::Call { args, .. }, .. } => args.get(2).map(|a| &a.value),
        _ => None,
    }
}

/// Whether a statement that sets a mark says that there is none.
pub fn is_off(view: &View<'_>, stmt: &Stmt) -> bool {
    let off = |o: &Operand| matches!(view.expr(o), Expr::Const(crate::ir::Const::Bool(false) | crate::ir::Const::None));
    mark_value(stmt).is_some_and(off)
}

fn is_no_parameter(view: &View<'_>, target: &Expr) -> bool {
    let is_other = |name: &str| NO_PARAMETERS.contains(&name) || MODULES.iter().any(|word| name.ends_with(word));
    match target {
        Expr::Local(local) => is_other(view.local_name(*local)),
        Expr::Attr(_, name) => is_other(name),
        _ => false,
    }
}

/// What a loop or an unpacking takes its variables from.
fn visited(view: &View<'_>, def: usize) -> Option<Expr> {
    match view.steps[def].stmt {
        Stmt::For { iter, .. } => Some(view.through(iter)),
        Stmt::Unpack { value, .. } => Some(view.through(value)),
        _ => None,
    }
}

/// `self.a` or `self.a.b`.
fn is_own(view: &View<'_>, target: &Expr) -> bool {
    let own = |e: &Expr| near::own_attribute(view, e).is_some();
    own(target) || matches!(target, Expr::Attr(base, _) if own(base))
}

/// The attributes of its own object that an expression is, or visits; `None` if it may be anything.
pub fn own_names(view: &View<'_>, target: &Expr) -> Option<Vec<Name>> {
    let found = names(view, target, 0)?;
    let own = |e: &Expr| is_own(view, e);
    let local = matches!(target, Expr::Local(_) | Expr::Element(_) | Expr::Item(..));
    (own(target) || local).then_some(found)
}

/// The ways to what a loop visits, where it names each: `for p in (self.norm.weight, self.bias)`.
fn ways(view: &View<'_>, target: &Expr) -> Option<Vec<Way>> {
    let Expr::Local(local) = target else { return None };
    let mut out = Vec::new();
    for def in view.defs(*local) {
        let items = match visited(view, *def).filter(|_| !view.is_param(*local))? {
            Expr::Build(items) => items,
            one => vec![one],
        };
        for item in &items {
            let (of, walks) = match item {
                Expr::Call { callee, .. } => match &**callee {
                    Expr::Attr(of, name) if WALKS.contains(&name.as_str()) => (&**of, true),
                    _ => return None,
                },
                of => (of, false),
            };
            out.push(Way { attributes: way(view, of)?, walks });
        }
    }
    Some(out)
}

/// The attributes from its own object to another one: `norm` and `weight` of `self.norm.weight`.
fn way(view: &View<'_>, of: &Expr) -> Option<Vec<Name>> {
    if let Some(name) = near::own_attribute(view, of) {
        return Some(vec![name.clone()]);
    }
    let Expr::Attr(base, name) = of else { return None };
    let mut out = way(view, base)?;
    out.push(name.clone());
    Some(out)
}

/// The attributes on the way to a target; `None` if it may be anything.
fn names(view: &View<'_>, target: &Expr, depth: usize) -> Option<Vec<Name>> {
    if depth > super::super::limits::MAX_VALUE_DEPTH {
        return None;
    }
    match target {
        Expr::Attr(base, name) => {
            let mut out = vec![name.clone()];
            if !matches!(**base, Expr::Local(_)) {
                out.extend(names(view, base, depth + 1)?);
            }
            Some(out)
        }
        Expr::Call { callee, .. } => match &**callee {
            Expr::Attr(base, name) if WALKS.contains(&name.as_str()) => {
                names(view, base, depth + 1).filter(|n| !n.is_empty())
            }
            _ => None,
        },
        Expr::Element(inner) | Expr::Item(inner, _) => names(view, inner, depth + 1),
        Expr::Build(items) => {
            let all: Option<Vec<Vec<Name>>> = items.iter().map(|i| names(view, i, depth + 1)).collect();
            all.map(Vec::into_iter).map(|v| v.flatten().collect())
        }
        Expr::Local(local) => of_local(view, *local, depth),
        _ => None,
    }
}

fn of_local(view: &View<'_>, local: LocalId, depth: usize) -> Option<Vec<Name>> {
    if view.is_param(local) {
        return None;
    }
    let mut out = Vec::new();
    for def in view.defs(local) {
        let source = match view.steps[*def].stmt {
            Stmt::Assign { .. } => match view.through(&Operand::Local(local)) {
                Expr::Local(_) => return None,
                other => other,
            },
            _ => visited(view, *def)?,
        };
        out.extend(names(view, &source, depth + 1)?);
    }
    (!out.is_empty()).then_some(out)
}
