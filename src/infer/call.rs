//! Calls: who is called, with which arguments, and what comes back. In: a callee and arguments. Out: values by world.
//! Never: typing of external functions, which `external.rs` looks up in the rules. Source: DESIGN.md section 5. Next: `external.rs`.

use super::entered::INIT;
use super::expr::{CallArg, CallArgs};
use super::heap::{Cell, DictCell, ListCell, ObjectCell, ObjectClass};
use super::join::{Joiner, agreeing, alike, same_value};
use super::limits::{MAX_CALL_DEPTH, MAX_HELD_DEPTH, MAX_RECURSION};
use super::machine::{Activation, Eval, Machine};
use super::output::Reason;
use super::settings::is_degree;
use super::value::{Closure, Flavour, Method, ObjId, Value};
use super::world::{Flow, Frame, World};
use crate::ir::{Block, Const, Func, LocalId, Operand, ParamKind, Rvalue, Stmt, StmtId};
use crate::project::{ClassRef, FuncRef};
use crate::rules::Entry;
use crate::source::Name;
use std::sync::Arc;

impl Machine<'_> {
    /// `callee(args)`
    pub fn call(&mut self, id: StmtId, callee: &Value, args: &CallArgs) -> Eval {
        match callee {
            Value::Closure(closure) => {
                let closure = closure.clone();
                self.call_function(id, &closure, args)
            }
            Value::Bound(bound) => {
                let bound = bound.clone();
                match &bound.method {
                    Method::Closure(closure) => {
                        self.call_function(id, closure, &args.with_first(bound.receiver.clone()))
                    }
                    Method::Named(name) => self.call_method(id, &bound.receiver, name, args),
                }
            }
            Value::Partial(app) => {
                let mut all = CallArgs { args: Vec::new(), open: args.open };
                all.args.extend(app.args.iter().map(|v| CallArg { keyword: None, value: v.clone(), part: 0 }));
                all.args.extend(args.args.iter().cloned());
                let given: Vec<Name> = args.args.iter().filter_map(|a| a.keyword.clone()).collect();
                all.args.extend(app.keywords.iter().filter(|(k, _)| !given.contains(k)).map(|(k, v)| CallArg {
                    keyword: Some(k.clone()),
                    value: v.clone(),
                    part: 0,
                }));
                let callee = app.callee.clone();
                self.call(id, &callee, &all)
            }
            Value::Class(class) => self.construct(id, *class, args),
            Value::Path(path) => {
                let path = path.clone();
                self.call_external(id, &path, args)
            }
            Value::Object(_) => self.call_object(id, callee, args),
            Value::Sym(path) => {
                let path = path.clone();
                self.call_symbol(id, &path, args)
            }
            _ => {
                self.unresolved(args, "value");
                Eval::One(Value::Unknown)
            }
        }
    }

    /// `base.name(args)`
    pub fn call_method(&mut self, id: StmtId, base: &Value, name: &Name, args: &CallArgs) -> Eval {
        match base {
            Value::Tensor(_) => Eval::One(self.tensor_method(id, base, name, args)),
            Value::Sym(path) if matches!(name.as_str(), "size" | "rank") && self.settings.is_group_name(path) => {
                let axes = self.axes_of_value(base);
                Eval::One(axes.map_or(Value::Unknown, |axes| self.group_method(&axes, name, args)))
            }
            Value::Sym(path) if self.axes_of_slice(path, name, args).is_some() => {
                let axes = self.axes_of_slice(path, name, args).expect("the guard found axes");
                let mesh = crate::types::Mesh::new(axes.iter().map(|a| (a.clone(), None)).collect());
                Eval::One(self.mesh_method(&Arc::new(mesh), name, &CallArgs::default()))
            }
            Value::Sym(path) => {
                let known = self.called_by_hint(id, path, name, args);
                if let Some(eval) = known.or_else(|| self.symbol_method(id, path, name, args)) {
                    return eval;
                }
                self.symbol(path).into_iter().for_each(|id| self.touch(id));
                let callee = self.attr_quietly(base, name);
                self.call(id, &callee, args)
            }
            Value::List(_) | Value::Dict(_) | Value::Tuple(_) | Value::Const(_) => {
                Eval::One(self.container_method(base, name, args))
            }
            Value::Mesh(mesh) => {
                let mesh = mesh.clone();
                self.check_mesh_call(id, &mesh, name, args);
                Eval::One(self.mesh_method(&mesh, name, args))
            }
            Value::Group(axes) => Eval::One(self.group_method(&axes.clone(), name, args)),
            Value::Object(at) if self.is_context(*at) => Eval::One(self.context_method(*at, name, args)),
            Value::Object(_) if self.registers(name) => self.register(id, base, name, args),
            Value::Object(at) if self.sharded_owner(*at, name).is_some() => {
                let owner = self.sharded_owner(*at, name);
                let called = owner.and_then(|owner| self.sharded_call(id, owner, name, args));
                Eval::One(called.unwrap_or_else(|| {
                    self.unresolved(args, name);
                    Value::Unknown
                }))
            }
            Value::Object(at) if self.is_given_back(*at, name, args) => Eval::One(base.clone()),
            Value::Object(at) if self.lists_parameters(*at, name) => Eval::One(self.listed_parameters(*at, name)),
            Value::Object(_) | Value::Super(_) => match self.object_attr(base, name) {
                found if !matches!(found, Some(Value::Bound(_))) && matches!(base, Value::Super(_)) => {
                    let layer = self.super_of_layer(id, base, name, args);
                    layer.unwrap_or_else(|| self.super_of_nothing(id, found, name, args))
                }
                Some(Value::Bound(bound)) if is_foreign(&bound) => {
                    let receiver = bound.receiver.clone();
                    self.external_method(id, &receiver, name, args)
                }
                Some(callee) => self.call(id, &callee, args),
                None => {
                    self.unresolved(args, name);
                    Eval::One(Value::Unknown)
                }
            },
            Value::Unknown | Value::Unset => {
                if let Some(value) = self.method_of_unknown(id, base, name, args) {
                    return Eval::One(value);
                }
                self.unresolved(args, name);
                Eval::One(Value::Unknown)
            }
            Value::Class(class) => match self.class_attr(*class, name, None) {
                Some(callee) => self.call(id, &callee, args),
                None => self.external_class_method(id, *class, name, args),
            },
            _ => {
                let callee = self.attr_quietly(base, name);
                match &callee {
                    Value::Bound(bound) if matches!(&bound.method, Method::Named(_)) => {
                        self.unresolved(args, name);
                        Eval::One(Value::Unknown)
                    }
                    _ => self.call(id, &callee, args),
                }
            }
        }
    }

    /// Whether a method gives the object itself.
    fn is_given_back(&mut self, at: ObjId, method: &Name, args: &CallArgs) -> bool {
        self.gives_itself(at, method) || self.adds_step(at, method, args)
    }

    /// Whether a method is one of all modules that gives the module, and nothing else has that name here: `Model(config).to(device)`.
    fn gives_itself(&mut self, at: ObjId, method: &Name) -> bool {
        let identity = |entry: Option<&Entry>| matches!(entry, Some(Entry::Intrinsic(rule)) if rule.does == "identity");
        if !self.rules.may_name(method) || !identity(self.rules.get(&format!("torch.nn.Module.{method}"))) {
            return false;
        }
        let Some(object) = self.w.heap.object(at).filter(|o| o.get(method).is_none()) else { return false };
        match object.class.clone() {
            ObjectClass::Project(class) => self.class_attr(class, method, None).is_none(),
            ObjectClass::External(path) => matches!(self.rules.get(&path), Some(Entry::Layer(_) | Entry::Module(_))),
        }
    }

    /// A method of `super()` that no class of the project has.
    fn super_of_nothing(&mut self, id: StmtId, found: Option<Value>, name: &Name, args: &CallArgs) -> Eval {
        match found {
            Some(Value::Bound(bound)) => self.external_method(id, &bound.receiver.clone(), name, args),
            Some(callee) => self.call(id, &callee, args),
            None => Eval::One(Value::NONE),
        }
    }

    /// A call of an unknown value: by rule if its path has one.
    fn call_symbol(&mut self, id: StmtId, path: &Name, args: &CallArgs) -> Eval {
        if self.rules.get(path).is_some() || self.settings.extern_of(path).is_some() {
            return self.call_external(id, path, args);
        }
        self.unresolved(args, path);
        Eval::One(self.mesh_of_call(path, args).unwrap_or(Value::Unknown))
    }

    /// A special method of an object, unknown if its class has none.
    pub fn call_dunder(&mut self, id: StmtId, base: &Value, name: &str, args: Vec<Value>) -> Eval {
        match self.object_attr(base, &Name::from(name)) {
            Some(Value::Bound(bound)) => self.call(id, &Value::Bound(bound), &CallArgs::of(args)),
            _ => Eval::One(Value::Unknown),
        }
    }

    /// A module is called: `__call__` of its class, else `forward`.
    fn call_object(&mut self, id: StmtId, object: &Value, args: &CallArgs) -> Eval {
        let class = match object {
            Value::Object(at) => self.w.heap.object(*at).map(|o| o.class.clone()),
            _ => None,
        };
        if let Some(eval) = self.call_styled(id, object, args) {
            return eval;
        }
        if self.is_hooked(object) {
            self.unresolved(args, "hook");
            return Eval::One(self.new_tensor(crate::types::TensorType::unknown()));
        }
        if let Some(ObjectClass::External(path)) = class {
            let whole = matches!(object, Value::Object(at) if self.whole_layer(id, *at, &path, args));
            let eval = self.call_external_object(id, object, &path, args);
            return if whole { self.note_whole(eval) } else { eval };
        }
        for name in ["__call__", "forward"] {
            if let Some(callee @ Value::Bound(_)) = self.object_attr(object, &Name::from(name)) {
                return self.call(id, &callee, args);
            }
        }
        if let Some(eval) = self.call_as_layer(id, object, args) {
            return eval;
        }
        self.unresolved(args, "object");
        Eval::One(Value::Unknown)
    }

    /// A function of the project: by its rule or declared signature if it has one, else its body is executed.
    fn call_function(&mut self, id: StmtId, closure: &Arc<Closure>, args: &CallArgs) -> Eval {
        if self.rules.may_name(&self.project.func(closure.func).name) {
            let path = self.project.qualified(closure.func);
            if self.rules.get(&path).is_some() {
                return self.call_external(id, &path, args);
            }
        }
        if let Some(value) = self.declared_call(id, closure, args) {
            return Eval::One(value);
        }
        // The group whose ranks are counted goes by the name of what gives it, as where autograd functions are derived.
        if args.args.is_empty()
            && self.stack.last().is_some_and(|active| self.settings.relevance.is_getter(active.func))
            && let Some(group @ Value::Group(_)) = self.accessor(None, &self.project.func(closure.func).name, args)
        {
            return Eval::One(self.kept_group(closure.func).unwrap_or(group));
        }
        let brings = |v: &Value| self.carries_type(v, 2);
        let captured =
            |cell: &super::value::ObjId| matches!(self.w.heap.get(*cell), Some(Cell::Variable(v)) if brings(v));
        let typed = args.args.iter().any(|a| brings(&a.value))
            || closure.defaults.iter().any(|(_, v)| brings(v))
            || closure.cells.iter().any(captured);
        if !typed
            && self.deriving.is_none()
            && self.w.modes.typecheck.is_none()
            && (!self.settings.relevance.contains(closure.func) || self.leads_nowhere(closure.func))
            && !self.chooses(closure.func, args)
            && !self.begins(closure.func)
            && !self.asks_ranks(closure.func)
            && !self.applies_held(closure.func, args)
            && !self.is_planned(args)
        {
            let options = super::external::options_of(&self.project.func(closure.func).name, args);
            return Eval::One(options.unwrap_or(Value::Unknown));
        }
        self.call_closure(id, closure, args)
    }

    /// Whether a method applies a module that its object was given from outside, or one that holds such a one, and that is worth executing.
    /// The constructor of its class does not show it.
    fn applies_held(&self, func: FuncRef, args: &CallArgs) -> bool {
        let callee = self.project.func(func);
        let Some(Value::Object(receiver)) = args.args.first().map(|a| &a.value).filter(|_| callee.class.is_some())
        else {
            return false;
        };
        let text = self.files[self.project.file(func.module)].slice(callee.span);
        let Some(object) = self.w.heap.object(*receiver) else { return false };
        let applied = |name: &Name| {
            text.match_indices(name.as_str())
                .any(|(at, _)| text[..at].ends_with("self.") && text[at + name.len()..].starts_with('('))
        };
        object.attrs.iter().any(|(name, value)| {
            matches!(value, Value::Object(_)) && applied(name) && self.holds_relevant(value, MAX_HELD_DEPTH)
        })
    }

    /// Whether an object is of a class that is worth executing, or holds one.
    fn holds_relevant(&self, value: &Value, depth: usize) -> bool {
        let Value::Object(id) = value else { return false };
        let Some(object) = self.w.heap.object(*id) else { return false };
        matches!(object.class, ObjectClass::Project(class) if self.settings.relevance.has_class(class))
            || depth > 0 && object.attrs.iter().any(|(_, inner)| self.holds_relevant(inner, depth - 1))
    }

    /// Whether a value brings a known type along.
    fn carries_type(&self, value: &Value, depth: usize) -> bool {
        match value {
            Value::Tensor(id) => {
                self.w.heap.tensor(*id).is_some_and(|t| !t.local.is_unknown() || t.dist.on().is_some())
            }
            Value::Sym(path) => match self.symbol(path).and_then(|id| self.w.heap.tensor(id)) {
                Some(t) => !t.local.is_unknown(),
                None => self.settings.declared_type(path).is_some(),
            },
            Value::Closure(closure) => self.settings.relevance.contains(closure.func),
            Value::Path(path) => matches!(self.rules.get(path), Some(crate::rules::Entry::Collective(_))),
            Value::Number(Some(_)) | Value::Rank(_) | Value::Edge(_) => true,
            Value::Size(_) | Value::Share(_) => self.in_constructor(),
            Value::Tuple(items) if depth > 0 => items.iter().any(|v| self.carries_type(v, depth - 1)),
            Value::Object(id) if depth > 0 => {
                self.w.heap.object(*id).is_some_and(|o| o.attrs.iter().any(|(_, v)| self.carries_type(v, depth - 1)))
            }
            Value::List(id) if depth > 0 => match self.w.heap.get(*id) {
                Some(Cell::List(cell)) => cell.items.iter().chain(&cell.rest).any(|v| self.carries_type(v, depth - 1)),
                _ => false,
            },
            Value::Dict(id) if depth > 0 => match self.w.heap.get(*id) {
                Some(Cell::Dict(cell)) => {
                    let held = cell.entries.iter().map(|(_, v)| v).chain(&cell.rest);
                    held.into_iter().any(|v| self.carries_type(v, depth - 1))
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Executes a function's body with these arguments.
    pub fn call_closure(&mut self, id: StmtId, closure: &Arc<Closure>, args: &CallArgs) -> Eval {
        let func = self.project.func(closure.func);
        let depth = self.stack.iter().filter(|a| a.func == closure.func).count();
        if func.is_generator && self.deriving.is_some() && depth < MAX_RECURSION && self.stack.len() < MAX_CALL_DEPTH {
            return self.generated(id, closure, args);
        }
        if func.is_generator || depth >= MAX_RECURSION || self.stack.len() >= MAX_CALL_DEPTH {
            self.lose(Reason::Budget, "call depth");
            self.forget(args);
            return Eval::One(Value::Unknown);
        }
        self.execute(id, closure, args)
    }

    /// The same, whatever kind of function it is.
    pub fn execute(&mut self, id: StmtId, closure: &Arc<Closure>, args: &CallArgs) -> Eval {
        let func = self.project.func(closure.func);
        let Some(caller) = self.budget.enter(closure.func, func.code.count() as u64) else {
            return self.given_up(args);
        };
        let before = self.w.clone();
        let call = self.place(id);
        let (grad, ranks) = (self.w.modes.grad, std::mem::take(&mut self.w.modes.ranks));
        let modes = (self.w.modes.typecheck, self.w.modes.unchecked, self.w.modes.global);
        let sound = closure.boundary.as_ref().is_none_or(|boundary| self.boundary_in(id, boundary, args));
        if closure.flavour == Flavour::NoTypecheck {
            self.w.modes.forget_checking();
        }
        self.enter(closure, func, args, call);
        self.gradient_off(&func.name, Some(closure.flavour));
        self.entered(closure.func);
        let paths = self.block(func.body());
        self.stack.pop();
        if self.budget.leave(closure.func, caller) {
            self.w = before;
            return self.given_up(args);
        }
        let mut outcomes: Vec<(World, Value)> = Vec::new();
        for path in paths {
            let value = match path.flow {
                Flow::Return(value) => value,
                Flow::Next => Value::NONE,
                Flow::Raise | Flow::Break | Flow::Continue => continue,
            };
            let mut world = path.world;
            world.frames.pop();
            world.modes.grad = grad;
            (world.modes.typecheck, world.modes.unchecked, world.modes.global) = modes;
            outcomes.push((world, value));
        }
        if let Some(boundary) = &closure.boundary {
            self.boundary_out(id, boundary, sound, &mut outcomes);
        }
        let outcomes = self.reunited(outcomes, &ranks);
        self.exits(outcomes)
    }

    /// Outcomes of ranks that left a function at different returns, as one: what they return differs by rank.
    pub fn reunited(&mut self, outcomes: Vec<(World, Value)>, ranks: &crate::types::AxisSet) -> Vec<(World, Value)> {
        let mut out: Vec<(World, Value)> = Vec::new();
        for (world, value) in outcomes {
            let apart = world.modes.ranks.clone();
            let twin =
                out.iter().position(|(w, _)| !apart.is_empty() && w.facts == world.facts && w.modes.ranks == apart);
            match twin {
                Some(at) => {
                    let other = out.remove(at);
                    out.insert(at, one_outcome(Joiner::new(&mut self.next_id, Some(apart)), other, &(world, value)));
                }
                None => out.push((world, value)),
            }
        }
        for (world, _) in &mut out {
            world.modes.ranks.clone_from(ranks);
        }
        out
    }

    /// A call that takes more steps than are left for it.
    fn given_up(&mut self, args: &CallArgs) -> Eval {
        self.lose(Reason::Budget, "calls");
        self.forget(args);
        Eval::One(Value::Unknown)
    }

    /// The outcomes of a call: worlds that differ in nothing but dead facts merge.
    pub fn exits(&mut self, outcomes: Vec<(World, Value)>) -> Eval {
        let mut kept: Vec<(World, Value)> = Vec::new();
        for (world, value) in outcomes {
            let twin = kept.iter().position(|(w, v)| {
                alike(w, &world) && same_value(&w.heap, v, &world.heap, &value, super::limits::MAX_VALUE_DEPTH)
            });
            match twin {
                Some(at) => {
                    let (w, v) = kept.remove(at);
                    let merged = Joiner::new(&mut self.next_id, None).worlds(w, &world);
                    kept.insert(at, (merged, v));
                }
                None => match self.of_several(&mut kept, &world, &value) {
                    true => {}
                    false => kept.push((world, value)),
                },
            }
        }
        if self.deriving.is_none() && self.w.modes.typecheck.is_none() {
            kept = self.of_one_configuration(kept);
        }
        while kept.len() > self.budget.worlds() {
            self.lose(Reason::Budget, "worlds");
            let (at, last) = super::exec::nearest(kept.len(), |at, last, on| {
                let ((w, v), (x, y)) = (&kept[at], &kept[last]);
                agreeing(w, x, on, &|_| true).is_some()
                    && same_value(&w.heap, v, &x.heap, y, super::limits::MAX_VALUE_DEPTH)
            });
            let last = kept.remove(last);
            let other = kept.remove(at);
            let joiner = Joiner::forced(&mut self.next_id);
            kept.insert(at, one_outcome(joiner, other, &last));
        }
        match kept.len() {
            0 => {
                // Every path raises: what follows is not reached, but a wrong guess here would hide the rest of the caller.
                Eval::Many(Vec::new())
            }
            1 => {
                let (world, value) = kept.pop().expect("one outcome");
                self.w = world;
                Eval::One(value)
            }
            _ => Eval::Many(kept),
        }
    }

    /// Outcomes that no flag tells apart, as one: a test that nobody knows chose between tensors of two types, and which of them the caller
    /// gets may follow from what it asks itself.
    fn of_one_configuration(&mut self, outcomes: Vec<(World, Value)>) -> Vec<(World, Value)> {
        let mut out: Vec<(World, Value)> = Vec::new();
        for (world, value) in outcomes {
            let is_tensor = |v: &Value| matches!(v, Value::Tensor(_));
            let twin = out.iter().position(|(w, v)| w.facts == world.facts && is_tensor(v) && is_tensor(&value));
            match twin {
                Some(at) => {
                    let other = out.remove(at);
                    out.insert(at, one_outcome(Joiner::new(&mut self.next_id, None), other, &(world, value)));
                }
                None => out.push((world, value)),
            }
        }
        out
    }

    /// Pushes a frame with the parameters bound.
    fn enter(&mut self, closure: &Arc<Closure>, func: &Func, args: &CallArgs, call: crate::source::Place) {
        let bound = self.bind_params(closure, func, args);
        self.stack.push(Activation::new(self.project, closure.func, Some(call)));
        self.w.frames.push(Frame::new(closure.func, func.locals().len()));
        for ((_, inner), cell) in func.captures.iter().zip(&closure.cells) {
            self.w.frame_mut().set(*inner, Value::Tensor(*cell));
        }
        for (param, value) in func.params.iter().zip(bound) {
            self.note_object(closure.func.module, param, &value);
            self.set_local(param.local, value);
        }
        self.record_params(func);
    }

    fn record_params(&mut self, func: &Func) {
        if !self.is_recording() {
            return;
        }
        let place = self.place_of(func.name_span);
        let captured = func.captures.iter().map(|(_, inner)| (*inner, &func.locals()[*inner].name));
        for (local, name) in func.params.iter().map(|p| (p.local, &p.name)).chain(captured) {
            let value = self.local(local);
            self.record_at(place, name, &value);
        }
    }

    /// The value of each parameter: the argument, the default, or unknown.
    fn bind_params(&mut self, closure: &Arc<Closure>, func: &Func, args: &CallArgs) -> Vec<Value> {
        let mut values: Vec<Option<Value>> = vec![None; func.params.len()];
        let mut rest = Vec::new();
        let mut next = 0;
        for arg in args.args.iter().filter(|a| a.keyword.is_none()) {
            let takes = |p: &crate::ir::Param| matches!(p.kind, ParamKind::PositionalOnly | ParamKind::Normal);
            if func.params.get(next).is_some_and(takes) {
                values[next] = Some(arg.value.clone());
                next += 1;
            } else {
                rest.push(arg.value.clone());
            }
        }
        let mut extra = DictCell { entries: Vec::new(), rest: args.open.then_some(Value::Unknown) };
        for arg in &args.args {
            let Some(keyword) = &arg.keyword else { continue };
            match func
                .params
                .iter()
                .position(|p| p.name == *keyword && !matches!(p.kind, ParamKind::VarArgs | ParamKind::KwArgs))
            {
                Some(at) => values[at] = Some(arg.value.clone()),
                None => extra.set(Value::str(keyword.clone()), arg.value.clone()),
            }
        }
        let mut out = Vec::with_capacity(values.len());
        for (i, (param, value)) in func.params.iter().zip(values).enumerate() {
            let default = || closure.defaults.iter().find(|(at, _)| *at as usize == i).map(|(_, v)| v.clone());
            let value = match (param.kind, value) {
                (ParamKind::VarArgs, _) if args.open => {
                    Value::List(self.fresh(Cell::List(ListCell { items: Vec::new(), rest: Some(Value::Unknown) })))
                }
                (ParamKind::VarArgs, _) => Value::tuple(std::mem::take(&mut rest)),
                (ParamKind::KwArgs, _) => Value::Dict(self.fresh(Cell::Dict(extra.clone()))),
                // A number of ranks that nobody knows still divides what it divides.
                (_, Some(value))
                    if func.name == INIT && is_degree(&param.name) && self.counts_nothing_known(&value) =>
                {
                    Value::Sym(param.name.clone())
                }
                (_, Some(value)) => self.named_group(&param.name, value),
                // A flag that an unknown caller may have set, by its name; it is told with what is found.
                (_, None) if args.open && matches!(default(), Some(Value::Const(Const::Bool(_)))) => {
                    Value::Sym(param.name.clone())
                }
                (_, None) if args.open => Value::Unknown,
                (_, None) => default().unwrap_or(Value::Unknown),
            };
            out.push(value);
        }
        out
    }

    /// A new object of a class: `__init__` runs with these arguments.
    pub fn construct(&mut self, id: StmtId, class: ClassRef, args: &CallArgs) -> Eval {
        let definition = self.project.class(class);
        if self.rules.may_name(&definition.name) {
            let path = self.project.qualified_class(class);
            let runs = |entry: &Entry| matches!(entry, Entry::Layer(rule) if rule.open);
            if self.rules.get(&path).is_some_and(|entry| !runs(entry)) {
                return self.call_external(id, &path, args);
            }
        }
        // Attributes that the constructor does not tell are those of this object, not of another one.
        self.next_id += 1;
        let path = Name::from(format!("{}#{}", self.project.class(class).name, self.next_id));
        let cell = ObjectCell { class: ObjectClass::Project(class), path, attrs: Vec::new() };
        let object = Value::Object(self.fresh(Cell::Object(cell)));
        if let Some(fields) = self.settings.dataclass_fields(self.project, class) {
            self.fill_dataclass(&object, &fields, args);
            return Eval::One(object);
        }
        let Some(Value::Bound(init)) = self.class_attr(class, &Name::from("__init__"), Some(object.clone())) else {
            self.construct_as_layer(id, class, &object, args);
            return Eval::One(object);
        };
        let Method::Closure(closure) = &init.method else { return Eval::One(object) };
        // What a relevant method reads of its object is what the constructor leaves there.
        let order = self.settings.linearized(self.project, class);
        let holds_group = |v: &Value| matches!(v, Value::Group(_) | Value::Mesh(_) | Value::Rank(_) | Value::Size(_));
        let matters = order.iter().any(|c| self.settings.relevance.has_class(*c))
            || args.args.iter().any(|a| holds_group(&a.value))
            || self.modelling
            || sets_below(self.func().body());
        let given = args.with_first(object.clone());
        let done = match matters {
            true if self.leads_nowhere(closure.func) => Eval::One(Value::Unknown),
            true => self.call_closure(id, closure, &given),
            false => self.call_function(id, closure, &given),
        };
        // What a constructor makes may still be marked by the constructors around it.
        let whole = !self.stack.iter().any(|a| self.project.func(a.func).name == "__init__");
        match done {
            Eval::One(_) => {
                let mut world = std::mem::take(&mut self.w);
                self.name_groups(&object, &mut world);
                if whole {
                    self.settle(class, &object, std::slice::from_mut(&mut world));
                }
                self.w = world;
                Eval::One(object)
            }
            Eval::Many(outcomes) => {
                let (mut worlds, _): (Vec<World>, Vec<Value>) = outcomes.into_iter().unzip();
                worlds.iter_mut().for_each(|world| self.name_groups(&object, world));
                if whole {
                    self.settle(class, &object, &mut worlds);
                }
                Eval::Many(worlds.into_iter().map(|w| (w, object.clone())).collect())
            }
        }
    }

    /// Fields of a dataclass by position and keyword.
    fn fill_dataclass(&mut self, object: &Value, fields: &[(Name, Option<Value>)], args: &CallArgs) {
        let Value::Object(id) = object else { return };
        let mut cell = match self.w.heap.object(*id) {
            Some(cell) => cell.clone(),
            None => return,
        };
        // Fields declared without a default are not in the list, so positions are not known: any field may be the one that is given.
        let positional = args.open || args.args.iter().any(|a| a.keyword.is_none());
        for (name, default) in fields {
            if let Some(value) = default {
                cell.set(name, if positional { Value::Unknown } else { value.clone() });
            }
        }
        for arg in &args.args {
            if let Some(name) = &arg.keyword {
                cell.set(name, arg.value.clone());
            }
        }
        self.w.heap.insert(*id, Cell::Object(cell));
    }

    /// A call that nothing resolves: counted, and what it may have changed is forgotten.
    pub fn unresolved(&mut self, args: &CallArgs, what: &str) {
        self.lose(Reason::UnresolvedCall, what);
        self.unresolved_in_derivation(args, what);
        self.forget(args);
    }

    /// Forgets what an unknown function may do to its arguments: reduce a pending or varying value, change a container.
    pub fn forget(&mut self, args: &CallArgs) {
        for arg in &args.args {
            let value = arg.value.clone();
            self.forget_value(&value, 3);
        }
    }

    fn forget_value(&mut self, value: &Value, depth: usize) {
        if depth == 0 {
            return;
        }
        match value {
            Value::Tensor(id) => self.forget_tensor(*id),
            Value::Sym(path) => {
                if let Some(id) = self.symbol(path) {
                    self.forget_tensor(id);
                }
            }
            Value::Tuple(items) => {
                for item in items.iter() {
                    self.forget_value(item, depth - 1);
                }
            }
            Value::Object(id) => {
                let attrs = self.w.heap.object(*id).map_or_else(Vec::new, |o| o.attrs.clone());
                for (_, value) in attrs.iter().filter(|(_, v)| matches!(v, Value::Tensor(_))) {
                    self.forget_value(value, depth - 1);
                }
                let groups = attrs.iter().filter(|(_, v)| super::groups::is_unnamed(v));
                if let Some(Cell::Object(cell)) = self.w.heap.get_mut(*id) {
                    groups.for_each(|(name, _)| cell.set(name, Value::Unknown));
                }
            }
            Value::List(id) => {
                if let Some(cell) = self.list_cell(*id) {
                    for item in cell.items.iter().chain(&cell.rest) {
                        self.forget_value(item, depth - 1);
                    }
                    self.w.heap.insert(*id, Cell::List(ListCell { items: Vec::new(), rest: Some(Value::Unknown) }));
                }
            }
            Value::Dict(id) => {
                let Some(Cell::Dict(cell)) = self.w.heap.get_mut(*id) else { return };
                cell.open();
                let held: Vec<Value> = cell.entries.iter().map(|(_, v)| v.clone()).collect();
                held.iter().for_each(|v| self.touch_value(v));
            }
            _ => {}
        }
    }

    fn forget_tensor(&mut self, id: super::value::ObjId) {
        use crate::types::{AxisState, AxisType};
        self.maybe_distributed(id);
        self.touch(id);
        let Some(mut t) = self.w.heap.tensor(id).cloned() else { return };
        // What a size makes a part stays one whatever fills it: `init_method(self.weight)`.
        if t.home.is_some() && t.divided.is_some() {
            return;
        }
        if t.grad == crate::types::Tri::Yes && t.local.listed().all(|(_, s)| s.set.leq(AxisType::EQUAL)) {
            return;
        }
        let movable = AxisType::V.join(AxisType::P);
        let axes: Vec<_> = t
            .local
            .listed()
            .filter(|(_, s)| !s.set.meet(movable).is_empty() && !s.is_declared())
            .map(|(a, _)| a.clone())
            .collect();
        for axis in axes {
            t.local.set(&axis, AxisState::UNKNOWN);
        }
        if !t.local.rest.set.meet(movable).is_empty() {
            t.local.rest = AxisState::UNKNOWN;
        }
        // What is forgotten is not missing in the program, and is no zero any more.
        (t.untracked, t.zero) = (true, false);
        self.retype(id, t);
    }
}

impl Machine<'_> {
    /// A method of a group: how many ranks it has, which of them this is; any other, as `group.allreduce([x])`, may change what it is given.
    fn group_method(&mut self, axes: &crate::types::AxisSet, name: &str, args: &CallArgs) -> Value {
        match name {
            "size" => Value::Size(axes.clone()),
            "rank" => Value::Rank(axes.clone()),
            _ => {
                self.forget(args);
                Value::Unknown
            }
        }
    }
}

/// Whether a bound method is one of a receiver outside the project; `self.sum = Sum.apply` is called as it is.
fn is_foreign(bound: &super::value::Bound) -> bool {
    matches!(&bound.method, Method::Named(_)) && !matches!(&bound.receiver, Value::Class(_))
}

/// What two outcomes have in common.
fn one_outcome(mut joiner: Joiner<'_>, (world, value): (World, Value), other: &(World, Value)) -> (World, Value) {
    let mut joined = joiner.worlds(world, &other.0);
    let value = joiner.values(&mut joined.heap, &value, &other.1, super::limits::MAX_VALUE_DEPTH);
    (joined, value)
}

/// Whether a function sets attributes of what an object holds: `model.block.mlp = Mlp(..)`. What its constructor leaves there counts then.
fn sets_below(block: &Block) -> bool {
    let mut held: Option<LocalId> = None;
    block.iter().any(|node| match &node.stmt {
        Stmt::Assign { dst, value: Rvalue::Attr { base: Operand::Local(_), .. } } => {
            held = Some(*dst);
            false
        }
        Stmt::SetAttr { base: Operand::Local(base), .. } => held == Some(*base),
        other => other.blocks().any(sets_below),
    })
}
