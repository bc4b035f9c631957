//! What a module binds at its top level, and where a dotted path leads. In: IR. Out: [`Binding`] and [`Resolved`].
//! Never: values; a binding that is neither import, function nor class is [`Binding::Value`]. Next: `infer/names.rs`.

use super::{ClassRef, FuncRef, ModuleId, Project};
use crate::ir::{Block, ClassId, FileIr, FuncId, LocalId, Stmt};
use crate::source::reads::{Read, note, note_all, number, watch};
use crate::source::{Idx, Name};
use rustc_hash::FxHashMap;
use std::sync::OnceLock;

/// What the top level of a module binds a name to.
#[derive(Clone, Debug)]
pub enum Binding {
    Func(FuncId),
    Class(ClassId),
    Import(Box<Import>),
    /// Something that only execution tells.
    Value,
}

/// What an import statement binds a name to.
#[derive(Clone, Debug)]
pub struct Import {
    /// Without leading dots.
    pub path: Name,
    /// How many dots lead.
    pub level: u32,
    /// The member of that which is imported.
    pub member: Option<Name>,
    /// What it leads to, once that was asked, and what was looked at for it.
    leads: OnceLock<Box<Lead>>,
}

/// What an import leads to, and what was looked at for it.
type Lead = (Option<Resolved>, Box<[Read]>);

impl Binding {
    /// Forgets what an import leads to.
    pub(super) fn forget(&mut self) {
        if let Binding::Import(import) = self {
            import.leads = OnceLock::new();
        }
    }
}

/// What an import leads to is no part of it.
impl PartialEq for Binding {
    fn eq(&self, other: &Binding) -> bool {
        match (self, other) {
            (Binding::Func(a), Binding::Func(b)) => a == b,
            (Binding::Class(a), Binding::Class(b)) => a == b,
            (Binding::Import(a), Binding::Import(b)) => (&a.path, a.level, &a.member) == (&b.path, b.level, &b.member),
            (Binding::Value, Binding::Value) => true,
            _ => false,
        }
    }
}

/// Where a dotted path leads.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolved {
    Func(FuncRef),
    Class(ClassRef),
    Module(ModuleId),
    /// A folder of modules without `__init__.py`, by dotted name.
    Package(Name),
    /// A value of a module's top level.
    Value(ModuleId, Name),
    /// Outside the project, by qualified path.
    External(Name),
}

/// The bindings of a module body; a later binding of a name replaces an earlier one, except that an import in a `try` keeps the
/// first (its handlers hold fallbacks).
pub(super) fn bindings(ir: &FileIr) -> (FxHashMap<Name, Binding>, Vec<(Name, u32)>) {
    let mut found = Finder { names: FxHashMap::default(), stars: Vec::new(), ir };
    if !ir.funcs.is_empty() {
        found.block(ir.funcs[FuncId::from_index(0)].body(), false);
    }
    (found.names, found.stars)
}

struct Finder<'a> {
    names: FxHashMap<Name, Binding>,
    stars: Vec<(Name, u32)>,
    ir: &'a FileIr,
}

impl Finder<'_> {
    fn bind(&mut self, local: LocalId, binding: Binding, fallback: bool) {
        let module = &self.ir.funcs[FuncId::from_index(0)];
        let name = module.locals()[local].name.clone();
        if fallback {
            self.names.entry(name).or_insert(binding);
        } else {
            self.names.insert(name, binding);
        }
    }

    fn block(&mut self, block: &Block, fallback: bool) {
        for node in block {
            match &node.stmt {
                Stmt::Def { dst, func, .. } => self.bind(*dst, Binding::Func(*func), fallback),
                Stmt::Class { dst, class, .. } => self.bind(*dst, Binding::Class(*class), fallback),
                Stmt::Import { dst, path, member, level, .. } => {
                    let (path, member) = (path.clone(), member.clone());
                    let import = Import { path, level: *level, member, leads: OnceLock::new() };
                    self.bind(*dst, Binding::Import(Box::new(import)), fallback);
                }
                Stmt::ImportStar { path, level } => self.stars.push((path.clone(), *level)),
                Stmt::Assign { dst, .. } => self.bind(*dst, Binding::Value, true),
                Stmt::Unpack { before, star, after, .. } => {
                    for local in before.iter().chain(star).chain(after) {
                        self.bind(*local, Binding::Value, true);
                    }
                }
                Stmt::If { then, orelse, .. } => {
                    self.block(then, fallback);
                    self.block(orelse, true);
                }
                Stmt::Try { body, handlers, orelse, finally } => {
                    self.block(body, fallback);
                    for handler in handlers {
                        self.block(handler, true);
                    }
                    self.block(orelse, true);
                    self.block(finally, true);
                }
                Stmt::With { body, .. } => self.block(body, fallback),
                Stmt::For { body, .. } | Stmt::While { body, .. } => self.block(body, true),
                Stmt::SetGlobal { .. }
                | Stmt::SetAttr { .. }
                | Stmt::SetItem { .. }
                | Stmt::Assert { .. }
                | Stmt::Return { .. }
                | Stmt::Raise
                | Stmt::Break
                | Stmt::Continue
                | Stmt::Append { .. }
                | Stmt::Delete { .. } => {}
            }
        }
    }
}

/// Re-exports and star imports followed before giving up.
const MAX_HOPS: u32 = 16;

impl Project {
    /// What a name of a module's top level leads to; `None` if the module does not bind it.
    pub fn member(&self, module: ModuleId, name: &str) -> Option<Resolved> {
        match self.modules.quietly(module).bindings.get(name) {
            Some(Binding::Import(import)) => {
                let (found, reads) = &**import.leads.get_or_init(|| {
                    let run = || self.member_within(module, name, MAX_HOPS);
                    Box::new(if self.watched { watch(run) } else { (run(), Box::default()) })
                });
                note_all(reads);
                found.clone()
            }
            _ => self.member_within(module, name, MAX_HOPS),
        }
    }

    /// Whether a module itself binds a name.
    pub fn binds(&self, module: ModuleId, name: &str) -> bool {
        note(|| Read::Name(module.0, number(name)));
        self.modules.quietly(module).bindings.contains_key(name)
    }

    fn member_within(&self, module: ModuleId, name: &str, hops: u32) -> Option<Resolved> {
        let hops = hops.checked_sub(1)?;
        let m = self.modules.quietly(module);
        note(|| Read::Name(module.0, number(name)));
        match m.bindings.get(name) {
            Some(Binding::Func(func)) => Some(Resolved::Func(FuncRef { module, func: *func })),
            Some(Binding::Class(class)) => Some(Resolved::Class(ClassRef { module, class: *class })),
            Some(Binding::Value) => Some(Resolved::Value(module, Name::from(name))),
            Some(Binding::Import(import)) => {
                let base = self.absolute(module, &import.path, import.level);
                Some(match &import.member {
                    Some(member) => self.path_within(&format!("{base}.{member}"), hops),
                    None => self.path_within(&base, hops),
                })
            }
            None => self.submodule(module, name).or_else(|| {
                m.stars.iter().find_map(|(path, level)| self.star_member(module, path, *level, name, hops))
            }),
        }
    }

    fn submodule(&self, module: ModuleId, name: &str) -> Option<Resolved> {
        let m = self.modules.quietly(module);
        m.is_package.then(|| self.module_named(&format!("{}.{name}", m.name))).flatten().map(Resolved::Module)
    }

    fn star_member(&self, module: ModuleId, path: &str, level: u32, name: &str, hops: u32) -> Option<Resolved> {
        let base = self.absolute(module, path, level);
        match self.module_named(&base) {
            Some(from) if from != module => self.member_within(from, name, hops),
            _ => None,
        }
    }

    /// Paths outside the project from which a module imports every name.
    pub fn external_stars(&self, module: ModuleId) -> impl Iterator<Item = String> {
        let stars = &self.modules.quietly(module).stars;
        stars
            .iter()
            .map(move |(path, level)| self.absolute(module, path, *level))
            .filter(|p| self.module_named(p).is_none())
    }

    /// An absolute import that no module of the project has the name of, in a folder that is no package: the file beside the one that imports it,
    /// as where the folder of a script is searched first.
    fn beside(&self, module: ModuleId, path: &str) -> Option<String> {
        let first = path.split('.').next().unwrap_or(path);
        let m = self.modules.quietly(module);
        let folder = m.name.rsplit_once('.').map(|(folder, _)| folder).filter(|_| !m.is_package)?;
        let stands = self.module_named(folder).is_none() && !self.is_package(first);
        // A folder of files, without more, comes after the libraries.
        (stands && self.module_named(&format!("{folder}.{first}")).is_some()).then(|| format!("{folder}.{path}"))
    }

    /// The absolute dotted path of an import. A relative import that leaves the tree keeps what is known.
    pub fn absolute(&self, module: ModuleId, path: &str, level: u32) -> String {
        if level == 0 {
            return self.beside(module, path).unwrap_or_else(|| path.to_string());
        }
        let m = self.modules.quietly(module);
        let mut base = m.name.as_str();
        let up = if m.is_package { level - 1 } else { level };
        for _ in 0..up {
            base = base.rsplit_once('.').map_or("", |(head, _)| head);
        }
        match (base.is_empty(), path.is_empty()) {
            (true, _) => path.to_string(),
            (false, true) => base.to_string(),
            (false, false) => format!("{base}.{path}"),
        }
    }

    /// Where a dotted path leads.
    pub fn path(&self, path: &str) -> Resolved {
        self.path_within(path, MAX_HOPS)
    }

    fn path_within(&self, path: &str, hops: u32) -> Resolved {
        if let Some(id) = self.module_named(path) {
            return Resolved::Module(id);
        }
        if self.is_package(path) {
            return Resolved::Package(Name::from(path));
        }
        let Some(hops) = hops.checked_sub(1) else { return Resolved::External(Name::from(path)) };
        if let Some((head, last)) = path.rsplit_once('.') {
            match self.path_within(head, hops) {
                Resolved::Module(module) => {
                    return self
                        .member_within(module, last, hops)
                        .unwrap_or_else(|| Resolved::External(Name::from(format!("{}.{last}", self.name(module)))));
                }
                Resolved::External(base) => return Resolved::External(Name::from(format!("{base}.{last}"))),
                Resolved::Func(_) | Resolved::Class(_) | Resolved::Package(_) | Resolved::Value(..) => {}
            }
        }
        Resolved::External(Name::from(path))
    }
}
