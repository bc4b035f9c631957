//! Laws of the domain and of the operators, on every element. In: nothing. Out: a counterexample when a law does not hold.
//! Never: single examples. Next: `src/types/axis_type.rs`, `src/rules/operator.rs`.

mod support;

use rayon::prelude::*;
use spmd_check::rules::{Arg, Kind, Role, apply};
use spmd_check::types::{Axis, AxisState, AxisType, Factor, LocalType, Scale, Spmd, Tri};

fn sets() -> impl Iterator<Item = AxisType> {
    (0..16).map(AxisType::from_bits)
}

/// Every state of one axis: a set, and for a varying value the dim that is split.
fn states() -> Vec<AxisState> {
    sets().map(AxisState::new).chain([AxisState::shard(0), AxisState::shard(1)]).collect()
}

/// Types over one listed axis and the rest, from states that differ in all that matters.
fn types() -> Vec<LocalType> {
    let tp = Axis::new("tp");
    let some: Vec<AxisState> =
        [0, 1, 2, 3, 4, 8, 15].into_iter().map(|b| AxisState::new(AxisType::from_bits(b))).collect();
    let some: Vec<AxisState> = some.into_iter().chain([AxisState::shard(0), AxisState::shard(1)]).collect();
    let mut out = Vec::new();
    for rest in &some {
        let all = LocalType::everywhere(rest.clone());
        out.extend(some.iter().map(|state| all.clone().with(&tp, state.clone())));
        out.push(all);
    }
    out
}

#[test]
fn sets_are_a_lattice() {
    for a in sets() {
        assert_eq!(a.join(a), a);
        assert_eq!(a.meet(a), a);
        assert!(AxisType::EMPTY.leq(a) && a.leq(AxisType::ALL));
        assert_eq!(a.members().fold(AxisType::EMPTY, |set, t| set.join(t.into())), a);
        assert_eq!(a.known().is_some(), a.is_known());
        for b in sets() {
            assert_eq!(a.join(b), b.join(a));
            assert_eq!(a.meet(b), b.meet(a));
            assert_eq!(a.join(a.meet(b)), a, "absorption of {a} and {b}");
            assert_eq!(a.meet(a.join(b)), a, "absorption of {a} and {b}");
            assert_eq!(a.leq(b), a.join(b) == b);
            assert_eq!(a.leq(b), a.meet(b) == a);
            assert_eq!(a.without(b).join(a.meet(b)), a);
            for c in sets() {
                assert_eq!(a.join(b).join(c), a.join(b.join(c)));
                assert_eq!(a.meet(b).meet(c), a.meet(b.meet(c)));
                assert_eq!(a.meet(b.join(c)), a.meet(b).join(a.meet(c)), "distributive: {a}, {b}, {c}");
            }
        }
    }
}

#[test]
fn the_dual_is_an_involution() {
    for t in Spmd::ALL {
        assert_eq!(t.dual().dual(), t);
    }
}

#[test]
fn states_join_to_the_least_upper_bound() {
    let all = states();
    for a in &all {
        assert_eq!(a.join(a), *a);
        assert!(a.leq(a) && a.leq(&AxisState::UNKNOWN));
        for b in &all {
            let ab = a.join(b);
            assert_eq!(ab, b.join(a));
            assert!(a.leq(&ab) && b.leq(&ab), "{a:?} and {b:?} are below {ab:?}");
            assert!(!(a.leq(b) && b.leq(a)) || a == b, "{a:?} and {b:?} are below each other");
            for c in &all {
                assert_eq!(ab.join(c), a.join(&b.join(c)), "{a:?}, {b:?}, {c:?}");
                assert!(!(a.leq(b) && b.leq(c)) || a.leq(c), "{a:?}, {b:?}, {c:?}");
                assert!(!(a.leq(c) && b.leq(c)) || ab.leq(c), "{ab:?} is not the least above {a:?} and {b:?}: {c:?}");
                assert!(!a.leq(b) || a.join(c).leq(&b.join(c)), "join with {c:?} is not monotone: {a:?}, {b:?}");
            }
        }
    }
}

#[test]
fn types_join_to_the_least_upper_bound() {
    let all = types();
    let same = |a: &LocalType, b: &LocalType| a.leq(b) && b.leq(a);
    all.par_iter().for_each(|a| {
        assert!(same(&a.join(a), a));
        assert!(a.leq(&LocalType::unknown()));
        for b in &all {
            let ab = a.join(b);
            assert!(same(&ab, &b.join(a)), "{a:?} and {b:?}");
            assert!(a.leq(&ab) && b.leq(&ab), "{a:?} and {b:?} are below {ab:?}");
            for c in &all {
                assert!(same(&ab.join(c), &a.join(&b.join(c))), "{a:?}, {b:?}, {c:?}");
                assert!(!(a.leq(c) && b.leq(c)) || ab.leq(c), "{ab:?} is not the least above {a:?} and {b:?}: {c:?}");
                assert!(!a.leq(b) || a.join(c).leq(&b.join(c)), "join with {c:?} is not monotone: {a:?}, {b:?}");
            }
        }
    });
}

const KINDS: [Kind; 7] =
    [Kind::Nonlinear, Kind::Linear, Kind::Multilinear, Kind::Division, Kind::Affine, Kind::LinearLayer, Kind::Select];
const ROLES: [Role; 4] = [Role::Term, Role::Divisor, Role::Index, Role::Number];
const GRADS: [Tri; 2] = [Tri::Yes, Tri::No];

/// An operator with everything but the sets of its three operands.
#[derive(Clone, Copy, Debug)]
struct Shape {
    kind: Kind,
    roles: [Role; 3],
    grads: [Tri; 3],
}

fn shapes() -> Vec<Shape> {
    let mut out = Vec::new();
    for kind in KINDS {
        for number in 0..64 * 8 {
            let (r, g) = (number / 8, number % 8);
            let roles = [ROLES[r / 16], ROLES[r / 4 % 4], ROLES[r % 4]];
            out.push(Shape { kind, roles, grads: [GRADS[g / 4], GRADS[g / 2 % 2], GRADS[g % 2]] });
        }
    }
    out
}

/// The members of three sets, four bits each; the result behind them. None: a violation.
type Outcome = Option<(AxisType, Vec<AxisType>)>;

fn operands(index: usize) -> [AxisType; 3] {
    [index >> 8, index >> 4, index].map(|bits| AxisType::from_bits((bits & 15) as u8))
}

fn outcomes(shape: Shape) -> Vec<Outcome> {
    let outcome = |index: usize| {
        let sets = operands(index);
        if sets.iter().any(|set| set.is_empty()) {
            return None;
        }
        let args = [0, 1, 2].map(|i| Arg { set: sets[i], grad: shape.grads[i], role: shape.roles[i] });
        apply(shape.kind, &args).ok().map(|applied| (applied.result, applied.narrowed))
    };
    (0..1 << 12).map(outcome).collect()
}

/// A larger operand never gives a smaller result, a narrower operand, or a violation where there was none; narrowed operands are
/// subsets that give the same result; every result has a cause in known types.
#[test]
fn operators_are_monotone_in_three_operands() {
    shapes().par_iter().for_each(|shape| {
        let outcomes = outcomes(*shape);
        for (index, small) in outcomes.iter().enumerate() {
            let Some((result, narrowed)) = small else { continue };
            for (set, narrowed) in operands(index).iter().zip(narrowed) {
                assert!(narrowed.leq(*set) && !narrowed.is_empty(), "{shape:?} {:?}", operands(index));
            }
            let again = narrowed.iter().fold(0, |index, set| index << 4 | usize::from(set.bits()));
            let again = outcomes[again].as_ref().map(|(result, _)| *result);
            assert_eq!(again, Some(*result), "{shape:?} {:?} narrowed to {narrowed:?}", operands(index));
            for bit in (0..12).filter(|bit| index & 1 << bit == 0) {
                let larger = index | 1 << bit;
                let text = || format!("{shape:?}: {:?} against {:?}", operands(index), operands(larger));
                let Some((other, wider)) = &outcomes[larger] else { panic!("a violation appears: {}", text()) };
                assert!(result.leq(*other), "a smaller result: {}", text());
                assert!(narrowed.iter().zip(wider).all(|(a, b)| a.leq(*b)), "narrower operands: {}", text());
            }
        }
    });
}

/// An operand of which it is not known whether it can receive a gradient is treated as one that can.
#[test]
fn a_gradient_that_is_not_known_counts() {
    for kind in KINDS {
        for index in 0..=u8::MAX {
            let sets = [AxisType::from_bits(index >> 4), AxisType::from_bits(index & 15)];
            for (first, second) in ROLES.iter().flat_map(|a| ROLES.iter().map(move |b| (*a, *b))) {
                let args = |grad| {
                    let (a, b) = (sets[0], sets[1]);
                    [Arg { set: a, grad, role: first }, Arg { set: b, grad: Tri::No, role: second }]
                };
                assert_eq!(apply(kind, &args(Tri::Unknown)), apply(kind, &args(Tri::Yes)), "{kind:?} {sets:?}");
            }
        }
    }
}

/// Factors over two axes, a count and a number, with powers up to two, and what is not known.
fn scales() -> Vec<Scale> {
    let of = |n: &str| Scale::of(Factor::Size(Axis::new(n)));
    let tokens = Scale::of(Factor::Count("tokens".into()));
    let mut out = vec![Scale::Unknown, Scale::integer(0), Scale::float(0.25), Scale::float(-1.5)];
    for dp in -2..=2 {
        for cp in -1..=1 {
            for count in -1..=1 {
                for number in [1, 2] {
                    let powers = of("dp").power(dp).times(&of("cp").power(cp)).times(&tokens.power(count));
                    out.push(powers.times(&Scale::integer(number)));
                }
            }
        }
    }
    out
}

#[test]
fn scales_are_a_group_with_an_absorbing_element() {
    let all = scales();
    for a in &all {
        assert_eq!(a.times(&Scale::one()), *a);
        assert_eq!(a.times(&Scale::Unknown), Scale::Unknown);
        assert_eq!(a.inverse().inverse(), *a);
        assert_eq!(a.power(0), Scale::one());
        assert_eq!(a.power(2), a.times(a));
        assert_eq!(a.power(-1), a.inverse());
        if let Some(m) = a.known() {
            assert_eq!(a.over(a), Scale::one());
            assert!(m.powers().all(|(_, n)| n != 0), "{a} keeps a power of zero");
            assert_eq!(m.is_number(), m.degree() == 0);
        }
        for b in &all {
            assert_eq!(a.times(b), b.times(a));
            assert_eq!(a.times(b).inverse(), a.inverse().times(&b.inverse()));
        }
    }
    for a in all.iter().step_by(3) {
        for b in all.iter().step_by(2) {
            for c in &all {
                assert_eq!(a.times(b).times(c), a.times(&b.times(c)), "{a}, {b}, {c}");
            }
        }
    }
}

#[test]
fn scales_are_a_flat_semilattice() {
    let all = scales();
    for a in &all {
        assert_eq!(a.join(a), *a);
        for b in &all {
            assert_eq!(a.join(b), b.join(a));
            assert_eq!(a.leq(b), a.join(b) == *b);
            assert!(a.leq(&a.join(b)) && b.leq(&a.join(b)));
            for c in all.iter().step_by(5) {
                assert_eq!(a.join(b).join(c), a.join(&b.join(c)));
                // Multiplication keeps the order.
                assert!(!a.leq(b) || a.times(c).leq(&b.times(c)), "{a}, {b}, {c}");
            }
        }
    }
}

#[test]
fn replacing_a_size_is_substitution() {
    let dp = Factor::Size(Axis::new("dp"));
    let parts = Scale::size(&[Axis::new("replicate"), Axis::new("shard")].into_iter().collect());
    let all = scales();
    for a in &all {
        assert_eq!(a.replace(&dp, &Scale::of(dp.clone())), *a);
        assert!(a.replace(&dp, &parts).known().is_none_or(|m| m.power(&dp) == 0));
        for b in &all {
            assert_eq!(a.times(b).replace(&dp, &parts), a.replace(&dp, &parts).times(&b.replace(&dp, &parts)));
        }
    }
}
