//! Terms of tensors while forward and backward of an autograd function run. In: operations and collectives. Out: what each result is as
//! a function of the arguments. Never: types; whatever is not understood is [`Term::Unknown`]. Source: DESIGN.md section 6.
//! Next: `derive.rs`.

use super::super::collective::Call;
use super::super::expr::{CallArgs, differing};
use super::super::formula::Facts;
use super::super::heap::Cell;
use super::super::limits::MAX_VALUE_DEPTH;
use super::super::machine::Machine;
use super::super::ops::OpCall;
use super::super::value::{ObjId, Value};
use super::folds::is_fold;
use super::symbols::visits_ranks;
use crate::ir::{Const, StmtId};
use crate::rules::collective::DimRef;
use crate::rules::{CollectiveRule, Form, IntrinsicRule, Kind, OpClass};
use crate::source::{Name, Place};
use crate::types::{AxisSet, AxisType, Linearity, Reduction, TensorType, Term};
use std::sync::Arc;

/// A derivation under way.
#[derive(Clone, Debug, Default)]
pub struct Deriving {
    /// Parameters of the forward, by which tensors are known.
    pub params: Vec<Name>,
    /// The number of dims that tensors are taken to have.
    pub rank: usize,
    /// What is known on the ways through the forward whose result is not followed.
    pub lost: Vec<Facts>,
    /// Where collectives were issued in the body that runs.
    pub places: Vec<Place>,
    /// Where something was multiplied by, or divided by, the number of ranks.
    pub scales: Vec<Place>,
    /// Products of several tensors, with their places.
    pub products: Vec<(Place, Arc<Term>)>,
    /// The statement that runs.
    pub at: Option<Place>,
    /// Where a tensor that was followed is followed no more, and what does it.
    pub gaps: Vec<Gap>,
    /// Arguments that are dims, in the order in which they were met.
    pub dims: Vec<Name>,
    /// Whether all of them are taken to be one dim.
    pub one_dim: bool,
    /// Whether the bodies take a shape apart into another number of sizes.
    pub has_other_rank: bool,
    /// Whether the bodies name the last dim by its number, and whether they do so from the end: with more dims the first is another one.
    pub from_front: std::cell::Cell<bool>,
    pub from_end: std::cell::Cell<bool>,
    /// Whether a reduction whose operator is an argument was taken to be a sum.
    pub assumed_sum: bool,
    /// What a generator under execution has given.
    pub yields: Vec<Value>,
    /// The number of arguments of the call that it is derived for.
    pub given: Option<usize>,
    /// Whether the last call led to nothing known.
    pub unresolved: bool,
    /// Parts of tensors.
    pub parts: super::fixed::Parts,
    /// Reductions along dims.
    pub folds: super::folds::Folds,
    /// Collectives without a gradient that the body itself issues, and how deep in functions that it applies it is.
    pub raw: Vec<Place>,
    /// Where a rank takes its own part.
    pub own: Vec<Place>,
    pub depth: usize,
    /// What the function applies, if it is a wrapper rather than a class that is derived.
    pub applied: Option<Vec<super::Application>>,
}

/// What a derivation could not follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    pub place: Place,
    pub what: Name,
}

/// Gaps that are kept for one derivation; the first ones tell.
const MOST_GAPS: usize = 16;
/// Products that are kept; what a long body does is not looked at twice.
const MOST_PRODUCTS: usize = 256;

/// The rank's own part along a dim.
fn split(x: &Arc<Term>, axes: &AxisSet, dim: usize) -> Term {
    Term::through(x, &[dim], |x, dims| Term::Split { axes: axes.clone(), dim: dims[0], x: x.clone() })
}

fn unknown() -> Arc<Term> {
    Arc::new(Term::Unknown)
}

impl Machine<'_> {
    /// Notes that a tensor is followed no further here.
    pub fn gap(&mut self, what: &str) {
        if let Some(deriving) = &mut self.deriving
            && let Some(place) = deriving.at
            && deriving.gaps.len() < MOST_GAPS
        {
            let gap = Gap { place, what: Name::from(what) };
            if !deriving.gaps.contains(&gap) {
                deriving.gaps.push(gap);
            }
        }
    }

    /// A call that leads to nothing known: what it does to the tensors that it is given is not known either.
    pub fn unresolved_in_derivation(&mut self, args: &CallArgs, what: &str) {
        if let Some(deriving) = &mut self.deriving {
            deriving.unresolved = true;
        }
        self.lost_in_derivation(args, what);
    }

    /// Notes where the body is that runs.
    pub fn note_statement(&mut self, id: StmtId) {
        if self.deriving.is_some() {
            let place = self.place(id);
            if let Some(deriving) = &mut self.deriving {
                deriving.at = Some(place);
            }
        }
    }

    /// Whether any of these arguments is a tensor that is followed.
    pub fn follows(&self, args: &CallArgs) -> bool {
        args.args.iter().any(|a| {
            let tensors = matches!(a.value, Value::Tuple(_) | Value::List(_)) && self.holds_tensors(&a.value);
            let term = if tensors { self.part_term(&a.value) } else { self.term(&a.value) };
            let is_tensor = tensors || matches!(a.value, Value::Tensor(_) | Value::Sym(_));
            is_tensor && !matches!(*term, Term::Unknown)
        })
    }

    /// The term of a value; a number is the same on all ranks.
    pub fn term(&self, value: &Value) -> Arc<Term> {
        let of = |id: ObjId| self.w.heap.tensor(id).and_then(|t| t.term.clone()).unwrap_or_else(unknown);
        match value {
            Value::Tensor(id) => of(*id),
            Value::Sym(path) => self.symbol(path).map_or_else(unknown, of),
            Value::Const(_) | Value::Number(None) | Value::Size(_) | Value::Share(_) => Arc::new(Term::Equal),
            _ => unknown(),
        }
    }

    /// Arguments of the function that an operation takes as tensors are tensors.
    pub fn tensors_of(&mut self, call: &OpCall<'_>, args: &CallArgs) {
        for param in call.rule.tensors.iter().chain(&call.rule.divisor) {
            for at in call.bound.all(*param) {
                let value = args.args[*at].value.clone();
                if let Value::Sym(path) = &value
                    && self.deriving.as_ref().is_some_and(|d| d.params.contains(path))
                    && !self.annotated_other(path)
                {
                    self.as_tensor(&value);
                }
            }
        }
    }

    /// The term of the parts in a list, if they are parts of one thing.
    pub fn part_term(&self, list: &Value) -> Arc<Term> {
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
                if let Some(id) = self.symbol(path) {
                    self.set_tensor_term(id, term);
                }
            }
            _ => {}
        }
    }

    fn set_tensor_term(&mut self, id: ObjId, term: &Arc<Term>) {
        if let (Term::Split { .. }, Some(deriving)) = (term.as_ref(), &mut self.deriving) {
            deriving.own.extend(deriving.at);
        }
        let Some(t) = self.w.heap.tensor_mut(id) else { return };
        let (before, base) = (t.term.replace(term.clone()), t.view_of.map(ObjId));
        // A write into the parts of a buffer fills the buffer.
        let (Some(base), Some(before)) = (base, before) else { return };
        let Some(whole) = self.w.heap.tensor_mut(base) else { return };
        match before.as_ref() {
            Term::Chunk { dim, x } if **x == Term::Fresh => whole.term = Some(Arc::new(Term::cat(term, *dim))),
            // `contiguous` of a contiguous tensor is the tensor itself.
            _ if whole.term.as_ref() == Some(&before) => whole.term = Some(term.clone()),
            _ => {}
        }
    }

    /// A dim from 0, for tensors of the rank that is assumed.
    pub fn dim_from(&self, dim: i64) -> Option<usize> {
        let deriving = self.deriving.as_ref()?;
        let last = crate::types::normalize_dim(dim, deriving.rank)?;
        if last > 0 && last + 1 == deriving.rank {
            if dim > 0 { &deriving.from_front } else { &deriving.from_end }.set(true);
        }
        Some(last)
    }

    fn dim_argument(&mut self, call: &OpCall<'_>, args: &CallArgs, default: i64) -> Option<usize> {
        let at = call.rule.args.index("dim").or_else(|| call.rule.args.index("axis"));
        match at.and_then(|p| call.bound.first(p)) {
            Some(i) => self.dim_of(&args.args[i].value),
            None => self.dim_from(default),
        }
    }

    /// What an operation makes of its operands.
    pub fn term_of_op(&mut self, call: &OpCall<'_>, args: &CallArgs) -> Arc<Term> {
        let term = self.made_of_operands(call, args);
        let last = call.rule.name.rsplit('.').next().unwrap_or(&call.rule.name);
        let given = call.rule.args.index("dim").and_then(|p| call.bound.first(p)).is_some();
        if given && *term != Term::Unknown && is_fold(last) {
            let dim = self.dim_argument(call, args, 0);
            self.note_fold(dim, &term);
        }
        term
    }

    fn made_of_operands(&mut self, call: &OpCall<'_>, args: &CallArgs) -> Arc<Term> {
        let bound = |param: usize| call.bound.first(param).map(|i| args.args[i].value.clone());
        let first = bound(0).unwrap_or(Value::Unknown);
        let x = self.term(&first);
        let last = call.rule.name.rsplit('.').next().unwrap_or(&call.rule.name);
        let known = |t: Option<Term>| Arc::new(t.unwrap_or(Term::Unknown));
        match last {
            "chunk" | "split" | "tensor_split" | "split_with_sizes" => {
                let part = known(self.dim_argument(call, args, 0).map(|dim| Term::chunk(&x, dim)));
                self.note_parts(call, args, &part);
                part
            }
            "cat" | "concat" | "concatenate" => {
                let part = self.part_term(&first);
                let joined = self.dim_argument(call, args, 0).map(|dim| Term::cat(&part, dim));
                match joined {
                    Some(Term::Unknown) | None => self.math(call, args),
                    Some(term) => Arc::new(term),
                }
            }
            "stack" => self.stacked(&first, call, args),
            "sum" | "mean" if self.sums_ranks(&x, call, args) => match x.as_ref() {
                Term::Stacked { part, .. } => match part.as_ref() {
                    Term::Gathered { axes, x } => {
                        let by = if last == "sum" { Reduction::Sum } else { Reduction::Mean };
                        Arc::new(Term::through(x, &[], |x, _| Term::AllReduce { axes: axes.clone(), by, x: x.clone() }))
                    }
                    _ => self.math(call, args),
                },
                _ => self.math(call, args),
            },
            "narrow" | "narrow_copy" => self.narrowed(&x, call, args),
            "__getitem__" => match bound(1) {
                Some(index) => match self.term_of_index(&x, &index) {
                    Some(part) => {
                        self.may_be_written(&x, args);
                        part
                    }
                    None => self.fixed_slice(&x, &index).unwrap_or_else(|| self.math(call, args)),
                },
                None => unknown(),
            },
            "transpose" | "swapaxes" | "swapdims" | "transpose_" => {
                let (a, b) = (bound(1), bound(2));
                let a = a.and_then(|v| self.dim_of(&v));
                let b = b.and_then(|v| self.dim_of(&v));
                known(a.zip(b).map(|(a, b)| Term::swapped(&x, a, b)))
            }
            "t" | "T" | "mT" if self.deriving.as_ref().is_some_and(|d| d.rank == 2) => {
                Arc::new(Term::swapped(&x, 0, 1))
            }
            "mul" | "multiply" | "__mul__" | "__rmul__" | "mul_" | "__imul__" => self.product(call, args, true),
            "div" | "true_divide" | "divide" | "__truediv__" | "div_" | "__itruediv__" => {
                self.product(call, args, false)
            }
            "copy_" => bound(1).map_or_else(unknown, |v| self.term(&v)),
            "view_as" => x,
            "reshape" | "view" => match self.reshaped(&x, &call.bound, args) {
                Some(term) => Arc::new(term),
                None => self.math(call, args),
            },
            "permute" if matches!(*x, Term::Stacked { .. }) => known(self.permuted(&x, &call.bound, args)),
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

    /// The own part of memory that has nothing in it, or constants, is there to be written to: of the whole nothing is known then.
    fn may_be_written(&mut self, x: &Term, args: &CallArgs) {
        let whole = args.args.first().filter(|_| matches!(x, Term::Fresh | Term::Equal)).map(|a| a.value.clone());
        if let Some(whole) = whole {
            self.set_term(&whole, &Arc::new(Term::Unknown));
        }
    }

    /// `narrow`: the rank's own part, one for each rank, the same one everywhere, or some part.
    fn narrowed(&mut self, x: &Arc<Term>, call: &OpCall<'_>, args: &CallArgs) -> Arc<Term> {
        let given = |param: Option<usize>| {
            let at = param.and_then(|p| call.bound.first(p));
            at.map_or(Value::Unknown, |i| args.args[i].value.clone())
        };
        let start = given(call.rule.args.index("start"));
        let dim = self.dim_argument(call, args, 0);
        match (differing(&start), dim) {
            (Some(axes), Some(dim)) => {
                self.may_be_written(x, args);
                Arc::new(split(x, &axes, dim))
            }
            (None, Some(dim)) if visits_ranks(&start) => Arc::new(Term::chunk(x, dim)),
            (_, dim) => {
                let length = given(call.rule.args.index("length"));
                self.fixed_narrow(x, dim, &start, &length).unwrap_or_else(|| self.math(call, args))
            }
        }
    }

    /// Parts along a dim of their own.
    fn stacked(&mut self, parts: &Value, call: &OpCall<'_>, args: &CallArgs) -> Arc<Term> {
        let part = self.part_term(parts);
        match (part.as_ref(), self.dim_argument(call, args, 0)) {
            (Term::Gathered { .. }, Some(at)) => Arc::new(Term::Stacked { at, part }),
            (_, Some(0)) => {
                let stack = self.math(call, args);
                self.note_stack(&part, &stack);
                stack
            }
            _ => self.math(call, args),
        }
    }

    /// Whether a reduction runs along the dim of what the ranks have, stacked, and along no other.
    fn sums_ranks(&mut self, x: &Arc<Term>, call: &OpCall<'_>, args: &CallArgs) -> bool {
        let Term::Stacked { at, .. } = x.as_ref() else { return false };
        let kept = call.rule.args.index("keepdim").is_some_and(|p| call.bound.first(p).is_some());
        let given = call.rule.args.index("dim").is_some_and(|p| call.bound.first(p).is_some());
        given && !kept && self.dim_argument(call, args, 0) == Some(*at)
    }

    /// The sizes or dims given one by one, or as one sequence.
    fn listed(&self, bound: &crate::rules::Bound, args: &CallArgs) -> Vec<Value> {
        let values: Vec<Value> = bound.all(1).iter().map(|i| args.args[*i].value.clone()).collect();
        match values.as_slice() {
            [one @ (Value::List(_) | Value::Tuple(_))] => self.literal_items(one).unwrap_or_default(),
            _ => values,
        }
    }

    /// A reshape that names all sizes as they are, that gives the parts for the ranks a dim of their own, or takes that dim away.
    fn reshaped(&self, x: &Arc<Term>, bound: &crate::rules::Bound, args: &CallArgs) -> Option<Term> {
        let rank = self.deriving.as_ref()?.rank;
        let sizes = self.listed(bound, args);
        if let (Term::Stacked { at, part }, true) = (x.as_ref(), sizes.len() == rank) {
            return Some(Term::cat(part, *at));
        }
        let open = sizes.iter().filter(|v| v.as_int() == Some(-1)).count();
        let read = sizes.iter().filter(|v| matches!(v, Value::Number(None) | Value::Share(_))).count();
        if sizes.len() == rank && open <= 1 && open + read == rank {
            return Some(x.as_ref().clone());
        }
        let mut ranks = sizes.iter().enumerate().filter(|(_, v)| matches!(v, Value::Size(_)));
        match (ranks.next(), ranks.next()) {
            (Some((at, _)), None) if sizes.len() == rank + 1 && at < rank => {
                Some(Term::Stacked { at, part: Arc::new(Term::chunk(x, at)) })
            }
            _ => None,
        }
    }

    /// Where a permutation takes the dim of the parts, if it leaves the others in their order.
    fn permuted(&self, x: &Arc<Term>, bound: &crate::rules::Bound, args: &CallArgs) -> Option<Term> {
        let Term::Stacked { at, part } = x.as_ref() else { return None };
        let dims: Option<Vec<usize>> =
            self.listed(bound, args).iter().map(|v| v.as_int().and_then(|d| usize::try_from(d).ok())).collect();
        let dims = dims?;
        let to = dims.iter().position(|d| d == at)?;
        let rest: Vec<usize> = dims.iter().copied().filter(|d| d != at).collect();
        rest.is_sorted().then(|| Term::Stacked { at: to, part: part.clone() })
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
        let takes = |param: &usize| {
            call.rule.tensors.contains(param) || call.rule.divisor.contains(param) || call.rule.index.contains(param)
        };
        let sizes: Vec<usize> =
            (0..call.rule.args.params.len()).filter(|p| !takes(p)).flat_map(|p| call.bound.all(p).to_vec()).collect();
        for (i, arg) in args.args.iter().enumerate() {
            if sizes.contains(&i) && arg.value.is_opaque() {
                // A size or a flag, which is no part of the value.
                continue;
            }
            if !self.operand_terms(&arg.value, MAX_VALUE_DEPTH, &mut operands) {
                return unknown();
            }
        }
        if operands.iter().any(|t| **t == Term::Unknown) || operands.is_empty() {
            return unknown();
        }
        if let (OpClass::Plain(Kind::LinearLayer), [x, weight, bias]) = (call.rule.class, operands.as_slice()) {
            let product = Arc::new(Term::math(Linearity::Multilinear, vec![x.clone(), weight.clone()]));
            return Arc::new(Term::math(Linearity::Linear, vec![product, bias.clone()]));
        }
        Arc::new(Term::math(linearity, operands))
    }

    /// The terms of the tensors and of the numbers that differ by rank in a value. Whether all of it is known.
    fn operand_terms(&self, value: &Value, depth: usize, out: &mut Vec<Arc<Term>>) -> bool {
        if depth == 0 {
            return false;
        }
        match value {
            Value::Sym(path) if path.starts_with('?') && self.symbol(path).is_none() => return false,
            Value::Tensor(_) | Value::Sym(_) if !self.is_flag(value) => out.push(self.term(value)),
            Value::Tuple(_) | Value::List(_) if self.holds_tensors(value) => match self.literal_items(value) {
                Some(items) => return items.iter().all(|v| self.operand_terms(v, depth - 1, out)),
                None => out.push(self.part_term(value)),
            },
            Value::Tuple(items) => return items.iter().all(|v| self.operand_terms(v, depth - 1, out)),
            // A bound is a number, whatever it was computed with: from where to where a rank takes it is not known.
            Value::Slice(parts) if matches!(parts[0], Value::Tensor(_)) => return false,
            Value::Slice(parts) => return parts.iter().all(|v| self.operand_terms(v, depth - 1, out)),
            Value::Unknown => return false,
            other => {
                if let Some(axes) = differing(other) {
                    // What a rank knows of itself is its part of what all know.
                    out.push(Arc::new(Term::Split { axes, dim: 0, x: Arc::new(Term::Equal) }));
                }
            }
        }
        true
    }

    /// What a tensor is after a part of it was written.
    pub fn stored_term(&mut self, base: &Value, index: &Value, value: &Value) {
        let old = self.term(base);
        // `x[:] = y` leaves nothing of what was there.
        let none = |v: &Value| matches!(v, Value::Slice(parts) if parts.iter().all(Value::is_none));
        if (none(index) || matches!(index, Value::Const(Const::Ellipsis))) && matches!(value, Value::Tensor(_)) {
            let term = self.term(value);
            return self.set_term(base, &term);
        }
        let mut operands = Vec::new();
        if !matches!(*old, Term::Fresh) {
            operands.push(old.clone());
        }
        let mut known = *old != Term::Unknown && self.operand_terms(value, MAX_VALUE_DEPTH, &mut operands);
        let mut places = Vec::new();
        known &= self.operand_terms(index, MAX_VALUE_DEPTH, &mut places);
        let own = differing(index).is_some()
            || places.iter().any(|p| matches!(p.as_ref(), Term::Split { x, .. } if **x == Term::Equal));
        // A part that is the rank's own, in memory that is empty or zero, is how terms of a sum and gathered parts are made.
        known &= !(own && matches!(*old, Term::Fresh | Term::Equal));
        known &= operands.iter().all(|t| **t != Term::Unknown);
        let linearity = if places.is_empty() { Linearity::Linear } else { Linearity::Nonlinear };
        operands.extend(places);
        let term = match (known, operands.as_slice()) {
            (false, _) => Term::Unknown,
            (true, []) => Term::Equal,
            (true, _) => Term::math(linearity, operands),
        };
        if term == Term::Unknown && *old != Term::Unknown {
            self.gap("a store");
        }
        self.set_term(base, &Arc::new(term));
    }

    /// Whether a list has constants, such as zeros, rather than memory that is still to be written.
    pub fn holds_constants(&mut self, list: &Value) -> bool {
        let Value::List(id) = list else { return false };
        let items: Vec<Value> = match self.w.heap.get(*id) {
            Some(Cell::List(cell)) => cell.items.iter().chain(&cell.rest).cloned().collect(),
            _ => return false,
        };
        items.iter().any(|v| matches!(v, Value::Tensor(_)) && *self.term(v) == Term::Equal)
    }

    fn is_flag(&self, value: &Value) -> bool {
        matches!(value, Value::Sym(path) if self.symbol(path).is_none())
    }

    pub fn holds_tensors(&self, value: &Value) -> bool {
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

    /// Notes a product of several tensors.
    pub fn note_product(&mut self, term: &Arc<Term>) {
        if let Some(deriving) = &mut self.deriving
            && let Some(place) = deriving.at
            && matches!(term.as_ref(), Term::Math { operands, .. } if operands.len() > 1)
            && deriving.products.len() < MOST_PRODUCTS
        {
            deriving.products.push((place, term.clone()));
        }
    }

    fn note_scale(&mut self) {
        if let Some(deriving) = &mut self.deriving
            && let Some(place) = deriving.at
        {
            deriving.scales.push(place);
        }
    }

    /// Multiplication by, or division by, the number of ranks, its inverse, or a mask of the first rank.
    fn product(&mut self, call: &OpCall<'_>, args: &CallArgs, times: bool) -> Arc<Term> {
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
        if matches!(number, Value::Size(_)) {
            self.note_scale();
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
            Value::Rank(axes) => Some(axes.clone()),
            _ => None,
        };
        let each = |v: &Value| matches!(v, Value::Slice(_)) && visits_ranks(v);
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
                None if each(item)
                    && items.iter().enumerate().all(|(j, v)| i == j || whole(v) || Some(j) == ellipsis) =>
                {
                    return Some(Arc::new(Term::chunk(x, dim)));
                }
                None if whole(item) || Some(i) == ellipsis => {}
                None => return None,
            }
        }
        let Some((axes, dim)) = found else { return Some(x.clone()) };
        let part = Arc::new(split(x, &axes, dim));
        // A number takes the dim away: the places of the others are not followed.
        let takes_dim = items.iter().any(|v| matches!(v, Value::Rank(_)));
        Some(if takes_dim { Arc::new(Term::math(Linearity::Linear, vec![part])) } else { part })
    }

    /// The element of a list of parts that the rank takes.
    pub fn own_part(&self, part: &Value, axes: &AxisSet) -> Arc<Term> {
        Arc::new(Term::own(&self.term(part), axes))
    }

    /// A collective in a body that is derived: what it makes of its input.
    pub fn collective_term(&mut self, id: StmtId, rule: &Arc<CollectiveRule>, args: &CallArgs) -> Value {
        let place = self.place(id);
        // What a helper does is done where the body calls it.
        let body = self.stack.iter().rposition(|a| a.call.is_none());
        let called = body.and_then(|at| self.stack.get(at + 1)?.call).unwrap_or(place);
        if let Some(deriving) = &mut self.deriving {
            deriving.places.push(called);
            if deriving.depth == 0 && !rule.differentiable {
                deriving.raw.push(place);
            }
        }
        let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let bound = rule.args.bind(&keywords);
        let argument = |param: usize| bound.first(param).map(|i| args.args[i].value.clone());
        let group = rule.group.and_then(argument);
        let (input, axes) = (argument(rule.input), self.group_axes(group.as_ref(), rule));
        let term = match (&input, axes) {
            (Some(input), Some(axes)) => self.reached(rule, args, input, axes),
            (_, None) => {
                self.gap("a group that is not resolved");
                Term::Unknown
            }
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
            let tensor = self.as_tensor(&target);
            let whole = tensor.and_then(|id| self.w.heap.tensor(id)?.view_of).map(ObjId);
            let term_of = |run: &Self, id: ObjId| run.w.heap.tensor(id).and_then(|t| t.term.clone());
            let before = whole.and_then(|id| term_of(self, id));
            self.set_term(&target, &term);
            // Of the whole nothing is known where a part of it, or another view, is written to and does not tell.
            if let (Some(whole), Some(before)) = (whole, before)
                && *before != Term::Unknown
                && term_of(self, whole).as_ref() == Some(&before)
            {
                self.gap("a write to a view");
                if let Some(t) = self.w.heap.tensor_mut(whole) {
                    t.term = Some(Arc::new(Term::Unknown));
                }
            }
        }
        Value::Unknown
    }

    fn reached(&mut self, rule: &Arc<CollectiveRule>, args: &CallArgs, input: &Value, axes: AxisSet) -> Term {
        let listed = matches!(input, Value::List(_) | Value::Tuple(_));
        let x = if listed { self.part_term(input) } else { self.term(input) };
        if *x == Term::Unknown {
            return Term::Unknown;
        }
        let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let bound = rule.args.bind(&keywords);
        let by = self.reduction(rule.reduce_op.and_then(|p| bound.first(p)).map(|i| &args.args[i].value));
        let Some((from, to)) = self.dims_of(rule, args) else { return Term::Unknown };
        match rule.op.as_str() {
            "all_reduce" => {
                self.note_all_reduced(&x);
                Term::through(&x, &[], |x, _| Term::AllReduce { axes: axes.clone(), by, x: x.clone() })
            }
            "all_gather" if rule.form == Form::IntoList => {
                Term::through(&x, &[], |x, _| Term::Gathered { axes: axes.clone(), x: x.clone() })
            }
            "all_gather" => Term::through(&x, &[from.unwrap_or(0)], |x, dims| Term::AllGather {
                axes: axes.clone(),
                dim: dims[0],
                x: x.clone(),
            }),
            "reduce_scatter" => Term::reduce_scatter(&x, &axes, by, to.unwrap_or(0)),
            "all_to_all" if rule.form == Form::IntoList => Term::exchanged(&x, axes),
            "all_to_all" => match (from, to) {
                (Some(concat), Some(split)) if concat != split => Term::AllToAll { axes, split, concat, x },
                _ => Term::all_to_all(&x, &axes),
            },
            "convert" => match to {
                Some(dim) if from.is_none() => Term::Split { axes, dim, x },
                _ => x.as_ref().clone(),
            },
            _ => Term::Unknown,
        }
    }

    fn reduction(&mut self, op: Option<&Value>) -> Reduction {
        let name = match op {
            None => return Reduction::Sum,
            Some(Value::ReduceOp(name) | Value::Const(Const::Str(name))) => name.as_str().to_lowercase(),
            Some(Value::Path(path)) => path.rsplit('.').next().unwrap_or_default().to_lowercase(),
            Some(Value::Sym(_) | Value::Unknown) => {
                if let Some(deriving) = &mut self.deriving {
                    deriving.assumed_sum = true;
                }
                return Reduction::Sum;
            }
            Some(_) => return Reduction::Other,
        };
        match name.trim_start_matches("reduce_") {
            "sum" => Reduction::Sum,
            "avg" | "mean" => Reduction::Mean,
            _ => Reduction::Other,
        }
    }

    /// The dims that a collective gathers along, and scatters along, where its rule or its arguments name them. `None`: they are not known.
    fn dims_of(&mut self, rule: &Arc<CollectiveRule>, args: &CallArgs) -> Option<(Option<usize>, Option<usize>)> {
        let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let call = Call { rule, bound: rule.args.bind(&keywords), axes: AxisSet::default(), input: ObjId(0), part: 0 };
        let transition = self.chosen_transition(&call, args)?;
        let from = self.dim_of_side(&call, args, transition.source.shard.as_ref())?;
        let to = self.dim_of_side(&call, args, transition.result.shard.as_ref())?;
        Some((from, to))
    }

    fn dim_of_side(&mut self, call: &Call<'_>, args: &CallArgs, dim: Option<&DimRef>) -> Option<Option<usize>> {
        Some(match dim {
            None => None,
            Some(DimRef::At(n)) => Some(self.dim_from(i64::from(*n))?),
            Some(DimRef::Argument(name)) => {
                let at = call.rule.args.index(name)?;
                Some(match call.bound.first(at) {
                    Some(i) => self.dim_of(&args.args[i].value)?,
                    None => self.dim_from(self.int_argument(call, args, name)?)?,
                })
            }
        })
    }

    /// A rooted collective or one that is not followed: what it is given is known no more.
    pub fn lost_in_derivation(&mut self, args: &CallArgs, what: &str) {
        if self.deriving.is_some() && self.follows(args) {
            self.gap(what);
            for arg in &args.args {
                self.set_term(&arg.value, &unknown());
            }
        }
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
