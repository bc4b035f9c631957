//! What the inference found wrong, as data. In: nothing. Out: [`Finding`], one variant for each kind of mistake, with places, types and
//! the flags it depends on. Never: prose; `diagnostics/` chooses the words. Next: `diagnostics/`.

use super::declared::found::Declaration;
use super::dtensor::found::Distributed;
use super::formula::Facts;
use super::layout::Layout;
use super::practice::found::Practice;
use super::sharding::found::Sharding;
use crate::rules::Violation;
use crate::source::{Name, Place};
use crate::types::{Axis, AxisSet, AxisState, AxisType, Spmd, Term};
use std::sync::Arc;

/// An operand of a finding: where it is written and what it is on the axis concerned.
#[derive(Clone, Debug, PartialEq)]
pub struct OperandAt {
    /// The source text, or empty for a value without text of its own.
    pub place: Option<Place>,
    pub state: AxisState,
    pub is_number: bool,
    pub is_divisor: bool,
}

/// A step of the call chain that led to the place of a finding: where the call is, and what it calls.
#[derive(Clone, Debug, PartialEq)]
pub struct CallStep {
    pub place: Place,
    pub callee: Name,
}

/// A repair that was tried and types.
#[derive(Clone, Debug, PartialEq)]
pub struct Repair {
    /// What to write, for `help`; empty for a remedy that only a check of the project can recommend.
    pub text: String,
    /// The edit that does it, where it is a local one.
    pub remedy: Option<Remedy>,
    /// What the text converts, where the file imports nothing that does it.
    pub foreign: Option<Conversion>,
}

/// A conversion of a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversion {
    pub place: Place,
    pub axis: Name,
    pub from: Spmd,
    pub to: Spmd,
}

/// Another text for an expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// The expression that is replaced.
    pub place: Place,
    /// The new text: `{x}` is the present one, `{axis}` the group.
    pub template: String,
    pub axis: Name,
    /// Where the value was made: it can be converted there as well, or where it is assigned.
    pub made: Option<Place>,
    /// Module and name of a function that the file has to import.
    pub import: Option<(String, String)>,
    /// What it comes to: remedies of one class are ways to write one repair.
    pub class: (usize, Option<Spmd>, Name),
    /// Whether it is right wherever the project is silent with it.
    pub certain: bool,
}

/// A backward that fits a forward, and what the pair is typed as.
#[derive(Clone, Debug, PartialEq)]
pub struct Adjoint {
    pub backward: Arc<Term>,
    pub source: (Spmd, Option<usize>),
    pub result: (Spmd, Option<usize>),
}

/// The worlds of one root that find a mistake, and those that reach its place without it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    pub found: Vec<Facts>,
    pub silent: Vec<Facts>,
    pub silent_right: bool,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub kind: FindingKind,
    pub place: Place,
    /// The function that the place is in, if it was found by executing one.
    pub function: Option<Place>,
    /// The worlds in which it was found.
    pub worlds: Vec<Facts>,
    /// The worlds that reached the place without it.
    pub silent_worlds: Vec<Facts>,
    /// Whether those are right, rather than not known to be wrong.
    pub silent_right: bool,
    /// The same for further roots that reach it.
    pub others: Vec<Reached>,
    pub calls: Vec<CallStep>,
    /// Places that sum gradients of parameters, but not of the one concerned.
    pub reducers: Vec<Place>,
    pub repairs: Vec<Repair>,
    /// The group of the axis is a guess from an identifier: the finding is a warning.
    pub rests_on_hint: bool,
}

impl Finding {
    /// What the root that is shown knows of its worlds.
    pub fn reached(&self) -> Reached {
        Reached { found: self.worlds.clone(), silent: self.silent_worlds.clone(), silent_right: self.silent_right }
    }

    /// The worlds in which it was found, those of all roots.
    pub fn found_in(&self) -> impl Iterator<Item = &Facts> {
        self.worlds.iter().chain(self.others.iter().flat_map(|other| &other.found))
    }

    /// The finding with the worlds that are possible, if there are any. A root of which none is left is shown no more.
    pub fn within(mut self, mut possible: impl FnMut(&Facts) -> bool) -> Option<Finding> {
        self.worlds.retain(&mut possible);
        for other in &mut self.others {
            other.found.retain(&mut possible);
        }
        self.others.retain(|other| !other.found.is_empty());
        if self.worlds.is_empty() && !self.others.is_empty() {
            let Reached { found, silent, silent_right } = self.others.remove(0);
            (self.worlds, self.silent_worlds, self.silent_right) = (found, silent, silent_right);
        }
        (!self.worlds.is_empty()).then_some(self)
    }

    /// A finding that holds in every configuration.
    pub fn everywhere(place: Place, kind: FindingKind) -> Finding {
        Finding {
            kind,
            place,
            function: None,
            worlds: vec![Facts::default()],
            silent_worlds: Vec::new(),
            silent_right: false,
            others: Vec::new(),
            calls: Vec::new(),
            reducers: Vec::new(),
            repairs: Vec::new(),
            rests_on_hint: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum FindingKind {
    /// An operator on types that cannot meet.
    Operator { violation: Violation, axis: Axis, op: Name, operands: Vec<OperandAt>, symbol: bool },
    /// A tensor without a type on an axis of the mesh, in strict checking.
    MissingAxis { axis: Axis, operand: OperandAt, op: Name },
    /// A softmax, or a loss that takes one, over a dim of which each rank has a part.
    NormalisedParts { axis: Axis, operand: OperandAt, op: Name },
    /// An in-place or `out=` operation that would change the type of what it writes.
    InPlaceChange { axis: Axis, op: Name, target: OperandAt, result: AxisType },
    /// A collective on a value of another type than it takes. With `dim` the value is split as it has to be, but on another dim than this.
    CollectiveSource { op: Name, name: Name, axis: Axis, expected: AxisType, dim: Option<i64>, operand: OperandAt },
    /// An output buffer of another type than the collective gives.
    CollectiveOutput { name: Name, axis: Axis, expected: AxisType, operand: OperandAt },
    /// A pair of source and result types that the function refuses.
    IllegalConversion { name: Name, source: String, result: String, expert: bool },
    /// `S(i)` of a tensor with fewer dims.
    ShardOutOfRange { dim: i64, rank: usize, operand: Option<OperandAt> },
    /// Two arguments that name different dims.
    DimConflict { name: Name, argument: Name, given: i64, shard: i64 },
    /// A dim that the ranks of the axis do not divide.
    UnevenShard { name: Name, axis: Axis, dim: usize, size: i64, ranks: u64 },
    /// `backward()` of a loss that is Replicate or Varying; or one that a loss function returns.
    BackwardLoss { axis: Axis, operand: OperandAt, returned: bool },
    /// A declared type that the value does not have.
    DeclaredMismatch { axis: Axis, what: Declared, declared: AxisState, found: OperandAt, declared_at: Place },
    /// `mutate_type` or a call with arguments that it refuses.
    BadArguments { name: Name, problem: ArgumentProblem },
    /// An annotation names something that is not there.
    UnknownInAnnotation { what: AnnotationName, name: Name, near: Option<Name> },
    /// An annotation that does not fit its place.
    AnnotationMisfit { problem: AnnotationProblem },
    /// A backward that is not the adjoint of its forward, whatever the types.
    NotAdjoint {
        class: Name,
        forward: Arc<Term>,
        backward: Arc<Term>,
        forward_at: Place,
        axes: AxisSet,
        nearest: Vec<Adjoint>,
    },
    /// A factor of the number of ranks in a forward or a backward, but not in both.
    ScaledOneWay {
        class: Name,
        forward: Arc<Term>,
        backward: Arc<Term>,
        in_forward: bool,
        forward_at: Place,
        axes: AxisSet,
    },
    /// A backward that multiplies the gradient of the result before it is exchanged.
    BeforeExchange { class: Name, argument: Name, forward_at: Place },
    /// A gradient is exchanged after its product with another argument (`early`: before), and the forward has it the other way round.
    Misordered {
        class: Name,
        argument: Name,
        other: Name,
        early: bool,
        /// Where the backward exchanges behind the product.
        exchanged: Option<Place>,
        forward_at: Place,
    },
    /// Forward and backward of a function communicate over different groups.
    OtherGroup { class: Name, forward: AxisSet, backward: AxisSet, forward_at: Place },
    /// A backward returns fewer gradients than the forward has arguments.
    GradientCount { class: Name, returned: usize, expected: usize },
    /// A backward with a gradient for an argument that is no tensor, or without one for the tensor that the result is made of.
    Misplaced { class: Name, given: Option<Name>, missing: Option<Name>, forward_at: Place },
    /// Declared types that forward and backward together do not have.
    DeclaredOther {
        class: Name,
        axes: AxisSet,
        derived: String,
        /// What a rule says of the function of this name, if not a comment declares it.
        ruled: Option<String>,
        forward: Arc<Term>,
        backward: Arc<Term>,
        forward_at: Place,
        backward_at: Place,
    },
    /// A collective without a gradient in a backward of which code says that it can be differentiated itself.
    RawInDoubleBackward { class: Name, claim: Place },
    /// The input of a layer that meets a split weight, where the function that sums the gradient of such an input (`copy`) is applied
    /// nowhere, and its counterpart (`sum`) is.
    CopyLeftOut { input: Name, axis: Axis, copy: Name, copy_at: Place, sum: Name },
    /// A docstring that names other collectives than the code has.
    DocClaim {
        name: Name,
        forward: Arc<Term>,
        backward: Arc<Term>,
        in_forward: bool,
        forward_at: Place,
        backward_at: Place,
    },
    /// An unregistered autograd function under strict checking.
    UnregisteredFunction { name: Name },
    /// A mistake that shows in how the code is written.
    Practice(Practice),
    /// Split dims that do not fit.
    Layout(Layout),
    /// Shardings that are declared apart from the code.
    Declaration(Declaration),
    /// Distributed tensors: meshes, placements, plans.
    Distributed(Distributed),
    /// An annotation of a tensor or a mesh of devices that does not hold.
    Sharding(Sharding),
}

impl FindingKind {
    /// The parameter without a mark whose gradient is what the finding is about.
    pub fn unmarked(&self) -> Option<&Name> {
        let FindingKind::Operator { violation: Violation::InvariantMixed, operands, .. } = self else { return None };
        let invariant = operands.iter().find(|o| o.state.set == AxisType::I)?;
        match &invariant.state.origin.as_ref()?.reason {
            crate::types::Reason::Unmarked(name) => Some(name),
            _ => None,
        }
    }

    /// Whether what is mixed is the local part of a replicated distributed tensor, which says nothing of its gradient.
    pub fn is_of_local_part(&self) -> bool {
        let FindingKind::Operator { violation: Violation::InvariantMixed, operands, .. } = self else { return false };
        operands.iter().filter(|o| o.state.set == AxisType::I).any(|o| {
            match o.state.origin.as_ref().map(|o| &o.reason) {
                Some(crate::types::Reason::Collective(name)) => name.ends_with("to_local"),
                _ => false,
            }
        })
    }

    /// Whether a value whose gradient nothing sums meets one that needs the sum.
    pub fn is_mixed(&self) -> bool {
        matches!(self, FindingKind::Operator { violation: Violation::InvariantMixed, .. })
    }

    /// Whether values are right, and only what comes back is not.
    pub fn is_of_gradients(&self) -> bool {
        match self {
            FindingKind::Operator { violation, .. } => *violation == Violation::InvariantMixed,
            FindingKind::CollectiveSource { .. } => self.unmarked_source().is_some(),
            _ => false,
        }
    }

    /// The axis on which types do not fit, if the finding is about types on one.
    pub fn axis(&self) -> Option<&Axis> {
        match self {
            FindingKind::Operator { axis, .. }
            | FindingKind::NormalisedParts { axis, .. }
            | FindingKind::InPlaceChange { axis, .. }
            | FindingKind::CollectiveSource { axis, .. }
            | FindingKind::CollectiveOutput { axis, .. }
            | FindingKind::BackwardLoss { axis, .. } => Some(axis),
            _ => None,
        }
    }

    /// Where the parameter without a mark was made from which an operand comes.
    pub fn unmarked_source(&self) -> Option<Place> {
        self.operands().iter().find_map(|o| o.state.origin.as_ref()?.unmarked())
    }

    /// Whether an operand has its type from what a collective at a place gives, or from what an operation there takes.
    pub fn rests_on(&self, place: Place) -> bool {
        self.operands().iter().any(|operand| {
            let mut at = operand.state.origin.as_ref();
            while let Some(origin) = at {
                let within = origin.place.file == place.file
                    && place.span.start <= origin.place.span.start
                    && origin.place.span.end <= place.span.end;
                match origin.reason {
                    crate::types::Reason::Collective(_) if origin.place == place => return true,
                    crate::types::Reason::Narrowed(_) if within => return true,
                    _ => at = origin.from.as_ref(),
                }
            }
            false
        })
    }

    fn operands(&self) -> &[OperandAt] {
        match self {
            FindingKind::Operator { operands, .. } => operands.as_slice(),
            FindingKind::CollectiveSource { operand, .. } | FindingKind::CollectiveOutput { operand, .. } => {
                std::slice::from_ref(operand)
            }
            _ => &[],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declared {
    /// A comment on a variable.
    Comment,
    /// A call in the code.
    Assertion,
    /// A parameter of a function with a declared signature.
    Argument,
    Return,
    /// The contract of the layer whose forward returns.
    Layer,
    /// The rule that types the function that returns.
    Ruled,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ArgumentProblem {
    /// A value that is no SPMD type where one is required.
    NotAType,
    /// An axis that the current mesh does not have.
    NotInMesh(AxisSet),
    /// A gradient would be summed in 16 bits without saying so.
    ReducedPrecision,
    MissingSource,
    MissingResult,
    /// Several axes shard one dim and no order is given.
    UnorderedShards(i8),
    /// The tensor has no type on the axis.
    NoType(Axis),
    /// A value with a gradient, where the gradient would be another one.
    RequiresGradient,
    /// A value, or what it is to become, that is not the same on all ranks of the axis.
    NotEqual(Axis),
    /// Layout claimed for a value of another type.
    ShardOf(Spmd),
    /// The split dim is counted from the end, which the run-time checker does not compare with the one that is split: that one.
    CountedFromEnd(i8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationName {
    Axis,
    Variable,
    Flag,
    Parameter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotationProblem {
    /// More types than targets.
    TooManyTypes,
    /// A spec with another number of entries than the tensor has dims.
    WrongRank { entries: usize, rank: usize },
    /// An axis twice in one spec.
    RepeatedAxis,
}
