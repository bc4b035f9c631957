//! Functions that are entered although nothing typed goes in. In: a function and its arguments. Out: whether its body decides something
//! that others rely on: which way to go, what a constructor keeps or makes. Never: what it makes of typed values. Next: `call.rs`.

use super::expr::CallArgs;
use super::limits::MAX_CHOICE;
use super::machine::Machine;
use super::value::Value;
use crate::ir::{Block, Const, Operand, Stmt};
use crate::project::{FuncRef, ModuleId, Resolved};
use crate::source::Name;

/// The method that a constructor is.
pub(super) const INIT: &str = "__init__";
/// What makes a parameter or a layer.
const MAKES: &[&str] = &["Parameter(", "nn.Linear(", "nn.Embedding("];

impl Machine<'_> {
    /// Whether a function is short enough to be one that asks or chooses (`exists`, `default`), and is given something that it can decide by.
    /// A branch on an answer that is not known is looked through on both sides.
    pub(super) fn chooses(&self, func: FuncRef, args: &CallArgs) -> bool {
        let tells = |v: &Value| matches!(v, Value::Const(Const::None | Const::Bool(_)) | Value::Cond(_));
        args.args.iter().any(|a| tells(&a.value)) && self.project.func(func).code.count() <= MAX_CHOICE
    }

    /// Whether a constructor calls that of a base, or a method, that is short or goes straight on: what it keeps of its arguments
    /// (`self.sp = config.sp`) is what the other methods ask. Or a short function that makes a parameter or a layer. Or whether one
    /// gives the number of ranks, by which something is divided, or the own rank.
    pub(super) fn begins(&self, func: FuncRef) -> bool {
        let callee = self.project.func(func);
        let is_beginning = self.stack.last().is_some_and(|active| self.project.func(active.func).name == INIT);
        let text = || self.files[self.project.file(func.module)].slice(callee.span);
        let makes = || MAKES.iter().any(|made| text().contains(made));
        let gives_class = || returns_any(callee.body(), &|name| self.is_class(func.module, name));
        let is_short = callee.code.count() <= MAX_CHOICE && (callee.class.is_some() || makes() || gives_class());
        let is_straight = || callee.body().iter().all(|node| node.stmt.blocks().next().is_none());
        // A variable of the module that the start of the program sets: `get_tp_size()`.
        let counts = || callee.params.is_empty() && callee.code.count() <= 2 && callee.name.contains("size");
        is_beginning && (is_short || callee.name == INIT && is_straight() || counts())
            || self.settings.relevance.is_getter(func)
    }

    /// Whether a module calls a class by a name.
    fn is_class(&self, module: ModuleId, name: &Name) -> bool {
        matches!(self.project.member(module, name), Some(Resolved::Class(_)))
    }
}

/// Whether a function returns a name of its module of which that holds.
fn returns_any(block: &Block, is: &dyn Fn(&Name) -> bool) -> bool {
    block.iter().any(|node| match &node.stmt {
        Stmt::Return { value: Operand::Global(name) } => is(name),
        other => other.blocks().any(|inner| returns_any(inner, is)),
    })
}
