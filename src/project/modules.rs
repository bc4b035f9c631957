//! Modules of the run and their dotted names. In: files in order and source roots. Out: [`Project`].
//! Never: reading packages that are not in the run. Next: `resolve.rs`.

use super::resolve::{Binding, Import, bindings};
use crate::ir::{Class, FileIr, Func, FuncId, FuncKind};
use crate::source::reads::{Read, note, number};
use crate::source::{FileId, Files, Idx, IndexVec, Name, Place};
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use std::sync::{Arc, OnceLock};

crate::define_id!(
    /// A module of the project.
    ModuleId
);

/// One module: a file, its dotted name, what its top level binds.
#[derive(Clone, Debug)]
pub struct Module {
    pub file: FileId,
    pub name: Name,
    /// `__init__.py`: relative imports start at the module itself.
    pub is_package: bool,
    pub ir: Arc<FileIr>,
    pub(super) bindings: FxHashMap<Name, Binding>,
    /// Modules whose names a star import brings in, as written.
    pub(super) stars: Vec<(Name, u32)>,
}

/// The modules in order. Looking at one as a whole is noted as such; [`Project`] gives parts of one.
#[derive(Clone, Debug, Default)]
pub struct Modules {
    items: IndexVec<ModuleId, Module>,
}

impl Modules {
    pub fn ids(&self) -> impl Iterator<Item = ModuleId> + use<> {
        self.items.ids()
    }
    pub fn iter(&self) -> std::slice::Iter<'_, Module> {
        note(|| Read::Modules);
        self.items.iter()
    }
    pub fn iter_enumerated(&self) -> impl Iterator<Item = (ModuleId, &Module)> {
        note(|| Read::Modules);
        self.items.iter_enumerated()
    }
    /// A module of which the caller notes what it looks at.
    pub(super) fn quietly(&self, id: ModuleId) -> &Module {
        &self.items[id]
    }
}

impl std::ops::Index<ModuleId> for Modules {
    type Output = Module;
    #[inline]
    fn index(&self, id: ModuleId) -> &Module {
        note(|| Read::Module(id.0));
        &self.items[id]
    }
}

/// Methods by name, those of one name in order.
type Methods = FxHashMap<Name, Vec<(super::ClassRef, crate::ir::FuncId)>>;

/// All modules of a run.
#[derive(Clone, Debug, Default)]
pub struct Project {
    pub modules: Modules,
    by_name: FxHashMap<Name, ModuleId>,
    /// Names of packages that exist only as folders.
    packages: FxHashMap<Name, ()>,
    /// The methods of each name, once somebody asked.
    methods: OnceLock<Methods>,
    /// Whether results are kept for later versions, so that what they looked at has to be known.
    pub watched: bool,
}

impl Project {
    /// Builds the project from lowered files, in the order of `files`. `roots` are source roots as shown paths, longest match wins.
    pub fn new(files: &Files, irs: Vec<(FileId, FileIr)>, roots: &[String]) -> Project {
        let paths: Vec<&str> = files.iter().map(|(_, f)| f.path.as_str()).collect();
        let common = common_folder(&paths);
        let imports: Vec<_> = irs.par_iter().map(|(_, ir)| bindings(ir)).collect();
        let spaces =
            namespaces(&imports.iter().map(|(names, stars)| (names, stars.as_slice())).collect::<Vec<_>>(), &paths);
        let mut project = Project::default();
        for ((file, ir), (bindings, stars)) in irs.into_iter().zip(imports) {
            let path = &files[file].path;
            let name = spaced(module_name(path, roots, &common, &paths), path, &spaces);
            let is_package = path.ends_with("__init__.py");
            let module = Module { file, name: name.clone(), is_package, ir: Arc::new(ir), bindings, stars };
            let id = project.modules.items.push(module);
            let mut prefix = name.as_str();
            while let Some((parent, _)) = prefix.rsplit_once('.') {
                project.packages.insert(Name::from(parent), ());
                prefix = parent;
            }
            project.by_name.entry(name).or_insert(id);
        }
        project
    }

    /// The names that the modules would have if the project was made now.
    pub fn names(&self, files: &Files, roots: &[String]) -> Vec<Name> {
        let paths: Vec<&str> = files.iter().map(|(_, f)| f.path.as_str()).collect();
        let common = common_folder(&paths);
        let imports: Vec<_> = self.modules.items.iter().map(|m| (&m.bindings, m.stars.as_slice())).collect();
        let spaces = namespaces(&imports, &paths);
        let named = |path: &&str| spaced(module_name(path, roots, &common, &paths), path, &spaces);
        paths.iter().map(named).collect()
    }

    pub fn module_named(&self, name: &str) -> Option<ModuleId> {
        self.by_name.get(name).copied()
    }
    /// Whether the name is a module or a folder of modules.
    pub fn is_package(&self, name: &str) -> bool {
        self.by_name.contains_key(name) || self.packages.contains_key(name)
    }
    #[inline]
    pub fn func(&self, at: super::FuncRef) -> &Func {
        note(|| Read::Func(at.module.0, at.func.0));
        &self.modules.quietly(at.module).ir.funcs[at.func]
    }
    pub fn class(&self, at: super::ClassRef) -> &Class {
        note(|| Read::Class(at.module.0, at.class.0));
        &self.modules.quietly(at.module).ir.classes[at.class]
    }
    /// The method that a class defines itself.
    pub fn own_method(&self, class: super::ClassRef, name: &str) -> Option<super::FuncRef> {
        let (_, func) = self.class(class).methods.iter().find(|(n, _)| n == name)?;
        Some(super::FuncRef { module: class.module, func: *func })
    }
    /// The function that the top level of a module defines under a name.
    pub fn own_function(&self, module: ModuleId, name: &str) -> Option<super::FuncRef> {
        note(|| Read::Name(module.0, number(name)));
        match self.modules.quietly(module).bindings.get(name) {
            Some(Binding::Func(func)) => Some(super::FuncRef { module, func: *func }),
            _ => None,
        }
    }
    /// What the top level of a module binds, in no particular order.
    pub fn bindings(&self, module: ModuleId) -> impl Iterator<Item = (&Name, &Binding)> {
        note(|| Read::Names(module.0));
        self.modules.quietly(module).bindings.iter()
    }
    #[inline]
    pub fn file(&self, module: ModuleId) -> FileId {
        self.modules.quietly(module).file
    }
    /// The dotted name of a module.
    pub fn name(&self, module: ModuleId) -> &Name {
        &self.modules.quietly(module).name
    }
    /// The module of a file.
    pub fn module_of(&self, file: FileId) -> Option<ModuleId> {
        // Every file is a module, in the same order, unless somebody made the project of a part of the files.
        let same = ModuleId::from_index(file.index());
        match self.modules.items.get(same) {
            Some(module) if module.file == file => Some(same),
            _ => self.modules.items.iter_enumerated().find(|(_, m)| m.file == file).map(|(id, _)| id),
        }
    }
    /// The innermost function around a place: the module itself where there is none.
    pub fn function_at(&self, place: Place) -> Option<super::FuncRef> {
        let module = self.module_of(place.file)?;
        let funcs = &self.modules[module].ir.funcs;
        let around = |f: &&Func| f.kind == FuncKind::Function && f.span.contains(place.span.start);
        let func =
            funcs.iter_enumerated().filter(|(_, f)| around(f)).last().map_or(FuncId::from_index(0), |(id, _)| id);
        Some(super::FuncRef { module, func })
    }
    /// The methods of a name, in order.
    pub fn methods_named(&self, name: &Name) -> &[(super::ClassRef, crate::ir::FuncId)] {
        note(|| Read::Named(number(name)));
        self.methods.get_or_init(|| self.all_methods()).get(name).map_or(&[], Vec::as_slice)
    }
    fn all_methods(&self) -> Methods {
        let mut out = Methods::default();
        for (module, m) in self.modules.items.iter_enumerated() {
            for (class, c) in m.ir.classes.iter_enumerated() {
                for (name, func) in &c.methods {
                    let class = super::ClassRef { module, class };
                    let known = out.entry(name.clone()).or_default();
                    if known.last().is_none_or(|(last, _)| *last != class) {
                        known.push((class, *func));
                    }
                }
            }
        }
        out
    }
    /// The innermost function of a module that covers a span.
    pub fn func_around(&self, module: ModuleId, span: crate::source::Span) -> Option<super::FuncRef> {
        let ir = &self.modules.quietly(module).ir;
        let covers =
            |f: &Func| f.kind == crate::ir::FuncKind::Function && f.span.start <= span.start && span.end <= f.span.end;
        let (func, _) = ir.funcs.iter_enumerated().filter(|(_, f)| covers(f)).last()?;
        Some(super::FuncRef { module, func })
    }
    /// `package.module.Class.method`
    pub fn qualified(&self, at: super::FuncRef) -> Name {
        Name::from(format!("{}.{}", self.name(at.module), self.qualname(at)))
    }

    /// `Class.method`
    pub fn qualname(&self, at: super::FuncRef) -> Name {
        self.modules[at.module].ir.qualname(at.func)
    }

    /// `package.module.Class`
    pub fn qualified_class(&self, at: super::ClassRef) -> Name {
        Name::from(format!("{}.{}", self.name(at.module), self.class(at).qualname))
    }

    /// Puts another version of a file in the place of a module; returns the one before and the names that it now binds otherwise.
    pub fn replace(&mut self, module: ModuleId, ir: FileIr) -> (Arc<FileIr>, Vec<Name>) {
        let (bindings, stars) = bindings(&ir);
        self.methods = OnceLock::new();
        let known = &mut self.modules.items[module];
        let before = std::mem::replace(&mut known.ir, Arc::new(ir));
        let mut other: Vec<Name> = Vec::new();
        let names = known.bindings.keys().chain(bindings.keys().filter(|name| !known.bindings.contains_key(*name)));
        let everything = known.stars != stars;
        other.extend(names.filter(|name| everything || known.bindings.get(*name) != bindings.get(*name)).cloned());
        other.sort_unstable();
        (known.bindings, known.stars) = (bindings, stars);
        if !other.is_empty() || everything {
            for id in self.modules.ids() {
                self.modules.items[id].bindings.values_mut().for_each(Binding::forget);
            }
        }
        (before, other)
    }
    /// Whether two versions of a module bring in names of the same modules.
    pub fn stars(&self, module: ModuleId) -> &[(Name, u32)] {
        &self.modules.quietly(module).stars
    }
}

/// What a file binds, and whose names it brings in.
type Imports<'a> = (&'a FxHashMap<Name, Binding>, &'a [(Name, u32)]);

/// Namespace packages: a folder above an outermost package whose name the project's own absolute imports put before it, with that
/// folder's path and the dotted prefix.
fn namespaces(imports: &[Imports<'_>], paths: &[&str]) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = Vec::new();
    for path in paths.iter().filter(|p| p.ends_with("/__init__.py")) {
        let folder = &path[..path.len() - "/__init__.py".len()];
        let Some((above, package)) = folder.rsplit_once('/') else { continue };
        let outermost = paths.binary_search(&format!("{above}/__init__.py").as_str()).is_err();
        let space = above.rsplit('/').next().unwrap_or(above);
        let identifier = !space.is_empty() && space.chars().all(|c| c.is_alphanumeric() || c == '_');
        if !outermost || !identifier || out.iter().any(|(f, _)| f == above) {
            continue;
        }
        let wanted = format!("{space}.{package}");
        let imported = imports.iter().any(|imports| imports_below(imports, &wanted));
        if imported {
            out.push((above.to_string(), space.to_string()));
        }
    }
    out
}

/// Whether the top level of a file imports the package or something below it.
fn imports_below((names, stars): &Imports<'_>, package: &str) -> bool {
    let below = |path: &str| path.strip_prefix(package).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    names.values().any(|b| match b {
        Binding::Import(import) => {
            let Import { path, member, .. } = &**import;
            let whole = || member.as_ref().is_some_and(|m| below(&format!("{path}.{m}")));
            import.level == 0 && (below(path) || whole())
        }
        Binding::Func(_) | Binding::Class(_) | Binding::Value => false,
    }) || stars.iter().any(|(path, level)| *level == 0 && below(path))
}

/// A module's name with its namespace package in front.
fn spaced(name: Name, path: &str, spaces: &[(String, String)]) -> Name {
    let prefix = format!("/{}", name.as_str().replace('.', "/"));
    let stem = path.strip_suffix(".py").unwrap_or(path);
    let stem = stem.strip_suffix("/__init__").unwrap_or(stem);
    let Some(folder) = stem.strip_suffix(prefix.as_str()) else { return name };
    match spaces.iter().find(|(f, _)| f == folder) {
        Some((_, space)) => Name::from(format!("{space}.{name}")),
        None => name,
    }
}

/// The folder that holds all paths, with a final `/`, or nothing.
fn common_folder(paths: &[&str]) -> String {
    let Some(first) = paths.first() else { return String::new() };
    let mut common = first.rfind('/').map_or("", |i| &first[..=i]);
    for path in paths {
        while !path.starts_with(common) {
            common = common.trim_end_matches('/').rfind('/').map_or("", |i| &common[..=i]);
        }
    }
    common.to_string()
}

/// The dotted name of a file: its path below the nearest source root. Without a configured root, the root is above the outermost
/// folder of the chain that has an `__init__.py`, else the folder common to all files.
fn module_name(path: &str, roots: &[String], common: &str, paths: &[&str]) -> Name {
    let root = roots
        .iter()
        .filter_map(|r| path.strip_prefix(r.as_str()).map(|rest| (r.len(), rest.trim_start_matches('/'))))
        .max_by_key(|(len, _)| *len);
    let below = match root {
        Some((_, rest)) => rest,
        None => below_packages(path, common, paths),
    };
    let stem = below.strip_suffix(".py").unwrap_or(below);
    let stem = stem.strip_suffix("/__init__").unwrap_or(stem);
    Name::from(stem.trim_matches('/').replace('/', "."))
}

fn below_packages<'a>(path: &'a str, common: &str, paths: &[&str]) -> &'a str {
    let mut start = path.rfind('/').map_or(0, |i| i + 1);
    loop {
        let folder = &path[..start];
        if folder.is_empty() || paths.binary_search(&format!("{folder}__init__.py").as_str()).is_err() {
            break;
        }
        start = folder.trim_end_matches('/').rfind('/').map_or(0, |i| i + 1);
    }
    if start == path.rfind('/').map_or(0, |i| i + 1) && path.starts_with(common) {
        return &path[common.len()..];
    }
    &path[start..]
}
