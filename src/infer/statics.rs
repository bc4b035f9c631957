//! Static facts of definitions: how methods bind, default values, class hierarchies, exported values. In: the project.
//! Out: look-ups used by every root. Never: execution of bodies. Next: `mod.rs`.

use super::external::decorator_of_path;
use super::limits::{MAX_EXPR_DEPTH, MAX_STANDING};
use super::memo::{Memo, Task, combined, kept_equals, taken};
use super::parameters::protocol_at;
use super::value::{Closure, Flavour, Value};
use crate::ir::{Block, ClassId, Const, Func, FuncId, LocalId, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId, Project, Resolved};
use crate::rules::{ProtocolRule, RuleBook};
use crate::source::reads::{Read, note};
use crate::source::{Idx, Name};
use litemap::LiteMap;
use rustc_hash::FxHashMap;
use std::cell::OnceCell;
use std::sync::{Arc, OnceLock};

/// What is known of a function or class from its definition alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statics {
    funcs: FxHashMap<FuncRef, FuncFacts>,
    classes: FxHashMap<ClassRef, ClassFacts>,
    /// The frameworks of modules, as places in [`RuleBook::protocols`].
    protocols: FxHashMap<ModuleId, usize>,
}

/// What one module says.
#[derive(Clone, Debug, Default, PartialEq)]
struct Part {
    statics: Statics,
    bases: FxHashMap<ClassRef, Vec<ClassRef>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct FuncFacts {
    /// `None`: decorated by something unknown.
    flavour: Option<Flavour>,
    defaults: Box<[(u32, Value)]>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ClassFacts {
    order: Arc<[ClassRef]>,
    /// Qualified paths of bases outside the project.
    external: Box<[Name]>,
    members: LiteMap<Name, Member>,
    dataclass: bool,
    /// Whether another class derives from it.
    is_base: bool,
    /// The classes that an object of it may be of: those that derive from it, and of an interface those that have all of its methods; `None`: many.
    stands_for: Option<Box<[ClassRef]>>,
    fields: Box<[(Name, Option<Value>)]>,
}

/// What the body of a class binds a name to.
#[derive(Clone, Debug)]
enum Member {
    /// A method, and its closure once somebody asked: most methods are never looked up.
    Method(FuncRef, OnceLock<Box<Value>>),
    Value(Value),
}

/// Closures follow from functions, which are compared as such.
impl PartialEq for Member {
    fn eq(&self, other: &Member) -> bool {
        match (self, other) {
            (Member::Method(a, _), Member::Method(b, _)) => a == b,
            (Member::Value(a), Member::Value(b)) => a == b,
            (Member::Method(..), Member::Value(_)) | (Member::Value(_), Member::Method(..)) => false,
        }
    }
}

impl Statics {
    pub fn new(project: &Project, rules: &RuleBook, memo: Option<&Memo>) -> Arc<Statics> {
        let modules: Vec<ModuleId> = project.modules.ids().collect();
        let parts = kept_equals(memo, &modules, Task::Statics, |module| Statics::of_module(project, rules, module));
        combined(memo, "statics", parts, Statics::joined, Statics::differences)
    }

    fn of_module(project: &Project, rules: &RuleBook, module: ModuleId) -> Part {
        let mut part = Part::default();
        let m = &project.modules[module];
        part.statics.protocols.extend(protocol_at(project, rules, module).map(|at| (module, at)));
        // Where nothing is defined, nothing is said: few functions have others inside.
        for func in m.ir.defining().into_iter().map(|id| &m.ir.funcs[id]) {
            let scan = Scan { project, rules, module, func, temps: OnceCell::new() };
            scan.block(func.body(), &mut part.statics, &mut part.bases);
        }
        for class in m.ir.classes.ids() {
            let at = ClassRef { module, class };
            let mut members = class_members(project, at);
            let facts = part.statics.classes.entry(at).or_default();
            if facts.external.iter().any(|b| b.starts_with("enum.")) {
                // The members of an enumeration are themselves, whatever their values.
                let base = project.qualified_class(at);
                for (name, member) in &mut members.0 {
                    if let Member::Value(value) = member {
                        *value = Value::Path(Name::from(format!("{base}.{name}")));
                    }
                }
            }
            facts.members = members.0.into_iter().collect();
            // Attributes of other classes are no fields, not even where a dataclass derives from them.
            if facts.dataclass {
                facts.fields = members.1.into();
            }
        }
        part
    }

    fn joined(parts: Vec<Arc<Part>>) -> Statics {
        let mut out = Statics::default();
        let mut bases: FxHashMap<ClassRef, Vec<ClassRef>> = FxHashMap::default();
        out.funcs.reserve(parts.iter().map(|p| p.statics.funcs.len()).sum());
        out.classes.reserve(parts.iter().map(|p| p.statics.classes.len()).sum());
        for part in parts.into_iter().map(taken) {
            out.funcs.extend(part.statics.funcs);
            out.classes.extend(part.statics.classes);
            out.protocols.extend(part.statics.protocols);
            bases.extend(part.bases);
        }
        for (at, facts) in &mut out.classes {
            facts.order = linearize(*at, &bases, 0).into();
        }
        for base in bases.into_values().flatten() {
            if let Some(facts) = out.classes.get_mut(&base) {
                facts.is_base = true;
            }
        }
        out.stand_in();
        out
    }

    /// Finds the classes that objects of a class may be of.
    fn stand_in(&mut self) {
        let mut below: FxHashMap<ClassRef, Vec<ClassRef>> = FxHashMap::default();
        for (at, facts) in &self.classes {
            facts.order.iter().for_each(|base| below.entry(*base).or_default().push(*at));
        }
        for (at, facts) in &self.classes {
            let asked = facts.methods_of_interface();
            let Some(first) = asked.first() else { continue };
            let has_all = |other: &ClassFacts| asked.iter().all(|name| other.members.get(*name).is_some());
            let alike = self.classes.iter().filter(|(_, other)| other.members.get(*first).is_some() && has_all(other));
            below.entry(*at).or_default().extend(alike.map(|(other, _)| *other));
        }
        for (at, mut found) in below {
            found.sort_unstable();
            found.dedup();
            if let Some(facts) = self.classes.get_mut(&at).filter(|_| found.len() <= MAX_STANDING) {
                facts.stands_for = Some(found.into());
            }
        }
    }

    fn differences(&self, other: &Statics) -> Vec<Read> {
        use super::memo::differing;
        let funcs = differing(&self.funcs, &other.funcs).map(|at| Read::Func(at.module.0, at.func.0));
        let classes = differing(&self.classes, &other.classes).map(|at| Read::Class(at.module.0, at.class.0));
        funcs.chain(classes).collect()
    }

    /// What [`protocol`](super::parameters::protocol) says of a module.
    pub fn protocol<'a>(&self, rules: &'a RuleBook, module: ModuleId) -> Option<&'a ProtocolRule> {
        note(|| Read::Names(module.0));
        rules.protocols().get(*self.protocols.get(&module)?)
    }

    pub fn flavour(&self, func: FuncRef) -> Option<Flavour> {
        note_func(func);
        self.funcs.get(&func).map_or(Some(Flavour::Plain), |f| f.flavour)
    }
    /// Defaults of parameters. `left`: what the execution of module bodies shows where the text does not.
    pub fn defaults(&self, func: FuncRef, left: &[Arc<Closure>]) -> Vec<(u32, Value)> {
        note_func(func);
        let Some(facts) = self.funcs.get(&func) else { return Vec::new() };
        let mut out = facts.defaults.to_vec();
        for (at, value) in left.iter().flat_map(|closure| &closure.defaults) {
            match out.iter_mut().find(|(i, _)| i == at) {
                Some((_, known)) if matches!(known, Value::Unknown) => *known = value.clone(),
                Some(_) => {}
                None => out.push((*at, value.clone())),
            }
        }
        out
    }
    pub fn linearized(&self, class: ClassRef) -> Arc<[ClassRef]> {
        note_class(class);
        self.classes.get(&class).map_or_else(|| Arc::from([class].as_slice()), |c| c.order.clone())
    }
    pub fn external_bases(&self, class: ClassRef) -> impl Iterator<Item = &Name> {
        let order: Vec<ClassRef> = self.linearized(class).to_vec();
        order.into_iter().filter_map(|c| self.facts(c)).flat_map(|c| &c.external)
    }
    pub fn member(&self, class: ClassRef, name: &Name) -> Option<Value> {
        match self.facts(class)?.members.get(name)? {
            Member::Value(value) => Some(value.clone()),
            Member::Method(at, closure) => {
                note_func(*at);
                Some((**closure.get_or_init(|| Box::new(self.method(*at)))).clone())
            }
        }
    }
    /// A method as its class has it.
    fn method(&self, func: FuncRef) -> Value {
        match self.flavour(func) {
            Some(flavour) => {
                let defaults = self.defaults(func, &[]);
                Value::Closure(Arc::new(Closure { func, cells: Vec::new(), defaults, flavour, boundary: None }))
            }
            None => Value::Unknown,
        }
    }
    /// Whether another class derives from it.
    pub fn is_base(&self, class: ClassRef) -> bool {
        self.facts(class).is_some_and(|facts| facts.is_base)
    }
    /// The classes that an object of a class may be of, if they are few.
    pub fn stands_for(&self, class: ClassRef) -> Option<&[ClassRef]> {
        self.facts(class)?.stands_for.as_deref()
    }
    fn facts(&self, class: ClassRef) -> Option<&ClassFacts> {
        note_class(class);
        self.classes.get(&class)
    }
    /// Fields of a dataclass and of its bases, in order.
    pub fn dataclass_fields(&self, class: ClassRef) -> Option<Vec<(Name, Option<Value>)>> {
        self.facts(class).filter(|c| c.dataclass)?;
        let mut out: Vec<(Name, Option<Value>)> = Vec::new();
        for at in self.linearized(class).iter().rev() {
            for (name, default) in self.facts(*at).map_or(&[][..], |c| &c.fields) {
                match out.iter_mut().find(|(n, _)| n == name) {
                    Some(field) => field.1 = default.clone(),
                    None => out.push((name.clone(), default.clone())),
                }
            }
        }
        Some(out)
    }
}

impl ClassFacts {
    /// The methods that an interface asks for; of another class none.
    fn methods_of_interface(&self) -> Vec<&Name> {
        let is_interface = self.external.iter().any(|base| base.ends_with(".Protocol"));
        let asked =
            |(name, member): (&'_ Name, &'_ Member)| matches!(member, Member::Method(..)) && !name.starts_with("__");
        let members = self.members.iter().filter(|_| is_interface);
        members.filter(|(name, member)| asked((name, member))).map(|(name, _)| name).collect()
    }
}

fn note_func(func: FuncRef) {
    note(|| Read::Func(func.module.0, func.func.0));
}

fn note_class(class: ClassRef) {
    note(|| Read::Class(class.module.0, class.class.0));
}

/// The first assignment of each temporary of a block and its nested blocks.
fn temps(block: &Block) -> FxHashMap<LocalId, &Rvalue> {
    let mut out = FxHashMap::default();
    collect_temps(block, &mut out);
    out
}

fn collect_temps<'a>(block: &'a Block, out: &mut FxHashMap<LocalId, &'a Rvalue>) {
    for node in block {
        match &node.stmt {
            Stmt::Assign { dst, value } => {
                out.entry(*dst).or_insert(value);
            }
            Stmt::If { then, orelse, .. } => {
                collect_temps(then, out);
                collect_temps(orelse, out);
            }
            Stmt::Try { body, .. } | Stmt::With { body, .. } => collect_temps(body, out),
            _ => {}
        }
    }
}

struct Scan<'a> {
    project: &'a Project,
    rules: &'a RuleBook,
    module: ModuleId,
    func: &'a Func,
    /// The first assignment of each local, once somebody asked: most functions define nothing.
    temps: OnceCell<FxHashMap<LocalId, &'a Rvalue>>,
}

impl Scan<'_> {
    fn block(&self, block: &Block, out: &mut Statics, bases: &mut FxHashMap<ClassRef, Vec<ClassRef>>) {
        for node in block {
            match &node.stmt {
                Stmt::Def { func, defaults, decorators, .. } => {
                    let facts = FuncFacts {
                        flavour: self.flavour(*func, decorators),
                        defaults: defaults.iter().map(|(i, o)| (*i, self.constant(o))).collect(),
                    };
                    // Most functions are what those are of which nothing is said.
                    if facts.flavour != Some(Flavour::Plain) || !facts.defaults.is_empty() {
                        out.funcs.insert(FuncRef { module: self.module, func: *func }, facts);
                    }
                }
                Stmt::Class { class, bases: operands, decorators, .. } => {
                    self.class(*class, operands, decorators, out, bases);
                }
                Stmt::If { then, orelse, .. } => {
                    self.block(then, out, bases);
                    self.block(orelse, out, bases);
                }
                Stmt::Try { body, handlers, orelse, finally } => {
                    for b in [body, orelse, finally].into_iter().chain(handlers) {
                        self.block(b, out, bases);
                    }
                }
                Stmt::With { body, .. } | Stmt::For { body, .. } | Stmt::While { body, .. } => {
                    self.block(body, out, bases)
                }
                _ => {}
            }
        }
    }

    fn class(
        &self,
        class: ClassId,
        operands: &[Operand],
        decorators: &[Operand],
        out: &mut Statics,
        bases: &mut FxHashMap<ClassRef, Vec<ClassRef>>,
    ) {
        let at = ClassRef { module: self.module, class };
        let facts = out.classes.entry(at).or_default();
        let mut external = Vec::new();
        for operand in operands {
            match self.path(operand).map(|p| self.project.path(&p)) {
                Some(Resolved::Class(base)) => bases.entry(at).or_default().push(base),
                Some(Resolved::External(path)) => external.push(path),
                _ => {}
            }
        }
        facts.external = external.into();
        facts.dataclass = decorators.iter().filter_map(|d| self.path(d)).any(|p| p == "dataclasses.dataclass")
            || facts.external.iter().any(|base| base == "typing.NamedTuple");
    }

    fn flavour(&self, func: FuncId, decorators: &[Operand]) -> Option<Flavour> {
        let mut flavour = if self.func.kind == crate::ir::FuncKind::ClassBody && self.implicit_static(func) {
            Flavour::Static
        } else {
            Flavour::Plain
        };
        for decorator in decorators {
            match decorator_of_path(self.rules, &self.path(decorator)?)? {
                Flavour::Plain => {}
                // With types of its own it is a boundary, which is not followed.
                Flavour::NoTypecheck if self.is_given(decorator) => return None,
                f => flavour = f,
            }
        }
        Some(flavour)
    }

    /// Whether a decorator is a call with arguments.
    fn is_given(&self, decorator: &Operand) -> bool {
        match decorator {
            Operand::Local(local) => match self.temps.get_or_init(|| temps(self.func.body())).get(local) {
                Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => !args.is_empty(),
                _ => false,
            },
            _ => false,
        }
    }

    /// `__new__` and its kin are static without saying so.
    fn implicit_static(&self, func: FuncId) -> bool {
        self.project.modules[self.module].ir.funcs[func].name == "__new__"
    }

    /// The qualified path of a name, attribute chain, or call of one.
    fn path(&self, operand: &Operand) -> Option<String> {
        self.path_within(operand, MAX_EXPR_DEPTH)
    }

    /// The same; `x = x.y` makes chains without an end.
    fn path_within(&self, operand: &Operand, depth: usize) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        match operand {
            Operand::Global(name) => Some(self.global_path(name)),
            Operand::Local(local) => match self.temps.get_or_init(|| temps(self.func.body())).get(local) {
                Some(Rvalue::Attr { base, name } | Rvalue::CallMethod { base, name, .. }) => {
                    Some(format!("{}.{name}", self.path_within(base, depth)?))
                }
                Some(Rvalue::Call { callee, .. }) => self.path_within(callee, depth),
                Some(Rvalue::Use(inner)) => self.path_within(inner, depth),
                Some(_) => None,
                None => Some(self.global_path(&self.func.locals()[*local].name)),
            },
            Operand::Const(_) => None,
        }
    }

    fn global_path(&self, name: &str) -> String {
        match self.project.member(self.module, name) {
            Some(Resolved::External(path)) => path.to_string(),
            Some(Resolved::Module(m)) => self.project.name(m).to_string(),
            Some(Resolved::Package(p)) => p.to_string(),
            Some(Resolved::Func(f)) => self.project.qualified(f).to_string(),
            Some(Resolved::Class(c)) => self.project.qualified_class(c).to_string(),
            Some(Resolved::Value(m, n)) => format!("{}.{n}", self.project.name(m)),
            None => format!("builtins.{name}"),
        }
    }

    fn constant(&self, operand: &Operand) -> Value {
        match operand {
            Operand::Const(c) => Value::Const(Const::clone(c)),
            Operand::Local(_) | Operand::Global(_) => {
                match self.path(operand).and_then(|p| self.rules.get(&p).cloned()) {
                    Some(crate::rules::Entry::Intrinsic(rule)) if rule.does == "reduce-op" => {
                        Value::ReduceOp(super::collective::short(&rule.name))
                    }
                    _ => Value::Unknown,
                }
            }
        }
    }
}

/// A class and its bases in the order of lookup: depth first, a shared base last.
fn linearize(class: ClassRef, bases: &FxHashMap<ClassRef, Vec<ClassRef>>, depth: usize) -> Vec<ClassRef> {
    let mut out = vec![class];
    if depth > super::limits::MAX_CALL_DEPTH {
        return out;
    }
    for base in bases.get(&class).into_iter().flatten() {
        if *base == class {
            continue;
        }
        for c in linearize(*base, bases, depth + 1) {
            out.retain(|known| *known != c || *known == class);
            if c != class {
                out.push(c);
            }
        }
    }
    out
}

type Members = (Vec<(Name, Member)>, Vec<(Name, Option<Value>)>);

/// Methods and constant attributes of a class, and its fields if it is a dataclass.
fn class_members(project: &Project, class: ClassRef) -> Members {
    let module = class.module;
    let definition = project.class(class);
    let body = &project.modules[module].ir.funcs[definition.body];
    let (mut members, mut fields) = (Vec::new(), Vec::new());
    members_of(body.body(), body, module, &mut members, &mut fields);
    // They stay for the whole run.
    members.shrink_to_fit();
    (members, fields)
}

fn members_of(
    block: &Block,
    body: &Func,
    module: ModuleId,
    members: &mut Vec<(Name, Member)>,
    fields: &mut Vec<(Name, Option<Value>)>,
) {
    for node in block {
        match &node.stmt {
            Stmt::Def { dst, func, .. } => {
                let at = FuncRef { module, func: *func };
                members.push((body.locals()[*dst].name.clone(), Member::Method(at, OnceLock::new())));
            }
            Stmt::Assign { dst, value } if body.locals()[*dst].kind != crate::ir::LocalKind::Temp => {
                let name = body.locals()[*dst].name.clone();
                let value = match value {
                    Rvalue::Use(Operand::Const(c)) => Value::Const(c.clone()),
                    _ => Value::Unknown,
                };
                fields.push((name.clone(), Some(value.clone())));
                members.push((name, Member::Value(value)));
            }
            Stmt::If { then, orelse, .. } => {
                members_of(then, body, module, members, fields);
                members_of(orelse, body, module, members, fields);
            }
            Stmt::Try { body: inner, .. } => members_of(inner, body, module, members, fields),
            _ => {}
        }
    }
}

/// The id of a module's body.
pub fn module_body(module: ModuleId) -> FuncRef {
    FuncRef { module, func: FuncId::from_index(0) }
}
