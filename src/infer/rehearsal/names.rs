//! What names, attributes and methods stand for in a rehearsal. In: a name, or an object and a name. Out: a value. Never: what the statements
//! of a module do beyond binding constants. Next: `calls.rs`.

use super::run::{Run, Stop};
use super::value::{Closure, Object, Shared, Val};
use crate::ir::{Block, BuildKind, ClassId, Const, FuncId, Operand, Rvalue, Stmt};
use crate::project::{Binding, ClassRef, FuncRef, ModuleId, Project, Resolved};
use crate::source::{Idx, Name};
use std::cell::RefCell;
use std::rc::Rc;

impl Run<'_> {
    /// A name of a module, or a builtin.
    pub fn global(&mut self, module: ModuleId, name: &Name) -> Val {
        if let Some(value) = self.globals.get(&(module, name.clone())) {
            return value.clone();
        }
        match self.project.member(module, name) {
            Some(resolved) => self.resolved(resolved),
            None => Val::Path(Name::from(format!("builtins.{name}"))),
        }
    }

    pub fn resolved(&mut self, resolved: Resolved) -> Val {
        match resolved {
            Resolved::Func(at) => Val::Func(self.plain(at)),
            Resolved::Class(class) => Val::Class(class),
            Resolved::Module(module) => Val::Module(module),
            Resolved::Package(path) | Resolved::External(path) => Val::Path(path),
            Resolved::Value(module, name) => {
                if let Some(value) = self.globals.get(&(module, name.clone())) {
                    return value.clone();
                }
                let first = self.initial(module, &name);
                self.globals.insert((module, name), first.clone());
                first
            }
        }
    }

    /// A function without captures.
    pub fn plain(&self, at: FuncRef) -> Rc<Closure> {
        Rc::new(Closure { at, defaults: self.defaults(at), cells: Vec::new() })
    }

    /// What the statements of a module bind a name to, where it is a constant or an empty container.
    fn initial(&self, module: ModuleId, name: &Name) -> Val {
        let func = self.project.func(FuncRef { module, func: FuncId::from_index(0) });
        let mut found = Val::Unknown;
        for node in func.body() {
            if let Stmt::Assign { dst, value } = &node.stmt
                && func.locals()[*dst].name == *name
            {
                found = match value {
                    // A function may have set it to something else.
                    Rvalue::Use(Operand::Const(c)) if *c == Const::None || !self.is_set_later(module, name) => {
                        Val::constant(c)
                    }
                    Rvalue::Build { kind: BuildKind::List, items } if items.is_empty() => Val::list(Vec::new()),
                    Rvalue::Build { kind: BuildKind::Dict, items } if items.is_empty() => Val::Dict(Shared::default()),
                    _ => Val::Unknown,
                };
            }
        }
        found
    }

    /// Whether a function of a module sets a name of it.
    fn is_set_later(&self, module: ModuleId, name: &Name) -> bool {
        fn sets(block: &Block, name: &Name) -> bool {
            let here = |stmt: &Stmt| matches!(stmt, Stmt::SetGlobal { name: set, .. } if set == name);
            block.iter().any(|node| here(&node.stmt) || node.stmt.blocks().any(|inner| sets(inner, name)))
        }
        self.project.modules[module].ir.funcs.iter().any(|func| sets(func.body(), name))
    }

    /// The defaults of a function that are constants.
    fn defaults(&self, at: FuncRef) -> Vec<(u32, Val)> {
        let constant = |(n, default): &(u32, Operand)| {
            let value = if let Operand::Const(c) = default { Val::constant(c) } else { Val::Unknown };
            (*n, value)
        };
        defined(self.project, at).map_or_else(Vec::new, |(defaults, _)| defaults.iter().map(constant).collect())
    }

    /// Whether a function has a decorator that is not known.
    pub fn is_wrapped(&self, at: FuncRef) -> bool {
        let known = |d: &Operand| ["staticmethod", "classmethod", "property"].iter().any(|name| is_named(d, name));
        defined(self.project, at).is_some_and(|(_, decorators)| !decorators.iter().all(known))
    }

    /// Whether a method has this decorator.
    pub fn is_decorated(&self, at: FuncRef, by: &str) -> bool {
        defined(self.project, at).is_some_and(|(_, decorators)| decorators.iter().any(|d| is_named(d, by)))
    }

    /// An attribute; `None`: it raises.
    pub fn attr(&mut self, base: &Val, name: &Name) -> Result<Option<Val>, Stop> {
        Ok(Some(match base {
            Val::Path(path) => Val::Path(Name::from(format!("{path}.{name}"))),
            Val::Module(module) => match self.globals.get(&(*module, name.clone())) {
                Some(value) => value.clone(),
                None => match self.project.member(*module, name) {
                    Some(found) => self.resolved(found),
                    None => Val::Unknown,
                },
            },
            Val::Object(object) => {
                let held = object.borrow().attrs.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
                let class = object.borrow().class;
                match (held, self.method(class, name)) {
                    (Some(value), _) => value,
                    (None, Some(at)) if self.is_decorated(at, "property") => {
                        return self.execute(at, &[], vec![base.clone()]);
                    }
                    (None, Some(at)) => Val::Bound(Rc::new((base.clone(), at))),
                    (None, None) => Val::Unknown,
                }
            }
            Val::Super(above) => {
                let (object, class) = &**above;
                let found = self.bases(*class).into_iter().find_map(|base| self.method(base, name));
                found.map_or(Val::Unknown, |at| Val::Bound(Rc::new((object.clone(), at))))
            }
            Val::Class(class) => match self.method(*class, name) {
                Some(at) => Val::Bound(Rc::new((base.clone(), at))),
                None => Val::Unknown,
            },
            _ => Val::Unknown,
        }))
    }

    /// The method of a class, or of one of its bases.
    pub fn method(&self, class: ClassRef, name: &str) -> Option<FuncRef> {
        method_of(self.project, class, name, 0)
    }

    fn bases(&self, class: ClassRef) -> Vec<ClassRef> {
        bases(self.project, class)
    }

    /// `super()` in the function under execution.
    pub fn above(&mut self) -> Val {
        let func = self.project.func(self.at());
        let (Some(class), Some(first)) = (func.class, func.params.first()) else { return Val::Unknown };
        let object = self.operand(&Operand::Local(first.local));
        Val::Super(Rc::new((object, ClassRef { module: self.module(), class })))
    }

    /// A new object without attributes.
    pub fn object(class: ClassRef) -> Val {
        Val::Object(Rc::new(RefCell::new(Object { class, attrs: Vec::new() })))
    }

    /// Functions of a module, by name.
    pub fn functions(&self, module: ModuleId) -> Vec<(Name, FuncRef)> {
        let functions = self.project.bindings(module).filter_map(|(name, binding)| match binding {
            Binding::Func(func) => Some((name.clone(), FuncRef { module, func: *func })),
            Binding::Class(_) | Binding::Import(_) | Binding::Value => None,
        });
        let mut out: Vec<(Name, FuncRef)> = functions.collect();
        out.sort_by_key(|(_, at)| at.func.0);
        out
    }
}

/// Defaults and decorators of a definition.
pub type Definition<'b> = (&'b [(u32, Operand)], &'b [Operand]);

/// Those of the statement that defines a function.
pub fn defined(project: &Project, at: FuncRef) -> Option<Definition<'_>> {
    let outer = project.func(FuncRef { module: at.module, func: project.func(at).parent? });
    definition(outer.body(), at.func)
}

fn is_named(operand: &Operand, name: &str) -> bool {
    matches!(operand, Operand::Global(global) if global == name)
}

fn definition(block: &Block, wanted: FuncId) -> Option<Definition<'_>> {
    block.iter().find_map(|node| match &node.stmt {
        Stmt::Def { func, defaults, decorators, .. } => (*func == wanted).then_some((&**defaults, &**decorators)),
        stmt => stmt.blocks().find_map(|inner| definition(inner, wanted)),
    })
}

/// How many bases lie between a class and the one that has a method.
const MOST_BASES: usize = 6;

/// The method of a class, or of one of its bases in the project.
pub fn method_of(project: &Project, class: ClassRef, name: &str, depth: usize) -> Option<FuncRef> {
    let deeper = || bases(project, class).into_iter().find_map(|base| method_of(project, base, name, depth + 1));
    project.own_method(class, name).or_else(|| (depth < MOST_BASES).then(deeper).flatten())
}

/// The bases of a class that the project has, in order.
pub fn bases(project: &Project, class: ClassRef) -> Vec<ClassRef> {
    let Some(parent) = project.func(FuncRef { module: class.module, func: project.class(class).body }).parent else {
        return Vec::new();
    };
    let outer = project.func(FuncRef { module: class.module, func: parent });
    let operands = written(outer.body(), class.class).unwrap_or_default();
    let name = |o: &Operand| match o {
        Operand::Local(local) => Some(outer.locals()[*local].name.clone()),
        Operand::Global(name) => Some(name.clone()),
        Operand::Const(_) => None,
    };
    let found = operands.iter().filter_map(name).filter_map(|name| project.member(class.module, &name));
    found.filter_map(|found| if let Resolved::Class(base) = found { Some(base) } else { None }).collect()
}

/// The bases in the statement of a class.
fn written(block: &Block, wanted: ClassId) -> Option<&[Operand]> {
    block.iter().find_map(|node| match &node.stmt {
        Stmt::Class { class, bases, .. } => (*class == wanted).then_some(&**bases),
        stmt => stmt.blocks().find_map(|inner| written(inner, wanted)),
    })
}
