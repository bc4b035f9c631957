//! Candidate repairs of a mistake, each re-checked by the rule that failed. In: the operands of a violation. Out: those that type,
//! cheapest traffic first. Never: advice that was not tried. Source: DESIGN.md section 9. Next: `diagnostics/`.

use super::finding::{Conversion, Remedy, Repair};
use super::machine::Machine;
use super::ops::Operand;
use super::value::ObjId;
use super::vocabulary::{Spelling, Template, spelled, vocabulary};
use crate::ir::StmtId;
use crate::rules::collective::DimRef;
use crate::rules::{Arg, CollectiveRule, Form, Kind, Role, Violation, apply};
use crate::source::{Name, Place, Span};
use crate::types::{Axis, AxisState, AxisType, Reason, Spmd};

/// A conversion that a repair may insert: from, to, its traffic (0 none, 1 backward only, 2 forward).
const CONVERSIONS: &[(Spmd, Spmd, u8)] =
    &[(Spmd::Invariant, Spmd::Replicate, 1), (Spmd::Partial, Spmd::Invariant, 2), (Spmd::Partial, Spmd::Replicate, 3)];

/// Operations that add values which may be parts of one sum: a conversion silences them, and may not be what is meant.
const SUMS: &[&str] =
    &["add", "sub", "__add__", "__sub__", "__radd__", "__rsub__", "__iadd__", "__isub__", "add_", "sub_"];

/// Operations that contract a dim: where the other operand is split along it, a part may be due and not the whole.
const PRODUCTS: &[&str] = &["linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "einsum"];

impl Machine<'_> {
    /// Conversions of one operand after which the operation types.
    pub fn operator_repairs(
        &mut self,
        id: StmtId,
        violation: Violation,
        axis: &Axis,
        op: &str,
        operands: &[Operand],
    ) -> Vec<Repair> {
        let short = op.rsplit('.').next().unwrap_or(op);
        let (is_sum, is_product) = (SUMS.contains(&short), PRODUCTS.contains(&short));
        let kind = match violation {
            // A pending sum goes with what is whole as a factor.
            Violation::InvariantMixed if is_product => Kind::Multilinear,
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
                let place = self.operand_place(id, operands, i);
                let text = self.text(place);
                if apply(kind, &with_type(operands, axis, i, *to)).is_err() || text.is_empty() || text.contains('\n') {
                    continue;
                }
                let others = operands.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, o)| o.ty.get(axis));
                let is_term = |s: &AxisState| is_product && s.set == AxisType::P;
                let is_part = others.into_iter().any(|s| s.set == AxisType::V || is_term(s));
                // Of two values that are both whole, either may be the one that is not as it was meant.
                let is_whole = *from == Spmd::Invariant && !is_part;
                if let Some(mut repair) = self.conversion_of(*from, *to, place, axis) {
                    let is_other = violation == Violation::InvariantMixed && *from == Spmd::Partial;
                    let is_open = (is_sum && is_part) || is_whole || is_other || text.starts_with(['[', '(']);
                    if let Some(remedy) = &mut repair.remedy {
                        remedy.class = (i, Some(*to), Name::default());
                        let is_gathered = is_product && self.is_gathered(operand, axis);
                        remedy.certain = !is_open && !is_gathered;
                        remedy.made = made_at(operand, axis);
                    }
                    tried.push((*traffic, repair));
                }
            }
        }
        tried.extend(self.other_results(kind, axis, is_sum, operands).into_iter().map(|r| (0, r)));
        tried.sort_by_key(|(traffic, _)| *traffic);
        tried.dedup_by(|a, b| a.1.text == b.1.text);
        let mut out: Vec<Repair> = tried.into_iter().map(|(_, r)| r).take(3).collect();
        out.extend(self.other_sources(kind, axis, operands));
        if let Some(moved) = self.moved_reduction(id, axis, operands) {
            // What is added to a pending sum is counted once per rank, whatever its gradient.
            if is_sum {
                out.clear();
            }
            out.push(moved);
        }
        out
    }

    /// The place of an operand: its element, where several are written as a list.
    pub fn operand_place(&self, id: StmtId, operands: &[Operand], at: usize) -> Place {
        let Some(operand) = operands.get(at) else { return self.place(id) };
        let place = self.part(id, operand.part);
        let before = operands.iter().take(at).filter(|o| o.part == operand.part).count();
        let all = operands.iter().filter(|o| o.part == operand.part).count();
        let text = self.text(place);
        let inside = text.strip_prefix(['[', '(']).and_then(|t| t.strip_suffix([']', ')']));
        let Some(inside) = inside.filter(|t| all > 1 && !t.contains(['(', '[', '{', '"', '\'', '#', '*'])) else {
            return place;
        };
        let mut start = 1;
        let mut elements = Vec::new();
        for piece in inside.split(',') {
            let lead = piece.len() - piece.trim_start().len();
            if !piece.trim().is_empty() {
                elements.push((start + lead, start + lead + piece.trim().len()));
            }
            start += piece.len() + 1;
        }
        let Some((from, to)) = elements.get(before).filter(|_| elements.len() == all) else { return place };
        let offset = |n: &usize| place.span.start + u32::try_from(*n).unwrap_or(0);
        Place { file: place.file, span: Span::new(offset(from), offset(to)) }
    }

    /// A conversion of the expression at a place, as the file writes it.
    fn conversion_of(&self, from: Spmd, to: Spmd, place: Place, axis: &Axis) -> Option<Repair> {
        let template = self.template(from, to)?;
        let text = template.text.replace("{x}", &self.text(place)).replace("{axis}", axis.name());
        let remedy = template.is_bound.then(|| Remedy {
            place,
            template: template.text,
            axis: Name::from(axis.name()),
            made: None,
            import: template.import,
            class: (0, Some(to), Name::default()),
            certain: true,
        });
        let is_foreign = !template.is_bound;
        let foreign = is_foreign.then(|| Conversion { place, axis: Name::from(axis.name()), from, to });
        Some(Repair { text, remedy, foreign })
    }

    /// The collective that made an operand, asked for the other equal type (`dst=R` for `dst=I`): no traffic is added forward.
    fn other_results(&self, kind: Kind, axis: &Axis, is_sum: bool, operands: &[Operand]) -> Vec<Repair> {
        let has_part = operands.iter().any(|o| o.ty.get(axis).set == AxisType::V);
        let mut out = Vec::new();
        for (i, operand) in operands.iter().enumerate() {
            let state = operand.ty.get(axis);
            let (old, new) = match state.known() {
                Some(Spmd::Replicate) => (Spmd::Replicate, Spmd::Invariant),
                Some(Spmd::Invariant) => (Spmd::Invariant, Spmd::Replicate),
                Some(Spmd::Varying | Spmd::Partial) | None => continue,
            };
            let Some(place) = made_at(operand, axis) else { continue };
            if apply(kind, &with_type(operands, axis, i, new)).is_err() {
                continue;
            }
            let call = self.text(place);
            let remedy = |template: String| Remedy {
                place,
                template,
                axis: Name::from(axis.name()),
                made: None,
                import: None,
                class: (i, Some(new), Name::default()),
                certain: !is_sum && has_part,
            };
            if let Some(text) = other_destination(&call, old, new) {
                out.push(Repair { text: text.clone(), remedy: Some(remedy(text)), foreign: None });
            }
            if new == Spmd::Replicate {
                // A switch of the collective that turns the sum of its gradient off.
                for off in [", False", "=False"] {
                    let text = without_argument(&call, off);
                    out.extend(text.map(|text| Repair {
                        text: String::new(),
                        remedy: Some(remedy(text)),
                        foreign: None,
                    }));
                }
            }
        }
        out
    }

    /// Other collectives in place of the one that made an operand: they compete with a conversion of its result.
    fn other_sources(&mut self, kind: Kind, axis: &Axis, operands: &[Operand]) -> Vec<Repair> {
        let mut out = Vec::new();
        for (i, operand) in operands.iter().enumerate() {
            let Some(origin) = &operand.ty.get(axis).origin else { continue };
            let Reason::Collective(name) = &origin.reason else { continue };
            let (name, place) = (name.clone(), origin.place);
            let known = operand.ty.get(axis).known();
            for (sibling, gives, dim) in self.siblings(&name, Spmd::Varying) {
                if Some(gives) == known
                    || gives == Spmd::Varying
                    || apply(kind, &with_type(operands, axis, i, gives)).is_err()
                {
                    continue;
                }
                // The same exchange forward with the other gradient is a conversion of the result.
                let same = self.rules_shard(&name) == dim;
                let class = if same { Name::default() } else { sibling.callee.as_str().into() };
                out.extend(self.renamed(place, &sibling, axis, (i, Some(gives), class)));
            }
        }
        out
    }

    /// Whether a value was put together from parts: then a part, and not the whole with a summed gradient, may be what is meant.
    fn is_gathered(&self, operand: &Operand, axis: &Axis) -> bool {
        let gathers = |name: &str| {
            self.rules.collectives().any(|r| r.op == "all_gather" && r.name.rsplit('.').next() == Some(name))
        };
        let mut at = operand.ty.get(axis).origin.as_ref();
        while let Some(origin) = at {
            if matches!(&origin.reason, Reason::Collective(name) if gathers(name)) {
                return true;
            }
            at = origin.from.as_ref();
        }
        false
    }

    /// The shard dim of what the collective of a name takes.
    fn rules_shard(&self, name: &str) -> Option<DimRef> {
        let rule = self.rules.collectives().find(|r| r.name.rsplit('.').next() == Some(name))?;
        rule.transitions.iter().find(|(c, _)| c.is_none()).and_then(|(_, t)| t.source.shard.clone())
    }

    /// The collectives beside one in its module that take a type: how the file writes them, what they give, the dim that they take.
    fn siblings(&self, name: &str, takes: Spmd) -> Vec<(Spelling, Spmd, Option<DimRef>)> {
        let module = self.activation().module;
        let mut own = self.rules.collectives().filter(|r| r.name.rsplit('.').next() == Some(name));
        let has_kin = |r: &Name| r.rsplit_once('.').is_some_and(|(package, _)| !package.starts_with('*'));
        let Some(rule) = own.find(|r| has_kin(&r.name)) else { return Vec::new() };
        let Some((package, _)) = rule.name.rsplit_once('.') else { return Vec::new() };
        let mut out = Vec::new();
        for other in self.rules.collectives().filter(|r| r.form == Form::Result && r.name != rule.name) {
            let Some((_, short)) = other.name.rsplit_once('.').filter(|(p, _)| *p == package) else { continue };
            let Some((_, transition)) = other.transitions.iter().find(|(c, _)| c.is_none()) else { continue };
            let Some(gives) = transition.result.set.known().filter(|_| transition.source.set.contains(takes)) else {
                continue;
            };
            if other.op == "all_to_all" || other.repair.is_none() {
                continue;
            }
            if let Some(spelling) = spelled(self.project, self.rules, module, short) {
                out.push((spelling, gives, transition.source.shard.clone()));
            }
        }
        out
    }

    /// A call with another function.
    fn renamed(&self, place: Place, to: &Spelling, axis: &Axis, class: (usize, Option<Spmd>, Name)) -> Option<Repair> {
        let call = self.text(place);
        let (_, arguments) = call.split_once('(')?;
        // Arguments that only the present function knows make it another call.
        let plain = !arguments.contains(['\n', '#']) && !arguments.contains("True") && !arguments.contains("False");
        let template = format!("{}({arguments}", to.callee);
        let remedy = Remedy {
            place,
            template,
            axis: Name::from(axis.name()),
            made: None,
            import: to.import.clone(),
            class,
            certain: true,
        };
        (plain && call.ends_with(')')).then(|| Repair { text: String::new(), remedy: Some(remedy), foreign: None })
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
        let (place, whole) = (self.part(id, 1), self.place(id));
        let text = self.text(place);
        for (from, to, _) in CONVERSIONS {
            if *from == found && expected.contains(*to) && !text.is_empty() {
                out.extend(self.conversion_of(*from, *to, place, axis));
            }
        }
        if rule.form != Form::Result || rule.repair.is_none() || text.is_empty() || !self.text(whole).contains(&text) {
            return out;
        }
        let twice = AxisType::one(found).leq(AxisType::EQUAL) && expected.contains(Spmd::Partial);
        let advice = if twice && rule.op == "all_reduce" {
            format!("{text}  (without the second reduction)")
        } else {
            String::new()
        };
        let removal = Remedy {
            place: whole,
            template: "{x}".to_string(),
            axis: Name::from(axis.name()),
            made: None,
            import: None,
            class: (0, None, Name::default()),
            certain: true,
        };
        out.push(Repair { text: advice, remedy: Some(removal), foreign: None });
        let own = rule.name.rsplit('.').next().unwrap_or(&rule.name);
        for (sibling, gives, _) in self.siblings(own, found) {
            let class = (1, Some(gives), sibling.callee.as_str().into());
            out.extend(self.renamed(whole, &sibling, axis, class));
        }
        // What a function is given may be wrong as well as what it does with it.
        let is_given = self.func().params.iter().any(|p| p.name.as_str() == text);
        for remedy in out.iter_mut().filter_map(|r| r.remedy.as_mut()) {
            remedy.certain &= !is_given;
        }
        out
    }

    /// A conversion in the vocabulary that the file already uses.
    fn template(&self, from: Spmd, to: Spmd) -> Option<Template> {
        let vocabulary = vocabulary(self.project, self.rules, self.activation().module);
        vocabulary.into_iter().find(|t| t.from == from && t.to == to)
    }

    fn text(&self, place: Place) -> String {
        self.files[place.file].slice(place.span).to_string()
    }
}

/// The call that made an operand, if a collective did.
fn made_at(operand: &Operand, axis: &Axis) -> Option<Place> {
    let origin = operand.ty.get(axis).origin.as_ref()?;
    matches!(origin.reason, Reason::Collective(_)).then_some(origin.place)
}

/// A call with `dst=` another type.
fn other_destination(call: &str, old: Spmd, new: Spmd) -> Option<String> {
    let (head, tail) = call.split_once("dst=")?;
    let value = tail.find([',', ')']).map_or(tail, |end| &tail[..end]);
    let prefix = value.strip_suffix(old.letter())?;
    let legal = call.starts_with(prefix) && !call.contains('\n');
    legal.then(|| format!("{head}dst={prefix}{}{}", new.letter(), &tail[value.len()..]))
}

/// A call without the one argument that ends in a text.
fn without_argument(call: &str, end: &str) -> Option<String> {
    let at = call.find(end).filter(|at| call.rfind(end) == Some(*at) && !call.contains('\n'))?;
    let stop = at + end.len();
    let start = if end.starts_with(',') { at } else { call[..at].rfind(',')? };
    let named = end.starts_with(',') || call[start + 1..at].trim().chars().all(|c| c.is_alphanumeric() || c == '_');
    let closed = call[stop..].starts_with([',', ')']);
    (named && closed).then(|| format!("{}{}", &call[..start], &call[stop..]))
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
