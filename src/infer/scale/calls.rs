//! Calls of functions: of the project, executed; of torch, by what they do to losses, counts, groups, modules and gradients; others are
//! not known, and what is handed to them is not followed any more. In: a call. Out: its value on each path. Next: `methods.rs`,
//! `collectives.rs`.

use super::super::shared::Shared;
use super::Run;
use super::cut::cuts_in_place;
use super::eval::{is_batch_name, tokens};
use super::exec::Elements;
use super::groups;
use super::known::Call;
use super::slots::Slots;
use super::value::{Grad, List, Part, State, Tensor, Test, Val, What, last};
use crate::ir::{ArgKind, Const, Operand, Rvalue, StmtId};
use crate::project::FuncRef;
use crate::rules::{Entry, Gives};
use crate::source::{Idx, Name};
use crate::types::{Axis, AxisSet, Factor, Scale};

/// Arguments of a call.
#[derive(Clone, Debug, Default)]
pub struct Args {
    pub plain: Vec<Val>,
    pub named: Vec<(Name, Val)>,
    /// `*args` or `**kwargs` among them.
    pub open: bool,
}

impl Args {
    pub fn get(&self, position: usize, name: &str) -> Option<&Val> {
        self.keyword(name).or_else(|| self.plain.get(position))
    }
    pub fn keyword(&self, name: &str) -> Option<&Val> {
        self.named.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }
    pub fn all(&self) -> impl Iterator<Item = &Val> {
        self.plain.iter().chain(self.named.iter().map(|(_, v)| v))
    }
}

/// Functions that take the mean over the tokens of one rank unless they are told otherwise.
pub const LOSSES: &[&str] = &[
    "cross_entropy",
    "nll_loss",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "kl_div",
];
pub const LOSS_CLASSES: &[&str] =
    &["CrossEntropyLoss", "NLLLoss", "MSELoss", "L1Loss", "SmoothL1Loss", "BCELoss", "BCEWithLogitsLoss", "KLDivLoss"];

/// Words of functions that are executed where they are called.
const MATTERS: &[&str] = &[
    "grad",
    "gather",
    "backward",
    "reduce",
    "world_size",
    "group",
    "mesh",
    "shard",
    "loss",
    "token",
    "Parallel",
    "FSDP",
    "DDP",
    "size(",
    "step(",
    "scale",
    "mean(",
    ".apply(",
    "_hook(",
    "divide_factor(",
    // Of what is counted.
    "labels",
    "mask",
    "-100",
    "numel(",
];

impl<'a> Run<'a> {
    pub fn arguments(&self, args: &[crate::ir::Arg], state: &State) -> Args {
        let mut out = Args::default();
        for arg in args {
            let value = self.operand(&arg.value, state);
            match &arg.kind {
                ArgKind::Positional => out.plain.push(value),
                ArgKind::Keyword(name) => out.named.push((name.clone(), value)),
                ArgKind::Star | ArgKind::DoubleStar => out.open = true,
            }
        }
        out
    }

    pub fn call(&mut self, id: StmtId, value: &'a Rvalue, mut state: State) -> Vec<(State, Val)> {
        let at = state.frames.last().map(|f| f.at);
        let is = at.map_or(Call::Other, |at| self.called(at, value));
        if is == Call::Cut {
            state.cut_in_place();
        }
        if let Some(at) = at
            && is == Call::Collective
            && let Some(call) = self.view(at).collective(value)
        {
            let result = self.collective(id, &call, &mut state);
            return vec![(state, result)];
        }
        if let Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } = value
            && let Some(first) = args.first().filter(|_| is == Call::Receive)
        {
            self.receive(&first.value, &mut state);
            return vec![(state, Val::Const(Const::None))];
        }
        match value {
            Rvalue::Call { callee, args } => {
                let (callee, args) = (self.operand(callee, &state), self.arguments(args, &state));
                self.apply(id, &callee, args, state)
            }
            Rvalue::CallMethod { base, name, args } => {
                let (receiver, args) = (self.operand(base, &state), self.arguments(args, &state));
                match &receiver {
                    Val::Path(path) => {
                        let full = format!("{path}.{name}");
                        let callee = self.led(full);
                        self.apply(id, &callee, args, state)
                    }
                    _ => self.method_call(id, base, &receiver, name, args, state),
                }
            }
            _ => vec![(state, Val::named("call"))],
        }
    }

    /// What a call is to this pass.
    pub fn called(&mut self, at: FuncRef, value: &'a Rvalue) -> Call {
        let view = self.view(at);
        self.known.call(value, || {
            let followed = |op: &str| matches!(op, "all_reduce" | "reduce_scatter" | "all_gather");
            if view.collective(value).is_some_and(|call| followed(&call.rule.op)) {
                return Call::Collective;
            }
            match value {
                Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }
                    if !args.is_empty() && view.callee(value).is_some_and(|p| p == "torch.distributed.recv") =>
                {
                    Call::Receive
                }
                Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } if cuts_in_place(args) => Call::Cut,
                _ => Call::Other,
            }
        })
    }

    /// The group that the configuration or a directive says that a call gives.
    fn declared_group(&self, callee: &Val) -> Option<Val> {
        if self.settings.groups.is_empty() {
            return None;
        }
        let path = match callee {
            Val::Func(at) => self.project.qualified(*at),
            Val::Path(path) | Val::Named(path) => path.clone(),
            _ => return None,
        };
        self.settings.group_named(&format!("{path}()")).map(Val::Group)
    }

    pub fn apply(&mut self, id: StmtId, callee: &Val, args: Args, mut state: State) -> Vec<(State, Val)> {
        if let Some(group) = self.declared_group(callee) {
            return vec![(state, group)];
        }
        match callee {
            Val::Func(at) if self.is_scaled_by_decorator(*at) => vec![(state, Val::named("call"))],
            Val::Func(at) if !args.open && (self.matters(*at) || args.all().any(is_followed)) => {
                let bound = self.bind(*at, None, &args);
                let call = Some(self.place(&state, id));
                self.run(*at, bound, call, state)
            }
            Val::Method(object, at) if !args.open => {
                let bound = self.bind(*at, Some(Val::Object(*object)), &args);
                let call = Some(self.place(&state, id));
                self.run(*at, bound, call, state)
            }
            Val::Class(class) => self.construct(id, *class, &args, state),
            Val::LossFunction(mean) => {
                let value = self.loss(id, *mean, args.plain.first(), &mut state);
                vec![(state, value)]
            }
            Val::Path(path) => {
                let value = self.outside(id, path, &args, &mut state);
                vec![(state, value)]
            }
            Val::Object(object) if let Some(m) = self.inner_of(*object, &mut state) => {
                self.apply(id, &Val::Module(m), args, state)
            }
            Val::Object(object)
                if !args.open
                    && let Some(run) = self.run_by_call(*object, &state) =>
            {
                self.apply(id, &run, args, state)
            }
            Val::Module(m) => {
                state.uses(*m);
                if let Some(ways) = self.forwarded(id, *m, &args, &state) {
                    return ways;
                }
                if let Some(output) = self.of_items(id, &args, &mut state) {
                    return vec![(state, output)];
                }
                let text = self.text(&state, id);
                vec![(state, Val::Named(text))]
            }
            // What a function says of the name of a parameter tells parameters apart, and no configurations.
            Val::Named(text) if asks(last(text)) && args.all().any(|v| *v == Val::ParamName) => {
                let test = Test::Param(self.text(&state, id));
                vec![(state, Val::Test(test))]
            }
            Val::Named(text) => {
                let value = self.unknown_call(id, last(text), &args, &mut state);
                vec![(state, value)]
            }
            Val::Func(at) => {
                let value = self.unknown_function(id, *at, &args, &mut state);
                vec![(state, value)]
            }
            _ => {
                let value = self.unknown_call(id, "call", &args, &mut state);
                vec![(state, value)]
            }
        }
    }

    /// Whether a function of the project, or one that it calls, says anything of gradients, losses, groups or sizes.
    pub fn matters(&mut self, at: FuncRef) -> bool {
        if let Some(known) = self.matter.get(&at) {
            return *known;
        }
        self.matter.insert(at, false);
        let (project, files) = (self.project, self.files);
        let text = files[project.file(at.module)].slice(project.func(at).span);
        let trains = |(_, name): &(Name, Name)| text.contains(name.as_str());
        let mut matters = MATTERS.iter().any(|w| text.contains(w)) || self.rules.trainers().iter().any(trains);
        if !matters {
            let view = self.view(at);
            let called = (0..view.steps.len()).filter_map(|s| view.callee(view.value(s)?));
            let called: Vec<FuncRef> = called
                .filter_map(|path| match project.path(&path) {
                    crate::project::Resolved::Func(f) => Some(f),
                    _ => None,
                })
                .collect();
            matters = called.into_iter().any(|f| self.matters(f));
        }
        self.matter.insert(at, matters);
        matters
    }

    /// Arguments by parameter of a function of the project.
    pub fn bind(&self, at: FuncRef, receiver: Option<Val>, args: &Args) -> Slots {
        let func = self.project.func(at);
        let defaults = self.settings.static_defaults(at);
        let plain: Vec<&Val> = receiver.iter().chain(&args.plain).collect();
        let mut out = Slots::default();
        for (i, param) in func.params.iter().enumerate() {
            let default = defaults.iter().find(|(n, _)| *n as usize == i).map(|(_, v)| v);
            let value = match (args.keyword(&param.name), plain.get(i), default) {
                (Some(v), _, _) => v.clone(),
                (None, Some(v), _) => (*v).clone(),
                (None, None, Some(super::super::value::Value::Const(c))) => match c {
                    Const::Int(0) => Val::Zero(0),
                    c => Val::Const(c.clone()),
                },
                (
                    None,
                    None,
                    Some(super::super::value::Value::Path(path) | super::super::value::Value::ReduceOp(path)),
                ) => Val::Path(path.clone()),
                _ => Val::Named(param.name.clone()),
            };
            out.insert(param.local.index(), value);
        }
        out
    }

    /// An object, or a module, of a class of the project.
    fn construct(
        &mut self,
        id: StmtId,
        class: crate::project::ClassRef,
        args: &Args,
        mut state: State,
    ) -> Vec<(State, Val)> {
        if self.is_module_class(class) && self.wraps(class).is_none() && !self.is_loss(class) {
            let text = self.project.class(class).name.clone();
            let text = format!("{text}@{}", id.index());
            let module = state.module(&text);
            state.modules[module].class = Some(class);
            return vec![(state, Val::Module(module))];
        }
        // An optimizer of the project that is given a number of ranks may divide by it in each step.
        let mut bases = self.settings.statics.external_bases(class);
        let steps = bases.any(|base| base.starts_with("torch.optim."));
        state.unsettled |= steps && args.all().any(super::unknown::is_number_of_ranks);
        state.objects.push(Shared::new(super::value::Object { class: Some(class), attrs: Slots::default() }));
        let object = Val::Object(state.objects.len() - 1);
        match self.method(class, "__init__") {
            Some(init) if !args.open => {
                let bound = self.bind(init, Some(object.clone()), args);
                let made = self.run(init, bound, None, state);
                made.into_iter().map(|(s, _)| (s, object.clone())).collect()
            }
            _ => vec![(state, object)],
        }
    }

    /// A loss over what one rank has.
    pub fn loss(&mut self, id: StmtId, mean: Option<bool>, input: Option<&Val>, state: &mut State) -> Val {
        let rows = match input {
            Some(Val::Tensor(Tensor { rows: Some(rows), .. })) => rows.clone(),
            _ => {
                state.unsettled |= state.put_back;
                tokens()
            }
        };
        let label = self.text(state, id);
        let place = self.place(state, id);
        let unknown = |p: &Part| p.grad == Scale::Unknown;
        let is_cut = matches!(input, Some(Val::Tensor(t)) if t.parts.iter().any(unknown));
        let (scale, rows, what) = match mean {
            Some(true) => (rows.inverse(), None, What::Mean),
            Some(false) => (Scale::one(), None, What::Sum),
            None => (Scale::one(), Some(rows), What::Sum),
        };
        let events = if rows.is_none() { vec![state.event(what, place)] } else { Vec::new() };
        let grad = if is_cut || state.cut_after { Scale::Unknown } else { scale.clone() };
        let part = Part { label, grad, value: scale, events };
        Val::Tensor(Tensor { id: state.fresh(), parts: vec![part], rows, over: AxisSet::default(), added: false })
    }

    /// What `reduction=` says: a mean, a sum, or one value for each token; nothing if it is not known.
    fn reduction(args: &Args) -> Option<Option<bool>> {
        match args.keyword("reduction") {
            None => Some(Some(true)),
            Some(value) => match value.text().map(Name::as_str) {
                Some("mean") => Some(Some(true)),
                Some("sum") => Some(Some(false)),
                Some("none") => Some(None),
                _ => None,
            },
        }
    }

    /// A function that hands back what it is given, or reads the number of ranks from the environment.
    pub fn handed_back(&self, path: &Name, does: &str, args: &Args, state: &mut State) -> Option<Val> {
        match (does, args.plain.as_slice()) {
            ("gives-first", [first, ..]) | ("gives-back", [first]) => Some(first.clone()),
            // A compiled model is the model.
            ("transparent", [first @ (Val::Module(_) | Val::Object(_) | Val::Func(_) | Val::Method(..)), ..]) => {
                Some(first.clone())
            }
            ("gives-back", [_, _, ..]) => Some(Val::Tuple(args.plain.clone())),
            ("environment", [key, ..]) if self.is_number_of_all(path, key) => {
                Some(state.num(Scale::size(&groups::all_ranks())))
            }
            _ => None,
        }
    }

    /// Whether an entry of the environment is the number of all ranks.
    pub fn is_number_of_all(&self, path: &Name, key: &Val) -> bool {
        let Some(Entry::Intrinsic(rule)) = self.rules.get(path) else { return false };
        rule.does == "environment" && key.text().is_some_and(|key| rule.role("size") == Some(key))
    }

    /// A class of a module of optimizers, whichever its name says: `getattr(torch.optim, name)`.
    pub fn one_of(&self, base: &Val) -> Option<Val> {
        matches!(base, Val::Path(path) if path == "torch.optim").then(|| Val::Path(Name::from("torch.optim.Optimizer")))
    }

    /// A function outside the project.
    fn outside(&mut self, id: StmtId, path: &Name, args: &Args, state: &mut State) -> Val {
        if let Some((gives, axes)) = groups::getter(self.rules, path, &args.named) {
            return match gives {
                Gives::Group => Val::Group(axes),
                Gives::Size => state.num(Scale::size(&axes)),
                Gives::Rank => Val::Named(self.text(state, id)),
            };
        }
        let does = match self.rules.get(path) {
            Some(Entry::Intrinsic(rule)) => rule.does.as_str(),
            _ => "",
        };
        if does == "get-world-size" {
            let group = args.get(0, "group").unwrap_or(&Val::Const(Const::None));
            return match state.axes(group) {
                Some(axes) => state.num(Scale::size(&axes)),
                None => Val::Named(self.text(state, id)),
            };
        }
        if let Some(value) = self.handed_back(path, does, args, state) {
            return value;
        }
        self.objects(id, does, args, state);
        if does == "state-object"
            && let Some(Entry::Intrinsic(rule)) = self.rules.get(path)
            && let Some(object) = rule.role("object")
        {
            return Val::Path(object.clone());
        }
        if does.starts_with("trainer")
            && let Some(value) = self.trainer_of(id, path, args, state)
        {
            return value;
        }
        let name = last(path);
        if path.starts_with("builtins.") {
            return self.builtin(id, name, args, state);
        }
        if let Some(value) = self.of_training(id, path, args, state) {
            return value;
        }
        match name {
            _ if LOSSES.contains(&name) => match Self::reduction(args) {
                Some(mean) => self.loss(id, mean, args.plain.first(), state),
                None => Val::Named(self.text(state, id)),
            },
            _ if LOSS_CLASSES.contains(&name) => match Self::reduction(args) {
                Some(mean) => Val::LossFunction(mean),
                None => Val::Named(self.text(state, id)),
            },
            "init_device_mesh" | "DeviceMesh" => self.mesh(id, args, state),
            "init_process_group" => self.started(id, args, state),
            "new_group" | "new_subgroups" | "split_group" => {
                Val::Group(AxisSet::one(Axis::variable(&self.text(state, id))))
            }
            "zeros" | "zeros_like" if args.plain.first().is_none_or(|v| !matches!(v, Val::Grad(_))) => {
                Val::Zero(state.fresh())
            }
            "tensor" | "as_tensor" | "FloatTensor" => self.tensor(id, args, state),
            "stack" | "cat" | "hstack" | "concat" => self.joined(id, args, state),
            "mean" | "sum" | "clamp" | "clamp_min" | "maximum" | "flatten" | "div" | "mul" | "ne" | "eq"
            | "count_nonzero"
                if !args.plain.is_empty() =>
            {
                let (first, rest) = (args.plain[0].clone(), args.plain[1..].to_vec());
                let rest = Args { plain: rest, named: args.named.clone(), open: args.open };
                self.known_method(id, &first, name, &rest, state).unwrap_or_else(|| Val::Named(self.text(state, id)))
            }
            _ if path.starts_with("torch.optim.") => self.optimizer(args, state),
            "GradScaler" => Val::named("scaler"),
            _ if matches!(name, "normalize" | "log_softmax" | "softmax" | "pad") => args
                .plain
                .first()
                .cloned()
                .filter(|v| matches!(v, Val::Tensor(_)) || name == "pad" && matches!(v, Val::Grad(_)))
                .unwrap_or(Val::Named(self.text(state, id))),
            _ => self.unknown_call(id, name, args, state),
        }
    }

    /// A function that is about gradients, modules, optimizers or norms.
    fn of_training(&mut self, id: StmtId, path: &Name, args: &Args, state: &mut State) -> Option<Val> {
        let ruled = match self.rules.get(path) {
            Some(Entry::Intrinsic(rule)) => Some(rule.clone()),
            _ => None,
        };
        if let Some(value) = ruled.and_then(|rule| self.optimizer_call(id, &rule, args, state)) {
            return Some(value);
        }
        let name = last(path);
        if let Some(Val::Grad(out)) = args.keyword("out") {
            return Some(self.put_out(id, name, &out.clone(), args, state));
        }
        if let Some(value) = self.of_gradients(id, name, args, state) {
            return Some(value);
        }
        let first = args.plain.first()?.clone();
        let order =
            args.plain.get(1).or_else(|| ["p", "ord", "norm_type", "exponent"].iter().find_map(|k| args.keyword(k)));
        self.norm_call(id, name, &first, order, state)
    }

    fn tensor(&mut self, id: StmtId, args: &Args, state: &mut State) -> Val {
        match args.plain.first() {
            Some(Val::Num(n)) => state.num(n.scale.clone()),
            Some(Val::Zero(_)) => Val::Zero(state.fresh()),
            Some(Val::Const(Const::Int(n))) => state.num(Scale::integer(*n)),
            Some(Val::List(l)) if state.lists[*l].length.is_none() => {
                // One number alone is as good as it is.
                if let [Val::Num(n)] = state.lists[*l].items.as_slice() {
                    let scale = n.scale.clone();
                    return state.num(scale);
                }
                Val::Pack(renewed(&state.lists[*l].items.clone(), state))
            }
            Some(Val::Tuple(items)) => Val::Pack(renewed(&items.clone(), state)),
            Some(Val::Tensor(t)) => Val::Tensor(Tensor { id: state.fresh(), ..t.clone() }),
            Some(Val::Named(text)) => Val::Named(text.clone()),
            _ => Val::Named(self.text(state, id)),
        }
    }

    /// Tensors in one.
    fn joined(&mut self, id: StmtId, args: &Args, state: &mut State) -> Val {
        let list = match args.get(0, "tensors") {
            Some(Val::List(l)) => (*state.lists[*l]).clone(),
            Some(Val::Tuple(items) | Val::Pack(items)) => List { items: items.clone(), length: None },
            Some(grad @ Val::Grad(_)) if !self.is_measured(id, state) => return grad.clone(),
            _ => return Val::Named(self.text(state, id)),
        };
        let grads: Vec<usize> = list
            .items
            .iter()
            .filter_map(|v| if let Val::Grad(g) = v { Some(g.of.clone()) } else { None })
            .flatten()
            .collect();
        if !grads.is_empty() && list.items.iter().all(|v| matches!(v, Val::Grad(_))) {
            if self.is_measured(id, state) {
                return Val::Named(self.text(state, id));
            }
            return Val::Grad(Grad { of: grads, by: Scale::one(), events: Vec::new(), local: false, copy: true });
        }
        let first = list.items.first().cloned();
        match (list.length, first) {
            (None, Some(_))
                if list
                    .items
                    .iter()
                    .all(|v| matches!(v, Val::Num(_) | Val::Zero(_) | Val::Tensor(Tensor { rows: None, .. }))) =>
            {
                Val::Pack(renewed(&list.items, state))
            }
            (Some(length), Some(Val::Tensor(t))) => match t.rows.clone() {
                Some(rows) => Val::Tensor(Tensor { rows: Some(rows.times(&length)), id: state.fresh(), ..t }),
                None => {
                    let parts = t.parts.iter().map(|p| Part {
                        grad: p.grad.times(&length),
                        value: p.value.times(&length),
                        ..p.clone()
                    });
                    let parts = parts.collect();
                    Val::Tensor(Tensor { id: state.fresh(), parts, rows: Some(length), over: t.over, added: false })
                }
            },
            (Some(length), Some(Val::Num(n))) => state.num(n.scale.times(&length)),
            _ => Val::Named(self.text(state, id)),
        }
    }

    fn builtin(&mut self, id: StmtId, name: &str, args: &Args, state: &mut State) -> Val {
        let unknown = |run: &Self, state: &State| Val::Named(run.text(state, id));
        match (name, args.plain.first()) {
            ("int" | "float" | "max" | "min" | "abs" | "round", Some(first)) => args
                .plain
                .iter()
                .find(|v| matches!(v, Val::Num(_) | Val::Tensor(_) | Val::Norm(_)))
                .unwrap_or(first)
                .clone(),
            ("len", Some(Val::List(l))) => match &*state.lists[*l] {
                List { length: Some(scale), .. } => state.num(scale.clone()),
                List { items, length: None } => Val::Const(Const::Int(items.len() as i64)),
            },
            ("len", Some(Val::Rounds(scale, _))) => state.num(scale.clone()),
            ("len", Some(Val::Mask)) => state.num(tokens()),
            ("len", Some(Val::Named(text))) if is_batch_name(text) => state.num(tokens()),
            ("sum", Some(Val::List(l))) => self.total(id, *l, state),
            ("range", _) => {
                let count = if args.plain.len() > 1 { args.plain.get(1) } else { args.plain.first() };
                let scale = count.and_then(|c| self.factor(c)).unwrap_or(Scale::Unknown);
                Val::Rounds(scale, Box::new(Val::named("round")))
            }
            ("enumerate", Some(first)) => match self.elements(&first.clone(), state) {
                Elements::Rounds(scale, item) => {
                    Val::Rounds(scale, Box::new(Val::Tuple(vec![Val::named("round"), *item])))
                }
                Elements::Classes(..) | Elements::Each(_) => first.clone(),
            },
            ("zip", Some(first)) => {
                args.plain.iter().for_each(|arg| Self::copies_go(arg, state));
                match self.elements(&first.clone(), state) {
                    Elements::Rounds(scale, _) => Val::Rounds(scale, Box::new(unknown(self, state))),
                    _ => unknown(self, state),
                }
            }
            ("list" | "tuple" | "iter" | "reversed" | "sorted" | "set", Some(first)) => first.clone(),
            ("filter", Some(_)) => args.plain.get(1).cloned().unwrap_or_else(|| unknown(self, state)),
            ("hasattr", Some(Val::Module(_))) => Val::Test(Test::Known(true)),
            ("isinstance", Some(Val::Module(_) | Val::Param(_) | Val::Grad(_))) => Val::Test(Test::Known(true)),
            ("getattr" | "hasattr", Some(Val::Param(class))) => match args.plain.get(1).and_then(Val::text) {
                Some(mark) if mark == "grad" || mark == "main_grad" => self.gradient(*class),
                // One that has no mark may be asked for its value as well.
                Some(mark) if name == "hasattr" => Val::Test(Test::Param(Name::from(format!("has {mark}")))),
                Some(mark) => Val::Test(Test::Param(Name::from(format!("mark {mark}")))),
                None => unknown(self, state),
            },
            ("getattr", Some(base)) => match args.plain.get(1).and_then(Val::text).cloned() {
                Some(attr) => self.attr(id, &base.clone(), &attr, state),
                None => self.one_of(base).unwrap_or_else(|| unknown(self, state)),
            },
            ("bool", Some(first)) => Val::Test(self.truth(first)),
            ("super", _) => state
                .frames
                .last()
                .and_then(|f| f.locals.values().find(|v| matches!(v, Val::Object(_))))
                .cloned()
                .unwrap_or_else(|| unknown(self, state)),
            _ => {
                self.unknown(name, args, state);
                unknown(self, state)
            }
        }
    }

    pub fn gradient(&self, class: usize) -> Val {
        Val::Grad(Grad { of: vec![class], by: Scale::one(), events: Vec::new(), local: false, copy: false })
    }

    /// The sum of a list.
    pub fn total(&mut self, id: StmtId, list: usize, state: &mut State) -> Val {
        if let Some(norm) = self.norm_call(id, "sum", &Val::List(list), None, state) {
            return norm;
        }
        let list = state.lists[list].clone();
        let length = list.length.clone().unwrap_or_else(|| Scale::integer(list.items.len() as i64));
        match list.items.as_slice() {
            // What is counted in each of this rank's samples is counted in all of them together.
            [Val::Num(n)] if n.scale == tokens() && list.length.as_ref().is_some_and(super::eval::is_of_samples) => {
                state.num(tokens())
            }
            [Val::Num(n)] => state.num(n.scale.times(&length)),
            [Val::Tensor(t)] => {
                let mut t = t.clone();
                for part in &mut t.parts {
                    (part.grad, part.value) = (part.grad.times(&length), part.value.times(&length));
                }
                t.id = state.fresh();
                Val::Tensor(t)
            }
            items if list.length.is_none() && !items.is_empty() => {
                let mut sum = Val::Zero(0);
                for item in items {
                    sum = self.binary(id, crate::ir::BinOp::Add, &sum, item, state);
                }
                sum
            }
            _ => Val::Named(self.text(state, id)),
        }
    }

    /// What a loop over a value runs over.
    pub fn elements(&mut self, value: &Val, state: &mut State) -> Elements {
        match value {
            Val::Params(module) => Elements::Classes(state.classes_of(*module), false),
            Val::Tuple(items) if items.len() == 2 && items[0] == Val::ParamName => match &items[1] {
                Val::Params(module) => Elements::Classes(state.classes_of(*module), true),
                _ => Elements::Rounds(Scale::Unknown, Box::new(value.clone())),
            },
            Val::List(l) => self.of_list(*l, state),
            Val::Tuple(items) if !items.is_empty() && items.len() <= 8 => Elements::Each(items.clone()),
            Val::Rounds(scale, item) => Elements::Rounds(scale.clone(), item.clone()),
            Val::Dict(entries) => super::dicts::keys(entries),
            Val::Module(m) => {
                let item = self.child(*m, "[]", state);
                Elements::Rounds(Scale::Unknown, Box::new(item))
            }
            Val::Optimizer => Elements::Rounds(Scale::one(), Box::new(Val::Optimizer)),
            Val::Named(text) if super::norms::is_parameters(text) => {
                let module = state.module(text);
                Elements::Classes(state.classes_of(Some(module)), false)
            }
            Val::Named(text) => {
                let scale = Scale::of(Factor::Named(Name::from(format!("len({text})"))));
                Elements::Rounds(scale, Box::new(Val::named(&format!("{text}[]"))))
            }
            _ => Elements::Rounds(Scale::Unknown, Box::new(Val::named("item"))),
        }
    }

    fn of_list(&mut self, list: usize, state: &State) -> Elements {
        let list = &state.lists[list];
        let class = |v: &Val| match v {
            Val::Param(c) => Some((*c, false)),
            Val::Tuple(items) => match items.as_slice() {
                [Val::ParamName, Val::Param(c)] => Some((*c, true)),
                _ => None,
            },
            _ => None,
        };
        let classes: Option<Vec<(usize, bool)>> = list.items.iter().map(class).collect();
        match classes {
            Some(classes) if !classes.is_empty() => {
                let named = classes.iter().all(|(_, named)| *named);
                Elements::Classes(classes.into_iter().map(|(c, _)| c).collect(), named)
            }
            // Nothing of what was looked for.
            _ if list.items.is_empty() => Elements::Each(Vec::new()),
            _ if list.length.is_none() && list.items.len() <= 8 => Elements::Each(list.items.clone()),
            _ => {
                let item = list.items.first().cloned().unwrap_or(Val::named("item"));
                Elements::Rounds(list.length.clone().unwrap_or(Scale::Unknown), Box::new(item))
            }
        }
    }

    /// The operand of a call that is written in place, if it is a variable.
    pub fn is_batch(value: &Val) -> bool {
        matches!(value, Val::Named(text) if is_batch_name(text)) || matches!(value, Val::Mask)
    }

    pub fn operand_of(&self, operand: Option<&Operand>, state: &State) -> Option<Val> {
        operand.map(|o| self.operand(o, state))
    }
}

/// Whether a function answers a question, by its name.
fn asks(name: &str) -> bool {
    ["is_", "has_", "should_"].iter().any(|head| name.trim_start_matches('_').starts_with(head))
}

/// Whether a value is more than a name.
fn is_followed(value: &Val) -> bool {
    matches!(
        value,
        Val::Param(_)
            | Val::ParamName
            | Val::Params(_)
            | Val::Grad(_)
            | Val::Tensor(_)
            | Val::Num(_)
            | Val::Norm(_)
            | Val::Group(_)
            | Val::Optimizer
            | Val::Trainer(_)
    )
}

/// Values of their own.
fn renewed(items: &[Val], state: &mut State) -> Vec<Val> {
    let fresh = |v: &Val, state: &mut State| match v {
        Val::Num(n) => state.num(n.scale.clone()),
        Val::Zero(_) => Val::Zero(state.fresh()),
        Val::Tensor(t) => Val::Tensor(Tensor { id: state.fresh(), ..t.clone() }),
        other => other.clone(),
    };
    items.iter().map(|v| fresh(v, state)).collect()
}
