//! Gradients: backward passes, reductions, factors, wrappers, and the classes of parameters that are treated alike. In: steps of a
//! program. Out: what each class carries. Never: whether that is right, which is `verdict.rs`. Next: `verdict.rs`.

use super::super::shared::Shared;
use super::Run;
use super::eval::{TOKENS, made, opaque, what};
use super::groups::{Kind, kind};
use super::value::{Class, ClassId, Event, Flow, Grad, ModId, Module, Part, State, Tensor, Term, Val, What};
use crate::ir::{BinOp, Const, StmtId};
use crate::source::{Name, Place};
use crate::types::{Axis, AxisSet, Factor, Monomial, Scale};

/// The group and the divisor of each wrapper, with its place.
pub type Wraps = Vec<(AxisSet, Scale, Place)>;

impl State {
    /// The module that a name stands for.
    pub fn module(&mut self, name: &str) -> ModId {
        match self.modules.iter().position(|m| m.name == name && m.parent.is_none() && !m.unused) {
            Some(at) => at,
            None => {
                self.modules.push(Module { name: Name::from(name), ..Module::default() });
                self.modules.len() - 1
            }
        }
    }

    /// What functions see of what the statements of their file leave: no gradients, and modules that are theirs once they use them.
    pub fn left_to_functions(&mut self) {
        self.clear();
        self.flow = Flow::Next;
        (self.facts, self.round, self.loops) = (Shared::default(), Shared::default(), Shared::default());
        (self.counted, self.param) = (Shared::default(), None);
        (self.cut_after, self.unsettled, self.put_back) = (false, false, false);
        if !self.modules.is_empty() {
            self.modules.iter_mut().for_each(|m| m.unused = true);
        }
    }

    /// A function uses a module: what it has and what it is in are used with it.
    pub fn uses(&mut self, module: ModId) {
        if self.modules.get(module).is_some_and(|m| m.unused) {
            let with = |o: &usize| self.is_inside(*o, module) || self.is_inside(module, *o);
            let all: Vec<ModId> = (0..self.modules.len()).filter(with).collect();
            all.into_iter().for_each(|m| self.modules[m].unused = false);
        }
    }

    /// Parameters that a step may be about.
    pub fn trained(&self) -> impl Iterator<Item = &Class> {
        let unused = |c: &Class| c.module.and_then(|m| self.modules.get(m)).is_some_and(|m| m.unused);
        self.classes.iter().filter(move |c| c.split.is_none() && !unused(c))
    }

    /// A part of a module.
    pub fn part(&mut self, parent: ModId, name: &str) -> ModId {
        match self.modules.iter().position(|m| m.name == name && m.parent == Some(parent)) {
            Some(at) => at,
            None => {
                self.modules.push(Module { name: Name::from(name), parent: Some(parent), ..Module::default() });
                self.modules.len() - 1
            }
        }
    }

    fn is_inside(&self, module: ModId, of: ModId) -> bool {
        let mut at = Some(module);
        while let Some(m) = at {
            if m == of {
                return true;
            }
            at = self.modules.get(m).and_then(|m| m.parent);
        }
        let (Some(inner), Some(outer)) = (self.modules.get(module), self.modules.get(of)) else { return false };
        inner.name.strip_prefix(outer.name.as_str()).is_some_and(|rest| rest.starts_with(['.', '[']))
    }

    /// The parts of a module that are wrapped on their own.
    pub fn wrapped_parts(&self, of: ModId) -> Vec<ModId> {
        (0..self.modules.len())
            .filter(|m| *m != of && !self.modules[*m].wraps.is_empty() && self.is_inside(*m, of))
            .collect()
    }

    /// The classes of the parameters of a module, or of all modules.
    pub fn classes_of(&mut self, module: Option<ModId>) -> Vec<ClassId> {
        let modules: Vec<Option<ModId>> = match module {
            Some(m) => {
                self.uses(m);
                std::iter::once(m).chain(self.wrapped_parts(m)).map(Some).collect()
            }
            None => {
                let wrapped = (0..self.modules.len()).filter(|m| !self.modules[*m].wraps.is_empty());
                let known = wrapped.chain(self.classes.iter().filter_map(|c| c.module));
                let mut all: Vec<Option<ModId>> = known.filter(|m| !self.modules[*m].unused).map(Some).collect();
                all.sort();
                all.dedup();
                if all.is_empty() { vec![None] } else { all }
            }
        };
        modules.into_iter().flat_map(|m| self.class(m)).collect()
    }

    fn class(&mut self, module: Option<ModId>) -> Vec<ClassId> {
        let root = self.classes.iter().position(|c| c.module == module);
        if let Some(at) = root {
            return self.leaves(at);
        }
        let mut class = Class::new(module);
        // What was done to all parameters was done to these.
        let all = self.classes.iter().find(|c| c.module.is_none() && c.split.is_none() && c.facts.is_empty());
        if let Some(all) = all {
            class = Class { module, ..all.clone() };
        }
        if let Some(m) = module {
            let name = self.modules[m].name.to_lowercase();
            if name.contains("expert") && !name.contains("shared") {
                class.facts.insert(Name::from("module of experts"), true);
            }
            let around: Vec<ModId> = (0..self.modules.len()).filter(|o| self.is_inside(m, *o)).collect();
            // Experts of a library that is not in view may scale what reaches their weights themselves.
            let made_outside =
                self.modules[m].name.contains('(') && around.iter().all(|o| self.modules[*o].class.is_none());
            if around.iter().any(|o| self.modules[*o].lost) || made_outside && class.is_expert() {
                class.always.0 = Scale::Unknown;
            }
            let wrapped = around.into_iter().filter(|o| !self.modules[*o].wraps.is_empty());
            let at = wrapped.max_by_key(|o| self.modules[*o].name.len());
            for (axes, divisor, place) in at.map(|i| self.modules[i].wraps.clone()).unwrap_or_default() {
                // Ranks of a model axis have the same gradients: their mean changes nothing, their sum does.
                let equal: AxisSet = axes.iter().filter(|a| kind(a) == Kind::Model).cloned().collect();
                class.always.0 = class.always.0.over(&divisor).times(&Scale::size(&equal));
                class.always.1 = class.always.1.iter().chain(axes.iter()).cloned().collect();
                let number = divisor.known().is_some_and(Monomial::is_number);
                let what = if number { What::Summed(axes.clone()) } else { What::Wrapped(axes.clone()) };
                class.always.2.push(Event { what, place, call: None });
                if divisor != Scale::size(&axes) && !number {
                    class.always.2.push(Event { what: What::Over(divisor), place, call: None });
                }
            }
        }
        self.classes.push(class);
        vec![self.classes.len() - 1]
    }

    /// What nothing is known of may have changed these gradients.
    pub fn lose(&mut self, value: &Val) {
        let classes = match value {
            Val::Params(m) => self.classes_of(*m),
            Val::Param(c) => self.leaves(*c),
            Val::Grad(g) => g.of.clone(),
            Val::Module(m) => {
                self.uses(*m);
                self.modules[*m].lost = true;
                (0..self.classes.len())
                    .filter(|c| self.classes[*c].module.is_some_and(|o| self.is_inside(o, *m)))
                    .collect()
            }
            Val::List(l) => {
                let items = self.lists.get(*l).map(|l| l.items.clone()).unwrap_or_default();
                items.iter().filter(|v| matches!(v, Val::Param(_) | Val::Grad(_))).for_each(|v| self.lose(v));
                return;
            }
            _ => return,
        };
        for class in classes.into_iter().flat_map(|c| self.leaves(c)).collect::<Vec<_>>() {
            if let Some(c) = self.classes.get_mut(class) {
                c.after = Scale::Unknown;
            }
        }
    }

    /// Gradients are thrown away.
    pub fn clear(&mut self) {
        self.terms = Shared::default();
        self.round.clear();
        for class in self.classes.iter_mut() {
            class.after = Scale::one();
            class.over = AxisSet::default();
            class.shards = AxisSet::default();
            class.clipped = None;
            class.copied = false;
            class.way.clear();
            class.events.clear();
        }
    }
}

impl Class {
    /// Whether code takes these for the parameters of experts.
    pub fn is_expert(&self) -> bool {
        self.facts.iter().any(|(key, holds)| {
            let key = key.to_lowercase();
            let expert = key.contains("expert") || key.contains("moe");
            let dense = key.contains("dense") || key.contains("shared") || key.contains("not");
            (key.ends_with("mark allreduce") && !holds) || (expert && !dense && *holds)
        })
    }

    /// Whether their gradients are parts of a sum over model axes.
    pub fn is_partial(&self) -> bool {
        self.facts.iter().any(|(key, holds)| key.contains("sequence_parallel") && *holds)
    }

    /// The factor and the axes, wrappers included.
    pub fn total(&self) -> (Scale, AxisSet) {
        let over = self.always.1.iter().chain(self.over.iter()).cloned().collect();
        (self.always.0.times(&self.after), over)
    }
}

impl<'a> Run<'a> {
    /// The submodule of a module under a name; parts of a list are one.
    pub fn child(&mut self, module: ModId, name: &str, state: &mut State) -> Val {
        state.uses(module);
        let base = state.modules[module].name.clone();
        let full = if name == "[]" { format!("{base}[]") } else { format!("{base}.{name}") };
        if full.len() > 100 {
            return Val::Module(module);
        }
        Val::Module(state.part(module, &full))
    }

    /// The summands of a loss; nothing of what has no gradient.
    pub fn parts(&self, loss: &Val) -> Option<Vec<Part>> {
        Some(match loss {
            Val::Tensor(Tensor { parts, .. }) => parts.clone(),
            Val::Named(text) => vec![opaque(text)],
            Val::Num(n) => {
                let label = self.opaque_part(&n.scale).map_or(Name::from("loss"), |p| p.label);
                let sizes = super::eval::sizes(&n.scale);
                let plain = sizes == Scale::one();
                let made = n.made.filter(|_| !plain);
                let events = made.map(|at| Event { what: What::Times(sizes), place: at, call: None });
                let counted = n.scale.known().is_some_and(|m| m.power(&Factor::Count(Name::from(TOKENS))) < 0);
                let tokens = n.made.filter(|_| counted && plain);
                let over = |place| Event { what: What::Over(super::eval::tokens()), place, call: None };
                let events = events.into_iter().chain(tokens.map(over)).collect();
                vec![Part { label, grad: n.scale.clone(), value: n.scale.clone(), events }]
            }
            Val::Zero(_) | Val::Const(_) => return None,
            _ => vec![Part {
                label: Name::from("loss"),
                grad: Scale::Unknown,
                value: Scale::Unknown,
                events: Vec::new(),
            }],
        })
    }

    /// Gradients are taken of a loss.
    pub fn backward(&mut self, id: StmtId, loss: &Val, state: &mut State) {
        let Some(parts) = self.parts(loss) else { return };
        let place = self.place(state, id);
        for part in parts {
            let loops = state.loops.to_vec();
            let every = state.round.conditions();
            state.terms.push(Term { part, loops, every, place });
        }
    }

    /// Gradients are reduced over a group.
    pub fn reduce(&mut self, id: StmtId, grad: &Grad, axes: &AxisSet, mean: bool, state: &mut State) {
        let place = self.place(state, id);
        let call = state.event(What::Backward, place).call;
        let way = state.chain(place);
        for class in grad.of.iter().flat_map(|c| state.leaves(*c)).collect::<Vec<_>>() {
            self.reduced_late(place, class, axes, state);
            self.parts_reduced(place, class, axes, state);
            let Some(c) = state.classes.get_mut(class) else { continue };
            if c.module.and_then(|m| state.modules.get(m)).is_some_and(|m| m.assumed) {
                // It is reduced by hand, so it is wrapped no more than it says.
                c.after = Scale::Unknown;
            }
            c.way = way.clone();
            let (_, already) = c.total();
            let twice = c.over.iter().any(|a| axes.contains(a));
            if twice && c.copied != grad.copy {
                // One of the two went into a copy, and nothing tells whether it came back from there.
                c.after = Scale::Unknown;
            }
            c.copied = grad.copy;
            let partial = c.is_partial();
            let each =
                |wanted: &dyn Fn(&Axis) -> bool| -> AxisSet { axes.iter().filter(|a| wanted(a)).cloned().collect() };
            if mean {
                let divided = each(&|a| !already.contains(a) && (kind(a) != Kind::Model || partial));
                c.after = c.after.over(&Scale::size(&divided));
            } else {
                let again = each(&|a| already.contains(a) && kind(a) != Kind::Model);
                c.after = c.after.times(&Scale::size(&again));
            }
            c.over = c.over.iter().chain(axes.iter()).cloned().collect();
            let what = if mean { What::Averaged(axes.clone()) } else { What::Summed(axes.clone()) };
            c.events.push(Event { what, place, call });
            if c.events.len() > 12 {
                c.after = Scale::Unknown;
            }
        }
    }

    /// Gradients are multiplied or divided in place.
    pub fn scale_gradients(&mut self, id: StmtId, op: BinOp, grad: &Grad, by: &Val, state: &mut State) {
        let scale = self.factor(by).unwrap_or(Scale::Unknown);
        if let Val::Norm(n) = by {
            self.norm_used(n, state);
        }
        let place = self.place(state, id);
        let times = op == BinOp::Mul;
        let applied = if times { scale.clone() } else { scale.inverse() };
        let event = state.event(what(times, &scale), place);
        let source = match by {
            Val::Num(n) => n.made.map(|place| state.event(made(times, &scale), place)),
            _ => None,
        };
        let plain = scale.known().is_some_and(Monomial::is_number);
        let events: Vec<Event> = source.into_iter().chain([event]).filter(|_| !plain).collect();
        self.multiply(grad, &applied, &events, false, state);
    }

    /// `p.grad = value`, `p.grad.data = value`: gradients of these parameters are what another value is.
    pub fn put_grad(&mut self, base: &Val, of: &[usize], value: &Val, state: &mut State) {
        match value {
            Val::Grad(g) => {
                let own = Grad { of: of.to_vec(), ..g.clone() };
                self.multiply(&own, &g.by, &g.events, false, state);
                for class in own.of {
                    state.classes.get_mut(class).into_iter().for_each(|c| c.copied = false);
                }
            }
            Val::Const(Const::None) => {}
            _ => state.lose(base),
        }
    }

    /// Gradients carry one more factor.
    pub fn multiply(&mut self, grad: &Grad, by: &Scale, events: &[Event], always: bool, state: &mut State) {
        for class in grad.of.iter().flat_map(|c| state.leaves(*c)).collect::<Vec<_>>() {
            let Some(c) = state.classes.get_mut(class) else { continue };
            if always {
                c.always.0 = c.always.0.times(by);
                c.always.2.extend(events.iter().cloned());
            } else {
                c.after = c.after.times(by);
                c.events.extend(events.iter().cloned());
            }
        }
    }

    /// A module is wrapped by something that averages gradients over a group.
    pub fn wrap(&mut self, module: &Val, axes: AxisSet, place: Place, state: &mut State) -> Val {
        let id = match module {
            Val::Module(m) => *m,
            Val::Named(text) => state.module(text),
            _ => return Val::named("wrapped"),
        };
        state.uses(id);
        let known = &mut state.modules[id];
        if known.assumed {
            (known.assumed, known.wraps) = (false, Wraps::new());
        }
        if !known.wraps.iter().any(|(a, _, _)| *a == axes) {
            known.wraps.push((axes.clone(), Scale::size(&axes), place));
        }
        Val::Module(id)
    }
}
