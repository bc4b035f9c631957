//! What is wrong with declared shardings, as data. In: nothing. Out: [`Declaration`]. Never: words. Next: `mod.rs`.

use super::layout::Moved;
use crate::ir::annotation::Atom;
use crate::source::{Name, Place};
use crate::types::Axis;

/// What a sharding is declared of.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    State(Name),
    Input(Name),
    Output,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Declaration {
    /// Two axes split one dim, and no spec says which is outside.
    Unordered {
        axes: [Axis; 2],
        dim: i32,
    },
    /// A dim for an axis where a spec says the dims.
    WithSpec {
        axis: Axis,
        dim: i32,
    },
    /// A spec splits a dim over an axis on which the tensor is the same, or a pending sum.
    Contradicts {
        axis: Axis,
        atom: Atom,
    },
    /// An axis twice in one spec.
    Twice {
        axis: Axis,
    },
    /// A shard of a dim that a parameter does not have.
    Dim {
        name: Name,
        axis: Axis,
        dim: i32,
        rank: usize,
        layout: Place,
    },
    /// A move that no single collective makes, or that speaks of other axes.
    Move {
        part: Part,
        moved: Moved,
        from: Place,
        to: Place,
    },
    /// A wanted layout without the one from which to move.
    NoSource {
        part: Part,
    },
    /// A region of local tensors whose results nobody describes.
    NoResult {
        argument: Name,
    },
    /// A parameter of the module of which the declaration says nothing.
    Undeclared {
        class: Name,
        name: Name,
        made: Place,
    },
    /// An input of a region of local tensors of which the declaration says nothing.
    UndeclaredInput {
        class: Option<Name>,
        name: Name,
    },
    /// A name that the module does not have.
    NoState {
        class: Name,
        name: Name,
        near: Option<Name>,
    },
    NoInput {
        class: Name,
        name: Name,
        near: Option<Name>,
    },
}
