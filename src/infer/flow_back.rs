//! Types that flow back: what is learned of a result by its use says something of what it was computed from. In: operations as they are
//! executed, and narrowed results. Out: narrowed operands. Never: a finding; an operand that was written since, an operation before
//! paths met, one whose result depends on more than its operands, a parameter. Source: DESIGN.md section 5, "use narrows". Next: `ops.rs`.

use super::machine::Machine;
use super::ops::OpCall;
use super::value::{ObjId, Value};
use crate::rules::{Arg, Kind, OpClass, Role, apply};
use crate::types::{Axis, AxisState, AxisType, Tri};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Operations that one use is followed back through.
const MOST_STEPS: usize = 24;
/// Operands of an operation that is followed; one of more is a list of things that have little to do with each other.
const MOST_OPERANDS: usize = 4;

/// An operand, as far as it can be narrowed later.
#[derive(Clone, Debug)]
struct Source {
    id: Option<ObjId>,
    role: Role,
}

/// How a tensor was computed.
#[derive(Clone, Debug)]
struct Made {
    kind: Kind,
    operands: SmallVec<[Source; 3]>,
}

/// How the tensors of a root were computed, by the number of the result; numbers grow with time.
#[derive(Debug, Default)]
pub struct Producers {
    /// In the order of the numbers.
    made: Vec<(ObjId, Made)>,
    /// The next number when a tensor was last written.
    written: FxHashMap<ObjId, u32>,
}

impl Producers {
    /// How a tensor was computed, if it is still what was computed.
    fn of(&self, result: ObjId) -> Option<&Made> {
        let at = self.made.binary_search_by_key(&result, |(id, _)| *id).ok()?;
        (!self.is_written(result, result)).then(|| &self.made[at].1)
    }

    /// Whether a tensor was written after another one was made.
    fn is_written(&self, id: ObjId, made: ObjId) -> bool {
        self.written.get(&id).is_some_and(|at| *at > made.0)
    }
}

impl Machine<'_> {
    /// Remembers what the result of an operation was computed from.
    pub fn note_made(&mut self, call: &OpCall<'_>, by_rank: bool, value: &Value) {
        let (OpClass::Plain(kind), Value::Tensor(result)) = (call.rule.class, value) else { return };
        let plain = self.w.modes.typecheck.is_none() && self.deriving.is_none() && !self.is_global();
        let followed = call.operands.len() <= MOST_OPERANDS && call.operands.iter().any(|o| o.id.is_some());
        if !plain || !followed || by_rank || call.lost || call.rule.in_place {
            return;
        }
        let source = |o: &super::ops::Operand| Source { id: o.id, role: o.role };
        let operands = call.operands.iter().map(source).collect();
        self.producers.made.push((*result, Made { kind, operands }));
    }

    /// A tensor is written: what was computed from it before says nothing of it any more, nor how it was computed itself.
    pub fn note_written(&mut self, id: ObjId) {
        let base = self.w.heap.tensor(id).and_then(|t| t.view_of).map(ObjId);
        for id in base.into_iter().chain([id]) {
            self.producers.written.insert(id, self.next_id);
        }
    }

    /// Narrows what a tensor was computed from, after the tensor itself was narrowed on an axis.
    pub fn narrow_back(&mut self, narrowed: ObjId, axis: &Axis) {
        let mut work: SmallVec<[ObjId; 8]> = SmallVec::from_slice(&[narrowed]);
        let mut steps = 0;
        while let Some(result) = work.pop() {
            steps += 1;
            // What was computed before paths met may be what only one of them computed.
            if steps > MOST_STEPS || result.0 < self.w.met {
                return;
            }
            let Some(made) = self.producers.of(result).cloned() else { continue };
            let Some(state) = self.w.heap.tensor(result).map(|t| t.local.get(axis).clone()) else { continue };
            self.narrow_operands(result, &made, axis, &state, &mut work);
        }
    }

    /// Leaves the operands of an operation the members that can give the result.
    fn narrow_operands(
        &mut self,
        result: ObjId,
        made: &Made,
        axis: &Axis,
        state: &AxisState,
        work: &mut SmallVec<[ObjId; 8]>,
    ) {
        let now = |id: ObjId| self.w.heap.tensor(id).map(|t| t.local.get(axis).clone());
        let states: SmallVec<[AxisState; 3]> =
            made.operands.iter().map(|o| o.id.and_then(now).unwrap_or(AxisState::UNKNOWN)).collect();
        let known = |s: &AxisState| s.is_unmarked() || s.is_whole() || s.set.is_empty();
        if states.iter().any(known) || states.iter().all(|s| s.set.known().is_some()) {
            return;
        }
        let wanted = wanted(state.set, made.kind);
        let mut args: SmallVec<[Arg; 3]> =
            made.operands.iter().zip(&states).map(|(o, s)| Arg { set: s.set, grad: Tri::No, role: o.role }).collect();
        for (i, operand) in made.operands.iter().enumerate() {
            let Some(id) = operand.id.filter(|_| matches!(operand.role, Role::Term | Role::Divisor)) else { continue };
            let whole = args[i].set;
            if whole.known().is_some() || self.producers.is_written(id, result) {
                continue;
            }
            let mut left = AxisType::EMPTY;
            for member in whole.members() {
                args[i].set = member.into();
                let fits = apply(made.kind, &args).is_ok_and(|a| !a.result.meet(wanted).is_empty());
                left = if fits { left.join(member.into()) } else { left };
            }
            args[i].set = whole;
            if left == whole || left.is_empty() {
                continue;
            }
            // Who sums the gradient of a parameter is not told by one use.
            let Some(mut t) = self.w.heap.tensor(id).filter(|t| t.home.is_none()).cloned() else { continue };
            let before = states[i].clone();
            t.local.set(axis, AxisState { set: left, origin: state.origin.clone(), ..before });
            self.retype_quietly(id, t);
            args[i].set = left;
            work.push(id);
        }
    }
}

/// What an operation may have given that is now one of these: a product over a split dim is Varying for the table and a pending sum in
/// truth; and whether equal values are Replicate or Invariant is a question of gradients, which is left to where they meet others.
fn wanted(set: AxisType, kind: Kind) -> AxisType {
    let product = matches!(kind, Kind::Multilinear | Kind::LinearLayer | Kind::Affine);
    let split = if product && !set.meet(AxisType::P).is_empty() { AxisType::V } else { AxisType::EMPTY };
    let equal = if set.meet(AxisType::EQUAL).is_empty() { AxisType::EMPTY } else { AxisType::EQUAL };
    set.join(split).join(equal)
}
