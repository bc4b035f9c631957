//! What a group expression denotes. In: a value. Out: mesh axes. Never: guesses that lead to errors: a group that nothing resolves is
//! a variable of its own, equal only to itself. Source: DESIGN.md section 5, order of resolution. Next: `intrinsics.rs`.

use super::expr::CallArgs;
use super::heap::{Cell, ObjectClass};
use super::items::mesh_group;
use super::limits::MAX_UNNAMED_GROUPS;
use super::machine::{Eval, Machine};
use super::ops::{AxisRef, Operand};
use super::output::Reason as Lost;
use super::settings::is_degree;
use super::value::Value;
use super::world::World;
use crate::ir::{Const, LocalId, LocalKind, Operand as Read, Rvalue, Stmt, StmtId};
use crate::project::{ClassRef, FuncRef, ModuleId};
use crate::rules::{CollectiveRule, Entry};
use crate::source::{Name, Span};
use crate::types::{Axis, AxisSet, AxisState, AxisType, Mesh};
use std::sync::Arc;

/// Words of names of groups that tell no axis.
const OF_GROUPS: &[&str] = &["", "get", "group", "pg", "process", "parallel", "comm", "new", "self", "g"];

/// The group of all ranks where no mesh says which axes they have.
pub const WORLD: &str = "world";

/// Whether an operand of which nothing is known on an axis differs over a group that nothing resolves and that may be that of the axis,
/// as the group of all ranks may be any.
pub fn may_differ(operands: &[Operand], states: &[AxisState], axis: &AxisRef) -> bool {
    let AxisRef::Named(axis) = axis else { return false };
    let may_be = |group: &Axis| match axis.is_variable() {
        true => group != axis && (is_all_ranks(group) || is_all_ranks(axis)),
        false => may_name(group, axis),
    };
    let differs = |(group, state): (&Axis, &AxisState)| {
        group.is_variable() && !state.set.is_unknown() && !state.set.leq(AxisType::EQUAL) && may_be(group)
    };
    operands.iter().zip(states).any(|(o, s)| s.set.is_unknown() && o.ty.listed().any(differs))
}

/// Whether a group that nothing resolves may be that of an axis, by what it is called: `group`, or `tp_group` for `tp`. What something gives
/// that is not seen may be that of any.
pub fn may_name(group: &Axis, axis: &Axis) -> bool {
    let last = group.name().rsplit('.').next().unwrap_or_default();
    let mut words = last.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let given = group.name().contains(['(', '#', '[']);
    given
        || matches!(last, "group" | "pg" | "g")
        || last.contains("process_group")
        || words.any(|word| word == axis.name())
}

/// Whether two groups, of which one is known as what was made or given at a place alone, may be one by what they are called: `tp_group` and
/// what `get_tp_group()` gives, and the axis `tp`. What says no axis may be any.
pub fn are_called_alike(a: &Axis, b: &Axis) -> bool {
    let words = |axis: &Axis| -> Vec<String> {
        let last = axis.shown().rsplit('.').next().unwrap_or_default();
        let words = last.split(|c: char| !c.is_alphanumeric()).filter(|word| !OF_GROUPS.contains(word));
        words.map(str::to_owned).collect()
    };
    let (a, b) = (words(a), words(b));
    a.is_empty() || b.is_empty() || a.iter().any(|word| b.contains(word))
}

/// Whether a group is that of all ranks without a mesh.
pub fn is_world(axes: &AxisSet) -> bool {
    axes.single().is_some_and(is_all_ranks)
}

/// Whether an axis is that of all ranks without a mesh.
pub fn is_all_ranks(axis: &Axis) -> bool {
    axis.is_variable() && axis.name() == WORLD
}

/// Whether a value is a group of which nothing is known but its identity.
pub fn is_unnamed(value: &Value) -> bool {
    matches!(value, Value::Sym(path) if path.starts_with('?'))
}

/// Whether a value is such a group, with an identity that it was given when it was read.
pub fn is_passing(value: &Value) -> bool {
    matches!(value, Value::Sym(path) if path.starts_with('?') && path.contains('#'))
}

impl Machine<'_> {
    /// The axes of the group argument of a collective.
    pub fn group_axes(&mut self, group: Option<&Value>, rule: &CollectiveRule) -> Option<AxisSet> {
        match group {
            None | Some(Value::Const(Const::None)) => self.default_axes(&rule.default_group),
            Some(value) => self.axes_of_value(value),
        }
    }

    /// The axes of an absent group: those of the rule, or all of the mesh.
    pub fn default_axes(&mut self, default: &[Name]) -> Option<AxisSet> {
        if default.is_empty() {
            return Some(self.whole_mesh().unwrap_or_else(|| AxisSet::one(Axis::variable(WORLD))));
        }
        Some(default.iter().map(|a| self.settings.canonical(a)).collect())
    }

    /// Every axis of the mesh in force, if there is one.
    pub fn whole_mesh(&self) -> Option<AxisSet> {
        let mesh = self.w.modes.mesh.clone().or_else(|| self.settings.mesh_of(self.activation().module))?;
        Some(mesh.axis_set())
    }

    /// The axes that a value denotes.
    pub fn axes_of_value(&mut self, value: &Value) -> Option<AxisSet> {
        match value {
            Value::Group(axes) => Some(axes.clone()),
            Value::Mesh(mesh) => Some(mesh_group(mesh)).filter(|_| mesh.is_named()),
            Value::Path(path) if self.is_everyone(path) => self.default_axes(&[]),
            Value::Const(Const::Str(name)) => {
                Some(self.settings.axes_named(name).unwrap_or_else(|| AxisSet::one(Axis::new(name.clone()))))
            }
            Value::Tuple(items) => {
                let mut all = Vec::new();
                for item in items.iter() {
                    all.extend(self.axes_of_value(item)?.iter().cloned());
                }
                Some(all.into_iter().collect())
            }
            Value::Sym(path) => Some(match self.settings.group_named(path) {
                Some(axes) => axes,
                // The name of a group stands for it.
                None if self.deriving.is_some() => {
                    let name = path.strip_prefix('?').unwrap_or(path);
                    AxisSet::one(Axis::variable(name.strip_suffix("_name").unwrap_or(name)))
                }
                None => self
                    .unknown_mesh_group(path)
                    .unwrap_or_else(|| AxisSet::one(Axis::variable(path.strip_prefix('?').unwrap_or(path)))),
            }),
            _ => None,
        }
    }

    /// `group or WORLD`: without a group, its name stands for that of all ranks everywhere.
    pub fn group_or_all(&self, and: bool, values: &[Value]) -> Option<Value> {
        let [group @ Value::Sym(path), all] = values else { return None };
        let is_all = matches!(all, Value::Group(_)) || matches!(all, Value::Path(path) if self.is_everyone(path));
        let is_group = self.settings.is_group_name(path.rsplit('.').next().unwrap_or(path));
        (!and && is_all && is_group).then(|| group.clone())
    }

    /// Whether a path is the constant that stands for the group of all ranks.
    fn is_everyone(&self, path: &str) -> bool {
        matches!(self.rules.get(path), Some(Entry::Intrinsic(rule)) if rule.does == "world-group")
    }

    /// A value that is a group by the name it is given, if nothing else is known of it: one that is equal only to itself. What is read
    /// from the same name later may be another group, so each value has an identity of its own.
    pub fn named_group(&mut self, name: &str, value: Value) -> Value {
        if !matches!(value, Value::Unknown) || !self.settings.is_group_name(name) || self.deriving.is_some() {
            return value;
        }
        self.fresh_group(name).map_or(Value::Unknown, Value::Sym)
    }

    /// A group that is made here, under the name that it is given.
    pub fn made_group(&mut self, id: StmtId) -> Value {
        if self.deriving.is_some() {
            return Value::Unknown;
        }
        let name = self.assigned_to(id).unwrap_or("new_group").to_owned();
        self.fresh_group(&name).map_or(Value::Unknown, Value::Sym)
    }

    /// The name that is given to the value of a statement, as it is written: `self.group`.
    fn assigned_to(&self, id: StmtId) -> Option<&str> {
        let place = self.place(id);
        let before = self.files[place.file].whole().get(..place.span.start as usize)?;
        let line = before.rsplit('\n').next()?;
        let name = line.trim_end().strip_suffix('=')?.trim();
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
        is_name.then_some(name)
    }

    /// Stores a value in a variable, which may name it a group.
    pub fn assign_named(&mut self, id: StmtId, dst: LocalId, value: Value) {
        let value = self.named_group_in(dst, value);
        self.assign(id, dst, value);
    }

    /// The same for each target of `a, b, *c = value`.
    pub fn unpack_named(
        &mut self,
        id: StmtId,
        value: &Value,
        before: &[LocalId],
        star: Option<LocalId>,
        after: &[LocalId],
    ) {
        self.unpack(id, value, before, star, after);
        for local in before.iter().chain(after) {
            if matches!(self.w.frame().get(*local), Value::Unknown) {
                let value = self.named_group_in(*local, Value::Unknown);
                self.set_local(*local, value);
            }
        }
    }

    fn named_group_in(&mut self, local: LocalId, value: Value) -> Value {
        if !matches!(value, Value::Unknown) {
            return value;
        }
        match &self.func().locals()[local] {
            local if local.kind != LocalKind::Temp => self.named_group(&local.name, value),
            _ => value,
        }
    }

    /// The groups that the attributes of an object hold once its constructor has run, where nothing else is known of them.
    pub fn name_groups(&self, object: &Value, world: &mut World) {
        let Value::Object(id) = object else { return };
        let is_open = |(name, value): &(Name, Value)| {
            self.settings.is_group_name(name) && (matches!(value, Value::Unknown) || is_unnamed(value))
        };
        let Some(cell) = world.heap.object(*id).filter(|cell| cell.attrs.iter().any(is_open)) else { return };
        let mut cell = cell.clone();
        let class = match cell.class {
            ObjectClass::Project(class) => Some(class),
            ObjectClass::External(_) => None,
        };
        for entry in cell.attrs.iter_mut().filter(|entry| is_open(entry)) {
            // One that other functions set may be another one when they were called.
            if class.is_none_or(|class| self.may_change(class, &entry.0)) {
                entry.1 = Value::Unknown;
            } else if matches!(entry.1, Value::Unknown) {
                let (name, path) = (&entry.0, format!("{}.{}", cell.path, entry.0));
                let declared = self.settings.group_named(&path).or_else(|| self.settings.group_named(name));
                let known = declared.map(Value::Group).or_else(|| self.group_rule(&path, name));
                entry.1 = known.unwrap_or_else(|| Value::Sym(Name::from(format!("?{path}"))));
            }
        }
        world.heap.insert(*id, Cell::Object(cell));
    }

    /// Whether anything but the constructor of a class may set an attribute: a function of its module, one that sets attributes by names
    /// in variables, or a base that is not in sight.
    fn may_change(&self, class: ClassRef, name: &Name) -> bool {
        let text = self.files[self.project.file(class.module)].whole();
        self.sets_elsewhere(class, name)
            || ["setattr(", "__dict__"].iter().any(|word| text.contains(word))
            || self.settings.statics.external_bases(class).any(|base| !base.starts_with("torch."))
    }

    /// What a getter of a group returns, if nothing else is known of it: a group that is equal only to itself.
    pub fn asked_group(
        &mut self,
        eval: Eval,
        base: Option<&Value>,
        callee: &Value,
        name: Option<&Name>,
        args: &CallArgs,
    ) -> Eval {
        if let Some(count) = self.asked_variable(&eval, base, callee, name, args) {
            return Eval::One(count);
        }
        // A variable that a function sets is another group at each reading, unless the name of its getter says which.
        let unknown = |value: &Value| matches!(value, Value::Unknown) || is_unnamed(value);
        let any = match &eval {
            Eval::One(value) => unknown(value),
            Eval::Many(outcomes) => outcomes.iter().any(|(_, value)| unknown(value)),
        };
        if !any || self.deriving.is_some() || args.open {
            return eval;
        }
        let last = match (name, callee) {
            (Some(name), _) => name.clone(),
            (None, Value::Closure(closure)) => self.project.func(closure.func).name.clone(),
            (None, Value::Path(path) | Value::Sym(path)) => super::collective::short(path),
            _ => return eval,
        };
        // The own rank in a group that the name does not tell.
        if let (Value::Path(path), Eval::One(Value::Unknown)) = (callee, &eval)
            && args.args.is_empty()
            && base.is_none()
            && self.settings.is_rank(&format!("{path}()"))
        {
            return Eval::One(Value::Rank(AxisSet::one(Axis::variable(path))));
        }
        let Some(group) = self.getter(&last, base, callee, args) else { return eval };
        let takes =
            |value: &Value| matches!(value, Value::Unknown) || is_unnamed(value) && matches!(group, Value::Group(_));
        match eval {
            Eval::One(value) => Eval::One(if takes(&value) { group } else { value }),
            Eval::Many(outcomes) => {
                let named = |value: Value| if takes(&value) { group.clone() } else { value };
                Eval::Many(outcomes.into_iter().map(|(world, value)| (world, named(value))).collect())
            }
        }
    }

    /// The identity of a call that asks for a group: `parallel.get_group()`.
    fn getter(&mut self, name: &Name, base: Option<&Value>, callee: &Value, args: &CallArgs) -> Option<Value> {
        let asks = name.trim_start_matches('_').starts_with("get_");
        if !asks || !self.settings.is_group_name(name) {
            return None;
        }
        let found = match base {
            Some(base) => self.attr_quietly(base, name),
            None => callee.clone(),
        };
        // A function that is given nothing is asked for the same group all over the program, forward and backward alike.
        if args.args.is_empty()
            && matches!(found, Value::Closure(_) | Value::Path(_))
            && let Some(group @ Value::Group(_)) = self.accessor(None, name, args)
            && !self.is_set_here(name)
        {
            return Some(group);
        }
        let path = match (&found, base) {
            (Value::Closure(closure), _) => self.project.qualified(closure.func).to_string(),
            (Value::Path(path) | Value::Sym(path), _) => path.to_string(),
            (Value::Bound(_), Some(Value::Object(id))) => format!("{}.{name}", self.w.heap.object(*id)?.path),
            _ => return None,
        };
        // What a method returns may be set between two calls, and chosen by arguments: each call has an identity of its own.
        self.fresh_group(&format!("{path}()")).map(Value::Sym)
    }

    /// What getters give that return a variable of their module: the counts of `get_tp_world_size()` and `get_tp_rank()` beside
    /// `get_tp_group()`, and the identity of anything else.
    pub fn asked_variable(
        &mut self,
        eval: &Eval,
        base: Option<&Value>,
        callee: &Value,
        name: Option<&Name>,
        args: &CallArgs,
    ) -> Option<Value> {
        if !matches!(eval, Eval::One(Value::Sym(_) | Value::Unknown)) || !args.args.is_empty() || args.open {
            return None;
        }
        let found = match (base, name) {
            (Some(base @ (Value::Module(_) | Value::Package(_))), Some(name)) => self.attr_quietly(base, name),
            (Some(_), _) => return None,
            (None, _) => callee.clone(),
        };
        let Value::Closure(closure) = found else { return None };
        let func = closure.func;
        if let Some((object, attribute)) = self.attribute_returned(func) {
            let count = self.attribute_beside(func.module, &object, &attribute);
            return count.or_else(|| self.kept_group(func).filter(|_| matches!(eval, Eval::One(Value::Unknown))));
        }
        let variable = self.variable_returned(func)?;
        let body = self.project.func(closure.func).body();
        let kept = variable.trim_start_matches('_').to_ascii_lowercase();
        if !is_degree(&kept) && !self.settings.is_rank(&kept) {
            if body.len() > 1 || !matches!(eval, Eval::One(Value::Unknown)) {
                return None;
            }
            // What sets the variable is not followed: an object, or a dict, of groups keeps its identity.
            let value = self.variable_of(closure.func.module, &variable);
            return Some(value).filter(|v| matches!(v, Value::Sym(_) | Value::Group(_)) && !is_unnamed(v));
        }
        if let Some(count) = self.count_beside(closure.func.module, &variable) {
            return Some(count);
        }
        let name = &self.project.func(closure.func).name;
        if !name.starts_with("get_") || self.is_set_here(name) {
            return None;
        }
        let count = self.accessor(None, name, args)?;
        let (Value::Size(axes) | Value::Rank(axes)) = &count else { return None };
        let group = format!("get_{}_group", axes.single()?.name());
        self.project.own_function(closure.func.module, &group).map(|_| count)
    }

    /// The variable of its module that a function returns in the end.
    fn variable_returned(&self, func: FuncRef) -> Option<Name> {
        match &self.project.func(func).body().last()?.stmt {
            Stmt::Return { value: Read::Global(variable) } => Some(variable.clone()),
            _ => None,
        }
    }

    /// A variable of its module of which a function returns an attribute in the end, and that attribute: `return _CONTEXT.tp_size`.
    fn attribute_returned(&self, func: FuncRef) -> Option<(Name, Name)> {
        let [.., before, last] = &**self.project.func(func).body() else { return None };
        let Stmt::Return { value: Read::Local(value) } = &last.stmt else { return None };
        match &before.stmt {
            Stmt::Assign { dst, value: Rvalue::Attr { base: Read::Global(object), name } } if dst == value => {
                Some((object.clone(), name.clone()))
            }
            _ => None,
        }
    }

    /// The group that a getter returns from an attribute of a variable of its module, if that has an identity of its own.
    pub fn kept_group(&mut self, getter: FuncRef) -> Option<Value> {
        let (object, attribute) = self.attribute_returned(getter)?;
        if !self.settings.is_group_name(&attribute) {
            return None;
        }
        let object = self.variable_of(getter.module, &object);
        let value = self.attr_quietly(&object, &attribute);
        let is_one = match &value {
            Value::Group(_) => true,
            Value::Sym(path) => !path.starts_with('?'),
            _ => false,
        };
        is_one.then_some(value)
    }

    /// The number of ranks, or the own rank, that an object keeps beside a group whose name the tables know: `tp_size` beside `tp_group`.
    fn attribute_beside(&mut self, module: ModuleId, object: &Name, attribute: &Name) -> Option<Value> {
        let (stem, count) = self.count_named(attribute)?;
        let object = self.variable_of(module, object);
        match self.attr_quietly(&object, &Name::from(format!("{stem}_group"))) {
            Value::Group(axes) => Some(count(axes)),
            _ => None,
        }
    }

    /// Whether the file that is executed may have a getter give several groups: it calls what sets them with several, or with what a function is
    /// given. `set_model_group(group)` in a constructor, or once with a group that is made there, is how the program starts.
    fn is_set_here(&self, getter: &str) -> bool {
        let module = self.activation().module;
        let text = self.files[self.project.file(module)].whole();
        let set = format!("set_{}(", getter.trim_start_matches('_').trim_start_matches("get_"));
        let called = |at: &usize| !text.get(..*at).is_some_and(|before| before.ends_with("def "));
        let mut before: Option<&str> = None;
        for at in memchr::memmem::find_iter(text.as_bytes(), &set).filter(called) {
            let group = text.get(at + set.len()..).and_then(|rest| rest.split(')').next()).unwrap_or_default();
            let around = u32::try_from(at).ok().and_then(|at| self.project.func_around(module, Span::new(at, at)));
            // What is handed on may be another group in each call, but for constructors, with which the program starts.
            let handed_on = around.is_some_and(|func| {
                let func = self.project.func(func);
                func.name != "__init__" && (func.is_generator || func.params.iter().any(|param| param.name == group))
            });
            if before.is_some_and(|before| before != group) || handed_on {
                return true;
            }
            before = Some(group);
        }
        false
    }

    /// An identity that no other group has; nothing if there are too many already.
    fn fresh_group(&mut self, name: &str) -> Option<Name> {
        // The program sums the gradients of marked parameters over what it calls so.
        let own = self.settings.summed_over().filter(|own| name.rsplit('.').next() == Some(own));
        if let Some(own) = own {
            return Some(Name::from(own));
        }
        if self.unnamed_groups >= MAX_UNNAMED_GROUPS {
            self.lose(Lost::Budget, "groups");
            return None;
        }
        self.unnamed_groups += 1;
        self.next_id += 1;
        Some(Name::from(format!("?{name}#{}", self.next_id)))
    }

    /// The axes of a slice of a mesh that nothing else is known of: `mesh["tp"].get_group()`, `mesh.get_group("tp")`.
    pub fn axes_of_slice(&self, path: &str, method: &str, args: &CallArgs) -> Option<AxisSet> {
        if !matches!(method, "get_group" | "get_local_rank" | "get_coordinate" | "size" | "get_rank") {
            return None;
        }
        let given = args.get(0, "mesh_dim").and_then(Value::as_str).map(|s| s.to_string());
        let sliced = path.strip_suffix("\"]").and_then(|p| p.rsplit_once("[\"")).map(|(_, name)| name.to_string());
        let name = match (given, sliced) {
            (Some(name), _) if method.starts_with("get_") => name,
            (None, Some(name)) if args.args.is_empty() => name,
            _ => return None,
        };
        Some(self.settings.axes_named(&name).unwrap_or_else(|| AxisSet::one(Axis::new(name))))
    }

    /// An attribute of a mesh.
    pub fn mesh_attr(&mut self, mesh: &Arc<Mesh>, name: &Name) -> Option<Value> {
        match name.as_str() {
            "ndim" => Some(Value::int(mesh.ndim() as i64)),
            "mesh_dim_names" if mesh.is_named() && !mesh.flat => {
                Some(Value::tuple(mesh.axes.iter().map(|(a, _)| Value::str(a.0.clone())).collect()))
            }
            _ => None,
        }
    }

    /// A method of a mesh: its groups, sizes and ranks.
    pub fn mesh_method(&mut self, mesh: &Arc<Mesh>, name: &Name, args: &CallArgs) -> Value {
        let axes = match args.get(0, "mesh_dim").or_else(|| args.keyword("mesh_dim_name")) {
            None | Some(Value::Const(Const::None)) => Some(mesh.axis_set()),
            Some(Value::Const(Const::Str(axis))) => {
                mesh.axes.iter().find(|(a, _)| a.name() == axis.as_str()).map(|(a, _)| AxisSet::one(a.clone()))
            }
            Some(Value::Const(Const::Int(n))) => {
                usize::try_from(*n).ok().and_then(|n| mesh.axes.get(n)).map(|(a, _)| AxisSet::one(a.clone()))
            }
            Some(_) => None,
        };
        if !mesh.is_named() {
            return Value::Unknown;
        }
        match (name.as_str(), axes) {
            ("get_group", Some(axes)) => Value::Group(axes),
            ("size", Some(axes)) => Value::Size(axes),
            ("get_local_rank" | "get_rank" | "get_coordinate", Some(axes)) => Value::Rank(axes),
            // The flattened mesh has one dim that stands for all axes.
            ("_flatten", _) => Value::Mesh(Arc::new(Mesh { axes: mesh.axes.clone(), flat: true, auto: mesh.auto })),
            _ => Value::Unknown,
        }
    }
}
