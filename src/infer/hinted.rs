//! Methods of objects that nobody makes in sight: those of the class that an annotation names, or of the one class that stands behind an
//! interface. In: an unknown value with an identity and the name of a method. Out: the method, with the value as its receiver. Never: a class
//! that is one of several; a module, whose construction `unseen.rs` follows; a method that communicates nothing. Next: `call.rs`.

use super::callers::tries;
use super::expr::CallArgs;
use super::machine::{Eval, Machine};
use super::unknown_param::Annotated;
use super::value::{Bound, Closure, Flavour, Method, Value};
use crate::ir::{Param, StmtId};
use crate::project::{ClassRef, FuncRef, ModuleId};
use crate::source::Name;
use std::sync::Arc;

/// Bases outside the project that bring no methods of their own.
const BARE: &[&str] = &["Protocol", "ABC", "Generic", "object", "NamedTuple"];

/// What classes are called that stand for a group of one rank, or for none at all.
const ALONE: &[&str] = &["null", "noop", "dummy", "fake", "mock", "single", "serial", "identity", "trivial", "stub"];

impl Machine<'_> {
    /// The class whose methods a value has by its annotation: nothing but the name of the class, or of the class or nothing.
    pub(super) fn class_by_hint(&self, module: ModuleId, hint: &str) -> Option<ClassRef> {
        let class = super::unseen::hinted_class(self.project, module, or_nothing(hint))?;
        let mut bases = self.settings.statics.external_bases(class);
        let bare = |base: &Name| BARE.contains(&base.rsplit('.').next().unwrap_or(base));
        bases.all(bare).then_some(class)
    }

    /// Notes what the annotation of a parameter says of the unknown value that it is given.
    pub(super) fn note_object(&mut self, module: ModuleId, param: &Param, value: &Value) {
        let (Value::Sym(path), Some(hint)) = (value, param.hint.as_deref()) else { return };
        if self.annotated.contains_key(path) || self.symbol(path).is_some() {
            return;
        }
        if let Some(class) = self.class_by_hint(module, hint) {
            self.annotated.insert(path.clone(), Annotated::Object(class));
        }
    }

    /// A method of an unknown value of which something tells what it is: an annotation its class, or how it is used that it is a mesh.
    pub(super) fn called_by_hint(&mut self, id: StmtId, path: &Name, name: &Name, args: &CallArgs) -> Option<Eval> {
        match self.method_by_hint(path, name) {
            Some(callee) => Some(self.call(id, &callee, args)),
            None => self.unknown_mesh_method(path, name, args).map(Eval::One),
        }
    }

    /// A method of an unknown value of which an annotation names the class, if it communicates.
    fn method_by_hint(&mut self, path: &Name, name: &Name) -> Option<Value> {
        let Some(Annotated::Object(class)) = self.annotated.get(path) else { return None };
        let closure = self.only_method(*class, name)?;
        let communicates = self.settings.relevance.contains(closure.func);
        let method = Method::Closure(closure);
        communicates.then(|| Value::Bound(Arc::new(Bound { receiver: Value::Sym(path.clone()), method })))
    }

    /// The method of a name that every object of a class has which runs on several ranks, if that is one.
    fn only_method(&self, class: ClassRef, name: &Name) -> Option<Arc<Closure>> {
        let statics = &self.settings.statics;
        let mut found: Option<Arc<Closure>> = None;
        for at in statics.stands_for(class)? {
            if *at != class && self.is_aside(*at) {
                continue;
            }
            let order = statics.linearized(*at);
            let member =
                order.iter().find_map(|base| self.settings.class_member(self.project, self.rules, *base, name));
            let Some(Value::Closure(closure)) = member else { return None };
            if self.is_left_open(closure.func) {
                continue;
            }
            if closure.flavour != Flavour::Plain || found.as_ref().is_some_and(|known| known.func != closure.func) {
                return None;
            }
            found = Some(closure);
        }
        found
    }

    /// Whether a class is that of a test, or of a program on one rank.
    fn is_aside(&self, class: ClassRef) -> bool {
        let name = self.project.class(class).name.to_lowercase();
        ALONE.iter().any(|word| name.contains(word)) || tries(self.project, self.files, class.module)
    }

    /// Whether a method says nothing: another class has it.
    fn is_left_open(&self, at: FuncRef) -> bool {
        let func = self.project.func(at);
        func.ends_in_raise || func.code.count() == 0
    }
}

/// An annotation without what says that there may be nothing, and without quotes.
fn or_nothing(hint: &str) -> &str {
    let bare = hint.trim_matches(['"', '\'']).trim();
    let bare = bare.strip_suffix("None").map_or(bare, |rest| rest.trim_end().strip_suffix('|').unwrap_or(bare)).trim();
    bare.split_once("Optional[").and_then(|(_, rest)| rest.strip_suffix(']')).unwrap_or(bare)
}
