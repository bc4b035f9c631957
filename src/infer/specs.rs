//! What the fields of module specifications hold anywhere in the project: `Submodules(linear=ColumnLinear)`. In: the project.
//! Out: for a field the one class it is ever given, or one that stands for several with the same contract. Never: a guess between
//! classes that differ. Next: `containers.rs`.

use super::value::Value;
use crate::ir::{ArgKind, Block, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ModuleId, Project, Resolved};
use crate::rules::{Entry, RuleBook};
use crate::source::Name;
use rustc_hash::FxHashMap;

/// Classes by field, in the order of the project.
#[derive(Debug, Default)]
pub struct Specs {
    fields: FxHashMap<Name, Vec<Value>>,
}

impl Specs {
    pub fn new(project: &Project) -> Specs {
        let mut out = Specs::default();
        let makers = makers(project);
        for (module, m) in project.modules.iter_enumerated() {
            for func in m.ir.funcs.iter() {
                let mut temps = FxHashMap::default();
                out.block(project, module, &func.body, &makers, &mut temps);
            }
        }
        out
    }

    /// The class that a field stands for: the only one it is given, or the first of several whose contracts agree.
    pub fn module_of(&self, rules: &RuleBook, field: &str) -> Option<Value> {
        let candidates = self.fields.get(field)?;
        let first = candidates.first()?;
        if candidates.len() == 1 {
            return Some(first.clone());
        }
        let layer = |value: &Value| match value {
            Value::Path(path) => match rules.get(path) {
                Some(Entry::Layer(rule)) => Some(rule.clone()),
                _ => None,
            },
            _ => None,
        };
        let rule = layer(first)?;
        let alike = candidates.iter().all(|c| layer(c).is_some_and(|r| r.types_alike(&rule)));
        alike.then(|| first.clone())
    }

    fn block<'a>(
        &mut self,
        project: &Project,
        module: ModuleId,
        block: &'a Block,
        makers: &FxHashMap<Name, Vec<Value>>,
        temps: &mut FxHashMap<LocalId, &'a Rvalue>,
    ) {
        for node in block {
            match &node.stmt {
                Stmt::Assign { dst, value } => {
                    temps.insert(*dst, value);
                    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { continue };
                    for arg in args {
                        let ArgKind::Keyword(field) = &arg.kind else { continue };
                        for value in classes(project, module, &arg.value, makers, temps) {
                            let known = self.fields.entry(field.clone()).or_default();
                            if !known.contains(&value) {
                                known.push(value);
                            }
                        }
                    }
                }
                Stmt::If { then, orelse, .. } => {
                    self.block(project, module, then, makers, temps);
                    self.block(project, module, orelse, makers, temps);
                }
                Stmt::With { body, .. } | Stmt::For { body, .. } => self.block(project, module, body, makers, temps),
                Stmt::Try { body, .. } => self.block(project, module, body, makers, temps),
                _ => {}
            }
        }
    }
}

/// The classes that an operand may be: named, or returned by a method of that name.
fn classes(
    project: &Project,
    module: ModuleId,
    operand: &Operand,
    makers: &FxHashMap<Name, Vec<Value>>,
    temps: &FxHashMap<LocalId, &Rvalue>,
) -> Vec<Value> {
    match operand {
        Operand::Global(name) => class_named(project, module, name).into_iter().collect(),
        Operand::Local(local) => match temps.get(local) {
            Some(Rvalue::CallMethod { name, .. }) => makers.get(name).cloned().unwrap_or_default(),
            Some(Rvalue::Use(Operand::Global(name))) => class_named(project, module, name).into_iter().collect(),
            _ => Vec::new(),
        },
        Operand::Const(_) => Vec::new(),
    }
}

/// A class by name, as a path: contracts are looked up by it.
fn class_named(project: &Project, module: ModuleId, name: &str) -> Option<Value> {
    match project.member(module, name)? {
        Resolved::Class(class) => {
            let path = format!("{}.{}", project.modules[class.module].name, project.class(class).qualname);
            Some(Value::Path(Name::from(path)))
        }
        _ => None,
    }
}

/// Methods that do nothing but return a class: `def column_parallel_linear(self): return ColumnParallelLinear`.
fn makers(project: &Project) -> FxHashMap<Name, Vec<Value>> {
    let mut out: FxHashMap<Name, Vec<Value>> = FxHashMap::default();
    for (module, m) in project.modules.iter_enumerated() {
        for func in m.ir.funcs.iter().filter(|f| f.class.is_some()) {
            for node in &func.body {
                if let Stmt::Return { value: Operand::Global(name) } = &node.stmt
                    && let Some(class) = class_named(project, module, name)
                {
                    let known = out.entry(func.name.clone()).or_default();
                    if !known.contains(&class) {
                        known.push(class);
                    }
                }
            }
        }
    }
    out
}
