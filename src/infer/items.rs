//! Subscripts, unpacking and containers. In: containers and keys. Out: elements. Never: typing of tensor indexing, which is an
//! operation like any other. Next: `call.rs`.

use super::expr::{cond, differing};
use super::formula::Formula;
use super::heap::{Cell, DictCell, ListCell};
use super::join::Joiner;
use super::limits::{MAX_NAMES_TESTED, MAX_VALUE_DEPTH};
use super::machine::{Eval, Machine};
use super::settings::is_degree;
use super::value::{ObjId, Value};
use crate::ir::{CmpOp, Const, LocalId, StmtId};
use crate::rules::Entry;
use crate::source::Name;
use crate::types::{Axis, AxisSet, AxisState, AxisType, Mesh, Origin, Reason, Spmd};
use std::sync::Arc;

/// Beginnings of words for lists of sizes.
const SIZES: &[&str] = &["len", "size", "split", "count", "num", "seqlen", "length"];

impl Machine<'_> {
    /// Gives a tensor the dims of another one.
    fn shape_as(&mut self, value: &Value, other: &Value) {
        let (Value::Tensor(id), Value::Tensor(other)) = (value, other) else { return };
        let dims = self.w.heap.tensor(*other).map(|t| (t.shape.clone(), t.least));
        if let (Some((shape, least)), Some(t)) = (dims, self.w.heap.tensor_mut(*id)) {
            (t.shape, t.least) = (shape, least);
        }
    }

    /// `base[index]`
    pub fn item(&mut self, id: StmtId, base: &Value, index: &Value) -> Eval {
        if let (Value::Tuple(_) | Value::List(_), Some(axes)) = (base, differing(index)) {
            // Each rank takes another element.
            let any = self.element_of(base);
            let any = self.unless_same_ranks(any, &axes);
            if self.deriving.is_none() && matches!(any, Value::Tensor(_)) && self.is_uncounted(base) {
                // Of the parts of one tensor: as if it were indexed, but that a part has as many dims as the others.
                let own = self.operator(id, "getitem", &[any.clone(), index.clone()]);
                self.shape_as(&own, &any);
                return Eval::One(own);
            }
            let own = self.differing_by(&any, &axes);
            if self.deriving.is_some() {
                let term = self.own_part(&any, &axes);
                self.set_term(&own, &term);
            }
            return Eval::One(own);
        }
        self.note_own_positions(id, base, index);
        let value = match base {
            Value::Tuple(items) => {
                let item = self.sequence_item(items, index);
                self.anywhere(item, index)
            }
            Value::List(list) => match self.list_cell(*list) {
                Some(cell) => {
                    let item = self.list_item(&cell, index);
                    // Of as many parts as there are ranks a number that is not known takes the own one, perhaps.
                    let own = self.is_uncounted(base) && matches!(index, Value::Number(None));
                    self.anywhere(item, if own { &Value::Unknown } else { index })
                }
                None => Value::Unknown,
            },
            Value::Dict(dict) => match self.w.heap.get(*dict) {
                Some(Cell::Dict(cell)) => match (cell.get(index), &cell.rest) {
                    (Some(value), _) => value.clone(),
                    (None, Some(any)) if cell.entries.is_empty() => any.clone(),
                    (None, _) => Value::Unknown,
                },
                _ => Value::Unknown,
            },
            Value::Mesh(mesh) => {
                self.check_slice(id, mesh, index);
                mesh_slice(mesh, index).unwrap_or(Value::Unknown)
            }
            Value::Tensor(_) => {
                let part = self.operator(id, "getitem", &[base.clone(), index.clone()]);
                match beginning(index) {
                    _ if begins_anywhere(index) => self.anywhere(part, &Value::Unknown),
                    Some(axes) => self.unless_same_ranks(part, &axes),
                    None => part,
                }
            }
            Value::Sym(path) => {
                if let Some(axes) = self.sizes_before(path, index) {
                    self.arithmetic(&Value::Number(None), &Value::Rank(axes))
                } else if self.symbol(path).is_some() || self.annotated_tensor(path) || self.indexes_tensor(index) {
                    self.operator(id, "getitem", &[base.clone(), index.clone()])
                } else {
                    self.symbol_item(path, index)
                }
            }
            Value::Object(at) => {
                if let Some(step) = self.step_at(*at, index) {
                    return Eval::One(step);
                }
                return self.call_dunder(id, base, "__getitem__", vec![index.clone()]);
            }
            Value::Path(path) => match self.rules.get(path) {
                Some(Entry::Intrinsic(rule)) if rule.does == "environment" => self.environment(rule, index, None),
                _ => Value::Unknown,
            },
            _ => Value::Unknown,
        };
        Eval::One(value)
    }

    /// `whole[local_positions]` of what a collective gave all ranks: the positions are those of this rank, as they are called.
    fn note_own_positions(&mut self, id: StmtId, base: &Value, index: &Value) {
        let (Value::Sym(path), Value::Tensor(whole)) = (index, base) else { return };
        let name = path.rsplit('.').next().unwrap_or(path);
        if self.deriving.is_some() || !name.starts_with("local_") || !self.settings.is_index_name(path) {
            return;
        }
        let gathered = |s: &AxisState| {
            let collective = s.origin.as_ref().is_some_and(|o| matches!(o.reason, Reason::Collective(_)));
            s.set == AxisType::I && collective
        };
        let Some(t) = self.w.heap.tensor(*whole) else { return };
        let axes: Vec<Axis> = t.local.listed().filter(|(_, s)| gathered(s)).map(|(a, _)| a.clone()).collect();
        let Some(positions) = self.as_tensor(index).filter(|_| axes.len() == 1) else { return };
        let origin = Origin::new(self.part(id, 1), Reason::RankDependent, Some(Spmd::Varying));
        if let Some(t) = self.w.heap.tensor_mut(positions) {
            for axis in axes.iter().filter(|a| t.local.get(a).set.is_unknown()).collect::<Vec<_>>() {
                t.local.set(axis, AxisState::new(AxisType::V).from(&origin));
            }
        }
    }

    /// `sizes[:rank]` of a list of sizes that an autograd function is given: the ranks by whose number it is cut.
    fn sizes_before(&self, path: &Name, index: &Value) -> Option<AxisSet> {
        self.deriving.as_ref()?;
        let Value::Slice(parts) = index else { return None };
        let name = path.rsplit('.').next().unwrap_or(path);
        let sizes = name.split('_').any(|w| SIZES.iter().any(|s| w.starts_with(s)) || w.ends_with("lens"));
        (sizes && self.symbol(path).is_none()).then(|| parts.iter().find_map(differing)).flatten()
    }

    /// Whether a list has as many tensors as there are ranks: one stands for all of them.
    fn is_uncounted(&self, base: &Value) -> bool {
        let Value::List(list) = base else { return false };
        self.list_cell(*list).is_some_and(|cell| cell.items.is_empty() && cell.rest.is_some())
    }

    /// A value of which each rank of these axes has another one.
    fn differing_by(&mut self, value: &Value, axes: &AxisSet) -> Value {
        match value {
            Value::Tensor(id) => {
                let Some(mut t) = self.w.heap.tensor(*id).cloned() else { return Value::Unknown };
                for axis in axes.iter() {
                    let state = t.local.get(axis).clone();
                    let varies = state.set.leq(AxisType::EQUAL.join(AxisType::V));
                    let set = if varies { AxisType::V } else { AxisType::ALL };
                    t.local.set(axis, AxisState { set, shard: None, nest: 0, origin: state.origin });
                }
                self.new_tensor(t)
            }
            // The own size of a list that has one of each rank.
            Value::Share(of) if of == axes && self.in_constructor() => value.clone(),
            Value::Const(Const::Int(_) | Const::Float(_)) | Value::Number(None) | Value::Share(_) => {
                Value::Rank(axes.clone())
            }
            Value::Number(Some(_)) => self.arithmetic(value, &Value::Rank(axes.clone())),
            _ => Value::Unknown,
        }
    }

    /// What the ranks of some axes take another part of: of a group that nothing resolves these may be the ranks, whatever it is called, so
    /// that nothing is known there.
    fn unless_same_ranks(&mut self, item: Value, axes: &AxisSet) -> Value {
        let Value::Tensor(id) = &item else { return item };
        if self.w.modes.typecheck.is_some() || self.deriving.is_some() {
            return item;
        }
        let Some(mut t) = self.w.heap.tensor(*id).cloned() else { return item };
        let unresolved = axes.iter().any(Axis::is_variable);
        let may_be = |(axis, state): &(&Axis, &AxisState)| {
            !axes.contains(axis) && (unresolved || axis.is_variable()) && state.set.leq(AxisType::EQUAL)
        };
        let open: Vec<Axis> = t.local.listed().filter(may_be).map(|(axis, _)| axis.clone()).collect();
        if open.is_empty() {
            return item;
        }
        open.iter().for_each(|axis| t.local.set(axis, AxisState::UNKNOWN));
        self.new_tensor(t)
    }

    /// A tensor at a position of which nothing is known: it may be another one on each rank.
    fn anywhere(&mut self, item: Value, index: &Value) -> Value {
        let (Value::Tensor(id), Value::Unknown | Value::Sym(_)) = (&item, index) else { return item };
        if self.w.modes.typecheck.is_some() || self.deriving.is_some() {
            return item;
        }
        let Some(mut t) = self.w.heap.tensor(*id).cloned() else { return item };
        let equal: Vec<Axis> =
            t.local.listed().filter(|(_, s)| s.set.leq(AxisType::EQUAL)).map(|(a, _)| a.clone()).collect();
        for axis in &equal {
            t.local.set(axis, AxisState::UNKNOWN);
        }
        if t.local.rest.set.leq(AxisType::EQUAL) {
            t.local.rest = AxisState::UNKNOWN;
        }
        self.new_tensor(t)
    }

    /// An item of an unknown value keeps an identity if the key is a constant.
    pub fn symbol_item(&mut self, path: &crate::source::Name, index: &Value) -> Value {
        let key = match index {
            Value::Const(Const::Int(n)) => n.to_string(),
            Value::Const(Const::Str(s)) => format!("{s:?}"),
            key => return self.symbol_item_by_name(path, key),
        };
        if let Some(entry) = self.table_entry(path, index) {
            return entry;
        }
        let full = format!("{path}[{key}]");
        if let Some(axes) = self.settings.group_named(&full) {
            return Value::Group(axes);
        }
        // A dict of what parallelism needs is read like an object of it: `mpu["tp_group"]`.
        let named = match index {
            Value::Const(Const::Str(attribute)) => self.group_rule(&full, attribute),
            _ => None,
        };
        // Counts and ranks are known by their names, wherever they are kept.
        let counts = |key: &str| is_degree(key) || self.settings.is_rank(key);
        named.unwrap_or_else(|| match index {
            Value::Const(Const::Str(key)) if counts(key) => Value::Sym(Name::from(format!("{path}.{key}"))),
            _ => Value::Sym(full.into()),
        })
    }

    /// Whether an index makes sense for a tensor only: slices, tuples with them, ellipsis, `None`.
    fn indexes_tensor(&self, index: &Value) -> bool {
        match index {
            Value::Slice(_) | Value::Const(Const::Ellipsis) | Value::Tensor(_) => true,
            Value::Tuple(items) => items.iter().any(|i| self.indexes_tensor(i)),
            _ => false,
        }
    }

    fn sequence_item(&mut self, items: &[Value], index: &Value) -> Value {
        match index {
            Value::Const(Const::Int(n)) => at(items, *n).cloned().unwrap_or(Value::Unknown),
            Value::Const(Const::Bool(b)) => items.get(usize::from(*b)).cloned().unwrap_or(Value::Unknown),
            Value::Slice(parts) => match slice_range(parts, items.len()) {
                Some((start, stop)) => Value::tuple(items[start..stop].to_vec()),
                None => Value::Unknown,
            },
            _ => self.join_values(items),
        }
    }

    fn list_item(&mut self, cell: &ListCell, index: &Value) -> Value {
        match (index, &cell.rest) {
            (Value::Const(Const::Int(n)), None) => at(&cell.items, *n).cloned().unwrap_or(Value::Unknown),
            (Value::Const(Const::Int(n)), Some(_)) if *n >= 0 && (*n as usize) < cell.items.len() => {
                cell.items[*n as usize].clone()
            }
            (Value::Slice(parts), None) => match slice_range(parts, cell.items.len()) {
                Some((start, stop)) => {
                    let items = cell.items[start..stop].to_vec();
                    Value::List(self.fresh(Cell::List(ListCell { items, rest: None })))
                }
                None => Value::Unknown,
            },
            (Value::Slice(_), Some(_)) => Value::Unknown,
            _ => {
                let all: Vec<Value> = cell.items.iter().chain(&cell.rest).cloned().collect();
                self.join_values(&all)
            }
        }
    }

    /// What any of these values may be.
    pub fn join_values(&mut self, values: &[Value]) -> Value {
        let mut out = Value::Unset;
        let mut heap = std::mem::take(&mut self.w.heap);
        let mut joiner = Joiner::new(&mut self.next_id, None);
        for v in values {
            out = joiner.values(&mut heap, &out, v, MAX_VALUE_DEPTH);
        }
        self.w.heap = heap;
        if out == Value::Unset { Value::Unknown } else { out }
    }

    /// `base[index] = value`
    pub fn set_item(&mut self, id: StmtId, base: &Value, index: &Value, value: Value) {
        match base {
            Value::Dict(dict) => match index {
                Value::Const(_) | Value::Group(_) | Value::Path(_) => {
                    if let Some(Cell::Dict(cell)) = self.w.heap.get_mut(*dict) {
                        cell.set(index.clone(), value);
                    }
                }
                _ => self.set_unknown_key(*dict, value),
            },
            Value::List(_) if self.deriving.is_some() && differing(index).is_some() && !self.holds_constants(base) => {
                // The rank's own place in a list that the collective fills.
            }
            Value::List(list) => {
                let Some(mut cell) = self.list_cell(*list) else { return };
                match (index.as_int(), &cell.rest) {
                    (Some(n), None) if at(&cell.items, n).is_some() => {
                        let n = if n < 0 { n + cell.items.len() as i64 } else { n };
                        cell.items[n as usize] = value;
                    }
                    _ => cell = ListCell { items: Vec::new(), rest: Some(Value::Unknown) },
                }
                self.w.heap.insert(*list, Cell::List(cell));
            }
            Value::Tensor(_) => self.store_slice(id, base, index, &value),
            Value::Object(at) => {
                if let Some(steps) = self.w.heap.object(*at).and_then(|cell| cell.get("(modules)")).cloned() {
                    self.set_item(id, &steps, index, value);
                }
            }
            Value::Sym(path) if self.symbol(path).is_some() => self.store_slice(id, base, index, &value),
            _ => {}
        }
    }

    /// Adds to the collection that a comprehension builds.
    pub fn append(&mut self, collection: &Value, key: Option<Value>, value: Value) {
        match collection {
            Value::List(list) => {
                let Some(mut cell) = self.list_cell(*list) else { return };
                if cell.rest.is_none() && cell.items.len() < super::limits::MAX_LIST && self.unrolling() {
                    cell.items.push(value);
                } else {
                    let all: Vec<Value> = cell.items.drain(..).chain(cell.rest.take()).chain([value]).collect();
                    cell.rest = Some(self.join_values(&all));
                }
                self.w.heap.insert(*list, Cell::List(cell));
            }
            Value::Dict(dict) => match key {
                Some(key @ (Value::Const(_) | Value::Group(_))) => {
                    if let Some(Cell::Dict(cell)) = self.w.heap.get_mut(*dict) {
                        cell.set(key, value);
                    }
                }
                _ => self.set_unknown_key(*dict, value),
            },
            _ => {}
        }
    }

    /// `dict[key] = value` under a key that is not known, which may be any that is there.
    fn set_unknown_key(&mut self, dict: ObjId, value: Value) {
        let Some(Cell::Dict(cell)) = self.w.heap.get_mut(dict) else { return };
        let known = std::mem::take(&mut cell.entries).into_iter().map(|(_, value)| value);
        let all: Vec<Value> = known.chain(cell.rest.take()).chain([value]).collect();
        let any = self.join_values(&all);
        if let Some(Cell::Dict(cell)) = self.w.heap.get_mut(dict) {
            cell.rest = Some(any);
        }
    }

    /// Whether the loop under execution visits elements one by one.
    fn unrolling(&self) -> bool {
        self.loop_depth == 0
    }

    /// Whether an option is one of several names: `style in ("tp", "sp")`, as the comparisons with each of them.
    pub fn membership(&mut self, holds: bool, option: &Value, among: &Value) -> Option<Value> {
        let items = self.literal_items(among).filter(|items| !items.is_empty() && items.len() <= MAX_NAMES_TESTED)?;
        let named = |item: &Value| matches!(item, Value::Const(Const::Str(_)));
        if !matches!(option, Value::Sym(_)) || !items.iter().all(named) {
            return None;
        }
        let mut any = Vec::new();
        for item in &items {
            let same = self.python_compare(CmpOp::Eq, option, item)?;
            any.push(self.formula(&same));
        }
        let one = Formula::Or(any);
        Some(cond(if holds { one } else { one.negate() }))
    }

    /// The elements of a sequence whose length is known.
    pub fn literal_items(&self, value: &Value) -> Option<Vec<Value>> {
        match value {
            Value::Tuple(items) => Some(items.to_vec()),
            Value::List(id) => match self.w.heap.get(*id) {
                Some(Cell::List(ListCell { items, rest: None })) => Some(items.clone()),
                _ => None,
            },
            Value::Dict(id) => match self.w.heap.get(*id) {
                Some(Cell::Dict(DictCell { entries, rest: None })) => {
                    Some(entries.iter().map(|(k, _)| k.clone()).collect())
                }
                _ => None,
            },
            Value::Object(at) => self.modules_of(*at),
            _ => None,
        }
    }

    /// Any element of an iterable.
    pub fn element_of(&mut self, value: &Value) -> Value {
        if let Some(items) = self.literal_items(value) {
            return self.join_values(&items);
        }
        match value {
            Value::List(id) => match self.list_cell(*id) {
                Some(cell) => {
                    let all: Vec<Value> = cell.items.into_iter().chain(cell.rest).collect();
                    self.join_values(&all)
                }
                None => Value::Unknown,
            },
            Value::Number(_) | Value::Share(_) => Value::Number(None),
            _ => Value::Unknown,
        }
    }

    /// `a, b, *c = value`
    pub fn unpack(&mut self, id: StmtId, value: &Value, before: &[LocalId], star: Option<LocalId>, after: &[LocalId]) {
        let needed = before.len() + after.len();
        let items = match value {
            Value::Mesh(_) => None,
            value => self.literal_items(value),
        };
        let fits = |items: &Vec<Value>| if star.is_some() { items.len() >= needed } else { items.len() == needed };
        if let (Some(deriving), false) = (&mut self.deriving, items.as_ref().is_none_or(fits)) {
            deriving.has_other_rank = true;
        }
        match items.filter(fits) {
            Some(items) => {
                let tail = items.len() - after.len();
                for (local, item) in before.iter().zip(&items) {
                    self.assign(id, *local, item.clone());
                }
                if let Some(star) = star {
                    let middle = items[before.len()..tail].to_vec();
                    let list = Value::List(self.fresh(Cell::List(ListCell { items: middle, rest: None })));
                    self.assign(id, star, list);
                }
                for (local, item) in after.iter().zip(&items[tail..]) {
                    self.assign(id, *local, item.clone());
                }
            }
            None => {
                if star.is_none() {
                    self.counted_sizes(value, before.len());
                }
                self.unpack_unknown(id, value, before, star, after);
            }
        }
    }

    fn unpack_unknown(
        &mut self,
        id: StmtId,
        value: &Value,
        before: &[LocalId],
        star: Option<LocalId>,
        after: &[LocalId],
    ) {
        for (i, local) in before.iter().enumerate() {
            let item = match value {
                Value::Sym(path) if self.symbol(path).is_some() => {
                    self.operator(id, "getitem", &[value.clone(), Value::int(i as i64)])
                }
                Value::Sym(path) => {
                    let path = path.clone();
                    self.symbol_item(&path, &Value::int(i as i64))
                }
                Value::Tensor(_) => self.operator(id, "getitem", &[value.clone(), Value::int(i as i64)]),
                other => self.element_of(other),
            };
            self.assign(id, *local, item);
        }
        for local in star.iter().chain(after) {
            self.assign(id, *local, Value::Unknown);
        }
    }
}

/// A part of a mesh by axis names, or the axis at a position.
/// Whether a range begins at a multiple of the size of a part, or at a number that is not known: at another place on each rank, perhaps.
fn begins_anywhere(index: &Value) -> bool {
    match index {
        Value::Slice(parts) => matches!(&parts[0], Value::Share(_) | Value::Unknown) && !is_none(&parts[1]),
        Value::Tuple(items) => items.iter().any(begins_anywhere),
        _ => false,
    }
}

/// The axes over which ranks have another beginning of a range, or another element.
fn beginning(index: &Value) -> Option<AxisSet> {
    match index {
        Value::Slice(parts) => differing(&parts[0]),
        Value::Tuple(items) => items.iter().find_map(beginning),
        one => differing(one),
    }
}

fn is_none(value: &Value) -> bool {
    matches!(value, Value::Const(Const::None))
}

fn mesh_slice(mesh: &Mesh, index: &Value) -> Option<Value> {
    let names: Vec<&str> = match index {
        Value::Const(Const::Str(name)) => vec![name],
        Value::Tuple(items) => items.iter().map(|v| v.as_str().map(|s| s.as_str())).collect::<Option<_>>()?,
        _ => return None,
    };
    if mesh.flat || !mesh.is_named() {
        return None;
    }
    let axes = names
        .iter()
        .map(|name| mesh.axes.iter().find(|(a, _)| a.name() == *name).cloned())
        .collect::<Option<Vec<_>>>()?;
    Some(Value::Mesh(Arc::new(Mesh::new(axes))))
}

/// The element at a Python index.
fn at(items: &[Value], n: i64) -> Option<&Value> {
    let n = if n < 0 { n + items.len() as i64 } else { n };
    usize::try_from(n).ok().and_then(|n| items.get(n))
}

/// The range of a slice with constant bounds and no step.
fn slice_range(parts: &[Value; 3], len: usize) -> Option<(usize, usize)> {
    if !parts[2].is_none() {
        return None;
    }
    let bound = |v: &Value, default: usize| match v {
        Value::Const(Const::None) => Some(default),
        Value::Const(Const::Int(n)) => {
            let n = if *n < 0 { n + len as i64 } else { *n };
            Some(usize::try_from(n.max(0)).ok()?.min(len))
        }
        _ => None,
    };
    let (start, stop) = (bound(&parts[0], 0)?, bound(&parts[1], len)?);
    Some((start, stop.max(start)))
}

/// The axes of a mesh as a group.
pub fn mesh_group(mesh: &Mesh) -> AxisSet {
    mesh.axis_set()
}
