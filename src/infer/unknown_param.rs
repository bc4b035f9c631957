//! What a parameter of a root is, of which nothing but its name and its annotation is known. In: the parameter. Out: a value. Never: a
//! tensor where an annotation says that it is none. Next: `unseen.rs`, for modules, and `root.rs`.

use super::machine::Machine;
use super::value::Value;
use crate::ir::{Param, ParamKind};
use crate::project::{ClassRef, ModuleId};
use crate::rules::LayerRule;
use std::sync::Arc;

/// Python annotations of parameters that are no tensors.
const OTHER_HINTS: &[&str] = &[
    "int",
    "bool",
    "str",
    "float",
    "Optional[int]",
    "Optional[bool]",
    "Optional[str]",
    "Optional[float]",
    "dict",
    "Dict",
    "Callable",
];

/// Classes of plain tensors, as annotations name them.
const TENSOR_HINTS: &[&str] = &[
    "Tensor",
    "FloatTensor",
    "HalfTensor",
    "BFloat16Tensor",
    "DoubleTensor",
    "LongTensor",
    "IntTensor",
    "ShortTensor",
    "ByteTensor",
    "BoolTensor",
];

/// What the Python annotation of a parameter says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Annotated {
    Tensor,
    /// Something else: a number, a text, a container.
    Other,
    /// An object of a class of the project, or of one that does what the class asks for.
    Object(ClassRef),
}

impl Machine<'_> {
    /// Notes what a parameter is by its annotation.
    pub fn note_hint(&mut self, at: ModuleId, param: &Param) {
        let hint = param.hint.as_deref().unwrap_or("");
        let bare = hint.split('|').next().unwrap_or(hint);
        if OTHER_HINTS.contains(&hint)
            || OTHER_HINTS.contains(&bare)
            || param.hint.is_none() && self.has_number(at, param)
        {
            self.annotated.insert(param.name.clone(), Annotated::Other);
        } else if is_tensor(hint) {
            self.annotated.insert(param.name.clone(), Annotated::Tensor);
        } else {
            self.note_object(at, param, &Value::Sym(param.name.clone()));
        }
    }

    /// Whether the default of a parameter is a number that is written out with a fraction: `temperature=1.0`.
    fn has_number(&self, at: ModuleId, param: &Param) -> bool {
        let text = self.files[self.project.file(at)].whole();
        let from = text.get(param.span.start as usize..).unwrap_or_default();
        let name = param.name.rsplit('.').next().unwrap_or_default();
        let given = from.strip_prefix(name).and_then(|rest| rest.trim_start().strip_prefix('='));
        let Some(rest) = given.filter(|_| param.has_default) else { return false };
        let number = rest.split([',', ')', '\n']).next().unwrap_or_default().trim();
        number.contains(['.', 'e']) && number.parse::<f64>().is_ok()
    }

    pub(super) fn unknown_param(&mut self, param: &Param) -> Value {
        if let Some(module) = self.stack.last().map(|active| active.func.module) {
            self.note_hint(module, param);
        }
        if let Some(number) = self.beside_group(&param.name) {
            return number;
        }
        match param.kind {
            ParamKind::VarArgs | ParamKind::KwArgs => Value::Unknown,
            _ => match (self.settings.group_named(&param.name), self.hinted_layer(param.hint.as_deref().unwrap_or("")))
            {
                (Some(axes), _) => Value::Group(axes),
                (None, Some(rule)) => self.unseen_layer(&rule, &param.name),
                (None, None) => self.unseen_object(param).unwrap_or_else(|| Value::Sym(param.name.clone())),
            },
        }
    }

    /// The layer that the annotation of a parameter names.
    fn hinted_layer(&self, hint: &str) -> Option<Arc<LayerRule>> {
        let module = self.stack.last()?.func.module;
        let path = super::practice::expr::path_of_hint(self.project, module, hint)?;
        self.rules.layer(&path).cloned()
    }
}

/// Whether an annotation names a plain tensor, or one or nothing: `torch.Tensor`, `Optional[Tensor]`, `torch.LongTensor | None`.
pub fn is_tensor(hint: &str) -> bool {
    let bare = hint.trim_matches(['"', '\'']);
    let bare = bare.strip_suffix("|None").or_else(|| bare.strip_suffix("| None")).unwrap_or(bare).trim();
    let inner = bare.split_once("Optional[").and_then(|(_, rest)| rest.strip_suffix(']')).unwrap_or(bare);
    let name = inner.rsplit('.').next().unwrap_or(inner);
    TENSOR_HINTS.contains(&name)
}
