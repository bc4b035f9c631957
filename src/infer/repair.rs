//! Candidate repairs of a mistake, each re-checked by the rule that failed. In: the operands of a violation. Out: those that type,
//! cheapest traffic first. Never: advice that was not tried. Source: DESIGN.md section 9. Next: `diagnostics/`.

use super::finding::Repair;
use super::machine::Machine;
use super::ops::Operand;
use super::value::ObjId;
use crate::ir::StmtId;
use crate::rules::{Arg, CollectiveRule, Kind, Role, Violation, apply};
use crate::types::{Axis, AxisType, Reason, Spmd};

/// A conversion that a repair may insert: from, to, its traffic (0 none, 1 backward only, 2 forward).
const CONVERSIONS: &[(Spmd, Spmd, u8)] =
    &[(Spmd::Invariant, Spmd::Replicate, 1), (Spmd::Partial, Spmd::Invariant, 2), (Spmd::Partial, Spmd::Replicate, 3)];

impl Machine<'_> {
    /// Conversions of one operand after which the operation types.
    pub fn operator_repairs(
        &mut self,
        id: StmtId,
        violation: Violation,
        axis: &Axis,
        operands: &[Operand],
    ) -> Vec<Repair> {
        let kind = match violation {
            Violation::PartialAffine => Kind::Linear,
            Violation::PartialTwice => Kind::Multilinear,
            Violation::PartialDivisor => Kind::Division,
            Violation::InvariantMixed | Violation::PartialWithVarying | Violation::PartialNonlinear => Kind::Nonlinear,
        };
        let mut tried: Vec<(u8, Repair)> = Vec::new();
        for (from, to, traffic) in CONVERSIONS {
            for (i, operand) in operands.iter().enumerate() {
                if operand.ty.get(axis).known() != Some(*from) || operand.role == Role::Number {
                    continue;
                }
                let types = apply(kind, &with_type(operands, axis, i, *to)).is_ok();
                let place = self.part(id, operand.part);
                let text = self.text(place);
                if !types || text.is_empty() || text.contains('\n') {
                    continue;
                }
                if let Some(call) = self.spelled(*from, *to, &text, axis) {
                    let edit = Some((place, call.clone()));
                    tried.push((*traffic, Repair { text: call, edit }));
                }
            }
        }
        tried.extend(self.other_results(kind, axis, operands).into_iter().map(|r| (0, r)));
        tried.sort_by_key(|(traffic, _)| *traffic);
        tried.dedup_by(|a, b| a.1.text == b.1.text);
        tried.into_iter().map(|(_, r)| r).take(3).collect()
    }

    /// The collective that made an operand, asked for the other equal type (`dst=R` for `dst=I`): no traffic is added forward.
    fn other_results(&self, kind: Kind, axis: &Axis, operands: &[Operand]) -> Vec<Repair> {
        let mut out = Vec::new();
        for (i, operand) in operands.iter().enumerate() {
            let state = operand.ty.get(axis);
            let (old, new) = match state.known() {
                Some(Spmd::Replicate) => (Spmd::Replicate, Spmd::Invariant),
                Some(Spmd::Invariant) => (Spmd::Invariant, Spmd::Replicate),
                Some(Spmd::Varying | Spmd::Partial) | None => continue,
            };
            let Some(origin) = state.origin.as_ref().filter(|o| matches!(o.reason, Reason::Collective(_))) else {
                continue;
            };
            let call = self.text(origin.place);
            let Some((head, tail)) = call.split_once("dst=") else { continue };
            let value = tail.find([',', ')']).map_or(tail, |end| &tail[..end]);
            let Some(prefix) = value.strip_suffix(old.letter()) else { continue };
            let legal = call.starts_with(prefix) && !call.contains('\n');
            if legal && apply(kind, &with_type(operands, axis, i, new)).is_ok() {
                let text = format!("{head}dst={prefix}{}{}", new.letter(), &tail[value.len()..]);
                out.push(Repair { text: text.clone(), edit: Some((origin.place, text)) });
            }
        }
        out
    }

    /// What would make a value fit for a collective: remove a duplicate, or convert first.
    pub fn collective_repairs(
        &mut self,
        id: StmtId,
        rule: &CollectiveRule,
        axis: &Axis,
        input: ObjId,
        expected: AxisType,
    ) -> Vec<Repair> {
        let Some(t) = self.w.heap.tensor(input) else { return Vec::new() };
        let Some(found) = t.local.get(axis).known() else { return Vec::new() };
        let mut out = Vec::new();
        let place = self.part(id, 1);
        let text = self.text(place);
        for (from, to, _) in CONVERSIONS {
            if *from == found
                && expected.contains(*to)
                && !text.is_empty()
                && let Some(call) = self.spelled(*from, *to, &text, axis)
            {
                out.push(Repair { text: call.clone(), edit: Some((place, call)) });
            }
        }
        if AxisType::one(found).leq(AxisType::EQUAL) && expected.contains(Spmd::Partial) && rule.op == "all_reduce" {
            let whole = self.text(self.place(id));
            if !text.is_empty() && whole.contains(&text) && rule.form == crate::rules::Form::Result {
                out.push(Repair { text: format!("{text}  (without the second reduction)"), edit: None });
            }
        }
        out
    }

    /// A conversion in the vocabulary that the file already uses.
    fn spelled(&mut self, from: Spmd, to: Spmd, text: &str, axis: &Axis) -> Option<String> {
        let vocabulary = super::vocabulary::vocabulary(self.project, self.rules, self.activation().module);
        let template =
            vocabulary.iter().find(|(f, t, _)| *f == from && *t == to).map(|(_, _, template)| template.clone())?;
        Some(template.replace("{x}", text).replace("{axis}", axis.name()))
    }

    fn text(&self, place: crate::source::Place) -> String {
        self.files[place.file].slice(place.span).to_string()
    }
}

/// The operands on an axis, one of them with another type.
fn with_type(operands: &[Operand], axis: &Axis, at: usize, t: Spmd) -> Vec<Arg> {
    operands
        .iter()
        .enumerate()
        .map(|(i, o)| {
            let set = if i == at { t.into() } else { o.ty.get(axis).set };
            Arg { set, grad: o.grad, role: o.role }
        })
        .collect()
}
