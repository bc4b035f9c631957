//! Variables that a raw collective writes into. In: a call before it is executed. Out: tensors in the variables of which nothing was known, so
//! that what the collective writes is known of them afterwards. Never: the attributes of objects, or autograd functions under derivation.
//! Next: `collective.rs`, which types what is written.

use super::machine::Machine;
use super::value::Value;
use crate::ir::{Arg, ArgKind, Operand};
use crate::rules::{Entry, Form};
use crate::source::Name;
use crate::types::TensorType;

impl Machine<'_> {
    /// Before `callee(args)`, or `callee.method(args)` for a function of a module.
    pub fn written_variables(&mut self, callee: &Value, method: Option<&Name>, args: &[Arg]) {
        let unknown = |m: &Self, arg: &Arg| match &arg.value {
            Operand::Local(local) => matches!(m.w.frame().get(*local), Value::Unknown).then_some(*local),
            Operand::Global(_) | Operand::Const(_) => None,
        };
        if self.deriving.is_some()
            || !matches!(callee, Value::Path(_))
            || !args.iter().any(|arg| unknown(self, arg).is_some())
        {
            return;
        }
        let callee = method.map_or_else(|| callee.clone(), |name| self.attr_quietly(callee, name));
        let Value::Path(path) = callee else { return };
        let Some(Entry::Collective(rule)) = self.rules.get(&path) else { return };
        let written = match rule.form {
            Form::InPlace => Some(rule.input),
            Form::IntoOutput => rule.output,
            Form::IntoList | Form::SrcDst | Form::Result => None,
        };
        let mut keywords = Vec::with_capacity(args.len());
        for arg in args {
            match &arg.kind {
                ArgKind::Positional => keywords.push(None),
                ArgKind::Keyword(name) => keywords.push(Some(name)),
                ArgKind::Star | ArgKind::DoubleStar => return,
            }
        }
        let at = written.and_then(|param| rule.args.bind(&keywords).first(param));
        if let Some(local) = at.and_then(|at| unknown(self, &args[at])) {
            let tensor = self.new_tensor(TensorType { untracked: true, ..TensorType::unknown() });
            self.set_local(local, tensor);
        }
    }
}
