//! Methods that finish what a constructor begins: `setup`, which wraps the model that the other methods train. In: a class. Out: an object
//! after the one method that stores what it wraps. Never: a method that trains, one of two, or one that the function at hand calls itself.
//! Source: nemo_automodel `recipes/llm/train_ft.py`, whose recipes have a `setup`. Next: `mod.rs`, which executes functions with such objects.

use super::Run;
use super::roots::WRAPPERS;
use super::slots::Slots;
use super::value::{State, Val};
use crate::ir::Func;
use crate::project::FuncRef;
use crate::source::{Idx, Name};

/// What a method has that trains: it is no preparation.
const TRAINS: &[&str] = &[".backward(", ".step(", "yield"];

/// Whether a method of this name and text stores what it wraps, and nothing but prepares: `self.model = DistributedDataParallel(model)`.
pub fn prepares(name: &Name, text: &str) -> bool {
    let wraps = |value: &str| {
        let called = value.split('(').next().unwrap_or_default();
        let last = called.rsplit('.').next().unwrap_or_default();
        last.ends_with("DataParallel") || WRAPPERS.iter().any(|wrapper| wrapper.trim_end_matches('(') == last)
    };
    let stores = |line: &str| {
        line.trim_start().strip_prefix("self.").and_then(|rest| rest.split_once(" = ")).is_some_and(|(_, v)| wraps(v))
    };
    !name.starts_with("__") && text.lines().any(stores) && !TRAINS.iter().any(|word| text.contains(word))
}

impl Run<'_> {
    /// The method that prepares objects for another one of the class that defines both.
    pub fn maker(&self, at: FuncRef) -> Option<FuncRef> {
        let class = self.project.func(at).class?;
        let text = |func: &Func| self.files[self.project.file(at.module)].slice(func.span);
        let of = |(_, func): &(Name, _)| FuncRef { module: at.module, func: *func };
        let methods = &self.project.modules[at.module].ir.classes[class].methods;
        let prepares = |at: &FuncRef| prepares(&self.project.func(*at).name, text(self.project.func(*at)));
        let mut makers = methods.iter().map(of).filter(prepares);
        let maker = makers.next().filter(|maker| *maker != at && makers.next().is_none())?;
        let called = format!("self.{}(", self.project.func(maker).name);
        let is_called = |of: FuncRef| text(self.project.func(of)).contains(&called);
        let init = methods.iter().find(|(name, _)| name == "__init__").map(of);
        (!is_called(at) && !init.is_some_and(is_called)).then_some(maker)
    }

    /// An object of the class of a method after the method that prepares it.
    pub fn prepared(&mut self, at: FuncRef, (mut state, object): (State, Val)) -> (State, Val) {
        let Some(maker) = self.maker(at) else { return (state, object) };
        let before = state.clone();
        let mut args = Slots::default();
        for (i, param) in self.project.func(maker).params.iter().enumerate() {
            let value = if i == 0 { object.clone() } else { self.assumed(maker, param, &mut state) };
            args.insert(param.local.index(), value);
        }
        let after = self.run(maker, args, None, state).into_iter().next().map(|(state, _)| state);
        let state = after.map_or(before, |s| State { facts: Default::default(), terms: Default::default(), ..s });
        (state, object)
    }
}
