//! Calls of what is not known. In: a call, by the name of what is called. Out: its value, after what is handed to it is not followed any
//! more; an optimizer, where that is what it makes. Never: a guess at what an optimizer does to gradients that nothing averages.
//! Next: `calls.rs`, which knows the others.

use super::Run;
use super::calls::Args;
use super::eval::has_sizes;
use super::known::Unknown;
use super::value::{State, Val, last};
use crate::ir::StmtId;
use crate::project::{FuncRef, Resolved};

/// Calls that leave gradients as they are, up to a factor that is the same for all.
const HARMLESS: &[&str] = &[
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grad_norm",
    "get_total_norm",
    "print",
    "len",
    "isinstance",
    "id",
    "zeros_like",
    "ones_like",
    "empty_like",
    "next",
    "any",
    "all",
    "info",
    "debug",
    "barrier",
    "parameters_to_vector",
    "synchronize",
    "broadcast",
    "type",
    "str",
    "repr",
    "dict",
    "norm",
    "vector_norm",
    "isfinite",
    "nan_to_num_",
    "set",
    "GradScaler",
];

/// Parts of names of what makes optimizers, and of optimizers.
const OPTIMIZERS: &[&str] =
    &["optim", "adam", "sgd", "lion", "lamb", "lars", "adafactor", "adagrad", "rmsprop", "shampoo", "sophia"];
/// Names of functions that make something begin so.
const MAKERS: &[&str] = &["build", "create", "get", "make", "setup", "set_up", "configure", "construct", "instantiate"];
/// Parts of names of optimizers that sum gradients, and of what is done with an optimizer that is there.
const OTHERS: &[&str] = &[
    "dist", "zero", "shard", "reduc", "averag", "sync", "hook", "backward", "step", "wrap", "hvd", "bytes", "prepare",
    "param", "group", "sched", "config", "cfg", "muon",
];

/// Words in names of functions that change gradients of a module.
const TOUCHES: &[&str] = &[
    "reduc",
    "sync",
    "averag",
    "grad",
    "scale",
    "finali",
    "wrap",
    "parallel",
    "shard",
    "ddp",
    "fsdp",
    "hook",
    "engine",
    "prepare",
    "initial",
    "zero",
    "replicate",
    "optim",
];

impl Run<'_> {
    /// Something that is not known gets what it is handed.
    pub fn unknown(&mut self, name: &str, args: &Args, state: &mut State) {
        self.norms_lost(name, args, state);
        let concerned = |v: &Val| match v {
            Val::Named(text) => !state.modules.is_empty() || super::written::is_model(text),
            Val::Params(_) | Val::Param(_) | Val::Grad(_) | Val::Module(_) | Val::List(_) => true,
            _ => false,
        };
        if !args.all().any(concerned) {
            return;
        }
        let does = self.known.unknown(name, || {
            if HARMLESS.contains(&last(name)) || last(name).starts_with("is_") || last(name).starts_with("has_") {
                return Unknown::Harmless;
            }
            let lower = name.to_lowercase();
            Unknown::Lost(TOUCHES.iter().any(|w| lower.contains(w)))
        });
        let Unknown::Lost(touches) = does else { return };
        for value in args.all() {
            match value {
                Val::Module(_) if !touches => {}
                Val::Named(text)
                    if touches
                        && (state.modules.iter().any(|m| m.name == *text)
                            || super::written::changes_gradients(last(name)) && super::written::is_model(text)) =>
                {
                    let module = Val::Module(state.module(text));
                    state.lose(&module);
                }
                other => state.lose(other),
            }
        }
    }

    /// The value of a call of something that is not known.
    pub fn unknown_call(&mut self, id: StmtId, name: &str, args: &Args, state: &mut State) -> Val {
        if makes_optimizer(name, args) && of_wrapped(args, state) {
            return self.optimizer(args, state);
        }
        // `loss_scaler(loss, optimizer, parameters=model.parameters())`: the backward pass, and the step.
        if let ([loss, Val::Optimizer, ..], true) =
            (args.plain.as_slice(), last(name).to_lowercase().contains("scaler"))
            && !args.open
            && !args.named.iter().any(|(name, _)| name.contains("update"))
        {
            self.backward(id, loss, state);
            self.of_optimizer(id, "step", state);
            return Val::named("norm");
        }
        // Who is given a number of ranks may divide by it in each step.
        let lower = last(name).to_lowercase();
        state.unsettled |= OPTIMIZERS.iter().any(|word| lower.contains(word)) && args.all().any(is_number_of_ranks);
        self.unknown(name, args, state);
        Val::Named(self.text(state, id))
    }

    /// Whether a function calls a class of the project.
    fn makes_objects(&mut self, at: FuncRef) -> bool {
        let view = self.view(at);
        let makes = |step: usize| {
            let path = view.value(step).and_then(|value| view.callee(value));
            path.is_some_and(|path| matches!(self.project.path(&path), Resolved::Class(_)))
        };
        (0..view.steps.len()).any(makes)
    }

    /// The value of a call of a function of the project that says nothing of gradients.
    pub fn unknown_function(&mut self, id: StmtId, at: FuncRef, args: &Args, state: &mut State) -> Val {
        let name = self.project.func(at).name.clone();
        let text = self.files[self.project.file(at.module)].slice(self.project.func(at).span);
        let of_library = text.contains("optim.") && !["hook", "divide_factor"].iter().any(|word| text.contains(word));
        // A class of the project may do anything in its steps.
        if of_library && !self.makes_objects(at) {
            return self.unknown_call(id, &name, args, state);
        }
        self.unknown(&name, args, state);
        Val::Named(self.text(state, id))
    }
}

/// Whether a call makes an optimizer, by the name of what is called, or by that of the options that it is given.
fn makes_optimizer(name: &str, args: &Args) -> bool {
    let lower = last(name).to_lowercase();
    if OTHERS.iter().any(|word| lower.contains(word)) {
        return false;
    }
    let of_options =
        matches!(args.plain.first(), Some(Val::Named(text)) if last(text).to_lowercase().contains("optim"));
    let is_maker = MAKERS.iter().any(|word| lower.trim_start_matches('_').starts_with(word));
    let named = OPTIMIZERS.iter().any(|word| lower.contains(word)) && !args.all().any(has_ranks);
    named && (is_maker || is_class(name)) || lower == "instantiate" && of_options
}

/// Whether a value has a number of ranks in it: who is given one may multiply with it.
pub fn has_ranks(value: &Val) -> bool {
    match value {
        Val::Num(number) => has_sizes(&number.scale),
        Val::Group(_) | Val::Mesh(_) => true,
        _ => false,
    }
}

/// Whether a value is a number of ranks, or has one in it.
pub fn is_number_of_ranks(value: &Val) -> bool {
    matches!(value, Val::Num(number) if has_sizes(&number.scale))
}

/// Whether a name is that of a class, or of a variable for one: `FusedAdam`, `optimizer_cls`.
fn is_class(name: &str) -> bool {
    let word = last(name);
    let of_class = ["cls", "class", "type"].iter().any(|end| word.to_lowercase().ends_with(end));
    of_class || word.starts_with(|c: char| c.is_uppercase()) && !word.contains('_')
}

/// Whether a call is given a module, or parameters of one, and wrappers average the gradients of each of them.
fn of_wrapped(args: &Args, state: &State) -> bool {
    let mut some = false;
    let all = args.all().all(|value| match value {
        Val::Module(module) | Val::Params(Some(module)) => {
            some = true;
            state.around(*module).any(|m| m.keeps.is_some() || !m.wraps.is_empty())
        }
        Val::Params(None) | Val::Param(_) | Val::Grad(_) | Val::List(_) => false,
        _ => true,
    });
    some && all
}
