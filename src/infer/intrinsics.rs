//! Functions with a meaning of their own in the checker: statements about types, meshes, contexts, gradients. In: the rule's `does`
//! and a call. Out: a value or an effect. Never: paths of frameworks. Source: `rules/README.md`, section on intrinsics.
//! Next: `assertion.rs`.

use super::exec::several_ranks;
use super::expr::CallArgs;
use super::finding::{FindingKind, OperandAt};
use super::formula::Formula;
use super::heap::Cell;
use super::machine::{Eval, Machine};
use super::output::Reason;
use super::value::{Boundary, Closure, Context, Flavour, PartialApp, Value};
use super::world::{Flow, Path};
use crate::ir::annotation::Atom;
use crate::ir::{Block, Const, LocalId, StmtId};
use crate::rules::IntrinsicRule;
use crate::source::Name;
use crate::types::{Axis, AxisSet, AxisState, AxisType, LocalType, Mesh, Origin, Reason as Why, Spmd, TensorType, Tri};
use std::sync::Arc;

impl Machine<'_> {
    pub fn intrinsic(&mut self, id: StmtId, rule: &Arc<IntrinsicRule>, args: &CallArgs) -> Eval {
        let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let bound = rule.args.bind(&keywords);
        let arg = |name: &str| {
            let at = rule.args.index(name)?;
            bound.first(at).map(|i| args.args[i].value.clone())
        };
        let first = args.positional(0).cloned();
        let value = match rule.does.as_str() {
            "assert-type" => self.assert_type(id, args),
            "assert-type-like" => self.assert_type_like(id, args),
            "reinterpret-no-grad" => self.reinterpret_no_grad(id, args),
            "mutate-type" => self.mutate_type(id, args),
            "typecheck" => {
                let strict = match arg("strict_mode") {
                    Some(Value::Const(Const::Str(mode))) => Some(mode == "strict"),
                    _ => None,
                };
                let local = arg("local").and_then(|v| v.as_bool());
                Value::Context(Arc::new(Context::Typecheck { strict, local }))
            }
            "no-typecheck" => unchecked(first, args),
            "local-map" => boundary(arg("in_types"), arg("out_types")),
            "is-type-checking" => Value::Const(Const::Bool(self.w.modes.typecheck.is_some())),
            "set-current-mesh" => match first.and_then(|m| self.mesh_of_value(&m)) {
                Some(mesh) => Value::Context(Arc::new(Context::Mesh(mesh))),
                None => Value::Unknown,
            },
            "no-grad" => self.grad_context(first, false),
            "enable-grad" => self.grad_context(first, true),
            "set-grad-enabled" => match first.and_then(|v| v.as_bool()) {
                Some(on) => Value::Context(Arc::new(Context::Grad(on))),
                None => Value::Unknown,
            },
            "null-context" => Value::Context(Arc::new(Context::Null)),
            "local" => Value::Context(Arc::new(Context::Local)),
            "scalar" => self.scalar(args),
            "shard-type" => match first.as_ref().and_then(Value::as_int).and_then(|n| i32::try_from(n).ok()) {
                Some(n) => Value::Atom(Atom::Shard(n)),
                None => Value::Unknown,
            },
            "partition-spec" => self.partition_spec(args),
            "parameter" => self.parameter(id, args),
            "transparent" | "identity" | "copy" | "wraps" | "register-function" | "buffer" => match first {
                Some(value) => value,
                None => Value::Path(rule.name.clone()),
            },
            "decorator-factory" => Value::Path(rule.name.clone()),
            "cast" => args.positional(1).cloned().unwrap_or(Value::Unknown),
            "partial" => match first {
                Some(callee) => self.partial(callee, args),
                None => Value::Unknown,
            },
            "checkpoint" => return self.checkpoint(id, rule, args),
            "mark-partitioned" => self.mark_partitioned(id, rule, args),
            "module-list" | "module-dict" | "sequential" | "module-spec" | "build-module" => {
                return self.container(id, rule, args);
            }
            "pure" | "checkpoint-axes" | "whole-number" => super::part_sizes::pure(rule, args),
            "barrier" | "init-process-group" => Value::NONE,
            "state-object" => rule.role("object").map_or(Value::Unknown, |object| Value::Sym(object.clone())),
            "new-group" => self.made_group(id),
            "rooted-collective" if self.deriving.is_some() && rule.name.ends_with("broadcast") => {
                self.broadcast_term(rule, args)
            }
            "gather-matmul" | "matmul-scatter" => self.fused(rule, args),
            "reduce-op" | "object-collective" | "rooted-collective" => {
                self.lost_in_derivation(args, &super::collective::short(&rule.name));
                self.forget(args);
                Value::Unknown
            }
            other => {
                if let Some(value) = self.mesh_intrinsic(id, rule, other, first.as_ref(), &arg) {
                    return Eval::One(value);
                }
                self.without_types(id, rule, args)
            }
        };
        Eval::One(value)
    }

    /// A function about distributed tensors, or one that says nothing of types here.
    fn without_types(&mut self, id: StmtId, rule: &Arc<IntrinsicRule>, args: &CallArgs) -> Value {
        match rule.does.as_str() {
            "configuration" => return self.configuration(rule, args),
            "gives-first" => return args.positional(0).cloned().unwrap_or(Value::Unknown),
            "gives-back" => return given_back(args),
            _ => {}
        }
        if let Some(value) = self.distributed_intrinsic(id, rule, args) {
            return value;
        }
        if let Some(value) = self.declared_intrinsic(id, rule, args) {
            return value;
        }
        if let Some(value) = self.annotating_intrinsic(id, rule, args) {
            return value;
        }
        match rule.does.split_once('-') {
            Some(("number" | "sharding", _)) => {
                self.lost_in_derivation(args, &super::collective::short(&rule.name));
            }
            _ => self.lose(Reason::NoRule, &rule.does),
        }
        self.forget(args);
        Value::Unknown
    }

    /// Meshes, groups, ranks and sizes; `None` if the rule is about something else.
    fn mesh_intrinsic(
        &mut self,
        id: StmtId,
        rule: &IntrinsicRule,
        does: &str,
        first: Option<&Value>,
        arg: &dyn Fn(&str) -> Option<Value>,
    ) -> Option<Value> {
        Some(match does {
            // What an autograd function does on one rank alone says nothing of its types.
            "grad-enabled" => Value::Const(crate::ir::Const::Bool(self.w.modes.grad)),
            "several-ranks" if self.deriving.is_some() => Value::TRUE,
            "several-ranks" => Value::Cond(Arc::new(Formula::Atom(several_ranks()))),
            "init-device-mesh" => self.device_mesh(id, arg("mesh_shape"), arg("mesh_dim_names")),
            "device-mesh" => self.device_mesh(id, None, arg("mesh_dim_names")),
            "world-group" => self.default_axes(&[]).map_or(Value::Unknown, Value::Group),
            "get-rank" => match self.optional_group(arg("group").as_ref(), &rule.default_group) {
                Some(axes) => Value::Rank(axes),
                None => Value::Rank(crate::types::AxisSet::one(Axis::variable("world"))),
            },
            "get-world-size" => match self.optional_group(arg("group").as_ref(), &rule.default_group) {
                Some(axes) => Value::Size(axes),
                // Of some group, nobody knows which.
                None if arg("group").is_some_and(|group| !group.is_none()) => Value::Unknown,
                None => Value::Size(crate::types::AxisSet::one(Axis::variable("world"))),
            },
            "environment" => {
                arg("key").map_or(Value::Unknown, |key| self.environment(rule, &key, arg("default").as_ref()))
            }
            "group-or-default" => match first.cloned() {
                Some(Value::Const(Const::None)) | None => {
                    self.default_axes(&rule.default_group).map_or(Value::Unknown, Value::Group)
                }
                Some(group) => group,
            },
            _ => return None,
        })
    }

    /// A variable of the environment. One that is a negative number where nobody sets it is asked whether there are several ranks at all.
    pub fn environment(&mut self, rule: &IntrinsicRule, key: &Value, default: Option<&Value>) -> Value {
        let Value::Const(Const::Str(key)) = key else { return Value::Unknown };
        let is = |part: &str| rule.role(part).is_some_and(|name| name == key);
        let made: fn(AxisSet) -> Value = match (is("rank"), is("size")) {
            _ if default.and_then(Value::as_int).is_some_and(|n| n < 0) => return Value::Unknown,
            (true, _) => Value::Rank,
            (_, true) => Value::Size,
            _ => return Value::Unknown,
        };
        self.default_axes(&[]).map_or(Value::Unknown, made)
    }

    /// `no_grad()` as a context or decorator; `no_grad(f)` is `f` without gradients, which only a decorator can say.
    fn grad_context(&mut self, first: Option<Value>, on: bool) -> Value {
        match first {
            Some(Value::Closure(_) | Value::Unknown) => Value::Unknown,
            Some(_) | None => Value::Context(Arc::new(Context::Grad(on))),
        }
    }

    fn partial(&mut self, callee: Value, args: &CallArgs) -> Value {
        let rest = args.skip_first();
        let keywords = rest.args.iter().filter_map(|a| a.keyword.clone().map(|k| (k, a.value.clone()))).collect();
        let args = rest.args.iter().filter(|a| a.keyword.is_none()).map(|a| a.value.clone()).collect();
        Value::Partial(Arc::new(PartialApp { callee, args, keywords }))
    }

    /// `checkpoint(fn, ..., *args)` calls `fn(*args)`.
    fn checkpoint(&mut self, id: StmtId, rule: &Arc<IntrinsicRule>, args: &CallArgs) -> Eval {
        let Some(callee) = args.get(0, "function").cloned() else { return Eval::One(Value::Unknown) };
        // Parameters between the function and `*args` are the checkpoint's own.
        let own = rule.args.params.iter().position(|p| p.variadic).unwrap_or(1);
        let own_names: Vec<Name> = rule.args.params.iter().map(|p| p.name.clone()).collect();
        let mut seen = 0;
        let passed: Vec<_> = args
            .args
            .iter()
            .filter(|a| match &a.keyword {
                Some(name) => !own_names.contains(name),
                None => {
                    seen += 1;
                    seen > own
                }
            })
            .cloned()
            .collect();
        self.call(id, &callee, &CallArgs { args: passed, open: args.open })
    }

    /// `Scalar(value, types)`: a number with a type.
    fn scalar(&mut self, args: &CallArgs) -> Value {
        let Some(types) = args.get(1, "spmd_type").cloned() else { return Value::Unknown };
        let Some(entries) = self.type_dict(&types) else { return Value::Number(None) };
        let mut local = LocalType::unknown();
        for (axes, atom) in entries {
            for axis in axes.iter() {
                local.set(axis, AxisState::new(atom_set(atom)));
            }
        }
        Value::Number(Some(Arc::new(local)))
    }

    /// `PartitionSpec(a, None, (b, c))`
    fn partition_spec(&mut self, args: &CallArgs) -> Value {
        let mut dims = Vec::new();
        for arg in &args.args {
            match &arg.value {
                Value::Const(Const::None) => dims.push(Vec::new()),
                Value::Tuple(items) => {
                    let mut axes = Vec::new();
                    for item in items.iter() {
                        match self.axes_of_value(item) {
                            Some(set) => axes.extend(set.iter().cloned()),
                            None => return Value::Unknown,
                        }
                    }
                    dims.push(axes);
                }
                value => match self.axes_of_value(value) {
                    Some(set) => dims.push(set.iter().cloned().collect()),
                    None => return Value::Unknown,
                },
            }
        }
        if args.open { Value::Unknown } else { Value::Spec(Arc::new(dims)) }
    }

    pub fn mesh_of_value(&mut self, value: &Value) -> Option<Arc<Mesh>> {
        match value {
            Value::Mesh(mesh) => Some(mesh.clone()).filter(|mesh| mesh.is_named()),
            Value::Tuple(_) | Value::List(_) | Value::Group(_) => {
                let items = self.literal_items(value).unwrap_or_else(|| vec![value.clone()]);
                let mut axes = Vec::new();
                for item in items {
                    axes.extend(self.axes_of_value(&item)?.iter().map(|a| (a.clone(), self.settings.axis_size(a))));
                }
                Some(Arc::new(Mesh::new(axes)))
            }
            _ => None,
        }
    }

    /// `nn.Parameter(data)`: a tensor of its own that requires a gradient.
    fn parameter(&mut self, id: StmtId, args: &CallArgs) -> Value {
        let data = args.get(0, "data").cloned();
        let grad = match args.get(1, "requires_grad") {
            None => Tri::Yes,
            Some(value) => value.as_bool().map_or(Tri::Unknown, Tri::from_bool),
        };
        let shape = data.as_ref().and_then(|d| self.tensor(d)).and_then(|t| t.shape.clone());
        let mut local = LocalType::unknown();
        self.mode_parameters(&mut local, self.place(id));
        if self.w.modes.typecheck.is_none() && !self.is_global() {
            self.parts_of(data.as_ref(), &mut local);
        }
        let divided = data.as_ref().and_then(|d| self.tensor(d)).and_then(|t| t.divided.clone());
        if let Some(divided) = &divided {
            self.split_by_size(divided, &super::share::partitioned(self.place(id)), &mut local);
        }
        let dist = data.as_ref().and_then(|d| self.tensor(d)).map(|t| t.dist.clone());
        self.new_tensor(TensorType {
            shape,
            untracked: true,
            home: Some(self.place(id)),
            dist: dist.filter(|d| d.on().is_some()).unwrap_or_default(),
            divided,
            ..TensorType::of(local, grad)
        })
    }

    /// A parameter made of a part that each rank takes for itself is another one on each rank.
    fn parts_of(&self, data: Option<&Value>, local: &mut LocalType) {
        let Some(data) = data.and_then(|d| self.tensor(d)) else { return };
        for (axis, state) in data.local.listed().filter(|(_, s)| s.set == AxisType::V) {
            if local.get(axis).set.is_unknown() {
                local.set(axis, state.clone());
            }
        }
    }

    /// `with context: body`
    pub fn with(&mut self, id: StmtId, context: &Value, bind: Option<LocalId>, body: &Block) -> Vec<Path> {
        let saved = self.w.modes.clone();
        if let Value::Context(context) = context {
            self.enter_context(context);
        }
        if let Some(local) = bind {
            self.assign(id, local, Value::Unknown);
        }
        let mut paths = self.block(body);
        for path in &mut paths {
            path.world.modes = saved.clone();
        }
        if paths.iter().all(|p| p.flow != Flow::Next) && matches!(context, Value::Unknown | Value::Sym(_)) {
            // A context manager may swallow an exception; nothing after it is known to be unreachable.
            return paths;
        }
        paths
    }

    fn enter_context(&mut self, context: &Context) {
        let modes = &mut self.w.modes;
        match context {
            Context::Typecheck { strict, local } => {
                let inherited = modes.typecheck.unwrap_or(true);
                modes.typecheck = Some(strict.unwrap_or(inherited));
                modes.unchecked = false;
                if let Some(local) = local {
                    modes.global = !local;
                }
            }
            Context::NoTypecheck => modes.forget_checking(),
            Context::Local => modes.global = false,
            Context::Boundary(_) => {}
            Context::Mesh(mesh) => modes.mesh = Some(mesh.clone()),
            Context::Grad(on) => modes.grad = *on,
            Context::Null => {}
        }
    }

    /// `loss.backward()`: the implicit gradient is 1 on every rank, which is right for I and P only.
    pub fn backward(&mut self, id: StmtId, loss: &Value, args: &CallArgs) {
        if args.get(0, "gradient").is_some_and(|g| !g.is_none()) {
            return;
        }
        self.note_due(self.place(id));
        let Some(t) = self.tensor(loss).cloned() else { return };
        let axes: Vec<Axis> = t.local.listed().map(|(a, _)| a.clone()).collect();
        let allowed = AxisType::I.join(AxisType::P);
        for axis in axes {
            let state = t.local.get(&axis).clone();
            if !state.set.meet(allowed).is_empty() || state.set.known().is_none() {
                continue;
            }
            // In ordinary code a wrapper, a hook or the loop after it may sum what the ranks leave.
            let summed_later = state.set == AxisType::V;
            if self.w.modes.typecheck.is_none() && (t.grad == Tri::No || axis.is_variable() || summed_later) {
                continue;
            }
            let operand = OperandAt { place: Some(self.part(id, 0)), state, is_number: false, is_divisor: false };
            self.report(self.place(id), FindingKind::BackwardLoss { axis, operand, returned: false });
            return;
        }
        self.passed(self.place(id), super::output::Pass::Right);
    }

    /// The entries of a dict of types: axes and atom; `None` if the dict is not known.
    pub fn type_dict(&mut self, value: &Value) -> Option<Vec<(crate::types::AxisSet, Atom)>> {
        let entries = match value {
            Value::Dict(id) => match self.w.heap.get(*id) {
                Some(Cell::Dict(dict)) if !dict.is_open() => dict.entries.clone(),
                _ => return None,
            },
            _ => return None,
        };
        let mut out = Vec::new();
        for (key, value) in entries {
            let axes = self.axes_of_value(&key)?;
            let Value::Atom(atom) = value else { return None };
            out.push((axes, atom));
        }
        Some(out)
    }

    /// A state decided by an assertion here.
    pub fn asserted(&self, id: StmtId, atom: Atom) -> AxisState {
        let set = atom_set(atom);
        AxisState::new(set).from(&Origin::new(self.place(id), Why::Asserted, set.known()))
    }
}

/// The type of an atom, shards as varying.
pub fn atom_set(atom: Atom) -> AxisType {
    match atom {
        Atom::Replicate => AxisType::R,
        Atom::Invariant => AxisType::I,
        Atom::Varying | Atom::Shard(_) => AxisType::V,
        Atom::Partial => AxisType::P,
    }
}

/// The single type of an atom.
pub fn atom_type(atom: Atom) -> Spmd {
    atom_set(atom).known().expect("an atom is one type")
}

/// What `no_typecheck` gives: the function that it is given, which runs unchecked, or a region.
fn unchecked(function: Option<Value>, args: &CallArgs) -> Value {
    match function {
        Some(Value::Closure(closure)) => {
            Value::Closure(Arc::new(Closure { flavour: Flavour::NoTypecheck, ..(*closure).clone() }))
        }
        // With types of its own it is a boundary, which is not followed.
        _ if !args.args.is_empty() => Value::Unknown,
        _ => Value::Context(Arc::new(Context::NoTypecheck)),
    }
}

/// The decorator that `local_map` gives.
fn boundary(takes: Option<Value>, gives: Option<Value>) -> Value {
    let Some(gives) = gives else { return Value::Unknown };
    let takes = takes.filter(|types| !matches!(types, Value::Path(_) | Value::Unknown));
    Value::Context(Arc::new(Context::Boundary(Arc::new(Boundary { takes, gives }))))
}

/// What is given in order, as one or as a tuple.
fn given_back(args: &CallArgs) -> Value {
    let plain: Vec<Value> = args.args.iter().filter(|a| a.keyword.is_none()).map(|a| a.value.clone()).collect();
    match <[Value; 1]>::try_from(plain) {
        Ok([one]) => one,
        Err(several) => Value::tuple(several),
    }
}
