//! The domain: what the checker knows of a tensor on every mesh axis.
//!
//! In: nothing but `source/`. Out: [`AxisType`] (a set of local SPMD types), [`LocalType`], [`TensorType`], [`AxisSet`], [`Mesh`]
//! and their lattice. Never: rules of operators (those are in `rules/`) or Python values (`infer/`). Next: `axis_type.rs`.

mod axis_type;
mod dist;
mod local_type;
mod mesh;
pub mod mode;
mod origin;
mod scale;
mod shape;
mod tensor;
mod term;

pub use axis_type::{AxisType, Spmd};
pub use dist::{Dist, OnMesh, Stated, state as state_of_placement};
pub use local_type::{AxisState, LocalType, dims_differ};
pub use mesh::{Axis, AxisSet, Mesh};
pub use origin::{Origin, Reason};
pub use scale::{Factor, Monomial, Scale, is_sum};
pub use shape::{Dim, Shape, normalize as normalize_dim};
pub use tensor::{Divided, TensorType, Tri};
pub use term::{Linearity, Reduction, Term};
