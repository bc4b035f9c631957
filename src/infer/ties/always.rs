//! Flags of constructors that every call in sight gives the same value. In: a finding, and the class in whose method it lies. Out: findings
//! without the worlds in which such a flag is otherwise: no object of this program is made so. Never: a class that is derived from, or that is
//! handed on as a value, or one that nothing in sight makes. Next: `made.rs`.

use super::Ties;
use super::made::{Class, Field};
use super::read::same;
use crate::infer::finding::{Finding, Reached};
use crate::infer::formula::{Atom, Facts, Formula};
use crate::ir::Const;
use crate::project::ClassRef;
use crate::source::Name;

impl Ties<'_> {
    /// A finding with the worlds that the objects of the program can be in, if there are any.
    pub(super) fn made_always(&self, mut finding: Finding) -> Option<Finding> {
        let flags = asked(&finding);
        let Some(class) = self.class_at(&finding, &flags).filter(|class| self.is_only_called(*class)) else {
            return Some(finding);
        };
        let always: Vec<(Name, bool)> =
            flags.iter().filter_map(|flag| Some((flag.clone(), self.always(class, flag)?))).collect();
        if always.is_empty() {
            return Some(finding);
        }
        let possible = |facts: &Facts| {
            !facts.iter().any(|(atom, value)| match atom {
                Atom::True(name) => always.iter().any(|(flag, given)| last(name) == *flag && *given != value),
                Atom::IsNone(_) | Atom::Equals(..) => false,
            })
        };
        finding.worlds.retain(possible);
        for other in &mut finding.others {
            other.found.retain(possible);
        }
        finding.others.retain(|other| !other.found.is_empty());
        if finding.worlds.is_empty() && !finding.others.is_empty() {
            let Reached { found, silent, silent_right } = finding.others.remove(0);
            (finding.worlds, finding.silent_worlds, finding.silent_right) = (found, silent, silent_right);
        }
        (!finding.worlds.is_empty()).then_some(finding)
    }

    /// The class whose method has a finding; of a function the one class of its file that is given one of these flags.
    fn class_at(&self, finding: &Finding, flags: &[Name]) -> Option<ClassRef> {
        let at = self.project.function_at(finding.place)?;
        let func = self.project.func(at);
        if let Some(class) = func.class {
            return Some(ClassRef { module: at.module, class });
        }
        let classes = self.project.modules[at.module].ir.classes.ids();
        let given = |class: &ClassRef| self.fields(*class).iter().any(|(name, _)| flags.contains(name));
        let mut own = classes.map(|class| ClassRef { module: at.module, class }).filter(given);
        own.next().filter(|_| own.next().is_none())
    }

    /// What every call of a class gives a flag of its constructor, if that is always the same. What a flag is by default is no choice of a program.
    fn always(&self, class: ClassRef, flag: &Name) -> Option<bool> {
        let given: Vec<Field> = self.fields(class).into_iter().map(|(name, _)| (name, None)).collect();
        if !given.iter().any(|(name, _)| name == flag) {
            return None;
        }
        let name = &self.project.class(class).name;
        let made = Class { at: class, name, given, called: Vec::new() };
        let calls = self.calls(&made, std::slice::from_ref(flag));
        let all = |value: bool| {
            let wanted = same(flag, &Const::Bool(value));
            !calls.is_empty() && calls.iter().all(|call| matches!(call, Formula::And(said) if said.contains(&wanted)))
        };
        [true, false].into_iter().find(|value| all(*value))
    }

    /// Whether a class is called wherever the project names it, and nothing is derived from it.
    fn is_only_called(&self, class: ClassRef) -> bool {
        let name = self.project.class(class).name.as_str();
        let word = |c: char| c.is_alphanumeric() || c == '_';
        self.project.modules.iter().all(|module| {
            let text = self.files[module.file].whole();
            crate::infer::places::starts(text, name).all(|at| {
                let (before, behind) = (&text[..at], &text[at + name.len()..]);
                let other = before.ends_with(word) || behind.starts_with(word);
                let line = before.lines().next_back().unwrap_or_default().trim_start();
                let defines = line.starts_with("class ") && line.trim_end() == "class";
                let derives = line.starts_with("class ") && !defines;
                let called = behind.starts_with('(') && !derives;
                let value = line.trim_end().ends_with(['=', '(', '[', ',', ':', '{']) && !line.starts_with("def ");
                other || defines || called || !derives && !value
            })
        })
    }
}

fn last(name: &Name) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The flags that worlds of a finding ask for, by their last names, in order.
fn asked(finding: &Finding) -> Vec<Name> {
    let worlds = finding.worlds.iter().chain(finding.others.iter().flat_map(|other| &other.found));
    let mut names: Vec<Name> = worlds.flat_map(Facts::flags).collect();
    names.sort_unstable();
    names.dedup();
    names
}
