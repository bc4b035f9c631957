//! The project: modules by dotted name, and how a name of one module leads to a definition in another.
//!
//! In: lowered files and their paths. Out: [`Project`], with modules, bindings and paths. Never: executing code or typing.
//! Next: `modules.rs`, then `infer/`.

mod modules;
mod resolve;

pub use modules::{Module, ModuleId, Modules, Project};
pub use resolve::{Binding, Resolved};

use crate::ir::{ClassId, FuncId};

/// A function of the project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FuncRef {
    pub module: ModuleId,
    pub func: FuncId,
}

/// A class of the project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassRef {
    pub module: ModuleId,
    pub class: ClassId,
}
