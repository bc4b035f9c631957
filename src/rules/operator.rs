//! What a non-communicating operator does to the types of its operands on one axis.
//!
//! In: the operator's [`Kind`], and for each operand a set of types, whether it can receive a gradient, and its [`Role`].
//! Out: the set of result types and the operands narrowed to the members that took part in a legal combination, or the reason why
//! there is none. Never: spans, words, tensors. Next: `shapes.rs`.
//!
//! ```text
//! op(R..) -> R    op(I..) -> I    op(R.., V..) -> V     I mixes with nothing else
//! an operand that cannot receive a gradient and is R or I adopts the flavour of those that can
//! linear: all P -> P        multilinear: one P, the rest R or numbers -> P        non-linear: P is an error
//! ```
//! Source: DESIGN.md section 4; spmd_types 0.3.1 `_checker._infer_local_type_for_axis_raw`.

use crate::types::{AxisType, Spmd, Tri};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// How an operator acts on a pending sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Nonlinear,
    Linear,
    Multilinear,
    /// Multilinear, and operands with the role [`Role::Divisor`] enter non-linearly.
    Division,
    /// The first operand plus the product of the others (`addmm`).
    Affine,
    /// The product of the first two operands plus the third (`linear` with a bias).
    LinearLayer,
    /// Linear in the operands; operands with the role [`Role::Index`] only choose among them.
    Select,
}

/// How an operand enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Term,
    Divisor,
    Index,
    /// A Python number: compatible with R, I and V; with P only as a factor.
    Number,
}

/// One operand on one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arg {
    pub set: AxisType,
    /// Whether it can receive a gradient from this operation; `Unknown` is treated as if it can.
    pub grad: Tri,
    pub role: Role,
}

/// Why no combination of members is legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Violation {
    /// I with another type.
    InvariantMixed,
    /// P with V.
    PartialWithVarying,
    /// P into a non-linear operation.
    PartialNonlinear,
    /// P with R or a number in a linear operation.
    PartialAffine,
    /// Two P factors.
    PartialTwice,
    /// P as a divisor.
    PartialDivisor,
}

/// The outcome for one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub result: AxisType,
    /// For each operand: the members that take part in a legal combination.
    pub narrowed: Vec<AxisType>,
}

/// A concrete operand: one type, whether it cannot receive a gradient, its role.
#[derive(Clone, Copy, Debug)]
struct Concrete {
    t: Spmd,
    no_grad: bool,
    role: Role,
}

/// What a prefix of operands amounts to; two prefixes with the same summary behave the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Summary {
    /// Types of the operands that can receive a gradient.
    with_grad: AxisType,
    without_grad: AxisType,
    /// Number of P operands, up to 2.
    partials: u8,
    divisor: bool,
    index_partial: bool,
    number: bool,
}

impl Summary {
    const EMPTY: Summary = Summary {
        with_grad: AxisType::EMPTY,
        without_grad: AxisType::EMPTY,
        partials: 0,
        divisor: false,
        index_partial: false,
        number: false,
    };

    fn add(mut self, arg: Concrete) -> Summary {
        if arg.role == Role::Number {
            self.number = true;
            return self;
        }
        if arg.no_grad {
            self.without_grad = self.without_grad.join(arg.t.into());
        } else {
            self.with_grad = self.with_grad.join(arg.t.into());
        }
        if arg.t == Spmd::Partial {
            match arg.role {
                Role::Term | Role::Number => self.partials = (self.partials + 1).min(2),
                Role::Divisor => self.divisor = true,
                Role::Index => self.index_partial = true,
            }
        }
        self
    }

    /// The types after operands without gradient adopted the flavour of those with one.
    fn types(self) -> AxisType {
        let all = self.with_grad.join(self.without_grad);
        if !all.contains(Spmd::Invariant) || all == AxisType::I {
            return all;
        }
        let flavours = self.with_grad.meet(AxisType::EQUAL);
        if flavours == AxisType::EQUAL {
            return all;
        }
        let flavour = if flavours == AxisType::I { AxisType::I } else { AxisType::R };
        let adopted = if self.without_grad.meet(AxisType::EQUAL).is_empty() { AxisType::EMPTY } else { flavour };
        self.with_grad.join(self.without_grad.without(AxisType::EQUAL)).join(adopted)
    }

    fn outcome(self, kind: Kind) -> Result<Spmd, Violation> {
        let types = self.types();
        if types.leq(AxisType::R) {
            return Ok(Spmd::Replicate);
        }
        if types == AxisType::I {
            return Ok(Spmd::Invariant);
        }
        if types.contains(Spmd::Invariant) {
            // One term of a sum and a whole value: it is counted once per rank.
            let added = kind == Kind::Linear && types == AxisType::I.join(AxisType::P);
            return Err(if added { Violation::PartialAffine } else { Violation::InvariantMixed });
        }
        if !types.contains(Spmd::Partial) {
            return Ok(Spmd::Varying);
        }
        if types.contains(Spmd::Varying) {
            return Err(Violation::PartialWithVarying);
        }
        if self.divisor {
            return Err(Violation::PartialDivisor);
        }
        if self.index_partial {
            return Err(Violation::PartialNonlinear);
        }
        let affine = types.contains(Spmd::Replicate) || self.number;
        match kind {
            Kind::Nonlinear => Err(Violation::PartialNonlinear),
            Kind::Linear if affine => Err(Violation::PartialAffine),
            Kind::Multilinear | Kind::Division if self.partials > 1 => Err(Violation::PartialTwice),
            Kind::Linear | Kind::Multilinear | Kind::Division | Kind::Select | Kind::Affine | Kind::LinearLayer => {
                Ok(Spmd::Partial)
            }
        }
    }
}

/// Types a whole combination of single types.
fn eval(kind: Kind, args: &[Concrete]) -> Result<Spmd, Violation> {
    let fold = |args: &[Concrete], kind| args.iter().fold(Summary::EMPTY, |s, a| s.add(*a)).outcome(kind);
    let (product, addend) = match kind {
        Kind::Affine if args.len() > 1 => (&args[1..], &args[..1]),
        Kind::LinearLayer if args.len() > 2 => (&args[..2], &args[2..]),
        Kind::Affine | Kind::LinearLayer => return fold(args, Kind::Multilinear),
        Kind::Select => return eval_select(args),
        Kind::Nonlinear | Kind::Linear | Kind::Multilinear | Kind::Division => return fold(args, kind),
    };
    let t = fold(product, Kind::Multilinear)?;
    let no_grad = product.iter().all(|a| a.no_grad);
    let mut sum: SmallVec<[Concrete; MAX_ENUMERATED]> = smallvec![Concrete { t, no_grad, role: Role::Term }];
    sum.extend_from_slice(addend);
    fold(&sum, Kind::Linear)
}

/// Linear in the terms; index operands count as operands without gradient, and an equal index leaves a P term P.
fn eval_select(args: &[Concrete]) -> Result<Spmd, Violation> {
    let terms: SmallVec<[Concrete; MAX_ENUMERATED]> = args.iter().filter(|a| a.role != Role::Index).copied().collect();
    let value = terms.iter().fold(Summary::EMPTY, |s, a| s.add(*a));
    let value = Summary { number: false, ..value }.outcome(Kind::Linear)?;
    let whole = args.iter().filter(|a| a.role == Role::Index).fold(
        Summary::EMPTY.add(Concrete { t: value, no_grad: terms.iter().all(|a| a.no_grad), role: Role::Term }),
        |s, a| s.add(Concrete { no_grad: true, ..*a }),
    );
    whole.outcome(Kind::Select)
}

/// Applies a rule to sets: every combination of members is tried, the legal ones give the result and narrow the operands.
///
/// # Errors
/// The violation of the first combination, when none is legal.
pub fn apply(kind: Kind, args: &[Arg]) -> Result<Applied, Violation> {
    match kind {
        Kind::Nonlinear | Kind::Linear | Kind::Multilinear | Kind::Division => apply_folded(kind, args),
        Kind::Affine | Kind::LinearLayer | Kind::Select if args.len() <= MAX_ENUMERATED => apply_enumerated(kind, args),
        Kind::Affine | Kind::LinearLayer => apply_folded(Kind::Multilinear, args),
        Kind::Select => apply_folded(Kind::Linear, args),
    }
}

/// What was made of combinations of sets before: most operations meet the same few.
#[derive(Debug, Default)]
pub struct Applications(FxHashMap<u64, Arc<Result<Applied, Violation>>>);

impl Applications {
    /// The same as [`apply`], worked out once for each combination.
    pub fn apply(&mut self, kind: Kind, args: &[Arg]) -> Arc<Result<Applied, Violation>> {
        let run = || Arc::new(apply(kind, args));
        match key_of(kind, args) {
            Some(key) => self.0.entry(key).or_insert_with(run).clone(),
            None => run(),
        }
    }
}

/// A combination of operands as a number, if they are few: a byte for each, and one for the kind.
fn key_of(kind: Kind, args: &[Arg]) -> Option<u64> {
    let byte = |arg: &Arg| u64::from(arg.set.bits()) | (arg.grad as u64) << 4 | (arg.role as u64) << 6;
    (args.len() < size_of::<u64>()).then(|| args.iter().fold(1 << 3 | kind as u64, |key, arg| key << 8 | byte(arg)))
}

/// Above this number of operands a combination of nested rules is approximated by its outer one.
const MAX_ENUMERATED: usize = 6;

/// At most one for each type.
type Forms = SmallVec<[Concrete; 4]>;
/// Those of the operands of most operations.
type AllForms = SmallVec<[Forms; 4]>;

/// The concrete forms of one operand: a number has one, the others one for each member of the set.
fn forms(arg: &Arg) -> Forms {
    if arg.role == Role::Number {
        return smallvec![Concrete { t: Spmd::Replicate, no_grad: true, role: Role::Number }];
    }
    let no_grad = arg.grad == Tri::No;
    arg.set.members().map(|t| Concrete { t, no_grad, role: arg.role }).collect()
}

/// By summaries of prefixes: the number of distinct ones is small and does not grow with the operands.
fn apply_folded(kind: Kind, args: &[Arg]) -> Result<Applied, Violation> {
    let forms: AllForms = args.iter().map(forms).collect();
    let all = reach(&forms, None);
    let outcomes: SmallVec<[Result<Spmd, Violation>; REACHED]> = all.iter().map(|s| s.outcome(kind)).collect();
    let result = union(outcomes.iter().filter_map(|o| o.ok()));
    if result.is_empty() {
        return Err(outcomes.iter().find_map(|o| o.err()).unwrap_or(Violation::InvariantMixed));
    }
    if outcomes.iter().all(Result::is_ok) {
        return Ok(Applied { result, narrowed: args.iter().map(|a| a.set).collect() });
    }
    let narrowed = (0..args.len())
        .map(|i| match args[i].role {
            Role::Number => args[i].set,
            _ => union(
                forms[i]
                    .iter()
                    .filter(|f| reach(&forms, Some((i, **f))).iter().any(|s| s.outcome(kind).is_ok()))
                    .map(|f| f.t),
            ),
        })
        .collect();
    Ok(Applied { result, narrowed })
}

/// Summaries that are reached without memory of their own: those of two operands.
const REACHED: usize = 16;

/// Summaries reachable over all combinations, with one operand optionally held fixed.
fn reach(forms: &[Forms], fixed: Option<(usize, Concrete)>) -> SmallVec<[Summary; REACHED]> {
    let mut reached: SmallVec<[Summary; REACHED]> = smallvec![Summary::EMPTY];
    for (i, options) in forms.iter().enumerate() {
        let one;
        let options: &[Concrete] = match fixed {
            Some((at, form)) if at == i => {
                one = [form];
                &one
            }
            _ => options,
        };
        let mut next: SmallVec<[Summary; REACHED]> = SmallVec::new();
        for s in &reached {
            for o in options {
                let s = s.add(*o);
                if !next.contains(&s) {
                    next.push(s);
                }
            }
        }
        reached = next;
    }
    // The first violation is that of the least summary, however the operands are ordered.
    reached.sort_unstable();
    reached
}

fn apply_enumerated(kind: Kind, args: &[Arg]) -> Result<Applied, Violation> {
    let forms: AllForms = args.iter().map(forms).collect();
    let mut result = AxisType::EMPTY;
    let mut narrowed: Vec<AxisType> = vec![AxisType::EMPTY; args.len()];
    let mut first = None;
    let mut pick = vec![0usize; args.len()];
    if forms.iter().any(|f| f.is_empty()) {
        return Ok(Applied { result: AxisType::ALL, narrowed: args.iter().map(|a| a.set).collect() });
    }
    loop {
        let combination: SmallVec<[Concrete; MAX_ENUMERATED]> = pick.iter().zip(&forms).map(|(p, f)| f[*p]).collect();
        match eval(kind, &combination) {
            Ok(t) => {
                result = result.join(t.into());
                for (n, c) in narrowed.iter_mut().zip(&combination) {
                    *n = n.join(c.t.into());
                }
            }
            Err(v) => first = first.or(Some(v)),
        }
        if !advance(&mut pick, &forms) {
            break;
        }
    }
    for (n, a) in narrowed.iter_mut().zip(args) {
        if a.role == Role::Number {
            *n = a.set;
        }
    }
    match (result.is_empty(), first) {
        (true, Some(violation)) => Err(violation),
        _ => Ok(Applied { result, narrowed }),
    }
}

/// The next combination, in mixed radix; false after the last.
fn advance(pick: &mut [usize], forms: &[Forms]) -> bool {
    for (p, f) in pick.iter_mut().zip(forms) {
        *p += 1;
        if *p < f.len() {
            return true;
        }
        *p = 0;
    }
    false
}

fn union(types: impl Iterator<Item = Spmd>) -> AxisType {
    types.fold(AxisType::EMPTY, |set, t| set.join(t.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 7] = [
        Kind::Nonlinear,
        Kind::Linear,
        Kind::Multilinear,
        Kind::Division,
        Kind::Affine,
        Kind::LinearLayer,
        Kind::Select,
    ];

    fn all_args() -> Vec<Arg> {
        let mut out = Vec::new();
        for bits in 1..16 {
            for grad in [Tri::Yes, Tri::No] {
                out.push(Arg { set: AxisType::from_bits(bits), grad, role: Role::Term });
            }
        }
        out
    }

    /// Folding over summaries gives what enumerating all combinations gives.
    #[test]
    fn folding_equals_enumeration() {
        let args = all_args();
        for kind in &KINDS[..4] {
            for a in &args {
                for b in &args {
                    for role in [Role::Term, Role::Divisor, Role::Number] {
                        let operands = [*a, Arg { role, ..*b }];
                        let folded = apply_folded(*kind, &operands);
                        let listed = apply_enumerated(*kind, &operands);
                        match (folded, listed) {
                            (Ok(f), Ok(l)) => assert_eq!(f, l, "{kind:?} {operands:?}"),
                            (Err(_), Err(_)) => {}
                            (f, l) => panic!("{kind:?} {operands:?}: {f:?} against {l:?}"),
                        }
                    }
                }
            }
        }
    }

    /// A larger operand set never gives a smaller result, and never turns a legal operation into an error.
    #[test]
    fn every_rule_is_monotone() {
        let args = all_args();
        for kind in KINDS {
            for a in &args {
                for b in &args {
                    let small = apply(kind, &[*a, *b]);
                    for bits in 1..16 {
                        let larger = Arg { set: a.set.join(AxisType::from_bits(bits)), ..*a };
                        let large = apply(kind, &[larger, *b]);
                        match (&small, large) {
                            (Ok(s), Ok(l)) => {
                                assert!(s.result.leq(l.result), "{kind:?} {a:?} {b:?} {larger:?}");
                                assert!(s.narrowed[1].leq(l.narrowed[1]), "{kind:?} {a:?} {b:?} {larger:?}");
                            }
                            (Ok(_), Err(v)) => panic!("{kind:?} {a:?} {b:?}: {larger:?} is {v:?}"),
                            (Err(_), _) => {}
                        }
                    }
                }
            }
        }
    }

    /// Narrowed operands give the same result: narrowing loses nothing.
    #[test]
    fn narrowing_keeps_the_result() {
        let args = all_args();
        for kind in KINDS {
            for a in &args {
                for b in &args {
                    if let Ok(applied) = apply(kind, &[*a, *b]) {
                        let again = [Arg { set: applied.narrowed[0], ..*a }, Arg { set: applied.narrowed[1], ..*b }];
                        assert_eq!(apply(kind, &again).map(|x| x.result), Ok(applied.result), "{kind:?} {a:?} {b:?}");
                    }
                }
            }
        }
    }
}
