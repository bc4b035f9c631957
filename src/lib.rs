//! spmd-check: a static type checker for distributed (SPMD) PyTorch training code.

pub mod infer;
pub mod ir;
pub mod project;
pub mod rules;
pub mod source;
pub mod types;
