//! What is asked of every function of a project, taken from a file by itself: names that it mentions, calls, imports inside functions. In: a
//! lowered file and the words of rules. Out: [`Digest`], after which the statements of most functions are not looked at again. Never: what
//! a name denotes, which other files decide. Next: `relevance.rs`, `specs.rs`, `callers.rs`.

use super::memo::{Memo, constant};
use super::practice::{COPIES, SAME, Stands, are_known, is_switch};
use super::relevance::{environment_names, planning_names, telling_names};
use super::resets::Reset;
use crate::ir::{Arg, ArgKind, Block, BuildKind, Const, FileIr, Func, FuncKind, LocalId, Operand, Param, Rvalue, Stmt};
use crate::project::{ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::{Idx, Name};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::{Arc, OnceLock};

/// Names that other things have as well: they tell only where their path does.
pub const COMMON: &[&str] =
    &["gather", "scatter", "reduce", "local", "send", "recv", "shard", "apply", "convert", "broadcast", "Scalar"];

/// Builtins that test a value against a class.
const CLASS_TESTS: &[&str] = &["isinstance", "issubclass"];

/// Names of rules that are looked for in all functions.
#[derive(Debug)]
pub struct Words {
    /// They make a function worth executing.
    pub telling: FxHashSet<Name>,
    /// Functions that apply plans to modules.
    pub planning: FxHashSet<Name>,
    /// Variables of the environment that hold the own rank, or the number of ranks.
    environment: FxHashSet<Name>,
    common: FxHashSet<Name>,
}

impl Words {
    pub fn new(rules: &RuleBook) -> Words {
        let common = COMMON.iter().map(|name| Name::from(*name)).collect();
        let environment = environment_names(rules);
        Words { telling: telling_names(rules), planning: planning_names(rules), environment, common }
    }
}

/// One file.
#[derive(Clone, Debug, Default)]
pub struct Digest {
    /// By function.
    pub funcs: Box<[Gist]>,
    /// Keywords of calls, each with what it is ever given, once.
    pub fields: Box<[(Name, Given)]>,
    /// Methods that return a name: the method's, and that one.
    pub makers: Box<[(Name, Name)]>,
    /// Variables of the module body that stand for the `apply` of a class, and the class: `enter = _Enter.apply`.
    pub applies: Box<[(Name, Name)]>,
    /// Packages that any line imports, by the first part of the path: absolute imports only.
    pub imports: FxHashSet<Name>,
    /// Attributes that any line assigns, and how many lines do.
    pub assigned: FxHashMap<Name, u32>,
    /// Attributes of classes that functions and the module set.
    pub resets: Box<[Reset]>,
}

/// What a keyword is given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Given {
    Global(Name),
    /// What a method of this name returns.
    Method(Name),
}

/// One function.
#[derive(Clone, Debug, Default)]
pub struct Gist {
    /// Whether it mentions a telling name.
    pub tells: bool,
    /// Whether it mentions a planning name.
    pub plans: bool,
    /// It makes a parameter, or a module that has one.
    pub makes_parameter: bool,
    /// A variable that is assigned more than once, and once from another one, is given to a call in a loop.
    pub passes_on: bool,
    /// A variable is given to a call in a loop.
    pub calls_in_rounds: bool,
    /// It asks the environment for the own rank, or for the number of ranks.
    pub asks_environment: bool,
    /// It may read a switch, by an attribute, a method or a name in a string.
    pub reads_switch: bool,
    /// An attribute of anything but the receiver, or an element, is assigned.
    pub puts: bool,
    /// A dict is written down.
    pub builds_dict: bool,
    /// A function, not a method, is given what a method called a copy returned, for nothing that it returns.
    pub gives_copies: bool,
    /// A variable, or what an expression gives, is called.
    pub calls_value: bool,
    /// It calls a variable that may stand for a name of a module, nobody knows which: one that is imported, or taken from something.
    pub calls_variable: bool,
    /// It imports something itself.
    pub imports: bool,
    /// Names of the module, or of builtins, that it reads, in no particular order: first those that it calls, so many.
    pub globals: Box<[Name]>,
    pub calls: u32,
    pub methods: Methods,
    pub rare: Option<Box<Rare>>,
}

/// Methods that a function calls, in no particular order; of what: a name of the module, or anything else. Most are called of something
/// without a name, and they stay for the whole run: a name of a module stands behind each of those that are called of one.
#[derive(Clone, Debug, Default)]
pub struct Methods {
    names: Box<[Name]>,
    /// How many are called of anything else; these come first.
    of_anything: u32,
}

impl Methods {
    fn new<'a>(all: impl Iterator<Item = (&'a Name, Option<&'a Name>)>) -> Methods {
        let (of_anything, of_names): (Vec<_>, Vec<_>) = all.partition(|(_, base)| base.is_none());
        let flat = |(name, base): &(&Name, Option<&Name>)| std::iter::once((*name).clone()).chain(base.cloned());
        Methods {
            names: of_anything.iter().chain(&of_names).flat_map(flat).collect(),
            of_anything: u32::try_from(of_anything.len()).expect("a file is shorter"),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Name, Option<&Name>)> {
        let (of_anything, of_names) = self.names.split_at(self.of_anything as usize);
        let pairs = of_names.chunks_exact(2).map(|pair| (&pair[0], Some(&pair[1])));
        of_anything.iter().map(|name| (name, None)).chain(pairs)
    }
}

/// What few functions have.
#[derive(Clone, Debug, Default)]
pub struct Rare {
    /// Of a module body: its own variables that it reads.
    pub bound: Vec<Name>,
    /// Common names that tell where their path does: `base.name`, or a name of the module.
    pub common: Vec<(Option<Name>, Name)>,
    /// Of which `apply` is called.
    pub applied: Vec<Name>,
    /// Parameters that are called, and the names of all variables that are.
    pub calls: Vec<LocalId>,
    pub called: Vec<Name>,
    /// What variables that are called stand for, as far as that is known.
    pub stands: Vec<Stands>,
    /// Of a constructor: attributes that it gives what tells.
    pub attributes: Vec<Name>,
}

impl Digest {
    pub fn new(ir: &FileIr, words: &Words) -> Digest {
        let mut file = PerFile::default();
        let class_of = |func: &Func| func.class.map(|class| &ir.classes[class].name);
        let funcs = ir.funcs.iter().map(|func| Walk::new(func, class_of(func), words, &mut file).read()).collect();
        Digest {
            funcs,
            fields: file.fields.into(),
            makers: file.makers.into(),
            applies: file.applies.into(),
            imports: file.imports.into_iter().map(Name::from).collect(),
            resets: file.resets.into(),
            assigned: file.assigned.into_iter().map(|(name, times)| (name.clone(), times)).collect(),
        }
    }
}

impl Words {
    /// Whether an annotation names something that tells: a layer with a contract.
    pub fn tell(&self, hint: &str) -> bool {
        hint.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| self.telling.contains(word))
    }
}

/// The digests of a project: taken while its files were lowered, or taken when somebody asks.
#[derive(Debug)]
pub struct Digests {
    words: Arc<Words>,
    /// By module.
    all: Vec<OnceLock<Digest>>,
}

impl Digests {
    /// Digests that were taken, by module.
    pub fn taken(words: Words, all: Vec<Digest>) -> Digests {
        Digests { words: Arc::new(words), all: all.into_iter().map(OnceLock::from).collect() }
    }

    /// None so far.
    pub fn later(rules: &RuleBook, modules: usize, memo: Option<&Memo>) -> Digests {
        let words = constant(memo, "words", || Words::new(rules));
        Digests { words, all: (0..modules).map(|_| OnceLock::new()).collect() }
    }

    pub fn words(&self) -> &Words {
        &self.words
    }

    pub fn of(&self, project: &Project, module: ModuleId) -> &Digest {
        let ir = &project.modules[module].ir;
        self.all[module.index()].get_or_init(|| Digest::new(ir, &self.words))
    }
}

/// What the functions of a file have in common.
#[derive(Default)]
struct PerFile<'a> {
    fields: Vec<(Name, Given)>,
    given: FxHashSet<(&'a Name, bool, &'a Name)>,
    makers: Vec<(Name, Name)>,
    applies: Vec<(Name, Name)>,
    imports: FxHashSet<&'a str>,
    assigned: FxHashMap<&'a Name, u32>,
    resets: Vec<Reset>,
    /// By local of the present function: the last value on the way so far.
    temps: Vec<Option<&'a Rvalue>>,
    /// By local of the present function: whether it was read before, and whether it is what a method called a copy returned.
    read: Vec<bool>,
    copied: Vec<bool>,
    /// By local of the present function: how it is assigned and used.
    used: Vec<Used>,
    /// Names and strings that were met, and whether they are switches.
    switches: FxHashMap<&'a Name, bool>,
}

/// How a variable is assigned and used.
#[derive(Clone, Copy, Default)]
struct Used {
    assigned: u8,
    from_other: bool,
    passed_in_loop: bool,
}

/// A function that is being read.
struct Walk<'a, 'f> {
    words: &'f Words,
    file: &'f mut PerFile<'a>,
    func: &'a Func,
    /// The class whose method it is.
    class: Option<&'a Name>,
    gist: Gist,
    rare: Rare,
    globals: FxHashSet<&'a Name>,
    methods: FxHashSet<(&'a Name, Option<&'a Name>)>,
    /// Names of the module, and variables, that it calls.
    called: FxHashSet<&'a Name>,
    calls: Vec<LocalId>,
    /// What functions return that are given copies.
    given_copies: Vec<LocalId>,
}

impl<'a, 'f> Walk<'a, 'f> {
    fn new(func: &'a Func, class: Option<&'a Name>, words: &'f Words, file: &'f mut PerFile<'a>) -> Walk<'a, 'f> {
        file.temps.clear();
        file.temps.resize(func.locals().len(), None);
        file.read.clear();
        file.read.resize(func.locals().len(), false);
        file.copied.clear();
        file.copied.resize(func.locals().len(), false);
        file.used.clear();
        file.used.resize(func.locals().len(), Used::default());
        Walk {
            words,
            file,
            func,
            class,
            gist: Gist::default(),
            rare: Rare::default(),
            globals: FxHashSet::default(),
            methods: FxHashSet::default(),
            called: FxHashSet::default(),
            calls: Vec::new(),
            given_copies: Vec::new(),
        }
    }

    fn read(mut self) -> Gist {
        let func = self.func;
        self.block(func.body(), true, false);
        if func.class.is_some() {
            for node in func.body() {
                if let Stmt::Return { value: Operand::Global(name) } = &node.stmt {
                    self.file.makers.push((func.name.clone(), name.clone()));
                }
            }
            if func.name == "__init__" {
                self.rare.attributes = telling_attributes(func, self.words);
            }
        }
        let passed_on = |used: &Used| used.assigned > 1 && used.from_other && used.passed_in_loop;
        self.gist.passes_on = self.file.used.iter().any(passed_on);
        self.gist.calls_in_rounds = self.file.used.iter().any(|used| used.passed_in_loop);
        self.gist.gives_copies = self.given_copies.iter().any(|dst| !self.file.read[dst.index()]);
        if !self.calls.is_empty() {
            let called: FxHashSet<LocalId> = self.calls.iter().copied().collect();
            self.gist.calls_variable = !are_known(func.body(), &called, &mut self.rare.stands);
        }
        self.rare.calls = self.calls.iter().copied().filter(|c| func.params.iter().any(|p| p.local == *c)).collect();
        // Of anything inside a project once is of anything for good.
        let anywhere: FxHashSet<&Name> =
            self.methods.iter().filter(|(_, base)| base.is_none()).map(|(name, _)| *name).collect();
        let apart = |(name, base): &(&Name, Option<&Name>)| base.is_none() || !anywhere.contains(name);
        let methods = self.methods.iter().copied().filter(apart);
        self.gist.methods = Methods::new(methods);
        let (calls, reads): (Vec<&Name>, Vec<&Name>) = self.globals.into_iter().partition(|n| self.called.contains(n));
        self.gist.calls = u32::try_from(calls.len()).unwrap_or(u32::MAX);
        self.gist.globals = calls.into_iter().chain(reads).cloned().collect();
        for local in &self.calls {
            let name = &func.locals()[*local].name;
            if !name.is_empty() && !self.rare.called.contains(name) {
                self.rare.called.push(name.clone());
            }
        }
        self.gist.rare = (!self.rare.is_empty()).then(|| Box::new(self.rare));
        self.gist
    }

    /// `plain`: values are followed there. `round`: it is inside a loop.
    fn block(&mut self, block: &'a Block, plain: bool, round: bool) {
        for node in block {
            self.gist.reads_switch = self.gist.reads_switch || self.reads_switch(&node.stmt);
            match &node.stmt {
                Stmt::Assign { dst, value } => {
                    self.assigned(*dst, may_be_other(value));
                    match value {
                        Rvalue::Call { args, .. } if round => args.iter().for_each(|arg| self.passed(&arg.value)),
                        Rvalue::CallMethod { base, args, .. } if round => {
                            args.iter().map(|arg| &arg.value).chain([base]).for_each(|operand| self.passed(operand));
                        }
                        _ => {}
                    }
                    if plain {
                        self.file.temps[dst.index()] = Some(value);
                    }
                    self.file.copied[dst.index()] |=
                        matches!(value, Rvalue::CallMethod { name, .. } if COPIES.contains(&name.as_str()));
                    self.rvalue(*dst, value, plain);
                    continue;
                }
                Stmt::SetAttr { base, name, .. } => {
                    *self.file.assigned.entry(name).or_default() += 1;
                    self.gist.puts |= matches!(base, Operand::Local(l) if self.func.locals()[*l].name != "self");
                    self.reset(base, name);
                }
                Stmt::SetItem { .. } => self.gist.puts = true,
                Stmt::For { dst, .. } => self.assigned(*dst, true),
                Stmt::Unpack { before, star, after, .. } => {
                    before.iter().chain(star).chain(after).for_each(|local| self.assigned(*local, true));
                }
                Stmt::With { bind: Some(local), .. } => self.assigned(*local, false),
                Stmt::Import { path, level, .. } | Stmt::ImportStar { path, level } => {
                    self.gist.imports = true;
                    if *level == 0 {
                        self.file.imports.insert(path.split_once('.').map_or(path.as_str(), |(first, _)| first));
                    }
                }
                _ => {}
            }
            let round = round || matches!(node.stmt, Stmt::For { .. } | Stmt::While { .. });
            for (at, inner) in node.stmt.blocks().enumerate() {
                self.block(inner, plain && is_followed(&node.stmt, at), round);
            }
        }
    }

    /// `setattr(Tp, "size", n)`
    fn set_by_name(&mut self, args: &'a [Arg]) {
        if let [base, Arg { value: Operand::Const(Const::Str(name)), .. }, _] = args {
            self.reset(&base.value, name);
        }
    }

    /// An attribute of something is set, which may be a class.
    fn reset(&mut self, base: &'a Operand, attribute: &Name) {
        if let Some(class) = self.class_named(base) {
            self.file.resets.push(Reset::new(class, attribute, &self.func.name));
        }
    }

    /// The class that an operand is by its name: `Tp`, `state.Tp`, `cls`, `self.__class__`.
    fn class_named(&self, operand: &'a Operand) -> Option<&'a Name> {
        let is_class = |name: &Name| name.trim_start_matches('_').starts_with(|first: char| first.is_ascii_uppercase());
        match operand {
            Operand::Global(name) => is_class(name).then_some(name),
            Operand::Local(local) => match self.file.temps[local.index()] {
                Some(Rvalue::Attr { name, .. }) if name == "__class__" => self.class,
                Some(Rvalue::Attr { name, .. }) => is_class(name).then_some(name),
                _ => {
                    let name = &self.func.locals()[*local].name;
                    if name == "cls" { self.class } else { is_class(name).then_some(name) }
                }
            },
            Operand::Const(_) => None,
        }
    }

    fn assigned(&mut self, local: LocalId, from_other: bool) {
        let used = &mut self.file.used[local.index()];
        used.assigned = used.assigned.saturating_add(1);
        used.from_other |= from_other;
    }

    fn passed(&mut self, operand: &Operand) {
        if let Operand::Local(local) = operand {
            self.file.used[local.index()].passed_in_loop = true;
        }
    }

    fn reads_switch(&mut self, stmt: &'a Stmt) -> bool {
        let mut is_one = |name: &'a Name| *self.file.switches.entry(name).or_insert_with(|| is_switch(name));
        let named = match stmt {
            Stmt::Assign { value: Rvalue::Attr { name, .. } | Rvalue::CallMethod { name, .. }, .. } => {
                name == "__dict__" || is_one(name)
            }
            _ => false,
        };
        let mut text = |o: &&'a Operand| matches!(o, Operand::Const(Const::Str(text)) if is_one(text));
        named || stmt.operands().iter().any(&mut text)
    }

    fn rvalue(&mut self, dst: LocalId, value: &'a Rvalue, plain: bool) {
        match value {
            Rvalue::Attr { base, name } => {
                self.gist.tells |= self.words.telling.contains(name);
                self.common(Some(base), name);
                self.operand(base);
                if name == "apply" && self.func.kind == FuncKind::Module {
                    let called = |at: LocalId| self.func.locals()[at].name.clone();
                    let class = match base {
                        Operand::Local(class) => called(*class),
                        Operand::Global(class) => class.clone(),
                        Operand::Const(_) => return,
                    };
                    self.file.applies.push((called(dst), class));
                }
            }
            Rvalue::Use(operand) | Rvalue::Item { index: operand @ Operand::Const(_), .. } => self.operand(operand),
            Rvalue::Call { callee, args } => {
                if plain {
                    self.given(args);
                }
                let copied = |arg: &Arg| matches!(&arg.value, Operand::Local(l) if self.file.copied[l.index()]);
                if args.iter().any(copied) {
                    self.given_copies.push(dst);
                }
                self.gist.calls_value |= !matches!(callee, Operand::Global(_));
                // A class that a value is tested against is not called.
                if matches!(callee, Operand::Global(name) if CLASS_TESTS.contains(&name.as_str())) {
                    return;
                }
                self.gist.makes_parameter |= matches!(callee, Operand::Global(name) if name == "Parameter");
                if matches!(callee, Operand::Global(name) if name == "setattr") {
                    self.set_by_name(args);
                }
                match callee {
                    Operand::Global(name) => _ = self.called.insert(name),
                    Operand::Local(local) => self.calls.push(*local),
                    Operand::Const(_) => {}
                }
                self.operand(callee);
                args.iter().for_each(|arg| self.operand(&arg.value));
            }
            Rvalue::CallMethod { base, name, args } => {
                if plain {
                    self.given(args);
                }
                let of = match base {
                    Operand::Global(base) => Some(base),
                    Operand::Local(_) | Operand::Const(_) => None,
                };
                if self.methods.insert((name, of)) {
                    self.gist.plans |= self.words.planning.contains(name);
                    self.gist.tells |= self.words.telling.contains(name);
                    self.gist.makes_parameter |= name == "Parameter";
                    self.common(Some(base), name);
                    if name == "apply" {
                        self.rare.applied.extend(of.cloned());
                    }
                }
                self.operand(base);
                args.iter().for_each(|arg| self.operand(&arg.value));
            }
            Rvalue::Build { kind: BuildKind::Dict, .. } => self.gist.builds_dict = true,
            _ => {}
        }
    }

    fn operand(&mut self, operand: &'a Operand) {
        let name = match operand {
            Operand::Global(name) => {
                if name.is_empty() || !self.globals.insert(name) {
                    return;
                }
                self.common(None, name);
                name
            }
            Operand::Local(local) => {
                if std::mem::replace(&mut self.file.read[local.index()], true) {
                    return;
                }
                let name = &self.func.locals()[*local].name;
                if !name.is_empty() && self.func.kind == FuncKind::Module {
                    self.rare.bound.push(name.clone());
                }
                name
            }
            Operand::Const(Const::Str(text)) => {
                self.gist.asks_environment |= self.words.environment.contains(text);
                return;
            }
            Operand::Const(_) => return,
        };
        self.gist.tells |= self.words.telling.contains(name);
        self.gist.plans |= self.words.planning.contains(name);
    }

    /// Keeps a common name whose path can be known: `base.name`, or `name` as it was imported.
    fn common(&mut self, base: Option<&'a Operand>, name: &'a Name) {
        if !self.words.common.contains(name) {
            return;
        }
        let of = match base {
            None => None,
            Some(Operand::Global(base)) => Some(base.clone()),
            Some(Operand::Local(_) | Operand::Const(_)) => return,
        };
        let found = (of, name.clone());
        if !self.rare.common.contains(&found) {
            self.rare.common.push(found);
        }
    }

    /// What the keywords of a call are given.
    fn given(&mut self, args: &'a [Arg]) {
        for arg in args {
            let ArgKind::Keyword(field) = &arg.kind else { continue };
            let (is_method, name) = match &arg.value {
                Operand::Global(name) => (false, name),
                Operand::Local(local) => match self.file.temps[local.index()] {
                    Some(Rvalue::CallMethod { name, .. }) => (true, name),
                    Some(Rvalue::Use(Operand::Global(name))) => (false, name),
                    _ => continue,
                },
                Operand::Const(_) => continue,
            };
            if self.file.given.insert((field, is_method, name)) {
                let given = if is_method { Given::Method(name.clone()) } else { Given::Global(name.clone()) };
                self.file.fields.push((field.clone(), given));
            }
        }
    }
}

/// Whether a value may be another variable's, also made contiguous, or several put together.
fn may_be_other(value: &Rvalue) -> bool {
    match value {
        Rvalue::Use(operand) | Rvalue::Await(operand) => matches!(operand, Operand::Local(_)),
        Rvalue::CallMethod { name, .. } => SAME.contains(&name.as_str()) || matches!(name.as_str(), "stack" | "cat"),
        _ => false,
    }
}

impl Gist {
    /// Names of the module that it calls.
    pub fn called_names(&self) -> impl Iterator<Item = &Name> {
        self.globals.iter().take(self.calls as usize)
    }

    /// Names that it calls, as functions, variables or methods.
    pub fn called(&self) -> impl Iterator<Item = &Name> {
        let variables = self.rare.iter().flat_map(|rare| &rare.called);
        self.called_names().chain(self.methods.iter().map(|(name, _)| name)).chain(variables)
    }

    /// What variables that it calls stand for, as far as that is known.
    pub fn stands(&self) -> impl Iterator<Item = &Stands> {
        self.rare.iter().flat_map(|rare| &rare.stands)
    }

    /// Names of the module that it calls, under their own name or that of a variable.
    pub fn names_called(&self) -> impl Iterator<Item = &Name> {
        let stands = self.stands().filter_map(|stands| match stands {
            Stands::For(name) => Some(name),
            Stands::Attribute(..) => None,
        });
        self.called_names().chain(stands)
    }

    /// Methods that it calls, or members of modules, under their own name or that of a variable; of what: a name of the module, or
    /// anything else.
    pub fn members_called(&self) -> impl Iterator<Item = (&Name, Option<&Name>)> {
        let stands = self.stands().filter_map(|stands| match stands {
            Stands::Attribute(base, name) => Some((name, base.as_ref())),
            Stands::For(_) => None,
        });
        self.methods.iter().chain(stands)
    }
}

impl Rare {
    fn is_empty(&self) -> bool {
        let Rare { bound, common, applied, calls, called, stands, attributes } = self;
        bound.is_empty()
            && common.is_empty()
            && applied.is_empty()
            && calls.is_empty()
            && called.is_empty()
            && stands.is_empty()
            && attributes.is_empty()
    }
}

/// Whether values are followed into a block of a statement: the one in this place.
fn is_followed(stmt: &Stmt, at: usize) -> bool {
    match stmt {
        Stmt::If { .. } => true,
        Stmt::With { .. } | Stmt::For { .. } | Stmt::Try { .. } => at == 0,
        _ => false,
    }
}

/// Attributes that a constructor gives what tells: a layer that it makes, or that the annotation of a parameter names.
fn telling_attributes(init: &Func, words: &Words) -> Vec<Name> {
    let hinted = |p: &&Param| p.hint.as_deref().is_some_and(|h| words.tell(h));
    let mut locals: Vec<LocalId> = init.params.iter().filter(hinted).map(|p| p.local).collect();
    let mut out = Vec::new();
    let mut open: Vec<&Block> = vec![init.body()];
    while let Some(block) = open.pop() {
        for node in block {
            match &node.stmt {
                Stmt::Assign { dst, value: Rvalue::Call { callee: Operand::Global(name), .. } }
                    if words.telling.contains(name) =>
                {
                    locals.push(*dst);
                }
                Stmt::SetAttr { name, value: Operand::Local(value), .. } if locals.contains(value) => {
                    out.push(name.clone());
                }
                other => open.extend(other.blocks()),
            }
        }
    }
    out
}
