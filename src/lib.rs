//! spmd-check: a static type checker for distributed (SPMD) PyTorch training code.

pub mod cli;
pub mod config;
pub mod engine_stub;
pub mod ir;
pub mod render;
pub mod source;
