//! Whole parameters beside split ones, in code whose framework promises nothing: they are equal on every rank (R or I), and where the
//! activations outside are one computation done by all ranks, nothing sums their gradients unless the project does. In: an object after
//! its constructor; operands. Out: types of parameters, and the operands of a sum that is missing. Never: a parameter made in a loop,
//! of an expert, or whose size is not followed. Source: DESIGN.md section 7. Next: `share.rs`, the split ones.

use super::formula::{Atom, Facts};
use super::limits::{MAX_FILES_OF_PROGRAM, MAX_NEEDING};
use super::machine::Machine;
use super::may_be_summed;
use super::ops;
use super::own_protocol::wraps_any;
use super::parameters::may_freeze;
use super::practice::reducers::Covered;
use super::practice::routers::routes;
use super::practice::sizes::{says_part, whole_for};
use super::practice::view::View;
use super::value::{ObjId, Value};
use super::world::World;
use crate::ir::{Block, ClassId, Func, LocalId, Operand, Rvalue, Stmt, StmtId};
use crate::project::{ClassRef, ModuleId};
use crate::rules::Role;
use crate::source::{FileId, Name, Place};
use crate::types::{Axis, AxisState, AxisType, Origin, Reason, Spmd, Tri};

/// Words for parameters of which each rank may have others, and for those that are no activations' business.
const OWN: &[&str] = &["expert"];

/// Words in a class that say that gradients of its parameters are taken care of, or that there are none.
const HANDLED: &[&str] = &["setattr(", "hook", "no_grad", "inference_mode"];

/// Words in a file whose activations may be split otherwise in another configuration, in which something sums.
const OTHERWISE: &[&str] = &["sequence_parallel", "seq_parallel", "reduce_scatter", "all_to_all"];

/// Wrappers that reduce the gradients of all parameters, over ranks that are not told.
pub const WRAPPERS: &[&str] = &["DistributedDataParallel", "FullyShardedDataParallel", "fully_shard", "DDP(", "FSDP("];

/// What a root needs of a parameter on every path: its name, the axis, and the use that needs it.
pub type Needed = Vec<(Name, Axis, AxisState)>;

impl Machine<'_> {
    /// Gives whole parameters of an object that has split ones their types.
    pub fn settle_whole(&mut self, class: ClassRef, all: &[(String, ObjId, Place)], world: &mut World) {
        let mut axes: Vec<Axis> = Vec::new();
        for (_, tensor, _) in all {
            let Some(t) = world.heap.tensor(*tensor) else { continue };
            let Some(divided) = &t.divided else { continue };
            let split = |s: &AxisState| s.set == AxisType::V && !s.is_declared();
            for axis in t.local.listed().filter(|(_, s)| split(s)).map(|(a, _)| a) {
                if divided.axes.contains(axis) && !axes.contains(axis) {
                    axes.push(axis.clone());
                }
            }
        }
        if axes.is_empty() {
            return;
        }
        for (name, tensor, home) in all.iter().map(|(n, t, h)| (n, *t, *h)) {
            let Some(t) = world.heap.tensor(tensor).filter(|t| t.divided.is_none()) else { continue };
            let open: Vec<Axis> = axes.iter().filter(|a| t.local.get(a).set.is_unknown()).cloned().collect();
            let derives = |c: ClassRef| self.settings.linearized(self.project, c).contains(&class);
            if open.is_empty()
                || self.settings.marking.may_mark(class, name, (&derives, &self.holders(home)), false)
                || !self.project.module_of(home.file).is_some_and(|m| self.has_whole_sizes(m, name, home))
            {
                continue;
            }
            let Some(t) = world.heap.tensor_mut(tensor) else { continue };
            for axis in open {
                let origin = Origin::new(home, Reason::Whole(Name::from(name.as_str())), None);
                let state = AxisState { set: AxisType::EQUAL, shard: None, nest: 0, origin: Some(origin) };
                t.local.set(&axis, state);
            }
            self.found_whole = true;
        }
    }

    /// Whether a parameter has the sizes that its constructor is given, and nothing says that it is a part or one rank's own.
    fn has_whole_sizes(&self, module: ModuleId, name: &str, home: Place) -> bool {
        let lower = name.to_lowercase();
        if says_part(name) || OWN.iter().any(|w| lower.contains(w)) {
            return false;
        }
        let Some(at) = self.project.func_around(module, home.span) else { return false };
        let view = View::new(self.project, self.rules, self.files, at);
        let Some(step) = (0..view.steps.len()).find(|s| view.place(view.steps[*s].id) == home) else { return false };
        let class = view.func.class.map(|class| ClassRef { module, class });
        let base = class.and_then(|class| self.layer_below(class));
        view.func.name == "__init__"
            && view.steps[step].loops.is_empty()
            && whole_for(&view, step, name, base.as_deref())
    }

    /// Whether a parameter is that of a router: it has a row for each expert of the model.
    pub(super) fn routes_at(&self, module: ModuleId, name: &str, home: Place) -> bool {
        let text = self.files[home.file].slice(home.span);
        if !text.to_ascii_lowercase().contains("expert") {
            return false;
        }
        let Some(at) = self.project.func_around(module, home.span) else { return false };
        let view = View::new(self.project, self.rules, self.files, at);
        let step = (0..view.steps.len()).find(|s| view.place(view.steps[*s].id) == home);
        step.is_some_and(|step| routes(&view, step, name))
    }

    /// Notes that activations are one computation done by all ranks of an axis: a collective with a gradient takes or gives them so.
    pub fn note_invariant(&mut self, axis: &Axis) {
        if !self.invariant_on.contains(axis) {
            self.invariant_on.push(axis.clone());
        }
    }

    /// The operands with those whole parameters as Invariant whose gradient nothing sums, where they meet what differs by rank.
    pub fn without_sum(&self, axis: &Axis, operands: &[ops::Operand]) -> Option<Vec<ops::Operand>> {
        let whole = |o: &&ops::Operand| o.grad == Tri::Yes && o.ty.get(axis).is_whole();
        if !operands.iter().any(|o| whole(&o)) {
            return None;
        }
        let is_open = |o: &ops::Operand| o.role == Role::Term && o.ty.get(axis).set.is_unknown();
        if self.held_on.is_empty() && operands.iter().any(is_open) {
            self.note_open(axis, operands);
        }
        if self.invariant_on.is_empty() && self.held_on.is_empty() {
            return None;
        }
        // What it makes of values that nothing tells is the same on all ranks, if its gradient is to be whole. Arithmetic with parameters alone
        // may be a way to share it out.
        let may_be = |o: &ops::Operand| {
            let set = o.ty.get(axis).set;
            set.is_unknown() || set == AxisType::EQUAL || set == AxisType::I
        };
        let is_held = self.held_on.contains(axis)
            && operands.iter().any(is_open)
            && operands.iter().all(|o| o.role != Role::Term || may_be(o));
        if !is_held && !self.meets_differing(axis, operands) {
            return None;
        }
        let mut out = operands.to_vec();
        let mut found = false;
        for operand in &mut out {
            let state = operand.ty.get(axis).clone();
            let Some(Reason::Whole(name)) = state.origin.as_ref().map(|o| &o.reason) else { continue };
            let Some(place) = state.origin.as_ref().map(|o| o.place) else { continue };
            if state.is_whole() && operand.grad == Tri::Yes && self.nobody_sums(name, axis, place) {
                let origin = Origin::new(place, Reason::Unmarked(name.clone()), Some(Spmd::Invariant));
                operand.ty.set(axis, AxisState { set: AxisType::I, shard: None, nest: 0, origin: Some(origin) });
                found = true;
            }
        }
        found.then_some(out)
    }

    /// Notes the whole parameters that meet values of which nothing is known: what a second execution would hold against these.
    fn note_open(&self, axis: &Axis, operands: &[ops::Operand]) {
        let mut open = self.open_whole.borrow_mut();
        for origin in operands.iter().filter_map(|o| o.ty.get(axis).origin.as_ref()) {
            if let Reason::Whole(name) = &origin.reason {
                let met = (name.clone(), axis.clone(), origin.place);
                if !open.contains(&met) {
                    open.push(met);
                }
            }
        }
    }

    /// Whether activations are one computation on all ranks of an axis, and one of the operands differs by rank.
    fn meets_differing(&self, axis: &Axis, operands: &[ops::Operand]) -> bool {
        // The gradient that a converted value asks for is a term of a sum as well.
        let differs = |o: &ops::Operand| {
            let state = o.ty.get(axis);
            let apart = state.set == AxisType::V || state.set == AxisType::R && is_converted(state);
            o.role == Role::Term && o.grad != Tri::No && apart
        };
        self.invariant_on.contains(axis) && operands.iter().any(differs)
    }

    /// The axes over which whole parameters are held, once a first execution has shown where activations are one computation, and that such a
    /// parameter meets what is not known there: none if something wraps a model over all ranks, whose gradients it sums.
    pub fn holds_whole(&self) -> Vec<Axis> {
        let open = self.open_whole.borrow();
        let is_met =
            |axis: &&Axis| open.iter().any(|(name, met, home)| met == *axis && self.nobody_sums(name, met, *home));
        if open.is_empty() || self.invariant_on.is_empty() || wraps_any(self.files) {
            return Vec::new();
        }
        self.invariant_on.iter().filter(is_met).cloned().collect()
    }

    /// Whether no reducer, hook, mark or wrapper in sight may sum the gradient of a parameter.
    fn nobody_sums(&self, name: &str, axis: &Axis, home: Place) -> bool {
        let marks = |mark: &str| self.rules.mark(mark).is_some();
        let over = [Name::from(axis.name())];
        let made = self.files[home.file].slice(home.span);
        if self.settings.reducers().covers_made((name, made), &over, &marks, &|_| false) != Covered::No {
            return false;
        }
        let Some(module) = self.project.module_of(home.file) else { return false };
        let file = &self.files[home.file];
        let class = self.project.func_around(module, home.span).and_then(|at| self.project.func(at).class);
        let text = class.map_or(file.whole(), |class| file.slice(self.project.class(ClassRef { module, class }).span));
        if HANDLED.iter().any(|word| text.contains(word)) || may_freeze(text, name) {
            return false;
        }
        if self.may_be_told_elsewhere(module, class, name) {
            return false;
        }
        let mut near: Vec<ModuleId> = self.stack.iter().map(|a| a.func.module).collect();
        near.push(module);
        near.iter().all(|m| {
            let text = self.files[self.project.file(*m)].whole();
            let wrapped = WRAPPERS.iter().any(|word| text.contains(word)) && !text.contains("process_group=");
            !wrapped && !OTHERWISE.iter().any(|word| text.contains(word))
        })
    }

    /// Whether the file of a class, or another one of its program, may freeze a parameter, or sum its gradient in a way that is not read.
    fn may_be_told_elsewhere(&self, module: ModuleId, class: Option<ClassId>, name: &str) -> bool {
        let class = class.map(|class| ClassRef { module, class });
        let sums = |file: &FileId| may_be_summed::sums_otherwise(self.files[*file].whole());
        let files = self.files_of_program(module, class);
        files.iter().any(|file| self.freezes_beside_classes(*file, name) || sums(file))
    }

    /// Whether one of them freezes it.
    pub(super) fn is_frozen_elsewhere(&self, module: ModuleId, class: ClassRef, name: &str) -> bool {
        self.files_of_program(module, Some(class)).iter().any(|file| self.freezes_beside_classes(*file, name))
    }

    fn freezes_beside_classes(&self, file: FileId, name: &str) -> bool {
        let classes = self.project.module_of(file).map(|m| self.project.modules[m].ir.classes.iter().map(|c| c.span));
        let classes: Vec<_> = classes.into_iter().flatten().collect();
        may_be_summed::freezes(self.files[file].whole(), &classes, name)
    }

    /// The file of a class, and those that name it; of a small program all that speak of gradients.
    fn files_of_program(&self, module: ModuleId, class: Option<ClassRef>) -> Vec<FileId> {
        let named = class.map(|class| self.project.class(class).name.clone());
        let all = [".grad", "requires_grad"].into_iter().filter(|_| self.files.len() <= MAX_FILES_OF_PROGRAM);
        let words = named.iter().map(Name::as_str).chain(all);
        let mut files: Vec<FileId> = words.flat_map(|word| self.files.saying(word)).collect();
        files.push(self.project.file(module));
        files.sort();
        files.dedup();
        files
    }

    /// The parameters of a root that this path needs to be Invariant.
    pub fn needs(&self, given: &[(Name, Value)]) -> Needed {
        let mut out = Needed::new();
        for (name, value) in given {
            let tensor = match value {
                Value::Tensor(id) => Some(*id),
                Value::Sym(path) => self.symbol(path),
                _ => None,
            };
            let Some(t) = tensor.and_then(|id| self.w.heap.tensor(id)) else { continue };
            for (axis, state) in t.local.listed().filter(|(_, s)| s.set == AxisType::I) {
                if state.origin.as_ref().is_some_and(|o| matches!(o.reason, Reason::Narrowed(_))) {
                    out.push((name.clone(), axis.clone(), state.clone()));
                }
            }
        }
        out
    }

    /// Starts a root with what it needs of its parameters.
    pub fn give_needed(&mut self, needed: &Needed, given: &[(Name, Value)]) {
        for (name, axis, state) in needed {
            let Some((_, value)) = given.iter().find(|(n, _)| n == name) else { continue };
            let Some(id) = self.as_tensor(&value.clone()) else { continue };
            if let Some(t) = self.w.heap.tensor_mut(id)
                && t.local.get(axis).set.is_unknown()
            {
                t.local.set(axis, state.clone());
            }
        }
    }
}

/// Whether a conversion of what is the same computation on all ranks gave a type.
fn is_converted(state: &AxisState) -> bool {
    let mut at = state.origin.as_ref();
    while let Some(origin) = at {
        if matches!(origin.reason, Reason::Collective(_)) {
            return origin.from.as_ref().is_some_and(|from| from.decided == Some(Spmd::Invariant));
        }
        at = origin.from.as_ref();
    }
    false
}

/// What paths need, each with what it knows.
#[derive(Default)]
pub struct Needs {
    paths: Vec<(Facts, Needed)>,
}

/// With what a root is executed: what is needed of its parameters, and an answer to a test, where only paths with it need that.
#[derive(Clone, Debug, Default)]
pub struct Assumed {
    pub needed: Needed,
    pub holds: Option<(Atom, bool)>,
}

impl Needs {
    /// Another path, with what it needs.
    pub fn also(&mut self, needed: Needed, facts: &Facts) {
        self.paths.push((facts.clone(), needed));
    }

    /// What all paths need that have the ranks for it.
    pub fn of_all(&self) -> Needed {
        self.of(|_| true)
    }

    /// What these paths need, all of them that have the ranks for it.
    fn of(&self, among: impl Fn(&Facts) -> bool) -> Needed {
        let has = |of: &Needed, n: &Name, x: &Axis| of.iter().any(|(m, y, _)| n == m && x == y);
        let mut all = Needed::new();
        let mut before: Vec<&Facts> = Vec::new();
        for (facts, needed) in self.paths.iter().filter(|(facts, _)| among(facts)) {
            all.retain(|(n, x, _)| has(needed, n, x) || facts.lack(x));
            for (name, axis, state) in needed {
                if !has(&all, name, axis) && before.iter().all(|path| path.lack(axis)) {
                    all.push((name.clone(), axis.clone(), state.clone()));
                }
            }
            before.push(facts);
        }
        all
    }

    /// What all paths with one answer to a flag need, beyond what all do: without sequence parallelism the residual stream is Invariant.
    pub fn under_flag(&self, all: &Needed) -> Option<Assumed> {
        let (first, _) = self.paths.first()?;
        if self.paths.len() > MAX_NEEDING || self.paths.iter().all(|(_, needed)| needed.is_empty()) {
            return None;
        }
        let is_flag = |atom: &&Atom| matches!(atom, Atom::True(name) if !name.contains(['?', '#', ' ', '(']));
        let told = |atom: &&Atom| self.paths.iter().all(|(facts, _)| facts.get(atom).is_some());
        let flags = first.iter().map(|(atom, _)| atom).filter(is_flag).filter(told);
        for atom in flags {
            for value in [false, true] {
                let mut needed = self.of(|facts| facts.get(atom) == Some(value));
                needed.retain(|(name, axis, _)| !all.iter().any(|(n, x, _)| n == name && x == axis));
                if !needed.is_empty() {
                    return Some(Assumed { needed, holds: Some((atom.clone(), value)) });
                }
            }
        }
        None
    }
}

impl Assumed {
    /// Leaves the worlds that can have the answer; they know it then.
    pub fn told(&self, mut worlds: Vec<World>) -> Vec<World> {
        let Some((atom, value)) = &self.holds else { return worlds };
        worlds.retain_mut(|world| match world.facts.get(atom) {
            Some(known) => known == *value,
            None => {
                world.facts = world.facts.with(atom.clone(), *value);
                world.facts.possible()
            }
        });
        worlds
    }
}

/// What of a tensor is no tensor.
const MEASURES: &[&str] = &["shape", "dtype", "device", "ndim", "size", "dim", "numel", "requires_grad", "is_cuda"];

/// Whether a function makes anything of what it needs before the use that tells so: only then a second execution tells more.
pub fn is_used_before(func: &Func, file: FileId, needed: &Needed) -> bool {
    needed.iter().any(|(name, _, state)| {
        let Some(param) = func.params.iter().find(|p| p.name == *name) else { return true };
        let mut reads = Vec::new();
        readers_of(func.body(), param.local, &mut reads);
        let told = state.origin.as_ref().map(|o| o.place);
        match told.filter(|place| place.file == file && func.span.contains(place.span.start)) {
            // What is written inside an operation is done before it.
            Some(place) => reads
                .iter()
                .map(|id| func.spans().of(*id))
                .any(|read| read.end <= place.span.start || read != place.span && place.span.contains(read.start)),
            // Inside something that is called: whichever of them calls it.
            None => reads.len() > 1,
        }
    })
}

/// The statements that read more of a variable than its measures.
pub fn readers_of(block: &Block, local: LocalId, out: &mut Vec<StmtId>) {
    for node in block {
        let measures = match &node.stmt {
            Stmt::Assign { value: Rvalue::Attr { name, .. } | Rvalue::CallMethod { name, .. }, .. } => {
                MEASURES.contains(&name.as_str())
            }
            _ => false,
        };
        if !measures && node.stmt.operands().into_iter().any(|operand| *operand == Operand::Local(local)) {
            out.push(node.id);
        }
        node.stmt.blocks().for_each(|inner| readers_of(inner, local, out));
    }
}
