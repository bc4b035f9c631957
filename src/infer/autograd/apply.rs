//! Use of derived signatures: calls of `apply`, and what is wrong with a function. In: a derivation and a call. Out: values by world,
//! findings. Never: derivation itself. Source: DESIGN.md section 6. Next: `derive.rs`.

use super::super::collective::is_own_columns;
use super::super::exec::is_opaque;
use super::super::expr::{CallArg, CallArgs};
use super::super::finding::FindingKind;
use super::super::formula::{Atom, Facts, Formula};
use super::super::limits::MAX_VAIN_DERIVATIONS;
use super::super::machine::{Activation, Eval, Machine};
use super::super::output::{DerivedRow, Output, Pass, Reason as Lost};
use super::super::practice::expr::Expr;
use super::super::practice::view::View;
use super::super::statics::module_body;
use super::super::value::{ObjId, Value};
use super::super::world::{Modes, World};
use super::decide::nearest;
use super::derive::{Case, Derived, RANKS, Signature, Trouble};
use super::meaning::{Meaning, meaning};
use crate::ir::{StmtId, UnOp};
use crate::project::{ClassRef, FuncRef};
use crate::rules::collective::DimRef;
use crate::rules::signature::Parameter;
use crate::rules::{CollectiveRule, Form, Pattern, Signature as Parameters, Transition};
use crate::source::{Name, Place};
use crate::types::{AxisSet, AxisType, Spmd, TensorType, Term, Tri};
use std::sync::Arc;

/// A derivation that a root has made: the class, the arguments that are no tensors, and what the world knew.
#[derive(Clone, Debug)]
pub struct Remembered {
    class: ClassRef,
    arguments: Vec<(Option<Name>, Value)>,
    facts: Facts,
    /// Where else it holds; `None`: it may depend on the heap.
    reach: Option<Reach>,
    derived: Option<Arc<Derived>>,
}

impl Remembered {
    /// Whether it gave no signature, and nothing is wrong.
    fn is_vain(&self) -> bool {
        let says = |case: &Case| !case.legal.is_empty() || case.trouble.is_some();
        !self.derived.as_ref().is_some_and(|d| d.cases.iter().any(says))
    }
}

/// What a derivation depended on beside its arguments.
#[derive(Clone, Debug)]
struct Reach {
    place: Around,
    asked: Asked,
}

/// Where a derivation is made.
#[derive(Clone, Debug, PartialEq)]
struct Around {
    modes: Modes,
    restricted: AxisSet,
    loops: usize,
    stack: Vec<FuncRef>,
    /// Arguments that are unknown values known to be tensors.
    tensors: Vec<bool>,
}

/// What a derivation asks of the world in which it is made.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    atoms: Vec<Atom>,
    symbols: Vec<Name>,
    /// The facts that it knew at most where it told a flag apart.
    most: usize,
}

impl Asked {
    pub fn formula(&mut self, formula: &Formula) {
        for atom in formula.atoms() {
            if !self.atoms.contains(&atom) {
                self.atoms.push(atom);
            }
        }
    }
    pub fn known(&mut self, facts: usize) {
        self.most = self.most.max(facts);
    }
    pub fn symbol(&mut self, path: &Name) {
        if !self.symbols.contains(path) {
            self.symbols.push(path.clone());
        }
    }
}

/// Whether two arguments are both tensors, both values of which nothing is known, or both something else.
fn alike(a: &Value, b: &Value) -> bool {
    let is_unknown = |v: &Value| matches!(v, Value::Unknown | Value::Sym(_));
    matches!(a, Value::Unset) == matches!(b, Value::Unset) && is_unknown(a) == is_unknown(b)
}

/// Whether a value says all by itself, without the heap.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Tuple(items) => items.iter().all(is_plain),
        Value::Unset
        | Value::Unknown
        | Value::Sym(_)
        | Value::Const(_)
        | Value::Number(_)
        | Value::Share(_)
        | Value::Class(_)
        | Value::Path(_)
        | Value::Module(_)
        | Value::Mesh(_)
        | Value::Group(_)
        | Value::Size(_)
        | Value::Rank(_)
        | Value::Edge(_)
        | Value::RankCond(_)
        | Value::Cond(_)
        | Value::ReduceOp(_) => true,
        _ => false,
    }
}

impl Machine<'_> {
    /// Derives a class with unknown arguments, as a root.
    pub fn derivation_root(mut self, class: ClassRef, at: FuncRef) -> Output {
        self.stack = vec![Activation::new(self.project, at, None)];
        self.w.modes.mesh = self.settings.mesh_of(class.module);
        self.check_count(class, None);
        let derived = self.derive(class, None, &RANKS);
        let derived = derived.unwrap_or(Derived { class, cases: Vec::new(), gaps: Vec::new() });
        self.compare_declared(&derived);
        self.differentiated_twice(&derived);
        let place = self.place_of(self.project.func(at).name_span);
        if let Some(kind) = self.against_ruled(&derived) {
            self.report(place, kind);
        }
        self.tell(&derived, place, false);
        self.out.finish();
        self.out
    }

    /// Notes the signatures of a class, and reports what is wrong with it.
    fn tell(&mut self, derived: &Derived, place: Place, is_call: bool) {
        if self.quiet {
            return;
        }
        let (cases, gaps) = (derived.cases.clone(), derived.gaps.clone());
        self.out.derived.push(std::sync::Arc::new(DerivedRow { class: derived.class, place, cases, gaps }));
        let known = self.w.facts.clone();
        for case in &derived.cases {
            self.w.facts = case.facts.clone();
            match &case.trouble {
                // A factor that an argument chooses is meant; one that stands wherever anything is exchanged is not chosen.
                Some(Trouble::Scaled { .. })
                    if is_call || derived.cases.iter().any(|c| c.communicates() && !is_scaled(c)) =>
                {
                    self.passed(case.backward_at, Pass::Unknown);
                }
                Some(trouble) => self.report_function(derived.class, case, trouble),
                None if !case.legal.is_empty() => self.passed(case.backward_at, Pass::Right),
                None => self.passed(case.backward_at, Pass::Unknown),
            }
        }
        self.w.facts = known;
    }

    /// The first exchange of the backward of a class behind a place in it.
    fn exchanged_behind(&self, class: ClassRef, product: Place) -> Option<Place> {
        let view = View::new(self.project, self.rules, self.files, self.project.own_method(class, "backward")?);
        let places = view.collectives().iter().map(|(at, _)| view.place(view.steps[*at].id));
        places.filter(|at| at.file == product.file && at.span.start > product.span.end).min_by_key(|at| at.span.start)
    }

    /// Whether a variable of a module decides if what stands at a place is done: then it is meant, whatever its value is.
    fn is_switched(&self, place: Place) -> bool {
        let Some(at) = self.project.function_at(place) else { return false };
        let view = View::new(self.project, self.rules, self.files, at);
        let around = view.steps.iter().filter(|step| view.place(step.id).span.contains(place.span.start));
        let tests = around.flat_map(|step| step.guards.iter().map(|guard| view.expr(guard.test)));
        let is_variable = |test: Expr| match test {
            Expr::Path(_) => true,
            Expr::Unary(UnOp::Not, inner) => matches!(*inner, Expr::Path(_)),
            _ => false,
        };
        tests.into_iter().any(is_variable)
    }

    fn report_function(&mut self, class: ClassRef, case: &Case, trouble: &Trouble) {
        // A forward that says that its result has no gradient never sees its backward called.
        let file = case.forward_at.file;
        if self.files[file].slice(self.project.class(class).span).contains("mark_non_differentiable") {
            return;
        }
        let (at, class) = (class, self.project.class(class).name.clone());
        let kind = match trouble {
            Trouble::NotAdjoint => FindingKind::NotAdjoint {
                class,
                forward: case.forward.clone(),
                backward: super::fixed::of_interest(case).clone(),
                forward_at: case.forward_at,
                axes: case.axes.clone(),
                nearest: nearest(case),
            },
            Trouble::OtherGroup(forward, backward) => FindingKind::OtherGroup {
                class,
                forward: forward.clone(),
                backward: backward.clone(),
                forward_at: case.forward_at,
            },
            Trouble::BeforeExchange { argument, at } => {
                let (argument, forward_at) = (argument.clone(), case.forward_at);
                let kind = FindingKind::BeforeExchange { class, argument, forward_at };
                return self.report(*at, kind);
            }
            Trouble::Misordered { argument, other, early } => FindingKind::Misordered {
                class,
                argument: argument.clone(),
                other: other.clone(),
                early: *early,
                exchanged: self.exchanged_behind(at, case.backward_at),
                forward_at: case.forward_at,
            },
            Trouble::Scaled { at, .. } if self.is_switched(*at) => return,
            Trouble::Scaled { in_forward, at } => {
                let kind = FindingKind::ScaledOneWay {
                    class,
                    forward: case.forward.clone(),
                    backward: case.backward[0].clone(),
                    in_forward: *in_forward,
                    forward_at: case.forward_at,
                    axes: case.axes.clone(),
                };
                return self.report(*at, kind);
            }
            Trouble::Misplaced { given, missing } => {
                let (given, missing, forward_at) = (given.clone(), missing.clone(), case.forward_at);
                FindingKind::Misplaced { class, given, missing, forward_at }
            }
            Trouble::Count { returned, expected } => {
                FindingKind::GradientCount { class, returned: *returned, expected: *expected }
            }
        };
        self.report(case.backward_at, kind);
    }

    /// `Function.apply(...)`
    pub fn apply_function(&mut self, id: StmtId, class: ClassRef, args: &CallArgs) -> Eval {
        if let Some(result) = self.applied_in_wrapper(class, args) {
            return result;
        }
        if self.deriving.is_some() {
            return self.forward_of(class, args);
        }
        if !args.open {
            self.check_count(class, Some(args.args.len()));
        }
        let (alike, own) = super::passing::alike(args);
        let args = alike.as_ref().unwrap_or(args);
        let known = self.remembered(class, args);
        let Some(derived) = known.filter(|derived| self.against_ruled(derived).is_none()) else {
            self.unresolved(args, "apply");
            return Eval::One(Value::Unknown);
        };
        let place = self.place(id);
        self.tell(&derived, place, true);
        let mut pending = vec![std::mem::take(&mut self.w)];
        let mut outcomes: Vec<(World, Value)> = Vec::new();
        for case in &derived.cases {
            let case = &*super::passing::over(case, own.as_ref());
            let mut left = Vec::new();
            for world in std::mem::take(&mut pending) {
                let formula = beyond(&case.facts, &world.facts);
                let mut sides = Vec::new();
                match is_opaque(&formula) {
                    true => sides.push((world, None)),
                    false => self.split(&formula, world, &mut |_, world, truth| sides.push((world, truth))),
                }
                for (world, truth) in sides {
                    if truth == Some(false) {
                        left.push(world);
                        continue;
                    }
                    self.w = world;
                    if truth.is_some()
                        && super::written::is_local(case)
                        && let Some(followed) = self.unjudged(id, class, args)
                    {
                        outcomes.extend(followed);
                        continue;
                    }
                    let value = match truth {
                        Some(_) if self.has_hook(class) => self.hooked_result(id, class, case, args),
                        Some(_) => self.typed_result(id, class, case, args),
                        None => self.untyped_result(case),
                    };
                    outcomes.push((std::mem::take(&mut self.w), value));
                }
            }
            pending = left;
        }
        for world in pending {
            self.w = world;
            outcomes.push((std::mem::take(&mut self.w), Value::Unknown));
        }
        self.exits(outcomes)
    }

    /// Whether the run-time checker asks a hook of the class what its result is, and looks at nothing in its forward.
    fn has_hook(&self, class: ClassRef) -> bool {
        self.w.modes.typecheck.is_some() && self.project.own_method(class, "spmd_typecheck").is_some()
    }

    /// The forward as it is written; where a hook decides, nothing in it is judged.
    fn unjudged(&mut self, id: StmtId, class: ClassRef, args: &CallArgs) -> Option<Vec<(World, Value)>> {
        let (quiet, hooked) = (self.quiet, self.has_hook(class));
        self.quiet |= hooked;
        let outcomes = self.as_written(id, class, args);
        self.quiet = quiet;
        let mut outcomes = outcomes?;
        for (world, value) in outcomes.iter_mut().filter(|_| hooked) {
            if let Value::Tensor(at) = value
                && let Some(t) = world.heap.tensor_mut(*at)
            {
                t.untracked = true;
            }
        }
        Some(outcomes)
    }

    /// What a hook may give that says more than is derived: a tensor without a type passes through it, and its result need not have one.
    fn hooked_result(&mut self, id: StmtId, class: ClassRef, case: &Case, args: &CallArgs) -> Value {
        let given: Vec<ObjId> = args.args.iter().filter_map(|a| self.as_tensor(&a.value)).collect();
        let known: Vec<bool> = given.iter().map(|at| self.set_untracked(*at, true)).collect();
        let value = self.typed_result(id, class, case, args);
        for (at, was) in given.into_iter().zip(known) {
            self.set_untracked(at, was);
        }
        if let Value::Tensor(at) = value {
            self.set_untracked(at, true);
        }
        value
    }

    /// Says whether the type of a tensor is lost to the checker; what it was before.
    fn set_untracked(&mut self, at: ObjId, lost: bool) -> bool {
        self.w.heap.tensor_mut(at).is_some_and(|t| std::mem::replace(&mut t.untracked, lost))
    }

    fn remembered(&mut self, class: ClassRef, args: &CallArgs) -> Option<Arc<Derived>> {
        // The derivation takes a tensor of its own for each of these.
        let receives = self.receiving(class);
        let own = |at: usize, a: &CallArg| match &a.value {
            Value::Tensor(_) => true,
            Value::Sym(_) | Value::Unknown => a.keyword.is_none() && receives.get(at) == Some(&true),
            _ => false,
        };
        let plain = |(at, a): (usize, &CallArg)| if own(at, a) { Value::Unset } else { a.value.clone() };
        let arguments: Vec<_> =
            args.args.iter().enumerate().map(|(at, a)| (a.keyword.clone(), plain((at, a)))).collect();
        let known = self
            .derivations
            .iter()
            .find(|r| r.class == class && r.facts == self.w.facts && r.arguments == arguments)
            .map(|r| r.derived.clone());
        if let Some(known) = known {
            return known;
        }
        let facts = self.w.facts.clone();
        // The variables of a module that is under execution are as good as the heap.
        let settled = self.stack.first().is_some_and(|a| a.func != module_body(a.func.module));
        let plain = settled && !args.open && arguments.iter().all(|(_, v)| is_plain(v));
        let around = plain.then(|| self.around(&arguments));
        if let Some(derived) = around.as_ref().and_then(|around| self.rebased(class, &arguments, around)) {
            self.derivations.push(Remembered { class, arguments, facts, reach: None, derived: derived.clone() });
            return derived;
        }
        // What is derived in vain of unknown values tells nothing of tensors.
        let same_kinds = |known: &[(Option<Name>, Value)]| {
            known.len() == arguments.len() && known.iter().zip(&arguments).all(|((_, a), (_, b))| alike(a, b))
        };
        let vain = self.derivations.iter().filter(|r| r.class == class && r.is_vain() && same_kinds(&r.arguments));
        if vain.count() >= MAX_VAIN_DERIVATIONS {
            self.lose(Lost::Budget, "derivations");
            return None;
        }
        let symbols = self.w.symbols.clone();
        self.asked.take();
        // Bodies that make no sense with any number of dims make none with more of them in another world.
        let senseless = |r: &Remembered| r.derived.as_ref().is_some_and(|d| !d.is_conclusive());
        let again = self.derivations.iter().any(|r| r.class == class && senseless(r) && same_kinds(&r.arguments));
        let ranks = if again { &RANKS[..1] } else { &RANKS[..] };
        let derived = self.derive(class, Some(args), ranks).filter(|d| !d.cases.is_empty()).map(Arc::new);
        let asked = self.asked.take();
        let apart = !asked.symbols.iter().any(|path| symbols.contains_key(path));
        let reach = around.filter(|_| apart).map(|place| Reach { place, asked });
        self.derivations.push(Remembered { class, arguments, facts, reach, derived: derived.clone() });
        derived
    }

    fn around(&self, arguments: &[(Option<Name>, Value)]) -> Around {
        let known = |v: &Value| matches!(v, Value::Sym(path) if self.w.symbols.contains_key(path));
        Around {
            modes: self.w.modes.clone(),
            restricted: self.rank_restricted.clone(),
            loops: self.loop_depth,
            stack: self.stack.iter().map(|a| a.func).collect(),
            tensors: arguments.iter().map(|(_, v)| known(v)).collect(),
        }
    }

    /// What was derived in a world that differs from the present one only in what the derivation did not ask.
    fn rebased(
        &self,
        class: ClassRef,
        arguments: &[(Option<Name>, Value)],
        around: &Around,
    ) -> Option<Option<Arc<Derived>>> {
        let now = &self.w.facts;
        let holds = |reach: &Reach, then: &Facts| {
            reach.place == *around
                && then.decides_like(now, &reach.asked.atoms, reach.asked.most)
                && !reach.asked.symbols.iter().any(|path| self.w.symbols.contains_key(path))
        };
        let known = self.derivations.iter().find(|r| {
            r.class == class && r.arguments == arguments && r.reach.as_ref().is_some_and(|reach| holds(reach, &r.facts))
        })?;
        let Some(derived) = &known.derived else { return Some(None) };
        // A single case holds whatever the world knows.
        if derived.cases.iter().all(|case| derived.cases.len() < 2 && case.facts == Facts::default()) {
            return Some(Some(derived.clone()));
        }
        let moved = |case: &Case| Some(Case { facts: case.facts.rebased(&known.facts, now)?, ..case.clone() });
        let cases = derived.cases.iter().map(moved).collect::<Option<Vec<Case>>>()?;
        Some(Some(Arc::new(Derived { class, cases, gaps: derived.gaps.clone() })))
    }

    fn untyped_result(&mut self, case: &Case) -> Value {
        let tensor = self.new_tensor(TensorType::unknown());
        in_place_of(case, &[(case.output, tensor)])
    }

    fn typed_result(&mut self, id: StmtId, class: ClassRef, case: &Case, args: &CallArgs) -> Value {
        let Some(principal) = case.principal.clone().filter(|_| !case.ambiguous && case.further.is_empty()) else {
            return self.untyped_result(case);
        };
        if case.axes.is_empty() && case.inputs.len() > 1 {
            return self.untyped_result(case);
        }
        let values = match case.inputs.as_slice() {
            [input] => vec![(case.output, self.one_input(id, class, case, &principal, *input, args))],
            _ => self.many_inputs(id, class, case, args),
        };
        values.iter().for_each(|(_, value)| self.keeps_part(value, case));
        in_place_of(case, &values)
    }

    /// Notes on an Invariant result where the backward leaves each rank its own part of the gradient: there a sum would be missing.
    fn keeps_part(&mut self, value: &Value, case: &Case) {
        let Some(at) = case.kept_part() else { return };
        let Some(tensor) = self.as_tensor(value).and_then(|id| self.w.heap.tensor_mut(id)) else { return };
        for axis in case.axes.iter() {
            let mut state = tensor.local.get(axis).clone();
            if let (Some(Spmd::Invariant), Some(origin)) = (state.set.known(), &mut state.origin) {
                Arc::make_mut(origin).keeps_part = Some(at);
                tensor.local.set(axis, state);
            }
        }
    }

    /// A function of one tensor is typed like a collective.
    fn one_input(
        &mut self,
        id: StmtId,
        class: ClassRef,
        case: &Case,
        principal: &Signature,
        input: usize,
        args: &CallArgs,
    ) -> Value {
        let all_alike = Spmd::ALL.iter().all(|t| case.legal.iter().any(|s| s.sources[0].0 == *t && s.result.0 == *t));
        let Some(arg) = args.args.get(input) else { return self.new_tensor(TensorType::unknown()) };
        // A factor on the gradient alone makes up for another one elsewhere; the value is what it was.
        let scaled = !case.communicates() && matches!(*case.forward, Term::Arg(_));
        if !case.communicates() && !scaled && !all_alike {
            return self.new_tensor(TensorType::unknown());
        }
        // What sums on both ways is its own adjoint whatever it is given; it does not leave a value what it was.
        if all_alike && !case.communicates() || scaled || case.axes.is_empty() {
            let Some(known) = self.as_tensor(&arg.value).and_then(|id| self.w.heap.tensor(id)).cloned() else {
                return self.new_tensor(TensorType::unknown());
            };
            return self.new_tensor(TensorType { view_of: None, ..known });
        }
        let source = Meaning::of(principal.sources[0].0);
        let is_equal = meaning(&case.forward, &|_| source, Meaning::Equal) == Some(Meaning::Equal);
        if principal.result.0 == Spmd::Partial && is_equal {
            // Every rank has the same value; it is a pending sum only because the backward lacks a factor, which somebody else may make up for.
            return self.untyped_result(case);
        }
        let given = self.as_tensor(&arg.value).and_then(|id| self.w.heap.tensor(id));
        let columns = given.is_some_and(|t| case.axes.iter().any(|axis| is_own_columns(t.local.get(axis))));
        let pattern = |(t, dim): (Spmd, Option<usize>)| Pattern {
            set: if t == Spmd::Partial && !columns { AxisType::P.join(AxisType::V) } else { t.into() },
            shard: dim.filter(|d| !case.named.iter().any(|(n, _)| n == d)).map(|d| DimRef::At(shown_dim(case, d))),
            any_shard: false,
        };
        let result = Pattern { set: principal.result.0.into(), ..pattern(principal.result) };
        let transition = Transition { source: pattern(principal.sources[0]), result };
        let op = match case.forward.as_ref() {
            Term::AllReduce { .. } => "all_reduce",
            Term::ReduceScatter { .. } => "reduce_scatter",
            _ => "layer",
        };
        let rule = as_collective(&self.project.class(class).name, op, input, transition);
        let no_grad =
            self.as_tensor(&arg.value).and_then(|id| self.w.heap.tensor(id)).is_some_and(|t| t.grad == Tri::No);
        let value = self.layer_transition(id, &Arc::new(rule), args, case.axes.clone());
        // A function of one tensor has no parameters of its own.
        if no_grad && let Some(result) = self.as_tensor(&value).and_then(|id| self.w.heap.tensor_mut(id)) {
            result.grad = Tri::No;
        }
        value
    }
}

fn is_scaled(case: &Case) -> bool {
    matches!(case.trouble, Some(Trouble::Scaled { .. }))
}

/// What a case knows beyond the world, as a formula.
fn beyond(case: &Facts, known: &Facts) -> Formula {
    let atoms = case.iter().filter(|(a, _)| known.get(a).is_none());
    let items: Vec<Formula> = atoms
        .map(|(a, v)| match v {
            true => Formula::Atom(a.clone()),
            false => Formula::Atom(a.clone()).negate(),
        })
        .collect();
    Formula::And(items)
}

/// The results at their places in the tuple that the function returns.
fn in_place_of(case: &Case, values: &[(usize, Value)]) -> Value {
    let at = |i: usize| values.iter().find(|(at, _)| *at == i).map_or(Value::Unknown, |(_, value)| value.clone());
    match case.outputs {
        None => at(case.output),
        Some(n) => Value::tuple((0..n).map(at).collect()),
    }
}

/// A dim as a reader writes it: the last one from the end, unless the bodies have its number.
pub fn shown_dim(case: &Case, dim: usize) -> i32 {
    let last = !case.from_front && case.rank.checked_sub(1).is_some_and(|last| dim == last && last > 0);
    if last { -1 } else { i32::try_from(dim).unwrap_or(0) }
}

fn as_collective(name: &Name, op: &str, input: usize, transition: Transition) -> CollectiveRule {
    let param =
        |i: usize| Parameter { name: Name::from(format!("{i}")), keyword_only: false, variadic: false, default: None };
    CollectiveRule {
        name: name.clone(),
        args: Parameters { params: (0..=input).map(param).collect() },
        op: Name::from(op),
        form: Form::Result,
        input,
        output: None,
        group: None,
        default_group: Vec::new(),
        transitions: vec![(None, transition)],
        legal: Vec::new(),
        expert: Vec::new(),
        moves_shard: false,
        reduce_op: None,
        differentiable: true,
        repair: None,
        source: name.clone(),
    }
}
