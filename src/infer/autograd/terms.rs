//! Terms of tensors while forward and backward of an autograd function run. In: operations and collectives. Out: what each result is as
//! a function of the arguments. Never: types; whatever is not understood is [`Term::Unknown`]. Source: DESIGN.md section 6.
//! Next: `derive.rs`.

use super::super::collective::Call;
use super::super::expr::{CallArgs, differing};
use super::super::heap::Cell;
use super::super::machine::Machine;
use super::super::ops::OpCall;
use super::super::value::{ObjId, Value};
use crate::ir::{Const, StmtId};
use crate::rules::{CollectiveRule, Form, IntrinsicRule, Kind, OpClass};
use crate::source::{Name, Place};
use crate::types::{AxisSet, AxisType, Linearity, Reduction, TensorType, Term};
use std::sync::Arc;

/// A derivation under way.
#[derive(Clone, Debug)]
pub struct Deriving {
    /// Parameters of the forward, by which tensors are known.
    pub params: Vec<Name>,
    /// The number of dims that tensors are taken to have.
    pub rank: usize,
    /// Where collectives were issued in the body that runs.
    pub places: Vec<Place>,
}

fn unknown() -> Arc<Term> {
    Arc::new(Term::Unknown)
}

impl Machine<'_> {
    /// The term of a value; a number is the same on all ranks.
    pub fn term(&self, value: &Value) -> Arc<Term> {
        let of = |id: ObjId| self.w.heap.tensor(id).and_then(|t| t.term.clone()).unwrap_or_else(unknown);
        match value {
            Value::Tensor(id) => of(*id),
            Value::Sym(path) => self.w.symbols.get(path).map_or_else(unknown, |id| of(*id)),
            Value::Const(_) | Value::Number(None) | Value::Size(_) => Arc::new(Term::Equal),
            _ => unknown(),
        }
    }

    /// The term of the parts in a list, if they are parts of one thing.
    fn part_term(&self, list: &Value) -> Arc<Term> {
        let parts: Vec<Value> = match list {
            Value::Tuple(items) => items.to_vec(),
            Value::List(id) => match self.w.heap.get(*id) {
                Some(Cell::List(cell)) => cell.items.iter().chain(&cell.rest).cloned().collect(),
                _ => return unknown(),
            },
            _ => return unknown(),
        };
        let mut terms = parts.iter().map(|v| self.term(v));
        match terms.next() {
            Some(first) if terms.all(|t| t == first) => first,
            _ => unknown(),
        }
    }

    /// Gives the tensors of a value a term.
    pub fn set_term(&mut self, value: &Value, term: &Arc<Term>) {
        match value {
            Value::Tensor(id) => self.set_tensor_term(*id, term),
            Value::Tuple(items) => items.to_vec().iter().for_each(|v| self.set_term(v, term)),
            Value::List(id) => {
                if let Some(cell) = self.list_cell(*id) {
                    cell.items.iter().chain(&cell.rest).for_each(|v| self.set_term(v, term));
                }
            }
            Value::Sym(path) => {
                if let Some(id) = self.w.symbols.get(path).copied() {
                    self.set_tensor_term(id, term);
                }
            }
            _ => {}
        }
    }

    fn set_tensor_term(&mut self, id: ObjId, term: &Arc<Term>) {
        let Some(t) = self.w.heap.tensor_mut(id) else { return };
        let (before, base) = (t.term.replace(term.clone()), t.view_of.map(ObjId));
        // A write into the parts of a buffer fills the buffer.
        let (Some(base), Some(Term::Chunk { dim, x })) = (base, before.as_deref()) else { return };
        if **x == Term::Fresh
            && let Some(whole) = self.w.heap.tensor_mut(base)
        {
            whole.term = Some(Arc::new(Term::cat(term, *dim)));
        }
    }

    /// A dim from 0, for tensors of the rank that is assumed.
    fn dim_from(&self, dim: i64) -> Option<usize> {
        crate::types::normalize_dim(dim, self.deriving.as_ref()?.rank)
    }

    fn dim_argument(&self, call: &OpCall<'_>, args: &CallArgs, default: i64) -> Option<usize> {
        let at = call.rule.args.index("dim").or_else(|| call.rule.args.index("axis"));
        match at.and_then(|p| call.bound.first(p)) {
            Some(i) => self.dim_from(args.args[i].value.as_int()?),
            None => self.dim_from(default),
        }
    }

    /// What an operation makes of its operands.
    pub fn term_of_op(&self, call: &OpCall<'_>, args: &CallArgs) -> Arc<Term> {
        let bound = |param: usize| call.bound.first(param).map(|i| args.args[i].value.clone());
        let first = bound(0).unwrap_or(Value::Unknown);
        let x = self.term(&first);
        let last = call.rule.name.rsplit('.').next().unwrap_or(&call.rule.name);
        let known = |t: Option<Term>| Arc::new(t.unwrap_or(Term::Unknown));
        match last {
            "chunk" | "split" | "tensor_split" | "split_with_sizes" => {
                known(self.dim_argument(call, args, 0).map(|dim| Term::chunk(&x, dim)))
            }
            "cat" | "concat" | "concatenate" => {
                let part = self.part_term(&first);
                let joined = self.dim_argument(call, args, 0).map(|dim| Term::cat(&part, dim));
                match joined {
                    Some(Term::Unknown) | None => self.math(call, args),
                    Some(term) => Arc::new(term),
                }
            }
            "narrow" | "narrow_copy" => {
                let start = call.rule.args.index("start").and_then(|p| call.bound.first(p));
                let axes = start.and_then(|i| differing(&args.args[i].value));
                match (axes, self.dim_argument(call, args, 0)) {
                    (Some(axes), Some(dim)) => Arc::new(Term::Split { axes, dim, x }),
                    _ => self.math(call, args),
                }
            }
            "__getitem__" => match bound(1) {
                Some(index) => self.term_of_index(&x, &index).unwrap_or_else(|| self.math(call, args)),
                None => unknown(),
            },
            "mul" | "multiply" | "__mul__" | "__rmul__" | "mul_" | "__imul__" => self.product(call, args, true),
            "div" | "true_divide" | "divide" | "__truediv__" | "div_" | "__itruediv__" => {
                self.product(call, args, false)
            }
            "copy_" => bound(1).map_or_else(unknown, |v| self.term(&v)),
            "view_as" => x,
            "reshape" | "view" if self.keeps_dims(&call.bound, args) => x,
            _ if call.rule.identity => x,
            _ => match call.rule.class {
                OpClass::Equal => Arc::new(Term::Equal),
                OpClass::UnknownValues => Arc::new(Term::Fresh),
                OpClass::Fill => Arc::new(Term::Equal),
                OpClass::Plain(_) => self.math(call, args),
                OpClass::Metadata | OpClass::CopyInto | OpClass::Probe | OpClass::Opaque => unknown(),
            },
        }
    }

    /// Whether a reshape names as many sizes as there are dims, all but one of them read off a tensor: nothing moves.
    fn keeps_dims(&self, bound: &crate::rules::Bound, args: &CallArgs) -> bool {
        let Some(rank) = self.deriving.as_ref().map(|d| d.rank) else { return false };
        let mut sizes: Vec<Value> = bound.all(1).iter().map(|i| args.args[*i].value.clone()).collect();
        if let [one @ (Value::List(_) | Value::Tuple(_))] = sizes.as_slice() {
            sizes = self.literal_items(one).unwrap_or_default();
        }
        let open = sizes.iter().filter(|v| v.as_int() == Some(-1)).count();
        let read = sizes.iter().filter(|v| matches!(v, Value::Number(None))).count();
        sizes.len() == rank && open <= 1 && open + read == rank
    }

    /// Local mathematics on the operands that are tensors.
    fn math(&self, call: &OpCall<'_>, args: &CallArgs) -> Arc<Term> {
        let linearity = match call.rule.class {
            OpClass::Plain(Kind::Linear | Kind::Select) => Linearity::Linear,
            OpClass::Plain(Kind::Multilinear | Kind::Division | Kind::Affine | Kind::LinearLayer) => {
                Linearity::Multilinear
            }
            _ => Linearity::Nonlinear,
        };
        let mut operands = Vec::new();
        for arg in &args.args {
            match &arg.value {
                Value::Tensor(_) | Value::Sym(_) if !self.is_flag(&arg.value) => operands.push(self.term(&arg.value)),
                Value::Tuple(_) | Value::List(_) if self.holds_tensors(&arg.value) => {
                    operands.push(self.part_term(&arg.value));
                }
                _ => {}
            }
        }
        if operands.iter().any(|t| **t == Term::Unknown) || operands.is_empty() {
            return unknown();
        }
        Arc::new(Term::Math { linearity, operands })
    }

    fn is_flag(&self, value: &Value) -> bool {
        matches!(value, Value::Sym(path) if !self.w.symbols.contains_key(path))
    }

    fn holds_tensors(&self, value: &Value) -> bool {
        let items = match value {
            Value::Tuple(items) => items.to_vec(),
            Value::List(id) => match self.w.heap.get(*id) {
                Some(Cell::List(cell)) => cell.items.iter().chain(&cell.rest).cloned().collect(),
                _ => return false,
            },
            _ => return false,
        };
        items.iter().any(|v| matches!(v, Value::Tensor(_)))
    }

    /// Multiplication by, or division by, the number of ranks, its inverse, or a mask of the first rank.
    fn product(&self, call: &OpCall<'_>, args: &CallArgs, times: bool) -> Arc<Term> {
        let at = |param: usize| call.bound.first(param).map(|i| &args.args[i].value);
        let (Some(a), Some(b)) = (at(0), at(1)) else { return self.math(call, args) };
        let (tensor, number) = match (a, b) {
            (x, n) if n.is_number() => (x, n),
            (n, x) if n.is_number() && times => (x, n),
            _ => return self.math(call, args),
        };
        let x = self.term(tensor);
        if *x == Term::Unknown {
            return x;
        }
        let differs = |want: AxisType| match number {
            Value::Number(Some(t)) => {
                let axes: AxisSet = t.listed().filter(|(_, s)| s.set == want).map(|(a, _)| a.clone()).collect();
                (!axes.is_empty()).then_some(axes)
            }
            _ => None,
        };
        let share = differs(AxisType::R.join(AxisType::P));
        let mask = match number {
            Value::RankCond(axes) => Some(axes.clone()),
            _ => differs(AxisType::V.join(AxisType::P)),
        };
        Arc::new(match (number, share, mask) {
            (Value::Size(axes), ..) => Term::Scale { axes: axes.clone(), up: times, x },
            (_, Some(axes), _) => Term::Scale { axes, up: !times, x },
            (_, None, Some(axes)) if times => Term::Mask { axes, x },
            (Value::Const(Const::Int(1)), ..) => x.as_ref().clone(),
            _ => return self.math(call, args),
        })
    }

    /// A slice whose bounds depend on the rank is the rank's own part.
    fn term_of_index(&self, x: &Arc<Term>, index: &Value) -> Option<Arc<Term>> {
        let by_rank = |v: &Value| match v {
            Value::Slice(parts) => parts.iter().find_map(differing),
            _ => None,
        };
        let whole = |v: &Value| matches!(v, Value::Slice(parts) if parts.iter().all(Value::is_none));
        let items: Vec<Value> = match index {
            Value::Tuple(items) => items.to_vec(),
            one => vec![one.clone()],
        };
        let rank = self.deriving.as_ref()?.rank;
        let ellipsis = items.iter().position(|v| matches!(v, Value::Const(Const::Ellipsis)));
        let mut found = None;
        for (i, item) in items.iter().enumerate() {
            let dim = match ellipsis {
                Some(at) if i > at => rank.checked_sub(items.len() - i)?,
                _ => i,
            };
            match by_rank(item) {
                Some(axes) if found.is_none() => found = Some((axes, dim)),
                Some(_) => return None,
                None if whole(item) || Some(i) == ellipsis => {}
                None => return None,
            }
        }
        match found {
            Some((axes, dim)) => Some(Arc::new(Term::Split { axes, dim, x: x.clone() })),
            None => Some(x.clone()),
        }
    }

    /// The element of a list of parts that the rank takes.
    pub fn own_part(&self, part: &Value, axes: &AxisSet) -> Arc<Term> {
        Arc::new(Term::own(&self.term(part), axes))
    }

    /// A collective in a body that is derived: what it makes of its input.
    pub fn collective_term(&mut self, id: StmtId, rule: &Arc<CollectiveRule>, args: &CallArgs) -> Value {
        let place = self.place(id);
        if let Some(deriving) = &mut self.deriving {
            deriving.places.push(place);
        }
        let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let bound = rule.args.bind(&keywords);
        let argument = |param: usize| bound.first(param).map(|i| args.args[i].value.clone());
        let group = rule.group.and_then(argument);
        let (input, axes) = (argument(rule.input), self.group_axes(group.as_ref(), rule));
        let term = match (&input, axes) {
            (Some(input), Some(axes)) => self.reached(id, rule, args, input, axes),
            _ => Term::Unknown,
        };
        let term = Arc::new(term);
        let target = match rule.form {
            Form::InPlace => input,
            Form::IntoOutput | Form::IntoList => rule.output.and_then(argument),
            Form::Result | Form::SrcDst => {
                let rank = self.deriving.as_ref().map_or(0, |d| d.rank);
                let shape = Some(crate::types::Shape(vec![None; rank]));
                return self.new_tensor(TensorType { term: Some(term), shape, ..TensorType::unknown() });
            }
        };
        if let Some(target) = target {
            self.set_term(&target, &term);
        }
        Value::Unknown
    }

    fn reached(
        &mut self,
        id: StmtId,
        rule: &Arc<CollectiveRule>,
        args: &CallArgs,
        input: &Value,
        axes: AxisSet,
    ) -> Term {
        let listed = matches!(input, Value::List(_) | Value::Tuple(_));
        let x = if listed { self.part_term(input) } else { self.term(input) };
        if *x == Term::Unknown {
            return Term::Unknown;
        }
        let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let bound = rule.args.bind(&keywords);
        let by = self.reduction(rule.reduce_op.and_then(|p| bound.first(p)).map(|i| &args.args[i].value));
        let (from, to) = self.dims_of(id, rule, args, &axes);
        match rule.op.as_str() {
            "all_reduce" => Term::AllReduce { axes, by, x },
            "all_gather" if rule.form == Form::IntoList => Term::Gathered { axes, x },
            "all_gather" => Term::AllGather { axes, dim: from.unwrap_or(0), x },
            "reduce_scatter" => Term::reduce_scatter(&x, axes, by, to.unwrap_or(0)),
            "all_to_all" if rule.form == Form::IntoList => Term::exchanged(&x, axes),
            "all_to_all" => match (from, to) {
                (Some(concat), Some(split)) if concat != split => Term::AllToAll { axes, split, concat, x },
                _ => Term::all_to_all(&x, axes),
            },
            "convert" => match to {
                Some(dim) if from.is_none() => Term::Split { axes, dim, x },
                _ => x.as_ref().clone(),
            },
            _ => Term::Unknown,
        }
    }

    fn reduction(&self, op: Option<&Value>) -> Reduction {
        let name = match op {
            None => return Reduction::Sum,
            Some(Value::ReduceOp(name) | Value::Const(Const::Str(name))) => name.to_lowercase(),
            Some(Value::Path(path)) => path.rsplit('.').next().unwrap_or_default().to_lowercase(),
            Some(_) => return Reduction::Other,
        };
        match name.as_str() {
            "sum" => Reduction::Sum,
            "avg" | "mean" => Reduction::Mean,
            _ => Reduction::Other,
        }
    }

    /// The dims that a collective gathers along, and scatters along, where its rule or its arguments name them.
    fn dims_of(
        &mut self,
        id: StmtId,
        rule: &Arc<CollectiveRule>,
        args: &CallArgs,
        axes: &AxisSet,
    ) -> (Option<usize>, Option<usize>) {
        let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let call = Call { rule, bound: rule.args.bind(&keywords), axes: axes.clone(), input: ObjId(0), part: 0 };
        let _ = id;
        let Some(transition) = self.chosen_transition(&call, args) else { return (None, None) };
        let (source, result) = self.sides(&call, args, &transition);
        let dim = |d: Option<i64>| d.and_then(|d| self.dim_from(d));
        (dim(source.shard), dim(result.shard))
    }

    /// A broadcast from the first rank, in place or as a result.
    pub fn broadcast_term(&mut self, rule: &IntrinsicRule, args: &CallArgs) -> Value {
        let first = args.args.first().map_or(Value::Unknown, |a| a.value.clone());
        let group = args.keyword("group").or_else(|| args.positional(2)).cloned();
        let axes = self.optional_group(group.as_ref(), &rule.default_group);
        let x = self.term(&first);
        let term = match axes {
            Some(axes) if *x != Term::Unknown => Arc::new(Term::Broadcast { axes, x }),
            _ => unknown(),
        };
        if rule.args.params.first().is_some_and(|p| p.name == "self") {
            return self.new_tensor(TensorType { term: Some(term), ..TensorType::unknown() });
        }
        self.set_term(&first, &term);
        Value::Unknown
    }
}
