//! The marks that a class sets on its own parameters, and who else may set them. In: a class whose text names a mark. Out: [`ClassMarks`].
//! Never: a conclusion about a parameter that a call which is not followed is given, or that a walk may reach. Next: `marked_elsewhere.rs`; `part_beside.rs`
//! and `mark_beside.rs`, which ask.

use super::expr::Expr;
use super::marking::{is_off, own_names};
use super::view::{Guard, View};
use super::{Class, Lint, near, partition};
use crate::ir::{Const, FuncKind, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId, Resolved};
use crate::source::{Name, Place, Span};
use crate::types::AxisType;
use std::rc::Rc;

/// Marks that tell parameters whose gradients all ranks sum from those of experts. One that is true says what its absence says.
const OF_EXPERTS: &[&str] = &["allreduce"];

/// A statement that marks a parameter of the object, or several.
pub struct Site<'a> {
    /// Every attribute that it names on the way.
    pub names: Vec<Name>,
    /// `weight`, `conv1d.weight`, where it is one.
    pub path: Option<Name>,
    pub mark: Name,
    /// What the mark is set to, if that is written there, and whether that says that there is none.
    pub value: Option<Expr>,
    pub is_off: bool,
    pub view: Rc<View<'a>>,
    pub step: usize,
}

impl<'a> Site<'a> {
    pub fn place(&self) -> Place {
        self.view.place(self.view.steps[self.step].id)
    }

    pub fn guards(&self) -> &[Guard<'a>] {
        &self.view.steps[self.step].guards
    }

    /// Whether it says what the absence of the mark says as well.
    pub fn says_nothing(&self) -> bool {
        is_of_experts(&self.mark) && self.value == Some(Expr::Const(Const::Bool(true)))
    }
}

/// A call that is given parameters or modules of the object and may mark them.
struct Given {
    names: Vec<Name>,
    /// It is given the object itself.
    whole: bool,
    /// Something reads what it gives: it is called for that.
    is_used: bool,
    callee: Name,
}

/// What the functions of a class mark.
pub struct ClassMarks<'a> {
    pub class: ClassRef,
    pub views: Vec<Rc<View<'a>>>,
    pub sites: Vec<Site<'a>>,
    given: Vec<Given>,
    /// Marks that may be on any parameter; `None` among them: any mark.
    open: Vec<Option<Name>>,
}

/// Whether a mark is one of those that tell experts from the rest.
pub fn is_of_experts(mark: &str) -> bool {
    OF_EXPERTS.contains(&mark)
}

/// The marks of a class, if its text sets any.
pub fn of<'a>(lint: &Lint<'a>, class: &Class<'a>) -> Option<ClassMarks<'a>> {
    let module = class.at.module;
    let file = lint.project.file(module);
    let shown = lint.taken.asked.shown(module, lint.files[file].whole());
    let span = lint.project.class(class.at).span;
    let text = || lint.files[file].slice(span);
    let assigns = |mark: &&str| lint.taken.digests.of(lint.project, module).assigned.contains_key(*mark);
    let of_experts = |mark: &&str| (shown.set_by_name || assigns(mark)) && text().contains(*mark);
    if !(shown.marks.inside(span) || OF_EXPERTS.iter().any(of_experts)) {
        return None;
    }
    let marks = || lint.rules.marks().iter().map(|mark| mark.as_str()).chain(OF_EXPERTS.iter().copied());
    if !text().contains("setattr(") && !marks().any(|mark| assigns(&mark)) {
        return None;
    }
    let mut out = ClassMarks::none(class.at);
    for at in functions_in(lint, module, span) {
        out.views.push(Rc::new(lint.view(at).with(&Rc::downgrade(&class.beside))));
    }
    for view in out.views.clone() {
        out.add(&view);
    }
    (!out.sites.is_empty()).then_some(out)
}

/// The functions in a part of a file, those inside others too.
pub fn functions_in<'l>(lint: &'l Lint<'_>, module: ModuleId, span: Span) -> impl Iterator<Item = FuncRef> + 'l {
    let funcs = lint.project.modules[module].ir.funcs.iter_enumerated();
    let inside = move |f: &crate::ir::Func| {
        matches!(f.kind, FuncKind::Function | FuncKind::Lambda) && span.start <= f.span.start && f.span.end <= span.end
    };
    funcs.filter(move |(_, f)| inside(f)).map(move |(func, _)| FuncRef { module, func })
}

impl<'a> ClassMarks<'a> {
    /// Those of a class that sets none.
    pub fn none(class: ClassRef) -> ClassMarks<'a> {
        ClassMarks { class, views: Vec::new(), sites: Vec::new(), given: Vec::new(), open: Vec::new() }
    }

    fn add(&mut self, view: &Rc<View<'a>>) {
        for index in 0..view.steps.len() {
            let stmt = view.steps[index].stmt;
            if let Some((target, mark, value)) = marked(view, index) {
                let is_off = is_off(view, stmt);
                match own_names(view, &target).filter(|names| !names.is_empty()) {
                    Some(names) => {
                        let path = own_path(view, &target);
                        self.sites.push(Site { names, path, mark, value, is_off, view: view.clone(), step: index });
                    }
                    None if is_no_tensor(view, &target) => {}
                    None => {
                        self.open.push(Some(mark.clone()));
                        let names = Vec::new();
                        self.sites.push(Site {
                            names,
                            path: None,
                            mark,
                            value,
                            is_off,
                            view: view.clone(),
                            step: index,
                        });
                    }
                }
            } else if sets_unknown(view, stmt) {
                self.open.push(None);
            } else {
                self.add_given(view, index);
            }
        }
    }

    fn add_given(&mut self, view: &View<'a>, index: usize) {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(index) else {
            return;
        };
        let mut names = Vec::new();
        let mut whole = false;
        for arg in args {
            match view.expr(&arg.value) {
                Expr::Local(l) if view.local_name(l) == "self" => whole = true,
                given => names.extend(own_names(view, &given).unwrap_or_default()),
            }
        }
        if let Rvalue::CallMethod { base, name, .. } = value {
            whole |= name == "apply" && matches!(view.expr(base), Expr::Local(l) if view.local_name(l) == "self");
        }
        if whole || !names.is_empty() {
            let callee = view.callee(value).or_else(|| near::written_name(view, value));
            let is_used = view.binds(index).iter().any(|local| !view.readers(*local).is_empty());
            self.given.push(Given { names, whole, is_used, callee: callee.unwrap_or_else(|| Name::from("?")) });
        }
    }

    /// Whether something in the class marks a parameter, or may; `beside`: another one that it marks itself, so that what is called with both
    /// marks neither.
    pub fn touches(&self, path: &str, mark: &str, beside: &str) -> bool {
        let open = || self.open.iter().any(|open| open.as_ref().is_none_or(|open| open == mark));
        let parts: Vec<&str> = path.split('.').collect();
        let is_named = |names: &[Name], parts: &[&str]| names.iter().any(|name| parts.contains(&name.as_str()));
        let sets = |site: &Site<'_>| match &site.path {
            Some(known) => known == path || known.split('.').eq(parts[..1].iter().copied()) && parts.len() > 1,
            None => is_named(&site.names, &parts),
        };
        let beside: Vec<&str> = beside.split('.').collect();
        let both = |callee: &Name| self.given.iter().any(|g| g.callee == *callee && is_named(&g.names, &beside[..1]));
        let view = self.views.first();
        let gives = |given: &Given| {
            (given.whole || is_named(&given.names, &parts[..1]))
                && !both(&given.callee)
                && view.is_none_or(|view| calls_marker(view, &given.callee, mark, 0).unwrap_or(!given.is_used))
        };
        open() || self.sites.iter().any(|s| s.mark == mark && sets(s)) || self.given.iter().any(gives)
    }

    /// Whether the class may mark parameters in ways that are not followed, or sum gradients itself.
    pub fn has_own_ways(&self, lint: &Lint<'_>) -> bool {
        let text = text_of(lint, self.class);
        let reads = |word: &str| near::words(text, word).any(|at| text[..at].ends_with('.'));
        near::has_any(text, &["__dict__", "vars(", "register_hook(", "_grad_hook("]) || reads("grad")
    }

    /// Whether the class gives a parameter of its own to something that communicates, which may sum its gradient; `beside`: without another one,
    /// which has a mark, so that its gradient is not summed there; empty for none.
    pub fn exchanges(&self, name: &str, beside: &str) -> bool {
        let own = |view: &View<'_>, e: &Expr| near::own_attribute(view, e).is_some_and(|own| own == name);
        self.views.iter().any(|view| {
            (0..view.steps.len()).any(|step| match view.value(step) {
                Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) => {
                    let given = |o: &Operand| view.through(o).any(&mut |e| own(view, e));
                    // A variable with its name has its value, whatever was done to it.
                    let marked = |e: &Expr| match e {
                        Expr::Local(local) => view.local_name(*local) == beside,
                        _ => near::own_attribute(view, e).is_some_and(|own| own == beside),
                    };
                    // What the project does with both may sum the gradient of one alone.
                    let of_others = || view.callee(value).is_some_and(|path| is_external(view, &path));
                    let both =
                        || of_others() && args.iter().any(|arg| view.through(&arg.value).any(&mut |e| marked(e)));
                    view.may_communicate(value) && args.iter().any(|arg| given(&arg.value)) && !both()
                }
                _ => false,
            })
        })
    }

    /// Whether a method hands a parameter on as it is, to be used where ranks may have something else.
    pub fn returns(&self, name: &str) -> bool {
        self.views.iter().any(|view| {
            let own = |e: &Expr| near::own_attribute(view, e).is_some_and(|own| own == name);
            view.steps.iter().any(|step| match step.stmt {
                Stmt::Return { value } => match near::deep(view, &view.expr(value)) {
                    Expr::Build(items) => items.iter().any(|item| own(&near::deep(view, item))),
                    one => own(&one),
                },
                _ => false,
            })
        })
    }

    /// Whether a function that asks for modules of this class walks over parameters and reduces.
    pub fn is_summed_by_class(&self, lint: &Lint<'_>) -> bool {
        let class = lint.project.class(self.class);
        let says = |module: &ModuleId| lint.files.says(lint.project.file(*module), &class.name);
        lint.project.modules.ids().filter(says).any(|module| {
            let whole = lint.files[lint.project.file(module)].whole();
            let span = Span::new(0, whole.len() as u32);
            functions_in(lint, module, span).any(|at| {
                let text = lint.files[lint.project.file(module)].slice(lint.project.func(at).span);
                near::has_word(text, &class.name) && text.contains("parameters(") && text.contains("reduce")
            })
        })
    }

    /// Whether the class, or its file by the name of parameters, may leave parameters without gradients.
    pub fn freezes(&self, lint: &Lint<'_>) -> bool {
        let whole = lint.files[lint.project.file(self.class.module)].whole();
        freezes(text_of(lint, self.class)) || near::has_any(whole, &["requires_grad_(False)", "requires_grad = False"])
    }

    /// Whether the class rules a mark out for a parameter, or takes a parameter without its gradient.
    pub fn denies(&self, lint: &Lint<'_>, name: &str, mark: &str) -> bool {
        let text = text_of(lint, self.class);
        let denied = |line: &str| line.starts_with("assert not") && line.contains(mark);
        let gone = [format!("{name}.detach("), format!("del self.{name}")];
        // What is made of its values when the layer is made stays the parameter.
        let (own, data) = (format!("self.{name}.data"), format!("{name}.data"));
        let read = |line: &str| line.contains(&data) && !line.trim_start().starts_with(&own);
        gone.iter().any(|word| text.contains(word))
            || text.contains(&data) && text.lines().any(read)
            || near::refusals(text).any(denied)
    }
}

/// Whether a path, or what it is a member of, stands outside of the project.
fn is_external(view: &View<'_>, path: &str) -> bool {
    let owner = path.rsplit_once('.').map_or(path, |(owner, _)| owner);
    !owner.is_empty() && [path, owner].iter().all(|path| matches!(view.project.path(path), Resolved::External(_)))
}

/// Whether a text may leave parameters without gradients.
pub fn freezes(text: &str) -> bool {
    near::ending(text, "requires_grad").chain(near::ending(text, "requires_grad_")).any(|at| {
        let rest = &text[at + "requires_grad".len()..];
        let set = rest.trim_start().strip_prefix('=').filter(|value| !value.starts_with('='));
        match (rest.strip_prefix("_("), set) {
            (Some(given), _) => !given.starts_with([')', 'T']),
            // The same as that of something else decides nothing.
            (_, Some(value)) => {
                let value = value.trim_start();
                let end = value.find([',', ')', '\n']).unwrap_or(value.len());
                !value.starts_with("True") && !value[..end].ends_with(".requires_grad")
            }
            _ => rest.starts_with(['"', '\'']) && rest[1..].trim_start().starts_with(','),
        }
    })
}

pub fn text_of<'a>(lint: &Lint<'a>, class: ClassRef) -> &'a str {
    lint.files[lint.project.file(class.module)].slice(lint.project.class(class).span)
}

/// Whether a text has a string that is the name of a mark.
pub fn quotes(text: &str, mark: &str) -> bool {
    ['"', '\''].iter().any(|quote| text.contains(&format!("{quote}{mark}{quote}")))
}

/// Whether a text may set a mark: by its name, or by one that is not written there.
pub fn may_set(text: &str, mark: &str) -> bool {
    let unnamed = || {
        text.split("setattr(").skip(1).any(|args| {
            let args = args.get(..args.find('\n').unwrap_or(args.len())).unwrap_or_default();
            !args.contains(['"', '\''])
        })
    };
    let assigned = || {
        near::words(text, mark).any(|at| {
            let value = text[at + mark.len()..].trim_start().strip_prefix('=');
            let holder = text[..at].strip_suffix('.').filter(|_| value.is_some_and(|v| !v.starts_with('=')));
            holder.is_some_and(|holder| !NO_TENSORS.iter().any(|name| holder.ends_with(name)))
        })
    };
    text.contains("setattr(") && (quotes(text, mark) || unnamed())
        || assigned()
        || !is_of_experts(mark) && text.contains("parallel_attributes")
}

/// What a step marks: the parameter, the mark and its value.
pub fn marked(view: &View<'_>, index: usize) -> Option<(Expr, Name, Option<Expr>)> {
    let stmt = view.steps[index].stmt;
    let set = match (stmt, named(view, stmt)) {
        (Stmt::SetAttr { base, name, value }, _) => Some((view.expr(base), name.clone(), Some(view.expr(value)))),
        (_, Some((target, Some(name), value))) => Some((target, name, Some(value))),
        _ => None,
    };
    if set.is_some() {
        return set.filter(|(_, name, _)| is_of_experts(name) || view.rules.mark(name).is_some());
    }
    let (target, _) = partition::marks_part(view, index)?;
    let of_parts = |name: &&Name| view.rules.mark(name).is_some_and(|r| r.set == AxisType::V);
    let mark = view.rules.marks().iter().find(of_parts)?.clone();
    Some((target, mark, None))
}

/// What `setattr` is given: the object, the name, `None` where that is one of several or nobody knows which, and the value. A name that a call
/// gives is that of an attribute for what is computed, and no mark.
fn named(view: &View<'_>, stmt: &Stmt) -> Option<(Expr, Option<Name>, Expr)> {
    let Stmt::Assign { value: Rvalue::Call { callee: Operand::Global(callee), args }, .. } = stmt else { return None };
    let [target, name, value] = args.get(..3).filter(|_| callee == "setattr")? else { return None };
    let name = match near::deep(view, &view.expr(&name.value)) {
        Expr::Const(Const::Str(name)) => Some(name),
        Expr::Path(path) => Some(Name::from(path.rsplit('.').next()?)),
        Expr::Call { .. } => return None,
        Expr::Local(local) if is_computed(view, local) => return None,
        _ => None,
    };
    Some((view.expr(&target.value), name, view.through(&value.value)))
}

/// Whether all that a variable is bound to are results of calls.
fn is_computed(view: &View<'_>, local: LocalId) -> bool {
    let of_call = |def: &usize| matches!(view.value(*def), Some(Rvalue::Call { .. } | Rvalue::CallMethod { .. }));
    let defs = view.defs(local);
    !view.is_param(local) && !defs.is_empty() && defs.iter().all(of_call)
}

/// Whether a statement sets an attribute whose name is not known, on what may be a parameter.
pub fn sets_unknown(view: &View<'_>, stmt: &Stmt) -> bool {
    named(view, stmt).is_some_and(|(target, name, _)| name.is_none() && !is_no_tensor(view, &target))
}

/// Whose attributes are no marks.
const NO_TENSORS: &[&str] = &["self", "config", "cfg", "args", "ctx", "cls", "conf"];

/// The object itself and what is called a configuration or a module: an attribute of one is no mark.
pub fn is_no_tensor(view: &View<'_>, target: &Expr) -> bool {
    let name = match target {
        Expr::Local(local) => view.local_name(*local),
        Expr::Attr(_, name) => name,
        _ => return false,
    };
    NO_TENSORS.contains(&name.as_str()) || ["module", "layer", "model"].iter().any(|word| name.ends_with(word))
}

/// `weight` of `self.weight`, `conv1d.weight` of `self.conv1d.weight`.
fn own_path(view: &View<'_>, target: &Expr) -> Option<Name> {
    let target = match target {
        Expr::Local(_) => &near::deep(view, target),
        other => other,
    };
    if let Some(name) = near::own_attribute(view, target) {
        return Some(name.clone());
    }
    let Expr::Attr(base, name) = target else { return None };
    near::own_attribute(view, base).map(|base| Name::from(format!("{base}.{name}")))
}

/// Builtins that mark nothing.
const PLAIN: &[&str] =
    &["print", "len", "isinstance", "super", "hasattr", "getattr", "setattr", "id", "type", "list", "tuple"];

/// Whether what is called may set a mark on what it is given: of torch nothing does, and of the project what shows it in its text, or calls
/// what does. `None`: it is not in view.
pub fn calls_marker(view: &View<'_>, callee: &Name, mark: &str, depth: usize) -> Option<bool> {
    if callee.starts_with("torch.") || PLAIN.contains(&callee.trim_start_matches("builtins.")) {
        return Some(false);
    }
    let (module, span) = match view.project.path(callee) {
        Resolved::Func(at) => (at.module, view.project.func(at).span),
        Resolved::Class(at) => (at.module, view.project.class(at).span),
        _ => return None,
    };
    if may_set(view.files[view.project.file(module)].slice(span), mark) {
        return Some(true);
    }
    let Resolved::Func(at) = view.project.path(callee) else { return Some(false) };
    let called = view.other(at);
    let inner = |value: &'_ Rvalue| match value {
        Rvalue::Call { callee: Operand::Global(name), .. } => Some(called.global(name)),
        _ => None,
    };
    let mut marks = (0..called.steps.len()).filter_map(|i| inner(called.value(i)?));
    Some(depth < 2 && marks.any(|name| calls_marker(&called, &name, mark, depth + 1) == Some(true)))
}

/// Whether two statements never run in one configuration: a test that one asks to hold and the other asks not to.
pub fn exclude(a: (&View<'_>, &[Guard<'_>]), b: (&View<'_>, &[Guard<'_>])) -> bool {
    let text = |view: &View<'_>, guard: &Guard<'_>| view.text(view.part(guard.at, 0)).to_string();
    a.1.iter().any(|x| b.1.iter().any(|y| x.holds != y.holds && text(a.0, x) == text(b.0, y)))
}
