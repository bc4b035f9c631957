//! Names, imports and attributes. In: a name or a base value. Out: what it denotes. Never: calls, apart from properties.
//! Next: `items.rs`.

use super::autograd::UNNAMED;
use super::expr::CallArgs;
use super::heap::ObjectClass;
use super::limits::MAX_PATH;
use super::machine::{Eval, Machine};
use super::resets::starts;
use super::settings::is_degree;
use super::value::{Bound, Closure, Flavour, Method, Value};
use crate::ir::annotation::Atom as SpmdAtom;
use crate::ir::{Const, StmtId};
use crate::project::{ClassRef, ModuleId, Resolved};
use crate::rules::{Entry, Gives, IntrinsicRule};
use crate::source::{Idx, Name, Span};
use crate::types::{Axis, AxisSet};
use std::sync::Arc;

/// Builtins of Python that the checker gives a meaning; other free names are unknown.
const BUILTINS: &[&str] = &[
    "abs",
    "all",
    "any",
    "bool",
    "callable",
    "classmethod",
    "dict",
    "enumerate",
    "filter",
    "float",
    "getattr",
    "hasattr",
    "id",
    "int",
    "isinstance",
    "issubclass",
    "iter",
    "len",
    "list",
    "map",
    "max",
    "min",
    "next",
    "object",
    "open",
    "print",
    "property",
    "range",
    "repr",
    "reversed",
    "round",
    "set",
    "frozenset",
    "setattr",
    "slice",
    "sorted",
    "staticmethod",
    "str",
    "sum",
    "super",
    "tuple",
    "type",
    "vars",
    "zip",
    "divmod",
    "hash",
    "input",
    "format",
    "delattr",
];

/// How the names of counts end that a module keeps beside a group of the same beginning.
pub const COUNTS: [&str; 4] = ["_world_size", "_size", "_degree", "_rank"];

/// What is counted of a group: its ranks, or which one this is.
pub(super) type Count = fn(AxisSet) -> Value;

impl Machine<'_> {
    /// A name that is no local: a variable of the module under execution, a binding of the module, a builtin.
    pub fn global(&mut self, name: &Name) -> Value {
        let module = self.activation().module;
        if let Some(value) = self.live_global(module, name) {
            return value;
        }
        if let Some(value) = self.globals.get(&module).and_then(|known| known.get(name)) {
            return value.clone();
        }
        let before = (self.next_id, self.unnamed_groups);
        let value = self.settled_global(module, name);
        // What is another one each time is asked for again.
        if before == (self.next_id, self.unnamed_groups) {
            self.globals.entry(module).or_default().insert(name.clone(), value.clone());
        }
        value
    }

    /// What a name is to a function of a module, whatever the world.
    fn settled_global(&mut self, module: ModuleId, name: &Name) -> Value {
        match self.project.member(module, name) {
            Some(resolved) => self.resolved(resolved),
            None if BUILTINS.contains(&name.as_str()) => Value::Path(Name::from(format!("builtins.{name}"))),
            None => match self.starred(module, name) {
                Some(path) => self.external(&path),
                None => self.settings.group_named(name).map_or(Value::Sym(name.clone()), Value::Group),
            },
        }
    }

    /// A name that a star import may bring from outside, if the rules know it there.
    fn starred(&self, module: ModuleId, name: &Name) -> Option<String> {
        let mut paths = self.project.external_stars(module).map(|base| format!("{base}.{name}"));
        paths.find(|path| self.rules.get(path).is_some())
    }

    /// The variable of a module whose body is under execution in this world.
    fn live_global(&mut self, module: ModuleId, name: &Name) -> Option<Value> {
        let at = self.w.frames.iter().position(|f| f.func.module == module && f.func.func.index() == 0)?;
        let func = self.project.func(self.w.frames[at].func);
        let local = func.locals().named(name)?;
        match self.w.frames[at].get(local) {
            Value::Unset => None,
            value => Some(value.clone()),
        }
    }

    /// What a function of a module reads by a name of the module.
    pub fn variable_of(&mut self, module: ModuleId, name: &Name) -> Value {
        self.live_global(module, name).unwrap_or_else(|| self.settled_global(module, name))
    }

    pub fn set_global(&mut self, name: &Name, value: Value) {
        let module = self.activation().module;
        let Some(at) = self.w.frames.iter().position(|f| f.func.module == module && f.func.func.index() == 0) else {
            return;
        };
        let func = self.project.func(self.w.frames[at].func);
        if let Some(local) = func.locals().named(name) {
            self.w.frames[at].set(local, value);
        }
    }

    /// The value at the end of a dotted path.
    pub fn resolved(&mut self, resolved: Resolved) -> Value {
        match resolved {
            Resolved::Func(func) => {
                let decorated = self.settings.static_flavour(self.project, self.rules, func);
                match decorated {
                    Some(flavour) => Value::Closure(Arc::new(Closure {
                        func,
                        cells: Vec::new(),
                        defaults: self.settings.static_defaults(func),
                        flavour,
                        boundary: None,
                    })),
                    // A decorator that is not known changes nothing about what the tables say of a function.
                    None if self.rules.may_name(&self.project.func(func).name) => {
                        let path = self.project.qualified(func);
                        if self.rules.get(&path).is_some() { Value::Path(path) } else { Value::Unknown }
                    }
                    None => Value::Unknown,
                }
            }
            Resolved::Class(class) => Value::Class(class),
            Resolved::Module(module) => Value::Module(module),
            Resolved::Package(name) => Value::Package(name),
            Resolved::Value(module, name) => {
                self.settings.export(module, &name).cloned().unwrap_or_else(|| self.unknown_global(module, &name))
            }
            Resolved::External(path) => self.external(&path),
        }
    }

    /// What is read from a module of the project by a name that its body leaves without a value.
    fn unknown_global(&mut self, module: ModuleId, name: &Name) -> Value {
        if let Some(value) = self.unbound.get(&module).and_then(|known| known.get(name)) {
            return value.clone();
        }
        let before = (self.next_id, self.unnamed_groups);
        let value = self.searched_global(module, name);
        // What is another one each time is asked for again.
        if before == (self.next_id, self.unnamed_groups) {
            self.unbound.entry(module).or_default().insert(name.clone(), value.clone());
        }
        value
    }

    /// The same, where nobody asked before: the text of the whole module is searched.
    fn searched_global(&mut self, module: ModuleId, name: &Name) -> Value {
        if let Some(path) = self.settings.specs.alternative(module, name) {
            return Value::Path(path.clone());
        }
        let path = format!("{}.{name}", self.project.name(module));
        match self.settings.group_named(name) {
            Some(axes) => Value::Group(axes),
            None if self.rules.get(&path).is_some() => Value::Path(Name::from(path)),
            // A function may have set it to another one since it was read last.
            None if self.settings.is_group_name(&name.to_lowercase()) && self.set_later(module).contains(name) => {
                let made = self.made_once(module, name);
                made.unwrap_or_else(|| self.named_group(&name.to_lowercase(), Value::Unknown))
            }
            None if self.is_switched_on(module, name) => Value::Unknown,
            None => {
                let count = self.count_beside(module, name).or_else(|| self.counted_once(module, name));
                let known = count.or_else(|| self.returned_by_getter(module, &[name]));
                known.unwrap_or_else(|| Value::Sym(Name::from(path)))
            }
        }
    }

    /// Whether a function that starts the program switches a variable of a module on, for good or where there are several ranks.
    fn is_switched_on(&self, module: ModuleId, name: &Name) -> bool {
        self.makings(module, name).any(|(at, value)| {
            let on = value == "True" || value.contains("world") && value.contains(['>', '!']);
            let start = u32::try_from(at).ok().filter(|_| on);
            let around = start.and_then(|start| self.project.func_around(module, Span::new(start, start)));
            around.is_some_and(|func| starts(&self.project.func(func).name))
        })
    }

    /// The number of ranks, or the own rank, that a module keeps beside a group: `_TP_SIZE` and `_TP_RANK` beside `_TP_GROUP`.
    pub fn count_beside(&mut self, module: ModuleId, name: &Name) -> Option<Value> {
        let lower = name.to_ascii_lowercase();
        let (stem, count) = self.count_named(&lower).filter(|(stem, _)| !stem.is_empty())?;
        let is_upper = name.bytes().any(|b| b.is_ascii_uppercase());
        let group = Name::from(format!("{}{}", &name[..stem.len()], if is_upper { "_GROUP" } else { "_group" }));
        let variable = matches!(self.project.member(module, &group), Some(Resolved::Value(..)));
        if !variable || !self.set_later(module).contains(name) {
            return None;
        }
        let value = match self.settings.group_named(&group) {
            Some(axes) => Value::Group(axes),
            None => self.made_once(module, &group)?,
        };
        self.axes_of_value(&value).map(count)
    }

    /// A group that a module keeps in a variable, if it is the same wherever it is read: that of the getter that returns it, or of one
    /// that were called as the variable is.
    fn made_once(&self, module: ModuleId, name: &Name) -> Option<Value> {
        if !self.is_made_once(module, name) {
            return None;
        }
        let called = || self.accessor(None, &name.to_lowercase(), &CallArgs::default()).filter(is_named_group);
        self.returned_by_getter(module, &[name]).or_else(called)
    }

    /// The group of a function of a module that returns one of these, and whose name says which group it is.
    pub fn returned_by_getter(&self, module: ModuleId, kept: &[&str]) -> Option<Value> {
        let text = self.files[self.project.file(module)].whole();
        kept.iter().find_map(|kept| {
            let line = format!("return {kept}\n");
            memchr::memmem::find_iter(text.as_bytes(), &line).find_map(|at| {
                let start = u32::try_from(at).ok()?;
                let getter = self.project.func(self.project.func_around(module, Span::new(start, start))?);
                let asked = getter.class.is_none() && getter.params.iter().all(|p| p.has_default);
                let group = || self.accessor(None, &getter.name, &CallArgs::default()).filter(is_named_group);
                asked.then(group)?
            })
        })
    }

    /// Whether one statement alone, in a function that is not given the value, sets a variable of a module to something: what the start of
    /// the program makes is the same everywhere after it.
    fn is_made_once(&self, module: ModuleId, name: &str) -> bool {
        let mut made = self.makings(module, name);
        let (Some((at, value)), None) = (made.next(), made.next()) else { return false };
        self.is_own(module, at, value)
    }

    /// What the one statement says that sets a variable of a module to something.
    pub fn made_as<'a>(&'a self, module: ModuleId, name: &'a str) -> Option<&'a str> {
        self.makings(module, name).next().map(|(_, value)| value).filter(|_| self.is_made_once(module, name))
    }

    /// Whether the function around a place is not given a value under this name.
    fn is_own(&self, module: ModuleId, at: usize, value: &str) -> bool {
        let Ok(start) = u32::try_from(at) else { return false };
        let around = self.project.func_around(module, Span::new(start, start));
        around.is_some_and(|func| self.project.func(func).params.iter().all(|p| p.name != value))
    }

    /// Where functions of a module set a variable, or an attribute of a class, to anything but `None`, and to what.
    fn makings<'a>(&'a self, module: ModuleId, target: &'a str) -> impl Iterator<Item = (usize, &'a str)> + 'a {
        let text = self.files[self.project.file(module)].whole();
        memchr::memmem::find_iter(text.as_bytes(), target).filter_map(move |at| {
            // What broken code leaves of a name may be nothing, which stands between the bytes of a character too.
            let before = text.get(..at)?;
            let indent = &before[before.rfind('\n').map_or(0, |end| end + 1)..];
            let value = text[at + target.len()..].lines().next()?.trim_start().strip_prefix('=')?.trim();
            let is_set = indent.trim().is_empty() && !value.starts_with('=') && value != "None";
            (is_set && !indent.is_empty()).then_some((at, value))
        })
    }

    /// Something outside the project. A constant with a meaning becomes that meaning.
    pub fn external(&mut self, path: &str) -> Value {
        match self.rules.get(path) {
            Some(Entry::Intrinsic(rule)) => intrinsic_constant(rule).unwrap_or_else(|| Value::Path(Name::from(path))),
            _ => Value::Path(Name::from(path)),
        }
    }

    pub fn import(&mut self, path: &Name, member: Option<&Name>, level: u32) -> Value {
        let module = self.activation().module;
        let base = self.project.absolute(module, path, level);
        let full = match member {
            Some(member) => format!("{base}.{member}"),
            None => base,
        };
        let resolved = self.project.path(&full);
        self.resolved(resolved)
    }

    /// `base.name`, which may run a property.
    pub fn attr(&mut self, id: StmtId, base: &Value, name: &Name) -> Eval {
        if let Value::Object(_) | Value::Super(_) = base {
            let found = self.object_attr(base, name);
            if let Some(Value::Bound(bound)) = &found
                && let Method::Closure(closure) = &bound.method
                && closure.flavour == Flavour::Property
            {
                if self.rules.may_name(name)
                    && let Some(Entry::Group(rule)) = self.rules.get(&self.project.qualified(closure.func))
                {
                    let axes: AxisSet = rule.axes.iter().map(|a| self.settings.canonical(a)).collect();
                    return Eval::One(given(rule.gives, axes));
                }
                let args = super::expr::CallArgs::of(vec![bound.receiver.clone()]);
                return self.call_closure(id, closure, &args);
            }
            return Eval::One(found.unwrap_or(Value::Unknown));
        }
        if let Value::Tensor(_) = base {
            return Eval::One(self.tensor_attr(id, base, name));
        }
        if let Value::Sym(path) = base
            && let Some(tensor) = self.symbol(path)
            && self.rules.tensor_method(name).is_some()
        {
            return Eval::One(self.tensor_attr(id, &Value::Tensor(tensor), name));
        }
        if let Value::Sym(path) = base
            && let Some(value) = self.property_of_object(id, path, name)
        {
            return Eval::One(value);
        }
        Eval::One(self.attr_quietly(base, name))
    }

    /// `base.name` without running anything.
    pub fn attr_quietly(&mut self, base: &Value, name: &Name) -> Value {
        match base {
            Value::Sym(path) => self.symbol_attr(path, name),
            Value::Path(path) => self.external(&format!("{path}.{name}")),
            Value::Module(module) => match self.project.member(*module, name) {
                Some(resolved) => {
                    let module = *module;
                    self.live_global(module, name).unwrap_or_else(|| self.resolved(resolved))
                }
                None => {
                    let path = format!("{}.{name}", self.project.name(*module));
                    match self.project.path(&path) {
                        // Nothing at the top level of a module of the project binds it: a function does.
                        Resolved::External(path) if self.rules.get(&path).is_none() => {
                            self.live_global(*module, name).unwrap_or_else(|| self.unknown_global(*module, name))
                        }
                        resolved => self.resolved(resolved),
                    }
                }
            },
            Value::Package(package) => {
                let resolved = self.project.path(&format!("{package}.{name}"));
                self.resolved(resolved)
            }
            Value::Object(_) | Value::Super(_) => self.object_attr(base, name).unwrap_or(Value::Unknown),
            // `enter = _Enter.apply`, called later.
            Value::Class(class) if name == "apply" && self.is_autograd_function(*class) => {
                Self::named_method(base.clone(), name)
            }
            Value::Class(class) => self.class_attr(*class, name, None).unwrap_or(Value::Unknown),
            Value::Tuple(items) if items.len() == 2 && matches!(name.as_str(), "values" | "indices") => {
                items[usize::from(name == "indices")].clone()
            }
            Value::Group(axes) if name == "WORLD" => Value::Group(axes.clone()),
            // An object that holds groups, which a getter gives that is called as that of a group.
            Value::Group(_) => self.group_attr(name).unwrap_or_else(|| Self::named_method(base.clone(), name)),
            Value::Atom(_) | Value::Const(_) | Value::Number(_) | Value::Share(_) => Value::Unknown,
            Value::Unknown => self.group_attr(name).unwrap_or(Value::Unknown),
            Value::Unset => Value::Unknown,
            Value::Mesh(mesh) => self.mesh_attr(mesh, name).unwrap_or_else(|| Self::named_method(base.clone(), name)),
            _ => Self::named_method(base.clone(), name),
        }
    }

    /// An attribute of an unknown value: unknown too, with a path of its own; a group where the tables or the configuration say so.
    pub(super) fn symbol_attr(&mut self, path: &Name, name: &Name) -> Value {
        let full = Name::from(format!("{path}.{name}"));
        if let Some(id) = self.symbol(path) {
            let tensor = Value::Tensor(id);
            if self.rules.tensor_method(name).is_some() {
                return Self::named_method(tensor, name);
            }
        }
        if !self.settings.flags.is_empty()
            && let Some(value) = self.settings.fixed_value(&self.flag_name(&full))
        {
            return value;
        }
        if let Some(axes) = self.settings.group_named(&full).or_else(|| self.settings.group_named(name)) {
            return Value::Group(axes);
        }
        if let Some(value) = self.group_rule(&full, name) {
            return value;
        }
        if path.matches('.').count() + 1 >= MAX_PATH {
            return Value::Unknown;
        }
        if let Some(count) = self.counted_by_object(path, name) {
            return count;
        }
        self.configured(path, name).unwrap_or(Value::Sym(full))
    }

    /// A group by the name of an attribute that the tables or the configuration know, whatever has it, or the number of its ranks or the own
    /// rank in it beside it: `parallel.tp_group`, `parallel.tp_size`.
    fn group_attr(&self, name: &Name) -> Option<Value> {
        let group = |name: &str| match self.settings.group_named(name) {
            Some(axes) => Some(Value::Group(axes)),
            None => self.group_rule("", name).filter(|v| matches!(v, Value::Group(_))),
        };
        if self.settings.is_group_name(name) {
            return group(name);
        }
        let (stem, count) = self.count_named(name)?;
        match group(&format!("{stem}_group"))? {
            Value::Group(axes) => Some(count(axes)),
            _ => None,
        }
    }

    /// What a name counts of a group, by its end, and what the group is called before `_group`: `tp_size`, `tp_rank`.
    pub(super) fn count_named<'n>(&self, name: &'n str) -> Option<(&'n str, Count)> {
        let is_rank = self.settings.is_rank(name);
        let stem = COUNTS.iter().find_map(|end| name.strip_suffix(end)).filter(|_| is_rank || is_degree(name))?;
        Some((stem, if is_rank { Value::Rank } else { Value::Size }))
    }

    /// A group, rank or size that the tables give for a path or an attribute.
    pub fn group_rule(&self, path: &str, attribute: &str) -> Option<Value> {
        let rule = match self.rules.get(path) {
            Some(Entry::Group(rule)) => rule.clone(),
            _ => self.rules.group_attribute(attribute)?.clone(),
        };
        let axes: AxisSet = rule.axes.iter().map(|a| Axis::new(a.clone())).collect();
        Some(given(rule.gives, axes))
    }

    /// An attribute of an object: its own, its class's, its bases'.
    pub fn object_attr(&mut self, base: &Value, name: &Name) -> Option<Value> {
        let (id, after) = match base {
            Value::Object(id) => (*id, None),
            Value::Super(at) => match &at.0 {
                Value::Object(id) => (*id, Some(at.1)),
                _ => return None,
            },
            _ => return None,
        };
        let object = self.w.heap.object(id)?;
        if after.is_none()
            && let Some(value) = object.get(name)
        {
            return Some(value.clone());
        }
        let (class, base_path) = (object.class.clone(), object.path.clone());
        let from_class = match (&class, after) {
            (ObjectClass::Project(class), None) => self.class_attr(*class, name, Some(Value::Object(id))),
            (ObjectClass::Project(class), Some(after)) => self.class_attr_after(*class, after, name, Value::Object(id)),
            (ObjectClass::External(path), _) => {
                let path = format!("{path}.{name}");
                self.rules.get(&path).is_some().then(|| Self::named_method(Value::Object(id), name))
            }
        };
        from_class.or_else(|| {
            if name == "__class__" {
                return None;
            }
            let path = Name::from(format!("{base_path}.{name}"));
            if path.matches('.').count() >= MAX_PATH {
                return Some(Value::Unknown);
            }
            let sym = self.symbol_attr(&base_path, name);
            Some(match sym {
                Value::Sym(_) => self.settings.declared_group(&path).map_or(Value::Sym(path), Value::Group),
                other => other,
            })
        })
    }

    /// An attribute of a class, searched along its bases; bound to the receiver if there is one.
    pub fn class_attr(&mut self, class: ClassRef, name: &Name, receiver: Option<Value>) -> Option<Value> {
        let order = self.settings.linearized(self.project, class);
        self.find_in(&order, name, receiver, class)
    }

    fn class_attr_after(&mut self, class: ClassRef, after: ClassRef, name: &Name, receiver: Value) -> Option<Value> {
        let order = self.settings.linearized(self.project, class);
        let at = order.iter().position(|c| *c == after).map_or(0, |i| i + 1);
        self.find_in(&order[at..], name, Some(receiver), class)
    }

    fn find_in(&mut self, order: &[ClassRef], name: &Name, receiver: Option<Value>, class: ClassRef) -> Option<Value> {
        for at in order {
            let Some(value) = self.settings.class_member(self.project, self.rules, *at, name) else { continue };
            return Some(match (value, receiver) {
                (Value::Closure(closure), receiver) => bind_method(closure, receiver, class),
                (Value::Const(Const::None), _) => {
                    let set = || self.settings.resets.of(&self.project.class(*at).name, name);
                    let symbol = |starts: bool| if starts { self.member_symbol(*at, name) } else { Value::Unknown };
                    self.placeholder(*at, name).or_else(|| set().map(symbol)).unwrap_or(Value::NONE)
                }
                (Value::Const(constant), _) => self.until_reset(*at, name, constant),
                (value, _) => value,
            });
        }
        None
    }

    /// A constant in the body of a class, if nothing sets the attribute from outside. A degree of parallelism goes on by its name, and so does
    /// a switch that is not set where the program starts; of anything else nothing is known then.
    fn until_reset(&self, class: ClassRef, name: &Name, constant: Const) -> Value {
        let Some(starts) = self.settings.resets.of(&self.project.class(class).name, name) else {
            return Value::Const(constant);
        };
        let counts = starts && constant == Const::Int(1);
        let flag = matches!(constant, Const::Bool(_)) && !starts;
        let degree = !matches!(constant, Const::Bool(_)) && (is_degree(name) || self.settings.counts_ranks(name));
        match counts || flag || degree {
            true => self.member_symbol(class, name),
            false => Value::Unknown,
        }
    }

    fn member_symbol(&self, class: ClassRef, name: &Name) -> Value {
        Value::Sym(Name::from(format!("{}.{name}", self.project.qualified_class(class))))
    }

    /// What a group is for which `None` in the body of a class only holds the place until the file sets it: `cls.group = ..`,
    /// `State.group = ..`. One that one statement makes is the same wherever it is read.
    fn placeholder(&self, class: ClassRef, name: &Name) -> Option<Value> {
        let targets = ["cls", self.project.class(class).name.as_str()].map(|base| format!("{base}.{name}"));
        let mut made = targets.iter().flat_map(|target| self.makings(class.module, target));
        let (at, value) = made.next()?;
        if !self.settings.is_group_name(name) {
            return value.contains("group").then_some(Value::Unknown);
        }
        let is_one = made.next().is_none() && self.is_own(class.module, at, value);
        let path = || self.member_symbol(class, name);
        let kept: Vec<&str> = targets.iter().map(String::as_str).collect();
        let one = || self.returned_by_getter(class.module, &kept).unwrap_or_else(path);
        Some(if is_one { one() } else { Value::Unknown })
    }

    /// Stores an attribute. A mark on a parameter may depend on a flag, so there may be several worlds afterwards.
    pub fn store_attr(&mut self, id: StmtId, base: &Value, name: &Name, value: Value) -> Eval {
        match base {
            Value::Tensor(tensor) if self.is_mark(name) => self.marked(id, *tensor, name, &value),
            _ => {
                self.keeps_declaration(id, base, name, &value);
                self.set_attr(id, base, name, value);
                Eval::One(Value::NONE)
            }
        }
    }

    /// Stores an attribute; what the object is known to hold changes for every alias.
    pub fn set_attr(&mut self, id: StmtId, base: &Value, name: &Name, value: Value) {
        match base {
            Value::Object(object) => {
                // What distributes a module distributes its attributes.
                if let Value::Tensor(tensor) = &value {
                    self.maybe_distributed(*tensor);
                    if let Some(ObjectClass::Project(class)) = self.w.heap.object(*object).map(|o| o.class.clone()) {
                        self.sharded_state(class, name, *tensor);
                    }
                }
                if let Some(super::heap::Cell::Object(cell)) = self.w.heap.get_mut(*object) {
                    cell.set(name, value.clone());
                }
                self.record_attr(id, base, name, &value);
            }
            Value::Tensor(tensor) if name == "data" => self.set_data(id, *tensor, &value),
            Value::Tensor(tensor) if name == "requires_grad" => {
                if let Some(asked) = value.as_bool() {
                    self.set_grad(&Value::Tensor(*tensor), crate::types::Tri::from_bool(asked));
                }
            }
            _ => {}
        }
    }

    fn record_attr(&mut self, id: StmtId, base: &Value, name: &Name, value: &Value) {
        if self.settings.wants_types
            && !self.quiet
            && let Value::Object(object) = base
            && let Some(cell) = self.w.heap.object(*object)
        {
            let variable = Name::from(format!("{}.{name}", cell.path));
            self.record(id, &variable, value);
        }
    }
}

/// Whether a group is called after what it is for.
fn is_named_group(value: &Value) -> bool {
    matches!(value, Value::Group(axes) if axes.single().is_some_and(|axis| axis.name() != UNNAMED))
}

/// A function found in a class, as the receiver sees it.
fn bind_method(closure: Arc<Closure>, receiver: Option<Value>, class: ClassRef) -> Value {
    match (closure.flavour, receiver) {
        (Flavour::Static, _) | (_, None) if closure.flavour != Flavour::ClassMethod => Value::Closure(closure),
        (Flavour::ClassMethod, _) => {
            Value::Bound(Arc::new(Bound { receiver: Value::Class(class), method: Method::Closure(closure) }))
        }
        (_, Some(receiver)) => Value::Bound(Arc::new(Bound { receiver, method: Method::Closure(closure) })),
        (_, None) => Value::Closure(closure),
    }
}

/// A group rule's value.
pub fn given(gives: Gives, axes: AxisSet) -> Value {
    match gives {
        Gives::Group => Value::Group(axes),
        Gives::Rank => Value::Rank(axes),
        Gives::Size => Value::Size(axes),
    }
}

/// Names that stand for a constant of the domain.
fn intrinsic_constant(rule: &IntrinsicRule) -> Option<Value> {
    Some(match rule.does.as_str() {
        "atom-R" => Value::Atom(SpmdAtom::Replicate),
        "atom-I" => Value::Atom(SpmdAtom::Invariant),
        "atom-V" => Value::Atom(SpmdAtom::Varying),
        "atom-P" => Value::Atom(SpmdAtom::Partial),
        "reduce-op" => Value::ReduceOp(Name::from(rule.name.rsplit('.').next().unwrap_or(&rule.name))),
        "true" => Value::Const(Const::Bool(true)),
        _ => return None,
    })
}
