//! What the fields of module specifications hold anywhere in the project: `Submodules(linear=ColumnLinear)`. In: the project.
//! Out: for a field the classes it is ever given. Never: a choice between them. Next: `alternatives.rs`.

use super::digest::{Digest, Digests, Given};
use super::memo::{Memo, Task, combined, differing, kept_equals};
use super::value::Value;
use crate::ir::{Block, Func, LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::project::{ModuleId, Project, Resolved};
use crate::rules::{Entry, RuleBook};
use crate::source::Name;
use crate::source::reads::{Read, note, number};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Classes by field, in the order of the project.
#[derive(Debug, Default)]
pub struct Specs {
    fields: FxHashMap<Name, Vec<Value>>,
    /// Names of modules that every branch binds to the same collective under one of its names.
    alternatives: FxHashMap<(ModuleId, Name), Name>,
}

impl Specs {
    pub fn new(project: &Project, rules: &RuleBook, digests: &Digests, memo: Option<&Memo>) -> Arc<Specs> {
        let modules: Vec<ModuleId> = project.modules.ids().collect();
        let makers =
            kept_equals(memo, &modules, Task::Makers, |module| makers(project, module, digests.of(project, module)));
        let makers = combined(
            memo,
            "makers",
            makers,
            |parts| Makers::joined(&parts),
            |a, b| differing(&a.by_name, &b.by_name).map(|name| Read::Spec(Makers::number(name))).collect(),
        );
        let parts = kept_equals(memo, &modules, Task::Specs, |module| {
            let fields = fields(project, module, digests.of(project, module), &makers);
            Part { fields, alternatives: alternatives(project, rules, module) }
        });
        combined(memo, "specs", parts, |parts| Specs::joined(&parts), Specs::differences)
    }

    fn joined(parts: &[Arc<Part>]) -> Specs {
        let mut out = Specs::default();
        for part in parts {
            for (field, value) in &part.fields {
                let known = out.fields.entry(field.clone()).or_default();
                if !known.contains(value) {
                    known.push(value.clone());
                }
            }
            out.alternatives.extend(part.alternatives.iter().map(|(key, path)| (key.clone(), path.clone())));
        }
        out
    }

    fn differences(&self, other: &Specs) -> Vec<Read> {
        let fields = differing(&self.fields, &other.fields).map(|field| Read::Spec(number(field)));
        let names = differing(&self.alternatives, &other.alternatives);
        fields.chain(names.map(|(module, name)| Read::Alternative(module.0, number(name)))).collect()
    }

    /// The classes that a field is given anywhere, each once.
    pub fn candidates(&self, field: &str) -> &[Value] {
        note(|| Read::Spec(number(field)));
        self.fields.get(field).map_or(&[], Vec::as_slice)
    }

    /// The collective that a name of a module stands for in every version of its library.
    pub fn alternative(&self, module: ModuleId, name: &Name) -> Option<&Name> {
        note(|| Read::Alternative(module.0, number(name)));
        self.alternatives.get(&(module, name.clone()))
    }
}

/// What one module says.
#[derive(Debug, Default, PartialEq)]
struct Part {
    fields: Vec<(Name, Value)>,
    alternatives: FxHashMap<(ModuleId, Name), Name>,
}

/// Methods that do nothing but return a class, by name.
struct Makers {
    by_name: FxHashMap<Name, Vec<Value>>,
}

impl Makers {
    fn joined(parts: &[Arc<Vec<(Name, Value)>>]) -> Makers {
        let mut by_name: FxHashMap<Name, Vec<Value>> = FxHashMap::default();
        for (name, class) in parts.iter().flat_map(|part| part.iter()) {
            let known = by_name.entry(name.clone()).or_default();
            if !known.contains(class) {
                known.push(class.clone());
            }
        }
        Makers { by_name }
    }

    fn number(name: &str) -> u64 {
        !number(name)
    }

    fn get(&self, name: &Name) -> Option<&Vec<Value>> {
        note(|| Read::Spec(Makers::number(name)));
        self.by_name.get(name)
    }
}

/// The classes that keywords are given in a module: named, or returned by a method of a name.
fn fields(project: &Project, module: ModuleId, digest: &Digest, makers: &Makers) -> Vec<(Name, Value)> {
    let mut out = Vec::new();
    let mut seen = FxHashSet::default();
    for (field, given) in &digest.fields {
        let classes = match given {
            Given::Global(name) => class_named(project, module, name).into_iter().collect(),
            Given::Method(name) => makers.get(name).cloned().unwrap_or_default(),
        };
        for class in classes {
            if let Value::Path(path) = &class
                && seen.insert((field, path.clone()))
            {
                out.push((field.clone(), class));
            }
        }
    }
    out
}

/// A class by name, as a path: contracts are looked up by it. One of another package is known by its capital.
fn class_named(project: &Project, module: ModuleId, name: &str) -> Option<Value> {
    let is_class = |path: &str| path.rsplit('.').next().is_some_and(|last| last.starts_with(char::is_uppercase));
    match project.member(module, name)? {
        Resolved::Class(class) => Some(Value::Path(project.qualified_class(class))),
        Resolved::External(path) if is_class(&path) => Some(Value::Path(path)),
        _ => None,
    }
}

/// Methods that do nothing but return a class: `def column_parallel_linear(self): return ColumnParallelLinear`.
fn makers(project: &Project, module: ModuleId, digest: &Digest) -> Vec<(Name, Value)> {
    let class = |(method, name): &(Name, Name)| Some((method.clone(), class_named(project, module, name)?));
    digest.makers.iter().filter_map(class).collect()
}

/// Names that a module binds more than once, each time to a collective of the same kind: `f = dist.new if recent else dist.old`.
fn alternatives(project: &Project, rules: &RuleBook, module: ModuleId) -> FxHashMap<(ModuleId, Name), Name> {
    let mut out = FxHashMap::default();
    let Some(body) = project.modules[module].ir.funcs.iter().next() else { return out };
    let mut temps = FxHashMap::default();
    let mut bound: FxHashMap<Name, Vec<Option<Name>>> = FxHashMap::default();
    bindings(project, module, body, body.body(), &mut temps, &mut bound);
    for (name, paths) in bound {
        let kind = |path: &Option<Name>| match path.as_ref().and_then(|p| rules.get(p)) {
            Some(Entry::Collective(rule)) => Some((rule.op.clone(), rule.form)),
            _ => None,
        };
        if let (Some(Some(first)), true) = (paths.first(), paths.len() > 1)
            && kind(&paths[0]).is_some()
            && paths.iter().all(|p| kind(p) == kind(&paths[0]))
        {
            out.insert((module, name), first.clone());
        }
    }
    out
}

fn bindings<'a>(
    project: &Project,
    module: ModuleId,
    func: &Func,
    block: &'a Block,
    temps: &mut FxHashMap<LocalId, &'a Rvalue>,
    out: &mut FxHashMap<Name, Vec<Option<Name>>>,
) {
    for node in block {
        match &node.stmt {
            Stmt::Assign { dst, value } => {
                if func.locals()[*dst].kind == LocalKind::Temp {
                    temps.insert(*dst, value);
                } else {
                    let path = path_of(project, module, func, value, temps);
                    out.entry(func.locals()[*dst].name.clone()).or_default().push(path);
                }
            }
            Stmt::If { then, orelse, .. } => {
                bindings(project, module, func, then, temps, out);
                bindings(project, module, func, orelse, temps, out);
            }
            Stmt::Try { body, handlers, .. } => {
                bindings(project, module, func, body, temps, out);
                handlers.iter().for_each(|h| bindings(project, module, func, h, temps, out));
            }
            _ => {}
        }
    }
}

/// The dotted path that an expression spells.
fn path_of(
    project: &Project,
    module: ModuleId,
    func: &Func,
    value: &Rvalue,
    temps: &FxHashMap<LocalId, &Rvalue>,
) -> Option<Name> {
    let operand = |operand: &Operand| match operand {
        Operand::Local(local) if func.locals()[*local].kind == LocalKind::Temp => {
            path_of(project, module, func, temps.get(local)?, temps)
        }
        Operand::Local(local) => external(project, module, &func.locals()[*local].name),
        Operand::Global(name) => external(project, module, name),
        Operand::Const(_) => None,
    };
    match value {
        Rvalue::Use(inner) => operand(inner),
        Rvalue::Attr { base, name } => Some(Name::from(format!("{}.{name}", operand(base)?))),
        _ => None,
    }
}

fn external(project: &Project, module: ModuleId, name: &str) -> Option<Name> {
    match project.member(module, name)? {
        Resolved::External(path) => Some(path),
        _ => None,
    }
}
