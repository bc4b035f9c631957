//! Backwards that are differentiated themselves. In: a derivation, and the text of its class and project. Out: a collective without a
//! gradient in a backward of which code says that it can be differentiated. Never: a backward of which nothing says so.
//! Source: DESIGN.md section 6. Next: `apply.rs`, which asks.

use super::super::finding::FindingKind;
use super::super::machine::Machine;
use super::derive::Derived;
use crate::source::{Place, Span};

/// How a text says that a backward can be differentiated.
const CLAIMS: &[&str] =
    &["double backward", "double-backward", "twice differentiable", "twice-differentiable", "gradgradcheck"];
/// What takes a claim back, or where it is another one.
const DENIALS: &[&str] =
    &["once_differentiable", "not support", "no double", "without double", "cannot", "not twice", "isn't", "not be"];

impl Machine<'_> {
    /// Reports a backward that loses the gradient of a gradient.
    pub fn differentiated_twice(&mut self, derived: &Derived) {
        let Some(raw) = derived.cases.iter().find_map(|c| c.raw) else { return };
        let class = self.project.class(derived.class);
        let file = self.project.file(derived.class.module);
        let text = self.files[file].slice(class.span);
        let lower = text.to_ascii_lowercase();
        if DENIALS.iter().any(|d| lower.contains(d)) {
            return;
        }
        let Some((at, word)) = CLAIMS.iter().find_map(|c| Some((lower.find(c)?, c))) else { return };
        let start = class.span.start + u32::try_from(at).unwrap_or(0);
        let claim = Place { file, span: Span::new(start, start + u32::try_from(word.len()).unwrap_or(0)) };
        let kind = FindingKind::RawInDoubleBackward { class: class.name.clone(), claim };
        self.report(raw, kind);
    }
}
