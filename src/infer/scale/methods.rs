//! Attributes and methods of losses, counts, groups, modules, parameters and gradients. In: a receiver and a name. Out: a value.
//! Next: `grads.rs`.

use super::Run;
use super::calls::Args;
use super::eval::{is_batch_name, is_mask_name, replace, tokens};
use super::value::{Grad, Part, State, Tensor, Test, Val, last};
use super::written::operation;
use crate::ir::{BinOp, Const, Operand, StmtId};
use crate::project::{ClassRef, FuncRef};
use crate::rules::Gives;
use crate::source::Name;
use crate::types::{AxisSet, Scale};

/// Methods that give the same value again.
const SAME: &[&str] = &[
    "item",
    "float",
    "double",
    "half",
    "bfloat16",
    "to",
    "cuda",
    "cpu",
    "contiguous",
    "view",
    "reshape",
    "squeeze",
    "unsqueeze",
    "type",
    "type_as",
    "flatten",
    "long",
    "int",
    "clamp",
    "clamp_min",
    "clamp_",
    "view_as",
    "tolist",
    "requires_grad_",
    "wait",
    "t",
    "transpose",
    "expand",
    "ravel",
    "narrow",
    "nan_to_num",
    "log_softmax",
];
/// Functions outside the project that wrap a module, by the last part of their names.
pub const WRAPS: &[&str] = &["DistributedDataParallel", "FullyShardedDataParallel", "fully_shard", "replicate"];
/// Those that give a value of its own.
const COPIES: &[&str] = &["clone", "detach", "new_tensor"];

impl<'a> Run<'a> {
    pub fn attr(&mut self, id: StmtId, base: &Val, name: &Name, state: &mut State) -> Val {
        match (base, name.as_str()) {
            (Val::Path(path), _) => {
                let full = Name::from(format!("{path}.{name}"));
                match super::groups::getter(self.rules, &full, &[]) {
                    Some((Gives::Group, axes)) => Val::Group(axes),
                    Some((Gives::Size, axes)) => state.num(Scale::size(&axes)),
                    _ => self.led(full.to_string()),
                }
            }
            (Val::Param(class), "grad" | "main_grad") => self.gradient(*class),
            (Val::Param(_), "requires_grad") => Val::Test(Test::Known(true)),
            (Val::Param(class), "data") => Val::Param(*class),
            (Val::Param(_), _) => Val::Test(Test::Param(Name::from(format!("mark {name}")))),
            (Val::Grad(_) | Val::Tensor(_) | Val::Num(_) | Val::Zero(_) | Val::Mask, "data" | "T") => base.clone(),
            (Val::Object(object), _) => match self.attribute(*object, name, state) {
                Some(value) => value.clone(),
                None => self
                    .member_of(*object, name, state)
                    .or_else(|| self.by_name(id, name, state))
                    .unwrap_or_else(|| Val::named(&format!("self.{name}"))),
            },
            (Val::Trainer(at), _) => self.trainer_attr(id, *at, name, state),
            (Val::Optimizer | Val::Named(_), "param_groups") => Val::Optimizer,
            (Val::Module(m), "module") => Val::Module(*m),
            // Numbers by the names of losses are no part of a model.
            (Val::Module(m), dict) if dict.ends_with("_dict") => {
                let of = &state.modules[*m].name;
                Val::named(&format!("{}.{dict}", of.split('@').next().unwrap_or(of)))
            }
            (Val::Module(m), _) => self.child(*m, name, state),
            (Val::Named(text), "loss") if self.is_of_labels(id, text, state) => self.loss(id, Some(true), None, state),
            (Val::Named(text), _) => {
                self.by_name(id, name, state).unwrap_or_else(|| Val::named(&format!("{text}.{name}")))
            }
            (Val::Dict(entries), _) => {
                super::dicts::entry(entries, name).unwrap_or_else(|| Val::Named(self.text(state, id)))
            }
            (Val::Class(_) | Val::Func(_), _) => Val::Named(self.text(state, id)),
            _ => Val::Named(self.text(state, id)),
        }
    }

    /// The number of a name of attributes.
    pub fn number(&mut self, name: &Name) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(name.clone()).or_insert(next)
    }

    /// An attribute of an object.
    pub fn attribute<'s>(&self, object: usize, name: &Name, state: &'s State) -> Option<&'s Val> {
        state.objects.get(object)?.attrs.get(*self.numbers.get(name)?)
    }

    /// A method of an object, to be handed on; what a getter gives is not one.
    fn member_of(&mut self, object: usize, name: &Name, state: &State) -> Option<Val> {
        let class = state.objects.get(object)?.class?;
        match self.property(class, name) {
            Some(_) => None,
            None => self.own_method(object, name, state),
        }
    }

    /// A method of an object.
    fn own_method(&self, object: usize, name: &Name, state: &State) -> Option<Val> {
        let class: ClassRef = state.objects.get(object)?.class?;
        self.method(class, name).map(|at| Val::Method(object, at))
    }

    /// The function that computes an attribute of an object when it is read, where it says anything of what is followed.
    pub fn getter(&mut self, base: &Val, name: &Name, state: &State) -> Option<FuncRef> {
        let Val::Object(object) = base else { return None };
        if self.attribute(*object, name, state).is_some() {
            return None;
        }
        let at = self.property(state.objects.get(*object)?.class?, name)?;
        self.matters(at).then_some(at)
    }

    /// What a getter gives: where its name speaks of a group or a size, that holds unless the value says it itself.
    pub fn gotten(&self, name: &Name, value: Val) -> Val {
        let speaks = super::groups::of_size_name(name).is_some() || super::groups::of_group_name(name).is_some();
        match &value {
            Val::Group(_) | Val::Mesh(_) => self.renamed_attr(name, value),
            Val::Num(n) if super::eval::is_size(&n.scale) => value,
            _ if speaks => self.sized(Val::named(&format!("self.{name}"))),
            _ => value,
        }
    }

    pub fn set_attr(&mut self, base: &Operand, name: &Name, value: &Operand, mut state: State) -> Vec<State> {
        let (base, value) = (self.operand(base, &state), self.operand(value, &state));
        match (&base, &value) {
            (Val::Param(class), _) if name == "grad" || name == "main_grad" => {
                self.put_grad(&base, &[*class], &value, &mut state);
            }
            (Val::Grad(old), _) if name == "data" => self.put_grad(&base, &old.of, &value, &mut state),
            (Val::Object(object), _) => {
                let renamed = self.renamed_attr(name, value.clone());
                state.name_group(&value, &renamed);
                let (value, number) = (renamed, self.number(name));
                if let Some(o) = state.objects.get_mut(*object) {
                    o.attrs.insert(number, value);
                }
            }
            // Another function takes the steps.
            (Val::Optimizer, value) if name == "step" || super::unknown::has_ranks(value) => state.unsettled = true,
            // The part of a flat copy takes a step with the gradient of those that it was copied from.
            (_, Val::Grad(g)) if name == "grad" || name == "main_grad" => {
                self.put_grad(&value, &g.of, &value, &mut state);
            }
            // Gradients of parameters that are not followed.
            (Val::Named(_), Val::Named(_) | Val::Num(_)) if name == "grad" || name == "main_grad" => {
                state.unsettled = true
            }
            _ => {}
        }
        vec![state]
    }

    fn renamed_attr(&self, name: &Name, value: Val) -> Val {
        match &value {
            Val::Group(axes) if axes.single().is_some_and(|a| a.is_variable()) => {
                super::groups::of_group_name(name).map_or(value, Val::Group)
            }
            Val::Named(text) if super::groups::of_group_name(text).is_none() => {
                let known = super::groups::of_group_name(name).is_some() || super::groups::of_size_name(name).is_some();
                if known { Val::named(&format!("self.{name}")) } else { value }
            }
            _ => value,
        }
    }

    /// A method of an object: its own, that of the module that it wraps, or one that a trainer has.
    fn method_of_object(
        &mut self,
        id: StmtId,
        base: &'a Operand,
        object: usize,
        name: &Name,
        args: Args,
        mut state: State,
    ) -> Vec<(State, Val)> {
        let callee = match self.attribute(object, name, &state) {
            Some(value) => value.clone(),
            None => match self.own_method(object, name, &state) {
                Some(Val::Method(_, own)) if self.is_overridden(object, name, &state) => {
                    let value = self.said_by_subclass(own, name, &mut state);
                    return vec![(state, value)];
                }
                Some(own) => own,
                None if let Some(asked) = self.asked_wrapper(object, name, &mut state) => {
                    return match asked {
                        Val::Object(_) => vec![(state, asked)],
                        inner => self.method_call(id, base, &inner, name, args, state),
                    };
                }
                None => {
                    let trainer = self.own_trainer(id, object, name, &mut state);
                    let value = trainer.and_then(|t| self.trainer_call(id, &t, name, &args, &mut state));
                    if let Some(value) = value {
                        return vec![(state, value)];
                    }
                    Val::named(&format!("self.{name}"))
                }
            },
        };
        self.apply(id, &callee, args, state)
    }

    pub fn method_call(
        &mut self,
        id: StmtId,
        base: &'a Operand,
        receiver: &Val,
        name: &Name,
        args: Args,
        mut state: State,
    ) -> Vec<(State, Val)> {
        if let Val::Object(object) = receiver {
            return self.method_of_object(id, base, *object, name, args, state);
        }
        if let Some(value) = self.trainer_call(id, receiver, name, &args, &mut state) {
            return vec![(state, value)];
        }
        if let (Val::Class(class), "apply") = (receiver, name.as_str()) {
            state.unsettled |= self.communicates(*class);
            if self.scales_backward(*class) {
                self.lose_all(&mut state);
                return vec![(state, Val::named("call"))];
            }
        }
        self.hand_function(receiver, name, &args, &mut state);
        if let Some(hooked) = self.hook(id, receiver, name, &args, &state) {
            return hooked;
        }
        if let Val::Module(module) = receiver
            && name.contains("loss")
            && let Some(ways) = self.loss_of(id, *module, name, &args, &state)
        {
            return ways;
        }
        let known = match receiver {
            Val::Dict(entries) => self.of_dict(base, entries, name, &args, &mut state),
            _ => self.known_method(id, receiver, name, &args, &mut state),
        };
        if let Some(value) = known {
            return vec![(state, value)];
        }
        if let (Val::Named(text), "append" | "extend" | "add") = (receiver, name.as_str())
            && let Operand::Local(local) = base
            && !text.contains('.')
        {
            // A list that is not known keeps what it is given.
            let list = state.list(args.plain.clone(), None);
            state.set(*local, list);
            return vec![(state, Val::Const(Const::None))];
        }
        if let (Some(_), Some(by)) = (operation(name), args.plain.first()) {
            self.scaled_by_name(receiver, by, &mut state);
        }
        if let (Val::Named(_), false) = (receiver, args.open)
            && state.frames.len() <= 3
            && let Some((object, at)) = self.sole_method(name, &mut state)
        {
            return self.apply(id, &Val::Method(object, at), args, state);
        }
        self.hand_to_methods(name, &args, &mut state);
        self.unknown(name, &args, &mut state);
        let value = Val::Named(self.text(&state, id));
        vec![(state, value)]
    }

    /// A hook of a parameter runs at every backward pass.
    fn hook(
        &mut self,
        id: StmtId,
        receiver: &Val,
        name: &str,
        args: &Args,
        state: &State,
    ) -> Option<Vec<(State, Val)>> {
        let Val::Param(class) = receiver else { return None };
        let on_param = name == "register_post_accumulate_grad_hook";
        if !on_param && name != "register_hook" {
            return None;
        }
        let mut state = state.clone();
        let Some(callee @ (Val::Func(_) | Val::Method(..))) = args.plain.first() else {
            state.lose(receiver);
            return Some(vec![(state, Val::named("handle"))]);
        };
        let given = if on_param { receiver.clone() } else { self.gradient(*class) };
        let before: Vec<Scale> = state.classes.iter().map(|c| c.after.clone()).collect();
        let runs = self.apply(id, callee, Args { plain: vec![given], ..Args::default() }, state);
        let class = *class;
        let settle = |(mut s, value): (State, Val), run: &mut Self| {
            if let Val::Grad(g) = &value {
                let own = Grad { of: vec![class], ..g.clone() };
                run.multiply(&own, &g.by, &g.events, true, &mut s);
            }
            // What it does in place is done every time, too.
            for leaf in s.leaves(class) {
                let old = before.get(leaf).cloned().unwrap_or(Scale::one());
                let Some(c) = s.classes.get_mut(leaf) else { continue };
                let more = c.after.over(&old);
                if more != Scale::one() || !c.over.is_empty() {
                    c.always.0 = c.always.0.times(&more);
                    c.always.1 = c.always.1.iter().chain(c.over.iter()).cloned().collect();
                    c.always.2.append(&mut c.events);
                    (c.after, c.over) = (old, AxisSet::default());
                }
            }
            (s, Val::named("handle"))
        };
        Some(runs.into_iter().map(|r| settle(r, self)).collect())
    }

    /// A method whose meaning is known.
    pub fn known_method(&mut self, id: StmtId, on: &Val, name: &str, args: &Args, state: &mut State) -> Option<Val> {
        match on {
            Val::Named(_) | Val::Mask if matches!(name, "chunk" | "tensor_split") => self.pieces(on, args),
            Val::Tensor(t) => self.of_tensor(id, t, name, args, state),
            Val::Num(_) | Val::Zero(_) => self.of_number(id, on, name, args, state),
            Val::Mask | Val::Test(_) => match name {
                // So many in each row.
                "sum" | "count_nonzero" if args.get(0, "dim").is_some() => Some(Val::Mask),
                "sum" | "count_nonzero" if args.plain.is_empty() => Some(self.counted(id, state)),
                _ if SAME.contains(&name) || COPIES.contains(&name) => Some(Val::Mask),
                "mul" | "div" => {
                    let op = if name == "mul" { BinOp::Mul } else { BinOp::Div };
                    args.plain.first().map(|by| self.binary(id, op, &Val::Mask, by, state))
                }
                _ => None,
            },
            Val::Grad(g) => self.of_gradient(id, &g.clone(), name, args, state),
            Val::Norm(_) if matches!(name, "add_" | "add" | "mul_" | "mul" | "div_" | "div") => {
                let op = match name.trim_end_matches('_') {
                    "add" => BinOp::Add,
                    "mul" => BinOp::Mul,
                    _ => BinOp::Div,
                };
                let new = self.binary(id, op, on, args.plain.first()?, state);
                if name.ends_with('_') {
                    replace(state, on, &new);
                }
                Some(new)
            }
            Val::Norm(n) if matches!(name, "zero_" | "fill_") => {
                let lost = Val::Norm(super::norms::Norm { lost: true, ..n.clone() });
                replace(state, on, &lost);
                Some(lost)
            }
            Val::Norm(_) => self.norm_method(id, name, on, args.plain.first().or_else(|| args.keyword("p")), state),
            Val::Group(axes) => match name {
                "size" => Some(state.num(Scale::size(axes))),
                _ => None,
            },
            Val::Mesh(axes) => {
                let axes = axes.clone();
                self.of_mesh(id, &axes, name, args, state)
            }
            Val::Module(m) => {
                state.uses(*m);
                self.of_module(id, *m, name, args, state)
            }
            Val::Optimizer => {
                state.unsettled |= args.all().any(super::unknown::has_ranks);
                self.of_optimizer(id, name, state)
            }
            Val::List(l) => self.of_list_method(id, *l, name, args, state),
            Val::ParamName => match (name, args.plain.first().and_then(Val::text)) {
                ("endswith" | "startswith", Some(text)) => {
                    Some(Val::Test(Test::Param(Name::from(format!("name has {text}")))))
                }
                _ => Some(Val::ParamName),
            },
            Val::Pack(_) if SAME.contains(&name) => Some(on.clone()),
            Val::Params(_) => None,
            Val::Named(text) => {
                let text = text.clone();
                self.of_name(id, &text, name, args, state)
            }
            _ => None,
        }
    }

    /// What is cut into so many pieces, for a loop over them.
    fn pieces(&self, whole: &Val, args: &Args) -> Option<Val> {
        let count = args.get(0, "chunks").or_else(|| args.keyword("sections"))?;
        let piece = match whole {
            Val::Named(text) => Val::named(&format!("{text}[]")),
            other => other.clone(),
        };
        Some(Val::Rounds(self.factor(count)?, Box::new(piece)))
    }

    fn of_list_method(&mut self, id: StmtId, l: usize, name: &str, args: &Args, state: &mut State) -> Option<Val> {
        match name {
            "append" => {
                if let (Some(list), Some(value)) = (state.lists.get_mut(l), args.plain.first()) {
                    super::exec::append(list, value.clone());
                }
                Some(Val::Const(Const::None))
            }
            "extend" => {
                if let Some(Val::List(other)) = args.plain.first() {
                    let more = state.lists[*other].items.clone();
                    state.lists[l].items.extend(more);
                }
                Some(Val::Const(Const::None))
            }
            "sum" if args.plain.is_empty() && state.lists[l].length.is_some() => Some(self.total(id, l, state)),
            "mean" if args.plain.is_empty() && state.lists[l].length.is_some() => {
                match state.lists[l].items.as_slice() {
                    [one @ Val::Num(_)] => Some(one.clone()),
                    _ => None,
                }
            }
            _ if SAME.contains(&name) && state.lists[l].length.is_some() => Some(Val::List(l)),
            "items" => Some(Val::List(l)),
            "values" => {
                let second = |v: &Val| match v {
                    Val::Tuple(items) => items.last().cloned(),
                    _ => None,
                };
                let values: Option<Vec<Val>> = state.lists[l].items.iter().map(second).collect();
                values.map(|values| state.list(values, None))
            }
            "clear" => {
                state.lists[l].items.clear();
                Some(Val::Const(Const::None))
            }
            _ => None,
        }
    }

    fn of_tensor(&mut self, id: StmtId, t: &Tensor, name: &str, args: &Args, state: &mut State) -> Option<Val> {
        let dims = args.get(0, "dim").filter(|_| matches!(name, "mean" | "sum"));
        match (name, &t.rows, dims) {
            ("backward", _, _) => {
                self.backward_with(id, &Val::Tensor(t.clone()), args.get(0, "gradient"), state);
                Some(Val::Const(Const::None))
            }
            ("mean", Some(rows), None) => {
                let mut t = t.clone();
                let place = self.place(state, id);
                for part in &mut t.parts {
                    (part.grad, part.value) = (part.grad.over(rows), part.value.over(rows));
                    part.events.push(state.event(super::value::What::Mean, place));
                }
                Some(Val::Tensor(Tensor { id: state.fresh(), rows: None, ..t }))
            }
            ("sum", Some(_), None) => Some(Val::Tensor(Tensor { id: state.fresh(), rows: None, ..t.clone() })),
            ("item", None, _) if t.rows.is_none() => {
                let place = self.place(state, id);
                self.shown(place, &Val::Tensor(t.clone()), state);
                Some(Val::Tensor(t.clone()))
            }
            ("sum" | "mean", None, None) => Some(Val::Tensor(t.clone())),
            ("sum" | "mean", Some(_), Some(Val::Const(Const::Int(n)))) if *n < 0 => Some(Val::Tensor(t.clone())),
            ("sum" | "mean", Some(_), Some(_)) => None,
            ("mul" | "mul_" | "div" | "div_", _, _) => self.in_place(id, &Val::Tensor(t.clone()), name, args, state),
            _ if COPIES.contains(&name) => Some(Val::Tensor(Tensor { id: state.fresh(), ..t.clone() })),
            ("numel", Some(rows), _) => Some(state.num(rows.clone())),
            ("size", Some(rows), _) if matches!(args.plain.first(), Some(Val::Zero(_))) => {
                Some(state.num(rows.clone()))
            }
            ("numel" | "size", _, _) => None,
            _ if SAME.contains(&name) => Some(Val::Tensor(t.clone())),
            _ => None,
        }
    }

    /// What one rank has is counted here.
    fn counted(&self, id: StmtId, state: &mut State) -> Val {
        let (fresh, made) = (state.fresh(), Some(self.place(state, id)));
        Val::Num(super::value::Num { id: fresh, scale: tokens(), added: false, made })
    }

    /// `x.mul_(y)`, `x.div(y)`
    fn in_place(&mut self, id: StmtId, on: &Val, name: &str, args: &Args, state: &mut State) -> Option<Val> {
        let op = if name.starts_with("mul") { BinOp::Mul } else { BinOp::Div };
        let new = self.binary(id, op, on, args.plain.first()?, state);
        if name.ends_with('_') {
            replace(state, on, &new);
        }
        Some(new)
    }

    fn of_number(&mut self, id: StmtId, on: &Val, name: &str, args: &Args, state: &mut State) -> Option<Val> {
        match name {
            "backward" => {
                self.backward_with(id, on, args.get(0, "gradient"), state);
                Some(Val::Const(Const::None))
            }
            "mul" | "mul_" | "div" | "div_" => self.in_place(id, on, name, args, state),
            "add_" | "add" => {
                let new = self.binary(id, BinOp::Add, on, args.plain.first()?, state);
                if name == "add_" {
                    replace(state, on, &new);
                }
                Some(new)
            }
            "sum" => Some(on.clone()),
            // A count is an integer, of which this is a copy.
            _ if COPIES.contains(&name) || matches!((name, on), ("float" | "double", Val::Num(_))) => Some(match on {
                Val::Num(n) => state.num(n.scale.clone()),
                _ => Val::Zero(state.fresh()),
            }),
            _ if SAME.contains(&name) => Some(match on {
                // Where a count of all ranks gets its bound, it is made what divides a loss.
                Val::Num(n) if name.starts_with("clamp") && n.made.is_some() && n.scale != tokens() => {
                    Val::Num(super::value::Num { made: Some(self.place(state, id)), ..n.clone() })
                }
                _ => on.clone(),
            }),
            _ => None,
        }
    }

    fn of_gradient(&mut self, id: StmtId, g: &Grad, name: &str, args: &Args, state: &mut State) -> Option<Val> {
        if let Some(op) = operation(name) {
            let by = args.plain.first()?.clone();
            if !name.ends_with('_') {
                return Some(self.binary(id, op, &Val::Grad(g.clone()), &by, state));
            }
            self.scale_gradients(id, op, g, &by, state);
            return Some(Val::Grad(g.clone()));
        }
        match name {
            "to_local" => Some(Val::Grad(Grad { local: true, ..g.clone() })),
            "full_tensor" => Some(Val::Named(self.text(state, id))),
            "norm" | "pow" | "square" | "abs" => {
                let order = args.plain.first().or_else(|| args.keyword("p"));
                self.norm_call(id, name, &Val::Grad(g.clone()), order, state)
            }
            "copy_" => Some(self.copied_into(g, args, state)),
            "clone" | "detach" | "detach_" | "zero_" | "add_" | "numel" | "is_sparse" => match name {
                "numel" => None,
                _ => Some(Val::Grad(Grad { copy: g.copy || name == "clone", ..g.clone() })),
            },
            // The own part, as indexing takes it.
            "narrow" if g.by == Scale::one() => Some(Val::Named(self.text(state, id))),
            _ if SAME.contains(&name) => Some(Val::Grad(g.clone())),
            _ => {
                self.method_in_place(g, name, state);
                Self::copies_go(&Val::Grad(g.clone()), state);
                None
            }
        }
    }

    fn of_module(&mut self, id: StmtId, m: usize, name: &str, args: &Args, state: &mut State) -> Option<Val> {
        match name {
            "parameters" => Some(Val::Params(Some(m))),
            "named_parameters" => Some(Val::Tuple(vec![Val::ParamName, Val::Params(Some(m))])),
            // One of them is not the whole: a loop may ask which one it is, and take its parameters alone.
            "modules" => {
                let parts = state.wrapped_parts(m);
                let all = || std::iter::once(m).chain(parts.iter().copied()).map(Val::Module).collect();
                (!parts.is_empty() || !state.modules[m].wraps.is_empty()).then(|| state.list(all(), None))
            }
            "to" | "cuda" | "train" | "eval" | "half" | "bfloat16" | "float" => Some(Val::Module(m)),
            "zero_grad" => {
                state.clear();
                Some(Val::Const(Const::None))
            }
            "set_gradient_divide_factor" | "set_reduce_scatter_divide_factor" => {
                let by = args.plain.first().and_then(|v| self.factor(v)).unwrap_or(Scale::Unknown);
                let place = self.place(state, id);
                let module = &mut state.modules[m];
                if let Some((_, divisor, at)) = module.wraps.last_mut() {
                    (*divisor, *at) = (by, place);
                } else {
                    module.lost = true;
                }
                Some(Val::Const(Const::None))
            }
            "register_comm_hook" => {
                let place = self.place(state, id);
                self.comm_hook(m, args, place, state);
                Some(Val::Const(Const::None))
            }
            "backward" | "step" => {
                self.engine(id, args, state);
                None
            }
            _ => {
                Self::method_changes(Some(&Val::Module(m)), name, state);
                None
            }
        }
    }

    /// A wrapper that takes the backward pass in its own hands: what it divides by is its own.
    fn engine(&mut self, id: StmtId, _args: &Args, state: &mut State) {
        self.backward(id, &Val::Test(Test::Known(true)), state);
    }

    pub fn of_optimizer(&mut self, id: StmtId, name: &str, state: &mut State) -> Option<Val> {
        match name {
            "step" => {
                let place = self.place(state, id);
                state.classes_of(None);
                self.judge(place, state);
                Some(Val::Const(Const::None))
            }
            "zero_grad" => {
                state.clear();
                Some(Val::Const(Const::None))
            }
            // What runs before each step may change every gradient.
            "register_step_pre_hook" => {
                (0..state.modules.len()).for_each(|m| state.lose(&Val::Module(m)));
                Some(Val::Const(Const::None))
            }
            _ => Some(Val::Named(self.text(state, id))),
        }
    }

    /// A method of something that is known by name alone.
    fn of_name(&mut self, id: StmtId, text: &Name, name: &str, args: &Args, state: &mut State) -> Option<Val> {
        let word = last(text).to_lowercase();
        // One of several, too: `self.optimizers["d"]`.
        let is_optimizer = text
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|part| matches!(part, "opt" | "opts") || part.to_lowercase().contains("optim"));
        let is_scaler = word.contains("scaler");
        match name {
            "step" | "zero_grad" if is_optimizer => self.of_optimizer(id, name, state),
            "step" if is_scaler => self.of_optimizer(id, name, state),
            "scale" if is_scaler => args.plain.first().cloned(),
            "unscale_" | "update" if is_scaler => Some(Val::Const(Const::None)),
            "parameters" | "named_parameters" | "zero_grad" | "modules" | "register_comm_hook" => {
                let m = state.module(text);
                self.of_module(id, m, name, args, state)
            }
            // Of which module it is is not known.
            "set_gradient_divide_factor" | "set_reduce_scatter_divide_factor" => {
                match state.modules.iter().position(|m| m.name == *text && !m.wraps.is_empty()) {
                    Some(m) => self.of_module(id, m, name, args, state),
                    None => {
                        self.lose_all(state);
                        None
                    }
                }
            }
            "backward" => {
                let wrapped = word.contains("engine") || word.contains("accelerator") || word.contains("fabric");
                match args.plain.first() {
                    Some(_) => self.engine(id, args, state),
                    None if wrapped => self.engine(id, args, state),
                    None => self.backward_with(id, &Val::Named(text.clone()), args.keyword("gradient"), state),
                }
                Some(Val::Const(Const::None))
            }
            "sum" if is_mask_name(text) && args.get(0, "dim").is_some() => Some(Val::Mask),
            "sum" if is_mask_name(text) && args.plain.is_empty() => Some(self.counted(id, state)),
            "numel" if is_mask_name(text) || super::eval::is_of_tokens(text) => Some(state.num(tokens())),
            "size"
                if matches!(args.plain.first(), Some(Val::Zero(_))) && (is_batch_name(text) || is_mask_name(text)) =>
            {
                Some(state.num(tokens()))
            }
            "ne" | "eq" if is_batch_name(text) || is_mask_name(text) => Some(Val::Mask),
            "sum" | "mean" => {
                // A loss of all rows on every rank and one of the own rows have other factors, and an operation that is not followed does not
                // tell which it is.
                state.unsettled |= state.put_back;
                let Val::Tensor(t) = self.per_token(&self.text(state, id), state) else { return None };
                let parts = t.parts.iter().map(|p| Part { label: text.clone(), ..p.clone() }).collect();
                self.of_tensor(id, &Tensor { parts, ..t }, name, args, state)
            }
            "size" if super::groups::of_group_name(text).is_some() || state.same.contains_key(text) => {
                let axes = state.axes(&Val::Named(text.clone()))?;
                Some(state.num(Scale::size(&axes)))
            }
            "get_group" | "size" if word.contains("mesh") => {
                let Some(Val::Const(Const::Str(dim))) = args.get(0, "mesh_dim") else {
                    let axes = state.axes(&Val::Named(text.clone()))?;
                    return Some(if name == "size" { state.num(Scale::size(&axes)) } else { Val::Group(axes) });
                };
                let axes = state.expand(dim);
                Some(if name == "size" { state.num(Scale::size(&axes)) } else { Val::Group(axes) })
            }
            // What is fixed is no model that is trained: see `trainers::is_module`.
            "requires_grad_" if args.plain.first() == Some(&Val::Const(Const::Bool(false))) => {
                Some(Val::Named(Name::from(format!("{text}.requires_grad_()"))))
            }
            _ if SAME.contains(&name) || COPIES.contains(&name) => Some(Val::Named(text.clone())),
            _ => {
                let named = Val::Named(text.clone());
                Self::method_changes(Some(&named).filter(|_| !is_optimizer), name, state);
                None
            }
        }
    }

    /// Functions outside the project that are about gradients and modules.
    pub fn of_gradients(&mut self, id: StmtId, name: &str, args: &Args, state: &mut State) -> Option<Val> {
        let place = self.place(state, id);
        match name {
            _ if WRAPS.contains(&name) => {
                let group = ["process_group", "mesh", "device_mesh"].iter().find_map(|k| args.keyword(k));
                let group = group.or_else(|| args.plain.get(1).filter(|_| name == "FullyShardedDataParallel"));
                let module = args.get(0, "module").cloned().unwrap_or(Val::named("model"));
                let axes = match group {
                    None => Some(state.everyone()),
                    Some(Val::Tuple(items)) => {
                        let all: Option<Vec<AxisSet>> = items.iter().map(|g| state.axes(g)).collect();
                        all.map(|sets| sets.iter().flat_map(|s| s.iter().cloned().collect::<Vec<_>>()).collect())
                    }
                    Some(group) => state.axes(group),
                };
                let Some(axes) = axes.filter(|_| !args.open) else {
                    state.lose(&module);
                    return Some(module);
                };
                let flattened = matches!(group, Some(Val::Mesh(dims)) if state.aliases.values().any(|of| of == dims));
                let keeps = super::norms::keeps(name, args, group, &axes, flattened, place);
                let wrapped = self.wrap(&module, axes, place, state);
                if let Val::Module(m) = wrapped {
                    state.modules[m].keeps = keeps;
                }
                Some(wrapped)
            }
            "clip_grad_norm_" | "clip_grad_norm" => {
                self.clipped(id, args.get(0, "parameters"), args.get(1, "max_norm"), state);
                None
            }
            "clip_grads_with_norm_" => {
                if let Some(Val::Norm(n)) = args.get(2, "total_norm") {
                    self.norm_used(&n.clone(), state);
                }
                None
            }
            "backward" => {
                self.pass_on(id, args.get(1, "grad_tensors"), state);
                self.backward_with(id, args.plain.first()?, args.get(1, "grad_tensors"), state);
                Some(Val::Const(Const::None))
            }
            "_foreach_mul_" | "_foreach_div_" => {
                let op = if name == "_foreach_mul_" { BinOp::Mul } else { BinOp::Div };
                let by = args.plain.get(1)?.clone();
                match args.plain.first() {
                    Some(Val::List(l)) => {
                        for item in state.lists[*l].items.clone() {
                            if let Val::Grad(g) = &item {
                                self.scale_gradients(id, op, g, &by, state);
                            }
                        }
                    }
                    Some(other) => self.scaled_by_name(other, &by, state),
                    None => {}
                }
                Some(Val::Const(Const::None))
            }
            "_flatten_dense_tensors" => {
                let Some(Val::List(l)) = args.plain.first() else { return None };
                let of = state.lists[*l]
                    .items
                    .iter()
                    .filter_map(|v| if let Val::Grad(g) = v { Some(g.of.clone()) } else { None });
                let of: Vec<usize> = of.flatten().collect();
                if self.is_measured(id, state) {
                    return None;
                }
                (!of.is_empty())
                    .then(|| Val::Grad(Grad { of, by: Scale::one(), events: Vec::new(), local: false, copy: true }))
            }
            "_unflatten_dense_tensors" => Some(Val::Named(self.text(state, id))),
            _ => None,
        }
    }
}
