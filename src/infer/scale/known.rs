//! What a run has looked up before: texts of statements, names of modules, methods, what calls call. In: a question. Out: the same
//! answer as without. Never: anything that depends on a path. Next: `eval.rs`, `calls.rs`.

use super::Run;
use super::value::Val;
use crate::infer::external::decorator_of_path;
use crate::infer::value::Flavour;
use crate::ir::{LocalId, Operand, Rvalue, Stmt, StmtId};
use crate::project::{ClassRef, FuncRef, ModuleId};
use crate::source::Name;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;

/// What calls are to this pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A collective that is followed.
    Collective,
    Receive,
    /// What cuts tensors in place over the ranks.
    Cut,
    Other,
}

/// What calls of an unknown function mean for what is handed to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    Harmless,
    /// Whether it may change gradients of a module.
    Lost(bool),
}

/// Answers by question.
#[derive(Default)]
pub struct Known {
    texts: RefCell<FxHashMap<(FuncRef, StmtId), Name>>,
    locals: RefCell<FxHashMap<ModuleId, Rc<FxHashMap<Name, LocalId>>>>,
    members: RefCell<FxHashMap<ModuleId, FxHashMap<Name, Val>>>,
    paths: RefCell<FxHashMap<String, Val>>,
    methods: RefCell<FxHashMap<ClassRef, FxHashMap<Name, Option<FuncRef>>>>,
    getters: RefCell<FxHashMap<(ClassRef, Name), Option<FuncRef>>>,
    calls: RefCell<FxHashMap<*const Rvalue, Call>>,
    unknown: RefCell<FxHashMap<Name, Unknown>>,
}

impl Known {
    pub fn text(&self, at: FuncRef, id: StmtId, make: impl FnOnce() -> Name) -> Name {
        self.texts.borrow_mut().entry((at, id)).or_insert_with(make).clone()
    }

    pub fn call(&self, value: &Rvalue, make: impl FnOnce() -> Call) -> Call {
        *self.calls.borrow_mut().entry(std::ptr::from_ref(value)).or_insert_with(make)
    }

    pub fn unknown(&self, name: &str, make: impl FnOnce() -> Unknown) -> Unknown {
        if let Some(known) = self.unknown.borrow().get(name) {
            return *known;
        }
        *self.unknown.borrow_mut().entry(Name::from(name)).or_insert_with(make)
    }
}

impl<'a> Run<'a> {
    /// The variable of a module's own statements under a name.
    pub fn global_local(&self, module: ModuleId, body: FuncRef, name: &str) -> Option<LocalId> {
        let mut all = self.known.locals.borrow_mut();
        let names = all.entry(module).or_insert_with(|| {
            let mut names = FxHashMap::default();
            for (id, local) in self.project.func(body).locals().iter_enumerated() {
                names.entry(local.name.clone()).or_insert(id);
            }
            Rc::new(names)
        });
        names.get(name).copied()
    }

    /// What a name of a module leads to; a name that it does not have is of the language.
    pub fn member(&self, module: ModuleId, name: &Name) -> Val {
        if let Some(known) = self.known.members.borrow().get(&module).and_then(|names| names.get(name)) {
            return known.clone();
        }
        let value = match self.project.member(module, name) {
            Some(resolved) => self.sized(self.resolved(&resolved)),
            None => Val::Path(Name::from(format!("builtins.{name}"))),
        };
        self.known.members.borrow_mut().entry(module).or_default().insert(name.clone(), value.clone());
        value
    }

    /// What a path leads to.
    pub fn led(&self, path: String) -> Val {
        if let Some(known) = self.known.paths.borrow().get(&path) {
            return known.clone();
        }
        let value = self.resolved(&self.project.path(&path));
        self.known.paths.borrow_mut().insert(path, value.clone());
        value
    }

    /// The function behind an attribute of a class or of its bases that is computed when it is read.
    pub fn property(&mut self, class: ClassRef, name: &Name) -> Option<FuncRef> {
        let key = (class, name.clone());
        if let Some(known) = self.known.getters.borrow().get(&key) {
            return *known;
        }
        let mut found = None;
        for c in self.settings.statics.linearized(class).to_vec() {
            let own = self.project.class(c);
            if !own.methods.iter().any(|(n, _)| n == name) {
                continue;
            }
            let view = self.view(FuncRef { module: c.module, func: own.body });
            let is_getter = |d: &Operand| {
                let decorator = view.through(d);
                let Some(path) = decorator.path() else { return false };
                let path = if path.contains('.') { path.clone() } else { Name::from(format!("builtins.{path}")) };
                matches!(decorator_of_path(self.rules, &path), Some(Flavour::Property))
            };
            found = view.steps.iter().find_map(|step| match step.stmt {
                Stmt::Def { func, decorators, .. } if decorators.iter().any(is_getter) => {
                    let at = FuncRef { module: c.module, func: *func };
                    (self.project.func(at).name == *name).then_some(at)
                }
                _ => None,
            });
            break;
        }
        self.known.getters.borrow_mut().insert(key, found);
        found
    }

    /// Whether a class is a module of torch.
    pub fn is_module_class(&self, class: ClassRef) -> bool {
        self.settings.statics.external_bases(class).any(|base| base.ends_with(".Module"))
    }

    /// A method of a class or of its bases.
    pub fn method(&self, class: ClassRef, name: &str) -> Option<FuncRef> {
        if let Some(known) = self.known.methods.borrow().get(&class).and_then(|names| names.get(name)) {
            return *known;
        }
        let found = self.settings.statics.linearized(class).iter().find_map(|c| {
            let methods = &self.project.class(*c).methods;
            methods.iter().find(|(n, _)| n == name).map(|(_, func)| FuncRef { module: c.module, func: *func })
        });
        self.known.methods.borrow_mut().entry(class).or_default().insert(Name::from(name), found);
        found
    }
}
