//! Flags that hang together: combinations that the program refuses, or never makes. In: findings with the worlds in which they hold, and what
//! texts say of the flags of these. Out: findings without the worlds that cannot be. Never: a single value of a flag: that nothing sets one
//! in sight is no proof. Next: `told.rs`.

mod made;
mod read;
mod told;

use super::finding::{Finding, Reached};
use super::formula::{Facts, Formula};
use super::settings::Settings;
use crate::ir::{Const, FuncKind};
use crate::project::{FuncRef, ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::{Files, Name};

/// What the ties of flags are read from.
#[derive(Clone, Copy)]
pub struct Ties<'a> {
    pub project: &'a Project,
    pub rules: &'a RuleBook,
    pub files: &'a Files,
    pub settings: &'a Settings,
}

impl Ties<'_> {
    /// Leaves out worlds whose flags cannot have these values together, and findings of which no world is left.
    pub fn settle(&self, findings: &mut Vec<Finding>) {
        findings.retain_mut(|finding| {
            let all = finding.worlds.iter().chain(finding.others.iter().flat_map(|other| &other.found));
            // Of one flag alone nothing is tied.
            let mut names: Vec<Name> =
                all.filter(|facts| facts.iter().nth(1).is_some()).flat_map(Facts::flags).collect();
            names.sort_unstable();
            names.dedup();
            let module = self.project.module_of(finding.place.file);
            let Some(module) = module.filter(|_| !names.is_empty()) else { return true };
            let ties = self.of(module, &names);
            if ties.is_empty() {
                return true;
            }
            let possible = |facts: &Facts| !facts.is_refused(&ties);
            finding.worlds.retain(possible);
            for other in &mut finding.others {
                other.found.retain(possible);
            }
            finding.others.retain(|other| !other.found.is_empty());
            if finding.worlds.is_empty() && !finding.others.is_empty() {
                let Reached { found, silent, silent_right } = finding.others.remove(0);
                (finding.worlds, finding.silent_worlds, finding.silent_right) = (found, silent, silent_right);
            }
            !finding.worlds.is_empty()
        });
    }

    /// What holds between flags of these names, as far as the project says so.
    fn of(&self, here: ModuleId, names: &[Name]) -> Vec<Formula> {
        let mut told = told::Told::default();
        for (module, m) in self.project.modules.iter_enumerated() {
            let file = &self.files[m.file];
            if !says_two(file.whole(), names) {
                continue;
            }
            for (func, f) in m.ir.funcs.iter_enumerated() {
                if f.kind == FuncKind::Function && names.iter().any(|n| file.slice(f.span).contains(n.as_str())) {
                    told.read(self, FuncRef { module, func }, module == here);
                }
            }
        }
        let mut ties = told.finish();
        ties.extend(self.made(here, names));
        let text = self.files[self.project.file(here)].whole();
        ties.extend(names.iter().filter_map(|name| literal(text, name)));
        ties.retain(|tie| tie.atoms().iter().any(|atom| names.contains(atom.name())));
        ties
    }
}

/// Whether a text has two of these names.
fn says_two(text: &str, names: &[Name]) -> bool {
    names.iter().filter(|name| text.contains(name.as_str())).nth(1).is_some()
}

/// What a flag can be that is annotated with its values: `style: Literal["tp", "sp"]`.
fn literal(text: &str, name: &str) -> Option<Formula> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut values = Vec::new();
    for (at, _) in text.match_indices(name).filter(|(at, _)| !text[..*at].ends_with(word)) {
        let Some(hint) = text[at + name.len()..].trim_start().strip_prefix(':') else { continue };
        let Some((_, listed)) =
            hint.split('[').next().filter(|of| of.trim().ends_with("Literal")).and(hint.split_once('['))
        else {
            continue;
        };
        values.extend(listed.split(']').next().unwrap_or_default().split(',').map(str::trim).map(|value| {
            let text = value.trim_matches(['"', '\'']);
            if text.len() < value.len() { Const::Str(Name::from(text)) } else { Const::None }
        }));
    }
    let equals = |value: Const| read::same(name, &value);
    (!values.is_empty()).then(|| Formula::Or(values.into_iter().map(equals).collect()))
}
