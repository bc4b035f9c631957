//! What the checks of sharding annotations find, as data. In: nothing. Out: [`Sharding`], a variant for each kind of mistake.
//! Never: prose. Next: `diagnostics/words/sharding.rs`.

use crate::source::{Name, Place};

/// One mistake about a mesh of devices or an annotation. Numbers of devices are as written: `8`, or `2n` where it is not known.
#[derive(Clone, Debug, PartialEq)]
pub enum Sharding {
    /// The devices of a mesh.
    Devices(Devices),
    /// The names of the axes of a mesh.
    Names(Names),
    /// A spec with another number of entries than the tensor has dims.
    Length { given: usize, rank: usize, made: Option<Place> },
    /// An entry of a spec that cannot be.
    Entry { entry: Entry, mesh: Option<Place> },
    /// A mesh axis is used for two entries of a spec.
    Twice { axis: Name },
    /// A wrapper that cannot be made.
    Wrapper(Wrapper),
    /// No spec of the program uses an axis of a mesh.
    Unused { axis: Name, size: Name },
    /// A dim does not divide by the number of devices that it is split over.
    Uneven { dim: usize, size: i64, parts: i64, axes: Vec<Name> },
    /// Two annotations of one tensor.
    Disagree { first: Place, before: Name, after: Name },
    /// Annotations without the mode that they need: never, or after the first tensor on a device.
    Mode { tensor: Option<Place> },
    /// A collective of processes on an annotated tensor.
    Mixed { collective: Name, annotated: Place },
    /// Manual sharding that is not left.
    Unbalanced,
    /// Manual sharding that is left and was not entered.
    NotManual { made: Place },
    /// An activation whose gradient is not annotated, where the differentiable form is imported.
    ForwardOnly { differentiable: Name, imported: Place },
}

impl Sharding {
    /// Whether the library stops the program.
    pub fn stops(&self) -> bool {
        matches!(
            self,
            Sharding::Devices(_)
                | Sharding::Names(_)
                | Sharding::Length { .. }
                | Sharding::Entry { .. }
                | Sharding::Twice { .. }
                | Sharding::Wrapper(_)
        )
    }
}

/// Mistakes about the devices of a mesh.
#[derive(Clone, Debug, PartialEq)]
pub enum Devices {
    /// Ids and devices that there are.
    Count { ids: Name, devices: Name },
    /// Ids, and the product of the shape.
    Size { ids: Name, size: Name },
    /// The same id twice.
    Twice { id: i64 },
    /// An id that no device has.
    Beyond { id: i64, size: i64 },
    /// Shapes of the inner and the outer mesh of different lengths.
    Outer { inner: usize, outer: usize },
}

/// Mistakes about the names of the axes of a mesh.
#[derive(Clone, Debug, PartialEq)]
pub enum Names {
    Count { names: usize, dims: usize },
    Twice { axis: Name },
}

/// Entries of a spec that cannot be.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A name, and the names that there are.
    Unknown { axis: Name, axes: Vec<Name> },
    /// A name for a mesh without names.
    Unnamed { axis: Name },
    /// A number, and how many axes there are.
    Index { index: i64, dims: usize },
    /// A list, which has no hash.
    List,
    /// A tuple inside a tuple.
    Nested,
    /// Something that is no name, number, tuple or None.
    Type,
}

/// Wrappers that cannot be made.
#[derive(Clone, Debug, PartialEq)]
pub enum Wrapper {
    /// The mesh has no axis of this name.
    Axis { axis: Name, axes: Vec<Name>, mesh: Option<Place> },
    /// No mesh was given or set.
    NoMesh,
    /// The module is wrapped already.
    Again { first: Place },
}
