//! Classes that are losses. In: a class of the project, or an object of one. Out: whether it is a loss and has no parameters, and what a call of the
//! object runs. Never: a module with layers, whose gradients are followed as those of a model. Source: torch.nn.Module, a call runs `forward`.
//! Next: `forwarded.rs`, for losses that a model returns.

use super::Run;
use super::calls::LOSSES;
use super::value::{State, Val};
use crate::project::ClassRef;

/// Parts of names of classes that are losses.
const NAMED: &[&str] = &["Loss", "Crit", "CrossEntropy"];
/// Words of constructors that make layers or parameters.
const LAYERS: &[&str] = &[
    "Parameter(",
    "Linear(",
    "Conv",
    "Embedding(",
    "Sequential(",
    "ModuleList(",
    "ModuleDict(",
    "Norm(",
    "Transformer",
    "from_pretrained",
    "super().forward",
];

impl Run<'_> {
    /// Whether the forward of a module makes a loss, by its text and the name of the class.
    pub fn may_make_loss(&self, class: ClassRef, forward: &str) -> bool {
        forward.contains("loss") || self.is_called_loss(class)
    }

    fn is_called_loss(&self, class: ClassRef) -> bool {
        let name = &self.project.class(class).name;
        NAMED.iter().any(|word| name.contains(word))
    }

    /// Whether a class of modules is a loss without layers: what it keeps are numbers, groups and other losses.
    pub fn is_loss(&self, class: ClassRef) -> bool {
        if !self.is_called_loss(class) || !self.is_module_class(class) {
            return false;
        }
        let bases = self.settings.statics.linearized(class);
        let text = |c: &ClassRef| self.files[self.project.file(c.module)].slice(self.project.class(*c).span);
        self.method(class, "forward").is_some()
            && !bases.iter().any(|c| LAYERS.iter().any(|word| text(c).contains(word)))
    }

    /// What a call of an object runs.
    pub fn run_by_call(&mut self, object: usize, state: &State) -> Option<Val> {
        let class = state.objects.get(object)?.class?;
        let name = if self.is_loss(class) { "forward" } else { "__call__" };
        let at = self.method(class, name)?;
        let text = || self.files[self.project.file(at.module)].slice(self.project.func(at).span);
        let makes = self.is_called_loss(class) || LOSSES.iter().any(|loss| text().contains(loss));
        (makes || self.matters(at)).then_some(Val::Method(object, at))
    }
}
