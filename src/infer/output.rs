//! What the inference of one root yields: findings, types of variables, coverage. In: facts recorded during execution.
//! Out: [`Output`], merged over roots in order. Never: words. Next: `finding.rs`.

use super::autograd::{Case, Gap};
use super::finding::{Finding, FindingKind};
use super::formula::{Atom, Facts};
use crate::project::{ClassRef, FuncRef};
use crate::source::{Name, Place};
use crate::types::{Axis, LocalType, TensorType};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why something could not be typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// An operation without a rule.
    NoRule,
    /// A call that leads outside the project or to nothing known.
    UnresolvedCall,
    /// A collective whose operand has no known type.
    UnknownOperand,
    /// A group that nothing resolves.
    UnresolvedGroup,
    /// A cap of `limits.rs`.
    Budget,
    /// Code that the intermediate representation does not express.
    Opaque,
}

/// A variable's type after a line.
#[derive(Clone, Debug)]
pub struct Row {
    pub func: FuncRef,
    pub place: Place,
    pub variable: Name,
    pub ty: TensorType,
    pub facts: Facts,
}

/// What is known of a collective call, from the least to the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Site {
    /// No analysed path leads to it.
    #[default]
    NotReached,
    /// The group is not resolved.
    NoGroup,
    /// The value is not followed: nothing is known of what comes in, and nothing takes on what goes out.
    NoValue,
    /// The source or the result has a known type.
    Typed,
}

/// What one path through a function without known callers makes of it.
#[derive(Clone, Debug)]
pub struct Exit {
    pub func: FuncRef,
    pub facts: Facts,
    /// What is known of each parameter that is a tensor.
    pub params: Vec<(Name, LocalType)>,
    /// What is known of what it returns: of each element, if that is a tuple.
    pub results: Vec<Option<LocalType>>,
    pub is_tuple: bool,
}

/// The input of a layer that no caller gives a type, where it meets what is split: each rank has a part of its gradient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenInput {
    pub func: FuncRef,
    pub param: Name,
    pub axis: Axis,
    pub at: Place,
}

/// What was derived of an autograd function, at its definition or at a call.
#[derive(Clone, Debug)]
pub struct DerivedRow {
    pub class: ClassRef,
    pub place: Place,
    pub cases: Vec<Case>,
    /// What is not followed.
    pub gaps: Vec<Gap>,
}

/// Counts for `--coverage`.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// Collective call sites by place: the best that was ever known of one.
    pub collectives: BTreeMap<Place, Site>,
    pub reasons: BTreeMap<(Reason, Name), u64>,
    /// Calls that declare shardings: whether all that they say is read.
    pub declarations: BTreeMap<Place, bool>,
}

impl Coverage {
    /// Notes what one path knows of a collective call.
    pub fn site(&mut self, place: Place, known: Site) {
        let site = self.collectives.entry(place).or_default();
        *site = known.max(*site);
    }

    /// Adds what another root counted.
    pub fn add(&mut self, other: &Coverage) {
        for (place, known) in &other.collectives {
            self.site(*place, *known);
        }
        for ((reason, what), n) in &other.reasons {
            *self.reasons.entry((*reason, what.clone())).or_default() += n;
        }
        for (place, read) in &other.declarations {
            *self.declarations.entry(*place).or_default() |= read;
        }
    }
}

/// How a world passed a place where a finding was possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The types are known and legal.
    Right,
    /// Too little is known.
    Unknown,
}

/// All that one root yields.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// Factors of variables and gradients.
    pub factors: super::scale::Told,
    pub findings: Vec<Finding>,
    index: FxHashMap<(Place, std::mem::Discriminant<FindingKind>), usize>,
    pub rows: Vec<Row>,
    row_index: FxHashMap<(FuncRef, Place, Name), usize>,
    /// Ends of functions whose types are asked for.
    pub exits: Vec<Exit>,
    pub derived: Vec<Arc<DerivedRow>>,
    pub open_inputs: Vec<OpenInput>,
    pub coverage: Coverage,
    /// Worlds that passed a checked place without a finding.
    passed: FxHashMap<Place, Vec<(Facts, Pass)>>,
    /// Collectives that a parallel mode asks for.
    pub due: Vec<super::modes::Due>,
    /// Shardings that modules are declared to have.
    pub sharded: Vec<super::declared::flow::Sharded>,
    /// Functions that were executed, with known arguments or without.
    pub executed: std::collections::BTreeSet<FuncRef>,
    /// Roots on which the checker itself failed.
    pub failed: Vec<FuncRef>,
}

impl Output {
    /// Adds what another execution of the same function has found of gradients that nothing sums.
    pub fn adopt_missing_sums(&mut self, other: Output, holds: Option<&(Atom, bool)>) {
        for mut finding in other.findings {
            let key = (finding.place, std::mem::discriminant(&finding.kind));
            if finding.kind.is_mixed() && !self.index.contains_key(&key) {
                if let Some((atom, value)) = holds {
                    finding.silent_worlds = vec![Facts::default().with(atom.clone(), !value)];
                    finding.silent_right = true;
                }
                self.index.insert(key, self.findings.len());
                self.findings.push(finding);
            }
        }
    }

    /// Records a finding; the same kind at the same place is one finding that holds in several worlds.
    pub fn report(&mut self, finding: Finding) {
        let key = (finding.place, std::mem::discriminant(&finding.kind));
        match self.index.get(&key) {
            Some(at) => self.findings[*at].worlds.extend(finding.worlds),
            None => {
                self.index.insert(key, self.findings.len());
                self.findings.push(finding);
            }
        }
    }

    /// Takes a finding at a place back for one world.
    pub fn take_back(&mut self, place: Place, facts: &Facts, is: &dyn Fn(&FindingKind) -> bool) {
        for finding in self.findings.iter_mut().filter(|f| f.place == place && is(&f.kind)) {
            finding.worlds.retain(|world| world != facts);
        }
    }

    /// Notes that a world passed a place where a finding was possible.
    pub fn pass(&mut self, place: Place, facts: &Facts, pass: Pass) {
        let list = self.passed.entry(place).or_default();
        if !list.iter().any(|(f, p)| f == facts && *p == pass) {
            list.push((facts.clone(), pass));
        }
    }

    /// Records a type; several executions of a line join.
    pub fn row(&mut self, row: Row) {
        let key = (row.func, row.place, row.variable.clone());
        match self.row_index.get(&key) {
            Some(at) => {
                let known = &mut self.rows[*at];
                known.ty = known.ty.join(&row.ty);
                known.facts = known.facts.common(&row.facts);
            }
            None => {
                self.row_index.insert(key, self.rows.len());
                self.rows.push(row);
            }
        }
    }

    /// Leaves out worlds that tell two objects apart by what nobody gave them, and fills in which worlds were silent where others
    /// were not.
    pub fn finish(&mut self) {
        let count = self.findings.len();
        self.findings.retain_mut(|finding| {
            finding.worlds.retain(|facts| !facts.tells_objects_apart());
            !finding.worlds.is_empty()
        });
        if self.findings.len() < count {
            let key = |finding: &Finding| (finding.place, std::mem::discriminant(&finding.kind));
            self.index = self.findings.iter().enumerate().map(|(at, finding)| (key(finding), at)).collect();
        }
        for finding in &mut self.findings {
            if let Some(passed) = self.passed.get(&finding.place) {
                let silent = |wanted: Pass| -> Vec<Facts> {
                    let those = passed.iter().filter(|(f, p)| *p == wanted && !finding.worlds.contains(f));
                    those.map(|(f, _)| f.clone()).collect()
                };
                // A world that is right explains the finding better than one in which nothing is known.
                let right = silent(Pass::Right);
                finding.silent_right = !right.is_empty();
                finding.silent_worlds = if right.is_empty() { silent(Pass::Unknown) } else { right };
            }
        }
        self.passed = FxHashMap::default();
    }

    /// Leaves out what only follows from something that is reported: from a parameter of which nothing sums the gradient, or from the
    /// result of a collective on a wrong value.
    pub fn keep_causes(&mut self) {
        let of_parameters: Vec<Place> = self
            .findings
            .iter()
            .filter(|f| f.kind.unmarked().is_some())
            .filter_map(|f| f.kind.unmarked_source())
            .collect();
        let of_values: Vec<(Place, Vec<Facts>)> = self
            .findings
            .iter()
            .filter(|f| matches!(f.kind, FindingKind::CollectiveSource { .. } | FindingKind::Operator { .. }))
            .map(|f| {
                // What a layer refuses in one configuration is right in others; another collective is as wrong there.
                let of_layer = matches!(&f.kind, FindingKind::CollectiveSource { op, .. } if op == "layer");
                (f.place, if of_layer { f.worlds.clone() } else { vec![Facts::default()] })
            })
            .collect();
        if of_parameters.is_empty() && of_values.len() < 2 {
            return;
        }
        self.findings.retain(|f| {
            let follows = f.kind.unmarked().is_none()
                && f.kind.unmarked_source().is_some_and(|place| of_parameters.contains(&place));
            // What is found in other configurations is no cause.
            let meet = |worlds: &[Facts]| f.worlds.iter().any(|a| worlds.iter().any(|b| !a.contradicts(b)));
            !follows && !of_values.iter().any(|(at, worlds)| *at != f.place && f.kind.rests_on(*at) && meet(worlds))
        });
        self.index.clear();
    }

    /// Leaves out findings that are none, after all.
    pub fn settle(&mut self, leave_out: impl FnOnce(&mut Vec<Finding>)) {
        leave_out(&mut self.findings);
        let key = |finding: &Finding| (finding.place, std::mem::discriminant(&finding.kind));
        self.index = self.findings.iter().enumerate().map(|(at, finding)| (key(finding), at)).collect();
    }

    /// The functions that are not known to be executed yet.
    fn unknown(&self, executed: &std::collections::BTreeSet<FuncRef>) -> std::collections::BTreeSet<FuncRef> {
        executed.difference(&self.executed).copied().collect()
    }

    /// Adds what another root found, which may be kept elsewhere.
    pub fn merge_shared(&mut self, other: Arc<Output>) {
        match Arc::try_unwrap(other) {
            Ok(other) => self.merge(other),
            Err(other) => self.merge(Output {
                findings: other.findings.clone(),
                rows: other.rows.clone(),
                exits: other.exits.clone(),
                derived: other.derived.clone(),
                open_inputs: other.open_inputs.clone(),
                due: other.due.clone(),
                sharded: other.sharded.clone(),
                executed: self.unknown(&other.executed),
                failed: other.failed.clone(),
                // Nobody asks for the coverage of a session.
                ..Output::default()
            }),
        }
    }

    /// Adds what another root found; called in the order of roots.
    pub fn merge(&mut self, other: Output) {
        for finding in other.findings {
            let key = (finding.place, std::mem::discriminant(&finding.kind));
            match self.index.get(&key) {
                Some(at) => {
                    let known = &mut self.findings[*at];
                    known.others.push(finding.reached());
                    known.others.extend(finding.others);
                }
                None => {
                    self.index.insert(key, self.findings.len());
                    self.findings.push(finding);
                }
            }
        }
        for row in other.rows {
            self.row(row);
        }
        self.exits.extend(other.exits);
        self.derived.extend(other.derived);
        self.open_inputs.extend(other.open_inputs);
        self.coverage.add(&other.coverage);
        for one in other.sharded {
            if !self.sharded.contains(&one) {
                self.sharded.push(one);
            }
        }
        for due in other.due {
            if !self.due.contains(&due) {
                self.due.push(due);
            }
        }
        self.executed.extend(other.executed);
        self.failed.extend(other.failed);
    }
}
