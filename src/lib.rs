//! spmd-check: a static type checker for distributed (SPMD) PyTorch training code.

pub mod ir;
pub mod source;
pub mod syntax;
