//! Derivation: forward and backward run on terms, and every typing that satisfies the definition is kept. In: a class and, at a call,
//! its arguments. Out: [`Derived`], a case for each configuration. Never: words. Source: DESIGN.md section 6. Next: `apply.rs`.

use super::super::budget::Budget;
use super::super::expr::CallArgs;
use super::super::formula::Atom;
use super::super::heap::{Cell, ListCell, ObjectCell, ObjectClass};
use super::super::limits::DERIVATION_STEPS;
use super::super::machine::{Activation, Eval, Machine};
use super::super::practice::view::View;
use super::super::value::{Closure, ObjId, Value};
use super::super::world::{Flow, Frame, World};
use super::decide::{decide, fits_without_factor, is_divided, is_mean, merged, returns_divided, told_apart};
use super::terms::{Deriving, Gap};
use crate::ir::{BinOp, BuildKind, Const, Func, Item, Operand, ParamKind, Rvalue, Stmt, StmtId};
use crate::project::{ClassRef, FuncRef};
use crate::source::{Name, Place};
use crate::types::{AxisSet, Shape, Spmd, TensorType, Term};
use std::sync::Arc;

/// Numbers of dims that tensors are taken to have, until the bodies make sense.
pub const RANKS: [usize; 3] = [2, 3, 4];
/// The class of the first argument of forward and backward.
pub const CONTEXT: &str = "(autograd context)";

/// What the signatures of a case follow from beside the mesh: the output, the arguments with gradients, and the terms of the forward, of the
/// backward and of the other outputs.
type Terms = (usize, Vec<usize>, Arc<Term>, Vec<Arc<Term>>, Vec<(usize, Arc<Term>)>);

/// A case that was decided before, with the mesh and the terms that it was decided by.
pub type Decided = ((Option<AxisSet>, Terms), Case);

/// The signatures of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct Derived {
    pub class: ClassRef,
    pub cases: Vec<Case>,
    /// What the bodies do that is not followed.
    pub gaps: Vec<Gap>,
}

/// One configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub facts: super::super::formula::Facts,
    /// The axes over which the function communicates; none: it treats all ranks alike.
    pub axes: AxisSet,
    /// Tensor arguments that receive a gradient, by position among the arguments of `apply`.
    pub inputs: Vec<usize>,
    /// The arguments whose gradients the terms of the backward are.
    pub gradients: Vec<usize>,
    /// The output that is the tensor, and how many there are if they are a tuple.
    pub output: usize,
    pub outputs: Option<usize>,
    /// The other outputs, where they are followed.
    pub others: Vec<(usize, Arc<Term>)>,
    /// The number of dims that tensors were taken to have.
    pub rank: usize,
    /// Whether the bodies name the last of these dims by its number alone.
    pub from_front: bool,
    /// Dims that are arguments, by the number that they were taken for.
    pub named: Vec<(usize, Name)>,
    /// Further groups that the function communicates over.
    pub further: Vec<Further>,
    /// Whether another way through the bodies, which nothing tells apart, has other types.
    pub ambiguous: bool,
    /// Every signature that satisfies the definition.
    pub legal: Vec<Signature>,
    /// The one that tells most.
    pub principal: Option<Signature>,
    pub trouble: Option<Trouble>,
    pub forward: Arc<Term>,
    pub backward: Vec<Arc<Term>>,
    pub forward_at: Place,
    pub backward_at: Place,
    /// Arguments that the forward reduces along a dim and then over the ranks.
    pub folded: Vec<(usize, Option<usize>)>,
    /// A collective of the backward that has no gradient itself.
    pub raw: Option<Place>,
    /// Where the backward takes the part of the rank.
    pub own: Option<Place>,
}

impl Case {
    /// Whether a rank takes its own part, forward or backward.
    pub fn splits(&self) -> bool {
        self.steps().any(|s| matches!(s, Term::Split { .. }))
    }

    /// Whether the ranks exchange anything, forward or backward.
    pub fn communicates(&self) -> bool {
        self.steps().any(Term::communicates)
    }

    /// Where the backward leaves each rank its own part of a gradient.
    pub fn kept_part(&self) -> Option<Place> {
        let own = |t: &Arc<Term>| t.steps().iter().any(|s| matches!(s, Term::Split { .. }));
        self.own.filter(|_| self.backward.iter().any(own))
    }

    fn steps(&self) -> impl Iterator<Item = &Term> {
        std::iter::once(&self.forward).chain(&self.backward).flat_map(|t| t.steps())
    }
}

/// A typing of the arguments and the result, with the dims that are split where the terms show them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    pub sources: Vec<(Spmd, Option<usize>)>,
    pub result: (Spmd, Option<usize>),
    /// Of the other outputs that are followed, the type that tells most.
    pub others: Vec<(usize, Spmd)>,
}

/// The types on a further group.
#[derive(Clone, Debug, PartialEq)]
pub struct Further {
    pub axes: AxisSet,
    pub legal: Vec<Signature>,
    pub principal: Signature,
}

/// What is wrong with a function.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// No typing makes the backward the adjoint of the forward.
    NotAdjoint,
    /// Without a factor of the number of ranks in one of them, the backward would be the adjoint of the forward.
    Scaled { in_forward: bool, at: Place },
    /// The gradient of an argument is computed before the gradient of the result was exchanged as the forward exchanged its values.
    BeforeExchange { argument: Name, at: Place },
    /// The gradient of an argument is exchanged after its product with another one, or before (`early`), and the forward has it the
    /// other way round.
    Misordered { argument: Name, other: Name, early: bool },
    /// Forward and backward communicate over different groups.
    OtherGroup(AxisSet, AxisSet),
    /// The backward returns so many gradients for so many arguments.
    Count { returned: usize, expected: usize },
    /// A gradient for an argument that is no tensor, or none for the tensor that the result is made of.
    Misplaced { given: Option<Name>, missing: Option<Name> },
}

/// The methods of a class that matter.
pub struct Methods {
    pub forward: FuncRef,
    pub backward: FuncRef,
    pub setup: Option<FuncRef>,
}

impl Machine<'_> {
    /// Whether a class of the project is an autograd function.
    pub fn is_autograd_function(&self, class: ClassRef) -> bool {
        let mut bases = self.settings.statics.external_bases(class);
        bases.any(|b| self.rules.autograd_base(b))
    }

    /// Whether the forward of an autograd function runs, by itself or called: its backward is what is written beside it.
    pub fn is_own_forward(&self) -> bool {
        self.stack.iter().any(|active| {
            let func = self.project.func(active.func);
            let class = func.class.map(|class| ClassRef { module: active.func.module, class });
            func.name == "forward" && class.is_some_and(|class| self.is_autograd_function(class))
        })
    }

    pub fn methods_of(&self, class: ClassRef) -> Option<Methods> {
        let bound = |at: FuncRef| {
            let flavour = self.settings.static_flavour(self.project, self.rules, at);
            flavour == Some(super::super::value::Flavour::ClassMethod)
        };
        let find = |name: &str| {
            self.settings.linearized(self.project, class).iter().find_map(|c| {
                let methods = &self.project.class(*c).methods;
                let (_, func) = methods.iter().find(|(n, _)| n == name)?;
                Some(FuncRef { module: c.module, func: *func })
            })
        };
        let (forward, backward) = (find("forward")?, find("backward")?);
        // A class method has one parameter more, which is not followed.
        (!bound(forward) && !bound(backward)).then(|| Methods { forward, backward, setup: find("setup_context") })
    }

    /// The signatures of a class, with the arguments of a call or, without one, with unknown ones, of tensors with so many dims.
    pub fn derive(&mut self, class: ClassRef, args: Option<&CallArgs>, ranks: &[usize]) -> Option<Derived> {
        let methods = self.methods_of(class)?;
        if self.deriving.is_some() || self.stack.len() >= super::super::limits::MAX_CALL_DEPTH {
            return None;
        }
        let saved = (self.w.clone(), self.quiet, std::mem::take(&mut self.budget), self.rank_restricted.clone());
        let mut best: Option<Derived> = None;
        for (rank, one_dim) in ranks.iter().flat_map(|rank| [(*rank, false), (*rank, true)]) {
            let dims = self.deriving.take().map_or(0, |d| d.dims.len());
            if one_dim && dims < 2 {
                continue;
            }
            self.w = saved.0.clone();
            (self.quiet, self.budget) = (true, Budget::of_steps(DERIVATION_STEPS));
            let mut cases = self.cases(&methods, args, rank, one_dim);
            let dims = self.deriving.as_ref().map_or(0, |d| d.dims.len());
            let undecided = !one_dim && dims > 1 || dims > 2 || self.deriving.as_ref().is_some_and(|d| d.assumed_sum);
            // Dims that differ here may be the same in a call.
            cases
                .iter_mut()
                .filter(|c| undecided && c.trouble == Some(Trouble::NotAdjoint) && !super::order::is_repeated(c))
                .for_each(|c| c.trouble = None);
            let is_idle = |c: &Case| self.is_before_start(c, &methods) || super::order::is_one_sided(c);
            cases.iter_mut().filter(|c| is_idle(c)).for_each(|c| c.trouble = None);
            let gaps = self.deriving.as_ref().map_or_else(Vec::new, |d| d.gaps.clone());
            let found = Derived { class, cases, gaps };
            let conclusive = found.is_conclusive() && !self.deriving.as_ref().is_some_and(|d| d.has_other_rank);
            if conclusive || best.as_ref().is_none_or(|b| b.cases.is_empty()) {
                best = Some(found);
            }
            if conclusive || args.is_some() && self.is_blind(&methods) {
                break;
            }
        }
        self.deriving = None;
        (self.w, self.quiet, self.budget, self.rank_restricted) = saved;
        best
    }

    /// Whether a case is that of a program that has not made its groups yet: its forward gives what it is given where a variable of a
    /// module still has the value that holds its place, or where another way through it, which is not followed, communicates.
    fn is_before_start(&self, case: &Case, methods: &Methods) -> bool {
        let through = case.trouble == Some(Trouble::NotAdjoint) && matches!(*case.forward, Term::Arg(_));
        let holds_place = |(atom, value): (&Atom, bool)| match atom {
            Atom::IsNone(name) | Atom::Equals(name, Const::Int(1)) if value => {
                let (module, last) = name.rsplit_once('.').unwrap_or_default();
                self.project.module_named(module).is_some_and(|m| self.set_later(m).contains(last))
            }
            _ => false,
        };
        let communicates = || {
            let forward = View::new(self.project, self.rules, self.files, methods.forward);
            let early = |at: usize| forward.steps[..at].iter().any(|s| matches!(s.stmt, Stmt::Return { .. }));
            forward.collectives().iter().any(|(at, _)| early(*at))
        };
        through && if case.facts.is_empty() { communicates() } else { case.facts.iter().any(holds_place) }
    }

    /// Whether no gradient is followed, however many dims the tensors have.
    fn is_blind(&self, methods: &Methods) -> bool {
        let stores = self.project.func(methods.setup.unwrap_or(methods.forward));
        super::blind::is_blind(stores, self.project.func(methods.backward))
    }

    /// Which arguments of a call are taken for tensors whatever they are, because they receive a gradient.
    pub fn receiving(&self, class: ClassRef) -> Vec<bool> {
        let Some(methods) = self.methods_of(class) else { return Vec::new() };
        let own = usize::from(methods.setup.is_none());
        let params = || self.project.func(methods.forward).params.iter().skip(own);
        let receives = gradients_of(self.project.func(methods.backward), params().count());
        let single = |p: &crate::ir::Param| matches!(p.kind, ParamKind::PositionalOnly | ParamKind::Normal);
        params().zip(receives).map(|(p, receives)| receives && single(p)).collect()
    }

    /// A function that a body under derivation applies is its forward.
    pub fn forward_of(&mut self, class: ClassRef, args: &CallArgs) -> Eval {
        let Some(methods) = self.methods_of(class).filter(|_| !args.open) else { return Eval::One(Value::Unknown) };
        if self.stack.len() >= super::super::limits::MAX_CALL_DEPTH {
            return Eval::One(Value::Unknown);
        }
        let mut given: Vec<Value> = args.args.iter().map(|a| a.value.clone()).collect();
        if methods.setup.is_none() {
            let context = self.context(given.len());
            given.insert(0, context);
        }
        let nest = |m: &mut Self, by: isize| {
            if let Some(d) = &mut m.deriving {
                d.depth = d.depth.saturating_add_signed(by);
            }
        };
        nest(self, 1);
        let outcomes = self.body(methods.forward, &given);
        nest(self, -1);
        self.exits(outcomes)
    }

    /// A generator, as the list of anything that it gives.
    pub fn generated(&mut self, id: StmtId, closure: &Arc<Closure>, args: &CallArgs) -> Eval {
        let outer = self.deriving.as_mut().map(|d| std::mem::take(&mut d.yields)).unwrap_or_default();
        let before = self.w.clone();
        self.execute(id, closure, args);
        self.w = before;
        let given = self.deriving.as_mut().map(|d| std::mem::replace(&mut d.yields, outer)).unwrap_or_default();
        // What was made while it ran is gone with the worlds that it ran in.
        let lasts = |v: &Value| {
            matches!(v, Value::Slice(_) | Value::Number(_) | Value::Share(_) | Value::Const(_) | Value::Sym(_))
        };
        if given.is_empty() || !given.iter().all(lasts) {
            return Eval::One(Value::Unknown);
        }
        let rest = match given.split_first() {
            Some((first, others)) if others.iter().all(|v| v == first) => first.clone(),
            _ => self.join_values(&given),
        };
        Eval::One(Value::List(self.fresh(Cell::List(ListCell { items: Vec::new(), rest: Some(rest) }))))
    }

    fn cases(&mut self, methods: &Methods, args: Option<&CallArgs>, rank: usize, one_dim: bool) -> Vec<Case> {
        let func = self.project.func(methods.forward);
        let own = usize::from(methods.setup.is_none());
        let names: Vec<Name> = func.params.iter().skip(own).map(|p| p.name.clone()).collect();
        let mut receives = gradients_of(self.project.func(methods.backward), names.len());
        // Behind `*gradients` the position of an argument is not known.
        let placed = args.filter(|a| !a.open);
        let plain = self.plain_arguments(methods, own, placed);
        receives.iter_mut().zip(&plain).filter(|(_, plain)| **plain).for_each(|(slot, _)| *slot = false);
        if !receives.contains(&true) {
            // Gradients that all go to what is no tensor are those of the others.
            let required = func.params.iter().skip(own).map(|p| !p.has_default && p.kind == ParamKind::Normal);
            receives = required.zip(&plain).map(|(required, plain)| required && !plain).collect();
        }
        let number = placed.map(|a| a.args.len());
        self.deriving = Some(Deriving { params: names.clone(), rank, one_dim, given: number, ..Deriving::default() });
        self.w.modes.grad = false;
        let context = self.context(names.len());
        let annotated = self.annotated.clone();
        func.params.iter().for_each(|p| self.note_hint(methods.forward.module, p));
        let values = self.forward_values(methods.forward, own, args, &receives, rank);
        let mut given: Vec<Value> = values.clone();
        if own == 1 {
            given.insert(0, context.clone());
        }
        let mut out = Vec::new();
        let paths = self.body(methods.forward, &given);
        let forward_places = self.deriving_places();
        let forward_scales = self.deriving.as_ref().map_or_else(Vec::new, |d| d.scales.clone());
        let stored = stored(&context, &paths);
        for (world, result) in paths {
            self.w = world;
            self.leave_unset(&context, &stored);
            self.clear_places();
            let scale = forward_scales.last().copied();
            let worlds = match methods.setup {
                Some(setup) => {
                    let inputs = Value::tuple(values.clone());
                    self.body(setup, &[context.clone(), inputs, result.clone()]).into_iter().map(|(w, _)| w).collect()
                }
                None => vec![std::mem::take(&mut self.w)],
            };
            for world in worlds {
                self.w = world;
                self.backward_cases(methods, &context, &result, rank, (&forward_places, scale), &mut out, &plain);
            }
        }
        self.annotated = annotated;
        for case in &mut out {
            case.named = self.dims_by_name();
            case.from_front = self.deriving.as_ref().is_some_and(|d| d.from_front.get() && !d.from_end.get());
        }
        let lost = self.deriving.as_mut().map_or_else(Vec::new, |d| std::mem::take(&mut d.lost));
        let mut cases = told_apart(out, &lost);
        super::fixed::apart_by_rank(&mut cases);
        merged(cases, &lost)
    }

    fn deriving_places(&mut self) -> Vec<Place> {
        self.deriving.as_ref().map_or_else(Vec::new, |d| d.places.clone())
    }
    fn clear_places(&mut self) {
        if let Some(d) = &mut self.deriving {
            d.places.clear();
            d.scales.clear();
            d.products.clear();
            d.raw.clear();
            d.own.clear();
            d.folds.done = true;
        }
    }

    pub fn context(&mut self, arguments: usize) -> Value {
        let mut cell = ObjectCell {
            class: ObjectClass::External(Name::from(CONTEXT)),
            path: Name::from("ctx"),
            attrs: Vec::new(),
        };
        cell.set(&Name::from("needs_input_grad"), Value::tuple(vec![Value::TRUE; arguments]));
        cell.set(&Name::from("saved_tensors"), Value::tuple(Vec::new()));
        Value::Object(self.fresh(Cell::Object(cell)))
    }

    /// What other ways through the forward store in the context is not there on this one: a backward that asks for it is not run after it.
    fn leave_unset(&mut self, context: &Value, stored: &[Name]) {
        let Value::Object(id) = context else { return };
        let Some(Cell::Object(cell)) = self.w.heap.get_mut(*id) else { return };
        for name in stored {
            if cell.get(name).is_none() {
                cell.set(name, Value::Unset);
            }
        }
    }

    /// Whether an object is the context of a function that is derived.
    pub fn is_context(&self, object: ObjId) -> bool {
        self.w.heap.object(object).is_some_and(|o| matches!(&o.class, ObjectClass::External(p) if p == CONTEXT))
    }

    /// A method of the context: what is saved can be read in the backward.
    pub fn context_method(&mut self, object: ObjId, name: &str, args: &CallArgs) -> Value {
        if matches!(name, "save_for_backward" | "save_for_forward")
            && let Some(Cell::Object(cell)) = self.w.heap.get_mut(object)
        {
            let saved = args.args.iter().map(|a| a.value.clone()).collect();
            cell.set(&Name::from("saved_tensors"), Value::tuple(saved));
        }
        Value::NONE
    }

    pub fn term_tensor(&mut self, term: Term, rank: usize) -> Value {
        let shape = Some(Shape(vec![None; rank]));
        self.new_tensor(TensorType { term: Some(Arc::new(term)), shape, ..TensorType::unknown() })
    }

    /// The term of a value; of a list of parts, of the parts together.
    fn whole_term(&self, value: &Value) -> Arc<Term> {
        match value {
            Value::List(_) if self.literal_items(value).is_none() => Arc::new(Term::cat(&self.part_term(value), 0)),
            _ => self.term(value),
        }
    }

    /// Executes a method with these arguments; the worlds it leaves, with what it returns.
    pub fn body(&mut self, at: FuncRef, given: &[Value]) -> Vec<(World, Value)> {
        let call = self.stack.last().and_then(|a| a.call);
        self.body_called(at, given, call)
    }

    /// The same, from a place of its own.
    pub fn body_called(&mut self, at: FuncRef, given: &[Value], call: Option<Place>) -> Vec<(World, Value)> {
        let func = self.project.func(at);
        self.stack.push(Activation::new(self.project, at, call));
        self.w.frames.push(Frame::new(at, func.locals().len()));
        let mut next = 0;
        for param in &func.params {
            let value = match param.kind {
                ParamKind::VarArgs if matches!(given.get(next..), Some([Value::List(_)])) => {
                    next += 1;
                    given[next - 1].clone()
                }
                ParamKind::VarArgs => {
                    let rest = given.get(next..).unwrap_or_default().to_vec();
                    next = given.len();
                    Value::tuple(rest)
                }
                ParamKind::KwArgs => Value::Unknown,
                ParamKind::PositionalOnly | ParamKind::Normal | ParamKind::KeywordOnly => {
                    let value = given.get(next).cloned().unwrap_or(Value::Unknown);
                    next += 1;
                    value
                }
            };
            self.set_local(param.local, value);
        }
        let paths = self.block(func.body());
        self.stack.pop();
        let mut out = Vec::new();
        for path in paths {
            let value = match path.flow {
                Flow::Return(value) => value,
                Flow::Next => Value::NONE,
                Flow::Raise | Flow::Break | Flow::Continue => continue,
            };
            let mut world = path.world;
            world.frames.pop();
            out.push((world, value));
        }
        self.reunited(out, &AxisSet::default())
    }

    /// What a backward returns, by argument. A tensor without values stands in for a gradient that was added up elsewhere, as `None` does.
    fn gradients_among(&self, returned: &[Value]) -> Vec<(usize, Arc<Term>)> {
        let some = returned.iter().enumerate().filter(|(_, v)| !v.is_none());
        let mut out: Vec<(usize, Arc<Term>)> = some.map(|(i, v)| (i, self.whole_term(v))).collect();
        let stands_in = |t: &Arc<Term>| matches!(**t, Term::Fresh);
        if !out.iter().all(|(_, t)| stands_in(t)) {
            out.retain(|(_, t)| !stands_in(t));
        }
        out
    }

    /// The cases of one way through the forward.
    #[expect(clippy::too_many_arguments, reason = "what one way through the forward leaves")]
    fn backward_cases(
        &mut self,
        methods: &Methods,
        context: &Value,
        result: &Value,
        rank: usize,
        (forward_places, forward_scale): (&[Place], Option<Place>),
        out: &mut Vec<Case>,
        plain: &[bool],
    ) {
        let arguments = plain.len();
        let results = each_of(result);
        let terms: Vec<Arc<Term>> = results.iter().map(|v| self.whole_term(v)).collect();
        // What is made of constants alone is what a way gives that leaves something out, as a loop without a round does.
        let is_constant = |s: &&Term| matches!(s, Term::Math { .. } | Term::Equal | Term::Fresh);
        let tells = |t: &Arc<Term>| **t != Term::Unknown && !t.steps().iter().all(is_constant);
        let Some(output) = terms.iter().position(tells) else { return self.lost_way() };
        let others: Vec<(usize, Arc<Term>)> =
            terms.iter().cloned().enumerate().filter(|(i, t)| *i != output && tells(t)).collect();
        let mut given = vec![context.clone()];
        given.extend(self.upstream(&results, rank));
        for (world, value) in self.body(methods.backward, &given) {
            self.w = world;
            let returned = each_of(&value);
            let gradients = self.gradients_among(&returned);
            // Tuples that are written in the return are counted there; a call with more arguments than the forward takes is what is wrong there.
            let given = self.deriving.as_ref().and_then(|d| d.given);
            let given = given.filter(|n| *n <= arguments || self.takes_more(methods));
            let expected = given.unwrap_or(arguments);
            let few =
                matches!(value, Value::Tensor(_)) && expected > 1 && (given.is_some() || !self.takes_more(methods));
            let return_at = self.only_return(methods.backward).filter(|_| few);
            let (facts, places) = (self.w.facts.clone(), self.deriving_places());
            let mut case = Case {
                facts,
                axes: AxisSet::default(),
                inputs: gradients.iter().map(|(i, _)| *i).collect(),
                gradients: gradients.iter().map(|(i, _)| *i).collect(),
                output,
                outputs: matches!(result, Value::Tuple(_)).then_some(results.len()),
                others: others.clone(),
                rank,
                from_front: false,
                named: Vec::new(),
                further: Vec::new(),
                ambiguous: false,
                legal: Vec::new(),
                principal: None,
                trouble: few.then_some(Trouble::Count { returned: returned.len(), expected }),
                forward: terms[output].clone(),
                backward: gradients.iter().map(|(_, t)| t.clone()).collect(),
                folded: self.deriving.as_ref().map_or_else(Vec::new, |d| d.folds.over_ranks.clone()),
                raw: self.deriving.as_ref().and_then(|d| d.raw.first().copied()),
                own: self.deriving.as_ref().and_then(|d| d.own.last().copied()),
                forward_at: forward_places.last().copied().unwrap_or_else(|| self.name_of(methods.forward)),
                backward_at: return_at
                    .or_else(|| places.last().copied())
                    .unwrap_or_else(|| self.name_of(methods.backward)),
            };
            // Memory that nothing was written to is no gradient.
            if case.trouble.is_none() && gradients.iter().any(|(_, t)| **t == Term::Fresh) {
                self.lost_way();
                continue;
            }
            if case.trouble.is_none()
                && let Some(trouble) = self.misplaced(plain, &case.forward, &returned)
            {
                case.backward_at = self.return_or_name(methods.backward);
                case.trouble = Some(trouble);
            }
            if case.trouble.is_none() {
                self.decide(&mut case);
                self.factor_of_one(&mut case, forward_scale);
                self.layout_of_gradients(&mut case, &gradients);
                self.order_of_products(&mut case, &gradients);
                self.same_part_everywhere(&mut case);
            }
            out.push(case);
        }
    }

    /// Notes that this way through the bodies tells nothing.
    fn lost_way(&mut self) {
        if let Some(d) = &mut self.deriving {
            d.lost.push(self.w.facts.clone());
        }
    }

    /// Finds the signatures of a case: those of one with the same terms, where there was one.
    fn decide(&mut self, case: &mut Case) {
        let mesh = self.whole_mesh();
        let terms =
            (case.output, case.inputs.clone(), case.forward.clone(), case.backward.clone(), case.others.clone());
        let before = (mesh.clone(), terms);
        let known = self.decided.iter().find(|(asked, _)| *asked == before).map(|(_, known)| known);
        let Some(known) = known else {
            decide(case, mesh);
            self.decided.push((before, case.clone()));
            return;
        };
        (case.axes, case.inputs) = (known.axes.clone(), known.inputs.clone());
        (case.legal, case.principal) = (known.legal.clone(), known.principal.clone());
        (case.trouble, case.further) = (known.trouble.clone(), known.further.clone());
    }

    /// The gradients of the results, as the backward gets them.
    fn upstream(&mut self, results: &[Value], rank: usize) -> Vec<Value> {
        let grad = |(i, result): (usize, &Value)| match result {
            Value::List(_) => self.parts(&Arc::new(Term::Grad(i)), rank),
            _ => self.term_tensor(Term::Grad(i), rank),
        };
        results.iter().enumerate().map(grad).collect()
    }

    /// A factor of the number of ranks in the forward alone or in the backward alone.
    fn factor_of_one(&self, case: &mut Case, forward_scale: Option<Place>) {
        let at = self.deriving.as_ref().and_then(|d| d.scales.last().copied());
        let scales = |t: &Term| t.steps().iter().filter(|s| matches!(s, Term::Scale { .. })).count();
        let [backward] = case.backward.as_slice() else { return };
        let (f, b) = (scales(&case.forward), scales(backward));
        if f == 0 && case.trouble.is_none() && is_mean(case, backward) {
            // The mean of what is equal is nothing new: it is taken of what the ranks have from data of their own.
            (case.further, case.principal) = (Vec::new(), None);
            return;
        }
        let place = match (f, b) {
            // The mean that a wrapper takes over all ranks undoes what only the own part of a gradient is multiplied with.
            (0, 1..)
                if case.trouble.is_none()
                    && !backward.exchanges()
                    && (is_over_all(case) || self.is_averaged_here()) =>
            {
                None
            }
            (0, 1..) => at,
            (1.., 0) => forward_scale,
            _ => None,
        };
        let is_fine = |t: &Option<Trouble>| matches!(t, None | Some(Trouble::NotAdjoint));
        if let (Some(at), true, true) = (place, case.communicates(), is_fine(&case.trouble))
            && (fits_without_factor(case) || returns_divided(case, backward))
        {
            // The mean of a wrapper undoes a factor of the whole sum as well: where each rank has the loss of all, the sum is the gradient.
            // What comes back from all ranks is a sum where the wrapper gives the others a mean.
            let undone =
                f == 0 && (!is_divided(backward) || returns_divided(case, backward)) && self.is_averaged_here();
            case.trouble = (!undone).then_some(Trouble::Scaled { in_forward: f > 0, at });
        }
    }

    /// Whether the file under execution wraps a model in something that takes the mean over ranks.
    fn is_averaged_here(&self) -> bool {
        let text = self.files[self.project.file(self.activation().module)].whole();
        let trains =
            |(package, name): &(Name, Name)| text.contains(package.as_str()) && text.contains(&format!("{name}("));
        super::super::whole::WRAPPERS.iter().any(|word| text.contains(word))
            || text.contains("ReduceOp.AVG") && text.contains(".grad")
            || self.rules.trainers().iter().any(trains)
    }

    /// A gradient in another layout than what it is multiplied with.
    fn layout_of_gradients(&self, case: &mut Case, gradients: &[(usize, Arc<Term>)]) {
        let Some(deriving) = &self.deriving else { return };
        if let (None, Some((argument, at))) =
            (&case.trouble, super::layout::before_exchange(&case.forward, gradients, &deriving.products))
            && let Some(name) = deriving.params.get(argument)
        {
            case.trouble = Some(Trouble::BeforeExchange { argument: name.clone(), at });
        }
    }

    /// A product on the other side of an exchange than the forward has it.
    fn order_of_products(&self, case: &mut Case, gradients: &[(usize, Arc<Term>)]) {
        let Some(deriving) = self.deriving.as_ref().filter(|_| case.trouble.is_none()) else { return };
        let Some(found) = super::order::misordered(&case.forward, gradients) else { return };
        let name = |i: usize| deriving.params.get(i).cloned();
        if let (Some(argument), Some(other)) = (name(found.argument), name(found.other)) {
            let at = deriving.products.iter().find(|(_, t)| *t == found.product).map(|(place, _)| *place);
            case.backward_at = at.unwrap_or(case.backward_at);
            case.trouble = Some(Trouble::Misordered { argument, other, early: found.early });
        }
    }

    fn takes_more(&self, methods: &Methods) -> bool {
        let func = self.project.func(methods.forward);
        func.params.iter().any(|p| p.has_default || matches!(p.kind, ParamKind::VarArgs | ParamKind::KwArgs))
    }
}

/// The attributes of the context that any way through the forward stores.
fn stored(context: &Value, paths: &[(World, Value)]) -> Vec<Name> {
    let Value::Object(id) = context else { return Vec::new() };
    let mut out: Vec<Name> = Vec::new();
    for (name, _) in paths.iter().filter_map(|(world, _)| world.heap.object(*id)).flat_map(|cell| &cell.attrs) {
        if !out.contains(name) {
            out.push(name.clone());
        }
    }
    out
}

/// Which arguments receive a gradient, by the return statements of the backward.
fn gradients_of(backward: &Func, arguments: usize) -> Vec<bool> {
    let mut out = vec![false; arguments];
    let mut built: Vec<(crate::ir::LocalId, Vec<bool>)> = Vec::new();
    let mut found = false;
    returns(backward.body(), &mut built, &mut |items| {
        found = true;
        for (slot, item) in out.iter_mut().zip(items) {
            *slot |= item;
        }
    });
    if !found && let Some(first) = out.first_mut() {
        *first = true;
    }
    out
}

/// Which elements of a sequence are more than `None`: of what is no tuple that is written there, the first.
fn elements(value: &Operand, built: &[(crate::ir::LocalId, Vec<bool>)]) -> Vec<bool> {
    let known = |local| built.iter().rev().find(|(l, _)| *l == local).map(|(_, items)| items.clone());
    match value {
        Operand::Local(local) => known(*local).unwrap_or_else(|| vec![true]),
        _ => vec![true],
    }
}

fn returns(
    block: &crate::ir::Block,
    built: &mut Vec<(crate::ir::LocalId, Vec<bool>)>,
    then: &mut dyn FnMut(Vec<bool>),
) {
    for node in block {
        match &node.stmt {
            Stmt::Assign { dst, value: Rvalue::Build { kind: BuildKind::Tuple, items } } => {
                let some = |item: &Item| !matches!(item, Item::One(Operand::Const(Const::None)));
                built.push((*dst, items.iter().map(some).collect()));
            }
            Stmt::Assign { dst, value: Rvalue::Binary { op: BinOp::Add, left, right } } => {
                let mut items = elements(left, built);
                items.extend(elements(right, built));
                built.push((*dst, items));
            }
            Stmt::Return { value } => then(elements(value, built)),
            Stmt::If { then: a, orelse, .. } => {
                returns(a, built, then);
                returns(orelse, built, then);
            }
            Stmt::With { body, .. } | Stmt::For { body, .. } | Stmt::While { body, .. } => returns(body, built, then),
            Stmt::Try { body, handlers, orelse, finally } => {
                for b in [body, orelse, finally].into_iter().chain(handlers) {
                    returns(b, built, then);
                }
            }
            _ => {}
        }
    }
}

/// The values of a tuple, or the one value.
fn each_of(value: &Value) -> Vec<Value> {
    match value {
        Value::Tuple(items) => items.to_vec(),
        one => vec![one.clone()],
    }
}

/// Whether a function communicates over all ranks.
fn is_over_all(case: &Case) -> bool {
    case.axes.iter().any(|a| a.name() == super::super::scale::groups::WORLD)
}
