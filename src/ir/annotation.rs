//! Annotation comments (`# spmd: ...`) as data. In: nothing. Out: what `syntax/comments.rs` parses and `infer/` believes.
//! Never: checking names or axes, which needs the scope and is done in `infer/`. Next: `syntax/comments.rs`.
//!
//! The grammar is DESIGN.md section 3, repeated in the README's section on annotations.

use crate::source::{Name, Span};

/// One `# spmd:` part of a comment, with its clauses.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotation {
    pub span: Span,
    pub clauses: Vec<Clause>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Clause {
    pub span: Span,
    pub kind: ClauseKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ClauseKind {
    /// `x: T, y: U -> result`
    Signature {
        params: Vec<TypedTarget>,
        result: Result_,
    },
    /// `x: T, self.y: U`
    Named(Vec<TypedTarget>),
    /// `T, U`: one type for each assigned target.
    Bare(Vec<TypeExpr>),
    /// `trust x: T`
    Trust(Vec<TypedTarget>),
    Mesh {
        name: Name,
        axes: Vec<Name>,
        over: Option<Name>,
    },
    Alias {
        name: Name,
        parts: Vec<Name>,
    },
    /// `group EXPR = axes`; the expression as source text without spaces.
    Group {
        expr: Name,
        axes: Vec<Name>,
    },
    Flag(Name),
    Assume(Cond),
    Mode(Name),
    Extern {
        path: Name,
        params: Vec<TypedTarget>,
        result: Result_,
    },
    Param {
        target: Target,
        ty: TypeExpr,
        reduce: Option<Reduce>,
    },
}

/// The result of a signature: one type, or a tuple of types.
#[derive(Clone, Debug, PartialEq)]
pub enum Result_ {
    One(TypeExpr),
    Tuple(Vec<TypeExpr>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct TypedTarget {
    pub target: Target,
    pub ty: TypeExpr,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Name(Name),
    /// `self.x`, also `self.a.b`.
    Attr(Name, Vec<Name>),
    Index(Name, i64),
    Key(Name, Name),
    Return,
}

/// A type, possibly conditional: the first alternative whose condition holds.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeExpr {
    pub span: Span,
    pub alternatives: Vec<(Option<Cond>, Alt)>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Alt {
    /// `_`
    Unknown,
    /// A bare atom holds on every axis of the mesh.
    Atom(Atom),
    /// `{axis: atom, ...}`; the axis may be a mesh axis, an alias, a tuple of axes, or a group parameter in scope.
    Map(Vec<AxisAtom>),
    /// `spec(dp, None, (cp, tp))`: one entry for each tensor dim.
    Spec(Vec<Vec<Name>>),
    /// `[s/tp, b, h] @ {dp: V}`
    Dims { dims: Vec<Dim>, map: Vec<AxisAtom> },
}

#[derive(Clone, Debug, PartialEq)]
pub struct AxisAtom {
    pub axes: Vec<Name>,
    pub atom: Atom,
    pub span: Span,
}

/// `s/tp`: the name of a dim and the axes that divide it.
#[derive(Clone, Debug, PartialEq)]
pub struct Dim {
    pub name: Name,
    pub over: Vec<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atom {
    Replicate,
    Invariant,
    Varying,
    Partial,
    Shard(i32),
}

/// A condition over flags, attributes and parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Cond {
    /// A dotted name, tested for truth.
    Flag(Name),
    Not(Box<Cond>),
    And(Vec<Cond>),
    Or(Vec<Cond>),
    /// `name == literal`
    Equals(Name, crate::ir::Const),
    Const(bool),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reduce {
    pub kind: ReduceKind,
    pub axes: Vec<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceKind {
    Sum,
    Mean,
    None,
}

/// `ignore`, `ignore-file`, `skip-file`.
#[derive(Clone, Debug, PartialEq)]
pub struct Suppression {
    pub span: Span,
    pub scope: SuppressionScope,
    /// Codes or names as written, each with its place; empty for `skip-file`.
    pub codes: Vec<(Name, Span)>,
    pub reason: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuppressionScope {
    /// The logical line, as a byte range.
    Line(Span),
    File,
    /// Nothing in the file is checked.
    Skip,
}
