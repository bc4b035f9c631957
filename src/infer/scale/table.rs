//! Factors as they are shown: of variables, and of the gradients of parameters. In: states. Out: rows. Never: a verdict.
//! Next: `cli/gradients.rs`, `cli/types.rs`.

use super::Run;
use super::groups::{Kind, kind};
use super::value::{State, Val, What};
use super::verdict;
use crate::ir::{LocalId, LocalKind, StmtId};
use crate::project::FuncRef;
use crate::source::{Name, Place};
use crate::types::{Factor, Scale};

/// The factor of a variable after a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleRow {
    pub place: Place,
    pub func: FuncRef,
    pub variable: Name,
    pub factor: Name,
}

/// What the gradient of some parameters is when an optimizer takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GradientRow {
    /// The step.
    pub place: Place,
    /// The root that leads to it.
    pub func: FuncRef,
    pub parameters: Name,
    /// Axis and type of the gradient.
    pub types: Vec<(Name, &'static str)>,
    pub reducers: Vec<(What, Place)>,
    /// The loss and the factor before each sum over the tokens of a rank.
    pub factors: Vec<(Name, Name)>,
    pub when: Vec<(Name, bool)>,
}

impl GradientRow {
    /// Whether another row says the same of other paths.
    pub fn is_like(&self, other: &GradientRow) -> bool {
        let alike = self.place == other.place && self.parameters == other.parameters && self.types == other.types;
        alike && self.reducers == other.reducers && self.factors == other.factors
    }
}

/// Rows that are kept.
const MOST_ROWS: usize = 4000;

impl<'a> Run<'a> {
    /// Remembers the factor of a variable.
    pub fn note(&mut self, id: StmtId, state: &State, dst: LocalId, value: &Val) {
        if !self.settings.wants_types || self.told.rows.len() > MOST_ROWS {
            return;
        }
        let Some(func) = state.frames.last().map(|f| f.at) else { return };
        let local = &self.project.func(func).locals()[dst];
        if local.kind == LocalKind::Temp {
            return;
        }
        let factor = match value {
            Val::Num(n) => n.scale.to_string(),
            Val::Tensor(t) if t.rows.is_none() => {
                let each: Vec<String> = t.parts.iter().map(|p| p.grad.to_string()).collect();
                each.join(" + ")
            }
            _ => return,
        };
        let row =
            ScaleRow { place: self.place(state, id), func, variable: local.name.clone(), factor: Name::from(factor) };
        if !self.told.rows.contains(&row) {
            self.told.rows.push(row);
        }
    }

    /// Remembers what an optimizer takes.
    pub fn tabulate(&mut self, place: Place, state: &State) {
        if !self.settings.wants_types || self.told.gradients.len() > MOST_ROWS {
            return;
        }
        for class in state.trained() {
            let (after, over) = class.total();
            let types = over.iter().map(|a| {
                let letter = if kind(a) == Kind::Model && !class.is_partial() { "I" } else { "R" };
                (Name::from(a.name()), letter)
            });
            let reduces = |w: &What| matches!(w, What::Summed(_) | What::Averaged(_) | What::Wrapped(_));
            let events = class.always.2.iter().chain(&class.events);
            let factors = state.terms.iter().map(|t| {
                let whole = state.in_rounds(t, &after.times(&t.part.grad));
                (t.part.label.clone(), text(&before(&t.part.label, &whole)))
            });
            let factors: Vec<(Name, Name)> = factors.collect();
            let row = GradientRow {
                place,
                func: self.root,
                parameters: verdict::name(class, state),
                types: types.collect(),
                reducers: events.filter(|e| reduces(&e.what)).map(|e| (e.what.clone(), e.place)).collect(),
                factors: if factors.is_empty() { vec![(Name::default(), text(&after))] } else { factors },
                when: state.facts.iter().map(|(k, v)| (k.clone(), *v)).collect(),
            };
            if !self.told.gradients.contains(&row) {
                self.told.gradients.push(row);
            }
        }
    }
}

/// The factor before a loss of which only the name is known: that name is one of its factors.
fn before(loss: &Name, scale: &Scale) -> Scale {
    let own = Factor::Named(loss.clone());
    let holds = scale.known().is_some_and(|m| m.power(&own) == 1);
    if holds { scale.over(&Scale::of(own)) } else { scale.clone() }
}

fn text(scale: &Scale) -> Name {
    Name::from(scale.to_string())
}
