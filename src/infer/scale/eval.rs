//! Expressions: names, attributes, items, arithmetic, comparisons. In: operations and states. Out: values. Never: calls, which are in
//! `calls.rs`. Next: `calls.rs`.

use super::Run;
use super::conditional::{asks_rank, asks_whether};
use super::groups;
use super::placeholder::{Read, holds_place};
use super::value::{Num, Part, State, Tensor, Test, Val, What, last};
use crate::ir::{BinOp, BuildKind, CmpOp, Const, Item, Operand, Rvalue, StmtId, UnOp};
use crate::project::{FuncRef, Resolved};
use crate::source::{Idx, Name};
use crate::types::{AxisSet, Factor, Scale};

/// What one rank counts.
pub const TOKENS: &str = "tokens";

pub fn tokens() -> Scale {
    Scale::of(Factor::Count(Name::from(TOKENS)))
}

/// Whether a name is of a mask: what is counted by its sum.
pub fn is_mask_name(name: &str) -> bool {
    let lower = last(name).to_lowercase();
    lower.contains("mask") || lower.contains("valid") || lower.starts_with("is_")
}

/// Parts of texts of numbers that may be, or carry, the number of ranks.
const RANKS: &[&str] = &[
    "world", "replica", "rank", "process", "shard", "gpu", "node", "device", "degree", "<<", "size", "scale", "factor",
    "environ", "mesh", "prod(", "len(", "dp", "topo", "proc", "worker", "cards", "host",
];

/// Whether a number that is known by its text alone may be the number of ranks, or carry it.
pub fn may_count_ranks(text: &str) -> bool {
    let lower = text.to_lowercase();
    RANKS.iter().any(|part| lower.contains(part))
}

/// Whether a name is of what has one entry for each token or sample of this rank.
pub fn is_batch_name(name: &str) -> bool {
    let lower = last(name).to_lowercase();
    [
        "labels",
        "label",
        "targets",
        "target",
        "input_ids",
        "tokens",
        "ids",
        "x",
        "y",
        "inputs",
        "images",
        "batch",
        "tgt",
        "trg",
    ]
    .contains(&lower.as_str())
        || lower.ends_with("_labels")
        || lower.ends_with("_ids")
}

/// Whether a name is of what has one number for each token.
pub fn is_of_tokens(name: &str) -> bool {
    is_batch_name(name) && (name.ends_with("labels") || name.ends_with("ids"))
}

/// Whether an index is of slices alone: `[:, 1:]`.
fn is_view(index: &Val) -> bool {
    let slice = |i: &Val| match i {
        Val::Named(text) => text.contains(':') && !text.contains(['[', '(']),
        Val::Const(Const::Ellipsis) => true,
        _ => false,
    };
    match index {
        Val::Tuple(items) => !items.is_empty() && items.iter().all(slice),
        index => slice(index),
    }
}

/// A text without the spaces in it that part no words, or its beginning.
fn closed_up(text: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut parted = false;
    for c in text.chars().take(160) {
        if c.is_whitespace() {
            parted = true;
            continue;
        }
        if parted && is_word(c) && out.ends_with(is_word) {
            out.push(' ');
        }
        parted = false;
        out.push(c);
        if out.len() >= 80 {
            break;
        }
    }
    out
}

/// What may execute functions of the project.
pub enum Executes<'a> {
    Call,
    /// An attribute of the object with this number that a function computes.
    Getter(usize, FuncRef, &'a Name),
}

impl<'a> Run<'a> {
    pub fn operand(&self, operand: &Operand, state: &State) -> Val {
        match operand {
            Operand::Const(Const::Int(0)) => Val::Zero(0),
            Operand::Const(Const::Float(bits)) if *bits == 0f64.to_bits() => Val::Zero(0),
            Operand::Const(c) => Val::Const(c.clone()),
            Operand::Local(local) => match state.get(*local) {
                Some(Val::Named(text)) if state.sizes.contains_key(text) => {
                    Val::Num(Num { id: 0, scale: Scale::size(&state.sizes[text]), added: false, made: None })
                }
                Some(value) => self.sized(value.clone()),
                None => {
                    let name = state.frames.last().map(|f| self.project.func(f.at).locals()[*local].name.clone());
                    self.sized(Val::Named(name.unwrap_or_default()))
                }
            },
            Operand::Global(name) => self.global(name, state),
        }
    }

    /// A name that speaks of the size of a group is that size.
    pub fn sized(&self, value: Val) -> Val {
        match &value {
            Val::Named(text) => match groups::of_size_name(text) {
                Some(axes) if is_plain(text) => {
                    Val::Num(Num { id: 0, scale: Scale::size(&axes), added: false, made: None })
                }
                _ => value,
            },
            _ => value,
        }
    }

    fn global(&self, name: &Name, state: &State) -> Val {
        let Some(at) = state.frames.last().map(|f| f.at) else { return Val::Named(name.clone()) };
        let body = state.frames.iter().find(|f| f.at.module == at.module && f.at.func.index() == 0);
        if let Some(body) = body {
            let found = self.global_local(at.module, body.at, name);
            if let Some(value) = found.and_then(|l| body.locals.get(l.index())) {
                return self.unless_set_again(self.sized(value.clone()), name, Read::Global, state);
            }
        }
        self.member(at.module, name)
    }

    pub fn resolved(&self, resolved: &Resolved) -> Val {
        match resolved {
            Resolved::Func(at) => Val::Func(*at),
            Resolved::Class(at) => Val::Class(*at),
            Resolved::Module(m) => Val::Path(self.project.modules[*m].name.clone()),
            Resolved::Package(path) | Resolved::External(path) => Val::Path(path.clone()),
            Resolved::Value(_, name) => Val::Named(name.clone()),
        }
    }

    /// The text of a statement, without spaces.
    pub fn text(&self, state: &State, id: StmtId) -> Name {
        let written = || {
            let place = self.place(state, id);
            Name::from(closed_up(self.files[place.file].slice(place.span)))
        };
        match state.frames.last() {
            Some(frame) => self.known.text(frame.at, id, written),
            None => written(),
        }
    }

    pub fn eval(&mut self, id: StmtId, value: &'a Rvalue, mut state: State) -> Vec<(State, Val)> {
        let (object, at, name) = match self.plainly(id, value, &mut state) {
            Ok(result) => return vec![(state, result)],
            Err(Executes::Call) => return self.call(id, value, state),
            Err(Executes::Getter(object, at, name)) => (object, at, name),
        };
        let call = Some(self.place(&state, id));
        let bound = self.bind(at, Some(Val::Object(object)), &super::calls::Args::default());
        let got = self.run(at, bound, call, state);
        got.into_iter().map(|(s, v)| (s, self.gotten(name, v))).collect()
    }

    /// The value of what executes no function of the project, so that the path stays one.
    ///
    /// # Errors
    /// What may execute one.
    pub fn plainly(&mut self, id: StmtId, value: &'a Rvalue, state: &mut State) -> Result<Val, Executes<'a>> {
        Ok(match value {
            Rvalue::Use(o) | Rvalue::Await(o) => self.operand(o, state),
            Rvalue::Attr { base, name } => {
                let base = self.operand(base, state);
                if let (Val::Object(object), Some(at)) = (&base, self.getter(&base, name, state)) {
                    return Err(Executes::Getter(*object, at, name));
                }
                let value = self.attr(id, &base, name, state);
                self.unless_set_again(value, name, Read::Attribute, state)
            }
            Rvalue::Item { base, index } => {
                let (base, index) = (self.operand(base, state), self.operand(index, state));
                let value = self.item(id, &base, &index, state);
                match index.text() {
                    Some(key) => self.unless_set_again(value, key, Read::Item, state),
                    None => value,
                }
            }
            Rvalue::Unary { op, operand } => {
                let inner = self.operand(operand, state);
                match op {
                    UnOp::Not => Val::Test(self.truth(&inner).negate()),
                    _ => inner,
                }
            }
            Rvalue::Binary { op, left, right } => {
                let (a, b) = (self.operand(left, state), self.operand(right, state));
                if matches!(op, BinOp::Mul | BinOp::Div) {
                    self.scaled_by_name(&a, &b, state);
                }
                self.binary(id, *op, &a, &b, state)
            }
            Rvalue::InPlace { op, left, right } => {
                let (a, b) = (self.operand(left, state), self.operand(right, state));
                match &a {
                    Val::Grad(g) if matches!(op, BinOp::Mul | BinOp::Div) => {
                        let g = g.clone();
                        self.scale_gradients(id, *op, &g, &b, state);
                        Val::Grad(g)
                    }
                    _ => {
                        self.stepped_by_hand(&a, &b, state);
                        self.scaled_by_name(&a, &b, state);
                        let new = self.binary(id, *op, &a, &b, state);
                        replace(state, &a, &new);
                        new
                    }
                }
            }
            Rvalue::Compare { op, left, right } => {
                let (a, b) = (self.operand(left, state), self.operand(right, state));
                self.compare(id, *op, &a, &b, state)
            }
            Rvalue::Bool { and, operands } => {
                let tests: Vec<Val> = operands.iter().map(|o| self.operand(o, state)).collect();
                let tests = tests.iter().map(|v| self.truth(v)).collect();
                Val::Test(if *and { Test::And(tests) } else { Test::Or(tests) })
            }
            Rvalue::Build { kind, items } => self.build(id, *kind, items, state),
            Rvalue::Closure { func, .. } => match state.frames.last() {
                Some(f) => Val::Func(FuncRef { module: f.at.module, func: *func }),
                None => Val::Named(self.text(state, id)),
            },
            Rvalue::Call { .. } | Rvalue::CallMethod { .. } => return Err(Executes::Call),
            Rvalue::Yield(_) | Rvalue::Opaque => Val::Named(self.text(state, id)),
        })
    }

    fn build(&mut self, id: StmtId, kind: BuildKind, items: &'a [Item], state: &mut State) -> Val {
        let mut values = Vec::new();
        for item in items {
            match item {
                Item::One(o) => values.push(self.operand(o, state)),
                Item::Star(_) => return Val::Named(self.text(state, id)),
            }
        }
        match kind {
            BuildKind::Tuple => Val::Tuple(values),
            BuildKind::List | BuildKind::Set => state.list(values, None),
            BuildKind::Dict => Val::Dict(
                values.chunks(2).filter_map(|pair| Some((pair[0].text()?.clone(), pair.get(1)?.clone()))).collect(),
            ),
            BuildKind::Slice | BuildKind::Str => Val::Named(self.text(state, id)),
        }
    }

    pub fn item(&mut self, id: StmtId, base: &Val, index: &Val, state: &mut State) -> Val {
        if let Some(part) = state.slice(base, index) {
            return part;
        }
        // The first of what a model returns with labels is their loss.
        if let Val::Named(text) = base
            && (index.text().is_some_and(|key| key == "loss")
                || matches!(index, Val::Zero(_)) && text.contains("labels="))
            && self.is_of_labels(id, text, state)
        {
            return self.loss(id, Some(true), None, state);
        }
        let says_rank = |i: &Val| matches!(i, Val::Named(i) if i.contains("rank"));
        let is_rank = match index {
            Val::Tuple(items) => items.iter().any(says_rank),
            index => says_rank(index),
        };
        state.cut_after |= is_rank && !state.counted.is_empty();
        state.unsettled |= is_rank && self.keeps_whole(id, state);
        let at = match index {
            Val::Const(Const::Int(n)) => usize::try_from(*n).ok(),
            Val::Zero(_) => Some(0),
            _ => None,
        };
        match (base, at) {
            (Val::Tuple(items) | Val::Pack(items), Some(n)) if n < items.len() => items[n].clone(),
            (Val::List(list), _) => {
                let list = &state.lists[*list];
                let item = match (list.items.as_slice(), at) {
                    (items, Some(n)) if list.length.is_none() && n < items.len() => Some(&items[n]),
                    ([one], _) => Some(one),
                    _ => None,
                };
                item.filter(|v| !holds_place(v)).cloned().unwrap_or_else(|| Val::Named(self.text(state, id)))
            }
            (Val::Dict(items), _) => {
                let found = index.text().and_then(|k| items.iter().find(|(n, _)| n == k));
                // A table of optimizers, by their names.
                let is_optimizer = |v: &Val| matches!(v, Val::Path(path) if path.starts_with("torch.optim."));
                let any =
                    || items.first().filter(|_| index.text().is_none() && items.iter().all(|(_, v)| is_optimizer(v)));
                found.or_else(any).map_or_else(|| Val::Named(self.entry(state, id)), |(_, v)| v.clone())
            }
            // A part of a multiple of gradients that lie one behind the other: it is as many times what it is put back to.
            (Val::Grad(g), _) if g.by != Scale::one() => base.clone(),
            // Views of a tensor with one value for each token.
            (Val::Tensor(Tensor { rows: Some(_), .. }) | Val::Mask, _) => base.clone(),
            (Val::Num(_), Some(0)) => base.clone(),
            (Val::Optimizer, _) => Val::Params(None),
            (Val::Path(path), _) if self.is_number_of_all(path, index) => state.num(Scale::size(&groups::all_ranks())),
            (Val::Module(m), _) => self.child(*m, "[]", state),
            // A part of every row has one entry for each token as well.
            (Val::Named(text), _) if is_view(index) && (is_batch_name(text) || is_mask_name(text)) => base.clone(),
            (Val::Named(text), Some(0)) if last(text) == "shape" => self.shape(text, state),
            (Val::Named(text), _) => match index.text() {
                // The name of an entry tells more than that of its batch.
                Some(key) if text.len() < 60 => Val::named(&format!("{text}.{key}")),
                _ => Val::Named(self.text(state, id)),
            },
            _ if index.text().is_some() => Val::Named(self.entry(state, id)),
            _ => Val::Named(self.text(state, id)),
        }
    }

    /// The name of an entry of something that is not known, as of a batch: `batch.loss_mask` for `batch["loss_mask"]`.
    fn entry(&self, state: &State, id: StmtId) -> Name {
        let text = self.text(state, id);
        let parts = text.strip_suffix("\"]").or_else(|| text.strip_suffix("']")).and_then(|t| t.split_once('['));
        match parts {
            Some((base, key)) if text.len() < 60 && !base.contains(['(', '{']) => {
                Name::from(format!("{base}.{}", key.trim_start_matches(['"', '\''])))
            }
            _ => text,
        }
    }

    fn shape(&self, text: &str, state: &mut State) -> Val {
        let of = text.trim_end_matches(".shape");
        if is_batch_name(of) || is_mask_name(of) { state.num(tokens()) } else { Val::named(&format!("{text}[0]")) }
    }

    /// A value as a factor.
    pub fn factor(&self, value: &Val) -> Option<Scale> {
        Some(match value {
            Val::Num(n) => n.scale.clone(),
            Val::Const(Const::Int(n)) => Scale::integer(*n),
            Val::Const(Const::Float(bits)) => match Scale::float(f64::from_bits(*bits)) {
                Scale::Unknown => Scale::of(Factor::Named(Name::from(f64::from_bits(*bits).to_string()))),
                known => known,
            },
            Val::Named(text) => Scale::of(Factor::Named(text.clone())),
            Val::Path(path) => Scale::of(Factor::Named(path.clone())),
            // Whether a size in it is that of the sum is not known.
            Val::Norm(n) if n.sized => Scale::Unknown,
            Val::Norm(_) => super::norms::factor(),
            _ => return None,
        })
    }

    pub fn binary(&mut self, id: StmtId, op: BinOp, a: &Val, b: &Val, state: &mut State) -> Val {
        let unknown = |run: &Self, state: &State| Val::Named(run.text(state, id));
        if let Some(norm) = self.norm_binary(id, op, a, b, state) {
            return norm;
        }
        // `[None] * size`
        if let (BinOp::Mul, Val::List(list), Val::Num(n)) = (op, a, b) {
            let items = state.lists[*list].items.clone();
            return state.list(items, Some(n.scale.clone()));
        }
        match op {
            BinOp::Mul | BinOp::Div | BinOp::FloorDiv => self.product(id, op, a, b, state),
            BinOp::Add | BinOp::Sub => self.sum(id, a, b, state),
            BinOp::Mod => match self.factor(b) {
                Some(scale) if counts_rounds(a) => Val::Modulo(scale),
                _ => unknown(self, state),
            },
            // `world ** -1`
            BinOp::Pow if let (Val::Num(n), Val::Const(Const::Int(power))) = (a, b) => {
                let power = i32::try_from(*power).ok().filter(|power| power.abs() <= 4);
                let scale = power.map_or(Scale::Unknown, |power| n.scale.power(power));
                Val::Num(Num { id: state.fresh(), scale, added: false, made: Some(self.place(state, id)) })
            }
            BinOp::Pow | BinOp::MatMul => match a {
                Val::Tensor(Tensor { rows: Some(_), .. }) => a.clone(),
                _ => unknown(self, state),
            },
            BinOp::BitAnd | BinOp::BitOr if matches!(a, Val::Mask | Val::Test(_)) => Val::Mask,
            _ => unknown(self, state),
        }
    }

    fn product(&mut self, id: StmtId, op: BinOp, a: &Val, b: &Val, state: &mut State) -> Val {
        let times = op == BinOp::Mul;
        match (a, b) {
            (Val::Zero(_), _) => return a.clone(),
            (_, Val::Zero(_)) if times => return b.clone(),
            // `[x] * n`, a mask times a loss: as many rows as before.
            (Val::Tensor(t), Val::Mask) | (Val::Mask, Val::Tensor(t)) => return Val::Tensor(t.clone()),
            (Val::Named(text), Val::Mask) | (Val::Mask, Val::Named(text)) if may_count_ranks(text) => {
                return Val::Named(self.text(state, id));
            }
            (Val::Named(text), Val::Mask) | (Val::Mask, Val::Named(text)) => return self.per_token(text, state),
            (Val::Named(x), Val::Named(y)) if times && (is_mask_name(x) != is_mask_name(y)) => {
                let text = if is_mask_name(x) { y } else { x };
                return if may_count_ranks(text) {
                    Val::Named(self.text(state, id))
                } else {
                    self.per_token(text, state)
                };
            }
            (Val::Tensor(t @ Tensor { rows: Some(_), .. }), Val::Named(text))
            | (Val::Named(text), Val::Tensor(t @ Tensor { rows: Some(_), .. }))
                if times && is_mask_name(text) =>
            {
                return Val::Tensor(t.clone());
            }
            (Val::Received(_), other) | (other, Val::Received(_)) if !matches!(other, Val::Const(_)) => {
                let gradient = if matches!(a, Val::Received(_)) { a } else { b };
                return super::received::multiplied(gradient, self.place(state, id));
            }
            (Val::Grad(g), _) | (_, Val::Grad(g)) => {
                let other = if matches!(a, Val::Grad(_)) { b } else { a };
                let mut g = g.clone();
                let scale = self.factor(other).unwrap_or(Scale::Unknown);
                g.events.push(state.event(what(times, &scale), self.place(state, id)));
                g.by = if times { g.by.times(&scale) } else { g.by.over(&scale) };
                return Val::Grad(g);
            }
            _ => {}
        }
        let (x, y) = (self.factor(a), self.factor(b));
        // Weights of tokens: a mask with a factor.
        let weights = match (a, b) {
            (Val::Mask, _) => y.clone().map(|y| (y, times)),
            (_, Val::Mask) if times => x.clone().map(|x| (x, true)),
            _ => None,
        };
        if let (Some((by, times)), Val::Tensor(mask)) = (weights, self.per_token("mask", state)) {
            return self.scaled(id, &mask, times, &by, state);
        }
        match (a, b) {
            (Val::Tensor(t), _) if y.is_some() => {
                let y = y.unwrap_or(Scale::Unknown);
                let t = self.made(t, b, times, state);
                self.scaled(id, &t, times, &y, state)
            }
            (_, Val::Tensor(t)) if x.is_some() && times => {
                let x = x.unwrap_or(Scale::Unknown);
                self.scaled(id, t, true, &x, state)
            }
            (Val::Tensor(t), Val::Tensor(u)) => self.of_tensors(id, times, t, u, state),
            _ => match (x, y) {
                (Some(x), Some(y)) => {
                    // Numbers of ranks in it came in where the operand was made that has them.
                    let came = match (a, b) {
                        (Val::Num(Num { made, .. }), _) if has_sizes(&x) && !has_sizes(&y) => *made,
                        (_, Val::Num(Num { made, .. })) if has_sizes(&y) && !has_sizes(&x) => *made,
                        _ => None,
                    };
                    let (fresh, made) = (state.fresh(), came.or(Some(self.place(state, id))));
                    let scale = if times { x.times(&y) } else { x.over(&y) };
                    Val::Num(Num { id: fresh, scale, added: false, made })
                }
                _ => Val::Named(self.text(state, id)),
            },
        }
    }

    /// A product of tensors: what has one value for each token stays that; other products are not followed.
    fn of_tensors(&mut self, id: StmtId, times: bool, t: &Tensor, u: &Tensor, state: &State) -> Val {
        match (&t.rows, &u.rows) {
            (Some(_), Some(_)) if times => {
                let mut out = t.clone();
                // The one that is a weight of tokens hands its factor on.
                if let [weight] = &u.parts[..] {
                    out.parts.iter_mut().for_each(|p| {
                        (p.grad, p.value) = (p.grad.times(&weight.grad), p.value.times(&weight.value));
                        p.events.extend(weight.events.iter().cloned());
                    });
                }
                Val::Tensor(out)
            }
            _ => Val::Named(self.text(state, id)),
        }
    }

    /// A tensor of unknown values, one for each token.
    pub fn per_token(&self, label: &str, state: &mut State) -> Val {
        let part = Part { label: Name::from(label), grad: Scale::one(), value: Scale::one(), events: Vec::new() };
        let id = state.fresh();
        Val::Tensor(Tensor { id, parts: vec![part], rows: Some(tokens()), over: AxisSet::default(), added: false })
    }

    /// A tensor that is about to be multiplied with a number, with the place where that is computed.
    fn made(&self, t: &Tensor, by: &Val, times: bool, state: &State) -> Tensor {
        let mut t = t.clone();
        if let Val::Num(Num { made: Some(place), scale, .. }) = by {
            t.parts.iter_mut().for_each(|p| p.events.push(state.event(made(times, scale), *place)));
        }
        t
    }

    fn scaled(&mut self, id: StmtId, t: &Tensor, times: bool, by: &Scale, state: &mut State) -> Val {
        let mut t = t.clone();
        t.id = state.fresh();
        t.added = false;
        let place = self.place(state, id);
        let told = by.known().is_none_or(|m| !m.is_number()) || super::verdict::accumulates(&self.text(state, id));
        let unrecorded = self.is_unrecorded(id, state);
        for part in &mut t.parts {
            let apply = |s: &Scale| if times { s.times(by) } else { s.over(by) };
            part.value = apply(&part.value);
            // The backward pass knows nothing of it.
            if unrecorded {
                continue;
            }
            part.grad = apply(&part.grad);
            if told {
                part.events.push(state.event(what(times, by), place));
            }
        }
        Val::Tensor(t)
    }

    fn sum(&mut self, id: StmtId, a: &Val, b: &Val, state: &mut State) -> Val {
        match (a, b) {
            (Val::Zero(_), other) | (other, Val::Zero(_)) => match other {
                Val::Num(n) => Val::Num(Num { id: state.fresh(), added: true, ..n.clone() }),
                Val::Tensor(t) => Val::Tensor(Tensor { id: state.fresh(), added: true, ..t.clone() }),
                other => other.clone(),
            },
            (Val::Tensor(t), Val::Tensor(u)) => {
                let mut t = t.clone();
                for part in &u.parts {
                    if !t.parts.iter().any(|p| p.grad == part.grad && p.label == part.label) && t.parts.len() < 6 {
                        t.parts.push(part.clone());
                    }
                }
                t.rows = if t.rows == u.rows { t.rows } else { None };
                t.id = state.fresh();
                Val::Tensor(t)
            }
            (Val::Tensor(t), Val::Named(text)) | (Val::Named(text), Val::Tensor(t)) => {
                let mut t = t.clone();
                if t.rows.is_none() {
                    t.parts.push(opaque(text));
                }
                t.id = state.fresh();
                Val::Tensor(t)
            }
            (Val::Tensor(t), Val::Num(n)) | (Val::Num(n), Val::Tensor(t)) => {
                let mut t = t.clone();
                if let Some(part) = self.opaque_part(&n.scale) {
                    t.parts.push(part);
                }
                t.id = state.fresh();
                Val::Tensor(t)
            }
            (Val::Tensor(_), _) => a.clone(),
            (_, Val::Tensor(_)) => b.clone(),
            (Val::Num(x), Val::Num(y)) => {
                let scale = if x.added { y.scale.clone() } else { x.scale.join(&y.scale) };
                let added = x.added && x.scale == y.scale;
                Val::Num(Num { id: state.fresh(), scale: x.scale.join(&scale), added, made: None })
            }
            (Val::Num(_), Val::Const(_)) => a.clone(),
            (Val::Const(_), Val::Num(_)) => b.clone(),
            (Val::Grad(g), Val::Grad(_)) => Val::Grad(g.clone()),
            (Val::List(x), Val::List(y)) => {
                let items = [state.lists[*x].items.clone(), state.lists[*y].items.clone()].concat();
                state.list(items, None)
            }
            (Val::Params(_), Val::Params(_)) => Val::Params(None),
            (Val::Tuple(x), Val::Tuple(y)) => Val::Tuple([x.clone(), y.clone()].concat()),
            _ => Val::Named(self.text(state, id)),
        }
    }

    /// A summand that is known by a name and factors.
    pub fn opaque_part(&self, scale: &Scale) -> Option<Part> {
        let m = scale.known()?;
        let (name, _) = m.powers().find(|(f, n)| matches!(f, Factor::Named(_)) && *n == 1)?;
        Some(Part {
            label: Name::from(name.to_string()),
            grad: scale.clone(),
            value: scale.clone(),
            events: Vec::new(),
        })
    }

    fn compare(&mut self, id: StmtId, op: CmpOp, a: &Val, b: &Val, state: &State) -> Val {
        let flag = |run: &Self| Val::Test(Test::Flag(run.text(state, id)));
        if b.is_none() && matches!(op, CmpOp::Is | CmpOp::IsNot | CmpOp::Eq | CmpOp::Ne) {
            let is = matches!(op, CmpOp::Is | CmpOp::Eq);
            return Val::Test(match a {
                Val::Named(text) => {
                    let test = Test::Flag(Name::from(format!("{text} is None")));
                    if is { test } else { test.negate() }
                }
                other => Test::Known(other.is_none() == is),
            });
        }
        match (op, a, b) {
            (CmpOp::Eq | CmpOp::Ne, Val::Modulo(scale), _) => {
                let test = Test::every_so_often(scale);
                Val::Test(if op == CmpOp::Eq { test } else { test.negate() })
            }
            (CmpOp::In | CmpOp::NotIn, Val::Const(Const::Str(part)), Val::ParamName) => {
                let test = Test::Param(Name::from(format!("name has {part}")));
                Val::Test(if op == CmpOp::In { test } else { test.negate() })
            }
            (CmpOp::In | CmpOp::NotIn, Val::Param(_), _) => {
                let test = Test::Param(self.text(state, id));
                Val::Test(if op == CmpOp::In { test } else { test.negate() })
            }
            // Who looks for the group that it is in is in one of them.
            (CmpOp::In | CmpOp::NotIn, Val::Named(text), _)
                if text.ends_with("get_rank()") && self.text(state, id).ends_with(char::is_alphanumeric) =>
            {
                Val::Test(Test::Known(op == CmpOp::In))
            }
            (_, Val::Num(n), Val::Const(Const::Int(1)) | Val::Zero(_)) if is_size(&n.scale) => {
                let one = matches!(b, Val::Const(_));
                Val::Test(match op {
                    CmpOp::Gt | CmpOp::Ne => Test::Known(true),
                    CmpOp::Ge if !one => Test::Known(true),
                    CmpOp::Eq | CmpOp::Lt => Test::Known(false),
                    CmpOp::Le => Test::Known(!one),
                    _ => Test::Flag(self.text(state, id)),
                })
            }
            (CmpOp::Ne | CmpOp::Eq, Val::Named(text), _) if is_batch_name(text) || is_mask_name(text) => Val::Mask,
            (CmpOp::Ne | CmpOp::Eq, Val::Mask, _) => Val::Mask,
            // What is asked of the tokens of several ranks does not count those of this one.
            (_, Val::Tensor(t), _) if t.rows.as_ref().is_some_and(|rows| *rows != tokens()) => {
                Val::Tensor(super::collectives::cut(t))
            }
            // Without gradients there is no step to judge.
            (CmpOp::Eq | CmpOp::Ne, Val::Norm(_), Val::Zero(_)) => Val::Test(Test::Known(op == CmpOp::Ne)),
            // Negations of one test are one flag.
            (CmpOp::Ne, Val::Named(text), Val::Const(c)) => Val::Test(equals(text, c).negate()),
            (CmpOp::Eq, Val::Named(text), Val::Const(c)) => Val::Test(equals(text, c)),
            (CmpOp::Eq | CmpOp::Ne, Val::Const(x), Val::Const(y)) => {
                Val::Test(Test::Known((x == y) == (op == CmpOp::Eq)))
            }
            (_, Val::Named(text), _) | (_, _, Val::Named(text)) if asks_rank(text) => {
                let told = self.text(state, id);
                if !asks_whether(&told) {
                    self.by_rank.insert(told.clone());
                }
                Val::Test(Test::Flag(told))
            }
            _ => flag(self),
        }
    }

    /// A value as a condition.
    pub fn truth(&self, value: &Val) -> Test {
        match value {
            Val::Test(test) => test.clone(),
            Val::Const(Const::None | Const::Bool(false)) | Val::Zero(_) => Test::Known(false),
            Val::Const(Const::Str(s)) => Test::Known(!s.is_empty()),
            Val::Named(text) if text.contains("is_initialized") || text.contains("is_available") => Test::Known(true),
            Val::Named(text) => Test::Flag(text.clone()),
            Val::Modulo(scale) => Test::every_so_often(scale).negate(),
            Val::Num(n) => match n.scale.known() {
                Some(m) if m.powers().all(|(f, _)| matches!(f, Factor::Named(_))) => {
                    Test::Flag(Name::from(n.scale.to_string()))
                }
                _ => Test::Known(true),
            },
            _ => Test::Known(true),
        }
    }
}

/// A summand of which only the name is known.
pub fn opaque(text: &Name) -> Part {
    let scale = Scale::of(Factor::Named(text.clone()));
    Part { label: text.clone(), grad: scale.clone(), value: scale, events: Vec::new() }
}

pub fn what(times: bool, scale: &Scale) -> What {
    if times { What::Times(scale.clone()) } else { What::Over(scale.clone()) }
}

/// The sizes of groups in a factor.
pub fn sizes(scale: &Scale) -> Scale {
    scale.known().map_or(Scale::one(), |m| Scale::Known(m.only(|f| matches!(f, Factor::Size(_)))))
}

/// A number, where it is made: of tokens, they are counted there.
pub fn made(times: bool, scale: &Scale) -> What {
    match scale.over(&sizes(scale)) == tokens() {
        true if *scale == tokens() => What::Counted,
        true => What::AllCounted,
        false => what(times, scale),
    }
}

/// Whether a length is that of the samples of this rank, known by its name alone: `len(targets)`.
pub fn is_of_samples(length: &Scale) -> bool {
    let named = |name: &str| name.strip_prefix("len(").and_then(|n| n.strip_suffix(')')).is_some_and(is_batch_name);
    let of = |f: &Factor| matches!(f, Factor::Named(name) if named(name));
    length.known().is_some_and(|m| !m.is_number() && m.powers().all(|(f, _)| of(f)))
}

/// Whether a factor is a product of sizes of groups.
pub fn is_size(scale: &Scale) -> bool {
    scale.known().is_some_and(|m| {
        !m.is_number() && m.powers().all(|(f, n)| n > 0 && matches!(f, Factor::Size(_) | Factor::Count(_)))
    })
}

/// The test that the source makes, in its words.
fn equals(text: &Name, constant: &Const) -> Test {
    Test::Flag(Name::from(format!("{text} == {}", crate::infer::formula::show_const(constant))))
}

/// Whether a text is a name or a chain of attributes.
fn is_plain(text: &str) -> bool {
    text.replace("()", "").chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.')
}

/// Puts a value in the place of another one wherever that is held.
pub fn replace(state: &mut State, old: &Val, new: &Val) {
    let Some(id) = old.id().filter(|id| *id != 0) else { return };
    state.change(&|v| (v.id() == Some(id)).then(|| new.clone()));
}

/// Words of what is no number of a round: sizes, and who one is.
const NO_ROUND: &[&str] = &["size", "shape", "len(", "numel", "rank", "dim", "heads"];

/// Whether a value may be the number of a round: not a size, nor the number of a rank.
fn counts_rounds(value: &Val) -> bool {
    match value {
        Val::Named(text) => !NO_ROUND.iter().any(|word| text.contains(word)),
        Val::Num(n) => !is_size(&n.scale),
        Val::Const(Const::Str(_)) => false,
        _ => true,
    }
}

/// Whether a factor has numbers of ranks in it, or may.
pub fn has_sizes(scale: &Scale) -> bool {
    scale.known().is_none_or(|m| m.powers().any(|(f, _)| matches!(f, Factor::Size(_))))
}
