//! The type of a custom autograd function, derived from its own forward and backward. In: the project. Out: for every class its
//! signatures by configuration. Never: names of frameworks. Source: DESIGN.md section 6.
//!
//! `symbols.rs` names what nothing resolves; `terms.rs` follows tensors as terms while the bodies run; `blind.rs` knows bodies that no
//! term leads through; `numeric.rs` decides by the definition which signatures a chain of collectives has; `meaning.rs` does so for bodies with local mathematics; `derive.rs` puts them together; `apply.rs` uses the result.

mod apply;
mod blind;
mod count;
mod decide;
mod derive;
mod fused;
mod layout;
mod meaning;
mod numeric;
mod symbols;
mod terms;

pub use apply::{Asked, Remembered, shown_dim};
pub use derive::{CONTEXT, Case, Derived, Signature, Trouble};
pub use terms::{Deriving, Gap};
