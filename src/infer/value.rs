//! Abstract Python values. In: nothing. Out: [`Value`], what a variable may hold. Never: contents of mutable objects, which live in
//! the heap by id (`heap.rs`) so that aliases see each other's changes. Next: `heap.rs`.

use super::declared::layout::DeclaredLayout;
use super::formula::Formula;
use crate::ir::Const;
use crate::ir::annotation::Atom;
use crate::plan::Written;
use crate::project::{ClassRef, FuncRef, ModuleId};
use crate::source::Name;
use crate::types::{Axis, AxisSet, LocalType, Mesh};
use std::sync::Arc;

crate::define_id!(
    /// A mutable object, tensor or captured variable in the heap of a world.
    ObjId
);

/// What a variable may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Not assigned on this path.
    Unset,
    Unknown,
    /// Not known, but the same thing wherever the path occurs: a parameter of a root, an attribute of one.
    Sym(Name),
    Const(Const),
    /// A Python number that is no constant; `None`: equal on all ranks, else its type.
    Number(Option<Arc<LocalType>>),
    Tensor(ObjId),
    Tuple(Arc<[Value]>),
    List(ObjId),
    Dict(ObjId),
    Object(ObjId),
    Slice(Arc<[Value; 3]>),
    Closure(Arc<Closure>),
    /// A method with its receiver.
    Bound(Arc<Bound>),
    /// `functools.partial`.
    Partial(Arc<PartialApp>),
    Class(ClassRef),
    /// Something outside the project, by qualified path; builtins are `builtins.len`.
    Path(Name),
    Module(ModuleId),
    /// A folder of modules, by dotted name.
    Package(Name),
    Mesh(Arc<Mesh>),
    Group(AxisSet),
    /// The number of ranks of a group.
    Size(AxisSet),
    /// A size divided by the number of ranks of a group.
    Share(AxisSet),
    /// The rank within a group.
    Rank(AxisSet),
    /// Where the own range of a rank begins or ends.
    Edge(AxisSet),
    /// `R`, `I`, `V`, `P`, `S(i)` of spmd_types.
    Atom(Atom),
    /// A partition spec: the axes over which each dim is split.
    Spec(Arc<Vec<Vec<Axis>>>),
    Context(Arc<Context>),
    /// A boolean over flags.
    Cond(Arc<Formula>),
    /// A boolean that differs between the ranks of these axes.
    RankCond(AxisSet),
    /// `super()` in a method: the receiver, and the class after which lookup starts.
    Super(Arc<(Value, ClassRef)>),
    /// How a distributed tensor lies on one mesh dim.
    Placement(Arc<Written>),
    /// What a tensor is declared to be on each axis.
    Layout(Arc<DeclaredLayout>),
    /// A reduction operator, by its name.
    ReduceOp(Name),
}

// Worlds copy frames of values whenever they part.
const _: () = assert!(size_of::<Value>() <= 32);

/// A function with what it captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closure {
    pub func: FuncRef,
    /// Cells of the captured variables, in the order of `Func::captures`.
    pub cells: Vec<ObjId>,
    /// Default values by parameter index.
    pub defaults: Vec<(u32, Value)>,
    pub flavour: Flavour,
    /// The types that a decorator declares at its ends.
    pub boundary: Option<Arc<Boundary>>,
}

/// What `local_map` declares of a function: the types of its positional arguments, and of what it returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary {
    pub takes: Option<Value>,
    pub gives: Value,
}

/// How a function found in a class binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    Plain,
    Static,
    ClassMethod,
    Property,
    /// The body runs without gradients (`@torch.no_grad()`).
    NoGrad,
    /// The body runs unchecked (`@no_typecheck`).
    NoTypecheck,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    pub receiver: Value,
    pub method: Method,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    Closure(Arc<Closure>),
    /// A method of a tensor, list, dict, mesh or unknown receiver, by name.
    Named(Name),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialApp {
    pub callee: Value,
    pub args: Vec<Value>,
    pub keywords: Vec<(Name, Value)>,
}

/// A context manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Context {
    Typecheck {
        strict: Option<bool>,
        local: Option<bool>,
    },
    NoTypecheck,
    /// Partition specs are not followed (`spmd_types.local()`).
    Local,
    /// A decorator with types (`spmd_types.local_map(...)`).
    Boundary(Arc<Boundary>),
    Mesh(Arc<Mesh>),
    Grad(bool),
    /// No effect on types.
    Null,
}

impl Value {
    pub const NONE: Value = Value::Const(Const::None);
    pub const TRUE: Value = Value::Const(Const::Bool(true));
    pub const FALSE: Value = Value::Const(Const::Bool(false));

    /// The types that a decorator declares.
    pub fn as_boundary(&self) -> Option<&Arc<Boundary>> {
        match self {
            Value::Context(context) => match context.as_ref() {
                Context::Boundary(boundary) => Some(boundary),
                _ => None,
            },
            _ => None,
        }
    }

    pub fn int(n: i64) -> Value {
        Value::Const(Const::Int(n))
    }
    pub fn str(s: impl Into<Name>) -> Value {
        Value::Const(Const::Str(s.into()))
    }
    pub fn tuple(items: Vec<Value>) -> Value {
        Value::Tuple(items.into())
    }
    pub fn is_none(&self) -> bool {
        matches!(self, Value::Const(Const::None))
    }
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Const(Const::Int(n)) => Some(*n),
            _ => None,
        }
    }
    pub fn as_str(&self) -> Option<&Name> {
        match self {
            Value::Const(Const::Str(s)) => Some(s),
            _ => None,
        }
    }
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Const(Const::Bool(b)) => Some(*b),
            _ => None,
        }
    }
    /// A number of Python, constant or not.
    pub fn is_number(&self) -> bool {
        matches!(
            self,
            Value::Const(Const::Int(_) | Const::Float(_) | Const::Bool(_))
                | Value::Number(_)
                | Value::Size(_)
                | Value::Share(_)
                | Value::Rank(_)
                | Value::Edge(_)
                | Value::RankCond(_)
        )
    }
    /// Whether nothing is known, not even identity.
    pub fn is_opaque(&self) -> bool {
        matches!(self, Value::Unknown | Value::Unset)
    }
}
