//! Functions that a method call may mean where nothing says what its receiver is: those of its name. In: the project. Out: functions of the
//! module's own package and of those that it imports. Never: what lies beside it by chance: two packages that know nothing of each other are
//! judged together as they are alone. Next: `relevance.rs`.

use super::digest::Digest;
use super::limits::MAX_NAMESAKES;
use super::memo::{Memo, Task, combined, kept_equals};
use crate::ir::FuncKind;
use crate::project::{FuncRef, ModuleId, Project};
use crate::source::{Idx, Name};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// A top-level package by number; modules outside any package are one.
type Package = u32;

/// The functions of each name, by package.
pub struct Namesakes {
    funcs: FxHashMap<Name, Vec<(Package, Vec<FuncRef>)>>,
    packages: FxHashMap<Name, Package>,
    /// The package of each module.
    of: Vec<Package>,
}

/// The first part of a dotted name, if it has several.
fn package_of(name: &str, is_package: bool) -> &str {
    match name.split_once('.') {
        Some((first, _)) => first,
        None if is_package => name,
        None => "",
    }
}

impl Namesakes {
    pub fn new(project: &Project, memo: Option<&Memo>) -> Arc<Namesakes> {
        let modules: Vec<ModuleId> = project.modules.ids().collect();
        let named = kept_equals(memo, &modules, Task::Namesakes, |module| {
            let funcs = project.modules[module].ir.funcs.iter_enumerated();
            let own = funcs.filter(|(_, f)| f.kind == FuncKind::Function);
            own.map(|(func, f)| (f.name.clone(), FuncRef { module, func })).collect::<Vec<_>>()
        });
        combined(memo, "namesakes", named, |named| Namesakes::joined(project, &named), |_, _| Vec::new())
    }

    fn joined(project: &Project, named: &[Arc<Vec<(Name, FuncRef)>>]) -> Namesakes {
        let mut out = Namesakes { funcs: FxHashMap::default(), packages: FxHashMap::default(), of: Vec::new() };
        for (module, named) in project.modules.ids().zip(named) {
            let next = Package::try_from(out.packages.len()).unwrap_or(Package::MAX);
            let package = package_of(project.name(module), project.modules[module].is_package);
            let package = *out.packages.entry(Name::from(package)).or_insert(next);
            out.of.push(package);
            for (name, at) in named.iter() {
                let known = out.funcs.entry(name.clone()).or_default();
                match known.last_mut().filter(|(last, _)| *last == package) {
                    Some((_, funcs)) => funcs.push(*at),
                    None => known.push((package, vec![*at])),
                }
            }
        }
        out
    }

    /// The packages that code of a module may have objects of: its own, and those that any line of it imports.
    pub fn seen_from(&self, project: &Project, module: ModuleId, digest: &Digest) -> FxHashSet<Package> {
        let mut seen: FxHashSet<Package> = self.of.get(module.index()).copied().into_iter().collect();
        for first in &digest.imports {
            // A module outside any package is imported by its own name.
            let alone = || self.packages.get("").filter(|_| project.module_named(first).is_some());
            seen.extend(self.packages.get(first).or_else(alone));
        }
        seen
    }

    /// The functions of a name in these packages, if they are few.
    pub fn named(&self, name: &str, packages: &FxHashSet<Package>) -> impl Iterator<Item = FuncRef> {
        let known = self.funcs.get(name).map_or(&[][..], Vec::as_slice);
        let seen = |(package, _): &&(Package, Vec<FuncRef>)| packages.contains(package);
        let few = known.iter().filter(seen).map(|(_, funcs)| funcs.len()).sum::<usize>() <= MAX_NAMESAKES;
        known.iter().filter(seen).filter(move |_| few).flat_map(|(_, funcs)| funcs.iter().copied())
    }
}
