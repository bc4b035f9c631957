//! Classes that are losses. In: a class of the project, or an object of one. Out: whether it is a loss and has no parameters, and what a call of the
//! object runs. Never: a module with layers, whose gradients are followed as those of a model. Source: torch.nn.Module, a call runs `forward`.
//! Next: `forwarded.rs`, for losses that a model returns.

use super::Run;
use super::calls::{Args, LOSSES};
use super::value::{State, Val, last};
use crate::ir::{BinOp, StmtId};
use crate::project::ClassRef;
use crate::source::Name;

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

    /// Whether what is called with labels, or with a whole batch, is a model, whose output has their loss then: `model(**batch).loss` is the
    /// mean over the labels of this rank. Source: transformers 4.46, a model divides by `num_items_in_batch` only where it is given.
    pub fn is_of_labels(&self, id: StmtId, call: &str, state: &State) -> bool {
        let Some((callee, args)) = call.strip_suffix(')').and_then(|call| call.split_once('(')) else { return false };
        let name = last(callee).to_lowercase();
        let is_model = ["model", "net", "module"].iter().any(|word| name.ends_with(word));
        let labelled = args.contains("**") || args.contains("labels=");
        // What says otherwise: the file may make the output itself.
        let file = self.files[self.place(state, id).file].whole();
        // A model of another library than the one whose classes are named for what they are for may give a sum.
        let other = |line: &str| {
            let known = |class: &str| ["For", "DP", "Parallel", "Auto"].iter().any(|word| class.contains(word));
            let calls =
                line.trim_start().strip_prefix("model = ").into_iter().flat_map(|made| made.split('(').rev().skip(1));
            let mut called = calls.map(|of| of.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or(of));
            called.any(|class| class.starts_with(char::is_uppercase) && !known(class))
        };
        let otherwise = ["num_items", "loss=", "reduction=", "ForPreTraining", "num_losses"];
        is_model && labelled && !otherwise.iter().any(|word| file.contains(word)) && !file.lines().any(other)
    }

    /// What a model returns that is told by how many items the sum of the losses of its labels is divided.
    pub fn of_items(&mut self, id: StmtId, args: &Args, state: &mut State) -> Option<Val> {
        let items = args.keyword("num_items_in_batch").filter(|v| matches!(v, Val::Num(_)))?.clone();
        let sum = self.loss(id, Some(false), None, state);
        let loss = self.binary(id, BinOp::Div, &sum, &items, state);
        Some(Val::Dict(vec![(Name::from("loss"), loss)]))
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
