//! Calls: functions and classes of the project are followed, torch and numbers are known by their rules. In: a callee and arguments.
//! Out: the result. Never: annotations, see `library.rs`. Next: `library.rs`.

use super::super::shared::Shared;
use super::eval::sizes;
use super::exec::Flow;
use super::numbers::{number, range, shape};
use super::run::Run;
use super::state::{Frame, Layer, Mode, State};
use super::value::{Id, Manual, Note, Val};
use crate::ir::{Arg, ArgKind, LocalId, Operand, ParamKind, StmtId};
use crate::project::{ClassRef, FuncRef};
use crate::rules::{Entry, ModuleRule, OpClass, OpRule, ShapeRule, Signature};
use crate::source::Name;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Calls within calls that are followed.
const MAX_DEPTH: usize = 8;

/// Methods that give the same module, elsewhere or in another type.
const MOVES: &[&str] = &[
    "to",
    "cuda",
    "cpu",
    "float",
    "half",
    "bfloat16",
    "double",
    "train",
    "eval",
    "requires_grad_",
    "contiguous",
    "detach",
    "clone",
];

/// Methods that change the shape of a tensor in place.
const RESHAPES: &[&str] = &[
    "resize_",
    "resize_as_",
    "squeeze_",
    "unsqueeze_",
    "transpose_",
    "t_",
    "swapaxes_",
    "swapdims_",
    "set_",
    "as_strided_",
];

/// Methods of modules that change nothing.
const READS: &[&str] = &[
    "parameters",
    "named_parameters",
    "modules",
    "named_modules",
    "children",
    "named_children",
    "buffers",
    "named_buffers",
    "state_dict",
    "zero_grad",
    "get_parameter",
    "get_submodule",
];

/// Methods that leave a list as it is.
const LIST_READS: &[&str] = &["index", "count", "copy"];

/// An argument of a call.
pub struct Given {
    pub kind: ArgKind,
    pub value: Val,
    /// The variable that it is.
    pub local: Option<LocalId>,
}

/// The arguments of a call.
pub struct Args {
    pub all: Vec<Given>,
    /// Whether there may be others.
    pub open: bool,
}

impl Args {
    /// The argument that a signature binds to a name: its index.
    pub fn index(&self, signature: &Signature, name: &str) -> Option<usize> {
        let keywords: Vec<Option<&Name>> = self.all.iter().map(|g| keyword(&g.kind)).collect();
        signature.bind(&keywords).first(signature.index(name)?)
    }
}

pub fn keyword(kind: &ArgKind) -> Option<&Name> {
    match kind {
        ArgKind::Keyword(name) => Some(name),
        _ => None,
    }
}

impl Run<'_> {
    pub fn given(&mut self, args: &[Arg]) -> Args {
        let mut out = Args { all: Vec::with_capacity(args.len()), open: false };
        for arg in args {
            let value = self.operand(&arg.value);
            let local = match arg.value {
                Operand::Local(l) => Some(l),
                _ => None,
            };
            match (&arg.kind, value.items()) {
                (ArgKind::Star, Some(items)) => {
                    let each = items.into_iter().map(|value| Given { kind: ArgKind::Positional, value, local: None });
                    out.all.extend(each);
                }
                (ArgKind::Star | ArgKind::DoubleStar, _) => {
                    self.leak(&value);
                    out.open = true;
                }
                _ => out.all.push(Given { kind: arg.kind.clone(), value, local }),
            }
        }
        out
    }

    fn lose_all(&mut self, args: &Args) {
        for given in &args.all {
            self.leak(&given.value);
        }
    }

    pub fn call(&mut self, id: StmtId, callee: &Val, args: &Args) -> Val {
        match callee {
            Val::Path(path) => self.external(id, path, args),
            Val::Func(at) => self.follow(*at, None, args),
            Val::Bound(object, at) => self.follow(*at, Some(Val::Object(*object)), args),
            Val::Object(object) => match self.bound(*object, &Name::from("forward")) {
                Some(Val::Bound(_, at)) => self.follow(at, Some(callee.clone()), args),
                _ => Val::Unknown,
            },
            Val::Class(class) => self.call_class(*class, args, false),
            Val::Layer(_) | Val::Wrapped(_) => Val::Unknown,
            _ => {
                self.lose_all(args);
                Val::Unknown
            }
        }
    }

    pub fn method(&mut self, id: StmtId, base: &Val, name: &Name, args: &Args) -> Val {
        match base {
            Val::Path(_) | Val::Module(_) => {
                let callee = self.attribute(base, name);
                self.call(id, &callee, args)
            }
            Val::Object(object) => match self.bound(*object, name) {
                Some(callee) => self.call(id, &callee, args),
                None if self.st.objects.get(object).is_some_and(|o| o.contains_key(name)) => {
                    let callee = self.attribute(base, name);
                    self.call(id, &callee, args)
                }
                None => self.module_method(id, base, name, args),
            },
            Val::Layer(_) | Val::Wrapped(_) => self.module_method(id, base, name, args),
            Val::Tensor(tensor) => self.tensor_method(id, *tensor, name, args),
            Val::List(_) => {
                if !LIST_READS.contains(&name.as_str()) {
                    self.st.forget_list(base);
                }
                self.lose_all(args);
                Val::Unknown
            }
            Val::Ids(_) if matches!(name.as_str(), "flatten" | "tolist" | "copy" | "astype" | "ravel") => base.clone(),
            Val::Ids(_) | Val::Mesh(_) => Val::Unknown,
            _ => {
                self.leak(base);
                self.lose_all(args);
                Val::Unknown
            }
        }
    }

    fn module_method(&mut self, id: StmtId, base: &Val, name: &Name, args: &Args) -> Val {
        if MOVES.contains(&name.as_str()) {
            self.onto_device(id, args);
            return base.clone();
        }
        if !READS.contains(&name.as_str()) {
            self.leak(base);
            self.lose_all(args);
        }
        Val::Unknown
    }

    fn tensor_method(&mut self, id: StmtId, tensor: Id, name: &Name, args: &Args) -> Val {
        let Some(known) = self.st.tensors.get(&tensor).cloned() else { return Val::Unknown };
        let rank = known.shape.as_ref().and_then(|s| i64::try_from(s.len()).ok());
        match name.as_str() {
            "dim" | "ndimension" => rank.map_or(Val::Unknown, Val::number),
            "size" if args.all.is_empty() => known.shape.map_or(Val::Sizes(tensor), |s| sizes(&s)),
            n if n.ends_with('_') => {
                if RESHAPES.contains(&n)
                    && let Some(known) = self.st.tensors.get_mut(&tensor)
                {
                    known.shape = None;
                }
                Val::Tensor(tensor)
            }
            n => {
                let moved = MOVES.contains(&n);
                if moved {
                    self.onto_device(id, args);
                }
                let note = if known.note == Note::Without { Note::Without } else { Note::Unknown };
                let manual = if moved { known.manual } else { Manual::Unknown };
                let shape = if moved { known.shape } else { None };
                self.tensor(self.place(id), shape, note, manual)
            }
        }
    }

    /// The device among the arguments: a tensor is there from now on.
    fn onto_device(&mut self, id: StmtId, args: &Args) {
        let there = |v: &Val| *v == Val::Device || v.string().is_some_and(|s| self.rules.get(s).is_some_and(is_device));
        let there = args.all.iter().any(|g| there(&g.value));
        if there && self.st.mode == Mode::No && self.st.early.is_none() {
            self.st.early = Some(self.place(id));
        }
    }

    /// A method of the class of an object.
    pub fn bound(&self, object: Id, name: &Name) -> Option<Val> {
        let class = self.classes.get(&object)?;
        let methods = &self.project.class(*class).methods;
        let (_, func) = methods.iter().find(|(n, _)| n == name)?;
        Some(Val::Bound(object, FuncRef { module: class.module, func: *func }))
    }

    /// An object of a class, of whose constructor the arguments are not known.
    pub fn instance(&mut self, class: ClassRef) -> Val {
        self.quiet += 1;
        let object = self.call_class(class, &Args { all: Vec::new(), open: false }, true);
        self.quiet -= 1;
        object
    }

    fn call_class(&mut self, class: ClassRef, args: &Args, blind: bool) -> Val {
        let object = self.id();
        self.classes.insert(object, class);
        self.st.objects.insert(object, Shared::default());
        match self.bound(object, &Name::from("__init__")) {
            Some(Val::Bound(_, at)) => {
                let saved = if blind { self.defaults.remove(&at) } else { None };
                self.follow(at, Some(Val::Object(object)), args);
                if let Some(saved) = saved {
                    self.defaults.insert(at, saved);
                }
            }
            _ => self.lose_all(args),
        }
        Val::Object(object)
    }

    /// A call of a function of the project.
    fn follow(&mut self, at: FuncRef, receiver: Option<Val>, args: &Args) -> Val {
        let project = self.project;
        let func = project.func(at);
        let again = self.st.frames.iter().any(|f| f.at == at);
        let opaque = func.is_async || func.is_generator || !super::run::is_plain(project, at);
        if again || opaque || args.open || self.st.frames.len() > MAX_DEPTH {
            receiver.iter().for_each(|r| self.leak(r));
            self.lose_all(args);
            return Val::Unknown;
        }
        let locals = self.parameters(at, receiver, args);
        self.st.frames.push(Frame { at, locals: Shared::new(locals) });
        self.returns.push(Vec::new());
        let exits = std::mem::take(&mut self.exits);
        let flow = self.block(func.body());
        self.exits = exits;
        let mut returns = self.returns.pop().unwrap_or_default();
        if flow == Flow::Next {
            returns.push((Val::NONE, self.st.clone()));
        }
        let mut states = returns.into_iter().map(|(value, mut state)| {
            state.frames.pop();
            (value, state)
        });
        let Some((mut value, mut state)) = states.next() else {
            self.st.frames.pop();
            return Val::Unknown;
        };
        for (other, after) in states {
            if other != value {
                self.leak_from(&value, &other);
                value = Val::Unknown;
            }
            state = State::join(state, after);
        }
        self.st = state;
        value
    }

    fn leak_from(&mut self, one: &Val, other: &Val) {
        self.leak(one);
        self.leak(other);
    }

    fn parameters(&mut self, at: FuncRef, receiver: Option<Val>, args: &Args) -> FxHashMap<LocalId, Val> {
        let project = self.project;
        let func = project.func(at);
        let mut positional = receiver.into_iter().chain(
            args.all.iter().filter(|g| g.kind == ArgKind::Positional).map(|g| g.value.clone()).collect::<Vec<_>>(),
        );
        let mut locals = FxHashMap::default();
        for (i, param) in func.params.iter().enumerate() {
            let value = match param.kind {
                ParamKind::VarArgs => Some(Val::Tuple(positional.by_ref().collect())),
                ParamKind::KwArgs => Some(Val::Unknown),
                ParamKind::KeywordOnly => None,
                ParamKind::Normal | ParamKind::PositionalOnly => positional.next(),
            };
            let named = || args.all.iter().find(|g| keyword(&g.kind) == Some(&param.name)).map(|g| g.value.clone());
            let default = || {
                let defaults = self.defaults.get(&at)?;
                defaults.iter().find(|(n, _)| usize::try_from(*n) == Ok(i)).map(|(_, v)| v.clone())
            };
            locals.insert(param.local, value.or_else(named).or_else(default).unwrap_or(Val::Unknown));
        }
        locals
    }

    fn external(&mut self, id: StmtId, path: &Name, args: &Args) -> Val {
        if let Some(name) = path.strip_prefix("builtins.") {
            return self.builtin(name, args);
        }
        let rules = self.rules;
        match rules.get(path) {
            Some(Entry::Intrinsic(rule)) => match rule.does.strip_prefix("number-") {
                Some(does) => number(does, &rule.args, args),
                None if rule.does == "parameter" => self.parameter(id, args),
                None => self.annotation(id, &rule.clone(), args),
            },
            Some(Entry::Op(rule)) => self.operation(id, &rule.clone(), args),
            Some(Entry::Module(rule)) => self.layer(id, rule, args),
            Some(Entry::Collective(rule)) => {
                let input = rule.args.params.get(rule.input).and_then(|p| args.index(&rule.args, &p.name));
                let input = input.and_then(|i| args.all.get(i)).map(|g| g.value.clone());
                self.process_collective(id, path, input);
                Val::Unknown
            }
            _ => {
                if !path.starts_with("torch.") {
                    self.lose_all(args);
                }
                Val::Unknown
            }
        }
    }

    fn builtin(&mut self, name: &str, args: &Args) -> Val {
        let first = args.all.first().map(|g| &g.value);
        if args.open {
            return Val::Unknown;
        }
        match (name, first) {
            ("range", Some(_)) => range(&args.all.iter().map(|g| &g.value).collect::<Vec<_>>()),
            ("list" | "sorted", Some(Val::Ids(ids))) => Val::Ids(ids.clone()),
            ("tuple", Some(value)) => value.items().map_or(Val::Unknown, |i| Val::Tuple(i.into())),
            ("list", Some(value)) => value.items().map_or(Val::Unknown, |i| Val::List(i.into())),
            ("len", Some(Val::Ids(ids))) => ids.len(),
            ("len", Some(value)) => {
                value.items().and_then(|i| i64::try_from(i.len()).ok()).map_or(Val::Unknown, Val::number)
            }
            ("int", Some(value @ (Val::Const(crate::ir::Const::Int(_)) | Val::Devices(_)))) => value.clone(),
            ("print" | "isinstance" | "repr" | "str" | "type" | "id" | "hasattr" | "getattr", _) => Val::Unknown,
            _ => {
                self.lose_all(args);
                Val::Unknown
            }
        }
    }

    /// `nn.Parameter(data)`
    fn parameter(&mut self, id: StmtId, args: &Args) -> Val {
        let shape = match args.all.first().map(|g| &g.value) {
            Some(Val::Tensor(t)) => self.st.tensors.get(t).and_then(|t| t.shape.clone()),
            _ => None,
        };
        self.tensor(self.place(id), shape, Note::Without, Manual::No)
    }

    fn operation(&mut self, id: StmtId, rule: &Arc<OpRule>, args: &Args) -> Val {
        if rule.class == OpClass::Metadata || rule.class == OpClass::Opaque {
            return Val::Unknown;
        }
        let device = args.index(&rule.args, "device").and_then(|i| args.all.get(i));
        if let Some(device) = device {
            let only = Args {
                all: vec![Given { kind: ArgKind::Positional, value: device.value.clone(), local: None }],
                open: false,
            };
            self.onto_device(id, &only);
        }
        let tensors = args.all.iter().filter_map(|g| match &g.value {
            Val::Tensor(t) => self.st.tensors.get(t),
            _ => None,
        });
        let fresh = tensors.clone().all(|t| t.note == Note::Without);
        let none = tensors.count() == 0;
        let shape = match rule.shape {
            ShapeRule::Factory | ShapeRule::Full if !args.open => shape(rule, args),
            _ => None,
        };
        let manual = if none && shape.is_some() { Manual::No } else { Manual::Unknown };
        let note = if fresh { Note::Without } else { Note::Unknown };
        self.tensor(self.place(id), shape, note, manual)
    }

    fn layer(&mut self, id: StmtId, rule: &Arc<ModuleRule>, args: &Args) -> Val {
        let mut named = FxHashMap::default();
        for param in &rule.args.params {
            let given = args.index(&rule.args, &param.name).and_then(|i| args.all.get(i));
            if let Some(given) = given {
                named.insert(param.name.clone(), given.value.clone());
            }
        }
        let layer = self.id();
        let made = self.place(id);
        self.st.layers.insert(layer, Layer { rule: rule.clone(), args: named, made, params: FxHashMap::default() });
        Val::Layer(layer)
    }
}

fn is_device(entry: &Entry) -> bool {
    matches!(entry, Entry::Intrinsic(rule) if rule.does == "sharding-device")
}
