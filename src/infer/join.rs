//! Join and equality of worlds: what remains known when paths meet. In: two worlds that share a past. Out: one world that covers both.
//! Never: reporting. Source: DESIGN.md section 5. Next: `exec.rs`.

use super::expr::number_type;
use super::heap::{Cell, DictCell, Heap, ListCell, ObjectCell, ObjectClass};
use super::limits::MAX_VALUE_DEPTH;
use super::value::{ObjId, Value};
use super::world::World;
use crate::ir::{Const, LocalId};
use crate::source::Name;
use crate::types::{AxisSet, AxisState, AxisType, LocalType, TensorType, Term};
use std::sync::Arc;

/// Joins worlds; allocates ids for joined objects.
pub struct Joiner<'a> {
    pub next_id: &'a mut u32,
    /// The paths are those of different ranks of these axes, not of different configurations: what differs between them varies.
    pub ranks: Option<AxisSet>,
    /// Nothing that is known of configurations, or of ranks, tells the paths apart.
    alike: bool,
    /// There are too many paths: a type that differs between two of them is not known behind, where either is possible on its own path.
    forced: bool,
    memo: Vec<((ObjId, ObjId), ObjId)>,
}

impl<'a> Joiner<'a> {
    pub fn new(next_id: &'a mut u32, ranks: Option<AxisSet>) -> Joiner<'a> {
        Joiner { next_id, ranks, alike: false, forced: false, memo: Vec::new() }
    }

    /// One that joins because there are too many paths.
    pub fn forced(next_id: &'a mut u32) -> Joiner<'a> {
        Joiner { forced: true, ..Joiner::new(next_id, None) }
    }

    /// One world that covers both.
    pub fn worlds(&mut self, a: World, b: &World) -> World {
        let changed = a.heap.changes(&b.heap);
        self.differing_worlds(a, b, changed)
    }

    /// One world that covers both, where these cells of both heaps differ.
    pub fn differing_worlds(&mut self, a: World, b: &World, changed: Vec<ObjId>) -> World {
        let mut out = a;
        self.alike = self.ranks.is_none() && out.facts == b.facts;
        out.facts = out.facts.common(&b.facts);
        out.heap.complete(&b.heap);
        for id in changed {
            if let (Some(x), Some(y)) = (out.heap.get(id).cloned(), b.heap.get(id).cloned()) {
                let joined = match (&x, &y) {
                    (Cell::Tensor(x), Cell::Tensor(y)) => Cell::Tensor(self.tensors(x, y, true)),
                    _ => self.cells(&mut out.heap, &x, &y, MAX_VALUE_DEPTH),
                };
                out.heap.insert(id, joined);
            }
        }
        for (i, frame) in b.frames.iter().enumerate() {
            let Some(mine) = out.frames.get(i) else { continue };
            if mine.func != frame.func {
                continue;
            }
            // What the other frame does not change stays shared with the worlds that it came from.
            let mine = mine.clone();
            for (local, x, y) in mine.differing(frame) {
                let value = self.values(&mut out.heap, x, y, MAX_VALUE_DEPTH);
                if value != *x {
                    out.frames[i].set(local, value);
                }
            }
            out.frames[i].complete(frame);
        }
        if !out.symbols.ptr_eq(&b.symbols) {
            self.join_symbols(&mut out, b);
        }
        out
    }

    /// What an unknown value turned out to be on one path only is not known of it where the paths meet.
    fn join_symbols(&mut self, out: &mut World, b: &World) {
        let mine: Vec<(Name, ObjId)> = out.symbols.iter().map(|(path, id)| (path.clone(), *id)).collect();
        for (path, id) in mine {
            let joined = match b.symbols.get(&path) {
                Some(other) if *other == id => continue,
                Some(other) => match (out.heap.tensor(id), b.heap.tensor(*other)) {
                    (Some(x), Some(y)) => self.tensors(x, y, false),
                    _ => TensorType::unknown(),
                },
                None => TensorType::unknown(),
            };
            let fresh = self.fresh(&mut out.heap, Cell::Tensor(joined));
            out.symbols.insert(path, fresh);
        }
        let theirs = b.symbols.iter().map(|(path, _)| path.clone());
        for path in theirs.filter(|path| !out.symbols.contains_key(path)).collect::<Vec<_>>() {
            let fresh = self.fresh(&mut out.heap, Cell::Tensor(TensorType::unknown()));
            out.symbols.insert(path, fresh);
        }
    }

    fn fresh(&mut self, heap: &mut Heap, cell: Cell) -> ObjId {
        let id = ObjId(*self.next_id);
        *self.next_id += 1;
        heap.insert(id, cell);
        id
    }

    /// The join of two values; both live in `heap`.
    pub fn values(&mut self, heap: &mut Heap, a: &Value, b: &Value, depth: usize) -> Value {
        if a == b {
            return a.clone();
        }
        if depth == 0 {
            return Value::Unknown;
        }
        match (a, b) {
            (Value::Unset, x) | (x, Value::Unset) => x.clone(),
            (Value::Tensor(x), Value::Tensor(y)) => self.objects(heap, *x, *y, depth, Value::Tensor),
            (Value::List(x), Value::List(y)) => self.objects(heap, *x, *y, depth, Value::List),
            (Value::Dict(x), Value::Dict(y)) => self.objects(heap, *x, *y, depth, Value::Dict),
            (Value::Object(x), Value::Object(y)) => {
                let same = match (heap.object(*x), heap.object(*y)) {
                    (Some(x), Some(y)) => x.class == y.class,
                    _ => false,
                };
                if same { self.objects(heap, *x, *y, depth, Value::Object) } else { Value::Unknown }
            }
            (Value::Tuple(x), Value::Tuple(y)) if x.len() == y.len() => {
                let items: Vec<Value> =
                    x.iter().zip(y.iter()).map(|(x, y)| self.values(heap, x, y, depth - 1)).collect();
                Value::tuple(items)
            }
            (Value::Const(Const::Bool(_)), Value::Const(Const::Bool(_))) => match &self.ranks {
                Some(ranks) => Value::RankCond(ranks.clone()),
                None => Value::Unknown,
            },
            (Value::Path(x), Value::Path(y)) if same_export(x, y) => a.clone(),
            // One process alone is a group of one: `get_world_size(group) if is_initialized() else 1` is the size either way. Where a
            // flag tells the paths apart, what else depends on the flag would meet a size of another path.
            (Value::Size(axes), Value::Const(Const::Int(1))) | (Value::Const(Const::Int(1)), Value::Size(axes))
                if self.alike =>
            {
                Value::Size(axes.clone())
            }
            (Value::Rank(axes), Value::Const(Const::Int(0))) | (Value::Const(Const::Int(0)), Value::Rank(axes))
                if self.alike =>
            {
                Value::Rank(axes.clone())
            }
            // The first ranks have one row more of what is left over: `if rank < rest: size += 1`.
            (Value::Share(axes), Value::Number(None)) | (Value::Number(None), Value::Share(axes))
                if self.ranks.as_ref() == Some(axes) =>
            {
                Value::Share(axes.clone())
            }
            (x, y) if x.is_number() && y.is_number() => Value::Number(self.numbers(x, y)),
            _ => Value::Unknown,
        }
    }

    /// What is known of a number that is one of two: it differs where they were computed on different ranks.
    fn numbers(&self, x: &Value, y: &Value) -> Option<Arc<LocalType>> {
        let (a, b) = (number_type(x), number_type(y));
        let mut t = match (&a, &b) {
            (None, None) => LocalType::everywhere(AxisState::new(AxisType::R)),
            (Some(t), None) | (None, Some(t)) => t.clone(),
            (Some(a), Some(b)) => a.join(b),
        };
        if let Some(ranks) = &self.ranks {
            if ranks.iter().any(crate::types::Axis::is_variable) {
                t.rest.set = t.rest.set.join(AxisType::V);
            }
            for axis in ranks.iter() {
                t.set(axis, AxisState::new(AxisType::V.join(AxisType::P)));
            }
        }
        (a.is_some() || b.is_some() || self.ranks.is_some()).then(|| Arc::new(t))
    }

    fn objects(&mut self, heap: &mut Heap, x: ObjId, y: ObjId, depth: usize, make: fn(ObjId) -> Value) -> Value {
        if let Some((_, id)) = self.memo.iter().find(|(pair, _)| *pair == (x, y)) {
            return make(*id);
        }
        let (Some(a), Some(b)) = (heap.get(x).cloned(), heap.get(y).cloned()) else { return Value::Unknown };
        if a == b && matches!(a, Cell::Tensor(_)) && self.ranks.is_none() {
            self.memo.push(((x, y), x));
            return make(x);
        }
        let id = self.fresh(heap, Cell::Variable(Value::Unknown));
        self.memo.push(((x, y), id));
        let joined = self.cells(heap, &a, &b, depth);
        heap.insert(id, joined);
        make(id)
    }

    fn cells(&mut self, heap: &mut Heap, a: &Cell, b: &Cell, depth: usize) -> Cell {
        let depth = depth.saturating_sub(1);
        match (a, b) {
            (Cell::Tensor(x), Cell::Tensor(y)) => Cell::Tensor(self.tensors(x, y, false)),
            (Cell::List(x), Cell::List(y)) => Cell::List(self.lists(heap, x, y, depth)),
            (Cell::Dict(x), Cell::Dict(y)) => Cell::Dict(self.dicts(heap, x, y, depth)),
            (Cell::Object(x), Cell::Object(y)) if x.class == y.class => {
                let mut out = ObjectCell { class: x.class.clone(), path: x.path.clone(), attrs: Vec::new() };
                for (name, v) in &x.attrs {
                    let joined = y.get(name).map_or(v.clone(), |w| self.values(heap, v, w, depth));
                    out.attrs.push((name.clone(), joined));
                }
                for (name, w) in &y.attrs {
                    if x.get(name).is_none() {
                        out.attrs.push((name.clone(), w.clone()));
                    }
                }
                Cell::Object(out)
            }
            (Cell::Variable(x), Cell::Variable(y)) => Cell::Variable(self.values(heap, x, y, depth)),
            _ => Cell::Variable(Value::Unknown),
        }
    }

    /// `in_place`: they are the types of one tensor, on either path.
    fn tensors(&self, x: &TensorType, y: &TensorType, in_place: bool) -> TensorType {
        let mut out = x.join(y);
        if self.forced {
            for axis in LocalType::axes_of([&x.local, &y.local]) {
                if x.local.get(&axis).set != y.local.get(&axis).set {
                    out.local.set(&axis, AxisState::UNKNOWN);
                }
            }
            if x.local.rest.set != y.local.rest.set {
                out.local.rest = AxisState::UNKNOWN;
            }
        }
        let Some(ranks) = &self.ranks else { return out };
        if let (Some(a), Some(b)) = (&x.term, &y.term)
            && x.zero != y.zero
        {
            // What some ranks keep and the others set to zero.
            let kept = if x.zero { b } else { a };
            out.term = Some(Arc::new(Term::Mask { axes: ranks.clone(), x: kept.clone() }));
        }
        if ranks.iter().any(crate::types::Axis::is_variable) {
            // The ranks of some group computed different things: any axis may be among them.
            for axis in LocalType::axes_of([&x.local, &y.local]) {
                let set = out.local.get(&axis).set.join(AxisType::V);
                out.local.set(&axis, AxisState { set, shard: None, nest: 0, origin: None });
            }
            out.local.rest.set = out.local.rest.set.join(AxisType::V);
        }
        for axis in ranks.iter() {
            let (a, b) = (x.local.get(axis), y.local.get(axis));
            if in_place && (a.set.is_unknown() || b.set.is_unknown()) && x.zero == y.zero {
                // What nobody knows of may have been read there only: that says no more of it than on all ranks.
                out.local.set(axis, AxisState::UNKNOWN);
            } else if x.zero != y.zero {
                // A term that some ranks add and the others do not.
                let set = AxisType::V.join(AxisType::P);
                out.local.set(axis, AxisState { set, shard: None, nest: 0, origin: a.origin.clone() });
            } else if a == b && x.local.get(axis).set.leq(AxisType::EQUAL) {
                // Both sides computed an equal value, but not the same one: it differs by rank.
                out.local.set(axis, AxisState { set: AxisType::V, shard: None, nest: 0, origin: a.origin.clone() });
            } else {
                let set = out.local.get(axis).set.without(AxisType::EQUAL).join(AxisType::V);
                out.local.set(axis, AxisState { set, shard: None, nest: 0, origin: a.origin.clone() });
            }
        }
        out
    }

    fn lists(&mut self, heap: &mut Heap, x: &ListCell, y: &ListCell, depth: usize) -> ListCell {
        let rest = match (&x.rest, &y.rest) {
            (Some(a), Some(b)) => Some(self.values(heap, a, b, depth)),
            (Some(a), None) | (None, Some(a)) => Some(a.clone()),
            (None, None) => None,
        };
        if x.items.len() == y.items.len() {
            let items = x.items.iter().zip(&y.items).map(|(a, b)| self.values(heap, a, b, depth)).collect();
            return ListCell { items, rest };
        }
        let mut summary = rest.unwrap_or(Value::Unset);
        for item in x.items.iter().chain(&y.items) {
            summary = self.values(heap, &summary, item, depth);
        }
        ListCell { items: Vec::new(), rest: Some(summary) }
    }

    fn dicts(&mut self, heap: &mut Heap, x: &DictCell, y: &DictCell, depth: usize) -> DictCell {
        let rest = match (&x.rest, &y.rest) {
            (Some(v), Some(w)) => Some(self.values(heap, v, w, depth)),
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        let mut out = DictCell { entries: Vec::new(), rest };
        for (key, v) in &x.entries {
            let value = match y.get(key) {
                Some(w) => self.values(heap, v, w, depth),
                None => {
                    out.open();
                    v.clone()
                }
            };
            out.entries.push((key.clone(), value));
        }
        for (key, w) in &y.entries {
            if x.get(key).is_none() {
                out.open();
                out.entries.push((key.clone(), w.clone()));
            }
        }
        out
    }
}

/// Modules between a package and what it exports.
const INNER: &[&str] = &["placement_types", "api", "experimental"];

/// Whether two paths are those of one thing in an older and a newer version, which an `except ImportError` chooses between:
/// `torch.distributed._tensor.Shard`, `torch.distributed.tensor.Shard`.
fn same_export(a: &str, b: &str) -> bool {
    let parts = |path: &'_ str| -> Vec<String> {
        path.split('.').map(|p| p.trim_start_matches('_').to_owned()).filter(|p| !INNER.contains(&p.as_str())).collect()
    };
    a.starts_with("torch.") && parts(a) == parts(b)
}

/// Whether the checker behaves alike in both worlds, flags apart, and asked the same of what it does not know. A variable bound on one side
/// only does not count.
pub fn alike(a: &World, b: &World) -> bool {
    frames_alike(a, b) && !symbols_differ(a, b) && a.heap.changes(&b.heap).iter().all(|id| cell_alike(a, b, *id))
}

/// The cells in which the worlds are not alike, if they are alike apart from these.
pub fn unlike_cells(a: &World, b: &World) -> Option<Vec<ObjId>> {
    frames_alike(a, b).then(|| {
        let mut cells = a.heap.changes(&b.heap);
        cells.retain(|id| !cell_alike(a, b, *id));
        cells
    })
}

fn frames_alike(a: &World, b: &World) -> bool {
    let alike = |v, w| same_value(&a.heap, v, &b.heap, w, MAX_VALUE_DEPTH);
    a.frames.len() == b.frames.len()
        && a.modes == b.modes
        && a.frames.iter().zip(&b.frames).all(|(x, y)| x.differing(y).all(|(_, v, w)| alike(v, w)))
}

fn cell_alike(a: &World, b: &World, id: ObjId) -> bool {
    match (a.heap.get(id), b.heap.get(id)) {
        (Some(x), Some(y)) => same_cell(&a.heap, x, &b.heap, y, MAX_VALUE_DEPTH),
        _ => false,
    }
}

/// What two worlds must agree on to be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agree {
    /// All that types may come to depend on: the known type of a tensor, a truth value, an absence.
    Decisive,
    /// The same of variables; of what objects hold, the known types of tensors, and groups.
    Variables,
    /// The known types of tensors, and groups.
    Types,
}

/// The cells in which two heaps differ, if the worlds agree as far as asked. Such worlds are joined; keeping them apart would multiply paths
/// for nothing. `live`: which variables of the function under execution may still be read.
pub fn agreeing(a: &World, b: &World, on: Agree, live: &dyn Fn(LocalId) -> bool) -> Option<Vec<ObjId>> {
    if a.frames.len() != b.frames.len() || a.modes != b.modes {
        return None;
    }
    let decisive = on != Agree::Types;
    let apart = |local: LocalId, v: &Value, w: &Value, is_top: bool| {
        values_differ(&a.heap, v, &b.heap, w, decisive) && (!is_top || live(local))
    };
    let frames = a.frames.iter().zip(&b.frames).rev().enumerate();
    let frames_differ =
        frames.into_iter().any(|(depth, (x, y))| x.differing(y).any(|(local, v, w)| apart(local, v, w, depth == 0)));
    if frames_differ || symbols_differ(a, b) {
        return None;
    }
    let differ = |v: &Value, w: &Value| values_differ(&a.heap, v, &b.heap, w, on == Agree::Decisive);
    let changed = a.heap.changes(&b.heap);
    let cells_differ = changed.iter().any(|id| match (a.heap.get(*id), b.heap.get(*id)) {
        (Some(Cell::Tensor(x)), Some(Cell::Tensor(y))) => {
            (x.local != y.local || x.term != y.term) && (telling(x) || telling(y))
        }
        (Some(Cell::Object(x)), Some(Cell::Object(y))) => {
            x.attrs.iter().any(|(n, v)| y.get(n).is_none_or(|w| differ(v, w)))
        }
        (Some(Cell::Variable(v)), Some(Cell::Variable(w))) => differ(v, w),
        _ => false,
    });
    (!cells_differ).then_some(changed)
}

/// Whether the paths left different possibilities for an unknown value, such as a parameter.
fn symbols_differ(a: &World, b: &World) -> bool {
    if a.symbols.ptr_eq(&b.symbols) {
        return false;
    }
    let local = |w: &World, id: Option<&ObjId>| id.and_then(|id| w.heap.tensor(*id)).filter(|t| telling(t)).cloned();
    let differs = |path: &Name| {
        let (ia, ib) = (a.symbols.get(path), b.symbols.get(path));
        ia != ib
            && match (local(a, ia), local(b, ib)) {
                (Some(x), Some(y)) => x.local != y.local || x.term != y.term,
                (None, None) => false,
                (Some(_), None) | (None, Some(_)) => true,
            }
    };
    a.symbols.keys().any(differs) || b.symbols.keys().any(|path| !a.symbols.contains_key(path) && differs(path))
}

/// Whether something is known of a tensor on some axis.
fn telling(t: &TensorType) -> bool {
    t.term.is_some() || t.local.listed().any(|(_, s)| s.known().is_some()) || t.local.rest.known().is_some()
}

/// Whether what is made with the size of a part, on its way to a parameter, is divided on one path alone; a layer of such a size has a
/// parameter beside it on one alone; one has weights that tell something and the other is another layer; or another function is called.
fn parted(ha: &Heap, a: &Value, hb: &Heap, b: &Value, decisive: bool) -> bool {
    match (a, b) {
        (Value::Tensor(x), Value::Tensor(y)) => match (ha.tensor(*x), hb.tensor(*y)) {
            (Some(x), Some(y)) => x.divided != y.divided,
            _ => false,
        },
        // `self.finish = total if split else identity`
        (Value::Closure(x), Value::Closure(y)) => decisive && x.func != y.func,
        (Value::Closure(_), Value::Bound(_)) | (Value::Bound(_), Value::Closure(_)) => decisive,
        (Value::Class(_), Value::Class(_) | Value::Path(_)) | (Value::Path(_), Value::Class(_)) => true,
        (Value::Object(x), Value::Object(y)) => {
            match (ha.object(*x), hb.object(*y)) {
                (Some(x), Some(y)) if x.class != y.class => {
                    let tells = |heap: &Heap, v: &Value| matches!(v, Value::Tensor(id) if heap.tensor(*id).is_some_and(telling));
                    x.attrs.iter().any(|(_, v)| tells(ha, v)) || y.attrs.iter().any(|(_, v)| tells(hb, v))
                }
                (Some(x), Some(y)) if decisive && matches!(&x.class, ObjectClass::External(_)) => {
                    let of_parts = |v: &Value| matches!(v, Value::Tensor(id) if ha.tensor(*id).is_some_and(|t| t.divided.is_some()));
                    let absent = |n: &Name, v: &Value| y.get(n).is_some_and(|w| w.is_none() != v.is_none());
                    // `size = 1 if group is None else group.size()`: whole on one path, a part on the other.
                    let other = |n: &Name, v: &Value| y.get(n).is_some_and(|w| parted(ha, v, hb, w, decisive));
                    x.attrs.iter().any(|(_, v)| of_parts(v)) && x.attrs.iter().any(|(n, v)| absent(n, v))
                        || x.attrs.iter().any(|(n, v)| matches!(v, Value::Tensor(_)) && other(n, v))
                }
                _ => false,
            }
        }
        _ => false,
    }
}

fn values_differ(ha: &Heap, a: &Value, hb: &Heap, b: &Value, decisive: bool) -> bool {
    if a == b || matches!(a, Value::Unset) || matches!(b, Value::Unset) {
        return false;
    }
    let known = |heap: &Heap, v: &Value| match v {
        Value::Tensor(id) => heap.tensor(*id).is_some_and(telling),
        Value::Const(Const::Bool(_) | Const::None) | Value::Cond(_) | Value::Atom(_) => decisive,
        Value::Group(_) | Value::Layout(_) => true,
        Value::Tuple(items) => {
            items.iter().any(|v| matches!(v, Value::Tensor(id) if heap.tensor(*id).is_some_and(telling)))
        }
        _ => false,
    };
    // A number of ranks on one path, and one rank on the other: what is divided by it is a part on the first alone.
    let counted = |v: &Value| matches!(v, Value::Size(_) | Value::Share(_));
    let share = |v: &Value, whole: &Value| matches!((v, whole), (Value::Share(_), Value::Sym(_)));
    let counts = |a: &Value, b: &Value| counted(a) && b.is_number() || share(a, b);
    (known(ha, a) || known(hb, b) || parted(ha, a, hb, b, decisive) || counts(a, b) || counts(b, a))
        && !same_value(ha, a, hb, b, MAX_VALUE_DEPTH)
}

/// Whether two values in two heaps are the same for the checker.
pub fn same_value(ha: &Heap, a: &Value, hb: &Heap, b: &Value, depth: usize) -> bool {
    if matches!(a, Value::Unset) || matches!(b, Value::Unset) {
        return true;
    }
    let both = |x: ObjId, y: ObjId| match (ha.get(x), hb.get(y)) {
        (Some(x), Some(y)) => same_cell(ha, x, hb, y, depth - 1),
        _ => false,
    };
    match (a, b) {
        _ if a == b => true,
        _ if depth == 0 => false,
        (Value::Tensor(x), Value::Tensor(y))
        | (Value::List(x), Value::List(y))
        | (Value::Dict(x), Value::Dict(y))
        | (Value::Object(x), Value::Object(y)) => both(*x, *y),
        (Value::Tuple(x), Value::Tuple(y)) => {
            x.len() == y.len() && x.iter().zip(y.iter()).all(|(v, w)| same_value(ha, v, hb, w, depth - 1))
        }
        _ => false,
    }
}

fn same_cell(ha: &Heap, a: &Cell, hb: &Heap, b: &Cell, depth: usize) -> bool {
    match (a, b) {
        (Cell::Tensor(x), Cell::Tensor(y)) => x == y,
        (Cell::List(x), Cell::List(y)) => {
            x.items.len() == y.items.len()
                && x.rest.is_some() == y.rest.is_some()
                && x.items
                    .iter()
                    .chain(&x.rest)
                    .zip(y.items.iter().chain(&y.rest))
                    .all(|(v, w)| same_value(ha, v, hb, w, depth))
        }
        (Cell::Dict(x), Cell::Dict(y)) => {
            x.rest.is_some() == y.rest.is_some()
                && x.rest.iter().zip(&y.rest).all(|(v, w)| same_value(ha, v, hb, w, depth))
                && x.entries.len() == y.entries.len()
                && x.entries.iter().zip(&y.entries).all(|((k, v), (l, w))| k == l && same_value(ha, v, hb, w, depth))
        }
        (Cell::Object(x), Cell::Object(y)) => {
            x.class == y.class
                && x.attrs.len() == y.attrs.len()
                && x.attrs.iter().all(|(n, v)| y.get(n).is_some_and(|w| same_value(ha, v, hb, w, depth)))
        }
        (Cell::Variable(x), Cell::Variable(y)) => same_value(ha, x, hb, y, depth),
        _ => false,
    }
}
