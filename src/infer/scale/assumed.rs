//! What code relies on and does not make: an object that trains, known by its name or annotation; a base outside the project that takes
//! backward passes for its subclasses; a model that another function of the file has wrapped. In: parameters and attributes. Out: the
//! object, the axes over which such a base averages, the wrapped model. Never: anything where the file says otherwise.
//! Next: `trainers.rs`; `rules/models` for which name means what.

use super::Run;
use super::grads::Wraps;
use super::slots::Slots;
use super::trainers::Trainer;
use super::value::{State, Val};
use crate::ir::{Func, FuncId, FuncKind, Param, StmtId};
use crate::project::{ClassRef, FuncRef, ModuleId};
use crate::rules::{Entry, IntrinsicRule};
use crate::source::{Idx, Name, Place};
use crate::types::AxisSet;
use std::rc::Rc;
use std::sync::Arc;

/// Words of functions that wrap what they are given.
const WRAPPERS: &[&str] = &["DDP(", "FSDP(", "DataParallel(", "fully_shard("];

/// A function of a file that wraps the model that it is given.
#[derive(Clone, Debug)]
pub struct Builder {
    at: FuncRef,
    /// The parameter that it wraps.
    param: Name,
    wraps: Wraps,
    keeps: Option<super::norms::Keeps>,
}

impl<'a> Run<'a> {
    /// A parameter of a function that nothing of the project calls: an object that trains, a wrapped model, or its name.
    pub fn assumed(&mut self, at: FuncRef, param: &Param, state: &mut State) -> Val {
        let named = Val::Named(param.name.clone());
        if let Some(rule) = self.rule_of(at, param) {
            let place = Place { file: self.project.file(at.module), span: param.span };
            return self.unseen_trainer(&rule, place, state);
        }
        if let Some(object) = self.object_given(at, param, state) {
            return object;
        }
        let Some(builder) = self.builder(at, &param.name) else { return named };
        let module = state.module(&param.name);
        if let Some(m) = state.modules.get_mut(module) {
            (m.wraps, m.keeps, m.assumed) = (builder.wraps, builder.keeps, true);
        }
        Val::Module(module)
    }

    /// The rule of an object that trains, by the annotation of a parameter or its name.
    pub fn rule_of(&self, at: FuncRef, param: &Param) -> Option<Arc<IntrinsicRule>> {
        let path = |hint: &Name| super::super::practice::expr::path_of_hint(self.project, at.module, hint);
        if let Some(path) = param.hint.as_ref().and_then(path) {
            return match self.rules.get(&path) {
                Some(Entry::Intrinsic(rule)) if rule.does == "trainer" => Some(rule.clone()),
                _ => None,
            };
        }
        self.rules.called(&param.name).filter(|_| param.hint.is_none()).cloned()
    }

    /// An object that trains which is reached by a name: `self.accelerator`.
    pub fn by_name(&mut self, id: StmtId, name: &str, state: &mut State) -> Option<Val> {
        let rule = self.rules.called(name)?.clone();
        let place = self.place(state, id);
        Some(self.unseen_trainer(&rule, place, state))
    }

    fn unseen_trainer(&self, rule: &IntrinsicRule, place: Place, state: &mut State) -> Val {
        let trainer = Trainer::unseen(rule, state.everyone(), place);
        let known = state.trainers.iter().position(|t| t.is_like(&trainer));
        Val::Trainer(known.unwrap_or_else(|| {
            state.trainers.push(trainer);
            state.trainers.len() - 1
        }))
    }

    /// The rule of a base outside the project that trains for its subclasses.
    pub fn base(&self, class: ClassRef) -> Option<Arc<IntrinsicRule>> {
        self.settings.statics.external_bases(class).find_map(|base| match self.rules.get(base) {
            Some(Entry::Intrinsic(rule)) if rule.does == "trainer-base" => Some(rule.clone()),
            _ => None,
        })
    }

    /// The object itself as one that trains: methods that its base has.
    pub fn own_trainer(&mut self, id: StmtId, object: usize, name: &str, state: &mut State) -> Option<Val> {
        let class = state.objects.get(object)?.class?;
        let rule = self.base(class)?;
        self.rules.get(&format!("{}.{name}", rule.role("methods")?))?;
        let place = self.place(state, id);
        Some(self.unseen_trainer(&rule, place, state))
    }

    /// The axes over which gradients of the loss that a method returns are averaged: by the configuration, or by the base of its class.
    pub fn averaging(&self, at: FuncRef, state: &State) -> Option<AxisSet> {
        if let Some(axes) = &self.settings.gradient_mean {
            return Some(axes.clone());
        }
        let func = self.project.func(at);
        let class = ClassRef { module: at.module, class: func.class? };
        let rule = self.base(class)?;
        (rule.role("loss")? == &func.name).then(|| state.everyone())
    }

    /// The one function of the file that wraps a model under this name and returns it, where the function in hand leaves gradients alone.
    fn builder(&mut self, at: FuncRef, name: &Name) -> Option<Builder> {
        if self.builders.as_ref().is_some_and(|known| known.is_empty()) {
            return None;
        }
        let file = self.files[self.project.file(at.module)].whole();
        if !WRAPPERS.iter().any(|w| file.contains(w)) {
            self.builders = Some(Arc::default());
            return None;
        }
        if self.wraps_or_reduces(at) {
            return None;
        }
        let builders = match &self.builders {
            Some(known) => known.clone(),
            None => {
                let found: Arc<Vec<Builder>> = Arc::new(self.all_builders(at));
                self.builders = Some(found.clone());
                found
            }
        };
        let text = self.around(at);
        let calls = |b: &Builder| text.contains(&format!("{}(", self.project.func(b.at).name));
        let mut of_name = builders.iter().filter(|b| b.param == *name && b.at != at && !calls(b));
        of_name.next().filter(|_| of_name.next().is_none()).cloned()
    }

    /// The text of a function, or of the class whose method it is.
    fn around(&self, at: FuncRef) -> &'a str {
        let span = match self.project.func(at).class {
            Some(class) => self.project.class(ClassRef { module: at.module, class }).span,
            None => self.project.func(at).span,
        };
        self.files[self.project.file(at.module)].slice(span)
    }

    fn text_of(&self, at: FuncRef) -> &'a str {
        self.files[self.project.file(at.module)].slice(self.project.func(at).span)
    }

    fn wraps_or_reduces(&mut self, at: FuncRef) -> bool {
        let text = self.around(at);
        let of = self.project.func(at).class.ok_or(at.func);
        if let Some(known) = self.alone.get(&of) {
            return *known;
        }
        let mentions = || {
            let rest = ["zero_grad", "clip_grad", "no_grad", "grad_norm", "gradient"].iter();
            rest.fold(text.to_string(), |text, word| text.replace(word, "")).contains("grad")
        };
        let found = WRAPPERS.iter().any(|w| text.contains(w)) || text.contains("grad") && mentions();
        self.alone.insert(of, found);
        found
    }

    /// Functions of a module that may wrap what they are given.
    pub fn may_build(&self, module: ModuleId) -> Vec<FuncRef> {
        let file = self.files[self.project.file(module)].whole();
        if !WRAPPERS.iter().any(|w| file.contains(w)) {
            return Vec::new();
        }
        let funcs = self.project.modules[module].ir.funcs.iter_enumerated();
        let wraps = |f: &Func| {
            let text = self.files[self.project.file(module)].slice(f.span);
            f.kind == FuncKind::Function
                && f.class.is_none()
                && f.parent.is_none_or(|p| p.index() == 0)
                && WRAPPERS.iter().any(|w| text.contains(w))
                && text.contains("return")
                && file.matches(&format!("{}(", f.name)).count() <= 2
        };
        funcs.filter(|(_, f)| wraps(f)).map(|(func, _)| FuncRef { module, func }).collect()
    }

    fn all_builders(&mut self, of: FuncRef) -> Vec<Builder> {
        self.may_build(of.module).into_iter().filter_map(|at| self.built(at)).collect()
    }

    /// What a function wraps, if its result is one of its parameters, wrapped, on every path.
    fn built(&mut self, at: FuncRef) -> Option<Builder> {
        let func = self.project.func(at);
        let mut args = Slots::default();
        let mut start = self.start.clone()?;
        for param in &func.params {
            let object = self.object_given(at, param, &mut start);
            args.insert(param.local.index(), object.unwrap_or_else(|| Val::Named(param.name.clone())));
        }
        let (steps, out, told) = (self.steps, std::mem::take(&mut self.out), self.told.clone());
        let runs = self.run(at, args, None, start);
        (self.steps, self.out, self.told) = (steps, out, told);
        let mut found: Option<(Name, Wraps, Option<super::norms::Keeps>)> = None;
        for (state, value) in runs {
            let value = match &value {
                Val::Tuple(items) => items.iter().find(|v| matches!(v, Val::Module(_)))?.clone(),
                _ => value,
            };
            let Val::Module(m) = value else { return None };
            let module = state.modules.get(m).filter(|m| !m.lost && !m.wraps.is_empty())?;
            let one = (module.name.clone(), module.wraps.clone(), module.keeps.clone());
            if found.as_ref().is_some_and(|f| *f != one) {
                return None;
            }
            found = Some(one);
        }
        let (param, wraps, keeps) = found?;
        // A group that has no name that says which.
        if wraps.iter().any(|(axes, ..)| axes.iter().any(crate::types::Axis::is_variable)) {
            return None;
        }
        func.params.iter().any(|p| p.name == param).then_some(Builder { at, param, wraps, keeps })
    }

    /// Whether comments in a function, or in one of the file that it calls, say that ranks have different numbers of tokens.
    pub fn says_uneven(&mut self, at: FuncRef) -> bool {
        // What functions say is no comment on the statements of their file.
        if self.project.func(at).kind == FuncKind::Module {
            return false;
        }
        let text = self.text_of(at);
        let uneven = self.uneven(at.module);
        let funcs = &self.project.modules[at.module].ir.funcs;
        uneven.iter().any(|id| *id == at.func || text.contains(&format!("{}(", funcs[*id].name)))
    }

    /// Functions of a module with a comment that says so.
    fn uneven(&mut self, module: ModuleId) -> Rc<Vec<FuncId>> {
        if let Some(known) = &self.uneven {
            return known.clone();
        }
        let file = self.files[self.project.file(module)].whole();
        let lines = if file.contains("differ") || file.contains("var") { may_be_uneven(file) } else { Vec::new() };
        let funcs = self.project.modules[module].ir.funcs.iter_enumerated();
        let holds = |f: &Func| lines.iter().any(|(start, end)| *start < f.span.end && f.span.start < *end);
        let around = funcs.filter(|(_, f)| f.kind == FuncKind::Function && holds(f));
        let around: Vec<FuncRef> = around.map(|(func, _)| FuncRef { module, func }).collect();
        let says = around.into_iter().filter(|f| {
            let view = self.view(*f);
            let notes = super::super::practice::near::comments(&view, view.func.span);
            notes
                .iter()
                .any(|n| n.place.is_some_and(|p| says_uneven(&n.text) && counts_below(file, p.span.end as usize)))
        });
        let found = Rc::new(says.map(|f| f.func).collect::<Vec<_>>());
        self.uneven = Some(found.clone());
        found
    }

    /// Methods of classes of a module whose result a base outside the project takes for the loss.
    pub fn loss_methods(&self, at: ModuleId) -> Vec<FuncId> {
        let methods = self.rules.loss_methods();
        let text = self.files[self.project.file(at)].whole();
        if !methods.iter().any(|m| text.contains(m.as_str())) {
            return Vec::new();
        }
        let funcs = self.project.modules[at].ir.funcs.iter_enumerated();
        let takes = |f: &Func| {
            let class = f.class.map(|class| ClassRef { module: at, class });
            methods.contains(&f.name)
                && class.and_then(|c| self.base(c)).is_some_and(|rule| rule.role("loss") == Some(&f.name))
        };
        funcs.filter(|(_, f)| takes(f)).map(|(id, _)| id).collect()
    }
}

/// Whether a comment says that ranks have different numbers of tokens.
fn says_uneven(text: &str) -> bool {
    let has = |words: &[&str]| words.iter().any(|w| text.contains(w));
    let differ = ["differ", "differs", "vary", "varies"]
        .iter()
        .any(|verb| ["between", "across"].iter().any(|place| text.contains(&format!("{verb} {place}"))));
    let denied = has(&["not differ", "n't differ", "never", "not vary", "equal", "same", "otherwise", "would"]);
    differ && has(&["token"]) && text.contains("rank") && !denied
}

/// Whether one of the two lines below a comment takes the sum that the comment is about: what it is divided by.
fn counts_below(file: &str, end: usize) -> bool {
    let below = file.get(end..).unwrap_or_default().lines().skip(1);
    below.map(str::trim).filter(|line| !line.starts_with('#')).take(2).any(|line| line.contains(".sum("))
}

/// The lines with a comment in which ranks may be said to differ.
fn may_be_uneven(file: &str) -> Vec<(u32, u32)> {
    let mut out = Vec::new();
    let mut start = 0;
    for line in file.split_inclusive('\n') {
        if line.contains('#') {
            let lower = line.to_lowercase();
            if lower.contains("rank") && (lower.contains("differ") || lower.contains("var")) {
                out.push((start, start + line.len() as u32));
            }
        }
        start += line.len() as u32;
    }
    out
}

/// The loss in what a method returns.
pub fn loss_in(value: &Val) -> &Val {
    match value {
        Val::Tuple(items) => items.first().unwrap_or(value),
        Val::Dict(items) => items.iter().find(|(name, _)| name == "loss").map_or(value, |(_, v)| v),
        _ => value,
    }
}
