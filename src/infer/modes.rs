//! Parallel modes at work: the types that a mode gives to inputs and parameters, and the collectives that it asks for.
//! In: modes of the configuration, the command line, a comment of the file. Out: types where the program states none; [`Due`].
//! Never: a type instead of one that is stated. Source: DESIGN.md section 8. Next: `types/mode.rs`.

use super::dtensor::found::Distributed;
use super::expr::CallArgs;
use super::finding::{Finding, FindingKind};
use super::machine::{Eval, Machine};
use super::settings::Settings;
use super::value::Value;
use crate::ir::StmtId;
use crate::plan::Placement;
use crate::project::{FuncRef, ModuleId};
use crate::rules::Entry;
use crate::source::reads::{Read, note};
use crate::source::{Name, Place};
use crate::types::mode::{Gradients, ParallelMode};
use crate::types::{Axis, AxisState, AxisType, LocalType, Origin, Reason, TensorType, Tri, state_of_placement};

/// A collective that a mode asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due {
    pub place: Place,
    pub axis: Axis,
    pub mode: Name,
    pub what: DueKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DueKind {
    /// After the backward: the gradients of the parameters are summed.
    SumGradients,
    /// After the backward: they are summed, and each rank keeps its part.
    ScatterGradients,
    /// Before the parameters are used.
    GatherParameters,
    /// What the optimizer keeps for a parameter: each rank has its part.
    SplitStates,
}

impl Settings {
    /// The modes of a function of a file, each with its axis.
    pub fn modes_of(&self, func: FuncRef) -> impl Iterator<Item = (&'static dyn ParallelMode, Axis)> + '_ {
        let module = func.module;
        let own = self.module_modes.get(&module).map(Vec::as_slice).unwrap_or_default();
        let decorated = self.decorated(func).map(|d| &d.mode);
        self.modes.iter().chain(own).chain(decorated).map(move |m| {
            let only = self.mesh_of(module).filter(|mesh| mesh.axes.len() == 1);
            let only = only.and_then(|mesh| mesh.axes.first().map(|(axis, _)| axis.clone()));
            (*m, only.unwrap_or_else(|| self.canonical(m.axis())))
        })
    }

    /// Whether a file has functions that a mode expands.
    pub fn is_expanded(&self, module: ModuleId) -> bool {
        note(|| Read::Decorated(module.0));
        self.is_global(module) || self.decorated.keys().any(|func| func.module == module)
    }

    /// Decorators of a part of the library that the version of the program does not have.
    pub fn gone(&self) -> Vec<Finding> {
        let mut out: Vec<(Place, Name, Name)> = Vec::new();
        for decorated in self.decorated.values() {
            let Some(removed) = &decorated.removed else { continue };
            let parsed = removed.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
            if self.target_torch.is_none_or(|target| parsed.is_some_and(|removed: (u32, u32)| target >= removed)) {
                out.push((decorated.place, decorated.api.clone(), removed.clone()));
            }
        }
        out.sort();
        let kind = |api, removed| FindingKind::Distributed(Distributed::ModeGone { api, removed });
        out.into_iter().map(|(place, api, removed)| Finding::everywhere(place, kind(api, removed))).collect()
    }

    /// Whether the tensors of a file are parts of whole ones.
    pub fn is_global(&self, module: ModuleId) -> bool {
        self.global || !self.modes.is_empty() || self.module_modes.contains_key(&module)
    }
}

impl Machine<'_> {
    /// Where the parameter of the root stands that a path begins with: what comes into the program by it is an input.
    pub(super) fn input_place(&self, path: &str) -> Option<Place> {
        let root = self.stack.first()?;
        if self.settings.modes_of(root.func).next().is_none() || self.settings.is_config(path) {
            return None;
        }
        let head = path.split(['.', '[']).next().unwrap_or(path);
        let func = self.project.func(root.func);
        let param = func.params.iter().find(|p| p.name == *head && head != "self")?;
        Some(Place { file: self.project.file(root.func.module), span: param.span })
    }

    /// What the modes of the root's file say of a tensor that comes in: an input by its path.
    pub(super) fn mode_inputs(&self, local: &mut LocalType, path: &str, place: Place) {
        self.by_modes(local, place, |mode| mode.inputs());
        let Some(root) = self.stack.first() else { return };
        let Some(decorated) = self.settings.decorated(root.func) else { return };
        let Some((_, axis)) = self.settings.modes_of(root.func).find(|(m, _)| m.name() == decorated.mode.name()) else {
            return;
        };
        let mut state = local.get(&axis).clone();
        if let (Some(dim), Some(_)) = (decorated.dim, state.shard) {
            state.shard = Some(dim);
        }
        let overridden = decorated.overrides.iter().find(|(name, _)| name == path);
        if let Some((_, placement)) = overridden {
            let placed = match placement {
                Placement::Replicate => AxisState::new(AxisType::R),
                other => state_of_placement(*other),
            };
            state = AxisState { origin: state.origin, ..placed };
        }
        local.set(&axis, state);
    }

    /// Whether a method gives a module something to keep under a name: a parameter, or, in a program that a mode expands, a tensor
    /// that is none.
    pub(super) fn registers(&self, method: &Name) -> bool {
        let expanded = || self.stack.first().is_some_and(|root| self.settings.modes_of(root.func).next().is_some());
        match self.registering(method) {
            Some("register-parameter" | "module-hook") => true,
            Some("register-buffer") => expanded(),
            _ => false,
        }
    }

    /// What a method that registers does, by its rule.
    fn registering(&self, method: &Name) -> Option<&str> {
        if !method.starts_with("register_") && method != "add_module" {
            return None;
        }
        match self.rules.get(&format!("torch.nn.Module.{method}")) {
            Some(Entry::Intrinsic(rule)) => Some(&rule.does),
            _ => None,
        }
    }

    /// `self.register_parameter(name, param)` is an assignment; a buffer is a tensor without a gradient.
    pub(super) fn register(&mut self, id: StmtId, base: &Value, method: &Name, args: &CallArgs) -> Eval {
        if self.registering(method) == Some("module-hook") {
            self.hook_module(base, args);
            return Eval::One(Value::Unknown);
        }
        if self.registering(method) == Some("register-buffer") {
            self.register_buffer(id, base, args);
            return Eval::One(Value::NONE);
        }
        let kept = args.get(1, "param").or_else(|| args.keyword("module")).cloned();
        match (args.get(0, "name").and_then(Value::as_str).cloned(), kept) {
            (Some(name), Some(value)) => self.store_attr(id, base, &name, value),
            _ => Eval::One(Value::NONE),
        }
    }

    /// `self.register_buffer(name, tensor)`
    fn register_buffer(&mut self, id: StmtId, base: &Value, args: &CallArgs) {
        let (Some(name), Some(tensor)) = (args.get(0, "name").and_then(Value::as_str).cloned(), args.get(1, "tensor"))
        else {
            return self.forget(args);
        };
        let Some(known) = self.tensor(tensor).cloned() else { return };
        let mut local = known.local.clone();
        self.by_modes(&mut local, self.place(id), |mode| mode.buffers());
        let value = self.new_tensor(TensorType { local, grad: Tri::No, ..known });
        self.set_attr(id, base, &name, value);
    }

    /// At a return of a root: a mode that takes no pending sums for results.
    pub(super) fn mode_result(&mut self, id: StmtId, value: &Value) {
        let [root] = self.stack.as_slice() else { return };
        let func = self.project.func(root.func);
        let step = self.settings.decorated(root.func).is_some()
            || self.files[self.project.file(root.func.module)].slice(func.span).contains(".backward(");
        let modes: Vec<_> = self.settings.modes_of(root.func).filter(|(m, _)| m.refuses_pending_results()).collect();
        if !step || modes.is_empty() {
            return;
        }
        let items = self.literal_items(value).unwrap_or_else(|| vec![value.clone()]);
        for item in items {
            let Some(t) = self.tensor(&item) else { continue };
            let pending = modes.iter().find(|(_, axis)| t.local.get(axis).set == AxisType::P);
            if let Some((mode, axis)) = pending {
                let place = self.part(id, 0);
                let kind =
                    Distributed::PartialResult { mode: Name::from(mode.name()), axis: axis.clone(), value: place };
                self.report(place, FindingKind::Distributed(kind));
                return;
            }
        }
    }

    /// What the modes of the root's file say of a parameter.
    pub(super) fn mode_parameters(&self, local: &mut LocalType, place: Place) {
        self.by_modes(local, place, |mode| mode.parameters());
    }

    fn by_modes(&self, local: &mut LocalType, place: Place, of: impl Fn(&dyn ParallelMode) -> Option<AxisState>) {
        let Some(root) = self.stack.first() else { return };
        for (mode, axis) in self.settings.modes_of(root.func) {
            let Some(state) = of(mode) else { continue };
            let origin = Origin::new(place, Reason::Mode(Name::from(mode.name())), state.known());
            local.set(&axis, state.from(&origin));
        }
    }

    /// At `backward()`: what the modes do with the gradients.
    pub(super) fn note_due(&mut self, place: Place) {
        let Some(root) = self.stack.first() else { return };
        let settings = self.settings;
        for (mode, axis) in settings.modes_of(root.func) {
            let mut note = |what| {
                let due = Due { place, axis: axis.clone(), mode: Name::from(mode.name()), what };
                if !self.out.due.contains(&due) {
                    self.out.due.push(due);
                }
            };
            if mode.gathers_parameters() {
                note(DueKind::GatherParameters);
            }
            if mode.states().is_some_and(|s| s.set == AxisType::V) && mode.states() != mode.parameters() {
                note(DueKind::SplitStates);
            }
            match mode.gradients() {
                Gradients::AllReduce => note(DueKind::SumGradients),
                Gradients::ReduceScatter => note(DueKind::ScatterGradients),
                Gradients::Own => {}
            }
        }
    }
}
