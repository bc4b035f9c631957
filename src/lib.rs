//! spmd-check: a static type checker for distributed (SPMD) PyTorch training code.

pub mod source;
pub mod types;
pub mod ir;
pub mod syntax;
pub mod project;
pub mod rules;
pub mod infer;
pub mod diagnostics;
