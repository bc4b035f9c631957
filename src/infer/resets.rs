//! Attributes of classes that the program sets from outside, so that what the body of the class says only holds until then:
//! `Tp.size = dist.get_world_size()`. In: what each file assigns. Out: [`Resets`]. Never: values; what is set so is a flag, or unknown.
//! Next: `names.rs`, which asks.

use super::digest::Digests;
use super::memo::{Memo, Task, combined, differing, kept_equals};
use crate::project::{ModuleId, Project};
use crate::source::Name;
use crate::source::reads::{Read, note, number};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Parts of names of functions that set up what holds from then on.
const STARTS: &[&str] = &["init", "setup", "set_up", "main", "start", "launch", "configure"];

/// An attribute of a class that a function sets; `starts`: where the program starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    pub class: Name,
    pub attribute: Name,
    pub starts: bool,
}

impl Reset {
    pub fn new(class: &Name, attribute: &Name, function: &str) -> Reset {
        Reset { class: class.clone(), attribute: attribute.clone(), starts: function.is_empty() || starts(function) }
    }
}

/// Whether a function sets up what holds from then on, by its name.
pub fn starts(function: &str) -> bool {
    STARTS.iter().any(|word| function.contains(word))
}

/// The attributes of classes that are set from outside, by the names of both.
#[derive(Debug, Default)]
pub struct Resets {
    by_name: FxHashMap<(Name, Name), bool>,
}

impl Resets {
    pub fn new(project: &Project, digests: &Digests, memo: Option<&Memo>) -> Arc<Resets> {
        let modules: Vec<ModuleId> = project.modules.ids().collect();
        let parts = kept_equals(memo, &modules, Task::Resets, |module| digests.of(project, module).resets.clone());
        let joined = |parts: Vec<Arc<Box<[Reset]>>>| {
            let mut out = Resets::default();
            for reset in parts.iter().flat_map(|part| part.iter()) {
                *out.by_name.entry((reset.class.clone(), reset.attribute.clone())).or_default() |= reset.starts;
            }
            out
        };
        combined(memo, "resets", parts, joined, |a, b| {
            differing(&a.by_name, &b.by_name).map(|(_, attribute)| Read::Reset(number(attribute))).collect()
        })
    }

    /// Whether a path is that of an attribute that the program sets where it starts: until then its class holds its place.
    pub fn is_started(&self, path: &str) -> bool {
        if self.by_name.is_empty() {
            return false;
        }
        let mut parts = path.rsplit('.');
        let (Some(attribute), Some(class)) = (parts.next(), parts.next()) else { return false };
        self.of(&Name::from(class), &Name::from(attribute)) == Some(true)
    }

    /// Whether an attribute of a class is set from outside, and if so, whether where the program starts.
    pub fn of(&self, class: &Name, attribute: &Name) -> Option<bool> {
        note(|| Read::Reset(number(attribute)));
        if self.by_name.is_empty() {
            return None;
        }
        self.by_name.get(&(class.clone(), attribute.clone())).copied()
    }
}
