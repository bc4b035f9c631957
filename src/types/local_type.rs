//! A tensor's local SPMD type: for every mesh axis a set of types, with the shard dim where a varying value is known to be split.
//!
//! In: axis states. Out: [`LocalType`] with join, meet and order, pointwise by axis; `rest` speaks for every axis not listed.
//! Never: rules. Source: DESIGN.md section 2. Next: `tensor.rs`.

use super::{Axis, AxisType, Origin, Spmd};
use smallvec::SmallVec;
use std::sync::Arc;

/// What is known on one axis.
#[derive(Clone, Debug)]
pub struct AxisState {
    pub set: AxisType,
    /// For a varying value: the tensor dim that is split over the axis, from 0, or negative from the end where the rank is not
    /// known; forgotten when the value may be anything else.
    pub shard: Option<i8>,
    /// Of the axes over which that dim is split, how many lie outside this one; told apart where partition specs are followed.
    pub nest: u8,
    /// The place that decided the type.
    pub origin: Option<Arc<Origin>>,
}

/// Equality ignores provenance: two values that type alike are alike.
impl PartialEq for AxisState {
    fn eq(&self, other: &AxisState) -> bool {
        self.set == other.set && self.shard == other.shard && self.nest == other.nest
    }
}
impl Eq for AxisState {}

impl AxisState {
    pub const UNKNOWN: AxisState = AxisState { set: AxisType::ALL, shard: None, nest: 0, origin: None };

    pub fn new(set: impl Into<AxisType>) -> AxisState {
        AxisState { set: set.into(), shard: None, nest: 0, origin: None }
    }
    pub fn shard(dim: i8) -> AxisState {
        AxisState { set: AxisType::V, shard: Some(dim), nest: 0, origin: None }
    }
    #[must_use]
    pub fn from(mut self, origin: &Arc<Origin>) -> AxisState {
        self.origin = Some(origin.clone());
        self
    }
    pub fn known(&self) -> Option<Spmd> {
        self.set.known()
    }
    /// Whether this is a parameter of which only the lack of a mark is known.
    pub fn is_unmarked(&self) -> bool {
        self.origin.as_ref().is_some_and(|o| matches!(o.reason, super::Reason::Unmarked(_)))
    }
    /// Whether this is a whole parameter beside others that are split.
    pub fn is_whole(&self) -> bool {
        self.set == AxisType::EQUAL && self.origin.as_ref().is_some_and(|o| matches!(o.reason, super::Reason::Whole(_)))
    }
    /// Whether the source states the type, in a comment or a call.
    pub fn is_declared(&self) -> bool {
        self.origin.as_ref().is_some_and(|o| matches!(o.reason, super::Reason::Declared | super::Reason::Asserted))
    }

    /// Least upper bound; unequal shard dims are forgotten.
    #[must_use]
    pub fn join(&self, other: &AxisState) -> AxisState {
        let shard = match (self.set.is_empty(), other.set.is_empty()) {
            (true, _) => other.shard,
            (_, true) => self.shard,
            _ if self.shard == other.shard && self.nest == other.nest => self.shard,
            _ => None,
        };
        let nest = match (shard, self.set.is_empty()) {
            (None, _) => 0,
            (Some(_), true) => other.nest,
            (Some(_), false) => self.nest,
        };
        let origin = self.origin.clone().or_else(|| other.origin.clone());
        AxisState { set: self.set.join(other.set), shard, nest, origin }
    }

    /// Order: a smaller set, and at least as refined.
    pub fn leq(&self, other: &AxisState) -> bool {
        self.set.is_empty()
            || (self.set.leq(other.set)
                && (other.shard.is_none() || (self.shard == other.shard && self.nest == other.nest)))
    }

    /// The notation of one axis: `R`, `S(0)`, `R|V`.
    pub fn notation(&self) -> String {
        match self.shard {
            // A varying value that was declared a pending sum keeps what is known of its dims.
            Some(dim) if self.set == AxisType::V || self.set == AxisType::P => format!("S({dim})"),
            _ => self.set.to_string(),
        }
    }
}

/// Local SPMD type: mesh axis → state; `rest` for all axes not listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalType {
    axes: SmallVec<[(Axis, AxisState); 2]>,
    pub rest: AxisState,
}

impl LocalType {
    pub fn unknown() -> LocalType {
        LocalType::everywhere(AxisState::UNKNOWN)
    }
    /// The same state on every axis.
    pub fn everywhere(state: AxisState) -> LocalType {
        LocalType { axes: SmallVec::new(), rest: state }
    }
    pub fn is_unknown(&self) -> bool {
        self.rest.set.is_unknown() && self.axes.iter().all(|(_, s)| s.set.is_unknown())
    }
    /// The listed axes, in order of name.
    pub fn listed(&self) -> impl Iterator<Item = (&Axis, &AxisState)> {
        self.axes.iter().map(|(a, s)| (a, s))
    }
    pub fn get(&self, axis: &Axis) -> &AxisState {
        match self.axes.binary_search_by(|(a, _)| a.cmp(axis)) {
            Ok(i) => &self.axes[i].1,
            Err(_) => &self.rest,
        }
    }
    /// Whether the axis is listed, or `rest` speaks for it.
    pub fn has(&self, axis: &Axis) -> bool {
        !self.get(axis).set.is_unknown()
    }
    pub fn set(&mut self, axis: &Axis, state: AxisState) {
        match self.axes.binary_search_by(|(a, _)| a.cmp(axis)) {
            Ok(i) => self.axes[i].1 = state,
            Err(i) => self.axes.insert(i, (axis.clone(), state)),
        }
    }
    #[must_use]
    pub fn with(mut self, axis: &Axis, state: AxisState) -> LocalType {
        self.set(axis, state);
        self
    }
    /// All axes that either type lists, in order.
    pub fn axes_of<'a>(types: impl IntoIterator<Item = &'a LocalType>) -> Vec<Axis> {
        let mut all: Vec<Axis> = Vec::new();
        for t in types {
            for (axis, _) in t.listed() {
                if let Err(i) = all.binary_search(axis) {
                    all.insert(i, axis.clone());
                }
            }
        }
        all
    }
    /// Whether two types have the same members on every axis, wherever they come from.
    pub fn has_sets_of(&self, other: &LocalType) -> bool {
        let axes = LocalType::axes_of([self, other]);
        self.rest.set == other.rest.set && axes.iter().all(|a| self.get(a).set == other.get(a).set)
    }

    #[must_use]
    pub fn join(&self, other: &LocalType) -> LocalType {
        let mut out = LocalType::everywhere(self.rest.join(&other.rest));
        for axis in LocalType::axes_of([self, other]) {
            let state = self.get(&axis).join(other.get(&axis));
            out.set(&axis, state);
        }
        out
    }
    pub fn leq(&self, other: &LocalType) -> bool {
        self.rest.leq(&other.rest) && LocalType::axes_of([self, other]).iter().all(|a| self.get(a).leq(other.get(a)))
    }
    /// Forgets on which tensor dim the value is split: the dims were rearranged in a way that is not followed.
    pub fn forget_shards(&mut self) {
        self.rest.shard = None;
        for (_, state) in &mut self.axes {
            (state.shard, state.nest) = (None, 0);
        }
    }
    /// Rewrites every shard dim; `None` forgets it.
    pub fn map_shards(&mut self, f: impl Fn(i8) -> Option<i8>) {
        self.rest.shard = self.rest.shard.and_then(&f);
        for (_, state) in &mut self.axes {
            state.shard = state.shard.and_then(&f);
        }
    }
}

/// Whether two shard dims of one tensor are known to be different dims: counted from the same end, or with a known rank.
pub fn dims_differ(a: i8, b: i8, rank: Option<usize>) -> bool {
    if (a < 0) == (b < 0) {
        return a != b;
    }
    let Some(rank) = rank.and_then(|r| i8::try_from(r).ok()) else { return false };
    let from_start = |d: i8| if d < 0 { d + rank } else { d };
    from_start(a) != from_start(b)
}
