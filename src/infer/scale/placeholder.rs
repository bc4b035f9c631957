//! Values that hold the place of another one. In: a number, or nothing, that a module, a class or a mapping gives a name at first. Out: the name, where a
//! function sets it again: `WORLD = 1`, which is the number of ranks once processes are there. Never: a value that nothing sets again.
//! Next: `eval.rs`.

use super::Run;
use super::value::{State, Val};
use crate::ir::Const;
use crate::source::Name;

/// How a name is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Of a module.
    Global,
    /// `object.name`
    Attribute,
    /// `mapping["name"]`
    Item,
}

/// Whether an entry of a list stands there for one that is put in its place: no code reads `None` out of `[None] * n`.
pub fn holds_place(entry: &Val) -> bool {
    *entry == Val::Const(Const::None)
}

impl Run<'_> {
    /// The value of a name, or the name itself where the value only holds its place: one process, as long as nothing has asked how many.
    pub fn unless_set_again(&self, value: Val, name: &Name, read: Read, state: &State) -> Val {
        // A group of the module that a function makes is no group of all ranks before.
        let is_empty = value == Val::Const(Const::None) && read == Read::Global;
        let is_one = match &value {
            Val::Const(Const::Int(number)) => *number == 1,
            Val::Const(Const::Float(bits)) => f64::from_bits(*bits) == 1.0,
            _ => false,
        };
        if !is_one && !is_empty {
            return value;
        }
        let Some(at) = state.frames.last().map(|f| f.at) else { return value };
        let text = self.files[self.project.file(at.module)].whole();
        let again = match read {
            Read::Global => is_declared(text, name),
            Read::Attribute => assignments(text, &format!(".{name}")) > 1,
            Read::Item => assignments(text, &format!("[\"{name}\"]")) + assignments(text, &format!("['{name}']")) > 0,
        };
        if again { self.sized(Val::Named(name.clone())) } else { value }
    }
}

/// Whether a function declares a name as one of the module.
fn is_declared(text: &str, name: &str) -> bool {
    text.lines().filter_map(|line| line.trim_start().strip_prefix("global ")).any(|names| {
        let names = names.split('#').next().unwrap_or(names);
        names.split(',').any(|one| one.trim() == name)
    })
}

/// How often a text assigns to what ends so.
fn assignments(text: &str, target: &str) -> usize {
    let assigns = |(at, found): &(usize, &str)| {
        let rest = text[at + found.len()..].trim_start_matches([' ', '\t']);
        rest.starts_with('=') && !rest.starts_with("==")
    };
    text.match_indices(target).filter(assigns).count()
}
