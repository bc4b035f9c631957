//! A declared layout of a tensor: its type on each axis, and the order of axes that split one dim. In: types and a spec. Out:
//! [`DeclaredLayout`], and what a move from one to another asks for. Never: a tensor. Next: `mod.rs`.

use crate::ir::annotation::Atom;
use crate::source::Place;
use crate::types::Axis;

/// What a tensor is on each axis, as one call states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredLayout {
    /// Where it is made.
    pub made: Place,
    /// Axes in the order in which they are given; `None`: a type that is not known.
    pub axes: Vec<(Axis, Option<Atom>)>,
    /// The axes of each dim, outermost first.
    pub spec: Option<Vec<Vec<Axis>>>,
}

/// What is wrong with a move.
#[derive(Clone, Debug, PartialEq)]
pub enum Moved {
    /// The two speak of other axes.
    Axes,
    /// More than one axis changes.
    Many(Vec<Axis>),
    /// What is varying, and nobody knows how, becomes something else or the other way round.
    Varying(Axis),
    /// The order of axes within a dim.
    Order(usize),
}

impl DeclaredLayout {
    /// The type on each axis, a split by the spec as `S(dim)`.
    pub fn types(&self) -> Vec<(Axis, Option<Atom>)> {
        let mut out = self.axes.clone();
        for (dim, axes) in self.spec.iter().flatten().enumerate() {
            let Ok(dim) = i32::try_from(dim) else { continue };
            for axis in axes {
                match out.iter_mut().find(|(a, _)| a == axis) {
                    Some((_, atom)) => *atom = Some(Atom::Shard(dim)),
                    None => out.push((axis.clone(), Some(Atom::Shard(dim)))),
                }
            }
        }
        out
    }

    /// Whether every type is known.
    pub fn is_known(&self) -> bool {
        self.axes.iter().all(|(_, atom)| atom.is_some())
    }

    /// How many axes lie outside of one within its dim.
    pub fn nest(&self, axis: &Axis) -> u8 {
        let at = self.spec.iter().flatten().find_map(|axes| axes.iter().position(|a| a == axis));
        at.and_then(|n| u8::try_from(n).ok()).unwrap_or(0)
    }

    /// The axes of each dim, of so many.
    fn dims(&self, rank: usize) -> Option<Vec<Vec<Axis>>> {
        if let Some(spec) = &self.spec {
            return Some(spec.clone());
        }
        let mut out = vec![Vec::new(); rank];
        for (axis, atom) in &self.axes {
            match atom {
                Some(Atom::Shard(dim)) => {
                    let at = crate::types::normalize_dim(i64::from(*dim), rank)?;
                    out.get_mut(at)?.push(axis.clone());
                }
                Some(_) => {}
                None => return None,
            }
        }
        Some(out)
    }

    /// What is wrong with a move to another layout by a collective over one axis.
    pub fn moved(&self, to: &DeclaredLayout) -> Option<Moved> {
        let (from, target) = (self.types(), to.types());
        let has = |list: &[(Axis, Option<Atom>)], axis: &Axis| list.iter().any(|(a, _)| a == axis);
        if from.iter().any(|(a, _)| !has(&target, a)) || target.iter().any(|(a, _)| !has(&from, a)) {
            return Some(Moved::Axes);
        }
        let mut changed = Vec::new();
        for (axis, atom) in &from {
            let (_, other) = target.iter().find(|(a, _)| a == axis)?;
            match (atom, other) {
                (Some(a), Some(b)) if a == b => {}
                (Some(a), Some(b)) => changed.push((axis.clone(), *a, *b)),
                _ => return None,
            }
        }
        // A dim counted from the end may be the one counted from the start.
        let unsure =
            |(_, a, b): &(Axis, Atom, Atom)| matches!((a, b), (Atom::Shard(a), Atom::Shard(b)) if (*a < 0) != (*b < 0));
        if changed.iter().any(unsure) {
            return None;
        }
        match changed.as_slice() {
            [(axis, a, b)] if *a == Atom::Varying || *b == Atom::Varying => return Some(Moved::Varying(axis.clone())),
            [] | [_] => {}
            _ => return Some(Moved::Many(changed.into_iter().map(|(axis, ..)| axis).collect())),
        }
        let rank = self.spec.as_ref().or(to.spec.as_ref())?.len();
        let (from, target) = (self.dims(rank)?, to.dims(rank)?);
        let inner = changed.first().map(|(axis, ..)| axis);
        let fits = |outer: &[Axis], all: &[Axis]| matches!((all.split_last(), inner), (Some((last, rest)), Some(inner)) if rest == outer && last == inner);
        let at = from.iter().zip(&target).position(|(a, b)| a != b && !fits(a, b) && !fits(b, a))?;
        Some(Moved::Order(at))
    }
}
