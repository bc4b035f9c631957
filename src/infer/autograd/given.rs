//! What the forward of an autograd function under derivation is given. In: its parameters, and the arguments of a call, if it is one. Out: values:
//! terms for the tensors that receive a gradient, names for what nothing is known of. Never: execution. Next: `derive.rs`, which executes the bodies.

use super::super::expr::CallArgs;
use super::super::heap::{Cell, ListCell};
use super::super::machine::Machine;
use super::super::unknown_param::is_tensor;
use super::super::value::Value;
use crate::ir::ParamKind;
use crate::project::FuncRef;
use crate::source::Name;
use crate::types::Term;
use std::sync::Arc;

impl Machine<'_> {
    /// The arguments of the forward: tensors that receive a gradient are what the terms are made of.
    pub fn forward_values(
        &mut self,
        at: FuncRef,
        own: usize,
        args: Option<&CallArgs>,
        receives: &[bool],
        rank: usize,
    ) -> Vec<Value> {
        let func = self.project.func(at);
        let mut out = Vec::new();
        for (i, param) in func.params.iter().skip(own).enumerate() {
            let given = args.and_then(|a| a.get(i, &param.name)).cloned();
            let is_tensor = match &given {
                Some(Value::Tensor(_)) => true,
                Some(Value::Sym(path)) => self.w.symbols.contains_key(path) || receives.get(i) == Some(&true),
                Some(Value::Unknown) | None => {
                    receives.get(i) == Some(&true)
                        || self.settings.is_index_name(&param.name)
                        || param.kind == ParamKind::Normal && param.hint.as_deref().is_some_and(is_tensor)
                }
                Some(_) => false,
            };
            let value = match (given, param.kind) {
                (_, ParamKind::VarArgs) if receives.get(i) == Some(&true) => {
                    let whole = Arc::new(Term::Arg(i));
                    self.parts(&whole, rank)
                }
                (_, ParamKind::VarArgs | ParamKind::KwArgs) => Value::Unknown,
                _ if is_tensor => self.term_tensor(Term::Arg(i), rank),
                // What forward and backward ask of it has one answer, whatever it is.
                (Some(Value::Unknown), _) if !self.settings.is_group_name(&param.name) => {
                    Value::Sym(Name::from(format!("{}.{}", self.project.qualname(at), param.name)))
                }
                (Some(value), _) => value,
                (None, _) => match self.settings.group_named(&param.name) {
                    Some(axes) => Value::Group(axes),
                    None => Value::Sym(param.name.clone()),
                },
            };
            self.note_object(at.module, param, &value);
            out.push(value);
        }
        self.told_ranks(at, own, &mut out);
        if let Some(args) = args {
            // Arguments that were left out have their defaults.
            let defaults = self.settings.static_defaults(at);
            for (at, value) in defaults {
                let at = (at as usize).checked_sub(own);
                if let Some(slot) = at.filter(|at| args.get(*at, &func.params[at + own].name).is_none()) {
                    out[slot] = value;
                }
            }
        }
        out
    }

    /// The parts of a tensor, one for each rank, as a list.
    pub fn parts(&mut self, whole: &Arc<Term>, rank: usize) -> Value {
        let part = self.term_tensor(Term::chunk(whole, 0), rank);
        self.note_each(&part);
        Value::List(self.fresh(Cell::List(ListCell { items: Vec::new(), rest: Some(part) })))
    }
}
