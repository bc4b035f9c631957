//! What a function or a constructor shows at first sight, so that most are never flattened into steps. In: statements. Out: [`Glance`],
//! and whether a constructor may mark parameters. Never: a finding, or the absence of one where a check would look further.
//! Next: `mod.rs`, which asks.

use super::gradient::talks;
use super::view::{member_may_communicate, resolved_may_communicate};
use super::{Lint, group_argument, recursion, reducers, switch};
use crate::infer::digest::Gist;
use crate::ir::{Block, Func, FuncKind, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId, Project, Resolved};
use crate::rules::RuleBook;
use crate::source::{Idx, Name};
use rustc_hash::{FxHashMap, FxHashSet};

/// What the statements of a function show.
#[derive(Clone, Copy, Debug, Default)]
pub struct Glance {
    /// Something that may communicate is called.
    pub communicates: bool,
    /// Something is summed by a method, as counts are.
    pub counts: bool,
    /// A switch may be read.
    pub switches: bool,
    /// An attribute is set by its name.
    pub set_by_name: bool,
    /// A function is given what a method called a copy returned.
    pub gives_copies: bool,
    /// Something is put into a module that may be there already.
    pub puts: bool,
    /// A wrapper of modules may be called.
    pub wraps: bool,
    /// A variable that is another one at first is passed on in a loop.
    pub passes_on: bool,
    /// A variable is given to something that is called in a loop.
    pub calls_in_rounds: bool,
    /// A dict is built or given an element, or a plan is applied.
    pub plans: bool,
    /// A parameter is named as a switch is.
    pub is_switched: bool,
    /// A function is called that may be given a group or left without one.
    pub leaves_groups: bool,
    /// The rank among all ranks may be asked for.
    pub asks_rank: bool,
    /// Something may be called by another name than its own.
    pub renames: bool,
    /// It may call itself, and may be given a group or left without one.
    pub recurs: bool,
}

/// What a name of a module denotes.
#[derive(Clone, Copy, Debug)]
struct Denoted {
    /// A function that may communicate.
    communicates: bool,
    /// A function of the project that has a group unless it is given another one.
    has_group: bool,
    /// A function that gives the rank among all ranks.
    is_rank: bool,
    /// A module of the project.
    module: Option<ModuleId>,
    /// A wrapper of modules.
    wraps: bool,
    /// Something whose own name is another one.
    renamed: bool,
    /// A function of the project, or something that has another name that a reduction may have.
    may_reduce: bool,
    /// A module or package of the project.
    has_members: bool,
}

/// What is looked for in the functions of a module.
pub struct Glancer<'a> {
    project: &'a Project,
    rules: &'a RuleBook,
    module: ModuleId,
    /// Whether the text of the file names anything that communicates.
    communicates: bool,
    /// Names that were met.
    known: FxHashMap<&'a Name, Denoted>,
}

impl Glance {
    /// What a function shows without what names of its module denote.
    pub fn alone(func: &Func, gist: &Gist, communicates: bool) -> Glance {
        let calls = |called: fn(&str) -> bool| gist.methods.iter().any(|(name, _)| called(name));
        let set_by_name = gist.called_names().any(|name| name == "setattr");
        let unknown = gist.calls_variable || gist.stands().any(|stands| matches!(stands, Stands::Attribute(..)));
        Glance {
            communicates,
            switches: false,
            counts: calls(|name| matches!(name, "sum" | "count_nonzero")),
            set_by_name,
            gives_copies: gist.gives_copies,
            puts: gist.puts || set_by_name,
            wraps: unknown,
            passes_on: gist.passes_on,
            calls_in_rounds: gist.calls_in_rounds,
            plans: gist.puts || gist.builds_dict || gist.plans,
            is_switched: func.kind == FuncKind::Function && func.params.iter().any(|p| switch::is_switch(&p.name)),
            leaves_groups: unknown && may_keep_group(func),
            asks_rank: unknown || calls(|name| name.ends_with("rank")),
            renames: unknown,
            recurs: gist.called().any(|name| *name == func.name) && recursion::may_forget(func),
        }
    }
}

/// Whether a function may have a group: as a parameter, or as an attribute of its object.
fn may_keep_group(func: &Func) -> bool {
    let given = || func.params.iter().any(group_argument::may_be_group);
    func.kind == FuncKind::Function && (func.class.is_some() || given())
}

impl<'a> Glancer<'a> {
    pub fn new(project: &'a Project, rules: &'a RuleBook, module: ModuleId, communicates: bool) -> Glancer<'a> {
        Glancer { project, rules, module, communicates, known: FxHashMap::default() }
    }

    /// Looks at a function. `switches`: whether its text has words of switches.
    pub fn look(&mut self, func: &'a Func, gist: &'a Gist, switches: bool) -> Glance {
        let rules = self.rules;
        let communicates = self.communicates && self.communicates(gist);
        let mut out = Glance::alone(func, gist, communicates);
        let mut denotes = |what: fn(&Denoted) -> bool| gist.names_called().any(|name| what(&self.denoted(name)));
        // By its name or as a member: `torch.nn.parallel.DistributedDataParallel(..)`.
        let member = |(name, _): (&Name, Option<&Name>)| rules.wrappers().ends_with(name);
        out.wraps = out.wraps || denotes(|d| d.wraps) || gist.members_called().any(member);
        out.leaves_groups = out.leaves_groups || may_keep_group(func) && denotes(|d| d.has_group);
        out.renames = out.renames || denotes(|d| d.renamed);
        out.asks_rank = out.asks_rank || denotes(|d| d.is_rank) || self.asks_module(gist);
        out.switches = switches && gist.reads_switch;
        out
    }

    /// Whether a function may call one of another module of the project that gives the rank among all ranks, whatever its name there.
    fn asks_module(&mut self, gist: &'a Gist) -> bool {
        gist.methods.iter().any(|(name, base)| {
            let of = base.and_then(|base| self.denoted(base).module);
            let found = of.and_then(|of| self.project.member(of, name));
            found.is_some_and(|found| is_rank(name, path_of(self.project, &found).as_ref()))
        })
    }

    /// Whether a function calls something that may communicate.
    pub fn communicates(&mut self, gist: &'a Gist) -> bool {
        let (project, rules, module) = (self.project, self.rules, self.module);
        let member = |(name, base): (&Name, Option<&Name>)| {
            let by_module = |base| member_may_communicate(project, rules, (module, base), name);
            rules.may_communicate(name) || base.is_some_and(by_module)
        };
        gist.calls_variable
            || gist.members_called().any(member)
            || gist.names_called().any(|name| self.denoted(name).communicates)
    }

    /// Whether a function that speaks of gradients may reduce them, itself or through what it calls.
    pub fn may_reduce(&mut self, gist: &'a Gist) -> bool {
        let (project, module) = (self.project, self.module);
        let named = |(name, base): (&Name, Option<&Name>)| {
            let own =
                || project.member(module, base?).filter(|of| matches!(of, Resolved::Module(_) | Resolved::Package(_)));
            reducers::may_name(name) || own().is_some()
        };
        self.communicates && self.communicates(gist)
            || gist.calls_variable
            || gist.imports
            || gist.members_called().any(named)
            || gist.names_called().any(|name| reducers::may_name(name) || self.denoted(name).may_reduce)
    }

    /// Whether a walk through a function of a class may meet something that cuts gradients: a collective, or a function that speaks of some.
    pub fn may_cut(&mut self, lint: &Lint<'_>, class: Option<ClassRef>, gist: &'a Gist) -> bool {
        let project = self.project;
        let of_class = |name: &Name| {
            let line = class.map(|class| lint.settings.statics.linearized(class));
            let methods = line.iter().flat_map(|line| line.iter()).filter_map(|c| project.own_method(*c, name));
            methods.into_iter().any(|at| talks(lint, at))
        };
        gist.calls_variable
            || gist.imports
            || self.communicates(gist)
            || gist.members_called().any(|(name, _)| name == "apply" || of_class(name))
            || gist.globals.iter().any(|name| self.denoted(name).has_members)
            || gist.names_called().any(|name| match project.member(self.module, name) {
                Some(Resolved::Func(at)) => talks(lint, at),
                _ => false,
            })
    }

    fn denoted(&mut self, name: &'a Name) -> Denoted {
        let (project, rules, module) = (self.project, self.rules, self.module);
        *self.known.entry(name).or_insert_with(|| {
            let resolved = project.member(module, name);
            let func = match &resolved {
                Some(Resolved::Func(at)) => Some(project.func(*at)),
                _ => None,
            };
            let path = resolved.as_ref().and_then(|resolved| path_of(project, resolved));
            Denoted {
                communicates: resolved_may_communicate(project, rules, name, resolved.as_ref()),
                has_group: func
                    .is_some_and(|f| f.params.iter().any(|p| p.has_default && group_argument::may_be_group(p))),
                is_rank: is_rank(name, path.as_ref()),
                module: match &resolved {
                    Some(Resolved::Module(of)) => Some(*of),
                    _ => None,
                },
                wraps: path.as_ref().is_some_and(|path| rules.wrappers().get(path).is_some()),
                may_reduce: func.is_some() || path.as_ref().is_some_and(|path| reducers::may_name(path)),
                has_members: matches!(&resolved, Some(Resolved::Module(_) | Resolved::Package(_))),
                renamed: match &resolved {
                    Some(Resolved::Value(_, own)) => own != name,
                    _ => path.is_some_and(|path| path.rsplit('.').next() != Some(name)),
                },
            }
        })
    }
}

/// The path of a function or a class.
fn path_of(project: &Project, resolved: &Resolved) -> Option<Name> {
    match resolved {
        Resolved::External(_) | Resolved::Func(_) | Resolved::Class(_) => Some(super::expr::path_of(project, resolved)),
        Resolved::Module(_) | Resolved::Package(_) | Resolved::Value(..) => None,
    }
}

/// Whether something with this name, and this path, gives the rank among all ranks.
fn is_rank(name: &Name, path: Option<&Name>) -> bool {
    name == "get_rank" || path.is_some_and(|path| path.ends_with(".get_rank"))
}

/// What a called variable stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stands {
    /// A name of the module.
    For(Name),
    /// An attribute: of a name of the module, or of anything else.
    Attribute(Option<Name>, Name),
}

/// Adds what names of a module, or members of others, variables may stand for; whether these are all.
pub fn are_known(block: &Block, locals: &FxHashSet<LocalId>, stands: &mut Vec<Stands>) -> bool {
    block.iter().all(|node| match &node.stmt {
        Stmt::Assign { dst, .. } if !locals.contains(dst) => true,
        Stmt::Assign { value: Rvalue::Use(Operand::Global(name)), .. } => {
            stands.push(Stands::For(name.clone()));
            true
        }
        Stmt::Assign { value: Rvalue::Attr { base, name }, .. } => {
            let of = match base {
                Operand::Global(base) => Some(base.clone()),
                Operand::Local(_) | Operand::Const(_) => None,
            };
            stands.push(Stands::Attribute(of, name.clone()));
            true
        }
        Stmt::Assign { value, .. } => !matches!(value, Rvalue::Use(Operand::Local(_)) | Rvalue::Await(_)),
        Stmt::Import { dst, .. } => !locals.contains(dst),
        Stmt::Unpack { before, star, after, .. } => !before.iter().chain(star).chain(after).any(|l| locals.contains(l)),
        stmt => stmt.blocks().all(|inner| are_known(inner, locals, stands)),
    })
}

/// Whether the constructor of a class may mark parameters: itself, or through a function that it calls.
pub fn may_mark(lint: &Lint<'_>, class: ClassRef) -> bool {
    let init = lint.project.class(class).methods.iter().find(|(n, _)| n == "__init__");
    init.is_some_and(|(_, func)| {
        let at = FuncRef { module: class.module, func: *func };
        let digest = lint.taken.digests.of(lint.project, class.module);
        let gist = &digest.funcs[func.index()];
        let may = gist.calls_value
            || digest.assigned.keys().any(|name| super::marks::is_mark(lint, name))
            || gist.globals.iter().any(|name| call_marks(lint, class.module, name));
        may && block_marks(lint, class.module, lint.project.func(at).body())
    })
}

fn block_marks(lint: &Lint<'_>, module: ModuleId, block: &Block) -> bool {
    block.iter().any(|node| match &node.stmt {
        Stmt::SetAttr { name, .. } => super::marks::is_mark(lint, name),
        Stmt::Assign { value: Rvalue::Call { callee: Operand::Global(name), .. }, .. } => {
            call_marks(lint, module, name)
        }
        Stmt::Assign { value: Rvalue::Call { .. }, .. } => true,
        stmt => stmt.blocks().any(|inner| block_marks(lint, module, inner)),
    })
}

/// Whether what is called may mark what it is given.
fn call_marks(lint: &Lint<'_>, module: ModuleId, name: &Name) -> bool {
    if name == "setattr" {
        return true;
    }
    let Some(resolved) = lint.project.member(module, name) else { return lint.rules.may_mark(name) };
    match resolved {
        Resolved::Func(at) => {
            let f = lint.project.func(at);
            let text = lint.files[lint.project.file(at.module)].slice(f.span);
            lint.rules.may_mark(&f.name) || f.kind == FuncKind::Function && super::marks::says_mark(lint, text)
        }
        Resolved::External(path) => lint.rules.may_mark(path.rsplit('.').next().unwrap_or(&path)),
        Resolved::Class(_) | Resolved::Module(_) | Resolved::Package(_) => false,
        Resolved::Value(_, name) => lint.rules.may_mark(&name),
    }
}
