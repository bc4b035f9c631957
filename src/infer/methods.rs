//! Methods of values of which little is known. In: a value, the name of a method, its arguments. Out: what the method gives where only tensors have it, or where
//! another argument carries a type. Never: a guess for names that other things have as well. Next: `ops.rs`.

use super::expr::CallArgs;
use super::machine::Machine;
use super::ops::is_ambiguous;
use super::value::Value;
use crate::ir::StmtId;
use crate::rules::OpClass;
use crate::source::Name;
use crate::types::{LocalType, TensorType, Tri};

impl Machine<'_> {
    /// A method on an unknown value with an identity: of a tensor if only tensors have it.
    pub fn symbol_method(
        &mut self,
        id: StmtId,
        path: &Name,
        name: &Name,
        args: &CallArgs,
    ) -> Option<super::machine::Eval> {
        let known = self.symbol(path).is_some();
        let rule = self.rules.tensor_method(name)?;
        let is_tensors = || self.annotated_tensor(path) || takes_dim(args) || self.casts_input(path, name, args);
        let others_have_it = || is_ambiguous(name) && !is_tensors();
        if !known && (self.settings.is_config(path) || others_have_it() || self.annotated_other(path)) {
            return None;
        }
        let _ = rule;
        let tensor = Value::Tensor(self.as_tensor(&Value::Sym(path.clone()))?);
        Some(super::machine::Eval::One(self.tensor_method(id, &tensor, name, args)))
    }

    /// Whether a forward gives what it is given another precision: nobody does that to a module there, or to a dict.
    fn casts_input(&self, path: &Name, name: &Name, args: &CallArgs) -> bool {
        let Some(root) = self.stack.first().map(|a| self.project.func(a.func)) else { return false };
        let to_dtype = |value: &Value| matches!(value, Value::Path(dtype) if dtype.starts_with("torch."));
        let casts = match name.as_str() {
            "float" | "half" | "bfloat16" => args.args.is_empty(),
            "to" => args.args.iter().any(|a| to_dtype(&a.value)),
            _ => false,
        };
        casts && root.name == "forward" && root.class.is_some() && root.params.iter().skip(1).any(|p| p.name == *path)
    }

    /// A method on a value of which nothing is known: unknown, unless another argument carries a type.
    pub fn method_of_unknown(&mut self, id: StmtId, base: &Value, name: &Name, args: &CallArgs) -> Option<Value> {
        let rule = self.rules.tensor_method(name).cloned()?;
        let typed = args.args.iter().any(|a| matches!(a.value, Value::Tensor(_)));
        if name == "detach" {
            return Some(self.new_tensor(TensorType { grad: Tri::No, ..TensorType::unknown() }));
        }
        if !typed || is_ambiguous(name) || !matches!(rule.class, OpClass::Plain(_)) || rule.tensors.len() < 2 {
            return matches!(rule.class, OpClass::Plain(_)).then_some(Value::Unknown).filter(|_| !is_ambiguous(name));
        }
        Some(self.apply_op(id, &rule, &args.with_first(base.clone())))
    }

    /// Notes whether a tensor requires a gradient from here on.
    pub fn set_grad(&mut self, tensor: &Value, grad: Tri) {
        if let Value::Tensor(id) = tensor
            && let Some(t) = self.w.heap.tensor(*id).cloned()
        {
            self.retype(*id, TensorType { grad, ..t });
        }
    }

    /// `x.set_(y)`: from here on `x` is what `y` is.
    pub fn take_over(&mut self, tensor: &Value, args: &CallArgs) {
        let other = args.get(0, "source").cloned().and_then(|other| self.tensor(&other).cloned());
        if let Value::Tensor(id) = tensor
            && let Some(t) = self.w.heap.tensor(*id).cloned()
        {
            let (local, shape, lost) = match other {
                Some(other) => (other.local, other.shape, other.untracked),
                None => (LocalType::unknown(), None, true),
            };
            self.retype(*id, TensorType { local, shape, untracked: lost, ..t });
        }
    }
}

/// Whether a call names what only reductions of tensors have: `x.max(dim=-1)`.
fn takes_dim(args: &CallArgs) -> bool {
    args.args.iter().any(|a| matches!(a.keyword.as_deref(), Some("dim" | "keepdim")))
}
