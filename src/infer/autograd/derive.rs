//! Derivation: forward and backward run on terms, and every typing that satisfies the definition is kept. In: a class and, at a call,
//! its arguments. Out: [`Derived`], a case for each configuration. Never: words. Source: DESIGN.md section 6. Next: `apply.rs`.

use super::super::budget::Budget;
use super::super::expr::CallArgs;
use super::super::finding::Adjoint;
use super::super::heap::{Cell, ObjectCell, ObjectClass};
use super::super::limits::DERIVATION_STEPS;
use super::super::machine::{Activation, Eval, Machine};
use super::super::value::{ObjId, Value};
use super::super::world::{Flow, Frame, World};
use super::numeric;
use super::terms::Deriving;
use crate::ir::{BuildKind, Const, Func, Item, Operand, ParamKind, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef};
use crate::source::{Name, Place};
use crate::types::{AxisSet, Reduction, Shape, Spmd, TensorType, Term};
use std::sync::Arc;

/// Numbers of dims that tensors are taken to have, until the bodies make sense.
const RANKS: [usize; 3] = [2, 3, 4];
/// The class of the first argument of forward and backward.
pub const CONTEXT: &str = "(autograd context)";

/// The signatures of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct Derived {
    pub class: ClassRef,
    pub cases: Vec<Case>,
}

/// One configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub facts: super::super::formula::Facts,
    /// The axes over which the function communicates; none: it treats all ranks alike.
    pub axes: AxisSet,
    /// Tensor arguments that receive a gradient, by position among the arguments of `apply`.
    pub inputs: Vec<usize>,
    /// The output that is the tensor, and how many there are if they are a tuple.
    pub output: usize,
    pub outputs: Option<usize>,
    /// The number of dims that tensors were taken to have.
    pub rank: usize,
    /// Every signature that satisfies the definition.
    pub legal: Vec<Signature>,
    /// The one that tells most.
    pub principal: Option<Signature>,
    pub trouble: Option<Trouble>,
    pub forward: Arc<Term>,
    pub backward: Vec<Arc<Term>>,
    pub forward_at: Place,
    pub backward_at: Place,
}

impl Case {
    /// Whether the ranks exchange anything, forward or backward.
    pub fn communicates(&self) -> bool {
        let mut steps = Vec::new();
        self.forward.steps(&mut steps);
        self.backward.iter().for_each(|t| t.steps(&mut steps));
        steps.iter().any(|s| s.communicates())
    }
}

/// A typing of the arguments and the result, with the dims that are split where the terms show them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    pub sources: Vec<(Spmd, Option<usize>)>,
    pub result: (Spmd, Option<usize>),
}

/// What is wrong with a function.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// No typing makes the backward the adjoint of the forward.
    NotAdjoint,
    /// Forward and backward communicate over different groups.
    OtherGroup(AxisSet, AxisSet),
    /// The backward returns so many gradients for so many arguments.
    Count { returned: usize, expected: usize },
}

/// The methods of a class that matter.
struct Methods {
    forward: FuncRef,
    backward: FuncRef,
    setup: Option<FuncRef>,
}

impl Machine<'_> {
    /// Whether a class of the project is an autograd function.
    pub fn is_autograd_function(&self, class: ClassRef) -> bool {
        let mut bases = self.settings.statics.external_bases(class);
        bases.any(|b| self.rules.autograd_base(b))
    }

    fn methods_of(&self, class: ClassRef) -> Option<Methods> {
        let find = |name: &str| {
            self.settings.linearized(self.project, class).iter().find_map(|c| {
                let methods = &self.project.class(*c).methods;
                let (_, func) = methods.iter().find(|(n, _)| n == name)?;
                Some(FuncRef { module: c.module, func: *func })
            })
        };
        Some(Methods { forward: find("forward")?, backward: find("backward")?, setup: find("setup_context") })
    }

    /// The signatures of a class, with the arguments of a call or, without one, with unknown ones.
    pub fn derive(&mut self, class: ClassRef, args: Option<&CallArgs>) -> Option<Derived> {
        let methods = self.methods_of(class)?;
        if self.deriving.is_some() || self.stack.len() >= super::super::limits::MAX_CALL_DEPTH {
            return None;
        }
        let saved = (self.w.clone(), self.quiet, std::mem::take(&mut self.budget), self.rank_restricted.clone());
        let mut best: Option<Derived> = None;
        for rank in RANKS {
            self.w = saved.0.clone();
            (self.quiet, self.budget) = (true, Budget::of_steps(DERIVATION_STEPS));
            let cases = self.cases(&methods, args, rank);
            let conclusive = !cases.is_empty() && cases.iter().all(|c| !c.legal.is_empty() || c.trouble.is_some());
            let first = best.is_none() && !cases.is_empty();
            if conclusive || first {
                best = Some(Derived { class, cases });
            }
            if conclusive {
                break;
            }
        }
        self.deriving = None;
        (self.w, self.quiet, self.budget, self.rank_restricted) = saved;
        best
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
        let outcomes = self.body(methods.forward, &given);
        self.exits(outcomes)
    }

    fn cases(&mut self, methods: &Methods, args: Option<&CallArgs>, rank: usize) -> Vec<Case> {
        let func = self.project.func(methods.forward);
        let own = usize::from(methods.setup.is_none());
        let names: Vec<Name> = func.params.iter().skip(own).map(|p| p.name.clone()).collect();
        let receives = gradients_of(self.project.func(methods.backward), names.len());
        self.deriving = Some(Deriving { params: names.clone(), rank, places: Vec::new() });
        self.w.modes.grad = false;
        let context = self.context(names.len());
        let values = self.forward_values(methods.forward, own, args, &receives, rank);
        let mut given: Vec<Value> = values.clone();
        if own == 1 {
            given.insert(0, context.clone());
        }
        let mut out = Vec::new();
        let paths = self.body(methods.forward, &given);
        let forward_places = self.deriving_places();
        for (world, result) in paths {
            self.w = world;
            self.clear_places();
            let worlds = match methods.setup {
                Some(setup) => {
                    let inputs = Value::tuple(values.clone());
                    self.body(setup, &[context.clone(), inputs, result.clone()]).into_iter().map(|(w, _)| w).collect()
                }
                None => vec![std::mem::take(&mut self.w)],
            };
            for world in worlds {
                self.w = world;
                self.backward_cases(methods, &context, &result, rank, &forward_places, &mut out, names.len());
            }
        }
        merged(out)
    }

    fn deriving_places(&mut self) -> Vec<Place> {
        self.deriving.as_ref().map_or_else(Vec::new, |d| d.places.clone())
    }
    fn clear_places(&mut self) {
        if let Some(d) = &mut self.deriving {
            d.places.clear();
        }
    }

    fn context(&mut self, arguments: usize) -> Value {
        let mut cell = ObjectCell {
            class: ObjectClass::External(Name::from(CONTEXT)),
            path: Name::from("ctx"),
            attrs: Vec::new(),
        };
        cell.set(&Name::from("needs_input_grad"), Value::tuple(vec![Value::TRUE; arguments]));
        cell.set(&Name::from("saved_tensors"), Value::tuple(Vec::new()));
        Value::Object(self.fresh(Cell::Object(cell)))
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

    fn term_tensor(&mut self, term: Term, rank: usize) -> Value {
        let shape = Some(Shape(vec![None; rank]));
        self.new_tensor(TensorType { term: Some(Arc::new(term)), shape, ..TensorType::unknown() })
    }

    /// The arguments of the forward: tensors that receive a gradient are what the terms are made of.
    fn forward_values(
        &mut self,
        at: FuncRef,
        own: usize,
        args: Option<&CallArgs>,
        receives: &[bool],
        rank: usize,
    ) -> Vec<Value> {
        let func = self.project.func(at);
        let mut out = Vec::new();
        for (i, param) in func.params.iter().skip(own).enumerate() {
            let given = args.and_then(|a| a.get(i, &param.name)).cloned();
            let is_tensor = match &given {
                Some(Value::Tensor(_)) => true,
                Some(Value::Sym(path)) => self.w.symbols.contains_key(path) || receives.get(i) == Some(&true),
                Some(Value::Unknown) | None => receives.get(i) == Some(&true),
                Some(_) => false,
            };
            let value = match (given, param.kind) {
                (_, ParamKind::VarArgs | ParamKind::KwArgs) => Value::Unknown,
                _ if is_tensor => self.term_tensor(Term::Arg(i), rank),
                (Some(value), _) => value,
                (None, _) => match self.settings.group_named(&param.name) {
                    Some(axes) => Value::Group(axes),
                    None => Value::Sym(param.name.clone()),
                },
            };
            out.push(value);
        }
        if let Some(args) = args {
            // Arguments that were left out have their defaults.
            let defaults = self.settings.static_defaults(self.project, at);
            for (at, value) in defaults {
                let at = (at as usize).checked_sub(own);
                if let Some(slot) = at.filter(|at| args.get(*at, &func.params[at + own].name).is_none()) {
                    out[slot] = value;
                }
            }
        }
        out
    }

    /// Executes a method with these arguments; the worlds it leaves, with what it returns.
    fn body(&mut self, at: FuncRef, given: &[Value]) -> Vec<(World, Value)> {
        let func = self.project.func(at);
        let call = self.stack.last().and_then(|a| a.call);
        self.stack.push(Activation { func: at, call });
        self.w.frames.push(Frame::new(at, func.locals.len()));
        let mut next = 0;
        for param in &func.params {
            let value = match param.kind {
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
        let paths = self.block(&func.body);
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

    /// The cases of one way through the forward.
    #[expect(clippy::too_many_arguments, reason = "what one way through the forward leaves")]
    fn backward_cases(
        &mut self,
        methods: &Methods,
        context: &Value,
        result: &Value,
        rank: usize,
        forward_places: &[Place],
        out: &mut Vec<Case>,
        arguments: usize,
    ) {
        let results: Vec<Value> = match result {
            Value::Tuple(items) => items.to_vec(),
            one => vec![one.clone()],
        };
        let terms: Vec<Arc<Term>> = results.iter().map(|v| self.term(v)).collect();
        let tells = |t: &Arc<Term>| !matches!(**t, Term::Unknown | Term::Equal | Term::Fresh);
        let Some(output) = terms.iter().position(tells) else { return };
        let grads: Vec<Value> = (0..results.len()).map(|i| self.term_tensor(Term::Grad(i), rank)).collect();
        let mut given = vec![context.clone()];
        given.extend(grads);
        let place = |m: &Self, f: FuncRef| Place { file: m.project.file(f.module), span: m.project.func(f).name_span };
        for (world, value) in self.body(methods.backward, &given) {
            self.w = world;
            let returned: Vec<Value> = match &value {
                Value::Tuple(items) => items.to_vec(),
                one => vec![one.clone()],
            };
            let gradients: Vec<(usize, Arc<Term>)> =
                returned.iter().enumerate().filter(|(_, v)| !v.is_none()).map(|(i, v)| (i, self.term(v))).collect();
            let literal = matches!(value, Value::Tuple(_)) || !matches!(value, Value::Unknown | Value::Sym(_));
            let few = literal && returned.len() < arguments && !self.takes_more(methods);
            let facts = self.w.facts.clone();
            let places = self.deriving_places();
            let mut case = Case {
                facts,
                axes: AxisSet::default(),
                inputs: gradients.iter().map(|(i, _)| *i).collect(),
                output,
                outputs: matches!(result, Value::Tuple(_)).then_some(results.len()),
                rank,
                legal: Vec::new(),
                principal: None,
                trouble: few.then_some(Trouble::Count { returned: returned.len(), expected: arguments }),
                forward: terms[output].clone(),
                backward: gradients.iter().map(|(_, t)| t.clone()).collect(),
                forward_at: forward_places.last().copied().unwrap_or_else(|| place(self, methods.forward)),
                backward_at: places.last().copied().unwrap_or_else(|| place(self, methods.backward)),
            };
            if case.trouble.is_none() {
                decide(&mut case, self.whole_mesh());
            }
            out.push(case);
        }
    }

    fn takes_more(&self, methods: &Methods) -> bool {
        let func = self.project.func(methods.forward);
        func.params.iter().any(|p| matches!(p.kind, ParamKind::VarArgs | ParamKind::KwArgs))
    }
}

/// Finds the signatures of a case.
fn decide(case: &mut Case, mesh: Option<AxisSet>) {
    let (forward, backward) = (axes_of([&case.forward]), axes_of(case.backward.iter()));
    let pure = case.backward.len() == 1
        && numeric::is_chain(&case.forward)
        && numeric::is_chain(&case.backward[0])
        && matches!(start(&case.backward[0]), Some(Term::Grad(i)) if *i == case.output)
        && matches!(start(&case.forward), Some(Term::Arg(i)) if *i == case.inputs[0]);
    let sets: Vec<&AxisSet> = forward.iter().chain(&backward).collect();
    match sets.as_slice() {
        [] if pure => case.axes = mesh.unwrap_or_default(),
        [] => return,
        [first, rest @ ..] if rest.iter().all(|s| s == first) => case.axes = (*first).clone(),
        _ => {
            let concrete = |sets: &[AxisSet]| match sets {
                [one] if one.iter().all(|a| !a.is_variable()) => Some(one.clone()),
                _ => None,
            };
            if let (true, Some(f), Some(b)) = (pure, concrete(&forward), concrete(&backward)) {
                case.trouble = Some(Trouble::OtherGroup(f, b));
            }
            return;
        }
    }
    if pure {
        let pairs = numeric::signatures(&case.forward, &case.backward[0]);
        let (from, to) = dims(&case.forward);
        case.legal = pairs
            .into_iter()
            .map(|(s, d)| Signature {
                sources: vec![(s, from.filter(|_| s == Spmd::Varying))],
                result: (d, to.filter(|_| d == Spmd::Varying)),
            })
            .collect();
        if case.legal.is_empty() && case.communicates() {
            case.trouble = Some(Trouble::NotAdjoint);
        }
    } else {
        let unknown = |t: &Arc<Term>| {
            let mut steps = Vec::new();
            t.steps(&mut steps);
            steps.iter().any(|s| matches!(s, Term::Unknown))
        };
        // A gradient that is not followed, such as one that a kernel accumulates, says nothing; that of the first argument has to.
        let known: Vec<(usize, &Term)> = case
            .inputs
            .iter()
            .copied()
            .zip(&case.backward)
            .filter(|(_, t)| !unknown(t))
            .map(|(i, t)| (i, t.as_ref()))
            .collect();
        if unknown(&case.forward) || known.first().map(|(i, _)| *i) != case.inputs.first().copied() {
            return;
        }
        let (inputs, legal) = super::meaning::signatures(&case.forward, &known);
        case.legal = legal
            .into_iter()
            .map(|(sources, d)| Signature {
                sources: sources.into_iter().map(|s| (s, None)).collect(),
                result: (d, None),
            })
            .collect();
        case.inputs = inputs;
    }
    case.principal = principal(case, pure);
}

/// Where a chain starts.
fn start(term: &Term) -> Option<&Term> {
    match term.inner() {
        Some(x) => start(x),
        None => Some(term),
    }
}

fn axes_of<'a>(terms: impl IntoIterator<Item = &'a Arc<Term>>) -> Vec<AxisSet> {
    let mut steps = Vec::new();
    terms.into_iter().for_each(|t| t.steps(&mut steps));
    let mut out: Vec<AxisSet> = Vec::new();
    for axes in steps.iter().filter_map(|t| t.axes()) {
        if !out.contains(axes) {
            out.push(axes.clone());
        }
    }
    out
}

/// The dims along which argument and result are split, by the first and last step that says.
fn dims(forward: &Term) -> (Option<usize>, Option<usize>) {
    let mut steps = Vec::new();
    forward.steps(&mut steps);
    let from = steps.iter().rev().find_map(|t| match t {
        Term::AllGather { dim, .. } => Some(*dim),
        Term::AllToAll { concat, .. } => Some(*concat),
        _ => None,
    });
    let to = steps.iter().find_map(|t| match t {
        Term::Split { dim, .. } | Term::ReduceScatter { dim, .. } => Some(*dim),
        Term::AllToAll { split, .. } => Some(*split),
        _ => None,
    });
    (from, to)
}

/// The signature that tells most: of a chain the one that keeps the whole tensor, else the one with most that is split.
fn principal(case: &Case, pure: bool) -> Option<Signature> {
    let order = |t: Spmd, best: [Spmd; 4]| best.iter().position(|b| *b == t).unwrap_or(4);
    let result = |s: &Signature| order(s.result.0, [Spmd::Replicate, Spmd::Invariant, Spmd::Varying, Spmd::Partial]);
    if pure {
        let keeps = |s: &&Signature| {
            let (source, from) = s.sources[0];
            numeric::keeps_whole(&case.forward, source, from, s.result.0, s.result.1)
        };
        let source =
            |s: &Signature| order(s.sources[0].0, [Spmd::Partial, Spmd::Invariant, Spmd::Varying, Spmd::Replicate]);
        let rank = |s: &&Signature| (!keeps(s), source(s), result(s));
        return case.legal.iter().min_by_key(rank).cloned();
    }
    let split = |s: &Signature| s.sources.iter().filter(|(t, _)| *t == Spmd::Varying).count();
    let whole = |s: &Signature| s.sources.iter().filter(|(t, _)| *t == Spmd::Invariant).count();
    case.legal.iter().max_by_key(|s| (split(s), whole(s), std::cmp::Reverse(result(s)))).cloned()
}

/// Cases that say the same, once; if all do, in every configuration.
fn merged(cases: Vec<Case>) -> Vec<Case> {
    let same = |a: &Case, b: &Case| {
        (&a.axes, &a.inputs, a.output, a.outputs) == (&b.axes, &b.inputs, b.output, b.outputs)
            && (&a.legal, &a.principal, &a.trouble) == (&b.legal, &b.principal, &b.trouble)
    };
    match cases.split_first() {
        Some((first, rest)) if rest.iter().all(|c| same(first, c)) => {
            vec![Case { facts: super::super::formula::Facts::default(), ..first.clone() }]
        }
        _ => cases,
    }
}

/// Which arguments receive a gradient, by the return statements of the backward.
fn gradients_of(backward: &Func, arguments: usize) -> Vec<bool> {
    let mut out = vec![false; arguments];
    let mut built: Vec<(crate::ir::LocalId, &[Item])> = Vec::new();
    let mut found = false;
    returns(&backward.body, &mut built, &mut |items| {
        found = true;
        match items {
            Some(items) => {
                for (slot, item) in out.iter_mut().zip(items) {
                    *slot |= !matches!(item, Item::One(Operand::Const(Const::None)));
                }
            }
            None => {
                if let Some(first) = out.first_mut() {
                    *first = true;
                }
            }
        }
    });
    if !found && let Some(first) = out.first_mut() {
        *first = true;
    }
    out
}

fn returns<'a>(
    block: &'a crate::ir::Block,
    built: &mut Vec<(crate::ir::LocalId, &'a [Item])>,
    then: &mut dyn FnMut(Option<&[Item]>),
) {
    for node in block {
        match &node.stmt {
            Stmt::Assign { dst, value: Rvalue::Build { kind: BuildKind::Tuple, items } } => built.push((*dst, items)),
            Stmt::Return { value: Operand::Local(local) } => {
                then(built.iter().rev().find(|(l, _)| l == local).map(|(_, items)| *items));
            }
            Stmt::Return { .. } => then(None),
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

/// Backwards of one step that fit the forward of a case, the first ones that keep the whole tensor.
pub fn nearest(case: &Case) -> Vec<Adjoint> {
    let grad = Arc::new(Term::Grad(case.output));
    let (from, to) = dims(&case.forward);
    let axes = || case.axes.clone();
    let sum = Reduction::Sum;
    let mut candidates = vec![Term::AllReduce { axes: axes(), by: sum, x: grad.clone() }, grad.as_ref().clone()];
    for dim in from.into_iter().chain(to) {
        candidates.push(Term::ReduceScatter { axes: axes(), dim, by: sum, x: grad.clone() });
        candidates.push(Term::AllGather { axes: axes(), dim, x: grad.clone() });
        candidates.push(Term::Split { axes: axes(), dim, x: grad.clone() });
    }
    if let (Some(split), Some(concat)) = (from, to) {
        candidates.push(Term::AllToAll { axes: axes(), split, concat, x: grad });
    }
    let mut out: Vec<Adjoint> = Vec::new();
    for backward in candidates {
        let pairs = numeric::signatures(&case.forward, &backward);
        let dim = |t: Spmd, d: Option<usize>| d.filter(|_| t == Spmd::Varying);
        let fits = pairs.into_iter().map(|(s, d)| ((s, dim(s, from)), (d, dim(d, to))));
        let best =
            fits.filter(|(s, d)| numeric::keeps_whole(&case.forward, s.0, s.1, d.0, d.1)).max_by_key(|(s, d)| {
                (s.0 == Spmd::Partial, s.0 == Spmd::Invariant, d.0 == Spmd::Replicate, d.0 == Spmd::Invariant)
            });
        if let Some((source, result)) = best
            && !out.iter().any(|a| *a.backward == backward)
        {
            out.push(Adjoint { backward: Arc::new(backward), source, result });
        }
    }
    out
}
