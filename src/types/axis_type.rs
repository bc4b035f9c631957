//! A static type on one mesh axis: a set of the four local SPMD types.
//!
//! In: members. Out: a 4-bit mask with join (union), meet (intersection) and the order (inclusion). One bit: known; all bits:
//! unknown; no bit: a contradiction. Never: refinement by shard dim, see `local_type.rs`. Source: DESIGN.md section 2.

use std::fmt;

/// One of the four local SPMD types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spmd {
    Replicate,
    Invariant,
    Varying,
    Partial,
}

impl Spmd {
    pub const ALL: [Spmd; 4] = [Spmd::Replicate, Spmd::Invariant, Spmd::Varying, Spmd::Partial];

    pub fn letter(self) -> char {
        match self {
            Spmd::Replicate => 'R',
            Spmd::Invariant => 'I',
            Spmd::Varying => 'V',
            Spmd::Partial => 'P',
        }
    }

    /// The name used in messages.
    pub fn word(self) -> &'static str {
        match self {
            Spmd::Replicate => "Replicate",
            Spmd::Invariant => "Invariant",
            Spmd::Varying => "Varying",
            Spmd::Partial => "Partial",
        }
    }

    /// The type that the gradient has: R and P are dual, I and V are their own duals.
    pub fn dual(self) -> Spmd {
        match self {
            Spmd::Replicate => Spmd::Partial,
            Spmd::Partial => Spmd::Replicate,
            Spmd::Invariant => Spmd::Invariant,
            Spmd::Varying => Spmd::Varying,
        }
    }

    fn bit(self) -> u8 {
        match self {
            Spmd::Replicate => 1,
            Spmd::Invariant => 2,
            Spmd::Varying => 4,
            Spmd::Partial => 8,
        }
    }
}

/// A set of local SPMD types.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AxisType(u8);

impl AxisType {
    /// The contradiction.
    pub const EMPTY: AxisType = AxisType(0);
    /// Unknown.
    pub const ALL: AxisType = AxisType(15);
    pub const R: AxisType = AxisType(1);
    pub const I: AxisType = AxisType(2);
    pub const V: AxisType = AxisType(4);
    pub const P: AxisType = AxisType(8);
    /// Equal values on all ranks.
    pub const EQUAL: AxisType = AxisType(3);

    /// The set with these bits (R = 1, I = 2, V = 4, P = 8).
    pub fn from_bits(bits: u8) -> AxisType {
        AxisType(bits & 15)
    }
    pub fn bits(self) -> u8 {
        self.0
    }
    pub fn one(t: Spmd) -> AxisType {
        AxisType(t.bit())
    }
    pub fn contains(self, t: Spmd) -> bool {
        self.0 & t.bit() != 0
    }
    /// The members, in the order R, I, V, P.
    pub fn members(self) -> impl Iterator<Item = Spmd> {
        Spmd::ALL.into_iter().filter(move |t| self.contains(*t))
    }
    /// The only member, if there is exactly one.
    pub fn known(self) -> Option<Spmd> {
        let mut members = self.members();
        match (members.next(), members.next()) {
            (Some(t), None) => Some(t),
            _ => None,
        }
    }
    pub fn is_known(self) -> bool {
        self.0.count_ones() == 1
    }
    pub fn is_unknown(self) -> bool {
        self.0 == 15
    }
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Least upper bound: union.
    #[must_use]
    pub fn join(self, other: AxisType) -> AxisType {
        AxisType(self.0 | other.0)
    }
    /// Greatest lower bound: intersection.
    #[must_use]
    pub fn meet(self, other: AxisType) -> AxisType {
        AxisType(self.0 & other.0)
    }
    #[must_use]
    pub fn without(self, other: AxisType) -> AxisType {
        AxisType(self.0 & !other.0)
    }
    /// The order of the lattice: inclusion.
    pub fn leq(self, other: AxisType) -> bool {
        self.0 & !other.0 == 0
    }
}

impl From<Spmd> for AxisType {
    fn from(t: Spmd) -> AxisType {
        AxisType::one(t)
    }
}

impl fmt::Display for AxisType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        for (i, t) in self.members().enumerate() {
            if i > 0 {
                f.write_str("|")?;
            }
            write!(f, "{}", t.letter())?;
        }
        Ok(())
    }
}

impl fmt::Debug for AxisType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
