//! Rules of collectives and conversions: what types they take and give on the axes of their group.
//!
//! In: notations such as `P|V -> S(-1)`. Out: [`CollectiveRule`]. Never: resolution of group expressions. Next: `infer/collective.rs`.
//! Source of the transitions: DESIGN.md section 4, cited row by row in `rules/collectives` and `rules/models`.

use super::signature::Signature;
use crate::source::Name;
use crate::types::{AxisType, Spmd};
use std::fmt;

/// A shard dim in a notation: a number, or the name of the argument that gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DimRef {
    At(i32),
    Argument(Name),
}

/// One side of a transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    pub set: AxisType,
    /// `S(i)`.
    pub shard: Option<DimRef>,
    /// `S` without a dim: any shard type, in tables of legal pairs.
    pub any_shard: bool,
}

/// `source -> result`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    pub source: Pattern,
    pub result: Pattern,
}

impl Pattern {
    /// The dim that the notation names by a number.
    pub fn dim(&self) -> Option<i8> {
        match self.shard {
            Some(DimRef::At(dim)) => i8::try_from(dim).ok(),
            Some(DimRef::Argument(_)) | None => None,
        }
    }

    /// Parses `R`, `P|V`, `S(0)`, `S(dim)`, `S`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        let mut pattern = Pattern { set: AxisType::EMPTY, shard: None, any_shard: false };
        for part in text.split('|').map(str::trim) {
            let t = match part {
                "R" => Spmd::Replicate,
                "I" => Spmd::Invariant,
                "V" => Spmd::Varying,
                "P" => Spmd::Partial,
                "S" => {
                    pattern.any_shard = true;
                    Spmd::Varying
                }
                _ => {
                    let dim = part
                        .strip_prefix("S(")
                        .and_then(|p| p.strip_suffix(')'))
                        .ok_or_else(|| format!("`{part}` is not one of R, I, V, P, S(i)"))?;
                    pattern.shard = Some(match dim.parse() {
                        Ok(n) => DimRef::At(n),
                        Err(_) => DimRef::Argument(Name::from(dim)),
                    });
                    Spmd::Varying
                }
            };
            pattern.set = pattern.set.join(t.into());
        }
        Ok(pattern)
    }
}

impl Transition {
    /// Parses `P|V -> I`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Transition, String> {
        let (source, result) = text.split_once("->").ok_or_else(|| format!("`{text}` has no `->`"))?;
        Ok(Transition { source: Pattern::parse(source)?, result: Pattern::parse(result)? })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shard {
            Some(DimRef::At(n)) => write!(f, "S({n})"),
            Some(DimRef::Argument(name)) => write!(f, "S({name})"),
            None => write!(f, "{}", self.set),
        }
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}", self.source, self.result)
    }
}

/// How a collective takes its input and gives its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A new tensor is returned.
    Result,
    /// The input is overwritten; nothing or a handle is returned.
    InPlace,
    /// A buffer given as an argument is overwritten.
    IntoOutput,
    /// A list of tensors given as an argument is overwritten.
    IntoList,
    /// Source and result types are arguments (`src=`, `dst=`).
    SrcDst,
}

/// A collective or conversion.
#[derive(Clone, Debug)]
pub struct CollectiveRule {
    pub name: Name,
    pub args: Signature,
    /// `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `convert`, `reinterpret`, `redistribute`.
    pub op: Name,
    pub form: Form,
    pub input: usize,
    pub output: Option<usize>,
    pub group: Option<usize>,
    /// Axes when the group is absent or `None`; empty: all ranks.
    pub default_group: Vec<Name>,
    /// The type on the axes of the group; the first whose condition holds (argument, value as written).
    pub transitions: Vec<(Option<(usize, Name)>, Transition)>,
    /// For [`Form::SrcDst`]: pairs that are legal, and those that only experts may ask for.
    pub legal: Vec<Transition>,
    pub expert: Vec<Transition>,
    /// Whether a shard may move to another dim.
    pub moves_shard: bool,
    /// The argument that names the reduction.
    pub reduce_op: Option<usize>,
    /// Whether autograd sees the call: a raw collective is not differentiable.
    pub differentiable: bool,
    /// Repairs may write it: the call as text, with `{x}` for the value and `{axis}` for the group.
    pub repair: Option<Name>,
    pub source: Name,
}
