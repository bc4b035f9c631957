//! What an object holds between the calls of its methods. In: an object as its constructor leaves it. Out: the same, without what the
//! constructor only begins: flags that other functions set, empty containers that they fill. Never: tensors, see `heap.rs`. Next: `root.rs`.

use super::heap::Cell;
use super::machine::Machine;
use super::value::Value;
use super::world::World;
use crate::ir::{Block, Const, FuncKind, Stmt};
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
        flags.retain(|name| self.sets_elsewhere(class, name));
        if !flags.is_empty() {
            let mut cell = cell.clone();
            for name in flags {
                let path = Name::from(format!("{}.{name}", cell.path));
                cell.set(&name, Value::Sym(path));
            }
            world.heap.insert(*id, Cell::Object(cell));
        }
        for at in containers {
            match world.heap.get_mut(at) {
                Some(Cell::List(list)) if list.items.is_empty() && list.rest.is_none() => {
                    list.rest = Some(Value::Unknown);
                }
                Some(Cell::Dict(dict)) if dict.entries.is_empty() => dict.open = true,
                _ => {}
            }
        }
    }

    /// Whether a function of the module of a class, no constructor, sets an attribute of this name.
    fn sets_elsewhere(&self, class: ClassRef, name: &Name) -> bool {
        let m = &self.project.modules[class.module];
        let file = &self.files[m.file];
        let written = format!(".{name} = ");
        let mut lines = file.whole().match_indices(&written).map(|(at, _)| at);
        if lines.nth(1).is_none() {
            return false;
        }
        // The text tells enough of a function; that of a module has all others in it.
        m.ir.funcs.iter().any(|f| match f.kind {
            FuncKind::Module => sets(f.body(), name),
            FuncKind::Function => f.name != "__init__" && file.slice(f.span).contains(&written),
            FuncKind::ClassBody | FuncKind::Lambda => false,
        })
    }
}

fn sets(block: &Block, attribute: &Name) -> bool {
    block.iter().any(|node| {
        matches!(&node.stmt, Stmt::SetAttr { name, .. } if name == attribute)
            || node.stmt.blocks().any(|inner| sets(inner, attribute))
    })
}
