//! Wrappers of the project's own for data-parallel training: a module that keeps the one it is given, calls it in its forward, and reduces its
//! gradients in a method or a hook. In: classes and objects of them. Out: the module that such an object keeps. Never: a module whose forward
//! does anything else. Next: `calls.rs`, which makes the object; `methods.rs`, which asks the inner module for what the object has not.

use super::Run;
use super::value::{ModId, State, Val};
use crate::ir::{Operand, Rvalue, Stmt};
use crate::project::{ClassRef, Project};
use crate::source::Name;

/// Methods of all modules that give the module itself.
const SELF: &[&str] = &["to", "cuda", "train", "eval", "half", "bfloat16", "float"];

/// What reduces.
const REDUCES: &[&str] = &["all_reduce", "reduce_scatter"];

/// What may divide a gradient behind the wrapper, and updates that do not depend on its scale.
const UNDONE: &[&str] = &[
    "step_pre_hook",
    "full_backward",
    "divisor",
    "_foreach_div",
    ".sign(",
    "sign_(",
    "trust_ratio",
    "uon(",
    "normalize(",
    ".norm()",
];

/// The attribute in which a class keeps the module that its constructor is given and that its forward calls, and does nothing else.
pub fn kept(project: &Project, class: ClassRef) -> Option<Name> {
    let forward = project.func(project.own_method(class, "forward")?);
    let own = forward.params.first()?.local;
    let [.., before, last] = &**forward.body() else { return None };
    let (Stmt::Return { value: Operand::Local(result) }, Stmt::Assign { dst, value }) = (&last.stmt, &before.stmt)
    else {
        return None;
    };
    let Rvalue::CallMethod { base: Operand::Local(base), name, .. } = value else { return None };
    if dst != result || *base != own {
        return None;
    }
    let init = project.func(project.own_method(class, "__init__")?);
    let given = |value: &Operand| matches!(value, Operand::Local(l) if init.params.iter().any(|p| p.local == *l));
    let keeps = |stmt: &Stmt| matches!(stmt, Stmt::SetAttr { name: attr, value, .. } if attr == name && given(value));
    init.body().iter().any(|node| keeps(&node.stmt)).then(|| name.clone())
}

impl Run<'_> {
    /// The attribute in which objects of a module's class keep the module that they wrap.
    pub fn wraps(&self, class: ClassRef) -> Option<Name> {
        let text = self.files[self.project.file(class.module)].slice(self.project.class(class).span);
        if !text.contains("grad") || !REDUCES.iter().any(|word| text.contains(word)) {
            return None;
        }
        let name = kept(self.project, class)?;
        // Elsewhere the factor may be undone, or may not matter; which files say so is looked for once in a run.
        let undone = || UNDONE.iter().any(|word| self.files.saying(word).next().is_some());
        (!undone()).then_some(name)
    }

    /// The module that an object wraps.
    pub fn inner_of(&self, object: usize, state: &mut State) -> Option<ModId> {
        let class = state.objects.get(object)?.class?;
        let attr = self.wraps(class).filter(|_| self.is_module_class(class))?;
        match self.attribute(object, &attr, state)?.clone() {
            Val::Module(module) => Some(module),
            Val::Named(text) => Some(state.module(&text)),
            _ => None,
        }
    }

    /// What a wrapper is asked that it has not itself: itself again, or the module that answers.
    pub fn asked_wrapper(&self, object: usize, method: &str, state: &mut State) -> Option<Val> {
        let of_loss = state.objects.get(object)?.class.is_some_and(|class| self.is_loss(class));
        if of_loss && SELF.contains(&method) {
            return Some(Val::Object(object));
        }
        let inner = self.inner_of(object, state)?;
        Some(if SELF.contains(&method) { Val::Object(object) } else { Val::Module(inner) })
    }
}
