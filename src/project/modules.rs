//! Modules of the run and their dotted names. In: files in order and source roots. Out: [`Project`].
//! Never: reading packages that are not in the run. Next: `resolve.rs`.

use super::resolve::{Binding, bindings};
use crate::ir::{Class, FileIr, Func};
use crate::source::{FileId, Files, IndexVec, Name};
use rustc_hash::FxHashMap;
use std::sync::Arc;

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

/// All modules of a run.
#[derive(Clone, Debug, Default)]
pub struct Project {
    pub modules: IndexVec<ModuleId, Module>,
    by_name: FxHashMap<Name, ModuleId>,
    /// Names of packages that exist only as folders.
    packages: FxHashMap<Name, ()>,
}

impl Project {
    /// Builds the project from lowered files, in the order of `files`. `roots` are source roots as shown paths, longest match wins.
    pub fn new(files: &Files, irs: Vec<(FileId, FileIr)>, roots: &[String]) -> Project {
        let paths: Vec<&str> = files.iter().map(|(_, f)| f.path.as_str()).collect();
        let common = common_folder(&paths);
        let spaces = namespaces(&irs, &paths);
        let mut project = Project::default();
        for (file, ir) in irs {
            let path = &files[file].path;
            let name = spaced(module_name(path, roots, &common, &paths), path, &spaces);
            let is_package = path.ends_with("__init__.py");
            let (bindings, stars) = bindings(&ir);
            let module = Module { file, name: name.clone(), is_package, ir: Arc::new(ir), bindings, stars };
            let id = project.modules.push(module);
            let mut prefix = name.as_str();
            while let Some((parent, _)) = prefix.rsplit_once('.') {
                project.packages.insert(Name::from(parent), ());
                prefix = parent;
            }
            project.by_name.entry(name).or_insert(id);
        }
        project
    }

    pub fn module_named(&self, name: &str) -> Option<ModuleId> {
        self.by_name.get(name).copied()
    }
    /// Whether the name is a module or a folder of modules.
    pub fn is_package(&self, name: &str) -> bool {
        self.by_name.contains_key(name) || self.packages.contains_key(name)
    }
    pub fn func(&self, at: super::FuncRef) -> &Func {
        &self.modules[at.module].ir.funcs[at.func]
    }
    pub fn class(&self, at: super::ClassRef) -> &Class {
        &self.modules[at.module].ir.classes[at.class]
    }
    /// What the top level of a module binds, in no particular order.
    pub fn bindings(&self, module: ModuleId) -> impl Iterator<Item = (&Name, &Binding)> {
        self.modules[module].bindings.iter()
    }
    pub fn file(&self, module: ModuleId) -> FileId {
        self.modules[module].file
    }
    /// `package.module.Class.method`
    pub fn qualified(&self, at: super::FuncRef) -> Name {
        let module = &self.modules[at.module];
        Name::from(format!("{}.{}", module.name, module.ir.funcs[at.func].qualname))
    }
}

/// Namespace packages: a folder above an outermost package whose name the project's own absolute imports put before it, with that
/// folder's path and the dotted prefix.
fn namespaces(irs: &[(FileId, FileIr)], paths: &[&str]) -> Vec<(String, String)> {
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
        let imported = irs.iter().any(|(_, ir)| imports_below(ir, &wanted));
        if imported {
            out.push((above.to_string(), space.to_string()));
        }
    }
    out
}

/// Whether the top level of a file imports the package or something below it.
fn imports_below(ir: &FileIr, package: &str) -> bool {
    let (names, stars) = bindings(ir);
    let below = |path: &str| path.strip_prefix(package).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    names.values().any(|b| match b {
        Binding::Import { path, level: 0, member, .. } => {
            below(path) || member.as_ref().is_some_and(|m| below(&format!("{path}.{m}")))
        }
        Binding::Import { .. } | Binding::Func(_) | Binding::Class(_) | Binding::Value => false,
    }) || stars.iter().any(|(path, level)| *level == 0 && below(path))
}

/// A module's name with its namespace package in front.
fn spaced(name: Name, path: &str, spaces: &[(String, String)]) -> Name {
    let prefix = format!("/{}", name.replace('.', "/"));
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
