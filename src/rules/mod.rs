//! Typing rules: TOML tables compiled to a [`RuleBook`], and the transfer functions that the tables name.
//!
//! In: `rules/**/*.toml` (built in) and a project's own tables. Out: rules by qualified name, and pure functions from types of
//! operands to the type of a result or a violation. Never: the IR, spans of user code, words for people. Next: `schema.rs` for the
//! format, `operator.rs` for what operators do to R, I, V and P.

mod book;
mod builtin;
pub mod collective;
pub mod dims;
mod layer;
mod load;
pub mod operator;
mod schema;
pub mod shapes;
pub mod shards;
pub mod signature;
mod wrapper;

pub use book::{
    Entry, FIRST_RANK, Gives, GroupRule, IntrinsicRule, ModuleRule, OpClass, OpRule, ResultForm, RuleBook, Typecheck,
};
pub use builtin::{FILES, builtin, without_mappings};
pub use collective::{CollectiveRule, Form, Pattern, Transition};
pub use layer::{LayerRule, MarkRule, PlanStyleRule, ProtocolRule};
pub use load::{RuleProblem, load};
pub use operator::{Arg, Kind, Role, Violation, apply};
pub use shapes::ShapeRule;
pub use signature::{Bound, Signature};
pub use wrapper::{Keeps, WrapperRule, Wrappers};
