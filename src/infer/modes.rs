//! Parallel modes at work: the types that a mode gives to inputs and parameters, and the collectives that it asks for.
//! In: modes of the configuration, the command line, a comment of the file. Out: types where the program states none; [`Due`].
//! Never: a type instead of one that is stated. Source: DESIGN.md section 8. Next: `types/mode.rs`.

use super::machine::Machine;
use super::settings::Settings;
use crate::project::ModuleId;
use crate::source::{Name, Place};
use crate::types::mode::{Gradients, ParallelMode};
use crate::types::{Axis, AxisState, LocalType, Origin, Reason};

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
}

impl Settings {
    /// The modes of a file, each with its axis.
    pub fn modes_of(&self, module: ModuleId) -> impl Iterator<Item = (&'static dyn ParallelMode, Axis)> + '_ {
        let own = self.module_modes.get(&module).map(Vec::as_slice).unwrap_or_default();
        self.modes.iter().chain(own).map(move |m| {
            let only = self.mesh_of(module).filter(|mesh| mesh.axes.len() == 1).map(|mesh| mesh.axes[0].0.clone());
            (*m, only.unwrap_or_else(|| self.canonical(m.axis())))
        })
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
        if self.settings.modes_of(root.func.module).next().is_none() || self.settings.is_config(path) {
            return None;
        }
        let head = path.split(['.', '[']).next().unwrap_or(path);
        let func = self.project.func(root.func);
        let param = func.params.iter().find(|p| p.name == *head && head != "self")?;
        Some(Place { file: self.project.file(root.func.module), span: param.span })
    }

    /// What the modes of the root's file say of a tensor that comes in.
    pub(super) fn mode_inputs(&self, local: &mut LocalType, place: Place) {
        self.by_modes(local, place, |mode| mode.inputs());
    }

    /// What the modes of the root's file say of a parameter.
    pub(super) fn mode_parameters(&self, local: &mut LocalType, place: Place) {
        self.by_modes(local, place, |mode| mode.parameters());
    }

    fn by_modes(&self, local: &mut LocalType, place: Place, of: impl Fn(&dyn ParallelMode) -> Option<AxisState>) {
        let Some(root) = self.stack.first() else { return };
        for (mode, axis) in self.settings.modes_of(root.func.module) {
            let Some(state) = of(mode) else { continue };
            let origin = Origin::new(place, Reason::Mode(Name::from(mode.name())), state.known());
            local.set(&axis, state.from(&origin));
        }
    }

    /// At `backward()`: what the modes do with the gradients.
    pub(super) fn note_due(&mut self, place: Place) {
        let Some(root) = self.stack.first() else { return };
        let settings = self.settings;
        for (mode, axis) in settings.modes_of(root.func.module) {
            let mut note = |what| {
                let due = Due { place, axis: axis.clone(), mode: Name::from(mode.name()), what };
                if !self.out.due.contains(&due) {
                    self.out.due.push(due);
                }
            };
            if mode.gathers_parameters() {
                note(DueKind::GatherParameters);
            }
            match mode.gradients() {
                Gradients::AllReduce => note(DueKind::SumGradients),
                Gradients::ReduceScatter => note(DueKind::ScatterGradients),
                Gradients::Own => {}
            }
        }
    }
}
