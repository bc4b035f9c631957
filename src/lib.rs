//! spmd-check: a static type checker for distributed (SPMD) PyTorch training code.
//!
//! ```text
//!   files, stdin, editor buffers     spmd-check.toml        rules/**/*.toml
//!             |                            |                      |
//!      source/  Files               config/  Config         rules/  RuleBook      I/O ends here
//!             |                            |                      |
//!      syntax/  parse, comments, lower  ->  ir/                   |
//!             |                            |                      |
//!      project/ modules, names             |                      |
//!             |                            |                      |
//!      infer/   executes blocks in worlds; ops -> rules; yields findings and types   (types/ is the domain)
//!             |
//!      diagnostics/ words, suppression, order   ->   fix/ edits, re-checked   ->   render/ text, json, ...   ->   cli/, lsp/
//! ```
//!
//! `plan/` stands beside all this: what a DTensor redistribute does, for `spmd-check plan`.
//!
//! [`check`] is the whole of it as one pure function: same bytes in, same report out, on any number of threads.
//! Modules are listed in reading order; a module uses only those above it, which `tests/tidy.rs` checks.

pub mod check;
pub mod cli;
pub mod config;
pub mod diagnostics;
pub mod fix;
pub mod infer;
pub mod ir;
pub mod lsp;
pub mod plan;
pub mod project;
pub mod render;
pub mod rules;
pub mod source;
pub mod syntax;
pub mod types;

pub use check::{Report, TypeRow, Want, check};
