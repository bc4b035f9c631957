//! Values of programs that annotate tensors: numbers, sequences, meshes, tensors by identity. In: nothing. Out: [`Val`].
//! Never: execution. What is not a constant is [`Val::Unknown`]. Next: `state.rs`.

use crate::ir::Const;
use crate::project::{ClassRef, FuncRef};
use crate::source::{Name, Place};
use std::sync::Arc;

/// A tensor, layer, object or mesh of one run.
pub type Id = u32;

#[derive(Clone, Debug, PartialEq)]
pub enum Val {
    Unknown,
    Const(Const),
    /// A multiple of the number of devices, which is not known.
    Devices(i64),
    Tuple(Arc<[Val]>),
    List(Arc<[Val]>),
    /// Numbers of devices, in an array or a range.
    Ids(Ids),
    /// Something outside the project.
    Path(Name),
    Module(Name),
    Func(FuncRef),
    Class(ClassRef),
    /// A method with its object.
    Bound(Id, FuncRef),
    Mesh(Arc<Mesh>),
    Tensor(Id),
    /// The sizes of a tensor of which the rank is not known.
    Sizes(Id),
    /// A module of torch, by its constructor.
    Layer(Id),
    /// An instance of a class of the project.
    Object(Id),
    /// The device of annotated tensors.
    Device,
    /// A module that is wrapped: where.
    Wrapped(Place),
}

/// Numbers in a sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum Ids {
    Listed(Arc<[i64]>),
    /// From 0 up to a multiple of the number of devices.
    First(i64),
}

/// A mesh of devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Mesh {
    pub id: Id,
    pub made: Place,
    /// Sizes of the axes; `None`: their number is not known.
    pub shape: Option<Vec<Val>>,
    pub names: AxisNames,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AxisNames {
    Unknown,
    Without,
    Known(Vec<Name>),
}

impl Mesh {
    pub fn dims(&self) -> Option<usize> {
        match (&self.shape, &self.names) {
            (Some(shape), _) => Some(shape.len()),
            (None, AxisNames::Known(names)) => Some(names.len()),
            _ => None,
        }
    }

    pub fn size(&self, axis: usize) -> Option<i64> {
        self.shape.as_ref()?.get(axis)?.int()
    }

    /// The name of an axis, or its index.
    pub fn axis(&self, axis: usize) -> Name {
        match &self.names {
            AxisNames::Known(names) => names.get(axis).cloned(),
            _ => None,
        }
        .unwrap_or_else(|| Name::from(axis.to_string()))
    }
}

/// A tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub made: Place,
    /// `None`: the rank is not known.
    pub shape: Option<Vec<Option<i64>>>,
    pub note: Note,
    /// Whether it is known how it came about, so that it is not manually sharded unless it says so.
    pub manual: Manual,
}

/// The annotation of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    Without,
    Unknown,
    /// Where, in which mesh, and the axes of each dim.
    Known {
        place: Place,
        mesh: Id,
        dims: Vec<Vec<usize>>,
        text: Name,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manual {
    Yes,
    No,
    Unknown,
}

impl Val {
    pub const NONE: Val = Val::Const(Const::None);

    pub fn number(n: i64) -> Val {
        Val::Const(Const::Int(n))
    }
    pub fn int(&self) -> Option<i64> {
        match self {
            Val::Const(Const::Int(n)) => Some(*n),
            _ => None,
        }
    }
    pub fn string(&self) -> Option<&Name> {
        match self {
            Val::Const(Const::Str(text)) => Some(text),
            _ => None,
        }
    }
    pub fn is_none(&self) -> bool {
        matches!(self, Val::Const(Const::None))
    }
    /// The items of a tuple, a list or an array that is known.
    pub fn items(&self) -> Option<Vec<Val>> {
        match self {
            Val::Tuple(items) | Val::List(items) => Some(items.to_vec()),
            Val::Ids(Ids::Listed(ids)) => Some(ids.iter().map(|i| Val::number(*i)).collect()),
            _ => None,
        }
    }
}

impl Ids {
    /// How many, as a value.
    pub fn len(&self) -> Val {
        match self {
            Ids::Listed(ids) => i64::try_from(ids.len()).map_or(Val::Unknown, Val::number),
            Ids::First(times) => Val::Devices(*times),
        }
    }
}
