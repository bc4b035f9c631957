//! The abstract machine: one root's execution. In: the project, the rules, the settings. Out: [`Output`]. Never: I/O, global state.
//!
//! The machine holds the *current world* `w`; a step that forks returns several worlds and leaves `w` unspecified.
//! Next: `exec.rs` (statements), `expr.rs` (values), `call.rs` (calls), `ops.rs` (tensor operations).

use super::budget::Budget;
use super::finding::{CallStep, Finding, FindingKind, Repair};
use super::formula::{Atom, Formula, Outcome, shown, truth};
use super::heap::Cell;
use super::model_axis::is_of_model;
use super::output::{Output, Pass, Reason, Row};
use super::practice::reducers::Reducer;
use super::settings::Settings;
use super::unknown_param::Annotated;
use super::value::{ObjId, Value};
use super::world::World;
use crate::ir::{Func, LocalId, LocalKind, StmtId};
use crate::project::{FuncRef, Project};
use crate::rules::RuleBook;
use crate::source::{FileId, Files, Idx, Name, Place, Span};
use crate::types::{AxisSet, AxisState, LocalType, TensorType};

/// The outcome of an evaluation: a value in the current world, or several worlds with a value each.
pub enum Eval {
    One(Value),
    Many(Vec<(World, Value)>),
}

/// Where the machine is: a function under execution.
#[derive(Clone, Debug)]
pub struct Activation<'a> {
    pub func: FuncRef,
    /// What it is; looked up once, since every statement asks.
    code: &'a Func,
    /// Where it was called.
    pub call: Option<Place>,
}

impl<'a> Activation<'a> {
    pub fn new(project: &'a Project, func: FuncRef, call: Option<Place>) -> Activation<'a> {
        Activation { func, code: project.func(func), call }
    }
}

/// One root under execution.
pub struct Machine<'a> {
    pub project: &'a Project,
    pub rules: &'a RuleBook,
    pub files: &'a Files,
    pub settings: &'a Settings,
    pub w: World,
    pub next_id: u32,
    /// Groups that were given an identity because nothing else is known of them.
    pub unnamed_groups: usize,
    /// What names of modules are, once somebody asked, unless that depends on the world.
    pub globals: rustc_hash::FxHashMap<crate::project::ModuleId, rustc_hash::FxHashMap<Name, Value>>,
    /// The same for names that the bodies of modules leave without a value.
    /// Tables of functions in bodies of modules, by their paths; `None`: not one.
    pub tables: rustc_hash::FxHashMap<Name, Option<super::tables::Table>>,
    /// Attributes of configurations in bodies of modules.
    pub configured: rustc_hash::FxHashMap<Name, Option<Value>>,
    /// Whether functions that sum marked gradients always run.
    pub sums_run: rustc_hash::FxHashMap<FuncRef, bool>,
    pub unbound: rustc_hash::FxHashMap<crate::project::ModuleId, rustc_hash::FxHashMap<Name, Value>>,
    pub budget: Budget,
    /// Steps after which a root is given up that has met nothing worth executing; `None`: it has, or it is no root.
    pub vain_after: Option<u64>,
    /// Whether it is only found out if anything worth executing is met (`scout.rs`).
    pub scouting: bool,
    pub stack: Vec<Activation<'a>>,
    pub out: Output,
    /// Parameters of the root that are used as what they are not (`residual.rs`).
    pub residual: super::whole::Needed,
    /// Tensors whose type changed, in order; statements look at the part that grew while they ran.
    pub changed: Vec<ObjId>,
    /// Axes whose ranks are told apart by an enclosing condition: mixing of types on them is not judged.
    pub rank_restricted: AxisSet,
    /// Whether findings and rows are kept (not while a class is built only for its attributes).
    pub quiet: bool,
    pub says: rustc_hash::FxHashMap<FuncRef, super::guard::Says>,
    /// Which variables are read again, by function, once paths of it were compared.
    pub live: rustc_hash::FxHashMap<FuncRef, std::sync::Arc<super::liveness::Liveness>>,
    /// Plans for modules that this root applied, the one whose forward is executed, and modules whose style did its part.
    pub plans: Vec<super::dtensor::planned::Applied>,
    pub planning: Option<super::dtensor::planned::Applied>,
    pub prepared: Vec<ObjId>,
    /// Objects that stand for modules of which only the class is known, and whether one is under construction.
    pub stand_ins: Vec<super::dtensor::model_of_plan::StandIn>,
    pub modelling: bool,
    /// Whether modules may get styles, or be replaced, beside the plans that are followed.
    pub open_plans: bool,
    /// The same of modules that the code makes itself.
    pub open_modules: bool,
    /// Results of layers that a plan leaves whole, and what is computed of them elementwise.
    pub whole_last: rustc_hash::FxHashSet<ObjId>,
    /// The mesh that a compiler takes where none is given.
    pub compiled: Value,
    /// Whether types of variables are recorded.
    pub records: bool,
    /// Enclosing loops that are run to a fixpoint rather than element by element.
    pub loop_depth: usize,
    /// An autograd function whose type is being derived.
    pub deriving: Option<super::autograd::Deriving>,
    /// What operations made of sets of types before in this root.
    pub applications: crate::rules::operator::Applications,
    /// What was derived before in this root.
    pub derivations: Vec<super::autograd::Remembered>,
    /// Cases of them that were decided, whose terms may come again.
    pub decided: Vec<super::autograd::Decided>,
    /// What the derivation under way asked of the world.
    pub asked: std::cell::RefCell<super::autograd::Asked>,
    /// What Python annotations say of the parameters of the root.
    pub annotated: std::collections::BTreeMap<Name, Annotated>,
    /// Parameters of the root that are data beside the module of their file.
    pub data: Vec<Name>,
    /// Axes over which a collective with a gradient took or gave the same activations on all ranks.
    pub invariant_on: Vec<crate::types::Axis>,
    /// Those over which whole parameters are held against what meets them: nobody sums their gradients.
    pub held_on: Vec<crate::types::Axis>,
    /// Whole parameters that meet values of which nothing is known, the axis, and where they are made.
    pub open_whole: std::cell::RefCell<Vec<(Name, crate::types::Axis, crate::source::Place)>>,
    /// Whether some object has whole parameters beside split ones.
    pub found_whole: bool,
    /// Values that are others in another precision, with those.
    pub same_as: rustc_hash::FxHashMap<ObjId, ObjId>,
    /// The list of unknown sizes that was made last, and the tensor whose sizes they are.
    pub sizes_of: Option<(ObjId, Value)>,
    /// The unknown attribute of an object that was read or compared last.
    pub kept: super::kept_tests::Kept,
    /// The layer whose own forward is the root, with the arguments of the root.
    pub layer: Option<std::sync::Arc<super::layer_source::OpenLayer>>,
    /// Its returns so far: the case of the rule, and where and in which world it does not hold.
    pub layer_outcomes: Vec<super::layer_source::Returned>,
    /// The rule of the function that is the root, where the function is no more than its body.
    pub ruled: Option<super::ruled_source::RuledSource>,
    /// The application of an autograd function whose forward is executed with the arguments that it is given there.
    pub applied: Option<std::sync::Arc<super::autograd::Written>>,
}

impl<'a> Machine<'a> {
    pub fn new(project: &'a Project, rules: &'a RuleBook, files: &'a Files, settings: &'a Settings) -> Machine<'a> {
        Machine {
            project,
            rules,
            files,
            settings,
            w: World::default(),
            next_id: 0,
            unnamed_groups: 0,
            globals: rustc_hash::FxHashMap::default(),
            tables: rustc_hash::FxHashMap::default(),
            configured: rustc_hash::FxHashMap::default(),
            sums_run: rustc_hash::FxHashMap::default(),
            unbound: rustc_hash::FxHashMap::default(),
            budget: Budget::of_root(0, super::limits::MAX_STEPS),
            vain_after: None,
            scouting: false,
            stack: Vec::new(),
            out: Output::default(),
            residual: Vec::new(),
            changed: Vec::new(),
            rank_restricted: AxisSet::default(),
            quiet: false,
            says: rustc_hash::FxHashMap::default(),
            live: rustc_hash::FxHashMap::default(),
            plans: Vec::new(),
            planning: None,
            prepared: Vec::new(),
            stand_ins: Vec::new(),
            modelling: false,
            open_plans: false,
            open_modules: false,
            whole_last: rustc_hash::FxHashSet::default(),
            compiled: Value::Unknown,
            records: true,
            loop_depth: 0,
            deriving: None,
            applications: crate::rules::operator::Applications::default(),
            derivations: Vec::new(),
            decided: Vec::new(),
            asked: std::cell::RefCell::default(),
            annotated: std::collections::BTreeMap::new(),
            data: Vec::new(),
            invariant_on: Vec::new(),
            held_on: Vec::new(),
            open_whole: std::cell::RefCell::default(),
            found_whole: false,
            same_as: rustc_hash::FxHashMap::default(),
            sizes_of: None,
            kept: None,
            layer: None,
            layer_outcomes: Vec::new(),
            ruled: None,
            applied: None,
        }
    }

    pub fn activation(&self) -> FuncRef {
        self.stack.last().expect("code runs inside an activation").func
    }
    /// The function under execution.
    pub fn func(&self) -> &'a Func {
        self.stack.last().expect("code runs inside an activation").code
    }
    pub fn file(&self) -> FileId {
        self.project.file(self.activation().module)
    }
    pub fn place_of(&self, span: Span) -> Place {
        Place { file: self.file(), span }
    }
    /// The place of a statement of the function under execution.
    pub fn place(&self, id: StmtId) -> Place {
        self.place_of(self.func().spans().of(id))
    }
    /// The place of an operand of a statement; the statement itself if the operand has none.
    pub fn part(&self, id: StmtId, index: usize) -> Place {
        self.place_of(self.func().spans().part(id, index))
    }

    pub fn fresh(&mut self, cell: Cell) -> ObjId {
        let id = ObjId(self.next_id);
        self.next_id += 1;
        self.w.heap.insert(id, cell);
        id
    }
    pub fn new_tensor(&mut self, t: TensorType) -> Value {
        Value::Tensor(self.fresh(Cell::Tensor(t)))
    }

    pub fn local(&self, local: LocalId) -> Value {
        let value = self.w.frame().get(local);
        // A cell stands in its slot as a tensor does, and is asked for by its kind.
        let Value::Tensor(id) = value else { return value.clone() };
        match self.func().locals()[local].kind {
            LocalKind::Plain | LocalKind::Temp => value.clone(),
            LocalKind::Cell | LocalKind::Captured => match self.w.heap.get(*id) {
                Some(Cell::Variable(inner)) => inner.clone(),
                _ => value.clone(),
            },
        }
    }
    pub fn set_local(&mut self, local: LocalId, value: Value) {
        match self.func().locals()[local].kind {
            LocalKind::Plain | LocalKind::Temp => self.w.frame_mut().set(local, value),
            LocalKind::Cell | LocalKind::Captured => {
                let id = self.cell_of(local);
                self.w.heap.insert(id, Cell::Variable(value));
            }
        }
    }
    /// The heap cell of a variable that nested functions share; made on first use. Its id is kept in the slot.
    pub fn cell_of(&mut self, local: LocalId) -> ObjId {
        match self.w.frame().get(local) {
            Value::Tensor(id) if matches!(self.w.heap.get(*id), Some(Cell::Variable(_))) => *id,
            _ => {
                let id = self.fresh(Cell::Variable(Value::Unset));
                self.w.frame_mut().set(local, Value::Tensor(id));
                id
            }
        }
    }

    /// Whether the code under execution runs on some of the ranks of an axis only. A group that nothing resolves may be any.
    pub fn is_restricted(&self, axis: &crate::types::Axis) -> bool {
        self.rank_restricted.iter().chain(self.w.modes.ranks.iter()).any(|a| a == axis || a.is_variable())
    }

    /// Whether types speak of the same attribute of another object of a class, or of an axis that is called alike: two names of what may be
    /// one group.
    pub fn has_twin<'t>(
        axis: &crate::types::Axis,
        mut types: impl Iterator<Item = &'t crate::types::LocalType>,
    ) -> bool {
        let is_one = |axis: &crate::types::Axis| axis.name().contains('#');
        let twin = |other: &crate::types::Axis| {
            other != axis
                && (shown(other.name()) == shown(axis.name())
                    || is_one(axis) != is_one(other) && super::groups::are_called_alike(axis, other))
        };
        // What a program calls by one of its names where tables call it by another.
        let model = |other: &crate::types::Axis| other != axis && is_of_model(axis) && is_of_model(other);
        let meant = |other: &crate::types::Axis| (is_one(axis) || is_one(other)) && twin(other) || model(other);
        types.any(|t| t.listed().any(|(other, s)| !s.set.is_unknown() && meant(other)))
    }

    /// What is known of a tensor value, if it is one.
    pub fn tensor(&self, value: &Value) -> Option<&TensorType> {
        match value {
            Value::Tensor(id) => self.w.heap.tensor(*id),
            _ => None,
        }
    }
    /// Replaces what is known of a tensor, and notes the change.
    pub fn retype(&mut self, id: ObjId, t: TensorType) {
        if let Some(known) = self.w.heap.tensor_mut(id)
            && *known != t
        {
            *known = t.clone();
            self.changed.push(id);
            self.write_through(&t);
        }
    }

    /// A write to a view changes the tensor whose memory it shares: where the two differ, nothing is known of it any more.
    fn write_through(&mut self, t: &TensorType) {
        // The run-time checker does not follow shared memory.
        let Some(base) = t.view_of.map(ObjId).filter(|_| self.w.modes.typecheck.is_none()) else { return };
        let Some(mut whole) = self.w.heap.tensor(base).cloned() else { return };
        for axis in LocalType::axes_of([&whole.local, &t.local]) {
            if whole.local.get(&axis).set != t.local.get(&axis).set {
                whole.local.set(&axis, AxisState::UNKNOWN);
            }
        }
        if whole.local.rest.set != t.local.rest.set {
            whole.local.rest = AxisState::UNKNOWN;
        }
        whole.zero = false;
        if let Some(known) = self.w.heap.tensor_mut(base) {
            *known = whole;
        }
    }

    /// The tensor that a value is; an unknown value that is used as a tensor becomes one, the same one each time.
    pub fn as_tensor(&mut self, value: &Value) -> Option<ObjId> {
        match value {
            Value::Tensor(id) => Some(*id),
            Value::Sym(path) => {
                if let Some(id) = self.symbol(path) {
                    return Some(id);
                }
                let mut t = self.settings.declared_type(path).unwrap_or_else(TensorType::unknown);
                if let Some(deriving) = &self.deriving
                    && let Some(at) = deriving.params.iter().position(|p| p == path)
                {
                    t.term = Some(std::sync::Arc::new(crate::types::Term::Arg(at)));
                    t.shape = Some(crate::types::Shape(vec![None; deriving.rank]));
                }
                if let Some(place) = self.input_place(path) {
                    self.mode_inputs(&mut t.local, path, place);
                }
                if self.w.modes.typecheck.is_none() && self.settings.is_index_name(path) {
                    t.grad = crate::types::Tri::No;
                }
                self.note_data(path, &mut t);
                let id = self.fresh(Cell::Tensor(t));
                self.w.symbols.insert(path.clone(), id);
                Some(id)
            }
            _ => None,
        }
    }

    /// The truth of a value as a formula over flags; a value that is no flag is an atom nobody asks again.
    pub fn formula(&mut self, value: &Value) -> Formula {
        match value {
            Value::Const(c) => truth(c).map_or(Formula::Const(true), Formula::Const),
            Value::Cond(f) => f.as_ref().clone(),
            // A group is true wherever it is one.
            Value::Sym(path) if self.settings.is_group_name(path) => {
                Formula::Atom(Atom::IsNone(self.flag_name(path))).negate()
            }
            Value::Sym(path) => Formula::Atom(Atom::True(self.flag_name(path))),
            Value::Size(_)
            | Value::Closure(_)
            | Value::Class(_)
            | Value::Module(_)
            | Value::Group(_)
            | Value::Mesh(_)
            | Value::Object(_)
            | Value::Placement(_)
            | Value::Layout(_)
            | Value::Bound(_) => Formula::Const(true),
            Value::Tuple(items) => Formula::Const(!items.is_empty()),
            Value::List(id) => match self.w.heap.get(*id) {
                Some(Cell::List(list)) if list.rest.is_none() => Formula::Const(!list.items.is_empty()),
                _ => self.opaque_atom(),
            },
            _ => self.opaque_atom(),
        }
    }

    /// An atom of its own for a test that nothing else depends on.
    pub fn opaque_atom(&mut self) -> Formula {
        self.next_id += 1;
        Formula::Atom(Atom::True(Name::from(format!("?{}", self.next_id))))
    }

    /// The tensor that an unknown value turned out to be.
    pub fn symbol(&self, path: &Name) -> Option<ObjId> {
        if self.deriving.is_some() {
            self.asked.borrow_mut().symbol(path);
        }
        self.w.symbols.get(path).copied()
    }

    /// What the present world knows of a formula.
    pub fn outcome(&self, formula: &Formula) -> Outcome {
        self.ask(formula);
        formula.eval(&self.w.facts)
    }

    /// What the present world knows of the truth of a value.
    pub fn decided_now(&mut self, value: &Value) -> Outcome {
        let formula = self.formula(value);
        self.outcome(&formula)
    }

    /// The truth of a value, if the present world knows it or excludes the other side.
    pub fn settled(&mut self, value: &Value) -> Option<bool> {
        match self.decided_now(value) {
            Outcome::Decided(truth) => Some(truth),
            Outcome::Open(atom) => {
                let sides = [true, false].map(|side| self.w.facts.with(atom.clone(), side));
                let mut left = sides.iter().filter(|facts| facts.possible());
                let (only, None) = (left.next()?, left.next()) else { return None };
                match self.formula(value).eval(only) {
                    Outcome::Decided(truth) => Some(truth),
                    Outcome::Open(_) => None,
                }
            }
        }
    }

    /// Notes what a derivation depends on.
    pub fn ask(&self, formula: &Formula) {
        if self.deriving.is_some() {
            self.asked.borrow_mut().formula(formula);
        }
    }

    /// Notes how many facts a world knew that learns a further one.
    pub fn ask_room(&self, known: usize) {
        if self.deriving.is_some() {
            self.asked.borrow_mut().known(known);
        }
    }

    /// The name under which a flag is known: `self.config.f`, `config.f`, `args.f` and a parameter `f` are one flag.
    pub fn flag_name(&self, path: &str) -> Name {
        match path.rsplit_once('.') {
            // A question about a configuration is none of its flags.
            Some((base, last)) if !base.contains('(') && self.settings.is_config(base) => Name::from(last),
            _ => Name::from(path),
        }
    }

    /// The value that the configuration fixes for a flag.
    pub fn flag_is_fixed(&self, atom: &Atom) -> Option<bool> {
        self.settings.flag(atom)
    }

    /// Whether an unknown value is known to be no tensor, by a Python annotation.
    pub fn annotated_other(&self, path: &str) -> bool {
        self.annotated.get(path) == Some(&Annotated::Other)
    }

    /// Whether an unknown value is known to be a tensor, by a Python annotation.
    pub fn annotated_tensor(&self, path: &str) -> bool {
        self.annotated.get(path) == Some(&Annotated::Tensor)
    }

    /// Records a loss of precision.
    pub fn lose(&mut self, reason: Reason, what: &str) {
        if !self.quiet && self.settings.wants_types {
            *self.out.coverage.reasons.entry((reason, Name::from(what))).or_default() += 1;
        }
    }

    /// Reports a mistake at a place, in the current world.
    pub fn report(&mut self, place: Place, kind: FindingKind) {
        self.report_with(place, kind, Vec::new());
    }

    pub fn report_with(&mut self, place: Place, kind: FindingKind, repairs: Vec<Repair>) {
        if self.w.modes.unchecked {
            return;
        }
        // What a test expects is no news, and neither is what raises where somebody catches it.
        let raises =
            matches!(kind, FindingKind::Distributed(_) | FindingKind::Practice(_) | FindingKind::Declaration(_))
                || self.w.modes.typecheck.is_some();
        let expected = self.quiet || self.is_expected(place, raises) || self.is_patched();
        if expected || self.lacks_group(&kind) || self.is_trial(&kind) {
            return;
        }
        let mut calls: Vec<CallStep> = self
            .stack
            .iter()
            .filter_map(|a| {
                let place = a.call?;
                Some(CallStep { place, callee: self.project.func(a.func).name.clone() })
            })
            .collect();
        // The forward that a plan is about is called by nobody yet.
        if let (Some(plan), Some(first)) = (&self.planning, calls.first_mut()) {
            first.place = plan.place;
        }
        let worlds = vec![self.w.facts.clone()];
        let unmarked = kind.unmarked_source().is_some();
        let concerned =
            |r: &&Reducer| unmarked && kind.axis().is_none_or(|axis| r.may_sum_over(|own| own == axis.name()));
        let reducers = self.settings.reducers().all.iter().filter(concerned);
        let reducers = reducers.take(super::limits::MAX_REDUCERS_SHOWN).map(Reducer::shown).collect();
        let repairs = if kind.unmarked().is_some() { Vec::new() } else { repairs };
        let finding = Finding {
            kind,
            place,
            function: self.stack.last().map(|a| self.place_of(self.project.func(a.func).span)),
            worlds,
            silent_worlds: Vec::new(),
            silent_right: false,
            others: Vec::new(),
            calls,
            reducers,
            repairs,
            rests_on_hint: false,
        };
        self.out.report(finding);
    }

    /// Whether a finding is about the ranks of a group that is `None` in the current world: there are none.
    fn lacks_group(&self, kind: &FindingKind) -> bool {
        kind.axis().is_some_and(|axis| self.w.facts.lack(axis))
    }

    /// Notes that a check passed at a place.
    pub fn passed(&mut self, place: Place, pass: Pass) {
        if !self.quiet {
            self.out.pass(place, &self.w.facts, pass);
        }
    }

    /// Records the type of a variable after a statement.
    pub fn record(&mut self, id: StmtId, name: &Name, value: &Value) {
        if self.is_recording() {
            let place = self.place(id);
            self.record_at(place, name, value);
        }
    }

    /// Whether types of variables are recorded now.
    pub fn is_recording(&self) -> bool {
        self.settings.wants_types && self.records && !self.quiet
    }

    pub fn record_at(&mut self, place: Place, name: &Name, value: &Value) {
        if !self.is_recording() {
            return;
        }
        let ty = match value {
            Value::Tensor(_) => self.tensor(value).cloned(),
            Value::Sym(path) => self.w.symbols.get(path).and_then(|id| self.w.heap.tensor(*id)).cloned(),
            _ => None,
        };
        if let Some(mut ty) = ty {
            if let Some(on) = ty.dist.on() {
                ty.local = on.local();
            }
            let row = Row { func: self.activation(), place, variable: name.clone(), ty, facts: self.w.facts.clone() };
            self.out.row(row);
        }
    }

    /// Records every variable of the current frame that holds one of these tensors.
    pub fn record_changed(&mut self, id: StmtId, ids: &[ObjId]) {
        if !self.is_recording() {
            return;
        }
        let func = self.func();
        let place = self.place(id);
        // Most variables of a long function hold something else, and are not copied to know that.
        let mut some: Vec<LocalId> = Vec::new();
        self.w.frame().values().enumerate().for_each(|(at, value)| {
            let Value::Tensor(held) = value else { return };
            let local = LocalId::from_index(at);
            match func.locals()[local].kind {
                LocalKind::Temp => {}
                LocalKind::Plain if !ids.contains(held) => {}
                LocalKind::Plain | LocalKind::Cell | LocalKind::Captured => some.push(local),
            }
        });
        for local in some {
            let value = self.local(local);
            if let Value::Tensor(held) = &value
                && ids.contains(held)
            {
                self.record_at(place, &func.locals()[local].name, &value);
            }
        }
    }
}
