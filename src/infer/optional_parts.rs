//! Layers of a library whose parameters a flag decides on: `nn.Linear(own, width, bias=bias)`. In: the call of the constructor. Out: the
//! layer in each configuration. Never: layers that nobody splits, of which each would double the worlds. Next: `derived_layer.rs`.

use super::expr::CallArgs;
use super::machine::{Eval, Machine};
use super::value::Value;
use crate::ir::Const;
use crate::rules::ModuleRule;
use crate::source::Name;
use std::sync::Arc;

impl Machine<'_> {
    /// Makes a layer in every world of the flag that decides whether it has a whole parameter beside a split one.
    pub fn layer_by_world(
        &mut self,
        rule: &Arc<ModuleRule>,
        args: &CallArgs,
        make: &mut dyn FnMut(&mut Self, &CallArgs) -> Value,
    ) -> Eval {
        let Some((at, flag)) = self.deciding_flag(rule, args) else { return Eval::One(make(self, args)) };
        let formula = self.formula(&flag);
        if super::exec::is_opaque(&formula) {
            return Eval::One(make(self, args));
        }
        self.in_each_world(&formula, &mut |m, truth| {
            let mut known = args.clone();
            if let Some(truth) = truth {
                known.args[at].value = Value::Const(Const::Bool(truth));
            }
            make(m, &known)
        })
    }

    /// The argument, and its value, that decides whether a layer of a divided size has a parameter of another size.
    fn deciding_flag(&self, rule: &ModuleRule, args: &CallArgs) -> Option<(usize, Value)> {
        if self.deriving.is_some() || !args.args.iter().any(|a| matches!(a.value, Value::Share(_))) {
            return None;
        }
        let keywords: Vec<Option<&Name>> = args.args.iter().map(|a| a.keyword.as_ref()).collect();
        let bound = rule.args.bind(&keywords);
        let at = |name: &Name| rule.args.index(name).and_then(|param| bound.first(param));
        let share = |size: &Name| at(size).is_some_and(|at| matches!(args.args[at].value, Value::Share(_)));
        let sizes_of = |param: &Name| rule.params.iter().find(|(name, _)| name == param).map(|(_, sizes)| sizes);
        rule.params_when.iter().find_map(|(param, conditions)| {
            let [condition] = conditions.as_slice() else { return None };
            let at = at(condition)?;
            let value = &args.args[at].value;
            let whole = sizes_of(param).is_some_and(|sizes| !sizes.iter().any(share));
            (whole && matches!(value, Value::Sym(_) | Value::Cond(_))).then(|| (at, value.clone()))
        })
    }
}
