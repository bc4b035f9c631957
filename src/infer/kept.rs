//! What an object holds between the calls of its methods. In: an object as its constructor leaves it. Out: the same, without what the
//! constructor only begins: flags that other functions set, empty containers that they fill. Never: tensors, see `heap.rs`. Next: `root.rs`.

use super::heap::Cell;
use super::limits::MAX_SET_FLAGS;
use super::machine::Machine;
use super::places::starts;
use super::value::Value;
use super::world::World;
use crate::ir::{Const, FuncKind};
use crate::project::{ClassRef, FuncRef};
use crate::source::Name;

impl Machine<'_> {
    /// Names the groups of an object, and forgets what a method may find changed.
    pub fn begun(&self, class: ClassRef, object: &Value, world: &mut World) {
        self.name_groups(object, world);
        let Value::Object(id) = object else { return };
        let Some(cell) = world.heap.object(*id) else { return };
        let (mut flags, mut containers) = (Vec::new(), Vec::new());
        for (name, value) in &cell.attrs {
            match value {
                Value::Const(Const::Bool(_)) => flags.push(name.clone()),
                Value::Const(Const::None) if self.settings.is_group_name(name) => flags.push(name.clone()),
                Value::List(at) | Value::Dict(at) => containers.push(*at),
                _ => {}
            }
        }
        // Where no method communicates, few flags decide whether anything does.
        let methods = &self.project.class(class).methods;
        let communicates = |func| self.settings.relevance.tells(FuncRef { module: class.module, func });
        if !flags.is_empty() && !methods.iter().any(|(_, func)| communicates(*func)) {
            flags.clear();
        }
        if flags.len() > MAX_SET_FLAGS {
            flags.clear();
        }
        flags.retain(|name| self.sets_elsewhere(class, name));
        // What sets one of several flags may set another as well: their values hang together.
        let is_bool = |name: &Name| matches!(cell.get(name), Some(Value::Const(Const::Bool(_))));
        if flags.iter().filter(|name| is_bool(name)).count() > 1 {
            flags.retain(|name| !is_bool(name));
        }
        if !flags.is_empty() {
            let mut cell = cell.clone();
            for name in flags {
                let is_flag = matches!(cell.get(&name), Some(Value::Const(Const::Bool(_))));
                let path = Name::from(format!("{}.{name}", cell.path));
                cell.set(&name, if is_flag { Value::Sym(path) } else { Value::Unknown });
            }
            world.heap.insert(*id, Cell::Object(cell));
        }
        for at in containers {
            match world.heap.get_mut(at) {
                Some(Cell::List(list)) if list.items.is_empty() && list.rest.is_none() => {
                    list.rest = Some(Value::Unknown);
                }
                Some(Cell::Dict(dict)) if dict.entries.is_empty() && !dict.is_open() => dict.open(),
                _ => {}
            }
        }
    }

    /// Whether a function of the module of a class, no constructor, sets an attribute of this name.
    pub(super) fn sets_elsewhere(&self, class: ClassRef, name: &Name) -> bool {
        let m = &self.project.modules[class.module];
        let file = &self.files[m.file];
        let written: Vec<u32> = starts(file.whole(), &format!(".{name} = ")).map(|at| at as u32).collect();
        let mut is_free = vec![true; written.len()];
        for f in m.ir.funcs.iter().filter(|f| !written.is_empty() && f.kind == FuncKind::Function) {
            let first = written.partition_point(|at| *at < f.span.start);
            let inside = written[first..].iter().take_while(|at| f.span.contains(**at)).count();
            // What an autograd function keeps, its context has: `ctx.group = group`.
            let of_context =
                || f.class.is_some_and(|at| self.is_autograd_function(ClassRef { module: class.module, class: at }));
            if inside > 0 && f.name != "__init__" && !of_context() {
                return true;
            }
            is_free[first..first + inside].fill(false);
        }
        is_free.contains(&true)
    }
}
