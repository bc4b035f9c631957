//! The type of a custom autograd function, derived from its own forward and backward. In: the project. Out: for every class its
//! signatures by configuration. Never: names of frameworks. Source: DESIGN.md section 6.
//!
//! `symbols.rs` names what nothing resolves; `terms.rs` follows tensors as terms while the bodies run; `blind.rs` knows bodies that no
//! term leads through; `numeric.rs` decides by the definition which signatures a chain of collectives has; `meaning.rs` does so for
//! bodies with local mathematics, `outputs.rs` where there are several results; `derive.rs` puts them together; `apply.rs` uses the result; `wrapper.rs` derives functions that apply a
//! class, `written.rs` follows those without collectives. `order.rs` and `layout.rs` look at products beside exchanges, `fixed.rs` at parts; `declared.rs`, `claims.rs`, `misplaced.rs`, `twice.rs` compare with
//! what code says of it; `given.rs` says what the forward is given, `passing.rs` gives it groups that
//! are made where they are given.

mod apply;
mod blind;
mod claims;
mod count;
mod decide;
mod declared;
mod derive;
mod discarded;
mod fixed;
mod folds;
mod fused;
mod given;
mod layout;
mod many;
mod meaning;
mod misplaced;
mod numeric;
mod order;
mod outputs;
mod passing;
mod symbols;
mod terms;
mod twice;
mod unapplied;
mod wrapper;
mod written;

pub use apply::{Asked, Remembered, shown_dim};
pub use claims::claims;
pub use declared::{Says, against_rule};
pub use derive::{CONTEXT, Case, Decided, Derived, Signature, Trouble};
pub use symbols::UNNAMED;
pub use terms::{Deriving, Gap};
pub use unapplied::unapplied;
pub use wrapper::Application;
pub use written::Written;
