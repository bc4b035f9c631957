//! Flags that hang together: combinations that the program refuses, or never makes. In: findings with the worlds in which they hold, and what
//! texts say of the flags of these. Out: findings without the worlds that cannot be. Never: a single value of a flag, unless every call in sight
//! gives it, or what the finding's class asks or is configured by refuses the other: that nothing sets one is no proof. Next: `told.rs`, and `always.rs` and `alone.rs` for one flag by itself.

mod alone;
mod always;
mod made;
mod read;
mod told;

use super::finding::Finding;
use super::formula::{Atom, Facts, Formula, Tied, last_name};
use super::settings::Settings;
use crate::ir::{Const, FuncKind};
use crate::project::{FuncRef, ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::{Files, Idx, Name};
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use rayon::prelude::*;

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
        let all = std::mem::take(findings);
        let alone = |finding: Finding| self.made_always(finding).and_then(|finding| self.possible_alone(finding));
        *findings = all.into_par_iter().filter_map(alone).collect();
        let names = flags(findings);
        if names.is_empty() {
            return;
        }
        let said = Said::new(self, names);
        let all = std::mem::take(findings);
        *findings = all.into_par_iter().filter_map(|finding| self.settled(finding, &said)).collect();
    }

    /// A finding with the worlds that can be, if there are any.
    fn settled(&self, finding: Finding, said: &Said) -> Option<Finding> {
        let names = flags(std::slice::from_ref(&finding));
        let module = self.project.module_of(finding.place.file);
        let Some(module) = module.filter(|_| !names.is_empty()) else { return Some(finding) };
        let ties = self.of(module, &names, said);
        if ties.is_empty() {
            return Some(finding);
        }
        let mut tied = Tied::new(&ties);
        finding.within(|facts| !tied.refuses(facts))
    }

    /// What holds between flags of these names, as far as the project says so.
    fn of(&self, here: ModuleId, names: &[Name], said: &Said) -> Vec<Formula> {
        let mut told = told::Told::default();
        for (module, m) in self.project.modules.iter_enumerated() {
            let file = &self.files[m.file];
            if said.of(module, names).nth(1).is_none() {
                continue;
            }
            for (func, f) in m.ir.funcs.iter_enumerated() {
                if f.kind == FuncKind::Function && may_tell(file.slice(f.span), &f.name, said.of(module, names)) {
                    told.read(self, FuncRef { module, func }, module == here);
                }
            }
        }
        let mut ties = told.finish();
        ties.extend(self.made(here, names, said));
        let text = self.files[self.project.file(here)].whole();
        ties.extend(names.iter().filter_map(|name| literal(text, name)));
        ties.retain(|tie| tie.atoms().iter().any(|atom| names.contains(atom.name())));
        ties
    }
}

/// The flags that worlds of findings know beside others, in order, each once: of one flag alone nothing is tied.
fn flags(findings: &[Finding]) -> Vec<Name> {
    let worlds = findings.iter().flat_map(Finding::found_in);
    let mut names: Vec<Name> = worlds.filter(|facts| facts.iter().nth(1).is_some()).flat_map(Facts::flags).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The flags that the worlds of one finding know, in order, each once.
fn flags_of(finding: &Finding) -> Vec<Name> {
    let mut names: Vec<Name> = finding.found_in().flat_map(Facts::flags).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A finding without the worlds in which a flag has a value that it never has, if there are any others.
fn without(finding: Finding, denied: &[(&Name, bool)]) -> Option<Finding> {
    if denied.is_empty() {
        return Some(finding);
    }
    let is_denied = |atom: &Atom, value: bool| match atom {
        Atom::True(_) => denied.iter().any(|(flag, never)| last_name(atom) == **flag && *never == value),
        Atom::IsNone(_) | Atom::Equals(..) => false,
    };
    finding.within(|facts| !facts.iter().any(|(atom, value)| is_denied(atom, value)))
}

/// Which of some names stand in the text of each module.
struct Said {
    names: Vec<Name>,
    /// By module: places in `names`, in order.
    by_module: Vec<Vec<usize>>,
}

impl Said {
    /// `names`: in order, each once.
    fn new(ties: &Ties<'_>, names: Vec<Name>) -> Said {
        let words = names.iter().map(Name::as_str);
        let all = AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).build(words);
        let all = all.expect("names of flags are few and short");
        let modules: Vec<ModuleId> = ties.project.modules.ids().collect();
        let found = |module: &ModuleId| {
            let text = ties.files[ties.project.file(*module)].whole();
            let mut found = vec![false; names.len()];
            // One name may be a part of another.
            all.find_overlapping_iter(text).for_each(|hit| found[hit.pattern().as_usize()] = true);
            found.iter().enumerate().filter(|(_, found)| **found).map(|(at, _)| at).collect()
        };
        let by_module = modules.par_iter().map(found).collect();
        Said { names, by_module }
    }

    /// Those of these names that a module has.
    fn of<'s>(&'s self, module: ModuleId, names: &'s [Name]) -> impl Iterator<Item = &'s Name> + Clone {
        self.by_module[module.index()]
            .iter()
            .map(|at| &self.names[*at])
            .filter(|name| names.binary_search(name).is_ok())
    }
}

/// Whether a function may say something of flags of these names: it is called like one, sets one, or refuses something where it names one.
fn may_tell<'n>(text: &str, called: &str, names: impl Iterator<Item = &'n Name> + Clone) -> bool {
    if names.clone().any(|name| *name == called) {
        return true;
    }
    let refuses =
        ["assert", "raise"].iter().any(|word| memchr::memmem::find(text.as_bytes(), word.as_bytes()).is_some());
    names.into_iter().any(|name| {
        let mut found = memchr::memmem::find_iter(text.as_bytes(), name.as_bytes());
        if refuses { found.next().is_some() } else { found.any(|at| text[at + name.len()..].starts_with(" = ")) }
    })
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
