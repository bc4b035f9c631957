//! Text and places in it: files, spans, names, and the inert [`Diagnostic`].
//!
//! In: bytes read by `cli/` or `lsp/`. Out: [`Files`] and the vocabulary for saying *where*.
//! Never: parsing, typing, or deciding what is wrong. Next: `ir/` for the shape of a program.

mod diagnostic;
pub mod disk;
mod files;
mod index_vec;
pub mod reads;
mod span;
pub mod walk;

pub use diagnostic::{Applicability, Diagnostic, Edit, Fix, Label, Severity};
pub use files::{File, FileId, Files, LineIndex, Position};
pub use index_vec::{Idx, IndexVec};
pub use span::{Place, Span};

/// A cheap-clone string for identifiers and dotted paths.
pub type Name = ecow::EcoString;
