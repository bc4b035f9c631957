//! Inference: abstract execution of modules and root functions. In: a project, rules and settings. Out: [`Output`]: findings, types of
//! variables, coverage. Never: words, I/O. Source: DESIGN.md section 5.
//!
//! Reading order: `value.rs`, `heap.rs`, `world.rs`, `join.rs`; `exec.rs`, `expr.rs`, `call.rs`; `ops.rs`, `collective.rs`.

mod assertion;
pub mod autograd;
mod budget;
mod builtins;
mod call;
mod collective;
mod containers;
mod contract;
mod conversion;
mod coverage;
pub mod declared;
mod decorated;
pub mod dtensor;
mod exec;
mod expr;
mod external;
mod facts;
pub mod finding;
pub mod formula;
mod groups;
mod heap;
mod intrinsics;
mod items;
mod join;
mod layer;
pub mod layout;
pub mod limits;
mod loss_root;
mod machine;
pub mod memo;
mod modes;
mod moved;
mod names;
mod namesakes;
pub use modes::{Due, DueKind};
mod normalised;
mod op_results;
mod ops;
pub mod output;
mod parameters;
pub mod practice;
mod relevance;
mod repair;
mod root;
pub mod scale;
pub mod settings;
mod share;
pub mod sharding;
mod shared;
mod specs;
mod statics;
mod trie;
mod typed;
pub use typed::types_in;
mod unseen;
mod value;
mod vocabulary;
mod whole;
mod world;

pub use output::{Coverage, Output, Row};
pub use root::{infer, infer_kept, wrapper_cases};
pub use settings::Settings;
