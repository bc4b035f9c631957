//! One run over a module or function: what it carries, and where it writes. In: the project, the rules, the text. Out: [`Run`] with
//! its findings and the meshes it saw. Never: evaluation. Next: `exec.rs`.

use super::found::Sharding;
use super::state::State;
use super::value::{Id, Mesh, Val};
use crate::ir::{Block, FuncId, Operand, Stmt, StmtId};
use crate::project::{ClassRef, FuncRef, ModuleId, Project, Resolved};
use crate::rules::RuleBook;
use crate::source::reads::{Read, note, number};
use crate::source::{Files, Idx, Name, Place};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Statements executed for one root; then it is left.
const MAX_STEPS: u32 = 20_000;

/// What a file says.
#[derive(PartialEq)]
pub struct Said {
    pub mode: bool,
    pub leaves_manual: bool,
    pub sets_mesh: bool,
    /// How many statements set each attribute.
    pub times: FxHashMap<Name, u32>,
}

/// What the whole project says.
#[derive(Default)]
pub struct Facts {
    mode: bool,
    leaves_manual: bool,
    sets_mesh: bool,
    set_once: FxHashSet<Name>,
}

impl Facts {
    pub fn new(said: &[Arc<Said>]) -> Facts {
        let mut times: FxHashMap<&Name, u32> = FxHashMap::default();
        for (name, n) in said.iter().flat_map(|part| &part.times) {
            *times.entry(name).or_default() += n;
        }
        Facts {
            mode: said.iter().any(|part| part.mode),
            leaves_manual: said.iter().any(|part| part.leaves_manual),
            sets_mesh: said.iter().any(|part| part.sets_mesh),
            set_once: times.into_iter().filter(|(_, n)| *n == 1).map(|(name, _)| name.clone()).collect(),
        }
    }

    pub fn differences(&self, other: &Facts) -> Vec<Read> {
        let modes = |facts: &Facts| (facts.mode, facts.leaves_manual, facts.sets_mesh);
        let mode = (modes(self) != modes(other)).then_some(Read::ShardingMode);
        let names = self.set_once.symmetric_difference(&other.set_once);
        mode.into_iter().chain(names.map(|name| Read::SetOnce(number(name)))).collect()
    }

    /// Whether something turns the mode on.
    pub fn mode(&self) -> bool {
        note(|| Read::ShardingMode);
        self.mode
    }

    /// Whether manual sharding is left somewhere.
    pub fn leaves_manual(&self) -> bool {
        note(|| Read::ShardingMode);
        self.leaves_manual
    }

    /// Whether a global mesh is set.
    pub fn sets_mesh(&self) -> bool {
        note(|| Read::ShardingMode);
        self.sets_mesh
    }

    /// Whether one statement of the project sets an attribute.
    pub fn is_set_once(&self, name: &Name) -> bool {
        note(|| Read::SetOnce(number(name)));
        self.set_once.contains(name)
    }
}

/// A mesh with what is used of it.
pub struct Used {
    pub mesh: Arc<Mesh>,
    pub axes: BTreeSet<usize>,
    pub annotates: bool,
    /// Something unknown may use it.
    pub escaped: bool,
}

/// The final values of the top level of a module.
pub type Exports = FxHashMap<Name, Val>;

pub struct Run<'a> {
    pub project: &'a Project,
    pub rules: &'a RuleBook,
    pub files: &'a Files,
    pub facts: &'a Facts,
    pub st: State,
    pub exports: FxHashMap<ModuleId, Exports>,
    pub classes: FxHashMap<Id, ClassRef>,
    pub defaults: FxHashMap<FuncRef, Vec<(u32, Val)>>,
    pub meshes: FxHashMap<Id, Used>,
    /// Values and states of the returns of each call under way.
    pub returns: Vec<Vec<(Val, State)>>,
    /// States that leave a loop early, for each loop under way.
    pub exits: Vec<Vec<State>>,
    /// Inside what may expect an exception.
    pub quiet: u32,
    /// The number of devices, if a comment says it.
    pub devices: Option<i64>,
    pub found: Vec<(Place, Sharding)>,
    /// Whether a root was left before its end.
    pub cut: bool,
    next: Id,
    left: u32,
}

impl<'a> Run<'a> {
    pub fn new(project: &'a Project, rules: &'a RuleBook, files: &'a Files, facts: &'a Facts) -> Run<'a> {
        Run {
            project,
            rules,
            files,
            facts,
            st: State::new(),
            exports: FxHashMap::default(),
            classes: FxHashMap::default(),
            defaults: FxHashMap::default(),
            meshes: FxHashMap::default(),
            returns: Vec::new(),
            exits: Vec::new(),
            quiet: 0,
            devices: None,
            found: Vec::new(),
            cut: false,
            next: 0,
            left: MAX_STEPS,
        }
    }

    /// Before a root.
    pub fn reset(&mut self) {
        let lost = self.st.lost.clone();
        self.st = State { lost, ..State::new() };
        self.returns.clear();
        self.exits.clear();
        self.quiet = 0;
        self.left = MAX_STEPS;
    }

    pub fn id(&mut self) -> Id {
        self.next += 1;
        self.next
    }

    /// Whether another statement may be executed.
    pub fn step(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.cut |= self.left == 0;
        self.left > 0
    }

    pub fn report(&mut self, place: Place, found: Sharding) {
        if self.quiet == 0 && !self.found.iter().any(|(p, f)| *p == place && *f == found) {
            self.found.push((place, found));
        }
    }

    pub fn at(&self) -> Option<FuncRef> {
        self.st.frames.last().map(|f| f.at)
    }

    /// Where a statement of the present call is.
    pub fn place(&self, id: StmtId) -> Place {
        let at = self.at().unwrap_or(body(ModuleId::from_index(0)));
        let span = self.project.func(at).spans().get(id).unwrap_or_default();
        Place { file: self.project.file(at.module), span }
    }

    /// What an operand holds.
    pub fn operand(&mut self, operand: &Operand) -> Val {
        match operand {
            Operand::Const(c) => Val::Const(c.clone()),
            Operand::Local(local) => match self.st.get(*local) {
                Some(value) => value.clone(),
                None => self.captured(*local),
            },
            Operand::Global(name) => self.global(name),
        }
    }

    /// A variable of an enclosing function that is under way.
    fn captured(&self, local: crate::ir::LocalId) -> Val {
        let Some(at) = self.at() else { return Val::Unknown };
        let func = self.project.func(at);
        let Some((outer, _)) = func.captures.iter().find(|(_, inner)| *inner == local) else { return Val::Unknown };
        let Some(parent) = func.parent else { return Val::Unknown };
        let parent = FuncRef { module: at.module, func: parent };
        let frame = self.st.frames.iter().rev().find(|f| f.at == parent);
        frame.and_then(|f| f.locals.get(outer)).cloned().unwrap_or(Val::Unknown)
    }

    fn global(&mut self, name: &Name) -> Val {
        let Some(at) = self.at() else { return Val::Unknown };
        if name == "__name__" && self.st.frames.first().is_some_and(|f| f.at == body(at.module)) {
            return Val::Const(crate::ir::Const::Str(Name::from("__main__")));
        }
        if let Some(value) = self.top_level(at.module, name) {
            return value;
        }
        match self.project.member(at.module, name) {
            Some(resolved) => self.resolved(&resolved),
            None => Val::Path(Name::from(format!("builtins.{name}"))),
        }
    }

    /// A variable of a module whose body is under way.
    fn top_level(&self, module: ModuleId, name: &str) -> Option<Val> {
        let frame = self.st.frames.iter().find(|f| f.at == body(module))?;
        let func = self.project.func(frame.at);
        let local = func.locals().named(name)?;
        frame.locals.get(&local).cloned()
    }

    /// The value of what a name or path leads to.
    pub fn resolved(&mut self, resolved: &Resolved) -> Val {
        match resolved {
            Resolved::Func(at) => Val::Func(*at),
            Resolved::Class(at) => Val::Class(*at),
            Resolved::Module(m) => Val::Module(self.project.name(*m).clone()),
            Resolved::Package(path) => Val::Module(path.clone()),
            Resolved::External(path) => Val::Path(path.clone()),
            Resolved::Value(m, name) => match self.top_level(*m, name) {
                Some(value) => value,
                None => self.exports.get(m).and_then(|e| e.get(name)).cloned().unwrap_or(Val::Unknown),
            },
        }
    }

    /// A value goes where it is not followed.
    pub fn leak(&mut self, value: &Val) {
        self.escape(value, 0);
        self.st.touch(value, 0);
    }

    /// Something that is not followed may use the meshes in a value.
    pub fn escape(&mut self, value: &Val, depth: usize) {
        if depth > 6 {
            return;
        }
        match value {
            Val::Mesh(mesh) => {
                if let Some(used) = self.meshes.get_mut(&mesh.id) {
                    used.escaped = true;
                }
            }
            Val::Tuple(items) | Val::List(items) => {
                for item in items.iter() {
                    self.escape(item, depth + 1);
                }
            }
            Val::Object(id) => {
                let held: Vec<Val> = self.st.objects.get(id).map_or_else(Vec::new, |o| o.values().cloned().collect());
                for value in held {
                    self.escape(&value, depth + 1);
                }
            }
            _ => {}
        }
    }
}

/// The body of a module.
pub fn body(module: ModuleId) -> FuncRef {
    FuncRef { module, func: FuncId::from_index(0) }
}

/// Whether a function has no decorators: calling it runs its body.
pub fn is_plain(project: &Project, at: FuncRef) -> bool {
    let func = project.func(at);
    let around = match func.class {
        Some(class) => project.class(ClassRef { module: at.module, class }).body,
        None => func.parent.unwrap_or(body(at.module).func),
    };
    count_decorators(project.func(FuncRef { module: at.module, func: around }).body(), at.func) == Some(0)
}

/// The number of decorators of the definition of a function in a block.
fn count_decorators(block: &Block, func: FuncId) -> Option<usize> {
    block.iter().find_map(|node| match &node.stmt {
        Stmt::Def { func: f, decorators, .. } if *f == func => Some(decorators.len()),
        Stmt::If { then, orelse, .. } => count_decorators(then, func).or_else(|| count_decorators(orelse, func)),
        Stmt::For { body, orelse, .. } => count_decorators(body, func).or_else(|| count_decorators(orelse, func)),
        Stmt::With { body, .. } => count_decorators(body, func),
        Stmt::Try { body, handlers, orelse, finally } => {
            [body].into_iter().chain(handlers).chain([orelse, finally]).find_map(|b| count_decorators(b, func))
        }
        _ => None,
    })
}
