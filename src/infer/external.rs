//! Calls of functions outside the project: by rule, as a builtin of Python, or unknown. In: a qualified path and arguments.
//! Out: a value. Never: names of frameworks; what a path means is in `rules/`. Next: `intrinsics.rs`, `builtins.rs`.

use super::expr::{CallArg, CallArgs};
use super::heap::{Cell, ObjectCell, ObjectClass};
use super::machine::{Eval, Machine};
use super::output::Reason;
use super::value::{Flavour, Value};
use crate::ir::{Const, StmtId};
use crate::project::{ClassRef, Resolved};
use crate::rules::signature::Parameter;
use crate::rules::{Entry, IntrinsicRule, ModuleRule};
use crate::source::Name;
use crate::types::{AxisSet, LocalType, TensorType, Tri};
use std::sync::Arc;

impl Machine<'_> {
    /// A function outside the project.
    pub fn call_external(&mut self, id: StmtId, path: &Name, args: &CallArgs) -> Eval {
        if let Some(value) = self.declared_extern(id, path, args) {
            return Eval::One(value);
        }
        match self.rules.get(path).cloned() {
            Some(Entry::Op(rule)) => Eval::One(self.apply_op(id, &rule, args)),
            Some(Entry::Collective(rule)) => self.collective_by_world(id, &rule, args),
            Some(Entry::Intrinsic(rule)) => self.intrinsic(id, &rule, args),
            Some(Entry::Group(rule)) => {
                let with = rule
                    .with
                    .iter()
                    .find(|(flag, _)| matches!(args.keyword(flag), Some(Value::Const(crate::ir::Const::Bool(true)))));
                let open =
                    rule.with.iter().any(|(flag, _)| args.keyword(flag).is_some_and(|v| !matches!(v, Value::Const(_))));
                if open {
                    return Eval::One(Value::Unknown);
                }
                let axes: AxisSet =
                    with.map_or(&rule.axes, |(_, axes)| axes).iter().map(|a| self.settings.canonical(a)).collect();
                Eval::One(super::names::given(rule.gives, axes))
            }
            Some(Entry::Module(rule)) => {
                self.layer_by_world(&rule, args, &mut |m, args| m.external_module(id, &rule, args))
            }
            Some(Entry::Layer(rule)) => match self.project.path(path) {
                Resolved::Class(class) if rule.open => self.construct(id, class, args),
                _ => Eval::One(self.new_layer(id, &rule, args)),
            },
            Some(Entry::Mark(_)) => Eval::One(Value::Unknown),
            None => match path.strip_prefix("builtins.").or_else(|| like_builtin(path)) {
                Some(name) => self.builtin(id, name, args),
                None => {
                    // A division that checks that nothing is left over, from wherever it is imported.
                    if let (true, [a, b]) = (path.ends_with(".divide"), args.args.as_slice())
                        && let Some(share) = self.share(crate::ir::BinOp::FloorDiv, &a.value, &b.value)
                    {
                        return Eval::One(share);
                    }
                    self.unknown_external(path, args);
                    let value = self.mesh_of_call(path, args).or_else(|| options_of(path, args));
                    let value = value.or_else(|| self.foreign_count(path, args));
                    Eval::One(value.unwrap_or(Value::Unknown))
                }
            },
        }
    }

    /// A collective whose types depend on an argument: where that is a flag, each of its values is followed.
    fn collective_by_world(&mut self, id: StmtId, rule: &Arc<crate::rules::CollectiveRule>, args: &CallArgs) -> Eval {
        let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let bound = rule.args.bind(&keywords);
        let conditions = rule.transitions.iter().filter_map(|(c, _)| c.as_ref());
        let flag = conditions
            .filter(|(_, expected)| matches!(expected.as_str(), "True" | "False"))
            .filter_map(|(param, _)| bound.first(*param))
            .map(|at| args.args[at].value.clone())
            .find(|value| matches!(value, Value::Sym(_) | Value::Cond(_)));
        let Some(flag) = flag else { return Eval::One(self.collective(id, rule, args)) };
        let formula = self.formula(&flag);
        if super::exec::is_opaque(&formula) {
            return Eval::One(self.collective(id, rule, args));
        }
        self.in_each_world(&formula, &mut |m, _| m.collective(id, rule, args))
    }

    /// What is made in each world of a formula, by what it is there; nothing where that is not known.
    pub fn in_each_world(
        &mut self,
        formula: &crate::infer::formula::Formula,
        make: &mut dyn FnMut(&mut Self, Option<bool>) -> Value,
    ) -> Eval {
        let mut worlds = Vec::new();
        let world = std::mem::take(&mut self.w);
        self.split(formula, world, &mut |_, world, truth| worlds.push((world, truth)));
        let mut outcomes = Vec::new();
        for (world, truth) in worlds {
            self.w = world;
            let value = make(self, truth);
            outcomes.push((std::mem::take(&mut self.w), value));
        }
        self.exits(outcomes)
    }

    fn unknown_external(&mut self, path: &Name, args: &CallArgs) {
        let reason = if path.starts_with("torch.") { Reason::NoRule } else { Reason::UnresolvedCall };
        self.lose(reason, path);
        self.unresolved_in_derivation(args, path);
        self.note_handed_modules(path, args);
        self.forget(args);
    }

    /// The configuration that a class of a framework makes: what is given, and the defaults that its rule names; the rest goes by its name.
    pub fn configuration(&mut self, rule: &Arc<IntrinsicRule>, args: &CallArgs) -> Value {
        let given = args.args.iter().filter_map(|a| Some((a.keyword.clone()?, a.value.clone())));
        let mut attrs: Vec<(Name, Value)> = given.collect();
        for param in rule.args.params.iter().filter(|p| !args.open && args.keyword(&p.name).is_none()) {
            attrs.extend(default_of(param).map(|default| (param.name.clone(), Value::Const(default))));
        }
        let cell = ObjectCell { class: ObjectClass::External(rule.name.clone()), path: Name::from("config"), attrs };
        Value::Object(self.fresh(Cell::Object(cell)))
    }

    /// An instance of a `torch.nn` module, with its parameters.
    pub fn external_module(&mut self, id: StmtId, rule: &Arc<ModuleRule>, args: &CallArgs) -> Value {
        let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let bound = rule.args.bind(&keywords);
        let mut cell =
            ObjectCell { class: ObjectClass::External(rule.name.clone()), path: rule.name.clone(), attrs: Vec::new() };
        for (name, sizes) in &rule.params {
            let given = |c: &Name| {
                let at = rule.args.index(c).and_then(|p| bound.first(p));
                at.map(|i| args.args[i].value.clone()).or_else(|| args.keyword(c).cloned())
            };
            let conditions =
                || rule.params_when.iter().filter(|(p, _)| p == name).flat_map(|(_, c)| c).filter_map(given);
            let unsure = conditions().any(|v| v.as_bool().is_none());
            if conditions().any(|v| v.as_bool() == Some(false)) {
                cell.set(name, Value::NONE);
                continue;
            }
            let divided = {
                let given = |s: &Name| {
                    let at = rule.args.index(s.split(' ').next().unwrap_or(s))?;
                    bound.first(at).map(|i| args.args[i].value.clone())
                };
                let all = |s: &Name| {
                    let value = given(&Name::from(s.strip_prefix('*')?))?;
                    Some(self.literal_items(&value).unwrap_or_else(|| vec![value]))
                };
                let given =
                    sizes.iter().flat_map(|s| all(s).unwrap_or_else(|| vec![given(s).unwrap_or(Value::Unknown)]));
                let given: Vec<Value> = given.collect();
                // Of one that may not be there nothing is said.
                super::share::divided_by(given.iter()).or_else(|| unsure.then(super::share::not_told))
            };
            let shape: Option<Vec<Option<i64>>> = sizes
                .iter()
                .map(|s| {
                    let at = rule.args.index(s)?;
                    Some(bound.first(at).and_then(|i| args.args[i].value.as_int()))
                })
                .collect();
            let mut local = LocalType::unknown();
            self.mode_parameters(&mut local, self.place(id));
            if let Some(divided) = &divided {
                self.split_by_size(divided, &super::share::partitioned(self.place(id)), &mut local);
            }
            let t = TensorType {
                shape: shape.filter(|s| !s.is_empty()).map(crate::types::Shape),
                untracked: true,
                home: Some(self.place(id)),
                divided,
                ..TensorType::of(local, Tri::Yes)
            };
            let tensor = self.new_tensor(t);
            cell.set(name, tensor);
        }
        // What its operation takes besides, a dim for one, is kept for the calls.
        let operation = rule.call.as_ref().and_then(|c| self.rules.op(c));
        for (at, param) in rule.args.params.iter().enumerate() {
            let taken = operation.is_some_and(|op| op.args.index(&param.name).is_some());
            if !taken || param.variadic || rule.params.iter().any(|(name, _)| *name == param.name) {
                continue;
            }
            let value = match bound.first(at) {
                Some(i) => args.args[i].value.clone(),
                None if args.open => Value::Unknown,
                None => super::layer::written(param.default.as_ref()),
            };
            cell.set(&super::layer::slot(&param.name), value);
        }
        Value::Object(self.fresh(Cell::Object(cell)))
    }

    /// A call of an instance of an external class: a `torch.nn` module is its operation on the input and its parameters.
    pub fn call_external_object(&mut self, id: StmtId, object: &Value, class: &Name, args: &CallArgs) -> Eval {
        let rule = match (self.rules.get(class).cloned(), object) {
            (Some(Entry::Module(rule)), _) => rule,
            (Some(Entry::Intrinsic(_)), Value::Object(at)) => match self.modules_of(*at) {
                Some(modules) => return self.call_in_turn(id, &modules, args),
                None => {
                    self.unresolved(args, class);
                    return Eval::One(Value::Unknown);
                }
            },
            (Some(Entry::Layer(rule)), Value::Object(at)) => return self.call_layer(id, *at, &rule, args),
            _ => {
                self.unresolved(args, class);
                return Eval::One(Value::Unknown);
            }
        };
        let Some(op) = rule.call.as_ref().and_then(|c| self.rules.op(c)).cloned() else {
            self.unresolved(args, class);
            return Eval::One(Value::Unknown);
        };
        let mut all = CallArgs { args: args.args.clone(), open: args.open };
        let cell = match object {
            Value::Object(at) => self.w.heap.object(*at).cloned(),
            _ => None,
        };
        for (name, _) in &rule.params {
            if op.args.index(name).is_some() {
                // What made the object without the constructor that is known may have made its parameters in any way.
                let value = cell.as_ref().and_then(|c| c.get(name)).cloned().unwrap_or(Value::Unknown);
                all.args.push(CallArg { keyword: Some(name.clone()), value, part: 0 });
            }
        }
        for param in &rule.args.params {
            if let Some(value) = cell.as_ref().and_then(|c| c.get(&super::layer::slot(&param.name))) {
                all.args.push(CallArg { keyword: Some(param.name.clone()), value: value.clone(), part: 0 });
            }
        }
        Eval::One(self.apply_op(id, &op, &all))
    }

    /// A method of an instance of an external class.
    pub fn external_method(&mut self, id: StmtId, receiver: &Value, name: &Name, args: &CallArgs) -> Eval {
        let class = match receiver {
            Value::Object(at) => match self.w.heap.object(*at).map(|o| o.class.clone()) {
                Some(ObjectClass::External(path)) => path,
                _ => return Eval::One(Value::Unknown),
            },
            _ => return Eval::One(Value::Unknown),
        };
        let path = Name::from(format!("{class}.{name}"));
        self.call_external(id, &path, &args.with_first(receiver.clone()))
    }

    /// A method that a class of the project inherits from outside: `apply` of an autograd function, and nothing else yet.
    pub fn external_class_method(&mut self, id: StmtId, class: ClassRef, name: &Name, args: &CallArgs) -> Eval {
        if name == "apply" && self.is_autograd_function(class) {
            let result = self.apply_function(id, class, args);
            return self.left_in_argument(id, class, args, result);
        }
        let what = format!("{}.{name}", self.project.class(class).name);
        self.unresolved(args, &what);
        Eval::One(Value::Unknown)
    }

    /// What a decorator does to a function: `None` if that is not known.
    pub fn decorator(&mut self, value: &Value) -> Option<Flavour> {
        match value {
            Value::Context(context) => match context.as_ref() {
                super::value::Context::Grad(false) => Some(Flavour::NoGrad),
                super::value::Context::Grad(true) | super::value::Context::Null => Some(Flavour::Plain),
                super::value::Context::NoTypecheck => Some(Flavour::NoTypecheck),
                _ => None,
            },
            Value::Path(path) => decorator_of_path(self.rules, path),
            _ => None,
        }
    }

    /// Nothing is recorded in a function that says so, or that by its name makes output of a model that it does not train: `generate`,
    /// `forward_inference`.
    pub fn gradient_off(&mut self, name: &str, flavour: Option<Flavour>) {
        let makes = |word: &&str| super::practice::near::has_part(name, word);
        let generates = self.w.modes.typecheck.is_none() && ["generate", "inference"].iter().any(makes);
        if generates || flavour == Some(Flavour::NoGrad) {
            self.w.modes.grad = false;
        }
    }

    /// The axes of an optional group argument of an intrinsic.
    pub fn optional_group(&mut self, group: Option<&Value>, default: &[Name]) -> Option<AxisSet> {
        match group {
            None | Some(Value::Const(crate::ir::Const::None)) => self.default_axes(default),
            Some(value) => self.axes_of_value(value),
        }
    }
}

/// What a decorator given by path does.
pub fn decorator_of_path(rules: &crate::rules::RuleBook, path: &str) -> Option<Flavour> {
    match path {
        "builtins.staticmethod" => return Some(Flavour::Static),
        "builtins.classmethod" => return Some(Flavour::ClassMethod),
        "builtins.property" | "functools.cached_property" => return Some(Flavour::Property),
        "abc.abstractmethod" | "typing.override" | "typing.overload" | "typing_extensions.override" => {
            return Some(Flavour::Plain);
        }
        _ => {}
    }
    match rules.get(path) {
        Some(Entry::Intrinsic(rule)) => match rule.does.as_str() {
            "transparent" | "wraps" | "register-function" | "decorator-factory" | "null-context" | "enable-grad"
            | "identity" => Some(Flavour::Plain),
            "no-grad" => Some(Flavour::NoGrad),
            "no-typecheck" => Some(Flavour::NoTypecheck),
            _ => None,
        },
        _ => None,
    }
}

/// The default of a parameter in a rule, where it is a flag or `None`.
pub(super) fn default_of(param: &Parameter) -> Option<Const> {
    Some(match param.default.as_deref()? {
        "False" => Const::Bool(false),
        "True" => Const::Bool(true),
        "None" => Const::None,
        _ => return None,
    })
}

/// The builtin that does what something of the standard library does here.
fn like_builtin(path: &str) -> Option<&'static str> {
    match path {
        "collections.OrderedDict" => Some("dict"),
        "functools.reduce" => Some("reduce"),
        _ => None,
    }
}

/// Functions that give the options of the whole run, each time the same.
const OPTIONS: &[&str] = &["get_args", "get_config", "get_cfg", "get_hparams"];

/// The options of a run: their flags are those that go by the same name elsewhere.
pub fn options_of(path: &Name, args: &CallArgs) -> Option<Value> {
    let last = path.rsplit('.').next().unwrap_or(path);
    let is_known = args.args.is_empty() && !args.open && OPTIONS.contains(&last);
    is_known.then(|| Value::Sym(Name::from(last.trim_start_matches("get_"))))
}
