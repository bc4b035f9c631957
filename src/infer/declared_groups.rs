//! Calls that the configuration or a directive says are a group. In: a call as it is written, and what it calls. Out: the group. Never: a
//! group that nobody declared. Source: DESIGN.md section 5, order of resolution. Next: `groups.rs`.

use super::machine::Machine;
use super::value::Value;
use crate::ir::{Operand, Stmt, StmtId};
use crate::project::FuncRef;
use crate::source::Name;
use crate::types::AxisSet;

impl Machine<'_> {
    /// `get_group()` by what it calls, by how it is written, or by the variable of its module that it returns.
    pub fn declared_by_call(&self, id: StmtId, callee: &Value) -> Option<Value> {
        if self.settings.groups.is_empty() {
            return None;
        }
        let (path, returned) = match callee {
            Value::Closure(closure) => (Some(self.project.qualified(closure.func)), self.returned_global(closure.func)),
            Value::Path(path) | Value::Sym(path) => (Some(path.clone()), None),
            _ => (None, None),
        };
        let called = path.and_then(|path| self.settings.group_named(&format!("{path}()")));
        let axes = called.or_else(|| self.declared_as_written(id)).or_else(|| self.settings.group_named(&returned?))?;
        Some(Value::Group(axes))
    }

    /// The same of `base.get_group()`.
    pub fn declared_by_method(&mut self, id: StmtId, base: &Value, name: &Name) -> Option<Value> {
        if self.settings.groups.is_empty() {
            return None;
        }
        match self.attr_quietly(base, name) {
            Value::Unknown => self.declared_as_written(id).map(Value::Group),
            found => self.declared_by_call(id, &found),
        }
    }

    fn declared_as_written(&self, id: StmtId) -> Option<AxisSet> {
        let place = self.place(id);
        let text: String = self.files[place.file].slice(place.span).chars().filter(|c| !c.is_whitespace()).collect();
        self.settings.group_named(&text)
    }

    /// The variable of its module that a function returns on every way, if it does nothing else.
    fn returned_global(&self, func: FuncRef) -> Option<Name> {
        let mut returned = None;
        for node in self.project.func(func).body() {
            match &node.stmt {
                Stmt::Return { value: Operand::Global(name) } => returned = Some(name.clone()),
                Stmt::Return { .. } => return None,
                stmt if stmt.blocks().next().is_some() => return None,
                _ => {}
            }
        }
        returned
    }
}
